//! Checkpoints of a session: copies of the engine that stand still, each at its moment.
//!
//! Some are spread evenly over the run, some lie close behind where somebody steps back; their number is bounded. A copy
//! shares all memory that neither side has written since; when what they do not share grows too large, every other one of
//! the spread ones goes, and from then on they are made half as often.

use crate::error::Error;
use crate::live::Live;
use crate::timeline::run;
use model::serve::{Moment, Until, Why};
use std::collections::BTreeMap;

/// Checkpoints spread over the whole run, and those close to where one is.
const SPREAD: u64 = 48;
const CLOSE: usize = 4;
/// Spread ones are at least so many ticks apart.
const APART: u64 = 50_000;
/// Kilobytes that they may take for themselves, where the machine has plenty.
const MOST_MEMORY: u64 = 4 << 20;

pub(crate) struct Checkpoints {
    start: (Moment, Live),
    spread: BTreeMap<Moment, Live>,
    close: Vec<(Moment, Live)>,
    last_tick: Option<u64>,
    /// Spread ones are set up to here.
    surveyed: Moment,
    /// Ticks between two.
    distance: u64,
    /// Kilobytes that spread ones may take, and that they have taken.
    budget: u64,
    held: u64,
}

impl Checkpoints {
    pub fn new(at: Moment, start: Live, last_tick: Option<u64>) -> Checkpoints {
        Checkpoints {
            start: (at, start),
            spread: BTreeMap::new(),
            close: Vec::new(),
            last_tick,
            surveyed: at,
            distance: (last_tick.unwrap_or(0) / SPREAD).max(APART),
            budget: kilobytes("/proc/meminfo", "MemAvailable:").map_or(MOST_MEMORY, |all| (all / 4).min(MOST_MEMORY)),
            held: 0,
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
        self.spread.values().chain(close).chain([&self.start.1]).map(Live::pid)
    }

    /// Where an engine that runs on from `at` is to pause for a checkpoint: only where nobody has been yet.
    pub fn pause_after(&self, at: Moment) -> Option<Moment> {
        let last = self.last_tick?;
        let tick = self.surveyed.tick + self.distance;
        (at >= self.surveyed && tick < last).then_some(Moment { tick: tick.max(at.tick + 1), pc: 0 })
    }

    /// An engine has paused here: a copy of it becomes a checkpoint.
    pub fn add(&mut self, at: Moment, live: &Live) -> Result<(), Error> {
        // What it has written since the last one is no longer shared.
        self.held += memory(live, "Private_Dirty:");
        self.surveyed = self.surveyed.max(at);
        self.spread.insert(at, live.fork()?);
        while self.held > self.budget && self.spread.len() > 2 {
            self.thin_out();
        }
        Ok(())
    }

    /// Every other one goes; the last stays.
    fn thin_out(&mut self) {
        let mut keep = self.spread.len().is_multiple_of(2);
        self.spread.retain(|_, _| {
            keep = !keep;
            keep
        });
        self.distance *= 2;
        self.held = self.spread.values().map(|live| memory(live, "Pss:")).sum();
    }

    /// Runs over what nobody has been to yet, up to this tick, leaving checkpoints behind; `false` if interrupted.
    pub fn survey(&mut self, tick: u64, interrupted: &mut dyn FnMut() -> bool) -> Result<bool, Error> {
        if self.pause_after(self.surveyed).is_none_or(|p| p.tick > tick) {
            return Ok(true);
        }
        let live = self.nearest(self.surveyed).1.fork()?;
        while let Some(pause) = self.pause_after(self.surveyed).filter(|p| p.tick <= tick) {
            let (why, place, _) =
                run(&live, Until { moment: Some(pause), blind: true, ..Until::default() }, interrupted)?;
            match why {
                Why::Reached | Why::Passed => {}
                Why::Interrupted => return Ok(false),
                _ => break,
            }
            self.add(place.moment, &live)?;
        }
        Ok(true)
    }

    /// A checkpoint near where somebody steps back; old ones go.
    pub fn add_close(&mut self, at: Moment, live: Live) {
        if self.close.len() >= CLOSE {
            self.close.remove(0);
        }
        self.close.push((at, live));
    }

    /// The last checkpoint at or before a moment.
    pub fn nearest(&self, at: Moment) -> (Moment, &Live) {
        let spread = self.spread.range(..=at).next_back().map(|(m, l)| (*m, l));
        let close = self.close.iter().filter(|(m, _)| *m <= at).max_by_key(|(m, _)| *m).map(|(m, l)| (*m, l));
        let first = (self.start.0, &self.start.1);
        [spread, close].into_iter().flatten().fold(first, |a, b| if b.0 > a.0 { b } else { a })
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

/// Kilobytes of a process's memory, counted in one of the ways that the kernel offers.
fn memory(live: &Live, count: &str) -> u64 {
    kilobytes(&format!("/proc/{}/smaps_rollup", live.pid()), count).unwrap_or(0)
}

/// The number behind a name in a list of the kernel's.
fn kilobytes(file: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}
