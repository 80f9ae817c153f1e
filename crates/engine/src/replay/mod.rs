//! Replay: the guest runs again, and everything from outside comes from the log.
//!
//! ```text
//! run ─▶ steer ─ next record is a preemption or a signal: let the guest run to its tick, then to its pc
//!    └─▶ call, special, fault ─ next record must be theirs: its effects are applied, nothing is executed for real
//! ```
//! There is one kernel task. Guest threads are contexts that the log switches between ([`threads`]), so a `fork` of this
//! process is a complete copy of a threaded guest. Calls that change the address space are carried out ([`memory`]), with
//! files mapped from what was kept; nothing else of the guest reaches the kernel.
//!
//! When the guest does something else than the log says, or a digest differs, the replay stops and says at which record
//! and moment. What is not digested can differ unnoticed for a while.

pub mod calls;
pub mod copies;
pub mod descriptors;
pub mod goal;
pub mod memory;
pub mod predicates;
pub mod questions;
pub mod region;
pub mod serve;
pub mod source;
pub mod threads;

pub use calls::call;
pub use source::Source;

use crate::gate::{self, Gate};
use crate::record;
use crate::state::Engine;
use crate::sys;
use crate::threads::{Thread, pending};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use goal::Goal;
use model::log::{self, Bytes, End, Ending, FileRecord, Kind, PageRecord, Position, Raw, SignalRecord, SpecialRecord};
use model::wire::{ForkEdge, Replayed, Report};

/// Outside the engine's record, because code that changes the kernel's signal state asks.
static REPLAYING: AtomicBool = AtomicBool::new(false);

/// Is nothing of the guest to reach the kernel?
pub fn on() -> bool {
    REPLAYING.load(Relaxed)
}

/// A replay under way.
pub struct Replay {
    source: Source,
    /// Which log, and where in it the next record lies.
    log: usize,
    at: usize,
    /// Number of the next record in its log.
    pub record: u64,
    /// Kept files of the unit by number.
    files: BTreeMap<u32, FileRecord>,
    /// Contents of small files, in the log.
    contents: BTreeMap<u32, &'static [u8]>,
    pub threads: threads::Parked,
    pub descriptors: descriptors::Table,
    /// The call that the running thread is in.
    pub in_call: Option<calls::InCall>,
    pub goal: Goal,
    /// Up to which tick the guest may go on by itself, once there are no records left.
    patience: Option<u64>,
    pub serve: serve::Serve,
    pub predicates: predicates::Predicates,
    /// Files that the guest has mapped shared.
    shared: Vec<memory::SharedFile>,
    /// Copies of this process that replay children.
    copies: u32,
    /// One of them could not be made, or was killed.
    copies_lost: bool,
    /// Said already that the replay differs.
    differs: bool,
    disturbed: bool,
}

