//! A replay that a host steers: it stops where the host says, and answers questions there.
//!
//! Requests are taken between two instructions of the guest, in [`stops`]. While the guest runs it comes by at least
//! every few million ticks, so that a packet of the host stops it; with watched bytes it comes by every few ticks and
//! compares them, so a change that is undone within that many ticks is not seen. Where every instruction counts, sites
//! are set wherever the present one can lead.

use super::goal::FOREVER;
use super::{Replay, questions, replay};
use crate::gate::Gate;
use crate::state::Engine;
use crate::sys::{self, nr};
use crate::threads::Thread;
use alloc::vec::Vec;
use iced_x86::{Decoder, DecoderOptions, FlowControl, OpKind};
use model::log::digest;
use model::serve::{Answer, Collected, Moment, Place, Request, Until, Why};
use model::wire::{MAX_PACKET, Replayed, Report};

/// Ticks between two looks at the socket.
const SLICE: u64 = 4_000_000;
/// Ticks between two looks at watched bytes, at least; at most twice as many.
const GRAIN: u64 = 32;
/// A guest that comes by more often than it uses up ticks looks at the socket at every so many visits.
const VISITS: u32 = 256;
/// So many steps are told: they must fit into a packet.
const MOST_STEPS: usize = 1000;

/// What the host has asked for.
#[derive(Default)]
pub struct Serve {
    on: bool,
    /// The guest is on its way.
    running: bool,
    stepping: bool,
    until: Until,
    from: Moment,
    collected: Collected,
    /// Breakpoints of the host, without the sites of a step.
    breakpoints: Vec<u64>,
    watches: Vec<(u64, u32)>,
    seen: u64,
    seen_at: Moment,
    /// The tick of the last look at the socket, and visits since.
    polled: u64,
    visits: u32,
    /// The log counts no longer.
    left: bool,
}

impl Serve {
    /// Does the guest go its own way?
    pub fn has_left(&self) -> bool {
        self.left
    }

    fn watching(&self) -> bool {
        self.on && !self.until.blind && !self.watches.is_empty()
    }
}

/// From now on the host is asked before the guest does anything.
pub fn begin(e: &mut Engine) {
    // Copies of this process are nobody's to wait for.
    crate::signals::actions::tell_kernel(17, crate::signals::actions::SIG_IGN, 0);
    replay(e).serve.on = true;
}

fn moment(e: &Engine, g: &Gate) -> Moment {
    Moment { tick: e.clock.now(), pc: g.pc }
}

pub fn place(e: &mut Engine, t: &Thread, g: &Gate) -> Place {
    Place { moment: moment(e, g), record: replay(e).record, thread: t.serial }
}

/// Deals with the host, if there is one: stops the guest if it is where the host wants it. `false` when the guest's
/// course may have changed meanwhile.
pub fn stops(e: &mut Engine, t: &mut Thread, g: &mut Gate) -> bool {
    if !replay(e).serve.on {
        return true;
    }
    let mut moved = false;
    loop {
        if replay(e).serve.running {
            match reason(e, t, g) {
                Some(why) => answer_stop(e, t, g, why),
                None => break,
            }
        }
        moved = true;
        wait_for_run(e, t, g);
        if !replay(e).serve.on {
            // A trial has begun, and the host has nothing more to ask.
            return true;
        }
    }
    replay(e).goal.reached_site = false;
    if replay(e).serve.until.single && !moved {
        note_step(e, t, g);
    }
    !moved
}

/// Nothing but watched bytes is due: they are looked at without further ado, and the guest goes on if they are as before.
pub fn glance(e: &mut Engine, g: &Gate) -> bool {
    let now = moment(e, g);
    let r = replay(e);
    if !r.serve.watching() || !r.serve.running || !r.goal.is_set() || r.goal.reached_site || now.tick >= r.goal.due {
        return false;
    }
    let rest = r.goal.due - now.tick;
    if watched(e) != replay(e).serve.seen {
        return false;
    }
    replay(e).serve.seen_at = now;
    e.clock.allow_between(GRAIN.min(rest), (2 * GRAIN).min(rest));
    true
}

/// The guest is about to execute an instruction that is told of.
fn note_step(e: &mut Engine, t: &mut Thread, g: &Gate) {
    let here = place(e, t, g);
    let s = &mut replay(e).serve;
    if s.from != here.moment {
        s.stepped(here);
    }
    t.probed = Some(g.pc);
    let sites = successors(e, g);
    set_sites(e, sites);
}

impl Serve {
    fn stepped(&mut self, here: Place) {
        let steps = &mut self.collected.steps;
        if steps.last().is_some_and(|last| last == &here || is_same_step(last, &here)) {
            steps.pop();
        }
        if steps.len() == MOST_STEPS {
            steps.remove(0);
        }
        steps.push(here);
    }
}

