//! `clew switch --lines` tells which lines to read around a critical predicate, the nearest first.

mod common;

use common::place::{Place, finish};
use common::{compile, stderr, stdout};
use serde_json::Value;
use std::path::Path;
use std::process::Output;

/// The number of the first line of a guest with this text.
fn line_with(guest: &str, text: &str) -> u64 {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests").join(format!("{guest}.c"));
    let source = std::fs::read_to_string(source).expect("the source is there");
    source.lines().position(|l| l.contains(text)).expect("the line is there") as u64 + 1
}

/// Searches a guest that should have printed `expected`.
fn search(place: &Place, guest: &str, arguments: &[&str], expected: &str, options: &[&str]) -> Output {
    let program = compile(guest, &place.folder);
    let file = place.folder.join("expected");
    std::fs::write(&file, expected).expect("the file can be written");
    // A third of the budget is for the lines: a busy machine must not cut them.
    let mut switch = place.clew(["switch", "--lines", "--budget", "150s", "--expect"]);
    switch.arg(file).args(options).arg("--").arg(&program).args(arguments);
    finish(switch, b"")
}

fn answer(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}{}", stdout(output), stderr(output)))
}

fn lines(list: &Value) -> Vec<u64> {
    list.as_array().expect("a list").iter().filter_map(|l| l["line"].as_u64()).collect()
}

#[test]
fn lines_between_input_and_failure_are_read_outwards_from_the_predicate() {
    let place = Place::new("chops-grade");
    let output = search(&place, "chops_grade", &["40", "7"], "7\nlow\n10\n", &["--json"]);
    let answer = answer(&output);
    let critical = line_with("chops_grade", "/* critical */");
    let found = answer["candidates"].as_array().expect("a list").iter().find(|c| c["line"] == critical);
    let found = found.unwrap_or_else(|| panic!("the predicate is found: {answer:#}"));
    let read = lines(&found["around"]["lines"]);
    assert_eq!(read[0], critical, "the predicate itself is first: {read:?}");
    for (text, inside) in
        [("/* fault", true), ("/* input", true), ("/* symptom", true), ("/* constant", false), ("/* elsewhere", false)]
    {
        assert_eq!(read.contains(&line_with("chops_grade", text)), inside, "{text}: {found:#}");
    }
    let fault = read.iter().position(|l| *l == line_with("chops_grade", "/* fault"));
    assert!(fault.is_some_and(|n| n < 3), "{read:?}");
    let input = lines(&answer["lines"]["from_input"]);
    assert!(read.iter().all(|l| input.contains(l)), "{read:?} is part of {input:?}");
    let both = found["around"]["both_sides"].as_u64().expect("a number") as usize;
    let executed = answer["lines"]["executed_lines"].as_u64().expect("a number") as usize;
    assert!(read.len() <= both && both < executed, "{} of {both} of {executed}", read.len());
    assert_eq!(found["trial"]["number"].as_u64().map(|n| n >= 1), Some(true));
    place.done();
}

#[test]
fn people_are_told_what_to_read() {
    let place = Place::new("chops-text");
    let output = search(&place, "chops_grade", &["40", "7"], "7\nlow\n10\n", &[]);
    let text = stdout(&output);
    assert!(text.contains("to read, the nearest first: "), "{text}");
    let fault = format!("chops_grade.c:{}", line_with("chops_grade", "/* fault"));
    assert!(text.contains(&fault), "{text}");
    place.done();
}

#[test]
fn without_a_predicate_what_lies_between_input_and_failure_is_told() {
    let place = Place::new("chops-data");
    let output = search(&place, "chops_data", &["40"], "5\n", &["--json"]);
    assert_eq!(output.status.code(), Some(1), "{}{}", stdout(&output), stderr(&output));
    let answer = answer(&output);
    let read = lines(&answer["lines"]["from_input"]);
    assert!(read.contains(&line_with("chops_data", "/* fault")), "{answer:#}");
    let output = search(&place, "chops_data", &["40"], "5\n", &[]);
    assert!(stdout(&output).contains("To read, the nearest to the failure first: "), "{}", stdout(&output));
    place.done();
}

#[test]
fn without_input_both_sides_of_the_predicate_are_told() {
    let place = Place::new("chops-no-input");
    let output = search(&place, "switch_output", &[], "1 0 1 0 \n", &["--json"]);
    let answer = answer(&output);
    assert_eq!(answer["lines"]["from_input"], Value::Null, "{answer:#}");
    let around = &answer["candidates"][0]["around"];
    assert_eq!(lines(&around["lines"]).len() as u64, around["both_sides"].as_u64().expect("a number"));
    assert!(lines(&around["lines"]).contains(&line_with("switch_output", "base[2]")), "{around:#}");
    place.done();
}

/// The way from the critical predicate of a guest to its symptom: texts that mark lines, and what is said about them.
fn check_way(guest: &str, expected: &str, stations: &[(&str, &str)]) {
    let place = Place::new(guest);
    let output = search(&place, guest, &["4"], expected, &["--json"]);
    let answer = answer(&output);
    let critical = line_with(guest, "/* critical");
    let found = answer["candidates"].as_array().expect("a list").iter().find(|c| c["line"] == critical);
    let found = found.unwrap_or_else(|| panic!("the predicate is found: {answer:#}"));
    let way = found["around"]["way"].as_array().expect("a list");
    let told: Vec<(u64, &str)> = way.iter().map(|s| (s["line"].as_u64().unwrap(), s["by"].as_str().unwrap())).collect();
    let wanted: Vec<(u64, &str)> = stations.iter().map(|(mark, by)| (line_with(guest, mark), *by)).collect();
    let mut rest = told.iter();
    for station in &wanted {
        assert!(rest.any(|s| s == station), "{station:?} in {told:?}: {:#}", answer["limits"]);
    }
    place.done();
}

#[test]
fn what_the_failing_run_does_too_much_is_followed_to_the_symptom() {
    check_way(
        "dual_extra",
        "8\n",
        &[
            ("/* critical", "goes the other way in the repaired run"),
            ("/* extra", "runs in the failing run only"),
            ("/* wrong", "stores 9 instead of 4"),
        ],
    );
}

#[test]
fn what_the_failing_run_lacks_is_followed_to_the_symptom() {
    check_way(
        "dual_stale",
        "14\n",
        &[
            ("/* critical", "goes the other way in the repaired run"),
            ("/* missing", "stores 7 in the repaired run only"),
            ("/* wrong", "stores 6 instead of 14"),
        ],
    );
}