impl Replay {
    /// The next record, or why there is none.
    pub fn next(&self) -> Result<Raw<'static>, log::Damage> {
        log::record(&self.source.logs[self.log][self.at..])
    }

    pub fn verifies(&self) -> bool {
        self.source.config.verify
    }

    pub fn emits(&self) -> bool {
        self.source.config.emit
    }

    pub fn files_folder(&self) -> i32 {
        self.source.config.files_fd
    }

    /// A descriptor of this process that reads as the file was when it was kept; negative if it was not.
    pub fn open_file(&self, id: u32, folder: i32) -> i64 {
        match (self.contents.get(&id), self.files.get(&id)) {
            (Some(bytes), _) => memory_file(bytes),
            (None, Some(file)) if !file.key.is_empty() => source::open_kept(folder, &file.key),
            _ => -sys::err::ENOENT,
        }
    }

    /// The number of the file that was kept first under this name.
    pub fn kept_under(&self, path: &[u8]) -> Option<u32> {
        self.files.values().find(|f| f.path == path).map(|f| f.id)
    }

    pub fn file(&self, id: u32) -> Option<&FileRecord> {
        self.files.get(&id)
    }

    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Takes in what a record tells about a kept file.
    pub fn learn(&mut self, raw: &Raw<'static>) {
        match (raw.kind, raw.payload) {
            (Kind::File, payload) => {
                if let Some(file) = FileRecord::decode(payload) {
                    self.files.insert(file.id, file);
                }
            }
            (Kind::Content, [a, b, c, d, _, _, _, _, bytes @ ..]) => {
                self.contents.insert(u32::from_le_bytes([*a, *b, *c, *d]), bytes);
            }
            _ => {}
        }
    }

    /// Which of the logs is read now.
    pub fn log_number(&self) -> usize {
        self.log
    }

    /// The log that is read now, and where.
    pub fn rest(&self) -> (&'static [u8], usize) {
        (self.source.logs[self.log], self.at)
    }

    /// Goes on behind the record `raw`.
    fn pass(&mut self, raw: &Raw<'_>) {
        self.at += raw.len;
        self.record += 1;
    }

    /// The log of the child that this fork made, if it is to be replayed.
    pub fn child_here(&self) -> Option<ForkEdge> {
        let here = |f: &&ForkEdge| f.parent as usize == self.log && f.record == self.record;
        self.source.config.forks.iter().find(here).copied()
    }

    /// Goes on with another log, from its beginning.
    pub fn turn_to(&mut self, log: u32) {
        self.log = log as usize;
        (self.at, self.record) = (0, 0);
        self.files.clear();
        self.contents.clear();
        self.goal.forget();
    }

    /// The kind of the first record behind the next one that does more than tell something.
    pub fn kind_behind(&self) -> Option<Kind> {
        let log = self.source.logs[self.log];
        let mut at = self.at + self.next().ok()?.len;
        loop {
            let raw = log::record(&log[at..]).ok()?;
            match raw.kind {
                Kind::Page | Kind::File | Kind::Inexact | Kind::Feature | Kind::Rest | Kind::Content => at += raw.len,
                kind => return Some(kind),
            }
        }
    }

    /// The tick of the next thing that the running thread comes to by itself, if it is known.
    pub fn next_tick(&self) -> Option<u64> {
        /// Writes of a call come before it.
        const AHEAD: usize = 32;
        let log = self.source.logs[self.log];
        let mut at = self.at;
        for _ in 0..AHEAD {
            let raw = log::record(&log[at..]).ok()?;
            at += raw.len;
            match raw.kind {
                Kind::Call => return log::CallRecord::decode(raw.payload).map(|c| c.tick),
                Kind::Special => return SpecialRecord::decode(raw.payload).map(|s| s.tick),
                Kind::Signal => return SignalRecord::decode(raw.payload).map(|s| s.at.tick),
                Kind::Write | Kind::File | Kind::Inexact | Kind::Feature | Kind::Rest | Kind::Page | Kind::Content => {}
                _ => return None,
            }
        }
        None
    }

    /// How far the guest may go behind the last record, if it is there.
    pub fn patience(&self) -> Option<u64> {
        self.patience
    }

    /// Do records follow the next one?
    pub fn is_followed_by_more(&self) -> bool {
        self.next().is_ok_and(|raw| log::record(&self.source.logs[self.log][self.at + raw.len..]).is_ok())
    }

    /// How the log that is read now begins.
    pub fn unit_start(&self) -> Option<log::Start> {
        log::record(self.source.logs[self.log]).ok().and_then(|raw| log::Start::decode(raw.payload))
    }
}

/// Starts a replay in an engine that has loaded the program.
pub fn begin(e: &mut Engine, t: &mut Thread, mut source: Source) {
    REPLAYING.store(true, Relaxed);
    let mut folder = source.start.cwd.clone();
    folder.push(0);
    // SAFETY: names of a trial start from here (chdir, 80); it does not matter if the folder is gone.
    unsafe { sys::raw3(80, folder.as_ptr() as u64, 0, 0) };
    e.pid = source.start.pid;
    t.tid = source.start.tid;
    for signal in 1..=64 {
        let ignored = source.start.ignored & crate::signals::bit(signal) != 0;
        e.actions.inherit(signal, ignored);
    }
    crate::signals::block_everything();
    let mut region = source.region.take();
    let replay = Replay {
        source,
        log: 0,
        at: 0,
        record: 0,
        files: BTreeMap::new(),
        contents: BTreeMap::new(),
        threads: threads::Parked::default(),
        descriptors: descriptors::Table::default(),
        in_call: None,
        goal: Goal::default(),
        patience: None,
        serve: serve::Serve::default(),
        predicates: predicates::Predicates::default(),
        shared: region.as_mut().map(|r| core::mem::take(&mut r.shared)).unwrap_or_default(),
        copies: 0,
        copies_lost: false,
        differs: false,
        disturbed: false,
    };
    e.replay = Some(Box::new(replay));
    if let Some(region) = region {
        region::restore(e, t, region);
    }
    advance(e);
    if let Some(r) = &e.replay
        && r.source.config.serve
    {
        serve::begin(e);
    }
}

