//! Write protection of the engine's own memory while guest code runs.
//!
//! The vault is everything the engine changes and emitted code does not: its data, its heap, the hash table of checked
//! lookup and the code cache. It is closed by `mprotect`, and each of its ranges is opened by the first engine store into it
//! that faults, so no code has to remember to open it, and tables that a call changes do not cost the code cache. A guest store into it is the guest's own SIGSEGV, because the fault comes from the cache.
//! The table of direct lookup has the same rule, but is opened piece by piece (module `direct`) and closed with the vault.
//!
//! Closing costs tens of microseconds (12 for 64 KiB and 64 for 4 MiB, measured on a virtual machine), which is too much
//! for every translation: what is open is closed on the first return to the guest after `PATIENCE` cycles have passed
//! since the first range was opened, and the patience grows with what closing costs. So it stays open while a program is being
//! translated, and in mode none as long as a guest neither calls the kernel nor reaches new code.
//! Time in which a replay stands still for its host does not count, and a copy that is made for a trial begins with all of it
//! open: most trials are over before it would be closed.
//!
//! May miss: loads. Without protection keys, memory that can be executed or that the engine reads can be read by the guest.

use crate::gate::{TABLE_ENTRIES, TABLE_OFFSET};
use crate::shared_page::vault;
use crate::sys::{self, PROT_EXEC, PROT_READ, PROT_WRITE, nr};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use model::layout::{ADOPTED, ENGINE_HEAP, GATE};

/// Cycles that the vault stays open at least.
const PATIENCE: u64 = 3_000_000;
/// Closing may take one part in this many of the time.
const SHARE: u64 = 32;
const TABLE_BYTES: u64 = TABLE_ENTRIES as u64 * 8;

const RANGES: usize = 8;

/// Words of the vault, in the shared page, which is never closed.
#[repr(C)]
pub struct Vault {
    in_use: AtomicBool,
    /// A bit for each range that is open.
    open: AtomicU64,
    opened: AtomicU64,
    patience: AtomicU64,
    /// Where each range ended when it was last closed: what it has grown by since is open.
    ends: [AtomicU64; RANGES],
}

unsafe extern "C" {
    static __bss_start: u8;
    static _end: u8;
}

fn cycles() -> u64 {
    // SAFETY: reads the time stamp counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The ranges of the vault with the rights they have when open.
fn ranges() -> [(u64, u64, u64); RANGES] {
    let rw = PROT_READ | PROT_WRITE;
    // Only their addresses are used.
    let bss = (&raw const __bss_start as u64 & !4095, (&raw const _end as u64 + 4095) & !4095);
    let [blocks, stubs, checks, constants] = crate::cache::mapped();
    [
        (bss.0, bss.1, rw),
        (ENGINE_HEAP.start, crate::heap::mapped_end(), rw),
        (ADOPTED, crate::pool::adopted_end(), rw),
        (blocks.0, blocks.1, rw | PROT_EXEC),
        (stubs.0, stubs.1, rw | PROT_EXEC),
        (checks.0, checks.1, rw | PROT_EXEC),
        (constants.0, constants.1, rw),
        (GATE + TABLE_OFFSET, GATE + TABLE_OFFSET + TABLE_BYTES, rw),
    ]
}

/// From now on the vault is used.
pub fn begin() {
    let v = vault();
    v.patience.store(PATIENCE, Relaxed);
    v.opened.store(cycles(), Relaxed);
    v.open.store((1 << RANGES) - 1, Relaxed);
    v.in_use.store(true, Relaxed);
}

fn protect((start, end, prot): (u64, u64, u64), close: bool) {
    if start < end {
        let prot = if close { prot & !PROT_WRITE } else { prot };
        // SAFETY: the engine's own memory; stores to it while closed fault and come to `open`.
        unsafe { sys::raw3(nr::MPROTECT, start, end - start, prot) };
    }
}

/// A store of the engine faulted at `address`: opens that range of the vault if that is why.
pub fn open(address: u64) -> bool {
    let v = vault();
    let open = v.open.load(Relaxed);
    let ranges = ranges();
    let Some(n) = ranges.iter().position(|(start, end, _)| (*start..*end).contains(&address)) else { return false };
    if !v.in_use.load(Relaxed) || open & 1 << n != 0 {
        return false;
    }
    protect(ranges[n], false);
    if open == 0 {
        v.opened.store(cycles(), Relaxed);
    }
    v.open.store(open | 1 << n, Relaxed);
    true
}

/// Opens what is closed: much of it will be written to soon.
pub fn open_all() {
    let v = vault();
    let open = v.open.swap((1 << RANGES) - 1, Relaxed);
    if !v.in_use.load(Relaxed) {
        return v.open.store(open, Relaxed);
    }
    for (n, range) in ranges().into_iter().enumerate() {
        if open & 1 << n == 0 {
            protect(range, false);
        }
    }
    v.opened.store(cycles(), Relaxed);
}

/// The guest goes on after it stood still: that time does not count.
pub fn goes_on() {
    let v = vault();
    if v.open.load(Relaxed) != 0 {
        v.opened.store(cycles(), Relaxed);
    }
}

/// The guest is about to run: has anything been open long enough?
#[inline]
pub fn is_due() -> bool {
    let v = vault();
    v.open.load(Relaxed) != 0 && cycles().wrapping_sub(v.opened.load(Relaxed)) > v.patience.load(Relaxed)
}

/// Closes what is open.
#[cold]
pub fn close() {
    let v = vault();
    let start = cycles();
    let open = v.open.swap(0, Relaxed);
    for (n, range) in ranges().into_iter().enumerate() {
        let grown = v.ends[n].swap(range.1, Relaxed) != range.1;
        if grown || open & 1 << n != 0 {
            protect(range, true);
        }
    }
    let cost = cycles().wrapping_sub(start);
    v.patience.store((2 * cost * SHARE).max(PATIENCE), Relaxed);
}
