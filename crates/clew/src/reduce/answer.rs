//! What was found, for people and as JSON.

use crate::cli::{InputBytes, Source};
use crate::message::Paint;
use crate::show::count;
use diagnose::Stop;
use diagnose::reduce::{Hunk, Input, Isolated, Tally};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fmt::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Lines of an input that are shown, and characters of each.
const LINES: usize = 20;
const COLUMNS: usize = 120;
/// Lines around a difference.
const AROUND: usize = 2;
/// Differences that are told.
const HUNKS: usize = 10;
/// Longer inputs are not in the JSON document.
const MOST_IN_JSON: usize = 1 << 20;

/// What was found.
pub enum Found {
    Smallest { failing: Input, stopped: Option<Stop> },
    Pair(Isolated),
    Nothing { stopped: Option<Stop>, empty_fails: bool },
}

impl Found {
    /// Why it is not all that could be found.
    pub fn limit(&self) -> Option<String> {
        let (what, stopped) = match self {
            Found::Smallest { stopped, .. } => ("a smaller input may be left to find", stopped),
            Found::Pair(pair) => ("a closer pair may be left to find", &pair.stopped),
            Found::Nothing { stopped, .. } => ("no passing input was found until then", stopped),
        };
        stopped.map(|stop| match stop {
            Stop::Time => format!("the time ran out: {what} (--budget)"),
            Stop::Interrupted => format!("interrupted: {what}"),
        })
    }
}

/// The answer.
pub struct Answer {
    pub input: Source,
    pub size: usize,
    pub failure: String,
    pub found: Found,
    pub tally: Tally,
    pub limits: Vec<String>,
    pub output: Option<PathBuf>,
    pub time: Duration,
}

impl Answer {
    /// Is it more than what was given?
    pub fn is_better(&self) -> bool {
        match &self.found {
            Found::Smallest { failing, .. } => failing.bytes.len() < self.size,
            Found::Pair(_) => true,
            Found::Nothing { .. } => false,
        }
    }

    /// Writes the inputs that were found to where the user wants them.
    pub fn write(&self, to: Option<&Path>) -> Result<(), String> {
        let Some(path) = to else { return Ok(()) };
        let write = |path: &Path, input: &Input| {
            std::fs::write(path, &input.bytes).map_err(|e| format!("{} cannot be written: {e}", path.display()))
        };
        match &self.found {
            Found::Smallest { failing, .. } => write(path, failing),
            Found::Pair(pair) => write(path, &pair.failing).and_then(|()| write(&beside(path), &pair.passing)),
            Found::Nothing { .. } => Ok(()),
        }
    }

    /// For people.
    pub fn text(&self, paint: Paint) -> String {
        let mut out = format!("The run fails: {}.\n", self.failure);
        match &self.found {
            Found::Smallest { .. } if self.size == 0 => {
                out.push_str("The input is empty: nothing can be left out of it.\n")
            }
            Found::Smallest { failing, stopped: Some(_) } if failing.bytes.len() == self.size => {
                out.push_str("No smaller input that fails so was found until it had to end.\n");
            }
            Found::Smallest { failing, .. } if failing.bytes.len() == self.size => {
                let _ = writeln!(out, "No smaller input that fails so was found: all {} are needed.", bytes(self.size));
            }
            Found::Smallest { failing, .. } if failing.bytes.is_empty() => {
                out.push_str("It fails so without any input.\n");
            }
            Found::Smallest { failing, .. } => {
                let size = paint.strong(&bytes(failing.bytes.len()));
                let _ = writeln!(out, "The smallest input found that fails so has {size} of {}:", self.size);
                show(&mut out, &failing.bytes);
            }
            Found::Pair(pair) => self.text_of_pair(&mut out, pair, paint),
            Found::Nothing { empty_fails: true, .. } => {
                out.push_str("It fails so without any input: no part of the input makes the difference.\n");
            }
            Found::Nothing { stopped: Some(_), .. } => {
                out.push_str("No input that passes was found until it had to end.\n");
            }
            Found::Nothing { .. } => {
                out.push_str("No part of the input passes, so there is nothing to compare with: give an input that does with --good FILE.\n");
            }
        }
        if let (Some(path), false) = (&self.output, matches!(self.found, Found::Nothing { .. })) {
            let pass = match self.found {
                Found::Pair(_) => format!(", the passing one to {}", beside(path).display()),
                _ => String::new(),
            };
            let _ = writeln!(out, "\nwritten to {}{pass}", path.display());
        }
        let Tally { passes, fails, unresolved, .. } = self.tally;
        let _ = writeln!(
            out,
            "\n{} ({fails} fail, {passes} pass, {unresolved} unresolved), {:.1} s",
            count(self.tally.runs(), "run"),
            self.time.as_secs_f64()
        );
        for limit in &self.limits {
            let _ = writeln!(out, "limit: {limit}");
        }
        out
    }

