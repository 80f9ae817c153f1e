//! The loop that runs the guest: find or make the block at the pc, enter it, and deal with why it came out.

use crate::cache::BlockIndex;
use crate::direct::Lookup;
use crate::gate::{self, Gate, exit};
use crate::probes::Next;
use crate::signals::{FAULTS, SIGILL, SIGSEGV, block_all, frame, give_back};
use crate::state::Engine;
use crate::threads::{SigInfo, Thread, pending, sched};
use crate::translate::ExitKind;
use crate::{record, replay, specials, syscalls, trial};
use iced_x86::{Decoder, DecoderError, DecoderOptions, FlowControl};
use model::Mode;
use model::log::Kind;

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
        if e.replaying() {
            replay::steer(e, t, g);
        } else if e.trial.is_some() && trial::held::look(e, t, g) || e.region.is_timed() && e.region_tick(t, g) {
            via = Via::Engine;
        }
        if t.has_any() {
            alone = attend(e, t);
            via = Via::Engine;
            if alone.is_none() && e.replaying() && !t.has_any() {
                // The guest is elsewhere, in a signal's handler: what is due there is found first.
                continue;
            }
        }
        e.trace_thread(t);
        let flushes = e.cache.flushes;
        let found = alone.or_else(|| e.block_at(g.pc, via == Via::Direct));
        if flushes != e.cache.flushes && matches!(via, Via::Link(_)) {
            // What was to be linked is gone.
            via = Via::Engine;
        }
        let Some(block) = found else {
            cannot_execute(e, t, g);
            via = Via::Engine;
            continue;
        };
        // A probe counts once for each execution, however often the instruction is entered for it.
        let counted = via == Via::Probed || t.probed == Some(g.pc);
        g.target = if counted { e.cache.after_probe(block) } else { e.cache.body(block) };
        if counted {
            t.probed = Some(g.pc);
        }
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
        let abandoned = g.exit == exit::STOPPED && e.stopped.is_none();
        if counted && !abandoned {
            t.probed = None;
        }
        via = leave(e, t, g);
    }
}

/// The guest came out of the cache.
fn leave(e: &mut Engine, t: &mut Thread, g: &mut Gate) -> Via {
    match g.exit {
        exit::CHECKED => return Via::Checked,
        exit::DIRECT => return Via::Direct,
        exit::ASTRAY => return went_astray(e, t, g),
        exit::TICK_INDIRECT => {
            count_out(e, t);
            return Via::Engine;
        }
        exit::STOPPED => {
            account_stop(e, t);
            if e.ticks() && e.clock.is_out() {
                // Stopped by a fault between the last tick of the turn and the branch that it belongs to.
                count_out(e, t);
            }
            return Via::Engine;
        }
        _ => {}
    }
    let out = e.cache.exit(g.exit);
    g.pc = out.target;
    match out.kind {
        ExitKind::Link => return Via::Link(out.site),
        ExitKind::Expired => count_out(e, t),
        ExitKind::Special(s, len) => specials::execute(e, t, g, s, len),
        ExitKind::Probe => {
            e.trace_thread(t);
            if e.replaying() && replay::predicates::note(e, g) || trial::looks::tell(e, g) {
                return Via::Probed;
            }
            if e.chaos.on && e.chaos_site_reached(g) {
                t.probed = Some(g.pc);
                t.lag = e.clock.random() as u32 % 16;
                end_turn(e, t);
                return Via::Engine;
            }
            let stops = e.replay.is_some() && e.probes.stops_at(g.pc);
            let flushes = e.cache.flushes;
            let next = e.probe_hit(t, g);
            if next == Next::Execute && e.cache.find(g.pc).is_some() && !stops {
                return Via::Probed;
            }
            if next == Next::Elsewhere && e.ticks() && e.clock.is_out() {
                count_out(e, t);
                return Via::Engine;
            }
            if flushes != e.cache.flushes {
                // This execution has been counted.
                t.probed = Some(g.pc);
            }
            if next == Next::Elsewhere {
                return Via::Engine;
            }
            if stops && e.trial.is_some() {
                t.probed = Some(g.pc);
                trial::held::at_site(e, t, g);
                trial::schedule::at_site(e, t, g);
            } else if stops {
                e.site_reached(t, g.pc);
            }
        }
        ExitKind::Undefined => undefined(e, t, g),
    }
    Via::Engine
}

/// A counter of ticks is at zero: the guest goes on, or its turn is over.
fn count_out(e: &mut Engine, t: &mut Thread) {
    if !e.clock.goes_on() {
        turn_over(e, t);
    }
}

/// A turn is over: others may run.
fn turn_over(e: &mut Engine, t: &mut Thread) {
    if e.replaying() {
        // What is due at this tick is found before the guest goes on.
        return;
    }
    if e.trial.is_some() {
        // SAFETY: the baton is held.
        return trial::turn_over(e, t, unsafe { gate::gate() });
    }
    if e.region.is_due(e.clock.now()) {
        // The recording begins or ends before anybody goes on.
        return e.clock.refill(e.seeded());
    }
    // SAFETY: the baton is held.
    if e.chaos.on && e.chaos_goes_on(unsafe { gate::gate() }) {
        return e.next_chaotic_turn();
    }
    end_turn(e, t);
}

/// The next thread's turn starts with a budget of its own.
fn end_turn(e: &mut Engine, t: &mut Thread) {
    let tick = e.clock.now();
    if e.chaos.on {
        e.next_chaotic_turn();
    } else {
        e.clock.refill(e.seeded());
    }
    preempt(e, t, tick);
}

