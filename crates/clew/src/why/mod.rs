//! `clew why`: the main job. Records, combines the methods that apply, and tells ranked causes with evidence.
//!
//! ```text
//! `case` ─▶ failing run ─ [symptom] ─▶ slice ─ [near] ─▶ branches by distance ─┐
//!                                        └─ [values] ─▶ other values ──────────┴─▶ trials ─ [causes] ─▶ report
//! ```
//! Cheap methods come before expensive ones, each within its share of the budget; whatever ends it early, what was found
//! is told.

mod arms;
mod calls;
mod causes;
mod cut;
mod forced;
mod functions;
mod gathered;
mod loops;
pub mod near;
pub mod places;
mod rank;
mod sentences;
mod standing;
mod suspects;
pub mod symptom;
mod told;
mod values;
mod vouched;

use crate::case::{self, Ask, Bench, Branches, Case, Ready, Refusal, Where, branches};
use crate::cli::{Color, Why as Options};
use crate::find::is_same_file;
use crate::message::{self, Messages, Paint};
use crate::slice::criterion::Start;
use crate::slice::lines::Squash;
use crate::startup::Startup;
use crate::status;
use causes::Telling;
use diagnose::order;
use diagnose::{End, Failure, Finding, Plan, Search, Trial, Verdict};
use gathered::Gathered;
use loops::Rounds;
use model::serve::Moment;
use near::Near;
use places::Places;
use rank::Ranking;
use report::Report;
use session::{EngineProgram, Session};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use symptom::Symptom;
use told::Told;
use values::Values;

/// Searches as the command line says; gives our exit status.
pub fn run(options: &Options, color: Color, startup: &Startup) -> i32 {
    let messages = Messages { paint: Paint::for_stderr(color, startup) };
    match find(options, startup, &messages) {
        Ok(mut report) => {
            if options.html.is_some() {
                places::fill_sources(&mut report);
            }
            message::stdout(&match options.search.json {
                true => report::json(&report),
                false => report::text(&report, &Paint::for_stdout(color, startup)),
            });
            if let Err(why) = write_views(&report, options, startup) {
                messages.error(&why);
                return status::USAGE;
            }
            if report.causes.is_empty() { status::NO } else { 0 }
        }
        Err(refusal) => {
            if !refusal.message.is_empty() {
                messages.error(&refusal.message);
            }
            refusal.status
        }
    }
}

/// Writes the other forms of the answer that were asked for.
fn write_views(report: &Report, options: &Options, startup: &Startup) -> Result<(), String> {
    let write = |path: &std::path::Path, text: String| {
        std::fs::write(path, text).map_err(|e| format!("{} cannot be written: {e}", path.display()))
    };
    let text = |name: &str| startup.variable(name).and_then(std::ffi::OsStr::to_str);
    let root = text("GITHUB_WORKSPACE");
    if let Some(path) = &options.html {
        write(path, report::html(report))?;
    }
    if let Some(path) = &options.sarif {
        write(path, report::sarif(report, root))?;
    }
    if text("GITHUB_ACTIONS") == Some("true") {
        // Workflows read commands from both streams; a JSON document must stay one.
        match options.search.json {
            true => message::stderr(&report::annotations(report, root)),
            false => message::stdout(&report::annotations(report, root)),
        }
    }
    Ok(())
}

