//! Relevant slices: what they leave out does not matter even if the program goes another way because of it.
//!
//! Values that the slice leaves out are changed and branches that it leaves out are turned. The changed run is laid beside
//! the recorded one; it counts if it reaches the criterion, and stores where the recorded one did or where the model of
//! code that did not run expects it.

use super::align::{Model, Off, align};
use super::course::Course;
use super::subject::Subject;
use super::{PATIENCE, Sliced, Stage, value_in, with_stage};
use crate::perturbation::course::Step;
use model::serve::{Alteration, Answer, Moment, Request, Until, Why};
use slice::Options;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::time::Instant;
use testkit::random::Random;

/// Changes that are tried for one value at most, and how many must count to stop earlier.
const TRIES: usize = 16;
const ENOUGH: usize = 6;
/// A changed run may take so many more ticks.
const MORE_TICKS: u64 = 20_000;
/// Half of the changes are made so close before the value.
const NEAR: u64 = 2_000;

/// What came out.
#[derive(Default)]
pub struct Tally {
    pub pairs: usize,
    /// Pairs with at least one change that counted.
    pub compared: usize,
    pub changes: usize,
    pub counted: usize,
    /// Of these, changes after which the program went another way.
    pub parted: usize,
    /// Why others did not count.
    pub off: BTreeMap<Off, usize>,
    /// Cause, and what happened.
    pub violations: Vec<(&'static str, String)>,
}

impl Tally {
    pub fn add(&mut self, other: Tally) {
        self.pairs += other.pairs;
        self.compared += other.compared;
        self.changes += other.changes;
        self.counted += other.counted;
        self.parted += other.parted;
        for (why, n) in other.off {
            *self.off.entry(why).or_default() += n;
        }
        self.violations.extend(other.violations);
    }

    /// Violations by their cause.
    pub fn causes(&self) -> BTreeMap<&'static str, usize> {
        let mut causes = BTreeMap::new();
        self.violations.iter().for_each(|(cause, _)| *causes.entry(*cause).or_default() += 1);
        causes
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { pairs, compared, changes, counted, parted, off, violations } = self;
        let n = violations.len();
        write!(
            f,
            "{compared} of {pairs} compared: {counted} of {changes} changes counted ({parted} on another path), "
        )?;
        write!(f, "{n} violations {:?}; not counted: {off:?}", self.causes())
    }
}

/// A change of something that a slice leaves out.
struct Change {
    /// What runs behind this step is concerned.
    step: usize,
    alteration: Request,
    what: String,
}

/// Slices `pairs` random values of a subject and changes what is left out.
pub fn check_pairs(subject: &Subject, pairs: usize, seed: u64, how: &Options) -> Tally {
    with_stage(subject, |stage| {
        let mut random = Random::new(seed);
        let mut tally = Tally::default();
        let whole = stage.whole();
        let how = Options { stacks: stage.stacks.clone(), ..how.clone() };
        for _ in 0..pairs {
            let mut sliced = stage.slice(&whole, &mut random, &how);
            // Where nothing is lost, nothing can be noticed.
            if how.omit.is_some() && sliced.lost.is_empty() {
                continue;
            }
            sliced.course.end_at(sliced.moment.pc);
            tally.add(stage.change_anything(&sliced, &how, &mut random));
            if how.omit.is_some() && !tally.violations.is_empty() {
                break;
            }
        }
        tally
    })
}

