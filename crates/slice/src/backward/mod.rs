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
mod count;
mod given;
mod quick;
mod visit;

use std::collections::HashSet;
use std::rc::Rc;
use trace::event::{Event, Insn as InsnEvent, Mem};
use trace::format::Special;

use crate::code::{Code, Outline, Store};
use crate::decisions::{Decision, Decisions};
use crate::facts::{Border, Facts, MayDefine};
use crate::graph::{Input, Node, Site, Slice, Why};
use crate::insn::{Control, MemShape};
use crate::registers::RegId;
use crate::seam::Waiting;
use crate::stretches::{Begin, Look, STRETCH, Written};
use crate::wants::{FastMap, MemWants, RegWants, Want, Who};
use crate::window::{EVENTS, NOTHING, Window};

pub use count::SoFar;
use visit::By;

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
    /// Keep no nodes, edges and paths, only what the slice comes to at each instruction of the code. This takes memory for
    /// what is wanted at one time instead of for what is in the slice.
    pub only_sites: bool,
    /// Note when so many instructions of the code have been found; 0 is never.
    pub page: usize,
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

/// Where more groups of memory are wanted than this, stretches are not asked whether they wrote them.
const MOST_LOOKS: usize = 128;

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
#[derive(Clone, Copy)]
struct At {
    execution: u32,
    insn: u16,
    segment: u32,
    /// Where it is counted: see [`Found`].
    site: u32,
    border: Option<Border>,
    /// What it makes is taken as given.
    given: bool,
}

/// What a walk knows beyond the window that it is in.
#[derive(Default)]
pub(crate) struct State {
    slice: Slice,
    regs: RegWants,
    others: FastMap<u32, RegWants>,
    /// Wants of threads in whose handlers the walk is.
    interrupted: FastMap<u32, Vec<RegWants>>,
    /// Wants of registers that the dynamic linker keeps for its caller, by thread.
    aside: FastMap<u32, Vec<(RegId, u64, Who)>>,
    mem: MemWants,
    decisions: Decisions,
    /// Decisions before the windows seen.
    before: Waiting<Decision>,
    tokens: Tokens,
    /// The address at which the present thread goes on, and the others.
    next: u64,
    nexts: FastMap<u32, u64>,
    thread: u32,
    /// Instructions of the criterion are still looked for.
    forced: Option<HashSet<u64>>,
    forced_start: u64,
    /// What was sent and has not been met, by record.
    sent: FastMap<u64, Sent>,
    started: bool,
    /// What was found in the windows behind, by address.
    sites: FastMap<u64, Site>,
    /// Instructions of the code that were found, each window's for itself.
    distinct: usize,
}

impl State {
    /// Nothing is wanted any more.
    fn is_satisfied(&self) -> bool {
        let waiting = |r: &RegWants| r.any != 0;
        self.regs.any == 0
            && self.mem.groups == 0
            && self.decisions.is_empty()
            && self.before.is_empty()
            && self.forced.is_none()
            && self.sent.is_empty()
            && !self.others.values().chain(self.interrupted.values().flatten()).any(waiting)
            && self.aside.is_empty()
    }
}

/// Registers whose values wait in stack slots for their saves.
#[derive(Default)]
struct Tokens {
    list: Vec<(RegId, (u32, u16))>,
    /// It is not kept which restores they come from.
    forgetful: bool,
}

impl Tokens {
    fn token(&mut self, reg: RegId, restore: (u32, u16)) -> u32 {
        if self.forgetful {
            return u32::from(reg.0) + 1;
        }
        self.list.push((reg, restore));
        self.list.len() as u32
    }

    fn register(&self, token: u32) -> (RegId, Option<(u32, u16)>) {
        if self.forgetful {
            return (RegId(token as u8 - 1), None);
        }
        let (reg, restore) = self.list[token as usize - 1];
        (reg, Some(restore))
    }
}

/// What was found of one instruction of the code.
#[derive(Clone, Copy)]
struct Found {
    instances: u32,
    distance: u32,
}

