//! What trials cost: switching branches of a program that fails late, beside running it natively from the start for each of
//! them, which is a lower bound of what the original method costs.
//!
//! The native time is the shortest of several runs; all cores are taken to be used for it, without any loss. Of several
//! searches the one that got furthest counts: both are what the machine can do when nobody else uses it.

use std::{fs, path::Path, process::Command, time::Instant};

use serde_json::Value;

use super::Request;
use super::table::replace_between;
use crate::{
    check::machine,
    guests::{Stage, clew_binary},
    scratch::root,
    tally::Tally,
};

const BEGIN: &str = "<!-- bench switch: written by `cargo xtask bench switch --publish` -->";
const END: &str = "<!-- end of bench switch -->";
/// Thousands of rounds, about nine instructions each.
const SIZES: [u64; 3] = [1_200, 12_000, 120_000];
const BUDGET: &str = "10s";
const NATIVE_RUNS: usize = 7;
const SEARCHES: usize = 3;

pub fn bench(request: &Request) -> Result<Tally, String> {
    let clew = clew_binary(request.clew.clone())?;
    let mut tally = Tally::new("bench switch");
    let stage = Stage::new("bench-switch", &clew)?;
    let program = stage.bin().join("bench-late");
    let mut table = String::from(
        "| instructions | native run | trials | trials/s | search | native re-execution of as many | faster |\n|---|---|---|---|---|---|---|\n",
    );
    let sizes = if request.shrink > 1 { &SIZES[..1] } else { &SIZES[..] };
    for thousands in sizes {
        let row = measure(&clew, &stage, &program, *thousands);
        if let Ok(row) = &row {
            print!("{row}");
            table.push_str(row);
        }
        tally.count(&format!("{thousands}k rounds"), row.map(drop));
    }
    if request.publish {
        publish(&table)?;
    }
    Ok(tally)
}

fn measure(clew: &Path, stage: &Stage, program: &Path, thousands: u64) -> Result<String, String> {
    let rounds = thousands.to_string();
    let right = Command::new(program).args([&rounds, "right"]).output().map_err(|e| e.to_string())?;
    let expected = stage.inputs().join("late-expected");
    fs::write(&expected, right.stdout).map_err(|e| e.to_string())?;
    let mut native = f64::INFINITY;
    for _ in 0..NATIVE_RUNS {
        let begun = Instant::now();
        Command::new(program).arg(&rounds).output().map_err(|e| e.to_string())?;
        native = native.min(begun.elapsed().as_secs_f64());
    }
    let mut best = Searched::default();
    for _ in 0..SEARCHES {
        let searched = search(clew, stage, program, &rounds, &expected)?;
        if searched.trials > best.trials {
            best = searched;
        }
    }
    let Searched { trials, whole, spent } = best;
    let cores = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
    let natively = native * trials / cores;
    let instructions = 9.0 * thousands as f64 / 1e3;
    Ok(format!(
        "| {instructions:.0} M | {:.1} ms | {trials:.0} | {:.0} | {whole:.1} s | {natively:.1} s | {:.1} × |\n",
        native * 1e3,
        trials / spent,
        natively / whole
    ))
}

/// One search: how many trials it made, how long it took, and how long the trials took of that.
#[derive(Default)]
struct Searched {
    trials: f64,
    whole: f64,
    spent: f64,
}

fn search(clew: &Path, stage: &Stage, program: &Path, rounds: &str, expected: &Path) -> Result<Searched, String> {
    let mut switch = Command::new(clew);
    switch.args(["switch", "--all", "--json", "--budget", BUDGET, "--expect"]).arg(expected);
    let out = switch.arg("--").arg(program).arg(rounds).env("CLEW_HOME", stage.clew_home()).output();
    let out = out.map_err(|e| e.to_string())?;
    let answer: Value = serde_json::from_slice(&out.stdout)
        .map_err(|_| format!("no answer: {}", String::from_utf8_lossy(&out.stderr).trim()))?;
    if answer["candidates"].as_array().is_none_or(Vec::is_empty) {
        return Err("the critical predicate was not found".into());
    }
    let count = |name: &str| answer["tried"][name].as_f64().unwrap_or(0.0);
    Ok(Searched {
        trials: count("trials") + count("controls"),
        whole: answer["time"]["seconds"].as_f64().unwrap_or(0.0).max(1e-9),
        spent: answer["time"]["trials"].as_f64().unwrap_or(0.0).max(1e-9),
    })
}

fn publish(table: &str) -> Result<(), String> {
    let path = root().join("docs/performance.md");
    let text = fs::read_to_string(&path).map_err(|e| e.to_string())?;
    let section = format!("Made by `cargo xtask bench switch --publish`. {}\n\n{table}", machine());
    let text = replace_between(&text, BEGIN, END, &section).ok_or("the markers of docs/performance.md are gone")?;
    fs::write(&path, text).map_err(|e| e.to_string())
}
