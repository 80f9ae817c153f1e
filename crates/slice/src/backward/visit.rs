//! What one executed instruction means for a backward walk: is it part of the slice, and what does it want?

use crate::facts::Border;
use crate::graph::{Edge, Input, Node, Slice, Why};
use crate::insn::{Insn, Mode, Place, Role, Use};
use crate::registers::RegId;
use crate::wants::Want;
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

impl Walk<'_> {
    /// An instruction is met: if it defined something wanted, or decided something, it is part of the slice.
    pub(super) fn visit(&mut self, insn: &Insn, at: &At, touched: &[Touched], decider: Option<u32>, forced: bool) {
        if let Some(Border::Restore(reg)) = at.border
            && self.carry(insn, at, reg, touched)
        {
            return;
        }
        if at.given {
            // Whoever called the linker decides in its place.
            if let Some(user) = decider {
                self.want_control(self.window.parents[at.segment as usize], user);
            }
            return self.take_as_given(insn, touched);
        }
        let mut by = std::mem::take(&mut self.by);
        let mut satisfied = [Satisfied::default(); MOST_PARTS];
        self.far.clear();
        for (part, s) in insn.parts.iter().zip(&mut satisfied) {
            if part.mode == Mode::Through {
                self.pass_through(&part.defs[0].place, &part.uses);
                continue;
            }
            for def in &part.defs {
                match def.place {
                    Place::Reg(r) => self.satisfy_reg(r, def.mask, def.kills, s, &mut by),
                    Place::Mem(m) => {
                        if let Some(t) = touched.get(usize::from(m)) {
                            self.satisfy_mem(t, def.kills, Some(at), s, &mut by);
                        }
                    }
                }
            }
        }
        if forced {
            satisfied = [Satisfied { any: true, bytes: u64::MAX, beyond: true }; MOST_PARTS];
            by.push((0, Why::Criterion));
        }
        if let Some(user) = decider {
            let kind = if self.potential.remove(&at.segment) { Why::Potential } else { Why::Control };
            by.push((user, kind));
        }
        if !by.is_empty() && (!self.options.copies_only || insn.copies || forced) {
            let node = self.join(insn.pc, at, &by, None);
            if !self.is_too_far(node) {
                self.want_all(insn, &satisfied, touched, decider.is_some() || forced, node);
                self.want_control(self.window.parents[at.segment as usize], node);
            }
        }
        by.clear();
        self.by = by;
    }

    /// A node wants what it used for what was wanted of it.
    fn want_all(
        &mut self,
        insn: &Insn,
        satisfied: &[Satisfied; MOST_PARTS],
        touched: &[Touched],
        decides: bool,
        node: u32,
    ) {
        for (part, s) in insn.parts.iter().zip(satisfied).filter(|(_, s)| s.any) {
            part.uses.iter().for_each(|u| self.want_use(u, part.mode, s, touched, node));
        }
        if decides {
            let all = Satisfied { any: true, bytes: u64::MAX, beyond: true };
            insn.decides.iter().for_each(|u| self.want_use(u, Mode::Whole, &all, touched, node));
        }
    }

    pub(super) fn is_too_far(&self, node: u32) -> bool {
        self.options.depth != 0 && self.slice.nodes[node as usize].distance >= self.options.depth
    }

    /// Adds a node that these want.
    pub(super) fn join(&mut self, pc: u64, at: &At, by: &[(u32, Why)], call: Option<u32>) -> u32 {
        let nodes = &self.slice.nodes;
        let nearest = by.iter().min_by_key(|(user, _)| nodes[*user as usize].distance);
        let (via, why) = nearest.copied().unwrap_or((0, Why::Criterion));
        let distance = nodes[via as usize].distance + 1;
        let node = nodes.len() as u32;
        let (execution, insn) = (at.execution, at.insn);
        let segment = at.segment;
        self.slice.nodes.push(Node { pc, execution, insn, segment, thread: self.thread, distance, via, why, call });
        if self.options.edges {
            let mut last = None;
            for (user, why) in by {
                // Eight bytes of one register are one dependence.
                if last != Some((*user, *why)) {
                    self.slice.edges.push(Edge { user: *user, maker: node, why: *why });
                }
                last = Some((*user, *why));
            }
        }
        node
    }

    pub(super) fn satisfy_reg(
        &mut self,
        reg: RegId,
        mask: u64,
        kills: bool,
        s: &mut Satisfied,
        by: &mut Vec<(u32, Why)>,
    ) {
        if self.regs.any & reg.bit() == 0 {
            return;
        }
        let mut taken = std::mem::take(&mut self.taken);
        self.regs.take(reg, mask, kills, &mut taken);
        let first = mask.trailing_zeros();
        for w in taken.drain(..) {
            by.push((w.node, Why::Reg(reg)));
            s.any = true;
            s.bytes |= w.mask >> first.min(63);
        }
        self.taken = taken;
    }

    pub(super) fn satisfy_mem(
        &mut self,
        t: &Touched,
        kills: bool,
        at: Option<&At>,
        s: &mut Satisfied,
        by: &mut Vec<(u32, Why)>,
    ) {
        if t.len == 0 || t.len <= 1 << 16 && !self.mem.touches(t.addr, t.len as u32) {
            return;
        }
        let mut taken = std::mem::take(&mut self.taken_mem);
        self.mem.take(t.addr, t.len, kills, &mut taken);
        for (w, offset) in taken.drain(..) {
            if w.token != 0 && self.found_save(&w, at) {
                continue;
            }
            let addr = t.addr.wrapping_add_signed(offset + i64::from(w.mask.trailing_zeros()));
            by.push((w.node, Why::Mem(addr)));
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
        let (reg, restore) = self.tokens[w.token as usize - 1];
        let Some(at) = at.filter(|at| at.border == Some(Border::Save(reg))) else { return false };
        self.slice.bypassed += 1;
        self.slice.passed.extend([restore, (at.execution, at.insn)]);
        self.add_reg(reg, Want { mask: w.mask, node: w.node, token: 0 });
        true
    }

    /// A register is restored: what is wanted of it is wanted of the slot, until its save is found.
    fn carry(&mut self, insn: &Insn, at: &At, reg: RegId, touched: &[Touched]) -> bool {
        let from = insn.mem.iter().position(|m| m.read && m.size == 8).and_then(|n| touched.get(n));
        let Some(slot) = from.copied() else { return false };
        let restore = (at.execution, at.insn);
        if self.window.unpaired.contains(&restore) || slot.addr & 7 != 0 || self.regs.any & reg.bit() == 0 {
            return false;
        }
        let defines_only = |r: RegId| insn.defines & !(r.bit() | RegId::RSP.bit()) == 0;
        if !defines_only(reg) {
            return false;
        }
        let mut taken = std::mem::take(&mut self.taken);
        self.regs.take(reg, 0xff, true, &mut taken);
        if !taken.is_empty() {
            self.tokens.push((reg, restore));
        }
        let token = self.tokens.len() as u32;
        let nodes = &self.slice.nodes;
        let distance = |n: u32| nodes[n as usize].distance;
        for w in taken.drain(..) {
            for byte in (0..8).filter(|b| w.mask >> b & 1 != 0) {
                self.mem.add(slot.addr + byte, 1, w.node, token, self.options.edges, &distance);
            }
        }
        self.taken = taken;
        true
    }

    /// One register is another name for a second one.
    pub(super) fn pass_through(&mut self, to: &Place, from: &[Use]) {
        let (Place::Reg(to), Some(Use { place: Place::Reg(from), .. })) = (to, from.first()) else { return };
        let mut taken = std::mem::take(&mut self.taken);
        self.regs.take(*to, to.all(), true, &mut taken);
        for w in taken.drain(..) {
            self.add_reg(*from, w);
        }
        self.taken = taken;
    }

    // ---- wanting ----

    pub(super) fn want_use(&mut self, u: &Use, mode: Mode, s: &Satisfied, touched: &[Touched], node: u32) {
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
                self.want_reg(reg, mask, node);
            }
            Place::Mem(m) => {
                let Some(t) = touched.get(usize::from(m)).copied().filter(|t| t.len != 0) else { return };
                if by_bytes && t.len > 64 && !self.far.is_empty() {
                    return self.want_far(t, node);
                }
                if !by_bytes || s.beyond || t.len > 64 {
                    return self.want_mem(t.addr, t.len, node);
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
                    self.want_mem(t.addr + u64::from(start), u64::from(len), node);
                    bytes &= !((u64::MAX >> (64 - len)) << start);
                }
            }
        }
    }

    /// Bytes of a long move: those at the places that are wanted of its destination.
    fn want_far(&mut self, from: Touched, node: u32) {
        let far = std::mem::take(&mut self.far);
        for (offset, mask) in &far {
            for byte in (0..8).filter(|b| mask >> b & 1 != 0) {
                let at = offset + byte;
                if (0..from.len as i64).contains(&at) {
                    self.want_mem(from.addr.wrapping_add_signed(at), 1, node);
                }
            }
        }
        self.far = far;
    }

    pub(super) fn want_reg(&mut self, reg: RegId, mask: u64, node: u32) {
        // The stack pointer is not followed.
        let kind = if reg == RegId::FLAGS { Omit::Flags } else { Omit::Registers };
        if reg != RegId::RSP
            && !self.options.prune_registers.contains(&reg)
            && (self.options.omit != Some(kind) || node == 0)
        {
            self.add_reg(reg, Want { mask, node, token: 0 });
        }
    }

    pub(super) fn add_reg(&mut self, reg: RegId, want: Want) {
        if reg == RegId::RSP {
            return;
        }
        let nodes = &self.slice.nodes;
        self.regs.add(reg, want, self.options.edges, &|n| nodes[n as usize].distance);
    }

    pub(super) fn want_mem(&mut self, addr: u64, len: u64, node: u32) {
        let pruned = |(at, n): &(u64, u64)| addr < at.saturating_add(*n) && *at < addr.saturating_add(len);
        if self.options.prune_memory.iter().any(pruned) || self.options.omit == Some(Omit::Memory) && node != 0 {
            return;
        }
        let nodes = &self.slice.nodes;
        self.mem.add(addr, len, node, 0, self.options.edges, &|n| nodes[n as usize].distance);
    }

    pub(super) fn want_control(&mut self, segment: u32, node: u32) {
        let o = self.options;
        if segment == NOTHING || o.data_only || o.copies_only || o.omit == Some(Omit::Control) {
            return;
        }
        self.control_bits[(segment / 64) as usize] |= 1 << (segment % 64);
        let nodes = &self.slice.nodes;
        let nearer = |old: u32| nodes[node as usize].distance < nodes[old as usize].distance;
        let slot = self.controls.entry(segment).or_insert(node);
        if nearer(*slot) {
            *slot = node;
        }
    }

    pub(super) fn finish(self) -> Slice {
        let Walk { mut slice, regs, others, mem, thread, .. } = self;
        for (thread, regs) in std::iter::once((thread, regs)).chain(others) {
            slice.inputs.extend(regs.rest().map(|(reg, w)| Input::Reg { thread, reg, node: w.node }));
        }
        slice.inputs.extend(mem.rest().into_iter().map(|(addr, w)| Input::Mem { addr, mask: w.mask, node: w.node }));
        slice
    }
}
