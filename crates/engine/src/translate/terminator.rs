//! The end of a block: control transfers, ticks, and instructions the engine executes itself.
//!
//! ```text
//! jmp T / fall through   (tick if T is not ahead)  jmp [T]                  or nothing, when [T] is laid out next
//! jcc T                  jcc [T]                                            forward
//!                        jncc over; tick; jmp [T]; over:                    backward: only a taken branch ticks
//! call T                 push imm32(low); mov dword [rsp+4], high; (tick) jmp [T]
//! ret                    save rax, rcx; pop rax; tick; lookup
//! jmp/call r/m           save rax, rcx; mov rax, r/m; (push); tick; lookup
//! lookup                 movzx ecx, ax; jmp gs:[table + rcx*8]              lands on a check in front of some block
//! check                  movabs rcx, -pc; lea rcx, [rcx+rax]; jrcxz ok; jmp next; ok: restore rax, rcx
//! tick, flags dead       dec qword gs:[budget]; jz expired
//! tick, flags live       (rcx saved) mov rcx, gs:[budget]; lea rcx, [rcx-1]; mov gs:[budget], rcx; jrcxz expired
//! ```

use super::asm::{RAX, RCX, RSP};
use super::copy::{encode, gpr64, guest_gs_address, in_reach};
use super::decode::{Decoded, Ending};
use super::emit::{BlockState, Common, Emitter, EventKind, ExitKind, RelocKind, SpillSlot, Translation};
use super::liveness::{self, CodeAt};
use crate::gate::at;
use iced_x86::{Code, FlowControl, Instruction, MemoryOperand, OpKind, Register};
use model::Mode;

const JZ: u8 = 4;

/// The check that indirect branches land on: is rax this block's address? Both registers come back on success.
pub fn indirect_check(t: &mut Translation, pc: u64) {
    t.asm.put(&[0x48, 0xb9]);
    let field = t.asm.here();
    t.asm.put(&(pc as i64).wrapping_neg().to_le_bytes());
    t.reloc(field, RelocKind::GuestNegated, pc);
    t.asm.put(&[0x48, 0x8d, 0x0c, 0x01]);
    let ok = t.asm.jrcxz();
    let miss = t.asm.jmp();
    t.reloc(miss, RelocKind::Common(Common::IndirectMiss), 0);
    t.asm.land(ok);
    t.asm.load_gs(RAX, at::RAX);
    t.asm.load_gs(RCX, at::RCX);
}

/// Offset from the start of the check to the rel32 of its jump to the next candidate.
pub const CHECK_NEXT: u32 = 10 + 4 + 2 + 1;
/// Offset at which the check has succeeded and registers come back.
pub const CHECK_OK: u32 = CHECK_NEXT + 4;
/// Length of the check.
pub const CHECK_LEN: u32 = CHECK_OK + 18;

/// Emits the last instruction of a block that ends in a transfer or special, or the way on after a cut.
pub fn emit(t: &mut Translation, e: &mut Emitter, b: &BlockState<'_>, block: &Decoded, code: &mut CodeAt<'_>) {
    let Some(last) = block.insns.last() else {
        t.exit(ExitKind::Undefined, b.request.pc);
        return;
    };
    match block.ending {
        Some(Ending::Special(s)) => {
            t.exit(ExitKind::Special(s, last.len() as u8), last.ip());
        }
        Some(Ending::Transfer) => transfer(t, e, b, last, code),
        _ => t.next = Some(block.end),
    }
}

