//! A case: a failing run, recorded, with all that is needed to try changes of it.
//!
//! ```text
//! command ─ [make], [again] ─▶ recording ─ `written` ─▶ what it wrote ─ [choose] ─▶ Case ─ [branches] ─▶ candidates
//!                                                                           └─ [bench] ─▶ trials
//! ```

mod again;
mod bench;
pub mod branches;
mod check;
mod choose;
mod code;
mod hang;
mod hopeless;
pub mod input;
mod interrupt;
pub mod left;
mod make;
mod reference;
mod refusal;
pub mod words;

use crate::cli::{InputBytes, Oracle as OracleOptions, Source};
use crate::guest::{Failed, start_engine};
use crate::home::{self, Opened};
use crate::message::Messages;
use crate::startup::Startup;
use crate::status;
use crate::written::Written;
use diagnose::{End, ExpectedFile, Failing, Failure, Oracle};
use model::serve::{Moment, TrialLimits};
use recording::UnitName;
use session::{Budget, EngineProgram, Replayer, Session};
use std::io::Read;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

pub use again::{Way, until_it_fails};
pub use bench::{Bench, Witness, alteration};
pub use branches::Branches;
pub use check::{LONGEST as LONGEST_CHECK, run_check, run_check_of, works as check_works};
pub use choose::{is_from_outside, main_unit, numbers};
pub use code::{At, Code, Place, Where};
pub use hang::{Onset, is_in_call};
pub use interrupt::{interruption, is_raised};
pub use left::Left;
pub use make::{Cut, Made, Patience, Waiting};
pub use refusal::Refusal;

const SIGABRT: u32 = 6;
/// A program that nobody gave a time may take at least so long to record, however short the search is to be.
const LEAST_RECORDING: Duration = Duration::from_secs(5);
/// No trial is given up before.
const LEAST_WALL: Duration = Duration::from_secs(2);
/// Branches that other threads executed while one was dying, at most, as far as they are looked through.
const OTHERS_WENT_ON: usize = 32;

/// What the user asks, as all verbs that search are asked.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    pub oracle: &'a OracleOptions,
    pub recording: Option<&'a str>,
    pub command: &'a [std::ffi::OsString],
    pub budget: Duration,
    pub jobs: Option<usize>,
    /// Of all input only these bytes count.
    pub input: Option<&'a InputBytes>,
    /// The bytes of this input that make the difference are to be found first.
    pub isolate: Option<&'a Source>,
    /// Nothing is to be told but the answer.
    pub quiet: bool,
}

impl<'a> Ask<'a> {
    pub fn of(options: &'a crate::cli::Search) -> Ask<'a> {
        Ask {
            oracle: &options.oracle,
            recording: options.recording.as_deref(),
            command: &options.command,
            budget: options.budget,
            jobs: options.jobs.map(NonZeroUsize::get),
            input: options.input_bytes.as_ref(),
            isolate: options.isolate.as_ref(),
            quiet: options.quiet || options.json,
        }
    }
}

/// What is needed to search: the recording, and what "works" means.
pub struct Ready<'a> {
    ask: Ask<'a>,
    way: Way,
    /// Why the run that was recorded did not end by itself, if nobody said how long it may take.
    cut: Option<Cut>,
    opened: Opened,
    named: Option<UnitName>,
    wanted: Oracle,
    pub interrupted: Arc<AtomicBool>,
    /// No progress is told.
    pub quiet: bool,
}

