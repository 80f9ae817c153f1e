//! The home of recordings: naming, listing, finding and removing them.
//!
//! Guarantees: a recording appears under its name whole, with its lock held. Only what looks like a recording is ever
//! removed, never one that is being written, and never a file that Clew did not make.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use crate::disk;
use crate::error::{Doing, Error, Kind, Result};
use crate::folder::Folder;
use crate::meta::{FILE, Meta, Status};
use crate::name::is_plain;
use crate::store::Store;
use crate::unpack::is_pack;

const LATEST: &str = "latest";
/// Everything that we put into a recording's folder.
const OURS: &[&str] = &[FILE, ".recording.new", "units", "files", "extra"];
/// Half-made and half-removed folders are left alone for this long.
const LEFT_OVER: Duration = Duration::from_secs(3600);

/// A folder with recordings and their store.
#[derive(Clone, Debug)]
pub struct Home {
    path: PathBuf,
}

/// How it stands with a recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// A recorder is at work.
    Writing,
    Ended(Status),
    /// Its recorder was killed; what was recorded until then is there.
    Interrupted,
    /// Its file `recording` cannot be read; says why.
    Damaged(String),
}

/// A recording in the home folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub name: String,
    pub path: PathBuf,
    /// Seconds since 1970.
    pub created: u64,
    pub command: Vec<OsString>,
    /// Bytes on the disk; contents shared with others count in full.
    pub bytes: u64,
    pub state: State,
}

/// A recording that was removed, and how many bytes it took.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Removed {
    pub name: String,
    pub bytes: u64,
}

impl Home {
    /// Opens the folder, making it if it is not there. The permissions of one that exists are its owner's business:
    /// everything inside is private in any case.
    pub fn open(path: &Path) -> Result<Home> {
        let mut builder = fs::DirBuilder::new();
        match builder.recursive(true).mode(0o700).create(path) {
            Ok(()) => Ok(Home { path: path.to_owned() }),
            Err(_) if path.exists() => Err(Error::new(
                Kind::WrongType,
                format!(
                    "recordings are kept in {}, which is not a folder; move it away or set CLEW_HOME to another place",
                    path.display()
                ),
            )),
            Err(e) => {
                let mut error = Error::io("make the folder for recordings,", path, &e);
                error.message.push_str("; CLEW_HOME can name another place");
                Err(error)
            }
        }
    }

