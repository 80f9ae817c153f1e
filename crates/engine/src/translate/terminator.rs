//! The end of a block: control transfers, ticks, and instructions the engine executes itself.
//!
//! ```text
//! jmp T / fall through   (tick if T is not ahead)  jmp [T]                  or nothing, when [T] is laid out next
//! jcc T                  jcc [T]                                            forward
//!                        jncc over; tick; jmp [T]; over:                    backward: only a taken branch ticks
//! call T                 push [constant]; (tick) jmp [T]                    one store, so that ret's load is forwarded
//! ret                    save rcx; tick; pop rcx; jmp [rcx + table]         direct lookup (module `direct`)
//! jmp/call r/m           save rcx; tick; mov rcx, r/m; (push); jmp [rcx + table]
//! entry                  restore rcx                                        what direct lookup lands on
//! checked lookup         save r11, rcx; r11 = target; tick; movzx ecx, r11w; jmp gs:[hash + rcx*8]
//! check                  movabs rcx, -pc; lea rcx, [rcx+r11]; jrcxz ok; jmp next; ok: restore r11, rcx; jmp body
//! tick, flags dead       dec qword gs:[budget]; jz expired                  one of two budgets, by the branch's address
//! tick, flags live       (rcx saved) mov rcx, gs:[budget]; lea rcx, [rcx-1]; mov gs:[budget], rcx; jrcxz expired
//! ```
//!
//! Saved registers come back through memory, five cycles later. r11 and rcx carry neither results nor, mostly, arguments:
//! nothing the guest computes waits for them. (`jrcxz` fixes rcx; it is the only test that leaves flags alone.)
//! Checked lookup is for code far from where programs lie (JITs), and for branches that led there.

use super::Request;
use super::asm::{Asm, R11, RCX, RSP};
use super::copy::{encode, gpr64, guest_gs_address, in_reach, memory_operand};
use super::decode::{Decoded, Ending};
use super::emit::{BlockState, Common, Emitter, EventKind, ExitKind, RelocKind, SpillSlot, Translation};
use super::liveness::{self, CodeAt};
use crate::direct::Lookup;
use crate::gate::at;
use iced_x86::{Code, FlowControl, Instruction, OpKind, Register};
use model::layout::{LOW_TARGETS, TARGETS_BELOW};

const JZ: u8 = 4;

/// What branches with direct lookup land on.
pub fn direct_entry(t: &mut Translation) {
    t.asm.load_gs(RCX, at::RCX);
}

/// Length of that.
pub const DIRECT_ENTRY: u32 = 9;

/// What branches with checked lookup land on: is r11 this block's address? Both registers come back on success.
pub fn check(t: &mut Translation, pc: u64) {
    t.asm.put(&[0x48, 0xb9]);
    t.asm.put(&(pc as i64).wrapping_neg().to_le_bytes());
    t.asm.put(&[0x4a, 0x8d, 0x0c, 0x19]); // lea rcx, [rcx + r11]
    let ok = t.asm.jrcxz();
    t.asm.jmp();
    t.asm.land(ok);
    t.asm.load_gs(R11, at::R11);
    t.asm.load_gs(RCX, at::RCX);
}

