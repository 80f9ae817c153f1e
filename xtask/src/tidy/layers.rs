//! Which crate may depend on which: the one list that the architecture stands on.
//!
//! The engine knows no analysis; analyses know no live process; only the command line knows everything. Edges are read
//! from `cargo metadata`, so renamed, optional and target-specific dependencies count too. Dev-dependencies do not: tests
//! may use what they like.

use std::{env, process::Command};

use serde_json::Value;

use super::Breaches;
use crate::scratch::root;

/// A crate and what it may depend on among ours. A crate that is not here may not exist.
pub const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("isa", &[]),
    ("image", &["model"]),
    ("flow", &["isa"]),
    ("trace", &["model", "isa"]),
    ("engine", &["model", "isa", "trace"]),
    ("clew-engine", &["engine"]),
    ("recording", &["model"]),
    ("session", &["model", "trace", "recording", "image"]),
    ("slice", &["model", "isa", "trace"]),
    ("gdb", &[]),
    ("diagnose", &["model", "image"]),
    ("report", &[]),
    ("testkit", &["model", "isa", "image", "trace", "engine", "session", "recording"]),
    ("clew", &["model", "image", "session", "trace", "recording", "gdb", "diagnose", "report", "flow", "slice"]),
    ("xtask", &[]),
];

/// What the engine may depend on outside the workspace: it runs inside the guest, without `std`.
const ENGINE_OUTSIDE: &[&str] = &["iced-x86", "hashbrown"];

/// One package: its name and its normal and build dependencies.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Package {
    name: String,
    dependencies: Vec<String>,
}

pub fn edges() -> Result<Breaches, String> {
    Ok(forbidden(&packages()?))
}

pub fn engine_dependencies() -> Result<Breaches, String> {
    let packages = packages()?;
    let engine = packages.iter().filter(|p| p.name == "engine" || p.name == "clew-engine");
    let ours = |name: &str| MAY_DEPEND_ON.iter().any(|(known, _)| *known == name);
    Ok(engine
        .flat_map(|p| p.dependencies.iter().map(move |d| (p, d)))
        .filter(|(_, d)| !ours(d) && !ENGINE_OUTSIDE.contains(&d.as_str()))
        .map(|(p, d)| format!("{} -> {d}", p.name))
        .collect())
}

fn forbidden(packages: &[Package]) -> Breaches {
    let mut breaches = Breaches::new();
    for package in packages {
        let Some((_, allowed)) = MAY_DEPEND_ON.iter().find(|(name, _)| *name == package.name) else {
            breaches.push(format!("{} is not in MAY_DEPEND_ON (xtask/src/tidy/layers.rs)", package.name));
            continue;
        };
        let ours = package.dependencies.iter().filter(|d| MAY_DEPEND_ON.iter().any(|(name, _)| name == *d));
        breaches.extend(ours.filter(|d| !allowed.contains(&d.as_str())).map(|d| format!("{} -> {d}", package.name)));
    }
    breaches
}

/// The packages of the workspace and of the engine's program, which stands outside it.
fn packages() -> Result<Vec<Package>, String> {
    let mut all = metadata(&["--manifest-path", "Cargo.toml"])?;
    if root().join("crates/engine-bin/Cargo.toml").exists() {
        all.extend(metadata(&["--manifest-path", "crates/engine-bin/Cargo.toml"])?);
    }
    Ok(all)
}

fn metadata(arguments: &[&str]) -> Result<Vec<Package>, String> {
    let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .args(arguments)
        .current_dir(root())
        .output()
        .map_err(|e| format!("cargo metadata: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let all: Value = serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let list = |v: &Value| v.as_array().cloned().unwrap_or_default();
    Ok(list(&all["packages"])
        .iter()
        .map(|package| Package {
            name: text(&package["name"]),
            dependencies: list(&package["dependencies"])
                .iter()
                .filter(|d| d["kind"] != "dev")
                .map(|d| text(&d["name"]))
                .collect(),
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, dependencies: &[&str], expected: &[&str]) {
        let package = Package { name: name.into(), dependencies: dependencies.iter().map(|d| (*d).into()).collect() };
        assert_eq!(forbidden(&[package]), expected);
    }

    #[test]
    fn the_engine_may_not_know_its_host() {
        check("engine", &["model", "isa", "trace", "iced-x86"], &[]);
        check("engine", &["session"], &["engine -> session"]);
    }

    #[test]
    fn a_new_crate_must_be_placed() {
        check("novel", &[], &["novel is not in MAY_DEPEND_ON (xtask/src/tidy/layers.rs)"]);
    }
}
