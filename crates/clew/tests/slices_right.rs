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
use perturbation::{Tally, check_pairs};
use slice::Omit;
use testkit::sample;

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
