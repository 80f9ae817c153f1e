//! Calls that the log answers: what they do to the world, the address space, threads and children.

use super::calls::{Came, buffers, fork, map_file, pass, seek, signal_now, write};
use super::follow::{self, Found, Recorded};
use super::world::{self, Backing};
use super::{left, schedule, threads, trial};
use crate::gate::Gate;
use crate::memory::page_up;
use crate::replay::calls::{become_child, child_effects, mask_of_wait, wait_mask};
use crate::replay::replay;
use crate::replay::serve::send;
use crate::state::Engine;
use crate::sys::{self, err, nr};
use crate::syscalls::process::read_string;
use crate::syscalls::table::{self, Args};
use crate::syscalls::{Call, Outcome};
use crate::threads::Thread;
use alloc::vec::Vec;
use model::log::{Answer, CallRecord, DescriptorKind};

/// The recorded answer holds: what it does to the world.
pub fn recorded(e: &mut Engine, t: &mut Thread, g: &mut Gate, call: &Recorded) -> Came {
    let record = &call.record;
    let [a, b, c, ..] = record.args;
    let n = record.result;
    if let Some(stream) = stream_moved_to(e, record) {
        call.moved.iter().for_each(|bytes| super::output(e, stream, bytes));
        return Came::Value(n);
    }
    let w = &mut trial(e).world;
    match u64::from(record.nr) {
        0 | 19 | 45 if n > 0 => world::taken(e, a, n as u64),
        1 | 18 | 20 | 44 | 296 if n > 0 => return write_as_recorded(e, t, record),
        3 if n == 0 => drop(w.close(a)),
        8 if n >= 0 => drop(seek(e, &record.args)),
        2 | 257 | 85 | 437 if n >= 0 => open_as_recorded(e, record),
        32 | 33 | 292 if n >= 0 => {
            let to = if record.nr == 32 { n as u32 } else { b as u32 };
            w.duplicate(a, Some(to), 0);
        }
        72 if n >= 0 && matches!(b, 0 | 1030) => drop(w.duplicate(a, Some(n as u32), 0)),
        // pipe, pipe2, socketpair: what is read from them was recorded.
        22 | 293 | 53 if n == 0 => {
            let at = if record.nr == 53 { record.args[3] } else { a };
            for at in [at, at + 4] {
                if let Some(fd) = sys::read_u32(at) {
                    trial(e).world.put(fd, Backing::Stream { bytes: None, at: 0 });
                }
            }
        }
        // socket, accept, accept4; what epoll_create, eventfd, inotify_init and their like made is not known here.
        41 | 43 | 288 if n >= 0 => w.put(n as u32, Backing::Stream { bytes: None, at: 0 }),
        213 | 253 | 282..=284 | 289..=291 | 294 | 319 | 434 if n >= 0 => w.put(n as u32, Backing::Unknown),
        nr::CLOSE_RANGE if n == 0 && c & 4 == 0 => w.close_range(a, b),
        // chdir, fchdir: names start from there.
        80 if n == 0 => drop(pass(80, &record.args)),
        81 if n == 0 => drop(world::real(e, a).map(|real| pass(81, &[real as u64, 0, 0, 0, 0, 0]))),
        82 | 84 | 87 | 263 | 264 | 316 if n == 0 && left::is_asked(e) => names_as_recorded(e, record),
        nr::CLONE | nr::FORK | nr::VFORK if n == 0 => child_effects(t, g, record),
        nr::CLONE | nr::FORK | nr::VFORK if n > 0 => send(e, &model::serve::Answer::Child(n as u32)),
        nr::RT_SIGSUSPEND if n == -err::EINTR => wait_under(t, sys::read_u64(a)),
        number @ (nr::PPOLL | nr::PSELECT6 | nr::EPOLL_PWAIT | nr::EPOLL_PWAIT2) if n == -err::EINTR => {
            wait_under(t, mask_of_wait(number, &record.args));
        }
        _ => {}
    }
    Came::Value(n)
}

