//! The plan of a block: which register values its trace record holds, and how every address follows from them.
//!
//! Engine and host call [`Planner::plan`] on the same instructions and must get the same answer, so it depends on
//! nothing else. A value is recorded once: as long as a register is known to differ from a recorded value by a
//! constant ([`crate::motion`]), or to be a constant, it is not recorded again. That holds because a block is entered
//! at its first instruction only and nothing but its own instructions changes registers inside it; where the engine
//! alters a register, a new block must begin.
//!
//! Guarantees: every access that [`isa`] declares is in the plan, reads before writes. May miss: nothing that isa
//! declares, but `maskmovq` is planned as if all lanes were selected (its `conditional` stays set), and accesses whose
//! size the instruction does not tell (`xsave` areas, tiles) have size 0.

use alloc::vec::Vec;
use iced_x86::Instruction;
use isa::{Effects, Gpr, GprMask, Isa, LaneMask, MemAccess, MemSize, RAX, RCX};

use crate::motion::{Motion, motion};
use crate::recall::Recall;

pub use isa::Segment;

/// Bytes of the tag at the start of a record.
pub const ID_BYTES: u32 = 4;

/// One value in a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Index of the instruction at which it is recorded.
    pub insn: u16,
    /// Recorded after that instruction instead of before it: rcx after `rep cmps` and `rep scas`.
    pub after: bool,
    pub what: SlotKind,
    /// Where it lies, from the start of the record. Slots lie in the order in which they are recorded.
    pub offset: u32,
}

/// What is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotKind {
    /// A general purpose register, 8 bytes.
    Gpr(Gpr),
    /// `base + index * scale`, 8 bytes, wrapping.
    Sum { base: Option<Gpr>, index: Gpr, scale: u8 },
    /// The low 16, 32 or 64 bytes of vector register 0..31.
    Vec { reg: u8, bytes: u8 },
    /// Opmask register k0..k7, 8 bytes.
    Mask(u8),
}

impl SlotKind {
    pub fn bytes(self) -> u32 {
        match self {
            SlotKind::Gpr(_) | SlotKind::Sum { .. } | SlotKind::Mask(_) => 8,
            SlotKind::Vec { bytes, .. } => u32::from(bytes),
        }
    }
}

/// A 64-bit value: the recorded one (or 0 without a slot) plus a constant, wrapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Value {
    pub slot: Option<u16>,
    pub delta: i64,
}

/// An address: segment base + `value`, which is first cut to 32 bits if `addr32`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddrExpr {
    pub value: Value,
    pub seg: Segment,
    pub addr32: bool,
}

/// Which lanes of a vector access happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LaneBits {
    /// All.
    All,
    /// The most significant bit of each element, as wide as the data element, of the vector in this slot.
    Signs(u16),
    /// Bit n of the opmask register in this slot for lane n.
    Bits(u16),
}

/// What is accessed, starting from the address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// `size` bytes.
    Plain,
    /// Elements of `size` bytes, upwards if the direction flag is 0, else downwards: as many as `count` says less
    /// what is left in slot `left`, counted in 32 bits if the address is.
    Rep { count: Value, left: Option<u16> },
    /// For each selected lane `size` bytes at address + sign-extended index lane * `scale`.
    Indexed { index: u16, index_elem: u8, lanes: u8, scale: u8, mask: LaneBits },
    /// Of `lanes` adjacent elements of `size` bytes the selected ones.
    Masked { lanes: u8, mask: LaneBits },
    /// One element of `size` bytes if any lane is selected.
    Any { lanes: u8, mask: LaneBits },
    /// As many adjacent elements of `size` bytes as lanes are selected.
    Packed { lanes: u8, mask: LaneBits },
    /// `size` bytes at address + `size` * floor(offset / (8 * `size`)), offset being the low `size` bytes of `bits`,
    /// signed.
    BitString { bits: Value },
    /// `size` bytes at address + low byte of `al`.
    PlusLowByte { al: Value },
    /// The aligned block of `size` bytes (a power of two) around the address.
    Block,
}