/// A file in memory with these contents, at its beginning.
fn memory_file(bytes: &[u8]) -> i64 {
    // SAFETY: a file of our own.
    unsafe {
        let fd = sys::raw3(sys::nr::MEMFD_CREATE, c"clew-kept".as_ptr() as u64, 1, 0);
        sys::raw3(sys::nr::WRITE, fd as u64, bytes.as_ptr() as u64, bytes.len() as u64);
        sys::raw3(sys::nr::LSEEK, fd as u64, 0, 0);
        fd
    }
}

/// The replay of `e`, which must be one.
pub fn replay(e: &mut Engine) -> &mut Replay {
    match &mut e.replay {
        Some(r) => r,
        None => crate::report::fatal("asked for a replay where none is under way".into(), 0),
    }
}

/// Uses up the next record and the ones behind it that only tell something.
pub fn advance(e: &mut Engine) {
    let r = replay(e);
    if let Ok(raw) = r.next() {
        r.pass(&raw);
        r.goal.forget();
        if raw.kind == Kind::Start && r.log == 0 {
            crate::shared_page::log_state().running = 0;
        }
    }
    tell(e);
}

/// Takes in records that only tell something.
pub fn tell(e: &mut Engine) {
    loop {
        let r = replay(e);
        let Ok(raw) = r.next() else { return };
        match raw.kind {
            Kind::Page => check_page(e, raw.payload),
            Kind::File | Kind::Content => r.learn(&raw),
            Kind::Descriptor => {
                if let Some(d) = log::DescriptorRecord::decode(raw.payload) {
                    r.descriptors.inherit(d);
                }
            }
            Kind::Rest if raw.flags == 1 => r.descriptors.moved(raw.payload),
            Kind::Rest => {}
            Kind::Inexact | Kind::Feature | Kind::Start => {}
            // The guest was made from these.
            Kind::Process | Kind::Map | Kind::Memory | Kind::Thread => {}
            _ => return,
        }
        let r = replay(e);
        r.pass(&raw);
        r.goal.forget();
    }
}

fn check_page(e: &mut Engine, payload: &[u8]) {
    if !replay(e).verifies() {
        return;
    }
    let Some(page) = PageRecord::decode(payload) else { return };
    if record::pages::digest_of(e, page.addr).is_some_and(|now| now != page.digest) {
        differs(e, &alloc::format!("the page at {:#x} holds something else", page.addr));
    }
}

/// Looks what is due before the guest goes on: a switch, a signal, a stop for the host.
pub fn steer(e: &mut Engine, t: &mut Thread, g: &mut Gate) {
    loop {
        if e.replay.as_ref().is_some_and(|r| r.goal.is_set() && !e.clock.is_out() && !r.goal.reached_site) {
            return;
        }
        if serve::glance(e, g) {
            return;
        }
        if !serve::stops(e, t, g) {
            // The host moved the guest.
            continue;
        }
        crate::trial::in_step::look(e, t, g);
        if e.trial.is_some() {
            return;
        }
        disturb(e, g);
        if is_past_the_log(e) {
            return log_ends(e);
        }
        let due = due(e, t);
        if let Some((kind, at)) = due
            && goal::arrived(e, t, g, &at)
        {
            if kind == Kind::End {
                // The guest went on without being recorded.
                return finish(e, None, 3, 0);
            }
            if e.has_recorded_registers() {
                g.rflags = at.rflags;
            }
            match kind {
                Kind::Preempt => {
                    advance(e);
                    e.clock.step();
                    calls::give_way(e, t, g);
                    if e.trial.is_some() {
                        return;
                    }
                    continue;
                }
                _ => {
                    // Delivery takes the record.
                    t.raise(pending::SIGNAL);
                    replay(e).goal.forget();
                    return;
                }
            }
        }
        if e.trial.is_none() {
            goal::aim(e, due.map(|(_, at)| at));
        }
        return;
    }
}

