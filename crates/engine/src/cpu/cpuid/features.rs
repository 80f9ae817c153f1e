//! Every feature bit of CPUID that is known, with its name and to whom it is shown.
//!
//! Names are those of `/proc/cpuinfo` where Linux has one.

use super::{EAX, EBX, ECX, EDX};

/// To whom a feature is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// In every case: part of x86-64-v2, or not about instructions at all.
    Always,
    /// Only to a guest that is told the truth.
    Native,
    /// To nobody; says why.
    Never(Why),
}
use Show::{Always, Native, Never};

/// Why a feature is hidden even from a guest that is told the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A transaction cannot contain the engine's instrumentation, and aborts depend on the machine.
    Transactions,
    /// State that the engine neither saves nor traces.
    State,
    /// Kept for the engine itself.
    Keys,
    /// Return addresses on the shadow stack and branch targets would be those of the code cache.
    Cet,
    /// Waits in user mode would stop every other thread.
    Waits,
    /// Enters or is entered by code outside the engine's control.
    Control,
    /// Reads counters that differ from run to run.
    Counters,
    /// Differs from core to core.
    Core,
    /// The decoder does not know the instructions.
    Unknown,
}
use Why::{Cet, Control, Core, Counters, Keys, State, Transactions, Unknown, Waits};

/// One register of one leaf, all of whose bits are features.
pub struct Word {
    pub leaf: u32,
    pub subleaf: u32,
    pub register: usize,
    /// Bit number, name, and to whom it is shown.
    pub bits: &'static [(u8, &'static str, Show)],
}

/// Every register of CPUID that consists of feature bits, with the bits known.
pub const WORDS: &[Word] = &[
    Word { leaf: 1, subleaf: 0, register: ECX, bits: LEAF_1_ECX },
    Word { leaf: 1, subleaf: 0, register: EDX, bits: LEAF_1_EDX },
    Word { leaf: 7, subleaf: 0, register: EBX, bits: LEAF_7_EBX },
    Word { leaf: 7, subleaf: 0, register: ECX, bits: LEAF_7_ECX },
    Word { leaf: 7, subleaf: 0, register: EDX, bits: LEAF_7_EDX },
    Word { leaf: 7, subleaf: 1, register: EAX, bits: LEAF_7_1_EAX },
    Word { leaf: 7, subleaf: 1, register: EBX, bits: &[] },
    Word { leaf: 7, subleaf: 1, register: ECX, bits: &[] },
    Word { leaf: 7, subleaf: 1, register: EDX, bits: LEAF_7_1_EDX },
    Word { leaf: 0xd, subleaf: 1, register: EAX, bits: LEAF_D_1_EAX },
    Word { leaf: 0x8000_0001, subleaf: 0, register: ECX, bits: EXTENDED_1_ECX },
    Word { leaf: 0x8000_0001, subleaf: 0, register: EDX, bits: EXTENDED_1_EDX },
    Word { leaf: 0x8000_0007, subleaf: 0, register: EDX, bits: &[(8, "invariant_tsc", Always)] },
    Word { leaf: 0x8000_0008, subleaf: 0, register: EBX, bits: EXTENDED_8_EBX },
];

type Bits = &'static [(u8, &'static str, Show)];

const LEAF_1_ECX: Bits = &[
    (0, "sse3", Always),
    (1, "pclmulqdq", Native),
    (2, "dtes64", Native),
    (3, "monitor", Native),
    (4, "ds_cpl", Native),
    (5, "vmx", Native),
    (6, "smx", Native),
    (7, "est", Native),
    (8, "tm2", Native),
    (9, "ssse3", Always),
    (10, "cnxt_id", Native),
    (11, "sdbg", Native),
    (12, "fma", Native),
    (13, "cx16", Always),
    (14, "xtpr", Native),
    (15, "pdcm", Native),
    (17, "pcid", Native),
    (18, "dca", Native),
    (19, "sse4_1", Always),
    (20, "sse4_2", Always),
    (21, "x2apic", Native),
    (22, "movbe", Native),
    (23, "popcnt", Always),
    (24, "tsc_deadline", Native),
    (25, "aes", Native),
    (26, "xsave", Native),
    (27, "osxsave", Native),
    (28, "avx", Native),
    (29, "f16c", Native),
    (30, "rdrand", Native),
    (31, "hypervisor", Native),
];

