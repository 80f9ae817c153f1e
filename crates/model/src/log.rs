//! The log of one unit: every non-deterministic thing that happened to a guest process, in order.
//!
//! A unit is one process image, from its start to its `execve` or end; a forked child is a unit of its own that begins
//! where its parent's log has a [`Kind::Fork`]. The engine appends records to segments, which are files mapped into the
//! guest's process; a replay reads the same records, all segments joined.
//!
//! ```text
//! segment = header (64 bytes), records …            only `committed` bytes behind the header count
//! record  = u32 length · u8 kind · u8 flags · u16 0 · u64 check, payload, zeros up to a multiple of 8
//! ```
//! The check covers kind, flags, length and payload, so that neither a damaged nor a half-written record is believed.
//! Numbers are little-endian. Decoding never panics: what does not parse is `None`.
//! docs/recording-format.md describes the folder around it.

pub use crate::start::{Origin, Start};
use crate::wire::{Reader, Writer};
use alloc::{string::String, vec::Vec};

/// First bytes of a segment.
pub const MAGIC: [u8; 8] = *b"CLEWLOG\0";
/// Changes whenever the meaning of any byte does.
pub const VERSION: u32 = 1;
/// Bytes before the first record of a segment.
pub const SEGMENT_HEADER: usize = 64;
/// Offsets in the header.
pub mod header {
    pub const VERSION: usize = 8;
    /// Number of the segment in its unit, from 0.
    pub const SEQUENCE: usize = 12;
    /// Bytes of complete records behind the header; written last, atomically.
    pub const COMMITTED: usize = 16;
    /// Number of the first record.
    pub const FIRST_RECORD: usize = 24;
    /// 1 when another segment follows.
    pub const MORE: usize = 32;
    /// 1 when the recorder has compressed the segment and its writer may use the file again.
    pub const GIVEN_BACK: usize = 36;
}
/// Bytes before a record's payload.
pub const RECORD_HEADER: usize = 16;
/// No record is longer: what a call delivers is cut into several [`Kind::Write`].
pub const MAX_RECORD: usize = 1 << 20;

/// What a record says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// How the unit begins ([`Start`]); always the first record.
    Start = 1,
    /// A system call came back ([`CallRecord`]).
    Call = 2,
    /// Bytes written into the guest by the call that is under way ([`Bytes`]); comes before its [`Kind::Call`].
    Write = 3,
    /// Bytes of the signal frame just built ([`Bytes`]); comes right behind its [`Kind::Signal`].
    Frame = 4,
    /// Another thread goes on (payload: u32 its number, u64 the tick).
    Switch = 5,
    /// The running thread was stopped for others ([`Position`]).
    Preempt = 6,
    /// A signal was taken for the running thread ([`SignalRecord`]).
    Signal = 7,
    /// An instruction answered by the machine ([`SpecialRecord`]).
    Special = 8,
    /// The process is about to be copied; a child unit may name this record as its origin (payload: u64 flags).
    Fork = 9,
    /// The unit is over ([`End`]).
    End = 10,
    /// What a page held ([`PageRecord`]).
    Page = 11,
    /// From here on the recording may not be exact; the payload is a sentence.
    Inexact = 12,
    /// A file was kept ([`FileRecord`]).
    File = 13,
    /// An instruction set extension was met for the first time ([`FeatureRecord`]).
    Feature = 14,
    /// A descriptor that was open at the start ([`DescriptorRecord`]).
    Descriptor = 15,
    /// Bytes of a stream that nobody has read by the end ([`RestRecord`]); with flag 1, bytes that the kernel moves to a
    /// standard stream by the next call.
    Rest = 16,
    /// The contents of a small file, instead of a copy in the folder (payload: u32 the file's number, u32 0, the bytes).
    Content = 17,
    /// What the process has once, at the beginning of a region ([`ProcessRecord`](crate::region::ProcessRecord)).
    Process = 18,
    /// A mapping there ([`MapRecord`](crate::region::MapRecord)).
    Map = 19,
    /// What memory holds there ([`Bytes`]).
    Memory = 20,
    /// A thread there ([`ThreadRecord`](crate::region::ThreadRecord)); the running one comes first.
    Thread = 21,
}

/// A fork whose child has no log: there was no room for one.
pub const FORK_UNRECORDED: u8 = 1;

