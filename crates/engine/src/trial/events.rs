//! Waiting for descriptors in a trial: `poll`, `select`, `epoll`, and the timers and counters that are waited for.
//!
//! A counter (`eventfd`) is a real one. A timer follows the trial's own time, which goes on to its end when nobody can run.
//! An epoll instance is a list here; before the trial it is kept up from the recorded calls
//! ([`crate::replay::descriptors`]). A stream is ready as long as bytes are known that were not read, or that it ended.
//!
//! May miss: an edge-triggered descriptor is told again only after it was not ready in between; an epoll instance in an
//! epoll instance is never ready.

use super::calls::Came;
use super::world::{self, Backing};
use super::{children, lost, now_ns, threads, trial};
use crate::replay::descriptors::{Interest, O_NONBLOCK, Timer, asks_cloexec, flags_asked};
use crate::state::Engine;
use crate::sys::{self, err, nr};
use crate::syscalls::table::Args;
use alloc::vec::Vec;

const IN: u32 = 1;
const OUT: u32 = 4;
const HUP: u32 = 16;
const NVAL: u32 = 32;
const RDHUP: u32 = 0x2000;
const ONE_SHOT: u32 = 1 << 30;
const EDGE: u32 = 1 << 31;
/// What `poll` and `epoll` tell of; the rest of the bits of `epoll` say how.
const EVENTS: u32 = 0xffff;
const EVENTFD2: u64 = 290;
const ABSOLUTE: u64 = 1;

/// What came of a look at several descriptors.
#[derive(Default)]
struct Looked {
    ready: i64,
    /// When the next timer among them ends.
    timer: Option<u64>,
    /// One of them is a stream that has given all that is known of it.
    exhausted: Option<u64>,
}

impl Looked {
    /// Those that wait for these descriptors go on waiting, at most so long.
    fn wait(self, e: &mut Engine, limit: Option<u64>) -> Came {
        let now = now_ns(e);
        let timer = self.timer.map(|at| at.saturating_sub(now));
        if let (Some(fd), None, None, false) = (self.exhausted, limit, timer, children::has_children(e)) {
            lost(e, alloc::format!("it waits for descriptor {fd}, and nobody knows whether more would have come"));
        }
        Came::Wait(match (limit, timer) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        })
    }
}

/// Which of the wanted events the entry has.
fn look(e: &mut Engine, looked: &mut Looked, fd: u64, wanted: u32) -> u32 {
    let now = now_ns(e);
    match trial(e).world.backing(fd).cloned() {
        None => NVAL,
        Some(Backing::Real(real) | Backing::Live(real)) => {
            let mut poll = [real as u32, wanted & EVENTS];
            // SAFETY: struct pollfd { fd, events, revents }: the kernel writes its last two bytes.
            unsafe { sys::raw3(nr::POLL, poll.as_mut_ptr() as u64, 1, 0) };
            poll[1] >> 16
        }
        Some(Backing::Stream { .. }) => {
            let more = match world::rest_of_stream(e, fd) {
                Some((bytes, false)) if bytes.is_empty() => {
                    looked.exhausted = looked.exhausted.or(Some(fd));
                    0
                }
                Some((bytes, true)) if bytes.is_empty() => IN | RDHUP | HUP,
                _ => IN,
            };
            wanted & (more | OUT) | more & HUP
        }
        Some(Backing::Timer(Timer { deadline, .. })) => match deadline {
            Some(at) if at <= now => wanted & IN,
            Some(at) => {
                looked.timer = Some(looked.timer.map_or(at, |t| t.min(at)));
                0
            }
            None => 0,
        },
        Some(Backing::Epoll(_)) => 0,
        Some(Backing::Out(_)) => wanted & OUT,
        Some(Backing::Kept { .. } | Backing::Unknown) => wanted & (IN | OUT),
    }
}

/// `poll` and `ppoll`.
pub fn poll(e: &mut Engine, number: u64, args: &Args) -> Came {
    let [at, count, limit, ..] = *args;
    let mut looked = Looked::default();
    for n in 0..count.min(4096) {
        let place = at + n * 8;
        let (Some(fd), Some(events)) = (sys::read_u32(place), sys::read_u32(place + 4)) else {
            return Came::Value(-err::EFAULT);
        };
        let wanted = events & EVENTS;
        let found = if (fd as i32) < 0 { 0 } else { look(e, &mut looked, fd as u64, wanted) };
        sys::write_u32(place + 4, wanted | found << 16);
        looked.ready += (found != 0) as i64;
    }
    if looked.ready > 0 {
        return Came::Value(looked.ready);
    }
    let limit = match number {
        nr::POLL => milliseconds(limit),
        _ => (limit != 0).then(|| threads::timespec(limit)).flatten(),
    };
    looked.wait(e, limit)
}

