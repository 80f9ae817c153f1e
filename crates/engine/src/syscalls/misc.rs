//! Calls of which the engine changes a little: segment bases, process controls, limits.

use super::{Call, Outcome};
use crate::gate;
use crate::memory::{around_engine, page_up};
use crate::sys::{self, err, nr};
use model::layout;

const ARCH_SET_GS: u64 = 0x1001;
const ARCH_SET_FS: u64 = 0x1002;
const ARCH_GET_FS: u64 = 0x1003;
const ARCH_GET_GS: u64 = 0x1004;
const PR_SET_SECCOMP: u64 = 22;
const PR_SET_MM: u64 = 35;
const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
const MLOCKALL: u64 = 151;
const MINCORE: u64 = 27;
const SIGNALFD: u64 = 282;
const SIGNALFD4: u64 = 289;
const PERSONALITY: u64 = 135;
const READ_IMPLIES_EXEC: u64 = 0x40_0000;
const PR_SET_PDEATHSIG: u64 = 1;
const PR_SET_TSC: u64 = 26;
const PR_SET_MDWE: u64 = 65;
const PR_GET_PDEATHSIG: u64 = 2;
const GETCPU: u64 = 309;
const SECCOMP: u64 = 317;
const PKEY_MPROTECT: u64 = 329;
const RESTART: u64 = 219;

impl Call<'_> {
    pub(super) fn misc_call(&mut self) -> Option<Outcome> {
        Some(match self.nr {
            nr::ARCH_PRCTL => Outcome::Value(self.arch_prctl()),
            nr::PRCTL => return self.prctl(),
            SECCOMP => Outcome::Value(self.install_filter(self.args[0], self.args[1], self.args[2])),
            // The engine's own pages would count against the guest's limit.
            MLOCKALL => Outcome::Value(0),
            MINCORE => return self.mincore(),
            PKEY_MPROTECT if self.args[3] as i32 == -1 => {
                self.nr = nr::MPROTECT;
                self.address_space()
            }
            PKEY_MPROTECT => Outcome::Value(-err::EINVAL),
            GETCPU if self.e.seeded() => {
                for at in [self.args[0], self.args[1]] {
                    if at != 0 && !sys::write_u32(at, 0) {
                        return Some(Outcome::Value(-err::EFAULT));
                    }
                }
                Outcome::Value(0)
            }
            // Nothing of the guest's may be executable to the kernel.
            PERSONALITY if self.args[0] as u32 != u32::MAX && self.args[0] & READ_IMPLIES_EXEC != 0 => {
                let mut args = self.args;
                args[0] &= !READ_IMPLIES_EXEC;
                self.pass_with(args)
            }
            // Fault signals are never blocked in the kernel; the others are the kernel's as the guest sees them.
            SIGNALFD | SIGNALFD4 => return None,
            RESTART => Outcome::Value(-err::EINTR),
            _ => return None,
        })
    }

    fn arch_prctl(&mut self) -> i64 {
        let [code, at, ..] = self.args;
        let canonical = at < 1 << 47;
        match code {
            ARCH_SET_FS if canonical => gate::set_fs_base(at),
            ARCH_SET_GS if canonical => self.g.guest_gs = at,
            ARCH_SET_FS | ARCH_SET_GS => return -err::EPERM,
            ARCH_GET_FS | ARCH_GET_GS => {
                let v = if code == ARCH_GET_FS { gate::fs_base() } else { self.g.guest_gs };
                if !sys::write_u64(at, v) {
                    return -err::EFAULT;
                }
            }
            // CPUID faulting, permissions for AMX, shadow stacks: as on a kernel that has none of them.
            _ => return -err::EINVAL,
        }
        0
    }

    fn prctl(&mut self) -> Option<Outcome> {
        match self.args[0] {
            PR_SET_SECCOMP => {
                let operation = match self.args[1] {
                    2 => 1,
                    _ => 0,
                };
                Some(Outcome::Value(self.install_filter(operation, 0, self.args[2])))
            }
            PR_SET_PDEATHSIG => {
                self.e.config.dies_with_host = false;
                None
            }
            // The guest has asked for none.
            PR_GET_PDEATHSIG if self.e.config.dies_with_host => {
                let done = sys::write_u32(self.args[1], 0);
                Some(Outcome::Value(if done { 0 } else { -err::EFAULT }))
            }
            // Would move the engine's idea of itself, or take from it what it runs with.
            PR_SET_MM | PR_SET_SYSCALL_USER_DISPATCH | PR_SET_TSC | PR_SET_MDWE => Some(Outcome::Value(-err::EINVAL)),
            _ => None,
        }
    }

    /// Memory of the engine looks unmapped.
    fn mincore(&mut self) -> Option<Outcome> {
        let [at, len, ..] = self.args;
        let range = at..at.saturating_add(page_up(len));
        let all: u64 = around_engine(range.clone()).map(|r| r.end - r.start).sum();
        (layout::touches_engine(at, len) && all < range.end - range.start).then_some(Outcome::Value(-err::ENOMEM))
    }
}
