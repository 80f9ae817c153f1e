//! `clew record` and `clew replay`: what passes through, what comes back, and what is refused.

mod common;

use common::place::{Place, finish};
use common::{compile, stderr, stdout};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Output};

/// Any user that is not root.
const NOBODY: u32 = 65534;

/// The replay says that it was the same, and wrote the same.
#[track_caller]
fn check_identical(place: &Place, recording: &str, recorded: &Output) {
    let replayed = place.run(["replay", "--verify", recording]);
    assert_eq!(replayed.status.code(), Some(0), "{}", stderr(&replayed));
    assert_eq!(stdout(&replayed), stdout(recorded));
    assert_eq!(stderr(&replayed), format!("{}clew: identical\n", stderr(recorded)));
}

/// One sentence on standard error and this status.
#[track_caller]
fn check_refused(output: &Output, status: i32, parts: &[&str]) {
    let told = stderr(output);
    assert_eq!(output.status.code(), Some(status), "{told}");
    assert_eq!(stdout(output), "");
    assert!(told.starts_with("clew: ") && told.lines().count() == 1, "{told}");
    for part in parts {
        assert!(told.contains(part), "{part:?} in {told}");
    }
}

#[test]
fn the_exit_status_is_the_programs_and_the_output_comes_back() {
    let place = Place::new("status");
    for status in [0, 1, 42, 255] {
        let script = format!("echo out {status}; echo err {status} >&2; exit {status}");
        let recorded = place.record(&["sh", "-c", &script], status);
        assert_eq!(stdout(&recorded), format!("out {status}\n"));
        assert_eq!(stderr(&recorded), format!("err {status}\n"));
        check_identical(&place, "latest", &recorded);
    }
    place.done();
}

#[test]
fn the_fatal_signal_is_the_programs() {
    let place = Place::new("signals");
    let program = compile("crash", &place.folder);
    for (how, signal) in [("segv", 11), ("fpe", 8), ("abrt", 6), ("term", 15), ("kill", 9)] {
        let mut command = place.clew(["record", "--quiet", "--"]);
        command.arg(&program).arg(how);
        let recorded = finish(command, b"");
        assert_eq!(recorded.status.signal(), Some(signal), "{how}: {}", stderr(&recorded));
        check_identical(&place, "latest", &recorded);
    }
    place.done();
}

#[test]
fn a_crash_is_told_with_function_and_line() {
    let place = Place::new("told");
    let program = compile("crash", &place.folder);
    let mut command = place.clew(["record", "--"]);
    command.arg(&program).arg("segv");
    let output = finish(command, b"");
    assert_eq!(output.status.signal(), Some(11));
    for part in ["clew: SIGSEGV", "0x8", "write_to_nothing", "crash.c:9", "main"] {
        assert!(stderr(&output).contains(part), "{part} in {}", stderr(&output));
    }
    place.done();
}

#[test]
fn input_from_a_pipe_and_from_files_is_in_the_recording() {
    let place = Place::new("input");
    let program = compile("echo", &place.folder);
    let file = place.folder.join("file.txt");
    fs::write(&file, "from a file\n".repeat(1000)).unwrap();
    let mut command = place.clew(["record", "--quiet", "--"]);
    command.arg(&program).arg(&file);
    let recorded = finish(command, "from a pipe\n".repeat(5000).as_bytes());
    assert_eq!(recorded.status.code(), Some(5), "{}", stderr(&recorded));
    assert_eq!(stdout(&recorded), "from a pipe\n".repeat(5000) + &"from a file\n".repeat(1000));
    check_identical(&place, "latest", &recorded);
    fs::write(&file, "other").unwrap();
    check_identical(&place, "latest", &recorded);
    fs::remove_file(&file).unwrap();
    fs::remove_file(&program).unwrap();
    check_identical(&place, "latest", &recorded);
    place.done();
}

#[test]
fn a_tree_of_processes_with_pipes_replays_identically() {
    let place = Place::new("tree");
    let program = compile("tree", &place.folder);
    let recorded = place.record(&[&program], 16);
    assert_eq!(stdout(&recorded).lines().last(), Some("depth 4: 16, child ended with 4"));
    check_identical(&place, "latest", &recorded);
    let script = "seq 2000 | sort -rn | head -3; ls / | wc -l; (exit 3) || echo no";
    let recorded = place.record(&["bash", "-c", script], 0);
    check_identical(&place, "latest", &recorded);
    place.done();
}

