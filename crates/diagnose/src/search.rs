//! Trials one after the other, in batches, until one repairs the failing run.
//!
//! Candidates are tried in the order in which they are given; those of one batch start from one replay. At the first and
//! the last moment of each batch a control goes on without any change; unless both give the recorded failure with the
//! recorded output, nothing in the batch is proved, because then the world of the trials made the difference and not the
//! change.
//!
//! Guarantees: whatever ends the search early, what was found is there and what was left out is told.
//! May miss: failures that need more changes than one trial makes.
//! Source: X. Zhang, N. Gupta, R. Gupta, "Locating Faults Through Automated Predicate Switching", ICSE 2006.

use crate::oracle::{End, Oracle, Run};
use crate::trials::{Change, Met, Stop, Trial, Trials};
use crate::verdict::{Failing, Verdict};
use model::serve::Moment;
use std::collections::BTreeMap;

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
    /// Why nothing is proved, whatever the controls say.
    pub doubt: Option<&'static str>,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan { batch: 64, most: 100_000, all: false, tell: false, doubt: None }
    }
}

/// A change that repairs the run, or avoids its failure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub trial: Trial,
    pub verdict: Verdict,
    /// How the altered run ended.
    pub end: End,
    /// Why it is suspected only; proved if there is no reason.
    pub doubt: Option<String>,
}

impl Finding {
    /// Does it do everything that the oracle asks for?
    pub fn is_repair(&self) -> bool {
        self.verdict == Verdict::Fixed
    }

    pub fn is_proved(&self) -> bool {
        self.verdict == Verdict::Fixed && self.doubt.is_none()
    }
}

/// What a search has found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Search {
    /// Changes that repair the run, in the order of the trials.
    pub critical: Vec<Finding>,
    /// Changes after which the failing place is not met.
    pub avoiding: Vec<Finding>,
    /// Changes after which the first wrong piece of output is right, and something behind it is wrong.
    pub advancing: Vec<Finding>,
    /// The verdict of every trial and how it ended, if that was asked for.
    pub told: Vec<(Trial, Verdict, End)>,
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
        self.advancing.extend(later.advancing);
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

    /// Has a change been found that is proved to repair the run?
    pub fn has_proof(&self) -> bool {
        self.critical.iter().any(Finding::is_proved)
    }
}

/// Tries these, the first one first.
pub fn search(
    trials: &mut dyn Trials,
    candidates: &[Trial],
    failing: &Failing,
    oracle: &Oracle,
    plan: &Plan,
    progress: &mut dyn FnMut(&Search),
) -> Result<Search, String> {
    let mut search = Search::default();
    let mut left = candidates;
    while !left.is_empty() && search.tried < plan.most {
        search.stopped = trials.stop();
        if search.stopped.is_some() || !plan.all && search.has_proof() {
            break;
        }
        let size = plan.batch.max(1).min(plan.most - search.tried).min(left.len());
        let (batch, behind) = left.split_at(size);
        let tried = Batch { trials, batch, failing, oracle, plan }.run(&mut search)?;
        progress(&search);
        if tried < size {
            search.stopped = trials.stop();
            break;
        }
        left = behind;
    }
    search.left = candidates.len() - search.tried;
    Ok(search)
}

