//! Control dependence of everything that ran: which branch, or which call, decided that it did.
//!
//! One stack per thread holds the branches whose ways have not come together yet, each with the frame it belongs to. What
//! runs depends on the last one of its frame or, if there is none, on the call that made the frame. Frames are told by the
//! stack slots of their return addresses: a return ends its own frame and all below, a call ends frames that the stack has
//! left behind (`longjmp`, unwinding). A signal handler runs on a frame of its own, decided by the
//! call with which the thread sent itself the signal, else by nothing. A return that
//! leads elsewhere than behind its call is a branch by the address that it found.
//!
//! May miss: between a `longjmp` into code that makes no call and the next call, what runs is taken to depend on the frame
//! that was left if the target is in the same function.
//!
//! Source: Xin and Zhang, Efficient online detection of dynamic control dependence (ISSTA 2007).

use std::collections::HashMap;
use std::ops::Range;
use trace::event::Event;
use trace::format::Special;

use crate::code::Code;
use crate::column::Parents;
use crate::facts::{Border, Facts, Merge};
use crate::insn::Control;
use crate::registers::RegId;
use crate::seam::{AtEnd, Earliers, EndFrame, First};
use crate::stretches::{Begin, STRETCH, Stretches};
use crate::wants::{FastMap, FastSet};
use crate::window::{EVENTS, NOTHING, Window};

/// Calls that send signals: kill, rt_sigqueueinfo, tkill, tgkill, rt_tgsigqueueinfo.
const SENDS: [u64; 5] = [62, 129, 200, 234, 297];
/// Farther apart than this, two return addresses lie on different stacks.
const SAME_STACK: u64 = 8 << 20;

/// A branch whose ways have not merged.
struct Open {
    segment: u32,
    merge: Merge,
    frame: u32,
}

/// Which places were found to be in the same function: each call through a stub asks this of all frames, each jump of an
/// interpreter of its target.
#[derive(Default)]
struct KnownFunctions {
    all: FastMap<(u64, u64), bool>,
    /// Pairs that were asked for lately and are in the same function.
    lately: Vec<(u64, u64)>,
}

/// How many pairs are remembered.
const LATELY: usize = 1 << 10;

struct Functions<'a> {
    facts: &'a mut dyn Facts,
    known: &'a mut KnownFunctions,
}

impl Functions<'_> {
    fn are_same(&mut self, a: u64, b: u64) -> bool {
        let known = &mut *self.known;
        known.lately.resize(LATELY, (0, 0));
        let place = (a ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % LATELY;
        if known.lately[place] == (a, b) {
            return true;
        }
        let same = *known.all.entry((a, b)).or_insert_with(|| self.facts.same_function(a, b));
        if same {
            known.lately[place] = (a, b);
        }
        same
    }
}

/// One call that has not returned.
struct Frame {
    /// Where its return address lies; 0 for a signal handler.
    slot: u64,
    call: u32,
    /// An instruction of the function, to tell it from others.
    pc: u64,
    /// Where it is to return to.
    back: u64,
    /// Where the registers that it has put aside begin among those of its thread.
    saved: usize,
    /// Its number among the frames that are kept; 0 if it has none yet.
    number: u32,
}

/// Which frame each execution belongs to.
#[derive(Default)]
struct Slots {
    of: Vec<u32>,
    slots: Vec<u64>,
}

impl Slots {
    /// `old` are the slots of the frames with which the thread began.
    fn note(&mut self, thread: &mut Thread, old: Option<&Vec<u64>>) {
        let number = match thread.frames.last_mut() {
            Some(f) => self.number(&mut f.number, Some(f.slot)),
            None => {
                let slot = old.and_then(|slots| slots.get(thread.first.callers() as usize)).copied();
                self.number(&mut thread.first_number, slot)
            }
        };
        self.of.push(number);
    }

    /// The number of a frame, which it gets if it has none; 0 if it is not known where it is.
    fn number(&mut self, number: &mut u32, slot: Option<u64>) -> u32 {
        if let Some(slot) = slot.filter(|_| *number == 0) {
            self.slots.push(slot);
            *number = self.slots.len() as u32;
        }
        *number
    }
}

