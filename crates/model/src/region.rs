//! Regions: stretches of a run. Where the recording of one begins and ends, and the records of the state it begins with.
//!
//! The log of a region begins with a [`Start`](crate::log::Start) that names its first tick, then come
//! [`ProcessRecord`], [`FileRecord`](crate::log::FileRecord)s, [`MapRecord`]s, the contents of memory
//! ([`Bytes`](crate::log::Bytes)), [`ThreadRecord`]s (the running one first) and descriptors; then what happened, as in any
//! other log. Decoding never panics: what does not parse is `None`.

use crate::wire::{Reader, Site, Writer};
use alloc::vec::Vec;

/// Where a region begins or ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionPoint {
    /// Before an execution of an instruction: the n-th of the run, or with 0 the next one.
    Site { site: Site, instance: u64, program: [u64; 2] },
    /// As soon as this many ticks of a process image are over.
    Ticks(u64),
    /// At the first tick at which this many instructions of a process have been executed; they are counted in mode count.
    Instructions(u64),
}

impl RegionPoint {
    pub(crate) fn encode(point: &Option<RegionPoint>, w: &mut Writer) {
        match point {
            None => w.u8(0),
            Some(RegionPoint::Site { site, instance, program }) => {
                w.u8(1);
                w.site(site);
                w.u64(*instance);
                program.iter().for_each(|v| w.u64(*v));
            }
            Some(RegionPoint::Ticks(n)) => {
                w.u8(2);
                w.u64(*n);
            }
            Some(RegionPoint::Instructions(n)) => {
                w.u8(3);
                w.u64(*n);
            }
        }
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Option<Option<RegionPoint>> {
        Some(match r.u8()? {
            0 => None,
            1 => Some(RegionPoint::Site { site: r.site()?, instance: r.u64()?, program: [r.u64()?, r.u64()?] }),
            2 => Some(RegionPoint::Ticks(r.u64()?)),
            3 => Some(RegionPoint::Instructions(r.u64()?)),
            _ => return None,
        })
    }
}

/// What a process has once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProcessRecord {
    /// The program break now, and where it started.
    pub brk: [u64; 2],
    pub stack: [u64; 2],
    /// Where the auxiliary vector lies.
    pub auxv: [u64; 2],
    /// Load bias of the program, where the image began to run, and where the program itself begins.
    pub bias: u64,
    pub entry: u64,
    pub program: u64,
    /// Threads so far; the next one gets this number.
    pub threads: u64,
    /// Signals whose action is not the default: handler, flags, restorer, mask.
    pub actions: Vec<(u32, [u64; 4])>,
}

impl ProcessRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        for pair in [self.brk, self.stack, self.auxv] {
            pair.iter().for_each(|v| w.u64(*v));
        }
        for v in [self.bias, self.entry, self.program, self.threads] {
            w.u64(v);
        }
        w.u32(self.actions.len() as u32);
        for (signal, words) in &self.actions {
            w.u32(*signal);
            words.iter().for_each(|v| w.u64(*v));
        }
        w.0
    }

    pub fn decode(payload: &[u8]) -> Option<ProcessRecord> {
        let mut r = Reader(payload);
        Some(ProcessRecord {
            brk: words(&mut r)?,
            stack: words(&mut r)?,
            auxv: words(&mut r)?,
            bias: r.u64()?,
            entry: r.u64()?,
            program: r.u64()?,
            threads: r.u64()?,
            actions: r.list(|r| Some((r.u32()?, words(r)?)))?,
        })
    }
}

/// One mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MapRecord {
    pub start: u64,
    pub end: u64,
    pub prot: u8,
    pub shared: bool,
    /// It was made from a file.
    pub file: bool,
    /// Device and inode of the file, or what tells shared memory apart.
    pub object: Option<[u64; 2]>,
    /// Where in the object it starts.
    pub offset: u64,
    /// The kept file that it shows where no contents follow; 0 if it shows zeros.
    pub kept: u32,
}

impl MapRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u64(self.start);
        w.u64(self.end);
        w.u8(self.prot);
        w.u8(self.shared as u8 | (self.file as u8) << 1 | (self.object.is_some() as u8) << 2);
        self.object.unwrap_or_default().iter().for_each(|v| w.u64(*v));
        w.u64(self.offset);
        w.u32(self.kept);
        w.0
    }

    pub fn decode(payload: &[u8]) -> Option<MapRecord> {
        let mut r = Reader(payload);
        let (start, end, prot, flags) = (r.u64()?, r.u64()?, r.u8()?, r.u8()?);
        let object = words(&mut r)?;
        Some(MapRecord {
            start,
            end,
            prot,
            shared: flags & 1 != 0,
            file: flags & 2 != 0,
            object: (flags & 4 != 0).then_some(object),
            offset: r.u64()?,
            kept: r.u32()?,
        })
    }
}

/// A system call that a thread was in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WaitingCall {
    pub nr: u64,
    pub pc: u64,
    pub tick: u64,
    pub args: [u64; 6],
    /// What its record will say.
    pub digest: u64,
    /// The thread's signal mask when it made the call.
    pub mask: u64,
}

