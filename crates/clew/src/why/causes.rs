//! From what trials and dependences say to a short list of causes, the best first.
//!
//! Proved causes come first: of those, the nearest to the symptom by dependences and the least often executed. A branch
//! that repairs the run need not be wrong itself: what it let happen may be, or the values that it tested. So the lines
//! around the best one, towards the symptom and back to what made its values, come in between; then who called when a
//! program died, and what else the symptom depends on, by the same weight. Each line is named once.

use super::cut::Cut;
use super::gathered::Gathered;
use super::places::Places;
use super::rank::{Candidate, Ranking, Turn};
use super::sentences::Altered;
use super::suspects::{Beside, around, callers, slice_lines};
use super::symptom::{self, Mapped, Symptom};
use crate::case::words::{avoided, repaired};
use crate::case::{Case, is_raised};
use crate::slice::lines::Squash;
use diagnose::order;
use diagnose::{Change, End, Failure, Fault, Search, Verdict};
use model::serve::Moment;
use report::{Cause, Decision, Difference, Evidence, Execution, Kind, Place, Report, SliceLine, Tried};
use session::{Budget, Session};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Lines of the slice that are told, at most.
const SLICE_LINES: usize = 4000;
/// A number of dependences above this says nothing to anybody.
const COUNTED: u32 = 1000;
/// Calls on the stack that are named for each line of the slice.
const CALLS_FOR_EACH_LINE: usize = 2;

/// What an answer is made from, beside what was found.
pub struct Telling<'a> {
    pub case: &'a Case<'a>,
    pub symptom: Option<&'a Symptom>,
    pub mapped: &'a Mapped,
    /// What trials may use.
    pub budget: Budget,
    /// How long the repaired run may be looked at.
    pub within: Duration,
    pub top: usize,
}

impl Telling<'_> {
    /// How a switched branch leads to the failure, beside the repaired run; nothing if that is not known.
    fn beside_repaired(&self, c: &Candidate<'_>, session: &mut Session, places: &mut Places<'_>) -> Vec<report::Step> {
        let (Some(s), true) = (self.symptom, c.finding.is_proved()) else { return Vec::new() };
        if c.finding.trial.change != Change::Flip {
            return Vec::new();
        }
        let until = Instant::now() + self.within;
        let mut stop = || Instant::now() > until || is_raised(&self.case.interrupted);
        let beside = crate::dual::Beside {
            case: self.case,
            mapped: self.mapped,
            budget: &self.budget,
            criterion: &s.start.criterion,
            symptom: s.start.moment,
        };
        beside.way(session, &c.finding.trial, places, &mut stop).unwrap_or_default()
    }
}

