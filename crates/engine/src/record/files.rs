//! Files kept: the contents of what the guest opens, maps or overwrites, as they were at that moment.
//!
//! A copy is named by the file's stamp (device, inode, size, times), so that one that an earlier recording made serves
//! again by a link between our own names; a file that has changed a moment ago gets a name of its own, because its stamp
//! may not show the next change. The copy is a clone where the file system can, and is made before the guest goes on.
//!
//! May miss: files larger than the caps; changes that somebody else makes during the copy.

use super::{append, calls, on};
use crate::shared_page::log_state;
use crate::state::Engine;
use crate::sys::{self, err, nr};
use crate::syscalls::table::Args;
use alloc::string::String;
use model::log::{DescriptorKind, FileRecord, Kind};

/// The largest file kept because it was opened, and because it was mapped (a replay cannot do without that one).
const OPENED_MAX: u64 = 64 << 20;
const MAPPED_MAX: u64 = 4 << 30;
/// Files up to this size lie in the log.
const INLINE_MAX: u64 = 16 << 10;
/// A file that changed less long ago may change again without its stamp showing it.
const SETTLED_NS: u64 = 40_000_000;

const LINKAT: u64 = 265;
const UNLINKAT: u64 = 263;
const COPY_FILE_RANGE: u64 = 326;
const PREAD: u64 = 17;
const FICLONE: u64 = 0x4004_9409;
const TRUNCATE: u64 = 76;
const AT_FDCWD: u64 = -100i64 as u64;
const O_ACCMODE: u64 = 3;
const O_WRONLY: u64 = 1;
const O_PATH: u64 = 0o10_000_000;
const O_TRUNC: u64 = 0o1000;
/// O_CREAT and O_EXCL.
const O_NEW: u64 = 0o300;
const O_CREATE_NEW: u64 = 0o1 | 0o100 | 0o200 | 0o2_000_000;
/// Read only, not waiting for a FIFO's writer, no controlling terminal, closed on exec.
const O_LOOK: u64 = 0o4000 | 0o400 | 0o2_000_000;

/// What tells one state of a file from another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamp {
    pub dev: u64,
    pub ino: u64,
    pub size: u64,
    mtime: u64,
    ctime: u64,
    pub mode: u32,
}

impl Stamp {
    pub fn of(fd: u64) -> Option<Stamp> {
        let mut s = [0u64; 18];
        // SAFETY: the kernel writes struct stat (144 bytes).
        let r = unsafe { sys::raw3(nr::FSTAT, fd, s.as_mut_ptr() as u64, 0) };
        let ns = |at: usize| s[at].wrapping_mul(1_000_000_000).wrapping_add(s[at + 1]);
        (r == 0).then(|| Stamp { dev: s[0], ino: s[1], size: s[6], mtime: ns(11), ctime: ns(13), mode: s[3] as u32 })
    }

    /// What a copy of it is called.
    pub fn name(&self) -> String {
        alloc::format!("{:x}-{:x}-{:x}-{:x}-{:x}", self.dev, self.ino, self.size, self.mtime, self.ctime)
    }

    pub fn kind(&self) -> DescriptorKind {
        calls::kind_of(self.mode)
    }

    fn is_settled(&self) -> bool {
        let mut now = [0u64; 2];
        // SAFETY: the kernel writes two words (CLOCK_REALTIME).
        unsafe { sys::raw3(nr::CLOCK_GETTIME, 0, now.as_mut_ptr() as u64, 0) };
        let now = now[0].wrapping_mul(1_000_000_000).wrapping_add(now[1]);
        now > self.ctime.saturating_add(SETTLED_NS)
    }
}

impl Engine {
    /// The file behind `fd` is kept; answers the number of its record, 0 if nothing was kept.
    pub fn keep(&mut self, fd: u64, mapped: bool) -> u32 {
        match Stamp::of(fd) {
            Some(stamp) if on() && stamp.kind() == DescriptorKind::File => self.keep_as(fd, stamp, mapped),
            _ => 0,
        }
    }

    fn keep_as(&mut self, fd: u64, stamp: Stamp, mapped: bool) -> u32 {
        if !mapped {
            return self.keep_opened(fd, stamp);
        }
        let settled = stamp.is_settled();
        if settled && let Some((_, id)) = self.kept.iter().find(|(s, _)| *s == stamp) {
            return *id;
        }
        let key = self.copy_of(fd, &stamp, settled, mapped);
        if key.is_none() && mapped {
            self.could_not_keep("a mapped file");
        }
        self.log_file(fd, stamp, settled, key)
    }

    /// Without this file a replay cannot go on; whoever records hears of it at once.
    pub fn could_not_keep(&mut self, what: &str) {
        let why = alloc::format!("{what} could not be kept: it is too large, or there is no room");
        self.mark_inexact(&why);
        self.note_loss(&alloc::format!("it will not replay to its end: {why}"));
    }

