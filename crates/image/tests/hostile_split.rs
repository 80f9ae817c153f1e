//! Damaged `.dwo` files and packages give a less precise answer, never a panic, a hang or a huge allocation.
//!
//! The questions are asked in a child process with hard limits, as in the other tests of hostile files.

mod common;

use common::Scratch;
use common::limits::{self, Random, check_survives};
use image::{Image, ImageOffset, Search, SourceMap};
use object::{Object, ObjectSection};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SOURCE: &str = r#"
struct node { struct node *next; int value; char tag[4]; union { int whole; float part; } either; };
struct node head = { 0, 3 };
int table[10];
enum color { RED, GREEN } color;
static inline __attribute__((always_inline)) int clamp(int x, int high) { return x > high ? high : x; }
__attribute__((noinline)) int work(struct node *list, int n) {
    int data[8] = { n };
    for (; list; list = list->next) { int more = n; data[clamp(n, 7)] += list->value + more; }
    return data[clamp(n + 1, 7)] + color;
}
int main(int argc, char **argv) { return work(&head, argc) + table[argc]; }
"#;

/// The program beside `file`, which stands for the file that the test names.
fn question(file: &Path, _: &mut Random) {
    let original = PathBuf::from(std::env::var("CLEW_TEST_HOSTILE_FILE").unwrap());
    let program = original.with_file_name("prog");
    // A package is found beside a program only, so that gets one of its own there.
    let program = match original.extension().is_some_and(|e| e == "dwp") {
        true => {
            let copy = file.with_extension("prog");
            std::fs::copy(&program, &copy).unwrap();
            std::fs::copy(file, file.with_extension("prog.dwp")).unwrap();
            copy
        }
        false => program,
    };
    let source_map = SourceMap { rules: vec![(original, file.to_path_buf())] };
    let image = Image::open_with(program, Search { source_map, ..Search::in_folders(vec![]) }).unwrap();
    let functions = image.functions();
    assert!(functions.windows(2).all(|w| w[0].start < w[0].end && w[0].end <= w[1].start), "nothing overlaps");
    let code = image.code();
    let is_code = |at: ImageOffset| code.iter().any(|c| at.0 - c.start.0.min(at.0) <= c.bytes.len() as u64);
    assert!(image.functions().iter().all(|f| is_code(f.end)), "functions end where code does");
    let image = Arc::new(image);
    for f in image.functions() {
        for at in (f.start.0..f.end.0).step_by(7).take(200).map(ImageOffset) {
            assert!(image.locate(at).inlined.len() <= 64, "messages stay readable");
        }
    }
    for name in ["head", "table", "color"] {
        let start = image.symbols().find(name)[0].start.0;
        for offset in (0..40).step_by(5) {
            let name = image.global_at(ImageOffset(start + offset), 1);
            assert!(name.is_none_or(|n| n.len() < 20_000), "names stay readable");
        }
    }
}

fn targets(bytes: &[u8]) -> Vec<Range<usize>> {
    let elf = object::read::elf::ElfFile64::<object::LittleEndian, _>::parse(bytes).unwrap();
    let ranges =
        elf.sections().filter(|s| s.name().is_ok_and(|n| n.starts_with(".debug"))).filter_map(|s| s.file_range());
    ranges
        .filter(|(_, size)| *size > 0)
        .map(|(at, size)| at as usize..(at + size) as usize)
        .chain(std::iter::once(0..bytes.len()))
        .collect()
}

/// The child's part: without the environment variable there is nothing to do.
#[test]
fn question_the_file_that_the_parent_names() {
    limits::each_variant(&targets, &mut question);
}

#[track_caller]
fn check_damaged(flags: &[&str], pack: bool) {
    let scratch = Scratch::new();
    scratch.compile("gcc", SOURCE, &[&["-gsplit-dwarf", "-g"], flags].concat());
    let files = std::fs::read_dir(&scratch.0).unwrap().map(|f| f.unwrap().path());
    let file = files.into_iter().find(|f| f.extension().is_some_and(|e| e == "dwo")).expect("the compiler split it");
    let file = if pack { scratch.path("prog.dwp") } else { file };
    if pack {
        scratch.run("timeout", &["20", "dwp", "-e", "prog", "-o", "prog.dwp"]);
    }
    check_survives("question_the_file_that_the_parent_names", &file, 150);
}

#[test]
fn three_hundred_damaged_split_files() {
    check_damaged(&["-O2"], false);
    check_damaged(&["-O0", "-gdwarf-4", "-fdebug-types-section"], false);
}

#[test]
fn hundred_fifty_damaged_packages() {
    if std::process::Command::new("dwp").arg("--version").output().is_err() {
        return eprintln!("NOT RUN: this test makes a package with dwp, which is not installed");
    }
    check_damaged(&["-O1", "-gdwarf-4"], true);
}
