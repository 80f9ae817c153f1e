//! The loop that runs the guest: find or make the block at the pc, enter it, and deal with why it came out.

use crate::cache::BlockIndex;
use crate::direct::Lookup;
use crate::gate::{self, Gate, exit};
use crate::memory::{kernel_prot, page_down};
use crate::probes::Next;
use crate::signals::{FAULTS, SIGILL, SIGSEGV, block_all, frame};
use crate::state::Engine;
use crate::sys::{self, PROT_WRITE, nr};
use crate::threads::{SigInfo, Thread, pending, sched};
use crate::translate::{self, ExitKind, MAX_INSTRUCTIONS, Request};
use crate::{specials, syscalls};
use iced_x86::FlowControl;
use model::Mode;
use model::layout::{COUNTERS, GATE, PAGE, TAKEN};

/// Blocks laid out in one go along a straight line.
const CHAIN: usize = 8;

/// How the next block is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Via {
    /// From the engine itself.
    Engine,
    /// Over an exit that can be linked: offset of its rel32.
    Link(u32),
    /// By an indirect branch with checked lookup.
    Checked,
    /// By an indirect branch with direct lookup.
    Direct,
    /// Behind the probe of the block, which has been dealt with.
    Probed,
}

/// Runs thread `t`, which holds the baton, from the gate's pc. Returns never: threads end in system calls or signals.
pub fn run(t: &mut Thread) -> ! {
    // SAFETY: the baton is held whenever this loop is not inside the guest or a blocking call.
    let e = unsafe { crate::state::engine() };
    // SAFETY: likewise.
    let g = unsafe { gate::gate() };
    let mut via = Via::Engine;
    loop {
        let mut alone = None;
        if t.pending != 0 {
            alone = attend(e, t);
            via = Via::Engine;
        }
        e.trace_thread(t);
        let found = alone.or_else(|| e.block_at(g.pc, via == Via::Direct));
        let Some(block) = found else {
            cannot_execute(e, t, g);
            via = Via::Engine;
            continue;
        };
        g.target = match via {
            Via::Probed => e.cache.after_probe(block),
            _ => e.cache.body(block),
        };
        if e.cache.blocks[block as usize].linkable {
            match via {
                Via::Link(site) if site != 0 => e.cache.link(site, block),
                Via::Checked => e.cache.enter_in_hash(block),
                Via::Direct => e.cache.enter_direct(block),
                _ => {}
            }
        } else if via == Via::Direct {
            e.cache.expect_direct(g.pc);
        }
        e.stats.exits += 1;
        if crate::vault::is_due() {
            e.cache.direct.close();
            crate::vault::close();
        }
        // SAFETY: the target is the entry of a valid translation of the gate's pc.
        unsafe { gate::enter() };
        via = leave(e, t, g);
    }
}

/// The guest came out of the cache.
fn leave(e: &mut Engine, t: &mut Thread, g: &mut Gate) -> Via {
    match g.exit {
        exit::CHECKED => return Via::Checked,
        exit::DIRECT => return Via::Direct,
        exit::ASTRAY => return e.went_astray(g.pc),
        exit::TICK_INDIRECT => {
            turn_over(e, t);
            return Via::Engine;
        }
        exit::STOPPED => {
            account_stop(e);
            return Via::Engine;
        }
        _ => {}
    }
    let out = e.cache.exit(g.exit);
    g.pc = out.target;
    match out.kind {
        ExitKind::Link => return Via::Link(out.site),
        ExitKind::Expired => turn_over(e, t),
        ExitKind::Special(s, len) => specials::execute(e, t, g, s, len),
        ExitKind::Probe => {
            e.trace_thread(t);
            if e.probe_hit(t, g) == Next::Execute && e.cache.find(g.pc).is_some() {
                return Via::Probed;
            }
        }
        ExitKind::Undefined => fault(t, SIGILL, 2, g.pc, [6, 0, 0]),
    }
    Via::Engine
}

