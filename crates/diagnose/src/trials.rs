//! What one trial changes, and who can make trials.

use crate::oracle::Run;
use model::GuestAddr;
use model::serve::Moment;

/// What a trial changes at its moment.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Change {
    /// Nothing: it is a control.
    Nothing,
    /// The conditional branch goes the other way, this once.
    Flip,
    /// The same, and the branch at this address goes the other way at its n-th execution from then on.
    FlipTwo { pc: u64, execution: u64 },
    /// The conditional branch is taken, or not taken, from now on.
    Force(bool),
    /// Execution goes on at this address: what lies between is left out.
    Skip(u64),
    /// The function that is entered returns at once.
    Return,
    /// Memory holds these bytes.
    SetMemory(GuestAddr, Vec<u8>),
}

/// One trial.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Trial {
    pub moment: Moment,
    pub change: Change,
}

impl Trial {
    pub fn flip(moment: Moment) -> Trial {
        Trial { moment, change: Change::Flip }
    }
}

/// Why a search ends before all candidates were tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// The time is used up.
    Time,
    /// The user wants it.
    Interrupted,
}

/// How often an altered run meets the place of the failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Met {
    Never,
    /// As often as the recorded run from there on, the last time of which it failed: that execution is among them.
    AsOften,
    /// As often, but with a value that was put there: one that happens not to fail is easily found.
    Unlike,
    /// Not that often: whether one of these is the execution that failed is not known.
    Less,
    /// That could not be seen.
    Unknown,
}

/// Hears of one trial of a batch: its index, and the whole altered run or why there is none.
pub type Each<'a> = &'a mut dyn FnMut(usize, Result<Run, String>);

/// Whoever can make trials of the failing run.
pub trait Trials {
    /// Makes these trials, in any order. `each` is told the whole altered run, with what was written before the moment
    /// too. A search that is to [`stop`](Trials::stop) may leave out all but one.
    fn batch(&mut self, trials: &[Trial], each: Each<'_>) -> Result<(), String>;

    /// Does the run with this change come to the place of the failure?
    fn meets_failure(&mut self, trial: &Trial) -> Met;

    /// Does the user's own check take this run for a working one?
    fn check(&self, run: &Run) -> bool;

    /// Is the search to end here?
    fn stop(&self) -> Option<Stop>;
}
