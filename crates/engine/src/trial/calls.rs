//! System calls of a trial.

use super::children::{self, fork_as_recorded};
use super::follow::{self, Found};
use super::recorded::{futex_as_recorded, own_memory, put_out, recorded, signal_as_recorded};
use super::world::{self, Backing};
use super::{events, lost, schedule, threads, trial};
use crate::gate::Gate;
use crate::replay::descriptors::{O_NONBLOCK, Object, asks_cloexec};
use crate::replay::replay;
use crate::state::Engine;
use crate::sys::{self, err, nr};
use crate::syscalls::process::{CLONE_THREAD, read_string};
use crate::syscalls::table::{self, Args};
use crate::syscalls::{Call, Outcome};
use crate::threads::{Thread, pending};
use alloc::vec::Vec;
use model::log::{Answer, DescriptorKind};
use model::serve::TrialEnd;

const AT_FDCWD: u64 = -100i64 as u64;
const ENOTSOCK: i64 = 88;

/// What came of a call.
pub enum Came {
    Value(i64),
    /// Registers and pc are set; perhaps another thread runs.
    Done,
    /// It waits, at most so long.
    Wait(Option<u64>),
}

/// The guest makes a call.
pub fn call(e: &mut Engine, t: &mut Thread, g: &mut Gate, pc: u64, number: u64, args: &Args) {
    if !schedule::at_call(e, t, g, pc, number, args) {
        return super::next_turn(e, t, g);
    }
    let came = match own(e, t, g, number, args) {
        Some(came) => came,
        None => match follow::answer(e, t.serial, number, args) {
            Found::This(call) if call.answer == Answer::Again => {
                // It is made again behind the signal that interrupted it.
                (g.pc, g.gpr[0]) = (pc, number);
                Came::Done
            }
            Found::This(call) => recorded(e, t, g, &call),
            Found::Later => Came::Wait(None),
            Found::Nothing => emulate(e, t, number, args),
        },
    };
    match came {
        Came::Value(v) => {
            g.gpr[0] = v as u64;
            if v > 0 && matches!(number, 0 | 17) {
                super::alter_input(e, args[1], v as u64);
            }
            threads::progress(e, t);
        }
        Came::Done => {}
        Came::Wait(limit) => {
            let thread = t.serial;
            if threads::again(e, t, g, pc, number, limit) {
                // Perhaps it waited for a timer, which has ended now.
                g.gpr[0] = match late(e, t, number, args) {
                    Came::Value(v) => v as u64,
                    _ => 0,
                };
            } else if t.serial == thread && children::tell_of_end(e, t) {
                children::interrupt(e, g, pc, number);
            }
        }
    }
    super::next_turn(e, t, g);
}

/// The time is over that a call was to wait at most.
fn late(e: &mut Engine, t: &mut Thread, number: u64, args: &Args) -> Came {
    match number {
        nr::NANOSLEEP | nr::CLOCK_NANOSLEEP => Came::Value(0),
        _ => {
            let came = emulate(e, t, number, args);
            if let (Came::Wait(_), nr::SELECT | nr::PSELECT6) = (&came, number) {
                events::nothing_selected(args);
            }
            came
        }
    }
}

