//! Forward slices: everything that a value went into, or that it decided.
//!
//! One walk over the window from its beginning. A byte that a node made carries that node's number; whoever uses it becomes
//! a node, and so does whatever runs because a branch of the slice went as it did. Of several ways that lead to a node the
//! shortest is kept.
//!
//! May miss: what [`mod@crate::backward`] misses.

use std::collections::HashSet;
use trace::event::Event;
use trace::format::Special;

use crate::backward::Criterion;
use crate::code::Code;
use crate::graph::{Node, Slice, Why};
use crate::insn::{Control, Insn, Place, Role, Use};
use crate::registers::{REGISTERS, RegId};
use crate::syscalls;
use crate::wants::FastMap;
use crate::window::{EVENTS, NOTHING, Window};

/// Who made the bytes of one thread's registers: node numbers, 0 for nobody in the slice.
struct Made {
    /// By register: mask of bytes and node.
    lists: Vec<Vec<(u64, u32)>>,
}

impl Default for Made {
    fn default() -> Made {
        Made { lists: vec![Vec::new(); REGISTERS] }
    }
}

impl Made {
    fn set(&mut self, reg: RegId, mask: u64, node: Option<u32>, kills: bool) {
        let list = &mut self.lists[usize::from(reg.0)];
        if kills || node.is_some() {
            list.retain_mut(|(m, _)| {
                *m &= !mask;
                *m != 0
            });
        }
        if let Some(node) = node.filter(|_| mask != 0) {
            list.push((mask, node));
        }
    }

    /// The nearest of those that made these bytes.
    fn get(&self, reg: RegId, mask: u64, nodes: &[Node]) -> Option<u32> {
        let makers = self.lists[usize::from(reg.0)].iter().filter(|(m, _)| m & mask != 0).map(|(_, n)| *n);
        makers.min_by_key(|n| nodes[*n as usize - 1].distance)
    }
}

const PAGE: u64 = 12;
/// Of a longer access only the beginning is looked at.
const LONGEST: u64 = 1 << 20;

/// Who made the bytes of memory.
#[derive(Default)]
struct MadeMemory {
    pages: FastMap<u64, Box<[u32; 1 << PAGE]>>,
}

impl MadeMemory {
    fn set(&mut self, addr: u64, len: u64, node: Option<u32>) {
        let end = addr.saturating_add(len);
        let mut at = addr;
        while at < end {
            let page = at >> PAGE;
            let stop = end.min((page + 1) << PAGE);
            let (from, to) = ((at & ((1 << PAGE) - 1)) as usize, ((stop - 1) & ((1 << PAGE) - 1)) as usize);
            match node {
                Some(node) => {
                    let bytes = self.pages.entry(page).or_insert_with(|| Box::new([0; 1 << PAGE]));
                    bytes[from..=to].fill(node);
                }
                None => {
                    if let Some(bytes) = self.pages.get_mut(&page) {
                        bytes[from..=to].fill(0);
                    }
                }
            }
            at = stop;
        }
    }

    /// The nearest of those that made these bytes, and a byte that it made.
    fn get(&self, addr: u64, len: u64, nodes: &[Node]) -> Option<(u64, u32)> {
        let end = addr.saturating_add(len.min(LONGEST));
        let mut found: Option<(u32, u64, u32)> = None;
        let mut at = addr;
        while at < end {
            let (page, first) = (at >> PAGE, at);
            at = end.min((page + 1) << PAGE);
            let Some(bytes) = self.pages.get(&page) else { continue };
            for byte in first..at {
                let node = bytes[(byte & ((1 << PAGE) - 1)) as usize];
                // Bytes beside each other mostly have one maker.
                if node != 0 && found.is_none_or(|(_, _, known)| known != node) {
                    let distance = nodes[node as usize - 1].distance;
                    if found.is_none_or(|(nearest, ..)| distance < nearest) {
                        found = Some((distance, byte, node));
                    }
                }
            }
        }
        found.map(|(_, byte, node)| (byte, node))
    }
}

struct Walk<'w> {
    window: &'w Window,
    slice: Slice,
    regs: Made,
    others: FastMap<u32, Made>,
    mem: MadeMemory,
    thread: u32,
    /// Nodes that decided: by the segment they end.
    decided: FastMap<u32, u32>,
    data_only: bool,
    /// Instructions of the criterion: until another one runs, or whenever they are executed.
    seeds: HashSet<u64>,
    seeding: bool,
    everywhere: bool,
    /// The one execution to start from.
    start: Option<(u32, u16)>,
    most_nodes: usize,
    /// Buffers that are used again.
    touched: Vec<(u64, u64)>,
    sources: Vec<Option<Because>>,
}

/// The node that is used, and what of it.
type Because = (u32, Why);

/// One execution.
#[derive(Clone, Copy)]
struct At {
    execution: u32,
    insn: u16,
    segment: u32,
}

