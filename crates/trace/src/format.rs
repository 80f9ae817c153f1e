//! The bytes of a trace: special records and the layout of the ring.
//!
//! The stream is a sequence of records in execution order, all little endian and unaligned. A record starts with a
//! u32. Below [`FIRST_SPECIAL`] it is the [`tag`] of a block that ran to its end, and the slots of its plan follow
//! ([`crate::plan`]); the others are here. A record never crosses from one buffer into the next.
//!
//! A tag holds the block's id and the length of the record. The length is redundant, but a reader that had to look it
//! up would have to wait for that before it can even begin with the next record; this wait, not the work, would bound
//! its speed.
//!
//! Reading never panics: what is cut off or unknown is `None`.

/// From here on the first word of a record is not a tag but one of the special ids below.
pub const FIRST_SPECIAL: u32 = 0xffff_0000;
pub const THREAD: u32 = 0xffff_0001;
pub const PARTIAL: u32 = 0xffff_0002;
pub const SIGNAL: u32 = 0xffff_0003;
pub const SIGRETURN: u32 = 0xffff_0004;
pub const SYSCALL: u32 = 0xffff_0005;
pub const DIRECTION: u32 = 0xffff_0006;
pub const STEP: u32 = 0xffff_0007;
pub const PAD: u32 = 0xffff_0008;
pub const END: u32 = 0xffff_0009;

/// Block ids are below this.
pub const MAX_BLOCKS: u32 = 0x00ff_0000;

/// The first word of a block's record: the id, and in the highest byte the record's length in units of 4 bytes. Records
/// too long for that have 0 there; so does a bare id, which is therefore a valid tag too, only slower to read.
pub const fn tag(id: u32, record_bytes: u32) -> u32 {
    let units = record_bytes / 4;
    if units < 0xff { id | units << 24 } else { id }
}

/// The block id in a tag.
pub const fn tag_id(tag: u32) -> u32 {
    tag & 0x00ff_ffff
}

/// The length of the record, if the tag holds it.
pub const fn tag_bytes(tag: u32) -> Option<usize> {
    match tag >> 24 {
        0 => None,
        units => Some(units as usize * 4),
    }
}

/// Something in the stream that is not the complete execution of a block; [`Partial`] is apart, as it has no fixed
/// length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Special {
    /// From here on this thread runs. Sent again when its fs or gs base changes.
    Thread { tid: u32, fs_base: u64, gs_base: u64 },
    /// A signal interrupted the thread before the instruction at `pc`; its handler runs next, with the direction flag
    /// clear.
    Signal { signo: u32, pc: u64, handler: u64 },
    /// The handler has returned; the thread goes on at `pc`.
    SigReturn { pc: u64, df: bool },
    /// The system call instruction at `pc`, which ended the block before, has returned.
    Syscall { pc: u64, nr: u64, result: u64 },
    /// The direction flag changed by other means than `std` and `cld`.
    Direction { df: bool },
    /// The engine itself executed one instruction.
    Step { pc: u64 },
    /// The rest of this buffer is unused.
    Pad,
    /// The window is closed.
    End,
}

/// Room for any special record.
pub const MAX_SPECIAL: usize = 28;

impl Special {
    /// Writes the record and gives its length.
    pub fn encode(&self, out: &mut [u8; MAX_SPECIAL]) -> usize {
        let mut w = Cursor { out, at: 0 };
        match *self {
            Special::Thread { tid, fs_base, gs_base } => {
                w.u32(THREAD);
                w.u32(tid);
                w.u64(fs_base);
                w.u64(gs_base);
            }
            Special::Signal { signo, pc, handler } => {
                w.u32(SIGNAL);
                w.u32(signo);
                w.u64(pc);
                w.u64(handler);
            }
            Special::SigReturn { pc, df } => {
                w.u32(SIGRETURN);
                w.u64(pc);
                w.u32(u32::from(df));
            }
            Special::Syscall { pc, nr, result } => {
                w.u32(SYSCALL);
                w.u64(pc);
                w.u64(nr);
                w.u64(result);
            }
            Special::Direction { df } => {
                w.u32(DIRECTION);
                w.u32(u32::from(df));
            }
            Special::Step { pc } => {
                w.u32(STEP);
                w.u64(pc);
            }
            Special::Pad => w.u32(PAD),
            Special::End => w.u32(END),
        }
        w.at
    }

