//! Names of the registers and of byte ranges inside them.

use iced_x86::{OpAccess, Register};

/// A set of general purpose registers: bit n is register number n in hardware order (rax=0 rcx=1 rdx=2 rbx=3 rsp=4
/// rbp=5 rsi=6 rdi=7 r8..r15).
pub type GprMask = u16;

/// Hardware number of a general purpose register.
pub type Gpr = u8;

/// Hardware number of rax.
pub const RAX: Gpr = 0;
/// Hardware number of rcx.
pub const RCX: Gpr = 1;
/// Hardware number of rdx.
pub const RDX: Gpr = 2;
/// Hardware number of rbx.
pub const RBX: Gpr = 3;
/// Hardware number of rsp.
pub const RSP: Gpr = 4;
/// Hardware number of rbp.
pub const RBP: Gpr = 5;
/// Hardware number of rsi.
pub const RSI: Gpr = 6;
/// Hardware number of rdi.
pub const RDI: Gpr = 7;
/// Hardware number of r11.
pub const R11: Gpr = 11;

/// An architectural register, whole; [`ByteRange`] says which part of it is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reg {
    /// General purpose register by hardware number, 8 bytes.
    Gpr(Gpr),
    /// Vector register zmm0..zmm31, 64 bytes; xmm and ymm are its low parts.
    Vec(u8),
    /// Opmask register k0..k7, 8 bytes.
    Mask(u8),
    /// x87 register, 10 bytes, counted from the top of the stack as it is *before* the instruction: `fld` writes
    /// `St(7)`, which is the new st(0) once TOP has been decremented.
    St(u8),
    /// MMX register, 8 bytes: the significand of the *physical* x87 register of that number.
    Mmx(u8),
    /// AMX tile register, 1024 bytes (reported as byte range 0..0, meaning all of it).
    Tile(u8),
    /// MPX bound register, 16 bytes.
    Bound(u8),
    /// Segment selector: es, cs, ss, ds, fs, gs are 0..6. The fs and gs *bases* are in [`crate::System`].
    Segment(u8),
    /// Control, debug or test register: only privileged instructions touch it.
    Privileged,
    /// The instruction pointer, written by every control transfer.
    Rip,
}

impl Reg {
    /// Size in bytes, 0 for what is not tracked by bytes.
    pub const fn size(self) -> u8 {
        match self {
            Reg::Gpr(_) | Reg::Mask(_) | Reg::Mmx(_) | Reg::Rip => 8,
            Reg::Vec(_) => 64,
            Reg::St(_) => 10,
            Reg::Bound(_) => 16,
            Reg::Segment(_) => 2,
            Reg::Tile(_) | Reg::Privileged => 0,
        }
    }
}

/// Bytes `start..end` of a register, counted from its least significant byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// First byte.
    pub start: u8,
    /// One past the last byte.
    pub end: u8,
}

impl ByteRange {
    /// `start..end`.
    pub const fn new(start: u8, end: u8) -> ByteRange {
        ByteRange { start, end }
    }

    /// One bit per byte of the range, for registers of up to 64 bytes.
    pub const fn mask(self) -> u64 {
        if self.start >= self.end {
            return 0;
        }
        let len = self.end - self.start;
        let ones = if len >= 64 { u64::MAX } else { (1 << len) - 1 };
        ones << self.start
    }
}

/// How one instruction uses some bytes of one register.
///
/// Reads happen before writes. `conditional` says of a read that it may not happen, and of a write that the bytes may
/// keep their old value; what decides this is always among the other declared reads. A register may occur in several
/// entries (`add eax, 1` reads bytes 0..4 and writes 0..8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegAccess {
    /// The register.
    pub reg: Reg,
    /// Which of its bytes.
    pub bytes: ByteRange,
    /// The bytes are an input.
    pub read: bool,
    /// The bytes are an output.
    pub write: bool,
    /// The access depends on other inputs.
    pub conditional: bool,
}

/// The full register behind an iced register and the bytes of it that the name stands for.
pub fn locate(register: Register) -> Option<(Reg, ByteRange)> {
    let from = |base: Register| (register as u32).wrapping_sub(base as u32);
    let whole = |reg: Reg| Some((reg, ByteRange::new(0, reg.size())));
    let part = |reg: Reg, end: u8| Some((reg, ByteRange::new(0, end)));
    match register {
        Register::AL | Register::CL | Register::DL | Register::BL => part(Reg::Gpr(from(Register::AL) as u8), 1),
        Register::AH | Register::CH | Register::DH | Register::BH => {
            Some((Reg::Gpr(from(Register::AH) as u8), ByteRange::new(1, 2)))
        }
        _ if from(Register::SPL) < 12 => part(Reg::Gpr(from(Register::SPL) as u8 + 4), 1),
        _ if from(Register::AX) < 16 => part(Reg::Gpr(from(Register::AX) as u8), 2),
        _ if from(Register::EAX) < 16 => part(Reg::Gpr(from(Register::EAX) as u8), 4),
        _ if from(Register::RAX) < 16 => whole(Reg::Gpr(from(Register::RAX) as u8)),
        Register::RIP | Register::EIP => whole(Reg::Rip),
        _ if from(Register::ES) < 6 => whole(Reg::Segment(from(Register::ES) as u8)),
        _ if from(Register::XMM0) < 32 => part(Reg::Vec(from(Register::XMM0) as u8), 16),
        _ if from(Register::YMM0) < 32 => part(Reg::Vec(from(Register::YMM0) as u8), 32),
        _ if from(Register::ZMM0) < 32 => whole(Reg::Vec(from(Register::ZMM0) as u8)),
        _ if from(Register::K0) < 8 => whole(Reg::Mask(from(Register::K0) as u8)),
        _ if from(Register::BND0) < 4 => whole(Reg::Bound(from(Register::BND0) as u8)),
        _ if from(Register::CR0) < 16 || from(Register::DR0) < 16 || from(Register::TR0) < 8 => whole(Reg::Privileged),
        _ if from(Register::ST0) < 8 => whole(Reg::St(from(Register::ST0) as u8)),
        _ if from(Register::MM0) < 8 => whole(Reg::Mmx(from(Register::MM0) as u8)),
        _ if from(Register::TMM0) < 8 => whole(Reg::Tile(from(Register::TMM0) as u8)),
        _ => None,
    }
}

/// Hardware number of a general purpose register of any width.
pub fn gpr(register: Register) -> Option<Gpr> {
    match locate(register) {
        Some((Reg::Gpr(n), _)) => Some(n),
        _ => None,
    }
}

/// (read, write, conditional) of an access as iced names it.
pub(crate) fn access_bits(access: OpAccess) -> (bool, bool, bool) {
    match access {
        OpAccess::None | OpAccess::NoMemAccess => (false, false, false),
        OpAccess::Read => (true, false, false),
        OpAccess::CondRead => (true, false, true),
        OpAccess::Write => (false, true, false),
        OpAccess::CondWrite => (false, true, true),
        OpAccess::ReadWrite => (true, true, false),
        OpAccess::ReadCondWrite => (true, true, true),
    }
}
