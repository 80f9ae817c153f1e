//! Builds the engine and hands its bytes to this crate.
//!
//! The engine is a freestanding program with its own features and profile, so it is a package outside the workspace
//! (inside, cargo would unify `std` into its dependencies). Flags and wrappers that the outer build was given are for
//! the outer build: coverage, sanitizers or lints in the engine would break it.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

/// Crates whose sources the engine is made of.
const SOURCES: [&str; 5] = ["engine-bin", "engine", "model", "isa", "trace"];

/// What must not reach the inner build.
const OUTER_ONLY: [&str; 9] = [
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_TARGET_DIR",
    "CARGO_BUILD_TARGET_DIR",
    "RUSTC_WORKSPACE_WRAPPER",
    "CLIPPY_ARGS",
];

fn main() -> ExitCode {
    let crates = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("..");
    for name in SOURCES {
        for part in ["src", "Cargo.toml", "Cargo.lock", "build.rs"] {
            let path = crates.join(name).join(part);
            if path.exists() {
                println!("cargo::rerun-if-changed={}", path.display());
            }
        }
    }
    match build(&crates.join("engine-bin/Cargo.toml")) {
        Ok(engine) => {
            println!("cargo::rustc-env=CLEW_ENGINE={}", engine.display());
            ExitCode::SUCCESS
        }
        Err(message) => {
            println!("cargo::error=the engine (crates/engine-bin) does not build: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the engine; gives the path of its program.
fn build(manifest: &Path) -> Result<PathBuf, String> {
    let target = PathBuf::from(variable("OUT_DIR")).join("engine");
    // Without the network first: with a lock file and the outer build's packages nothing is missing, and the outer
    // build's --offline cannot be seen from here.
    let mut output = cargo(manifest, &target, true)?;
    let offline = env::var("CARGO_NET_OFFLINE").is_ok_and(|v| v == "true" || v == "1");
    if !output.status.success() && !offline && needs_network(&output.stderr) {
        output = cargo(manifest, &target, false)?;
    }
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        for line in text.lines() {
            eprintln!("{line}");
            // Only errors are shown by default, so the inner compiler's go there line by line.
            println!("cargo::error={line}");
        }
        return Err("see the messages of the inner build above".into());
    }
    let engine = target.join("release/clew-engine");
    match fs::metadata(&engine) {
        Ok(m) if m.len() > 0 => Ok(engine),
        _ => Err(format!("it built, but there is no program at {}", engine.display())),
    }
}

fn cargo(manifest: &Path, target: &Path, offline: bool) -> Result<std::process::Output, String> {
    let mut command = Command::new(variable("CARGO"));
    command.args(["build", "--release", "--color", "never", "--manifest-path"]).arg(manifest);
    command.arg("--target-dir").arg(target);
    if offline {
        command.arg("--offline");
    }
    for name in OUTER_ONLY {
        command.env_remove(name);
    }
    // Line tables stay out of what every run copies into memory; symbols stay in, so that a fault can be named.
    command.env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo");
    command.output().map_err(|e| format!("cargo cannot be started: {e}"))
}

/// Did the build fail only because something has not been downloaded yet?
fn needs_network(stderr: &[u8]) -> bool {
    let text = String::from_utf8_lossy(stderr);
    ["--offline", "offline mode", "no matching package", "failed to download"].iter().any(|s| text.contains(s))
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}
