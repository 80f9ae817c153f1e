//! Stretches of a window that a backward walk may pass over at once.
//!
//! What a slice still wants after a while is mostly memory that was written long before. For each stretch of executions it
//! can be told, without going through it, that it wrote none of that: from a filter of all it wrote. Filters are made when they
//! are first asked for, so a window that is never sliced, and a slice that wants too much for them, pay nothing.
//!
//! Guarantees: a stretch that is passed over wrote nothing of what was asked for. May miss: chances to pass over one, where
//! a filter says yes by accident (one in five hundred for each group of eight bytes) or something happened outside of blocks.

use std::sync::OnceLock;

use crate::addresses::Addresses;
use crate::code::{Code, Outline, Store};

/// Executions in a stretch.
pub const STRETCH: usize = 1 << 14;
/// Bits of a filter: a stretch writes to one to two thousand different groups.
const BITS: usize = 1 << 16;

/// How far the other arrays are where a stretch begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begin {
    pub address: usize,
    pub segment: u32,
    /// Runs of events before it.
    pub runs: u32,
}

/// The stretches of a window; the executions behind the last complete one belong to none.
#[derive(Default)]
pub struct Stretches {
    begins: Vec<Begin>,
    written: Vec<OnceLock<Box<Written>>>,
}

impl Stretches {
    /// A further stretch begins.
    pub fn begin(&mut self, at: Begin) {
        self.begins.push(at);
        self.written.push(OnceLock::new());
    }

    /// Where a stretch begins, if it is complete and only blocks ran in it.
    pub fn plain(&self, number: usize) -> Option<Begin> {
        let (begin, next) = (self.begins.get(number)?, self.begins.get(number + 1)?);
        (begin.runs == next.runs).then_some(*begin)
    }

    /// What a stretch wrote; `make` says it when it is asked for the first time.
    pub fn written(&self, number: usize, make: impl FnOnce() -> Box<Written>) -> Option<&Written> {
        Some(self.written.get(number)?.get_or_init(make))
    }
}

/// Groups of eight bytes that were written to, and by accident a few more.
pub struct Written {
    bits: [u64; BITS / 64],
}

/// Where a filter is looked at for a group.
#[derive(Clone, Copy)]
pub struct Look(u16, u16);

impl Look {
    /// For the group of an address, which is an eighth of it.
    pub fn at(group: u64) -> Look {
        let mixed = group.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Look((mixed >> 48) as u16, (mixed >> 32) as u16)
    }
}

impl Written {
    /// By these blocks, whose accesses are at `addresses` from `first` on.
    pub fn by(
        blocks: impl Iterator<Item = u32>,
        (outlines, codes): (&[Outline], &[Code]),
        addresses: &Addresses,
        mut first: usize,
    ) -> Box<Written> {
        let mut written = Box::new(Written { bits: [0; BITS / 64] });
        for number in blocks {
            let outline = &outlines[number as usize];
            let mut store = |n: u16, size: u32| {
                if size != 0 {
                    written.add(addresses.at(first + usize::from(n)), size);
                }
            };
            match outline.store {
                Store::None => {}
                Store::One(n, size) => store(n, size),
                Store::Other => codes[number as usize].stores.iter().for_each(|(n, size)| store(*n, *size)),
            }
            first += outline.accesses as usize;
        }
        written
    }

    fn add(&mut self, addr: u64, size: u32) {
        let last = addr.saturating_add(u64::from(size) - 1);
        for group in addr >> 3..=last >> 3 {
            let Look(a, b) = Look::at(group);
            for bit in [a, b] {
                self.bits[usize::from(bit) / 64] |= 1 << (bit % 64);
            }
        }
    }

    /// May it have been written to?
    pub fn may_have(&self, Look(a, b): Look) -> bool {
        let is = |bit: u16| self.bits[usize::from(bit) / 64] >> (bit % 64) & 1 != 0;
        is(a) && is(b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_known_and_little_else() {
        let mut written = Box::new(Written { bits: [0; BITS / 64] });
        (0..1500u64).for_each(|n| written.add(0x7fff_0000 + n * 40, 12));
        let has = |addr: u64| written.may_have(Look::at(addr >> 3));
        assert!((0..1500u64).all(|n| (0..12).all(|byte| has(0x7fff_0000 + n * 40 + byte))));
        let wrong = (0..10_000u64).filter(|n| has(0x5555_0000 + n * 8)).count();
        assert!(wrong < 200, "{wrong}");
    }

    #[test]
    fn stretches_with_events_are_not_plain() {
        let mut stretches = Stretches::default();
        let begin = |n: usize, runs: u32| Begin { address: n * 10, segment: n as u32, runs };
        [begin(0, 0), begin(1, 0), begin(2, 3), begin(3, 3)].into_iter().for_each(|b| stretches.begin(b));
        assert_eq!(stretches.plain(0), Some(begin(0, 0)));
        assert_eq!(stretches.plain(1), None);
        assert_eq!(stretches.plain(2), Some(begin(2, 3)));
        // The last one is not complete.
        assert_eq!(stretches.plain(3), None);
    }
}
