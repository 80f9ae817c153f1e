//! Futexes: the engine's own, so that who wakes up is decided here.
//!
//! Waiters sleep in one queue in order of arrival, each with its address; a word in memory shared with other processes is
//! left to the kernel, outside the baton. Because only the holder of the baton runs guest code, "compare and sleep" is
//! atomic without more. Priority inheritance has no meaning with one thread at a time: PI futexes keep their protocol
//! (owner's tid in the word, hand-over on unlock) and nothing else.
//!
//! Source: futex(2), futex(7) and the kernel's Documentation/pi-futex.rst and robust-futexes.rst.

use super::record::Thread;
use super::sched::{Wake, Woken};
use crate::shared_page::sched;
use crate::state::Engine;
use crate::sys::{self, err};
use crate::syscalls::{Call, Outcome};

const WAIT: u64 = 0;
const WAKE: u64 = 1;
const REQUEUE: u64 = 3;
const CMP_REQUEUE: u64 = 4;
const WAKE_OP: u64 = 5;
const LOCK_PI: u64 = 6;
const UNLOCK_PI: u64 = 7;
const TRYLOCK_PI: u64 = 8;
const WAIT_BITSET: u64 = 9;
const WAKE_BITSET: u64 = 10;
const LOCK_PI2: u64 = 13;
const CLOCK_REALTIME: u64 = 0x100;

const WAITERS: u32 = 0x8000_0000;
const OWNER_DIED: u32 = 0x4000_0000;
const TID: u32 = 0x3fff_ffff;

/// How many robust mutexes a dying thread is believed to hold.
const ROBUST_MAX: usize = 2048;