/// A recorded guest that was killed left no end, and may have gone on for any time without asking for anything. So does the
/// replay, for a few seconds: a loop without calls would never end.
const SILENT: u64 = 500_000_000;

/// Has the guest gone on for long behind the last record?
fn is_past_the_log(e: &mut Engine) -> bool {
    let now = e.clock.now();
    let r = replay(e);
    if r.serve.has_left() || r.next().is_ok() {
        return false;
    }
    now >= *r.patience.get_or_insert(now.saturating_add(SILENT))
}

/// What the next record says is to happen to the running thread at a position of its own.
fn due(e: &mut Engine, t: &Thread) -> Option<(Kind, Position)> {
    if t.has(pending::SIGNAL) || replay(e).serve.has_left() {
        return None;
    }
    let raw = replay(e).next().ok()?;
    match raw.kind {
        Kind::Preempt => Position::decode(raw.payload).map(|p| (raw.kind, p)),
        Kind::Signal => SignalRecord::decode(raw.payload).filter(|s| !s.synchronous).map(|s| (raw.kind, s.at)),
        Kind::End => {
            let left = End::decode(raw.payload).filter(|end| end.ending == Ending::Left)?;
            // It stood before the instruction, whatever the flags and however often that is to be repeated.
            Some((raw.kind, Position { tick: left.tick, pc: left.pc, rcx: u64::MAX, rflags: 0 }))
        }
        _ => None,
    }
}

/// A signal is being delivered: what it is comes from the log.
pub fn signal_taken(e: &mut Engine, t: &mut Thread) {
    if replay(e).serve.has_left() {
        return serve::at_fault(e, t.info[0] as u32);
    }
    let Ok(raw) = replay(e).next() else { return log_ends(e) };
    let signal = if raw.kind == Kind::Signal { SignalRecord::decode(raw.payload) } else { None };
    // SAFETY: the baton is held.
    let g = unsafe { gate::gate() };
    let now = e.position(g);
    match signal {
        Some(s) if (s.at.tick, s.at.pc) == (now.tick, now.pc) => {
            t.info = s.info;
            t.fault = s.fault;
            t.synchronous = s.synchronous;
            if e.has_recorded_registers() {
                g.rflags = s.at.rflags;
            }
            advance(e);
        }
        Some(s) => {
            let text = alloc::format!("signal {} came at tick {} pc {:#x}", s.info[0], s.at.tick, s.at.pc);
            differs(e, &text);
        }
        None => {
            let text = alloc::format!("the guest got signal {}, the recorded one did not", t.info[0] as u32);
            differs(e, &text);
        }
    }
}

/// The frame of a signal was built: the recorded bytes go over it.
pub fn frame_built(e: &mut Engine) {
    while let Ok(raw) = replay(e).next()
        && raw.kind == Kind::Frame
    {
        if let Some(b) = Bytes::decode(raw.payload).filter(|_| e.has_recorded_registers()) {
            sys::write_guest(b.addr, b.bytes);
        }
        let r = replay(e);
        r.pass(&raw);
        r.goal.forget();
    }
    tell(e);
}

/// What the machine answered to the instruction at the pc.
pub fn special(e: &mut Engine, g: &Gate) -> [u64; 4] {
    let now = e.clock.now();
    let special = match replay(e).next() {
        Ok(raw) if raw.kind == Kind::Special => SpecialRecord::decode(raw.payload),
        Ok(_) => None,
        Err(_) => {
            log_ends(e);
            return [0; 4];
        }
    };
    match special {
        Some(s) if (s.pc, s.tick) == (g.pc, now) => {
            advance(e);
            s.values
        }
        _ => {
            differs(e, "the recorded guest did not ask the machine here");
            [0; 4]
        }
    }
}

/// The guest and the log disagree.
pub fn differs(e: &mut Engine, what: &str) {
    if e.in_step().is_some() {
        return leave_in_step(e);
    }
    if core::mem::replace(&mut replay(e).differs, true) {
        return;
    }
    let cut = |raw: &Raw<'_>| {
        raw.kind == Kind::End
            && End::decode(raw.payload).is_some_and(|e| matches!(e.ending, Ending::DiskFull | Ending::Left))
    };
    if replay(e).next().is_ok_and(|raw| cut(&raw)) {
        // The guest went on without being recorded.
        return finish(e, None, 3, 0);
    }
    let text = match replay(e).next() {
        Ok(raw) => alloc::format!("{what} (next record: {:?})", raw.kind),
        Err(_) => alloc::format!("{what} (no record left)"),
    };
    finish(e, Some(text), 3, 0);
}

