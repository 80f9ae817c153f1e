//! Pairs of branches, for runs that no single one repairs.
//!
//! There are too many pairs to try them all. A branch is promising if switching it alone made a difference: the first wrong
//! byte came later, the failing place was not met, or the run failed otherwise. Pairs have at least one promising branch;
//! those of two promising ones come first.
//!
//! May miss: pairs of which neither branch makes a difference by itself.

use crate::oracle::{End, Failure, Fault};
use crate::trials::{Change, Trial};
use crate::verdict::{Failing, Verdict};
use model::serve::Moment;

/// How much a switch promises; less is better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Promise {
    /// More of the output is right: it is up to this byte.
    MoreIsRight(std::cmp::Reverse<usize>),
    Avoided,
    Otherwise,
}

/// The switches that made a difference, the most promising first, at most so many.
pub fn promising(told: &[(Trial, Verdict, End)], failing: &Failing, most: usize) -> Vec<Moment> {
    let flips = told.iter().filter(|(trial, ..)| trial.change == Change::Flip);
    let mut found: Vec<(Promise, Moment)> =
        flips.filter_map(|(trial, verdict, _)| Some((promise(verdict, failing)?, trial.moment))).collect();
    // Those that promise as much stay in the order in which they were tried.
    found.sort_by_key(|(promise, _)| *promise);
    found.into_iter().take(most).map(|(_, moment)| moment).collect()
}

fn promise(verdict: &Verdict, failing: &Failing) -> Option<Promise> {
    match verdict {
        Verdict::Avoided => Some(Promise::Avoided),
        Verdict::OtherFailure(failure) => Some(match (wrong_from(failure), wrong_from(&failing.failure)) {
            (Some(now), Some(before)) if now > before => Promise::MoreIsRight(std::cmp::Reverse(now)),
            _ => Promise::Otherwise,
        }),
        _ => None,
    }
}

/// Where output begins to be wrong.
fn wrong_from(failure: &Failure) -> Option<usize> {
    match failure {
        Failure::WrongByte { offset, .. } | Failure::Missing { offset, .. } | Failure::Extra { offset, .. } => {
            Some(*offset)
        }
        Failure::WrongFile { fault, .. } => match fault {
            Fault::Absent => Some(0),
            Fault::WrongByte { offset, .. } | Fault::Missing { offset, .. } | Fault::Extra { offset, .. } => {
                Some(*offset)
            }
        },
        _ => None,
    }
}

/// Pairs of the first `count` numbers, those of small numbers first.
pub fn by_rank(count: usize) -> Vec<(usize, usize)> {
    let mut all: Vec<_> = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b))).collect();
    all.sort_by_key(|(a, b)| (a + b, *b));
    all
}

/// Several lists as one, one of each in turn.
pub fn in_turn<T>(lists: Vec<Vec<T>>) -> Vec<T> {
    let mut lists: Vec<_> = lists.into_iter().map(Vec::into_iter).collect();
    let mut all = Vec::new();
    loop {
        let before = all.len();
        all.extend(lists.iter_mut().filter_map(Iterator::next));
        if all.len() == before {
            return all;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::{Run, Stream};

    fn wrong_at(offset: usize) -> Failure {
        Failure::WrongByte { stream: Stream::Stdout, offset, expected: b'a', found: b'b' }
    }

    #[test]
    fn what_made_more_right_promises_most() {
        let failing =
            Failing { run: Run { output: Vec::new(), end: End::Exited(0), files: Vec::new() }, failure: wrong_at(3) };
        let verdicts = [
            Verdict::SameFailure,
            Verdict::OtherFailure(Failure::Hang),
            Verdict::OtherFailure(wrong_at(5)),
            Verdict::OtherFailure(wrong_at(1)),
            Verdict::Avoided,
            Verdict::OtherFailure(wrong_at(9)),
            Verdict::Lost("it".into()),
        ];
        let at = |n: usize| Moment { tick: n as u64, pc: 1 };
        let told: Vec<_> =
            verdicts.into_iter().enumerate().map(|(n, v)| (Trial::flip(at(n)), v, End::Exited(0))).collect();
        assert_eq!(promising(&told, &failing, 9), [5, 2, 4, 1, 3].map(at));
        assert_eq!(promising(&told, &failing, 2), [5, 2].map(at));
    }

    #[test]
    fn the_best_are_paired_first() {
        assert_eq!(by_rank(4), [(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3)]);
        assert_eq!(in_turn(vec![vec![1, 2, 3], vec![], vec![7, 8]]), [1, 7, 2, 8, 3]);
    }
}
