//! Variables agree with gdb's, in every frame of a program, as gdb prints them.

mod common;

use common::Scratch;
use common::gdb::{Session, ask};
use image::{Inspector, Role, StackFrame};
use std::collections::BTreeMap;

/// The frames of the test program as gdb counts them: the number of the stack frame and the level of the inlined function.
fn levels(frames: &[StackFrame]) -> Vec<(usize, usize)> {
    let count = |f: &StackFrame| if f.trampoline { 1 } else { f.location.frames().len() };
    frames.iter().enumerate().flat_map(|(i, f)| (0..count(f)).map(move |level| (i, level))).collect()
}

/// `name = value` lines; several variables of one name keep their order.
fn theirs(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().filter(|l| !l.starts_with("No locals") && !l.starts_with("No arguments"));
    let lines = lines.filter_map(|l| l.split_once(" = "));
    lines.map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

fn sorted(list: Vec<(String, String)>) -> BTreeMap<String, Vec<String>> {
    let mut map: BTreeMap<String, Vec<String>> = BTreeMap::new();
    list.into_iter().for_each(|(name, value)| map.entry(name).or_default().push(value));
    map
}

/// Compares all variables of all frames of the program; gives how many, and how many of them only gdb could find.
#[track_caller]
fn check_variables(compiler: &str, source: &str, flags: &[&str]) -> (usize, usize) {
    let scratch = Scratch::new();
    let program = scratch.compile(compiler, source, flags);
    let mut commands = vec!["set print entry-values no".to_string()];
    // More frames than any of the programs has; gdb stays where it is when there is none.
    const FRAMES: usize = 12;
    for i in 0..FRAMES {
        commands.extend([format!("frame {i}"), "info locals".to_string(), "info args".to_string()]);
    }
    let Some(Session { core, answers }) = ask(&scratch, &program, &commands) else { return (usize::MAX, 0) };
    let frames = core.backtrace();
    let (mut compared, mut lost) = (0, 0);
    for (i, (index, level)) in levels(&frames).into_iter().enumerate().take(FRAMES) {
        let place = &answers[1 + i * 3];
        let here = frames[index].location.frames().into_iter().nth(level).unwrap_or_default();
        let in_program = here.file.is_some_and(|f| f.to_string_lossy().contains("/src/prog."));
        if !place.starts_with(&format!("#{i} ")) || !in_program {
            continue;
        }
        let variables = Inspector::in_backtrace(&core, &frames, index, level).unwrap().variables();
        for (role, text) in [(Role::Local, &answers[2 + i * 3]), (Role::Parameter, &answers[3 + i * 3])] {
            let ours = variables.iter().filter(|v| v.role == role).map(|v| (v.name.clone(), v.text.clone()));
            let (ours, theirs) = (sorted(ours.collect()), sorted(theirs(text)));
            let names = |m: &BTreeMap<String, Vec<String>>| m.keys().cloned().collect::<Vec<_>>();
            // gdb leaves out some that have a constant value and no place.
            let ours: BTreeMap<_, _> =
                ours.into_iter().filter(|(n, _)| flags.contains(&"-O0") || theirs.contains_key(n)).collect();
            assert_eq!(names(&ours), names(&theirs), "{flags:?}: {place}\n{text}");
            for (name, expected) in theirs {
                let found = &ours[&name];
                // gdb follows some values further back into the callers; we say that they are gone.
                let gone = found.iter().all(|v| v == "<optimized out>") && flags.contains(&"-O2");
                compared += 1;
                lost += usize::from(gone && *found != expected);
                assert!(gone || *found == expected, "{flags:?}: {place}\n{name}: {found:#?}\n{expected:#?}");
            }
        }
    }
    (compared, lost)
}

const PRELUDE: &str = r#"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
volatile int sink;
__attribute__((noinline, noclone)) void stop_here(int n) { sink = n; }
"#;

/// The forms in which debug information comes.
const FORMS: [&[&str]; 3] = [&["-g", "-O0"], &["-g", "-O2"], &["-g", "-O0", "-gdwarf-3", "-gstrict-dwarf", "-no-pie"]];
/// Those that spread it over several files and units.
const SPREAD: [&[&str]; 5] = [
    &["-g", "-O0", "-gsplit-dwarf"],
    &["-g", "-O2", "-gsplit-dwarf"],
    &["-g", "-O2", "-gsplit-dwarf", "-gdwarf-4"],
    &["-g", "-O0", "-gdwarf-4", "-fdebug-types-section"],
    &["-g", "-O0", "-gsplit-dwarf", "-fdebug-types-section", "-gdwarf-4"],
];

#[track_caller]
fn check_everywhere(compiler: &str, source: &str, at_least: usize) {
    check_forms(compiler, source, at_least, &FORMS);
}

#[track_caller]
fn check_spread_too(compiler: &str, source: &str, at_least: usize) {
    check_forms(compiler, source, at_least, &FORMS);
    check_forms(compiler, source, at_least, &SPREAD);
}

#[track_caller]
fn check_forms(compiler: &str, source: &str, at_least: usize, forms: &[&[&str]]) {
    let source = format!("{PRELUDE}{source}");
    for &flags in forms {
        let (compared, lost) = check_variables(compiler, &source, flags);
        assert!(compared >= at_least, "{flags:?}: only {compared} variables were compared");
        assert!(lost * 10 <= compared, "{flags:?}: {lost} of {compared} variables were not found");
    }
}

#[test]
fn every_kind_of_type_is_printed_as_gdb_prints_it() {
    check_everywhere(
        "gcc",
        r#"
struct node { struct node *next; int value; unsigned a : 3, b : 5; int c : 7; char name[16]; };
union number { int i; float f; unsigned char bytes[8]; double d; };
enum color { RED, GREEN, BLUE = 7 };
enum flags { READ = 1, WRITE = 2, EXECUTE = 4 };
typedef struct { int x, y; } point;
typedef int (*operation)(int, const char *);
struct deep { point corners[2]; struct { int inner; union { int left; short right; }; }; operation call; };
static int add(int n, const char *text) { return n + text[0]; }
int table[40];
char letters[300];
int main(int argc, char **argv) {
    static int calls = 3;
    static const char *const words[] = { "one", "two", "three" };
    struct node first = { 0, argc, 5, 17, -9, "abc" };
    struct node second = { &first, 2, 1, 2, 3, "0123456789abcde" };
    union number number = { 1078530011 };
    enum color color = BLUE, odd = 5;
    enum flags flags = READ | EXECUTE, unknown = 8 | READ, none = 0;
    point line[2] = { { 1, 2 }, { 3, -4 } };
    struct deep deep = { { { 1, 2 }, { 3, 4 } }, { 5, { 6 } }, add };
    const char *text = "hi\n\033\"x\\ \377", *nothing = 0, *bad = (char *)16;
    int *pointer = table + 3;
    int matrix[2][3] = { { 1, 2, 3 }, { 4, 5, 6 } };
    char runs[40] = "aaaaaaaaaabbbbbbbbbbb", full[3] = "xyz", empty[4] = "";
    char c = 'q'; signed char sc = -5; unsigned char uc = 200; _Bool flag = 1;
    short s = -300; unsigned short us = 65000; long l = -5000000000; unsigned long ul = ~0ul;
    long long ll = 1ll << 62; __int128 wide = -7;
    float f = 0.1f; double d = 1.0 / 3; double huge = 1e300, tiny = -2.5e-7, not_a_number = __builtin_nan("");
    int8_t i8 = 65; uint64_t u64 = 1; size_t size = sizeof first;
    operation call = add; void *generic = &first; struct node **twice = &second.next;
    struct undeclared *opaque = 0;
    int nines[9] = { 7, 7, 7, 7, 7, 7, 7, 7, 7 }, tens[12] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 3 };
    point many[11] = { { 1, 1 } };
    volatile int vi = argc; const int ci = 5; int *const cp = &first.value; const struct node *cn = &first;
    memset(letters, 'x', 299);
    { int inner = 10; { int innermost = 11, inner = 12; stop_here(innermost + inner); sink += innermost; } sink += inner; }
    return first.value + second.value + number.i + color + flags + line[0].x + deep.call(1, text) + *pointer
        + matrix[1][1] + runs[0] + c + calls + words[0][0] + unknown + none + odd + vi;
}
"#,
        25,
    );
}

