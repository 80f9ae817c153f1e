//! Slices are right: what they leave out does not matter.
//!
//! For random values of random programs, something that the slice leaves out is changed while the recording is replayed.
//! As long as the path and the addresses of stores stay as recorded, the value must stay what it was. A slicer that
//! forgets one kind of dependence is found out by the same test.
//!
//! Of relevant slices this holds on other paths, too, as long as the value is used at all, and what is stored on these
//! paths is stored where the model of code that did not run expects it.
//!
//! A fixed sample of pairs of program and value is done normally, all with `CLEW_FULL=1`. Changes that say nothing are
//! counted apart.

mod common;
mod perturbation;

use perturbation::subject::{Subject, subjects};
use perturbation::{Tally, check_pairs, nesting, relevant, with_stage};
use slice::{Omit, Options};
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

/// Violations of relevant slices that are allowed, in percent of the changes that count.
const TOLERATED: usize = 2;
/// Subjects are shared out to so many tests, because relevant slices take longer.
const SHARES: usize = 4;

/// How relevant slices of the n-th subject are made: every other subject has stores through pointers counted too.
fn relevant_options(n: usize, omit: Option<Omit>) -> Options {
    Options { relevant: true, pointers: n % 2 == 1, omit, ..Options::default() }
}

/// One share of the subjects, each with one pair or all of its pairs.
fn check_relevant(share: usize) {
    let subjects = subjects();
    let count = subjects.len();
    let mut tally = relevant::Tally::default();
    for (n, subject) in subjects.iter().enumerate().filter(|(n, _)| n % SHARES == share) {
        let pairs = if sample::full() { ALL / count + usize::from(n < ALL % count) } else { 1 };
        tally.add(relevant::check_pairs(subject, pairs, 100 + n as u64, &relevant_options(n, None)));
    }
    let pairs = tally.pairs;
    sample::say(&format!("relevant slices, share {} of {SHARES}: {pairs} of {ALL} pairs, {tally}", share + 1));
    tally.violations.iter().for_each(|(cause, text)| sample::say(&format!("{cause}: {text}")));
    assert!(tally.violations.len() * 100 <= tally.counted * TOLERATED, "{tally}");
    // A test that hardly ever compares anything would pass as well; of a few pairs none may go another way by chance.
    let parts = !sample::full() || tally.parted * 4 >= tally.counted;
    assert!(tally.compared * 2 >= tally.pairs && parts, "{tally}");
}

#[test]
fn what_a_relevant_slice_leaves_out_does_not_matter_on_other_paths_1() {
    check_relevant(0);
}

#[test]
fn what_a_relevant_slice_leaves_out_does_not_matter_on_other_paths_2() {
    check_relevant(1);
}

#[test]
fn what_a_relevant_slice_leaves_out_does_not_matter_on_other_paths_3() {
    check_relevant(2);
}

#[test]
fn what_a_relevant_slice_leaves_out_does_not_matter_on_other_paths_4() {
    check_relevant(3);
}

#[test]
fn leaving_out_potential_dependences_is_noticed() {
    let mut tally = relevant::Tally::default();
    for (n, subject) in subjects().iter().filter(|s| s.name.starts_with("omitted")).enumerate() {
        let options = relevant_options(n, Some(Omit::Potential));
        tally.add(relevant::check_pairs(subject, MOST_WITHOUT_POTENTIAL, 7 + n as u64, &options));
        if !tally.violations.is_empty() {
            break;
        }
    }
    sample::say(&format!("relevant slices without potential dependences: {tally}"));
    // Complete slices have none at all in 200 pairs.
    assert!(!tally.violations.is_empty(), "{tally}");
}

/// Most branches that went as they did for no other reason change nothing; some are needed until one does.
const MOST_WITHOUT_POTENTIAL: usize = 60;

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
