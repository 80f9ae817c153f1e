//! Trials: the guest leaves the recorded course and goes on by itself, in a world made from the recording.
//!
//! ```text
//! Alter ─▶ Trial ─▶ as replayed, while the guest does exactly what the log says ([`in_step`])
//!            │
//!            └─▶ its own way, from the first thing on that does not fit: every call comes to [`calls`]:
//!            memory, signals, threads   as they are, around the kernel ([`threads`]); while everything fits, threads
//!                                       run when they ran ([`schedule`])
//!            the log's next call fits   its recorded answer ([`follow`], [`recorded`])
//!            files, streams, time       the world: kept files, recorded and kept input, writes into memory ([`world`])
//!            files at the end           told to a host that has asked ([`left`])
//!            anything else              the trial is lost, and says what was asked for
//! ```
//! The host may stay with a trial and stop it ([`held`]).
//!
//! Nothing outside changes: files are opened for reading only, what is written goes into files in memory or to the host,
//! nothing is sent, nobody is signalled, no program is started. The trial has a budget of ticks and memory, and the
//! kernel refuses it what it must not do anyway ([`belt`]).
//!
//! May miss: descriptors that another recorded process fed have only the bytes that were read from them; a child that the
//! recorded guest forked with the same call is taken to have done what it did, and does not run.

pub mod belt;
pub mod calls;
pub mod follow;
pub mod held;
pub mod in_step;
pub mod left;
pub mod looks;
pub mod recorded;
pub mod schedule;
pub mod threads;
pub mod world;

use crate::gate::Gate;
use crate::replay::replay;
use crate::replay::serve::send;
use crate::state::Engine;
use crate::sys::{self, nr};
use crate::threads::{Thread, pending};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use model::GuestAddr;
use model::log::SignalRecord;
use model::serve::{Alteration, Answer, Moment, TrialEnd, TrialLimits};
use model::wire::{Action, Probe, Site};

/// Ticks that a thread runs before another one may.
const TURN: u64 = 20_000;

/// A trial under way.
pub struct Trial {
    limits: TrialLimits,
    begun: u64,
    pub world: world::World,
    pub follow: follow::Follow,
    pub threads: threads::Threads,
    pub schedule: schedule::Schedule,
    /// Nanoseconds that have passed in waits.
    pub waited: u64,
    /// Bytes that the next read delivers instead of its own.
    input: Option<(u64, Vec<u8>)>,
    written: u64,
    /// Memory that the guest has mapped since.
    pub mapped: u64,
    /// What the process had when it left the log.
    resident: u64,
    /// The tick at which the running thread's turn ends.
    turn_end: u64,
    /// Calls that it has made in its world.
    calls: u32,
}

/// What was altered before the trial began.
#[derive(Default)]
pub struct Prepared {
    input: Option<(u64, Vec<u8>)>,
    altered: bool,
    /// The trial is to go its own way at once.
    apart: bool,
    /// Files whose fate is to be told when the trial ends.
    pub wanted: Vec<Vec<u8>>,
    /// The trial that follows the log still.
    in_step: Option<in_step::InStep>,
}

