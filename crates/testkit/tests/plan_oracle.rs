//! The trace format by itself: records made here from native register values must decode to the addresses that the
//! oracle found. This checks `isa`, the plan and the reference decoder against the CPU without the engine.

use model::GuestAddr;
use model::wire::BlockDef;
use std::collections::HashMap;
use testkit::compare::same_accesses;
use testkit::compile::guest;
use testkit::oracle::{self, Access, Machine, Raw, Vectors, disassemble, repeats};
use testkit::sample;
use trace::decode::Decoder;
use trace::event::{Event, Mem};
use trace::format::{MAX_SPECIAL, Special};
use trace::plan::{BlockPlan, Planner, SlotKind};

/// One instruction with its state.
struct Sample {
    machine: Machine,
    vectors: Option<Vectors>,
    insn: iced_x86::Instruction,
    code: Vec<u8>,
    accesses: Vec<Access>,
}

/// Straight-line code being gathered for one thread, and what has been checked.
#[derive(Default)]
struct Checker {
    open: HashMap<u32, Vec<Sample>>,
    decoder: Decoder,
    planner: Planner,
    ids: HashMap<(u64, Vec<u8>), u32>,
    instructions: u64,
    /// The first difference at each address.
    wrong: Vec<(u64, String)>,
}

impl Checker {
    fn see(&mut self, raw: &Raw<'_>) {
        let run = self.open.entry(raw.thread).or_default();
        if let Some(last) = run.last_mut() {
            if repeats(raw.insn) && last.insn.ip() == raw.insn.ip() {
                return last.accesses.extend(raw.accesses);
            }
            let ends = last.insn.flow_control() != iced_x86::FlowControl::Next || run.len() >= 24;
            if ends || run[run.len() - 1].insn.next_ip() != raw.insn.ip() {
                let done = std::mem::take(run);
                self.block(raw.thread, &done, raw.machine);
            }
        }
        self.open.entry(raw.thread).or_default().push(Sample {
            machine: *raw.machine,
            vectors: raw.vectors.cloned(),
            insn: *raw.insn,
            code: raw.code.to_vec(),
            accesses: raw.accesses.to_vec(),
        });
    }

    /// Writes the record that an engine would write, and decodes it. `after` is the state after the block.
    fn block(&mut self, thread: u32, samples: &[Sample], after: &Machine) {
        let bytes: Vec<u8> = samples.iter().flat_map(|s| s.code.iter().copied()).collect();
        let first = &samples[0];
        let next = self.ids.len() as u32;
        let id = *self.ids.entry((first.insn.ip(), bytes.clone())).or_insert(next);
        if id == next {
            let def = BlockDef { id, pc: GuestAddr(first.insn.ip()), bytes };
            self.decoder.block(&def).expect("a block from the CPU is a good block");
        }
        let insns: Vec<_> = samples.iter().map(|s| s.insn).collect();
        let mut plan = BlockPlan::new();
        self.planner.plan(&insns, &mut plan);
        let mut buffer = Vec::new();
        let m = &first.machine;
        let running = Special::Thread { tid: thread + 1, fs_base: m.fs_base, gs_base: m.gs_base };
        for special in [running, Special::Direction { df: m.rflags >> 10 & 1 != 0 }] {
            let mut room = [0; MAX_SPECIAL];
            let used = special.encode(&mut room);
            buffer.extend_from_slice(&room[..used]);
        }
        buffer.extend_from_slice(&plan.tag(id).to_le_bytes());
        for slot in &plan.slots {
            let at = usize::from(slot.insn);
            let machine = match slot.after {
                false => &samples[at].machine,
                true => samples.get(at + 1).map_or(after, |s| &s.machine),
            };
            put_slot(&mut buffer, slot.what, machine, samples[at].vectors.as_ref());
        }
        let mut got: Vec<Vec<Mem>> = Vec::new();
        let mut sink = |e: &Event| match e {
            Event::Insn(_) => got.push(Vec::new()),
            Event::Mem(m) => got.last_mut().expect("an instruction comes first").push(*m),
            _ => {}
        };
        self.decoder.buffer(&buffer, &mut sink).expect("our own record decodes");
        assert_eq!(got.len(), samples.len(), "block at {:#x}", first.insn.ip());
        for (sample, mem) in samples.iter().zip(&got) {
            self.instructions += 1;
            let seen_wrong = self.wrong.iter().any(|(pc, _)| *pc == sample.insn.ip());
            if let (false, Err(why)) = (seen_wrong, same_accesses(&sample.accesses, mem)) {
                let text = disassemble(&sample.code, sample.insn.ip());
                let line = format!(
                    "{:#x} {text}: {why}\n  oracle {:x?}\n  trace  {mem:x?}",
                    sample.insn.ip(),
                    sample.accesses
                );
                self.wrong.push((sample.insn.ip(), line));
            }
        }
    }
}

fn put_slot(buffer: &mut Vec<u8>, what: SlotKind, m: &Machine, v: Option<&Vectors>) {
    let vectors = || v.expect("the stepper gives vector state where it is needed");
    let word = match what {
        SlotKind::Gpr(r) => m.gpr[usize::from(r)],
        SlotKind::Sum { base, index, scale } => {
            let base = base.map_or(0, |b| m.gpr[usize::from(b)]);
            base.wrapping_add(m.gpr[usize::from(index)].wrapping_mul(u64::from(scale)))
        }
        SlotKind::Mask(k) => vectors().k[usize::from(k)],
        SlotKind::Vec { reg, bytes } => {
            return buffer.extend_from_slice(&vectors().zmm[usize::from(reg)][..usize::from(bytes)]);
        }
    };
    buffer.extend_from_slice(&word.to_le_bytes());
}

/// What is wrong in one guest, if anything.
fn check(name: &str) -> Vec<String> {
    let Some(guest) = guest(name) else {
        println!("{name}: not on this CPU");
        return Vec::new();
    };
    let mut checker = Checker::default();
    oracle::observe::<&str>(&guest.program, &[], 0, |raw| checker.see(raw));
    assert!(checker.instructions > 1000, "{name}: only {} instructions", checker.instructions);
    println!("{name}: {} instructions in {} blocks", checker.instructions, checker.ids.len());
    checker.wrong.into_iter().map(|(_, why)| format!("{name}: {why}")).collect()
}

#[test]
fn records_from_native_states_decode_to_native_addresses() {
    // Guests with unusual operands; the others have the same forms as these.
    let names = ["strings.c", "vectors.c", "x87.c", "odd.c", "vectors512.c", "jit.c", "inlined.c"];
    let chosen = sample::indices(names.len(), 4);
    let wrong: Vec<_> = chosen.iter().flat_map(|&i| check(&format!("oracle/{}", names[i]))).collect();
    sample::say(&format!("plan oracle: {} of {} guests checked", chosen.len(), names.len()));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
