//! Segments of the log: the files that it is written to, one after the other, mapped in place.
//!
//! ```text
//! first ──▶ ring 0 ──▶ ring 1 ──▶ ring 2 ──▶ ring 0 …      each full one is told to the host, which compresses it
//!                            └──▶ extra ──▶ ring …         when the host has not given one of the ring back yet
//! ```
//! Fresh pages of a file are dear: the file system makes each, and they push what the guest and the kernel work with out of
//! the processor's caches. So a few segments are used again and again: the host says in the header of one that its records
//! are in the compressed log by now, and it becomes the next segment under its new name.
//!
//! Guarantees: at every moment each committed record is in a raw segment or in a whole chunk, whoever is killed. A segment
//! is taken up again only behind its chunk; until it has its new name, readers take that chunk. Its header is complete
//! before its predecessor says that another one follows. Going on in the next segment leaves the heap alone.
//! May miss: a reader that looks on while the log is written may find a segment under another number than it opened it by.

use super::{header_word, log_state};
use crate::sys::{self, err, nr};
use crate::text::Short;
use core::sync::atomic::{AtomicU32, Ordering::*};
use model::layout::LOG;
use model::log::{self, MAX_RECORD, SEGMENT_HEADER, header};
use model::wire::{SEGMENT_PACKET, segment_packet};

/// Bytes of a unit's first segment, and of all others, which any record fits in. What is made ahead is paid for, used or
/// not; and the last segment is compressed when the program has ended, with everybody waiting.
pub(super) const FIRST: u64 = 256 << 10;
const LATER: u64 = MAX_RECORD as u64 + (256 << 10);
/// Segments that are used again and again: one is written, one compressed, and one lets the host be late.
const RING: usize = 3;
/// Places where segments are mapped: those of the ring, then two in turn for the others.
const PLACE: u64 = LATER + (1 << 20);
const _: () = assert!(LATER >= MAX_RECORD as u64 + SEGMENT_HEADER as u64 + super::RESERVE);
const _: () = assert!(FIRST <= LATER && PLACE * (RING as u64 + 2) <= LOG.end - LOG.start);

const RENAMEAT: u64 = 264;
const RENAMEAT2: u64 = 316;
const UNLINKAT: u64 = 263;
const FALLOCATE: u64 = 285;
const PWRITE: u64 = 18;
const EOPNOTSUPP: i64 = 95;

/// The segments that are used again and again; each is mapped for good.
#[derive(Default)]
pub struct Ring {
    /// The number that each has now, in order of their places.
    sequences: [Option<u32>; RING],
}

fn place(n: usize) -> u64 {
    LOG.start + n as u64 * PLACE
}

/// Where a segment that is used once is mapped; the one before it is mapped meanwhile.
fn extra_place(sequence: u32) -> u64 {
    place(RING + (sequence as usize & 1))
}

/// Makes a file of a first segment's size, for a unit whose number is not known yet.
pub(super) fn prepare(folder: i32, name: &Short) -> Result<(), i64> {
    create(folder, name, FIRST).map(close)
}

/// Removes what was prepared, for nothing. Answers `false`, so that it can be said of what is gone.
pub(super) fn discard(folder: i32, name: &Short) -> bool {
    // SAFETY: a file of our own, which nobody has mapped.
    unsafe { sys::raw3(UNLINKAT, folder as u64, name.address(), 0) };
    false
}

/// The unit's first segment: a file that was prepared, or else a new one.
pub(super) fn first(folder: i32, unit: (u32, u32), prepared: Option<&Short>) -> Result<u64, i64> {
    let (at, name) = (extra_place(0), name(unit, 0));
    let taken = prepared.is_some_and(|p| rename_to_new(folder, p, &name) == Ok(()));
    let fd = if taken { open(folder, &name, 0)? } else { create(folder, &name, FIRST)? };
    map(folder, &name, fd, at, FIRST)?;
    begin(at, 0, 0);
    Ok(at)
}