impl Stage<'_> {
    /// Changes what the slice leaves out, and turns branches.
    fn change_anything(&mut self, sliced: &Sliced, how: &Options, random: &mut Random) -> Tally {
        let mut tally = Tally { pairs: 1, ..Tally::default() };
        let before = value_in(&self.session.copy().expect("a copy can be made"), sliced);
        let mut tried = HashSet::new();
        for _ in 0..TRIES {
            let Some(change) = self.pick_change(sliced, &mut tried, random) else { continue };
            tally.changes += 1;
            match self.altered(sliced, &change, how) {
                Err(off) => *tally.off.entry(off).or_default() += 1,
                Ok((parted, after)) => {
                    tally.counted += 1;
                    tally.parted += usize::from(!parted.is_empty());
                    if after != before {
                        let Step { pc, instance, .. } = sliced.course.steps[change.step];
                        let what = change.what;
                        let text = format!(
                            "{}: {before:x?} became {after:x?} when {what} at execution {instance} of {pc:#x}; parted at {parted:x?}",
                            sliced.text
                        );
                        let cause = if parted.is_empty() { "on the recorded path" } else { "on another path" };
                        tally.violations.push((cause, text));
                    }
                }
            }
            if tally.counted >= ENOUGH {
                break;
            }
        }
        tally.compared = usize::from(tally.counted > 0);
        tally
    }

    /// Something that the slice leaves out: a branch to turn or a value to change. The session stands where it is to be done.
    fn pick_change(&mut self, sliced: &Sliced, tried: &mut HashSet<usize>, random: &mut Random) -> Option<Change> {
        let all = sliced.course.steps.len() as u64 - 1;
        let from = match random.below(2) {
            0 => all.saturating_sub(1 + random.below(NEAR.min(all).max(1))),
            _ => random.below(all.max(1)),
        } as usize;
        if random.below(4) > 0 {
            let step = match sliced.lost.is_empty() {
                true => sliced.course.branch_left_out(from)?,
                false => *random.pick(&sliced.lost),
            };
            if !tried.insert(step) {
                return None;
            }
            let Step { pc, instance, .. } = sliced.course.steps[step];
            self.session.seek_instance(&[pc], u64::from(instance), &mut || false).ok()?;
            let alteration = Request::Alter(Alteration::Flip);
            return Some(Change { step, alteration, what: "the branch was turned".into() });
        }
        let (step, changed) = sliced.course.left_out(from)?;
        let thread = self.stand_behind(sliced, step)?;
        let (alteration, what) = self.alteration(thread, changed, random)?;
        Some(Change { step, alteration, what: format!("{what} was changed") })
    }

    /// Makes a change where the session stands. If it counts: branches that went another way, and the value.
    fn altered(&mut self, sliced: &Sliced, change: &Change, how: &Options) -> Result<(Vec<u64>, Vec<u8>), Off> {
        let Change { step, alteration, .. } = change;
        let first = step + 1;
        let to = Moment { tick: sliced.moment.tick + MORE_TICKS, pc: 0 };
        let (window, _, _) = self.traced(alteration, to).ok_or(Off::NotReached)?;
        let altered = Course::altered(&window, sliced.course.frames_before(first));
        let mut model = Model { facts: &mut self.facts, pointers: how.pointers, stacks: self.stacks.clone() };
        let reached = align(&sliced.course, first, &altered, &mut model)?;
        // The instruction at which a run begins is no stop.
        let pc = sliced.moment.pc;
        let stops = altered.steps[..=reached.step].iter().skip(1).filter(|s| s.pc == pc).count() as u64;
        let value = self.value_after(alteration, sliced, stops).ok_or(Off::NotReached)?;
        Ok((reached.parted, value))
    }

    /// The value when the criterion's instruction is come to for the n-th time after a change.
    fn value_after(&self, alteration: &Request, sliced: &Sliced, n: u64) -> Option<Vec<u8>> {
        let live = self.session.copy().ok()?;
        live.ask(alteration).ok()?;
        live.ask(&Request::Breakpoints(vec![sliced.moment.pc])).ok()?;
        if n > 0 {
            let begun = Instant::now();
            let until = Until { skip: n - 1, ..Until::default() };
            let stopped = live.ask_long(&Request::Run(until), &mut || begun.elapsed() > PATIENCE).ok()?;
            let Answer::Stopped { why: Why::Breakpoint, .. } = stopped else { return None };
        }
        Some(value_in(&live, sliced))
    }
}
