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
use crate::threads::sched::PREEMPT_SIGNAL;
use crate::threads::{SigInfo, Thread, pending};
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
    // While one signal is in hand no other may come: there is one place only.
    let blocked = if t.has(pending::SIGNAL) { u64::MAX } else { t.mask };
    set_kernel_mask(blocked & !NEVER_BLOCKED);
}

/// The signal in hand, if there is one and it is not the guest's own fault, gives way to another. Everything that can be
/// blocked must be.
pub fn give_back(t: &mut Thread) {
    if t.has(pending::SIGNAL) && !t.synchronous {
        t.settle(pending::SIGNAL);
        let info = t.info;
        put_off(t, &info);
    }
}

/// Keeps a signal for later: in the kernel's queue of this thread or, as it would come at once from there, in the thread.
fn put_off(t: &mut Thread, info: &SigInfo) {
    let signal = info[0] as u32;
    if NEVER_BLOCKED & bit(signal) != 0 {
        t.held.get_or_insert(*info);
        return;
    }
    send_again(t, info);
}

/// Sends a signal to this thread with all that is known about it.
fn send_again(t: &Thread, info: &SigInfo) {
    if crate::replay::on() {
        return;
    }
    let signal = info[0] as u32 as u64;
    // SAFETY: a signal to ourselves; the kernel reads a siginfo.
    unsafe {
        let pid = sys::raw3(nr::GETPID, 0, 0, 0) as u64;
        if sys::raw(nr::RT_TGSIGQUEUEINFO, [pid, t.tid as u64, signal, info.as_ptr() as u64, 0, 0]) != 0 {
            sys::raw3(nr::TGKILL, pid, t.tid as u64, signal);
        }
    }
}

/// Blocks everything that can be blocked.
pub fn block_all() {
    set_kernel_mask(!NEVER_BLOCKED);
}

pub fn set_kernel_mask(mask: u64) {
    if crate::replay::on() {
        // Nothing from outside is for the guest.
        return;
    }
    store_kernel_mask(mask);
}

/// A replay begins: signals from outside are nobody's.
pub fn block_everything() {
    store_kernel_mask(!NEVER_BLOCKED);
}

fn store_kernel_mask(mask: u64) {
    // SAFETY: the kernel reads eight bytes. 2 = SIG_SETMASK.
    unsafe { sys::raw(nr::RT_SIGPROCMASK, [2, &raw const mask as u64, 0, 8, 0, 0]) };
}
