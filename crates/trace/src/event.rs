//! What a trace says, one event at a time: the exact stream of instructions and memory accesses.

use crate::format::Special;

/// One event of the stream, in execution order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// An instruction completed; its accesses follow.
    Insn(Insn),
    /// The rep string instruction was stopped after some iterations, whose accesses follow; it is resumed later.
    RepPart(Insn),
    /// An access of the instruction before.
    Mem(Mem),
    /// Anything else; never [`Special::Pad`].
    Special(Special),
}

/// One instruction, by its place in a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Insn {
    pub thread: u32,
    pub pc: u64,
    pub block: u32,
    /// Index of the instruction in its block.
    pub index: u16,
}

/// One access to memory: `count` elements of `size` bytes, the first at `addr`, each next one directly above or, if
/// `down`, below the one before. Only rep string instructions have a count other than 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mem {
    pub addr: u64,
    /// Bytes per element; 0 if the instruction does not tell (`xsave` areas, tiles).
    pub size: u32,
    pub count: u64,
    pub down: bool,
    pub read: bool,
    pub write: bool,
    /// It may not have happened, or not in full, for reasons that the trace does not hold.
    pub conditional: bool,
}

impl Mem {
    /// Lowest address and number of bytes of the whole access.
    pub fn range(&self) -> (u64, u64) {
        let size = u64::from(self.size);
        let back = if self.down { self.count.wrapping_sub(1).wrapping_mul(size) } else { 0 };
        (self.addr.wrapping_sub(back), self.count.wrapping_mul(size))
    }
}

/// Takes events one by one. Any `FnMut(&Event)` will do.
pub trait Sink {
    fn event(&mut self, event: &Event);
}

impl<F: FnMut(&Event)> Sink for F {
    fn event(&mut self, event: &Event) {
        self(event);
    }
}
