//! System calls of a replay: each is answered by its record, and what it changes in the engine is changed again.

use super::{advance, cannot, differs, log_ends, memory, replay, threads};
use crate::gate::{self, Gate};
use crate::record::calls::state_digest;
use crate::signals::{SIGKILL, SIGSTOP, bit, frame};
use crate::state::Engine;
use crate::sys::{self, err, nr};
use crate::syscalls::process::{
    CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID, CLONE_SETTLS, CLONE_THREAD, CLONE_VFORK, CLONE_VM,
};
use crate::syscalls::table::{self, Args, Entry};
use crate::syscalls::{Call, Outcome};
use crate::threads::Thread;
use crate::trial::in_step;
use model::log::{Answer, Bytes, CallRecord, Kind};
use model::wire::{ForkEdge, Report};
use trace::format::Special;

/// A call that a thread is in.
#[derive(Clone, Copy, Debug)]
pub struct InCall {
    pub nr: u64,
    pub pc: u64,
    pub args: Args,
    pub tick: u64,
    digest: u64,
}

impl InCall {
    /// A call that a thread was in when its recording began.
    pub fn waiting(c: model::region::WaitingCall) -> InCall {
        InCall { nr: c.nr, pc: c.pc, args: c.args, tick: c.tick, digest: c.digest }
    }
}

/// The guest makes a call.
pub fn call(e: &mut Engine, t: &mut Thread, g: &mut Gate, pc: u64, number: u64, args: &Args) {
    if replay(e).serve.has_left() {
        let name = table::row(number).map_or("an unknown call", |r| r.name);
        return differs(e, &alloc::format!("it makes the system call {name}"));
    }
    let digest = match replay(e).verifies() {
        true => state_digest(g, table::row(number), args, &mut Entry::new()),
        false => 0,
    };
    let tick = e.clock.now();
    let call = InCall { nr: number, pc, args: *args, tick, digest };
    if e.in_step().is_some() && !in_step::fits(e, t, &call) {
        return in_step::leave_at_call(e, t, g, &call);
    }
    replay(e).in_call = Some(call);
    go_on(e, t, g);
}

/// Goes on with the call that the running thread is in, until some thread runs code of its own.
fn go_on(e: &mut Engine, t: &mut Thread, g: &mut Gate) {
    while let Some(now) = replay(e).in_call {
        let raw = match replay(e).next() {
            Ok(raw) => raw,
            Err(_) if e.in_step().is_some() => return in_step::leave_at_call(e, t, g, &now),
            Err(_) => return log_ends(e),
        };
        match raw.kind {
            Kind::Write => {
                if let Some(b) = Bytes::decode(raw.payload) {
                    sys::write_guest(b.addr, b.bytes);
                }
                advance(e);
            }
            Kind::Fork => {
                if replay(e).child_here().is_some_and(|edge| follow(e, edge)) {
                    become_child(e, t);
                } else {
                    advance(e);
                }
            }
            Kind::Switch => {
                let layout = e.loaded.xstate;
                let r = replay(e);
                r.in_call = None;
                r.threads.park(layout, t, g, Some(now));
                switch_now(e, t, g);
            }
            Kind::Call => {
                let Some(answer) = Answer::from_u8(raw.flags) else { return differs(e, "a record is damaged") };
                let Some(record) = CallRecord::decode(raw.payload) else { return differs(e, "a record is damaged") };
                if e.in_step().is_some() && (record.thread != t.serial || !in_step::is_same(&now, &record)) {
                    return in_step::leave_at_call(e, t, g, &now);
                }
                if !matches(e, t, &now, &record, answer) {
                    return;
                }
                finish(e, t, g, &now, &record, answer);
            }
            _ if e.in_step().is_some() => return in_step::leave_at_call(e, t, g, &now),
            _ => {
                let name = table::row(now.nr).map_or("?", |r| r.name);
                return differs(e, &alloc::format!("the guest calls {name}, the recorded one did not"));
            }
        }
    }
}

