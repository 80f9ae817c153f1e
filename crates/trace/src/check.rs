//! A checker of decoded streams: is this something that a program can have done?
//!
//! It asks two things of every event. *Control*: each instruction follows from the one before it in its thread: the next
//! one, a branch target, or what a special record says. *Data*: a register is known once an access has shown its value,
//! and as long as only moves and shifts by constants touch it ([`crate::motion`]); every further access through it must
//! then be where it says, across blocks. That is how a slot recorded at the wrong moment or for the wrong register shows.
//!
//! It computes addresses from [`isa`] and not from the plan, so that planner and checker err independently. It finds
//! nothing wrong with a trace that is right, with two exceptions: alterations (a skip, a set register) look like errors,
//! and so does code that a debugger or another process changes. It may miss errors that happen to be consistent, and all
//! in addresses that are sums of two unknown registers. Meant for tests: about as fast as the reference decoder.

use std::collections::HashMap;
use std::fmt;

use iced_x86::{FlowControl, Instruction, Mnemonic};
use isa::{Effects, Isa, MemAccess, R11, RAX, RCX, Segment, Shape};
use model::wire::BlockDef;

use crate::block::{Block, BlockError};
use crate::event::{Event, Insn, Mem, Sink};
use crate::format::Special;
use crate::motion::{Motion, motion};
use crate::plan::Planner;

/// Findings beyond this many are only counted.
const KEPT: usize = 100;

/// User addresses are below this, also with five-level page tables.
const USER_END: u64 = 1 << 56;

/// Something that cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Number of the event in the stream.
    pub event: u64,
    pub thread: u32,
    /// The instruction that the event belongs to.
    pub pc: u64,
    pub what: What,
}

/// What cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// The instruction does not follow from the one at `from`.
    Follows { from: u64 },
    /// The address should be another one, by what is known of the registers.
    Address { expected: u64, found: u64 },
    /// No user address.
    NotUser { address: u64 },
    /// The instruction has another number of accesses.
    Accesses { expected: usize, found: usize },
    /// The event names an instruction that is not there.
    NoSuchInstruction,
    /// A system call is reported that the thread did not make.
    NoSystemCall,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {}, thread {}, {:#x}: ", self.event, self.thread, self.pc)?;
        match self.what {
            What::Follows { from } => write!(f, "does not follow from {from:#x}"),
            What::Address { expected, found } => write!(f, "address {found:#x} should be {expected:#x}"),
            What::NotUser { address } => write!(f, "{address:#x} is not a user address"),
            What::Accesses { expected, found } => write!(f, "{found} accesses instead of {expected}"),
            What::NoSuchInstruction => write!(f, "no such instruction in the block"),
            What::NoSystemCall => write!(f, "the thread made no system call there"),
        }
    }
}

/// Where a thread may go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Next {
    #[default]
    Anywhere,
    At(u64),
    Either(u64, u64),
}

impl Next {
    fn allows(self, pc: u64) -> bool {
        match self {
            Next::Anywhere => true,
            Next::At(a) => pc == a,
            Next::Either(a, b) => pc == a || pc == b,
        }
    }
}

/// What is known about a thread.
#[derive(Clone, Debug, Default)]
struct Thread {
    last_pc: u64,
    next: Next,
    in_syscall: Option<u64>,
    gprs: [Option<u64>; 16],
    fs_base: Option<u64>,
    gs_base: Option<u64>,
    /// The instruction whose accesses come now, with how many have come.
    current: Option<(Insn, usize)>,
}

/// Checks a stream of events.
pub struct Checker {
    planner: Planner,
    isa: Isa,
    effects: Effects,
    blocks: HashMap<u32, Vec<Instruction>>,
    threads: HashMap<u32, Thread>,
    tid: u32,
    events: u64,
    findings: Vec<Finding>,
    count: u64,
}

impl Default for Checker {
    fn default() -> Checker {
        Checker::new()
    }
}

impl Checker {
    pub fn new() -> Checker {
        Checker {
            planner: Planner::new(),
            isa: Isa::new(),
            effects: Effects::default(),
            blocks: HashMap::new(),
            threads: HashMap::new(),
            tid: 0,
            events: 0,
            findings: Vec::new(),
            count: 0,
        }
    }

