//! What CPUID answers to a guest.
//!
//! [`mask`] takes what the processor says and removes what the guest must not use. Two rules decide:
//! a feature bit that is not named in [`WORDS`] is hidden, because it may stand for instructions that the decoder does
//! not know; and nothing in an answer depends on the core that happens to execute the instruction, so that a run can be
//! repeated.
//!
//! `Cpu::V2` shows x86-64-v2 as the psABI defines it, with caches, topology and names of the real processor: the C
//! library then chooses string functions that use SSE alone. `Cpu::Native` shows everything that survives translation;
//! the reasons for what is missing stand beside the bits.
//!
//! May miss: on processors with different kinds of cores the cache leaves can still differ from core to core.
//! Sizes of XSAVE areas stay as the processor gives them, although components are hidden: a guest that saves everything
//! without asking writes that much.
//!
//! Sources: Intel SDM volume 2, CPUID; AMD APM volume 3, appendix E; x86-64 psABI 1.0, table 3.1.

#![forbid(unsafe_code)]

mod features;

use alloc::vec::Vec;
pub use features::{Show, WORDS, Why, Word};
use model::Cpu;

/// Position of a register in an answer.
pub const EAX: usize = 0;
pub const EBX: usize = 1;
pub const ECX: usize = 2;
pub const EDX: usize = 3;

/// Components of the extended state that a guest may know of: x87, SSE, AVX and the three of AVX-512. Not MPX,
/// processor trace, protection keys, shadow stacks, user interrupts, AMX tiles and APX.
pub const XSTATE: u64 = 0xe7;
const XSTATE_V2: u64 = 0x3;

/// Highest leaves that are shown. Those of x86-64-v2 end with the topology; in between, what is not listed is empty.
const MAX_BASIC_V2: u32 = 0xb;
const MAX_BASIC_NATIVE: u32 = 0x1f;
const MAX_EXTENDED_V2: u32 = 0x8000_001e;
const MAX_SUBLEAF_7: u32 = 1;

/// Leaves of `Cpu::V2` that are not empty: identity, features, caches, topology, names, address sizes.
const LEAVES_V2: &[u32] = &[
    0,
    1,
    2,
    4,
    0xb,
    0x8000_0000,
    0x8000_0001,
    0x8000_0002,
    0x8000_0003,
    0x8000_0004,
    0x8000_0005,
    0x8000_0006,
    0x8000_0007,
    0x8000_0008,
    0x8000_001d,
    0x8000_001e,
];

/// Leaves that are empty for `Cpu::Native`: SGX, key locker, kinds of cores, PCONFIG, LBR, AMX, history reset and what
/// may follow; AMD's virtualisation and memory encryption, and its lightweight profiling.
fn empty_native(leaf: u32) -> bool {
    matches!(
        leaf,
        0x12 | 0x19..=0x1e | 0x20..=0x3fff_ffff | 0x8000_000a | 0x8000_001b | 0x8000_001c | 0x8000_001f | 0x8000_0023
    )
}

/// The answer of CPUID (eax, ebx, ecx, edx) for a guest, from the processor's.
pub fn mask(cpu: Cpu, leaf: u32, subleaf: u32, raw: [u32; 4]) -> [u32; 4] {
    let empty = match cpu {
        Cpu::V2 => !LEAVES_V2.contains(&leaf),
        Cpu::Native => empty_native(leaf),
    };
    if empty {
        return [0; 4];
    }
    let mut out = raw;
    for word in words(leaf, subleaf) {
        out[word.register] &= word.shown(cpu);
    }
    match leaf {
        0 => out[EAX] = out[EAX].min(if cpu == Cpu::V2 { MAX_BASIC_V2 } else { MAX_BASIC_NATIVE }),
        // Initial APIC id of this core.
        1 => out[EBX] &= 0x00ff_ffff,
        7 => match subleaf {
            0 => out[EAX] = out[EAX].min(MAX_SUBLEAF_7),
            1 => {}
            _ => out = [0; 4],
        },
        // x2APIC id of this core.
        0xb | 0x1f | 0x8000_0026 => out[EDX] = 0,
        0xd => xsave_leaf(subleaf, &mut out),
        0x8000_0000 if cpu == Cpu::V2 => out[EAX] = out[EAX].min(MAX_EXTENDED_V2),
        // Highest register that RDPRU reads.
        0x8000_0008 => out[EDX] = 0,
        // APIC, core and node ids of this core.
        0x8000_001e => {
            out[EAX] = 0;
            out[EBX] &= !0xff;
            out[ECX] &= !0xff;
        }
        _ => {}
    }
    out
}