/// Is this record that of the call at hand?
fn matches(e: &mut Engine, t: &Thread, now: &InCall, record: &CallRecord, answer: Answer) -> bool {
    let name = |nr: u64| table::row(nr).map_or("an unknown call", |r| r.name);
    let what = if record.thread != t.serial {
        alloc::format!("thread {} calls {}, recorded was thread {}", t.serial, name(now.nr), record.thread)
    } else if u64::from(record.nr) != now.nr {
        alloc::format!("the guest calls {}, the recorded one called {}", name(now.nr), name(record.nr.into()))
    } else if record.pc != now.pc {
        alloc::format!("{} is called at {:#x}, recorded was {:#x}", name(now.nr), now.pc, record.pc)
    } else if record.tick != now.tick {
        alloc::format!("{} is called at tick {}, recorded was {}", name(now.nr), now.tick, record.tick)
    } else if record.args != now.args {
        alloc::format!("{} is called with {:x?}, recorded was {:x?}", name(now.nr), now.args, record.args)
    } else if replay(e).verifies()
        && answer != Answer::ThreadGone
        && answer != Answer::Replaced
        && record.digest != now.digest
    {
        alloc::format!("registers or memory read by {} differ", name(now.nr))
    } else {
        return true;
    };
    differs(e, &what);
    false
}

/// The call is over: its effects.
fn finish(e: &mut Engine, t: &mut Thread, g: &mut Gate, now: &InCall, record: &CallRecord, answer: Answer) {
    replay(e).in_call = None;
    match answer {
        Answer::Value => {
            g.gpr[0] = record.result as u64;
            output(e, record);
            replay(e).descriptors.call(record);
            effects(e, t, g, record);
            in_step::answered(e, record);
            advance(e);
            e.trace_special(Special::Syscall { pc: now.pc, nr: now.nr, result: record.result as u64 });
        }
        Answer::Again => {
            g.gpr[0] = now.nr;
            g.pc = now.pc;
            advance(e);
        }
        Answer::Done => {
            if now.nr == nr::RT_SIGRETURN {
                frame::sigreturn(e, t);
            }
            advance(e);
        }
        Answer::ThreadGone => {
            advance(e);
            match replay(e).next() {
                Ok(raw) if raw.kind == Kind::Switch => switch_now(e, t, g),
                Ok(raw) if raw.kind == Kind::End => super::ended(e, 0, record.args[0] as u32 & 0xff),
                Ok(_) => differs(e, "a thread ended, and the recorded guest went on otherwise"),
                Err(_) => log_ends(e),
            }
        }
        Answer::Replaced => {
            advance(e);
            let log_goes_on = replay(e).is_followed_by_more();
            if log_goes_on {
                // The kernel refused: this record and the next mean nothing, the answer comes behind them.
                advance(e);
                replay(e).in_call = Some(*now);
            } else if e.in_step().is_some() {
                in_step::executes(e, now.nr, &now.args);
            } else {
                super::ended(e, 2, 0);
            }
        }
    }
}

/// The running thread, which was stopped for others, is put away, if another one goes on.
pub fn give_way(e: &mut Engine, t: &mut Thread, g: &mut Gate) {
    if replay(e).next().is_ok_and(|raw| raw.kind == Kind::Switch) {
        let layout = e.loaded.xstate;
        replay(e).threads.park(layout, t, g, None);
        switch_now(e, t, g);
        go_on(e, t, g);
    }
}

/// The next record switches to another thread, which may be in a call. The running one has been put away, or is gone.
fn switch_now(e: &mut Engine, t: &mut Thread, g: &mut Gate) {
    let raw = match replay(e).next() {
        Ok(raw) => raw,
        Err(_) if e.in_step().is_some() => return cannot(e, "the recording ends between two threads"),
        Err(_) => return log_ends(e),
    };
    let (number, tick) = match (raw.kind, raw.payload) {
        (Kind::Switch, [a, b, c, d, tick @ ..]) if tick.len() == 8 => {
            (u32::from_le_bytes([*a, *b, *c, *d]), u64::from_le_bytes(core::array::from_fn(|i| tick[i])))
        }
        _ => return cannot(e, "a thread stopped, and the log does not say which one goes on"),
    };
    if tick != e.clock.now() {
        return cannot(e, &alloc::format!("thread {number} goes on at another tick, recorded was {tick}"));
    }
    let layout = e.loaded.xstate;
    match replay(e).threads.resume(layout, number, t, g) {
        Some(in_call) => {
            let r = replay(e);
            r.in_call = in_call;
            r.goal.forget();
            advance(e);
        }
        None => cannot(e, &alloc::format!("the log goes on with thread {number}, which does not exist")),
    }
}

