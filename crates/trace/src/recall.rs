//! Remembers what [`isa`] said about ordinary memory operands, by instruction code, because asking for all effects of
//! every instruction is most of the cost of planning.
//!
//! This is no second table: an entry is made from an answer of isa, for one code with or without an operand in memory,
//! and only if each access is plain and is either that operand or at a constant distance from rsp. Forms whose accesses
//! depend on more than that (prefixes, masks, broadcasts, 32-bit addresses, `enter`) are always asked for. It must never
//! make a difference, since engine and host remember different instructions but must plan alike: a test compares with
//! plain asking on random instructions of all kinds.

use alloc::vec::Vec;

use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use isa::{MemAccess, MemSize, RSP, Segment, Shape};

/// Most accesses remembered for one code.
const MOST: usize = 2;

/// What is known about a code.
#[derive(Clone, Copy, Default)]
enum Entry {
    #[default]
    Unknown,
    /// Ask isa.
    Never,
    Known([Option<Known>; MOST]),
}

/// One access, but for the operand.
#[derive(Clone, Copy)]
struct Known {
    place: Place,
    size: u32,
    read: bool,
    write: bool,
    conditional: bool,
}

#[derive(Clone, Copy)]
enum Place {
    /// The explicit operand.
    Operand,
    /// rsp plus this.
    Stack(i64),
}

/// The memory.
#[derive(Default)]
pub(crate) struct Recall {
    entries: Vec<Entry>,
}

impl Recall {
    /// Appends the accesses of an instruction and gives true, if they are known.
    pub fn accesses(&self, i: &Instruction, out: &mut Vec<MemAccess>) -> bool {
        let Some(operand) = ordinary(i) else { return false };
        let Some(Entry::Known(known)) = self.entries.get(index(i, &operand)) else { return false };
        for k in known.iter().flatten() {
            let at = match (k.place, operand) {
                (Place::Operand, Some(operand)) => operand,
                (Place::Operand, None) => unreachable!("the entry is one for instructions with an operand in memory"),
                (Place::Stack(disp), _) => MemAccess { base: Some(RSP), disp, ..NOWHERE },
            };
            let size = MemSize::Bytes(k.size);
            out.push(MemAccess { size, read: k.read, write: k.write, conditional: k.conditional, ..at });
        }
        true
    }

    /// Learns from an answer of isa.
    pub fn learn(&mut self, i: &Instruction, answer: &[MemAccess]) {
        let Some(operand) = ordinary(i) else { return };
        let index = index(i, &operand);
        if self.entries.len() <= index {
            self.entries.resize(index + 1, Entry::Unknown);
        }
        // An operand at rsp could be taken for the stack access; another instance will tell.
        if !matches!(self.entries[index], Entry::Unknown) || operand.is_some_and(|o| o.base == Some(RSP)) {
            return;
        }
        let mut known = [None; MOST];
        let learned = answer.len() <= MOST
            && answer.iter().zip(&mut known).all(|(a, known)| {
                *known = recognise(a, operand.as_ref());
                known.is_some()
            });
        self.entries[index] = if learned { Entry::Known(known) } else { Entry::Never };
    }
}

const NOWHERE: MemAccess = MemAccess {
    seg: Segment::None,
    base: None,
    index: None,
    scale: 1,
    disp: 0,
    addr32: false,
    size: MemSize::Unknown,
    read: false,
    write: false,
    conditional: false,
    shape: Shape::Plain,
};

/// Entries are by code, apart with and without an operand in memory.
fn index(i: &Instruction, operand: &Option<MemAccess>) -> usize {
    2 * i.code() as usize + usize::from(operand.is_some())
}