/// One access of one instruction, with all that is static about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Index of the instruction.
    pub insn: u16,
    pub read: bool,
    pub write: bool,
    /// Whether it happens, or happens in full, depends on more than `shape` tells.
    pub conditional: bool,
    /// Bytes of the access, or of each element; 0 if the instruction does not tell (`xsave` areas, tiles).
    pub size: u32,
    pub addr: AddrExpr,
    pub shape: Shape,
}

/// The plan of one block. Reuse it: planning allocates only while it grows.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct BlockPlan {
    /// In the order in which they are recorded.
    pub slots: Vec<Slot>,
    /// In the order of the instructions, and within one reads before writes.
    pub accesses: Vec<Access>,
    /// For each instruction the end of its slots and of its accesses.
    ends: Vec<(u16, u16)>,
    bytes: u32,
}

impl BlockPlan {
    pub fn new() -> BlockPlan {
        BlockPlan::default()
    }

    /// Length of a complete record: tag and slots.
    pub fn record_bytes(&self) -> u32 {
        ID_BYTES + self.bytes
    }

    /// The first word of a complete record of the block with this id.
    pub fn tag(&self, id: u32) -> u32 {
        crate::format::tag(id, self.record_bytes())
    }

    /// How many instructions were planned.
    pub fn instructions(&self) -> usize {
        self.ends.len()
    }

    /// The slots recorded at one instruction: first those before it, then those after it.
    pub fn slots_of(&self, insn: usize) -> &[Slot] {
        let start = if insn == 0 { 0 } else { self.ends[insn - 1].0 };
        &self.slots[usize::from(start)..usize::from(self.ends[insn].0)]
    }

    /// The accesses of one instruction.
    pub fn accesses_of(&self, insn: usize) -> &[Access] {
        let start = if insn == 0 { 0 } else { self.ends[insn - 1].1 };
        &self.accesses[usize::from(start)..usize::from(self.ends[insn].1)]
    }

    fn clear(&mut self) {
        self.slots.clear();
        self.accesses.clear();
        self.ends.clear();
        self.bytes = 0;
    }

    fn record(&mut self, insn: u16, after: bool, what: SlotKind) -> u16 {
        let slot = self.slots.len() as u16;
        self.slots.push(Slot { insn, after, what, offset: self.record_bytes() });
        self.bytes += what.bytes();
        slot
    }
}

/// A sum that is in a slot.
#[derive(Clone, Copy)]
struct KnownSum {
    base: Option<Gpr>,
    index: Gpr,
    scale: u8,
    slot: u16,
}

/// Makes plans. Keep one: it holds buffers that are reused.
pub struct Planner {
    isa: Isa,
    effects: Effects,
    recall: Recall,
    known: [Option<Value>; 16],
    sums: Vec<KnownSum>,
}

impl Default for Planner {
    fn default() -> Planner {
        Planner::new()
    }
}

impl Planner {
    pub fn new() -> Planner {
        Planner {
            isa: Isa::new(),
            effects: Effects::default(),
            recall: Recall::default(),
            known: [None; 16],
            sums: Vec::new(),
        }
    }

    /// Plans the block made of these instructions, which must be fewer than 65536.
    pub fn plan(&mut self, insns: &[Instruction], out: &mut BlockPlan) {
        out.clear();
        self.known = [None; 16];
        self.sums.clear();
        for (n, i) in insns.iter().enumerate() {
            self.step(n as u16, i, out);
        }
    }

    fn step(&mut self, n: u16, i: &Instruction, out: &mut BlockPlan) {
        let summary = self.isa.summary(i);
        if summary.mem {
            self.plan_accesses(n, i, out);
        }
        self.advance(i, summary.gpr_write);
        out.ends.push((out.slots.len() as u16, out.accesses.len() as u16));
    }

