//! How many trials find a critical predicate, and how much is to be read from there.
//!
//! Each bug is given to `clew switch --all` with its expected output and exit status, once in each order. What counts is the
//! number of the trial, not its time. The lines to read are those of the first predicate that PRIOR finds.

use std::path::Path;

use serde_json::Value;

use super::{Bug, Kind, Measured, Request, ask, measure_all};

/// What one order came to.
struct Order {
    /// The trial that first repaired the run, and the first one at or near the root cause.
    first: Option<u64>,
    meaningful: Option<u64>,
    tried: u64,
    /// Branches that were not tried.
    unfinished: bool,
}

/// How many lines there are to read.
struct Lines {
    executed: u64,
    both_sides: Option<u64>,
    from_input: Option<u64>,
    /// BiChop, or what takes its place where no predicate was found; nothing if neither is known.
    chop: Option<u64>,
    /// Lines up to the first one of the root cause, when they are read by distance.
    examined: Option<usize>,
}

struct Row {
    branches: u64,
    lefs: Order,
    prior: Order,
    lines: Lines,
}

pub fn switches(request: &Request) -> Result<bool, String> {
    let kind = Kind {
        columns: 11,
        measure: &|clew: &Path, bug: &Bug, place: &Path| measure(clew, bug, place, &request.budget),
        cells: &|_: &Bug, row: &Row| row.cells(),
    };
    let (rows, all) = measure_all(request, &kind)?;
    let total = total(&all);
    println!("{total}");
    if request.publish {
        publish(&rows, &total, &request.budget)?;
    }
    Ok(true)
}

fn measure(clew: &Path, bug: &Bug, place: &Path, budget: &str) -> Result<Row, String> {
    let search = |more: &[&str]| {
        let arguments = [&["switch", "--all", "--budget", budget], more].concat();
        ask(clew, bug, place, &arguments)
    };
    let lefs = search(&["--order", "lefs"])?;
    let prior = search(&["--order", "prior", "--lines"])?;
    let row = Row {
        branches: prior["executed"].as_u64().unwrap_or(0),
        lefs: Order::of(&lefs, bug),
        prior: Order::of(&prior, bug),
        lines: Lines::of(&prior, bug),
    };
    Ok(row)
}

impl Order {
    fn of(answer: &Value, bug: &Bug) -> Order {
        let is_proved = |c: &&Value| c["kind"] == "critical-predicate" && c["status"] == "proved";
        let all = answer["candidates"].as_array().into_iter().flatten();
        let found: Vec<&Value> = all.filter(is_proved).collect();
        let number = |c: &&Value| c["trial"]["number"].as_u64();
        let tried = answer["tried"]["trials"].as_u64().unwrap_or(0);
        Order {
            first: found.iter().filter_map(number).min(),
            meaningful: found.iter().filter(|c| bug.is_meaningful(c)).filter_map(number).min(),
            tried,
            unfinished: tried < answer["executed"].as_u64().unwrap_or(0),
        }
    }

    fn cells(&self) -> [String; 2] {
        [self.first, self.meaningful].map(|n| match (n, self.unfinished) {
            (Some(n), _) => n.to_string(),
            (None, true) => format!("> {}", self.tried),
            (None, false) => "none".into(),
        })
    }
}

impl Lines {
    fn of(answer: &Value, bug: &Bug) -> Lines {
        let proved = answer["candidates"].as_array().into_iter().flatten().find(|c| c["status"] == "proved");
        let around = proved.map(|c| &c["around"]).filter(|a| a.is_object());
        let from_input = answer["lines"]["from_input"].as_array();
        let list = around.and_then(|a| a["lines"].as_array()).or(from_input);
        let examined = list.and_then(|l| l.iter().position(|line| bug.is_hit(line))).map(|n| n + 1);
        Lines {
            executed: answer["lines"]["executed_lines"].as_u64().unwrap_or(0),
            both_sides: around.and_then(|a| a["both_sides"].as_u64()),
            from_input: from_input.map(|l| l.len() as u64),
            chop: list.map(|l| l.len() as u64),
            examined,
        }
    }

    fn cells(&self) -> [String; 5] {
        let share = |n: u64| format!("{n} ({:.0} %)", 100.0 * n as f64 / self.executed.max(1) as f64);
        let or_none = |n: Option<u64>| n.map_or("–".into(), share);
        [
            self.executed.to_string(),
            or_none(self.both_sides),
            or_none(self.from_input),
            or_none(self.chop),
            match (self.examined, self.chop) {
                (Some(n), _) => n.to_string(),
                (None, Some(_)) => "not in it".into(),
                (None, None) => "–".into(),
            },
        ]
    }
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let branches = [self.branches.to_string()];
        let orders = self.lefs.cells().into_iter().chain(self.prior.cells());
        branches.into_iter().chain(orders).chain(self.lines.cells()).collect()
    }
}

fn total(measured: &[Measured<Row>]) -> String {
    let rows: Vec<&Row> = measured.iter().filter_map(|m| m.result.as_ref().ok()).collect();
    let count = |wanted: &dyn Fn(&Row) -> bool| rows.iter().filter(|r| wanted(r)).count();
    let all = measured.len();
    let small = |r: &Row| r.lines.chop.is_some_and(|n| n * 100 < 16 * r.lines.executed);
    let [within_3, within_20] = [3, 20].map(|most| count(&|r| r.lines.examined.is_some_and(|n| n <= most)));
    format!(
        "A critical predicate was found by LEFS for {} and by PRIOR for {} of {all} bugs, one at or near the root by LEFS for {} and \
         by PRIOR for {}. The root is in what is to be read for {}: among the first 3 lines for {within_3}, among the first 20 for \
         {within_20}. What is to be read is less than 16 % of the executed lines for {}.",
        count(&|r| r.lefs.first.is_some()),
        count(&|r| r.prior.first.is_some()),
        count(&|r| r.lefs.meaningful.is_some()),
        count(&|r| r.prior.meaningful.is_some()),
        count(&|r| r.lines.examined.is_some()),
        count(&small),
    )
}

fn publish(rows: &[String], total: &str, budget: &str) -> Result<(), String> {
    let text = format!(
        "Made by `cargo xtask accuracy switch --budget {budget} --publish`. `clew switch --all` is given the failing command, the
expected output and the expected exit status, once in each order. *LEFS* and *PRIOR* are the numbers of the trials that first
repaired the run, proved, and behind it that of the first one at a line of the root cause or at the branch that is known to
repair the run; `> N` says that none of N trials did before the time ran out. The other columns are own source lines and their
share of the executed ones. *BiS* is what the first predicate that PRIOR found depended on and what depended on it, *FiChop* what
the input had an influence on of what the symptom depends on (all input: the smallest difference of inputs that makes the
failure is not looked for), *BiChop* what is in both; where no predicate was found, FiChop takes its place. *Examined* counts
the lines of BiChop, read by distance from the predicate, up to the first one of the root cause.

| bug | branches executed | LEFS | at the root | PRIOR | at the root | lines executed | BiS | FiChop | BiChop | examined |
|---|---|---|---|---|---|---|---|---|---|---|
{}

{total}
",
        rows.join("\n")
    );
    super::publish("Critical predicates", &text)
}
