//! When a call can sleep, as far as its arguments tell: the functions that the table's `When` rows name.
//!
//! Guarantees: a call that can wait for another process, a person or the network is never said not to. May say so of a
//! call that will not sleep, because the state of descriptors is not known here. Calls that wait for a disk, a network
//! file system, a lingering close or an initialised random pool are not counted.

use super::ioctl;
use super::row::{Args, Blocking, Timeout};
use super::shape::events::futex_op;
use super::shape::files::fcntl_cmd;

/// The time limit of a call, as it stands in its arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    None,
    /// So many nanoseconds from now.
    After(u64),
    /// When the call's clock shows so many nanoseconds.
    At(u64),
}

impl Timeout {
    /// Reads the limit; `None` where its structure cannot be read or is not a valid time.
    pub fn limit(self, args: &Args, read_word: &mut dyn FnMut(u64, u64) -> Option<u64>) -> Option<Limit> {
        let (arg, unit) = match self {
            Timeout::Millis(arg) => {
                let millis = args[arg as usize] as i32;
                return Some(u64::try_from(millis).map_or(Limit::None, |ms| Limit::After(ms * 1_000_000)));
            }
            Timeout::Timeval(arg) => (arg, 1_000),
            Timeout::Timespec(arg) | Timeout::Deadline(arg) => (arg, 1),
        };
        let addr = args[arg as usize];
        if addr == 0 {
            return Some(Limit::None);
        }
        let seconds = i64::try_from(read_word(addr, 8)?).ok()?;
        let part = read_word(addr.wrapping_add(8), 8)?;
        // `select` takes any number of microseconds and carries; the others insist on less than a second.
        if unit == 1 && part >= 1_000_000_000 || part > i64::MAX as u64 {
            return None;
        }
        let nanos = (seconds as u64).saturating_mul(1_000_000_000).saturating_add(part.saturating_mul(unit));
        Some(if matches!(self, Timeout::Deadline(_)) { Limit::At(nanos) } else { Limit::After(nanos) })
    }
}

const O_NONBLOCK: u64 = 0o4000;
const O_PATH: u64 = 0o10000000;
const MSG_DONTWAIT: u64 = 0x40;
const WNOHANG: u64 = 1;
const IPC_NOWAIT: u64 = 0o4000;

/// `blocking` unless the argument has the bit set.
fn unless(args: &Args, arg: usize, bit: u64, blocking: Blocking) -> Blocking {
    if args[arg] & bit != 0 { Blocking::Never } else { blocking }
}

fn millis(args: &Args, arg: u8) -> Blocking {
    if args[arg as usize] as i32 == 0 { Blocking::Never } else { Blocking::Timed(Timeout::Millis(arg)) }
}

pub fn poll(args: &Args) -> Blocking {
    millis(args, 2)
}

pub fn epoll_wait(args: &Args) -> Blocking {
    millis(args, 3)
}

pub fn open(args: &Args) -> Blocking {
    unless(args, 1, O_NONBLOCK | O_PATH, Blocking::Open)
}

pub fn openat(args: &Args) -> Blocking {
    unless(args, 2, O_NONBLOCK | O_PATH, Blocking::Open)
}

pub fn message(args: &Args) -> Blocking {
    unless(args, 2, MSG_DONTWAIT, Blocking::OnFd(0))
}

pub fn datagram(args: &Args) -> Blocking {
    unless(args, 3, MSG_DONTWAIT, Blocking::OnFd(0))
}

pub fn wait4(args: &Args) -> Blocking {
    unless(args, 2, WNOHANG, Blocking::Always)
}

pub fn waitid(args: &Args) -> Blocking {
    unless(args, 3, WNOHANG, Blocking::Always)
}

pub fn flock(args: &Args) -> Blocking {
    const LOCK_NB: u64 = 4;
    const LOCK_UN: u64 = 8;
    unless(args, 1, LOCK_NB | LOCK_UN, Blocking::Always)
}

pub fn fcntl(args: &Args) -> Blocking {
    match args[1] & 0xffff_ffff {
        fcntl_cmd::SETLKW | fcntl_cmd::OFD_SETLKW => Blocking::Always,
        _ => Blocking::Never,
    }
}

pub fn msgsnd(args: &Args) -> Blocking {
    unless(args, 3, IPC_NOWAIT, Blocking::Always)
}

pub fn msgrcv(args: &Args) -> Blocking {
    unless(args, 4, IPC_NOWAIT, Blocking::Always)
}

/// Vectored reads and writes with flags: one flag forbids waiting.
pub fn vector_flags(args: &Args) -> Blocking {
    const RWF_NOWAIT: u64 = 8;
    unless(args, 5, RWF_NOWAIT, Blocking::OnFd(0))
}

pub fn clock_nanosleep(args: &Args) -> Blocking {
    const ABSOLUTE: u64 = 1;
    Blocking::Timed(if args[1] & ABSOLUTE != 0 { Timeout::Deadline(2) } else { Timeout::Timespec(2) })
}

/// WAIT takes a duration; the other waiting operations a point in time.
pub fn futex(args: &Args) -> Blocking {
    match args[1] & futex_op::MASK {
        futex_op::WAIT => Blocking::Timed(Timeout::Timespec(3)),
        futex_op::WAIT_BITSET | futex_op::LOCK_PI | futex_op::LOCK_PI2 | futex_op::WAIT_REQUEUE_PI => {
            Blocking::Timed(Timeout::Deadline(3))
        }
        _ => Blocking::Never,
    }
}

/// Reading the kernel log waits for a line.
pub fn syslog(args: &Args) -> Blocking {
    if args[0] as i32 == 2 { Blocking::Always } else { Blocking::Never }
}

/// Only some requests wait; of an unknown one this cannot be excluded.
pub fn ioctl(args: &Args) -> Blocking {
    if ioctl::waits(args[1] as u32) { Blocking::OnFd(0) } else { Blocking::Never }
}

/// A key that has to be made is waited for.
pub fn keyctl(args: &Args) -> Blocking {
    const READ: u64 = 11;
    if args[0] & 0xffff_ffff == READ { Blocking::Always } else { Blocking::Never }
}
