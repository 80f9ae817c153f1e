//! Seccomp filters of the guest, evaluated by the engine.
//!
//! A filter that a guest installs must decide about the guest's system calls and not about the engine's, so the engine
//! keeps it and asks it. Validation accepts exactly what Linux accepts (`bpf_check_classic` in `net/core/filter.c`,
//! then `seccomp_check_filter` in `kernel/seccomp.c`); evaluation and the combination of several filters are Linux's
//! too.
//!
//! Guarantees: a [`Filter`] ends after at most as many steps as it has instructions (jumps go forward only) and never
//! panics.
//! May miss: the limit on the length of all filters together counts classic instructions, where Linux counts those of
//! its translation, so that it is reached a little later here.

#![forbid(unsafe_code)]

use alloc::{sync::Arc, vec, vec::Vec};
use core::fmt;

/// `AUDIT_ARCH_X86_64`, what [`Data::arch`] is for every system call of a guest.
pub const ARCH_X86_64: u32 = 0xc000_003e;
/// Longest filter (`BPF_MAXINSNS`).
pub const MAX_LEN: usize = 4096;
/// Longest chain of filters, each but the newest counted with a penalty of 4 (`MAX_INSNS_PER_PATH`).
const MAX_CHAIN: usize = (1 << 18) / 8;
/// Cells of scratch memory.
const CELLS: usize = 16;
/// Size of `struct seccomp_data`.
const DATA_LEN: u32 = 64;

/// One instruction (`struct sock_filter`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insn {
    pub code: u16,
    pub jt: u8,
    pub jf: u8,
    pub k: u32,
}

/// What a filter sees of a system call (`struct seccomp_data`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Data {
    pub nr: i32,
    pub arch: u32,
    pub ip: u64,
    pub args: [u64; 6],
}

/// A filter that was found valid.
#[derive(Debug, PartialEq, Eq)]
pub struct Filter {
    program: Vec<Insn>,
}

/// Why a filter is refused; the guest gets EINVAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// No instructions, or more than [`MAX_LEN`].
    Length(usize),
    /// An instruction that filters do not have.
    Code { at: usize, code: u16 },
    /// A constant that makes no sense: division by 0, shift by 32 or more, no such cell, no such word of the data.
    Constant { at: usize },
    /// A jump beyond the end.
    Jump { at: usize },
    /// A cell may be read before it is written.
    Unset { at: usize },
    /// The last instruction does not return.
    NoReturn,
}

/// The filters of one thread. Cloning shares them, as `clone` and `fork` do.
#[derive(Clone, Debug, Default)]
pub struct Filters {
    /// Oldest first.
    chain: Vec<Arc<Filter>>,
}

/// What is to happen to a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    KillProcess,
    KillThread,
    /// SIGSYS with this value in `si_errno`.
    Trap(u16),
    /// The call is not made and fails with this error; 0 means that it returns 0.
    Errno(u16),
    /// A supervisor decides.
    Notify(u16),
    /// A tracer decides; without one the call fails with ENOSYS.
    Trace(u16),
    /// Allowed and logged.
    Log,
    Allow,
}

/// Opcodes that a seccomp filter may have. `_K` takes the constant, `_X` the index register.
mod code {
    pub const LD_IMM: u16 = 0x00;
    pub const LD_ABS: u16 = 0x20;
    pub const LD_MEM: u16 = 0x60;
    pub const LD_LEN: u16 = 0x80;
    pub const LDX_IMM: u16 = 0x01;
    pub const LDX_MEM: u16 = 0x61;
    pub const LDX_LEN: u16 = 0x81;
    pub const ST: u16 = 0x02;
    pub const STX: u16 = 0x03;
    pub const ADD_K: u16 = 0x04;
    pub const ADD_X: u16 = 0x0c;
    pub const SUB_K: u16 = 0x14;
    pub const SUB_X: u16 = 0x1c;
    pub const MUL_K: u16 = 0x24;
    pub const MUL_X: u16 = 0x2c;
    pub const DIV_K: u16 = 0x34;
    pub const DIV_X: u16 = 0x3c;
    pub const OR_K: u16 = 0x44;
    pub const OR_X: u16 = 0x4c;
    pub const AND_K: u16 = 0x54;
    pub const AND_X: u16 = 0x5c;
    pub const LSH_K: u16 = 0x64;
    pub const LSH_X: u16 = 0x6c;
    pub const RSH_K: u16 = 0x74;
    pub const RSH_X: u16 = 0x7c;
    pub const NEG: u16 = 0x84;
    pub const XOR_K: u16 = 0xa4;
    pub const XOR_X: u16 = 0xac;
    pub const JA: u16 = 0x05;
    pub const JEQ_K: u16 = 0x15;
    pub const JEQ_X: u16 = 0x1d;
    pub const JGT_K: u16 = 0x25;
    pub const JGT_X: u16 = 0x2d;
    pub const JGE_K: u16 = 0x35;
    pub const JGE_X: u16 = 0x3d;
    pub const JSET_K: u16 = 0x45;
    pub const JSET_X: u16 = 0x4d;
    pub const RET_K: u16 = 0x06;
    pub const RET_A: u16 = 0x16;
    pub const TAX: u16 = 0x07;
    pub const TXA: u16 = 0x87;
}
use code::*;

