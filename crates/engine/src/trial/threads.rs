//! Threads of a trial: contexts of one task that take turns; futexes are lists here.
//!
//! A thread that must wait for something other than a futex is put back before its call and makes it again at its next
//! turn. When nobody can run, time passes to the next deadline; when there is none, the trial is deadlocked.

use super::{follow, schedule, trial, world};
use crate::gate::Gate;
use crate::replay::{replay, threads::capture};
use crate::state::Engine;
use crate::sys::{self, err};
use crate::syscalls::process::{CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID, CLONE_PARENT_SETTID, CLONE_SETTLS};
use crate::syscalls::table::Args;
use crate::threads::Thread;
use crate::threads::record::{AltStack, SS_DISABLE};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use model::serve::TrialEnd;

/// What a thread that does not run waits for.
#[derive(Clone, Copy, Debug)]
enum Wait {
    Futex {
        addr: u64,
        bits: u32,
    },
    /// Its call is made again.
    Again,
}

/// Threads and what they wait for.
#[derive(Default)]
pub struct Threads {
    waiting: BTreeMap<u32, (Wait, Option<u64>)>,
    /// Deadlines of calls that are made again, by thread.
    deadlines: BTreeMap<u32, (u64, u64)>,
    /// Rounds in which nobody got anything done.
    idle: u32,
    next_tid: u32,
}

/// Real pauses that a trial makes at most while it waits for its own children.
const PAUSES: u32 = 20_000;

/// Threads that are in calls make them again.
pub fn begin(e: &mut Engine) {
    for (number, _) in replay(e).threads.list() {
        if let Some(c) = replay(e).threads.get(number)
            && let Some(call) = c.in_call.take()
        {
            c.thread.saved.pc = call.pc;
            c.thread.saved.gpr[0] = call.nr;
            trial(e).threads.waiting.insert(number, (Wait::Again, None));
        }
    }
    trial(e).threads.next_tid = 3_000_000;
}

/// Another thread gets its turn, if one can use it.
pub fn give_way(e: &mut Engine, t: &mut Thread, g: &mut Gate) {
    if let Some(next) = runnable_after(e, t.serial) {
        park(e, t, g);
        resume(e, t, g, next);
    }
}

/// The running thread waits in its call, and this one runs.
pub fn wait_for_turn(e: &mut Engine, t: &mut Thread, g: &mut Gate, next: u32) {
    let number = t.serial;
    park(e, t, g);
    trial(e).threads.waiting.insert(number, (Wait::Again, None));
    resume(e, t, g, next);
}

/// The running thread is stopped for this one.
pub fn stop_for(e: &mut Engine, t: &mut Thread, g: &mut Gate, next: u32) {
    park(e, t, g);
    resume(e, t, g, next);
}

fn park(e: &mut Engine, t: &mut Thread, g: &mut Gate) {
    let layout = e.loaded.xstate;
    replay(e).threads.park(layout, t, g, None);
}

fn resume(e: &mut Engine, t: &mut Thread, g: &mut Gate, number: u32) {
    let layout = e.loaded.xstate;
    if let Some((Wait::Again, _)) = trial(e).threads.waiting.remove(&number) {
        // That it makes its call was counted when it made it first.
        e.clock.step_back();
    }
    replay(e).threads.resume(layout, number, t, g);
}

/// The next thread behind `number` that can run.
fn runnable_after(e: &mut Engine, number: u32) -> Option<u32> {
    let all: Vec<u32> = replay(e).threads.list().iter().map(|(n, _)| *n).collect();
    let now = super::now_ns(e);
    let waiting = &trial(e).threads.waiting;
    let ready = |n: &u32| match waiting.get(n) {
        None | Some((Wait::Again, _)) => true,
        Some((Wait::Futex { .. }, deadline)) => deadline.is_some_and(|d| d <= now),
    };
    let found = all.iter().filter(|n| **n > number).find(|n| ready(n)).or_else(|| all.iter().find(|n| ready(n)));
    let found = found.copied()?;
    if let Some((Wait::Futex { .. }, _)) = trial(e).threads.waiting.get(&found)
        && let Some(c) = replay(e).threads.get(found)
    {
        c.thread.saved.gpr[0] = -err::ETIMEDOUT as u64;
    }
    Some(found)
}

