//! Recording: every non-deterministic thing that happens to the guest goes into the unit's log, in order.
//!
//! ```text
//! syscalls::execute ─ calls ─┐
//! signals::frame ────────────┤   segment: a file of the recording, mapped and written in place
//! threads::sched ────────────┼─▶ [header | record | record | …]  ── full ─▶ told to the host, which compresses it
//! specials ──────────────────┤
//! files (contents at open) ──┘
//! ```
//! Only the thread that holds the baton appends, so the order of records is the order in which things happened. A record
//! counts once the segment's `committed` word covers it: whoever is killed, what is committed stays. What the log needs
//! while the guest runs lies in the shared page, so that recording does not open the vault.
//!
//! May miss: a buffer that the kernel fills for a waiting thread is logged when that thread goes on, so another thread
//! that looks at it earlier sees in a replay what was there before. Memory that other processes write is marked inexact.

pub mod ahead;
pub mod calls;
pub mod chaos;
pub mod files;
pub mod pages;
pub mod region;
mod segments;
mod state;
mod stop;
pub mod unit;

use crate::gate::Gate;
use crate::shared_page::log_state;
use crate::state::Engine;
use crate::sys;
use crate::threads::Thread;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use model::log::{
    End, Ending, Kind, MAX_RECORD, Position, RECORD_HEADER, SEGMENT_HEADER, header, record_header, record_len,
};

/// Kept free at the end of each segment, so that a last word always fits.
const RESERVE: u64 = 128;
/// Payload of one record of bytes.
pub const PIECE: usize = MAX_RECORD - 64;

/// Is this process being recorded? Outside the shared page, because tests of the library have none.
static RECORDING: AtomicBool = AtomicBool::new(false);

/// Where the log is, in the shared page.
#[derive(Default)]
pub struct LogState {
    /// Where the current segment is mapped, and its size.
    base: u64,
    size: u64,
    used: u64,
    sequence: u32,
    /// Records in all segments so far.
    pub records: u64,
    /// Number of the thread that runs, as far as the log knows.
    pub running: u32,
    /// Files kept so far.
    pub files: u32,
    pub unit: (u32, u32),
    /// Segments that are used again and again.
    ring: segments::Ring,
    pub page: pages::Rotation,
    /// Threads in the kernel outside the baton: their buffers may be changing.
    pub waiting: u32,
}

pub fn on() -> bool {
    RECORDING.load(Relaxed)
}

/// What an engine store into the guest belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Context {
    /// Nothing that must be logged: a replay does the same by itself.
    #[default]
    None = 0,
    Call = 1,
    Frame = 2,
}

/// The engine has written to the guest.
pub fn written(at: u64, bytes: &[u8]) {
    if !on() || bytes.is_empty() {
        return;
    }
    let kind = match Thread::current().context {
        Context::None => return,
        Context::Call => Kind::Write,
        Context::Frame => Kind::Frame,
    };
    let mut done = 0;
    while done < bytes.len() {
        let n = (bytes.len() - done).min(PIECE);
        let Some(room) = reserve(8 + n) else { return };
        room[..8].copy_from_slice(&(at + done as u64).to_le_bytes());
        room[8..].copy_from_slice(&bytes[done..done + n]);
        commit(kind, 0, 8 + n);
        done += n;
    }
}

/// Logs what guest memory holds now as written by the call under way.
pub fn memory_now(at: u64, len: u64) {
    let mut done = 0;
    while done < len {
        let n = (len - done).min(PIECE as u64) as usize;
        let Some(room) = reserve(8 + n) else { return };
        room[..8].copy_from_slice(&(at + done).to_le_bytes());
        let got = sys::read_guest(at + done, &mut room[8..]);
        if got > 0 {
            commit(Kind::Write, 0, 8 + got);
        }
        if got < n {
            return;
        }
        done += n as u64;
    }
}

