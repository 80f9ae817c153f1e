//! Probes: something is done at the n-th execution of one instruction.
//!
//! A block that starts at a probed address counts down a word behind GS and leaves the cache when it reaches zero, so an
//! armed site costs a few instructions until its moment. Blocks never run over a probed address.

use crate::address_map::AddressMap;
use crate::gate::{Gate, TABLE_ENTRIES, TABLE_OFFSET};
use crate::state::Engine;
use crate::sys;
use crate::threads::Thread;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use iced_x86::{ConditionCode, Decoder, DecoderOptions};
use model::GuestAddr;
use model::layout::GATE;
use model::wire::{Action, Probe, Registers, Report, Site};
use trace::format::Special;

/// Counters lie behind the lookup table.
const COUNTERS: u64 = TABLE_OFFSET + TABLE_ENTRIES as u64 * 8;
/// Bytes for them.
pub const COUNTER_BYTES: u64 = 512 << 10;

/// All probes of one address.
struct SiteState {
    counter: u32,
    executed: u64,
    /// What the counter was last set to.
    armed: u64,
    probes: Vec<u32>,
    /// A replay wants to be asked at every execution.
    stop: bool,
    /// A conditional branch whose executions are noted.
    predicate: bool,
    /// A turn may end here, so many times more.
    chaos: u32,
}

impl SiteState {
    fn new(counter: u32) -> SiteState {
        SiteState { counter, executed: 0, armed: 0, probes: Vec::new(), stop: false, predicate: false, chaos: 0 }
    }
}

#[derive(Default)]
pub struct Probes {
    all: Vec<Probe>,
    sites: AddressMap<SiteState>,
    /// Their addresses in order.
    ordered: BTreeSet<u64>,
    /// Counters of sites that are gone.
    free: Vec<u32>,
    /// Executions of noted branches are only counted for now.
    counting: bool,
}

/// What a probe asks the run loop to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Execute the instruction.
    Execute,
    /// The pc has been changed.
    Elsewhere,
}

impl Probes {
    /// Resolves sites once the load bias is known and arms them.
    pub fn arm(&mut self, probes: &[Probe], bias: u64) {
        self.all = probes.to_vec();
        for (n, p) in probes.iter().enumerate() {
            let at = resolve(p.site, bias);
            let counter = self.sites.len() as u32;
            let site = self.sites.entry(at).or_insert(SiteState::new(counter));
            site.probes.push(n as u32);
            self.ordered.insert(at);
        }
        let addresses: Vec<u64> = self.sites.keys().copied().collect();
        for at in addresses {
            self.rearm(at);
        }
    }

    /// One more probe; 0 as its instance is the next execution. Answers its address, whose blocks must be made anew.
    pub fn add(&mut self, mut probe: Probe, bias: u64) -> u64 {
        let at = resolve(probe.site, bias);
        let executed = self.count_so_far(at);
        if probe.instance == 0 {
            probe.instance = executed + 1;
        }
        if let Some(site) = self.sites.get_mut(&at) {
            site.probes.push(self.all.len() as u32);
        }
        self.all.push(probe);
        self.ordered.insert(at);
        self.rearm(at);
        at
    }

    /// One more probe, whose instance counts from now on; 0 is every execution. Answers as [`Probes::add`] does.
    pub fn add_from_now(&mut self, mut probe: Probe, bias: u64) -> u64 {
        let at = resolve(probe.site, bias);
        if probe.instance == 0 {
            return self.add_always(at, probe.action);
        }
        probe.instance += self.count_so_far(at);
        self.add(probe, bias)
    }

    /// How often a site was executed; one that is not there yet begins here.
    fn count_so_far(&mut self, at: u64) -> u64 {
        if !self.sites.contains_key(&at) {
            let counter = self.free_counter();
            self.sites.insert(at, SiteState::new(counter));
        }
        self.account(at)
    }

    /// Adds what the counter of a site has counted; answers how often the site was executed.
    fn account(&mut self, at: u64) -> u64 {
        let Some(site) = self.sites.get_mut(&at) else { return 0 };
        if site.armed != 0 {
            let offset = COUNTERS + site.counter as u64 * 8;
            // SAFETY: a counter word behind the table, mapped with the gate.
            let left = unsafe { *((GATE + offset) as *const u64) };
            site.executed += site.armed - left;
            // What was counted is not counted again.
            site.armed = left;
        }
        site.executed
    }

    /// Executions of noted branches are only counted, or noted one by one, from now on.
    pub fn only_count(&mut self, counting: bool) {
        self.counting = counting;
        for at in self.noted() {
            self.rearm(at);
        }
    }

    /// How often all branches that are noted were executed.
    pub fn count_noted(&mut self) -> u64 {
        self.noted().into_iter().map(|at| self.account(at)).sum()
    }

    fn noted(&self) -> Vec<u64> {
        self.sites.iter().filter(|(_, s)| s.predicate).map(|(at, _)| *at).collect()
    }

    /// Is something to be done at `pc`, now or later?
    pub fn acts_at(&self, pc: u64) -> bool {
        self.sites.get(&pc).is_some_and(|s| !s.probes.is_empty())
    }

