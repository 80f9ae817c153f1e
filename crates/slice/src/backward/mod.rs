//! Backward slices: everything that the criterion's value, or its being reached, depended on.
//!
//! One walk over the window from its end to its beginning. What is wanted (bytes of registers and memory) is looked for in
//! what each instruction defined; who defines it becomes a node and wants what it used. Who decided that a node ran is
//! wanted as well. All threads are in one stream, so that dependences between them need no special care.
//!
//! A register that a function saved at its entry and restored at its exit is not followed through the stack: the want is
//! carried by the slot, marked, to the save, and goes on as a want of the register before it. If something else wrote the
//! slot in between, that is what was wanted; the restore itself stays outside.
//!
//! Guarantee: on the same path and with the same store addresses, nothing outside the slice influences the criterion, as
//! far as the parts of instructions ([`crate::insn`]) say everything. May miss: what the headers of [`crate::insn`] and
//! `control` name.

mod calls;
mod given;
mod visit;

use std::collections::HashSet;
use std::rc::Rc;
use trace::event::{Event, Insn as InsnEvent, Mem};
use trace::format::Special;

use crate::code::Code;
use crate::facts::{Border, Facts, MayDefine};
use crate::graph::{Node, Slice, Why};
use crate::insn::{Control, MemShape};
use crate::registers::RegId;
use crate::wants::{FastMap, MemWants, RegWants, Want};
use crate::window::{EVENTS, NOTHING, Window};

/// What a slice starts from; what is wanted of registers and memory holds at the end of the window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Criterion {
    /// Registers of the thread that runs there.
    pub registers: Vec<(RegId, u64)>,
    /// Memory: address and length.
    pub memory: Vec<(u64, u64)>,
    /// That the end was reached.
    pub control: bool,
    /// Not the end, but this execution of an instruction, with all it uses: number of the block or event, and of the
    /// instruction in it.
    pub at: Option<(u32, u16)>,
    /// Executions of instructions in this list, from the last one of the first address on, with all they use.
    pub instructions: Vec<u64>,
    /// System calls whose outcome others used: what they passed on.
    pub sent: Vec<Sent>,
}

/// What others used of a system call that passed it on to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// The call, by the number of its record in the log.
    pub record: u64,
    /// Where it lay before the call: address and length.
    pub memory: Vec<(u64, u64)>,
    /// How far from the criterion its nearest user is.
    pub distance: u32,
}

/// How to walk.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub data_only: bool,
    /// Only values that are copied, no computation.
    pub copies_only: bool,
    /// Keep every edge, not only those of shortest paths.
    pub edges: bool,
    /// Dependences through these are not followed.
    pub prune_memory: Vec<(u64, u64)>,
    pub prune_registers: Vec<RegId>,
    /// Branches count that, taken the other way, might have made a used value elsewhere.
    pub relevant: bool,
    /// Stores through pointers in code that did not run count too.
    pub pointers: bool,
    /// The criterion is what is missing at the end: branches count that might have called somebody who writes output.
    pub missing_output: bool,
    /// Where stacks are: what pointers lead to lies outside.
    pub stacks: std::ops::Range<u64>,
    /// No more than so many nodes; 0 is no limit.
    pub most_nodes: usize,
    /// No farther from the criterion than this; 0 is no limit.
    pub depth: u32,
    /// Leave out one kind of dependence, to show that tests notice.
    pub omit: Option<Omit>,
}

/// A kind of dependence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Omit {
    Memory,
    Registers,
    Flags,
    Control,
    /// Of branches that went another way, which only relevant slices have.
    Potential,
}

/// A memory access with its address.
#[derive(Clone, Copy)]
struct Touched {
    addr: u64,
    len: u64,
}

/// How far the walk has come in the arrays.
struct Cursor<'a> {
    address: &'a mut usize,
    segment: &'a mut u32,
    call: &'a mut usize,
    turn: &'a mut usize,
}

/// One execution of an instruction.
struct At {
    execution: u32,
    insn: u16,
    segment: u32,
    border: Option<Border>,
    /// What it makes is taken as given.
    given: bool,
}