impl Call<'_> {
    pub(crate) fn futex(&mut self) -> Outcome {
        let [addr, op, value, arg, addr2, value3] = self.args;
        let command = op & 0x7f;
        if addr & 3 != 0 {
            return Outcome::Value(-err::EINVAL);
        }
        if self.e.memory.is_shared(addr) {
            // The other side may be another process.
            return match command {
                WAIT | WAIT_BITSET | LOCK_PI | LOCK_PI2 => self.wait_for_process(command),
                _ => {
                    let args = self.args;
                    self.make(&args).into()
                }
            };
        }
        match command {
            WAIT => self.futex_wait(addr, value as u32, arg, !0, true, op & CLOCK_REALTIME != 0),
            WAIT_BITSET => {
                if value3 as u32 == 0 {
                    return Outcome::Value(-err::EINVAL);
                }
                self.futex_wait(addr, value as u32, arg, value3 as u32, false, op & CLOCK_REALTIME != 0)
            }
            WAKE => self.checked(addr, |_| wake(addr, value, !0)),
            WAKE_BITSET => {
                if value3 as u32 == 0 {
                    return Outcome::Value(-err::EINVAL);
                }
                self.checked(addr, |_| wake(addr, value, value3 as u32))
            }
            REQUEUE => self.checked(addr, |_| requeue(addr, addr2, value, arg).0),
            CMP_REQUEUE => match sys::read_u32(addr) {
                None => Outcome::Value(-err::EFAULT),
                Some(v) if v != value3 as u32 => Outcome::Value(-err::EAGAIN),
                Some(_) => {
                    let (woken, moved) = requeue(addr, addr2, value, arg);
                    Outcome::Value((woken + moved) as i64)
                }
            },
            WAKE_OP => self.wake_op(),
            LOCK_PI => self.lock_pi(addr, arg, true),
            LOCK_PI2 => self.lock_pi(addr, arg, op & CLOCK_REALTIME != 0),
            TRYLOCK_PI => self.try_lock_pi(addr),
            UNLOCK_PI => self.unlock_pi(addr),
            _ => Outcome::Value(-err::ENOSYS),
        }
    }

    fn checked(&mut self, addr: u64, f: impl FnOnce(&mut Self) -> u32) -> Outcome {
        if sys::read_u32(addr).is_none() {
            return Outcome::Value(-err::EFAULT);
        }
        Outcome::Value(f(self) as i64)
    }

    /// Waits for a word that another process may change, in the kernel; which does not know the virtual clock.
    fn wait_for_process(&mut self, command: u64) -> Outcome {
        let [addr, op, value, at, ..] = self.args;
        let mut args = self.args;
        let mut until = [0u64; 2];
        if !self.e.seeded() || at == 0 {
            return self.wait_outside(&args, None);
        }
        let waits = matches!(command, WAIT | WAIT_BITSET);
        if waits && sys::read_u32(addr).is_some_and(|v| v != value as u32) {
            // No time passes.
            return Outcome::Value(-err::EAGAIN);
        }
        let realtime = command == LOCK_PI || op & CLOCK_REALTIME != 0;
        let limit = match self.timeout(at, command == WAIT, realtime) {
            Ok(l) => l.unwrap_or(0),
            Err(e) => return Outcome::Value(-e),
        };
        let now = if command == WAIT { 0 } else { sys::clock_ns(!realtime as u64) };
        let end = now.saturating_add(limit);
        until[0] = end / 1_000_000_000;
        until[1] = end % 1_000_000_000;
        args[3] = until.as_ptr() as u64;
        self.wait_outside(&args, Some(limit))
    }

    fn futex_wait(
        &mut self,
        addr: u64,
        value: u32,
        timeout: u64,
        bits: u32,
        relative: bool,
        realtime: bool,
    ) -> Outcome {
        match sys::read_u32(addr) {
            None => return Outcome::Value(-err::EFAULT),
            Some(v) if v != value => return Outcome::Value(-err::EAGAIN),
            _ => {}
        }
        let limit = match self.timeout(timeout, relative, realtime) {
            Ok(l) => l,
            Err(e) => return Outcome::Value(-e),
        };
        self.t.futex_addr = addr;
        self.t.futex_bits = bits;
        self.t.futex_pi = false;
        match self.sleep(limit) {
            Woken::ByWaker => Outcome::Value(0),
            Woken::TimedOut => Outcome::Value(-err::ETIMEDOUT),
            // Without a limit the kernel restarts the call by itself, if the handler allows.
            Woken::BySignal if limit.is_none() => self.restart_if_allowed(),
            Woken::BySignal => Outcome::Value(-err::EINTR),
        }
    }

    /// After a signal: made again or EINTR, as the handler's SA_RESTART says.
    pub(crate) fn restart_if_allowed(&mut self) -> Outcome {
        let signal = self.t.info[0] as u32;
        if self.e.actions.get(signal).flags & crate::signals::actions::SA_RESTART != 0 {
            Outcome::Again
        } else {
            Outcome::Value(-err::EINTR)
        }
    }

    /// Sleeps until woken; nobody else may be able to run, which is fine: the kernel wakes us for time and signals.
    fn sleep(&mut self, limit_ns: Option<u64>) -> Woken {
        let tick = self.e.clock.now();
        if self.e.seeded() {
            return self.sleep_in_turn(limit_ns);
        }
        sched().sleep(self.t, limit_ns, tick)
    }

    /// Nanoseconds from now that a futex call may wait.
    fn timeout(&mut self, at: u64, relative: bool, realtime: bool) -> Result<Option<u64>, i64> {
        if at == 0 {
            return Ok(None);
        }
        let (Some(s), Some(ns)) = (sys::read_u64(at), sys::read_u64(at + 8)) else { return Err(err::EFAULT) };
        if ns >= 1_000_000_000 || (s as i64) < 0 {
            return Err(err::EINVAL);
        }
        let given = s.saturating_mul(1_000_000_000).saturating_add(ns);
        if relative {
            return Ok(Some(given));
        }
        let now = self.now_ns(if realtime { 0 } else { 1 });
        Ok(Some(given.saturating_sub(now)))
    }

    fn wake_op(&mut self) -> Outcome {
        let [addr, _, value, value2, addr2, op] = self.args;
        let Some(old) = sys::read_u32(addr2) else { return Outcome::Value(-err::EFAULT) };
        let op = op as u32;
        let mut operand = (op >> 12 & 0xfff) as i32;
        operand = operand << 20 >> 20;
        let compare = (op as i32) << 20 >> 20;
        if op >> 28 & 8 != 0 {
            operand = 1 << (operand & 31);
        }
        let new = match op >> 28 & 7 {
            0 => operand as u32,
            1 => old.wrapping_add(operand as u32),
            2 => old | operand as u32,
            3 => old & !(operand as u32),
            4 => old ^ operand as u32,
            _ => return Outcome::Value(-err::ENOSYS),
        };
        if !sys::write_u32(addr2, new) {
            return Outcome::Value(-err::EFAULT);
        }
        let o = old as i32;
        let holds = match op >> 24 & 15 {
            0 => o == compare,
            1 => o != compare,
            2 => o < compare,
            3 => o <= compare,
            4 => o > compare,
            5 => o >= compare,
            _ => return Outcome::Value(-err::ENOSYS),
        };
        let mut woken = wake(addr, value, !0);
        if holds {
            woken += wake(addr2, value2, !0);
        }
        Outcome::Value(woken as i64)
    }

    fn lock_pi(&mut self, addr: u64, timeout: u64, realtime: bool) -> Outcome {
        let me = self.t.tid;
        let limit = match self.timeout(timeout, false, realtime) {
            Ok(l) => l,
            Err(e) => return Outcome::Value(-e),
        };
        let Some(word) = sys::read_u32(addr) else { return Outcome::Value(-err::EFAULT) };
        if word & TID == me {
            return Outcome::Value(-err::EDEADLK);
        }
        if word & TID == 0 {
            sys::write_u32(addr, word & OWNER_DIED | me);
            return Outcome::Value(0);
        }
        if !is_thread(self.e, word & TID) {
            return Outcome::Value(-err::ESRCH);
        }
        sys::write_u32(addr, word | WAITERS);
        self.t.futex_addr = addr;
        self.t.futex_bits = !0;
        self.t.futex_pi = true;
        match self.sleep(limit) {
            Woken::ByWaker => Outcome::Value(0),
            Woken::TimedOut => Outcome::Value(-err::ETIMEDOUT),
            Woken::BySignal => Outcome::Again,
        }
    }

    fn try_lock_pi(&mut self, addr: u64) -> Outcome {
        let Some(word) = sys::read_u32(addr) else { return Outcome::Value(-err::EFAULT) };
        if word & TID != 0 {
            return Outcome::Value(if word & TID == self.t.tid { -err::EDEADLK } else { -err::EAGAIN });
        }
        sys::write_u32(addr, word & OWNER_DIED | self.t.tid);
        Outcome::Value(0)
    }

    fn unlock_pi(&mut self, addr: u64) -> Outcome {
        let Some(word) = sys::read_u32(addr) else { return Outcome::Value(-err::EFAULT) };
        if word & TID != self.t.tid {
            return Outcome::Value(-err::EPERM);
        }
        hand_over_pi(addr, 0);
        Outcome::Value(0)
    }

    pub(crate) fn thread_call(&mut self) -> Outcome {
        match self.nr {
            sys::nr::SET_TID_ADDRESS => {
                self.t.clear_tid = self.args[0];
                Outcome::Value(self.t.tid as i64)
            }
            sys::nr::SET_ROBUST_LIST => {
                if self.args[1] != 24 {
                    return Outcome::Value(-err::EINVAL);
                }
                self.t.robust_list = self.args[0];
                self.t.robust_len = self.args[1];
                // The kernel gets it too: it walks the list when the whole process is killed.
                self.pass()
            }
            _ => self.pass(),
        }
    }

    pub(crate) fn sched_yield(&mut self) -> Outcome {
        if !sched().single() {
            self.g.gpr[0] = 0;
            let tick = self.e.clock.now();
            sched().give_way(self.t, tick);
        }
        Outcome::Value(0)
    }
}

