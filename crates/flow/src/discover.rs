//! Finds the code of one function by recursive descent, and makes its blocks.
//!
//! Direct jumps are followed inside the function's extent and into parts that the compiler moved away from it (`f.cold`,
//! or the middle of another extent); all other direct jumps are tail calls. Calls go on behind the call unless the callee
//! never returns. Indirect jumps lead where a jump table says and where they were observed to go; without any such
//! target they are tail calls.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use iced_x86::Instruction;
use isa::Isa;

use crate::code::Memory;
use crate::extents::Extents;
use crate::function::{Block, CallSite, CallTarget, Ending, Exit, Function, all_merge_points, blocks_meetings};
use crate::jump_table::{self, Accepted};
use crate::returns::{Next, Returns, is_never_returning_name, next, runs_out};
use crate::saves;

/// Instructions of one function that are looked at.
pub const LARGEST_FUNCTION: usize = 200_000;
/// Blocks of one function that are looked at: post-dominators take quadratic time in the worst case.
pub const MOST_BLOCKS: usize = 40_000;
/// Parts that one function may have.
const MOST_PARTS: usize = 16;
/// Bytes of an unnamed extent in which a jump back is looked for.
const COLD_PART: u64 = 4_096;

/// What runs have shown, by the address of the instruction that control came from.
#[derive(Debug, Default)]
pub struct Observed {
    pub targets: HashMap<u64, BTreeSet<u64>>,
    /// From a call to where an exception was caught.
    pub landings: HashMap<u64, BTreeSet<u64>>,
    /// Further ways into a function, by its start.
    pub roots: HashMap<u64, BTreeSet<u64>>,
}

/// Where control goes after the last instruction of a block.
#[derive(Clone, Debug)]
struct Ways {
    ending: Ending,
    targets: Vec<u64>,
    exit: Exit,
}

pub struct Discovery<'a> {
    pub memory: &'a Memory,
    pub extents: &'a Extents,
    pub observed: &'a Observed,
    pub returns: &'a mut Returns,
    pub isa: &'a mut Isa,
}

/// The state of one function's discovery.
struct Walk<'a, 'b> {
    with: &'b mut Discovery<'a>,
    parts: Vec<Range<u64>>,
    code: HashMap<u64, Instruction>,
    leaders: BTreeSet<u64>,
    work: Vec<u64>,
    ways: BTreeMap<u64, Ways>,
    calls: Vec<CallSite>,
    /// Indirect jumps for which no table is known yet.
    pending: BTreeSet<u64>,
    cut: bool,
}

impl Discovery<'_> {
    /// The function whose extent is `range`.
    pub fn function(&mut self, range: Range<u64>) -> Function {
        let entry = range.start;
        let name = self.extents.at(entry).and_then(|e| e.names.first().cloned());
        let roots: Vec<u64> = self.observed.roots.get(&entry).into_iter().flatten().copied().collect();
        let mut walk = Walk {
            with: self,
            parts: vec![range],
            code: HashMap::new(),
            leaders: BTreeSet::new(),
            work: Vec::new(),
            ways: BTreeMap::new(),
            calls: Vec::new(),
            pending: BTreeSet::new(),
            cut: false,
        };
        walk.go_to(entry);
        walk.run();
        for root in &roots {
            // What the entry reaches needs no further way in.
            if !walk.code.contains_key(root) && walk.adopt(*root) {
                walk.go_to(*root);
                walk.run();
            }
        }
        let never_returns = !walk.with.returns.may_return(walk.with.memory, walk.with.extents, entry);
        walk.finish(entry, name, &roots, never_returns)
    }
}

impl Walk<'_, '_> {
    fn go_to(&mut self, addr: u64) {
        if self.leaders.insert(addr) && !self.code.contains_key(&addr) {
            self.work.push(addr);
        }
    }

    /// Follows everything that can be followed.
    fn run(&mut self) {
        loop {
            while let Some(from) = self.work.pop() {
                self.follow(from);
            }
            if !self.resolve_tables() {
                break;
            }
        }
    }

    fn part_end(&self, addr: u64) -> Option<u64> {
        self.parts.iter().find(|p| p.contains(&addr)).map(|p| p.end)
    }

