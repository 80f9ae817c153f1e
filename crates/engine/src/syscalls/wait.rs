//! Waiting with a seed: a call that could sleep is tried without sleeping, at moments that follow from ticks alone.
//!
//! A thread that has to wait stays in the run queue and tries again when its turn comes. When nobody has anything else to
//! do, virtual time moves on to the next deadline; while somebody waits for the world outside (another process, the
//! terminal), real time passes too, and only then can two runs differ.
//!
//! May miss: calls without a way to try (opening a FIFO, file locks, message queues) are made outside the baton; a write
//! that is larger than the room in a pipe whose reader is a thread of the same process waits for ever.

use super::table::{Args, Blocking};
use super::{Call, Outcome, interrupted, is_regular};
use crate::sys::{self, err, nr};
use crate::threads::{Woken, sched};
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

const CONNECT: u64 = 42;
const O_NONBLOCK: i64 = 0o4000;
const POLLIN: u32 = 1;
const POLLOUT: u32 = 4;
/// Real time that passes while everybody waits for the world outside.
const PAUSE_NS: u64 = 200_000;

/// What an attempt gave.
enum Attempt {
    Result(i64),
    WouldWait,
    /// Cannot be tried.
    Unknown,
}

impl Call<'_> {
    /// Makes a call that may sleep, in turns with the other threads.
    pub(super) fn wait_in_turn(&mut self, args: &Args) -> Outcome {
        let limit = match self.row.map(|r| r.blocking(args)) {
            None | Some(Blocking::Never) => {
                let r = self.make(args);
                return self.finish(r, args);
            }
            Some(Blocking::Timed(t)) => t.limit(args, &mut |at, size| {
                let mut w = [0; 8];
                let n = size.min(8) as usize;
                (sys::read_guest(at, &mut w[..n]) == n).then(|| u64::from_le_bytes(w))
            }),
            Some(_) => None,
        };
        let deadline = self.deadline_of(limit);
        loop {
            match self.attempt(args) {
                Attempt::Result(r) => return self.finish(r, args),
                Attempt::Unknown => {
                    let r = self.outside_baton(args);
                    return self.finish(r, args);
                }
                Attempt::WouldWait => {}
            }
            if interrupted(self.t) {
                return self.restart_if_allowed();
            }
            if deadline.is_some_and(|d| self.e.clock.virtual_ns() >= d) {
                // Nothing is ready: that is what the kernel would have left in the sets.
                for (at, set) in self.fd_sets(args) {
                    sys::write_guest(at, &alloc::vec![0; set.len()]);
                }
                return Outcome::Value(0);
            }
            self.let_others_run(deadline, true);
        }
    }

    fn deadline_of(&self, limit: Option<super::table::Limit>) -> Option<u64> {
        use super::table::Limit;
        match limit {
            Some(Limit::After(ns)) => Some(self.e.clock.virtual_ns().saturating_add(ns)),
            _ => None,
        }
    }

    fn attempt(&mut self, args: &Args) -> Attempt {
        let zero = [0u64; 2];
        let none = zero.as_ptr() as u64;
        let mut a = *args;
        match self.nr {
            nr::POLL => a[2] = 0,
            nr::PPOLL => a[2] = none,
            nr::SELECT | nr::PSELECT6 => a[4] = none,
            nr::EPOLL_WAIT | nr::EPOLL_PWAIT => a[3] = 0,
            nr::EPOLL_PWAIT2 => a[3] = none,
            nr::WAIT4 => a[2] |= 1,
            _ => return self.attempt_on_fd(args),
        }
        let sets = self.fd_sets(args);
        match self.make(&a) {
            0 if args[if self.nr == nr::POLL { 2 } else { 3 }] as i32 == 0
                && matches!(self.nr, nr::POLL | nr::EPOLL_WAIT) =>
            {
                Attempt::Result(0)
            }
            0 => {
                // The kernel has emptied the sets that are to be waited for.
                for (at, set) in sets {
                    sys::write_guest(at, &set);
                }
                Attempt::WouldWait
            }
            r => Attempt::Result(r),
        }
    }

    /// The sets of descriptors of `select`, with their addresses.
    fn fd_sets(&self, args: &Args) -> Vec<(u64, Vec<u8>)> {
        if !matches!(self.nr, nr::SELECT | nr::PSELECT6) {
            return Vec::new();
        }
        let bytes = (args[0] as u32 as usize).min(1 << 20).div_ceil(64) * 8;
        let given = args[1..4].iter().copied().filter(|at| *at != 0);
        given
            .map(|at| {
                let mut set = alloc::vec![0; bytes];
                let n = sys::read_guest(at, &mut set);
                set.truncate(n);
                (at, set)
            })
            .collect()
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

    /// Gives the others a turn. When nobody can do anything, time passes.
    pub(super) fn let_others_run(&mut self, deadline: Option<u64>, outside: bool) {
        let s = sched();
        self.t.deadline = deadline.unwrap_or(u64::MAX);
        self.t.outside = outside;
        let idle = s.idle.fetch_add(1, Relaxed) + 1;
        if idle > s.run_length() {
            s.idle.store(0, Relaxed);
            self.pass_time();
        }
        s.give_way(self.t, self.e.clock.now());
        self.t.deadline = 0;
    }

    /// Everybody waits: virtual time goes to the next deadline, real time passes if the world outside is waited for.
    fn pass_time(&mut self) {
        let (mut next, mut outside) = (u64::MAX, false);
        sched().each_waiting(self.t, |t| {
            if t.deadline != 0 {
                next = next.min(t.deadline);
                outside |= t.outside;
            }
        });
        let now = self.e.clock.virtual_ns();
        let mut step = next.saturating_sub(now);
        if outside {
            step = step.min(PAUSE_NS);
            let pause = [0u64, PAUSE_NS];
            // SAFETY: the kernel reads the time to sleep.
            unsafe { sys::raw3(nr::NANOSLEEP, pause.as_ptr() as u64, 0, 0) };
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
        let deadline = self.e.clock.virtual_ns().saturating_add(limit);
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

    /// `nanosleep` and `clock_nanosleep` with a seed: virtual time, in turns.
    pub(super) fn sleep_virtually(&mut self, duration: u64) -> Outcome {
        if sched().single() {
            let args = self.args;
            let r = self.make(&args);
            self.e.clock.skipped_ns += duration;
            return r.into();
        }
        let deadline = self.e.clock.virtual_ns().saturating_add(duration);
        while self.e.clock.virtual_ns() < deadline {
            if interrupted(self.t) {
                return Outcome::Value(-err::EINTR);
            }
            self.let_others_run(Some(deadline), false);
        }
        Outcome::Value(0)
    }
}
