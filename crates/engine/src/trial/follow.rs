//! The log as a source of answers after the guest has left it.
//!
//! What the log has to come is sorted to the threads it happened to: calls, signals, answers of the machine. As long as a
//! thread makes its next recorded call with the same arguments, the recorded answer holds; a call that does not fit is
//! answered by the world, and the thread looks a little ahead, so that one call more or less does not end the agreement.
//! Calls of several threads are answered in the order in which they came back, unless the guest cannot go on that way.
//! Signals from outside come where they came ([`schedule`]), then as long behind the thread's last call as they were
//! recorded. Questions that have no state are answered from anywhere.

use super::{schedule, trial};
use crate::gate::Gate;
use crate::replay::{Replay, replay};
use crate::state::Engine;
use crate::sys;
use crate::syscalls::table::{self, Args};
use crate::threads::Thread;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use model::log::{self, Answer, Bytes, CallRecord, Kind, RestRecord, SignalRecord, SpecialRecord};
use model::wire::ForkEdge;

/// A thread's own records that are looked at ahead.
const AHEAD: usize = 24;
/// Records that are sorted at once in the search for one thread's.
const SORTED: usize = 4096;
/// A thread that was told so often to wait for the others, while none of them met what was recorded, waits no more.
const PATIENCE: u32 = 4000;

/// A recorded call and what came with it.
pub struct Recorded {
    pub record: CallRecord,
    pub answer: Answer,
    /// Bytes that the kernel moved to a standard stream.
    pub moved: Vec<&'static [u8]>,
    /// The child that it made, if the replay was to go on as that child.
    pub edge: Option<ForkEdge>,
    writes: Vec<Bytes<'static>>,
    /// Offset of the record, and behind it.
    at: usize,
    end: usize,
}

/// What a thread is to meet.
enum Event {
    Call(Recorded),
    Signal(SignalRecord),
    Special(SpecialRecord),
}

/// Where the log is read.
#[derive(Default)]
pub struct Follow {
    log: &'static [u8],
    /// Up to here records have been sorted; the number of the next one, and the thread that runs there.
    sorted: usize,
    number: u64,
    running: u32,
    /// What belongs to the call that comes next.
    writes: Vec<Bytes<'static>>,
    moved: Vec<&'static [u8]>,
    edge: Option<ForkEdge>,
    queues: BTreeMap<u32, VecDeque<Event>>,
    /// How far each thread has come.
    cursors: BTreeMap<u32, Cursor>,
    /// Where the log was left.
    from: Cursor,
    /// Signals that came before what a thread has met already.
    late: Vec<(u32, SignalRecord)>,
    /// Threads no longer wait for each other as recorded.
    disorderly: bool,
    refusals: u32,
}

/// The last recorded call that a thread has met.
#[derive(Clone, Copy, Default)]
struct Cursor {
    /// Offset behind its record.
    at: usize,
    /// When it was recorded, and when it was met.
    recorded: u64,
    met: u64,
}

/// What the log has to say about a call.
pub enum Found {
    This(Recorded),
    /// Other threads come first.
    Later,
    Nothing,
}

/// Starts where the replay was left.
pub fn begin(e: &mut Engine, t: &Thread) {
    let (log, at) = replay(e).rest();
    let (number, now) = (replay(e).record, e.clock.now());
    let from = Cursor { at, recorded: now, met: now };
    let moved = replay(e).descriptors.take_moved();
    let f = &mut trial(e).follow;
    *f = Follow { log, from, sorted: at, number, running: t.serial, moved, ..Follow::default() };
}

impl Recorded {
    /// What it wrote is written.
    pub fn apply(&self) {
        for b in &self.writes {
            sys::write_guest(b.addr, b.bytes);
        }
    }
}

impl Follow {
    fn cursor(&self, thread: u32) -> Cursor {
        self.cursors.get(&thread).copied().unwrap_or(self.from)
    }

