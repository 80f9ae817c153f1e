//! Methods that find causes.
//!
//! ```text
//! Oracle ── judges ──▶ Run ── compared with the failing one ──▶ Verdict ── of many trials, in an `order` ──▶ Search
//! ```
//! An [`Oracle`] says what "works" means; a [`Verdict`] says what became of the failure in one trial; [`mod@search`]
//! makes trials until one repairs the run; [`mod@reduce`] makes inputs smaller. This crate knows no live process: whoever has a recording implements [`Trials`].
//!
//! Guarantees: nothing is called proved unless a trial repaired the run and the controls around it did not.

pub mod oracle;
pub mod order;
pub mod output;
pub mod pairs;
pub mod reduce;
pub mod search;
pub mod trials;
pub mod verdict;

pub use oracle::{End, ExpectedFile, Failure, Fault, Judgement, Oracle, Run, Stream};
pub use output::{Hearing, Piece};
pub use search::{Finding, Plan, Search, search};
pub use trials::{Change, Each, Met, Stop, Trial, Trials};
pub use verdict::{Failing, Verdict};