fn transfer(t: &mut Translation, e: &mut Emitter, b: &BlockState<'_>, i: &Instruction, code: &mut CodeAt<'_>) {
    let ticking = b.request.mode != Mode::None;
    match i.flow_control() {
        FlowControl::ConditionalBranch => conditional(t, e, b, i, code),
        FlowControl::UnconditionalBranch => {
            let to = i.near_branch_target();
            if ticking && to <= i.ip() {
                direct_tick(t, e, to, code);
            }
            t.next = Some(to);
        }
        FlowControl::Call => {
            let to = i.near_branch_target();
            push_return(t, i.next_ip());
            if ticking && to <= i.ip() {
                direct_tick(t, e, to, code);
            }
            t.next = Some(to);
        }
        FlowControl::Return => {
            t.spill(RAX, SpillSlot::Rax);
            t.spill(RCX, SpillSlot::Rcx);
            t.asm.put(&[0x58]);
            if i.op_count() > 0 {
                t.asm.lea(RSP, Some(RSP), None, i.immediate16() as i32);
            }
            lookup(t, ticking);
        }
        _ => {
            t.spill(RAX, SpillSlot::Rax);
            t.spill(RCX, SpillSlot::Rcx);
            indirect_target(t, e, i);
            if i.flow_control() == FlowControl::IndirectCall {
                push_return(t, i.next_ip());
            }
            lookup(t, ticking);
        }
    }
}

/// Pushes a guest return address.
fn push_return(t: &mut Translation, ret: u64) {
    t.asm.push_imm32(ret as u32);
    t.reloc(t.asm.here() - 4, RelocKind::GuestLow, ret);
    if ret as u32 as i32 as i64 as u64 != ret {
        t.asm.store_imm32(RSP, 4, (ret >> 32) as u32);
        t.reloc(t.asm.here() - 4, RelocKind::GuestHigh, ret);
    }
}

/// rax = target of an indirect branch. May fault, before anything has happened.
fn indirect_target(t: &mut Translation, e: &mut Emitter, i: &Instruction) {
    if i.op0_kind() == OpKind::Register {
        let r = i.op0_register().full_register() as u32 - Register::RAX as u32;
        if r as u8 != RAX {
            t.asm.mov_reg(RAX, r as u8);
        }
        return;
    }
    if i.memory_segment() == Register::GS {
        guest_gs_address(t, e, i, RAX, RCX);
        t.asm.mem(0x8b, RAX, Some(RAX), None, 0);
        return;
    }
    if i.is_ip_rel_memory_operand() {
        let target = i.ip_rel_memory_address();
        if in_reach(target) && i.segment_prefix() == Register::None {
            let field = t.asm.move_rip(true, RAX);
            t.reloc(field, RelocKind::Rip(4), target);
        } else {
            t.asm.mov_imm(RAX, target);
            t.asm.mem(0x8b, RAX, Some(RAX), None, 0);
        }
        return;
    }
    let m = MemoryOperand::new(
        i.memory_base(),
        i.memory_index(),
        i.memory_index_scale(),
        i.memory_displacement64() as i64,
        i.memory_displ_size(),
        false,
        i.segment_prefix(),
    );
    let load = Instruction::with2(Code::Mov_r64_rm64, gpr64(RAX), m);
    encode(t, e, &load.unwrap_or_else(|err| panic!("cannot load the target of {:?}: {err}", i.code())));
}

/// Goes to the block whose address is in rax, with a tick before it if the mode has one.
fn lookup(t: &mut Translation, ticking: bool) {
    if ticking {
        t.asm.load_gs(RCX, at::BUDGET);
        t.asm.lea(RCX, Some(RCX), None, -1);
        t.asm.store_gs(RCX, at::BUDGET);
        t.asm.put(&[0xe3, 11]); // jrcxz over the lookup
    }
    t.asm.put(&[0x0f, 0xb7, 0xc8]); // movzx ecx, ax
    t.asm.put(&[0x65, 0xff, 0x24, 0xcd]); // jmp gs:[rcx*8 + table]
    t.asm.put32(at::TABLE as u32);
    if ticking {
        let expired = t.asm.jmp();
        t.reloc(expired, RelocKind::Common(Common::IndirectExpired), 0);
    }
}

/// Adds one to a counter behind GS.
pub fn count(t: &mut Translation, counter: i32, flags_dead: bool) {
    if flags_dead {
        t.asm.inc_gs_flags(counter);
        return;
    }
    t.spill(RCX, SpillSlot::Rcx);
    t.asm.load_gs(RCX, counter);
    t.asm.lea(RCX, Some(RCX), None, 1);
    t.asm.store_gs(RCX, counter);
    t.restore(RCX, SpillSlot::Rcx);
}

