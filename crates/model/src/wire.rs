//! What an engine tells its host: reports, and how they and everything else are put into bytes.
//!
//! Reports are packets on a `SOCK_SEQPACKET` socket shared by every process of the tree, each with the sender's pid.
//! Both sides are built from the same sources in one binary, so there is a version check but no compatibility code.
//! Decoding never panics: a packet that does not parse is `None`.

use crate::GuestAddr;
use alloc::{boxed::Box, string::String, vec::Vec};

pub use crate::config::{Action, Config, Disturb, ForkEdge, Probe, RecordConfig, ReplayConfig, Site, TraceSink};

/// Packets are kept below this, well under the default socket buffer.
pub const MAX_PACKET: usize = 64 << 10;

/// How a note begins that says that something is missing from a recording.
pub const LOSS: &str = "the recording is incomplete: ";

/// Registers of a thread at an instruction boundary, in hardware order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Registers {
    pub gpr: [u64; 16],
    pub rip: u64,
    pub rflags: u64,
}

/// One translated block, as the host needs it to decode a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockDef {
    pub id: u32,
    pub pc: GuestAddr,
    pub bytes: Vec<u8>,
}

/// Execution counts of one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockCount {
    pub pc: GuestAddr,
    pub bytes: u32,
    pub instructions: u32,
    pub executed: u64,
    /// How often the conditional branch that ends the block was taken (0 when it ends otherwise).
    pub taken: u64,
    pub conditional: bool,
}

/// Totals of one process image, at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    pub mode: u8,
    pub blocks: u64,
    pub translated_instructions: u64,
    pub translation_ns: u64,
    pub cache_bytes: u64,
    pub exits: u64,
    pub syscalls: u64,
    pub signals: u64,
    pub switches: u64,
    pub flushes: u64,
    pub invalidated: u64,
    /// Guest control transfers that count as ticks; 0 unless they are counted (mode tick, or a seed).
    pub ticks: u64,
    /// Guest instructions executed; 0 unless mode is count.
    pub instructions: u64,
    pub conditional_branches: u64,
    pub trace_bytes: u64,
    /// A digest of every scheduling decision and its tick.
    pub schedule: u64,
    pub threads: u64,
}

/// A fatal end of the guest, as data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Crash {
    pub tid: u32,
    pub signal: u32,
    pub code: i32,
    pub addr: GuestAddr,
    pub registers: Registers,
    pub tick: u64,
    /// File mapped at the pc and the file offset of the pc, when there is one.
    pub file: String,
    pub file_offset: u64,
    /// The stack from its pointer upwards, as much as fits.
    pub stack: Vec<u8>,
    /// The files that are mapped, each with the first of its pieces: with the stack enough for a backtrace.
    pub mapped: Vec<Mapped>,
    /// Words on the stack that point into executable mappings: candidates for a rough backtrace where nothing describes
    /// the frames.
    pub frames: Vec<Frame>,
}

/// A piece of a file in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapped {
    pub start: GuestAddr,
    pub file: String,
    pub file_offset: u64,
}

/// A code address with the file it is mapped from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    pub pc: GuestAddr,
    pub file: String,
    pub file_offset: u64,
}

/// What an engine tells its host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    /// An image has been loaded and is about to run.
    Started {
        exe: String,
        bias: u64,
    },
    Blocks(Vec<BlockDef>),
    /// A trace ring exists; its descriptor travels with the packet.
    Ring {
        buffers: u32,
        size: u32,
    },
    ProbeHit {
        probe: u32,
        tid: u32,
        tick: u64,
        registers: Registers,
    },
    Counts(Vec<BlockCount>),
    Stats(Stats),
    /// The guest died of a signal.
    Crash(Box<Crash>),
    /// The engine itself is wrong; says where.
    EngineFault {
        message: String,
        pc: GuestAddr,
    },
    /// The guest did something that cannot be followed; says what and where.
    Lost {
        message: String,
        pc: GuestAddr,
    },
    /// A named degradation: something unsupported was answered as an old kernel would.
    Note {
        message: String,
        pc: GuestAddr,
    },
    /// A segment of a log is complete and another follows it.
    Segment {
        unit: String,
        sequence: u32,
        /// The engine would use its file again, once it is compressed.
        wanted: bool,
    },
    /// A replay came to its end, or to where it differs.
    Replayed(Replayed),
    /// A replayed guest wrote to a standard stream (1 or 2), at this time stamp of the recording.
    Output {
        stream: u8,
        time: u64,
        bytes: Vec<u8>,
    },
    /// An answer to a request, or a stop: encoded as `serve::Answer`.
    Answer(Vec<u8>),
    /// The guest could not be loaded; status is what the host exits with.
    NotLoaded {
        status: u8,
        message: String,
    },
}

