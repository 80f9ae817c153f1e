//! The engine's side of the control socket.
//!
//! A report is one packet. When the host is gone, or there never was one, reports are dropped: the guest must not notice.

use crate::sys::{self, nr};
use alloc::string::String;
use alloc::vec::Vec;
use model::GuestAddr;
use model::wire::{Packet, Report};

/// The socket, by its descriptor.
#[derive(Clone, Copy)]
pub struct Control {
    pub fd: i32,
}

const MSG_NOSIGNAL: u64 = 0x4000;

impl Control {
    pub fn send(&self, pid: u32, report: Report) {
        self.send_with(pid, report, None);
    }

    /// Sends a report, with a descriptor if there is one.
    pub fn send_with(&self, pid: u32, report: Report, fd: Option<i32>) {
        if self.fd < 0 {
            return;
        }
        self.transmit(&Packet { pid, report }.encode(), fd);
    }

    /// Sends a packet that is already encoded.
    pub fn send_bytes(&self, packet: &[u8]) {
        if self.fd >= 0 {
            self.transmit(packet, None);
        }
    }

    fn transmit(&self, bytes: &[u8], fd: Option<i32>) {
        let iov = [bytes.as_ptr() as u64, bytes.len() as u64];
        // struct cmsghdr { len, level SOL_SOCKET, type SCM_RIGHTS } and one int.
        let control: [u64; 3] = [20, 1 | 1 << 32, fd.unwrap_or(0) as u32 as u64];
        let (cptr, clen) = if fd.is_some() { (control.as_ptr() as u64, 24) } else { (0, 0) };
        let msg: [u64; 7] = [0, 0, iov.as_ptr() as u64, 1, cptr, clen, 0];
        loop {
            // SAFETY: all buffers live until the call returns.
            let r = unsafe { sys::raw3(nr::SENDMSG, self.fd as u64, msg.as_ptr() as u64, MSG_NOSIGNAL) };
            if r != -sys::err::EINTR {
                return;
            }
        }
    }

    /// Has the other end been closed?
    pub fn host_is_gone(&self) -> bool {
        // struct pollfd { fd, events 0, revents }: POLLHUP and POLLERR are always reported.
        let mut poll = [self.fd as u32, 0];
        // SAFETY: the kernel writes the second word.
        let r = unsafe { sys::raw3(nr::POLL, poll.as_mut_ptr() as u64, 1, 0) };
        self.fd < 0 || r == 1 && poll[1] >> 16 & 0x18 != 0
    }

    pub fn note(&self, pid: u32, message: &str, pc: GuestAddr) {
        self.send(pid, Report::Note { message: message.into(), pc });
    }
}

/// Sends things in packets of bounded size.
pub fn in_packets<T>(items: Vec<T>, size: impl Fn(&T) -> usize, mut send: impl FnMut(Vec<T>)) {
    let mut batch = Vec::new();
    let mut bytes = 0;
    for i in items {
        bytes += size(&i);
        batch.push(i);
        if bytes > model::wire::MAX_PACKET / 2 {
            send(core::mem::take(&mut batch));
            bytes = 0;
        }
    }
    if !batch.is_empty() {
        send(batch);
    }
}

/// The engine is wrong or cannot go on: says where, and ends the process as killed.
pub fn fatal(message: String, pc: u64) -> ! {
    if crate::state::is_installed() {
        // SAFETY: the process is ending; nothing else uses the engine any more.
        let e = unsafe { crate::state::engine() };
        e.control.send(e.pid, Report::EngineFault { message, pc: GuestAddr(pc) });
    }
    sys::exit_group(125)
}