    /// Sorts one more record; `false` if there is none.
    fn sort_one(&mut self, r: &mut Replay) -> bool {
        let Some(raw) = self.log.get(self.sorted..).and_then(|l| log::record(l).ok()) else { return false };
        let (at, number) = (self.sorted, self.number);
        (self.sorted, self.number) = (at + raw.len, number + 1);
        let mut event = None;
        match raw.kind {
            Kind::Write => self.writes.extend(Bytes::decode(raw.payload)),
            Kind::Rest if raw.flags == log::REST_MOVED => {
                self.moved.extend(RestRecord::decode(raw.payload).map(|r| r.bytes))
            }
            Kind::Fork => {
                let log = r.log_number();
                let here = |f: &&ForkEdge| !f.copy && f.parent as usize == log && f.record == number;
                self.edge = r.source().config.forks.iter().find(here).copied();
            }
            Kind::Switch => {
                // What a call wrote before it went on waiting comes with the schedule.
                self.writes.clear();
                if let Some(thread) = raw.payload.first_chunk() {
                    self.running = u32::from_le_bytes(*thread);
                }
            }
            Kind::Call => {
                let (writes, moved) = (core::mem::take(&mut self.writes), core::mem::take(&mut self.moved));
                let edge = self.edge.take();
                if let (Some(record), Some(answer)) = (CallRecord::decode(raw.payload), Answer::from_u8(raw.flags)) {
                    let call = Recorded { record, answer, moved, edge, writes, at, end: self.sorted };
                    event = Some((record.thread, Event::Call(call)));
                }
            }
            Kind::Signal => {
                let signal = SignalRecord::decode(raw.payload).filter(|s| !s.synchronous);
                event = signal.map(|s| (self.running, Event::Signal(s)));
            }
            Kind::File | Kind::Content => r.learn(&raw),
            Kind::Special => event = SpecialRecord::decode(raw.payload).map(|s| (self.running, Event::Special(s))),
            _ => {}
        }
        if let Some((thread, event)) = event {
            self.queues.entry(thread).or_default().push_back(event);
        }
        true
    }

    /// Drops the events of a thread before the n-th, which it has passed; signals among them are late.
    fn pass(&mut self, thread: u32, n: usize) {
        let Some(queue) = self.queues.get_mut(&thread) else { return };
        for event in queue.drain(..n) {
            if let Event::Signal(s) = event {
                self.late.push((thread, s));
            }
        }
        self.refusals = 0;
    }

    /// Takes the n-th event of a thread, which was a call.
    fn take(&mut self, thread: u32, n: usize, now: u64) -> Option<Recorded> {
        self.pass(thread, n);
        let queue = self.queues.get_mut(&thread)?;
        let Event::Call(call) = queue.pop_front()? else { return None };
        self.cursors.insert(thread, Cursor { at: call.end, recorded: call.record.tick, met: now });
        Some(call)
    }

    /// Do others have calls to make that came back before the one at this offset?
    fn is_before_its_turn(&self, at: usize, others: &[u32]) -> bool {
        let first_call = |thread: &u32| {
            let calls = self.queues.get(thread)?.iter();
            calls.filter_map(|event| if let Event::Call(c) = event { Some(c.at) } else { None }).next()
        };
        !self.disorderly && others.iter().filter_map(first_call).any(|first| first < at)
    }

    /// The first call from `at` on that `wanted` takes, of the next `limit` calls of any kind.
    fn find(&self, at: usize, limit: usize, mut wanted: impl FnMut(&CallRecord, usize) -> bool) -> Option<Recorded> {
        let (mut at, mut calls) = (at, 0);
        let mut writes = Vec::new();
        while calls < limit {
            let raw = log::record(self.log.get(at..)?).ok()?;
            let begin = at;
            at += raw.len;
            match raw.kind {
                Kind::Write => writes.extend(Bytes::decode(raw.payload)),
                Kind::Call => {
                    let record = CallRecord::decode(raw.payload)?;
                    if raw.flags == Answer::Value as u8 && wanted(&record, begin) {
                        let (answer, moved, edge) = (Answer::Value, Vec::new(), None);
                        return Some(Recorded { record, answer, moved, edge, writes, at: begin, end: at });
                    }
                    writes.clear();
                    calls += 1;
                }
                Kind::Page | Kind::File | Kind::Rest | Kind::Inexact | Kind::Feature | Kind::Content => {}
                _ => writes.clear(),
            }
        }
        None
    }
}

/// Is it the same call with the same arguments? Registers beyond those it has do not count.
pub fn fits(record: &CallRecord, number: u64, args: &Args) -> bool {
    let count = table::row(number).map_or(args.len(), |row| row.params.len());
    u64::from(record.nr) == number && record.args[..count] == args[..count]
}

