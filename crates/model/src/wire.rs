//! What host and engine say to each other: the configuration an engine starts with, and its reports.
//!
//! The configuration lies in a memfd whose number is the engine's first argument; reports are packets on a
//! `SOCK_SEQPACKET` socket shared by every process of the tree, each with the sender's pid.
//! Both sides are built from the same sources in one binary, so there is a version check but no compatibility code.
//! Decoding never panics: a packet that does not parse is `None`.

use crate::{Cpu, GuestAddr, Mode};
use alloc::{boxed::Box, string::String, vec::Vec};

/// First word of a configuration; changes whenever the encoding does.
const CONFIG_MAGIC: u32 = 0x434c_4302;

/// Packets are kept below this, well under the default socket buffer.
pub const MAX_PACKET: usize = 64 << 10;

/// How an engine is to run its guest.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Config {
    pub mode: Mode,
    pub cpu: Cpu,
    /// With a seed, schedules, clocks and random numbers follow from it alone.
    pub seed: Option<u64>,
    /// Report statistics at exit.
    pub stats: bool,
    /// Report per-block counts at exit.
    pub coverage: bool,
    /// The guest's first process is killed when the thread that started it ends, so it does not outlive a host that is
    /// killed; what it has started goes on, as natively.
    pub dies_with_host: bool,
    /// Where trace buffers go.
    pub sink: TraceSink,
    /// Descriptor of the control socket in the engine's process, or -1.
    pub control_fd: i32,
    /// Descriptor of the engine program itself, kept for `execve`.
    pub engine_fd: i32,
    /// Signals that the guest has blocked across an `execve`.
    pub inherited_blocked: u64,
    /// Signals among SEGV, BUS, ILL, FPE, TRAP that it ignores.
    pub inherited_ignored: u64,
    pub probes: Vec<Probe>,
    /// What is to be recorded, if anything.
    pub record: Option<RecordConfig>,
    /// The recording to replay instead of running a program.
    pub replay: Option<ReplayConfig>,
}

/// How a guest is recorded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecordConfig {
    /// Descriptor of the recording's folder.
    pub folder_fd: i32,
    /// Descriptor of the folder of files kept by earlier recordings, found by their stamps; -1 if there is none.
    pub store_fd: i32,
    /// Name of the unit that this image replaces; empty for the first.
    pub origin: String,
    /// Device and inode of the standard streams that the recorder was given.
    pub streams: [[u64; 2]; 3],
    /// Switch threads at random instructions, this seed deciding where.
    pub chaos: Option<u64>,
}

/// What an engine replays.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReplayConfig {
    /// Descriptors of the logs to pass through, each a file of records: first that of a unit that the recorder or an
    /// `execve` started, then those of its forked descendants.
    pub log_fds: Vec<i32>,
    /// Where the later logs begin.
    pub forks: Vec<ForkEdge>,
    /// Descriptor of the folder with the kept files.
    pub files_fd: i32,
    /// Compare digests.
    pub verify: bool,
    /// Write what the guest wrote to its standard output and error to our own.
    pub emit: bool,
    /// Wait for requests instead of running to the end.
    pub serve: bool,
    /// For tests of the comparison itself: at this tick one bit of the guest's state is changed ([`Disturb`]).
    pub disturb: Option<Disturb>,
}

/// A fork whose child has a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ForkEdge {
    /// The parent's log, by its place in the list, and the record in it.
    pub parent: u32,
    pub record: u64,
    pub child: u32,
    /// The child is replayed by a copy of the process while the parent goes on; otherwise instead of the parent.
    pub copy: bool,
}

/// A change of the guest's state that a comparison must notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Disturb {
    pub tick: u64,
    /// A register by hardware number, or 16: memory.
    pub register: u8,
    pub addr: u64,
    pub bit: u8,
}

/// Where trace buffers go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum TraceSink {
    /// Buffers are overwritten: for measuring.
    #[default]
    Drop = 0,
    /// A ring shared with the host.
    Ring = 1,
}

/// Something to do at the n-th execution of one instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probe {
    pub site: Site,
    /// 1 is the first execution; 0 means every execution.
    pub instance: u64,
    pub action: Action,
}

/// An instruction, named so that it can be found before anything is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Site {
    Absolute(GuestAddr),
    /// Offset from the load bias of the executable (for a non-PIE: the address itself).
    Executable(u64),
}

