//! Calls that change the address space: carried out at addresses we choose, around the engine.

use super::{Call, Outcome};
use crate::memory::{Place, Vma, around_engine, conceal, map_at, object_of, page_up};
use crate::sys::{self, MAP_32BIT, MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_PRIVATE, PROT_EXEC, err, nr};
use core::ops::Range;
use model::layout::{self, BRK, PAGE};

/// No mapping of a process reaches beyond.
const TASK_END: u64 = 0x7fff_ffff_f000;
const MREMAP_MAYMOVE: u64 = 1;
const MREMAP_FIXED: u64 = 2;
const MREMAP_DONTUNMAP: u64 = 4;
/// Mappings larger than this are data, whatever else they look like.
const NEAR_MAX: u64 = 512 << 20;

impl Call<'_> {
    pub(super) fn address_space(&mut self) -> Outcome {
        match self.nr {
            nr::MMAP => self.mmap(),
            nr::MUNMAP => self.munmap(),
            nr::MPROTECT => self.mprotect(),
            nr::MREMAP => self.mremap(),
            nr::MADVISE => self.madvise(),
            nr::SHMAT => self.shmat(),
            nr::SHMDT => self.shmdt(),
            _ => Outcome::Value(self.brk() as i64),
        }
    }

    fn mmap(&mut self) -> Outcome {
        let [addr, len, prot, flags, fd, offset] = self.args;
        let size = page_up(len);
        if len == 0 {
            return Outcome::Value(-err::EINVAL);
        }
        if size == 0 || size > TASK_END {
            return Outcome::Value(-err::ENOMEM);
        }
        let mut vma =
            Vma { shared: flags & 3 != MAP_PRIVATE, file: flags & MAP_ANONYMOUS == 0, offset, ..Vma::anonymous(prot) };
        if vma.file {
            vma.object = object_of(fd);
        } else if vma.shared {
            vma.object = Some(self.e.memory.new_object());
            vma.offset = 0;
        }
        if flags & MAP_FIXED != 0 && flags & MAP_FIXED_NOREPLACE == 0 {
            return self.mmap_fixed(vma);
        }
        let at = if flags & MAP_FIXED_NOREPLACE != 0 {
            if layout::touches_engine(addr, size) {
                return Outcome::Value(-err::EEXIST);
            }
            addr
        } else {
            let hint = addr & !(PAGE - 1);
            if hint != 0 && flags & MAP_32BIT == 0 && self.e.memory.is_free(hint..hint.saturating_add(size)) {
                hint
            } else {
                let near = size < NEAR_MAX && (vma.file && !vma.shared || prot & PROT_EXEC != 0);
                let place = if flags & MAP_32BIT != 0 {
                    Place::Low
                } else if near {
                    Place::Near
                } else {
                    Place::Far
                };
                match self.e.memory.room(size, place) {
                    Some(at) => at,
                    None => return Outcome::Value(-err::ENOMEM),
                }
            }
        };
        let r = map_at(at, len, prot, flags, fd, offset);
        if r == -err::EEXIST && flags & MAP_FIXED_NOREPLACE == 0 {
            // The kernel has something there that we did not know of: remember it and look elsewhere.
            self.e.memory.insert(at..at + size, Vma { file: true, ..Vma::default() });
            return self.mmap();
        }
        if !sys::is_err(r) {
            conceal(&(at..at + size), prot);
            self.e.memory.insert(at..at + size, vma);
            self.watch_alias(&vma);
        }
        Outcome::Value(r)
    }

    /// A mapping through which code of the same file can be changed: that code is translated anew, knowing of it.
    fn watch_alias(&mut self, vma: &Vma) {
        if vma.changes_file() {
            for code in self.e.memory.code_of(vma.object) {
                self.e.code_unmapped(code.start, code.end);
            }
        }
    }

    fn mmap_fixed(&mut self, vma: Vma) -> Outcome {
        let [addr, len, prot, flags, fd, offset] = self.args;
        let size = page_up(len);
        let range = addr..addr.saturating_add(size);
        if addr & (PAGE - 1) != 0 {
            return Outcome::Value(-err::EINVAL);
        }
        if range.end > TASK_END {
            return Outcome::Value(-err::ENOMEM);
        }
        if layout::touches_engine(addr, size) && (vma.file || parts(&range) == 0) {
            return Outcome::Value(-err::ENOMEM);
        }
        self.e.code_unmapped(range.start, range.end);
        for part in around_engine(range.clone()) {
            let off = offset + (part.start - addr);
            let n = if part.end == range.end { addr + len - part.start } else { part.end - part.start };
            // SAFETY: guest memory: the parts leave the engine out.
            let r = unsafe { sys::raw(nr::MMAP, [part.start, n, prot, flags, fd, off]) };
            if sys::is_err(r) {
                return Outcome::Value(r);
            }
            conceal(&part, prot);
            let offset = vma.offset + (part.start - addr);
            self.e.memory.insert(part, Vma { offset, ..vma });
            self.watch_alias(&vma);
        }
        Outcome::Value(addr as i64)
    }

    fn munmap(&mut self) -> Outcome {
        let [addr, len, ..] = self.args;
        let range = addr..addr.saturating_add(page_up(len));
        if addr & (PAGE - 1) != 0 || len == 0 || range.end > TASK_END {
            return Outcome::Value(-err::EINVAL);
        }
        self.e.code_unmapped(range.start, range.end);
        for part in around_engine(range) {
            // SAFETY: guest memory only.
            let r = unsafe { sys::raw3(nr::MUNMAP, part.start, part.end - part.start, 0) };
            if sys::is_err(r) {
                return Outcome::Value(r);
            }
            self.e.memory.remove(part);
        }
        Outcome::Value(0)
    }

    fn mprotect(&mut self) -> Outcome {
        let [addr, len, prot, ..] = self.args;
        let range = addr..addr.saturating_add(page_up(len));
        if layout::touches_engine(addr, page_up(len)) {
            return Outcome::Value(-err::ENOMEM);
        }
        let r = self.make_protect(&range, prot);
        if r == 0 {
            self.e.memory.protect(range.clone(), prot & 7);
            if let Some((_, vma)) = self.e.memory.find(range.start) {
                self.watch_alias(&vma);
            }
        }
        Outcome::Value(r)
    }

    fn make_protect(&mut self, range: &Range<u64>, prot: u64) -> i64 {
        // Pages that we had write-protected get the new rights; their translations go with them. Rights that differ only
        // elsewhere leave translations alone.
        self.e.code_unmapped(range.start, range.end);
        // SAFETY: guest memory only.
        let r = unsafe { sys::raw3(nr::MPROTECT, range.start, self.args[1], prot) };
        if r == 0 {
            conceal(range, prot);
        }
        r
    }

    fn mremap(&mut self) -> Outcome {
        let [old, old_len, new_len, flags, new, _] = self.args;
        let (old_size, new_size) = (page_up(old_len), page_up(new_len));
        if layout::touches_engine(old, old_size) || flags & MREMAP_FIXED != 0 && layout::touches_engine(new, new_size) {
            return Outcome::Value(-err::EFAULT);
        }
        let Some((start, mut vma)) = self.e.memory.find(old) else { return self.pass() };
        vma.offset += old.saturating_sub(start);
        self.e.code_unmapped(old, old + old_size.max(PAGE));
        let remap = |flags: u64, to: u64| {
            // SAFETY: guest memory only: the target is the guest's own choice or free.
            unsafe { sys::raw(nr::MREMAP, [old, old_len, new_len, flags, to, 0]) }
        };
        let r = if flags & MREMAP_FIXED != 0 {
            self.e.code_unmapped(new, new + new_size);
            remap(flags, new)
        } else if flags & MREMAP_DONTUNMAP != 0 {
            match self.e.memory.room(new_size, Place::Far) {
                Some(to) => remap(flags | MREMAP_FIXED, to),
                None => -err::ENOMEM,
            }
        } else {
            let in_place = new_size <= old_size || self.e.memory.is_free(old + old_size..old + new_size);
            let r = if in_place { remap(0, 0) } else { -err::ENOMEM };
            if r == -err::ENOMEM && flags & MREMAP_MAYMOVE != 0 {
                match self.e.memory.room(new_size, Place::Far) {
                    Some(to) => remap(MREMAP_MAYMOVE | MREMAP_FIXED, to),
                    None => -err::ENOMEM,
                }
            } else {
                r
            }
        };
        if !sys::is_err(r) {
            let at = r as u64;
            if flags & MREMAP_DONTUNMAP == 0 && old_size != 0 {
                self.e.memory.remove(old..old + old_size);
            }
            self.e.memory.insert(at..at + new_size, vma);
            self.watch_alias(&vma);
        }
        Outcome::Value(r)
    }

    fn madvise(&mut self) -> Outcome {
        let [addr, len, advice, ..] = self.args;
        // DONTNEED, FREE, REMOVE and DONTNEED_LOCKED change contents.
        if matches!(advice as i32, 4 | 8 | 9 | 24) {
            self.e.code_unmapped(addr, addr.saturating_add(page_up(len)));
        }
        if !layout::touches_engine(addr, len) {
            return self.pass();
        }
        let mut last = 0;
        for part in around_engine(addr..addr.saturating_add(page_up(len))) {
            // SAFETY: guest memory only.
            last = unsafe { sys::raw3(nr::MADVISE, part.start, part.end - part.start, advice) };
        }
        Outcome::Value(last)
    }

    fn brk(&mut self) -> u64 {
        let want = self.args[0];
        let now = self.e.memory.brk;
        if !(self.e.memory.brk_start..BRK.end).contains(&want) {
            return now;
        }
        let (old, new) = (page_up(now), page_up(want));
        if new > old {
            if !self.e.memory.is_free(old..new) {
                return now;
            }
            let r = map_at(old, new - old, 3, MAP_PRIVATE | MAP_ANONYMOUS, u64::MAX, 0);
            if sys::is_err(r) {
                return now;
            }
            self.e.memory.insert(old..new, Vma::anonymous(3));
        } else if new < old {
            self.e.code_unmapped(new, old);
            // SAFETY: the guest's own break.
            unsafe { sys::raw3(nr::MUNMAP, new, old - new, 0) };
            self.e.memory.remove(new..old);
        }
        self.e.memory.brk = want;
        want
    }

    fn shmat(&mut self) -> Outcome {
        let [id, addr, flags, ..] = self.args;
        // struct shmid_ds: the size is at offset 48.
        let mut ds = [0u64; 14];
        // SAFETY: the kernel writes struct shmid_ds (112 bytes). 2 = IPC_STAT.
        let r = unsafe { sys::raw3(31, id, 2, ds.as_mut_ptr() as u64) };
        if sys::is_err(r) {
            return Outcome::Value(r);
        }
        let size = page_up(ds[6]);
        let at = if addr != 0 {
            addr & !(PAGE - 1)
        } else {
            match self.e.memory.room(size, Place::Far) {
                Some(at) => at,
                None => return Outcome::Value(-err::ENOMEM),
            }
        };
        if layout::touches_engine(at, size) {
            return Outcome::Value(-err::EINVAL);
        }
        // SAFETY: attaches at a place that is free or of the guest's choosing.
        let r = unsafe { sys::raw3(nr::SHMAT, id, at, flags) };
        if !sys::is_err(r) {
            self.e.code_unmapped(at, at + size);
            // SHM_RDONLY, SHM_EXEC.
            let prot = if flags & 0o10000 != 0 { 1 } else { 3 } | if flags & 0o100000 != 0 { 4 } else { 0 };
            conceal(&(at..at + size), prot);
            self.e.memory.insert(at..at + size, Vma { shared: true, file: true, ..Vma::anonymous(prot) });
        }
        Outcome::Value(r)
    }

    fn shmdt(&mut self) -> Outcome {
        let at = self.args[0];
        let end = self.e.memory.find(at).map(|(_, v)| v.end);
        if let Some(end) = end {
            self.e.code_unmapped(at, end);
        }
        let o = self.pass();
        if let (Outcome::Value(0), Some(end)) = (o, end) {
            self.e.memory.remove(at..end);
        }
        o
    }
}

fn parts(range: &Range<u64>) -> usize {
    around_engine(range.clone()).count()
}
