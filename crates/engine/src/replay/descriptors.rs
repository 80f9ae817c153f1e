//! The guest's descriptors in a replay: a table without files behind it, kept up by what the recorded calls answered.
//!
//! It tells which descriptor leads to the standard streams, and is what a trial's world starts from.
//! May miss: descriptors that came in a message (they count as unknown), and positions that another process moved.

use crate::sys::err;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use model::log::{CallRecord, DescriptorKind, DescriptorRecord, RestRecord};

/// What one or more descriptors lead to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    pub kind: DescriptorKind,
    /// The standard stream that it is, if it is one.
    pub stream: Option<u8>,
    pub flags: u32,
    pub position: u64,
    pub identity: [u64; 2],
    /// The kept file; 0 if none.
    pub file: u32,
    pub path: Vec<u8>,
    /// It was emptied or made when it was opened.
    pub emptied: bool,
}

/// What is waited for with an epoll instance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interest {
    pub fd: u32,
    pub events: u32,
    pub data: u64,
    /// Events that the guest was last told of.
    pub told: u32,
}

impl Interest {
    /// `epoll_ctl` on a list.
    pub fn control(list: &mut Vec<Interest>, op: u64, fd: u32, event: u64) -> i64 {
        const ADD: u64 = 1;
        const REMOVE: u64 = 2;
        const CHANGE: u64 = 3;
        let known = list.iter().position(|i| i.fd == fd);
        let wanted = || {
            let (events, data) = (crate::sys::read_u32(event)?, crate::sys::read_u64(event + 4)?);
            Some(Interest { fd, events, data, told: 0 })
        };
        match (op, known) {
            (ADD, Some(_)) => return -err::EEXIST,
            (REMOVE | CHANGE, None) => return -err::ENOENT,
            (REMOVE, Some(n)) => drop(list.remove(n)),
            (ADD | CHANGE, _) => match (wanted(), known) {
                (None, _) => return -err::EFAULT,
                (Some(interest), Some(n)) => list[n] = interest,
                (Some(interest), None) => list.push(interest),
            },
            _ => return -err::EINVAL,
        }
        0
    }
}

/// When a timer ends, in nanoseconds of the unit's own time, and how often again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timer {
    pub deadline: Option<u64>,
    pub interval: u64,
}

impl Timer {
    /// The timer when it has ended so often and somebody was told.
    pub fn after(self, times: u64) -> Timer {
        let next = |d: u64| d.saturating_add(self.interval.saturating_mul(times));
        Timer { deadline: self.deadline.filter(|_| self.interval != 0).map(next), ..self }
    }
}

/// What descriptors of other kinds lead to, as far as their state is known from calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Special {
    Epoll(Vec<Interest>),
    /// A counter, and whether it is a semaphore.
    Counter(u64, bool),
    Timer(Timer),
    Signals,
}

/// What the guest wrote into a file.
pub struct Written {
    pub path: Vec<u8>,
    /// The file as it was first opened; 0 if it was empty.
    pub file: u32,
    pub pieces: Vec<(u64, Vec<u8>)>,
}

/// Bytes of written files that are remembered.
const WRITTEN_MAX: usize = 32 << 20;

/// Descriptors and what they lead to.
#[derive(Default)]
pub struct Table {
    pub fds: BTreeMap<u32, usize>,
    /// Those that an `execve` closes.
    pub cloexec: BTreeSet<u32>,
    pub objects: Vec<Object>,
    /// Epoll instances and their like, by the places of their objects.
    pub specials: BTreeMap<usize, Special>,
    /// Pipes that the guest made: both ends, as places among the objects.
    pub pipes: Vec<(usize, usize)>,
    /// Bytes that the kernel moves with the call that comes next.
    moved: Vec<&'static [u8]>,
    /// Files that were written to.
    pub written: Vec<Written>,
    remembered: usize,
}

const F_DUPFD: u64 = 0;
const F_SETFD: u64 = 2;
const F_SETFL: u64 = 4;
const F_DUPFD_CLOEXEC: u64 = 1030;
pub const O_NONBLOCK: u64 = 0o4000;
const O_CLOEXEC: u64 = 0o2_000_000;

