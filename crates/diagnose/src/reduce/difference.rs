//! What makes a failing input of a passing one: changes, each of which can be made or not.
//!
//! A change puts one part of the failing input for one part of the passing input; where one of them has more parts, it takes
//! a part away or adds one. Parts that both have, in the same order, are common (longest common subsequence). Where both are
//! too long for that, parts beside each other are compared.

use super::input::{Grain, Input};
use std::ops::Range;

/// Cells of the table in which common parts are found, at most.
const MOST_CELLS: usize = 16 << 20;

/// One step from the passing to the failing input.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    /// Both have it.
    Common { failing: Range<usize> },
    /// A part of one instead of a part of the other; one of them may be nothing.
    Change { passing: Range<usize>, failing: Range<usize> },
}

/// All steps from a passing to a failing input.
pub struct Difference<'a> {
    passing: &'a Input,
    failing: &'a Input,
    steps: Vec<Step>,
}

/// A place where two inputs differ: what each has there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hunk {
    pub passing: Range<usize>,
    pub failing: Range<usize>,
}

impl<'a> Difference<'a> {
    pub fn new(passing: &'a Input, failing: &'a Input, grain: Grain) -> Difference<'a> {
        let (p, f) = (grain.parts(&passing.bytes), grain.parts(&failing.bytes));
        let same = |a: &Range<usize>, b: &Range<usize>| passing.bytes[a.clone()] == failing.bytes[b.clone()];
        let before = p.iter().zip(&f).take_while(|(a, b)| same(a, b)).count();
        let behind = p[before..].iter().rev().zip(f[before..].iter().rev()).take_while(|(a, b)| same(a, b)).count();
        let mut steps: Vec<Step> = f[..before].iter().map(|r| Step::Common { failing: r.clone() }).collect();
        let (middle_p, middle_f) = (&p[before..p.len() - behind], &f[before..f.len() - behind]);
        match middle_p.len().saturating_mul(middle_f.len()) <= MOST_CELLS {
            true => align(middle_p, middle_f, &same, &mut steps),
            false => change(middle_p, middle_f, &same, &mut steps),
        }
        steps.extend(f[f.len() - behind..].iter().map(|r| Step::Common { failing: r.clone() }));
        Difference { passing, failing, steps }
    }

    /// How many changes there are.
    pub fn len(&self) -> usize {
        self.steps.iter().filter(|s| !matches!(s, Step::Common { .. })).count()
    }

    /// The input with these changes made, which are in order.
    pub fn with(&self, made: &[usize]) -> Input {
        let mut input = Input::default();
        let (mut number, mut made) = (0, made.iter().peekable());
        for step in &self.steps {
            let mut is_made = || {
                number += 1;
                made.next_if(|n| **n == number - 1).is_some()
            };
            match step {
                Step::Common { failing } => input.append(self.failing, failing.clone()),
                Step::Change { failing, .. } if is_made() => input.append(self.failing, failing.clone()),
                Step::Change { passing, .. } => input.append(self.passing, passing.clone()),
            }
        }
        input
    }

    /// The places where the inputs differ; changes beside each other are one place.
    pub fn hunks(&self) -> Vec<Hunk> {
        let mut hunks: Vec<Hunk> = Vec::new();
        let (mut p, mut f) = (0, 0);
        for step in &self.steps {
            let (passing, failing) = match step {
                Step::Common { failing } => {
                    p += failing.len();
                    f += failing.len();
                    continue;
                }
                Step::Change { passing, failing } => (passing.len(), failing.len()),
            };
            match hunks.last_mut().filter(|h| h.passing.end == p && h.failing.end == f) {
                Some(last) => (last.passing.end, last.failing.end) = (p + passing, f + failing),
                None => hunks.push(Hunk { passing: p..p + passing, failing: f..f + failing }),
            }
            (p, f) = (p + passing, f + failing);
        }
        hunks
    }
}

type Same<'s> = &'s dyn Fn(&Range<usize>, &Range<usize>) -> bool;

/// Steps by a longest common subsequence.
fn align(p: &[Range<usize>], f: &[Range<usize>], same: Same<'_>, to: &mut Vec<Step>) {
    let width = f.len() + 1;
    // How many parts are common from here on.
    let mut common = vec![0u32; (p.len() + 1) * width];
    for i in (0..p.len()).rev() {
        for j in (0..f.len()).rev() {
            common[i * width + j] = match same(&p[i], &f[j]) {
                true => common[(i + 1) * width + j + 1] + 1,
                false => common[(i + 1) * width + j].max(common[i * width + j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    // Where what differs began.
    let (mut from_i, mut from_j) = (0, 0);
    while i < p.len() && j < f.len() {
        if same(&p[i], &f[j]) {
            change(&p[from_i..i], &f[from_j..j], same, to);
            to.push(Step::Common { failing: f[j].clone() });
            (i, j) = (i + 1, j + 1);
            (from_i, from_j) = (i, j);
        } else if common[(i + 1) * width + j] >= common[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    change(&p[from_i..], &f[from_j..], same, to);
}

/// Steps part by part.
fn change(p: &[Range<usize>], f: &[Range<usize>], same: Same<'_>, to: &mut Vec<Step>) {
    let at_end = |all: &[Range<usize>]| all.last().map_or(0..0, |last| last.end..last.end);
    for n in 0..p.len().max(f.len()) {
        let passing = p.get(n).cloned().unwrap_or_else(|| at_end(p));
        let failing = f.get(n).cloned().unwrap_or_else(|| at_end(f));
        to.push(match n < p.len() && n < f.len() && same(&passing, &failing) {
            true => Step::Common { failing },
            false => Step::Change { passing, failing },
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(passing: &str, failing: &str, grain: Grain, changes: usize, hunks: &[(&str, &str)]) {
        let (p, f) = (Input::other(passing.as_bytes()), Input::new(failing.as_bytes()));
        let difference = Difference::new(&p, &f, grain);
        assert_eq!(difference.len(), changes);
        assert_eq!(difference.with(&[]).bytes, passing.as_bytes());
        let all: Vec<usize> = (0..changes).collect();
        assert_eq!(difference.with(&all).bytes, failing.as_bytes());
        let found: Vec<(&str, &str)> =
            difference.hunks().into_iter().map(|h| (&passing[h.passing], &failing[h.failing])).collect();
        assert_eq!(found, hunks);
    }

    #[test]
    fn none_and_all_changes_make_both_inputs() {
        check("", "ab", Grain::Bytes, 2, &[("", "ab")]);
        check("ab", "", Grain::Bytes, 2, &[("ab", "")]);
        check("abc", "abc", Grain::Bytes, 0, &[]);
        check("a b c", "a x c d", Grain::Words, 3, &[("b", "x"), ("", " d")]);
        check("one\ntwo\n", "zero\none\n2\n", Grain::Lines, 2, &[("", "zero\n"), ("two\n", "2\n")]);
        check("kitten", "sitting", Grain::Bytes, 3, &[("k", "s"), ("e", "i"), ("", "g")]);
    }

    #[test]
    fn long_inputs_are_compared_part_by_part() {
        let (p, f) = ("a".repeat(5000), "b".repeat(5000));
        let (p, f) = (Input::other(p.as_bytes()), Input::new(f.as_bytes()));
        let difference = Difference::new(&p, &f, Grain::Bytes);
        assert_eq!(difference.len(), 5000);
        assert_eq!(difference.with(&(0..5000).collect::<Vec<_>>()).bytes, f.bytes);
    }
}
