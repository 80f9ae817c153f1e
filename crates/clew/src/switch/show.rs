//! The answer of `switch` for people and as JSON.

use super::{Answer, shown};
use crate::case::Where;
use crate::case::words::{ordinal, repaired};
use crate::message::Paint;
use crate::show::count;
use diagnose::{Failure, Finding, Stop, Verdict};
use serde_json::{Value, json};
use std::fmt::Write;

/// Findings that are told in full.
const SHOWN: usize = 10;

/// The answer as text.
pub fn text(answer: &Answer, paint: Paint) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "The run fails: {}.", describe_failure(answer));
    let found = &answer.search.critical;
    match found.len() {
        0 => {
            out.push_str("No critical predicate was found.\n");
            out.extend(answer.lines.as_ref().map(|lines| lines.text_without_predicate(paint)));
        }
        n => {
            let _ = writeln!(out, "{}:", count(n as u64, "critical predicate"));
        }
    }
    for (n, finding) in found.iter().take(SHOWN).enumerate() {
        one(&mut out, answer, n + 1, finding, paint);
    }
    more(&mut out, found.len());
    told(&mut out, answer);
    avoiding(&mut out, answer);
    let _ = writeln!(out, "\n{}", tried(answer));
    for limit in limits(answer) {
        let _ = writeln!(out, "limit: {limit}");
    }
    out
}

fn one(out: &mut String, answer: &Answer, rank: usize, finding: &Finding, paint: Paint) {
    let place = answer.code.locate(finding.trial.moment.pc);
    let status = match finding.is_proved() {
        true => paint.good("proved"),
        false => paint.middling("suspected"),
    };
    let function = place.function.as_ref().map(|f| format!(" in {f}")).unwrap_or_default();
    let (n, of) = instances(answer, finding);
    let title = paint.strong(&place.short());
    let _ = writeln!(out, "\n{rank}. {title}{function}  {status}, execution {n} of {of}");
    if let Some(text) = &place.text {
        let _ = writeln!(out, "     {text}");
    }
    let _ = writeln!(out, "   {}", explain(answer, finding, &place));
    if let Some(doubt) = &finding.doubt {
        let _ = writeln!(out, "   suspected only: {doubt}");
    }
    out.extend(answer.lines.as_ref().map(|lines| lines.text(finding.trial.moment, paint)));
}

fn more(out: &mut String, found: usize) {
    if found > SHOWN {
        let _ = writeln!(out, "\n… and {} more (--json has them all)", found - SHOWN);
    }
}

/// What became of each switch of a place that was asked for, unless it is told already.
fn told(out: &mut String, answer: &Answer) {
    let rest = answer.search.told.iter().filter(|(_, v, _)| !matches!(v, Verdict::Fixed | Verdict::Avoided));
    for (trial, verdict, end) in rest.take(SHOWN) {
        let place = answer.code.locate(trial.moment.pc);
        let instance = answer.branches.at(trial.moment).map_or(1, |p| p.instance);
        let _ = writeln!(out, "{}, execution {instance}: {verdict}, {end}", place.short());
    }
}

/// Switches that prove nothing, in brief.
fn avoiding(out: &mut String, answer: &Answer) {
    let found = &answer.search.avoiding;
    if found.is_empty() {
        return;
    }
    let _ = writeln!(out, "\nNot met any more, which proves nothing, is the failure after switching:");
    for finding in found.iter().take(SHOWN / 2) {
        let place = answer.code.locate(finding.trial.moment.pc);
        let (n, of) = instances(answer, finding);
        let _ = writeln!(out, "   {}, execution {n} of {of}", place.short());
    }
    if found.len() > SHOWN / 2 {
        let _ = writeln!(out, "   … and {} more", found.len() - SHOWN / 2);
    }
}

fn tried(answer: &Answer) -> String {
    let s = &answer.search;
    let verdicts: Vec<String> = s.tally.iter().map(|(name, n)| format!("{n} {name}")).collect();
    let verdicts = if verdicts.is_empty() { String::new() } else { format!(" ({})", verdicts.join(", ")) };
    let trials = s.tried + s.controls;
    let rate = trials as f64 / answer.spent.as_secs_f64().max(0.001);
    format!(
        "{} of {} executed branches tried{verdicts}, {}, {:.1} s, {rate:.0} trials/s",
        s.tried,
        answer.branches.executed,
        count(s.controls as u64, "control"),
        answer.time.as_secs_f64()
    )
}

/// What the answer does not cover.
fn limits(answer: &Answer) -> Vec<String> {
    let s = &answer.search;
    let mut all = answer.limits.clone();
    match s.stopped {
        Some(Stop::Time) => all.push(format!("the time ran out with {} left to try (--budget)", branches(s.left))),
        Some(Stop::Interrupted) => all.push(format!("interrupted with {} left to try", branches(s.left))),
        None if s.left > 0 && !s.critical.is_empty() => {
            all.push(format!("{} executed earlier were not tried (--all)", branches(s.left)));
        }
        None if s.left > 0 => all.push(format!("{} were not tried", branches(s.left))),
        None => {}
    }
    if let Some((moment, why)) = s.doubtful.first() {
        all.push(format!(
            "{} did not confirm the failure; the first, at {moment}: {why}",
            count(s.doubtful.len() as u64, "control")
        ));
    }
    if let Some((moment, why)) = s.failed.first() {
        all.push(format!("{} could not be made; the first, at {moment}: {why}", count(s.failed.len() as u64, "trial")));
    }
    all
}

