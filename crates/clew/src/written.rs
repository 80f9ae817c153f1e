//! What a recorded tree wrote to the standard streams, and what it would have written in a trial.
//!
//! An altered run wrote what was recorded before the moment of the change, and then what the trial wrote. Processes that
//! were there before the moment are taken to write what they wrote, and so are those that it forked later just as
//! recorded; others that it forked later are the trial's own. Outputs of several processes keep the order of the
//! recording as long as the trial writes as often.
//!
//! May miss: what other processes would have written had they heard of the change.

use diagnose::Piece;
use model::log::{CallRecord, Kind, Origin};
use model::serve::Moment;
use model::wire::Report;
use recording::{Recording, UnitName};
use session::{Error, ReplayOptions, Replayer};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// One write of one process.
#[derive(Clone, Debug)]
pub struct Chunk {
    pub unit: UnitName,
    /// When the call came back.
    pub time: u64,
    /// Where its process was, the tick of the call counted.
    pub at: Moment,
    /// From then on it has been made: other threads may have gone on while it was under way.
    back: Moment,
    pub stream: u8,
    pub bytes: Arc<[u8]>,
}

/// When a unit made a call, and when that came back.
#[derive(Clone, Copy, Debug)]
struct Call {
    at: Moment,
    back: Moment,
    time: u64,
}

type Clock = Vec<Call>;

/// All that was written, in order.
#[derive(Clone)]
pub struct Written {
    chunks: Vec<Chunk>,
    clocks: BTreeMap<UnitName, Clock>,
    /// Forked units: whose, and when.
    forks: BTreeMap<UnitName, (UnitName, u64)>,
}

impl Written {
    /// Replays everything once and listens. Answers also in what the replay differs from the recording.
    pub fn gather(replayer: &Replayer<'_>) -> Result<(Written, Vec<String>), Error> {
        let recording = replayer.recording;
        let (clocks, forks) = (clocks(recording), forks(recording));
        let mut by_time = HashMap::new();
        for (unit, clock) in &clocks {
            by_time.extend(clock.iter().map(|call| ((unit.pid, call.time), (*unit, *call))));
        }
        let (mut chunks, mut differences) = (Vec::new(), Vec::new());
        let how = ReplayOptions { emit: true, descendants: true, sessions_follow: true, ..ReplayOptions::default() };
        for image in replayer.images() {
            let results = replayer.run(&image, &how, |packet| {
                if let Report::Output { stream, time, bytes } = &packet.report
                    && let Some((unit, Call { at, back, .. })) = by_time.get(&(packet.pid, *time))
                {
                    let (unit, time, at, back, stream) = (*unit, *time, *at, *back, *stream);
                    chunks.push(Chunk { unit, time, at, back, stream, bytes: bytes.as_slice().into() });
                }
            })?;
            let differs = |(pid, r): (&u32, &model::wire::Replayed)| {
                r.difference.as_ref().map(|d| format!("process {pid} differs in replay at record {}: {d}", r.records))
            };
            differences.extend(results.iter().filter_map(differs));
        }
        chunks.sort_by_key(|c| c.time);
        Ok((Written { chunks, clocks, forks }, differences))
    }

    /// Everything, as the recorded run wrote it.
    pub fn all(&self) -> Vec<Piece> {
        self.chunks.iter().map(Chunk::piece).collect()
    }

    /// The write that the byte at `offset` of these streams was part of, and where in it; else how many bytes there are.
    pub fn write_of(&self, streams: &[u8], offset: usize) -> Result<(&Chunk, usize), usize> {
        let mut passed = 0;
        for c in self.chunks.iter().filter(|c| streams.contains(&c.stream)) {
            if offset < passed + c.bytes.len() {
                return Ok((c, offset - passed));
            }
            passed += c.bytes.len();
        }
        Err(passed)
    }

    /// What was written to these streams, in order.
    pub fn chunks_of(&self, streams: &'static [u8]) -> impl Iterator<Item = &Chunk> {
        self.chunks.iter().filter(move |c| streams.contains(&c.stream))
    }

    /// How many bytes were written.
    pub fn len(&self) -> usize {
        self.chunks.iter().map(|c| c.bytes.len()).sum()
    }

    /// Did only this unit write?
    pub fn is_by(&self, unit: UnitName) -> bool {
        self.chunks.iter().all(|c| c.unit == unit)
    }

    /// Which stream of these the byte at `offset` of them together is in, and where in it.
    pub fn in_stream(&self, streams: &[u8], offset: usize) -> Option<(u8, usize)> {
        let mut passed = [0; 256];
        let mut all = 0;
        for c in self.chunks.iter().filter(|c| streams.contains(&c.stream)) {
            let before = &mut passed[usize::from(c.stream)];
            if offset < all + c.bytes.len() {
                return Some((c.stream, *before + offset - all));
            }
            *before += c.bytes.len();
            all += c.bytes.len();
        }
        None
    }

