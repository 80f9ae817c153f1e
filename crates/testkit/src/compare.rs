//! Compares a decoded trace with the oracle's.
//!
//! Thread by thread, in order: every instruction of the program's own image (and of code that it generated) must be
//! there at the same address, and must touch the same bytes; every signal must arrive at the same place. Order between
//! threads is not compared, because natively it is the kernel's choice.
//!
//! The documented constants: a stack, heap, library or anonymous mapping may lie elsewhere under Clew, so its addresses
//! may differ from the native ones by one number per mapping. That number is learnt from the mapping's first use and must
//! hold for all others. The program's image and mappings at fixed addresses must not move at all.

use crate::oracle::{Access, Entry, Step, Touched, Trace, disassemble};
use crate::regions::RegionId;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::{self, Write};
use std::ops::Range;
use trace::event::{Event, Mem};
use trace::format::Special;

/// A decoded trace, by thread.
#[derive(Debug, Default)]
pub struct Decoded {
    /// In order of creation.
    pub threads: Vec<Vec<Got>>,
}

/// One thing a thread did, as the trace tells it; libraries included.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Got {
    Insn {
        pc: u64,
        mem: Vec<Mem>,
    },
    RepPart {
        pc: u64,
        mem: Vec<Mem>,
    },
    /// Executed by the engine itself: the trace does not tell its accesses.
    Step {
        pc: u64,
    },
    Signal {
        signo: u32,
        pc: u64,
    },
}

impl Got {
    fn pc(&self) -> u64 {
        match *self {
            Got::Insn { pc, .. } | Got::RepPart { pc, .. } | Got::Step { pc } | Got::Signal { pc, .. } => pc,
        }
    }
}

impl Decoded {
    pub fn new(events: &[Event]) -> Decoded {
        let mut by_tid: BTreeMap<u32, Vec<Got>> = BTreeMap::new();
        let mut order: Vec<u32> = Vec::new();
        let mut created: Vec<u32> = Vec::new();
        let mut tid = 0;
        for event in events {
            let list = by_tid.entry(tid).or_default();
            match *event {
                Event::Insn(i) => list.push(Got::Insn { pc: i.pc, mem: Vec::new() }),
                Event::RepPart(i) => list.push(Got::RepPart { pc: i.pc, mem: Vec::new() }),
                Event::Mem(m) => match list.last_mut() {
                    Some(Got::Insn { mem, .. } | Got::RepPart { mem, .. }) => mem.push(m),
                    _ => panic!("an access belongs to an instruction"),
                },
                Event::Special(Special::Thread { tid: now, .. }) => {
                    tid = now;
                    if !order.contains(&tid) {
                        order.push(tid);
                    }
                }
                Event::Special(Special::Signal { signo, pc, .. }) => list.push(Got::Signal { signo, pc }),
                Event::Special(Special::Step { pc }) => list.push(Got::Step { pc }),
                Event::Special(Special::Syscall { nr, result, .. }) => {
                    const CLONE: u64 = 56;
                    const CLONE3: u64 = 435;
                    if (nr == CLONE || nr == CLONE3) && (result as i64) > 0 {
                        created.push(result as u32);
                    }
                }
                Event::Special(_) => {}
            }
        }
        // The first thread to run is the main one; the others in the order their parents made them.
        let first = order.first().copied().unwrap_or(0);
        order.sort_by_key(|t| (*t != first, created.iter().position(|c| c == t).unwrap_or(usize::MAX), *t));
        Decoded { threads: order.iter().map(|t| by_tid.remove(t).unwrap_or_default()).collect() }
    }
}

impl Decoded {
    /// Drops what the first thread did before it first came to `pc`.
    pub fn since(&mut self, pc: u64) {
        if let Some(main) = self.threads.first_mut() {
            let at = main.iter().position(|got| got.pc() == pc).unwrap_or(0);
            main.drain(..at);
        }
    }
}

/// What a successful comparison covered.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Covered {
    pub threads: usize,
    pub instructions: u64,
    pub accesses: u64,
    pub signals: u64,
    /// The constants found, by mapping.
    pub moved: BTreeMap<RegionId, i64>,
}

impl fmt::Display for Covered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Covered { threads, instructions, accesses, signals, moved } = self;
        write!(f, "{threads} threads, {instructions} instructions, {accesses} accesses, {signals} signals equal")?;
        write!(f, "; {} mappings lie elsewhere", moved.values().filter(|d| **d != 0).count())
    }
}

