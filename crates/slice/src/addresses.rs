//! The addresses that a window's instructions touched, in four bytes each.
//!
//! A process uses few regions of its address space. The upper bits of a word name one of the first seven that were met, the
//! lower ones the place in it; addresses in further regions are kept whole, and their words say where.

/// Bits of a place in its region.
const PLACE: u32 = 29;
/// In the upper bits of a word: the rest of it is a number among `far`.
const FAR: u32 = 7;

/// Addresses in the order in which they were touched.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    words: Vec<u32>,
    /// Where the regions begin.
    regions: [u64; FAR as usize],
    met: u32,
    far: Vec<u64>,
}

impl Addresses {
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> usize {
        self.words.capacity() * 4 + self.far.capacity() * 8
    }

    pub fn extend(&mut self, addresses: &[u64]) {
        self.words.reserve(addresses.len());
        for address in addresses {
            self.push(*address);
        }
    }

    /// Nothing more will come.
    pub fn close(&mut self) {
        self.words.shrink_to_fit();
        self.far.shrink_to_fit();
    }

    #[inline(always)]
    pub fn push(&mut self, address: u64) {
        let word = self.word(address);
        self.words.push(word);
    }

    #[inline(always)]
    fn word(&mut self, address: u64) -> u32 {
        let region = address >> PLACE << PLACE;
        let place = (address - region) as u32;
        for n in 0..self.met {
            if self.regions[n as usize] == region {
                return n << PLACE | place;
            }
        }
        self.new_region(address, region)
    }

    #[cold]
    fn new_region(&mut self, address: u64, region: u64) -> u32 {
        if self.met < FAR {
            self.regions[self.met as usize] = region;
            self.met += 1;
            return (self.met - 1) << PLACE | (address - region) as u32;
        }
        self.far.push(address);
        FAR << PLACE | (self.far.len() - 1) as u32 & ((1 << PLACE) - 1)
    }

    /// The address of this number.
    #[inline(always)]
    pub fn at(&self, n: usize) -> u64 {
        let word = self.words[n];
        let (region, place) = (word >> PLACE, word & ((1 << PLACE) - 1));
        match self.regions.get(region as usize) {
            Some(start) => start + u64::from(place),
            None => self.far[place as usize],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_were() {
        let mut addresses = Addresses::default();
        let all: Vec<u64> = (0..20u64).flat_map(|n| [n << 40 | 0x1234_5678, n << 30, u64::MAX - n]).collect();
        addresses.extend(&all);
        assert_eq!((0..addresses.len()).map(|n| addresses.at(n)).collect::<Vec<_>>(), all);
    }
}