struct Walk<'w> {
    window: &'w Window,
    options: &'w Options,
    state: &'w mut State,
    facts: &'w mut dyn Facts,
    /// By number of the instruction among those of the window's codes.
    found: Vec<Found>,
    /// What branches might have done, by address and where they went.
    others_ways: FastMap<(u64, u64), Rc<MayDefine>>,
    /// The segment whose end was wanted last.
    pending: Option<Decision>,
    /// Buffers that are used again.
    by: By,
    far: Vec<(i64, u64)>,
    touched: Vec<Touched>,
    taken: Vec<(u64, Who)>,
    taken_mem: Vec<(Want, i64)>,
    delivered: Vec<(u64, u64)>,
    /// The execution to start from, if it has not been reached.
    awaited: Option<(u32, u16)>,
    /// Simple instructions may be passed quickly.
    is_quick: bool,
    /// Where filters are looked at for the memory that is wanted, unless that has changed.
    looks: Option<Vec<Look>>,
}

/// Slices a window.
pub fn backward(
    window: &Window,
    criterion: &Criterion,
    options: &Options,
    facts: &mut dyn Facts,
    interrupted: &mut dyn FnMut() -> bool,
) -> Slice {
    let mut backward = Backward::new(criterion, options);
    backward.state.tokens.forgetful = options.only_sites;
    backward.walk(window, facts, interrupted);
    backward.finish()
}

/// A slice of a run that is in several windows, which it is shown from the last one back.
pub struct Backward<'o> {
    criterion: &'o Criterion,
    options: &'o Options,
    state: State,
}

impl<'o> Backward<'o> {
    /// Nodes name executions of the window in which they were found, and it is not kept which saves were passed over:
    /// [`Slice::passed`] stays empty.
    pub fn new(criterion: &'o Criterion, options: &'o Options) -> Backward<'o> {
        let mut state = State::default();
        state.tokens.forgetful = true;
        Backward { criterion, options, state }
    }

    /// The nodes that were found so far, those of each window behind those of later ones.
    pub fn nodes(&self) -> &[Node] {
        &self.state.slice.nodes
    }

    /// What the slice comes to at each instruction of the code, as far as windows were seen.
    pub fn sites(&self) -> Vec<Site> {
        self.state.sites.values().copied().collect()
    }

    /// Executed instructions that were found so far.
    pub fn size(&self) -> u64 {
        self.state.slice.size
    }

    /// Was it cut, by its limits or by the user?
    pub fn is_cut(&self) -> bool {
        self.state.slice.cut
    }

    /// Goes through the next window back.
    pub fn walk(&mut self, window: &Window, facts: &mut dyn Facts, interrupted: &mut dyn FnMut() -> bool) {
        self.walk_watched(window, facts, &mut |_| interrupted());
    }

    /// Goes through the next window back; now and then `watch` sees what was found so far, and says whether to stop.
    pub fn walk_watched(&mut self, window: &Window, facts: &mut dyn Facts, watch: &mut dyn FnMut(&SoFar<'_>) -> bool) {
        let mut walk = Walk::new(window, self.options, facts, &mut self.state);
        if !walk.state.started {
            walk.state.started = true;
            walk.start(self.criterion);
        } else {
            walk.enter();
        }
        walk.run(watch);
        walk.leave();
    }

    /// Nothing before the windows seen can be in the slice, or the slice was cut.
    pub fn is_over(&self) -> bool {
        // What is missing at the end any branch may have decided.
        let looks_on = self.options.missing_output || !self.state.is_satisfied();
        self.is_cut() || self.state.started && !looks_on
    }

    /// What was found.
    pub fn finish(self) -> Slice {
        let State { mut slice, regs, others, mem, thread, sites, .. } = self.state;
        for (thread, regs) in std::iter::once((thread, regs)).chain(others) {
            slice.inputs.extend(regs.rest().map(|(reg, _, who)| Input::Reg { thread, reg, node: who.node }));
        }
        let memory = mem.rest().into_iter();
        let input = |(addr, w): (u64, Want)| {
            let (mask, Who { node, distance }) = (w.mask, w.who);
            Input::Mem { addr, mask, node, distance }
        };
        slice.inputs.extend(memory.map(input));
        slice.sites = sites.into_values().collect();
        slice.sites.sort_unstable_by_key(|s| s.pc);
        slice
    }
}

