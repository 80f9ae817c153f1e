//! Branches and indirect jumps of chosen code, and chosen instructions, noted as they are executed: the last ones of a
//! stretch, with their moments.
//!
//! A branch becomes a site when its block is translated, so only code that runs is asked about.

use super::{replay, serve};
use crate::gate::Gate;
use crate::state::Engine;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use iced_x86::{FlowControl, Instruction};
use model::serve::{Moment, Predicate};

/// Which branches are noted, and the last of them.
#[derive(Default)]
pub struct Predicates {
    on: bool,
    ranges: Vec<Range<u64>>,
    /// Indirect jumps in the ranges are noted, too.
    jumps: bool,
    keep: usize,
    last: VecDeque<Predicate>,
    total: u64,
}

/// Notes branches in these ranges and what is at these places from now on, the last `keep` of them; with none to keep, they
/// are only counted, which costs a few instructions each instead of a way out of the cache.
pub fn watch(e: &mut Engine, ranges: Vec<(u64, u64)>, places: &[u64], jumps: bool, keep: usize) {
    let p = &mut replay(e).predicates;
    let on = !ranges.is_empty() || !places.is_empty();
    let ranges = ranges.into_iter().map(|(s, e)| s..e).collect();
    *p = Predicates { ranges, jumps, on, keep, ..Predicates::default() };
    e.probes.forget_predicates();
    e.probes.only_count(keep == 0);
    for place in places {
        e.probes.note_predicate(*place);
    }
    e.flush();
}

/// Notes the last `keep` from now on where executions were only counted before.
pub fn keep(e: &mut Engine, keep: usize) {
    let total = e.probes.count_noted();
    e.probes.only_count(false);
    let p = &mut replay(e).predicates;
    (p.keep, p.total) = (keep, total);
}

/// Noted executions from the `from`-th kept one on, as many as a packet holds, and how many there were in all.
pub fn list(e: &mut Engine, from: usize) -> (Vec<Predicate>, u64) {
    const MOST: usize = 1200;
    if replay(e).predicates.keep == 0 {
        return (Vec::new(), e.probes.count_noted());
    }
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
    let (taken, to) = (e.is_taken(g), serve::jump_target(e, g).unwrap_or(0));
    let p = &mut replay(e).predicates;
    if p.last.len() >= p.keep {
        p.last.pop_front();
    }
    p.last.push_back(Predicate { moment, instance, taken, to });
    p.total += 1;
    true
}

impl Engine {
    /// Is the branch that ends a block to be noted, and not a site yet? Then it is one now.
    pub fn notes_predicate(&mut self, branch: &Instruction) -> bool {
        let Some(r) = &self.replay else { return false };
        let p = &r.predicates;
        let is_wanted = branch.is_jcc_short_or_near() || p.jumps && is_computed_jump(branch);
        is_wanted
            && self.trial.is_none()
            && p.ranges.iter().any(|range| range.contains(&branch.ip()))
            && self.probes.note_predicate(branch.ip())
    }
}

/// An indirect jump whose target is computed; what goes through one fixed word is a call of a library.
fn is_computed_jump(branch: &Instruction) -> bool {
    branch.flow_control() == FlowControl::IndirectBranch && !branch.is_ip_rel_memory_operand()
}