/// One thread.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ThreadRecord {
    pub serial: u32,
    pub tid: u32,
    pub gpr: [u64; 16],
    pub pc: u64,
    pub rflags: u64,
    pub hidden_flags: u64,
    pub fs: u64,
    pub gs: u64,
    pub mask: u64,
    pub restore_mask: Option<u64>,
    /// Alternate stack: address, flags, size.
    pub alt_stack: [u64; 3],
    pub clear_tid: u64,
    pub robust: [u64; 2],
    /// A signal that is held back for it.
    pub held: Option<[u64; 16]>,
    pub call: Option<WaitingCall>,
    /// Vector, mask and x87 registers in the XSAVE layout.
    pub extended: Vec<u8>,
}

impl ThreadRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u32(self.serial);
        w.u32(self.tid);
        self.gpr.iter().for_each(|v| w.u64(*v));
        for v in [self.pc, self.rflags, self.hidden_flags, self.fs, self.gs, self.mask, self.clear_tid] {
            w.u64(v);
        }
        self.alt_stack.iter().chain(&self.robust).for_each(|v| w.u64(*v));
        let flags = [self.restore_mask.is_some(), self.held.is_some(), self.call.is_some()];
        w.u8(flags.iter().enumerate().map(|(n, f)| (*f as u8) << n).sum());
        self.restore_mask.iter().for_each(|v| w.u64(*v));
        self.held.iter().flatten().for_each(|v| w.u64(*v));
        if let Some(c) = &self.call {
            for v in [c.nr, c.pc, c.tick, c.digest, c.mask].iter().chain(&c.args) {
                w.u64(*v);
            }
        }
        w.bytes(&self.extended);
        w.0
    }

    pub fn decode(payload: &[u8]) -> Option<ThreadRecord> {
        let mut r = Reader(payload);
        let (serial, tid, gpr) = (r.u32()?, r.u32()?, words(&mut r)?);
        let [pc, rflags, hidden_flags, fs, gs, mask, clear_tid] = words(&mut r)?;
        let (alt_stack, robust) = (words(&mut r)?, words(&mut r)?);
        let flags = r.u8()?;
        let restore_mask = if flags & 1 != 0 { Some(r.u64()?) } else { None };
        let held = if flags & 2 != 0 { Some(words(&mut r)?) } else { None };
        let call = if flags & 4 != 0 {
            let [nr, pc, tick, digest, mask] = words(&mut r)?;
            Some(WaitingCall { nr, pc, tick, args: words(&mut r)?, digest, mask })
        } else {
            None
        };
        let extended = r.bytes()?.to_vec();
        Some(ThreadRecord {
            serial,
            tid,
            gpr,
            pc,
            rflags,
            hidden_flags,
            fs,
            gs,
            mask,
            restore_mask,
            alt_stack,
            clear_tid,
            robust,
            held,
            call,
            extended,
        })
    }
}

fn words<const N: usize>(r: &mut Reader<'_>) -> Option<[u64; N]> {
    let mut all = [0; N];
    for v in &mut all {
        *v = r.u64()?;
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::fmt::Debug;

    fn check_survives<T: PartialEq + Debug>(value: T, bytes: &[u8], decode: impl Fn(&[u8]) -> Option<T>) {
        assert_eq!(decode(bytes), Some(value));
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes[..cut]), None, "cut at {cut}");
        }
    }

    #[test]
    fn the_state_survives_its_records() {
        let process = ProcessRecord {
            brk: [1, 2],
            stack: [3, 4],
            auxv: [5, 6],
            bias: 7,
            entry: 8,
            program: 9,
            threads: 10,
            actions: alloc::vec![(11, [12, 13, 14, 15]), (64, [1; 4])],
        };
        check_survives(process.clone(), &process.encode(), ProcessRecord::decode);
        let map =
            MapRecord { start: 1, end: 2, prot: 5, file: true, object: Some([3, 4]), kept: 9, ..MapRecord::default() };
        for map in [map, MapRecord { shared: true, object: None, ..map }] {
            check_survives(map, &map.encode(), MapRecord::decode);
        }
        let call = WaitingCall { nr: 202, pc: 1, tick: 2, args: [3; 6], digest: 4, mask: 5 };
        let thread =
            ThreadRecord { serial: 3, tid: 99, gpr: [7; 16], extended: alloc::vec![1; 600], ..Default::default() };
        let busy = ThreadRecord { restore_mask: Some(1), held: Some([2; 16]), call: Some(call), ..thread.clone() };
        for thread in [thread, busy] {
            check_survives(thread.clone(), &thread.encode(), ThreadRecord::decode);
        }
    }

    #[test]
    fn points_survive_the_wire() {
        let site = RegionPoint::Site { site: Site::Executable(0x1234), instance: 7, program: [1, 2] };
        for point in [None, Some(RegionPoint::Ticks(9)), Some(site)] {
            let mut w = Writer::default();
            RegionPoint::encode(&point, &mut w);
            check_survives(point, &w.0, |bytes| RegionPoint::decode(&mut Reader(bytes)));
        }
    }
}
