//! The guest's address space as the engine knows it: what is mapped where, with which rights, and where there is room.
//!
//! Every call of the guest that changes mappings passes through here, so addresses are chosen by us, the same in every
//! run, and code can be read without asking the kernel. Guarantees: a guest mapping never overlaps the engine; a request
//! that covers engine memory is carried out around it. May miss: mappings made by the kernel on its own (a growing
//! `MAP_GROWSDOWN` area), which are found when a fixed mapping is refused.

use crate::sys::{self, PROT_EXEC, PROT_READ, PROT_WRITE, nr};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use model::layout::{self, BRK, CACHE, ENGINE, MMAP, NEAR_HIGH, NEAR_LOW, PAGE, TARGETS};

/// One mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Vma {
    pub end: u64,
    pub prot: u8,
    pub shared: bool,
    pub file: bool,
    /// Device and inode of the file, if they are known.
    pub object: Option<(u64, u64)>,
    /// Where in the file it starts.
    pub offset: u64,
}

impl Vma {
    /// Private memory without a file.
    pub fn anonymous(prot: u64) -> Vma {
        Vma { prot: prot as u8 & 7, ..Vma::default() }
    }

    /// Can it change what others see of its file?
    pub fn changes_file(&self) -> bool {
        self.shared && self.object.is_some() && self.is(PROT_WRITE)
    }

    pub fn is(&self, prot: u64) -> bool {
        self.prot as u64 & prot == prot
    }
}

/// The map of one process.
pub struct Memory {
    maps: BTreeMap<u64, Vma>,
    pub brk: u64,
    pub brk_start: u64,
    pub stack: Range<u64>,
    /// Objects of shared memory without a file that have been named.
    objects: u64,
}

/// Where a mapping should go when the guest does not say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Within reach of the code cache: libraries and generated code.
    Near,
    /// Wherever large data goes.
    Far,
    /// The low 2 GiB, by explicit request only.
    Low,
}

pub fn page_up(v: u64) -> u64 {
    v.saturating_add(PAGE - 1) & !(PAGE - 1)
}

pub fn page_down(v: u64) -> u64 {
    v & !(PAGE - 1)
}

impl Default for Memory {
    fn default() -> Self {
        Memory { maps: BTreeMap::new(), brk: BRK.start, brk_start: BRK.start, stack: 0..0, objects: 0 }
    }
}

impl Memory {
    /// The mapping that contains `at`.
    pub fn find(&self, at: u64) -> Option<(u64, Vma)> {
        let (&start, &vma) = self.maps.range(..=at).next_back()?;
        (at < vma.end).then_some((start, vma))
    }

