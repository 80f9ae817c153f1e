//! Packs: a whole recording in one portable file, with the debug information and sources it is given.
//!
//! ```text
//! pack    = magic "CLEWPACK" · u32 version · u32 0, entry …, index, trailer
//! entry   = u32 "ENTR" · u32 name bytes · u64 raw bytes · u64 check, name, block …, blake3 of the raw bytes (32 bytes)
//! block   = u32 raw bytes · u32 stored bytes · u64 check, stored bytes
//! index   = u32 "INDX" · u32 entries, then of each: u32 name bytes, name, u64 offset · u64 raw bytes · u64 stored bytes
//! trailer = u64 offset of the index · u64 digest of the index · magic "CLEWPEND"
//! ```
//! A block holds up to 4 MiB; it is one zstd frame, or the bytes themselves where both lengths are equal. The trailer
//! is written last, so a pack that was cut is known as such.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use model::log::{SEGMENT_HEADER, digest};

use crate::disk;
use crate::error::{Doing, Error, Kind, Result};
use crate::meta::{FILE, Meta};
use crate::name::{UnitFile, is_plain};
use crate::segment;

pub(crate) const MAGIC: [u8; 8] = *b"CLEWPACK";
pub(crate) const END_MAGIC: [u8; 8] = *b"CLEWPEND";
pub(crate) const VERSION: u32 = 1;
pub(crate) const ENTRY: [u8; 4] = *b"ENTR";
pub(crate) const INDEX: [u8; 4] = *b"INDX";
pub(crate) const HEADER: usize = 16;
pub(crate) const ENTRY_HEADER: usize = 24;
pub(crate) const BLOCK_HEADER: usize = 16;
pub(crate) const TRAILER: usize = 24;
pub(crate) const MAX_BLOCK: usize = 4 << 20;
/// No name is longer.
pub(crate) const MAX_NAME: usize = 4096;
/// Packs are made once and sent around, so they may take a little longer than logs.
const LEVEL: i32 = 3;

/// One file in a pack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PackEntry {
    pub name: String,
    pub bytes: u64,
    /// Bytes that it takes in the pack.
    pub stored: u64,
}

/// What a pack embeds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PackSummary {
    pub entries: Vec<PackEntry>,
    /// Bytes of the pack itself.
    pub bytes: u64,
    /// Extra files that could not be read, and why.
    pub skipped: Vec<(String, String)>,
}

/// Puts the recording in `folder` into the new file `out`. `extra` are further files and the names they get below
/// `extra/`; one that cannot be read is skipped and named in the summary.
pub fn pack(folder: &Path, out: &Path, extra: Vec<(String, PathBuf)>) -> Result<PackSummary> {
    Meta::read(folder)?;
    if fs::symlink_metadata(out).is_ok() {
        let what = format!("{} exists already; remove it or name another file", out.display());
        return Err(Error::new(Kind::Exists, what));
    }
    let mut part = out.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    // One left by a pack that was killed is of no use.
    let _ = fs::remove_file(&part);
    let file = disk::create_private(&part).doing("write", &part)?;
    let written = Packer::new(file, &part).and_then(|packer| packer.all(folder, extra));
    let renamed = written.and_then(|summary| {
        fs::rename(&part, out).doing("write", out)?;
        Ok(summary)
    });
    renamed.inspect_err(|_| {
        let _ = fs::remove_file(&part);
    })
}

struct Packer<'a> {
    out: BufWriter<File>,
    place: &'a Path,
    offset: u64,
    index: Vec<u8>,
    names: HashSet<String>,
    summary: PackSummary,
}

