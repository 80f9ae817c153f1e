//! Waiting with a seed: a call that could sleep is tried without sleeping, at moments that follow from ticks alone.
//!
//! A thread that has to wait stays in the run queue and tries again when its turn comes. When everybody has tried in vain
//! since the guest last did anything, virtual time moves on to the next deadline; while somebody waits for the world
//! outside (another process, the terminal), real time passes too, and only then can two runs differ. A thread that nobody
//! but the world outside can wake, because all others sleep on futexes, waits in the kernel; if its wait had a limit,
//! virtual time has passed by as much as real time when it is over.
//!
//! May miss: calls without a way to try (opening a FIFO, file locks, message queues) are made outside the baton; a write
//! that is larger than the room in a pipe whose reader is a thread of the same process waits for ever. Threads that only
//! sleep, in a process without children, do so in no real time, whatever other processes expect.

use super::table::{Args, Blocking, Limit};
use super::{Call, Outcome, interrupted, is_regular};
use crate::signals::{actions::SIG_IGN, bit};
use crate::sys::{self, err, nr};
use crate::threads::record::Wait;
use crate::threads::{Thread, Woken, sched};

const CONNECT: u64 = 42;
const FLOCK: u64 = 73;
const LOCK_NB: u64 = 4;
const O_NONBLOCK: i64 = 0o4000;
const POLLIN: u32 = 1;
const POLLOUT: u32 = 4;
/// How long a thread that sends a signal to another one waits until that one has it: a nap, and how many.
const NAP_NS: u64 = 20_000;
const NAPS: u32 = 500;
/// Bytes of the largest descriptor set that the C library knows.
const SET: usize = 128;

/// What an attempt gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attempt {
    Result(i64),
    WouldWait,
    /// Cannot be tried.
    Unknown,
}

