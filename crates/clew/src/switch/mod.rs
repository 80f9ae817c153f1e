//! `clew switch`: which branch of the failing program, taken the other way, makes it work?
//!
//! ```text
//! `case` ─▶ the failing run and its branches ─▶ diagnose::search over trials, in an order ─▶ `answer`
//!                                              └─ if no single one repairs the run: [pairs] ─┘
//! ```

mod pairs;

use crate::answer::{self, Answer, Changed, Searched, Words, execution, which};
use crate::case::words::ordinal;
use crate::case::{self, Ask, At, Bench, Branches, Case, Ready, Refusal, Where, branches};
use crate::chops::Chops;
use crate::cli::{Color, Order, Switch as Options};
use crate::message::{self, Messages};
use crate::startup::Startup;
use diagnose::{Change, Finding, Plan, Search, Trial, Trials, order};
use model::serve::{Moment, Predicate};
use pairs::Pairing;
use session::{EngineProgram, Session};
use std::time::{Duration, Instant};

const WORDS: Words = Words {
    verb: "switch",
    found: "critical predicate",
    candidate: ["branch", "branches"],
    all: "executed branches",
    doing: "switching",
};

/// Searches as the command line says; gives our exit status.
pub fn run(options: &Options, color: Color, startup: &Startup) -> i32 {
    answer::tell(options.search.json, color, startup, |messages| find(options, startup, messages))
}

/// Records if need be, and searches.
fn find(options: &Options, startup: &Startup, messages: &Messages) -> Result<Answer, Refusal> {
    let at = options.at.as_ref().map(|text| text.parse::<At>()).transpose().map_err(Refusal::usage)?;
    case::until_it_fails(Ask::of(&options.search), startup, messages, |ready, engine| {
        let at = at.clone();
        Job { options, ready, at }.run(engine)
    })
}

/// What trying one by one has given so far.
#[derive(Default)]
struct Singles {
    found: Branches,
    search: Search,
    /// In which order they were to be tried.
    order: Vec<Trial>,
    /// How many there are to try.
    executed: u64,
    /// For each critical predicate, the how-manieth trial it was.
    numbers: Vec<usize>,
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
        let rounds = match &self.at {
            // What is named is looked for in the whole run.
            Some(_) => vec![None],
            None => branches::rounds(&case),
        };
        let found = self.branches(&case, &mut session, &ranges, rounds[0])?;
        let witness = match &self.at {
            Some(_) => None,
            None => case.witness(&mut session, &found),
        };
        let mut bench = case.bench(session, rounds[0], witness);
        if rounds.len() > 1 {
            limits.push(format!("a trial that takes more than {} ticks is taken to hang", bench.budget.limits.ticks));
        }
        let mut singles = Singles { found, ..Singles::default() };
        if self.at.is_none() && !self.options.all {
            bench.until = case.begun + self.options.search.budget * 3 / 4;
        }
        if self.options.lines {
            bench.until -= self.share_of_lines();
        }
        self.singles(&case, &mut bench, &ranges, &rounds, &mut singles)?;
        bench.until = case.until;
        let Singles { mut found, mut search, order, mut executed, numbers } = singles;
        let mut pairs = 0;
        if self.at.is_none() && search.critical.is_empty() && bench.stop().is_none() {
            pairs = self.pairs(&case, &mut bench, &found, &order, &mut search, &mut limits)?;
        }
        if self.at.is_none() {
            search.told.clear();
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
        executed = executed.max(found.executed);
        let searched = Searched { search, executed, pairs, numbers, lines, limits, spent };
        Ok(Answer::new(&case, WORDS, searched, &|trial| changed(&case, &found, trial)))
    }

