//! At which rank does `clew why` name the root cause?
//!
//! Each bug is given to `clew why` with its expected output and exit status, as a user would, and no reference program.

use std::{fs, path::Path, process::Command, time::Instant};

use serde_json::Value;

use super::{Bug, Request};
use crate::guests::clew_binary;

/// How many causes are asked for.
const TOP: &str = "10";

/// What came of one bug.
struct Row {
    rank: Option<usize>,
    /// Is the finding at the root cause proved?
    proved: bool,
    /// Is any critical predicate among the findings?
    critical: bool,
    trials: u64,
    seconds: f64,
    first: String,
}

pub fn whys(request: &Request) -> Result<bool, String> {
    let clew = clew_binary(request.clew.clone())?;
    let mut table = Vec::new();
    let (mut rows, mut flips) = (Vec::new(), (0, 0));
    for id in request.bugs()? {
        let bug = Bug::describe(&request.corpus, &id)?;
        let place = std::env::temp_dir().join(format!("clew-accuracy-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place).map_err(|e| e.to_string())?;
        let row = match measure(&clew, &bug, &place, &request.budget) {
            Ok(row) => {
                if bug.flip == Some(true) {
                    flips = (flips.0 + usize::from(row.critical), flips.1 + 1);
                }
                let text = row.text(&id, bug.flip);
                rows.push(row);
                text
            }
            Err(why) => {
                rows.push(Row::missed());
                format!("| {id} | {} | | | | | |", why.replace('|', "/"))
            }
        };
        println!("{row}");
        table.push(row);
        let _ = fs::remove_dir_all(&place);
    }
    let total = total(&rows, flips);
    println!("{total}");
    if request.publish {
        publish(&table, &total, &request.budget)?;
    }
    Ok(true)
}

impl Row {
    fn missed() -> Row {
        Row { rank: None, proved: false, critical: false, trials: 0, seconds: 0.0, first: String::new() }
    }

    fn text(&self, id: &str, flip: Option<bool>) -> String {
        let rank = self.rank.map_or("miss".into(), |r| r.to_string());
        let status = match (self.rank, self.proved) {
            (None, _) => "",
            (_, true) => "proved",
            (_, false) => "suspected",
        };
        let flip = match flip {
            Some(true) => "yes",
            Some(false) => "no",
            None => "",
        };
        let (trials, seconds, first) = (self.trials, self.seconds, &self.first);
        format!("| {id} | {rank} | {status} | {flip} | {trials} | {seconds:.0} | {first} |")
    }
}

fn measure(clew: &Path, bug: &Bug, place: &Path, budget: &str) -> Result<Row, String> {
    let run = &bug.run;
    let mut command = Command::new(clew);
    command.arg("why").args(["--json", "--top", TOP, "--budget", budget]);
    command.arg("--expect").arg(bug.field("expected_out"));
    command.arg("--expect-exit").arg(run["expected_exit"].to_string());
    command.arg("--timeout").arg(format!("{}s", run["timeout"])).arg("--").args(bug.command());
    bug.place(&mut command, &place.join("home"))?;
    let begun = Instant::now();
    let out = command.output().map_err(|e| e.to_string())?;
    let answer: Value = serde_json::from_slice(&out.stdout)
        .map_err(|_| String::from_utf8_lossy(&out.stderr).trim().chars().take(160).collect::<String>())?;
    let candidates = answer["candidates"].as_array().cloned().unwrap_or_default();
    let found = candidates.iter().position(|c| bug.is_hit(c));
    let is_critical = |c: &Value| c["kind"] == "critical-predicate" && c["status"] == "proved";
    let first = candidates.first().map(|c| {
        let file = c["file"].as_str().unwrap_or("?");
        format!("{file}:{} ({})", c["line"], c["status"].as_str().unwrap_or("?"))
    });
    Ok(Row {
        rank: found.map(|n| n + 1),
        proved: found.is_some_and(|n| candidates[n]["status"] == "proved"),
        critical: candidates.iter().any(is_critical),
        trials: answer["tried"]["trials"].as_u64().unwrap_or(0),
        seconds: begun.elapsed().as_secs_f64(),
        first: first.unwrap_or_default(),
    })
}

fn total(rows: &[Row], (found, listed): (usize, usize)) -> String {
    let within = |most: usize| rows.iter().filter(|r| r.rank.is_some_and(|n| n <= most)).count();
    let all = rows.len().max(1);
    let share = |n: usize| format!("{n} of {all} ({:.0} %)", 100.0 * n as f64 / all as f64);
    format!(
        "Rank 1: {} (goal ≥ 40 %); in the first five: {} (goal ≥ 65 %); in the first ten: {}. A critical predicate was found for \
         {found} of the {listed} bugs for which one at or near the root is known to repair the run.",
        share(within(1)),
        share(within(5)),
        share(within(10))
    )
}

fn publish(table: &[String], total: &str, budget: &str) -> Result<(), String> {
    let text = format!(
        "Made by `cargo xtask accuracy why --publish`, with a budget of {budget} for each bug on two cores. `clew why` is given
the failing command, the expected output and the expected exit status. *Rank* is that of the first finding at a line of the
root cause; *flip* says whether switching one execution of a branch at or near the root is known to repair the run.

| bug | rank | status | flip | trials | seconds | first finding |
|---|---|---|---|---|---|---|
{}

{total}
",
        table.join("\n")
    );
    super::publish("Causes", &text)
}
