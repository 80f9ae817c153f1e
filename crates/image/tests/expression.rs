//! Expressions have the values that gdb prints for them, and mistakes are named in one sentence.

mod common;

use common::Scratch;
use common::gdb::{Session, ask};
use image::Inspector;

const SOURCE: &str = r#"
#include <stdint.h>
#include <stdio.h>
#include <string.h>
volatile int sink;
__attribute__((noinline, noclone)) void stop_here(int n) { sink = n; }
struct node { struct node *next; int value; unsigned a : 3, b : 5; int c : 7; char name[16]; };
enum color { RED, GREEN, BLUE = 7 };
typedef struct { int x, y; } point;
typedef point *point_ref;
struct deep { point corners[2]; struct { int inner; union { int left; short right; }; }; };
struct later;
static int add(int n, const char *text) { return n + text[0]; }
int table[40] = { 5, 6, 7 };
static unsigned hidden = 3000000000u;
__thread int per_thread = 6;
struct node *head;
int main(int argc, char **argv) {
    static int calls = 3;
    struct node first = { 0, argc, 5, 17, -9, "abc" };
    struct node second = { &first, 2, 1, 2, 3, "0123456789abcde" };
    enum color color = GREEN;
    point line[2] = { { 1, 2 }, { 3, -4 } };
    point_ref here = &line[1];
    struct deep deep = { { { 1, 2 }, { 3, 4 } }, { 5, { 6 } } };
    const char *text = "hello";
    int *pointer = table + 1, matrix[2][3] = { { 1, 2, 3 }, { 4, 5, 6 } };
    unsigned u = 1; long l = -5; short s = -300; unsigned char uc = 200; char c = 'q'; uint64_t big = ~0ul;
    float f = 0.5f; double d = 1.0 / 3; _Bool yes = 1;
    int (*call)(int, const char *) = add; void *generic = &first; struct later *opaque = (struct later *)&first;
    int shadow = 1;
    head = &second;
    { int shadow = 2; stop_here(shadow); sink += shadow; }
    return add(argc, text) + color + line[0].x + deep.inner + matrix[1][1] + calls + per_thread + shadow;
}
"#;

/// Expressions whose value gdb prints too.
const EXPRESSIONS: &[&str] = &[
    "argc",
    "argv",
    "argv[0]",
    "*argv",
    "*argv[0]",
    "first",
    "&first",
    "*&first",
    "first.next",
    "second.next->name",
    "second.next->value",
    "head->next->value + 1",
    "first.a",
    "first.b",
    "first.c",
    "first.c * 2",
    "first.a + first.b",
    "first.name",
    "&first.name",
    "first.name[1]",
    "&first.name[1]",
    "first.name + 1",
    "*first.name",
    "sizeof first",
    "sizeof(first)",
    "sizeof(struct node)",
    "sizeof(int)",
    "sizeof(point)",
    "sizeof table",
    "sizeof(struct node *)",
    "color",
    "color + 1",
    "color == GREEN",
    "BLUE",
    "BLUE - RED",
    "(enum color)7",
    "(enum color)9",
    "line",
    "line[1]",
    "line[1].y",
    "here->x",
    "here",
    "*here",
    "(*here).y",
    "here - line",
    "&line[1] == here",
    "deep.corners[1].x",
    "deep.inner",
    "deep.left",
    "deep.right",
    "deep",
    "text",
    "text[0]",
    "text + 1",
    "*text",
    "&text",
    "pointer",
    "*pointer",
    "pointer[1]",
    "pointer[-1]",
    "pointer + 3",
    "pointer - 1",
    "1 + pointer",
    "pointer - table",
    "&table[3] - pointer",
    "table",
    "&table",
    "*table",
    "table[2]",
    "&table[2]",
    "matrix",
    "matrix[1]",
    "matrix[1][2]",
    "*matrix",
    "**matrix",
    "&matrix",
    "&matrix[1]",
    "matrix[1] - matrix[0]",
    "u",
    "-u",
    "l",
    "-l",
    "s",
    "-s",
    "uc",
    "uc + 100",
    "~uc",
    "c",
    "c + 1",
    "(char)(c + 1)",
    "big",
    "big + 1",
    "f",
    "f * 2",
    "f + d",
    "d",
    "d * 3",
    "yes",
    "!yes",
    "call",
    "*call",
    "add",
    "&add",
    "main",
    "generic",
    "(struct node *)generic",
    "((struct node *)generic)->name",
    "(long)generic",
    "(int)generic",
    "(char)321",
    "(unsigned char)-1",
    "(short)70000",
    "(unsigned short)-1",
    "(float)1/3",
    "(double)1/3",
    "(int)3.99",
    "(int)-3.99",
    "(unsigned)-1",
    "(_Bool)5",
    "(char *)first.name",
    "(unsigned char *)text",
    "(void *)0",
    "(point *)line",
    "(point_ref)line",
    "(uint64_t)-1",
    "(const char *)text",
    "hidden",
    "hidden * 2",
    "hidden > 0",
    "(int)hidden",
    "calls",
    "per_thread",
    "per_thread * 2",
    "sink",
    "head",
    "head == &second",
    "head != 0",
    "!head",
    "shadow",
    "1",
    "-1",
    "0x10",
    "010",
    "'a'",
    "'a' + 1",
    "'\\n'",
    "7u",
    "1.5",
    "1.5f",
    "1e10",
    "2.5e-7",
    "10 / 3",
    "-7 / 2",
    "-7 % 3",
    "7 % -3",
    "10 / 4.0",
    "1 << 4",
    "-16 >> 2",
    "1u << 31",
    "1 << 31",
    "0xffffffff",
    "4294967295",
    "4294967296",
    "0xffffffffffffffff",
    "2147483648",
    "-2147483648",
    "1 + 2 * 3",
    "(1 + 2) * 3",
    "1 < 2",
    "2 < 1",
    "-1 < 1u",
    "-1 < 1",
    "-1L < 1u",
    "1.0 == 1",
    "3 & 5",
    "3 | 5",
    "3 ^ 5",
    "~0",
    "~0u",
    "1 && 0",
    "1 || 0",
    "0 || 0",
    "argc && head",
    "argc > 0 ? 10 : 20",
    "0 ? 1 : 2.5",
    "1 ? 0 ? 1 : 2 : 3",
    "+5",
    "- -5",
    "!0",
    "!5",
    "2000000000 + 2000000000",
    "65536 * 65536",
    "65536L * 65536",
    "$rip",
    "$pc",
    "$rsp",
    "$sp",
    "$rbp",
    "$rsp + 8",
    "(long)$rsp % 16",
    "*(long *)$rsp",
    "u - 2",
    "u - 2L",
    "uc - 201",
    "s / 7",
    "l >> 1",
    "(l ^ 1) + (u | 2)",
    "first.next == 0",
    "second.next == &first",
    "argv[0][0] == '/'",
    "sizeof(char) + sizeof(long)",
    "sizeof 'a'",
    "sizeof(1 + 1L)",
    "first.value ? text : 0",
];

