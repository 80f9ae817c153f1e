//! A stretch of a run in memory: the blocks that ran, the addresses they touched, and what each depends on by control.
//!
//! ```text
//! blocks      B7 B9 B7 E  B3 …        E: events, for what is not one complete plain block
//! addresses   a  b  c  d  e …         of all accesses, in order; how many belong to a block its code tells
//! parents     p  p  p  p  p …         one for each segment: the segment at whose end the deciding branch stands
//! ```
//! Arrays are walked from both ends, so nothing says where the addresses of a block begin. Blocks and parents take two bytes
//! each (`column`), addresses four: two to three bytes per instruction.
//!
//! A window may begin anywhere in a run. What decided about code whose functions, or branches, began before is named by
//! numbers from `BEFORE` on; `seam` says how the window before finds it.

use std::collections::{HashMap, HashSet};
use trace::chunk::{Chunk, ChunkSink, EXPLICIT};
use trace::event::Event;
use trace::format::Special;

use crate::addresses::Addresses;
use crate::code::{Code, Outline};
use crate::column::{Blocks, Parents};
use crate::facts::Facts;
use crate::insn::{Control, Maker};
use crate::seam::{AtEnd, Earliers};
use crate::stretches::Stretches;
use crate::wants::FastSet;

/// In `blocks`: the next run of events.
pub(crate) const EVENTS: u32 = u32::MAX;
/// Not decided by anything that is known.
pub(crate) const NOTHING: u32 = u32::MAX;
/// In `parents`, from here on: decided before the window; what stands behind this number `Window::earliers` tells.
pub(crate) const BEFORE: u32 = u32::MAX - (1 << 20);

/// What a system call wrote into the guest and took from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallEffects {
    pub pc: u64,
    pub nr: u64,
    pub args: [u64; 6],
    pub result: i64,
    /// Bytes that it wrote: address and length.
    pub writes: Vec<(u64, u64)>,
    /// Number of its record in the log, and the tick at which it was made.
    pub record: u64,
    pub tick: u64,
    /// Which of the memory that it filled or mapped holds input; nothing said: all of what reads and maps files.
    pub input: Option<Vec<(u64, u64)>>,
}

/// The traced stretch.
#[derive(Default)]
pub struct Window {
    pub(crate) blocks: Blocks,
    pub(crate) addresses: Addresses,
    pub(crate) events: Vec<Event>,
    /// For each run of events its end.
    pub(crate) runs: Vec<u32>,
    pub(crate) parents: Parents,
    /// For each thread what decides at the end.
    pub(crate) at_end: HashMap<u32, AtEnd>,
    pub(crate) earliers: Earliers,
    pub(crate) codes: Vec<Code>,
    /// One for each code.
    pub(crate) outlines: Vec<Outline>,
    /// For each instruction of the codes, is it the program's own? Empty: all are.
    pub(crate) own: Vec<bool>,
    /// The thread at the beginning and at the end.
    pub(crate) threads: (u32, u32),
    /// For each event that another thread runs, or the same again, who ran before.
    pub(crate) ran_before: Vec<u32>,
    /// For each system call in order the effects, where the log tells them.
    pub(crate) calls: Vec<Option<CallEffects>>,
    /// The segment that decides about whatever comes behind the end, of the thread that runs there.
    pub(crate) last_parent: u32,
    /// For each execution the frame it belongs to, and for each frame the slot of its return address; only if asked for.
    pub(crate) frame_of: Vec<u32>,
    pub(crate) slots: Vec<u64>,
    /// For each thread the slots of the frames that were there at the beginning, the innermost first, if they are known.
    pub(crate) old_slots: HashMap<u32, Vec<u64>>,
    /// Restores of registers that no save belongs to: execution and instruction.
    pub(crate) unpaired: FastSet<(u32, u16)>,
    pub(crate) instructions: u64,
    pub(crate) stretches: Stretches,
    /// The budget was used up: the beginning of what was to be traced is missing.
    pub cut: bool,
}

impl Window {
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    /// Blocks that ran, events included.
    pub fn executions(&self) -> usize {
        self.blocks.len()
    }

    /// Bytes that the arrays take.
    pub fn bytes(&self) -> usize {
        self.blocks.bytes()
            + self.addresses.bytes()
            + self.parents.bytes()
            + self.frame_of.capacity() * 4
            + self.events.capacity() * size_of::<Event>()
    }

    /// What is known about a system call, by its number in the window.
    pub fn call(&self, number: u32) -> Option<&CallEffects> {
        self.calls.get(number as usize)?.as_ref()
    }

