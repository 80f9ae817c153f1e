//! A `vfork` child: forked, with what it writes carried back to its waiting parent.
//!
//! The child's writable private pages are write-protected at the start; the first store to each keeps a copy of the page
//! as it was. When the child executes a program or ends, the bytes that differ go into memory it shares with the parent,
//! which applies them. So `posix_spawn` reports errors as natively, and writes that other threads of the parent made
//! meanwhile are kept.

use crate::memory::{kernel_prot, page_down};
use crate::state::Engine;
use crate::sys::{self, MAP_ANONYMOUS, MAP_SHARED, PROT_READ, PROT_WRITE, nr};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering::*};
use model::layout::{ENGINE, PAGE};

/// Room for changes, and behind them a futex word that says that there will be no more.
const CHANNEL: u64 = 1 << 20;
const DONE: u64 = CHANNEL - 8;
/// How often a parent looks whether its child has died without a word.
const LOOK_NS: u64 = 20_000_000;
/// Where it is mapped in both processes.
const AT: u64 = ENGINE.end - (16 << 20);

/// Memory that parent and child share.
#[derive(Clone, Copy)]
pub struct Channel {
    at: u64,
}

/// What a vfork child has written to so far.
pub struct VforkChild {
    channel: Channel,
    protected: Vec<(u64, u64, u8)>,
    pages: Vec<(u64, Vec<u8>)>,
}

impl Channel {
    pub fn new() -> Option<Channel> {
        let flags = MAP_SHARED | MAP_ANONYMOUS | sys::MAP_NORESERVE;
        // SAFETY: fresh memory in the engine's range; the hint is free unless vforks nest, then the kernel chooses.
        let r = unsafe { sys::raw(nr::MMAP, [AT, CHANNEL, PROT_READ | PROT_WRITE, flags, u64::MAX, 0]) };
        (!sys::is_err(r)).then_some(Channel { at: r as u64 })
    }

    fn word(&self, at: u64) -> &'static mut u64 {
        // SAFETY: inside the channel, which stays mapped as long as it is used.
        unsafe { &mut *((self.at + at) as *mut u64) }
    }

    fn done(&self) -> &AtomicU32 {
        // SAFETY: inside the channel, aligned, and used atomically by both sides.
        unsafe { &*((self.at + DONE) as *const AtomicU32) }
    }

    /// In the child: nothing more will come.
    fn finish(&self) {
        self.done().store(1, Release);
        // SAFETY: wakes the parent (FUTEX_WAKE).
        unsafe { sys::raw(nr::FUTEX, [self.at + DONE, 1, 1, 0, 0, 0]) };
    }

    /// In the parent: waits until the child executes a program or is gone.
    pub fn wait(&self, child: u64) {
        let pause = [0u64, LOOK_NS];
        while self.done().load(Acquire) == 0 {
            // SAFETY: FUTEX_WAIT on a word of the channel.
            let r = unsafe { sys::raw(nr::FUTEX, [self.at + DONE, 0, 0, pause.as_ptr() as u64, 0, 0]) };
            let mut info = [0u64; 16];
            // SAFETY: looks at a child (P_PID 1) that has ended, without collecting it (WEXITED, WNOHANG, WNOWAIT).
            let asked = unsafe { sys::raw(nr::WAITID, [1, child, info.as_mut_ptr() as u64, 0x0100_0005, 0, 0]) };
            if r == -sys::err::ETIMEDOUT && (asked != 0 || info[0] != 0) {
                return;
            }
        }
    }

    /// In the parent: applies what the child left and unmaps the channel.
    pub fn apply(self) {
        let mut at = 8;
        for _ in 0..*self.word(0) {
            let (to, len) = (*self.word(at), *self.word(at + 8));
            // SAFETY: the child wrote `len` bytes there.
            let bytes = unsafe { core::slice::from_raw_parts((self.at + at + 16) as *const u8, len as usize) };
            sys::write_guest(to, bytes);
            at += 16 + len.next_multiple_of(8);
        }
        // SAFETY: our own mapping.
        unsafe { sys::raw3(nr::MUNMAP, self.at, CHANNEL, 0) };
    }
}

impl Engine {
    /// In the child: from here on every page written to is noticed.
    pub fn begin_vfork(&mut self, channel: Channel) {
        let mut protected = Vec::new();
        for (start, v) in self.memory.iter() {
            if v.prot as u64 & PROT_WRITE != 0 && !v.shared {
                let prot = kernel_prot(v.prot as u64);
                // SAFETY: guest pages; stores to them fault and are let through one page at a time.
                let r = unsafe { sys::raw3(nr::MPROTECT, start, v.end - start, prot & !PROT_WRITE) };
                if r == 0 {
                    protected.push((start, v.end, v.prot));
                }
            }
        }
        self.vfork = Some(VforkChild { channel, protected, pages: Vec::new() });
    }

    /// Lets a store to a protected page of a vfork child through, keeping the page as it was.
    pub fn reopen_vfork_page(&mut self, address: u64) -> bool {
        let Some(v) = &mut self.vfork else { return false };
        let page = page_down(address);
        let Some(&(_, _, prot)) = v.protected.iter().find(|(s, e, _)| (*s..*e).contains(&page)) else { return false };
        if v.pages.iter().any(|(p, _)| *p == page) {
            return false;
        }
        let mut copy = alloc::vec![0u8; PAGE as usize];
        sys::read_guest(page, &mut copy);
        v.pages.push((page, copy));
        for b in self.pages.written(page) {
            self.cache.invalidate(b);
        }
        // SAFETY: gives the page the rights the guest gave it.
        unsafe { sys::raw3(nr::MPROTECT, page, PAGE, kernel_prot(prot as u64)) == 0 }
    }

    /// The child stops sharing: it executes a program or ends.
    pub fn finish_vfork(&mut self) {
        let Some(v) = self.vfork.take() else { return };
        let mut at = 8;
        for (page, before) in &v.pages {
            let mut now = [0u8; PAGE as usize];
            if sys::read_guest(*page, &mut now) < now.len() {
                continue;
            }
            let mut i = 0;
            while i < now.len() {
                if now[i] == before[i] {
                    i += 1;
                    continue;
                }
                let start = i;
                while i < now.len() && now[i] != before[i] {
                    i += 1;
                }
                let need = 16 + (i - start).next_multiple_of(8) as u64;
                if at + need > DONE {
                    break;
                }
                *v.channel.word(at) = page + start as u64;
                *v.channel.word(at + 8) = (i - start) as u64;
                // SAFETY: room was checked; the channel is mapped.
                unsafe {
                    let to = (v.channel.at + at + 16) as *mut u8;
                    core::ptr::copy_nonoverlapping(now[start..i].as_ptr(), to, i - start);
                }
                at += need;
                *v.channel.word(0) += 1;
            }
        }
        v.channel.finish();
        for (start, end, prot) in v.protected {
            // SAFETY: back to the guest's own rights, should the exec fail and the child go on.
            unsafe { sys::raw3(nr::MPROTECT, start, end - start, kernel_prot(prot as u64)) };
        }
    }

    /// A forked child counts for itself.
    pub fn reset_totals(&mut self) {
        self.harvest_counts();
        self.coverage.clear();
        *self.stats = model::wire::Stats { threads: 1, ..Default::default() };
    }
}
