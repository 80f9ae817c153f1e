//! The reading end of the trace ring, which the engine fills from the guest's process.
//!
//! Buffers come in the order in which they were filled. One is given back when its [`Buffer`] is dropped; until then the
//! engine does not touch it, and waits when all are taken. Nothing here hangs: [`RingReader::wait`] returns after the
//! time it is given, and the caller, who knows whether the engine still lives, decides whether to go on. After the
//! engine's death what it had handed over is still there to be read, until `wait` gives [`Turn::TimedOut`]; what it had
//! not is lost.
//!
//! Definitions of blocks come another way (the control socket), but always before the first buffer that uses them is
//! handed over: when a buffer has come, read all definitions that are waiting, then the buffer.
//!
//! Nothing in the memory is trusted: counts that make no sense are errors.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use crate::format::*;
use crate::mapping::{Mapping, wait, wake};

/// No wait needs to be longer, and the clock cannot overflow.
const LONGEST: Duration = Duration::from_secs(86_400);

/// What is wrong with a ring.
#[derive(Debug)]
pub enum RingError {
    /// It cannot be mapped.
    Map(io::Error),
    /// It does not start as a ring of this version does.
    NotARing,
    /// So many buffers of such a size cannot be.
    BadGeometry { buffers: u32, size: u32 },
    /// More buffers were handed over than there are.
    BadCount { produced: u32, consumed: u32 },
    /// A buffer claims more bytes than it has.
    BadLength { buffer: u32, used: u32 },
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RingError::Map(e) => write!(f, "the trace ring cannot be mapped: {e}"),
            RingError::NotARing => write!(f, "the trace ring has a false head"),
            RingError::BadGeometry { buffers, size } => {
                write!(f, "the trace ring cannot have {buffers} buffers of {size} bytes")
            }
            RingError::BadCount { produced, consumed } => {
                write!(f, "the trace ring's counts are damaged ({produced} produced, {consumed} consumed)")
            }
            RingError::BadLength { buffer, used } => {
                write!(f, "the length of trace buffer {buffer} is damaged ({used} bytes)")
            }
        }
    }
}

impl std::error::Error for RingError {}

/// The reading end of a ring.
#[derive(Debug)]
pub struct RingReader {
    mapping: Mapping,
    buffers: u32,
    size: u32,
    /// How many buffers have been given back. The shared word is for the engine to read only.
    consumed: u32,
}

/// What came of waiting.
#[derive(Debug)]
pub enum Turn<'a> {
    Buffer(Buffer<'a>),
    /// The engine has closed the ring and everything has been read.
    Closed,
    /// Nothing came in time.
    TimedOut,
}

impl RingReader {
    /// Maps a ring that the engine has made.
    pub fn open(file: impl AsFd) -> Result<RingReader, RingError> {
        let head = Mapping::new(&file, RING_PAGE).map_err(RingError::Map)?;
        let word = |at: usize| head.word(at).load(Relaxed);
        if word(AT_MAGIC) != RING_MAGIC || word(AT_VERSION) != RING_VERSION {
            return Err(RingError::NotARing);
        }
        let (buffers, size) = (word(AT_BUFFERS), word(AT_SIZE));
        if !(1..=MAX_BUFFERS).contains(&buffers) || size == 0 || !(size as usize).is_multiple_of(RING_PAGE) {
            return Err(RingError::BadGeometry { buffers, size });
        }
        let consumed = word(AT_CONSUMED);
        let mapping = Mapping::new(&file, ring_bytes(buffers, size)).map_err(RingError::Map)?;
        Ok(RingReader { mapping, buffers, size, consumed })
    }