/// How far a replay came.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Replayed {
    /// Records used.
    pub records: u64,
    pub tick: u64,
    pub pc: u64,
    /// What differs from the recording, if anything.
    pub difference: Option<String>,
    /// How the guest ended: 0 exited, 1 by a signal, 2 replaced, 3 the log ends before the guest does.
    pub ending: u8,
    pub status: u32,
}

/// A report and who sent it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    pub pid: u32,
    pub report: Report,
}

impl Packet {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u32(self.pid);
        match &self.report {
            Report::Started { exe, bias } => {
                w.u8(0);
                w.str(exe);
                w.u64(*bias);
            }
            Report::Blocks(defs) => {
                w.u8(1);
                w.u32(defs.len() as u32);
                for d in defs {
                    w.u32(d.id);
                    w.u64(d.pc.0);
                    w.bytes(&d.bytes);
                }
            }
            Report::Ring { buffers, size } => {
                w.u8(2);
                w.u32(*buffers);
                w.u32(*size);
            }
            Report::ProbeHit { probe, tid, tick, registers } => {
                w.u8(3);
                w.u32(*probe);
                w.u32(*tid);
                w.u64(*tick);
                w.registers(registers);
            }
            Report::Counts(counts) => {
                w.u8(4);
                w.u32(counts.len() as u32);
                for c in counts {
                    w.u64(c.pc.0);
                    w.u32(c.bytes);
                    w.u32(c.instructions);
                    w.u64(c.executed);
                    w.u64(c.taken);
                    w.u8(c.conditional as u8);
                }
            }
            Report::Stats(s) => {
                w.u8(5);
                w.stats(s);
            }
            Report::Crash(c) => {
                w.u8(6);
                w.crash(c);
            }
            Report::EngineFault { message, pc } => w.message(7, message, *pc),
            Report::Lost { message, pc } => w.message(8, message, *pc),
            Report::Note { message, pc } => w.message(9, message, *pc),
            Report::NotLoaded { status, message } => {
                w.u8(10);
                w.u8(*status);
                w.str(message);
            }
            Report::Segment { unit, sequence, wanted } => {
                w.u8(11);
                w.str(unit);
                w.u32(*sequence);
                w.u8(*wanted as u8);
            }
            Report::Replayed(r) => {
                w.u8(12);
                w.replayed(r);
            }
            Report::Output { stream, time, bytes } => {
                w.u8(14);
                w.u8(*stream);
                w.u64(*time);
                w.bytes(bytes);
            }
            Report::Answer(bytes) => {
                w.u8(13);
                w.bytes(bytes);
            }
        }
        w.0
    }

    pub fn decode(bytes: &[u8]) -> Option<Packet> {
        let mut r = Reader(bytes);
        let pid = r.u32()?;
        let report = match r.u8()? {
            0 => Report::Started { exe: r.str()?, bias: r.u64()? },
            1 => Report::Blocks(
                r.list(|r| Some(BlockDef { id: r.u32()?, pc: GuestAddr(r.u64()?), bytes: r.bytes()?.to_vec() }))?,
            ),
            2 => Report::Ring { buffers: r.u32()?, size: r.u32()? },
            3 => Report::ProbeHit { probe: r.u32()?, tid: r.u32()?, tick: r.u64()?, registers: r.registers()? },
            4 => Report::Counts(r.list(|r| {
                Some(BlockCount {
                    pc: GuestAddr(r.u64()?),
                    bytes: r.u32()?,
                    instructions: r.u32()?,
                    executed: r.u64()?,
                    taken: r.u64()?,
                    conditional: r.u8()? != 0,
                })
            })?),
            5 => Report::Stats(r.stats()?),
            6 => Report::Crash(Box::new(r.crash()?)),
            7 => Report::EngineFault { message: r.str()?, pc: GuestAddr(r.u64()?) },
            8 => Report::Lost { message: r.str()?, pc: GuestAddr(r.u64()?) },
            9 => Report::Note { message: r.str()?, pc: GuestAddr(r.u64()?) },
            10 => Report::NotLoaded { status: r.u8()?, message: r.str()? },
            11 => Report::Segment { unit: r.str()?, sequence: r.u32()?, wanted: r.u8()? != 0 },
            12 => Report::Replayed(r.replayed()?),
            13 => Report::Answer(r.bytes()?.to_vec()),
            14 => Report::Output { stream: r.u8()?, time: r.u64()?, bytes: r.bytes()?.to_vec() },
            _ => return None,
        };
        Some(Packet { pid, report })
    }
}

