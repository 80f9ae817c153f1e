//! What the tests of the command line share.
#![allow(dead_code, reason = "each test program uses its own part of this")]

pub mod dialogue;
pub mod place;
pub mod processes;
pub mod searching;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub const CLEW: &str = env!("CARGO_BIN_EXE_clew");

/// `clew` with these arguments.
pub fn clew<A: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(CLEW);
    command.args(args);
    command
}

/// `clew run -- sh -c SCRIPT`.
pub fn shell(script: &str) -> Command {
    clew(["run", "--", "sh", "-c", script])
}

pub fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("the output is text")
}

pub fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("the messages are text")
}

/// A fresh folder for one test.
pub fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}.{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    folder
}

/// Compiles a C program from `tests/guests` into `folder`.
pub fn compile(name: &str, folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests").join(format!("{name}.c"));
    let program = folder.join(name);
    let status = Command::new("cc").args(["-g", "-O0", "-o"]).arg(&program).arg(source).status().expect("cc runs");
    assert!(status.success(), "{name}.c compiles");
    program
}
