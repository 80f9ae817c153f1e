//! Conditional branches of chosen code, and chosen instructions, noted as they are executed: the last ones of a stretch,
//! with their moments.
//!
//! A branch becomes a site when its block is translated, so only code that runs is asked about.

use super::replay;
use crate::gate::Gate;
use crate::state::Engine;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use model::serve::{Moment, Predicate};

/// Which branches are noted, and the last of them.
#[derive(Default)]
pub struct Predicates {
    on: bool,
    ranges: Vec<Range<u64>>,
    keep: usize,
    last: VecDeque<Predicate>,
    total: u64,
}

/// Notes branches in these ranges and what is at these places from now on, the last `keep` of them.
pub fn watch(e: &mut Engine, ranges: Vec<(u64, u64)>, places: &[u64], keep: usize) {
    let p = &mut replay(e).predicates;
    let on = !ranges.is_empty() || !places.is_empty();
    *p = Predicates { ranges: ranges.into_iter().map(|(s, e)| s..e).collect(), on, keep, ..Predicates::default() };
    e.probes.forget_predicates();
    for place in places {
        e.probes.note_predicate(*place);
    }
    e.flush();
}

/// Noted executions from the `from`-th kept one on, as many as a packet holds, and how many there were in all.
pub fn list(e: &mut Engine, from: usize) -> (Vec<Predicate>, u64) {
    const MOST: usize = 1500;
    let p = &replay(e).predicates;
    (p.last.iter().skip(from).take(MOST).copied().collect(), p.total)
}

/// The guest is at a site: notes it if it is such a branch and nobody else wants to be asked here.
pub fn note(e: &mut Engine, g: &Gate) -> bool {
    if !replay(e).predicates.on || e.probes.stops_at(g.pc) {
        return false;
    }
    let Some(instance) = e.probes.predicate_hit(g.pc) else { return false };
    let moment = Moment { tick: e.clock.now(), pc: g.pc };
    let taken = e.is_taken(g);
    let p = &mut replay(e).predicates;
    if p.last.len() >= p.keep {
        p.last.pop_front();
    }
    p.last.push_back(Predicate { moment, instance, taken });
    p.total += 1;
    true
}

impl Engine {
    /// Is the conditional branch at `pc` to be noted, and not a site yet? Then it is one now.
    pub fn notes_predicate(&mut self, pc: u64) -> bool {
        let Some(r) = &self.replay else { return false };
        self.trial.is_none()
            && r.predicates.ranges.iter().any(|range| range.contains(&pc))
            && self.probes.note_predicate(pc)
    }
}
