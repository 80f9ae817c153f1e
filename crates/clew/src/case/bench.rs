//! Trials of one unit of a recording, as the search wants them.

use super::check::run_check;
use super::choose::FROM_OUTSIDE;
use super::{Left, is_raised};
use crate::written::Written;
use diagnose::{Change, Each, End, Hearing, Met, Oracle, Run, Stop, Stream, Trial, Trials};
use model::serve::{Alteration, Answer, Moment, Predicate, Request, TrialEnd, Until, Why};
use recording::UnitName;
use session::{Budget, Candidate, Ear, Live, Session, TrialOutcome, alter};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Longer than this nobody waits to see whether a run comes to the failing place.
const LOOK: Duration = Duration::from_secs(2);

/// Meetings with the failing place that are counted, at most.
const MOST_MEETINGS: u64 = 2_000;

/// Longer than this nobody looks for branches behind a switch.
const LOOK_BEHIND: Duration = Duration::from_millis(300);
/// Branches behind a switch that are kept.
const KEEP_BEHIND: u32 = 100_000;

/// The place where the recorded run failed: an instruction in a certain frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Witness {
    pub pc: u64,
    pub stack: u64,
    /// The instruction was executed once in the whole run.
    pub once: bool,
}

/// Makes trials.
pub struct Bench<'a> {
    pub session: Session,
    pub written: &'a Written,
    pub left: &'a Left,
    pub oracle: &'a Oracle,
    pub unit: UnitName,
    pub budget: Budget,
    pub until: Instant,
    pub interrupted: Arc<AtomicBool>,
    pub script: Option<&'a str>,
    pub witness: Option<Witness>,
    /// The recorded run did not end by itself.
    pub hangs: bool,
    /// Time spent in trials.
    pub spent: Duration,
}

impl Bench<'_> {
    fn whole(&self, moment: Moment, outcome: TrialOutcome) -> Run {
        let end = match outcome.end.clone() {
            _ if outcome.given_up => End::GivenUp,
            TrialEnd::Exited(status) => End::Exited(status),
            // The signal that ended the recorded run when its time was over.
            TrialEnd::Signaled { signal, .. } if self.hangs && FROM_OUTSIDE.contains(&signal) => End::StillRunning,
            TrialEnd::Signaled { signal, moment, .. } => End::Signaled { signal, pc: moment.pc },
            TrialEnd::RanAway => End::StillRunning,
            TrialEnd::Deadlocked => End::Deadlocked,
            TrialEnd::Waits(what) => End::Waits(what),
            TrialEnd::OutOfMemory => End::OutOfMemory,
            TrialEnd::Lost(why) => End::Lost(why),
        };
        let files = self.left.altered(self.unit, &outcome);
        Run { output: self.written.altered(self.unit, moment, outcome.output, &outcome.children), end, files }
    }

    /// Compares how often the altered run is at the witness, until it wants something from outside, with the recorded one.
    fn count_meetings(&mut self, trial: &Trial, witness: Witness) -> Result<Met, session::Error> {
        self.session.seek(trial.moment, &mut || false)?;
        let thread = self.session.place().thread;
        let altered = self.session.copy()?;
        alter(&altered, alteration(&trial.change))?;
        altered.ask(&Request::Leave { thread })?;
        if meetings(&altered, witness, 1)? == 0 {
            // It may come there later: after the first system call nobody looks.
            return Ok(Met::Unknown);
        }
        // The last one of the recorded run is the one that fails.
        let recorded = meetings(&self.session.copy()?, witness, MOST_MEETINGS)?;
        let others = recorded.saturating_sub(1);
        let is_known = recorded > 0 && recorded < MOST_MEETINGS;
        let as_often = is_known && meetings(&altered, witness, others)? >= others;
        let by_a_branch = matches!(trial.change, Change::Flip | Change::FlipTwo { .. } | Change::Force(_));
        Ok(match as_often {
            true if by_a_branch || witness.once => Met::AsOften,
            true => Met::Unlike,
            false => Met::Less,
        })
    }
}

