//! Tests of inputs, several at a time, and none twice.

use crate::trials::Stop;
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;

/// What became of the failure with another input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Passes,
    /// In the same way as with the input that was given.
    Fails,
    /// In another way, or nobody knows.
    Unresolved,
}

/// Runs the program on inputs.
pub trait Tests {
    /// Tests these inputs, at most [`Tests::width`], at the same time; no outcome for those that were broken off.
    fn test(&mut self, inputs: &[Vec<u8>]) -> Vec<Option<Outcome>>;

    /// How many are tested at the same time.
    fn width(&self) -> usize;

    /// Is it time to end?
    fn stop(&self) -> Option<Stop>;

    /// Hears how far it is: the best sizes so far, that of the failing input first.
    fn progress(&mut self, _tally: &Tally, _failing: usize, _passing: Option<usize>) {}
}

/// How many tests gave which outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    pub passes: u64,
    pub fails: u64,
    pub unresolved: u64,
    /// Answered without a run.
    pub known: u64,
}

impl Tally {
    pub fn runs(&self) -> u64 {
        self.passes + self.fails + self.unresolved
    }
}

/// Length and digests: inputs are long and many.
type Key = (usize, u64, u64);

/// Tests whose outcomes are kept.
pub struct Tested<'t> {
    tests: &'t mut dyn Tests,
    known: HashMap<Key, Outcome>,
    pub tally: Tally,
}

impl<'t> Tested<'t> {
    pub fn new(tests: &'t mut dyn Tests) -> Tested<'t> {
        Tested { tests, known: HashMap::new(), tally: Tally::default() }
    }

    /// The outcome of one input.
    pub fn one(&mut self, bytes: &[u8]) -> Result<Outcome, Stop> {
        let outcome = self.first(1, |_| bytes.to_vec(), |_| true)?;
        Ok(outcome.map_or(Outcome::Unresolved, |(_, outcome)| outcome))
    }

    /// The outcome of one input, which is run again even if it is known.
    pub fn again(&mut self, bytes: &[u8]) -> Result<Outcome, Stop> {
        self.known.remove(&key(bytes));
        self.one(bytes)
    }

    /// The first of so many inputs with an outcome that is wanted.
    pub(super) fn first(
        &mut self,
        count: usize,
        make: impl Fn(usize) -> Vec<u8>,
        wanted: impl Fn(Outcome) -> bool,
    ) -> Result<Option<(usize, Outcome)>, Stop> {
        let mut next = 0;
        while next < count {
            let (mut new, mut inputs, mut hit) = (Vec::new(), Vec::new(), None);
            while next < count && inputs.len() < self.tests.width().max(1) {
                let bytes = make(next);
                let key = key(&bytes);
                match self.known.get(&key) {
                    Some(outcome) => {
                        self.tally.known += 1;
                        if wanted(*outcome) {
                            hit = Some((next, *outcome));
                            break;
                        }
                    }
                    // Of two alike in one go the earlier one answers for both.
                    None if new.iter().any(|(_, k)| *k == key) => self.tally.known += 1,
                    None => {
                        new.push((next, key));
                        inputs.push(bytes);
                    }
                }
                next += 1;
            }
            if let Some(found) = self.run(&new, &inputs, &wanted)?.or(hit) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Runs these, which are not known; the first that is wanted.
    fn run(
        &mut self,
        new: &[(usize, Key)],
        inputs: &[Vec<u8>],
        wanted: &impl Fn(Outcome) -> bool,
    ) -> Result<Option<(usize, Outcome)>, Stop> {
        if inputs.is_empty() {
            return Ok(None);
        }
        if let Some(stop) = self.tests.stop() {
            return Err(stop);
        }
        let outcomes = self.tests.test(inputs);
        let mut found = None;
        let mut is_whole = true;
        for ((n, key), outcome) in new.iter().zip(outcomes) {
            let Some(outcome) = outcome else {
                is_whole = false;
                continue;
            };
            self.known.insert(*key, outcome);
            match outcome {
                Outcome::Passes => self.tally.passes += 1,
                Outcome::Fails => self.tally.fails += 1,
                Outcome::Unresolved => self.tally.unresolved += 1,
            }
            // Behind one without an outcome nobody knows which is the first.
            if is_whole && found.is_none() && wanted(outcome) {
                found = Some((*n, outcome));
            }
        }
        match found {
            None if !is_whole => Err(self.tests.stop().unwrap_or(Stop::Time)),
            found => Ok(found),
        }
    }

    pub(super) fn progress(&mut self, failing: usize, passing: Option<usize>) {
        self.tests.progress(&self.tally, failing, passing);
    }
}

fn key(bytes: &[u8]) -> Key {
    let digest = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(salt);
        hasher.write(bytes);
        hasher.finish()
    };
    (bytes.len(), digest(0), digest(1))
}

/// A program for tests that is a function.
#[cfg(test)]
pub mod made {
    use super::*;

    pub struct Made<F> {
        pub program: F,
        pub width: usize,
        /// Stops after so many runs.
        pub most: usize,
        pub runs: usize,
    }

    impl<F: Fn(&[u8]) -> Outcome> Made<F> {
        pub fn new(width: usize, program: F) -> Made<F> {
            Made { program, width, most: usize::MAX, runs: 0 }
        }
    }

    impl<F: Fn(&[u8]) -> Outcome> Tests for Made<F> {
        fn test(&mut self, inputs: &[Vec<u8>]) -> Vec<Option<Outcome>> {
            assert!((1..=self.width).contains(&inputs.len()));
            self.runs += inputs.len();
            inputs.iter().map(|i| Some((self.program)(i))).collect()
        }

        fn width(&self) -> usize {
            self.width
        }

        fn stop(&self) -> Option<Stop> {
            (self.runs >= self.most).then_some(Stop::Time)
        }
    }

    /// Numbers that look random.
    pub struct Dice(pub u64);

    impl Dice {
        pub fn roll(&mut self, sides: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % sides
        }
    }
}
