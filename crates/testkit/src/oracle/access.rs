//! Which memory one instruction touches, from the state before it.
//!
//! Source: iced's list of used memory with its own address computation, and for what that leaves open (masked lanes,
//! gathers, bit strings) the Intel manual, volume 2. Nothing of the crate `isa` is used: it is one of the things that
//! this checks.
//!
//! Limits: areas of the xsave family have size 0, that is, only their address is known.

use iced_x86::{
    Instruction, InstructionInfoFactory, InstructionInfoOptions, MemorySize, Mnemonic, OpAccess, OpKind, Register,
    UsedMemory,
};

/// General registers of a thread before an instruction, in hardware order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Machine {
    pub gpr: [u64; 16],
    pub rip: u64,
    pub rflags: u64,
    pub fs_base: u64,
    pub gs_base: u64,
}

/// Vector, mask and MMX registers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vectors {
    pub zmm: [[u8; 64]; 32],
    pub k: [u64; 8],
    pub mm: [[u8; 8]; 8],
}

impl Default for Vectors {
    fn default() -> Vectors {
        Vectors { zmm: [[0; 64]; 32], k: [0; 8], mm: [[0; 8]; 8] }
    }
}

/// One access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    pub addr: u64,
    /// Bytes; 0 if the instruction does not tell.
    pub size: u32,
    pub read: bool,
    pub write: bool,
    /// It is made only if the CPU finds a condition that is not looked at here (the store of a cmpxchg).
    pub conditional: bool,
    /// Made through the fs segment: its address follows the thread's control block.
    pub tls: bool,
}

/// Does the instruction trap after every iteration when stepped?
pub fn repeats(i: &Instruction) -> bool {
    (i.has_rep_prefix() || i.has_repne_prefix()) && i.is_string_instruction()
}

/// The accesses of one instruction.
pub fn accesses(i: &Instruction, m: &Machine, v: Option<&Vectors>) -> Vec<Access> {
    Info::new().accesses(i, m, v)
}

/// Computes accesses; holds iced's reusable buffers.
pub struct Info {
    factory: InstructionInfoFactory,
}

impl Info {
    pub fn new() -> Info {
        Info { factory: InstructionInfoFactory::new() }
    }

    pub fn accesses(&mut self, i: &Instruction, m: &Machine, v: Option<&Vectors>) -> Vec<Access> {
        let mut out = Vec::new();
        if repeats(i) && count_register(i, m) == 0 {
            return out;
        }
        let options = InstructionInfoOptions::NO_REGISTER_USAGE;
        for used in self.factory.info_options(i, options).used_memory() {
            one_used(i, used, m, v, &mut out);
        }
        out
    }
}

fn one_used(i: &Instruction, used: &UsedMemory, m: &Machine, v: Option<&Vectors>, out: &mut Vec<Access>) {
    let (read, write, conditional) = match used.access() {
        OpAccess::None | OpAccess::NoMemAccess => return,
        OpAccess::Read => (true, false, false),
        // The count of a rep string instruction is not 0 here, and which lanes are selected is found below.
        OpAccess::CondRead => (true, false, false),
        OpAccess::Write | OpAccess::CondWrite => (false, true, false),
        OpAccess::ReadWrite => (true, true, false),
        OpAccess::ReadCondWrite => (true, true, true),
    };
    let tls = used.segment() == Register::FS;
    let at = |lane: usize| {
        let value = |r: Register, lane: usize, width: usize| Some(register(r, lane, width, m, v));
        used.virtual_address(lane, value).expect("every register has a value")
    };
    let mut put = |addr: u64, size: usize| {
        let mut one = |read, write, conditional| {
            out.push(Access { addr, size: size as u32, read, write, conditional, tls });
        };
        if conditional {
            one(read, false, false);
            one(false, write, true);
        } else {
            one(read, write, false);
        }
    };
    // Of a rep string instruction iced does not give the size, as it is not that of one iteration.
    let size = if repeats(i) { i.memory_size() } else { used.memory_size() };
    if used.vsib_size() != 0 {
        let lanes = gather_lanes(i, used);
        for lane in selected(i, v, lanes, size.element_size().max(size.size())) {
            put(at(lane), size.element_size().max(1));
        }
    } else if i.mnemonic() == Mnemonic::Xlatb {
        put(at(0), 1);
    } else if let Some(offset) = bit_string_offset(i, used, m) {
        put(at(0).wrapping_add(offset as u64), size.size());
    } else if is_masked(i) && is_operand(i, used) {
        masked(i, v, size, |offset, bytes| put(at(0).wrapping_add(offset), bytes));
    } else if matches!(size, MemorySize::Fxsave_512Byte | MemorySize::Fxsave64_512Byte) {
        // The rest of the area is reserved or the program's own (volume 1, section 10.5.1).
        put(at(0), 416);
    } else {
        put(at(0), size.size());
    }
}

