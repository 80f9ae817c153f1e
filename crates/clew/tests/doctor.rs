//! `clew doctor` from outside.

mod common;

use common::{clew, stderr, stdout};
use serde_json::Value;

#[test]
fn doctor_runs_a_program_in_every_mode() {
    let output = clew(["doctor", "--json"]).output().unwrap();
    let document: Value = serde_json::from_str(stdout(&output)).unwrap();
    assert_eq!((&document["clew"], &document["verb"]), (&1.into(), &"doctor".into()));
    let checks = document["checks"].as_array().unwrap();
    for mode in ["none", "tick", "count", "trace"] {
        let name = format!("run in mode {mode}");
        let check = checks.iter().find(|c| c["name"] == name.as_str()).unwrap_or_else(|| panic!("{name}: {document}"));
        assert_eq!(check["state"], "ok", "{check}");
    }
    assert_eq!(document["ok"], true, "{document}");
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
}

#[test]
fn every_line_has_a_state() {
    let output = clew(["doctor"]).output().unwrap();
    let lines: Vec<_> = stdout(&output).lines().collect();
    let (verdict, checks) = lines.split_last().unwrap();
    assert_eq!(*verdict, "Programs can be run on this machine.");
    assert!(checks.len() > 10);
    for line in checks {
        assert!(["ok ", "degraded ", "missing "].iter().any(|s| line.starts_with(s)), "{line}");
    }
}

#[test]
fn a_limit_that_is_too_low_is_named() {
    let script = format!("ulimit -v 1000000; exec {} doctor --quiet", common::CLEW);
    let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stdout(&output).contains("ulimit -v unlimited"), "{}", stdout(&output));
}