impl Packer<'_> {
    fn new(file: File, place: &Path) -> Result<Packer<'_>> {
        let mut packer = Packer {
            out: BufWriter::with_capacity(1 << 20, file),
            place,
            offset: 0,
            index: Vec::new(),
            names: HashSet::new(),
            summary: PackSummary::default(),
        };
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        packer.write(&header)?;
        Ok(packer)
    }

    fn all(mut self, folder: &Path, extra: Vec<(String, PathBuf)>) -> Result<PackSummary> {
        self.file(FILE, &folder.join(FILE))?;
        for part in ["units", "files"] {
            let inside = folder.join(part);
            for name in disk::names_if_any(&inside).doing("read", &inside)? {
                let path = inside.join(&name);
                let ours = part == "files" || UnitFile::parse(&name).is_some();
                if ours && fs::symlink_metadata(&path).is_ok_and(|m| m.is_file()) {
                    self.file(&format!("{part}/{name}"), &path)?;
                }
            }
        }
        for (name, path) in extra {
            let name = format!("extra/{}", name.trim_start_matches('/'));
            self.extra(name, &path)?;
        }
        // A recording that was unpacked brings along what its pack had.
        for (name, path) in tree(&folder.join("extra"), "extra") {
            self.extra(name, &path)?;
        }
        self.finish()
    }

    /// An extra file that cannot be read must not spoil the pack; one that cannot be written must.
    fn extra(&mut self, name: String, path: &Path) -> Result<()> {
        let opened = if is_allowed(&name) {
            // Unlike the recording's own files these are the user's, and may well be links.
            fs::canonicalize(path).and_then(|p| disk::open_regular(&p)).map_err(|e| e.to_string())
        } else {
            Err("its name leads out of the pack or is too long".to_owned())
        };
        match opened {
            Ok(file) => {
                let length = file.metadata().doing("read", path)?.len();
                self.entry(&name, path, file, length)
            }
            Err(why) => {
                self.summary.skipped.push((name, why));
                Ok(())
            }
        }
    }

    /// A file of the recording. Of a raw segment only what is committed is taken, not the room behind it.
    fn file(&mut self, name: &str, path: &Path) -> Result<()> {
        let file = disk::open_regular(path).doing("read", path)?;
        let mut length = file.metadata().doing("read", path)?.len();
        if name.ends_with(".raw") {
            let mut head = Vec::new();
            (&file).take(SEGMENT_HEADER as u64).read_to_end(&mut head).doing("read", path)?;
            if let Ok(Some(header)) = segment::Header::decode(&head) {
                length = length.min(SEGMENT_HEADER as u64 + header.committed);
            }
            io::Seek::rewind(&mut &file).doing("read", path)?;
        }
        self.entry(name, path, file, length)
    }

    fn entry(&mut self, name: &str, path: &Path, file: File, length: u64) -> Result<()> {
        if !self.names.insert(name.to_owned()) {
            return Ok(());
        }
        let offset = self.offset;
        self.write(&entry_header(name, length))?;
        let mut hasher = blake3::Hasher::new();
        let mut file = file.take(length);
        let mut raw = Vec::new();
        let mut left = length;
        while left > 0 {
            raw.clear();
            file.by_ref().take(MAX_BLOCK as u64).read_to_end(&mut raw).doing("read", path)?;
            if raw.is_empty() {
                let what = format!("{} became shorter while it was packed; try again", path.display());
                return Err(Error::new(Kind::Busy, what));
            }
            hasher.update(&raw);
            self.block(&raw)?;
            left -= raw.len() as u64;
        }
        self.write(hasher.finalize().as_bytes())?;
        let stored = self.offset - offset;
        put_name(&mut self.index, name);
        for n in [offset, length, stored] {
            self.index.extend_from_slice(&n.to_le_bytes());
        }
        self.summary.entries.push(PackEntry { name: name.to_owned(), bytes: length, stored });
        Ok(())
    }

    fn block(&mut self, raw: &[u8]) -> Result<()> {
        let compressed = zstd::bulk::compress(raw, LEVEL).doing("compress into", self.place)?;
        let stored = if compressed.len() < raw.len() { &compressed[..] } else { raw };
        self.write(&block_header(raw.len(), stored))?;
        self.write(stored)
    }

    fn finish(mut self) -> Result<PackSummary> {
        let mut index = INDEX.to_vec();
        index.extend_from_slice(&(self.summary.entries.len() as u32).to_le_bytes());
        index.append(&mut self.index);
        let at = self.offset;
        self.write(&index)?;
        self.write(&at.to_le_bytes())?;
        self.write(&digest(0, &index).to_le_bytes())?;
        self.write(&END_MAGIC)?;
        self.out.flush().doing("write", self.place)?;
        self.out.get_ref().sync_all().doing("write", self.place)?;
        self.summary.bytes = self.offset;
        Ok(self.summary)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).doing("write", self.place)?;
        self.offset += bytes.len() as u64;
        Ok(())
    }
}

fn put_name(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(&(name.len() as u32).to_le_bytes());
    out.extend_from_slice(name.as_bytes());
}

fn entry_header(name: &str, length: u64) -> Vec<u8> {
    let mut header = ENTRY.to_vec();
    header.extend_from_slice(&(name.len() as u32).to_le_bytes());
    header.extend_from_slice(&length.to_le_bytes());
    let check = digest(digest(0, &header), name.as_bytes());
    header.extend_from_slice(&check.to_le_bytes());
    header.extend_from_slice(name.as_bytes());
    header
}

pub(crate) fn block_header(raw: usize, stored: &[u8]) -> [u8; BLOCK_HEADER] {
    let mut header = [0; BLOCK_HEADER];
    header[..4].copy_from_slice(&(raw as u32).to_le_bytes());
    header[4..8].copy_from_slice(&(stored.len() as u32).to_le_bytes());
    let check = digest(digest(0, &header[..8]), stored);
    header[8..].copy_from_slice(&check.to_le_bytes());
    header
}

/// Names that an entry may have: nothing leads out of the folder or collides with what is ours.
pub(crate) fn is_allowed(name: &str) -> bool {
    if name == FILE {
        return true;
    }
    let Some((top, rest)) = name.split_once('/') else { return false };
    name.len() <= MAX_NAME
        && match top {
            "units" => UnitFile::parse(rest).is_some(),
            "files" => is_plain(rest),
            "extra" => rest.split('/').all(is_plain),
            _ => false,
        }
}

/// All files below a folder, with their names in a pack; links are left out.
fn tree(folder: &Path, name: &str) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for inside in disk::names(folder).unwrap_or_default() {
        let (path, name) = (folder.join(&inside), format!("{name}/{inside}"));
        match fs::symlink_metadata(&path) {
            Ok(m) if m.is_file() => found.push((name, path)),
            // Names are bounded, and so is the depth.
            Ok(m) if m.is_dir() && name.len() < MAX_NAME => found.extend(tree(&path, &name)),
            _ => (),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, allowed: bool) {
        assert_eq!(is_allowed(name), allowed, "{name:?}");
    }

    #[test]
    fn names_cannot_lead_out_of_the_folder() {
        for good in ["recording", "units/1.0.log", "units/1.0.3.raw", "files/1-2-3-4-5", "extra/usr/lib/debug/x"] {
            check(good, true);
        }
        for bad in ["", "/", "..", "a", "recording/x", "units", "units/x", "units/../recording", "files/", "files/a/b"]
        {
            check(bad, false);
        }
        for bad in ["files/..", "extra/", "extra//a", "extra/../a", "extra/a/..", "/etc/x", "extra/a\0", "../extra/a"] {
            check(bad, false);
        }
        check(&format!("extra/{}", "a/".repeat(3000)), false);
    }
}
