//! Blocks are executed by a small interpreter that records what the plan asks for; the decoded addresses must be those
//! that the interpreter touched, and the checker must agree. The interpreter takes its addresses from the operands alone,
//! so it shares nothing with the plan: this is what shows that leaving out known values loses nothing.

use std::collections::HashMap;

use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use trace::check::{Checker, What};
use trace::consume::Consumer;
use trace::decode::Decoder;
use trace::event::{Event, Sink};
use trace::plan::SlotKind;
use trace::synthetic::{Mix, Rng, Synthetic};

struct Machine {
    gprs: [u64; 16],
    memory: HashMap<u64, u64>,
    rng: Rng,
    touched: Vec<(u64, u64)>,
}

impl Machine {
    fn register(&self, r: Register) -> u64 {
        match r {
            Register::None | Register::DS | Register::SS => 0,
            r => self.gprs[r.full_register().number()],
        }
    }

    fn set(&mut self, r: Register, value: u64) {
        let narrow = r.is_gpr32();
        self.gprs[r.full_register().number()] = if narrow { u64::from(value as u32) } else { value };
    }

    fn load(&mut self, pc: u64, address: u64) -> u64 {
        self.touched.push((pc, address));
        // What was never written is a pointer somewhere.
        let fresh = 0x5000_0000 + self.rng.below(1 << 24);
        *self.memory.entry(address).or_insert(fresh)
    }

    fn store(&mut self, pc: u64, address: u64, value: u64) {
        self.touched.push((pc, address));
        self.memory.insert(address, value);
    }

    fn address(&self, i: &Instruction) -> u64 {
        i.virtual_address(if i.op0_kind() == OpKind::Memory { 0 } else { 1 }, 0, |r, _, _| Some(self.register(r)))
            .expect("the operand is in memory")
    }

    fn operand(&mut self, i: &Instruction, n: u32) -> u64 {
        match i.op_kind(n) {
            OpKind::Register if i.op_register(n).is_xmm() => 0,
            OpKind::Register => self.register(i.op_register(n)),
            OpKind::Memory => {
                let address = self.address(i);
                self.load(i.ip(), address)
            }
            _ => i.immediate(n),
        }
    }

    fn execute(&mut self, i: &Instruction) {
        let rsp = self.register(Register::RSP);
        let result = match i.mnemonic() {
            Mnemonic::Push => {
                let value = self.operand(i, 0);
                self.set(Register::RSP, rsp.wrapping_sub(8));
                return self.store(i.ip(), rsp.wrapping_sub(8), value);
            }
            Mnemonic::Pop => {
                let value = self.load(i.ip(), rsp);
                self.set(Register::RSP, rsp.wrapping_add(8));
                return self.set(i.op0_register(), value);
            }
            Mnemonic::Cmp | Mnemonic::Jne => return,
            Mnemonic::Mov if i.op0_kind() == OpKind::Memory => {
                let (value, address) = (self.operand(i, 1), self.address(i));
                return self.store(i.ip(), address, value);
            }
            Mnemonic::Mov => self.operand(i, 1),
            Mnemonic::Movups => {
                self.operand(i, 1);
                return;
            }
            Mnemonic::Lea => self.address(i),
            Mnemonic::Xor => 0,
            Mnemonic::Imul => self.operand(i, 0).wrapping_mul(self.operand(i, 1)) & 0xffff_ffff,
            Mnemonic::Add if i.op0_kind() == OpKind::Memory => {
                let sum = self.operand(i, 0).wrapping_add(self.operand(i, 1));
                let address = self.address(i);
                self.memory.insert(address, sum);
                return;
            }
            Mnemonic::Add => self.operand(i, 0).wrapping_add(self.operand(i, 1)),
            m => panic!("{m:?} is not among the instructions of this program"),
        };
        self.set(i.op0_register(), result);
    }

    /// Executes a block and writes its record.
    fn run(&mut self, block: &trace::block::Block, out: &mut Vec<u8>) {
        out.extend(block.plan.tag(block.id).to_le_bytes());
        for (n, i) in block.insns.iter().enumerate() {
            for slot in block.plan.slots_of(n) {
                let value = match slot.what {
                    SlotKind::Gpr(r) => self.gprs[usize::from(r)],
                    SlotKind::Sum { base, index, scale } => {
                        let index = self.gprs[usize::from(index)].wrapping_mul(u64::from(scale));
                        base.map_or(0, |b| self.gprs[usize::from(b)]).wrapping_add(index)
                    }
                    what => panic!("{what:?} is not for plain code"),
                };
                out.extend(value.to_le_bytes());
            }
            self.execute(i);
        }
    }
}

/// The trace of a random run has the addresses of that run.
fn check_run(seed: u64) {
    let program = Synthetic::new(seed, 50, Mix::Plain);
    let (mut decoder, mut consumer, mut checker) = (Decoder::new(), Consumer::new(), Checker::new());
    for def in &program.defs {
        decoder.block(def).unwrap();
        consumer.block(def).unwrap();
        checker.block(def).unwrap();
    }
    let mut rng = Rng(seed);
    let gprs = std::array::from_fn(|_| 0x6000_0000 + rng.below(1 << 20));
    let mut machine = Machine { gprs, memory: HashMap::new(), rng, touched: Vec::new() };
    let mut bytes = Vec::new();
    for n in 0..1500 {
        machine.run(&program.blocks[n % program.blocks.len()], &mut bytes);
    }
    let (mut pc, mut found) = (0, Vec::new());
    let mut collect = |e: &Event| match e {
        Event::Insn(i) => pc = i.pc,
        Event::Mem(m) => found.push((pc, m.addr)),
        _ => {}
    };
    decoder
        .buffer(&bytes, &mut |e: &Event| {
            collect(e);
            checker.event(e);
        })
        .unwrap();
    let first = found.iter().zip(&machine.touched).position(|(a, b)| a != b);
    assert_eq!(first.map(|n| (n, found[n], machine.touched[n])), None, "the first address that differs");
    assert_eq!(found.len(), machine.touched.len());

    let mut fast: Vec<u64> = Vec::new();
    consumer.buffer(&bytes, |chunk| fast.extend(chunk.addresses)).unwrap();
    assert!(fast.iter().eq(machine.touched.iter().map(|(_, address)| address)));
    // The made-up branches lead nowhere, but every address is as the registers say.
    let wrong = checker.findings().0.iter().find(|f| !matches!(f.what, What::Follows { .. } | What::NotUser { .. }));
    assert_eq!(wrong, None);
}

#[test]
fn the_decoded_addresses_are_those_of_the_run() {
    (0..12).for_each(check_run);
}
