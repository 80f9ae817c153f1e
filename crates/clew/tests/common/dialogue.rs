//! Dialogues with stock gdb: commands, and what must be said after each.

use super::place::{Place, finish};
use super::{CLEW, stdout};
use std::process::{Command, Stdio};

/// Commands to gdb, each followed by what must appear between it and the next one, in this order.
pub type Dialogue<'a> = &'a [(&'a str, &'a [&'a str])];

/// What separates the answers to two commands.
const MARK: &str = "---8<---";

/// Has this dialogue with a gdb that `clew gdb` starts.
#[track_caller]
pub fn check(place: &Place, recording: &str, dialogue: Dialogue<'_>) {
    let clew = [CLEW, "gdb", "--quiet", recording, "--", "-nx", "-batch"];
    check_answers(&talk(place, &clew, dialogue), dialogue);
}

/// What comes of a command line that starts gdb, given these commands. gdb writes some answers to standard error.
pub fn talk(place: &Place, start: &[&str], dialogue: Dialogue<'_>) -> String {
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$@\" 2>&1", "sh"]).args(start).env("CLEW_HOME", &place.home).stdin(Stdio::null());
    for (command, _) in dialogue {
        shell.args(["-ex", command, "-ex", &format!("echo \\n{MARK}\\n")]);
    }
    let output = finish(shell, b"");
    let text = stdout(&output).to_owned();
    assert!(!text.contains("gdb cannot be started"), "these tests need gdb: {text}");
    text
}

#[track_caller]
pub fn check_answers(text: &str, dialogue: Dialogue<'_>) {
    // Before the first command is what gdb says when it connects.
    let answers: Vec<&str> = text.split(MARK).collect();
    assert!(answers.len() > dialogue.len(), "gdb ended early:\n{text}");
    for ((command, expected), answer) in dialogue.iter().zip(&answers) {
        let mut rest = *answer;
        for part in *expected {
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => panic!("after {command:?}, {part:?} is missing in\n{answer}\nof\n{text}"),
            }
        }
    }
}
