//! What a slice asks about code beyond what ran: where branches merge, and what saves and restores registers.

use crate::registers::RegId;
use std::ops::Range;

/// Where the ways from a branch come together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Merge {
    /// At this instruction.
    At(u64),
    /// Only when the function is left, or never.
    Exit,
    /// It is not known that there are several ways.
    NoBranch,
}

/// What might be written by code that did not run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MayDefine {
    /// Registers, as bits.
    pub registers: u64,
    /// Bytes of the frame, from the slot of its return address on.
    pub frame: Vec<Range<i64>>,
    pub memory: Vec<Range<u64>>,
    /// Something that a pointer leads to, outside the stack.
    pub pointers: bool,
    /// Code outside the image is called, which may write output.
    pub outside: bool,
}

impl MayDefine {
    pub fn is_empty(&self) -> bool {
        *self == MayDefine::default()
    }

    /// Takes in another one.
    pub fn add(&mut self, other: MayDefine) {
        self.registers |= other.registers;
        self.frame.extend(other.frame);
        self.memory.extend(other.memory);
        self.pointers |= other.pointers;
        self.outside |= other.outside;
    }
}

/// What an instruction at a function's border does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Border {
    /// It puts a register of the caller aside.
    Save(RegId),
    /// It brings it back.
    Restore(RegId),
}

/// Facts about the code of a process; addresses are the guest's.
pub trait Facts {
    /// Where the ways from the branch at this address come together.
    fn merge(&mut self, branch: u64) -> Merge;

    /// The merge points behind `start` and before `end`, in order.
    fn merge_points(&mut self, start: u64, end: u64) -> Vec<u64>;

    /// Do the ways from a branch come together at this instruction?
    fn is_merge_point(&mut self, pc: u64) -> bool;

    fn border(&mut self, pc: u64) -> Option<Border>;

    /// An indirect jump was seen to go from one address to another.
    fn observe(&mut self, from: u64, to: u64);

    fn same_function(&mut self, a: u64, b: u64) -> bool;

    /// What might have been written had the branch not gone to `went`, until its ways come together.
    fn other_ways(&mut self, branch: u64, went: u64) -> MayDefine;

    /// Is this code of the dynamic linker? What it makes (addresses of functions and variables) is taken as given: that a
    /// library was loaded says nothing about a program's values.
    fn is_linker(&mut self, pc: u64) -> bool;
}

/// Knows nothing: branches merge when their function is left.
pub struct NoFacts;

impl Facts for NoFacts {
    fn merge(&mut self, _: u64) -> Merge {
        Merge::Exit
    }
    fn is_merge_point(&mut self, _: u64) -> bool {
        false
    }

    fn merge_points(&mut self, _: u64, _: u64) -> Vec<u64> {
        Vec::new()
    }
    fn border(&mut self, _: u64) -> Option<Border> {
        None
    }
    fn observe(&mut self, _: u64, _: u64) {}
    fn same_function(&mut self, _: u64, _: u64) -> bool {
        true
    }
    fn other_ways(&mut self, _: u64, _: u64) -> MayDefine {
        MayDefine::default()
    }
    fn is_linker(&mut self, _: u64) -> bool {
        false
    }
}