impl Kind {
    pub fn from_u8(v: u8) -> Option<Kind> {
        use Kind::*;
        let all = [
            Start, Call, Write, Frame, Switch, Preempt, Signal, Special, Fork, End, Page, Inexact, File, Feature,
            Descriptor, Rest, Content, Process, Map, Memory, Thread,
        ];
        all.into_iter().find(|k| *k as u8 == v)
    }
}

/// A record as it lies in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Raw<'a> {
    pub kind: Kind,
    pub flags: u8,
    pub payload: &'a [u8],
    /// Bytes of the whole record.
    pub len: usize,
}

/// Why there is no record where one was looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// Nothing more is there.
    End,
    /// A record begins, but not all of it is there.
    Cut,
    /// The bytes are not a record, or were changed.
    Wrong,
}

/// Payload bytes are padded to this.
const ALIGN: usize = 8;

/// Bytes that a record with this payload takes.
pub const fn record_len(payload: usize) -> usize {
    (RECORD_HEADER + payload).next_multiple_of(ALIGN)
}

/// The record header for a payload.
pub fn record_header(kind: Kind, flags: u8, payload: &[u8]) -> [u8; RECORD_HEADER] {
    let mut h = [0; RECORD_HEADER];
    // The length is that of header and payload, so that padding can be told from payload.
    let len = (RECORD_HEADER + payload.len()) as u32;
    h[..4].copy_from_slice(&len.to_le_bytes());
    h[4] = kind as u8;
    h[5] = flags;
    let word = u64::from(len) | u64::from(kind as u8) << 32 | u64::from(flags) << 40;
    h[8..].copy_from_slice(&digest(word, payload).to_le_bytes());
    h
}

/// The record at the beginning of `bytes`.
pub fn record(bytes: &[u8]) -> Result<Raw<'_>, Damage> {
    if bytes.is_empty() {
        return Err(Damage::End);
    }
    let head = bytes.get(..RECORD_HEADER).ok_or(Damage::Cut)?;
    let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    if !(RECORD_HEADER..=MAX_RECORD).contains(&len) {
        return Err(Damage::Wrong);
    }
    let payload = bytes.get(RECORD_HEADER..len).ok_or(Damage::Cut)?;
    let kind = Kind::from_u8(head[4]).ok_or(Damage::Wrong)?;
    if record_header(kind, head[5], payload) != head {
        return Err(Damage::Wrong);
    }
    let len = record_len(payload.len());
    if len > bytes.len() {
        return Err(Damage::Cut);
    }
    Ok(Raw { kind, flags: head[5], payload, len })
}

/// A 64-bit digest of bytes: four lanes of multiply and rotate, so that it runs at memory speed. It tells accidents, not
/// adversaries.
pub fn digest(seed: u64, bytes: &[u8]) -> u64 {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut lanes = [seed ^ K, seed.rotate_left(17), seed.rotate_left(31) ^ 0x5851_f42d_4c95_7f2d, !seed];
    let mut blocks = bytes.chunks_exact(32);
    for b in &mut blocks {
        for (n, lane) in lanes.iter_mut().enumerate() {
            let w = u64::from_le_bytes(core::array::from_fn(|i| b[n * 8 + i]));
            *lane = (*lane ^ w).wrapping_mul(K).rotate_left(29);
        }
    }
    let mut h = lanes[0] ^ lanes[1].rotate_left(13) ^ lanes[2].rotate_left(27) ^ lanes[3].rotate_left(41);
    let (words, rest) = blocks.remainder().as_chunks::<8>();
    for word in words {
        h = (h ^ u64::from_le_bytes(*word)).wrapping_mul(K).rotate_left(29);
    }
    if !rest.is_empty() {
        // The last word is filled up with zeros.
        let last = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        h = (h ^ last).wrapping_mul(K).rotate_left(29);
    }
    h ^= bytes.len() as u64;
    h = (h ^ h >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    h ^ h >> 29
}

/// Where a guest is: between ticks the pc only grows, so this is unique. `rcx` tells how far a string instruction that
/// was interrupted has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Position {
    pub tick: u64,
    pub pc: u64,
    pub rcx: u64,
    pub rflags: u64,
}

/// How a call ended for the guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Answer {
    /// `result` is in rax.
    Value = 0,
    /// It will be made again: the pc stays.
    Again = 1,
    /// Registers were set otherwise (`rt_sigreturn`).
    Done = 2,
    /// The thread is gone.
    ThreadGone = 3,
    /// The image was replaced; the next unit of the process goes on.
    Replaced = 4,
}

impl Answer {
    pub fn from_u8(v: u8) -> Option<Answer> {
        [Answer::Value, Answer::Again, Answer::Done, Answer::ThreadGone, Answer::Replaced]
            .into_iter()
            .find(|a| *a as u8 == v)
    }
}

