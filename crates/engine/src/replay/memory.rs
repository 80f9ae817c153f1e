//! Calls that change the address space, carried out again at the recorded addresses.
//!
//! Shared mappings become private ones with the contents of the time: a copy of this process must not share them.

use super::replay;
use super::source::open_kept;
use crate::memory::{Vma, around_engine, conceal, kernel_prot, object_of, page_up};
use crate::state::Engine;
use crate::sys::{self, MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, nr};
use core::ops::Range;
use model::log::CallRecord;

const MREMAP_MAYMOVE: u64 = 1;
const MREMAP_FIXED: u64 = 2;
const MREMAP_DONTUNMAP: u64 = 4;

/// Does what the recorded call did to the address space.
pub fn call(e: &mut Engine, record: &CallRecord) {
    let [a, b, c, ..] = record.args;
    let result = record.result;
    if u64::from(record.nr) == nr::BRK {
        return brk(e, result as u64);
    }
    if sys::is_err(result) {
        return;
    }
    match u64::from(record.nr) {
        nr::MMAP => mmap(e, record),
        nr::MUNMAP => unmap(e, a..a.saturating_add(page_up(b))),
        nr::MPROTECT | 329 => protect(e, a..a.saturating_add(page_up(b)), c),
        nr::MREMAP => mremap(e, record),
        nr::MADVISE => madvise(e, a, b, c),
        nr::SHMAT => shmat(e, record),
        nr::SHMDT => {
            if let Some((start, vma)) = e.memory.find(a) {
                unmap(e, start..vma.end);
            }
        }
        _ => {}
    }
}

fn map_plain(at: u64, len: u64, prot: u64, fixed: u64) -> i64 {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed;
    // SAFETY: guest memory: the recorded place is the guest's.
    unsafe { sys::raw(nr::MMAP, [at, len, kernel_prot(prot), flags, u64::MAX, 0]) }
}

fn mmap(e: &mut Engine, record: &CallRecord) {
    let [_, len, prot, flags, _, offset] = record.args;
    let at = record.result as u64;
    let range = at..at + page_up(len);
    e.code_unmapped(range.start, range.end);
    let key = replay(e).file(record.file).map(|f| f.key.clone()).filter(|k| !k.is_empty());
    let file = flags & MAP_ANONYMOUS == 0;
    let mut vma = Vma { shared: flags & 3 != MAP_PRIVATE, file, offset, ..Vma::anonymous(prot) };
    let mut done = -1;
    for part in around_engine(range.clone()) {
        let n = if part.end == range.end { at + len - part.start } else { part.end - part.start };
        match &key {
            Some(key) if file => {
                let fd = open_kept(e.hidden.folder, key);
                vma.object = object_of(fd as u64);
                let kind = MAP_PRIVATE | MAP_FIXED | flags & MAP_NORESERVE;
                let from = offset + (part.start - at);
                // SAFETY: guest memory; private, so that neither file nor copies of this process are changed.
                done = unsafe { sys::raw(nr::MMAP, [part.start, n, kernel_prot(prot), kind, fd as u64, from]) };
                // SAFETY: our own descriptor.
                unsafe { sys::raw3(nr::CLOSE, fd as u64, 0, 0) };
            }
            _ => {
                if vma.shared {
                    vma.object = Some(e.memory.new_object());
                }
                done = map_plain(part.start, n, prot, MAP_FIXED);
            }
        }
        conceal(&part, prot);
        let offset = vma.offset + (part.start - at);
        e.memory.insert(part, Vma { offset, ..vma });
    }
    if sys::is_err(done) {
        super::differs(e, &alloc::format!("memory cannot be mapped at {at:#x} (error {})", -done));
    }
}

fn unmap(e: &mut Engine, range: Range<u64>) {
    e.code_unmapped(range.start, range.end);
    for part in around_engine(range) {
        // SAFETY: guest memory only.
        unsafe { sys::raw3(nr::MUNMAP, part.start, part.end - part.start, 0) };
        e.memory.remove(part);
    }
}

fn protect(e: &mut Engine, range: Range<u64>, prot: u64) {
    e.code_unmapped(range.start, range.end);
    // SAFETY: guest memory only: the recorded call was refused where it touched the engine.
    unsafe { sys::raw3(nr::MPROTECT, range.start, range.end - range.start, kernel_prot(prot & 7)) };
    e.memory.protect(range, prot & 7);
}

fn mremap(e: &mut Engine, record: &CallRecord) {
    let [old, old_len, new_len, flags, ..] = record.args;
    let at = record.result as u64;
    let (old_size, new_size) = (page_up(old_len), page_up(new_len));
    let Some((start, mut vma)) = e.memory.find(old) else { return };
    vma.offset += old.saturating_sub(start);
    e.code_unmapped(old, old + old_size.max(4096));
    e.code_unmapped(at, at + new_size);
    let kept = flags & MREMAP_DONTUNMAP;
    // SAFETY: guest memory; the target is where the recorded call put it.
    let r = unsafe {
        if at == old && kept == 0 {
            sys::raw(nr::MREMAP, [old, old_len, new_len, 0, 0, 0])
        } else {
            sys::raw(nr::MREMAP, [old, old_len, new_len, MREMAP_MAYMOVE | MREMAP_FIXED | kept, at, 0])
        }
    };
    if sys::is_err(r) {
        return super::differs(e, &alloc::format!("memory cannot be moved to {at:#x} (error {})", -r));
    }
    if kept == 0 && old_size != 0 {
        e.memory.remove(old..old + old_size);
    }
    e.memory.insert(at..at + new_size, vma);
}

/// Advice that changes what memory holds is followed; the rest is not needed.
fn madvise(e: &mut Engine, at: u64, len: u64, advice: u64) {
    if !matches!(advice as i32, 4 | 8 | 9 | 24) {
        return;
    }
    let range = at..at.saturating_add(page_up(len));
    e.code_unmapped(range.start, range.end);
    // FREE leaves it to chance whether the contents go: the recorded guest saw them stay, or zeros.
    let advice = if advice == 8 { return } else { advice };
    for part in around_engine(range) {
        // SAFETY: guest memory only.
        unsafe { sys::raw3(nr::MADVISE, part.start, part.end - part.start, advice) };
    }
}

fn brk(e: &mut Engine, now: u64) {
    let (old, new) = (page_up(e.memory.brk), page_up(now));
    if new > old {
        map_plain(old, new - old, 3, MAP_FIXED);
        e.memory.insert(old..new, Vma::anonymous(3));
    } else if new < old {
        unmap(e, new..old);
    }
    e.memory.brk = now;
}

/// System V shared memory: plain memory of the size that the next records fill.
fn shmat(e: &mut Engine, record: &CallRecord) {
    let at = record.result as u64;
    let size = page_up(record.file as u64).max(4096);
    map_plain(at, size, 3, MAP_FIXED);
    e.memory.insert(at..at + size, Vma { shared: true, file: true, ..Vma::anonymous(3) });
}
