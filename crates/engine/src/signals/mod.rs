//! Signals: the kernel gives them to the engine, the engine gives them to the guest at an exact place.
//!
//! The kernel keeps pending sets, queues and the choice among threads. Its mask for a task is the guest's, less the five
//! fault signals and the engine's own. A signal that arrives is held in the thread's record with everything else blocked,
//! until the guest is at an instruction boundary; then its frame is built and the kernel gets the mask the handler runs
//! with. So there is never more than one in hand.

pub mod actions;
pub mod fatal;
pub mod frame;
pub mod handler;
pub mod xstate;

use crate::sys::{self, nr};
use crate::threads::Thread;
use crate::threads::sched::PREEMPT_SIGNAL;
pub use actions::{Action, Actions};

pub const SIGILL: u32 = 4;
pub const SIGTRAP: u32 = 5;
pub const SIGBUS: u32 = 7;
pub const SIGFPE: u32 = 8;
pub const SIGKILL: u32 = 9;
pub const SIGSEGV: u32 = 11;
pub const SIGSTOP: u32 = 19;

pub const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// Signals that faults of the guest's (or the engine's) own instructions raise.
pub const FAULTS: u64 = bit(SIGILL) | bit(SIGTRAP) | bit(SIGBUS) | bit(SIGFPE) | bit(SIGSEGV);

/// What must never be blocked in the kernel.
pub const NEVER_BLOCKED: u64 = FAULTS | bit(PREEMPT_SIGNAL);

/// Gives the kernel the mask that corresponds to the guest's.
pub fn apply_mask(t: &Thread) {
    set_kernel_mask(t.mask & !NEVER_BLOCKED);
}

/// Blocks everything that can be blocked.
pub fn block_all() {
    set_kernel_mask(!NEVER_BLOCKED);
}

pub fn set_kernel_mask(mask: u64) {
    // SAFETY: the kernel reads eight bytes. 2 = SIG_SETMASK.
    unsafe { sys::raw(nr::RT_SIGPROCMASK, [2, &raw const mask as u64, 0, 8, 0, 0]) };
}
