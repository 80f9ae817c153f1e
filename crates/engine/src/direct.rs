//! Direct lookup: indirect branches that find the translation of their target with one load and no comparison.
//!
//! For the code near the cache, and for that of programs that are not position-independent, there is one byte of table for
//! each byte of code. An indirect branch jumps through the eight bytes that stand for its target:
//!
//! ```text
//! mov gs:[saved], rcx; mov rcx, target; jmp [rcx - TARGETS_BELOW]        (low code: jmp gs:[rcx + LOW_TARGETS])
//! ```
//!
//! It lands on `mov rcx, gs:[saved]` in front of the block. Nothing compares the target, so what lies in the table must be
//! right for every target:
//! - A target that was never entered reads zeros, or parts of its neighbours' entries. Neither is an address that can be
//!   executed: entries are `00 00 55 55 6x xx xx xx`, so a part of one is not canonical or lies where nothing executable
//!   is (no guest page is executable to the kernel). The fault tells that the target is missing.
//! - Entries of targets fewer than eight bytes apart overlap. The lower one is kept; the upper one leads to a *detour*, a
//!   piece of code at an address that begins with the bytes it is left with, which does the checked lookup. Where there
//!   is no such address, the target stays missing; [`Direct::note_useless`] counts these.
//! - A branch to anywhere else reads some other memory, or none. Memory of the guest holds no address that is executable.
//!
//! Pages of the table exist where there are entries, and are writable only while the engine changes them.

use crate::address_map::AddressMap;
use crate::sys::{self, PROT_READ, PROT_WRITE, nr};
use alloc::vec::Vec;
use model::layout::{DETOUR_PAGES, GATE, LOW, LOW_TARGETS, NEAR_CODE, TARGETS_BELOW};

/// The table is mapped and protected in pieces of this size.
const PIECE: u64 = 64 << 10;
/// Entries are addresses.
const ENTRY: u64 = 8;
/// Failed lookups of one process that the table cannot help, until it is given up.
const MAX_USELESS: u32 = 4096;

/// How an indirect branch looks up its target.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lookup {
    /// Through the table of code near the cache.
    Near,
    /// Through the table of low code.
    Low,
    /// Through the hash table, with a check at the target.
    Checked,
}

impl Lookup {
    /// How branches to `target` are looked up; what lies near each other calls each other most.
    pub fn of(target: u64) -> Lookup {
        if (NEAR_CODE.start..NEAR_CODE.end - ENTRY).contains(&target) {
            Lookup::Near
        } else if (LOW.start + ENTRY..LOW.end - ENTRY).contains(&target) {
            Lookup::Low
        } else {
            Lookup::Checked
        }
    }

    /// Where the entry of `target` lies.
    fn entry(self, target: u64) -> Option<u64> {
        match self {
            Lookup::Near => Some(target - TARGETS_BELOW),
            Lookup::Low => Some(GATE + LOW_TARGETS + target),
            Lookup::Checked => None,
        }
    }
}

/// Where on its page each detour begins; what comes before may be entered anywhere.
pub const DETOUR_CODE: [&[u64]; 4] = [&[0], &[0x57], &[0x556, 0x631], &[0x570]];

/// No detour is longer.
pub const DETOUR_LEN: u64 = 64;

/// An address of a detour whose lowest `n` bytes are those of `low`.
fn detour(low: u64, n: u64) -> Option<u64> {
    let mask = (1 << (8 * n)) - 1;
    let page = DETOUR_PAGES[match n {
        1 | 2 => 0,
        3 => 1,
        4 => 2,
        5 => 3,
        _ => return None,
    }];
    let address = page & !mask | low & mask;
    let starts = DETOUR_CODE[DETOUR_PAGES.iter().position(|p| *p == page)?];
    let offset = address.checked_sub(page)?;
    let next = starts.iter().copied().find(|start| *start >= offset)?;
    let inside = starts.iter().any(|start| (start + 1..start + DETOUR_LEN).contains(&offset));
    (next - offset < 0x100 && !inside).then_some(address)
}

/// The table of one process.
#[derive(Default)]
pub struct Direct {
    /// Which targets have entries: one bit for each, by the address of eight.
    entered: AddressMap<u8>,
    /// Pieces that are mapped; is one writable?
    pieces: AddressMap<bool>,
    /// Those that stay writable until the vault is closed.
    writable: Vec<u64>,
    useless: u32,
}

