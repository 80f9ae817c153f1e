//! Files of the recorded machine, for a gdb that looks for programs, libraries and debug information there.
//!
//! `set sysroot target:`, gdb's default, makes it read every file through us, so it sees the bytes that were recorded
//! and not what a later build has put in their place. Only files that the debuggee gives can be read; nothing can be
//! written. At most [`MAX_OPEN`] are open at a time.

use std::{collections::BTreeMap, fs::File, io, os::unix::fs::FileExt};

use gdbstub::target::ext::host_io::{
    FsKind, HostIo, HostIoClose, HostIoCloseOps, HostIoErrno, HostIoError, HostIoFstat, HostIoFstatOps, HostIoOpen,
    HostIoOpenFlags, HostIoOpenMode, HostIoOpenOps, HostIoPread, HostIoPreadOps, HostIoResult, HostIoSetfs,
    HostIoSetfsOps, HostIoStat,
};

use crate::{debuggee::HostFile, target::Adapter, wire::PACKET_SIZE};

const MAX_OPEN: usize = 256;
/// As much as one answer can hold when every byte has to be escaped.
const MAX_READ: usize = PACKET_SIZE / 2 - 16;

/// The files that the client has open.
#[derive(Default)]
pub struct OpenFiles {
    open: BTreeMap<u32, Content>,
}

enum Content {
    File { file: File, size: u64 },
    Bytes(Vec<u8>),
}

impl Content {
    fn of(file: HostFile) -> io::Result<Content> {
        match file {
            HostFile::Bytes(bytes) => Ok(Content::Bytes(bytes)),
            HostFile::Path(path) => {
                let file = File::open(path)?;
                let meta = file.metadata()?;
                // A pipe or a device would make us wait for it.
                match meta.is_file() {
                    true => Ok(Content::File { file, size: meta.len() }),
                    false => Err(io::ErrorKind::InvalidInput.into()),
                }
            }
        }
    }

    fn size(&self) -> u64 {
        match self {
            Content::File { size, .. } => *size,
            Content::Bytes(bytes) => bytes.len() as u64,
        }
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Content::File { file, .. } => file.read_at(into, offset),
            Content::Bytes(bytes) => {
                let rest = usize::try_from(offset).ok().and_then(|o| bytes.get(o..)).unwrap_or_default();
                let n = rest.len().min(into.len());
                into[..n].copy_from_slice(&rest[..n]);
                Ok(n)
            }
        }
    }
}

fn errno<T, E>(code: HostIoErrno) -> Result<T, HostIoError<E>> {
    Err(HostIoError::Errno(code))
}

impl HostIo for Adapter<'_> {
    fn support_open(&mut self) -> Option<HostIoOpenOps<'_, Self>> {
        Some(self)
    }

    fn support_close(&mut self) -> Option<HostIoCloseOps<'_, Self>> {
        Some(self)
    }

    fn support_pread(&mut self) -> Option<HostIoPreadOps<'_, Self>> {
        Some(self)
    }

    fn support_fstat(&mut self) -> Option<HostIoFstatOps<'_, Self>> {
        Some(self)
    }

    fn support_setfs(&mut self) -> Option<HostIoSetfsOps<'_, Self>> {
        Some(self)
    }
}

impl HostIoOpen for Adapter<'_> {
    fn open(&mut self, filename: &[u8], flags: HostIoOpenFlags, _mode: HostIoOpenMode) -> HostIoResult<u32, Self> {
        let writes = HostIoOpenFlags::O_WRONLY | HostIoOpenFlags::O_RDWR | HostIoOpenFlags::O_CREAT;
        if flags.intersects(writes | HostIoOpenFlags::O_TRUNC | HostIoOpenFlags::O_APPEND) {
            return errno(HostIoErrno::EROFS);
        }
        let Ok(path) = std::str::from_utf8(filename) else { return errno(HostIoErrno::ENOENT) };
        let Some(file) = self.debuggee.borrow_mut().file(path) else { return errno(HostIoErrno::ENOENT) };
        let open = &mut self.files.open;
        if open.len() >= MAX_OPEN {
            return errno(HostIoErrno::EMFILE);
        }
        let content = Content::of(file).map_err(HostIoError::from)?;
        let descriptor = (1..).find(|n| !open.contains_key(n)).unwrap_or(u32::MAX);
        open.insert(descriptor, content);
        Ok(descriptor)
    }
}

impl HostIoClose for Adapter<'_> {
    fn close(&mut self, fd: u32) -> HostIoResult<(), Self> {
        self.files.open.remove(&fd).map(drop).ok_or(HostIoError::Errno(HostIoErrno::EBADF))
    }
}

impl HostIoPread for Adapter<'_> {
    fn pread(&mut self, fd: u32, count: usize, offset: u64, buf: &mut [u8]) -> HostIoResult<usize, Self> {
        let Some(content) = self.files.open.get(&fd) else { return errno(HostIoErrno::EBADF) };
        let n = count.min(buf.len()).min(MAX_READ);
        Ok(content.read_at(offset, &mut buf[..n])?)
    }
}

impl HostIoFstat for Adapter<'_> {
    fn fstat(&mut self, fd: u32) -> HostIoResult<HostIoStat, Self> {
        let Some(content) = self.files.open.get(&fd) else { return errno(HostIoErrno::EBADF) };
        Ok(HostIoStat {
            st_dev: 0,
            st_ino: fd,
            st_mode: HostIoOpenMode::S_IFREG | HostIoOpenMode::S_IRUSR,
            st_nlink: 1,
            st_uid: 0,
            st_gid: 0,
            st_rdev: 0,
            st_size: content.size(),
            st_blksize: 4096,
            st_blocks: content.size().div_ceil(512),
            st_atime: 0,
            st_mtime: 0,
            st_ctime: 0,
        })
    }
}

impl HostIoSetfs for Adapter<'_> {
    /// There is one file system: the recorded one.
    fn setfs(&mut self, _fs: FsKind) -> HostIoResult<(), Self> {
        Ok(())
    }
}
