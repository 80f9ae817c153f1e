//! The trace record of a block: its tag (id and length), then the address bases that its plan asks for.
//!
//! ```text
//! begin    spill rt (and ra); mov rt, gs:[trace]; mov dword [rt], id
//! slot     mov [rt+o], reg     or    lea ra, [base+index*scale]; mov [rt+o], ra     or a vector / mask store
//! end      lea rt, [rt+length]; mov gs:[trace], rt; restore rt (and ra)
//! ```
//! The end comes before a final control transfer, so that this can use rax and rcx as it likes; a transfer that faults
//! leaves a complete record, which the engine turns into a partial one. There is no check for the end of the buffer: a
//! guard page lies behind it, and the engine's handler moves the unfinished record to the next buffer.

use super::copy::encode;
use super::decode::Decoded;
use super::emit::{BlockState, Emitter, SpillSlot, Translation};
use crate::gate::at;
use iced_x86::{Code, Instruction, MemoryOperand, Register};
use trace::plan::SlotKind;

/// Plans the block and starts its record.
pub fn begin(t: &mut Translation, e: &mut Emitter, block: &Decoded, b: &mut BlockState<'_>) {
    e.planner.plan(&block.insns, &mut e.plan);
    let free = !(block.used | 1 << 4);
    let rt = 15 - free.leading_zeros() as u8;
    let rest = free & !(1 << rt);
    let sums = e.plan.slots.iter().any(|s| matches!(s.what, SlotKind::Sum { .. }));
    let ra = sums.then(|| 15 - rest.leading_zeros() as u8);
    b.trace_regs = Some((rt, ra));
    b.reserved = 1 << rt | ra.map_or(0, |r| 1 << r);
    t.record = e.plan.record_bytes();
    t.spill(rt, SpillSlot::Spill0);
    if let Some(ra) = ra {
        t.spill(ra, SpillSlot::Spill1);
    }
    t.asm.load_gs(rt, at::TRACE);
    t.asm.store_imm32(rt, 0, e.plan.tag(b.request.block_id));
}

/// Slots recorded before instruction `k`.
pub fn before(t: &mut Translation, e: &mut Emitter, b: &BlockState<'_>, k: usize) {
    slots(t, e, b, k, false);
}

/// Slots recorded after instruction `k`.
pub fn after(t: &mut Translation, e: &mut Emitter, b: &BlockState<'_>, k: usize) {
    slots(t, e, b, k, true);
}

fn slots(t: &mut Translation, e: &mut Emitter, b: &BlockState<'_>, k: usize, after: bool) {
    let Some((rt, ra)) = b.trace_regs else { return };
    // Slots are in order of instruction: a plan is short, so a scan from the front costs less than an index.
    for n in 0..e.plan.slots.len() {
        let s = e.plan.slots[n];
        if s.insn as usize != k || s.after != after {
            continue;
        }
        let offset = s.offset as i32;
        match s.what {
            SlotKind::Gpr(r) => t.asm.store(r, rt, offset),
            SlotKind::Sum { base, index, scale } => {
                let ra = ra.unwrap_or(rt);
                t.asm.lea(ra, base, Some((index, scale)), 0);
                t.asm.store(ra, rt, offset);
            }
            SlotKind::Vec { reg, bytes } => store_vector(t, e, reg, bytes, rt, offset),
            SlotKind::Mask(k) => {
                store_with(t, e, Code::VEX_Kmovq_m64_kr, Register::K0 + k as u32, rt, offset);
            }
        }
    }
}

fn store_vector(t: &mut Translation, e: &mut Emitter, reg: u8, bytes: u8, rt: u8, offset: i32) {
    let n = reg as u32;
    let (code, r) = match (bytes, reg) {
        (16, 0..16) => (Code::Movdqu_xmmm128_xmm, Register::XMM0 + n),
        (16, _) => (Code::EVEX_Vmovdqu64_xmmm128_k1z_xmm, Register::XMM0 + n),
        (32, 0..16) => (Code::VEX_Vmovdqu_ymmm256_ymm, Register::YMM0 + n),
        (32, _) => (Code::EVEX_Vmovdqu64_ymmm256_k1z_ymm, Register::YMM0 + n),
        _ => (Code::EVEX_Vmovdqu64_zmmm512_k1z_zmm, Register::ZMM0 + n),
    };
    store_with(t, e, code, r, rt, offset);
}

fn store_with(t: &mut Translation, e: &mut Emitter, code: Code, reg: Register, rt: u8, offset: i32) {
    let m = MemoryOperand::with_base_displ(super::copy::gpr64(rt), offset as i64);
    let store = Instruction::with2(code, m, reg);
    encode(t, e, &store.unwrap_or_else(|err| panic!("cannot store {reg:?}: {err}")));
}

/// Completes the record.
pub fn end(t: &mut Translation, b: &mut BlockState<'_>) {
    let Some((rt, ra)) = b.trace_regs.take() else { return };
    t.asm.lea(rt, Some(rt), None, t.record as i32);
    t.asm.store_gs(rt, at::TRACE);
    t.restore(rt, SpillSlot::Spill0);
    if let Some(ra) = ra {
        t.restore(ra, SpillSlot::Spill1);
    }
    b.reserved = 0;
}
