//! System calls on the way back: what they answered and delivered comes from what they were given.

use super::count::NO_SITE;
use super::visit::Satisfied;
use super::{At, Touched, Walk};
use crate::graph::Why;
use crate::registers::RegId;
use crate::syscalls;

impl Walk<'_> {
    pub(super) fn syscall(&mut self, pc: u64, (execution, insn, segment): (u32, u16, u32), call: usize) {
        let mut s = Satisfied::default();
        // These hold the place of the call and the flags.
        for reg in [RegId::RCX, RegId::R11] {
            self.state.regs.take(reg, 0xff, true, |_, _| {});
        }
        self.satisfy_reg(RegId::RAX, 0xff, true, &mut s);
        let window = self.window;
        let effects = window.calls.get(call).and_then(|c| c.as_ref());
        if let Some((from, to, len)) = effects.and_then(syscalls::moves) {
            self.move_wants(from, to, len);
        }
        for (addr, len) in effects.iter().flat_map(|e| e.writes.iter().copied().chain(syscalls::maps(e))) {
            self.satisfy_mem(&Touched { addr, len }, true, None, &mut s);
        }
        let at = At { execution, insn, segment, site: NO_SITE, border: None, given: false };
        // A handler ran because of a signal that this call sent.
        let decision = self.decided(segment);
        if let Some(who) = decision.and_then(|d| d.who) {
            self.by.add(who, Why::Control);
        }
        if self.by.nearest.is_some() {
            let nr = effects.map_or(u64::MAX, |e| e.nr);
            let who = self.join(pc, &at, Some(call as u32));
            *self.state.slice.calls.entry(nr).or_default() += 1;
            if !self.is_too_far(who) {
                for reg in syscalls::argument_registers(nr) {
                    self.want_reg(*reg, 0xff, who);
                }
                for (addr, len) in effects.iter().flat_map(|e| syscalls::reads(e)) {
                    self.want_mem(addr, len, who);
                }
                self.want_decider(segment, who);
            }
        }
        if let Some(d) = decision.filter(|d| d.shown != u32::MAX && !window.is_own(NO_SITE)) {
            self.show(&at, d.shown, true);
        }
        self.by.clear();
        self.want_pending();
    }

    /// Memory came from elsewhere as a whole.
    fn move_wants(&mut self, from: u64, to: u64, len: u64) {
        let mut taken = std::mem::take(&mut self.taken_mem);
        self.state.mem.take(to, len, true, &mut taken);
        for (w, offset) in taken.drain(..) {
            for byte in (0..8).filter(|b| w.mask >> b & 1 != 0) {
                let at = from.wrapping_add_signed(offset + byte);
                self.state.mem.add(at, 1, w.who, w.token, self.options.edges);
            }
        }
        self.taken_mem = taken;
    }
}