const LEAF_1_EDX: Bits = &[
    (0, "fpu", Always),
    (1, "vme", Always),
    (2, "de", Always),
    (3, "pse", Always),
    (4, "tsc", Always),
    (5, "msr", Always),
    (6, "pae", Always),
    (7, "mce", Always),
    (8, "cx8", Always),
    (9, "apic", Always),
    (11, "sep", Always),
    (12, "mtrr", Always),
    (13, "pge", Always),
    (14, "mca", Always),
    (15, "cmov", Always),
    (16, "pat", Always),
    (17, "pse36", Always),
    (18, "psn", Native),
    (19, "clfsh", Always),
    (21, "ds", Native),
    (22, "acpi", Native),
    (23, "mmx", Always),
    (24, "fxsr", Always),
    (25, "sse", Always),
    (26, "sse2", Always),
    (27, "ss", Native),
    // Says that the topology leaves mean something.
    (28, "htt", Always),
    (29, "tm", Native),
    (31, "pbe", Native),
];

const LEAF_7_EBX: Bits = &[
    (0, "fsgsbase", Native),
    (1, "tsc_adjust", Native),
    (2, "sgx", Never(Control)),
    (3, "bmi1", Native),
    (4, "hle", Never(Transactions)),
    (5, "avx2", Native),
    (6, "fdp_excptn_only", Native),
    (7, "smep", Native),
    (8, "bmi2", Native),
    (9, "erms", Native),
    (10, "invpcid", Native),
    (11, "rtm", Never(Transactions)),
    (12, "pqm", Native),
    (13, "zero_fcs_fds", Native),
    (14, "mpx", Never(State)),
    (15, "pqe", Native),
    (16, "avx512f", Native),
    (17, "avx512dq", Native),
    (18, "rdseed", Native),
    (19, "adx", Native),
    (20, "smap", Native),
    (21, "avx512ifma", Native),
    (22, "pcommit", Native),
    (23, "clflushopt", Native),
    (24, "clwb", Native),
    (25, "intel_pt", Never(Counters)),
    (26, "avx512pf", Native),
    (27, "avx512er", Native),
    (28, "avx512cd", Native),
    (29, "sha", Native),
    (30, "avx512bw", Native),
    (31, "avx512vl", Native),
];

const LEAF_7_ECX: Bits = &[
    (0, "prefetchwt1", Native),
    (1, "avx512vbmi", Native),
    (2, "umip", Native),
    (3, "pku", Never(Keys)),
    (4, "ospke", Never(Keys)),
    (5, "waitpkg", Never(Waits)),
    (6, "avx512_vbmi2", Native),
    (7, "cet_ss", Never(Cet)),
    (8, "gfni", Native),
    (9, "vaes", Native),
    (10, "vpclmulqdq", Native),
    (11, "avx512_vnni", Native),
    (12, "avx512_bitalg", Native),
    (13, "tme", Native),
    (14, "avx512_vpopcntdq", Native),
    (16, "la57", Native),
    (22, "rdpid", Native),
    (23, "kl", Never(State)),
    (24, "bus_lock_detect", Native),
    (25, "cldemote", Native),
    (27, "movdiri", Native),
    (28, "movdir64b", Native),
    (29, "enqcmd", Never(State)),
    (30, "sgx_lc", Never(Control)),
    (31, "pks", Never(Keys)),
];

const LEAF_7_EDX: Bits = &[
    (1, "sgx_keys", Never(Control)),
    (2, "avx512_4vnniw", Native),
    (3, "avx512_4fmaps", Native),
    (4, "fsrm", Native),
    (5, "uintr", Never(Control)),
    (8, "avx512_vp2intersect", Native),
    (9, "srbds_ctrl", Native),
    (10, "md_clear", Native),
    (11, "rtm_always_abort", Never(Transactions)),
    (13, "tsx_force_abort", Never(Transactions)),
    (14, "serialize", Native),
    (15, "hybrid", Never(Core)),
    (16, "tsxldtrk", Never(Transactions)),
    (18, "pconfig", Never(Control)),
    (19, "arch_lbr", Never(Counters)),
    (20, "cet_ibt", Never(Cet)),
    (22, "amx_bf16", Never(State)),
    (23, "avx512_fp16", Native),
    (24, "amx_tile", Never(State)),
    (25, "amx_int8", Never(State)),
    (26, "ibrs_ibpb", Native),
    (27, "stibp", Native),
    (28, "l1d_flush", Native),
    (29, "arch_capabilities", Native),
    (30, "core_capabilities", Native),
    (31, "ssbd", Native),
];

