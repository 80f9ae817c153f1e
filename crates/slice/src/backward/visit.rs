//! What one executed instruction means for a backward walk: is it part of the slice, and what does it want?

use crate::decisions::Decision;
use crate::facts::Border;
use crate::graph::Why;
use crate::insn::{Insn, Mode, Place, Role, Use};
use crate::registers::RegId;
use crate::wants::{Want, Who};
use crate::window::NOTHING;

use super::{At, Omit, Touched, Walk};

/// More parts than any instruction has.
const MOST_PARTS: usize = 8;

/// The bytes of a group of eight that lies at `offset` from the beginning of an access, counted from there.
pub(super) fn shifted(mask: u64, offset: i64) -> u64 {
    match offset {
        0..64 => mask << offset,
        -7..0 => mask >> -offset,
        _ => 0,
    }
}

/// What an instruction defined and somebody wanted.
#[derive(Clone, Copy, Default)]
pub(super) struct Satisfied {
    /// Somebody did.
    pub any: bool,
    /// Which bytes of the destination, counted from its start, if they are followed one by one.
    pub bytes: u64,
    /// More bytes than that has bits for.
    pub beyond: bool,
}

/// Who wants the instruction at hand.
#[derive(Default)]
pub(super) struct By {
    /// The nearest to the criterion.
    pub nearest: Option<(Who, Why)>,
    /// All of them, if edges are kept.
    pub all: Vec<(u32, Why)>,
    pub keeps_all: bool,
}

impl By {
    #[inline(always)]
    pub fn add(&mut self, who: Who, why: Why) {
        if self.nearest.is_none_or(|(old, _)| who.distance < old.distance) {
            self.nearest = Some((who, why));
        }
        // Eight bytes of one register are one dependence.
        if self.keeps_all && self.all.last() != Some(&(who.node, why)) {
            self.all.push((who.node, why));
        }
    }

    pub fn clear(&mut self) {
        self.nearest = None;
        self.all.clear();
    }
}

