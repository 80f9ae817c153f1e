//! Places in memory and registers are called what gdb says lies there.

mod common;

use common::Scratch;
use common::gdb::{Core, Session, ask};
use image::{Image, ImageOffset, Inspector, Register, Registers, StackFrame, Stopped, Storage};
use model::GuestAddr;
use std::sync::Arc;

const PRELUDE: &str = r#"
#include <stdlib.h>
#include <string.h>
volatile int sink;
__attribute__((noinline, noclone)) void stop_here(int n) { sink = n; }
"#;

const SOURCE: &str = r#"
struct node { struct node *next; int value; char tag[4]; };
struct limits { short low, high; struct { int first, second; } pair[2]; };
union number { int whole; double real; unsigned char bytes[8]; };
struct node head;
int table[10];
static struct { int size; struct limits of[3]; } config;
char letters[16];
__attribute__((noinline, noclone)) int work(struct node *list, int *numbers, char *text, int n) {
    static long calls;
    struct node local = { list, n, "ab" };
    int data[8] = { n };
    struct limits points[2] = { { 1, 2 } };
    union number mixed = { n };
    int grown[n + 2];
    memset(grown, 0, sizeof grown);
    calls += local.value + data[0] + points[1].low + mixed.whole + grown[1];
    stop_here(n);
    return (int)calls + config.of[1].high + numbers[0] + text[0] + local.tag[0] + data[n] + points[0].high;
}
int main(int argc, char **argv) {
    struct node *list = calloc(2, sizeof *list);
    int *numbers = calloc(10, sizeof *numbers);
    char *text = calloc(10, 1);
    struct node outer = { list, 3, "x" };
    return work(list, numbers, text, argc) + outer.value;
}
"#;

const WORK: &[&str] = &[
    "local.next",
    "local.value",
    "local.tag[2]",
    "data[0]",
    "data[7]",
    "points[1].high",
    "points[0].pair[1].second",
    "mixed.whole",
    "mixed.real",
    "grown[2]",
    "n",
    "list",
    "calls",
    "head.next",
    "head.tag[3]",
    "table[9]",
    "config.size",
    "config.of[2].pair[0].first",
    "letters[15]",
    "list->value",
    "list->tag[1]",
    "numbers[5]",
    "text[9]",
];

fn frame_of<'f>(frames: &'f [StackFrame], function: &str) -> (usize, &'f StackFrame) {
    let is_it = |f: &&StackFrame| f.location.function.as_deref().is_some_and(|n| n.split('(').next() == Some(function));
    let index = frames.iter().position(|f| is_it(&f)).unwrap_or_else(|| panic!("{function} is on the stack"));
    (index, &frames[index])
}

/// What gdb says of each expression in `function`: its address and its size.
fn places(session: &Session, skip: usize, count: usize) -> Vec<(GuestAddr, u64)> {
    let number = |text: &str| {
        let text = text.split_once(" = ").unwrap_or_else(|| panic!("gdb has no answer: {text}")).1;
        u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
    };
    (0..count).map(|i| &session.answers[skip + 2 * i..]).map(|a| (GuestAddr(number(&a[0])), number(&a[1]))).collect()
}

/// Asks gdb where each of `expressions` lies in `function`, and us what lies there.
#[track_caller]
fn check_names(compiler: &str, source: &str, flags: &[&str], function: &str, expressions: &[(&str, &str)]) {
    let scratch = Scratch::new();
    let program = scratch.compile(compiler, &format!("{PRELUDE}{source}"), flags);
    let mut commands = vec![format!("frame function {function}")];
    for (expression, _) in expressions {
        commands.push(format!("print/x (unsigned long)&({expression})"));
        commands.push(format!("print/x (unsigned long)sizeof({expression})"));
    }
    let Some(session) = ask(&scratch, &program, &commands) else { return };
    let frames = session.core.backtrace();
    let (index, frame) = frame_of(&frames, function);
    for ((expression, expected), (at, size)) in expressions.iter().zip(places(&session, 1, expressions.len())) {
        let what = Storage::Memory { at, size };
        let inspector = Inspector::in_backtrace(&session.core, &frames, index, 0).unwrap();
        assert_eq!(inspector.name_of(what).as_deref(), Some(*expected), "{flags:?}: {expression} at {at}");
        // Without memory: everything but what pointers lead to.
        let outline = session.core.images().name_of(frame.at, &frame.registers, what);
        if expected.contains("->") || outline.is_none() {
            assert!(expected.contains("->") || is_behind_pointer(expected), "{flags:?}: {expression} needs no memory");
        } else {
            assert_eq!(outline.as_deref(), Some(*expected), "{flags:?}: {expression} at {at}");
        }
    }
}

