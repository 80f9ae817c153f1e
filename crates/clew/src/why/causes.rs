//! From what trials and dependences say to a short list of causes, the best first.
//!
//! Proved causes come first: of those, the nearest to the symptom by dependences and the least often executed. A branch
//! that repairs the run need not be wrong itself: what it let happen may be, or the values that it tested. So the lines
//! around the best one, towards the symptom and back to what made its values, come in between; then who called when a
//! program died, and what else the symptom depends on, by the same weight. Each line is named once.

use super::places::Places;
use super::symptom::Symptom;
use super::values::{Replacement, Values};
use crate::case::words::{ordinal, repaired};
use crate::case::{Branches, Case};
use crate::slice::lines::{self, Squash};
use diagnose::order::{self, Influence};
use diagnose::{Change, Failure, Fault, Finding, Search, Verdict};
use model::serve::Moment;
use report::{Cause, Difference, Evidence, Kind, Place, Report, SliceLine, Tried};
use std::collections::{HashMap, HashSet};

/// Lines of the slice that are told, at most.
const SLICE_LINES: usize = 4000;
/// Calls on the stack that are named for each line of the slice.
const CALLS_FOR_EACH_LINE: usize = 2;
/// What the symptom does not depend on, as far as is known, is taken to be so far away.
const FAR: u32 = 40;
/// Dependences back from a proved cause that lead to its values: some statements, each of a few instructions.
const BACK: u32 = 12;

/// What was found by all methods.
pub struct Gathered {
    pub search: Search,
    pub branches: Branches,
    /// Where executions of branches are in the slice.
    pub nodes: HashMap<Moment, u32>,
    /// Executions of branches that are in the window but not in the slice.
    pub outside: HashMap<Moment, slice::Instance>,
    /// What the input had to do with executions of branches.
    pub influence: HashMap<Moment, Influence>,
    pub values: Values,
    /// Calls that were under way when the program died, the innermost first.
    pub stack: Vec<u64>,
    pub limits: Vec<String>,
    /// What the time went into.
    pub phases: Vec<(String, f64)>,
}

impl Gathered {
    pub fn new(limits: Vec<String>) -> Gathered {
        Gathered {
            search: Search::default(),
            branches: Branches::default(),
            nodes: HashMap::new(),
            outside: HashMap::new(),
            influence: HashMap::new(),
            values: Values::default(),
            stack: Vec::new(),
            limits,
            phases: Vec::new(),
        }
    }

    /// The node of the slice that a trial changed.
    fn node(&self, finding: &Finding) -> Option<u32> {
        match self.values.replacements.get(&finding.trial) {
            Some(r) => Some(self.values.stores[r.store].node),
            None => self.nodes.get(&finding.trial.moment).copied(),
        }
    }
}

/// The line, or the address if there is none.
fn key(place: &Place) -> (Option<String>, Option<u32>, String) {
    let address = if place.line.is_some() { String::new() } else { place.address.clone() };
    (place.full.clone(), place.line, address)
}

/// One change that repairs the run, as far as ranking goes.
struct Candidate<'a> {
    finding: &'a Finding,
    node: Option<u32>,
    /// Where it is in the window.
    at: Option<(u32, u16)>,
    distance: u32,
    /// How unlikely it is to be what is wrong.
    weight: u32,
    place: Place,
    /// It is in code that somebody else wrote: what compilers bring along.
    foreign: bool,
}

