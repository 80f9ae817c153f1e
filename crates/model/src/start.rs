//! How the log of a unit begins: where the unit comes from, and everything that its beginning depends on.
//!
//! Decoding never panics: what does not parse is `None`.

use crate::wire::{Reader, Writer};
use crate::{Cpu, Mode};
use alloc::{string::String, vec::Vec};

/// Where a unit comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The recorder started it.
    First,
    /// It replaced another unit of its process.
    Exec { unit: String },
    /// It is a copy of another unit at this record of that unit's log (counted from 0).
    Fork { unit: String, record: u64 },
}

/// Everything that a unit's beginning depends on. For a forked unit only `origin`, `pid` and `tid` are filled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Start {
    pub origin: Origin,
    pub pid: u32,
    pub tid: u32,
    pub cpu: Cpu,
    pub mode: Mode,
    pub seed: Option<u64>,
    /// The program's canonical path and the name it was executed under.
    pub exe: String,
    pub execfn: Vec<u8>,
    pub argv: Vec<Vec<u8>>,
    pub envp: Vec<Vec<u8>>,
    pub auxv: Vec<(u64, u64)>,
    pub random: [u8; 16],
    pub stack_limit: u64,
    pub cwd: Vec<u8>,
    /// Keys of the program and of its interpreter; the latter may be empty.
    pub program: String,
    pub interpreter: String,
    /// Signals blocked and ignored at the start.
    pub blocked: u64,
    pub ignored: u64,
    /// Components and size of the extended state in signal frames.
    pub xstate: (u64, u64),
    /// Time stamp counter and clocks (realtime, monotonic) at the start, in nanoseconds.
    pub time: u64,
    pub clocks: [u64; 2],
    /// The tick at which it begins, when that is in the middle of a run: then the state it begins with follows.
    pub region: Option<u64>,
}

/// Said in the byte of the origin.
const REGION: u8 = 0x80;

impl Start {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        let (tag, unit, record) = match &self.origin {
            Origin::First => (0, None, None),
            Origin::Exec { unit } => (1, Some(unit), None),
            Origin::Fork { unit, record } => (2, Some(unit), Some(*record)),
        };
        w.u8(tag | if self.region.is_some() { REGION } else { 0 });
        unit.iter().for_each(|unit| w.str(unit));
        record.iter().chain(&self.region).for_each(|v| w.u64(*v));
        w.u32(self.pid);
        w.u32(self.tid);
        w.u8(self.cpu as u8);
        w.u8(self.mode as u8);
        w.u8(self.seed.is_some() as u8);
        w.u64(self.seed.unwrap_or(0));
        w.str(&self.exe);
        w.bytes(&self.execfn);
        for list in [&self.argv, &self.envp] {
            w.u32(list.len() as u32);
            list.iter().for_each(|s| w.bytes(s));
        }
        w.u32(self.auxv.len() as u32);
        for (key, value) in &self.auxv {
            w.u64(*key);
            w.u64(*value);
        }
        w.0.extend_from_slice(&self.random);
        w.u64(self.stack_limit);
        w.bytes(&self.cwd);
        w.str(&self.program);
        w.str(&self.interpreter);
        for v in [self.blocked, self.ignored, self.xstate.0, self.xstate.1, self.time, self.clocks[0], self.clocks[1]] {
            w.u64(v);
        }
        w.0
    }

    pub fn decode(payload: &[u8]) -> Option<Start> {
        let mut r = Reader(payload);
        let tag = r.u8()?;
        let origin = match tag & !REGION {
            0 => Origin::First,
            1 => Origin::Exec { unit: r.str()? },
            2 => Origin::Fork { unit: r.str()?, record: r.u64()? },
            _ => return None,
        };
        let region = if tag & REGION != 0 { Some(r.u64()?) } else { None };
        let (pid, tid) = (r.u32()?, r.u32()?);
        let cpu = if r.u8()? == 0 { Cpu::V2 } else { Cpu::Native };
        let mode = Mode::from_u8(r.u8()?)?;
        let seeded = r.u8()? != 0;
        let seed = r.u64()?;
        Some(Start {
            origin,
            pid,
            tid,
            cpu,
            mode,
            seed: seeded.then_some(seed),
            exe: r.str()?,
            execfn: r.bytes()?.to_vec(),
            argv: r.list(|r| Some(r.bytes()?.to_vec()))?,
            envp: r.list(|r| Some(r.bytes()?.to_vec()))?,
            auxv: r.list(|r| Some((r.u64()?, r.u64()?)))?,
            random: r.take(16)?.try_into().ok()?,
            stack_limit: r.u64()?,
            cwd: r.bytes()?.to_vec(),
            program: r.str()?,
            interpreter: r.str()?,
            blocked: r.u64()?,
            ignored: r.u64()?,
            xstate: (r.u64()?, r.u64()?),
            time: r.u64()?,
            clocks: [r.u64()?, r.u64()?],
            region,
        })
    }

    /// The start of a forked copy.
    pub fn forked(unit: String, record: u64, pid: u32, tid: u32) -> Start {
        Start {
            origin: Origin::Fork { unit, record },
            pid,
            tid,
            cpu: Cpu::V2,
            mode: Mode::Tick,
            seed: None,
            exe: String::new(),
            execfn: Vec::new(),
            argv: Vec::new(),
            envp: Vec::new(),
            auxv: Vec::new(),
            random: [0; 16],
            stack_limit: 0,
            cwd: Vec::new(),
            program: String::new(),
            interpreter: String::new(),
            blocked: 0,
            ignored: 0,
            xstate: (0, 0),
            time: 0,
            clocks: [0; 2],
            region: None,
        }
    }
}