/// The current segment is full: the next one. `false` when there can be none; then recording has ended.
pub(super) fn next() -> bool {
    // SAFETY: the holder of the baton appends.
    let e = unsafe { crate::state::engine() };
    let s = log_state();
    let (full, size, unit, sequence, records) = (s.base, s.size, s.unit, s.sequence, s.records);
    let in_ring = s.ring.sequences.contains(&Some(sequence));
    match s.ring.next(e.hidden.folder, unit, sequence + 1, records) {
        Ok(at) => {
            header_word(full, header::MORE).store(1, Release);
            if !in_ring {
                // SAFETY: the old segment's mapping, which nothing refers to any more.
                unsafe { sys::raw3(nr::MUNMAP, full, size, 0) };
            }
            (s.base, s.size, s.used, s.sequence) = (at, LATER, 0, sequence + 1);
            let unit = Short::new(format_args!("{}.{}", unit.0, unit.1));
            let mut room = [0; SEGMENT_PACKET];
            e.control.send_bytes(segment_packet(&mut room, e.pid, unit.as_str(), sequence, in_ring));
            true
        }
        Err(errno) => {
            e.stop_recording(errno);
            false
        }
    }
}

impl Ring {
    /// A segment that is ready to be written to: one that the host has given back, or a new one.
    fn next(&mut self, folder: i32, unit: (u32, u32), sequence: u32, records: u64) -> Result<u64, i64> {
        let given_back = |n: &usize| self.sequences[*n].is_some() && given_back(place(*n)).load(Acquire) != 0;
        if let Some(n) = (0..RING).find(given_back) {
            let old = self.sequences[n].unwrap_or_default();
            // Under its old name nobody looks into it any more.
            begin(place(n), sequence, records);
            if rename(folder, &name(unit, old), &name(unit, sequence)) {
                self.sequences[n] = Some(sequence);
                return Ok(place(n));
            }
            // It stays where it is, and is never given back again.
        }
        let unused = (0..RING).find(|n| self.sequences[*n].is_none());
        let at = unused.map_or(extra_place(sequence), place);
        let name = name(unit, sequence);
        map(folder, &name, create(folder, &name, LATER)?, at, LATER)?;
        if let Some(n) = unused {
            self.sequences[n] = Some(sequence);
        }
        begin(at, sequence, records);
        Ok(at)
    }
}

/// The word in which the host says that it needs a segment no longer.
fn given_back(base: u64) -> &'static AtomicU32 {
    // SAFETY: an aligned word of a mapped segment's header.
    unsafe { &*((base + header::GIVEN_BACK as u64) as *const AtomicU32) }
}

/// Writes the header of a segment that holds no record yet.
fn begin(base: u64, sequence: u32, records: u64) {
    header_word(base, header::COMMITTED).store(0, Release);
    // SAFETY: the header of a mapped segment of our own.
    let head = unsafe { core::slice::from_raw_parts_mut(base as *mut u8, SEGMENT_HEADER) };
    head[..8].copy_from_slice(&log::MAGIC);
    head[header::VERSION..][..4].copy_from_slice(&log::VERSION.to_le_bytes());
    head[header::SEQUENCE..][..4].copy_from_slice(&sequence.to_le_bytes());
    head[header::FIRST_RECORD..][..8].copy_from_slice(&records.to_le_bytes());
    head[header::MORE..].fill(0);
}

fn name(unit: (u32, u32), sequence: u32) -> Short {
    Short::new(format_args!("units/{}.{}.{sequence}.raw", unit.0, unit.1))
}

fn rename(folder: i32, from: &Short, to: &Short) -> bool {
    let folder = folder as u64;
    // SAFETY: a file of our own; names end in zero.
    unsafe { sys::raw(RENAMEAT, [folder, from.address(), folder, to.address(), 0, 0]) == 0 }
}

/// Renames a file of our own unless there is one of the new name already.
fn rename_to_new(folder: i32, from: &Short, to: &Short) -> Result<(), i64> {
    const NOREPLACE: u64 = 1;
    let folder = folder as u64;
    // SAFETY: a file of our own; names end in zero.
    match unsafe { sys::raw(RENAMEAT2, [folder, from.address(), folder, to.address(), NOREPLACE, 0]) } {
        0 => Ok(()),
        e => Err(-e),
    }
}

