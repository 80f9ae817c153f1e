//! From what trials and dependences say to a short list of causes, the best first.
//!
//! Proved causes come first: of those, the nearest to the symptom by dependences. Then lines that lead from them to the
//! symptom, then what else the symptom depends on, the nearest first. Each line is named once.

use super::places::Places;
use super::symptom::Symptom;
use super::values::{Replacement, Values};
use crate::case::{Branches, Case};
use crate::message::Paint;
use crate::slice::lines::{self, Squash};
use diagnose::{Change, Failure, Finding, Oracle, Search, Verdict};
use model::serve::Moment;
use report::{Cause, Difference, Evidence, Kind, Place, Report, SliceLine, Tried};
use std::collections::{HashMap, HashSet};
use std::fmt::Write;

/// Lines of the slice that are told, at most.
const SLICE_LINES: usize = 4000;
/// Output up to this is repeated in a sentence.
const SHORT: usize = 40;

/// What was found by all methods.
pub struct Gathered {
    pub search: Search,
    pub branches: Branches,
    /// Where executions of branches are in the slice.
    pub nodes: HashMap<Moment, u32>,
    pub values: Values,
    pub limits: Vec<String>,
}

impl Gathered {
    pub fn new(limits: Vec<String>) -> Gathered {
        Gathered {
            search: Search::default(),
            branches: Branches::default(),
            nodes: HashMap::new(),
            values: Values::default(),
            limits,
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
    distance: u32,
    place: Place,
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
    candidates.sort_by_key(|c| (!c.finding.is_proved(), c.distance, std::cmp::Reverse(c.finding.trial.moment)));
    for c in &candidates {
        if causes.len() < top && named.insert(key(&c.place)) {
            let path = path(symptom, c.node, places, squash.as_mut());
            causes.push(proved(case, &gathered, c, path));
        }
    }
    let slice = symptom.zip(squash.as_mut()).map(|(s, squash)| slice_lines(case, s, places, squash));
    let slice = slice.unwrap_or_default();
    for (line, node) in &slice {
        if causes.len() >= top {
            break;
        }
        if named.insert(key(&line.place)) {
            let path = path(symptom, Some(*node), places, squash.as_mut());
            causes.push(suspected(case, line, path));
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
    }
}

fn candidates<'a>(gathered: &'a Gathered, symptom: Option<&Symptom>, places: &mut Places<'_>) -> Vec<Candidate<'a>> {
    let mut list = Vec::new();
    for finding in &gathered.search.critical {
        let node = gathered.node(finding);
        let distance = node.zip(symptom).map_or(u32::MAX, |(n, s)| s.slice.nodes[n as usize].distance);
        let pc = match gathered.values.replacements.get(&finding.trial) {
            Some(r) => gathered.values.stores[r.store].execution.moment.pc,
            None => finding.trial.moment.pc,
        };
        list.push(Candidate { finding, node, distance, place: places.of(pc) });
    }
    list
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
        (Change::Skip(_), _) => Kind::Suppression,
        _ => Kind::CriticalPredicate,
    };
    let which = if of > 1 { format!(" on its {} execution", ordinal(n)) } else { String::new() };
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
        Change::Flip => format!("flip {}#{n}", c.place.address),
        Change::Force(taken) => format!("force {} {}", c.place.address, if *taken { "taken" } else { "not taken" }),
        Change::SetMemory(at, bytes) => format!("set {:#x} {}", at.0, hex(bytes)),
        Change::Skip(to) => format!("skip {} to {to:#x}", c.place.address),
        Change::Nothing => "none".into(),
    };
    Cause {
        kind: if finding.verdict == Verdict::Fixed { kind } else { Kind::Avoiding },
        proved: finding.is_proved(),
        instance: Some((n, of)),
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
        closer: closer(case, &c.place),
        place: c.place.clone(),
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
        closer: closer(case, &line.place),
        place: line.place.clone(),
    }
}

fn closer(case: &Case<'_>, place: &Place) -> String {
    match (&place.file, place.line) {
        (Some(file), Some(line)) => format!("clew gdb {} -- -ex 'break {file}:{line}'", case.name()),
        _ => format!("clew gdb {}", case.name()),
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
        let place = Place {
            file: line.origin.file.as_ref().map(|f| f.display().to_string()),
            full: line.origin.full.as_ref().map(|f| f.display().to_string()),
            line: line.origin.line,
            function: line.origin.function.clone(),
            address: line.origin.address.clone(),
            source: places.source(&line.origin),
        };
        let shown = SliceLine { place, distance: line.distance, instances: line.instances, executed: line.executed };
        all.push((shown, node));
    }
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

/// What a repaired run does.
fn repaired(oracle: &Oracle) -> String {
    let short = oracle.stdout.as_deref().filter(|e| e.len() <= SHORT).and_then(|e| std::str::from_utf8(e).ok());
    match short.map(str::trim_end) {
        Some(text) if !text.is_empty() && !text.contains(char::is_control) => format!("prints {text} as expected"),
        _ if oracle.sees_results() => "does what is expected".into(),
        _ => match oracle.exit {
            Some(status) => format!("exits with {status} as expected"),
            None => "passes the place where it failed and ends by itself".into(),
        },
    }
}

fn ordinal(n: u64) -> String {
    let ending = match (n % 10, n % 100) {
        (1, rest) if rest != 11 => "st",
        (2, rest) if rest != 12 => "nd",
        (3, rest) if rest != 13 => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The answer as text.
pub fn text(report: &Report, paint: Paint) -> String {
    let mut out = format!("The run fails: {}.\n", report.failure);
    for (n, c) in report.causes.iter().enumerate() {
        let status = if c.proved { paint.good("proved") } else { paint.middling("suspected") };
        let function = c.place.function.as_ref().map(|f| format!(" in {f}")).unwrap_or_default();
        let _ = writeln!(out, "\n{}. {}{function}  {status}", n + 1, paint.strong(&c.place.short()));
        if let Some(text) = &c.place.source {
            let _ = writeln!(out, "     {text}");
        }
        let _ = writeln!(out, "   {}", c.explanation);
    }
    let _ =
        writeln!(out, "\n{} trials, {} controls, {:.1} s", report.tried.trials, report.tried.controls, report.seconds);
    for limit in &report.limits {
        let _ = writeln!(out, "limit: {limit}");
    }
    out
}
