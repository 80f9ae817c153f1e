//! An input made from parts of others, with where its bytes come from, and the parts into which inputs are cut.

use std::ops::Range;

/// Bytes, each with its place in the failing input that was given, if it is from there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Input {
    pub bytes: Vec<u8>,
    origins: Vec<u64>,
}

/// A byte of the passing input that was given.
const ELSEWHERE: u64 = u64::MAX;

impl Input {
    /// The failing input that was given.
    pub fn new(bytes: &[u8]) -> Input {
        Input { bytes: bytes.to_vec(), origins: (0..bytes.len() as u64).collect() }
    }

    /// Another input, nothing of which is from there.
    pub fn other(bytes: &[u8]) -> Input {
        Input { bytes: bytes.to_vec(), origins: vec![ELSEWHERE; bytes.len()] }
    }

    /// Where a byte was in the failing input that was given.
    pub fn origin(&self, at: usize) -> Option<u64> {
        self.origins.get(at).copied().filter(|o| *o != ELSEWHERE)
    }

    pub(super) fn append(&mut self, other: &Input, range: Range<usize>) {
        self.bytes.extend_from_slice(&other.bytes[range.clone()]);
        self.origins.extend_from_slice(&other.origins[range]);
    }
}

/// How finely inputs are cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grain {
    Lines,
    /// Words, stretches of blanks, and every other byte by itself.
    Words,
    Bytes,
}

impl Grain {
    pub const ALL: [Grain; 3] = [Grain::Lines, Grain::Words, Grain::Bytes];

    /// The parts of an input, in order; together they are all of it.
    pub fn parts(self, bytes: &[u8]) -> Vec<Range<usize>> {
        let mut parts = Vec::new();
        let mut start = 0;
        for end in 1..=bytes.len() {
            let next = bytes.get(end);
            if next.is_none_or(|next| self.cuts(bytes[end - 1], *next)) {
                parts.push(start..end);
                start = end;
            }
        }
        parts
    }

    /// Does a part end between these bytes?
    fn cuts(self, before: u8, behind: u8) -> bool {
        match self {
            Grain::Lines => before == b'\n',
            Grain::Words => kind(before) == Kind::Single || kind(before) != kind(behind),
            Grain::Bytes => true,
        }
    }
}

#[derive(PartialEq, Eq)]
enum Kind {
    Word,
    Blank,
    Single,
}

fn kind(byte: u8) -> Kind {
    match byte {
        b'_' | 0x80.. => Kind::Word,
        b' ' | b'\t' => Kind::Blank,
        _ if byte.is_ascii_alphanumeric() => Kind::Word,
        _ => Kind::Single,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_parts(grain: Grain, text: &str, expected: &[&str]) {
        let parts: Vec<&str> = grain.parts(text.as_bytes()).into_iter().map(|r| &text[r]).collect();
        assert_eq!(parts, expected);
    }

    #[test]
    fn inputs_are_cut_into_lines_words_and_bytes() {
        check_parts(Grain::Lines, "", &[]);
        check_parts(Grain::Lines, "a\n\nb", &["a\n", "\n", "b"]);
        check_parts(Grain::Words, "if (x_1==22)  é\n", &["if", " ", "(", "x_1", "=", "=", "22", ")", "  ", "é", "\n"]);
        check_parts(Grain::Bytes, "ab", &["a", "b"]);
    }
}
