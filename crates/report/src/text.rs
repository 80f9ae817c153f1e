//! The answer as people read it on a terminal.
//!
//! Guarantees: nothing of the program under test steers the terminal. May miss: lines are not broken to the terminal's
//! width, only paths are kept to a readable one.

use crate::words::{count, visible};
use crate::{Cause, Decision, Report, Step, stops};
use std::fmt::Write;

/// Steps of a path that are shown at each of its ends.
const SHOWN_AT_START: usize = 3;
/// Decisions that are told.
const MOST_NEEDED: usize = 8;
const SHOWN_AT_END: usize = 2;
/// Columns of a path's lines.
const WIDTH: usize = 96;

/// How a terminal shows what matters; what it is told here, it gives back as it likes.
pub trait Style {
    /// What the eye should find first.
    fn strong(&self, text: &str) -> String {
        text.to_owned()
    }

    /// Proved.
    fn good(&self, text: &str) -> String {
        text.to_owned()
    }

    /// Suspected.
    fn middling(&self, text: &str) -> String {
        text.to_owned()
    }

    /// What most readers pass over.
    fn faint(&self, text: &str) -> String {
        text.to_owned()
    }
}

/// Text without any style.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl Style for Plain {}

/// The answer: the failure, every cause, what was tried and what is not covered.
pub fn text(report: &Report, style: &dyn Style) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "The run fails: {}.", visible(report.failure.trim_end_matches('.')));
    if report.causes.is_empty() {
        out.push_str("No cause was found.\n");
    }
    for (n, cause) in report.causes.iter().enumerate() {
        one(&mut out, n + 1, cause, style);
    }
    needed(&mut out, &report.needed, style);
    let _ = writeln!(out, "\n{}", style.faint(&tried(report)));
    for limit in &report.limits {
        let _ = writeln!(out, "limit: {}", visible(limit));
    }
    out
}

fn one(out: &mut String, rank: usize, cause: &Cause, style: &dyn Style) {
    let place = style.strong(&visible(&cause.place.short()));
    let function = cause.place.function.as_ref().map(|f| format!(" in {}", visible(f))).unwrap_or_default();
    let status = if cause.proved { style.good("proved") } else { style.middling("suspected") };
    let instance = cause.instance.filter(|e| !e.is_single());
    let instance = instance.map(|e| format!(", execution {e}")).unwrap_or_default();
    let _ = writeln!(out, "\n{rank}. {place}{function}  {status}{instance}");
    if let Some(source) = &cause.place.source {
        let _ = writeln!(out, "     {}", visible(source.trim()));
    }
    let _ = writeln!(out, "   {}", visible(&cause.explanation));
    if let Some(doubt) = &cause.doubt {
        let _ = writeln!(out, "   suspected only: {}", visible(doubt));
    }
    for line in path(&cause.path) {
        let _ = writeln!(out, "   {}", style.faint(&line));
    }
    if !cause.closer.is_empty() {
        let _ = writeln!(out, "   to look closer: {}", visible(&cause.closer));
    }
}

/// Several decisions as one condition.
fn needed(out: &mut String, decisions: &[Decision], style: &dyn Style) {
    if decisions.len() < 2 {
        return;
    }
    let word = |d: &Decision| {
        let place = visible(&d.place.short()).into_owned();
        if d.instance.is_single() { place } else { format!("{place} ({})", d.instance) }
    };
    let left_out = decisions.len().saturating_sub(MOST_NEEDED);
    let mut words: Vec<String> = decisions.iter().take(MOST_NEEDED).map(word).collect();
    words.extend((left_out > 0).then(|| format!("and {left_out} more")));
    let last = words.len() - 1;
    words[..last].iter_mut().for_each(|w| w.push(','));
    let count = decisions.len();
    let title = format!("it fails only because each of these {count} decisions goes as it does, in this order:");
    out.push('\n');
    let words = wrapped("", &words).into_iter().map(|line| format!("   {}", line.trim_start()));
    for line in std::iter::once(title).chain(words) {
        let _ = writeln!(out, "{}", style.faint(&line));
    }
}

