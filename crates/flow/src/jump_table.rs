//! Jump tables: where an indirect jump leads, from the code before it and the constants it loads.
//!
//! The instructions before the jump are evaluated over a small domain (constant, constant + scale × unknown, entry of a
//! table), which covers what gcc and clang emit: `movsxd r,[table+i*4]; add r,table; jmp r` with and without
//! optimisation, and `jmp [table+i*8]`. The number of entries comes from the bound check (`cmp i,n; ja`) or a mask.
//! A table base that was loaded far before is found by the nearest `lea` of that register.
//!
//! Evaluation ignores that control may join in between and that the check may be about another value. So every entry
//! must lead to code that can be the function's, most of them inside it, else the jump stays unresolved: a wrong table is unlikely, a missed one is
//! completed by what is observed.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use isa::{Isa, gpr};

use crate::code::Memory;

/// Entries that a table may have.
const LARGEST: u64 = 16_384;
/// Entries that are read if no bound is found.
const WITHOUT_BOUND: u64 = 1_024;
/// Instructions before the jump that are evaluated.
const WINDOW: usize = 40;

/// What is known about a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Const(u64),
    /// `base + scale * something`.
    Scaled {
        scale: u64,
        base: u64,
    },
    /// The entry of a table at some index; `add` is what was added to it since.
    Entry {
        table: u64,
        width: u64,
        add: u64,
    },
}

const UNKNOWN: Value = Value::Scaled { scale: 1, base: 0 };

impl Value {
    fn plus(self, other: Value) -> Value {
        match (self, other) {
            (Value::Const(a), Value::Const(b)) => Value::Const(a.wrapping_add(b)),
            (Value::Const(c), Value::Scaled { scale, base }) | (Value::Scaled { scale, base }, Value::Const(c)) => {
                let base = base.wrapping_add(c);
                // A shifted index is again just an index.
                let small = base.wrapping_add(0x1000) < 0x2000;
                Value::Scaled { scale, base: if small && scale == 1 { 0 } else { base } }
            }
            (Value::Const(c), Value::Entry { table, width, add })
            | (Value::Entry { table, width, add }, Value::Const(c)) => {
                Value::Entry { table, width, add: add.wrapping_add(c) }
            }
            _ => UNKNOWN,
        }
    }

    fn times(self, factor: u64) -> Value {
        match self {
            value if factor == 1 => value,
            Value::Const(c) => Value::Const(c.wrapping_mul(factor)),
            Value::Scaled { scale, base } if scale.saturating_mul(factor) <= 8 => {
                Value::Scaled { scale: scale * factor, base: base.wrapping_mul(factor) }
            }
            _ => UNKNOWN,
        }
    }

    fn loaded(self, width: u64) -> Value {
        match self {
            Value::Scaled { scale, base } if scale == width && base != 0 && (width == 4 || width == 8) => {
                Value::Entry { table: base, width, add: 0 }
            }
            _ => UNKNOWN,
        }
    }
}

type Registers = [Value; 16];

/// Whether an entry of a table can be meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    No,
    /// It leads into the function.
    Inside,
    /// It leads to nameless code, which may be a part of the function: believed if most of a bounded table leads inside.
    PerhapsMoved,
}

/// The targets of the indirect jump at index `jump` of `all`, the function's instructions by address; `accepts` tells
/// whether a target is possible.
pub fn targets(
    memory: &Memory,
    isa: &mut Isa,
    all: &[&Instruction],
    jump: usize,
    accepts: &dyn Fn(u64) -> Accepted,
) -> Option<Vec<u64>> {
    let window = window(all, jump);
    let bound = bound(all, window.start, jump);
    for registers in [[UNKNOWN; 16], nearest_bases(all, jump)] {
        let Some(Value::Entry { table, width, add }) = evaluate(isa, &all[window.clone()], all[jump], registers) else {
            continue;
        };
        let found = entries(memory, table, width, add, bound, accepts);
        if !found.is_empty() {
            return Some(found);
        }
    }
    None
}

/// The consecutive instructions that lead to the jump, without it.
fn window(all: &[&Instruction], jump: usize) -> std::ops::Range<usize> {
    let mut start = jump;
    while start > 0 && jump - start < WINDOW {
        let before = all[start - 1];
        let goes_on = before.next_ip() == all[start].ip()
            && !matches!(crate::returns::next(before), crate::returns::Next::Jump(_) | crate::returns::Next::Returns);
        if !goes_on {
            break;
        }
        start -= 1;
    }
    start..jump
}

/// For each register the constant of the last `lea register, [rip+…]` before the jump.
fn nearest_bases(all: &[&Instruction], jump: usize) -> Registers {
    let mut registers = [UNKNOWN; 16];
    let mut missing: u32 = 0xffff;
    for instruction in all[..jump].iter().rev() {
        if instruction.mnemonic() == Mnemonic::Lea
            && instruction.is_ip_rel_memory_operand()
            && let Some(g) = gpr(instruction.op0_register()).filter(|g| missing & (1 << g) != 0)
        {
            registers[g as usize] = Value::Const(instruction.ip_rel_memory_address());
            missing &= !(1 << g);
        }
    }
    registers
}