/// The place in a thread's queue of the first event near its front that `wanted` takes.
fn position(e: &mut Engine, thread: u32, mut wanted: impl FnMut(&Event) -> bool) -> Option<usize> {
    let (Some(tr), Some(r)) = (&mut e.trial, &mut e.replay) else { return None };
    let f = &mut tr.follow;
    let (mut n, mut sorted) = (0, 0);
    while n < AHEAD {
        if let Some(event) = f.queues.entry(thread).or_default().get(n) {
            if wanted(event) {
                return Some(n);
            }
            n += 1;
        } else {
            sorted += 1;
            if sorted > SORTED || !f.sort_one(r) {
                return None;
            }
        }
    }
    None
}

/// What is recorded for this call of this thread. It is applied to the guest's memory.
pub fn answer(e: &mut Engine, thread: u32, number: u64, args: &Args) -> Found {
    let usable = |c: &Recorded| matches!(c.answer, Answer::Value | Answer::Again | Answer::Done);
    let taken = |event: &Event| matches!(event, Event::Call(c) if usable(c) && fits(&c.record, number, args));
    let n = position(e, thread, taken);
    if !has_turn(e, thread, n) {
        return Found::Later;
    }
    let now = e.clock.now();
    let Some(call) = n.and_then(|n| trial(e).follow.take(thread, n, now)) else { return Found::Nothing };
    call.apply();
    Found::This(call)
}

/// May this thread meet the n-th of its events now, or go on without one? Others may have come first; and a thread of
/// which the log knows nothing more had not come so far when the guest ended.
fn has_turn(e: &mut Engine, thread: u32, n: Option<usize>) -> bool {
    if schedule::is_on(e) {
        return true;
    }
    let others: Vec<u32> = replay(e).threads.list().iter().map(|(n, _)| *n).collect();
    let f = &mut trial(e).follow;
    let queue = f.queues.get(&thread);
    let at = match n.and_then(|n| queue?.get(n)) {
        Some(Event::Call(c)) => c.at,
        _ if queue.is_none_or(VecDeque::is_empty) => usize::MAX,
        _ => return true,
    };
    if !f.is_before_its_turn(at, &others) {
        return true;
    }
    f.refusals += 1;
    f.disorderly = f.refusals > PATIENCE;
    false
}

/// Is it this thread's turn to make the call?
pub fn may_call(e: &mut Engine, thread: u32, number: u64, args: &Args) -> bool {
    let n = position(e, thread, |event| matches!(event, Event::Call(c) if fits(&c.record, number, args)));
    has_turn(e, thread, n)
}

/// The engine carries this call out itself: what is recorded for it counts as met. Answers the recorded call if it fits.
pub fn met(e: &mut Engine, thread: u32, number: u64, args: &Args) -> Option<Recorded> {
    let n = position(e, thread, |event| matches!(event, Event::Call(c) if fits(&c.record, number, args)))?;
    let now = e.clock.now();
    trial(e).follow.take(thread, n, now)
}

/// Nobody can go on: threads no longer wait for each other. `false` if they did not anyway.
pub fn let_loose(e: &mut Engine) -> bool {
    let f = &mut trial(e).follow;
    f.refusals > 0 && !core::mem::replace(&mut f.disorderly, true)
}

/// The next signal of this thread, which comes now.
pub fn take_signal(e: &mut Engine, thread: u32) -> Option<SignalRecord> {
    let n = position(e, thread, |event| matches!(event, Event::Signal(_)))?;
    match trial(e).follow.queues.get_mut(&thread)?.remove(n)? {
        Event::Signal(s) => Some(s),
        _ => None,
    }
}

/// The signal that is to come to this thread now, if there is one.
pub fn signal(e: &mut Engine, thread: u32) -> Option<SignalRecord> {
    let now = e.clock.now();
    // The schedule knows better when.
    let due = !schedule::is_on(e) && next_signal(e, thread).is_some_and(|tick| tick <= now);
    let f = &mut trial(e).follow;
    if let Some(at) = f.late.iter().position(|(n, _)| *n == thread) {
        return Some(f.late.remove(at).1);
    }
    let queue = f.queues.get_mut(&thread).filter(|_| due)?;
    match queue.pop_front()? {
        Event::Signal(s) => Some(s),
        _ => None,
    }
}

