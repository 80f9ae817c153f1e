//! Socket messages and options.
//!
//! Guarantees: of a received message exactly the bytes are listed that its lengths and the result name, the address
//! clipped to the room there was. May miss: option values that hold further pointers, other than packet filters, and
//! memory that a zero-copy send reads after the call; `misses` names them.

use super::super::call::{Call, IOV_MAX, RW_MAX};
use super::super::structs::{MMSGHDR, MSGHDR, SOCK_FILTER, SOCK_FPROG};

/// Offsets in `msghdr`.
mod field {
    pub const NAME: u64 = 0;
    pub const NAMELEN: u64 = 8;
    pub const IOV: u64 = 16;
    pub const IOVLEN: u64 = 24;
    pub const CONTROL: u64 = 32;
    pub const CONTROLLEN: u64 = 40;
    pub const FLAGS: u64 = 48;
    /// In `mmsghdr`, after the header: how long this message was.
    pub const LEN: u64 = 56;
}

/// sendmsg(socket, message, flags).
pub fn sendmsg(call: &mut Call<'_>) {
    let total = call.done(RW_MAX);
    sent(call, call.args[1], total);
}

/// recvmsg(socket, message, flags).
pub fn recvmsg(call: &mut Call<'_>) {
    let total = call.done(RW_MAX);
    received(call, call.args[1], total);
}

/// sendmmsg(socket, messages, count, flags): each message that went out gets its length stored.
pub fn sendmmsg(call: &mut Call<'_>) {
    let count = call.int(2).min(IOV_MAX);
    let limit = call.done(count);
    for i in 0..limit {
        let message = call.args[1].wrapping_add(i * MMSGHDR);
        let total = message_length(call, message);
        sent(call, message, total);
        call.writes(message.wrapping_add(field::LEN), 4);
    }
}

/// recvmmsg(socket, messages, count, flags, time limit): the time left comes back if anything arrived.
pub fn recvmmsg(call: &mut Call<'_>) {
    let count = call.int(2).min(IOV_MAX);
    let limit = call.done(count);
    for i in 0..limit {
        let message = call.args[1].wrapping_add(i * MMSGHDR);
        let total = message_length(call, message);
        received(call, message, total);
        call.writes(message.wrapping_add(field::LEN), 4);
    }
    call.reads(call.args[4], 16);
    if call.found() {
        call.writes(call.args[4], 16);
    }
}

/// How many bytes one message of several carried: unlimited before the call.
fn message_length(call: &mut Call<'_>, message: u64) -> u64 {
    match call.result {
        Some(r) if r >= 0 => call.word(message.wrapping_add(field::LEN), 4),
        _ => RW_MAX,
    }
}

fn sent(call: &mut Call<'_>, message: u64, total: u64) {
    if message == 0 {
        return;
    }
    call.reads(message, MSGHDR);
    let name = call.word(message.wrapping_add(field::NAME), 8);
    let name_len = call.word(message.wrapping_add(field::NAMELEN), 4);
    call.reads(name, name_len);
    let control = call.word(message.wrapping_add(field::CONTROL), 8);
    let control_len = call.word(message.wrapping_add(field::CONTROLLEN), 8);
    call.reads(control, control_len);
    parts(call, message, total, false);
}

fn received(call: &mut Call<'_>, message: u64, total: u64) {
    if message == 0 {
        return;
    }
    call.reads(message, MSGHDR);
    let name = call.word(message.wrapping_add(field::NAME), 8);
    if name != 0 {
        let room = call.room(message.wrapping_add(field::NAMELEN));
        call.writes(name, room);
        call.writes(message.wrapping_add(field::NAMELEN), 4);
    }
    parts(call, message, total, true);
    // Afterwards the length word says how much of the room for control messages was used.
    let control = call.word(message.wrapping_add(field::CONTROL), 8);
    let (before, now) = call.word_before(message.wrapping_add(field::CONTROLLEN), 8);
    call.writes(control, now.min(before.unwrap_or(now)));
    call.writes(message.wrapping_add(field::CONTROLLEN), 8);
    call.writes(message.wrapping_add(field::FLAGS), 4);
}

fn parts(call: &mut Call<'_>, message: u64, total: u64, write: bool) {
    let iov = call.word(message.wrapping_add(field::IOV), 8);
    let count = call.word(message.wrapping_add(field::IOVLEN), 8);
    if iov != 0 && count <= IOV_MAX {
        call.reads(iov, count * 16);
        call.buffers(iov, count, total, write);
    }
}

/// Levels and names of the socket options that this module tells apart.
pub mod option {
    pub const SOL_IP: u64 = 0;
    pub const SOL_SOCKET: u64 = 1;
    pub const SOL_TCP: u64 = 6;
    pub const SOL_IPV6: u64 = 41;
    pub const SOL_SCTP: u64 = 132;
    pub const SOL_PACKET: u64 = 263;
    pub const SO_ATTACH_FILTER: u64 = 26;
    pub const SO_ATTACH_REUSEPORT_CBPF: u64 = 51;
    pub const TCP_ZEROCOPY_RECEIVE: u64 = 35;
    pub const TCP_AO_GET_KEYS: u64 = 41;
    pub const IP_MSFILTER: u64 = 41;
    pub const MCAST_MSFILTER: u64 = 48;
    pub const PACKET_HDRLEN: u64 = 11;
    /// From here on the options of the IP levels belong to the packet filter tables.
    pub const TABLES: u64 = 64;
}

/// setsockopt(socket, level, name, value, length): packet filters sit behind a second pointer.
pub fn setsockopt(call: &mut Call<'_>) {
    let (value, len) = (call.args[3], call.int(4));
    call.reads(value, len);
    let filter = matches!(call.int(2), option::SO_ATTACH_FILTER | option::SO_ATTACH_REUSEPORT_CBPF);
    if call.int(1) == option::SOL_SOCKET && filter && value != 0 && len >= SOCK_FPROG {
        program(call, value);
    }
}

/// The instructions of the packet filter that a `sock_fprog` names.
pub fn program(call: &mut Call<'_>, addr: u64) {
    let count = call.word(addr, 2);
    let code = call.word(addr.wrapping_add(8), 8);
    call.reads(code, count * SOCK_FILTER);
}

/// getsockopt(socket, level, name, value, length): a few options also read the buffer that they fill.
pub fn getsockopt(call: &mut Call<'_>) {
    let value = call.args[3];
    let room = call.room(call.args[4]);
    let (level, name) = (call.int(1), call.int(2));
    let reads = match level {
        option::SOL_IP | option::SOL_IPV6 => {
            matches!(name, option::IP_MSFILTER | option::MCAST_MSFILTER) || name >= option::TABLES
        }
        option::SOL_TCP => matches!(name, option::TCP_ZEROCOPY_RECEIVE | option::TCP_AO_GET_KEYS),
        option::SOL_PACKET => name == option::PACKET_HDRLEN,
        option::SOL_SCTP => true,
        _ => false,
    };
    if reads {
        call.reads(value, room);
    }
    call.writes(value, room);
}