fn is_behind_pointer(name: &str) -> bool {
    ["numbers[", "text[", "shape", "grown["].iter().any(|p| name.starts_with(p))
}

#[test]
fn parts_of_variables_are_named_by_their_address() {
    let expressions: Vec<(&str, &str)> = WORK.iter().map(|e| (*e, *e)).collect();
    for flags in [&["-g", "-O0"][..], &["-g", "-O0", "-gdwarf-4", "-no-pie"], &["-g", "-O0", "-fomit-frame-pointer"]] {
        check_names("gcc", SOURCE, flags, "work", &expressions);
    }
}

#[test]
fn members_of_classes_are_named_through_bases_and_references() {
    const CPP: &str = r#"
namespace space { int counter[3]; struct Base { int id; }; struct Shape : Base { double area; int sides[4]; }; }
__attribute__((noinline)) int work(space::Shape &shape, space::Shape copy) {
    stop_here(copy.id);
    return shape.sides[1] + copy.sides[2] + space::counter[1];
}
int main(int argc, char **) { space::Shape *s = new space::Shape(); return work(*s, space::Shape()); }
"#;
    let expressions = [
        ("copy.id", "copy.id"),
        ("copy.sides[3]", "copy.sides[3]"),
        ("shape.area", "shape.area"),
        ("shape.sides[2]", "shape.sides[2]"),
        ("space::counter[2]", "counter[2]"),
    ];
    check_names("g++", CPP, &["-g", "-O0"], "work", &expressions);
}

#[test]
fn variables_of_callers_are_named_with_their_function() {
    let scratch = Scratch::new();
    let program = scratch.compile("gcc", &format!("{PRELUDE}{SOURCE}"), &["-g", "-O0"]);
    let commands = ["frame function main", "print/x (unsigned long)&outer.value", "print/x 4"].map(str::to_string);
    let Some(session) = ask(&scratch, &program, &commands) else { return };
    let frames = session.core.backtrace();
    let (index, _) = frame_of(&frames, "work");
    let (at, size) = places(&session, 1, 1)[0];
    let inspector = Inspector::in_backtrace(&session.core, &frames, index, 0).unwrap();
    assert_eq!(inspector.name_of(Storage::Memory { at, size }).as_deref(), Some("main::outer.value"));
    let (main, _) = frame_of(&frames, "main");
    let inspector = Inspector::in_backtrace(&session.core, &frames, main, 0).unwrap();
    assert_eq!(inspector.name_of(Storage::Memory { at, size }).as_deref(), Some("outer.value"));
}

#[test]
fn accesses_to_more_than_one_member_name_what_holds_them_all() {
    let scratch = Scratch::new();
    let program = scratch.compile("gcc", &format!("{PRELUDE}{SOURCE}"), &["-g", "-O0"]);
    let image = Arc::new(Image::open(&program).unwrap());
    let start = |name: &str| image.symbols().find(name)[0].start.0;
    for (name, offset, size, expected) in [
        ("head", 0, 16, Some("head")),
        ("head", 0, 8, Some("head.next")),
        ("head", 8, 4, Some("head.value")),
        ("head", 12, 4, Some("head.tag")),
        ("head", 13, 1, Some("head.tag[1]")),
        ("head", 0, 0, Some("head.next")),
        ("table", 8, 4, Some("table[2]")),
        ("table", 8, 8, Some("table")),
        ("config", 4, 4, Some("config.of[0]")),
        ("config", 6, 2, Some("config.of[0].high")),
    ] {
        let at = ImageOffset(start(name) + offset);
        assert_eq!(image.global_at(at, size).as_deref(), expected, "{name}+{offset}, {size} bytes");
    }
    assert_eq!(image.global_at(image.find_function("main")[0].start, 4), None, "code is no variable");
    // Without debug information symbols remain.
    scratch.run("objcopy", &["--strip-debug", "prog", "bare"]);
    let bare = Arc::new(Image::open_with(scratch.path("bare"), image::Search::in_folders(vec![])).unwrap());
    assert_eq!(bare.global_at(ImageOffset(start("table")), 4).as_deref(), Some("table"));
    assert_eq!(bare.global_at(ImageOffset(start("table") + 8), 4).as_deref(), Some("table+8"));
}

