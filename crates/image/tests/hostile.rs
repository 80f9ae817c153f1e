//! Damaged and malicious files give an error or a less precise answer, never a panic, a hang or a huge allocation.
//!
//! The questions are asked in a child process with hard limits on memory and processor time: this same test program,
//! told by an environment variable which file to ask about.

mod common;

use common::Scratch;
use common::limits::{self, Random};
use image::{Bias, Describe, FileOffset, Image, ImageOffset, Images, Search};
use model::GuestAddr;
use model::wire::{Crash, Frame, Registers};
use object::{Object, ObjectSection};
use std::ops::Range;
use std::path::Path;

/// Asks everything there is to ask.
fn question(path: &Path, random: &mut Random) {
    let search = Search::in_folders(vec![path.parent().unwrap().to_path_buf()]);
    let Ok(image) = Image::open_with(path, search.clone()) else { return };
    let _ = (image.build_id(), image.debug_file(), image.has_debug_info());
    let symbols: Vec<ImageOffset> = image.symbols().iter().map(|s| s.start).take(200).collect();
    let random_places = (0..20).map(|_| ImageOffset(random.next() >> random.below(64))).collect::<Vec<_>>();
    let code = (0x1000..0x1400).chain(0x40_1000..0x40_1200).step_by(13).map(ImageOffset);
    let images = Images::with_search(search);
    let file = path.to_str().unwrap();
    for at in symbols.into_iter().chain(random_places).chain(code) {
        let location = image.locate(at);
        assert!(location.inlined.len() <= 64, "messages stay readable");
        let _ = (image.file_offset(at), image.bytes(at, 16), Bias(random.next()).to_guest(at));
        let _ = images.describe(file, at, GuestAddr(at.0));
    }
    for (name, line) in [("prog.c", 1), ("prog.c", 3), ("src/prog.c", 12), ("/prog.c", 1), ("prog.s", 3), ("", 0)] {
        image.find_line(name, line);
        image.statements(name, line);
    }
    let functions = image.functions();
    assert!(functions.windows(2).all(|w| w[0].start < w[0].end && w[0].end <= w[1].start), "nothing overlaps");
    assert!(image.lines().rows().windows(2).all(|w| w[0].end <= w[1].start), "nothing overlaps");
    let code: usize = image.code().iter().map(|c| c.bytes.len()).sum();
    assert!(code as u64 <= 2 * path.metadata().unwrap().len(), "code is at most twice the file");
    for name in ["main", "helper", "", "x::y", "_Z3foo"] {
        image.find_function(name);
    }
    let frames = (0..20).map(|_| random.next() % 0x3000);
    let frames = frames.map(|o| Frame { pc: GuestAddr(o), file: file.to_string(), file_offset: o }).collect();
    let registers = Registers::default();
    let (file_offset, addr) = (random.next() % 0x3000, GuestAddr(0));
    let crash = Crash {
        tid: 1,
        signal: 11,
        code: 1,
        addr,
        registers,
        tick: 0,
        file: file.to_string(),
        file_offset,
        stack: Vec::new(),
        mapped: Vec::new(),
        frames,
    };
    Describe::new(&images).crash(&crash);
    image.image_offset(FileOffset(random.next()));
}

/// Where damage goes: any byte, the tables that hold the file together, or the sections that are decoded.
fn targets(program: &[u8]) -> Vec<Range<usize>> {
    let elf = object::read::elf::ElfFile64::<object::LittleEndian, _>::parse(program).unwrap();
    let tables = u64::from_le_bytes(program[0x28..0x30].try_into().unwrap()) as usize;
    let mut targets = vec![0..program.len(), 0..64, 64..64 + 13 * 56, tables..program.len()];
    for section in elf.sections() {
        let name = section.name().unwrap();
        if name.starts_with(".debug")
            || matches!(name, ".symtab" | ".strtab" | ".dynsym" | ".gnu_debuglink" | ".plt" | ".rela.plt" | ".eh_frame")
        {
            let (offset, size) = section.file_range().unwrap();
            targets.push(offset as usize..(offset + size) as usize);
        }
    }
    targets
}

/// The child's part: without the environment variable there is nothing to do.
#[test]
fn question_the_file_that_the_parent_names() {
    limits::each_variant(&targets, &mut question);
}