struct Walk<'w> {
    window: &'w Window,
    options: &'w Options,
    slice: Slice,
    regs: RegWants,
    others: FastMap<u32, RegWants>,
    /// Wants of threads in whose handlers the walk is.
    interrupted: FastMap<u32, Vec<RegWants>>,
    /// Wants of registers that the dynamic linker keeps for its caller, by thread.
    aside: FastMap<u32, Vec<(RegId, Want)>>,
    mem: MemWants,
    /// Wanted ends of segments.
    controls: FastMap<u32, u32>,
    /// Those of them that are wanted only for what they might have done.
    potential: HashSet<u32>,
    control_bits: Vec<u64>,
    /// Registers whose values wait in stack slots for their saves.
    tokens: Vec<(RegId, (u32, u16))>,
    thread: u32,
    facts: &'w mut dyn Facts,
    /// What branches might have done, by address and where they went.
    others_ways: FastMap<(u64, u64), Rc<MayDefine>>,
    /// The address at which the present thread goes on, and the others.
    next: u64,
    nexts: FastMap<u32, u64>,
    /// Buffers that are used again.
    by: Vec<(u32, Why)>,
    far: Vec<(i64, u64)>,
    touched: Vec<Touched>,
    taken: Vec<Want>,
    taken_mem: Vec<(Want, i64)>,
    /// The execution to start from, if it has not been reached.
    awaited: Option<(u32, u16)>,
    /// Instructions of the criterion are still looked for.
    forced: Option<HashSet<u64>>,
    forced_start: u64,
    /// What was sent, by record.
    sent: FastMap<u64, Sent>,
}

/// Slices a window.
pub fn backward(
    window: &Window,
    criterion: &Criterion,
    options: &Options,
    facts: &mut dyn Facts,
    interrupted: &mut dyn FnMut() -> bool,
) -> Slice {
    let mut walk = Walk::new(window, options, facts);
    walk.start(criterion);
    walk.run(interrupted);
    walk.finish()
}

