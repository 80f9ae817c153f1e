//! The recorded schedule: as long as the guest is in step with the log, its threads run when they ran.
//!
//! Signals from outside come where they came. A thread that makes its next recorded call goes on; where the log has a switch instead, the thread waited in its call,
//! and the other one runs. A thread that was stopped for others is stopped at the same tick. With the first call that is
//! not the recorded one the schedule is over, and threads take turns ([`super::threads`]).
//! So it is when a thread goes on long past the tick of what comes next.

use super::{follow, threads, trial};
use crate::gate::Gate;
use crate::replay::{goal, replay};
use crate::state::Engine;
use crate::sys;
use crate::syscalls::table::Args;
use crate::threads::{Thread, pending};
use model::log::{self, Bytes, CallRecord, Kind, Position, SignalRecord};

/// Where the log is read for the schedule.
#[derive(Default)]
pub struct Schedule {
    log: &'static [u8],
    at: usize,
    on: bool,
    /// Where the running thread is to be stopped within the present tick.
    site: Option<u64>,
}

/// What the log has next about who runs.
enum Next {
    Call(CallRecord),
    /// The thread that goes on, and when.
    Switch(u32, u64),
    Preempt(Position),
    /// A signal from outside comes to the running thread.
    Signal(Position),
}

/// A thread that goes on so many ticks past what comes next is not in step any more. After an alteration it may be late.
const LATE: u64 = 200_000;

/// Starts where the replay was left.
pub fn begin(e: &mut Engine) {
    let (log, at) = replay(e).rest();
    trial(e).schedule = Schedule { log, at, on: true, site: None };
}

/// Is the guest in step?
pub fn is_on(e: &mut Engine) -> bool {
    trial(e).schedule.on
}

impl Schedule {
    /// Where the running thread is to be stopped within the present tick, if it is.
    pub fn site(&self) -> Option<u64> {
        self.site
    }

    /// Goes on behind `end`. What the call that waits has written by then is written.
    fn write_before(&mut self, end: usize) {
        while self.at < end
            && let Some(raw) = self.log.get(self.at..).and_then(|l| log::record(l).ok())
        {
            if raw.kind == Kind::Write
                && let Some(b) = Bytes::decode(raw.payload)
            {
                sys::write_guest(b.addr, b.bytes);
            }
            self.at += raw.len;
        }
    }

    /// What comes next, and the offset behind it.
    fn peek(&self) -> Option<(Next, usize)> {
        let mut rest = self.log.get(self.at..).filter(|_| self.on)?;
        loop {
            let raw = log::record(rest).ok()?;
            rest = &rest[raw.len..];
            let next = match raw.kind {
                Kind::Call => CallRecord::decode(raw.payload).map(Next::Call),
                Kind::Switch => switch(raw.payload),
                Kind::Preempt => Position::decode(raw.payload).map(Next::Preempt),
                Kind::Signal => match SignalRecord::decode(raw.payload) {
                    Some(s) if !s.synchronous => Some(Next::Signal(s.at)),
                    _ => continue,
                },
                _ => continue,
            };
            return next.map(|n| (n, self.log.len() - rest.len()));
        }
    }
}

fn switch(payload: &[u8]) -> Option<Next> {
    let (thread, rest) = payload.split_first_chunk()?;
    Some(Next::Switch(u32::from_le_bytes(*thread), u64::from_le_bytes(*rest.first_chunk()?)))
}

/// The running thread makes a call: may it go on with it? Otherwise another one runs now.
pub fn at_call(e: &mut Engine, t: &mut Thread, g: &mut Gate, pc: u64, number: u64, args: &Args) -> bool {
    loop {
        let s = &mut trial(e).schedule;
        match s.peek() {
            Some((Next::Call(c), end)) if c.thread == t.serial && follow::fits(&c, number, args) => {
                s.at = end;
                return true;
            }
            Some((Next::Switch(thread, _), end)) if thread == t.serial => trial(e).schedule.at = end,
            Some((Next::Switch(thread, _), end)) if replay(e).threads.contains(thread) => {
                trial(e).schedule.write_before(end);
                (g.pc, g.gpr[0]) = (pc, number);
                threads::wait_for_turn(e, t, g, thread);
                return false;
            }
            // It is found late, among what the thread has passed.
            Some((Next::Signal(p), end)) if p.tick <= e.clock.now() => {
                trial(e).schedule.at = end;
                set_site(e, None);
            }
            Some((Next::Preempt(p), end)) if p.tick <= e.clock.now() => {
                trial(e).schedule.at = end;
                e.clock.step();
                set_site(e, None);
            }
            _ => {
                end(e, g);
                return true;
            }
        }
    }
}

