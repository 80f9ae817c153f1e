//! Corrections to iced's list of general purpose registers.
//!
//! iced is complete here; what is mended is where it names more than the processor reads. As for vectors, an immediate
//! that leaves out part of a register (`test al, 1`) is not looked at: the whole operand is declared.

use alloc::vec::Vec;
use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};

use crate::registers::{ByteRange, RegAccess, locate};

/// Narrows the reads in `regs` to the bytes that matter.
pub(crate) fn registers(instruction: &Instruction, regs: &mut Vec<RegAccess>) {
    use Mnemonic as M;
    if result_ignores_operand(instruction) {
        let operand = locate(instruction.op0_register());
        for access in regs.iter_mut().filter(|access| Some((access.reg, access.bytes)) == operand) {
            access.read = false;
        }
        regs.retain(|access| access.read || access.write);
    }
    match instruction.mnemonic() {
        // Only the sign of the accumulator is spread.
        M::Cwd => narrow(regs, Register::AX, 1, 2),
        M::Cdq => narrow(regs, Register::EAX, 3, 4),
        M::Cqo => narrow(regs, Register::RAX, 7, 8),
        // A bit offset into a register counts modulo its size.
        M::Bt | M::Bts | M::Btr | M::Btc if both_registers(instruction) => {
            let (bits, value) = (instruction.op1_register(), instruction.op0_register());
            if bits != value {
                narrow(regs, bits, 0, 1);
            }
        }
        // The checksum has 32 bits in either form.
        M::Crc32 => {
            let sum = instruction.op0_register();
            if sum.is_gpr64() && sum != last(instruction) && !in_address(instruction, sum) {
                narrow(regs, sum, 0, 4);
            }
        }
        M::Bextr if instruction.op_kind(2) == OpKind::Register => narrow_last(instruction, regs, 2),
        M::Bzhi | M::Shlx | M::Shrx | M::Sarx => narrow_last(instruction, regs, 1),
        M::Kmovb if instruction.code() == Code::VEX_Kmovb_kr_r32 => narrow_last(instruction, regs, 1),
        M::Kmovw if instruction.code() == Code::VEX_Kmovw_kr_r32 => narrow_last(instruction, regs, 2),
        _ => {}
    }
}

/// `sbb r, r` and `cmp r, r`: the difference of a register with itself does not depend on it.
fn result_ignores_operand(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Sbb | Mnemonic::Cmp)
        && both_registers(instruction)
        && instruction.op0_register() == instruction.op1_register()
}

fn both_registers(instruction: &Instruction) -> bool {
    instruction.op0_kind() == OpKind::Register && instruction.op1_kind() == OpKind::Register
}

/// The last operand, which is a register.
fn last(instruction: &Instruction) -> Register {
    instruction.op_register(instruction.op_count() - 1)
}

/// Narrows the last operand to its low `end` bytes, unless it is also another operand.
fn narrow_last(instruction: &Instruction, regs: &mut Vec<RegAccess>, end: u8) {
    let register = last(instruction);
    let is_source_too = (1..instruction.op_count() - 1)
        .any(|n| instruction.op_register(n) == register && instruction.op_kind(n) == OpKind::Register);
    if !is_source_too && !in_address(instruction, register) {
        narrow(regs, register, 0, end);
    }
}

/// True if the memory operand uses `register`.
fn in_address(instruction: &Instruction, register: Register) -> bool {
    instruction.memory_base().full_register() == register.full_register()
        || instruction.memory_index().full_register() == register.full_register()
}

/// Changes the range in which `register` is read to `start..end`.
fn narrow(regs: &mut Vec<RegAccess>, register: Register, start: u8, end: u8) {
    let Some((reg, bytes)) = locate(register) else { return };
    let narrower = ByteRange::new(start, end);
    for n in 0..regs.len() {
        let access = &mut regs[n];
        if access.reg != reg || access.bytes != bytes || !access.read {
            continue;
        }
        if access.write {
            access.read = false;
            regs.push(RegAccess { reg, bytes: narrower, read: true, write: false, conditional: false });
        } else {
            access.bytes = narrower;
        }
    }
}
