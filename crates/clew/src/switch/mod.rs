//! `clew switch`: which branch of the failing program, taken the other way, makes it work?
//!
//! ```text
//! command ─ [make] ─▶ recording ─ `written` ─▶ failing run ─┐
//!                       └─ [code] ─▶ the program's branches ─┴─▶ diagnose::switch over [bench] ─▶ [show]
//! ```

mod bench;
mod code;
mod make;
mod show;

use crate::cli::{Color, Oracle as OracleOptions, Switch as Options};
use crate::guest::{Failed, start_engine};
use crate::home::{self, Opened};
use crate::message::{self, Messages, Paint};
use crate::startup::Startup;
use crate::status;
use crate::written::{self, Written};
use bench::{Bench, Witness};
use code::Code;
use diagnose::{End, Failing, Failure, Judgement, Oracle, Plan, Search, Stream};
use model::log::{Ending, Origin};
use model::serve::{self, Moment, Predicate, Request, TrialLimits, Until};
use recording::{Recording, UnitName};
use session::{Budget, EngineProgram, Replayer, Session};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

pub use bench::{LONGEST_CHECK, run_check};
pub use code::{At, Place};
pub use make::{interruption, is_raised};

/// Executions of branches that are kept, from the last one back.
const KEEP: u32 = 1 << 20;
/// Signals that end a program from outside: SIGHUP, SIGINT, SIGQUIT, SIGKILL, SIGTERM. It was running when they came.
const FROM_OUTSIDE: [u32; 5] = [1, 2, 3, 9, 15];
const SIGABRT: u32 = 6;

/// Why there is no answer: a sentence and our exit status.
#[derive(Debug)]
pub struct Refusal {
    pub message: String,
    pub status: i32,
}

impl Refusal {
    pub fn usage(message: impl Into<String>) -> Refusal {
        Refusal { message: message.into(), status: status::USAGE }
    }

    pub fn internal(message: impl ToString) -> Refusal {
        Refusal { message: message.to_string(), status: status::INTERNAL }
    }
}

/// What was found, with everything that is needed to tell it.
pub struct Answer {
    pub recording: String,
    pub unit: UnitName,
    pub code: Code,
    pub oracle: Oracle,
    pub failing: Failing,
    pub search: Search,
    /// Executions of branches that were candidates, in order.
    pub predicates: Vec<Predicate>,
    /// How many there were in all.
    pub executed: u64,
    pub limits: Vec<String>,
    pub time: Duration,
    /// Time spent in trials.
    pub spent: Duration,
}

/// Searches as the command line says; gives our exit status.
pub fn run(options: &Options, color: Color, startup: &Startup) -> i32 {
    let messages = Messages { paint: Paint::for_stderr(color, startup) };
    match find(options, startup, &messages) {
        Ok(answer) => {
            let paint = Paint::for_stdout(color, startup);
            let hint = format!("to look closer: clew gdb {}\n", answer.recording);
            message::stdout(&match options.json {
                true => show::json(&answer),
                false => show::text(&answer, paint) + &hint,
            });
            if answer.search.critical.is_empty() { status::NO } else { 0 }
        }
        Err(refusal) => {
            // What has been said already has no sentence here.
            if !refusal.message.is_empty() {
                messages.error(&refusal.message);
            }
            refusal.status
        }
    }
}

/// The answer as text.
pub fn tell(answer: &Answer, paint: Paint) -> String {
    show::text(answer, paint)
}

/// Records if need be, and searches.
pub fn find(options: &Options, startup: &Startup, messages: &Messages) -> Result<Answer, Refusal> {
    let oracle = read_oracle(&options.oracle)?;
    let at = options.at.as_ref().map(|text| text.parse::<At>()).transpose().map_err(Refusal::usage)?;
    let interrupted = make::interruption();
    let name = match &options.recording {
        Some(name) => name.clone(),
        None => record_quietly(&options.command, options.oracle.timeout, startup, messages)?,
    };
    let (opened, unit) = home::find(&name, startup).map_err(Refusal::usage)?;
    let quiet = options.quiet || options.json || !rustix::termios::isatty(rustix::stdio::stderr());
    let job = Job { options, opened: &opened, unit, oracle, at, interrupted, quiet };
    let done = start_engine(startup, |engine| Ok(job.run(engine)));
    match done {
        Ok(answer) => answer,
        Err(Failed::Error(e)) => Err(Refusal::internal(e)),
        Err(Failed::Signal(_)) => Err(Refusal { message: String::new(), status: status::INTERNAL }),
    }
}

