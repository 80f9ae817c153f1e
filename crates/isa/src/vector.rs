//! Which bytes of its vector register operands an instruction reads and writes.
//!
//! iced counts a register operand as read or written whole. Here the sets are narrowed where the instruction ignores or
//! keeps part of a register: scalar arithmetic and conversions, moves of parts, inserts and extracts, interleaves,
//! shift counts. Writes are exact; a VEX or EVEX instruction writes all 64 bytes, because it clears the upper ones.
//!
//! What it may miss: bytes that an immediate or another operand leaves out (shuffles, blends, lane permutes), and that
//! only the sign bit of each element of a mask matters. There the whole operand is declared as read.

use alloc::vec::Vec;
use iced_x86::{EncodingKind, Instruction, InstructionInfo, Mnemonic, OpKind};

use crate::memory::{MemAccess, Shape};
use crate::registers::{ByteRange, Reg, RegAccess, access_bits};

/// A set of bytes of a vector register.
type Bytes = u64;

/// The low `n` bytes.
const fn low(n: usize) -> Bytes {
    if n >= 64 { u64::MAX } else { (1 << n) - 1 }
}

/// Bytes `start..end`.
const fn span(start: usize, end: usize) -> Bytes {
    low(end) & !low(start)
}

/// The low eight bytes of each 16.
const LOW_HALVES: Bytes = 0x00FF_00FF_00FF_00FF;
/// The first four bytes of each eight.
const EVEN_DWORDS: Bytes = 0x0F0F_0F0F_0F0F_0F0F;

/// What is known of one explicit operand.
#[derive(Clone, Copy, Default)]
struct Operand {
    /// Number of the vector register, if it is one.
    register: Option<u8>,
    read: Bytes,
    write: Bytes,
}

/// Replaces iced's accesses of explicit vector operands in `out` by exact ones. `mem` are the memory accesses.
pub(crate) fn registers(
    instruction: &Instruction,
    info: &InstructionInfo,
    mem: &[MemAccess],
    out: &mut Vec<RegAccess>,
) {
    if instruction.mnemonic() == Mnemonic::Vzeroupper {
        out.clear();
        for n in 0..16 {
            push(out, n, Operand { register: Some(n), read: 0, write: span(16, 64) });
        }
        return;
    }
    if has_implicit_registers(instruction.mnemonic()) {
        return;
    }
    let legacy = instruction.encoding() == EncodingKind::Legacy;
    let mut operands = [Operand::default(); 5];
    let count = instruction.op_count().min(5);
    let mut any = instruction.is_vsib();
    for n in 0..count {
        let register = instruction.op_register(n);
        if instruction.op_kind(n) != OpKind::Register || !register.is_vector_register() {
            continue;
        }
        let (read, write, _) = access_bits(info.op_access(n));
        any = true;
        operands[n as usize] = Operand {
            register: Some(register.number() as u8),
            read: if read { low(register.size()) } else { 0 },
            write: if write { low(if legacy { 16 } else { 64 }) } else { 0 },
        };
    }
    if !any {
        return;
    }
    narrow_source(instruction, &mut operands[..count as usize]);
    narrow(instruction, legacy, &mut operands);
    out.retain(|access| !matches!(access.reg, Reg::Vec(_)));
    for operand in operands {
        if let Some(register) = operand.register {
            push(out, register, operand);
        }
    }
    index_registers(instruction, mem, out);
}

/// Instructions that use vector registers which are not operands, or whole groups of them: iced's list is right.
fn has_implicit_registers(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Blendvps
            | M::Blendvpd
            | M::Pblendvb
            | M::Sha256rnds2
            | M::Pcmpestrm
            | M::Pcmpistrm
            | M::Vpcmpestrm
            | M::Vpcmpistrm
            | M::Pcmpestrm64
            | M::Vpcmpestrm64
            | M::Vzeroall
            | M::Loadiwkey
            | M::Encodekey128
            | M::Encodekey256
            | M::Aesencwide128kl
            | M::Aesdecwide128kl
            | M::Aesencwide256kl
            | M::Aesdecwide256kl
            | M::V4fmaddps
            | M::V4fmaddss
            | M::V4fnmaddps
            | M::V4fnmaddss
            | M::Vp4dpwssd
            | M::Vp4dpwssds
    )
}

