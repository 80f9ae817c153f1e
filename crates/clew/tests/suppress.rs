//! `clew suppress` finds statements, calls and functions without which a run works, and refuses what cannot be left out.
//!
//! What is expected stands in the guests: lines marked `statement`, `call` or `function`.

mod common;

use common::place::{Place, finish};
use common::searching::{answer, compile_at, line_with};
use common::{stderr, stdout};
use serde_json::Value;
use std::path::PathBuf;

/// A compiled guest and what it should print.
struct Guest {
    place: Place,
    name: &'static str,
    level: &'static str,
    program: PathBuf,
    expected: Option<PathBuf>,
}

impl Guest {
    fn new(test: &str, name: &'static str, level: &'static str, expected: Option<&str>) -> Guest {
        let place = Place::new(&format!("{test}-{name}{level}"));
        let program = compile_at(name, level, &place.folder);
        let expected = expected.map(|text| {
            let file = place.folder.join("expected");
            std::fs::write(&file, text).expect("the file can be written");
            file
        });
        Guest { place, name, level, program, expected }
    }

    /// What `suppress` says with these options.
    #[track_caller]
    fn suppress(&self, options: &[&str], status: i32) -> Value {
        let mut command = self.place.clew(["suppress", "--json"]);
        command.args(options);
        if let Some(file) = &self.expected {
            command.arg("--expect").arg(file);
        }
        let output = finish(
            {
                command.arg("--").arg(&self.program);
                command
            },
            b"",
        );
        let (name, level) = (self.name, self.level);
        assert_eq!(output.status.code(), Some(status), "{name} {level}: {}{}", stdout(&output), stderr(&output));
        answer(&output)
    }

    /// The place of a marked line, to be named.
    fn at(&self, mark: &str) -> String {
        format!("{}.c:{}", self.name, line_with(self.name, mark))
    }
}

/// A search finds that the run is repaired without this execution of the marked line.
#[track_caller]
fn check_found(guest: &Guest, mark: &str, instance: u64, explanation: &str) {
    let answer = guest.suppress(&["--all"], 0);
    let line = line_with(guest.name, mark);
    let found = answer["candidates"].as_array().expect("a list").iter();
    let mut found = found.filter(|c| c["line"] == line && c["instance"] == instance && c["kind"] == "suppression");
    let says = |c: &&Value| c["explanation"].as_str().is_some_and(|e| e.contains(explanation));
    let found = found.find(says).unwrap_or_else(|| panic!("{} {}: {answer:#}", guest.name, guest.level));
    assert_eq!(found["status"], "proved", "{found:#}");
    assert_eq!(found["trial"]["verdict"], "fixed");
    assert!(answer["tried"]["controls"].as_u64() >= Some(1), "{answer:#}");
}

#[test]
fn a_statement_or_a_call_without_which_the_output_is_right_is_found() {
    for level in ["-O0", "-O2"] {
        let guest = Guest::new("found", "suppress_output", level, Some("10\n"));
        let line = line_with("suppress_output", "/* call */");
        check_found(&guest, "/* call */", 1, &format!("with the call of set_back in line {line} left out the program"));
        check_found(&guest, "/* statement */", 2, "left out on its 2nd execution the program prints 10");
        guest.place.done();
    }
}

#[test]
fn a_statement_is_left_out_without_running_into_its_else_and_with_a_jump_of_its_own() {
    let guest = Guest::new("jumps", "suppress_else", "-O0", Some("2 3\n"));
    let line = line_with("suppress_else", "/* statement */");
    check_found(&guest, "/* statement */", 3, &format!("with line {line} left out on its 3rd execution the program"));
    let told = guest.suppress(&["--at", &format!("{}#3", guest.at("/* statement */"))], 0);
    let verdicts = told["verdicts"].as_array().expect("a list").iter().map(|v| &v["verdict"]);
    assert_eq!(verdicts.collect::<Vec<_>>(), ["fixed", "other failure"], "{told:#}");
    let early = Guest { expected: None, ..guest };
    let told = early.suppress(&["--expect-exit", "0", "--at", &early.at("/* return */")], 0);
    let found = &told["candidates"][0]["explanation"];
    assert!(found.as_str().is_some_and(|e| e.contains("and the jump at its end left out")), "{told:#}");
    // A search comes to the same.
    let answer = early.suppress(&["--expect-exit", "0", "--all"], 0);
    let line = line_with("suppress_else", "/* return */");
    let mut found = answer["candidates"].as_array().expect("a list").iter();
    assert!(found.any(|c| c["line"] == line && c["status"] == "proved"), "{answer:#}");
    early.place.done();
}

#[test]
fn a_crash_is_repaired_without_the_store_that_went_too_far() {
    for level in ["-O0", "-O2"] {
        let guest = Guest::new("found", "suppress_crash", level, None);
        check_found(&guest, "/* statement */", 5, "passes the place where it failed and ends by itself");
        guest.place.done();
    }
}