/// What the call changes in the engine's own tables, the address space and the thread.
fn effects(e: &mut Engine, t: &mut Thread, g: &mut Gate, record: &CallRecord) {
    let (args, result) = (record.args, record.result);
    let number = u64::from(record.nr);
    match number {
        nr::MMAP | nr::MUNMAP | nr::MPROTECT | 329 | nr::MREMAP | nr::BRK | nr::MADVISE | nr::SHMAT | nr::SHMDT => {
            memory::call(e, record);
        }
        nr::CLONE | nr::FORK | nr::VFORK if result > 0 => {
            let flags = if number == nr::CLONE { args[0] } else { 0 };
            if flags & CLONE_THREAD != 0 {
                new_thread(e, t, g, record);
            }
        }
        nr::CLONE | nr::FORK | nr::VFORK if result == 0 => child_effects(t, g, record),
        nr::RT_SIGACTION | nr::RT_SIGPROCMASK | nr::SIGALTSTACK | nr::ARCH_PRCTL if result == 0 => {
            let mut call = Call { e, t, g, nr: number, args, row: table::row(number) };
            let _: Outcome = call.own_state();
        }
        nr::RT_SIGSUSPEND if result == -err::EINTR => {
            if let Some(mask) = sys::read_u64(args[0]) {
                wait_mask(t, mask);
            }
        }
        nr::PPOLL | nr::PSELECT6 | nr::EPOLL_PWAIT | nr::EPOLL_PWAIT2 if result == -err::EINTR => {
            masked_wait(e, t, number, &args);
        }
        // chdir: names of a trial start from there.
        80 if result == 0 => {
            // SAFETY: the kernel reads the guest's name; this process has no other use for its folder.
            unsafe { sys::raw3(80, args[0], 0, 0) };
        }
        nr::SET_TID_ADDRESS => t.clear_tid = args[0],
        nr::SET_ROBUST_LIST if result == 0 => (t.robust_list, t.robust_len) = (args[0], args[1]),
        _ => {}
    }
}

/// A wait under another mask was interrupted: the handler runs under that mask, then the old one comes back.
pub fn wait_mask(t: &mut Thread, mask: u64) {
    t.restore_mask = Some(t.mask);
    t.mask = mask & !(bit(SIGKILL) | bit(SIGSTOP));
}

fn masked_wait(e: &mut Engine, t: &mut Thread, number: u64, args: &Args) {
    // Only a signal that is delivered next makes the mask stay.
    if is_signal_behind(e)
        && let Some(mask) = mask_of_wait(number, args)
    {
        wait_mask(t, mask);
    }
}

/// The mask under which a call waits, if it names one.
pub fn mask_of_wait(number: u64, args: &Args) -> Option<u64> {
    let mut at = args[match number {
        nr::PPOLL => 3,
        nr::PSELECT6 => 5,
        _ => 4,
    }];
    if number == nr::PSELECT6 && at != 0 {
        at = sys::read_u64(at).unwrap_or(0);
    }
    sys::read_u64(at).filter(|_| at != 0)
}

fn is_signal_behind(e: &mut Engine) -> bool {
    replay(e).kind_behind() == Some(Kind::Signal)
}

/// A thread was created: its context waits for its first turn.
fn new_thread(e: &mut Engine, t: &mut Thread, g: &mut Gate, record: &CallRecord) {
    let [flags, stack, _, ctid, tls, _] = record.args;
    let layout = e.loaded.xstate;
    let mut context = threads::capture(layout, t, g, None);
    let child = &mut context.thread;
    child.saved.gpr[0] = 0;
    if stack != 0 {
        child.saved.gpr[4] = stack;
    }
    child.saved.pc = g.pc;
    child.tid = record.result as u32;
    child.serial = e.stats.threads as u32;
    e.stats.threads += 1;
    child.clear_tid = if flags & CLONE_CHILD_CLEARTID != 0 { ctid } else { 0 };
    (child.robust_list, child.robust_len) = (0, 0);
    child.alt_stack =
        crate::threads::record::AltStack { flags: crate::threads::record::SS_DISABLE, ..Default::default() };
    (child.restore_mask, child.held, child.probed) = (None, None, None);
    if flags & CLONE_SETTLS != 0 {
        context.fs = tls;
    }
    let number = context.thread.serial;
    replay(e).threads.insert(number, context);
}

