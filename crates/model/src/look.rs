//! What is to be read while a trial runs: memory, at one execution of an instruction.

use crate::wire::{Reader, Writer};

/// Memory as it is before the instruction at `pc` is executed for the n-th time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Look {
    pub pc: u64,
    /// Counted from 1.
    pub execution: u64,
    pub addr: u64,
    pub len: u32,
}

impl Look {
    pub(crate) fn encode(&self, w: &mut Writer) {
        [self.pc, self.execution, self.addr].iter().for_each(|v| w.u64(*v));
        w.u32(self.len);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Option<Look> {
        Some(Look { pc: r.u64()?, execution: r.u64()?, addr: r.u64()?, len: r.u32()? })
    }
}
