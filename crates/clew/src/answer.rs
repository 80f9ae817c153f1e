//! The answer of a search by trials, as plain data: for people and as JSON.
//!
//! A verb says what each trial changed ([`Changed`]); how that is told is the same for all of them.

use crate::case::words::{ordinal, repaired};
use crate::case::{Case, Refusal, Where};
use crate::chops::Chops;
use crate::cli::Color;
use crate::message::{self, Messages, Paint};
use crate::show::count;
use crate::startup::Startup;
use crate::status;
use diagnose::{End, Failure, Finding, Search, Stop, Trial, Verdict};
use model::serve::Moment;
use recording::UnitName;
use report::Execution;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// Findings that are told in full.
const SHOWN: usize = 10;

/// Searches, and prints what came of it; gives our exit status.
pub fn tell(
    json: bool,
    color: Color,
    startup: &Startup,
    find: impl FnOnce(&Messages) -> Result<Answer, Refusal>,
) -> i32 {
    let messages = Messages { paint: Paint::for_stderr(color, startup) };
    match find(&messages) {
        Ok(answer) => {
            let paint = Paint::for_stdout(color, startup);
            message::stdout(&if json { answer.json() } else { answer.text(paint) });
            if answer.has_repair() { 0 } else { status::NO }
        }
        Err(refusal) => refusal.tell(&messages),
    }
}

/// What was found, with everything that is needed to tell it.
pub struct Answer {
    words: Words,
    pub recording: String,
    unit: UnitName,
    /// What is wrong, in one clause.
    failure: String,
    repairs: Vec<Item>,
    /// After these the failing place is not met, which proves nothing.
    avoiding: Vec<Item>,
    /// Every trial, if that was asked for.
    told: Vec<Item>,
    /// Executions that were candidates.
    executed: u64,
    tried: usize,
    /// How many of these changed two things.
    pairs: usize,
    controls: usize,
    tally: BTreeMap<&'static str, u64>,
    /// What to read, if that was asked for.
    lines: Option<Chops>,
    limits: Vec<String>,
    time: Duration,
    /// Time spent in trials.
    spent: Duration,
}

/// How a verb calls things.
pub struct Words {
    pub verb: &'static str,
    /// What a repair is called: `critical predicate`.
    pub found: &'static str,
    /// One candidate, and several.
    pub candidate: [&'static str; 2],
    /// All that might have been tried: `executed branches`.
    pub all: &'static str,
    /// What trials do: `switching`.
    pub doing: &'static str,
}

/// What one trial changed, as its verb tells it.
pub struct Changed {
    pub pc: u64,
    /// The other place, if it changed two things.
    pub second: Option<u64>,
    /// Which execution of the place it is.
    pub execution: Execution,
    /// Names of a repair and of what only avoids the failure.
    pub kinds: [&'static str; 2],
    /// The beginning of a sentence: `with line 3 taken the other way`.
    pub what: String,
    /// How to do it again: `flip prog+0x1136#2`.
    pub alteration: String,
}

/// One trial.
struct Item {
    place: Where,
    second: Option<Where>,
    execution: Execution,
    kind: &'static str,
    proved: bool,
    /// What was changed: the beginning of a sentence.
    what: String,
    explanation: String,
    alteration: String,
    moment: Moment,
    /// The how-manieth trial it was.
    number: Option<usize>,
    verdict: Verdict,
    end: String,
    doubt: Option<String>,
}

/// What a search left behind.
pub struct Searched {
    pub search: Search,
    pub executed: u64,
    /// Trials that changed two things.
    pub pairs: usize,
    /// For each repair, the how-manieth trial it was, as far as that is known.
    pub numbers: Vec<usize>,
    /// What to read, if that was asked for.
    pub lines: Option<Chops>,
    pub limits: Vec<String>,
    pub spent: Duration,
}

impl Answer {
    /// Puts together what a search found.
    pub fn new(case: &Case<'_>, words: Words, searched: Searched, changed: &dyn Fn(&Trial) -> Changed) -> Answer {
        let Searched { search, executed, pairs, numbers, lines, mut limits, spent } = searched;
        limits.extend(limits_of(&search, &words));
        let finding = |f: &Finding| {
            let (trial, end) = (&f.trial, f.end.to_string());
            Item { proved: f.is_proved(), doubt: f.doubt.clone(), ..item(case, trial, &f.verdict, end, changed(trial)) }
        };
        let mut repairs: Vec<Item> = search.critical.iter().map(finding).collect();
        for (item, number) in repairs.iter_mut().zip(numbers) {
            item.number = Some(number);
        }
        Answer {
            words,
            recording: case.name(),
            unit: case.unit,
            failure: case.with_subject(describe_failure(case)),
            repairs,
            avoiding: search.avoiding.iter().map(finding).collect(),
            told: search.told.iter().map(|(t, v, end)| item(case, t, v, end.to_string(), changed(t))).collect(),
            executed,
            tried: search.tried,
            pairs,
            controls: search.controls,
            tally: search.tally,
            lines,
            limits,
            time: case.begun.elapsed(),
            spent,
        }
    }

