//! `clew reduce`: the smallest input that fails in the same way, or the closest passing and failing pair.
//!
//! ```text
//! input ─ [given] ─▶ copies ─ [runs] ─▶ what it did ─ [judge] ─▶ passes, fails, unresolved
//!                                                                    └─ diagnose::reduce ─▶ [answer]
//! ```
//! The program really runs, once for each input that is tested, in the user's folder and with the user's rights: only the
//! input is a copy. Whoever wants a run without any effect has `clew switch` and its world.
//!
//! Guarantees: the user's input is only read; copies go away at the end; what was reached is told when the time is over or
//! the user has enough.
//! May miss: failures that do not show with the same input each time; the result is run once more, and the answer says if
//! that comes to something else.

mod ahead;
mod answer;
mod given;
mod judge;
mod place;
mod reference;
mod runs;

use crate::case::{Refusal, check_works, interruption};
use crate::cli::{Color, Reduce as Options, Source};
use crate::guest::{Failed as NoEngine, start_engine};
use crate::message::{self, Messages, Paint};
use crate::scratch::Scratch;
use crate::startup::Startup;
use crate::{find, status};
pub use ahead::isolate_ahead;
use answer::{Answer, Found};
use diagnose::Stop;
use diagnose::reduce::{self, Input, Outcome, Start, Tally, Tested, Tests};
use diagnose::{End, Stream};
use given::Given;
use judge::{Failed, Judge, Judged, Kind};
use reference::Reference;
use runs::{NoRun, Ran, Runner};
use session::EngineProgram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Without a limit of the user's, a run may take so many times as long as the first one did, and at least this.
const TIMES: u32 = 10;
const LEAST: Duration = Duration::from_secs(2);
/// The first run may take so long, whatever the budget.
const FIRST: Duration = Duration::from_secs(10);
/// More runs at the same time than this have no folders.
const MOST_JOBS: usize = 512;

/// Searches as the command line says; gives our exit status.
pub fn run(options: &Options, color: Color, startup: &Startup) -> i32 {
    let messages = Messages { paint: Paint::for_stderr(color, startup) };
    let answer = match find(options, startup) {
        Ok(answer) => answer,
        Err(refusal) => return refusal.tell(&messages),
    };
    if let Err(why) = answer.write(options.output.as_deref()) {
        messages.error(&why);
        return status::USAGE;
    }
    let paint = Paint::for_stdout(color, startup);
    message::stdout(&if options.json { answer.json() } else { answer.text(paint) });
    if answer.is_better() { 0 } else { status::NO }
}

fn find(options: &Options, startup: &Startup) -> Result<Answer, Refusal> {
    check_output(options)?;
    let name = options.command.first().ok_or_else(|| Refusal::usage("which program?"))?;
    let program = find::find(name, startup.variable("PATH")).map_err(|why| Refusal::usage(why.message))?;
    let given = Given::read(&options.input, &options.command)?;
    let good = options.good.as_ref().map(|path| {
        let why = |e| Refusal::usage(format!("the passing input {} cannot be read: {e}", path.display()));
        given::file(path).map_err(why)
    });
    let good = good.transpose()?;
    let scratch = Scratch::new().map_err(Refusal::internal)?;
    let reference = options.oracle.reference.as_deref().map(|path| reference_program(path, startup)).transpose()?;
    let reference = reference.as_deref().map(|program| Reference { program, given: &given });
    let judge = Judge::new(options, reference)?;
    let job = Job { options, startup, program: &program, given: &given, good, folder: scratch.path(), judge: &judge };
    match start_engine(startup, |engine| job.run(engine)) {
        Ok(answer) => answer,
        Err(NoEngine::Error(error)) => Err(Refusal::internal(crate::guest::advise(&error, &program))),
        Err(NoEngine::Signal(_)) => Err(Refusal::said(status::INTERNAL)),
    }
}

fn reference_program(path: &Path, startup: &Startup) -> Result<PathBuf, Refusal> {
    find::find(path.as_os_str(), startup.variable("PATH")).map_err(|why| Refusal::usage(why.message))
}

/// A search takes its time: whether its result can be written is better known before. The input itself stays as it is.
fn check_output(options: &Options) -> Result<(), Refusal> {
    let Some(path) = &options.output else { return Ok(()) };
    let folder = path.parent().filter(|f| !f.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|f| !f.is_dir()) {
        let (path, folder) = (path.display(), folder.display());
        return Err(Refusal::usage(format!("{path} cannot be written: there is no folder {folder}; make it first")));
    }
    // The one that passes is written beside it.
    let written = [Some(path.clone()), options.isolate.then(|| answer::beside(path))];
    let inputs = [if let Source::File(input) = &options.input { Some(input) } else { None }, options.good.as_ref()];
    let same = |other: &Path| written.iter().flatten().any(|path| find::is_same_file(path, other));
    match inputs.into_iter().flatten().any(|input| same(input)) {
        true => Err(Refusal::usage("the input itself is never changed: give --output another name")),
        false => Ok(()),
    }
}