fn is_thread(e: &Engine, tid: u32) -> bool {
    // SAFETY: regions below the count exist.
    (0..e.thread_regions).any(|n| unsafe { Thread::by_index(n) }.tid == tid)
}

/// Wakes up to `count` sleepers at `addr` whose bits match.
pub fn wake(addr: u64, count: u64, bits: u32) -> u32 {
    let mut left = (count as u32 as i32).max(0) as u32;
    if left == 0 && count as i32 != 0 {
        left = 1;
    }
    sched().wake_sleepers(|t| {
        if left == 0 {
            return Wake::Stop;
        }
        if t.futex_addr == addr && t.futex_bits & bits != 0 && !t.futex_pi {
            left -= 1;
            return Wake::Wake;
        }
        Wake::Leave
    })
}

/// Wakes `count` at `from` and moves up to `limit` others to `to`.
fn requeue(from: u64, to: u64, count: u64, limit: u64) -> (u32, u32) {
    let woken = wake(from, count, !0);
    let mut moved = 0;
    sched().wake_sleepers(|t| {
        if t.futex_addr == from && !t.futex_pi && (moved as u64) < limit as u32 as u64 {
            t.futex_addr = to;
            moved += 1;
        }
        Wake::Leave
    });
    (woken, moved)
}

/// Gives a PI futex to its first waiter, or frees it. `flags` are kept in the word (owner died).
fn hand_over_pi(addr: u64, flags: u32) {
    let mut next = 0;
    let mut more = false;
    sched().wake_sleepers(|t| {
        if t.futex_addr != addr || !t.futex_pi {
            return Wake::Leave;
        }
        if next == 0 {
            next = t.tid;
            return Wake::Wake;
        }
        more = true;
        Wake::Stop
    });
    sys::write_u32(addr, next | flags | if more { WAITERS } else { 0 });
}

