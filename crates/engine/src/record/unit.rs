//! The beginning of a unit: what an image starts with, and where the log of a forked child branches off.

use super::ahead::Forking;
use super::{LogState, RECORDING, append, segments, time_stamp};
use crate::load::{Inherited, Program};
use crate::shared_page::log_state;
use crate::signals::FAULTS;
use crate::state::Engine;
use crate::sys::{self, err, nr};
use crate::text::Short;
use crate::threads::Thread;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use model::layout::LOG;
use model::log::{DescriptorKind, DescriptorRecord, Kind, Origin, Start};

/// What an image was made from.
pub struct Sources<'a> {
    pub program: &'a Program,
    pub interpreter: Option<&'a Program>,
    pub inherited: &'a Inherited,
    pub execfn: &'a [u8],
    pub stack_limit: u64,
}

/// More images of one process are not told apart.
const MAX_IMAGES: u32 = 1 << 20;

impl Engine {
    /// Starts the log of a new unit of this process, where room was prepared if it was.
    pub(super) fn open_log(&mut self, prepared: Option<&Short>) -> Result<(), i64> {
        *log_state() = LogState::default();
        for image in 0..MAX_IMAGES {
            match segments::first(self.hidden.folder, (self.pid, image), prepared) {
                Err(err::EEXIST) => continue,
                Err(e) => return Err(e),
                Ok(at) => {
                    let s = log_state();
                    (s.base, s.size, s.unit) = (at, segments::FIRST, (self.pid, image));
                    return Ok(());
                }
            }
        }
        Err(err::EEXIST)
    }

    /// An image is about to run: the first record of its log. Files are kept before it, their records come after it.
    pub fn begin_recording(&mut self, t: &Thread, sources: &Sources<'_>) {
        let Some(config) = self.config.record.clone() else { return };
        let mut start = self.describe_start(t, sources, &config.origin);
        if self.expect_region(&config, sources, start.clone()) {
            return;
        }
        let prepared = (!config.origin.is_empty()).then(|| super::ahead::successor(&config.origin));
        if let Err(errno) = self.open_log(prepared.as_ref()) {
            return self.has_no_log(errno);
        }
        RECORDING.store(true, Relaxed);
        let images: Vec<u64> = [Some(sources.program), sources.interpreter].iter().flatten().map(|p| p.fd()).collect();
        let kept: Vec<_> = images.iter().map(|fd| self.keep_image(*fd)).collect();
        let key = |n: usize| kept.get(n).cloned().flatten().and_then(|(_, _, key)| key).unwrap_or_default();
        (start.program, start.interpreter) = (key(0), key(1));
        append(Kind::Start, 0, &start.encode());
        if start.program.is_empty() || sources.interpreter.is_some() && start.interpreter.is_empty() {
            self.could_not_keep("the program");
        }
        for (fd, kept) in images.into_iter().zip(kept) {
            if let Some((stamp, settled, key)) = kept {
                self.log_file(fd, stamp, settled, key);
            }
        }
        self.log_descriptors(&config.streams);
    }

    /// What an image begins with, without the keys of its files.
    fn describe_start(&self, t: &Thread, sources: &Sources<'_>, origin: &str) -> Start {
        let mut start = Start::forked(String::new(), 0, self.pid, t.tid);
        start.origin = if origin.is_empty() { Origin::First } else { Origin::Exec { unit: origin.into() } };
        (start.cpu, start.mode, start.seed) = (self.config.cpu, self.mode, self.config.seed);
        start.exe = self.exe.clone();
        start.execfn = sources.execfn.to_vec();
        start.argv = sources.program.argv.clone();
        start.envp = sources.inherited.envp.clone();
        start.auxv = sources.inherited.auxv.clone();
        start.random = sources.inherited.random;
        start.stack_limit = sources.stack_limit;
        start.cwd = working_folder();
        start.blocked = t.mask;
        start.ignored = self.ignored_signals();
        start.xstate = (self.loaded.xstate.mask, self.loaded.xstate.size as u64);
        start.time = time_stamp();
        start.clocks = [clock(0), clock(1)];
        start
    }

