//! A small generator of random numbers with a fixed seed (splitmix64), so that samples are the same everywhere.
//!
//! Source: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (2014).

#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is not zero. The bias is too small to matter here.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Keeps `n` elements of `items`, chosen at random, in their order.
    pub fn sample<T>(&mut self, items: Vec<T>, n: usize) -> Vec<T> {
        let mut keep = vec![false; items.len()];
        let mut places: Vec<usize> = (0..items.len()).collect();
        for _ in 0..n.min(items.len()) {
            let i = self.below(places.len() as u64) as usize;
            keep[places.swap_remove(i)] = true;
        }
        items.into_iter().zip(keep).filter_map(|(item, keep)| keep.then_some(item)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_keeps_the_order_and_the_number() {
        let sample = Random::new(3).sample((0..100).collect(), 10);
        assert_eq!(sample.len(), 10);
        assert!(sample.is_sorted());
        assert_eq!(sample, Random::new(3).sample((0..100).collect(), 10));
        assert_eq!(Random::new(3).sample(vec![1, 2], 10), [1, 2]);
    }
}