#[track_caller]
fn check_survives(path: &Path, variants: u32) {
    limits::check_survives("question_the_file_that_the_parent_names", path, variants);
}

const SOURCE: &str = r#"
struct node { struct node *next; int value; };
static inline __attribute__((always_inline)) int add(struct node *n) { return n->value + 1; }
static __attribute__((noinline)) int helper(struct node *n) {
    int sum = 0;
    for (; n; n = n->next) sum += add(n);
    return sum;
}
int main(int argc, char **argv) {
    struct node a = {0, argc}, b = {&a, 2};
    return helper(&b) + helper(&a);
}
"#;

#[test]
fn three_hundred_damaged_variants_of_a_program() {
    let scratch = Scratch::new();
    check_survives(&scratch.compile("gcc", SOURCE, &["-g", "-O2"]), 200);
    check_survives(&scratch.compile("gcc", SOURCE, &["-g", "-O0", "-gdwarf-4", "-no-pie"]), 100);
}

#[test]
fn damaged_variants_of_compressed_and_cpp_programs() {
    let scratch = Scratch::new();
    check_survives(&scratch.compile("gcc", SOURCE, &["-g", "-O1", "-gz=zlib"]), 60);
    let source =
        "#include <string>\nint main(int c, char **v) { return std::string(v[0]).append(\"x\").size() == c; }\n";
    check_survives(&scratch.compile("g++", source, &["-g", "-O1"]), 30);
}

#[test]
fn files_that_are_not_programs() {
    let scratch = Scratch::new();
    let real = std::fs::read(scratch.compile("gcc", SOURCE, &["-g"])).unwrap();
    for (name, contents, expected) in [
        ("empty", vec![], "is not an ELF file"),
        ("text", b"#!/bin/sh\n".to_vec(), "is not an ELF file"),
        ("magic", b"\x7fELF".to_vec(), "is not an x86-64 ELF file: its class or byte order is unknown"),
        ("short", real[..40].to_vec(), "is damaged: expected a complete ELF header"),
        ("headers", real[..80].to_vec(), "is damaged: expected a table of program headers"),
        ("narrow", [&real[..4], &[1], &real[5..]].concat(), "is not an x86-64 ELF file: it is 32-bit"),
        ("swapped", [&real[..5], &[2], &real[6..]].concat(), "is not an x86-64 ELF file: it is big-endian"),
        ("arm", [&real[..18], &[183], &real[19..]].concat(), "is not an x86-64 ELF file: it is for another machine"),
    ] {
        let path = scratch.write(name, contents);
        let error = Image::open(&path).expect_err("this must not open").to_string();
        assert_eq!(error, format!("{} {expected}", path.display()));
    }
    assert!(Image::open(scratch.path("missing")).unwrap_err().to_string().starts_with("cannot read "));
    assert!(Image::open(&scratch.0).unwrap_err().to_string().ends_with(" is not a regular file"));
}

#[test]
fn a_program_that_is_replaced_is_not_mixed_with_the_new_one() {
    let scratch = Scratch::new();
    let program = scratch.compile("gcc", SOURCE, &["-g"]);
    let image = Image::open(&program).unwrap();
    let main = Image::open(&program).unwrap().find_function("main")[0].start;
    std::fs::remove_file(&program).unwrap();
    scratch.compile("gcc", "int other(void) { return 1; } int main(void) { return other(); }", &["-g", "-O2"]);
    let location = image.locate(main);
    assert_eq!(location.function, None, "the headers are those of the old file, so nothing else may be read");
}

/// A program whose debug information is `sections`, in assembler; `_start` is code of four bytes.
#[track_caller]
fn check_attack(sections: &str) {
    let scratch = Scratch::new();
    let source = format!(".globl _start\n.text\n_start: nop\nnop\nnop\nret\n.Lend:\n{sections}\n");
    let program = scratch.compile("gcc", &source, &["-nostdlib", "-static", "-Wl,-Ttext=0x401000"]);
    check_survives(&program, 0);
}

/// The header of a version 4 unit and its root with low and high address.
const UNIT: &str = "
        .section .debug_info, \"\"
        .long 2f - 1f
1:      .short 4
        .long 0
        .byte 8
        .byte 1
        .quad _start
        .quad 4
";
const ROOT_ABBREVIATION: &str = ".byte 1, 0x11, 1, 0x11, 1, 0x12, 7, 0, 0 # compile unit: low_pc, high_pc as data8\n";

