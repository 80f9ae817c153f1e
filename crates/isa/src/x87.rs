//! x87 and MMX: the register stack, its control and status words, and the transition between the two uses of it.
//!
//! iced names explicit stack registers only; the registers that a push writes, tags, TOP, and the bits of the status word
//! are added here, after the Intel SDM (volume 1, chapter 8, and the instruction pages of volume 2).
//!
//! Guarantee: with exceptions masked (the default of every operating system) the sets are complete. An *unmasked* x87
//! exception leaves destination and TOP as they were and raises SIGFPE at the next waiting instruction, so that then the
//! writes declared here do not happen. The condition codes that the manual leaves undefined may stay as they were.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use crate::effects::{Access, Effects, Top, X87};
use crate::registers::{ByteRange, Reg, RegAccess};

/// How an instruction treats the condition codes.
#[derive(Clone, Copy)]
enum Codes {
    /// C1 tells rounding or a stack fault, the others become undefined.
    Arithmetic,
    /// All four are the result.
    All,
    /// C1 and C2 are results, the others become undefined.
    Partial,
    /// C1 only, and only on a stack fault; the others stay (`fcomi`).
    FaultOnly,
    /// Like `FaultOnly`, but the others become undefined (`fcmov`).
    FaultOrUndefined,
    /// All four are the result, or some stay when the reduction is incomplete (`fprem`).
    Reduction,
    /// All four become undefined.
    Undefined,
}

/// Adds what `instruction` does to x87 and MMX state.
pub(crate) fn x87(instruction: &Instruction, out: &mut Effects) {
    if uses_mmx_register(instruction) {
        out.x87.top = Top::Zero;
        out.x87.tags = Access::WRITE;
        return;
    }
    if environment(instruction, out) || data(instruction, out) {
        return;
    }
    match instruction.mnemonic() {
        // The registers become empty; their contents stay.
        Mnemonic::Emms | Mnemonic::Femms => {
            forget_stack(out);
            out.x87.tags = Access::WRITE;
            out.x87.top = Top::LeaveZero;
        }
        Mnemonic::Fxsave | Mnemonic::Fxsave64 => {
            read_environment(out);
            every_register(out, true, false);
            out.x87.top = Top::Keep;
        }
        Mnemonic::Fxrstor | Mnemonic::Fxrstor64 => {
            write_environment(out, Top::Load);
            every_register(out, false, true);
        }
        _ => {}
    }
}

/// True if an explicit operand is an MMX register: every such instruction sets TOP to 0 and all tags to valid.
fn uses_mmx_register(instruction: &Instruction) -> bool {
    (0..instruction.op_count())
        .any(|n| instruction.op_kind(n) == OpKind::Register && instruction.op_register(n).is_mm())
}

/// Removes what iced says about stack and MMX registers.
fn forget_stack(out: &mut Effects) {
    out.regs.retain(|access| !matches!(access.reg, Reg::St(_) | Reg::Mmx(_)));
}

fn stack(out: &mut Effects, n: u8, read: bool, write: bool, conditional: bool) {
    out.regs.push(RegAccess { reg: Reg::St(n & 7), bytes: ByteRange::new(0, 10), read, write, conditional });
}

fn every_register(out: &mut Effects, read: bool, write: bool) {
    for n in 0..8 {
        stack(out, n, read, write, false);
    }
}

fn read_environment(out: &mut Effects) {
    out.x87.control.read = true;
    out.x87.status_read = X87::EXCEPTIONS | X87::CODES;
    out.x87.tags.read = true;
    out.x87.pointers.read = true;
}

fn write_environment(out: &mut Effects, top: Top) {
    out.x87.control.write = true;
    out.x87.status_write = X87::EXCEPTIONS | X87::CODES;
    out.x87.tags.write = true;
    out.x87.pointers.write = true;
    out.x87.top = top;
}

fn undefined_codes(out: &mut Effects) {
    out.x87.status_write |= X87::CODES;
    out.x87.status_undefined |= X87::CODES;
}