    /// Something is done at every execution from now on. Answers the address, whose blocks must be made anew.
    pub fn add_always(&mut self, at: u64, action: Action) -> u64 {
        let counter = self.free_counter();
        let number = self.all.len() as u32;
        self.all.push(Probe { site: Site::Absolute(GuestAddr(at)), instance: 0, action });
        self.sites.entry(at).or_insert_with(|| SiteState::new(counter)).probes.push(number);
        self.ordered.insert(at);
        self.rearm(at);
        at
    }

    /// Sets the addresses at which a replay is asked; answers those whose blocks must be made anew.
    pub fn set_stops(&mut self, stops: &[u64]) -> Vec<u64> {
        let mut changed = Vec::new();
        for (at, site) in self.sites.iter_mut() {
            let wanted = stops.contains(at);
            if site.stop && !wanted && site.probes.is_empty() && !site.predicate && site.chaos == 0 {
                changed.push(*at);
            }
            site.stop = wanted;
        }
        for at in &changed {
            self.remove(*at);
        }
        for at in stops {
            if !self.sites.contains_key(at) {
                let counter = self.free_counter();
                let site = SiteState { stop: true, ..SiteState::new(counter) };
                self.sites.insert(*at, site);
                self.ordered.insert(*at);
                changed.push(*at);
            }
            self.rearm(*at);
        }
        changed
    }

    /// Notes executions of the conditional branch at `pc` from now on; `false` if that is done already, or cannot be.
    pub fn note_predicate(&mut self, pc: u64) -> bool {
        if self.sites.len() as u64 * 8 >= COUNTER_BYTES - 64 {
            return false;
        }
        let counter = self.free_counter();
        let site = self.sites.entry(pc).or_insert_with(|| SiteState::new(counter));
        if core::mem::replace(&mut site.predicate, true) {
            return false;
        }
        self.ordered.insert(pc);
        self.rearm(pc);
        true
    }

    /// Turns may end at `pc`, this many times.
    pub fn note_chaos(&mut self, pc: u64, times: u32) -> bool {
        if self.sites.len() as u64 * 8 >= COUNTER_BYTES - 64 || self.sites.contains_key(&pc) {
            return false;
        }
        let counter = self.free_counter();
        self.sites.insert(pc, SiteState { chaos: times, ..SiteState::new(counter) });
        self.ordered.insert(pc);
        self.rearm(pc);
        true
    }

    /// The guest is where a turn may end: how many times more it may.
    pub fn chaos_hit(&mut self, pc: u64) -> Option<u32> {
        let site = self.sites.get_mut(&pc).filter(|s| s.chaos > 0)?;
        site.chaos -= 1;
        let left = site.chaos;
        self.rearm(pc);
        Some(left)
    }

    /// The number of this execution of a conditional branch that is noted.
    pub fn predicate_hit(&mut self, pc: u64) -> Option<u64> {
        self.sites.get(&pc).filter(|s| s.predicate)?;
        let n = self.account(pc);
        self.rearm(pc);
        Some(n)
    }

    /// No executions are noted any more; answers where they were.
    pub fn forget_predicates(&mut self) -> Vec<u64> {
        let gone: Vec<u64> = self.sites.iter().filter(|(_, s)| s.predicate && !s.stop).map(|(at, _)| *at).collect();
        gone.iter().for_each(|at| self.remove(*at));
        gone
    }

    fn remove(&mut self, at: u64) {
        self.ordered.remove(&at);
        if let Some(site) = self.sites.remove(&at) {
            self.free.push(site.counter);
        }
    }

    /// A counter that no site uses.
    fn free_counter(&mut self) -> u32 {
        self.free.pop().unwrap_or(self.sites.len() as u32)
    }

    pub fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }

    pub fn at(&self, pc: u64) -> bool {
        !self.sites.is_empty() && self.sites.contains_key(&pc)
    }

    /// Bytes from `at` to the next probed address, at most `max`.
    pub fn distance(&self, at: u64, max: usize) -> usize {
        let ahead = self.ordered.range(at..).next().map_or(u64::MAX, |site| site - at);
        ahead.min(max as u64) as usize
    }

    /// Gate-relative offset of the counter for `pc`.
    pub fn counter(&self, pc: u64) -> Option<i32> {
        let s = self.sites.get(&pc)?;
        let offset = COUNTERS + s.counter as u64 * 8;
        (s.counter as u64 * 8 < COUNTER_BYTES).then_some(offset as i32)
    }

    /// Does a replay want to be asked at `pc`?
    pub fn stops_at(&self, pc: u64) -> bool {
        self.sites.get(&pc).is_some_and(|s| s.stop)
    }

    /// Sets the counter of `pc` to the distance of its next interesting execution.
    fn rearm(&mut self, pc: u64) {
        self.account(pc);
        let Some(offset) = self.counter(pc) else { return };
        let Some(s) = self.sites.get(&pc) else { return };
        let next = s
            .probes
            .iter()
            .map(|n| match self.all[*n as usize].instance {
                0 => 1,
                i if i > s.executed => i - s.executed,
                _ => u64::MAX >> 1,
            })
            .min()
            .unwrap_or(u64::MAX >> 1);
        let asked = s.stop || s.predicate && !self.counting || s.chaos > 0;
        let next = if asked { 1 } else { next };
        if let Some(s) = self.sites.get_mut(&pc) {
            s.armed = next;
        }
        // SAFETY: a counter word behind the table, mapped with the gate.
        unsafe { *((GATE + offset as u64) as *mut u64) = next };
    }
}

