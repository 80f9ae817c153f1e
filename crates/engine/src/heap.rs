//! The engine's allocator: size classes over a region of its own, so that every byte of engine data has a known place.
//!
//! Guarantees: memory comes from `layout::ENGINE_HEAP` only, 16-byte aligned (more on request), never returned to the
//! kernel. Not thread-safe by itself: only the thread that holds the baton (or the only thread) allocates.
//! Limits: a freed block is reused for its size class only; classes are powers of two with three steps between.

use crate::sys;
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use model::layout::{ADOPTED, ENGINE_HEAP};

const CLASSES: usize = 160;
/// Memory is taken from the kernel in pieces of this size.
const GROW: u64 = 1 << 20;
/// And in these, once it is clear that much is needed.
const LARGE: u64 = 4 << 20;

static MAPPED_END: AtomicU64 = AtomicU64::new(0);

/// End of the memory the heap has taken so far.
pub fn mapped_end() -> u64 {
    MAPPED_END.load(Relaxed)
}

/// See the module's text.
pub struct Heap {
    state: UnsafeCell<State>,
}

struct State {
    next: u64,
    mapped: u64,
    free: [u64; CLASSES],
}

// SAFETY: the baton makes accesses exclusive (module text).
unsafe impl Sync for Heap {}

impl Default for Heap {
    fn default() -> Self {
        Heap::new()
    }
}

impl Heap {
    pub const fn new() -> Heap {
        Heap { state: UnsafeCell::new(State { next: 0, mapped: 0, free: [0; CLASSES] }) }
    }
}

/// The bytes that an allocation of `size` takes.
pub fn room(size: usize) -> usize {
    class(size).1
}

/// Class number and size of a request: 16, 20→32, … four classes to each doubling.
fn class(size: usize) -> (usize, usize) {
    let size = size.max(16).next_multiple_of(16);
    if size <= 64 {
        return (size / 16 - 1, size);
    }
    let top = usize::BITS - 1 - (size - 1).leading_zeros();
    let step = 1usize << (top - 2);
    let rounded = size.next_multiple_of(step);
    let top = usize::BITS - 1 - (rounded - 1).leading_zeros();
    let quarter = (rounded - 1) >> (top - 2) & 3;
    (4 + (top as usize - 6) * 4 + quarter, rounded)
}

// SAFETY: blocks are disjoint (bumped, or taken from a free list that only `dealloc` fills), sized by `class`.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: exclusive by the module's rule.
        let s = unsafe { &mut *self.state.get() };
        let (class, size) = class(layout.size());
        if layout.align() <= 16 && s.free[class] != 0 {
            let p = s.free[class];
            // SAFETY: a free block holds the address of the next one in its first word.
            s.free[class] = unsafe { *(p as *const u64) };
            return p as *mut u8;
        }
        if s.next == 0 {
            s.next = ENGINE_HEAP.start;
            s.mapped = ENGINE_HEAP.start;
        }
        let p = s.next.next_multiple_of(layout.align().max(16) as u64);
        let end = p + size as u64;
        if end > s.mapped {
            let piece = if s.mapped >= ENGINE_HEAP.start + LARGE { LARGE } else { GROW };
            let more = (end - s.mapped).next_multiple_of(piece);
            if s.mapped + more > ADOPTED || sys::map_engine(s.mapped, more, sys::PROT_READ | sys::PROT_WRITE).is_err() {
                return core::ptr::null_mut();
            }
            // Large pages would be cleared whole, though vectors that grow leave half of what they had behind.
            sys::populate(s.mapped, more.min(GROW));
            s.mapped += more;
            MAPPED_END.store(s.mapped, Relaxed);
        }
        s.next = end;
        p as *mut u8
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        if layout.align() > 16 {
            return;
        }
        // SAFETY: exclusive by the module's rule.
        let s = unsafe { &mut *self.state.get() };
        let (class, _) = class(layout.size());
        // SAFETY: the block is at least 16 bytes and no longer used.
        unsafe { *(p as *mut u64) = s.free[class] };
        s.free[class] = p as u64;
    }

    unsafe fn realloc(&self, p: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if layout.align() <= 16
            && class(layout.size()).1 >= new_size.max(16)
            && class(new_size).0 == class(layout.size()).0
        {
            return p;
        }
        // SAFETY: as `alloc` and `dealloc`; the old block holds at least the smaller of both sizes.
        unsafe {
            let q = self.alloc(Layout::from_size_align_unchecked(new_size, layout.align()));
            if !q.is_null() {
                core::ptr::copy_nonoverlapping(p, q, layout.size().min(new_size));
                self.dealloc(p, layout);
            }
            q
        }
    }
}

#[cfg(test)]
mod tests {
    use super::class;

    #[test]
    fn classes_grow_and_hold_their_request() {
        let mut last = (0, 0);
        for size in 1..100_000 {
            let (c, s) = class(size);
            assert!(s >= size && s <= size.max(16) * 5 / 4 + 16, "{size} -> {s}");
            assert!(
                c >= last.0 && (c > last.0) == (s > last.1) || size == 1,
                "{size}: class {c} size {s} after {last:?}"
            );
            last = (c, s);
        }
    }
}