/// Instructions that work on control, status or the whole state. False if `instruction` is none of them.
fn environment(instruction: &Instruction, out: &mut Effects) -> bool {
    match instruction.mnemonic() {
        Mnemonic::Fninit | Mnemonic::Finit => {
            forget_stack(out);
            write_environment(out, Top::Zero);
        }
        Mnemonic::Fnclex | Mnemonic::Fclex => {
            out.x87.status_write = X87::EXCEPTIONS;
            undefined_codes(out);
        }
        Mnemonic::Fldcw => {
            // The new masks decide the exception summary.
            out.x87.control.write = true;
            out.x87.status_read = X87::EXCEPTIONS;
            out.x87.status_write = X87::EXCEPTIONS;
            undefined_codes(out);
        }
        Mnemonic::Fnstcw | Mnemonic::Fstcw => {
            out.x87.control.read = true;
            undefined_codes(out);
        }
        Mnemonic::Fnstsw | Mnemonic::Fstsw => {
            out.x87.status_read = X87::EXCEPTIONS | X87::CODES;
            out.x87.top = Top::Keep;
            undefined_codes(out);
        }
        Mnemonic::Fnstenv | Mnemonic::Fstenv => {
            // All exceptions are masked after the old control word has been stored. The stored tag word tells zeros
            // and special values apart, so the registers are inputs too.
            read_environment(out);
            forget_stack(out);
            every_register(out, true, false);
            out.x87.control.write = true;
            out.x87.status_write = X87::EXCEPTIONS;
            out.x87.top = Top::Keep;
            undefined_codes(out);
        }
        Mnemonic::Fldenv => write_environment(out, Top::Load),
        Mnemonic::Fnsave | Mnemonic::Fsave => {
            read_environment(out);
            forget_stack(out);
            every_register(out, true, false);
            write_environment(out, Top::LeaveZero);
        }
        Mnemonic::Frstor => {
            forget_stack(out);
            every_register(out, false, true);
            write_environment(out, Top::Load);
        }
        Mnemonic::Wait => {
            out.x87.control.read = true;
            out.x87.status_read = X87::EXCEPTIONS;
        }
        // Remnants of the 8087 and 80287 do nothing.
        Mnemonic::Fneni | Mnemonic::Fndisi | Mnemonic::Fnsetpm | Mnemonic::Frstpm => {}
        _ => return false,
    }
    true
}

/// Number of a stack register operand, st(0) if the operand is in memory.
fn operand(instruction: &Instruction, n: u32) -> u8 {
    match instruction.op_count() > n && instruction.op_kind(n) == OpKind::Register {
        true => (instruction.op_register(n) as u32).wrapping_sub(Register::ST0 as u32) as u8,
        false => 0,
    }
}

/// What an instruction on stack registers does: up to two registers (number, access, conditional), codes and TOP.
struct Data {
    regs: [(u8, Access, bool); 2],
    codes: Codes,
    top: Top,
}

/// No register.
const NO_REGISTER: (u8, Access, bool) = (0, Access::NONE, false);

fn one(n: u8, access: Access, codes: Codes, top: Top) -> Option<Data> {
    Some(Data { regs: [(n, access, false), NO_REGISTER], codes, top })
}

fn two(first: (u8, Access), second: (u8, Access), codes: Codes, top: Top) -> Option<Data> {
    Some(Data { regs: [(first.0, first.1, false), (second.0, second.1, false)], codes, top })
}

/// Instructions on stack registers. False if `instruction` is none of them.
fn data(instruction: &Instruction, out: &mut Effects) -> bool {
    let found = moves(instruction)
        .or_else(|| arithmetic(instruction))
        .or_else(|| comparisons(instruction))
        .or_else(|| functions(instruction));
    let Some(Data { regs, codes, top }) = found else { return false };
    forget_stack(out);
    for (n, access, conditional) in regs {
        if access != Access::NONE {
            stack(out, n, access.read, access.write, conditional);
        }
    }
    finish(out, codes, top);
    true
}

/// Loads, stores, exchanges and the stack pointer.
fn moves(instruction: &Instruction) -> Option<Data> {
    use Mnemonic as M;
    let (first, second) = (operand(instruction, 0), operand(instruction, 1));
    let is_register = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::Register;
    match instruction.mnemonic() {
        M::Fld if is_register => two((first, Access::READ), (7, Access::WRITE), Codes::Arithmetic, Top::Push),
        M::Fld | M::Fild | M::Fbld => one(7, Access::WRITE, Codes::Arithmetic, Top::Push),
        M::Fld1 | M::Fldl2t | M::Fldl2e | M::Fldpi | M::Fldlg2 | M::Fldln2 | M::Fldz => {
            one(7, Access::WRITE, Codes::Arithmetic, Top::Push)
        }
        M::Fst | M::Fstp | M::Fstpnce if is_register => {
            // The undocumented alias `fstpnce` does not store an empty st(0).
            let maybe = instruction.mnemonic() == M::Fstpnce;
            let regs = [(0, Access::READ, false), (first, Access::WRITE, maybe)];
            Some(Data { regs, codes: Codes::Arithmetic, top: pops(instruction) })
        }
        M::Fst | M::Fstp | M::Fist | M::Fistp | M::Fisttp | M::Fbstp => {
            one(0, Access::READ, Codes::Arithmetic, pops(instruction))
        }
        M::Fcmovb | M::Fcmove | M::Fcmovbe | M::Fcmovu | M::Fcmovnb | M::Fcmovne | M::Fcmovnbe | M::Fcmovnu => {
            let regs = [(first, Access::UPDATE, true), (second, Access::READ, false)];
            Some(Data { regs, codes: Codes::FaultOrUndefined, top: Top::Keep })
        }
        M::Fxch => two((first, Access::UPDATE), (second, Access::UPDATE), Codes::Arithmetic, Top::Keep),
        M::Ffree => one(0, Access::NONE, Codes::Undefined, Top::Keep),
        M::Ffreep => one(0, Access::NONE, Codes::Undefined, Top::Pop),
        M::Fincstp => one(0, Access::NONE, Codes::Arithmetic, Top::Increment),
        M::Fdecstp => one(0, Access::NONE, Codes::Arithmetic, Top::Decrement),
        M::Fnop => one(0, Access::NONE, Codes::Undefined, Top::Keep),
        _ => None,
    }
}