    /// Registers a block, as for a decoder.
    pub fn block(&mut self, def: &BlockDef) -> Result<(), BlockError> {
        let block = Block::new(def, &mut self.planner)?;
        self.blocks.insert(block.id, block.insns);
        Ok(())
    }

    /// What was found so far, and of how many.
    pub fn findings(&self) -> (&[Finding], u64) {
        (&self.findings, self.count)
    }

    fn find(&mut self, pc: u64, what: What) {
        self.count += 1;
        if self.findings.len() < KEPT {
            self.findings.push(Finding { event: self.events, thread: self.tid, pc, what });
        }
    }

    fn thread(&mut self) -> &mut Thread {
        self.threads.entry(self.tid).or_default()
    }

    fn instruction(&self, insn: &Insn) -> Option<Instruction> {
        let i = *self.blocks.get(&insn.block)?.get(usize::from(insn.index))?;
        (i.ip() == insn.pc).then_some(i)
    }

    /// The thread goes on at `pc`.
    fn arrive(&mut self, pc: u64) {
        let thread = self.thread();
        let (next, from) = (thread.next, thread.last_pc);
        if !next.allows(pc) {
            self.find(pc, What::Follows { from });
        }
    }

    fn insn(&mut self, insn: &Insn, completed: bool) {
        self.leave();
        self.arrive(insn.pc);
        let Some(i) = self.instruction(insn) else {
            self.find(insn.pc, What::NoSuchInstruction);
            *self.thread() = Thread::default();
            return;
        };
        let thread = self.thread();
        thread.last_pc = insn.pc;
        thread.next = if completed { after(&i) } else { Next::At(insn.pc) };
        thread.in_syscall = (i.mnemonic() == Mnemonic::Syscall).then_some(insn.pc);
        thread.current = Some((*insn, 0));
        if !completed {
            forget_written(&mut self.isa, &i, &mut self.threads.entry(self.tid).or_default().gprs);
        }
    }

    /// The instruction before is over: are its accesses complete, and what does it do to the registers?
    fn leave(&mut self) {
        let Some((insn, found)) = self.thread().current.take() else { return };
        let Some(i) = self.instruction(&insn) else { return };
        if self.thread().next == Next::At(insn.pc) && after(&i) != Next::At(insn.pc) {
            // A rep string that was stopped: its registers have been forgotten.
            return;
        }
        self.isa.effects(&i, &mut self.effects);
        let expected = self.effects.mem.len();
        if self.effects.mem.iter().all(is_plain) && expected != found {
            self.find(insn.pc, What::Accesses { expected, found });
        }
        let gprs = &mut self.threads.entry(self.tid).or_default().gprs;
        let result = match motion(&i) {
            Motion::None => None,
            Motion::Constant { to, value } => Some((to, Some(value))),
            Motion::Shift { to, from, delta } => {
                Some((to, gprs[usize::from(from)].map(|v| v.wrapping_add(delta as u64))))
            }
        };
        forget_written(&mut self.isa, &i, gprs);
        if let Some((to, value)) = result {
            gprs[usize::from(to)] = value;
        }
    }

    fn mem(&mut self, m: &Mem) {
        let thread = self.threads.entry(self.tid).or_default();
        let Some((insn, n)) = &mut thread.current else { return };
        let (insn, index) = (*insn, *n);
        *n += 1;
        let (low, len) = m.range();
        if !m.conditional && low.checked_add(len).is_none_or(|end| end > USER_END) {
            self.find(insn.pc, What::NotUser { address: m.addr });
        }
        let Some(i) = self.instruction(&insn) else { return };
        self.isa.effects(&i, &mut self.effects);
        if !self.effects.mem.iter().all(is_plain) {
            return;
        }
        let only_written = |a: &&MemAccess| a.write && !a.read;
        let accesses = &self.effects.mem;
        let mut ordered =
            accesses.iter().filter(|a| !only_written(a)).chain(accesses.iter().filter(|a| only_written(a)));
        let Some(access) = ordered.nth(index).copied() else { return };
        let thread = self.threads.entry(self.tid).or_default();
        if let Some(expected) = thread.address(&access, m.addr)
            && expected != m.addr
        {
            // Said once: from here on what was found counts.
            if let Some(base) = access.base {
                thread.gprs[usize::from(base)] = None;
            }
            self.find(insn.pc, What::Address { expected, found: m.addr });
        }
    }