/// The running thread waits: another one runs, or time passes, or the trial is over.
fn wait(e: &mut Engine, t: &mut Thread, g: &mut Gate, what: Wait, deadline: Option<u64>) {
    let number = t.serial;
    park(e, t, g);
    trial(e).threads.waiting.insert(number, (what, deadline));
    let again = matches!(what, Wait::Again);
    let idle = {
        let th = &mut trial(e).threads;
        th.idle = if again { th.idle + 1 } else { th.idle };
        th.idle
    };
    let count = replay(e).threads.list().len() as u32;
    if idle > count {
        pass_time(e);
    }
    loop {
        if let Some(next) = runnable_after(e, number) {
            return resume(e, t, g, next);
        }
        pass_time(e);
    }
}

/// Nobody can run: time goes on to the next deadline, or children of the trial get some real time.
fn pass_time(e: &mut Engine) {
    let now = super::now_ns(e);
    let th = &mut trial(e).threads;
    th.idle = 0;
    if interrupt_one(e) || follow::let_loose(e) {
        return;
    }
    let th = &mut trial(e).threads;
    let next = th.waiting.values().filter_map(|(_, d)| *d).min();
    // Pipes of the trial lead to its own processes, which need real time.
    if (world::has_children(e) || trial(e).world.is_child) && trial(e).world.pauses < PAUSES {
        trial(e).world.pauses += 1;
        let pause = [0u64, 500_000];
        // SAFETY: the kernel reads the time to sleep.
        unsafe { sys::raw3(sys::nr::NANOSLEEP, pause.as_ptr() as u64, 0, 0) };
        if e.control.host_is_gone() {
            sys::exit_group(0);
        }
        trial(e).waited += 500_000;
        return;
    }
    match next {
        Some(deadline) => trial(e).waited += deadline.saturating_sub(now).max(1),
        None => {
            let end = waits_outside(e).map_or(TrialEnd::Deadlocked, TrialEnd::Waits);
            super::ended(e, end)
        }
    }
}

/// The call with which a thread waits for something that only comes from outside, if one does.
fn waits_outside(e: &mut Engine) -> Option<String> {
    let waiting = &trial(e).threads.waiting;
    let numbers: Vec<u32> = waiting.iter().filter(|(_, w)| matches!(w.0, Wait::Again)).map(|(n, _)| *n).collect();
    // The call is made again, so its number is where the guest put it.
    let call = |n: &u32| replay(e).threads.get(*n).map(|c| c.thread.saved.gpr[0]);
    let found = numbers.iter().filter_map(call).find(|nr| super::calls::FROM_OUTSIDE.contains(nr))?;
    let name = crate::syscalls::table::row(found).map_or("a call", |r| r.name);
    Some(alloc::format!("{name} does not return, because nothing comes from outside"))
}

/// A thread that waits in vain for a futex gets the signal now that is still to come to it.
fn interrupt_one(e: &mut Engine) -> bool {
    let waiting = &trial(e).threads.waiting;
    let futex: Vec<u32> = waiting.iter().filter(|(_, w)| matches!(w.0, Wait::Futex { .. })).map(|(n, _)| *n).collect();
    let Some(number) = futex.into_iter().find(|n| follow::hasten(e, *n)) else { return false };
    trial(e).threads.waiting.remove(&number);
    if let Some(c) = replay(e).threads.get(number) {
        c.thread.saved.gpr[0] = -err::EINTR as u64;
    }
    true
}

/// The call at hand cannot be answered yet: it is made again later. `true` if its deadline has come instead.
pub fn again(e: &mut Engine, t: &mut Thread, g: &mut Gate, pc: u64, number: u64, limit_ns: Option<u64>) -> bool {
    let now = super::now_ns(e);
    let serial = t.serial;
    let th = &mut trial(e).threads;
    let deadline = limit_ns.map(|limit| match th.deadlines.get(&serial) {
        Some((at, deadline)) if *at == pc => *deadline,
        _ => now.saturating_add(limit),
    });
    if deadline.is_some_and(|d| d <= now) {
        th.deadlines.remove(&serial);
        return true;
    }
    if let Some(d) = deadline {
        th.deadlines.insert(serial, (pc, d));
    }
    g.pc = pc;
    g.gpr[0] = number;
    wait(e, t, g, Wait::Again, deadline);
    false
}

