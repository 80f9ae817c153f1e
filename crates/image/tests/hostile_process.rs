//! Damaged files and senseless stacks give fewer frames and variables, never a panic, a hang or a huge allocation.
//!
//! The process is made up: its registers point into the program and into a stack of words that point to code, to the
//! stack itself or nowhere. See `common::limits` for how the questions are asked.

mod common;

use common::Scratch;
use common::limits::{self, Random};
use image::{Bias, Image, Inspector, LoadedImages, Register, Search, Stopped, Storage, backtrace};
use model::GuestAddr;
use object::{Object, ObjectSection};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

const STACK: u64 = 0x7fff_0000_0000;
const STACK_SIZE: u64 = 0x4000;

struct Invented {
    registers: [u64; 17],
    stack: Vec<u8>,
    images: LoadedImages,
    bias: Bias,
}

impl Invented {
    fn new(image: &Arc<Image>, pc: u64, random: &mut Random) -> Invented {
        let bias = Bias([0, 0x5555_5555_4000][random.below(2)]);
        let mut images = LoadedImages::new();
        images.add(image.clone(), bias);
        let word = |random: &mut Random| match random.below(4) {
            0 => bias.0 + 0x1000 + random.next() % 0x400,
            1 => STACK + random.next() % STACK_SIZE / 8 * 8,
            2 => random.next() % 64,
            _ => random.next() >> random.below(64),
        };
        let stack = (0..STACK_SIZE / 8).flat_map(|_| word(random).to_le_bytes()).collect();
        let mut registers: [u64; 17] = std::array::from_fn(|_| word(random));
        registers[16] = bias.0.wrapping_add(pc);
        registers[7] = STACK + 0x1000 + random.next() % 0x1000 / 8 * 8;
        registers[6] = registers[7] + random.next() % 0x200 / 8 * 8;
        Invented { registers, stack, images, bias }
    }
}

impl Stopped for Invented {
    fn read(&self, at: GuestAddr, to: &mut [u8]) -> usize {
        let bytes = match at.0.checked_sub(STACK).filter(|d| *d < STACK_SIZE) {
            Some(offset) => self.stack[offset as usize..].to_vec(),
            None => {
                let image = &self.images.get(0).unwrap().image;
                image.bytes(self.bias.to_image(at), to.len() as u64).unwrap_or_default()
            }
        };
        let n = bytes.len().min(to.len());
        to[..n].copy_from_slice(&bytes[..n]);
        n
    }

    fn register(&self, register: Register) -> Option<u64> {
        if register == Register::FS_BASE { Some(STACK) } else { self.registers.get(register.0 as usize).copied() }
    }

    fn vector(&self, number: u16) -> Option<[u8; 16]> {
        Some([number as u8; 16])
    }

    fn images(&self) -> &LoadedImages {
        &self.images
    }
}

const EXPRESSIONS: [&str; 14] = [
    "n",
    "*n",
    "n->next->next",
    "sum",
    "*this",
    "table",
    "&table[3]",
    "d",
    "d.corners[1]",
    "RED",
    "sizeof(struct node)",
    "(struct node *)$rsp",
    "*(struct deep *)$rsp",
    "tag_t",
];

/// Asks everything there is to ask, at every few bytes of the code.
fn question(path: &Path, random: &mut Random) {
    let Ok(image) = Image::open_with(path, Search::in_folders(vec![])) else { return };
    let image = Arc::new(image);
    for pc in (0x1000..0x1400).chain(0x40_1000..0x40_1010).step_by(67).chain([0x40_1001, 0x40_1002]) {
        let process = Invented::new(&image, pc, random);
        let trace = backtrace(&process, 60);
        assert!(trace.frames.len() <= 60);
        for (index, frame) in trace.frames.iter().enumerate() {
            for level in 0..frame.location.frames().len().min(4) {
                let inspector = Inspector::in_backtrace(&process, &trace.frames, index, level).unwrap();
                let variables = inspector.variables();
                assert!(variables.iter().all(|v| v.text.len() < 200_000), "messages stay readable");
            }
        }
        let Some(frame) = trace.frames.first() else { continue };
        let inspector = Inspector::new(&process, frame, 0);
        for expression in EXPRESSIONS {
            let _ = inspector.evaluate(expression);
        }
        inspector.global("table");
        let near =
            |base: Option<u64>, random: &mut Random| GuestAddr(base.unwrap_or(0).wrapping_add(random.next() % 512));
        for size in [0, 8, u64::MAX] {
            let stack = near(frame.registers.get(Register::RSP), random);
            for at in [stack, near(None, random), near(Some(0x4000), random), GuestAddr(random.next())] {
                let name = inspector.name_of(Storage::Memory { at, size });
                assert!(name.is_none_or(|n| n.len() < 20_000), "names stay readable");
                process.images().global_at(at, size);
            }
        }
        for register in [3, 6, 12, 17] {
            inspector.name_of(Storage::Register(Register(register)));
        }
    }
}

