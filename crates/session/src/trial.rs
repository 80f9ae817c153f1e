//! Trials: altered continuations of a recording, one by one or in batches.
//!
//! In a batch one replay goes forward and is copied at each candidate's moment; each copy is altered and goes on by itself
//! while the replay moves to the next candidate, so a trial costs what comes behind its moment. Copies run on all cores.

use crate::error::{Error, ErrorKind};
use crate::live::{Live, unexpected};
use crate::timeline::{Session, done, equip, read_from, run, where_is};
use model::GuestAddr;
use model::serve::{Alteration, Answer, Moment, Predicate, Request, TrialEnd, TrialLimits, Until, Why};
use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
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
    /// It was ended because of what it wrote: [`Hopeless`] said so.
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

/// Is this trial, by its index, of no use any more after what it has written so far?
pub type Hopeless<'a> = &'a (dyn Fn(usize, &[Piece]) -> bool + Sync);

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
    run_unless(live, alteration, &[], budget, &|_| false, &AtomicBool::new(false))
}

/// As [`run_altered`], until nobody wants the outcome any more; `files` are those whose fate is to be told.
fn run_unless(
    live: &Live,
    alteration: Alteration,
    files: &[Vec<u8>],
    budget: &Budget,
    hopeless: &dyn Fn(&[Piece]) -> bool,
    unwanted: &AtomicBool,
) -> Result<TrialOutcome, Error> {
    done(live.ask(&Request::Alter(alteration))?)?;
    if !files.is_empty() {
        done(live.ask(&Request::Files(files.to_vec()))?)?;
    }
    hear_trial(live, budget, hopeless, unwanted, &mut |_, _| {})
}

/// Lets an altered guest go on by itself. `looked` hears what memory held where that was asked for.
pub(crate) fn hear_trial(
    live: &Live,
    budget: &Budget,
    hopeless: &dyn Fn(&[Piece]) -> bool,
    unwanted: &AtomicBool,
    looked: &mut dyn FnMut(u32, Vec<u8>),
) -> Result<TrialOutcome, Error> {
    done(live.ask(&Request::Trial(budget.limits))?)?;
    let begun = Instant::now();
    let mut so_far = TrialOutcome::default();
    loop {
        let answer = live.answer(&mut || unwanted.load(Relaxed) || begun.elapsed() > budget.wall, false);
        match answer {
            Ok(Answer::Output { stream, bytes }) => {
                so_far.output.push((stream, bytes));
                if hopeless(&so_far.output) {
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
        let live = self.copy_at(candidate.moment)?;
        let never = AtomicBool::new(false);
        run_unless(&live, candidate.alteration.clone(), &self.files, budget, &|_| false, &never)
    }

    /// What becomes of these files, which are named in full, is told with each outcome from now on.
    pub fn want_files(&mut self, paths: Vec<Vec<u8>>) {
        self.files = paths;
    }

    /// Tries many. `each` hears of every outcome with the index of its candidate and may end the batch early.
    pub fn trials(
        &mut self,
        candidates: &[Candidate],
        budget: &Budget,
        each: &mut dyn FnMut(usize, Result<TrialOutcome, Error>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.trials_while(candidates, budget, &|_, _| false, each)
    }

    /// The same; a trial that is of no use any more is ended.
    pub fn trials_while(
        &mut self,
        candidates: &[Candidate],
        budget: &Budget,
        hopeless: Hopeless<'_>,
        each: &mut dyn FnMut(usize, Result<TrialOutcome, Error>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let mut order: Vec<usize> = (0..candidates.len()).collect();
        order.sort_by_key(|n| candidates[*n].moment);
        let Some(first) = order.first() else { return Ok(()) };
        let leader = self.copy_at(candidates[*first].moment)?;
        if budget.limits.belt {
            done(leader.ask(&Request::Belt)?)?;
        }
        let (sender, results) = channel();
        let mut running = 0;
        let (budget, files) = (*budget, self.files.as_slice());
        // Set when the batch is over: trials that still run are given up.
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let over = RaisedAtEnd(&over);
            for n in order {
                let candidate = &candidates[n];
                while running >= budget.jobs.max(1) {
                    running -= 1;
                    if hear(&results, each)?.is_break() {
                        return Ok(());
                    }
                }
                match bring_to(&leader, candidate.moment).and_then(|()| leader.fork()) {
                    Ok(copy) => {
                        let (sender, alteration): (Sender<_>, _) = (sender.clone(), candidate.alteration.clone());
                        running += 1;
                        let unwanted = over.0;
                        // Nobody listens when the batch ended early.
                        scope.spawn(move || {
                            let outcome = run_unless(&copy, alteration, files, &budget, &|o| hopeless(n, o), unwanted);
                            drop(sender.send((n, outcome)));
                        });
                    }
                    Err(e) => {
                        if each(n, Err(e)).is_break() {
                            return Ok(());
                        }
                    }
                }
            }
            for _ in 0..running {
                if hear(&results, each)?.is_break() {
                    break;
                }
            }
            Ok(())
        })
    }

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
        let what = Request::Predicates { ranges: ranges.to_vec(), places: Vec::new(), jumps, keep };
        self.noted(what, from, until, interrupted)
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
        let what = Request::Predicates { ranges: Vec::new(), places: places.to_vec(), jumps: false, keep };
        self.noted(what, None, until.into(), interrupted)
    }

    fn noted(
        &mut self,
        what: Request,
        from: Option<Moment>,
        until: Option<Moment>,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<(Vec<Predicate>, u64), Error> {
        let live = self.copy_at(from.unwrap_or_else(|| self.start_moment()))?;
        done(live.ask(&what)?)?;
        run(&live, Until { moment: until, ..Until::default() }, interrupted)?;
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
        let live = self.copy_at(candidate.moment)?;
        let thread = where_is(&live)?.thread;
        done(live.ask(&Request::Alter(candidate.alteration.clone()))?)?;
        done(live.ask(&Request::Leave { thread })?)?;
        done(live.ask(&Request::Predicates { ranges: ranges.to_vec(), places: Vec::new(), jumps: false, keep })?)?;
        run(&live, Until::default(), interrupted)?;
        Ok(noted_by(&live)?.0)
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
                None => self.copy_near(moment)?,
            };
            if bring_to(&here, moment).is_err() {
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
    pub(crate) fn copy_at(&mut self, moment: Moment) -> Result<Live, Error> {
        let live = self.copy_near(moment)?;
        bring_to(&live, moment)?;
        Ok(live)
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

/// Raises a flag when it goes out of scope, however that comes.
struct RaisedAtEnd<'a>(&'a AtomicBool);

impl Drop for RaisedAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

type Heard = (usize, Result<TrialOutcome, Error>);

fn hear(
    results: &Receiver<Heard>,
    each: &mut dyn FnMut(usize, Result<TrialOutcome, Error>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, Error> {
    match results.recv() {
        Ok((n, outcome)) => Ok(each(n, outcome)),
        Err(e) => Err(Error::new(ErrorKind::Replay, io::Error::other(e))),
    }
}

/// Runs an engine forward to a moment.
fn bring_to(live: &Live, moment: Moment) -> Result<(), Error> {
    if where_is(live)?.moment == moment {
        return Ok(());
    }
    equip(live, &[], &[])?;
    match run(live, Until { moment: Some(moment), ..Until::default() }, &mut || false)?.0 {
        Why::Reached => Ok(()),
        other => {
            let text = format!("there is no moment {moment} ({other:?})");
            Err(Error::new(ErrorKind::Refused, io::Error::other(text)))
        }
    }
}
