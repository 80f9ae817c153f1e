//! How an instruction addresses memory.

use crate::registers::Gpr;

/// Whose base is added to the address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Segment {
    /// None: es, cs, ss and ds have base 0 in 64-bit mode.
    #[default]
    None,
    /// The fs base.
    Fs,
    /// The gs base.
    Gs,
}

/// One access to memory.
///
/// The address is `segment base + trunc(base + index * scale + disp)`, where `trunc` cuts to 32 bits if `addr32`, and
/// all registers have the values they had *before* the instruction (for `pop [rsp+8]`, whose operand uses the
/// incremented rsp, `disp` is 16). [`Shape`] says what is done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemAccess {
    /// Segment whose base is added.
    pub seg: Segment,
    /// Base register.
    pub base: Option<Gpr>,
    /// Index register.
    pub index: Option<Gpr>,
    /// Factor of the index: 1, 2, 4 or 8.
    pub scale: u8,
    /// Displacement; for RIP-relative and absolute operands the whole address, with no base.
    pub disp: i64,
    /// The sum is cut to 32 bits (before the segment base is added).
    pub addr32: bool,
    /// How many bytes.
    pub size: MemSize,
    /// Bytes are an input.
    pub read: bool,
    /// Bytes are an output.
    pub write: bool,
    /// The access may not happen, or not to all the bytes: see `shape` for what decides.
    pub conditional: bool,
    /// What is accessed, starting from the address.
    pub shape: Shape,
}

/// The number of bytes of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemSize {
    /// This many. For [`Shape::RepString`], [`Shape::Gather`] and [`Shape::Scatter`] it is the size of one element; for
    /// [`Shape::Masked`] and [`Shape::Packed`] that of all lanes together.
    Bytes(u32),
    /// An XSAVE area: which bytes depends on edx:eax, XCR0, the XSAVE header and the instruction. The area is 64-byte
    /// aligned and never longer than CPUID leaf 0xD says.
    XsaveArea,
    /// An AMX tile: rows and columns are in the tile configuration.
    Tile,
    /// Not known statically: only privileged or obsolete instructions, named in [`crate::Effects::kind`].
    Unknown,
}

/// Which register of a string instruction holds the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StringReg {
    /// rsi (or esi).
    Si,
    /// rdi (or edi).
    Di,
}

/// What decides which lanes are accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LaneMask {
    /// The most significant bit of each element of this vector register; elements are as wide as the data (index
    /// register for gathers and data register have the same number of lanes).
    Vec(u8),
    /// Bit n of this opmask register decides lane n.
    K(u8),
    /// The most significant bit of each byte of this MMX register (`maskmovq`).
    Mmx(u8),
}

/// How the bytes lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Shape {
    /// `size` bytes from the address on.
    #[default]
    Plain,
    /// A string instruction with a rep prefix: rcx (ecx if `addr32`) elements of `elem` bytes from the address on,
    /// upwards if DF is 0, else downwards.
    RepString {
        /// All iterations happen (movs, stos, lods); otherwise cmps and scas may end earlier, and the number of
        /// elements accessed is the difference of rcx before and after.
        count_is_exact: bool,
        /// Bytes per element.
        elem: u8,
        /// The address register.
        which: StringReg,
    },
    /// For each lane whose mask is set: `elem` bytes at address + sign-extended index lane * scale.
    Gather {
        /// Vector register with the indices.
        index_vec: u8,
        /// Bytes per index: 4 or 8.
        index_elem: u8,
        /// Number of lanes.
        lanes: u8,
        /// Factor of the index: 1, 2, 4 or 8.
        scale: u8,
        /// What selects the lanes.
        mask: LaneMask,
        /// Bytes per element.
        elem: u8,
    },
    /// Like a gather, but written, in order of the lanes.
    Scatter {
        /// Vector register with the indices.
        index_vec: u8,
        /// Bytes per index: 4 or 8.
        index_elem: u8,
        /// Number of lanes.
        lanes: u8,
        /// Factor of the index: 1, 2, 4 or 8.
        scale: u8,
        /// What selects the lanes.
        mask: LaneMask,
        /// Bytes per element.
        elem: u8,
    },
    /// Element n (of `elem` bytes) of the `lanes` elements from the address on is accessed if its lane is selected.
    Masked {
        /// Bytes per element.
        elem: u8,
        /// Number of lanes.
        lanes: u8,
        /// What selects the lanes.
        mask: LaneMask,
    },
    /// One element, accessed if any of the lanes is selected (embedded broadcast under a mask).
    MaskedBroadcast {
        /// Bytes per element.
        elem: u8,
        /// Number of lanes.
        lanes: u8,
        /// What selects the lanes.
        mask: LaneMask,
    },
    /// As many elements from the address on as lanes are selected (compress and expand).
    Packed {
        /// Bytes per element.
        elem: u8,
        /// Number of lanes.
        lanes: u8,
        /// What selects the lanes.
        mask: LaneMask,
    },
    /// `bt`, `bts`, `btr`, `btc` with a register bit offset: the operand of `size` bytes lies at
    /// address + size * floor(offset / (8 * size)), where the offset is the low `size` bytes of `bits`, signed.
    BitString {
        /// Register with the bit offset.
        bits: Gpr,
    },
    /// `xlat`: al, zero-extended, is added to the address.
    PlusAl,
    /// The block of `size` bytes that contains the address, aligned to its size (`clzero`).
    Block,
}