/// Calls that the engine carries out itself, whatever the log says.
fn own(e: &mut Engine, t: &mut Thread, g: &mut Gate, number: u64, args: &Args) -> Option<Came> {
    let plain = |outcome| match outcome {
        Outcome::Value(v) => Came::Value(v),
        Outcome::Again | Outcome::Done => Came::Done,
    };
    Some(match number {
        nr::MMAP | nr::BRK | nr::MREMAP | nr::MUNMAP | nr::MPROTECT | nr::MADVISE => {
            return own_memory(e, t, g, number, args);
        }
        nr::RT_SIGACTION | nr::RT_SIGPROCMASK | nr::SIGALTSTACK | nr::RT_SIGRETURN | nr::ARCH_PRCTL => {
            follow::met(e, t.serial, number, args);
            plain(Call { e, t, g, nr: number, args: *args, row: table::row(number) }.own_state())
        }
        nr::FUTEX => return futex_as_recorded(e, t, g, args),
        nr::CLONE if args[0] & CLONE_THREAD != 0 => match follow::may_call(e, t.serial, number, args) {
            true => Came::Value(threads::create(e, t, g, args)),
            false => Came::Wait(None),
        },
        nr::CLONE | nr::FORK | nr::VFORK => return fork_as_recorded(e, t, g, number, args),
        nr::EXIT if replay(e).threads.list().is_empty() => super::ended(e, TrialEnd::Exited(args[0] as u32 & 0xff)),
        nr::EXIT if !follow::may_call(e, t.serial, number, args) => Came::Wait(None),
        nr::EXIT => {
            // Robust mutexes that it holds say that their owner died.
            if let Some(call) = follow::met(e, t.serial, number, args) {
                call.apply();
            }
            threads::exit(e, t, g);
            Came::Done
        }
        nr::EXIT_GROUP if !follow::may_call(e, t.serial, number, args) => Came::Wait(None),
        nr::EXIT_GROUP => super::ended(e, TrialEnd::Exited(args[0] as u32 & 0xff)),
        nr::SCHED_YIELD => {
            follow::met(e, t.serial, number, args);
            g.gpr[0] = 0;
            if !schedule::is_on(e) {
                threads::give_way(e, t, g);
            }
            Came::Done
        }
        nr::SET_TID_ADDRESS => {
            follow::met(e, t.serial, number, args);
            t.clear_tid = args[0];
            Came::Value(t.tid as i64)
        }
        nr::SET_ROBUST_LIST => {
            follow::met(e, t.serial, number, args);
            Came::Value(0)
        }
        // rt_sigqueueinfo, rt_tgsigqueueinfo.
        nr::KILL | nr::TKILL | nr::TGKILL | 129 | 297 => signal_as_recorded(e, t, number, args),
        nr::EXECVE | nr::EXECVEAT => match follow::answer(e, t.serial, number, args) {
            Found::This(call) if call.answer == Answer::Value => Came::Value(call.record.result),
            _ => super::exec::execute(e, t, number, args),
        },
        nr::WAIT4 => return children::wait(e, t, args),
        _ if uses_descriptor(number) && trial(e).world.is_live(args[0]) => {
            follow::met(e, t.serial, number, args);
            emulate(e, t, number, args)
        }
        _ => return None,
    })
}

/// Does the call read, write or ask about the descriptor that is its first argument?
fn uses_descriptor(number: u64) -> bool {
    matches!(number, 0 | 1 | 5 | 8 | 16 | 17..=20 | 45 | nr::FCNTL | nr::FTRUNCATE)
}

fn is_mine(e: &Engine, t: &Thread, number: u64, target: u64) -> bool {
    target as u32 == e.pid || target as u32 == t.tid || number == nr::KILL && target == 0
}

/// Sends a signal to itself; anybody else has gone.
pub fn signal_now(e: &mut Engine, t: &mut Thread, number: u64, target: u64, signal: u64) -> i64 {
    if !is_mine(e, t, number, target) {
        return -err::ESRCH;
    }
    if signal == 0 || signal > 64 {
        return if signal == 0 { 0 } else { -err::EINVAL };
    }
    let mut info = crate::threads::SigInfo::default();
    info[0] = signal;
    info[1] = -6i32 as u32 as u64;
    info[2] = u64::from(e.pid);
    if t.mask & crate::signals::bit(signal as u32) != 0 {
        t.held = Some(info);
        return 0;
    }
    let action = e.actions.get(signal as u32).handler;
    let ignored = action == 1 || action == 0 && !crate::signals::actions::kills_by_default(signal as u32);
    if !ignored {
        t.info = info;
        t.synchronous = false;
        t.raise(pending::SIGNAL);
    }
    0
}

/// A mapped file: as it was recorded, private.
pub fn map_file(e: &mut Engine, t: &mut Thread, g: &mut Gate, args: &Args) -> i64 {
    let Some(real) = world::real(e, args[4]) else { return -err::EBADF };
    let mut with = *args;
    with[4] = real as u64;
    with[3] = args[3] & !3 | sys::MAP_PRIVATE;
    let outcome = Call { e, t, g, nr: nr::MMAP, args: with, row: table::row(nr::MMAP) }.own_memory();
    match outcome {
        Outcome::Value(v) => v,
        _ => -err::EINVAL,
    }
}