    /// Waits for the next buffer, at most for `time`.
    pub fn wait(&mut self, time: Duration) -> Result<Turn<'_>, RingError> {
        let deadline = Instant::now() + time.min(LONGEST);
        loop {
            // Read before `produced`: what was handed over before the ring was closed is then seen too.
            let closed = self.mapping.word(AT_CLOSED).load(Acquire) != 0;
            let produced = self.mapping.word(AT_PRODUCED).load(Acquire);
            if produced != self.consumed {
                return self.next(produced).map(Turn::Buffer);
            }
            if closed {
                return Ok(Turn::Closed);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Turn::TimedOut);
            }
            // The engine wakes this word when it closes the ring, too, but does not change it: so look at it anew from
            // time to time.
            wait(self.mapping.word(AT_PRODUCED), produced, left.min(Duration::from_millis(50)));
        }
    }

    fn next(&mut self, produced: u32) -> Result<Buffer<'_>, RingError> {
        let consumed = self.consumed;
        if pending(produced, consumed) > self.buffers {
            return Err(RingError::BadCount { produced, consumed });
        }
        let buffer = consumed % self.buffers;
        let used = self.mapping.word(AT_USED + 4 * buffer as usize).load(Relaxed);
        if used > self.size {
            return Err(RingError::BadLength { buffer, used });
        }
        Ok(Buffer { at: buffer_offset(buffer, self.size), len: used as usize, reader: self })
    }
}

/// A buffer in the hands of the host; dropping it gives it back to the engine.
#[derive(Debug)]
pub struct Buffer<'a> {
    reader: &'a mut RingReader,
    at: usize,
    len: usize,
}

impl Deref for Buffer<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.reader.mapping.bytes(self.at, self.len)
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        self.reader.consumed = self.reader.consumed.wrapping_add(1);
        let word = self.reader.mapping.word(AT_CONSUMED);
        word.store(self.reader.consumed, Release);
        wake(word);
    }
}

/// The engine's end of a ring, for tests and tools.
#[derive(Debug)]
pub struct RingWriter {
    file: OwnedFd,
    mapping: Mapping,
    buffers: u32,
    size: u32,
    produced: u32,
}

impl RingWriter {
    /// Makes a ring.
    pub fn new(buffers: u32, size: u32) -> io::Result<RingWriter> {
        let file = rustix::fs::memfd_create("trace-ring", rustix::fs::MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, ring_bytes(buffers, size) as u64)?;
        let mapping = Mapping::new(&file, ring_bytes(buffers, size))?;
        let head = [(AT_MAGIC, RING_MAGIC), (AT_VERSION, RING_VERSION), (AT_BUFFERS, buffers), (AT_SIZE, size)];
        for (at, value) in head {
            mapping.word(at).store(value, Relaxed);
        }
        Ok(RingWriter { file, mapping, buffers, size, produced: 0 })
    }