/// What the kernel does when a thread ends: its robust mutexes say so, and whoever joins it wakes up.
pub fn thread_ends(e: &mut Engine, t: &mut Thread) {
    robust_list_ends(t);
    if t.clear_tid != 0 {
        let at = t.clear_tid;
        sys::write_u32(at, 0);
        wake(at, 1, !0);
        if e.memory.is_shared(at) {
            // SAFETY: FUTEX_WAKE on the guest's word.
            unsafe { sys::raw(sys::nr::FUTEX, [at, WAKE, 1, 0, 0, 0]) };
        }
    }
}

fn robust_list_ends(t: &Thread) {
    let head = t.robust_list;
    if head == 0 {
        return;
    }
    let (Some(mut entry), Some(offset)) = (sys::read_u64(head), sys::read_u64(head + 8)) else { return };
    let in_progress = sys::read_u64(head + 16).unwrap_or(0);
    for _ in 0..ROBUST_MAX {
        if entry & !1 == head || entry == 0 {
            break;
        }
        let next = sys::read_u64(entry & !1).unwrap_or(0);
        if entry & !1 != in_progress & !1 {
            mutex_owner_died(t, (entry & !1).wrapping_add(offset), entry & 1 != 0);
        }
        entry = next;
    }
    if in_progress & !1 != 0 {
        mutex_owner_died(t, (in_progress & !1).wrapping_add(offset), in_progress & 1 != 0);
    }
}

fn mutex_owner_died(t: &Thread, addr: u64, pi: bool) {
    let Some(word) = sys::read_u32(addr) else { return };
    if word & TID != t.tid {
        return;
    }
    if pi {
        hand_over_pi(addr, OWNER_DIED);
    } else {
        sys::write_u32(addr, word & WAITERS | OWNER_DIED);
        if word & WAITERS != 0 {
            wake(addr, 1, !0);
        }
    }
}
