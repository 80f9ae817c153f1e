//! Translations that processes of one run hand on: they are used, and only for the same code.

mod common;

use common::{clew, compile, folder, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Blocks that a run of this shell script translated, in all its processes.
fn blocks(script: &str, folder: &Path) -> u64 {
    let output = run(&["run", "--stats", "--json", "--mode", "tick"], script, folder);
    let mut lines = stdout(&output).lines().chain(stderr(&output).lines());
    let line = lines.find(|l| l.starts_with('{')).unwrap_or_else(|| panic!("no statistics in {output:?}"));
    let value: Value = serde_json::from_str(line).unwrap();
    value["total"]["blocks"].as_u64().unwrap_or_else(|| panic!("no blocks in {line}"))
}

fn run(words: &[&str], script: &str, folder: &Path) -> Output {
    clew(words).args(["--", "/bin/sh", "-c", script]).current_dir(folder).output().unwrap()
}

/// A library whose function answers `number`.
fn library(folder: &Path, name: &str, number: u32) {
    let source = folder.join(format!("{name}.c"));
    fs::write(&source, format!("int answer(int x) {{ return x + {number}; }}\n")).unwrap();
    let output = folder.join(name);
    let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&output).arg(&source).status().unwrap();
    assert!(built.success());
}

#[test]
fn a_program_that_runs_again_is_hardly_translated_again() {
    let folder = folder("translations-again");
    let script = |times: usize| ["/bin/ls /"; 8][..times].join("; ") + "; :";
    let (once, often) = (blocks(&script(1), &folder), blocks(&script(8), &folder));
    // Eight times the work was seven thousand blocks more and each more; now it is a few that the first did not reach.
    assert!(often < once + once / 4, "one run translates {once} blocks, eight translate {often}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn code_that_has_changed_is_not_run_as_it_was() {
    let folder = folder("translations-changed");
    let program = compile("plugin_host", &folder);
    library(&folder, "one.so", 1000);
    library(&folder, "two.so", 2000);
    fs::copy(folder.join("one.so"), folder.join("plugin.so")).unwrap();
    let program = program.display();
    // The library is written over where it is: the same file at the same address, with other code.
    let script = format!(
        "{program} ./plugin.so; {program} ./plugin.so; cat two.so > plugin.so; {program} ./plugin.so; \
         cat one.so > plugin.so; {program} ./plugin.so; {program} ./two.so"
    );
    let expected = "1002\n1002\n2002\n1002\n2002\n";
    for words in
        [&["run", "--quiet"][..], &["run", "--quiet", "--mode", "tick"], &["record", "--quiet", "-o", "recording"]]
    {
        let output = run(words, &script, &folder);
        assert_eq!((stdout(&output), stderr(&output)), (expected, ""), "{words:?}");
    }
    let replayed = clew(["replay", "--verify", "recording"]).current_dir(&folder).output().unwrap();
    assert_eq!((stdout(&replayed), replayed.status.code()), (expected, Some(0)), "{}", stderr(&replayed));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_limit_on_files_is_not_exceeded_by_what_is_handed_on() {
    let folder = folder("translations-limit");
    let output = run(
        &["run", "--quiet"],
        "ulimit -f 8; /bin/ls / > /dev/null; echo $?; (exec /bin/ls /) > /dev/null; echo $?",
        &folder,
    );
    assert_eq!((stdout(&output), output.status.code()), ("0\n0\n", Some(0)), "{}", stderr(&output));
    fs::remove_dir_all(folder).unwrap();
}