/// Was a thread stopped for others here, and went on later without having done anything?
fn is_same_step(last: &Place, here: &Place) -> bool {
    (last.thread, last.moment.pc) == (here.thread, here.moment.pc) && last.record < here.record
}

/// Why the guest is to stop here, if it is.
fn reason(e: &mut Engine, t: &Thread, g: &Gate) -> Option<Why> {
    let now = moment(e, g);
    let pending = is_interrupted(e, now.tick);
    let changed = look_at_watches(e, now);
    let at_site = replay(e).goal.reached_site;
    let r = replay(e);
    let s = &mut r.serve;
    let begun = s.from == now;
    if let Some(since) = changed {
        if !s.until.collect {
            return Some(Why::Changed { since });
        }
        s.collected.last_change = Some((since, now));
    }
    if pending {
        return Some(Why::Interrupted);
    }
    if !begun && (s.stepping || s.until.thread == Some(t.serial)) {
        return Some(Why::Reached);
    }
    if s.until.record.is_some_and(|n| r.record >= n) {
        return Some(Why::Reached);
    }
    match s.until.moment {
        Some(m) if m == now || m.pc == 0 && now.tick >= m.tick => return Some(Why::Reached),
        Some(m) if now > m => return Some(Why::Passed),
        _ => {}
    }
    if at_site && !begun && !s.until.blind && s.breakpoints.contains(&now.pc) {
        s.collected.breakpoints += 1;
        if s.until.collect {
            s.collected.last_breakpoint = Some(Place { moment: now, record: r.record, thread: t.serial });
        } else if s.collected.breakpoints > s.until.skip {
            return Some(Why::Breakpoint);
        }
    }
    None
}

/// Has the host sent something? That is looked at from time to time only, because it takes a system call.
fn is_interrupted(e: &mut Engine, tick: u64) -> bool {
    let s = &mut replay(e).serve;
    s.visits += 1;
    if s.visits < VISITS && tick.saturating_sub(s.polled) < SLICE / 2 {
        return false;
    }
    (s.visits, s.polled) = (0, tick);
    packet_waits(e)
}

/// Have watched bytes changed since the last look? Answers when that was.
fn look_at_watches(e: &mut Engine, now: Moment) -> Option<Moment> {
    if !replay(e).serve.watching() {
        return None;
    }
    let seen = watched(e);
    let s = &mut replay(e).serve;
    let since = core::mem::replace(&mut s.seen_at, now);
    (core::mem::replace(&mut s.seen, seen) != seen).then_some(since)
}

/// Digest of the watched bytes as they are.
fn watched(e: &mut Engine) -> u64 {
    let mut h = 0;
    let s = &replay(e).serve;
    for (at, len) in &s.watches {
        let mut buffer = [0u8; 64];
        let (mut at, mut len) = (*at, *len as usize);
        while len > 0 {
            let n = len.min(buffer.len());
            let got = sys::read_guest(at, &mut buffer[..n]);
            h = digest(h ^ got as u64, &buffer[..got]);
            (at, len) = (at.wrapping_add(n as u64), len - n);
        }
    }
    h
}

/// Where the host wants the guest to be asked: a tick and a pc.
pub fn wanted(e: &mut Engine) -> Option<(u64, u64)> {
    let s = &replay(e).serve;
    if !s.on {
        return None;
    }
    s.until.moment.map(|m| (m.tick, m.pc))
}

/// Ticks after which the host wants to be asked again.
pub fn patience(e: &mut Engine) -> u64 {
    match replay(e).serve.on || e.in_step().is_some() {
        false => FOREVER,
        true => SLICE,
    }
}

/// Ticks after which watched bytes are to be looked at.
pub fn grain(e: &mut Engine) -> Option<u64> {
    replay(e).serve.watching().then_some(GRAIN)
}

fn answer_stop(e: &mut Engine, t: &Thread, g: &Gate, why: Why) {
    let place = place(e, t, g);
    let s = &mut replay(e).serve;
    (s.running, s.stepping) = (false, false);
    let collected = core::mem::take(&mut s.collected);
    send(e, &Answer::Stopped { why, place, collected });
}

pub fn send(e: &Engine, answer: &Answer) {
    e.control.send(e.pid, Report::Answer(answer.encode()));
}

/// Has the host sent something?
fn packet_waits(e: &Engine) -> bool {
    let mut poll = [e.control.fd as u32, 1];
    // SAFETY: struct pollfd { fd, events POLLIN, revents }: the kernel writes its last two bytes.
    unsafe { sys::raw3(nr::POLL, poll.as_mut_ptr() as u64, 1, 0) == 1 }
}

