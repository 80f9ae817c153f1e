//! Registers as a slice knows them: one number each, and a mask of its bytes.
//!
//! Vector registers are followed byte by byte, general registers too; flags one by one. The x87 stack, whose registers are
//! named from a top that moves, is one place, and so are the rarely used rest.
//!
//! May miss: exception bits that floating point instructions leave in `mxcsr` and the x87 status word.

use isa::{Flags, Reg};

/// A register by number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RegId(pub u8);

/// How many there are; all fit into one word of bits.
pub const REGISTERS: usize = 63;

impl RegId {
    pub const RAX: RegId = RegId(isa::RAX);
    pub const RCX: RegId = RegId(isa::RCX);
    pub const RSP: RegId = RegId(isa::RSP);
    pub const RBP: RegId = RegId(isa::RBP);
    pub const RDI: RegId = RegId(isa::RDI);
    pub const R11: RegId = RegId(isa::R11);
    pub const FLAGS: RegId = RegId(48);
    /// All of the x87 stack, and the MMX registers, which are the same.
    pub const X87: RegId = RegId(57);
    pub const X87_CONTROL: RegId = RegId(58);
    pub const MXCSR: RegId = RegId(59);
    pub const FS_BASE: RegId = RegId(60);
    pub const GS_BASE: RegId = RegId(61);
    /// Everything else.
    pub const OTHER: RegId = RegId(62);

    pub const fn gpr(number: u8) -> RegId {
        RegId(number)
    }

    /// The place of an architectural register, and its size; `None` for the instruction pointer, which control
    /// dependence stands for.
    pub const fn of(reg: Reg) -> Option<RegId> {
        Some(match reg {
            Reg::Gpr(n) => RegId(n),
            Reg::Vec(n) => RegId(16 + n),
            Reg::Mask(n) => RegId(49 + n),
            Reg::St(_) | Reg::Mmx(_) => RegId::X87,
            Reg::Tile(_) | Reg::Bound(_) | Reg::Segment(_) | Reg::Privileged => RegId::OTHER,
            Reg::Rip => return None,
        })
    }

    /// Are its bytes followed one by one?
    pub const fn has_bytes(self) -> bool {
        self.0 < 48 || self.0 >= 49 && self.0 < 57
    }

    pub const fn is_gpr(self) -> bool {
        self.0 < 16
    }

    /// Registers for floating point and vectors, with their control words.
    pub fn extended() -> impl Iterator<Item = RegId> {
        (16..48).chain(49..60).map(RegId)
    }

    pub const fn bit(self) -> u64 {
        1 << self.0
    }

    /// All bytes of it, or all flags.
    pub const fn all(self) -> u64 {
        match self.0 {
            0..16 | 49..57 => 0xff,
            16..48 => u64::MAX,
            48 => flag_mask(Flags(Flags::STATUS.0 | Flags::DF.0)),
            _ => 1,
        }
    }

    pub fn name(self) -> String {
        const GPR: [&str; 16] = [
            "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
            "r15",
        ];
        match self.0 {
            n @ 0..16 => GPR[n as usize].to_owned(),
            n @ 16..48 => format!("xmm{}", n - 16),
            48 => "flags".to_owned(),
            n @ 49..57 => format!("k{}", n - 49),
            57 => "x87 stack".to_owned(),
            58 => "x87 control word".to_owned(),
            59 => "mxcsr".to_owned(),
            60 => "fs base".to_owned(),
            61 => "gs base".to_owned(),
            _ => "system state".to_owned(),
        }
    }

    /// The register called so: `rax`, `r8`, `xmm3`, `flags`; narrower names of general registers are not known.
    pub fn named(name: &str) -> Option<RegId> {
        (0..REGISTERS as u8).map(RegId).find(|r| r.name() == name)
    }
}

/// Flags as a mask: their bits in RFLAGS.
pub const fn flag_mask(flags: Flags) -> u64 {
    (flags.0 & (Flags::STATUS.0 | Flags::DF.0)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_agree() {
        for (name, id) in [("rax", 0), ("r15", 15), ("xmm0", 16), ("xmm15", 31), ("flags", 48), ("k1", 50)] {
            assert_eq!(RegId::named(name), Some(RegId(id)), "{name}");
            assert_eq!(RegId(id).name(), name);
        }
        assert_eq!(RegId::named("eax"), None);
    }

    #[test]
    fn every_register_has_room_for_its_bytes() {
        assert_eq!(RegId::RAX.all().count_ones(), 8);
        assert_eq!(RegId(16).all().count_ones(), 64);
        assert_eq!(RegId::FLAGS.all().count_ones(), 7);
        assert_eq!(RegId::of(Reg::Rip), None);
    }
}
