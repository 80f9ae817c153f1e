//! Backtraces agree with gdb's, frame by frame, and damage never makes them wrong on purpose or endless.

mod common;

use common::Scratch;
use common::gdb::{Session, ask};
use image::{End, Origin, StackFrame, backtrace};
use std::path::Path;

/// What a line of a backtrace says: function, file name and line; the kernel's frames have a name of their own.
type Line = (String, String, u32);

/// `#1  0x5555 in name (args) at src/prog.c:12`; `None` for frames outside of the test program.
fn theirs(line: &str) -> Option<Line> {
    if line.contains("<signal handler called>") {
        return Some(("<signal handler called>".to_string(), String::new(), 0));
    }
    let (what, place) = line.rsplit_once(" at ")?;
    let name = what.split_once(" (")?.0.rsplit(' ').next()?.to_string();
    let (file, number) = place.rsplit_once(':')?;
    let file = Path::new(file).file_name()?.to_str()?.to_string();
    Some((name, file, number.parse().ok()?))
}

/// The frames as gdb counts them: inlined functions have frames of their own.
fn ours(frames: &[StackFrame]) -> Vec<Line> {
    let line = |f: image::Frame| {
        let name = f.function.unwrap_or_default();
        // gdb's name for the code of a lambda says less than ours.
        let name = if name.contains("{lambda") || name == "operator()" {
            "operator()"
        } else {
            name.split('(').next().unwrap_or("")
        };
        let file = f.file.as_deref().and_then(|f| f.file_name()).map(|f| f.to_string_lossy().into_owned());
        (name.to_string(), file.unwrap_or_default(), f.line.unwrap_or(0))
    };
    let of_frame = |f: &StackFrame| match f.trampoline {
        true => vec![("<signal handler called>".to_string(), String::new(), 0)],
        false => f.location.frames().into_iter().map(line).collect(),
    };
    frames.iter().flat_map(of_frame).collect()
}

#[track_caller]
fn check_backtrace(compiler: &str, source: &str, flags: &[&str]) -> Option<Vec<StackFrame>> {
    let scratch = Scratch::new();
    let program = scratch.compile(compiler, source, flags);
    let commands = ["bt".to_string()];
    let Session { core, answers } = ask(&scratch, &program, &commands)?;
    let trace = backtrace(&core, 1000);
    // gdb invents frames for tail calls between functions of libraries, and those have several names.
    let is_compared = |l: &Line| l.1.starts_with("prog.") || l.2 == 0 && l.1.is_empty() && l.0.starts_with('<');
    let ours: Vec<Line> = ours(&trace.frames).into_iter().filter(is_compared).collect();
    let lines = answers[0].lines().filter(|l| l.starts_with('#'));
    let theirs: Vec<Line> = lines.filter_map(theirs).filter(is_compared).collect();
    assert_eq!(ours, theirs, "{flags:?}:\n{}", answers[0]);
    assert_eq!(ours.last().unwrap().0, "main", "{flags:?}: the program stops below main");
    assert_eq!(trace.end, End::Outermost, "{flags:?}: {ours:#?}");
    assert!(trace.frames.iter().all(|f| f.origin != Origin::Guess), "{flags:?}: nothing here has to be guessed");
    Some(trace.frames)
}

const PRELUDE: &str = "
#include <alloca.h>
#include <signal.h>
#include <string.h>
volatile int sink;
__attribute__((noinline, noclone)) void stop_here(int n) { sink = n; }
";

#[track_caller]
fn check_everywhere(source: &str) {
    let source = format!("{PRELUDE}{source}");
    for flags in [
        &["-g", "-O0"][..],
        &["-g", "-O2"],
        &["-g", "-O2", "-fomit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-exceptions"],
        &["-g", "-O1", "-fno-omit-frame-pointer", "-no-pie", "-gdwarf-4"],
    ] {
        check_backtrace("gcc", &source, flags);
    }
}

#[test]
fn recursion_is_followed_to_the_start() {
    check_everywhere(
        "
static __attribute__((noinline)) int down(int n) {
    if (n == 0) { stop_here(n); return 1; }
    return down(n - 1) * 3 + n;
}
int main(int argc, char **argv) { return down(argc + 6) + sink; }
",
    );
}

#[test]
fn inlined_functions_have_frames() {
    check_everywhere(
        "
static inline __attribute__((always_inline)) int innermost(int n) { stop_here(n); return n + sink; }
static inline __attribute__((always_inline)) int middle(int n) { int r = innermost(n + 1); return r * 2; }
static __attribute__((noinline)) int outer(int n) { return middle(n) + middle(n + 7); }
int main(int argc, char **argv) { return outer(argc) + sink; }
",
    );
}