impl Direct {
    /// Lets branches to `target` go to `code`, if they are looked up here and there is memory.
    pub fn enter(&mut self, target: u64, code: u64) {
        let Some(entry) = Lookup::of(target).entry(target) else { return };
        if !self.open(entry) || !self.open(entry + ENTRY - 1) {
            return;
        }
        self.mark(target);
        self.settle(target, entry, code);
        // Those above lose their first bytes to this one, and so on.
        let (mut at, mut entry) = (target, entry);
        while let Some(d) = self.above(at) {
            (at, entry) = (at + d, entry + d);
            if !self.open(entry + ENTRY - 1) {
                break;
            }
            self.settle(at, entry, 0);
        }
    }

    /// Lets branches to `target`, which are expected, go to `code`, if nothing is there yet.
    pub fn expect(&mut self, target: u64, code: u64) {
        let neighbours = self.above(target).is_some() || self.below(target).is_some();
        if !neighbours && !self.is_entered(target) {
            self.enter(target, code);
        }
    }

    /// A branch to `target` found nothing although that is entered, or cannot have an entry. True when the table should be
    /// given up.
    pub fn note_useless(&mut self, target: u64) -> bool {
        if self.is_entered(target) || Lookup::of(target) == Lookup::Checked {
            self.useless += 1;
        }
        self.useless > MAX_USELESS
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        for (piece, _) in self.pieces.drain() {
            // SAFETY: the table's own memory.
            unsafe { sys::raw3(nr::MUNMAP, piece, PIECE, 0) };
        }
        self.entered.clear();
        self.writable.clear();
    }

    /// Takes the right to write from all of the table.
    pub fn close(&mut self) {
        self.writable.sort_unstable();
        // Neighbours in one call.
        for run in self.writable.chunk_by(|a, b| *b == a + PIECE) {
            protect(run[0], run.len() as u64 * PIECE, PROT_READ);
        }
        for piece in self.writable.drain(..) {
            self.pieces.insert(piece, false);
        }
    }

    /// Writes the entry of `target`, as far as it is its own.
    fn settle(&mut self, target: u64, entry: u64, code: u64) {
        // SAFETY: mapped by `open`.
        let now = unsafe { (entry as *const u64).read_unaligned() };
        let (from, value) = self.content(target, now, code);
        write(entry + from as u64, &value.to_le_bytes()[from..]);
    }

    /// What the entry of `target`, which is `now`, must be, and from which byte on it may be written: `code` if no other
    /// entry reaches into it, else a detour, or what is left of it, which cannot be executed.
    fn content(&self, target: u64, now: u64, code: u64) -> (usize, u64) {
        let Some(d) = self.below(target) else { return (0, if code != 0 { code } else { now }) };
        let left = ENTRY - d;
        let rest = now & ((1 << (8 * left)) - 1);
        (left as usize, detour(rest, left).unwrap_or(rest))
    }

    /// Makes the piece with `at` writable.
    fn open(&mut self, at: u64) -> bool {
        let piece = at & !(PIECE - 1);
        match self.pieces.get(&piece) {
            Some(true) => return true,
            Some(false) => protect(piece, PIECE, PROT_READ | PROT_WRITE),
            None => {
                if sys::map_engine(piece, PIECE, PROT_READ | PROT_WRITE).is_err() {
                    return false;
                }
            }
        }
        self.pieces.insert(piece, true);
        self.writable.push(piece);
        true
    }

    fn mark(&mut self, target: u64) {
        *self.entered.entry(target >> 3).or_insert(0) |= 1 << (target & 7);
    }

    pub fn is_entered(&self, target: u64) -> bool {
        self.bits(target >> 3) >> (target & 7) & 1 != 0
    }

    fn bits(&self, eight: u64) -> u32 {
        self.entered.get(&eight).copied().unwrap_or(0) as u32
    }

    /// Distance to the next target below that reaches into this one's entry.
    fn below(&self, target: u64) -> Option<u64> {
        let both = self.bits((target >> 3).wrapping_sub(1)) | self.bits(target >> 3) << 8;
        let seven = both >> ((target & 7) + 1) & 0x7f;
        (seven != 0).then(|| (seven.leading_zeros() - 24) as u64)
    }

    /// Distance to the next target above whose entry this one's reaches into.
    fn above(&self, target: u64) -> Option<u64> {
        let both = self.bits(target >> 3) | self.bits((target >> 3) + 1) << 8;
        let seven = both >> ((target & 7) + 1) & 0x7f;
        (seven != 0).then(|| seven.trailing_zeros() as u64 + 1)
    }
}