impl<'a> Ready<'a> {
    /// Reads what is expected, and records if need be.
    pub fn make(ask: Ask<'a>, way: Way, startup: &Startup, messages: &Messages) -> Result<Ready<'a>, Refusal> {
        let wanted = read_oracle(ask.oracle, ask.command, ask.budget)?;
        let interrupted = interruption(startup);
        let mut cut = None;
        let name = match ask.recording {
            Some(name) => name.to_owned(),
            None => {
                let at_most = Waiting::AtMost(ask.budget.max(LEAST_RECORDING));
                let patience = Patience {
                    waiting: ask.oracle.ends_after().map_or(at_most, Waiting::AsTold),
                    expected: Some(&wanted),
                    interrupted: &interrupted,
                    if_it_hangs: "; if it fails by not ending, say --timeout TIME",
                };
                let made = record_quietly(ask.command, &patience, way, startup, messages)?;
                cut = made.cut;
                made.path.to_string_lossy().into_owned()
            }
        };
        let (opened, named) = home::find(&name, startup).map_err(Refusal::usage)?;
        let quiet = ask.quiet || !rustix::termios::isatty(rustix::stdio::stderr());
        Ok(Ready { ask, way, cut, opened, named, wanted, interrupted, quiet })
    }

    /// Starts the engine and searches.
    pub fn search<T>(
        &self,
        startup: &Startup,
        search: impl Fn(&EngineProgram) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        match start_engine(startup, |engine| Ok(search(engine))) {
            Ok(answer) => answer,
            Err(Failed::Error(e)) => Err(Refusal::internal(e)),
            Err(Failed::Signal(_)) => Err(Refusal::said(status::INTERNAL)),
        }
    }
}

/// The failing run.
pub struct Case<'a> {
    pub opened: &'a Opened,
    pub written: Written,
    pub left: Left,
    pub unit: UnitName,
    pub failing: Failing,
    /// What "works" means for the process that is searched.
    pub oracle: Oracle,
    /// The process is a step that failed, but that it succeeds may not be all that the user asked for.
    is_step_of_more: bool,
    pub code: Code,
    /// Since when it hangs, if it does.
    pub onset: Onset,
    /// The user's own check.
    pub script: Option<&'a str>,
    /// Of all input only these bytes count.
    pub input: Option<&'a InputBytes>,
    pub interrupted: Arc<AtomicBool>,
    pub begun: Instant,
    pub until: Instant,
    jobs: Option<usize>,
    /// How long the whole run takes in replay.
    replay: Duration,
    way: Way,
    cut: Option<Cut>,
}

impl<'a> Case<'a> {
    /// Opens a recording, finds out what is wrong with it, and in which process; a session on that one comes with it.
    pub fn open(ready: &'a Ready<'_>, engine: &EngineProgram) -> Result<(Case<'a>, Session), Refusal> {
        let (ask, opened) = (&ready.ask, &ready.opened);
        let begun = Instant::now();
        let oracle = ready.wanted.clone();
        let recording = &opened.recording;
        let replayer = Replayer { engine, recording };
        let (written, differences) = Written::gather(&replayer).map_err(Refusal::internal)?;
        let replay = begun.elapsed();
        if let Some(difference) = differences.first() {
            return Err(Refusal::internal(format!("the recording cannot be searched: {difference}")));
        }
        let left = Left::gather(&replayer, &ask.oracle.expect_file)?;
        let chooser = choose::Chooser { ask, recording, oracle: &oracle, written: &written, left: &left };
        let choose::Chosen { unit, failing, step } = chooser.choose(ready.named)?;
        let is_step_of_more = step.as_ref().is_some_and(|step| !step.is_all);
        let oracle = step.map_or(oracle, |step| step.oracle);
        let mut session = Session::open(&replayer, &unit).map_err(Refusal::internal)?;
        session.want_files(left.wanted());
        let maps = session.maps().map_err(Refusal::internal)?;
        let code = Code::find(recording, &unit, &maps).map_err(Refusal::internal)?;
        let until = begun + ask.budget * 2 / 3;
        let mut stop = || Instant::now() > until || is_raised(&ready.interrupted);
        let onset = Onset::find(&failing.failure, &mut session, written.last_call(unit), &mut stop);
        let case = Case {
            opened,
            written,
            left,
            unit,
            failing,
            oracle,
            is_step_of_more,
            code,
            onset,
            script: ask.oracle.check.as_deref(),
            input: ask.input,
            interrupted: ready.interrupted.clone(),
            begun,
            until: begun + ask.budget,
            jobs: ask.jobs,
            replay,
            way: ready.way,
            cut: ready.cut,
        };
        Ok((case, session))
    }

    /// The number of a file that is not as expected, among those that were named.
    pub fn file_number(&self, name: &str) -> Option<usize> {
        self.oracle.files.iter().position(|f| f.name == name)
    }