#[test]
fn inlined_calls_nested_without_end() {
    check_attack(&format!(
        "{UNIT}
        .byte 2
        .quad _start, 4
        .rept 300000
        .byte 3
        .quad _start
        .byte 4
        .endr
2:
        .section .debug_abbrev, \"\"
        {ROOT_ABBREVIATION}
        .byte 2, 0x2e, 1, 0x11, 1, 0x12, 7, 0, 0  # subprogram with children
        .byte 3, 0x1d, 1, 0x11, 1, 0x12, 11, 0, 0 # inlined subroutine with children: low_pc, high_pc as data1
        .byte 0"
    ));
}

#[test]
fn functions_that_share_one_endless_list_of_ranges() {
    check_attack(&format!(
        "{UNIT}
        .rept 100000
        .byte 2
        .long 0
        .endr
2:
        .section .debug_abbrev, \"\"
        {ROOT_ABBREVIATION}
        .byte 2, 0x2e, 0, 0x55, 0x17, 0, 0 # subprogram: ranges as sec_offset
        .byte 0
        .section .debug_ranges, \"\"
        .rept 50000
        .quad 0, 4
        .endr
        .quad 0, 0"
    ));
}

#[test]
fn units_that_share_one_endless_table_of_abbreviations() {
    check_attack(
        "
        .section .debug_info, \"\"
        .set n, 0
        .rept 20000
        .long 8
        .short 4
        .long n % 1000 * 7
        .byte 8
        .byte 1
        .set n, n + 1
        .endr
        .section .debug_abbrev, \"\"
        .set n, 1
        .rept 50000
        .byte n & 127 | 128, n >> 7 & 127 | 128, n >> 14, 0x11, 0, 0, 0
        .set n, n + 1
        .endr
        .byte 0",
    );
}

#[test]
fn attributes_that_take_no_room() {
    check_attack(&format!(
        "{UNIT}
        .rept 200000
        .byte 2
        .endr
2:
        .section .debug_abbrev, \"\"
        {ROOT_ABBREVIATION}
        .byte 2, 0x34, 0
        .rept 200000
        .byte 0x3f, 0x19 # external, present without a value
        .endr
        .byte 0, 0, 0"
    ));
}

#[test]
fn files_in_a_folder_with_an_endless_name() {
    check_attack(
        "
        .section .debug_info, \"\"
        .long 2f - 1f
1:      .short 5
        .byte 1, 8
        .long 0
        .byte 1
        .quad _start, 4
        .long 0, 0
2:
        .section .debug_abbrev, \"\"
        .byte 1, 0x11, 0, 0x11, 1, 0x12, 7, 0x10, 0x17, 0x1b, 0x1f, 0, 0 # with stmt_list and comp_dir as line_strp
        .byte 0
        .section .debug_line_str, \"\"
        .fill 3000, 1, 0x61
        .byte 0
        .section .debug_line, \"\"
        .long 4f - 3f
3:      .short 5
        .byte 8, 0
        .long 6f - 5f
5:      .byte 1, 1, 1, 0xfb, 14, 13
        .byte 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1
        .byte 1, 1, 0x1f, 1       # one directory: path as line_strp
        .long 0
        .byte 1, 1, 0x1f          # file names: path as line_strp
        .byte 0xa0, 0xc2, 0x1e    # 500000 of them
        .rept 500000
        .long 2999
        .endr
6:
4:
",
    );
}

#[test]
fn names_that_refer_to_each_other() {
    check_attack(&format!(
        "{UNIT}
        .byte 2
        .quad _start, 4
        .long 28
        .byte 0
2:
        .section .debug_abbrev, \"\"
        {ROOT_ABBREVIATION}
        .byte 2, 0x2e, 0, 0x11, 1, 0x12, 7, 0x31, 0x13, 0, 0 # subprogram whose abstract origin is itself
        .byte 0"
    ));
}

#[test]
fn units_that_all_claim_the_same_code() {
    check_attack(
        "
        .section .debug_info, \"\"
        .rept 20000
        .long 24
        .short 4
        .long 0
        .byte 8
        .byte 1
        .quad _start, 4
        .byte 0
        .endr
        .section .debug_abbrev, \"\"
        .byte 1, 0x11, 1, 0x11, 1, 0x12, 7, 0, 0, 0",
    );
}