/// A wait under another mask was interrupted.
fn wait_under(t: &mut Thread, mask: Option<u64>) {
    if let Some(mask) = mask {
        wait_mask(t, mask);
    }
}

/// The standard stream that the kernel moved bytes to: `sendfile`, `splice`, `tee`, `copy_file_range`.
fn stream_moved_to(e: &mut Engine, record: &CallRecord) -> Option<u8> {
    let to = match record.nr {
        40 => record.args[0],
        275 | 326 => record.args[2],
        276 => record.args[1],
        _ => return None,
    };
    match trial(e).world.backing(to) {
        Some(Backing::Out(n)) => Some(*n),
        _ => None,
    }
}

/// A file that the recorded guest opened too has the recorded number.
fn open_as_recorded(e: &mut Engine, record: &CallRecord) {
    let fd = record.result as u64;
    let plain = DescriptorKind::from_u8((record.opened as u8).wrapping_sub(1)) == Some(DescriptorKind::File);
    let backing = match record.file {
        0 if !plain => Backing::Unknown,
        file => {
            let (name, flags) = match record.nr {
                2 => (record.args[0], record.args[1]),
                257 => (record.args[1], record.args[2]),
                _ => (record.args[0], 0o1001),
            };
            let file = if flags & world::O_TRUNC != 0 { 0 } else { file };
            match left::is_asked(e) && flags & 3 != 0 {
                true => world::open_named(e, &read_string(name).unwrap_or_default(), file, flags),
                false => Backing::Kept { file, flags: flags as u32, position: 0 },
            }
        }
    };
    trial(e).world.put(fd as u32, backing);
}

/// A file is renamed or removed as recorded.
fn names_as_recorded(e: &mut Engine, record: &CallRecord) {
    let path = |n: usize| read_string(record.args[n]).unwrap_or_default();
    match record.nr {
        82 => drop(world::rename(e, &path(0), &path(1))),
        264 | 316 => drop(world::rename(e, &path(1), &path(3))),
        263 => drop(world::remove(e, &path(1))),
        _ => drop(world::remove(e, &path(0))),
    }
}

/// What the recorded guest wrote with the same call is what it would be: the bytes are the trial's own.
fn write_as_recorded(e: &mut Engine, t: &mut Thread, record: &CallRecord) -> Came {
    match trial(e).world.backing(record.args[0]) {
        Some(Backing::Out(n)) => {
            let n = *n;
            // No more of them than the recorded call took: the guest brings the rest again.
            put_out(e, n, u64::from(record.nr), &record.args, record.result as u64);
            Came::Value(record.result)
        }
        Some(Backing::Real(_) | Backing::Kept { .. }) => write(e, t, u64::from(record.nr), &record.args),
        _ => Came::Value(record.result),
    }
}

/// Sends what a call writes to a standard stream, at most so much; answers as the kernel does: how much that was, or
/// `EFAULT` where nothing could be read. An altered guest may say any length, so no more is taken at once than is there.
pub fn put_out(e: &mut Engine, stream: u8, number: u64, args: &Args, most: u64) -> i64 {
    const PIECE: u64 = 64 << 10;
    let (mut left, mut asked) = (most, 0);
    let mut piece = Vec::new();
    'buffers: for (at, len) in buffers(number, args) {
        let len = len.min(left);
        asked += len;
        let mut done = 0;
        while done < len {
            piece.resize((len - done).min(PIECE) as usize, 0);
            let got = sys::read_guest(at.wrapping_add(done), &mut piece);
            super::output(e, stream, &piece[..got]);
            (left, done) = (left - got as u64, done + got as u64);
            if got < piece.len() {
                break 'buffers;
            }
        }
    }
    match most - left {
        0 if asked > 0 => -err::EFAULT,
        n => n as i64,
    }
}

