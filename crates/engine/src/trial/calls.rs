//! System calls of a trial.

use super::follow::{self, Found};
use super::recorded::{fork_as_recorded, futex_as_recorded, own_memory, put_out, recorded, signal_as_recorded};
use super::world::{self, Backing};
use super::{lost, schedule, threads, trial};
use crate::gate::Gate;
use crate::replay::replay;
use crate::state::Engine;
use crate::sys::{self, err, nr};
use crate::syscalls::process::{CLONE_THREAD, read_string};
use crate::syscalls::table::{self, Args};
use crate::syscalls::{Call, Outcome};
use crate::threads::{Thread, pending};
use alloc::vec::Vec;
use model::log::Answer;
use model::serve::TrialEnd;

const AT_FDCWD: u64 = -100i64 as u64;
/// Processes that a trial may start.
const MOST_FORKS: u32 = 24;

/// Calls that wait for a signal or a client, and for nothing of the trial's own: pause, accept, accept4.
pub const FROM_OUTSIDE: [u64; 3] = [nr::PAUSE, 43, 288];

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
    super::look_for_host(e);
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
            if threads::again(e, t, g, pc, number, limit) {
                g.gpr[0] = 0;
            }
        }
    }
    super::next_turn(e, t, g);
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
            _ => {
                let path = read_string(args[if number == nr::EXECVE { 0 } else { 1 }]).unwrap_or_default();
                let name = alloc::string::String::from_utf8_lossy(&path).into_owned();
                lost(e, alloc::format!("it wants to execute {name}"))
            }
        },
        _ => return None,
    })
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

