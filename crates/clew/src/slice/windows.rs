//! A backward slice of a run of any length, window by window from the criterion back.
//!
//! Only windows that the slice enters are traced, and one at a time is in memory, so that memory is bounded by the size of
//! a window and what is wanted at one time. A run of one small window keeps it: whoever asks for more need not trace again.
//! When time runs out, or the user does not want to wait, what was found so far is
//! the answer, and it is said how far back it goes.

use super::Times;
use super::facts::Program;
use super::lines::{Origins, Ran};
use super::tracing::{self, Traced};
use model::serve::Moment;
use session::Session;
use slice::{Backward, CallEffects, Criterion, Prepare, Slice, Window};
use std::time::Instant;

/// Bytes up to which a window is kept.
const KEPT: usize = 64 << 20;

/// What is needed to trace and prepare further windows.
pub struct Windows<'a> {
    pub session: &'a mut Session,
    pub facts: &'a mut Program,
    pub calls: Vec<CallEffects>,
    pub how: Prepare,
    /// Where the run, or what may be traced of it, begins.
    pub start: Moment,
    /// Millions of instructions in a window.
    pub millions: u64,
    /// Whose code is whose; library code is shown where it was called from unless there is no need to know.
    pub origins: Option<Origins<'a>>,
    /// What tracing and preparing took.
    pub times: &'a mut Times,
}

/// A slice of several windows.
pub struct Followed {
    pub slice: Slice,
    /// The window, if it is small and the only one that there is.
    pub window: Option<Window>,
    pub ran: Ran,
    /// Bytes of memory that the largest window took.
    pub memory: usize,
    /// Time ran out before this moment was reached from the criterion.
    pub stopped: Option<Moment>,
}

impl Windows<'_> {
    /// Prepares what was traced.
    pub fn prepare(&mut self, traced: Traced) -> (Window, Moment) {
        let begun = Instant::now();
        let Traced { builder, from, .. } = traced;
        // Calls before a window, or before a fork, must not be taken for those in it.
        let in_window = |c: &&CallEffects| c.tick >= from.tick;
        let calls = self.calls.iter().filter(in_window).cloned().collect();
        let mut window = builder.finish(self.facts, calls, self.how);
        if let Some(origins) = &mut self.origins {
            window.mark_own(|pc| origins.is_own(pc));
        }
        self.times.prepare += begun.elapsed();
        (window, from)
    }

    /// Slices from the end of the window that was traced first.
    pub fn follow(
        &mut self,
        traced: Traced,
        criterion: &Criterion,
        options: &slice::Options,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Followed, String> {
        let mut backward = Backward::new(criterion, options);
        let (mut window, mut from) = self.prepare(traced);
        let is_whole = from <= self.start;
        let (mut ran, mut memory) = (Ran::default(), 0);
        let mut stopped = None;
        loop {
            backward.walk(&window, self.facts, stop);
            ran.add(&window);
            memory = memory.max(window.bytes());
            if backward.is_over() || from <= self.start {
                break;
            }
            // The arrays of one window are as much as may be in memory.
            window = Window::default();
            let begun = Instant::now();
            let before = tracing::trace(self.session, Some(self.start), from, self.millions, stop);
            self.times.trace += begun.elapsed();
            match before {
                Ok(traced) if !stop() => (window, from) = self.prepare(traced),
                Err(why) if !stop() => return Err(why),
                _ => {
                    stopped = Some(from);
                    break;
                }
            }
        }
        let mut slice = backward.finish();
        slice.cut |= stopped.is_some();
        let window = Some(window).filter(|w| is_whole && w.bytes() <= KEPT);
        Ok(Followed { slice, window, ran, memory, stopped })
    }
}