/// A system call that came back. The answer is in the record's flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallRecord {
    pub thread: u32,
    pub nr: u32,
    /// Address of the instruction and tick of the call.
    pub pc: u64,
    pub tick: u64,
    pub args: [u64; 6],
    pub result: i64,
    /// Digest of registers and of what the call reads, when it was made.
    pub digest: u64,
    /// Time stamp counter when it came back: orders the records of different units.
    pub time: u64,
    /// The [`FileRecord`] of what it opened or mapped; 0 if none.
    pub file: u32,
    /// Of `open`: the kind of what was opened ([`DescriptorKind`]) + 1; 0 if unknown.
    pub opened: u32,
}

/// Size of a [`CallRecord`]'s payload.
pub const CALL_BYTES: usize = 8 + 16 + 48 + 24 + 8;

impl CallRecord {
    pub fn encode(&self) -> [u8; CALL_BYTES] {
        let mut out = [0; CALL_BYTES];
        let words = [
            u64::from(self.thread) | u64::from(self.nr) << 32,
            self.pc,
            self.tick,
            self.args[0],
            self.args[1],
            self.args[2],
            self.args[3],
            self.args[4],
            self.args[5],
            self.result as u64,
            self.digest,
            self.time,
            u64::from(self.file) | u64::from(self.opened) << 32,
        ];
        for (n, w) in words.into_iter().enumerate() {
            out[n * 8..][..8].copy_from_slice(&w.to_le_bytes());
        }
        out
    }

    pub fn decode(payload: &[u8]) -> Option<CallRecord> {
        let mut r = Reader(payload);
        Some(CallRecord {
            thread: r.u32()?,
            nr: r.u32()?,
            pc: r.u64()?,
            tick: r.u64()?,
            args: [r.u64()?, r.u64()?, r.u64()?, r.u64()?, r.u64()?, r.u64()?],
            result: r.u64()? as i64,
            digest: r.u64()?,
            time: r.u64()?,
            file: r.u32()?,
            opened: r.u32()?,
        })
    }
}

/// Bytes that were written to the guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bytes<'a> {
    pub addr: u64,
    pub bytes: &'a [u8],
}

impl<'a> Bytes<'a> {
    /// The payload is the address, then the bytes.
    pub fn decode(payload: &'a [u8]) -> Option<Bytes<'a>> {
        let mut r = Reader(payload);
        let addr = r.u64()?;
        Some(Bytes { addr, bytes: r.0 })
    }
}

impl Position {
    pub fn encode(&self) -> [u8; 32] {
        let mut out = [0; 32];
        for (n, w) in [self.tick, self.pc, self.rcx, self.rflags].into_iter().enumerate() {
            out[n * 8..][..8].copy_from_slice(&w.to_le_bytes());
        }
        out
    }

    pub fn decode(payload: &[u8]) -> Option<Position> {
        let mut r = Reader(payload);
        Some(Position { tick: r.u64()?, pc: r.u64()?, rcx: r.u64()?, rflags: r.u64()? })
    }
}

/// A signal taken for the running thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignalRecord {
    pub at: Position,
    /// A fault of the instruction at the position: a replay meets it by itself.
    pub synchronous: bool,
    pub info: [u64; 16],
    /// Trap number, error code, fault address.
    pub fault: [u64; 3],
}

pub const SIGNAL_BYTES: usize = 32 + 8 + 128 + 24;

impl SignalRecord {
    pub fn encode(&self) -> [u8; SIGNAL_BYTES] {
        let mut out = [0; SIGNAL_BYTES];
        out[..32].copy_from_slice(&self.at.encode());
        out[32] = self.synchronous as u8;
        for (n, w) in self.info.into_iter().chain(self.fault).enumerate() {
            out[40 + n * 8..][..8].copy_from_slice(&w.to_le_bytes());
        }
        out
    }

    pub fn decode(payload: &[u8]) -> Option<SignalRecord> {
        let at = Position::decode(payload)?;
        let mut r = Reader(payload.get(32..)?);
        let synchronous = r.u64()? != 0;
        let mut words = [0; 19];
        for w in &mut words {
            *w = r.u64()?;
        }
        let [info @ .., f0, f1, f2] = words;
        Some(SignalRecord { at, synchronous, info, fault: [f0, f1, f2] })
    }
}

