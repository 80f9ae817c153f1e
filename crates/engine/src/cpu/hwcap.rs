//! What the auxiliary vector tells a guest about the CPU.
//!
//! Programs believe these words as much as CPUID, so they must say the same as [`super::cpuid`] does.
//! Each function takes the value that the kernel gave to the engine itself.

#![forbid(unsafe_code)]

use super::cpuid;
use model::Cpu;

pub const AT_HWCAP: u64 = 16;
pub const AT_HWCAP2: u64 = 26;
pub const AT_MINSIGSTKSZ: u64 = 51;

/// `HWCAP2_RING3MWAIT`: MONITOR and MWAIT outside the kernel (Xeon Phi), which would sleep with every other thread
/// waiting.
const RING3_MWAIT: u64 = 1 << 0;
/// `HWCAP2_FSGSBASE`: the kernel allows RDFSBASE and its relatives. The engine answers them itself.
const FSGSBASE: u64 = 1 << 1;

/// The constant `MINSIGSTKSZ` of the C library, what a guest assumes where the kernel says nothing.
const MINSIGSTKSZ: u64 = 2048;

/// `AT_HWCAP` is register edx of CPUID leaf 1, as the kernel sees it.
pub fn hwcap(cpu: Cpu, inherited: u64) -> u64 {
    u64::from(cpuid::mask(cpu, 1, 0, [0, 0, 0, inherited as u32])[3])
}

/// `AT_HWCAP2`.
pub fn hwcap2(cpu: Cpu, inherited: u64) -> u64 {
    match cpu {
        Cpu::V2 => inherited & !(RING3_MWAIT | FSGSBASE),
        Cpu::Native => inherited & !RING3_MWAIT,
    }
}

/// `AT_MINSIGSTKSZ`: a signal frame holds the whole vector state whatever CPUID shows, because a guest may use it
/// without asking, so the kernel's value stays.
pub fn minsigstksz(inherited: Option<u64>) -> u64 {
    inherited.unwrap_or(MINSIGSTKSZ).max(MINSIGSTKSZ)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cpu: Cpu, inherited: (u64, u64), expected: (u64, u64)) {
        assert_eq!((hwcap(cpu, inherited.0), hwcap2(cpu, inherited.1)), expected);
    }

    #[test]
    fn words_follow_the_cpu_shown() {
        // A Xeon with all of leaf 1's usual bits.
        check(Cpu::Native, (0xbfeb_fbff, 0b11), (0xbfeb_fbff, 0b10));
        // Without serial number, debug store, ACPI, self snoop, thermal monitor and pending break.
        check(Cpu::V2, (0xbfeb_fbff, 0b11), (0x178b_fbff, 0b00));
        check(Cpu::V2, (0, 0), (0, 0));
    }

    #[test]
    fn signal_stacks_are_never_smaller_than_the_constant() {
        assert_eq!((minsigstksz(Some(11952)), minsigstksz(Some(1)), minsigstksz(None)), (11952, 2048, 2048));
    }
}