/// How to walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Forward {
    pub data_only: bool,
    /// All executions of the criterion's instructions count, not only those at the beginning.
    pub everywhere: bool,
    /// No more than so many nodes; 0 is no limit.
    pub most_nodes: usize,
}

/// Slices a window forward from what holds at its beginning, or from one execution in it.
pub fn forward(window: &Window, criterion: &Criterion, how: Forward, interrupted: &mut dyn FnMut() -> bool) -> Slice {
    let mut walk = Walk {
        window,
        slice: Slice::default(),
        regs: Made::default(),
        others: FastMap::default(),
        mem: MadeMemory::default(),
        thread: window.threads.0,
        decided: FastMap::default(),
        data_only: how.data_only,
        seeds: criterion.instructions.iter().copied().collect(),
        seeding: !criterion.instructions.is_empty(),
        everywhere: how.everywhere,
        start: criterion.at,
        most_nodes: how.most_nodes,
        touched: Vec::new(),
        sources: Vec::new(),
    };
    walk.slice.nodes.push(Node {
        pc: 0,
        execution: 0,
        insn: 0,
        segment: NOTHING,
        thread: window.threads.0,
        distance: 0,
        via: 0,
        why: Why::Criterion,
        call: None,
    });
    // Node numbers in the maps are one higher, since the criterion has number 0.
    for (reg, mask) in &criterion.registers {
        walk.regs.set(*reg, *mask, Some(1), true);
    }
    for (addr, len) in &criterion.memory {
        walk.mem.set(*addr, *len, Some(1));
    }
    walk.run(interrupted);
    walk.slice
}

