//! From critical predicates to the lines that matter: which lines to read, in which order.
//!
//! ```text
//! symptom ─ slice back ─┐
//! input ─ walk forward ─┴▶ FiChop ─┐
//! predicate ─ back and forth ─▶ BiS ┴▶ BiChop, by dependences from the predicate
//! ```
//! Where the input has nothing to do with what the symptom depends on there is no FiChop, and BiChop is BiS. Where no
//! predicate was found, FiChop is what is left to read, by dependences from the symptom.
//!
//! Guarantees: lines are the program's own; what library code did counts where it was called.
//! May miss: what is beyond the window that `why::symptom` traces; all input counts, unless `--input-bytes` names the part
//! that makes the failure.

use crate::case::{Bench, Case, Refusal, is_raised};
use crate::dual::Beside;
use crate::message::Paint;
use crate::show::count;
use crate::slice::lines::{self, Squash};
use crate::why::near;
use crate::why::places::Places;
use crate::why::symptom::{self, Mapped, Symptom};
use diagnose::{Failure, Finding};
use model::serve::{Moment, Predicate};
use report::{SliceLine, Step};
use serde_json::{Value, json};
use session::Session;
use slice::{Criterion, Forward, Instance, Slice};
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Predicates whose lines are told, the first ones.
const MOST_PREDICATES: usize = 3;
/// Executions of a predicate's instruction that are looked through, from the last one back.
const KEEP: u32 = 1 << 20;
/// Instructions of a slice, at most.
const MOST_NODES: usize = 6_000_000;
/// Lines that a text tells.
const SHOWN: usize = 20;

/// What is to be read.
#[derive(Default)]
pub struct Chops {
    /// Own lines that were executed, as far as was looked.
    executed: usize,
    /// FiChop, by distance from the symptom.
    from_input: Option<Vec<SliceLine>>,
    predicates: HashMap<Moment, Around>,
    pub limits: Vec<String>,
}

/// Lines around one predicate.
struct Around {
    /// How it leads to the failure, compared with the repaired run.
    way: Vec<Step>,
    /// Own lines of its bidirectional slice.
    both_sides: usize,
    /// BiChop, by distance from the predicate.
    lines: Vec<SliceLine>,
}

impl Chops {
    /// Finds the lines for the first of these findings; of none, what the symptom and the input have in common.
    pub fn find(
        case: &Case<'_>,
        bench: &mut Bench<'_>,
        findings: &[Finding],
        within: Duration,
    ) -> Result<Chops, Refusal> {
        let (session, budget) = (&mut bench.session, bench.budget);
        let until = Instant::now() + within;
        let mut stop = || Instant::now() > until || is_raised(&case.interrupted);
        let told = symptom::arguments(session)?;
        let start = symptom::start(case, session, &mut stop)?;
        let mapped = symptom::mapped(case, session)?;
        let symptom = match symptom::follow(case, session, start, &mapped, &told, within) {
            Ok(symptom) => symptom,
            Err(why) => {
                let limits = vec![format!("no lines are told: {why}")];
                return Ok(Chops { limits, ..Chops::default() });
            }
        };
        let mut work = Work::new(&symptom, &mapped);
        let input = slice::from_input(&symptom.window, &symptom.slice, &symptom.told, &mut stop);
        // Of half a walk nobody knows what it would still have reached.
        let is_half = input.cut && !symptom.slice.cut;
        let input = Some(input).filter(|chop| chop.size > 0 && !is_half);
        let died = match case.failing.failure {
            Failure::Crash { pc, .. } => Some(pc),
            _ => None,
        };
        let mut chops = Chops { limits: symptom.limits.clone(), ..Chops::default() };
        if is_half {
            chops.limits.push("what the input had an influence on is not known: there was no time".into());
        }
        (chops.from_input, chops.executed) = match &input {
            Some(chop) => {
                let (lines, executed) = work.lines(chop, died);
                (Some(lines), executed)
            }
            None => (None, work.lines(&symptom.slice, died).1),
        };
        let first: Vec<&Finding> = findings.iter().take(MOST_PREDICATES).collect();
        let places = instances(session, &symptom, &first, &mut stop).map_err(Refusal::internal)?;
        for (finding, instance) in first.iter().zip(places) {
            match instance {
                Some(at) => {
                    let mut around = work.around(&at, input.as_ref(), &mut stop);
                    let (criterion, symptom) = (&symptom.start.criterion, symptom.start.moment);
                    let beside = Beside { case, mapped: &mapped, budget: &budget, criterion, symptom };
                    match beside.way(session, &finding.trial, &mut work.places, &mut stop) {
                        Ok(way) => around.way = way,
                        Err(why) => {
                            let place = work.places.of(finding.trial.moment.pc).short();
                            chops.limits.push(format!("how {place} leads to the failure is not told: {why}"));
                        }
                    }
                    chops.predicates.insert(finding.trial.moment, around);
                }
                None => {
                    let pc = work.places.of(finding.trial.moment.pc);
                    chops.limits.push(format!(
                        "{} is outside what was traced, or there was no time to find it: its lines are not told",
                        pc.short()
                    ));
                }
            }
        }
        if work.cut {
            chops.limits.push("lines are missing: dependences were too many, or there was no time".into());
        }
        Ok(chops)
    }

