//! Signals in words: name, and what the kernel says about the cause.
//!
//! Source: Linux `asm-generic/siginfo.h` and `signal(7)`, for x86-64.

/// The name of signal `number`.
pub(crate) fn name(number: u32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM",
        "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF",
        "WINCH", "IO", "PWR", "SYS",
    ];
    match number {
        1..=31 => format!("SIG{}", NAMES[number as usize - 1]),
        34..=64 => format!("SIGRTMIN+{}", number - 34),
        _ => format!("signal {number}"),
    }
}

const ILL: u32 = 4;
const TRAP: u32 = 5;
const BUS: u32 = 7;
const FPE: u32 = 8;
const SEGV: u32 = 11;
const SYS: u32 = 31;

/// What `si_code` says about the cause; empty when it says nothing.
pub(crate) fn cause(signal: u32, code: i32) -> &'static str {
    match (signal, code) {
        (_, 0) => "sent by kill",
        (_, -1) => "sent by sigqueue",
        (_, -2) => "timer expired",
        (_, -6) => "raised by a thread",
        (SEGV, 0x80) => "address not canonical, or an instruction that is not permitted",
        (_, 0x80) => "sent by the kernel",
        (SEGV, 1) => "address not mapped",
        (SEGV, 2) => "access not permitted",
        (SEGV, 3) => "bound check failed",
        (SEGV, 4) => "protection key forbids it",
        (SEGV, 10) => "shadow stack violated",
        (BUS, 1) => "address not aligned",
        (BUS, 2) => "beyond the end of the mapped file",
        (BUS, 3) => "hardware error",
        (BUS, 4 | 5) => "memory failed",
        (FPE, 1) => "integer division by zero or overflow",
        (FPE, 2) => "integer overflow",
        (FPE, 3) => "floating-point division by zero",
        (FPE, 4) => "floating-point overflow",
        (FPE, 5) => "floating-point underflow",
        (FPE, 6) => "inexact floating-point result",
        (FPE, 7) => "invalid floating-point operation",
        (ILL, 1..=4) => "illegal instruction",
        (ILL, 5 | 6) => "privileged instruction",
        (TRAP, 1) => "breakpoint",
        (TRAP, 2) => "single step",
        (TRAP, 4) => "hardware breakpoint",
        (SYS, 1) => "system call forbidden by a filter",
        _ => "",
    }
}

/// Is `si_addr` the address of an access that went wrong?
pub(crate) fn has_address(signal: u32, code: i32) -> bool {
    // A general protection fault (0x80) does not say where; codes up to 0 are sent by programs.
    matches!(signal, SEGV | BUS) && code > 0 && code != 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_their_names() {
        for (number, expected) in [
            (1, "SIGHUP"),
            (6, "SIGABRT"),
            (11, "SIGSEGV"),
            (31, "SIGSYS"),
            (34, "SIGRTMIN+0"),
            (0, "signal 0"),
            (99, "signal 99"),
        ] {
            assert_eq!(name(number), expected);
        }
    }
}