/// Alters the guest's course at this moment.
pub fn alter(e: &mut Engine, t: &mut Thread, g: &mut Gate, alteration: Alteration) -> Answer {
    e.prepared.altered = !matches!(alteration, Alteration::Null | Alteration::Apart);
    e.prepared.apart = alteration == Alteration::Apart;
    match alteration {
        Alteration::Null | Alteration::Apart => {}
        Alteration::Flip => match e.other_way(g) {
            Some(to) => g.pc = to,
            None => return Answer::Refused("there is no conditional branch here".into()),
        },
        Alteration::FlipTwo { pc, execution } => match e.other_way(g) {
            Some(to) => {
                let site = Site::Absolute(GuestAddr(pc));
                let probe = Probe { site, instance: execution, action: Action::Flip };
                let at = e.probes.add_from_now(probe, e.loaded.bias);
                e.drop_blocks_over(at);
                g.pc = to;
            }
            None => return Answer::Refused("there is no conditional branch here".into()),
        },
        Alteration::Force(taken) => match e.ways(g.pc) {
            Some((there, here)) => {
                e.probes.add_always(g.pc, Action::Force(taken));
                e.drop_blocks_over(g.pc);
                g.pc = if taken { there } else { here };
            }
            None => return Answer::Refused("there is no conditional branch here".into()),
        },
        Alteration::Skip(to) => g.pc = to,
        Alteration::Return => match sys::read_u64(g.gpr[4]) {
            Some(to) => (g.pc, g.gpr[4]) = (to, g.gpr[4].wrapping_add(8)),
            None => return Answer::Refused("the return address on the stack cannot be read".into()),
        },
        Alteration::SetRegister(n @ 0..16, value) => g.gpr[n as usize] = value,
        Alteration::SetRegister(_, value) => g.rflags = value & 0xcd5 | g.rflags & !0xcd5,
        Alteration::SetMemory(at, bytes) => {
            if sys::write_guest(at.0, &bytes) < bytes.len() {
                return Answer::Refused(alloc::format!("memory at {at} cannot be written"));
            }
        }
        Alteration::Input { offset, bytes } => {
            *match (&mut e.prepared.in_step, &mut e.trial) {
                (Some(s), _) => &mut s.input,
                (None, Some(trial)) => &mut trial.input,
                (None, None) => &mut e.prepared.input,
            } = Some((offset, bytes));
        }
        Alteration::Arm(probe) => {
            let at = e.probes.add_from_now(probe, e.loaded.bias);
            e.drop_blocks_over(at);
            if at == g.pc {
                // The execution that is about to begin counts.
                t.probed = None;
            }
        }
    }
    if let Some(s) = e.in_step() {
        s.altered = true;
    }
    Answer::Done
}

/// From here on the guest goes on by itself, in step with the log as long as it fits.
pub fn begin(e: &mut Engine, t: &mut Thread, g: &mut Gate, limits: TrialLimits) {
    if t.probed != Some(g.pc) {
        // It was led away from where it stopped: when it comes there again, that is another execution.
        t.probed = None;
    }
    let apart = e.prepared.apart;
    in_step::begin(e, limits);
    if limits.belt {
        belt::put_on(e);
    }
    if apart {
        in_step::leave(e, t, g);
    }
}

/// Is a trial under way, in step or not?
pub fn is_on(e: &mut Engine) -> bool {
    e.trial.is_some() || e.in_step().is_some()
}

/// The log no longer tells what happens: the world does, from this moment on.
fn take_over(e: &mut Engine, t: &mut Thread, so_far: in_step::InStep) {
    let in_step::InStep { limits, begun, input, written, .. } = so_far;
    let trial = Trial {
        limits,
        begun,
        world: world::World::default(),
        follow: follow::Follow::default(),
        threads: threads::Threads::default(),
        schedule: schedule::Schedule::default(),
        waited: 0,
        input,
        written,
        mapped: 0,
        resident: resident(),
        turn_end: 0,
        calls: 0,
    };
    e.trial = Some(Box::new(trial));
    follow::begin(e, t);
    schedule::begin(e);
    world::begin(e);
    threads::begin(e);
    replay(e).goal.sites = [None; 2];
    e.place_sites();
    let ticks = turn(e, t);
    let_run(e, ticks);
}

/// The running thread's turn ends after so many ticks.
fn let_run(e: &mut Engine, ticks: u64) {
    trial(e).turn_end = e.clock.now() + ticks;
    e.clock.allow(ticks);
    held::aim(e);
}

/// The trial of `e`, which must be one.
pub fn trial(e: &mut Engine) -> &mut Trial {
    match &mut e.trial {
        Some(t) => t,
        None => crate::report::fatal("asked for a trial where none is under way".into(), 0),
    }
}