/// A turn is over: others may run.
fn turn_over(e: &mut Engine, t: &mut Thread) {
    let tick = e.clock.now();
    // The next thread's turn starts with a budget of its own.
    e.clock.refill(e.seeded());
    if sched().others_wait() {
        e.clock.step();
        sched().give_way(t, tick);
    }
}

/// A handler stopped the guest inside a block: counters and trace are put right.
fn account_stop(e: &mut Engine) {
    if let Some(place) = *e.stopped {
        if e.mode == Mode::Count {
            let n = e.cache.blocks[place.block as usize].instructions as i64;
            e.count_correction += place.instruction as i64 - if place.counted { n } else { 0 };
        }
        e.trace_partial();
        *e.stopped = None;
    }
}

/// Signals, preemption, code that was written to. Answers a block for the one instruction that must be executed alone.
fn attend(e: &mut Engine, t: &mut Thread) -> Option<BlockIndex> {
    let mut retry = false;
    // SAFETY: the baton is held.
    let g = unsafe { gate::gate() };
    if t.pending & pending::CODE_WRITTEN != 0 {
        t.pending &= !pending::CODE_WRITTEN;
        g.pending = t.pending;
        e.code_written(t.written_page);
        retry = true;
    }
    if t.pending & pending::PREEMPT != 0 {
        t.pending &= !pending::PREEMPT;
        g.pending = t.pending;
        if sched().others_wait() {
            e.clock.step();
            sched().give_way(t, e.clock.now());
        }
    }
    if t.pending & pending::SIGNAL != 0 {
        frame::deliver(e, t);
        retry = false;
    }
    g.pending = t.pending;
    if retry { e.alone(g.pc) } else { None }
}

/// Raises a fault of the guest's at its pc.
pub fn fault(t: &mut Thread, signal: u32, code: i32, address: u64, context: [u64; 3]) {
    debug_assert!(FAULTS & crate::signals::bit(signal) != 0);
    block_all();
    t.info = SigInfo::default();
    t.info[0] = signal as u64;
    t.info[1] = code as u32 as u64;
    t.info[2] = address;
    t.fault = context;
    t.synchronous = true;
    t.pending |= pending::SIGNAL;
}

/// The pc is not in executable memory.
fn cannot_execute(e: &mut Engine, t: &mut Thread, g: &mut Gate) {
    let pc = g.pc;
    if syscalls::vsyscall(e, t, g) {
        return;
    }
    // Outside user space the CPU raises a general protection fault, without an address.
    if pc >> 47 != 0 {
        return fault(t, SIGSEGV, 0x80, 0, [13, 0, 0]);
    }
    let code = if e.memory.find(pc).is_some() { 2 } else { 1 };
    // Error code: user mode, instruction fetch, and whether the page is there.
    fault(t, SIGSEGV, code, pc, [14, 0x13 + code as u64, pc]);
}

impl Engine {
    /// The block at `pc`, made if need be; `None` when nothing can be executed there.
    fn block_at(&mut self, pc: u64, indirect: bool) -> Option<BlockIndex> {
        if let Some(b) = self.cache.find(pc) {
            let end = pc + self.cache.blocks[b as usize].guest_len as u64;
            if !self.pages.any_restless(pc, end) {
                return Some(b);
            }
            // Code on a page that changes often: compared by being made again.
            self.cache.invalidate(b);
        }
        if self.cache.is_full() {
            self.flush();
        }
        let start = if self.config.stats { sys::monotonic_ns() } else { 0 };
        let first = self.lay_out(pc, indirect);
        if self.config.stats {
            self.stats.translation_ns += sys::monotonic_ns() - start;
        }
        first
    }

    /// Translates a straight line of blocks from `pc`; answers the first.
    fn lay_out(&mut self, pc: u64, indirect: bool) -> Option<BlockIndex> {
        let first = self.translate_block(pc, indirect, MAX_INSTRUCTIONS, true)?;
        let mut next = self.translation.next;
        for _ in 1..CHAIN {
            let Some(to) = next else { return Some(first) };
            let stop = self.cache.find(to).is_some() || self.probes.at(to) || self.pages.is_restless(to);
            if stop || self.translate_block(to, false, MAX_INSTRUCTIONS, true).is_none() {
                break;
            }
            next = self.translation.next;
        }
        if let Some(to) = next {
            self.cache.append_jump(to);
        }
        Some(first)
    }

