//! Tests of the ELF loader on hand-made files, on real ones, and on the fuzzing corpus with mutations.

use super::*;
use alloc::{format, string::String};

/// A program header for [`file`]; the fields in the order in which they are usually thought of.
#[derive(Clone, Copy)]
struct Ph {
    kind: u32,
    flags: u32,
    offset: u64,
    vaddr: u64,
    filesz: u64,
    memsz: u64,
    align: u64,
}

const RX: u32 = PF_R | PF_X;
const RW: u32 = PF_R | PF_W;

fn load(flags: u32, offset: u64, vaddr: u64, filesz: u64, memsz: u64) -> Ph {
    Ph { kind: PT_LOAD, flags, offset, vaddr, filesz, memsz, align: PAGE }
}

fn other(kind: u32, flags: u32, offset: u64, size: u64) -> Ph {
    Ph { kind, flags, offset, vaddr: offset, filesz: size, memsz: size, align: 1 }
}

/// An ELF file of `len` bytes with the given program headers at byte 64.
fn file(kind: u16, phs: &[Ph], len: usize) -> Vec<u8> {
    let mut b = vec![0; len.max(HEADER_LEN + phs.len() * PHENT as usize)];
    b[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    b[16..18].copy_from_slice(&kind.to_le_bytes());
    b[18..20].copy_from_slice(&EM_X86_64.to_le_bytes());
    b[24..32].copy_from_slice(&0x1040_u64.to_le_bytes());
    b[32..40].copy_from_slice(&64_u64.to_le_bytes());
    b[54..56].copy_from_slice(&56_u16.to_le_bytes());
    b[56..58].copy_from_slice(&(phs.len() as u16).to_le_bytes());
    for (i, p) in phs.iter().enumerate() {
        let at = HEADER_LEN + i * PHENT as usize;
        b[at..at + 4].copy_from_slice(&p.kind.to_le_bytes());
        b[at + 4..at + 8].copy_from_slice(&p.flags.to_le_bytes());
        for (j, v) in [p.offset, p.vaddr, p.vaddr, p.filesz, p.memsz, p.align].into_iter().enumerate() {
            b[at + 8 + 8 * j..at + 16 + 8 * j].copy_from_slice(&v.to_le_bytes());
        }
    }
    b
}

fn parse_bytes(file: &[u8]) -> Result<Elf, ElfError> {
    let head = &file[..file.len().min(256)];
    parse(head, file.len() as u64, &mut |offset, buf| {
        buf.copy_from_slice(&file[offset as usize..offset as usize + buf.len()]);
        true
    })
}

/// Expects the sentence that `file` is refused with, or "ok".
#[track_caller]
fn check_sentence(file: &[u8], expected: &str) {
    let got = parse_bytes(file).map_or_else(|e| format!("{e}"), |_| String::from("ok"));
    assert_eq!(got, expected);
    assert_promises(file);
}

/// One good segment, changed by `edit`.
#[track_caller]
fn check_segment(edit: impl FnOnce(&mut Ph), expected: &str) {
    let mut ph = load(RX, 0, 0x40_0000, 0x200, 0x200);
    edit(&mut ph);
    check_sentence(&file(ET_EXEC, &[ph], 0x1000), expected);
}

/// A good file, changed by `edit`.
#[track_caller]
fn check_header(edit: impl FnOnce(&mut Vec<u8>), expected: &str) {
    let mut bytes = file(ET_EXEC, &[load(RX, 0, 0x40_0000, 0x200, 0x200)], 0x1000);
    edit(&mut bytes);
    check_sentence(&bytes, expected);
}

/// The plan as text: `file ADDRESS+LEN PROT @OFFSET`, `zero A..B`, `anon A..B PROT`, in the order of execution.
fn plan_text(maps: &[SegmentMap]) -> String {
    let prot = |p: u32| {
        let bit = |flag, c| if p & flag != 0 { c } else { '-' };
        [bit(PROT_READ, 'r'), bit(PROT_WRITE, 'w'), bit(PROT_EXEC, 'x')].iter().collect::<String>()
    };
    let mut lines = Vec::new();
    for m in maps {
        if let Some(f) = m.file {
            lines.push(format!("file {:x}+{:x} {} @{:x}", f.address, f.len, prot(f.prot), f.offset));
        }
        if !m.zero.is_empty() {
            lines.push(format!("zero {:x}..{:x}", m.zero.start, m.zero.end));
        }
        if !m.anon.is_empty() {
            lines.push(format!("anon {:x}..{:x} {}", m.anon.start, m.anon.end, prot(m.anon_prot)));
        }
    }
    lines.join("\n")
}

#[track_caller]
fn check_plan(kind: u16, phs: &[Ph], base: u64, expected: &[&str]) {
    let bytes = file(kind, phs, 0x8000);
    assert_promises(&bytes);
    let elf = parse_bytes(&bytes).unwrap();
    assert_eq!(plan_text(&elf.plan(elf.bias_for(base))), expected.join("\n"));
}

#[test]
fn files_for_other_machines_are_named() {
    let only = "only 64-bit x86-64 programs can run";
    let machine = |class: u8, order: u8, machine: u16| {
        move |b: &mut Vec<u8>| {
            (b[4], b[5]) = (class, order);
            let bytes = if order == 2 { machine.to_be_bytes() } else { machine.to_le_bytes() };
            b[18..20].copy_from_slice(&bytes);
        }
    };
    check_header(machine(1, 1, 3), &format!("a 32-bit program for x86; {only}"));
    check_header(machine(1, 1, 40), &format!("a 32-bit program for ARM; {only}"));
    check_header(machine(1, 1, 62), &format!("a 32-bit program for x86-64; {only}"));
    check_header(machine(1, 2, 8), &format!("a 32-bit program for MIPS; {only}"));
    check_header(machine(2, 1, 183), &format!("a program for AArch64; {only}"));
    check_header(machine(2, 1, 243), &format!("a program for RISC-V; {only}"));
    check_header(machine(2, 1, 9999), &format!("a program for machine 9999; {only}"));
    check_header(machine(2, 2, 22), &format!("a big-endian program for S/390; {only}"));
    check_header(machine(2, 2, 62), &format!("a big-endian program for x86-64; {only}"));
}

#[test]
fn files_that_are_no_programs_are_named() {
    check_sentence(b"", "not an ELF file");
    check_sentence(b"\x7fEL", "not an ELF file");
    check_sentence(b"hello, world\n", "not an ELF file");
    check_header(|b| b[16] = 1, "a relocatable object file, not a program");
    check_header(|b| b[16] = 4, "a core dump, not a program");
    check_header(|b| b[16] = 0, "an ELF file of type 0, not a program");
}

#[test]
fn bad_headers_are_refused() {
    check_header(|_| {}, "ok");
    check_header(|b| b.truncate(63), "the ELF file is truncated: the header would end at byte 64, the file has 63");
    check_header(
        |b| b.truncate(119),
        "the ELF file is truncated: the program header table would end at byte 120, the file has 119",
    );
    check_header(|b| b[32..40].fill(0xff), "the ELF file is corrupt: the program header table cannot lie there");
    check_header(|b| b[54] = 32, "corrupt ELF header: program headers of 32 bytes instead of 56");
    check_header(|b| b[56] = 0, "corrupt ELF header: no program headers");
    check_header(|b| b[57] = 0xff, "corrupt ELF header: 65281 program headers are too many");
    check_header(|b| b[30] = 0x80, "corrupt ELF header: entry point 0x80000000001040 is outside user space");
    check_header(|b| b[64] = 0, "the ELF file has no loadable segment");
}

#[test]
fn bad_segments_are_refused() {
    check_segment(|p| p.filesz = 0x201, "corrupt program header 0: more bytes in the file than in memory");
    check_segment(|p| p.vaddr = TASK_SIZE, "corrupt program header 0: its addresses are outside user space");
    check_segment(|p| p.vaddr = !0xfff, "corrupt program header 0: its addresses are outside user space");
    check_segment(|p| p.memsz = u64::MAX, "corrupt program header 0: its addresses are outside user space");
    check_segment(
        |p| p.memsz = TASK_SIZE - p.vaddr + 1,
        "corrupt program header 0: its addresses are outside user space",
    );
    check_segment(|p| p.memsz = TASK_SIZE - p.vaddr, "ok");
    check_segment(|p| p.vaddr += 8, "corrupt program header 0: file offset and address do not fit to each other");
    check_segment(|p| p.offset = !0xfff, "corrupt program header 0: its file offset is too large");
    check_segment(
        |p| (p.filesz, p.memsz) = (0x1001, 0x1001),
        "the ELF file is truncated: the segment of program header 0 would end at byte 4097, the file has 4096",
    );
    // Without bytes in the file, the offset does not matter.
    check_segment(|p| (p.filesz, p.offset) = (0, u64::MAX), "ok");
    check_segment(|p| (p.filesz, p.memsz) = (0, 0), "the ELF file has no loadable segment");
    check_segment(|p| p.align = 3, "ok");
}

#[test]
fn end_of_file_inside_the_last_page_is_no_truncation() {
    // The last page of a mapping is filled up with zeros, so nothing is missing.
    check_sentence(&file(ET_EXEC, &[load(RX, 0, 0x40_0000, 0x1000, 0x1000)], 0x800), "ok");
}

#[test]
fn interpreter_path_is_checked() {
    let with_path = |path: &[u8]| {
        let interp = other(PT_INTERP, PF_R, 0x400, path.len() as u64);
        let mut bytes = file(ET_DYN, &[interp, load(RX, 0, 0, 0x1000, 0x1000)], 0x2000);
        bytes[0x400..0x400 + path.len()].copy_from_slice(path);
        bytes
    };
    let ld = b"/lib64/ld-linux-x86-64.so.2";
    assert_eq!(parse_bytes(&with_path(&[ld, &b"\0"[..]].concat())).unwrap().interpreter.unwrap(), ld);
    assert_eq!(parse_bytes(&with_path(b"/ld\0x\0")).unwrap().interpreter.unwrap(), b"/ld");
    check_sentence(&with_path(b"/ld"), "corrupt program header 0: the interpreter path is not terminated");
    check_sentence(&with_path(b"\0\0"), "corrupt program header 0: the interpreter path is empty");
    check_sentence(&with_path(b"\0"), "corrupt program header 0: an interpreter path cannot have 1 bytes");
    let mut long = with_path(b"/ld\0");
    long[HEADER_LEN + 32..HEADER_LEN + 40].copy_from_slice(&4097_u64.to_le_bytes());
    check_sentence(&long, "corrupt program header 0: an interpreter path cannot have 4097 bytes");
    let mut outside = with_path(b"/ld\0");
    outside[HEADER_LEN + 8..HEADER_LEN + 16].copy_from_slice(&0x1ffe_u64.to_le_bytes());
    check_sentence(
        &outside,
        "the ELF file is truncated: the interpreter path would end at byte 8194, the file has 8192",
    );
}

#[test]
fn a_refused_read_is_not_a_truncation() {
    let bytes = file(ET_EXEC, &[load(RX, 0, 0x40_0000, 0x200, 0x200)], 0x1000);
    let error = parse(&bytes[..64], 0x1000, &mut |_, _| false).unwrap_err();
    assert_eq!((error, error.errno()), (ElfError::Unreadable(Part::ProgramHeaders), 5));
}

#[test]
fn stack_is_executable_only_on_request() {
    let stack_of = |phs: &[Ph]| parse_bytes(&file(ET_EXEC, phs, 0x1000)).unwrap().exec_stack;
    let text = load(RX, 0, 0x40_0000, 0x200, 0x200);
    assert!(!stack_of(&[text]));
    assert!(!stack_of(&[text, other(PT_GNU_STACK, RW, 0, 0)]));
    assert!(stack_of(&[text, other(PT_GNU_STACK, RW | PF_X, 0, 0)]));
}

#[test]
fn plan_of_a_usual_position_independent_program() {
    check_plan(
        ET_DYN,
        &[
            load(PF_R, 0, 0, 0x628, 0x628),
            load(RX, 0x1000, 0x1000, 0x1d1, 0x1d1),
            load(RW, 0x2df0, 0x3df0, 0x220, 0x3228),
        ],
        0x5555_5555_4000,
        &[
            "file 555555554000+1000 r-- @0",
            "file 555555555000+1000 r-x @1000",
            "file 555555557000+2000 rw- @2000",
            "zero 555555558010..555555559000",
            "anon 555555559000..55555555c000 rw-",
        ],
    );
}

#[test]
fn plan_of_a_fixed_program_ignores_the_base() {
    check_plan(
        ET_EXEC,
        &[load(RX, 0, 0x40_0000, 0x1000, 0x1000), load(RW, 0x1000, 0x40_2000, 0x1000, 0x1000)],
        0x5555_5555_4000,
        &["file 400000+1000 r-x @0", "file 402000+1000 rw- @1000"],
    );
}

#[test]
fn bss_without_file_bytes_is_anonymous() {
    check_plan(ET_EXEC, &[load(RW | PF_X, 0x123, 0x40_0010, 0, 0x1000)], 0, &["anon 400000..402000 rwx"]);
}

#[test]
fn bss_that_ends_in_the_last_file_page_needs_no_pages() {
    check_plan(
        ET_EXEC,
        &[load(RW, 0, 0x40_0000, 0x1010, 0x1020)],
        0,
        &["file 400000+2000 rw- @0", "zero 401010..402000"],
    );
}

#[test]
fn read_only_segment_keeps_the_file_bytes_after_its_end() {
    check_plan(
        ET_EXEC,
        &[load(PF_R, 0, 0x40_0000, 0x10, 0x2000)],
        0,
        &["file 400000+1000 r-- @0", "anon 401000..402000 rw-"],
    );
}

#[test]
fn bias_honours_the_largest_alignment() {
    let mut huge = load(RX, 0, 0x1000, 0x100, 0x100);
    huge.offset = 0x1000;
    huge.align = 0x20_0000;
    let elf = parse_bytes(&file(ET_DYN, &[huge], 0x2000)).unwrap();
    assert_eq!((elf.align(), elf.bias_for(0x5555_5555_5000)), (0x20_0000, 0x5555_5540_0000));
    // A file linked at a high address gets a negative bias.
    let high = load(RX, 0, 0x7000_0000_0000, 0x100, 0x100);
    let elf = parse_bytes(&file(ET_DYN, &[high], 0x1000)).unwrap();
    assert_eq!(elf.plan(elf.bias_for(0x5555_5555_4000))[0].file.unwrap().address, 0x5555_5555_4000);
}

#[test]
fn program_headers_are_found_through_the_segment_that_holds_them() {
    let phdr = |phs: &[Ph]| parse_bytes(&file(ET_EXEC, phs, 0x4000)).unwrap().phdr;
    assert_eq!(phdr(&[load(PF_R, 0, 0x40_0000, 0x200, 0x200)]), 0x40_0040);
    assert_eq!(phdr(&[load(RX, 0x1000, 0x40_1000, 0x200, 0x200)]), 0);
    // The last one wins, as in Linux.
    let twice = [load(PF_R, 0, 0x40_0000, 0x200, 0x200), load(PF_R, 0, 0x50_0000, 0x200, 0x200)];
    assert_eq!(phdr(&twice), 0x50_0040);
}

/// What the kernel did with the test program itself is what the plan says.
#[test]
fn plan_agrees_with_the_kernel_on_this_very_program() {
    let bytes = std::fs::read("/proc/self/exe").unwrap();
    let elf = parse_bytes(&bytes).unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let exe = std::fs::read_link("/proc/self/exe").unwrap();
    let mapped = |prot_of_line: &str, offset: u64| {
        maps.lines().any(|l| {
            let f: Vec<&str> = l.split_whitespace().collect();
            l.ends_with(exe.to_str().unwrap())
                && f[1].starts_with(prot_of_line)
                && u64::from_str_radix(f[2], 16) == Ok(offset)
        })
    };
    let exec = elf.plan(0).into_iter().filter_map(|m| m.file).find(|f| f.prot & PROT_EXEC != 0).unwrap();
    assert!(mapped("r-x", exec.offset), "no mapping of offset {:#x} in\n{maps}", exec.offset);
    let first: u64 = maps
        .lines()
        .filter(|l| l.ends_with(exe.to_str().unwrap()))
        .map(|l| u64::from_str_radix(l.split('-').next().unwrap(), 16).unwrap())
        .min()
        .unwrap();
    let auxv = std::fs::read("/proc/self/auxv").unwrap();
    let aux = |key: u64| {
        let pair = auxv.chunks_exact(16).find(|c| u64_at(c, 0) == key).unwrap();
        u64_at(pair, 8)
    };
    let bias = elf.bias_for(first);
    assert_eq!((elf.phdr_at(bias), elf.entry_at(bias), u64::from(elf.phnum)), (aux(3), aux(9), aux(5)));
}

#[test]
fn real_programs_are_accepted() {
    for path in ["/bin/ls", "/proc/self/exe"] {
        let bytes = std::fs::read(path).unwrap();
        assert_promises(&bytes);
        let elf = parse_bytes(&bytes).unwrap();
        assert!(elf.segments.iter().any(|s| s.prot & PROT_EXEC != 0), "{path}");
        if let Some(interpreter) = elf.interpreter {
            let path = String::from_utf8(interpreter).unwrap();
            let ld = parse_bytes(&std::fs::read(&path).unwrap()).unwrap();
            assert_eq!((ld.kind, ld.interpreter), (Kind::Relocatable, None), "{path}");
        }
    }
}

/// Small generator for mutations, so that a failure can be repeated (xorshift64*, Vigna 2016).
pub(crate) struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n.max(1)
    }

    /// A few bytes changed, then now and then cut short.
    pub fn mutate(&mut self, seed: &[u8]) -> Vec<u8> {
        const EDGES: [u8; 8] = [0, 1, 0x7f, 0x80, 0xff, b'\n', b' ', 0x10];
        let mut bytes = seed.to_vec();
        for _ in 0..1 + self.below(6) {
            if bytes.is_empty() {
                break;
            }
            let at = self.below(bytes.len());
            bytes[at] = match self.below(3) {
                0 => EDGES[self.below(EDGES.len())],
                1 => bytes[at] ^ 1 << self.below(8),
                _ => self.below(256) as u8,
            };
        }
        if self.below(8) == 0 {
            bytes.truncate(self.below(bytes.len() + 1));
        }
        bytes
    }
}

/// Runs `check` on every stored input of a fuzz target and on `mutants` variations of each.
pub(crate) fn run_corpus(target: &str, mutants: usize, check: impl Fn(&[u8])) {
    let dir = format!("{}/../../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<_> = std::fs::read_dir(&dir).expect(&dir).map(|e| e.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    let mut random = Random(0x636c_6577);
    for path in paths {
        let seed = std::fs::read(&path).unwrap();
        check(&seed);
        for _ in 0..mutants {
            check(&random.mutate(&seed));
        }
    }
}

#[test]
fn stored_and_mutated_files_never_break_a_promise() {
    run_corpus("elf", 5_000, assert_promises);
}
