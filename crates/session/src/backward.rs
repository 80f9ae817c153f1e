//! Going back to the last breakpoint, change or access before the present moment.
//!
//! Stretches between checkpoints are run over again, each by a copy of the engine that remembers the last thing it met.
//! They are looked at from the last one back, and run as many at a time as there are cores: which of them holds what is
//! looked for is not known before.

use crate::error::Error;
use crate::live::Live;
use crate::timeline::{Session, Stopped, begin_run, end_run, equip, run, step, watched};
use model::serve::{Collected, Moment, Until, Why};
use std::collections::VecDeque;

/// An engine that runs from a checkpoint to the beginning of what has been looked at.
struct Stretch {
    from: Moment,
    live: Live,
}

impl Session {
    /// Backward to a breakpoint, a change, an access or the beginning.
    pub fn backward(&mut self, interrupted: &mut dyn FnMut() -> bool) -> Result<Stopped, Error> {
        let from = self.place.moment;
        let stopped = self.backward_to_change(interrupted)?;
        if self.accesses.is_empty() || stopped == Stopped::Interrupted {
            return Ok(stopped);
        }
        let floor = self.place.moment;
        Ok(self.last_access(floor, from, interrupted)?.unwrap_or(stopped))
    }

    fn backward_to_change(&mut self, interrupted: &mut dyn FnMut() -> bool) -> Result<Stopped, Error> {
        let at_once = std::thread::available_parallelism().map_or(1, usize::from);
        let mut end = self.place.moment;
        if !self.checkpoints.survey(end.tick, interrupted)? {
            return Ok(Stopped::Interrupted);
        }
        let mut running = VecDeque::new();
        loop {
            while running.len() < at_once && end > self.checkpoints.start() {
                let stretch = self.run_over(end)?;
                end = stretch.from;
                running.push_back(stretch);
            }
            let Some(Stretch { from, live }) = running.pop_front() else { break };
            let (why, _, collected) = end_run(&live, interrupted)?;
            if why == Why::Interrupted {
                return Ok(Stopped::Interrupted);
            }
            if let Some(found) = self.last_of(from, &collected, interrupted)? {
                return Ok(found);
            }
            // What lies at the checkpoint itself is found from the one before, except a breakpoint exactly there.
            if self.breakpoints.contains(&from.pc) && from < self.place.moment {
                self.seek(from, interrupted)?;
                return Ok(Stopped::Breakpoint);
            }
        }
        self.seek_start()?;
        Ok(Stopped::Start)
    }

    /// A stretch from the last checkpoint before a moment to that moment.
    fn run_over(&self, end: Moment) -> Result<Stretch, Error> {
        let (from, live) = self.checkpoints.copy_before(end)?;
        equip(&live, &self.breakpoints, &self.watches)?;
        begin_run(&live, Until { moment: Some(end), collect: true, ..Until::default() })?;
        Ok(Stretch { from, live })
    }

    /// Goes to the last thing that was met in a stretch.
    fn last_of(
        &mut self,
        from: Moment,
        collected: &Collected,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Stopped>, Error> {
        let breakpoint = collected.last_breakpoint.as_ref().map(|p| p.moment);
        if let Some((since, at)) = collected.last_change
            && breakpoint.is_none_or(|b| b < at)
            && let Some((moment, index)) = self.last_change(since.max(from), at, interrupted)?
            && breakpoint.is_none_or(|b| b < moment)
        {
            self.seek(moment, interrupted)?;
            return Ok(Some(Stopped::Changed(index)));
        }
        match breakpoint {
            Some(moment) => {
                self.seek(moment, interrupted)?;
                Ok(Some(Stopped::Breakpoint))
            }
            None => Ok(None),
        }
    }

    /// The last moment in `since..at` whose instruction changes watched bytes, and which.
    fn last_change(
        &mut self,
        since: Moment,
        at: Moment,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Option<(Moment, usize)>, Error> {
        let live = self.copy_standing_at(since, interrupted)?;
        let scout = live.fork()?;
        equip(&scout, &[], &self.watches)?;
        let until = Until { moment: Some(at), collect: true, single: true, ..Until::default() };
        let (_, _, collected) = run(&scout, until, interrupted)?;
        let Some((moment, _)) = collected.last_change else { return Ok(None) };
        if moment != since {
            run(&live, Until { moment: Some(moment), blind: true, ..Until::default() }, interrupted)?;
        }
        let before = watched(&live, &self.watches)?;
        step(&live)?;
        let after = watched(&live, &self.watches)?;
        Ok((0..after.len()).find(|n| before[*n] != after[*n]).map(|index| (moment, index)))
    }
}