    /// Bytes of executable memory from `pc` on, at least one instruction's worth if that much is there.
    pub fn code(&self, pc: u64) -> Option<&'static [u8]> {
        let (_, vma) = self.find(pc)?;
        if !vma.is(PROT_EXEC) {
            return None;
        }
        let mut end = vma.end;
        while end < pc + 1024 {
            match self.maps.get(&end) {
                Some(next) if next.is(PROT_EXEC) => end = next.end,
                _ => break,
            }
        }
        let len = (end - pc).min(1024) as usize;
        // SAFETY: the range is mapped with execute permission, which on x86 includes reading; the engine itself changes
        // mappings only between translations.
        Some(unsafe { core::slice::from_raw_parts(pc as *const u8, len) })
    }

    /// Is all of `range` free of guest mappings and of the engine?
    pub fn is_free(&self, range: Range<u64>) -> bool {
        if range.start < 0x1_0000 || range.end > layout::STACK_TOP || range.start >= range.end {
            return false;
        }
        if layout::touches_engine(range.start, range.end - range.start) {
            return false;
        }
        self.maps.range(..range.end).next_back().is_none_or(|(_, v)| v.end <= range.start)
    }

    /// Room for `len` bytes, or `None`.
    pub fn room(&self, len: u64, place: Place) -> Option<u64> {
        let len = page_up(len);
        let ranges: &[Range<u64>] = match place {
            Place::Near => &[NEAR_LOW, NEAR_HIGH, MMAP],
            Place::Far => &[MMAP, 0x1000_0000_0000..0x5500_0000_0000],
            Place::Low => &[0x4000_0000..0x8000_0000, 0x1_0000..0x4000_0000],
        };
        ranges.iter().find_map(|r| self.room_in(r, len))
    }

    /// Highest gap of `range` that holds `len` bytes.
    fn room_in(&self, range: &Range<u64>, len: u64) -> Option<u64> {
        let mut top = range.end;
        if range.end == MMAP.end {
            // The stack hangs down into this range; leave a gap below it.
            top = top.min(self.stack.start.saturating_sub(1 << 20)).max(range.start);
        }
        for (&start, vma) in self.maps.range(..range.end).rev() {
            if vma.end <= top && top - vma.end >= len {
                break;
            }
            top = top.min(start);
            if top <= range.start {
                return None;
            }
        }
        let at = top.checked_sub(len)?;
        (at >= range.start).then_some(at)
    }

    /// Records a mapping, replacing what was there.
    pub fn insert(&mut self, range: Range<u64>, mut vma: Vma) {
        self.remove(range.clone());
        let mut start = range.start;
        vma.end = range.end;
        if let Some((&before, b)) = self.maps.range(..start).next_back()
            && b.end == start
            && same_kind(b, &vma)
        {
            start = before;
        }
        if let Some(after) = self.maps.get(&range.end).copied()
            && same_kind(&after, &vma)
        {
            self.maps.remove(&range.end);
            vma.end = after.end;
        }
        self.maps.insert(start, vma);
    }

    /// Forgets whatever is mapped in `range`.
    pub fn remove(&mut self, range: Range<u64>) {
        self.split(range.start);
        self.split(range.end);
        let gone: Vec<u64> = self.maps.range(range).map(|(&s, _)| s).collect();
        for s in gone {
            self.maps.remove(&s);
        }
    }

    /// Changes the rights of what is mapped in `range`.
    pub fn protect(&mut self, range: Range<u64>, prot: u64) {
        self.split(range.start);
        self.split(range.end);
        for (_, v) in self.maps.range_mut(range.clone()) {
            v.prot = prot as u8;
        }
        self.join(range);
    }

    /// Makes one mapping of neighbours of the same kind in and around `range`: a search for room looks at each of them.
    fn join(&mut self, range: Range<u64>) {
        let mut at = self.maps.range(..range.start).next_back().map_or(range.start, |(&start, _)| start);
        while at <= range.end {
            let Some((&start, &vma)) = self.maps.range(at..).next() else { return };
            match self.maps.get(&vma.end).copied() {
                Some(next) if same_kind(&vma, &next) => {
                    self.maps.remove(&vma.end);
                    self.maps.insert(start, Vma { end: next.end, ..vma });
                    at = start;
                }
                _ => at = vma.end,
            }
        }
    }

    fn split(&mut self, at: u64) {
        if let Some((start, vma)) = self.find(at)
            && start < at
        {
            self.maps.insert(start, Vma { end: at, ..vma });
            self.maps.insert(at, Vma { offset: vma.offset + (at - start), ..vma });
        }
    }

    /// Every mapping in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Vma)> {
        self.maps.iter().map(|(&s, v)| (s, v))
    }

    /// The first page from `from` on of private writable memory, of each mapping only its first `part` bytes.
    pub fn next_private_writable(&self, from: u64, part: u64) -> Option<u64> {
        let wanted = |v: &Vma| !v.shared && v.is(PROT_READ | PROT_WRITE);
        if let Some((start, vma)) = self.find(from)
            && wanted(&vma)
            && from - start < part
        {
            return Some(page_down(from));
        }
        self.maps.range(from..).find(|(_, v)| wanted(v)).map(|(&s, _)| s)
    }

    /// Other pages through which the contents of `page` can be changed.
    pub fn aliases(&self, page: u64) -> Vec<u64> {
        let Some((start, vma)) = self.find(page).filter(|(_, v)| v.object.is_some()) else { return Vec::new() };
        let in_file = vma.offset + (page - start);
        let others = self.maps.iter().filter(|(_, v)| v.object == vma.object && v.changes_file());
        others
            .filter(|(s, v)| in_file >= v.offset && in_file - v.offset < v.end - **s)
            .map(|(s, v)| s + (in_file - v.offset))
            .filter(|alias| *alias != page)
            .collect()
    }

    /// Names shared memory without a file.
    pub fn new_object(&mut self) -> (u64, u64) {
        self.objects += 1;
        (u64::MAX, self.objects)
    }

    /// Executable mappings of the same file.
    pub fn code_of(&self, object: Option<(u64, u64)>) -> Vec<Range<u64>> {
        let code = self.maps.iter().filter(|(_, v)| object.is_some() && v.object == object && v.is(PROT_EXEC));
        code.map(|(s, v)| *s..v.end).collect()
    }

    /// Is this word in memory shared with other processes?
    pub fn is_shared(&self, at: u64) -> bool {
        self.find(at).is_some_and(|(_, v)| v.shared)
    }
}

fn same_kind(a: &Vma, b: &Vma) -> bool {
    a.prot == b.prot && a.shared == b.shared && !a.file && !b.file && a.object == b.object
}

/// The parts of `range` that are not the engine's.
pub fn around_engine(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let holes = [TARGETS, CACHE, ENGINE];
    let mut parts: [Range<u64>; 4] = [range, 0..0, 0..0, 0..0];
    let mut n = 1;
    for hole in holes {
        let last = parts[n - 1].clone();
        if last.start < hole.end && last.end > hole.start {
            parts[n - 1] = last.start..hole.start.max(last.start);
            parts[n] = hole.end.min(last.end)..last.end;
            n += 1;
        }
    }
    parts.into_iter().filter(|r| r.start < r.end)
}

