//! A recording that is read: its units, their tree, their logs and the kept files.
//!
//! Guarantees: whatever the content, opening gives a [`Recording`] or an error. A unit that cannot be read at all is
//! listed as such and does not hide the others. Summaries come from one pass over each log.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use model::log::{End, FORK_UNRECORDED, FeatureRecord, FileRecord, Kind as RecordKind, Origin, Raw, Start};

use crate::disk;
use crate::error::{Doing, Error, Kind, Result};
use crate::join::{self, Parts};
use crate::log::Log;
use crate::meta::Meta;
use crate::name::{UnitName, is_plain};
use crate::unpack::{is_pack, unpack};

/// One unit of a recording, in brief.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unit {
    pub name: UnitName,
    pub start: Start,
    /// How many records its log has, and bytes.
    pub records: u64,
    pub bytes: u64,
    /// How many threads it had in all.
    pub threads: u32,
    /// How it ended; nothing if it was killed or is still running.
    pub end: Option<End>,
    /// From which records on the recording may not be exact, and why.
    pub inexact: Vec<(u64, String)>,
    /// Records at which it forked children for whose logs there was no room.
    pub unrecorded: Vec<u64>,
    pub features: Vec<FeatureRecord>,
    pub files: Vec<FileRecord>,
    /// The record that should have come next but was not as it had been written, and what is wrong.
    pub damage: Option<(u64, String)>,
}

/// A recording, open for reading.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    meta: Meta,
    units: Vec<Unit>,
    unreadable: Vec<(UnitName, String)>,
}

impl Recording {
    /// Opens a recording's folder. A packed file is refused with the kind `Packed`; see [`Recording::open_in`].
    pub fn open(path: &Path) -> Result<Recording> {
        if is_pack(path) {
            let what = "is a packed recording and must be unpacked into a folder first";
            return Err(Error::new(Kind::Packed, format!("{} {what}", path.display())));
        }
        if !fs::metadata(path).doing("open the recording", path)?.is_dir() {
            let what = "is neither the folder of a recording nor a packed one";
            return Err(Error::new(Kind::WrongType, format!("{} {what}", path.display())));
        }
        let meta = match Meta::read(path) {
            Err(e) if e.kind == Kind::Missing => {
                let what = "is not a recording: there is no file `recording` in it";
                return Err(Error::new(Kind::WrongType, format!("the folder {} {what}", path.display())));
            }
            other => other?,
        };
        let mut recording = Recording { path: path.to_owned(), meta, units: Vec::new(), unreadable: Vec::new() };
        let folder = path.join("units");
        for (name, parts) in join::parts(&folder).doing("read", &folder)? {
            match summarize(name, &parts) {
                Ok(unit) => recording.units.push(unit),
                Err(why) => recording.unreadable.push((name, why)),
            }
        }
        Ok(recording)
    }

