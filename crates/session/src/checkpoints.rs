//! Checkpoints of a session: copies of the engine that stand still, each at its moment.
//!
//! Some are spread evenly over the run, some lie close behind where somebody steps back, some are kept by the user. Their
//! number is bounded but for the user's. A copy shares all memory that neither side has written since.

use crate::error::Error;
use crate::live::Live;
use crate::timeline::run;
use model::serve::{Moment, Until, Why};
use std::collections::BTreeMap;

/// Checkpoints spread over the whole run, and those close to where one is.
const SPREAD: u64 = 48;
const CLOSE: usize = 12;
/// Spread ones are at least so many ticks apart.
const APART: u64 = 50_000;

pub(crate) struct Checkpoints {
    start: (Moment, Live),
    spread: BTreeMap<Moment, Live>,
    close: Vec<(Moment, Live)>,
    kept: BTreeMap<Moment, (u32, Live)>,
    last_tick: Option<u64>,
    /// Spread ones are set up to here.
    surveyed: Moment,
}

impl Checkpoints {
    pub fn new(at: Moment, start: Live, last_tick: Option<u64>) -> Checkpoints {
        Checkpoints {
            start: (at, start),
            spread: BTreeMap::new(),
            close: Vec::new(),
            kept: BTreeMap::new(),
            last_tick,
            surveyed: at,
        }
    }

    pub fn start(&self) -> Moment {
        self.start.0
    }

    /// A copy of the engine at its beginning.
    pub fn beginning(&self) -> Result<Live, Error> {
        self.start.1.fork()
    }

    pub fn processes(&self) -> impl Iterator<Item = u32> {
        let close = self.close.iter().map(|(_, l)| l);
        let kept = self.kept.values().map(|(_, l)| l);
        self.spread.values().chain(close).chain(kept).chain([&self.start.1]).map(Live::pid)
    }

    /// Where an engine that runs on from `at` is to pause for a checkpoint: only where nobody has been yet.
    pub fn pause_after(&self, at: Moment) -> Option<Moment> {
        let last = self.last_tick?;
        let tick = self.surveyed.tick + (last / SPREAD).max(APART);
        (at >= self.surveyed && tick < last).then_some(Moment { tick: tick.max(at.tick + 1), pc: 0 })
    }

    /// A pause was made here.
    pub fn add(&mut self, at: Moment, live: Live) {
        self.surveyed = self.surveyed.max(at);
        self.spread.insert(at, live);
    }

    /// Runs over what nobody has been to yet, up to this tick, leaving checkpoints behind.
    pub fn survey(&mut self, tick: u64, interrupted: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        if self.pause_after(self.surveyed).is_none_or(|p| p.tick > tick) {
            return Ok(());
        }
        let live = self.nearest(self.surveyed).1.fork()?;
        while let Some(pause) = self.pause_after(self.surveyed).filter(|p| p.tick <= tick) {
            let (why, place, _) =
                run(&live, Until { moment: Some(pause), blind: true, ..Until::default() }, interrupted)?;
            if why != Why::Reached && why != Why::Passed {
                break;
            }
            let copy = live.fork()?;
            self.add(place.moment, copy);
        }
        Ok(())
    }

    /// A checkpoint near where somebody steps back; old ones go.
    pub fn add_close(&mut self, at: Moment, live: Live) {
        if self.close.len() >= CLOSE {
            self.close.remove(0);
        }
        self.close.push((at, live));
    }

    /// A checkpoint of the user's.
    pub fn keep(&mut self, at: Moment, live: Live) {
        self.kept.entry(at).or_insert((0, live)).0 += 1;
    }

    pub fn forget(&mut self, at: Moment) {
        if let Some((users, _)) = self.kept.get_mut(&at) {
            *users -= 1;
            if *users == 0 {
                self.kept.remove(&at);
            }
        }
    }

    /// The last checkpoint at or before a moment.
    pub fn nearest(&self, at: Moment) -> (Moment, &Live) {
        let spread = self.spread.range(..=at).next_back().map(|(m, l)| (*m, l));
        let kept = self.kept.range(..=at).next_back().map(|(m, (_, l))| (*m, l));
        let close = self.close.iter().filter(|(m, _)| *m <= at).max_by_key(|(m, _)| *m).map(|(m, l)| (*m, l));
        let first = (self.start.0, &self.start.1);
        [spread, kept, close].into_iter().flatten().fold(first, |a, b| if b.0 > a.0 { b } else { a })
    }

    /// A copy of the last checkpoint before a moment.
    pub fn copy_before(&self, at: Moment) -> Result<(Moment, Live), Error> {
        let before = match at {
            Moment { tick, pc: 0 } => Moment { tick: tick.saturating_sub(1), pc: u64::MAX },
            Moment { tick, pc } => Moment { tick, pc: pc - 1 },
        };
        let (moment, live) = self.nearest(before);
        Ok((moment, live.fork()?))
    }
}