impl<'w> Walk<'w> {
    fn new(window: &'w Window, options: &'w Options, facts: &'w mut dyn Facts, state: &'w mut State) -> Walk<'w> {
        let mut walk = Walk {
            window,
            options,
            state,
            facts,
            found: vec![Found { instances: 0, distance: u32::MAX }; window.sites()],
            others_ways: FastMap::default(),
            pending: None,
            by: By { keeps_all: options.edges, ..By::default() },
            far: Vec::new(),
            touched: Vec::new(),
            taken: Vec::new(),
            taken_mem: Vec::new(),
            delivered: Vec::new(),
            awaited: None,
            is_quick: false,
            looks: None,
        };
        walk.is_quick = walk.is_quick();
        walk
    }

    fn start(&mut self, criterion: &Criterion) {
        let thread = self.window.threads.1;
        self.state.thread = thread;
        self.state.slice.nodes.push(Node {
            pc: 0,
            execution: self.window.blocks.len() as u32,
            insn: 0,
            segment: NOTHING,
            thread,
            distance: 0,
            via: 0,
            why: Why::Criterion,
            call: None,
        });
        for (reg, mask) in &criterion.registers {
            self.want_reg(*reg, *mask, Who::default());
        }
        for (addr, len) in &criterion.memory {
            self.want_mem(*addr, *len, Who::default());
        }
        if criterion.control
            && !(self.options.data_only || self.options.copies_only || self.options.omit == Some(Omit::Control))
        {
            self.want_control(self.window.last_parent, Some(Who::default()), u32::MAX);
            self.want_pending();
        }
        self.state.sent.extend(criterion.sent.iter().map(|s| (s.record, s.clone())));
        self.awaited = criterion.at;
        if let Some(first) = criterion.instructions.first() {
            self.state.forced = Some(criterion.instructions.iter().copied().collect());
            self.state.forced_start = *first;
        }
    }

    /// Comes from the window behind this one.
    fn enter(&mut self) {
        self.turn_to(self.window.threads.1);
        for (segment, decision) in self.state.before.enter(self.window, |old, new| old.merge(&new)) {
            self.state.decisions.want(Decision { segment, ..decision });
        }
    }

    fn run(&mut self, watch: &mut dyn FnMut(&SoFar<'_>) -> bool) {
        let window = self.window;
        let mut address = window.addresses.len();
        let mut segment = window.parents.len() as u32;
        let (mut run, mut call) = (window.runs.len(), window.calls.len());
        let mut turn = window.ran_before.len();
        let mut execution = window.blocks.len();
        while execution > 0 {
            if execution & 0xffff == 0 {
                if self.is_over() || watch(&self.so_far()) {
                    self.state.slice.cut = true;
                    return;
                }
                if self.awaited.is_none() && self.state.is_satisfied() && !self.options.relevant {
                    return;
                }
            }
            if execution.is_multiple_of(STRETCH) {
                if let Some(begin) = self.passes(execution / STRETCH - 1) {
                    (address, segment) = (begin.address, begin.segment);
                    execution -= STRETCH;
                    continue;
                }
                self.looks = None;
            }
            execution -= 1;
            let number = window.blocks.at(execution);
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
                let outline = &window.outlines[number as usize];
                address -= outline.accesses as usize;
                segment -= u32::from(outline.segments);
                let ahead = self.awaited.is_some_and(|(at, _)| at < execution as u32);
                if self.options.relevant {
                    let code = &window.codes[number as usize];
                    let decides = matches!(code.control(), Control::Branch | Control::IndirectJump);
                    if !ahead && decides && self.options.omit != Some(Omit::Potential) {
                        self.might_have_gone(execution as u32, code, segment);
                    }
                    self.state.next = code.pc;
                }
                if !ahead && self.concerns(outline, number, address, segment) {
                    self.block(execution as u32, &window.codes[number as usize], address, segment);
                }
            }
        }
    }

    /// Where a stretch begins, if nothing in it can concern the slice.
    fn passes(&mut self, stretch: usize) -> Option<Begin> {
        let (window, state) = (self.window, &*self.state);
        let begin = window.stretches.plain(stretch)?;
        let looking = state.forced.is_some() || self.awaited.is_some() || self.options.relevant;
        let decided = state.decisions.last().is_some_and(|segment| segment >= begin.segment);
        if looking || decided || state.regs.any != 0 || !state.aside.is_empty() || state.mem.groups > MOST_LOOKS {
            return None;
        }
        let looks = self.looks.get_or_insert_with(|| state.mem.wanted_groups().map(Look::at).collect());
        if looks.is_empty() {
            return Some(begin);
        }
        let first = stretch * STRETCH;
        let written = window.stretches.written(stretch, || {
            let blocks = (first..first + STRETCH).map(|execution| window.blocks.at(execution));
            Written::by(blocks, (&window.outlines, &window.codes), &window.addresses, begin.address)
        })?;
        (!looks.iter().any(|look| written.may_have(*look))).then_some(begin)
    }

    /// What was found in this window goes to the rest.
    fn leave(self) {
        for Site { pc, instances, distance } in count::sites(self.window, &self.found) {
            self.state.add_site(pc, instances, distance);
        }
        self.state.before.leave(self.window);
    }

    fn is_over(&self) -> bool {
        self.options.most_nodes != 0 && self.state.slice.nodes.len() > self.options.most_nodes
    }

    /// Might the block define something that is wanted?
    #[inline(always)]
    fn concerns(&self, block: &Outline, number: u32, address: usize, segment: u32) -> bool {
        let last = segment + u32::from(block.segments) - 1;
        if self.state.regs.any & block.defines != 0
            || self.state.decisions.is_wanted(last)
            || self.state.forced.is_some()
            || self.awaited.is_some()
        {
            return true;
        }
        if block.saves_state && !self.state.aside.is_empty() {
            return true;
        }
        let store = |(n, size): &(u16, u32)| {
            let addr = self.window.addresses.at(address + usize::from(*n));
            *size != 0 && self.state.mem.touches(addr, *size)
        };
        match block.store {
            _ if self.state.mem.groups == 0 => false,
            Store::None => false,
            Store::One(n, size) => store(&(n, size)),
            Store::Other => self.window.codes[number as usize].stores.iter().any(store),
        }
    }

    fn block(&mut self, execution: u32, code: &'w Code, address: usize, segment: u32) {
        let last = code.insns.len() - 1;
        let watching = self.state.forced.is_some() || self.awaited.is_some();
        for (n, step) in code.steps.iter().enumerate().rev() {
            let in_segment = segment + u32::from(step.segment);
            let decision = if n == last { self.decided(in_segment) } else { None };
            let defines = self.state.regs.any & step.defines != 0
                || match step.store {
                    Store::None => false,
                    Store::One(access, size) => {
                        let addr = self.window.addresses.at(address + usize::from(access));
                        self.state.mem.touches(addr, size)
                    }
                    Store::Other => true,
                };
            if decision.is_none() && !defines && !watching {
                continue;
            }
            let site = code.first_site + n as u32;
            let at =
                At { execution, insn: n as u16, segment: in_segment, site, border: step.border, given: code.given };
            if let Some(quick) = step.quick.as_ref().filter(|_| self.is_quick && !watching) {
                self.quick(quick, &at, address, decision);
                continue;
            }
            let insn = &code.insns[n];
            let forced = watching && (self.is_forced(insn.pc) | self.is_awaited(execution, n as u16));
            let addresses = code.accesses_of(n).map(|n| self.window.addresses.at(address + n));
            let mut touched = std::mem::take(&mut self.touched);
            touched.clear();
            let access = |(addr, m): (u64, &MemShape)| Touched { addr, len: u64::from(m.size) };
            touched.extend(addresses.zip(&insn.mem).map(access));
            self.visit(insn, &at, &touched, decision, forced);
            self.touched = touched;
        }
        self.want_pending();
    }

    /// Is this instruction one of the criterion's? The first of them ends their list.
    fn is_forced(&mut self, pc: u64) -> bool {
        let Some(list) = &self.state.forced else { return false };
        let is = list.contains(&pc);
        if is && pc == self.state.forced_start {
            self.state.forced = None;
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

    #[inline(always)]
    fn decided(&mut self, segment: u32) -> Option<Decision> {
        self.state.decisions.take(segment)
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
                    let before = std::mem::take(&mut self.state.regs);
                    self.state.interrupted.entry(self.state.thread).or_default().push(before);
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
        let decision = if complete { self.decided(segment) } else { None };
        let touched: Vec<Touched> = accesses
            .iter()
            .map(|m| {
                let (addr, len) = m.range();
                Touched { addr, len }
            })
            .collect();
        let site = code.first_site + u32::from(i.index);
        let at = At { execution, insn, segment, site, border: code.border(i.index), given: code.given };
        let forced = self.is_forced(i.pc) | self.is_awaited(execution, insn);
        self.visit(of_code, &at, &touched, decision, forced);
        self.want_pending();
        self.state.next = i.pc;
    }

    /// A branch went one way: had it gone the other, might something that is wanted have been made there?
    fn might_have_gone(&mut self, execution: u32, code: &Code, segment: u32) {
        let last = segment + code.segments.len() as u32 - 1;
        let Some(insn) = code.insns.last() else { return };
        if self.state.decisions.is_wanted(last) || self.state.next == 0 || code.given {
            return;
        }
        let key = (insn.pc, self.state.next);
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
            let decision = Decision { segment: last, who: Some(user), shown: u32::MAX, potential: true };
            self.state.decisions.want(decision);
        }
    }

    /// Somebody who wants what might have been made.
    fn who_wants(&self, may: &MayDefine, execution: u32) -> Option<Who> {
        let registers = may.registers & self.state.regs.any & !RegId::RSP.bit();
        if registers != 0 {
            return self.state.regs.who(RegId(registers.trailing_zeros() as u8));
        }
        let memory = may.memory.iter().find_map(|r| self.state.mem.who(r.start, r.end - r.start));
        let frame = || {
            let number = self.window.frame_of.get(execution as usize).copied().filter(|n| *n != 0)?;
            let slot = self.window.slots[number as usize - 1];
            may.frame.iter().find_map(|r| {
                // Somewhere in the frame, all offsets at once, has no length: that is as vague as a pointer.
                let len = r.end.checked_sub(r.start)? as u64;
                self.state.mem.who(slot.wrapping_add_signed(r.start), len)
            })
        };
        let anywhere = || {
            let counts = may.pointers && self.options.pointers;
            counts.then(|| self.state.mem.who_outside(self.options.stacks.clone())).flatten()
        };
        let output = || (may.outside && self.options.missing_output).then_some(Who::default());
        memory.or_else(frame).or_else(anywhere).or_else(output)
    }

    fn turn_to(&mut self, thread: u32) {
        let state = &mut self.state;
        if thread != state.thread {
            state.nexts.insert(state.thread, state.next);
            state.next = state.nexts.get(&thread).copied().unwrap_or(0);
            let mut theirs = state.others.remove(&thread).unwrap_or_default();
            std::mem::swap(&mut theirs, &mut state.regs);
            state.others.insert(state.thread, theirs);
            state.thread = thread;
        }
    }

    /// A handler began here: what it wanted of registers came from the signal; what the interrupted code wanted goes on.
    fn signal(&mut self) {
        if let Some(before) = self.state.interrupted.get_mut(&self.state.thread).and_then(Vec::pop) {
            self.state.regs = before;
        }
    }
}

#[cfg(test)]
mod tests;
