//! Pages that translations were made from: who lives there, and which of them are write-protected because of it.
//!
//! A writable page with translations loses its write permission; a guest store to it faults, the translations go, the
//! permission comes back and the store is retried by itself. A page that this happens to often (code beside data, a
//! trampoline on the stack) is not protected any more; its code is translated anew, one instruction at a time, before each
//! entry.

use crate::address_map::AddressMap;
use crate::cache::BlockIndex;
use alloc::vec::Vec;

/// Faults after which a page is not protected any more.
const MAX_FAULTS: u16 = 24;

#[derive(Default)]
pub struct CodePage {
    pub blocks: Vec<BlockIndex>,
    pub protected: bool,
    faults: u16,
}

#[derive(Default)]
pub struct CodePages {
    pages: AddressMap<CodePage>,
    /// How many pages are restless, and how many are protected: usually none, and then nothing needs to be looked up.
    restless: u32,
    protected: u32,
}

impl CodePages {
    /// Notes that `block` was made from `start..end`; `protect` takes write permission from a page, if it has any.
    pub fn add(&mut self, start: u64, end: u64, block: BlockIndex, mut protect: impl FnMut(u64) -> bool) {
        for page in (start >> 12)..=((end - 1) >> 12) {
            let p = self.pages.entry(page).or_default();
            p.blocks.push(block);
            if !p.protected && !p.restless() {
                p.protected = protect(page << 12);
                self.protected += p.protected as u32;
            }
        }
    }

    /// Notes that the bytes of `start..end` had a say in a translation.
    pub fn note_read(&mut self, start: u64, end: u64) {
        for page in (start >> 12)..=((end - 1) >> 12) {
            self.pages.entry(page).or_default();
        }
    }

    /// The pages that had a say in translations.
    pub fn addresses(&self) -> impl Iterator<Item = u64> {
        self.pages.keys().map(|page| page << 12)
    }

    pub fn is_protected(&self, page: u64) -> bool {
        self.pages.get(&(page >> 12)).is_some_and(|p| p.protected)
    }

    /// Does this page change too often to be protected?
    pub fn is_restless(&self, page: u64) -> bool {
        self.restless != 0 && self.pages.get(&(page >> 12)).is_some_and(|p| p.restless())
    }

    pub fn any_restless(&self, start: u64, end: u64) -> bool {
        self.restless != 0 && ((start >> 12)..=((end - 1) >> 12)).any(|p| self.is_restless(p << 12))
    }

    /// A store hit the page: its blocks, which the caller invalidates. The page is no longer protected.
    pub fn written(&mut self, page: u64) -> Vec<BlockIndex> {
        match self.pages.get_mut(&(page >> 12)) {
            Some(p) => {
                self.protected -= p.protected as u32;
                p.protected = false;
                let blocks = core::mem::take(&mut p.blocks);
                self.note_fault(page);
                blocks
            }
            None => Vec::new(),
        }
    }

    /// The contents of the page changed.
    pub fn note_fault(&mut self, page: u64) {
        if let Some(p) = self.pages.get_mut(&(page >> 12)) {
            p.faults = p.faults.saturating_add(1);
            self.restless += (p.faults == MAX_FAULTS) as u32;
        }
    }

    /// Mappings of `start..end` change: all blocks there, and the pages that are protected. They are all forgotten.
    pub fn take(&mut self, start: u64, end: u64) -> (Vec<BlockIndex>, Vec<u64>) {
        let (first, last) = (start >> 12, end.saturating_sub(1) >> 12);
        let (mut blocks, mut protected) = (Vec::new(), Vec::new());
        let among: Vec<u64> = if last - first > self.pages.len() as u64 {
            self.pages.keys().copied().filter(|p| (first..=last).contains(p)).collect()
        } else {
            (first..=last).collect()
        };
        for page in among {
            if let Some(p) = self.pages.remove(&page) {
                self.restless -= p.restless() as u32;
                self.protected -= p.protected as u32;
                protected.extend(p.protected.then_some(page << 12));
                blocks.extend(p.blocks);
            }
        }
        (blocks, protected)
    }

    /// Blocks made from the page of `at`.
    pub fn blocks_on(&self, at: u64) -> Vec<BlockIndex> {
        self.pages.get(&(at >> 12)).map_or(Vec::new(), |p| p.blocks.clone())
    }

    /// Is any page protected?
    pub fn any_protected(&self) -> bool {
        self.protected != 0
    }

    /// The cache was flushed: no blocks any more, protection stays until written.
    pub fn clear_blocks(&mut self) {
        for p in self.pages.values_mut() {
            p.blocks.clear();
        }
    }
}

impl CodePage {
    fn restless(&self) -> bool {
        self.faults >= MAX_FAULTS
    }
}
