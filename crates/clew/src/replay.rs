//! `clew replay`: re-executes a recording, re-emits its output, and says whether it was the same.

use crate::cli::{Color, Replay as Options};
use crate::guest::{Failed, start_engine};
use crate::home;
use crate::message::{self, Messages, Paint};
use crate::startup::Startup;
use crate::status;
use model::wire::{Packet, Replayed, Report};
use recording::{Recording, UnitName};
use session::{EngineProgram, Outputs, ReplayOptions, Replayer};
use std::collections::HashMap;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

/// Replays the recording of the command line; gives our exit status.
pub fn run(options: &Options, color: Color, startup: &Startup) -> i32 {
    let messages = Messages { paint: Paint::for_stderr(color, startup) };
    let (opened, unit) = match home::find(&options.recording, startup) {
        Ok(found) => found,
        Err(why) => {
            messages.error(&why);
            return status::USAGE;
        }
    };
    if opened.recording.units().is_empty() {
        messages.error(&nothing_to_replay(&opened.recording));
        return status::USAGE;
    }
    if !options.quiet {
        tell_limits(&opened.recording, &messages);
    }
    let done = start_engine(startup, |engine| replay(engine, &opened.recording, unit, options).map_err(Failed::Error));
    match done {
        Ok(differences) if !differences.is_empty() => {
            differences.iter().for_each(|d| messages.error(d));
            status::NO
        }
        Ok(_) if options.verify && opened.recording.is_incomplete() => {
            messages.error("incomplete: what is there of the recording is identical, but something is missing");
            status::NO
        }
        Ok(_) => {
            if options.verify {
                messages.note("identical");
            }
            0
        }
        Err(Failed::Error(e)) => {
            messages.error(&e.to_string());
            status::INTERNAL
        }
        Err(Failed::Signal(_)) => status::INTERNAL,
    }
}

/// Why there is nothing to replay.
fn nothing_to_replay(recording: &Recording) -> String {
    let place = recording.path().display();
    match recording.unreadable().first() {
        Some((unit, why)) => format!("{place} cannot be replayed: the log of process {unit} cannot be read: {why}"),
        None => format!("{place} cannot be replayed: no process was recorded before its recorder was stopped"),
    }
}

/// Says what is known to be incomplete about a recording.
fn tell_limits(recording: &Recording, messages: &Messages) {
    for unit in recording.units() {
        for (record, why) in &unit.inexact {
            messages.note(&format!("process {} is inexact from record {record} on: {why}", unit.name));
        }
        if let Some((record, why)) = &unit.damage {
            messages.note(&format!("the log of process {} is damaged from record {record} on: {why}", unit.name));
        }
    }
    recording.missing().for_each(|missing| messages.note(&missing.to_string()));
    for (unit, why) in recording.unreadable() {
        messages.note(&format!("process {unit} cannot be replayed: {why}"));
    }
}

/// Replays what was asked for; answers the differences found.
fn replay(
    engine: &EngineProgram,
    recording: &Recording,
    unit: Option<UnitName>,
    options: &Options,
) -> Result<Vec<String>, session::Error> {
    let replayer = Replayer { engine, recording };
    let wanted = match unit {
        Some(unit) => vec![unit],
        None => replayer.images(),
    };
    let how =
        ReplayOptions { verify: options.verify, emit: true, descendants: unit.is_none(), ..ReplayOptions::default() };
    // Output of one process is shown as it comes; that of several must first be put in order.
    let at_once = unit.is_some() || recording.units().len() == 1;
    let (mut later, mut differences) = (Outputs::new(), Vec::new());
    for (unit, done) in wanted.iter().zip(replay_all(&replayer, &wanted, &how, at_once)) {
        let (results, outputs) = done?;
        later.extend(outputs);
        for (pid, r) in &results {
            differences.extend(r.difference.as_ref().map(|d| tell(*pid, r, d)));
        }
        if results.is_empty() {
            differences.push(format!("process {unit} ended without having been replayed"));
        }
    }
    later.sort_by_key(|(_, time, _)| *time);
    for (stream, _, bytes) in later {
        put(stream, &bytes);
    }
    Ok(differences)
}

/// What came of the replay of one unit and its descendants: how far each process came, and what they wrote.
type Done = Result<(HashMap<u32, Replayed>, Outputs), session::Error>;

/// Replays units, which do not depend on each other, on all cores; answers in their order. Nothing more is begun once one
/// could not be replayed.
fn replay_all(replayer: &Replayer<'_>, units: &[UnitName], how: &ReplayOptions, at_once: bool) -> Vec<Done> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let n = next.fetch_add(1, Relaxed)
            && let Some(unit) = units.get(n)
        {
            let mut outputs = Outputs::new();
            let results = replayer.run(unit, how, |packet| hear(packet, at_once, &mut outputs));
            if results.is_err() {
                next.store(units.len(), Relaxed);
            }
            done.push((n, results.map(|results| (results, outputs))));
        }
        done
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut done: Vec<(usize, Done)> = thread::scope(|scope| {
        let others: Vec<_> = (1..cores.min(units.len())).map(|_| scope.spawn(work)).collect();
        let mut done = work();
        for other in others {
            done.extend(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        done
    });
    done.sort_by_key(|(n, _)| *n);
    done.into_iter().map(|(_, done)| done).collect()
}

fn tell(pid: u32, r: &Replayed, difference: &str) -> String {
    format!("process {pid} differs at record {}, tick {}, pc {:#x}: {difference}", r.records, r.tick, r.pc)
}

fn hear(packet: &Packet, at_once: bool, later: &mut Outputs) {
    if let Report::Output { stream, time, bytes } = &packet.report {
        match at_once {
            true => put(*stream, bytes),
            false => later.push((*stream, *time, bytes.clone())),
        }
    }
}

/// Writes to one of our own standard streams.
fn put(stream: u8, bytes: &[u8]) {
    match stream {
        1 => message::stdout_bytes(bytes),
        _ => message::stderr_bytes(bytes),
    }
}
