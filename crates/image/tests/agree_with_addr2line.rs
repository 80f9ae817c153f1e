//! On sound programs our lookup gives the same answers as addr2line, an independent implementation.

mod common;

use common::Scratch;
use image::{FoundBy, Image, ImageOffset, Search, demangle};
use object::{Object, ObjectSection};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

type Reader<'a> = gimli::EndianSlice<'a, gimli::LittleEndian>;

/// Function, file and line of each frame, the innermost first.
type Answer = Vec<(Option<String>, Option<PathBuf>, Option<u32>)>;

/// What addr2line answers; `names` spares demangling one name a thousand times.
fn theirs(context: &addr2line::Context<Reader<'_>>, at: u64, names: &mut HashMap<String, String>) -> Answer {
    let mut frames = context.find_frames(at).skip_all_loads().unwrap();
    let mut answer = Vec::new();
    while let Some(frame) = frames.next().unwrap() {
        let name = frame.function.and_then(|f| f.raw_name().ok().map(|n| n.into_owned()));
        let name = name.map(|n| names.entry(n).or_insert_with_key(|n| demangle(n)).clone());
        let file = frame.location.as_ref().and_then(|l| l.file).map(PathBuf::from);
        answer.push((name, file, frame.location.and_then(|l| l.line).filter(|l| *l != 0)));
    }
    answer
}

fn ours(image: &Image, at: u64) -> Answer {
    let location = image.locate(ImageOffset(at));
    if location.found_by != FoundBy::DebugInfo {
        return Vec::new();
    }
    location.frames().into_iter().map(|f| (f.function, f.file, f.line)).collect()
}

/// Compares the two at every `step`-th byte of the program's code; gives the number of addresses with an answer.
#[track_caller]
fn check_agreement(program: &Path, step: usize) -> usize {
    let bytes = std::fs::read(program).unwrap();
    let elf = object::read::elf::ElfFile64::<object::LittleEndian, _>::parse(&*bytes).unwrap();
    let section = |id: gimli::SectionId| -> Result<Reader<'_>, gimli::Error> {
        let found = elf.section_by_name(id.name()).map(|s| s.data().unwrap()).unwrap_or_default();
        Ok(gimli::EndianSlice::new(found, gimli::LittleEndian))
    };
    let context = addr2line::Context::from_dwarf(gimli::Dwarf::load(section).unwrap()).unwrap();
    let image = Image::open_with(program, Search::in_folders(vec![])).unwrap();
    let text = elf.section_by_name(".text").unwrap();
    let (mut known, mut shown) = (0, Vec::new());
    let mut differences = 0;
    let mut names = HashMap::new();
    for at in (text.address()..text.address() + text.size()).step_by(step) {
        let (ours, mut theirs) = (ours(&image, at), theirs(&context, at, &mut names));
        known += usize::from(!theirs.is_empty());
        // Where debug information has no name for the machine function, ours takes the symbol's.
        if let (Some(o), Some(t)) = (ours.last(), theirs.last_mut())
            && (t.0.is_none()
                || o.0
                    .as_ref()
                    .zip(t.0.as_ref())
                    .is_some_and(|(o, t)| o.ends_with(&format!("::{t}")) || o.contains(&format!("::{t}("))))
        {
            t.0.clone_from(&o.0);
        }
        if ours != theirs {
            differences += 1;
            shown.push(format!("{at:#x}:\n  ours   {ours:?}\n  theirs {theirs:?}"));
            shown.truncate(5);
        }
    }
    assert_eq!(differences, 0, "{} differs from addr2line:\n{}", program.display(), shown.join("\n"));
    known
}

#[test]
fn at_every_byte_of_a_c_program() {
    const SOURCE: &str = r#"
#include <stdlib.h>
static inline int clamp(int x, int high) { return x < 0 ? 0 : x > high ? high : x; }
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
static void fill(int *v, int n) { for (int i = 0; i < n; i++) v[i] = clamp(i * 7919 % 101, 50); }
static int sum(const int *v, int n) { int s = 0; while (n--) s += *v++; return s; }
int main(int argc, char **argv) {
    int v[64];
    fill(v, 64);
    qsort(v, 64, sizeof *v, compare);
    if (argc > 5) abort();
    HERE();
    return sum(v, clamp(argc, 64)) == 1234;
}
"#;
    for flags in [&["-g", "-O0"][..], &["-g", "-O3"], &["-g", "-O2", "-no-pie", "-gdwarf-4"], &["-g", "-O2", "-flto"]] {
        let scratch = Scratch::new();
        let known = check_agreement(&scratch.compile("gcc", SOURCE, flags), 1);
        assert!(known > 200, "only {known} addresses of {flags:?} had an answer");
    }
}

#[test]
fn at_every_third_byte_of_a_cpp_program() {
    const SOURCE: &str = r#"
#include <algorithm>
#include <map>
#include <string>
#include <vector>
int main(int argc, char **argv) {
    std::map<std::string, std::vector<int>> words;
    for (int i = 0; i < argc; i++) words[argv[i]].push_back(i);
    std::vector<std::string> keys;
    for (auto &[key, value] : words) keys.push_back(key + std::to_string(value.size()));
    std::sort(keys.begin(), keys.end(), [](auto &a, auto &b) { return a.size() < b.size(); });
    return keys.empty();
}
"#;
    let scratch = Scratch::new();
    let known = check_agreement(&scratch.compile("g++", SOURCE, &["-g", "-O2"]), 3);
    assert!(known > 1000, "only {known} addresses had an answer");
}

#[test]
fn at_many_places_of_this_rust_test() {
    let known = check_agreement(&std::env::current_exe().unwrap(), 997);
    assert!(known > 500, "only {known} addresses had an answer");
}