    /// How people write the recording.
    pub fn name(&self) -> String {
        let path = &self.opened.source;
        path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned())
    }

    /// What was recorded, as far as that is text.
    pub fn command(&self) -> Vec<String> {
        self.opened.recording.meta().command.iter().map(|w| w.to_string_lossy().into_owned()).collect()
    }

    /// Whom a sentence is about: the program, or the process among several that is searched.
    pub fn subject(&self) -> String {
        let recording = &self.opened.recording;
        match recording.unit(&self.unit).ok().filter(|_| choose::main_unit(recording) != Some(self.unit)) {
            Some(unit) if !unit.start.exe.is_empty() => {
                let name = unit.start.exe.rsplit('/').next().unwrap_or_default();
                format!("{name} (process {})", self.unit)
            }
            Some(_) => format!("process {}", self.unit),
            None => "the program".into(),
        }
    }

    /// Says of a failure that one process among several is meant, if so.
    pub fn with_subject(&self, failure: String) -> String {
        match self.subject() {
            subject if subject == "the program" => failure,
            subject => format!("{failure}, in {subject}"),
        }
    }

    /// Why no change of this process is proved to repair a run that hangs: another one waits for it, and would go on.
    /// Nor where more may be asked for than that a step succeeds.
    pub fn waits_for_others(&self) -> Option<&'static str> {
        let is_other = choose::main_unit(&self.opened.recording) != Some(self.unit);
        let is_waited_for = is_other && self.failing.failure == Failure::Hang;
        (is_waited_for || self.is_step_of_more).then_some(
            "the process that waits for this one did not go on in the trial: what it would do then is not known",
        )
    }

    /// Who wrote the first wrong byte, if that is not the process that is searched: the user named another one.
    pub fn other_writer(&self) -> Option<UnitName> {
        let (Failure::WrongByte { stream, offset, .. } | Failure::Extra { stream, offset, .. }) = &self.failing.failure
        else {
            return None;
        };
        self.written.writer(numbers(*stream), *offset).filter(|unit| *unit != self.unit)
    }

    /// What is known to be left out before anything is searched.
    pub fn known_limits(&self) -> Vec<String> {
        let recording = &self.opened.recording;
        let unit = self.unit;
        let mut limits: Vec<String> = self.way.remark().into_iter().collect();
        limits.extend(self.cut.map(|cut| cut.to_string()));
        limits.extend(self.other_writer().map(|other| {
            format!(
                "the wrong byte was written by process {other}: dependences are followed from what {unit} wrote last, \
                 and what others would have made of other output of it is not known, so few changes can be proved"
            )
        }));
        if self.is_step_of_more {
            limits.push(format!("process {unit} is a step that failed: it is judged by its exit status alone"));
        }
        limits.extend(self.script_that_ran());
        limits.extend(self.input.map(|bytes| format!("of all input only {bytes} counts")));
        if let Ok(unit) = recording.unit(&unit) {
            limits.extend(unit.missing().map(|m| m.to_string()));
            limits.extend(unit.inexact.iter().map(|(n, why)| format!("inexact from record {n} on: {why}")));
        }
        if recording.units().len() > 1 {
            let others = recording.units().len() - 1;
            let rest = match others {
                1 => "the other one is taken to do what it did".to_owned(),
                n => format!("the {n} others are taken to do what they did"),
            };
            limits.push(format!("of {} processes, {unit} is searched; {rest}", others + 1));
        }
        limits
    }

    /// What is searched may be the interpreter of a script that was started.
    fn script_that_ran(&self) -> Option<String> {
        let meta = self.opened.recording.meta();
        let script = Path::new(meta.command.first()?);
        let is_first = choose::main_unit(&self.opened.recording) == Some(self.unit);
        let mut mark = [0; 2];
        let mut file = std::fs::File::open(meta.cwd.join(script)).ok().filter(|_| is_first)?;
        file.read_exact(&mut mark).ok()?;
        let exe = &self.opened.recording.unit(&self.unit).ok()?.start.exe;
        (mark == *b"#!").then(|| {
            let script = script.display();
            format!("{script} is a script: causes are in {exe}, which ran it, and say little about its own lines")
        })
    }

    /// Trials of this run. A run that hangs is known to do so since `hangs_at`.
    pub fn bench(&self, session: Session, hangs_at: Option<Moment>, witness: Option<Witness>) -> Bench<'_> {
        Bench {
            session,
            written: &self.written,
            left: &self.left,
            oracle: &self.oracle,
            unit: self.unit,
            budget: self.budget(hangs_at),
            until: self.until,
            interrupted: self.interrupted.clone(),
            script: self.script,
            witness,
            hangs: self.failing.run.end == End::StillRunning,
            spent: Duration::ZERO,
        }
    }

    fn budget(&self, hangs_at: Option<Moment>) -> Budget {
        let recorded = self.opened.recording.unit(&self.unit).ok().and_then(|u| u.end).map_or(0, |e| e.tick);
        let ticks = match self.failing.failure {
            // The recorded run was cut, and most trials will hang as it did.
            _ if self.failing.run.end == End::StillRunning => {
                hangs_at.map_or(recorded, |m| m.tick).saturating_mul(4).clamp(2_000_000, 50_000_000)
            }
            // Whatever is changed early must be able to reach the end.
            _ => recorded.saturating_mul(10).min(500_000_000).max(recorded.saturating_mul(2)).max(2_000_000),
        };
        let base = Budget::default();
        let output = base.limits.output.max(2 * self.written.len() as u64);
        let limits = TrialLimits { ticks, output, ..base.limits };
        // Only for what ticks do not count, such as one endless system call.
        let wall = (LEAST_WALL + 10 * self.replay).min(base.wall.max(4 * self.replay));
        Budget { limits, wall, jobs: self.jobs.unwrap_or(base.jobs).max(1) }
    }

    /// Where the recorded run failed: the instruction that died or, of a program that ended itself, the last branch of its
    /// own before that.
    pub fn witness(&self, session: &mut Session, branches: &Branches) -> Option<Witness> {
        let Failure::Crash { signal, pc } = self.failing.failure else { return None };
        let end = self.opened.recording.unit(&self.unit).ok()?.end?;
        let moment = match signal {
            SIGABRT => {
                let thread = thread_at(session, Moment { tick: end.tick, pc })?;
                let mut last = branches.list.iter().rev().take(OTHERS_WENT_ON);
                last.find(|p| thread_at(session, p.moment) == Some(thread))?.moment
            }
            _ => Moment { tick: end.tick, pc },
        };
        session.seek(moment, &mut || false).ok()?;
        let stack = session.registers(session.place().thread).ok()?.gpr[4];
        let once = session.count(&[moment.pc], &mut || false).ok()?.all <= 1;
        Some(Witness { pc: moment.pc, stack, once })
    }
}

