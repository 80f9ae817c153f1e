//! System calls in the log: what a call read is digested before it is made, what it wrote is logged when it is back.

use super::{Context, append, memory_now, on, pages, time_stamp};
use crate::gate::{self, Gate};
use crate::state::Engine;
use crate::sys;
use crate::syscalls::Outcome;
use crate::syscalls::table::{self, Args, Entry, Row};
use crate::threads::Thread;
use core::mem::MaybeUninit;
use model::log::{Answer, CallRecord, DescriptorKind, Kind, digest};
use model::region::WaitingCall;

/// Of what a call reads at most so much is digested, piece by piece.
const DIGEST_MAX: u64 = 1 << 20;
/// A call that failed half-way may have written anywhere in its buffers: at most so much of each is looked at.
const FAULT_MAX: u64 = 1 << 20;

/// A call between its beginning and its end.
pub struct Begun {
    pub nr: u64,
    pub args: Args,
    pub pc: u64,
    pub tick: u64,
    row: Option<&'static Row>,
    entry: Entry,
    digest: u64,
    /// What was kept of a file that the call is about to change.
    pub file: u32,
    /// Where the kernel will take bytes from that it moves to a standard stream: a file and a position.
    moves: Option<(u64, u64)>,
}

pub fn read_word(at: u64, size: u64) -> Option<u64> {
    let mut b = [0; 8];
    let n = size.min(8) as usize;
    (sys::read_guest(at, &mut b[..n]) == n).then(|| u64::from_le_bytes(b))
}

/// Digest of the registers and of what the call at hand reads. `entry` is filled for listing its writes later.
pub fn state_digest(g: &Gate, row: Option<&'static Row>, args: &Args, entry: &mut Entry) -> u64 {
    // SAFETY: plain arrays of words, seen as bytes.
    let (gpr, xmm) = unsafe {
        (
            core::slice::from_raw_parts(g.gpr.as_ptr() as *const u8, 128),
            core::slice::from_raw_parts(g.xmm.as_ptr() as *const u8, 256),
        )
    };
    let mut h = digest(g.pc ^ gate::fs_base(), gpr);
    h = digest(h, xmm);
    if let Some(row) = row {
        let mut left = DIGEST_MAX;
        table::memory_with(row, args, None, entry, &mut read_word, &mut |u| {
            if !u.write {
                let len = u.len.min(left);
                left -= len;
                h = memory_digest(h, u.addr, len);
            }
        });
    }
    h
}

/// Bytes that are digested at once; part of what a digest is.
const PIECE: u64 = 1024;

/// Digest of guest memory, as far as it can be read.
pub fn memory_digest(seed: u64, at: u64, len: u64) -> u64 {
    let mut h = seed;
    let mut room = [const { MaybeUninit::uninit() }; PIECE as usize];
    let mut done = 0;
    while done < len {
        let n = (len - done).min(PIECE) as usize;
        let piece = sys::read_guest_into(at + done, &mut room[..n]);
        let got = piece.len();
        h = digest(h, piece);
        if got < n {
            break;
        }
        done += n as u64;
    }
    h
}

/// A call is about to be made.
pub fn begin(e: &mut Engine, t: &mut Thread, g: &Gate, pc: u64, nr: u64, args: &Args) -> Option<Begun> {
    let ahead = super::region::ahead();
    if !on() && !ahead {
        return None;
    }
    let row = table::row(nr);
    let mut entry = Entry::new();
    if ahead {
        return Some(begin_unrecorded(e, t, pc, nr, args, row, entry));
    }
    let digest = state_digest(g, row, args, &mut entry);
    t.context = Context::Call;
    if nr == sys::nr::CLOSE && args[0] == 0 {
        // Afterwards nobody can tell what was left in it.
        e.log_rest();
    }
    let file = e.keep_before(nr, args);
    let moves = moved_to_stream(e, nr, args);
    Some(Begun { nr, args: *args, pc, tick: e.clock.now(), row, entry, digest, file, moves })
}

/// As [`begin`], for a call that will be logged only if recording has begun when it comes back.
fn begin_unrecorded(
    e: &Engine,
    t: &mut Thread,
    pc: u64,
    nr: u64,
    args: &Args,
    row: Option<&'static Row>,
    mut entry: Entry,
) -> Begun {
    if let Some(row) = row {
        table::memory_with(row, args, None, &mut entry, &mut read_word, &mut |_| {});
    }
    t.context = Context::Call;
    let tick = e.clock.now();
    t.call = Some(WaitingCall { nr, pc, tick, args: *args, digest: 0, mask: t.mask });
    Begun { nr, args: *args, pc, tick, row, entry, digest: 0, file: 0, moves: moved_to_stream(e, nr, args) }
}

