//! Simple instructions in a few words: most that run define general registers and flags from such, with at most one load
//! and one store of eight bytes. A walk that keeps no nodes reads only this of them.
//!
//! Guarantee: it says the same as [`crate::insn::Insn::parts`]; what does not fit is left to them.

use std::ops::Range;

use crate::facts::Border;
use crate::insn::{Insn, Mode, Place, Role, Use};
use crate::registers::RegId;

const DEFS: usize = 2;
const USES: usize = 4;
/// No such access.
const NONE: u16 = u16::MAX;

/// A register and which of its bytes, or which flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bytes {
    pub reg: RegId,
    /// Of a definition: the old bytes are gone. Of a use: only bytes that correspond to wanted ones are used.
    pub exact: bool,
    pub mask: u16,
}

const NO_BYTES: Bytes = Bytes { reg: RegId(0), exact: false, mask: 0 };

/// One access, by its number in the block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Access {
    number: u16,
    pub size: u8,
    /// As for [`Bytes`].
    pub exact: bool,
}

const NO_ACCESS: Access = Access { number: NONE, size: 0, exact: false };

impl Access {
    #[inline(always)]
    pub fn number(&self) -> Option<usize> {
        (self.number != NONE).then_some(usize::from(self.number))
    }
}

/// One instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Quick {
    defs: [Bytes; DEFS],
    uses: [Bytes; USES],
    decides: [Bytes; DEFS],
    /// How many of each there are.
    counts: (u8, u8, u8),
    pub load: Access,
    pub store: Access,
    /// The load is what a transfer of control depends on.
    pub decides_by_load: bool,
    /// Beyond its end, a value is extended by its sign.
    pub signed: bool,
    pub copies: bool,
    /// It gives a caller its register back, from the load.
    pub restores: Option<RegId>,
}

impl Quick {
    #[inline(always)]
    pub fn defs(&self) -> &[Bytes] {
        &self.defs[..usize::from(self.counts.0)]
    }

    #[inline(always)]
    pub fn uses(&self) -> &[Bytes] {
        &self.uses[..usize::from(self.counts.1)]
    }

    #[inline(always)]
    pub fn decides(&self) -> &[Bytes] {
        &self.decides[..usize::from(self.counts.2)]
    }

    /// The instruction, whose accesses have these numbers in the block, if it is simple.
    pub fn new(insn: &Insn, accesses: Range<usize>, border: Option<Border>) -> Option<Quick> {
        if insn.state.is_some() {
            return None;
        }
        let mut quick = Quick {
            defs: [NO_BYTES; DEFS],
            uses: [NO_BYTES; USES],
            decides: [NO_BYTES; DEFS],
            counts: (0, 0, 0),
            load: NO_ACCESS,
            store: NO_ACCESS,
            decides_by_load: false,
            signed: false,
            copies: insn.copies,
            restores: None,
        };
        let access = |m: u8, exact: bool| {
            let shape = insn.mem.get(usize::from(m)).filter(|s| (1..=8).contains(&s.size) && !s.conditional)?;
            let number = u16::try_from(accesses.start + usize::from(m)).ok().filter(|n| *n != NONE)?;
            Some(Access { number, size: shape.size as u8, exact })
        };
        // What only moves the stack pointer is never wanted.
        let is_stack = |p: &&crate::insn::Part| p.defs.iter().all(|d| d.place == Place::Reg(RegId::RSP));
        let mut parts = insn.parts.iter().filter(|p| !is_stack(p));
        if let Some(part) = parts.next() {
            if part.mode == Mode::Through || parts.next().is_some() {
                return None;
            }
            quick.signed = part.mode == Mode::Signed;
            let by_bytes = matches!(part.mode, Mode::Bytes | Mode::Signed);
            for def in &part.defs {
                match def.place {
                    Place::Reg(RegId::RSP) => {}
                    Place::Reg(reg) => push(&mut quick.defs, &mut quick.counts.0, bytes(reg, def.mask, def.kills)?)?,
                    Place::Mem(m) if quick.store == NO_ACCESS => quick.store = access(m, def.kills)?,
                    Place::Mem(_) => return None,
                }
            }
            for u in &part.uses {
                let exact = by_bytes && u.role == Role::Value;
                match u.place {
                    Place::Reg(RegId::RSP) => {}
                    Place::Reg(reg) => {
                        push(&mut quick.uses, &mut quick.counts.1, bytes(reg, u.mask, exact && reg.has_bytes())?)?;
                    }
                    Place::Mem(m) if quick.load == NO_ACCESS => quick.load = access(m, exact)?,
                    Place::Mem(_) => return None,
                }
            }
        }
        for u in &insn.decides {
            quick.decide(u, access)?;
        }
        if let Some(Border::Restore(reg)) = border {
            let from = insn.mem.iter().position(|m| m.read && m.size == 8)? as u8;
            let defines_only = insn.defines & !(reg.bit() | RegId::RSP.bit()) == 0;
            (quick.load.number == access(from, true)?.number).then_some(())?;
            quick.restores = defines_only.then_some(reg);
        }
        Some(quick)
    }

    fn decide(&mut self, u: &Use, access: impl Fn(u8, bool) -> Option<Access>) -> Option<()> {
        match u.place {
            Place::Reg(RegId::RSP) => Some(()),
            Place::Reg(reg) => push(&mut self.decides, &mut self.counts.2, bytes(reg, u.mask, false)?),
            Place::Mem(m) if self.load == NO_ACCESS => {
                (self.load, self.decides_by_load) = (access(m, false)?, true);
                Some(())
            }
            Place::Mem(_) => None,
        }
    }
}

fn bytes(reg: RegId, mask: u64, exact: bool) -> Option<Bytes> {
    let simple = reg.is_gpr() || reg == RegId::FLAGS;
    let mask = u16::try_from(mask).ok().filter(|_| simple)?;
    Some(Bytes { reg, exact, mask })
}

fn push<const N: usize>(list: &mut [Bytes; N], count: &mut u8, new: Bytes) -> Option<()> {
    *list.get_mut(usize::from(*count))? = new;
    *count += 1;
    Some(())
}
