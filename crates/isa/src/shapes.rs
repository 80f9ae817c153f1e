//! Turns iced's memory operands into [`MemAccess`]es with exact sizes and shapes.
//!
//! Guarantee: the bytes that an instruction touches are those that the shape yields from the registers before it, no
//! more and no less; the test `cpu` checks both directions against guard pages on the processor. Not covered by bytes
//! are XSAVE areas and AMX tiles ([`MemSize`]).
//!
//! What iced leaves out: rep counts, gather lanes, masked lanes, the bit offset of `bt`, al in `xlat`. Which EVEX
//! instructions skip memory under a zero mask follows the exception classes of the Intel SDM (volume 2, 2.8): the types
//! with "NF" have no fault suppression and read their whole operand.

use alloc::vec::Vec;
use iced_x86::{CodeSize, Instruction, InstructionInfo, MemorySize, Mnemonic, OpKind, Register, UsedMemory};

use crate::memory::{LaneMask, MemAccess, MemSize, Segment, Shape, StringReg};
use crate::registers::{RAX, access_bits, gpr};

/// Appends every memory access of `instruction`.
pub(crate) fn memory(instruction: &Instruction, info: &InstructionInfo, out: &mut Vec<MemAccess>) {
    for used in info.used_memory() {
        let (read, write, conditional) = access_bits(used.access());
        if !(read || write) {
            continue;
        }
        let mut access = MemAccess {
            seg: segment(used.segment()),
            base: gpr(used.base()),
            index: gpr(used.index()),
            scale: used.scale() as u8,
            disp: 0,
            addr32: used.address_size() == CodeSize::Code32,
            size: size(used.memory_size()),
            read,
            write,
            conditional,
            shape: Shape::Plain,
        };
        access.disp = displacement(&access, used.displacement());
        reshape(instruction, used, &mut access);
        out.push(access);
    }
    match instruction.mnemonic() {
        // Of a popped selector two bytes are read, although the stack pointer moves by the operand size.
        Mnemonic::Retf => shorten(out, &[1]),
        Mnemonic::Iret | Mnemonic::Iretd | Mnemonic::Iretq => shorten(out, &[1, 4]),
        _ => {}
    }
    if instruction.mnemonic() == Mnemonic::Clzero {
        out.push(MemAccess {
            seg: segment(instruction.memory_segment()),
            base: Some(RAX),
            index: None,
            scale: 1,
            disp: 0,
            addr32: instruction.code() == iced_x86::Code::Clzerod,
            size: MemSize::Bytes(64),
            read: false,
            write: true,
            conditional: false,
            shape: Shape::Block,
        });
    }
}

/// Makes these accesses two bytes long.
fn shorten(out: &mut [MemAccess], which: &[usize]) {
    for n in which {
        if let Some(access) = out.get_mut(*n) {
            access.size = MemSize::Bytes(2);
        }
    }
}

/// Only fs and gs have a base in 64-bit mode.
fn segment(register: Register) -> Segment {
    match register {
        Register::FS => Segment::Fs,
        Register::GS => Segment::Gs,
        _ => Segment::None,
    }
}

/// An absolute 32-bit address is zero-extended, a displacement to a register is signed.
fn displacement(access: &MemAccess, raw: u64) -> i64 {
    match (access.addr32, access.base, access.index) {
        (false, ..) => raw as i64,
        (true, None, None) => i64::from(raw as u32),
        (true, ..) => i64::from(raw as i32),
    }
}

fn size(size: MemorySize) -> MemSize {
    match size {
        MemorySize::Xsave | MemorySize::Xsave64 => MemSize::XsaveArea,
        MemorySize::Tile => MemSize::Tile,
        // iced gives no size to these two: the tile configuration and the key handles are fixed by their instructions.
        MemorySize::Tilecfg => MemSize::Bytes(64),
        _ => match size.size() as u32 {
            0 => MemSize::Unknown,
            bytes => MemSize::Bytes(bytes),
        },
    }
}

