//! What `clew why` advises fits what it was asked: it never tells to say what has been said, or what nobody can say.

mod common;

use common::place::{Place, finish};
use common::searching::{answer, compile_at, line_with};
use common::{stderr, stdout};
use std::process::Output;

fn why(place: &Place, words: &[&str]) -> Output {
    let mut why = place.clew(["why"]);
    why.args(words).current_dir(&place.folder);
    finish(why, b"")
}

/// Refused with this in the sentence; answers all that was said.
#[track_caller]
fn check_refused(place: &Place, words: &[&str], sentence: &str) -> String {
    let output = why(place, words);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{words:?}: {}{said}", stdout(&output));
    assert!(said.contains(sentence), "{words:?}: {said}");
    assert_eq!(stdout(&output), "", "{words:?}");
    said.to_owned()
}

#[test]
fn a_number_below_zero_is_refused_as_a_value() {
    let place = Place::new("why-negative");
    for (option, sentence) in [
        ("--top", "write a number from 1 on"),
        ("--jobs", "write a number from 1 on"),
        ("--expect-exit", "-1 is not in"),
    ] {
        check_refused(&place, &[option, "-1", "--", "false"], sentence);
    }
    let said = check_refused(&place, &["-z", "--", "false"], "unexpected argument '-z'");
    assert!(!said.contains("tip: to pass"), "what is behind -- is the program: {said}");
    place.done();
}

#[test]
fn where_no_view_can_be_written_nothing_is_recorded() {
    let place = Place::new("why-views");
    let kept = place.folder.join("kept.html");
    std::fs::write(&kept, "old").expect("the file can be written");
    check_refused(&place, &["--html", ".", "--", "false"], ". cannot be written: it is a folder; name a file in it");
    check_refused(&place, &["--sarif", "/proc/x.sarif", "--", "false"], "/proc/x.sarif cannot be written: ");
    assert!(!place.home.exists(), "nothing is recorded");
    // The program passes, so there is nothing to write: what was there stays, and nothing else comes.
    let views = ["--html", "kept.html", "--sarif", "new.sarif", "--expect-exit", "0", "--", "true"];
    check_refused(&place, &views, "the program passes");
    assert_eq!(std::fs::read_to_string(&kept).expect("it is there"), "old");
    assert!(!place.folder.join("new.sarif").exists());
    place.done();
}

#[test]
fn an_isolation_within_why_names_only_options_that_why_has() {
    let place = Place::new("why-isolate-advice");
    std::fs::write(place.folder.join("in"), "a").expect("the file can be written");
    let command = ["--isolate", "in", "--", "cat", "@@"];
    let said = check_refused(&place, &command, "say how it fails, for example with --expect-exit 0 or --ref PROGRAM");
    assert!(!said.contains("--message"), "{said}");
    let expects = [["--expect", "in"].as_slice(), &command].concat();
    let said = check_refused(&place, &expects, "--expect holds for one input only, and --isolate changes the input");
    assert!(!said.contains("--message"), "{said}");
    place.done();
}

#[test]
fn a_program_that_does_not_do_the_same_each_time_is_said_to() {
    let place = Place::new("why-sometimes");
    compile_at("why_sometimes", "-O0", &place.folder);
    check_refused(
        &place,
        &["--", "./why_sometimes-O0"],
        "if it does not do the same each time, record it until it fails",
    );
    std::fs::remove_file(place.folder.join("ran")).expect("the program left it");
    let command = ["--json", "--budget", "10.5s", "--expect-exit", "0", "--", "./why_sometimes-O0"];
    let first = answer(&why(&place, &command));
    assert!(first["limits"].to_string().contains("or it does not do the same each time"), "{first:#}");
    assert_eq!(first["command"], serde_json::json!(["./why_sometimes-O0"]));
    // The recording knows what was recorded.
    let again = answer(&why(&place, &["--json", "--budget", "10.5s", "--expect-exit", "0", "latest"]));
    assert_eq!((&again["command"], &again["failure"]), (&first["command"], &first["failure"]));
    place.done();
}

#[test]
fn a_process_that_wrote_into_a_pipe_can_be_named_and_gets_suspects() {
    let place = Place::new("why-pipeline");
    compile_at("why_filter", "-O0", &place.folder);
    let files = [("pipe.sh", "printf 'ab 12\\n' | ./why_filter-O0 | cat\n"), ("expected", "AB 12\n")];
    files.iter().for_each(|(name, text)| std::fs::write(place.folder.join(name), text).expect("it can be written"));
    let mut record = place.clew(["record", "--quiet", "--", "sh", "pipe.sh"]);
    record.current_dir(&place.folder);
    assert_eq!(stdout(&finish(record, b"")), "AB \n");
    let info = answer(&place.run(["info", "--json", "latest"]));
    let units = info["units"].as_array().expect("a list");
    let filter = units.iter().find(|u| u["program"].as_str().is_some_and(|exe| exe.ends_with("why_filter-O0")));
    let name = format!("latest:{}", filter.expect("it was recorded")["unit"].as_str().expect("a name"));
    let answer = answer(&why(&place, &["--json", "--budget", "20s", "--expect", "expected", &name]));
    assert!(answer["limits"].to_string().contains("so few changes can be proved"), "{answer:#}");
    let causes = answer["candidates"].as_array().expect("a list");
    let line = line_with("why_filter", "/* wrong");
    assert!(causes.iter().any(|c| c["line"] == line && c["status"] == "suspected"), "{answer:#}");
    place.done();
}
