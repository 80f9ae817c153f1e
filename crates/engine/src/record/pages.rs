//! Digests of guest pages, taken in rotation within a small part of the time, so that a replay that has gone astray is
//! noticed even when nothing of it reaches a system call.
//!
//! Pages are taken only while no other thread waits in the kernel: it may be filling one of them.

use super::{append, time_stamp};
use crate::shared_page::log_state;
use crate::state::Engine;
use crate::threads::Thread;
use model::layout::PAGE;
use model::log::{Kind, PageRecord};

/// One part in this many of the time goes into it.
const SHARE: u64 = 40;
/// Of each mapping only so much from its beginning takes part: large reservations are mostly empty.
const PART: u64 = 64 << 20;

/// Whose turn it is.
#[derive(Default)]
pub struct Rotation {
    next: u64,
    /// Not before this time.
    due: u64,
    /// The stack's turn.
    stack: bool,
}

/// Takes a page if it is time.
pub fn look(e: &Engine, t: &Thread, now: u64) {
    let s = log_state();
    if now < s.page.due || s.waiting != 0 || t.has_any() {
        return;
    }
    s.page.stack = !s.page.stack;
    let page = if s.page.stack {
        // SAFETY: the baton is held.
        Some(unsafe { crate::gate::gate() }.gpr[4] & !(PAGE - 1))
    } else {
        next_page(e, s.page.next)
    };
    if let Some(page) = page
        && let Some(digest) = digest_of(e, page)
    {
        append(Kind::Page, 0, &PageRecord { addr: page, digest }.encode());
    }
    let s = log_state();
    if !s.page.stack {
        s.page.next = page.map_or(0, |p| p + PAGE);
    }
    let cost = time_stamp().wrapping_sub(now);
    s.page.due = now + cost * SHARE;
}

/// The first page from `from` on that takes part, or the first of all.
fn next_page(e: &Engine, from: u64) -> Option<u64> {
    e.memory.next_private_writable(from, PART).or_else(|| e.memory.next_private_writable(0, PART))
}

/// What a page of the guest's own holds.
pub fn digest_of(e: &Engine, page: u64) -> Option<u64> {
    let (_, vma) = e.memory.find(page)?;
    if vma.shared || !vma.is(3) {
        return None;
    }
    Some(super::calls::memory_digest(page, page, PAGE))
}
