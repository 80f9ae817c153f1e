//! Why a session could not be started or followed.
//!
//! What the guest does is never an error: a crash, a refusal to load and an engine fault are outcomes of a run.

use std::{fmt, io};

/// Why a session could not be started or followed.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    source: io::Error,
}

/// What went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The engine's program could not be put into memory or into the given folder.
    MakeEngine,
    /// The engine's program is there but this system does not let it be executed from there.
    ExecuteEngine,
    /// Descriptors, sockets or threads that a session needs could not be made.
    Prepare,
    /// The working folder of the guest cannot be entered.
    Folder,
    /// An argument or environment entry contains a zero byte.
    ZeroByte,
    /// Arguments and environment are larger than the system allows.
    TooLarge,
    /// The recording cannot be used.
    Recording,
    /// A replay failed.
    Replay,
    /// What was asked for is not possible; nothing has changed.
    Refused,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, source: impl Into<io::Error>) -> Error {
        Error { kind, source: source.into() }
    }

    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            ErrorKind::MakeEngine => "cannot make the engine's program",
            ErrorKind::ExecuteEngine => "this system does not let the engine's program be executed",
            ErrorKind::Prepare => "cannot prepare the run",
            ErrorKind::Folder => "cannot enter the working folder",
            ErrorKind::ZeroByte => "an argument contains a zero byte",
            ErrorKind::TooLarge => "arguments and environment are too large",
            ErrorKind::Recording => "the recording cannot be used",
            ErrorKind::Replay => "the replay failed",
            ErrorKind::Refused => return write!(f, "{}", self.source),
        };
        write!(f, "{what}: {}", self.source)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