/// A child of the trial's own.
pub fn fork(e: &mut Engine, t: &mut Thread, g: &mut Gate, number: u64, args: &Args) -> i64 {
    let w = &mut trial(e).world;
    w.forks += 1;
    if w.forks > MOST_FORKS || w.is_child && w.forks > 4 {
        return -err::EAGAIN;
    }
    let pid = 4_000_000 + w.forks;
    // Its end must be seen by its parent.
    crate::signals::actions::tell_kernel(17, crate::signals::actions::SIG_DFL, 0);
    // SAFETY: asks for our id.
    let parent = unsafe { sys::raw3(nr::GETPID, 0, 0, 0) };
    // SAFETY: a copy of this process with its one task (SIGCHLD, 17).
    let r = unsafe { sys::raw(nr::CLONE, [17, 0, 0, 0, 0, 0]) };
    if r > 0 {
        trial(e).world.add_child(pid, r);
        return pid as i64;
    }
    if r < 0 {
        return r;
    }
    // Nobody needs it when the trial is over (PR_SET_PDEATHSIG, SIGKILL).
    // SAFETY: asks to be killed when the parent ends, and whether it has ended already (getppid, 110).
    let now = unsafe {
        sys::raw3(nr::PRCTL, 1, 9, 0);
        sys::raw3(110, 0, 0, 0)
    };
    if now != parent {
        sys::exit_group(0);
    }
    crate::replay::memory::part_from_parent(e);
    // Who watches a trial watches its first process.
    e.leave_parents_trace();
    e.switch_mode(model::Mode::Tick);
    e.looks.clear();
    replay(e).threads.clear();
    e.pid = pid;
    t.tid = pid;
    // The host stays with the parent.
    replay(e).release();
    e.place_sites();
    let w = &mut trial(e).world;
    w.is_child = true;
    let [flags, stack, _, ctid, tls, _] = if number == nr::CLONE { *args } else { [0; 6] };
    if flags & crate::syscalls::process::CLONE_CHILD_SETTID != 0 {
        sys::write_u32(ctid, pid);
    }
    if stack != 0 {
        g.gpr[4] = stack;
    }
    if flags & crate::syscalls::process::CLONE_SETTLS != 0 && tls != 0 {
        crate::gate::set_fs_base(tls);
    }
    0
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
        nr::DUP2 | nr::DUP3 => trial(e).world.duplicate(a, Some(b as u32), 0),
        nr::FCNTL if matches!(b, 0 | 1030) => trial(e).world.duplicate(a, None, c as u32),
        22 | 293 => world::pipe(e, a),
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
        // bind, listen, setsockopt: a name or a setting of a socket, which nobody else sees.
        49 | 50 | 54 if trial(e).world.backing(a).is_some() => {
            follow::memory_of(e, number, args).map_or(0, |record| record.result)
        }
        // accept, accept4: no client comes.
        43 | 288 if trial(e).world.backing(a).is_some() => return Came::Wait(None),
        // Only a signal ends it.
        nr::PAUSE => return Came::Wait(None),
        nr::WAIT4 => return wait_for_child(e, args),
        nr::POLL | nr::PPOLL => return poll(e, number, args),
        nr::NANOSLEEP | nr::CLOCK_NANOSLEEP => return sleep(number, args),
        _ => return question(e, t, number, args),
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
        nr::PRCTL | nr::RSEQ | nr::CLONE3 => -err::EINVAL,
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
            None => follow::memory_of(e, number, args).map_or(-err::EBADF, |r| r.result),
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

fn on_descriptor(e: &mut Engine, number: u64, args: &Args) -> Came {
    if let Some(real) = world::real(e, args[0]) {
        let mut with = *args;
        with[0] = real as u64;
        return Came::Value(pass(number, &with));
    }
    let known = trial(e).world.backing(args[0]).is_some();
    if !known {
        return Came::Value(-err::EBADF);
    }
    match number {
        // F_GETFD, F_SETFD, F_GETFL, F_SETFL.
        nr::FCNTL if matches!(args[1], 1..=4) => Came::Value(if args[1] == 3 { 2 } else { 0 }),
        _ => match follow::memory_of(e, number, args) {
            Some(record) => Came::Value(record.result),
            None if number == nr::IOCTL => Came::Value(-25),
            None if number == nr::FSTAT => {
                // A pipe, as far as anybody can tell.
                let mut stat = [0u64; 18];
                stat[3] = 0o010600;
                let bytes: Vec<u8> = stat.iter().flat_map(|w| w.to_le_bytes()).collect();
                sys::write_guest(args[1], &bytes);
                Came::Value(0)
            }
            None => Came::Value(-err::EINVAL),
        },
    }
}

/// What the recorded guest was answered to the same question.
fn remembered(e: &mut Engine, number: u64, args: &Args) -> Came {
    match follow::memory_of(e, number, args) {
        Some(record) => Came::Value(record.result),
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
            n if n == -err::EAGAIN => Came::Wait(None),
            n => Came::Value(n),
        };
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
    let stream = match trial(e).world.backing(args[0]) {
        Some(Backing::Out(n)) => Some(*n),
        Some(Backing::Stream { .. }) => {
            // Whoever was at the other end has gone.
            signal_now(e, t, nr::TKILL, t.tid as u64, SIGPIPE);
            return Came::Value(-32);
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
        n if n == -err::EAGAIN => Came::Wait(None),
        n => Came::Value(n),
    }
}

fn wait_for_child(e: &mut Engine, args: &Args) -> Came {
    const WNOHANG: u64 = 1;
    let [pid, status, options, ..] = *args;
    if !world::has_children(e) {
        return Came::Value(-10);
    }
    let target = match pid as i32 {
        -1 | 0 => -1i64,
        n => match trial(e).world.child(n as u32) {
            Some(real) => real,
            None => return Came::Value(-10),
        },
    };
    let mut word = 0u32;
    // SAFETY: asks for a child of ours; the kernel writes one number.
    let r = unsafe { sys::raw(nr::WAIT4, [target as u64, &raw mut word as u64, WNOHANG, 0, 0, 0]) };
    match r {
        0 if options & WNOHANG != 0 => Came::Value(0),
        0 => Came::Wait(None),
        1.. => {
            if status != 0 {
                sys::write_u32(status, word);
            }
            let guest = trial(e).world.child_by_real(r).unwrap_or(0);
            trial(e).world.forget_child(r);
            Came::Value(guest as i64)
        }
        other => Came::Value(other),
    }
}

fn sleep(number: u64, args: &Args) -> Came {
    let at = if number == nr::NANOSLEEP { args[0] } else { args[2] };
    let Some(given) = threads::timespec(at) else { return Came::Value(-err::EFAULT) };
    // A point in time is taken for one that comes soon.
    let absolute = number == nr::CLOCK_NANOSLEEP && args[1] & 1 != 0;
    Came::Wait(Some(if absolute { 1_000_000 } else { given }))
}

fn poll(e: &mut Engine, number: u64, args: &Args) -> Came {
    let [at, count, limit, ..] = *args;
    let mut ready = 0;
    for n in 0..count.min(4096) {
        let place = at + n * 8;
        let (Some(fd), Some(events)) = (sys::read_u32(place), sys::read_u32(place + 4)) else {
            return Came::Value(-err::EFAULT);
        };
        let wanted = events & 0xffff;
        let found = if (fd as i32) < 0 { 0 } else { readiness(e, fd as u64, wanted) };
        sys::write_u32(place + 4, wanted | found << 16);
        ready += (found != 0) as i64;
    }
    if ready > 0 {
        return Came::Value(ready);
    }
    Came::Wait(match number {
        nr::POLL if (limit as i32) < 0 => None,
        nr::POLL => Some(limit as u32 as u64 * 1_000_000),
        _ => (limit != 0).then(|| threads::timespec(limit)).flatten(),
    })
}

/// Which of the wanted events a descriptor has.
fn readiness(e: &mut Engine, fd: u64, wanted: u32) -> u32 {
    const POLLNVAL: u32 = 32;
    match trial(e).world.backing(fd) {
        None => POLLNVAL,
        Some(Backing::Real(real)) => {
            let mut poll = [*real as u32, wanted];
            // SAFETY: struct pollfd { fd, events, revents }: the kernel writes its last two bytes.
            unsafe { sys::raw3(nr::POLL, poll.as_mut_ptr() as u64, 1, 0) };
            poll[1] >> 16
        }
        Some(_) => wanted & 5,
    }
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