/// What XGETBV answers, for register 0 (enabled components) and register 1 (components in use).
pub fn xgetbv(cpu: Cpu, raw: u64) -> u64 {
    raw & if cpu == Cpu::V2 { XSTATE_V2 } else { XSTATE }
}

/// Names of the features that this processor has in the leaf and the guest is not told of.
pub fn hidden(cpu: Cpu, leaf: u32, subleaf: u32, raw: [u32; 4]) -> Vec<&'static str> {
    let masked = mask(cpu, leaf, subleaf, raw);
    let of_word = |word: &'static Word| {
        let gone = raw[word.register] & !masked[word.register];
        word.bits.iter().filter(move |bit| gone & (1 << bit.0) != 0).map(|bit| bit.1)
    };
    words(leaf, subleaf).flat_map(of_word).collect()
}

/// Leaf 0xd describes the components of the extended state: which exist (sub-leaf 0), which only the kernel can use
/// (sub-leaf 1), then one sub-leaf for each.
fn xsave_leaf(subleaf: u32, out: &mut [u32; 4]) {
    match subleaf {
        0 => {
            out[EAX] &= XSTATE as u32;
            out[EDX] = 0;
        }
        1 => {
            out[ECX] = 0;
            out[EDX] = 0;
        }
        2..=63 if XSTATE & (1 << subleaf) != 0 => {}
        _ => *out = [0; 4],
    }
}

fn words(leaf: u32, subleaf: u32) -> impl Iterator<Item = &'static Word> {
    // Leaves with one sub-leaf ignore its number.
    let indexed = matches!(leaf, 7 | 0xd);
    WORDS.iter().filter(move |w| w.leaf == leaf && (!indexed || w.subleaf == subleaf))
}

