//! Requests as bytes.

use super::{Alteration, Look, Request, TrialLimits, Until};
use crate::wire::{Reader, Writer};
use crate::{GuestAddr, Mode};
use alloc::vec::Vec;

impl Request {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        match self {
            Request::Where => w.u8(0),
            Request::Run(u) => {
                w.u8(1);
                w.option(u.moment, Writer::moment);
                w.option(u.record, Writer::u64);
                w.u8(u.collect as u8);
                w.u64(u.skip);
                w.u8(u.blind as u8);
                w.u8(u.single as u8);
                w.option(u.thread, Writer::u32);
            }
            Request::Step => w.u8(2),
            Request::Registers { thread } => {
                w.u8(3);
                w.u32(*thread);
            }
            Request::SetRegisters { thread, state } => {
                w.u8(4);
                w.u32(*thread);
                w.state(state);
            }
            Request::Read { addr, len } => {
                w.u8(5);
                w.u64(addr.0);
                w.u32(*len);
            }
            Request::Write { addr, bytes } => {
                w.u8(6);
                w.u64(addr.0);
                w.bytes(bytes);
            }
            Request::Threads => w.u8(7),
            Request::Maps => w.u8(8),
            Request::Breakpoints(list) => {
                w.u8(9);
                w.u32(list.len() as u32);
                list.iter().for_each(|a| w.u64(*a));
            }
            Request::Watches(list) => {
                w.u8(10);
                w.u32(list.len() as u32);
                for (at, len) in list {
                    w.u64(*at);
                    w.u32(*len);
                }
            }
            Request::Mode(mode) => {
                w.u8(11);
                w.u8(*mode as u8);
            }
            Request::Fork => w.u8(12),
            Request::Alter(a) => {
                w.u8(13);
                w.alteration(a);
            }
            Request::Trial(l) => {
                w.u8(14);
                w.limits(l);
            }
            Request::Try { alteration, files, limits } => {
                w.u8(44);
                w.alteration(alteration);
                w.paths(files);
                w.limits(limits);
            }
            Request::Hold(l) => {
                w.u8(42);
                w.limits(l);
            }
            Request::Files(paths) => {
                w.u8(17);
                w.paths(paths);
            }
            Request::Quit => w.u8(15),
            Request::Belt => w.u8(19),
            Request::Looks(list) => {
                w.u8(18);
                w.u32(list.len() as u32);
                list.iter().for_each(|l| l.encode(&mut w));
            }
            Request::Predicates { ranges, places, jumps, keep } => {
                w.u8(40);
                w.u32(ranges.len() as u32);
                for (start, end) in ranges {
                    w.u64(*start);
                    w.u64(*end);
                }
                w.u32(places.len() as u32);
                places.iter().for_each(|at| w.u64(*at));
                w.u8(*jumps as u8);
                w.u32(*keep);
            }
            Request::KeepPredicates { keep } => {
                w.u8(43);
                w.u32(*keep);
            }
            Request::PredicateList { from } => {
                w.u8(41);
                w.u32(*from);
            }
            Request::Leave { thread } => {
                w.u8(16);
                w.u32(*thread);
            }
        }
        w.0
    }

    pub fn decode(bytes: &[u8]) -> Option<Request> {
        let mut r = Reader(bytes);
        Some(match r.u8()? {
            0 => Request::Where,
            1 => Request::Run(Until {
                moment: r.option(Reader::moment)?,
                record: r.option(|r| r.u64())?,
                collect: r.u8()? != 0,
                skip: r.u64()?,
                blind: r.u8()? != 0,
                single: r.u8()? != 0,
                thread: r.option(|r| r.u32())?,
            }),
            2 => Request::Step,
            3 => Request::Registers { thread: r.u32()? },
            4 => Request::SetRegisters { thread: r.u32()?, state: r.state()? },
            5 => Request::Read { addr: GuestAddr(r.u64()?), len: r.u32()? },
            6 => Request::Write { addr: GuestAddr(r.u64()?), bytes: r.bytes()?.to_vec() },
            7 => Request::Threads,
            8 => Request::Maps,
            9 => Request::Breakpoints(r.list(|r| r.u64())?),
            10 => Request::Watches(r.list(|r| Some((r.u64()?, r.u32()?)))?),
            11 => Request::Mode(Mode::from_u8(r.u8()?)?),
            12 => Request::Fork,
            13 => Request::Alter(r.alteration()?),
            14 => Request::Trial(r.limits()?),
            44 => Request::Try { alteration: r.alteration()?, files: r.paths()?, limits: r.limits()? },
            42 => Request::Hold(r.limits()?),
            17 => Request::Files(r.paths()?),
            15 => Request::Quit,
            19 => Request::Belt,
            18 => Request::Looks(r.list(Look::decode)?),
            40 => Request::Predicates {
                ranges: r.list(|r| Some((r.u64()?, r.u64()?)))?,
                places: r.list(Reader::u64)?,
                jumps: r.u8()? != 0,
                keep: r.u32()?,
            },
            43 => Request::KeepPredicates { keep: r.u32()? },
            41 => Request::PredicateList { from: r.u32()? },
            16 => Request::Leave { thread: r.u32()? },
            _ => return None,
        })
    }
}