/// The guest is not in step any more.
fn end(e: &mut Engine, g: &mut Gate) {
    trial(e).schedule.on = false;
    set_site(e, None);
    goal::undo_part(e, g);
}

/// A turn is over: is the thread to be stopped for others? `false` if the schedule has nothing to say.
pub fn at_turn_over(e: &mut Engine, t: &mut Thread, g: &mut Gate) -> bool {
    if !is_on(e) {
        return false;
    }
    let now = e.clock.now();
    match trial(e).schedule.peek() {
        Some((Next::Preempt(_) | Next::Signal(_), _)) => at_once(e, t, g),
        Some((Next::Call(CallRecord { tick, .. }) | Next::Switch(_, tick), _)) if now > tick + LATE => {
            end(e, g);
            return false;
        }
        None => {
            end(e, g);
            return false;
        }
        _ => {}
    }
    true
}

/// Whatever is to happen to the running thread where it stands happens, also to the one that runs then: a thread may have
/// been stopped, and the next one got a signal before it did anything.
pub fn at_once(e: &mut Engine, t: &mut Thread, g: &mut Gate) {
    while !t.has(pending::SIGNAL)
        && let Some((Next::Preempt(p) | Next::Signal(p), _)) = trial(e).schedule.peek()
        && p.tick <= e.clock.now()
    {
        // Whoever has not come by within the tick never will.
        if p.tick == e.clock.now() && !goal::arrived(e, t, g, &p) {
            // Perhaps it is to be stopped in the middle of a string instruction.
            let site = goal::end_of_part(e).unwrap_or(p.pc);
            return set_site(e, Some(site));
        }
        stop(e, t, g);
    }
}

/// The running thread is where it was stopped for others.
pub fn at_site(e: &mut Engine, t: &mut Thread, g: &mut Gate) {
    if trial(e).schedule.site == Some(g.pc) {
        super::next_turn(e, t, g);
    }
}

/// The running thread is stopped here, as the log says next.
fn stop(e: &mut Engine, t: &mut Thread, g: &mut Gate) {
    set_site(e, None);
    goal::undo_part(e, g);
    match trial(e).schedule.peek() {
        Some((Next::Preempt(_), end)) => {
            trial(e).schedule.at = end;
            e.clock.step();
            if let Some(thread) = next_switch(e, t) {
                threads::stop_for(e, t, g, thread);
            }
        }
        Some((Next::Signal(_), end)) => {
            trial(e).schedule.at = end;
            if let Some(s) = follow::take_signal(e, t.serial) {
                super::raise(t, &s);
            }
        }
        _ => {}
    }
}

fn set_site(e: &mut Engine, site: Option<u64>) {
    if core::mem::replace(&mut trial(e).schedule.site, site) != site {
        e.place_sites();
    }
}

/// The other thread that goes on now, if the log says that one does.
pub fn next_switch(e: &mut Engine, t: &Thread) -> Option<u32> {
    let Some((Next::Switch(thread, _), end)) = trial(e).schedule.peek() else { return None };
    let known = replay(e).threads.contains(thread);
    if known || thread == t.serial {
        trial(e).schedule.at = end;
    }
    known.then_some(thread)
}

/// The tick at which the running thread is to be stopped, if that comes next.
pub fn next_stop(e: &mut Engine) -> Option<u64> {
    match trial(e).schedule.peek() {
        Some((Next::Preempt(p) | Next::Signal(p), _)) => Some(p.tick),
        _ => None,
    }
}
