//! Recording of a region: a stretch of a run, from one point to another.
//!
//! ```text
//! start ─ ahead: probes or a tick wait for the first point, nothing is logged ─▶ the log begins with the whole state
//!       ─ recording, as always ─▶ the last point: the log ends, the guest goes on unrecorded
//! ```
//! While a region lies ahead, a thread that gives the baton on leaves its vector registers where the holder can read
//! them, and a call under way is noted in its thread's record, so that its end can be logged whenever the region begins.
//! Processes forked before the first point are not recorded unless they come to it themselves; a new image waits for it
//! again. Points that are places count only in the program that they were found in.
//!
//! May miss: a buffer that the kernel is filling for a waiting thread while the state is saved.

use super::files::Stamp;
use super::unit::{Sources, clock, working_folder};
use super::{RECORDING, append, on, time_stamp};
use crate::gate::Gate;
use crate::memory::Vma;
use crate::shared_page::log_state;
use crate::state::Engine;
use crate::sys::{self, nr};
use crate::threads::Thread;
use alloc::boxed::Box;
use alloc::string::String;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use model::log::{Ending, Kind, Start};
use model::region::RegionPoint;
use model::wire::{Action, Probe, RecordConfig};

/// A region may begin at any moment.
static AHEAD: AtomicBool = AtomicBool::new(false);
/// No tick is waited for.
const NEVER: u64 = u64::MAX;
/// Instructions of a tick are taken to be so many until more have been seen.
const MANY_PER_TICK: u64 = 64;

/// Must this process be ready to be recorded from any moment on?
pub fn ahead() -> bool {
    AHEAD.load(Relaxed)
}

/// What this process knows about its region.
pub struct Region {
    /// How its log will begin, as long as that is ahead.
    start: Option<Box<Start>>,
    /// Device and inode of the program.
    program: [u64; 2],
    /// The tick at which it begins or, once it has begun, ends.
    due: u64,
    /// That many instructions are waited for: the tick is when they are counted again, and so many were executed per tick.
    instructions: Option<u64>,
    per_tick: u64,
    counted: (u64, u64),
    /// The process was copied while its recording was ahead, or is such a copy.
    pub forked: bool,
}

impl Default for Region {
    fn default() -> Region {
        Region {
            start: None,
            program: [0; 2],
            due: NEVER,
            instructions: None,
            per_tick: MANY_PER_TICK,
            counted: (0, 0),
            forked: false,
        }
    }
}

impl Region {
    /// Is a tick waited for?
    pub fn is_timed(&self) -> bool {
        self.due != NEVER
    }

    pub fn is_due(&self, tick: u64) -> bool {
        tick >= self.due
    }
}

impl Engine {
    /// An image is about to run: its region's points are set. Answers whether its recording is still ahead.
    pub(super) fn expect_region(&mut self, config: &RecordConfig, sources: &Sources<'_>, start: Start) -> bool {
        self.region.program = Stamp::of(sources.program.fd()).map_or([0; 2], |s| [s.dev, s.ino]);
        let Some(from) = config.from else {
            self.expect_end(config.to);
            return false;
        };
        self.region.start = Some(Box::new(start));
        let armed = match from {
            RegionPoint::Ticks(n) => {
                self.region.due = n;
                true
            }
            RegionPoint::Instructions(n) => {
                self.expect_instructions(n);
                true
            }
            point => self.arm_point(point, Action::StartRecording),
        };
        AHEAD.store(armed, Relaxed);
        if let Some(to @ RegionPoint::Site { instance: 1.., .. }) = config.to {
            // Executions count from the beginning of the run.
            self.arm_point(to, Action::StopRecording);
        }
        true
    }

    /// Sets the last point, which comes after this.
    fn expect_end(&mut self, to: Option<RegionPoint>) {
        (self.region.due, self.region.instructions) = (NEVER, None);
        match to {
            Some(RegionPoint::Ticks(n)) => self.region.due = n,
            Some(RegionPoint::Instructions(n)) => self.expect_instructions(n),
            Some(point) => drop(self.arm_point(point, Action::StopRecording)),
            None => {}
        }
    }

    fn expect_instructions(&mut self, n: u64) {
        // They are counted for the first time before the guest goes on.
        (self.region.instructions, self.region.due) = (Some(n), 0);
    }

    /// Instructions are waited for: have they been executed? Otherwise they are counted again before that can be.
    fn are_executed(&mut self, n: u64) -> bool {
        let now = self.clock.now();
        self.harvest_counts();
        let executed = self.stats.instructions;
        let (before, then) = core::mem::replace(&mut self.region.counted, (executed, now));
        if now > then {
            // Twice as many as lately, because what comes may be denser.
            let lately = executed.saturating_sub(before) / (now - then);
            self.region.per_tick = (2 * lately).max(MANY_PER_TICK);
        }
        if executed >= n {
            return true;
        }
        self.region.due = now + ((n - executed) / self.region.per_tick).max(1);
        false
    }

