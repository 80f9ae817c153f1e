//! The fast path: what a translator asks of every instruction, from a table filled as instructions are met.
//!
//! A row of the table belongs to an iced `Code` in its register or its memory form. It is made once, by asking for the
//! full effects of the instruction with its operands replaced by r15, r14, r13 and r12, which no instruction uses
//! implicitly: what then shows up in these registers belongs to the operands, and the rest is implicit. Later
//! instructions only put their own registers in.
//!
//! Guarantee: the same sets as those derived from [`crate::Isa::effects`] (the tests compare the two on every form).
//! String instructions, whose registers and flags depend on prefixes, take the slow way each time.

use alloc::vec;
use alloc::vec::Vec;
use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};

use crate::effects::{Effects, Summary};
use crate::flags::{Flags, flag_effects};
use crate::registers::{GprMask, gpr};

/// Operands that a row knows about: no instruction has more than three general purpose registers as operands.
const OPERANDS: usize = 4;
/// The operand is read.
const READ: u8 = 1;
/// The operand is written.
const WRITE: u8 = 2;
/// The address registers of the memory operand are read.
const ADDRESS: u8 = 1;
/// A memory operand is really accessed (`lea` and prefetches have one without).
const ACCESS: u8 = 2;
/// Memory is accessed by implicit operands.
const IMPLICIT: u8 = 4;
/// Both operands are registers, and the result does not depend on them if they are the same one (`xor eax, eax`).
const SELF_CLEARING: u8 = 8;

/// How to get a summary of an instruction.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Way {
    /// Not met yet.
    #[default]
    Unknown,
    /// The row says all.
    Row,
    /// The row says all but the flags, which depend on the immediate.
    RowAndFlags,
    /// Only the full effects say.
    Slow,
}

#[derive(Clone, Copy, Default)]
struct Row {
    way: Way,
    /// Bits about memory, and [`SELF_CLEARING`].
    memory: u8,
    operands: [u8; OPERANDS],
    implicit_read: GprMask,
    implicit_write: GprMask,
    flags_read: Flags,
    flags_kill: Flags,
    flags_may_write: Flags,
}

/// The table: two rows per `Code`, for the register and the memory form.
pub(crate) struct Table {
    rows: Vec<Row>,
}

impl Table {
    /// An empty table.
    pub(crate) fn new() -> Table {
        Table { rows: vec![Row::default(); 2 * Code::values().len()] }
    }

    /// The summary, if the row is known and suffices.
    #[inline]
    pub(crate) fn get(&self, instruction: &Instruction) -> Option<Summary> {
        let row = &self.rows[index(instruction)];
        match row.way {
            Way::Row => Some(apply(row, instruction)),
            Way::RowAndFlags => {
                let flags = flag_effects(instruction);
                let may_write = flags.written | flags.undefined;
                Some(Summary {
                    flags_read: flags.read,
                    flags_kill: may_write.without(flags.conditional),
                    flags_may_write: may_write,
                    ..apply(row, instruction)
                })
            }
            Way::Unknown | Way::Slow => None,
        }
    }

    /// The instruction whose effects [`Table::learn`] wants, if its row is not known.
    pub(crate) fn question(&self, instruction: &Instruction) -> Option<Instruction> {
        (self.rows[index(instruction)].way == Way::Unknown).then(|| anonymous(instruction))
    }

    /// Fills the row of `instruction` from the effects of the instruction that `question` gave.
    pub(crate) fn learn(&mut self, instruction: &Instruction, effects: &Effects) {
        self.rows[index(instruction)] = row(instruction, effects);
    }
}

/// Number of the row.
fn index(instruction: &Instruction) -> usize {
    2 * instruction.code() as usize + usize::from(memory_operand(instruction))
}

/// True if an operand is in memory and has a ModRM or moffs address.
fn memory_operand(instruction: &Instruction) -> bool {
    instruction.op0_kind() == OpKind::Memory
        || instruction.op1_kind() == OpKind::Memory
        || instruction.op2_kind() == OpKind::Memory
        || instruction.op3_kind() == OpKind::Memory
}

/// The register that stands for operand `n`, as wide as `register`.
fn stand_in(n: usize, register: Register) -> Register {
    let family = match register.size() {
        1 => [Register::R15L, Register::R14L, Register::R13L, Register::R11L],
        2 => [Register::R15W, Register::R14W, Register::R13W, Register::R11W],
        4 => [Register::R15D, Register::R14D, Register::R13D, Register::R11D],
        _ => [Register::R15, Register::R14, Register::R13, Register::R11],
    };
    family[n]
}

/// The same instruction with stand-ins for its registers.
fn anonymous(instruction: &Instruction) -> Instruction {
    let mut out = *instruction;
    for n in 0..instruction.op_count().min(OPERANDS as u32) {
        let register = instruction.op_register(n);
        if instruction.op_kind(n) == OpKind::Register && register.is_gpr() {
            out.set_op_register(n, stand_in(n as usize, register));
        }
    }
    if memory_operand(instruction) {
        out.set_memory_base(if instruction.memory_base().is_gpr32() { Register::R12D } else { Register::R12 });
        if !instruction.memory_index().is_vector_register() {
            out.set_memory_index(Register::None);
        }
    }
    out
}