    fn plan_accesses(&mut self, insn: u16, i: &Instruction, out: &mut BlockPlan) {
        let mut effects = core::mem::take(&mut self.effects);
        effects.mem.clear();
        if !self.recall.accesses(i, &mut effects.mem) {
            self.isa.effects(i, &mut effects);
            self.recall.learn(i, &effects.mem);
        }
        let first = out.accesses.len();
        let mut ends_early = false;
        // An instruction reads before it writes.
        let only_written = |m: &&MemAccess| m.write && !m.read;
        for m in effects.mem.iter().filter(|m| !only_written(m)).chain(effects.mem.iter().filter(only_written)) {
            ends_early |= matches!(m.shape, isa::Shape::RepString { count_is_exact: false, .. });
            self.plan_access(insn, m, out);
        }
        if ends_early {
            // After all slots that are recorded before the instruction, so that a record cut off there is a prefix.
            let left_slot = out.record(insn, true, SlotKind::Gpr(RCX));
            for a in &mut out.accesses[first..] {
                if let Shape::Rep { left, .. } = &mut a.shape {
                    *left = Some(left_slot);
                }
            }
        }
        self.effects = effects;
    }

    fn plan_access(&mut self, insn: u16, m: &MemAccess, out: &mut BlockPlan) {
        let mut value = self.address(insn, m, out);
        value.delta = value.delta.wrapping_add(m.disp);
        let addr = AddrExpr { value, seg: m.seg, addr32: m.addr32 };
        let whole = match m.size {
            MemSize::Bytes(n) => n,
            MemSize::XsaveArea | MemSize::Tile | MemSize::Unknown => 0,
        };
        let (size, shape) = match m.shape {
            isa::Shape::Plain => (whole, Shape::Plain),
            isa::Shape::RepString { elem, .. } => {
                (u32::from(elem), Shape::Rep { count: self.value(insn, RCX, out), left: None })
            }
            isa::Shape::Gather { index_vec, index_elem, lanes, scale, mask, elem }
            | isa::Shape::Scatter { index_vec, index_elem, lanes, scale, mask, elem } => {
                let bytes = vector_bytes(lanes, index_elem);
                let index = out.record(insn, false, SlotKind::Vec { reg: index_vec, bytes });
                let mask = lane_bits(insn, mask, lanes, elem, out);
                (u32::from(elem), Shape::Indexed { index, index_elem, lanes, scale, mask })
            }
            isa::Shape::Masked { mask: LaneMask::Mmx(_), .. } => (whole, Shape::Plain),
            isa::Shape::Masked { elem, lanes, mask } => {
                (u32::from(elem), Shape::Masked { lanes, mask: lane_bits(insn, mask, lanes, elem, out) })
            }
            isa::Shape::MaskedBroadcast { elem, lanes, mask } => {
                (u32::from(elem), Shape::Any { lanes, mask: lane_bits(insn, mask, lanes, elem, out) })
            }
            isa::Shape::Packed { elem, lanes, mask } => {
                (u32::from(elem), Shape::Packed { lanes, mask: lane_bits(insn, mask, lanes, elem, out) })
            }
            isa::Shape::BitString { bits } => (whole, Shape::BitString { bits: self.value(insn, bits, out) }),
            isa::Shape::PlusAl => (whole, Shape::PlusLowByte { al: self.value(insn, RAX, out) }),
            isa::Shape::Block => (whole, Shape::Block),
        };
        // For these shapes all that decides is recorded, so nothing remains uncertain.
        let decided = matches!(shape, Shape::Rep { .. } | Shape::Indexed { .. } | Shape::Masked { .. })
            || matches!(shape, Shape::Any { .. } | Shape::Packed { .. });
        let conditional = m.conditional && !decided;
        out.accesses.push(Access { insn, read: m.read, write: m.write, conditional, size, addr, shape });
    }