/// Sets shape, size and condition of an access that is not plain.
fn reshape(instruction: &Instruction, used: &UsedMemory, access: &mut MemAccess) {
    let mnemonic = instruction.mnemonic();
    if instruction.is_string_instruction() {
        return string(instruction, access);
    }
    match mnemonic {
        Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc if instruction.op1_kind() == OpKind::Register => {
            let bits = gpr(instruction.op1_register()).unwrap_or_default();
            access.shape = Shape::BitString { bits };
        }
        // Only the selector is read, although rsp moves by 8.
        Mnemonic::Pop if instruction.op0_register().is_segment_register() => access.size = MemSize::Bytes(2),
        // The last 96 bytes of the area are reserved or left to software.
        Mnemonic::Fxsave | Mnemonic::Fxsave64 | Mnemonic::Fxrstor | Mnemonic::Fxrstor64 => {
            access.size = MemSize::Bytes(416);
        }
        Mnemonic::Xlatb => {
            access.index = None;
            access.scale = 1;
            access.shape = Shape::PlusAl;
        }
        Mnemonic::Maskmovdqu | Mnemonic::Vmaskmovdqu => {
            let mask = LaneMask::Vec(vector_number(instruction.op2_register()));
            *access = MemAccess { conditional: true, shape: Shape::Masked { elem: 1, lanes: 16, mask }, ..*access };
        }
        Mnemonic::Maskmovq => {
            let mask = LaneMask::Mmx(instruction.op2_register().number() as u8);
            *access = MemAccess { conditional: true, shape: Shape::Masked { elem: 1, lanes: 8, mask }, ..*access };
        }
        Mnemonic::Vmaskmovps | Mnemonic::Vpmaskmovd => masked_by_vector(instruction, access, 4),
        Mnemonic::Vmaskmovpd | Mnemonic::Vpmaskmovq => masked_by_vector(instruction, access, 8),
        _ if instruction.is_vsib() => indexed_by_vector(instruction, used, access),
        _ if instruction.has_op_mask() => masked_by_opmask(instruction, access),
        _ => {}
    }
}

/// `movs`, `cmps`, `stos`, `lods`, `scas`, `ins`, `outs`.
fn string(instruction: &Instruction, access: &mut MemAccess) {
    let elem = instruction.memory_size().size() as u8;
    access.size = MemSize::Bytes(u32::from(elem));
    if !has_repeat(instruction) {
        return;
    }
    let which = if access.base == Some(crate::registers::RSI) { StringReg::Si } else { StringReg::Di };
    access.conditional = true;
    access.shape = Shape::RepString { count_is_exact: !ends_early(instruction), elem, which };
}

/// True for a string instruction with either repeat prefix: movs, stos and lods take 0xF2 as 0xF3.
pub(crate) fn has_repeat(instruction: &Instruction) -> bool {
    instruction.is_string_instruction() && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
}

/// True if a repeated string instruction compares and so may stop before rcx is 0.
pub(crate) fn ends_early(instruction: &Instruction) -> bool {
    use Mnemonic::{Cmpsb, Cmpsd, Cmpsq, Cmpsw, Scasb, Scasd, Scasq, Scasw};
    matches!(instruction.mnemonic(), Cmpsb | Cmpsw | Cmpsd | Cmpsq | Scasb | Scasw | Scasd | Scasq)
}

/// AVX masked moves: the mask is the register operand in the middle.
fn masked_by_vector(instruction: &Instruction, access: &mut MemAccess, elem: u8) {
    let register = instruction.op1_register();
    let lanes = (register.size() / usize::from(elem)) as u8;
    access.size = MemSize::Bytes(register.size() as u32);
    access.conditional = true;
    access.shape = Shape::Masked { elem, lanes, mask: LaneMask::Vec(vector_number(register)) };
}