#[track_caller]
fn check_expressions(flags: &[&str]) {
    let scratch = Scratch::new();
    let program = scratch.compile("gcc", SOURCE, flags);
    let mut commands = vec!["frame 1".to_string()];
    commands.extend(EXPRESSIONS.iter().map(|e| format!("print {e}")));
    let Some(Session { core, answers }) = ask(&scratch, &program, &commands) else { return };
    let frames = core.backtrace();
    let inspector = Inspector::new(&core, &frames[1], 0);
    let mut wrong = Vec::new();
    for (expression, answer) in EXPRESSIONS.iter().zip(&answers[1..]) {
        // `$12 = value`, after a warning perhaps.
        let expected = answer.lines().last().and_then(|l| l.split_once(" = ")).map_or(answer.as_str(), |(_, v)| v);
        let found = inspector.evaluate(expression).map_or_else(|e| e.to_string(), |a| a.text);
        if found != expected {
            wrong.push(format!("{expression}\n    ours {found}\n    gdb  {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{flags:?}: {} of {}:\n{}", wrong.len(), EXPRESSIONS.len(), wrong.join("\n"));
}

#[test]
fn expressions_have_the_values_that_gdb_prints() {
    check_expressions(&["-g", "-O0"]);
    check_expressions(&["-g", "-O0", "-gdwarf-4", "-no-pie"]);
}

/// What C allows and gdb does not.
#[test]
fn expressions_that_gdb_refuses_have_the_values_of_c() {
    let scratch = Scratch::new();
    let program = scratch.compile("gcc", SOURCE, &["-g", "-O0"]);
    let Some(Session { core, .. }) = ask(&scratch, &program, &[]) else { return };
    let frames = core.backtrace();
    let inspector = Inspector::new(&core, &frames[1], 0);
    for (expression, expected) in [("2[table]", "7"), ("yes + yes", "2"), ("first.a - 6", "-1")] {
        assert_eq!(inspector.evaluate(expression).map(|a| a.text).as_deref(), Ok(expected), "{expression}");
    }
    let answer = inspector.evaluate("second.next->value").unwrap();
    assert_eq!((answer.type_name.as_str(), answer.size, answer.number), ("int", Some(4), Some(1)));
    assert!(answer.address.is_some());
}

#[test]
fn members_of_this_are_found_in_cpp() {
    const SOURCE: &str = r#"
volatile int sink;
__attribute__((noinline, noclone)) void stop_here(int n) { sink = n; }
enum class Shape : short { Round = 3, Square };
struct Base { int id = 5; int &link; Base() : link(id) {} };
struct Derived : Base {
    int extra = 4; Shape shape = Shape::Square; union { int first; float second; };
    int run(int n, const Base &other) { int id = n + 1; stop_here(id); return id + extra + this->id + other.id; }
};
int main(int argc, char **argv) { Derived d; d.first = 9; return d.run(argc, d); }
"#;
    let scratch = Scratch::new();
    let program = scratch.compile("g++", SOURCE, &["-g", "-O0"]);
    let expressions = [
        "id",
        "extra",
        "this->id",
        "this->extra + id",
        "*this",
        "this",
        "shape",
        "this->first",
        "link",
        "link + 1",
        "&link",
        "other",
        "other.id",
        "&other",
        "other.link",
        "n",
        "sizeof(Derived)",
        "sizeof(*this)",
        "(Derived *)this",
        "((Base *)this)->id",
        "this->second",
        "sizeof link",
    ];
    let mut commands = vec!["frame 1".to_string()];
    commands.extend(expressions.iter().map(|e| format!("print {e}")));
    let Some(Session { core, answers }) = ask(&scratch, &program, &commands) else { return };
    let frames = core.backtrace();
    let inspector = Inspector::new(&core, &frames[1], 0);
    for (expression, answer) in expressions.iter().zip(&answers[1..]) {
        let expected = answer.split_once(" = ").map_or(answer.as_str(), |(_, v)| v);
        let found = inspector.evaluate(expression).map_or_else(|e| e.to_string(), |a| a.text);
        assert_eq!(found, expected, "{expression}");
    }
}

#[test]
fn mistakes_are_named_in_one_sentence() {
    let scratch = Scratch::new();
    let program = scratch.compile("gcc", SOURCE, &["-g", "-O0"]);
    let Some(Session { core, .. }) = ask(&scratch, &program, &[]) else { return };
    let frames = core.backtrace();
    let inspector = Inspector::new(&core, &frames[1], 0);
    for (expression, expected) in [
        ("nowhere", "nothing here is called nowhere, at column 1"),
        ("1 + nowhere", "nothing here is called nowhere, at column 5"),
        ("first.nothing", "struct node has no member nothing, at column 7"),
        ("argc.x", "this needs a struct or union, not a value of type int, at column 6"),
        ("*argc", "this needs a pointer, not a value of type int, at column 2"),
        ("*generic", "this needs a pointer to something, not a value of type void *, at column 2"),
        ("*opaque", "<incomplete type>"),
        (
            "opaque + 1",
            "this needs a pointer to something with a size, not a value of type struct later *, at column 8",
        ),
        ("first + 1", "this needs a number or a pointer, not a value of type struct node, at column 1"),
        ("pointer * 2", "this needs a number, not a value of type int *, at column 1"),
        ("pointer + 1.5", "this needs a whole number, not a value of type double, at column 11"),
        ("pointer - text", "this needs two pointers of one type, not a value of type const char *, at column 9"),
        ("1 / 0", "this divides by zero, at column 3"),
        ("1 % (argc - 1)", "this divides by zero, at column 3"),
        ("5.0 % 2", "this needs whole numbers, not a value of type double, at column 5"),
        ("1 << -1", "this needs a count that is not negative, not a value of type a negative number, at column 3"),
        ("&5", "this needs something in memory, not a value of type int, at column 2"),
        ("&first.a", "this needs something with an address, not a value of type bit field, at column 8"),
        ("*(int *)16", "the memory at 0x10 cannot be read, at column 1"),
        ("*(int *)16 + 1", "the memory at 0x10 cannot be read, at column 1"),
        ("((struct node *)16)->value", "the memory at 0x18 cannot be read, at column 22"),
        ("(struct nothing *)0", "there is no type struct nothing, at column 2"),
        (
            "(struct node)first",
            "this needs a type of numbers or pointers, not a value of type struct node, at column 1",
        ),
        ("$nothing", "there is no register $nothing, at column 1"),
        ("$rdi", "the value of $rdi in this frame is not known, at column 1"),
        ("add(1, text)", "calls are not supported in expressions, at column 4"),
        ("argc = 2", "assignments are not supported in expressions, at column 6"),
        ("", "expected a value but found the end, at column 1"),
    ] {
        let found = inspector.evaluate(expression).map_or_else(|e| e.to_string(), |a| a.text);
        assert_eq!(found, expected, "{expression}");
    }
}