    /// Translates and installs the one block at `pc`.
    fn translate_block(&mut self, pc: u64, indirect: bool, max: usize, protect: bool) -> Option<BlockIndex> {
        let code = self.memory.code(pc)?;
        if self.readable_page != pc >> 12 {
            // A mapped page can still be beyond the end of its file.
            if sys::read_guest(pc, &mut [0u8; 1]) == 0 {
                return None;
            }
            self.readable_page = pc >> 12;
        }
        let id = self.cache.next_id();
        let slot = self.cache.blocks.len() as u64 * 8;
        let counted = self.mode == Mode::Count && slot < TAKEN;
        let counter = (COUNTERS.start - GATE + slot) as i32;
        let request = Request {
            pc,
            mode: self.mode,
            ticks: self.ticks(),
            indirect_entry: indirect,
            lookup: self.lookup_at(pc),
            max_instructions: max,
            probe_counter: self.probes.counter(pc),
            block_id: id,
            counter: counted.then_some(counter),
            taken_counter: (counted && self.config.coverage).then_some(counter + TAKEN as i32),
            virtual_time: self.seeded(),
        };
        let probes = &self.probes;
        let memory = &self.memory;
        let restless = self.pages.is_restless(pc);
        let request = Request { max_instructions: if restless { 1 } else { max }, ..request };
        translate::decode_block(&request, code, &mut self.emitter.isa, &mut |a| probes.at(a), &mut self.decoded);
        // A probe may send the guest elsewhere: what comes behind its site proves nothing about the flags before it.
        let mut code_at = |a: u64| {
            let code = memory.code(a)?;
            Some(&code[..probes.distance(a, code.len())])
        };
        translate::translate(&request, &self.decoded, code, &mut self.emitter, &mut code_at, &mut self.translation);
        let end = self.decoded.end.max(pc + 1);
        let linkable = !self.pages.any_restless(pc, end);
        let block = self.cache.install(pc, &mut self.translation, linkable);
        if let Some(last) = self.decoded.insns.last()
            && matches!(last.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
            && !self.checked_only
        {
            self.cache.expect_direct(last.next_ip());
        }
        self.stats.blocks += 1;
        self.stats.translated_instructions += self.decoded.insns.len() as u64;
        let memory = &self.memory;
        self.pages.add(pc, end, block, |page| protect && protect_code(memory, page));
        if self.mode == Mode::Trace {
            self.define_block(id, pc, &code[..(end - pc) as usize]);
        }
        Some(block)
    }

    /// How the indirect branch of a block at `pc` is looked up.
    fn lookup_at(&self, pc: u64) -> Lookup {
        if self.checked_only || self.checked_sites.contains_key(&pc) { Lookup::Checked } else { Lookup::of(pc) }
    }

    /// Direct lookup of `target` ended in a fault.
    fn went_astray(&mut self, target: u64) -> Via {
        match self.missed_at.take() {
            Some(block) => {
                let site = self.cache.blocks[block as usize].pc;
                if Lookup::of(target) == self.lookup_at(site) && !self.cache.direct.is_entered(target) {
                    return Via::Direct;
                }
                // What leads elsewhere, or to where there is no room for an entry, once, will again.
                self.checked_sites.insert(site, ());
                self.cache.invalidate(block);
                Via::Engine
            }
            None if self.cache.direct.is_crowded(target) => {
                self.checked_only = true;
                self.flush();
                Via::Engine
            }
            None => Via::Direct,
        }
    }

    /// Drops every translation.
    pub fn flush(&mut self) {
        self.harvest_counts();
        self.cache.flush();
        self.pages.clear_blocks();
    }

    /// Instrumentation changes from here on.
    pub fn switch_mode(&mut self, t: &Thread, mode: Mode) {
        if mode == self.mode {
            return;
        }
        if self.mode == Mode::Trace {
            self.close_trace(t);
        }
        self.flush();
        self.mode = mode;
        if mode == Mode::Count && !self.counters_mapped {
            self.counters_mapped = crate::start::map_counters().is_ok();
            if !self.counters_mapped {
                self.note("no memory for block counters: counting stays off", 0);
                self.mode = Mode::Tick;
            }
        }
        if mode == Mode::Trace && self.open_trace().is_err() {
            self.note("no memory for trace buffers: tracing stays off", 0);
            self.mode = Mode::Tick;
        }
    }

    /// The guest changed what is mapped in `start..end`: nothing translated from there is valid.
    pub fn code_unmapped(&mut self, start: u64, end: u64) {
        self.readable_page = 0;
        for b in self.pages.take(page_down(start), end) {
            self.cache.invalidate(b);
        }
    }

    /// The guest writes to a page with translations: they go, and the page is writable again.
    pub fn code_written(&mut self, page: u64) {
        for b in self.pages.written(page) {
            self.cache.invalidate(b);
        }
        self.unprotect(page);
    }

    fn unprotect(&mut self, page: u64) {
        if let Some((_, vma)) = self.memory.find(page) {
            // SAFETY: gives the guest's page the rights the guest gave it.
            unsafe { sys::raw3(nr::MPROTECT, page, PAGE, kernel_prot(vma.prot as u64)) };
        }
    }

    /// The engine (or the kernel for it) is about to write where translations were made from.
    pub fn reopen_page(&mut self, address: u64) -> bool {
        let page = page_down(address);
        if self.reopen_vfork_page(address) {
            return true;
        }
        if self.pages.is_protected(page) {
            self.code_written(page);
            return true;
        }
        false
    }

    /// A block for just the instruction at `pc`, which writes to translated code, perhaps its own page: the page stays
    /// writable, and the block is used once, because the bytes behind the instruction may change.
    fn alone(&mut self, pc: u64) -> Option<BlockIndex> {
        self.clock.step();
        let block = self.translate_block(pc, false, 1, false)?;
        if let Some(to) = self.translation.next {
            self.cache.append_jump(to);
        }
        self.cache.forget(block);
        Some(block)
    }

    /// Sums block counters into the totals and clears them.
    pub fn harvest_counts(&mut self) {
        if self.mode != Mode::Count {
            return;
        }
        for (n, b) in self.cache.blocks.iter().enumerate() {
            let slot = n as u64 * 8;
            if slot >= TAKEN {
                break;
            }
            // SAFETY: counter words of installed blocks, mapped in mode count.
            let executed = unsafe { core::ptr::replace((COUNTERS.start + slot) as *mut u64, 0) };
            self.stats.instructions += executed * b.instructions as u64;
            if b.conditional {
                self.stats.conditional_branches += executed;
            }
            if self.config.coverage && executed != 0 {
                // SAFETY: as above.
                let taken = unsafe { core::ptr::replace((COUNTERS.start + TAKEN + slot) as *mut u64, 0) };
                self.coverage.push(model::wire::BlockCount {
                    pc: model::GuestAddr(b.pc),
                    bytes: b.guest_len as u32,
                    instructions: b.instructions as u32,
                    executed,
                    taken,
                    conditional: b.conditional,
                });
            }
        }
        self.stats.instructions = self.stats.instructions.wrapping_add_signed(self.count_correction);
        self.count_correction = 0;
    }
}

/// Takes write permission from a page that holds translated code; says whether it did.
fn protect_code(memory: &crate::memory::Memory, page: u64) -> bool {
    match memory.find(page) {
        Some((_, vma)) if vma.is(PROT_WRITE) => {
            // SAFETY: a guest page; stores to it fault and are made again after its translations are gone.
            unsafe { sys::raw3(nr::MPROTECT, page, PAGE, kernel_prot(vma.prot as u64) & !PROT_WRITE) == 0 }
        }
        _ => false,
    }
}