/// The flags with which a call makes a descriptor, as `open` writes them.
pub fn flags_asked(number: u64, args: &[u64; 6]) -> u64 {
    match number {
        2 | 53 | 41 | 283 | 290 | 293 => args[1],
        257 | 292 => args[2],
        288 | 289 => args[3],
        291 | 294 => args[0],
        // openat2, with a structure that begins with them; memfd_create has a number of its own for close-on-exec.
        437 => crate::sys::read_u64(args[2]).unwrap_or(0),
        319 if args[1] & 1 != 0 => O_CLOEXEC,
        72 if args[1] == F_DUPFD_CLOEXEC => O_CLOEXEC,
        _ => 0,
    }
}

/// Is the descriptor that a call makes closed by an `execve`?
pub fn asks_cloexec(number: u64, args: &[u64; 6]) -> bool {
    flags_asked(number, args) & O_CLOEXEC != 0
}

/// Which calls make one descriptor, and answer its number.
fn makes_one(number: u64) -> bool {
    matches!(number, 2 | 32 | 33 | 41 | 43 | 85 | 213 | 253 | 257 | 282..=284 | 288..=292 | 294 | 319 | 434 | 437)
}

impl Table {
    /// A descriptor that was open at the start.
    pub fn inherit(&mut self, d: DescriptorRecord) {
        let stream = match d.kind {
            DescriptorKind::Stdin => Some(0),
            DescriptorKind::Stdout => Some(1),
            DescriptorKind::Stderr => Some(2),
            _ => None,
        };
        let (flags, position, identity, file) = (d.flags, d.position, d.identity, d.file);
        let object = Object { kind: d.kind, stream, flags, position, identity, file, path: d.path, emptied: false };
        // Descriptors of one open file share their position; those of one stream are taken for such.
        let known = self.objects.iter().position(|o| o.identity == identity && o.flags == flags && o.stream == stream);
        let at = known.unwrap_or_else(|| {
            self.objects.push(object);
            self.objects.len() - 1
        });
        self.fds.insert(d.fd, at);
    }

    pub fn object(&self, fd: u64) -> Option<&Object> {
        self.fds.get(&(fd as u32)).map(|at| &self.objects[*at])
    }

    pub fn object_mut(&mut self, fd: u64) -> Option<&mut Object> {
        let at = *self.fds.get(&(fd as u32))?;
        self.objects.get_mut(at)
    }

    /// A new descriptor for something new.
    pub fn open(&mut self, fd: u32, kind: DescriptorKind, flags: u32, file: u32) {
        let object =
            Object { kind, stream: None, flags, position: 0, identity: [0; 2], file, path: Vec::new(), emptied: false };
        self.objects.push(object);
        self.fds.insert(fd, self.objects.len() - 1);
    }

    fn duplicate(&mut self, old: u64, new: u32) {
        match self.fds.get(&(old as u32)).copied() {
            Some(at) => drop(self.fds.insert(new, at)),
            None => drop(self.fds.remove(&new)),
        }
    }

    /// What a call that succeeded says about closing at an `execve`, and about waiting.
    fn note_flags(&mut self, record: &CallRecord) {
        let [fd, command, value, ..] = record.args;
        let number = u64::from(record.nr);
        let mark = |set: &mut BTreeSet<u32>, fd: u32, on: bool| if on { set.insert(fd) } else { set.remove(&fd) };
        match (number, command) {
            (72, F_SETFD) => drop(mark(&mut self.cloexec, fd as u32, value & 1 != 0)),
            (72, F_SETFL) => {
                if let Some(o) = self.object_mut(fd) {
                    o.flags = o.flags & !(O_NONBLOCK as u32) | (value & O_NONBLOCK) as u32;
                }
            }
            (72, F_DUPFD | F_DUPFD_CLOEXEC) => {
                mark(&mut self.cloexec, record.result as u32, command == F_DUPFD_CLOEXEC);
            }
            (436, _) if value & 4 != 0 => {
                let range = fd as u32..=command as u32;
                self.cloexec.extend(self.fds.keys().copied().filter(|n| range.contains(n)));
            }
            _ if makes_one(number) => {
                mark(&mut self.cloexec, record.result as u32, asks_cloexec(number, &record.args));
            }
            _ => {}
        }
    }

