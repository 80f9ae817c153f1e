//! All functions, all code and all lines of an image agree with what the tools of binutils say.

mod common;

use common::Scratch;
use image::{CodeSection, FoundBy, Image, ImageOffset, KnownBy, Search};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

const SOURCE: &str = r#"
#include <stdlib.h>
#include <string.h>
static __attribute__((noinline)) int twice(int x) { HERE(); return x * 2; }
static inline __attribute__((always_inline)) int inner(int x) { HERE(); return twice(x) + 1; }
__attribute__((noinline)) int outer(int x) { return inner(x) + 3; }
int main(int argc, char **argv) {
    char *text = strdup(argv[0]);
    if (!text) abort();
    int n = outer((int)strlen(text));
    free(text);
    return n == 0;
}
"#;

/// What `tool` prints. Binutils come with the compiler that all tests here need.
#[track_caller]
fn output(tool: &str, args: &[&str], file: &Path) -> String {
    let output = Command::new(tool).args(args).arg(file).env("LC_ALL", "C").output();
    let output =
        output.unwrap_or_else(|e| panic!("this test needs {tool}, which cannot be run ({e}): install binutils"));
    assert!(output.status.success(), "{tool} {args:?} failed");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn open(path: &Path) -> Image {
    Image::open_with(path, Search::in_folders(vec![])).unwrap()
}

/// The functions that the image lists, and the checks that hold for every list.
#[track_caller]
fn listed(image: &Image) -> BTreeMap<u64, (u64, String, KnownBy)> {
    let functions = image.functions();
    assert!(functions.iter().all(|f| f.start < f.end), "no function is empty");
    assert!(functions.windows(2).all(|w| w[0].end <= w[1].start), "functions are sorted and do not overlap");
    for f in functions {
        assert_eq!(image.function_at(f.start), Some(f));
        assert_eq!(image.function_at(ImageOffset(f.end.0 - 1)), Some(f));
    }
    functions.iter().map(|f| (f.start.0, (f.end.0, f.name.clone(), f.known_by))).collect()
}

/// The labels `1139 <main>:` of a disassembly.
fn labels(program: &Path) -> Vec<(u64, String)> {
    let text = output("objdump", &["-d"], program);
    let label = |line: &str| {
        let (address, name) = line.strip_suffix(">:")?.split_once(" <")?;
        Some((u64::from_str_radix(address, 16).ok()?, name.to_string()))
    };
    text.lines().filter_map(label).collect()
}

#[track_caller]
fn check_functions(flags: &[&str]) {
    let scratch = Scratch::new();
    let program = scratch.compile("gcc", SOURCE, flags);
    let functions = listed(&open(&program));
    let name = |at: &u64| functions.get(at).map(|(_, name, _)| name.as_str());
    let mut entries = 0;
    for (at, label) in labels(&program) {
        // objdump says `*ABS*+0x..@plt` where the function is chosen at run time, and names code before the first
        // entry by its section.
        let plain = !label.contains("*ABS*") && !label.contains("-0x") && !label.contains("+0x");
        if plain && ["main", "outer", "twice", "here"].contains(&label.as_str()) {
            assert_eq!(name(&at), Some(label.as_str()), "{flags:?}");
        }
        if plain && label.ends_with("@plt") {
            assert_eq!(name(&at), Some(label.as_str()), "{flags:?}");
            entries += 1;
        }
    }
    assert!(entries >= 3 || flags.contains(&"-static"), "{flags:?}: only {entries} entries for library functions");
}

#[test]
fn functions_and_library_entries_are_those_that_objdump_labels() {
    check_functions(&["-g", "-O0"]);
    check_functions(&["-g", "-O2", "-no-pie"]);
    check_functions(&["-O1"]);
    check_functions(&["-O2", "-Wl,-z,lazy", "-g"]);
    check_functions(&["-O2", "-Wl,-z,now"]);
    check_functions(&["-O2", "-fcf-protection=full", "-Wl,-z,ibtplt"]);
    check_functions(&["-O2", "-g", "-static"]);
}

#[test]
fn sizes_are_those_of_the_symbols() {
    let scratch = Scratch::new();
    let program = scratch.compile("gcc", SOURCE, &["-g", "-O0"]);
    let functions = listed(&open(&program));
    let text = output("nm", &["-S"], &program);
    let number = |s: &str| u64::from_str_radix(s, 16).unwrap();
    let mut compared = 0;
    for words in text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>()) {
        if let [start, size, "t" | "T", name] = words[..] {
            let (end, found, by) = &functions[&number(start)];
            assert_eq!((end - number(start), found.as_str()), (number(size), name));
            assert_eq!(
                *by == KnownBy::DebugInfo,
                ["main", "outer", "twice", "inner", "here"].contains(&name),
                "{name}"
            );
            compared += 1;
        }
    }
    assert!(compared >= 4, "only {compared} symbols were compared");
}

#[test]
fn functions_of_a_stripped_program_are_known_by_their_place() {
    let scratch = Scratch::new();
    let program = scratch.compile("gcc", SOURCE, &["-O2", "-fno-reorder-blocks-and-partition"]);
    scratch.run("objcopy", &["--strip-all", "prog", "bare"]);
    let (full, bare) = (open(&program), open(&scratch.path("bare")));
    let functions = listed(&bare);
    for name in ["main", "outer", "twice"] {
        let [function] = &full.find_function(name)[..] else { panic!("{name} must be found once") };
        let start = function.start.0;
        let (end, found, by) = &functions[&start];
        assert_eq!((*end, found.as_str()), (start + function.size, format!("sub_{start:x}").as_str()));
        assert_eq!(*by, KnownBy::CallFrame);
        let location = bare.locate(ImageOffset(start + 3));
        assert_eq!((location.function.as_ref(), location.offset_in_function), (Some(found), 3));
        assert_eq!(location.found_by, FoundBy::CallFrame);
    }
    let entries = functions.iter().filter(|(_, (.., by))| *by == KnownBy::Plt);
    let names: Vec<&str> = entries.clone().map(|(_, (_, name, _))| name.as_str()).collect();
    assert!(names.contains(&"strdup@plt") && names.contains(&"free@plt"), "{names:?}");
    for (start, (_, name, _)) in entries {
        assert_eq!(bare.locate(ImageOffset(*start)).function.as_ref(), Some(name));
    }
}