fn targets(program: &[u8]) -> Vec<Range<usize>> {
    let elf = object::read::elf::ElfFile64::<object::LittleEndian, _>::parse(program).unwrap();
    let wanted = [
        ".debug_info",
        ".debug_info",
        ".debug_abbrev",
        ".debug_loclists",
        ".debug_loc",
        ".debug_str",
        ".debug_rnglists",
        ".eh_frame",
        ".eh_frame",
        ".debug_frame",
    ];
    let range = |name: &&str| elf.section_by_name(name)?.file_range();
    wanted.iter().filter_map(range).map(|(offset, size)| offset as usize..(offset + size) as usize).collect()
}

/// The child's part: without the environment variable there is nothing to do.
#[test]
fn question_the_process_of_the_file_that_the_parent_names() {
    limits::each_variant(&targets, &mut question);
}

#[track_caller]
fn check_survives(path: &Path, variants: u32) {
    limits::check_survives("question_the_process_of_the_file_that_the_parent_names", path, variants);
}

const SOURCE: &str = r#"
struct node { struct node *next; int value; unsigned a : 3, b : 5; char name[16]; };
enum color { RED, GREEN, BLUE };
typedef struct { int x, y; } point;
struct deep { point corners[2]; struct { int inner; union { int left; float right; }; }; enum color color; };
int table[40]; double weight = 1.5; __thread int per_thread = 6;
static inline __attribute__((always_inline)) int add(struct node *n, int k) { int r = n->value + k; return r * 2; }
static __attribute__((noinline)) int helper(struct node *n, struct deep d) {
    int sum = 0, room[n->value + 2];
    for (; n; n = n->next) { int more = sum + d.inner; sum += add(n, more) + (room[0] = more); }
    return sum + room[0] + table[sum & 31];
}
int main(int argc, char **argv) {
    struct node a = {0, argc}, b = {&a, 2, 1, 2, "abc"};
    struct deep d = {{{1, 2}, {3, 4}}, {5}, BLUE};
    return helper(&b, d) + helper(&a, d) + per_thread;
}
"#;

/// The questions are worth asking: without damage they have answers.
#[test]
fn the_undamaged_program_has_frames_and_variables() {
    let scratch = Scratch::new();
    let image = Arc::new(Image::open(scratch.compile("gcc", SOURCE, &["-g", "-O0"])).unwrap());
    let pc = image.find_function("helper")[0].start.0 + 60;
    let process = Invented::new(&image, pc, &mut Random(7));
    let trace = backtrace(&process, 60);
    assert!(trace.frames[0].cfa.is_some(), "the call frame information is used");
    let inspector = Inspector::new(&process, &trace.frames[0], 0);
    let names: Vec<String> = inspector.variables().into_iter().map(|v| v.name).collect();
    assert_eq!(names, ["sum", "room", "n", "d"]);
    assert_eq!(inspector.global("weight").map(|v| v.text).as_deref(), Some("1.5"));
    assert_eq!(inspector.evaluate("sizeof(struct node) + BLUE").map(|a| a.text).as_deref(), Ok("34"));
}

#[test]
fn three_hundred_damaged_variants_of_a_program() {
    let scratch = Scratch::new();
    check_survives(&scratch.compile("gcc", SOURCE, &["-g", "-O2"]), 150);
    check_survives(&scratch.compile("gcc", SOURCE, &["-g", "-O0", "-gdwarf-4"]), 100);
    let source = "struct A { int x; virtual int f() { return x; } }; struct B : A { int &r; B() : r(x) {} int f() { return r; } };
int main(int c, char **v) { B b; b.x = c; A *a = &b; return a->f(); }";
    check_survives(&scratch.compile("g++", source, &["-g", "-O1"]), 50);
}

