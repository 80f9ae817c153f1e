//! Null trials of recordings: continuations without any alteration must go on as the recorded run did.
//!
//! `null_trials RECORDING…` opens the units of each recording, leaves the log at three moments (the beginning, a third
//! and two thirds of the unit's ticks), lets the guest go on, and compares what the whole tree then writes to standard
//! output and error, and how the process ends, with what was recorded. Each moment is tried twice: as trials are (`null`:
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
//! were written relative to each other; in which order several processes wrote their lines.

use clew::written::Written;
use model::log::{CallRecord, Ending, Kind, Origin};
use model::serve::{Alteration, Moment, TrialEnd, TrialLimits};
use recording::{Recording, Unit, UnitName};
use session::{Budget, EngineProgram, Replayer, Session, TrialOutcome, run_altered};
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
        let written = match Written::gather(&replayer) {
            Ok((written, _)) => written,
            Err(e) => {
                eprintln!("null_trials: {e}");
                return ExitCode::from(2);
            }
        };
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
            for (kind, moment, v) in check_unit(&replayer, &written, unit).unwrap_or_else(skipped) {
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

/// What was tried, when, and what came of it.
type Tried = (&'static str, String, Verdict);

/// Null trials at all moments of a unit.
fn check_unit(replayer: &Replayer<'_>, written: &Written, unit: &Unit) -> Result<Vec<Tried>, String> {
    let end = unit.end.ok_or("it was killed, or its end was not recorded")?;
    if matches!(end.ending, Ending::DiskFull | Ending::Left) || unit.damage.is_some() {
        return Err("its recording is cut".into());
    }
    let mut session = Session::open(replayer, &unit.name).map_err(|e| e.to_string())?;
    let (first, last) = (first_tick(replayer, unit).min(end.tick), end.tick);
    let mut moments: Vec<u64> = (0..MOMENTS).map(|n| first + (last - first) * n / MOMENTS).collect();
    moments.dedup();
    // What comes behind an `execve` is in another log, so nothing is in step with it.
    let in_step = (end.ending != Ending::Replaced).then_some(("null", Alteration::Null));
    let kinds: Vec<_> = in_step.into_iter().chain([("apart", Alteration::Apart)]).collect();
    let mut verdicts = Vec::new();
    for tick in moments {
        session.seek_tick(tick, &mut || false).map_err(|e| e.to_string())?;
        if session.ended().is_some() {
            continue;
        }
        let moment = session.place().moment;
        for (kind, alteration) in &kinds {
            let outcome = session.copy().and_then(|live| run_altered(&live, alteration.clone(), &budget()));
            let mut verdict = judge(replayer.recording, written, unit, moment, outcome.map_err(|e| e.to_string())?);
            if verdict.word != "same" && is_inexact(replayer, unit) {
                verdict.word = "inexact";
            }
            verdicts.push((*kind, moment.to_string(), verdict));
        }
    }
    Ok(verdicts)
}

/// The first tick of the unit itself: before its first call has come back, a forked one is still its parent.
fn first_tick(replayer: &Replayer<'_>, unit: &Unit) -> u64 {
    if !matches!(unit.start.origin, Origin::Fork { .. }) {
        return 0;
    }
    let Ok(log) = replayer.recording.log(&unit.name) else { return 0 };
    let first = log.records().find(|(_, raw)| raw.kind == Kind::Call);
    first.and_then(|(_, raw)| CallRecord::decode(raw.payload)).map_or(0, |c| c.tick + 1)
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

/// How the process of a unit ended, perhaps as another image; nothing if nobody knows.
fn end_of(recording: &Recording, unit: &Unit) -> Option<(Ending, u32)> {
    let end = unit.end?;
    if end.ending != Ending::Replaced {
        return Some((end.ending, end.status));
    }
    let name = unit.name.to_string();
    let next = recording.units().iter().find(|u| u.start.origin == Origin::Exec { unit: name.clone() })?;
    end_of(recording, next)
}

fn judge(recording: &Recording, written: &Written, unit: &Unit, moment: Moment, outcome: TrialOutcome) -> Verdict {
    let recorded = end_of(recording, unit);
    let ends_so = match (&outcome.end, recorded) {
        (TrialEnd::Exited(a), Some((Ending::Exited, b))) => *a == b,
        (TrialEnd::Signaled { signal, .. }, Some((Ending::Signaled, b))) => *signal == b,
        (_, None) => true,
        _ => false,
    };
    if let TrialEnd::Lost(why) = &outcome.end
        && !ends_so
    {
        return Verdict { word: "lost", text: why.clone() };
    }
    let end = outcome.end.clone();
    let is = written.altered(unit.name, moment, outcome.output, &outcome.children);
    let several = recording.units().len() > 1;
    let differences = [1, 2].into_iter().filter_map(|stream| {
        let text = difference(&stream_of(&written.all(), stream), &stream_of(&is, stream), several)?;
        Some(format!("stream {stream} {text}; it ends with {end:?}"))
    });
    let ends = format!("it ends with {end:?}, recorded was {recorded:?}");
    match differences.chain((!ends_so).then_some(ends)).next() {
        Some(text) => Verdict { word: "differs", text },
        None => Verdict { word: "same", text: String::new() },
    }
}

/// All that was written to one stream.
fn stream_of(output: &[(u8, Vec<u8>)], stream: u8) -> Vec<u8> {
    output.iter().filter(|(s, _)| *s == stream).flat_map(|(_, b)| b.iter().copied()).collect()
}

fn recorded<'a>(replayer: &Replayer<'a>, name: &UnitName) -> Result<&'a Unit, String> {
    replayer.recording.unit(name).map_err(|e| e.to_string())
}

/// The first difference of two outputs. The lines of several processes may come in any order.
fn difference(was: &[u8], is: &[u8], several: bool) -> Option<String> {
    let lines = |bytes: &[u8]| {
        let mut lines: Vec<Vec<u8>> = bytes.split(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
        lines.sort();
        lines
    };
    if was == is || several && lines(was) == lines(is) {
        return None;
    }
    let at = was.iter().zip(is).take_while(|(a, b)| a == b).count();
    let cut = |bytes: &[u8]| String::from_utf8_lossy(&bytes[at..bytes.len().min(at + 60)]).into_owned();
    Some(format!("differs at byte {at} of {}: {:?} instead of {:?}", was.len(), cut(is), cut(was)))
}
