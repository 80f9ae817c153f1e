//! Recordings for tests: the engine's part, written by hand.
#![allow(dead_code, reason = "every test file uses its own part of this")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use model::log::{self, End, Ending, FeatureRecord, FileRecord, Kind, Origin, Start, header};
use recording::{Folder, Meta, Recording, Status, UnitName};

/// A folder that is removed again.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("clew-recording-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// xorshift64*: the same numbers on every machine.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

pub fn record(kind: Kind, payload: &[u8]) -> Vec<u8> {
    let mut out = log::record_header(kind, 0, payload).to_vec();
    out.extend_from_slice(payload);
    out.resize(log::record_len(payload.len()), 0);
    out
}

/// A segment file with some room behind its records.
pub fn segment(sequence: u32, first_record: u64, more: bool, records: &[u8]) -> Vec<u8> {
    let mut out = vec![0; log::SEGMENT_HEADER];
    out[..8].copy_from_slice(&log::MAGIC);
    out[header::VERSION..][..4].copy_from_slice(&log::VERSION.to_le_bytes());
    out[header::SEQUENCE..][..4].copy_from_slice(&sequence.to_le_bytes());
    out[header::COMMITTED..][..8].copy_from_slice(&(records.len() as u64).to_le_bytes());
    out[header::FIRST_RECORD..][..8].copy_from_slice(&first_record.to_le_bytes());
    out[header::MORE..][..4].copy_from_slice(&u32::from(more).to_le_bytes());
    out.extend_from_slice(records);
    out.resize(out.len() + 200, 0);
    out
}

/// Writes a unit's log as raw segments, as the engine would, and gives back its bytes.
pub fn write_unit(folder: &Path, unit: UnitName, segments: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let mut first = 0;
    let mut all = Vec::new();
    for (n, records) in segments.iter().enumerate() {
        let more = n + 1 < segments.len();
        let bytes = segment(n as u32, first, more, &records.concat());
        fs::write(folder.join("units").join(unit.raw(n as u32)), bytes).unwrap();
        first += records.len() as u64;
        all.extend(records.concat());
    }
    all
}

pub fn start(origin: Origin, unit: UnitName) -> Vec<u8> {
    let start = Start {
        origin,
        exe: "/bin/example".into(),
        argv: vec![b"example".to_vec(), b"\xff".to_vec()],
        ..Start::forked(String::new(), 0, unit.pid, unit.pid)
    };
    record(Kind::Start, &start.encode())
}

pub fn end(ending: Ending, status: u32) -> Vec<u8> {
    record(Kind::End, &End { ending, status, tick: 9, pc: 0x1000 }.encode())
}

/// Some records that look like system calls and what they wrote.
pub fn noise(random: &mut Random, count: usize) -> Vec<Vec<u8>> {
    let one = |random: &mut Random| {
        let length = 8 + random.below(90);
        let payload: Vec<u8> = (0..length).map(|i| if i % 3 == 0 { random.next() as u8 } else { 7 }).collect();
        record([Kind::Write, Kind::Call, Kind::Special][random.below(3)], &payload)
    };
    (0..count).map(|_| one(random)).collect()
}

pub fn meta() -> Meta {
    Meta {
        command: vec!["./example".into(), "two words".into()],
        cwd: "/somewhere".into(),
        created: 1_700_000_000,
        clew: "0.1.0".into(),
        seed: Some(7),
        ..Meta::default()
    }
}

pub const FIRST: UnitName = UnitName { pid: 100, image: 0 };
pub const COPY: UnitName = UnitName { pid: 101, image: 0 };
pub const NEXT: UnitName = UnitName { pid: 101, image: 1 };
pub const KEPT: &str = "fe01-12-5-17a-17b";

/// What the units of [`sample`] say, in full.
pub type Truth = Vec<(UnitName, Vec<u8>)>;

/// A small recording of three units: one of three segments, its forked copy, and what replaced that. Nothing is
/// compressed yet.
pub fn sample(folder: &Folder) -> Truth {
    let mut random = Random(42);
    let mut first = vec![start(Origin::First, FIRST)];
    first.extend(noise(&mut random, 9));
    first.push(record(Kind::Fork, &17u64.to_le_bytes()));
    let feature = FeatureRecord { feature: 3, pc: 0x40, bytes: vec![0x0f, 0xa2] };
    let file = FileRecord { id: 1, key: KEPT.into(), path: b"/etc/x".to_vec(), size: 5, mode: 0o644 };
    let mut second = noise(&mut random, 20);
    second.push(record(Kind::Feature, &feature.encode()));
    second.push(record(Kind::File, &file.encode()));
    second.push(record(Kind::Inexact, "shared memory with another process".as_bytes()));
    let mut third = noise(&mut random, 5);
    third.push(end(Ending::Signaled, 11));
    let fork = Origin::Fork { unit: FIRST.to_string(), record: 10 };
    let mut copy = vec![start(fork, COPY)];
    copy.extend(noise(&mut random, 3));
    copy.push(end(Ending::Replaced, 0));
    let mut next = vec![start(Origin::Exec { unit: COPY.to_string() }, NEXT)];
    next.extend(noise(&mut random, 3));
    next.push(end(Ending::Exited, 0));
    fs::write(folder.path().join("files").join(KEPT), b"hello").unwrap();
    let at = folder.path();
    vec![
        (FIRST, write_unit(at, FIRST, &[first, second, third])),
        (COPY, write_unit(at, COPY, &[copy])),
        (NEXT, write_unit(at, NEXT, &[next])),
    ]
}

/// A sample recording at this path, sealed with everything compressed except for the first unit's last segment.
pub fn mixed(path: &Path) -> Truth {
    let folder = Folder::create(path, &meta()).unwrap();
    let truth = sample(&folder);
    folder.compress(FIRST, 0).unwrap();
    folder.compress(FIRST, 1).unwrap();
    let ended = Meta { status: Some(Status::Exited(0)), ..meta() };
    folder.seal(|pid| pid == COPY.pid, &ended).unwrap();
    truth
}

/// All of the truth is there.
#[track_caller]
pub fn check_whole(path: &Path, truth: &Truth) {
    let recording = Recording::open(path).unwrap();
    assert_eq!(recording.units().len(), truth.len());
    assert_eq!(recording.unreadable(), []);
    for (name, bytes) in truth {
        let unit = recording.unit(name).unwrap();
        let log = recording.log(name).unwrap();
        assert_eq!((log.bytes(), log.damage()), (&bytes[..], None), "{name}");
        assert_eq!((unit.records, unit.bytes, &unit.damage), (log.count(), bytes.len() as u64, &None), "{name}");
        assert_eq!(log.records().count() as u64, log.count());
    }
}

/// Whatever was done to it: an error, or logs that are beginnings of the true ones and say so when they are shorter
/// than their end.
#[track_caller]
pub fn check_honest(path: &Path, truth: &Truth) {
    let Ok(recording) = Recording::open(path) else { return };
    for (name, bytes) in truth {
        let (Ok(unit), Ok(log)) = (recording.unit(name), recording.log(name)) else { continue };
        assert!(bytes.starts_with(log.bytes()), "{name}: the log is not a beginning of the true one");
        assert!(
            log.bytes().len() == bytes.len() || unit.end.is_none(),
            "{name}: the end is believed without the middle"
        );
        assert_eq!((unit.records, &unit.damage), (log.count(), &log.damage().cloned()), "{name}");
    }
}

/// Every file below a folder.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { open.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}

pub fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_tree(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}