/// A call that neither the engine nor the log answers.
fn emulate(e: &mut Engine, t: &mut Thread, number: u64, args: &Args) -> Came {
    let [a, b, c, ..] = *args;
    let path = |at: u64| read_string(at).unwrap_or_default();
    Came::Value(match number {
        0 | 17 | 19 => return read(e, number, args),
        1 | 18 | 20 => return write(e, t, number, args),
        45 | 47 => return receive(e, number, args),
        44 | 46 => -32,
        42 => -111,
        41 => -err::EACCES,
        nr::OPEN => world::open(e, AT_FDCWD, &path(a), b),
        nr::CREAT => world::open(e, AT_FDCWD, &path(a), 0o1101),
        nr::OPENAT => world::open(e, a, &path(b), c),
        nr::CLOSE => trial(e).world.close(a),
        nr::CLOSE_RANGE => {
            trial(e).world.close_range(a, b);
            0
        }
        nr::DUP => trial(e).world.duplicate(a, None, 0),
        nr::DUP2 | nr::DUP3 => duplicate(e, number, args, Some(b as u32), 0),
        nr::FCNTL if matches!(b, 0 | 1030) => duplicate(e, number, args, None, c as u32),
        22 | 293 => world::pipe(e, a, if number == 22 { 0 } else { b }),
        nr::LSEEK => seek(e, args),
        76 => world::truncate(e, &path(a), b),
        // unlink, rmdir, unlinkat; rename, renameat, renameat2.
        84 | 87 => world::remove(e, &path(a)),
        263 => world::remove(e, &path(b)),
        82 => world::rename(e, &path(a), &path(b)),
        264 | 316 => world::rename(e, &path(b), &path(args[3])),
        // mkdir, link, symlink, chmod, chown and their like change names only: taken as done.
        83
        | 86
        | 88
        | 90..=94
        | 132
        | 133
        | 235
        | 258..=261
        | 265
        | 266
        | 268
        | 280
        | 74
        | 75
        | 73
        | 26
        | 149..=152
        | 221
        | 324
        | 28 => 0,
        // Only a signal ends it.
        nr::PAUSE => return Came::Wait(None),
        nr::POLL | nr::PPOLL => return events::poll(e, number, args),
        nr::SELECT | nr::PSELECT6 => return events::select(e, number, args),
        nr::RT_SIGSUSPEND => return children::suspend(t, a),
        // sendfile, splice, tee, copy_file_range: programs copy by themselves then.
        40 | 275 | 276 | 326 => -err::EINVAL,
        nr::NANOSLEEP | nr::CLOCK_NANOSLEEP => return sleep(number, args),
        _ => return events::call(e, number, args).unwrap_or_else(|| question(e, t, number, args)),
    })
}

/// Questions about names, descriptors, time and identity.
fn question(e: &mut Engine, t: &mut Thread, number: u64, args: &Args) -> Came {
    let [a, b, ..] = *args;
    let answer = match number {
        nr::CLOCK_GETTIME => {
            let now = clock_ns(e, a);
            put_time(b, now, 1)
        }
        nr::GETTIMEOFDAY => {
            let now = clock_ns(e, 0);
            put_time(a, now, 1000)
        }
        nr::TIME => (clock_ns(e, 0) / 1_000_000_000) as i64,
        nr::GETPID => e.pid as i64,
        nr::GETTID => t.tid as i64,
        nr::GETRANDOM => {
            let bytes: Vec<u8> = (0..b).map(|_| e.clock.random() as u8).collect();
            sys::write_guest(a, &bytes) as i64
        }
        // alarm, setitimer, getitimer, timer_*: no signal comes of them here.
        36..=38 | 222..=226 => 0,
        nr::RSEQ | nr::CLONE3 => -err::ENOSYS,
        nr::PRCTL => -err::EINVAL,
        80 => pass(number, args),
        // Names: stat, lstat, access, readlink, newfstatat, readlinkat, faccessat, statx, faccessat2.
        nr::STAT | nr::LSTAT | nr::ACCESS | nr::READLINK => named(e, number, args, AT_FDCWD, 0),
        nr::NEWFSTATAT | nr::READLINKAT | nr::FACCESSAT | nr::STATX | nr::FACCESSAT2 => named(e, number, args, a, 1),
        // statfs, getcwd, uname, identity, limits, affinity, usage.
        137
        | 79
        | 63
        | 95..=100
        | 102
        | 104
        | 107
        | 108
        | 110
        | 111
        | 115
        | 118
        | 120
        | 121
        | 124
        | 140
        | 143
        | 145
        | 204
        | 229
        | 309 => pass(number, args),
        nr::PRLIMIT64 if args[2] == 0 => pass(number, args),
        // Descriptors: fstat, ioctl, fcntl, fsync, fdatasync, ftruncate, getdents64, fadvise64, fstatfs, flock, fallocate.
        nr::FSTAT | nr::IOCTL | nr::FCNTL | nr::FTRUNCATE | nr::GETDENTS64 | 138 | 221 | 285 => {
            return on_descriptor(e, number, args);
        }
        _ => return remembered(e, number, args),
    };
    Came::Value(answer)
}

