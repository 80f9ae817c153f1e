//! The engine's signal handler: decides, from where it interrupted, what a signal means.
//!
//! | interrupted at | fault | signal from outside |
//! |---|---|---|
//! | careful copy of guest memory | the copy ends there | held |
//! | code cache, boundary | guest fault with exact state | the guest stops here |
//! | code cache, jump of direct lookup | its target is not there | single steps, as below |
//! | code cache, elsewhere | guest fault with exact state | single steps to the next boundary, then as above |
//! | nowhere: no code is there | direct lookup read no entry | – |
//! | code cache, store to a trace buffer's guard | the next buffer | – |
//! | code cache, store to a page with translations | the engine drops them and the store is made again | – |
//! | code cache, store to a page of a vfork child | the page is kept as it was, the store goes on | – |
//! | engine, store to the closed vault or to such a page | opened, the store goes on | – |
//! | common code of the cache | engine fault | single steps, as below |
//! | gate, entering | engine fault | entry is abandoned |
//! | guest call, not yet made | engine fault | the call answers RESTART |
//! | rest of the engine | engine fault | held |

use super::{FAULTS, NEVER_BLOCKED, SIGBUS, SIGSEGV, SIGTRAP, bit};
use crate::cache::{Cache, Place};
use crate::gate::{self, Gate, exit};
use crate::report;
use crate::state::{Engine, engine};
use crate::sys;
use crate::threads::sched::PREEMPT_SIGNAL;
use crate::threads::{SigInfo, Thread, pending, sched};
use core::arch::global_asm;

/// The part of the kernel's `ucontext` that matters here.
#[repr(C)]
pub struct UContext {
    pub flags: u64,
    pub link: u64,
    pub stack: [u64; 3],
    /// r8..r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp.
    pub regs: [u64; 16],
    pub rip: u64,
    pub rflags: u64,
    pub segments: u64,
    pub error: u64,
    pub trap: u64,
    pub old_mask: u64,
    pub cr2: u64,
    pub fpstate: u64,
    pub reserved: [u64; 8],
    pub mask: u64,
}

/// Position in `UContext::regs` of the register with each hardware number.
pub const ORDER: [usize; 16] = [13, 14, 12, 11, 15, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7];

const TRAP_FLAG: u64 = 0x100;
const SEGV_MAPERR: u64 = 1;

global_asm!(
    ".globl clew_restorer",
    "clew_restorer:",
    "mov eax, 15",
    "syscall",
    "ud2",
    // The kernel enters with rdi = signal, rsi = info, rdx = context on the thread's signal stack.
    ".globl clew_signal_entry",
    "clew_signal_entry:",
    "cld",
    "sub rsp, 8",
    "call {handle}",
    "add rsp, 8",
    "ret",
    handle = sym handle,
);

unsafe extern "C" {
    fn clew_restorer();
    fn clew_signal_entry();
}

pub fn entry() -> u64 {
    clew_signal_entry as *const () as u64
}

pub fn restorer() -> u64 {
    clew_restorer as *const () as u64
}

extern "C" fn handle(signal: u32, info: *const SigInfo, context: *mut UContext) {
    // SAFETY: the kernel's own arguments.
    let (info, uc) = unsafe { (&*info, &mut *context) };
    let t = Thread::current();
    let code = info[1] as i32;
    // Faults of the CPU have positive codes; kill(), timers and the like do not. SI_KERNEL (0x80) is a fault here.
    // One that a program sends itself with such a code comes at the end of the call that sends it.
    let fault = FAULTS & bit(signal) != 0 && code > 0 && !sys::is_after_guest_call(uc.rip);
    if signal == PREEMPT_SIGNAL && code == -6 {
        return interrupt(t, uc, pending::PREEMPT);
    }
    if fault {
        on_fault(t, signal, info, uc);
    } else if t.has(pending::SIGNAL) {
        // One is in hand already: this one waits in the kernel, or in its place if it cannot be blocked there.
        uc.mask = !NEVER_BLOCKED;
        super::put_off(t, info);
    } else {
        t.info = *info;
        t.synchronous = false;
        uc.mask = !NEVER_BLOCKED;
        interrupt(t, uc, pending::SIGNAL);
    }
}

