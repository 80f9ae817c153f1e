//! Addresses of real programs lead to the functions and lines that the sources say.

mod common;

use common::{Scratch, expected, probes};
use image::{FoundBy, Image, ImageOffset, Search, SymbolKind};
use std::path::Path;

const PLAIN: &str = r#"
int global = 3;
static __attribute__((noinline)) int helper(int x) {
    HERE(); // LINE: helper
    return x * 2;
}
int twice(int x) {
    int y = helper(x);
    HERE(); // LINE: twice
    return y + helper(y);
}
int main(void) {
    int r = twice(global);
    HERE(); // LINE: main
    return r == 0;
}
"#;

const INLINED: &str = r#"
static inline __attribute__((always_inline)) int inner(int x) {
    HERE(); // LINE: inner < middle < outer
    return x + 1;
}
static inline __attribute__((always_inline)) int middle(int x) {
    int y = inner(x);
    HERE(); // LINE: middle < outer
    return y * 3;
}
__attribute__((noinline)) int outer(int x) {
    int y = middle(x);
    HERE(); // LINE: outer
    return y;
}
int main(int argc, char **argv) {
    return outer(argc) == 0;
}
"#;

const CPP: &str = r#"
namespace space {
template <class T> struct Box {
    T value;
    __attribute__((noinline)) T get(int n) {
        HERE(); // LINE: space::Box<int>::get(int)
        return value + n;
    }
};
}
__attribute__((noinline)) int overloaded(char const *, double) {
    HERE(); // LINE: overloaded(char const*, double)
    return 1;
}
int main() {
    auto lambda = [](int x) __attribute__((noinline)) {
        HERE(); // LINE: main::{lambda(int)#1}::operator()(int) const
        return x;
    };
    return space::Box<int>{1}.get(2) + overloaded("", 1) + lambda(3) == 0;
}
"#;

/// Compiles `source`, runs it, and expects at each executed `HERE()` the functions and the line that stand beside it.
#[track_caller]
fn check_locations(compiler: &str, source: &str, flags: &[&str]) {
    let scratch = Scratch::new();
    let program = scratch.compile(compiler, source, flags);
    let image = Image::open(&program).unwrap();
    for probe in probes(&program) {
        let at = probe.call(&image);
        let location = image.locate(at);
        let context = format!("{flags:?}, line {} at {at}: {location:?}", probe.line);
        let names: Vec<String> = location.frames().into_iter().map(|f| f.function.unwrap_or_default()).collect();
        assert_eq!(names, expected(source, probe.line), "{context}");
        assert_eq!(location.line, Some(probe.line), "{context}");
        assert_eq!(location.found_by, FoundBy::DebugInfo, "{context}");
        let file = if compiler == "g++" { "src/prog.cc" } else { "src/prog.c" };
        assert_eq!(location.file.as_deref(), Some(&*scratch.path(file)), "{context}");
        assert_eq!(location.short_file(), Some(Path::new(file)), "{context}");
        // The way back: the line's code holds the call, and the file's bytes there are those of the program.
        let spans = image.find_line("prog.c".to_string() + if compiler == "g++" { "c" } else { "" }, probe.line);
        assert!(spans.iter().any(|s| s.start <= at && at < s.end && s.line == probe.line), "{context}: {spans:?}");
        let in_file = image.file_offset(at).expect("code lies in the file");
        assert_eq!(image.image_offset(in_file), Some(at), "{context}");
        let bytes = std::fs::read(&program).unwrap();
        assert_eq!(image.bytes(at, 4).as_deref(), Some(&bytes[in_file.0 as usize..][..4]), "{context}");
    }
}

#[test]
fn functions_and_lines_are_named_at_every_optimisation() {
    for flags in [
        &["-g", "-O0"][..],
        &["-g", "-O2"],
        &["-g", "-O0", "-no-pie"],
        &["-g", "-O2", "-no-pie"],
        &["-g", "-O1", "-static-pie"],
        &["-g", "-O1", "-gdwarf-4"],
        &["-g", "-O1", "-gdwarf-3"],
        &["-g", "-O1", "-gdwarf-5", "-gz=zlib"],
        &["-g", "-O2", "-ffunction-sections", "-Wl,--gc-sections"],
        &["-g1", "-O1"],
    ] {
        check_locations("gcc", PLAIN, flags);
    }
}

#[test]
fn inlined_functions_are_named_with_their_callers() {
    for flags in [&["-g", "-O2"][..], &["-g", "-O1", "-no-pie"], &["-g", "-O2", "-gdwarf-4"], &["-g", "-O2", "-flto"]] {
        check_locations("gcc", INLINED, flags);
    }
}

#[test]
fn cpp_names_are_readable() {
    check_locations("g++", CPP, &["-g", "-O0"]);
    check_locations("g++", CPP, &["-g", "-O1", "-no-pie"]);
}

#[test]
fn callers_of_inlined_functions_stand_at_their_call_lines() {
    let scratch = Scratch::new();
    let program = scratch.compile("gcc", INLINED, &["-g", "-O2"]);
    let image = Image::open(&program).unwrap();
    let line_of = |text: &str| Some(INLINED.lines().position(|l| l.contains(text)).unwrap() as u32 + 1);
    let first = &probes(&program)[0];
    let lines: Vec<Option<u32>> = image.locate(first.call(&image)).frames().iter().map(|f| f.line).collect();
    assert_eq!(lines, [Some(first.line), line_of("inner(x);"), line_of("middle(x);")]);
}