impl Walk<'_> {
    /// An instruction is met: if it defined something wanted, or decided something, it is part of the slice.
    pub(super) fn visit(
        &mut self,
        insn: &Insn,
        at: &At,
        touched: &[Touched],
        decision: Option<Decision>,
        forced: bool,
    ) {
        if let Some(Border::Restore(reg)) = at.border
            && let Some(slot) = Self::restored_from(insn, reg, touched)
            && self.carry(reg, slot, (at.execution, at.insn))
        {
            return;
        }
        let decider = decision.and_then(|d| d.who);
        if at.given {
            // Whoever called the linker decides in its place.
            if let Some(d) = decision {
                self.pass_on(at.segment, d);
            }
            return self.take_as_given(insn, touched);
        }
        let mut satisfied = [Satisfied::default(); MOST_PARTS];
        self.far.clear();
        for (part, s) in insn.parts.iter().zip(&mut satisfied) {
            if part.mode == Mode::Through {
                self.pass_through(&part.defs[0].place, &part.uses);
                continue;
            }
            for def in &part.defs {
                match def.place {
                    Place::Reg(r) => self.satisfy_reg(r, def.mask, def.kills, s),
                    Place::Mem(m) => {
                        if let Some(t) = touched.get(usize::from(m)) {
                            self.satisfy_mem(t, def.kills, Some(at), s);
                        }
                    }
                }
            }
        }
        if forced {
            satisfied = [Satisfied { any: true, bytes: u64::MAX, beyond: true }; MOST_PARTS];
            self.by.add(Who::default(), Why::Criterion);
        }
        if let Some((who, d)) = decider.zip(decision) {
            self.by.add(who, if d.potential { Why::Potential } else { Why::Control });
        }
        let wanted = self.by.nearest.is_some() && (!self.options.copies_only || insn.copies || forced);
        if wanted {
            let who = self.join(insn.pc, at, None);
            if !self.is_too_far(who) {
                self.want_all(insn, &satisfied, touched, decider.is_some() || forced, who);
                self.want_decider(at.segment, who);
            }
        }
        if let Some(d) = decision.filter(|d| d.shown != u32::MAX) {
            self.show(at, d.shown, wanted);
        }
        self.by.clear();
    }

    /// A node wants what it used for what was wanted of it.
    #[inline]
    fn want_all(
        &mut self,
        insn: &Insn,
        satisfied: &[Satisfied; MOST_PARTS],
        touched: &[Touched],
        decides: bool,
        who: Who,
    ) {
        for (part, s) in insn.parts.iter().zip(satisfied).filter(|(_, s)| s.any) {
            part.uses.iter().for_each(|u| self.want_use(u, part.mode, s, touched, who));
        }
        if decides {
            let all = Satisfied { any: true, bytes: u64::MAX, beyond: true };
            insn.decides.iter().for_each(|u| self.want_use(u, Mode::Whole, &all, touched, who));
        }
    }

    pub(super) fn is_too_far(&self, who: Who) -> bool {
        self.options.depth != 0 && who.distance >= self.options.depth
    }

    #[inline]
    pub(super) fn satisfy_reg(&mut self, reg: RegId, mask: u64, kills: bool, s: &mut Satisfied) {
        if self.state.regs.any & reg.bit() == 0 {
            return;
        }
        let (first, by) = (mask.trailing_zeros().min(63), &mut self.by);
        self.state.regs.take(reg, mask, kills, |mask, who| {
            by.add(who, Why::Reg(reg));
            s.any = true;
            s.bytes |= mask >> first;
        });
    }

    pub(super) fn satisfy_mem(&mut self, t: &Touched, kills: bool, at: Option<&At>, s: &mut Satisfied) {
        if t.len == 0 || t.len <= 1 << 16 && !self.state.mem.touches(t.addr, t.len as u32) {
            return;
        }
        let mut taken = std::mem::take(&mut self.taken_mem);
        self.state.mem.take(t.addr, t.len, kills, &mut taken);
        for (w, offset) in taken.drain(..) {
            if w.token != 0 && self.found_save(&w, at) {
                continue;
            }
            let addr = t.addr.wrapping_add_signed(offset + i64::from(w.mask.trailing_zeros()));
            self.by.add(w.who, Why::Mem(addr));
            s.any = true;
            s.bytes |= shifted(w.mask, offset);
            if t.len > 64 {
                self.far.push((offset, w.mask));
                s.beyond = true;
            }
        }
        self.taken_mem = taken;
    }

    /// The slot of a restored register was written here: by its save? Otherwise who wants the register wants what was
    /// written.
    fn found_save(&mut self, w: &Want, at: Option<&At>) -> bool {
        let (reg, restore) = self.state.tokens.register(w.token);
        let Some(at) = at.filter(|at| at.border == Some(Border::Save(reg))) else { return false };
        self.state.slice.bypassed += 1;
        if let Some(restore) = restore {
            self.state.slice.passed.extend([restore, (at.execution, at.insn)]);
        }
        self.add_reg(reg, w.mask, w.who);
        true
    }

    /// An instruction restores a register; where it finds it, if it does nothing else.
    fn restored_from(insn: &Insn, reg: RegId, touched: &[Touched]) -> Option<u64> {
        let defines_only = insn.defines & !(reg.bit() | RegId::RSP.bit()) == 0;
        let from = insn.mem.iter().position(|m| m.read && m.size == 8).filter(|_| defines_only)?;
        touched.get(from).map(|t| t.addr)
    }

    /// A register is restored: what is wanted of it is wanted of the slot, until its save is found.
    #[inline]
    pub(super) fn carry(&mut self, reg: RegId, slot: u64, restore: (u32, u16)) -> bool {
        if slot & 7 != 0 || self.state.regs.any & reg.bit() == 0 || self.window.unpaired.contains(&restore) {
            return false;
        }
        let token = self.state.tokens.token(reg, restore);
        let state = &mut *self.state;
        if !self.options.edges {
            state.regs.take(reg, 0xff, true, |mask, who| state.mem.add_bytes(slot, mask as u8, who, token, false));
            return true;
        }
        let mut taken = std::mem::take(&mut self.taken);
        state.regs.take(reg, 0xff, true, |mask, who| taken.push((mask, who)));
        // A loop that uses a register and makes calls would carry every execution through every call: of those of one
        // instruction the nearest stands for all.
        let nodes = &state.slice.nodes;
        let instruction = |who: &Who| nodes.get(who.node as usize).map_or(0, |n| n.pc);
        taken.sort_unstable_by_key(|(mask, who)| (instruction(who), *mask, who.distance, who.node));
        taken.dedup_by_key(|(mask, who)| (instruction(who), *mask));
        for (mask, who) in taken.drain(..) {
            state.mem.add_bytes(slot, mask as u8, who, token, true);
        }
        self.taken = taken;
        true
    }

    /// One register is another name for a second one.
    pub(super) fn pass_through(&mut self, to: &Place, from: &[Use]) {
        let (Place::Reg(to), Some(Use { place: Place::Reg(from), .. })) = (to, from.first()) else { return };
        let mut taken = std::mem::take(&mut self.taken);
        self.state.regs.take(*to, to.all(), true, |mask, who| taken.push((mask, who)));
        for (mask, who) in taken.drain(..) {
            self.add_reg(*from, mask, who);
        }
        self.taken = taken;
    }

    // ---- wanting ----

    #[inline]
    pub(super) fn want_use(&mut self, u: &Use, mode: Mode, s: &Satisfied, touched: &[Touched], who: Who) {
        let by_bytes = matches!(mode, Mode::Bytes | Mode::Signed) && u.role == Role::Value;
        match u.place {
            Place::Reg(reg) => {
                let mut mask = u.mask;
                if by_bytes && reg.has_bytes() && !s.beyond {
                    let first = u.mask.trailing_zeros().min(63);
                    mask = (s.bytes << first) & u.mask;
                    let width = u.mask.count_ones();
                    if mode == Mode::Signed && s.bytes.checked_shr(width).unwrap_or(0) != 0 {
                        mask |= 1 << (first + width - 1);
                    }
                }
                self.want_reg(reg, mask, who);
            }
            Place::Mem(m) => {
                let Some(t) = touched.get(usize::from(m)).copied().filter(|t| t.len != 0) else { return };
                if by_bytes && t.len > 64 && !self.far.is_empty() {
                    return self.want_far(t, who);
                }
                if !by_bytes || s.beyond || t.len > 64 {
                    return self.want_mem(t.addr, t.len, who);
                }
                let mut bytes = s.bytes;
                if t.len < 64 {
                    let signed = mode == Mode::Signed && bytes >> t.len != 0;
                    bytes &= (1 << t.len) - 1;
                    bytes |= u64::from(signed) << (t.len - 1);
                }
                while bytes != 0 {
                    let start = bytes.trailing_zeros();
                    let len = (bytes >> start).trailing_ones();
                    self.want_mem(t.addr + u64::from(start), u64::from(len), who);
                    bytes &= !((u64::MAX >> (64 - len)) << start);
                }
            }
        }
    }

    /// Bytes of a long move: those at the places that are wanted of its destination.
    fn want_far(&mut self, from: Touched, who: Who) {
        let far = std::mem::take(&mut self.far);
        for (offset, mask) in &far {
            for byte in (0..8).filter(|b| mask >> b & 1 != 0) {
                let at = offset + byte;
                if (0..from.len as i64).contains(&at) {
                    self.want_mem(from.addr.wrapping_add_signed(at), 1, who);
                }
            }
        }
        self.far = far;
    }

    #[inline]
    pub(super) fn want_reg(&mut self, reg: RegId, mask: u64, who: Who) {
        if self.options.prune_registers.contains(&reg) {
            return;
        }
        let kind = if reg == RegId::FLAGS { Omit::Flags } else { Omit::Registers };
        if self.options.omit == Some(kind) && who.distance != 0 {
            return;
        }
        self.state.slice.uses += 1;
        self.add_reg(reg, mask, who);
    }

    #[inline]
    pub(super) fn add_reg(&mut self, reg: RegId, mask: u64, who: Who) {
        // The stack pointer is not followed.
        if reg != RegId::RSP {
            self.state.regs.add(reg, mask, who, self.options.edges);
        }
    }

    #[inline]
    pub(super) fn want_mem(&mut self, addr: u64, len: u64, who: Who) {
        let pruned = |(at, n): &(u64, u64)| addr < at.saturating_add(*n) && *at < addr.saturating_add(len);
        if self.options.prune_memory.iter().any(pruned) {
            return;
        }
        if self.options.omit == Some(Omit::Memory) && who.distance != 0 {
            return;
        }
        self.state.slice.uses += 1;
        self.state.mem.add(addr, len, who, 0, self.options.edges);
    }

    /// Whatever decided that this segment ran is wanted.
    #[inline]
    pub(super) fn want_decider(&mut self, segment: u32, who: Who) {
        let o = self.options;
        if o.data_only || o.copies_only || o.omit == Some(Omit::Control) {
            return;
        }
        self.want_control(self.window.parents.at(segment), Some(who), u32::MAX);
    }

    /// The end of a segment is wanted. Whole blocks want the same one: it is passed on when another one is.
    #[inline]
    pub(super) fn want_control(&mut self, segment: u32, who: Option<Who>, shown: u32) {
        if segment == NOTHING {
            return;
        }
        let new = Decision { segment, who, shown, potential: false };
        if self.pending.is_none_or(|p| p.segment != segment) {
            self.want_pending();
            self.pending = Some(new);
        } else if let Some(p) = &mut self.pending {
            p.merge(&new);
        }
    }

    #[inline]
    pub(super) fn want_pending(&mut self) {
        if let Some(p) = self.pending.take() {
            self.state.slice.uses += u64::from(p.who.is_some());
            match self.window.earliers.of(p.segment) {
                Some(earlier) => self.state.before.add(earlier, p, |old, new| old.merge(&new)),
                None => self.state.decisions.want(p),
            }
        }
    }

    /// What decided about a segment decides in its place.
    fn pass_on(&mut self, segment: u32, decision: Decision) {
        self.want_control(self.window.parents.at(segment), decision.who, decision.shown);
    }

    /// Library code at this distance is shown here, or at the call that led here. `counted`: so is this execution.
    #[inline]
    pub(super) fn show(&mut self, at: &At, distance: u32, counted: bool) {
        if self.window.is_own(at.site) {
            self.count(at.site, distance, u32::from(!counted));
        } else {
            self.want_control(self.window.parents.at(at.segment), None, distance);
        }
    }
}
