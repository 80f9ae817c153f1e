//! The failing run of a command, recorded with its output kept away from the terminal.

use super::hopeless::{Ears, Heard, drained};
use super::{Way, is_raised};
use crate::cli::{CpuName, Record};
use crate::message::Messages;
use crate::startup::Startup;
use crate::{find, guest, record, status};
use diagnose::Oracle;
use model::wire::Config;
use session::{Event, Gathering, Handle, Launch, Outcome, Recorder, Run, SignalState, Stdio};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// A guest that is told to end and does not is killed after this.
const GRACE: Duration = Duration::from_secs(2);
/// A program that has written something wrong may go on for a quarter of its time, within these bounds: most end by then.
const LEAST_GRACE: Duration = Duration::from_secs(2);
const MOST_GRACE: Duration = Duration::from_secs(15);
/// How soon an interruption is noticed.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// Why there is no recording: the exit status; the sentence has been printed.
pub struct Refused(pub i32);

/// How long to let the guest run.
pub struct Patience<'a> {
    pub waiting: Waiting,
    /// What it should write, as far as that is known.
    pub expected: Option<&'a Oracle>,
    /// The user does not want to wait: it is ended, and nothing is known about it.
    pub interrupted: &'a Arc<AtomicBool>,
    /// What to do about a program that fails by not ending.
    pub if_it_hangs: &'static str,
}

/// How long somebody waits for a guest to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    Forever,
    /// The user said how long; one that takes longer is ended, and that is how it fails.
    AsTold(Duration),
    /// Nobody said anything: it may take so long, unless it writes what cannot become right any more.
    AtMost(Duration),
}

/// Why a guest was ended that nobody gave a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// It was still running after this.
    Late(Duration),
    /// What it had written was wrong.
    Wrong,
}

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Cut::Late(time) => write!(f, "it was still running after {} s", time.as_secs())?,
            Cut::Wrong => f.write_str("it was still running when its output was wrong already")?,
        }
        f.write_str(" and was ended; --timeout says how long it may take")
    }
}

/// A recording.
pub struct Made {
    pub path: PathBuf,
    /// The guest did not end by itself.
    pub cut: Option<Cut>,
}

/// Records a command; answers where the recording is.
pub fn record(
    command: &[OsString],
    patience: &Patience<'_>,
    way: Way,
    startup: &Startup,
    messages: &Messages,
) -> Result<Made, Refused> {
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
        Ok((run, cut)) => {
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
                let more = if !matches!(patience.waiting, Waiting::AsTold(_)) { patience.if_it_hangs } else { "" };
                let why = format!("interrupted while the program was recorded (kept as {kept}){more}");
                return Err(refuse(&why, status::INTERNAL));
            }
            Ok(Made { path: place, cut })
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
) -> Result<(Run, Option<Cut>), guest::Failed> {
    let ears = Heard::for_oracle(patience.expected);
    let mut running = guest::start_engine(startup, |engine| {
        let mut launch = Launch {
            env: startup.env.clone(),
            config: Config { cpu: options.cpu.into(), dies_with_host: true, ..Config::default() },
            signals: SignalState { blocked: Some(startup.blocked), ..SignalState::unchanged() },
            ..Launch::new(engine, program, options.command.clone())
        };
        if let (Some(out), Some(err)) = (drained(0, ears.clone()), drained(1, ears.clone())) {
            launch.stdio = [Stdio::Inherit, Stdio::Fd(out), Stdio::Fd(err)];
        }
        let seed = if let Way::Seed(seed) = way { Some(seed) } else { None };
        recorder.equip(&mut launch, seed).map_err(guest::Failed::Error)?;
        launch.start().map_err(guest::Failed::Error)
    })?;
    let (ended, has_ended) = channel::<()>();
    let (handle, waiting, interrupted) = (running.handle(), patience.waiting, patience.interrupted.clone());
    let watch = std::thread::spawn(move || end_in_time(waiting, &interrupted, &ears, &handle, &has_ended));
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
    // A watch that panicked ended nothing.
    let cut = watch.join().ok().flatten();
    Ok((gathering.finish(), cut))
}

/// Ends the guest and all that it started when its time is over or nobody waits for it any longer. They die of a signal
/// that the recording holds, so that a replay ends there too. Answers why it was ended, if nobody said how long it may take.
fn end_in_time(
    patience: Waiting,
    interrupted: &AtomicBool,
    ears: &Ears,
    guest: &Handle,
    has_ended: &Receiver<()>,
) -> Option<Cut> {
    use std::sync::mpsc::RecvTimeoutError::Timeout;
    let begun = Instant::now();
    let mut cut = None;
    while !is_raised(interrupted) {
        let left = match patience {
            Waiting::Forever => LOOK_AGAIN,
            Waiting::AsTold(timeout) => timeout.saturating_sub(begun.elapsed()),
            Waiting::AtMost(time) => {
                cut = is_over(time, begun, ears);
                if cut.is_some() { Duration::ZERO } else { LOOK_AGAIN }
            }
        };
        if left.is_zero() {
            break;
        }
        if has_ended.recv_timeout(left.min(LOOK_AGAIN)) != Err(Timeout) {
            return None;
        }
    }
    // A signal fails only when the guest has gone.
    let _ = guest.signal_all(SIGTERM);
    if has_ended.recv_timeout(GRACE) == Err(Timeout) {
        let _ = guest.signal_all(SIGKILL);
    }
    cut
}

/// Is there no reason to let a guest go on that nobody gave a time?
fn is_over(time: Duration, begun: Instant, ears: &Ears) -> Option<Cut> {
    let heard = ears.lock().unwrap_or_else(PoisonError::into_inner);
    let grace = (time / 4).clamp(LEAST_GRACE, MOST_GRACE);
    let is_wrong = heard.wrong_since().is_some_and(|since| since.elapsed() > grace);
    match () {
        _ if heard.is_far_off() || is_wrong => Some(Cut::Wrong),
        _ if begun.elapsed() >= time => Some(Cut::Late(time)),
        _ => None,
    }
}