/// Room for a payload in the current segment, made if need be; `None` when recording has ended.
pub fn reserve(payload: usize) -> Option<&'static mut [u8]> {
    if !on() {
        return None;
    }
    let s = log_state();
    let need = record_len(payload) as u64;
    if SEGMENT_HEADER as u64 + s.used + need + RESERVE > s.size && !segments::next() {
        return None;
    }
    let s = log_state();
    let at = s.base + SEGMENT_HEADER as u64 + s.used + RECORD_HEADER as u64;
    // SAFETY: inside the mapped segment (checked above), and only the holder of the baton writes there.
    Some(unsafe { core::slice::from_raw_parts_mut(at as *mut u8, payload) })
}

/// Makes a record of the payload that was just put into the reserved room.
pub fn commit(kind: Kind, flags: u8, payload: usize) {
    let s = log_state();
    let at = s.base + SEGMENT_HEADER as u64 + s.used;
    // SAFETY: the room was reserved.
    unsafe {
        let bytes = core::slice::from_raw_parts((at + RECORD_HEADER as u64) as *const u8, payload);
        let head = record_header(kind, flags, bytes);
        core::ptr::copy_nonoverlapping(head.as_ptr(), at as *mut u8, head.len());
        // Padding is less than a word; behind the record there is room for one, at least in the reserve.
        let end = at + (RECORD_HEADER + payload) as u64;
        (end as *mut u64).write_unaligned(0);
    }
    s.used += record_len(payload) as u64;
    s.records += 1;
    header_word(s.base, header::COMMITTED).store(s.used, Release);
}

/// Appends a record.
pub fn append(kind: Kind, flags: u8, payload: &[u8]) {
    if let Some(room) = reserve(payload.len()) {
        room.copy_from_slice(payload);
        commit(kind, flags, payload.len());
    }
}

fn header_word(base: u64, at: usize) -> &'static AtomicU64 {
    // SAFETY: an aligned word of the mapped segment's header.
    unsafe { &*((base + at as u64) as *const AtomicU64) }
}

impl Engine {
    /// The guest is at a boundary of its own, where something from outside happens to it.
    pub fn position(&self, g: &Gate) -> Position {
        Position { tick: self.clock.now(), pc: g.pc, rcx: g.gpr[1], rflags: g.rflags }
    }

    /// From here on a replay may differ; said once for each reason.
    pub fn mark_inexact(&mut self, why: &str) {
        if on() && !self.inexact.iter().any(|w| w == why) {
            self.inexact.push(why.into());
            append(Kind::Inexact, 0, why.as_bytes());
        }
    }

    /// The unit is over.
    pub fn log_end(&mut self, ending: Ending, status: u32) {
        if ending != Ending::Replaced {
            self.log_rest();
        }
        if on() {
            // SAFETY: the baton is held.
            let g = unsafe { crate::gate::gate() };
            let end = End { ending, status, tick: self.clock.now(), pc: g.pc };
            append(Kind::End, 0, &end.encode());
        }
    }
}

/// A thread gets the baton.
pub fn runs(t: &Thread) {
    if on() && log_state().running != t.serial {
        log_state().running = t.serial;
        // SAFETY: the baton has just come to this thread.
        let tick = unsafe { crate::state::engine() }.clock.now();
        let mut payload = [0; 12];
        payload[..4].copy_from_slice(&t.serial.to_le_bytes());
        payload[4..].copy_from_slice(&tick.to_le_bytes());
        append(Kind::Switch, 0, &payload);
    }
}

/// The running thread was stopped for others: whoever goes on is logged, even if it is the same one.
pub fn nobody_runs() {
    if on() {
        log_state().running = u32::MAX;
    }
}

/// The thread that holds the baton goes into the kernel without it, or is back.
pub fn waits(begins: bool) {
    let s = log_state();
    s.waiting = if begins { s.waiting + 1 } else { s.waiting.saturating_sub(1) };
}

/// Time stamp counter: orders what happens in different processes.
pub fn time_stamp() -> u64 {
    // SAFETY: reads a counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}