    fn text_of_pair(&self, out: &mut String, pair: &Isolated, paint: Paint) {
        let hunks = pair.hunks();
        let changed: usize = hunks.iter().map(|h| h.passing.len().max(h.failing.len())).sum();
        let [passing, failing] = [&pair.passing, &pair.failing].map(|i| bytes(i.bytes.len()));
        let changed = paint.strong(&bytes(changed));
        let _ = writeln!(out, "An input of {passing} passes, one of {failing} fails so; they differ in {changed}:");
        for hunk in hunks.iter().take(HUNKS) {
            let [has, lacks] = [(&pair.failing, &hunk.failing), (&pair.passing, &hunk.passing)]
                .map(|(input, range)| quoted(&input.bytes[range.clone()]));
            let at = place(&pair.failing.bytes, hunk.failing.start);
            let what = match (hunk.failing.is_empty(), hunk.passing.is_empty()) {
                (false, true) => format!("{has}, which the passing one has not"),
                (true, _) => format!("nothing where the passing one has {lacks}"),
                (false, false) => format!("{has} where the passing one has {lacks}"),
            };
            let _ = writeln!(out, "  {at}: {what}");
        }
        if hunks.len() > HUNKS {
            let _ = writeln!(out, "  … and {} more (--json has them all)", hunks.len() - HUNKS);
        }
        if let Some(first) = hunks.first() {
            for (name, input, at) in
                [("passes", &pair.passing, first.passing.start), ("fails", &pair.failing, first.failing.start)]
            {
                let _ = writeln!(out, "\n{name}, around there:");
                show_around(out, &input.bytes, at);
            }
        }
        if let Some(option) = self.option() {
            let _ =
                writeln!(out, "\nto search from there: clew why {option} …, or clew switch --order prior {option} …");
        }
    }

    /// The bytes of the given input that make the difference.
    pub fn bytes(&self) -> Option<InputBytes> {
        let Found::Pair(pair) = &self.found else { return None };
        let origins = pair.origins();
        (!origins.is_empty()).then(|| InputBytes::new(self.input.clone(), &origins))
    }

    /// The option with which other verbs look at what these bytes led to.
    fn option(&self) -> Option<String> {
        let bytes = OsString::from(self.bytes()?.to_string());
        Some(format!("--input-bytes {}", crate::show::word(&bytes)))
    }

    /// One JSON document.
    pub fn json(&self) -> String {
        let Tally { passes, fails, unresolved, known } = self.tally;
        let mut document = json!({
            "clew": 1,
            "verb": "reduce",
            "method": if matches!(self.found, Found::Smallest { .. }) { "ddmin" } else { "isolate" },
            "input": { "name": self.input.to_string(), "bytes": self.size },
            "failure": self.failure,
        });
        match &self.found {
            Found::Smallest { failing, .. } => document["failing"] = value(failing),
            Found::Pair(pair) => {
                document["failing"] = value(&pair.failing);
                document["passing"] = value(&pair.passing);
                document["difference"] = pair.hunks().iter().map(|h| hunk(pair, h)).collect();
                document["origins"] = json!(pair.origins());
                document["option"] = json!(self.option());
            }
            Found::Nothing { empty_fails, .. } => document["fails_without_input"] = json!(empty_fails),
        }
        document["runs"] = json!({
            "all": self.tally.runs(), "fail": fails, "pass": passes, "unresolved": unresolved, "known": known,
        });
        document["limits"] = json!(self.limits);
        document["time"] = json!({ "seconds": self.time.as_secs_f64() });
        format!("{document:#}\n")
    }
}

/// Where the passing input goes.
/// Where the passing one of a pair is written.
pub fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".pass");
    name.into()
}

fn bytes(n: usize) -> String {
    count(n as u64, "byte")
}

/// A part of an input in a sentence.
fn quoted(bytes: &[u8]) -> String {
    let text: String = bytes.escape_ascii().to_string().chars().take(COLUMNS).collect();
    format!("'{text}'")
}

/// `byte 7, line 2`.
fn place(bytes: &[u8], at: usize) -> String {
    format!("byte {at}, line {}", line_of(bytes, at))
}

/// The beginning of an input.
fn show(out: &mut String, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines.iter().take(LINES).for_each(|line| show_line(out, line));
    if lines.len() > LINES {
        let _ = writeln!(out, "    … and {} more lines", lines.len() - LINES);
    }
}

/// The lines of an input around a byte.
fn show_around(out: &mut String, bytes: &[u8], at: usize) {
    let text = String::from_utf8_lossy(bytes);
    let line = line_of(bytes, at) - 1;
    let first = line.saturating_sub(AROUND);
    let shown: Vec<&str> = text.lines().skip(first).take(line - first + AROUND + 1).collect();
    shown.iter().for_each(|line| show_line(out, line));
    if shown.is_empty() {
        out.push_str("    (nothing)\n");
    }
}

/// One line, with nothing in it that acts on a terminal.
fn show_line(out: &mut String, line: &str) {
    let line = report::words::visible(line);
    let shown: String = line.chars().take(COLUMNS).collect();
    let more = if shown.len() < line.len() { "…" } else { "" };
    let _ = writeln!(out, "    {shown}{more}");
}

fn line_of(bytes: &[u8], at: usize) -> usize {
    bytes[..at].iter().filter(|b| **b == b'\n').count() + 1
}

fn value(input: &Input) -> Value {
    let bytes = &input.bytes;
    let mut value = json!({ "bytes": bytes.len() });
    match std::str::from_utf8(bytes) {
        _ if bytes.len() > MOST_IN_JSON => {}
        Ok(text) => value["text"] = json!(text),
        Err(_) => value["hex"] = json!(bytes.iter().map(|b| format!("{b:02x}")).collect::<String>()),
    }
    value
}

fn hunk(pair: &Isolated, hunk: &Hunk) -> Value {
    let part = |input: &Input, range: &Range<usize>| {
        let text = input.bytes[range.clone()].escape_ascii().to_string();
        json!({ "offset": range.start, "bytes": range.len(), "text": text })
    };
    json!({ "failing": part(&pair.failing, &hunk.failing), "passing": part(&pair.passing, &hunk.passing) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_bytes_do_nothing_to_a_terminal() {
        let mut out = String::new();
        show(&mut out, b"\x1b[2Ja\nb\xff");
        assert_eq!(out, "    \\u{1b}[2Ja\n    b\u{fffd}\n");
        assert_eq!(quoted(b"\x1b\n"), "'\\x1b\\n'");
    }
}