impl Insn {
    /// From the bytes in the guest's memory.
    pub fn decode(b: [u8; 8]) -> Insn {
        Insn {
            code: u16::from_le_bytes([b[0], b[1]]),
            jt: b[2],
            jf: b[3],
            k: u32::from_le_bytes([b[4], b[5], b[6], b[7]]),
        }
    }

    fn is_conditional_jump(&self) -> bool {
        matches!(self.code, JEQ_K | JEQ_X | JGT_K | JGT_X | JGE_K | JGE_X | JSET_K | JSET_X)
    }
}

impl Filter {
    /// Accepts what the kernel accepts.
    pub fn new(program: Vec<Insn>) -> Result<Filter, Invalid> {
        let len = program.len();
        if len == 0 || len > MAX_LEN {
            return Err(Invalid::Length(len));
        }
        for (at, insn) in program.iter().enumerate() {
            check_insn(at, insn, len)?;
        }
        if !matches!(program[len - 1].code, RET_K | RET_A) {
            return Err(Invalid::NoReturn);
        }
        check_cells(&program)?;
        Ok(Filter { program })
    }

    pub fn len(&self) -> usize {
        self.program.len()
    }

    /// Always false: an empty filter is not valid.
    pub fn is_empty(&self) -> bool {
        self.program.is_empty()
    }

    /// The filter's verdict on one system call, as the number it returns.
    pub fn run(&self, data: &Data) -> u32 {
        let (mut a, mut x, mut cells) = (0_u32, 0_u32, [0_u32; CELLS]);
        let mut pc = 0;
        while let Some(&Insn { code, jt, jf, k }) = self.program.get(pc) {
            pc += 1;
            let mut branch = |taken: bool| pc += usize::from(if taken { jt } else { jf });
            match code {
                LD_IMM => a = k,
                LD_ABS => a = data.word(k),
                LD_MEM => a = cells[k as usize % CELLS],
                LD_LEN => a = DATA_LEN,
                LDX_IMM => x = k,
                LDX_MEM => x = cells[k as usize % CELLS],
                LDX_LEN => x = DATA_LEN,
                ST => cells[k as usize % CELLS] = a,
                STX => cells[k as usize % CELLS] = x,
                TAX => x = a,
                TXA => a = x,
                JA => pc += k as usize,
                JEQ_K => branch(a == k),
                JEQ_X => branch(a == x),
                JGT_K => branch(a > k),
                JGT_X => branch(a > x),
                JGE_K => branch(a >= k),
                JGE_X => branch(a >= x),
                JSET_K => branch(a & k != 0),
                JSET_X => branch(a & x != 0),
                RET_K => return k,
                RET_A => return a,
                _ => match arithmetic(code, a, k, x) {
                    Some(result) => a = result,
                    // Division by an index register that is 0 ends the filter.
                    None => return 0,
                },
            }
        }
        // Not reached: the last instruction returns and jumps stay inside. The kernel's answer to doubt is to kill.
        0
    }
}

/// The accumulator after an arithmetic instruction; nothing after a division by 0.
fn arithmetic(code: u16, a: u32, k: u32, x: u32) -> Option<u32> {
    Some(match code {
        ADD_K => a.wrapping_add(k),
        ADD_X => a.wrapping_add(x),
        SUB_K => a.wrapping_sub(k),
        SUB_X => a.wrapping_sub(x),
        MUL_K => a.wrapping_mul(k),
        MUL_X => a.wrapping_mul(x),
        DIV_K => a.checked_div(k)?,
        DIV_X => a.checked_div(x)?,
        OR_K => a | k,
        OR_X => a | x,
        AND_K => a & k,
        AND_X => a & x,
        XOR_K => a ^ k,
        XOR_X => a ^ x,
        // Only the low five bits of a count matter, as in the CPU.
        LSH_K => a.wrapping_shl(k),
        LSH_X => a.wrapping_shl(x),
        RSH_K => a.wrapping_shr(k),
        RSH_X => a.wrapping_shr(x),
        NEG => a.wrapping_neg(),
        _ => return None,
    })
}