/// The answer of an instruction such as CPUID, RDTSC, RDRAND: rax, rbx, rcx, rdx or the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpecialRecord {
    pub pc: u64,
    pub tick: u64,
    pub values: [u64; 4],
}

impl SpecialRecord {
    pub fn encode(&self) -> [u8; 48] {
        let mut out = [0; 48];
        for (n, w) in [self.pc, self.tick].into_iter().chain(self.values).enumerate() {
            out[n * 8..][..8].copy_from_slice(&w.to_le_bytes());
        }
        out
    }

    pub fn decode(payload: &[u8]) -> Option<SpecialRecord> {
        let mut r = Reader(payload);
        Some(SpecialRecord { pc: r.u64()?, tick: r.u64()?, values: [r.u64()?, r.u64()?, r.u64()?, r.u64()?] })
    }
}

/// How a unit ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Ending {
    Exited = 0,
    Signaled = 1,
    /// Another image took over.
    Replaced = 2,
    /// There was no room for more of the log.
    DiskFull = 3,
    /// The stretch to be recorded is over; the guest went on without being recorded.
    Left = 4,
}

/// The last record of a unit that ended in an orderly way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    pub ending: Ending,
    /// Exit status or signal.
    pub status: u32,
    pub tick: u64,
    pub pc: u64,
}

impl End {
    pub fn encode(&self) -> [u8; 24] {
        let mut out = [0; 24];
        out[0] = self.ending as u8;
        out[4..8].copy_from_slice(&self.status.to_le_bytes());
        out[8..16].copy_from_slice(&self.tick.to_le_bytes());
        out[16..].copy_from_slice(&self.pc.to_le_bytes());
        out
    }

    pub fn decode(payload: &[u8]) -> Option<End> {
        let mut r = Reader(payload);
        let kind = r.u32()?;
        let ending = [Ending::Exited, Ending::Signaled, Ending::Replaced, Ending::DiskFull, Ending::Left]
            .into_iter()
            .find(|e| *e as u32 == kind)?;
        Some(End { ending, status: r.u32()?, tick: r.u64()?, pc: r.u64()? })
    }
}

/// What a page held at this point of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRecord {
    pub addr: u64,
    pub digest: u64,
}

impl PageRecord {
    pub fn encode(&self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&self.addr.to_le_bytes());
        out[8..].copy_from_slice(&self.digest.to_le_bytes());
        out
    }

    pub fn decode(payload: &[u8]) -> Option<PageRecord> {
        let mut r = Reader(payload);
        Some(PageRecord { addr: r.u64()?, digest: r.u64()? })
    }
}

/// A file as it was when it was first opened or mapped. Its contents are in the recording's folder under `key`, unless
/// `key` is empty: then it was too large, or could not be copied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileRecord {
    /// Counts the files of the unit from 1.
    pub id: u32,
    pub key: String,
    pub path: Vec<u8>,
    pub size: u64,
    pub mode: u32,
}

impl FileRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u32(self.id);
        w.u32(self.mode);
        w.u64(self.size);
        w.str(&self.key);
        w.bytes(&self.path);
        w.0
    }

    pub fn decode(payload: &[u8]) -> Option<FileRecord> {
        let mut r = Reader(payload);
        let (id, mode, size) = (r.u32()?, r.u32()?, r.u64()?);
        Some(FileRecord { id, mode, size, key: r.str()?, path: r.bytes()?.to_vec() })
    }
}

/// The first instruction of the unit that needs a CPU feature.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FeatureRecord {
    /// The feature, as `iced_x86::CpuidFeature` numbers it.
    pub feature: u32,
    pub pc: u64,
    pub bytes: Vec<u8>,
}

impl FeatureRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u32(self.feature);
        w.u64(self.pc);
        w.bytes(&self.bytes);
        w.0
    }

    pub fn decode(payload: &[u8]) -> Option<FeatureRecord> {
        let mut r = Reader(payload);
        Some(FeatureRecord { feature: r.u32()?, pc: r.u64()?, bytes: r.bytes()?.to_vec() })
    }
}

/// What a descriptor leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum DescriptorKind {
    /// The standard input, output and error that the recorder was given.
    Stdin = 0,
    Stdout = 1,
    Stderr = 2,
    File = 3,
    Folder = 4,
    Pipe = 5,
    Socket = 6,
    Terminal = 7,
    Other = 8,
}

impl DescriptorKind {
    pub fn from_u8(v: u8) -> Option<DescriptorKind> {
        use DescriptorKind::*;
        [Stdin, Stdout, Stderr, File, Folder, Pipe, Socket, Terminal, Other].into_iter().find(|k| *k as u8 == v)
    }
}