#[test]
fn one_process_can_be_replayed_by_its_number() {
    let place = Place::new("one");
    let recorded = place.record(&["sh", "-c", "echo parent; sh -c 'echo child; exit 3' & wait $!"], 3);
    assert_eq!(stdout(&recorded), "parent\nchild\n");
    let info: serde_json::Value = serde_json::from_slice(&place.run(["info", "latest", "--json"]).stdout).unwrap();
    let units = info["units"].as_array().unwrap();
    let child = units.iter().find(|u| u["end"]["exited"] == 3 && u["image"] == 1).unwrap();
    let (parent, child) = (units[0]["pid"].to_string(), child["pid"].to_string());
    for (which, expected) in [(&parent, "parent\n"), (&child, "child\n"), (&format!("{child}.1"), "child\n")] {
        let replayed = place.run(["replay", "--verify", &format!("latest:{which}")]);
        assert_eq!((stdout(&replayed), stderr(&replayed)), (expected, "clew: identical\n"), "{which}");
    }
    check_refused(&place.run(["replay", "latest:1"]), 2, &["no process 1", "clew info"]);
    check_refused(&place.run(["replay", &format!("latest:{child}.9")]), 2, &["no process", "clew info"]);
    place.done();
}

#[test]
fn recordings_have_names_and_the_newest_is_latest() {
    let place = Place::new("names");
    place.record(&["true"], 0);
    place.record(&["sh", "-c", "echo second"], 0);
    place.record(&["sh", "-c", "echo third"], 0);
    for (name, expected) in [("true-1", ""), ("sh-1", "second\n"), ("sh-2", "third\n"), ("latest", "third\n")] {
        assert_eq!(stdout(&place.run(["replay", name])), expected, "{name}");
    }
    let path = place.home.join("sh-1");
    assert_eq!(stdout(&place.run(["replay", path.to_str().unwrap()])), "second\n");
    // A file in the working folder does not hide a recording.
    fs::write(place.folder.join("sh-1"), "other").unwrap();
    let mut command = place.clew(["replay", "sh-1"]);
    command.current_dir(&place.folder);
    assert_eq!(stdout(&finish(command, b"")), "second\n");
    check_refused(&place.run(["replay", "sh-3"]), 2, &["no recording `sh-3`", "clew ls"]);
    check_refused(&place.run(["replay", "/etc/passwd"]), 2, &["/etc/passwd", "neither", "clew ls"]);
    place.done();
}

#[test]
fn a_recording_can_be_put_elsewhere() {
    let place = Place::new("elsewhere");
    let folder = place.folder.join("bug.rec");
    let output = folder.to_str().unwrap();
    let recorded = place.run(["record", "-o", output, "--", "echo", "hi"]);
    assert_eq!((recorded.status.code(), stdout(&recorded)), (Some(0), "hi\n"));
    assert!(!place.home.exists(), "no home is made for it");
    check_identical(&place, output, &recorded);
    check_refused(&place.run(["record", "-o", output, "--", "echo", "hi"]), 125, &[output, "not empty", "new folder"]);
    let file = place.folder.join("file");
    fs::write(&file, "mine").unwrap();
    let refused = place.run(["record", "-o", file.to_str().unwrap(), "--", "echo", "hi"]);
    check_refused(&refused, 125, &["not a folder", "new folder"]);
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    let empty = place.folder.join("empty");
    fs::create_dir(&empty).unwrap();
    assert_eq!(place.run(["record", "-o", empty.to_str().unwrap(), "--", "echo", "hi"]).status.code(), Some(0));
    place.done();
}

#[test]
fn what_cannot_be_run_leaves_no_recording() {
    let place = Place::new("refused");
    place.record(&["echo", "first"], 0);
    check_refused(&place.run(["record", "--", "no-such-program"]), 127, &["no-such-program"]);
    let text = place.folder.join("text");
    fs::write(&text, "\x01not a program").unwrap();
    check_refused(&place.run(["record", "--", text.to_str().unwrap()]), 126, &["text"]);
    fs::set_permissions(&text, PermissionsExt::from_mode(0o755)).unwrap();
    check_refused(&place.run(["record", "--", text.to_str().unwrap()]), 126, &["text"]);
    assert_eq!(stdout(&place.run(["replay", "latest"])), "first\n", "the last that worked is still the newest");
    place.done();
}

