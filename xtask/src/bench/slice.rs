//! What slices cost: tracing and preparing windows of several sizes, slices over them, memory.
//!
//! Each program is run natively and recorded in the same run; the example `slice_speed` of crate `clew` measures on the
//! recording. The time of a window at native speed is the program's time times the window's share of its ticks. Beside it,
//! valgrind's `lackey --trace-mem=yes`, which cannot begin in the middle, on the whole of a run of about a million
//! instructions that Clew traces, too.
//! May miss: programs whose last stretch is slower or faster than the rest.

use std::{fmt::Write as _, fs, path::Path, process::Command, time::Instant};

use serde_json::Value;

use super::Request;
use super::table::replace_between;
use super::workloads::{self, Workload};
use crate::{
    check::machine,
    guests::{Stage, clew_binary, has_program},
    scratch::root,
    tally::Tally,
};

const BEGIN: &str = "<!-- bench slice: written by `cargo xtask bench slice --publish` -->";
const END: &str = "<!-- end of bench slice -->";
/// Millions of instructions.
const SIZES: [&str; 4] = ["1", "10", "100", "1000"];
const ROWS: [&str; 4] = ["gzip", "Lua", "sqlite3", "threads"];
const HEAD: &str = "| program | instructions | traced, × native | ready, × native | slices | first page, median (most) | whole, median (most) | nodes, median | edges, median | memory |
|---|---|---|---|---|---|---|---|---|---|
";
/// So much smaller are the inputs of a run of about a million instructions.
const SMALL: u64 = 4000;

pub fn bench(request: &Request) -> Result<Tally, String> {
    let clew = clew_binary(request.clew.clone())?;
    let mut tally = Tally::new("bench slice");
    let stage = Stage::new("bench-slice", &clew)?;
    let sizes = if request.shrink > 1 { &SIZES[..1] } else { &SIZES[..] };
    let mut table = String::new();
    for work in chosen(&stage, request.shrink)? {
        if request.only.as_ref().is_some_and(|only| !work.name.contains(only.as_str())) {
            continue;
        }
        match windows(&clew, &stage, &work, sizes) {
            Ok(windows) => {
                let lines: String = windows.iter().map(|w| row(&work.name, w)).collect();
                print!("{lines}");
                table.push_str(&lines);
                tally.count(&work.name, Ok(()));
            }
            Err(why) => tally.count(&work.name, Err(why)),
        }
    }
    if has_program("valgrind") && request.peers {
        let line = lackey(&clew, &stage)?;
        println!("{line}");
        let _ = write!(table, "\n{line}\n");
    }
    if request.publish {
        publish(&table)?;
    }
    Ok(tally)
}

/// The programs of the table.
fn chosen(stage: &Stage, shrink: u64) -> Result<Vec<Workload>, String> {
    let mut all = workloads::all(stage, shrink)?;
    all.push(workloads::threads(stage, shrink));
    Ok(all.into_iter().filter(|w| ROWS.contains(&w.name.as_str())).collect())
}

fn publish(table: &str) -> Result<(), String> {
    let path = root().join("docs/performance.md");
    let text = fs::read_to_string(&path).map_err(|e| e.to_string())?;
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').nth(2).unwrap_or("?");
    let section = format!(
        "Made by `cargo xtask bench slice --publish`. {} Processes that wanted to run meanwhile, these included: {load}.\n\n{HEAD}{table}",
        machine()
    );
    let text = replace_between(&text, BEGIN, END, &section).ok_or("the markers of docs/performance.md are gone")?;
    fs::write(&path, text).map_err(|e| e.to_string())
}