/// Is this instruction, at this place in a program of `len`, one that a filter may have?
fn check_insn(at: usize, insn: &Insn, len: usize) -> Result<(), Invalid> {
    let k = insn.k;
    let left = len - at - 1;
    let constant_fits = match insn.code {
        LD_ABS => k < DATA_LEN && k.is_multiple_of(4),
        DIV_K => k != 0,
        LSH_K | RSH_K => k < 32,
        LD_MEM | LDX_MEM | ST | STX => k < CELLS as u32,
        JA => {
            let inside = (k as usize) < left;
            return if inside { Ok(()) } else { Err(Invalid::Jump { at }) };
        }
        _ if insn.is_conditional_jump() => {
            let inside = usize::from(insn.jt) < left && usize::from(insn.jf) < left;
            return if inside { Ok(()) } else { Err(Invalid::Jump { at }) };
        }
        LD_IMM | LD_LEN | LDX_IMM | LDX_LEN | TAX | TXA | RET_K | RET_A | NEG => true,
        ADD_K | ADD_X | SUB_K | SUB_X | MUL_K | MUL_X | DIV_X => true,
        OR_K | OR_X | AND_K | AND_X | XOR_K | XOR_X | LSH_X | RSH_X => true,
        code => return Err(Invalid::Code { at, code }),
    };
    if constant_fits { Ok(()) } else { Err(Invalid::Constant { at }) }
}

/// Every cell must be written on all paths before it is read. `valid[pc]` holds the cells written on every way to `pc`
/// seen so far; jumps go forward, so one pass is enough.
fn check_cells(program: &[Insn]) -> Result<(), Invalid> {
    let mut valid = vec![u16::MAX; program.len()];
    let mut now = 0_u16;
    for (at, insn) in program.iter().enumerate() {
        now &= valid[at];
        match insn.code {
            ST | STX => now |= 1 << insn.k,
            LD_MEM | LDX_MEM if now & 1 << insn.k == 0 => return Err(Invalid::Unset { at }),
            JA => {
                valid[at + 1 + insn.k as usize] &= now;
                now = u16::MAX;
            }
            _ if insn.is_conditional_jump() => {
                valid[at + 1 + usize::from(insn.jt)] &= now;
                valid[at + 1 + usize::from(insn.jf)] &= now;
                now = u16::MAX;
            }
            _ => {}
        }
    }
    Ok(())
}

impl Data {
    /// The 32-bit word at a byte offset of `struct seccomp_data`.
    fn word(&self, offset: u32) -> u32 {
        let halves = |v: u64| if offset.is_multiple_of(8) { v as u32 } else { (v >> 32) as u32 };
        match offset {
            0 => self.nr as u32,
            4 => self.arch,
            8 | 12 => halves(self.ip),
            _ => self.args.get((offset as usize - 16) / 8).map_or(0, |&arg| halves(arg)),
        }
    }
}

impl Filters {
    pub fn is_empty(&self) -> bool {
        self.chain.is_empty()
    }

    /// Adds a filter. Returns false where the kernel answers ENOMEM: all together are too long.
    pub fn push(&mut self, filter: Filter) -> bool {
        let before: usize = self.chain.iter().map(|f| f.len() + 4).sum();
        let fits = before + filter.len() <= MAX_CHAIN;
        if fits {
            self.chain.push(Arc::new(filter));
        }
        fits
    }

    /// Were these filters installed before any other that `thread` has? Then the thread can be given the newer ones
    /// (`SECCOMP_FILTER_FLAG_TSYNC`).
    pub fn is_ancestor_of(&self, thread: &Filters) -> bool {
        let shared = self.chain.iter().zip(&thread.chain).all(|(a, b)| Arc::ptr_eq(a, b));
        self.chain.len() <= thread.chain.len() && shared
    }

    /// All filters are asked; the most severe answer wins, and among equals the newest filter's.
    pub fn run(&self, data: &Data) -> u32 {
        let severity = |verdict: u32| (verdict & ACTION_MASK) as i32;
        let newest_first = self.chain.iter().rev().map(|f| f.run(data));
        newest_first.fold(ALLOW, |worst, v| if severity(v) < severity(worst) { v } else { worst })
    }
}

const ACTION_MASK: u32 = 0xffff_0000;
const ALLOW: u32 = 0x7fff_0000;
const MAX_ERRNO: u16 = 4095;

impl Action {
    /// Decodes a verdict. What is not known kills, as in the kernel.
    pub fn of(verdict: u32) -> Action {
        let value = verdict as u16;
        match verdict & ACTION_MASK {
            0x0000_0000 => Action::KillThread,
            0x0003_0000 => Action::Trap(value),
            0x0005_0000 => Action::Errno(value.min(MAX_ERRNO)),
            0x7fc0_0000 => Action::Notify(value),
            0x7ff0_0000 => Action::Trace(value),
            0x7ffc_0000 => Action::Log,
            ALLOW => Action::Allow,
            _ => Action::KillProcess,
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Invalid::Length(n) => write!(f, "a filter of {n} instructions"),
            Invalid::Code { at, code } => write!(f, "instruction {at}: no such operation {code:#x}"),
            Invalid::Constant { at } => write!(f, "instruction {at}: constant out of range"),
            Invalid::Jump { at } => write!(f, "instruction {at}: jump beyond the end"),
            Invalid::Unset { at } => write!(f, "instruction {at}: cell read before it is written"),
            Invalid::NoReturn => write!(f, "the last instruction does not return"),
        }
    }
}

#[cfg(test)]
mod tests;
