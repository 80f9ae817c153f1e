//! How much of the failure hangs on a call.
//!
//! Where many branches that run under one call repair the run, and few elsewhere do, what is wrong may be the call itself:
//! that it is made, what it is given, or what is done with its result. Such a call is no branch, so no trial speaks for it.
//!
//! Guarantees: only suspects.
//! May miss: calls before the window, and those more than [`DEEPEST`] calls above a branch.
//! Source: ours, measured (docs/accuracy.md).

use super::functions::Counted;
use super::gathered::Gathered;
use super::places::Places;
use super::symptom::Symptom;
use diagnose::{Change, Verdict};
use model::serve::Moment;
use slice::Sites;
use std::collections::{HashMap, HashSet};

/// Calls above a branch that are looked at.
const DEEPEST: usize = 24;
/// Decisions on the way from a branch up to the call that led to it, at most.
const LONGEST: usize = 4096;
/// Executions of branches that are counted, the last ones.
const MOST: usize = 400_000;
/// Executions between two looks at the time.
const STEP: usize = 256;

/// Calls of the program's own code, with what ran under them.
pub struct Calls {
    counted: HashMap<u64, Counted>,
    /// The innermost of them above each execution that repaired the run.
    above: HashMap<Moment, u64>,
    /// Of all branches that were tried, so many repaired the run.
    rate: f64,
}

impl Calls {
    /// Counts until somebody says stop; then nothing is known about calls, rather than half of it.
    pub fn count(
        gathered: &Gathered,
        symptom: &Symptom,
        sites: &Sites<'_>,
        places: &mut Places<'_>,
        stop: &mut dyn FnMut() -> bool,
    ) -> Option<Calls> {
        let mut repairing: HashMap<u64, bool> = HashMap::new();
        let mut way = Way { sites, above: HashMap::new() };
        let mut under: HashMap<u64, (HashSet<u64>, HashSet<u64>)> = HashMap::new();
        let segment = |moment| match gathered.nodes.get(moment) {
            Some(node) => Some(symptom.slice.nodes[*node as usize].segment),
            None => gathered.outside.get(moment).and_then(|i| sites.segment(i.execution, i.insn)),
        };
        for (trial, verdict, _) in gathered.search.told.iter().filter(|(t, ..)| t.change == Change::Flip) {
            if stop() {
                return None;
            }
            let (pc, repaired) = (trial.moment.pc, *verdict == Verdict::Fixed);
            *repairing.entry(pc).or_default() |= repaired;
            for call in segment(&trial.moment).map(|s| way.calls(s)).unwrap_or_default() {
                let (tried, good) = under.entry(call).or_default();
                tried.insert(pc);
                if repaired {
                    good.insert(pc);
                }
            }
        }
        under.retain(|call, (_, good)| !good.is_empty() && places.is_own(*call));
        let mut counted: HashMap<u64, Counted> = under
            .into_iter()
            .map(|(call, (tried, good))| (call, Counted::new(tried.len() as u32, good.len() as u32)))
            .collect();
        for (n, p) in gathered.branches.list.iter().rev().take(MOST).enumerate() {
            if n.is_multiple_of(STEP) && stop() {
                return None;
            }
            for call in segment(&p.moment).map(|s| way.calls(s)).unwrap_or_default() {
                if let Some(c) = counted.get_mut(&call) {
                    c.executed += 1;
                }
            }
        }
        let mut above = HashMap::new();
        for finding in gathered.search.critical.iter().filter(|f| f.trial.change == Change::Flip) {
            let moment = &finding.trial.moment;
            let calls = segment(moment).map(|s| way.calls(s)).unwrap_or_default();
            above.extend(calls.into_iter().find(|c| counted.contains_key(c)).map(|c| (*moment, c)));
        }
        let repaired = repairing.values().filter(|r| **r).count();
        Some(Calls { counted, above, rate: repaired.max(1) as f64 / repairing.len().max(1) as f64 })
    }

    /// The weight of the innermost call that was under way at a branch that repaired the run.
    pub fn above(&self, moment: Moment) -> Option<f64> {
        self.above.get(&moment).map(|call| self.counted[call].weight(self.rate))
    }

    /// Addresses of calls, those that most hangs on first.
    pub fn ranked(&self) -> Vec<u64> {
        let mut list: Vec<(f64, u64)> = self.counted.iter().map(|(pc, c)| (c.weight(self.rate), *pc)).collect();
        list.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        list.into_iter().map(|(_, pc)| pc).collect()
    }
}

/// The call that led to a segment.
pub fn innermost(sites: &Sites<'_>, segment: u32) -> Option<u64> {
    let call = Way { sites, above: HashMap::new() }.innermost(segment)?;
    sites.call(call)
}

/// The innermost of the calls that led to a segment that somebody wants.
pub fn innermost_of(sites: &Sites<'_>, segment: u32, mut wanted: impl FnMut(u64) -> bool) -> Option<u64> {
    Way { sites, above: HashMap::new() }.calls(segment).into_iter().find(|pc| wanted(*pc))
}

/// From branches up to the calls that led to them.
struct Way<'a> {
    sites: &'a Sites<'a>,
    /// For a segment the one of the innermost call above it.
    above: HashMap<u32, Option<u32>>,
}

impl Way<'_> {
    /// The innermost calls that were under way, each place once: what recurses may be very deep.
    fn calls(&mut self, segment: u32) -> Vec<u64> {
        let mut list: Vec<u64> = Vec::new();
        let mut at = segment;
        for _ in 0..DEEPEST {
            let Some(call) = self.innermost(at) else { break };
            list.extend(self.sites.call(call).filter(|pc| !list.contains(pc)));
            at = call;
        }
        list
    }

    fn innermost(&mut self, segment: u32) -> Option<u32> {
        let (mut passed, mut at) = (Vec::new(), segment);
        let found = loop {
            if let Some(known) = self.above.get(&at) {
                break *known;
            }
            passed.push(at);
            match self.sites.parent(at) {
                Some(parent) if self.sites.call(parent).is_some() => break Some(parent),
                Some(parent) if passed.len() < LONGEST => at = parent,
                _ => break None,
            }
        };
        self.above.extend(passed.into_iter().map(|s| (s, found)));
        found
    }
}
