//! Messages: places and crashes in words.

mod common;

use common::Scratch;
use image::{Describe, FileOffset, Image, ImageOffset, Images, Search};
use model::GuestAddr;
use model::wire::{Crash, Frame, Registers};

const SOURCE: &str = r#"
static inline __attribute__((always_inline)) int leaf(int *p) {
    *(volatile int *)p = 1; // LINE: crash
    return 2;
}
__attribute__((noinline)) int parse_header(int *p) {
    return leaf(p) + 1; // LINE: inlined
}
int main(int argc, char **argv) {
    int r = parse_header(0);
    __asm__ volatile("nop"); // LINE: nop
    return r;
}
"#;

fn marked(name: &str) -> u32 {
    SOURCE.lines().position(|l| l.ends_with(&format!("// LINE: {name}"))).unwrap() as u32 + 1
}

struct Fixture {
    _scratch: Scratch,
    image: Image,
    images: Images,
    path: String,
}

fn fixture(flags: &[&str], strip: &[&str]) -> Fixture {
    let scratch = Scratch::new();
    let program = scratch.compile("gcc", SOURCE, flags);
    let image = Image::open(&program).unwrap();
    let path = if strip.is_empty() {
        program
    } else {
        scratch.run("objcopy", &[strip, &["prog", "bare"]].concat());
        scratch.path("bare")
    };
    let images = Images::with_search(Search::in_folders(vec![]));
    Fixture { _scratch: scratch, image, images, path: path.to_str().unwrap().to_string() }
}

fn crash(signal: u32, code: i32, addr: u64) -> Crash {
    let registers = Registers { rip: 0x5555_5555_5000, ..Registers::default() };
    let (file, frames) = (String::new(), Vec::new());
    Crash {
        tid: 1,
        signal,
        code,
        addr: GuestAddr(addr),
        registers,
        tick: 0,
        file,
        file_offset: 0,
        stack: Vec::new(),
        mapped: Vec::new(),
        frames,
    }
}

#[test]
fn a_place_is_named_by_function_file_and_line() {
    let f = fixture(&["-g", "-O0"], &[]);
    let at = f.image.find_line("prog.c", marked("nop"))[0].start;
    let expected = format!("main at src/prog.c:{} (in {}+{at})", marked("nop"), f.path);
    assert_eq!(f.images.describe(&f.path, at, GuestAddr(0)), expected);
    assert_eq!(f.images.describe(&f.path, f.image.file_offset(at).unwrap(), GuestAddr(0)), expected);
}

#[test]
fn an_inlined_place_names_the_callers() {
    let f = fixture(&["-g", "-O1"], &[]);
    let at = f.image.find_line("prog.c", marked("crash"))[0].start;
    let (crash, inlined) = (marked("crash"), marked("inlined"));
    assert_eq!(
        f.images.describe(&f.path, at, GuestAddr(0)),
        format!("leaf at src/prog.c:{crash}, inlined into parse_header at src/prog.c:{inlined} (in {}+{at})", f.path)
    );
}

#[test]
fn without_debug_information_a_place_is_named_by_symbol_and_distance() {
    let f = fixture(&["-g", "-O0"], &["--strip-debug"]);
    let start = f.image.find_function("main")[0].start;
    let at = ImageOffset(start.0 + 4);
    assert_eq!(f.images.describe(&f.path, at, GuestAddr(0)), format!("main+0x4 (in {}+{at})", f.path));
    assert_eq!(f.images.describe(&f.path, start, GuestAddr(0)), format!("main (in {}+{start})", f.path));
}

#[test]
fn without_symbols_a_place_is_named_by_the_start_of_its_function() {
    let f = fixture(&["-g", "-O0", "-no-pie", "-nostartfiles", "-Wl,-e,main"], &["--strip-all"]);
    let start = f.image.find_function("main")[0].start;
    let (at, name) = (ImageOffset(start.0 + 4), format!("sub_{:x}", start.0));
    assert_eq!(f.images.describe(&f.path, at, GuestAddr(0)), format!("{name}+0x4 (in {}+{at})", f.path));
}

#[test]
fn without_call_frame_information_a_place_is_named_by_file_and_offset() {
    let flags = ["-O0", "-no-pie", "-nostartfiles", "-Wl,-e,main", "-g"];
    let f = fixture(&flags, &["--strip-all", "--remove-section=.eh_frame", "--remove-section=.eh_frame_hdr"]);
    let at = f.image.find_function("main")[0].start;
    assert_eq!(f.images.describe(&f.path, at, GuestAddr(0)), format!("{}+{at}", f.path));
}