/// The most memory that this process has had, in bytes. Whatever grows shows there, be it the guest's or the engine's.
fn resident() -> u64 {
    const GETRUSAGE: u64 = 98;
    let mut usage = [0u64; 18];
    // SAFETY: struct rusage { user and system time, maxrss in KiB, … }: the kernel writes it.
    unsafe { sys::raw3(GETRUSAGE, 0, usage.as_mut_ptr() as u64, 0) };
    usage[4] << 10
}

/// A call is made. A guest that does little between its calls takes long to use up its ticks: nobody may be waiting for it
/// any more.
fn look_for_host(e: &mut Engine) {
    const EACH: u32 = 256;
    let tr = trial(e);
    tr.calls = tr.calls.wrapping_add(1);
    if tr.calls.is_multiple_of(EACH) && e.control.host_is_gone() {
        sys::exit_group(0);
    }
}

/// A turn is over: is the budget, and does another thread want to run?
pub fn turn_over(e: &mut Engine, t: &mut Thread, g: &mut Gate) {
    let now = e.clock.now();
    if held::is_early(e) {
        // The host wants to be asked here; the turn goes on.
        return;
    }
    let tr = trial(e);
    if now.saturating_sub(tr.begun) > tr.limits.ticks {
        ended(e, TrialEnd::RanAway);
    }
    if e.control.host_is_gone() {
        sys::exit_group(0);
    }
    let tr = trial(e);
    if resident().saturating_sub(tr.resident) > tr.limits.memory {
        ended(e, TrialEnd::OutOfMemory);
    }
    threads::worked(e);
    if !look_for_signal(e, t) {
        if !schedule::at_turn_over(e, t, g) {
            threads::give_way(e, t, g);
        }
        look_for_signal(e, t);
    }
    let ticks = turn(e, t);
    let_run(e, ticks);
}

/// A call was made, perhaps another thread runs: what it is to meet is looked for.
pub fn next_turn(e: &mut Engine, t: &mut Thread, g: &mut Gate) {
    if !look_for_signal(e, t) {
        schedule::at_once(e, t, g);
        let ticks = turn(e, t);
        if ticks < TURN {
            let_run(e, ticks);
        }
    }
}

/// Ticks until the running thread is to be looked after.
fn turn(e: &mut Engine, t: &Thread) -> u64 {
    let now = e.clock.now();
    let next = match schedule::is_on(e) {
        true => schedule::next_stop(e),
        false => follow::next_signal(e, t.serial),
    };
    next.map_or(TURN, |tick| tick.saturating_sub(now).clamp(1, TURN))
}

/// Raises the recorded signal that is to come to the running thread now, if there is one and the thread takes it.
pub fn look_for_signal(e: &mut Engine, t: &mut Thread) -> bool {
    if t.has(pending::SIGNAL) {
        return false;
    }
    follow::signal(e, t.serial).is_some_and(|s| raise(t, &s))
}

/// A recorded signal comes; `false` if the thread has it blocked.
fn raise(t: &mut Thread, s: &SignalRecord) -> bool {
    // It is the one that the guest sent to itself, if it did.
    t.held = t.held.filter(|held| held[0] as u32 != s.info[0] as u32);
    (t.info, t.fault, t.synchronous) = (s.info, s.fault, false);
    if t.mask & crate::signals::bit(s.info[0] as u32) != 0 {
        t.held = Some(s.info);
        return false;
    }
    t.raise(pending::SIGNAL);
    true
}

/// The guest wrote to a standard stream.
pub fn output(e: &mut Engine, stream: u8, bytes: &[u8]) {
    const PIECE: usize = 32 << 10;
    let (limits, written) = match e.in_step() {
        Some(s) => (s.limits, &mut s.written),
        None => {
            let tr = trial(e);
            (tr.limits, &mut tr.written)
        }
    };
    let room = limits.output.saturating_sub(*written) as usize;
    *written += bytes.len() as u64;
    for piece in bytes[..bytes.len().min(room)].chunks(PIECE) {
        send(e, &Answer::Output { stream, bytes: piece.to_vec() });
    }
}