/// Appends the accesses of one register, as runs of bytes.
fn push(out: &mut Vec<RegAccess>, register: u8, operand: Operand) {
    let mut runs = |set: Bytes, read: bool, write: bool| {
        let mut rest = set;
        while rest != 0 {
            let start = rest.trailing_zeros();
            let len = (!(rest >> start)).trailing_zeros();
            let bytes = ByteRange::new(start as u8, (start + len) as u8);
            out.push(RegAccess { reg: Reg::Vec(register), bytes, read, write, conditional: false });
            rest &= !span(start as usize, (start + len) as usize);
        }
    };
    if operand.read == operand.write {
        return runs(operand.read, true, true);
    }
    runs(operand.read, true, false);
    runs(operand.write, false, true);
}

/// The index registers of gathers and scatters.
fn index_registers(instruction: &Instruction, mem: &[MemAccess], out: &mut Vec<RegAccess>) {
    if !instruction.is_vsib() {
        return;
    }
    // A gather prefetch touches no memory, but computes addresses all the same.
    let mut index = (instruction.memory_index().number() as u8, instruction.memory_index().size() as u8);
    for access in mem {
        if let Shape::Gather { index_vec, index_elem, lanes, .. }
        | Shape::Scatter { index_vec, index_elem, lanes, .. } = access.shape
        {
            index = (index_vec, lanes * index_elem);
        }
    }
    let bytes = ByteRange::new(0, index.1);
    out.push(RegAccess { reg: Reg::Vec(index.0), bytes, read: true, write: false, conditional: false });
}

/// A source that could as well be in memory is read only as far as the memory operand would be.
fn narrow_source(instruction: &Instruction, operands: &mut [Operand]) {
    use Mnemonic as M;
    let size = instruction.memory_size().size();
    let is_immediate = |n: &usize| {
        matches!(instruction.op_kind(*n as u32), OpKind::Immediate8 | OpKind::Immediate8_2nd | OpKind::Immediate32)
    };
    let Some(last) = (1..operands.len()).rev().find(|n| !is_immediate(n)) else { return };
    // Here the memory form is that of the destination, or selects by the immediate, or is one element of a gather.
    let mnemonic = instruction.mnemonic();
    let other_meaning = instruction.is_vsib()
        || matches!(mnemonic, M::Insertps | M::Vinsertps | M::Extractps | M::Vextractps | M::Vcvtps2ph)
        || matches!(mnemonic, M::Movhps | M::Movhpd | M::Vmovhps | M::Vmovhpd)
        || matches!(mnemonic, M::Pextrb | M::Pextrw | M::Pextrd | M::Pextrq)
        || matches!(mnemonic, M::Vpextrb | M::Vpextrw | M::Vpextrd | M::Vpextrq)
        || is_extract(mnemonic)
        || is_down_conversion(mnemonic);
    if size != 0 && !other_meaning {
        operands[last].read &= low(size);
    }
}

/// `vextract*`: the memory operand is the destination.
fn is_extract(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Vextractf128
            | M::Vextracti128
            | M::Vextractf32x4
            | M::Vextractf32x8
            | M::Vextractf64x2
            | M::Vextractf64x4
            | M::Vextracti32x4
            | M::Vextracti32x8
            | M::Vextracti64x2
            | M::Vextracti64x4
    )
}

/// `vpmov*` to narrower elements: the memory operand is the destination.
fn is_down_conversion(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(mnemonic, M::Vpmovwb | M::Vpmovdb | M::Vpmovdw | M::Vpmovqb | M::Vpmovqw | M::Vpmovqd)
        || matches!(mnemonic, M::Vpmovswb | M::Vpmovsdb | M::Vpmovsdw | M::Vpmovsqb | M::Vpmovsqw | M::Vpmovsqd)
        || matches!(mnemonic, M::Vpmovuswb | M::Vpmovusdb | M::Vpmovusdw | M::Vpmovusqb | M::Vpmovusqw | M::Vpmovusqd)
}