/// A call whose function has not begun.
#[derive(Clone, Copy)]
struct Called {
    segment: u32,
    slot: u64,
    back: u64,
}

#[derive(Default)]
struct Thread {
    /// What comes next was called, returned or jumped to, or comes behind a call that sent a signal.
    transferred: bool,
    open: Vec<Open>,
    frames: Vec<Frame>,
    /// An indirect jump came from here; where it leads may be another frame.
    jumped: Option<u64>,
    /// A call was made, whose frame begins with the next instruction.
    called: Option<Called>,
    /// A return was made by the end of this segment, and should lead here.
    returned: Option<(u32, u64)>,
    /// The call just made sent a signal.
    sent: Option<u32>,
    /// The frame with which the window began, or after returns one of its callers.
    first: First,
    /// Registers that frames have put aside in the window, and where; first those of the first frame.
    saved: Vec<(RegId, u64)>,
    /// Its number among the frames that are kept; 0 if it has none yet.
    first_number: u32,
}

impl Thread {
    fn new(number: u32, earliers: &mut Earliers) -> Thread {
        Thread { first: First::new(number, earliers), ..Thread::default() }
    }

    fn depth(&self) -> u32 {
        self.frames.len() as u32
    }

    /// Who decides about the code at `pc`.
    fn arrive(&mut self, pc: u64, earliers: &mut Earliers, facts: &mut dyn Facts) -> u32 {
        let depth = self.depth();
        while self.open.last().is_some_and(|o| o.frame == depth && o.merge == Merge::At(pc)) {
            self.open.pop();
        }
        if self.open.is_empty() && depth == 0 {
            self.first.arrive(pc, earliers, facts);
        }
        self.decider()
    }

    /// Who decides about what runs next.
    fn decider(&self) -> u32 {
        match self.open.last() {
            Some(o) if o.frame == self.depth() => o.segment,
            _ => self.frames.last().map_or(self.first.parent, |f| f.call),
        }
    }

    /// What decides in the frame that runs, in its caller, and so on to the one with which the window began.
    fn at_end(&self) -> AtEnd {
        let mut frames: Vec<EndFrame> = Vec::with_capacity(self.frames.len() + 2);
        let makers = std::iter::once(self.first.parent).chain(self.frames.iter().map(|f| f.call));
        frames.extend(makers.map(|made_by| EndFrame { open: Vec::new(), made_by }));
        for o in &self.open {
            frames[o.frame as usize].open.push((o.segment, o.merge));
        }
        // A function that has just been called and has not begun is one more.
        frames.extend(self.called.map(|c| EndFrame { open: Vec::new(), made_by: c.segment }));
        frames.reverse();
        AtEnd { frames, left: self.first.callers() }
    }

    /// The frame with which the window began, or one of its callers, is left.
    fn leave_first(&mut self, earliers: &mut Earliers) {
        self.forget_first();
        self.first.leave(earliers);
        self.first_number = 0;
    }

    /// Nothing is known about the frame that is the first one now, and runs.
    fn forget_first(&mut self) {
        self.open.clear();
        self.saved.clear();
    }

    fn branch(&mut self, segment: u32, merge: Merge) {
        let frame = self.depth();
        match self.open.last_mut() {
            Some(o) if o.frame == frame && o.merge == merge => o.segment = segment,
            _ => self.open.push(Open { segment, merge, frame }),
        }
    }

    fn call(&mut self, Called { segment, slot, back }: Called, target: u64) {
        while self.frames.last().is_some_and(|f| f.slot != 0 && f.slot <= slot && slot - f.slot < SAME_STACK) {
            self.drop_frame();
        }
        self.frames.push(Frame { slot, call: segment, pc: target, back, saved: self.saved.len(), number: 0 });
    }