/// A path in a few lines: its ends, and how many steps are between them.
fn path(steps: &[Step]) -> Vec<String> {
    let stops = stops(steps);
    if stops.len() < 2 {
        return Vec::new();
    }
    let elided = stops.len().saturating_sub(SHOWN_AT_START + SHOWN_AT_END);
    let mut words: Vec<String> = Vec::new();
    for (n, stop) in stops.iter().enumerate() {
        // Eliding a single step would not make it shorter.
        if elided > 1 && n == SHOWN_AT_START {
            words.push(format!("… {elided} steps …"));
            words.push("→".to_owned());
        }
        if elided > 1 && (SHOWN_AT_START..SHOWN_AT_START + elided).contains(&n) {
            continue;
        }
        words.push(visible(&stop.place.short()).into_owned());
        if n + 1 < stops.len() {
            words.push(if stop.by.is_empty() { "→".to_owned() } else { format!("—{}→", visible(&stop.by)) });
        }
    }
    wrapped("path to the failure: ", &words)
}

/// Words in lines of [`WIDTH`]; all but the first line stand below the first word.
fn wrapped(title: &str, words: &[String]) -> Vec<String> {
    let mut lines = vec![title.trim_end().to_owned()];
    let indent = title.chars().count();
    for word in words {
        let line = lines.last_mut().expect("there is a first line");
        if line.chars().count() + 1 + word.chars().count() <= WIDTH {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(format!("{:indent$}{word}", ""));
        }
    }
    lines
}