/// Gathers and scatters.
fn indexed_by_vector(instruction: &Instruction, used: &UsedMemory, access: &mut MemAccess) {
    let index = used.index();
    let index_elem = if instruction.is_vsib64() { 8 } else { 4 };
    let elem = instruction.memory_size().element_size() as u8;
    let data = if access.write { instruction.op1_register() } else { instruction.op0_register() };
    let lanes = (data.size() / usize::from(elem)).min(index.size() / index_elem) as u8;
    let mask = if instruction.has_op_mask() {
        LaneMask::K(instruction.op_mask().number() as u8)
    } else {
        LaneMask::Vec(vector_number(instruction.op2_register()))
    };
    let (index_vec, index_elem, scale) = (vector_number(index), index_elem as u8, access.scale);
    access.index = None;
    access.scale = 1;
    access.size = MemSize::Bytes(u32::from(elem));
    access.conditional = true;
    access.shape = if access.write {
        Shape::Scatter { index_vec, index_elem, lanes, scale, mask, elem }
    } else {
        Shape::Gather { index_vec, index_elem, lanes, scale, mask, elem }
    };
}

/// EVEX instructions with an opmask other than k0.
fn masked_by_opmask(instruction: &Instruction, access: &mut MemAccess) {
    let mask = LaneMask::K(instruction.op_mask().number() as u8);
    let MemSize::Bytes(bytes) = access.size else { return };
    let elements = bytes / (instruction.memory_size().element_size().max(1) as u32);
    let shape = if reads_whole_operand(instruction) {
        return;
    } else if instruction.is_broadcast() {
        Shape::MaskedBroadcast { elem: bytes as u8, lanes: broadcast_lanes(instruction), mask }
    } else if is_broadcast_load(instruction.mnemonic()) && elements > 1 {
        // Each element is read if any of the lanes it is copied to is selected: no shape says so.
        Shape::Plain
    } else if is_broadcast_load(instruction.mnemonic()) {
        let lanes = instruction.op0_register().size() / bytes as usize;
        Shape::MaskedBroadcast { elem: bytes as u8, lanes: lanes as u8, mask }
    } else {
        let elem = lane_bytes(instruction);
        let lanes = (bytes / u32::from(elem)) as u8;
        match instruction.mnemonic() {
            Mnemonic::Vcompressps
            | Mnemonic::Vcompresspd
            | Mnemonic::Vpcompressb
            | Mnemonic::Vpcompressw
            | Mnemonic::Vpcompressd
            | Mnemonic::Vpcompressq
            | Mnemonic::Vexpandps
            | Mnemonic::Vexpandpd
            | Mnemonic::Vpexpandb
            | Mnemonic::Vpexpandw
            | Mnemonic::Vpexpandd
            | Mnemonic::Vpexpandq => Shape::Packed { elem, lanes, mask },
            _ => Shape::Masked { elem, lanes, mask },
        }
    };
    access.conditional = true;
    access.shape = shape;
}

/// Number of lanes of an embedded broadcast: the vector it stands for, divided by the element.
fn broadcast_lanes(instruction: &Instruction) -> u8 {
    let size = instruction.memory_size();
    let vector = match size as u32 {
        s if s >= MemorySize::Broadcast512_Int16 as u32 => 64,
        s if s >= MemorySize::Broadcast256_Int16 as u32 => 32,
        s if s >= MemorySize::Broadcast128_Int16 as u32 => 16,
        s if s >= MemorySize::Broadcast64_UInt32 as u32 => 8,
        _ => 4,
    };
    (vector / size.size()) as u8
}

