//! Runs a program under Clew and takes down what it shows, what it reports, and its trace.

use crate::native::{OUTPUT_LIMIT, read_at_most};
use crate::{End, Shown, repository, scratch_folder};
use model::Mode;
use model::wire::{Config, TraceSink};
use session::{EngineProgram, Handle, Launch, Outcome, Run, Stdio, Traces};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A finished run under Clew.
#[derive(Clone, Debug)]
pub struct UnderClew {
    /// What the program showed; an error if the engine failed it.
    pub shown: Result<Shown, String>,
    pub run: Run,
}

impl UnderClew {
    /// Runs with an empty environment and no input, to the end or, after `limit`, to a kill.
    pub fn run(program: &Path, args: &[&str], config: Config, limit: Duration) -> UnderClew {
        let launch = launch(program, args, config);
        UnderClew::finish(launch, limit)
    }

    /// The same in trace mode, with the trace of the first process as the reference decoder tells it.
    pub fn trace(
        program: &Path,
        args: &[&str],
        config: Config,
        limit: Duration,
    ) -> (UnderClew, Vec<trace::event::Event>) {
        let config = Config { mode: Mode::Trace, sink: TraceSink::Ring, ..config };
        let events = Arc::new(Mutex::new(Vec::new()));
        let (kept, mut rings) = (events.clone(), 0);
        let mut launch = launch(program, args, config);
        launch.traces = Traces::Events(Box::new(move |_pid| {
            let kept = kept.clone();
            rings += 1;
            let first = rings == 1;
            Box::new(move |event: &trace::event::Event| {
                if first {
                    kept.lock().unwrap_or_else(PoisonError::into_inner).push(*event);
                }
            })
        }));
        let run = UnderClew::finish(launch, limit);
        let events = std::mem::take(&mut *events.lock().unwrap_or_else(PoisonError::into_inner));
        (run, events)
    }

    fn finish(mut launch: Launch<'_>, limit: Duration) -> UnderClew {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe can be made");
        launch.stdio = [Stdio::Null, Stdio::Fd(write), Stdio::Inherit];
        let running = launch.start().unwrap_or_else(|e| panic!("cannot start the engine: {e}"));
        let reader = std::thread::spawn(move || read_at_most(&mut std::fs::File::from(read), OUTPUT_LIMIT));
        let watch = Watch::start(running.handle(), limit);
        let run = running.wait();
        let killed = watch.stop();
        let stdout = reader.join().expect("the reader does not panic");
        let away = killed || stdout.len() >= OUTPUT_LIMIT;
        let shown = end_of(&run.outcome, away).map(|end| Shown { stdout, end });
        UnderClew { shown, run }
    }
}

fn launch<'a>(program: &Path, args: &[&str], config: Config) -> Launch<'a> {
    let whole = std::iter::once(program.as_os_str().to_owned()).chain(args.iter().map(OsString::from));
    let mut launch = Launch::new(engine(), program, whole);
    launch.config = config;
    launch
}

fn end_of(outcome: &Outcome, away: bool) -> Result<End, String> {
    Ok(match outcome {
        Outcome::EngineFault { message, pc } => return Err(format!("engine fault at {pc:#x}: {message}")),
        Outcome::Lost { message, pc } => return Err(format!("lost at {pc:#x}: {message}")),
        Outcome::NotLoaded { status, message } => return Err(format!("not loaded ({status}): {message}")),
        _ if away => End::RanAway,
        Outcome::Exited(code) => End::Exited(*code),
        Outcome::Signaled { signal, .. } => End::Signaled(*signal),
        Outcome::Unknown => return Err("its end is not known".into()),
    })
}

/// Kills a guest that takes too long.
struct Watch {
    done: std::sync::mpsc::Sender<()>,
    thread: JoinHandle<bool>,
}

impl Watch {
    fn start(guest: Handle, limit: Duration) -> Watch {
        let (done, wait) = channel();
        let thread = std::thread::spawn(move || {
            let late = wait.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
            const SIGKILL: i32 = 9;
            // It may end by itself just now, and then was not too late.
            late && guest.signal(SIGKILL).is_ok()
        });
        Watch { done, thread }
    }

    /// Was the guest killed?
    fn stop(self) -> bool {
        // The thread is gone when it has killed the guest.
        let _ = self.done.send(());
        self.thread.join().expect("the watch does not panic")
    }
}

/// The engine, from `CLEW_ENGINE_PATH` or built here once.
pub fn engine() -> &'static EngineProgram {
    static ENGINE: OnceLock<EngineProgram> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let path = std::env::var_os("CLEW_ENGINE_PATH").map_or_else(build_engine, PathBuf::from);
        let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display()));
        let in_memory = EngineProgram::in_memory(&bytes);
        in_memory
            .or_else(|_| EngineProgram::in_folder(&bytes, &scratch_folder("engine")))
            .expect("the engine has a place")
    })
}

fn build_engine() -> PathBuf {
    let target = scratch_folder("engine");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--release", "--quiet", "--manifest-path"]);
    command.arg(repository().join("crates/engine-bin/Cargo.toml")).arg("--target-dir").arg(&target);
    // Flags of the outer build (coverage, sanitizers, lints) would break a freestanding program.
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET", "RUSTC_WORKSPACE_WRAPPER"] {
        command.env_remove(name);
    }
    let status = command.status().unwrap_or_else(|e| panic!("cannot run cargo: {e}"));
    assert!(status.success(), "the engine does not build");
    target.join("release/clew-engine")
}