impl Walk<'_> {
    fn run(&mut self, interrupted: &mut dyn FnMut() -> bool) {
        let window = self.window;
        let (mut address, mut segment, mut run, mut start, mut call) = (0, 0, 0, 0, 0);
        // Where one execution is all there is to start from, nothing before it can be in the slice.
        let first = self.start.filter(|_| self.is_bare()).map_or(0, |(execution, _)| execution as usize);
        let is_before = |execution: usize| execution < first;
        for (execution, number) in window.blocks.iter().enumerate() {
            if execution & 0xffff == 0 && (self.is_full() || interrupted()) {
                self.slice.cut = true;
                return;
            }
            if number != EVENTS {
                let code = &window.codes[number as usize];
                if !is_before(execution) {
                    self.block(execution as u32, code, address, segment);
                }
                address += code.accesses();
                segment += code.segments.len() as u32;
                continue;
            }
            let end = window.runs[run] as usize;
            run += 1;
            for n in start..end {
                let at = At { execution: execution as u32, insn: (n - start) as u16, segment };
                match &window.events[n] {
                    Event::Insn(i) | Event::RepPart(i) => {
                        let mems = window.events[n + 1..end].iter().map_while(|e| match e {
                            Event::Mem(m) => Some(m.range()),
                            _ => None,
                        });
                        let touched: Vec<(u64, u64)> = mems.collect();
                        if let Some(insn) = window.codes[i.block as usize].insns.get(usize::from(i.index)) {
                            self.visit(insn, at, &touched);
                        }
                        segment += 1;
                    }
                    Event::Mem(_) => address += 1,
                    Event::Special(Special::Syscall { pc, .. }) => {
                        self.syscall(*pc, at, call);
                        call += 1;
                        segment += 1;
                    }
                    Event::Special(Special::Thread { tid, .. }) => self.turn_to(*tid),
                    Event::Special(_) => {}
                }
            }
            start = end;
        }
    }

    fn turn_to(&mut self, thread: u32) {
        if thread != self.thread {
            let mut theirs = self.others.remove(&thread).unwrap_or_default();
            std::mem::swap(&mut theirs, &mut self.regs);
            self.others.insert(self.thread, theirs);
            self.thread = thread;
        }
    }

    fn block(&mut self, execution: u32, code: &Code, address: usize, segment: u32) {
        let mut touched = std::mem::take(&mut self.touched);
        for (n, insn) in code.insns.iter().enumerate() {
            let addresses = code.accesses_of(n).map(|n| self.window.addresses.at(address + n));
            touched.clear();
            touched.extend(addresses.zip(&insn.mem).map(|(a, m)| (a, u64::from(m.size))));
            let segment = segment + code.segment_of(n as u16) as u32;
            self.visit(insn, At { execution, insn: n as u16, segment }, &touched);
        }
        self.touched = touched;
    }

    /// Nothing was asked for but one execution.
    fn is_bare(&self) -> bool {
        self.mem.pages.is_empty() && self.regs.lists.iter().all(Vec::is_empty) && !self.seeding
    }

    fn is_full(&self) -> bool {
        self.most_nodes != 0 && self.slice.nodes.len() > self.most_nodes
    }

    /// Is this instruction one of the criterion's?
    fn is_seed(&mut self, pc: u64, at: At) -> bool {
        if self.start == Some((at.execution, at.insn)) {
            return true;
        }
        if !self.seeding {
            return false;
        }
        let is = self.seeds.contains(&pc);
        self.seeding = is || self.everywhere;
        is
    }

    fn visit(&mut self, insn: &Insn, at: At, touched: &[(u64, u64)]) {
        let seed = self.is_seed(insn.pc, at).then_some((0, Why::Criterion));
        let parent = self.window.parents.at(at.segment);
        let by_control = match self.data_only {
            true => None,
            false => self.decided.get(&parent).map(|n| (*n, Why::Control)),
        };
        let anyway = seed.or(by_control);
        let mut sources = std::mem::take(&mut self.sources);
        sources.clear();
        sources.extend(insn.parts.iter().map(|part| self.nearest(&part.uses, touched)));
        let tested = self.nearest(&insn.decides, touched);
        // What a decided call does is decided too.
        let passes_on = !insn.decides.is_empty() || insn.control == Control::Call;
        let decides = tested.is_some() || anyway.is_some() && passes_on;
        let makes = sources.iter().any(Option::is_some) || anyway.is_some() && !sources.is_empty();
        let all = sources.iter().flatten().copied().chain(tested).chain(anyway);
        let because = all.min_by_key(|(n, _)| self.slice.nodes[*n as usize].distance);
        let node = because.filter(|_| makes || decides).map(|because| self.join(insn.pc, at, because, None));
        if let Some(node) = node.filter(|_| decides) {
            self.decided.insert(at.segment, node);
        }
        for (part, source) in insn.parts.iter().zip(&sources) {
            let made = node.filter(|_| source.or(anyway).is_some()).map(|n| n + 1);
            for def in &part.defs {
                match def.place {
                    Place::Reg(r) if r == RegId::RSP => {}
                    Place::Reg(r) => self.regs.set(r, def.mask, made, def.kills),
                    Place::Mem(m) => {
                        let range = touched.get(usize::from(m)).filter(|(_, len)| *len != 0);
                        if let Some((addr, len)) = range.filter(|_| def.kills || made.is_some()) {
                            self.mem.set(*addr, *len, made);
                        }
                    }
                }
            }
        }
        self.sources = sources;
    }

    /// The nearest node of the slice that made something of this.
    fn nearest(&self, uses: &[Use], touched: &[(u64, u64)]) -> Option<Because> {
        let found = uses.iter().filter_map(|u| self.of_use(u, touched));
        found.min_by_key(|(n, _)| self.slice.nodes[*n as usize].distance)
    }

    fn of_use(&self, u: &Use, touched: &[(u64, u64)]) -> Option<Because> {
        match u.place {
            Place::Reg(r) if r == RegId::RSP => None,
            Place::Reg(r) => self.regs.get(r, u.mask, &self.slice.nodes).map(|n| (n - 1, Why::Reg(r))),
            Place::Mem(m) => {
                let (addr, len) = *touched.get(usize::from(m)).filter(|_| u.role == Role::Value)?;
                self.mem.get(addr, len, &self.slice.nodes).map(|(at, n)| (n - 1, Why::Mem(at)))
            }
        }
    }

    fn join(&mut self, pc: u64, at: At, (via, why): Because, call: Option<u32>) -> u32 {
        let distance = self.slice.nodes[via as usize].distance + 1;
        let node = self.slice.nodes.len() as u32;
        let (execution, insn, segment, thread) = (at.execution, at.insn, at.segment, self.thread);
        self.slice.nodes.push(Node { pc, execution, insn, segment, thread, distance, via, why, call });
        self.slice.size += 1;
        node
    }

    fn syscall(&mut self, pc: u64, at: At, call: usize) {
        let effects = self.window.calls.get(call).and_then(|c| c.as_ref());
        let nr = effects.map_or(u64::MAX, |e| e.nr);
        let arguments = syscalls::argument_registers(nr).iter();
        let nodes = &self.slice.nodes;
        let from_registers = arguments.clone().find_map(|r| Some((self.regs.get(*r, 0xff, nodes)? - 1, Why::Reg(*r))));
        let read = effects.and_then(syscalls::reads);
        let from_memory = read.and_then(|(a, len)| self.mem.get(a, len, nodes)).map(|(at, n)| (n - 1, Why::Mem(at)));
        let parent = self.window.parents.at(at.segment);
        let decided = self.decided.get(&parent).filter(|_| !self.data_only).map(|n| (*n, Why::Control));
        let node = from_memory.or(from_registers).or(decided).map(|b| self.join(pc, at, b, Some(call as u32)));
        // Only arguments can change what comes back.
        let made = node.filter(|_| from_registers.is_some() || decided.is_some()).map(|n| n + 1);
        for reg in [RegId::RAX, RegId::RCX, RegId::R11] {
            self.regs.set(reg, 0xff, made.filter(|_| reg == RegId::RAX), true);
        }
        for (addr, len) in effects.iter().flat_map(|e| e.writes.iter()) {
            self.mem.set(*addr, *len, made);
        }
    }
}
