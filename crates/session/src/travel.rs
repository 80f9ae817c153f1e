//! Stepping back, and going to named moments. Going back to a change or a breakpoint: [`crate::backward`].
//!
//! Steps back are remembered: single instructions before a moment are found many at a time.

use crate::error::{Error, ErrorKind};
use crate::live::Live;
use crate::timeline::{Session, Stopped, equip, maps_of, run, stopped, threads_of, where_is};
use model::serve::{MapInfo, Moment, Place, Until, Why};
use std::io;

/// Distance in ticks of a close checkpoint before the moment gone back to.
const NEAR: u64 = 20_000;
/// Ticks whose instructions are found at once when somebody steps back.
const WINDOW: u64 = 8;

/// Instructions before a moment, and an engine that stands before the first of them.
pub(crate) struct Behind {
    base: Live,
    steps: Vec<Place>,
    end: Moment,
}

/// How often instructions were executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counted {
    /// Before the present moment, and in all.
    pub before: u64,
    pub all: u64,
    /// Was each of the two counted to its end? Else there are at least so many.
    pub whole: [bool; 2],
}

impl Counted {
    /// Both numbers; an error if somebody did not want to wait for them.
    pub fn complete(self) -> Result<(u64, u64), Error> {
        match self.whole {
            [true, true] => Ok((self.before, self.all)),
            _ => Err(refused("interrupted".into())),
        }
    }
}

impl Behind {
    pub fn pid(&self) -> u32 {
        self.base.pid()
    }

    /// The instructions before `at`, if they are known: not none.
    fn before(&self, at: Moment) -> Option<&[Place]> {
        let index = match at == self.end {
            true => self.steps.len(),
            false => self.steps.iter().position(|p| p.moment == at)?,
        };
        (index > 0).then(|| &self.steps[..index])
    }
}

fn refused(text: String) -> Error {
    Error::new(ErrorKind::Refused, io::Error::other(text))
}

impl Session {
    /// To a moment. One that does not exist is refused, and the session stays where it is.
    pub fn seek(&mut self, to: Moment, interrupted: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        if to == self.place.moment {
            return Ok(());
        }
        let live = self.copy_at_or_before(to, interrupted)?;
        let at = where_is(&live)?;
        let (why, place) = if at.moment == to {
            (Why::Reached, at)
        } else {
            let (why, place, _) = run(&live, Until { moment: Some(to), blind: true, ..Until::default() }, interrupted)?;
            (why, place)
        };
        match why {
            Why::Reached => {
                self.settle(live, place, &Why::Reached);
                Ok(())
            }
            // The end is no moment of its own where the guest dies, but it is elsewhere.
            Why::End(_) if place.moment == to => {
                self.settle(live, place, &why);
                Ok(())
            }
            Why::Interrupted => Err(refused("interrupted".into())),
            _ => Err(refused(format!("there is no moment {to}: the guest never was there"))),
        }
    }

    /// To the first moment of a tick or, if the recording ends before, to its end.
    pub fn seek_tick(&mut self, tick: u64, interrupted: &mut dyn FnMut() -> bool) -> Result<Stopped, Error> {
        let to = Moment { tick, pc: 0 };
        let live = self.copy_at_or_before(to, interrupted)?;
        let at = where_is(&live)?;
        let (why, place) = if at.moment.tick >= tick {
            (Why::Reached, at)
        } else {
            let (why, place, _) = run(&live, Until { moment: Some(to), blind: true, ..Until::default() }, interrupted)?;
            (why, place)
        };
        self.settle(live, place, &why);
        Ok(stopped(why))
    }

    /// To the beginning of the recording.
    pub fn seek_start(&mut self) -> Result<(), Error> {
        let live = self.checkpoints.beginning()?;
        let place = where_is(&live)?;
        self.settle(live, place, &Why::Reached);
        Ok(())
    }

    /// To the end of the recording.
    pub fn seek_end(&mut self, interrupted: &mut dyn FnMut() -> bool) -> Result<Stopped, Error> {
        let live = self.copy_at_or_before(Moment { tick: u64::MAX, pc: u64::MAX }, interrupted)?;
        let (why, place, _) = run(&live, Until { blind: true, ..Until::default() }, interrupted)?;
        self.settle(live, place, &why);
        Ok(stopped(why))
    }