    /// Where the return address of the frame of an execution lies, if frames were kept.
    pub fn slot(&self, execution: u32) -> Option<u64> {
        let number = self.frame_of.get(execution as usize).copied().filter(|n| *n != 0)?;
        self.slots.get(number as usize - 1).copied().filter(|s| *s != 0)
    }

    /// The last loads of distinct addresses, the last one first, by code that is `wanted`: execution, instruction and
    /// address.
    pub fn last_loads(&self, most: usize, mut wanted: impl FnMut(u64) -> bool) -> Vec<((u32, u16), u64)> {
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        let mut address = self.addresses.len();
        let mut run = self.runs.len();
        for (execution, number) in self.blocks.iter().enumerate().rev() {
            if found.len() >= most {
                break;
            }
            if number == EVENTS {
                run -= 1;
                let start = if run == 0 { 0 } else { self.runs[run - 1] as usize };
                let events = &self.events[start..self.runs[run] as usize];
                address -= events.iter().filter(|e| matches!(e, Event::Mem(_))).count();
                continue;
            }
            let code = &self.codes[number as usize];
            address -= code.accesses();
            if !wanted(code.pc) {
                continue;
            }
            for (n, insn) in code.insns.iter().enumerate().rev() {
                let first = address + code.accesses_of(n).start;
                for at in insn.mem.iter().enumerate().filter(|(_, m)| m.read).map(|(k, _)| self.addresses.at(first + k))
                {
                    if found.len() < most && seen.insert(at) {
                        found.push(((execution as u32, n as u16), at));
                    }
                }
            }
        }
        found
    }

    /// Adds a block of code; gives its number.
    pub(crate) fn add_code(&mut self, mut code: Code) -> u32 {
        code.first_site = self.sites() as u32;
        self.codes.push(code);
        self.codes.len() as u32 - 1
    }

    /// How many instructions the codes have.
    pub(crate) fn sites(&self) -> usize {
        self.codes.last().map_or(0, |c| c.first_site as usize + c.insns.len())
    }

    /// Tells which code is the program's own. Slices count other code at the own code that led to it.
    pub fn mark_own(&mut self, mut is_own: impl FnMut(u64) -> bool) {
        self.own = self.codes.iter().flat_map(|c| &c.insns).map(|i| is_own(i.pc)).collect();
    }

    #[inline(always)]
    pub(crate) fn is_own(&self, site: u32) -> bool {
        self.own.get(site as usize).copied().unwrap_or(self.own.is_empty())
    }

    pub fn codes(&self) -> &[Code] {
        &self.codes
    }

    /// How often each block ran, by its number among [`Window::codes`].
    pub fn counts(&self) -> Vec<u64> {
        let mut counts = vec![0; self.codes.len()];
        for b in self.blocks.iter().filter(|b| *b != EVENTS) {
            counts[b as usize] += 1;
        }
        for e in &self.events {
            if let Event::Insn(i) = e
                && i.index == 0
            {
                counts[i.block as usize] += 1;
            }
        }
        counts
    }
}

/// How to prepare a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prepare {
    /// Saved registers are not followed through the stack.
    pub bypass: bool,
    /// Frames are kept, which relevant slices need.
    pub frames: bool,
}

/// Makes a window from a trace.
#[derive(Default)]
pub struct Builder {
    window: Window,
    maker: Maker,
    /// What the blocks of the trace are, by their ids.
    met: Vec<Met>,
    known: HashMap<u64, Vec<u32>>,
    /// Targets of indirect jumps that were seen.
    pub seen: FastSet<(u64, u64)>,
    /// The block before ended with an indirect jump, at this address.
    jumped: Option<u64>,
    started: bool,
}

/// What is needed of a block each time it runs.
#[derive(Clone, Copy)]
struct Met {
    pc: u64,
    /// Its number among the codes.
    number: u32,
    insns: u16,
    /// It ends with an indirect jump.
    jumps: bool,
}

impl Met {
    const UNKNOWN: Met = Met { pc: 0, number: u32::MAX, insns: 0, jumps: false };
}

impl Builder {
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Where the return addresses of the frames lie with which a thread begins, the innermost first.
    pub fn begins_with(&mut self, thread: u32, slots: Vec<u64>) {
        self.window.old_slots.insert(thread, slots);
    }

    #[inline(always)]
    fn met(&mut self, chunk: &Chunk<'_>, tag: u32) -> Option<Met> {
        let id = trace::format::tag_id(tag) as usize;
        match self.met.get(id) {
            Some(met) if met.number != Met::UNKNOWN.number => Some(*met),
            _ => self.meet(chunk, tag, id),
        }
    }