/// A call of this process's own with the guest's arguments; only those that change nothing come here.
pub fn pass(number: u64, args: &Args) -> i64 {
    // SAFETY: a question; what it writes goes where the guest says, as the kernel checks.
    unsafe { sys::raw(number, *args) }
}

fn named(e: &mut Engine, number: u64, args: &Args, dir: u64, at: usize) -> i64 {
    let path = read_string(args[at]).unwrap_or_default();
    let mut with = *args;
    if path.is_empty() && at == 1 {
        // The descriptor itself is meant.
        return match world::real(e, dir) {
            Some(real) => {
                with[0] = real as u64;
                pass(number, &with)
            }
            None if trial(e).world.backing(dir).is_none() => -err::EBADF,
            None => match follow::memory_of(e, number, args) {
                Some(record) => record.result,
                None => stat_as_pipe(number, args),
            },
        };
    }
    match world::overlaid(e, &path) {
        Some(None) => -err::ENOENT,
        Some(Some(file)) => {
            let link = alloc::format!("/proc/self/fd/{file}\0");
            with[at] = link.as_ptr() as u64;
            if at == 1 {
                with[0] = AT_FDCWD;
            }
            let number = if number == nr::LSTAT { nr::STAT } else { number };
            pass(number, &with)
        }
        None => {
            if at == 1 && dir as i32 != AT_FDCWD as i32 && !path.starts_with(b"/") {
                match world::real(e, dir) {
                    Some(real) => with[0] = real as u64,
                    None => return -err::EBADF,
                }
            }
            pass(number, &with)
        }
    }
}

/// `dup` and its like.
fn duplicate(e: &mut Engine, number: u64, args: &Args, to: Option<u32>, from: u32) -> i64 {
    let w = &mut trial(e).world;
    let fd = w.duplicate(args[0], to, from);
    if fd >= 0 {
        w.set_cloexec(fd as u64, asks_cloexec(number, args));
    }
    fd
}

/// `fcntl` of flags, which are the guest's and not those of the descriptor behind.
fn flags(e: &mut Engine, [fd, command, value, ..]: Args) -> i64 {
    let real = world::real(e, fd);
    let w = &mut trial(e).world;
    match command {
        F_GETFD => w.cloexec.contains(&(fd as u32)) as i64,
        F_SETFD => {
            w.set_cloexec(fd, value & 1 != 0);
            0
        }
        F_GETFL => {
            let open = real.map_or(2, |real| pass(nr::FCNTL, &[real as u64, F_GETFL, 0, 0, 0, 0]));
            let waits = if w.is_nonblocking(fd) { O_NONBLOCK as i64 } else { 0 };
            open & !(O_NONBLOCK as i64) | waits
        }
        _ => {
            w.set_nonblocking(fd, value & O_NONBLOCK != 0);
            0
        }
    }
}

