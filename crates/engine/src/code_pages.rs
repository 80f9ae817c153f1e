//! Pages that translations were made from: who lives there, and which of them are write-protected because of it.
//!
//! A writable page with translations loses its write permission; a guest store to it faults, the translations go, the
//! permission comes back and the store is retried by itself. A page that this happens to often (code beside data, a
//! trampoline on the stack) is not protected any more; its blocks are compared with memory before each entry instead.

use crate::address_map::AddressMap;
use crate::cache::BlockIndex;
use alloc::vec::Vec;

/// Faults after which a page is watched by comparison.
const PATIENCE: u16 = 24;

#[derive(Default)]
pub struct CodePage {
    pub blocks: Vec<BlockIndex>,
    pub protected: bool,
    faults: u16,
}

#[derive(Default)]
pub struct CodePages {
    pages: AddressMap<CodePage>,
    /// How many pages are restless: usually none, and then nothing needs to be looked up.
    restless: u32,
}

impl CodePages {
    /// Notes that `block` was made from `start..end`. Answers pages that are new and must be protected if writable.
    pub fn add(&mut self, start: u64, end: u64, block: BlockIndex, mut protect: impl FnMut(u64) -> bool) {
        for page in (start >> 12)..=((end - 1) >> 12) {
            let p = self.pages.entry(page).or_default();
            p.blocks.push(block);
            if !p.protected && !p.restless() {
                p.protected = protect(page << 12);
            }
        }
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
                p.protected = false;
                p.faults = p.faults.saturating_add(1);
                self.restless += (p.faults == PATIENCE) as u32;
                core::mem::take(&mut p.blocks)
            }
            None => Vec::new(),
        }
    }

    /// Mappings of `start..end` changed: all blocks there, and the pages are forgotten.
    pub fn take(&mut self, start: u64, end: u64) -> Vec<BlockIndex> {
        let (first, last) = (start >> 12, end.saturating_sub(1) >> 12);
        let mut blocks = Vec::new();
        if last - first > self.pages.len() as u64 {
            let gone: Vec<u64> = self.pages.keys().copied().filter(|p| (first..=last).contains(p)).collect();
            for p in gone {
                blocks.extend(self.pages.remove(&p).into_iter().flat_map(|p| p.blocks));
            }
        } else {
            for p in first..=last {
                blocks.extend(self.pages.remove(&p).into_iter().flat_map(|p| p.blocks));
            }
        }
        blocks
    }

    /// Every protected page.
    pub fn protected(&self) -> impl Iterator<Item = u64> + '_ {
        self.pages.iter().filter(|(_, p)| p.protected).map(|(page, _)| page << 12)
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
        self.faults >= PATIENCE
    }
}