    /// A call of the recorded guest succeeded.
    pub fn call(&mut self, record: &CallRecord) {
        let [a, b, c, ..] = record.args;
        let result = record.result;
        if result < 0 {
            return;
        }
        let n = result as u64;
        match record.nr {
            // read, readv, recvfrom: positions; lseek sets one.
            1 | 18 | 20 => {
                self.writes(record);
                if let Some(Special::Counter(value, _)) = self.special_mut(a) {
                    *value = value.saturating_add(crate::sys::read_u64(b).unwrap_or(0));
                }
            }
            0 | 19 => {
                self.moves(a, n);
                self.read_special(record);
            }
            8 => {
                if let Some(o) = self.object_mut(a) {
                    o.position = n;
                }
            }
            2 | 85 | 257 | 437 => {
                let kind = DescriptorKind::from_u8((record.opened as u8).wrapping_sub(1));
                let flags = match record.nr {
                    2 => b,
                    257 => c,
                    85 => 0o1101,
                    _ => 0,
                };
                self.open(n as u32, kind.unwrap_or(DescriptorKind::Other), flags as u32, record.file);
                if flags & 3 != 0 {
                    self.opened_for_writing(record, flags);
                }
            }
            3 => drop(self.fds.remove(&(a as u32))),
            32 => self.duplicate(a, n as u32),
            33 | 292 => self.duplicate(a, b as u32),
            72 if matches!(b, F_DUPFD | F_DUPFD_CLOEXEC) => self.duplicate(a, n as u32),
            // close_range without CLOEXEC.
            436 if c & 4 == 0 => self.fds.retain(|fd, _| !(a as u32..=b as u32).contains(fd)),
            // socket, accept, accept4: a descriptor of a socket; the others of something else.
            41 | 43 | 288 => {
                let flags = 2 | flags_asked(record.nr.into(), &record.args) & O_NONBLOCK;
                self.open(n as u32, DescriptorKind::Socket, flags as u32, 0);
            }
            213 | 253 | 282 | 283 | 284 | 289 | 290 | 291 | 294 | 319 | 434 => {
                let flags = 2 | flags_asked(record.nr.into(), &record.args) & O_NONBLOCK;
                self.open(n as u32, DescriptorKind::Other, flags as u32, 0);
                self.made_special(record);
            }
            233 => {
                if let Some(Special::Epoll(list)) = self.special_mut(a) {
                    Interest::control(list, b, c as u32, record.args[3]);
                }
            }
            286 => self.timer_set(record),
            22 | 293 | 53 => self.pair(record),
            _ => {}
        }
        self.note_flags(record);
    }

    fn special_mut(&mut self, fd: u64) -> Option<&mut Special> {
        let at = self.fds.get(&(fd as u32))?;
        self.specials.get_mut(at)
    }

    /// The object that was made last is of a kind whose state is followed.
    fn made_special(&mut self, record: &CallRecord) {
        let special = match record.nr {
            213 | 291 => Special::Epoll(Vec::new()),
            284 => Special::Counter(record.args[0] & 0xffff_ffff, false),
            290 => Special::Counter(record.args[0] & 0xffff_ffff, record.args[1] & 1 != 0),
            283 => Special::Timer(Timer::default()),
            282 | 289 => Special::Signals,
            _ => return,
        };
        self.specials.insert(self.objects.len() - 1, special);
    }

    /// `timerfd_settime`. A point in time is taken for one that comes at once: what the clock was is not known here.
    fn timer_set(&mut self, record: &CallRecord) {
        const ABSOLUTE: u64 = 1;
        let [fd, flags, new, ..] = record.args;
        let time = crate::trial::threads::timespec;
        let (interval, value) = (time(new).unwrap_or(0), time(new + 16).unwrap_or(0));
        let ahead = if flags & ABSOLUTE != 0 { 0 } else { value };
        if let Some(Special::Timer(timer)) = self.special_mut(fd) {
            *timer = Timer { deadline: (value != 0).then_some(record.tick.saturating_add(ahead)), interval };
        }
    }

    /// A counter or a timer was read.
    fn read_special(&mut self, record: &CallRecord) {
        let times = crate::sys::read_u64(record.args[1]).unwrap_or(1);
        match self.special_mut(record.args[0]) {
            Some(Special::Counter(value, _)) => *value = value.saturating_sub(times),
            Some(Special::Timer(timer)) => *timer = timer.after(times),
            _ => {}
        }
    }

