//! Guests of the verbs that search by trials, and their answers.

use super::{stderr, stdout};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub fn guest_source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests").join(format!("{name}.c"))
}

/// The number of the first line of a guest with this text.
#[track_caller]
pub fn line_with(guest: &str, text: &str) -> u64 {
    let source = std::fs::read_to_string(guest_source(guest)).expect("the source is there");
    source.lines().position(|l| l.contains(text)).expect("the line is there") as u64 + 1
}

/// Compiles a guest at this level of optimisation into a folder.
pub fn compile_at(guest: &str, level: &str, folder: &Path) -> PathBuf {
    let program = folder.join(format!("{guest}{level}"));
    let mut cc = Command::new("cc");
    cc.args(["-g", level, "-w", "-o"]).arg(&program).arg(guest_source(guest));
    assert!(cc.status().expect("cc runs").success(), "{guest} compiles");
    program
}

/// The JSON document that was printed.
#[track_caller]
pub fn answer(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}{}", stdout(output), stderr(output)))
}