/// Something must be looked at soon: stops the guest if it is this thread that runs it.
fn interrupt(t: &mut Thread, uc: &mut UContext, why: u32) {
    t.raise(why);
    if let Some(to) = sys::guest_call_not_made(uc.rip) {
        uc.rip = to;
        return;
    }
    if !sched().holds(t) {
        return;
    }
    // SAFETY: this thread holds the baton.
    let g = unsafe { gate::gate() };
    t.show_pending(g);
    let code = gate::code();
    if code.entering.contains(&uc.rip) {
        uc.rip = code.abort;
        return;
    }
    if !Cache::contains(uc.rip) {
        return;
    }
    // SAFETY: guest code was interrupted, so nothing in the engine is under way.
    stop_or_step(unsafe { engine() }, t, uc);
}

/// In the cache: at a boundary the guest stops; elsewhere it takes one more step.
fn stop_or_step(e: &mut Engine, t: &mut Thread, uc: &mut UContext) {
    if let Some(place) = e.cache.place(uc.rip)
        && place.boundary
    {
        t.stepping = false;
        uc.rflags &= !TRAP_FLAG;
        return stop(e, uc, place);
    }
    t.stepping = true;
    uc.rflags |= TRAP_FLAG;
    // While stepping only faults may come.
    uc.mask = !FAULTS;
}

/// A single step is done.
fn stepped(e: &mut Engine, t: &mut Thread, uc: &mut UContext) {
    if Cache::contains(uc.rip) {
        stop_or_step(e, t, uc);
    } else {
        t.stepping = false;
        uc.rflags &= !TRAP_FLAG;
    }
    if !t.stepping {
        uc.mask = after_steps(t);
    }
}

/// Signals to block once single steps are over.
fn after_steps(t: &Thread) -> u64 {
    if t.has(pending::SIGNAL) { !NEVER_BLOCKED } else { t.mask & !NEVER_BLOCKED }
}

/// The guest is at an instruction boundary: its state goes into the gate and the engine goes on.
fn stop(e: &mut Engine, uc: &mut UContext, place: Place) {
    // SAFETY: the interrupted thread holds the baton.
    let g = unsafe { gate::gate() };
    for (n, at) in ORDER.iter().enumerate() {
        g.gpr[n] = uc.regs[*at];
    }
    for (register, slot) in place.spilled.iter().flatten() {
        let word = (model::layout::GATE + slot.gate_offset() as u64) as *const u64;
        // SAFETY: a word of the gate.
        g.gpr[*register as usize] = unsafe { *word };
    }
    g.rflags = uc.rflags & !TRAP_FLAG;
    g.pc = place.pc;
    g.exit = exit::STOPPED;
    *e.stopped = Some(place);
    leave_cache(uc, g);
}

/// The handler returns into the engine, which finds the guest's registers in the gate.
fn leave_cache(uc: &mut UContext, g: &Gate) {
    uc.rip = gate::code().stopped;
    uc.regs[ORDER[4]] = g.engine_rsp;
    // The engine runs with the direction flag clear.
    uc.rflags &= !(TRAP_FLAG | 1 << 10);
}

/// Was an instruction to be fetched where the engine has none?
fn is_stray_fetch(uc: &UContext) -> bool {
    const PAGE_FAULT: u64 = 14;
    const FETCH: u64 = 0x10;
    uc.trap == PAGE_FAULT && uc.error & FETCH != 0 && uc.cr2 == uc.rip && !model::layout::ENGINE.contains(&uc.rip)
}

