//! Instructions that the engine executes itself: those whose result depends on the machine or that change segment bases.

use crate::cpu::cpuid;
use crate::gate::{self, Gate};
use crate::record;
use crate::run::fault;
use crate::signals::{SIGILL, SIGSEGV};
use crate::state::Engine;
use crate::sys;
use crate::syscalls;
use crate::threads::Thread;
use crate::translate::Special;
use core::arch::x86_64::__cpuid_count;
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, Register};
use model::log::{Kind, SpecialRecord};
use trace::format;

/// Flags that `popf` may change from user mode: all of these; the trap flag is not passed on.
const POPF: u64 = 0x20_0cd5;
const ALIGNMENT_CHECK: u64 = 1 << 18;

/// Executes the special instruction of length `len` at the gate's pc.
pub fn execute(e: &mut Engine, t: &mut Thread, g: &mut Gate, s: Special, len: u8) {
    let next = g.pc + len as u64;
    match s {
        Special::Cpuid | Special::Rdtsc | Special::Rdtscp | Special::Random => {
            let values = machine_answer(e, g, s);
            apply_answer(e, g, s, values);
        }
        Special::Syscall => return syscalls::execute(e, t, g, len),
        Special::Int80 => {
            e.note("32-bit system calls (int 0x80) are not supported: answered ENOSYS", g.pc);
            g.gpr[0] = -sys::err::ENOSYS as u64;
        }
        Special::Xgetbv => {
            if e.config.cpu == model::Cpu::V2 {
                // Without OSXSAVE the instruction does not exist.
                return fault(t, SIGILL, 2, g.pc, [6, 0, 0]);
            }
            let raw = if g.gpr[1] as u32 == 0 { e.loaded.xstate.mask } else { 0 };
            let v = cpuid::xgetbv(e.config.cpu, raw);
            (g.gpr[0], g.gpr[2]) = (v & 0xffff_ffff, v >> 32);
        }
        Special::ReadFsGs => {
            let i = decode(e, g.pc);
            set_register(g, i.op0_register(), g.guest_gs);
        }
        Special::WriteFsGs => {
            let i = decode(e, g.pc);
            let v = get_register(g, i.op0_register());
            if v >> 47 != 0 && v >> 47 != 0x1_ffff {
                return fault(t, SIGSEGV, 0x80, 0, [13, 0, 0]);
            }
            if i.mnemonic() == Mnemonic::Wrfsbase {
                gate::set_fs_base(v);
            } else {
                g.guest_gs = v;
            }
        }
        Special::Popf => return popf(e, t, g, next),
        Special::Pushf => return pushf(e, t, g, next),
        Special::Xbegin => {
            let i = decode(e, g.pc);
            g.gpr[0] = 0;
            g.pc = i.near_branch_target();
            return;
        }
        Special::Unsupported => {
            let what = alloc::format!(
                "{:?} cannot be followed: it leads into 32-bit or far code, or changes GS",
                decode(e, g.pc).mnemonic()
            );
            e.note(&what, g.pc);
            return fault(t, SIGILL, 2, g.pc, [6, 0, 0]);
        }
    }
    g.pc = next;
}

/// What the machine answers: from the log in a replay, into the log in a recording.
fn machine_answer(e: &mut Engine, g: &Gate, s: Special) -> [u64; 4] {
    if e.replaying() {
        let values = crate::replay::special(e, g);
        if e.trial.is_none() {
            return values;
        }
        // A trial asks here for the first time what the recorded guest did not.
    }
    if e.trial.is_some() {
        return crate::trial::special(e, g, s);
    }
    let values = match s {
        Special::Cpuid => {
            let (leaf, sub) = (g.gpr[0] as u32, g.gpr[1] as u32);
            let r = __cpuid_count(leaf, sub);
            cpuid::mask(e.config.cpu, leaf, sub, [r.eax, r.ebx, r.ecx, r.edx]).map(u64::from)
        }
        Special::Random if e.seeded() => [e.clock.random(), 0, 0, 0],
        Special::Random => {
            let mut word = 0u64;
            // SAFETY: the kernel writes eight bytes.
            unsafe { sys::raw3(sys::nr::GETRANDOM, &raw mut word as u64, 8, 0) };
            [word, 0, 0, 0]
        }
        // A virtual GHz clock: ticks are nanoseconds. It never shows the same twice, even between two ticks.
        _ if e.seeded() => {
            e.clock.skipped_ns += 1;
            [e.clock.virtual_ns() + 1_000_000_000, 0, 0, 0]
        }
        // SAFETY: reads a counter.
        _ => [unsafe { core::arch::x86_64::_rdtsc() }, 0, 0, 0],
    };
    if record::on() {
        let record = SpecialRecord { pc: g.pc, tick: e.clock.now(), values };
        record::append(Kind::Special, 0, &record.encode());
    }
    values
}

