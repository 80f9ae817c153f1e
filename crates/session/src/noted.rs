//! Executions of branches and of other instructions: the last ones of a stretch, in order, each with its number.
//!
//! Noting an execution takes a way out of the code cache, counting it a few instructions. So a first replay only counts, and
//! leaves copies of itself behind; from the last of them that is early enough the executions are noted.

use crate::error::Error;
use crate::live::{Live, unexpected};
use crate::timeline::{Session, done, run, where_is};
use crate::trial::Candidate;
use model::serve::{Answer, Moment, Predicate, Request, Until, Why};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Ticks from one copy to the next, at first.
const STEP: u64 = 1 << 18;
/// Copies at the same time.
const MOST_COPIES: usize = 64;
/// How much longer somebody who is interrupted while executions are counted waits for those that came last.
const PATIENCE: Duration = Duration::from_secs(1);

/// Which executions are looked for.
struct Wanted<'a> {
    /// Conditional branches in these ranges, with `jumps` also indirect jumps.
    ranges: &'a [(u64, u64)],
    jumps: bool,
    /// Instructions at these addresses.
    places: &'a [u64],
    /// Only the last so many.
    keep: u32,
}

impl Wanted<'_> {
    fn request(&self, keep: u32) -> Request {
        Request::Predicates { ranges: self.ranges.to_vec(), places: self.places.to_vec(), jumps: self.jumps, keep }
    }
}

impl Session {
    /// Executions of conditional branches in these ranges from the beginning on: the last `keep` of them in order, and how
    /// many there were.
    pub fn predicates(
        &mut self,
        ranges: &[(u64, u64)],
        keep: u32,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<(Vec<Predicate>, u64), Error> {
        self.predicates_between(ranges, keep, false, (None, None), interrupted)
    }

    /// The same, from a moment on, or up to one; with `jumps`, indirect jumps count too.
    pub fn predicates_between(
        &mut self,
        ranges: &[(u64, u64)],
        keep: u32,
        jumps: bool,
        (from, until): (Option<Moment>, Option<Moment>),
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<(Vec<Predicate>, u64), Error> {
        self.noted(&Wanted { ranges, places: &[], jumps, keep }, from, until, interrupted)
    }

    /// Executions of the instructions at these addresses, up to a moment or the end: the last `keep` of them in order, and
    /// how many there were.
    pub fn executions(
        &mut self,
        places: &[u64],
        keep: u32,
        until: impl Into<Option<Moment>>,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<(Vec<Predicate>, u64), Error> {
        self.noted(&Wanted { ranges: &[], places, jumps: false, keep }, None, until.into(), interrupted)
    }

    fn noted(
        &mut self,
        wanted: &Wanted<'_>,
        from: Option<Moment>,
        until: Option<Moment>,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<(Vec<Predicate>, u64), Error> {
        let live = self.copy_at(from.unwrap_or_else(|| self.start_moment()), interrupted)?;
        let (live, stopped) = count(live, wanted, until, interrupted)?;
        done(live.ask(&Request::KeepPredicates { keep: wanted.keep })?)?;
        let patience = Instant::now() + PATIENCE;
        let mut impatient = || match stopped {
            Some(_) => Instant::now() > patience,
            None => interrupted(),
        };
        run(&live, Until { moment: stopped.or(until), ..Until::default() }, &mut impatient)?;
        noted_by(&live)
    }

    /// Executions of conditional branches in these ranges behind a change, in order, until the program wants something from
    /// outside: the last `keep` of them. They are counted from the change on.
    pub fn predicates_behind(
        &mut self,
        candidate: &Candidate,
        ranges: &[(u64, u64)],
        keep: u32,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Predicate>, Error> {
        let live = self.copy_at(candidate.moment, interrupted)?;
        let thread = where_is(&live)?.thread;
        done(live.ask(&Request::Alter(candidate.alteration.clone()))?)?;
        done(live.ask(&Request::Leave { thread })?)?;
        done(live.ask(&Wanted { ranges, places: &[], jumps: false, keep }.request(keep))?)?;
        run(&live, Until::default(), interrupted)?;
        Ok(noted_by(&live)?.0)
    }
}

/// Counts executions; answers a copy behind which at least those come that are to be kept, and where it was stopped if it
/// was.
fn count(
    live: Live,
    wanted: &Wanted<'_>,
    until: Option<Moment>,
    interrupted: &mut dyn FnMut() -> bool,
) -> Result<(Live, Option<Moment>), Error> {
    done(live.ask(&wanted.request(0))?)?;
    let mut copies: VecDeque<(Live, u64)> = VecDeque::from([(live.fork()?, 0)]);
    let mut at = where_is(&live)?.moment;
    let mut step = STEP;
    loop {
        let next = Moment { tick: at.tick + step, pc: 0 };
        let is_last = until.is_some_and(|until| until <= next);
        let goal = if is_last { until } else { Some(next) };
        let (why, place, _) = run(&live, Until { moment: goal, ..Until::default() }, interrupted)?;
        at = place.moment;
        let total = total_of(&live)?;
        while copies.get(1).is_some_and(|(_, before)| total - before >= u64::from(wanted.keep)) {
            copies.pop_front();
        }
        // A short stretch is over before anybody is asked.
        let stopped = (why == Why::Interrupted || interrupted()).then_some(at);
        if is_last || stopped.is_some() || matches!(why, Why::End(_)) {
            let first = copies.pop_front().map_or(live, |(live, _)| live);
            return Ok((first, stopped));
        }
        if copies.len() >= MOST_COPIES {
            // Every other one will do, but the first is the one that is needed; from now on there are fewer.
            step *= 2;
            let mut index = 0;
            copies.retain(|_| {
                index += 1;
                index % 2 == 1
            });
        }
        copies.push_back((live.fork()?, total));
    }
}

/// How many executions an engine has counted.
fn total_of(live: &Live) -> Result<u64, Error> {
    match live.ask(&Request::PredicateList { from: 0 })? {
        Answer::Predicates { total, .. } => Ok(total),
        other => Err(unexpected(&other)),
    }
}

/// What an engine has noted, and how much there was.
fn noted_by(live: &Live) -> Result<(Vec<Predicate>, u64), Error> {
    let mut all = Vec::new();
    loop {
        match live.ask(&Request::PredicateList { from: all.len() as u32 })? {
            Answer::Predicates { list, total } if list.is_empty() => return Ok((all, total)),
            Answer::Predicates { list, .. } => all.extend(list),
            other => return Err(unexpected(&other)),
        }
    }
}