/// Direct lookup has not found the target in rcx: the engine makes it known and goes on there.
fn lookup_missed(e: &mut Engine, t: &mut Thread, uc: &mut UContext, at: Option<&Place>) {
    // SAFETY: the interrupted thread holds the baton.
    let g = unsafe { gate::gate() };
    for (n, at) in ORDER.iter().enumerate() {
        g.gpr[n] = uc.regs[*at];
    }
    g.pc = g.gpr[1];
    g.gpr[1] = g.saved_rcx;
    g.rflags = uc.rflags & !TRAP_FLAG;
    g.exit = exit::ASTRAY;
    *e.missed_at = at.map(|place| (place.block, place.pc));
    if t.stepping {
        t.stepping = false;
        uc.mask = after_steps(t);
    }
    leave_cache(uc, g);
}

fn on_fault(t: &mut Thread, signal: u32, info: &SigInfo, uc: &mut UContext) {
    if signal == SIGTRAP && t.stepping {
        // SAFETY: stepping happens in guest code only.
        return stepped(unsafe { engine() }, t, uc);
    }
    let address = info[2];
    let memory = signal == SIGSEGV || signal == SIGBUS;
    let in_copy = sys::copy_fault_target(uc.rip);
    if !Cache::contains(uc.rip) {
        if signal == SIGSEGV && is_stray_fetch(uc) && sched().holds(t) {
            // SAFETY: guest code was interrupted, because only emitted code jumps to where nothing is (an engine that
            // jumped through a bad pointer would be taken for it).
            return lookup_missed(unsafe { engine() }, t, uc, None);
        }
        if memory && uc.error & 2 != 0 && crate::vault::open(address) {
            return;
        }
        if memory && uc.error & 2 != 0 && crate::state::is_installed() && sched().holds(t) {
            // SAFETY: the engine touched a page that it protects itself; it is not in the middle of changing its tables.
            let e = unsafe { engine() };
            if e.reopen_page(address) {
                return;
            }
        }
        if let Some(to) = in_copy {
            uc.rip = to;
            return;
        }
        let at = uc.rip;
        report::fatal(
            alloc::format!(
                "signal {signal} (code {}) inside the engine at {at:#x}, address {address:#x}",
                info[1] as i32
            ),
            // SAFETY: reads a word of the gate, which is mapped as long as guests run.
            unsafe { gate::gate() }.pc,
        );
    }
    // SAFETY: guest code was interrupted.
    let e = unsafe { engine() };
    if memory && e.tracer.is_guard(address) {
        return e.next_trace_buffer(uc);
    }
    // int3 traps behind its instruction; the others report the instruction itself.
    let trap = signal == SIGTRAP;
    let Some(mut place) = e.cache.place(uc.rip - trap as u64) else {
        let at = uc.rip;
        report::fatal(alloc::format!("signal {signal} in common code at {at:#x}, address {address:#x}"), 0);
    };
    if place.lookup && memory {
        return lookup_missed(e, t, uc, Some(&place));
    }
    if memory && uc.error & 2 != 0 {
        if e.reopen_vfork_page(address) {
            return;
        }
        if e.pages.is_protected(address) {
            t.written_page = address & !0xfff;
            t.raise(pending::CODE_WRITTEN);
            if t.stepping {
                t.stepping = false;
                uc.mask = after_steps(t);
            }
            return stop(e, uc, place);
        }
    }
    t.stepping = false;
    // Steps may have been made because a signal had come: it comes again later.
    super::give_back(t);
    t.info = *info;
    t.fault = [uc.trap, uc.error, uc.cr2];
    t.synchronous = true;
    t.raise(pending::SIGNAL);
    if signal == SIGSEGV && model::layout::touches_engine(address, 1) {
        // Natively nothing is mapped there.
        t.info[1] = SEGV_MAPERR;
        t.fault[1] &= !1;
    }
    if trap {
        place.pc = e.after_instruction(place.pc);
        place.instruction += 1;
    } else if !memory {
        t.info[2] = place.pc;
    }
    uc.mask = !NEVER_BLOCKED;
    stop(e, uc, place);
}
