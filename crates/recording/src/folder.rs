//! A recording that is being written.
//!
//! The engine writes `units/*.raw` and `files/*` through [`Folder::dir_fd`]; this side compresses finished segments,
//! shares kept files through the store, and keeps the file `recording`, whose lock says that a recorder is at work.
//!
//! Guarantees: at every moment, killed or out of disk space, everything committed can be read back. A raw segment is
//! removed, or given back to the engine for another one, only when its chunk is written completely. Chunks are not synced one by one, so a power cut may lose what the
//! kernel had not written yet.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{Mode, OFlags};

use crate::chunk;
use crate::disk;
use crate::error::{Doing, Error, Kind, Result};
use crate::home::Home;
use crate::join;
use crate::meta::{FILE, Meta};
use crate::name::{UnitName, prepared_by};
use crate::segment::{self, Segment};
use crate::store::Store;

/// A recording that is being written. It may be shared between threads.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    dir: OwnedFd,
    store: Option<(Store, OwnedFd)>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Open for as long as the recording is being written, and locked.
    _lock: File,
    logs: HashMap<UnitName, LogState>,
}

/// What is known about a unit's compressed log.
#[derive(Clone, Debug, Default)]
struct LogState {
    /// Bytes of whole chunks; what is behind them is the rest of an interrupted attempt.
    end: u64,
    have: HashSet<u32>,
}

/// What [`Folder::seal`] did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sealed {
    /// Segments that were compressed.
    pub compressed: usize,
    /// Files whose contents are now shared through the store.
    pub shared: usize,
    /// Segments that stay as they are, and why. Nothing of them is lost.
    pub left: Vec<Error>,
}

impl Folder {
    /// A new recording at this path, which must not exist or be an empty folder.
    pub fn create(path: &Path, meta: &Meta) -> Result<Folder> {
        let made = match disk::private_folder(path) {
            Ok(()) => true,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                must_be_empty(path)?;
                false
            }
            Err(e) => return Err(Error::io("make the folder", path, &e)),
        };
        Folder::fill(path, meta).inspect_err(|_| {
            // As it was before, so that it can be tried again.
            for inside in ["units", "files"] {
                let _ = fs::remove_dir(path.join(inside));
            }
            let _ = fs::remove_file(path.join(FILE));
            if made {
                let _ = fs::remove_dir(path);
            }
        })
    }

    fn fill(path: &Path, meta: &Meta) -> Result<Folder> {
        for inside in ["units", "files"] {
            let inside = path.join(inside);
            disk::private_folder(&inside).doing("make the folder", &inside)?;
        }
        let lock = write_meta(path, meta)?;
        let dir = open_folder(path).doing("open", path)?;
        let state = Mutex::new(State { _lock: lock, logs: HashMap::new() });
        Ok(Folder { path: path.to_owned(), dir, store: None, state })
    }

    /// Shares the contents of kept files with the recordings of a home folder when it is sealed.
    pub fn share_with(&mut self, home: &Home) {
        let store = Store::open(home.path());
        self.store = store.and_then(|store| open_folder(store.stamps()).map(|fd| (store, fd))).ok();
    }

    /// Contents that the store has by stamp, for the engine: it links `files/<stamp>` to one instead of copying a file.
    pub fn stamps_fd(&self) -> Option<BorrowedFd<'_>> {
        self.store.as_ref().map(|(_, fd)| fd.as_fd())
    }

    /// The folder was renamed.
    pub(crate) fn moved(&mut self, path: PathBuf) {
        self.path = path;
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder itself, for the engine. It is closed on exec: whoever hands it on makes a copy.
    pub fn dir_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Compresses one raw segment that the engine has finished, and removes it. If that fails, the segment stays and
    /// nothing is lost; it may be tried again in any order.
    pub fn compress(&self, unit: UnitName, sequence: u32) -> Result<()> {
        let raw = self.raw_path(unit, sequence);
        self.append_chunk(unit, sequence, &raw)?;
        // If it cannot be removed it is there twice, which readers accept.
        let _ = fs::remove_file(&raw);
        Ok(())
    }

    /// Like [`Folder::compress`], but the engine may use the file again, which spares it making another.
    pub fn compress_and_give_back(&self, unit: UnitName, sequence: u32) -> Result<()> {
        let raw = self.raw_path(unit, sequence);
        self.append_chunk(unit, sequence, &raw)?;
        // If it cannot be given back the engine makes another.
        let _ = segment::give_back(&raw);
        Ok(())
    }

    fn raw_path(&self, unit: UnitName, sequence: u32) -> PathBuf {
        self.path.join("units").join(unit.raw(sequence))
    }

    /// Makes sure that the compressed log of the unit has this segment.
    fn append_chunk(&self, unit: UnitName, sequence: u32, raw: &Path) -> Result<()> {
        let path = self.path.join("units").join(unit.log());
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let log = match state.logs.entry(unit) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => new.insert(examine(&path).doing("read", &path)?),
        };
        if log.have.contains(&sequence) {
            // Its file may be about to become another segment.
            return Ok(());
        }
        let Some(segment) = read_finished(raw, sequence)? else { return Ok(()) };
        let bytes = chunk::encode(&segment).doing("compress", raw)?;
        append(&path, log.end, &bytes).map_err(|e| {
            let mut error = Error::io("append to", &path, &e);
            error.message.push_str("; the segment stays uncompressed and nothing of it is lost");
            error
        })?;
        log.end += bytes.len() as u64;
        log.have.insert(sequence);
        Ok(())
    }

    /// Compresses what is left of the processes that have ended, shares kept files if all have, and writes what is known
    /// about the recording by now. It may be called several times.
    pub fn seal(&self, ended: impl Fn(u32) -> bool, meta: &Meta) -> Result<Sealed> {
        let mut sealed = Sealed::default();
        let units = self.path.join("units");
        let all = join::parts(&units).doing("read", &units)?;
        for (unit, parts) in all.iter().filter(|(unit, _)| ended(unit.pid)) {
            for sequence in parts.raws.keys() {
                match self.compress(*unit, *sequence) {
                    Ok(()) => sealed.compressed += 1,
                    // Somebody else compressed it since we looked.
                    Err(e) if e.kind == Kind::Missing => (),
                    Err(e) => sealed.left.push(e),
                }
            }
        }
        // Room for a log that never began.
        for name in disk::names_if_any(&units).doing("read", &units)? {
            if prepared_by(&name).is_some_and(|unit| ended(unit.pid)) {
                // Readers pass it over.
                let _ = fs::remove_file(units.join(name));
            }
        }
        // A process that goes on may be in the middle of keeping a file.
        if let (Some((store, _)), true) = (&self.store, all.keys().all(|unit| ended(unit.pid))) {
            let files = self.path.join("files");
            for key in disk::names_if_any(&files).doing("read", &files)? {
                // Failing is harmless: the recording has its own copy.
                sealed.shared += usize::from(store.put(&files.join(&key), &key).unwrap_or(false));
            }
        }
        let lock = write_meta(&self.path, meta)?;
        self.state.lock().unwrap_or_else(PoisonError::into_inner)._lock = lock;
        Ok(sealed)
    }
}

fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

fn must_be_empty(path: &Path) -> Result<()> {
    let wrong = |what: &str| {
        Error::new(Kind::Exists, format!("{} {what}; name a new folder for the recording", path.display()))
    };
    if !path.is_dir() {
        return Err(wrong("exists and is not a folder"));
    }
    match fs::read_dir(path).doing("read", path)?.next() {
        None => Ok(()),
        Some(_) => Err(wrong("exists and is not empty")),
    }
}

fn write_meta(folder: &Path, meta: &Meta) -> Result<File> {
    let path = folder.join(FILE);
    let bytes = meta.encode();
    disk::replace_locked(&path, &folder.join(".recording.new"), bytes.as_bytes()).doing("write", &path)
}

/// A segment that may be compressed; nothing if it was not begun.
fn read_finished(raw: &Path, sequence: u32) -> Result<Option<Segment>> {
    let stays = |why: &str| {
        Error::new(Kind::Damaged, format!("{} is left as it is, without being compressed: {why}", raw.display()))
    };
    match segment::read(raw).doing("read the segment", raw)? {
        Ok(Some(segment)) if segment.sequence != sequence => {
            Err(stays(&format!("it says that it is segment {}", segment.sequence)))
        }
        Ok(Some(segment)) if segment.cut => Err(stays("it is cut")),
        Ok(segment) => Ok(segment),
        Err(why) => Err(stays(&why)),
    }
}

/// Finds the whole chunks of a log that an earlier recorder may have left.
fn examine(path: &Path) -> io::Result<LogState> {
    let mut state = LogState::default();
    let file = match disk::open_regular(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(state),
        other => other?,
    };
    let mut file = BufReader::new(file);
    while let Ok(Some(chunk)) = chunk::read(&mut file)? {
        state.end += chunk.len();
        state.have.insert(chunk.header.sequence);
    }
    Ok(state)
}

/// Appends at `end`, or leaves the file ending there.
fn append(path: &Path, end: u64, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    if file.metadata()?.len() != end {
        file.set_len(end)?;
    }
    file.write_all(bytes).inspect_err(|_| {
        // A reader does not believe half a chunk, and the next attempt removes it if this fails.
        let _ = file.set_len(end);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_known_as_such() {
        let error = append(Path::new("/dev/full"), 0, b"chunk").unwrap_err();
        assert!(disk::is_full(&error), "{error}");
        assert_eq!(Error::io("append to", Path::new("/dev/full"), &error).kind, Kind::Full);
    }
}
