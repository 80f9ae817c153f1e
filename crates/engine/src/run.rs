//! The loop that runs the guest: find or make the block at the pc, enter it, and deal with why it came out.

use crate::cache::BlockIndex;
use crate::direct::Lookup;
use crate::gate::{self, Gate, exit};
use crate::probes::Next;
use crate::signals::{FAULTS, SIGILL, SIGSEGV, block_all, frame};
use crate::state::Engine;
use crate::threads::{SigInfo, Thread, pending, sched};
use crate::translate::ExitKind;
use crate::{specials, syscalls};
use model::Mode;

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
            None if self.cache.direct.note_useless(target) => {
                self.checked_only = true;
                self.flush();
                Via::Engine
            }
            None => Via::Direct,
        }
    }
}
