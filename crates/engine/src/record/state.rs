//! The whole state of a guest at one moment, as the log of a region begins with it.
//!
//! Of memory only pages that the guest has made its own are read, found by `/proc/self/pagemap`: what was never touched
//! stays so, and what still is as in a file is kept as that file. Pages of zeros are left out.
//!
//! May miss: without `/proc` everything readable is read. A file that has been replaced under its name cannot be kept:
//! then what is mapped of it is in the log. Sparse shared memory of more than [`SHARED_MAX`] bytes is looked at only where
//! the kernel says that it is in memory.

use super::region::open_same;
use super::{PIECE, append, commit, files, reserve};
use crate::gate::{self, Gate};
use crate::memory::{Vma, kernel_prot};
use crate::signals::xstate::{self, Area};
use crate::state::Engine;
use crate::sys::{self, PROT_EXEC, PROT_READ, nr};
use crate::threads::Thread;
use crate::threads::record::Wait;
use alloc::vec::Vec;
use core::ops::Range;
use model::layout::PAGE;
use model::log::Kind;
use model::region::{MapRecord, ProcessRecord, ThreadRecord};

const MINCORE: u64 = 27;
/// Larger shared mappings are not read as a whole.
const SHARED_MAX: u64 = 1 << 30;
/// Pages whose state is asked for at once.
const BATCH: u64 = 4096;
/// Bits of a page in `pagemap`: in memory, swapped out, of a file or shared.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;

/// A mapping, and what it shows where the guest has not written to it.
struct Mapping {
    start: u64,
    vma: Vma,
    /// The file, open, if it was kept.
    file: Option<u64>,
    kept: u32,
}

/// A file behind mappings: device and inode, descriptor, number of its record.
type Kept = ([u64; 2], Option<(u64, u32)>);

impl Engine {
    pub(super) fn log_process(&mut self) {
        let m = &self.memory;
        let default = crate::signals::Action::default();
        let actions = (1..=64).map(|s| (s, self.actions.get(s))).filter(|(_, a)| *a != default);
        let record = ProcessRecord {
            brk: [m.brk, m.brk_start],
            stack: [m.stack.start, m.stack.end],
            auxv: [self.auxv.start, self.auxv.end],
            bias: self.loaded.bias,
            entry: self.loaded.entry,
            program: self.loaded.program,
            threads: self.stats.threads,
            actions: actions.map(|(s, a)| (s, [a.handler, a.flags, a.restorer, a.mask])).collect(),
        };
        append(Kind::Process, 0, &record.encode());
    }

    /// Mappings and what they hold.
    pub(super) fn log_memory(&mut self) {
        let mut files: Vec<Kept> = Vec::new();
        let names = mapped_names();
        let maps: Vec<(u64, Vma)> = self.memory.iter().map(|(start, v)| (start, *v)).collect();
        let mut all = Vec::new();
        for (start, vma) in maps {
            let found = match vma.object {
                Some((dev, ino)) if vma.file => self.keep_mapped(&mut files, &names, start, [dev, ino]),
                _ => None,
            };
            let kept = found.map_or(0, |(_, id)| id);
            let map = MapRecord {
                start,
                end: vma.end,
                prot: vma.prot,
                shared: vma.shared,
                file: vma.file,
                object: vma.object.map(|(a, b)| [a, b]),
                offset: vma.offset,
                kept,
            };
            append(Kind::Map, 0, &map.encode());
            all.push(Mapping { start, vma, file: found.map(|(fd, _)| fd), kept });
        }
        // SAFETY: opens a file of our own process (O_CLOEXEC).
        let pagemap = unsafe { sys::raw3(nr::OPEN, c"/proc/self/pagemap".as_ptr() as u64, 0o2_000_000, 0) };
        for mapping in &all {
            mapping.log_contents((!sys::is_err(pagemap)).then_some(pagemap as u64));
        }
        if !sys::is_err(pagemap) {
            files::close(pagemap as u64);
        }
        files.iter().filter_map(|(_, open)| *open).for_each(|(fd, _)| files::close(fd));
    }

    /// The file mapped at `start`, kept, if its name still leads to it.
    fn keep_mapped(
        &mut self,
        files: &mut Vec<Kept>,
        names: &[(Range<u64>, Vec<u8>)],
        start: u64,
        identity: [u64; 2],
    ) -> Option<(u64, u32)> {
        if let Some((_, found)) = files.iter().find(|(known, _)| *known == identity) {
            return *found;
        }
        let name = names.iter().find(|(range, _)| range.contains(&start)).map(|(_, name)| name.as_slice());
        let found = name.and_then(|name| open_same(name, identity)).and_then(|fd| {
            let kept = self.keep_image(fd).filter(|(stamp, _, _)| stamp.kind() == model::log::DescriptorKind::File);
            match kept {
                Some((stamp, settled, key @ Some(_))) => Some((fd, self.log_file(fd, stamp, settled, key))),
                _ => {
                    files::close(fd);
                    None
                }
            }
        });
        files.push((identity, found));
        found
    }

