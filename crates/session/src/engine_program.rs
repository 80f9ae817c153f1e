//! The engine's executable, as a descriptor from which it can be started any number of times.
//!
//! Normally it lies in a sealed memfd: nothing is written to disk and no guest can alter it. Where memfds may not be
//! executed (`vm.memfd_noexec=2`, some sandboxes) a file in a folder of the caller's choice serves; it is named after its
//! content, so that versions live side by side and a stale or damaged file is never used.

use crate::error::{Error, ErrorKind};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use std::fs::{DirBuilder, File};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// The engine's executable.
#[derive(Debug)]
pub struct EngineProgram {
    fd: OwnedFd,
    /// Where the engines of this host leave translations for each other; without it they make their own.
    translations: Option<OwnedFd>,
}

impl EngineProgram {
    /// Puts the program into memory.
    pub fn in_memory(bytes: &[u8]) -> Result<EngineProgram, Error> {
        memory_file("clew-engine", bytes, true)
            .map(EngineProgram::new)
            .map_err(|e| Error::new(ErrorKind::MakeEngine, e))
    }

    /// Puts the program into a file in `folder`, which is made if it is missing.
    pub fn in_folder(bytes: &[u8], folder: &Path) -> Result<EngineProgram, Error> {
        file_in_folder(bytes, folder).map(EngineProgram::new).map_err(|e| Error::new(ErrorKind::MakeEngine, e))
    }

    fn new(fd: OwnedFd) -> EngineProgram {
        EngineProgram { fd, translations: translations().ok() }
    }

    pub(crate) fn translations(&self) -> Option<BorrowedFd<'_>> {
        self.translations.as_ref().map(AsFd::as_fd)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A memfd with `bytes`, close-on-exec, above the standard descriptors, positioned at its start.
pub(crate) fn memory_file(name: &str, bytes: &[u8], executable: bool) -> io::Result<OwnedFd> {
    let base = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know either flag and refuse both; there every memfd is executable.
    let kind = if executable { MemfdFlags::EXEC } else { MemfdFlags::NOEXEC_SEAL };
    let fd = match rustix::fs::memfd_create(name, base | kind) {
        Err(rustix::io::Errno::INVAL) => rustix::fs::memfd_create(name, base)?,
        other => other?,
    };
    let mut file = File::from(above_stdio(fd)?);
    file.write_all(bytes)?;
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}

/// A file in memory that is longer than it will ever be filled.
fn translations() -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create("clew-translations", MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&fd, 2 << 30)?;
    above_stdio(fd)
}

/// A close-on-exec descriptor of the same file that is not one of the three standard ones.
///
/// When the host itself was started with a standard descriptor closed, a new one would land there and the guest would
/// see it as its own.
pub(crate) fn above_stdio(fd: OwnedFd) -> io::Result<OwnedFd> {
    use std::os::fd::AsRawFd;
    if fd.as_raw_fd() > 2 { Ok(fd) } else { Ok(rustix::io::fcntl_dupfd_cloexec(&fd, 3)?) }
}

fn file_in_folder(bytes: &[u8], folder: &Path) -> io::Result<OwnedFd> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut hash = DefaultHasher::new();
    hash.write(bytes);
    let name = format!("engine-{:016x}", hash.finish());
    let path = folder.join(&name);
    if let Some(fd) = open_if_same(&path, bytes)? {
        return Ok(fd);
    }
    // Written beside and renamed, so that a concurrent start sees the whole file or none.
    let fresh = folder.join(format!("{name}.{}.{:?}", std::process::id(), std::thread::current().id()));
    let written = write_executable(&fresh, bytes).and_then(|()| std::fs::rename(&fresh, &path));
    if let Err(e) = written {
        // The first error is the one to tell; what is left behind is only an unused file.
        let _ = std::fs::remove_file(&fresh);
        return Err(e);
    }
    open_if_same(&path, bytes)?.ok_or_else(|| io::Error::other("the file changed while it was being written"))
}

fn write_executable(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(path, flags, Mode::RWXU)?);
    file.write_all(bytes)?;
    file.sync_all()
}

fn open_if_same(path: &Path, bytes: &[u8]) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => File::from(above_stdio(fd)?),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let mut found = Vec::with_capacity(bytes.len());
    file.read_to_end(&mut found)?;
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
    Ok((found == bytes).then(|| file.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(fd: BorrowedFd<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        File::from(fd.try_clone_to_owned().unwrap()).read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_memory_file_starts_at_its_beginning_and_cannot_be_changed() {
        let fd = memory_file("t", b"abc", false).unwrap();
        assert_eq!(contents(fd.as_fd()), b"abc");
        assert!(rustix::io::pwrite(&fd, b"x", 0).is_err(), "the file is sealed");
    }

    #[test]
    fn a_damaged_file_in_the_folder_is_replaced() {
        let folder = std::env::temp_dir().join(format!("clew-engine-program-{}", std::process::id()));
        let first = EngineProgram::in_folder(b"program", &folder).unwrap();
        assert_eq!(contents(first.fd()), b"program");
        let path = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
        std::fs::write(&path, b"damaged").unwrap();
        let second = EngineProgram::in_folder(b"program", &folder).unwrap();
        assert_eq!(contents(second.fd()), b"program");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
