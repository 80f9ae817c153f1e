//! Other recorders, as far as they run on this machine: `gdb` with `record full`, and rr.
//!
//! gdb stops the program at every instruction, so only a tiny input is possible: the cost of starting is measured by the
//! same commands without recording and subtracted, and the native time is a share of a long native run.

use std::{fs, path::Path, time::Duration};

use super::super::{Workload, timed};
use crate::guests::{Stage, has_program};

/// What was found, or why there is nothing.
#[derive(Clone, Debug)]
pub struct Peers {
    /// Ratio to native of `record full`.
    pub gdb: Result<f64, String>,
    /// Whether rr can record here at all; its ratios stand in the rows.
    pub rr: Result<(), String>,
}

impl Default for Peers {
    fn default() -> Peers {
        Peers { gdb: Err("left out".to_owned()), rr: Err("left out".to_owned()) }
    }
}

const NAME: &str = "peers";
/// Rounds of the loop, in thousands: about 50,000 instructions each.
const TINY: u32 = 1;
const LONG: u32 = 10_000;

impl Peers {
    pub fn measure(stage: &Stage) -> Peers {
        Peers { gdb: gdb(stage), rr: rr(stage) }
    }
}

fn run(stage: &Stage, argv: &[&str]) -> Result<(Duration, String), String> {
    let folder = stage.fresh(NAME).map_err(|e| e.to_string())?;
    let argv: Vec<String> = argv.iter().map(|w| (*w).to_owned()).collect();
    let workload = Workload { name: NAME.to_owned(), argv: Vec::new(), stdin: None, cpu_bound: false };
    let (time, output) = timed(stage, &folder, &argv, &workload).map_err(|why| reason(&folder, why))?;
    Ok((time, String::from_utf8_lossy(&output).into_owned()))
}

/// The first thing that was said, which names the cause more often than the last.
fn reason(folder: &Path, why: String) -> String {
    let said = fs::read_to_string(folder.join("tmp/err")).unwrap_or_default();
    let line = said.lines().map(str::trim).find(|l| !l.is_empty()).map(str::to_owned);
    line.unwrap_or(why).replace('|', "/")
}

fn gdb(stage: &Stage) -> Result<f64, String> {
    if !has_program("gdb") {
        return Err("not installed".to_owned());
    }
    let program = stage.bin().join("branchy").display().to_string();
    let (none, _) = run(stage, &[&program, "0"])?;
    let (long, _) = run(stage, &[&program, &LONG.to_string()])?;
    let native = long.saturating_sub(none).as_secs_f64() * f64::from(TINY) / f64::from(LONG);
    let (_, expected) = run(stage, &[&program, &TINY.to_string()])?;
    let plain = debugged(stage, &program, &[], &expected)?;
    let recorded = debugged(stage, &program, &["-ex", "record full"], &expected)?;
    Ok((recorded.saturating_sub(plain)).as_secs_f64() / native)
}

/// Runs the program in gdb to its end, with more commands from `main` on.
fn debugged(stage: &Stage, program: &str, commands: &[&str], expected: &str) -> Result<Duration, String> {
    let mut argv = vec![
        "env",
        // gdb can record neither AVX nor the instructions of lazy binding.
        "LD_BIND_NOW=1",
        "GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-AVX512F,-AVX512VL",
        "gdb",
        "-nx",
        "-batch",
        "-ex",
        "set record full insn-number-max 0",
        "-ex",
        "break main",
        "-ex",
        "run",
    ];
    argv.extend(commands);
    let tiny = TINY.to_string();
    argv.extend(["-ex", "continue", "--args", program, &tiny]);
    let (time, output) = run(stage, &argv)?;
    if output.contains(expected.trim()) {
        Ok(time)
    } else {
        Err(format!("cannot run the program: {}", output.lines().last().unwrap_or_default()))
    }
}

fn rr(stage: &Stage) -> Result<(), String> {
    if !has_program("rr") {
        return Err("not installed".to_owned());
    }
    let trace = stage.scratch.path().join("rr-probe").display().to_string();
    let result = run(stage, &["rr", "record", "-o", &trace, "/bin/true"]);
    result.map(|_| ()).map_err(|why| format!("cannot run here: {why}"))
}
