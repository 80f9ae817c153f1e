//! The baton: one guest thread runs at a time, and we decide which.
//!
//! Every guest thread is a kernel task; the one that holds the baton runs guest code and uses the engine. The others are in
//! the run queue, in a futex queue, or in a system call outside the baton. Queue order is first come, first served; with a
//! seed, the length of each turn varies and the order follows from ticks alone.
//!
//! The scheduler's words live in a page of their own that is never write-protected, guarded by a small lock, because
//! threads that come back from the kernel enqueue themselves.

use super::record::{Thread, Wait, pending};
use crate::gate;
use crate::shared_page::sched;
use crate::sys::{self, nr};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// A waiting thread asks the holder to stop after this long, when nothing else bounds a turn.
const PATIENCE_NS: u64 = 4_000_000;
/// How many waiting threads a seed chooses among.
const CHOICE: u64 = 3;
/// The signal used for that: unused by Linux itself and by programs we know.
pub const PREEMPT_SIGNAL: u32 = 16;

/// Values of `Thread::wake` besides 0.
const GO: u32 = 1;
const QUEUED: u32 = 2;
/// How long a thread waits for a turn that ticks will end, before it looks whether they still do.
const LONG_NS: u64 = 1_000_000_000;

/// Real time that passes while everybody waits for the world outside: at first, doubled after so many, so many times.
const PAUSE_NS: u64 = 200_000;
const PAUSES: u32 = 8;
const LONGEST: u32 = 4;

const FUTEX_WAIT: u64 = 0x80;
const FUTEX_WAKE: u64 = 0x81;

/// Scheduler words. Lists are linked through `Thread::next` as index + 1.
#[repr(C)]
pub struct Sched {
    lock: AtomicU32,
    /// Index + 1 of the thread with the baton.
    holder: AtomicU32,
    run_head: AtomicU32,
    run_tail: AtomicU32,
    futex_head: AtomicU32,
    futex_tail: AtomicU32,
    /// Threads that exist.
    pub alive: AtomicU32,
    /// Turns are bounded by ticks: nobody needs to ask the holder.
    pub ticking: AtomicU32,
    /// A digest of who ran when.
    pub digest: AtomicU64,
    pub switches: AtomicU64,
    /// State of the choice of who runs next; 0 without a seed: first come, first served.
    pub rng: AtomicU64,
    /// With a seed: the tick at which everybody waited for the world outside, and how often time has passed since.
    quiet: AtomicU64,
    pauses: AtomicU32,
    /// The real time that corresponds to virtual time now, in that case.
    paced: AtomicU64,
}

/// Why a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    ByWaker,
    TimedOut,
    BySignal,
}

struct Locked;

impl Drop for Locked {
    fn drop(&mut self) {
        if sched().lock.swap(0, Release) == 2 {
            futex(&sched().lock, FUTEX_WAKE, 1, None);
        }
    }
}

fn lock() -> Locked {
    let l = &sched().lock;
    if l.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
        while l.swap(2, Acquire) != 0 {
            futex(l, FUTEX_WAIT, 2, None);
        }
    }
    Locked
}

fn futex(word: &AtomicU32, op: u64, value: u32, timeout_ns: Option<u64>) -> i64 {
    let ts = timeout_ns.map(|n| [n / 1_000_000_000, n % 1_000_000_000]);
    let ptr = ts.as_ref().map_or(0, |t| t.as_ptr() as u64);
    // SAFETY: the word outlives the call; the kernel only reads it and the timeout.
    unsafe { sys::raw(nr::FUTEX, [word as *const _ as u64, op, value as u64, ptr, 0, 0]) }
}

/// Waits for the thread's own word; a signal ends the wait even if its handler asks for interrupted calls to go on.
fn interruptible_wait(t: &mut Thread, timeout_ns: Option<u64>) -> i64 {
    // Nobody needs to preempt a thread that sleeps.
    t.settle(pending::PREEMPT);
    let ts = timeout_ns.map(|n| [n / 1_000_000_000, n % 1_000_000_000]);
    let ptr = ts.as_ref().map_or(0, |t| t.as_ptr() as u64);
    let args = [&raw const t.wake as u64, FUTEX_WAIT, 0, ptr, 0, 0];
    // SAFETY: word, timeout and pending flag outlive the call.
    unsafe { sys::guest(nr::FUTEX, &args, t.pending_word()) }
}

fn thread(link: u32) -> Option<&'static mut Thread> {
    // SAFETY: links name regions of existing threads.
    (link != 0).then(|| unsafe { Thread::by_index(link - 1) })
}