    /// A file that was opened counts as it was at its first open. An empty one needs no keeping.
    fn keep_opened(&mut self, fd: u64, stamp: Stamp) -> u32 {
        let identity = (stamp.dev, stamp.ino);
        if let Some(id) = self.opened.get(&identity) {
            return *id;
        }
        if stamp.size == 0 {
            return 0;
        }
        let id = if stamp.size <= INLINE_MAX {
            let id = self.log_file(fd, stamp, false, None);
            log_content(id, fd, stamp.size);
            id
        } else {
            let settled = stamp.is_settled();
            let key = self.copy_of(fd, &stamp, settled, false);
            self.log_file(fd, stamp, settled, key)
        };
        self.opened.insert(identity, id);
        id
    }

    /// Copies a file that is to be loaded, before there is a log that could say so.
    pub fn keep_image(&mut self, fd: u64) -> Option<(Stamp, bool, Option<String>)> {
        let stamp = Stamp::of(fd)?;
        let settled = stamp.is_settled();
        Some((stamp, settled, self.copy_of(fd, &stamp, settled, true)))
    }

    fn copy_of(&mut self, fd: u64, stamp: &Stamp, settled: bool, mapped: bool) -> Option<String> {
        let unique = (self.pid, self.copies);
        self.copies += 1;
        if stamp.size > if mapped { MAPPED_MAX } else { OPENED_MAX } {
            return None;
        }
        copy(self.hidden.folder, self.hidden.store, fd, stamp, settled, unique)
    }

    /// The record of a file that was kept as `key`.
    pub fn log_file(&mut self, fd: u64, stamp: Stamp, settled: bool, key: Option<String>) -> u32 {
        let id = log_state().files + 1;
        let path = crate::procfs::link_of(fd).unwrap_or_default();
        let found = key.is_some();
        let record = FileRecord { id, key: key.unwrap_or_default(), path, size: stamp.size, mode: stamp.mode };
        log_state().files = id;
        // What was too large to be kept for having been opened may still be kept for being mapped.
        if settled && found {
            self.kept.push((stamp, id));
        }
        append(Kind::File, 0, &record.encode());
        id
    }

    /// A call is about to be made that may change a file before anybody can look at it.
    pub fn keep_before(&mut self, number: u64, args: &Args) -> u32 {
        let Some((dir, path, flags)) = opens(number, args) else { return 0 };
        // What is made anew was not there, and what can be read when it is open can be kept then.
        let changes = flags & O_TRUNC != 0 || flags & O_ACCMODE == O_WRONLY;
        if !changes || flags & O_NEW == O_NEW {
            return 0;
        }
        // SAFETY: opens what the guest names, to read it; the name is read by the kernel, which survives any address.
        let fd = unsafe { sys::raw(nr::OPENAT, [dir, path, O_LOOK, 0, 0, 0]) };
        if sys::is_err(fd) {
            return 0;
        }
        let id = self.keep(fd as u64, false);
        close(fd as u64);
        id
    }

    /// A call has succeeded that opened or mapped something: the file kept, and 1 + the kind of what was opened.
    pub fn keep_after(&mut self, number: u64, args: &Args, result: i64, before: u32) -> (u32, u32) {
        match number {
            nr::OPEN | nr::CREAT | nr::OPENAT | nr::OPENAT2 => {
                let Some(stamp) = Stamp::of(result as u64) else { return (before, 0) };
                let kind = stamp.kind();
                let readable = opens(number, args)
                    .is_some_and(|(_, _, flags)| flags & O_ACCMODE != O_WRONLY && flags & O_PATH == 0);
                let id = if before == 0 && kind == DescriptorKind::File && stamp.size != 0 && readable {
                    self.keep_opened(result as u64, stamp)
                } else {
                    before
                };
                (id, kind as u32 + 1)
            }
            nr::MMAP if args[3] & sys::MAP_ANONYMOUS == 0 => {
                let id = self.keep(args[4], true);
                if id == 0 && !is_zero_device(args[4]) {
                    self.mark_inexact("something that is not a regular file was mapped");
                }
                (id, 0)
            }
            _ => (before, 0),
        }
    }

    /// What a call has done to memory that is shared: marked, or logged where the engine can see it.
    pub fn share_after(&mut self, number: u64, args: &Args, result: i64) {
        match number {
            nr::MMAP if args[3] & 3 != sys::MAP_PRIVATE => self.shared_mapping(args, result as u64),
            nr::SHMAT => self.mark_inexact("System V shared memory is mapped: what others write to it is not recorded"),
            // write, pwrite64, writev, pwritev, pwritev2, sendfile, ftruncate, splice, copy_file_range, fallocate.
            1 | 18 | 20 | 296 | 328 | 77 | 285 => self.file_changed(args[0]),
            40 => self.file_changed(args[0]),
            275 | 326 => self.file_changed(args[2]),
            _ => {}
        }
    }