/// How often a copy that goes on is at the witness, up to a number of times.
fn meetings(copy: &Live, witness: Witness, most: u64) -> Result<u64, session::Error> {
    copy.ask(&Request::Breakpoints(vec![witness.pc]))?;
    let begun = Instant::now();
    let mut met = 0;
    while met < most {
        let answer = copy.ask_long(&Request::Run(Until::default()), &mut || begun.elapsed() > LOOK)?;
        let Answer::Stopped { why: Why::Breakpoint, place, .. } = answer else { break };
        let registers = session::registers_of(copy, place.thread)?;
        met += u64::from(registers.gpr[4] == witness.stack);
    }
    Ok(met)
}

impl Bench<'_> {
    /// Branches in these ranges that are executed behind a change, counted from there on, until the program wants something
    /// from outside. None where that cannot be seen.
    pub fn branches_behind(&mut self, trial: &Trial, ranges: &[(u64, u64)]) -> Vec<Predicate> {
        let candidate = Candidate { moment: trial.moment, alteration: alteration(&trial.change) };
        let begun = Instant::now();
        let mut stop = || begun.elapsed() > LOOK_BEHIND;
        self.session.predicates_behind(&candidate, ranges, KEEP_BEHIND, &mut stop).unwrap_or_default()
    }
}

impl Trials for Bench<'_> {
    fn batch(&mut self, trials: &[Trial], each: Each<'_>) -> Result<(), String> {
        let candidate = |t: &Trial| Candidate { moment: t.moment, alteration: alteration(&t.change) };
        let candidates: Vec<Candidate> = trials.iter().map(candidate).collect();
        let begun = Instant::now();
        let mut outcomes = Vec::new();
        let (until, interrupted) = (self.until, self.interrupted.clone());
        // What other processes write in between is known only when all is over.
        let alone = self.written.is_by(self.unit);
        let (written, oracle) = (self.written, self.oracle);
        let ear = |n: usize| -> Ear<'_> {
            let trial: &Trial = &trials[n];
            if !alone || trial.change == Change::Nothing {
                return Box::new(|_, _| false);
            }
            let mut hearing = Hearing::new(oracle);
            for chunk in written.before(trial.moment) {
                hearing.hear(chunk.stream, &chunk.bytes);
            }
            Box::new(move |stream, bytes| !hearing.hear(stream, bytes))
        };
        let mut stop = || Instant::now() > until || is_raised(&interrupted);
        let made = self.session.trials_while(&candidates, &self.budget, &ear, &mut stop, &mut |n, outcome| {
            outcomes.push((n, outcome));
            ControlFlow::Continue(())
        });
        self.spent += begun.elapsed();
        for (n, outcome) in outcomes {
            let run = outcome.map(|o| self.whole(trials[n].moment, o)).map_err(|e| e.to_string());
            each(n, run);
        }
        made.map_err(|e| e.to_string())
    }

    fn meets_failure(&mut self, trial: &Trial) -> Met {
        let Some(witness) = self.witness else { return Met::Unknown };
        self.count_meetings(trial, witness).unwrap_or(Met::Unknown)
    }

    fn check(&self, run: &Run) -> bool {
        self.script.is_none_or(|script| run_check(script, &run.stream(Stream::Stdout), self.until))
    }

    fn stop(&self) -> Option<Stop> {
        if is_raised(&self.interrupted) {
            return Some(Stop::Interrupted);
        }
        (Instant::now() > self.until).then_some(Stop::Time)
    }
}

/// What the engine is to do.
pub fn alteration(change: &Change) -> Alteration {
    match change {
        // A control must not lean on the log: it goes on in the same world as the others.
        Change::Nothing => Alteration::Apart,
        Change::Flip => Alteration::Flip,
        Change::FlipTwo { pc, execution } => Alteration::FlipTwo { pc: *pc, execution: *execution },
        Change::Force(taken) => Alteration::Force(*taken),
        Change::Skip(to) => Alteration::Skip(*to),
        Change::Return => Alteration::Return,
        Change::SetMemory(at, bytes) => Alteration::SetMemory(*at, bytes.clone()),
    }
}
