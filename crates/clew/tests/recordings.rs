//! `clew ls`, `info`, `rm` and `pack`.

mod common;

use common::place::{Place, finish};
use common::{compile, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Output;

#[track_caller]
fn document(output: &Output, verb: &str) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    let document: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!((&document["clew"], &document["verb"]), (&Value::from(1), &Value::from(verb)));
    document
}

/// One sentence with these words, and the status for bad input.
#[track_caller]
fn check_refused(output: &Output, parts: &[&str]) {
    let told = stderr(output);
    assert_eq!((output.status.code(), stdout(output)), (Some(2), ""), "{told}");
    assert!(told.starts_with("clew: ") && told.lines().count() == 1, "{told}");
    for part in parts {
        assert!(told.contains(part), "{part:?} in {told}");
    }
}

fn names(place: &Place) -> Vec<String> {
    let listed = document(&place.run(["ls", "--json"]), "ls");
    let recordings = listed["recordings"].as_array().unwrap().iter();
    recordings.map(|r| r["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn recordings_are_listed_the_newest_last() {
    let place = Place::new("ls");
    let nothing = place.run(["ls"]);
    assert_eq!(nothing.status.code(), Some(0));
    assert!(stdout(&nothing).contains("no recording") && !place.home.exists(), "looking makes nothing");
    place.record(&["sh", "-c", "exit 3"], 3);
    let program = compile("crash", &place.folder);
    let mut command = place.clew(["record", "--quiet", "--"]);
    command.arg(&program).arg("abrt");
    finish(command, b"");
    fs::create_dir(place.home.join("mine")).unwrap();
    assert_eq!(names(&place), ["sh-1", "crash-1"]);
    let listed = document(&place.run(["ls", "--json"]), "ls");
    assert_eq!(listed["recordings"][0]["status"]["exited"], 3);
    assert_eq!(listed["recordings"][0]["command"], serde_json::json!(["sh", "-c", "exit 3"]));
    assert_eq!(listed["recordings"][1]["status"]["name"], "SIGABRT");
    assert!(listed["recordings"][1]["bytes"].as_u64().unwrap() > 1000);
    let text = place.run(["ls"]);
    let lines: Vec<&str> = stdout(&text).lines().collect();
    assert!(lines[0].starts_with("NAME") && lines.len() == 3, "{lines:?}");
    for part in ["sh-1", "UTC", "kB", "exit 3", "sh -c \"exit 3\""] {
        assert!(lines[1].contains(part) || lines[1].contains("MB"), "{part} in {}", lines[1]);
    }
    assert!(lines[2].contains("SIGABRT") && !text.stdout.contains(&0x1b), "no colour without a terminal");
    assert!(place.run(["ls", "--color", "always"]).stdout.contains(&0x1b));
    fs::write(place.home.join("sh-1/recording"), "rubbish").unwrap();
    let listed = document(&place.run(["ls", "--json"]), "ls");
    let damaged = listed["recordings"].as_array().unwrap().iter().find(|r| r["name"] == "sh-1").unwrap();
    assert_eq!(damaged["state"], "damaged");
    place.done();
}

#[test]
fn info_tells_command_processes_and_what_they_need() {
    let place = Place::new("info");
    let program = compile("tree", &place.folder);
    let mut command = place.clew(["record", "--quiet", "--seed", "7", "--"]);
    command.arg(&program).arg("an argument").current_dir(&place.folder);
    assert_eq!(finish(command, b"").status.code(), Some(16));
    let info = document(&place.run(["info", "latest", "--json"]), "info");
    assert_eq!(info["command"], serde_json::json!([program.to_str(), "an argument"]));
    assert_eq!((&info["cwd"], &info["seed"]), (&Value::from(place.folder.to_str()), &Value::from(7)));
    assert_eq!((&info["cpu"], &info["state"]), (&Value::from("v2"), &Value::from("ended")));
    assert_eq!(info["status"]["exited"], 16);
    assert!(info["kept"]["files"].as_u64().unwrap() >= 2 && info["kept"]["bytes"].as_u64().unwrap() > 100_000);
    let units = info["units"].as_array().unwrap();
    assert_eq!(units.len(), 5);
    let ends: Vec<&Value> = units.iter().map(|u| &u["end"]["exited"]).collect();
    assert_eq!(ends, [16, 4, 3, 2, 1], "each below the one it was forked from");
    for unit in units {
        assert_eq!(unit["program"], Value::from(program.canonicalize().unwrap().to_str()), "forks have their parent's");
        assert!(unit["records"].as_u64().unwrap() > 3 && unit["threads"] == 1 && unit["damage"].is_null());
    }
    assert_eq!(units[1]["origin"]["fork"], units[0]["unit"]);
    let text = place.run(["info", "latest"]);
    for part in ["\"an argument\"", "seed      7", "cpu       v2", "exit 16", "5, with 5 images", "records, 1 thread"] {
        assert!(stdout(&text).contains(part), "{part} in {}", stdout(&text));
    }
    let one = format!("latest:{}", units[2]["pid"]);
    assert_eq!(document(&place.run(["info", &one, "--json"]), "info")["units"].as_array().unwrap().len(), 1);
    check_refused(&place.run(["info", "nothing"]), &["no recording `nothing`", "clew ls"]);
    check_refused(&place.run(["info", "latest:1"]), &["no process 1"]);
    place.done();
}

#[test]
fn only_recordings_are_removed() {
    let place = Place::new("rm");
    for _ in 0..3 {
        place.record(&["true"], 0);
    }
    assert_eq!(stdout(&place.run(["rm", "true-1"])).lines().count(), 1);
    assert_eq!(names(&place), ["true-2", "true-3"]);
    let mine = place.home.join("mine");
    fs::create_dir(&mine).unwrap();
    fs::write(mine.join("precious"), "data").unwrap();
    check_refused(&place.run(["rm", "mine"]), &["no recording `mine`"]);
    check_refused(&place.run(["rm", mine.to_str().unwrap()]), &["neither"]);
    check_refused(&place.run(["rm", "../home"]), &["../home"]);
    check_refused(&place.run(["rm", ".store"]), &[".store"]);
    check_refused(&place.run(["rm", ""]), &["no recording"]);
    fs::write(place.home.join("true-2/precious"), "data").unwrap();
    check_refused(&place.run(["rm", "true-2"]), &["precious", "not made by Clew"]);
    // The others go although one stays.
    let some = place.run(["rm", "true-2", "latest"]);
    assert_eq!((some.status.code(), stdout(&some).starts_with("removed true-3")), (Some(2), true));
    assert_eq!(names(&place), ["true-2"]);
    assert!(fs::read(mine.join("precious")).is_ok() && place.home.join("true-2/precious").exists());
    place.done();
}

#[test]
fn recordings_elsewhere_and_packs_are_removed_too() {
    let place = Place::new("rm-elsewhere");
    let (folder, pack, link) = (place.folder.join("r"), place.folder.join("r.clew"), place.folder.join("link"));
    let [f, p, l] = [&folder, &pack, &link].map(|p| p.to_str().unwrap());
    assert_eq!(place.run(["record", "-o", f, "--", "true"]).status.code(), Some(0));
    assert_eq!(place.run(["pack", f, p]).status.code(), Some(0));
    symlink(&folder, &link).unwrap();
    check_refused(&place.run(["rm", l]), &["is a link"]);
    let removed = document(&place.run(["rm", "--json", f, p]), "rm");
    assert_eq!(removed["removed"].as_array().unwrap().len(), 2);
    assert!(!folder.exists() && !pack.exists());
    assert_eq!(fs::read_dir(&place.folder).unwrap().count(), 1, "only the link is left");
    place.done();
}

#[test]
fn old_recordings_are_removed_by_age() {
    let place = Place::new("older");
    assert_eq!(place.run(["rm", "--older", "1d"]).status.code(), Some(0));
    place.record(&["true"], 0);
    place.record(&["true"], 0);
    let text = place.home.join("true-1/recording");
    let old = fs::read_to_string(&text).unwrap();
    let created = old.lines().find(|l| l.starts_with("created")).unwrap().to_owned();
    fs::write(&text, old.replace(&created, "created 1000000000")).unwrap();
    let kept = place.run(["rm", "--older", "5000w"]);
    assert!(stdout(&kept).contains("nothing was removed"), "{}", stdout(&kept));
    let gone = place.run(["rm", "--older", "7d"]);
    assert!(stdout(&gone).starts_with("removed true-1 ("), "{}", stdout(&gone));
    assert_eq!(names(&place), ["true-2"]);
    for wrong in [&["rm", "--older", "7"][..], &["rm", "--older", "7d", "true-2"], &["rm"]] {
        let refused = place.run(wrong);
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}");
        assert!(stderr(&refused).starts_with("clew: "), "{}", stderr(&refused));
    }
    place.done();
}

#[test]
fn a_recording_in_the_making_is_neither_removed_nor_packed() {
    let place = Place::new("making");
    let mut child = place.clew(["record", "--quiet", "--", "cat"]);
    let mut child = child.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    // When the first line is back, the recording is under way.
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"line\n").unwrap();
    let mut line = [0; 5];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
    check_refused(&place.run(["rm", "latest"]), &["still being recorded"]);
    let pack = place.folder.join("p.clew");
    check_refused(&place.run(["pack", "latest", pack.to_str().unwrap()]), &["still being recorded"]);
    assert_eq!(stdout(&place.run(["rm", "--older", "0s"])), "No recording is that old; nothing was removed.\n");
    assert_eq!(document(&place.run(["ls", "--json"]), "ls")["recordings"][0]["state"], "recording");
    assert_eq!(document(&place.run(["info", "latest", "--json"]), "info")["state"], "recording");
    drop(stdin);
    assert!(child.wait().unwrap().success());
    assert_eq!(place.run(["rm", "latest"]).status.code(), Some(0));
    place.done();
}