    /// All threads, the running one first.
    pub(super) fn log_threads(&mut self, t: &Thread, g: &mut Gate) {
        let layout = self.loaded.xstate;
        let mut area = Area([0; xstate::MAX + 64]);
        xstate::save(layout, g, &mut area);
        let mut own = thread_record(t, &area.0[..layout.size]);
        (own.gpr, own.pc, own.rflags) = (g.gpr, g.pc, g.rflags);
        (own.hidden_flags, own.gs, own.fs) = (g.hidden_flags, g.guest_gs, gate::fs_base());
        append(Kind::Thread, 0, &own.encode());
        for n in (0..self.thread_regions).filter(|n| *n != t.index) {
            // SAFETY: regions below the count exist.
            let other = unsafe { Thread::by_index(n) };
            // SAFETY: words that the kernel and the thread itself change.
            let gone = unsafe {
                core::ptr::read_volatile(&raw const other.task) == 0
                    || core::ptr::read_volatile(&raw const other.wait) == Wait::Gone
            };
            if !gone {
                let record = thread_record(other, &other.extended().0[..layout.size]);
                append(Kind::Thread, 0, &record.encode());
            }
        }
    }
}

/// A thread that does not have the baton.
fn thread_record(t: &Thread, extended: &[u8]) -> ThreadRecord {
    let s = &t.saved;
    ThreadRecord {
        serial: t.serial,
        tid: t.tid,
        gpr: s.gpr,
        pc: s.pc,
        rflags: s.rflags,
        hidden_flags: s.hidden_flags,
        fs: t.fs,
        gs: s.guest_gs,
        // A call may wait under another mask: that of a replay comes from the call's own record.
        mask: t.call.map_or(t.mask, |c| c.mask),
        restore_mask: t.restore_mask.filter(|_| t.call.is_none()),
        alt_stack: [t.alt_stack.sp, t.alt_stack.flags.into(), t.alt_stack.size],
        clear_tid: t.clear_tid,
        robust: [t.robust_list, t.robust_len],
        held: t.held,
        call: t.call,
        extended: extended.to_vec(),
    }
}

impl Mapping {
    fn log_contents(&self, pagemap: Option<u64>) {
        if self.vma.shared && self.kept != 0 {
            // The file has been kept as it is now.
            return;
        }
        let own = self.own_ranges(pagemap);
        let readable = self.vma.prot as u64 & (PROT_READ | PROT_EXEC) != 0;
        if !readable && !own.is_empty() {
            self.protect(PROT_READ);
        }
        let mut run = self.start..self.start;
        for page in own.iter().flat_map(|range| range.clone().step_by(PAGE as usize)) {
            if !self.differs(page) {
                continue;
            }
            if run.end != page {
                log_run(&run);
                run = page..page;
            }
            run.end += PAGE;
        }
        log_run(&run);
        if !readable && !own.is_empty() {
            self.protect(kernel_prot(self.vma.prot as u64));
        }
    }

    fn protect(&self, prot: u64) {
        // SAFETY: guest memory whose contents stay; no guest code runs meanwhile.
        unsafe { sys::raw3(nr::MPROTECT, self.start, self.vma.end - self.start, prot) };
    }

    /// Where it may hold something of its own, in order.
    fn own_ranges(&self, pagemap: Option<u64>) -> Vec<Range<u64>> {
        let whole = self.start..self.vma.end;
        if self.vma.shared {
            return match whole.end - whole.start > SHARED_MAX {
                true => by_batches(&whole, resident),
                false => alloc::vec![whole],
            };
        }
        match pagemap {
            // Where there is no file that it could be taken from, all of it counts.
            Some(fd) if !self.vma.file || self.file.is_some() => {
                scan(fd, &whole).unwrap_or_else(|| by_batches(&whole, |at, own| anonymous(fd, at, own)))
            }
            _ => alloc::vec![whole],
        }
    }

    /// Does a page hold something else than it would if nothing were said of it?
    fn differs(&self, page: u64) -> bool {
        let mut now = [0u8; PAGE as usize];
        if sys::read_guest(page, &mut now) < now.len() {
            return false;
        }
        let mut before = [0u8; PAGE as usize];
        if let Some(fd) = self.file {
            let at = self.vma.offset + (page - self.start);
            // SAFETY: reads into our own buffer; what is behind the file's end is zeros.
            unsafe { sys::raw(nr::PREAD64, [fd, before.as_mut_ptr() as u64, PAGE, at, 0, 0]) };
        }
        now != before
    }
}

