//! The alteration oracle: makes one change natively, under ptrace, and shows what becomes of the program.
//!
//! A breakpoint counts executions of the instruction; at the n-th the change is made, the breakpoint goes, the tracer
//! detaches, and the program runs on by itself. A flip executes the branch and then puts the pc on its other successor.
//!
//! An altered program may read what it never wrote, and then its behaviour follows from where things happen to lie. Such
//! a case says nothing about the engine; [`run`] with [`Layout::Random`] finds it: natively at two layouts it already
//! differs from itself.

use crate::elf::Program;
use crate::oracle::{Entry, Trace, decode, end_of, stepper_program};
use crate::random::Random;
use crate::regions::RegionId;
use crate::{End, Shown, native};
use iced_x86::{FlowControl, Instruction, Mnemonic};
use model::GuestAddr;
use model::wire::{Action, Probe, Site};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// One change at one instance of one instruction. All addresses are as linked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Alteration {
    pub site: u64,
    /// 1 is the first execution.
    pub instance: u64,
    pub change: Change,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// The conditional branch at the site goes the other way.
    Flip { taken: u64, fall: u64 },
    /// Execution goes on elsewhere instead.
    Skip { to: u64 },
    /// A general register by hardware number, or 16 for the flags.
    Register { number: u8, value: u64 },
    /// Bytes of the program's own image.
    Memory { at: u64, bytes: Vec<u8> },
    /// Nothing: the run must be the same as without a breakpoint.
    Nothing,
}

/// Where the kernel puts things.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// As without address randomisation.
    Fixed,
    Random,
}

/// What became of the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The instance was reached.
    pub applied: bool,
    pub shown: Shown,
    /// Processor time after the change.
    pub cpu: Duration,
}

impl fmt::Display for Alteration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {:#x}#{} ", self.site, self.instance)?;
        match &self.change {
            Change::Flip { taken, fall } => write!(f, "flip (to {taken:#x} or {fall:#x})"),
            Change::Skip { to } => write!(f, "skip to {to:#x}"),
            Change::Register { number, value } => write!(f, "set register {number} to {value:#x}"),
            Change::Memory { at, bytes } => write!(f, "set {at:#x} to {bytes:02x?}"),
            Change::Nothing => write!(f, "nothing"),
        }
    }
}

impl Alteration {
    /// The same change for the engine.
    pub fn probe(&self, program: &Program) -> Probe {
        let action = match &self.change {
            Change::Flip { .. } => Action::Flip,
            Change::Skip { to } => Action::Skip(Site::Executable(*to)),
            Change::Register { number, value } => Action::SetRegister(*number, *value),
            Change::Memory { at, bytes } => Action::SetMemory(GuestAddr(at + program.bias()), bytes.clone()),
            Change::Nothing => Action::Report,
        };
        Probe { site: Site::Executable(self.site), instance: self.instance, action }
    }

    /// For the stepper's command line.
    fn argument(&self) -> String {
        match &self.change {
            Change::Flip { taken, fall } => format!("flip:{taken:x}:{fall:x}"),
            Change::Skip { to } => format!("skip:{to:x}"),
            Change::Register { number, value } => format!("reg:{number}:{value:x}"),
            Change::Memory { at, bytes } => {
                let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
                format!("mem:{at:x}:{hex}")
            }
            Change::Nothing => "none".into(),
        }
    }
}

/// Runs a single-threaded program natively with one change; `budget` is processor time after it.
pub fn run(path: &Path, alteration: &Alteration, layout: Layout, budget: Duration) -> Outcome {
    let program = Program::read(path);
    let result = crate::scratch_file("altered");
    let mut command = Command::new(stepper_program());
    command.arg("alter").arg(&result).arg(budget.as_millis().to_string());
    command.arg(if layout == Layout::Random { "1" } else { "0" }).arg(format!("{:x}", program.entry));
    command.arg(format!("{:x}", alteration.site)).arg(alteration.instance.to_string()).arg(alteration.argument());
    command.arg(path);
    // The stepper enforces the budget; this limit is only for a stepper that fails.
    let stepper = native::show(&mut command, Duration::from_secs(120));
    let flooded = stepper.stdout.len() >= native::OUTPUT_LIMIT;
    assert!(flooded || stepper.end == End::Exited(0), "the stepper failed ({}): {alteration}", stepper.end);
    if flooded && stepper.end != End::Exited(0) {
        let shown = Shown { stdout: stepper.stdout, end: End::RanAway };
        return Outcome { applied: true, shown, cpu: budget };
    }
    let line = std::fs::read_to_string(&result).expect("the stepper wrote its result");
    std::fs::remove_file(&result).expect("our own file can be removed");
    let words: Vec<&str> = line.split_whitespace().collect();
    let field = |name: &str| -> i64 {
        let at = words.iter().position(|w| *w == name).expect("the stepper names its results");
        words[at + 1].parse().expect("results are numbers")
    };
    let away = field("ran_away") != 0 || flooded;
    let end = if away { End::RanAway } else { end_of(field("status") as u32) };
    let cpu = Duration::from_micros(field("cpu_us").max(0) as u64);
    Outcome { applied: field("applied") != 0, shown: Shown { stdout: stepper.stdout, end }, cpu }
}