#[test]
fn a_pack_lists_what_it_embeds() {
    let place = Place::new("pack");
    let program = compile("echo", &place.folder);
    let file = place.folder.join("input.txt");
    fs::write(&file, "secret").unwrap();
    let mut command = place.clew(["record", "--quiet", "--"]);
    command.arg(&program).arg(&file);
    assert_eq!(finish(command, b"").status.code(), Some(5));
    let pack = place.folder.join("bug.clew");
    let packed = place.run(["pack", "latest", pack.to_str().unwrap()]);
    assert_eq!(packed.status.code(), Some(0), "{}", stderr(&packed));
    for part in ["/echo\n", "/input.txt\n", "guests/echo.c\n", "sources: ", "Recordings hold secrets", "packed into"] {
        assert!(stdout(&packed).contains(part), "{part:?} in {}", stdout(&packed));
    }
    check_refused(&place.run(["pack", "latest", pack.to_str().unwrap()]), &["exists already"]);
    check_refused(&place.run(["pack", "nothing", "/dev/null"]), &["no recording `nothing`"]);
    // A pack of a pack embeds the same.
    let again = place.folder.join("again.clew");
    let document = document(&place.run(["pack", "--json", pack.to_str().unwrap(), again.to_str().unwrap()]), "pack");
    let names: Vec<&str> =
        document["entries"].as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap()).collect();
    assert!(names.iter().any(|n| n.starts_with("extra/sources/") && n.ends_with("guests/echo.c")), "{names:?}");
    let bare = place.folder.join("bare.clew");
    let packed = place.run(["pack", "--bare", "latest", bare.to_str().unwrap()]);
    assert!(
        !stdout(&packed).contains("echo.c") && fs::metadata(bare).unwrap().len() < fs::metadata(pack).unwrap().len()
    );
    place.done();
}

#[test]
fn every_verb_has_help_with_examples() {
    let place = Place::new("help");
    for verb in ["ls", "info", "rm", "pack", "record", "replay"] {
        let help = place.run([verb, "--help"]);
        assert_eq!(help.status.code(), Some(0), "{verb}");
        assert!(stdout(&help).contains("Examples:") && stdout(&help).contains(&format!("clew {verb}")), "{verb}");
    }
    place.done();
}