/// A search takes its time: whether its answer can be written is better known before. Nothing is changed or left behind.
fn check_views(options: &Options) -> Result<(), Refusal> {
    let views = [&options.html, &options.sarif];
    let oracle = &options.search.oracle;
    let files = oracle.expect_file.iter().map(|(_, expected)| expected);
    let given = [&oracle.expect, &oracle.expect_stderr, &oracle.expect_both, &oracle.reference];
    let given: Vec<&PathBuf> = given.into_iter().flatten().chain(files).collect();
    if options.html.is_some() && options.html == options.sarif {
        return Err(Refusal::usage("--html and --sarif name the same file; give each one of its own"));
    }
    for path in views.into_iter().flatten() {
        let shown = path.display();
        if given.iter().any(|other| is_same_file(path, other)) {
            return Err(Refusal::usage(format!("{shown} says what is right and is never changed; name another file")));
        }
        let folder = path.parent().filter(|f| !f.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|f| !f.is_dir()) {
            let folder = folder.display();
            return Err(Refusal::usage(format!(
                "{shown} cannot be written: there is no folder {folder}; make it first"
            )));
        }
        let mut open = std::fs::File::options();
        let opened = match std::fs::metadata(path) {
            Ok(m) if m.is_dir() => {
                return Err(Refusal::usage(format!("{shown} cannot be written: it is a folder; name a file in it")));
            }
            Ok(m) if m.is_file() => open.append(true).open(path).map(drop),
            // A pipe waits for its reader, a device may do anything.
            Ok(_) => Ok(()),
            Err(_) => open.write(true).create_new(true).open(path).and_then(|_| std::fs::remove_file(path)),
        };
        opened.map_err(|e| Refusal::usage(format!("{shown} cannot be written: {e}; name another file")))?;
    }
    Ok(())
}

/// Records if need be, and searches.
pub fn find(options: &Options, startup: &Startup, messages: &Messages) -> Result<Report, Refusal> {
    check_views(options)?;
    let ask = Ask::of(&options.search);
    case::until_it_fails(ask, startup, messages, |ready, engine| Job { options, ready }.run(engine))
}

/// One search.
struct Job<'a> {
    options: &'a Options,
    ready: &'a Ready<'a>,
}

/// A branch that is executed more often repairs a run by accident more often.
const SELDOM: u64 = 8;

/// So many more executions of branches are all tried, whatever was found: what repairs the run in several ways is known
/// better, and replacing values repairs more by accident.
const FEW: usize = 1000;
/// However small the budget is, the way to the symptom may take so long: without it there is no answer at all.
const LEAST_WAY: Duration = Duration::from_secs(2);
/// Ticks that a change of a run that hangs is tried for at first.
const SHORT: u64 = 2_000_000;
/// People who waited so long are told what there is.
const IMPATIENT: Duration = Duration::from_secs(3);
/// What a step that others need gets in any case, in hundredths of the budget.
const LEAST: u32 = 3;
/// What is kept for ranking and telling, in hundredths of the budget.
const TELLING: u32 = 12;

/// A part of the budget, in hundredths.
fn share(budget: Duration, percent: u32) -> Duration {
    budget * percent / 100
}

impl Job<'_> {
    fn run(&self, engine: &EngineProgram) -> Result<Report, Refusal> {
        let (case, mut session) = Case::open(self.ready, engine)?;
        self.say("following dependences");
        let told = symptom::arguments(&mut session)?;
        let start = self.start(&case, &mut session)?;
        let moment = start.moment;
        let mapped = symptom::mapped(&case, &session)?;
        let died = matches!(case.failing.failure, Failure::Crash { .. });
        let stack = if died { symptom::stack(&case, &session) } else { Vec::new() };
        let mut places = Places::new(&mapped);
        let standing = standing::clause(&case, &session, &mut places);
        let ranges = places.own_code(&session)?;
        let followed =
            symptom::follow(&case, &mut session, start, &mapped, &told, share(self.options.search.budget, 30));
        let mut gathered = Gathered::new(case.known_limits());
        (gathered.stack, gathered.standing) = (stack, standing);
        let symptom = followed.map_err(|why| gathered.limits.push(format!("no dependences are known: {why}"))).ok();
        gathered.spent("dependences", case.begun);
        let mut search = Searching { job: self, case: &case, gathered: &mut gathered, told_first: false };
        let mut bench = search.all(session, symptom.as_ref(), moment, &ranges, &mut places)?;
        search.arm(&mut bench, symptom.as_ref(), &mut places)?;
        let Bench { mut session, budget, .. } = bench;
        self.say("looking at the repaired run");
        let (within, top) = (share(self.options.search.budget, 8), self.options.top.get());
        let telling = Telling { case: &case, symptom: symptom.as_ref(), mapped: &mapped, budget, within, top };
        let report = causes::report(&telling, gathered, &mut places, &mut session);
        self.say("");
        Ok(report)
    }

    /// Goes to the symptom: nothing can be asked before. A failure that comes late needs its time.
    fn start(&self, case: &Case<'_>, session: &mut Session) -> Result<Start, Refusal> {
        let budget = self.options.search.budget;
        let until = (case.begun + share(budget, 70)).max(Instant::now() + LEAST_WAY);
        let flag = self.ready.interrupted.clone();
        let mut is_late = false;
        let mut stop = || {
            is_late = Instant::now() > until;
            is_late || case::is_raised(&flag)
        };
        let start = symptom::start(case, session, &mut stop);
        match is_late {
            true => Err(Refusal::internal(format!(
                "the failure was not reached again within a budget of {budget:?}: give it more time (--budget)"
            ))),
            false => start,
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

    /// Tells the first proof, on a terminal, to somebody who has been waiting: it may be all that is needed.
    fn say_first(&self, at: &Where) {
        if !self.ready.quiet {
            let function = at.function.as_ref().map(|f| format!(" in {f}")).unwrap_or_default();
            message::stderr(&format!(
                "\r\x1b[Kclew: proved first: {}{function}; looking for better ones\n",
                at.short()
            ));
        }
    }
}

/// Trials, method after method.
struct Searching<'a> {
    job: &'a Job<'a>,
    case: &'a Case<'a>,
    gathered: &'a mut Gathered,
    /// Has the first proof been told?
    told_first: bool,
}

