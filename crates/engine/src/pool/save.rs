//! Leaving translations for those who come after.

use super::{ENTRIES, HEADER, Head, MAGIC, Table, best, digest_of_page, digests, with_header};
use crate::cache::{Block, PARTS};
use crate::heap;
use crate::images::{Image, State};
use crate::pc_table::PcTable;
use crate::state::Engine;
use crate::sys::{self, nr};
use alloc::vec::Vec;
use core::sync::atomic::Ordering::*;
use model::layout::PAGE;

/// Fewer new blocks are not worth it.
const FEW: u32 = 500;
/// Neither is less than one part in this many.
const SHARE: u32 = 8;
/// The pool does not grow beyond this.
const MOST: u64 = 256 << 20;
/// Images that are no longer there lie nowhere.
const NOWHERE: u64 = 0;

/// What is written, beside what the engine has anyway.
struct Parts {
    blocks: Vec<Block>,
    by_pc: PcTable,
    images: Vec<Image>,
    digests: Vec<[u64; 2]>,
    targets: Vec<u32>,
    hubs: Vec<[u64; 3]>,
    sites: Vec<u64>,
    features: Vec<u8>,
}

impl Engine {
    /// The program ends or becomes another one: its translations are left for the next, if that is of use.
    pub fn hand_on_translations(&mut self) {
        let c = &self.cache;
        let (all, new) = (c.blocks.len() as u32, c.blocks.len() as u32 - c.adopted);
        let Some(key) = self.identity.filter(|_| new >= FEW && new >= c.adopted / SHARE) else { return };
        let changed = !c.images.saveable || c.flushes != 0 || self.checked_only || !self.probes.is_empty();
        if changed || self.vfork.is_some() || self.trial.is_some() || files_are_limited() {
            return;
        }
        let fd = self.hidden.translations;
        // Somebody may have done the same meanwhile.
        let there = with_header(fd, |header| best(header, key)).flatten().map_or(0, |(blocks, ..)| blocks);
        if there >= all - new / 2 {
            return;
        }
        let parts = self.parts();
        let mut file = File { fd: fd as u64, at: 0, end: PAGE, whole: true };
        let mut head = self.lay_out_tables(&parts, &mut file);
        let tables = file.end;
        for (n, end) in head.ends.into_iter().enumerate() {
            head.code[n] = file.end;
            file.end += (end - PARTS[n]).next_multiple_of(PAGE);
        }
        let room = with_header(fd, |header| header.next.fetch_add(file.end, AcqRel));
        let Some(at) = room.filter(|at| at + file.end <= MOST) else { return };
        file.at = HEADER + at;
        self.write(&head, &parts, &mut file);
        if !file.whole {
            return;
        }
        with_header(fd, |header| {
            let n = header.taken.fetch_add(1, AcqRel) as usize;
            if let Some(entry) = header.entries.get(n).filter(|_| n < ENTRIES) {
                entry.key.store(key, Relaxed);
                entry.at.store(file.at, Relaxed);
                entry.tables.store(tables, Relaxed);
                entry.blocks.store(all, Relaxed);
                entry.ready.store(1, Release);
            }
        });
    }

    fn parts(&self) -> Parts {
        let c = &self.cache;
        let of_image = |b: &Block| c.images.list.get(b.image as usize).is_some_and(|i| i.state != State::Left);
        let mut by_pc = PcTable::with_room(c.blocks.len());
        let mut blocks = c.blocks.clone();
        let mut indirect = Vec::new();
        for (n, b) in blocks.iter_mut().enumerate() {
            b.in_hash = false;
            b.valid &= of_image(b);
            if b.valid && c.by_pc.get(b.pc) == Some(n as u32) {
                by_pc.insert(b.pc, n as u32);
                if b.direct != 0 && b.linkable {
                    indirect.push((b.image, b.pc, n as u32));
                }
            }
        }
        indirect.sort_unstable();
        let (mut images, mut all) = (c.images.list.clone(), Vec::new());
        let mut first = 0;
        for (n, image) in images.iter_mut().enumerate() {
            let targets = indirect[first..].iter().take_while(|(i, ..)| *i as usize == n).count();
            image.targets = (first as u64, targets as u64);
            first += targets;
            let pages = self.digests_of(image);
            image.digests = (all.len() as u64, pages.len() as u64);
            all.extend(pages);
            if image.state == State::Left {
                (image.start, image.end) = (NOWHERE, NOWHERE);
            }
        }
        let mut features = Vec::new();
        for record in &self.feature_records {
            features.extend_from_slice(&(record.len() as u32).to_le_bytes());
            features.extend_from_slice(record);
        }
        Parts {
            blocks,
            by_pc,
            images,
            digests: all,
            targets: indirect.into_iter().map(|(_, _, block)| block).collect(),
            hubs: c.hubs.iter().map(|(pc, (hub, stub))| [*pc, *hub, *stub]).collect(),
            sites: self.checked_sites.keys().copied().collect(),
            features,
        }
    }

