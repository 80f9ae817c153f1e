//! How far executed instructions are from the symptom.
//!
//! A window counts executions in its own way, the engine counts moments. Both are in order, so the last execution of an
//! instruction before the symptom in the one is the last in the other, and so on back.

use super::symptom::Symptom;
use crate::case::Branches;
use diagnose::order::Known;
use model::serve::{Moment, Predicate};
use slice::{Instance, Slice, Window};
use std::collections::{HashMap, HashSet};

/// The nodes of a slice, by execution and instruction.
pub struct Nodes {
    by_place: HashMap<(u32, u16), u32>,
}

impl Nodes {
    /// Those at these addresses.
    pub fn of(slice: &Slice, wanted: impl Fn(u64) -> bool) -> Nodes {
        let nodes = slice.nodes.iter().enumerate().skip(1);
        let nodes = nodes.filter(|(_, n)| wanted(n.pc));
        Nodes { by_place: nodes.map(|(k, n)| ((n.execution, n.insn), k as u32)).collect() }
    }

    /// The node of this execution.
    pub fn at(&self, instance: &Instance) -> Option<u32> {
        self.by_place.get(&(instance.execution, instance.insn)).copied()
    }
}

/// For each of these executions, which are in order, the same one in the window; nothing for those outside it.
pub fn align(executions: &[Predicate], before: Moment, window: &Window) -> Vec<Option<Instance>> {
    let mut pcs: Vec<u64> = executions.iter().map(|p| p.moment.pc).collect();
    pcs.sort_unstable();
    pcs.dedup();
    let mut left = window.instances(&pcs);
    let mut found = vec![None; executions.len()];
    for (n, p) in executions.iter().enumerate().rev() {
        if p.moment < before
            && let Some(list) = left.get_mut(&p.moment.pc)
        {
            found[n] = list.pop();
        }
    }
    found
}

/// Where executed branches are in the slice.
pub struct Near {
    /// How far each one is from the symptom, and what else is known about it.
    pub known: Vec<Known>,
    pub nodes: HashMap<Moment, u32>,
    /// Those that are in the window only.
    pub outside: HashMap<Moment, Instance>,
}

impl Near {
    pub fn of(symptom: Option<&Symptom>, found: &Branches) -> Near {
        let known = vec![Known::default(); found.list.len()];
        let mut near = Near { known, nodes: HashMap::new(), outside: HashMap::new() };
        let Some(s) = symptom else { return near };
        let pcs: HashSet<u64> = found.list.iter().map(|p| p.moment.pc).collect();
        let nodes = Nodes::of(&s.slice, |pc| pcs.contains(&pc));
        let aligned = align(&found.list, s.start.moment, &s.window);
        for (n, instance) in aligned.iter().enumerate() {
            let Some(instance) = instance else { continue };
            let known = &mut near.known[n];
            known.influence = s.influence(instance.execution);
            known.vouched = s.vouched.has(instance.execution, instance.insn);
            match nodes.at(instance) {
                Some(node) => {
                    known.distance = Some(s.slice.nodes[node as usize].distance);
                    near.nodes.insert(found.list[n].moment, node);
                }
                None => drop(near.outside.insert(found.list[n].moment, *instance)),
            }
        }
        Known::settle(&mut near.known);
        near
    }
}
