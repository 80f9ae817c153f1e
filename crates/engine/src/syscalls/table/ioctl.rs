//! What the argument of ioctl(2) is, by request number.
//!
//! Guarantees: exact for the requests in `ioctl_rows`, among them all old ones whose number says nothing and
//! those whose number says something false. May miss: of any other request only the direction and size in its number
//! are believed, so memory behind pointers inside its structure is not listed; [`known`] tells the two apart.
//! Source: the kernel's uapi headers; `_IOC` in asm-generic/ioctl.h for the encoding.

use super::call::{Call, IOV_MAX};
use super::ioctl_rows::REQUESTS;

/// One request.
#[derive(Clone, Copy)]
pub struct Request {
    pub number: u32,
    pub name: &'static str,
    pub arg: Arg,
}

/// What the third argument is.
#[derive(Clone, Copy)]
pub enum Arg {
    /// Ignored.
    None,
    /// A number or a descriptor.
    Value,
    /// A pointer to so many bytes that are read.
    Read(u32),
    /// ... that are written.
    Write(u32),
    /// ... that are read, then written.
    Both(u32),
    /// A string of at most so many bytes.
    Text(u32),
    /// As a named function lists it.
    By(fn(&mut Call<'_>)),
}

/// The request with this number, if the table has it.
pub fn request(number: u32) -> Option<&'static Request> {
    REQUESTS.binary_search_by_key(&number, |r| r.number).ok().map(|i| &REQUESTS[i])
}

/// Whether the argument of this request is described exactly.
pub fn known(number: u32) -> bool {
    request(number).is_some() || matches!(family(number), Some((_, true)))
}

/// Whether the request can sleep for as long as something outside pleases. Unknown requests can.
pub fn waits(number: u32) -> bool {
    match request(number) {
        Some(r) => super::ioctl_rows::WAITING.contains(&r.name),
        None => family(number).is_none(),
    }
}

/// What the argument of a request is: from the table, from its family, or from its number.
pub fn argument(number: u32) -> Arg {
    if let Some(r) = request(number) {
        return r.arg;
    }
    family(number).map_or_else(|| encoded(number), |(arg, _)| arg)
}

/// Ranges of requests that share one structure, and whether that structure is all there is.
fn family(number: u32) -> Option<(Arg, bool)> {
    match number {
        // Ethernet tools, bonding, time stamps and a driver's own requests put a pointer into the interface request.
        0x8946 | 0x8990..=0x8995 | 0x89b0..=0x89b1 | 0x89f0..=0x89ff => Some((Arg::Both(40), false)),
        // Everything else about a network interface.
        0x8910..=0x894a | 0x8970..=0x8971 => Some((Arg::Both(40), true)),
        // Wireless extensions, with a pointer inside.
        0x8b00..=0x8bff => Some((Arg::Both(32), false)),
        // Device mapper: a header that says how much follows it.
        0xc138_fd00..=0xc138_fdff => Some((Arg::By(device_mapper), true)),
        _ => None,
    }
}

/// What the number itself says: two bits of direction, seen from the caller, and fourteen of size.
fn encoded(number: u32) -> Arg {
    let size = number >> 16 & 0x3fff;
    match number >> 30 {
        _ if size == 0 => Arg::Value,
        1 => Arg::Read(size),
        2 => Arg::Write(size),
        3 => Arg::Both(size),
        _ => Arg::Value,
    }
}

/// ioctl(descriptor, request, argument).
pub fn ioctl(call: &mut Call<'_>) {
    let addr = call.args[2];
    match argument(call.args[1] as u32) {
        Arg::None | Arg::Value => {}
        Arg::Read(n) => call.reads(addr, n.into()),
        Arg::Write(n) => call.writes(addr, n.into()),
        Arg::Both(n) => call.both(addr, n.into()),
        Arg::Text(n) => call.text(addr, n.into()),
        Arg::By(shape) if addr != 0 => shape(call),
        Arg::By(_) => {}
    }
}

/// SIOCGIFCONF: a length and a buffer; the length comes back as what was filled.
pub fn interface_list(call: &mut Call<'_>) {
    let addr = call.args[2];
    let room = call.room(addr);
    let buffer = call.word(addr.wrapping_add(8), 8);
    call.both(addr, 16);
    call.writes(buffer, room);
}

/// FS_IOC_FIEMAP: a header, then as many extents as it has room for; how many were stored comes back in it.
pub fn extent_map(call: &mut Call<'_>) {
    let addr = call.args[2];
    let stored_at = if call.result.is_none() { 24 } else { 20 };
    let extents = call.word(addr.wrapping_add(stored_at), 4);
    let room = call.word(addr.wrapping_add(24), 4);
    call.both(addr, 32);
    call.writes(addr.wrapping_add(32), extents.min(room) * 56);
}

/// FIDEDUPERANGE: a header and one entry per target.
pub fn dedupe(call: &mut Call<'_>) {
    let addr = call.args[2];
    let targets = call.word(addr.wrapping_add(16), 2);
    call.both(addr, 24 + targets * 32);
}

/// Device mapper requests: the header says how large the whole buffer is.
fn device_mapper(call: &mut Call<'_>) {
    let addr = call.args[2];
    let size = call.word(addr.wrapping_add(12), 4).max(312);
    call.both(addr, size);
}

/// BLKPG: a header that points at a partition description.
pub fn partition(call: &mut Call<'_>) {
    let addr = call.args[2];
    call.reads(addr, 24);
    let len = call.word(addr.wrapping_add(8), 4);
    let data = call.word(addr.wrapping_add(16), 8);
    call.reads(data, len);
}

/// RNDADDENTROPY: the second word is the number of bytes that follow.
pub fn entropy(call: &mut Call<'_>) {
    let addr = call.args[2];
    let len = call.word(addr.wrapping_add(4), 4);
    call.reads(addr, 8 + len);
}

/// PERF_EVENT_IOC_QUERY_BPF: room for ids, then how many there are, then the ids.
pub fn bpf_ids(call: &mut Call<'_>) {
    let addr = call.args[2];
    let room = call.word(addr, 4);
    call.reads(addr, 4);
    call.writes(addr.wrapping_add(4), 4);
    call.writes(addr.wrapping_add(8), room * 4);
}

/// TIOCLINUX: the first byte is a command; the ones that programs use answer in the same byte or not at all.
pub fn console(call: &mut Call<'_>) {
    const SELECTION: u64 = 2;
    const SHIFT_STATE: u64 = 6;
    let addr = call.args[2];
    match call.word(addr, 1) {
        SELECTION => call.reads(addr, 11),
        SHIFT_STATE => call.both(addr, 1),
        _ => call.reads(addr, 1),
    }
}

/// SG_IO: a header that names a command, a data buffer or an array of them, and room for sense data.
pub fn scsi(call: &mut Call<'_>) {
    let addr = call.args[2];
    let direction = call.word(addr.wrapping_add(4), 4) as u32 as i32;
    let command_len = call.word(addr.wrapping_add(8), 1);
    let sense_len = call.word(addr.wrapping_add(9), 1);
    let parts = call.word(addr.wrapping_add(10), 2);
    let len = call.word(addr.wrapping_add(12), 4);
    let data = call.word(addr.wrapping_add(16), 8);
    let command = call.word(addr.wrapping_add(24), 8);
    let sense = call.word(addr.wrapping_add(32), 8);
    call.both(addr, 88);
    call.reads(command, command_len);
    call.writes(sense, sense_len);
    // -2 sends, -3 fetches, -4 does both.
    let (sends, fetches) = (matches!(direction, -2 | -4), matches!(direction, -3 | -4));
    if parts == 0 {
        if sends {
            call.reads(data, len);
        }
        if fetches {
            call.writes(data, len);
        }
    } else if parts <= IOV_MAX {
        call.reads(data, parts * 16);
        if sends {
            call.buffers(data, parts, len, false);
        }
        if fetches {
            call.buffers(data, parts, len, true);
        }
    }
}