/// The thread that runs at a moment.
fn thread_at(session: &mut Session, moment: Moment) -> Option<u32> {
    session.seek(moment, &mut || false).ok()?;
    Some(session.place().thread)
}

/// Records a command with its output kept away from the terminal.
pub fn record_quietly(
    command: &[std::ffi::OsString],
    patience: &Patience<'_>,
    way: Way,
    startup: &Startup,
    messages: &Messages,
) -> Result<Made, Refusal> {
    let made = make::record(command, patience, way, startup, messages);
    made.map_err(|make::Refused(status)| Refusal::said(status))
}

/// What the options say "works" means; `command` is what fails, and a reference may take so long if nobody says how long.
pub fn read_oracle(
    options: &OracleOptions,
    command: &[std::ffi::OsString],
    budget: Duration,
) -> Result<Oracle, Refusal> {
    let read = |path: &Option<std::path::PathBuf>| {
        let read = |path: &std::path::PathBuf| {
            std::fs::read(path)
                .map_err(|e| Refusal::usage(format!("the expected output {} cannot be read: {e}", path.display())))
        };
        path.as_ref().map(read).transpose()
    };
    let mut oracle = Oracle {
        stdout: read(&options.expect)?,
        stderr: read(&options.expect_stderr)?,
        both: read(&options.expect_both)?,
        files: expected_files(options)?,
        exit: options.expect_exit.map(u32::from),
        alive: options.alive.is_some(),
        check: options.check.is_some(),
    };
    if let Some(program) = &options.reference {
        let right = reference::run(program, command, options.timeout.unwrap_or(budget))?;
        oracle.stdout.get_or_insert(right.stdout);
        oracle.exit.get_or_insert(right.exit);
    }
    Ok(oracle)
}

/// What files are to hold.
fn expected_files(options: &OracleOptions) -> Result<Vec<ExpectedFile>, Refusal> {
    let read = |(path, file): &(std::path::PathBuf, std::path::PathBuf)| {
        let contents = std::fs::read(file).map_err(|e| {
            Refusal::usage(format!("what {} should hold, {}, cannot be read: {e}", path.display(), file.display()))
        })?;
        Ok(ExpectedFile { name: path.display().to_string(), contents })
    };
    options.expect_file.iter().map(read).collect()
}
