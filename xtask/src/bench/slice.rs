//! What slices cost: tracing and preparing windows of several sizes, slices over them, memory.
//!
//! Each program is run natively and recorded in the same run; the example `slice_speed` of crate `clew` measures on the
//! recording. The time of a window at native speed is the program's time times the window's share of its ticks. Beside it,
//! valgrind's `lackey --trace-mem=yes` on the whole of a run of about a million instructions.
//! May miss: programs whose last stretch is slower or faster than the rest.

use std::{fmt::Write as _, fs, path::Path, process::Command, time::Instant};

use serde_json::Value;

use super::table::replace_between;
use super::{Request, workloads};
use crate::{
    guests::{Stage, clew_binary, has_program},
    scratch::root,
    tally::Tally,
};

const BEGIN: &str = "<!-- bench slice: written by `cargo xtask bench slice --publish` -->";
const END: &str = "<!-- end of bench slice -->";
const SECTION: &str = "\n## Slices\n\n";
/// Millions of instructions.
const SIZES: [&str; 4] = ["1", "10", "100", "1000"];
const ROWS: [&str; 3] = ["gzip", "Lua", "sqlite3"];

pub fn bench(request: &Request) -> Result<Tally, String> {
    let clew = clew_binary(request.clew.clone())?;
    let mut tally = Tally::new("bench slice");
    let stage = Stage::new("bench-slice", &clew)?;
    let sizes = if request.shrink > 1 { &SIZES[..1] } else { &SIZES[..] };
    let mut table = String::from(
        "| program | instructions | traced, × native | ready, × native | slice, median | slice, maximum | nodes, median | memory |\n|---|---|---|---|---|---|---|---|\n",
    );
    for work in workloads::all(&stage, request.shrink)?.into_iter().filter(|w| ROWS.contains(&w.name.as_str())) {
        if request.only.as_ref().is_some_and(|only| !work.name.contains(only.as_str())) {
            continue;
        }
        match row(&clew, &stage, &work, sizes) {
            Ok(lines) => {
                print!("{lines}");
                table.push_str(&lines);
                tally.count(&work.name, Ok(()));
            }
            Err(why) => tally.count(&work.name, Err(why)),
        }
    }
    if has_program("valgrind") && request.peers {
        let line = lackey();
        println!("{line}");
        let _ = write!(table, "\n{line}\n");
    }
    if request.publish {
        let path = root().join("docs/performance.md");
        let text = fs::read_to_string(&path).map_err(|e| e.to_string())?;
        let text = match text.contains(BEGIN) {
            true => text,
            false => format!("{}{SECTION}{BEGIN}\n{END}\n", text.trim_end().to_owned() + "\n"),
        };
        let text = replace_between(&text, BEGIN, END, &table).ok_or("the markers of docs/performance.md are gone")?;
        fs::write(&path, text).map_err(|e| e.to_string())?;
    }
    Ok(tally)
}

fn row(clew: &Path, stage: &Stage, work: &workloads::Workload, sizes: &[&str]) -> Result<String, String> {
    let run = |command: &mut Command| {
        if let Some(stdin) = &work.stdin {
            command.stdin(fs::File::open(stdin).map_err(|e| e.to_string())?);
        }
        let begun = Instant::now();
        let status = command.stdout(std::process::Stdio::null()).status().map_err(|e| e.to_string())?;
        if !status.success() {
            return Err(format!("{} ended with {status}", work.name));
        }
        Ok(begun.elapsed().as_secs_f64())
    };
    let mut native = f64::MAX;
    for _ in 0..3 {
        native = native.min(run(Command::new(&work.argv[0]).args(&work.argv[1..]))?);
    }
    let folder = stage.scratch.path().join(format!("slice-{}", work.name));
    let home = stage.scratch.path().join("slice-home");
    let mut record = Command::new(clew);
    record.args(["record", "-q", "-o"]).arg(&folder).arg("--").args(&work.argv).env("CLEW_HOME", home);
    run(&mut record)?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let out = Command::new(cargo)
        .args(["run", "--quiet", "--release", "--package", "clew", "--example", "slice_speed", "--"])
        .arg(&folder)
        .arg(native.to_string())
        .args(sizes)
        .current_dir(root())
        .output()
        .map_err(|e| e.to_string())?;
    if !out.status.success() {
        return Err(String::from_utf8_lossy(&out.stderr).trim().to_owned());
    }
    let mut text = String::new();
    for line in String::from_utf8_lossy(&out.stdout).lines() {
        let v: Value = serde_json::from_str(line).map_err(|e| e.to_string())?;
        let f = |name: &str| v[name].as_f64().unwrap_or(0.0);
        let native = f("native").max(1e-6);
        let _ = writeln!(
            text,
            "| {} | {:.0} M | {:.1} | {:.1} ({:.2} s) | {:.3} s | {:.3} s | {} | {:.0} MB |",
            work.name,
            f("millions"),
            f("trace") / native,
            f("ready") / native,
            f("ready"),
            f("median"),
            f("maximum"),
            v["nodes_median"],
            f("resident") / 1e6
        );
    }
    let _ = fs::remove_dir_all(&folder);
    Ok(text)
}

/// How much slower the nearest peer runs that tells all memory accesses.
fn lackey() -> String {
    let time = |command: &mut Command| {
        let begun = Instant::now();
        let done = command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).status();
        done.is_ok().then(|| begun.elapsed().as_secs_f64())
    };
    let argv = ["/bin/ls", "-lR", "/usr/include/linux"];
    let native = time(Command::new(argv[0]).args(&argv[1..]));
    let peer = time(Command::new("valgrind").args(["--tool=lackey", "--trace-mem=yes"]).args(argv));
    match native.zip(peer) {
        Some((native, peer)) => format!(
            "valgrind --tool=lackey --trace-mem=yes, its output thrown away, on `{}`: {:.0} × native.",
            argv.join(" "),
            peer / native.max(1e-6)
        ),
        None => "valgrind could not be run.".to_owned(),
    }
}
