//! A new guest thread: a kernel task of its own that waits for the baton.

use super::record::Thread;
use crate::gate;
use crate::shared_page::sched;
use crate::signals::{apply_mask, block_all};
use crate::sys::{self, err};
use crate::syscalls::process::{CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID, CLONE_PARENT_SETTID, CLONE_SETTLS};
use crate::syscalls::{Call, Outcome};
use core::arch::asm;

/// VM, FS, FILES, SIGHAND, THREAD, SYSVSEM; the kernel clears the region's `task` word when the task is gone.
const TASK_FLAGS: u64 =
    0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000 | CLONE_CHILD_CLEARTID | CLONE_PARENT_SETTID;

/// The guest's `clone` with CLONE_THREAD.
pub fn thread(call: &mut Call<'_>, flags: u64, stack: u64, ptid: u64, ctid: u64, tls: u64) -> Outcome {
    let Some(child) = region(call) else { return Outcome::Value(-err::EAGAIN) };
    let g = &mut *call.g;
    child.saved.gpr = g.gpr;
    child.saved.gpr[0] = 0;
    if stack != 0 {
        child.saved.gpr[4] = stack;
    }
    child.saved.rflags = g.rflags;
    child.saved.pc = g.pc;
    child.saved.guest_gs = g.guest_gs;
    child.saved.xmm = g.xmm;
    child.mask = call.t.mask;
    child.fs = if flags & CLONE_SETTLS != 0 { tls } else { gate::fs_base() };
    child.clear_tid = if flags & CLONE_CHILD_CLEARTID != 0 { ctid } else { 0 };
    child.task = 1;
    if crate::record::region::ahead() {
        crate::signals::xstate::save(call.e.loaded.xstate, g, child.extended());
    }
    block_all();
    // SAFETY: the child starts on its own engine stack in `begin` and shares everything else.
    let tid = unsafe { start_task(child) };
    if sys::is_err(tid) {
        call.e.free_regions.push(child.index);
        child.task = 0;
        apply_mask(call.t);
        return Outcome::Value(tid);
    }
    child.tid = tid as u32;
    if flags & CLONE_PARENT_SETTID != 0 {
        sys::write_u32(ptid, tid as u32);
    }
    if flags & CLONE_CHILD_SETTID != 0 {
        sys::write_u32(ctid, tid as u32);
    }
    child.serial = call.e.stats.threads as u32;
    call.e.stats.threads += 1;
    sched().admit(child);
    call.e.chaos_begins();
    apply_mask(call.t);
    Outcome::Value(tid)
}

/// A region that no task uses, or a fresh one.
fn region(call: &mut Call<'_>) -> Option<&'static mut Thread> {
    let e = &mut *call.e;
    for n in 0..e.thread_regions {
        // SAFETY: regions below the count exist.
        let t = unsafe { Thread::by_index(n) };
        // SAFETY: the kernel clears this word behind our back.
        let free = unsafe { core::ptr::read_volatile(&raw const t.task) } == 0;
        if free && t.index != call.t.index {
            e.free_regions.retain(|i| *i != n);
            return Thread::create(n, false).ok();
        }
    }
    let t = Thread::create(e.thread_regions, true).ok()?;
    e.thread_regions += 1;
    Some(t)
}

/// Starts the kernel task.
///
/// # Safety
/// The record must be set up, and its stacks unused.
unsafe fn start_task(child: &mut Thread) -> i64 {
    let top = child.engine_stack();
    let task = &raw mut child.task as u64;
    let r: i64;
    // SAFETY: in the child, rsp is the top of its own stack and `begin` never returns; in the parent nothing changes.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "call {begin}",
            "ud2",
            "2:",
            begin = sym begin,
            inlateout("rax") sys::nr::CLONE => r,
            in("rdi") TASK_FLAGS,
            in("rsi") top,
            in("rdx") task,
            in("r10") task,
            in("r8") 0,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    r
}

/// First code of a new task.
extern "C" fn begin() -> ! {
    let t = Thread::current();
    gate::attach();
    gate::set_fs_base(t.fs);
    t.install_signal_stack();
    sched().wait_for_turn(t);
    apply_mask(t);
    // SAFETY: the baton is held.
    t.show_pending(unsafe { gate::gate() });
    crate::run::run(t)
}