    /// What to read around a predicate, as text; nothing if that is not known.
    pub fn text(&self, predicate: Moment, paint: Paint) -> String {
        let Some(around) = self.predicates.get(&predicate) else { return String::new() };
        let mut out = String::new();
        if !around.way.is_empty() {
            out.push_str("   how it leads to the failure:\n");
        }
        let width = around.way.iter().map(|s| s.place.short().len()).max().unwrap_or(0);
        for step in &around.way {
            let place = format!("{:width$}", step.place.short());
            let source = step.place.source.as_deref().unwrap_or_default();
            let _ = writeln!(out, "     {}  {}: {source}", paint.strong(&place), step.by);
        }
        let lines = count(around.lines.len() as u64, "line");
        let what = match self.from_input {
            Some(_) => "what led to it and what it led to, between the input and the failure",
            None => "what led to it and what it led to",
        };
        let _ = writeln!(out, "   to read, the nearest first: {lines} of {} executed, {what}", self.executed);
        list(&mut out, &around.lines, paint);
        out
    }

    /// Where no predicate was found: what to read instead.
    pub fn text_without_predicate(&self, paint: Paint) -> String {
        let Some(lines) = &self.from_input else { return String::new() };
        let mut out = format!(
            "\nTo read, the nearest to the failure first: {} of {} executed, between the input and the failure\n",
            count(lines.len() as u64, "line"),
            self.executed
        );
        list(&mut out, lines, paint);
        out
    }

    /// The lines around a predicate for a script.
    pub fn value(&self, predicate: Moment) -> Value {
        let Some(around) = self.predicates.get(&predicate) else { return Value::Null };
        json!({
            "way": around.way.iter().map(step_value).collect::<Vec<_>>(),
            "both_sides": around.both_sides,
            "lines": around.lines.iter().map(line_value).collect::<Vec<_>>(),
        })
    }

    /// What holds whatever the predicate.
    pub fn common_value(&self) -> Value {
        let listed = |lines: &Vec<SliceLine>| lines.iter().map(line_value).collect::<Vec<_>>();
        json!({ "executed_lines": self.executed, "from_input": self.from_input.as_ref().map(listed) })
    }
}

fn list(out: &mut String, lines: &[SliceLine], paint: Paint) {
    let width = lines.iter().take(SHOWN).map(|l| l.place.short().len()).max().unwrap_or(0);
    for line in lines.iter().take(SHOWN) {
        let place = format!("{:width$}", line.place.short());
        let source = line.place.source.as_deref().unwrap_or_default();
        let _ = writeln!(out, "     {:>3}  {}  {source}", line.distance, paint.strong(&place));
    }
    if lines.len() > SHOWN {
        let _ = writeln!(out, "     … and {} more (--json has them all)", lines.len() - SHOWN);
    }
}

