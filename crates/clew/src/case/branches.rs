//! Executions of branches that trials may switch, and of jumps through tables that they may lead elsewhere.

use super::{Case, Refusal, is_raised, numbers};
use crate::slice::facts::Program;
use crate::why::symptom;
use ::slice::Facts;
use diagnose::{End, Failure};
use model::serve::{Moment, Predicate};
use session::Session;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Executions of branches that are kept, from the last one back.
const KEEP: u32 = 1 << 20;
/// Ticks before the end whose branches are candidates, unless all are wanted: noting one takes a microsecond.
const MOST_TICKS: u64 = 5_000_000;

/// Executed branches of some code.
#[derive(Default)]
pub struct Branches {
    /// In order, the last ones.
    pub list: Vec<Predicate>,
    /// How many there were in all.
    pub executed: u64,
    /// What of them is left out.
    pub limits: Vec<String>,
    /// Executions are numbered from the beginning of the run.
    pub numbered: bool,
    /// How often each was executed, by address.
    counts: HashMap<u64, u64>,
    /// Where the indirect jump at an address leads, as far as that is known.
    targets: HashMap<u64, Vec<u64>>,
}

/// Cases that one execution of a jump is led to, at most: those that were observed first.
const MOST_CASES: usize = 16;

/// Which branches are to be looked for.
struct Wanted<'a> {
    ranges: &'a [(u64, u64)],
    upto: Option<Moment>,
    /// Those behind the first wrong byte as well, if the run ended.
    behind: bool,
    whole: bool,
    jumps: bool,
    within: Duration,
}

impl Branches {
    /// Branches that are executed in these ranges up to a moment, or until the run went wrong; `within` is how long it may take. Of a long run
    /// only the last part is looked at, unless it is to be the `whole`: then executions are numbered from its beginning.
    pub fn executed(
        case: &Case<'_>,
        session: &mut Session,
        ranges: &[(u64, u64)],
        upto: Option<Moment>,
        whole: bool,
        within: Duration,
    ) -> Result<Branches, Refusal> {
        Branches::noted(case, session, Wanted { ranges, upto, behind: false, whole, jumps: false, within })
    }

    /// The same from the beginning of the run, with jumps of `switch` statements that can be led to another case; also what
    /// came `behind` the first wrong byte, if that is wanted.
    pub fn with_jumps(
        case: &Case<'_>,
        session: &mut Session,
        ranges: &[(u64, u64)],
        upto: Option<Moment>,
        behind: bool,
        within: Duration,
    ) -> Result<Branches, Refusal> {
        let wanted = Wanted { ranges, upto, behind, whole: true, jumps: true, within };
        let mut found = Branches::noted(case, session, wanted)?;
        found.find_targets(case, session)?;
        Ok(found)
    }

    fn noted(case: &Case<'_>, session: &mut Session, wanted: Wanted<'_>) -> Result<Branches, Refusal> {
        let Wanted { ranges, upto, behind, whole, jumps, within } = wanted;
        let until = Instant::now() + within;
        let mut cut = false;
        let mut stop = || {
            cut = cut || Instant::now() > until || is_raised(&case.interrupted);
            cut
        };
        let upto = upto.or_else(|| went_wrong(case).filter(|_| !behind || case.failing.run.end == End::StillRunning));
        let mut limits = Vec::new();
        let end = case.opened.recording.unit(&case.unit).ok().and_then(|u| u.end).map_or(0, |e| e.tick);
        let late = upto.map_or(end, |m| m.tick.min(end)).checked_sub(MOST_TICKS).filter(|tick| *tick > 0);
        let mut from = None;
        if let Some(tick) = late.filter(|_| !whole) {
            session.seek_tick(tick, &mut stop).map_err(Refusal::internal)?;
            from = Some(session.moment());
            limits.push(format!("branches before tick {tick} are no candidates"));
        }
        let noted = session.predicates_between(ranges, KEEP, jumps, (from, upto), &mut stop);
        let (mut list, executed) = noted.map_err(Refusal::internal)?;
        if cut {
            limits.push("the time ran out while branches were counted: only those until then are candidates".into());
        }
        if executed > list.len() as u64 {
            limits.push(format!("of {executed} executed branches the last {} are candidates", list.len()));
        }
        // What a forked process did before it was forked, its parent did.
        let begins = case.written.begins(case.unit);
        let all = list.len();
        list.retain(|p| p.moment.tick >= begins);
        let executed = executed - (all - list.len()) as u64;
        let counts = list.iter().map(|p| (p.moment.pc, p.instance)).collect();
        Ok(Branches { list, executed, limits, counts, numbered: from.is_none(), targets: HashMap::new() })
    }