#[test]
fn places_without_a_program_file_are_named_as_well_as_possible() {
    let scratch = Scratch::new();
    let text = scratch.write("text", "not a program").to_str().unwrap().to_string();
    let images = Images::new();
    let at = FileOffset(0x1234);
    let describe = |path: &str| images.describe(path, at, GuestAddr(0x7f00_0000_1234));
    assert_eq!(describe(""), "0x7f0000001234 (no file is mapped there)");
    assert_eq!(describe("[vdso]"), "0x7f0000001234 (in [vdso])");
    assert_eq!(describe("/no/such/file"), "/no/such/file at file offset 0x1234");
    assert_eq!(describe(&text), format!("{text} at file offset 0x1234"));
    assert_eq!(describe("/dev/zero"), "/dev/zero at file offset 0x1234");
    assert_eq!(describe("/"), "/ at file offset 0x1234");
    assert_eq!(describe("/tmp/a\x1b[2Jb"), "/tmp/a\\u{1b}[2Jb at file offset 0x1234");
    assert_eq!(images.describe("/no/such/file", ImageOffset(0x10), GuestAddr(0)), "/no/such/file+0x10");
}

#[test]
fn a_crash_tells_what_where_and_how_the_program_got_there() {
    let f = fixture(&["-g", "-O1"], &[]);
    let pc = f.image.find_line("prog.c", marked("crash"))[0].start;
    // The call in main ends where the line after it begins.
    let after_call = f.image.find_line("prog.c", marked("nop"))[0].start;
    let call_line = marked("nop") - 1;
    let frame = |at: ImageOffset| Frame {
        pc: GuestAddr(at.0 + 0x5555_5555_4000),
        file: f.path.clone(),
        file_offset: f.image.file_offset(at).unwrap().0,
    };
    let mut crash = crash(11, 1, 0);
    (crash.file, crash.file_offset) = (f.path.clone(), f.image.file_offset(pc).unwrap().0);
    // The second candidate points into main but no call ends there; the third lies in memory without a file.
    let elsewhere = Frame { pc: GuestAddr(0x7f00_0000_0010), file: String::new(), file_offset: 0 };
    crash.frames = vec![frame(after_call), frame(f.image.find_function("main")[0].start), elsewhere];
    assert_eq!(
        Describe::new(&f.images).crash(&crash),
        [
            format!("SIGSEGV (address not mapped, 0x0) in leaf at src/prog.c:{} ({}+{pc})", marked("crash"), f.path),
            format!("  #1 parse_header at src/prog.c:{}", marked("inlined")),
            format!("  #2 main at src/prog.c:{call_line}"),
            "  #3 0x7f000000000f (no file is mapped there)".to_string(),
        ]
    );
}

#[test]
fn each_cause_has_its_words() {
    for (signal, code, expected) in [
        (11, 1, "SIGSEGV (address not mapped, 0x10) at 0x555555555000 (no file is mapped there)"),
        (11, 2, "SIGSEGV (access not permitted, 0x10) at 0x555555555000 (no file is mapped there)"),
        (11, 0, "SIGSEGV (sent by kill) at 0x555555555000 (no file is mapped there)"),
        (7, 2, "SIGBUS (beyond the end of the mapped file, 0x10) at 0x555555555000 (no file is mapped there)"),
        (8, 1, "SIGFPE (integer division by zero or overflow) at 0x555555555000 (no file is mapped there)"),
        (6, -6, "SIGABRT (raised by a thread) at 0x555555555000 (no file is mapped there)"),
        (4, 2, "SIGILL (illegal instruction) at 0x555555555000 (no file is mapped there)"),
        (15, 77, "SIGTERM at 0x555555555000 (no file is mapped there)"),
    ] {
        assert_eq!(Describe::new(&Images::new()).crash(&crash(signal, code, 0x10)), [expected]);
    }
}

#[test]
fn a_long_backtrace_ends_early() {
    let mut crash = crash(11, 1, 0);
    crash.frames = vec![Frame { pc: GuestAddr(1), file: String::new(), file_offset: 0 }; 1000];
    let lines = Describe::new(&Images::new()).crash(&crash);
    assert_eq!((lines.len(), lines.last().map(String::as_str)), (32, Some("  …")));
}
