//! Predicate switching: which executed branch, taken the other way, makes the failing run work?
//!
//! Candidates are tried in the order LEFS, last executed first switched, in batches: those of one batch start from one
//! replay. At the first and the last moment of each batch a control goes on without any change; unless both give the
//! recorded failure with the recorded output, nothing in the batch is proved, because then the world of the trials made
//! the difference and not the switch.
//!
//! Guarantees: whatever ends the search early, what was found is there and what was left out is told.
//! May miss: failures that need two switches, and wrong values that no branch chose.
//! Source: X. Zhang, N. Gupta, R. Gupta, "Locating Faults Through Automated Predicate Switching", ICSE 2006.

use crate::oracle::{End, Oracle, Run};
use crate::verdict::{Failing, Verdict};
use model::serve::{Moment, Predicate};
use std::collections::BTreeMap;

/// One trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trial {
    pub moment: Moment,
    /// The branch there goes the other way; otherwise nothing changes, and it is a control.
    pub flip: bool,
}

/// Why a search ends before all candidates were tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// The time is used up.
    Time,
    /// The user wants it.
    Interrupted,
}

/// How often an altered run meets the place of the failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Met {
    Never,
    /// Once, as in the recorded run: it is the execution that failed there.
    Once,
    /// Which of several executions is the one that failed is not known.
    Several,
    /// That could not be seen.
    Unknown,
}

/// Hears of one trial of a batch: its index, and the whole altered run or why there is none.
pub type Each<'a> = &'a mut dyn FnMut(usize, Result<Run, String>);

/// Whoever can make trials of the failing run.
pub trait Trials {
    /// Makes these trials, in any order. `each` is told the whole altered run, with what was written before the moment
    /// too. A search that is to [`stop`](Trials::stop) may leave out all but one.
    fn batch(&mut self, trials: &[Trial], each: Each<'_>) -> Result<(), String>;

    /// Does the run with the branch at this moment flipped come to the place of the failure?
    fn meets_failure(&mut self, at: Moment) -> Met;

    /// Does the user's own check take this run for a working one?
    fn check(&self, run: &Run) -> bool;

    /// Is the search to end here?
    fn stop(&self) -> Option<Stop>;
}

/// How to search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Candidates of one batch.
    pub batch: usize,
    /// Trials in all, without controls.
    pub most: usize,
    /// Go on after the first repairs.
    pub all: bool,
    /// Keep the verdict of every trial.
    pub tell: bool,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan { batch: 64, most: 100_000, all: false, tell: false }
    }
}

/// A switch that repairs the run, or avoids its failure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub predicate: Predicate,
    pub verdict: Verdict,
    /// The altered run.
    pub run: Run,
    /// Why it is suspected only; proved if there is no reason.
    pub doubt: Option<String>,
}

impl Finding {
    pub fn is_proved(&self) -> bool {
        self.verdict == Verdict::Fixed && self.doubt.is_none()
    }
}

/// What a search has found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Search {
    /// Switches that repair the run, the last executed first.
    pub critical: Vec<Finding>,
    /// Switches after which the failing place is not met.
    pub avoiding: Vec<Finding>,
    /// The verdict of every trial and how it ended, if that was asked for.
    pub told: Vec<(Predicate, Verdict, End)>,
    /// Trials by verdict, without controls.
    pub tally: BTreeMap<&'static str, u64>,
    pub tried: usize,
    pub controls: usize,
    /// Controls that did not confirm the recorded failure, and why.
    pub doubtful: Vec<(Moment, String)>,
    /// Trials that could not be made, and why.
    pub failed: Vec<(Moment, String)>,
    /// Candidates that were not tried.
    pub left: usize,
    pub stopped: Option<Stop>,
}

impl Search {
    /// Adds what a later search among other candidates found.
    pub fn absorb(&mut self, later: Search) {
        self.critical.extend(later.critical);
        self.avoiding.extend(later.avoiding);
        self.told.extend(later.told);
        for (name, n) in later.tally {
            *self.tally.entry(name).or_default() += n;
        }
        self.tried += later.tried;
        self.controls += later.controls;
        self.doubtful.extend(later.doubtful);
        self.failed.extend(later.failed);
        self.left = later.left;
        self.stopped = later.stopped;
    }
}

