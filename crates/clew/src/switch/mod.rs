//! `clew switch`: which branch of the failing program, taken the other way, makes it work?
//!
//! ```text
//! `case` ─▶ the failing run and its branches ─▶ diagnose::search over trials, in an order ─▶ `answer`
//! ```

use crate::answer::{Answer, Changed, Searched, Words, which};
use crate::case::{Ask, At, Branches, Case, Place, Ready, Refusal, Where, branches};
use crate::cli::{Color, Order, Switch as Options};
use crate::message::{self, Messages, Paint};
use crate::startup::Startup;
use crate::status;
use diagnose::{Plan, Search, Trial, order};
use session::{EngineProgram, Session};

const WORDS: Words = Words {
    verb: "switch",
    found: "critical predicate",
    candidate: ["branch", "branches"],
    all: "executed branches",
    doing: "switching",
};

/// Searches as the command line says; gives our exit status.
pub fn run(options: &Options, color: Color, startup: &Startup) -> i32 {
    let messages = Messages { paint: Paint::for_stderr(color, startup) };
    match find(options, startup, &messages) {
        Ok(answer) => {
            let paint = Paint::for_stdout(color, startup);
            message::stdout(&if options.search.json { answer.json() } else { answer.text(paint) });
            if answer.has_repair() { 0 } else { status::NO }
        }
        Err(refusal) => refusal.tell(&messages),
    }
}

/// Records if need be, and searches.
fn find(options: &Options, startup: &Startup, messages: &Messages) -> Result<Answer, Refusal> {
    let at = options.at.as_ref().map(|text| text.parse::<At>()).transpose().map_err(Refusal::usage)?;
    let ready = Ready::make(Ask::of(&options.search), startup, messages)?;
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
        let mut search = Search::default();
        for (n, round) in rounds.iter().enumerate() {
            let tried = if n == 0 { None } else { found.list.last().map(|p| p.moment) };
            if n > 0 {
                found = self.branches(&case, &mut bench.session, &ranges, *round)?;
            }
            let new = tried.map_or(0, |t| found.list.partition_point(|p| p.moment <= t));
            let list = &found.list[new..];
            let order = match self.options.order {
                Order::Prior if rounds.len() == 1 => {
                    crate::why::prior(&case, &mut bench.session, &found, self.options.search.budget / 3)?
                }
                _ => order::lefs(list),
            };
            let candidates: Vec<Trial> = order.into_iter().map(|n| Trial::flip(list[n].moment)).collect();
            let mut progress = |s: &Search| self.tell(s, found.list.len());
            let more = diagnose::search(&mut bench, &candidates, &case.failing, &case.oracle, &plan, &mut progress);
            search.absorb(more.map_err(Refusal::internal)?);
            if search.stopped.is_some() || !plan.all && !search.critical.is_empty() {
                break;
            }
        }
        if !self.ready.quiet {
            message::stderr("\r\x1b[K");
        }
        limits.append(&mut found.limits);
        let spent = bench.spent;
        drop(bench);
        let searched = Searched { search, executed: found.executed, limits, spent };
        Ok(Answer::new(&case, WORDS, searched, &|trial| changed(&case, &found, trial)))
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
        let mut found = Branches::executed(case, session, ranges, upto, true, self.options.search.budget / 2)?;
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

/// What a trial of a branch changed.
fn changed(case: &Case<'_>, found: &Branches, trial: &Trial) -> Changed {
    let pc = trial.moment.pc;
    let place = case.code.locate(pc);
    let instance = found.at(trial.moment).map_or(1, |p| p.instance);
    let of = found.count(pc).max(instance);
    let what = match (place.line, has_several_branches(case, found, &place)) {
        (Some(line), false) => format!("line {line}"),
        (Some(line), true) => format!("the branch at {} in line {line}", place.address),
        _ => format!("the branch at {}", place.address),
    };
    Changed {
        pc,
        instance,
        of,
        kinds: ["critical-predicate", "avoiding-predicate"],
        what: format!("with {what} taken the other way{}", which(instance, of)),
        alteration: format!("flip {}#{instance}", place.address),
    }
}

/// Does the line have several branches?
fn has_several_branches(case: &Case<'_>, found: &Branches, place: &Where) -> bool {
    let same = |pc: &u64| {
        let other = case.code.locate(*pc);
        other.line == place.line && other.full == place.full
    };
    found.places().filter(same).take(2).count() > 1
}
