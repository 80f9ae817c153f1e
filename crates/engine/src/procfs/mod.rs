//! `/proc/self` as the guest expects it: its program, its mappings, its descriptors.

pub mod maps;
pub mod paths;

use crate::signals::actions::{SIG_DFL, SIG_IGN};
use crate::signals::bit;
use crate::state::Engine;
use crate::sys::{self, PROT_EXEC, nr};
use crate::text::Short;
use crate::threads::Thread;
use alloc::vec::Vec;
use maps::{GuestPages, View};
use paths::{Asker, Own};

/// Where a descriptor leads, by the kernel's own link.
pub fn link_of(fd: u64) -> Option<Vec<u8>> {
    link_into(fd, &mut [0; LINK_MAX]).map(<[u8]>::to_vec)
}

pub const LINK_MAX: usize = 4096;

/// The same without the heap.
pub fn link_into(fd: u64, room: &mut [u8; LINK_MAX]) -> Option<&[u8]> {
    let name = Short::new(format_args!("/proc/self/fd/{}", fd as i32));
    // SAFETY: the kernel writes into our buffer.
    let n = unsafe { sys::raw3(nr::READLINK, name.address(), room.as_mut_ptr() as u64, room.len() as u64) };
    (n > 0).then(|| &room[..n as usize])
}

impl Engine {
    pub fn recognise(&self, t: &Thread, path: &[u8]) -> Option<Own> {
        let regions = self.thread_regions;
        // SAFETY: regions below the count exist.
        let is_thread = |tid: u32| (0..regions).any(|n| unsafe { Thread::by_index(n) }.tid == tid);
        paths::recognise(path, Asker { pid: self.pid, tid: t.tid, is_thread: &is_thread })
    }

    /// A descriptor for the guest's view of its mappings.
    pub fn open_maps(&mut self, smaps: bool) -> Option<i64> {
        let text = read_file(if smaps { b"/proc/self/smaps\0" } else { b"/proc/self/maps\0" });
        // What the guest may execute is not executable to the kernel, nor always writable when the guest may write it.
        let code = self.memory.iter().filter(|(_, v)| v.is(PROT_EXEC));
        let pages: Vec<GuestPages> =
            code.map(|(start, v)| GuestPages { range: start..v.end, prot: v.prot as u32 }).collect();
        let heap = self.memory.brk_start..crate::memory::page_up(self.memory.brk);
        let view = View { heap, stack: self.memory.stack.clone(), pages: &pages };
        file_with(b"maps\0", &maps::rewrite(&text, &view))
    }

    /// `status` with the guest's signal sets instead of the engine's.
    pub fn open_status(&mut self, t: &Thread) -> Option<i64> {
        let text = read_file(b"/proc/thread-self/status\0");
        let (mut ignored, mut caught) = (0u64, 0u64);
        for signal in 1..=64 {
            match self.actions.get(signal).handler {
                SIG_DFL => {}
                SIG_IGN => ignored |= bit(signal),
                _ => caught |= bit(signal),
            }
        }
        let mut out = Vec::with_capacity(text.len());
        for line in text.split_inclusive(|b| *b == b'\n') {
            let set = match line {
                [b'S', b'i', b'g', b'B', b'l', b'k', b':', ..] => t.mask,
                [b'S', b'i', b'g', b'I', b'g', b'n', b':', ..] => ignored,
                [b'S', b'i', b'g', b'C', b'g', b't', b':', ..] => caught,
                _ => {
                    out.extend_from_slice(line);
                    continue;
                }
            };
            out.extend_from_slice(&line[..7]);
            out.extend_from_slice(alloc::format!("\t{set:016x}\n").as_bytes());
        }
        (!out.is_empty()).then(|| file_with(b"status\0", &out)).flatten()
    }

    /// A file of seeded random bytes in place of `/dev/urandom`: as many as any program is likely to read.
    pub fn open_random(&mut self) -> Option<i64> {
        let mut bytes = Vec::with_capacity(64 << 10);
        while bytes.len() < 64 << 10 {
            bytes.extend_from_slice(&self.clock.random().to_le_bytes());
        }
        file_with(b"random\0", &bytes)
    }

    /// The auxiliary vector the guest was started with.
    pub fn open_auxv(&mut self) -> Option<i64> {
        let range = self.auxv.clone();
        let mut bytes = alloc::vec![0u8; (range.end - range.start) as usize];
        sys::read_guest(range.start, &mut bytes);
        file_with(b"auxv\0", &bytes)
    }

    /// Directory entries less those of the engine's descriptors.
    pub fn without_hidden(&self, entries: &[u8]) -> Vec<u8> {
        let mut kept = Vec::new();
        let mut at = 0;
        // struct linux_dirent64 { ino u64, off u64, reclen u16, type u8, name }
        while at + 19 <= entries.len() {
            let len = u16::from_le_bytes([entries[at + 16], entries[at + 17]]) as usize;
            if len < 19 || at + len > entries.len() {
                break;
            }
            let entry = &entries[at..at + len];
            let name = entry[19..].split(|b| *b == 0).next().unwrap_or_default();
            let number = core::str::from_utf8(name).ok().and_then(|s| s.parse::<u32>().ok());
            if !number.is_some_and(|n| self.hidden.contains(n as u64)) {
                kept.extend_from_slice(entry);
            }
            at += len;
        }
        kept
    }
}

/// The whole of a file; empty if it cannot be read.
pub fn read_file(path: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    // SAFETY: opens, reads into our own buffer and closes a file.
    unsafe {
        let fd = sys::raw3(nr::OPEN, path.as_ptr() as u64, 0x8_0000, 0);
        if fd < 0 {
            return text;
        }
        let mut buf = [0u8; 4096];
        loop {
            let n = sys::raw3(nr::READ, fd as u64, buf.as_mut_ptr() as u64, buf.len() as u64);
            if n <= 0 {
                break;
            }
            text.extend_from_slice(&buf[..n as usize]);
        }
        sys::raw3(nr::CLOSE, fd as u64, 0, 0);
    }
    text
}

/// A fresh descriptor that reads as `bytes`.
fn file_with(name: &[u8], bytes: &[u8]) -> Option<i64> {
    // SAFETY: a file of our own, handed to the guest.
    unsafe {
        let fd = sys::raw3(nr::MEMFD_CREATE, name.as_ptr() as u64, 0, 0);
        if sys::is_err(fd) {
            return None;
        }
        let mut done = 0;
        while done < bytes.len() {
            let n = sys::raw3(nr::WRITE, fd as u64, bytes[done..].as_ptr() as u64, (bytes.len() - done) as u64);
            if n <= 0 {
                break;
            }
            done += n as usize;
        }
        sys::raw3(nr::LSEEK, fd as u64, 0, 0);
        Some(fd)
    }
}
