//! What the engine commits is read back through every stage, and the tree of units is understood.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use common::*;
use model::log::{Ending, Kind as RecordKind, MAX_RECORD, Origin, RECORD_HEADER, header};
use recording::{ErrorKind as Kind, Folder, Meta, Recording, Status, UnitName};

#[test]
fn raw_segments_mixed_and_compressed_ones_give_the_same_log() {
    let scratch = Scratch::new();
    let path = scratch.path("r");
    let folder = Folder::create(&path, &meta()).unwrap();
    let truth = sample(&folder);
    check_whole(&path, &truth);
    // Out of order, as after a disk that was full for a while.
    for (unit, sequence) in [(FIRST, 1), (COPY, 0), (FIRST, 0)] {
        folder.compress(unit, sequence).unwrap();
        check_whole(&path, &truth);
    }
    let sealed = folder.seal(|_| true, &meta()).unwrap();
    assert_eq!((sealed.compressed, sealed.left), (2, vec![]));
    check_whole(&path, &truth);
    let left: Vec<_> = files_below(&path.join("units")).iter().map(|p| p.file_name().unwrap().to_owned()).collect();
    assert_eq!(left, ["100.0.log", "101.0.log", "101.1.log"]);
}

#[test]
fn a_summary_says_what_is_in_a_log() {
    let scratch = Scratch::new();
    let path = scratch.path("r");
    mixed(&path);
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.meta(), &Meta { status: Some(Status::Exited(0)), ..meta() });
    let first = recording.unit(&FIRST).unwrap();
    assert_eq!((first.start.exe.as_str(), first.records), ("/bin/example", 11 + 23 + 6));
    assert_eq!(first.end.map(|e| (e.ending, e.status)), Some((Ending::Signaled, 11)));
    assert_eq!(first.inexact, [(33, "shared memory with another process".to_owned())]);
    assert_eq!((first.features[0].feature, first.files[0].key.as_str()), (3, KEPT));
    assert_eq!(recording.file(KEPT), Some(path.join("files").join(KEPT)));
    for absent in ["", "..", "../recording", "nothing", "/etc/passwd"] {
        assert_eq!(recording.file(absent), None, "{absent:?}");
    }
    assert_eq!(recording.unit(&UnitName::new(1, 1)).unwrap_err().kind, Kind::Missing);
    assert_eq!(recording.extra(), None);
}

#[test]
fn the_tree_of_units_is_known() {
    let scratch = Scratch::new();
    let path = scratch.path("r");
    mixed(&path);
    let recording = Recording::open(&path).unwrap();
    let names = |units: Vec<&recording::Unit>| units.iter().map(|u| u.name).collect::<Vec<_>>();
    assert_eq!(names(recording.roots().collect()), [FIRST]);
    assert_eq!(names(recording.children(&FIRST).collect()), [COPY]);
    assert_eq!(names(recording.children(&COPY).collect()), [NEXT]);
    assert_eq!(recording.lineage(&FIRST).unwrap(), [FIRST]);
    assert_eq!(recording.lineage(&COPY).unwrap(), [FIRST, COPY]);
    assert_eq!(recording.lineage(&NEXT).unwrap(), [NEXT]);
}

/// A unit whose origin is wrong has no lineage, and says why.
fn check_lineage(origins: &[(UnitName, Origin)], of: UnitName, why: &str) {
    let scratch = Scratch::new();
    let path = scratch.path("r");
    let folder = Folder::create(&path, &meta()).unwrap();
    for (unit, origin) in origins {
        write_unit(folder.path(), *unit, &[vec![start(origin.clone(), *unit)]]);
    }
    let error = Recording::open(&path).unwrap().lineage(&of).unwrap_err();
    assert!(error.kind == Kind::Damaged && error.message.contains(why), "{error}");
}

#[test]
fn impossible_origins_are_named() {
    let fork = |unit: &str, record| Origin::Fork { unit: unit.into(), record };
    let (a, b) = (UnitName::new(1, 0), UnitName::new(2, 0));
    check_lineage(&[(a, fork("2.0", 0)), (b, fork("1.0", 0))], a, "circle");
    check_lineage(&[(a, fork("1.0", 0))], a, "circle");
    check_lineage(&[(a, fork("9.0", 0))], a, "has no unit 9.0");
    check_lineage(&[(a, fork("../x", 0))], a, "does not name a unit");
    check_lineage(&[(a, fork("2.0", 1)), (b, Origin::First)], a, "record 1 of unit 2.0, of which 1 are left");
}