fn branches(n: usize) -> String {
    if n == 1 { "1 branch".into() } else { format!("{n} branches") }
}

fn describe_failure(answer: &Answer) -> String {
    match &answer.failing.failure {
        Failure::Crash { signal, pc } => {
            let name = session::signal_name(*signal as i32);
            let own = answer.code.ranges.iter().any(|(start, end)| (*start..*end).contains(pc));
            let place = if own { format!(" at {}", answer.code.locate(*pc).short()) } else { String::new() };
            format!("it dies of {name}{place}")
        }
        other => other.to_string(),
    }
}

/// Which execution of its instruction a finding is, and of how many.
fn instances(answer: &Answer, finding: &Finding) -> (u64, u64) {
    let n = answer.branches.at(finding.trial.moment).map_or(1, |p| p.instance);
    (n, answer.branches.count(finding.trial.moment.pc).max(n))
}

/// One plain sentence.
fn explain(answer: &Answer, finding: &Finding, place: &Where) -> String {
    let what = match (place.line, several_branches(answer, place)) {
        (Some(line), false) => format!("line {line}"),
        (Some(line), true) => format!("the branch at {} in line {line}", place.address),
        _ => format!("the branch at {}", place.address),
    };
    let (n, of) = instances(answer, finding);
    let which = if of > 1 { format!(" on its {} execution", ordinal(n)) } else { String::new() };
    format!("with {what} taken the other way{which} the program {}", repaired(&answer.oracle))
}

/// Does the line have several branches?
fn several_branches(answer: &Answer, place: &Where) -> bool {
    let same = |pc: &u64| {
        let other = answer.code.locate(*pc);
        other.line == place.line && other.full == place.full
    };
    answer.branches.places().filter(same).take(2).count() > 1
}

/// The answer as one JSON document.
pub fn json(answer: &Answer) -> String {
    let candidates = answer.search.critical.iter().chain(&answer.search.avoiding);
    let candidates: Vec<Value> = candidates.enumerate().map(|(n, f)| finding_value(answer, n + 1, f)).collect();
    let s = &answer.search;
    let mut tried = json!({ "trials": s.tried, "controls": s.controls });
    for (name, n) in &s.tally {
        tried[name] = json!(n);
    }
    let mut document = json!({
        "clew": 1,
        "verb": "switch",
        "recording": answer.recording,
        "process": answer.unit.to_string(),
        "failure": describe_failure(answer),
        "candidates": candidates,
        "verdicts": verdicts(answer),
        "executed": answer.branches.executed,
        "tried": tried,
        "limits": limits(answer),
        "time": { "seconds": answer.time.as_secs_f64(), "trials": answer.spent.as_secs_f64() },
    });
    if let Some(lines) = &answer.lines {
        document["lines"] = lines.common_value();
    }
    format!("{document:#}\n")
}

/// With `--at`: every trial.
fn verdicts(answer: &Answer) -> Value {
    let one = |(trial, verdict, end): &(diagnose::Trial, Verdict, diagnose::End)| {
        json!({
            "address": answer.code.locate(trial.moment.pc).address,
            "instance": answer.branches.at(trial.moment).map_or(1, |p| p.instance),
            "moment": trial.moment.to_string(),
            "verdict": verdict.name(),
            "detail": verdict.to_string(),
            "end": end.to_string(),
        })
    };
    answer.search.told.iter().map(one).collect()
}

fn finding_value(answer: &Answer, rank: usize, finding: &Finding) -> Value {
    let place = answer.code.locate(finding.trial.moment.pc);
    let (instance, of) = instances(answer, finding);
    let is_repair = finding.verdict == Verdict::Fixed;
    let explanation = match is_repair {
        true => explain(answer, finding, &place),
        false => "the failing place is not met any more, which proves nothing".to_owned(),
    };
    let mut value = json!({
        "rank": rank,
        "file": place.file.as_deref().map(shown),
        "line": place.line,
        "function": place.function,
        "address": place.address,
        "kind": if is_repair { "critical-predicate" } else { "avoiding-predicate" },
        "status": if finding.is_proved() { "proved" } else { "suspected" },
        "instance": instance,
        "of": of,
        "explanation": explanation,
        "source": place.text,
        "evidence": {
            "recording": answer.recording,
            "moment": finding.trial.moment.to_string(),
            "alteration": format!("flip {}#{instance}", place.address),
        },
        "trial": { "verdict": finding.verdict.name(), "end": finding.run.end.to_string() },
    });
    if let Some(doubt) = &finding.doubt {
        value["doubt"] = json!(doubt);
    }
    if let Some(number) = answer.numbers.get(rank - 1).filter(|_| is_repair) {
        value["trial"]["number"] = json!(number);
    }
    if let Some(lines) = &answer.lines {
        value["around"] = lines.value(finding.trial.moment);
    }
    value
}