#[test]
fn a_function_is_found_by_name() {
    let scratch = Scratch::new();
    let program = scratch.compile("g++", CPP, &["-g", "-O0"]);
    let image = Image::open(&program).unwrap();
    for name in ["overloaded", "overloaded(char const*, double)", "_Z10overloadedPKcd"] {
        let [found] = &image.find_function(name)[..] else { panic!("{name} must be found once") };
        assert_eq!(found.name, "overloaded(char const*, double)");
        let location = image.locate(found.start);
        assert_eq!((location.function.as_deref(), location.offset_in_function), (Some(found.name.as_str()), 0));
        assert!(image.locate(ImageOffset(found.start.0 + found.size - 1)).offset_in_function == found.size - 1);
    }
    assert_eq!(image.find_function("space::Box<int>::get").len(), 1);
    assert_eq!(image.find_function("no_such_function"), []);
}

#[test]
fn data_is_found_by_name() {
    let scratch = Scratch::new();
    let program = scratch.compile("gcc", PLAIN, &["-g", "-O0"]);
    let image = Image::open(&program).unwrap();
    let [global] = &image.symbols().find("global")[..] else { panic!("the variable must be found once") };
    assert_eq!((global.kind, global.size), (SymbolKind::Data, 4));
    assert_eq!(image.bytes(global.start, 4).as_deref(), Some(&3u32.to_le_bytes()[..]));
}

#[test]
fn a_line_without_code_leads_to_the_next_one_with_code() {
    let scratch = Scratch::new();
    let program = scratch.compile("gcc", PLAIN, &["-g", "-O0"]);
    let image = Image::open(&program).unwrap();
    let declaration = PLAIN.lines().position(|l| l.contains("int global")).unwrap() as u32 + 1;
    let [span] = &image.find_line("src/prog.c", declaration)[..] else { panic!("there must be one span") };
    assert_eq!((span.line, span.statement), (declaration + 1, true), "the opening line of helper");
    assert_eq!(span.start, image.find_function("helper")[0].start);
    assert_eq!(image.find_line("other/prog.c", declaration), [], "another folder is another file");
    assert_eq!(image.find_line("prog.c", 1_000_000), []);
    assert_eq!(image.find_line("", 1), []);
}

#[test]
fn assembler_functions_without_size_are_named() {
    const SOURCE: &str = "
        .globl _start, second
        .text
_start: nop
        call second
second: nop
        nop
        ret
";
    let scratch = Scratch::new();
    let program = scratch.compile("gcc", SOURCE, &["-g", "-nostdlib", "-static"]);
    let image = Image::open(&program).unwrap();
    let start = image.find_function("second")[0].start;
    let location = image.locate(ImageOffset(start.0 + 1));
    assert_eq!((location.function.as_deref(), location.offset_in_function), (Some("second"), 1));
    assert_eq!(location.line, Some(7), "the second nop of second");
}

#[test]
fn a_stripped_program_keeps_its_exported_names() {
    let scratch = Scratch::new();
    let program = scratch.compile("gcc", PLAIN, &["-O1", "-rdynamic"]);
    scratch.run("objcopy", &["--strip-all", "prog", "bare"]);
    let image = Image::open_with(scratch.path("bare"), Search::in_folders(vec![])).unwrap();
    let mut seen = Vec::new();
    for probe in probes(&program) {
        let at = probe.call(&image);
        let location = image.locate(at);
        assert_eq!(location.line, None);
        match expected(PLAIN, probe.line)[..] {
            // Static, so its name is gone, and the last exported one before it is only a landmark.
            ["helper"] => assert!(!matches!(location.found_by, FoundBy::Symbol | FoundBy::DebugInfo), "{location:?}"),
            [name] => {
                assert_eq!((location.function.as_deref(), location.found_by), (Some(name), FoundBy::Symbol));
                assert!(location.offset_in_function > 0);
                seen.push(name);
            }
            _ => unreachable!("each marker of this source names one function"),
        }
    }
    assert!(seen.contains(&"twice") && seen.contains(&"main"));
}

#[test]
fn a_library_is_named_by_its_exports() {
    // Whatever the C library's package contains, `malloc` is exported and has a size.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let path =
        maps.lines().filter_map(|l| l.split_whitespace().nth(5)).find(|p| p.contains("libc.so") || p.contains("libc-"));
    let image = Image::open(path.expect("the test itself uses the C library")).unwrap();
    assert!(image.build_id().is_some());
    let malloc = &image.find_function("malloc")[0];
    let location = image.locate(ImageOffset(malloc.start.0 + 1));
    assert!(location.function.is_some_and(|f| f.contains("malloc")));
}

#[test]
fn addresses_outside_the_code_have_no_name() {
    let scratch = Scratch::new();
    let image = Image::open(scratch.compile("gcc", PLAIN, &["-g"])).unwrap();
    for at in [0, 1, 0x1000_0000, u64::MAX - 1, u64::MAX] {
        assert_eq!(image.locate(ImageOffset(at)).found_by, FoundBy::Nothing, "{at:#x}");
    }
}