/// Compares; the error tells the first difference with what surrounds it.
pub fn compare(native: &Trace, got: &Decoded) -> Result<Covered, String> {
    let mut c = Comparison {
        native,
        covered: Covered::default(),
        generating: HashSet::new(),
        generated: Vec::new(),
        deltas: HashMap::new(),
    };
    for (index, expected) in native.threads.iter().enumerate() {
        let nothing = Vec::new();
        c.thread(index, expected, got.threads.get(index).unwrap_or(&nothing))?;
    }
    let extra = got.threads.len().saturating_sub(native.threads.len());
    if extra > 0 {
        return Err(format!("{extra} more threads than the {} natively", native.threads.len()));
    }
    c.covered.threads = native.threads.len();
    c.covered.moved = c.deltas.iter().map(|(r, d)| (*r, *d as i64)).collect();
    Ok(c.covered)
}

struct Comparison<'a> {
    native: &'a Trace,
    covered: Covered,
    /// Mappings with generated code, and where they lie under Clew.
    generating: HashSet<RegionId>,
    generated: Vec<Range<u64>>,
    deltas: HashMap<RegionId, u64>,
}

impl Comparison<'_> {
    fn thread(&mut self, index: usize, expected: &[Entry], got: &[Got]) -> Result<(), String> {
        let mut at = 0;
        for (n, entry) in expected.iter().enumerate() {
            self.learn_generated(entry, got, at);
            let next = (at..got.len()).find(|&i| self.counts(&got[i]));
            let result = match next {
                Some(i) => self.entry(entry, &got[i]),
                None => Err("the trace ends here".into()),
            };
            at = next.map_or(got.len(), |i| i + 1);
            result.map_err(|why| {
                let place = format!("thread {index}, entry {n} of {}", expected.len());
                format!("{place}: {why}\n{}", self.surroundings(expected, n, got, next.unwrap_or(got.len())))
            })?;
        }
        match (at..got.len()).find(|&i| self.counts(&got[i])) {
            // A thread that the end of the process cuts off may be seen a little further on one side.
            Some(i) if index == 0 => Err(format!("thread {index} goes on after its native end, at {:#x}", got[i].pc())),
            _ => Ok(()),
        }
    }

    /// Is it something that the oracle sees too?
    fn counts(&self, got: &Got) -> bool {
        let own = |pc: u64| self.native.regions.image().contains(&pc) || self.generated.iter().any(|r| r.contains(&pc));
        matches!(got, Got::Signal { .. }) || own(got.pc())
    }

    /// Where generated code lies is seen the first time control goes there from code whose place is known.
    fn learn_generated(&mut self, entry: &Entry, got: &[Got], at: usize) {
        let Entry::Insn(step) = entry else { return };
        if step.region == RegionId::Image || !self.generating.insert(step.region) {
            return;
        }
        let delta = match (self.deltas.get(&step.region), got.get(at)) {
            (Some(delta), _) => *delta,
            (None, Some(g)) if step.region.moves() => g.pc().wrapping_sub(step.pc),
            _ => 0,
        };
        let extent = self.native.regions.extent(step.region);
        self.deltas.insert(step.region, delta);
        self.generated.push(extent.start.wrapping_add(delta)..extent.end.wrapping_add(delta));
    }

    fn entry(&mut self, expected: &Entry, got: &Got) -> Result<(), String> {
        match (expected, got) {
            (Entry::Signal { signo, pc }, Got::Signal { signo: s, pc: p }) => {
                self.covered.signals += 1;
                // Inside a library the place depends on which of its functions the CPU gets.
                let comparable = self.native.regions.image().contains(pc);
                if signo != s || (comparable && pc != p) {
                    return Err(format!("expected signal {signo} at {pc:#x}, got signal {s} at {p:#x}"));
                }
                Ok(())
            }
            (Entry::Insn(step), Got::Insn { pc, mem }) | (Entry::RepPart(step), Got::RepPart { pc, mem }) => {
                self.covered.instructions += 1;
                self.same_pc(step, *pc)?;
                self.accesses(step, mem)
            }
            (Entry::Insn(step), Got::Step { pc }) => {
                self.covered.instructions += 1;
                self.same_pc(step, *pc)
            }
            _ => Err("different kinds of entries".into()),
        }
    }

    fn same_pc(&self, step: &Step, pc: u64) -> Result<(), String> {
        let expected = self.there(step.pc, step.region);
        if expected == Some(pc) { Ok(()) } else { Err(format!("expected pc {}, got {pc:#x}", hex(expected))) }
    }

    /// A native address as it is under Clew, if that is known yet.
    fn there(&self, addr: u64, region: RegionId) -> Option<u64> {
        match self.deltas.get(&region) {
            Some(delta) => Some(addr.wrapping_add(*delta)),
            None => (!region.moves()).then_some(addr),
        }
    }

    fn accesses(&mut self, step: &Step, mem: &[Mem]) -> Result<(), String> {
        self.covered.accesses += step.touched.len() as u64;
        self.learn(step, mem);
        let there = |t: &Touched| self.there(t.access.addr, t.region).unwrap_or(t.access.addr);
        let expected: Vec<_> = step.touched.iter().map(|t| Bytes::expected(&t.access, there(t))).collect();
        let got: Vec<Bytes> = mem.iter().map(Bytes::of).collect();
        same_bytes(&expected, &got)
    }

    /// Finds the constant of a mapping that is used for the first time: the one access that nothing else explains.
    fn learn(&mut self, step: &Step, mem: &[Mem]) {
        loop {
            let unknown = |t: &&Touched| self.there(t.access.addr, t.region).is_none();
            let Some(first) = step.touched.iter().find(unknown) else { return };
            let (region, write) = (first.region, first.access.write);
            let same = step.touched.iter().filter(|t| t.region == region && t.access.write == write);
            let low = same.map(|t| t.access.addr).min().expect("there is at least the first");
            let explained = |m: &&Mem| {
                let (addr, _) = m.range();
                let hits = |t: &Touched| self.there(t.access.addr, t.region) == Some(addr);
                step.touched.iter().any(hits)
            };
            let Some(m) = mem.iter().filter(|m| m.write == write).find(|m| !explained(m)) else { return };
            self.deltas.insert(region, m.range().0.wrapping_sub(low));
        }
    }

    fn surroundings(&self, expected: &[Entry], n: usize, got: &[Got], at: usize) -> String {
        let mut text = String::from("  natively:\n");
        for (i, entry) in expected.iter().enumerate().skip(n.saturating_sub(4)).take(8) {
            let mark = if i == n { ">" } else { " " };
            let _ = writeln!(text, "  {mark} {}", self.show_entry(entry));
        }
        text.push_str("  under Clew:\n");
        let counted: Vec<_> = (at.saturating_sub(3000)..got.len()).filter(|&i| self.counts(&got[i])).collect();
        let here = counted.iter().position(|&i| i >= at).unwrap_or(counted.len());
        for &i in &counted[here.saturating_sub(4)..(here + 3).min(counted.len())] {
            let mark = if i == at { ">" } else { " " };
            let _ = writeln!(text, "  {mark} {}", show_got(&got[i]));
        }
        text
    }

    fn show_entry(&self, entry: &Entry) -> String {
        let (kind, step) = match entry {
            Entry::Insn(step) => ("", step),
            Entry::RepPart(step) => ("part of ", step),
            Entry::Signal { signo, pc } => return format!("signal {signo} at {pc:#x}"),
        };
        let mut text = format!("{kind}{:#x} {}", step.pc, disassemble(&step.code, step.pc));
        for t in &step.touched {
            let there = hex(self.there(t.access.addr, t.region));
            let a = &t.access;
            let how = how(a.read, a.write, a.conditional);
            let _ = write!(text, " [{how} {:#x}+{} {:?} -> {there}]", a.addr, a.size, t.region);
        }
        text
    }
}

