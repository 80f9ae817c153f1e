//! All the state an instruction can see, as one flat array of bytes.
//!
//! Registers, flags, x87 and SSE state and the memory arena lie one after the other, so that "which bits are read" and
//! "which bits are written" are masks of the same shape, and every comparison is one loop.
//! The x87 registers are in physical order, because names relative to TOP change their meaning when TOP moves.

use crate::child::Child;
use crate::rng::Rng;

/// Where the arena is in the child: below 4 GiB, so that 32-bit addressing reaches it; no page is mapped beside it.
pub const ARENA: u64 = 0x1100_0000;
/// Bytes of the arena.
pub const ARENA_SIZE: usize = 0x2000;

/// 16 general purpose registers of 8 bytes.
pub const GPR: usize = 0;
/// 32 vector registers of 64 bytes.
pub const VEC: usize = GPR + 16 * 8;
/// 8 opmask registers of 8 bytes.
pub const MASK: usize = VEC + 32 * 64;
/// 8 physical x87 registers of 10 bytes.
pub const X87: usize = MASK + 8 * 8;
/// RFLAGS, 4 bytes.
pub const FLAGS: usize = X87 + 8 * 10;
/// x87 control word.
pub const CONTROL: usize = FLAGS + 4;
/// x87 status word, TOP included.
pub const STATUS: usize = CONTROL + 2;
/// x87 tags: bit n says that physical register n is in use.
pub const TAGS: usize = STATUS + 2;
/// FOP (2 bytes), FIP (8), FDP (8).
pub const POINTERS: usize = TAGS + 1;
/// MXCSR.
pub const MXCSR: usize = POINTERS + 18;
/// es, cs, ss, ds, fs, gs selectors, 2 bytes each.
pub const SELECTORS: usize = MXCSR + 4;
/// fs base.
pub const FS_BASE: usize = SELECTORS + 12;
/// gs base.
pub const GS_BASE: usize = FS_BASE + 8;
/// The memory arena.
pub const MEMORY: usize = GS_BASE + 8;
/// Bytes in all.
pub const SIZE: usize = MEMORY + ARENA_SIZE;

/// Bits of RFLAGS that are compared. ID is not: a tracer cannot set it, so it keeps what the last `popf` made of it.
pub const CHECKED_FLAGS: u32 = 0x8D5 | 1 << 10 | 1 << 14 | 1 << 18;
/// Bits of RFLAGS that random states vary: AC would make unaligned accesses fault, the rest user code cannot set.
pub const VARIED_FLAGS: u32 = 0x8D5 | 1 << 10;

/// One complete state, or a set of bits of one.
#[derive(Clone)]
pub struct Image(pub Box<[u8; SIZE]>);

impl Image {
    /// All zero.
    pub fn zero() -> Image {
        Image(Box::new([0; SIZE]))
    }

    /// Little-endian u64 at `at`.
    pub fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().unwrap())
    }

    /// Little-endian u16 at `at`.
    pub fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.0[at], self.0[at + 1]])
    }

    /// Little-endian u32 at `at`.
    pub fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().unwrap())
    }

    /// Stores `bytes` at `at`.
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// General purpose register `n`.
    pub fn gpr(&self, n: u8) -> u64 {
        self.u64(GPR + 8 * usize::from(n))
    }

    /// Sets general purpose register `n`.
    pub fn set_gpr(&mut self, n: u8, value: u64) {
        self.put(GPR + 8 * usize::from(n), &value.to_le_bytes());
    }

    /// TOP of the x87 stack.
    pub fn top(&self) -> usize {
        usize::from(self.u16(STATUS) >> 11 & 7)
    }

    /// Offset in the image of an address inside the arena.
    pub fn offset_of(address: u64) -> Option<usize> {
        let at = address.wrapping_sub(ARENA);
        (at < ARENA_SIZE as u64).then(|| MEMORY + at as usize)
    }
}

