//! Numbers in the order in which they came, in two bytes each where they are near something, readable at any place.
//!
//! ```text
//! words   12  7  F0  12  F1  F0 …  | F0 …        below `FAR` what the number is itself, else which one of its piece's far ones
//! far     [70000, EVENTS]          | [81234]     one list per piece of `PIECE` numbers
//! ```
//! A piece has no more different numbers than words, so there are always enough words for far ones; what repeats (a call that
//! decides about a long loop) takes four bytes once per piece. `Blocks` keeps numbers as they are, `Parents` their distance
//! back from where they stand.
//!
//! Guarantees: what was put in comes out, whatever it is; at worst it takes six bytes.

use crate::wants::FastMap;

/// Words from here on name far numbers.
const FAR: u16 = 0xc000;
/// Numbers in a piece: as many as there are words for far ones.
const PIECE: usize = 1 << PIECE_BITS;
const PIECE_BITS: u32 = 14;

/// Words, and what they stand for where they are not numbers themselves.
#[derive(Default)]
struct Column {
    words: Vec<u16>,
    far: Vec<u32>,
    /// For each piece where its far numbers begin.
    begins: Vec<u32>,
    /// The far numbers of the last piece.
    known: FastMap<u32, u16>,
}

impl Column {
    /// Adds a number that is `far`, or in other words `near`.
    #[inline(always)]
    fn push(&mut self, near: u32, far: u32) {
        if self.words.len().is_multiple_of(PIECE) {
            self.begin_piece();
        }
        let word = if near < u32::from(FAR) { near as u16 } else { self.far_word(far) };
        self.words.push(word);
    }

    #[cold]
    fn begin_piece(&mut self) {
        self.begins.push(self.far.len() as u32);
        self.known.clear();
    }

    fn far_word(&mut self, number: u32) -> u16 {
        if let Some(word) = self.known.get(&number) {
            return *word;
        }
        let word = FAR + self.known.len() as u16;
        self.far.push(number);
        self.known.insert(number, word);
        word
    }

    /// The number at a place, or how near it is.
    #[inline(always)]
    fn at(&self, n: usize) -> Result<u32, u32> {
        let word = self.words[n];
        if word < FAR { Err(u32::from(word)) } else { Ok(self.far_at(n, word)) }
    }

    fn far_at(&self, n: usize, word: u16) -> u32 {
        self.far[self.begins[n >> PIECE_BITS] as usize + usize::from(word - FAR)]
    }

    /// Nothing more will come.
    fn close(&mut self) {
        self.words.shrink_to_fit();
        self.far.shrink_to_fit();
        self.known = FastMap::default();
    }

    fn bytes(&self) -> usize {
        self.words.capacity() * 2 + (self.far.capacity() + self.begins.capacity()) * 4
    }
}

/// Numbers of blocks, most of which are small.
#[derive(Default)]
pub struct Blocks(Column);

impl Blocks {
    #[inline(always)]
    pub fn push(&mut self, number: u32) {
        self.0.push(number, number);
    }

    #[inline(always)]
    pub fn at(&self, execution: usize) -> u32 {
        self.0.at(execution).unwrap_or_else(|near| near)
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + ExactSizeIterator + '_ {
        (0..self.len()).map(|n| self.at(n))
    }

    pub fn len(&self) -> usize {
        self.0.words.len()
    }

    pub fn close(&mut self) {
        self.0.close();
    }

    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

/// For each segment the one that decided about it, which mostly ran not long before.
#[derive(Default)]
pub struct Parents(Column);

impl Parents {
    pub fn with_capacity(segments: usize) -> Parents {
        Parents(Column { words: Vec::with_capacity(segments), ..Column::default() })
    }

    #[inline(always)]
    pub fn push(&mut self, parent: u32) {
        let segment = self.len() as u32;
        self.0.push(segment.wrapping_sub(parent), parent);
    }

    #[inline(always)]
    pub fn at(&self, segment: u32) -> u32 {
        self.0.at(segment as usize).unwrap_or_else(|near| segment.wrapping_sub(near))
    }

    pub fn get(&self, segment: u32) -> Option<u32> {
        ((segment as usize) < self.len()).then(|| self.at(segment))
    }

    pub fn len(&self) -> usize {
        self.0.words.len()
    }

    pub fn close(&mut self) {
        self.0.close();
    }

    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both columns give back what they got.
    fn check(numbers: impl Iterator<Item = u32> + Clone, most_bytes_each: f64) {
        let (mut blocks, mut parents) = (Blocks::default(), Parents::default());
        for n in numbers.clone() {
            blocks.push(n);
            parents.push(n);
        }
        blocks.close();
        parents.close();
        assert!(blocks.iter().eq(numbers.clone()));
        assert!((0..parents.len() as u32).map(|s| parents.at(s)).eq(numbers.clone()));
        let least = blocks.bytes().min(parents.bytes()) as f64;
        assert!(least <= most_bytes_each * numbers.count().max(1) as f64, "{least}");
    }

    #[test]
    fn numbers_come_back_as_they_were_whatever_they_are() {
        let edges = [0, 1, 0xbfff, 0xc000, 0xffff, 0x10000, u32::MAX - (1 << 20), u32::MAX - 1, u32::MAX];
        check(edges.into_iter().cycle().take(100_000), 2.1);
        // All of a piece are different and far from everything.
        check((0..100_000u32).map(|n| n.wrapping_mul(0x9e37_79b9) | 1 << 30), 6.1);
        check(std::iter::empty(), 0.0);
    }

    #[test]
    fn what_is_near_or_repeats_takes_two_bytes() {
        check((0..200_000u32).map(|n| n.saturating_sub(n % 1000)), 2.1);
        check((0..200_000u32).map(|n| if n % 2 == 0 { 7_000_000 } else { n % 1000 }), 2.1);
    }
}