    fn ret(&mut self, segment: u32, slot: u64, earliers: &mut Earliers) {
        self.transferred = true;
        if let Some(last) = self.frames.last().filter(|f| f.slot == slot && slot != 0) {
            self.returned = Some((segment, last.back));
            return self.drop_frame();
        }
        let barrier = self.frames.iter().rposition(|f| f.slot == 0).map_or(0, |n| n + 1);
        if let Some(n) = self.frames[barrier..].iter().rposition(|f| f.slot == slot) {
            self.returned = Some((segment, self.frames[barrier + n].back));
            self.truncate(barrier + n);
            return;
        }
        while self.frames.len() > barrier
            && self.frames.last().is_some_and(|f| f.slot < slot && slot - f.slot < SAME_STACK)
        {
            self.drop_frame();
        }
        if self.frames.is_empty() {
            self.leave_first(earliers);
        }
    }

    /// A handler begins; `sent` is the call by which the thread sent the signal to itself.
    fn signal(&mut self, handler: u64, sent: u32) {
        // A call that was just made: its function goes on behind the handler.
        if let Some(called) = self.called.take() {
            self.call(called, 0);
        }
        (self.jumped, self.returned) = (None, None);
        self.frames.push(Frame { slot: 0, call: sent, pc: handler, back: 0, saved: self.saved.len(), number: 0 });
    }

    fn sigreturn(&mut self) {
        match self.frames.iter().rposition(|f| f.slot == 0) {
            Some(n) => self.truncate(n),
            // A handler that ran at the window's beginning has returned to the code that makes this call.
            None => {
                self.truncate(0);
                self.forget_first();
            }
        }
    }

    /// A jump led here: into another function that is under way, perhaps.
    fn land(&mut self, from: u64, to: u64, functions: &mut Functions<'_>) {
        if functions.are_same(from, to) {
            return;
        }
        let barrier = self.frames.iter().rposition(|f| f.slot == 0).map_or(0, |n| n + 1);
        let mut under_way = |f: &Frame| f.pc != to && functions.are_same(f.pc, to);
        if let Some(n) = (barrier..self.frames.len()).rev().find(|n| under_way(&self.frames[*n])) {
            self.truncate(n + 1);
        }
    }

    /// An instruction at a function's border ran. Is it a restore of what was not put aside there?
    fn border(&mut self, border: Border, slot: u64) -> bool {
        let is_first = self.frames.is_empty();
        let saved = &self.saved[self.frames.last().map_or(0, |f| f.saved)..];
        match border {
            Border::Save(reg) => {
                self.saved.push((reg, slot));
                false
            }
            // A function that was entered before the window put its registers aside there.
            Border::Restore(reg) if is_first && saved.iter().all(|(r, _)| *r != reg) => false,
            Border::Restore(reg) => !saved.contains(&(reg, slot)),
        }
    }

    fn truncate(&mut self, frames: usize) {
        if let Some(first) = self.frames.get(frames) {
            self.saved.truncate(first.saved);
        }
        self.frames.truncate(frames);
        let depth = self.depth();
        while self.open.last().is_some_and(|o| o.frame > depth) {
            self.open.pop();
        }
    }

    fn drop_frame(&mut self) {
        let n = self.frames.len().saturating_sub(1);
        self.truncate(n);
    }
}

/// Fills in the parents of a window.
pub(crate) fn find_parents(window: &mut Window, facts: &mut dyn Facts, keep_frames: bool) {
    window.outlines = window.codes.iter().map(Code::outline).collect();
    let mut earliers = Earliers::default();
    let mut pass = Pass {
        window,
        briefs: window.codes.iter().map(Brief::of).collect(),
        facts,
        threads: HashMap::new(),
        now: window.threads.0,
        thread: Thread::new(window.threads.0, &mut earliers),
        earliers,
        merges: vec![None; window.codes.len()],
        parents: Parents::with_capacity(window.blocks.len() + window.blocks.len() / 4),
        address: 0,
        unpaired: FastSet::default(),
        known: KnownFunctions::default(),
        slots: keep_frames.then(Slots::default),
    };
    let (mut first_event, mut run) = (0, 0);
    let mut stretches = Stretches::default();
    for (execution, number) in window.blocks.iter().enumerate() {
        if execution.is_multiple_of(STRETCH) {
            let (address, segment) = (pass.address, pass.parents.len() as u32);
            stretches.begin(Begin { address, segment, runs: run as u32 });
        }
        if number != EVENTS {
            pass.block(execution as u32, number);
            continue;
        }
        let end = window.runs[run] as usize;
        run += 1;
        pass.note_frame();
        (first_event..end).for_each(|n| pass.event(execution as u32, n, first_event..end));
        first_event = end;
    }
    let last_parent = pass.thread.decider();
    pass.threads.insert(pass.now, std::mem::take(&mut pass.thread));
    let at_end = pass.threads.iter().map(|(tid, t)| (*tid, t.at_end())).collect();
    let Pass { mut parents, unpaired, slots, earliers, .. } = pass;
    parents.close();
    let slots = slots.unwrap_or_default();
    (window.parents, window.unpaired, window.last_parent) = (parents, unpaired, last_parent);
    (window.frame_of, window.slots) = (slots.of, slots.slots);
    (window.at_end, window.earliers, window.stretches) = (at_end, earliers, stretches);
}

