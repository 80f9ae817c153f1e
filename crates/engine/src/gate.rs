//! The gate between engine and guest: one context page behind GS, and the code that passes through it.
//!
//! Only one guest thread runs at a time, so there is one gate per process; a thread that stops running has its registers
//! copied into its own record. Behind the context page lie the hash table of checked lookup and the counters of probes, reached with
//! the same segment. FS is the guest's own at all times: the engine has no TLS.
//!
//! The engine is built for baseline x86-64 and touches no floating point, so the gate saves the sixteen XMM registers
//! and leaves the upper halves of YMM and ZMM, masks, x87 and MXCSR where they are, in the CPU.

use core::arch::{asm, global_asm};
use core::mem::offset_of;
use model::layout::GATE;

/// Entries of the indirect-branch lookup table: one per value of the low 16 bits of a target.
pub const TABLE_ENTRIES: usize = 1 << 16;
/// Distance of the table from the gate.
pub const TABLE_OFFSET: u64 = 0x1000;
/// Bytes to map for gate and table.
pub const GATE_BYTES: u64 = TABLE_OFFSET + TABLE_ENTRIES as u64 * 8;

/// The context page. Offsets are part of the emitted code.
#[repr(C)]
pub struct Gate {
    /// Guest registers in hardware order: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8..r15.
    pub gpr: [u64; 16],
    pub rflags: u64,
    /// Where the guest is: set by the engine before entry and by exits that know only at run time.
    pub pc: u64,
    /// Which exit was taken (index into the table of exits, or one of the fixed numbers in [`exit`]).
    pub exit: u32,
    /// Something must be looked at before the guest goes on.
    pub pending: u32,
    /// Cache address to enter.
    pub target: u64,
    pub engine_rsp: u64,
    /// Address of `clew_gate_exit`, for the cache's one jump out.
    pub exit_code: u64,
    /// Guest r11 and rcx during an indirect branch.
    pub saved_r11: u64,
    pub saved_rcx: u64,
    /// Guest registers while emitted code uses them as scratch.
    pub spill: [u64; 3],
    /// Ticks left until the engine wants to be asked, in two counters: see [`crate::state::Clock`].
    pub budgets: [u64; 2],
    /// Where the next trace record goes.
    pub trace: u64,
    /// The guest's GS base (the CPU's own is this page).
    pub guest_gs: u64,
    /// Flags the guest believes to have set, which the CPU must not see: alignment check.
    pub hidden_flags: u64,
    pub xmm: [[u64; 2]; 16],
}

/// Byte offsets of gate fields, for emitted code.
pub mod at {
    use super::*;
    pub const EXIT: i32 = offset_of!(Gate, exit) as i32;
    pub const PC: i32 = offset_of!(Gate, pc) as i32;
    pub const EXIT_CODE: i32 = offset_of!(Gate, exit_code) as i32;
    pub const R11: i32 = offset_of!(Gate, saved_r11) as i32;
    pub const RCX: i32 = offset_of!(Gate, saved_rcx) as i32;
    pub const SPILL0: i32 = offset_of!(Gate, spill) as i32;
    pub const SPILL1: i32 = SPILL0 + 8;
    pub const SPILL2: i32 = SPILL0 + 16;
    pub const BUDGETS: i32 = offset_of!(Gate, budgets) as i32;
    pub const TRACE: i32 = offset_of!(Gate, trace) as i32;
    pub const GUEST_GS: i32 = offset_of!(Gate, guest_gs) as i32;
    pub const TABLE: i32 = TABLE_OFFSET as i32;

    /// The counter of ticks that a branch counts down. Its address within a page decides, which is the same wherever an
    /// image is loaded.
    pub fn budget(branch: u64) -> i32 {
        BUDGETS + 8 * ((branch ^ branch >> 3 ^ branch >> 6) & 1) as i32
    }
}

impl Gate {
    /// The engine takes a branch for the guest: that is a tick too.
    pub fn count_tick(&mut self) {
        let fuller = usize::from(self.budgets[1] > self.budgets[0]);
        self.budgets[fuller] = self.budgets[fuller].saturating_sub(1);
    }
}

