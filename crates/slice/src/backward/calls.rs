//! System calls on the way back: what they answered and delivered comes from what they were given.

use super::count::NO_SITE;
use super::visit::Satisfied;
use super::{At, Touched, Walk};
use crate::graph::{Called, Delivered, Why};
use crate::registers::RegId;
use crate::syscalls;
use crate::wants::Who;
use crate::window::CallEffects;

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
        let mut delivered = std::mem::take(&mut self.delivered);
        let mut before = 0;
        for &(addr, len) in effects.iter().flat_map(|e| &e.writes) {
            self.deliver(&Touched { addr, len }, before, &mut delivered);
            before += len;
        }
        if let Some((addr, len)) = effects.and_then(syscalls::maps) {
            self.satisfy_mem(&Touched { addr, len }, true, None, &mut s);
        }
        let sent = effects.and_then(|e| self.state.sent.remove(&e.record));
        if let Some(sent) = &sent {
            self.by.add(Who { node: 0, distance: sent.distance }, Why::Criterion);
        }
        let at = At { execution, insn, segment, site: NO_SITE, border: None, given: false };
        // A handler ran because of a signal that this call sent.
        let decision = self.decided(segment);
        if let Some(who) = decision.and_then(|d| d.who) {
            self.by.add(who, Why::Control);
        }
        if self.by.nearest.is_some() {
            let who = self.join(pc, &at, Some(call as u32));
            self.note_call(effects, &delivered, who);
            if !self.is_too_far(who) {
                let nr = effects.map_or(u64::MAX, |e| e.nr);
                for reg in syscalls::argument_registers(nr) {
                    self.want_reg(*reg, 0xff, who);
                }
                for (addr, len) in sent.iter().flat_map(|s| &s.memory) {
                    self.want_mem(*addr, *len, who);
                }
                self.want_decider(segment, who);
            }
        }
        if let Some(d) = decision.filter(|d| d.shown != u32::MAX && !window.is_own(NO_SITE)) {
            self.show(&at, d.shown, true);
        }
        delivered.clear();
        self.delivered = delivered;
        self.by.clear();
        self.want_pending();
    }

    /// Keeps what is told about a call of the slice, and what it delivered: offsets and lengths.
    fn note_call(&mut self, effects: Option<&CallEffects>, delivered: &[(u64, u64)], who: Who) {
        let slice = &mut self.state.slice;
        slice.calls.push(Called { nr: effects.map_or(u64::MAX, |e| e.nr), record: effects.map(|e| e.record) });
        let Some(record) = effects.map(|e| e.record) else { return };
        let Who { node, distance } = who;
        let ranges = delivered.iter().map(|&(offset, len)| Delivered { record, offset, len, node, distance });
        slice.delivered.extend(ranges);
    }

    /// A call wrote to memory, after so many bytes elsewhere: which of its bytes were wanted?
    fn deliver(&mut self, t: &Touched, before: u64, delivered: &mut Vec<(u64, u64)>) {
        let mut s = Satisfied::default();
        self.far.clear();
        self.satisfy_mem(t, true, None, &mut s);
        let near = (!s.beyond && s.any).then_some((0, s.bytes));
        let far = self.far.drain(..).filter(|_| s.beyond);
        for (offset, mut bytes) in far.chain(near) {
            while bytes != 0 {
                let start = bytes.trailing_zeros();
                let len = (bytes >> start).trailing_ones();
                let at = before.wrapping_add_signed(offset + i64::from(start));
                match delivered.last_mut() {
                    // Long stretches come in groups of eight bytes.
                    Some((first, known)) if *first + *known == at => *known += u64::from(len),
                    _ => delivered.push((at, u64::from(len))),
                }
                bytes &= !((u64::MAX >> (64 - len)) << start);
            }
        }
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
