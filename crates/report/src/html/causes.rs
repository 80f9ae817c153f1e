//! Causes as cards: what, where, how sure, why, how it leads to the failure, and how to see it oneself.

use super::escape::Escaped;
use super::sources::Sources;
use crate::words::sentence;
use crate::{Cause, Evidence, Place, Report, Step, stops};
use std::fmt::Write;

/// Steps of a path that are shown without a fold, and how many stay at each end of a longer one.
const LONGEST_PATH: usize = 12;
const SHOWN_AT_START: usize = 6;
const SHOWN_AT_END: usize = 4;

/// The section, with its heading.
pub fn section(report: &Report, sources: &Sources<'_>) -> String {
    let mut out = String::from("<section class=\"causes\" aria-label=\"Causes\"><h2>Causes</h2>\n");
    if report.causes.is_empty() {
        out.push_str("<p>No cause was found.</p>\n");
    }
    for (n, cause) in report.causes.iter().enumerate() {
        card(&mut out, report, n + 1, cause, sources);
    }
    out.push_str("</section>\n");
    out
}

fn card(out: &mut String, report: &Report, rank: usize, cause: &Cause, sources: &Sources<'_>) {
    let status = if cause.proved { "proved" } else { "suspected" };
    let _ =
        write!(out, "<article class=\"card {status}\" id=\"cause-{rank}\"><h3><span class=\"rank\">{rank}.</span> ");
    place(out, &cause.place, "line", sources);
    if let Some(function) = &cause.place.function {
        let _ = write!(out, " <span class=\"function\">in {}</span>", Escaped(function));
    }
    let _ = writeln!(out, " <span class=\"badge\">{status}</span></h3>");
    if let Some(source) = &cause.place.source {
        let _ = writeln!(out, "<pre class=\"line\" tabindex=\"0\">{}</pre>", Escaped(source.trim()));
    }
    let _ = writeln!(out, "<p class=\"why\">{}</p>", Escaped(&sentence(&cause.explanation)));
    if let Some(doubt) = &cause.doubt {
        let _ = writeln!(out, "<p class=\"doubt\">{}</p>", Escaped(&sentence(&format!("suspected only: {doubt}"))));
    }
    path(out, &cause.path, sources);
    evidence(out, report, rank, cause);
    if !cause.closer.is_empty() {
        let _ = writeln!(
            out,
            "<p class=\"closer\">To look closer: <span class=\"command\"><code>{}</code><button type=\"button\" hidden>Copy\
             </button></span></p>",
            Escaped(&cause.closer)
        );
    }
    out.push_str("</article>\n");
}

/// A place, as a link to its source line if that is in the page.
fn place(out: &mut String, place: &Place, class: &str, sources: &Sources<'_>) {
    let name = place.short();
    let full = place.full.as_deref().unwrap_or(&name);
    let _ = match sources.anchor(place) {
        Some(anchor) => {
            write!(out, "<a class=\"{class}\" href=\"#{anchor}\" title=\"{}\">{}</a>", Escaped(full), Escaped(&name))
        }
        None => write!(out, "<span class=\"{class}\">{}</span>", Escaped(&name)),
    };
}

/// The path; the middle of a long one is folded.
fn path(out: &mut String, steps: &[Step], sources: &Sources<'_>) {
    let steps = stops(steps);
    if steps.len() < 2 {
        return;
    }
    out.push_str("<p class=\"label\">How it leads to the failure</p><ol class=\"path\">\n");
    let folded = match steps.len() > LONGEST_PATH {
        true => SHOWN_AT_START..steps.len() - SHOWN_AT_END,
        false => 0..0,
    };
    for (n, step) in steps.iter().enumerate() {
        if n == folded.start && !folded.is_empty() {
            let _ = writeln!(out, "<li><details><summary>{} more steps</summary><ol>", folded.len());
        }
        self::step(out, step, sources);
        if n + 1 == folded.end {
            out.push_str("</ol></details></li>\n");
        }
    }
    out.push_str("</ol>\n");
}

fn step(out: &mut String, step: &Step, sources: &Sources<'_>) {
    out.push_str("<li>");
    place(out, &step.place, "step", sources);
    if let Some(source) = &step.place.source {
        let _ = write!(out, " <code>{}</code>", Escaped(source.trim()));
    }
    if !step.by.is_empty() {
        let _ = write!(out, "<span class=\"by\">{}</span>", Escaped(&step.by));
    }
    out.push_str("</li>\n");
}

/// What anyone can try again; open for the best cause, so that the others are in sight below it.
fn evidence(out: &mut String, report: &Report, rank: usize, cause: &Cause) {
    let open = if rank == 1 { " open" } else { "" };
    let _ = write!(out, "<details class=\"evidence\"{open}><summary>Evidence</summary><dl>");
    item(out, "method", cause.kind.title());
    if let Some(execution) = cause.instance {
        item(out, "execution", &execution.to_string());
    }
    if let Some(Evidence { moment, alteration, verdict, end }) = &cause.evidence {
        item(out, "change", alteration);
        item(
            out,
            "result",
            &[verdict.as_str(), end].into_iter().filter(|t| !t.is_empty()).collect::<Vec<_>>().join(", "),
        );
        item(out, "recording", &report.recording);
        item(out, "moment", moment);
    }
    out.push_str("</dl></details>\n");
}

fn item(out: &mut String, name: &str, value: &str) {
    if !value.is_empty() {
        let _ = write!(out, "<dt>{name}</dt><dd>{}</dd>", Escaped(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_of(length: u32) -> String {
        let step = |line| Step {
            place: Place { file: Some("a.c".into()), line: Some(line), ..Place::default() },
            by: "x".into(),
        };
        let report = Report::default();
        let steps: Vec<Step> = (1..=length).map(step).collect();
        let mut out = String::new();
        path(&mut out, &steps, &Sources::of(&report));
        out
    }

    #[test]
    fn the_middle_of_a_long_path_is_folded() {
        for (length, expected) in [(1, None), (12, None), (13, Some("3 more steps")), (500, Some("490 more steps"))] {
            let html = path_of(length);
            assert_eq!(html.contains("<details>"), expected.is_some(), "{html}");
            assert!(expected.is_none_or(|text| html.contains(text)), "{html}");
            assert_eq!(html.matches("<ol").count(), html.matches("</ol>").count());
            let shown = if length < 2 { 0 } else { length as usize };
            assert_eq!(html.matches("class=\"step\"").count(), shown);
        }
    }
}
