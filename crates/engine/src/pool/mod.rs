//! Translations handed on from one process to the next.
//!
//! All engines of a host share a file in memory (the *pool*). A process that ends, or becomes another program, leaves
//! its code cache and tables there; one that starts with the same program maps them copy-on-write instead of translating
//! everything again. Programs lie at the same addresses in every run, so code and tables can be used as they are.
//!
//! ```text
//! pool  = header (list of entries), entry, entry, …        append-only; an entry counts when it is complete
//! entry = head · blocks · events · exits · addresses · images · digests · targets · hubs · sites · features · code
//! ```
//! Nothing of an entry is used before the image it belongs to is mapped as it was and every page that had a say in its
//! translations has the digest that it had ([`crate::images`]). The engines of a host are one build, so plain memory is
//! written and mapped. The pool ends with the last process that has it; nothing is on disk.
//!
//! Processes that do more than run or replay a program (probes, traces, counts, chaos, regions) neither leave nor take
//! anything. Sessions take, so that each of their trials need not translate what comes behind its moment, but leave nothing.

mod save;

use crate::cache::{Block, BlockIndex, Exit, PARTS};
use crate::images::Image;
use crate::load::Program;
use crate::pc_table::{PcTable, Slot};
use crate::state::Engine;
use crate::sys::{self, PROT_EXEC, PROT_READ, PROT_WRITE, nr};
use crate::translate::Event;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use model::Mode;
use model::layout::{ADOPTED, PAGE, POOL};
use model::log::{FeatureRecord, digest};

/// Entries of one pool.
const ENTRIES: usize = 500;
const HEADER: u64 = 32 << 10;
const MAGIC: u64 = 0x4c4f_4f50_5745_4c43;

/// The beginning of the pool, which all engines change.
#[repr(C)]
struct Header {
    /// Where the next entry goes, from the end of the header.
    next: AtomicU64,
    taken: AtomicU32,
    _reserved: u32,
    entries: [Entry; ENTRIES],
}

const _: () = assert!(size_of::<Header>() as u64 <= HEADER);

#[repr(C)]
struct Entry {
    key: AtomicU64,
    at: AtomicU64,
    /// Bytes up to the code.
    tables: AtomicU64,
    blocks: AtomicU32,
    /// It is complete.
    ready: AtomicU32,
}

/// One table of an entry: where it begins, how many items it has, and how many there is room for.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Table {
    at: u64,
    items: u64,
    room: u64,
}

/// What an entry begins with.
#[derive(Clone, Copy)]
#[repr(C)]
struct Head {
    magic: u64,
    blocks: Table,
    events: Table,
    exits: Table,
    slots: Table,
    images: Table,
    digests: Table,
    targets: Table,
    hubs: Table,
    sites: Table,
    features: Table,
    /// Slots of the table of addresses that are not empty.
    taken: u64,
    /// Where the code of each part lies in the entry, and where it ends in memory.
    code: [u64; 4],
    ends: [u64; 4],
}

static ADOPTED_END: AtomicU64 = AtomicU64::new(ADOPTED);

/// End of the memory with tables that an earlier process left.
pub fn adopted_end() -> u64 {
    ADOPTED_END.load(Relaxed)
}

/// What program this is, by its files.
pub fn identity(program: Option<&Program>, interpreter: Option<&Program>) -> Option<u64> {
    let mut h = 0;
    for file in [Some(program?), interpreter].into_iter().flatten() {
        h = digest(h, crate::record::files::Stamp::of(file.fd())?.name().as_bytes());
    }
    Some(h)
}

/// What a page of the guest holds.
pub fn digest_of_page(page: u64) -> u64 {
    crate::record::calls::memory_digest(page, page, PAGE)
}

/// Pages that had a say in the translations of an image that was taken over, and their digests.
pub fn digests(image: &Image) -> &'static [[u64; 2]] {
    let (first, n) = image.digests;
    part(items(&head().digests), first, n)
}

/// Blocks of such an image that indirect branches lead to, by address.
pub fn targets(image: &Image) -> &'static [BlockIndex] {
    let (first, n) = image.targets;
    part(items(&head().targets), first, n)
}

fn part<T>(all: &'static [T], first: u64, n: u64) -> &'static [T] {
    all.get(first as usize..(first + n) as usize).unwrap_or_default()
}

fn head() -> &'static Head {
    const NOTHING: Table = Table { at: 0, items: 0, room: 0 };
    static NONE: Head = Head {
        magic: 0,
        blocks: NOTHING,
        events: NOTHING,
        exits: NOTHING,
        slots: NOTHING,
        images: NOTHING,
        digests: NOTHING,
        targets: NOTHING,
        hubs: NOTHING,
        sites: NOTHING,
        features: NOTHING,
        taken: 0,
        code: [0; 4],
        ends: [0; 4],
    };
    if adopted_end() == ADOPTED {
        return &NONE;
    }
    // SAFETY: mapped by `adopt`, which checked it, and never unmapped.
    unsafe { &*(ADOPTED as *const Head) }
}

/// The items of a table that was taken over.
fn items<T>(table: &Table) -> &'static [T] {
    if table.items == 0 {
        return &[];
    }
    // SAFETY: written from a slice of the same type by an engine of the same build; mapped and never unmapped.
    unsafe { core::slice::from_raw_parts((ADOPTED + table.at) as *const T, table.items as usize) }
}