#[test]
fn a_home_that_cannot_be_used_is_our_failure() {
    let mut place = Place::new("unwritable");
    let file = place.folder.join("file");
    fs::write(&file, "").unwrap();
    place.home = file.clone();
    check_refused(&place.run(["record", "--", "echo", "hi"]), 125, &["not a folder", "CLEW_HOME"]);
    place.home = file.join("below");
    check_refused(&place.run(["record", "--", "echo", "hi"]), 125, &["cannot make the folder", "CLEW_HOME"]);
    // Not even root can make folders there.
    place.home = Path::new("/proc/clew").to_owned();
    check_refused(&place.run(["record", "--", "echo", "hi"]), 125, &["cannot make the folder", "CLEW_HOME"]);
    let mut command = place.clew(["record", "--", "echo", "hi"]);
    command.env_remove("CLEW_HOME").env_remove("XDG_DATA_HOME").env_remove("HOME");
    check_refused(&finish(command, b""), 125, &["CLEW_HOME"]);
    place.done();
}

/// `clew` as a user who owns nothing here; `folder` is one that every user can get to and write to.
fn as_nobody(args: &[&str], folder: &Path) -> Command {
    assert!(rustix::process::getuid().is_root(), "this test changes its user, for which it must be run as root");
    let clew = folder.join("clew");
    if !clew.exists() {
        fs::copy(common::CLEW, &clew).unwrap();
    }
    let mut command = Command::new(clew);
    command.args(args).uid(NOBODY).gid(NOBODY).current_dir("/").env("HOME", "/nonexistent");
    command.env("CLEW_HOME", folder.join("none")).env("TMPDIR", folder.join("tmp"));
    command
}

#[test]
fn a_packed_recording_replays_for_another_user_without_the_originals() {
    let place = Place::new("packed");
    let program = compile("echo", &place.folder);
    let file = place.folder.join("input.txt");
    fs::write(&file, "from a file\n").unwrap();
    let mut command = place.clew(["record", "--quiet", "--"]);
    command.arg(&program).arg(&file);
    let recorded = finish(command, b"from a pipe\n");
    assert_eq!(recorded.status.code(), Some(5));
    // Where every user can get to, unlike the folder of the test.
    let elsewhere = std::env::temp_dir().join(format!("clew-pack-test-{}", std::process::id()));
    fs::create_dir_all(&elsewhere).unwrap();
    fs::set_permissions(&elsewhere, PermissionsExt::from_mode(0o755)).unwrap();
    fs::create_dir(elsewhere.join("tmp")).unwrap();
    fs::set_permissions(elsewhere.join("tmp"), PermissionsExt::from_mode(0o777)).unwrap();
    let pack = elsewhere.join("bug.clew");
    let packed = place.run(["pack", "latest", pack.to_str().unwrap()]);
    assert_eq!(packed.status.code(), Some(0), "{}", stderr(&packed));
    fs::set_permissions(&pack, PermissionsExt::from_mode(0o644)).unwrap();
    fs::remove_file(&program).unwrap();
    fs::remove_file(&file).unwrap();
    place.done();
    let pack = pack.to_str().unwrap();
    let replayed = finish(as_nobody(&["replay", "--verify", pack], &elsewhere), b"");
    assert_eq!(replayed.status.code(), Some(0), "{}", stderr(&replayed));
    assert_eq!(stdout(&replayed), "from a pipe\nfrom a file\n");
    assert_eq!(stderr(&replayed), "24 bytes\nclew: identical\n");
    let told = finish(as_nobody(&["info", pack], &elsewhere), b"");
    assert!(stdout(&told).contains("(packed)") && stdout(&told).contains("exit 5"), "{}", stdout(&told));
    assert_eq!(fs::read_dir(elsewhere.join("tmp")).unwrap().count(), 0, "nothing stays unpacked");
    fs::remove_dir_all(elsewhere).unwrap();
}