#[test]
fn locals_of_recursion_and_inlined_functions_are_found() {
    check_spread_too(
        "gcc",
        r#"
struct pair { long first, second; };
static inline __attribute__((always_inline)) int innermost(int n, struct pair *p) {
    int local = n * 2 + sink;
    stop_here(local);
    return local + p->first + sink;
}
static __attribute__((noinline)) int down(int n, double weight, const char *text) {
    struct pair pair = { n, n * 2 };
    int result = 0;
    if (n == 0) {
        int bottom = sink + 5;
        result = innermost(n + 3, &pair) + bottom;
    } else {
        for (int i = 0; i < 1; i++) {
            int before = sink + i;
            result += down(n - 1, weight * 2, text + 1) + before;
        }
    }
    return result + pair.second + (int)weight + text[0];
}
int main(int argc, char **argv) { int got = down(argc + 2, 1.5, "abcdef"); return got + sink; }
"#,
        20,
    );
}

#[test]
fn arrays_of_variable_length_have_their_length() {
    check_everywhere(
        "gcc",
        r#"
static __attribute__((noinline)) int fill(int n) {
    int room[n], more[2][n];
    for (int i = 0; i < n; i++) room[i] = more[0][i] = more[1][i] = i * i;
    stop_here(n);
    return room[n - 1] + more[1][0] + sink;
}
int main(int argc, char **argv) { return fill(argc + 4) + sink; }
"#,
        5,
    );
}

