//! The guest's descriptors in a replay: a table without files behind it, kept up by what the recorded calls answered.
//!
//! It tells which descriptor leads to the standard streams, and is what a trial's world starts from.
//! May miss: descriptors that came in a message (they count as unknown), and positions that another process moved.

use alloc::collections::BTreeMap;
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
    pub objects: Vec<Object>,
    /// Bytes that the kernel moves with the call that comes next.
    moved: Vec<&'static [u8]>,
    /// Files that were written to.
    pub written: Vec<Written>,
    /// Names that were removed.
    pub removed: Vec<Vec<u8>>,
    remembered: usize,
}

const F_DUPFD: u64 = 0;
const F_DUPFD_CLOEXEC: u64 = 1030;

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
            1 | 18 | 20 => self.writes(record),
            0 | 19 => self.moves(a, n),
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
            41 | 43 | 288 => self.open(n as u32, DescriptorKind::Socket, 2, 0),
            213 | 253 | 282 | 283 | 284 | 289 | 290 | 291 | 294 | 319 | 434 => {
                self.open(n as u32, DescriptorKind::Other, 2, 0);
            }
            22 | 293 | 53 => self.pair(record),
            82 => self.renamed(a, b),
            264 | 316 => self.renamed(b, record.args[3]),
            87 => self.unlinked(a),
            263 => self.unlinked(b),
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
            self.open(r, kind, 0, 0);
            self.open(w, kind, 1, 0);
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
        let path = name_at(if record.nr == 257 { record.args[1] } else { record.args[0] });
        self.removed.retain(|gone| *gone != path);
        if let Some(o) = self.object_mut(record.result as u64) {
            (o.path, o.emptied) = (path, flags & O_TRUNC != 0 || o.file == 0);
        }
    }

    /// What was written under one name is under another one from now on.
    fn renamed(&mut self, from: u64, to: u64) {
        let (from, to) = (name_at(from), name_at(to));
        if !self.written.iter().any(|w| w.path == from) {
            return;
        }
        self.removed.retain(|gone| *gone != to);
        // The last one of a name is what it leads to.
        let (mut moved, mut others): (Vec<_>, Vec<_>) =
            core::mem::take(&mut self.written).into_iter().partition(|w| w.path == from);
        moved.iter_mut().for_each(|w| w.path.clone_from(&to));
        others.append(&mut moved);
        self.written = others;
        self.objects.iter_mut().filter(|o| o.path == from).for_each(|o| o.path.clone_from(&to));
    }

    /// A name leads nowhere from now on; descriptors that are open still lead to the file.
    fn unlinked(&mut self, name: u64) {
        self.removed.push(name_at(name));
    }

    /// Files that were opened for writing, as they were when nothing had been written yet.
    pub fn opened_for_writing_so_far(&self) -> Vec<Written> {
        let is_file = |o: &&Object| o.kind == DescriptorKind::File && o.stream.is_none() && !o.path.is_empty();
        let opened = self.objects.iter().filter(is_file).filter(|o| o.flags & 3 != 0);
        let opened = opened.filter(|o| !self.removed.contains(&o.path));
        let fresh =
            |o: &Object| Written { path: o.path.clone(), file: if o.emptied { 0 } else { o.file }, pieces: Vec::new() };
        opened.map(fresh).collect()
    }

    /// What is left of a file when all is over: `None` if nobody wrote to it, `Some(None)` if it was removed.
    pub fn take_left(&mut self, path: &[u8]) -> Option<Option<Written>> {
        if self.removed.iter().any(|gone| gone == path) {
            return Some(None);
        }
        if let Some(at) = self.written.iter().rposition(|w| w.path == path) {
            return Some(Some(self.written.swap_remove(at)));
        }
        let emptied = |o: &&Object| o.path == path && o.emptied;
        let emptied = self.objects.iter().find(emptied)?;
        Some(Some(Written { path: emptied.path.clone(), file: 0, pieces: Vec::new() }))
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
            let known = self.written.iter().rposition(|w| w.path == o.path).filter(|_| !o.emptied || o.position != 0);
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

/// The name that an argument of a call points to, in full.
fn name_at(at: u64) -> Vec<u8> {
    crate::trial::world::absolute(&crate::syscalls::process::read_string(at).unwrap_or_default())
}

/// Appends guest memory.
fn read_into(bytes: &mut Vec<u8>, at: u64, len: u64) {
    let from = bytes.len();
    bytes.resize(from + len.min(WRITTEN_MAX as u64) as usize, 0);
    let got = crate::sys::read_guest(at, &mut bytes[from..]);
    bytes.truncate(from + got);
}