const F_GETFD: u64 = 1;
const F_SETFD: u64 = 2;
const F_GETFL: u64 = 3;
const F_SETFL: u64 = 4;
const F_GETLK: u64 = 5;
const F_SETLK: u64 = 6;
const F_SETLKW: u64 = 7;
const F_OFD_GETLK: u64 = 36;
const F_OFD_SETLK: u64 = 37;
const F_OFD_SETLKW: u64 = 38;
const F_UNLCK: u32 = 2;
const FIONBIO: u64 = 0x5421;

fn on_descriptor(e: &mut Engine, number: u64, args: &Args) -> Came {
    if trial(e).world.backing(args[0]).is_none() {
        return Came::Value(-err::EBADF);
    }
    match (number, args[1]) {
        (nr::FCNTL, F_GETFD..=F_SETFL) => return Came::Value(flags(e, *args)),
        // Locks, of which nobody else is to know.
        (nr::FCNTL, F_SETLK | F_SETLKW | F_OFD_SETLK | F_OFD_SETLKW) => return Came::Value(0),
        (nr::FCNTL, F_GETLK | F_OFD_GETLK) => {
            // struct flock begins with two short numbers; the first says that nobody holds it.
            let whence = sys::read_u32(args[2]).unwrap_or(0) & 0xffff_0000;
            return Came::Value(if sys::write_u32(args[2], whence | F_UNLCK) { 0 } else { -err::EFAULT });
        }
        (nr::IOCTL, FIONBIO) => {
            let on = sys::read_u32(args[2]).is_some_and(|v| v != 0);
            trial(e).world.set_nonblocking(args[0], on);
            return Came::Value(0);
        }
        _ => {}
    }
    if let Some(real) = world::real(e, args[0]) {
        let mut with = *args;
        with[0] = real as u64;
        return Came::Value(pass(number, &with));
    }
    match follow::memory_of(e, number, args) {
        Some(record) => Came::Value(record.result),
        None if number == nr::IOCTL => Came::Value(-25),
        None if number == nr::FSTAT => Came::Value(stat_as_pipe(number, args)),
        None => Came::Value(-err::EINVAL),
    }
}

/// A descriptor of which nobody can tell more is a pipe.
fn stat_as_pipe(number: u64, args: &Args) -> i64 {
    const PIPE: u64 = 0o010600;
    const BLOCK: u64 = 4096;
    let (at, words) = match number {
        // struct statx { mask, blksize, attributes, nlink, uid, gid, mode, … }: the basic fields are there.
        nr::STATX => (args[4], [0x7ff | BLOCK << 32, 0, 1, PIPE << 32, 0, 0, 0, 0]),
        // struct stat { dev, ino, nlink, mode, uid, gid, rdev, size, blksize, … }
        nr::FSTAT => (args[1], [0, 0, 1, PIPE, 0, 0, 0, BLOCK]),
        nr::NEWFSTATAT => (args[2], [0, 0, 1, PIPE, 0, 0, 0, BLOCK]),
        _ => return -err::EINVAL,
    };
    let mut bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    bytes.resize(if number == nr::STATX { 256 } else { 144 }, 0);
    if sys::write_guest(at, &bytes) == bytes.len() { 0 } else { -err::EFAULT }
}

/// What the recorded guest was answered to the same question.
fn remembered(e: &mut Engine, number: u64, args: &Args) -> Came {
    match follow::memory_of(e, number, args) {
        Some(record) => Came::Value(record.result),
        // getsockname, getpeername, setsockopt, getsockopt: new programs ask so what their descriptors are.
        None if matches!(number, 51 | 52 | 54 | 55) => Came::Value(-ENOTSOCK),
        None => {
            let name = table::row(number).map_or("an unknown call", |r| r.name);
            lost(e, alloc::format!("it calls {name} with {args:x?}, which the recording does not answer"))
        }
    }
}

pub fn seek(e: &mut Engine, args: &Args) -> i64 {
    match world::real(e, args[0]) {
        Some(real) => pass(nr::LSEEK, &[real as u64, args[1], args[2], 0, 0, 0]),
        None if trial(e).world.backing(args[0]).is_some() => -29,
        None => -err::EBADF,
    }
}