/// One batch under way.
struct Batch<'a> {
    trials: &'a mut dyn Trials,
    batch: &'a [Trial],
    failing: &'a Failing,
    oracle: &'a Oracle,
    plan: &'a Plan,
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
        let doubt = doubt.or_else(|| self.plan.doubt.map(str::to_owned));
        let mut tried = 0;
        for (n, trial) in list.iter().enumerate().skip(controls) {
            let Some(outcome) = outcomes.remove(&n) else { continue };
            tried += 1;
            self.hear(trial, outcome, doubt.as_ref(), search);
        }
        search.tried += tried;
        Ok(tried)
    }

    /// The trials of the batch, controls first, and how many those are.
    fn list(&self) -> (usize, Vec<Trial>) {
        let moments = || self.batch.iter().map(|t| t.moment);
        let mut ends: Vec<Moment> = moments().min().into_iter().chain(moments().max()).collect();
        ends.dedup();
        let controls = ends.iter().map(|moment| Trial { moment: *moment, change: Change::Nothing });
        (ends.len(), controls.chain(self.batch.iter().cloned()).collect())
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

    fn hear(&mut self, trial: &Trial, outcome: Result<Run, String>, doubt: Option<&String>, search: &mut Search) {
        let run = match outcome {
            Ok(run) => run,
            Err(why) => {
                *search.tally.entry("not made").or_default() += 1;
                search.failed.push((trial.moment, why));
                return;
            }
        };
        let (mut verdict, mut doubt) = (self.verdict(&run), doubt.cloned());
        if verdict == Verdict::Avoided {
            match self.trials.meets_failure(trial) {
                Met::AsOften => verdict = Verdict::Fixed,
                met @ (Met::Unlike | Met::Less) => {
                    verdict = Verdict::Fixed;
                    let why = match met {
                        Met::Unlike => {
                            "the failing place is passed, but whether the value that was put there is right is not known"
                        }
                        _ => {
                            "the failing place is passed less often than in the recorded run: the failure may only be avoided"
                        }
                    };
                    doubt.get_or_insert_with(|| why.into());
                }
                Met::Never | Met::Unknown => {}
            }
        }
        *search.tally.entry(verdict.name()).or_default() += 1;
        if self.plan.tell {
            search.told.push((trial.clone(), verdict.clone(), run.end.clone()));
        }
        let trial = trial.clone();
        match verdict {
            Verdict::Fixed => search.critical.push(Finding { trial, verdict, end: run.end, doubt }),
            Verdict::Avoided => search.avoiding.push(Finding { trial, verdict, end: run.end, doubt }),
            Verdict::OtherFailure(_) if self.failing.is_advanced_by(&run, self.oracle) => {
                search.advancing.push(Finding { trial, verdict, end: run.end, doubt });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::{Failure, Stream};
    use crate::trials::Each;
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
        Run { output: vec![(1, text.as_bytes().into())], end: End::Exited(0), files: Vec::new() }
    }

    impl Trials for Script {
        fn batch(&mut self, trials: &[Trial], each: Each<'_>) -> Result<(), String> {
            self.batches.push(trials.to_vec());
            for (n, t) in trials.iter().enumerate() {
                let tick = t.moment.tick;
                let flip = t.change == Change::Flip;
                let good = flip && self.repairs.contains(&tick);
                let odd = !flip && self.wrong_controls.contains(&tick);
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
        fn meets_failure(&mut self, _: &Trial) -> Met {
            Met::Unknown
        }
        fn check(&self, _: &Run) -> bool {
            true
        }
        fn stop(&self) -> Option<Stop> {
            self.stop_after.filter(|n| self.made.get() >= *n).map(|_| Stop::Time)
        }
    }

    /// The last executed first.
    fn search_script(script: &mut Script, ticks: u64, all: bool) -> Search {
        let oracle = Oracle { stdout: Some(b"good".into()), ..Oracle::default() };
        let failure = Failure::WrongByte { stream: Stream::Stdout, offset: 0, expected: b'g', found: b'b' };
        let failing = Failing { run: run("bad"), failure };
        let at = |tick| Trial { moment: Moment { tick, pc: 1 }, change: Change::Flip };
        let candidates: Vec<_> = (1..=ticks).rev().map(at).collect();
        let plan = Plan { batch: 4, all, ..Plan::default() };
        search(script, &candidates, &failing, &oracle, &plan, &mut |_| {}).expect("nothing fails")
    }

    fn found(search: &Search) -> Vec<(u64, bool)> {
        search.critical.iter().map(|f| (f.trial.moment.tick, f.is_proved())).collect()
    }

    #[test]
    fn nothing_is_proved_where_there_is_a_doubt_about_all() {
        let mut script = Script { repairs: vec![2], ..Script::default() };
        let oracle = Oracle { stdout: Some(b"good".into()), ..Oracle::default() };
        let failure = Failure::WrongByte { stream: Stream::Stdout, offset: 0, expected: b'g', found: b'b' };
        let failing = Failing { run: run("bad"), failure };
        let candidates = [Trial { moment: Moment { tick: 2, pc: 1 }, change: Change::Flip }];
        let plan = Plan { doubt: Some("others wait"), ..Plan::default() };
        let result = search(&mut script, &candidates, &failing, &oracle, &plan, &mut |_| {}).expect("nothing fails");
        assert_eq!(found(&result), [(2, false)]);
        assert_eq!(result.critical[0].doubt.as_deref(), Some("others wait"));
    }

    #[test]
    fn candidates_are_tried_in_order_and_the_batch_is_finished() {
        let mut script = Script { repairs: vec![2, 6, 7], ..Script::default() };
        let result = search_script(&mut script, 12, false);
        assert_eq!(found(&result), [(7, true), (6, true)]);
        assert_eq!((result.tried, result.left, result.controls), (8, 4, 4));
        let moments: Vec<_> = script.batches[0].iter().map(|t| (t.moment.tick, t.change == Change::Flip)).collect();
        assert_eq!(moments, [(9, false), (12, false), (12, true), (11, true), (10, true), (9, true)]);
        assert_eq!(found(&search_script(&mut script, 12, true)), [(7, true), (6, true), (2, true)]);
    }

    #[test]
    fn nothing_is_proved_where_a_control_goes_wrong() {
        let mut script = Script { repairs: vec![6, 2], wrong_controls: vec![5], ..Script::default() };
        let result = search_script(&mut script, 8, false);
        assert_eq!(found(&result), [(6, false), (2, true)]);
        assert_eq!(result.doubtful.len(), 1);
    }

    #[test]
    fn an_early_end_leaves_a_usable_answer() {
        let mut script = Script { repairs: vec![8], stop_after: Some(3), ..Script::default() };
        let result = search_script(&mut script, 8, false);
        assert_eq!((found(&result), result.stopped), (vec![(8, true)], Some(Stop::Time)));
        assert_eq!((result.tried, result.left), (1, 7));
    }
}
