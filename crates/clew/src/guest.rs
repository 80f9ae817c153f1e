//! A guest of a verb that runs one: started, followed, told about, and its end passed on.

use crate::jobs::{self, Signals};
use crate::message::Messages;
use crate::startup::Startup;
use crate::{ENGINE, crash, ending, find, status};
use model::GuestAddr;
use model::wire::{Config, Packet, Report};
use session::{
    EngineProgram, Error, ErrorKind, Event, Gathering, Launch, Outcome, Recorder, Run, Running, SignalState, Traces,
};
use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is to be run, and how.
pub struct Request<'a> {
    pub command: &'a [OsString],
    pub program: &'a Path,
    pub config: Config,
    /// Traces are decoded twice and compared.
    pub check_traces: bool,
    pub quiet: bool,
    /// Records the run; with a seed for switches at random instructions.
    pub recorder: Option<(&'a Recorder, Option<u64>)>,
}

/// Why there is no guest.
pub enum Failed {
    /// We were told to end before there was one.
    Signal(i32),
    Error(Error),
}

/// Says why there is no guest; gives the exit status for it.
pub fn failed(failed: &Failed, program: &Path, messages: &Messages) -> i32 {
    match failed {
        Failed::Signal(signal) => ending::die_of(*signal),
        Failed::Error(error) => {
            messages.error(&advise(error, program));
            if error.kind() == ErrorKind::TooLarge { status::NOT_RUNNABLE } else { status::FAILURE }
        }
    }
}

/// Starts the guest.
pub fn start(request: &Request<'_>, startup: &Startup, messages: &Messages) -> Result<Running, Failed> {
    let signals = Signals::take().ok();
    let running = start_engine(startup, |engine| {
        if let Some(signal) = signals.as_ref().and_then(Signals::fatal_so_far) {
            return Err(Failed::Signal(signal));
        }
        let mut launch = Launch {
            env: startup.env.clone(),
            config: request.config.clone(),
            traces: if request.check_traces { Traces::Both } else { Traces::Totals },
            // Nothing was changed but the mask.
            signals: SignalState { blocked: Some(startup.blocked), ..SignalState::unchanged() },
            ..Launch::new(engine, request.program, request.command.to_vec())
        };
        if let Some((recorder, chaos)) = request.recorder {
            recorder.equip(&mut launch, chaos).map_err(Failed::Error)?;
        }
        launch.start().map_err(Failed::Error)
    })?;
    keep_exit_status(startup);
    if signals.is_none_or(|s| s.pass_on(running.handle()).is_err()) && !request.quiet {
        messages.note("signals sent to this process cannot be passed on to the program");
    }
    Ok(running)
}

/// Starts the engine from memory or, where that is not allowed, from a file in the cache folder.
pub fn start_engine<T>(
    startup: &Startup,
    mut start: impl FnMut(&EngineProgram) -> Result<T, Failed>,
) -> Result<T, Failed> {
    let first = match EngineProgram::in_memory(ENGINE).map_err(Failed::Error).and_then(|engine| start(&engine)) {
        Err(Failed::Error(e)) if matches!(e.kind(), ErrorKind::MakeEngine | ErrorKind::ExecuteEngine) => e,
        other => return other,
    };
    let Some(folder) = cache_folder(startup) else { return Err(Failed::Error(first)) };
    let engine = EngineProgram::in_folder(ENGINE, &folder).map_err(|_| Failed::Error(first))?;
    start(&engine)
}

/// Where files that can be made again are kept.
pub fn cache_folder(startup: &Startup) -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = PathBuf::from(startup.variable(name)?);
        path.is_absolute().then_some(path)
    };
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(base.join("clew"))
}

