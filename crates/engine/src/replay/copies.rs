//! Copies of this process that replay forked children side by side with it.
//!
//! Guarantees: a child whose copy could not be made, or that ended without a word, is a difference of its parent's replay:
//! what it wrote is missing.

use super::replay;
use crate::state::Engine;
use crate::sys::{self, nr};

/// Waits until one of the copies has ended.
pub fn wait_for_one(e: &mut Engine) {
    let mut status = 0u32;
    // SAFETY: waits for any child of ours; the kernel writes how it ended.
    unsafe { sys::raw(nr::WAIT4, [u64::MAX, &raw mut status as u64, 0, 0, 0, 0]) };
    let r = replay(e);
    r.copies -= 1;
    // One that has told what became of it ends with 0.
    r.copies_lost |= status != 0;
}

/// Waits for all copies; answers what is to be said about them.
pub fn wait_for_all(e: &mut Engine) -> Option<&'static str> {
    while replay(e).copies > 0 {
        wait_for_one(e);
    }
    replay(e).copies_lost.then_some("a process that it forked could not be replayed, or was killed")
}
