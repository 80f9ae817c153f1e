//! Packs, read: what they embed, and back into a folder.
//!
//! Guarantees: a pack is unpacked whole and as it was, or not at all. It may come from anybody: names are checked, only
//! plain files and folders are made, and lengths are bounded before memory is reserved for them.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use model::log::digest;

use crate::disk;
use crate::error::{Doing, Error, Kind, Result};
use crate::meta::FILE;
use crate::pack::{
    BLOCK_HEADER, END_MAGIC, ENTRY, ENTRY_HEADER, HEADER, INDEX, MAGIC, MAX_BLOCK, MAX_NAME, PackEntry, PackSummary,
    TRAILER, VERSION, block_header, is_allowed,
};

/// No list of contents is longer.
const MAX_INDEX: u64 = 256 << 20;

/// Whether this is a packed recording, by its first bytes.
pub fn is_pack(path: &Path) -> bool {
    let mut head = [0; 8];
    let is_file = fs::metadata(path).is_ok_and(|m| m.is_file());
    is_file && File::open(path).and_then(|mut f| f.read_exact(&mut head)).is_ok() && head == MAGIC
}

/// What a pack embeds, from the list at its end.
pub fn pack_contents(pack: &Path) -> Result<PackSummary> {
    let mut file = File::open(pack).doing("open", pack)?;
    begin(&mut file, pack)?;
    let (bytes, at, index) = read_index(&mut file).doing("read", pack)?.map_err(|why| damaged(pack, why))?;
    let entries = parse_index(&index, at).ok_or_else(|| damaged(pack, "its list of contents does not parse"))?;
    Ok(PackSummary { entries: entries.into_iter().map(|(_, e)| e).collect(), bytes, skipped: Vec::new() })
}

/// Unpacks into a folder, which must be empty or not exist. On failure nothing is left there.
pub fn unpack(pack: &Path, into: &Path) -> Result<PackSummary> {
    let mut file = File::open(pack).doing("open", pack)?;
    begin(&mut file, pack)?;
    let made = match disk::private_folder(into) {
        Ok(()) => true,
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            if fs::read_dir(into).doing("unpack into", into)?.next().is_some() {
                let what = format!("{} is not empty; name a new folder to unpack into", into.display());
                return Err(Error::new(Kind::Exists, what));
            }
            false
        }
        Err(e) => return Err(Error::io("make the folder", into, &e)),
    };
    let input = BufReader::with_capacity(1 << 20, file);
    write_all(input, pack, into).inspect_err(|_| {
        for name in [FILE, "units", "files", "extra"] {
            let path = into.join(name);
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
        if made {
            let _ = fs::remove_dir(into);
        }
    })
}

fn damaged(pack: &Path, why: impl std::fmt::Display) -> Error {
    let what = format!("the pack {} is damaged: {why}; get it again from where it was made", pack.display());
    Error::new(Kind::Damaged, what)
}

fn write_all(input: impl Read + Seek, pack: &Path, into: &Path) -> Result<PackSummary> {
    let folder =
        |path: &Path| fs::DirBuilder::new().recursive(true).mode(0o700).create(path).doing("make the folder", path);
    // A recording has these even when they are empty.
    for name in ["units", "files"] {
        folder(&into.join(name))?;
    }
    let mut current: Option<(String, File)> = None;
    extract(input, pack, |name, bytes| {
        let path = into.join(name);
        let file = match &mut current {
            Some((open, file)) if open == name => file,
            current => {
                path.parent().map_or(Ok(()), folder)?;
                let file = disk::create_private(&path).doing("write", &path)?;
                &mut current.insert((name.to_owned(), file)).1
            }
        };
        file.write_all(bytes).doing("write", &path)
    })
}

/// Calls `write` with the pieces of every entry in order, at least once for each; `pack` is for sentences.
pub(crate) fn extract(
    input: impl Read + Seek,
    pack: &Path,
    write: impl FnMut(&str, &[u8]) -> Result<()>,
) -> Result<PackSummary> {
    Unpacker { input, pack, write, offset: 0 }.all()
}

/// Checks the first bytes.
fn begin(file: &mut impl Read, pack: &Path) -> Result<()> {
    let mut header = [0; HEADER];
    let read = file.read_exact(&mut header);
    if read.is_err() || header[..8] != MAGIC {
        return Err(Error::new(Kind::WrongType, format!("{} is not a packed recording", pack.display())));
    }
    let version = u32_at(&header, 8);
    if version != VERSION {
        let what = format!("{} is a pack of format version {version}", pack.display());
        return Err(Error::new(Kind::Version, format!("{what}, and this Clew reads version {VERSION}")));
    }
    if header[12..] != [0; 4] {
        return Err(damaged(pack, "its first bytes were changed"));
    }
    Ok(())
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| b[at + i]))
}

fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| b[at + i]))
}

/// The length of the pack, the offset of its list of contents, and that list.
type Index = (u64, u64, Vec<u8>);

/// Finds the list of contents from the end.
fn read_index(file: &mut (impl Read + Seek)) -> io::Result<std::result::Result<Index, &'static str>> {
    let bytes = file.seek(SeekFrom::End(0))?;
    let Some(end) = bytes.checked_sub(TRAILER as u64) else { return Ok(Err("it is cut")) };
    file.seek(SeekFrom::Start(end))?;
    let mut trailer = [0; TRAILER];
    file.read_exact(&mut trailer)?;
    let at = u64_at(&trailer, 0);
    if trailer[16..] != END_MAGIC {
        return Ok(Err("it is cut"));
    }
    if at > end || end - at > MAX_INDEX {
        return Ok(Err("its list of contents is not where it should be"));
    }
    file.seek(SeekFrom::Start(at))?;
    let mut index = Vec::new();
    file.take(end - at).read_to_end(&mut index)?;
    let as_written = digest(0, &index) == u64_at(&trailer, 8);
    Ok(if as_written { Ok((bytes, at, index)) } else { Err("its list of contents was changed") })
}