fn wake_word(t: &Thread) -> &AtomicU32 {
    // SAFETY: an aligned u32 of a live record, used atomically everywhere.
    unsafe { &*(&raw const t.wake as *const AtomicU32) }
}

fn push(head: &AtomicU32, tail: &AtomicU32, t: &mut Thread) {
    t.next = 0;
    let link = t.index + 1;
    match thread(tail.load(Relaxed)) {
        Some(last) => last.next = link,
        None => head.store(link, Relaxed),
    }
    tail.store(link, Relaxed);
}

fn pop(head: &AtomicU32, tail: &AtomicU32) -> Option<&'static mut Thread> {
    let t = thread(head.load(Relaxed))?;
    head.store(t.next, Relaxed);
    if t.next == 0 {
        tail.store(0, Relaxed);
    }
    t.next = 0;
    Some(t)
}

/// Takes `t` out of a list; says whether it was there.
fn unlink(head: &AtomicU32, tail: &AtomicU32, t: &Thread) -> bool {
    let mut before: Option<&'static mut Thread> = None;
    let mut at = head.load(Relaxed);
    while let Some(x) = thread(at) {
        if x.index == t.index {
            match &mut before {
                Some(b) => b.next = x.next,
                None => head.store(x.next, Relaxed),
            }
            if x.next == 0 {
                tail.store(before.map_or(0, |b| b.index + 1), Relaxed);
            }
            x.next = 0;
            return true;
        }
        at = x.next;
        before = Some(x);
    }
    false
}

impl Sched {
    pub fn holds(&self, t: &Thread) -> bool {
        self.holder.load(Relaxed) == t.index + 1
    }

    pub fn others_wait(&self) -> bool {
        self.run_head.load(Relaxed) != 0
    }

    /// With a seed: if `t` and everybody in the run queue has tried in vain at virtual time `now`, the next deadline among
    /// them, and whether anybody waits for the world outside.
    pub fn all_wait(&self, t: &Thread, now: u64) -> Option<(u64, bool)> {
        let _l = lock();
        let (mut next, mut outside, mut seen) = (t.deadline, t.outside, 1);
        let mut at = self.run_head.load(Relaxed);
        while let Some(t) = thread(at) {
            if t.deadline == 0 || t.tried != now || t.has(pending::SIGNAL) {
                return None;
            }
            next = next.min(t.deadline);
            outside |= t.outside;
            seen += 1;
            at = t.next;
        }
        Some((next, outside || seen + self.sleepers() < self.alive.load(Relaxed)))
    }

    /// Do all threads but `t`, which has the baton, sleep on futexes?
    pub fn alone(&self, t: &Thread) -> bool {
        debug_assert!(self.holds(t));
        let _l = lock();
        !self.others_wait() && 1 + self.sleepers() == self.alive.load(Relaxed)
    }

    /// Threads in the futex queue. The lock is held.
    fn sleepers(&self) -> u32 {
        let mut n = 0;
        let mut at = self.futex_head.load(Relaxed);
        while let Some(t) = thread(at) {
            at = t.next;
            n += 1;
        }
        n
    }

    /// Everybody waits for the world outside: lets real time pass before everybody tries again, the longer the longer it
    /// was in vain, but at most `most` nanoseconds. Answers by how much virtual time has to go on, which does not depend on
    /// how long it really took; the next pause makes up for that.
    pub fn pause(&self, tick: u64, most: u64) -> u64 {
        if self.quiet.swap(tick, Relaxed) != tick {
            self.pauses.store(0, Relaxed);
            self.paced.store(sys::monotonic_ns(), Relaxed);
        }
        let before = self.pauses.fetch_add(1, Relaxed);
        let step = most.min(PAUSE_NS << (before / PAUSES).min(LONGEST));
        let until = self.paced.fetch_add(step, Relaxed) + step;
        sys::nap(until.saturating_sub(sys::monotonic_ns()));
        step
    }

    pub fn single(&self) -> bool {
        self.alive.load(Relaxed) == 1
    }

    /// The first thread starts with the baton; also what a forked child does, whose other threads did not come along.
    pub fn begin(&self, t: &Thread) {
        self.lock.store(0, Relaxed);
        for list in [&self.run_head, &self.run_tail, &self.futex_head, &self.futex_tail] {
            list.store(0, Relaxed);
        }
        self.alive.store(1, Relaxed);
        self.holder.store(t.index + 1, Release);
    }

