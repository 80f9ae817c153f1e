//! Threads of a replay: contexts of one kernel task.
//!
//! The running thread's record is the task's own; the others lie here, each with its extended registers and segment base.

use super::calls::InCall;
use crate::gate::{self, Gate};
use crate::signals::xstate::{self, Area, Layout};
use crate::threads::{Thread, load, save};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use model::serve::Moment;

/// A thread that does not run.
pub struct Context {
    pub thread: Thread,
    pub in_call: Option<InCall>,
    pub fs: u64,
    pub area: Area,
    /// When it ran last, if it ever did.
    pub left: Option<Moment>,
}

/// Threads that do not run, by number.
#[derive(Default)]
pub struct Parked {
    all: BTreeMap<u32, Box<Context>>,
}

impl Parked {
    pub fn list(&self) -> Vec<(u32, u32)> {
        self.all.iter().map(|(n, c)| (*n, c.thread.tid)).collect()
    }

    pub fn get(&mut self, number: u32) -> Option<&mut Context> {
        self.all.get_mut(&number).map(|c| &mut **c)
    }

    pub fn contains(&self, number: u32) -> bool {
        self.all.contains_key(&number)
    }

    /// Keeps only the running thread.
    pub fn clear(&mut self) {
        self.all.clear();
    }

    /// Takes in a new thread.
    pub fn insert(&mut self, number: u32, mut context: Box<Context>) {
        context.left = None;
        self.all.insert(number, context);
    }

    /// Puts the running thread away.
    pub fn park(&mut self, layout: Layout, t: &mut Thread, g: &mut Gate, in_call: Option<InCall>) {
        let context = capture(layout, t, g, in_call);
        self.all.insert(t.serial, context);
    }

    /// Makes a parked thread the running one; `false` if there is none of this number.
    pub fn resume(&mut self, layout: Layout, number: u32, t: &mut Thread, g: &mut Gate) -> Option<Option<InCall>> {
        let mut context = self.all.remove(&number)?;
        let index = t.index;
        *t = context.thread;
        // The record is still that of the one task.
        (t.index, t.task) = (index, 1);
        gate::set_fs_base(context.fs);
        load(t);
        xstate::restore(layout, g, &mut context.area);
        Some(context.in_call)
    }
}

/// The running thread as it is.
pub fn capture(layout: Layout, t: &mut Thread, g: &mut Gate, in_call: Option<InCall>) -> Box<Context> {
    save(t);
    let mut area = Area([0; xstate::MAX + 64]);
    xstate::save(layout, g, &mut area);
    // SAFETY: the baton is held. That a thread is stopped for others is a tick of its own.
    let tick = unsafe { crate::state::engine() }.clock.now().saturating_sub(1);
    let left = in_call.map_or(Moment { tick, pc: g.pc }, |c| Moment { tick: c.tick, pc: c.pc });
    Box::new(Context { thread: t.copy(), in_call, fs: gate::fs_base(), area, left: Some(left) })
}