    /// The pages that had a say in translations of `image`, and what they hold.
    fn digests_of(&self, image: &Image) -> Vec<[u64; 2]> {
        match image.state {
            State::Left => Vec::new(),
            State::Asleep | State::Refused => digests(image).to_vec(),
            State::Own | State::Awake => {
                let known = digests(image).iter().map(|d| d[0]);
                let mut pages: Vec<u64> =
                    known.chain(self.pages.addresses().filter(|page| image.contains(*page))).collect();
                pages.sort_unstable();
                pages.dedup();
                pages.into_iter().map(|page| [page, digest_of_page(page)]).collect()
            }
        }
    }

    fn lay_out_tables(&self, parts: &Parts, file: &mut File) -> Head {
        let c = &self.cache;
        let (slots, taken) = parts.by_pc.slots();
        Head {
            magic: MAGIC,
            blocks: file.growing(&parts.blocks),
            events: file.growing(&c.events),
            exits: file.growing(&c.exits),
            slots: file.fixed(slots),
            images: file.fixed(&parts.images),
            digests: file.fixed(&parts.digests),
            targets: file.fixed(&parts.targets),
            hubs: file.fixed(&parts.hubs),
            sites: file.fixed(&parts.sites),
            features: file.fixed(&parts.features),
            taken: taken as u64,
            code: [0; 4],
            ends: c.ends(),
        }
    }

    fn write(&self, head: &Head, parts: &Parts, file: &mut File) {
        let c = &self.cache;
        file.put(&head.blocks, &parts.blocks);
        file.put(&head.events, &c.events);
        file.put(&head.exits, &c.exits);
        file.put(&head.slots, parts.by_pc.slots().0);
        file.put(&head.images, &parts.images);
        file.put(&head.digests, &parts.digests);
        file.put(&head.targets, &parts.targets);
        file.put(&head.hubs, &parts.hubs);
        file.put(&head.sites, &parts.sites);
        file.put(&head.features, &parts.features);
        for (n, end) in head.ends.into_iter().enumerate() {
            file.write(head.code[n], PARTS[n] as *const u8, end - PARTS[n]);
        }
        file.write(0, (head as *const Head).cast(), size_of::<Head>() as u64);
    }
}

/// Would a write to a file be punished with a signal? The limit is the guest's.
fn files_are_limited() -> bool {
    const RLIMIT_FSIZE: u64 = 1;
    let mut limit = [0u64; 2];
    // SAFETY: the kernel writes two words.
    unsafe { sys::raw3(nr::GETRLIMIT, RLIMIT_FSIZE, limit.as_mut_ptr() as u64, 0) };
    limit[0] < MOST * 2
}

/// An entry being written.
struct File {
    fd: u64,
    /// Where it begins in the pool.
    at: u64,
    /// Its bytes so far.
    end: u64,
    /// Everything was written.
    whole: bool,
}

impl File {
    /// A table that may grow where it is: as long as an allocation of that size would be.
    fn growing<T>(&mut self, items: &[T]) -> Table {
        let wanted = (items.len() + items.len() / 8 + 1024) * size_of::<T>();
        let room = heap::room(wanted);
        self.table(items.len(), room / size_of::<T>(), room)
    }

    fn fixed<T>(&mut self, items: &[T]) -> Table {
        let room = heap::room(size_of_val(items));
        self.table(items.len(), items.len(), room)
    }

    fn table(&mut self, items: usize, room: usize, bytes: usize) -> Table {
        let table = Table { at: self.end, items: items as u64, room: room as u64 };
        self.end += (bytes as u64).next_multiple_of(PAGE);
        table
    }

    fn put<T>(&mut self, table: &Table, items: &[T]) {
        self.write(table.at, items.as_ptr().cast(), size_of_val(items) as u64);
    }

    fn write(&mut self, at: u64, from: *const u8, len: u64) {
        const PWRITE: u64 = 18;
        let mut done = 0;
        while done < len {
            // SAFETY: the kernel reads memory of ours that the caller owns.
            let n = unsafe { sys::raw(PWRITE, [self.fd, from as u64 + done, len - done, self.at + at + done, 0, 0]) };
            if n <= 0 {
                self.whole = false;
                return;
            }
            done += n as u64;
        }
    }
}
