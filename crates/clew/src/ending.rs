//! The end of this process: the guest's end, passed on to whoever waits for us.

use nix::sys::signal::SigSet;
use rustix::process::{DumpableBehavior, Resource, Rlimit};

const FIRST_REAL_TIME: i32 = 32;

/// Ends this process by the signal that ended the guest, so that a parent sees the same wait status.
///
/// Returns the exit status to use when that cannot be done.
pub fn die_of(signal: i32) -> i32 {
    // A core file of the host would overwrite the guest's and help nobody. The limit does not stop a core handler.
    let none = Rlimit { current: Some(0), maximum: rustix::process::getrlimit(Resource::Core).maximum };
    let _ = rustix::process::setrlimit(Resource::Core, none);
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    if ends_by_default(signal) {
        // Does not return: it resets the disposition, unblocks the signal and raises it.
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    } else if let Some(real_time) = session::signal_by_number(signal).filter(|_| signal >= FIRST_REAL_TIME) {
        // Their disposition is still what it was at the start: the default, unless the guest changed its own.
        let _ = SigSet::empty().thread_set_mask();
        let _ = rustix::process::kill_process(rustix::process::getpid(), real_time);
    }
    (128 + signal).clamp(129, 255)
}

/// The signals whose default action ends a process and that can be put back to it: not the real-time ones.
fn ends_by_default(signal: i32) -> bool {
    use signal_hook::consts::signal::{SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH};
    let harmless = [SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH];
    (1..FIRST_REAL_TIME).contains(&signal) && !harmless.contains(&signal)
}
