//! A unit of a recording, traced from its beginning to a moment, as a window for slices.

use model::log::{Answer, Bytes, CallRecord, FileRecord, Kind, Origin};
use model::serve::Moment;
use recording::{Recording, UnitName};
use session::{Session, Traces};
use slice::window::{Builder, CallEffects};
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use trace::chunk::{Chunk, ChunkSink};

/// Ticks that a million instructions have at least: programs make a call or jump back every ten instructions or so.
const TICKS_PER_MILLION: u64 = 100_000;

/// Hands chunks to a builder that outlives the reader of the trace.
struct Shared(Arc<Mutex<Builder>>);

impl ChunkSink for Shared {
    fn chunk(&mut self, chunk: &Chunk<'_>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).chunk(chunk);
    }
}

/// What was traced.
pub struct Traced {
    pub builder: Builder,
    /// Where the trace begins.
    pub from: Moment,
    /// The beginning of what was to be traced is missing.
    pub cut: bool,
}

/// Traces up to `to`, from the beginning or `from`, or as much of it before `to` as has about so many million instructions.
pub fn trace(
    session: &mut Session,
    from: Option<Moment>,
    to: Moment,
    millions: u64,
    interrupted: &mut dyn FnMut() -> bool,
) -> Result<Traced, String> {
    let start = from.unwrap_or_else(|| session.start_moment());
    let most = millions.saturating_mul(TICKS_PER_MILLION);
    let (from, cut) = match to.tick.saturating_sub(start.tick) > most {
        true => {
            session.seek_tick(to.tick - most, interrupted).map_err(|e| e.to_string())?;
            (session.moment(), true)
        }
        false => (start, false),
    };
    let gathering = Gathering::default();
    let window = session.window(from, to, gathering.traces(), interrupted).map_err(|e| e.to_string())?;
    Ok(Traced { builder: gathering.finish(&window.totals)?, from, cut })
}

/// A trace on its way into a builder.
#[derive(Default)]
pub struct Gathering(Arc<Mutex<Builder>>);

impl Gathering {
    /// Who is to hear of the trace.
    pub fn traces(&self) -> Traces {
        let theirs = self.0.clone();
        Traces::Chunks(Box::new(move |_| Box::new(Shared(theirs.clone())) as Box<dyn ChunkSink + Send>))
    }

    /// What came, when it has been read to its end.
    pub fn finish(self, totals: &[session::TraceTotals]) -> Result<Builder, String> {
        if let Some(damage) = totals.iter().find_map(|t| t.damage.clone()) {
            return Err(format!("the trace cannot be read: {damage}"));
        }
        Ok(std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// The moment at which a forked unit begins to be one of its own.
pub fn forked_since(
    session: &mut Session,
    recording: &Recording,
    unit: &UnitName,
    interrupted: &mut dyn FnMut() -> bool,
) -> Result<Option<Moment>, String> {
    if forked_at(recording, unit).is_none() {
        return Ok(None);
    }
    let log = recording.log(unit).map_err(|e| e.to_string())?;
    // The first call that its own log holds is the fork, coming back.
    let mut calls = log.records().filter(|(_, r)| r.kind == Kind::Call);
    let Some(fork) = calls.find_map(|(_, r)| CallRecord::decode(r.payload)) else { return Ok(None) };
    session.seek_tick(fork.tick + 1, interrupted).map_err(|e| e.to_string())?;
    Ok(Some(session.moment()))
}

/// What the system calls of a unit, and of its ancestors before its forks, wrote.
pub fn calls(recording: &Recording, unit: &UnitName) -> Result<Vec<CallEffects>, String> {
    calls_with_input(recording, unit, &mut |_, _| None)
}

/// Which of what a call of a unit delivered is input; nothing: all of it.
pub type InputOf<'i> = &'i mut dyn FnMut(UnitName, &CallEffects) -> Option<Vec<(u64, u64)>>;

/// The same, with the input that is named for each call.
pub fn calls_with_input(
    recording: &Recording,
    unit: &UnitName,
    input: InputOf<'_>,
) -> Result<Vec<CallEffects>, String> {
    let lineage = recording.lineage(unit).map_err(|e| e.to_string())?;
    let mut calls = Vec::new();
    for (n, name) in lineage.iter().enumerate() {
        let log = recording.log(name).map_err(|e| e.to_string())?;
        // The fork itself comes back in the child, too.
        let end = lineage.get(n + 1).and_then(|child| forked_at(recording, child)).unwrap_or(u64::MAX);
        let mut writes = Vec::new();
        for (number, raw) in log.records().take_while(|(number, _)| *number < end) {
            match raw.kind {
                Kind::Write => writes.extend(Bytes::decode(raw.payload).map(|b| (b.addr, b.bytes.len() as u64))),
                Kind::Call => {
                    let writes = std::mem::take(&mut writes);
                    let Some(c) = CallRecord::decode(raw.payload) else { continue };
                    if Answer::from_u8(raw.flags) == Some(Answer::Value) {
                        let mut call = CallEffects {
                            pc: c.pc,
                            nr: u64::from(c.nr),
                            args: c.args,
                            result: c.result,
                            writes,
                            record: number,
                            tick: c.tick,
                            input: None,
                        };
                        call.input = input(*name, &call);
                        calls.push(call);
                    }
                }
                _ => {}
            }
        }
    }
    Ok(calls)
}

fn forked_at(recording: &Recording, unit: &UnitName) -> Option<u64> {
    match &recording.unit(unit).ok()?.start.origin {
        Origin::Fork { record, .. } => Some(*record),
        _ => None,
    }
}

/// The names that kept files had: by where they are kept.
pub fn original_names(recording: &Recording, unit: &UnitName) -> HashMap<PathBuf, PathBuf> {
    let mut names = HashMap::new();
    for name in recording.lineage(unit).unwrap_or_default() {
        let Ok(log) = recording.log(&name) else { continue };
        let files = log.records().filter(|(_, r)| r.kind == Kind::File);
        for file in files.filter_map(|(_, r)| FileRecord::decode(r.payload)) {
            if let Some(kept) = recording.file(&file.key) {
                names.insert(kept, PathBuf::from(OsString::from_vec(file.path)));
            }
        }
    }
    names
}