/// What of a code tells how control goes: the codes of a large program do not fit into the processor's caches.
#[derive(Clone, Copy)]
struct Brief {
    pc: u64,
    end: u64,
    /// Its last instruction.
    last: u64,
    accesses: u32,
    control: Control,
    /// It is one segment and puts nothing aside.
    plain: bool,
}

impl Brief {
    fn of(code: &Code) -> Brief {
        Brief {
            pc: code.pc,
            end: code.end,
            last: code.insns.last().map_or(code.pc, |i| i.pc),
            accesses: code.accesses() as u32,
            control: code.control(),
            plain: code.segments[..] == [0] && code.borders.is_empty(),
        }
    }
}

/// One way through a window, from its beginning.
struct Pass<'w> {
    window: &'w Window,
    /// One for each code.
    briefs: Vec<Brief>,
    facts: &'w mut dyn Facts,
    /// All threads but the one that runs.
    threads: HashMap<u32, Thread>,
    now: u32,
    thread: Thread,
    earliers: Earliers,
    /// Where the branches at the ends of codes merge, once it was asked.
    merges: Vec<Option<Merge>>,
    parents: Parents,
    /// Addresses passed so far.
    address: usize,
    unpaired: FastSet<(u32, u16)>,
    known: KnownFunctions,
    slots: Option<Slots>,
}