/// Addition to division, with one result.
fn arithmetic(instruction: &Instruction) -> Option<Data> {
    use Mnemonic as M;
    let (first, second) = (operand(instruction, 0), operand(instruction, 1));
    match instruction.mnemonic() {
        M::Fadd | M::Fmul | M::Fsub | M::Fsubr | M::Fdiv | M::Fdivr => {
            two((first, Access::UPDATE), (second, Access::READ), Codes::Arithmetic, Top::Keep)
        }
        M::Faddp | M::Fmulp | M::Fsubp | M::Fsubrp | M::Fdivp | M::Fdivrp => {
            two((first, Access::UPDATE), (second, Access::READ), Codes::Arithmetic, Top::Pop)
        }
        M::Fiadd | M::Fimul | M::Fisub | M::Fisubr | M::Fidiv | M::Fidivr => {
            one(0, Access::UPDATE, Codes::Arithmetic, Top::Keep)
        }
        M::Fabs | M::Fchs | M::Fsqrt | M::Frndint => one(0, Access::UPDATE, Codes::Arithmetic, Top::Keep),
        M::Fscale => two((0, Access::UPDATE), (1, Access::READ), Codes::Arithmetic, Top::Keep),
        M::Fprem | M::Fprem1 => two((0, Access::UPDATE), (1, Access::READ), Codes::Reduction, Top::Keep),
        M::Fxtract => two((0, Access::UPDATE), (7, Access::WRITE), Codes::Arithmetic, Top::Push),
        _ => None,
    }
}

/// Comparisons, whose result is in the condition codes or in RFLAGS.
fn comparisons(instruction: &Instruction) -> Option<Data> {
    use Mnemonic as M;
    let (first, second) = (operand(instruction, 0), operand(instruction, 1));
    match instruction.mnemonic() {
        M::Fcom | M::Fcomp | M::Fucom | M::Fucomp => {
            two((first, Access::READ), (second, Access::READ), Codes::All, pops(instruction))
        }
        M::Fcompp | M::Fucompp => two((0, Access::READ), (1, Access::READ), Codes::All, Top::PopTwice),
        M::Ficom | M::Ficomp | M::Ftst | M::Ftstp | M::Fxam => one(0, Access::READ, Codes::All, pops(instruction)),
        M::Fcomi | M::Fucomi | M::Fcomip | M::Fucomip => {
            two((first, Access::READ), (second, Access::READ), Codes::FaultOnly, pops(instruction))
        }
        _ => None,
    }
}

/// Trigonometric functions, exponentials and logarithms.
fn functions(instruction: &Instruction) -> Option<Data> {
    use Mnemonic as M;
    match instruction.mnemonic() {
        M::F2xm1 => one(0, Access::UPDATE, Codes::Arithmetic, Top::Keep),
        M::Fsin | M::Fcos => one(0, Access::UPDATE, Codes::Partial, Top::Keep),
        // An operand that is too large stays, and nothing is pushed.
        M::Fsincos | M::Fptan => {
            let regs = [(0, Access::UPDATE, true), (7, Access::WRITE, true)];
            Some(Data { regs, codes: Codes::Partial, top: Top::MaybePush })
        }
        M::Fyl2x | M::Fyl2xp1 | M::Fpatan => two((0, Access::READ), (1, Access::UPDATE), Codes::Arithmetic, Top::Pop),
        _ => None,
    }
}

/// The pop at the end of an instruction, if it has one.
fn pops(instruction: &Instruction) -> Top {
    match instruction.fpu_stack_increment_info().increment() {
        1 => Top::Pop,
        _ => Top::Keep,
    }
}

/// What all instructions on stack registers have in common.
fn finish(out: &mut Effects, codes: Codes, top: Top) {
    let x87 = &mut out.x87;
    x87.control.read = true;
    // Stack faults show in the tags, and masked ones fill an empty destination.
    x87.tags = Access::UPDATE;
    x87.pointers = Access::UPDATE;
    x87.top = top;
    // Exception flags are sticky: the old ones stay.
    x87.status_read |= X87::EXCEPTIONS;
    x87.status_write |= X87::EXCEPTIONS;
    let rest = X87::C0 | X87::C2 | X87::C3;
    let (read, written, undefined) = match codes {
        Codes::Arithmetic => (0, X87::C1, rest),
        Codes::All => (0, X87::CODES, 0),
        Codes::Partial => (0, X87::C1 | X87::C2, X87::C0 | X87::C3),
        Codes::FaultOnly => (X87::C1, X87::C1, 0),
        Codes::FaultOrUndefined => (X87::C1, X87::C1, rest),
        Codes::Reduction => (X87::CODES, X87::CODES, 0),
        Codes::Undefined => (0, 0, X87::CODES),
    };
    x87.status_read |= read;
    x87.status_write |= written | undefined;
    x87.status_undefined = undefined;
}