fn show_got(got: &Got) -> String {
    let (kind, pc, mem) = match got {
        Got::Insn { pc, mem } => ("", pc, mem.as_slice()),
        Got::RepPart { pc, mem } => ("part of ", pc, mem.as_slice()),
        Got::Step { pc } => ("step at ", pc, &[][..]),
        Got::Signal { signo, pc } => return format!("signal {signo} at {pc:#x}"),
    };
    let mut text = format!("{kind}{pc:#x}");
    for m in mem {
        let (addr, size) = m.range();
        let _ = write!(text, " [{} {addr:#x}+{size}]", how(m.read, m.write, m.conditional));
    }
    text
}

fn hex(addr: Option<u64>) -> String {
    addr.map_or("an unknown place".into(), |a| format!("{a:#x}"))
}

fn how(read: bool, write: bool, conditional: bool) -> String {
    format!("{}{}{}", if read { "r" } else { "" }, if write { "w" } else { "" }, if conditional { "?" } else { "" })
}

/// A stretch of touched memory; size 0 is unknown.
#[derive(Clone, Copy, Debug)]
struct Bytes {
    addr: u64,
    size: u64,
    read: bool,
    write: bool,
    conditional: bool,
}

impl Bytes {
    fn expected(a: &Access, addr: u64) -> Bytes {
        Bytes { addr, size: u64::from(a.size), read: a.read, write: a.write, conditional: a.conditional }
    }

