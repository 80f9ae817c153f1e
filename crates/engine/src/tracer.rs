//! Trace buffers: where block records go, and how full ones reach the host.
//!
//! Emitted code writes records without a check; the page behind a buffer is inaccessible, and the fault there hands the
//! buffer over ([`Engine::next_trace_buffer`]). Records of the engine itself ([`Engine::trace_special`]) make sure of room
//! first. Definitions of blocks reach the host before the first buffer that uses them.
//!
//! A forked child gets buffers of its own; the parent's ring stays the parent's.

use crate::gate;
use crate::report::in_packets;
use crate::signals::handler::{ORDER, UContext};
use crate::state::Engine;
use crate::sys::{self, nr};
use crate::threads::Thread;
use crate::translate::SpillSlot;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering::*};
use model::layout::{PAGE, RING};
use model::wire::{BlockDef, Report, TraceSink};
use model::{GuestAddr, Mode};
use trace::format::{self, MAX_SPECIAL, Partial, Special};

const BUFFERS: u32 = 8;
const SIZE: u64 = 1 << 20;

/// The buffers of one process.
pub struct Tracer {
    sink: TraceSink,
    /// Buffers exist.
    open: bool,
    buffers: u32,
    definitions: Vec<BlockDef>,
    /// What changes with every buffer lives in the shared page: handing one over must not open the vault.
    at: &'static mut Position,
}

/// How far a trace has come.
#[derive(Default)]
pub struct Position {
    /// Number of the buffer in use, counted from the start.
    sequence: u32,
    pub bytes: u64,
    /// Thread and bases last announced.
    announced: (u32, u64, u64),
}

impl Tracer {
    pub fn new(sink: TraceSink, at: &'static mut Position) -> Tracer {
        let buffers = if sink == TraceSink::Ring { BUFFERS } else { 1 };
        Tracer { sink, open: false, buffers, definitions: Vec::new(), at }
    }

    /// Bytes handed over so far.
    pub fn bytes(&self) -> u64 {
        self.at.bytes
    }

    fn buffer(&self) -> u64 {
        RING.start + PAGE + (self.at.sequence % self.buffers) as u64 * (SIZE + PAGE)
    }

    fn end(&self) -> u64 {
        self.buffer() + SIZE
    }

    /// Is this address behind the buffer in use?
    pub fn is_guard(&self, address: u64) -> bool {
        self.open && (self.end()..self.end() + PAGE).contains(&address)
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: a word of the ring's header page, which is mapped while `open`.
        unsafe { &*((RING.start + at as u64) as *const AtomicU32) }
    }
}

impl Engine {
    /// Maps buffers, if there are none yet, and tells the host.
    pub fn open_trace(&mut self) -> Result<(), i64> {
        if self.tracer.open {
            return Ok(());
        }
        let bytes = PAGE + self.tracer.buffers as u64 * (SIZE + PAGE);
        let shared = self.tracer.sink == TraceSink::Ring;
        let fd = if shared { ring_file(bytes)? } else { -1 };
        let flags = sys::MAP_FIXED_NOREPLACE
            | if shared { sys::MAP_SHARED } else { sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_NORESERVE };
        // SAFETY: the ring's own range, nothing replaced.
        let r =
            unsafe { sys::raw(nr::MMAP, [RING.start, bytes, sys::PROT_READ | sys::PROT_WRITE, flags, fd as u64, 0]) };
        if sys::is_err(r) {
            return Err(r);
        }
        for n in 0..self.tracer.buffers as u64 {
            let guard = RING.start + PAGE + n * (SIZE + PAGE) + SIZE;
            // SAFETY: a page of the mapping just made.
            unsafe { sys::raw3(nr::MPROTECT, guard, PAGE, sys::PROT_NONE) };
        }
        self.tracer.open = true;
        self.tracer.at.sequence = 0;
        self.tracer.at.announced = (0, 0, 0);
        if shared {
            let header = [
                (format::AT_MAGIC, format::RING_MAGIC),
                (format::AT_VERSION, format::RING_VERSION),
                (format::AT_BUFFERS, self.tracer.buffers),
                (format::AT_SIZE, SIZE as u32),
            ];
            for (at, v) in header {
                self.tracer.word(at).store(v, Relaxed);
            }
            self.control.send_with(
                self.pid,
                Report::Ring { buffers: self.tracer.buffers, size: SIZE as u32 },
                Some(fd),
            );
            // SAFETY: our own descriptor; the mapping stays.
            unsafe { sys::raw3(nr::CLOSE, fd as u64, 0, 0) };
        }
        // SAFETY: the baton is held.
        unsafe { gate::gate() }.trace = self.tracer.buffer();
        Ok(())
    }

