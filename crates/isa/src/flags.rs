//! The bits of RFLAGS that an instruction reads and writes.
//!
//! Guarantee: a flag that is written and not conditional has the same value afterwards whatever it was before; a flag
//! that is in no set stays. Flags that the manual leaves undefined are told apart, because processors differ in them.
//!
//! Bit positions are those of the RFLAGS register itself (Intel SDM volume 1, 3.4.3), so a set of flags can be used as
//! a mask on a saved RFLAGS value without any conversion.

use core::ops::{BitAnd, BitAndAssign, BitOr, BitOrAssign, Not};

use iced_x86::{Instruction, Mnemonic, OpKind, RflagsBits};

use crate::shapes::{ends_early, has_repeat};

/// A set of RFLAGS bits, at their architectural positions.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u32);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// Carry.
    pub const CF: Flags = Flags(1 << 0);
    /// Parity of the low byte.
    pub const PF: Flags = Flags(1 << 2);
    /// Carry out of the low nibble.
    pub const AF: Flags = Flags(1 << 4);
    /// Zero.
    pub const ZF: Flags = Flags(1 << 6);
    /// Sign.
    pub const SF: Flags = Flags(1 << 7);
    /// Single-step trap. Only `popf` and `iret` write it.
    pub const TF: Flags = Flags(1 << 8);
    /// Interrupts enabled. User code can only read it, by `pushf`.
    pub const IF: Flags = Flags(1 << 9);
    /// Direction of string instructions.
    pub const DF: Flags = Flags(1 << 10);
    /// Signed overflow.
    pub const OF: Flags = Flags(1 << 11);
    /// I/O privilege level (two bits). User code can only read it, by `pushf`.
    pub const IOPL: Flags = Flags(3 << 12);
    /// Nested task.
    pub const NT: Flags = Flags(1 << 14);
    /// Resume: `pushf` always stores it as 0.
    pub const RF: Flags = Flags(1 << 16);
    /// Alignment check.
    pub const AC: Flags = Flags(1 << 18);
    /// Identification: writable where CPUID exists, which is everywhere.
    pub const ID: Flags = Flags(1 << 21);
    /// The six status flags that arithmetic writes: CF, PF, AF, ZF, SF and OF.
    pub const STATUS: Flags = Flags(0x8D5);

    /// Everything that `pushf` stores.
    pub const ALL: Flags = Flags(0x24_7FD5);

    /// True if no flag is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if every flag of `other` is in this set.
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if the sets have a flag in common.
    pub const fn intersects(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    /// The flags that are in either set.
    pub const fn union(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// The flags of this set that are not in `other`.
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }
}

impl BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl BitOrAssign for Flags {
    fn bitor_assign(&mut self, other: Flags) {
        self.0 |= other.0;
    }
}

impl BitAnd for Flags {
    type Output = Flags;
    fn bitand(self, other: Flags) -> Flags {
        Flags(self.0 & other.0)
    }
}

impl BitAndAssign for Flags {
    fn bitand_assign(&mut self, other: Flags) {
        self.0 &= other.0;
    }
}

impl Not for Flags {
    type Output = Flags;
    fn not(self) -> Flags {
        Flags(!self.0)
    }
}

impl core::fmt::Debug for Flags {
    /// Lists names, such as `CF|ZF`; `-` is the empty set.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        const NAMES: [(Flags, &str); 14] = [
            (Flags::CF, "CF"),
            (Flags::PF, "PF"),
            (Flags::AF, "AF"),
            (Flags::ZF, "ZF"),
            (Flags::SF, "SF"),
            (Flags::TF, "TF"),
            (Flags::IF, "IF"),
            (Flags::DF, "DF"),
            (Flags::OF, "OF"),
            (Flags::IOPL, "IOPL"),
            (Flags::NT, "NT"),
            (Flags::RF, "RF"),
            (Flags::AC, "AC"),
            (Flags::ID, "ID"),
        ];
        let mut rest = *self;
        let mut first = true;
        for (flag, name) in NAMES {
            if rest.intersects(flag) {
                rest = rest.without(flag);
                if !first {
                    f.write_str("|")?;
                }
                f.write_str(name)?;
                first = false;
            }
        }
        if !rest.is_empty() {
            write!(f, "{}{:#x}", if first { "" } else { "|" }, rest.0)?;
            first = false;
        }
        if first { f.write_str("-") } else { Ok(()) }
    }
}

/// The flags part of an instruction's effects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlagEffects {
    pub(crate) read: Flags,
    pub(crate) written: Flags,
    pub(crate) undefined: Flags,
    pub(crate) conditional: Flags,
}

/// What `instruction` does with RFLAGS.
pub(crate) fn flag_effects(instruction: &Instruction) -> FlagEffects {
    let undefined = from_iced(instruction.rflags_undefined());
    let mut out = FlagEffects {
        read: from_iced(instruction.rflags_read()),
        written: from_iced(instruction.rflags_modified()).without(undefined),
        undefined,
        conditional: Flags::NONE,
    };
    match instruction.mnemonic() {
        Mnemonic::Popf | Mnemonic::Popfd | Mnemonic::Popfq => out.written |= Flags::TF | Flags::NT | Flags::ID,
        Mnemonic::Pushf | Mnemonic::Pushfd | Mnemonic::Pushfq | Mnemonic::Syscall => out.read |= Flags::ALL,
        _ => {}
    }
    if is_shift_by_cl(instruction) || (has_repeat(instruction) && ends_early(instruction)) {
        out.conditional = out.written | out.undefined;
    } else if keeps_undefined(instruction.mnemonic()) {
        out.conditional = out.undefined;
    }
    out
}

/// Instructions that leave undefined flags as they were on some processor: seen on Intel for `bt` and its like (PF, AF,
/// SF, OF), divisions (all six) and rotates (OF); the bit scans are here because AMD documents less than it keeps.
/// A program that looks at such a flag sees its old value, so it must not count as overwritten.
fn keeps_undefined(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(mnemonic, M::Bt | M::Bts | M::Btr | M::Btc | M::Div | M::Idiv)
        || matches!(mnemonic, M::Rol | M::Ror | M::Rcl | M::Rcr | M::Bsf | M::Bsr)
}

/// Shifts and rotates by cl leave every flag alone when the masked count is 0.
fn is_shift_by_cl(instruction: &Instruction) -> bool {
    match instruction.mnemonic() {
        Mnemonic::Rol
        | Mnemonic::Ror
        | Mnemonic::Rcl
        | Mnemonic::Rcr
        | Mnemonic::Shl
        | Mnemonic::Sal
        | Mnemonic::Shr
        | Mnemonic::Sar => instruction.op1_kind() == OpKind::Register,
        Mnemonic::Shld | Mnemonic::Shrd => instruction.op2_kind() == OpKind::Register,
        _ => false,
    }
}

/// iced numbers the flags in its own way.
fn from_iced(bits: u32) -> Flags {
    const ORDER: [Flags; 9] =
        [Flags::OF, Flags::SF, Flags::ZF, Flags::AF, Flags::CF, Flags::PF, Flags::DF, Flags::IF, Flags::AC];
    const _: () = assert!(RflagsBits::OF == 1 && RflagsBits::DF == 1 << 6 && RflagsBits::AC == 1 << 8);
    let mut set = Flags::NONE;
    let mut rest = bits & 0x1FF;
    while rest != 0 {
        set |= ORDER[rest.trailing_zeros() as usize];
        rest &= rest - 1;
    }
    set
}