fn milliseconds(limit: u64) -> Option<u64> {
    ((limit as i32) >= 0).then_some(u64::from(limit as u32) * 1_000_000)
}

/// `select` and `pselect6`.
pub fn select(e: &mut Engine, number: u64, args: &Args) -> Came {
    let [count, read, write, other, limit, _] = *args;
    let count = count.min(1024);
    let words = count.div_ceil(64);
    let sets = [(read, IN), (write, OUT), (other, 2)];
    let mut looked = Looked::default();
    let mut found = [[0u64; 16]; 3];
    for fd in 0..count {
        for ((at, wanted), found) in sets.iter().zip(&mut found) {
            let asked = *at != 0 && sys::read_u64(at + fd / 64 * 8).is_some_and(|word| word >> (fd % 64) & 1 != 0);
            if !asked {
                continue;
            }
            match look(e, &mut looked, fd, *wanted) {
                NVAL => return Came::Value(-err::EBADF),
                // The other end being gone lets a read come back.
                events if events & wanted != 0 || *wanted == IN && events & HUP != 0 => {
                    found[fd as usize / 64] |= 1 << (fd % 64);
                    looked.ready += 1;
                }
                _ => {}
            }
        }
    }
    let limit = match (number, limit) {
        (_, 0) => None,
        (nr::SELECT, at) => threads::timespec(at).map(|_| {
            let word = |k: u64| sys::read_u64(at + k).unwrap_or(0);
            word(0).saturating_mul(1_000_000_000).saturating_add(word(8).saturating_mul(1000))
        }),
        (_, at) => threads::timespec(at),
    };
    if looked.ready == 0 && limit != Some(0) {
        // The sets stay as they are until something is ready: the call is made again.
        return looked.wait(e, limit);
    }
    for ((at, _), found) in sets.iter().zip(&found) {
        for n in 0..if *at == 0 { 0 } else { words } {
            sys::write_u64(at + n * 8, found[n as usize]);
        }
    }
    Came::Value(looked.ready)
}

/// The time of a `select` is over with nothing ready: its sets are empty.
pub fn nothing_selected(args: &Args) {
    for at in &args[1..4] {
        for n in 0..if *at == 0 { 0 } else { args[0].min(1024).div_ceil(64) } {
            sys::write_u64(at + n * 8, 0);
        }
    }
}

/// Calls that make or use counters, timers and epoll instances; `None` for others.
pub fn call(e: &mut Engine, number: u64, args: &Args) -> Option<Came> {
    let value = match number {
        213 | 291 => add(e, number, args, Backing::Epoll(Vec::new())),
        283 => add(e, number, args, Backing::Timer(Timer::default())),
        284 | EVENTFD2 => match counter(args[0], if number == EVENTFD2 { args[1] & 1 } else { 0 }) {
            Ok(backing) => add(e, number, args, backing),
            Err(errno) => errno,
        },
        233 => control(e, args),
        286 => set_timer(e, args),
        287 => tell_timer(e, args[0], args[1]),
        nr::EPOLL_WAIT | nr::EPOLL_PWAIT | nr::EPOLL_PWAIT2 => return Some(epoll_wait(e, number, args)),
        _ => return None,
    };
    Some(Came::Value(value))
}

fn add(e: &mut Engine, number: u64, args: &Args, backing: Backing) -> i64 {
    let w = &mut trial(e).world;
    let fd = w.add(backing);
    w.set_cloexec(fd as u64, asks_cloexec(number, args));
    w.set_nonblocking(fd as u64, flags_asked(number, args) & O_NONBLOCK != 0);
    fd
}

/// What a recorded call that makes a descriptor of these kinds has made.
pub fn made(number: u64, args: &Args) -> Backing {
    match number {
        213 | 291 => Backing::Epoll(Vec::new()),
        283 => Backing::Timer(Timer::default()),
        284 | EVENTFD2 => {
            let semaphore = if number == EVENTFD2 { args[1] & 1 } else { 0 };
            counter(args[0], semaphore).unwrap_or(Backing::Unknown)
        }
        // signalfd: what is read from it was recorded.
        282 | 289 => Backing::Stream { bytes: None, at: 0 },
        _ => Backing::Unknown,
    }
}

/// A real counter.
pub fn counter(value: u64, semaphore: u64) -> Result<Backing, i64> {
    const FLAGS: u64 = O_NONBLOCK | 0o2_000_000;
    // SAFETY: a descriptor of our own.
    let fd = unsafe { sys::raw3(EVENTFD2, value, FLAGS | semaphore, 0) };
    if sys::is_err(fd) { Err(fd) } else { Ok(Backing::Live(fd)) }
}

