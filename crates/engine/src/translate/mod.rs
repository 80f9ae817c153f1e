//! Translation: one guest basic block becomes relocatable code that does the same and reports what the mode asks for.
//!
//! Copy and annotate: instructions are copied as they are; only RIP-relative operands, GS accesses and control transfers
//! change. Inserted code leaves flags alone, unless a liveness pass shows them dead, and writes nothing below the guest's
//! stack pointer; scratch registers are spilled into the gate.
//!
//! A [`Translation`] refers to the outside only through its relocations, so it can be installed at any place within
//! reach, or kept in a persistent store under its [`Key`].

pub mod asm;
mod block;
mod copy;
mod decode;
pub mod emit;
mod liveness;
pub mod terminator;
mod traced;

pub use block::translate;
pub use decode::{Decoded, Ending, MAX_INSTRUCTIONS, Special, decode_block};
pub use emit::{Common, Emitter, Event, EventKind, ExitKind, Reloc, RelocKind, SpillSlot, Translation};
pub use liveness::{CodeAt, LOOK_AHEAD_BYTES};

use crate::direct::Lookup;
use model::Mode;

/// What a persistent store would file a translation under.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    /// Hash of the guest bytes the translation was made from.
    pub content: u64,
    /// Address of the block; relative to its image once images have names.
    pub offset: u64,
    pub mode: Mode,
    pub ticks: bool,
    pub virtual_time: bool,
    pub lookup: Lookup,
}

/// What decides how a block is translated, besides its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub pc: u64,
    pub mode: Mode,
    /// Count ticks: at backward branches, backward calls and indirect branches.
    pub ticks: bool,
    /// Put the code that indirect branches land on in front of the body.
    pub indirect_entry: bool,
    /// How the block's indirect branch finds its target.
    pub lookup: Lookup,
    /// Stop after this many instructions.
    pub max_instructions: usize,
    /// The block has an armed probe at its start: count it down in this gate slot first.
    pub probe_counter: Option<i32>,
    pub block_id: u32,
    /// Gate-relative counter of the block's executions (mode count).
    pub counter: Option<i32>,
    /// Gate-relative counter of how often its conditional branch is taken (coverage).
    pub taken_counter: Option<i32>,
    /// Emulate time-stamp and random instructions instead of executing them.
    pub virtual_time: bool,
}

impl Key {
    /// The key of the translation of `bytes` as requested. Blocks with a probe have none: they are used once.
    pub fn of(bytes: &[u8], request: &Request) -> Option<Key> {
        let Request { pc: offset, mode, ticks, virtual_time, lookup, probe_counter, .. } = *request;
        probe_counter.is_none().then(|| Key { content: content_hash(bytes), offset, mode, ticks, virtual_time, lookup })
    }
}

/// FNV-1a over the bytes, which is enough to tell versions of code apart; a store would verify the bytes as well.
fn content_hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ *b as u64).wrapping_mul(0x100_0000_01b3))
}
