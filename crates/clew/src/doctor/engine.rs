//! The proof: the engine is started as `clew run` starts it, and runs a program in every mode.

use super::Check;
use crate::guest::cache_folder;
use crate::startup::Startup;
use crate::{ENGINE, find, stats};
use model::Mode;
use model::wire::{Config, TraceSink};
use session::{EngineProgram, Error, Launch, Outcome, SignalState, Stdio};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A program that takes longer than this to do nothing is stuck.
const LIMIT: Duration = Duration::from_secs(20);
const MODES: [(&str, Mode); 4] = [
    ("run in mode none", Mode::None),
    ("run in mode tick", Mode::Tick),
    ("run in mode count", Mode::Count),
    ("run in mode trace", Mode::Trace),
];

pub fn checks(startup: &Startup) -> Vec<Check> {
    const NAME: &str = "engine";
    let from_memory = EngineProgram::in_memory(ENGINE).and_then(|e| start(&e, Mode::None, startup).map(|_| e));
    let mut checks = Vec::new();
    let engine = match from_memory {
        Ok(engine) => {
            checks.push(Check::ok(NAME, "started from memory"));
            engine
        }
        Err(refusal) => match from_folder(startup) {
            Ok((engine, folder)) => {
                let found = format!("programs in memory may not be executed; started from {}", folder.display());
                checks.push(Check::ok(NAME, found));
                engine
            }
            Err(other) => {
                let found = format!("cannot be started, from memory ({refusal}) or from a file ({other})");
                let advice = "allow memfd_create with execution (sysctl vm.memfd_noexec=0), or let XDG_CACHE_HOME name \
                              a folder whose file system allows execution";
                checks.push(Check::missing(NAME, found, advice));
                return checks;
            }
        },
    };
    checks.extend(MODES.map(|(name, mode)| trial(name, &engine, mode, startup)));
    checks
}

fn from_folder(startup: &Startup) -> Result<(EngineProgram, PathBuf), String> {
    let folder = cache_folder(startup).ok_or("neither XDG_CACHE_HOME nor HOME is set")?;
    let engine = EngineProgram::in_folder(ENGINE, &folder).map_err(|e| e.to_string())?;
    start(&engine, Mode::None, startup).map_err(|e| e.to_string())?;
    Ok((engine, folder))
}

fn trial(name: &'static str, engine: &EngineProgram, mode: Mode, startup: &Startup) -> Check {
    let begun = Instant::now();
    let ended = match start(engine, mode, startup) {
        Err(error) => return Check::missing(name, error.to_string(), "see the checks above"),
        Ok(running) => running.wait_first_within(LIMIT),
    };
    let report = "report this with the output of clew doctor --json";
    let Some(run) = ended else {
        return Check::missing(name, format!("still going after {} s", LIMIT.as_secs()), report);
    };
    match &run.outcome {
        Outcome::Exited(0) => {
            let damage = run.traces.iter().find_map(|t| t.damage.clone()).or(run.troubles.first().cloned());
            match damage {
                Some(damage) => Check::missing(name, damage, report),
                None => Check::ok(name, format!("works ({:.1} ms)", begun.elapsed().as_secs_f64() * 1e3)),
            }
        }
        outcome => Check::missing(name, describe(outcome, mode), report),
    }
}

fn describe(outcome: &Outcome, mode: Mode) -> String {
    let mode = stats::mode_name(mode);
    match outcome {
        Outcome::Exited(code) => format!("a program that always succeeds gave {code} in mode {mode}"),
        Outcome::Signaled { signal, .. } => format!("the program died of {}", session::signal_name(*signal)),
        Outcome::NotLoaded { message, .. } => message.clone(),
        Outcome::EngineFault { message, pc } => format!("the engine is at fault at {pc}: {message}"),
        Outcome::Lost { message, pc } => format!("the program cannot be followed at {pc}: {message}"),
        Outcome::Unknown => "the program's exit status was lost".to_owned(),
    }
}

/// Starts a program that does nothing.
fn start(engine: &EngineProgram, mode: Mode, startup: &Startup) -> Result<session::Running, Error> {
    // Where there is no `true` this program itself serves; it must only end well.
    let (program, args) = match find::find(OsStr::new("true"), None) {
        Ok(program) => (program, vec!["true"]),
        Err(_) => (std::env::current_exe().unwrap_or_else(|_| "clew".into()), vec!["clew", "--version"]),
    };
    let launch = Launch {
        env: startup.env.clone(),
        config: Config { mode, stats: true, sink: TraceSink::Ring, ..Config::default() },
        stdio: [Stdio::Null, Stdio::Null, Stdio::Inherit],
        signals: SignalState::unchanged(),
        ..Launch::new(engine, program, args)
    };
    launch.start()
}
