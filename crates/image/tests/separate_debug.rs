//! Debug information is found in separate files, and only in files that belong to the program.

mod common;

use common::{Scratch, expected, probes};
use image::{FoundBy, Image, Search};
use std::path::{Path, PathBuf};

const SOURCE: &str = r#"
static __attribute__((noinline)) int hidden(int x) {
    HERE(); // LINE: hidden
    return x + 1;
}
int main(int argc, char **argv) {
    return hidden(argc) == 0;
}
"#;

/// Compiles the program and splits it into `bare`, without any names, and `prog.debug`, with all of them.
fn split(scratch: &Scratch, flags: &[&str], strip: &[&str]) {
    scratch.compile("gcc", SOURCE, &[&["-g", "-O1"], flags].concat());
    scratch.run("objcopy", &["--only-keep-debug", "prog", "prog.debug"]);
    scratch.run("objcopy", &[&["--strip-all"], strip, &["prog", "bare"]].concat());
}

/// Expects that the names of `bare` are known, from the file at `debug`, or that they are not.
#[track_caller]
fn check_debug_file(scratch: &Scratch, roots: &[PathBuf], debug: Option<&Path>) {
    let image = Image::open_with(scratch.path("bare"), Search::in_folders(roots.to_vec())).unwrap();
    assert_eq!(image.debug_file(), debug);
    assert_eq!(image.has_debug_info(), debug.is_some());
    let probe = &probes(&scratch.path("prog"))[0];
    let location = image.locate(probe.call(&image));
    if debug.is_some() {
        assert_eq!(location.function.as_deref(), Some(expected(SOURCE, probe.line)[0]));
        assert_eq!(location.line, Some(probe.line));
        assert_eq!(image.find_function("hidden").len(), 1, "symbols come from the debug file too");
    } else {
        assert_ne!(location.found_by, FoundBy::DebugInfo);
        assert_eq!(image.find_function("hidden"), []);
    }
}

#[test]
fn a_debug_file_is_found_by_build_id() {
    let scratch = Scratch::new();
    split(&scratch, &["-Wl,--build-id"], &[]);
    let id = Image::open(scratch.path("bare")).unwrap().build_id().expect("the linker was asked for one").to_string();
    let place = scratch.write(&format!("root/.build-id/{}/{}.debug", &id[..2], &id[2..]), "");
    std::fs::rename(scratch.path("prog.debug"), &place).unwrap();
    check_debug_file(&scratch, &[scratch.path("empty"), scratch.path("root")], Some(&place));
    check_debug_file(&scratch, &[], None);
}

#[test]
fn a_debug_file_is_found_by_its_link() {
    for flag in ["-Wl,--build-id", "-Wl,--build-id=none"] {
        let scratch = Scratch::new();
        split(&scratch, &[flag], &["--add-gnu-debuglink=prog.debug"]);
        check_debug_file(&scratch, &[], Some(&scratch.path("prog.debug")));

        let hidden = scratch.write(".debug/prog.debug", "");
        std::fs::rename(scratch.path("prog.debug"), &hidden).unwrap();
        check_debug_file(&scratch, &[], Some(&hidden));

        let folder = scratch.0.strip_prefix("/").unwrap().to_str().unwrap();
        let in_root = scratch.write(&format!("root/{folder}/prog.debug"), "");
        std::fs::rename(&hidden, &in_root).unwrap();
        check_debug_file(&scratch, &[scratch.path("root")], Some(&in_root));
        check_debug_file(&scratch, &[], None);
    }
}

#[test]
fn a_debug_file_of_another_build_is_not_used() {
    for flag in ["-Wl,--build-id", "-Wl,--build-id=none"] {
        let scratch = Scratch::new();
        split(&scratch, &[flag], &["--add-gnu-debuglink=prog.debug"]);
        let other = Scratch::new();
        split(&other, &[flag, "-DOTHER", "-O0"], &[]);
        std::fs::copy(other.path("prog.debug"), scratch.path("prog.debug")).unwrap();
        check_debug_file(&scratch, &[], None);
        scratch.write("prog.debug", "not a program at all");
        check_debug_file(&scratch, &[], None);
    }
}