/// Exit numbers that are not indices into the table of exits.
pub mod exit {
    /// An indirect branch whose target checked lookup does not find; the target is in `Gate::pc`.
    pub const CHECKED: u32 = 0xffff_fff0;
    /// The tick budget ran out at an indirect branch; the target is in `Gate::pc`.
    pub const TICK_INDIRECT: u32 = 0xffff_fff1;
    /// A handler stopped the guest at an instruction boundary; `Gate::pc` says where.
    pub const STOPPED: u32 = 0xffff_fff2;
    /// An indirect branch whose target was expected, but has no block yet; the target is in `Gate::pc`.
    pub const DIRECT: u32 = 0xffff_fff3;
    /// Direct lookup of the target in `Gate::pc` ended in a fault.
    pub const ASTRAY: u32 = 0xffff_fff4;
}

const _: () = assert!(offset_of!(Gate, rflags) == 0x80 && offset_of!(Gate, pc) == 0x88);
const _: () = assert!(offset_of!(Gate, pending) == 0x94 && offset_of!(Gate, target) == 0x98);
const _: () = assert!(offset_of!(Gate, engine_rsp) == 0xa0 && offset_of!(Gate, xmm) == 0x100);

global_asm!(
    // Enter the guest at gs:[target] with the registers in the gate.
    ".globl clew_gate_enter",
    ".globl clew_gate_enter_check",
    ".globl clew_gate_enter_end",
    ".globl clew_gate_abort",
    ".globl clew_gate_exit",
    ".globl clew_gate_stopped",
    "clew_gate_enter:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov gs:[0xa0], rsp",
    "clew_gate_enter_check:",
    "cmp dword ptr gs:[0x94], 0",
    "jne clew_gate_abort",
    "movups xmm0, gs:[0x100]",
    "movups xmm1, gs:[0x110]",
    "movups xmm2, gs:[0x120]",
    "movups xmm3, gs:[0x130]",
    "movups xmm4, gs:[0x140]",
    "movups xmm5, gs:[0x150]",
    "movups xmm6, gs:[0x160]",
    "movups xmm7, gs:[0x170]",
    "movups xmm8, gs:[0x180]",
    "movups xmm9, gs:[0x190]",
    "movups xmm10, gs:[0x1a0]",
    "movups xmm11, gs:[0x1b0]",
    "movups xmm12, gs:[0x1c0]",
    "movups xmm13, gs:[0x1d0]",
    "movups xmm14, gs:[0x1e0]",
    "movups xmm15, gs:[0x1f0]",
    "push qword ptr gs:[0x80]",
    "popfq",
    "mov rax, gs:[0x00]",
    "mov rcx, gs:[0x08]",
    "mov rdx, gs:[0x10]",
    "mov rbx, gs:[0x18]",
    "mov rsp, gs:[0x20]",
    "mov rbp, gs:[0x28]",
    "mov rsi, gs:[0x30]",
    "mov rdi, gs:[0x38]",
    "mov r8, gs:[0x40]",
    "mov r9, gs:[0x48]",
    "mov r10, gs:[0x50]",
    "mov r11, gs:[0x58]",
    "mov r12, gs:[0x60]",
    "mov r13, gs:[0x68]",
    "mov r14, gs:[0x70]",
    "mov r15, gs:[0x78]",
    "jmp qword ptr gs:[0x98]",
    "clew_gate_enter_end:",
    // The guest leaves the cache: everything into the gate, back to the engine's stack.
    "clew_gate_exit:",
    "mov gs:[0x00], rax",
    "mov gs:[0x08], rcx",
    "mov gs:[0x10], rdx",
    "mov gs:[0x18], rbx",
    "mov gs:[0x20], rsp",
    "mov gs:[0x28], rbp",
    "mov gs:[0x30], rsi",
    "mov gs:[0x38], rdi",
    "mov gs:[0x40], r8",
    "mov gs:[0x48], r9",
    "mov gs:[0x50], r10",
    "mov gs:[0x58], r11",
    "mov gs:[0x60], r12",
    "mov gs:[0x68], r13",
    "mov gs:[0x70], r14",
    "mov gs:[0x78], r15",
    "mov rsp, gs:[0xa0]",
    "pushfq",
    "pop qword ptr gs:[0x80]",
    "cld",
    // A handler that stopped the guest has filled the gate's integer registers itself and comes in here.
    "clew_gate_stopped:",
    "movups gs:[0x100], xmm0",
    "movups gs:[0x110], xmm1",
    "movups gs:[0x120], xmm2",
    "movups gs:[0x130], xmm3",
    "movups gs:[0x140], xmm4",
    "movups gs:[0x150], xmm5",
    "movups gs:[0x160], xmm6",
    "movups gs:[0x170], xmm7",
    "movups gs:[0x180], xmm8",
    "movups gs:[0x190], xmm9",
    "movups gs:[0x1a0], xmm10",
    "movups gs:[0x1b0], xmm11",
    "movups gs:[0x1c0], xmm12",
    "movups gs:[0x1d0], xmm13",
    "movups gs:[0x1e0], xmm14",
    "movups gs:[0x1f0], xmm15",
    "clew_gate_return:",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    // Something is pending: as if the guest had been stopped before its first instruction.
    "clew_gate_abort:",
    "cld",
    "mov rsp, gs:[0xa0]",
    "mov dword ptr gs:[0x90], 0xfffffff2",
    "jmp clew_gate_return",
);