    /// A block runs for the first time.
    #[cold]
    fn meet(&mut self, chunk: &Chunk<'_>, tag: u32, id: usize) -> Option<Met> {
        let block = chunk.block(tag)?;
        if self.met.len() <= id {
            self.met.resize(id + 1, Met::UNKNOWN);
        }
        let code = Code::new(block, &mut self.maker);
        let (insns, jumps) = (code.insns.len() as u16, code.control() == Control::IndirectJump);
        let number = self.window.add_code(code);
        self.known.entry(block.pc).or_default().push(number);
        self.met[id] = Met { pc: block.pc, number, insns, jumps };
        Some(self.met[id])
    }

    fn arrive(&mut self, pc: u64) {
        if let Some(from) = self.jumped.take() {
            self.seen.insert((from, pc));
        }
    }

    fn leave(&mut self, number: u32) {
        let code = &self.window.codes[number as usize];
        if code.control() == Control::IndirectJump {
            self.jumped = code.insns.last().map(|i| i.pc);
        }
    }

    fn events(&mut self, chunk: &Chunk<'_>, events: &[Event]) {
        for e in events {
            let mut e = *e;
            match &mut e {
                Event::Insn(i) | Event::RepPart(i) => {
                    self.arrive(i.pc);
                    let Some(Met { number, .. }) = self.met(chunk, i.block) else { continue };
                    i.block = number;
                    self.window.instructions += 1;
                    if usize::from(i.index) + 1 == self.window.codes[number as usize].insns.len() {
                        self.leave(number);
                    }
                }
                Event::Special(Special::Thread { tid, .. }) => {
                    self.window.ran_before.push(self.window.threads.1);
                    self.window.threads.1 = *tid;
                }
                Event::Mem(_) | Event::Special(_) => {}
            }
            self.window.events.push(e);
        }
        self.window.runs.push(self.window.events.len() as u32);
        self.window.blocks.push(EVENTS);
    }

    /// Tells what is known about the program to which targets indirect jumps led.
    pub fn tell_jumps(&self, facts: &mut dyn Facts) {
        let mut seen: Vec<(u64, u64)> = self.seen.iter().copied().collect();
        seen.sort_unstable();
        for (from, to) in seen {
            facts.observe(from, to);
        }
    }

    /// The window, with control dependences from what is known about the program and `calls` beside its system calls.
    pub fn finish(self, facts: &mut dyn Facts, calls: Vec<CallEffects>, how: Prepare) -> Window {
        self.tell_jumps(facts);
        let Builder { mut window, .. } = self;
        window.blocks.close();
        window.addresses.close();
        for code in &mut window.codes {
            code.refine(facts, how.bypass);
        }
        window.attach(calls);
        crate::control::find_parents(&mut window, facts, how.frames);
        window
    }
}

impl Window {
    /// Puts what the log says about system calls beside those of the trace.
    fn attach(&mut self, calls: Vec<CallEffects>) {
        let mut calls: Vec<Option<CallEffects>> = calls.into_iter().map(Some).collect();
        let mut next = 0;
        for e in &self.events {
            let Event::Special(Special::Syscall { pc, nr, result }) = e else { continue };
            let fits = |c: &Option<CallEffects>| {
                c.as_ref().is_some_and(|c| c.pc == *pc && c.nr == *nr && c.result as u64 == *result)
            };
            // Calls that were interrupted and made again, or came before the window, have no event.
            let found = calls[next..].iter().position(fits);
            self.calls.push(found.and_then(|n| calls[next + n].take()));
            next += found.map_or(0, |n| n + 1);
        }
    }
}

impl ChunkSink for Builder {
    fn chunk(&mut self, chunk: &Chunk<'_>) {
        if !self.started {
            self.started = true;
            self.window.threads = (chunk.thread, chunk.thread);
        }
        self.window.addresses.extend(chunk.addresses);
        let (mut start, mut ends) = (0, chunk.explicit.iter());
        for &tag in chunk.blocks {
            if tag == EXPLICIT {
                let end = ends.next().map_or(start, |e| *e as usize);
                self.events(chunk, &chunk.events[start..end]);
                start = end;
                continue;
            }
            let Some(Met { pc, number, insns, jumps }) = self.met(chunk, tag) else { continue };
            self.window.instructions += u64::from(insns);
            if self.jumped.is_some() {
                self.arrive(pc);
            }
            if jumps {
                self.leave(number);
            }
            self.window.blocks.push(number);
        }
    }
}
