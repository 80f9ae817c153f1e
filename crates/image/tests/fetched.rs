//! Debug files and sources that are elsewhere are found: by the source map, near the program, from a server.
//!
//! A script stands for curl, so no network is used: it serves a folder, and writes down what it was asked for.

mod common;

use common::Scratch;
use image::{Debuginfod, Image, Search, SourceMap};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const SOURCE: &str = "static int hidden(int x) { return x + 1; }\nint main(int n, char **v) { return hidden(n); }\n";

/// Serves `served/HOST/PATH` for `https://HOST/PATH`. The address is the last argument, the file follows `--output`.
const SERVER: &str = r#"#!/bin/sh
for a in "$@"; do
    [ "$before" = --output ] && to=$a
    before=$a
done
echo "$before" >> asked
cp "served/${before#https://}" "$to"
"#;

/// A stripped program whose debug file only the server has.
fn program(scratch: &Scratch) -> (PathBuf, String) {
    scratch.compile("gcc", SOURCE, &["-g", "-O0", "-Wl,--build-id"]);
    scratch.run("objcopy", &["--only-keep-debug", "prog", "whole.debug"]);
    scratch.run("objcopy", &["--strip-all", "prog", "bare"]);
    let bare = scratch.path("bare");
    let id = Image::open(&bare).unwrap().build_id().expect("the linker was asked for one").to_string();
    (bare, id)
}

fn server(scratch: &Scratch) -> Debuginfod {
    // The script runs where the test does, so it is told where it lives.
    let script = SERVER.replace("asked", scratch.path("asked").to_str().unwrap());
    let script = script.replace("served/", scratch.path("served/").to_str().unwrap());
    let tool = scratch.write("fetch", script);
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    let servers = Debuginfod::new("https://one.example https://two.example/", scratch.path("cache")).unwrap();
    Debuginfod { tool, ..servers }
}

#[track_caller]
fn check_asked(scratch: &Scratch, expected: &[String]) {
    let asked = std::fs::read_to_string(scratch.path("asked")).unwrap_or_default();
    assert_eq!(asked.lines().collect::<Vec<_>>(), expected);
}

fn open(path: &Path, debuginfod: Option<Debuginfod>) -> Image {
    Image::open_with(path, Search { debuginfod, ..Search::in_folders(vec![]) }).unwrap()
}

#[test]
fn a_debug_file_is_fetched_once_and_kept() {
    let scratch = Scratch::new();
    let (bare, id) = program(&scratch);
    let whole = std::fs::read(scratch.path("whole.debug")).unwrap();
    scratch.write(&format!("served/two.example/buildid/{id}/debuginfo"), &whole);
    assert!(!open(&bare, None).has_debug_info(), "without servers nothing is asked");
    check_asked(&scratch, &[]);
    for _ in 0..2 {
        let image = open(&bare, Some(server(&scratch)));
        assert_eq!(image.debug_file(), Some(scratch.path(&format!("cache/{id}/debuginfo")).as_path()));
        assert_eq!(image.find_function("hidden").len(), 1);
        let urls = ["one", "two"].map(|host| format!("https://{host}.example/buildid/{id}/debuginfo"));
        check_asked(&scratch, &urls);
    }
}

#[test]
fn what_no_server_has_is_not_asked_for_again_at_once() {
    let scratch = Scratch::new();
    let (bare, id) = program(&scratch);
    for _ in 0..2 {
        assert!(!open(&bare, Some(server(&scratch))).has_debug_info());
        check_asked(&scratch, &["one", "two"].map(|h| format!("https://{h}.example/buildid/{id}/debuginfo")));
    }
}

#[test]
fn a_file_of_another_build_is_not_believed() {
    let scratch = Scratch::new();
    let (bare, id) = program(&scratch);
    let other = Scratch::new();
    other.compile("gcc", &SOURCE.replace("hidden", "other"), &["-g", "-O0", "-Wl,--build-id"]);
    let wrong = std::fs::read(other.path("prog")).unwrap();
    scratch.write(&format!("served/one.example/buildid/{id}/debuginfo"), wrong);
    assert!(!open(&bare, Some(server(&scratch))).has_debug_info());
}

#[test]
fn without_the_tool_nothing_is_found() {
    let scratch = Scratch::new();
    let (bare, _) = program(&scratch);
    let tool = scratch.path("no-such-tool");
    assert!(!open(&bare, Some(Debuginfod { tool, ..server(&scratch) })).has_debug_info());
}

#[test]
fn sources_are_found_by_the_map_near_the_program_and_from_a_server() {
    let scratch = Scratch::new();
    let (bare, id) = program(&scratch);
    let recorded = scratch.path("src/prog.c");
    let find = |rules: &[(PathBuf, PathBuf)], servers: Option<Debuginfod>, recorded: &Path| {
        let source_map = SourceMap { rules: rules.to_vec() };
        let search = Search { source_map, debuginfod: servers, ..Search::in_folders(vec![]) };
        Image::open_with(&bare, search).unwrap().find_source(recorded)
    };
    assert_eq!(find(&[], None, &recorded), Some(recorded.clone()), "it is where the compiler found it");
    let moved = scratch.write("new/place/src/prog.c", SOURCE);
    let rule = (scratch.0.clone(), scratch.path("new/place"));
    assert_eq!(find(&[rule], None, &recorded), Some(moved), "the user's word counts first");
    let elsewhere = Path::new("/no/such/folder/src/prog.c");
    assert_eq!(find(&[], None, elsewhere), Some(recorded), "the end of the path leads to it");
    let gone = Path::new("/build/a b/gone.c");
    assert_eq!(find(&[], None, gone), None);
    scratch.write(&format!("served/two.example/buildid/{id}/source/build/a%20b/gone.c"), "int gone;\n");
    let fetched = find(&[], Some(server(&scratch)), gone).expect("the server has it");
    assert_eq!(std::fs::read_to_string(fetched).unwrap(), "int gone;\n");
}
