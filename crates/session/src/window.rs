//! Facts over a window: the instructions and addresses between two moments, as they were executed.
//!
//! A copy of the engine at the window's beginning is switched to mode trace and runs to its end; the session itself does
//! not move. Several windows may be traced at the same time, each by its own copy.

use crate::error::Error;
use crate::launch::Traces;
use crate::live::Live;
use crate::run::TraceTotals;
use crate::timeline::{Session, done, run};
use model::Mode;
use model::serve::{Moment, Place, Request, Until, Why};

/// What was traced.
#[derive(Clone, PartialEq, Debug)]
pub struct Window {
    /// Where the trace really ended: the moment asked for, or the end of the recording.
    pub end: Place,
    pub totals: Vec<TraceTotals>,
    /// It ended where it should.
    pub reached: bool,
}

impl Session {
    /// Traces from one moment to another. `traces` says who hears of it.
    pub fn window(
        &mut self,
        from: Moment,
        to: Moment,
        traces: Traces,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Window, Error> {
        let live = self.copy_at(from, interrupted)?;
        trace_on(&live, to, traces, interrupted)
    }

    /// The same after `change` has altered the guest at the beginning. The log goes on to answer: calls must be made as
    /// recorded, or the window ends there. Also gives the engine that ran, at the window's end.
    pub fn window_altered(
        &mut self,
        from: Moment,
        change: impl FnOnce(&Live) -> Result<(), Error>,
        to: Moment,
        traces: Traces,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<(Window, Live), Error> {
        let live = self.copy_at(from, interrupted)?;
        change(&live)?;
        let window = trace_on(&live, to, traces, interrupted)?;
        Ok((window, live))
    }
}

/// Runs an engine on to a moment and traces it.
pub(crate) fn trace_on(
    live: &Live,
    to: Moment,
    traces: Traces,
    interrupted: &mut dyn FnMut() -> bool,
) -> Result<Window, Error> {
    live.set_traces(traces);
    done(live.ask(&Request::Mode(Mode::Trace))?)?;
    let (why, end, _) = run(live, Until { moment: Some(to), ..Until::default() }, interrupted)?;
    if !matches!(why, Why::End(_)) {
        // At the end of the recording the trace has been closed already.
        done(live.ask(&Request::Mode(Mode::Tick))?)?;
    }
    Ok(Window { end, totals: live.finish_traces(), reached: why == Why::Reached })
}
