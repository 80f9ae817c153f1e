//! Parts that requests and answers have in common, and reports of the end of a replay.

use super::{Moment, State};
use crate::wire::{Reader, Replayed, Writer};

impl Writer {
    pub(super) fn moment(&mut self, m: Moment) {
        self.u64(m.tick);
        self.u64(m.pc);
    }
    pub(super) fn option<T>(&mut self, v: Option<T>, put: impl FnOnce(&mut Self, T)) {
        self.u8(v.is_some() as u8);
        if let Some(v) = v {
            put(self, v);
        }
    }
    pub(super) fn state(&mut self, s: &State) {
        for v in s.gpr.into_iter().chain([s.rip, s.rflags, s.fs_base, s.gs_base]) {
            self.u64(v);
        }
        self.bytes(&s.extended);
    }
    pub(crate) fn replayed(&mut self, r: &Replayed) {
        self.u64(r.records);
        self.u64(r.tick);
        self.u64(r.pc);
        self.u8(r.difference.is_some() as u8);
        self.str(r.difference.as_deref().unwrap_or(""));
        self.u8(r.ending);
        self.u32(r.status);
    }
}

impl Reader<'_> {
    pub(super) fn moment(&mut self) -> Option<Moment> {
        Some(Moment { tick: self.u64()?, pc: self.u64()? })
    }
    pub(super) fn option<T>(&mut self, get: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.u8()? {
            0 => Some(None),
            _ => Some(Some(get(self)?)),
        }
    }
    pub(super) fn state(&mut self) -> Option<State> {
        let mut s = State::default();
        for v in &mut s.gpr {
            *v = self.u64()?;
        }
        (s.rip, s.rflags, s.fs_base, s.gs_base) = (self.u64()?, self.u64()?, self.u64()?, self.u64()?);
        s.extended = self.bytes()?.to_vec();
        Some(s)
    }
    pub(crate) fn replayed(&mut self) -> Option<Replayed> {
        let (records, tick, pc) = (self.u64()?, self.u64()?, self.u64()?);
        let differs = self.u8()? != 0;
        let text = self.str()?;
        let difference = differs.then_some(text);
        Some(Replayed { records, tick, pc, difference, ending: self.u8()?, status: self.u32()? })
    }
}
