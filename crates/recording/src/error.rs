//! What can go wrong, as one sentence each: what, where, and what to do about it.

use std::fmt;
use std::io;
use std::path::Path;

use crate::disk;

pub type Result<T> = std::result::Result<T, Error>;

/// What an [`Error`] is about, for callers that decide by it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// It is not there.
    Missing,
    /// Something is already there.
    Exists,
    /// It is there, but is something else.
    WrongType,
    /// It was made by another version.
    Version,
    /// Its content is not as it was written.
    Damaged,
    /// The disk or the quota is full.
    Full,
    /// It is still being written.
    Busy,
    /// A name that cannot be used here.
    BadName,
    /// It is a packed file and must be unpacked first.
    Packed,
    /// The system refused.
    Io,
}

/// One clear sentence and its kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    pub kind: Kind,
    pub message: String,
}

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into() }
    }

    /// Something about a file or folder failed; `doing` completes "cannot …".
    pub(crate) fn io(doing: &str, path: &Path, error: &io::Error) -> Error {
        let (kind, advice) = match error.kind() {
            _ if disk::is_full(error) => (Kind::Full, "; make room on that disk, for instance with `clew rm`"),
            io::ErrorKind::NotFound => (Kind::Missing, ""),
            io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty => (Kind::Exists, ""),
            io::ErrorKind::PermissionDenied => (Kind::Io, "; it must belong to you and be writable"),
            _ => (Kind::Io, ""),
        };
        Error::new(kind, format!("cannot {doing} {}: {}{advice}", path.display(), plain(error)))
    }
}

/// The system's own words without the number that `std` appends.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Turns an `io::Result` into ours, saying what was done to what.
pub(crate) trait Doing<T> {
    fn doing(self, what: &str, path: &Path) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: &str, path: &Path) -> Result<T> {
        self.map_err(|e| Error::io(what, path, &e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(error: io::Error, kind: Kind, message: &str) {
        assert_eq!(Error::io("write", Path::new("/a/b"), &error), Error::new(kind, message));
    }

    #[test]
    fn a_sentence_says_what_where_and_what_to_do() {
        let full = io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error());
        let advice = "; make room on that disk, for instance with `clew rm`";
        check(full, Kind::Full, &format!("cannot write /a/b: no space left on device{advice}"));
        let missing = io::Error::from_raw_os_error(rustix::io::Errno::NOENT.raw_os_error());
        check(missing, Kind::Missing, "cannot write /a/b: no such file or directory");
        check(io::Error::other("it is odd"), Kind::Io, "cannot write /a/b: it is odd");
    }
}
