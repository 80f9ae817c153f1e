//! Trials that are watched: traced, or asked what memory holds at certain executions.
//!
//! A trial cannot be stopped and visited as a replay can, but it is as deterministic: what one of them traces, the next one
//! with the same change does again, so that values can be asked for by the executions that the trace has shown.

use crate::error::Error;
use crate::launch::Traces;
use crate::run::TraceTotals;
use crate::timeline::{Session, done};
use crate::trial::{Budget, Candidate, TrialOutcome, hear_trial};
use model::Mode;
use model::serve::{Look, Request};
use std::sync::atomic::AtomicBool;

impl Session {
    /// Makes a trial and traces it from its moment to its end. `traces` says who hears of it.
    pub fn traced_trial(
        &mut self,
        candidate: &Candidate,
        budget: &Budget,
        traces: Traces,
    ) -> Result<(TrialOutcome, Vec<TraceTotals>), Error> {
        let live = self.copy_at(candidate.moment, &mut || false)?;
        done(live.ask(&Request::Alter(candidate.alteration.clone()))?)?;
        live.set_traces(traces);
        done(live.ask(&Request::Mode(Mode::Trace))?)?;
        done(live.ask(&Request::Trial(budget.limits))?)?;
        let outcome = hear_trial(&live, budget, &mut |_, _| false, &AtomicBool::new(false), &mut |_, _| {})?;
        Ok((outcome, live.finish_traces()))
    }

    /// Makes a trial and reads memory meanwhile, at executions that count from its moment on. Nothing where it did not
    /// come to them, or there was no such memory.
    pub fn looking_trial(
        &mut self,
        candidate: &Candidate,
        budget: &Budget,
        looks: &[Look],
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let live = self.copy_at(candidate.moment, &mut || false)?;
        done(live.ask(&Request::Alter(candidate.alteration.clone()))?)?;
        done(live.ask(&Request::Looks(looks.to_vec()))?)?;
        let mut found = vec![None; looks.len()];
        let mut looked = |number: u32, bytes: Vec<u8>| {
            if looks.get(number as usize).is_some_and(|l| l.len as usize == bytes.len()) {
                found[number as usize] = Some(bytes);
            }
        };
        done(live.ask(&Request::Trial(budget.limits))?)?;
        hear_trial(&live, budget, &mut |_, _| false, &AtomicBool::new(false), &mut looked)?;
        Ok(found)
    }
}
