//! Files the way recordings need them: private, written whole or not at all, and never reached through a link.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags};

/// The disk or the quota is full.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Opens a regular file for reading. A recording may come from somebody else, so links are refused, and a pipe does not
/// make the reader wait.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

/// Reads a whole file that must not be longer than `limit`.
pub fn read_limited(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::other(format!("it is longer than {limit} bytes")));
    }
    Ok(bytes)
}

/// A new private file; fails if the name is taken.
pub fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// A new private folder; its parent must exist.
pub fn private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Makes or replaces a file in one step and gives it back locked for as long as it is open. The lock is taken before the
/// name changes over, so that at no moment the name leads to an unlocked file.
pub fn replace_locked(path: &Path, beside: &Path, bytes: &[u8]) -> io::Result<File> {
    let replaces = fs::symlink_metadata(path).is_ok();
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(beside)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        file.write_all(bytes)?;
        if replaces {
            // Without this a power cut could leave the name with nothing in it. A file that is new has nothing to lose, and
            // whoever waits for the disk here has not begun yet.
            file.sync_data()?;
        }
        fs::rename(beside, path)?;
        Ok(file)
    })();
    if written.is_err() {
        // Nothing refers to it; if it stays, the next attempt writes over it.
        let _ = fs::remove_file(beside);
    }
    written
}

/// Whether some process holds the lock of this file.
pub fn is_locked(path: &Path) -> bool {
    let Ok(file) = open_regular(path) else { return false };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => false,
        Err(e) => e == rustix::io::Errno::WOULDBLOCK,
    }
}

/// Bytes that a file takes on the disk; a raw segment is longer than what is in it.
pub fn usage(meta: &Metadata) -> u64 {
    meta.blocks() * 512
}

/// Names in a folder, sorted; names that are not UTF-8 are none of ours.
pub fn names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        if let Ok(name) = entry?.file_name().into_string() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Like [`names`], but a folder that is not there has none.
pub fn names_if_any(folder: &Path) -> io::Result<Vec<String>> {
    match names(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}
