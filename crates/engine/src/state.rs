//! The engine's state for one process, and its one instance.

use crate::address_map::AddressMap;
use crate::cache::{BlockIndex, Cache, Place};
use crate::code_pages::CodePages;
use crate::files::HiddenFds;
use crate::memory::Memory;
use crate::probes::Probes;
use crate::report::Control;
use crate::signals::Actions;
use crate::tracer::Tracer;
use crate::translate::{Decoded, Emitter, Translation};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicPtr, Ordering::*};
use model::wire::{BlockCount, Config, Report, Stats};
use model::{GuestAddr, Mode};

/// Everything the engine knows about its process. Exclusive to the thread that holds the baton.
pub struct Engine {
    pub config: Config,
    pub mode: Mode,
    pub memory: Memory,
    pub cache: Cache,
    pub emitter: Emitter,
    pub decoded: Decoded,
    pub translation: Translation,
    pub pages: CodePages,
    pub actions: Actions,
    pub control: Control,
    /// Where requests of the host are received.
    pub packet: Vec<u8>,
    pub hidden: HiddenFds,
    pub probes: Probes,
    pub tracer: Tracer,
    /// These two change at every call of the guest and live in the shared page, outside the vault.
    pub stats: &'static mut Stats,
    pub clock: &'static mut Clock,
    /// Where a handler stopped the guest, when that was inside a block. In the shared page too: a fault of the guest must
    /// not open the vault.
    pub stopped: &'static mut Option<Place>,
    /// The block whose direct lookup faulted and its branch, between handler and engine. In the shared page as well.
    pub missed_at: &'static mut Option<(BlockIndex, u64)>,
    /// Blocks whose indirect branch leads far away, or to a target without room for an entry: it is looked up with a check.
    pub checked_sites: AddressMap<()>,
    /// Direct lookup does not work for this process.
    pub checked_only: bool,
    /// Instructions executed that block counters do not show (mode count).
    pub count_correction: i64,
    pub exe: String,
    pub pid: u32,
    /// Thread regions that exist.
    pub thread_regions: u32,
    pub vfork: Option<crate::fork::VforkChild>,
    /// The belt around trials is on ([`crate::trial::belt`]).
    pub belted: bool,
    pub filters: crate::seccomp::Filters,
    pub notes: Vec<String>,
    pub loaded: crate::load::Loaded,
    /// Numbers of pages that code was lately read from.
    pub readable: [u64; 4],
    pub counters_mapped: bool,
    pub coverage: Vec<BlockCount>,
    /// Where the guest's auxiliary vector lies on its stack.
    pub auxv: core::ops::Range<u64>,
    /// Thread regions that no task uses any more.
    pub free_regions: Vec<u32>,
    /// Files kept so far, by stamp, with the numbers of their records; and how many copies were made.
    pub kept: Vec<(crate::record::files::Stamp, u32)>,
    pub copies: u32,
    /// Files that were opened, by device and inode, with the numbers of their records.
    pub opened: BTreeMap<(u64, u64), u32>,
    pub chaos: crate::record::chaos::Chaos,
    pub region: crate::record::region::Region,
    /// Instruction set extensions met so far, one bit each.
    pub features: [u64; 4],
    /// Where each was met, as in the log; for those who take over the translations.
    pub feature_records: Vec<Vec<u8>>,
    /// Was this image started by the host?
    pub first: bool,
    /// What was loaded, if translations of it are handed on.
    pub identity: Option<u64>,
    /// Reasons for which the recording is not exact.
    pub inexact: Vec<String>,
    /// The guest has mapped memory that it may share.
    pub shares_memory: bool,
    /// The recording that is replayed, if one is.
    pub replay: Option<alloc::boxed::Box<crate::replay::Replay>>,
    /// The trial that left the recording, if one did, and what was altered for it.
    pub trial: Option<alloc::boxed::Box<crate::trial::Trial>>,
    pub prepared: crate::trial::Prepared,
    /// What the host wants to know of the trial while it runs.
    pub looks: alloc::vec::Vec<model::serve::Look>,
}