/// Answers questions until the guest is to go on.
fn wait_for_run(e: &mut Engine, t: &mut Thread, g: &mut Gate) {
    loop {
        let (request, fd) = receive(e);
        match request {
            Some(Request::Run(until)) => return let_go(e, t, g, until, false),
            Some(Request::Step) => return let_go(e, t, g, Until::default(), true),
            Some(other) => questions::answer(e, t, g, other, fd),
            None => send(e, &Answer::Refused("the request does not parse".into())),
        }
        if !replay(e).serve.on {
            return;
        }
    }
}

fn let_go(e: &mut Engine, t: &mut Thread, g: &mut Gate, until: Until, stepping: bool) {
    let here = place(e, t, g);
    crate::vault::goes_on();
    // A site here has been seen, unless something is to be done at it that has not been counted.
    if t.probed.is_some() || !e.probes.acts_at(g.pc) {
        t.probed = Some(g.pc);
    }
    let sites = if stepping || until.single { successors(e, g) } else { Vec::new() };
    let seen = watched(e);
    let s = &mut replay(e).serve;
    (s.running, s.stepping, s.until, s.from) = (true, stepping, until, here.moment);
    (s.seen, s.seen_at) = (seen, here.moment);
    (s.polled, s.visits) = (here.moment.tick, 0);
    s.collected = Collected::default();
    if until.single {
        s.collected.steps.push(here);
    }
    set_sites(e, sites);
    replay(e).goal.forget();
    if e.trial.is_some() {
        crate::trial::held::aim(e);
    }
}

/// The guest is to be asked at the host's breakpoints and at these sites.
fn set_sites(e: &mut Engine, sites: Vec<u64>) {
    let r = replay(e);
    let mut all = if r.serve.until.blind { Vec::new() } else { r.serve.breakpoints.clone() };
    all.extend(sites);
    if r.goal.breakpoints != all {
        r.goal.breakpoints = all;
        e.place_sites();
    }
}

impl Replay {
    /// The host has nothing more to ask: nothing is watched, compared or noted from here on.
    pub fn release(&mut self) {
        self.serve = Serve::default();
        self.predicates = super::predicates::Predicates::default();
        self.source.config.verify = false;
        self.goal.breakpoints.clear();
        self.goal.sites = [None; 2];
        self.goal.forget();
    }

    /// A trial begins with which the host stays: what it has set holds, but the log is not what the guest must do.
    pub fn hold(&mut self) {
        self.predicates = super::predicates::Predicates::default();
        self.source.config.verify = false;
        self.goal.forget();
    }
}

/// Does the host stay with the trial that is under way?
pub fn holds(e: &mut Engine) -> bool {
    replay(e).serve.on
}

/// A trial with which the host stays is over: it may still ask, and hears of the end whenever it lets the guest go.
pub fn at_trial_end(e: &mut Engine, ended: &Answer) -> ! {
    let t = Thread::current();
    // SAFETY: the baton is held.
    let g = unsafe { crate::gate::gate() };
    send(e, ended);
    loop {
        let (request, fd) = receive(e);
        match request {
            Some(Request::Run(_) | Request::Step) => send(e, ended),
            Some(Request::Alter(_)) => send(e, &Answer::Refused("the altered run is over".into())),
            Some(other) => questions::answer(e, t, g, other, fd),
            None => send(e, &Answer::Refused("the request does not parse".into())),
        }
    }
}

/// From now on the guest goes its own way.
pub fn leave(e: &mut Engine) {
    let r = replay(e);
    r.serve.left = true;
    r.in_call = None;
    r.goal.forget();
}

pub fn set_breakpoints(e: &mut Engine, list: Vec<u64>) {
    replay(e).serve.breakpoints = list;
}

pub fn set_watches(e: &mut Engine, list: Vec<(u64, u32)>) {
    replay(e).serve.watches = list;
}

/// Where the instruction at the pc can lead, as far as that is known; the engine executes the others itself.
fn successors(e: &Engine, g: &Gate) -> Vec<u64> {
    let code = e.memory.code(g.pc).unwrap_or_default();
    let i = Decoder::with_ip(64, code, g.pc, DecoderOptions::NONE).decode();
    let mut all = alloc::vec![i.next_ip()];
    match i.flow_control() {
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch | FlowControl::Call => {
            all.push(i.near_branch_target());
        }
        FlowControl::Return => all.extend(sys::read_u64(g.gpr[4])),
        FlowControl::IndirectBranch | FlowControl::IndirectCall => all.extend(indirect_target(&i, g)),
        _ => {}
    }
    all
}

