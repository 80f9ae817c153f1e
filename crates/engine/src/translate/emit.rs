//! The result of translating a block, and the buffer it is built in.

use super::Request;
use super::asm::Asm;
use super::decode::Special;
use crate::gate::at;
use alloc::vec::Vec;
use iced_x86::Encoder;
use isa::Isa;
use trace::plan::{BlockPlan, Planner};

/// A reference from emitted code to the outside.
#[derive(Clone, Copy, Debug)]
pub struct Reloc {
    /// Offset of the 32-bit field.
    pub at: u32,
    pub kind: RelocKind,
    pub target: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RelocKind {
    /// RIP-relative to a guest or engine address; the byte is the distance from the field to the instruction's end.
    Rip(u8),
    /// A rel32 to another block: linked when that exists, else to a stub.
    Exit(ExitKind),
    /// A rel32 to the common code of indirect branches that miss or run out of ticks.
    Common(Common),
    /// RIP-relative to a constant of the cache that holds a guest code address.
    Constant,
}

/// Code shared by all blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Common {
    CheckedExpired,
    DirectExpired,
}

/// Why control leaves a block for the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitKind {
    /// To a block that may be linked.
    Link,
    /// The tick budget ran out on the way to the target.
    Expired,
    /// The engine executes the block's last instruction; the target is that instruction's address.
    Special(Special, u8),
    /// The probe counter of the block at the target reached zero.
    Probe,
    /// The bytes at the target are no instruction.
    Undefined,
}

/// What happens at an offset of the emitted code; in order of offset. From these, the state of the guest at any address
/// of the cache follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event(u32);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// The code of the next guest instruction starts; the argument is that instruction's length.
    Instruction,
    /// From here on the register's guest value lies in the slot.
    Spilled(SpillSlot),
    /// From here on it is back in the register.
    Restored(SpillSlot),
    /// The block's counter has been incremented.
    Counted,
    /// The jump through the table of direct lookup: a fault here means that the target is not there.
    Lookup,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SpillSlot {
    R11 = 0,
    Rcx = 1,
    Spill0 = 2,
    Spill1 = 3,
    Spill2 = 4,
}

impl SpillSlot {
    pub fn gate_offset(self) -> i32 {
        match self {
            SpillSlot::R11 => at::R11,
            SpillSlot::Rcx => at::RCX,
            SpillSlot::Spill0 => at::SPILL0,
            SpillSlot::Spill1 => at::SPILL1,
            SpillSlot::Spill2 => at::SPILL2,
        }
    }

    fn from(n: u32) -> SpillSlot {
        [SpillSlot::R11, SpillSlot::Rcx, SpillSlot::Spill0, SpillSlot::Spill1, SpillSlot::Spill2][n as usize]
    }
}

impl Event {
    pub fn new(offset: u32, kind: EventKind, arg: u8) -> Event {
        let (k, slot) = match kind {
            EventKind::Instruction => (0, 0),
            EventKind::Spilled(s) => (1, s as u32),
            EventKind::Restored(s) => (2, s as u32),
            EventKind::Counted => (3, 0),
            EventKind::Lookup => (4, 0),
        };
        Event(offset << 12 | slot << 8 | k << 5 | arg as u32)
    }

    pub fn offset(self) -> u32 {
        self.0 >> 12
    }

    pub fn kind(self) -> EventKind {
        let slot = self.0 >> 8 & 15;
        match self.0 >> 5 & 7 {
            0 => EventKind::Instruction,
            1 => EventKind::Spilled(SpillSlot::from(slot)),
            2 => EventKind::Restored(SpillSlot::from(slot)),
            3 => EventKind::Counted,
            _ => EventKind::Lookup,
        }
    }

    /// Instruction length, or register number of a spill.
    pub fn arg(self) -> u8 {
        (self.0 & 31) as u8
    }
}

/// A translated block: code, what it refers to, and how to read its state.
#[derive(Default)]
pub struct Translation {
    pub asm: Asm,
    pub relocs: Vec<Reloc>,
    pub events: Vec<Event>,
    /// Offset of the body, behind the check for indirect branches.
    pub body: u32,
    /// Offset behind the probe's countdown; equals `body` without one.
    pub after_probe: u32,
    /// Where straight-line layout goes on, if control can run off the end of the code.
    pub next: Option<u64>,
    pub guest_len: u32,
    pub instructions: u32,
    pub conditional: bool,
    /// Bytes of trace record the block writes.
    pub record: u32,
}

impl Translation {
    pub fn clear(&mut self) {
        self.asm.bytes.clear();
        self.relocs.clear();
        self.events.clear();
        self.next = None;
        self.conditional = false;
        self.record = 0;
    }

    pub fn reloc(&mut self, at: u32, kind: RelocKind, target: u64) {
        self.relocs.push(Reloc { at, kind, target });
    }

    pub fn event(&mut self, kind: EventKind, arg: u8) {
        self.events.push(Event::new(self.asm.here(), kind, arg));
    }

    /// Spills `reg` into `slot`.
    pub fn spill(&mut self, reg: u8, slot: SpillSlot) {
        self.asm.store_gs(reg, slot.gate_offset());
        self.event(EventKind::Spilled(slot), reg);
    }

    /// Brings `reg` back from `slot`.
    pub fn restore(&mut self, reg: u8, slot: SpillSlot) {
        self.asm.load_gs(reg, slot.gate_offset());
        self.event(EventKind::Restored(slot), reg);
    }

    /// A jump to another block (`jmp`), through a tick or not.
    pub fn exit(&mut self, kind: ExitKind, target: u64) {
        let at = self.asm.jmp();
        self.reloc(at, RelocKind::Exit(kind), target);
    }

    pub fn exit_if(&mut self, cc: u8, kind: ExitKind, target: u64) {
        let at = self.asm.jcc(cc);
        self.reloc(at, RelocKind::Exit(kind), target);
    }
}

/// Everything a translation needs that outlives it.
pub struct Emitter {
    pub isa: Isa,
    pub encoder: Encoder,
    pub planner: Planner,
    pub plan: BlockPlan,
}

impl Default for Emitter {
    fn default() -> Self {
        Emitter { isa: Isa::new(), encoder: Encoder::new(64), planner: Planner::new(), plan: BlockPlan::default() }
    }
}

/// What the emission of one block carries along.
pub struct BlockState<'a> {
    pub request: &'a Request,
    /// Registers that hold engine values throughout (trace pointer, address temporary).
    pub reserved: u16,
    /// The block's counter, if it is left to the last instruction.
    pub last_counter: Option<i32>,
    /// Trace pointer register and address temporary.
    pub trace_regs: Option<(u8, Option<u8>)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_word_and_reads_back() {
        for (kind, arg) in [
            (EventKind::Instruction, 15),
            (EventKind::Spilled(SpillSlot::Spill2), 14),
            (EventKind::Restored(SpillSlot::Rcx), 1),
            (EventKind::Counted, 0),
            (EventKind::Lookup, 0),
        ] {
            let e = Event::new(0xf_1234, kind, arg);
            assert_eq!((e.offset(), e.kind(), e.arg()), (0xf_1234, kind, arg));
        }
    }
}