/// Others get their turn, if any wait for one.
fn preempt(e: &mut Engine, t: &mut Thread, tick: u64) {
    if sched().others_wait() {
        // SAFETY: the baton is held.
        let at = e.position(unsafe { gate::gate() });
        record::append(Kind::Preempt, 0, &at.encode());
        record::nobody_runs();
        e.clock.step();
        sched().give_way(t, tick);
    }
}

/// A handler stopped the guest inside a block: counters and trace are put right.
fn account_stop(e: &mut Engine, t: &mut Thread) {
    if let Some(place) = *e.stopped {
        let at_fault = t.has(pending::SIGNAL) && t.synchronous;
        if place.behind_probe && place.instruction == 0 && !at_fault {
            t.probed = Some(place.pc);
        }
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
    if t.has(pending::CODE_WRITTEN) {
        t.settle(pending::CODE_WRITTEN);
        e.code_written(t.written_page);
        retry = true;
    }
    if t.has(pending::PREEMPT) {
        t.settle(pending::PREEMPT);
        let tick = e.clock.now();
        preempt(e, t, tick);
    }
    if t.has(pending::SIGNAL) {
        frame::deliver(e, t);
        retry = false;
    }
    t.show_pending(g);
    if retry { e.alone(g.pc) } else { None }
}

/// Raises a fault of the guest's at its pc.
pub fn fault(t: &mut Thread, signal: u32, code: i32, address: u64, context: [u64; 3]) {
    debug_assert!(FAULTS & crate::signals::bit(signal) != 0);
    block_all();
    give_back(t);
    t.info = SigInfo::default();
    t.info[0] = signal as u64;
    t.info[1] = code as u32 as u64;
    t.info[2] = address;
    t.fault = context;
    t.synchronous = true;
    t.raise(pending::SIGNAL);
}

/// At the pc is no instruction, or only the beginning of one.
fn undefined(e: &mut Engine, t: &mut Thread, g: &Gate) {
    let code = e.readable_code(g.pc).unwrap_or_default();
    let mut d = Decoder::with_ip(64, code, g.pc, DecoderOptions::NONE);
    if !d.decode().is_invalid() {
        // The rest of it has been mapped since.
        if let Some(block) = e.cache.find(g.pc) {
            e.cache.invalidate(block);
        }
    } else if d.last_error() == DecoderError::NoMoreBytes {
        cannot_fetch(e, t, g.pc + code.len() as u64);
    } else {
        fault(t, SIGILL, 2, g.pc, [6, 0, 0]);
    }
}

/// No instruction can be read at `address`, which is where the pc is or where its instruction goes on.
fn cannot_fetch(e: &Engine, t: &mut Thread, address: u64) {
    let vma = e.memory.find(address).map(|(_, vma)| vma);
    let code = if vma.is_some() { 2 } else { 1 };
    // Error code: user mode, instruction fetch, and whether the page is there.
    let present = vma.is_some_and(|v| v.prot & 7 != 0) || address >= KERNEL_HALF;
    fault(t, SIGSEGV, code, address, [14, 0x14 + present as u64, address]);
}

/// The pc is not in executable memory.
fn cannot_execute(e: &mut Engine, t: &mut Thread, g: &mut Gate) {
    let pc = g.pc;
    if syscalls::vsyscall(e, t, g) {
        return;
    }
    if is_canonical(pc) {
        cannot_fetch(e, t, pc);
    } else {
        // What is no address at all is a general protection fault, without an address.
        fault(t, SIGSEGV, 0x80, 0, [13, 0, 0]);
    }
}

const KERNEL_HALF: u64 = 0xffff_8000_0000_0000;

fn is_canonical(address: u64) -> bool {
    address >> 47 == 0 || address >= KERNEL_HALF
}

/// Direct lookup ended in a fault.
fn went_astray(e: &mut Engine, t: &mut Thread, g: &mut Gate) -> Via {
    let target = g.pc;
    match e.missed_at.take() {
        Some((_, branch)) if !is_canonical(target) => {
            refuse_branch(e, t, g, branch);
            Via::Engine
        }
        Some((block, _)) => {
            let site = e.cache.blocks[block as usize].pc;
            if Lookup::of(target) == e.lookup_at(site) && !e.cache.direct.is_entered(target) {
                return Via::Direct;
            }
            // What leads elsewhere, or to where there is no room for an entry, once, will again.
            e.checked_sites.insert(site, ());
            e.cache.invalidate(block);
            Via::Engine
        }
        None if e.cache.direct.note_useless(target) => {
            e.checked_only = true;
            e.flush();
            Via::Engine
        }
        None => Via::Direct,
    }
}

/// The CPU does not go to what is no address: the branch itself faults, with nothing done.
fn refuse_branch(e: &mut Engine, t: &mut Thread, g: &mut Gate, branch: u64) {
    let code = e.readable_code(branch).unwrap_or_default();
    let i = Decoder::with_ip(64, code, branch, DecoderOptions::NONE).decode();
    match i.flow_control() {
        FlowControl::Return if i.op_count() > 0 => g.gpr[4] -= 8 + i.immediate16() as u64,
        FlowControl::Return => g.gpr[4] -= 8,
        FlowControl::IndirectCall => g.gpr[4] += 8,
        _ => {}
    }
    g.pc = branch;
    fault(t, SIGSEGV, 0x80, 0, [13, 0, 0]);
}