    fn special(&mut self, special: &Special) {
        self.leave();
        match *special {
            Special::Thread { tid, fs_base, gs_base } => {
                self.tid = tid;
                let thread = self.thread();
                (thread.fs_base, thread.gs_base) = (Some(fs_base), Some(gs_base));
            }
            Special::Signal { pc, handler, .. } => {
                self.arrive(pc);
                self.thread().jump(pc, handler);
            }
            Special::SigReturn { pc, .. } => {
                let from = self.thread().last_pc;
                self.thread().jump(from, pc);
            }
            Special::Syscall { pc, .. } => {
                let thread = self.thread();
                let made = thread.in_syscall.take();
                for reg in [RAX, RCX, R11] {
                    thread.gprs[usize::from(reg)] = None;
                }
                // The first event of a thread may be the return of a call made before the window.
                if made != Some(pc) && thread.next != Next::Anywhere {
                    self.find(pc, What::NoSystemCall);
                }
            }
            Special::Step { pc } => {
                self.arrive(pc);
                let thread = self.thread();
                thread.next = Next::Anywhere;
                thread.last_pc = pc;
                thread.gprs = [None; 16];
            }
            // Until the next window opens, anything may happen.
            Special::End => self.threads.clear(),
            Special::Direction { .. } | Special::Pad => {}
        }
    }
}

impl Sink for Checker {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Insn(i) => self.insn(i, true),
            Event::RepPart(i) => self.insn(i, false),
            Event::Mem(m) => self.mem(m),
            Event::Special(s) => self.special(s),
        }
        self.events += 1;
    }
}

impl Thread {
    /// Execution goes on elsewhere with registers that are not known.
    fn jump(&mut self, from: u64, to: u64) {
        self.last_pc = from;
        self.next = Next::At(to);
        self.gprs = [None; 16];
        self.in_syscall = None;
    }

    /// Where the access should be, if that is known; otherwise learns from where it was.
    fn address(&mut self, a: &MemAccess, found: u64) -> Option<u64> {
        let segment = match a.seg {
            Segment::None => 0,
            Segment::Fs => self.fs_base?,
            Segment::Gs => self.gs_base?,
        };
        let constant = segment.wrapping_add(a.disp as u64);
        let index = match a.index {
            Some(r) => self.gprs[usize::from(r)]?.wrapping_mul(u64::from(a.scale)),
            None => 0,
        };
        let base = match a.base {
            Some(r) => match self.gprs[usize::from(r)] {
                Some(value) => value,
                None => {
                    if !a.addr32 {
                        self.gprs[usize::from(r)] = Some(found.wrapping_sub(constant).wrapping_sub(index));
                    }
                    return None;
                }
            },
            None => 0,
        };
        if a.addr32 {
            let sum = base.wrapping_add(index).wrapping_add(a.disp as u64);
            return Some(segment.wrapping_add(u64::from(sum as u32)));
        }
        Some(constant.wrapping_add(base).wrapping_add(index))
    }
}

fn is_plain(a: &MemAccess) -> bool {
    a.shape == Shape::Plain
}

fn forget_written(isa: &mut Isa, i: &Instruction, gprs: &mut [Option<u64>; 16]) {
    let written = isa.summary(i).gpr_write;
    for (reg, value) in gprs.iter_mut().enumerate() {
        if written & (1 << reg) != 0 {
            *value = None;
        }
    }
}

/// Where a completed instruction may lead.
fn after(i: &Instruction) -> Next {
    match i.flow_control() {
        // A call may be restarted, and then a signal interrupts before it, not after.
        FlowControl::Call if i.mnemonic() == Mnemonic::Syscall => Next::Either(i.next_ip(), i.ip()),
        FlowControl::Next => Next::At(i.next_ip()),
        FlowControl::ConditionalBranch => Next::Either(i.next_ip(), i.near_branch_target()),
        FlowControl::UnconditionalBranch | FlowControl::Call if i.near_branch_target() != 0 => {
            Next::At(i.near_branch_target())
        }
        _ => Next::Anywhere,
    }
}
