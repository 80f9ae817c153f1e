//! Descriptors and names: the engine's own are not there, and `/proc/self` shows the guest.

use super::process::read_string;
use super::{Call, Outcome};
use crate::procfs::paths::{Entry, Own, Who};
use crate::procfs::{LINK_MAX, link_into};
use crate::shared_page::elsewhere;
use crate::sys::{self, err, nr};
use alloc::vec::Vec;

const AT_FDCWD: u64 = -100i64 as u64;
const F_DUPFD: u64 = 0;
const F_DUPFD_CLOEXEC: u64 = 1030;
const O_CLOEXEC: u64 = 0o2_000_000;
const CLOSE_RANGE_CLOEXEC: u64 = 4;

/// Does the name at `at` stand for the kernel's random numbers?
fn is_random_device(at: u64) -> bool {
    let mut head = [0u8; 13];
    let n = sys::read_guest(at, &mut head);
    head[..n].starts_with(b"/dev/urandom\0") || head[..n].starts_with(b"/dev/random\0")
}

/// Where a descriptor leads, if that is below `/proc`.
fn link_into_proc(fd: u64) -> Option<Vec<u8>> {
    if elsewhere().contains(fd) {
        return None;
    }
    let mut room = [0; LINK_MAX];
    let link = link_into(fd, &mut room)?;
    let inside = link == b"/proc" || link.starts_with(b"/proc/");
    if !inside {
        elsewhere().insert(fd);
    }
    inside.then(|| link.to_vec())
}

