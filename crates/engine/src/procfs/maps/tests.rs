//! Tests of the guest's maps and smaps: the kernel's text above, what the guest sees below.

use super::*;
use alloc::{format, string::ToString, vec};

/// Lines without indentation, each ended by a newline; `$` marks the end of a line that ends with a blank.
fn text(lines: &str) -> String {
    let line = |l: &str| format!("{}\n", l.trim_start().trim_end_matches('$'));
    lines.lines().filter(|l| !l.is_empty()).map(line).collect()
}

/// `before` is the kernel's text, `after` what the guest sees.
#[track_caller]
fn check(view: View<'_>, before: &str, after: &str) {
    let got = String::from_utf8(rewrite(text(before).as_bytes(), &view)).unwrap();
    assert_eq!(got.lines().collect::<Vec<_>>(), text(after).lines().collect::<Vec<_>>());
}

fn pages(range: Range<u64>, prot: u32) -> GuestPages {
    GuestPages { range, prot }
}

#[test]
fn the_engine_disappears() {
    check(
        View::default(),
        "00400000-00401000 r-xp 00000000 fe:00 77                                 /bin/a b (deleted)
         555560000000-555570000000 r-xp 00000000 00:00 0 $
         560000000000-560000100000 r-xp 00000000 00:01 5                          /memfd:engine (deleted)
         562000000000-562000001000 rw-p 00000000 00:00 0                          [heap]
         7ffff7fc0000-7ffff7fc4000 r--p 00000000 00:00 0                          [vvar]
         ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]",
        "00400000-00401000 r-xp 00000000 fe:00 77                                 /bin/a b (deleted)
         7ffff7fc0000-7ffff7fc4000 r--p 00000000 00:00 0                          [vvar]
         ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]",
    );
}

#[test]
fn heap_and_stack_get_their_names() {
    check(
        View { heap: 0x5555_e000_0000..0x5555_e002_1000, stack: 0x7fff_ffff_e000..0x7fff_ffff_f000, pages: &[] },
        "555555554000-555555555000 rw-p 00000000 fe:00 9                          /bin/x
         5555e0000000-5555e0021000 rw-p 00000000 00:00 0 $
         7f0000000000-7f0000021000 rw-p 00000000 00:00 0                          [stack]
         7f0000022000-7f0000023000 rw-p 00000000 00:00 0                          [anon:mine]
         7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0 $",
        "555555554000-555555555000 rw-p 00000000 fe:00 9                          /bin/x
         5555e0000000-5555e0021000 rw-p 00000000 00:00 0                          [heap]
         7f0000000000-7f0000021000 rw-p 00000000 00:00 0 $
         7f0000022000-7f0000023000 rw-p 00000000 00:00 0                          [anon:mine]
         7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0                          [stack]",
    );
}

#[test]
fn protected_pages_look_as_the_guest_made_them() {
    // A JIT's buffer, and a file's writable code, of which pages are write-protected; nothing is executable.
    let protected = [pages(0x7f00_0000_1000..0x7f00_0000_5000, 7), pages(0x41_0000..0x41_3000, 7)];
    check(
        View { pages: &protected, ..View::default() },
        "00410000-00411000 r--p 00001000 fe:00 77                                 /bin/a
         00411000-00413000 rw-p 00002000 fe:00 77                                 /bin/a
         7f0000001000-7f0000002000 rw-p 00000000 00:00 0 $
         7f0000002000-7f0000003000 r--p 00000000 00:00 0 $
         7f0000003000-7f0000004000 rw-p 00000000 00:00 0 $
         7f0000004000-7f0000005000 rw-p 00000000 00:00 0 $",
        "00410000-00413000 rwxp 00001000 fe:00 77                                 /bin/a
         7f0000001000-7f0000005000 rwxp 00000000 00:00 0 $",
    );
}

#[test]
fn lines_that_the_kernel_keeps_apart_stay_apart() {
    let same = "7f0000001000-7f0000002000 rw-p 00000000 00:00 0 $
         7f0000002000-7f0000003000 rw-p 00000000 00:00 0 $";
    check(View::default(), same, same);
    // Touched, but not the same file, offset or name.
    let protected = [pages(0x1000..0x4000, 1)];
    let differ = "00001000-00002000 r--p 00000000 fe:00 7                                  /a
         00002000-00003000 r--p 00005000 fe:00 7                                  /a
         00003000-00004000 r--p 00006000 fe:00 8                                  /b";
    check(View { pages: &protected, ..View::default() }, differ, differ);
}