/// Counts down at a probe's site and leaves for the engine when the count reaches zero.
pub fn probe_countdown(t: &mut Translation, counter: i32, pc: u64) {
    t.spill(RCX, SpillSlot::Rcx);
    t.asm.load_gs(RCX, counter);
    t.asm.lea(RCX, Some(RCX), None, -1);
    t.asm.store_gs(RCX, counter);
    countdown_end(t, ExitKind::Probe, pc);
}

/// rcx has been counted down with its guest value saved: leave if it is zero.
fn countdown_end(t: &mut Translation, kind: ExitKind, to: u64) {
    let zero = t.asm.jrcxz();
    t.asm.load_gs(RCX, at::RCX);
    // Over the two instructions of the other case: 9 + 5 bytes.
    t.asm.put(&[0xeb, 14]);
    t.asm.land(zero);
    t.asm.load_gs(RCX, at::RCX);
    t.exit(kind, to);
    t.event(EventKind::Restored(SpillSlot::Rcx), RCX);
}

/// A tick on the way to `to`.
fn direct_tick(t: &mut Translation, e: &mut Emitter, to: u64, code: &mut CodeAt<'_>) {
    if liveness::dead_at(to, &mut e.isa, code) {
        t.asm.dec_gs_flags(at::BUDGET);
        t.exit_if(JZ, ExitKind::Expired, to);
        return;
    }
    t.spill(RCX, SpillSlot::Rcx);
    t.asm.load_gs(RCX, at::BUDGET);
    t.asm.lea(RCX, Some(RCX), None, -1);
    t.asm.store_gs(RCX, at::BUDGET);
    countdown_end(t, ExitKind::Expired, to);
}

fn conditional(t: &mut Translation, e: &mut Emitter, b: &BlockState<'_>, i: &Instruction, code: &mut CodeAt<'_>) {
    let to = i.near_branch_target();
    let backward = to <= i.ip() && b.request.mode != Mode::None;
    t.conditional = true;
    t.next = Some(i.next_ip());
    if i.is_jcc_short_or_near() {
        let cc = i.condition_code() as u8 - 1;
        if !backward && b.request.taken_counter.is_none() {
            t.exit_if(cc, ExitKind::Link, to);
            return;
        }
        let over = t.asm.jcc_short(cc ^ 1);
        if let Some(counter) = b.request.taken_counter {
            count(t, counter, liveness::dead_at(to, &mut e.isa, code));
        }
        if backward {
            direct_tick(t, e, to, code);
        }
        t.exit(ExitKind::Link, to);
        t.asm.land(over);
        return;
    }
    // loop, loope, loopne, jrcxz, jecxz exist with rel8 only: they jump over a jump.
    let rel8 = rel8_opcode(i);
    t.asm.put(rel8.1);
    t.asm.put(&[rel8.0]);
    let taken = t.asm.short_after();
    t.exit(ExitKind::Link, i.next_ip());
    t.asm.land(taken);
    if backward {
        direct_tick(t, e, to, code);
    }
    t.exit(ExitKind::Link, to);
    t.next = None;
}

/// Opcode and prefixes of the rel8-only branches.
fn rel8_opcode(i: &Instruction) -> (u8, &'static [u8]) {
    let (op, narrow) = match i.code() {
        Code::Loopne_rel8_64_RCX => (0xe0, false),
        Code::Loopne_rel8_64_ECX => (0xe0, true),
        Code::Loope_rel8_64_RCX => (0xe1, false),
        Code::Loope_rel8_64_ECX => (0xe1, true),
        Code::Loop_rel8_64_RCX => (0xe2, false),
        Code::Loop_rel8_64_ECX => (0xe2, true),
        Code::Jecxz_rel8_64 => (0xe3, true),
        _ => (0xe3, false),
    };
    (op, if narrow { &[0x67] } else { &[] })
}