    /// `base + index * scale`, recorded unless known.
    fn address(&mut self, insn: u16, m: &MemAccess, out: &mut BlockPlan) -> Value {
        let (base, index, scale) = (m.base, m.index, m.scale);
        let Some(index) = index else {
            return match base {
                Some(base) => self.value(insn, base, out),
                None => Value { slot: None, delta: 0 },
            };
        };
        // A constant index is one more displacement.
        if let Some(Value { slot: None, delta }) = self.known[usize::from(index)] {
            let by = delta.wrapping_mul(i64::from(scale));
            let v = match base {
                Some(base) => self.value(insn, base, out),
                None => Value { slot: None, delta: 0 },
            };
            return Value { slot: v.slot, delta: v.delta.wrapping_add(by) };
        }
        if base.is_none() && scale == 1 {
            return self.value(insn, index, out);
        }
        let found = self.sums.iter().find(|s| s.base == base && s.index == index && s.scale == scale);
        let slot = match found {
            Some(sum) => sum.slot,
            None => {
                let slot = out.record(insn, false, SlotKind::Sum { base, index, scale });
                self.sums.push(KnownSum { base, index, scale, slot });
                slot
            }
        };
        Value { slot: Some(slot), delta: 0 }
    }

    /// The value of a register before the instruction, recorded unless known.
    fn value(&mut self, insn: u16, reg: Gpr, out: &mut BlockPlan) -> Value {
        let known = &mut self.known[usize::from(reg)];
        *known.get_or_insert_with(|| Value { slot: Some(out.record(insn, false, SlotKind::Gpr(reg))), delta: 0 })
    }

    /// Moves the knowledge about registers over one instruction.
    fn advance(&mut self, i: &Instruction, written: GprMask) {
        if written == 0 {
            return;
        }
        let result = match motion(i) {
            Motion::None => None,
            Motion::Constant { to, value } => Some((to, Some(Value { slot: None, delta: value as i64 }))),
            Motion::Shift { to, from, delta } => Some((
                to,
                self.known[usize::from(from)].map(|v| Value { slot: v.slot, delta: v.delta.wrapping_add(delta) }),
            )),
        };
        for (reg, known) in self.known.iter_mut().enumerate() {
            if written & (1 << reg) != 0 {
                *known = None;
            }
        }
        if let Some((to, value)) = result {
            self.known[usize::from(to)] = value;
        }
        let is_written = |reg: Gpr| written & (1 << reg) != 0;
        self.sums.retain(|s| !is_written(s.index) && !s.base.is_some_and(is_written));
    }
}

fn lane_bits(insn: u16, mask: LaneMask, lanes: u8, elem: u8, out: &mut BlockPlan) -> LaneBits {
    match mask {
        LaneMask::Vec(reg) => {
            LaneBits::Signs(out.record(insn, false, SlotKind::Vec { reg, bytes: vector_bytes(lanes, elem) }))
        }
        LaneMask::K(k) => LaneBits::Bits(out.record(insn, false, SlotKind::Mask(k))),
        // Only `maskmovq` has it, which is planned as plain.
        LaneMask::Mmx(_) => LaneBits::All,
    }
}

/// Bytes of the vector register that holds so many elements: 16, 32 or 64.
fn vector_bytes(lanes: u8, elem: u8) -> u8 {
    (u32::from(lanes) * u32::from(elem)).clamp(16, 64).next_power_of_two() as u8
}

#[cfg(all(test, feature = "host"))]
mod tests {
    use super::*;
    use crate::synthetic::{Mix, Synthetic};

    /// What is remembered of earlier instructions changes no plan.
    #[test]
    fn a_planner_that_remembers_plans_as_one_that_asks() {
        let mut experienced = Planner::new();
        let (mut a, mut b) = (BlockPlan::new(), BlockPlan::new());
        for seed in 0..20 {
            for block in Synthetic::new(seed, 100, Mix::Everything).blocks {
                experienced.plan(&block.insns, &mut a);
                let mut asking = Planner::new();
                b.clear();
                for (n, i) in block.insns.iter().enumerate() {
                    asking.recall = Recall::default();
                    asking.step(n as u16, i, &mut b);
                }
                assert_eq!(a, b);
            }
        }
    }
}
