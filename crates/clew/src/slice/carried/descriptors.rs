//! What the descriptors of all units lead to, call by call.
//!
//! A forked process begins with its parent's descriptors, a replaced image with those of the one before that are still open
//! at its start. Descriptors that were copied share one description, with one position in its file.

use super::{Call, calls_of};
use model::log::{CallRecord, DescriptorKind, DescriptorRecord, FileRecord, Kind, Origin};
use recording::{Recording, UnitName};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::ledger::Unnamed;

/// What bytes are put into and taken from.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Thing {
    /// A pipe, or one direction between two sockets.
    Queue(u32),
    File(PathBuf),
    /// The standard input that the recorder was given.
    Stdin,
}

/// An open file, as the kernel has it: what it leads to when read and when written.
#[derive(Clone, Debug, Default)]
pub struct Description {
    pub from: Option<Thing>,
    pub to: Option<Thing>,
    /// Writes go to the end.
    pub appends: bool,
    pub start: u64,
}

/// One call that moved bytes or a position.
pub struct Moved {
    pub unit: UnitName,
    pub record: u64,
    /// When it came back.
    pub time: u64,
    pub how: How,
    pub len: u64,
}

/// Descriptions by number, and places in their files where a call names them.
#[derive(Clone, Copy, Debug)]
pub enum How {
    Read(usize, Option<u64>),
    Write(usize, Option<u64>),
    /// The kernel moves bytes from one to another; `keeps` leaves them where they were.
    Carry {
        from: (usize, Option<u64>),
        to: (usize, Option<u64>),
        keeps: bool,
    },
    /// The file is mapped from a place of it on.
    Map(usize, u64),
    /// The position is now at `len`.
    Seek(usize),
    /// A file was opened with its contents thrown away.
    Empty(usize),
}

/// All descriptions and all that happened to them.
#[derive(Default)]
pub struct Followed {
    pub descriptions: Vec<Description>,
    pub moved: Vec<Moved>,
    pub(super) queues: u32,
}

/// Which description each descriptor of a process leads to.
type Table = BTreeMap<u64, usize>;

const O_ACCMODE: u64 = 3;
const O_TRUNC: u64 = 0o1000;
const O_APPEND: u64 = 0o2000;
const F_DUPFD: u64 = 0;
const F_DUPFD_CLOEXEC: u64 = 1030;

/// Follows the descriptors of all units.
pub fn follow(recording: &Recording, name_of: &mut dyn FnMut(&Unnamed) -> Option<PathBuf>) -> Result<Followed, String> {
    let mut followed = Followed::default();
    // Tables at forks, by parent and record; and at the ends of images that were replaced.
    let mut forked: HashMap<(UnitName, u64), Table> = HashMap::new();
    let mut ended: HashMap<UnitName, Table> = HashMap::new();
    let mut left: Vec<UnitName> = recording.units().iter().map(|u| u.name).collect();
    while !left.is_empty() {
        let before = left.len();
        let mut later = Vec::new();
        for name in left {
            let origin = recording.unit(&name).map_err(|e| e.to_string())?.start.origin.clone();
            let table = match &origin {
                Origin::First => Some(Table::new()),
                Origin::Exec { unit } => unit.parse().ok().and_then(|u: UnitName| ended.get(&u).cloned()),
                Origin::Fork { unit, record } => {
                    unit.parse().ok().and_then(|u: UnitName| forked.get(&(u, *record)).cloned())
                }
            };
            let Some(table) = table else {
                later.push(name);
                continue;
            };
            let mut unit = Unit::new(recording, name, table, &mut followed)?;
            let forks: Vec<u64> = forks_of(recording, name);
            unit.run(&mut followed, name_of, &forks, &mut |record, table| {
                forked.insert((name, record), table.clone());
            })?;
            ended.insert(name, unit.table);
        }
        // Units whose parents are missing in the recording begin with nothing.
        if later.len() == before {
            break;
        }
        left = later;
    }
    followed.moved.sort_by_key(|m| m.time);
    Ok(followed)
}

/// The records at which children of a unit begin.
fn forks_of(recording: &Recording, parent: UnitName) -> Vec<u64> {
    let forks = recording.units().iter().filter_map(|u| match &u.start.origin {
        Origin::Fork { unit, record } if unit.parse() == Ok(parent) => Some(*record),
        _ => None,
    });
    let mut forks: Vec<u64> = forks.collect();
    forks.sort_unstable();
    forks
}

