//! What `isa` declares about one instruction in one concrete state, as masks over the state.

use isa::{Effects, Flags, Kind, LaneMask, MemAccess, MemSize, Reg, Segment, Shape, System, Top};

use crate::image::{self, Image};

/// Bytes of memory that one access declares.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// First address.
    pub start: u64,
    /// How many bytes.
    pub len: u64,
    /// The access may not happen, or a write may leave the old bytes.
    pub maybe: bool,
}

/// Declared inputs and outputs, bit by bit.
pub struct Declared {
    /// Inputs.
    pub read: Image,
    /// Outputs.
    pub write: Image,
    /// Outputs that may keep their old value.
    pub conditional: Image,
    /// Outputs whose value is not determined by the inputs: undefined flags, clocks, random numbers.
    pub free: Image,
    /// The memory among them, also outside the arena.
    pub ranges: Vec<Range>,
    /// Control may go elsewhere.
    pub jumps: bool,
}

/// Sources that two executions from the same state need not agree on.
const OUTSIDE: [System; 6] =
    [System::TSC, System::CPUID, System::RANDOM, System::DESCRIPTORS, System::TRANSACTION, System::MONITOR];

/// Resolves `effects` in `state`. `after` is the state after the execution, if it is known: compares of strings say
/// only then how far they went.
pub fn resolve(effects: &Effects, state: &Image, after: Option<&Image>) -> Declared {
    let mut out = Declared {
        read: Image::zero(),
        write: Image::zero(),
        conditional: Image::zero(),
        free: Image::zero(),
        ranges: vec![],
        jumps: effects.kind == Kind::Branch,
    };
    for access in &effects.regs {
        let Some((at, len)) = place(access.reg, access.bytes.start, access.bytes.end, access.write, state) else {
            continue;
        };
        if access.read {
            out.read.0[at..at + len].fill(0xFF);
        }
        if access.write {
            out.write.0[at..at + len].fill(0xFF);
            if access.conditional {
                out.conditional.0[at..at + len].fill(0xFF);
            }
        }
    }
    flags(effects, &mut out);
    floating_point(effects, &mut out);
    system(effects, &mut out);
    for access in &effects.mem {
        memory(access, state, after, &mut out);
    }
    if OUTSIDE.iter().any(|source| effects.system_read.contains(*source)) {
        out.free = out.write.clone();
    }
    out
}

/// Where some bytes of a register are in the image.
fn place(reg: Reg, start: u8, end: u8, write: bool, state: &Image) -> Option<(usize, usize)> {
    let (start, len) = (usize::from(start), usize::from(end - start));
    match reg {
        Reg::Gpr(n) => Some((image::GPR + 8 * usize::from(n) + start, len)),
        Reg::Vec(n) => Some((image::VEC + 64 * usize::from(n) + start, len)),
        Reg::Mask(n) => Some((image::MASK + 8 * usize::from(n) + start, len)),
        Reg::St(n) => Some((image::X87 + 10 * ((state.top() + usize::from(n)) & 7) + start, len)),
        // A write to an MMX register also sets the exponent of the x87 register it is part of.
        Reg::Mmx(n) => Some((image::X87 + 10 * usize::from(n) + start, if write { 10 } else { len })),
        Reg::Segment(n) => Some((image::SELECTORS + 2 * usize::from(n), 2)),
        Reg::Tile(_) | Reg::Bound(_) | Reg::Privileged | Reg::Rip => None,
    }
}

fn or(image: &mut Image, at: usize, bits: &[u8]) {
    for (byte, bit) in image.0[at..].iter_mut().zip(bits) {
        *byte |= bit;
    }
}

fn flags(effects: &Effects, out: &mut Declared) {
    let put = |image: &mut Image, set: Flags| or(image, image::FLAGS, &set.0.to_le_bytes());
    put(&mut out.read, effects.flags_read);
    put(&mut out.write, effects.flags_written | effects.flags_undefined);
    put(&mut out.conditional, effects.flags_conditional);
    // A flag that is undefined but counts as overwritten must at least not depend on what it was. Processors that keep
    // some of them are within their rights: no program can rely on either.
    match is_amd() {
        true => put(&mut out.free, effects.flags_undefined),
        false => put(&mut out.free, effects.flags_undefined & effects.flags_conditional),
    }
}