/// Where the instruction at the pc leads, if it is an indirect jump.
pub fn jump_target(e: &Engine, g: &Gate) -> Option<u64> {
    let i = Decoder::with_ip(64, e.memory.code(g.pc)?, g.pc, DecoderOptions::NONE).decode();
    if i.flow_control() == FlowControl::IndirectBranch { indirect_target(&i, g) } else { None }
}

/// Where an indirect branch leads.
fn indirect_target(i: &iced_x86::Instruction, g: &Gate) -> Option<u64> {
    let value = |register: iced_x86::Register| -> Option<u64> {
        use iced_x86::Register;
        match register {
            Register::FS => Some(crate::gate::fs_base()),
            Register::GS => Some(g.guest_gs),
            r if r.is_gpr() => Some(g.gpr[(r.full_register() as u32).checked_sub(Register::RAX as u32)? as usize & 15]),
            _ => Some(0),
        }
    };
    if i.op0_kind() == OpKind::Register {
        return value(i.op0_register());
    }
    let at = i.virtual_address(0, 0, |register, _, _| value(register))?;
    sys::read_u64(at)
}

/// The replay is over: the host may still ask. A guest that goes its own way may go on from here.
pub fn at_end(e: &mut Engine, replayed: Replayed) {
    e.close_trace();
    let t = Thread::current();
    // SAFETY: the baton is held.
    let g = unsafe { crate::gate::gate() };
    loop {
        if replay(e).serve.running {
            let why = last_change(e, g).unwrap_or_else(|| Why::End(replayed.clone()));
            answer_stop(e, t, g, why);
        }
        let (request, fd) = receive(e);
        match request {
            Some(Request::Run(until)) if replay(e).serve.left => {
                let_go(e, t, g, until, false);
                crate::run::run(t);
            }
            Some(Request::Step) if replay(e).serve.left => {
                let_go(e, t, g, Until::default(), true);
                crate::run::run(t);
            }
            Some(Request::Run(until)) => {
                let now = moment(e, g);
                let seen = watched(e);
                let s = &mut replay(e).serve;
                (s.running, s.until, s.seen, s.seen_at) = (true, until, seen, now);
            }
            Some(Request::Step) => replay(e).serve.running = true,
            Some(other) => questions::answer(e, t, g, other, fd),
            None => send(e, &Answer::Refused("the request does not parse".into())),
        }
    }
}

/// Watched bytes may have changed since the last look before the end.
fn last_change(e: &mut Engine, g: &Gate) -> Option<Why> {
    let now = moment(e, g);
    let since = look_at_watches(e, now)?;
    let s = &mut replay(e).serve;
    if !s.until.collect {
        return Some(Why::Changed { since });
    }
    s.collected.last_change = Some((since, now));
    None
}

/// A guest that goes its own way gets a signal of its own, which nobody can deliver.
pub fn at_fault(e: &mut Engine, signal: u32) {
    // SAFETY: the baton is held.
    let pc = unsafe { crate::gate::gate() }.pc;
    let (records, tick) = (replay(e).record, e.clock.now());
    at_end(e, Replayed { records, tick, pc, difference: None, ending: 1, status: signal });
}

/// The next request and the descriptor that came with it. Without a host this process has no purpose.
fn receive(e: &mut Engine) -> (Option<Request>, Option<i32>) {
    const RECVMSG: u64 = 47;
    const MSG_CMSG_CLOEXEC: u64 = 0x4000_0000;
    // It is kept: a copy of this process has its own of the pages that are written to, and most packets are short.
    let buffer = &mut e.packet;
    buffer.resize(MAX_PACKET, 0);
    loop {
        let iov = [buffer.as_mut_ptr() as u64, buffer.len() as u64];
        let mut control = [0u64; 4];
        let mut message: [u64; 7] = [0, 0, iov.as_ptr() as u64, 1, control.as_mut_ptr() as u64, 32, 0];
        // SAFETY: all buffers live until the call returns; the kernel writes no more than their lengths.
        let n = unsafe { sys::raw3(RECVMSG, e.control.fd as u64, message.as_mut_ptr() as u64, MSG_CMSG_CLOEXEC) };
        match n {
            n if n == -sys::err::EINTR => continue,
            1.. => {
                // struct cmsghdr { len, level SOL_SOCKET, type SCM_RIGHTS } and one int.
                let fd = (message[5] >= 20 && control[1] == 1 | 1 << 32).then_some(control[2] as u32 as i32);
                return (Request::decode(&buffer[..n as usize]), fd);
            }
            _ => sys::exit_group(0),
        }
    }
}