/// One unit on its way through its log.
struct Unit {
    calls: Vec<Call>,
    files: HashMap<u32, FileRecord>,
    table: Table,
}

impl Unit {
    fn new(recording: &Recording, name: UnitName, inherited: Table, all: &mut Followed) -> Result<Unit, String> {
        let log = recording.log(&name).map_err(|e| e.to_string())?;
        let (mut files, mut open) = (HashMap::new(), Vec::new());
        for (_, raw) in log.records() {
            match raw.kind {
                Kind::File => files.extend(FileRecord::decode(raw.payload).map(|f| (f.id, f))),
                Kind::Descriptor => open.extend(DescriptorRecord::decode(raw.payload)),
                _ => {}
            }
        }
        // A fork has no list of its own.
        let table = if open.is_empty() { inherited } else { all.still_open(&inherited, &open) };
        Ok(Unit { calls: calls_of(recording, name)?, files, table })
    }

    fn run(
        &mut self,
        all: &mut Followed,
        name_of: &mut dyn FnMut(&Unnamed) -> Option<PathBuf>,
        forks: &[u64],
        forked: &mut dyn FnMut(u64, &Table),
    ) -> Result<(), String> {
        let mut forks = forks.iter().peekable();
        for call in std::mem::take(&mut self.calls) {
            while let Some(at) = forks.next_if(|at| **at < call.record) {
                forked(*at, &self.table);
            }
            self.step(&call, all, name_of);
        }
        forks.for_each(|at| forked(*at, &self.table));
        Ok(())
    }

    /// What a call does to descriptors.
    fn step(&mut self, call: &Call, all: &mut Followed, name_of: &mut dyn FnMut(&Unnamed) -> Option<PathBuf>) {
        let CallRecord { nr, args, result, .. } = call.call;
        let [a, b, c, d, ..] = args;
        let result = result as u64;
        match nr {
            // open, creat, openat, openat2
            2 | 85 | 257 | 437 => self.opened(call, all, name_of),
            // pipe, pipe2
            22 | 293 => {
                let queue = all.queue();
                let ends = [
                    Description { from: Some(queue.clone()), ..Description::default() },
                    Description { to: Some(queue), ..Description::default() },
                ];
                self.pair(call, a, ends, all);
            }
            // socketpair
            53 => {
                let (one, other) = (all.queue(), all.queue());
                let side = |from: &Thing, to: &Thing| Description {
                    from: Some(from.clone()),
                    to: Some(to.clone()),
                    ..Description::default()
                };
                self.pair(call, d, [side(&one, &other), side(&other, &one)], all);
            }
            // close, close_range
            3 => _ = self.table.remove(&a),
            436 => self.table.retain(|fd, _| !(a..=b).contains(fd)),
            // dup, dup2, dup3, fcntl
            32 | 33 | 292 => self.copy(a, result),
            72 if b == F_DUPFD || b == F_DUPFD_CLOEXEC => self.copy(a, result),
            // socket, accept, memfd_create, eventfd2 and others that make descriptors of unknown things
            41 | 43 | 288 | 290 | 319 | 291 | 283 | 282 | 289 => _ = self.table.remove(&result),
            // mmap
            9 => self.mapped(call, all),
            // lseek
            8 => self.note(call, a, all, How::Seek),
            // read, readv, recvfrom, recvmsg; write, writev, sendto, sendmsg, vmsplice
            0 | 19 | 45 | 47 => self.note(call, a, all, |fd| How::Read(fd, None)),
            1 | 20 | 44 | 46 | 278 => self.note(call, a, all, |fd| How::Write(fd, None)),
            // pread64, preadv, preadv2; pwrite64, pwritev, pwritev2
            17 | 295 | 327 => self.note(call, a, all, |fd| How::Read(fd, Some(d))),
            18 | 296 | 328 => self.note(call, a, all, |fd| How::Write(fd, Some(d))),
            // sendfile(out, in, offset), splice, tee, copy_file_range
            40 => self.carry(call, (b, c), (a, 0), false, all),
            275 | 326 => self.carry(call, (a, b), (c, d), false, all),
            276 => self.carry(call, (a, 0), (b, 0), true, all),
            _ => {}
        }
    }

    fn copy(&mut self, from: u64, to: u64) {
        match self.table.get(&from).copied() {
            Some(description) => self.table.insert(to, description),
            None => self.table.remove(&to),
        };
    }

