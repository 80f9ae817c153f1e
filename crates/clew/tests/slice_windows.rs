//! A run that is sliced in one window and in many: lines, executions, distances, edges and paths are the same, although
//! functions, branches and loops of it are under way for longer than a window.

mod common;

use common::place::{Place, finish};
use common::{stderr, stdout};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;
use testkit::{compile, repository};

/// Millions of instructions: all of the run, and a part of it.
const WHOLE: &str = "100";
const PART: &str = "1";

fn recorded(level: &str) -> Place {
    recorded_guest("seams", &[level])
}

fn recorded_guest(name: &str, flags: &[&str]) -> Place {
    let program = compile::guest_with(&format!("slice/{name}.c"), flags).expect("any CPU runs it").program;
    let place = Place::new(&format!("windows-{name}{}", flags.concat()));
    let mut record = place.clew(["record", "--quiet", "--"]);
    record.arg(program);
    let output = finish(record, b"");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    place
}

fn output_of(mut command: Command) -> String {
    command.arg("latest");
    let output = finish(command, b"");
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    stdout(&output).to_owned()
}

fn slice(place: &Place, window: &str, options: &[&str]) -> Value {
    let mut command = place.clew(["slice", "--json", "--output", "0", "--window", window]);
    command.args(options);
    serde_json::from_str(&output_of(command)).expect("it is JSON")
}

/// What must not depend on windows.
fn told(answer: &Value) -> (BTreeSet<String>, BTreeSet<String>) {
    let list = |name: &str| answer[name].as_array().cloned().unwrap_or_default();
    let line = |c: &Value| {
        let of = |name: &str| c[name].to_string();
        ["path", "line", "address", "distance", "instances", "executed"].map(of).join(" ")
    };
    let edges = list("edges").iter().map(Value::to_string).collect();
    (list("candidates").iter().map(line).collect(), edges)
}

/// Bytes of the largest window.
fn memory(answer: &Value) -> u64 {
    answer["slice"]["memory"].as_u64().expect("a number")
}

#[track_caller]
fn check(level: &str, options: &[&str]) {
    let place = recorded(level);
    let [whole, parts] = [WHOLE, PART].map(|window| slice(&place, window, options));
    assert!(memory(&parts) < memory(&whole), "there are several windows: {parts:#}");
    assert_eq!(whole["limits"], Value::Array(Vec::new()));
    assert_eq!((&parts["limits"], told(&parts)), (&whole["limits"], told(&whole)), "{level} {options:?}");
    assert_eq!(parts["slice"]["instructions"], whole["slice"]["instructions"], "{level} {options:?}");
    let wants_edges = options.contains(&"--edges");
    assert_eq!(told(&parts).1.is_empty(), !wants_edges, "{level} {options:?}");
    place.done();
}

#[test]
fn lines_are_the_same() {
    check("-O0", &[]);
}

/// What is compared of lines in which indirect jumps have a part: not how far they are, and how often.
fn lines(answer: &Value) -> BTreeSet<String> {
    let all = answer["candidates"].as_array().expect("a list").iter();
    all.map(|c| format!("{} {}", c["path"], c["line"])).collect()
}

#[test]
fn lines_of_optimised_code_are_the_same() {
    check_optimised("seams", &[]);
}

/// `--relevant` sees all targets of jumps before it begins. Otherwise a window knows those that were seen in it and behind
/// it, so that where ways come together is taken to be elsewhere, and distances and executions differ a little.
#[test]
fn lines_behind_computed_jumps_are_the_same_and_all_else_where_targets_are_known() {
    check_optimised("computed", &["--relevant"]);
    let place = recorded_guest("computed", &["-O2"]);
    let [whole, parts] = [WHOLE, PART].map(|window| lines(&slice(&place, window, &[])));
    assert_eq!(parts, whole);
    place.done();
}

#[track_caller]
fn check_optimised(guest: &str, options: &[&str]) {
    let place = recorded_guest(guest, &["-O2", "-DTIMES=4"]);
    let [whole, parts] = [WHOLE, PART].map(|window| slice(&place, window, options));
    assert!(memory(&parts) < memory(&whole), "there are several windows: {parts:#}");
    assert!(lines(&whole).len() > 10, "{whole:#}");
    assert_eq!(told(&parts), told(&whole), "{guest} {options:?}");
    place.done();
}

#[test]
fn edges_are_the_same() {
    check("-O0", &["--edges"]);
}

#[test]
fn potential_dependences_are_the_same() {
    check("-O0", &["--relevant", "--edges"]);
}

#[test]
fn values_alone_are_the_same() {
    check("-O0", &["--edges", "--data-only"]);
}

#[test]
fn paths_lead_through_windows() {
    let place = recorded("-O0");
    let source = std::fs::read_to_string(repository().join("guests/slice/seams.c")).expect("the source is there");
    let first = source.lines().position(|l| l.ends_with("/* before */")).expect("there is such a line") + 1;
    let from = format!("seams.c:{first}");
    let [whole, parts] =
        [WHOLE, PART].map(|w| output_of(place.clew(["slice", "--output", "0", "--window", w, "--path", &from])));
    assert_eq!(parts, whole);
    let begin = whole.lines().next().unwrap_or_default();
    assert!(begin.contains(&from) && whole.trim_end().lines().count() >= 3, "{whole}");
    place.done();
}