/// A thread has used up its turn: nobody waits in vain.
pub fn worked(e: &mut Engine) {
    trial(e).threads.idle = 0;
}

/// Something was done: whoever waits in vain may try again.
pub fn progress(e: &mut Engine, t: &Thread) {
    let th = &mut trial(e).threads;
    th.idle = 0;
    th.deadlines.remove(&t.serial);
}

/// `clone` of a thread.
pub fn create(e: &mut Engine, t: &mut Thread, g: &mut Gate, args: &Args) -> i64 {
    let [flags, stack, ptid, ctid, tls, _] = *args;
    let recorded = follow::met(e, t.serial, sys::nr::CLONE, args).map(|call| call.record.result as u32);
    let tid = recorded.unwrap_or_else(|| {
        let th = &mut trial(e).threads;
        th.next_tid += 1;
        th.next_tid
    });
    if flags & CLONE_PARENT_SETTID != 0 {
        sys::write_u32(ptid, tid);
    }
    if flags & CLONE_CHILD_SETTID != 0 {
        sys::write_u32(ctid, tid);
    }
    let layout = e.loaded.xstate;
    let mut context = capture(layout, t, g, None);
    let child = &mut context.thread;
    child.saved.gpr[0] = 0;
    if stack != 0 {
        child.saved.gpr[4] = stack;
    }
    child.tid = tid;
    child.serial = e.stats.threads as u32;
    e.stats.threads += 1;
    child.clear_tid = if flags & CLONE_CHILD_CLEARTID != 0 { ctid } else { 0 };
    (child.robust_list, child.robust_len) = (0, 0);
    child.alt_stack = AltStack { flags: SS_DISABLE, ..AltStack::default() };
    (child.restore_mask, child.held, child.probed) = (None, None, None);
    if flags & CLONE_SETTLS != 0 {
        context.fs = tls;
    }
    let number = context.thread.serial;
    replay(e).threads.insert(number, context);
    tid as i64
}

/// The running thread ends.
pub fn exit(e: &mut Engine, t: &mut Thread, g: &mut Gate) {
    if t.clear_tid != 0 {
        sys::write_u32(t.clear_tid, 0);
        wake(e, t.clear_tid, 1, !0);
    }
    progress(e, t);
    if let Some(next) = schedule::next_switch(e, t) {
        return resume(e, t, g, next);
    }
    let number = t.serial;
    loop {
        if let Some(next) = runnable_after(e, number) {
            return resume(e, t, g, next);
        }
        pass_time(e);
    }
}

fn wake(e: &mut Engine, addr: u64, count: u64, bits: u32) -> i64 {
    let waiting = &mut trial(e).threads.waiting;
    let at = |w: &(Wait, Option<u64>)| matches!(w.0, Wait::Futex { addr: a, bits: b } if a == addr && b & bits != 0);
    let woken: Vec<u32> = waiting.iter().filter(|(_, w)| at(w)).map(|(n, _)| *n).take(count as u32 as usize).collect();
    for n in &woken {
        waiting.remove(n);
    }
    woken.len() as i64
}

/// What a `futex` call that was answered does to those who wait here: wake, requeue, wake-op, wake-bitset.
pub fn wake_as_asked(e: &mut Engine, args: &Args) {
    let [addr, op, count, ..] = *args;
    match op & 0x7f {
        1 | 10 => drop(wake(e, addr, count, !0)),
        // Those that were to be moved wake up and look for themselves.
        3 | 4 | 5 | 12 => drop(wake(e, addr, u64::from(u32::MAX), !0)),
        _ => {}
    }
}

