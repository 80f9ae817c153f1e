//! The failing run of a command, recorded with its output kept away from the terminal.

use super::Way;
use crate::cli::{CpuName, Record};
use crate::message::Messages;
use crate::startup::Startup;
use crate::{find, guest, record, status};
use model::wire::Config;
use session::{Event, Gathering, Handle, Launch, Outcome, Recorder, Run, SignalState, Stdio};
use std::ffi::OsString;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

/// A guest that is told to end and does not is killed after this.
const GRACE: Duration = Duration::from_secs(2);
/// What is left for telling what was found until SIGTERM came.
const TELLING: Duration = Duration::from_secs(10);
/// How soon an interruption is noticed.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// Why there is no recording: the exit status; the sentence has been printed.
pub struct Refused(pub i32);

/// How long to let the guest run.
pub struct Patience<'a> {
    /// One that takes longer is ended; that is how it fails.
    pub timeout: Option<Duration>,
    /// The user does not want to wait: it is ended, and nothing is known about it.
    pub interrupted: &'a Arc<AtomicBool>,
    /// What to do about a program that fails by not ending.
    pub if_it_hangs: &'static str,
}

/// Records a command; answers where the recording is.
pub fn record(
    command: &[OsString],
    patience: &Patience<'_>,
    way: Way,
    startup: &Startup,
    messages: &Messages,
) -> Result<PathBuf, Refused> {
    let refuse = |message: &str, status: i32| {
        messages.error(message);
        Refused(status)
    };
    let options = Record {
        output: None,
        seed: None,
        from: None,
        to: None,
        chaos: false,
        budget: None,
        oracle: crate::cli::Oracle::default(),
        cpu: if way == Way::Native { CpuName::Native } else { CpuName::V2 },
        quiet: true,
        command: command.to_vec(),
    };
    let name = command.first().ok_or(Refused(status::USAGE))?;
    let program = find::find(name, startup.variable("PATH")).map_err(|why| refuse(&why.message, status::USAGE))?;
    let mut meta = record::describe(&options);
    if let Way::Seed(seed) = way {
        meta.other.push(("chaos".into(), seed.to_string()));
    }
    let recorder = record::prepare(&options, &program, &meta, startup).map_err(|why| refuse(&why, status::INTERNAL))?;
    let place = recorder.folder().path().to_owned();
    match follow(&options, way, &program, &recorder, patience, startup) {
        Err(guest::Failed::Signal(_)) => Err(Refused(status::INTERNAL)),
        Err(guest::Failed::Error(error)) => {
            record::discard(recorder, &meta, startup);
            Err(refuse(&guest::advise(&error, &program), status::INTERNAL))
        }
        Ok(run) => {
            if let Outcome::NotLoaded { message, .. } = &run.outcome {
                record::discard(recorder, &meta, startup);
                return Err(refuse(message, status::USAGE));
            }
            if record::is_empty(recorder.folder()) {
                record::discard(recorder, &meta, startup);
                let why = match is_raised(patience.interrupted) {
                    true => "interrupted before anything was recorded",
                    false => "nothing was recorded; is there room on the disk?",
                };
                return Err(refuse(why, status::INTERNAL));
            }
            record::tell_losses(&run, messages);
            meta.status = record::ending(&run);
            record::finish(recorder, &meta, startup, messages);
            if is_raised(patience.interrupted) {
                let kept = place.file_name().unwrap_or(place.as_os_str()).to_string_lossy();
                let more = if patience.timeout.is_none() { patience.if_it_hangs } else { "" };
                let why = format!("interrupted while the program was recorded (kept as {kept}){more}");
                return Err(refuse(&why, status::INTERNAL));
            }
            Ok(place)
        }
    }
}

/// Runs the guest to its end.
fn follow(
    options: &Record,
    way: Way,
    program: &Path,
    recorder: &Recorder,
    patience: &Patience<'_>,
    startup: &Startup,
) -> Result<Run, guest::Failed> {
    let mut running = guest::start_engine(startup, |engine| {
        let mut launch = Launch {
            env: startup.env.clone(),
            config: Config { cpu: options.cpu.into(), dies_with_host: true, ..Config::default() },
            signals: SignalState { blocked: Some(startup.blocked), ..SignalState::unchanged() },
            ..Launch::new(engine, program, options.command.clone())
        };
        if let (Some(out), Some(err)) = (drained(), drained()) {
            launch.stdio = [Stdio::Inherit, Stdio::Fd(out), Stdio::Fd(err)];
        }
        let seed = if let Way::Seed(seed) = way { Some(seed) } else { None };
        recorder.equip(&mut launch, seed).map_err(guest::Failed::Error)?;
        launch.start().map_err(guest::Failed::Error)
    })?;
    let (ended, has_ended) = channel::<()>();
    let (handle, timeout, interrupted) = (running.handle(), patience.timeout, patience.interrupted.clone());
    std::thread::spawn(move || end_after(timeout, &interrupted, &handle, &has_ended));
    let mut gathering = Gathering::new(running.pid());
    while let Some(event) = running.next() {
        if let Event::Report(packet) = &event {
            recorder.hear(packet);
        }
        let last = matches!(event, Event::Ended(_));
        gathering.take(event);
        if last {
            break;
        }
    }
    drop(ended);
    Ok(gathering.finish())
}

/// Ends the guest and all that it started when its time is over or nobody waits for it any longer. They die of a signal
/// that the recording holds, so that a replay ends there too.
fn end_after(timeout: Option<Duration>, interrupted: &AtomicBool, guest: &Handle, has_ended: &Receiver<()>) {
    use std::sync::mpsc::RecvTimeoutError::Timeout;
    let begun = Instant::now();
    while !is_raised(interrupted) && timeout.is_none_or(|timeout| begun.elapsed() < timeout) {
        let left = timeout.map_or(LOOK_AGAIN, |timeout| timeout.saturating_sub(begun.elapsed()).min(LOOK_AGAIN));
        if has_ended.recv_timeout(left) != Err(Timeout) {
            return;
        }
    }
    // A signal fails only when the guest has gone.
    let _ = guest.signal_all(SIGTERM);
    if has_ended.recv_timeout(GRACE) == Err(Timeout) {
        let _ = guest.signal_all(SIGKILL);
    }
}

/// A pipe whose other end is read and forgotten: what was written is in the recording.
fn drained() -> Option<OwnedFd> {
    let (mut reader, writer) = std::io::pipe().ok()?;
    std::thread::spawn(move || {
        let mut buffer = [0; 1 << 16];
        while reader.read(&mut buffer).is_ok_and(|n| n > 0) {}
    });
    Some(writer.into())
}

/// A flag that Ctrl-C and `kill` raise. A second one ends the process as usual.
pub fn interruption() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // Without the handlers the signal ends the process, which is less polite.
        let _ = signal_hook::flag::register_conditional_default(signal, flag.clone());
        let _ = signal_hook::flag::register(signal, flag.clone());
    }
    end_in_time();
    flag
}

/// Whoever is told to end (`kill`, `timeout`) does so after a while, even if an engine does not answer.
fn end_in_time() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        let (told, signal) = (Arc::new(AtomicBool::new(false)), signal_hook::consts::SIGTERM);
        let _ = signal_hook::flag::register(signal, told.clone());
        std::thread::spawn(move || {
            while !is_raised(&told) {
                std::thread::sleep(LOOK_AGAIN);
            }
            std::thread::sleep(TELLING);
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        });
    });
}

pub fn is_raised(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed)
}