/// What a probe does, before its instruction executes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Report registers and go on.
    Report,
    /// The conditional branch at the site goes the other way.
    Flip,
    /// Execution goes on at another place instead: skips the instructions between.
    Skip(Site),
    /// Registers by hardware number (rax 0, rcx 1, …); 16 is the flags register.
    SetRegister(u8, u64),
    SetMemory(GuestAddr, Vec<u8>),
    /// Instrumentation changes from here on.
    SwitchMode(Mode),
}

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

impl Config {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u32(CONFIG_MAGIC);
        w.u8(self.mode as u8);
        w.u8(self.cpu as u8);
        w.u8(self.seed.is_some() as u8);
        w.u64(self.seed.unwrap_or(0));
        w.u8(self.stats as u8);
        w.u8(self.coverage as u8);
        w.u8(self.dies_with_host as u8);
        w.u8(self.sink as u8);
        w.u32(self.control_fd as u32);
        w.u32(self.engine_fd as u32);
        w.u64(self.inherited_blocked);
        w.u64(self.inherited_ignored);
        w.u32(self.probes.len() as u32);
        for p in &self.probes {
            w.probe(p);
        }
        w.u8(self.record.is_some() as u8);
        if let Some(r) = &self.record {
            w.record_config(r);
        }
        w.u8(self.replay.is_some() as u8);
        if let Some(r) = &self.replay {
            w.replay_config(r);
        }
        w.0
    }

    pub fn decode(bytes: &[u8]) -> Option<Config> {
        let mut r = Reader(bytes);
        if r.u32()? != CONFIG_MAGIC {
            return None;
        }
        let mode = Mode::from_u8(r.u8()?)?;
        let cpu = if r.u8()? == 0 { Cpu::V2 } else { Cpu::Native };
        let seeded = r.u8()? != 0;
        let seed = r.u64()?;
        Some(Config {
            mode,
            cpu,
            seed: seeded.then_some(seed),
            stats: r.u8()? != 0,
            coverage: r.u8()? != 0,
            dies_with_host: r.u8()? != 0,
            sink: if r.u8()? == 0 { TraceSink::Drop } else { TraceSink::Ring },
            control_fd: r.u32()? as i32,
            engine_fd: r.u32()? as i32,
            inherited_blocked: r.u64()?,
            inherited_ignored: r.u64()?,
            probes: r.list(Reader::probe)?,
            record: if r.u8()? != 0 { Some(r.record_config()?) } else { None },
            replay: if r.u8()? != 0 { Some(r.replay_config()?) } else { None },
        })
    }
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
            Report::Segment { unit, sequence } => {
                w.u8(11);
                w.str(unit);
                w.u32(*sequence);
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
            11 => Report::Segment { unit: r.str()?, sequence: r.u32()? },
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
    fn site(&mut self, s: &Site) {
        match s {
            Site::Absolute(a) => {
                self.u8(0);
                self.u64(a.0);
            }
            Site::Executable(o) => {
                self.u8(1);
                self.u64(*o);
            }
        }
    }
    fn probe(&mut self, p: &Probe) {
        self.site(&p.site);
        self.u64(p.instance);
        match &p.action {
            Action::Report => self.u8(0),
            Action::Flip => self.u8(1),
            Action::Skip(s) => {
                self.u8(2);
                self.site(s);
            }
            Action::SetRegister(r, v) => {
                self.u8(3);
                self.u8(*r);
                self.u64(*v);
            }
            Action::SetMemory(a, b) => {
                self.u8(4);
                self.u64(a.0);
                self.bytes(b);
            }
            Action::SwitchMode(m) => {
                self.u8(5);
                self.u8(*m as u8);
            }
        }
    }
    fn record_config(&mut self, c: &RecordConfig) {
        self.u32(c.folder_fd as u32);
        self.u32(c.store_fd as u32);
        self.str(&c.origin);
        for v in c.streams.as_flattened() {
            self.u64(*v);
        }
        self.u8(c.chaos.is_some() as u8);
        self.u64(c.chaos.unwrap_or(0));
    }
    fn replay_config(&mut self, c: &ReplayConfig) {
        self.u32(c.log_fds.len() as u32);
        c.log_fds.iter().for_each(|fd| self.u32(*fd as u32));
        self.u32(c.forks.len() as u32);
        for f in &c.forks {
            self.u32(f.parent);
            self.u64(f.record);
            self.u32(f.child);
            self.u8(f.copy as u8);
        }
        self.u32(c.files_fd as u32);
        self.u8(c.verify as u8 | (c.emit as u8) << 1 | (c.serve as u8) << 2 | (c.disturb.is_some() as u8) << 3);
        let d = c.disturb.unwrap_or_default();
        self.u64(d.tick);
        self.u8(d.register);
        self.u64(d.addr);
        self.u8(d.bit);
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
    fn site(&mut self) -> Option<Site> {
        Some(match self.u8()? {
            0 => Site::Absolute(GuestAddr(self.u64()?)),
            1 => Site::Executable(self.u64()?),
            _ => return None,
        })
    }
    fn probe(&mut self) -> Option<Probe> {
        let site = self.site()?;
        let instance = self.u64()?;
        let action = match self.u8()? {
            0 => Action::Report,
            1 => Action::Flip,
            2 => Action::Skip(self.site()?),
            3 => Action::SetRegister(self.u8()?, self.u64()?),
            4 => Action::SetMemory(GuestAddr(self.u64()?), self.bytes()?.to_vec()),
            5 => Action::SwitchMode(Mode::from_u8(self.u8()?)?),
            _ => return None,
        };
        Some(Probe { site, instance, action })
    }
    fn record_config(&mut self) -> Option<RecordConfig> {
        let (folder_fd, store_fd, origin) = (self.u32()? as i32, self.u32()? as i32, self.str()?);
        let mut streams = [[0; 2]; 3];
        for v in streams.as_flattened_mut() {
            *v = self.u64()?;
        }
        let chaos = self.u8()? != 0;
        let seed = self.u64()?;
        Some(RecordConfig { folder_fd, store_fd, origin, streams, chaos: chaos.then_some(seed) })
    }
    fn replay_config(&mut self) -> Option<ReplayConfig> {
        let log_fds = self.list(|r| Some(r.u32()? as i32))?;
        let forks = self.list(|r| {
            Some(ForkEdge { parent: r.u32()?, record: r.u64()?, child: r.u32()?, copy: r.u8()? != 0 })
        })?;
        let files_fd = self.u32()? as i32;
        let flags = self.u8()?;
        let d = Disturb { tick: self.u64()?, register: self.u8()?, addr: self.u64()?, bit: self.u8()? };
        Some(ReplayConfig {
            log_fds,
            forks,
            files_fd,
            verify: flags & 1 != 0,
            emit: flags & 2 != 0,
            serve: flags & 4 != 0,
            disturb: (flags & 8 != 0).then_some(d),
        })
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

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_configuration_survives_the_wire() {
        let c = Config {
            mode: Mode::Trace,
            seed: Some(4),
            dies_with_host: true,
            control_fd: -1,
            engine_fd: 900,
            probes: alloc::vec![
                Probe { site: Site::Executable(0x1234), instance: 7, action: Action::Flip },
                Probe { site: Site::Absolute(GuestAddr(9)), instance: 0, action: Action::Skip(Site::Executable(1)) },
                Probe {
                    site: Site::Executable(2),
                    instance: 1,
                    action: Action::SetMemory(GuestAddr(3), alloc::vec![1])
                },
                Probe { site: Site::Executable(2), instance: 1, action: Action::SwitchMode(Mode::Count) },
            ],
            record: Some(RecordConfig {
                folder_fd: 5,
                store_fd: -1,
                origin: "7.0".into(),
                streams: [[1, 2], [3, 4], [5, 6]],
                chaos: Some(9),
            }),
            replay: Some(ReplayConfig {
                log_fds: alloc::vec![3, 4],
                forks: alloc::vec![ForkEdge { parent: 0, record: 17, child: 1, copy: true }],
                files_fd: 8,
                serve: true,
                disturb: Some(Disturb { tick: 1, register: 16, addr: 3, bit: 5 }),
                ..ReplayConfig::default()
            }),
            ..Config::default()
        };
        assert_eq!(Config::decode(&c.encode()), Some(c));
        assert_eq!(Config::decode(b"nonsense"), None);
    }
}