#[test]
fn a_crash_between_chunk_and_removal_leaves_both_and_loses_nothing() {
    let scratch = Scratch::new();
    let path = scratch.path("r");
    let folder = Folder::create(&path, &meta()).unwrap();
    let truth = sample(&folder);
    let raw = path.join("units").join(FIRST.raw(0));
    let bytes = fs::read(&raw).unwrap();
    folder.compress(FIRST, 0).unwrap();
    fs::write(&raw, &bytes).unwrap();
    check_whole(&path, &truth);
    // Whoever seals it later does not write it twice.
    let length = fs::metadata(path.join("units").join(FIRST.log())).unwrap().len();
    folder.compress(FIRST, 0).unwrap();
    assert_eq!(fs::metadata(path.join("units").join(FIRST.log())).unwrap().len(), length);
    assert!(!raw.exists());
    check_whole(&path, &truth);
}

#[test]
fn a_crash_while_a_chunk_is_appended_loses_nothing() {
    let scratch = Scratch::new();
    let path = scratch.path("r");
    let folder = Folder::create(&path, &meta()).unwrap();
    let truth = sample(&folder);
    let (raw, log) = (path.join("units").join(FIRST.raw(1)), path.join("units").join(FIRST.log()));
    folder.compress(FIRST, 0).unwrap();
    let (before, bytes) = (fs::read(&log).unwrap().len(), fs::read(&raw).unwrap());
    folder.compress(FIRST, 1).unwrap();
    let whole = fs::read(&log).unwrap();
    for cut in (before..whole.len()).step_by(7) {
        fs::write(&log, &whole[..cut]).unwrap();
        fs::write(&raw, &bytes).unwrap();
        check_whole(&path, &truth);
        // Another recorder, as it were, goes on where that one was killed.
        drop(fs::remove_dir_all(scratch.path("again")));
        copy_tree(&path, &scratch.path("again"));
        fs::rename(scratch.path("again/units"), scratch.path("units")).unwrap();
        fs::remove_dir_all(scratch.path("again")).unwrap();
        let again = Folder::create(&scratch.path("again"), &meta()).unwrap();
        fs::remove_dir(scratch.path("again/units")).unwrap();
        fs::rename(scratch.path("units"), scratch.path("again/units")).unwrap();
        again.seal(|_| true, &meta()).unwrap();
        assert!(!scratch.path("again/units").join(FIRST.raw(1)).exists());
        check_whole(&scratch.path("again"), &truth);
    }
}

#[test]
fn a_segment_that_is_given_back_is_in_the_log_whatever_becomes_of_its_file() {
    let scratch = Scratch::new();
    let path = scratch.path("r");
    let folder = Folder::create(&path, &meta()).unwrap();
    let truth = sample(&folder);
    let raw = path.join("units").join(FIRST.raw(0));
    folder.compress_and_give_back(FIRST, 0).unwrap();
    let mut bytes = fs::read(&raw).unwrap();
    assert_eq!(bytes[header::GIVEN_BACK], 1);
    check_whole(&path, &truth);
    // The engine was killed when it had begun another segment in it, before and after its first record.
    bytes[header::SEQUENCE] = 9;
    bytes[header::GIVEN_BACK] = 0;
    for committed in [0, 16] {
        bytes[header::COMMITTED..][..8].copy_from_slice(&u64::to_le_bytes(committed));
        fs::write(&raw, &bytes).unwrap();
        check_whole(&path, &truth);
    }
    // It is no segment any more, and nobody is told of it.
    let sealed = folder.seal(|_| true, &meta()).unwrap();
    assert_eq!(sealed.left, []);
    assert!(!raw.exists());
    check_whole(&path, &truth);
}

#[test]
fn a_segment_that_was_not_begun_is_no_damage() {
    let scratch = Scratch::new();
    let path = scratch.path("r");
    let folder = Folder::create(&path, &meta()).unwrap();
    let truth = sample(&folder);
    let unbegun = path.join("units").join(COPY.raw(1));
    for content in [&[][..], &[0; 4096]] {
        fs::write(&unbegun, content).unwrap();
        check_whole(&path, &truth);
    }
    folder.seal(|_| true, &meta()).unwrap();
    assert!(!unbegun.exists());
    check_whole(&path, &truth);
}

#[test]
fn a_missing_segment_is_damage() {
    let scratch = Scratch::new();
    for (missing, records) in [(1, 11), (2, 34)] {
        let path = scratch.path(&format!("r{missing}"));
        let folder = Folder::create(&path, &meta()).unwrap();
        let truth = sample(&folder);
        fs::remove_file(path.join("units").join(FIRST.raw(missing))).unwrap();
        let recording = Recording::open(&path).unwrap();
        let damage = recording.unit(&FIRST).unwrap().damage.clone();
        assert_eq!(damage, Some((records, format!("segment {missing}: it is missing"))));
        check_honest(&path, &truth);
    }
}