/// Broadcasting loads under a mask: one block of memory, read if any lane is selected.
fn is_broadcast_load(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Vbroadcastss
            | M::Vbroadcastsd
            | M::Vbroadcastf32x2
            | M::Vbroadcastf32x4
            | M::Vbroadcastf32x8
            | M::Vbroadcastf64x2
            | M::Vbroadcastf64x4
            | M::Vbroadcasti32x2
            | M::Vbroadcasti32x4
            | M::Vbroadcasti32x8
            | M::Vbroadcasti64x2
            | M::Vbroadcasti64x4
            | M::Vpbroadcastb
            | M::Vpbroadcastw
            | M::Vpbroadcastd
            | M::Vpbroadcastq
    )
}

/// Masked instructions whose exception class has no fault suppression: the mask selects results, not memory.
fn reads_whole_operand(instruction: &Instruction) -> bool {
    use Mnemonic as M;
    match instruction.mnemonic() {
        M::Valignd | M::Valignq | M::Vpalignr | M::Vdbpsadbw | M::Vgf2p8affineqb | M::Vgf2p8affineinvqb => true,
        M::Vinsertf32x4 | M::Vinsertf32x8 | M::Vinsertf64x2 | M::Vinsertf64x4 => true,
        M::Vinserti32x4 | M::Vinserti32x8 | M::Vinserti64x2 | M::Vinserti64x4 => true,
        M::Vmovddup | M::Vmovshdup | M::Vmovsldup | M::Vcvtne2ps2bf16 => true,
        M::Vpackssdw | M::Vpacksswb | M::Vpackusdw | M::Vpackuswb | M::Vpconflictd | M::Vpconflictq => true,
        M::Vpermb | M::Vpermd | M::Vpermw | M::Vpermq | M::Vpermps | M::Vpermpd | M::Vpermilps | M::Vpermilpd => true,
        M::Vpermi2b | M::Vpermi2w | M::Vpermi2d | M::Vpermi2q | M::Vpermi2ps | M::Vpermi2pd => true,
        M::Vpermt2b | M::Vpermt2w | M::Vpermt2d | M::Vpermt2q | M::Vpermt2ps | M::Vpermt2pd => true,
        M::Vpmaddwd | M::Vpmaddubsw => true,
        M::Vpmultishiftqb | M::Vpshufb | M::Vpshufd | M::Vpshufhw | M::Vpshuflw => true,
        M::Vpunpckhbw | M::Vpunpckhwd | M::Vpunpckhdq | M::Vpunpckhqdq => true,
        M::Vpunpcklbw | M::Vpunpcklwd | M::Vpunpckldq | M::Vpunpcklqdq => true,
        M::Vunpckhps | M::Vunpckhpd | M::Vunpcklps | M::Vunpcklpd | M::Vshufps | M::Vshufpd => true,
        M::Vshuff32x4 | M::Vshuff64x2 | M::Vshufi32x4 | M::Vshufi64x2 => true,
        // The count operand of a shift is read whole; a shifted operand (with an immediate count) is not.
        M::Vpsllw | M::Vpslld | M::Vpsllq | M::Vpsrlw | M::Vpsrld | M::Vpsrlq | M::Vpsraw | M::Vpsrad | M::Vpsraq => {
            instruction.op2_kind() == OpKind::Memory
        }
        _ => false,
    }
}

/// Bytes of the memory operand that one mask bit stands for: the element, except where several small elements make
/// one lane of the result.
fn lane_bytes(instruction: &Instruction) -> u8 {
    use Mnemonic as M;
    match instruction.mnemonic() {
        M::Vpdpbusd | M::Vpdpbusds | M::Vpdpwssd | M::Vpdpwssds | M::Vdpbf16ps => 4,
        M::Vfmulcsh | M::Vfcmulcsh | M::Vfmaddcsh | M::Vfcmaddcsh => 4,
        M::Vfmulcph | M::Vfcmulcph | M::Vfmaddcph | M::Vfcmaddcph => 4,
        M::Vpmuldq | M::Vpmuludq => 8,
        _ => instruction.memory_size().element_size().max(1) as u8,
    }
}

/// Hardware number of a vector register.
pub(crate) fn vector_number(register: Register) -> u8 {
    register.number() as u8
}