fn evaluate(isa: &mut Isa, window: &[&Instruction], jump: &Instruction, mut registers: Registers) -> Option<Value> {
    for instruction in window {
        let written = isa.summary(instruction).gpr_write;
        let result = result(instruction, &registers);
        for (_, register) in registers.iter_mut().enumerate().filter(|(g, _)| written & (1 << g) != 0) {
            *register = UNKNOWN;
        }
        if let Some((g, value)) = result {
            registers[g] = value;
        }
    }
    let value = match jump.op0_kind() {
        OpKind::Register => registers[gpr(jump.op0_register())? as usize],
        OpKind::Memory => address(jump, &registers)?.loaded(8),
        _ => return None,
    };
    matches!(value, Value::Entry { .. }).then_some(value)
}

/// The register that the instruction sets and its value, for the few instructions that are understood.
fn result(instruction: &Instruction, registers: &Registers) -> Option<(usize, Value)> {
    if instruction.mnemonic() == Mnemonic::Cdqe {
        return Some((0, registers[0]));
    }
    if instruction.op_count() < 2 || instruction.op0_kind() != OpKind::Register {
        return None;
    }
    let to = instruction.op0_register();
    let g = gpr(to)? as usize;
    if !to.is_gpr64() && !to.is_gpr32() {
        return None;
    }
    let operand = || match instruction.op1_kind() {
        OpKind::Register => gpr(instruction.op1_register()).map(|r| registers[r as usize]),
        OpKind::Memory => Some(address(instruction, registers)?.loaded(instruction.memory_size().size() as u64)),
        _ => instruction.try_immediate(1).ok().map(Value::Const),
    };
    let value = match instruction.mnemonic() {
        Mnemonic::Mov | Mnemonic::Movsxd => operand()?,
        Mnemonic::Lea => address(instruction, registers)?,
        Mnemonic::Add => registers[g].plus(operand()?),
        Mnemonic::Shl => registers[g].times(1u64.checked_shl(instruction.try_immediate(1).ok()? as u32)?),
        Mnemonic::Xor if instruction.op1_register() == to => Value::Const(0),
        _ => return None,
    };
    Some((g, value))
}

fn address(instruction: &Instruction, registers: &Registers) -> Option<Value> {
    if matches!(instruction.segment_prefix(), Register::FS | Register::GS) {
        return None;
    }
    if instruction.is_ip_rel_memory_operand() {
        return Some(Value::Const(instruction.ip_rel_memory_address()));
    }
    let of = |register: Register| match register {
        Register::None => Some(Value::Const(0)),
        other => gpr(other).map(|g| registers[g as usize]),
    };
    let index = of(instruction.memory_index())?.times(u64::from(instruction.memory_index_scale()));
    let base = of(instruction.memory_base())?;
    Some(base.plus(index).plus(Value::Const(instruction.memory_displacement64())))
}

/// How many entries the check before the jump lets through.
fn bound(all: &[&Instruction], start: usize, jump: usize) -> Option<u64> {
    for i in (start..jump).rev() {
        let instruction = all[i];
        match instruction.mnemonic() {
            Mnemonic::Ja | Mnemonic::Jae => {
                let compared = compared_before(all, i)?;
                return Some(compared + u64::from(instruction.mnemonic() == Mnemonic::Ja));
            }
            Mnemonic::And => {
                let mask = instruction.try_immediate(1).ok();
                if let Some(mask) = mask.filter(|m| *m < LARGEST && (m + 1).is_power_of_two()) {
                    return Some(mask + 1);
                }
            }
            _ => {}
        }
    }
    // The check may jump here instead of away.
    let leader = all[start].ip();
    let into = |i: &usize| {
        let jump = all[*i];
        matches!(jump.mnemonic(), Mnemonic::Jbe | Mnemonic::Jb) && jump.near_branch_target() == leader
    };
    let way_in = (0..all.len()).find(into)?;
    Some(compared_before(all, way_in)? + u64::from(all[way_in].mnemonic() == Mnemonic::Jbe))
}

/// The constant of the comparison before a conditional jump.
fn compared_before(all: &[&Instruction], jump: usize) -> Option<u64> {
    let before = all[..jump].iter().rev().take(6);
    let compare = before.into_iter().find(|i| i.mnemonic() == Mnemonic::Cmp)?;
    compare.try_immediate(1).ok().filter(|n| *n < LARGEST)
}

fn entries(
    memory: &Memory,
    table: u64,
    width: u64,
    add: u64,
    bound: Option<u64>,
    accepts: &dyn Fn(u64) -> Accepted,
) -> Vec<u64> {
    let mut found = Vec::new();
    let mut inside = 0;
    for i in 0..bound.unwrap_or(WITHOUT_BOUND) {
        let bytes = table.checked_add(i * width).and_then(|at| memory.bytes(at, width as usize));
        let target = bytes.and_then(|b| match width {
            4 => Some(i64::from(i32::from_le_bytes(b.try_into().ok()?)) as u64),
            _ => Some(u64::from_le_bytes(b.try_into().ok()?)),
        });
        let target = target.map(|t| t.wrapping_add(add));
        match target.map_or(Accepted::No, accepts) {
            Accepted::Inside => inside += 1,
            Accepted::PerhapsMoved if bound.is_some() => {}
            _ if bound.is_some() => return Vec::new(),
            _ => break,
        }
        found.extend(target);
    }
    if inside * 2 < found.len() {
        return Vec::new();
    }
    found.sort_unstable();
    found.dedup();
    found
}
