//! Made-up programs and their traces, for tests and measurements.
//!
//! A program is a set of loops over blocks of random instructions, some loops much hotter than others, with branches
//! that are mostly biased. So its traces have the statistics of real ones: about 6 instructions and 2.5 slots per block
//! with [`Mix::Plain`], and few distinct sequences of blocks. The values in the records are random and not those of any
//! execution. Everything follows from the seed.

use iced_x86::{Code, Encoder, Instruction, MemoryOperand, Register};
use model::GuestAddr;
use model::wire::BlockDef;

use crate::block::Block;
use crate::format::{MAX_SPECIAL, Partial, Special};
use crate::plan::{Planner, SlotKind};

/// A small generator of random numbers (SplitMix64).
#[derive(Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(n)) >> 64) as u64
    }

    pub fn percent(&mut self, p: u64) -> bool {
        self.below(100) < p
    }
}

/// Which instructions a program has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mix {
    /// What compilers make of ordinary code.
    Plain,
    /// Also rep strings, gathers, masked accesses, segments, 32-bit addresses and changes of direction.
    Everything,
}

/// A made-up program.
pub struct Synthetic {
    pub defs: Vec<BlockDef>,
    pub blocks: Vec<Block>,
    /// For each block the chance, in percent, that it jumps over the next one.
    jumps: Vec<u64>,
    mix: Mix,
}

impl Synthetic {
    pub fn new(seed: u64, blocks: usize, mix: Mix) -> Synthetic {
        let mut rng = Rng(seed);
        let mut planner = Planner::new();
        let mut program = Synthetic { defs: Vec::new(), blocks: Vec::new(), jumps: Vec::new(), mix };
        let mut pc = 0x40_1000;
        for id in 0..blocks {
            let bytes = block_bytes(&mut rng, pc, mix);
            let def = BlockDef { id: id as u32, pc: GuestAddr(pc), bytes };
            pc += def.bytes.len() as u64;
            match Block::new(&def, &mut planner) {
                Ok(block) => program.blocks.push(block),
                Err(e) => unreachable!("{e}"),
            }
            program.defs.push(def);
            program.jumps.push(if rng.percent(85) { 1 } else { 5 + rng.below(60) });
        }
        program
    }

    /// A trace of at least so many bytes, in whole records, and how many instructions it holds.
    pub fn trace(&self, rng: &mut Rng, bytes: usize) -> (Vec<u8>, u64) {
        let mut out = Vec::with_capacity(bytes + 65536);
        let mut insns = 0;
        while out.len() < bytes {
            // Squaring makes the first loops hotter than the last.
            let start = rng.below(rng.clone().below(self.blocks.len() as u64) + 1) as usize;
            let (body, rounds) = (4 + start % 9, 1 + rng.below(60));
            for _ in 0..rounds {
                let mut k = 0;
                while k < body {
                    let at = (start + k) % self.blocks.len();
                    insns += self.record(rng, &self.blocks[at], &mut out);
                    k += if rng.percent(self.jumps[at]) { 2 } else { 1 };
                }
            }
        }
        (out, insns)
    }

    /// The record of one execution, sometimes with something else before it.
    fn record(&self, rng: &mut Rng, block: &Block, out: &mut Vec<u8>) -> u64 {
        let everything = self.mix == Mix::Everything;
        if everything && rng.percent(3) {
            self.other(rng, block, out);
        }
        // A bare id is a valid tag too.
        let tag = if everything && rng.percent(2) { block.id } else { block.plan.tag(block.id) };
        out.extend(tag.to_le_bytes());
        slots(rng, block, block.plan.slots.len(), out);
        block.insns.len() as u64
    }

    /// One record that is not a complete block.
    fn other(&self, rng: &mut Rng, block: &Block, out: &mut Vec<u8>) {
        let special = match rng.below(8) {
            0 => Special::Thread { tid: rng.below(3) as u32, fs_base: rng.word(), gs_base: rng.word() },
            1 => Special::Signal { signo: 11, pc: rng.word(), handler: rng.word() },
            2 => Special::SigReturn { pc: rng.word(), df: rng.percent(50) },
            3 => Special::Syscall { pc: rng.word(), nr: rng.below(400), result: rng.word() },
            4 => Special::Direction { df: rng.percent(50) },
            5 => Special::Step { pc: rng.word() },
            6 => Special::End,
            _ => {
                let completed = rng.below(block.insns.len() as u64 + 1) as usize;
                let recorded = block.plan.slots.iter().filter(|s| usize::from(s.insn) < completed).count();
                let started = block.plan.slots.iter().filter(|s| usize::from(s.insn) <= completed && !s.after).count();
                let count = recorded.max(if rng.percent(50) { started } else { 0 });
                let mut bytes = Vec::new();
                slots(rng, block, count, &mut bytes);
                out.extend(Partial::head(block.id, completed as u32, bytes.len() as u32));
                out.extend(bytes);
                out.extend(rng.below(100).to_le_bytes());
                return;
            }
        };
        let mut bytes = [0; MAX_SPECIAL];
        let len = special.encode(&mut bytes);
        out.extend(&bytes[..len]);
    }
}

/// Random values for the first `count` slots of a block.
fn slots(rng: &mut Rng, block: &Block, count: usize, out: &mut Vec<u8>) {
    for slot in &block.plan.slots[..count] {
        match slot.what {
            // Counts of rep strings must make sense for a while.
            SlotKind::Gpr(isa::RCX) => out.extend(rng.below(1000).to_le_bytes()),
            SlotKind::Gpr(_) | SlotKind::Sum { .. } => {
                out.extend((0x7f00_0000_0000 + rng.below(1 << 32)).to_le_bytes())
            }
            SlotKind::Mask(_) => out.extend(rng.word().to_le_bytes()),
            SlotKind::Vec { bytes, .. } => {
                for _ in 0..bytes / 8 {
                    out.extend(rng.word().to_le_bytes());
                }
            }
        }
    }
}