/// Makes sure that the guest's exit status is kept for us.
///
/// With SIGCHLD ignored the system takes it. The guest must start with it ignored if we did, so this comes after.
fn keep_exit_status(startup: &Startup) {
    if startup.ignores(signal_hook::consts::SIGCHLD) {
        // The flag is not read: that there is a handler is what counts.
        let _ = signal_hook::flag::register(signal_hook::consts::SIGCHLD, Arc::default());
    }
}

/// Follows the guest until its first process has gone; the rest of the tree goes on by itself, as natively.
pub fn follow(mut running: Running, request: &Request<'_>, startup: &Startup, messages: &Messages) -> Run {
    let mut gathering = Gathering::new(running.pid());
    let mut told = HashSet::new();
    while let Some(event) = running.next() {
        match &event {
            Event::Stopped(signal) => jobs::stop_like(*signal, &running.handle(), startup),
            Event::Report(packet) => {
                if let Some((recorder, _)) = request.recorder {
                    recorder.hear(packet);
                }
                tell_report(packet, running.pid(), request.quiet, messages, &mut told);
            }
            Event::NoTrace { error, .. } => messages.error(&format!("a trace cannot be read: {error}")),
            Event::Garbled => messages.error("the engine sent a message that does not parse"),
            Event::Trace(totals) => {
                if let Some(damage) = &totals.damage {
                    messages.error(&format!("the trace of process {} is damaged: {damage}", totals.pid));
                }
            }
            Event::Ended(_) | Event::Closed => {}
        }
        let last = matches!(event, Event::Ended(_));
        gathering.take(event);
        if last {
            break;
        }
    }
    gathering.finish()
}

/// What is told while the guest runs.
fn tell_report(packet: &Packet, first: u32, quiet: bool, messages: &Messages, told: &mut HashSet<String>) {
    match &packet.report {
        Report::EngineFault { message, pc } => {
            messages.error(&format!("the engine is at fault{}: {message}; please report this", at(*pc)));
        }
        Report::Lost { message, pc } => {
            messages.error(&format!("the program cannot be followed{}: {message}", at(*pc)));
        }
        Report::Note { message, pc } if !quiet && told.insert(message.clone()) => {
            messages.note(&format!("note{}: {message}", at(*pc)));
        }
        // That of the first process is told at the end, as the outcome.
        Report::NotLoaded { message, .. } if packet.pid != first => {
            messages.error(&format!("process {} could not go on: {message}", packet.pid));
        }
        _ => {}
    }
}

fn at(pc: GuestAddr) -> String {
    if pc.0 == 0 { String::new() } else { format!(" at {pc}") }
}

/// What is told when the guest has ended.
pub fn tell_end(run: &Run, quiet: bool, messages: &Messages) {
    match &run.outcome {
        Outcome::NotLoaded { message, .. } => messages.error(message),
        Outcome::Unknown => messages.error("the program ended, but its exit status was lost"),
        Outcome::Signaled { signal, crash } if crash::is_fault(*signal) && !quiet => match crash {
            Some(crash) => messages.error(&crash::describe(crash)),
            None => messages.error(&crash::describe_unseen(*signal)),
        },
        _ => {}
    }
}

pub fn exit_status(outcome: &Outcome) -> i32 {
    match outcome {
        Outcome::Exited(code) => *code,
        Outcome::Signaled { signal, .. } => ending::die_of(*signal),
        Outcome::NotLoaded { status, .. } => i32::from(*status),
        Outcome::EngineFault { .. } | Outcome::Lost { .. } | Outcome::Unknown => status::FAILURE,
    }
}

/// What went wrong with our own part, and what to do.
pub fn advise(error: &Error, program: &Path) -> String {
    let shown = find::quote(&OsString::from(program));
    let advice = match error.kind() {
        ErrorKind::MakeEngine | ErrorKind::ExecuteEngine => "`clew doctor` says what this machine allows",
        ErrorKind::TooLarge => "shorten the arguments or the environment",
        _ => "check the limits of this user (ulimit -a)",
    };
    format!("cannot run {shown}: {error}; {advice}")
}
