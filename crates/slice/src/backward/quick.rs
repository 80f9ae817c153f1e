//! Simple instructions on the way back, where no nodes are kept: the same as [`super::visit`], in fewer steps.

use crate::decisions::Decision;
use crate::facts::Border;
use crate::quick::Quick;
use crate::registers::RegId;
use crate::wants::Who;

use super::visit::shifted;
use super::{At, Walk};

impl Walk<'_> {
    /// Where no option asks for more than [`Walk::quick`] does.
    pub(super) fn is_quick(&self) -> bool {
        let o = self.options;
        let plain = o.omit.is_none() && o.prune_memory.is_empty() && o.prune_registers.is_empty();
        o.only_sites && !o.edges && !o.relevant && !o.copies_only && plain
    }

    /// An instruction of a block is met, whose accesses begin at `address`: if it defined something wanted, or decided something, it is part of the slice.
    #[inline(always)]
    pub(super) fn quick(&mut self, quick: &Quick, at: &At, address: usize, decision: Option<Decision>) {
        let addresses = &self.window.addresses;
        if let Some(reg) = quick.restores
            && let Some(slot) = quick.load.number()
            && self.carry(reg, addresses.at(address + slot), (at.execution, at.insn))
        {
            return;
        }
        let (mut nearest, mut bytes, mut defined) = (u32::MAX, 0u64, false);
        for def in quick.defs() {
            let first = def.mask.trailing_zeros();
            self.state.regs.take(def.reg, u64::from(def.mask), def.exact, |mask, who| {
                nearest = nearest.min(who.distance);
                bytes |= mask >> first;
                defined = true;
            });
        }
        if let Some(store) = quick.store.number() {
            let (addr, size) = (addresses.at(address + store), u64::from(quick.store.size));
            if self.state.mem.touches(addr, size as u32) {
                let saved = match at.border {
                    Some(Border::Save(reg)) => u32::from(reg.0) + 1,
                    _ => 0,
                };
                let state = &mut *self.state;
                state.mem.take_each(addr, size, quick.store.exact, |w, offset| {
                    if saved != 0 && w.token == saved {
                        state.slice.bypassed += 1;
                        let reg = RegId(saved as u8 - 1);
                        state.regs.add(reg, w.mask, w.who, false);
                        return;
                    }
                    nearest = nearest.min(w.who.distance);
                    bytes |= shifted(w.mask, offset);
                    defined = true;
                });
            }
        }
        let decides = decision.and_then(|d| d.who);
        if let Some(who) = decides {
            nearest = nearest.min(who.distance);
        }
        if nearest != u32::MAX {
            self.want_quickly(quick, at, address, nearest + 1, defined.then_some(bytes), decides.is_some());
        }
        if let Some(d) = decision.filter(|d| d.shown != u32::MAX) {
            self.show(at, d.shown, nearest != u32::MAX);
        }
    }

    /// It is part of the slice, at this distance, for these bytes that it defined and as one that decided.
    #[inline(always)]
    fn want_quickly(
        &mut self,
        quick: &Quick,
        at: &At,
        address: usize,
        distance: u32,
        bytes: Option<u64>,
        decides: bool,
    ) {
        let who = Who { node: 0, distance };
        self.state.slice.size += 1;
        self.count(at.site, distance, 1);
        if !self.window.is_own(at.site) {
            self.show(at, distance, true);
        }
        if self.is_too_far(who) {
            return;
        }
        if let Some(bytes) = bytes {
            for u in quick.uses() {
                let mut mask = u64::from(u.mask);
                if u.exact {
                    let (first, width) = (mask.trailing_zeros(), mask.count_ones());
                    let signed = quick.signed && bytes.checked_shr(width).unwrap_or(0) != 0;
                    mask = (bytes << first) & mask | u64::from(signed) << (first + width - 1);
                }
                self.state.regs.add(u.reg, mask, who, false);
            }
            self.state.slice.uses += quick.uses().len() as u64;
            if let Some(load) = quick.load.number().filter(|_| !quick.decides_by_load) {
                self.load_quickly(quick, self.window.addresses.at(address + load), bytes, who);
            }
        }
        if decides {
            for u in quick.decides() {
                self.state.regs.add(u.reg, u64::from(u.mask), who, false);
            }
            self.state.slice.uses += quick.decides().len() as u64;
            if let Some(load) = quick.load.number().filter(|_| quick.decides_by_load) {
                self.state.slice.uses += 1;
                let addr = self.window.addresses.at(address + load);
                self.state.mem.add(addr, u64::from(quick.load.size), who, 0, false);
            }
        }
        self.want_decider(at.segment, who);
    }

    #[inline(always)]
    fn load_quickly(&mut self, quick: &Quick, addr: u64, bytes: u64, who: Who) {
        let size = u64::from(quick.load.size);
        let all = (1u64 << size) - 1;
        let mut wanted = all;
        if quick.load.exact {
            let signed = quick.signed && bytes >> size != 0;
            wanted = bytes & all | u64::from(signed) << (size - 1);
        }
        self.state.slice.uses += 1;
        if wanted == all {
            return self.state.mem.add(addr, size, who, 0, false);
        }
        for byte in (0..size).filter(|b| wanted >> b & 1 != 0) {
            self.state.mem.add(addr + byte, 1, who, 0, false);
        }
    }
}