/// `epoll_ctl`.
pub fn control(e: &mut Engine, args: &Args) -> i64 {
    let [ep, op, fd, event, ..] = *args;
    let w = &mut trial(e).world;
    if !w.fds.contains_key(&(fd as u32)) {
        return -err::EBADF;
    }
    match w.backing_mut(ep) {
        Some(Backing::Epoll(list)) => Interest::control(list, op, fd as u32, event),
        Some(_) => -err::EINVAL,
        None => -err::EBADF,
    }
}

fn epoll_wait(e: &mut Engine, number: u64, args: &Args) -> Came {
    let [ep, at, most, limit, ..] = *args;
    let Some(Backing::Epoll(mut list)) = trial(e).world.backing(ep).cloned() else {
        return match trial(e).world.backing(ep) {
            Some(Backing::Unknown) => lost(e, alloc::format!("it waits for descriptor {ep}, which is not known")),
            Some(_) => Came::Value(-err::EINVAL),
            None => Came::Value(-err::EBADF),
        };
    };
    let mut looked = Looked::default();
    list.retain(|i| trial(e).world.backing(u64::from(i.fd)).is_some());
    for i in list.iter_mut().filter(|i| i.events & !(ONE_SHOT | EDGE) != 0) {
        if looked.ready >= most as i32 as i64 {
            break;
        }
        let found = look(e, &mut looked, u64::from(i.fd), i.events);
        let new = if i.events & EDGE != 0 { found & !i.told } else { found };
        i.told = found;
        if new != 0 {
            let place = at + looked.ready as u64 * 12;
            sys::write_u32(place, found);
            sys::write_u64(place + 4, i.data);
            looked.ready += 1;
            if i.events & ONE_SHOT != 0 {
                i.events = ONE_SHOT;
            }
        }
    }
    world::replace(e, ep, Backing::Epoll(list));
    if looked.ready > 0 {
        return Came::Value(looked.ready);
    }
    let limit = match number {
        nr::EPOLL_PWAIT2 => (limit != 0).then(|| threads::timespec(limit)).flatten(),
        _ => milliseconds(limit),
    };
    looked.wait(e, limit)
}

/// `timerfd_settime`.
pub fn set_timer(e: &mut Engine, args: &Args) -> i64 {
    let [fd, flags, new, old, ..] = *args;
    if !matches!(trial(e).world.backing(fd), Some(Backing::Timer(_))) {
        return if trial(e).world.backing(fd).is_some() { -err::EINVAL } else { -err::EBADF };
    }
    let (Some(interval), Some(value)) = (threads::timespec(new), threads::timespec(new + 16)) else {
        return -err::EFAULT;
    };
    if old != 0 {
        tell_timer(e, fd, old);
    }
    let now = now_ns(e);
    let from = if flags & ABSOLUTE != 0 { now.saturating_sub(super::calls::clock_ns(e, 1)) } else { now };
    let deadline = (value != 0).then(|| from.saturating_add(value));
    world::replace(e, fd, Backing::Timer(Timer { deadline, interval }));
    0
}

fn tell_timer(e: &mut Engine, fd: u64, at: u64) -> i64 {
    let now = now_ns(e);
    let Some(Backing::Timer(timer)) = trial(e).world.backing(fd) else { return -err::EINVAL };
    let left = timer.deadline.map_or(0, |d| d.saturating_sub(now).max(1));
    let words = [timer.interval, left].map(|ns| [ns / 1_000_000_000, ns % 1_000_000_000]);
    let bytes: Vec<u8> = words.as_flattened().iter().flat_map(|w| w.to_le_bytes()).collect();
    if sys::write_guest(at, &bytes) == bytes.len() { 0 } else { -err::EFAULT }
}

/// `read` of a timer.
pub fn read_timer(e: &mut Engine, fd: u64, at: u64, timer: Timer) -> Came {
    let now = now_ns(e);
    match timer.deadline {
        Some(deadline) if deadline <= now => {
            let more = (now - deadline).checked_div(timer.interval);
            let times = 1 + more.unwrap_or(0);
            world::replace(e, fd, Backing::Timer(timer.after(times)));
            if sys::write_u64(at, times) { Came::Value(8) } else { Came::Value(-err::EFAULT) }
        }
        _ if trial(e).world.is_nonblocking(fd) => Came::Value(-err::EAGAIN),
        deadline => Came::Wait(deadline.map(|d| d - now)),
    }
}
