//! The first stretch of a trial: as long as the guest does what the log says, at the same ticks, it is replayed.
//!
//! Signals, thread switches and answers come exactly as recorded, so a trial that alters nothing, or nothing that shows,
//! goes on as the recording did to its end. With the first thing that does not fit (a call, a fault, a question to the
//! machine, or going on past the tick of the next event) the world takes over from the state of that moment
//! ([`super`]). Nothing is applied of a call that does not fit.
//!
//! May miss: a call that fits in number, place, tick and arguments counts as the recorded one, whatever the memory holds
//! that it reads; its recorded answer is right for the recorded bytes.

use super::{Prepared, lost};
use crate::gate::Gate;
use crate::replay::calls::InCall;
use crate::replay::goal;
use crate::replay::replay;
use crate::state::Engine;
use crate::sys::{self, nr};
use crate::syscalls::process::read_string;
use crate::syscalls::table::Args;
use crate::threads::Thread;
use alloc::vec::Vec;
use model::log::{Answer, CallRecord};
use model::serve::{Moment, TrialEnd, TrialLimits};

/// Ticks between two looks whether anybody still waits for the outcome.
const LOOK: u64 = 4_000_000;

/// A trial that has not left the log yet.
pub struct InStep {
    pub limits: TrialLimits,
    pub begun: u64,
    /// Bytes that the next read delivers instead of its own.
    pub input: Option<(u64, Vec<u8>)>,
    /// Registers or memory were changed: what the log tells about registers does not hold.
    pub altered: bool,
    pub written: u64,
    looked: u64,
}

/// The trial begins, in step, and the host has nothing more to ask.
pub fn begin(e: &mut Engine, limits: TrialLimits) {
    prepare(e, limits);
    replay(e).release();
    e.place_sites();
}

/// From here on the log is followed only as long as it fits.
pub fn prepare(e: &mut Engine, limits: TrialLimits) {
    let now = e.clock.now();
    let Prepared { input, altered, wanted, .. } = core::mem::take(&mut e.prepared);
    e.prepared.wanted = wanted;
    e.prepared.in_step = Some(InStep { limits, begun: now, input, altered, written: 0, looked: now });
}

impl Engine {
    /// Is a trial under way that follows the log?
    pub fn in_step(&mut self) -> Option<&mut InStep> {
        self.prepared.in_step.as_mut()
    }

    /// Do registers come from the log, where it tells them?
    pub fn has_recorded_registers(&self) -> bool {
        self.prepared.in_step.as_ref().is_none_or(|s| !s.altered)
    }
}

/// Before the guest goes on: is the budget used up, does anybody wait for the outcome, has the log anything to follow?
pub fn look(e: &mut Engine, t: &mut Thread, g: &mut Gate) {
    let now = e.clock.now();
    let Some(s) = e.in_step() else { return };
    if now - s.begun > s.limits.ticks {
        super::ended(e, TrialEnd::RanAway);
    }
    if now - s.looked >= LOOK {
        s.looked = now;
        if e.control.host_is_gone() {
            sys::exit_group(0);
        }
    }
    if replay(e).next().is_err() {
        leave(e, t, g);
    }
}

/// The guest does something else than the log says: from here on it goes its own way.
pub fn leave(e: &mut Engine, t: &mut Thread, g: &mut Gate) {
    goal::undo_part(e, g);
    let Some(s) = e.prepared.in_step.take() else { return };
    super::take_over(e, t, s);
}

/// As [`leave`], in a call that does not fit: it is made in the world.
pub fn leave_at_call(e: &mut Engine, t: &mut Thread, g: &mut Gate, call: &InCall) {
    leave(e, t, g);
    replay(e).in_call = None;
    super::calls::call(e, t, g, call.pc, call.nr, &call.args);
}

/// A call was answered as recorded: what a trial has to tell about it, or to change.
pub fn answered(e: &mut Engine, record: &CallRecord) {
    if e.in_step().is_none() {
        return;
    }
    let number = u64::from(record.nr);
    match number {
        0 | 17 if record.result > 0 => super::alter_input(e, record.args[1], record.result as u64),
        nr::CLONE if record.args[0] & crate::syscalls::process::CLONE_THREAD != 0 => {}
        nr::CLONE | nr::FORK | nr::VFORK if record.result > 0 => {
            crate::replay::serve::send(e, &model::serve::Answer::Child(record.result as u32));
        }
        _ => {}
    }
}

/// The recorded guest ended here too: by itself (0), by a signal (1), by executing another program (2).
pub fn ended(e: &mut Engine, ending: u8, status: u32) -> ! {
    let end = match ending {
        0 => TrialEnd::Exited(status),
        _ => {
            // SAFETY: the baton is held.
            let pc = unsafe { crate::gate::gate() }.pc;
            let addr = Thread::current().info[2];
            TrialEnd::Signaled { signal: status, moment: Moment { tick: e.clock.now(), pc }, addr }
        }
    };
    super::ended(e, end)
}

/// The guest executes another program, which is another unit.
pub fn executes(e: &mut Engine, number: u64, args: &Args) -> ! {
    let path = read_string(args[if number == nr::EXECVE { 0 } else { 1 }]).unwrap_or_default();
    let name = alloc::string::String::from_utf8_lossy(&path).into_owned();
    lost(e, alloc::format!("it wants to execute {name}"))
}

/// Is the call at hand the one that the thread was recorded to make next? Nothing of the log is used up.
pub fn fits(e: &mut Engine, t: &Thread, call: &InCall) -> bool {
    use model::log::{self, Kind};
    let (log, mut at) = replay(e).rest();
    let mut first = true;
    while let Some(raw) = log.get(at..).and_then(|l| log::record(l).ok()) {
        at += raw.len;
        match raw.kind {
            Kind::Call => {
                let Some(record) = CallRecord::decode(raw.payload) else { return false };
                if record.thread == t.serial {
                    let usable = Answer::from_u8(raw.flags).is_some();
                    return usable && is_same(call, &record);
                }
                if first {
                    return false;
                }
            }
            // The child's own log goes on from here.
            Kind::Fork if first => return matches!(call.nr, nr::CLONE | nr::FORK | nr::VFORK),
            Kind::Switch => first = false,
            Kind::Signal | Kind::Preempt | Kind::Special | Kind::End if first => return false,
            _ => {}
        }
    }
    // It was still waiting when the recording ended.
    !first
}

/// The same call, made at the same moment.
pub fn is_same(call: &InCall, record: &CallRecord) -> bool {
    (u64::from(record.nr), record.pc, record.tick, record.args) == (call.nr, call.pc, call.tick, call.args)
}