impl Word {
    fn shown(&self, cpu: Cpu) -> u32 {
        let visible = |show| match show {
            Show::Always => true,
            Show::Native => cpu == Cpu::Native,
            Show::Never(_) => false,
        };
        self.bits.iter().filter(|bit| visible(bit.2)).fold(0, |mask, bit| mask | 1 << bit.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expects the answer for both kinds of CPU.
    #[track_caller]
    fn check(leaf: u32, subleaf: u32, raw: [u32; 4], native: [u32; 4], v2: [u32; 4]) {
        assert_eq!(mask(Cpu::Native, leaf, subleaf, raw), native, "native, leaf {leaf:#x}.{subleaf}");
        assert_eq!(mask(Cpu::V2, leaf, subleaf, raw), v2, "v2, leaf {leaf:#x}.{subleaf}");
    }

    #[track_caller]
    fn check_hidden(cpu: Cpu, leaf: u32, subleaf: u32, raw: [u32; 4], expected: &str) {
        assert_eq!(hidden(cpu, leaf, subleaf, raw).join(" "), expected);
    }

    const ALL: [u32; 4] = [!0; 4];
    const NONE: [u32; 4] = [0; 4];

    #[test]
    fn xeon_with_amx() {
        // Answers of a Sapphire Rapids machine, APIC id 5 put in.
        check(
            0,
            0,
            [0x20, 0x756e_6547, 0x6c65_746e, 0x4965_6e69],
            [0x1f, 0x756e_6547, 0x6c65_746e, 0x4965_6e69],
            [0x0b, 0x756e_6547, 0x6c65_746e, 0x4965_6e69],
        );
        check(
            1,
            0,
            [0x000c_06f2, 0x0502_0800, 0xfffa_3203, 0x1f8b_fbff],
            [0x000c_06f2, 0x0002_0800, 0xfffa_3203, 0x1f8b_fbff],
            [0x000c_06f2, 0x0002_0800, 0x0098_2201, 0x178b_fbff],
        );
        let leaf_7 = [2, 0xf1bf_2ffb, 0x1a41_5f46, 0x23c1_4010];
        check(7, 0, leaf_7, [1, 0xf1bf_27eb, 0x1a41_5f46, 0x2080_4010], NONE);
        check_hidden(Cpu::Native, 7, 0, leaf_7, "hle rtm tsxldtrk amx_bf16 amx_tile amx_int8");
        check(7, 1, [0x1c30, 0, 0, 0], [0x1c30, 0, 0, 0], NONE);
        check(7, 2, [0, 0, 0, 1], NONE, NONE);
        // The size of the whole save area stays.
        check(0xd, 0, [0x0006_00e7, 0x2b00, 0x2b00, 0], [0xe7, 0x2b00, 0x2b00, 0], NONE);
        check(0xd, 1, [0x1f, 0x29c0, 0x1800, 0], [0xf, 0x29c0, 0, 0], NONE);
        check(0xd, 2, [0x100, 0x240, 0, 0], [0x100, 0x240, 0, 0], NONE);
        check(0xd, 7, [0x400, 0x680, 0, 0], [0x400, 0x680, 0, 0], NONE);
        check(0xd, 0x9, [8, 0xa80, 0, 0], NONE, NONE);
        check(0xd, 0x11, [0x40, 0xac0, 2, 0], NONE, NONE);
        check(0xd, 0x12, [0x2000, 0xb00, 6, 0], NONE, NONE);
        check(0x8000_0001, 0, [0, 0, 0x121, 0x2c10_0800], [0, 0, 0x121, 0x2c10_0800], [0, 0, 1, 0x2010_0800]);
    }

    #[test]
    fn every_bit_that_cannot_survive_is_hidden() {
        check_hidden(Cpu::Native, 1, 0, ALL, "");
        check_hidden(
            Cpu::Native,
            7,
            0,
            ALL,
            "sgx hle rtm mpx intel_pt pku ospke waitpkg cet_ss kl enqcmd sgx_lc pks sgx_keys uintr rtm_always_abort \
             tsx_force_abort hybrid tsxldtrk pconfig arch_lbr cet_ibt amx_bf16 amx_tile amx_int8",
        );
        check_hidden(
            Cpu::Native,
            7,
            1,
            ALL,
            "arch_perfmon_ext fred lkgs amx_fp16 hreset lam msrlist movrs amx_complex utmr user_msr uiret_uif cet_sss \
             avx10 apx_f",
        );
        for leaf in [0x12, 0x19, 0x1a, 0x1d, 0x1e, 0x20, 0x24, 0x3fff_ffff] {
            check(leaf, 0, ALL, NONE, NONE);
        }
    }

    #[test]
    fn v2_is_what_the_psabi_says() {
        let shown = |leaf, register| {
            let word = WORDS.iter().find(|w| w.leaf == leaf && w.register == register).unwrap();
            let names = word.bits.iter().filter(|b| b.2 == Show::Always).map(|b| b.1);
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(1, ECX), "sse3 ssse3 cx16 sse4_1 sse4_2 popcnt");
        assert_eq!(shown(0x8000_0001, ECX), "lahf_lm topoext");
        for baseline in ["cmov", "cx8", "fpu", "fxsr", "mmx", "sse", "sse2"] {
            assert!(shown(1, EDX).contains(baseline), "{baseline}");
        }
        for leaf in [3, 5, 6, 7, 9, 0xa, 0xd, 0xf, 0x10, 0x14, 0x15, 0x16, 0x18, 0x1f, 0x4000_0000, 0x8000_0021] {
            assert_eq!(mask(Cpu::V2, leaf, 0, ALL), NONE, "leaf {leaf:#x}");
        }
        for leaf in [2, 4, 0x8000_0002, 0x8000_0004, 0x8000_0005, 0x8000_0006, 0x8000_001d] {
            assert_eq!(mask(Cpu::V2, leaf, 0, ALL), ALL, "leaf {leaf:#x}");
        }
    }

    #[test]
    fn nothing_depends_on_the_core() {
        let topology = [1, 2, 0x100, 77];
        check(0xb, 0, topology, [1, 2, 0x100, 0], [1, 2, 0x100, 0]);
        check(0x1f, 0, topology, [1, 2, 0x100, 0], NONE);
        check(0x8000_001e, 0, [7, 0x103, 0x201, 0], [0, 0x100, 0x200, 0], [0, 0x100, 0x200, 0]);
        check(0x8000_0026, 0, topology, [1, 2, 0x100, 0], NONE);
    }

    #[test]
    fn extended_leaves_end_where_v2_ends() {
        check(0x8000_0000, 0, [0x8000_0028, 1, 2, 3], [0x8000_0028, 1, 2, 3], [0x8000_001e, 1, 2, 3]);
        check(0x8000_0000, 0, [0x8000_0008, 0, 0, 0], [0x8000_0008, 0, 0, 0], [0x8000_0008, 0, 0, 0]);
        // Address sizes and core count stay; RDPRU goes.
        check(0x8000_0008, 0, [0x3030, 0x15, 0x700f, 0x1_0000], [0x3030, 0x05, 0x700f, 0], [0x3030, 0, 0x700f, 0]);
    }

    #[test]
    fn extended_control_register() {
        assert_eq!((xgetbv(Cpu::Native, 0x6_02e7), xgetbv(Cpu::V2, 0x6_02e7)), (0xe7, 3));
    }

    #[test]
    fn table_has_no_bit_twice() {
        for word in WORDS {
            let mut seen = 0_u32;
            for &(bit, name, _) in word.bits {
                assert_eq!(seen & 1 << bit, 0, "{name}");
                seen |= 1 << bit;
            }
        }
    }
}