    /// To the n-th execution (from 1) of any of the instructions at these addresses, counted from the beginning. If
    /// there are fewer it is refused, and the session stays where it is.
    pub fn seek_instance(
        &mut self,
        pcs: &[u64],
        n: u64,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Stopped, Error> {
        let live = self.checkpoints.beginning()?;
        equip(&live, pcs, &[])?;
        let skip = n.saturating_sub(1);
        let (why, place, collected) = run(&live, Until { skip, ..Until::default() }, interrupted)?;
        if let Why::End(_) = why {
            return Err(refused(format!("it was executed {} times only", collected.breakpoints)));
        }
        self.settle(live, place, &why);
        Ok(stopped(why))
    }

    /// How often the instructions at these addresses were executed before this moment.
    pub fn count_before(&mut self, pcs: &[u64], interrupted: &mut dyn FnMut() -> bool) -> Result<u64, Error> {
        let live = self.checkpoints.beginning()?;
        equip(&live, pcs, &[])?;
        // The instruction at which a run begins does not count.
        let first = u64::from(self.place.moment > self.start_moment() && pcs.contains(&self.start_moment().pc));
        let until = Until { moment: Some(self.place.moment), collect: true, ..Until::default() };
        match run(&live, until, interrupted)? {
            (Why::Interrupted, ..) => Err(refused("interrupted".into())),
            (_, _, collected) => Ok(first + collected.breakpoints),
        }
    }

    /// How often the instructions at these addresses were executed before this moment, and how often in all, as far as
    /// it was counted.
    pub fn count(&mut self, pcs: &[u64], interrupted: &mut dyn FnMut() -> bool) -> Result<Counted, Error> {
        let live = self.checkpoints.beginning()?;
        equip(&live, pcs, &[])?;
        let until = Until { moment: Some(self.place.moment), collect: true, ..Until::default() };
        let (why, place, first) = run(&live, until, interrupted)?;
        let before = first.breakpoints;
        match why {
            Why::End(_) => return Ok(Counted { before, all: before, whole: [true; 2] }),
            Why::Interrupted => return Ok(Counted { before, all: before, whole: [false; 2] }),
            _ => {}
        }
        // The instruction at which a run begins does not count.
        let here = u64::from(pcs.contains(&place.moment.pc));
        let (why, _, rest) = run(&live, Until { collect: true, ..Until::default() }, interrupted)?;
        Ok(Counted { before, all: before + here + rest.breakpoints, whole: [true, why != Why::Interrupted] })
    }

    /// One instruction of this thread back.
    pub fn step_back(&mut self, thread: u32, interrupted: &mut dyn FnMut() -> bool) -> Result<Stopped, Error> {
        let from = self.place.moment;
        let stopped = self.step_back_over(thread, interrupted)?;
        match self.accesses.is_empty() || stopped != Stopped::Here {
            true => Ok(stopped),
            false => Ok(self.accessed_before(from, interrupted)?.unwrap_or(stopped)),
        }
    }

    fn step_back_over(&mut self, thread: u32, interrupted: &mut dyn FnMut() -> bool) -> Result<Stopped, Error> {
        // Each round goes back behind one turn of the thread in which it did nothing.
        loop {
            let here = self.place.clone();
            if here.moment <= self.checkpoints.start() {
                return Ok(Stopped::Start);
            }
            self.look_behind(here.moment, interrupted)?;
            let Some(behind) = &self.behind else { return Ok(Stopped::Start) };
            let steps = behind.before(here.moment).unwrap_or_default();
            let did_something =
                |p: &&Place| (p.thread, p.moment.pc) != (here.thread, here.moment.pc) || p.record >= here.record;
            if let Some(step) = steps.iter().rev().filter(did_something).find(|p| p.thread == thread) {
                let step = step.clone();
                self.stand_at_step(&step, interrupted)?;
                return Ok(Stopped::Here);
            }
            let known = threads_of(&behind.base)?;
            let info = known.iter().find(|t| t.number == thread);
            match info.and_then(|t| t.left.map(|left| (left, t.in_call.is_some()))) {
                Some((left, in_call)) => {
                    self.seek(left, interrupted)?;
                    if in_call {
                        return Ok(Stopped::Here);
                    }
                }
                // It has not run before: what happened before it was done by others.
                None => match steps.last().cloned() {
                    Some(step) => {
                        self.stand_at_step(&step, interrupted)?;
                        return Ok(Stopped::Here);
                    }
                    None => return Ok(Stopped::Start),
                },
            }
        }
    }

    /// Goes to one of the instructions behind.
    fn stand_at_step(&mut self, step: &Place, interrupted: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        let Some(behind) = &self.behind else { return self.seek(step.moment, interrupted) };
        let live = behind.base.fork()?;
        let place = where_is(&live)?;
        if place.moment == step.moment {
            self.settle(live, place, &Why::Reached);
            return Ok(());
        }
        let until = Until { moment: Some(step.moment), blind: true, ..Until::default() };
        match run(&live, until, interrupted)? {
            (Why::Reached, place, _) => {
                self.settle(live, place, &Why::Reached);
                Ok(())
            }
            (why, ..) => Err(refused(format!("the moment {} is not found again ({why:?})", step.moment))),
        }
    }

    /// The last instruction that was executed before this moment, whichever thread did it; the session does not move.
    pub fn previous(&mut self, interrupted: &mut dyn FnMut() -> bool) -> Result<Option<Place>, Error> {
        let here = self.place.moment;
        if here <= self.checkpoints.start() {
            return Ok(None);
        }
        self.look_behind(here, interrupted)?;
        Ok(self.behind.as_ref().and_then(|b| b.before(here)).and_then(|steps| steps.last().cloned()))
    }

    /// Finds the instructions before `end`, unless they are known.
    fn look_behind(&mut self, end: Moment, interrupted: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        if self.behind.as_ref().is_some_and(|b| b.before(end).is_some()) {
            return Ok(());
        }
        self.keep_close(end, interrupted)?;
        let mut window = WINDOW;
        loop {
            let to = Moment { tick: end.tick.saturating_sub(window), pc: 0 };
            let (mut from, base) = match to <= self.checkpoints.start() {
                true => (self.checkpoints.start(), self.checkpoints.beginning()?),
                false => self.checkpoints.copy_before(to)?,
            };
            if from.tick < to.tick {
                from = run(&base, Until { moment: Some(to), blind: true, ..Until::default() }, interrupted)?.1.moment;
            }
            if from < end {
                let scout = base.fork()?;
                let until = Until { moment: Some(end), blind: true, single: true, ..Until::default() };
                let (_, _, collected) = run(&scout, until, interrupted)?;
                let steps = collected.steps.into_iter().filter(|p| p.moment < end).collect();
                self.behind = Some(Behind { base, steps, end });
                return Ok(());
            }
            if to <= self.checkpoints.start() {
                return Err(refused(format!("nothing is known to have happened before {end}")));
            }
            window *= 8;
        }
    }

    /// Makes sure that there is a checkpoint not long before `end`.
    fn keep_close(&mut self, end: Moment, interrupted: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        self.survey(end.tick, interrupted)?;
        let known = self.checkpoints.nearest(Moment { tick: end.tick.saturating_sub(WINDOW), pc: 0 }).0;
        if end.tick.saturating_sub(known.tick) <= 2 * NEAR {
            return Ok(());
        }
        let to = Moment { tick: end.tick - NEAR, pc: 0 };
        let (_, live) = self.checkpoints.copy_before(to)?;
        let (why, place, _) = run(&live, Until { moment: Some(to), blind: true, ..Until::default() }, interrupted)?;
        if why == Why::Reached {
            self.checkpoints.add_close(place.moment, live);
        }
        Ok(())
    }

    /// Makes checkpoints up to a tick; what was asked for is not done if that is interrupted.
    fn survey(&mut self, tick: u64, interrupted: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        match self.checkpoints.survey(tick, interrupted)? {
            true => Ok(()),
            false => Err(refused("interrupted".into())),
        }
    }

    /// A copy of the last checkpoint at or before a moment; of the present engine, if that is nearer.
    pub(crate) fn copy_at_or_before(
        &mut self,
        at: Moment,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Live, Error> {
        self.survey(at.tick, interrupted)?;
        let (moment, live) = self.checkpoints.nearest(at);
        if self.place.moment <= at && self.place.moment > moment && self.ended().is_none() {
            return self.now.fork();
        }
        live.fork()
    }

    /// The mappings at the end of the recording.
    pub(crate) fn maps_at_end(&mut self) -> Result<Vec<MapInfo>, Error> {
        let live = self.copy_near(Moment { tick: u64::MAX, pc: u64::MAX })?;
        run(&live, Until { blind: true, ..Until::default() }, &mut || false)?;
        maps_of(&live)
    }

    /// A copy of an engine that stands at or before a moment, without moving this session.
    pub(crate) fn copy_near(&mut self, at: Moment) -> Result<Live, Error> {
        self.copy_at_or_before(at, &mut || false)
    }

    /// A copy of the engine at a moment that exists.
    pub(crate) fn copy_standing_at(
        &mut self,
        at: Moment,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Live, Error> {
        let live = self.copy_at_or_before(at, interrupted)?;
        if where_is(&live)?.moment != at {
            run(&live, Until { moment: Some(at), blind: true, ..Until::default() }, interrupted)?;
        }
        Ok(live)
    }
}