/// Offset from the start of the check to the rel32 of its jump to the next candidate.
pub const CHECK_NEXT: u32 = 10 + 4 + 2 + 1;
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
    let ticking = b.request.ticks;
    match i.flow_control() {
        FlowControl::ConditionalBranch => conditional(t, e, b, i, code),
        FlowControl::UnconditionalBranch => {
            let to = i.near_branch_target();
            if ticking && to <= i.ip() {
                direct_tick(t, e, (i.ip(), to), code);
            }
            t.next = Some(to);
        }
        FlowControl::Call => {
            let to = i.near_branch_target();
            push_return(t, i.next_ip());
            if ticking && to <= i.ip() {
                direct_tick(t, e, (i.ip(), to), code);
            }
            t.next = Some(to);
        }
        // An operand behind the guest's GS needs a second register anyway.
        _ if !uses_rcx(b.request, i) => {
            t.spill(R11, SpillSlot::R11);
            t.spill(RCX, SpillSlot::Rcx);
            target(t, e, i, R11);
            checked_lookup(t, ticking.then_some(i.ip()));
        }
        _ => {
            t.spill(RCX, SpillSlot::Rcx);
            if let Some(counter) = b.last_counter {
                add_one(t, counter);
                t.event(EventKind::Counted, 0);
                if !ticking {
                    restore_for_target(t, i);
                }
            }
            let expired = ticking.then(|| {
                t.asm.load_gs(RCX, at::budget(i.ip()));
                t.asm.lea(RCX, Some(RCX), None, -1);
                t.asm.store_gs(RCX, at::budget(i.ip()));
                let expired = t.asm.jrcxz();
                restore_for_target(t, i);
                expired
            });
            target(t, e, i, RCX);
            direct_lookup(t, b.request.lookup);
            if let Some(expired) = expired {
                t.asm.land(expired);
                restore_for_target(t, i);
                target(t, e, i, RCX);
                let leave = t.asm.jmp();
                t.reloc(leave, RelocKind::Common(Common::DirectExpired), 0);
            }
        }
    }
}

/// Brings rcx back for the computation of a target that depends on it; its slot stays valid.
fn restore_for_target(t: &mut Translation, i: &Instruction) {
    let is_rcx = |r: Register| r.full_register() == Register::RCX;
    if is_rcx(i.memory_base())
        || is_rcx(i.memory_index())
        || i.op0_kind() == OpKind::Register && is_rcx(i.op0_register())
    {
        t.asm.load_gs(RCX, at::RCX);
    }
}

/// `to` = where the indirect branch goes, with all else it does done. May fault, before anything has happened.
fn target(t: &mut Translation, e: &mut Emitter, i: &Instruction, to: u8) {
    if i.flow_control() == FlowControl::Return {
        t.asm.pop(to);
        if i.op_count() > 0 {
            t.asm.lea(RSP, Some(RSP), None, i.immediate16() as i32);
        }
        return;
    }
    operand(t, e, i, to);
    if i.flow_control() == FlowControl::IndirectCall {
        push_return(t, i.next_ip());
    }
}

/// Pushes a guest return address from a constant of the cache.
///
/// Two stores of half the address each would do without the constant, but a `ret` soon after could not be served from
/// the store buffer and would wait for the cache: 15 cycles per call of a short function.
fn push_return(t: &mut Translation, ret: u64) {
    let field = t.asm.push_rip();
    t.reloc(field, RelocKind::Constant, ret);
}

/// `to` = the operand of an indirect branch.
fn operand(t: &mut Translation, e: &mut Emitter, i: &Instruction, to: u8) {
    if i.op0_kind() == OpKind::Register {
        let r = i.op0_register().full_register() as u32 - Register::RAX as u32;
        if r as u8 != to {
            t.asm.mov_reg(to, r as u8);
        }
        return;
    }
    if i.memory_segment() == Register::GS {
        guest_gs_address(t, e, i, to, RCX);
        t.asm.mem(0x8b, to, Some(to), None, 0);
        return;
    }
    if i.is_ip_rel_memory_operand() {
        let target = i.ip_rel_memory_address();
        if in_reach(target) && i.segment_prefix() == Register::None {
            let field = t.asm.move_rip(true, to);
            t.reloc(field, RelocKind::Rip(4), target);
        } else {
            t.asm.mov_imm(to, target);
            t.asm.mem(0x8b, to, Some(to), None, 0);
        }
        return;
    }
    let load = Instruction::with2(Code::Mov_r64_rm64, gpr64(to), memory_operand(i, i.segment_prefix()));
    encode(t, e, &load.unwrap_or_else(|err| panic!("cannot load the target of {:?}: {err}", i.code())));
}