/// The operand in memory, if there is one (only its address is filled in); nothing if more than code and operand decides
/// what is accessed.
fn ordinary(i: &Instruction) -> Option<Option<MemAccess>> {
    if i.has_rep_prefix() || i.has_repne_prefix() || i.has_lock_prefix() {
        return None;
    }
    if i.op_mask() != Register::None || i.is_broadcast() || i.mnemonic() == Mnemonic::Enter {
        return None;
    }
    if !(0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Memory) {
        return Some(None);
    }
    if i.mnemonic() == Mnemonic::Pop {
        // The operand uses the changed rsp.
        return None;
    }
    let seg = match i.memory_segment() {
        Register::FS => Segment::Fs,
        Register::GS => Segment::Gs,
        _ => Segment::None,
    };
    let (base, index) = (i.memory_base(), i.memory_index());
    if base == Register::RIP {
        return Some(Some(MemAccess { seg, disp: i.ip_rel_memory_address() as i64, ..NOWHERE }));
    }
    let wide = |r: Register| r.is_gpr64() || r == Register::None;
    if !wide(base) || !wide(index) || (base == Register::None && index == Register::None) {
        return None;
    }
    let scale = if index == Register::None { 1 } else { i.memory_index_scale() as u8 };
    let disp = i.memory_displacement64() as i64;
    Some(Some(MemAccess { seg, base: isa::gpr(base), index: isa::gpr(index), scale, disp, ..NOWHERE }))
}

fn recognise(a: &MemAccess, operand: Option<&MemAccess>) -> Option<Known> {
    let MemSize::Bytes(size) = a.size else { return None };
    let same = |o: &MemAccess| {
        let scale = a.index.is_none() || o.scale == a.scale;
        (o.seg, o.base, o.index, o.disp) == (a.seg, a.base, a.index, a.disp) && scale
    };
    if a.shape != Shape::Plain || a.addr32 {
        return None;
    }
    let stack = a.base == Some(RSP) && a.index.is_none() && a.seg == Segment::None;
    let place = match operand {
        Some(o) if same(o) => Place::Operand,
        _ if stack => Place::Stack(a.disp),
        _ => return None,
    };
    Some(Known { place, size, read: a.read, write: a.write, conditional: a.conditional })
}

#[cfg(all(test, feature = "host"))]
mod tests {
    use super::*;
    use crate::synthetic::Rng;
    use iced_x86::{Decoder, DecoderOptions};
    use isa::{Effects, Isa};

    /// What is remembered is what isa would say, for random instructions of all kinds.
    #[test]
    fn memory_makes_no_difference() {
        let rounds = 200_000;
        let (mut rng, mut isa, mut recall) = (Rng(1), Isa::new(), Recall::default());
        let (mut effects, mut recalled) = (Effects::default(), Vec::new());
        let mut remembered = 0;
        for _ in 0..rounds {
            let mut bytes = [0; 16];
            bytes.iter_mut().for_each(|b| *b = rng.word() as u8);
            // Otherwise the longer encodings would be rare.
            match rng.below(8) {
                0 => bytes[0] = 0x0f,
                1 => bytes[0] = 0xc4,
                2 => bytes[0] = 0x62,
                3 => bytes[0] = 0x48,
                _ => {}
            }
            let i = Decoder::with_ip(64, &bytes, 0x40_0000, DecoderOptions::NONE).decode();
            if i.is_invalid() || !isa.summary(&i).mem {
                continue;
            }
            isa.effects(&i, &mut effects);
            recalled.clear();
            if recall.accesses(&i, &mut recalled) {
                remembered += 1;
                let same = |a: &MemAccess, b: &MemAccess| {
                    let scale = if a.index.is_none() { b.scale } else { a.scale };
                    MemAccess { scale, ..*a } == *b
                };
                let agree =
                    recalled.len() == effects.mem.len() && recalled.iter().zip(&effects.mem).all(|(a, b)| same(a, b));
                assert!(agree, "{:?} {bytes:x?}: remembered {recalled:?}, isa says {:?}", i.code(), effects.mem);
            } else {
                recall.learn(&i, &effects.mem);
            }
        }
        assert!(remembered > rounds / 10, "only {remembered} of {rounds} were remembered");
    }
}