    /// `pipe` and `socketpair` answer in memory.
    fn pair(&mut self, record: &CallRecord) {
        let (at, kind) = if record.nr == 53 {
            (record.args[3], DescriptorKind::Socket)
        } else {
            (record.args[0], DescriptorKind::Pipe)
        };
        if let (Some(r), Some(w)) = (crate::sys::read_u32(at), crate::sys::read_u32(at + 4)) {
            let asked = flags_asked(record.nr.into(), &record.args);
            let waits = (asked & O_NONBLOCK) as u32;
            self.open(r, kind, waits, 0);
            self.open(w, kind, 1 | waits, 0);
            if kind == DescriptorKind::Pipe {
                self.pipes.push((self.objects.len() - 2, self.objects.len() - 1));
            }
            for fd in [r, w] {
                if asked & O_CLOEXEC != 0 {
                    self.cloexec.insert(fd)
                } else {
                    self.cloexec.remove(&fd)
                };
            }
        }
    }

    fn moves(&mut self, fd: u64, by: u64) {
        if let Some(o) = self.object_mut(fd) {
            o.position += by;
        }
    }

    /// A file that may be written to is known by its name.
    fn opened_for_writing(&mut self, record: &CallRecord, flags: u64) {
        const O_TRUNC: u64 = 0o1000;
        let at = if record.nr == 257 { record.args[1] } else { record.args[0] };
        let path = crate::syscalls::process::read_string(at).unwrap_or_default();
        let path = crate::trial::world::absolute(&path);
        if let Some(o) = self.object_mut(record.result as u64) {
            (o.path, o.emptied) = (path, flags & O_TRUNC != 0 || o.file == 0);
        }
    }

    /// The guest wrote to a descriptor: to a file, that is remembered for trials.
    fn writes(&mut self, record: &CallRecord) {
        const O_APPEND: u32 = 0o2000;
        let [fd, at, len, offset, ..] = record.args;
        let n = record.result as u64;
        let Some(o) = self.object(fd).filter(|o| o.kind == DescriptorKind::File && !o.path.is_empty()).cloned() else {
            return self.moves(fd, n);
        };
        let position = match record.nr {
            18 => offset,
            _ if o.flags & O_APPEND != 0 => u64::MAX,
            _ => o.position,
        };
        let mut bytes = Vec::new();
        if record.nr == 20 {
            for i in 0..len.min(1024) {
                let word = |k: u64| crate::sys::read_u64(at + i * 16 + k).unwrap_or(0);
                let left = n.saturating_sub(bytes.len() as u64);
                read_into(&mut bytes, word(0), word(8).min(left));
            }
        } else {
            read_into(&mut bytes, at, n);
        }
        if self.remembered + bytes.len() <= WRITTEN_MAX {
            self.remembered += bytes.len();
            let file = if o.emptied { 0 } else { o.file };
            let known = self.written.iter().position(|w| w.path == o.path).filter(|_| !o.emptied || o.position != 0);
            let known = known.unwrap_or_else(|| {
                self.written.push(Written { path: o.path, file, pieces: Vec::new() });
                self.written.len() - 1
            });
            self.written[known].pieces.push((position, bytes));
        }
        if record.nr != 18 {
            self.moves(fd, n);
        }
    }

    /// Bytes that the kernel moved from one descriptor to another.
    pub fn moved(&mut self, payload: &'static [u8]) {
        self.moved.extend(RestRecord::decode(payload).map(|rest| rest.bytes));
    }

    pub fn take_moved(&mut self) -> Vec<&'static [u8]> {
        core::mem::take(&mut self.moved)
    }

    /// The standard stream that a call which succeeded wrote to.
    pub fn stream_of_output(&self, record: &CallRecord) -> Option<u8> {
        let fd = match record.nr {
            1 | 18 | 20 | 44 | 46 | 296 | 328 | 40 => record.args[0],
            275 | 326 => record.args[2],
            276 => record.args[1],
            _ => return None,
        };
        self.object(fd)?.stream.filter(|s| *s != 0)
    }
}

/// Appends guest memory.
fn read_into(bytes: &mut Vec<u8>, at: u64, len: u64) {
    let from = bytes.len();
    bytes.resize(from + len.min(WRITTEN_MAX as u64) as usize, 0);
    let got = crate::sys::read_guest(at, &mut bytes[from..]);
    bytes.truncate(from + got);
}