impl Writer {
    fn alteration(&mut self, a: &Alteration) {
        match a {
            Alteration::Null => self.u8(0),
            Alteration::Apart => self.u8(6),
            Alteration::Flip => self.u8(1),
            Alteration::FlipTwo { pc, execution } => {
                self.u8(9);
                self.u64(*pc);
                self.u64(*execution);
            }
            Alteration::Force(taken) => {
                self.u8(7);
                self.u8(u8::from(*taken));
            }
            Alteration::Skip(to) => {
                self.u8(2);
                self.u64(*to);
            }
            Alteration::Return => self.u8(8),
            Alteration::SetRegister(r, v) => {
                self.u8(3);
                self.u8(*r);
                self.u64(*v);
            }
            Alteration::SetMemory(at, bytes) => {
                self.u8(4);
                self.u64(at.0);
                self.bytes(bytes);
            }
            Alteration::Input { offset, bytes } => {
                self.u8(5);
                self.u64(*offset);
                self.bytes(bytes);
            }
            Alteration::Arm(probe) => {
                self.u8(20);
                self.probe(probe);
            }
        }
    }

    fn paths(&mut self, paths: &[Vec<u8>]) {
        self.u32(paths.len() as u32);
        paths.iter().for_each(|path| self.bytes(path));
    }

    fn limits(&mut self, l: &TrialLimits) {
        self.u64(l.ticks);
        self.u64(l.memory);
        self.u64(l.output);
        self.u8(l.belt as u8);
    }
}

impl Reader<'_> {
    fn alteration(&mut self) -> Option<Alteration> {
        Some(match self.u8()? {
            0 => Alteration::Null,
            6 => Alteration::Apart,
            1 => Alteration::Flip,
            9 => Alteration::FlipTwo { pc: self.u64()?, execution: self.u64()? },
            7 => Alteration::Force(self.u8()? != 0),
            2 => Alteration::Skip(self.u64()?),
            8 => Alteration::Return,
            3 => Alteration::SetRegister(self.u8()?, self.u64()?),
            4 => Alteration::SetMemory(GuestAddr(self.u64()?), self.bytes()?.to_vec()),
            5 => Alteration::Input { offset: self.u64()?, bytes: self.bytes()?.to_vec() },
            20 => Alteration::Arm(self.probe()?),
            _ => return None,
        })
    }

    fn paths(&mut self) -> Option<Vec<Vec<u8>>> {
        self.list(|r| Some(r.bytes()?.to_vec()))
    }

    fn limits(&mut self) -> Option<TrialLimits> {
        Some(TrialLimits { ticks: self.u64()?, memory: self.u64()?, output: self.u64()?, belt: self.u8()? != 0 })
    }
}
