//! One function: its blocks, its branches and where they merge, its calls, its saves and restores.

use std::ops::Range;

use crate::merging::{Leaves, Meeting, Meetings, meetings};
use crate::saves::Save;

/// Why a block ends where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The next instruction begins another block.
    Falls,
    /// A direct jump inside the function.
    Jump,
    /// A conditional jump, `loop` or `jrcxz`.
    Conditional,
    /// An indirect jump with targets inside the function.
    Indirect,
    /// A call that comes back.
    Call,
    /// A call that never comes back, except perhaps to a landing pad.
    NoReturnCall,
    /// `ret`.
    Return,
    /// A jump to another function, or an indirect jump of which no target inside the function is known.
    TailCall,
    /// `ud2`, `hlt`, `int3`.
    Trap,
    /// What follows is no code of this function: undecodable bytes, or the end of its range.
    RunsOut,
    /// The function is larger than the limit; what follows was not looked at.
    Cut,
}

/// Whether and how control may leave the function at the end of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It stays.
    No,
    /// It may leave, to a caller or to a function that may return to the caller.
    Returning,
    /// It may leave, never to return.
    NeverReturning,
}

/// Consecutive instructions that are entered only at the first and left only after the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Address of the first instruction.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Address of the last instruction.
    pub last: u64,
    /// Why it ends.
    pub ending: Ending,
    /// Whether control may leave the function at its end.
    pub exit: Exit,
    /// Indices of the blocks that may follow, without duplicates; for a conditional jump the fall-through is the first.
    pub successors: Vec<u32>,
}

/// Where control comes together again after a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Merge {
    /// At this instruction of the function.
    At(u64),
    /// Only when the function is left.
    Exit,
    /// Nowhere: the ways go on for ever without meeting.
    Never,
}

/// What a call or a jump out of the function leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CallTarget {
    /// The code at this address.
    Direct(u64),
    /// What the dynamic linker puts into this slot.
    Slot(u64),
    /// Computed when it runs: see [`crate::Flow::observed_targets`].
    Computed,
}

/// A call or a tail call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallSite {
    /// Address of the instruction.
    pub pc: u64,
    /// What is called.
    pub target: CallTarget,
    /// It is a jump.
    pub tail: bool,
}

/// One function of an image.
#[derive(Clone, Debug)]
pub struct Function {
    pub(crate) entry: u64,
    pub(crate) name: Option<String>,
    pub(crate) parts: Vec<Range<u64>>,
    pub(crate) blocks: Vec<Block>,
    /// Addresses of all instructions, sorted, and the block of each.
    pub(crate) instructions: Vec<u64>,
    pub(crate) block_of: Vec<u32>,
    pub(crate) meetings: Meetings,
    pub(crate) merge_points: Vec<u64>,
    pub(crate) calls: Vec<CallSite>,
    pub(crate) saves: Vec<Save>,
    pub(crate) restores: Vec<Save>,
    pub(crate) never_returns: bool,
    pub(crate) unresolved: Vec<u64>,
    pub(crate) cut: bool,
}

impl Function {
    /// Its first instruction.
    pub fn entry(&self) -> u64 {
        self.entry
    }

    /// Its name, if a hint gave one; the alphabetically first of several.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The address ranges it consists of: the first holds the entry, others are parts that the compiler moved away.
    pub fn parts(&self) -> &[Range<u64>] {
        &self.parts
    }

    /// Is this the address of an instruction of the function, as far as its code is known?
    pub fn contains(&self, pc: u64) -> bool {
        self.instructions.binary_search(&pc).is_ok()
    }

    /// Addresses of its instructions, in order.
    pub fn instructions(&self) -> &[u64] {
        &self.instructions
    }

    /// Its blocks, by ascending start.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The block that holds the instruction at `pc`.
    pub fn block(&self, pc: u64) -> Option<&Block> {
        self.block_index(pc).map(|b| &self.blocks[b])
    }

    pub(crate) fn block_index(&self, pc: u64) -> Option<usize> {
        self.instructions.binary_search(&pc).ok().map(|i| self.block_of[i] as usize)
    }

    /// Where control comes together again after the branch at `pc`, if calls that never return count as a way out.
    ///
    /// For an instruction that is no branch this is the next one; for one that is not of this function, `Exit`.
    pub fn merge(&self, pc: u64) -> Merge {
        self.merge_in(&self.meetings.strict, pc)
    }

