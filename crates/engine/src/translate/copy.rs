//! Copies one instruction that does not transfer control, so that it does the same in the cache.
//!
//! ```text
//! as it is            any instruction without RIP-relative or GS operand
//! rip in reach        mov eax, [rip+d]      ->  mov eax, [rip+d']
//! low target          mov eax, [rip+d]      ->  mov eax, [disp32]            (non-PIE programs)
//! out of reach        mov eax, [rip+d]      ->  spill s; mov s, target; mov eax, [s]; restore s
//! gs operand          mov eax, gs:[rdi+d]   ->  spill s,u; lea s,[rdi+d]; mov u, guest_gs; lea s,[s+u]; restore u;
//!                                               mov eax, [s]; restore s
//! ```

use super::decode::Decoded;
use super::emit::{BlockState, Emitter, RelocKind, SpillSlot, Translation};
use crate::gate::at;
use iced_x86::{Instruction, MemoryOperand, Register};
use model::layout::CACHE;

/// Can every place of the cache reach `target` with a 32-bit displacement?
pub fn in_reach(target: u64) -> bool {
    let low = CACHE.start as i64 - target as i64;
    let high = target as i64 - CACHE.start as i64;
    // From the far end of the cache downwards, from its start upwards; a page of slack for the instruction itself.
    low < (1 << 31) - 4096 - (CACHE.end - CACHE.start) as i64 && high < (1 << 31) - 4096
}

/// Hardware numbers of GPRs an instruction touches.
fn used(e: &mut Emitter, i: &Instruction) -> u16 {
    let s = e.isa.summary(i);
    s.gpr_read | s.gpr_write | 1 << 4
}

fn pick(avoid: u16) -> u8 {
    (!avoid).trailing_zeros() as u8
}

/// Register with hardware number `n`.
pub fn gpr64(n: u8) -> Register {
    Register::RAX + n as u32
}

/// Emits instruction `k` of `block`, whose raw bytes are `raw`.
pub fn instruction(t: &mut Translation, e: &mut Emitter, b: &BlockState<'_>, block: &Decoded, k: usize, raw: &[u8]) {
    let i = &block.insns[k];
    if i.segment_prefix() == Register::GS && i.memory_size() != iced_x86::MemorySize::Unknown
        || i.memory_segment() == Register::GS && has_memory(i)
    {
        return through_guest_gs(t, e, b, i);
    }
    if !i.is_ip_rel_memory_operand() {
        t.asm.put(raw);
        return;
    }
    let target = i.ip_rel_memory_address();
    let displacement = block.offsets[k].displacement_offset();
    if in_reach(target) && i.memory_base() == Register::RIP {
        let start = t.asm.here();
        t.asm.put(raw);
        let after = raw.len() - displacement;
        t.reloc(start + displacement as u32, RelocKind::Rip(after as u8), target);
    } else if target < 0x7fff_f000 && raw.len() < 15 && i.memory_base() == Register::RIP && plain_sib(raw, displacement)
    {
        // ModRM rm=101 (RIP) becomes rm=100 with a SIB byte that has neither base nor index.
        t.asm.put(&raw[..displacement - 1]);
        t.asm.put(&[raw[displacement - 1] & !7 | 4, 0x25]);
        t.asm.put32(target as u32);
        t.asm.put(&raw[displacement + 4..]);
    } else {
        through_scratch(t, e, b, i, target);
    }
}

fn has_memory(i: &Instruction) -> bool {
    (0..i.op_count()).any(|n| i.op_kind(n) == iced_x86::OpKind::Memory)
}

/// The encoding's X bit would become an index once there is a SIB byte; compilers leave it clear.
fn plain_sib(raw: &[u8], displacement: usize) -> bool {
    // Legacy encodings: a REX prefix with X set. VEX/EVEX store X inverted in the byte after the escape.
    let modrm = displacement - 1;
    for (n, &b) in raw[..modrm].iter().enumerate() {
        match b {
            0x66 | 0x67 | 0xf2 | 0xf3 | 0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65 | 0xf0 => {}
            0x40..=0x4f => return b & 2 == 0,
            0xc4 | 0x62 => return raw.get(n + 1).is_some_and(|x| x & 0x40 != 0),
            _ => return true,
        }
    }
    true
}