    /// Was anything found that repairs the run?
    pub fn has_repair(&self) -> bool {
        !self.repairs.is_empty()
    }

    /// For people.
    pub fn text(&self, paint: Paint) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "The run fails: {}.", self.failure);
        match self.repairs.len() {
            0 => {
                let _ = writeln!(out, "No {} was found.", self.words.found);
                out.extend(self.lines.as_ref().map(|lines| lines.text_without_predicate(paint)));
            }
            n => {
                let _ = writeln!(out, "{}:", count(n as u64, self.words.found));
            }
        }
        for (n, item) in self.repairs.iter().take(SHOWN).enumerate() {
            item.text(&mut out, n + 1, paint);
            out.extend(self.lines.as_ref().map(|lines| lines.text(item.moment, paint)));
        }
        if self.repairs.len() > SHOWN {
            let _ = writeln!(out, "\n… and {} more (--json has them all)", self.repairs.len() - SHOWN);
        }
        let rest = self.told.iter().filter(|i| !matches!(i.verdict, Verdict::Fixed | Verdict::Avoided));
        for item in rest.take(SHOWN) {
            let Item { execution, what, verdict, end, .. } = item;
            let _ = writeln!(out, "{}, execution {}: {verdict}, {end} ({what})", item.title(), execution.number);
        }
        self.text_of_avoiding(&mut out);
        let _ = writeln!(out, "\n{}", self.text_of_trials());
        for limit in &self.limits {
            let _ = writeln!(out, "limit: {limit}");
        }
        let _ = writeln!(out, "to look closer: clew gdb {}", self.recording);
        out
    }

    /// Changes that prove nothing, in brief.
    fn text_of_avoiding(&self, out: &mut String) {
        if self.avoiding.is_empty() {
            return;
        }
        let doing = self.words.doing;
        let _ = writeln!(out, "\nNot met any more, which proves nothing, is the failure after {doing}:");
        for item in self.avoiding.iter().take(SHOWN / 2) {
            let _ = writeln!(out, "   {}, execution {}", item.title(), item.execution);
        }
        if self.avoiding.len() > SHOWN / 2 {
            let _ = writeln!(out, "   … and {} more", self.avoiding.len() - SHOWN / 2);
        }
    }

    fn text_of_trials(&self) -> String {
        let verdicts: Vec<String> = self.tally.iter().map(|(name, n)| format!("{n} {name}")).collect();
        let verdicts = if verdicts.is_empty() { String::new() } else { format!(" ({})", verdicts.join(", ")) };
        let rate = (self.tried + self.controls) as f64 / self.spent.as_secs_f64().max(0.001);
        let pairs = if self.pairs > 0 { format!(" and {}", count(self.pairs as u64, "pair")) } else { String::new() };
        format!(
            "{} of {} {}{pairs} tried{verdicts}, {}, {:.1} s, {rate:.0} trials/s",
            self.tried - self.pairs,
            self.executed,
            self.words.all,
            count(self.controls as u64, "control"),
            self.time.as_secs_f64()
        )
    }

    /// One JSON document.
    pub fn json(&self) -> String {
        let candidates = self.repairs.iter().chain(&self.avoiding).enumerate();
        let value = |(n, item): (usize, &Item)| {
            let mut value = item.value(n + 1, &self.recording);
            if let Some(lines) = &self.lines {
                value["around"] = lines.value(item.moment);
            }
            value
        };
        let candidates: Vec<Value> = candidates.map(value).collect();
        let mut tried = json!({ "trials": self.tried, "pairs": self.pairs, "controls": self.controls });
        for (name, n) in &self.tally {
            tried[name] = json!(n);
        }
        let mut document = json!({
            "clew": 1,
            "verb": self.words.verb,
            "recording": self.recording,
            "process": self.unit.to_string(),
            "failure": self.failure,
            "candidates": candidates,
            "verdicts": self.told.iter().map(Item::verdict_value).collect::<Vec<Value>>(),
            "executed": self.executed,
            "tried": tried,
            "limits": self.limits,
            "time": { "seconds": self.time.as_secs_f64(), "trials": self.spent.as_secs_f64() },
        });
        if let Some(lines) = &self.lines {
            document["lines"] = lines.common_value();
        }
        format!("{document:#}\n")
    }
}

fn item(case: &Case<'_>, trial: &Trial, verdict: &Verdict, end: String, changed: Changed) -> Item {
    let Changed { pc, second, execution, kinds, what, alteration } = changed;
    let is_repair = *verdict == Verdict::Fixed;
    let explanation = match is_repair {
        true => format!("{what} {} {}", case.subject(), repaired(&case.oracle)),
        false => "the failing place is not met any more, which proves nothing".to_owned(),
    };
    Item {
        place: case.code.locate(pc),
        second: second.map(|pc| case.code.locate(pc)),
        execution,
        kind: kinds[usize::from(!is_repair)],
        proved: false,
        what,
        explanation,
        alteration,
        moment: trial.moment,
        number: None,
        verdict: verdict.clone(),
        end,
        doubt: None,
    }
}

