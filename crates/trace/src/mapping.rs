//! The ring's memory, mapped into the host: all `unsafe` code of this crate.
//!
//! The memory is shared with a process that runs a program which is wrong by definition. The counters in the header are
//! reached only as atomics. The buffers are read-only here, and the engine does not write to a buffer between handing
//! it over and getting it back; that is what makes it sound to see one as bytes. A guest that hits a buffer by a wild
//! store breaks this. It then spoils its own trace: whoever reads a buffer must check every value once loaded, and the
//! decoders do. The file is sealed against shrinking where it allows that, so that reading cannot fault.

#![expect(unsafe_code, reason = "memory mapping is what this module is for")]

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::futex;

use crate::format::RING_PAGE;

/// A mapped ring.
///
/// Invariants: `header` is the start of a live shared mapping of `RING_PAGE` readable and writable bytes, `all` of one of
/// `len` readable bytes, both of the same file; both are page aligned, `len` is at least `RING_PAGE` and at most
/// `isize::MAX`, and nothing else unmaps them or changes their protection.
#[derive(Debug)]
pub(crate) struct Mapping {
    header: NonNull<u8>,
    all: NonNull<u8>,
    len: usize,
}

// SAFETY: the mappings belong to the value and not to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes of the ring's file; fails if it is shorter.
    pub fn new(file: impl AsFd, len: usize) -> io::Result<Mapping> {
        let too_short = || io::Error::new(io::ErrorKind::InvalidData, "the ring's file is too short");
        if len < RING_PAGE || rustix::fs::fstat(&file)?.st_size < len as i64 {
            return Err(too_short());
        }
        // Not every file can be sealed; then only its length above vouches for it.
        let _ = rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK);
        let header = map(&file, RING_PAGE, ProtFlags::READ | ProtFlags::WRITE)?;
        match map(&file, len, ProtFlags::READ) {
            Ok(all) => Ok(Mapping { header, all, len }),
            Err(e) => {
                unmap(header, RING_PAGE);
                Err(e)
            }
        }
    }

    /// The word of the header at byte `at`, which must be a multiple of 4 below `RING_PAGE`.
    pub fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at < RING_PAGE, "no such word in the header");
        // SAFETY: `at` was just found to be inside the page.
        let word = unsafe { self.header.add(at) };
        // SAFETY: by the invariant of `Mapping` the word is mapped, writable and, since the page is aligned and `at` is a
        // multiple of 4, aligned. All accesses to it, also those of the engine, are atomic.
        unsafe { word.cast::<AtomicU32>().as_ref() }
    }

    /// The bytes `at..at + len` of the file. They must not be in the hands of the engine.
    pub fn bytes(&self, at: usize, len: usize) -> &[u8] {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len), "no such bytes in the ring");
        // SAFETY: `at` was just found to be inside the mapping.
        let start = unsafe { self.all.add(at) };
        // SAFETY: by the invariant of `Mapping` the range is mapped and readable; as it is not in the hands of the engine
        // nobody writes to it while the caller has it, as far as that can be had (see the head of this module).
        unsafe { slice::from_raw_parts(start.as_ptr(), len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        unmap(self.header, RING_PAGE);
        unmap(self.all, self.len);
    }
}

fn map(file: impl AsFd, len: usize, prot: ProtFlags) -> io::Result<NonNull<u8>> {
    // SAFETY: the kernel picks a fresh address (no MAP_FIXED), so no existing memory is touched.
    let start = unsafe { mmap(std::ptr::null_mut(), len, prot, MapFlags::SHARED, file, 0) }?;
    NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mmap gave a null pointer"))
}

/// Takes back what `map` gave; must be called once for it, when nothing refers to it any more.
fn unmap(start: NonNull<u8>, len: usize) {
    // SAFETY: `Mapping` owns the range and is being dropped, or never came to be.
    let result = unsafe { munmap(start.as_ptr().cast(), len) };
    debug_assert!(result.is_ok(), "munmap of our own mapping failed");
}

/// Waits until the word may differ from `seen`, or the time has passed.
pub(crate) fn wait(word: &AtomicU32, seen: u32, time: Duration) {
    // The word is shared between processes, so no PRIVATE flag. Any error means no more than that it is time to look
    // again: the word differed, a signal came, the time has passed.
    let timeout = rustix::thread::Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&timeout));
}

/// Wakes all who wait for the word.
pub(crate) fn wake(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}