impl Pass<'_> {
    fn note_frame(&mut self) {
        if let Some(slots) = &mut self.slots {
            slots.note(&mut self.thread, self.window.old_slots.get(&self.now));
        }
    }

    /// A segment begins.
    fn arrive(&mut self, pc: u64) {
        self.parents.push(self.thread.arrive(pc, &mut self.earliers, self.facts));
    }

    /// A complete plain block ran.
    fn block(&mut self, execution: u32, number: u32) {
        let brief = self.briefs[number as usize];
        begin(&mut self.thread, brief.pc, &mut Functions { facts: self.facts, known: &mut self.known });
        self.note_frame();
        match brief.plain {
            true => self.arrive(brief.pc),
            false => self.parts(execution, number),
        }
        self.address += brief.accesses as usize;
        let slot = match brief.control {
            Control::Next | Control::Jump => return,
            Control::Call | Control::Return => self.address.checked_sub(1).map_or(0, |n| self.window.addresses.at(n)),
            Control::Branch | Control::IndirectJump | Control::Syscall => 0,
        };
        self.leave((brief.control, brief.last, brief.end), slot, number);
    }

    /// A block ran that has several segments, or puts registers aside.
    fn parts(&mut self, execution: u32, number: u32) {
        let window = self.window;
        let code = &window.codes[number as usize];
        for s in &code.segments {
            self.arrive(code.insns[usize::from(*s)].pc);
        }
        for (insn, border) in &code.borders {
            let first = self.address + code.accesses_of(usize::from(*insn)).start;
            let slot = if first < window.addresses.len() { window.addresses.at(first) } else { 0 };
            if self.thread.border(*border, slot) {
                self.unpaired.insert((execution, *insn));
            }
        }
    }

    /// The event of this number happened, in the run of events of this range.
    fn event(&mut self, execution: u32, n: usize, run: Range<usize>) {
        let window = self.window;
        match window.events[n] {
            Event::Insn(i) | Event::RepPart(i) => {
                let code = &window.codes[i.block as usize];
                begin(&mut self.thread, i.pc, &mut Functions { facts: self.facts, known: &mut self.known });
                self.arrive(i.pc);
                if let Some(border) = code.border(i.index)
                    && let Some(Event::Mem(m)) = window.events.get(n + 1)
                    && self.thread.border(border, m.addr)
                {
                    self.unpaired.insert((execution, (n - run.start) as u16));
                }
                if matches!(window.events[n], Event::Insn(_)) {
                    let mems = window.events[n + 1..run.end].iter().take_while(|e| matches!(e, Event::Mem(_)));
                    let slot = mems.last().map_or(0, |e| if let Event::Mem(m) = e { m.addr } else { 0 });
                    let control = code.insns[usize::from(i.index)].control;
                    self.leave((control, i.pc, code.end), slot, i.block);
                }
            }
            Event::Mem(_) => self.address += 1,
            Event::Special(Special::Syscall { pc, nr, .. }) => {
                self.thread.sent = SENDS.contains(&nr).then_some(self.parents.len() as u32);
                self.thread.transferred = true;
                self.arrive(pc);
            }
            Event::Special(Special::Thread { tid, .. }) if tid != self.now => {
                let theirs = self.threads.remove(&tid).unwrap_or_else(|| Thread::new(tid, &mut self.earliers));
                self.threads.insert(self.now, std::mem::replace(&mut self.thread, theirs));
                self.now = tid;
            }
            Event::Special(Special::Signal { handler, .. }) => {
                let sent = self.thread.sent.take().unwrap_or(NOTHING);
                self.thread.signal(handler, sent);
            }
            Event::Special(Special::SigReturn { .. }) => self.thread.sigreturn(),
            Event::Special(_) => {}
        }
    }

    /// The last instruction passed may have transferred control.
    fn leave(&mut self, what: (Control, u64, u64), slot: u64, code: u32) {
        if !matches!(what.0, Control::Next | Control::Jump) {
            let last = self.parents.len() as u32 - 1;
            if what.0 == Control::Return {
                return self.thread.ret(last, slot, &mut self.earliers);
            }
            leave(&mut self.thread, what, (last, slot), &mut self.merges[code as usize], self.facts);
        }
    }
}

/// Code at `pc` runs next: the frame of a call that has just been made begins here.
#[inline(always)]
fn begin(thread: &mut Thread, pc: u64, functions: &mut Functions<'_>) {
    if std::mem::take(&mut thread.transferred) {
        begin_elsewhere(thread, pc, functions);
    }
}

fn begin_elsewhere(thread: &mut Thread, pc: u64, functions: &mut Functions<'_>) {
    thread.sent = None;
    if let Some(called) = thread.called.take() {
        thread.call(called, pc);
    }
    // A return to where nobody called from: what lay in the slot decided about all that follows.
    if let Some((segment, back)) = thread.returned.take()
        && back != pc
    {
        thread.branch(segment, Merge::Exit);
    }
    if let Some(from) = thread.jumped.take() {
        thread.land(from, pc, functions);
    }
}

/// A block was left by a transfer of control.
fn leave(
    thread: &mut Thread,
    (control, pc, end): (Control, u64, u64),
    (segment, slot): (u32, u64),
    merge: &mut Option<Merge>,
    facts: &mut dyn Facts,
) {
    match control {
        Control::Branch | Control::IndirectJump => {
            let merge = *merge.get_or_insert_with(|| facts.merge(pc));
            if control == Control::IndirectJump {
                (thread.jumped, thread.transferred) = (Some(pc), true);
            }
            if merge != Merge::NoBranch {
                thread.branch(segment, merge);
            }
        }
        Control::Call => (thread.called, thread.transferred) = (Some(Called { segment, slot, back: end }), true),
        Control::Next | Control::Jump | Control::Return | Control::Syscall => {}
    }
}
