//! System calls on the way back: what they answered and delivered comes from what they were given.

use super::visit::Satisfied;
use super::{At, Touched, Walk};
use crate::graph::{Delivered, Why};
use crate::registers::RegId;
use crate::syscalls;

impl Walk<'_> {
    pub(super) fn syscall(&mut self, pc: u64, (execution, insn, segment): (u32, u16, u32), call: usize) {
        let (mut s, mut by) = (Satisfied::default(), Vec::new());
        self.satisfy_reg(RegId::RAX, 0xff, true, &mut s, &mut by);
        // These hold the place of the call and the flags.
        let mut clobbered = Vec::new();
        self.satisfy_reg(RegId::RCX, 0xff, true, &mut s, &mut clobbered);
        self.satisfy_reg(RegId::R11, 0xff, true, &mut s, &mut clobbered);
        let window = self.window;
        let effects = window.calls.get(call).and_then(|c| c.as_ref());
        if let Some((from, to, len)) = effects.and_then(syscalls::moves) {
            self.move_wants(from, to, len);
        }
        let mut delivered = Vec::new();
        for (addr, len) in effects.iter().flat_map(|e| e.writes.iter().copied()) {
            self.deliver(&Touched { addr, len }, &mut delivered, &mut by);
        }
        if let Some((addr, len)) = effects.and_then(syscalls::maps) {
            self.satisfy_mem(&Touched { addr, len }, true, None, &mut s, &mut by);
        }
        let sent = effects.and_then(|e| self.sent.remove(&e.record));
        by.extend(sent.iter().map(|_| (0, Why::Criterion)));
        // A handler ran because of a signal that this call sent.
        by.extend(self.decided(segment).map(|user| (user, Why::Control)));
        if by.is_empty() {
            return;
        }
        let at = At { execution, insn, segment, border: None, given: false };
        let node = self.join(pc, &at, &by, Some(call as u32));
        if let Some(sent) = &sent
            && by.len() == 1
        {
            self.slice.nodes[node as usize].distance = sent.distance + 1;
        }
        self.slice.delivered.extend(delivered.into_iter().map(|(addr, len)| Delivered { node, addr, len }));
        if self.is_too_far(node) {
            return;
        }
        for (addr, len) in sent.iter().flat_map(|s| s.memory.iter()) {
            self.want_mem(*addr, *len, node);
        }
        let nr = effects.map_or(u64::MAX, |e| e.nr);
        for reg in syscalls::argument_registers(nr) {
            self.want_reg(*reg, 0xff, node);
        }
        self.want_control(self.window.parents[segment as usize], node);
    }

    /// A call wrote to memory: which of its bytes were wanted?
    fn deliver(&mut self, t: &Touched, delivered: &mut Vec<(u64, u64)>, by: &mut Vec<(u32, Why)>) {
        let mut s = Satisfied::default();
        self.far.clear();
        self.satisfy_mem(t, true, None, &mut s, by);
        let near = (!s.beyond && s.any).then_some((0, s.bytes));
        let far = self.far.drain(..).filter(|_| s.beyond);
        for (offset, mut bytes) in far.chain(near) {
            while bytes != 0 {
                let start = bytes.trailing_zeros();
                let len = (bytes >> start).trailing_ones();
                delivered.push((t.addr.wrapping_add_signed(offset + i64::from(start)), u64::from(len)));
                bytes &= !((u64::MAX >> (64 - len)) << start);
            }
        }
    }

    /// Memory came from elsewhere as a whole.
    fn move_wants(&mut self, from: u64, to: u64, len: u64) {
        let mut taken = std::mem::take(&mut self.taken_mem);
        self.mem.take(to, len, true, &mut taken);
        let nodes = &self.slice.nodes;
        let distance = |n: u32| nodes[n as usize].distance;
        for (w, offset) in taken.drain(..) {
            for byte in (0..8).filter(|b| w.mask >> b & 1 != 0) {
                let at = from.wrapping_add_signed(offset + byte);
                self.mem.add(at, 1, w.node, w.token, self.options.edges, &distance);
            }
        }
        self.taken_mem = taken;
    }
}