/// What in a program can be altered: the instructions that it executed, how often, and the image bytes it wrote.
#[derive(Clone, Debug)]
pub struct Sites {
    sites: Vec<(Instruction, u64)>,
    written: Vec<u64>,
    pie: bool,
}

/// A breakpoint costs two stops per execution, so instances beyond this are not chosen.
const MOST_INSTANCES: u64 = 3000;

impl Sites {
    /// From a trace of the unaltered program, which must have one thread and unchanging code.
    pub fn of(trace: &Trace, program: &Program) -> Sites {
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        let mut written = Vec::new();
        for entry in trace.threads.iter().flatten() {
            let Entry::Insn(step) = entry else { continue };
            if step.region != RegionId::Image {
                continue;
            }
            *counts.entry(step.pc - program.bias()).or_default() += 1;
            let stores = step.touched.iter().filter(|t| t.region == RegionId::Image && t.access.write);
            written.extend(stores.map(|t| t.access.addr - program.bias()));
        }
        written.sort_unstable();
        written.dedup();
        let sites = counts.into_iter().map(|(pc, n)| (decode(program.code(pc), pc), n));
        let sites = sites.filter(|(i, _)| !reaches_system_call(i, program)).collect();
        Sites { sites, written, pie: program.pie }
    }

    pub fn len(&self) -> usize {
        self.sites.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }

    /// The instructions that were executed exactly so often.
    pub fn executed(&self, times: u64) -> impl Iterator<Item = &Instruction> {
        self.sites.iter().filter(move |(_, n)| *n == times).map(|(i, _)| i)
    }

    /// Places one to three instructions before a comparison that stands before a conditional branch: where to skip from
    /// and the branch. Nothing in between writes the flags or jumps.
    pub fn before_comparisons(&self, program: &Program) -> Vec<(u64, u64)> {
        let next = |i: &Instruction| decode(program.code(i.next_ip()), i.next_ip());
        let compares = |i: &Instruction| matches!(i.mnemonic(), Mnemonic::Cmp | Mnemonic::Test);
        let harmless = |i: &Instruction| i.rflags_modified() == 0 && i.flow_control() == FlowControl::Next;
        let found = self.sites.iter().filter(|(i, _)| harmless(i)).filter_map(|(site, _)| {
            let mut i = next(site);
            for _ in 0..2 {
                if harmless(&i) && !compares(&i) {
                    i = next(&i);
                }
            }
            let branch = next(&i);
            (compares(&i) && branch.is_jcc_short_or_near()).then(|| (site.ip(), branch.ip()))
        });
        found.collect()
    }

    /// Draws one alteration; a third of them flips.
    pub fn draw(&self, random: &mut Random, program: &Program) -> Alteration {
        let kind = random.below(6);
        let branches: Vec<_> = self.sites.iter().filter(|(i, _)| i.is_jcc_short_or_near()).collect();
        let (insn, count) = if kind < 2 { *random.pick(&branches) } else { random.pick(&self.sites) };
        let change = match kind {
            0 | 1 => Change::Flip { taken: insn.near_branch_target(), fall: insn.next_ip() },
            2 | 3 => Change::Skip { to: ahead(insn, random.below(6) + 1, program) },
            4 => self.register(random),
            _ => {
                let at = *random.pick(&self.written);
                let bytes = (0..1 << random.below(4)).map(|_| random.word() as u8 >> random.below(8)).collect();
                Change::Memory { at, bytes }
            }
        };
        let instance = random.below((*count).min(MOST_INSTANCES)) + 1;
        Alteration { site: insn.ip(), instance, change }
    }

    fn register(&self, random: &mut Random) -> Change {
        let number = random.below(17) as u8;
        if number == 16 {
            // Interrupts on, reserved bit 1, and any of carry, parity, adjust, zero, sign, overflow.
            let value = 0x202 | random.word() & 0x8d5;
            return Change::Register { number, value };
        }
        let small = random.below(300);
        let image = self.written.first().copied().unwrap_or(0) + small;
        // A program that moves has no address that means the same in every layout.
        let image = if self.pie { small } else { image };
        let value =
            *random.pick(&[0, 1, small, u64::MAX, small.wrapping_neg(), 0x8000_0000, image, random.clone().word()]);
        Change::Register { number, value }
    }
}

/// Is a system call so near behind that an alteration here might change its number? Nobody wants a random one made.
fn reaches_system_call(from: &Instruction, program: &Program) -> bool {
    let mut insn = *from;
    for _ in 0..16 {
        if insn.mnemonic() == Mnemonic::Syscall || insn.is_invalid() {
            return true;
        }
        if matches!(insn.flow_control(), FlowControl::Return | FlowControl::UnconditionalBranch) {
            return false;
        }
        insn = decode(program.code(insn.next_ip()), insn.next_ip());
    }
    false
}

/// The address `n` instructions further on.
fn ahead(from: &Instruction, n: u64, program: &Program) -> u64 {
    let mut at = from.next_ip();
    for _ in 1..n {
        let insn = decode(program.code(at), at);
        if insn.is_invalid() {
            break;
        }
        at = insn.next_ip();
    }
    at
}
