//! One guest thread: its record, its signal stack and its engine stack, in one aligned region.
//!
//! The region is aligned to its size, so the current thread is found by masking the stack pointer, in engine code and in
//! signal handlers alike. Regions are mapped once and reused. The record is outside the protected part of the engine:
//! handlers of threads that do not hold the baton write to their own.

use crate::gate::Gate;
use crate::signals::xstate::Area;
use crate::sys;
use core::sync::atomic::{AtomicU32, Ordering::*, compiler_fence};
use model::layout::THREADS;

/// Size and alignment of a region.
pub const REGION: u64 = 256 << 10;
const RECORD: u64 = 8 << 10;
const EXTENDED: u64 = 4 << 10;
const SIGNAL_STACK: u64 = 64 << 10;

/// The kernel's `siginfo_t`, as words.
pub type SigInfo = [u64; 16];

/// Bits of `Thread::pending`.
pub mod pending {
    /// A signal has been taken from the kernel and waits for delivery.
    pub const SIGNAL: u32 = 1;
    /// Another thread wants to run.
    pub const PREEMPT: u32 = 2;
    /// The guest wrote to a page that holds translated code.
    pub const CODE_WRITTEN: u32 = 4;
}

/// How a thread waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Wait {
    /// Has the baton or wants it.
    Running = 0,
    /// In a futex queue.
    Futex = 1,
    /// In a system call outside the baton.
    Kernel = 2,
    /// The region is free.
    Gone = 3,
}

/// A guest thread. Invariant: lives at the start of a region of `THREADS`.
#[repr(C)]
pub struct Thread {
    pub index: u32,
    /// Counts threads of the process in order of creation; regions are reused, this is not.
    pub serial: u32,
    pub tid: u32,
    /// Registers while the thread does not hold the baton.
    pub saved: SavedContext,
    /// What must be looked at before the guest goes on ([`pending`]). This thread's handler may add to it at any moment,
    /// and the guest-call code reads it.
    pending: AtomicU32,
    /// A futex word: 0 = sleep, 2 = queued for the baton, 1 = go.
    pub wake: u32,
    pub wait: Wait,
    pub info: SigInfo,
    /// What the kernel's frame said of a fault: trap number, error code, fault address.
    pub fault: [u64; 3],
    /// The pending signal is a fault of the instruction at the pc (delivered even if blocked: then it kills).
    pub synchronous: bool,
    /// The guest's signal mask (the kernel's is this less the engine's own signals, or full while one is pending).
    pub mask: u64,
    /// Mask to put back after `rt_sigsuspend`-like calls, once the handler's frame is built.
    pub restore_mask: Option<u64>,
    pub alt_stack: AltStack,
    /// Word to clear and wake when the thread ends.
    pub clear_tid: u64,
    pub robust_list: u64,
    pub robust_len: u64,
    /// Where the guest's next blocking call is to be resumed with a relative deadline already running.
    pub futex_addr: u64,
    pub futex_bits: u32,
    /// Set by the waker.
    pub futex_woken: bool,
    pub futex_pi: bool,
    /// Waits in the run queue rather than in the futex queue (timed, with a seed).
    pub futex_turns: bool,
    /// Waits for something outside the process.
    pub outside: bool,
    /// Next in the run queue or futex queue; index + 1, 0 = none.
    pub next: u32,
    /// The kernel clears this when the task is gone and its region may be used again.
    pub task: u32,
    /// A fault-type signal that somebody sent while the guest had it blocked.
    pub held: Option<SigInfo>,
    /// The handler asked for single steps until the guest is at an instruction boundary.
    pub stepping: bool,
    /// Deadline of a timed wait in (virtual or real) nanoseconds; 0 = none.
    pub deadline: u64,
    /// Virtual time at which a waiting thread last tried in vain.
    pub tried: u64,
    pub fs: u64,
    /// An instruction whose probe has been counted down, or has been dealt with, but which has not been executed since.
    pub probed: Option<u64>,
    /// Page of a write to translated code that must be retried by itself.
    pub written_page: u64,
    /// Turns that others get first, if they want any (chaos).
    pub lag: u32,
    /// What stores of the engine into the guest belong to, for the log.
    pub context: crate::record::Context,
    /// The call it is in, noted while a region lies ahead.
    pub call: Option<model::region::WaitingCall>,
}

/// `stack_t`.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub struct AltStack {
    pub sp: u64,
    pub flags: u32,
    pub size: u64,
}

pub const SS_ONSTACK: u32 = 1;
pub const SS_DISABLE: u32 = 2;
pub const SS_AUTODISARM: u32 = 1 << 31;

