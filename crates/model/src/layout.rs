//! Where things lie in a guest process.
//!
//! The addresses follow three rules.
//! The low 4 GiB hold nothing of ours, so that a truncated pointer faults under Clew as it does natively.
//! Program and libraries lie within 2 GiB of the code cache, so that a RIP-relative operand keeps its form when its
//! instruction is copied into the cache.
//! Everything lies where the sanitizers' fixed shadow layouts allow application memory (ASan high memory, TSan's
//! `0x5500_0000_0000..0x5680_0000_0000`, MSan's second application range).

/// Base of a position-independent executable: where Linux puts it without address randomisation.
pub const PIE_BASE: u64 = 0x5555_5555_4000;
/// First choice for private file mappings and executable anonymous memory: below the program, filled top down.
pub const NEAR_LOW: core::ops::Range<u64> = 0x5554_f800_0000..0x5555_5500_0000;
/// Code cache: translated blocks.
pub const CACHE: core::ops::Range<u64> = 0x5555_6000_0000..0x5555_7000_0000;
/// Code near the cache, whose indirect branches find their targets through [`TARGETS`].
pub const NEAR_CODE: core::ops::Range<u64> = 0x5554_f800_0000..0x5555_7800_0000;
/// For each byte of that code the translation that an indirect branch to it enters: [`TARGETS_BELOW`] below the code, so
/// that a branch reaches it with its target as the only register.
pub const TARGETS: core::ops::Range<u64> = 0x5554_7800_0000..0x5554_f800_0000;
pub const TARGETS_BELOW: u64 = 0x8000_0000;
/// Second choice for near mappings.
pub const NEAR_HIGH: core::ops::Range<u64> = 0x5555_7000_0000..0x5555_d800_0000;
/// The program break starts here (for a PIE; after the image otherwise) and may grow to the end.
pub const BRK: core::ops::Range<u64> = 0x5555_e000_0000..0x55f0_0000_0000;
/// Everything of the engine except the code cache and [`TARGETS`]: image, heap, gate, stacks, tables, trace buffers.
pub const ENGINE: core::ops::Range<u64> = 0x5600_0000_0000..0x5640_0000_0000;
/// Link address of the engine program.
pub const ENGINE_IMAGE: u64 = ENGINE.start;
/// The engine's heap.
pub const ENGINE_HEAP: core::ops::Range<u64> = 0x5610_0000_0000..0x5620_0000_0000;
/// Tables of translations that an earlier process left: behind what the heap can reach, in the same range.
pub const ADOPTED: u64 = ENGINE_HEAP.start + 0x8_0000_0000;
/// The gate (context page and lookup table), addressed through GS.
pub const GATE: u64 = 0x5620_0000_0000;
/// Per-block counters, and after them the counters of taken branches: within 2 GiB of the gate, so that GS reaches them.
pub const COUNTERS: core::ops::Range<u64> = GATE + 0x0100_0000..GATE + 0x0900_0000;
/// Distance from a block's counter to that of its taken branch.
pub const TAKEN: u64 = 0x0400_0000;
/// Programs that are not position-independent lie here.
pub const LOW: core::ops::Range<u64> = 0..0x4000_0000;
/// Distance of the targets of low code from the gate: what [`TARGETS`] is to near code.
pub const LOW_TARGETS: u64 = 0x1000_0000;
/// One region per guest thread: thread record, signal stack, engine stack.
pub const THREADS: core::ops::Range<u64> = 0x5624_0000_0000..0x5627_f000_0000;
/// Words that threads outside the baton use: scheduler and fault flags. Never protected.
pub const SHARED: u64 = 0x5627_ffff_0000;
/// Trace buffers.
pub const RING: core::ops::Range<u64> = 0x5628_0000_0000..0x5629_0000_0000;
/// Segments of the log: the one being written, or, in a replay, the whole log.
pub const LOG: core::ops::Range<u64> = 0x562a_0000_0000..0x562f_0000_0000;
/// The header of the pool of translations, while it is looked at.
pub const POOL: u64 = 0x562f_8000_0000;
/// Pages of detours of direct lookup, for entries that are left with 1 or 2 bytes, with 3, with 4, and with 5: their
/// addresses must begin with the bytes that such entries are left with.
pub const DETOUR_PAGES: [u64; 4] =
    [CACHE.start + 0x0f01_0000, CACHE.start + 0x0f00_0000, ENGINE.start + 0x30_0000_5000, ENGINE.start + 0x55_5000];
/// What the engine's image may take: the lowest page of detours comes behind it.
pub const ENGINE_IMAGE_MAX: u64 = 0x50_0000;
/// Mappings without a place of their own go here, top down, as natively.
pub const MMAP: core::ops::Range<u64> = 0x7f00_0000_0000..0x7fff_f000_0000;
/// End of the initial stack.
pub const STACK_TOP: u64 = 0x7fff_ffff_f000;
/// Largest initial stack that is mapped.
pub const STACK_MAX: u64 = 0x0fe0_0000;
pub const PAGE: u64 = 4096;

const _: () = {
    assert!(TARGETS.start == NEAR_CODE.start - TARGETS_BELOW && TARGETS.end == NEAR_CODE.end - TARGETS_BELOW);
    assert!(TARGETS.end <= NEAR_LOW.start && NEAR_LOW.end <= PIE_BASE && PIE_BASE < CACHE.start);
    assert!(CACHE.end <= NEAR_HIGH.start && NEAR_HIGH.end <= BRK.start && BRK.end <= ENGINE.start);
    assert!(COUNTERS.end <= GATE + LOW_TARGETS && GATE + LOW_TARGETS + LOW.end <= THREADS.start);
    assert!(ENGINE_IMAGE + ENGINE_IMAGE_MAX <= DETOUR_PAGES[3] && DETOUR_PAGES[3] < ENGINE_HEAP.start);
    assert!(
        THREADS.end <= SHARED
            && SHARED < RING.start
            && RING.end <= LOG.start
            && LOG.end <= POOL
            && POOL + (1 << 20) <= DETOUR_PAGES[2]
            && ENGINE.end <= MMAP.start
    );
};

/// Is any byte of `[start, start + len)` the engine's?
pub fn touches_engine(start: u64, len: u64) -> bool {
    let end = start.saturating_add(len);
    let hits = |r: &core::ops::Range<u64>| start < r.end && end > r.start;
    hits(&ENGINE) || hits(&CACHE) || hits(&TARGETS)
}
