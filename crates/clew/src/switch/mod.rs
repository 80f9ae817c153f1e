//! `clew switch`: which branch of the failing program, taken the other way, makes it work?
//!
//! ```text
//! `case` ─▶ the failing run and its branches ─▶ diagnose::search over trials, in an order ─▶ [show]
//! ```

mod show;

use crate::case::{self, Ask, At, Branches, Case, Place, Ready, Refusal, branches};
use crate::chops::Chops;
use crate::cli::{Color, Order, Switch as Options};
use crate::message::{self, Messages, Paint};
use crate::startup::Startup;
use crate::status;
use diagnose::{Failing, Finding, Oracle, Plan, Search, Trial, order};
use recording::UnitName;
use session::{EngineProgram, Session};
use std::path::Path;
use std::time::Duration;

/// What was found, with everything that is needed to tell it.
pub struct Answer {
    pub recording: String,
    pub unit: UnitName,
    pub code: case::Code,
    pub oracle: Oracle,
    pub failing: Failing,
    pub search: Search,
    /// Executions of branches that were candidates.
    pub branches: Branches,
    /// For each critical predicate, the how-manieth trial it was.
    pub numbers: Vec<usize>,
    /// What to read, if that was asked for.
    pub lines: Option<Chops>,
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

/// Records if need be, and searches.
fn find(options: &Options, startup: &Startup, messages: &Messages) -> Result<Answer, Refusal> {
    let at = options.at.as_ref().map(|text| text.parse::<At>()).transpose().map_err(Refusal::usage)?;
    let ask = Ask {
        oracle: &options.oracle,
        recording: options.recording.as_deref(),
        command: &options.command,
        budget: options.budget,
        jobs: options.jobs,
        quiet: options.quiet || options.json,
    };
    let ready = Ready::make(ask, startup, messages)?;
    let job = Job { options, ready: &ready, at };
    ready.search(startup, |engine| job.run(engine))
}

/// One search.
struct Job<'a> {
    options: &'a Options,
    ready: &'a Ready<'a>,
    at: Option<At>,
}

impl Job<'_> {
    fn run(&self, engine: &EngineProgram) -> Result<Answer, Refusal> {
        let (case, mut session) = Case::open(self.ready, engine)?;
        let ranges = match &self.at {
            Some(at) => case.code.ranges_of(&at.place).map_err(Refusal::usage)?,
            None => case.code.ranges.clone(),
        };
        let mut limits = case.known_limits();
        let rounds = branches::rounds(&case.failing.failure, &case.written, case.unit);
        let mut found = self.branches(&case, &mut session, &ranges, rounds[0])?;
        let witness = match &self.at {
            Some(_) => None,
            None => case.witness(&mut session, &found),
        };
        let mut bench = case.bench(session, rounds[0], witness);
        if rounds.len() > 1 {
            limits.push(format!("a trial that takes more than {} ticks is taken to hang", bench.budget.limits.ticks));
        }
        let place = self.at.is_some();
        let plan = Plan { all: self.options.all || place, tell: place, ..Plan::default() };
        if self.options.lines {
            bench.until -= self.share_of_lines();
        }
        let mut search = Search::default();
        let mut numbers = Vec::new();
        for (n, round) in rounds.iter().enumerate() {
            let tried = if n == 0 { None } else { found.list.last().map(|p| p.moment) };
            if n > 0 {
                found = self.branches(&case, &mut bench.session, &ranges, *round)?;
            }
            let new = tried.map_or(0, |t| found.list.partition_point(|p| p.moment <= t));
            let list = &found.list[new..];
            let order = match self.options.order {
                Order::Prior if rounds.len() == 1 => {
                    crate::why::prior(&case, &mut bench.session, &found, self.options.budget / 3)?
                }
                _ => order::lefs(list),
            };
            let candidates: Vec<Trial> = order.into_iter().map(|n| Trial::flip(list[n].moment)).collect();
            let mut progress = |s: &Search| self.tell(s, found.list.len());
            let more = diagnose::search(&mut bench, &candidates, &case.failing, &case.oracle, &plan, &mut progress);
            let more = more.map_err(Refusal::internal)?;
            let number =
                |f: &Finding| candidates.iter().position(|c| *c == f.trial).map_or(0, |n| search.tried + n + 1);
            numbers.extend(more.critical.iter().map(number));
            search.absorb(more);
            if search.stopped.is_some() || !plan.all && !search.critical.is_empty() {
                break;
            }
        }
        if !self.ready.quiet {
            message::stderr("\r\x1b[K");
        }
        limits.append(&mut found.limits);
        let mut lines = None;
        if self.options.lines {
            let mut chops = Chops::find(&case, &mut bench, &search.critical, self.share_of_lines())?;
            limits.append(&mut chops.limits);
            lines = Some(chops);
        }
        let spent = bench.spent;
        drop(bench);
        Ok(Answer {
            recording: case.name(),
            time: case.begun.elapsed(),
            unit: case.unit,
            code: case.code,
            oracle: case.oracle,
            failing: case.failing,
            search,
            branches: found,
            numbers,
            lines,
            limits,
            spent,
        })
    }

    /// Time that is kept for finding out what to read.
    fn share_of_lines(&self) -> Duration {
        self.options.budget / 3
    }

    fn tell(&self, search: &Search, candidates: usize) {
        if !self.ready.quiet {
            let found = search.critical.len();
            message::stderr(&format!("\rclew: {} of {candidates} branches tried, {found} found\x1b[K", search.tried));
        }
    }

    /// The executions of branches to try, of the whole run or up to a moment.
    fn branches(
        &self,
        case: &Case<'_>,
        session: &mut Session,
        ranges: &[(u64, u64)],
        upto: Option<model::serve::Moment>,
    ) -> Result<Branches, Refusal> {
        // Half of the time is for the trials.
        let mut found = Branches::executed(case, session, ranges, upto, true, self.options.budget / 2)?;
        let list = &mut found.list;
        if let Some(At { instance: Some(n), place }) = &self.at {
            *list = match place {
                // The n-th execution of any branch of the line, or of the one there is.
                Place::Line(..) => list.get(*n as usize - 1).copied().into_iter().collect(),
                Place::Offset(_) => list.iter().copied().filter(|p| p.instance == *n).collect(),
            };
        }
        if let Some(at) = self.options.at.as_ref().filter(|_| list.is_empty()) {
            return Err(Refusal::usage(format!("no branch of {at} was executed, or not that often")));
        }
        Ok(found)
    }
}

/// A short way to write a path.
fn shown(path: &Path) -> String {
    path.display().to_string()
}