/// `futex`: waiting and waking; `None` for what is not known here.
pub fn futex(e: &mut Engine, t: &mut Thread, g: &mut Gate, args: &Args) -> Option<i64> {
    const REALTIME: u64 = 0x100;
    let [addr, op, value, timeout, addr2, value3] = *args;
    match op & 0x7f {
        command @ (0 | 9) => {
            let Some(word) = sys::read_u32(addr) else { return Some(-err::EFAULT) };
            if word != value as u32 {
                return Some(-err::EAGAIN);
            }
            let bits = if command == 9 { value3 as u32 } else { !0 };
            let limit = (timeout != 0).then(|| timespec(timeout)).flatten();
            let now = super::now_ns(e);
            let deadline = limit.map(|given| match command {
                0 => now.saturating_add(given),
                _ => {
                    let clock = super::calls::clock_ns(e, if op & REALTIME != 0 { 0 } else { 1 });
                    now.saturating_add(given.saturating_sub(clock))
                }
            });
            g.gpr[0] = 0;
            wait(e, t, g, Wait::Futex { addr, bits }, deadline);
            None
        }
        1 => Some(wake(e, addr, value, !0)),
        10 => Some(wake(e, addr, value, value3 as u32)),
        3 | 4 => {
            if op & 0x7f == 4 && sys::read_u32(addr) != Some(value3 as u32) {
                return Some(-err::EAGAIN);
            }
            let woken = wake(e, addr, value, !0);
            let mut moved = 0;
            for (w, _) in trial(e).threads.waiting.values_mut() {
                if let Wait::Futex { addr: a, .. } = w
                    && *a == addr
                    && moved < timeout as u32
                {
                    *a = addr2;
                    moved += 1;
                }
            }
            Some(woken + moved as i64)
        }
        5 => {
            // The operation on the second word, in its commonest form: set to a value, compare with another.
            let old = sys::read_u32(addr2)?;
            let op = value3 as u32;
            let operand = op >> 12 & 0xfff;
            let new = match op >> 28 & 7 {
                0 => operand,
                1 => old.wrapping_add(operand),
                2 => old | operand,
                3 => old & !operand,
                _ => old ^ operand,
            };
            sys::write_u32(addr2, new);
            let compare = op & 0xfff;
            let holds = match op >> 24 & 15 {
                0 => old == compare,
                1 => old != compare,
                2 => old < compare,
                3 => old <= compare,
                4 => old > compare,
                _ => old >= compare,
            };
            let mut woken = wake(e, addr, value, !0);
            if holds {
                woken += wake(e, addr2, timeout, !0);
            }
            Some(woken)
        }
        6..=8 | 13 => Some(lock_pi(e, t, g, addr, op & 0x7f)?),
        _ => Some(-err::ENOSYS),
    }
}

const OWNER: u32 = 0x3fff_ffff;

/// Is the mutex that a priority-inheriting `futex` call wants somebody else's?
pub fn is_locked(t: &Thread, args: &Args) -> bool {
    let word = sys::read_u32(args[0]).unwrap_or(0);
    matches!(args[1] & 0x7f, 6 | 13) && word & OWNER != 0 && word & OWNER != t.tid
}

/// Mutexes with priority inheritance, without any: whoever finds one free takes it, the others look again.
fn lock_pi(e: &mut Engine, t: &mut Thread, g: &mut Gate, addr: u64, command: u64) -> Option<i64> {
    let Some(word) = sys::read_u32(addr) else { return Some(-err::EFAULT) };
    match (command, word & OWNER) {
        (7, owner) if owner != t.tid => return Some(-err::EPERM),
        (7, _) => sys::write_u32(addr, 0),
        (_, 0) => sys::write_u32(addr, word & !OWNER | t.tid),
        (8, _) => return Some(-err::EAGAIN),
        _ => {
            // The instruction is two bytes long.
            (g.pc, g.gpr[0]) = (g.pc - 2, sys::nr::FUTEX);
            wait(e, t, g, Wait::Again, None);
            return None;
        }
    };
    Some(0)
}

/// A `timespec` in nanoseconds.
pub fn timespec(at: u64) -> Option<u64> {
    Some(sys::read_u64(at)?.saturating_mul(1_000_000_000).saturating_add(sys::read_u64(at + 8)?))
}