/// The whole answer.
pub fn report(telling: &Telling<'_>, mut gathered: Gathered, places: &mut Places<'_>, session: &mut Session) -> Report {
    let Telling { case, symptom, top, .. } = *telling;
    let mut named = HashSet::new();
    let mut squash = symptom.map(|s| Squash::new(&s.window, false));
    let until = Instant::now() + telling.within;
    let mut stop = || Instant::now() > until || is_raised(&case.interrupted);
    let ranking = Ranking::of(&gathered, symptom, squash.as_ref().map(|s| &s.sites), places, &mut stop);
    let candidates = &ranking.candidates;
    let needed = needed(case, &gathered, candidates);
    named.extend(candidates.iter().map(|c| c.place.key()));
    let around = around(candidates, symptom, places, squash.as_mut());
    let mut seen = named.clone();
    let around: Vec<Beside> = around.into_iter().filter(|p| seen.insert(p.place.key())).collect();
    let mut causes = in_turns(telling, &gathered, &ranking, around, places, squash.as_mut(), session);
    let cut = gathered.cut.as_ref().filter(|_| candidates.iter().all(|c| !c.is_cut));
    if let Some(cut) =
        cut.map(|cut| cut_place(case, cut, path(symptom, Some(cut.node), places, squash.as_mut()), places))
    {
        causes.retain(|c| c.proved || c.place.key() != cut.place.key());
        causes.insert(causes.len().min(1), cut);
        causes.truncate(top);
    }
    named.extend(causes.iter().map(|c| c.place.key()));
    let slice = symptom.zip(squash.as_mut()).map(|(s, squash)| slice_lines(case, s, places, squash));
    let slice = slice.unwrap_or_default();
    // Where it died and who called, then what that depended on.
    let best = candidates.first().filter(|_| gathered.stack.is_empty());
    let under_way = best.and_then(|best| calls_at(best, case, session, places));
    let calls = callers(under_way.as_ref().unwrap_or(&gathered.stack), places);
    let calls = calls.into_iter().filter(|p| !named.contains(&p.key())).map(|p| (p, None));
    let lines = slice.iter().map(|(line, node)| (line.place.clone(), Some((line, *node))));
    for (place, line) in order::interleave(calls.collect(), lines.collect(), CALLS_FOR_EACH_LINE) {
        if causes.len() >= top {
            break;
        }
        if named.insert(place.key()) {
            causes.push(match line {
                Some((line, node)) => suspected(case, line, path(symptom, Some(node), places, squash.as_mut())),
                None => caller(case, place, best.map(|c| &c.place)),
            });
        }
    }
    add_limits(&mut gathered, case, symptom);
    Report {
        verb: "why".into(),
        recording: case.name(),
        process: case.unit.to_string(),
        command: case.command(),
        failure: describe(case, places, &gathered),
        difference: difference(case),
        causes,
        needed,
        slice: slice.into_iter().map(|(line, _)| line).take(SLICE_LINES).collect(),
        sources: Vec::new(),
        tried: tried(&gathered.search),
        limits: gathered.limits,
        seconds: case.begun.elapsed().as_secs_f64(),
        phases: gathered.phases,
    }
}

/// What repairs the run, with what is around the best of it.
fn in_turns(
    telling: &Telling<'_>,
    gathered: &Gathered,
    ranking: &Ranking<'_>,
    around: Vec<Beside>,
    places: &mut Places<'_>,
    mut squash: Option<&mut Squash<'_>>,
    session: &mut Session,
) -> Vec<Cause> {
    let Telling { case, symptom, top, .. } = *telling;
    let candidates = &ranking.candidates;
    let (mut causes, mut around) = (Vec::new(), around.into_iter());
    let mut calls = ranking.calls(places).into_iter();
    let mut proofs = candidates.iter().enumerate().peekable();
    for turn in ranking.turns() {
        if causes.len() >= top {
            break;
        }
        match turn {
            Turn::Repair => {
                let Some((n, c)) = proofs.next() else { break };
                let mut steps = if n == 0 { telling.beside_repaired(c, session, places) } else { Vec::new() };
                if steps.is_empty() {
                    steps = path(symptom, c.node, places, squash.as_deref_mut());
                }
                causes.push(proved(case, gathered, c, steps, places));
            }
            Turn::Call if proofs.peek().is_some() => {
                let told: HashSet<_> = causes.iter().map(|c| c.place.key()).collect();
                let repairs = |key: &_| candidates.iter().any(|c| c.place.key() == *key);
                let next = calls.find(|c| !told.contains(&c.key()) && !repairs(&c.key()));
                causes.extend(next.map(|c| critical_call(case, c)));
            }
            Turn::Call => {}
            Turn::Around => {
                let Some(near) = around.next() else { continue };
                let steps = path(symptom, near.node, places, squash.as_deref_mut());
                causes.push(beside(case, near, &candidates[0], steps));
            }
        }
    }
    causes
}

fn tried(search: &Search) -> Tried {
    Tried {
        trials: search.tried,
        controls: search.controls,
        verdicts: search.tally.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect(),
    }
}