    /// Reads the record at the start of `bytes`; gives its length too.
    pub fn decode(bytes: &[u8]) -> Option<(Special, usize)> {
        let mut r = Reader::new(bytes);
        let special = match r.u32()? {
            THREAD => Special::Thread { tid: r.u32()?, fs_base: r.u64()?, gs_base: r.u64()? },
            SIGNAL => Special::Signal { signo: r.u32()?, pc: r.u64()?, handler: r.u64()? },
            SIGRETURN => Special::SigReturn { pc: r.u64()?, df: r.u32()? != 0 },
            SYSCALL => Special::Syscall { pc: r.u64()?, nr: r.u64()?, result: r.u64()? },
            DIRECTION => Special::Direction { df: r.u32()? != 0 },
            STEP => Special::Step { pc: r.u64()? },
            PAD => Special::Pad,
            END => Special::End,
            _ => return None,
        };
        Some((special, bytes.len() - r.rest.len()))
    }
}

/// A block that was left before its end: by a fault, a signal, a thread switch or an alteration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Partial<'a> {
    /// Id of the block (not its tag).
    pub block: u32,
    /// How many of its instructions completed.
    pub completed: u32,
    /// The slots recorded so far: the start of the block's record, without its tag.
    pub slots: &'a [u8],
    /// rcx at the stop. If the next instruction is a rep string, it has done the iterations between its recorded rcx
    /// and this one, and the thread's next record resumes at it.
    pub rcx: u64,
}

/// Bytes of a partial record before its slots.
pub const PARTIAL_HEAD: usize = 16;
impl<'a> Partial<'a> {
    /// What stands before the slots; `rcx` in little endian stands after them.
    pub fn head(block: u32, completed: u32, slot_bytes: u32) -> [u8; PARTIAL_HEAD] {
        let mut head = [0; PARTIAL_HEAD];
        let mut w = Cursor { out: &mut head, at: 0 };
        w.u32(PARTIAL);
        w.u32(block);
        w.u32(completed);
        w.u32(slot_bytes);
        head
    }

    /// Reads the record at the start of `bytes`; gives its length too.
    pub fn decode(bytes: &'a [u8]) -> Option<(Partial<'a>, usize)> {
        let mut r = Reader::new(bytes);
        if r.u32()? != PARTIAL {
            return None;
        }
        let (block, completed, len) = (r.u32()?, r.u32()?, r.u32()?);
        let partial = Partial { block, completed, slots: r.take(len as usize)?, rcx: r.u64()? };
        Some((partial, bytes.len() - r.rest.len()))
    }
}

/// First word of a ring.
pub const RING_MAGIC: u32 = 0x434c_5752;
pub const RING_VERSION: u32 = 1;
/// Size of the header, and of the guard page after each buffer.
pub const RING_PAGE: usize = 4096;
pub const AT_MAGIC: usize = 0;
pub const AT_VERSION: usize = 4;
pub const AT_BUFFERS: usize = 8;
pub const AT_SIZE: usize = 12;
/// Futex word: how many buffers the engine has handed over, modulo 2^32.
pub const AT_PRODUCED: usize = 64;
/// Futex word: how many buffers the host has given back, modulo 2^32.
pub const AT_CONSUMED: usize = 128;
/// Not 0 once the engine will hand over nothing more.
pub const AT_CLOSED: usize = 192;
/// For each buffer the number of bytes handed over in it.
pub const AT_USED: usize = 256;
/// What the header has room for.
pub const MAX_BUFFERS: u32 = ((RING_PAGE - AT_USED) / 4) as u32;