/// The signal that this thread meets next, if that is what it meets next, comes at once.
pub fn hasten(e: &mut Engine, thread: u32) -> bool {
    let comes = next_signal(e, thread).is_some();
    if comes {
        trial(e).follow.pass(thread, 1);
    }
    comes
}

/// The tick of the signal that this thread meets next, if that is what it meets next.
pub fn next_signal(e: &mut Engine, thread: u32) -> Option<u64> {
    let mut found = None;
    position(e, thread, |event| {
        found = if let Event::Signal(s) = event { Some(s.at.tick) } else { None };
        true
    });
    // As long behind its last call as it was recorded; a call may have taken long itself.
    let last = trial(e).follow.cursor(thread);
    found.map(|tick| tick.saturating_sub(last.recorded).saturating_add(last.met).min(tick))
}

/// The recorded answer to the same question, whenever it was asked.
pub fn memory_of(e: &mut Engine, number: u64, args: &Args) -> Option<CallRecord> {
    const MOST: usize = 20_000;
    let f = &trial(e).follow;
    let found = f.find(0, MOST, |r, _| fits(r, number, args))?;
    found.apply();
    Some(found.record)
}

/// The recorded answer of the machine, if the next record of its kind is of this instruction.
pub fn special(e: &mut Engine, g: &Gate) -> Option<[u64; 4]> {
    let thread = crate::threads::Thread::current().serial;
    let n = position(e, thread, |event| matches!(event, Event::Special(s) if s.pc == g.pc))?;
    let f = &mut trial(e).follow;
    f.pass(thread, n);
    match f.queues.get_mut(&thread)?.pop_front()? {
        Event::Special(s) => Some(s.values),
        _ => None,
    }
}

/// What is to be read from a stream.
#[derive(Clone, Default, Debug)]
pub struct Input {
    pub bytes: Vec<u8>,
    /// Nothing comes behind them. Otherwise nobody knows.
    pub ends: bool,
}

/// All bytes that recorded calls from here on read from this descriptor, in order, and what nobody read.
pub fn input_of(e: &mut Engine, fd: u64) -> Input {
    const MOST: usize = 64 << 20;
    let stream = replay(e).descriptors.object(fd).map(|o| o.identity);
    let f = &trial(e).follow;
    let mut at = f.from.at;
    let mut bytes = Vec::new();
    // read, pread64, readv, recvfrom; those of threads that have got beyond are over.
    let reads = |r: &CallRecord, at: usize| {
        matches!(r.nr, 0 | 17 | 19 | 45) && r.args[0] == fd && r.result >= 0 && at >= f.cursor(r.thread).at
    };
    while bytes.len() < MOST
        && let Some(found) = f.find(at, usize::MAX, reads)
    {
        if found.record.result == 0 {
            return Input { bytes, ends: true };
        }
        let mut left = found.record.result as usize;
        for b in &found.writes {
            let n = b.bytes.len().min(left);
            bytes.extend_from_slice(&b.bytes[..n]);
            left -= n;
        }
        at = found.end;
    }
    // A pipe that the guest made itself has no identity in its table.
    let is_it = |rest: &RestRecord<'_>| stream == Some(rest.identity) || stream == Some([0; 2]) && fd == 0;
    let (rest, flags) = rest_of(f.log, at, is_it).unwrap_or((&[], log::REST_UNENDED));
    bytes.extend_from_slice(rest);
    Input { bytes, ends: flags == log::REST_TO_END }
}

/// What was left in standard input when the guest ended, if it is the wanted stream, and the record's flags.
fn rest_of(log: &'static [u8], from: usize, wanted: impl Fn(&RestRecord<'_>) -> bool) -> Option<(&'static [u8], u8)> {
    let mut at = from;
    loop {
        let raw = log::record(log.get(at..)?).ok()?;
        if raw.kind == Kind::Rest
            && raw.flags != log::REST_MOVED
            && let Some(rest) = RestRecord::decode(raw.payload).filter(&wanted)
        {
            return Some((rest.bytes, raw.flags));
        }
        at += raw.len;
    }
}