/// Ticks and virtual time.
///
/// A tick counts down a word in memory, and the next one that counts down the same word waits for that: ten cycles on some
/// processors, more than programs take from one branch back or return to the next. So there are two words, and the address
/// of a branch decides which one it counts down. A stretch of ticks is dealt to both so that whichever is used up first,
/// the stretch is not exceeded; what is left of it then is dealt again.
#[derive(Default)]
pub struct Clock {
    /// Ticks before the counters were dealt.
    base: u64,
    /// What the counters held together then.
    dealt: u64,
    /// How many ticks the guest was to go on then, at least and at most.
    least: u64,
    most: u64,
    /// Nanoseconds that virtual clocks have been advanced beyond their ticks.
    pub skipped_ns: u64,
    pub rng: u64,
}

/// Length of a turn in ticks, when nothing asks for another.
const TURN: u64 = 100_000;

impl Clock {
    pub fn seeded(seed: u64) -> Clock {
        let rng = seed.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1;
        Clock { rng, ..Clock::default() }
    }

    /// The tick now.
    pub fn now(&self) -> u64 {
        self.base + self.passed()
    }

    /// Ticks since the counters were dealt.
    fn passed(&self) -> u64 {
        // SAFETY: the baton is held.
        let [a, b] = unsafe { crate::gate::gate() }.budgets;
        self.dealt.wrapping_sub(a.wrapping_add(b))
    }

    /// It is this tick now.
    pub fn begin_at(&mut self, tick: u64) {
        self.settle();
        self.base = tick;
    }

    /// The engine made the guest go somewhere: that is a tick too.
    pub fn step(&mut self) {
        self.base += 1;
    }

    /// The engine is about to make the guest go once more where it has gone already: that is no tick of its own.
    pub fn step_back(&mut self) {
        self.base = self.base.saturating_sub(1);
    }

    /// The guest leaves the cache after this many more ticks.
    pub fn allow(&mut self, ticks: u64) {
        self.allow_between(ticks, ticks);
    }

    /// The guest leaves the cache after at least and at most this many more ticks. Where the least is not more than half
    /// of the most, it leaves it only once.
    pub fn allow_between(&mut self, least: u64, most: u64) {
        self.settle();
        (self.least, self.most) = (least, most);
        self.deal();
    }

    /// Hands out a new turn.
    pub fn refill(&mut self, seeded: bool) {
        let ticks = if seeded { TURN / 4 + self.random() % (2 * TURN) } else { TURN };
        self.allow_between(ticks / 2, ticks);
    }

    /// Is one of the counters used up?
    pub fn is_out(&self) -> bool {
        // SAFETY: the baton is held.
        unsafe { crate::gate::gate() }.budgets.contains(&0)
    }

    /// One of the counters is used up: is the guest to go on? Then what is left is dealt.
    pub fn goes_on(&mut self) -> bool {
        if self.passed() >= self.least {
            return false;
        }
        self.settle();
        self.deal();
        true
    }

    /// Ticks that the guest may go on before it leaves the cache.
    pub fn may_go_on_for(&self) -> u64 {
        self.most.saturating_sub(self.passed())
    }

    /// Counts what has passed since the counters were dealt as past.
    fn settle(&mut self) {
        let passed = self.passed();
        self.base += passed;
        self.dealt = self.dealt.wrapping_sub(passed);
        self.least = self.least.saturating_sub(passed);
        self.most = self.most.saturating_sub(passed);
    }

    fn deal(&mut self) {
        let budgets = dealt(self.most);
        self.dealt = budgets[0] + budgets[1];
        // SAFETY: the baton is held.
        unsafe { crate::gate::gate() }.budgets = budgets;
    }

    /// xorshift64*: enough for schedules and for the guest's seeded random numbers.
    pub fn random(&mut self) -> u64 {
        self.rng ^= self.rng >> 12;
        self.rng ^= self.rng << 25;
        self.rng ^= self.rng >> 27;
        self.rng.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Virtual nanoseconds since the start: a tick is one.
    pub fn virtual_ns(&self) -> u64 {
        self.now() + self.skipped_ns
    }
}

/// So many ticks at most, in two counters. When the one is used up at least one tick of the other is left, so together they
/// hold one more.
fn dealt(most: u64) -> [u64; 2] {
    let both = if most == 0 { 0 } else { most.saturating_add(1) };
    [both - both / 2, both / 2]
}

static ENGINE: AtomicPtr<Engine> = AtomicPtr::new(core::ptr::null_mut());

/// Makes `e` the engine of this process.
pub fn install(e: &'static mut Engine) {
    ENGINE.store(e, Release);
}

/// The engine.
///
/// # Safety
/// It must have been installed, and the caller must hold the baton (or be a handler that interrupted guest code of the
/// thread that does).
pub unsafe fn engine() -> &'static mut Engine {
    // SAFETY: by the caller.
    unsafe { &mut *ENGINE.load(Acquire) }
}