/// Puts it where the instruction would.
fn apply_answer(e: &Engine, g: &mut Gate, s: Special, values: [u64; 4]) {
    match s {
        Special::Cpuid => [g.gpr[0], g.gpr[3], g.gpr[1], g.gpr[2]] = values,
        Special::Random => {
            let i = decode(e, g.pc);
            set_register(g, i.op0_register(), values[0]);
            g.rflags = g.rflags & !0x8d5 | 1;
        }
        _ => {
            (g.gpr[0], g.gpr[2]) = (values[0] & 0xffff_ffff, values[0] >> 32);
            if s == Special::Rdtscp {
                g.gpr[1] = 0;
            }
        }
    }
}

fn popf(e: &mut Engine, t: &mut Thread, g: &mut Gate, next: u64) {
    let i = decode(e, g.pc);
    let size = if i.mnemonic() == Mnemonic::Popf { 2 } else { 8 };
    let Some(v) = sys::read_u64(g.gpr[4]) else {
        let rsp = g.gpr[4];
        let code = if e.memory.find(rsp).is_some() { 2 } else { 1 };
        return fault(t, SIGSEGV, code, rsp, [14, 4, rsp]);
    };
    let v = if size == 2 { g.rflags & !0xffff | v & 0xffff } else { v };
    if v & 0x100 != 0 {
        e.note("the guest set the trap flag: single stepping of itself is not supported", g.pc);
    }
    let before = g.rflags >> 10 & 1;
    g.rflags = v & POPF | g.rflags & !POPF & !0x100 | 2;
    g.hidden_flags = if size == 8 { v & ALIGNMENT_CHECK } else { g.hidden_flags };
    g.gpr[4] += size;
    g.pc = next;
    let now = g.rflags >> 10 & 1;
    if now != before {
        e.trace_special(format::Special::Direction { df: now != 0 });
    }
}

fn pushf(e: &mut Engine, t: &mut Thread, g: &mut Gate, next: u64) {
    let wide = decode(e, g.pc).mnemonic() == Mnemonic::Pushfq;
    let size = if wide { 8 } else { 2 };
    let to = g.gpr[4].wrapping_sub(size as u64);
    let v = ((g.rflags | g.hidden_flags) & !0x1_0100).to_le_bytes();
    if sys::write_guest(to, &v[..size]) < size {
        let code = if e.memory.find(to).is_some() { 2 } else { 1 };
        return fault(t, SIGSEGV, code, to, [14, 6, to]);
    }
    g.gpr[4] = to;
    g.pc = next;
}

impl Engine {
    /// Address behind the instruction at `pc`.
    pub fn after_instruction(&self, pc: u64) -> u64 {
        pc + decode(self, pc).len().max(1) as u64
    }
}

fn decode(e: &Engine, pc: u64) -> Instruction {
    let code = e.memory.code(pc).unwrap_or_default();
    Decoder::with_ip(64, code, pc, DecoderOptions::NONE).decode()
}

fn number(r: Register) -> usize {
    (r.full_register() as u32).wrapping_sub(Register::RAX as u32) as usize & 15
}

fn get_register(g: &Gate, r: Register) -> u64 {
    let v = g.gpr[number(r)];
    if r.size() == 4 { v & 0xffff_ffff } else { v }
}

/// Writes a 16-, 32- or 64-bit register as the CPU would.
fn set_register(g: &mut Gate, r: Register, v: u64) {
    let full = &mut g.gpr[number(r)];
    *full = match r.size() {
        2 => *full & !0xffff | v & 0xffff,
        4 => v & 0xffff_ffff,
        _ => v,
    };
}