    /// Opens a recording's folder, or a packed file by unpacking it into `scratch`, which must be empty or not exist.
    pub fn open_in(path: &Path, scratch: &Path) -> Result<Recording> {
        if is_pack(path) {
            unpack(path, scratch)?;
            return Recording::open(scratch);
        }
        Recording::open(path)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// All units, by process and image number.
    pub fn units(&self) -> &[Unit] {
        &self.units
    }

    /// Units of which not even the beginning can be read, and why.
    pub fn unreadable(&self) -> &[(UnitName, String)] {
        &self.unreadable
    }

    pub fn unit(&self, name: &UnitName) -> Result<&Unit> {
        if let Ok(at) = self.units.binary_search_by_key(name, |u| u.name) {
            return Ok(&self.units[at]);
        }
        let place = self.path.display();
        Err(match self.unreadable.iter().find(|(n, _)| n == name) {
            Some((_, why)) => Error::new(Kind::Damaged, format!("unit {name} of {place} cannot be read: {why}")),
            None => {
                Error::new(Kind::Missing, format!("{place} has no unit {name}; `clew info {place}` lists its units"))
            }
        })
    }

    /// Units that nothing else in this recording leads to: normally the command's first image.
    pub fn roots(&self) -> impl Iterator<Item = &Unit> {
        self.units.iter().filter(|u| self.parent(u).is_none())
    }

    /// Units that begin where this one forks or is replaced.
    pub fn children(&self, name: &UnitName) -> impl Iterator<Item = &Unit> {
        let name = *name;
        self.units.iter().filter(move |u| u.name != name && origin(u) == Some(name))
    }

    /// The unit that this one forked from or replaced, if it is there.
    pub fn parent(&self, unit: &Unit) -> Option<&Unit> {
        let parent = origin(unit)?;
        self.unit(&parent).ok().filter(|p| p.name != unit.name)
    }

    /// The units whose logs a replay of this unit passes through, itself last.
    pub fn lineage(&self, name: &UnitName) -> Result<Vec<UnitName>> {
        let mut chain = vec![*name];
        let mut seen = HashSet::from([*name]);
        let mut unit = self.unit(name)?;
        while let Origin::Fork { unit: parent, record } = &unit.start.origin {
            let broken = |why: String| {
                let place = self.path.display();
                Error::new(Kind::Damaged, format!("unit {} of {place} cannot be replayed: {why}", unit.name))
            };
            let parent: UnitName = parent.parse().map_err(|e: Error| broken(e.message))?;
            let from = self.unit(&parent).map_err(|e| broken(format!("it forked from another, but {e}")))?;
            if *record >= from.records {
                let why = format!("it forked at record {record} of unit {parent}, of which {} are left", from.records);
                return Err(broken(why));
            }
            if !seen.insert(parent) {
                return Err(broken(format!("units fork from each other in a circle through {parent}")));
            }
            chain.push(parent);
            unit = from;
        }
        chain.reverse();
        Ok(chain)
    }

    /// All records of a unit in memory: the longest valid beginning.
    pub fn log(&self, name: &UnitName) -> Result<Log> {
        let unit = self.unit(name)?;
        let folder = self.path.join("units");
        let parts = join::parts(&folder).doing("read", &folder)?.remove(name).unwrap_or_default();
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(unit.bytes as usize).is_err() {
            let what = format!("the log of unit {name} has {} bytes, which do not fit into memory", unit.bytes);
            return Err(Error::new(Kind::Io, what));
        }
        let walked = join::walk(&parts, |_, _, record| bytes.extend_from_slice(record)).doing("read", &folder)?;
        Ok(Log::new(bytes, walked.records, walked.damage))
    }

    /// A kept file by its key.
    pub fn file(&self, key: &str) -> Option<PathBuf> {
        if !is_plain(key) {
            return None;
        }
        let path = self.path.join("files").join(key);
        fs::symlink_metadata(&path).is_ok_and(|m| m.is_file()).then_some(path)
    }

    /// The folder of what a pack brought along (debug information and sources), under the names it was given.
    pub fn extra(&self) -> Option<PathBuf> {
        let path = self.path.join("extra");
        fs::symlink_metadata(&path).is_ok_and(|m| m.is_dir()).then_some(path)
    }

    /// Bytes that it takes on the disk; what it shares with other recordings counts in full.
    pub fn disk_bytes(&self) -> u64 {
        crate::home::folder_bytes(&self.path)
    }

    /// Whether a recorder is still writing it.
    pub fn being_written(&self) -> bool {
        disk::is_locked(&self.path.join(crate::meta::FILE))
    }
}

/// The unit that a unit says it comes from.
fn origin(unit: &Unit) -> Option<UnitName> {
    match &unit.start.origin {
        Origin::First => None,
        Origin::Exec { unit } | Origin::Fork { unit, .. } => unit.parse().ok(),
    }
}

/// One pass over a unit's log.
fn summarize(name: UnitName, parts: &Parts) -> std::result::Result<Unit, String> {
    let mut start = None;
    let mut threads = BTreeSet::new();
    let (mut end, mut inexact, mut unrecorded) = (None, Vec::new(), Vec::new());
    let (mut features, mut files) = (Vec::new(), Vec::new());
    let each = |index: u64, raw: &Raw<'_>, _: &[u8]| match raw.kind {
        RecordKind::Start if index == 0 => start = Start::decode(raw.payload),
        RecordKind::End => end = End::decode(raw.payload),
        // Both begin with the thread's number.
        RecordKind::Call | RecordKind::Switch => drop(threads.insert(thread(raw.payload))),
        RecordKind::Inexact => inexact.push((index, String::from_utf8_lossy(raw.payload).into_owned())),
        RecordKind::Fork if raw.flags & FORK_UNRECORDED != 0 => unrecorded.push(index),
        RecordKind::Feature => features.extend(FeatureRecord::decode(raw.payload)),
        RecordKind::File => files.extend(FileRecord::decode(raw.payload)),
        _ => (),
    };
    let walked = join::walk(parts, each).map_err(|e| format!("its files cannot be read: {e}"))?;
    let Some(start) = start else {
        return Err(match walked {
            join::Walked { records: 0, damage: Some((_, why)), .. } => why,
            join::Walked { records: 0, .. } => "nothing was recorded of it".into(),
            _ => "its first record does not say how it begins".into(),
        });
    };
    let join::Walked { records, bytes, damage } = walked;
    let threads = threads.len().max(1) as u32;
    Ok(Unit { name, start, records, bytes, threads, end, inexact, unrecorded, features, files, damage })
}

/// The number at the beginning of a payload.
fn thread(payload: &[u8]) -> u32 {
    payload.first_chunk().map_or(0, |b| u32::from_le_bytes(*b))
}
