//! Many trials at once.
//!
//! Replays, one for each trial that may run at the same time, go forward side by side. Whichever is free takes the next
//! candidate in the order of their moments, goes there, is copied, and waits while its copy, altered, goes on by itself: a
//! trial costs what comes behind its moment, and every core has exactly one process that runs. A copy is asked for and told
//! what to do in one request, since each time that one process waits for another costs more than most trials compute.

use crate::error::Error;
use crate::live::Live;
use crate::timeline::{Session, done, equip, run};
use crate::trial::{Budget, Candidate, TrialOutcome, hear_trial, no_such_moment};
use model::serve::{Moment, Request, Until, Why};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// While no trial ends, somebody looks up so often whether anybody still wants to wait.
const LOOK_UP: Duration = Duration::from_millis(50);

/// Hears what one trial writes, piece by piece: is it of no use any more?
pub type Ear<'a> = Box<dyn FnMut(u8, &[u8]) -> bool + 'a>;

/// Gives each trial, by its index, somebody who listens.
pub type Ears<'a, 'e> = &'a (dyn Fn(usize) -> Ear<'e> + Sync + 'a);

type Heard = (usize, Result<TrialOutcome, Error>);

/// What is to be tried, shared by those who do it.
struct Batch<'a, 'e> {
    candidates: &'a [Candidate],
    /// Indices of the candidates by their moments.
    order: Vec<usize>,
    /// How many of them have been taken.
    taken: AtomicUsize,
    files: &'a [Vec<u8>],
    budget: Budget,
    ears: Ears<'a, 'e>,
    /// Nobody wants to hear more: trials that still run are given up.
    over: AtomicBool,
}

impl Session {
    /// Tries many. `each` hears of every outcome with the index of its candidate and may end the batch early.
    pub fn trials(
        &mut self,
        candidates: &[Candidate],
        budget: &Budget,
        each: &mut dyn FnMut(usize, Result<TrialOutcome, Error>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.trials_while(candidates, budget, &|_| Box::new(|_, _| false), &mut || false, each)
    }

    /// The same; a trial that is of no use any more is ended, and all of them are when somebody says stop.
    pub fn trials_while(
        &mut self,
        candidates: &[Candidate],
        budget: &Budget,
        ears: Ears<'_, '_>,
        stop: &mut dyn FnMut() -> bool,
        each: &mut dyn FnMut(usize, Result<TrialOutcome, Error>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let mut order: Vec<usize> = (0..candidates.len()).collect();
        order.sort_by_key(|n| candidates[*n].moment);
        let Some(first) = order.first() else { return Ok(()) };
        let leaders = match self.leaders(candidates[*first].moment, candidates.len(), budget, stop) {
            Err(_) if stop() => return Ok(()),
            leaders => leaders?,
        };
        let (taken, over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let batch = Batch { candidates, order, taken, files: &self.files, budget: *budget, ears, over };
        let (sender, results) = sync_channel(leaders.len());
        let cores = own_cores(leaders.len());
        std::thread::scope(|scope| {
            for (n, leader) in leaders.into_iter().enumerate() {
                let (sender, batch) = (sender.clone(), &batch);
                let core = cores.get(n).copied();
                scope.spawn(move || {
                    core.into_iter().for_each(|core| stay_on(core, &leader.live));
                    batch.work(leader, &sender);
                });
            }
            drop(sender);
            // Whoever still works ends when it cannot tell what it found.
            let (_over, results) = (RaisedAtEnd(&batch.over), results);
            while !stop() {
                let ended = match results.recv_timeout(LOOK_UP) {
                    Ok((n, outcome)) => each(n, outcome).is_break(),
                    Err(why) => why == RecvTimeoutError::Disconnected,
                };
                if ended {
                    break;
                }
            }
        });
        Ok(())
    }

    /// Replays that stand at a moment, for so many candidates.
    fn leaders(
        &mut self,
        at: Moment,
        candidates: usize,
        budget: &Budget,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Leader>, Error> {
        let live = self.copy_at(at, stop)?;
        if budget.limits.belt {
            done(live.ask(&Request::Belt)?)?;
        }
        equip(&live, &[], &[])?;
        let mut leaders = Vec::new();
        for _ in 1..budget.jobs.min(candidates) {
            leaders.push(Leader { live: live.fork()?, at });
        }
        leaders.push(Leader { live, at });
        Ok(leaders)
    }
}

impl Batch<'_, '_> {
    /// Tries candidates until none is left.
    fn work(&self, mut leader: Leader, sender: &SyncSender<Heard>) {
        while !self.over.load(Relaxed)
            && let Some(n) = self.order.get(self.taken.fetch_add(1, Relaxed)).copied()
        {
            let outcome = self.try_one(&mut leader, n);
            if sender.send((n, outcome)).is_err() {
                break;
            }
        }
    }

    fn try_one(&self, leader: &mut Leader, n: usize) -> Result<TrialOutcome, Error> {
        let candidate = &self.candidates[n];
        leader.go_to(candidate.moment, &self.over)?;
        let request = Request::Try {
            alteration: candidate.alteration.clone(),
            files: self.files.to_vec(),
            limits: self.budget.limits,
        };
        let mut copy = leader.live.request_copy(&request)?;
        let outcome = hear_trial(&copy, &self.budget, &mut (self.ears)(n), &self.over, &mut |_, _| {});
        // By now the answer is there: it need not wake anybody up while the copy runs.
        leader.live.acknowledge(&mut copy)?;
        outcome
    }
}

/// A replay that goes from candidate to candidate.
struct Leader {
    live: Live,
    at: Moment,
}

impl Leader {
    fn go_to(&mut self, moment: Moment, unwanted: &AtomicBool) -> Result<(), Error> {
        if self.at == moment {
            return Ok(());
        }
        let until = Until { moment: Some(moment), ..Until::default() };
        let (why, place, _) = run(&self.live, until, &mut || unwanted.load(Relaxed))?;
        self.at = place.moment;
        match why {
            Why::Reached => Ok(()),
            other => Err(no_such_moment(moment, &other)),
        }
    }
}

/// A core for each of so many workers, if there are that many.
fn own_cores(workers: usize) -> Vec<usize> {
    let cores: Vec<usize> =
        sched_getaffinity(None).map_or(Vec::new(), |set| (0..CpuSet::MAX_CPU).filter(|n| set.is_set(*n)).collect());
    if workers <= cores.len() { cores } else { Vec::new() }
}

/// Has this thread, an engine and its copies run on one core. They take turns anyway, and to wake somebody up on another core takes
/// longer than many a trial: a tenth more trials a second on two cores.
fn stay_on(core: usize, engine: &Live) {
    let mut set = CpuSet::new();
    set.set(core);
    for who in [None, Pid::from_raw(engine.pid() as i32)] {
        // Wherever they run, they do the same.
        let _ = sched_setaffinity(who, &set);
    }
}

/// Raises a flag when it goes out of scope, however that comes.
struct RaisedAtEnd<'a>(&'a AtomicBool);

impl Drop for RaisedAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