/// How an instruction treats destination and first source.
enum Rule {
    /// `op0[..n] = f(op0[..n], last[..n])`, or with three operands the upper bytes of op1.
    Binary(usize),
    /// `op0[..n] = f(last)`, or with three operands the upper bytes of op1.
    Unary(usize),
    /// Only the low n bytes of op0 are compared.
    Compare(usize),
    /// `op0[..n] = f(op0[..n], op1[..n], op2[..n])`, the rest of op0 stays up to byte 16.
    Fused(usize),
    /// Reads these bytes of every source.
    Elements(Bytes),
    /// The element of this size that the immediate selects is replaced.
    Insert(usize),
    /// The element of this size that the immediate selects is read from op1.
    Extract(usize),
    /// The low eight bytes are replaced: (bytes of the source).
    MoveLow(Bytes),
    /// The high eight bytes are replaced: (bytes of the source).
    MoveHigh(Bytes),
    /// The count is the low eight bytes of the last operand.
    Count,
}

/// Applies the rule of the instruction, if it has one.
fn narrow(instruction: &Instruction, legacy: bool, operands: &mut [Operand; 5]) {
    let Some(rule) = rule(instruction) else { return };
    let count = instruction.op_count() as usize;
    let immediate = if has_immediate(instruction) { usize::from(instruction.immediate8()) } else { 0 };
    // The last operand that is no immediate is the source.
    let last = count - 1 - usize::from(has_immediate(instruction));
    let in_place = last == 1 && legacy;
    match rule {
        Rule::Binary(n) | Rule::Unary(n) => {
            let reads_low = matches!(rule, Rule::Binary(_));
            if in_place {
                operands[0].read = if reads_low { low(n) } else { 0 };
                operands[0].write = low(n);
            } else {
                // Under a merging mask the destination stays where the mask says so.
                operands[0].read &= low(n);
                if last == 2 {
                    operands[1].read &= if reads_low { low(16) } else { span(n, 16) };
                }
            }
        }
        Rule::Compare(n) => operands[0].read &= low(n),
        Rule::Fused(n) => {
            operands[0].read &= low(16);
            operands[1].read &= low(n);
            operands[2].read &= low(n);
        }
        Rule::Elements(set) => {
            let first = if in_place { 0 } else { 1 };
            for operand in &mut operands[first..=last] {
                operand.read &= set;
            }
        }
        Rule::Insert(n) => {
            let at = immediate % (16 / n) * n;
            if legacy {
                operands[0].read = 0;
                operands[0].write = span(at, at + n);
            } else {
                operands[1].read &= low(16) & !span(at, at + n);
            }
        }
        Rule::Extract(n) => {
            let lanes = (operands[1].read.count_ones() as usize / n).max(1);
            let at = immediate % lanes * n;
            operands[1].read &= span(at, at + n);
        }
        Rule::MoveLow(from) => move_part(operands, legacy, last, low(8), from),
        Rule::MoveHigh(from) => move_part(operands, legacy, last, span(8, 16), from),
        Rule::Count => operands[last].read &= low(8),
    }
}

/// A move of eight bytes (`from` of the last operand) into the bytes `to` of the destination.
fn move_part(operands: &mut [Operand; 5], legacy: bool, last: usize, to: Bytes, from: Bytes) {
    operands[last].read &= from;
    if legacy && operands[0].register.is_some() {
        operands[0].read = 0;
        operands[0].write = to;
    } else if last == 2 {
        operands[1].read &= low(16) & !to;
    }
}

/// True if the last operand is an immediate.
fn has_immediate(instruction: &Instruction) -> bool {
    instruction.op_kind(instruction.op_count() - 1) == OpKind::Immediate8
}

