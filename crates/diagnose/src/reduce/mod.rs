//! Smaller inputs that fail in the same way, and pairs of inputs between which the failure begins: delta debugging.
//!
//! ```text
//! failing input ─ [ddmin] ─────────────────▶ an input that fails and of which nothing can be left out
//! failing and passing input ─ [isolate] ───▶ two inputs, one passes, one fails, that differ in as little as possible
//! ```
//! Both cut the input into lines first, then into words, then into bytes ([`Grain`]): most of an input goes with few tests.
//! What a test is comes through [`Tests`]; each input is tested once ([`Tested`]).
//!
//! Guarantees: unless it was stopped, no single byte can be left out of the result of [`smallest`] without another
//! outcome, and no single difference of the result of [`fn@isolate`] can be taken over or undone with a clear outcome
//! (1-minimal). The result does not depend on how many tests are made at the same time.
//! May miss: smaller results that need several bytes to go at once; inputs whose outcome changes from run to run.
//! Source: A. Zeller, R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE 28(2), 2002.

mod ddmin;
mod difference;
#[cfg(test)]
mod frameset;
mod input;
mod isolate;
mod tested;

pub use difference::Hunk;
pub use input::{Grain, Input};
pub use isolate::{Isolated, Start, isolate, passing_part};
pub use tested::{Outcome, Tally, Tested, Tests};

use crate::trials::Stop;

/// The smallest failing input found, and why it was not made smaller, if so.
pub fn smallest(tested: &mut Tested<'_>, failing: &[u8]) -> (Input, Option<Stop>) {
    let mut best = Input::new(failing);
    for grain in Grain::ALL {
        if let Err(stop) = ddmin::reduce(tested, &mut best, grain) {
            return (best, Some(stop));
        }
    }
    (best, None)
}
