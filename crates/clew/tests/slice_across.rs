//! Slices go on where bytes come back from pipes, sockets and files, in the same process and in others.

mod common;

use common::place::{Place, finish};
use common::{stderr, stdout};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use testkit::{compile, repository};

const GUEST: &str = "guests/slice/relay.c";

fn program(level: &str) -> PathBuf {
    compile::guest_with("slice/relay.c", &[level]).expect("any CPU runs it").program
}

fn line_of(mark: &str) -> u64 {
    let text = std::fs::read_to_string(repository().join(GUEST)).expect("the source is there");
    let ends = format!("/* {mark} */");
    let found = text.lines().position(|l| l.ends_with(&ends));
    found.unwrap_or_else(|| panic!("{GUEST} has a line {mark}")) as u64 + 1
}

/// Lines of the guest in the slice of the last byte that was written, and the processes of the slice.
fn slice(place: &Place, window: &str) -> (BTreeSet<u64>, usize) {
    let words = ["slice", "--json", "--output", "0", "--window", window, "latest"];
    let output = finish(place.clew(words), b"");
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let answer: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let of_guest = |c: &&Value| c["path"].as_str().is_some_and(|p| p.ends_with("relay.c"));
    let lines = answer["candidates"].as_array().expect("a list").iter().filter(of_guest);
    let lines = lines.filter_map(|c| c["line"].as_u64()).collect();
    (lines, answer["processes"].as_array().expect("a list").len())
}

/// The line that made the byte is in the slice, the one that made its neighbour is not.
#[track_caller]
fn check_lines(words: &str, lines: &BTreeSet<u64>) {
    for (mark, expected) in [("second", true), ("first", false)] {
        assert_eq!(lines.contains(&line_of(mark)), expected, "{words}: line {mark} in {lines:?}");
    }
}

/// Records the guest in a mode and slices what it wrote.
#[track_caller]
fn check_relay(mode: &str, processes: usize) {
    check_relay_in(mode, processes, "500");
}

/// The same in windows of so many million instructions.
#[track_caller]
fn check_relay_in(mode: &str, processes: usize, window: &str) {
    for level in ["-O0", "-O2"] {
        let place = Place::new(&format!("across-{mode}{level}"));
        let [one, other] = ["one", "other"].map(|n| place.folder.join(n).display().to_string());
        place.record(&[&program(level).display().to_string(), mode, &one, &other], 0);
        let (lines, parts) = slice(&place, window);
        check_lines(&format!("{mode} {level}"), &lines);
        assert_eq!(parts, processes, "{mode} {level}");
        place.done();
    }
}

#[test]
fn bytes_come_back_from_a_pipe() {
    check_relay("p", 1);
}

#[test]
fn bytes_come_back_from_a_pipe_that_was_written_many_windows_before() {
    check_relay_in("l", 1, "1");
}

#[test]
fn bytes_come_back_from_a_pair_of_sockets_in_pieces() {
    check_relay("u", 1);
}

#[test]
fn bytes_come_back_from_a_file() {
    check_relay("f", 1);
}

#[test]
fn bytes_are_spliced_from_pipe_to_pipe() {
    check_relay("s", 1);
}

#[test]
fn bytes_are_copied_from_file_to_file() {
    check_relay("c", 1);
}

#[test]
fn bytes_are_sent_from_a_file_to_a_pipe() {
    check_relay("m", 1);
}

#[test]
fn bytes_come_from_a_child() {
    check_relay("k", 2);
}

/// Runs a command of the shell in which two processes of the guest hand bytes on.
#[track_caller]
fn check_shell(name: &str, script: &str) {
    let place = Place::new(&format!("across-shell-{name}"));
    let script = script.replace("G", &program("-O0").display().to_string());
    let script = script.replace("FILE", &place.folder.join("file").display().to_string());
    place.record(&["sh", "-c", &script], 0);
    let (lines, parts) = slice(&place, "500");
    check_lines(name, &lines);
    assert!(lines.contains(&line_of("passed on")), "{name}: {lines:?}");
    assert!(parts >= 2, "{name}: {parts}");
    let at = format!("relay.c:{}", line_of("second"));
    let output = finish(place.clew(["slice", "--output", "0", "--path", &at, "latest"]), b"");
    let text = stdout(&output);
    assert!(text.contains("read by process") && text.contains(&format!("relay.c:{}", line_of("passed on"))), "{text}");
    place.done();
}

#[test]
fn bytes_go_through_a_pipe_of_the_shell() {
    check_shell("pipe", "G w | G r");
}

#[test]
fn bytes_go_through_a_file_of_the_shell() {
    check_shell("file", "G w > FILE; G r < FILE");
}

/// Thousands of addresses of `sort`, which comes without debug information, are nearer than any line of the guest.
#[test]
fn a_filter_without_debug_information_does_not_hide_the_program_before_it() {
    let place = Place::new("across-bare");
    let script = format!("{} w | sort", program("-O0").display());
    place.record(&["sh", "-c", &script], 0);
    let output = finish(place.clew(["slice", "--output", "0", "latest"]), b"");
    let text = stdout(&output);
    assert!(text.contains("more addresses of a program without debug information"), "{text}");
    let (_, writer) = text.split_once("which wrote what was read:").expect("there is another process");
    assert!(writer.contains("relay.c") && writer.contains(&format!("\n  {:>6}  ", line_of("second"))), "{text}");
    place.done();
}
