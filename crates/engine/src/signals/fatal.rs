//! The end of the guest by a signal: said where, then done for real, so that the parent sees the same status.

use super::actions::{SIG_DFL, tell_kernel};
use super::{NEVER_BLOCKED, bit, set_kernel_mask};
use crate::gate;
use crate::procfs::read_file;
use crate::state::Engine;
use crate::sys::{self, nr};
use crate::threads::{SigInfo, Thread};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use model::GuestAddr;
use model::wire::{Crash, Frame, Mapped, Registers, Report};

/// What of the stack and of the list of mapped files is told: a report must fit into a packet.
const STACK_BYTES: usize = 24 << 10;
const MAPPED_BYTES: usize = 16 << 10;
/// Words of stack looked at for return addresses.
const STACK_WORDS: u64 = 512;
const FRAMES: usize = 24;

/// Reports the crash and kills the process with `signal`.
pub fn die(e: &mut Engine, t: &mut Thread, signal: u32, info: &SigInfo) -> ! {
    e.close_trace();
    if e.replaying() {
        crate::replay::ended(e, 1, signal);
    }
    if e.trial.is_some() {
        // SAFETY: the baton is held.
        crate::trial::died(e, unsafe { gate::gate() }, signal, info[2]);
    }
    e.log_end(model::log::Ending::Signaled, signal);
    let crash = describe(e, t, signal, info);
    e.control.send(e.pid, Report::Crash(Box::new(crash)));
    e.send_totals();
    e.finish_vfork();
    loop {
        tell_kernel(signal, SIG_DFL, 0);
        set_kernel_mask(!NEVER_BLOCKED & !bit(signal));
        // SAFETY: ends this process.
        unsafe {
            let pid = sys::raw3(nr::GETPID, 0, 0, 0) as u64;
            sys::raw3(nr::TGKILL, pid, t.tid as u64, signal as u64);
            // A signal whose default is not to kill cannot come here; should one, the status still tells.
            sys::raw3(nr::EXIT_GROUP, 128 + signal as u64, 0, 0);
        }
    }
}

fn describe(e: &Engine, t: &Thread, signal: u32, info: &SigInfo) -> Crash {
    // SAFETY: the baton is held.
    let g = unsafe { gate::gate() };
    let maps = read_file(b"/proc/self/maps\0");
    let locate = |pc: u64| find_file(&maps, pc).unwrap_or_default();
    let (file, file_offset) = locate(g.pc);
    let mut frames = Vec::new();
    let mut last_bp = g.gpr[5];
    // Frame pointers first where they make sense; otherwise words on the stack that follow a call.
    while frames.len() < FRAMES && last_bp >= g.gpr[4] && last_bp % 8 == 0 {
        let (Some(next), Some(ret)) = (sys::read_u64(last_bp), sys::read_u64(last_bp + 8)) else { break };
        if !is_return_address(e, ret) || next <= last_bp {
            break;
        }
        let (file, file_offset) = locate(ret);
        frames.push(Frame { pc: GuestAddr(ret), file, file_offset });
        last_bp = next;
    }
    if frames.len() < 2 {
        frames.clear();
        for n in 0..STACK_WORDS {
            let Some(word) = sys::read_u64(g.gpr[4].wrapping_add(n * 8)) else { break };
            if is_return_address(e, word) {
                let (file, file_offset) = locate(word);
                frames.push(Frame { pc: GuestAddr(word), file, file_offset });
                if frames.len() == FRAMES {
                    break;
                }
            }
        }
    }
    let mut stack = alloc::vec![0; STACK_BYTES];
    let readable = sys::read_guest(g.gpr[4], &mut stack);
    stack.truncate(readable);
    Crash {
        tid: t.tid,
        signal,
        code: info[1] as i32,
        addr: GuestAddr(info[2]),
        registers: Registers { gpr: g.gpr, rip: g.pc, rflags: g.rflags },
        tick: e.clock.now(),
        file,
        file_offset,
        stack,
        mapped: mapped_files(&maps),
        frames,
    }
}

/// The files in the list of mappings, each with its first piece.
fn mapped_files(maps: &[u8]) -> Vec<Mapped> {
    let mut files: Vec<Mapped> = Vec::new();
    let mut room = MAPPED_BYTES;
    for (range, offset, name) in maps.split(|b| *b == b'\n').filter_map(file_mapping) {
        if name.starts_with("/memfd:") || files.iter().any(|f| f.file == name) {
            continue;
        }
        let Some(left) = room.checked_sub(name.len() + 24) else { break };
        room = left;
        files.push(Mapped { start: GuestAddr(range.start), file: name.into(), file_offset: offset });
    }
    files
}

/// Range, offset and name of a line of the list of mappings, if it is of a file.
fn file_mapping(line: &[u8]) -> Option<(Range<u64>, u64, &str)> {
    let hex = |s: &str| u64::from_str_radix(s, 16).ok();
    let mut words = core::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let (lo, hi) = words.next()?.split_once('-')?;
    let offset = words.nth(1)?;
    let name = words.nth(2).filter(|n| n.starts_with('/'))?;
    Some((hex(lo)?..hex(hi)?, hex(offset)?, name))
}

/// Does the code before `at` end in a call?
fn is_return_address(e: &Engine, at: u64) -> bool {
    if e.memory.code(at).is_none() || e.memory.code(at.wrapping_sub(7)).is_none() {
        return false;
    }
    let mut b = [0u8; 7];
    if sys::read_guest(at - 7, &mut b) < 7 {
        return false;
    }
    // call rel32, or call r/m in its 2-, 3-, 4-, 6- and 7-byte forms.
    b[2] == 0xe8
        || [5usize, 4, 3, 1, 0].iter().any(|&k| b[k] == 0xff && b[k + 1] >> 3 & 7 == 2)
        || b[4] == 0x41 && b[5] == 0xff && b[6] >> 3 & 7 == 2
}

/// Name and file offset of what is mapped at `pc`.
fn find_file(maps: &[u8], pc: u64) -> Option<(String, u64)> {
    let mut files = maps.split(|b| *b == b'\n').filter_map(file_mapping);
    let (range, offset, name) = files.find(|(range, ..)| range.contains(&pc))?;
    Some((name.into(), pc - range.start + offset))
}
