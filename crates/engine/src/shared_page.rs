//! The shared page: words that change too often to lie in the vault, or that threads without the baton use.
//!
//! It is mapped at start, filled with zeros, and never write-protected. Scheduler and vault use atomics; the rest belongs to
//! the [`Engine`](crate::state::Engine), which is exclusive to the thread that holds the baton.

use crate::cache::{BlockIndex, Place};
use crate::record::LogState;
use crate::state::Clock;
use crate::threads::sched::Sched;
use crate::tracer::Position;
use crate::vault::Vault;
use core::mem::offset_of;
use model::layout::{PAGE, SHARED};
use model::wire::Stats;

#[repr(C)]
struct SharedPage {
    sched: Sched,
    vault: Vault,
    words: Words,
}

const _: () = assert!(size_of::<SharedPage>() as u64 <= PAGE && align_of::<SharedPage>() as u64 <= PAGE);

/// The engine's own words.
pub struct Words {
    pub stats: Stats,
    pub clock: Clock,
    pub stopped: Option<Place>,
    pub missed_at: Option<(BlockIndex, u64)>,
    pub trace: Position,
    pub log: LogState,
    pub elsewhere: crate::files::Elsewhere,
}

pub fn sched() -> &'static Sched {
    // SAFETY: mapped at start, all-zero is valid, and every field is atomic.
    unsafe { &*((SHARED + offset_of!(SharedPage, sched) as u64) as *const Sched) }
}

/// Where the log is.
pub fn log_state() -> &'static mut LogState {
    let at = SHARED + (offset_of!(SharedPage, words) + offset_of!(Words, log)) as u64;
    // SAFETY: put there at start; only the holder of the baton uses it.
    unsafe { &mut *(at as *mut LogState) }
}

/// Descriptors that are known to lead elsewhere than into `/proc`.
pub fn elsewhere() -> &'static mut crate::files::Elsewhere {
    let at = SHARED + (offset_of!(SharedPage, words) + offset_of!(Words, elsewhere)) as u64;
    // SAFETY: as above.
    unsafe { &mut *(at as *mut crate::files::Elsewhere) }
}

pub fn vault() -> &'static Vault {
    // SAFETY: as above.
    unsafe { &*((SHARED + offset_of!(SharedPage, vault) as u64) as *const Vault) }
}

/// Puts the engine's words into the page.
///
/// # Safety
/// To be called once, after the page has been mapped.
pub unsafe fn put(words: Words) -> &'static mut Words {
    let at = (SHARED + offset_of!(SharedPage, words) as u64) as *mut Words;
    // SAFETY: by the caller; the place is aligned and large enough, and nobody else refers to it.
    unsafe {
        at.write(words);
        &mut *at
    }
}