unsafe extern "C" {
    fn clew_gate_enter();
    fn clew_gate_enter_check();
    fn clew_gate_enter_end();
    fn clew_gate_abort();
    fn clew_gate_exit();
    fn clew_gate_stopped();
}

/// Runs the guest from `Gate::target` until it leaves the cache.
///
/// # Safety
/// The gate must be set up for the calling thread and `target` be the entry of a valid translation of `Gate::pc`.
pub unsafe fn enter() {
    // SAFETY: by the caller; the code saves every callee-saved register and restores it.
    unsafe {
        asm!("call {f}", f = sym clew_gate_enter, out("rax") _, out("rcx") _, out("rdx") _, out("rsi") _, out("rdi") _,
             out("r8") _, out("r9") _, out("r10") _, out("r11") _, clobber_abi("sysv64"));
    }
}

/// Code addresses of the gate, for handlers that find themselves in it.
pub struct GateCode {
    pub entering: core::ops::Range<u64>,
    pub abort: u64,
    pub exit: u64,
    pub stopped: u64,
}

pub fn code() -> GateCode {
    GateCode {
        entering: clew_gate_enter_check as *const () as u64..clew_gate_enter_end as *const () as u64,
        abort: clew_gate_abort as *const () as u64,
        exit: clew_gate_exit as *const () as u64,
        stopped: clew_gate_stopped as *const () as u64,
    }
}

/// The gate of this process.
///
/// # Safety
/// The gate must be mapped; only the holder of the baton (or its signal handler) uses it.
pub unsafe fn gate() -> &'static mut Gate {
    // SAFETY: mapped at a fixed place by `Engine::start`; exclusive by the baton.
    unsafe { &mut *(GATE as *mut Gate) }
}

/// The lookup table of this process.
///
/// # Safety
/// As [`gate`].
pub unsafe fn table() -> &'static mut [u64; TABLE_ENTRIES] {
    // SAFETY: mapped with the gate.
    unsafe { &mut *((GATE + TABLE_OFFSET) as *mut [u64; TABLE_ENTRIES]) }
}

/// Points this kernel task's GS at the gate.
pub fn attach() {
    // SAFETY: the engine owns GS; guest uses of it are translated.
    unsafe { asm!("wrgsbase {}", in(reg) GATE, options(nostack)) };
}

/// This kernel task's FS base, which is always the guest's.
pub fn fs_base() -> u64 {
    let v: u64;
    // SAFETY: reads a register.
    unsafe { asm!("rdfsbase {}", out(reg) v, options(nostack)) };
    v
}

/// Sets the guest's FS base.
pub fn set_fs_base(v: u64) {
    // SAFETY: the engine does not use FS.
    unsafe { asm!("wrfsbase {}", in(reg) v, options(nostack)) };
}