/// One line of the table.
fn row(name: &str, window: &Value) -> String {
    let f = |name: &str| window[name].as_f64().unwrap_or(0.0);
    let of = |name: &str, n: usize| window[name][n].as_f64().unwrap_or(0.0);
    let native = f("native").max(1e-6);
    format!(
        "| {name} | {:.0} M | {:.1} | {:.1} ({:.2} s) | {} | {} ({}) | {} ({}) | {:.0} | {:.0} | {:.0} MB |\n",
        f("millions"),
        f("trace") / native,
        f("ready") / native,
        f("ready"),
        window["slices"],
        seconds(of("first", 0)),
        seconds(of("first", 1)),
        seconds(of("whole", 0)),
        seconds(of("whole", 1)),
        of("nodes", 0),
        of("edges", 0),
        f("peak") / 1e6
    )
}

fn seconds(time: f64) -> String {
    if time < 0.1 { format!("{:.1} ms", time * 1e3) } else { format!("{time:.2} s") }
}

/// Runs a command as the workload says; answers how long it took.
fn timed(work: &Workload, command: &mut Command) -> Result<f64, String> {
    if let Some(stdin) = &work.stdin {
        command.stdin(fs::File::open(stdin).map_err(|e| e.to_string())?);
    }
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let begun = Instant::now();
    let status = command.status().map_err(|e| e.to_string())?;
    if !status.success() {
        return Err(format!("{} ended with {status}", work.name));
    }
    Ok(begun.elapsed().as_secs_f64())
}

/// The least time of several native runs.
fn native(work: &Workload) -> Result<f64, String> {
    let mut least = f64::MAX;
    for _ in 0..3 {
        least = least.min(timed(work, Command::new(&work.argv[0]).args(&work.argv[1..]))?);
    }
    Ok(least)
}

/// What was measured in each window of a program.
fn windows(clew: &Path, stage: &Stage, work: &Workload, sizes: &[&str]) -> Result<Vec<Value>, String> {
    let native = native(work)?;
    let folder = stage.scratch.path().join(format!("slice-{}", work.name));
    let home = stage.scratch.path().join("slice-home");
    let mut record = Command::new(clew);
    record.args(["record", "-q", "-o"]).arg(&folder).arg("--").args(&work.argv).env("CLEW_HOME", home);
    timed(work, &mut record)?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let out = Command::new(cargo)
        .args(["run", "--quiet", "--release", "--package", "clew", "--example", "slice_speed", "--"])
        .arg(&folder)
        .arg(native.to_string())
        .args(sizes)
        .current_dir(root())
        .output()
        .map_err(|e| e.to_string())?;
    let _ = fs::remove_dir_all(&folder);
    if !out.status.success() {
        return Err(String::from_utf8_lossy(&out.stderr).trim().to_owned());
    }
    let text = String::from_utf8_lossy(&out.stdout);
    text.lines().map(|line| serde_json::from_str(line).map_err(|e| e.to_string())).collect()
}

/// How long the nearest peer takes that tells all memory accesses, beside Clew.
fn lackey(clew: &Path, stage: &Stage) -> Result<String, String> {
    let mut lines = String::from(
        "| a whole run of | instructions | native | Clew, traced and ready | valgrind `--tool=lackey --trace-mem=yes`, its output thrown away |\n|---|---|---|---|---|\n",
    );
    for work in chosen(stage, SMALL)? {
        let least = native(&work)?;
        let whole = windows(clew, stage, &work, &["1000"])?;
        let window = whole.first().ok_or("nothing was measured")?;
        let mut peer = Command::new("valgrind");
        peer.args(["--tool=lackey", "--trace-mem=yes", "--log-file=/dev/null"]).args(&work.argv);
        let peer = timed(&work, &mut peer)?;
        let _ = writeln!(
            lines,
            "| {} | {:.1} M | {:.1} ms | {:.0} ms | {:.0} ms |",
            work.name,
            window["millions"].as_f64().unwrap_or(0.0),
            least * 1e3,
            window["ready"].as_f64().unwrap_or(0.0) * 1e3,
            peer * 1e3
        );
    }
    Ok(lines.trim_end().to_owned())
}