/// Searches among `predicates`, which are in the order of their execution.
pub fn switch(
    trials: &mut dyn Trials,
    predicates: &[Predicate],
    failing: &Failing,
    oracle: &Oracle,
    plan: &Plan,
    progress: &mut dyn FnMut(&Search),
) -> Result<Search, String> {
    let mut search = Search::default();
    let mut left = predicates;
    while !left.is_empty() && search.tried < plan.most {
        search.stopped = trials.stop();
        if search.stopped.is_some() || !plan.all && search.critical.iter().any(Finding::is_proved) {
            break;
        }
        let size = plan.batch.max(1).min(plan.most - search.tried).min(left.len());
        let (before, batch) = left.split_at(left.len() - size);
        let tried = Batch { trials, batch, failing, oracle, tell: plan.tell }.run(&mut search)?;
        progress(&search);
        if tried < size {
            search.stopped = trials.stop();
            break;
        }
        left = before;
    }
    search.left = predicates.len() - search.tried;
    Ok(search)
}

/// One batch under way.
struct Batch<'a> {
    trials: &'a mut dyn Trials,
    batch: &'a [Predicate],
    failing: &'a Failing,
    oracle: &'a Oracle,
    tell: bool,
}

/// What came of the trials of a batch, by their number.
type Outcomes = BTreeMap<usize, Result<Run, String>>;

