//! Which of many ranges contain an address.
//!
//! Ranges may overlap and nest, as those of units and symbols do. Sorted by start, with the greatest end so far beside
//! each, so that a lookup stops as soon as nothing further back can reach the address: logarithmic when ranges do not
//! overlap, at worst linear.

/// Ranges with a value each.
#[derive(Debug, Default)]
pub(crate) struct RangeMap {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub begin: u64,
    pub end: u64,
    pub value: u32,
    /// The greatest `end` of this and all earlier entries.
    reach: u64,
}

impl RangeMap {
    /// Takes `(begin, end, value)`; empty and inverted ranges are dropped.
    pub fn new(ranges: impl IntoIterator<Item = (u64, u64, u32)>) -> RangeMap {
        let mut entries: Vec<Entry> = ranges
            .into_iter()
            .filter(|(begin, end, _)| begin < end)
            .map(|(begin, end, value)| Entry { begin, end, value, reach: 0 })
            .collect();
        // Wider first, so that walking backwards meets the narrowest of the ranges with one start first. Equal ranges
        // keep their order reversed: the first one given is met first.
        entries.reverse();
        entries.sort_by_key(|e| (e.begin, u64::MAX - e.end));
        let mut reach = 0;
        for e in &mut entries {
            reach = reach.max(e.end);
            e.reach = reach;
        }
        RangeMap { entries }
    }

    /// All ranges by their start; of those with one start the widest first.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// The ranges that contain `at`, the one that starts last first.
    pub fn at(&self, at: u64) -> impl Iterator<Item = &Entry> {
        let n = self.entries.partition_point(|e| e.begin <= at);
        self.entries[..n].iter().rev().take_while(move |e| e.reach > at).filter(move |e| e.end > at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_at(ranges: &[(u64, u64, u32)], at: u64, expected: &[u32]) {
        let found: Vec<u32> = RangeMap::new(ranges.iter().copied()).at(at).map(|e| e.value).collect();
        assert_eq!(found, expected, "at {at} in {ranges:?}");
    }

    #[test]
    fn every_containing_range_is_found_innermost_first() {
        let ranges = [(0, 100, 1), (10, 20, 2), (10, 15, 3), (30, 40, 4), (7, 7, 5), (9, 3, 6), (10, 15, 7)];
        check_at(&ranges, 12, &[3, 7, 2, 1]);
        check_at(&ranges, 15, &[2, 1]);
        check_at(&ranges, 7, &[1]);
        check_at(&ranges, 99, &[1]);
        check_at(&ranges, 100, &[]);
        check_at(&[], 0, &[]);
        check_at(&[(0, u64::MAX, 1)], u64::MAX, &[]);
    }
}
