//! Write protection of the engine's own memory while guest code runs.
//!
//! The vault is everything the engine changes and emitted code does not: its data, its heap, the hash table of checked
//! lookup and the code cache. It is closed by `mprotect` and opened by the first engine store that faults, so no code has
//! to remember to open it. A guest store into it is the guest's own SIGSEGV, because the fault comes from the cache.
//! The table of direct lookup has the same rule, but is opened piece by piece (module `direct`) and closed with the vault.
//!
//! Closing costs tens of microseconds (12 for 64 KiB and 64 for 4 MiB, measured on a virtual machine), which is too much
//! for every translation: the vault is closed on the first return to the guest after `PATIENCE` cycles have passed
//! since it was opened, and the patience grows with what closing costs. So it stays open while a program is being
//! translated, and in mode none as long as a guest neither calls the kernel nor reaches new code.
//!
//! May miss: loads. Without protection keys, memory that can be executed or that the engine reads can be read by the guest.

use crate::gate::{TABLE_ENTRIES, TABLE_OFFSET};
use crate::shared_page::vault;
use crate::sys::{self, PROT_EXEC, PROT_READ, PROT_WRITE, nr};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use model::layout::{ADOPTED, ENGINE_HEAP, GATE};

/// Cycles that the vault stays open at least.
const PATIENCE: u64 = 3_000_000;
/// Closing may take one part in this many of the time.
const SHARE: u64 = 32;
const TABLE_BYTES: u64 = TABLE_ENTRIES as u64 * 8;

/// Words of the vault, in the shared page, which is never closed.
#[repr(C)]
pub struct Vault {
    /// 0: not in use, 1: open, 2: closed.
    state: AtomicU64,
    opened: AtomicU64,
    patience: AtomicU64,
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
fn ranges() -> [(u64, u64, u64); 8] {
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
    v.state.store(1, Relaxed);
}

fn set_all(close: bool) {
    for (start, end, prot) in ranges() {
        if start < end {
            let prot = if close { prot & !PROT_WRITE } else { prot };
            // SAFETY: the engine's own memory; stores to it while closed fault and come to `open`.
            unsafe { sys::raw3(nr::MPROTECT, start, end - start, prot) };
        }
    }
}

/// A store of the engine faulted at `address`: opens the vault if that is why.
pub fn open(address: u64) -> bool {
    let v = vault();
    if v.state.load(Relaxed) != 2 || !ranges().iter().any(|(s, e, _)| (*s..*e).contains(&address)) {
        return false;
    }
    set_all(false);
    v.opened.store(cycles(), Relaxed);
    v.state.store(1, Relaxed);
    true
}

/// The guest is about to run: has the vault been open long enough?
#[inline]
pub fn is_due() -> bool {
    let v = vault();
    v.state.load(Relaxed) == 1 && cycles().wrapping_sub(v.opened.load(Relaxed)) > v.patience.load(Relaxed)
}

/// Closes the vault.
#[cold]
pub fn close() {
    let v = vault();
    let start = cycles();
    v.state.store(2, Relaxed);
    set_all(true);
    let cost = cycles().wrapping_sub(start);
    v.patience.store((2 * cost * SHARE).max(PATIENCE), Relaxed);
}