fn floating_point(effects: &Effects, out: &mut Declared) {
    let x87 = &effects.x87;
    let mut access = |read: bool, write: bool, at: usize, bits: &[u8]| {
        if read {
            or(&mut out.read, at, bits);
        }
        if write {
            or(&mut out.write, at, bits);
        }
    };
    access(x87.control.read, x87.control.write, image::CONTROL, &[0xFF; 2]);
    access(true, false, image::STATUS, &x87.status_read.to_le_bytes());
    access(false, true, image::STATUS, &x87.status_write.to_le_bytes());
    access(x87.tags.read, x87.tags.write, image::TAGS, &[0xFF]);
    access(x87.pointers.read, x87.pointers.write, image::POINTERS, &[0xFF; 18]);
    access(effects.mxcsr.read, effects.mxcsr.write, image::MXCSR, &[0xFF; 4]);
    let reads_top = !matches!(x87.top, Top::Unused | Top::Zero | Top::Load);
    let writes_top = !matches!(x87.top, Top::Unused | Top::Keep);
    access(reads_top, writes_top, image::STATUS, &0x3800u16.to_le_bytes());
    or(&mut out.free, image::STATUS, &x87.status_undefined.to_le_bytes());
}

fn system(effects: &Effects, out: &mut Declared) {
    for (base, at) in [(System::FS_BASE, image::FS_BASE), (System::GS_BASE, image::GS_BASE)] {
        if effects.system_read.contains(base) {
            or(&mut out.read, at, &[0xFF; 8]);
        }
        if effects.system_write.contains(base) {
            or(&mut out.write, at, &[0xFF; 8]);
        }
    }
    let extended = [image::VEC..image::FLAGS, image::CONTROL..image::SELECTORS];
    for range in extended {
        if effects.system_read.contains(System::EXTENDED_STATE) {
            out.read.0[range.clone()].fill(0xFF);
        }
        if effects.system_write.contains(System::EXTENDED_STATE) {
            out.write.0[range.clone()].fill(0xFF);
            out.conditional.0[range].fill(0xFF);
        }
    }
}

/// The address before the segment base is added, cut to 32 bits where the instruction does so.
fn effective(access: &MemAccess, state: &Image, extra: u64) -> u64 {
    let base = access.base.map_or(0, |n| state.gpr(n));
    let index = access.index.map_or(0, |n| state.gpr(n)).wrapping_mul(u64::from(access.scale));
    let sum = base.wrapping_add(index).wrapping_add(access.disp as u64).wrapping_add(extra);
    if access.addr32 { u64::from(sum as u32) } else { sum }
}

/// The linear address of an access, displaced by `extra`.
pub fn address(access: &MemAccess, state: &Image, extra: u64) -> u64 {
    let segment = match access.seg {
        Segment::None => 0,
        Segment::Fs => state.u64(image::FS_BASE),
        Segment::Gs => state.u64(image::GS_BASE),
    };
    effective(access, state, extra).wrapping_add(segment)
}

/// True if `mask` selects lane `lane` of elements of `elem` bytes.
fn selected(mask: LaneMask, lane: u8, elem: u8, state: &Image) -> bool {
    let last = usize::from(lane) * usize::from(elem) + usize::from(elem) - 1;
    match mask {
        LaneMask::Vec(n) => state.0[image::VEC + 64 * usize::from(n) + last] & 0x80 != 0,
        LaneMask::K(n) => state.u64(image::MASK + 8 * usize::from(n)) >> lane & 1 == 1,
        LaneMask::Mmx(n) => state.0[image::X87 + 10 * usize::from(n) + last] & 0x80 != 0,
    }
}