    /// The unit that wrote the byte at `offset` of a stream.
    pub fn writer(&self, streams: &[u8], offset: usize) -> Option<UnitName> {
        self.write_of(streams, offset).ok().map(|(c, _)| c.unit)
    }

    /// What the altered run of `unit` wrote, changed at `moment`, if the trial wrote `trial` from there on and took these
    /// children as recorded.
    pub fn altered(&self, unit: UnitName, moment: Moment, trial: Vec<(u8, Vec<u8>)>, children: &[u32]) -> Vec<Piece> {
        let now = self.time_of(unit, moment);
        let (mut output, mut own, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for c in &self.chunks {
            let mine = c.unit == unit;
            if mine && c.back < moment || !mine && c.time <= now {
                output.push(c.piece());
            } else if mine {
                own.push(c.time);
            } else if !self.comes_later(c.unit, unit, moment.tick, children) {
                others.push(c);
            }
        }
        let mut others = others.into_iter().peekable();
        for (n, (stream, bytes)) in trial.into_iter().enumerate() {
            let time = own.get(n).copied().unwrap_or(u64::MAX);
            while let Some(c) = others.next_if(|c| c.time < time) {
                output.push(c.piece());
            }
            output.push((stream, bytes.into()));
        }
        output.extend(others.map(Chunk::piece));
        output
    }

    /// What a unit had written at a moment, if only it writes.
    pub fn before(&self, moment: Moment) -> impl Iterator<Item = &Chunk> {
        self.chunks.iter().filter(move |c| c.back < moment)
    }

    /// When the unit made its last call before the moment.
    fn time_of(&self, unit: UnitName, moment: Moment) -> u64 {
        let Some(clock) = self.clocks.get(&unit) else { return 0 };
        let before = clock.iter().rev().find(|call| call.at < moment);
        before.map_or(0, |call| call.time)
    }

    /// Does `other` come from a fork of `unit` at or after this tick, and not from one of these children?
    fn comes_later(&self, other: UnitName, unit: UnitName, tick: u64, children: &[u32]) -> bool {
        let (mut at, mut generations) = (other, 0);
        while let Some((parent, forked)) = self.forks.get(&at) {
            if *parent == unit {
                return *forked >= tick && !children.contains(&at.pid);
            }
            (at, generations) = (*parent, generations + 1);
            if generations > self.forks.len() {
                break;
            }
        }
        false
    }

    /// The tick of the last call of a unit.
    pub fn last_call(&self, unit: UnitName) -> u64 {
        self.clocks.get(&unit).and_then(|clock| clock.last()).map_or(0, |call| call.at.tick)
    }

    /// The tick at which a forked unit begins.
    pub fn begins(&self, unit: UnitName) -> u64 {
        self.forks.get(&unit).map_or(0, |(_, tick)| *tick)
    }
}

impl Chunk {
    fn piece(&self) -> Piece {
        (self.stream, self.bytes.clone())
    }
}

/// When each unit made calls.
fn clocks(recording: &Recording) -> BTreeMap<UnitName, Clock> {
    let mut clocks = BTreeMap::new();
    for unit in recording.units() {
        let Ok(log) = recording.log(&unit.name) else { continue };
        let mut clock = Clock::new();
        let mut switched = 0;
        for (_, record) in log.records() {
            match record.kind {
                Kind::Switch => switched = tick_of_switch(record.payload).unwrap_or(switched),
                Kind::Call => clock.extend(CallRecord::decode(record.payload).map(|c| call(&c, switched))),
                _ => {}
            }
        }
        clocks.insert(unit.name, clock);
    }
    clocks
}

/// A call whose record comes behind a switch of threads at this tick: if it was under way then, it came back later.
fn call(record: &CallRecord, switched: u64) -> Call {
    let at = Moment { tick: record.tick, pc: record.pc };
    let back = if switched > at.tick { Moment { tick: switched, pc: 0 } } else { at };
    Call { at, back, time: record.time }
}

/// The payload is the thread, four bytes, and the tick.
fn tick_of_switch(payload: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(payload.get(4..12)?.try_into().ok()?))
}

/// Where forked units begin: the parent and its tick.
fn forks(recording: &Recording) -> BTreeMap<UnitName, (UnitName, u64)> {
    let mut forks = BTreeMap::new();
    for unit in recording.units() {
        let Origin::Fork { unit: parent, record } = &unit.start.origin else { continue };
        let Ok(parent) = parent.parse::<UnitName>() else { continue };
        let Ok(log) = recording.log(&parent) else { continue };
        let mut behind = log.records().skip(*record as usize).filter(|(_, r)| r.kind == Kind::Call);
        if let Some(call) = behind.next().and_then(|(_, r)| CallRecord::decode(r.payload)) {
            forks.insert(unit.name, (parent, call.tick));
        }
    }
    forks
}