fn step_value(step: &Step) -> Value {
    json!({
        "file": step.place.file,
        "line": step.place.line,
        "function": step.place.function,
        "address": step.place.address,
        "source": step.place.source,
        "by": step.by,
    })
}

fn line_value(line: &SliceLine) -> Value {
    json!({
        "file": line.place.file,
        "line": line.place.line,
        "function": line.place.function,
        "address": line.place.address,
        "source": line.place.source,
        "distance": line.distance,
        "instances": line.instances,
        "executed": line.executed,
    })
}

/// Where these findings are in the symptom's window.
fn instances(
    session: &mut Session,
    symptom: &Symptom,
    findings: &[&Finding],
    stop: &mut dyn FnMut() -> bool,
) -> Result<Vec<Option<Instance>>, session::Error> {
    if findings.is_empty() {
        return Ok(Vec::new());
    }
    let pcs: HashSet<u64> = findings.iter().map(|f| f.trial.moment.pc).collect();
    let pcs: Vec<u64> = pcs.into_iter().collect();
    let before = symptom.start.moment;
    let mut late = false;
    let mut stop = || {
        late |= stop();
        late
    };
    let noted: Vec<Predicate> = session.executions(&pcs, KEEP, before, &mut stop)?.0;
    if late {
        // They are counted from the symptom back: of half of them nobody knows which they are.
        return Ok(vec![None; findings.len()]);
    }
    let aligned = near::align(&noted, before, &symptom.window);
    let of = |f: &&Finding| noted.binary_search_by_key(&f.trial.moment, |p| p.moment).ok().and_then(|n| aligned[n]);
    Ok(findings.iter().map(of).collect())
}

/// Slices of one window, and lines of them.
struct Work<'a> {
    symptom: &'a Symptom,
    places: Places<'a>,
    squash: Squash<'a>,
    /// Some slice was cut.
    cut: bool,
}

impl<'a> Work<'a> {
    fn new(symptom: &'a Symptom, mapped: &'a Mapped) -> Work<'a> {
        Work { symptom, places: Places::new(mapped), squash: Squash::new(&symptom.window, false), cut: false }
    }

    fn around(&mut self, at: &Instance, input: Option<&Slice>, stop: &mut dyn FnMut() -> bool) -> Around {
        let window = &self.symptom.window;
        let criterion = Criterion { at: Some((at.execution, at.insn)), ..Criterion::default() };
        let how = slice::Options { most_nodes: MOST_NODES, ..slice::Options::default() };
        let back = slice::backward(window, &criterion, &how, &mut *self.symptom.facts(), stop);
        let how = Forward { most_nodes: MOST_NODES, ..Forward::default() };
        let forth = slice::forward(window, &criterion, how, stop);
        let both = slice::both_sides(&back, &forth);
        self.cut |= both.cut;
        let (all, _) = self.lines(&both, None);
        let lines = match input {
            Some(input) => self.lines(&slice::within(&both, input), None).0,
            None => all.clone(),
        };
        Around { way: Vec::new(), both_sides: all.len(), lines }
    }

    /// Own lines of a slice, the nearest first, and how many were executed in all.
    fn lines(&mut self, slice: &Slice, died: Option<u64>) -> (Vec<SliceLine>, usize) {
        let window = &self.symptom.window;
        let none = HashSet::new();
        let found = lines::gather(window, slice, &none, died, &mut self.places.origins, &mut self.squash);
        let mut list = Vec::new();
        for line in found.list.iter().filter(|l| l.origin.own) {
            let place = self.places.named(&line.origin);
            // A brace is where a function sets up its frame; nobody learns anything from it.
            if place.source.as_ref().is_some_and(|text| !text.contains(char::is_alphanumeric)) {
                continue;
            }
            list.push(SliceLine { place, distance: line.distance, instances: line.instances, executed: line.executed });
        }
        (list, found.executed)
    }
}