    /// Which descriptors are open, and what they lead to.
    pub(super) fn log_descriptors(&mut self, streams: &[[u64; 2]; 3]) {
        for fd in open_descriptors() {
            if self.hidden.contains(fd) {
                continue;
            }
            let Some(stamp) = super::files::Stamp::of(fd) else { continue };
            // SAFETY: asks for flags (F_GETFL, 3) and position (SEEK_CUR, 1).
            let (flags, position) = unsafe { (sys::raw3(nr::FCNTL, fd, 3, 0), sys::raw3(nr::LSEEK, fd, 0, 1)) };
            let identity = [stamp.dev, stamp.ino];
            let writable = flags & 3 != 0;
            let own = |n: usize| streams[n] == identity && (n == 0) != (writable && flags & 3 == 1);
            let kind = if fd < 3 && streams[fd as usize] == identity {
                DescriptorKind::from_u8(fd as u8)
            } else {
                [1usize, 2, 0].into_iter().find(|n| own(*n)).and_then(|n| DescriptorKind::from_u8(n as u8))
            };
            let file = if flags & 3 != 1 { self.keep(fd, false) } else { 0 };
            let record = DescriptorRecord {
                fd: fd as u32,
                kind: kind.unwrap_or(stamp.kind()),
                flags: flags as u32,
                position: position.max(0) as u64,
                identity,
                path: crate::procfs::link_of(fd).unwrap_or_default(),
                file,
            };
            append(Kind::Descriptor, 0, &record.encode());
        }
    }

    /// In the child: the parent's segment is left, and a log of its own begun.
    pub fn record_child(&mut self, t: &Thread, fork: &Forking) {
        // Threads that waited did not come along.
        log_state().waiting = 0;
        if !super::on() {
            return;
        }
        let parent = log_state().unit;
        // SAFETY: only this process's view of the parent's segment goes.
        unsafe { sys::raw3(nr::MUNMAP, LOG.start, LOG.end - LOG.start, 0) };
        self.kept.clear();
        self.opened.clear();
        self.features = [0; 4];
        let Some(room) = &fork.room else {
            // The parent's log says so.
            RECORDING.store(false, Relaxed);
            return;
        };
        if let Err(errno) = self.open_log(Some(room)) {
            RECORDING.store(false, Relaxed);
            return self.has_no_log(errno);
        }
        log_state().running = t.serial;
        let mut start = Start::forked(alloc::format!("{}.{}", parent.0, parent.1), fork.record, self.pid, t.tid);
        start.time = time_stamp();
        append(Kind::Start, 0, &start.encode());
    }

    /// What is left in a pipe on standard input, without taking it away from others: a trial may read on.
    pub fn log_rest(&mut self) {
        const TEE: u64 = 276;
        const PIPE2: u64 = 293;
        const F_SETPIPE_SZ: u64 = 1031;
        const MOST: u64 = 1 << 20;
        const POLLHUP: u32 = 0x10;
        if !super::on() {
            return;
        }
        let Some(stamp) = super::files::Stamp::of(0).filter(|s| s.kind() == DescriptorKind::Pipe) else { return };
        let mut poll = [0u32, 1];
        // SAFETY: struct pollfd { fd, events POLLIN, revents }: the kernel writes its last two bytes.
        unsafe { sys::raw3(nr::POLL, poll.as_mut_ptr() as u64, 1, 0) };
        // Looked at first: what comes later would be missing from the copy.
        let flags = if poll[1] >> 16 & POLLHUP != 0 { model::log::REST_TO_END } else { model::log::REST_UNENDED };
        let mut pair = [0i32; 2];
        // SAFETY: a pipe of our own, into which the kernel copies what is in another; read into room of the log.
        unsafe {
            if sys::raw3(PIPE2, pair.as_mut_ptr() as u64, 0o4000 | 0o2_000_000, 0) != 0 {
                return;
            }
            sys::raw3(nr::FCNTL, pair[1] as u64, F_SETPIPE_SZ, MOST);
            let n = sys::raw(TEE, [0, pair[1] as u64, MOST - 4096, 2, 0, 0]);
            let n = n.max(0);
            if let Some(room) = super::reserve(16 + n as usize) {
                room[..8].copy_from_slice(&stamp.dev.to_le_bytes());
                room[8..16].copy_from_slice(&stamp.ino.to_le_bytes());
                let mut got = 0;
                while got < n {
                    let to = room[16 + got as usize..].as_mut_ptr() as u64;
                    let more = sys::raw3(nr::READ, pair[0] as u64, to, (n - got) as u64);
                    if more <= 0 {
                        break;
                    }
                    got += more;
                }
                super::commit(Kind::Rest, flags, 16 + got as usize);
            }
            for fd in pair {
                sys::raw3(nr::CLOSE, fd as u64, 0, 0);
            }
        }
    }