/// `143 trials (3 fixed, 140 same failure), 4 controls, 12.3 s`.
pub fn tried(report: &Report) -> String {
    let tried = &report.tried;
    let verdicts: Vec<String> = tried.verdicts.iter().map(|(name, n)| format!("{n} {name}")).collect();
    let verdicts = if verdicts.is_empty() { String::new() } else { format!(" ({})", verdicts.join(", ")) };
    format!(
        "{}{verdicts}, {}, {:.1} s",
        count(tried.trials as u64, "trial"),
        count(tried.controls as u64, "control"),
        report.seconds
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Execution;
    use crate::{Kind, Place, Tried};

    fn place(file: &str, line: u32) -> Place {
        Place { file: Some(file.into()), line: Some(line), ..Place::default() }
    }

    fn steps(all: &[(&str, u32, &str)]) -> Vec<Step> {
        all.iter().map(|(file, line, by)| Step { place: place(file, *line), by: (*by).into() }).collect()
    }

    fn cause() -> Cause {
        Cause {
            place: Place {
                function: Some("last_word".into()),
                source: Some("    if (end > start)".into()),
                ..place("words.c", 12)
            },
            kind: Kind::CriticalPredicate,
            proved: true,
            instance: Some(Execution { number: 2, of: Some(3) }),
            explanation: "with line 12 taken the other way on its 2nd execution the program prints 10 as expected"
                .into(),
            distance: None,
            doubt: None,
            evidence: None,
            path: steps(&[("words.c", 12, "decides about"), ("words.c", 14, "n"), ("main.c", 5, "")]),
            closer: "clew gdb latest".into(),
        }
    }

    #[test]
    fn several_decisions_are_told_as_one_condition() {
        let decision = |line: u32, of: u64| Decision {
            place: place("words.c", line),
            instance: Execution { number: 1, of: Some(of) },
        };
        let told = |needed: Vec<Decision>| text(&Report { needed, ..Report::default() }, &Plain);
        let expected = "
it fails only because each of these 2 decisions goes as it does, in this order:
   words.c:3, words.c:7 (1 of 4)
";
        let two = told(vec![decision(3, 1), decision(7, 4)]);
        assert!(two.contains(expected), "{two}");
        assert!(told((1..=10).map(|line| decision(line, 1)).collect()).contains("and 2 more\n"));
        assert!(!told(vec![decision(3, 1)]).contains("decisions"), "one is told already");
    }

    #[test]
    fn an_answer_reads_well() {
        let suspected =
            Cause { proved: false, instance: None, doubt: Some("a control failed".into()), path: vec![], ..cause() };
        let report = Report {
            failure: "byte 2 of standard output is '1' instead of '0'".into(),
            causes: vec![cause(), suspected],
            tried: Tried { trials: 7, controls: 1, verdicts: vec![("fixed".into(), 1), ("same failure".into(), 6)] },
            limits: vec!["the time ran out with 3 branches left to try (--budget)".into()],
            seconds: 1.25,
            ..Report::default()
        };
        let expected = "\
The run fails: byte 2 of standard output is '1' instead of '0'.

1. words.c:12 in last_word  proved, execution 2 of 3
     if (end > start)
   with line 12 taken the other way on its 2nd execution the program prints 10 as expected
   path to the failure: words.c:12 —decides about→ words.c:14 —n→ main.c:5
   to look closer: clew gdb latest

2. words.c:12 in last_word  suspected
     if (end > start)
   with line 12 taken the other way on its 2nd execution the program prints 10 as expected
   suspected only: a control failed
   to look closer: clew gdb latest

7 trials (1 fixed, 6 same failure), 1 control, 1.2 s
limit: the time ran out with 3 branches left to try (--budget)
";
        assert_eq!(text(&report, &Plain), expected);
    }

    #[test]
    fn without_causes_it_says_so() {
        let report = Report { failure: "it dies of SIGSEGV.".into(), ..Report::default() };
        let expected = "The run fails: it dies of SIGSEGV.\nNo cause was found.\n\n0 trials, 0 controls, 0.0 s\n";
        assert_eq!(text(&report, &Plain), expected);
    }

    #[test]
    fn styles_are_applied_to_what_they_are_for() {
        struct Marks;
        impl Style for Marks {
            fn strong(&self, text: &str) -> String {
                format!("<{text}>")
            }
            fn good(&self, text: &str) -> String {
                format!("+{text}+")
            }
        }
        let report = Report { causes: vec![cause()], ..Report::default() };
        assert!(text(&report, &Marks).contains("1. <words.c:12> in last_word  +proved+, execution 2 of 3\n"));
    }

    #[test]
    fn long_paths_lose_their_middle_and_repeated_lines() {
        let long: Vec<(&str, u32, &str)> = (1..=9).map(|n| ("a.c", n, "x")).collect();
        for (given, expected) in [
            (&[("a.c", 1, "x")][..], &[][..]),
            (&[("a.c", 1, "x"), ("a.c", 1, "y"), ("b.c", 2, "")], &["path to the failure: a.c:1 —y→ b.c:2"]),
            (&long[..6], &["path to the failure: a.c:1 —x→ a.c:2 —x→ a.c:3 —x→ a.c:4 —x→ a.c:5 —x→ a.c:6"]),
            (&long, &["path to the failure: a.c:1 —x→ a.c:2 —x→ a.c:3 —x→ … 4 steps … → a.c:8 —x→ a.c:9"]),
        ] {
            assert_eq!(path(&steps(given)), expected);
        }
    }

    #[test]
    fn wide_paths_are_broken() {
        let file = "a/rather/long/path/to/a/file.c";
        let lines = path(&steps(&[(file, 1, "x"), (file, 2, "decides about"), (file, 3, "")]));
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines.iter().all(|l| l.chars().count() <= WIDTH));
        assert!(lines[1].starts_with("             "), "{lines:?}");
    }

    #[test]
    fn foreign_text_does_not_steer_the_terminal() {
        let mut hostile = cause();
        hostile.place.source = Some("\x1b[2J".into());
        hostile.place.function = Some("f\x07".into());
        hostile.path[1].by = "\x1b]0;".into();
        let report = Report { causes: vec![hostile], failure: "\x1b[31m".into(), ..Report::default() };
        assert!(!text(&report, &Plain).contains(['\x1b', '\x07']));
    }
}