/// A value of mixed magnitude: small, near a power of two, sign-extended or wholly random.
pub fn interesting(rng: &mut Rng) -> u64 {
    match rng.below(8) {
        0 => rng.below(4),
        1 => rng.below(256),
        2 => (rng.below(256) as i64 - 128) as u64,
        3 => 1u64.rotate_left(rng.below(64) as u32).wrapping_sub(rng.below(3)),
        4 => rng.next() as u32 as u64,
        5 => rng.next() as i32 as i64 as u64,
        _ => rng.next(),
    }
}

/// A float of `bytes` bytes (2, 4 or 8) of ordinary size, or a special one.
fn float(rng: &mut Rng, bytes: usize) -> u64 {
    let (exponent_bits, fraction_bits) = match bytes {
        2 => (5, 10),
        4 => (8, 23),
        _ => (11, 52),
    };
    let bias = (1u64 << (exponent_bits - 1)) - 1;
    let exponent = match rng.below(16) {
        0 => 0,
        1 => 2 * bias + 1,
        _ => bias - 8.min(bias / 2) + rng.below(20.min(bias)),
    };
    let fraction = if rng.one_in(4) { 0 } else { rng.next() & ((1 << fraction_bits) - 1) };
    rng.below(2) << (8 * bytes - 1) | exponent << fraction_bits | fraction
}

/// Fills `out` in one of several styles, so that integers, floats, equal elements and zeros all occur.
pub fn fill_styled(rng: &mut Rng, out: &mut [u8]) {
    match rng.below(8) {
        0 => out.iter_mut().for_each(|byte| *byte = rng.below(3) as u8),
        1..=3 => {
            let bytes = [4, 8, 2][rng.below(3) as usize];
            for chunk in out.chunks_mut(bytes) {
                chunk.copy_from_slice(&float(rng, bytes).to_le_bytes()[..chunk.len()]);
            }
        }
        4 => {
            for chunk in out.chunks_mut(8) {
                chunk.copy_from_slice(&interesting(rng).to_le_bytes()[..chunk.len()]);
            }
        }
        _ => rng.fill(out),
    }
}

/// An x87 register: mostly a normal number, sometimes a denormal, zero, infinity, NaN or unsupported pattern.
fn extended(rng: &mut Rng) -> [u8; 10] {
    let mut out = [0; 10];
    rng.fill(&mut out);
    let sign = (rng.below(2) as u16) << 15;
    let exponent = match rng.below(16) {
        0 => 0,
        1 => 0x7FFF,
        2 => rng.next() as u16 & 0x7FFF,
        _ => 16383 - 16 + rng.below(80) as u16,
    };
    if !rng.one_in(8) {
        out[7] |= 0x80;
    }
    if rng.one_in(6) {
        out[..7].fill(0);
    }
    out[8..].copy_from_slice(&(sign | exponent).to_le_bytes());
    out
}

/// A random state with the registers that the child has; floating-point exceptions are masked.
pub fn random(rng: &mut Rng, child: &Child) -> Image {
    let mut image = Image::zero();
    for (n, selector) in child.selectors().into_iter().enumerate() {
        image.put(SELECTORS + 2 * n, &selector.to_le_bytes());
    }
    for n in 0..16 {
        let value = interesting(rng);
        image.set_gpr(n, value);
    }
    for n in 0..child.vec_count {
        fill_styled(rng, &mut image.0[VEC + 64 * n..VEC + 64 * n + child.vec_bytes]);
    }
    if child.masks {
        for n in 0..8 {
            let value = if rng.one_in(3) { interesting(rng) } else { rng.next() };
            image.put(MASK + 8 * n, &value.to_le_bytes());
        }
    }
    for n in 0..8 {
        let value = extended(rng);
        image.put(X87 + 10 * n, &value);
    }
    let flags = rng.next() as u32 & VARIED_FLAGS | 0x202;
    image.put(FLAGS, &flags.to_le_bytes());
    randomise_x87_environment(rng, &mut image);
    let mxcsr = 0x1F80 | rng.next() as u32 & 0xE07F;
    image.put(MXCSR, &mxcsr.to_le_bytes());
    image.put(FS_BASE, &(8 * rng.below(1 << 24)).to_le_bytes());
    image.put(GS_BASE, &(8 * rng.below(1 << 24)).to_le_bytes());
    match rng.below(3) {
        0 => image.0[MEMORY..].iter_mut().for_each(|byte| *byte = rng.below(3) as u8),
        1 => image.0[MEMORY..].chunks_mut(64).for_each(|chunk| fill_styled(rng, chunk)),
        _ => rng.fill(&mut image.0[MEMORY..]),
    }
    image
}

