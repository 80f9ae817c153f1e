//! A slice: instructions that ran and matter, why each does, and how far it is from the criterion.

use std::time::Instant;

use crate::registers::RegId;

/// Why a node is in the slice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Why {
    /// It is what the slice was asked for.
    Criterion,
    /// It made the value of a register that the other one used.
    Reg(RegId),
    /// It made the byte at this address that the other one used.
    Mem(u64),
    /// It decided that the other one ran.
    Control,
    /// Had it gone the other way, something that the other one used might have been made elsewhere.
    Potential,
}

/// One executed instruction of the slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    pub pc: u64,
    /// When: the number of the block or event in its window, and of the instruction in it.
    pub execution: u32,
    pub insn: u16,
    /// The segment of the window that it belongs to.
    pub segment: u32,
    pub thread: u32,
    /// Steps from the criterion.
    pub distance: u32,
    /// The node through which the shortest path leads, and what the two have in common.
    pub via: u32,
    pub why: Why,
    /// It is a system call; which one of the window's.
    pub call: Option<u32>,
}

/// `user` depends on `maker`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edge {
    pub user: u32,
    pub maker: u32,
    pub why: Why,
}

/// Something the slice needs that was there before the window began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    Reg { thread: u32, reg: RegId, node: u32 },
    Mem { addr: u64, mask: u64, node: u32, distance: u32 },
}

/// What a slice comes to at one instruction of the code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Site {
    pub pc: u64,
    /// How many of its executions are in the slice, or led to library code that is.
    pub instances: u64,
    /// Steps from the criterion to the nearest of them, or of the library code that it led to.
    pub distance: u32,
}

/// A system call in the slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Called {
    /// Its number; `u64::MAX` if nothing is known about the call.
    pub nr: u64,
    /// The number of its record in the log.
    pub record: Option<u64>,
}

/// Bytes that a system call delivered and that the slice needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivered {
    /// The call, by the number of its record in the log.
    pub record: u64,
    /// Where they are among all that the call delivered.
    pub offset: u64,
    pub len: u64,
    /// The call in the slice, if nodes are kept, and how far it is from the criterion.
    pub node: u32,
    pub distance: u32,
}

/// What is in the slice. Node 0 is the criterion itself, not an instruction.
#[derive(Clone, Debug, Default)]
pub struct Slice {
    /// Only the criterion if nodes were not asked for ([`crate::Options::only_sites`]).
    pub nodes: Vec<Node>,
    /// What it comes to at each instruction of the code, in the order of their addresses.
    pub sites: Vec<Site>,
    /// Executed instructions in the slice.
    pub size: u64,
    /// Dependences that were followed: registers, memory accesses and decisions that its instructions used.
    pub uses: u64,
    /// The system calls in the slice, the last one first.
    pub calls: Vec<Called>,
    /// When so many instructions of the code as asked for had been found ([`crate::Options::page`]).
    pub first_page: Option<Instant>,
    /// Only if all edges were asked for.
    pub edges: Vec<Edge>,
    pub inputs: Vec<Input>,
    pub delivered: Vec<Delivered>,
    /// Save and restore pairs that were passed over.
    pub bypassed: u64,
    /// The saves and restores of these pairs, in no order, if the slice is of one window: execution and instruction.
    pub passed: Vec<(u32, u16)>,
    /// The walk was ended by its budget or by the user.
    pub cut: bool,
}

impl Slice {
    /// The shortest path from a node to the criterion, both included.
    pub fn path(&self, node: u32) -> Vec<u32> {
        let mut path = vec![node];
        let mut at = node;
        while at != 0 && path.len() <= self.nodes.len() {
            at = self.nodes[at as usize].via;
            path.push(at);
        }
        path
    }
}