/// Where buffer `index` lies in the ring's file.
pub const fn buffer_offset(index: u32, size: u32) -> usize {
    RING_PAGE + index as usize * (size as usize + RING_PAGE)
}

/// Length of the ring's file.
pub const fn ring_bytes(buffers: u32, size: u32) -> usize {
    buffer_offset(buffers, size)
}

/// Buffers handed over and not yet given back; both counts wrap around.
pub const fn pending(produced: u32, consumed: u32) -> u32 {
    produced.wrapping_sub(consumed)
}

struct Cursor<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Cursor<'_> {
    fn u32(&mut self, v: u32) {
        self.out[self.at..self.at + 4].copy_from_slice(&v.to_le_bytes());
        self.at += 4;
    }
    fn u64(&mut self, v: u64) {
        self.out[self.at..self.at + 8].copy_from_slice(&v.to_le_bytes());
        self.at += 8;
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn new(rest: &'a [u8]) -> Reader<'a> {
        Reader { rest }
    }
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        Some(head)
    }
    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }
    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_round_trip(special: Special, len: usize) {
        let mut bytes = [0; MAX_SPECIAL];
        assert_eq!(special.encode(&mut bytes), len);
        assert_eq!(Special::decode(&bytes), Some((special, len)));
        for cut in 0..len {
            assert_eq!(Special::decode(&bytes[..cut]), None, "a cut record must not decode");
        }
    }

    #[test]
    fn special_records_survive_the_stream() {
        check_round_trip(Special::Thread { tid: 7, fs_base: 1 << 40, gs_base: 3 }, 24);
        check_round_trip(Special::Signal { signo: 11, pc: 5, handler: u64::MAX }, 24);
        check_round_trip(Special::SigReturn { pc: 5, df: true }, 16);
        check_round_trip(Special::Syscall { pc: 9, nr: 231, result: -38i64 as u64 }, 28);
        check_round_trip(Special::Direction { df: false }, 8);
        check_round_trip(Special::Step { pc: 0x40_0000 }, 12);
        check_round_trip(Special::Pad, 4);
        check_round_trip(Special::End, 4);
    }

    #[test]
    fn a_partial_record_survives_the_stream() {
        let mut bytes = Partial::head(4, 2, 8).to_vec();
        bytes.extend([1, 2, 3, 4, 5, 6, 7, 8]);
        bytes.extend(99u64.to_le_bytes());
        let expected = Partial { block: 4, completed: 2, slots: &[1, 2, 3, 4, 5, 6, 7, 8], rcx: 99 };
        assert_eq!(Partial::decode(&bytes), Some((expected, bytes.len())));
        for cut in 0..bytes.len() {
            assert_eq!(Partial::decode(&bytes[..cut]), None);
        }
    }

    #[test]
    fn a_tag_holds_id_and_length() {
        assert_eq!(tag(5, 4 + 8 * 3), 0x0700_0005);
        assert_eq!((tag_id(0x0700_0005), tag_bytes(0x0700_0005)), (5, Some(28)));
        let longest = tag(MAX_BLOCKS - 1, 4 + 8 * 126);
        assert!(longest < FIRST_SPECIAL);
        assert_eq!((tag_id(longest), tag_bytes(longest)), (MAX_BLOCKS - 1, Some(1012)));
        let too_long = tag(5, 4 + 8 * 127);
        assert_eq!((too_long, tag_bytes(too_long)), (5, None));
    }

    #[test]
    fn the_ring_is_laid_out_as_agreed() {
        assert_eq!(MAX_BUFFERS, 960);
        assert_eq!(buffer_offset(0, 1 << 20), 4096);
        assert_eq!(buffer_offset(1, 1 << 20), 4096 + (1 << 20) + 4096);
        assert_eq!(ring_bytes(2, 1 << 20), 4096 + 2 * ((1 << 20) + 4096));
        assert_eq!(pending(1, u32::MAX), 2);
    }
}