#[test]
fn units_without_a_beginning_are_listed_and_do_not_hide_others() {
    let scratch = Scratch::new();
    let path = scratch.path("r");
    let folder = Folder::create(&path, &meta()).unwrap();
    sample(&folder);
    let units = path.join("units");
    fs::write(units.join("7.0.0.raw"), [0; 64]).unwrap();
    fs::write(units.join("8.0.0.raw"), segment(0, 0, false, &noise(&mut Random(1), 1).concat())).unwrap();
    fs::write(units.join("9.0.log"), b"nonsense").unwrap();
    fs::create_dir(units.join("10.0.log")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", units.join("11.0.0.raw")).unwrap();
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.units().len(), 3);
    let whys: Vec<_> = recording.unreadable().iter().map(|(u, why)| (u.pid, why.as_str())).collect();
    assert_eq!(whys[0], (7, "nothing was recorded of it"));
    assert_eq!(whys[1], (8, "its first record does not say how it begins"));
    assert_eq!(whys[2], (9, "segment 0: the header of a chunk is cut"));
    assert_eq!(whys[3], (10, "its files cannot be read: it is not a regular file"));
    assert_eq!((whys[4].0, whys.len()), (11, 5));
    assert_eq!(recording.log(&UnitName::new(7, 0)).unwrap_err().kind, Kind::Damaged);
}

#[test]
fn the_longest_record_fits() {
    let scratch = Scratch::new();
    let path = scratch.path("r");
    let folder = Folder::create(&path, &meta()).unwrap();
    let long = record(RecordKind::Write, &vec![5; MAX_RECORD - RECORD_HEADER]);
    let truth = vec![(FIRST, write_unit(&path, FIRST, &[vec![start(Origin::First, FIRST), long.clone()], vec![long]]))];
    check_whole(&path, &truth);
    folder.seal(|_| true, &meta()).unwrap();
    check_whole(&path, &truth);
}

#[test]
fn what_cannot_be_compressed_stays_and_is_named() {
    let scratch = Scratch::new();
    let path = scratch.path("r");
    let folder = Folder::create(&path, &meta()).unwrap();
    let truth = sample(&folder);
    // The name is taken, so nothing can be appended: as good as a full disk.
    fs::create_dir(path.join("units").join(FIRST.log())).unwrap();
    let sealed = folder.seal(|_| true, &meta()).unwrap();
    assert_eq!((sealed.compressed, sealed.left.len()), (2, 3));
    fs::remove_dir(path.join("units").join(FIRST.log())).unwrap();
    check_whole(&path, &truth);
    assert_eq!(folder.seal(|_| true, &meta()).unwrap().compressed, 3);
    check_whole(&path, &truth);
    let torn = segment(1, 4, false, &[0; 500]);
    fs::write(path.join("units").join(COPY.raw(1)), &torn[..100]).unwrap();
    let error = folder.compress(COPY, 1).unwrap_err();
    assert!(error.kind == Kind::Damaged && error.message.contains("it is cut"), "{error}");
    assert!(path.join("units").join(COPY.raw(1)).exists());
    assert_eq!(folder.compress(COPY, 2).unwrap_err().kind, Kind::Missing);
}

#[test]
fn everything_is_private() {
    let scratch = Scratch::new();
    let path = scratch.path("r");
    mixed(&path);
    for inside in ["", "units", "files"] {
        let mode = fs::metadata(path.join(inside)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o700, "{inside:?}");
    }
    for file in ["recording", "units/100.0.log"] {
        let mode = fs::metadata(path.join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600, "{file}");
    }
}

#[test]
fn a_place_that_is_taken_is_refused() {
    let scratch = Scratch::new();
    let path = scratch.path("r");
    fs::create_dir(&path).unwrap();
    drop(Folder::create(&path, &meta()).unwrap());
    fs::write(scratch.path("file"), b"x").unwrap();
    for (place, says) in [("r", "is not empty"), ("file", "is not a folder")] {
        let error = Folder::create(&scratch.path(place), &meta()).unwrap_err();
        assert!(error.kind == Kind::Exists && error.message.contains(says), "{error}");
    }
    assert_eq!(Folder::create(&scratch.path("no/r"), &meta()).unwrap_err().kind, Kind::Missing);
    for (place, kind) in [("file", Kind::WrongType), ("r/units", Kind::WrongType), ("none", Kind::Missing)] {
        assert_eq!(Recording::open(&scratch.path(place)).unwrap_err().kind, kind, "{place}");
    }
}

#[test]
fn a_reader_sees_everything_while_segments_are_compressed() {
    let scratch = Scratch::new();
    let path = scratch.path("r");
    let folder = Folder::create(&path, &meta()).unwrap();
    let mut random = Random(8);
    let mut segments: Vec<_> = (0..60).map(|_| noise(&mut random, 4)).collect();
    segments[0].insert(0, start(Origin::First, FIRST));
    let truth = vec![(FIRST, write_unit(&path, FIRST, &segments))];
    std::thread::scope(|s| {
        let writer = s.spawn(|| (0..60).for_each(|n| folder.compress(FIRST, n).unwrap()));
        while !writer.is_finished() {
            check_whole(&path, &truth);
        }
    });
    check_whole(&path, &truth);
}
