//! System calls as slices see them: what they take and where it comes from.
//!
//! What a call wrote into the guest is in the recording; here is only what it read. Calls that are not listed are taken to
//! depend on all their argument registers and on no memory.

use crate::registers::RegId;
use crate::window::CallEffects;

const RDI: RegId = RegId(7);
const RSI: RegId = RegId(6);
const RDX: RegId = RegId(2);
const R10: RegId = RegId(10);
const R8: RegId = RegId(8);
const R9: RegId = RegId(9);
const ARGUMENTS: [RegId; 6] = [RDI, RSI, RDX, R10, R8, R9];

const READ: u64 = 0;
const WRITE: u64 = 1;
const CLOSE: u64 = 3;
const FSTAT: u64 = 5;
const LSEEK: u64 = 8;
const MMAP: u64 = 9;
const MUNMAP: u64 = 11;
const BRK: u64 = 12;
const PREAD: u64 = 17;
const PWRITE: u64 = 18;
const SENDTO: u64 = 44;
const EXIT: u64 = 60;
const EXIT_GROUP: u64 = 231;

/// The registers that a call takes its arguments from.
pub fn argument_registers(nr: u64) -> &'static [RegId] {
    // Calls without arguments: getpid, pause, fork, vfork, getppid, sched_yield, getuid and their like, gettid.
    let count = match nr {
        39 | 34 | 57 | 58 | 110 | 24 | 102 | 104 | 107 | 108 | 111 | 112 | 186 => 0,
        CLOSE | BRK | EXIT | EXIT_GROUP => 1,
        FSTAT | MUNMAP => 2,
        READ | WRITE | LSEEK => 3,
        PREAD | PWRITE => 4,
        _ => 6,
    };
    &ARGUMENTS[..count]
}

/// Memory whose contents the call passes on.
pub fn reads(call: &CallEffects) -> Option<(u64, u64)> {
    let written = u64::try_from(call.result).ok().filter(|n| *n > 0)?;
    matches!(call.nr, WRITE | PWRITE | SENDTO).then_some((call.args[1], written))
}

/// Memory that is new because of the call: a mapping.
pub fn maps(call: &CallEffects) -> Option<(u64, u64)> {
    let at = u64::try_from(call.result).ok()?;
    (call.nr == MMAP).then_some((at, call.args[1].next_multiple_of(4096)))
}