    /// The same if code that can only end in calls that never return, `ud2` and the like is left out of account.
    ///
    /// A branch inside such code merges as [`Function::merge`] says.
    pub fn merge_ignoring_noreturn(&self, pc: u64) -> Merge {
        self.merge_in(&self.meetings.lenient, pc)
    }

    fn merge_in(&self, meetings: &[Meeting], pc: u64) -> Merge {
        let Ok(i) = self.instructions.binary_search(&pc) else { return Merge::Exit };
        let block = self.block_of[i] as usize;
        if self.blocks[block].last != pc {
            // Inside a block the instructions are consecutive unless code overlaps itself.
            return self.instructions.get(i + 1).map_or(Merge::Exit, |next| Merge::At(*next));
        }
        match meetings[block] {
            Meeting::Node(n) => Merge::At(self.blocks[n as usize].start),
            Meeting::Exit => Merge::Exit,
            Meeting::Never => Merge::Never,
        }
    }

    /// Addresses at which some branch merges, in either view, sorted.
    pub fn merge_points(&self) -> &[u64] {
        &self.merge_points
    }

    /// May control go several ways after this instruction, by its own decision? True for conditional jumps, `loop`,
    /// `jrcxz`, and indirect jumps with targets inside the function.
    pub fn is_branch(&self, pc: u64) -> bool {
        self.block(pc).is_some_and(|b| b.last == pc && b.is_branch())
    }

    /// No path through it ends in a return, as far as names and code show.
    pub fn never_returns(&self) -> bool {
        self.never_returns
    }

    /// Candidate saves of callee-saved registers: the first ones by address.
    pub fn saves(&self) -> &[Save] {
        &self.saves
    }

    /// Candidate restores: the last ones before each way out, sorted by address.
    pub fn restores(&self) -> &[Save] {
        &self.restores
    }

    /// Its calls and tail calls, by address.
    pub fn calls(&self) -> &[CallSite] {
        &self.calls
    }

    /// Those of them that are jumps.
    pub fn tail_calls(&self) -> impl Iterator<Item = &CallSite> {
        self.calls.iter().filter(|c| c.tail)
    }

    /// Addresses that it calls or jumps to directly, sorted, without duplicates.
    pub fn callees(&self) -> Vec<u64> {
        let direct = |c: &CallSite| if let CallTarget::Direct(to) = c.target { Some(to) } else { None };
        let mut callees: Vec<u64> = self.calls.iter().filter_map(direct).collect();
        callees.sort_unstable();
        callees.dedup();
        callees
    }

    /// Indirect jumps whose targets were not recognised: their edges are those that were observed.
    pub fn unresolved(&self) -> &[u64] {
        &self.unresolved
    }

    /// It is larger than the limit: only a part was analysed.
    pub fn is_cut(&self) -> bool {
        self.cut
    }
}

impl Block {
    /// Its last instruction decides between several ways.
    pub fn is_branch(&self) -> bool {
        matches!(self.ending, Ending::Conditional | Ending::Indirect)
    }
}

pub(crate) fn blocks_meetings(blocks: &[Block], roots: &[u32]) -> Meetings {
    let successors: Vec<Vec<u32>> = blocks.iter().map(|b| b.successors.clone()).collect();
    let leaves = |b: &Block| match b.exit {
        Exit::No => Leaves::No,
        Exit::Returning => Leaves::Returning,
        Exit::NeverReturning => Leaves::NeverReturning,
    };
    meetings(&successors, &blocks.iter().map(leaves).collect::<Vec<_>>(), roots)
}

/// Addresses at which a branch merges, in either view.
pub(crate) fn all_merge_points(blocks: &[Block], meetings: &Meetings) -> Vec<u64> {
    let branches = blocks.iter().enumerate().filter(|(_, b)| b.successors.len() > 1 || b.is_branch());
    let met = branches.flat_map(|(i, _)| [meetings.strict[i], meetings.lenient[i]]);
    let mut points: Vec<u64> =
        met.filter_map(|m| if let Meeting::Node(n) = m { Some(blocks[n as usize].start) } else { None }).collect();
    points.sort_unstable();
    points.dedup();
    points
}