/// Makes a row from the effects of the anonymous instruction.
fn row(instruction: &Instruction, effects: &Effects) -> Row {
    if instruction.is_string_instruction() {
        return Row { way: Way::Slow, ..Row::default() };
    }
    let sets = effects.summary();
    let mut row = Row {
        way: if flags_depend_on_immediate(instruction) { Way::RowAndFlags } else { Way::Row },
        flags_read: sets.flags_read,
        flags_kill: sets.flags_kill,
        flags_may_write: sets.flags_may_write,
        implicit_read: sets.gpr_read,
        implicit_write: sets.gpr_write,
        ..Row::default()
    };
    let has_memory = memory_operand(instruction);
    for n in 0..OPERANDS.min(instruction.op_count() as usize) {
        let register = instruction.op_register(n as u32);
        if instruction.op_kind(n as u32) == OpKind::Register && register.is_gpr() {
            let bit = 1 << gpr(stand_in(n, register)).unwrap_or_default();
            row.operands[n] = if sets.gpr_read & bit != 0 { READ } else { 0 };
            row.operands[n] |= if sets.gpr_write & bit != 0 { WRITE } else { 0 };
            row.implicit_read &= !bit;
            row.implicit_write &= !bit;
        }
    }
    const ADDRESS_BIT: GprMask = 1 << 12;
    let explicit = |access: &&crate::MemAccess| has_memory && access.base == Some(12);
    if has_memory && sets.gpr_read & ADDRESS_BIT != 0 {
        row.memory |= ADDRESS;
        row.implicit_read &= !ADDRESS_BIT;
    }
    let count = effects.mem.iter().filter(explicit).count();
    row.memory |= if count > 0 { ACCESS } else { 0 };
    row.memory |= if effects.mem.len() > count { IMPLICIT } else { 0 };
    let clears = matches!(instruction.mnemonic(), Mnemonic::Xor | Mnemonic::Sub | Mnemonic::Sbb | Mnemonic::Cmp);
    if clears && instruction.op0_kind() == OpKind::Register && instruction.op1_kind() == OpKind::Register {
        row.memory |= SELF_CLEARING;
    }
    row
}

/// Shifts and rotates by an immediate: a masked count of 0 leaves the flags alone, 1 defines OF.
fn flags_depend_on_immediate(instruction: &Instruction) -> bool {
    use Mnemonic as M;
    let shifts = matches!(
        instruction.mnemonic(),
        M::Rol | M::Ror | M::Rcl | M::Rcr | M::Shl | M::Sal | M::Shr | M::Sar | M::Shld | M::Shrd
    );
    shifts && instruction.op_kind(instruction.op_count() - 1) == OpKind::Immediate8
}

/// Puts the registers of `instruction` into its row.
#[inline]
fn apply(row: &Row, instruction: &Instruction) -> Summary {
    let (mut read, mut write) = (row.implicit_read, row.implicit_write);
    let [first, second, third, fourth] = row.operands;
    let ignored = row.memory & SELF_CLEARING != 0 && instruction.op0_register() == instruction.op1_register();
    let mut put = |access: u8, register: Register| {
        let bit = bit(register);
        // A register less than 32 bits wide keeps the rest, so that even a result of zero is a partial write.
        let is_read = access & READ != 0 && (!ignored || (access & WRITE != 0 && register.size() < 4));
        read |= if is_read { bit } else { 0 };
        write |= if access & WRITE != 0 { bit } else { 0 };
    };
    if first != 0 {
        put(first, instruction.op0_register());
    }
    if second != 0 {
        put(second, instruction.op1_register());
    }
    if third | fourth != 0 {
        put(third, instruction.op2_register());
        put(fourth, instruction.op3_register());
    }
    if row.memory & ADDRESS != 0 {
        read |= bit(instruction.memory_base()) | bit(instruction.memory_index());
    }
    Summary {
        gpr_read: read,
        gpr_write: write,
        flags_read: row.flags_read,
        flags_kill: row.flags_kill,
        flags_may_write: row.flags_may_write,
        mem: row.memory & (ACCESS | IMPLICIT) != 0,
    }
}

/// The bit of a general purpose register, 0 for anything else.
#[inline]
fn bit(register: Register) -> GprMask {
    BITS[register as usize]
}

/// [`bit`] of every register.
static BITS: [GprMask; 256] = bits();

const fn bits() -> [GprMask; 256] {
    let mut out = [0; 256];
    let mut n = 0;
    while n < 16 {
        out[Register::AX as usize + n] = 1 << n;
        out[Register::EAX as usize + n] = 1 << n;
        out[Register::RAX as usize + n] = 1 << n;
        if n < 4 {
            out[Register::AL as usize + n] = 1 << n;
            out[Register::AH as usize + n] = 1 << n;
        } else {
            out[Register::SPL as usize + n - 4] = 1 << n;
        }
        n += 1;
    }
    out
}
