//! How much of the failure hangs on a function.
//!
//! A branch that repairs the run by accident mostly stands alone: the other branches of its function have nothing to do with
//! the failure. In a function that is wrong, several branches repair it, each in its own way. And a function that the
//! program goes through all the time (an interpreter's loop, a lexer) offers more accidents than one that ran a few times.
//!
//! Guarantees: only an order; nothing is left out.
//! Source: ours, measured (docs/accuracy.md); close to the groups of statements of spectrum-based methods, with trials in
//! place of tests.

use super::gathered::Gathered;
use super::places::Places;
use diagnose::{Change, Verdict};
use std::collections::HashMap;

/// Dependences that a function's branches count as nearer if twice as many of them repair the run as one would expect.
const PER_DOUBLING: f64 = 6.0;
/// Dependences that they count as farther away if the function executes twice as many branches.
const PER_DOUBLED_WORK: f64 = 4.0;

/// One function, or one call: branches that were tried, those of them that repaired the run, and executions of all.
#[derive(Default)]
pub struct Counted {
    tried: u32,
    repaired: u32,
    pub executed: u64,
}

/// All functions whose branches were tried.
#[derive(Default)]
pub struct Functions {
    by_name: HashMap<String, Counted>,
    /// Of all branches that were tried, so many repaired the run.
    rate: f64,
}

impl Functions {
    pub fn count(gathered: &Gathered, places: &mut Places<'_>) -> Functions {
        let mut branches: HashMap<u64, bool> = HashMap::new();
        for (trial, verdict, _) in gathered.search.told.iter().filter(|(t, ..)| t.change == Change::Flip) {
            *branches.entry(trial.moment.pc).or_default() |= *verdict == Verdict::Fixed;
        }
        let mut all = Functions::default();
        for (pc, repaired) in &branches {
            let counted = all.by_name.entry(name(*pc, places)).or_default();
            counted.tried += 1;
            counted.repaired += u32::from(*repaired);
        }
        for pc in gathered.branches.places() {
            if let Some(counted) = all.by_name.get_mut(&name(pc, places)) {
                counted.executed += gathered.executed(pc);
            }
        }
        let repaired = branches.values().filter(|r| **r).count();
        all.rate = repaired.max(1) as f64 / branches.len().max(1) as f64;
        all
    }

    /// Of all branches that were tried, so many repaired the run.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// How unlikely the function that a place is in is to be wrong, in dependences; less is better.
    pub fn weight(&self, pc: u64, places: &mut Places<'_>) -> f64 {
        let counted = self.by_name.get(&name(pc, places)).filter(|c| c.repaired > 0);
        counted.map_or(0.0, |c| c.weight(self.rate))
    }
}

impl Counted {
    pub fn new(tried: u32, repaired: u32) -> Counted {
        Counted { tried, repaired, executed: 0 }
    }

    pub fn weight(&self, rate: f64) -> f64 {
        let (tried, repaired) = (f64::from(self.tried), f64::from(self.repaired));
        // One branch of one says less than ten of ten.
        let share = (repaired + rate / 2.0) / (tried + 0.5);
        let work = (1.0 + self.executed as f64).log2();
        PER_DOUBLED_WORK * work - PER_DOUBLING * ((share / rate).log2() + repaired.log2())
    }
}

/// The function that an instruction is in; its address where that is not known.
fn name(pc: u64, places: &mut Places<'_>) -> String {
    let origin = places.origins.of(pc);
    origin.function.clone().unwrap_or_else(|| origin.address.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(repaired: u32, tried: u32, executed: u64) -> f64 {
        Counted { tried, repaired, executed }.weight(0.05)
    }

    #[test]
    fn functions_with_many_repairs_that_ran_seldom_come_first() {
        let order = [(4, 6, 6), (2, 6, 6), (1, 6, 6), (1, 40, 600), (1, 40, 100_000)];
        let weights = order.map(|(repaired, tried, executed)| weight(repaired, tried, executed));
        assert!(weights.is_sorted_by(|a, b| a < b), "{weights:?}");
    }
}