#[test]
fn a_function_that_a_library_calls_can_be_left_out() {
    let guest = Guest::new("found", "suppress_callback", "-O0", Some("7\n"));
    check_found(&guest, "/* function */", 1, "with the function spoil left out the program prints 7");
    guest.place.done();
}

/// What comes of leaving out just this, which is executed once or named with its execution.
#[track_caller]
fn check_verdict(guest: &Guest, at: &str, verdict: &str) {
    let status = if verdict == "fixed" { 0 } else { 1 };
    let answer = guest.suppress(&["--at", at], status);
    assert_eq!(answer["tried"]["trials"], 1, "{at}: {answer:#}");
    assert_eq!(answer["verdicts"][0]["verdict"], verdict, "{at}: {answer:#}");
    if verdict == "avoided" {
        assert_eq!(answer["candidates"][0]["kind"], "avoiding-suppression", "{at}: {answer:#}");
        assert_eq!(answer["candidates"][0]["status"], "suspected");
    }
}

#[test]
fn one_execution_of_a_line_or_a_function_can_be_named() {
    let guest = Guest::new("named", "suppress_output", "-O0", Some("10\n"));
    check_verdict(&guest, &guest.at("/* call */"), "fixed");
    check_verdict(&guest, &guest.at("/* first call */"), "same failure");
    check_verdict(&guest, &format!("{}#2", guest.at("/* statement */")), "fixed");
    check_verdict(&guest, &format!("{}#1", guest.at("/* statement */")), "same failure");
    check_verdict(&guest, "set_back#2", "fixed");
    check_verdict(&guest, "add#4", "other failure");
    guest.place.done();
}

#[test]
fn a_call_of_the_library_can_be_named() {
    for level in ["-O0", "-O2"] {
        let guest = Guest::new("library", "suppress_free", level, Some("done\n"));
        check_verdict(&guest, "free#3", "fixed");
        check_verdict(&guest, "free#2", "fixed");
        check_verdict(&guest, "give_back#3", "fixed");
        guest.place.done();
    }
}

#[test]
fn what_only_avoids_the_failing_instruction_is_told_apart() {
    let guest = Guest::new("avoided", "suppress_crash", "-O0", None);
    check_verdict(&guest, "use", "avoided");
    check_verdict(&guest, &guest.at("printf"), "avoided");
    check_verdict(&guest, &guest.at("/* call */"), "fixed");
    check_verdict(&guest, &format!("{}#4", guest.at("/* statement */")), "same failure");
    guest.place.done();
}

#[test]
fn the_answer_reads_well() {
    let guest = Guest::new("text", "suppress_output", "-O0", Some("10\n"));
    guest.place.record(&[&guest.program], 0);
    let mut command = guest.place.clew(["suppress", "latest", "--at", "set_back#2", "--expect"]);
    command.arg(guest.expected.as_ref().expect("there is one"));
    let text = finish(command, b"");
    for sentence in [
        "The run fails: byte 0 of standard output is '4' instead of '1'.",
        "1 repairing suppression:",
        "in set_back  proved, execution 2 of 2",
        "with the function set_back left out on its 2nd execution the program prints 10 as expected",
        "1 of 1 executions of statements and calls tried (1 fixed), 1 control",
    ] {
        assert!(stdout(&text).contains(sentence), "{sentence}: {}", stdout(&text));
    }
    guest.place.done();
}

#[test]
fn what_cannot_be_left_out_is_refused_in_one_sentence() {
    let guest = Guest::new("refused", "suppress_output", "-O0", None);
    let Guest { place, program, .. } = &guest;
    let check_refused = |options: &[&str], sentence: &str| {
        let mut words = vec!["suppress"];
        words.extend_from_slice(options);
        let program = program.to_string_lossy();
        words.extend(["--expect-exit", "1", "--", &program]);
        let output = place.run(&words);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {}{}", stdout(&output), stderr(&output));
        assert!(stderr(&output).contains(sentence), "{options:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "");
    };
    check_refused(&["--at", &guest.at("/* decision */")], "it decides where execution goes on: `clew switch`");
    check_refused(&["--at", &guest.at("int main")], "it opens or closes a frame");
    let end = line_with("suppress_output", "return 0;") + 1;
    check_refused(&["--at", &format!("suppress_output.c:{end}")], "it returns from its function");
    check_refused(&["--at", &guest.at("puts")], "was not executed, or not that often");
    check_refused(&["--at", "set_back#3"], "was not executed, or not that often");
    check_refused(&["--at", "nowhere"], "has and calls no function nowhere");
    check_refused(&["--at", "suppress_output.c:"], "is no place");
    check_refused(&["--at", "suppress_output.c:1"], "has no code; the next line that has is");
    guest.place.done();
}