/// Opens a file of the recording for reading and writing; answers an error number.
fn open(folder: i32, name: &Short, flags: u64) -> Result<u64, i64> {
    const READ_WRITE: u64 = 0o2 | 0o2_000_000;
    const EMFILE: i64 = 24;
    // SAFETY: a file of our own; the name ends in zero.
    let open =
        || match unsafe { sys::raw(nr::OPENAT, [folder as u64, name.address(), READ_WRITE | flags, 0o600, 0, 0]) } {
            e if sys::is_err(e) => Err(-e),
            fd => Ok(fd as u64),
        };
    match open() {
        Err(EMFILE) => with_more_descriptors(open),
        answer => answer,
    }
}

/// Does something while this process may have as many descriptors as it may allow itself: a guest that has used up its
/// own must not end its recording.
fn with_more_descriptors<T>(act: impl FnOnce() -> T) -> T {
    const NOFILE: u64 = 7;
    let set = |limit: [u64; 2]| {
        // SAFETY: the kernel reads two words.
        unsafe { sys::raw(nr::PRLIMIT64, [0, NOFILE, limit.as_ptr() as u64, 0, 0, 0]) };
    };
    let mut limit = [0u64; 2];
    // SAFETY: the kernel writes two words.
    unsafe { sys::raw3(nr::GETRLIMIT, NOFILE, limit.as_mut_ptr() as u64, 0) };
    let [now, most] = limit;
    if now < most {
        set([most, most]);
    }
    let answer = act();
    if now < most {
        set([now, most]);
    }
    answer
}

fn close(fd: u64) {
    // SAFETY: a descriptor of our own.
    unsafe { sys::raw3(nr::CLOSE, fd, 0, 0) };
}

/// A new file of the recording that has its blocks, or none.
fn create(folder: i32, name: &Short, size: u64) -> Result<u64, i64> {
    const NEW: u64 = 0o100 | 0o200;
    let fd = open(folder, name, NEW)?;
    match allocate(fd, size) {
        0 => Ok(fd),
        e => {
            close(fd);
            discard(folder, name);
            Err(-e)
        }
    }
}

/// Maps a file of the recording for writing, and closes it; should that fail, it is removed.
fn map(folder: i32, name: &Short, fd: u64, at: u64, size: u64) -> Result<(), i64> {
    let flags = sys::MAP_SHARED | sys::MAP_FIXED_NOREPLACE;
    // SAFETY: maps a file of our own in a range that only the log uses.
    let mapped = unsafe { sys::raw(nr::MMAP, [at, size, sys::PROT_READ | sys::PROT_WRITE, flags, fd, 0]) };
    if size > FIRST && !sys::is_err(mapped) {
        fill(fd, size);
        sys::populate(at, size);
    }
    close(fd);
    if sys::is_err(mapped) {
        discard(folder, name);
        return Err(-mapped);
    }
    Ok(())
}

/// Gives a fresh file its blocks: a store into a mapped hole of a full disk would be fatal.
fn allocate(fd: u64, size: u64) -> i64 {
    // SAFETY: our own file.
    unsafe {
        let r = sys::raw(FALLOCATE, [fd, 0, 0, size, 0, 0]);
        if r != -EOPNOTSUPP && r != -err::ENOSYS {
            return r;
        }
        // Without fallocate the blocks are had by writing them.
        let zeros = [0u8; 4096];
        for at in (0..size).step_by(zeros.len()) {
            let n = sys::raw(PWRITE, [fd, zeros.as_ptr() as u64, zeros.len() as u64, at, 0, 0]);
            if n != zeros.len() as i64 {
                return if n < 0 { n } else { -28 };
            }
        }
        0
    }
}

/// Writes a file of our own full of zeros. Pages that are there cost half of what those cost that the file system makes
/// at the first store through a mapping: 0.75 µs instead of 1.5 (ext4, Linux 6.18).
fn fill(fd: u64, size: u64) {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    for at in (0..size).step_by(ZEROS.len()) {
        // SAFETY: the kernel reads our zeros. The file has its blocks; should a write fail, stores make the pages.
        unsafe { sys::raw(PWRITE, [fd, ZEROS.as_ptr() as u64, ZEROS.len() as u64, at, 0, 0]) };
    }
}
