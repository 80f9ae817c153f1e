//! What slices can be asked for and how they are shown: lines by their executions, variables in registers, inlined calls,
//! sources from packs and moved folders, saved slices, aborts, hangs, and answers that nobody can read.

mod common;

use common::place::{Place, finish};
use common::{stderr, stdout};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use testkit::{compile, repository};

fn source() -> PathBuf {
    repository().join("guests/slice/shown.c")
}

fn program(level: &str) -> PathBuf {
    compile::guest_with("slice/shown.c", &[level]).expect("any CPU runs it").program
}

fn line_of(mark: &str) -> u64 {
    let text = fs::read_to_string(source()).expect("the source is there");
    let ends = format!("/* {mark} */");
    text.lines().position(|l| l.ends_with(&ends)).unwrap_or_else(|| panic!("there is a line {mark}")) as u64 + 1
}

/// A recording of the guest in a place of its own.
fn recorded(name: &str, level: &str, words: &[&str]) -> Place {
    let place = Place::new(&format!("shown-{name}{level}"));
    let mut record = place.clew(["record", "--quiet", "--"]);
    record.arg(program(level)).args(words);
    let output = finish(record, b"");
    let ended = output.status.code().or(output.status.signal()).unwrap_or(-1);
    assert!([0, 6].contains(&ended), "{}", stderr(&output));
    place
}

