//! Signal calls: the guest's table, masks and stacks are the engine's; pending sets and queues are the kernel's.

use super::{Call, Outcome, interrupted};
use crate::signals::actions::Action;
use crate::signals::{NEVER_BLOCKED, SIGKILL, SIGSTOP, bit, frame};
use crate::sys::{self, err, nr};
use crate::threads::record::{AltStack, SS_AUTODISARM, SS_DISABLE, SS_ONSTACK};

const UNBLOCKABLE: u64 = bit(SIGKILL) | bit(SIGSTOP);
const MINSIGSTKSZ: u64 = 2048;

impl Call<'_> {
    pub(super) fn signal_call(&mut self) -> Outcome {
        match self.nr {
            nr::RT_SIGACTION => Outcome::Value(self.sigaction()),
            nr::RT_SIGPROCMASK => Outcome::Value(self.sigprocmask()),
            nr::RT_SIGRETURN => {
                frame::sigreturn(self.e, self.t);
                Outcome::Done
            }
            nr::SIGALTSTACK => Outcome::Value(self.sigaltstack()),
            nr::RT_SIGPENDING => self.sigpending(),
            nr::RT_SIGSUSPEND => self.sigsuspend(),
            _ => self.pass(),
        }
    }

    fn sigaction(&mut self) -> i64 {
        let [signal, new, old, size, ..] = self.args;
        if size != 8 || signal == 0 || signal > 64 {
            return -err::EINVAL;
        }
        let signal = signal as u32;
        let before = self.e.actions.get(signal);
        let mut action = None;
        if new != 0 {
            if UNBLOCKABLE & bit(signal) != 0 {
                return -err::EINVAL;
            }
            let mut words = [0u8; 32];
            if sys::read_guest(new, &mut words) < 32 {
                return -err::EFAULT;
            }
            let w = |i: usize| u64::from_le_bytes(core::array::from_fn(|k| words[i * 8 + k]));
            action = Some(Action { handler: w(0), flags: w(1), restorer: w(2), mask: w(3) & !UNBLOCKABLE });
        }
        if old != 0 {
            let mut words = [0u8; 32];
            for (i, v) in [before.handler, before.flags, before.restorer, before.mask].into_iter().enumerate() {
                words[i * 8..][..8].copy_from_slice(&v.to_le_bytes());
            }
            if sys::write_guest(old, &words) < 32 {
                return -err::EFAULT;
            }
        }
        if let Some(a) = action {
            self.e.actions.set(signal, a);
        }
        0
    }

    fn sigprocmask(&mut self) -> i64 {
        let [how, set, old, size, ..] = self.args;
        if size != 8 {
            return -err::EINVAL;
        }
        let before = self.t.mask;
        if set != 0 {
            let Some(new) = sys::read_u64(set) else { return -err::EFAULT };
            let new = new & !UNBLOCKABLE;
            self.t.mask = match how {
                0 => before | new,
                1 => before & !new,
                2 => new,
                _ => return -err::EINVAL,
            };
            frame::after_mask_change(self.e, self.t);
        }
        if old != 0 && !sys::write_u64(old, before) {
            return -err::EFAULT;
        }
        0
    }

    fn sigaltstack(&mut self) -> i64 {
        let [new, old, ..] = self.args;
        let sp = self.g.gpr[4];
        let now = frame::alt_stack_flags(self.t, sp);
        let current = self.t.alt_stack;
        let mut replacement = None;
        if new != 0 {
            let mut b = [0u8; 24];
            if sys::read_guest(new, &mut b) < 24 {
                return -err::EFAULT;
            }
            let w = |i: usize| u64::from_le_bytes(core::array::from_fn(|k| b[i * 8 + k]));
            let (base, flags, size) = (w(0), w(1) as u32, w(2));
            if now & SS_ONSTACK != 0 {
                return -err::EPERM;
            }
            let mode = flags & !SS_AUTODISARM;
            if mode != 0 && mode != SS_ONSTACK && mode != SS_DISABLE {
                return -err::EINVAL;
            }
            replacement = Some(if mode == SS_DISABLE {
                AltStack { sp: 0, flags: SS_DISABLE, size: 0 }
            } else {
                if size < MINSIGSTKSZ {
                    return -err::ENOMEM;
                }
                AltStack { sp: base, flags: flags & SS_AUTODISARM, size }
            });
        }
        if old != 0 {
            let mut b = [0u8; 24];
            b[..8].copy_from_slice(&current.sp.to_le_bytes());
            b[8..12].copy_from_slice(&(now | current.flags & SS_AUTODISARM).to_le_bytes());
            b[16..].copy_from_slice(&current.size.to_le_bytes());
            if sys::write_guest(old, &b) < 24 {
                return -err::EFAULT;
            }
        }
        if let Some(r) = replacement {
            self.t.alt_stack = r;
        }
        0
    }

    fn sigpending(&mut self) -> Outcome {
        let o = self.pass();
        if let (Outcome::Value(0), Some(info)) = (o, self.t.held)
            && let Some(set) = sys::read_u64(self.args[0])
        {
            sys::write_u64(self.args[0], set | bit(info[0] as u32));
        }
        o
    }

    fn sigsuspend(&mut self) -> Outcome {
        let [set, size, ..] = self.args;
        if size != 8 {
            return Outcome::Value(-err::EINVAL);
        }
        let Some(mask) = sys::read_u64(set) else { return Outcome::Value(-err::EFAULT) };
        let kernel = mask & !UNBLOCKABLE & !NEVER_BLOCKED;
        let before = self.t.mask;
        let args = [&raw const kernel as u64, 8, 0, 0, 0, 0];
        self.t.mask = mask & !UNBLOCKABLE;
        self.t.restore_mask = Some(before);
        frame::after_mask_change(self.e, self.t);
        self.wait_for_signal();
        if !interrupted(self.t) {
            crate::signals::set_kernel_mask(before & !NEVER_BLOCKED);
            self.outside_baton(&args);
        }
        if interrupted(self.t) {
            return Outcome::Value(-err::EINTR);
        }
        // Woken for another reason: wait again.
        self.t.restore_mask = None;
        self.t.mask = before;
        crate::signals::apply_mask(self.t);
        Outcome::Again
    }

    /// Waiting calls that take a signal mask for their duration: a signal that ends them is delivered under that mask.
    pub(super) fn wait_with_mask(&mut self) -> Outcome {
        let arg = match self.nr {
            nr::PPOLL => 3,
            nr::PSELECT6 => 5,
            _ => 4,
        };
        let mut at = self.args[arg];
        if self.nr == nr::PSELECT6 && at != 0 {
            at = sys::read_u64(at).unwrap_or(0);
        }
        let before = self.t.mask;
        if at != 0
            && let Some(mask) = sys::read_u64(at)
        {
            self.t.mask = mask & !UNBLOCKABLE;
        }
        let o = self.pass();
        if interrupted(self.t) && o == Outcome::Value(-err::EINTR) {
            self.t.restore_mask = Some(before);
        } else {
            self.t.mask = before;
        }
        o
    }
}
