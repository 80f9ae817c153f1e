//! Is the root cause in the slice of the symptom?
//!
//! Every bug is recorded and sliced from the first wrong byte of the output, from the missing output, from the crash or
//! from the exit status.
//!
//! May miss: hangs, which have no end to slice from.

use std::{fs, path::Path, process::Command};

use serde_json::Value;

use super::{Bug, Kind, Request, measure_all};

/// One slice of one bug.
#[derive(Default)]
struct Sliced {
    lines: u64,
    executed: u64,
    /// Distance and rank of the nearest line of the root cause.
    found: Option<(u64, usize)>,
    seconds: f64,
}

pub fn slices(request: &Request) -> Result<bool, String> {
    let kind = Kind {
        columns: 8,
        measure: &|clew: &Path, bug: &Bug, place: &Path| measure(clew, bug, place, &request.budget),
        cells: &|_: &Bug, row: &Row| row.cells(),
    };
    let (rows, all) = measure_all(request, &kind)?;
    let asked = all.iter().filter(|m| m.result.is_ok()).count();
    let inside = all.iter().filter(|m| m.result.as_ref().is_ok_and(Row::is_inside)).count();
    let share = 100.0 * inside as f64 / asked.max(1) as f64;
    let total = format!("In the slice or the relevant slice: {inside} of {asked} ({share:.0} %; goal ≥ 85 %).");
    println!("{total}");
    if request.publish {
        publish(&rows, &total)?;
    }
    Ok(true)
}

/// What was measured for one bug.
struct Row {
    criterion: String,
    backward: Sliced,
    relevant: Sliced,
    pointers: Sliced,
    unbypassed: Sliced,
    unrefined: Sliced,
}

impl Row {
    fn is_inside(&self) -> bool {
        self.backward.found.is_some() || self.relevant.found.is_some()
    }

    fn cells(&self) -> Vec<String> {
        let size = |m: &Sliced| format!("{} ({:.0} %)", m.lines, 100.0 * m.lines as f64 / m.executed.max(1) as f64);
        let (place, found) = match (&self.backward.found, &self.relevant.found, &self.pointers.found) {
            (Some(f), ..) => ("backward", Some(f)),
            (_, Some(f), _) => ("relevant", Some(f)),
            (.., Some(f)) => ("with pointers", Some(f)),
            _ => ("neither", None),
        };
        let distance = found.map(|(d, rank)| format!("{d} (line {rank})")).unwrap_or_default();
        vec![
            self.criterion.clone(),
            size(&self.backward),
            size(&self.relevant),
            place.to_owned(),
            distance,
            size(&self.unbypassed),
            size(&self.unrefined),
        ]
    }
}

fn measure(clew: &Path, bug: &Bug, place: &Path, budget: &str) -> Result<Row, String> {
    let run = &bug.run;
    let recording = place.join("recording");
    let mut record = Command::new("timeout");
    record.arg(run["timeout"].to_string()).arg(clew).args(["record", "-q", "-o"]);
    record.arg(&recording).arg("--").args(bug.command());
    bug.place(&mut record, &place.join("home"))?;
    let out = record.output().map_err(|e| e.to_string())?;
    if out.status.code() == Some(124) {
        return Err("hangs: there is no end to slice from".into());
    }
    let expected = fs::read(bug.field("expected_out")).map_err(|e| e.to_string())?;
    let criterion = criterion(&out.stdout, &expected, &out.status, run)?;
    let slice = |more: &[&str]| measured(clew, bug, &recording, place, &criterion, more, budget);
    Ok(Row {
        criterion: criterion.join(" "),
        backward: slice(&[])?,
        relevant: slice(&["--relevant"])?,
        pointers: slice(&["--relevant", "--pointers"])?,
        unbypassed: slice(&["--no-bypass"])?,
        unrefined: slice(&["--no-refinement"])?,
    })
}

/// What to slice from: how the run failed.
fn criterion(
    actual: &[u8],
    expected: &[u8],
    status: &std::process::ExitStatus,
    run: &Value,
) -> Result<Vec<String>, String> {
    use std::os::unix::process::ExitStatusExt;
    let signal = status.signal().or_else(|| status.code().filter(|c| *c > 128).map(|c| c - 128));
    if signal.is_some() {
        return Ok(vec!["--crash".into()]);
    }
    let same = actual.iter().zip(expected).take_while(|(a, b)| a == b).count();
    if same < actual.len() {
        return Ok(vec!["--output".into(), same.to_string()]);
    }
    if same < expected.len() {
        return Ok(vec!["--output".into(), "end".into()]);
    }
    if status.code().map(i64::from) != run["expected_exit"].as_i64() {
        return Ok(vec!["--exit".into()]);
    }
    Err("it did not fail here".into())
}

fn measured(
    clew: &Path,
    bug: &Bug,
    recording: &Path,
    place: &Path,
    criterion: &[String],
    more: &[&str],
    budget: &str,
) -> Result<Sliced, String> {
    let mut command = Command::new(clew);
    command.arg("slice").args(criterion).args(more).args(["--json", "--budget", budget]).arg(recording);
    let out = command.env("CLEW_HOME", place.join("home")).output().map_err(|e| e.to_string())?;
    let answer: Value =
        serde_json::from_slice(&out.stdout).map_err(|_| String::from_utf8_lossy(&out.stderr).trim().to_owned())?;
    let candidates = answer["candidates"].as_array().cloned().unwrap_or_default();
    let found = candidates.iter().enumerate().find(|(_, c)| bug.is_hit(c));
    let seconds = ["find", "trace", "prepare", "slice"].iter().filter_map(|t| answer["time"][t].as_f64()).sum();
    let count = |name: &str| answer["slice"][name].as_u64().unwrap_or(0);
    let m = Sliced {
        lines: count("lines"),
        executed: count("executed_lines"),
        found: found.map(|(n, c)| (c["distance"].as_u64().unwrap_or(0), n + 1)),
        seconds,
    };
    println!("  {} {more:?}: {} of {} lines, {:?}, {:.1} s", bug.id, m.lines, m.executed, m.found, m.seconds);
    Ok(m)
}

fn publish(rows: &[String], total: &str) -> Result<(), String> {
    let text = format!(
        "Made by `cargo xtask accuracy slice --publish`. For each bug the failing run is recorded and sliced from the first
wrong byte, from the missing output (`end`), from the crash or from the exit status. Sizes are own source lines and their
share of the executed ones. *In* says in which slice a line of the root cause is: the backward slice, the relevant slice
(potential dependences too), only when stores through pointers count as well, or in neither. The distance is that of the
nearest such line in dependences; behind it, its place when the slice's lines are read by distance. The last two columns
are the backward slice when saved registers are followed through the stack, and when the targets of indirect jumps are not
known.

| bug | sliced from | backward | relevant | in | distance | without save/restore bypass | without indirect targets |
|---|---|---|---|---|---|---|---|
{}

{total}
",
        rows.join("\n")
    );
    super::publish("Slices", &text)
}