/// One search.
struct Job<'a> {
    options: &'a Options,
    startup: &'a Startup,
    program: &'a Path,
    given: &'a Given,
    good: Option<Vec<u8>>,
    folder: &'a Path,
    judge: &'a Judge<'a>,
}

impl Job<'_> {
    /// Searches; the outer error is that the engine cannot be started.
    fn run(&self, engine: &EngineProgram) -> Result<Result<Answer, Refusal>, NoEngine> {
        let begun = Instant::now();
        let asked = self.options.oracle.ends_after();
        let mut runner = Runner {
            engine,
            program: self.program,
            given: self.given,
            startup: self.startup,
            folder: self.folder,
            limit: asked.unwrap_or_else(|| self.options.budget.max(FIRST)),
            until: begun + self.options.budget.max(FIRST),
            interrupted: interruption(self.startup),
        };
        let failed = match self.first(&runner)? {
            Ok(failed) => failed,
            Err(refusal) => return Ok(Err(refusal)),
        };
        runner.until = begun + self.options.budget;
        runner.limit = asked.unwrap_or_else(|| (begun.elapsed() * TIMES).max(LEAST));
        Ok(self.search(&runner, failed, begun))
    }

    /// The run on the whole input, which must fail.
    fn first(&self, runner: &Runner<'_>) -> Result<Result<Failed, Refusal>, NoEngine> {
        let ran = match runner.run(0, &self.given.bytes) {
            Ok(ran) => ran,
            Err(NoRun::Engine(error)) => return Err(NoEngine::Error(error)),
            Err(NoRun::Program(why)) => return Ok(Err(Refusal::usage(why))),
            Err(NoRun::Ours(why)) => return Ok(Err(Refusal::internal(why))),
            Err(NoRun::Stopped) => return Ok(Err(Job::no_first_run(runner))),
        };
        if ran.run.end == End::StillRunning && runner.stop() == Some(Stop::Interrupted) {
            return Ok(Err(Job::no_first_run(runner)));
        }
        Ok(self.first_failure(&ran))
    }

    fn no_first_run(runner: &Runner<'_>) -> Refusal {
        match runner.stop() {
            Some(Stop::Interrupted) => Refusal::internal("interrupted while the program ran for the first time"),
            _ => does_not_end(),
        }
    }

    fn first_failure(&self, ran: &Ran) -> Result<Failed, Refusal> {
        if let Some(script) = &self.options.oracle.check {
            check_works(script, &ran.run.stream(Stream::Stdout), Some(&ran.input)).map_err(Refusal::usage)?;
        }
        match self.judge.judge(ran) {
            Judged::Fails(failed) => Ok(failed),
            Judged::Nothing(_) if ran.run.end == End::StillRunning => Err(does_not_end()),
            Judged::Nothing(why) => Err(Refusal::usage(format!("nobody can say whether this input fails: {why}"))),
            Judged::Passes => {
                let more = match self.judge.says_anything() {
                    true => "",
                    false if self.options.ahead => {
                        "; say how it fails, for example with --expect-exit 0 or --ref PROGRAM"
                    }
                    false => "; say how it fails, for example with --expect-exit 0, --message TEXT or --ref PROGRAM",
                };
                Err(Refusal::usage(format!("the program passes with this input: {}{more}", ran.run.end)))
            }
        }
    }

    fn search(&self, runner: &Runner<'_>, failed: Failed, begun: Instant) -> Result<Answer, Refusal> {
        let whole = &self.given.bytes;
        let quiet = self.options.quiet || self.options.json || !rustix::termios::isatty(rustix::stdio::stderr());
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let width = self.options.jobs.map_or_else(cores, usize::from).min(MOST_JOBS);
        let mut bench = Bench { runner, judge: self.judge, whole: &failed.kind, width, quiet, fault: None };
        let mut tested = Tested::new(&mut bench);
        let mut limits = Vec::new();
        let found = match self.options.isolate {
            true => self.isolate(&mut tested)?,
            false => {
                let (failing, stopped) = reduce::smallest(&mut tested, whole);
                Found::Smallest { failing, stopped }
            }
        };
        limits.extend(found.limit());
        limits.extend(confirm(&mut tested, &found));
        let tally = tested.tally;
        if !quiet {
            message::stderr("\r\x1b[K");
        }
        if let Some(fault) = bench.fault {
            return Err(Refusal::internal(fault));
        }
        Ok(Answer {
            input: self.options.input.clone(),
            size: whole.len(),
            failure: failed.words,
            found,
            tally,
            limits,
            output: self.options.output.clone(),
            time: begun.elapsed(),
        })
    }

    /// The closest pair, from the passing input that was given or from a part of the failing one.
    fn isolate(&self, tested: &mut Tested<'_>) -> Result<Found, Refusal> {
        let whole = &self.given.bytes;
        let start = match &self.good {
            Some(good) => match tested.one(good) {
                Ok(Outcome::Passes) => Start::Passing(Input::other(good)),
                Ok(Outcome::Fails) => return Err(Refusal::usage("the input that --good names fails in the same way")),
                Ok(Outcome::Unresolved) => {
                    return Err(Refusal::usage("the input that --good names does not pass: it fails in another way"));
                }
                Err(stop) => return Ok(Found::Nothing { stopped: Some(stop), empty_fails: false }),
            },
            None => match reduce::passing_part(tested, whole) {
                Ok(start) => start,
                Err(stop) => return Ok(Found::Nothing { stopped: Some(stop), empty_fails: false }),
            },
        };
        Ok(match start {
            Start::Passing(passing) => Found::Pair(reduce::isolate(tested, passing, whole)),
            Start::EmptyFails => Found::Nothing { stopped: None, empty_fails: true },
            Start::Nothing => Found::Nothing { stopped: None, empty_fails: false },
        })
    }
}