#[test]
fn registers_are_named_by_the_variables_they_hold() {
    const KEPT: &str = r#"
__attribute__((noinline, noclone)) long work(long first, long second, char *cursor) {
    long total = 0;
    for (long i = 0; i < 3; i++) { stop_here((int)i); total += first * second + *cursor + i; cursor++; }
    return total;
}
int main(int argc, char **argv) { return (int)work(argc + 10, argc + 20, argv[0]); }
"#;
    let scratch = Scratch::new();
    let program = scratch.compile("gcc", &format!("{PRELUDE}{KEPT}"), &["-g", "-O1"]);
    let registers = ["rbx", "rbp", "r12", "r13", "r14", "r15"];
    let variables = ["first", "second", "cursor", "total", "i"];
    let mut commands = vec!["frame function work".to_string()];
    commands.extend(registers.map(|r| format!("print/x ${r}")));
    commands.extend(variables.map(|v| format!("print/x (long){v}")));
    let Some(Session { core, answers }) = ask(&scratch, &program, &commands) else { return };
    let value = |text: &String| text.split_once(" = ").map(|(_, v)| v.to_string()).unwrap_or_default();
    let frames = core.backtrace();
    let (index, frame) = frame_of(&frames, "work");
    let mut named = Vec::new();
    for (i, register) in registers.iter().enumerate() {
        let what = Storage::Register(Register::named(register).unwrap());
        let name = Inspector::in_backtrace(&core, &frames, index, 0).unwrap().name_of(what);
        assert_eq!(core.images().name_of(frame.at, &frame.registers, what), name);
        let Some(name) = name else { continue };
        let which = variables.iter().position(|v| *v == name).unwrap_or_else(|| panic!("{register} is {name}"));
        assert_eq!(value(&answers[1 + registers.len() + which]), value(&answers[1 + i]), "{register} holds {name}");
        named.push(name);
    }
    assert!(named.len() >= 2, "only {named:?} were found in registers");
}

#[test]
fn nothing_is_made_up_for_places_without_variables() {
    let scratch = Scratch::new();
    let program = scratch.compile("gcc", &format!("{PRELUDE}{SOURCE}"), &["-g", "-O0"]);
    let Some(session) = ask(&scratch, &program, &["frame function work".to_string()]) else { return };
    let core: &Core = &session.core;
    let frames = core.backtrace();
    let (_, frame) = frame_of(&frames, "work");
    for at in [0, 8, 0x1000, u64::MAX, u64::MAX - 8, 0x7fff_ffff_f000] {
        let what = Storage::Memory { at: GuestAddr(at), size: 8 };
        assert_eq!(core.images().name_of(frame.at, &frame.registers, what), None, "{at:#x}");
        assert_eq!(core.images().name_of(GuestAddr(at), &Registers::default(), what), None, "{at:#x}");
    }
    let unused = Storage::Register(Register(0));
    assert_eq!(core.images().name_of(frame.at, &frame.registers, unused), None, "-O0 keeps nothing in registers");
    // The return address of the frame is nobody's variable.
    let cfa = frame.cfa.expect("the frame has call frame information");
    let what = Storage::Memory { at: GuestAddr(cfa.0 - 8), size: 8 };
    assert_eq!(core.images().name_of(frame.at, &frame.registers, what), None);
}
