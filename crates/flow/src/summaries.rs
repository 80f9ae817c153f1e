//! What functions may write with everything they call, and the answers about code that did not run.
//!
//! A function's summary is the union of what the functions write that can be reached from it over calls and tail calls,
//! which needs no iteration for recursion. It is made when first asked for and dropped when an observation changes
//! something.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use isa::Effects;

use crate::define::{MayDefine, Region, region};
use crate::function::{CallTarget, Function, Merge};
use crate::places::{Place, Places, stores};
use crate::view::Flow;

/// Functions that a summary takes into account.
const LARGEST_TREE: usize = 256;
/// Instructions that a summary takes into account.
const LARGEST_CODE: usize = 100_000;

/// What was computed and stays valid until something new is observed.
#[derive(Debug, Default)]
pub struct Summaries {
    places: HashMap<u64, (Arc<Function>, Arc<Places>)>,
    regions: HashMap<u64, Arc<Region>>,
    whole: HashMap<u64, Arc<MayDefine>>,
}

impl Summaries {
    /// A call was seen to go somewhere new.
    pub fn forget_call_trees(&mut self) {
        self.whole.clear();
    }

    /// The graph of the function at `entry` changes.
    pub fn forget(&mut self, entry: u64) {
        self.regions.remove(&entry);
        self.places.remove(&entry);
        self.whole.clear();
    }
}

impl Flow {
    /// What might be written if control went from `from`, an instruction of the function that contains `function_pc`, to
    /// `until`, with everything that is called on the way. Nothing if `from` is not in the function, or is `until`.
    pub fn may_define(&mut self, function_pc: u64, from: u64, until: Merge) -> MayDefine {
        let Some(function) = self.function(function_pc) else { return MayDefine::default() };
        let places = self.places_of(&function);
        let region = region(&self.memory, &mut self.isa, &function, &places, from, until);
        self.with_callees(&region)
    }

    /// What the function at `entry` might write, with everything it calls, seen from itself: preserved registers that it
    /// saves and restores count as written.
    pub fn summary(&mut self, entry: u64) -> Arc<MayDefine> {
        if let Some(summary) = self.summaries.whole.get(&entry) {
            return summary.clone();
        }
        let mut out = MayDefine::default();
        // Functions with what is to be added to their frame offsets: known only for those that took over this frame.
        let mut work = VecDeque::from([(entry, true)]);
        let mut seen = HashSet::from([entry]);
        let mut instructions = 0;
        while let Some((at, same_frame)) = work.pop_front() {
            let Some(function) = self.function(at) else {
                out.add_unknown_code();
                continue;
            };
            instructions += function.instructions().len();
            if seen.len() > LARGEST_TREE || instructions > LARGEST_CODE || function.is_cut() {
                out.add_unknown_code();
                break;
            }
            let region = self.region_of(&function);
            match (at == entry, same_frame) {
                (true, _) => out = region.own.clone(),
                (false, true) => out.add_callee(&region.own, Some(0)),
                (false, false) => {
                    // Its arguments on the stack are its own.
                    out.add_callee(&region.own.without_arguments(), None);
                }
            }
            for call in &region.calls {
                let tail = same_frame && call.frame_shift == Some(0) && function.tail_calls().any(|t| t.pc == call.pc);
                for target in self.targets(call.pc, call.target, &mut out) {
                    if seen.insert(target) {
                        work.push_back((target, tail));
                    }
                }
            }
        }
        out.tidy();
        let out = Arc::new(out);
        self.summaries.whole.insert(entry, out.clone());
        out
    }

    /// Where the stores of the instruction at `pc` go. Empty if it stores nothing; what a call pushes does not count.
    pub fn store_places(&mut self, pc: u64) -> Vec<Place> {
        let Some(function) = self.function(pc) else { return Vec::new() };
        let Some(block) = function.block_index(pc) else { return Vec::new() };
        let places = self.places_of(&function);
        let mut found = Vec::new();
        let mut effects = Effects::default();
        places.visit(&self.memory, &mut self.isa, &function, block, Some(pc), &mut |isa, instruction, state| {
            if instruction.ip() == pc {
                isa.effects(instruction, &mut effects);
                found = stores(&effects, instruction, state);
            }
        });
        found
    }

    /// The stack pointer before the instruction at `pc`, as an offset from its value at the function's entry.
    pub fn stack_offset(&mut self, pc: u64) -> Option<i64> {
        let function = self.function(pc)?;
        let block = function.block_index(pc)?;
        let places = self.places_of(&function);
        let mut found = None;
        places.visit(&self.memory, &mut self.isa, &function, block, Some(pc), &mut |_, instruction, state| {
            if instruction.ip() == pc {
                found = state.stack_offset();
            }
        });
        found
    }

    fn with_callees(&mut self, region: &Region) -> MayDefine {
        let mut out = region.own.clone();
        let mut added = HashSet::new();
        for call in &region.calls {
            for target in self.targets(call.pc, call.target, &mut out) {
                if !added.insert((target, call.frame_shift)) {
                    continue;
                }
                if added.len() > LARGEST_TREE {
                    out.add_unknown_code();
                    break;
                }
                let callee = self.summary(target);
                out.add_callee(&callee, call.frame_shift);
            }
        }
        out.tidy();
        out
    }

    /// The functions of this image that a call may lead to. What else it may lead to is added to `out`.
    fn targets(&self, pc: u64, target: CallTarget, out: &mut MayDefine) -> Vec<u64> {
        match target {
            CallTarget::Direct(to) => vec![to],
            CallTarget::Slot(slot) => {
                out.add_import(self.extents.import(slot));
                Vec::new()
            }
            CallTarget::Computed => {
                // Others than those that were seen are possible.
                out.add_unknown_code();
                self.observed_targets(pc)
            }
        }
    }

    fn places_of(&mut self, function: &Arc<Function>) -> Arc<Places> {
        if let Some((of, places)) = self.summaries.places.get(&function.entry())
            && Arc::ptr_eq(of, function)
        {
            return places.clone();
        }
        let places = Arc::new(Places::new(&self.memory, &mut self.isa, function));
        self.summaries.places.insert(function.entry(), (function.clone(), places.clone()));
        places
    }

    /// The whole function as a region.
    fn region_of(&mut self, function: &Arc<Function>) -> Arc<Region> {
        if let Some(region) = self.summaries.regions.get(&function.entry()) {
            return region.clone();
        }
        let places = self.places_of(function);
        let whole = region(&self.memory, &mut self.isa, function, &places, function.entry(), Merge::Exit);
        let whole = Arc::new(whole);
        self.summaries.regions.insert(function.entry(), whole.clone());
        whole
    }
}