#[test]
fn compressed_debug_files_are_read() {
    let scratch = Scratch::new();
    split(&scratch, &[], &[]);
    scratch.run("objcopy", &["--compress-debug-sections=zlib", "prog.debug"]);
    scratch.run("objcopy", &["--add-gnu-debuglink=prog.debug", "bare"]);
    check_debug_file(&scratch, &[], Some(&scratch.path("prog.debug")));
}

#[test]
fn names_in_a_shared_debug_file_are_found() {
    // What dwz makes of two programs: strings and entries move to a file of their own.
    // `DW_FORM_GNU_strp_alt` is 0x1f21, `DW_FORM_GNU_ref_alt` 0x1f20.
    const SHARED: &str = r#".globl _start
_start: ret
        .section .debug_abbrev, ""
        .byte 1, 0x11, 1, 0, 0          # compile unit, with children
        .byte 2, 0x2e, 0, 3, 8, 0, 0    # subprogram: name as string
        .byte 0
        .section .debug_info, ""
        .long 2f - 1f
1:      .short 4
        .long 0
        .byte 8
        .byte 1
        .byte 2                         # at offset 12
        .string "by_reference"
        .byte 0
2:
        .section .debug_str, ""
        .string "x"
        .string "by_string"             # at offset 2
"#;
    const PROGRAM: &str = r#".globl _start, other
_start: nop
        ret
other:  nop
        ret
.Lend:
        .section .debug_abbrev, ""
        .byte 1, 0x11, 1, 0x11, 1, 0x12, 7, 0, 0                 # compile unit: low_pc, high_pc as data8
        .byte 2, 0x2e, 0, 3, 0xa1, 0x3e, 0x11, 1, 0x12, 7, 0, 0  # subprogram: name as GNU_strp_alt
        .byte 3, 0x2e, 0, 0x31, 0xa0, 0x3e, 0x11, 1, 0x12, 7, 0, 0 # subprogram: abstract origin as GNU_ref_alt
        .byte 0
        .section .debug_info, ""
        .long 2f - 1f
1:      .short 4
        .long 0
        .byte 8
        .byte 1
        .quad _start, .Lend - _start
        .byte 2
        .long 2
        .quad _start, 2
        .byte 3
        .long 12
        .quad other, 2
        .byte 0
2:
"#;
    let scratch = Scratch::new();
    let flags = ["-nostdlib", "-static", "-Wl,--build-id=0x0123456789abcdef"];
    scratch.compile("gcc", SHARED, &flags);
    std::fs::rename(scratch.path("prog"), scratch.path("shared.debug")).unwrap();
    scratch.write("link", b"shared.debug\0\x01\x23\x45\x67\x89\xab\xcd\xef");
    scratch.compile("gcc", PROGRAM, &["-nostdlib", "-static"]);
    // The names must come from the debug information alone.
    scratch.run("objcopy", &["--strip-symbol=_start", "--strip-symbol=other", "prog"]);
    scratch.run("objcopy", &["--add-section", ".gnu_debugaltlink=link", "prog"]);
    let image = Image::open_with(scratch.path("prog"), Search::in_folders(vec![])).unwrap();
    let start = image.image_offset(text_offset(&scratch.path("prog"))).unwrap();
    assert_eq!(image.locate(start).function.as_deref(), Some("by_string"));
    assert_eq!(image.locate(image::ImageOffset(start.0 + 2)).function.as_deref(), Some("by_reference"));
}

/// Where the entry point lies in the file, read from the ELF header and the executable segment.
fn text_offset(program: &Path) -> image::FileOffset {
    use object::read::elf::{ElfFile64, ProgramHeader};
    let bytes = std::fs::read(program).unwrap();
    let elf: ElfFile64<'_, object::LittleEndian> = ElfFile64::parse(&*bytes).unwrap();
    let entry = object::Object::entry(&elf);
    let segment = elf.elf_program_headers().iter().find(|p| {
        let start = p.p_vaddr(object::LittleEndian);
        start <= entry && entry < start + p.p_memsz(object::LittleEndian)
    });
    let segment = segment.expect("the entry point is mapped");
    image::FileOffset(entry - segment.p_vaddr(object::LittleEndian) + segment.p_offset(object::LittleEndian))
}