/// The whole answer.
pub fn report(
    case: &Case<'_>,
    mut gathered: Gathered,
    symptom: Option<&Symptom>,
    places: &mut Places<'_>,
    top: usize,
) -> Report {
    let mut causes = Vec::new();
    let mut named = HashSet::new();
    let mut squash = symptom.map(|s| Squash::new(&s.window, false));
    let mut candidates = candidates(&gathered, symptom, places);
    candidates
        .sort_by_key(|c| (!c.finding.is_proved(), c.foreign, c.weight, std::cmp::Reverse(c.finding.trial.moment)));
    candidates.retain(|c| named.insert(key(&c.place)));
    let around = around(&candidates, symptom, places, squash.as_mut());
    let mut around = around.into_iter().filter(|p| named.insert(key(&p.place)));
    for (n, c) in candidates.iter().take(top).enumerate() {
        let steps = path(symptom, c.node, places, squash.as_mut());
        causes.push(proved(case, &gathered, c, steps));
        // Three causes first, if there are three.
        if (n >= 2 || n + 1 == candidates.len())
            && let Some(near) = around.next()
        {
            let steps = path(symptom, near.node, places, squash.as_mut());
            causes.push(beside(case, near, &candidates[0], steps));
        }
    }
    drop(around);
    causes.truncate(top);
    let slice = symptom.zip(squash.as_mut()).map(|(s, squash)| slice_lines(case, s, places, squash));
    let slice = slice.unwrap_or_default();
    // Where it died and who called, then what that depended on.
    let calls = callers(&gathered.stack, places).into_iter().map(|p| (p, None));
    let lines = slice.iter().map(|(line, node)| (line.place.clone(), Some((line, *node))));
    for (place, line) in order::interleave(calls.collect(), lines.collect(), CALLS_FOR_EACH_LINE) {
        if causes.len() >= top {
            break;
        }
        if named.insert(key(&place)) {
            causes.push(match line {
                Some((line, node)) => suspected(case, line, path(symptom, Some(node), places, squash.as_mut())),
                None => caller(case, place),
            });
        }
    }
    if let Some((moment, why)) = gathered.search.doubtful.first() {
        let n = gathered.search.doubtful.len();
        gathered.limits.push(format!("{n} controls did not confirm the failure; the first, at {moment}: {why}"));
    }
    if let Some((moment, why)) = gathered.search.failed.first() {
        let n = gathered.search.failed.len();
        gathered.limits.push(format!("{n} trials could not be made; the first, at {moment}: {why}"));
    }
    gathered.limits.extend(symptom.iter().flat_map(|s| s.limits.iter().cloned()));
    let s = &gathered.search;
    Report {
        verb: "why".into(),
        recording: case.name(),
        process: case.unit.to_string(),
        command: Vec::new(),
        failure: describe(case, places),
        difference: difference(case),
        causes,
        slice: slice.into_iter().map(|(line, _)| line).take(SLICE_LINES).collect(),
        sources: Vec::new(),
        tried: Tried {
            trials: s.tried,
            controls: s.controls,
            verdicts: s.tally.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect(),
        },
        limits: gathered.limits,
        seconds: case.begun.elapsed().as_secs_f64(),
        phases: gathered.phases,
    }
}

fn candidates<'a>(gathered: &'a Gathered, symptom: Option<&Symptom>, places: &mut Places<'_>) -> Vec<Candidate<'a>> {
    let mut list = Vec::new();
    let mut wider = None;
    let mut through_pointers = |moment: Moment| {
        let s = symptom?;
        let instance = gathered.outside.get(&moment)?;
        let nodes = wider.get_or_insert_with(|| s.through_pointers());
        nodes.get(&(instance.execution, instance.insn)).copied()
    };
    for finding in &gathered.search.critical {
        let node = gathered.node(finding);
        let distance = node.zip(symptom).map(|(n, s)| s.slice.nodes[n as usize].distance);
        let distance = distance.or_else(|| through_pointers(finding.trial.moment)).unwrap_or(u32::MAX);
        let pc = match gathered.values.replacements.get(&finding.trial) {
            Some(r) => gathered.values.stores[r.store].execution.moment.pc,
            None => finding.trial.moment.pc,
        };
        let influence = gathered.influence.get(&finding.trial.moment).copied().unwrap_or_default();
        let weight = order::weight(distance.min(FAR), gathered.branches.count(pc), influence);
        let in_slice = node.zip(symptom).map(|(n, s)| &s.slice.nodes[n as usize]).map(|n| (n.execution, n.insn));
        let outside = gathered.outside.get(&finding.trial.moment).map(|i| (i.execution, i.insn));
        let at = in_slice.or(outside);
        let foreign = !places.is_own(pc);
        list.push(Candidate { finding, node, at, distance, weight, place: places.of(pc), foreign });
    }
    list
}

/// A line around a proved cause.
struct Beside {
    place: Place,
    node: Option<u32>,
    towards: bool,
}

