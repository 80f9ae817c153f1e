//! Signals and job control: a guest under `clew run` reacts as if it had been started directly.
//!
//! Host and guest share one process group and one terminal, so the guest gets what the terminal sends (Ctrl-C, Ctrl-Z,
//! a new window size) by itself; the host must only not die of it. What is sent to the host alone is passed on. When the
//! guest stops, the host stops by the same signal, so that the shell takes the job for stopped; when the host is
//! continued alone, the guest is too.
//!
//! Every signal is blocked and read from a descriptor: no handler exists, so no disposition changes and a guest inherits
//! exactly what the host was given.
//!
//! Limit: whether `kill` was aimed at one process or at a group cannot be told. A signal sent by another program to the
//! whole group therefore reaches the guest twice. Real-time signals lose their value when passed on.

use crate::startup::Startup;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{getpid, getsid};
use session::{Handle, process_stat};
use std::time::Duration;

/// `si_code` of signals that the kernel itself sends.
const FROM_KERNEL: i32 = 0x80;
/// How often the guest must be seen stopped while the host goes on, and how far apart.
const LOOKS: usize = 10;
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
/// More generations than any process tree has.
const MAX_GENERATIONS: usize = 64;

/// All signals blocked and waiting to be read.
pub struct Signals {
    reader: SignalFd,
}

impl Signals {
    /// Takes charge of signals; must be called before any thread is started.
    pub fn take() -> nix::Result<Signals> {
        let mut all = SigSet::all();
        // These mean a fault of our own when they come: blocked, they could not be told from an endless loop.
        for fault in [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGILL, Signal::SIGFPE, Signal::SIGTRAP, Signal::SIGSYS]
        {
            all.remove(fault);
        }
        let reader = SignalFd::with_flags(&all, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        all.thread_block()?;
        Ok(Signals { reader })
    }

    /// The first signal that has come since, if it is one that would have ended this process.
    ///
    /// Asked before a guest exists: it could not receive them any more.
    pub fn fatal_so_far(&self) -> Option<i32> {
        while let Ok(Some(info)) = self.reader.read_signal() {
            let number = info.ssi_signo as i32;
            let harmless = [Signal::SIGCHLD, Signal::SIGCONT, Signal::SIGWINCH, Signal::SIGURG, Signal::SIGTSTP];
            if !harmless.iter().any(|h| *h as i32 == number) {
                return Some(number);
            }
        }
        None
    }

    /// Passes signals on to the guest until it is gone, in a thread of its own.
    pub fn pass_on(self, guest: Handle) -> std::io::Result<()> {
        std::thread::Builder::new().name("clew-signals".into()).spawn(move || self.serve(&guest)).map(drop)
    }

    fn serve(&self, guest: &Handle) {
        loop {
            let mut fds = [rustix::event::PollFd::new(&self.reader, rustix::event::PollFlags::IN)];
            match rustix::event::poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
            while let Ok(Some(info)) = self.reader.read_signal() {
                let number = info.ssi_signo as i32;
                let origin = Origin::of(info.ssi_code, info.ssi_pid, guest.pid());
                if passes_on(number, origin, leads_session(), || is_left_stopped(guest)) {
                    // It fails only when the guest has gone.
                    let _ = guest.signal(number);
                }
            }
        }
    }
}

/// Was the host continued without the guest?
///
/// Whoever continues the group reaches one of them before the other, so one look is not enough; and a signal that is sent after a
/// look, but late, would undo a new stop. So it is looked at for a while.
fn is_left_stopped(guest: &Handle) -> bool {
    (0..LOOKS).all(|_| {
        let is_left = guest.is_left_stopped();
        if is_left {
            std::thread::sleep(BETWEEN_LOOKS);
        }
        is_left
    })
}

/// Who sent a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Origin {
    Kernel,
    /// The guest or a descendant: it meant its own group and has reached itself.
    Guest,
    Other,
}

impl Origin {
    fn of(code: i32, sender: u32, guest: u32) -> Origin {
        match code {
            FROM_KERNEL => Origin::Kernel,
            _ if sender != 0 && descends(sender, guest) => Origin::Guest,
            _ => Origin::Other,
        }
    }
}

