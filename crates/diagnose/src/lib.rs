//! Methods that find causes.
//!
//! ```text
//! Oracle ── judges ──▶ Run ── compared with the failing one ──▶ Verdict ── of many trials ──▶ Search
//! ```
//! An [`Oracle`] says what "works" means; a [`Verdict`] says what became of the failure in one trial; [`switching`]
//! searches for critical predicates. This crate knows no live process: whoever has a recording implements [`Trials`].
//!
//! Guarantees: nothing is called proved unless a trial repaired the run and the controls around it did not.

pub mod oracle;
pub mod switching;
pub mod verdict;

pub use oracle::{End, Failure, Judgement, Oracle, Run, Stream};
pub use switching::{Finding, Met, Plan, Search, Stop, Trial, Trials, switch};
pub use verdict::{Failing, Verdict};