/// Records a command with its output kept away from the terminal; answers the recording's name.
pub fn record_quietly(
    command: &[std::ffi::OsString],
    timeout: Option<Duration>,
    startup: &Startup,
    messages: &Messages,
) -> Result<String, Refusal> {
    let made = make::record(command, timeout, startup, messages);
    let path = made.map_err(|make::Refused(status)| Refusal { message: String::new(), status })?;
    Ok(path.to_string_lossy().into_owned())
}

pub fn read_oracle(options: &OracleOptions) -> Result<Oracle, Refusal> {
    let read = |path: &Option<std::path::PathBuf>| {
        let read = |path: &std::path::PathBuf| {
            std::fs::read(path)
                .map_err(|e| Refusal::usage(format!("the expected output {} cannot be read: {e}", path.display())))
        };
        path.as_ref().map(read).transpose()
    };
    Ok(Oracle {
        stdout: read(&options.expect)?,
        stderr: read(&options.expect_stderr)?,
        both: read(&options.expect_both)?,
        exit: options.expect_exit.map(u32::from),
        check: options.check.is_some(),
    })
}

/// One search.
struct Job<'a> {
    options: &'a Options,
    opened: &'a Opened,
    unit: Option<UnitName>,
    oracle: Oracle,
    at: Option<At>,
    interrupted: Arc<AtomicBool>,
    quiet: bool,
}