impl Call<'_> {
    /// A call that may give a descriptor another meaning: what is known of it is forgotten.
    pub(super) fn forget_descriptors(&self) {
        match self.nr {
            nr::CLOSE => elsewhere().forget(self.args[0]),
            nr::DUP2 | nr::DUP3 => elsewhere().forget(self.args[1]),
            nr::CLOSE_RANGE => elsewhere().forget_all(),
            _ => {}
        }
    }

    /// A call has made this descriptor: others may have closed it meanwhile.
    pub(super) fn learn_descriptor(&self, fd: i64) {
        // Commands are half a register wide.
        let command = self.args[1] as u32 as u64;
        let copied = self.nr == nr::DUP || self.nr == nr::FCNTL && matches!(command, F_DUPFD | F_DUPFD_CLOEXEC);
        if copied && elsewhere().contains(self.args[0]) {
            elsewhere().insert(fd as u64);
        } else if copied || matches!(self.nr, nr::OPEN | nr::OPENAT | nr::OPENAT2 | nr::CREAT) {
            elsewhere().forget(fd as u64);
        }
    }

    pub(super) fn file_call(&mut self) -> Option<Outcome> {
        Some(match self.nr {
            nr::DUP2 | nr::DUP3 => {
                if self.e.hidden.contains(self.args[0]) {
                    return Some(Outcome::Value(-err::EBADF));
                }
                self.e.hidden.make_way(self.args[1]);
                self.e.control.fd = self.e.hidden.control;
                return None;
            }
            nr::CLOSE_RANGE => Outcome::Value(self.close_range()),
            nr::FCNTL if self.args[1] == F_DUPFD => return None,
            nr::OPEN | nr::CREAT => return self.open(AT_FDCWD, 0),
            nr::OPENAT | nr::OPENAT2 => return self.open(self.args[0], 1),
            nr::READLINK => return self.readlink(AT_FDCWD, 0),
            nr::READLINKAT => return self.readlink(self.args[0], 1),
            nr::STAT | nr::LSTAT | nr::ACCESS => return self.named(AT_FDCWD, 0),
            nr::NEWFSTATAT | nr::STATX | nr::FACCESSAT | nr::FACCESSAT2 => return self.named(self.args[0], 1),
            nr::GETDENTS64 => self.getdents(),
            _ => return None,
        })
    }

    /// Closes around our own descriptors.
    fn close_range(&mut self) -> i64 {
        let [first, last, flags, ..] = self.args;
        let (first, last) = (first as u32 as u64, last as u32 as u64);
        let mut ours: Vec<u64> = self.e.hidden.each().iter().filter(|f| **f >= 0).map(|f| *f as u64).collect();
        ours.sort_unstable();
        if first > last || ours.iter().all(|f| !(first..=last).contains(f)) {
            // SAFETY: the guest's own descriptors.
            return unsafe { sys::raw3(nr::CLOSE_RANGE, first, last, flags) };
        }
        let mut from = first;
        let mut r = 0;
        // SAFETY: as above; the pieces leave ours out. Sharing flags apply to the first piece only, which unshares.
        let mut close = |from: u64, to: u64| unsafe {
            if from <= to {
                r = sys::raw3(nr::CLOSE_RANGE, from, to, flags & CLOSE_RANGE_CLOEXEC);
            }
        };
        for f in ours.into_iter().filter(|f| (first..=last).contains(f)) {
            close(from, f.wrapping_sub(1));
            from = f + 1;
        }
        close(from, last);
        r
    }

    /// What the path argument `arg` names about this process itself.
    fn own_path(&self, dir: u64, arg: usize) -> Option<Own> {
        let at = self.args[arg];
        // A quick look: only absolute names and names below an open directory of /proc matter.
        let mut head = [0u8; 6];
        let n = sys::read_guest(at, &mut head);
        let absolute = n > 0 && head[0] == b'/';
        if absolute
            && !(head.starts_with(b"/proc")
                || head.starts_with(b"/dev/")
                || head.starts_with(b"//")
                || head.starts_with(b"/./"))
        {
            return None;
        }
        // Descriptors are half a register wide.
        let from_here = dir as i32 == AT_FDCWD as i32 || n > 0 && head[0] == 0;
        if !absolute && (from_here || elsewhere().contains(dir)) {
            return None;
        }
        let mut path = Vec::new();
        if !absolute {
            path = link_into_proc(dir)?;
            path.push(b'/');
        }
        path.extend_from_slice(&read_string(at)?);
        self.e.recognise(self.t, &path)
    }

    /// The path of the guest's program, if `path` is a name for it in `/proc`.
    pub(super) fn own_exe_path(&self, path: &[u8]) -> Option<Vec<u8>> {
        let own = self.e.recognise(self.t, path)?;
        (own.entry == Entry::Exe).then(|| self.e.exe.clone().into_bytes())
    }

    fn open(&mut self, dir: u64, arg: usize) -> Option<Outcome> {
        let opened = self.open_own(dir, arg)?;
        let flags = match self.nr {
            nr::CREAT => 0,
            nr::OPENAT2 => sys::read_u64(self.args[2]).unwrap_or(0),
            _ => self.args[arg + 1],
        };
        if let Outcome::Value(fd @ 0..) = opened
            && flags & O_CLOEXEC != 0
        {
            // SAFETY: F_SETFD (2), FD_CLOEXEC (1) on a descriptor just made for the guest.
            unsafe { sys::raw3(nr::FCNTL, fd as u64, 2, 1) };
        }
        Some(opened)
    }

    /// Opens what the path names about this process, as the guest is to see it.
    fn open_own(&mut self, dir: u64, arg: usize) -> Option<Outcome> {
        if self.e.seeded() && is_random_device(self.args[arg]) {
            return self.e.open_random().map(Outcome::Value);
        }
        let own = self.own_path(dir, arg)?;
        match own.entry {
            Entry::Exe => Some(self.with_exe_path(arg)),
            Entry::Maps | Entry::Smaps => self.e.open_maps(own.entry == Entry::Smaps).map(Outcome::Value),
            // Of other threads the kernel's answer will do.
            Entry::Status if own.who == Who::Process || own.who == Who::Thread(self.t.tid) => {
                self.e.open_status(self.t).map(Outcome::Value)
            }
            Entry::Auxv => self.e.open_auxv().map(Outcome::Value),
            Entry::Fd(Some(n)) | Entry::FdInfo(Some(n)) if self.e.hidden.contains(n as u64) => {
                Some(Outcome::Value(-err::ENOENT))
            }
            _ => None,
        }
    }

    fn named(&mut self, dir: u64, arg: usize) -> Option<Outcome> {
        let own = self.own_path(dir, arg)?;
        match own.entry {
            // A link itself may be looked at as it is.
            Entry::Exe if !self.looks_at_links() => Some(self.with_exe_path(arg)),
            Entry::Fd(Some(n)) | Entry::FdInfo(Some(n)) if self.e.hidden.contains(n as u64) => {
                Some(Outcome::Value(-err::ENOENT))
            }
            _ => None,
        }
    }

    /// Does the call look at a symbolic link itself?
    fn looks_at_links(&self) -> bool {
        const AT_SYMLINK_NOFOLLOW: u64 = 0x100;
        match self.nr {
            nr::LSTAT => true,
            nr::NEWFSTATAT | nr::FACCESSAT2 => self.args[3] & AT_SYMLINK_NOFOLLOW != 0,
            nr::STATX => self.args[2] & AT_SYMLINK_NOFOLLOW != 0,
            _ => false,
        }
    }

    fn with_exe_path(&mut self, arg: usize) -> Outcome {
        let mut name = self.e.exe.clone().into_bytes();
        name.push(0);
        let mut args = self.args;
        args[arg] = name.as_ptr() as u64;
        self.pass_with(args)
    }

    fn readlink(&mut self, dir: u64, arg: usize) -> Option<Outcome> {
        let own = self.own_path(dir, arg)?;
        if own.entry != Entry::Exe {
            return None;
        }
        let (to, size) = (self.args[arg + 1], self.args[arg + 2] as i32);
        if size <= 0 {
            return Some(Outcome::Value(-err::EINVAL));
        }
        let n = self.e.exe.len().min(size as usize);
        let ok = sys::write_guest(to, &self.e.exe.as_bytes()[..n]) == n;
        Some(Outcome::Value(if ok { n as i64 } else { -err::EFAULT }))
    }

    /// Lists a directory; of `/proc/self/fd` without our descriptors.
    fn getdents(&mut self) -> Outcome {
        let o = self.pass();
        let Outcome::Value(n @ 1..) = o else { return o };
        let Some(link) = link_into_proc(self.args[0]) else { return o };
        if !(link.ends_with(b"/fd") || link.ends_with(b"/fdinfo")) {
            return o;
        }
        let mut bytes = alloc::vec![0u8; n as usize];
        let got = sys::read_guest(self.args[1], &mut bytes);
        bytes.truncate(got);
        let kept = self.e.without_hidden(&bytes);
        if kept.is_empty() {
            // Everything in this piece was ours: the next one.
            return self.getdents();
        }
        sys::write_guest(self.args[1], &kept);
        // What the kernel wrote behind that is the guest's to see, too.
        crate::record::memory_now(self.args[1], n as u64);
        Outcome::Value(kept.len() as i64)
    }
}
