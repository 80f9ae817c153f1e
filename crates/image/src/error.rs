//! Why an image could not be opened.

use std::{fmt, io, path::PathBuf};

/// Why a file is of no use as an image.
///
/// Damage inside the debug information is not an error: answers become less precise instead.
#[derive(Debug)]
pub struct ImageError {
    pub path: PathBuf,
    pub kind: ImageErrorKind,
}

/// What went wrong, apart from where.
#[derive(Debug)]
#[non_exhaustive]
pub enum ImageErrorKind {
    /// The operating system refused to open or read the file.
    Io(io::Error),
    /// A directory, device, pipe or socket.
    NotAFile,
    /// The file is not the one it was when the image was opened.
    Changed,
    NotElf,
    /// An ELF file for another machine; says which property is foreign.
    Foreign(&'static str),
    /// The file ends too early or contradicts itself; says what was expected.
    Damaged(&'static str),
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.kind {
            ImageErrorKind::Io(e) => write!(f, "cannot read {path}: {e}"),
            ImageErrorKind::NotAFile => write!(f, "{path} is not a regular file"),
            ImageErrorKind::Changed => write!(f, "{path} was replaced while it was being read"),
            ImageErrorKind::NotElf => write!(f, "{path} is not an ELF file"),
            ImageErrorKind::Foreign(what) => write!(f, "{path} is not an x86-64 ELF file: {what}"),
            ImageErrorKind::Damaged(expected) => write!(f, "{path} is damaged: {expected}"),
        }
    }
}

impl std::error::Error for ImageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ImageErrorKind::Io(e) => Some(e),
            _ => None,
        }
    }
}