    /// `false` if the place is in another program.
    fn arm_point(&mut self, point: RegionPoint, action: Action) -> bool {
        let RegionPoint::Site { site, instance, program } = point else { return false };
        if program != self.region.program {
            return false;
        }
        let at = self.probes.add(Probe { site, instance, action }, self.loaded.bias);
        self.drop_blocks_over(at);
        true
    }

    /// The guest is about to go on, and a tick is waited for: is it here? Then the recording begins or ends.
    pub fn region_tick(&mut self, t: &Thread, g: &mut Gate) -> bool {
        let now = self.clock.now();
        let is_due = self.region.is_due(now);
        if is_due && self.region.instructions.is_none_or(|n| self.are_executed(n)) {
            match self.region.start.is_some() {
                true => self.begin_region(t, g),
                false => self.end_region(),
            }
            return true;
        }
        let left = self.region.due - now;
        if self.clock.may_go_on_for() > left {
            self.clock.allow(left);
        }
        false
    }

    /// The first point: from here on everything is recorded.
    pub fn begin_region(&mut self, t: &Thread, g: &mut Gate) {
        let Some(mut start) = self.region.start.take() else { return };
        let Some(config) = &mut self.config.record else { return };
        config.from = None;
        let config = config.clone();
        let waiting = log_state().waiting;
        if let Err(errno) = self.open_log(None) {
            AHEAD.store(false, Relaxed);
            self.region.due = NEVER;
            return self.has_no_log(errno);
        }
        RECORDING.store(true, Relaxed);
        (log_state().running, log_state().waiting) = (t.serial, waiting);
        let now = self.clock.now();
        (start.pid, start.tid, start.region, start.time) = (self.pid, t.tid, Some(now), time_stamp());
        // A trial adds the tick.
        start.clocks = [clock(0).saturating_sub(now), clock(1).saturating_sub(now)];
        start.cwd = working_folder();
        start.blocked = t.mask;
        start.ignored = self.ignored_signals();
        self.kept.clear();
        self.opened.clear();
        let program = self.open_program();
        let kept = program.and_then(|fd| self.keep_image(fd));
        start.program = kept.as_ref().and_then(|(_, _, key)| key.clone()).unwrap_or_default();
        start.interpreter = String::new();
        append(Kind::Start, 0, &start.encode());
        if let (Some(fd), Some((stamp, settled, key @ Some(_)))) = (program, kept) {
            self.log_file(fd, stamp, settled, key);
        }
        program.iter().for_each(|fd| super::files::close(*fd));
        self.log_process();
        self.log_memory();
        self.share_from_before();
        self.log_threads(t, g);
        self.log_descriptors(&config.streams);
        AHEAD.store(false, Relaxed);
        // An end that was not given a number is the next execution from here on.
        match config.to {
            Some(RegionPoint::Site { instance: 1.., .. }) => self.expect_end(None),
            to => self.expect_end(to),
        }
        // What the code needs of a CPU is noted when it is translated.
        self.features = [0; 4];
        self.flush();
    }

    /// The last point: the log ends here, the guest goes on.
    pub fn end_region(&mut self) {
        self.region.due = NEVER;
        if self.region.start.is_some() {
            self.note("the end of the region was reached before its beginning: it will go on to the program's end", 0);
        } else if on() {
            self.log_end(Ending::Left, 0);
            RECORDING.store(false, Relaxed);
        }
    }

    /// Memory that was shared before anything was recorded.
    fn share_from_before(&mut self) {
        let any = |which: fn(&Vma) -> bool| self.memory.iter().any(|(_, v)| v.shared && which(v));
        let system_v = any(|v| v.file && v.object.is_none());
        let with_others = self.region.forked && any(|v| v.is(sys::PROT_WRITE));
        self.shares_memory = any(|_| true);
        if with_others || system_v {
            self.mark_inexact("writable memory is shared with other processes");
        }
    }

    /// The program's file, if its name still leads to it.
    fn open_program(&self) -> Option<u64> {
        open_same(self.exe.as_bytes(), self.region.program)
    }

    pub(super) fn ignored_signals(&self) -> u64 {
        (1..=64).filter(|s| self.actions.get(*s).handler == 1).map(crate::signals::bit).sum()
    }
}

/// Opens a file for reading if it is still this one.
pub(super) fn open_same(path: &[u8], identity: [u64; 2]) -> Option<u64> {
    /// Read only, without waiting, closed on exec.
    const O_LOOK: u64 = 0o4000 | 0o2_000_000;
    let mut name = path.to_vec();
    name.push(0);
    // SAFETY: opens a file by a name of our own.
    let fd = unsafe { sys::raw3(nr::OPEN, name.as_ptr() as u64, O_LOOK, 0) };
    if sys::is_err(fd) {
        return None;
    }
    if Stamp::of(fd as u64).is_some_and(|s| [s.dev, s.ino] == identity) {
        return Some(fd as u64);
    }
    super::files::close(fd as u64);
    None
}
