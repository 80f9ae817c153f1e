//! `clew run`: a program under the engine, with nothing recorded.
//!
//! The host finds the program, starts the engine on it, stays out of the way of signals and terminal, tells what the
//! engine has to say, and ends as the program ended.

use crate::cli::{Color, CpuName, Run as Options, SinkName};
use crate::jobs::{self, Signals};
use crate::message::{self, Messages, Paint};
use crate::startup::Startup;
use crate::{ENGINE, crash, ending, find, stats, status};
use model::wire::{Config, Packet, Report, TraceSink};
use model::{Cpu, GuestAddr};
use session::{EngineProgram, Error, ErrorKind, Event, Gathering, Launch, Outcome, Run, Running, SignalState, Traces};
use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Runs the program of the command line; gives our exit status unless we die of the program's signal.
pub fn run(options: &Options, color: Color, startup: &Startup) -> i32 {
    let messages = Messages { paint: Paint::for_stderr(color, startup) };
    let Some(name) = options.command.first() else { return status::FAILURE };
    let program = match find::find(name, startup.variable("PATH")) {
        Ok(program) => program,
        Err(why) => {
            messages.error(&why.message);
            return why.status;
        }
    };
    let begun = Instant::now();
    match start(options, startup, &program, &messages) {
        Err(Failed::Signal(signal)) => ending::die_of(signal),
        Err(Failed::Error(error)) => {
            messages.error(&advise(&error, &program));
            if error.kind() == ErrorKind::TooLarge { status::NOT_RUNNABLE } else { status::FAILURE }
        }
        Ok(running) => {
            let run = follow(running, options, startup, &messages);
            let wall = begun.elapsed();
            tell_end(&run, options, &messages);
            if options.stats {
                let text = match options.json {
                    true => format!("{}\n", stats::json(options, &run, wall)),
                    false => stats::table(options, &run, wall),
                };
                message::stderr(&text);
            }
            exit_status(&run.outcome)
        }
    }
}

/// Why there is no guest.
pub enum Failed {
    /// We were told to end before there was one.
    Signal(i32),
    Error(Error),
}

fn start(options: &Options, startup: &Startup, program: &Path, messages: &Messages) -> Result<Running, Failed> {
    let signals = Signals::take().ok();
    let config = Config {
        mode: options.effective_mode(),
        cpu: match options.cpu {
            CpuName::V2 => Cpu::V2,
            CpuName::Native => Cpu::Native,
        },
        seed: options.seed,
        stats: options.stats,
        dies_with_host: true,
        sink: match options.sink {
            SinkName::Host | SinkName::Check => TraceSink::Ring,
            SinkName::Drop => TraceSink::Drop,
        },
        ..Config::default()
    };
    let running = start_engine(startup, |engine| {
        if let Some(signal) = signals.as_ref().and_then(Signals::fatal_so_far) {
            return Err(Failed::Signal(signal));
        }
        let launch = Launch {
            env: startup.env.clone(),
            config: config.clone(),
            traces: if options.sink == SinkName::Check { Traces::Both } else { Traces::Totals },
            // Nothing was changed but the mask.
            signals: SignalState { blocked: Some(startup.blocked), ..SignalState::unchanged() },
            ..Launch::new(engine, program, options.command.clone())
        };
        launch.start().map_err(Failed::Error)
    })?;
    keep_exit_status(startup);
    if signals.is_none_or(|s| s.pass_on(running.handle()).is_err()) && !options.quiet {
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
fn follow(mut running: Running, options: &Options, startup: &Startup, messages: &Messages) -> Run {
    let mut gathering = Gathering::new(running.pid());
    let mut told = HashSet::new();
    while let Some(event) = running.next() {
        match &event {
            Event::Stopped(signal) => jobs::stop_like(*signal, startup),
            Event::Report(packet) => tell_report(packet, running.pid(), options, messages, &mut told),
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
fn tell_report(packet: &Packet, first: u32, options: &Options, messages: &Messages, told: &mut HashSet<String>) {
    match &packet.report {
        Report::EngineFault { message, pc } => {
            messages.error(&format!("the engine is at fault{}: {message}; please report this", at(*pc)));
        }
        Report::Lost { message, pc } => {
            messages.error(&format!("the program cannot be followed{}: {message}", at(*pc)));
        }
        Report::Note { message, pc } if !options.quiet && told.insert(message.clone()) => {
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
fn tell_end(run: &Run, options: &Options, messages: &Messages) {
    match &run.outcome {
        Outcome::NotLoaded { message, .. } => messages.error(message),
        Outcome::Unknown => messages.error("the program ended, but its exit status was lost"),
        Outcome::Signaled { signal, crash } if crash::is_fault(*signal) && !options.quiet => match crash {
            Some(crash) => messages.error(&crash::describe(crash)),
            None => messages.error(&crash::describe_unseen(*signal)),
        },
        _ => {}
    }
}

fn exit_status(outcome: &Outcome) -> i32 {
    match outcome {
        Outcome::Exited(code) => *code,
        Outcome::Signaled { signal, .. } => ending::die_of(*signal),
        Outcome::NotLoaded { status, .. } => i32::from(*status),
        Outcome::EngineFault { .. } | Outcome::Lost { .. } | Outcome::Unknown => status::FAILURE,
    }
}

/// What went wrong with our own part, and what to do.
fn advise(error: &Error, program: &Path) -> String {
    let shown = find::quote(&OsString::from(program));
    let advice = match error.kind() {
        ErrorKind::MakeEngine | ErrorKind::ExecuteEngine => "`clew doctor` says what this machine allows",
        ErrorKind::TooLarge => "shorten the arguments or the environment",
        _ => "check the limits of this user (ulimit -a)",
    };
    format!("cannot run {shown}: {error}; {advice}")
}
