//! Debug information in `.dwo` files, in packages of them and in units of types says the same as in the program.

mod common;

use common::Scratch;
use image::{FoundBy, Frame, Image, ImageOffset, Search, SourceMap};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

const SOURCE: &str = r#"
#include <string.h>
struct node { struct node *next; int value; char tag[4]; };
struct node head = { 0, 3 };
int table[10];
static inline __attribute__((always_inline)) int clamp(int x, int high) { return x < 0 ? 0 : x > high ? high : x; }
static __attribute__((noinline)) int sum(const int *v, int n) { int s = 0; while (n--) s += *v++; return s; }
__attribute__((noinline)) int work(struct node *list, int n) {
    int data[8];
    memset(data, n, sizeof data);
    for (; list; list = list->next) data[clamp(n, 7)] += list->value;
    return sum(data, clamp(n, 8));
}
int main(int argc, char **argv) { return work(&head, argc) + table[argc]; }
"#;

const SPLIT: [&[&str]; 4] = [
    &["-g", "-O0", "-gsplit-dwarf"],
    &["-g", "-O2", "-gsplit-dwarf"],
    &["-g", "-O2", "-gsplit-dwarf", "-gdwarf-4", "-no-pie"],
    &["-g", "-O1", "-gsplit-dwarf", "-fdebug-types-section", "-gdwarf-4"],
];

fn open(path: &Path, map: &[(PathBuf, PathBuf)]) -> Image {
    let search = Search { source_map: SourceMap { rules: map.to_vec() }, ..Search::in_folders(vec![]) };
    Image::open_with(path, search).unwrap()
}

/// The file that the compiler split off; its name depends on the compiler.
#[track_caller]
fn dwo(scratch: &Scratch) -> PathBuf {
    let files = std::fs::read_dir(&scratch.0).unwrap().map(|f| f.unwrap().path());
    let found: Vec<PathBuf> = files.filter(|f| f.extension().is_some_and(|e| e == "dwo")).collect();
    let [one] = &found[..] else { panic!("the compiler writes one file, not {found:?}") };
    one.clone()
}

/// All frames at every byte of the code.
fn frames(image: &Image) -> Vec<(u64, Vec<Frame>)> {
    let text = image.code().into_iter().find(|c| c.name.as_deref() == Some(".text")).expect("there is code");
    let places = text.start.0..text.start.0 + text.bytes.len() as u64;
    places.map(|at| (at, image.locate(ImageOffset(at)).frames())).collect()
}

/// Expects the same answers from `split` as from the program compiled in one piece.
#[track_caller]
fn check_same(split: &Image, whole: &Image, flags: &[&str]) {
    let (ours, expected) = (frames(split), frames(whole));
    assert_eq!(ours.len(), expected.len(), "{flags:?}: splitting does not change the code");
    let inlined = expected.iter().filter(|(_, f)| f.len() > 1).count();
    assert!(inlined > 0, "{flags:?}: only {inlined} addresses are inlined");
    for (ours, expected) in ours.into_iter().zip(expected) {
        assert_eq!(ours, expected, "{flags:?}");
    }
    assert_eq!(split.functions(), whole.functions(), "{flags:?}");
    let (split, whole) = (open_again(split), open_again(whole));
    let Some(head) = whole.symbols().find("head").first().map(|s| s.start) else { return };
    for offset in [0, 8, 12, 13] {
        let name = whole.global_at(ImageOffset(head.0 + offset), 1);
        assert!(name.as_ref().is_some_and(|n| n.starts_with("head.")), "{flags:?}: {name:?}");
        assert_eq!(split.global_at(ImageOffset(head.0 + offset), 1), name, "{flags:?}");
    }
}

fn open_again(image: &Image) -> Arc<Image> {
    Arc::new(open(image.path(), &[]))
}

#[track_caller]
fn compile_both(scratch: &Scratch, whole: &Scratch, source: &str, flags: &[&str]) {
    scratch.compile("gcc", source, flags);
    // The paths that the compiler records must be the same.
    let map = format!("-ffile-prefix-map={}={}", whole.0.display(), scratch.0.display());
    let unsplit: Vec<&str> = flags.iter().copied().filter(|f| *f != "-gsplit-dwarf").chain([map.as_str()]).collect();
    whole.compile("gcc", source, &unsplit);
}