#[test]
fn classes_are_printed_with_their_bases() {
    check_spread_too(
        "g++",
        r#"
struct Empty {};
struct Base { int id; virtual int run() { return id; } virtual ~Base() {} };
struct Other { short tag = 9; };
class Derived : public Base, Other { public: int extra = 4; bool on = true; int run() override { return extra; } };
enum class Shape : unsigned char { Round, Square };
enum Plain { LOW, HIGH };
namespace space { struct Inner { int a, b; }; template <typename T, int N> struct Box { T items[N]; }; }
static __attribute__((noinline)) int look(const Base &base, int &&moved, Derived *object, int &number) {
    stop_here(base.id);
    return moved + object->extra + number + sink;
}
int main(int argc, char **argv) {
    Derived derived;
    derived.id = argc;
    Empty empty;
    Shape shape = Shape::Square;
    Plain plain = HIGH;
    space::Inner inner{1, 2};
    space::Box<short, 3> box{{1, 2, 3}};
    int number = 5;
    int &reference = number;
    Base *base = &derived;
    bool yes = true, no = false;
    char16_t wide = u'x';
    int got = look(derived, 7, &derived, reference);
    return got + inner.a + box.items[0] + base->id + yes + no + (int)shape + plain + wide + sink;
}
"#,
        8,
    );
}

#[test]
fn globals_are_found_by_name() {
    let scratch = Scratch::new();
    let source = format!(
        "{PRELUDE}
static int hidden = 41; int counts[3] = {{1, 2, 3}}; __thread int per_thread = 6;
int main(int argc, char **argv) {{ stop_here(hidden); per_thread += counts[0]; return hidden + sink; }}
"
    );
    let program = scratch.compile("gcc", &source, &["-g"]);
    let names = ["hidden", "counts", "per_thread", "sink"];
    let commands: Vec<String> = names.iter().map(|n| format!("output {n}")).collect();
    let Some(Session { core, answers }) = ask(&scratch, &program, &commands) else { return };
    let frames = core.backtrace();
    let inspector = Inspector::new(&core, &frames[0], 0);
    for (name, expected) in names.iter().zip(answers) {
        assert_eq!(inspector.global(name).map(|v| v.text), Some(expected), "{name}");
    }
    assert_eq!(inspector.global("nowhere"), None);
    let counts = inspector.global("counts").unwrap();
    assert_eq!((counts.type_name.as_str(), counts.size, counts.role), ("int [3]", Some(12), Role::Global));
}