fn resolve(site: Site, bias: u64) -> u64 {
    match site {
        Site::Absolute(a) => a.0,
        Site::Executable(offset) => bias.wrapping_add(offset),
    }
}

impl Engine {
    /// The counter of the probe at the guest's pc reached zero.
    pub fn probe_hit(&mut self, t: &Thread, g: &mut Gate) -> Next {
        let pc = g.pc;
        let bias = self.loaded.bias;
        let now = self.probes.account(pc);
        let Some(site) = self.probes.sites.get(&pc) else { return Next::Execute };
        let due: Vec<u32> = site.probes.clone();
        self.probes.rearm(pc);
        let mut next = Next::Execute;
        for n in due {
            let p = self.probes.all[n as usize].clone();
            if p.instance != 0 && p.instance != now {
                continue;
            }
            match p.action {
                Action::Report => {
                    let registers = Registers { gpr: g.gpr, rip: g.pc, rflags: g.rflags };
                    let report = Report::ProbeHit { probe: n, tid: t.tid, tick: self.clock.now(), registers };
                    self.control.send(self.pid, report);
                }
                Action::Flip => {
                    if let Some(to) = self.other_way(g) {
                        self.trace_special(Special::Step { pc });
                        g.pc = to;
                        if to <= pc && self.replay.is_some() {
                            // A branch back is a tick: moments must differ.
                            g.count_tick();
                        }
                        next = Next::Elsewhere;
                    }
                }
                Action::Force(taken) => {
                    if let Some((there, here)) = self.ways(pc) {
                        self.trace_special(Special::Step { pc });
                        g.pc = if taken { there } else { here };
                        if g.pc <= pc {
                            // A branch back is a tick, whoever takes it.
                            g.count_tick();
                        }
                        next = Next::Elsewhere;
                    }
                }
                Action::Skip(to) => {
                    g.pc = resolve(to, bias);
                    next = Next::Elsewhere;
                }
                Action::SetRegister(r, v) => match r {
                    0..16 => g.gpr[r as usize] = v,
                    _ => g.rflags = v & 0xcd5 | g.rflags & !0xcd5,
                },
                Action::SetMemory(at, bytes) => {
                    sys::write_guest(at.0, &bytes);
                }
                Action::SwitchMode(mode) => {
                    self.switch_mode(mode);
                }
                Action::Return => {
                    if let Some(to) = sys::read_u64(g.gpr[4]) {
                        g.pc = to;
                        g.gpr[4] += 8;
                        // So is a return.
                        g.count_tick();
                        next = Next::Elsewhere;
                    }
                }
                Action::StartRecording => self.begin_region(t, g),
                Action::StopRecording => self.end_region(),
            }
        }
        next
    }

    /// Will the conditional branch at the pc be taken?
    pub fn is_taken(&self, g: &Gate) -> bool {
        let code = self.memory.code(g.pc).unwrap_or_default();
        let i = Decoder::with_ip(64, code, g.pc, DecoderOptions::NONE).decode();
        i.is_jcc_short_or_near() && condition(i.condition_code(), g.rflags)
    }

    /// Where the conditional branch at the pc would not go.
    pub fn other_way(&self, g: &Gate) -> Option<u64> {
        let (there, here) = self.ways(g.pc)?;
        Some(if self.is_taken(g) { here } else { there })
    }

    /// Where the conditional branch at `pc` leads if it is taken, and if not.
    pub fn ways(&self, pc: u64) -> Option<(u64, u64)> {
        let i = Decoder::with_ip(64, self.memory.code(pc)?, pc, DecoderOptions::NONE).decode();
        i.is_jcc_short_or_near().then(|| (i.near_branch_target(), i.next_ip()))
    }
}

/// Does a condition hold?
fn condition(cc: ConditionCode, flags: u64) -> bool {
    let f = |bit: u32| flags >> bit & 1 != 0;
    let (cf, pf, zf, sf, of) = (f(0), f(2), f(6), f(7), f(11));
    match cc {
        ConditionCode::None => true,
        ConditionCode::o => of,
        ConditionCode::no => !of,
        ConditionCode::b => cf,
        ConditionCode::ae => !cf,
        ConditionCode::e => zf,
        ConditionCode::ne => !zf,
        ConditionCode::be => cf || zf,
        ConditionCode::a => !cf && !zf,
        ConditionCode::s => sf,
        ConditionCode::ns => !sf,
        ConditionCode::p => pf,
        ConditionCode::np => !pf,
        ConditionCode::l => sf != of,
        ConditionCode::ge => sf == of,
        ConditionCode::le => zf || sf != of,
        ConditionCode::g => !zf && sf == of,
    }
}
