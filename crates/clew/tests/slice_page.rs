//! A slice that takes long shows its nearest lines before it is there; what it prints in the end does not depend on that.
//! One that may not take so long says what it found until then, or that it found nothing.

mod common;

use common::place::{Place, finish};
use common::{stderr, stdout};
use testkit::{compile, repository};

const SO_FAR: &str = "clew: the nearest lines so far (";

fn recorded(name: &str) -> Place {
    let program = compile::guest_with("slice/seams.c", &["-O0"]).expect("any CPU runs it").program;
    let place = Place::new(name);
    let mut record = place.clew(["record", "--quiet", "--"]);
    record.arg(program);
    let output = finish(record, b"");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    place
}

/// Status, standard output without how long it took, and standard error.
fn slice(place: &Place, options: &[&str]) -> (Option<i32>, String, String) {
    let mut command = place.clew(["slice", "--output", "0", "--window", "1"]);
    command.args(options).arg("latest");
    let output = finish(command, b"");
    let untimed = |line: &str| match line.contains(" executed instructions") {
        true => line.rsplit_once(", ").map_or(line, |(before, _)| before).to_owned(),
        false => line.to_owned(),
    };
    let text: Vec<String> = stdout(&output).lines().map(untimed).collect();
    (output.status.code(), text.join("\n"), stderr(&output).to_owned())
}

#[test]
fn the_nearest_lines_are_shown_once_and_the_listing_stays_the_same() {
    let place = recorded("page");
    let source = std::fs::read_to_string(repository().join("guests/slice/seams.c")).expect("the source is there");
    let print = source.lines().position(|l| l.ends_with("/* print */")).expect("there is such a line") + 1;
    let nearest = format!("\n  {print:>6}  ");
    let (status, plain, silent) = slice(&place, &[]);
    assert_eq!((status, silent.as_str()), (Some(0), ""), "no terminal, no page");
    for options in [&["--nearest-after", "0s"][..], &["--nearest-after", "0s", "--relevant"]] {
        let (status, text, page) = slice(&place, options);
        assert_eq!(status, Some(0), "{page}");
        assert_eq!(page.matches(SO_FAR).count(), 1, "{page}");
        assert!(page.contains(&nearest), "the nearest line is there: {page}");
        let lines = |text: &str| text.lines().filter(|l| l.starts_with("  ")).count();
        assert!((1..=20).contains(&lines(&page)) && lines(&page) < lines(&text), "{page}\n{text}");
        if !options.contains(&"--relevant") {
            assert_eq!(text, plain);
        }
    }
    let (status, text, page) = slice(&place, &["--nearest-after", "1h"]);
    assert_eq!((status, text.as_str(), page.as_str()), (Some(0), plain.as_str(), ""), "it was there before");
    place.done();
}

#[test]
fn a_page_of_a_document_is_refused() {
    let place = recorded("page-json");
    let (status, text, why) = slice(&place, &["--nearest-after", "0s", "--json"]);
    assert_eq!((status, text.as_str()), (Some(2), ""), "{why}");
    place.done();
}

#[test]
fn what_was_found_until_time_ran_out_is_shown_and_said_not_to_be_all() {
    let place = recorded("page-budget");
    let (status, text, why) = slice(&place, &["--budget", "0s"]);
    match status {
        Some(0) => assert!(text.contains("limit: the slice is not complete: the time ran out"), "{text}"),
        Some(1) => assert!(why.contains("before anything was followed"), "{why}"),
        _ => panic!("{status:?}: {text}{why}"),
    }
    place.done();
}