/// What the log says is to be done cannot be done here. Part of it may have been, so a trial cannot go on either.
pub fn cannot(e: &mut Engine, what: &str) {
    match e.in_step().is_some() {
        true => crate::trial::lost(e, what.into()),
        false => differs(e, what),
    }
}

/// A trial does not fit the log any more.
fn leave_in_step(e: &mut Engine) {
    // SAFETY: the baton is held.
    let g = unsafe { gate::gate() };
    crate::trial::in_step::leave(e, Thread::current(), g);
}

/// The log has no more records: the recording was cut here.
pub fn log_ends(e: &mut Engine) {
    let damage = replay(e).next().err();
    if damage == Some(log::Damage::Wrong) {
        return differs(e, "the log is damaged here");
    }
    finish(e, None, 3, 0);
}

/// The guest ended.
pub fn ended(e: &mut Engine, ending: u8, status: u32) {
    let recorded = match replay(e).next() {
        Ok(raw) if raw.kind == Kind::End => End::decode(raw.payload),
        Ok(_) => return differs(e, "the guest ended, the recorded one did not"),
        Err(_) => return log_ends(e),
    };
    let agrees = recorded.is_some_and(|r| match r.ending {
        Ending::Exited => ending == 0 && r.status == status,
        Ending::Signaled => ending == 1 && r.status == status,
        Ending::Replaced => ending == 2,
        Ending::DiskFull | Ending::Left => {
            // It ended later than the recording.
            true
        }
    });
    if !agrees {
        let text = alloc::format!("the guest ended otherwise: {ending}/{status}, recorded {recorded:?}");
        return differs(e, &text);
    }
    finish(e, None, ending, status);
}

/// Reports the end of the replay. With a host that asks questions the process stays; else it ends here.
fn finish(e: &mut Engine, difference: Option<String>, ending: u8, status: u32) {
    if e.in_step().is_some() {
        return match ending {
            0..=2 => crate::trial::in_step::ended(e, ending, status),
            _ => leave_in_step(e),
        };
    }
    // SAFETY: the baton is held.
    let pc = unsafe { gate::gate() }.pc;
    let mut replayed = Replayed { records: replay(e).record, tick: e.clock.now(), pc, difference, ending, status };
    if replay(e).source.config.serve {
        return serve::at_end(e, replayed);
    }
    if replayed.difference.is_none() {
        e.hand_on_translations();
    }
    e.close_trace();
    let lost = copies::wait_for_all(e);
    replayed.difference = replayed.difference.or(lost.map(String::from));
    e.control.send(e.pid, Report::Replayed(replayed));
    e.send_totals();
    sys::exit_group(0)
}

/// The tick at which the guest's state is to be changed, if that is still to come.
fn disturbance(e: &mut Engine) -> Option<u64> {
    let r = replay(e);
    r.source.config.disturb.filter(|_| !r.disturbed).map(|d| d.tick)
}

/// For tests of the comparison: one bit of the guest's state changes.
fn disturb(e: &mut Engine, g: &mut Gate) {
    let now = e.clock.now();
    let r = replay(e);
    let Some(d) = r.source.config.disturb.filter(|d| !r.disturbed && now >= d.tick) else { return };
    r.disturbed = true;
    match d.register {
        n @ 0..16 => g.gpr[n as usize] ^= 1 << (d.bit & 63),
        _ => {
            let mut byte = [0u8];
            if sys::read_guest(d.addr, &mut byte) == 1 {
                sys::write_guest(d.addr, &[byte[0] ^ 1 << (d.bit & 7)]);
            }
        }
    }
}

/// Threads whose contexts are parked, with the running one first, as (number, tid).
pub fn thread_list(e: &mut Engine, t: &Thread) -> Vec<(u32, u32)> {
    let mut all = alloc::vec![(t.serial, t.tid)];
    all.extend(replay(e).threads.list());
    all
}