/// A program whose debug information is `types` and a variable `n` of the type at the label `t`, which lies where
/// `location` says.
#[track_caller]
fn check_attack(types: &str, location: &str) {
    let scratch = Scratch::new();
    let source = format!(
        ".globl _start
        .text
_start: nop
        nop
        nop
        ret
        .section .debug_info, \"\"
.Lunit: .long 2f - 1f
1:      .short 4
        .long 0
        .byte 8
        .byte 1                 # the unit
        .quad _start, 4
        .byte 2                 # a function
        .asciz \"_start\"
        .quad _start, 4
        .byte 1, 0x57           # its frame base is rsp
        .byte 3                 # a variable
        .asciz \"n\"
        .long .Lt - .Lunit
        .byte 5f - 4f
4:      {location}
5:      .byte 0
        {types}
        .byte 0
2:
        .section .debug_abbrev, \"\"
        .byte 1, 0x11, 1, 0x11, 1, 0x12, 7, 0, 0
        .byte 2, 0x2e, 1, 3, 8, 0x11, 1, 0x12, 7, 0x40, 0x18, 0, 0
        .byte 3, 0x34, 0, 3, 8, 0x49, 0x13, 2, 0x18, 0, 0
        .byte 4, 0x16, 0, 3, 8, 0x49, 0x13, 0, 0                    # typedef: name, type
        .byte 5, 0x13, 1, 3, 8, 0x0b, 0x0f, 0, 0                    # struct: name, size
        .byte 6, 0x0d, 0, 0x49, 0x13, 0x38, 0x0f, 0, 0              # member without a name: type, offset
        .byte 7, 0x01, 1, 0x49, 0x13, 0, 0                          # array: type
        .byte 8, 0x21, 0, 0x2f, 7, 0, 0                             # bounds: the last index
        .byte 9, 0x24, 0, 3, 8, 0x0b, 0x0b, 0x3e, 0x0b, 0, 0        # base type: name, size, encoding
        .byte 10, 0x0f, 0, 0x49, 0x13, 0, 0                         # pointer
        .byte 11, 0x10, 0, 0x49, 0x13, 0, 0                         # reference
        .byte 12, 0x15, 1, 0x49, 0x13, 0, 0                         # function: what it returns
        .byte 13, 0x05, 0, 0x49, 0x13, 0, 0                         # its parameter
        .byte 0
"
    );
    let program = scratch.compile("gcc", &source, &["-nostdlib", "-static", "-Wl,-Ttext=0x401000"]);
    check_survives(&program, 0);
}

/// At the stack pointer.
const ON_STACK: &str = ".byte 0x91, 0";
const REFERENCE: &str = ".long .Lt - .Lunit";

#[test]
fn a_type_that_is_another_name_for_itself() {
    check_attack(&format!(".Lt: .byte 4\n.asciz \"tag_t\"\n{REFERENCE}"), ON_STACK);
}

#[test]
fn a_struct_that_contains_itself_many_times() {
    let member = format!(".byte 6\n{REFERENCE}\n.byte 0\n");
    check_attack(&format!(".Lt: .byte 5\n.asciz \"node\"\n.byte 16\n{}.byte 0", member.repeat(20)), ON_STACK);
}

#[test]
fn an_array_of_arrays_without_end() {
    let bounds = ".byte 8\n.quad 0xfffffffffffffff\n".repeat(500);
    check_attack(&format!(".Lt: .byte 7\n{REFERENCE}\n{bounds}.byte 0"), ON_STACK);
    let small = ".byte 8\n.quad 199\n".repeat(60);
    let base = ".Lb: .byte 9\n.asciz \"int\"\n.byte 1, 5";
    check_attack(&format!(".Lt: .byte 7\n.long .Lb - .Lunit\n{small}.byte 0\n{base}"), ON_STACK);
    let empty = ".Lb: .byte 9\n.asciz \"int\"\n.byte 0, 5";
    let huge = ".byte 8\n.quad 0xfffffffffffffff\n";
    check_attack(&format!(".Lt: .byte 7\n.long .Lb - .Lunit\n{huge}.byte 0\n{empty}"), ON_STACK);
}

#[test]
fn a_reference_to_itself_and_a_function_that_takes_itself() {
    check_attack(&format!(".Lt: .byte 11\n{REFERENCE}"), ON_STACK);
    check_attack(&format!(".Lt: .byte 10\n{REFERENCE}"), ON_STACK);
    let parameters = format!(".byte 13\n{REFERENCE}\n").repeat(60);
    check_attack(&format!(".Lt: .byte 12\n{REFERENCE}\n{parameters}.byte 0"), ON_STACK);
}

#[test]
fn locations_that_never_end() {
    let base = ".Lt: .byte 9\n.asciz \"int\"\n.byte 4, 5";
    // An endless jump, an endless stack, a frame base that needs itself, pieces without end.
    for location in [
        ".byte 0x2f, 0xfd, 0xff",
        ".byte 0x30, 0x12, 0x2f, 0xfc, 0xff",
        ".byte 0x91, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00",
        ".byte 0x93, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x93, 0xff, 0xff, 0xff, 0xff, 0x0f",
        ".byte 0x9e, 0x7f",
        "",
    ] {
        check_attack(base, location);
    }
}
