//! What tests share: compiled guests, native runs, runs under Clew, and independent oracles for both.
//!
//! The oracles step through a program natively with ptrace and make alterations there, so that the engine is compared
//! with the CPU and not with itself. They share no code with `engine`, `isa` or `trace`; only [`compare`] and
//! [`under_clew`] know both sides.
//!
//! Helpers panic with a sentence when the test's own environment is at fault (no compiler, no ptrace): a test has
//! nothing better to do then. What a guest does is data.

pub mod altered;
pub mod compare;
pub mod compile;
pub mod elf;
pub mod native;
pub mod oracle;
pub mod random;
pub mod recorded;
pub mod regions;
pub mod sample;
pub mod under_clew;

use std::fmt;
use std::path::{Path, PathBuf};

/// How a program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Exited(i32),
    Signaled(i32),
    /// It used up its budget and was killed.
    RanAway,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Exited(code) => write!(f, "exit {code}"),
            End::Signaled(signal) => write!(f, "signal {signal}"),
            End::RanAway => write!(f, "ran away"),
        }
    }
}

/// What a program showed to the outside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shown {
    pub stdout: Vec<u8>,
    pub end: End,
}

/// The root of the repository.
pub fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A folder for what tests make, under the target folder of this build, so that runs share it and `cargo clean` clears it.
pub fn scratch_folder(name: &str) -> PathBuf {
    let exe = std::env::current_exe().expect("a test knows its own path");
    // target/<profile>/deps/<test>
    let target = exe.ancestors().nth(3).expect("a test lies in a target folder");
    let folder = target.join("testkit").join(name);
    std::fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("cannot make {}: {e}", folder.display()));
    folder
}

/// A file name that no other test uses at the same time.
pub fn scratch_file(stem: &str) -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    scratch_folder("run").join(format!("{stem}-{}-{n}", std::process::id()))
}
