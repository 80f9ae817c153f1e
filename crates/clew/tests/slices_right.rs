//! Slices are right: what they leave out does not matter.
//!
//! For random values of random programs, something that the slice leaves out is changed while the recording is replayed.
//! As long as the path and the addresses of stores stay as recorded, the value must stay what it was. A slicer that
//! forgets one kind of dependence is found out by the same test.
//!
//! A fixed sample of pairs of program and value is done normally, all with `CLEW_FULL=1`. Changes after which the program
//! goes another way say nothing and are counted apart.

mod common;
mod perturbation;

use perturbation::subject::{Subject, subjects};
use perturbation::{Tally, check_pairs, nesting, with_stage};
use slice::Omit;
use testkit::random::Random;
use testkit::{repository, sample};

/// Pairs of program and value that are done normally, and all of them.
const SOME: usize = 40;
const ALL: usize = 200;

fn pairs() -> usize {
    if sample::full() { ALL } else { SOME }
}

/// Does pairs over all subjects in turn.
fn check_all(subjects: &[Subject], pairs: usize, seed: u64, omit: Option<Omit>) -> Tally {
    let mut tally = Tally::default();
    for (n, subject) in subjects.iter().enumerate() {
        let share = pairs / subjects.len() + usize::from(n < pairs % subjects.len());
        tally.add(&check_pairs(subject, share, seed + n as u64, omit));
    }
    tally
}

#[test]
fn what_a_slice_leaves_out_does_not_matter() {
    let subjects = subjects();
    let tally = check_all(&subjects, pairs(), 1, None);
    sample::say(&format!("slices: {} of {ALL} pairs, {tally}", tally.pairs));
    assert_eq!(tally.violations, Vec::<String>::new());
    // A test that hardly ever compares anything would pass as well.
    assert!(tally.compared * 2 >= tally.pairs, "{tally}");
}

/// Values that are tried at most until a slicer that forgets something is found out.
const MOST: usize = 12;

/// Without this kind of dependence slices are wrong, and the test notices.
fn check_noticed(omit: Omit) {
    let mut tally = Tally::default();
    for (n, subject) in subjects().iter().filter(|s| s.is_own).enumerate() {
        tally.add(&check_pairs(subject, MOST, 7 + n as u64, Some(omit)));
        if !tally.violations.is_empty() {
            break;
        }
    }
    sample::say(&format!("slices without {omit:?}: {tally}"));
    assert!(!tally.violations.is_empty(), "{omit:?} can be left out unnoticed: {tally}");
}

#[test]
fn leaving_out_dependences_through_memory_is_noticed() {
    check_noticed(Omit::Memory);
}

#[test]
fn leaving_out_dependences_through_registers_is_noticed() {
    check_noticed(Omit::Registers);
}

#[test]
fn leaving_out_dependences_through_flags_is_noticed() {
    check_noticed(Omit::Flags);
}

/// Headers of blocks that the slices of random instructions of a guest lack.
fn headers_missing(samples: usize, omit: Option<Omit>) -> Vec<String> {
    let subjects = subjects();
    let subject = subjects.iter().find(|s| s.name == "sorting-O0").expect("it is one of ours");
    let source = std::fs::read_to_string(repository().join("guests/slice/sorting.c")).expect("the source is there");
    let mut random = Random::new(5);
    let check =
        |stage: &mut perturbation::Stage<'_>| stage.check_headers(("sorting.c", &source), samples, &mut random, omit);
    let (looked_for, missing) = with_stage(subject, check);
    sample::say(&format!(
        "slices: {looked_for} headers of {samples} instructions looked for, {} missing",
        missing.len()
    ));
    assert!(looked_for > samples / 3, "the sample says too little");
    missing
}

#[test]
fn what_stands_inside_a_block_depends_on_its_header() {
    assert_eq!(headers_missing(if sample::full() { 150 } else { 30 }, None), Vec::<String>::new());
}

#[test]
fn leaving_out_control_dependences_is_noticed() {
    assert!(!headers_missing(20, Some(Omit::Control)).is_empty());
}

#[test]
fn headers_are_told_by_indentation() {
    let source = "int f() {\n  for (;;) {\n    x;\n    if (a)\n      b;\n    else {\n      c;\n    }\n  }\n}";
    for (line, expected) in [(3, &[2][..]), (5, &[4, 2]), (7, &[4, 2]), (2, &[])] {
        assert_eq!(nesting::headers(source, line), expected, "line {line}");
    }
}