    /// The host will need this block to read the trace.
    pub fn define_block(&mut self, id: u32, pc: u64, bytes: &[u8]) {
        if self.tracer.sink == TraceSink::Ring {
            self.tracer.definitions.push(BlockDef { id, pc: GuestAddr(pc), bytes: bytes.to_vec() });
        }
    }

    /// Hands over what is in the current buffer up to `used` and goes to the next one.
    fn hand_over(&mut self, used: u64) {
        self.tracer.at.bytes += used;
        if self.tracer.sink == TraceSink::Ring {
            let (pid, control) = (self.pid, self.control);
            // Taking nothing would be a store too.
            if !self.tracer.definitions.is_empty() {
                let definitions = core::mem::take(&mut self.tracer.definitions);
                in_packets(definitions, |d| d.bytes.len() + 16, |defs| control.send(pid, Report::Blocks(defs)));
            }
            let t = &self.tracer;
            t.word(format::AT_USED + 4 * (t.at.sequence % t.buffers) as usize).store(used as u32, Relaxed);
            t.word(format::AT_PRODUCED).store(t.at.sequence.wrapping_add(1), Release);
            ring_futex(t.word(format::AT_PRODUCED), 1, u32::MAX, false);
            // Wait for room: the host frees buffers in order. It may be gone; then the trace goes nowhere.
            loop {
                let consumed = t.word(format::AT_CONSUMED).load(Acquire);
                if t.at.sequence.wrapping_add(1).wrapping_sub(consumed) < t.buffers {
                    break;
                }
                if ring_futex(t.word(format::AT_CONSUMED), 0, consumed, true) == -sys::err::ETIMEDOUT
                    && self.control.host_is_gone()
                {
                    break;
                }
            }
        }
        self.tracer.at.sequence = self.tracer.at.sequence.wrapping_add(1);
    }

    /// A record ran over the end of its buffer: it moves to the next one, and its store is made again there.
    pub fn next_trace_buffer(&mut self, uc: &mut UContext) {
        // SAFETY: guest code was interrupted; the baton is held.
        let g = unsafe { gate::gate() };
        let start = g.trace;
        let old_end = self.tracer.end();
        let written = uc.cr2.min(old_end).saturating_sub(start);
        let mut partial = [0u8; 4096];
        let n = (written as usize).min(partial.len());
        // SAFETY: the unfinished record lies in the buffer, before its end.
        unsafe { core::ptr::copy_nonoverlapping(start as *const u8, partial.as_mut_ptr(), n) };
        self.hand_over(start - self.tracer.buffer());
        let new = self.tracer.buffer();
        // SAFETY: the next buffer is free and larger than any record.
        unsafe { core::ptr::copy_nonoverlapping(partial.as_ptr(), new as *mut u8, n) };
        g.trace = new;
        let place = self.cache.place(uc.rip);
        let register = place.and_then(|p| p.spilled[SpillSlot::Spill0 as usize]).map(|(r, _)| r);
        match register {
            Some(r) => uc.regs[ORDER[r as usize]] = new,
            None => crate::report::fatal("a trace store outside a traced block".into(), g.pc),
        }
    }

    /// Makes sure that `n` bytes fit into the current buffer.
    fn trace_room(&mut self, n: u64) {
        // SAFETY: the baton is held.
        let g = unsafe { gate::gate() };
        if g.trace + n > self.tracer.end() {
            let used = g.trace - self.tracer.buffer();
            self.hand_over(used);
            g.trace = self.tracer.buffer();
        }
    }