    /// The file to give to the reader.
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Hands over one buffer with these bytes, as soon as one is free. False if none gets free in time.
    pub fn write(&mut self, bytes: &[u8], time: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + time.min(LONGEST);
        let word = self.mapping.word(AT_CONSUMED);
        loop {
            let consumed = word.load(Acquire);
            if pending(self.produced, consumed) < self.buffers {
                break;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            wait(word, consumed, left);
        }
        let buffer = self.produced % self.buffers;
        assert!(bytes.len() <= self.size as usize, "more than a buffer holds");
        let offset = buffer_offset(buffer, self.size);
        let mut done = 0;
        while done < bytes.len() {
            done += rustix::io::pwrite(&self.file, &bytes[done..], (offset + done) as u64)?;
        }
        self.mapping.word(AT_USED + 4 * buffer as usize).store(bytes.len() as u32, Relaxed);
        self.produced = self.produced.wrapping_add(1);
        self.mapping.word(AT_PRODUCED).store(self.produced, Release);
        wake(self.mapping.word(AT_PRODUCED));
        Ok(true)
    }

    /// Hands over nothing more.
    pub fn close(&self) {
        self.mapping.word(AT_CLOSED).store(1, Release);
        wake(self.mapping.word(AT_PRODUCED));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    /// Reads what comes next.
    fn check_next(reader: &mut RingReader, expected: Option<&[u8]>) {
        match (reader.wait(SOON).unwrap(), expected) {
            (Turn::Buffer(b), Some(bytes)) => assert_eq!(&*b, bytes),
            (Turn::Closed, None) => {}
            (turn, _) => panic!("got {turn:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn buffers_come_in_order_and_are_given_back() {
        let mut writer = RingWriter::new(2, 4096).unwrap();
        let mut reader = RingReader::open(writer.file()).unwrap();
        assert!(writer.write(b"one", SOON).unwrap());
        assert!(writer.write(b"two", SOON).unwrap());
        assert!(!writer.write(b"no room", Duration::ZERO).unwrap());
        check_next(&mut reader, Some(b"one"));
        assert!(writer.write(&[3; 4096], SOON).unwrap());
        check_next(&mut reader, Some(b"two"));
        check_next(&mut reader, Some(&[3; 4096]));
        assert!(matches!(reader.wait(Duration::ZERO), Ok(Turn::TimedOut)));
        writer.close();
        check_next(&mut reader, None);
    }

    #[test]
    fn reader_and_writer_wait_for_each_other() {
        let mut writer = RingWriter::new(3, 4096).unwrap();
        let mut reader = RingReader::open(writer.file()).unwrap();
        let engine = std::thread::spawn(move || {
            for n in 0..500u32 {
                assert!(writer.write(&n.to_le_bytes(), SOON).unwrap());
            }
            writer.close();
        });
        for n in 0..500u32 {
            check_next(&mut reader, Some(&n.to_le_bytes()));
        }
        check_next(&mut reader, None);
        engine.join().unwrap();
    }

    #[test]
    fn what_a_dead_engine_handed_over_can_still_be_read() {
        let mut writer = RingWriter::new(2, 4096).unwrap();
        let mut reader = RingReader::open(writer.file()).unwrap();
        assert!(writer.write(b"last words", SOON).unwrap());
        drop(writer);
        check_next(&mut reader, Some(b"last words"));
        assert!(matches!(reader.wait(Duration::from_millis(1)), Ok(Turn::TimedOut)));
    }

    #[test]
    fn counts_wrap_around() {
        let mut writer = RingWriter::new(2, 4096).unwrap();
        let start = u32::MAX - 1;
        writer.produced = start;
        for at in [AT_PRODUCED, AT_CONSUMED] {
            writer.mapping.word(at).store(start, Relaxed);
        }
        let mut reader = RingReader::open(writer.file()).unwrap();
        for n in 0..5u8 {
            assert!(writer.write(&[n], SOON).unwrap());
            check_next(&mut reader, Some(&[n]));
        }
    }

    #[test]
    fn damaged_rings_are_refused() {
        fn check_open(at: usize, value: u32, expected: &str) {
            let writer = RingWriter::new(2, 4096).unwrap();
            writer.mapping.word(at).store(value, Relaxed);
            assert_eq!(RingReader::open(writer.file()).unwrap_err().to_string(), expected);
        }
        check_open(AT_MAGIC, 1, "the trace ring has a false head");
        check_open(AT_VERSION, 2, "the trace ring has a false head");
        check_open(AT_BUFFERS, 0, "the trace ring cannot have 0 buffers of 4096 bytes");
        check_open(AT_BUFFERS, 961, "the trace ring cannot have 961 buffers of 4096 bytes");
        check_open(AT_SIZE, 5, "the trace ring cannot have 2 buffers of 5 bytes");
        check_open(AT_SIZE, 1 << 30, "the trace ring cannot be mapped: the ring's file is too short");

        fn check_wait(at: usize, value: u32, expected: &str) {
            let mut writer = RingWriter::new(2, 4096).unwrap();
            let mut reader = RingReader::open(writer.file()).unwrap();
            assert!(writer.write(b"x", SOON).unwrap());
            writer.mapping.word(at).store(value, Relaxed);
            assert_eq!(reader.wait(SOON).unwrap_err().to_string(), expected);
        }
        check_wait(AT_PRODUCED, 3, "the trace ring's counts are damaged (3 produced, 0 consumed)");
        check_wait(AT_USED, 4097, "the length of trace buffer 0 is damaged (4097 bytes)");
    }
}