    fn pair(&mut self, call: &Call, at: u64, ends: [Description; 2], all: &mut Followed) {
        for (n, end) in ends.into_iter().enumerate() {
            if let Some(fd) = call.word_at(at + 4 * n as u64, 4) {
                self.table.insert(fd, all.add(end));
            }
        }
    }

    fn opened(&mut self, call: &Call, all: &mut Followed, name_of: &mut dyn FnMut(&Unnamed) -> Option<PathBuf>) {
        let CallRecord { nr, args, result, file, opened, .. } = call.call;
        let flags = match nr {
            2 => args[1],
            85 => 1 | O_TRUNC,
            257 => args[2],
            _ => 0,
        };
        let is_file = opened == 0 || opened == DescriptorKind::File as u32 + 1;
        let fd = result as u64;
        if !is_file {
            self.table.remove(&fd);
            return;
        }
        let named = self.files.get(&file).map(|f| PathBuf::from(OsString::from_vec(f.path.clone())));
        let at = Unnamed { unit: call.unit, call: call.call };
        let Some(path) = named.or_else(|| name_of(&at)) else {
            self.table.remove(&fd);
            return;
        };
        let thing = Thing::File(path);
        let description = all.add(Description {
            from: (flags & O_ACCMODE != 1).then(|| thing.clone()),
            to: (flags & O_ACCMODE != 0).then_some(thing),
            appends: flags & O_APPEND != 0,
            start: 0,
        });
        self.table.insert(fd, description);
        if flags & O_TRUNC != 0 {
            self.note(call, fd, all, How::Empty);
        }
    }

    fn note(&self, call: &Call, fd: u64, all: &mut Followed, how: impl FnOnce(usize) -> How) {
        if let Some(description) = self.table.get(&fd) {
            all.push(call, how(*description));
        }
    }

    /// A mapping, of which the result is an address.
    fn mapped(&self, call: &Call, all: &mut Followed) {
        let [_, len, _, _, fd, offset] = call.call.args;
        if let Some(description) = self.table.get(&fd) {
            let Call { unit, record, .. } = *call;
            let how = How::Map(*description, offset);
            all.moved.push(Moved { unit, record, time: call.call.time, how, len });
        }
    }

    /// The kernel moved bytes; `places` are where offsets lie, 0 for the positions of the descriptors.
    fn carry(&self, call: &Call, from: (u64, u64), to: (u64, u64), keeps: bool, all: &mut Followed) {
        let (Some(a), Some(b)) = (self.table.get(&from.0), self.table.get(&to.0)) else { return };
        let n = call.call.result as u64;
        // The kernel leaves the place behind what it moved.
        let place = |at: u64| if at == 0 { None } else { call.word_at(at, 8).map(|end| end.saturating_sub(n)) };
        all.push(call, How::Carry { from: (*a, place(from.1)), to: (*b, place(to.1)), keeps });
    }
}

impl Followed {
    fn add(&mut self, description: Description) -> usize {
        self.descriptions.push(description);
        self.descriptions.len() - 1
    }

    fn queue(&mut self) -> Thing {
        self.queues += 1;
        Thing::Queue(self.queues)
    }

    fn push(&mut self, call: &Call, how: How) {
        let Call { unit, record, .. } = *call;
        self.moved.push(Moved { unit, record, time: call.call.time, how, len: call.call.result as u64 });
    }

    /// The descriptors of an image at its start: those of the image before, as far as they are still open, and files from
    /// outside.
    fn still_open(&mut self, inherited: &Table, open: &[DescriptorRecord]) -> Table {
        let mut table = Table::new();
        for d in open {
            let fd = u64::from(d.fd);
            if let Some(description) = inherited.get(&fd) {
                table.insert(fd, *description);
            } else if d.kind == DescriptorKind::File && !d.path.is_empty() {
                let thing = Thing::File(PathBuf::from(OsString::from_vec(d.path.clone())));
                let flags = u64::from(d.flags);
                let description = Description {
                    from: (flags & O_ACCMODE != 1).then(|| thing.clone()),
                    to: (flags & O_ACCMODE != 0).then_some(thing),
                    appends: flags & O_APPEND != 0,
                    start: d.position,
                };
                table.insert(fd, self.add(description));
            } else if d.kind == DescriptorKind::Stdin {
                let from = Some(Thing::Stdin);
                let description = Description { from, start: d.position, ..Description::default() };
                table.insert(fd, self.add(description));
            }
        }
        table
    }
}