    /// The folder as it is, which may be not at all: for looking only.
    pub fn at(path: &Path) -> Home {
        Home { path: path.to_owned() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A new recording `<program>-<n>`, which becomes `latest`.
    pub fn create(&self, program: &str, meta: &Meta) -> Result<Folder> {
        let stem = stem(program);
        let unfinished = self.path.join(unique(".new"));
        let mut folder = Folder::create(&unfinished, meta)?;
        folder.share_with(self);
        let numbers = disk::names(&self.path).doing("read", &self.path)?;
        let number = |name: &String| name.strip_prefix(&stem)?.strip_prefix('-')?.parse::<u64>().ok();
        let mut n = numbers.iter().filter_map(number).max().unwrap_or(0);
        loop {
            n += 1;
            let name = format!("{stem}-{n}");
            let path = self.path.join(&name);
            // A recording's folder is never empty, so this never takes the place of one.
            match fs::rename(&unfinished, &path) {
                Ok(()) => {
                    folder.moved(path);
                    self.set_latest(&name)?;
                    return Ok(folder);
                }
                Err(e) if taken(&e) => (),
                Err(e) => {
                    let _ = fs::remove_dir_all(&unfinished);
                    return Err(Error::io("make the recording", &path, &e));
                }
            }
        }
    }

    fn set_latest(&self, name: &str) -> Result<()> {
        let (link, beside) = (self.path.join(LATEST), self.path.join(unique(".latest")));
        symlink(name, &beside).doing("make the link", &beside)?;
        fs::rename(&beside, &link).doing("make the link", &link)
    }

    /// All recordings, oldest first. One that is damaged is listed as such.
    pub fn list(&self) -> Result<Vec<Entry>> {
        let names = disk::names_if_any(&self.path).doing("read", &self.path)?;
        let mut entries: Vec<Entry> =
            names.into_iter().filter(|n| !n.starts_with('.')).filter_map(|n| self.entry(n)).collect();
        entries.sort_by_key(|e| (e.created, e.name.len(), e.name.clone()));
        Ok(entries)
    }

    fn entry(&self, name: String) -> Option<Entry> {
        let path = self.path.join(&name);
        entry_at(name, path)
    }

    /// The recording that a user means: a name in the home folder, `latest`, a path to a folder, or a packed file.
    pub fn resolve(&self, text: &str) -> Result<PathBuf> {
        let home = self.path.display();
        if text == LATEST {
            let link = self.path.join(LATEST);
            let latest = fs::read_link(&link).map(|target| self.path.join(target));
            return latest.ok().filter(|p| is_recording(p)).ok_or_else(|| {
                Error::new(Kind::Missing, format!("there is no recording in {home} yet; make one with `clew record`"))
            });
        }
        let inside = self.path.join(text);
        if is_plain(text) && is_recording(&inside) {
            return Ok(inside);
        }
        let path = Path::new(text);
        if !text.is_empty() && (is_recording(path) || is_pack(path)) {
            return Ok(path.to_owned());
        }
        Err(if !text.is_empty() && path.exists() {
            let what = "is neither the folder of a recording nor a packed one; `clew ls` lists the recordings";
            Error::new(Kind::WrongType, format!("{text} {what}"))
        } else {
            let what = format!("there is no recording `{text}`, neither in {home} nor as a path");
            Error::new(Kind::Missing, format!("{what}; `clew ls` lists the recordings"))
        })
    }

    /// Removes one recording and what only it had in the store. `name` is as for [`Home::resolve`]; a link to a
    /// recording that is not `latest` is left alone, and so is what it leads to.
    pub fn remove(&self, name: &str) -> Result<Removed> {
        let target;
        let mut name = name;
        if name == LATEST {
            target = self.resolve(LATEST)?;
            name = target.file_name().and_then(|n| n.to_str()).unwrap_or(LATEST);
        }
        let known = is_plain(name) && !name.starts_with('.');
        if let Some(entry) = known.then(|| self.entry(name.to_owned())).flatten() {
            self.remove_entry(&entry)?;
            self.tidy()?;
            return Ok(Removed { name: entry.name, bytes: entry.bytes });
        }
        self.remove_elsewhere(name)
    }

    /// A recording that was put elsewhere, or a packed one.
    fn remove_elsewhere(&self, text: &str) -> Result<Removed> {
        // Says what is wrong with the name, if anything is.
        let path = self.resolve(text)?;
        let usage = |m: fs::Metadata| if m.is_symlink() { None } else { Some(disk::usage(&m)) };
        let Some(bytes) = fs::symlink_metadata(&path).doing("remove", &path).map(usage)? else {
            let what = "is a link and not removed; name what it leads to";
            return Err(Error::new(Kind::WrongType, format!("{text} {what}")));
        };
        if is_pack(&path) {
            fs::remove_file(&path).doing("remove", &path)?;
            return Ok(Removed { name: text.to_owned(), bytes });
        }
        let place = fs::canonicalize(&path).doing("remove", &path)?;
        let entry = entry_at(text.to_owned(), place).filter(|e| !matches!(e.state, State::Damaged(_)));
        let entry = entry.ok_or_else(|| {
            let what = "is not removed because it is not certain to be a recording; remove it with `rm -r`";
            Error::new(Kind::WrongType, format!("{text} {what}"))
        })?;
        self.remove_entry(&entry)?;
        // What it shared with recordings at home may be garbage now.
        if self.path.is_dir() {
            self.tidy()?;
        }
        Ok(Removed { name: entry.name, bytes: entry.bytes })
    }

    /// Removes the recordings that were begun longer ago than this and are not being written.
    pub fn remove_older(&self, age: Duration) -> Result<Vec<Removed>> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let Some(limit) = now.checked_sub(age) else { return Ok(Vec::new()) };
        let old = self.list()?.into_iter().filter(|e| e.created < limit.as_secs() && removable(e));
        self.remove_all(old)
    }

    /// Removes the oldest recordings until all together take at most `cap` bytes. The one at `keep` stays, as do those
    /// that are being written.
    pub fn enforce_cap(&self, cap: u64, keep: &Path) -> Result<Vec<Removed>> {
        // Where there is room and nothing was left behind, as nearly always, to look at sizes is enough.
        let names = disk::names_if_any(&self.path).doing("read", &self.path)?;
        if !names.iter().any(|n| is_left_over(n)) && folder_bytes(&self.path) <= cap {
            return Ok(Vec::new());
        }
        let entries = self.list()?;
        let contents: Vec<Vec<Piece>> = entries.iter().map(|e| pieces(&e.path)).collect();
        // Contents that several recordings share count once, and become free with the last of them.
        let mut names: HashMap<(u64, u64), u32> = HashMap::new();
        let mut total = 0;
        for piece in contents.iter().flatten() {
            let count = names.entry(piece.inode).or_default();
            total += if *count == 0 { piece.bytes } else { 0 };
            *count += 1;
        }
        let keep = fs::canonicalize(keep).ok();
        let mut chosen = Vec::new();
        for (entry, pieces) in entries.into_iter().zip(contents) {
            if total <= cap {
                break;
            }
            if !removable(&entry) || fs::canonicalize(&entry.path).ok() == keep {
                continue;
            }
            for piece in pieces {
                let count = names.entry(piece.inode).or_default();
                *count -= 1;
                total -= if *count == 0 { piece.bytes } else { 0 };
            }
            chosen.push(entry);
        }
        self.remove_all(chosen.into_iter())
    }

    /// Removes contents from the store that no recording refers to, and what interrupted commands left behind. Says how
    /// many bytes of the store became free.
    pub fn collect_garbage(&self) -> Result<u64> {
        for name in disk::names(&self.path).doing("read", &self.path)? {
            let path = self.path.join(&name);
            if is_left_over(&name) && is_old(&path) && !disk::is_locked(&path.join(FILE)) {
                let _ = fs::remove_dir_all(&path);
            }
        }
        let place = self.path.join(crate::store::FOLDER);
        Store::open(&self.path).and_then(|store| store.collect()).doing("tidy", &place)
    }

    fn remove_all(&self, entries: impl Iterator<Item = Entry>) -> Result<Vec<Removed>> {
        let mut removed = Vec::new();
        for entry in entries {
            match self.remove_entry(&entry) {
                Ok(()) => removed.push(Removed { name: entry.name, bytes: entry.bytes }),
                // A recorder may have taken it, or somebody else removed it.
                Err(e) if matches!(e.kind, Kind::Busy | Kind::Missing | Kind::WrongType) => (),
                Err(e) => return Err(e),
            }
        }
        self.tidy()?;
        Ok(removed)
    }

    fn remove_entry(&self, entry: &Entry) -> Result<()> {
        let place = entry.path.display();
        if disk::is_locked(&entry.path.join(FILE)) {
            return Err(Error::new(Kind::Busy, format!("{place} is still being recorded; end that command first")));
        }
        for inside in fs::read_dir(&entry.path).doing("read", &entry.path)? {
            let foreign = inside.doing("read", &entry.path)?.file_name();
            if !OURS.iter().any(|ours| foreign == **ours) {
                let what = format!("{place} is not removed because {foreign:?} in it was not made by Clew");
                return Err(Error::new(Kind::WrongType, format!("{what}; remove that first")));
            }
        }
        // Renamed first, so that nobody meets it half removed.
        let gone = entry.path.with_file_name(unique(".gone"));
        fs::rename(&entry.path, &gone).doing("remove", &entry.path)?;
        fs::remove_dir_all(&gone).doing("remove", &gone)
    }

    /// What follows a removal: the store, and where `latest` leads.
    fn tidy(&self) -> Result<()> {
        self.collect_garbage()?;
        let link = self.path.join(LATEST);
        if fs::symlink_metadata(&link).is_ok() && !link.exists() {
            match self.list()?.pop() {
                Some(newest) => self.set_latest(&newest.name)?,
                None => fs::remove_file(&link).doing("remove", &link)?,
            }
        }
        Ok(())
    }
}

/// What lies there, if it is or was a recording.
fn entry_at(name: String, path: PathBuf) -> Option<Entry> {
    let folder = fs::symlink_metadata(&path).ok().filter(|m| m.is_dir())?;
    let file = path.join(FILE);
    let meta = match Meta::read(&path) {
        // Some other folder.
        Err(e) if e.kind == Kind::Missing && !path.join("units").is_dir() => return None,
        other => other,
    };
    let state = match &meta {
        _ if disk::is_locked(&file) => State::Writing,
        Ok(Meta { status: Some(status), .. }) => State::Ended(*status),
        Ok(_) => State::Interrupted,
        Err(e) => State::Damaged(e.message.clone()),
    };
    let bytes = folder_bytes(&path);
    let meta = meta.unwrap_or_else(|_| Meta { created: folder.mtime().max(0) as u64, ..Meta::default() });
    Some(Entry { name, path, created: meta.created, command: meta.command, bytes, state })
}

/// Automatic removal touches only what certainly is a recording and has no recorder.
fn removable(entry: &Entry) -> bool {
    matches!(entry.state, State::Ended(_) | State::Interrupted)
}

fn is_recording(path: &Path) -> bool {
    fs::symlink_metadata(path.join(FILE)).is_ok_and(|m| m.is_file())
}

fn is_old(path: &Path) -> bool {
    let modified = fs::symlink_metadata(path).and_then(|m| m.modified());
    modified.is_ok_and(|t| t.elapsed().is_ok_and(|age| age > LEFT_OVER))
}

/// The target of a rename is there.
fn taken(error: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, NotADirectory};
    matches!(error.kind(), AlreadyExists | DirectoryNotEmpty | NotADirectory)
}

