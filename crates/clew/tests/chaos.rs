//! `clew record --chaos`: schedules under which a program fails are found, kept, and replay.

mod common;

use common::{clew, compile, folder, stderr, stdout};
use std::process::{Command, Output, Stdio};

/// Looks for a failing schedule of a guest; the run that is kept must replay exactly.
fn check_found(guest: &str, oracle: &[&str], status: i32, message: &str) {
    let place = folder(&format!("chaos-{guest}"));
    let program = place.join(guest);
    let built = compile(guest, &place);
    assert_eq!(built, program);
    let run = |args: &[&str]| -> Output {
        let mut command: Command = clew(args);
        command.env("CLEW_HOME", place.join("home")).stdin(Stdio::null());
        command.output().expect("clew runs")
    };
    let program = program.display().to_string();
    let found = run(&[&["record", "--chaos", "--budget", "100s"], oracle, &["--", &program]].concat());
    assert_eq!(found.status.code(), Some(status), "{}", stderr(&found));
    assert!(stderr(&found).contains(message), "{}", stderr(&found));
    let replayed = run(&["replay", "latest", "--verify"]);
    assert_eq!(replayed.status.code(), Some(0), "{}", stderr(&replayed));
    assert!(stderr(&replayed).ends_with("clew: identical\n"), "{}", stderr(&replayed));
    assert_eq!(stdout(&replayed), stdout(&found));
    let listed = run(&["ls"]);
    assert_eq!(stdout(&listed).lines().filter(|l| l.contains(guest)).count(), 1, "runs that passed are not kept");
    std::fs::remove_dir_all(place).expect("the folder goes");
}

#[test]
fn a_lost_update_in_straight_code_is_found() {
    check_found("lost_update", &["--expect-exit", "0"], 1, "the exit status is 1 instead of 0");
}

#[test]
fn an_assertion_that_depends_on_the_order_of_threads_is_found() {
    check_found("ordered_assert", &[], 134, "fails after");
}

#[test]
fn a_program_that_never_fails_keeps_nothing() {
    let place = folder("chaos-nothing");
    let mut command = clew(["record", "--chaos", "--budget", "1s", "--", "/bin/true"]);
    let output = command.env("CLEW_HOME", place.join("home")).stdin(Stdio::null()).output().expect("clew runs");
    assert_eq!(output.status.code(), Some(0));
    assert!(stderr(&output).contains("nothing was kept"), "{}", stderr(&output));
    let listed = clew(["ls"]).env("CLEW_HOME", place.join("home")).output().expect("clew runs");
    assert!(!stdout(&listed).contains("true"), "{}", stdout(&listed));
    std::fs::remove_dir_all(place).expect("the folder goes");
}
