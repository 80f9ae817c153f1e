//! Delivery: the guest's signal frame, as the kernel would have built it, and the way back.

use super::actions::{SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SIG_DFL, SIG_IGN, kills_by_default};
use super::handler::{ORDER, UContext};
use super::xstate::{self, Area};
use super::{FAULTS, SIGSEGV, apply_mask, bit, fatal};
use crate::gate::{self, Gate};
use crate::record;
use crate::state::Engine;
use crate::sys;
use crate::threads::record::{AltStack, SS_AUTODISARM, SS_DISABLE, SS_ONSTACK};
use crate::threads::{SigInfo, Thread, pending};
use model::log::{Kind, SignalRecord};

const FRAME: u64 = 8 + size_of::<UContext>() as u64 + 128;
/// uc_flags: extended state present, stack segment saved and to be restored.
const UC_FLAGS: u64 = 7;
const SEGMENTS: u64 = 0x002b_0000_0000_0033;
/// Flags a program may set; the trap flag stays ours.
const USER_FLAGS: u64 = 0x0cd5;
/// Flags it may believe to set.
const HIDDEN_FLAGS: u64 = 0x4_0000;

/// Delivers what is pending: to the guest's handler, or as the end of the process.
pub fn deliver(e: &mut Engine, t: &mut Thread) {
    t.settle(pending::SIGNAL);
    if e.replaying() {
        crate::replay::signal_taken(e, t);
    }
    let signal = t.info[0] as u32;
    let info = t.info;
    let synchronous = core::mem::take(&mut t.synchronous);
    if record::on() {
        // SAFETY: the baton is held.
        let at = e.position(unsafe { gate::gate() });
        let taken = SignalRecord { at, synchronous, info, fault: t.fault };
        record::append(Kind::Signal, 0, &taken.encode());
    }
    let action = e.actions.get(signal);
    let blocked = t.mask & bit(signal) != 0;
    if FAULTS & bit(signal) != 0 {
        let fatal_fault = synchronous && (blocked || action.handler <= SIG_IGN);
        if fatal_fault || !synchronous && !blocked && action.handler == SIG_DFL {
            fatal::die(e, t, signal, &info);
        }
        if blocked {
            // Sent by somebody while the guest has it blocked: the kernel cannot hold it for us.
            t.held = Some(info);
            t.mask = t.restore_mask.take().unwrap_or(t.mask);
            return apply_mask(t);
        }
    }
    if action.handler == SIG_DFL && kills_by_default(signal) {
        fatal::die(e, t, signal, &info);
    }
    if action.handler <= SIG_IGN {
        // Changed since the kernel chose to deliver it. Let the kernel do what is right now.
        t.mask = t.restore_mask.take().unwrap_or(t.mask);
        apply_mask(t);
        if action.handler == SIG_DFL {
            super::send_again(t, &info);
        }
        return;
    }
    e.stats.signals += 1;
    e.clock.step();
    // SAFETY: the baton is held.
    let g = unsafe { gate::gate() };
    let saved_mask = t.restore_mask.take().unwrap_or(t.mask);
    e.trace_signal(t, signal, g.pc, action.handler);
    t.context = record::Context::Frame;
    let pushed = push_frame(e, t, g, signal, &info, saved_mask, synchronous);
    t.context = record::Context::None;
    if !pushed {
        // No stack to put it on.
        die_of_frame(e, t);
    }
    if e.replaying() {
        crate::replay::frame_built(e);
    }
    t.mask |= action.mask;
    if action.flags & SA_NODEFER == 0 {
        t.mask |= bit(signal);
    }
    t.mask &= !(bit(super::SIGKILL) | bit(super::SIGSTOP));
    if action.flags & SA_RESETHAND != 0 {
        e.actions.reset(signal);
    }
    g.pc = action.handler;
    after_mask_change(e, t);
}

fn on_alt_stack(t: &Thread, sp: u64) -> bool {
    t.alt_stack.flags & SS_AUTODISARM == 0 && sp > t.alt_stack.sp && sp - t.alt_stack.sp <= t.alt_stack.size
}

/// Flags that `sigaltstack` reports now.
pub fn alt_stack_flags(t: &Thread, sp: u64) -> u32 {
    if t.alt_stack.size == 0 {
        SS_DISABLE
    } else if on_alt_stack(t, sp) {
        SS_ONSTACK
    } else {
        0
    }
}

