//! A block as the host knows it: decoded from the bytes the engine sent, with its plan.
//!
//! Guarantees: the instructions are those the engine planned, because both decode the same bytes at the same address.
//! An undecodable instruction is kept as the last one (the guest may run into it and get its SIGILL); what follows it
//! is dropped.

use std::fmt;

use iced_x86::{Decoder, DecoderOptions, Instruction};
use model::wire::BlockDef;

use crate::format::MAX_BLOCKS;
use crate::plan::{BlockPlan, Planner};

/// More instructions than any engine puts into one block; plans count them in 16 bits.
pub const MAX_INSTRUCTIONS: usize = 1 << 12;

/// A block, decoded and planned.
#[derive(Clone, Debug)]
pub struct Block {
    pub id: u32,
    pub pc: u64,
    pub insns: Vec<Instruction>,
    pub plan: BlockPlan,
}

/// Why a block definition cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockError {
    /// The id does not fit into a tag.
    BadId(u32),
    /// The id already has other instructions.
    Redefined(u32),
    /// More instructions than a plan can number.
    TooLong(u32),
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlockError::BadId(id) => write!(f, "block id {id:#x} is out of range"),
            BlockError::Redefined(id) => write!(f, "block {id} is defined twice, differently"),
            BlockError::TooLong(id) => write!(f, "block {id} has too many instructions"),
        }
    }
}

impl std::error::Error for BlockError {}

impl Block {
    /// Decodes and plans a definition.
    pub fn new(def: &BlockDef, planner: &mut Planner) -> Result<Block, BlockError> {
        if def.id >= MAX_BLOCKS {
            return Err(BlockError::BadId(def.id));
        }
        let mut insns = Vec::new();
        let mut decoder = Decoder::with_ip(64, &def.bytes, def.pc.0, DecoderOptions::NONE);
        while decoder.can_decode() {
            if insns.len() == MAX_INSTRUCTIONS {
                return Err(BlockError::TooLong(def.id));
            }
            let i = decoder.decode();
            insns.push(i);
            if i.is_invalid() {
                break;
            }
        }
        let mut plan = BlockPlan::new();
        planner.plan(&insns, &mut plan);
        Ok(Block { id: def.id, pc: def.pc.0, insns, plan })
    }

    /// Whether the other one is the same code at the same address.
    pub fn is_same(&self, other: &Block) -> bool {
        self.pc == other.pc && self.insns == other.insns
    }
}
