//! Trials: altered continuations of a recording, and what such a run did. [`batch`](crate::batch) makes many at once.

use crate::error::{Error, ErrorKind};
use crate::live::{Live, unexpected};
use crate::timeline::{Session, done, equip, read_from, run, where_is};
use model::GuestAddr;
use model::serve::{Alteration, Answer, Moment, Request, TrialEnd, TrialLimits, Until, Why};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A stream (1 or 2) and what was written to it.
pub type Piece = (u8, Vec<u8>);

/// How an altered run went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TrialOutcome {
    pub end: TrialEnd,
    /// Ticks from the alteration to the end.
    pub ticks: u64,
    /// What was written to the standard streams from the alteration on, in order.
    pub output: Vec<Piece>,
    /// It was ended because of what it wrote: an [`Ear`](crate::Ear) said so.
    pub given_up: bool,
    /// Children that did what was recorded of them: their output is not in this one.
    pub children: Vec<u32>,
    /// What it left of files that were asked for, by their numbers; `None` if it removed one. Those that it did not write
    /// are not here.
    pub files: BTreeMap<u32, Option<Vec<u8>>>,
}

impl Default for TrialOutcome {
    /// One that has not come to an end.
    fn default() -> TrialOutcome {
        TrialOutcome {
            end: TrialEnd::RanAway,
            ticks: 0,
            output: Vec::new(),
            given_up: false,
            children: Vec::new(),
            files: BTreeMap::new(),
        }
    }
}

impl TrialOutcome {
    /// All that was written to one stream.
    pub fn stream(&self, number: u8) -> Vec<u8> {
        self.output.iter().filter(|(s, _)| *s == number).flat_map(|(_, b)| b.iter().copied()).collect()
    }
}

/// What one trial is to change, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    pub moment: Moment,
    pub alteration: Alteration,
}

/// What trials may use.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    pub limits: TrialLimits,
    /// A trial that takes longer is killed and counts as run away.
    pub wall: Duration,
    /// Trials at the same time.
    pub jobs: usize,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget {
            limits: TrialLimits { ticks: 50_000_000, memory: 2 << 30, output: 64 << 20, belt: true },
            wall: Duration::from_secs(20),
            jobs: std::thread::available_parallelism().map_or(2, usize::from),
        }
    }
}

/// Runs a copy of an engine on, altered.
pub fn run_altered(live: &Live, alteration: Alteration, budget: &Budget) -> Result<TrialOutcome, Error> {
    run_telling(live, alteration, &[], budget)
}

/// As [`run_altered`]; `files` are those whose fate is to be told.
fn run_telling(live: &Live, alteration: Alteration, files: &[Vec<u8>], budget: &Budget) -> Result<TrialOutcome, Error> {
    done(live.ask(&Request::Alter(alteration))?)?;
    if !files.is_empty() {
        done(live.ask(&Request::Files(files.to_vec()))?)?;
    }
    done(live.ask(&Request::Trial(budget.limits))?)?;
    hear_trial(live, budget, &mut |_, _| false, &AtomicBool::new(false), &mut |_, _| {})
}

/// Hears of an altered guest that goes on by itself, from its answer to [`Request::Trial`] on. It is ended when `hopeless`, which
/// hears what it writes, says so. `looked` hears what memory held where that was asked for.
pub(crate) fn hear_trial(
    live: &Live,
    budget: &Budget,
    hopeless: &mut dyn FnMut(u8, &[u8]) -> bool,
    unwanted: &AtomicBool,
    looked: &mut dyn FnMut(u32, Vec<u8>),
) -> Result<TrialOutcome, Error> {
    let begun = Instant::now();
    let mut so_far = TrialOutcome::default();
    loop {
        let answer = live.answer(&mut || unwanted.load(Relaxed) || begun.elapsed() > budget.wall, false);
        match answer {
            Ok(Answer::Output { stream, bytes }) => {
                let ends = hopeless(stream, &bytes);
                so_far.output.push((stream, bytes));
                if ends {
                    return Ok(TrialOutcome { given_up: true, ..so_far });
                }
            }
            Ok(Answer::Child(pid)) => so_far.children.push(pid),
            Ok(Answer::Looked(number, bytes)) => looked(number, bytes),
            Ok(Answer::Left { file, bytes: None }) => drop(so_far.files.insert(file, None)),
            Ok(Answer::Left { file, bytes: Some(bytes) }) => {
                so_far.files.entry(file).or_default().get_or_insert_default().extend(bytes);
            }
            Ok(Answer::Ended { end, ticks }) => return Ok(TrialOutcome { end, ticks, ..so_far }),
            Ok(other) => return Err(unexpected(&other)),
            Err(_) if begun.elapsed() > budget.wall => return Ok(so_far),
            // The engine's process is gone: the altered guest has brought it down.
            Err(e) => return Ok(TrialOutcome { end: TrialEnd::Lost(e.to_string()), ..so_far }),
        }
    }
}

impl Session {
    /// Tries one alteration at a moment.
    pub fn trial(&mut self, candidate: &Candidate, budget: &Budget) -> Result<TrialOutcome, Error> {
        let live = self.copy_at(candidate.moment, &mut || false)?;
        run_telling(&live, candidate.alteration.clone(), &self.files, budget)
    }

    /// What becomes of these files, which are named in full, is told with each outcome from now on.
    pub fn want_files(&mut self, paths: Vec<Vec<u8>>) {
        self.files = paths;
    }

    /// What memory holds at these moments: in one replay, whatever order they are given in. Nothing where there is no
    /// such memory, or no such moment.
    pub fn look(
        &mut self,
        wanted: &[(Moment, GuestAddr, u32)],
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let mut order: Vec<usize> = (0..wanted.len()).collect();
        order.sort_by_key(|n| wanted[*n].0);
        let mut found = vec![None; wanted.len()];
        let mut live = None;
        for n in order {
            let (moment, at, len) = wanted[n];
            if interrupted() {
                break;
            }
            let here = match live.take() {
                Some(live) => live,
                None => self.copy_at_or_before(moment, interrupted)?,
            };
            if bring_to(&here, moment, interrupted).is_err() {
                // It has run past: others need a new copy.
                continue;
            }
            let mut bytes = vec![0; len as usize];
            if read_from(&here, at, &mut bytes)? == bytes.len() {
                found[n] = Some(bytes);
            }
            live = Some(here);
        }
        Ok(found)
    }

    /// A copy of the engine at a moment, without moving this session.
    pub(crate) fn copy_at(&mut self, moment: Moment, interrupted: &mut dyn FnMut() -> bool) -> Result<Live, Error> {
        let live = self.copy_at_or_before(moment, interrupted)?;
        bring_to(&live, moment, interrupted)?;
        Ok(live)
    }
}

/// Runs an engine forward to a moment.
pub(crate) fn bring_to(live: &Live, moment: Moment, interrupted: &mut dyn FnMut() -> bool) -> Result<(), Error> {
    if where_is(live)?.moment == moment {
        return Ok(());
    }
    equip(live, &[], &[])?;
    match run(live, Until { moment: Some(moment), ..Until::default() }, interrupted)?.0 {
        Why::Reached => Ok(()),
        other => Err(no_such_moment(moment, &other)),
    }
}

pub(crate) fn no_such_moment(moment: Moment, why: &Why) -> Error {
    Error::new(ErrorKind::Refused, io::Error::other(format!("there is no moment {moment} ({why:?})")))
}