impl Job<'_> {
    fn run(&self, engine: &EngineProgram) -> Result<Answer, Refusal> {
        let begun = Instant::now();
        let recording = &self.opened.recording;
        let replayer = Replayer { engine, recording };
        let (written, differences) = Written::gather(&replayer).map_err(Refusal::internal)?;
        if let Some(difference) = differences.first() {
            return Err(Refusal::internal(format!("the recording cannot be searched: {difference}")));
        }
        let (unit, failing) = self.choose(&written)?;
        let mut limits = self.known_limits(unit);
        let mut session = Session::open(&replayer, &unit).map_err(Refusal::internal)?;
        let code =
            Code::find(recording, &unit, &session.maps().map_err(Refusal::internal)?).map_err(Refusal::internal)?;
        let ranges = match &self.at {
            Some(at) => code.ranges_of(&at.place).map_err(Refusal::usage)?,
            None => code.ranges.clone(),
        };
        let ranges = Ranges { list: ranges, begins: written.begins(unit) };
        let rounds = if failing.failure == Failure::Hang { hang_rounds(&written, unit) } else { vec![None] };
        let (mut predicates, mut executed) = self.predicates(&mut session, &ranges, rounds[0], &mut limits)?;
        let witness = self.witness(&mut session, &failing, &predicates, unit);
        let mut bench = Bench {
            session,
            written: &written,
            unit,
            budget: self.budget(&failing, unit, rounds[0], &mut limits),
            until: begun + self.options.budget,
            interrupted: self.interrupted.clone(),
            script: self.options.oracle.check.as_deref(),
            witness,
            spent: Duration::ZERO,
        };
        let place = self.at.is_some();
        let plan = Plan { all: self.options.all || place, tell: place, ..Plan::default() };
        let mut search = Search::default();
        for (n, round) in rounds.iter().enumerate() {
            let tried = if n == 0 { None } else { predicates.last().map(|p| p.moment) };
            if n > 0 {
                (predicates, executed) = self.predicates(&mut bench.session, &ranges, *round, &mut limits)?;
            }
            let new = tried.map_or(0, |t| predicates.partition_point(|p| p.moment <= t));
            let mut progress = |s: &Search| self.tell(s, predicates.len());
            let found = diagnose::switch(&mut bench, &predicates[new..], &failing, &self.oracle, &plan, &mut progress);
            search.absorb(found.map_err(Refusal::internal)?);
            if search.stopped.is_some() || !plan.all && !search.critical.is_empty() {
                break;
            }
        }
        if !self.quiet {
            message::stderr("\r\x1b[K");
        }
        let (spent, oracle, recording) = (bench.spent, self.oracle.clone(), self.name());
        let time = begun.elapsed();
        Ok(Answer { recording, unit, code, oracle, failing, search, predicates, executed, limits, time, spent })
    }

    /// How people write the recording.
    fn name(&self) -> String {
        let path = &self.opened.source;
        path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned())
    }

    fn tell(&self, search: &Search, candidates: usize) {
        if !self.quiet {
            let found = search.critical.len();
            message::stderr(&format!("\rclew: {} of {candidates} branches tried, {found} found\x1b[K", search.tried));
        }
    }

    /// The process to look at, and its failing run.
    fn choose(&self, written: &Written) -> Result<(UnitName, Failing), Refusal> {
        let recording = &self.opened.recording;
        let main = main_unit(recording).ok_or_else(|| Refusal::usage("nothing was recorded"))?;
        let crashed = || {
            let died = |u: &&recording::Unit| u.end.as_ref().is_some_and(|e| e.ending == Ending::Signaled);
            let outside = |u: &&recording::Unit| u.end.as_ref().is_some_and(|e| FROM_OUTSIDE.contains(&e.status));
            recording.units().iter().filter(died).find(|u| !outside(u)).map(|u| u.name)
        };
        let until = Instant::now() + self.options.budget;
        let judge = |unit: UnitName| {
            let run = written::recorded(written, ended(recording, unit));
            let script = self.options.oracle.check.as_deref();
            let mut check =
                |r: &diagnose::Run| script.is_none_or(|s| bench::run_check(s, &r.stream(Stream::Stdout), until));
            match self.oracle.judge(&run, &mut check) {
                Judgement::Fails(failure) => Some(Failing { run, failure }),
                Judgement::Passes => None,
            }
        };
        if let Some(unit) = self.unit {
            let failing = judge(unit).ok_or_else(|| self.passes(recording, unit))?;
            return Ok((unit, failing));
        }
        let of_main = judge(main);
        let wrote = |failing: &Failing| match &failing.failure {
            Failure::WrongByte { stream, offset, .. } | Failure::Extra { stream, offset, .. } => {
                written.writer(numbers(*stream), *offset)
            }
            _ => None,
        };
        match of_main {
            Some(failing) if failing.hides_behind_its_end() => Ok((main, failing)),
            other => {
                let unit = crashed().or_else(|| other.as_ref().and_then(wrote)).unwrap_or(main);
                let failing = judge(unit).or(other).ok_or_else(|| self.passes(recording, main))?;
                Ok((unit, failing))
            }
        }
    }

    fn passes(&self, recording: &Recording, unit: UnitName) -> Refusal {
        let end = ended(recording, unit);
        let more = match self.oracle.is_empty() {
            true => "; say what it should have done, for example with --expect FILE or --expect-exit N",
            false => "",
        };
        Refusal::usage(format!("the program passes: {end}, and nothing is wrong with it{more}"))
    }

    fn known_limits(&self, unit: UnitName) -> Vec<String> {
        let recording = &self.opened.recording;
        let mut limits = Vec::new();
        if let Ok(unit) = recording.unit(&unit) {
            limits.extend(unit.inexact.iter().map(|(n, why)| format!("inexact from record {n} on: {why}")));
        }
        if recording.units().len() > 1 {
            let others = recording.units().len() - 1;
            limits.push(format!(
                "of {} processes, {unit} is searched; the {others} others are taken to do what they did",
                others + 1
            ));
        }
        limits
    }

    /// The executions of branches to try, of the whole run or up to a tick, and how many there were.
    fn predicates(
        &self,
        session: &mut Session,
        ranges: &Ranges,
        tick: Option<u64>,
        limits: &mut Vec<String>,
    ) -> Result<(Vec<Predicate>, u64), Refusal> {
        // Half of the time is for the trials.
        let until = Instant::now() + self.options.budget / 2;
        let mut cut = false;
        let mut stop = || {
            cut = cut || Instant::now() > until || make::is_raised(&self.interrupted);
            cut
        };
        let (mut list, total) = match tick {
            None => session.predicates(&ranges.list, KEEP, &mut stop),
            Some(tick) => predicates_until(session, &ranges.list, tick, &mut stop),
        }
        .map_err(Refusal::internal)?;
        if cut {
            limits.push("the time ran out while branches were counted: only those until then are candidates".into());
        }
        if total > list.len() as u64 {
            limits.push(format!("of {total} executed branches the last {} are candidates", list.len()));
        }
        list.retain(|p| p.moment.tick >= ranges.begins);
        if let Some(At { instance: Some(n), place }) = &self.at {
            list = match place {
                // The n-th execution of any branch of the line, or of the one there is.
                code::Place::Line(..) => list.get(*n as usize - 1).copied().into_iter().collect(),
                code::Place::Offset(_) => list.into_iter().filter(|p| p.instance == *n).collect(),
            };
        }
        if let Some(at) = self.options.at.as_ref().filter(|_| list.is_empty()) {
            return Err(Refusal::usage(format!("no branch of {at} was executed, or not that often")));
        }
        Ok((list, total))
    }

    /// Where the recorded run failed: the instruction that died or, of a program that ended itself, the last branch of its
    /// own before that.
    fn witness(
        &self,
        session: &mut Session,
        failing: &Failing,
        predicates: &[Predicate],
        unit: UnitName,
    ) -> Option<Witness> {
        let Failure::Crash { signal, pc } = failing.failure else { return None };
        let end = self.opened.recording.unit(&unit).ok()?.end?;
        let (moment, first) = match signal {
            SIGABRT if self.at.is_some() => return None,
            SIGABRT => predicates.last().map(|p| (p.moment, p.instance == 1))?,
            _ => (Moment { tick: end.tick, pc }, false),
        };
        session.seek(moment, &mut || false).ok()?;
        let stack = session.registers(session.place().thread).ok()?.gpr[4];
        let first = first || signal != SIGABRT && session.count(&[pc], &mut || false).ok()?.1 <= 1;
        Some(Witness { pc: moment.pc, stack, first })
    }

    fn budget(&self, failing: &Failing, unit: UnitName, hangs_at: Option<u64>, limits: &mut Vec<String>) -> Budget {
        let recorded = self.opened.recording.unit(&unit).ok().and_then(|u| u.end).map_or(0, |e| e.tick);
        let ticks = match failing.failure {
            // The recorded run was cut, and most trials will hang as it did.
            Failure::Hang => {
                let ticks = hangs_at.unwrap_or(recorded).saturating_mul(4).clamp(2_000_000, 50_000_000);
                limits.push(format!("a trial that takes more than {ticks} ticks is taken to hang"));
                ticks
            }
            _ => recorded.saturating_mul(10).clamp(2_000_000, 500_000_000),
        };
        let base = Budget::default();
        let limits = TrialLimits { ticks, ..base.limits };
        Budget { limits, wall: Duration::from_secs(20), jobs: self.options.jobs.unwrap_or(base.jobs).max(1) }
    }
}