fn does_not_end() -> Refusal {
    Refusal::usage("the program does not end with this input; if that is the failure, say --timeout TIME")
}

/// Runs what was found once more; says if that comes to something else.
fn confirm(tested: &mut Tested<'_>, found: &Found) -> Option<String> {
    let checks: Vec<(&Input, Outcome)> = match found {
        Found::Smallest { failing, .. } => vec![(failing, Outcome::Fails)],
        Found::Pair(pair) => vec![(&pair.failing, Outcome::Fails), (&pair.passing, Outcome::Passes)],
        Found::Nothing { .. } => Vec::new(),
    };
    // Where there is no time for it nothing is said.
    let differs = |(input, expected): (&Input, Outcome)| tested.again(&input.bytes).is_ok_and(|now| now != expected);
    checks.into_iter().any(differs).then(|| {
        "the same input comes to something else when it is run again: the failure does not depend on the input alone".into()
    })
}

/// Runs of the program, as the search wants them.
struct Bench<'a> {
    runner: &'a Runner<'a>,
    judge: &'a Judge<'a>,
    /// The failure of the whole input.
    whole: &'a Kind,
    width: usize,
    quiet: bool,
    /// What went wrong on our side.
    fault: Option<String>,
}

impl Tests for Bench<'_> {
    fn test(&mut self, inputs: &[Vec<u8>]) -> Vec<Option<Outcome>> {
        let one = |slot: usize, bytes: &[u8]| match self.runner.run(slot, bytes) {
            Ok(ran) => Ok(Some(self.judge.outcome(&ran, self.whole))),
            Err(NoRun::Stopped) => Ok(None),
            // What ran before cannot be run now.
            Err(NoRun::Program(_)) => Ok(Some(Outcome::Unresolved)),
            Err(NoRun::Engine(error)) => Err(error.to_string()),
            Err(NoRun::Ours(why)) => Err(why),
        };
        let one = &one;
        let all: Vec<Result<Option<Outcome>, String>> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                inputs.iter().enumerate().map(|(slot, bytes)| scope.spawn(move || one(slot, bytes))).collect();
            let lost = || Err("a thread that runs the program failed".to_owned());
            threads.into_iter().map(|t| t.join().unwrap_or_else(|_| lost())).collect()
        });
        let mut outcomes = Vec::new();
        for outcome in all {
            outcomes.push(outcome.unwrap_or_else(|why| {
                self.fault.get_or_insert(why);
                None
            }));
        }
        outcomes
    }

    fn width(&self) -> usize {
        self.width
    }

    fn stop(&self) -> Option<Stop> {
        if self.fault.is_some() { Some(Stop::Interrupted) } else { self.runner.stop() }
    }

    fn progress(&mut self, tally: &Tally, failing: usize, passing: Option<usize>) {
        if !self.quiet {
            let passing = passing.map(|n| format!(", {n} pass")).unwrap_or_default();
            message::stderr(&format!("\rclew: {} runs, {failing} bytes fail{passing}\x1b[K", tally.runs()));
        }
    }
}
