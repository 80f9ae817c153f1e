//! The tests that compare with an independent oracle, run so that their figures show: the decoded trace against
//! single-stepping, alterations against the same change made natively, verified replays against bits changed on purpose,
//! and the table of instruction effects against the processor.
//!
//! They are ordinary tests of `testkit` and `isa`; here their own `n of N` lines are kept. `CLEW_FULL=1` makes them do
//! all cases instead of a fixed sample.

use std::{env, process::Command};

use crate::{scratch::root, tally::Tally};

/// Package, test, and what it shows.
const ORACLES: &[(&str, &str, &str)] = &[
    ("testkit", "trace_oracle", "the decoded trace equals single-stepping"),
    ("testkit", "plan_oracle", "planned accesses equal single-stepping"),
    ("testkit", "alterations", "alterations equal the same change made natively"),
    ("testkit", "verify", "a verified replay reports a bit that was changed, unless it did not matter"),
    ("isa", "cpu", "instruction effects hold on the processor"),
];

/// A nextest filter for all other tests.
pub fn filter_of_others() -> String {
    let these: Vec<String> =
        ORACLES.iter().map(|(package, test, _)| format!("(package({package}) & binary({test}))")).collect();
    format!("not ({})", these.join(" | "))
}

pub fn oracles(full: bool) -> Tally {
    let mut tally = Tally::new("oracles");
    for (package, test, shows) in ORACLES {
        let result = run(package, test, full, &mut tally);
        tally.count(shows, result);
    }
    tally
}

fn run(package: &str, test: &str, full: bool, tally: &mut Tally) -> Result<(), String> {
    let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["test", "--quiet", "--package", package, "--test", test, "--", "--nocapture"])
        .env("CLEW_FULL", if full { "1" } else { "0" })
        .current_dir(root())
        .output()
        .map_err(|e| format!("cargo: {e}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    said.lines().filter_map(figure).for_each(|line| tally.note(line));
    if output.status.success() {
        return Ok(());
    }
    let why = said.lines().find(|l| l.contains("panicked") || l.starts_with("error")).unwrap_or("failed");
    Err(format!("{why}\n{}", tail(&said, 30)))
}

/// The last lines of a text.
fn tail(text: &str, n: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(n)..].join("\n")
}

/// A line that says how many of how many, without what the test runner puts before it.
fn figure(line: &str) -> Option<String> {
    let line = line.trim_start_matches('.');
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |w: &str| !w.is_empty() && w.chars().all(|c| c.is_ascii_digit());
    let found = words.windows(3).any(|w| number(w[0]) && w[1] == "of" && number(w[2]));
    found.then(|| line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_figures_are_kept() {
        assert_eq!(figure("..12 of 40 guests equal"), Some("12 of 40 guests equal".to_owned()));
        assert_eq!(figure("one of many"), None);
    }
}
