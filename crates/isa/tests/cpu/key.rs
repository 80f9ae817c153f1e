//! When two encodings are the same instruction form.

use iced_x86::{Instruction, OpKind, Register};

/// What makes two encodings different forms.
///
/// The addressing mode is not part of it, because it does not depend on the instruction: forms use all modes in turn.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    code: u16,
    /// Bits: memory operand, lock, all register operands the same; for string instructions also rep, repne, 32-bit
    /// addresses.
    variant: u8,
    /// Bits: opmask, zeroing, broadcast.
    masking: u8,
}

/// The key of an instruction.
pub fn key(instruction: &Instruction) -> Key {
    let string = instruction.is_string_instruction();
    let narrow = |n: u32| matches!(instruction.op_kind(n), OpKind::MemoryESEDI | OpKind::MemorySegESI);
    let variant = [
        instruction.op_kinds().any(|kind| kind == OpKind::Memory),
        instruction.has_lock_prefix(),
        same_registers(instruction),
        string && instruction.has_rep_prefix(),
        string && instruction.has_repne_prefix(),
        string && (narrow(0) || narrow(1)),
    ];
    let masking = [instruction.has_op_mask(), instruction.zeroing_masking(), instruction.is_broadcast()];
    let pack = |bits: &[bool]| bits.iter().enumerate().fold(0, |set, (n, bit)| set | u8::from(*bit) << n);
    Key { code: instruction.code() as u16, variant: pack(&variant), masking: pack(&masking) }
}

/// True if at least two operands are registers and all of them are the same.
fn same_registers(instruction: &Instruction) -> bool {
    let registers: Vec<Register> = (0..instruction.op_count())
        .filter(|n| instruction.op_kind(*n) == OpKind::Register)
        .map(|n| instruction.op_register(n).full_register())
        .collect();
    registers.len() > 1 && registers.windows(2).all(|pair| pair[0] == pair[1])
}