    fn put_trace(&mut self, bytes: &[u8]) {
        self.trace_room(bytes.len() as u64);
        // SAFETY: there is room; the baton is held.
        unsafe {
            let g = gate::gate();
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), g.trace as *mut u8, bytes.len());
            g.trace += bytes.len() as u64;
        }
    }

    /// Writes a record of the engine's own, when tracing.
    pub fn trace_special(&mut self, s: Special) {
        if self.mode != Mode::Trace || !self.tracer.open {
            return;
        }
        let mut out = [0; MAX_SPECIAL];
        let n = s.encode(&mut out);
        self.put_trace(&out[..n]);
    }

    /// Says which thread runs, if that has changed.
    pub fn trace_thread(&mut self, t: &Thread) {
        if self.mode != Mode::Trace {
            return;
        }
        // SAFETY: the baton is held.
        let now = (t.tid, gate::fs_base(), unsafe { gate::gate() }.guest_gs);
        if self.tracer.at.announced != now {
            self.tracer.at.announced = now;
            self.trace_special(Special::Thread { tid: now.0, fs_base: now.1, gs_base: now.2 });
        }
    }

    pub fn trace_signal(&mut self, t: &Thread, signo: u32, pc: u64, handler: u64) {
        self.trace_thread(t);
        self.trace_special(Special::Signal { signo, pc, handler });
    }

    pub fn trace_sigreturn(&mut self, pc: u64, rflags: u64) {
        self.trace_special(Special::SigReturn { pc, df: rflags >> 10 & 1 != 0 });
    }

    /// The guest was stopped inside a block: its unfinished record (or its complete one, if only the final transfer did
    /// not happen) becomes a partial one.
    pub fn trace_partial(&mut self) {
        let Some(place) = *self.stopped else { return };
        if self.mode != Mode::Trace
            || !self.tracer.open
            || place.instruction == 0 && place.spilled[SpillSlot::Spill0 as usize].is_none()
        {
            return;
        }
        let block = self.cache.blocks[place.block as usize];
        // SAFETY: the baton is held.
        let g = unsafe { gate::gate() };
        let committed = place.spilled[SpillSlot::Spill0 as usize].is_none();
        let record = block.record as usize;
        if committed {
            g.trace -= record as u64;
        }
        let mut slots = [0u8; 4096];
        let n = (record - 4).min(slots.len());
        let room = (self.tracer.end() - g.trace).saturating_sub(4) as usize;
        // SAFETY: reads at most to the end of the buffer.
        unsafe { core::ptr::copy_nonoverlapping((g.trace + 4) as *const u8, slots.as_mut_ptr(), n.min(room)) };
        let rcx = g.gpr[1];
        let head = Partial::head(block.id, place.instruction, n as u32);
        self.trace_room((head.len() + n + 8) as u64);
        self.put_trace(&head);
        self.put_trace(&slots[..n]);
        self.put_trace(&rcx.to_le_bytes());
    }

    /// The window closes: everything goes to the host.
    pub fn close_trace(&mut self) {
        if !self.tracer.open {
            return;
        }
        self.trace_special(Special::End);
        // SAFETY: the baton is held.
        let g = unsafe { gate::gate() };
        let used = g.trace.saturating_sub(self.tracer.buffer());
        self.hand_over(used);
        if self.tracer.sink == TraceSink::Ring {
            self.tracer.word(format::AT_CLOSED).store(1, Release);
            ring_futex(self.tracer.word(format::AT_PRODUCED), 1, u32::MAX, false);
        }
        // SAFETY: unmaps the buffers, which nothing refers to any more.
        unsafe { sys::raw3(nr::MUNMAP, RING.start, RING.end - RING.start, 0) };
        self.tracer.open = false;
    }

    /// In a forked child: the mapped ring is the parent's.
    pub fn leave_parents_trace(&mut self) {
        if self.tracer.open {
            // SAFETY: only this process's view goes.
            unsafe { sys::raw3(nr::MUNMAP, RING.start, RING.end - RING.start, 0) };
        }
        *self.tracer.at = Position::default();
        self.tracer.open = false;
        self.tracer.definitions.clear();
    }
}

fn ring_file(bytes: u64) -> Result<i32, i64> {
    let name = b"clew-trace\0";
    // SAFETY: creates a file of our own.
    unsafe {
        let fd = sys::raw3(nr::MEMFD_CREATE, name.as_ptr() as u64, 1, 0);
        if sys::is_err(fd) {
            return Err(fd);
        }
        let r = sys::raw3(nr::FTRUNCATE, fd as u64, bytes, 0);
        if sys::is_err(r) { Err(r) } else { Ok(fd as i32) }
    }
}

/// Futex on a word shared between processes; waits are bounded so that a dead host is noticed.
fn ring_futex(word: &AtomicU32, op: u64, value: u32, bounded: bool) -> i64 {
    let timeout = [0u64, 200_000_000];
    let ptr = if bounded { timeout.as_ptr() as u64 } else { 0 };
    // SAFETY: the word outlives the call.
    unsafe { sys::raw(nr::FUTEX, [word as *const _ as u64, op, value as u64, ptr, 0, 0]) }
}
