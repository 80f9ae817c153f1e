//! At which rank does `clew why` name the root cause?
//!
//! Each bug is given to `clew why` with its expected output and exit status, as a user would, and no reference program.

use std::{path::Path, time::Instant};

use serde_json::Value;

use super::{Bug, Kind, Measured, Request, ask, measure_all};

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
    let kind = Kind {
        columns: 7,
        measure: &|clew: &Path, bug: &Bug, place: &Path| measure(clew, bug, place, &request.budget),
        cells: &|bug: &Bug, row: &Row| row.cells(bug.flip),
    };
    let (rows, all) = measure_all(request, &kind)?;
    let total = total(&all);
    println!("{total}");
    if request.publish {
        publish(&rows, &total, request)?;
    }
    Ok(true)
}

impl Row {
    fn cells(&self, flip: Option<bool>) -> Vec<String> {
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
        vec![
            self.rank.map_or("miss".into(), |r| r.to_string()),
            status.into(),
            flip.into(),
            self.trials.to_string(),
            format!("{:.0}", self.seconds),
            self.first.clone(),
        ]
    }
}

fn measure(clew: &Path, bug: &Bug, place: &Path, budget: &str) -> Result<Row, String> {
    let begun = Instant::now();
    let answer = ask(clew, bug, place, &["why", "--top", TOP, "--budget", budget])?;
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

/// Bugs without an answer are missed.
fn total(measured: &[Measured<Row>]) -> String {
    let rows = || measured.iter().filter_map(|m| m.result.as_ref().ok());
    let within = |most: usize| rows().filter(|r| r.rank.is_some_and(|n| n <= most)).count();
    let all = measured.len().max(1);
    let listed: Vec<_> = measured.iter().filter(|m| m.bug.flip == Some(true)).collect();
    let found = listed.iter().filter(|m| m.result.as_ref().is_ok_and(|r| r.critical)).count();
    let listed = listed.len();
    let share = |n: usize| format!("{n} of {all} ({:.0} %)", 100.0 * n as f64 / all as f64);
    let ranks = format!(
        "Rank 1: {} (goal ≥ 40 %); in the first five: {} (goal ≥ 65 %); in the first ten: {}.",
        share(within(1)),
        share(within(5)),
        share(within(10))
    );
    match listed {
        0 => ranks,
        _ => format!(
            "{ranks} A critical predicate was found for {found} of the {listed} bugs for which one at or near the root is \
             known to repair the run."
        ),
    }
}

fn publish(table: &[String], total: &str, request: &Request) -> Result<(), String> {
    let budget = &request.budget;
    if request.later {
        return publish_later(table, total, budget);
    }
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

fn publish_later(table: &[String], total: &str, budget: &str) -> Result<(), String> {
    let text = format!(
        "Made by `cargo xtask accuracy why --later --publish`, with a budget of {budget} for each bug on two cores. The bugs of
`corpus/later` were gathered when the weights of the ranking had been chosen, without a look at what `clew why` says about them.

| bug | rank | status | flip | trials | seconds | first finding |
|---|---|---|---|---|---|---|
{}

{total}
",
        table.join("\n")
    );
    super::publish("Causes of bugs that came later", &text)
}