/// Is this the explicit memory operand, to which a mask applies, rather than an implied one?
fn is_operand(i: &Instruction, used: &UsedMemory) -> bool {
    let absolute = i.memory_base() == Register::RIP && used.base() == Register::None;
    is_byte_masked(i) || absolute || (used.base() == i.memory_base() && used.index() == i.memory_index())
}

fn is_byte_masked(i: &Instruction) -> bool {
    matches!(i.mnemonic(), Mnemonic::Maskmovdqu | Mnemonic::Vmaskmovdqu | Mnemonic::Maskmovq)
}

/// Does a mask select which elements of the operand are touched?
fn is_masked(i: &Instruction) -> bool {
    i.op_mask() != Register::None || lane_mask_operand(i).is_some()
}

/// The vector register whose sign bits select lanes, as its operand number.
fn lane_mask_operand(i: &Instruction) -> Option<u32> {
    use Mnemonic::*;
    match i.mnemonic() {
        Vmaskmovps | Vmaskmovpd | Vpmaskmovd | Vpmaskmovq => Some(1),
        // Operand 0 is the implied address.
        Maskmovdqu | Vmaskmovdqu | Maskmovq => Some(2),
        Vpgatherdd | Vpgatherdq | Vpgatherqd | Vpgatherqq | Vgatherdps | Vgatherdpd | Vgatherqps | Vgatherqpd
            if i.op_mask() == Register::None =>
        {
            Some(2)
        }
        _ => None,
    }
}

/// The selected lanes among the first `lanes`, in order; `width` is the size of a lane of a vector mask.
fn selected(i: &Instruction, v: Option<&Vectors>, lanes: usize, width: usize) -> Vec<usize> {
    let Some(v) = v else { panic!("no vector state for {:?}", i.code()) };
    let is_set = |lane: &usize| {
        if let Some(op) = lane_mask_operand(i) {
            let r = i.op_register(op);
            let bytes: &[u8] = if r.is_mm() { &v.mm[r.number()] } else { &v.zmm[r.number()] };
            bytes[(lane + 1) * width - 1] & 0x80 != 0
        } else {
            i.op_mask() == Register::None || v.k[i.op_mask().number()] >> lane & 1 != 0
        }
    };
    (0..lanes).filter(is_set).collect()
}

/// How many elements a gather or scatter has: as many as fit both the data and the index register.
fn gather_lanes(i: &Instruction, used: &UsedMemory) -> usize {
    let data = (0..i.op_count()).find(|&op| i.op_kind(op) == OpKind::Register && !i.op_register(op).is_k());
    let data = data.map_or(0, |op| i.op_register(op).size());
    let element = used.memory_size().element_size().max(1);
    (data / element).min(used.index().size() / used.vsib_size() as usize)
}

/// Elements that a masked operand touches, as offset and size.
fn masked(i: &Instruction, v: Option<&Vectors>, size: MemorySize, mut put: impl FnMut(u64, usize)) {
    use Mnemonic::*;
    let element = if is_byte_masked(i) { 1 } else { size.element_size().max(1) };
    let lanes = size.size() / element;
    if i.is_broadcast() || is_register_broadcast(i) {
        // One element for all lanes: touched if any lane wants it.
        let all = vector_bytes(i) / lane_bytes_of_register(i, element);
        if !selected(i, v, all, element).is_empty() {
            put(0, size.size());
        }
        return;
    }
    let chosen = selected(i, v, lanes, element);
    let packed = matches!(
        i.mnemonic(),
        Vcompressps
            | Vcompresspd
            | Vpcompressd
            | Vpcompressq
            | Vpcompressb
            | Vpcompressw
            | Vexpandps
            | Vexpandpd
            | Vpexpandd
            | Vpexpandq
            | Vpexpandb
            | Vpexpandw
    );
    for (n, lane) in chosen.into_iter().enumerate() {
        put(((if packed { n } else { lane }) * element) as u64, element);
    }
}

