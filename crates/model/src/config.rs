//! The configuration an engine starts with.
//!
//! It lies in a memfd whose number is the engine's first argument. Both sides are built from the same sources in one
//! binary, so there is a version check but no compatibility code. Decoding never panics.

use crate::region::RegionPoint;
use crate::wire::{Reader, Writer};
use crate::{Cpu, GuestAddr, Mode};
use alloc::{string::String, vec::Vec};

/// First word of a configuration; changes whenever the encoding does.
const CONFIG_MAGIC: u32 = 0x434c_4303;

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
    /// Descriptor of the file through which the engines of one host hand on translations, if there is one.
    pub translations_fd: Option<i32>,
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
    /// Where the recording begins and ends; nothing is the beginning and the end of the run.
    pub from: Option<RegionPoint>,
    pub to: Option<RegionPoint>,
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
    /// The conditional branch at the site is taken, or not taken, whatever its condition says.
    Force(bool),
    /// Execution goes on at another place instead: skips the instructions between.
    Skip(Site),
    /// Registers by hardware number (rax 0, rcx 1, …); 16 is the flags register.
    SetRegister(u8, u64),
    SetMemory(GuestAddr, Vec<u8>),
    /// Instrumentation changes from here on.
    SwitchMode(Mode),
    /// Recording begins or ends here.
    StartRecording,
    StopRecording,
    /// At the beginning of a function: it returns at once, with the registers as they are.
    Return,
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
        w.u32(self.translations_fd.unwrap_or(-1) as u32);
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
            translations_fd: Some(r.u32()? as i32).filter(|fd| *fd >= 0),
            inherited_blocked: r.u64()?,
            inherited_ignored: r.u64()?,
            probes: r.list(Reader::probe)?,
            record: if r.u8()? != 0 { Some(r.record_config()?) } else { None },
            replay: if r.u8()? != 0 { Some(r.replay_config()?) } else { None },
        })
    }
}

impl Writer {
    pub(crate) fn site(&mut self, s: &Site) {
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
    pub(crate) fn probe(&mut self, p: &Probe) {
        self.site(&p.site);
        self.u64(p.instance);
        match &p.action {
            Action::Report => self.u8(0),
            Action::Flip => self.u8(1),
            Action::Force(taken) => {
                self.u8(8);
                self.u8(u8::from(*taken));
            }
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
            Action::StartRecording => self.u8(6),
            Action::StopRecording => self.u8(7),
            Action::Return => self.u8(9),
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
        RegionPoint::encode(&c.from, self);
        RegionPoint::encode(&c.to, self);
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
}

impl Reader<'_> {
    pub(crate) fn site(&mut self) -> Option<Site> {
        Some(match self.u8()? {
            0 => Site::Absolute(GuestAddr(self.u64()?)),
            1 => Site::Executable(self.u64()?),
            _ => return None,
        })
    }
    pub(crate) fn probe(&mut self) -> Option<Probe> {
        let site = self.site()?;
        let instance = self.u64()?;
        let action = match self.u8()? {
            0 => Action::Report,
            1 => Action::Flip,
            8 => Action::Force(self.u8()? != 0),
            2 => Action::Skip(self.site()?),
            3 => Action::SetRegister(self.u8()?, self.u64()?),
            4 => Action::SetMemory(GuestAddr(self.u64()?), self.bytes()?.to_vec()),
            5 => Action::SwitchMode(Mode::from_u8(self.u8()?)?),
            6 => Action::StartRecording,
            7 => Action::StopRecording,
            9 => Action::Return,
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
        let (from, to) = (RegionPoint::decode(self)?, RegionPoint::decode(self)?);
        Some(RecordConfig { folder_fd, store_fd, origin, streams, chaos: chaos.then_some(seed), from, to })
    }
    fn replay_config(&mut self) -> Option<ReplayConfig> {
        let log_fds = self.list(|r| Some(r.u32()? as i32))?;
        let forks =
            self.list(|r| Some(ForkEdge { parent: r.u32()?, record: r.u64()?, child: r.u32()?, copy: r.u8()? != 0 }))?;
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_survives_the_wire() {
        let c = Config {
            mode: Mode::Trace,
            seed: Some(4),
            dies_with_host: true,
            control_fd: -1,
            engine_fd: 900,
            translations_fd: Some(901),
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
                from: Some(RegionPoint::Ticks(3)),
                to: Some(RegionPoint::Instructions(7)),
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