/// Calls that were under way at a cause; the innermost is no call, but that place.
fn calls_at(c: &Candidate<'_>, case: &Case<'_>, session: &mut Session, places: &mut Places<'_>) -> Option<Vec<u64>> {
    session.seek(c.moment, &mut || false).ok()?;
    let stack = symptom::stack(case, session);
    // What a call hands over is seen in the function that it calls.
    let here = stack.iter().position(|pc| places.of(*pc).key() == c.place.key()).unwrap_or(0);
    Some(stack.into_iter().skip(here + 1).collect())
}

/// What was not done, or is not known.
fn add_limits(gathered: &mut Gathered, case: &Case<'_>, symptom: Option<&Symptom>) {
    if let Some((moment, why)) = gathered.search.doubtful.first() {
        let n = gathered.search.doubtful.len();
        gathered.limits.push(format!("{n} controls did not confirm the failure; the first, at {moment}: {why}"));
    }
    if let Some((moment, why)) = gathered.search.failed.first() {
        let n = gathered.search.failed.len();
        gathered.limits.push(format!("{n} trials could not be made; the first, at {moment}: {why}"));
    }
    let avoiding = gathered.search.avoiding.len();
    if avoiding > 0 && !case.oracle.sees_results() {
        gathered.limits.push(avoided(avoiding));
    }
    if is_raised(&case.interrupted) {
        gathered.limits.push("it was interrupted: this is what was found until then".into());
    }
    gathered.limits.extend(symptom.iter().flat_map(|s| s.limits.iter().cloned()));
}

/// A call under which many branches repair the run, as a suspect.
fn critical_call(case: &Case<'_>, place: Place) -> Cause {
    Cause {
        kind: Kind::Dependence,
        proved: false,
        instance: None,
        distance: None,
        explanation: "more branches under this call repair the run than elsewhere".into(),
        doubt: Some("no trial changed the call itself".into()),
        evidence: None,
        path: Vec::new(),
        closer: closer(case, &place, None),
        place,
    }
}

/// A line around a proved cause, as a suspect.
fn beside(case: &Case<'_>, near: Beside, best: &Candidate<'_>, path: Vec<report::Step>) -> Cause {
    let explanation = match near.towards {
        true => format!("{} let it happen, and it leads on to the failure", best.place.short()),
        false => format!("it made a value that {} uses", best.place.short()),
    };
    Cause {
        kind: Kind::Dependence,
        proved: false,
        instance: None,
        distance: None,
        explanation,
        doubt: Some("no trial changed it".into()),
        evidence: None,
        path,
        closer: closer(case, &near.place, None),
        place: near.place,
    }
}

fn path(
    symptom: Option<&Symptom>,
    node: Option<u32>,
    places: &mut Places<'_>,
    squash: Option<&mut Squash<'_>>,
) -> Vec<report::Step> {
    match (symptom, node, squash) {
        (Some(s), Some(node), Some(squash)) => places.path(s, node, squash),
        _ => Vec::new(),
    }
}

/// Decisions each of which the failure needs, as they came.
fn needed(case: &Case<'_>, gathered: &Gathered, candidates: &[Candidate<'_>]) -> Vec<Decision> {
    let proved = candidates.iter().filter(|c| c.finding.is_proved() && c.finding.trial.change == Change::Flip);
    let mut list: Vec<(Moment, Decision)> = proved
        .map(|c| {
            let moment = c.finding.trial.moment;
            let place = c.foreign.as_ref().unwrap_or(&c.place).clone();
            (moment, Decision { place, instance: execution(case, gathered, moment, instance(gathered, moment)) })
        })
        .collect();
    list.sort_by_key(|(moment, _)| *moment);
    list.into_iter().map(|(_, decision)| decision).collect()
}