/// Goes to the block whose address is in rcx.
fn direct_lookup(t: &mut Translation, lookup: Lookup) {
    t.event(EventKind::Lookup, 0);
    if lookup == Lookup::Near {
        t.asm.put(&[0xff, 0xa1]); // jmp [rcx - below]
        t.asm.put32((TARGETS_BELOW as u32).wrapping_neg());
    } else {
        t.asm.put(&[0x65, 0xff, 0xa1]); // jmp gs:[rcx + targets]
        t.asm.put32(LOW_TARGETS as u32);
    }
}

/// The code of a detour: direct lookup has the target in rcx, and goes on with checked lookup.
pub fn detour(a: &mut Asm) {
    a.store_gs(R11, at::R11);
    a.mov_reg(R11, RCX);
    hash_jump(a);
}

/// Goes to the block whose address is in r11, with a tick before it if the mode has one: then the branch is given.
fn checked_lookup(t: &mut Translation, ticking: Option<u64>) {
    if let Some(branch) = ticking {
        t.asm.load_gs(RCX, at::budget(branch));
        t.asm.lea(RCX, Some(RCX), None, -1);
        t.asm.store_gs(RCX, at::budget(branch));
        t.asm.put(&[0xe3, 12]); // jrcxz over the lookup
    }
    hash_jump(&mut t.asm);
    if ticking.is_some() {
        let expired = t.asm.jmp();
        t.reloc(expired, RelocKind::Common(Common::CheckedExpired), 0);
    }
}

/// Jumps to the first check for the address in r11.
fn hash_jump(a: &mut Asm) {
    a.put(&[0x41, 0x0f, 0xb7, 0xcb]); // movzx ecx, r11w
    a.put(&[0x65, 0xff, 0x24, 0xcd]); // jmp gs:[rcx*8 + table]
    a.put32(at::TABLE as u32);
}

/// Adds one to a counter behind GS.
pub fn count(t: &mut Translation, counter: i32, flags_dead: bool) {
    if flags_dead {
        t.asm.inc_gs_flags(counter);
        return;
    }
    t.spill(RCX, SpillSlot::Rcx);
    add_one(t, counter);
    t.restore(RCX, SpillSlot::Rcx);
}

/// The same without a flag, at the cost of rcx.
fn add_one(t: &mut Translation, counter: i32) {
    t.asm.load_gs(RCX, counter);
    t.asm.lea(RCX, Some(RCX), None, 1);
    t.asm.store_gs(RCX, counter);
}

/// Does the block end by using rcx for itself, so that a counter may as well?
pub fn uses_rcx(request: &Request, last: &Instruction) -> bool {
    let indirect =
        matches!(last.flow_control(), FlowControl::Return | FlowControl::IndirectBranch | FlowControl::IndirectCall);
    indirect && request.lookup != Lookup::Checked && last.memory_segment() != Register::GS
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

/// A tick on the way from one instruction to another.
fn direct_tick(t: &mut Translation, e: &mut Emitter, (from, to): (u64, u64), code: &mut CodeAt<'_>) {
    if liveness::dead_at(to, &mut e.isa, code) {
        t.asm.dec_gs_flags(at::budget(from));
        t.exit_if(JZ, ExitKind::Expired, to);
        return;
    }
    t.spill(RCX, SpillSlot::Rcx);
    t.asm.load_gs(RCX, at::budget(from));
    t.asm.lea(RCX, Some(RCX), None, -1);
    t.asm.store_gs(RCX, at::budget(from));
    countdown_end(t, ExitKind::Expired, to);
}

fn conditional(t: &mut Translation, e: &mut Emitter, b: &BlockState<'_>, i: &Instruction, code: &mut CodeAt<'_>) {
    let to = i.near_branch_target();
    let backward = to <= i.ip() && b.request.ticks;
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
            direct_tick(t, e, (i.ip(), to), code);
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
        direct_tick(t, e, (i.ip(), to), code);
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