impl Batch<'_> {
    /// Makes the trials; answers how many candidates were tried.
    fn run(mut self, search: &mut Search) -> Result<usize, String> {
        let (controls, list) = self.list();
        let mut outcomes = self.make(&list)?;
        let has_repair = (controls..list.len())
            .any(|n| outcomes.get(&n).is_some_and(|o| o.as_ref().is_ok_and(|run| self.verdict(run) == Verdict::Fixed)));
        if has_repair || self.failing.hides_behind_its_end() {
            // A batch that was ended early still needs its controls, or nothing it found could be proved.
            for n in 0..controls {
                if !outcomes.contains_key(&n) {
                    let more = self.make(&list[n..=n])?;
                    outcomes.extend(more.into_values().map(|o| (n, o)));
                }
            }
        }
        let doubt = self.hear_controls(&list[..controls], &outcomes, search);
        let mut tried = 0;
        // The last executed first.
        for n in (controls..list.len()).rev() {
            let Some(outcome) = outcomes.remove(&n) else { continue };
            tried += 1;
            self.hear(self.batch[n - controls], outcome, doubt.as_ref(), search);
        }
        search.tried += tried;
        Ok(tried)
    }

    /// The trials of the batch, controls first, and how many those are.
    fn list(&self) -> (usize, Vec<Trial>) {
        let at = |p: &Predicate| p.moment;
        let mut ends: Vec<Moment> = self.batch.first().into_iter().chain(self.batch.last()).map(at).collect();
        ends.dedup();
        let controls = ends.iter().map(|moment| Trial { moment: *moment, flip: false });
        let flips = self.batch.iter().map(|p| Trial { moment: p.moment, flip: true });
        (ends.len(), controls.chain(flips).collect())
    }

    fn make(&mut self, list: &[Trial]) -> Result<Outcomes, String> {
        let mut outcomes = Outcomes::new();
        self.trials.batch(list, &mut |n, outcome| drop(outcomes.insert(n, outcome)))?;
        Ok(outcomes)
    }

    fn verdict(&self, run: &Run) -> Verdict {
        Verdict::of(run, self.failing, self.oracle, &mut |run| self.trials.check(run))
    }

    /// Why nothing in this batch is proved, if so.
    fn hear_controls(&self, list: &[Trial], outcomes: &Outcomes, search: &mut Search) -> Option<String> {
        let mut doubt = None;
        for (n, control) in list.iter().enumerate() {
            let why = match outcomes.get(&n) {
                None => {
                    doubt.get_or_insert_with(|| "the search ended before the controls".to_owned());
                    continue;
                }
                Some(Err(why)) => Some(why.clone()),
                Some(Ok(run)) => self.failing.doubt(run, &self.verdict(run)),
            };
            search.controls += 1;
            if let Some(why) = why {
                doubt.get_or_insert_with(|| format!("a control, a trial without any change, gave: {why}"));
                search.doubtful.push((control.moment, why));
            }
        }
        doubt
    }

    fn hear(
        &mut self,
        predicate: Predicate,
        outcome: Result<Run, String>,
        doubt: Option<&String>,
        search: &mut Search,
    ) {
        let run = match outcome {
            Ok(run) => run,
            Err(why) => {
                *search.tally.entry("not made").or_default() += 1;
                search.failed.push((predicate.moment, why));
                return;
            }
        };
        let (mut verdict, mut doubt) = (self.verdict(&run), doubt.cloned());
        if verdict == Verdict::Avoided {
            match self.trials.meets_failure(predicate.moment) {
                Met::Once => verdict = Verdict::Fixed,
                Met::Several => {
                    verdict = Verdict::Fixed;
                    doubt.get_or_insert_with(|| {
                        "the failing place is passed several times, and which one failed is not known".into()
                    });
                }
                Met::Never | Met::Unknown => {}
            }
        }
        *search.tally.entry(verdict.name()).or_default() += 1;
        if self.tell {
            search.told.push((predicate, verdict.clone(), run.end.clone()));
        }
        match verdict {
            Verdict::Fixed => search.critical.push(Finding { predicate, verdict, run, doubt }),
            Verdict::Avoided => search.avoiding.push(Finding { predicate, verdict, run, doubt }),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::{Failure, Stream};
    use std::cell::Cell;

    /// Trials whose results are written down: which tick repairs, where controls go wrong, when to stop.
    #[derive(Default)]
    struct Script {
        repairs: Vec<u64>,
        wrong_controls: Vec<u64>,
        stop_after: Option<usize>,
        made: Cell<usize>,
        batches: Vec<Vec<Trial>>,
    }

    fn run(text: &str) -> Run {
        Run { output: vec![(1, text.into())], end: End::Exited(0) }
    }

    impl Trials for Script {
        fn batch(&mut self, trials: &[Trial], each: Each<'_>) -> Result<(), String> {
            self.batches.push(trials.to_vec());
            for (n, t) in trials.iter().enumerate() {
                let tick = t.moment.tick;
                let good = t.flip && self.repairs.contains(&tick);
                let odd = !t.flip && self.wrong_controls.contains(&tick);
                each(
                    n,
                    Ok(run(if good {
                        "good"
                    } else if odd {
                        "odd"
                    } else {
                        "bad"
                    })),
                );
                self.made.set(self.made.get() + 1);
                if self.stop().is_some() {
                    break;
                }
            }
            Ok(())
        }
        fn meets_failure(&mut self, _: Moment) -> Met {
            Met::Unknown
        }
        fn check(&self, _: &Run) -> bool {
            true
        }
        fn stop(&self) -> Option<Stop> {
            self.stop_after.filter(|n| self.made.get() >= *n).map(|_| Stop::Time)
        }
    }

    fn search(script: &mut Script, ticks: u64, all: bool) -> Search {
        let oracle = Oracle { stdout: Some(b"good".into()), ..Oracle::default() };
        let failure = Failure::WrongByte { stream: Stream::Stdout, offset: 0, expected: b'g', found: b'b' };
        let failing = Failing { run: run("bad"), failure };
        let at = |tick| Predicate { moment: Moment { tick, pc: 1 }, instance: tick, taken: false };
        let predicates: Vec<_> = (1..=ticks).map(at).collect();
        let plan = Plan { batch: 4, all, ..Plan::default() };
        switch(script, &predicates, &failing, &oracle, &plan, &mut |_| {}).expect("nothing fails")
    }

    fn found(search: &Search) -> Vec<(u64, bool)> {
        search.critical.iter().map(|f| (f.predicate.moment.tick, f.is_proved())).collect()
    }

    #[test]
    fn the_last_executed_is_switched_first_and_the_batch_is_finished() {
        let mut script = Script { repairs: vec![2, 6, 7], ..Script::default() };
        let result = search(&mut script, 12, false);
        assert_eq!(found(&result), [(7, true), (6, true)]);
        assert_eq!((result.tried, result.left, result.controls), (8, 4, 4));
        let moments: Vec<_> = script.batches[0].iter().map(|t| (t.moment.tick, t.flip)).collect();
        assert_eq!(moments, [(9, false), (12, false), (9, true), (10, true), (11, true), (12, true)]);
        assert_eq!(found(&search(&mut script, 12, true)), [(7, true), (6, true), (2, true)]);
    }

    #[test]
    fn nothing_is_proved_where_a_control_goes_wrong() {
        let mut script = Script { repairs: vec![6, 2], wrong_controls: vec![5], ..Script::default() };
        let result = search(&mut script, 8, false);
        assert_eq!(found(&result), [(6, false), (2, true)]);
        assert_eq!(result.doubtful.len(), 1);
    }

    #[test]
    fn an_early_end_leaves_a_usable_answer() {
        let mut script = Script { repairs: vec![5], stop_after: Some(3), ..Script::default() };
        let result = search(&mut script, 8, false);
        assert_eq!((found(&result), result.stopped), (vec![(5, true)], Some(Stop::Time)));
        assert_eq!((result.tried, result.left), (1, 7));
    }
}
