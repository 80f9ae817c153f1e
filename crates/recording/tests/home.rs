//! The home of recordings: names, listing, finding, removing, the cap, and contents that are shared.

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use common::*;
use recording::{ErrorKind as Kind, Folder, Home, Meta, Recording, State, Status, pack};

/// A finished recording of a program that kept one file with this content.
fn record(home: &Home, created: u64, key: &str, content: &[u8]) -> String {
    let meta = Meta { created, status: Some(Status::Exited(3)), ..meta() };
    let folder = home.create("/usr/bin/prog", &meta).unwrap();
    sample(&folder);
    fs::write(folder.path().join("files").join(key), content).unwrap();
    folder.seal(|_| true, &meta).unwrap();
    folder.path().file_name().unwrap().to_str().unwrap().to_owned()
}

fn names(home: &Home) -> Vec<String> {
    home.list().unwrap().into_iter().map(|e| e.name).collect()
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

#[test]
fn recordings_are_numbered_and_the_newest_is_latest() {
    let scratch = Scratch::new();
    let path = scratch.path("share/clew");
    let home = Home::open(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o700);
    assert_eq!(home.resolve("latest").unwrap_err().kind, Kind::Missing);
    assert_eq!([record(&home, 5, "a", b"1"), record(&home, 4, "a", b"1")], ["prog-1", "prog-2"]);
    assert_eq!(names(&home), ["prog-2", "prog-1"], "oldest first");
    assert_eq!(home.resolve("latest").unwrap(), path.join("prog-2"));
    assert_eq!(fs::read_link(path.join("latest")).unwrap(), Path::new("prog-2"), "the home can be moved");
    let entry = home.list().unwrap().remove(0);
    assert_eq!((entry.created, entry.command, entry.state), (4, meta().command, State::Ended(Status::Exited(3))));
    assert!(entry.bytes > 0);
    home.remove("latest").unwrap();
    assert_eq!(home.resolve("latest").unwrap(), path.join("prog-1"));
    home.remove("prog-1").unwrap();
    assert!(fs::symlink_metadata(path.join("latest")).is_err());
}

#[test]
fn names_paths_and_packs_are_found() {
    let scratch = Scratch::new();
    let home = Home::open(&scratch.path("home")).unwrap();
    record(&home, 1, "a", b"1");
    let check = |text: &str, expected: Result<&Path, Kind>| {
        assert_eq!(home.resolve(text).as_deref().map_err(|e| e.kind), expected, "{text:?}");
    };
    let inside = scratch.path("home/prog-1");
    check("prog-1", Ok(&inside));
    check(inside.to_str().unwrap(), Ok(&inside));
    let file = scratch.path("packed");
    pack(&inside, &file, Vec::new()).unwrap();
    check(file.to_str().unwrap(), Ok(&file));
    check("", Err(Kind::Missing));
    check("..", Err(Kind::WrongType));
    check("prog-9", Err(Kind::Missing));
    check("/", Err(Kind::WrongType));
    let error = home.resolve("prog-9").unwrap_err().message;
    assert!(error.contains("`prog-9`") && error.contains("clew ls") && error.contains("home"), "{error}");
}

#[test]
fn a_home_that_is_a_file_is_refused() {
    let scratch = Scratch::new();
    fs::write(scratch.path("file"), b"x").unwrap();
    let error = Home::open(&scratch.path("file")).unwrap_err();
    assert!(error.kind == Kind::WrongType && error.message.contains("CLEW_HOME"), "{error}");
    assert!(Home::open(&scratch.path("file/below")).is_err());
}

#[test]
fn what_is_being_written_is_not_removed() {
    let scratch = Scratch::new();
    let home = Home::open(&scratch.path("home")).unwrap();
    let folder = home.create("prog", &Meta { created: 1, ..meta() }).unwrap();
    let writing = |expected: State| assert_eq!(home.list().unwrap()[0].state, expected);
    writing(State::Writing);
    assert!(Recording::open(folder.path()).unwrap().being_written());
    for _ in 0..2 {
        assert_eq!(home.remove("prog-1").unwrap_err().kind, Kind::Busy);
        assert_eq!(home.enforce_cap(0, &scratch.path("none")).unwrap(), []);
        assert_eq!(home.remove_older(Duration::ZERO).unwrap(), []);
        // Rewriting its text must not lose the lock.
        folder.seal(|_| true, &Meta { created: 1, ..meta() }).unwrap();
        writing(State::Writing);
    }
    drop(folder);
    writing(State::Interrupted);
    assert_eq!(home.enforce_cap(0, &home.path().join("prog-1")).unwrap(), [], "the one to keep");
    assert_eq!(home.enforce_cap(0, &scratch.path("none")).unwrap().len(), 1);
}

#[test]
fn damaged_and_foreign_folders_are_survived_and_kept() {
    let scratch = Scratch::new();
    let home = Home::open(&scratch.path("home")).unwrap();
    record(&home, 1, "a", b"1");
    record(&home, 2, "a", b"1");
    fs::write(home.path().join("prog-1/recording"), b"garbage").unwrap();
    fs::create_dir(home.path().join("pictures")).unwrap();
    fs::write(home.path().join("notes"), b"x").unwrap();
    let states: Vec<_> = home.list().unwrap().into_iter().map(|e| (e.name, e.state)).collect();
    assert_eq!(states.len(), 2);
    assert!(states.iter().any(|(n, s)| n == "prog-1" && matches!(s, State::Damaged(_))), "{states:?}");
    let removed = home.enforce_cap(0, &scratch.path("none")).unwrap();
    assert_eq!(removed.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(), ["prog-2"]);
    assert!(home.path().join("pictures").exists() && home.path().join("notes").exists());
    // Names are also paths, and what is there may be something else.
    let roundabout = ["..", "home", "prog-1"].join("/");
    for name in ["pictures", "notes", ".store", "..", "", &roundabout] {
        let error = home.remove(name).unwrap_err();
        assert!(matches!(error.kind, Kind::Missing | Kind::WrongType), "{name:?}: {error}");
    }
    fs::write(home.path().join("prog-1/thesis.txt"), b"x").unwrap();
    let error = home.remove("prog-1").unwrap_err();
    assert!(error.message.contains("thesis.txt"), "{error}");
    fs::remove_file(home.path().join("prog-1/thesis.txt")).unwrap();
    home.remove("prog-1").unwrap();
}

#[test]
fn equal_contents_are_kept_once_and_go_with_the_last_recording() {
    let scratch = Scratch::new();
    let home = Home::open(&scratch.path("home")).unwrap();
    let content = vec![7; 100_000];
    record(&home, 1, "other-name", &content);
    record(&home, 2, "2-2-3-4-5", &content);
    record(&home, 3, "1-2-3-4-5", b"something else");
    let file = |name: &str| home.path().join(name);
    let shared = inode(&file("prog-1/files/other-name"));
    assert_eq!(inode(&file("prog-2/files/2-2-3-4-5")), shared);
    assert_eq!(inode(&file(".store/stamps/2-2-3-4-5")), shared);
    assert_ne!(inode(&file("prog-3/files/1-2-3-4-5")), shared);
    assert!(!file(".store/stamps/other-name").exists(), "only stamps are found by name");
    assert_eq!(fs::metadata(file("prog-1/files/other-name")).unwrap().permissions().mode() & 0o7777, 0o400);
    // prog-1's copy, prog-2's copy, the blob and the stamp are one file.
    assert_eq!(fs::metadata(file("prog-1/files/other-name")).unwrap().nlink(), 4);
    let blobs = || fs::read_dir(file(".store/blobs")).unwrap().count();
    assert_eq!(blobs(), 3);
    home.remove("prog-1").unwrap();
    assert_eq!((blobs(), home.collect_garbage().unwrap()), (3, 0));
    assert_eq!(fs::read(file("prog-2/files/2-2-3-4-5")).unwrap(), content);
    home.remove("prog-2").unwrap();
    assert_eq!(blobs(), 2);
    assert!(!file(".store/stamps/2-2-3-4-5").exists());
    home.remove("prog-3").unwrap();
    assert_eq!((blobs(), fs::read_dir(file(".store/stamps")).unwrap().count()), (0, 0));
}

#[test]
fn a_file_taken_from_the_store_by_its_stamp_is_shared_already() {
    let scratch = Scratch::new();
    let home = Home::open(&scratch.path("home")).unwrap();
    record(&home, 1, "1-2-3-4-5", b"content");
    let folder = home.create("prog", &meta()).unwrap();
    let stamps = folder.stamps_fd().unwrap();
    let flags = rustix::fs::AtFlags::empty();
    rustix::fs::linkat(stamps, "1-2-3-4-5", folder.dir_fd(), "files/1-2-3-4-5", flags).unwrap();
    assert_eq!(folder.seal(|_| true, &meta()).unwrap().shared, 0);
    assert_eq!(fs::read(folder.path().join("files/1-2-3-4-5")).unwrap(), b"content");
}

#[test]
fn a_blob_that_rotted_is_replaced_and_spoils_nothing() {
    let scratch = Scratch::new();
    let home = Home::open(&scratch.path("home")).unwrap();
    record(&home, 1, "x", b"content");
    let first = home.path().join("prog-1/files/x");
    fs::set_permissions(&first, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&first, b"contenT").unwrap();
    record(&home, 2, "x", b"content");
    assert_eq!(fs::read(home.path().join("prog-2/files/x")).unwrap(), b"content");
    record(&home, 3, "x", b"content");
    assert_eq!(inode(&home.path().join("prog-2/files/x")), inode(&home.path().join("prog-3/files/x")));
}

#[test]
fn a_recording_elsewhere_shares_through_the_home_it_is_told() {
    let scratch = Scratch::new();
    let home = Home::open(&scratch.path("home")).unwrap();
    record(&home, 1, "x", b"content");
    let mut folder = Folder::create(&scratch.path("elsewhere"), &meta()).unwrap();
    assert!(folder.stamps_fd().is_none());
    folder.share_with(&home);
    fs::write(folder.path().join("files/y"), b"content").unwrap();
    assert_eq!(folder.seal(|_| true, &meta()).unwrap().shared, 1);
    assert_eq!(inode(&scratch.path("elsewhere/files/y")), inode(&home.path().join("prog-1/files/x")));
    home.remove("prog-1").unwrap();
    assert_eq!(fs::read_dir(home.path().join(".store/blobs")).unwrap().count(), 1, "it is in use elsewhere");
}

#[test]
fn the_cap_removes_the_oldest_and_counts_shared_contents_once() {
    let scratch = Scratch::new();
    let home = Home::open(&scratch.path("home")).unwrap();
    let large = vec![7; 400_000];
    for created in 1..=4 {
        record(&home, created, "1-2-3-4-5", &large);
    }
    let none = scratch.path("none");
    let each: Vec<u64> = home.list().unwrap().iter().map(|e| e.bytes).collect();
    assert!(each.iter().all(|b| *b > 400_000));
    assert_eq!(home.enforce_cap(each[0] * 2, &none).unwrap(), [], "the large content is there only once");
    let removed = home.enforce_cap(each[0] + 20_000, &home.path().join("prog-1")).unwrap();
    assert_eq!(removed[0].name, "prog-2", "the oldest that need not be kept");
    assert_eq!(names(&home)[0], "prog-1");
    home.enforce_cap(0, &home.path().join("prog-1")).unwrap();
    assert_eq!(names(&home), ["prog-1"]);
    assert_eq!(home.resolve("latest").unwrap(), home.path().join("prog-1"));
}

#[test]
fn old_recordings_are_removed_by_age() {
    let scratch = Scratch::new();
    let home = Home::open(&scratch.path("home")).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    for age in [1000, 500, 0] {
        record(&home, now - age, "x", b"1");
    }
    let removed = home.remove_older(Duration::from_secs(700)).unwrap();
    assert_eq!(removed.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(), ["prog-1"]);
    assert_eq!(home.remove_older(Duration::MAX).unwrap(), []);
    assert_eq!(names(&home), ["prog-2", "prog-3"]);
}

#[test]
fn many_recorders_at_once_get_different_names() {
    let scratch = Scratch::new();
    let home = Home::open(&scratch.path("home")).unwrap();
    std::thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| (0..5).for_each(|_| drop(home.create("p", &meta()).unwrap())));
        }
    });
    assert_eq!(names(&home).len(), 40);
    assert!(fs::read_dir(home.path()).unwrap().all(|e| !e.unwrap().file_name().to_string_lossy().starts_with(".new")));
}

#[test]
fn recordings_elsewhere_are_removed_by_path() {
    let scratch = Scratch::new();
    let home = Home::open(&scratch.path("home")).unwrap();
    let elsewhere = scratch.path("elsewhere");
    let folder = Folder::create(&elsewhere, &meta()).unwrap();
    let text = elsewhere.to_str().unwrap();
    assert_eq!(home.remove(text).unwrap_err().kind, Kind::Busy, "its recorder is at work");
    drop(folder);
    let link = scratch.path("link");
    std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
    assert_eq!(home.remove(link.to_str().unwrap()).unwrap_err().kind, Kind::WrongType);
    fs::write(elsewhere.join("recording"), "clew recording 2\n").unwrap();
    assert_eq!(home.remove(text).unwrap_err().kind, Kind::WrongType, "it may be anything");
    fs::write(elsewhere.join("recording"), meta().encode()).unwrap();
    assert_eq!(home.remove(&format!("{text}/")).unwrap().name, format!("{text}/"));
    assert!(!elsewhere.exists());
    assert_eq!(fs::read_dir(scratch.path("")).unwrap().count(), 2, "the home and the link are left, and nothing else");
}
