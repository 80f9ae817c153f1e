//! Waiting: poll, select, epoll, futex, sleeping.
//!
//! Guarantees: what these calls write although they answer an error is listed too: poll stores its zeroed answers when
//! a signal ends it, and select, pselect and ppoll store the time that is left whatever the outcome.

use super::super::call::Call;
use super::super::structs::POLLFD;

const EINTR: i64 = 4;

/// poll(fds, count, milliseconds): reads each entry and writes only its answer. Before the call one range stands for
/// all answers, because the count is not yet known to be a sane one.
pub fn poll(call: &mut Call<'_>) {
    let size = u64::from(POLLFD);
    let fds = call.args[0];
    let count = call.args[1] & 0xffff_ffff;
    call.reads(fds, count * size);
    if fds == 0 || count == 0 {
        return;
    }
    let over = matches!(call.result, Some(r) if r >= 0) || call.failed_with(EINTR);
    if over {
        for i in 0..count {
            call.writes_anyhow(fds.wrapping_add(i * size + 6), 2);
        }
    } else {
        call.writes(fds.wrapping_add(6), count * size - 6);
    }
}

/// ppoll(fds, count, timespec, mask, mask size): the time left is written back.
pub fn ppoll(call: &mut Call<'_>) {
    poll(call);
    time_left(call, 2);
}

/// select(count, read, write, except, timeval).
pub fn select(call: &mut Call<'_>) {
    descriptor_sets(call);
    time_left(call, 4);
}

/// pselect6(count, read, write, except, timespec, pointer to a mask and its size).
pub fn pselect6(call: &mut Call<'_>) {
    descriptor_sets(call);
    time_left(call, 4);
    let pair = call.args[5];
    if pair != 0 {
        call.reads(pair, 16);
        let mask = call.word(pair, 8);
        call.reads(mask, 8);
    }
}

/// Whole words that cover the given number of descriptors, for each of the three sets. The kernel stops earlier if
/// its descriptor table is smaller, which cannot be known here.
fn descriptor_sets(call: &mut Call<'_>) {
    let bytes = call.int(0).div_ceil(64) * 8;
    for set in [call.args[1], call.args[2], call.args[3]] {
        call.both(set, bytes);
    }
}

/// A relative time limit of two words that comes back as the time left, unless it was zero to begin with.
fn time_left(call: &mut Call<'_>, arg: usize) {
    let addr = call.args[arg];
    call.reads(addr, 16);
    if addr == 0 {
        return;
    }
    let (seconds, part) = (call.word_before(addr, 8).0, call.word_before(addr.wrapping_add(8), 8).0);
    if seconds != Some(0) || part != Some(0) {
        call.writes_anyhow(addr, 16);
    }
}

/// epoll_ctl(epoll, operation, descriptor, event): removing takes no event.
pub fn epoll_ctl(call: &mut Call<'_>) {
    const DELETE: u64 = 2;
    if call.int(1) != DELETE {
        call.reads(call.args[3], 12);
    }
}

/// nanosleep(time, rest). The rest is stored whenever a signal wakes the thread, also when it then sleeps on and
/// ends with success.
pub fn nanosleep(call: &mut Call<'_>) {
    call.writes_anyhow(call.args[1], 16);
}

/// clock_nanosleep(clock, flags, time, rest): with an absolute time there is no rest.
pub fn clock_nanosleep(call: &mut Call<'_>) {
    const ABSOLUTE: u64 = 1;
    if call.args[1] & ABSOLUTE == 0 {
        call.writes_anyhow(call.args[3], 16);
    }
}

/// adjtimex(buffer): the structure comes back whatever the outcome.
pub fn adjtimex(call: &mut Call<'_>) {
    call.reads(call.args[0], 208);
    call.writes_anyhow(call.args[0], 208);
}

/// The operations of futex(2).
pub mod futex_op {
    pub const WAIT: u64 = 0;
    pub const WAKE: u64 = 1;
    pub const REQUEUE: u64 = 3;
    pub const CMP_REQUEUE: u64 = 4;
    pub const WAKE_OP: u64 = 5;
    pub const LOCK_PI: u64 = 6;
    pub const UNLOCK_PI: u64 = 7;
    pub const TRYLOCK_PI: u64 = 8;
    pub const WAIT_BITSET: u64 = 9;
    pub const WAKE_BITSET: u64 = 10;
    pub const WAIT_REQUEUE_PI: u64 = 11;
    pub const CMP_REQUEUE_PI: u64 = 12;
    pub const LOCK_PI2: u64 = 13;
    /// The operation without its private and clock bits.
    pub const MASK: u64 = 0x7f;
}

/// futex(word, operation, value, time or value, second word, value).
///
/// Waking does not look at the word at all: its address is only a name. The priority-inheriting operations store the
/// owner or the waiters bit even if they then fail.
pub fn futex(call: &mut Call<'_>) {
    use futex_op::*;
    let (word, time, second) = (call.args[0], call.args[3], call.args[4]);
    let change = |call: &mut Call<'_>, addr| {
        call.reads(addr, 4);
        call.writes_anyhow(addr, 4);
    };
    match call.args[1] & MASK {
        WAIT | WAIT_BITSET => {
            call.reads(word, 4);
            call.reads(time, 16);
        }
        CMP_REQUEUE => call.reads(word, 4),
        WAKE_OP => change(call, second),
        LOCK_PI | LOCK_PI2 => {
            change(call, word);
            call.reads(time, 16);
        }
        UNLOCK_PI | TRYLOCK_PI => change(call, word),
        WAIT_REQUEUE_PI => {
            call.reads(word, 4);
            call.reads(time, 16);
            change(call, second);
        }
        CMP_REQUEUE_PI => {
            call.reads(word, 4);
            change(call, second);
        }
        _ => {}
    }
}