/// Addresses of the code to look at, and the tick at which the unit begins.
struct Ranges {
    list: Vec<(u64, u64)>,
    begins: u64,
}

/// A program that hangs in a loop has executed the same few branches again and again since. Where the loop begins is not
/// known, but not before the last system call: the search begins shortly behind it, and goes further if it must.
fn hang_rounds(written: &Written, unit: UnitName) -> Vec<Option<u64>> {
    let last = written.last_call(unit);
    (0..8).map(|n| Some(last + (64 << (2 * n)))).chain([None]).collect()
}

/// As [`Session::predicates`], up to a tick.
fn predicates_until(
    session: &mut Session,
    ranges: &[(u64, u64)],
    tick: u64,
    stop: &mut dyn FnMut() -> bool,
) -> Result<(Vec<Predicate>, u64), session::Error> {
    session.seek_start()?;
    let live = session.copy()?;
    live.ask(&Request::Predicates { ranges: ranges.to_vec(), keep: KEEP })?;
    let until = Until { moment: Some(Moment { tick, pc: 0 }), ..Until::default() };
    live.ask_long(&Request::Run(until), stop)?;
    let mut all = Vec::new();
    loop {
        match live.ask(&Request::PredicateList { from: all.len() as u32 })? {
            serve::Answer::Predicates { list, .. } if !list.is_empty() => all.extend(list),
            serve::Answer::Predicates { total, .. } => return Ok((all, total)),
            _ => return Ok((all, 0)),
        }
    }
}

fn numbers(stream: Stream) -> &'static [u8] {
    match stream {
        Stream::Stdout => &[1],
        Stream::Stderr => &[2],
        Stream::Both => &[1, 2],
    }
}

/// The last image of the process that the recorder started.
pub fn main_unit(recording: &Recording) -> Option<UnitName> {
    let first = recording.units().iter().find(|u| u.start.origin == Origin::First)?;
    recording.units().iter().map(|u| u.name).filter(|n| n.pid == first.name.pid).max()
}

/// How a unit ended. One without an end was running when the recording was stopped.
fn ended(recording: &Recording, unit: UnitName) -> End {
    let Some(end) = recording.unit(&unit).ok().and_then(|u| u.end) else { return End::StillRunning };
    match end.ending {
        Ending::Signaled if FROM_OUTSIDE.contains(&end.status) => End::StillRunning,
        Ending::Signaled => End::Signaled { signal: end.status, pc: end.pc },
        Ending::Exited => End::Exited(end.status),
        Ending::Replaced | Ending::DiskFull | Ending::Left => End::StillRunning,
    }
}

/// A short way to write a path.
fn shown(path: &Path) -> String {
    path.display().to_string()
}
