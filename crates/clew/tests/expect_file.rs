//! `--expect-file`: what a program leaves in a file decides about trials, in the world of the trial.

mod common;

use common::place::{Place, finish};
use common::searching::{answer, compile_at, line_with};
use common::{stderr, stdout};
use serde_json::Value;
use std::process::Output;
use std::sync::atomic::{AtomicUsize, Ordering};

const GUEST: &str = "expect_file";

/// A folder with the program, what is in its file before, and what should be in it.
struct Scene {
    place: Place,
    mode: &'static str,
    before: Option<&'static str>,
}

impl Scene {
    fn new(mode: &'static str, before: Option<&'static str>, good: &str) -> Scene {
        // Tests of one mode may run at the same time in one process.
        static SCENES: AtomicUsize = AtomicUsize::new(0);
        let place = Place::new(&format!("expect-file-{mode}-{}", SCENES.fetch_add(1, Ordering::Relaxed)));
        compile_at(GUEST, "-O0", &place.folder);
        std::fs::write(place.folder.join("good.txt"), good).expect("the file can be written");
        Scene { place, mode, before }
    }

    /// Runs a verb on the program, which finds its file as it was before.
    fn run(&self, verb: &[&str]) -> Output {
        let out = self.place.folder.join("out.txt");
        match self.before {
            Some(text) => std::fs::write(&out, text).expect("the file can be written"),
            None => drop(std::fs::remove_file(&out)),
        }
        let mut clew = self.place.clew(verb);
        clew.args(["--expect-file", "out.txt=good.txt", "--", "./expect_file-O0", self.mode, "out.txt", "more"]);
        clew.current_dir(&self.place.folder);
        finish(clew, b"")
    }

    #[track_caller]
    fn answer(&self, verb: &[&str], status: i32) -> Value {
        let output = self.run(verb);
        assert_eq!(output.status.code(), Some(status), "{}: {}{}", self.mode, stdout(&output), stderr(&output));
        answer(&output)
    }
}

fn at(mark: &str) -> String {
    format!("{GUEST}.c:{}", line_with(GUEST, mark))
}

/// The critical branch of a guest that a shell starts, switched, gives the file that is expected.
#[track_caller]
fn check_started_by_shell(guest: &str, script: &str, good: &str) {
    let scene = Scene::new("late", None, good);
    compile_at(guest, "-O0", &scene.place.folder);
    let critical = format!("{guest}.c:{}", line_with(guest, "/* critical */"));
    let mut switch = scene.place.clew(["switch", "--json", "--expect-file", "out.txt=good.txt", "--at", &critical]);
    switch.args(["--", "sh", "-c", script]).current_dir(&scene.place.folder);
    let output = finish(switch, b"");
    assert_eq!(output.status.code(), Some(0), "{script}: {}{}", stdout(&output), stderr(&output));
    assert_eq!(answer(&output)["candidates"][0]["status"], "proved", "{script}: {}", stdout(&output));
    scene.place.done();
}

#[test]
fn the_process_that_wrote_the_file_is_searched() {
    check_started_by_shell(GUEST, "./expect_file-O0 late out.txt more; true", "4 yes\n");
    check_started_by_shell("switch_output", "./switch_output-O0 > out.txt; true", "1 0 1 0 \n");
}

/// What the program prints is not lost over its files.
#[test]
fn output_and_files_are_compared_together() {
    let scene = Scene::new("late", None, "4 yes\n");
    std::fs::write(scene.place.folder.join("printed.txt"), "done\n").expect("the file can be written");
    let both = ["switch", "--json", "--expect", "printed.txt", "--at", &at("/* critical */")];
    let answer = scene.answer(&both, 0);
    assert_eq!(answer["candidates"][0]["status"], "proved", "{answer:#}");
    scene.place.done();
}

/// The critical branch, switched, gives the file that is expected, and another branch does not; the failure is told so.
#[track_caller]
fn check_judged(mode: &'static str, before: Option<&'static str>, good: &str, failure: &str) {
    let scene = Scene::new(mode, before, good);
    let fixed = scene.answer(&["switch", "--json", "--at", &at("/* critical */")], 0);
    assert_eq!(fixed["failure"], failure, "{mode}: {fixed:#}");
    assert_eq!(fixed["verdicts"][0]["verdict"], "fixed", "{mode}: {fixed:#}");
    assert_eq!(fixed["candidates"][0]["status"], "proved", "{mode}: {fixed:#}");
    let other = scene.answer(&["suppress", "--json", "--at", &at("/* other */")], 1);
    assert_eq!(other["verdicts"][0]["verdict"], "same failure", "{mode}: {other:#}");
    scene.place.done();
}

#[test]
fn what_a_trial_leaves_in_a_file_is_compared() {
    let byte = "byte 2 of out.txt is 'n' instead of 'y'";
    check_judged("buffered", None, "4 yes\n", byte);
    check_judged("unbuffered", None, "4 yes\n", byte);
    check_judged("late", None, "4 yes\n", byte);
    check_judged("renamed", None, "4 yes\n", byte);
    check_judged("renamed", Some("what was there before\n"), "4 yes\n", byte);
}

#[test]
fn what_a_trial_appends_comes_behind_what_was_there() {
    check_judged("appended", Some("old\n"), "old\n4 yes\n", "byte 6 of out.txt is 'n' instead of 'y'");
}

#[test]
fn a_file_that_should_be_there_is_missed() {
    check_judged("kept", None, "4 yes\n", "out.txt is not there");
}

#[test]
fn searches_find_the_branch_that_spoils_a_file() {
    let scene = Scene::new("buffered", None, "4 yes\n");
    let line = line_with(GUEST, "/* critical */");
    for verb in [&["switch", "--json", "--all"][..], &["why", "--json", "--budget", "20s"]] {
        let answer = scene.answer(verb, 0);
        let found = answer["candidates"].as_array().expect("a list").iter();
        let mut found = found.filter(|c| c["line"] == line && c["status"] == "proved");
        assert!(found.next().is_some(), "{verb:?}: {answer:#}");
    }
    scene.place.done();
}

#[test]
fn what_made_a_byte_of_a_file_is_shown() {
    let scene = Scene::new("buffered", None, "4 yes\n");
    let mut record = scene.place.clew(["record", "--quiet", "--", "./expect_file-O0", "buffered", "out.txt", "more"]);
    record.current_dir(&scene.place.folder);
    assert!(finish(record, b"").status.success());
    let mut slice = scene.place.clew(["slice", "--json", "--output", "out.txt:2", "latest"]);
    slice.current_dir(&scene.place.folder);
    let output = finish(slice, b"");
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let wanted = line_with(GUEST, "/* shows */");
    assert!(stdout(&output).contains(&format!("\"line\": {wanted}")), "{}", stdout(&output));
    scene.place.done();
}

#[test]
fn a_run_that_leaves_the_right_file_passes_and_a_missing_one_is_refused() {
    let scene = Scene::new("buffered", None, "4 no\n");
    let output = scene.run(&["switch"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("the program passes"), "{}", stderr(&output));
    std::fs::remove_file(scene.place.folder.join("good.txt")).expect("it is there");
    let output = scene.run(&["why"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("what out.txt should hold, good.txt, cannot be read"), "{}", stderr(&output));
    scene.place.done();
}