fn protect(piece: u64, len: u64, prot: u64) {
    // SAFETY: the table's own memory.
    unsafe { sys::raw3(nr::MPROTECT, piece, len, prot) };
}

fn write(at: u64, bytes: &[u8]) {
    // SAFETY: inside pieces that `open` has made writable; emitted code reads them only while the engine does not run.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use model::layout::{CACHE, ENGINE};

    /// The algorithm of [`Direct`] on a table that is a map of bytes.
    fn entries(targets: &[u64]) -> (Direct, BTreeMap<u64, u8>) {
        let (mut d, mut bytes) = (Direct::default(), BTreeMap::new());
        for (n, target) in targets.iter().enumerate() {
            d.mark(*target);
            let mut at = *target;
            let code = code(n);
            loop {
                let (from, value) = d.content(at, read(&bytes, at), if at == *target { code } else { 0 });
                for (k, b) in value.to_le_bytes().iter().enumerate().skip(from) {
                    bytes.insert(at + k as u64, *b);
                }
                let Some(above) = d.above(at) else { break };
                at += above;
            }
        }
        (d, bytes)
    }

    fn code(n: usize) -> u64 {
        // The last one has a zero in its lowest byte.
        CACHE.start + [0x12_3456, 0x01_0101, 0x7f_fe01, 0x20_0100][n]
    }

    fn read(bytes: &BTreeMap<u64, u8>, at: u64) -> u64 {
        u64::from_le_bytes(core::array::from_fn(|k| bytes.get(&(at + k as u64)).copied().unwrap_or(0)))
    }

    fn is_detour(address: u64) -> bool {
        DETOUR_PAGES.contains(&(address & !0xfff))
    }

    /// What a branch to `target` finds can be followed, or cannot be executed at all.
    fn check(targets: &[u64]) {
        let (_, bytes) = entries(targets);
        let (first, last) = (targets.iter().min().unwrap(), targets.iter().max().unwrap());
        for at in first - 16..last + 16 {
            let found = read(&bytes, at);
            let known = targets.iter().rposition(|t| *t == at);
            let right = known.is_some_and(|n| found == code(n)) || is_detour(found);
            let canonical = found >> 47 == 0;
            let executable = CACHE.contains(&found) || ENGINE.contains(&found);
            assert!(right || !canonical || !executable, "{targets:x?}: a branch to {at:x} finds {found:x}");
        }
    }

    #[test]
    fn a_target_alone_is_entered_directly() {
        let (d, bytes) = entries(&[0x5555_5555_1000, 0x5555_5555_1008, 0x5555_5555_0ff8]);
        assert_eq!([0x5555_5555_1000, 0x5555_5555_1008].map(|t| read(&bytes, t)), [code(0), code(1)]);
        assert!(d.is_entered(0x5555_5555_1008) && !d.is_entered(0x5555_5555_1009));
    }

    #[test]
    fn close_targets_take_a_detour() {
        for d in 3..8 {
            let base = 0x5555_5555_1003;
            for order in [[base, base + d], [base + d, base]] {
                let (_, bytes) = entries(&order);
                let lower = if order[0] == base { code(0) } else { code(1) };
                assert_eq!(read(&bytes, base), lower, "distance {d}");
                assert!(is_detour(read(&bytes, base + d)), "distance {d}: {:x}", read(&bytes, base + d));
            }
        }
    }

    #[test]
    fn no_branch_can_find_anything_else() {
        let base = 0x5555_5555_1000;
        for a in 1..10 {
            for b in 1..10 {
                for c in 1..10 {
                    let four = [base, base + a, base + a + b, base + a + b + c];
                    check(&four);
                    check(&[four[3], four[2], four[1], four[0]]);
                    check(&[four[1], four[3], four[0], four[2]]);
                }
            }
        }
    }

    #[test]
    fn detours_begin_where_their_pages_say() {
        assert_eq!(detour(0, 1), Some(CACHE.start + 0x0f01_0000));
        assert_eq!(detour(0x55, 3), Some(CACHE.start + 0x0f00_0055));
        assert_eq!(detour(0x5555, 4), Some(0x5630_0000_5555));
        assert_eq!(detour(0x5630, 4), Some(0x5630_0000_5630));
        assert_eq!(detour(0x0055_556f, 5), Some(0x5600_0055_556f));
        // In the middle of one; on another page; no room for a choice.
        assert_eq!(detour(0x5560, 4), None);
        assert_eq!(detour(0x56_3000, 5), None);
        assert_eq!(detour(0, 6), None);
    }
}