    fn shared_mapping(&mut self, args: &Args, at: u64) {
        self.shares_memory = true;
        let writable = self.memory.find(at).is_some_and(|(_, vma)| vma.file && vma.changes_file());
        // Others can have this mapped too; a file elsewhere is seldom used that way.
        if writable && crate::procfs::link_of(args[4]).is_some_and(|name| name.starts_with(b"/dev/shm/")) {
            self.mark_inexact("shared memory is mapped: what other processes write to it is not recorded");
        }
    }

    /// The guest wrote to a file with a call: mappings of it show that too.
    fn file_changed(&mut self, fd: u64) {
        const MOST: u64 = 1 << 20;
        if !self.shares_memory {
            return;
        }
        let object = crate::memory::object_of(fd);
        let seen = self.memory.iter().filter(|(_, v)| v.shared && v.object == object && object.is_some());
        for (start, vma) in seen {
            super::memory_now(start, (vma.end - start).min(MOST));
        }
    }

    /// The process is about to be copied.
    pub fn share_with_child(&mut self) {
        if self.shares_memory && self.memory.iter().any(|(_, v)| v.shared && v.is(sys::PROT_WRITE)) {
            self.mark_inexact("writable memory is shared with a child process");
        }
    }
}

/// Puts the contents of a small file into the log.
fn log_content(id: u32, fd: u64, size: u64) {
    let Some(room) = super::reserve(8 + size as usize) else { return };
    room[..4].copy_from_slice(&id.to_le_bytes());
    room[4..8].fill(0);
    // SAFETY: reads into the room just reserved.
    let got = unsafe { sys::raw(PREAD, [fd, room[8..].as_mut_ptr() as u64, size, 0, 0, 0]) };
    if got >= 0 {
        super::commit(Kind::Content, 0, 8 + got as usize);
    }
}

/// `/dev/zero`: a mapping of it is plain memory.
fn is_zero_device(fd: u64) -> bool {
    crate::procfs::link_of(fd).is_some_and(|l| l == b"/dev/zero")
}

pub(super) fn close(fd: u64) {
    // SAFETY: our own descriptor.
    unsafe { sys::raw3(nr::CLOSE, fd, 0, 0) };
}

/// Folder, name and flags of a call that opens or changes a file by name.
fn opens(number: u64, args: &Args) -> Option<(u64, u64, u64)> {
    match number {
        nr::OPEN => Some((AT_FDCWD, args[0], args[1])),
        nr::CREAT | TRUNCATE => Some((AT_FDCWD, args[0], O_WRONLY | O_TRUNC)),
        nr::OPENAT => Some((args[0], args[1], args[2])),
        nr::OPENAT2 => Some((args[0], args[1], sys::read_u64(args[2]).unwrap_or(0))),
        _ => None,
    }
}

/// Puts a copy of the file into the recording; answers its name there.
fn copy(folder: i32, store: i32, fd: u64, stamp: &Stamp, settled: bool, unique: (u32, u32)) -> Option<String> {
    let mut key = stamp.name();
    if !settled {
        key = alloc::format!("{key}-{}-{}", unique.0, unique.1);
    }
    let in_store = alloc::format!("{key}\0");
    let name = alloc::format!("files/{key}\0");
    let (folder, from, to) = (folder as u64, in_store.as_ptr() as u64, name.as_ptr() as u64);
    // SAFETY: links and creates files of our own; names end in zero.
    let new = unsafe {
        if settled && store >= 0 {
            let r = sys::raw(LINKAT, [store as u64, from, folder, to, 0, 0]);
            if r == 0 || r == -err::EEXIST {
                return Some(key);
            }
        }
        sys::raw(nr::OPENAT, [folder, to, O_CREATE_NEW, 0o600, 0, 0])
    };
    if new == -err::EEXIST {
        return Some(key);
    }
    if sys::is_err(new) {
        return None;
    }
    let done = copy_contents(fd, new as u64, stamp.size);
    close(new as u64);
    if !done {
        // SAFETY: removes the file just made.
        unsafe { sys::raw3(UNLINKAT, folder, to, 0) };
        return None;
    }
    Some(key)
}

/// Copies a file without moving its position.
fn copy_contents(from: u64, to: u64, size: u64) -> bool {
    // SAFETY: reads the guest's file, writes our own, through words and a buffer that live until the calls return.
    unsafe {
        if size == 0 || sys::raw3(nr::IOCTL, to, FICLONE, from) == 0 {
            return true;
        }
        let mut at = 0u64;
        while at < size {
            let n = sys::raw(COPY_FILE_RANGE, [from, &raw mut at as u64, to, 0, size - at, 0]);
            if n <= 0 {
                break;
            }
        }
        let mut buffer = [0u8; 16 << 10];
        while at < size {
            let n = sys::raw(PREAD, [from, buffer.as_mut_ptr() as u64, buffer.len() as u64, at, 0, 0]);
            if n == 0 {
                // It has become shorter meanwhile.
                return true;
            }
            if n < 0 || sys::raw3(nr::WRITE, to, buffer.as_ptr() as u64, n as u64) != n {
                return false;
            }
            at += n as u64;
        }
    }
    true
}