const LEAF_7_1_EAX: Bits = &[
    (0, "sha512", Native),
    (1, "sm3", Native),
    (2, "sm4", Native),
    (3, "rao_int", Native),
    (4, "avx_vnni", Native),
    (5, "avx512_bf16", Native),
    (6, "lass", Native),
    (7, "cmpccxadd", Native),
    (8, "arch_perfmon_ext", Never(Counters)),
    (10, "fzrm", Native),
    (11, "fsrs", Native),
    (12, "fsrc", Native),
    (17, "fred", Never(Control)),
    (18, "lkgs", Never(Control)),
    (19, "wrmsrns", Native),
    (21, "amx_fp16", Never(State)),
    (22, "hreset", Never(Control)),
    (23, "avx_ifma", Native),
    // A guest that puts tags into addresses would defeat the engine's checks of them.
    (26, "lam", Never(Control)),
    (27, "msrlist", Never(Control)),
    (31, "movrs", Never(Unknown)),
];

const LEAF_7_1_EDX: Bits = &[
    (4, "avx_vnni_int8", Native),
    (5, "avx_ne_convert", Native),
    (8, "amx_complex", Never(State)),
    (10, "avx_vnni_int16", Native),
    (13, "utmr", Never(Control)),
    (14, "prefetchi", Native),
    (15, "user_msr", Never(Unknown)),
    (17, "uiret_uif", Never(Control)),
    (18, "cet_sss", Never(Cet)),
    (19, "avx10", Never(Unknown)),
    (21, "apx_f", Never(Unknown)),
];

const LEAF_D_1_EAX: Bits = &[
    (0, "xsaveopt", Native),
    (1, "xsavec", Native),
    (2, "xgetbv1", Native),
    (3, "xsaves", Native),
    // Makes tile instructions fault until a program has asked for them.
    (4, "xfd", Never(State)),
];

const EXTENDED_1_ECX: Bits = &[
    (0, "lahf_lm", Always),
    (1, "cmp_legacy", Native),
    (2, "svm", Never(Control)),
    (3, "extapic", Native),
    (4, "cr8_legacy", Native),
    (5, "lzcnt", Native),
    (6, "sse4a", Native),
    (7, "misalignsse", Native),
    (8, "prefetchw", Native),
    (9, "osvw", Native),
    (10, "ibs", Never(Counters)),
    (11, "xop", Native),
    (12, "skinit", Never(Control)),
    (13, "wdt", Native),
    (15, "lwp", Never(State)),
    (16, "fma4", Native),
    (17, "tce", Native),
    (19, "nodeid_msr", Native),
    (21, "tbm", Native),
    (22, "topoext", Always),
    (23, "perfctr_core", Never(Counters)),
    (24, "perfctr_nb", Never(Counters)),
    (26, "bpext", Native),
    (27, "ptsc", Never(Counters)),
    (28, "perfctr_llc", Never(Counters)),
    (29, "mwaitx", Never(Waits)),
    (30, "addr_mask_ext", Native),
];

const EXTENDED_1_EDX: Bits = &[
    // AMD repeats here what leaf 1 says.
    (0, "fpu", Always),
    (1, "vme", Always),
    (2, "de", Always),
    (3, "pse", Always),
    (4, "tsc", Always),
    (5, "msr", Always),
    (6, "pae", Always),
    (7, "mce", Always),
    (8, "cx8", Always),
    (9, "apic", Always),
    (11, "syscall", Always),
    (12, "mtrr", Always),
    (13, "pge", Always),
    (14, "mca", Always),
    (15, "cmov", Always),
    (16, "pat", Always),
    (17, "pse36", Always),
    (20, "nx", Always),
    (22, "mmxext", Native),
    (23, "mmx", Always),
    (24, "fxsr", Always),
    (25, "fxsr_opt", Native),
    (26, "pdpe1gb", Native),
    (27, "rdtscp", Native),
    (29, "lm", Always),
    (30, "3dnowext", Native),
    (31, "3dnow", Native),
];

const EXTENDED_8_EBX: Bits = &[
    (0, "clzero", Native),
    (1, "irperf", Never(Counters)),
    (2, "xsaveerptr", Native),
    (3, "invlpgb", Never(Control)),
    (4, "rdpru", Never(Counters)),
    (8, "mcommit", Never(Unknown)),
    (9, "wbnoinvd", Native),
    (12, "ibpb", Native),
    (14, "ibrs", Native),
    (15, "stibp", Native),
    (16, "ibrs_always_on", Native),
    (17, "stibp_always_on", Native),
    (18, "ibrs_preferred", Native),
    (19, "ibrs_same_mode", Native),
    (24, "ssbd", Native),
    (25, "virt_ssbd", Native),
    (26, "ssb_no", Native),
    (28, "psfd", Native),
];