impl<'w> Walk<'w> {
    fn new(window: &'w Window, options: &'w Options, facts: &'w mut dyn Facts) -> Walk<'w> {
        Walk {
            facts,
            others_ways: FastMap::default(),
            next: 0,
            nexts: FastMap::default(),
            window,
            options,
            slice: Slice::default(),
            regs: RegWants::default(),
            others: FastMap::default(),
            interrupted: FastMap::default(),
            aside: FastMap::default(),
            mem: MemWants::default(),
            controls: FastMap::default(),
            potential: HashSet::new(),
            control_bits: vec![0; window.parents.len() / 64 + 1],
            tokens: Vec::new(),
            thread: window.threads.1,
            by: Vec::new(),
            far: Vec::new(),
            touched: Vec::new(),
            taken: Vec::new(),
            taken_mem: Vec::new(),
            awaited: None,
            forced: None,
            forced_start: 0,
            sent: FastMap::default(),
        }
    }

    fn start(&mut self, criterion: &Criterion) {
        self.slice.nodes.push(Node {
            pc: 0,
            execution: self.window.blocks.len() as u32,
            insn: 0,
            segment: NOTHING,
            thread: self.thread,
            distance: 0,
            via: 0,
            why: Why::Criterion,
            call: None,
        });
        for (reg, mask) in &criterion.registers {
            self.want_reg(*reg, *mask, 0);
        }
        for (addr, len) in &criterion.memory {
            self.want_mem(*addr, *len, 0);
        }
        if criterion.control {
            self.want_control(self.window.last_parent, 0);
        }
        self.sent.extend(criterion.sent.iter().map(|s| (s.record, s.clone())));
        self.awaited = criterion.at;
        if let Some(first) = criterion.instructions.first() {
            self.forced = Some(criterion.instructions.iter().copied().collect());
            self.forced_start = *first;
        }
    }

    fn run(&mut self, interrupted: &mut dyn FnMut() -> bool) {
        let window = self.window;
        let mut address = window.addresses.len();
        let mut segment = window.parents.len() as u32;
        let (mut run, mut call) = (window.runs.len(), window.calls.len());
        let mut turn = window.ran_before.len();
        for (execution, &number) in window.blocks.iter().enumerate().rev() {
            if execution & 0xffff == 0 && (self.is_over() || interrupted()) {
                self.slice.cut = true;
                return;
            }
            if number == EVENTS {
                run -= 1;
                let start = if run == 0 { 0 } else { window.runs[run - 1] as usize };
                let events = &window.events[start..window.runs[run] as usize];
                self.events(
                    execution as u32,
                    events,
                    Cursor { address: &mut address, segment: &mut segment, call: &mut call, turn: &mut turn },
                );
            } else {
                let code = &window.codes[number as usize];
                address -= code.accesses();
                segment -= code.segments.len() as u32;
                if self.awaited.is_some_and(|(at, _)| at < execution as u32) {
                    self.next = code.pc;
                    continue;
                }
                if self.is_relevant() && matches!(code.control(), Control::Branch | Control::IndirectJump) {
                    self.might_have_gone(execution as u32, code, segment);
                }
                if self.concerns(code, address, segment) {
                    self.block(execution as u32, code, address, segment);
                }
                self.next = code.pc;
            }
        }
    }

    fn is_relevant(&self) -> bool {
        self.options.relevant && self.options.omit != Some(Omit::Potential)
    }

    fn is_over(&self) -> bool {
        self.options.most_nodes != 0 && self.slice.nodes.len() > self.options.most_nodes
    }

    /// Might the block define something that is wanted?
    #[inline(always)]
    fn concerns(&self, code: &Code, address: usize, segment: u32) -> bool {
        let last = segment + code.segments.len() as u32 - 1;
        if self.regs.any & code.defines != 0 || self.is_wanted(last) || self.forced.is_some() || self.awaited.is_some()
        {
            return true;
        }
        let store = |(n, size): &(u16, u32)| {
            let addr = self.window.addresses[address + usize::from(*n)];
            *size != 0 && self.mem.touches(addr, *size)
        };
        if code.saves_state && !self.aside.is_empty() {
            return true;
        }
        self.mem.groups != 0 && code.stores.iter().any(store)
    }

    #[inline(always)]
    fn is_wanted(&self, segment: u32) -> bool {
        self.control_bits[(segment / 64) as usize] >> (segment % 64) & 1 != 0
    }

    fn block(&mut self, execution: u32, code: &'w Code, address: usize, segment: u32) {
        let last = code.insns.len() - 1;
        for (n, insn) in code.insns.iter().enumerate().rev() {
            let in_segment = segment + code.segment_of(n as u16) as u32;
            let decider = if n == last { self.decided(in_segment) } else { None };
            let forced = self.is_forced(insn.pc) | self.is_awaited(execution, n as u16);
            let defines = self.regs.any & insn.defines != 0 || insn.stores || insn.state.is_some();
            if decider.is_none() && !defines && !forced {
                continue;
            }
            let addresses = &self.window.addresses[address..][code.accesses_of(n)];
            let mut touched = std::mem::take(&mut self.touched);
            touched.clear();
            let access = |(addr, m): (&u64, &MemShape)| Touched { addr: *addr, len: u64::from(m.size) };
            touched.extend(addresses.iter().zip(&insn.mem).map(access));
            let border = code.border(n as u16);
            let at = At { execution, insn: n as u16, segment: in_segment, border, given: code.given };
            self.visit(insn, &at, &touched, decider, forced);
            self.touched = touched;
        }
    }

    /// Is this instruction one of the criterion's? The first of them ends their list.
    fn is_forced(&mut self, pc: u64) -> bool {
        let Some(list) = &self.forced else { return false };
        let is = list.contains(&pc);
        if is && pc == self.forced_start {
            self.forced = None;
        }
        is
    }

    fn is_awaited(&mut self, execution: u32, insn: u16) -> bool {
        let is = self.awaited == Some((execution, insn));
        if is {
            self.awaited = None;
        }
        is
    }

    fn decided(&mut self, segment: u32) -> Option<u32> {
        if !self.is_wanted(segment) {
            return None;
        }
        self.control_bits[(segment / 64) as usize] &= !(1 << (segment % 64));
        self.controls.remove(&segment)
    }

    fn events(&mut self, execution: u32, events: &'w [Event], at: Cursor<'_>) {
        let mut accesses: Vec<Mem> = Vec::new();
        for (n, event) in events.iter().enumerate().rev() {
            match event {
                Event::Mem(m) => {
                    accesses.push(*m);
                    *at.address -= 1;
                }
                Event::Insn(i) | Event::RepPart(i) => {
                    *at.segment -= 1;
                    accesses.reverse();
                    let complete = matches!(event, Event::Insn(_));
                    self.event_insn(i, (execution, n as u16, *at.segment), &accesses, complete);
                    accesses.clear();
                }
                Event::Special(Special::Syscall { pc, .. }) => {
                    *at.segment -= 1;
                    *at.call -= 1;
                    self.syscall(*pc, (execution, n as u16, *at.segment), *at.call);
                }
                Event::Special(Special::Thread { .. }) => {
                    *at.turn -= 1;
                    self.turn_to(self.window.ran_before[*at.turn]);
                }
                Event::Special(Special::Signal { .. }) => self.signal(),
                Event::Special(Special::SigReturn { .. }) => {
                    let before = std::mem::take(&mut self.regs);
                    self.interrupted.entry(self.thread).or_default().push(before);
                }
                Event::Special(_) => {}
            }
        }
    }

    fn event_insn(
        &mut self,
        i: &InsnEvent,
        (execution, insn, segment): (u32, u16, u32),
        accesses: &[Mem],
        complete: bool,
    ) {
        let code = &self.window.codes[i.block as usize];
        let Some(of_code) = code.insns.get(usize::from(i.index)) else { return };
        let decider = if complete { self.decided(segment) } else { None };
        let touched: Vec<Touched> = accesses
            .iter()
            .map(|m| {
                let (addr, len) = m.range();
                Touched { addr, len }
            })
            .collect();
        let at = At { execution, insn, segment, border: code.border(i.index), given: code.given };
        let forced = self.is_forced(i.pc) | self.is_awaited(execution, insn);
        self.visit(of_code, &at, &touched, decider, forced);
        self.next = i.pc;
    }

    /// A branch went one way: had it gone the other, might something that is wanted have been made there?
    fn might_have_gone(&mut self, execution: u32, code: &Code, segment: u32) {
        let last = segment + code.segments.len() as u32 - 1;
        let Some(insn) = code.insns.last() else { return };
        if self.is_wanted(last) || self.next == 0 || code.given {
            return;
        }
        let key = (insn.pc, self.next);
        let may = match self.others_ways.get(&key) {
            Some(may) => may.clone(),
            None => {
                let may = Rc::new(self.facts.other_ways(key.0, key.1));
                self.others_ways.insert(key, may.clone());
                may
            }
        };
        if may.is_empty() {
            return;
        }
        if let Some(user) = self.who_wants(&may, execution) {
            self.control_bits[(last / 64) as usize] |= 1 << (last % 64);
            self.controls.insert(last, user);
            self.potential.insert(last);
        }
    }

    /// Somebody who wants what might have been made.
    fn who_wants(&self, may: &MayDefine, execution: u32) -> Option<u32> {
        let registers = may.registers & self.regs.any & !RegId::RSP.bit();
        if registers != 0 {
            return self.regs.who(RegId(registers.trailing_zeros() as u8));
        }
        let memory = may.memory.iter().find_map(|r| self.mem.who(r.start, r.end - r.start));
        let frame = || {
            let number = self.window.frame_of.get(execution as usize).copied().filter(|n| *n != 0)?;
            let slot = self.window.slots[number as usize - 1];
            may.frame.iter().find_map(|r| self.mem.who(slot.wrapping_add_signed(r.start), (r.end - r.start) as u64))
        };
        let anywhere = || {
            let counts = may.pointers && self.options.pointers;
            counts.then(|| self.mem.who_outside(self.options.stacks.clone())).flatten()
        };
        let output = || (may.outside && self.options.missing_output).then_some(0);
        memory.or_else(frame).or_else(anywhere).or_else(output)
    }

    fn turn_to(&mut self, thread: u32) {
        if thread != self.thread {
            self.nexts.insert(self.thread, self.next);
            self.next = self.nexts.get(&thread).copied().unwrap_or(0);
            let mut theirs = self.others.remove(&thread).unwrap_or_default();
            std::mem::swap(&mut theirs, &mut self.regs);
            self.others.insert(self.thread, theirs);
            self.thread = thread;
        }
    }

    /// A handler began here: what it wanted of registers came from the signal; what the interrupted code wanted goes on.
    fn signal(&mut self) {
        if let Some(before) = self.interrupted.get_mut(&self.thread).and_then(Vec::pop) {
            self.regs = before;
        }
    }
}

#[cfg(test)]
mod tests;