/// It came back.
pub fn end(e: &mut Engine, t: &mut Thread, g: &Gate, b: &mut Begun, outcome: Outcome) {
    (t.context, t.call) = (Context::None, None);
    let (answer, result) = match outcome {
        Outcome::Value(v) => (Answer::Value, v),
        Outcome::Again => (Answer::Again, 0),
        Outcome::Done => (Answer::Done, g.gpr[0] as i64),
    };
    if !on() {
        return;
    }
    let mut opened = 0;
    if answer == Answer::Value {
        if let Some(row) = b.row {
            if let Some(why) = table::misses(row, &b.args).filter(|_| result >= 0) {
                e.mark_inexact(&alloc::format!("{}: {why}", row.name));
            }
            let fault = result == -sys::err::EFAULT;
            table::memory_with(row, &b.args, Some(result), &mut b.entry, &mut read_word, &mut |u| {
                if u.write && u.len != 0 {
                    memory_now(u.addr, if fault { u.len.min(FAULT_MAX) } else { u.len });
                }
            });
        }
        if let Some((fd, at)) = b.moves {
            log_moved(fd, at, result);
        }
        if result >= 0 {
            (b.file, opened) = e.keep_after(b.nr, &b.args, result, b.file);
            e.share_after(b.nr, &b.args, result);
        }
    }
    let now = log(t, b, answer, result, opened);
    pages::look(e, t, now);
}

/// The record itself; answers its time stamp.
fn log(t: &Thread, b: &Begun, answer: Answer, result: i64, opened: u32) -> u64 {
    let time = time_stamp();
    let record = CallRecord {
        thread: t.serial,
        nr: b.nr as u32,
        pc: b.pc,
        tick: b.tick,
        args: b.args,
        result,
        digest: b.digest,
        time,
        file: b.file,
        opened,
    };
    append(Kind::Call, answer as u8, &record.encode());
    time
}

/// A call that does not come back: the thread ends, or another image takes over.
pub fn ends_without_return(e: &Engine, t: &mut Thread, g: &Gate, nr: u64, args: &Args, answer: Answer) {
    if !on() {
        return;
    }
    t.context = Context::None;
    // The instruction was two bytes long: `syscall` has one form.
    let b = Begun {
        nr,
        args: *args,
        pc: g.pc - 2,
        tick: e.clock.now(),
        row: None,
        entry: Entry::new(),
        digest: 0,
        file: 0,
        moves: None,
    };
    log(t, &b, answer, 0, 0);
}

/// `sendfile` and its like move bytes that the guest never sees. A replay must emit those that went to a standard stream.
fn moved_to_stream(e: &Engine, number: u64, args: &Args) -> Option<(u64, u64)> {
    // sendfile(out, in, offset, …); splice and copy_file_range(in, offset, out, …).
    let (from, offset, to) = match number {
        40 => (args[1], args[2], args[0]),
        275 | 326 => (args[0], args[1], args[2]),
        _ => return None,
    };
    let streams = e.config.record.as_ref()?.streams;
    let identity = crate::memory::object_of(to)?;
    if !streams[1..].contains(&[identity.0, identity.1]) {
        return None;
    }
    // SAFETY: asks for a position (SEEK_CUR, 1); what has none is no file.
    let position = unsafe { sys::raw3(sys::nr::LSEEK, from, 0, 1) };
    let at = if offset != 0 { sys::read_u64(offset)? } else { position.max(0) as u64 };
    (position >= 0).then_some((from, at))
}

fn log_moved(fd: u64, at: u64, len: i64) {
    let mut done = 0;
    while done < len {
        let n = (len - done).min(super::PIECE as i64) as usize;
        let Some(room) = super::reserve(16 + n) else { return };
        room[..16].fill(0);
        let to = room[16..].as_mut_ptr() as u64;
        // SAFETY: reads into the room just reserved.
        let got = unsafe { sys::raw(sys::nr::PREAD64, [fd, to, n as u64, at + done as u64, 0, 0]) };
        if got <= 0 {
            return;
        }
        super::commit(Kind::Rest, 1, 16 + got as usize);
        done += got;
    }
}

/// The kind of what a descriptor leads to, by its mode.
pub fn kind_of(mode: u32) -> DescriptorKind {
    match mode & 0o170000 {
        0o100000 => DescriptorKind::File,
        0o040000 => DescriptorKind::Folder,
        0o010000 => DescriptorKind::Pipe,
        0o140000 => DescriptorKind::Socket,
        0o020000 => DescriptorKind::Terminal,
        _ => DescriptorKind::Other,
    }
}
