//! Which block stands for which guest address: a hash table of plain words.
//!
//! Open addressing with linear probing. Unlike a general map it can be written to a file and used again where it is
//! mapped, because nothing in it is a pointer and an empty slot is all zeros.

use crate::cache::BlockIndex;
use alloc::vec::Vec;

/// One place of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Slot {
    pc: u64,
    block: BlockIndex,
    state: u32,
}

const EMPTY: u32 = 0;
const USED: u32 = 1;
/// Was used: a search goes on behind it.
const LEFT: u32 = 2;
const SMALLEST: usize = 1 << 10;

/// The table of one process.
#[derive(Default)]
pub struct PcTable {
    /// A power of two of them, or none.
    slots: Vec<Slot>,
    /// Slots that are not empty.
    taken: usize,
}

impl PcTable {
    /// With room for `n` addresses.
    pub fn with_room(n: usize) -> PcTable {
        let slots = (n * 2).next_power_of_two().max(SMALLEST);
        PcTable { slots: alloc::vec![Slot::default(); slots], taken: 0 }
    }

    /// A table whose slots are there already.
    pub fn from_slots(slots: Vec<Slot>, taken: usize) -> PcTable {
        PcTable { slots, taken }
    }

    pub fn slots(&self) -> (&[Slot], usize) {
        (&self.slots, self.taken)
    }

    fn first(&self, pc: u64) -> usize {
        let bits = self.slots.len().trailing_zeros();
        (pc.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - bits)) as usize
    }

    /// Where the slot of `pc` is, if it has one.
    fn position(&self, pc: u64) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mask = self.slots.len() - 1;
        let mut at = self.first(pc);
        loop {
            let slot = &self.slots[at];
            match slot.state {
                EMPTY => return None,
                USED if slot.pc == pc => return Some(at),
                _ => at = (at + 1) & mask,
            }
        }
    }

    pub fn get(&self, pc: u64) -> Option<BlockIndex> {
        self.position(pc).map(|at| self.slots[at].block)
    }

    pub fn insert(&mut self, pc: u64, block: BlockIndex) {
        if let Some(at) = self.position(pc) {
            self.slots[at].block = block;
            return;
        }
        if (self.taken + 1) * 4 > self.slots.len() * 3 {
            self.grow();
        }
        let mask = self.slots.len() - 1;
        let mut at = self.first(pc);
        while self.slots[at].state == USED {
            at = (at + 1) & mask;
        }
        self.taken += (self.slots[at].state == EMPTY) as usize;
        self.slots[at] = Slot { pc, block, state: USED };
    }

    pub fn remove(&mut self, pc: u64) {
        if let Some(at) = self.position(pc) {
            self.slots[at].state = LEFT;
        }
    }

    pub fn clear(&mut self) {
        self.slots.fill(Slot::default());
        self.taken = 0;
    }

    fn grow(&mut self) {
        let used = self.slots.iter().filter(|s| s.state == USED).count();
        let mut larger = PcTable::with_room(used + 1);
        self.slots.iter().filter(|s| s.state == USED).for_each(|s| larger.insert(s.pc, s.block));
        *self = larger;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    #[test]
    fn it_answers_as_a_map_does() {
        let (mut table, mut map) = (PcTable::default(), BTreeMap::new());
        let mut random = 1u64;
        for n in 0..200_000u32 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let pc = 0x5555_0000_0000 + (random >> 50);
            match random >> 30 & 3 {
                0 => {
                    table.remove(pc);
                    map.remove(&pc);
                }
                1 => assert_eq!(table.get(pc), map.get(&pc).copied(), "after {n} steps"),
                _ => {
                    table.insert(pc, n);
                    map.insert(pc, n);
                }
            }
        }
        assert!(
            (0..1 << 14).all(|low| table.get(0x5555_0000_0000 + low) == map.get(&(0x5555_0000_0000 + low)).copied())
        );
        table.clear();
        assert_eq!(table.get(0x5555_0000_0000), None);
    }

    #[test]
    fn an_empty_table_holds_nothing() {
        assert_eq!(PcTable::default().get(0), None);
        PcTable::default().remove(0);
    }
}