impl Call<'_> {
    /// Does the call wait with a limit, so that virtual time has to pass in it?
    pub(super) fn is_limited(&self, args: &Args) -> bool {
        matches!(self.row.map(|r| r.blocking(args)), Some(Blocking::Timed(_)))
    }

    /// Makes a call that may sleep, in turns with the other threads.
    pub(super) fn wait_in_turn(&mut self, args: &Args) -> Outcome {
        let mut timed = false;
        let limit = match self.row.map(|r| r.blocking(args)) {
            None | Some(Blocking::Never) => {
                let r = self.make_and_signal(args);
                return self.finish(r, args);
            }
            Some(Blocking::Timed(t)) => {
                timed = true;
                match t.limit(args, &mut crate::record::calls::read_word) {
                    Some(Limit::After(ns)) => Some(ns),
                    Some(_) => None,
                    // No time at all: the kernel has an error for that.
                    None => return self.make(args).into(),
                }
            }
            Some(_) => None,
        };
        let deadline = limit.map(|ns| self.virtual_after(ns));
        loop {
            match self.attempt(args, Some(0), false) {
                Attempt::Result(r) => return self.end_wait(r, args, limit, deadline),
                Attempt::Unknown => return self.wait_outside(args, limit),
                Attempt::WouldWait => {}
            }
            if interrupted(self.t) {
                // These are never made again by themselves.
                let once = timed || self.nr == nr::PAUSE;
                return if once { Outcome::Value(-err::EINTR) } else { self.restart_if_allowed() };
            }
            let now = self.e.clock.virtual_ns();
            if deadline.is_some_and(|d| now >= d) {
                self.tell_time_left(args, limit, 0);
                return self.timed_out(args);
            }
            if !sched().alone(self.t) {
                self.let_others_run(deadline, true);
            } else if !timed {
                return self.wait_outside(args, None);
            } else {
                let left = deadline.map(|d| d - now);
                let begun = sys::monotonic_ns();
                let r = self.attempt(args, left, true);
                self.time_passed(now, begun, left);
                if let Attempt::Result(r) = r {
                    return self.end_wait(r, args, limit, deadline);
                }
            }
        }
    }

    /// With a seed, waits in turns for a signal, unless nobody of this process could send one.
    pub(super) fn wait_for_signal(&mut self) {
        while self.e.seeded() && !interrupted(self.t) && !sched().alone(self.t) {
            self.let_others_run(None, true);
        }
    }

    fn virtual_after(&self, ns: u64) -> u64 {
        self.e.clock.virtual_ns().saturating_add(ns)
    }

    /// A wait that began at virtual time `from` and real time `begun` is over: virtual time has passed too.
    fn time_passed(&mut self, from: u64, begun: u64, limit: Option<u64>) {
        let Some(limit) = limit else { return };
        let lasted = sys::monotonic_ns().saturating_sub(begun).min(limit);
        // Others may have run meanwhile, and time with them.
        let behind = from.saturating_add(lasted).saturating_sub(self.e.clock.virtual_ns());
        self.e.clock.skipped_ns += behind;
    }

    /// The call as it is, outside the baton.
    pub(crate) fn wait_outside(&mut self, args: &Args, limit: Option<u64>) -> Outcome {
        let (from, begun) = (self.e.clock.virtual_ns(), sys::monotonic_ns());
        let r = if sched().single() { self.make(args) } else { self.outside_baton(args) };
        self.time_passed(from, begun, limit);
        self.finish(r, args)
    }

    fn end_wait(&mut self, r: i64, args: &Args, limit: Option<u64>, deadline: Option<u64>) -> Outcome {
        if let Some(d) = deadline.filter(|_| r >= 0) {
            let left = d.saturating_sub(self.e.clock.virtual_ns());
            self.tell_time_left(args, limit, left);
        }
        self.finish(r, args)
    }

    /// Some calls leave in their limit what is left of it, unless it was zero.
    fn tell_time_left(&self, args: &Args, limit: Option<u64>, left: u64) {
        let (at, unit) = match self.nr {
            nr::SELECT => (args[4], 1000),
            nr::PSELECT6 => (args[4], 1),
            nr::PPOLL => (args[2], 1),
            _ => return,
        };
        if limit.is_some_and(|ns| ns != 0) {
            // As the kernel does, without caring whether it can be written.
            sys::write_u64(at, left / 1_000_000_000);
            sys::write_u64(at + 8, left % 1_000_000_000 / unit);
        }
    }

    /// Nothing is ready: what the kernel would have left in the sets, and its answer.
    fn timed_out(&self, args: &Args) -> Outcome {
        if self.nr == nr::RT_SIGTIMEDWAIT {
            return Outcome::Value(-err::EAGAIN);
        }
        if matches!(self.nr, nr::SELECT | nr::PSELECT6) {
            for at in args[1..4].iter().filter(|at| **at != 0) {
                sys::write_guest(*at, &[0; SET][..set_bytes(args).min(SET)]);
            }
        }
        Outcome::Value(0)
    }

    /// Makes the call with another limit: without sleeping, or really, while others may run.
    fn attempt(&mut self, args: &Args, limit: Option<u64>, really: bool) -> Attempt {
        let mut time = [limit.unwrap_or(0) / 1_000_000_000, limit.unwrap_or(0) % 1_000_000_000];
        let at = if limit.is_some() { time.as_mut_ptr() as u64 } else { 0 };
        let millis = limit.map_or(-1, |ns| ns.div_ceil(1_000_000).min(i32::MAX as u64) as i64) as u64;
        let mut a = *args;
        match self.nr {
            nr::POLL => a[2] = millis,
            nr::PPOLL | nr::RT_SIGTIMEDWAIT => a[2] = at,
            nr::SELECT | nr::PSELECT6 => return self.attempt_select(args, limit, really),
            nr::EPOLL_WAIT | nr::EPOLL_PWAIT => a[3] = millis,
            nr::EPOLL_PWAIT2 => a[3] = at,
            nr::WAIT4 => a[2] |= 1,
            FLOCK => a[1] |= LOCK_NB,
            // The next lower number does the same without waiting.
            nr::FCNTL => a[1] -= 1,
            nr::WAITID => return self.attempt_waitid(args),
            nr::OPEN | nr::CREAT | nr::OPENAT | nr::OPENAT2 => return self.attempt_open(args),
            // Only a signal ends it.
            nr::PAUSE => return Attempt::WouldWait,
            _ => return self.attempt_on_fd(args),
        }
        self.make_attempt(&a, really)
    }

    fn make_attempt(&mut self, a: &Args, really: bool) -> Attempt {
        let r = if really && !sched().single() { self.outside_baton(a) } else { self.make(a) };
        match r {
            0 if matches!(self.nr, FLOCK | nr::FCNTL) => Attempt::Result(0),
            0 => {
                self.take_signal_under_mask(a);
                Attempt::WouldWait
            }
            r if -r == err::EAGAIN && matches!(self.nr, nr::RT_SIGTIMEDWAIT | FLOCK | nr::FCNTL) => Attempt::WouldWait,
            r if -r == err::EACCES && self.nr == nr::FCNTL => Attempt::WouldWait,
            // What interrupted it, if anything of the guest's did, the caller finds out.
            r if r == -err::RESTART || r == -err::EINTR => Attempt::WouldWait,
            r => Attempt::Result(r),
        }
    }

    /// An `epoll` that does not sleep does not look for signals under its mask; `ppoll` does.
    fn take_signal_under_mask(&mut self, a: &Args) {
        if matches!(self.nr, nr::EPOLL_PWAIT | nr::EPOLL_PWAIT2) && a[4] != 0 {
            let mut zero = [0u64; 2];
            let args = [0, 0, zero.as_mut_ptr() as u64, a[4], a[5], 0];
            // SAFETY: no descriptors, a limit of our own and the mask that the kernel has just read.
            unsafe { sys::guest(nr::PPOLL, &args, self.t.pending_word()) };
        }
    }

    /// `select` overwrites what it is given, so it gets copies.
    fn attempt_select(&mut self, args: &Args, limit: Option<u64>, really: bool) -> Attempt {
        let bytes = set_bytes(args);
        if bytes > SET {
            return Attempt::Unknown;
        }
        let mut sets = [[0u8; SET]; 3];
        let mut a = *args;
        for (i, set) in sets.iter_mut().enumerate().filter(|(i, _)| args[1 + i] != 0) {
            if sys::read_guest(args[1 + i], &mut set[..bytes]) < bytes {
                return Attempt::Result(-err::EFAULT);
            }
            a[1 + i] = set.as_mut_ptr() as u64;
        }
        let ns = limit.unwrap_or(0);
        let part = if self.nr == nr::SELECT { (ns % 1_000_000_000).div_ceil(1000) } else { ns % 1_000_000_000 };
        let mut time = [ns / 1_000_000_000, part];
        a[4] = if limit.is_some() { time.as_mut_ptr() as u64 } else { 0 };
        let answer = self.make_attempt(&a, really);
        if matches!(answer, Attempt::Result(1..)) {
            for (at, set) in args[1..4].iter().zip(&sets).filter(|(at, _)| **at != 0) {
                if sys::write_guest(*at, &set[..bytes]) < bytes {
                    return Attempt::Result(-err::EFAULT);
                }
            }
        }
        answer
    }

    /// Without waiting the answer is the same whether there was a child to tell of or not, so it is looked at first.
    fn attempt_waitid(&mut self, args: &Args) -> Attempt {
        const WNOHANG: u64 = 1;
        let mut info = [0u8; 128];
        let mut a = *args;
        a[2] = info.as_mut_ptr() as u64;
        a[3] |= WNOHANG;
        match self.make(&a) {
            // The signal is in the first word when there is one.
            0 if info[0] == 0 => Attempt::WouldWait,
            0 if args[2] != 0 && sys::write_guest(args[2], &info) < info.len() => Attempt::Result(-err::EFAULT),
            r => Attempt::Result(r),
        }
    }

    /// Only FIFOs make an opener wait, and some devices.
    fn attempt_open(&mut self, args: &Args) -> Attempt {
        const AT_FDCWD: u64 = -100i64 as u64;
        const FIFO: u32 = 0o010000;
        const CHARACTERS: u32 = 0o020000;
        const MEMORY: u64 = 1;
        let (folder, path) = match self.nr {
            nr::OPEN | nr::CREAT => (AT_FDCWD, args[0]),
            _ => (args[0], args[1]),
        };
        let mut stat = [0u64; 18];
        // SAFETY: the kernel reads the guest's path and writes struct stat (144 bytes).
        let r = unsafe { sys::raw(nr::NEWFSTATAT, [folder, path, stat.as_mut_ptr() as u64, 0, 0, 0]) };
        match stat[3] as u32 & 0o170000 {
            FIFO if r == 0 => Attempt::Unknown,
            CHARACTERS if r == 0 && stat[5] >> 8 != MEMORY => Attempt::Unknown,
            _ => Attempt::Result(self.make(args)),
        }
    }

    fn attempt_on_fd(&mut self, args: &Args) -> Attempt {
        let Some(Blocking::OnFd(arg)) = self.row.map(|r| r.blocking(args)) else { return Attempt::Unknown };
        let fd = args[arg as usize];
        // SAFETY: asks for the flags of a descriptor (F_GETFL, 3).
        let flags = unsafe { sys::raw3(nr::FCNTL, fd, 3, 0) };
        // What does not wait of itself is made; a connection is made by the kernel, whoever accepts it.
        if is_regular(fd) || flags & O_NONBLOCK != 0 || self.says_dont_wait(args) || self.nr == CONNECT {
            return Attempt::Result(self.make(args));
        }
        let writes = matches!(self.nr, nr::WRITE | 18 | 20 | 40 | 44 | 46 | 242 | 278 | 296 | 307 | 328);
        let mut poll = [fd as u32, if writes { POLLOUT } else { POLLIN }];
        // SAFETY: struct pollfd { fd, events, revents }: the kernel writes its last two bytes.
        let r = unsafe { sys::raw3(nr::POLL, poll.as_mut_ptr() as u64, 1, 0) };
        if r == 0 { Attempt::WouldWait } else { Attempt::Result(self.make(args)) }
    }

    /// Is the call told not to wait by its own flags?
    fn says_dont_wait(&self, args: &Args) -> bool {
        const MSG_DONTWAIT: u64 = 0x40;
        // sendto, recvfrom, sendmmsg, recvmmsg; sendmsg, recvmsg.
        let flags = match self.nr {
            44 | 45 | 299 | 307 => args[3],
            46 | 47 => args[2],
            _ => 0,
        };
        flags & MSG_DONTWAIT != 0
    }

    /// Makes a call that does not wait. A signal that it sends to another thread of this process has to be there before
    /// anybody goes on: when the kernel gets round to that does not follow from ticks, and virtual time must not pass for
    /// a thread that is about to be interrupted.
    fn make_and_signal(&mut self, args: &Args) -> i64 {
        let (whom, signal) = match self.nr {
            nr::KILL | nr::RT_SIGQUEUEINFO => (None, args[1] as u32),
            nr::TKILL => (Some(args[0]), args[1] as u32),
            nr::TGKILL | nr::RT_TGSIGQUEUEINFO => (Some(args[1]), args[2] as u32),
            _ => return self.make(args),
        };
        // SAFETY: asks for a number.
        let ours = whom.is_some() || args[0] == unsafe { sys::raw3(nr::GETPID, 0, 0, 0) } as u64;
        if !ours || !(1..=64).contains(&signal) || self.e.actions.get(signal).handler <= SIG_IGN {
            return self.make(args);
        }
        let (me, regions) = (self.t.index, self.e.thread_regions);
        // SAFETY: regions below the count exist; only words that their own threads change are looked at.
        let all = || (0..regions).filter(|n| *n != me).map(|n| unsafe { Thread::by_index(n) });
        let others = || all().filter(|t| !is(t, Wait::Gone));
        // One that has a signal in hand already takes this one later, in the kernel's order.
        let takes =
            |t: &Thread| !interrupted(t) && t.mask & bit(signal) == 0 && whom.is_none_or(|tid| tid as u32 == t.tid);
        let expected = others().any(|t| takes(t));
        let before = others().filter(|t| interrupted(t)).count();
        let r = self.make(args);
        for _ in 0..if r == 0 && expected { NAPS } else { 0 } {
            let there = others().filter(|t| interrupted(t)).count() > before;
            if interrupted(self.t) || there && others().all(|t| !interrupted(t) || is(t, Wait::Running)) {
                break;
            }
            sys::nap(NAP_NS);
        }
        r
    }

    /// Gives the others a turn. When nobody can do anything, time passes.
    pub(super) fn let_others_run(&mut self, deadline: Option<u64>, outside: bool) {
        let s = sched();
        let now = self.e.clock.virtual_ns();
        self.t.deadline = deadline.unwrap_or(u64::MAX);
        self.t.outside = outside;
        self.t.tried = now;
        if let Some((next, outside)) = s.all_wait(self.t, now) {
            self.pass_time(next, outside);
        }
        s.give_way(self.t, self.e.clock.now());
        self.t.deadline = 0;
    }

    /// Everybody waits: virtual time goes to the next deadline, real time passes if the world outside is waited for.
    fn pass_time(&mut self, next: u64, outside: bool) {
        let mut step = next.saturating_sub(self.e.clock.virtual_ns());
        if outside || has_children() {
            step = sched().pause(self.e.clock.now(), step);
        } else if next == u64::MAX {
            return;
        }
        self.e.clock.skipped_ns += step;
    }

    /// A futex wait with a seed.
    pub(crate) fn sleep_in_turn(&mut self, limit_ns: Option<u64>) -> Woken {
        let tick = self.e.clock.now();
        let Some(limit) = limit_ns else {
            return sched().sleep(self.t, None, tick);
        };
        let deadline = self.virtual_after(limit);
        self.t.futex_woken = false;
        self.t.futex_turns = true;
        let outcome = loop {
            self.let_others_run(Some(deadline), false);
            if self.t.futex_woken {
                break Woken::ByWaker;
            }
            if interrupted(self.t) {
                break Woken::BySignal;
            }
            if self.e.clock.virtual_ns() >= deadline {
                break Woken::TimedOut;
            }
        };
        self.t.futex_turns = false;
        outcome
    }

    /// `nanosleep` and `clock_nanosleep` with a seed: virtual time, in turns. What is left of an interrupted sleep goes to
    /// `rest`, if that is not null.
    pub(super) fn sleep_virtually(&mut self, duration: u64, rest: u64) -> Outcome {
        let deadline = self.virtual_after(duration);
        loop {
            let now = self.e.clock.virtual_ns();
            if now >= deadline {
                return Outcome::Value(0);
            }
            if interrupted(self.t) {
                let left = deadline - now;
                if rest != 0
                    && !(sys::write_u64(rest, left / 1_000_000_000) && sys::write_u64(rest + 8, left % 1_000_000_000))
                {
                    return Outcome::Value(-err::EFAULT);
                }
                return Outcome::Value(-err::EINTR);
            }
            if !sched().single() {
                self.let_others_run(Some(deadline), false);
                continue;
            }
            // Other processes may expect that it takes its time.
            let left = deadline - now;
            let time = [left / 1_000_000_000, left % 1_000_000_000];
            let begun = sys::monotonic_ns();
            // SAFETY: the kernel reads the time to sleep; a signal ends the sleep or keeps it from beginning.
            unsafe { sys::guest(nr::NANOSLEEP, &[time.as_ptr() as u64, 0, 0, 0, 0, 0], self.t.pending_word()) };
            self.time_passed(now, begun, Some(left));
        }
    }
}

/// Bytes of each descriptor set that `select` uses.
fn set_bytes(args: &Args) -> usize {
    (args[0] as i32).max(0).unsigned_abs().div_ceil(64) as usize * 8
}

/// Does the thread wait this way? It may be changing that.
fn is(t: &Thread, how: Wait) -> bool {
    // SAFETY: a word of a live record.
    unsafe { core::ptr::read_volatile(&raw const t.wait) == how }
}

/// Is there a child process, whose doings somebody may expect when a sleep is over?
fn has_children() -> bool {
    const LOOK_ONLY: u64 = 0x100_0000 | 4 | 1;
    // SAFETY: asks without taking anything: any child that has ended, without waiting, to be asked again.
    unsafe { sys::raw(nr::WAITID, [0, 0, 0, LOOK_ONLY, 0, 0]) != -err::ECHILD }
}