/// Instructions that copy one memory element, or a group of them, to all lanes.
fn is_register_broadcast(i: &Instruction) -> bool {
    use Mnemonic::*;
    matches!(
        i.mnemonic(),
        Vbroadcastss
            | Vbroadcastsd
            | Vpbroadcastb
            | Vpbroadcastw
            | Vpbroadcastd
            | Vpbroadcastq
            | Vmovddup
            | Vbroadcastf32x2
            | Vbroadcastf32x4
            | Vbroadcastf32x8
            | Vbroadcastf64x2
            | Vbroadcastf64x4
            | Vbroadcasti32x2
            | Vbroadcasti32x4
            | Vbroadcasti32x8
            | Vbroadcasti64x2
            | Vbroadcasti64x4
    )
}

fn vector_bytes(i: &Instruction) -> usize {
    let vector = (0..i.op_count()).filter(|&op| i.op_kind(op) == OpKind::Register).map(|op| i.op_register(op));
    vector.filter(|r| r.is_vector_register()).map(|r| r.size()).max().unwrap_or(64)
}

fn lane_bytes_of_register(i: &Instruction, element: usize) -> usize {
    use Mnemonic::*;
    match i.mnemonic() {
        Vbroadcastf32x2 | Vbroadcastf32x4 | Vbroadcastf32x8 | Vbroadcasti32x2 | Vbroadcasti32x4 | Vbroadcasti32x8 => 4,
        Vbroadcastf64x2 | Vbroadcastf64x4 | Vbroadcasti64x2 | Vbroadcasti64x4 => 8,
        _ => element,
    }
}

/// For a bit test with a register offset: how far from the operand's address the touched operand lies.
fn bit_string_offset(i: &Instruction, used: &UsedMemory, m: &Machine) -> Option<i64> {
    let bits = matches!(i.mnemonic(), Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc);
    if !bits || i.op0_kind() != OpKind::Memory || i.op1_kind() != OpKind::Register {
        return None;
    }
    let value = register(i.op1_register(), 0, 0, m, None);
    let size = used.memory_size().size() as i64;
    let offset = match size {
        2 => i64::from(value as i16),
        4 => i64::from(value as i32),
        _ => value as i64,
    };
    Some(offset.div_euclid(size * 8) * size)
}

fn count_register(i: &Instruction, m: &Machine) -> u64 {
    // With an address size of 32 bits the count is ecx.
    let narrow = (0..i.op_count())
        .any(|op| matches!(i.op_kind(op), OpKind::MemoryESEDI | OpKind::MemorySegESI | OpKind::MemorySegEDI));
    if narrow { m.gpr[1] & 0xffff_ffff } else { m.gpr[1] }
}

