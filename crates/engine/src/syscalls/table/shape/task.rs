//! Processes and threads: creation, waiting for children, attributes that carry their own size.
//!
//! Guarantees: sizes and versions that the kernel stores into a structure it refuses are listed too. Memory that the
//! kernel writes after the call, such as the thread id word cleared at a thread's end, is not part of the call.

use super::super::call::Call;

const ECHILD: i64 = 10;
const E2BIG: i64 = 7;
const EINVAL: i64 = 22;

const CLONE_PIDFD: u64 = 0x1000;
const CLONE_PARENT_SETTID: u64 = 0x0010_0000;
const CLONE_CHILD_SETTID: u64 = 0x0100_0000;

/// clone(flags, stack, parent's tid word, child's tid word, tls). The child's word is written in the child's memory,
/// which is the caller's if they share it.
pub fn clone(call: &mut Call<'_>) {
    let flags = call.args[0];
    if flags & (CLONE_PARENT_SETTID | CLONE_PIDFD) != 0 {
        call.writes(call.args[2], 4);
    }
    if flags & CLONE_CHILD_SETTID != 0 {
        call.writes(call.args[3], 4);
    }
}

/// clone3(arguments, size).
pub fn clone3(call: &mut Call<'_>) {
    let (addr, size) = (call.args[0], call.args[1]);
    call.reads(addr, size);
    if addr == 0 || size < 64 {
        return;
    }
    let flags = call.word(addr, 8);
    for (flag, offset) in [(CLONE_PIDFD, 8), (CLONE_CHILD_SETTID, 16), (CLONE_PARENT_SETTID, 24)] {
        if flags & flag != 0 {
            let target = call.word(addr.wrapping_add(offset), 8);
            call.writes(target, 4);
        }
    }
    // `set_tid` and its count came with a longer structure.
    if size >= 80 {
        let ids = call.word(addr.wrapping_add(64), 8);
        let count = call.word(addr.wrapping_add(72), 8);
        call.reads(ids, count.min(32) * 4);
    }
}

/// wait4(pid, status, options, usage): nothing is stored unless a child was found.
pub fn wait4(call: &mut Call<'_>) {
    if call.found() {
        call.writes(call.args[1], 4);
        call.writes(call.args[3], 144);
    }
}

/// waitid(what, pid, info, options, usage): the fields of the info are stored, as zeros, even if there is no child at
/// all; which padding is left alone is part of the answer.
pub fn waitid(call: &mut Call<'_>) {
    let (info, usage) = (call.args[2], call.args[4]);
    let stored = !call.failed() || call.failed_with(ECHILD);
    if info != 0 && stored {
        call.writes_anyhow(info, 12);
        call.writes_anyhow(info.wrapping_add(16), 12);
    }
    // The result is 0 either way: only the signal number in the info tells whether a child was found.
    let none = call.result == Some(0) && info != 0 && call.word(info, 4) == 0;
    if !none {
        call.writes(usage, 144);
    }
}

/// rt_sigtimedwait(set, info, time, size): the result is the signal.
pub fn sigtimedwait(call: &mut Call<'_>) {
    if call.found() {
        call.writes(call.args[1], 128);
    }
}

const CAPABILITIES_1: u64 = 0x1998_0330;
const CAPABILITIES_2: u64 = 0x2007_1026;
const CAPABILITIES_3: u64 = 0x2008_0522;

/// How many bytes of capability sets a header of this version announces.
fn capability_bytes(call: &mut Call<'_>) -> u64 {
    match call.word(call.args[0], 4) {
        CAPABILITIES_1 => 12,
        CAPABILITIES_2 | CAPABILITIES_3 => 24,
        _ => 0,
    }
}

/// Where the header names no known version the kernel stores the one it prefers.
fn capability_header(call: &mut Call<'_>) {
    let (header, data) = (call.args[0], call.args[1]);
    call.reads(header, 8);
    let asked = call.result.is_none() && capability_bytes(call) == 0;
    let answered = call.failed_with(EINVAL) || (call.result == Some(0) && data == 0);
    if asked || answered {
        call.writes_anyhow(header, 4);
    }
}

/// capget(header, data).
pub fn capget(call: &mut Call<'_>) {
    capability_header(call);
    let len = capability_bytes(call);
    call.writes(call.args[1], len);
}

/// capset(header, data).
pub fn capset(call: &mut Call<'_>) {
    capability_header(call);
    let len = capability_bytes(call);
    call.reads(call.args[1], len);
}

/// sched_setattr(pid, attributes, flags): the attributes begin with their size.
pub fn sched_setattr(call: &mut Call<'_>) {
    sized_attributes(call, 1, 0, 48);
}

/// perf_event_open(attributes, pid, cpu, group, flags): the size follows the type.
pub fn perf_event_open(call: &mut Call<'_>) {
    sized_attributes(call, 0, 4, 64);
}

/// A structure that holds its own size; if that is unknown to the kernel, it stores the size it knows.
fn sized_attributes(call: &mut Call<'_>, arg: usize, size_at: u64, default: u64) {
    let addr = call.args[arg];
    if addr == 0 {
        return;
    }
    let size_addr = addr.wrapping_add(size_at);
    let (before, now) = call.word_before(size_addr, 4);
    let size = match before.unwrap_or(now) {
        0 => default,
        size => size,
    };
    call.reads(addr, size);
    if call.result.is_none() || call.failed_with(E2BIG) {
        call.writes_anyhow(size_addr, 4);
    }
}

/// lsm_get_self_attr(attribute, contexts, size, flags): the size needed is stored even if there was too little room.
pub fn lsm_get_self_attr(call: &mut Call<'_>) {
    room_needed(call, 2);
}

/// lsm_list_modules(ids, size, flags): likewise.
pub fn lsm_list_modules(call: &mut Call<'_>) {
    room_needed(call, 1);
}

fn room_needed(call: &mut Call<'_>, arg: usize) {
    let addr = call.args[arg];
    call.reads(addr, 4);
    if !call.failed() || call.failed_with(E2BIG) {
        call.writes_anyhow(addr, 4);
    }
}
