//! What a program writes while it is recorded, beside what it should write: whether it can still become right.
//!
//! The bytes themselves are forgotten; they are in the recording. Where both streams together are expected, only how much
//! was written counts, because in which order it was written is not known here.

use diagnose::Oracle;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// So much more than expected is no slip of the pen: the program goes round and round.
const FAR: usize = 1 << 20;

/// What has been written so far.
#[derive(Default)]
pub struct Heard {
    /// What is to be written to standard output and standard error.
    expected: [Option<Vec<u8>>; 2],
    /// How long both are together.
    both: Option<usize>,
    written: [usize; 2],
    /// Since when it cannot become right.
    wrong_since: Option<Instant>,
}

/// Who listens to the guest.
pub type Ears = Arc<Mutex<Heard>>;

impl Heard {
    pub fn for_oracle(oracle: Option<&Oracle>) -> Ears {
        let of = |oracle: &Oracle| Heard {
            expected: [oracle.stdout.clone(), oracle.stderr.clone()],
            both: oracle.both.as_ref().map(Vec::len),
            ..Heard::default()
        };
        Arc::new(Mutex::new(oracle.map(of).unwrap_or_default()))
    }

    /// The guest writes to standard output (0) or standard error (1).
    fn hear(&mut self, stream: usize, bytes: &[u8], now: Instant) {
        let at = self.written[stream];
        self.written[stream] += bytes.len();
        let differs = |expected: &Vec<u8>| !expected.get(at..).is_some_and(|rest| rest.starts_with(bytes));
        let wrong = self.expected[stream].as_ref().is_some_and(differs);
        if wrong || self.both.is_some_and(|both| self.written.iter().sum::<usize>() > both) {
            self.wrong_since.get_or_insert(now);
        }
    }

    /// Since when what was written is wrong for good.
    pub fn wrong_since(&self) -> Option<Instant> {
        self.wrong_since
    }

    /// Is it wrong, and far more than was expected?
    pub fn is_far_off(&self) -> bool {
        let expected = self.both.unwrap_or(0) + self.expected.iter().flatten().map(Vec::len).sum::<usize>();
        self.wrong_since.is_some() && self.written.iter().sum::<usize>() > expected + FAR
    }
}

/// A pipe whose other end is read and, but for whether it can become right, forgotten.
pub fn drained(stream: usize, ears: Ears) -> Option<OwnedFd> {
    let (mut reader, writer) = std::io::pipe().ok()?;
    std::thread::spawn(move || {
        let mut buffer = [0; 1 << 16];
        while let Ok(n) = reader.read(&mut buffer)
            && n > 0
        {
            ears.lock().unwrap_or_else(PoisonError::into_inner).hear(stream, &buffer[..n], Instant::now());
        }
    });
    Some(writer.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(oracle: &Oracle, written: &[(usize, &str)], is_wrong: bool) {
        let ears = Heard::for_oracle(Some(oracle));
        let mut heard = ears.lock().expect("nobody else has it");
        written.iter().for_each(|(stream, text)| heard.hear(*stream, text.as_bytes(), Instant::now()));
        assert_eq!(heard.wrong_since().is_some(), is_wrong, "{written:?}");
        assert!(!heard.is_far_off());
        heard.hear(0, &[b'x'; FAR + 9], Instant::now());
        assert_eq!(heard.is_far_off(), heard.wrong_since().is_some());
    }

    #[test]
    fn what_is_written_is_wrong_as_soon_as_it_cannot_become_right() {
        let oracle = Oracle { stdout: Some(b"12\n".into()), ..Oracle::default() };
        check(&oracle, &[(0, "1"), (0, "2\n"), (1, "anything")], false);
        check(&oracle, &[(0, "1"), (0, "3")], true);
        check(&oracle, &[(0, "12\n"), (0, "1")], true);
        let both = Oracle { both: Some(b"12".into()), ..Oracle::default() };
        check(&both, &[(1, "2"), (0, "1")], false);
        check(&both, &[(0, "1"), (1, "2"), (0, "3")], true);
        check(&Oracle::default(), &[(0, "1")], false);
    }
}