/// The entries and their offsets; `end` is where the index begins.
fn parse_index(index: &[u8], end: u64) -> Option<Vec<(u64, PackEntry)>> {
    let (magic, mut rest) = index.split_at_checked(4)?;
    let mut take = |n: usize| {
        let (head, tail) = rest.split_at_checked(n)?;
        rest = tail;
        Some(head)
    };
    if magic != INDEX {
        return None;
    }
    let count = u32_at(take(4)?, 0);
    let mut entries = Vec::new();
    for _ in 0..count {
        let length = u32_at(take(4)?, 0) as usize;
        let name = std::str::from_utf8(take(length)?).ok()?.to_owned();
        let numbers = take(24)?;
        let (offset, bytes, stored) = (u64_at(numbers, 0), u64_at(numbers, 8), u64_at(numbers, 16));
        if !is_allowed(&name) || offset.checked_add(stored)? > end {
            return None;
        }
        entries.push((offset, PackEntry { name, bytes, stored }));
    }
    rest.is_empty().then_some(entries)
}

struct Unpacker<'a, R, W> {
    input: R,
    pack: &'a Path,
    write: W,
    offset: u64,
}

impl<R: Read + Seek, W: FnMut(&str, &[u8]) -> Result<()>> Unpacker<'_, R, W> {
    fn all(&mut self) -> Result<PackSummary> {
        // The trailer first: a pack that was cut is refused before anything is written.
        let found = read_index(&mut self.input).doing("read", self.pack)?;
        let (bytes, at, index) = found.map_err(|why| self.damaged(why))?;
        let expected = parse_index(&index, at).ok_or_else(|| self.damaged("its list of contents does not parse"))?;
        self.input.rewind().doing("read", self.pack)?;
        begin(&mut self.input, self.pack)?;
        self.offset = HEADER as u64;
        let mut names = HashSet::new();
        for (offset, entry) in &expected {
            if *offset != self.offset || !names.insert(&entry.name) {
                return Err(self.damaged("its list of contents does not fit"));
            }
            self.entry(entry)?;
        }
        if self.offset != at || !expected.iter().any(|(_, e)| e.name == FILE) {
            return Err(self.damaged("its list of contents does not fit"));
        }
        let entries = expected.into_iter().map(|(_, e)| e).collect();
        Ok(PackSummary { entries, bytes, skipped: Vec::new() })
    }

    fn damaged(&self, why: impl std::fmt::Display) -> Error {
        damaged(self.pack, why)
    }

    /// The next entry, which must be the one that the list of contents says.
    fn entry(&mut self, expected: &PackEntry) -> Result<()> {
        let header = self.take::<ENTRY_HEADER>()?;
        let (length, bytes) = (u32_at(&header, 4) as usize, u64_at(&header, 8));
        if header[..4] != ENTRY || length > MAX_NAME || bytes != expected.bytes {
            return Err(self.damaged(format_args!("the entry {} does not begin as it should", expected.name)));
        }
        let name = self.bytes(length)?;
        if name != expected.name.as_bytes() || digest(digest(0, &header[..16]), &name) != u64_at(&header, 16) {
            return Err(self.damaged(format_args!("the entry {} does not begin as it should", expected.name)));
        }
        (self.write)(&expected.name, &[])?;
        let mut hasher = blake3::Hasher::new();
        let mut left = bytes;
        while left > 0 {
            let raw = self.block(left, &expected.name)?;
            hasher.update(&raw);
            (self.write)(&expected.name, &raw)?;
            left -= raw.len() as u64;
        }
        if self.take::<32>()? != *hasher.finalize().as_bytes() {
            return Err(self.damaged(format_args!("the entry {} was changed", expected.name)));
        }
        Ok(())
    }

    fn block(&mut self, left: u64, name: &str) -> Result<Vec<u8>> {
        let header = self.take::<BLOCK_HEADER>()?;
        let (raw, stored) = (u32_at(&header, 0) as usize, u32_at(&header, 4) as usize);
        if raw == 0 || raw > MAX_BLOCK || raw as u64 > left || stored > raw {
            return Err(self.damaged(format_args!("the entry {name} has a block of an impossible length")));
        }
        let data = self.bytes(stored)?;
        if block_header(raw, &data) != header {
            return Err(self.damaged(format_args!("the entry {name} was changed")));
        }
        if stored == raw {
            return Ok(data);
        }
        match zstd::bulk::decompress(&data, raw) {
            Ok(bytes) if bytes.len() == raw => Ok(bytes),
            _ => Err(self.damaged(format_args!("the entry {name} cannot be decompressed"))),
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes).map_err(|e| self.read_error(&e))?;
        self.offset += N as u64;
        Ok(bytes)
    }

    fn bytes(&mut self, n: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; n];
        self.input.read_exact(&mut bytes).map_err(|e| self.read_error(&e))?;
        self.offset += n as u64;
        Ok(bytes)
    }

    fn read_error(&self, error: &io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged("it is cut"),
            _ => Error::io("read", self.pack, error),
        }
    }
}
