//! `clew suppress`: which statement, call or function of the failing program, left out once, makes it work?
//!
//! ```text
//! `case` ─▶ failing run ─ `why::symptom` ─▶ slice ─ [candidates], [pieces] ─▶ diagnose::search over trials ─▶ `answer`
//! ```
//!
//! Source: Y. Wang, "Dynamic Analysis Techniques for Effective and Efficient Debugging", UC Riverside, 2014, chapter 2
//! (execution suppression on demand); the search over the slice is ours.

mod candidates;
mod named;
mod pieces;

use crate::answer::{self, Answer, Changed, Searched, Words, execution, which};
use crate::case::{self, Ask, Branches, Case, Ready, Refusal, branches};
use crate::cli::{Color, Order, Suppress as Options};
use crate::message::{self, Messages};
use crate::startup::Startup;
use candidates::{Candidates, Finder};
use diagnose::{Change, Failure, Plan, Search, Trial};
use named::Named;
use pieces::What;
pub use pieces::last_jump;
use session::EngineProgram;

const WORDS: Words = Words {
    verb: "suppress",
    found: "repairing suppression",
    candidate: ["execution", "executions"],
    all: "executions of statements and calls",
    doing: "leaving out",
};

/// Searches as the command line says; gives our exit status.
pub fn run(options: &Options, color: Color, startup: &Startup) -> i32 {
    answer::tell(options.search.json, color, startup, |messages| find(options, startup, messages))
}

/// Records if need be, and searches.
fn find(options: &Options, startup: &Startup, messages: &Messages) -> Result<Answer, Refusal> {
    let at = options.at.as_ref().map(|text| text.parse::<Named>()).transpose().map_err(Refusal::usage)?;
    let ask = Ask::of(&options.search);
    case::until_it_fails(ask, startup, messages, |ready, engine| Job { options, ready, at: at.as_ref() }.run(engine))
}

/// One search.
struct Job<'a> {
    options: &'a Options,
    ready: &'a Ready<'a>,
    at: Option<&'a Named>,
}

impl Job<'_> {
    fn run(&self, engine: &EngineProgram) -> Result<Answer, Refusal> {
        let (case, mut session) = Case::open(self.ready, engine)?;
        self.say("following dependences");
        // Half of the time is for the trials.
        let within = self.options.search.budget / 2;
        let mut finder = Finder { case: &case, session: &mut session, within };
        let mut found = match (self.at, &self.options.at) {
            (Some(at), Some(text)) => finder.at(at, text)?,
            _ => finder.in_slice()?,
        };
        let trials = match self.options.order {
            Order::Prior if self.at.is_none() => found.nearest_first(),
            _ => found.last_first(),
        };
        let last = self.last_branches(&case, &mut session)?;
        let witness = case.witness(&mut session, &last);
        let hangs_at = branches::rounds(&case)[0];
        let mut bench = case.bench(session, hangs_at, witness);
        let place = self.at.is_some();
        let (all, doubt) = (self.options.all || place, case.waits_for_others());
        let plan = Plan { all, tell: place, doubt, ..Plan::default() };
        let mut progress = |s: &Search| {
            let repairs = s.critical.len();
            self.say(&format!("{} of {} executions tried, {repairs} found", s.tried, trials.len()));
        };
        let search = diagnose::search(&mut bench, &trials, &case.failing, &case.oracle, &plan, &mut progress);
        let search = search.map_err(Refusal::internal)?;
        self.say("");
        let spent = bench.spent;
        drop(bench);
        let mut limits = case.known_limits();
        limits.append(&mut found.limits);
        let (executed, numbers) = (found.len(), Vec::new());
        let searched = Searched { search, executed, pairs: 0, numbers, lines: None, limits, spent };
        Ok(Answer::new(&case, WORDS, searched, &|trial| changed(&case, &found, trial)))
    }

    /// Branches before the end of a program that ended itself: they tell where it failed.
    fn last_branches(&self, case: &Case<'_>, session: &mut session::Session) -> Result<Branches, Refusal> {
        const SIGABRT: u32 = 6;
        match case.failing.failure {
            Failure::Crash { signal: SIGABRT, .. } => {
                Branches::executed(case, session, &case.code.ranges, None, false, self.options.search.budget / 5)
            }
            _ => Ok(Branches::default()),
        }
    }

    /// Tells how far it is, on a terminal; nothing clears the line.
    fn say(&self, what: &str) {
        if !self.ready.quiet {
            message::stderr(&match what {
                "" => "\r\x1b[K".to_owned(),
                what => format!("\rclew: {what}\x1b[K"),
            });
        }
    }
}

/// What a trial left out.
fn changed(case: &Case<'_>, found: &Candidates, trial: &Trial) -> Changed {
    let place = case.code.locate(trial.moment.pc);
    let line = place.line.map_or_else(|| place.address.clone(), |line| format!("line {line}"));
    let (what, instance, known) = match found.piece(trial) {
        Some((piece, n, of)) => {
            let what = match &piece.what {
                What::Statement => line,
                What::StatementAndJump => format!("{line} and the jump at its end"),
                What::Call(Some(name)) => format!("the call of {name} in {line}"),
                What::Call(None) => format!("the call at {} in {line}", place.address),
                What::Instruction => format!("the store at {} in {line}", place.address),
                What::Function(name) => format!("the function {name}"),
            };
            (what, n, of)
        }
        None => (line, 1, 1),
    };
    let execution = execution(case, instance, known);
    let alteration = match trial.change {
        Change::Skip(to) => format!("skip {}#{instance} to {}", place.address, case.code.locate(to).address),
        _ => format!("return {}#{instance}", place.address),
    };
    Changed {
        pc: trial.moment.pc,
        second: None,
        execution,
        kinds: ["suppression", "avoiding-suppression"],
        what: format!("with {what} left out{}", which(execution)),
        alteration,
    }
}