#[derive(Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn u8(&mut self, v: u8) {
        self.0.push(v);
    }
    pub(crate) fn u32(&mut self, v: u32) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }
    pub(crate) fn u64(&mut self, v: u64) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }
    pub(crate) fn bytes(&mut self, v: &[u8]) {
        self.u32(v.len() as u32);
        self.0.extend_from_slice(v);
    }
    pub(crate) fn str(&mut self, v: &str) {
        self.bytes(v.as_bytes());
    }
    fn message(&mut self, kind: u8, message: &str, pc: GuestAddr) {
        self.u8(kind);
        self.str(message);
        self.u64(pc.0);
    }
    pub(crate) fn registers(&mut self, r: &Registers) {
        for v in r.gpr {
            self.u64(v);
        }
        self.u64(r.rip);
        self.u64(r.rflags);
    }
    fn stats(&mut self, s: &Stats) {
        self.u8(s.mode);
        for v in s.words() {
            self.u64(v);
        }
    }
    fn crash(&mut self, c: &Crash) {
        self.u32(c.tid);
        self.u32(c.signal);
        self.u32(c.code as u32);
        self.u64(c.addr.0);
        self.registers(&c.registers);
        self.u64(c.tick);
        self.str(&c.file);
        self.u64(c.file_offset);
        self.bytes(&c.stack);
        self.u32(c.mapped.len() as u32);
        for m in &c.mapped {
            self.u64(m.start.0);
            self.str(&m.file);
            self.u64(m.file_offset);
        }
        self.u32(c.frames.len() as u32);
        for f in &c.frames {
            self.u64(f.pc.0);
            self.str(&f.file);
            self.u64(f.file_offset);
        }
    }
}

impl Stats {
    fn words(&self) -> [u64; 16] {
        [
            self.blocks,
            self.translated_instructions,
            self.translation_ns,
            self.cache_bytes,
            self.exits,
            self.syscalls,
            self.signals,
            self.switches,
            self.flushes,
            self.invalidated,
            self.ticks,
            self.instructions,
            self.conditional_branches,
            self.trace_bytes,
            self.schedule,
            self.threads,
        ]
    }
}

pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }
    pub(crate) fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }
    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }
    pub(crate) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let n = self.u32()? as usize;
        self.take(n)
    }
    pub(crate) fn str(&mut self) -> Option<String> {
        Some(String::from_utf8_lossy(self.bytes()?).into_owned())
    }
    pub(crate) fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let n = self.u32()?;
        // Grown as elements arrive: a false count must not reserve memory.
        let mut v = Vec::new();
        for _ in 0..n {
            v.push(one(self)?);
        }
        Some(v)
    }
    pub(crate) fn registers(&mut self) -> Option<Registers> {
        let mut r = Registers::default();
        for v in &mut r.gpr {
            *v = self.u64()?;
        }
        r.rip = self.u64()?;
        r.rflags = self.u64()?;
        Some(r)
    }
    fn stats(&mut self) -> Option<Stats> {
        Some(Stats {
            mode: self.u8()?,
            blocks: self.u64()?,
            translated_instructions: self.u64()?,
            translation_ns: self.u64()?,
            cache_bytes: self.u64()?,
            exits: self.u64()?,
            syscalls: self.u64()?,
            signals: self.u64()?,
            switches: self.u64()?,
            flushes: self.u64()?,
            invalidated: self.u64()?,
            ticks: self.u64()?,
            instructions: self.u64()?,
            conditional_branches: self.u64()?,
            trace_bytes: self.u64()?,
            schedule: self.u64()?,
            threads: self.u64()?,
        })
    }
    fn crash(&mut self) -> Option<Crash> {
        Some(Crash {
            tid: self.u32()?,
            signal: self.u32()?,
            code: self.u32()? as i32,
            addr: GuestAddr(self.u64()?),
            registers: self.registers()?,
            tick: self.u64()?,
            file: self.str()?,
            file_offset: self.u64()?,
            stack: self.bytes()?.to_vec(),
            mapped: self
                .list(|r| Some(Mapped { start: GuestAddr(r.u64()?), file: r.str()?, file_offset: r.u64()? }))?,
            frames: self.list(|r| Some(Frame { pc: GuestAddr(r.u64()?), file: r.str()?, file_offset: r.u64()? }))?,
        })
    }
}

/// Room for any [`segment_packet`]: the name of a unit is at most 21 bytes.
pub const SEGMENT_PACKET: usize = 40;

/// [`Report::Segment`] as a packet, made without the heap. A unit's name that is too long is cut.
pub fn segment_packet<'a>(
    room: &'a mut [u8; SEGMENT_PACKET],
    pid: u32,
    unit: &str,
    sequence: u32,
    wanted: bool,
) -> &'a [u8] {
    let unit = &unit.as_bytes()[..unit.len().min(SEGMENT_PACKET - 14)];
    let end = 9 + unit.len();
    room[..4].copy_from_slice(&pid.to_le_bytes());
    room[4] = 11;
    room[5..9].copy_from_slice(&(unit.len() as u32).to_le_bytes());
    room[9..end].copy_from_slice(unit);
    room[end..end + 4].copy_from_slice(&sequence.to_le_bytes());
    room[end + 4] = wanted as u8;
    &room[..end + 5]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_told_without_the_heap_as_with_it() {
        for (unit, sequence, wanted) in [("7.0", 3, true), ("4294967295.4294967295", u32::MAX, false)] {
            let report = Report::Segment { unit: unit.into(), sequence, wanted };
            let mut room = [0; SEGMENT_PACKET];
            assert_eq!(segment_packet(&mut room, 7, unit, sequence, wanted), Packet { pid: 7, report }.encode());
        }
    }

    fn check_round_trip(report: Report) {
        let p = Packet { pid: 7, report };
        let bytes = p.encode();
        assert_eq!(Packet::decode(&bytes), Some(p));
        for cut in 0..bytes.len() {
            assert_eq!(Packet::decode(&bytes[..cut]), None, "a truncated packet must not decode");
        }
    }

    #[test]
    fn reports_survive_the_wire() {
        let registers = Registers { gpr: core::array::from_fn(|i| i as u64 * 3), rip: 9, rflags: 0x246 };
        check_round_trip(Report::Started { exe: "/bin/true".into(), bias: 1 });
        check_round_trip(Report::Blocks(alloc::vec![BlockDef {
            id: 3,
            pc: GuestAddr(5),
            bytes: alloc::vec![0x90, 0xc3]
        }]));
        check_round_trip(Report::ProbeHit { probe: 1, tid: 2, tick: 3, registers });
        check_round_trip(Report::Stats(Stats { blocks: 1, threads: 99, ..Stats::default() }));
        check_round_trip(Report::Crash(Box::new(Crash {
            tid: 1,
            signal: 11,
            code: -6,
            addr: GuestAddr(8),
            registers,
            tick: 4,
            file: "a".into(),
            file_offset: 2,
            stack: alloc::vec![1, 2, 3],
            mapped: alloc::vec![Mapped { start: GuestAddr(4096), file: "c".into(), file_offset: 8192 }],
            frames: alloc::vec![Frame { pc: GuestAddr(1), file: "b".into(), file_offset: 3 }],
        })));
        check_round_trip(Report::NotLoaded { status: 126, message: "no".into() });
    }
}