/// Private pages that are in memory or swapped out, without looking at those between; nothing where the kernel is too old
/// for that (Linux 6.7, Documentation/admin-guide/mm/pagemap.rst).
fn scan(pagemap: u64, whole: &Range<u64>) -> Option<Vec<Range<u64>>> {
    const PAGEMAP_SCAN: u64 = 0xc060_6610;
    const IS_FILE: u64 = 1 << 2;
    const IS_THERE: u64 = 1 << 3 | 1 << 4;
    const MOST: usize = 256;
    let mut found: Vec<Range<u64>> = Vec::new();
    let mut at = whole.start;
    while at < whole.end {
        let mut regions = [[0u64; 3]; MOST];
        // struct pm_scan_arg: size, flags, start, end, where it stopped, regions, how many, pages at most, and masks:
        // inverted, all of, any of, to be told.
        let (to, room) = (regions.as_mut_ptr() as u64, MOST as u64);
        let mut arg = [96, 0, at, whole.end, 0, to, room, 0, IS_FILE, IS_FILE, IS_THERE, IS_THERE];
        // SAFETY: the kernel writes at most so many regions and the word that says where it stopped.
        let n = unsafe { sys::raw3(nr::IOCTL, pagemap, PAGEMAP_SCAN, arg.as_mut_ptr() as u64) };
        if sys::is_err(n) || arg[4] <= at {
            return None;
        }
        found.extend(regions.iter().take(n as usize).map(|[start, end, _]| *start..*end));
        at = arg[4];
    }
    Some(found)
}

/// The ranges of pages for which `ask` leaves `true`; it is given an address and a word for each page from there.
fn by_batches(whole: &Range<u64>, ask: impl Fn(u64, &mut [bool])) -> Vec<Range<u64>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    let mut own = alloc::vec![true; BATCH as usize];
    for at in whole.clone().step_by((BATCH * PAGE) as usize) {
        let own = &mut own[..((whole.end - at) / PAGE).min(BATCH) as usize];
        own.fill(true);
        ask(at, own);
        for (n, _) in own.iter().enumerate().filter(|(_, own)| **own) {
            let page = at + n as u64 * PAGE;
            match found.last_mut() {
                Some(last) if last.end == page => last.end += PAGE,
                _ => found.push(page..page + PAGE),
            }
        }
    }
    found
}

/// Shared pages that are in memory.
fn resident(at: u64, own: &mut [bool]) {
    let mut answer = alloc::vec![0u8; own.len()];
    // SAFETY: the kernel writes one byte for each page.
    let r = unsafe { sys::raw3(MINCORE, at, own.len() as u64 * PAGE, answer.as_mut_ptr() as u64) };
    if r == 0 {
        own.iter_mut().zip(answer).for_each(|(own, r)| *own = r & 1 != 0);
    }
}

/// Private pages that are in memory or swapped out, and no longer a file's.
fn anonymous(pagemap: u64, at: u64, own: &mut [bool]) {
    let mut words = alloc::vec![0u64; own.len()];
    let len = words.len() as u64 * 8;
    // SAFETY: the kernel writes one word for each page.
    let n = unsafe { sys::raw(nr::PREAD64, [pagemap, words.as_mut_ptr() as u64, len, at / PAGE * 8, 0, 0]) };
    if n == len as i64 {
        let is_own = |w: u64| w & (PRESENT | SWAPPED) != 0 && w & OF_FILE == 0;
        own.iter_mut().zip(words).for_each(|(own, w)| *own = is_own(w));
    }
}

/// Logs what memory holds there.
fn log_run(run: &Range<u64>) {
    let mut at = run.start;
    while at < run.end {
        let n = (run.end - at).min(PIECE as u64) as usize;
        let Some(room) = reserve(8 + n) else { return };
        room[..8].copy_from_slice(&at.to_le_bytes());
        let got = sys::read_guest(at, &mut room[8..]);
        commit(Kind::Memory, 0, 8 + got);
        at += n as u64;
    }
}

/// The names of mapped files, by the kernel's list.
fn mapped_names() -> Vec<(Range<u64>, Vec<u8>)> {
    let text = crate::procfs::read_file(b"/proc/self/maps\0");
    let parse = |line: &[u8]| {
        // start-end rights offset device inode, blanks, name
        let slash = line.iter().position(|b| *b == b'/')?;
        let range = core::str::from_utf8(line.split(|b| *b == b' ').next()?).ok()?;
        let (lo, hi) = range.split_once('-')?;
        let range = u64::from_str_radix(lo, 16).ok()?..u64::from_str_radix(hi, 16).ok()?;
        Some((range, line[slash..].to_vec()))
    };
    text.split(|b| *b == b'\n').filter_map(parse).collect()
}