/// The answer to `clew slice` with these options, which must be found.
fn slice(place: &Place, options: &[&str]) -> Value {
    let mut command = place.clew(["slice", "--json"]);
    let output = finish(
        {
            command.args(options).arg("latest");
            command
        },
        b"",
    );
    assert_eq!(output.status.code(), Some(0), "{options:?}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

fn lines(answer: &Value) -> BTreeSet<u64> {
    let of_guest = |c: &&Value| c["path"].as_str().is_some_and(|p| p.ends_with("shown.c"));
    let all = answer["candidates"].as_array().expect("a list").iter().filter(of_guest);
    all.filter_map(|c| c["line"].as_u64()).collect()
}

fn at(mark: &str) -> String {
    format!("shown.c:{}", line_of(mark))
}

#[test]
fn executions_of_a_line_are_those_of_its_statements() {
    let place = recorded("counts", "-O0", &[]);
    // Four times into the loop and once out of it.
    for (n, expected) in [(5, 0), (6, 2)] {
        let place_and_count = format!("{}#{n}", at("loop"));
        let output = finish(place.clew(["slice", "--quiet", "--at", &place_and_count, "latest"]), b"");
        assert_eq!(output.status.code(), Some(expected), "{n}: {}{}", stdout(&output), stderr(&output));
    }
    place.done();
}

#[test]
fn variables_in_registers_are_sliced() {
    let place = recorded("registers", "-O2", &[]);
    let answer = slice(&place, &["--at", &at("noted"), "--var", "sum"]);
    assert!(lines(&answer).contains(&line_of("added")), "{answer:#}");
    place.done();
}

#[test]
fn calls_of_inlined_functions_are_shown() {
    let place = recorded("inlined", "-O2", &[]);
    let found = lines(&slice(&place, &["--output", "0"]));
    for mark in ["inlined", "added"] {
        assert!(found.contains(&line_of(mark)), "{mark} in {found:?}");
    }
    place.done();
}

/// Compiles a copy of the guest in a folder that is then moved, and gives the text of the line that printed.
fn text_of_moved(place: &Place, options: &[&str]) -> Option<String> {
    let mut command = place.clew(["slice", "--json", "--output", "0"]);
    command.args(options);
    let output = finish(command, b"");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let answer: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let line = line_of("printed");
    let found = answer["candidates"].as_array().expect("a list").iter().find(|c| c["line"] == line)?.clone();
    found["text"].as_str().map(str::to_owned)
}

#[test]
fn sources_are_found_in_packs_and_where_they_were_moved() {
    let place = Place::new("shown-moved");
    let [before, after] = ["before", "after"].map(|n| place.folder.join(n));
    fs::create_dir(&before).expect("a folder can be made");
    fs::copy(source(), before.join("shown.c")).expect("the source can be copied");
    let program = place.folder.join("program");
    let made = Command::new("cc").args(["-g", "-O0", "-o"]).arg(&program).arg(before.join("shown.c")).status();
    assert!(made.expect("there is a compiler").success());
    place.record(&[&program], 0);
    let pack = place.folder.join("run.clew").display().to_string();
    let packed = place.run(["pack", "latest", &pack]);
    assert_eq!(packed.status.code(), Some(0), "{}", stderr(&packed));
    fs::rename(&before, &after).expect("the folder can be moved");
    let expected = Some("printf(\"%d\\n\", total); /* printed */".to_owned());
    assert_eq!(text_of_moved(&place, &["latest"]), None);
    let rule = format!("--source-map={}={}", before.display(), after.display());
    assert_eq!(text_of_moved(&place, &[&rule, "latest"]), expected);
    assert_eq!(text_of_moved(&place, &[&pack]), expected);
    place.done();
}

#[test]
fn slices_are_saved_and_shown_again() {
    let place = recorded("saved", "-O0", &[]);
    let file = place.folder.join("slice.json").display().to_string();
    let first = finish(place.clew(["slice", "--edges", "--output", "0", "--save", &file, "latest"]), b"");
    assert_eq!(first.status.code(), Some(0), "{}", stderr(&first));
    let again = finish(place.clew(["slice", "--edges", "--load", &file]), b"");
    assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
    let body = |text: &str| {
        text.split("\n\n").filter(|p| !p.contains("executed instructions")).collect::<Vec<_>>().join("\n\n")
    };
    assert_eq!(body(stdout(&again)), body(stdout(&first)));
    let wrong = finish(place.clew(["slice", "--load", &source().display().to_string()]), b"");
    assert_eq!(wrong.status.code(), Some(2), "{}", stderr(&wrong));
    place.done();
}

#[test]
fn an_abort_is_told_where_it_was_called() {
    for level in ["-O0", "-O2"] {
        let place = recorded("abort", level, &["abort"]);
        let answer = slice(&place, &["--crash"]);
        let text = answer["criterion"]["text"].as_str().expect("a text");
        assert!(text.ends_with(&at("aborted")), "{level}: {text}");
        let found = lines(&answer);
        assert!(found.contains(&line_of("aborted")) && found.contains(&line_of("decided")), "{level}: {found:?}");
        place.done();
    }
}

#[test]
fn a_hang_is_sliced_from_where_it_was_stopped() {
    let place = Place::new("shown-hang");
    let mut record = place.clew(["record", "--quiet", "--"]);
    let mut child = record.arg(program("-O0")).arg("spin").stdout(Stdio::piped()).spawn().expect("it starts");
    // It says when it has begun.
    let mut begun = [0; 8];
    child.stdout.take().expect("a pipe").read_exact(&mut begun).expect("it says so");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it can be stopped");
    child.wait().expect("it ends");
    let found = lines(&slice(&place, &["--hang"]));
    for mark in ["waiting", "never zero", "spins"] {
        assert!(found.contains(&line_of(mark)), "{mark} in {found:?}");
    }
    let refused = finish(place.clew(["slice", "--crash", "latest"]), b"");
    assert!(stderr(&refused).contains("--hang"), "{}", stderr(&refused));
    place.done();
}

#[test]
fn an_answer_that_cannot_be_written_is_a_failure() {
    let place = recorded("lost", "-O0", &[]);
    for words in [&["slice", "--output", "0", "latest"][..], &["ls"], &["info", "latest"], &["replay", "latest"]] {
        let full = fs::File::options().write(true).open("/dev/full").expect("there is a full device");
        let child = place.clew(words).stdout(full).stderr(Stdio::piped()).spawn().expect("it starts");
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(3), "{words:?}");
        assert!(stderr(&output).contains("standard output cannot be written"), "{words:?}: {}", stderr(&output));
    }
    // A reader that has gone is not told.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let child = place.clew(["ls"]).stdout(writer).stderr(Stdio::piped()).spawn().expect("it starts");
    let output = child.wait_with_output().expect("it ends");
    assert!(!output.status.success() && output.stderr.is_empty(), "{:?} {}", output.status, stderr(&output));
    place.done();
}