#[test]
fn split_programs_say_the_same_as_whole_ones() {
    for flags in SPLIT {
        let (scratch, whole) = (Scratch::new(), Scratch::new());
        compile_both(&scratch, &whole, SOURCE, flags);
        assert!(dwo(&scratch).exists(), "the compiler split the program");
        check_same(&open(&scratch.path("prog"), &[]), &open(&whole.path("prog"), &[]), flags);
    }
}

/// Packs a program with `tool` and expects that nothing is lost.
#[track_caller]
fn check_packed(tool: &str, source: &str, flags: &[&str]) {
    let (scratch, whole) = (Scratch::new(), Scratch::new());
    compile_both(&scratch, &whole, source, flags);
    // Both tools have been seen to crash or to go on without end, which is not what is tested here.
    let mut pack = Command::new("timeout");
    let packed = pack.args(["20", tool, "-e", "prog", "-o", "prog.dwp"]).current_dir(&scratch.0).output();
    if !packed.is_ok_and(|p| p.status.success()) {
        return eprintln!("NOT RUN: {tool} is missing or cannot pack {flags:?}");
    }
    std::fs::remove_file(dwo(&scratch)).unwrap();
    check_same(&open(&scratch.path("prog"), &[]), &open(&whole.path("prog"), &[]), flags);
}

#[test]
fn packages_are_found_beside_the_program() {
    for flags in SPLIT.iter().filter(|f| f.contains(&"-gdwarf-4")) {
        check_packed("dwp", SOURCE, flags);
    }
    // binutils' packager does not know version 5, and LLVM's does not end for the larger program.
    const SMALL: &str = r#"
struct n{struct n*next;int v;};
static inline __attribute__((always_inline)) int in(int x){return x*3;}
int g[4];
int work(struct n*p,int k){int loc[3]={k};return in(k)+p->v+loc[k&1]+g[1];}
int main(int c,char**v){struct n a={0,c};return work(&a,c);}
"#;
    check_packed("llvm-dwp", SMALL, &["-g", "-O1", "-gsplit-dwarf"]);
}

#[test]
fn without_its_file_a_split_program_keeps_lines_and_symbols() {
    let scratch = Scratch::new();
    let program = scratch.compile("gcc", SOURCE, &["-g", "-O0", "-gsplit-dwarf"]);
    std::fs::remove_file(dwo(&scratch)).unwrap();
    let image = open(&program, &[]);
    let start = image.find_function("work")[0].start;
    let location = image.locate(start);
    assert_eq!((location.function.as_deref(), location.found_by), (Some("work"), FoundBy::DebugInfo));
    assert_eq!(location.line, Some(8));
}

#[test]
fn a_file_that_was_moved_is_found_by_the_map_and_beside_the_program() {
    let scratch = Scratch::new();
    let program = scratch.compile("gcc", SOURCE, &["-g", "-O0", "-gsplit-dwarf"]);
    let inlined = |image: &Image| frames(image).iter().any(|(_, f)| f.len() > 1);
    let from = dwo(&scratch);
    let to = scratch.write(&format!("moved/{}", from.file_name().unwrap().to_str().unwrap()), "");
    std::fs::rename(&from, &to).unwrap();
    assert!(!inlined(&open(&program, &[])), "the file is gone");
    assert!(inlined(&open(&program, &[(scratch.0.clone(), scratch.path("moved"))])));
    std::fs::rename(&program, scratch.path("moved/prog")).unwrap();
    assert!(inlined(&open(&scratch.path("moved/prog"), &[])), "it lies beside the program");
}

#[test]
fn a_file_of_another_build_is_not_used() {
    let (scratch, other) = (Scratch::new(), Scratch::new());
    let program = scratch.compile("gcc", SOURCE, &["-g", "-O0", "-gsplit-dwarf"]);
    other.compile("gcc", &SOURCE.replace("clamp", "limit"), &["-g", "-O0", "-gsplit-dwarf"]);
    std::fs::copy(dwo(&other), dwo(&scratch)).unwrap();
    assert!(frames(&open(&program, &[])).iter().all(|(_, f)| f.len() == 1));
    std::fs::write(dwo(&scratch), "not even ELF").unwrap();
    assert!(frames(&open(&program, &[])).iter().all(|(_, f)| f.len() == 1));
}
