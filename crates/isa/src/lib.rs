//! What one x86-64 instruction reads, writes and touches: the single table of this in the project.
//!
//! [`Isa::effects`] gives everything, by bytes of registers and by exact shapes of memory accesses; [`Isa::summary`]
//! gives the few sets that a translator needs, fast. Both cover 64-bit mode only and expect instructions decoded with
//! iced's default options.
//!
//! The base is iced-x86's instruction information. Each module adds or corrects one concern: `general` and `vector` the
//! bytes of registers, `flags`, `shapes` memory, `x87`, `mxcsr`, `system`; `summary` is the fast path.
//!
//! Guarantee: nothing is read or written that is not declared. The test `cpu` executes every instruction form that the
//! processor has from random states and checks both directions. Declared *writes* and memory accesses are exact;
//! declared *reads* may be more than matters in a given execution (an immediate mask, a shuffle).
//!
//! What it leaves out: effects of faults; the shadow stack of `call` and `ret`; microarchitectural state.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod effects;
mod flags;
mod general;
mod memory;
mod mxcsr;
mod registers;
mod shapes;
mod summary;
mod system;
mod vector;
mod x87;

pub use effects::{Access, Effects, Kind, Summary, System, Top, X87};
pub use flags::Flags;
pub use memory::{LaneMask, MemAccess, MemSize, Segment, Shape, StringReg};
pub use registers::{
    ByteRange, Gpr, GprMask, R11, RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP, Reg, RegAccess, gpr, locate,
};

#[cfg(test)]
mod tests;

use iced_x86::{Instruction, InstructionInfoFactory};
use registers::access_bits;
use summary::Table;

/// Answers questions about instructions. It holds buffers that are reused, so keep one.
pub struct Isa {
    factory: InstructionInfoFactory,
    table: Table,
    scratch: Effects,
}

impl Default for Isa {
    fn default() -> Isa {
        Isa::new()
    }
}

impl Isa {
    /// Makes one.
    pub fn new() -> Isa {
        Isa { factory: InstructionInfoFactory::new(), table: Table::new(), scratch: Effects::default() }
    }

    /// The sets that a translator needs, fast and, after the first instruction of a kind, without allocation.
    pub fn summary(&mut self, instruction: &Instruction) -> Summary {
        if let Some(summary) = self.table.get(instruction) {
            return summary;
        }
        let mut effects = core::mem::take(&mut self.scratch);
        if let Some(question) = self.table.question(instruction) {
            self.effects(&question, &mut effects);
            self.table.learn(instruction, &effects);
        }
        let summary = self.table.get(instruction).unwrap_or_else(|| {
            self.effects(instruction, &mut effects);
            effects.summary()
        });
        self.scratch = effects;
        summary
    }

    /// Everything about the instruction, into `out`, whose buffers are reused.
    ///
    /// The order of registers and memory accesses has no meaning.
    pub fn effects(&mut self, instruction: &Instruction, out: &mut Effects) {
        out.clear();
        let info = self.factory.info(instruction);
        for used in info.used_registers() {
            if let Some((reg, bytes)) = locate(used.register()) {
                let (read, write, conditional) = access_bits(used.access());
                out.regs.push(RegAccess { reg, bytes, read, write, conditional });
            }
        }
        general::registers(instruction, &mut out.regs);
        shapes::memory(instruction, info, &mut out.mem);
        vector::registers(instruction, info, &out.mem, &mut out.regs);
        let flags = flags::flag_effects(instruction);
        out.flags_read = flags.read;
        out.flags_written = flags.written;
        out.flags_undefined = flags.undefined;
        out.flags_conditional = flags.conditional;
        x87::x87(instruction, out);
        out.mxcsr = mxcsr::mxcsr(instruction);
        system::registers(instruction, out);
        system::system(instruction, out);
    }
}