/// The number of an execution at a moment. How many there are in all nobody knows of a program that did not end, unless it is of a
/// branch that the rounds do not go through.
fn execution(case: &Case<'_>, gathered: &Gathered, moment: Moment, (number, of): (u64, u64)) -> Execution {
    let is_before = gathered.branches.at(moment).is_some() && gathered.rounds.count(moment.pc) == 0;
    let is_known = case.failing.run.end != End::StillRunning || case.failing.failure == Failure::Hang && is_before;
    Execution { number, of: is_known.then_some(of) }
}

/// Which execution of a branch it is, and how many there are until the failure.
fn instance(gathered: &Gathered, moment: Moment) -> (u64, u64) {
    let n = gathered.branches.at(moment).map_or(1, |p| p.instance);
    (n, gathered.branches.count(moment.pc).max(n))
}

/// A cause that a trial speaks for.
fn proved(
    case: &Case<'_>,
    gathered: &Gathered,
    c: &Candidate<'_>,
    path: Vec<report::Step>,
    places: &mut Places<'_>,
) -> Cause {
    let finding = c.finding;
    let moment = finding.trial.moment;
    let replacement = gathered.values.replacements.get(&finding.trial);
    let (n, of) = match replacement {
        Some(r) => {
            let store = &gathered.values.stores[r.store];
            (store.execution.instance, store.times)
        }
        None => gathered.arm_of(finding).map_or_else(|| instance(gathered, moment), |arm| arm.instance),
    };
    let kind = match (&finding.trial.change, replacement) {
        (_, Some(r)) if r.left_out => Kind::Suppression,
        (_, Some(_)) => Kind::Value,
        (Change::Force(_), _) => Kind::ForcedPredicate,
        (Change::Skip(_) | Change::Return, _) => Kind::Suppression,
        _ => Kind::CriticalPredicate,
    };
    let numbered = replacement.is_some() || gathered.arm_of(finding).is_some() || gathered.branches.numbered;
    let altered = Altered { gathered, c, replacement, instance: (n, of), numbered };
    Cause {
        kind,
        proved: finding.is_proved(),
        instance: (numbered && kind != Kind::ForcedPredicate && !c.is_cut && c.foreign.is_none())
            .then(|| execution(case, gathered, moment, (n, of))),
        distance: (c.distance != u32::MAX).then_some(c.distance),
        explanation: match finding.is_repair() {
            true => format!("{} {} {}", altered.what(places), case.subject(), repaired(&case.oracle)),
            false => format!("{} the first wrong piece of the output is right", altered.what(places)),
        },
        doubt: match &finding.verdict {
            Verdict::OtherFailure(failure) => Some(format!("the run goes wrong later: {failure}")),
            _ => finding.doubt.clone(),
        },
        evidence: Some(Evidence {
            moment: moment.to_string(),
            alteration: altered.alteration(),
            verdict: finding.verdict.name().into(),
            end: finding.end.to_string(),
        }),
        path,
        closer: closer(case, &c.place, Some(c.moment)),
        place: c.place.clone(),
    }
}

/// Where the right number was cut, if no trial speaks for it: where the number goes on it may be too long to be stored.
fn cut_place(case: &Case<'_>, cut: &Cut, path: Vec<report::Step>, places: &mut Places<'_>) -> Cause {
    let place = places.of(cut.pc);
    let (whole, kept) = (cut.whole, cut.kept);
    let taken = places.of(cut.moment.pc).short();
    Cause {
        kind: Kind::Dependence,
        proved: false,
        instance: None,
        distance: None,
        explanation: match cut.handed_over {
            true => format!("it hands over {whole}, the right number, of which {taken} takes {kept} bytes"),
            false => format!("it keeps {kept} bytes of {whole}, the right number"),
        },
        doubt: Some("both numbers were seen in the run, but there is no room for the whole one to try it".into()),
        evidence: None,
        path,
        closer: closer(case, &place, Some(cut.moment)),
        place,
    }
}

