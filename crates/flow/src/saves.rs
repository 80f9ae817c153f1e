//! Candidates for saves and restores of preserved registers.
//!
//! Wang 2014 (§5.2): the first `MAX_SAVES` instructions of a function that store a register on the stack, and the last
//! ones that load one before each way out. Whether a pair really saves and restores the same value is for the run to
//! show. Shrink-wrapped saves behind the first branches count, since the order is that of addresses.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use isa::{Gpr, RBP, RBX, gpr};

/// How many saves, and how many restores before each way out, are candidates.
pub const MAX_SAVES: usize = 10;

/// How far before a way out restores are looked for.
const LOOK_BACK: usize = 32;

/// A copy of a preserved register to or from the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Save {
    /// Address of the instruction.
    pub pc: u64,
    /// Hardware number of the register.
    pub register: Gpr,
}

/// The registers that a callee must preserve in the System V ABI, apart from rsp.
fn is_preserved(register: Gpr) -> bool {
    register == RBX || register == RBP || (12..=15).contains(&register)
}

fn whole(register: Register) -> Option<Gpr> {
    gpr(register).filter(|g| register.is_gpr64() && is_preserved(*g))
}

fn on_stack(instruction: &Instruction) -> bool {
    matches!(instruction.memory_base(), Register::RSP | Register::RBP) && instruction.memory_index() == Register::None
}

/// The register that this instruction may save.
pub fn saved(instruction: &Instruction) -> Option<Gpr> {
    match (instruction.mnemonic(), instruction.op0_kind(), instruction.op1_kind()) {
        (Mnemonic::Push, OpKind::Register, _) => whole(instruction.op0_register()),
        (Mnemonic::Mov, OpKind::Memory, OpKind::Register) if on_stack(instruction) => whole(instruction.op1_register()),
        _ => None,
    }
}

/// The register that this instruction may restore.
pub fn restored(instruction: &Instruction) -> Option<Gpr> {
    match (instruction.mnemonic(), instruction.op0_kind(), instruction.op1_kind()) {
        (Mnemonic::Leave, ..) => Some(RBP),
        (Mnemonic::Pop, OpKind::Register, _) => whole(instruction.op0_register()),
        (Mnemonic::Mov, OpKind::Register, OpKind::Memory) if on_stack(instruction) => whole(instruction.op0_register()),
        _ => None,
    }
}

/// Candidate saves among instructions in ascending order.
pub fn saves<'a>(instructions: impl Iterator<Item = &'a Instruction>) -> Vec<Save> {
    let found = instructions.filter_map(|i| saved(i).map(|register| Save { pc: i.ip(), register }));
    found.take(MAX_SAVES).collect()
}

/// Candidate restores before one way out, given the instructions before it, last first.
pub fn restores<'a>(backwards: impl Iterator<Item = &'a Instruction>) -> impl Iterator<Item = Save> {
    let near = backwards.take(LOOK_BACK);
    near.filter_map(|i| restored(i).map(|register| Save { pc: i.ip(), register })).take(MAX_SAVES)
}