    /// Finds out where jumps may lead: where they led at other times, and what else their tables hold. Jumps of which one
    /// target is known are no candidates.
    fn find_targets(&mut self, case: &Case<'_>, session: &Session) -> Result<(), Refusal> {
        let mut observed: HashMap<u64, Vec<u64>> = HashMap::new();
        for p in self.list.iter().filter(|p| p.to != 0) {
            let list = observed.entry(p.moment.pc).or_default();
            if !list.contains(&p.to) {
                list.push(p.to);
            }
        }
        if observed.is_empty() {
            return Ok(());
        }
        let mapped = symptom::mapped(case, session)?;
        let mut program = Program::new(session, &mapped.loaded, &mapped.paths, true).map_err(Refusal::internal)?;
        for (pc, mut list) in observed {
            list.iter().for_each(|to| program.observe(pc, *to));
            // What leads out of the function is a call.
            let inside = program.jump_targets(pc);
            list.retain(|to| inside.contains(to));
            list.extend(inside.iter().filter(|to| !list.contains(to)).copied().collect::<Vec<_>>());
            self.targets.insert(pc, list);
        }
        let before = self.list.len();
        let targets = &self.targets;
        self.list.retain(|p| p.to == 0 || targets[&p.moment.pc].len() > 1);
        self.executed -= (before - self.list.len()) as u64;
        Ok(())
    }

    /// Where else an execution of a jump may lead.
    pub fn other_cases(&self, jump: &Predicate) -> impl Iterator<Item = u64> {
        let list = self.targets.get(&jump.moment.pc).into_iter().flatten().copied();
        list.filter(move |to| *to != jump.to).take(MOST_CASES)
    }

    /// The noted execution at this moment.
    pub fn at(&self, moment: Moment) -> Option<&Predicate> {
        self.list.binary_search_by_key(&moment, |p| p.moment).ok().map(|n| &self.list[n])
    }

    /// Addresses of the branches.
    pub fn places(&self) -> impl Iterator<Item = u64> {
        self.counts.keys().copied()
    }

    /// The number of the first execution of a branch, of those that are known, that went this way.
    pub fn first_that_went(&self, pc: u64, taken: bool) -> Option<u64> {
        self.list.iter().find(|p| p.moment.pc == pc && p.taken == taken).map(|p| p.instance)
    }

    /// How often the branch at `pc` was executed.
    pub fn count(&self, pc: u64) -> u64 {
        self.counts.get(&pc).copied().unwrap_or(0)
    }
}

/// When a run wrote the first wrong byte: what it did later is no cause of that.
fn went_wrong(case: &Case<'_>) -> Option<Moment> {
    let (Failure::WrongByte { stream, offset, .. } | Failure::Extra { stream, offset, .. }) = &case.failing.failure
    else {
        return None;
    };
    let (chunk, _) = case.written.write_of(numbers(*stream), *offset).ok()?;
    (chunk.unit == case.unit).then_some(chunk.at)
}

/// The n-th of all executions, the last of which are listed: if it is not among those, the run is looked through once more.
pub fn nth(
    session: &mut Session,
    list: &[Predicate],
    executed: u64,
    n: u64,
    stop: &mut dyn FnMut() -> bool,
) -> Option<Predicate> {
    let before = executed - list.len() as u64;
    if n > before {
        return list.get((n - 1 - before) as usize).copied();
    }
    let mut pcs: Vec<u64> = list.iter().map(|p| p.moment.pc).collect();
    pcs.sort_unstable();
    pcs.dedup();
    session.seek_instance(&pcs, n, stop).ok()?;
    let moment = session.moment();
    let instance = 1 + session.count_before(&[moment.pc], stop).ok()?;
    Some(Predicate { moment, instance, ..Predicate::default() })
}

/// The n-th execution of each of some branches; if it is not listed, the run is looked through once more.
pub fn nth_of_each(session: &mut Session, found: &Branches, n: u64, stop: &mut dyn FnMut() -> bool) -> Vec<Predicate> {
    let often_enough = found.counts.iter().filter(|(_, times)| **times >= n);
    let mut list: Vec<Predicate> = often_enough
        .filter_map(|(pc, _)| {
            let listed = found.list.iter().find(|p| p.moment.pc == *pc && p.instance == n);
            listed.copied().or_else(|| {
                session.seek_instance(&[*pc], n, stop).ok()?;
                Some(Predicate { moment: session.moment(), instance: n, ..Predicate::default() })
            })
        })
        .collect();
    list.sort_unstable_by_key(|p| p.moment);
    list
}

/// How far to look for branches, one round after the other. A program that hangs in a loop has executed the same few
/// branches again and again since: the search begins shortly behind the first ones, and goes further if it must.
pub fn rounds(case: &Case<'_>) -> Vec<Option<Moment>> {
    if case.failing.failure != Failure::Hang {
        return vec![None];
    }
    let ticks = (0..8).map(|n| case.onset.tick + (64 << (2 * n)));
    ticks.map(|tick| Some(Moment { tick, pc: 0 })).chain([None]).collect()
}
