//! One run of the program on an input, under the engine: what it wrote, how it ended, and where it died.
//!
//! The engine is what tells where a crash happened; nothing is recorded. Each run has a process group of its own, so that
//! Ctrl-C is ours, and what is left of it when its first process has ended is killed.
//!
//! May miss: processes that left the group, as servers in the background do, go on; they end with this process.

use super::given::Given;
use super::place::CrashPlace;
use crate::case::is_raised;
use crate::startup::Startup;
use diagnose::{End, Run, Stop};
use model::wire::Config;
use rustix::process::{Pid, Signal, kill_process_group};
use session::{EngineProgram, Event, Gathering, Launch, Outcome, Running, SignalState, Stdio};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often it is looked whether the user wants an end.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// What is still to be read when a program has ended comes within this time.
const DRAIN: Duration = Duration::from_secs(1);
/// Of what a program writes, at most so much is kept.
const MOST_OUTPUT: usize = 16 << 20;

type Written = Arc<Mutex<Vec<diagnose::Piece>>>;

/// What is the same for all runs.
pub struct Runner<'a> {
    pub engine: &'a EngineProgram,
    pub program: &'a Path,
    pub given: &'a Given,
    pub startup: &'a Startup,
    /// Inputs are put below it.
    pub folder: &'a Path,
    /// A run that takes longer is ended.
    pub limit: Duration,
    pub until: Instant,
    pub interrupted: Arc<AtomicBool>,
}

/// A finished run.
pub struct Ran {
    pub run: Run,
    pub place: Option<CrashPlace>,
    /// The file with its input.
    pub input: PathBuf,
}

/// Why there is none.
pub enum NoRun {
    /// The time is over, or the user wants an end.
    Stopped,
    /// The engine could not be started.
    Engine(session::Error),
    /// The program cannot be run, or not be followed.
    Program(String),
    /// Our own part failed.
    Ours(String),
}

impl Runner<'_> {
    /// Runs it on an input; runs in different slots do not disturb each other.
    pub fn run(&self, slot: usize, bytes: &[u8]) -> Result<Ran, NoRun> {
        // Names are equally long: what a program does may depend on that.
        let folder = self.folder.join(format!("{slot:03}"));
        let ours =
            |e: std::io::Error| NoRun::Ours(format!("an input cannot be written below {}: {e}", folder.display()));
        let input = self.given.put(&folder, bytes).map_err(ours)?;
        let stdin = self.given.stdin(&input).map_err(ours)?;
        let written = Written::default();
        let (reading, are_read) = channel();
        let mut launch = Launch {
            env: self.startup.env.clone(),
            config: Config { dies_with_host: true, ..Config::default() },
            signals: SignalState { blocked: Some(self.startup.blocked), ..SignalState::unchanged() },
            new_group: true,
            ..Launch::new(self.engine, self.program, self.given.command(&input))
        };
        let streams = [1, 2].map(|stream| captured(stream, &written, reading.clone()));
        drop(reading);
        let [out, err] = streams;
        launch.stdio = [stdin, out.map_err(ours)?, err.map_err(ours)?];
        let running = launch.start().map_err(NoRun::Engine)?;
        let (end, place) = self.follow(running)?;
        drain(&are_read);
        let output = std::mem::take(&mut *written.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(Ran { run: Run { output, end, files: Vec::new() }, place, input })
    }

    /// Is it time to end?
    pub fn stop(&self) -> Option<Stop> {
        match is_raised(&self.interrupted) {
            true => Some(Stop::Interrupted),
            false => (Instant::now() > self.until).then_some(Stop::Time),
        }
    }

    /// Waits for the end of the first process, or ends it.
    fn follow(&self, mut running: Running) -> Result<(End, Option<CrashPlace>), NoRun> {
        let limit = Instant::now() + self.limit;
        let handle = running.handle();
        let group = Pid::from_raw(running.pid() as i32);
        let end_all = || {
            let _ = handle.signal_all(Signal::KILL.as_raw());
            // Nobody of it may be left.
            let _ = group.map(|group| kill_process_group(group, Signal::KILL));
        };
        let mut gathering = Gathering::new(running.pid());
        loop {
            match running.next_within(LOOK_AGAIN) {
                Some(event) => {
                    let last = matches!(event, Event::Ended(_));
                    gathering.take(event);
                    if last {
                        break;
                    }
                }
                None if self.stop().is_some() => {
                    end_all();
                    return Err(NoRun::Stopped);
                }
                None if Instant::now() > limit => {
                    end_all();
                    return Ok((End::StillRunning, None));
                }
                None => {}
            }
        }
        end_all();
        let run = gathering.finish();
        match &run.outcome {
            Outcome::Exited(code) => Ok((End::Exited(*code as u32), None)),
            Outcome::Signaled { signal, crash } => {
                let exe =
                    run.images.iter().rev().find(|i| i.pid == run.pid && !i.exe.is_empty()).map(|i| i.exe.as_str());
                let place = crash.as_ref().map(|crash| CrashPlace::of(crash, exe.unwrap_or_default()));
                let pc = crash.as_ref().map_or(0, |c| c.registers.rip);
                Ok((End::Signaled { signal: *signal as u32, pc }, place))
            }
            Outcome::NotLoaded { message, .. } => Err(NoRun::Program(message.clone())),
            Outcome::Lost { message, .. } => Ok((End::Lost(message.clone()), None)),
            Outcome::EngineFault { message, .. } => {
                Err(NoRun::Ours(format!("the engine is at fault: {message}; please report this")))
            }
            Outcome::Unknown => Ok((End::Lost("its exit status was lost".into()), None)),
        }
    }
}

/// Waits until both streams are read to their ends, but not for processes that keep them open.
fn drain(are_read: &Receiver<()>) {
    let until = Instant::now() + DRAIN;
    loop {
        match are_read.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => return,
            Ok(()) => {}
        }
    }
}

/// A stream that is kept in memory. The sender goes when it has been read to its end.
fn captured(stream: u8, written: &Written, reading: Sender<()>) -> std::io::Result<Stdio> {
    let (mut reader, writer) = std::io::pipe()?;
    let written = written.clone();
    std::thread::spawn(move || {
        let (mut buffer, mut kept) = ([0; 1 << 16], 0);
        while let Ok(n @ 1..) = reader.read(&mut buffer) {
            if kept < MOST_OUTPUT {
                written.lock().unwrap_or_else(PoisonError::into_inner).push((stream, buffer[..n].into()));
                kept += n;
            }
        }
        drop(reading);
    });
    Ok(Stdio::Fd(OwnedFd::from(writer)))
}