#[test]
fn a_line_is_split_where_permissions_differ() {
    // A library: the kernel keeps apart what was once writable.
    check(
        View { pages: &[pages(0x2000..0x3000, 5)], ..View::default() },
        "00001000-00005000 r--p 00010000 fe:00 7                                  /a
         00005000-00006000 r--p 00014000 fe:00 7                                  /a",
        "00001000-00002000 r--p 00010000 fe:00 7                                  /a
         00002000-00003000 r-xp 00011000 fe:00 7                                  /a
         00003000-00005000 r--p 00012000 fe:00 7                                  /a
         00005000-00006000 r--p 00014000 fe:00 7                                  /a",
    );
}

#[test]
fn details_of_smaps_add_up() {
    check(
        View { pages: &[pages(0x1000..0x3000, 7)], ..View::default() },
        "00001000-00002000 rw-p 00000000 00:00 0 $
         Size:                  4 kB
         KernelPageSize:        4 kB
         Rss:                   4 kB
         THPeligible:           0
         VmFlags: rd wr mr mw me ac $
         00002000-00003000 r--p 00000000 00:00 0 $
         Size:                  4 kB
         KernelPageSize:        4 kB
         Rss:                   8 kB
         THPeligible:           0
         VmFlags: rd mr mw me ac $
         562000000000-562000001000 rw-p 00000000 00:00 0 $
         Size:                  4 kB
         VmFlags: rd wr $
         7f0000001000-7f0000002000 rw-p 00000000 00:00 0 $
         Size:                  4 kB",
        "00001000-00003000 rwxp 00000000 00:00 0 $
         Size:                  8 kB
         KernelPageSize:        4 kB
         Rss:                  12 kB
         THPeligible:           0
         VmFlags: rd wr ex mr mw me ac $
         7f0000001000-7f0000002000 rw-p 00000000 00:00 0 $
         Size:                  4 kB",
    );
}

#[test]
fn details_of_a_split_line_are_shared_out() {
    check(
        View { pages: &[pages(0x2000..0x3000, 3)], ..View::default() },
        "00001000-00004000 r--p 00000000 00:00 0 $
         Size:                 12 kB
         Rss:                  10 kB
         VmFlags: rd mr $",
        "00001000-00002000 r--p 00000000 00:00 0 $
         Size:                  4 kB
         Rss:                   3 kB
         VmFlags: rd mr $
         00002000-00003000 rw-p 00000000 00:00 0 $
         Size:                  4 kB
         Rss:                   3 kB
         VmFlags: rd wr mr $
         00003000-00004000 r--p 00000000 00:00 0 $
         Size:                  4 kB
         Rss:                   4 kB
         VmFlags: rd mr $",
    );
}

#[test]
fn garbage_passes() {
    let view = View { heap: 0..u64::MAX, stack: 1..2, pages: &[pages(0..u64::MAX, 7), pages(9..9, 7)] };
    check(view.clone(), "hello\n1-2\nffff-1 rwxp 0 0:0 0\n", "hello\n1-2\nffff-1 rwxp 0 0:0 0\n");
    assert_eq!(rewrite(b"", &view), b"");
    let mut random = crate::load::elf::tests::Random(7);
    let seed = std::fs::read("/proc/self/smaps").unwrap();
    for _ in 0..300 {
        let at = random.below(seed.len());
        let part = &seed[at..(at + 4000).min(seed.len())];
        rewrite(&random.mutate(part), &view);
    }
}

/// The kernel's own text, with its own heap and stack, comes out as it went in.
#[track_caller]
fn check_identity(file: &str) {
    let kernel = std::fs::read_to_string(file).unwrap();
    let mut view = View::default();
    let mut expected = String::new();
    let mut keep = true;
    for line in kernel.lines() {
        if let Some(mapping) = Mapping::parse(line.as_bytes()) {
            // The test program itself may have been put where a guest has its engine.
            keep = !layout::touches_engine(mapping.range.start, mapping.range.end - mapping.range.start);
            match mapping.name {
                HEAP => view.heap = mapping.range,
                STACK => view.stack = mapping.range,
                _ => {}
            }
        }
        if keep {
            expected += &(line.to_string() + "\n");
        }
    }
    assert_eq!(String::from_utf8(rewrite(kernel.as_bytes(), &view)).unwrap(), expected);
    // Permissions that are the same anyway change nothing but join nothing wrongly either.
    let every = vec![pages(0..1, 0)];
    view.pages = &every;
    assert_eq!(String::from_utf8(rewrite(kernel.as_bytes(), &view)).unwrap(), expected);
}

#[test]
fn real_text_comes_out_as_it_went_in() {
    check_identity("/proc/self/maps");
    check_identity("/proc/self/smaps");
}
