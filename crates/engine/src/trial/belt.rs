//! The belt around a trial: should the engine ever let a call through that it must not, the kernel refuses it.
//!
//! Landlock takes away every right to change files; a seccomp filter takes away calls that reach other processes, other
//! machines or the system. Both need no privilege and cannot be undone by this process. The kernel compiles the filter each
//! time, so a process that is copied for many trials puts the belt on once, before: a replay changes nothing outside either. Where the kernel has neither, the
//! trial relies on the engine alone.
//! Source: the kernel's Documentation/userspace-api/landlock.rst and seccomp_filter.rst.

use crate::state::Engine;
use crate::sys::{self, nr};

const LANDLOCK_CREATE_RULESET: u64 = 444;
const LANDLOCK_RESTRICT_SELF: u64 = 446;
/// Execute, write, remove folders and files, make anything; then refer (version 2) and truncate (version 3).
const CHANGES: u64 = 1 | 1 << 1 | 0b1_1111_1111 << 4;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;

const PR_SET_NO_NEW_PRIVS: u64 = 38;
const SECCOMP_SET_MODE_FILTER: u64 = 1;
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
const RET_ALLOW: u32 = 0x7fff_0000;
const RET_EPERM: u32 = 0x0005_0001;
const RET_KILL: u32 = 0x8000_0000;

/// Calls that no trial makes: sockets of its own, other processes, names, rights, the system.
const REFUSED: &[u16] = &[
    41, 42, 43, 48, 49, 50, 53, 59, 62, 76, 82, 83, 84, 85, 86, 87, 88, 90, 91, 92, 93, 94, 101, 103, 105, 106, 109,
    112, 113, 114, 116, 117, 119, 122, 123, 126, 129, 132, 133, 153, 155, 156, 159, 160, 161, 162, 163, 164, 165, 166,
    167, 168, 169, 170, 171, 172, 173, 175, 176, 179, 188, 189, 190, 197, 198, 199, 200, 235, 246, 248, 249, 250, 258,
    259, 260, 261, 263, 264, 265, 266, 268, 272, 280, 288, 297, 298, 303, 304, 305, 308, 310, 311, 312, 313, 316, 320,
    321, 322, 323, 425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 442, 443,
];

/// One instruction of a filter: `struct sock_filter`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Step {
    code: u16,
    yes: u8,
    no: u8,
    value: u32,
}

const LOAD: u16 = 0x20;
const EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

/// Puts both on, unless this process has them from the one that it is a copy of; what the kernel does not have is left
/// out.
pub fn put_on(e: &mut Engine) {
    if core::mem::replace(&mut e.belted, true) {
        return;
    }
    // SAFETY: a promise about this process only: it gains no rights by executing programs, which it never does.
    unsafe { sys::raw(nr::PRCTL, [PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0]) };
    landlock();
    filter();
}

fn landlock() {
    // SAFETY: asks for the version (flag 1), then makes and applies a set of rules of our own.
    unsafe {
        let version = sys::raw3(LANDLOCK_CREATE_RULESET, 0, 0, 1);
        if version < 1 {
            return;
        }
        let handled: u64 = CHANGES | if version >= 2 { REFER } else { 0 } | if version >= 3 { TRUNCATE } else { 0 };
        let rules = sys::raw3(LANDLOCK_CREATE_RULESET, &raw const handled as u64, 8, 0);
        if !sys::is_err(rules) {
            sys::raw3(LANDLOCK_RESTRICT_SELF, rules as u64, 0, 0);
            sys::raw3(nr::CLOSE, rules as u64, 0, 0);
        }
    }
}

fn filter() {
    let mut steps = alloc::vec![
        // struct seccomp_data { nr, arch, … }
        Step { code: LOAD, yes: 0, no: 0, value: 4 },
        Step { code: EQUAL, yes: 1, no: 0, value: AUDIT_ARCH_X86_64 },
        Step { code: RETURN, yes: 0, no: 0, value: RET_KILL },
        Step { code: LOAD, yes: 0, no: 0, value: 0 },
    ];
    for number in REFUSED {
        steps.push(Step { code: EQUAL, yes: 0, no: 1, value: u32::from(*number) });
        steps.push(Step { code: RETURN, yes: 0, no: 0, value: RET_EPERM });
    }
    steps.push(Step { code: RETURN, yes: 0, no: 0, value: RET_ALLOW });
    // struct sock_fprog { len, filter }
    let program = [steps.len() as u64, steps.as_ptr() as u64];
    // SAFETY: the kernel copies the filter.
    unsafe { sys::raw3(nr::SECCOMP, SECCOMP_SET_MODE_FILTER, 0, program.as_ptr() as u64) };
}
