//! Null trials of recordings: continuations without any alteration must go on as the recorded run did.
//!
//! `null_trials RECORDING…` opens the units of each recording, leaves the log at three moments (the beginning, a third
//! and two thirds of the unit's ticks), lets the guest go on, and compares what it writes to standard output and error,
//! and how it ends, with what the recorded unit did after that moment. Each moment is tried twice: as trials are (`null`:
//! in step with the log while it fits) and `apart`, where the guest goes its own way at once, in the world made from the
//! recording. One line per trial, fields separated by tabs:
//!
//! ```text
//! same|differs|lost|inexact|skipped   alone|family   null|apart   unit   moment   what is to be said about it
//! ```
//! `alone` is a recording of one process. Apart, a unit of a family may ask for what only another process could answer.
//! The status is 0 unless a recording cannot be read.
//!
//! May miss: some units of a recording with very many, for which a minute is not enough; in which order the two streams
//! were written relative to each other.

use model::log::{CallRecord, Ending, Kind, Origin};
use model::serve::{Alteration, Place, TrialEnd, TrialLimits};
use model::wire::Report;
use recording::{Recording, Unit, UnitName};
use session::{Budget, EngineProgram, ReplayOptions, Replayer, Session, TrialOutcome, run_altered};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Moments per unit.
const MOMENTS: u64 = 3;
/// Units of a recording that are tried in any case, and the time after which no further one is.
const LEAST_UNITS: usize = 4;
const TIME: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let engine = match EngineProgram::in_memory(clew::ENGINE) {
        Ok(engine) => engine,
        Err(e) => {
            eprintln!("null_trials: {e}");
            return ExitCode::from(2);
        }
    };
    for path in std::env::args_os().skip(1) {
        let recording = match Recording::open(Path::new(&path)) {
            Ok(recording) => recording,
            Err(e) => {
                eprintln!("null_trials: {e}");
                return ExitCode::from(2);
            }
        };
        let replayer = Replayer { engine: &engine, recording: &recording };
        let kin = if recording.units().len() == 1 { "alone" } else { "family" };
        let begun = Instant::now();
        for (n, unit) in spread(recording.units()).into_iter().enumerate() {
            if n >= LEAST_UNITS && begun.elapsed() > TIME {
                break;
            }
            let skipped = |text| {
                let word = if is_inexact(&replayer, unit) { "inexact" } else { "skipped" };
                vec![("null", "-".to_owned(), Verdict { word, text })]
            };
            for (kind, moment, v) in check_unit(&replayer, unit).unwrap_or_else(skipped) {
                let text = v.text.replace(['\n', '\t', '\r'], " ");
                println!("{}\t{kin}\t{kind}\t{}\t{moment}\t{text}", v.word, unit.name);
            }
        }
    }
    ExitCode::SUCCESS
}

/// All units, so that the first few are spread over the recording: every 16th, then those between, and so on.
fn spread(units: &[Unit]) -> Vec<&Unit> {
    let mut order: Vec<usize> = (0..units.len()).collect();
    order.sort_by_key(|n| (n % 16).reverse_bits());
    order.into_iter().map(|n| &units[n]).collect()
}

/// What is said about one trial.
struct Verdict {
    word: &'static str,
    text: String,
}

/// The recorded course of a unit: what it wrote, and when.
struct Course {
    /// Calls of the unit and, before its fork, of its ancestors, by time stamp: log, number of the record, tick.
    calls: HashMap<u64, (usize, u64, u64)>,
    /// The unit's own log.
    log: usize,
    /// Stream, time stamp, bytes.
    outputs: Vec<(u8, u64, Vec<u8>)>,
    /// The first and the last tick of the unit itself.
    ticks: (u64, u64),
}