/// A call that was under way when the program died, or when a cause was reached.
fn caller(case: &Case<'_>, place: Place, reached: Option<&Place>) -> Cause {
    Cause {
        kind: Kind::Dependence,
        proved: false,
        instance: None,
        distance: None,
        explanation: match reached {
            Some(cause) => format!("{} is reached through this call", cause.short()),
            None => "it is on the stack when the program dies".into(),
        },
        doubt: Some("no trial speaks for it".into()),
        evidence: None,
        path: Vec::new(),
        closer: closer(case, &place, None),
        place,
    }
}

/// A line that the symptom depends on.
fn suspected(case: &Case<'_>, line: &SliceLine, path: Vec<report::Step>) -> Cause {
    let steps = match line.distance {
        0 => "it is where the failure shows".to_owned(),
        1 => "what is wrong depends on it directly".to_owned(),
        n if n > COUNTED => "what is wrong depends on it, a long way back".to_owned(),
        n => format!("what is wrong depends on it, {n} dependences away"),
    };
    Cause {
        kind: Kind::Dependence,
        proved: false,
        instance: None,
        distance: Some(line.distance),
        explanation: steps,
        doubt: Some("no trial speaks for it".into()),
        evidence: None,
        path,
        closer: closer(case, &line.place, None),
        place: line.place.clone(),
    }
}

/// A command that goes there.
fn closer(case: &Case<'_>, place: &Place, moment: Option<Moment>) -> String {
    let recording = match case.opened.recording.units().len() {
        1 => case.name(),
        _ => format!("{}:{}", case.name(), case.unit),
    };
    match (moment, &place.file, place.line) {
        (Some(moment), ..) => format!("clew gdb {recording} -- -ex 'seek {moment}'"),
        (None, Some(file), Some(line)) => format!("clew gdb {recording} -- -ex 'break {file}:{line}' -ex continue"),
        _ => format!("clew gdb {recording}"),
    }
}

/// What is wrong, in one clause.
fn describe(case: &Case<'_>, places: &mut Places<'_>, gathered: &Gathered) -> String {
    let what = match &case.failing.failure {
        Failure::Crash { signal, pc } => {
            let name = session::signal_name(*signal as i32);
            match places.is_own(*pc) {
                true => format!("it dies of {name} at {}", places.of(*pc).short()),
                false => match gathered.stack.iter().find(|pc| places.is_own(**pc)) {
                    Some(caller) => format!("it dies of {name} in what {} calls", places.of(*caller).short()),
                    None => format!("it dies of {name}"),
                },
            }
        }
        other => other.to_string(),
    };
    let what = case.with_subject(what);
    gathered.standing.as_ref().map_or_else(|| what.clone(), |standing| format!("{what}: {standing}"))
}

pub fn difference(case: &Case<'_>) -> Option<Difference> {
    if let Failure::WrongFile { name, fault } = &case.failing.failure {
        let n = case.file_number(name)?;
        let offset = match fault {
            Fault::Absent => return None,
            Fault::WrongByte { offset, .. } | Fault::Missing { offset, .. } | Fault::Extra { offset, .. } => *offset,
        };
        let (expected, found) = (case.oracle.files[n].contents.clone(), case.failing.run.files.get(n)?.clone()?);
        return Some(Difference { stream: name.clone(), expected, found, offset });
    }
    let (stream, offset) = match &case.failing.failure {
        Failure::WrongByte { stream, offset, .. }
        | Failure::Missing { stream, offset, .. }
        | Failure::Extra { stream, offset, .. } => (*stream, *offset),
        _ => return None,
    };
    let o = &case.oracle;
    let expected = match stream {
        diagnose::Stream::Stdout => o.stdout.clone(),
        diagnose::Stream::Stderr => o.stderr.clone(),
        diagnose::Stream::Both => o.both.clone(),
    };
    let found = case.failing.run.stream(stream);
    Some(Difference { stream: stream.to_string(), expected: expected?, found, offset })
}
