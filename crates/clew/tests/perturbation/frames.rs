//! Frames of functions while a program runs: the stack slots of return addresses, by thread.
//!
//! Stacks grow down, so a callee's slot is lower than its caller's. A jump out of several functions at once (`longjmp`) is
//! noticed when the next function returns.

use slice::Executed;
use slice::insn::Control;

/// The frame of code that nobody called.
pub const OUTERMOST: u64 = u64::MAX;

#[derive(Clone, Default)]
pub struct Frames {
    /// Threads are few: a search is faster than a table.
    slots: Vec<(u32, Vec<u64>)>,
}

impl Frames {
    /// The innermost frame of a thread.
    pub fn of(&self, thread: u32) -> u64 {
        let found = self.slots.iter().find(|(t, _)| *t == thread);
        found.and_then(|(_, slots)| slots.last()).copied().unwrap_or(OUTERMOST)
    }

    /// An instruction was executed.
    pub fn note(&mut self, e: &Executed<'_>) {
        match e.code.control {
            Control::Call => {
                let pushed = e.code.mem.iter().zip(e.touched).find(|(m, _)| m.write);
                self.slots_of(e.thread).extend(pushed.map(|(_, (at, _))| *at));
            }
            Control::Return => {
                if let Some((at, _)) = e.touched.first() {
                    self.leave(e.thread, *at);
                }
            }
            _ => {}
        }
    }

    /// A thread is in this frame now.
    pub fn enter(&mut self, thread: u32, frame: u64) {
        if frame < self.of(thread) {
            self.slots_of(thread).push(frame);
        } else if frame > self.of(thread) {
            self.leave(thread, frame - 1);
        }
    }

    fn leave(&mut self, thread: u32, slot: u64) {
        let slots = self.slots_of(thread);
        while slots.last().is_some_and(|s| *s <= slot) {
            slots.pop();
        }
    }

    fn slots_of(&mut self, thread: u32) -> &mut Vec<u64> {
        let known = self.slots.iter().position(|(t, _)| *t == thread);
        let at = known.unwrap_or_else(|| {
            self.slots.push((thread, Vec::new()));
            self.slots.len() - 1
        });
        &mut self.slots[at].1
    }
}