/// The bytes of one block.
fn block_bytes(rng: &mut Rng, pc: u64, mix: Mix) -> Vec<u8> {
    let mut encoder = Encoder::new(64);
    let mut bytes = Vec::new();
    let body = rng.below(4) + rng.below(5) + rng.below(5);
    let mut push =
        |rng: &mut Rng, insn: fn(&mut Rng) -> Instruction| match encoder.encode(&insn(rng), pc + bytes.len() as u64) {
            Ok(_) => bytes.extend(encoder.take_buffer()),
            Err(e) => unreachable!("{e}"),
        };
    for _ in 0..body {
        if mix == Mix::Everything && rng.percent(12) {
            push(rng, unusual);
        } else if rng.percent(60) {
            push(rng, memory);
        } else {
            push(rng, arithmetic);
        }
    }
    push(rng, |_| Instruction::with_branch(Code::Jne_rel32_64, 0x40_0000).unwrap_or_default());
    bytes
}

/// Any general purpose register but rsp.
fn gpr(rng: &mut Rng) -> Register {
    match Register::RAX + rng.below(15) as u32 {
        Register::RSP => Register::R15,
        r => r,
    }
}

/// An operand that keeps to few registers, as code does.
fn operand(rng: &mut Rng) -> MemoryOperand {
    let disp = rng.below(64) as i64 * 8 - 64;
    match rng.below(10) {
        0..3 => MemoryOperand::with_base_displ(Register::RSP, disp + 64),
        3..7 => MemoryOperand::with_base_displ(gpr(rng), disp),
        7..9 => MemoryOperand::with_base_index_scale_displ_size(gpr(rng), gpr(rng), 4, disp, 1),
        _ => MemoryOperand::with_base_displ(Register::RIP, 0x50_0000 + disp),
    }
}

fn memory(rng: &mut Rng) -> Instruction {
    let made = match rng.below(8) {
        0 => Instruction::with1(Code::Push_r64, gpr(rng)),
        1 => Instruction::with1(Code::Pop_r64, gpr(rng)),
        2 | 3 => Instruction::with2(Code::Mov_rm64_r64, operand(rng), gpr(rng)),
        4 => Instruction::with2(Code::Add_rm64_r64, operand(rng), gpr(rng)),
        5 => Instruction::with2(Code::Movups_xmm_xmmm128, Register::XMM1, operand(rng)),
        _ => Instruction::with2(Code::Mov_r64_rm64, gpr(rng), operand(rng)),
    };
    made.unwrap_or_default()
}

fn arithmetic(rng: &mut Rng) -> Instruction {
    let made = match rng.below(6) {
        0 => Instruction::with2(Code::Add_rm64_imm8, gpr(rng), rng.below(100) as i32),
        1 => Instruction::with2(Code::Mov_r64_rm64, gpr(rng), gpr(rng)),
        2 => Instruction::with2(Code::Lea_r64_m, gpr(rng), operand(rng)),
        3 => Instruction::with2(Code::Xor_r32_rm32, Register::EDX, Register::EDX),
        4 => Instruction::with2(Code::Cmp_rm64_imm8, gpr(rng), rng.below(100) as i32),
        _ => Instruction::with2(Code::Imul_r64_rm64, gpr(rng), gpr(rng)),
    };
    made.unwrap_or_default()
}

fn unusual(rng: &mut Rng) -> Instruction {
    let vector = |base, index| MemoryOperand::with_base_index_scale_displ_size(base, index, 4, 16, 1);
    let segment = |base, seg| MemoryOperand::new(base, Register::None, 1, 0x28, 1, false, seg);
    let made = match rng.below(14) {
        0 => Instruction::with_rep_movsb(64),
        1 => Instruction::with_repe_cmpsb(64),
        2 => Instruction::with_repne_scasb(64),
        3 => Instruction::with_rep_stosq(64),
        4 => Ok(Instruction::with(Code::Std)),
        5 => Ok(Instruction::with(Code::Cld)),
        6 => Instruction::with2(Code::Mov_r64_rm64, gpr(rng), segment(Register::None, Register::FS)),
        7 => Instruction::with2(Code::Mov_r64_rm64, gpr(rng), segment(Register::RDX, Register::GS)),
        8 => Instruction::with2(
            Code::Mov_r64_rm64,
            gpr(rng),
            MemoryOperand::with_base_index_scale_displ_size(Register::EAX, Register::ECX, 4, -4, 1),
        ),
        9 => Instruction::with3(
            Code::VEX_Vpgatherdd_ymm_vm32y_ymm,
            Register::YMM1,
            vector(Register::RAX, Register::YMM2),
            Register::YMM3,
        ),
        10 => Instruction::with3(
            Code::VEX_Vmaskmovps_m128_xmm_xmm,
            MemoryOperand::with_base(gpr(rng)),
            Register::XMM1,
            Register::XMM2,
        ),
        11 => Instruction::with2(Code::Bt_rm64_r64, operand(rng), gpr(rng)),
        12 => {
            Instruction::with2(Code::EVEX_Vmovdqu32_zmmm512_k1z_zmm, MemoryOperand::with_base(gpr(rng)), Register::ZMM5)
                .map(|mut i| {
                    i.set_op_mask(Register::K3);
                    i
                })
        }
        _ => Instruction::with1(Code::Xlat_m8, MemoryOperand::with_base_index(Register::RBX, Register::AL)),
    };
    made.unwrap_or_default()
}