/// The rule of an instruction.
fn rule(instruction: &Instruction) -> Option<Rule> {
    use Mnemonic as M;
    // iced has one mnemonic for the string instructions `movsd` and `cmpsd` and for moves and compares of doubles.
    if instruction.is_string_instruction() {
        return None;
    }
    let to_memory = instruction.op0_kind() == OpKind::Memory;
    Some(match instruction.mnemonic() {
        M::Addss | M::Subss | M::Mulss | M::Divss | M::Minss | M::Maxss | M::Cmpss => Rule::Binary(4),
        M::Addsd | M::Subsd | M::Mulsd | M::Divsd | M::Minsd | M::Maxsd | M::Cmpsd => Rule::Binary(8),
        M::Sqrtss | M::Rcpss | M::Rsqrtss | M::Roundss | M::Cvtsd2ss | M::Cvtsi2ss => Rule::Unary(4),
        M::Sqrtsd | M::Roundsd | M::Cvtss2sd | M::Cvtsi2sd => Rule::Unary(8),
        M::Vsqrtss | M::Vrcpss | M::Vrsqrtss | M::Vroundss | M::Vcvtsd2ss | M::Vcvtsi2ss | M::Vcvtusi2ss => {
            Rule::Unary(4)
        }
        M::Vrndscaless | M::Vreducess | M::Vgetexpss | M::Vgetmantss | M::Vrcp14ss | M::Vrsqrt14ss | M::Vcvtsh2ss => {
            Rule::Unary(4)
        }
        M::Vsqrtsd | M::Vroundsd | M::Vcvtss2sd | M::Vcvtsi2sd | M::Vcvtusi2sd | M::Vcvtsh2sd => Rule::Unary(8),
        M::Vrndscalesd | M::Vreducesd | M::Vgetexpsd | M::Vgetmantsd | M::Vrcp14sd | M::Vrsqrt14sd => Rule::Unary(8),
        M::Vsqrtsh | M::Vrcpsh | M::Vrsqrtsh | M::Vrndscalesh | M::Vreducesh | M::Vgetexpsh | M::Vgetmantsh => {
            Rule::Unary(2)
        }
        M::Vcvtss2sh | M::Vcvtsd2sh | M::Vcvtsi2sh | M::Vcvtusi2sh => Rule::Unary(2),
        // The move between registers keeps the rest; the load clears it.
        M::Movss | M::Vmovss | M::Movsd | M::Vmovsd | M::Vmovsh if has_memory(instruction) => return None,
        M::Movss | M::Vmovss => Rule::Unary(4),
        M::Movsd | M::Vmovsd => Rule::Unary(8),
        M::Vmovsh => Rule::Unary(2),
        M::Comiss | M::Ucomiss | M::Vcomiss | M::Vucomiss => Rule::Compare(4),
        M::Comisd | M::Ucomisd | M::Vcomisd | M::Vucomisd => Rule::Compare(8),
        M::Vcomish | M::Vucomish => Rule::Compare(2),

        M::Punpcklbw | M::Punpcklwd | M::Punpckldq | M::Punpcklqdq | M::Unpcklps | M::Unpcklpd => {
            Rule::Elements(LOW_HALVES)
        }
        M::Vpunpcklbw | M::Vpunpcklwd | M::Vpunpckldq | M::Vpunpcklqdq | M::Vunpcklps | M::Vunpcklpd => {
            Rule::Elements(LOW_HALVES)
        }
        M::Punpckhbw | M::Punpckhwd | M::Punpckhdq | M::Punpckhqdq | M::Unpckhps | M::Unpckhpd => {
            Rule::Elements(!LOW_HALVES)
        }
        M::Vpunpckhbw | M::Vpunpckhwd | M::Vpunpckhdq | M::Vpunpckhqdq | M::Vunpckhps | M::Vunpckhpd => {
            Rule::Elements(!LOW_HALVES)
        }
        M::Pmuludq | M::Pmuldq | M::Vpmuludq | M::Vpmuldq => Rule::Elements(EVEN_DWORDS),
        M::Movsldup | M::Vmovsldup => Rule::Elements(EVEN_DWORDS),
        M::Movshdup | M::Vmovshdup => Rule::Elements(!EVEN_DWORDS),
        M::Movddup | M::Vmovddup => Rule::Elements(LOW_HALVES),
        M::Pinsrb | M::Vpinsrb => Rule::Insert(1),
        M::Pinsrw | M::Vpinsrw => Rule::Insert(2),
        M::Pinsrd | M::Vpinsrd => Rule::Insert(4),
        M::Pinsrq | M::Vpinsrq => Rule::Insert(8),
        M::Pextrb | M::Vpextrb => Rule::Extract(1),
        M::Pextrw | M::Vpextrw => Rule::Extract(2),
        M::Pextrd | M::Vpextrd | M::Extractps | M::Vextractps => Rule::Extract(4),
        M::Pextrq | M::Vpextrq => Rule::Extract(8),
        M::Vextractf128 | M::Vextracti128 | M::Vextractf32x4 | M::Vextracti32x4 => Rule::Extract(16),
        M::Vextractf64x2 | M::Vextracti64x2 => Rule::Extract(16),
        M::Vextractf32x8 | M::Vextracti32x8 | M::Vextractf64x4 | M::Vextracti64x4 => Rule::Extract(32),
        M::Movlps | M::Movlpd | M::Vmovlps | M::Vmovlpd if !to_memory => Rule::MoveLow(0),
        M::Movhps | M::Movhpd | M::Vmovhps | M::Vmovhpd if !to_memory => Rule::MoveHigh(0),
        M::Movhps | M::Movhpd | M::Vmovhps | M::Vmovhpd => Rule::Elements(span(8, 16)),
        M::Movhlps | M::Vmovhlps => Rule::MoveLow(span(8, 16)),
        M::Movlhps | M::Vmovlhps => Rule::MoveHigh(low(8)),
        M::Movdq2q => Rule::Elements(low(8)),
        M::Psllw | M::Pslld | M::Psllq | M::Psrlw | M::Psrld | M::Psrlq | M::Psraw | M::Psrad
            if !has_immediate(instruction) =>
        {
            Rule::Count
        }
        M::Vpsllw | M::Vpslld | M::Vpsllq | M::Vpsrlw | M::Vpsrld | M::Vpsrlq | M::Vpsraw | M::Vpsrad | M::Vpsraq
            if !has_immediate(instruction) =>
        {
            Rule::Count
        }
        mnemonic => return scalar_vector(mnemonic).or(fused_element(mnemonic).map(Rule::Fused)),
    })
}