/// The trial is over; so is this process.
pub fn ended(e: &mut Engine, end: TrialEnd) -> ! {
    let begun = match e.in_step() {
        Some(s) => s.begun,
        None => trial(e).begun,
    };
    let ticks = e.clock.now().saturating_sub(begun);
    if e.trial.as_ref().is_some_and(|tr| tr.world.is_child) {
        // Its parent in the trial waits for it.
        match end {
            TrialEnd::Exited(status) => sys::exit_group(status as u64),
            TrialEnd::Signaled { signal, .. } => end_by_signal(signal),
            _ => {}
        }
    }
    left::tell(e);
    e.close_trace();
    let answer = Answer::Ended { end, ticks };
    if crate::replay::serve::holds(e) {
        crate::replay::serve::at_trial_end(e, &answer);
    }
    send(e, &answer);
    sys::exit_group(0)
}

/// A child of the trial's own dies as its guest did, for the one that waits for it.
fn end_by_signal(signal: u32) -> ! {
    // SAFETY: puts the default action back, unblocks everything, and sends the signal to this process.
    unsafe {
        let default = crate::signals::Action::default();
        sys::raw(nr::RT_SIGACTION, [signal as u64, &raw const default as u64, 0, 8, 0, 0]);
        let none = 0u64;
        sys::raw(nr::RT_SIGPROCMASK, [2, &raw const none as u64, 0, 8, 0, 0]);
        let pid = sys::raw3(nr::GETPID, 0, 0, 0) as u64;
        let tid = sys::raw3(nr::GETTID, 0, 0, 0) as u64;
        sys::raw3(nr::TGKILL, pid, tid, signal as u64);
    }
    sys::exit_group(128 + signal as u64)
}

/// The guest died of a signal.
pub fn died(e: &mut Engine, g: &Gate, signal: u32, addr: u64) -> ! {
    let moment = Moment { tick: e.clock.now(), pc: g.pc };
    ended(e, TrialEnd::Signaled { signal, moment, addr })
}

/// The world has no answer.
pub fn lost(e: &mut Engine, what: String) -> ! {
    ended(e, TrialEnd::Lost(what))
}

/// Answers of the machine: as recorded while the log fits, else what can be known.
pub fn special(e: &mut Engine, g: &Gate, s: crate::translate::Special) -> [u64; 4] {
    use crate::translate::Special;
    if let Some(values) = follow::special(e, g) {
        return values;
    }
    match s {
        Special::Cpuid => {
            let (leaf, sub) = (g.gpr[0] as u32, g.gpr[1] as u32);
            let r = core::arch::x86_64::__cpuid_count(leaf, sub);
            crate::cpu::cpuid::mask(e.config.cpu, leaf, sub, [r.eax, r.ebx, r.ecx, r.edx]).map(u64::from)
        }
        Special::Random => [e.clock.random(), 0, 0, 0],
        _ => [now_ns(e), 0, 0, 0],
    }
}

/// Nanoseconds since the guest started, as far as the trial knows: a tick is one, waits count in full.
pub fn now_ns(e: &mut Engine) -> u64 {
    e.clock.now() + trial(e).waited
}

/// May the guest have `more` bytes of memory?
pub fn allows_memory(e: &mut Engine, more: u64) -> bool {
    let tr = trial(e);
    if tr.mapped + more > tr.limits.memory {
        return false;
    }
    tr.mapped += more;
    true
}

/// Changes what a read has delivered, if that was altered.
pub fn alter_input(e: &mut Engine, at: u64, len: u64) {
    let input = match e.in_step() {
        Some(s) => &mut s.input,
        None => &mut trial(e).input,
    };
    if let Some((offset, bytes)) = input.take() {
        let n = bytes.len().min(len.saturating_sub(offset) as usize);
        sys::write_guest(at + offset, &bytes[..n]);
    }
}