    /// Decodes from a leader to the end of its block or to code that is known.
    fn follow(&mut self, from: u64) {
        let Some(end) = self.part_end(from) else { return };
        let memory = self.with.memory;
        for instruction in memory.instructions(from) {
            let at = instruction.ip();
            if self.code.contains_key(&at) {
                self.leaders.insert(at);
                return;
            }
            if instruction.next_ip() > end {
                return;
            }
            if self.code.len() >= LARGEST_FUNCTION || self.ways.len() >= MOST_BLOCKS {
                self.cut = true;
                return;
            }
            self.code.insert(at, instruction);
            if let Some(ways) = self.ways_after(&instruction) {
                for target in &ways.targets {
                    self.go_to(*target);
                }
                self.ways.insert(at, ways);
                return;
            }
        }
    }

    /// Where the instruction leads, or `None` if only to the next one.
    fn ways_after(&mut self, instruction: &Instruction) -> Option<Ways> {
        let (at, behind) = (instruction.ip(), instruction.next_ip());
        let ways = match next(instruction) {
            Next::Falls => return None,
            // It only pushes its address, as old position-independent code does.
            Next::Call(Some(to)) if to == behind && self.with.extents.at(to).is_none() => return None,
            Next::Stops => Ways { ending: Ending::Trap, targets: Vec::new(), exit: Exit::NeverReturning },
            Next::Jump(to) => match self.belongs(to) {
                true => Ways { ending: Ending::Jump, targets: vec![to], exit: Exit::No },
                false => self.tail_call(at, to),
            },
            Next::Either(to) => match self.belongs(to) {
                true => Ways { ending: Ending::Conditional, targets: vec![behind, to], exit: Exit::No },
                false => {
                    let Ways { exit, .. } = self.tail_call(at, to);
                    Ways { ending: Ending::Conditional, targets: vec![behind], exit }
                }
            },
            Next::Call(Some(to)) => {
                self.calls.push(CallSite { pc: at, target: CallTarget::Direct(to), tail: false });
                let returns = self.with.returns.may_return(self.with.memory, self.with.extents, to);
                self.call(at, behind, returns)
            }
            Next::Call(None) => {
                self.calls.push(CallSite { pc: at, target: CallTarget::Computed, tail: false });
                self.call(at, behind, true)
            }
            Next::ThroughSlot { slot, call: true } => {
                self.calls.push(CallSite { pc: at, target: CallTarget::Slot(slot), tail: false });
                let returns = !self.with.extents.import(slot).is_some_and(is_never_returning_name);
                self.call(at, behind, returns)
            }
            Next::ThroughSlot { slot, call: false } => self.indirect(at, CallTarget::Slot(slot)),
            Next::Returns if instruction.flow_control() == iced_x86::FlowControl::Return => {
                Ways { ending: Ending::Return, targets: Vec::new(), exit: Exit::Returning }
            }
            Next::Returns => {
                self.pending.insert(at);
                self.indirect(at, CallTarget::Computed)
            }
        };
        Some(ways)
    }

    fn call(&mut self, at: u64, behind: u64, returns: bool) -> Ways {
        let returns = returns && !runs_out(self.with.memory, self.with.extents, at, behind);
        let mut ways = match returns {
            true => Ways { ending: Ending::Call, targets: vec![behind], exit: Exit::No },
            false => Ways { ending: Ending::NoReturnCall, targets: Vec::new(), exit: Exit::NeverReturning },
        };
        let landings = self.with.observed.landings.get(&at).into_iter().flatten();
        ways.targets.extend(landings.filter(|l| self.adopt(**l)));
        ways
    }

    fn tail_call(&mut self, at: u64, to: u64) -> Ways {
        self.calls.push(CallSite { pc: at, target: CallTarget::Direct(to), tail: true });
        let returns = self.with.returns.may_return(self.with.memory, self.with.extents, to);
        let exit = if returns { Exit::Returning } else { Exit::NeverReturning };
        Ways { ending: Ending::TailCall, targets: Vec::new(), exit }
    }