/// A descriptor that was open when the image started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DescriptorRecord {
    pub fd: u32,
    pub kind: DescriptorKind,
    /// Open flags as `fcntl(F_GETFL)` gives them.
    pub flags: u32,
    pub position: u64,
    /// Tells streams apart: device and inode.
    pub identity: [u64; 2],
    pub path: Vec<u8>,
    /// The [`FileRecord`] of a regular file; 0 if none.
    pub file: u32,
}

impl DescriptorRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u32(self.fd);
        w.u8(self.kind as u8);
        w.u32(self.flags);
        w.u64(self.position);
        w.u64(self.identity[0]);
        w.u64(self.identity[1]);
        w.u32(self.file);
        w.bytes(&self.path);
        w.0
    }

    pub fn decode(payload: &[u8]) -> Option<DescriptorRecord> {
        let mut r = Reader(payload);
        Some(DescriptorRecord {
            fd: r.u32()?,
            kind: DescriptorKind::from_u8(r.u8()?)?,
            flags: r.u32()?,
            position: r.u64()?,
            identity: [r.u64()?, r.u64()?],
            file: r.u32()?,
            path: r.bytes()?.to_vec(),
        })
    }
}

/// Flags of a record of kind rest: these were all bytes that were to come, their writers having gone.
pub const REST_TO_END: u8 = 0;
/// Flags of a record of kind rest: bytes that the kernel moved to a standard stream with the call that comes next.
pub const REST_MOVED: u8 = 1;
/// Flags of a record of kind rest: more might have come.
pub const REST_UNENDED: u8 = 2;

/// What was left in a stream when the unit ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RestRecord<'a> {
    pub identity: [u64; 2],
    pub bytes: &'a [u8],
}

impl<'a> RestRecord<'a> {
    pub fn decode(payload: &'a [u8]) -> Option<RestRecord<'a>> {
        let mut r = Reader(payload);
        let identity = [r.u64()?, r.u64()?];
        Some(RestRecord { identity, bytes: r.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(kind: Kind, payload: &[u8]) -> Vec<u8> {
        let mut out = record_header(kind, 3, payload).to_vec();
        out.extend_from_slice(payload);
        out.resize(record_len(payload.len()), 0);
        out
    }

    #[test]
    fn a_record_comes_back_and_any_change_is_noticed() {
        let bytes = written(Kind::Write, b"hello, guest");
        let raw = record(&bytes).unwrap();
        assert_eq!((raw.kind, raw.flags, raw.payload, raw.len), (Kind::Write, 3, &b"hello, guest"[..], bytes.len()));
        let meaning = RECORD_HEADER + 12;
        for at in (0..meaning).filter(|at| !(6..8).contains(at)) {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                assert!(record(&changed).is_err(), "bit {bit} of byte {at}");
            }
        }
        for cut in 1..bytes.len() {
            assert!(record(&bytes[..cut]).is_err());
        }
        assert_eq!(record(&[]), Err(Damage::End));
    }

    #[test]
    fn payloads_survive() {
        let call = CallRecord {
            thread: 1,
            nr: 2,
            pc: 3,
            tick: 4,
            args: [5, 6, 7, 8, 9, 10],
            result: -11,
            digest: 12,
            time: 13,
            file: 14,
            opened: 15,
        };
        assert_eq!(CallRecord::decode(&call.encode()), Some(call));
        let at = Position { tick: 1, pc: 2, rcx: 3, rflags: 4 };
        assert_eq!(Position::decode(&at.encode()), Some(at));
        let signal = SignalRecord { at, synchronous: true, info: core::array::from_fn(|i| i as u64), fault: [7, 8, 9] };
        assert_eq!(SignalRecord::decode(&signal.encode()), Some(signal));
        let start = Start {
            exe: "/bin/x".into(),
            argv: alloc::vec![alloc::vec![1, 2]],
            ..Start::forked("7.0".into(), 3, 1, 2)
        };
        for start in [start.clone(), Start { region: Some(5), origin: Origin::First, ..start }] {
            let bytes = start.encode();
            assert_eq!(Start::decode(&bytes), Some(start));
            for cut in 0..bytes.len() {
                assert_eq!(Start::decode(&bytes[..cut]), None);
            }
        }
        let end = End { ending: Ending::Signaled, status: 11, tick: 3, pc: 4 };
        assert_eq!(End::decode(&end.encode()), Some(end));
    }
}