#[test]
fn a_stack_of_varying_size_is_unwound() {
    check_everywhere(
        "
static __attribute__((noinline)) int fill(int n) {
    char *room = alloca(n * 16);
    memset(room, n, n * 16);
    stop_here(n);
    return room[n] + sink;
}
int main(int argc, char **argv) { return fill(argc + 9) + sink; }
",
    );
}

#[test]
fn the_frame_of_a_signal_leads_to_what_it_interrupted() {
    check_everywhere(
        "
static void handler(int s) { stop_here(s); sink++; }
static __attribute__((noinline)) int work(int n) { raise(SIGUSR1); return n + sink; }
int main(int argc, char **argv) { signal(SIGUSR1, handler); return work(argc) + sink; }
",
    );
}

#[test]
fn a_signal_on_a_stack_of_its_own_is_unwound() {
    check_everywhere(
        "
static char room[65536];
static void handler(int s) { stop_here(s); sink++; }
static __attribute__((noinline)) int work(int n) { raise(SIGUSR1); return n + sink; }
int main(int argc, char **argv) {
    stack_t other = { .ss_sp = room, .ss_size = sizeof room };
    sigaltstack(&other, 0);
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_ONSTACK };
    sigaction(SIGUSR1, &action, 0);
    return work(argc) + sink;
}
",
    );
}

#[test]
fn calls_through_a_library_are_followed() {
    check_everywhere(
        "
#include <stdlib.h>
static int compare(const void *a, const void *b) { stop_here(1); return *(int *)a - *(int *)b; }
int main(int argc, char **argv) { int v[3] = { 3, argc, 2 }; qsort(v, 3, 4, compare); return v[0]; }
",
    );
}

#[test]
fn cpp_functions_are_named_as_gdb_names_them() {
    let source = format!(
        "{PRELUDE}
namespace space {{
template <typename T> struct Box {{ T value; __attribute__((noinline)) T get() {{ stop_here(1); return value; }} }};
struct Base {{ virtual int run(int n) = 0; virtual ~Base() {{}} }};
struct Derived : Base {{ int run(int n) override {{ Box<int> box{{n}}; return box.get() + 1; }} }};
}}
int main(int argc, char **argv) {{
    space::Derived derived;
    space::Base *base = &derived;
    auto call = [&](int n) {{ return base->run(n) + sink; }};
    try {{ return call(argc) + sink; }} catch (int) {{ return 1; }}
}}
"
    );
    for flags in [&["-g", "-O0"][..], &["-g", "-O2"]] {
        check_backtrace("g++", &source, flags);
    }
}

#[test]
fn the_limit_ends_a_backtrace() {
    let scratch = Scratch::new();
    let source = format!("{PRELUDE} int main(void) {{ stop_here(1); return 0; }}");
    let program = scratch.compile("gcc", &source, &["-g"]);
    let Some(Session { core, .. }) = ask(&scratch, &program, &[]) else { return };
    let trace = backtrace(&core, 1);
    assert_eq!((trace.frames.len(), trace.end), (1, End::Limit));
    assert!(backtrace(&core, 0).frames.is_empty());
}

/// Without any call frame information the frame pointer leads on, and says that it is a guess.
#[test]
fn frame_pointers_are_followed_as_a_guess() {
    let source = format!(
        "{PRELUDE}
static __attribute__((noinline)) int down(int n) {{
    if (n == 0) {{ stop_here(n); return 1; }}
    return down(n - 1) * 3 + n;
}}
int main(int argc, char **argv) {{ return down(argc + 2) + sink; }}
"
    );
    let scratch = Scratch::new();
    let flags = ["-O1", "-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-exceptions"];
    let program = scratch.compile("gcc", &source, &flags);
    let Some(Session { core, .. }) = ask(&scratch, &program, &[]) else { return };
    let names: Vec<(String, Origin)> = core
        .backtrace()
        .into_iter()
        .map(|f| (f.location.function.unwrap_or_default(), f.origin))
        .take_while(|(name, _)| !name.starts_with("__libc"))
        .collect();
    let expected = ["stop_here", "down", "down", "down", "down", "main"];
    assert_eq!(names.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>(), expected);
    assert!(names[1..].iter().all(|(_, origin)| *origin == Origin::Guess), "{names:?}");
}
