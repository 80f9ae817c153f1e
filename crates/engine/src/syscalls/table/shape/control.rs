//! Calls with a command word: prctl, arch_prctl, seccomp, keyctl, ptrace and a few small ones.
//!
//! Guarantees: every command up to Linux 6.12 that has a pointer is here; a command not named has none.

use super::super::call::{Call, PATH_MAX};
use super::super::structs::SOCK_FPROG;
use super::net::program;

/// prctl(command, arguments 2 to 5).
pub fn prctl(call: &mut Call<'_>) {
    let [_, second, third, fourth, fifth, _] = *call.args;
    match call.int(0) {
        // Death signal, unaligned access, floating point modes, byte order, TSC, child subreaper.
        2 | 5 | 9 | 11 | 19 | 25 | 37 => call.writes(second, 4),
        15 => call.text(second, 16),
        16 => call.writes(second, 16),
        22 if second == 2 => fprog(call, third),
        35 => match second {
            12 | 14 => call.reads(third, fourth),
            15 => call.writes(third, 4),
            _ => {}
        },
        // The address of the thread id word; state of shadow stacks.
        40 | 74 => call.writes(second, 8),
        // Core scheduling: only asking for the cookie stores it.
        62 if second == 0 => call.writes(fifth, 8),
        0x4155_5856 => {
            let len = call.done(third);
            call.writes(second, len);
        }
        // The name of an anonymous mapping.
        0x5356_4d41 if second == 0 => call.text(fifth, 80),
        _ => {}
    }
}

/// arch_prctl(command, address): questions store one word, the rest are plain values.
pub fn arch_prctl(call: &mut Call<'_>) {
    match call.int(0) {
        0x1003 | 0x1004 | 0x1021 | 0x1022 | 0x1024 | 0x4001 | 0x4003 | 0x5005 => call.writes(call.args[1], 8),
        _ => {}
    }
}

/// seccomp(operation, flags, argument).
pub fn seccomp(call: &mut Call<'_>) {
    let addr = call.args[2];
    match call.int(0) {
        1 => fprog(call, addr),
        2 => call.reads(addr, 4),
        3 => call.writes(addr, 6),
        _ => {}
    }
}

fn fprog(call: &mut Call<'_>, addr: u64) {
    if addr != 0 {
        call.reads(addr, SOCK_FPROG);
        program(call, addr);
    }
}

/// keyctl(command, arguments 2 to 5).
pub fn keyctl(call: &mut Call<'_>) {
    let [_, second, third, fourth, fifth, _] = *call.args;
    match call.int(0) {
        1 => call.text(second, PATH_MAX),
        2 | 12 => call.reads(third, fourth),
        // Describe, read, security label: the result is the size there is, the buffer gets what fits.
        6 | 11 | 17 => {
            let len = call.done(fourth);
            call.writes(third, len);
        }
        10 | 29 => {
            call.text(third, PATH_MAX);
            call.text(fourth, PATH_MAX);
        }
        20 => {
            let count = fourth.min(super::super::call::IOV_MAX);
            call.reads(third, count * 16);
            call.buffers(third, count, u64::MAX, false);
        }
        23 => diffie_hellman(call, second, third, fourth, fifth),
        24 => {
            call.text(fourth, PATH_MAX);
            call.writes(fifth, 56);
        }
        25..=28 => public_key(call, second, third, fourth, fifth),
        // Capabilities: what the kernel does not fill of the buffer it clears.
        31 => call.writes(second, third),
        _ => {}
    }
}

/// Three key numbers in, the shared secret out, optionally hashed as further parameters say.
fn diffie_hellman(call: &mut Call<'_>, keys: u64, buffer: u64, len: u64, hashing: u64) {
    call.reads(keys, 12);
    let done = call.done(len);
    call.writes(buffer, done);
    if hashing != 0 {
        call.reads(hashing, 56);
        let name = call.word(hashing, 8);
        call.text(name, PATH_MAX);
        let extra = call.word(hashing.wrapping_add(8), 8);
        let extra_len = call.word(hashing.wrapping_add(16), 4);
        call.reads(extra, extra_len);
    }
}

/// Encrypt, decrypt and sign store as many bytes as the result says; verify reads both buffers.
fn public_key(call: &mut Call<'_>, parameters: u64, info: u64, input: u64, output: u64) {
    const VERIFY: u64 = 28;
    call.reads(parameters, 40);
    call.text(info, PATH_MAX);
    if parameters == 0 {
        return;
    }
    let input_len = call.word(parameters.wrapping_add(4), 4);
    let output_len = call.word(parameters.wrapping_add(8), 4);
    call.reads(input, input_len);
    if call.int(0) == VERIFY {
        call.reads(output, output_len);
    } else {
        let len = call.done(output_len);
        call.writes(output, len);
    }
}

/// ptrace(request, pid, address, data), for tracing on x86-64.
pub fn ptrace(call: &mut Call<'_>) {
    let (address, data) = (call.args[2], call.args[3]);
    match call.args[0] {
        1..=3 => call.writes(data, 8),
        12 => call.writes(data, 216),
        13 => call.reads(data, 216),
        14 | 18 => call.writes(data, 512),
        15 | 19 => call.reads(data, 512),
        0x4201 => call.writes(data, 8),
        0x4202 => call.writes(data, 128),
        0x4203 => call.reads(data, 128),
        0x4204 | 0x4205 => register_set(call, data),
        0x4209 => {
            call.reads(address, 16);
            let count = if address == 0 { 0 } else { call.word(address.wrapping_add(12), 4) };
            let len = call.done(count) * 128;
            call.writes(data, len);
        }
        0x420a => call.writes(data, address),
        0x420b => call.reads(data, address),
        0x420c => {
            let len = call.done(4096) * 8;
            call.writes(data, len);
        }
        0x420e => {
            let len = call.done(address);
            call.writes(data, len);
        }
        0x420f | 0x4211 => call.writes(data, address),
        0x4210 => call.reads(data, address),
        _ => {}
    }
}

/// PTRACE_GETREGSET and SETREGSET name their buffer by an `iovec` whose length comes back.
fn register_set(call: &mut Call<'_>, iovec: u64) {
    call.reads(iovec, 16);
    if iovec == 0 {
        return;
    }
    let base = call.word(iovec, 8);
    let (before, now) = call.word_before(iovec.wrapping_add(8), 8);
    let len = now.min(before.unwrap_or(now));
    if call.args[0] == 0x4204 {
        call.writes(base, len);
    } else {
        call.reads(base, len);
    }
    call.writes(iovec.wrapping_add(8), 8);
}

/// landlock_add_rule(ruleset, type, rule, flags).
pub fn landlock_rule(call: &mut Call<'_>) -> u64 {
    match call.int(1) {
        1 => 12,
        2 => 16,
        _ => 0,
    }
}

/// kcmp(pid, pid, type, first, second): comparing epoll targets takes a structure.
pub fn kcmp(call: &mut Call<'_>) {
    if call.int(2) == 7 {
        call.reads(call.args[4], 12);
    }
}

/// syslog(action, buffer, length): three of the actions fill the buffer.
pub fn syslog(call: &mut Call<'_>) {
    if matches!(call.int(0), 2..=4) {
        let len = call.done(call.int(2));
        call.writes(call.args[1], len);
    }
}

/// reboot(magic, magic, command, text): only one command has a text.
pub fn reboot(call: &mut Call<'_>) {
    if call.args[2] & 0xffff_ffff == 0xa1b2_c3d4 {
        call.text(call.args[3], 256);
    }
}