impl<'a> Searching<'a> {
    fn all(
        &mut self,
        mut session: Session,
        symptom: Option<&Symptom>,
        moment: Moment,
        ranges: &[(u64, u64)],
        places: &mut Places<'_>,
    ) -> Result<Bench<'a>, Refusal> {
        let budget = self.job.options.search.budget;
        self.job.say("counting branches");
        let begun = Instant::now();
        let rounds = branches::rounds(self.case);
        let hangs = rounds.len() > 1;
        // What a program does behind what was thrown, or in all its rounds, is no cause.
        let upto = (hangs || symptom.is_some_and(|s| s.start.thrown)).then_some(moment);
        let within = self.within(15);
        let mut count = |ranges: &[(u64, u64)], whole: bool| {
            Branches::executed(self.case, &mut session, ranges, upto, whole, within)
        };
        let mut found = count(ranges, false)?;
        if found.executed > found.list.len() as u64
            && let Some(own) = places.origins.own_functions()
        {
            // Of too many, those that somebody wrote for this program: what a compiler brought along may run for long.
            found = count(&own, true)?;
        }
        self.gathered.limits.extend(found.limits.iter().cloned());
        let witness = self.case.witness(&mut session, &found);
        self.gathered.spent("counting branches", begun);
        let mut bench = self.case.bench(session, rounds[0], witness);
        let near = Near::of(symptom, &found);
        let (order, first) = order::prior(&found.list, &near.known);
        let flips: Vec<Trial> = order.iter().map(|n| Trial::flip(found.list[*n].moment)).collect();
        let influence = found.list.iter().map(|p| p.moment).zip(near.known.iter().map(|k| k.influence));
        self.gathered.influence = influence.collect();
        (self.gathered.nodes, self.gathered.outside) = (near.nodes, near.outside);
        let told = causes::difference(self.case).and_then(|d| Told::of(&d.found, &d.expected, d.offset));
        if told.is_some() {
            // A few trials that say much, whatever else is found.
            self.look_at_values(&mut bench, symptom, told.as_ref(), places);
            self.look_for_cut(symptom, told.as_ref(), &bench.session, places);
            let trials = self.gathered.values.told.clone();
            self.search(&mut bench, "the wrong number", &trials, share(budget, 10), true)?;
        }
        // Each place once; then other methods, and what is left of the time for the rest. If one of them is proved
        // already, nothing is more useful than to try the others too.
        let tried = self.search(&mut bench, "branches", &flips[..first], share(budget, 60), true)?;
        if self.gathered.has_proof(places) {
            self.search(&mut bench, "branches", &flips[tried..first], share(budget, 35), true)?;
        }
        let few = flips.len() - first <= FEW;
        if few {
            self.search(&mut bench, "more branches", &flips[first..], share(budget, 20), true)?;
        }
        // A branch that goes one way for good is many changes: one value may do as well.
        let one_will_do = self.gathered.has_proof(places);
        if !one_will_do {
            let forced = forced::trials(&found, &near.known);
            self.search(&mut bench, "branches for good", &forced, share(budget, 12), true)?;
        }
        if !one_will_do {
            if told.is_none() {
                self.look_at_values(&mut bench, symptom, None, places);
            }
            let trials = self.gathered.values.trials.clone();
            self.search(&mut bench, "values", &trials, share(budget, 25), true)?;
        }
        // Repairs by code that runs all the time are often accidents: then the rest of the time is not wasted.
        let all = self.gathered.has_proof(places);
        if !few && !self.is_convincing(&found, places) {
            let left = self.case.until.saturating_duration_since(Instant::now());
            let within = left.saturating_sub(share(budget, TELLING));
            self.search(&mut bench, "more branches", &flips[first..], within, all)?;
        }
        self.gathered.loops = loops::among(found.places(), &bench.session);
        let since = (self.case.failing.failure == Failure::Hang).then_some(self.case.onset.tick);
        self.gathered.rounds = since.map(|tick| Rounds::since(tick, &found)).unwrap_or_default();
        self.gathered.branches = found;
        Ok(bench)
    }

    /// A part of the budget, in hundredths, as far as there is time; a little in any case, or nothing comes of what was done.
    fn within(&self, percent: u32) -> Duration {
        let budget = self.job.options.search.budget;
        let left = self.case.until.saturating_duration_since(Instant::now());
        share(budget, percent).min(left).max(share(budget, LEAST))
    }

    /// Leaves out what the best branch let happen.
    fn arm(
        &mut self,
        bench: &mut Bench<'_>,
        symptom: Option<&Symptom>,
        places: &mut Places<'_>,
    ) -> Result<(), Refusal> {
        let Some(symptom) = symptom.filter(|_| self.gathered.has_proof(places)) else { return Ok(()) };
        let within = share(self.job.options.search.budget, 5);
        let until = Instant::now() + within;
        let flag = self.case.interrupted.clone();
        let mut stop = move || Instant::now() > until || case::is_raised(&flag);
        let squash = Squash::new(&symptom.window, false);
        let ranking = Ranking::of(self.gathered, Some(symptom), Some(&squash.sites), places, &mut stop);
        let (best, branches) = (ranking.candidates.first(), &self.gathered.branches);
        let arm = best.and_then(|b| arms::call_behind(b, branches, symptom, &mut bench.session, places, &mut stop));
        if let Some(arm) = arm {
            self.search(bench, "what a branch let happen", std::slice::from_ref(&arm.trial), within, true)?;
            self.gathered.arm = Some(arm);
        }
        Ok(())
    }

    /// Looks which values could be others.
    fn look_at_values(
        &mut self,
        bench: &mut Bench<'_>,
        symptom: Option<&Symptom>,
        told: Option<&Told>,
        places: &mut Places<'_>,
    ) {
        let Some(symptom) = symptom else { return };
        self.job.say("looking at values");
        let begun = Instant::now();
        let until = begun + self.within(15);
        let mut stop = || Instant::now() > until;
        match Values::find(symptom, told, &mut bench.session, &mut |pc| places.is_own(pc), &mut stop) {
            Ok(values) => self.gathered.values = values,
            Err(why) => self.gathered.limits.push(format!("values were not replaced: {why}")),
        }
        self.gathered.spent("looking at values", begun);
    }

    /// Looks whether the right number was there and was cut.
    fn look_for_cut(
        &mut self,
        symptom: Option<&Symptom>,
        told: Option<&Told>,
        session: &Session,
        places: &mut Places<'_>,
    ) {
        let Some((symptom, told)) = symptom.zip(told) else { return };
        let squash = Squash::new(&symptom.window, false);
        let stores = &self.gathered.values.stores;
        self.gathered.cut = cut::find(told, stores, symptom, &squash.sites, session, places);
    }

    /// Is there a proved cause that runs a few times only?
    fn is_convincing(&self, found: &Branches, places: &mut Places<'_>) -> bool {
        let proved = self.gathered.search.critical.iter().filter(|f| f.is_proved());
        let is_value = |f: &Finding| self.gathered.values.replacements.contains_key(&f.trial);
        let mut branches = proved.filter(|f| !is_value(f)).map(|f| f.trial.moment.pc);
        branches.any(|pc| found.count(pc) <= SELDOM && places.is_own(pc))
    }

    /// Tries these for at most so long; answers how many were tried.
    ///
    /// Most changes of a run that hangs leave it hanging, and each lasts as long as a trial may. What repairs it mostly ends
    /// soon: so all of them are tried for a short time first, and those that go on again if there is time.
    fn search(
        &mut self,
        bench: &mut Bench<'_>,
        what: &str,
        trials: &[Trial],
        within: Duration,
        all: bool,
    ) -> Result<usize, Refusal> {
        let until = Instant::now() + within;
        let long = bench.budget.limits.ticks;
        if !bench.hangs || long <= SHORT {
            return self.search_once(bench, what, trials, within, all);
        }
        bench.budget.limits.ticks = SHORT;
        let told = self.gathered.search.told.len();
        let tried = self.search_once(bench, what, trials, within, all);
        bench.budget.limits.ticks = long;
        let tried = tried?;
        let going_on = |(_, _, end): &&(Trial, Verdict, End)| *end == End::StillRunning;
        let again = self.gathered.search.told[told..].iter().filter(going_on).map(|(t, ..)| t.clone());
        let again: Vec<Trial> = again.collect();
        if tried == trials.len() && !self.gathered.has_repair_since(told) {
            let left = until.saturating_duration_since(Instant::now());
            self.search_once(bench, &format!("{what} for longer"), &again, left, all)?;
        }
        Ok(tried)
    }

    fn search_once(
        &mut self,
        bench: &mut Bench<'_>,
        what: &str,
        trials: &[Trial],
        within: Duration,
        all: bool,
    ) -> Result<usize, Refusal> {
        if trials.is_empty() || case::is_raised(&self.case.interrupted) {
            return Ok(0);
        }
        let begun = Instant::now();
        bench.until = self.case.until.min(begun + within);
        if self.gathered.search.tried == 0 {
            // What came before may have taken longer than it should; without any trial nothing is proved.
            bench.until = bench.until.max(begun + share(self.job.options.search.budget, 5));
        }
        let plan = Plan { all, tell: true, doubt: self.case.waits_for_others(), ..Plan::default() };
        let case = self.case;
        let (known, told) = (&self.gathered.search.critical, &mut self.told_first);
        let mut progress = |s: &Search| {
            let found = s.critical.len();
            let proved = known.iter().chain(&s.critical).find(|f| f.is_proved());
            if let Some(proved) = proved.filter(|_| !*told && case.begun.elapsed() > IMPATIENT) {
                *told = true;
                self.job.say_first(&case.code.locate(proved.trial.moment.pc));
            }
            self.job.say(&format!("{what}: {} of {} tried, {found} found", s.tried, trials.len()));
        };
        let found = diagnose::search(bench, trials, &case.failing, &case.oracle, &plan, &mut progress);
        let found = found.map_err(Refusal::internal)?;
        if found.left > 0 {
            self.gathered.limits.push(format!("{what}: {} of {} were tried", found.tried, trials.len()));
        }
        let tried = found.tried;
        self.gathered.search.absorb(found);
        self.gathered.spent(what, begun);
        Ok(tried)
    }
}

/// The order PRIOR for these executions of branches: indices.
pub fn prior(
    case: &Case<'_>,
    session: &mut Session,
    found: &Branches,
    within: Duration,
) -> Result<Vec<usize>, Refusal> {
    let until = Instant::now() + within;
    let mut stop = || Instant::now() > until || case::is_raised(&case.interrupted);
    let told = symptom::arguments(session)?;
    let start = symptom::start(case, session, &mut stop)?;
    let mapped = symptom::mapped(case, session)?;
    let symptom = symptom::follow(case, session, start, &mapped, &told, within).map_err(Refusal::internal)?;
    let near = Near::of(Some(&symptom), found);
    Ok(order::prior(&found.list, &near.known).0)
}