/// Control word with masked exceptions, status word, tags and pointers.
pub fn randomise_x87_environment(rng: &mut Rng, image: &mut Image) {
    let control = 0x007F | rng.next() as u16 & 0x0F00;
    image.put(CONTROL, &control.to_le_bytes());
    // No exception flag may be set without its mask, or ES would have to be set too; all masks are set.
    let status = rng.next() as u16 & 0x7F7F;
    image.put(STATUS, &status.to_le_bytes());
    image.0[TAGS] = match rng.below(4) {
        0 => rng.next() as u8,
        1 => !(1u8.rotate_left(rng.below(8) as u32)),
        2 => 0,
        _ => 0xFF,
    };
    rng.fill(&mut image.0[POINTERS..POINTERS + 18]);
    image.0[POINTERS + 1] &= 0x07;
    // Instruction and data pointers are kept canonical and in user space.
    for at in [POINTERS + 2 + 5, POINTERS + 10 + 5] {
        image.0[at] = 0;
        image.0[at + 1] = 0;
        image.0[at + 2] = 0;
    }
}

/// Bits of the image that user code can be started with at will.
pub fn settable(vec_bytes: usize, vec_count: usize, masks: bool) -> Image {
    let mut image = Image::zero();
    image.0[GPR..VEC].fill(0xFF);
    for n in 0..vec_count {
        image.0[VEC + 64 * n..VEC + 64 * n + vec_bytes].fill(0xFF);
    }
    if masks {
        image.0[MASK..X87].fill(0xFF);
    }
    image.0[X87..FLAGS].fill(0xFF);
    image.put(FLAGS, &VARIED_FLAGS.to_le_bytes());
    image.put(CONTROL, &0x0F00u16.to_le_bytes());
    image.put(STATUS, &0x7F7Fu16.to_le_bytes());
    image.0[TAGS] = 0xFF;
    image.0[POINTERS..POINTERS + 18]
        .copy_from_slice(&[0xFF, 0x07, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0]);
    image.put(MXCSR, &0xE07Fu32.to_le_bytes());
    image.put(FS_BASE, &0x07FF_FFF8u64.to_le_bytes());
    image.put(GS_BASE, &0x07FF_FFF8u64.to_le_bytes());
    image.0[MEMORY..].fill(0xFF);
    image
}

/// A name for byte `at`, for messages.
pub fn name(at: usize) -> String {
    const GPRS: [&str; 16] =
        ["rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];
    match at {
        VEC.. if at < MASK => format!("zmm{}[{}]", (at - VEC) / 64, (at - VEC) % 64),
        MASK.. if at < X87 => format!("k{}[{}]", (at - MASK) / 8, (at - MASK) % 8),
        X87.. if at < FLAGS => format!("fpr{}[{}]", (at - X87) / 10, (at - X87) % 10),
        FLAGS.. if at < CONTROL => format!("rflags[{}]", at - FLAGS),
        CONTROL.. if at < STATUS => format!("fcw[{}]", at - CONTROL),
        STATUS.. if at < TAGS => format!("fsw[{}]", at - STATUS),
        TAGS.. if at < POINTERS => "ftw".to_string(),
        POINTERS.. if at < MXCSR => format!("fpointers[{}]", at - POINTERS),
        MXCSR.. if at < SELECTORS => format!("mxcsr[{}]", at - MXCSR),
        SELECTORS.. if at < FS_BASE => format!("selector{}", (at - SELECTORS) / 2),
        FS_BASE.. if at < GS_BASE => "fs base".to_string(),
        GS_BASE.. if at < MEMORY => "gs base".to_string(),
        MEMORY.. => format!("mem+{:#x}", at - MEMORY),
        _ => format!("{}[{}]", GPRS[at / 8], at % 8),
    }
}