/// Buffers of a call that reads or writes one or several.
pub fn buffers(number: u64, args: &Args) -> Vec<(u64, u64)> {
    if !matches!(number, 19 | 20 | 296 | 328) {
        return alloc::vec![(args[1], args[2])];
    }
    let count = args[2].min(1024);
    (0..count).filter_map(|n| Some((sys::read_u64(args[1] + n * 16)?, sys::read_u64(args[1] + n * 16 + 8)?))).collect()
}

fn read(e: &mut Engine, number: u64, args: &Args) -> Came {
    if let Some(real) = world::real(e, args[0]) {
        let mut with = *args;
        with[0] = real as u64;
        return match pass(number, &with) {
            n if n == -err::EAGAIN && !trial(e).world.is_nonblocking(args[0]) => Came::Wait(None),
            n => Came::Value(n),
        };
    }
    if let Some(Backing::Timer(timer)) = trial(e).world.backing(args[0]) {
        let timer = *timer;
        return events::read_timer(e, args[0], args[1], timer);
    }
    let mut total = 0;
    for (at, len) in buffers(number, args) {
        let Some(bytes) = world::take(e, args[0], len.min(1 << 24) as usize) else {
            return Came::Value(-err::EBADF);
        };
        sys::write_guest(at, &bytes);
        total += bytes.len() as i64;
        if (bytes.len() as u64) < len {
            break;
        }
    }
    Came::Value(total)
}

fn receive(e: &mut Engine, number: u64, args: &Args) -> Came {
    if number != 45 {
        return remembered(e, number, args);
    }
    read(e, 0, args)
}

pub fn write(e: &mut Engine, t: &mut Thread, number: u64, args: &Args) -> Came {
    const SIGPIPE: u64 = 13;
    const EPIPE: i64 = 32;
    let stream = match trial(e).world.backing(args[0]) {
        Some(Backing::Out(n)) => Some(*n),
        Some(Backing::Stream { .. }) => {
            let is_socket = |o: &Object| o.kind == DescriptorKind::Socket;
            if !replay(e).descriptors.object(args[0]).is_some_and(is_socket) {
                let fd = args[0];
                lost(e, alloc::format!("it writes to descriptor {fd}, which a recorded process read other bytes from"));
            }
            // Whoever was at the other end has gone.
            signal_now(e, t, nr::TKILL, t.tid as u64, SIGPIPE);
            return Came::Value(-EPIPE);
        }
        Some(_) => None,
        None => return Came::Value(-err::EBADF),
    };
    if let Some(stream) = stream {
        return Came::Value(put_out(e, stream, number, args, u64::MAX));
    }
    let Some(real) = world::real(e, args[0]) else { return Came::Value(-err::EBADF) };
    let mut with = *args;
    with[0] = real as u64;
    match pass(number, &with) {
        n if n == -err::EAGAIN && !trial(e).world.is_nonblocking(args[0]) => Came::Wait(None),
        n if n == -EPIPE => {
            signal_now(e, t, nr::TKILL, t.tid as u64, SIGPIPE);
            Came::Value(n)
        }
        n => Came::Value(n),
    }
}

fn sleep(number: u64, args: &Args) -> Came {
    let at = if number == nr::NANOSLEEP { args[0] } else { args[2] };
    let Some(given) = threads::timespec(at) else { return Came::Value(-err::EFAULT) };
    // A point in time is taken for one that comes soon.
    let absolute = number == nr::CLOCK_NANOSLEEP && args[1] & 1 != 0;
    Came::Wait(Some(if absolute { 1_000_000 } else { given }))
}

/// A clock, in nanoseconds: what it was at the start, and what has passed since.
pub fn clock_ns(e: &mut Engine, clock: u64) -> u64 {
    let start = replay(e).source().start.clocks;
    let base = match clock {
        0 | 5 | 8 | 11 => start[0],
        2 | 3 => 0,
        _ => start[1],
    };
    base + super::now_ns(e)
}

fn put_time(at: u64, ns: u64, divisor: u64) -> i64 {
    let ok = sys::write_u64(at, ns / 1_000_000_000) && sys::write_u64(at + 8, ns % 1_000_000_000 / divisor);
    if ok { 0 } else { -err::EFAULT }
}