fn push_frame(
    e: &mut Engine,
    t: &mut Thread,
    g: &mut Gate,
    signal: u32,
    info: &SigInfo,
    saved_mask: u64,
    synchronous: bool,
) -> bool {
    let action = e.actions.get(signal);
    let mut sp = g.gpr[4].wrapping_sub(128);
    if action.flags & SA_ONSTACK != 0 && alt_stack_flags(t, g.gpr[4]) == 0 {
        sp = t.alt_stack.sp + t.alt_stack.size;
    }
    let layout = e.loaded.xstate;
    let fp = sp.wrapping_sub(layout.size as u64 + 4) & !63;
    let at = (fp.wrapping_sub(FRAME) & !15).wrapping_sub(8);

    let mut area = Area([0; xstate::MAX + 64]);
    xstate::save(layout, g, &mut area);
    // The kernel's note for programs that look: magic, sizes, components.
    area.0[464..468].copy_from_slice(&0x4650_5853u32.to_le_bytes());
    area.0[468..472].copy_from_slice(&(layout.size as u32 + 4).to_le_bytes());
    area.0[472..480].copy_from_slice(&layout.mask.to_le_bytes());
    area.0[480..484].copy_from_slice(&(layout.size as u32).to_le_bytes());
    area.0[layout.size..layout.size + 4].copy_from_slice(&0x4650_5845u32.to_le_bytes());

    let mut regs = [0; 16];
    for (n, at) in ORDER.iter().enumerate() {
        regs[*at] = g.gpr[n];
    }
    let [trap, error, cr2] = if synchronous { t.fault } else { [0; 3] };
    let stack = t.alt_stack;
    let uc = UContext {
        flags: UC_FLAGS,
        link: 0,
        stack: [stack.sp, (stack.flags & SS_AUTODISARM | alt_stack_flags(t, g.gpr[4])) as u64, stack.size],
        regs,
        rip: g.pc,
        rflags: g.rflags | g.hidden_flags,
        segments: SEGMENTS,
        error,
        trap,
        old_mask: 0,
        cr2,
        fpstate: fp,
        reserved: [0; 8],
        mask: saved_mask,
    };
    let ok = sys::write_guest(fp, &area.0[..layout.size + 4]) == layout.size + 4
        && sys::write_u64(at, action.restorer)
        && sys::write_guest(at + 8, bytes_of(&uc)) == size_of::<UContext>()
        && sys::write_guest(at + 8 + size_of::<UContext>() as u64, bytes_of(info)) == 128;
    if !ok {
        return false;
    }
    if stack.flags & SS_AUTODISARM != 0 {
        t.alt_stack = AltStack { flags: SS_DISABLE, ..AltStack::default() };
    }
    g.gpr[4] = at;
    g.gpr[7] = signal as u64;
    g.gpr[6] = at + 8 + size_of::<UContext>() as u64;
    g.gpr[2] = at + 8;
    g.gpr[0] = 0;
    // Handlers start with direction, resume and trap flags clear.
    g.rflags &= !(1 << 10 | 1 << 16 | 1 << 8);
    true
}

/// `rt_sigreturn`: everything as the frame says, which the handler may have edited.
pub fn sigreturn(e: &mut Engine, t: &mut Thread) {
    // SAFETY: the baton is held.
    let g = unsafe { gate::gate() };
    let at = g.gpr[4].wrapping_sub(8);
    // SAFETY: plain words; filled from guest memory right below.
    let mut uc: UContext = unsafe { core::mem::zeroed() };
    // SAFETY: the bytes of a local plain struct.
    let raw = unsafe { core::slice::from_raw_parts_mut(&raw mut uc as *mut u8, size_of::<UContext>()) };
    let layout = e.loaded.xstate;
    let mut area = Area([0; xstate::MAX + 64]);
    let frame_ok = sys::read_guest(at + 8, raw) == raw.len();
    let state_ok = frame_ok && (uc.fpstate == 0 || read_state(uc.fpstate, layout, &mut area));
    if !state_ok {
        die_of_frame(e, t);
    }
    for (n, at) in ORDER.iter().enumerate() {
        g.gpr[n] = uc.regs[*at];
    }
    g.pc = uc.rip;
    g.rflags = uc.rflags & USER_FLAGS | 0x202;
    g.hidden_flags = uc.rflags & HIDDEN_FLAGS;
    if uc.fpstate != 0 {
        xstate::restore(layout, g, &mut area);
    }
    let flags = uc.stack[1] as u32;
    if on_alt_stack(t, g.gpr[4]) || flags & SS_ONSTACK != 0 {
        // The kernel refuses to change a stack in use; the one in force stays.
    } else {
        t.alt_stack = AltStack { sp: uc.stack[0], flags: flags & SS_AUTODISARM, size: uc.stack[2] };
        if flags & SS_DISABLE != 0 {
            t.alt_stack = AltStack { flags: SS_DISABLE, ..AltStack::default() };
        }
    }
    t.mask = uc.mask & !(bit(super::SIGKILL) | bit(super::SIGSTOP));
    e.clock.step();
    e.trace_sigreturn(g.pc, g.rflags);
    after_mask_change(e, t);
}

/// A mask changed: a fault signal held back may now be deliverable; the kernel takes care of the others.
pub fn after_mask_change(_e: &mut Engine, t: &mut Thread) {
    if let Some(info) = t.held
        && t.mask & bit(info[0] as u32) == 0
        && !t.has(pending::SIGNAL)
    {
        super::block_all();
        if t.has(pending::SIGNAL) {
            // Another one was faster.
            return;
        }
        t.held = None;
        t.info = info;
        t.synchronous = false;
        t.raise(pending::SIGNAL);
        return;
    }
    apply_mask(t);
}

/// Reads a frame's extended state; a short or foreign one counts as legacy x87 and SSE only.
fn read_state(at: u64, layout: xstate::Layout, area: &mut Area) -> bool {
    if sys::read_guest(at, &mut area.0[..512]) < 512 {
        return false;
    }
    let word = |a: &Area, at: usize| u32::from_le_bytes(core::array::from_fn(|i| a.0[at + i]));
    let extended = word(area, 464) == 0x4650_5853 && word(area, 480) as usize == layout.size;
    if extended && sys::read_guest(at, &mut area.0[..layout.size]) == layout.size {
        return true;
    }
    area.0[512..].fill(0);
    area.0[512] = 3;
    true
}

fn bytes_of<T>(v: &T) -> &[u8] {
    // SAFETY: only used with plain `repr(C)` structs and arrays of words, which have no padding.
    unsafe { core::slice::from_raw_parts(v as *const T as *const u8, size_of::<T>()) }
}

/// A signal frame cannot be written or read: the kernel ends such a process by SIGSEGV, with code SI_KERNEL.
fn die_of_frame(e: &mut Engine, t: &mut Thread) -> ! {
    let mut info = SigInfo::default();
    (info[0], info[1]) = (SIGSEGV as u64, 0x80);
    fatal::die(e, t, SIGSEGV, &info)
}