/// A guest context outside the gate.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct SavedContext {
    pub gpr: [u64; 16],
    pub rflags: u64,
    pub pc: u64,
    pub guest_gs: u64,
    pub hidden_flags: u64,
    pub xmm: [[u64; 2]; 16],
}

impl Thread {
    /// The thread whose engine or signal stack this code runs on.
    pub fn current() -> &'static mut Thread {
        let sp: u64;
        // SAFETY: reads a register.
        unsafe { core::arch::asm!("mov {}, rsp", out(reg) sp, options(nomem, nostack)) };
        // SAFETY: every engine stack and signal stack lies in a region whose record is initialised.
        unsafe { &mut *((sp & !(REGION - 1)) as *mut Thread) }
    }

    /// The record with this index.
    ///
    /// # Safety
    /// The region must have been mapped by [`Thread::create`].
    pub unsafe fn by_index(index: u32) -> &'static mut Thread {
        // SAFETY: by the caller.
        unsafe { &mut *(region(index) as *mut Thread) }
    }

    /// Maps (or reuses) region `index` and starts its record afresh.
    pub fn create(index: u32, fresh: bool) -> Result<&'static mut Thread, i64> {
        let at = region(index);
        if at + REGION > THREADS.end {
            return Err(-sys::err::EAGAIN);
        }
        if fresh {
            sys::map_engine(at, REGION, sys::PROT_READ | sys::PROT_WRITE)?;
            // Two guard pages: under the signal stack and under the engine stack.
            for guard in [at + RECORD, at + RECORD + SIGNAL_STACK] {
                // SAFETY: pages of the region just mapped, unused so far.
                unsafe { sys::raw3(sys::nr::MPROTECT, guard, 4096, sys::PROT_NONE) };
            }
        }
        // SAFETY: mapped, aligned, at least as large as the record, and not in use by any task.
        let t = unsafe { &mut *(at as *mut Thread) };
        // SAFETY: all-zero is a valid record (no references, enums have a zero variant).
        unsafe { core::ptr::write_bytes(t as *mut Thread, 0, 1) };
        t.index = index;
        t.alt_stack.flags = SS_DISABLE;
        t.restore_mask = None;
        t.held = None;
        t.probed = None;
        t.call = None;
        Ok(t)
    }

    /// A copy of the record, for a thread of a replay that does not run.
    pub fn copy(&self) -> Thread {
        // SAFETY: plain words (the one atomic is only this thread's own), without anything that must be dropped.
        unsafe { core::ptr::read(self) }
    }

    /// Vector, mask and x87 registers while the thread does not hold the baton, kept while a region lies ahead.
    pub fn extended(&self) -> &'static mut Area {
        // SAFETY: behind the record, in the part of the region that belongs to it.
        unsafe { &mut *((region(self.index) + EXTENDED) as *mut Area) }
    }

    /// Is any of `bits` ([`pending`]) set?
    pub fn has(&self, bits: u32) -> bool {
        self.pending.load(Relaxed) & bits != 0
    }

    pub fn has_any(&self) -> bool {
        self.has(u32::MAX)
    }

    pub fn raise(&self, bits: u32) {
        self.pending.fetch_or(bits, Relaxed);
    }

    pub fn settle(&self, bits: u32) {
        self.pending.fetch_and(!bits, Relaxed);
    }

    /// The word itself, for code that cannot call.
    pub fn pending_word(&self) -> *const u32 {
        self.pending.as_ptr()
    }

    /// Tells the gate what is pending. The handler, which does the same, may run between reading and writing.
    pub fn show_pending(&self, g: &mut Gate) {
        let shown = &raw mut g.pending;
        loop {
            let now = self.pending.load(SeqCst);
            // SAFETY: a word of the gate, which a handler on this thread may write too.
            unsafe { shown.write_volatile(now) };
            compiler_fence(SeqCst);
            if self.pending.load(SeqCst) == now {
                return;
            }
        }
    }

    /// Top of the engine stack.
    pub fn engine_stack(&self) -> u64 {
        region(self.index) + REGION - 64
    }

    /// Registers this task's signal stack with the kernel.
    pub fn install_signal_stack(&self) {
        let base = region(self.index) + RECORD + 4096;
        let stack = AltStack { sp: base, flags: 0, size: SIGNAL_STACK - 4096 };
        // SAFETY: the stack lies in this thread's region.
        unsafe { sys::raw3(sys::nr::SIGALTSTACK, &raw const stack as u64, 0, 0) };
    }
}

fn region(index: u32) -> u64 {
    THREADS.start + index as u64 * REGION
}

const _: () = assert!(size_of::<Thread>() as u64 <= EXTENDED && EXTENDED + size_of::<Area>() as u64 <= RECORD);