    /// What the image that replaces this one needs to go on recording.
    pub fn record_config_for_exec(&self) -> Option<model::wire::RecordConfig> {
        let config = self.config.record.clone().filter(|c| super::on() || c.from.is_some())?;
        // A region that is still ahead begins by itself.
        let origin = if super::on() { self.unit_name() } else { String::new() };
        Some(model::wire::RecordConfig { folder_fd: self.hidden.folder, store_fd: self.hidden.store, origin, ..config })
    }

    /// The name of the unit in hand.
    pub fn unit_name(&self) -> String {
        let unit = log_state().unit;
        alloc::format!("{}.{}", unit.0, unit.1)
    }
}

pub(super) fn clock(id: u64) -> u64 {
    let mut ts = [0u64; 2];
    // SAFETY: the kernel writes two words.
    unsafe { sys::raw3(nr::CLOCK_GETTIME, id, ts.as_mut_ptr() as u64, 0) };
    ts[0].wrapping_mul(1_000_000_000).wrapping_add(ts[1])
}

pub(super) fn working_folder() -> Vec<u8> {
    const GETCWD: u64 = 79;
    let mut buffer = [0u8; 4096];
    // SAFETY: the kernel writes into our buffer.
    let n = unsafe { sys::raw3(GETCWD, buffer.as_mut_ptr() as u64, buffer.len() as u64, 0) };
    if n > 1 { buffer[..n as usize - 1].to_vec() } else { Vec::new() }
}

/// The numbers of all open descriptors; without /proc the low ones that answer.
fn open_descriptors() -> Vec<u64> {
    const FLAGS: u64 = 0o200_000 | 0o2_000_000;
    let mut found = Vec::new();
    // SAFETY: opens, reads and closes a folder, into our own buffer.
    unsafe {
        let folder = sys::raw3(nr::OPEN, c"/proc/self/fd".as_ptr() as u64, FLAGS, 0);
        if sys::is_err(folder) {
            return (0..64).filter(|fd| sys::raw3(nr::FCNTL, *fd, 1, 0) >= 0).collect();
        }
        let mut buffer = [0u8; 4096];
        loop {
            let n = sys::raw3(nr::GETDENTS64, folder as u64, buffer.as_mut_ptr() as u64, buffer.len() as u64);
            if n <= 0 {
                break;
            }
            let mut entries = &buffer[..n as usize];
            // struct linux_dirent64 { ino u64, off u64, reclen u16, type u8, name }
            while entries.len() > 19 {
                let len = u16::from_le_bytes([entries[16], entries[17]]) as usize;
                let name = entries[19..len.min(entries.len())].split(|b| *b == 0).next().unwrap_or_default();
                let number = core::str::from_utf8(name).ok().and_then(|s| s.parse::<u64>().ok());
                found.extend(number.filter(|fd| *fd != folder as u64));
                entries = entries.get(len.max(20)..).unwrap_or_default();
            }
        }
        sys::raw3(nr::CLOSE, folder as u64, 0, 0);
    }
    found.sort_unstable();
    found
}

/// Blocked signals that an image starts with, as the log has them.
pub fn start_mask(start: &Start) -> u64 {
    start.blocked & !crate::signals::NEVER_BLOCKED | start.blocked & FAULTS
}