    fn note_switch(&self, t: &Thread, tick: u64) {
        self.switches.fetch_add(1, Relaxed);
        let d = self.digest.load(Relaxed);
        let mixed = (d ^ (t.serial as u64) ^ tick.rotate_left(20)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.digest.store(mixed ^ mixed >> 29, Relaxed);
    }

    /// A new thread, set up by its creator, joins the run queue.
    pub fn admit(&self, t: &mut Thread) {
        let _l = lock();
        self.alive.fetch_add(1, Relaxed);
        t.wait = Wait::Running;
        push(&self.run_head, &self.run_tail, t);
    }

    /// With a seed: one of the first few in the queue goes to its front. Whoever is passed over keeps its place, so
    /// nobody starves.
    fn choose(&self) {
        let mut x = self.rng.load(Relaxed);
        if x == 0 {
            return;
        }
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.rng.store(x, Relaxed);
        let mut skip = (x >> 32) % CHOICE;
        let mut at = self.run_head.load(Relaxed);
        while let Some(t) = thread(at) {
            if t.lag > 0 && t.next != 0 {
                // Slowed, but not for ever.
                t.lag -= 1;
                at = t.next;
                continue;
            }
            if skip == 0 || t.next == 0 {
                unlink(&self.run_head, &self.run_tail, t);
                t.next = self.run_head.load(Relaxed);
                if t.next == 0 {
                    self.run_tail.store(t.index + 1, Relaxed);
                }
                self.run_head.store(t.index + 1, Relaxed);
                return;
            }
            skip -= 1;
            at = t.next;
        }
    }

    /// Gives the baton to the next in the queue.
    fn pass_on(&self, tick: u64) {
        self.choose();
        match pop(&self.run_head, &self.run_tail) {
            Some(next) => {
                self.note_switch(next, tick);
                self.holder.store(next.index + 1, Release);
                wake_word(next).store(1, Release);
                futex(wake_word(next), FUTEX_WAKE, 1, None);
            }
            None => self.holder.store(0, Release),
        }
    }

    /// Lets others run while this thread is in the kernel.
    pub fn release(&self, t: &mut Thread, tick: u64) {
        save(t);
        let _l = lock();
        t.wait = Wait::Kernel;
        self.pass_on(tick);
    }

    /// Gets the baton (back).
    pub fn acquire(&self, t: &mut Thread) {
        {
            let _l = lock();
            t.wait = Wait::Running;
            if self.holder.load(Relaxed) == 0 && !self.others_wait() {
                self.holder.store(t.index + 1, Release);
                drop(_l);
                load(t);
                return;
            }
            push(&self.run_head, &self.run_tail, t);
            if self.holder.load(Relaxed) == 0 {
                self.pass_on(0);
            }
        }
        self.wait_for_turn(t);
    }

    /// Goes to the end of the queue, if anybody else wants to run.
    pub fn give_way(&self, t: &mut Thread, tick: u64) {
        if !self.others_wait() {
            return;
        }
        save(t);
        {
            let _l = lock();
            push(&self.run_head, &self.run_tail, t);
            self.pass_on(tick);
        }
        self.wait_for_turn(t);
    }

    /// From now on turns are bounded by ticks, or not. Who waits notices within a second.
    pub fn set_ticking(&self, ticking: bool) {
        self.ticking.store(ticking as u32, Relaxed);
    }

    /// In the run queue: sleeps until the baton comes.
    pub fn wait_for_turn(&self, t: &mut Thread) {
        loop {
            let now = wake_word(t).load(Acquire);
            if now == GO {
                break;
            }
            let ticking = self.ticking.load(Relaxed) != 0;
            let patience = if ticking { LONG_NS } else { PATIENCE_NS };
            let r = futex(wake_word(t), FUTEX_WAIT, now, Some(patience));
            if r == -sys::err::ETIMEDOUT && !ticking {
                self.ask_holder();
            }
        }
        wake_word(t).store(0, Relaxed);
        load(t);
    }

    fn ask_holder(&self) {
        if let Some(h) = thread(self.holder.load(Relaxed)) {
            // SAFETY: a signal to a task of this process, whose handler expects it.
            unsafe {
                let pid = sys::raw3(nr::GETPID, 0, 0, 0) as u64;
                sys::raw3(nr::TGKILL, pid, h.tid as u64, PREEMPT_SIGNAL as u64);
            }
        }
    }

    /// Waits in the futex queue, the baton given on, until woken, a deadline (`timeout_ns` from now) or a signal.
    pub fn sleep(&self, t: &mut Thread, timeout_ns: Option<u64>, tick: u64) -> Woken {
        save(t);
        {
            let _l = lock();
            t.wait = Wait::Futex;
            t.futex_woken = false;
            push(&self.futex_head, &self.futex_tail, t);
            self.pass_on(tick);
        }
        let end = timeout_ns.map(|n| sys::monotonic_ns().saturating_add(n));
        let mut outcome = Woken::ByWaker;
        while wake_word(t).load(Acquire) == 0 {
            let left = end.map(|e| e.saturating_sub(sys::monotonic_ns()));
            let r = if left == Some(0) {
                -sys::err::ETIMEDOUT
            } else if t.has(pending::SIGNAL) {
                -sys::err::EINTR
            } else {
                interruptible_wait(t, left)
            };
            if r == -sys::err::ETIMEDOUT {
                outcome = Woken::TimedOut;
            } else if t.has(pending::SIGNAL) {
                outcome = Woken::BySignal;
            } else {
                // SAFETY: a waker changes this word of our record under the lock.
                if unsafe { core::ptr::read_volatile(&raw const t.wait) } == Wait::Running {
                    break;
                }
                continue;
            }
            let _l = lock();
            if !unlink(&self.futex_head, &self.futex_tail, t) {
                // A waker was faster: the baton is on its way.
                drop(_l);
                outcome = Woken::ByWaker;
                break;
            }
            t.wait = Wait::Running;
            push(&self.run_head, &self.run_tail, t);
            if self.holder.load(Relaxed) == 0 {
                self.pass_on(0);
            }
            break;
        }
        self.wait_for_turn(t);
        if t.futex_woken { Woken::ByWaker } else { outcome }
    }

    /// Visits sleeping threads in order; those for which `pick` says so are woken and join the run queue.
    pub fn wake_sleepers(&self, mut pick: impl FnMut(&mut Thread) -> Wake) -> u32 {
        let _l = lock();
        let mut woken = 0;
        let mut at = self.futex_head.load(Relaxed);
        while let Some(t) = thread(at) {
            at = t.next;
            match pick(t) {
                Wake::Leave => {}
                Wake::Stop => break,
                Wake::Wake => {
                    unlink(&self.futex_head, &self.futex_tail, t);
                    t.futex_woken = true;
                    t.wait = Wait::Running;
                    push(&self.run_head, &self.run_tail, t);
                    woken += 1;
                    // The word changes, so that it cannot go to sleep again without noticing.
                    wake_word(t).store(QUEUED, Release);
                    if self.ticking.load(Relaxed) == 0 {
                        // It must know that it may ask for the baton now.
                        futex(wake_word(t), FUTEX_WAKE, 1, None);
                    }
                }
            }
        }
        // Timed waits with a seed stay in the run queue.
        let mut at = self.run_head.load(Relaxed);
        while let Some(t) = thread(at) {
            at = t.next;
            if t.futex_turns && !t.futex_woken {
                match pick(t) {
                    Wake::Leave => {}
                    Wake::Stop => break,
                    Wake::Wake => {
                        t.futex_woken = true;
                        t.tried = u64::MAX;
                        woken += 1;
                    }
                }
            }
        }
        woken
    }

    /// The thread ends; never returns to guest code.
    pub fn retire(&self, t: &mut Thread, tick: u64) {
        let _l = lock();
        self.alive.fetch_sub(1, Relaxed);
        t.wait = Wait::Gone;
        self.pass_on(tick);
    }
}

/// What to do with a sleeping thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    Leave,
    Wake,
    Stop,
}

/// The guest's registers go from the gate into the record.
pub fn save(t: &mut Thread) {
    // SAFETY: the caller holds the baton.
    let g = unsafe { gate::gate() };
    t.saved.gpr = g.gpr;
    t.saved.rflags = g.rflags;
    t.saved.pc = g.pc;
    t.saved.guest_gs = g.guest_gs;
    t.saved.hidden_flags = g.hidden_flags;
    t.saved.xmm = g.xmm;
    if crate::record::region::ahead() {
        // SAFETY: likewise.
        let layout = unsafe { crate::state::engine() }.loaded.xstate;
        crate::signals::xstate::save(layout, g, t.extended());
        t.fs = gate::fs_base();
    }
}

/// And back.
pub fn load(t: &mut Thread) {
    // SAFETY: the caller has just got the baton.
    let g = unsafe { gate::gate() };
    g.gpr = t.saved.gpr;
    g.rflags = t.saved.rflags;
    g.pc = t.saved.pc;
    g.guest_gs = t.saved.guest_gs;
    g.hidden_flags = t.saved.hidden_flags;
    g.xmm = t.saved.xmm;
    t.show_pending(g);
    crate::record::runs(t);
}
