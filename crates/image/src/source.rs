//! Reading pieces of a file that must stay the same file.
//!
//! No descriptor is kept: an investigation may know hundreds of libraries, and each read is rare and large.
//! Instead every read opens the file again and compares its identity, so that pieces of two different files are never
//! mixed when a program is rebuilt in between.
//! Guarantee: nothing is allocated for bytes the file does not have.

use crate::error::{ImageError, ImageErrorKind};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Larger pieces are refused: no section that is of use here comes near, and a sparse file can claim any size.
const MAX_PIECE: u64 = 4 << 30;

/// A regular file, by path and identity.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    identity: Identity,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Identity {
    fn of(m: &Metadata) -> Identity {
        Identity { device: m.dev(), inode: m.ino(), size: m.size(), modified: (m.mtime(), m.mtime_nsec()) }
    }
}

impl Source {
    pub fn open(path: &Path) -> Result<(Source, File), ImageError> {
        let error = |kind| ImageError { path: path.to_path_buf(), kind };
        // Asked before opening: opening a pipe would wait for its other end.
        let metadata = std::fs::metadata(path).map_err(|e| error(ImageErrorKind::Io(e)))?;
        if !metadata.is_file() {
            return Err(error(ImageErrorKind::NotAFile));
        }
        let source = Source { path: path.to_path_buf(), identity: Identity::of(&metadata) };
        let file = source.reopen()?;
        Ok((source, file))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn len(&self) -> u64 {
        self.identity.size
    }

    /// Do both name one and the same file?
    pub fn same_file(&self, other: &Source) -> bool {
        (self.identity.device, self.identity.inode) == (other.identity.device, other.identity.inode)
    }

    /// Bytes `[offset, offset + size)`; an error when the file ends before.
    pub fn read(&self, offset: u64, size: u64) -> Result<Vec<u8>, ImageError> {
        if size == 0 {
            return Ok(Vec::new());
        }
        let end = offset.checked_add(size).ok_or_else(|| self.error(ImageErrorKind::Damaged("a range overflows")))?;
        if end > self.len() {
            return Err(self.error(ImageErrorKind::Damaged("a range lies beyond the end of the file")));
        }
        let too_large = || self.error(ImageErrorKind::Damaged("a section is implausibly large"));
        if size > MAX_PIECE {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(size as usize).map_err(|_| too_large())?;
        bytes.resize(size as usize, 0);
        self.reopen()?.read_exact_at(&mut bytes, offset).map_err(|e| self.error(ImageErrorKind::Io(e)))?;
        Ok(bytes)
    }

    /// Hands the whole file to `each` in pieces.
    pub fn scan(&self, mut each: impl FnMut(&[u8])) -> Result<(), ImageError> {
        let file = self.reopen()?;
        let mut buffer = vec![0; 1 << 16];
        let mut offset = 0;
        while offset < self.len() {
            match file.read_at(&mut buffer, offset) {
                Ok(0) => break,
                Ok(n) => {
                    each(&buffer[..n]);
                    offset += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.error(ImageErrorKind::Io(e))),
            }
        }
        Ok(())
    }

    pub fn error(&self, kind: ImageErrorKind) -> ImageError {
        ImageError { path: self.path.clone(), kind }
    }

    fn reopen(&self) -> Result<File, ImageError> {
        let opened = File::open(&self.path).and_then(|f| f.metadata().map(|m| (f, m)));
        let (file, metadata) = opened.map_err(|e| self.error(ImageErrorKind::Io(e)))?;
        if Identity::of(&metadata) != self.identity {
            return Err(self.error(ImageErrorKind::Changed));
        }
        Ok(file)
    }
}
