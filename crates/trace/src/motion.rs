//! Which instructions move a known value from one general purpose register to another, or shift it by a constant.
//!
//! This is what lets a block record `rsp` once although it pushes, calls and pops: after `push rax` the new rsp is the
//! old one less 8. Only 64-bit results are considered, because a narrower one keeps or clears bits of its own.
//! Guarantee: where an answer is given it holds for every execution that completes. Missing an instruction costs one
//! more slot in the trace and nothing else.

use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};
use isa::{Gpr, RBP, RSP};

/// What an instruction makes of one register; all other registers that it writes have an unknown value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Motion {
    /// Nothing is known.
    None,
    /// `to` = value of `from` before the instruction + `delta`.
    Shift { to: Gpr, from: Gpr, delta: i64 },
    /// `to` = `value`.
    Constant { to: Gpr, value: u64 },
}

/// What is known about the effect of `i`.
pub fn motion(i: &Instruction) -> Motion {
    match i.mnemonic() {
        Mnemonic::Push | Mnemonic::Pushfq | Mnemonic::Pushf | Mnemonic::Popfq | Mnemonic::Popf => stack(i),
        Mnemonic::Call | Mnemonic::Ret => stack(i),
        // `pop rsp` loads rsp itself.
        Mnemonic::Pop if wide(i.op0_register()) != Some(RSP) => stack(i),
        Mnemonic::Leave if i.code() == Code::Leaveq => Motion::Shift { to: RSP, from: RBP, delta: 8 },
        Mnemonic::Add | Mnemonic::Sub => {
            let (Some(to), Some(value)) = (first(i), immediate(i)) else { return Motion::None };
            let delta = if i.mnemonic() == Mnemonic::Add { value } else { value.wrapping_neg() };
            Motion::Shift { to, from: to, delta: delta as i64 }
        }
        Mnemonic::Inc => first(i).map_or(Motion::None, |to| Motion::Shift { to, from: to, delta: 1 }),
        Mnemonic::Dec => first(i).map_or(Motion::None, |to| Motion::Shift { to, from: to, delta: -1 }),
        Mnemonic::Mov => mov(i),
        Mnemonic::Xor if i.op0_kind() == OpKind::Register && i.op1_kind() == OpKind::Register => zero(i),
        Mnemonic::Lea => lea(i),
        _ => Motion::None,
    }
}

fn stack(i: &Instruction) -> Motion {
    Motion::Shift { to: RSP, from: RSP, delta: i64::from(i.stack_pointer_increment()) }
}

fn mov(i: &Instruction) -> Motion {
    if let Some(to) = first(i) {
        if let Some(value) = immediate(i) {
            return Motion::Constant { to, value };
        }
        if i.op1_kind() == OpKind::Register {
            return wide(i.op1_register()).map_or(Motion::None, |from| Motion::Shift { to, from, delta: 0 });
        }
    }
    // A 32-bit immediate clears the upper half.
    let narrow = i.op0_kind() == OpKind::Register && i.op0_register().is_gpr32();
    match isa::gpr(i.op0_register()) {
        Some(to) if narrow && i.op1_kind() == OpKind::Immediate32 => {
            Motion::Constant { to, value: u64::from(i.immediate32()) }
        }
        _ => Motion::None,
    }
}

fn zero(i: &Instruction) -> Motion {
    let r = i.op0_register();
    match isa::gpr(r) {
        Some(to) if r == i.op1_register() && (r.is_gpr32() || r.is_gpr64()) => Motion::Constant { to, value: 0 },
        _ => Motion::None,
    }
}

fn lea(i: &Instruction) -> Motion {
    let Some(to) = first(i) else { return Motion::None };
    if i.memory_base() == Register::RIP {
        return Motion::Constant { to, value: i.ip_rel_memory_address() };
    }
    match wide(i.memory_base()) {
        Some(from) if i.memory_index() == Register::None => {
            Motion::Shift { to, from, delta: i.memory_displacement64() as i64 }
        }
        _ => Motion::None,
    }
}

/// The first operand, if it is a 64-bit register.
fn first(i: &Instruction) -> Option<Gpr> {
    if i.op0_kind() == OpKind::Register { wide(i.op0_register()) } else { None }
}

fn wide(r: Register) -> Option<Gpr> {
    if r.is_gpr64() { isa::gpr(r) } else { None }
}

/// The second operand, if it is an immediate, as a 64-bit operation sees it.
fn immediate(i: &Instruction) -> Option<u64> {
    match i.op1_kind() {
        OpKind::Immediate8to64 | OpKind::Immediate32to64 | OpKind::Immediate64 => Some(i.immediate(1)),
        _ => None,
    }
}