/// A wait ends when it was recorded to end, which a guest must be prepared for; who waits here is woken as the guest says.
pub fn futex_as_recorded(e: &mut Engine, t: &mut Thread, g: &mut Gate, args: &Args) -> Option<Came> {
    if !schedule::is_on(e) && threads::is_locked(t, args) {
        return Some(Came::Wait(None));
    }
    Some(match follow::answer(e, t.serial, nr::FUTEX, args) {
        Found::This(call) if call.answer == Answer::Again => {
            (g.pc, g.gpr[0]) = (call.record.pc, nr::FUTEX);
            Came::Done
        }
        Found::This(call) => {
            threads::wake_as_asked(e, args);
            Came::Value(call.record.result)
        }
        Found::Later => Came::Wait(None),
        Found::Nothing => match threads::futex(e, t, g, args) {
            Some(v) => Came::Value(v),
            None => Came::Done,
        },
    })
}

/// Calls that change the address space: where the recorded ones did, if there is room.
pub fn own_memory(e: &mut Engine, t: &mut Thread, g: &mut Gate, number: u64, args: &Args) -> Option<Came> {
    let more = match number {
        nr::MMAP => args[1],
        nr::BRK => args[0].saturating_sub(e.memory.brk).min(1 << 40),
        nr::MREMAP => args[2].saturating_sub(args[1]),
        _ => 0,
    };
    let fits = follow::met(e, t.serial, number, args).map(|call| call.record);
    if let Some(record) = fits.filter(|r| is_possible(e, r)) {
        crate::replay::memory::call(e, &record);
        return Some(Came::Value(record.result));
    }
    if !super::allows_memory(e, more) {
        return Some(Came::Value(if number == nr::BRK { e.memory.brk as i64 } else { -err::ENOMEM }));
    }
    if number == nr::MMAP && args[3] & sys::MAP_ANONYMOUS == 0 {
        return Some(Came::Value(map_file(e, t, g, args)));
    }
    let outcome = Call { e, t, g, nr: number, args: *args, row: table::row(number) }.own_memory();
    Some(match outcome {
        Outcome::Value(v) => Came::Value(v),
        Outcome::Again | Outcome::Done => Came::Done,
    })
}

/// Can the address space be changed as it was by this call?
fn is_possible(e: &mut Engine, record: &CallRecord) -> bool {
    let at = record.result as u64;
    let [a, len, new_len, flags, ..] = record.args;
    if sys::is_err(record.result) {
        return false;
    }
    match u64::from(record.nr) {
        nr::MMAP => {
            let known = replay(e).file(record.file).is_some_and(|f| !f.key.is_empty());
            let kept = flags & sys::MAP_ANONYMOUS != 0 || known;
            kept && (flags & sys::MAP_FIXED != 0 || e.memory.is_free(at..at + page_up(len)))
        }
        nr::MREMAP => at != a && e.memory.is_free(at..at + page_up(new_len)),
        _ => false,
    }
}

/// The child of a fork that was recorded did what it did: what it gave to its parent is in the parent's log. If the
/// recorded unit is the child, the trial goes on as the child.
pub fn fork_as_recorded(e: &mut Engine, t: &mut Thread, g: &mut Gate, number: u64, args: &Args) -> Option<Came> {
    match follow::answer(e, t.serial, number, args) {
        Found::This(call) => match call.edge {
            Some(edge) => {
                replay(e).turn_to(edge.child);
                become_child(e, t);
                follow::begin(e, t);
                schedule::begin(e);
                // Its own log begins with the same call.
                None
            }
            None if call.answer == Answer::Again => None,
            None => Some(recorded(e, t, g, &call)),
        },
        Found::Later => Some(Came::Wait(None)),
        Found::Nothing => Some(Came::Value(fork(e, t, g, number, args))),
    }
}

/// A signal to somebody: what came of it is in the log, or it comes at once.
pub fn signal_as_recorded(e: &mut Engine, t: &mut Thread, number: u64, args: &Args) -> Came {
    let (target, signal) = match number {
        nr::TGKILL | 297 => (args[1], args[2]),
        _ => (args[0], args[1]),
    };
    match follow::answer(e, t.serial, number, args) {
        Found::This(call) if call.answer == Answer::Value => Came::Value(call.record.result),
        Found::Later => Came::Wait(None),
        _ => Came::Value(signal_now(e, t, number, target, signal)),
    }
}