fn through_scratch(t: &mut Translation, e: &mut Emitter, b: &BlockState<'_>, i: &Instruction, target: u64) {
    let s = pick(used(e, i) | b.reserved);
    t.spill(s, SpillSlot::Spill2);
    t.asm.mov_imm(s, target);
    let mut j = *i;
    j.set_memory_base(gpr64(s));
    j.set_memory_displacement64(0);
    j.set_memory_displ_size(0);
    encode(t, e, &j);
    t.restore(s, SpillSlot::Spill2);
}

fn through_guest_gs(t: &mut Translation, e: &mut Emitter, b: &BlockState<'_>, i: &Instruction) {
    let avoid = used(e, i) | b.reserved;
    let s = pick(avoid);
    let u = pick(avoid | 1 << s);
    t.spill(s, SpillSlot::Spill2);
    t.spill(u, SpillSlot::Rcx);
    guest_gs_address(t, e, i, s, u);
    t.restore(u, SpillSlot::Rcx);
    let mut j = *i;
    j.set_segment_prefix(Register::None);
    j.set_memory_base(gpr64(s));
    j.set_memory_index(Register::None);
    j.set_memory_displacement64(0);
    j.set_memory_displ_size(0);
    encode(t, e, &j);
    t.restore(s, SpillSlot::Spill2);
}

/// s = address of the GS operand, using u.
pub fn guest_gs_address(t: &mut Translation, e: &mut Emitter, i: &Instruction, s: u8, u: u8) {
    if i.is_ip_rel_memory_operand() {
        t.asm.mov_imm(s, i.ip_rel_memory_address());
    } else {
        let m = memory_operand(i, Register::None);
        if let Ok(lea) = Instruction::with2(iced_x86::Code::Lea_r64_m, gpr64(s), m) {
            encode(t, e, &lea);
        }
    }
    t.asm.load_gs(u, at::GUEST_GS);
    t.asm.lea(s, Some(s), Some((u, 1)), 0);
}

/// The memory operand of an instruction, for another one, behind `segment`.
pub fn memory_operand(i: &Instruction, segment: Register) -> MemoryOperand {
    let displacement = i.memory_displacement64() as i64;
    let (base, index, scale) = (i.memory_base(), i.memory_index(), i.memory_index_scale());
    MemoryOperand::new(base, index, scale, displacement, i.memory_displ_size(), false, segment)
}

/// Re-encodes an instruction that has been changed.
pub fn encode(t: &mut Translation, e: &mut Emitter, i: &Instruction) {
    // The address only matters for RIP-relative operands and branches, which changed instructions do not have.
    let n = e.encoder.encode(i, 0).unwrap_or_else(|err| panic!("cannot encode {:?} at {:#x}: {err}", i.code(), i.ip()));
    let bytes = e.encoder.take_buffer();
    t.asm.put(&bytes[..n]);
    e.encoder.set_buffer(bytes);
    // `set_buffer` keeps the old contents in place: start the next instruction at the front.
    let mut empty = e.encoder.take_buffer();
    empty.clear();
    e.encoder.set_buffer(empty);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reach_covers_program_libraries_and_not_the_rest() {
        use model::layout::*;
        for near in [PIE_BASE, NEAR_LOW.start, NEAR_LOW.end, CACHE.start, NEAR_HIGH.start, NEAR_HIGH.end] {
            assert!(in_reach(near), "{near:#x}");
        }
        for far in [0x40_0000, STACK_TOP, ENGINE_IMAGE, MMAP.end] {
            assert!(!in_reach(far), "{far:#x}");
        }
    }
}
