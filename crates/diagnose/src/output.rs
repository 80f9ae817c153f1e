//! Output in pieces, as it was written: compared without being put together, and judged while it is still being written.
//!
//! A run may write a hundred megabytes, and a search makes thousands of runs: what was recorded is shared between them, and
//! each byte of a trial is looked at once.

use crate::oracle::{Oracle, Stream};
use std::sync::Arc;

/// A stream (1 or 2) and bytes that were written to it.
pub type Piece = (u8, Arc<[u8]>);

/// How far two outputs are the same, and what each of them has there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Common {
    pub bytes: usize,
    /// The next byte of each; nothing where it ends.
    pub next: [Option<u8>; 2],
}

/// Compares outputs, each given as pieces.
pub fn common<'a, 'b>(a: impl Iterator<Item = &'a [u8]>, b: impl Iterator<Item = &'b [u8]>) -> Common {
    let (mut a, mut b) = (a.filter(|p| !p.is_empty()), b.filter(|p| !p.is_empty()));
    let (mut x, mut y): (&[u8], &[u8]) = (&[], &[]);
    let mut bytes = 0;
    loop {
        if x.is_empty() {
            x = a.next().unwrap_or_default();
        }
        if y.is_empty() {
            y = b.next().unwrap_or_default();
        }
        let len = x.len().min(y.len());
        let (head, other) = (&x[..len], &y[..len]);
        // Blocks are compared faster than bytes.
        let same = if head == other { len } else { head.iter().zip(other).take_while(|(a, b)| a == b).count() };
        bytes += same;
        if same < len || len == 0 {
            return Common { bytes, next: [x.get(same).copied(), y.get(same).copied()] };
        }
        (x, y) = (&x[len..], &y[len..]);
    }
}

/// What is still to be written by a run that is under way, so that it works.
#[derive(Clone, Debug)]
pub struct Hearing<'a> {
    expected: Vec<(Stream, &'a [u8])>,
    may_pass: bool,
}

impl<'a> Hearing<'a> {
    /// Nothing has been written yet.
    pub fn new(oracle: &'a Oracle) -> Hearing<'a> {
        Hearing { expected: oracle.expectations().collect(), may_pass: true }
    }

    /// The run writes; can it still work?
    pub fn hear(&mut self, stream: u8, bytes: &[u8]) -> bool {
        for (_, rest) in self.expected.iter_mut().filter(|(wanted, _)| wanted.holds(stream)) {
            match rest.strip_prefix(bytes) {
                Some(behind) => *rest = behind,
                None => self.may_pass = false,
            }
        }
        self.may_pass
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_common(a: &[&str], b: &[&str], bytes: usize, next: [Option<u8>; 2]) {
        let found = common(a.iter().map(|p| p.as_bytes()), b.iter().map(|p| p.as_bytes()));
        assert_eq!(found, Common { bytes, next }, "{a:?} {b:?}");
    }

    #[test]
    fn outputs_are_compared_however_they_are_cut() {
        check_common(&[], &[], 0, [None, None]);
        check_common(&["abc", "", "def"], &["a", "bcdef"], 6, [None, None]);
        check_common(&["abc"], &["ab", "d"], 2, [Some(b'c'), Some(b'd')]);
        check_common(&["abc", "d"], &["", "abc"], 3, [Some(b'd'), None]);
        check_common(&[""], &["x"], 0, [None, Some(b'x')]);
    }

    #[test]
    fn a_run_can_work_until_it_writes_something_else_or_too_much() {
        let oracle = Oracle { stdout: Some(b"12\n".into()), ..Oracle::default() };
        let mut hearing = Hearing::new(&oracle);
        assert!(hearing.hear(1, b"1"));
        assert!(hearing.hear(2, b"anything"));
        let mut other = hearing.clone();
        assert!(hearing.hear(1, b"2\n"));
        assert!(!hearing.hear(1, b"3"));
        assert!(!hearing.hear(2, b""), "it stays wrong");
        assert!(!other.hear(1, b"3"));
        let both = Oracle { both: Some(b"ab".into()), ..Oracle::default() };
        let mut hearing = Hearing::new(&both);
        assert!(hearing.hear(2, b"a"));
        assert!(hearing.hear(1, b"b"));
        assert!(!hearing.hear(1, b"c"));
        assert!(Hearing::new(&Oracle::default()).hear(1, b"x"));
    }
}