/// Does this process go on as the child of the fork? With a copy, the copy does.
fn follow(e: &mut Engine, edge: ForkEdge) -> bool {
    /// Copies that run at the same time.
    const MOST: u32 = 2;
    if edge.copy {
        if replay(e).copies >= MOST {
            super::copies::wait_for_one(e);
        }
        // SAFETY: a copy of this process with its one task (SIGCHLD, 17).
        let r = unsafe { sys::raw(nr::CLONE, [17, 0, 0, 0, 0, 0]) };
        if r != 0 {
            replay(e).copies += (r > 0) as u32;
            replay(e).copies_lost |= r < 0;
            return false;
        }
        // This process waits for its copies, so they may end when it does.
        crate::start::die_with_parent(&e.control);
        (replay(e).copies, replay(e).copies_lost) = (0, false);
        memory::part_from_parent(e);
        e.leave_parents_trace();
    }
    replay(e).turn_to(edge.child);
    true
}

/// The child's log goes on from here.
pub fn become_child(e: &mut Engine, t: &mut Thread) {
    if let Some(start) = replay(e).unit_start() {
        e.pid = start.pid;
        t.tid = start.tid;
    }
    replay(e).threads.clear();
    e.reset_totals();
    t.serial = 0;
    t.robust_list = 0;
    super::tell(e);
}

pub fn child_effects(t: &mut Thread, g: &mut Gate, record: &CallRecord) {
    let [flags, stack, _, ctid, tls, _] =
        if u64::from(record.nr) == nr::CLONE { record.args } else { [CLONE_VM | CLONE_VFORK, 0, 0, 0, 0, 0] };
    t.clear_tid = if flags & CLONE_CHILD_CLEARTID != 0 { ctid } else { 0 };
    if flags & CLONE_CHILD_SETTID != 0 {
        sys::write_u32(ctid, t.tid);
    }
    if stack != 0 {
        g.gpr[4] = stack;
    }
    if flags & CLONE_SETTLS != 0 && tls != 0 {
        gate::set_fs_base(tls);
    }
}

/// What the guest wrote to its standard output and error goes to the host.
fn output(e: &mut Engine, record: &CallRecord) {
    const PIECE: usize = 48 << 10;
    let tries = e.in_step().is_some();
    let moved = replay(e).descriptors.take_moved();
    if !tries && !replay(e).emits() || record.result <= 0 {
        return;
    }
    let number = u64::from(record.nr);
    // write, pwrite64, writev, sendto, sendmsg, pwritev, pwritev2 read guest memory; the rest moves bytes in the kernel.
    let Some(stream) = replay(e).descriptors.stream_of_output(record) else { return };
    let (pid, control, time) = (e.pid, e.control, record.time);
    let mut send = |bytes: &[u8]| {
        if tries {
            return crate::trial::output(e, stream, bytes);
        }
        for piece in bytes.chunks(PIECE) {
            control.send(pid, Report::Output { stream, time, bytes: piece.to_vec() });
        }
    };
    if matches!(number, 40 | 275 | 326 | 276) {
        return moved.into_iter().for_each(send);
    }
    let Some(row) = table::row(number) else { return };
    let mut left = record.result as u64;
    let mut buffers = alloc::vec::Vec::new();
    let mut read = |at: u64, size: u64| crate::record::calls::read_word(at, size);
    table::memory(row, &record.args, Some(record.result), &mut read, &mut |u| {
        if !u.write {
            buffers.push((u.addr, u.len));
        }
    });
    // Vectored calls list the array of buffers first.
    if matches!(number, 20 | 296 | 328) && !buffers.is_empty() {
        buffers.remove(0);
    }
    for (at, len) in buffers {
        let mut done = 0;
        let len = len.min(left);
        while done < len {
            let mut piece = alloc::vec![0; (len - done).min(PIECE as u64) as usize];
            let got = sys::read_guest(at + done, &mut piece);
            send(&piece[..got]);
            if got < piece.len() {
                return;
            }
            done += got as u64;
        }
        left -= len;
    }
}
