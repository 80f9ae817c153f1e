//! The guest's own seccomp filters, run by the engine: the kernel would apply them to the engine's calls as well.
//!
//! May miss: filters do not follow into an image started by `execve`; user notification is answered as by an old kernel.

pub mod bpf;

pub use bpf::Filters;

use crate::signals::fatal;
use crate::sys::{self, err};
use crate::syscalls::{Call, Outcome};
use crate::threads::{SigInfo, pending};
use alloc::vec::Vec;
use bpf::{ARCH_X86_64, Action, Data, Filter, Insn};

const SIGSYS: u32 = 31;
const SET_MODE_STRICT: u64 = 0;
const SET_MODE_FILTER: u64 = 1;
const GET_ACTION_AVAIL: u64 = 2;
const FLAG_NEW_LISTENER: u64 = 8;

impl Call<'_> {
    /// Asks the guest's filters; `None` lets the call go on.
    pub(crate) fn filtered(&mut self) -> Option<Outcome> {
        let data = Data { nr: self.nr as i32, arch: ARCH_X86_64, ip: self.g.pc, args: self.args };
        match Action::of(self.e.filters.run(&data)) {
            Action::Allow | Action::Log => None,
            Action::Errno(n) => Some(Outcome::Value(-(n as i64))),
            Action::Notify(_) | Action::Trace(_) => Some(Outcome::Value(-err::ENOSYS)),
            Action::Trap(n) => {
                let mut info = SigInfo::default();
                // si_signo, si_errno; si_code SYS_SECCOMP; call address, number, architecture.
                info[0] = SIGSYS as u64 | (n as u64) << 32;
                info[1] = 1;
                info[2] = self.g.pc;
                info[3] = self.nr | (ARCH_X86_64 as u64) << 32;
                crate::signals::block_all();
                crate::signals::give_back(self.t);
                self.t.info = info;
                self.t.synchronous = false;
                self.t.raise(pending::SIGNAL);
                Some(Outcome::Value(self.nr as i64))
            }
            Action::KillThread | Action::KillProcess => {
                let info: SigInfo = core::array::from_fn(|i| if i == 0 { SIGSYS as u64 } else { 0 });
                fatal::die(self.e, self.t, SIGSYS, &info)
            }
        }
    }

    /// `seccomp(2)` and `prctl(PR_SET_SECCOMP)`.
    pub(crate) fn install_filter(&mut self, operation: u64, flags: u64, at: u64) -> i64 {
        match operation {
            SET_MODE_STRICT => {
                self.e.note("strict seccomp is not supported: answered EINVAL", self.g.pc);
                -err::EINVAL
            }
            GET_ACTION_AVAIL => match sys::read_u32(at).map(Action::of) {
                None => -err::EFAULT,
                Some(Action::Notify(_)) => -95,
                Some(_) => 0,
            },
            SET_MODE_FILTER if flags & FLAG_NEW_LISTENER != 0 => {
                self.e.note("seccomp user notification is not supported: answered EINVAL", self.g.pc);
                -err::EINVAL
            }
            SET_MODE_FILTER => self.add_filter(at),
            _ => -err::EINVAL,
        }
    }

    fn add_filter(&mut self, at: u64) -> i64 {
        // struct sock_fprog { u16 len; struct sock_filter *filter; }
        let (Some(len), Some(filter)) = (sys::read_u32(at), sys::read_u64(at + 8)) else { return -err::EFAULT };
        let len = len & 0xffff;
        let mut program = Vec::new();
        for n in 0..len as u64 {
            let Some(word) = sys::read_u64(filter + n * 8) else { return -err::EFAULT };
            program.push(Insn::decode(word.to_le_bytes()));
        }
        // SAFETY: PR_GET_NO_NEW_PRIVS asks only.
        let no_new_privs = unsafe { sys::raw3(sys::nr::PRCTL, 39, 0, 0) } == 1;
        // SAFETY: asks for the effective user.
        let root = unsafe { sys::raw3(sys::nr::GETEUID, 0, 0, 0) } == 0;
        if !no_new_privs && !root {
            return -err::EACCES;
        }
        match Filter::new(program) {
            Ok(f) => {
                if self.e.filters.push(f) {
                    0
                } else {
                    -err::ENOMEM
                }
            }
            Err(_) => -err::EINVAL,
        }
    }
}