/// A table that was taken over as a vector, which may grow away from there.
fn vector<T>(table: &Table) -> Vec<T> {
    // SAFETY: as above; what is mapped there is as long as an allocation of that capacity would be, and goes to the heap's
    // lists when the vector grows, as any allocation does.
    unsafe { Vec::from_raw_parts((ADOPTED + table.at) as *mut T, table.items as usize, table.room as usize) }
}

/// Shows the pool's header to `f`.
fn with_header<T>(fd: i32, f: impl FnOnce(&Header) -> T) -> Option<T> {
    let flags = sys::MAP_SHARED | sys::MAP_FIXED_NOREPLACE;
    // SAFETY: a place that only this function uses; all fields are atomic and all-zero is valid.
    unsafe {
        let r = sys::raw(nr::MMAP, [POOL, HEADER, PROT_READ | PROT_WRITE, flags, fd as u64, 0]);
        if r != POOL as i64 {
            return None;
        }
        let result = f(&*(POOL as *const Header));
        sys::raw3(nr::MUNMAP, POOL, HEADER, 0);
        Some(result)
    }
}

/// The entry for `key` with the most blocks: how many, where, and the length of its tables.
fn best(header: &Header, key: u64) -> Option<(u32, u64, u64)> {
    let entries = header.entries.iter().take(header.taken.load(Acquire) as usize);
    entries
        .filter(|e| e.ready.load(Acquire) == 1 && e.key.load(Relaxed) == key)
        .map(|e| (e.blocks.load(Relaxed), e.at.load(Relaxed), e.tables.load(Relaxed)))
        .max()
}

impl Engine {
    /// The guest is about to start: takes over what an earlier process with the same program left, if there is anything.
    pub fn adopt_translations(&mut self, identity: Option<u64>) {
        let fd = self.hidden.translations;
        let plain = matches!(self.mode, Mode::None | Mode::Tick) && !self.config.coverage && self.probes.is_empty();
        let whole = self.config.record.as_ref().is_none_or(|r| r.from.is_none() && r.to.is_none() && r.chaos.is_none());
        let runs = self.config.replay.as_ref().is_none_or(|r| r.disturb.is_none());
        let serves = self.config.replay.as_ref().is_some_and(|r| r.serve);
        let Some(identity) = identity.filter(|_| fd >= 0 && plain && whole && runs) else { return };
        let how = [self.mode as u8, self.ticks() as u8, self.virtual_time() as u8, self.config.cpu as u8];
        let key = digest(digest(identity, &how), &[crate::record::on() as u8]);
        // What a session translates is full of places to stop at.
        self.identity = (!serves).then_some(key);
        self.cache.images.saveable = true;
        if let Some((_, at, tables)) = with_header(fd, |header| best(header, key)).flatten() {
            self.adopt(fd as u64, at, tables);
        }
    }

    fn adopt(&mut self, fd: u64, at: u64, tables: u64) {
        let rw = PROT_READ | PROT_WRITE;
        let flags = sys::MAP_PRIVATE | sys::MAP_FIXED_NOREPLACE;
        // SAFETY: a place of its own for the tables; and code over the cache, of which nothing has been used yet.
        unsafe {
            let r = sys::raw(nr::MMAP, [ADOPTED, tables, rw, flags, fd, at]);
            if r != ADOPTED as i64 {
                return;
            }
            let head = *(ADOPTED as *const Head);
            for (n, start) in PARTS.into_iter().enumerate() {
                let len = (head.ends[n] - start).next_multiple_of(PAGE);
                let prot = if n == 3 { rw } else { rw | PROT_EXEC };
                let flags = sys::MAP_PRIVATE | sys::MAP_FIXED;
                let r = match (head.magic, len) {
                    (MAGIC, 0) => 0,
                    (MAGIC, _) => sys::raw(nr::MMAP, [start, len, prot, flags, fd, at + head.code[n]]),
                    _ => -1,
                };
                if sys::is_err(r) {
                    // What is there of the code is written over.
                    sys::raw3(nr::MUNMAP, ADOPTED, tables, 0);
                    return;
                }
            }
        }
        ADOPTED_END.store(ADOPTED + tables, Relaxed);
        let head = head();
        let c = &mut self.cache;
        c.blocks = vector::<Block>(&head.blocks);
        c.events = vector::<Event>(&head.events);
        c.exits = vector::<Exit>(&head.exits);
        c.by_pc = PcTable::from_slots(vector::<Slot>(&head.slots), head.taken as usize);
        c.adopted = c.blocks.len() as BlockIndex;
        c.hubs.extend(items::<[u64; 3]>(&head.hubs).iter().map(|[pc, hub, stub]| (*pc, (*hub, *stub))));
        c.images.adopt(items(&head.images));
        c.go_on_at(head.ends);
        self.checked_sites.extend(items::<u64>(&head.sites).iter().map(|site| (*site, ())));
        self.adopt_features(items(&head.features));
    }

    /// Extensions that the translations use are the recording's too.
    fn adopt_features(&mut self, mut bytes: &[u8]) {
        while let Some((len, rest)) = bytes.split_first_chunk::<4>() {
            let Some((record, rest)) = rest.split_at_checked(u32::from_le_bytes(*len) as usize) else { return };
            bytes = rest;
            let Some(FeatureRecord { feature, .. }) = FeatureRecord::decode(record) else { return };
            let (word, bit) = ((feature as usize / 64) & 3, 1 << (feature % 64));
            if self.features[word] & bit == 0 {
                self.features[word] |= bit;
                crate::record::append(model::log::Kind::Feature, 0, record);
                self.feature_records.push(record.to_vec());
            }
        }
    }
}
