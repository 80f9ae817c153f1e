//! The dynamic linker on the way back: what it makes is given, what it only keeps for its callers goes on to where it
//! came from.

use super::visit::{Satisfied, shifted};
use super::{Touched, Walk};
use crate::insn::{Def, Insn, Mode, Place, Role, StateMove};
use crate::registers::RegId;
use crate::wants::Who;

impl Walk<'_> {
    /// An instruction of the dynamic linker: what it computes is given, what it only moves (arguments of the call that it
    /// binds) goes on to where it came from.
    pub(super) fn take_as_given(&mut self, insn: &Insn, touched: &[Touched]) {
        match insn.state {
            Some(StateMove::Restore) => return self.lay_state_aside(),
            Some(StateMove::Save) => return self.take_state_up(),
            None => {}
        }
        for part in &insn.parts {
            if part.mode == Mode::Through {
                self.pass_through(&part.defs[0].place, &part.uses);
                continue;
            }
            let follows = insn.copies && part.mode == Mode::Bytes;
            for def in &part.defs {
                for (who, bytes) in self.taken_bytes(def, touched) {
                    let s = Satisfied { any: true, bytes, beyond: false };
                    let values = part.uses.iter().filter(|u| follows && u.role == Role::Value);
                    values.for_each(|u| self.want_use(u, part.mode, &s, touched, who));
                }
            }
        }
    }

    /// The linker gives the registers for floating point back as it found them; what they hold meanwhile is its own.
    fn lay_state_aside(&mut self) {
        let state = &mut *self.state;
        let aside = state.aside.entry(state.thread).or_default();
        for reg in RegId::extended() {
            state.regs.take(reg, reg.all(), true, |mask, who| aside.push((reg, mask, who)));
        }
    }

    fn take_state_up(&mut self) {
        for (reg, mask, who) in self.state.aside.remove(&self.state.thread).unwrap_or_default() {
            self.add_reg(reg, mask, who);
        }
    }

    /// Takes what is wanted of a definition: who wants it, and which bytes from its beginning.
    fn taken_bytes(&mut self, def: &Def, touched: &[Touched]) -> Vec<(Who, u64)> {
        let mut found = Vec::new();
        match def.place {
            Place::Reg(reg) => {
                let first = def.mask.trailing_zeros().min(63);
                self.state.regs.take(reg, def.mask, def.kills, |mask, who| found.push((who, mask >> first)));
            }
            Place::Mem(m) => {
                let Some(t) = touched.get(usize::from(m)).copied() else { return Vec::new() };
                let mut taken = std::mem::take(&mut self.taken_mem);
                if t.len != 0 {
                    self.state.mem.take(t.addr, t.len, def.kills, &mut taken);
                }
                found.extend(taken.drain(..).map(|(w, offset)| (w.who, shifted(w.mask, offset))));
                self.taken_mem = taken;
            }
        }
        found
    }
}