/// Lines around the best cause: what it leads to, and what its values come from, in turn.
fn around(
    candidates: &[Candidate<'_>],
    symptom: Option<&Symptom>,
    places: &mut Places<'_>,
    squash: Option<&mut Squash<'_>>,
) -> Vec<Beside> {
    let (Some(s), Some(squash), Some(best)) = (symptom, squash, candidates.first()) else { return Vec::new() };
    let mut shown = |nodes: Vec<slice::Node>, numbers: Option<Vec<u32>>, towards: bool| {
        let mut list: Vec<Beside> = Vec::new();
        for (n, at) in nodes.iter().enumerate() {
            let Some((_, pc)) = squash.shown(at, &mut places.origins) else { continue };
            let place = places.of(pc);
            if place.source.as_ref().is_some_and(|text| !text.contains(char::is_alphanumeric)) {
                continue;
            }
            if key(&place) != key(&best.place) && list.iter().all(|b| key(&b.place) != key(&place)) {
                list.push(Beside { place, node: numbers.as_ref().map(|l| l[n]), towards });
            }
        }
        list
    };
    let way = best.node.map(|node| s.slice.path(node)).unwrap_or_default();
    let way: Vec<u32> = way.into_iter().skip(1).filter(|n| *n != 0).collect();
    let forth = shown(way.iter().map(|n| s.slice.nodes[*n as usize]).collect(), Some(way), true);
    let Some(at) = best.at else { return forth };
    let criterion = slice::Criterion { at: Some(at), ..slice::Criterion::default() };
    let how = slice::Options { data_only: true, depth: BACK, ..slice::Options::default() };
    let made = slice::backward(&s.window, &criterion, &how, &mut slice::NoFacts, &mut || false);
    let mut made: Vec<slice::Node> = made.nodes.into_iter().skip(1).collect();
    made.sort_by_key(|n| (n.distance, std::cmp::Reverse(n.execution)));
    let back = shown(made, None, false);
    order::interleave(forth, back, 1)
}

/// A line around a proved cause, as a suspect.
fn beside(case: &Case<'_>, near: Beside, best: &Candidate<'_>, path: Vec<report::Step>) -> Cause {
    let explanation = match near.towards {
        true => format!("{} let it happen, and it leads on to the failure", best.place.short()),
        false => format!("it made a value that {} tests", best.place.short()),
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

/// A cause that a trial speaks for.
fn proved(case: &Case<'_>, gathered: &Gathered, c: &Candidate<'_>, path: Vec<report::Step>) -> Cause {
    let finding = c.finding;
    let moment = finding.trial.moment;
    let replacement = gathered.values.replacements.get(&finding.trial);
    let (n, of) = match replacement {
        Some(r) => {
            let p = gathered.values.stores[r.store].execution;
            (p.instance, p.instance)
        }
        None => {
            let n = gathered.branches.at(moment).map_or(1, |p| p.instance);
            (n, gathered.branches.count(moment.pc).max(n))
        }
    };
    let kind = match (&finding.trial.change, replacement) {
        (_, Some(r)) if r.left_out => Kind::Suppression,
        (_, Some(_)) => Kind::Value,
        (Change::Force(_), _) => Kind::ForcedPredicate,
        (Change::Skip(_) | Change::Return, _) => Kind::Suppression,
        _ => Kind::CriticalPredicate,
    };
    let numbered = replacement.is_some() || gathered.branches.numbered;
    let which = match (of > 1, numbered) {
        (false, _) => String::new(),
        (true, true) => format!(" on its {} execution", ordinal(n)),
        (true, false) => " on one of its last executions".to_owned(),
    };
    let line = c.place.line.map_or_else(|| c.place.address.clone(), |l| format!("line {l}"));
    let what = match (&finding.trial.change, replacement) {
        (_, Some(Replacement { was, is, left_out, .. })) => match left_out {
            true => format!("if {line} does not store {was:#x} and {is:#x} stays there{which}"),
            false => format!("if {line} stores {is:#x} instead of {was:#x}{which}"),
        },
        (Change::Force(true), _) => format!("with the branch in {line} always taken"),
        (Change::Force(false), _) => format!("with the branch in {line} never taken"),
        _ => format!("with {line} taken the other way{which}"),
    };
    let alteration = match &finding.trial.change {
        Change::Flip if numbered => format!("flip {}#{n}", c.place.address),
        Change::Flip => format!("flip {} at {moment}", c.place.address),
        Change::FlipTwo { pc, execution } => format!("flip {} and {pc:#x}#{execution} behind it", c.place.address),
        Change::Force(taken) => format!("force {} {}", c.place.address, if *taken { "taken" } else { "not taken" }),
        Change::SetMemory(at, bytes) => format!("set {:#x} {}", at.0, hex(bytes)),
        Change::Skip(to) => format!("skip {} to {to:#x}", c.place.address),
        Change::Return => format!("return {}", c.place.address),
        Change::Nothing => "none".into(),
    };
    Cause {
        kind: if finding.verdict == Verdict::Fixed { kind } else { Kind::Avoiding },
        proved: finding.is_proved(),
        instance: numbered.then_some((n, of)),
        distance: (c.distance != u32::MAX).then_some(c.distance),
        explanation: format!("{what} the program {}", repaired(&case.oracle)),
        doubt: finding.doubt.clone(),
        evidence: Some(Evidence {
            moment: moment.to_string(),
            alteration,
            verdict: finding.verdict.name().into(),
            end: finding.run.end.to_string(),
        }),
        path,
        closer: closer(case, &c.place, Some(moment)),
        place: c.place.clone(),
    }
}

/// Own lines of these calls, each once.
fn callers(stack: &[u64], places: &mut Places<'_>) -> Vec<Place> {
    let mut list: Vec<Place> = Vec::new();
    for pc in stack {
        if places.is_own(*pc) {
            let place = places.of(*pc);
            if list.iter().all(|p| key(p) != key(&place)) {
                list.push(place);
            }
        }
    }
    list
}

/// A call that was under way when the program died.
fn caller(case: &Case<'_>, place: Place) -> Cause {
    Cause {
        kind: Kind::Dependence,
        proved: false,
        instance: None,
        distance: None,
        explanation: "it is on the stack when the program dies".into(),
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
        (Some(moment), ..) => format!("clew gdb {recording} -- -ex 'monitor seek {moment}'"),
        (None, Some(file), Some(line)) => format!("clew gdb {recording} -- -ex 'break {file}:{line}' -ex continue"),
        _ => format!("clew gdb {recording}"),
    }
}

/// Own lines of the slice with their nearest nodes.
fn slice_lines(
    case: &Case<'_>,
    symptom: &Symptom,
    places: &mut Places<'_>,
    squash: &mut Squash<'_>,
) -> Vec<(SliceLine, u32)> {
    let died = match case.failing.failure {
        Failure::Crash { pc, .. } => Some(pc),
        _ => None,
    };
    let none = HashSet::new();
    let found = lines::gather(&symptom.window, &symptom.slice, &none, died, &mut places.origins, squash);
    let mut all = Vec::new();
    for line in found.list.iter().filter(|l| l.origin.own) {
        let node = line.node;
        let source = places.source(&line.origin);
        // A brace is where a function sets up its frame; nobody learns anything from it.
        if source.as_ref().is_some_and(|text| !text.contains(char::is_alphanumeric)) {
            continue;
        }
        let place = Place {
            file: line.origin.file.as_ref().map(|f| f.display().to_string()),
            full: line.origin.full.as_ref().map(|f| f.display().to_string()),
            line: line.origin.line,
            function: line.origin.function.clone(),
            address: line.origin.address.clone(),
            source,
        };
        let shown = SliceLine { place, distance: line.distance, instances: line.instances, executed: line.executed };
        all.push((shown, node));
    }
    all.sort_by_key(|(line, node)| {
        // Whether bytes of the input or decisions about them led there makes no difference to a statement.
        let influence = symptom.influence(symptom.slice.nodes[*node as usize].execution).max(Influence::Control);
        order::weight(line.distance, line.executed, influence)
    });
    all
}

/// What is wrong, in one clause.
fn describe(case: &Case<'_>, places: &mut Places<'_>) -> String {
    match &case.failing.failure {
        Failure::Crash { signal, pc } => {
            let name = session::signal_name(*signal as i32);
            match places.is_own(*pc) {
                true => format!("it dies of {name} at {}", places.of(*pc).short()),
                false => format!("it dies of {name}"),
            }
        }
        other => other.to_string(),
    }
}

fn difference(case: &Case<'_>) -> Option<Difference> {
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