    /// Tries branches and cases one by one.
    fn singles(
        &self,
        case: &Case<'_>,
        bench: &mut Bench<'_>,
        ranges: &[(u64, u64)],
        rounds: &[Option<Moment>],
        singles: &mut Singles,
    ) -> Result<(), Refusal> {
        // Pairs are chosen by what each branch did alone.
        let (all, doubt) = (self.options.all || self.at.is_some(), case.waits_for_others());
        let plan = Plan { all, tell: true, doubt, ..Plan::default() };
        for (n, round) in rounds.iter().enumerate() {
            let tried = if n == 0 { None } else { singles.found.list.last().map(|p| p.moment) };
            if n > 0 {
                singles.found = self.branches(case, &mut bench.session, ranges, *round)?;
            }
            let found = &singles.found;
            let new = tried.map_or(0, |t| found.list.partition_point(|p| p.moment <= t));
            let list = &found.list[new..];
            let order = match self.options.order {
                Order::Prior if rounds.len() == 1 => {
                    crate::why::prior(case, &mut bench.session, found, self.options.search.budget / 3)?
                }
                _ => order::lefs(list),
            };
            let candidates = trials(found, list, &order);
            singles.executed = found.executed + (candidates.len() - list.len()) as u64;
            let mut progress = |s: &Search| self.tell("branches", s, candidates.len());
            let more = diagnose::search(bench, &candidates, &case.failing, &case.oracle, &plan, &mut progress);
            let more = more.map_err(Refusal::internal)?;
            let before = singles.search.tried;
            let number = |f: &Finding| candidates.iter().position(|c| *c == f.trial).map_or(0, |n| before + n + 1);
            singles.numbers.extend(more.critical.iter().map(number));
            singles.search.absorb(more);
            singles.order = candidates;
            if singles.search.stopped.is_some() || !plan.all && !singles.search.critical.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Tries two branches at a time; answers how many pairs were tried.
    fn pairs(
        &self,
        case: &Case<'_>,
        bench: &mut Bench<'_>,
        found: &Branches,
        order: &[Trial],
        search: &mut Search,
        limits: &mut Vec<String>,
    ) -> Result<usize, Refusal> {
        let trials = Pairing { case, found, singles: search, order }.trials(bench);
        if trials.is_empty() {
            return Ok(0);
        }
        if search.left > 0 {
            limits.push(format!("{} branches were not tried alone, to leave time for pairs (--budget)", search.left));
        }
        let plan = Plan { all: self.options.all, doubt: case.waits_for_others(), ..Plan::default() };
        let mut progress = |s: &Search| self.tell("pairs", s, trials.len());
        let more = diagnose::search(bench, &trials, &case.failing, &case.oracle, &plan, &mut progress);
        let more = more.map_err(Refusal::internal)?;
        let tried = more.tried;
        search.absorb(more);
        if search.left > 0 {
            limits.push(format!("{tried} of {} promising pairs were tried", trials.len()));
            search.left = 0;
        }
        Ok(tried)
    }

    /// Time that is kept for finding out what to read.
    fn share_of_lines(&self) -> Duration {
        self.options.search.budget / 3
    }

    fn tell(&self, what: &str, search: &Search, candidates: usize) {
        if !self.ready.quiet {
            let found = search.critical.len();
            message::stderr(&format!("\rclew: {} of {candidates} {what} tried, {found} found\x1b[K", search.tried));
        }
    }

    /// The executions of branches to try, of the whole run or up to a moment.
    fn branches(
        &self,
        case: &Case<'_>,
        session: &mut Session,
        ranges: &[(u64, u64)],
        upto: Option<Moment>,
    ) -> Result<Branches, Refusal> {
        // Half of the time is for the trials.
        let within = self.options.search.budget / 2;
        // What is named is tried wherever it is.
        let mut found = Branches::with_jumps(case, session, ranges, upto, self.at.is_some(), within)?;
        if let Some(At { instance: Some(n), .. }) = &self.at {
            // The n-th execution of each branch of the line, as answers number them.
            let mut stop = || Instant::now() > case.until || case::is_raised(&case.interrupted);
            found.list = branches::nth_of_each(session, &found, *n, &mut stop);
            found.limits.clear();
        }
        if let Some(at) = self.options.at.as_ref().filter(|_| found.list.is_empty()) {
            return Err(Refusal::usage(format!("no branch of {at} was executed, or not that often")));
        }
        Ok(found)
    }
}

/// Branches that are tried for each other case of a jump.
const BRANCHES_FOR_EACH_CASE: usize = 3;

/// The trials of these executions, in this order: branches go the other way, jumps to other cases, which come in between
/// because there are many of them.
fn trials(found: &Branches, list: &[Predicate], order: &[usize]) -> Vec<Trial> {
    let (mut flips, mut cases) = (Vec::new(), Vec::new());
    for p in order.iter().map(|n| &list[*n]) {
        match p.to {
            0 => flips.push(Trial::flip(p.moment)),
            _ => cases.extend(found.other_cases(p).map(|to| Trial { moment: p.moment, change: Change::Skip(to) })),
        }
    }
    order::interleave(flips, cases, BRANCHES_FOR_EACH_CASE)
}

/// What a trial changed.
fn changed(case: &Case<'_>, found: &Branches, trial: &Trial) -> Changed {
    let pc = trial.moment.pc;
    let place = case.code.locate(pc);
    let instance = found.at(trial.moment).map_or(1, |p| p.instance);
    let executed = execution(case, instance, found.count(pc));
    let branch = named(case, found, &place);
    let which = which(executed);
    let (kinds, what, alteration) = match trial.change {
        Change::Skip(to) => {
            let went = found.at(trial.moment).map_or(0, |p| p.to);
            let [went, goes] = [went, to].map(|to| line_or_address(&case.code.locate(to)));
            let here = line_or_address(&place);
            let what = format!("with the switch in {here} leading to {goes} instead of {went}{which}");
            let to = case.code.locate(to).address;
            (["critical-case", "avoiding-case"], what, format!("jump {}#{instance} to {to}", place.address))
        }
        Change::FlipTwo { pc, execution } => {
            let second = case.code.locate(pc);
            let later = if execution > 1 { format!(" on its {} execution", ordinal(execution)) } else { String::new() };
            let behind = named(case, found, &second);
            let what = format!("with {branch}{which} and, behind that, {behind}{later} taken the other way");
            let alteration = format!("flip {}#{instance}, then {}#{execution}", place.address, second.address);
            (["critical-pair", "avoiding-pair"], what, alteration)
        }
        _ => {
            let what = format!("with {branch} taken the other way{which}");
            (["critical-predicate", "avoiding-predicate"], what, format!("flip {}#{instance}", place.address))
        }
    };
    let second = match trial.change {
        Change::FlipTwo { pc, .. } => Some(pc),
        _ => None,
    };
    Changed { pc, second, execution: executed, kinds, what, alteration }
}

/// What a branch is called: its line, if that has no other.
fn named(case: &Case<'_>, found: &Branches, place: &Where) -> String {
    match (place.line, has_several_branches(case, found, place)) {
        (Some(line), false) => format!("line {line}"),
        (Some(line), true) => format!("the branch at {} in line {line}", place.address),
        _ => format!("the branch at {}", place.address),
    }
}

fn line_or_address(place: &Where) -> String {
    place.line.map_or_else(|| place.address.clone(), |line| format!("line {line}"))
}

/// Does the line have several branches?
fn has_several_branches(case: &Case<'_>, found: &Branches, place: &Where) -> bool {
    let same = |pc: &u64| {
        let other = case.code.locate(*pc);
        other.line == place.line && other.full == place.full
    };
    found.places().filter(same).take(2).count() > 1
}