impl Item {
    fn text(&self, out: &mut String, rank: usize, paint: Paint) {
        let status = match self.proved {
            true => paint.good("proved"),
            false => paint.middling("suspected"),
        };
        let function = self.place.function.as_ref().map(|f| format!(" in {f}")).unwrap_or_default();
        let title = paint.strong(&self.title());
        let _ = writeln!(out, "\n{rank}. {title}{function}  {status}, execution {}", self.execution);
        for text in [Some(&self.place), self.second.as_ref()].into_iter().flatten().filter_map(|p| p.text.as_ref()) {
            let _ = writeln!(out, "     {text}");
        }
        let _ = writeln!(out, "   {}", self.explanation);
        if let Some(doubt) = &self.doubt {
            let _ = writeln!(out, "   suspected only: {doubt}");
        }
    }

    fn value(&self, rank: usize, recording: &str) -> Value {
        let mut value = json!({
            "rank": rank,
            "file": self.place.file.as_deref().map(shown),
            "line": self.place.line,
            "function": self.place.function,
            "address": self.place.address,
            "kind": self.kind,
            "status": if self.proved { "proved" } else { "suspected" },
            "instance": self.execution.number,
            "of": self.execution.of,
            "explanation": self.explanation,
            "source": self.place.text,
            "evidence": { "recording": recording, "moment": self.moment.to_string(), "alteration": self.alteration },
            "trial": { "verdict": self.verdict.name(), "end": self.end },
        });
        if let Some(second) = &self.second {
            value["second"] = json!({
                "file": second.file.as_deref().map(shown),
                "line": second.line,
                "function": second.function,
                "address": second.address,
                "source": second.text,
            });
        }
        if let Some(number) = self.number {
            value["trial"]["number"] = json!(number);
        }
        if let Some(doubt) = &self.doubt {
            value["doubt"] = json!(doubt);
        }
        value
    }

    /// Where it was: one place or two.
    fn title(&self) -> String {
        match &self.second {
            Some(second) => format!("{} and {}", self.place.short(), second.short()),
            None => self.place.short(),
        }
    }

    fn verdict_value(&self) -> Value {
        json!({
            "address": self.place.address,
            "instance": self.execution.number,
            "moment": self.moment.to_string(),
            "alteration": self.alteration,
            "verdict": self.verdict.name(),
            "detail": self.verdict.to_string(),
            "end": self.end,
        })
    }
}

/// What a search did not cover.
fn limits_of(search: &Search, words: &Words) -> Vec<String> {
    let mut all = Vec::new();
    let left = match search.left {
        1 => format!("1 {}", words.candidate[0]),
        n => format!("{n} {}", words.candidate[1]),
    };
    match search.stopped {
        Some(Stop::Time) => all.push(format!("the time ran out with {left} left to try (--budget)")),
        Some(Stop::Interrupted) => all.push(format!("interrupted with {left} left to try")),
        None if search.left > 0 && !search.critical.is_empty() => {
            all.push(format!("{left} were not tried (--all)"));
        }
        None if search.left > 0 => all.push(format!("{left} were not tried")),
        None => {}
    }
    if let Some((moment, why)) = search.doubtful.first() {
        all.push(format!(
            "{} did not confirm the failure; the first, at {moment}: {why}",
            count(search.doubtful.len() as u64, "control")
        ));
    }
    if let Some((moment, why)) = search.failed.first() {
        let failed = count(search.failed.len() as u64, "trial");
        all.push(format!("{failed} could not be made; the first, at {moment}: {why}"));
    }
    all
}

fn describe_failure(case: &Case<'_>) -> String {
    match &case.failing.failure {
        Failure::Crash { signal, pc } => {
            let name = session::signal_name(*signal as i32);
            let own = case.code.ranges.iter().any(|(start, end)| (*start..*end).contains(pc));
            let place = if own { format!(" at {}", case.code.locate(*pc).short()) } else { String::new() };
            format!("it dies of {name}{place}")
        }
        other => other.to_string(),
    }
}

/// Which execution of several: the end of a clause.
pub fn which(execution: Execution) -> String {
    match execution.is_single() {
        true => String::new(),
        false => format!(" on its {} execution", ordinal(execution.number)),
    }
}

/// The number of an execution, of how many that are known. How many there are in all nobody knows of a program that was ended
/// from outside.
pub fn execution(case: &Case<'_>, number: u64, known: u64) -> Execution {
    let ended = case.failing.run.end != End::StillRunning;
    Execution { number, of: ended.then_some(known.max(number)) }
}

/// A short way to write a path.
fn shown(path: &Path) -> String {
    path.display().to_string()
}