/// Scalar arithmetic with three operands.
fn scalar_vector(mnemonic: Mnemonic) -> Option<Rule> {
    use Mnemonic as M;
    Some(match mnemonic {
        M::Vaddss | M::Vsubss | M::Vmulss | M::Vdivss | M::Vminss | M::Vmaxss | M::Vscalefss | M::Vrangess => {
            Rule::Binary(4)
        }
        M::Vaddsd | M::Vsubsd | M::Vmulsd | M::Vdivsd | M::Vminsd | M::Vmaxsd | M::Vscalefsd | M::Vrangesd => {
            Rule::Binary(8)
        }
        M::Vaddsh | M::Vsubsh | M::Vmulsh | M::Vdivsh | M::Vminsh | M::Vmaxsh | M::Vscalefsh => Rule::Binary(2),
        _ => return None,
    })
}

fn has_memory(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).any(|n| instruction.op_kind(n) == OpKind::Memory)
}

/// Element size of a scalar fused multiply-add.
#[rustfmt::skip]
fn fused_element(mnemonic: Mnemonic) -> Option<usize> {
    use Mnemonic as M;
    match mnemonic {
        M::Vfmadd132ss | M::Vfmadd213ss | M::Vfmadd231ss | M::Vfmsub132ss | M::Vfmsub213ss | M::Vfmsub231ss
        | M::Vfnmadd132ss | M::Vfnmadd213ss | M::Vfnmadd231ss | M::Vfnmsub132ss | M::Vfnmsub213ss | M::Vfnmsub231ss => Some(4),
        M::Vfmadd132sd | M::Vfmadd213sd | M::Vfmadd231sd | M::Vfmsub132sd | M::Vfmsub213sd | M::Vfmsub231sd
        | M::Vfnmadd132sd | M::Vfnmadd213sd | M::Vfnmadd231sd | M::Vfnmsub132sd | M::Vfnmsub213sd | M::Vfnmsub231sd => Some(8),
        M::Vfmadd132sh | M::Vfmadd213sh | M::Vfmadd231sh | M::Vfmsub132sh | M::Vfmsub213sh | M::Vfmsub231sh
        | M::Vfnmadd132sh | M::Vfnmadd213sh | M::Vfnmadd231sh | M::Vfnmsub132sh | M::Vfnmsub213sh | M::Vfnmsub231sh => Some(2),
        _ => None,
    }
}