/// Must this signal be sent to the guest, or does it get it by itself (or must not get it)?
fn passes_on(number: i32, origin: Origin, leads_session: bool, is_left_stopped: impl Fn() -> bool) -> bool {
    let Ok(named) = Signal::try_from(number) else { return origin != Origin::Guest };
    match (named, origin) {
        // Ours: the child's ends and stops, our own writes to pipes that nobody reads, our own limits.
        (Signal::SIGCHLD | Signal::SIGPIPE | Signal::SIGXCPU | Signal::SIGXFSZ, _) => false,
        // Whoever continues the group has continued the guest too.
        (Signal::SIGCONT, _) => is_left_stopped(),
        (_, Origin::Guest) => false,
        // A terminal that hangs up tells the leader of the session only.
        (Signal::SIGHUP, Origin::Kernel) => leads_session,
        // The terminal sends these to the whole group.
        (
            Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU | Signal::SIGWINCH,
            Origin::Kernel,
        ) => false,
        // A timer that was set before `clew` was started counts for the program that it was meant for.
        _ => true,
    }
}

/// Stops this process as the guest was stopped, if it still is; returns when this process is continued.
///
/// Word of a stop may come late: the terminal's own signal can stop this process while this thread lets it through for the
/// stop before (Ctrl-Z at once after `fg`, on a busy machine). By then somebody has continued both, and stopping again would leave
/// the guest running without its host.
pub fn stop_like(number: i32, guest: &Handle, startup: &Startup) {
    guest.answer_stop();
    let signal = Signal::try_from(number).unwrap_or(Signal::SIGSTOP);
    let stops = matches!(signal, Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU);
    if stops && !startup.ignores(number) {
        // Sent to this thread alone, because the reader of signals would take one that is sent to the process. Only then is
        // the guest looked at: whoever continues the group from now on discards what waits here.
        let _ = nix::sys::signal::raise(signal);
        let set = SigSet::from(signal);
        if guest.is_stopped() {
            let _ = set.thread_unblock();
            let _ = set.thread_block();
        } else {
            discard(signal);
        }
    } else if guest.is_stopped() {
        let _ = nix::sys::signal::raise(Signal::SIGSTOP);
    }
}

/// Takes back a blocked signal that waits for this thread, if one does.
fn discard(signal: Signal) {
    let Ok(reader) = SignalFd::with_flags(&SigSet::from(signal), SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK) else {
        return;
    };
    let _ = reader.read_signal();
}

/// The leader may live in an outer pid namespace and have no number here, so this must not insist on one.
fn leads_session() -> bool {
    getsid(None).is_ok_and(|leader| leader == getpid())
}

/// Is `process` the same as or a descendant of `ancestor`?
fn descends(process: u32, ancestor: u32) -> bool {
    let mut at = process;
    for _ in 0..MAX_GENERATIONS {
        if at == ancestor {
            return true;
        }
        match process_stat(at) {
            Some((_, parent)) if parent > 1 => at = parent,
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(signal: Signal, origin: Origin, expected: bool) {
        assert_eq!(passes_on(signal as i32, origin, false, || false), expected, "{signal} from {origin:?}");
    }

    #[test]
    fn what_the_terminal_sends_to_the_group_is_not_passed_on() {
        for signal in [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTSTP, Signal::SIGWINCH, Signal::SIGHUP] {
            check(signal, Origin::Kernel, false);
            check(signal, Origin::Other, true);
        }
        assert!(passes_on(Signal::SIGHUP as i32, Origin::Kernel, true, || false), "only the leader hears of a hangup");
    }

    #[test]
    fn what_is_sent_to_the_host_alone_is_passed_on() {
        for signal in [Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGALRM] {
            check(signal, Origin::Other, true);
            check(signal, Origin::Guest, false);
        }
        check(Signal::SIGALRM, Origin::Kernel, true);
        assert!(passes_on(40, Origin::Other, false, || false), "real-time signals too");
    }

    #[test]
    fn our_own_business_is_not_passed_on() {
        for signal in [Signal::SIGCHLD, Signal::SIGPIPE] {
            for origin in [Origin::Kernel, Origin::Guest, Origin::Other] {
                check(signal, origin, false);
            }
        }
    }

    #[test]
    fn a_guest_is_continued_only_if_it_is_still_stopped() {
        check(Signal::SIGCONT, Origin::Other, false);
        assert!(passes_on(Signal::SIGCONT as i32, Origin::Other, false, || true));
    }

    #[test]
    fn a_process_descends_from_itself_and_its_parent() {
        let this = std::process::id();
        assert!(descends(this, this));
        assert!(descends(this, std::os::unix::process::parent_id()));
        assert!(!descends(std::os::unix::process::parent_id(), this));
    }
}