/// Calls `touch(start, len, maybe)` for every piece of memory that `access` declares.
fn pieces(access: &MemAccess, state: &Image, after: Option<&Image>, touch: &mut dyn FnMut(u64, u64, bool)) {
    let size = match access.size {
        MemSize::Bytes(bytes) => u64::from(bytes),
        MemSize::XsaveArea | MemSize::Tile | MemSize::Unknown => 4096,
    };
    let at = |extra: u64| address(access, state, extra);
    let cut = |value: u64| if access.addr32 { u64::from(value as u32) } else { value };
    match access.shape {
        Shape::Plain => touch(at(0), size, access.conditional || !matches!(access.size, MemSize::Bytes(_))),
        Shape::RepString { count_is_exact, elem, .. } => {
            let before = cut(state.gpr(1));
            let count = match after {
                Some(after) if !count_is_exact => before.wrapping_sub(cut(after.gpr(1))),
                _ => before,
            };
            let down = state.u32(image::FLAGS) & Flags::DF.0 != 0;
            for n in 0..count.min(4096) {
                let distance = n.wrapping_mul(u64::from(elem));
                let extra = if down { distance.wrapping_neg() } else { distance };
                touch(at(extra), u64::from(elem), !count_is_exact && after.is_none() && n > 0);
            }
        }
        Shape::Gather { index_vec, index_elem, lanes, scale, mask, elem }
        | Shape::Scatter { index_vec, index_elem, lanes, scale, mask, elem } => {
            for lane in 0..lanes {
                let from = image::VEC + 64 * usize::from(index_vec) + usize::from(lane * index_elem);
                let index = match index_elem {
                    4 => state.u32(from) as i32 as i64 as u64,
                    _ => state.u64(from),
                };
                if selected(mask, lane, elem, state) {
                    touch(at(index.wrapping_mul(u64::from(scale))), u64::from(elem), false);
                }
            }
        }
        Shape::Masked { elem, lanes, mask } => {
            for lane in (0..lanes).filter(|lane| selected(mask, *lane, elem, state)) {
                touch(at(u64::from(lane) * u64::from(elem)), u64::from(elem), false);
            }
        }
        Shape::MaskedBroadcast { elem, lanes, mask } => {
            if (0..lanes).any(|lane| selected(mask, lane, elem, state)) {
                touch(at(0), u64::from(elem), false);
            }
        }
        Shape::Packed { elem, lanes, mask } => {
            let count = (0..lanes).filter(|lane| selected(mask, *lane, elem, state)).count() as u64;
            touch(at(0), count * u64::from(elem), false);
        }
        Shape::BitString { bits } => {
            let value = state.gpr(bits);
            let offset = match size {
                2 => i64::from(value as i16),
                4 => i64::from(value as i32),
                _ => value as i64,
            };
            touch(at((offset.div_euclid(8 * size as i64) * size as i64) as u64), size, false);
        }
        Shape::PlusAl => touch(at(state.gpr(0) & 0xFF), size, false),
        Shape::Block => touch(at(0) & !(size - 1), size, false),
    }
}

fn memory(access: &MemAccess, state: &Image, after: Option<&Image>, out: &mut Declared) {
    match access.seg {
        Segment::None => {}
        Segment::Fs => out.read.0[image::FS_BASE..image::FS_BASE + 8].fill(0xFF),
        Segment::Gs => out.read.0[image::GS_BASE..image::GS_BASE + 8].fill(0xFF),
    }
    pieces(access, state, after, &mut |start, len, maybe| {
        out.ranges.push(Range { start, len, maybe });
        for address in start..start.saturating_add(len) {
            let Some(at) = Image::offset_of(address) else { continue };
            if access.read {
                out.read.0[at] = 0xFF;
            }
            if access.write {
                out.write.0[at] = 0xFF;
                if maybe {
                    out.conditional.0[at] = 0xFF;
                }
            }
        }
    });
}

/// Is this one of AMD's processors? They leave undefined flags as they were after some multiplications and bit counts.
pub fn is_amd() -> bool {
    static IS: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *IS.get_or_init(|| std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains("AuthenticAMD")))
}