/// The value of a register, or the base of a segment; for a vector index one lane of it.
fn register(r: Register, lane: usize, width: usize, m: &Machine, v: Option<&Vectors>) -> u64 {
    if r.is_vector_register() {
        let v = v.unwrap_or_else(|| panic!("no vector state for {r:?}"));
        let bytes = &v.zmm[r.number()][lane * width..(lane + 1) * width];
        return bytes.iter().rev().fold(0, |value, &b| value << 8 | u64::from(b));
    }
    if r.is_segment_register() {
        return match r {
            Register::FS => m.fs_base,
            Register::GS => m.gs_base,
            _ => 0,
        };
    }
    if !r.is_gpr() {
        panic!("{r:?} has no part in an address");
    }
    let full = m.gpr[r.full_register().number()];
    match (r, r.size()) {
        (Register::AH | Register::BH | Register::CH | Register::DH, _) => full >> 8 & 0xff,
        (_, 1) => full & 0xff,
        (_, 2) => full & 0xffff,
        (_, 4) => full & 0xffff_ffff,
        _ => full,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Registers hold 0x1000 * (number + 1); `expected` lists (address, size, "r", "w", "rw" or "rc" for a store on condition).
    fn check(code: &[u8], expected: &[(u64, u32, &str)]) {
        let mut m = Machine { fs_base: 0x10_0000, gs_base: 0x20_0000, ..Machine::default() };
        for (n, r) in m.gpr.iter_mut().enumerate() {
            *r = 0x1000 * (n as u64 + 1);
        }
        m.gpr[1] = 3;
        let mut v = Vectors { k: [0b1010; 8], ..Vectors::default() };
        for (lane, b) in v.zmm[1].chunks_mut(4).enumerate() {
            b[0] = lane as u8 * 2;
        }
        for b in v.zmm[2].chunks_mut(8) {
            b[7] = 0x80;
        }
        let insn = super::super::decode(code, 0x400000);
        let found = accesses(&insn, &m, Some(&v));
        let found: Vec<_> = found
            .iter()
            .map(|a| {
                (
                    a.addr,
                    a.size,
                    match (a.read, a.write, a.conditional) {
                        (true, false, _) => "r",
                        (false, true, false) => "w",
                        (false, true, true) => "wc",
                        _ => "rw",
                    },
                )
            })
            .collect();
        assert_eq!(found, expected, "{insn:?}");
    }

    #[test]
    fn plain_and_implied_operands() {
        check(&[0x48, 0x8b, 0x43, 0x10], &[(0x4010, 8, "r")]); // mov rax, [rbx+16]
        check(&[0x01, 0x04, 0xb7], &[(0x8000 + 0x7000 * 4, 4, "rw")]); // add [rdi+rsi*4], eax
        check(&[0x50], &[(0x4ff8, 8, "w")]); // push rax
        check(&[0xc3], &[(0x5000, 8, "r")]); // ret
        check(&[0xff, 0x13], &[(0x4000, 8, "r"), (0x4ff8, 8, "w")]); // call [rbx]
        check(&[0x8f, 0x44, 0x24, 0x08], &[(0x5010, 8, "w"), (0x5000, 8, "r")]); // pop [rsp+8]: rsp after the pop
        check(&[0x64, 0x8b, 0x03], &[(0x104000, 4, "r")]); // mov eax, fs:[rbx]
        check(&[0x67, 0x8b, 0x43, 0xf0], &[(0x3ff0, 4, "r")]); // mov eax, [ebx-16]
        check(&[0x8b, 0x05, 0x10, 0, 0, 0], &[(0x400016, 4, "r")]); // mov eax, [rip+16]
        check(&[0x48, 0x8d, 0x43, 0x10], &[]); // lea
        check(&[0x0f, 0x1f, 0x40, 0x00], &[]); // nop [rax]
        check(&[0xd7], &[(0x4000, 1, "r")]); // xlat: al is 0
        check(&[0x48, 0x0f, 0xb1, 0x0b], &[(0x4000, 8, "r"), (0x4000, 8, "wc")]); // cmpxchg [rbx], rcx
    }

    #[test]
    fn strings_touch_one_element_per_iteration() {
        check(&[0xf3, 0xa4], &[(0x8000, 1, "w"), (0x7000, 1, "r")]); // rep movsb
        check(&[0xf3, 0x48, 0xab], &[(0x8000, 8, "w")]); // rep stosq
        check(&[0xf3, 0xa6], &[(0x7000, 1, "r"), (0x8000, 1, "r")]); // repe cmpsb
    }

    #[test]
    fn bit_strings_reach_beyond_their_operand() {
        check(&[0x48, 0x0f, 0xa3, 0x0b], &[(0x4000, 8, "r")]); // bt [rbx], rcx: bit 3
        check(&[0x48, 0x0f, 0xab, 0x13], &[(0x4000 + 0x3000 / 8, 8, "rw")]); // bts [rbx], rdx
    }

    #[test]
    fn masks_select_elements() {
        // vpgatherdd xmm0, [rbx+xmm1*4], xmm2: lanes 1 and 3
        check(&[0xc4, 0xe2, 0x69, 0x90, 0x04, 0x8b], &[(0x4008, 4, "r"), (0x4018, 4, "r")]);
        // vmovdqu32 zmm0{k1}, [rbx]: lanes 1 and 3
        check(&[0x62, 0xf1, 0x7e, 0x49, 0x6f, 0x03], &[(0x4004, 4, "r"), (0x400c, 4, "r")]);
        // vpmaskmovd xmm0, xmm2, [rbx]
        check(&[0xc4, 0xe2, 0x69, 0x8c, 0x03], &[(0x4004, 4, "r"), (0x400c, 4, "r")]);
        // vpcompressd [rbx]{k1}, zmm0: two elements, packed
        check(&[0x62, 0xf2, 0x7d, 0x49, 0x8b, 0x03], &[(0x4000, 4, "w"), (0x4004, 4, "w")]);
    }
}