#[test]
fn all_code_is_there_with_its_bytes() {
    let scratch = Scratch::new();
    let program = scratch.compile("gcc", SOURCE, &["-O2"]);
    let image = open(&program);
    let text = output("readelf", &["-SW"], &program);
    let executable = |line: &str| {
        let (_, rest) = line.split_once(']')?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        let number = |s: &str| u64::from_str_radix(s, 16).ok();
        (words.get(6).copied() == Some("AX")).then_some(())?;
        Some((number(words[2])?, words[0].to_string(), number(words[4])? as usize))
    };
    let expected: Vec<(u64, String, usize)> = text.lines().filter_map(executable).collect();
    let code = image.code();
    let found = |c: &CodeSection| (c.start.0, c.name.clone().unwrap_or_default(), c.bytes.len());
    assert_eq!(code.iter().map(found).collect::<Vec<_>>(), expected);
    assert!(expected.len() >= 3, "a program has .init, .text and .fini: {expected:?}");
    for c in &code {
        assert_eq!(image.bytes(c.start, c.bytes.len() as u64).as_ref(), Some(&c.bytes));
    }
    // Without section headers the executable segment remains.
    let mut bytes = std::fs::read(&program).unwrap();
    bytes[0x28..0x30].fill(0);
    bytes[0x3c..0x40].fill(0);
    let bare = open(&scratch.write("headless", bytes)).code();
    let [segment] = &bare[..] else { panic!("there is one executable segment, not {}", bare.len()) };
    let main = image.find_function("main")[0].start.0;
    let at = (main - segment.start.0) as usize;
    assert_eq!(image.bytes(ImageOffset(main), 8).as_deref(), Some(&segment.bytes[at..at + 8]));
}

/// Every line of the table against `locate`, which another test compares with addr2line.
#[track_caller]
fn check_lines(compiler: &str, source: &str, flags: &[&str]) -> usize {
    let scratch = Scratch::new();
    let image = open(&scratch.compile(compiler, source, flags));
    let table = image.lines();
    assert!(table.rows().windows(2).all(|w| w[0].end <= w[1].start), "rows are sorted and do not overlap");
    for code in image.code() {
        for at in (code.start.0..code.start.0 + code.bytes.len() as u64).map(ImageOffset) {
            let location = image.locate(at);
            let row = table.at(at);
            let known = |n: u32| (n != 0).then_some(n);
            let line = row.and_then(|r| known(r.line));
            let column = row.and_then(|r| known(r.column)).filter(|_| line.is_some());
            assert_eq!((line, column), (location.line, location.column), "{at} with {flags:?}");
            let file = row.and_then(|r| table.file(r)).map(Path::to_path_buf);
            assert_eq!(file.is_some(), location.file.is_some(), "{at}");
            assert_eq!(file.and_then(|f| f.canonicalize().ok()), location.file.and_then(|f| f.canonicalize().ok()));
        }
    }
    table.rows().len()
}

#[test]
fn the_table_of_lines_agrees_with_single_lookups() {
    for flags in [&["-g", "-O0"][..], &["-g", "-O2"], &["-g", "-O2", "-gdwarf-4", "-no-pie"], &["-g", "-O2", "-flto"]] {
        let rows = check_lines("gcc", SOURCE, flags);
        assert!(rows > 20, "{flags:?}: only {rows} rows");
    }
    let cpp = "#include <vector>\nint main(int n, char **) { std::vector<int> v; v.push_back(n); return v[0] == 2; }\n";
    assert!(check_lines("g++", cpp, &["-g", "-O0"]) > 50);
    assert_eq!(check_lines("gcc", SOURCE, &["-O2"]), 0, "without debug information there are no lines");
}

#[test]
fn statements_of_a_line_begin_where_readelf_says() {
    let scratch = Scratch::new();
    let program = scratch.compile("gcc", SOURCE, &["-g", "-O0"]);
    let image = open(&program);
    let text = output("readelf", &["-wL"], &program);
    // `prog.c   8   0x1234   x`, where the last column marks statements.
    let row = |l: &str| {
        let words: Vec<&str> = l.split_whitespace().collect();
        let statement = words.get(3..).is_some_and(|w| w.contains(&"x"));
        let address = u64::from_str_radix(words.get(2)?.strip_prefix("0x")?, 16).ok()?;
        (words[0] == "prog.c" && statement).then_some((words[1].parse::<u32>().ok()?, address))
    };
    let rows: Vec<(u32, u64)> = text.lines().filter_map(row).collect();
    let mut lines: Vec<u32> = rows.iter().map(|(line, _)| *line).collect();
    lines.sort();
    lines.dedup();
    assert!(lines.len() >= 8, "only {} lines have code", lines.len());
    for line in lines {
        let starts = image.statements("prog.c", line);
        assert!(!starts.is_empty(), "line {line} has code");
        assert!(starts.iter().all(|s| rows.contains(&(line, s.0))), "line {line}: {starts:?}");
    }
    assert_eq!(image.statements("prog.c", 1), [], "the first line has no code, and no other line is meant");
}
