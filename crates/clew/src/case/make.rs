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
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A guest that is told to end and does not is killed after this.
const GRACE: Duration = Duration::from_secs(2);
const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// Why there is no recording: the exit status; the sentence has been printed.
pub struct Refused(pub i32);

/// Records a command; answers where the recording is. A guest that takes longer than `timeout` is ended.
pub fn record(
    command: &[OsString],
    timeout: Option<Duration>,
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
    match follow(&options, way, &program, &recorder, timeout, startup) {
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
                return Err(refuse("nothing was recorded; is there room on the disk?", status::INTERNAL));
            }
            record::tell_losses(&run, messages);
            meta.status = record::ending(&run);
            record::finish(recorder, &meta, startup, messages);
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
    timeout: Option<Duration>,
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
    if let Some(timeout) = timeout {
        let handle = running.handle();
        std::thread::spawn(move || end_after(timeout, &handle, &has_ended));
    }
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

/// Ends the guest and all that it started when its time is over. They die of a signal that the recording holds, so that a replay ends there too.
fn end_after(timeout: Duration, guest: &Handle, has_ended: &Receiver<()>) {
    use std::sync::mpsc::RecvTimeoutError::Timeout;
    for (wait, signal) in [(timeout, SIGTERM), (GRACE, SIGKILL)] {
        match has_ended.recv_timeout(wait) {
            // It fails only when the guest has gone.
            Err(Timeout) => drop(guest.signal_all(signal)),
            _ => return,
        }
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

/// A flag that Ctrl-C raises. A second one ends the process as usual.
pub fn interruption() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let signal = signal_hook::consts::SIGINT;
    // Without the handlers Ctrl-C ends the process, which is less polite.
    let _ = signal_hook::flag::register_conditional_default(signal, flag.clone());
    let _ = signal_hook::flag::register(signal, flag.clone());
    flag
}

pub fn is_raised(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed)
}