/// A name that no other call and no other process uses.
fn unique(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (pid, n) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    format!("{prefix}-{pid}-{n}-{:x}", now.as_nanos())
}

/// A program's name as the beginning of a recording's: no folder, nothing that a shell or a terminal would mind.
fn stem(program: &str) -> String {
    let last = program.rsplit('/').find(|part| !part.is_empty()).unwrap_or("program");
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._+-".contains(c) { c } else { '_' };
    let mut stem: String = last.chars().take(64).map(plain).collect();
    if stem.starts_with(['.', '-']) {
        stem.replace_range(..1, "_");
    }
    stem
}

/// A file of a recording: bytes on disk, and what tells whether two names are one file.
struct Piece {
    inode: (u64, u64),
    bytes: u64,
}

fn pieces(folder: &Path) -> Vec<Piece> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        // What cannot be looked at is not counted.
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_dir() {
                open.push(entry.path());
            }
            found.push(Piece { inode: (meta.dev(), meta.ino()), bytes: disk::usage(&meta) });
        }
    }
    found
}

/// Is this the name of a folder that is being made or removed, or was when somebody was interrupted?
fn is_left_over(name: &str) -> bool {
    [".new-", ".gone-"].iter().any(|p| name.starts_with(p))
}

/// Bytes that a folder's files take on the disk.
pub fn folder_bytes(folder: &Path) -> u64 {
    pieces(folder).iter().map(|p| p.bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(program: &str, expected: &str) {
        assert_eq!(stem(program), expected);
    }

    #[test]
    fn programs_give_plain_names() {
        check("/usr/bin/ls", "ls");
        check("g++-12", "g++-12");
        check("my prog\n", "my_prog_");
        check("./.hidden", "_hidden");
        check("-x", "_x");
        check("", "program");
        check("/", "program");
        check("ärger", "_rger");
        check(&"a".repeat(300), &"a".repeat(64));
    }
}