    /// An indirect jump with the targets that were observed.
    fn indirect(&mut self, at: u64, target: CallTarget) -> Ways {
        let observed: Vec<u64> = self.with.observed.targets.get(&at).into_iter().flatten().copied().collect();
        let (inside, outside): (Vec<u64>, Vec<u64>) = observed.into_iter().partition(|t| self.is_ours(*t));
        let never = match target {
            CallTarget::Slot(slot) => self.with.extents.import(slot).is_some_and(is_never_returning_name),
            _ => false,
        };
        let leaves = if never { Exit::NeverReturning } else { Exit::Returning };
        if inside.is_empty() || !outside.is_empty() {
            self.calls.push(CallSite { pc: at, target, tail: true });
        }
        match (inside.is_empty(), outside.is_empty()) {
            (true, _) => Ways { ending: Ending::TailCall, targets: Vec::new(), exit: leaves },
            (false, true) => Ways { ending: Ending::Indirect, targets: inside, exit: Exit::No },
            (false, false) => Ways { ending: Ending::Indirect, targets: inside, exit: leaves },
        }
    }

    /// Looks for tables of the indirect jumps that have none. True if there is more to follow.
    fn resolve_tables(&mut self) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        let mut all: Vec<&Instruction> = self.code.values().collect();
        all.sort_unstable_by_key(|i| i.ip());
        let mut found = Vec::new();
        for at in &self.pending {
            let Ok(jump) = all.binary_search_by_key(at, |i| i.ip()) else { continue };
            let accepts = |t: u64| match self.with.extents.find(t) {
                _ if self.parts.iter().any(|p| p.contains(&t)) => Accepted::Inside,
                Some((_, extent)) if extent.is_cold_part() => Accepted::Inside,
                Some((_, extent)) if extent.sized && extent.names.is_empty() => Accepted::PerhapsMoved,
                _ => Accepted::No,
            };
            let targets = jump_table::targets(self.with.memory, self.with.isa, &all, jump, &accepts);
            found.extend(targets.map(|t| (*at, t)));
        }
        for (at, targets) in &found {
            self.pending.remove(at);
            self.calls.retain(|c| c.pc != *at || !c.tail);
            let mut ways =
                self.ways.remove(at).unwrap_or(Ways { ending: Ending::Indirect, targets: Vec::new(), exit: Exit::No });
            let seen_outside = self.with.observed.targets.get(at).into_iter().flatten().any(|t| !self.is_ours(*t));
            if seen_outside {
                self.calls.push(CallSite { pc: *at, target: CallTarget::Computed, tail: true });
            }
            ways.ending = Ending::Indirect;
            ways.exit = if seen_outside { Exit::Returning } else { Exit::No };
            for target in targets {
                if self.adopt(*target) {
                    ways.targets.push(*target);
                    self.go_to(*target);
                }
            }
            ways.targets.sort_unstable();
            ways.targets.dedup();
            self.ways.insert(*at, ways);
        }
        !self.work.is_empty()
    }

    /// Is an observed target code of this function?
    fn is_ours(&self, addr: u64) -> bool {
        addr != self.parts[0].start && self.parts.iter().any(|p| p.contains(&addr))
    }

    /// Does the target of a direct jump belong to the function? If it lies in a part that was moved away, that part does
    /// from now on.
    fn belongs(&mut self, addr: u64) -> bool {
        if self.parts.iter().any(|p| p.contains(&addr)) {
            return true;
        }
        let Some((start, extent)) = self.with.extents.find(addr) else { return false };
        let moved = extent.is_cold_part()
            || addr != start
            || (extent.names.is_empty() && jumps_back(self.with.memory, start..extent.end, &self.parts[0]));
        moved && self.adopt(addr)
    }

    /// Makes the extent around `addr` a part of the function, if it is not one already.
    fn adopt(&mut self, addr: u64) -> bool {
        if self.parts.iter().any(|p| p.contains(&addr)) {
            return true;
        }
        let range = self.with.extents.find(addr).map(|(start, extent)| start..extent.end);
        match range.filter(|_| self.parts.len() < MOST_PARTS) {
            Some(range) => self.parts.push(range),
            None => return false,
        }
        true
    }

    fn finish(mut self, entry: u64, name: Option<String>, roots: &[u64], never_returns: bool) -> Function {
        let mut instructions: Vec<u64> = self.code.keys().copied().collect();
        instructions.sort_unstable();
        let starts: Vec<u64> = self.leaders.iter().copied().filter(|l| self.code.contains_key(l)).collect();
        let mut block_of = vec![0; instructions.len()];
        let mut blocks = Vec::with_capacity(starts.len());
        for start in &starts {
            let number = blocks.len() as u32;
            let mut members = Vec::new();
            blocks.push(self.block(*start, &starts, &mut members));
            for member in members {
                if let Ok(i) = instructions.binary_search(&member) {
                    block_of[i] = number;
                }
            }
        }
        let index = |addr: &u64| starts.binary_search(addr).ok().map(|i| i as u32);
        let roots: Vec<u32> = std::iter::once(&entry).chain(roots).filter_map(index).collect();
        let meetings = blocks_meetings(&blocks, &roots);
        let merge_points = all_merge_points(&blocks, &meetings);
        let (saves, restores) = self.saves_and_restores(&instructions, &blocks);
        self.calls.sort_unstable();
        self.calls.dedup();
        Function {
            entry,
            name,
            parts: self.parts,
            blocks,
            instructions,
            block_of,
            meetings,
            merge_points,
            calls: self.calls,
            saves,
            restores,
            never_returns,
            unresolved: self.pending.into_iter().collect(),
            cut: self.cut,
        }
    }

    fn block(&self, start: u64, starts: &[u64], members: &mut Vec<u64>) -> Block {
        let known = |addr: &u64| starts.binary_search(addr).ok().map(|i| i as u32);
        let mut last = start;
        let mut end = start;
        while let Some(instruction) = self.code.get(&end) {
            last = end;
            members.push(last);
            end = instruction.next_ip();
            if self.ways.contains_key(&last) || self.leaders.contains(&end) {
                break;
            }
        }
        let runs_out = if self.cut { Ending::Cut } else { Ending::RunsOut };
        let ways = self.ways.get(&last).cloned().unwrap_or_else(|| match known(&end) {
            Some(_) => Ways { ending: Ending::Falls, targets: vec![end], exit: Exit::No },
            None => Ways { ending: runs_out, targets: Vec::new(), exit: Exit::Returning },
        });
        let mut successors = Vec::new();
        for target in &ways.targets {
            match known(target) {
                Some(block) if !successors.contains(&block) => successors.push(block),
                _ => {}
            }
        }
        // A target that could not be decoded, or was cut off, leads out of what is known.
        let lost = ways.targets.iter().any(|t| known(t).is_none());
        let exit = if lost && ways.exit == Exit::No { Exit::Returning } else { ways.exit };
        Block { start, end, last, ending: ways.ending, exit, successors }
    }

    fn saves_and_restores(&self, instructions: &[u64], blocks: &[Block]) -> (Vec<saves::Save>, Vec<saves::Save>) {
        let main = &self.parts[0];
        let in_order = instructions.iter().filter(|a| main.contains(a)).filter_map(|a| self.code.get(a));
        let saves = saves::saves(in_order);
        let mut restores = Vec::new();
        for block in blocks.iter().filter(|b| matches!(b.ending, Ending::Return | Ending::TailCall)) {
            let Ok(last) = instructions.binary_search(&block.last) else { continue };
            let backwards = instructions[..last].iter().rev().filter_map(|a| self.code.get(a));
            // Only what runs into the exit: not what lies before another jump away.
            let leads_here = |i: &&Instruction| !matches!(next(i), Next::Jump(_) | Next::Returns | Next::Stops);
            restores.extend(saves::restores(backwards.take_while(leads_here)));
        }
        restores.sort_unstable();
        restores.dedup();
        (saves, restores)
    }
}

/// Does an extent that is entered by a jump to its start jump into the middle of `main`? Then it was moved away from it.
fn jumps_back(memory: &Memory, extent: Range<u64>, main: &Range<u64>) -> bool {
    jumps_out(memory, extent).any(|to| main.contains(&to) && to != main.start)
}

/// Targets of direct jumps in an extent, read from its start to its end, that lie outside it.
pub fn jumps_out(memory: &Memory, extent: Range<u64>) -> impl Iterator<Item = u64> + '_ {
    let end = extent.end.min(extent.start.saturating_add(COLD_PART));
    let inside = memory.instructions(extent.start).take_while(move |i| i.ip() < end);
    let targets = inside.filter_map(|i| match next(&i) {
        Next::Jump(to) | Next::Either(to) => Some(to),
        _ => None,
    });
    targets.filter(move |to| !extent.contains(to))
}
