//! Calls that change the address space, carried out again at the recorded addresses.
//!
//! Files that are mapped shared become files in memory, one per file, so that several mappings of one show each other's
//! stores; so does other shared memory. A copy of this process makes its own ([`part_from_parent`]).

use super::replay;
use super::source::open_kept;
use crate::memory::{Vma, around_engine, conceal, kernel_prot, object_of, page_up};
use crate::state::Engine;
use crate::sys::{self, MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, nr};
use alloc::string::String;
use alloc::vec::Vec;
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
    if file && key.is_none() && record.file != 0 {
        return super::cannot(e, "a file that is mapped here could not be kept when the run was recorded");
    }
    let mut vma = Vma { shared: flags & 3 != MAP_PRIVATE, file, offset, ..Vma::anonymous(prot) };
    let mut done = -1;
    for part in around_engine(range.clone()) {
        let n = if part.end == range.end { at + len - part.start } else { part.end - part.start };
        match &key {
            Some(key) if file && vma.shared => {
                let folder = e.hidden.folder;
                let index = shared_file(&mut replay(e).shared, folder, key);
                let fd = replay(e).shared[index].fd;
                vma.object = Some((SHARED, index as u64));
                let from = offset + (part.start - at);
                let kind = sys::MAP_SHARED | MAP_FIXED;
                // SAFETY: guest memory, over a file in memory that only this process has.
                done = unsafe { sys::raw(nr::MMAP, [part.start, n, kernel_prot(prot), kind, fd as u64, from]) };
            }
            Some(key) if file => {
                // Pages of a private mapping show stores through shared ones until they are written to.
                let shared = replay(e).shared.iter().position(|s| key.starts_with(&s.name));
                let fd = match shared {
                    // SAFETY: duplicates our own descriptor.
                    Some(at) => unsafe { sys::raw3(nr::DUP, replay(e).shared[at].fd as u64, 0, 0) },
                    None => open_kept(e.hidden.folder, key),
                };
                vma.object = shared.map(|at| (SHARED, at as u64)).or(object_of(fd as u64));
                let kind = MAP_PRIVATE | MAP_FIXED | flags & MAP_NORESERVE;
                let from = offset + (part.start - at);
                // SAFETY: guest memory; private, so that neither file nor copies of this process are changed.
                done = unsafe { sys::raw(nr::MMAP, [part.start, n, kernel_prot(prot), kind, fd as u64, from]) };
                // SAFETY: our own descriptor.
                unsafe { sys::raw3(nr::CLOSE, fd as u64, 0, 0) };
            }
            _ if vma.shared && !file => {
                let index = shared_memory(&mut replay(e).shared, None, page_up(len));
                let fd = replay(e).shared[index].fd;
                (vma.object, vma.offset) = (Some((SHARED, index as u64)), 0);
                let kind = sys::MAP_SHARED | MAP_FIXED;
                // SAFETY: guest memory, over a file in memory that only this process has.
                done =
                    unsafe { sys::raw(nr::MMAP, [part.start, n, kernel_prot(prot), kind, fd as u64, part.start - at]) };
            }
            _ => done = map_plain(part.start, n, prot, MAP_FIXED),
        }
        conceal(&part, prot);
        let offset = vma.offset + (part.start - at);
        e.memory.insert(part, Vma { offset, ..vma });
    }
    if vma.changes_file() {
        for code in e.memory.code_of(vma.object) {
            e.code_unmapped(code.start, code.end);
        }
    }
    if sys::is_err(done) {
        super::cannot(e, &alloc::format!("memory cannot be mapped at {at:#x} (error {})", -done));
    }
}

/// Marks the objects of files in memory.
const SHARED: u64 = u64::MAX - 1;

/// A file that the guest has mapped shared.
pub struct SharedFile {
    /// Device and inode, as kept files are named.
    name: String,
    fd: i64,
    size: u64,
}

impl SharedFile {
    pub fn fd(&self) -> i64 {
        self.fd
    }
}

/// The file in memory for a kept file, with its contents if it is new.
pub fn shared_file(shared: &mut Vec<SharedFile>, folder: i32, key: &str) -> usize {
    let name: String = key.split('-').take(2).collect::<Vec<_>>().join("-");
    let size = key.split('-').nth(2).and_then(|s| u64::from_str_radix(s, 16).ok()).unwrap_or(0);
    if let Some(at) = shared.iter().position(|s| s.name == name) {
        grow(&mut shared[at], size);
        return at;
    }
    let from = open_kept(folder, key);
    let fd = copy_in_memory(from as u64, size);
    // SAFETY: our own descriptor.
    unsafe { sys::raw3(nr::CLOSE, from as u64, 0, 0) };
    shared.push(SharedFile { name, fd, size });
    shared.len() - 1
}

/// Makes it at least this large, as the guest's file is.
pub fn grow(file: &mut SharedFile, size: u64) {
    if file.size < size {
        // SAFETY: our own file.
        unsafe { sys::raw3(nr::FTRUNCATE, file.fd as u64, size, 0) };
        file.size = size;
    }
}

/// What the object of a file in memory is called.
pub fn shared_object(index: usize) -> (u64, u64) {
    (SHARED, index as u64)
}

/// Fresh shared memory, without a file unless it is given the name of one.
pub fn shared_memory(shared: &mut Vec<SharedFile>, name: Option<String>, size: u64) -> usize {
    let name = name.unwrap_or_else(|| alloc::format!("memory {}", shared.len()));
    // SAFETY: a file of our own.
    let fd = unsafe {
        let fd = sys::raw3(nr::MEMFD_CREATE, c"clew-shared".as_ptr() as u64, 1, 0);
        sys::raw3(nr::FTRUNCATE, fd as u64, size, 0);
        fd
    };
    shared.push(SharedFile { name, fd, size });
    shared.len() - 1
}

/// A file in memory with the contents of another.
fn copy_in_memory(from: u64, size: u64) -> i64 {
    const SENDFILE: u64 = 40;
    // SAFETY: a file of our own, filled from another through the kernel.
    unsafe {
        let fd = sys::raw3(nr::MEMFD_CREATE, c"clew-shared".as_ptr() as u64, 1, 0);
        sys::raw3(nr::FTRUNCATE, fd as u64, size, 0);
        let mut at = 0u64;
        while at < size {
            let n = sys::raw(SENDFILE, [fd as u64, from, &raw mut at as u64, size - at, 0, 0]);
            if n <= 0 {
                break;
            }
        }
        fd
    }
}

/// In a copy of a replaying process: files in memory are copied, so that neither sees the other's stores.
pub fn part_from_parent(e: &mut Engine) {
    for index in 0..replay(e).shared.len() {
        let (old, size) = (replay(e).shared[index].fd, replay(e).shared[index].size);
        let new = copy_in_memory(old as u64, size);
        // SAFETY: our own descriptor, not used any more by this process once its mappings are replaced below.
        unsafe { sys::raw3(nr::CLOSE, old as u64, 0, 0) };
        replay(e).shared[index].fd = new;
        let mine = e.memory.iter().filter(|(_, v)| v.shared && v.object == Some((SHARED, index as u64)));
        for (start, v) in mine {
            let kind = sys::MAP_SHARED | MAP_FIXED;
            let args = [start, v.end - start, kernel_prot(v.prot as u64), kind, new as u64, v.offset];
            // SAFETY: the guest's own mapping is replaced by one with the same contents.
            unsafe { sys::raw(nr::MMAP, args) };
        }
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
        return super::cannot(e, &alloc::format!("memory cannot be moved to {at:#x} (error {})", -r));
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