pub fn is_installed() -> bool {
    !ENGINE.load(Acquire).is_null()
}

/// Does code translated for `mode` count ticks? Counters and traces need them only for a schedule that follows from a seed,
/// and for recordings, whose moments are named by them.
pub fn ticks(mode: Mode, clocked: bool) -> bool {
    match mode {
        Mode::None => false,
        Mode::Tick => true,
        Mode::Count | Mode::Trace => clocked,
    }
}

impl Engine {
    pub fn seeded(&self) -> bool {
        self.config.seed.is_some()
    }

    /// Are moments named by ticks?
    pub fn clocked(&self) -> bool {
        self.seeded() || self.config.record.is_some() || self.config.replay.is_some()
    }

    /// Is the machine's time hidden from the guest?
    pub fn virtual_time(&self) -> bool {
        self.clocked()
    }

    /// Does the guest follow the log?
    pub fn replaying(&self) -> bool {
        self.replay.is_some() && self.trial.is_none()
    }

    /// Does the guest's code count ticks now?
    pub fn ticks(&self) -> bool {
        ticks(self.mode, self.clocked())
    }

    /// The image ends: sends what was counted.
    pub fn send_totals(&mut self) {
        self.harvest_counts();
        let s = crate::threads::sched();
        self.stats.mode = self.mode as u8;
        self.stats.cache_bytes = self.cache.used();
        self.stats.flushes = self.cache.flushes;
        self.stats.invalidated = self.cache.invalidated;
        self.stats.ticks = if self.ticks() { self.clock.now() } else { 0 };
        self.stats.trace_bytes = self.tracer.bytes();
        self.stats.schedule = s.digest.load(Relaxed);
        self.stats.switches = s.switches.load(Relaxed);
        if self.config.stats {
            self.control.send(self.pid, Report::Stats(*self.stats));
        }
        let (pid, control) = (self.pid, self.control);
        let counts = core::mem::take(&mut self.coverage);
        crate::report::in_packets(counts, |_| 40, |c| control.send(pid, Report::Counts(c)));
    }

    /// Says once that something was answered as an old kernel would.
    pub fn note(&mut self, message: &str, pc: u64) {
        if !self.notes.iter().any(|n| n == message) {
            self.notes.push(message.into());
            self.control.note(self.pid, message, GuestAddr(pc));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts down as branches do that lie anywhere; answers how many ticks there were, and how often it was dealt.
    fn run(least: u64, most: u64, mut counter: impl FnMut() -> usize) -> (u64, u64) {
        let (mut passed, mut times) = (0, 0);
        while passed < least || times == 0 {
            let mut budgets = dealt(most - passed);
            times += 1;
            while !budgets.contains(&0) {
                budgets[counter()] -= 1;
                passed += 1;
            }
        }
        (passed, times)
    }

    #[test]
    fn two_counters_stop_at_the_tick_that_is_wanted() {
        let mut clock = Clock::seeded(1);
        for ticks in [1, 2, 3, 4, 31, 1000, 99_999] {
            for share in [0, 1, 2, 4, 7, 8] {
                let (passed, times) = run(ticks, ticks, || usize::from(clock.random() % 8 < share));
                assert_eq!(passed, ticks, "{share} of 8");
                assert!(times <= 2 * u64::from(ticks.ilog2()) + 2, "{ticks} ticks were dealt {times} times");
            }
        }
    }

    #[test]
    fn half_the_ticks_are_always_there() {
        for share in [0, 1, 4, 8] {
            let mut clock = Clock::seeded(2);
            let (passed, times) = run(500, 1000, || usize::from(clock.random() % 8 < share));
            assert!((500..=1000).contains(&passed) && times == 1, "{share} of 8: {passed} ticks, dealt {times} times");
        }
    }
}