    fn of(m: &Mem) -> Bytes {
        let (addr, size) = m.range();
        Bytes { addr, size, read: m.read, write: m.write, conditional: m.conditional }
    }
}

/// Did both sides touch the same bytes, at the same addresses?
pub fn same_accesses(expected: &[Access], got: &[Mem]) -> Result<(), String> {
    let expected: Vec<_> = expected.iter().map(|a| Bytes::expected(a, a.addr)).collect();
    same_bytes(&expected, &got.iter().map(Bytes::of).collect::<Vec<_>>())
}

/// Both sides must have touched the same bytes, reading and writing; what only may have happened on one side may be
/// missing on the other.
fn same_bytes(expected: &[Bytes], got: &[Bytes]) -> Result<(), String> {
    let unsized_area = expected.iter().chain(got).any(|b| b.size == 0);
    for (what, pick) in [("read", (|b: &Bytes| b.read) as fn(&Bytes) -> bool), ("written", |b| b.write)] {
        let set = |list: &[Bytes], certain: bool| {
            let chosen = list.iter().filter(|b| pick(b) && !(certain && b.conditional));
            merge(chosen.map(|b| (b.addr, b.addr.wrapping_add(if unsized_area { 1 } else { b.size }))).collect())
        };
        let missing = outside(&set(expected, true), &set(got, false));
        let extra = outside(&set(got, true), &set(expected, false));
        if let Some((low, high)) = missing {
            return Err(format!("{low:#x}..{high:#x} is {what} natively only"));
        }
        if let Some((low, high)) = extra {
            return Err(format!("{low:#x}..{high:#x} is {what} under Clew only"));
        }
    }
    Ok(())
}

/// Joins overlapping and adjacent intervals.
fn merge(mut list: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    list.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (low, high) in list {
        match merged.last_mut() {
            Some(last) if low <= last.1 => last.1 = last.1.max(high),
            _ => merged.push((low, high)),
        }
    }
    merged
}

/// The first interval that does not lie inside one of the merged `cover`.
fn outside(list: &[(u64, u64)], cover: &[(u64, u64)]) -> Option<(u64, u64)> {
    list.iter().copied().find(|&(low, high)| !cover.iter().any(|&(l, h)| l <= low && high <= h))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(addr: u64, size: u64, how: &str) -> Bytes {
        Bytes { addr, size, read: how.contains('r'), write: how.contains('w'), conditional: how.contains('?') }
    }

    fn check(expected: &[Bytes], got: &[Bytes], same: bool) {
        assert_eq!(same_bytes(expected, got).is_ok(), same, "{expected:?} {got:?}");
    }

    #[test]
    fn elements_and_ranges_are_the_same_bytes() {
        check(&[bytes(8, 4, "w"), bytes(12, 4, "w")], &[bytes(8, 8, "w")], true);
        check(&[bytes(8, 4, "w"), bytes(13, 4, "w")], &[bytes(8, 9, "w")], false);
        check(&[bytes(8, 4, "r")], &[bytes(8, 4, "rw")], false);
        check(&[bytes(8, 4, "r"), bytes(8, 4, "w?")], &[bytes(8, 4, "rw")], true);
        check(&[bytes(8, 4, "rw")], &[bytes(8, 4, "r"), bytes(8, 4, "w?")], true);
        check(&[bytes(8, 4, "r")], &[], false);
        check(&[], &[bytes(8, 4, "r")], false);
        check(&[bytes(8, 0, "w")], &[bytes(8, 576, "w?")], true);
        check(&[bytes(8, 0, "w")], &[bytes(16, 576, "w")], false);
    }
}