/// What was tried, when, and what came of it.
type Tried = (&'static str, String, Verdict);

/// Null trials at all moments of a unit.
fn check_unit(replayer: &Replayer<'_>, unit: &Unit) -> Result<Vec<Tried>, String> {
    let end = unit.end.ok_or("it was killed, or its end was not recorded")?;
    if matches!(end.ending, Ending::DiskFull | Ending::Left) || unit.damage.is_some() {
        return Err("its recording is cut".into());
    }
    let course = Course::of(replayer, &unit.name, end.tick)?;
    let mut session = Session::open(replayer, &unit.name).map_err(|e| e.to_string())?;
    let (first, last) = course.ticks;
    let mut moments: Vec<u64> = (0..MOMENTS).map(|n| first + (last - first) * n / MOMENTS).collect();
    moments.dedup();
    let mut verdicts = Vec::new();
    for tick in moments {
        session.seek_tick(tick, &mut || false).map_err(|e| e.to_string())?;
        if session.ended().is_some() {
            continue;
        }
        let place = session.place().clone();
        for (kind, alteration) in [("null", Alteration::Null), ("apart", Alteration::Apart)] {
            let outcome = session.copy().and_then(|live| run_altered(&live, alteration, &budget()));
            let mut verdict = course.judge(unit, &place, &outcome.map_err(|e| e.to_string())?);
            if verdict.word != "same" && is_inexact(replayer, unit) {
                verdict.word = "inexact";
            }
            verdicts.push((kind, place.moment.to_string(), verdict));
        }
    }
    Ok(verdicts)
}

/// Is the recording of the unit, or of one that it was forked from, inexact and says so?
fn is_inexact(replayer: &Replayer<'_>, unit: &Unit) -> bool {
    let lineage = replayer.recording.lineage(&unit.name).unwrap_or_default();
    lineage.iter().any(|name| recorded(replayer, name).is_ok_and(|u| !u.inexact.is_empty()))
}

fn budget() -> Budget {
    let limits = TrialLimits { ticks: 1 << 40, memory: 64 << 30, output: 1 << 30, belt: true };
    Budget { limits, wall: Duration::from_secs(60), ..Budget::default() }
}

impl Course {
    fn of(replayer: &Replayer<'_>, unit: &UnitName, last: u64) -> Result<Course, String> {
        let lineage = replayer.recording.lineage(unit).map_err(|e| e.to_string())?;
        let mut calls = HashMap::new();
        let mut first = 0;
        for (log_number, name) in lineage.iter().enumerate() {
            let log = replayer.recording.log(name).map_err(|e| e.to_string())?;
            let all = log.records().filter(|(_, raw)| raw.kind == Kind::Call);
            let all = all.filter_map(|(number, raw)| CallRecord::decode(raw.payload).map(|c| (number, c)));
            let forked = matches!(recorded(replayer, name)?.start.origin, Origin::Fork { .. });
            first = 0;
            for (n, (number, c)) in all.enumerate() {
                calls.insert(c.time, (log_number, number, c.tick));
                if n == 0 && forked {
                    // Before its first call has come back it is still its parent.
                    first = c.tick + 1;
                }
            }
        }
        let mut outputs = Vec::new();
        let options = ReplayOptions { emit: true, ..ReplayOptions::default() };
        let results = replayer.run(unit, &options, |packet| {
            if let Report::Output { stream, time, bytes } = &packet.report {
                outputs.push((*stream, *time, bytes.clone()));
            }
        });
        let results = results.map_err(|e| e.to_string())?;
        if let Some(why) = results.values().find_map(|r| r.difference.clone()) {
            return Err(format!("its replay differs: {why}"));
        }
        Ok(Course { calls, log: lineage.len() - 1, outputs, ticks: (first.min(last), last) })
    }

    /// What was written to a stream from a place on.
    fn after(&self, place: &Place, stream: u8) -> Vec<u8> {
        let later = |time: &u64| {
            self.calls.get(time).is_some_and(|(log, record, tick)| match tick.cmp(&place.moment.tick) {
                Ordering::Equal => (*log, *record) >= (self.log, place.record),
                order => order.is_gt(),
            })
        };
        let wanted = self.outputs.iter().filter(|(s, time, _)| *s == stream && later(time));
        wanted.flat_map(|(_, _, bytes)| bytes.iter().copied()).collect()
    }

    fn judge(&self, unit: &Unit, place: &Place, outcome: &TrialOutcome) -> Verdict {
        let recorded = unit.end.map(|e| (e.ending, e.status));
        let ends_so = match (&outcome.end, recorded) {
            (TrialEnd::Exited(a), Some((Ending::Exited, b))) => *a == b,
            (TrialEnd::Signaled { signal, .. }, Some((Ending::Signaled, b))) => *signal == b,
            // What comes behind is another unit.
            (TrialEnd::Lost(why), Some((Ending::Replaced, _))) => why.starts_with("it wants to execute"),
            _ => false,
        };
        if let TrialEnd::Lost(why) = &outcome.end
            && !ends_so
        {
            return Verdict { word: "lost", text: why.clone() };
        }
        let differences = [1, 2].into_iter().filter_map(|stream| {
            let text = difference(&self.after(place, stream), &outcome.stream(stream))?;
            Some(format!("stream {stream} {text}; it ends with {:?}", outcome.end))
        });
        let ends = format!("it ends with {:?}, recorded was {recorded:?}", outcome.end);
        match differences.chain((!ends_so).then_some(ends)).next() {
            Some(text) => Verdict { word: "differs", text },
            None => Verdict { word: "same", text: String::new() },
        }
    }
}

fn recorded<'a>(replayer: &Replayer<'a>, name: &UnitName) -> Result<&'a Unit, String> {
    replayer.recording.unit(name).map_err(|e| e.to_string())
}

/// The first difference of two outputs.
fn difference(was: &[u8], is: &[u8]) -> Option<String> {
    if was == is {
        return None;
    }
    let at = was.iter().zip(is).take_while(|(a, b)| a == b).count();
    let cut = |bytes: &[u8]| String::from_utf8_lossy(&bytes[at..bytes.len().min(at + 60)]).into_owned();
    Some(format!("differs at byte {at} of {}: {:?} instead of {:?}", was.len(), cut(is), cut(was)))
}
