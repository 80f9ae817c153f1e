//! What a trial hands on to the image that its guest executes: the state of its world.
//!
//! The new image is an engine of its own that begins with a log of one start; this comes with its configuration.
//! Descriptors named here are open in the process across the `execve`. Decoding never panics.

use crate::serve::TrialLimits;
use crate::wire::{Reader, Writer};
use alloc::vec::Vec;

/// What a descriptor of the guest leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Behind {
    /// Standard output (1) or error (2).
    Out(u8),
    /// Bytes still to be read, and whether nothing comes behind them.
    Stream {
        bytes: Vec<u8>,
        ends: bool,
    },
    /// A descriptor of the process: a file, or with `live` something that the trial's processes talk through.
    Real {
        fd: i32,
        live: bool,
    },
    /// A kept file.
    Kept {
        file: u32,
        flags: u32,
        position: u64,
    },
    Unknown,
}

/// The state of a trial between two images of one process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Handover {
    pub limits: TrialLimits,
    /// The tick at which the trial began, and the one it has come to.
    pub begun: u64,
    pub tick: u64,
    /// Nanoseconds that have passed in waits.
    pub waited: u64,
    /// Bytes of output so far.
    pub written: u64,
    /// Descriptors of the guest, each with its place among `entries` and whether reads and writes of it do not wait.
    pub numbers: Vec<(u32, u32)>,
    pub entries: Vec<(Behind, bool)>,
    /// Names that were written (a descriptor) or removed.
    pub overlay: Vec<(Vec<u8>, Option<i32>)>,
    /// Children that run: the number the guest knows, and the real one.
    pub children: Vec<(u32, u32)>,
    pub is_child: bool,
    /// What the processes of the trial share, if there are several.
    pub common: Vec<i32>,
    /// Descriptors that only the start of the image needs.
    pub spent: Vec<i32>,
}

impl Writer {
    pub(crate) fn handover(&mut self, h: &Handover) {
        for v in [h.limits.ticks, h.limits.memory, h.limits.output, h.begun, h.tick, h.waited, h.written] {
            self.u64(v);
        }
        self.u8(h.limits.belt as u8 | (h.is_child as u8) << 1);
        self.u32(h.numbers.len() as u32);
        for (fd, at) in &h.numbers {
            self.u32(*fd);
            self.u32(*at);
        }
        self.u32(h.entries.len() as u32);
        for (behind, nonblocking) in &h.entries {
            self.u8(*nonblocking as u8);
            self.behind(behind);
        }
        self.u32(h.overlay.len() as u32);
        for (path, fd) in &h.overlay {
            self.bytes(path);
            self.u32(fd.unwrap_or(-1) as u32);
        }
        self.u32(h.children.len() as u32);
        for (guest, real) in &h.children {
            self.u32(*guest);
            self.u32(*real);
        }
        for list in [&h.common, &h.spent] {
            self.u32(list.len() as u32);
            list.iter().for_each(|fd| self.u32(*fd as u32));
        }
    }

    fn behind(&mut self, b: &Behind) {
        match b {
            Behind::Out(n) => {
                self.u8(0);
                self.u8(*n);
            }
            Behind::Stream { bytes, ends } => {
                self.u8(1);
                self.bytes(bytes);
                self.u8(*ends as u8);
            }
            Behind::Real { fd, live } => {
                self.u8(2);
                self.u32(*fd as u32);
                self.u8(*live as u8);
            }
            Behind::Kept { file, flags, position } => {
                self.u8(3);
                self.u32(*file);
                self.u32(*flags);
                self.u64(*position);
            }
            Behind::Unknown => self.u8(4),
        }
    }
}

impl Reader<'_> {
    pub(crate) fn handover(&mut self) -> Option<Handover> {
        let mut limits = TrialLimits { ticks: self.u64()?, memory: self.u64()?, output: self.u64()?, belt: false };
        let (begun, tick, waited, written) = (self.u64()?, self.u64()?, self.u64()?, self.u64()?);
        let flags = self.u8()?;
        limits.belt = flags & 1 != 0;
        let descriptor = |fd: u32| Some(fd as i32).filter(|fd| *fd >= 0);
        Some(Handover {
            limits,
            begun,
            tick,
            waited,
            written,
            numbers: self.list(|r| Some((r.u32()?, r.u32()?)))?,
            entries: self.list(|r| {
                let nonblocking = r.u8()? != 0;
                Some((r.behind()?, nonblocking))
            })?,
            overlay: self.list(|r| Some((r.bytes()?.to_vec(), descriptor(r.u32()?))))?,
            children: self.list(|r| Some((r.u32()?, r.u32()?)))?,
            is_child: flags & 2 != 0,
            common: self.list(|r| Some(r.u32()? as i32))?,
            spent: self.list(|r| Some(r.u32()? as i32))?,
        })
    }

    fn behind(&mut self) -> Option<Behind> {
        Some(match self.u8()? {
            0 => Behind::Out(self.u8()?),
            1 => Behind::Stream { bytes: self.bytes()?.to_vec(), ends: self.u8()? != 0 },
            2 => Behind::Real { fd: self.u32()? as i32, live: self.u8()? != 0 },
            3 => Behind::Kept { file: self.u32()?, flags: self.u32()?, position: self.u64()? },
            4 => Behind::Unknown,
            _ => return None,
        })
    }
}