/// Maps guest memory at a chosen, free place.
pub fn map_at(at: u64, len: u64, prot: u64, flags: u64, fd: u64, offset: u64) -> i64 {
    let flags = flags & !(sys::MAP_FIXED | sys::MAP_32BIT) | sys::MAP_FIXED_NOREPLACE;
    // SAFETY: NOREPLACE: nothing that exists is touched.
    unsafe { sys::raw(nr::MMAP, [at, len, prot, flags, fd, offset]) }
}

/// Rights that a guest page really has where the guest asked for `prot`: nothing of the guest's is ever executed in place,
/// so nothing is executable, and a jump that goes astray (module `direct`) is noticed at its first instruction.
pub fn kernel_prot(prot: u64) -> u64 {
    if prot & PROT_EXEC != 0 { prot & !PROT_EXEC | PROT_READ } else { prot }
}

/// Takes the right to execute from guest memory that was mapped or protected with `prot`.
///
/// Apart from the call itself, because that fails where execution is not allowed (`noexec`), as the guest expects.
pub fn conceal(range: &Range<u64>, prot: u64) {
    if prot & PROT_EXEC != 0 {
        // SAFETY: guest memory, whose contents stay.
        unsafe { sys::raw3(nr::MPROTECT, range.start, range.end - range.start, kernel_prot(prot)) };
    }
}

/// Device and inode of an open file.
pub fn object_of(fd: u64) -> Option<(u64, u64)> {
    let mut stat = [0u64; 18];
    // SAFETY: the kernel writes struct stat (144 bytes), which begins with device and inode.
    let r = unsafe { sys::raw3(nr::FSTAT, fd, stat.as_mut_ptr() as u64, 0) };
    (r == 0).then_some((stat[0], stat[1]))
}

/// Rights that let the guest's code be read by the engine.
pub fn readable(prot: u64) -> bool {
    prot & (PROT_READ | PROT_EXEC) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const RW: Vma = Vma { end: 0, prot: 3, shared: false, file: false, object: None, offset: 0 };

    #[test]
    fn mappings_merge_split_and_leave_gaps() {
        let mut m = Memory::default();
        m.insert(0x10000..0x14000, RW);
        m.insert(0x14000..0x16000, RW);
        assert_eq!(m.find(0x15fff).map(|x| x.0), Some(0x10000), "adjacent equal mappings are one");
        m.protect(0x12000..0x13000, 5);
        assert_eq!(m.find(0x12000).map(|x| (x.0, x.1.prot, x.1.end)), Some((0x12000, 5, 0x13000)));
        assert_eq!(m.find(0x13000).map(|x| (x.0, x.1.prot)), Some((0x13000, 3)));
        m.protect(0x12000..0x13000, 3);
        assert_eq!(m.iter().count(), 1, "neighbours of the same kind are one mapping");
        m.remove(0x11000..0x15000);
        assert!(m.is_free(0x11000..0x15000) && !m.is_free(0x10000..0x11000) && !m.is_free(0x15000..0x16000));
        assert!(m.find(0x11000).is_none());
    }

    #[test]
    fn room_is_found_top_down_and_never_in_the_engine() {
        let mut m = Memory::default();
        let a = m.room(0x3000, Place::Near).unwrap();
        assert_eq!(a, NEAR_LOW.end - 0x3000);
        m.insert(a..a + 0x3000, RW);
        let b = m.room(0x1000, Place::Near).unwrap();
        assert_eq!(b, a - 0x1000);
        assert!(m.room(1 << 40, Place::Near).is_none_or(|x| MMAP.contains(&x)));
        assert!(!m.is_free(CACHE.start..CACHE.start + 1));
    }

    #[test]
    fn pages_of_one_file_know_each_other() {
        let mut m = Memory::default();
        let of = |prot: u64, shared, offset| Vma {
            shared,
            file: true,
            object: Some((1, 2)),
            offset,
            ..Vma::anonymous(prot)
        };
        m.insert(0x10000..0x14000, of(5, false, 0x2000));
        m.insert(0x20000..0x22000, of(3, true, 0x3000));
        m.insert(0x30000..0x31000, of(3, false, 0x3000));
        assert_eq!(m.aliases(0x11000), [0x20000], "private copies change nothing");
        assert_eq!(m.aliases(0x10000), []);
        m.protect(0x12000..0x13000, 1);
        assert_eq!(m.aliases(0x12000), [0x21000], "a part knows where in the file it is");
        assert_eq!(m.code_of(Some((1, 2))), [0x10000..0x12000, 0x13000..0x14000]);
        assert_eq!(m.code_of(None), []);
    }

    #[test]
    fn a_range_over_the_engine_is_cut_around_it() {
        let parts: Vec<_> = around_engine(0x5000_0000_0000..0x6000_0000_0000).collect();
        let below = 0x5000_0000_0000..TARGETS.start;
        let above = ENGINE.end..0x6000_0000_0000;
        assert_eq!(parts, [below, TARGETS.end..CACHE.start, CACHE.end..ENGINE.start, above]);
        assert_eq!(around_engine(0x1000..0x2000).next(), Some(0x1000..0x2000));
        assert_eq!(around_engine(CACHE.start..CACHE.end).count(), 0);
    }
}