/// Rust's types have no form in gdb's C syntax to compare with, so the expectation stands here.
#[test]
fn rust_enums_show_the_variant_that_exists_and_strings_their_text() {
    const SOURCE: &str = r#"
#[derive(Clone)]
pub enum Shape { Dot, Circle { radius: u32 }, Pair(u8, i16) }
#[no_mangle] #[inline(never)]
pub extern "C" fn stop_here(n: i32) { std::hint::black_box(n); }
fn main() {
    let circle = Shape::Circle { radius: 7 };
    let pair = Shape::Pair(3, -4);
    let dot = Shape::Dot;
    let some: Option<u32> = Some(5);
    let none: Option<Box<u32>> = None;
    let tuple = (1u8, true, -2i64);
    let list = [1u16, 2, 3];
    let text = "fixed text";
    let owned = String::from("grown \"text\"");
    let empty = String::new();
    stop_here(1);
    std::hint::black_box((&circle, &pair, &dot, &some, &none, &tuple, &list, &text, &owned, &empty));
}
"#;
    let scratch = Scratch::new();
    scratch.write("src/prog.rs", SOURCE);
    let flags = ["-g", "-Copt-level=0", "--edition=2021", "-o", "prog", "src/prog.rs"];
    scratch.run(option_env!("RUSTC").unwrap_or("rustc"), &flags);
    let Some(Session { core, .. }) = ask(&scratch, &scratch.path("prog"), &[]) else { return };
    let frames = core.backtrace();
    let main = frames.iter().position(|f| f.location.function.as_deref() == Some("prog::main")).expect("main called");
    let variables = Inspector::in_backtrace(&core, &frames, main, 0).unwrap().variables();
    for (name, expected) in [
        ("circle", "{Circle = {radius = 7}}"),
        ("pair", "{Pair = {__0 = 3, __1 = -4}}"),
        ("dot", "{Dot = {<No data fields>}}"),
        ("some", "{Some = {__0 = 5}}"),
        ("none", "{None = {<No data fields>}}"),
        ("tuple", "{__0 = 1, __1 = true, __2 = -2}"),
        ("list", "{1, 2, 3}"),
        ("text", "\"fixed text\""),
        ("owned", r#""grown \"text\"""#),
        ("empty", "\"\""),
    ] {
        let found = variables.iter().find(|v| v.name == name).map(|v| v.text.as_str());
        assert_eq!(found, Some(expected), "{name}");
    }
}

/// gdb shows these as text only where the library's printers are installed, so the expectation stands here.
#[test]
fn strings_of_cpp_are_shown_as_text() {
    let source = format!(
        "{PRELUDE}#include <string>
struct Holder {{ int id; std::string name; }};
int main(int argc, char **argv) {{
    std::string text = \"short\", grown(300, 'x'), empty;
    Holder holder{{3, \"held\"}};
    stop_here(argc);
    return (int)(text.size() + grown.size() + empty.size() + holder.name.size());
}}
"
    );
    let scratch = Scratch::new();
    let program = scratch.compile("g++", &source, &["-g", "-O0"]);
    let Some(Session { core, .. }) = ask(&scratch, &program, &[]) else { return };
    let frames = core.backtrace();
    let main = frames.iter().position(|f| f.location.function.as_deref() == Some("main")).expect("main called");
    let variables = Inspector::in_backtrace(&core, &frames, main, 0).unwrap().variables();
    for (name, expected) in [
        ("text", "\"short\""),
        ("grown", "'x' <repeats 300 times>"),
        ("empty", "\"\""),
        ("holder", "{id = 3, name = \"held\"}"),
    ] {
        let found = variables.iter().find(|v| v.name == name).map(|v| v.text.as_str());
        assert_eq!(found, Some(expected), "{name}");
    }
}
