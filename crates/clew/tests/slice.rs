//! Worked examples of slices: small programs whose slices are known line by line.
//!
//! Lines of the guests are named by the comment that ends them. The examples have the shape of those in Wang, "Dynamic
//! Analysis Techniques for Effective and Efficient Debugging" (2014), and Qi, "Semantic Analyses to Detect and Localize
//! Software Regression Errors" (2013).

mod common;

use common::place::{Place, finish};
use common::{stderr, stdout};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use testkit::{compile, repository};

const LEVELS: [&str; 2] = ["-O0", "-O2"];

/// The lines of a guest by the comment that ends them.
fn marks(guest: &str) -> BTreeMap<u64, String> {
    let source = repository().join("guests/slice").join(format!("{guest}.c"));
    let text = std::fs::read_to_string(source).expect("the source is there");
    let mark = |l: &str| Some(l.strip_suffix("*/")?.rsplit_once("/*")?.1.trim().to_owned());
    text.lines().enumerate().filter_map(|(n, l)| Some((n as u64 + 1, mark(l)?))).collect()
}

fn line_of(guest: &str, mark: &str) -> u64 {
    let found = marks(guest).into_iter().find(|(_, m)| m == mark);
    found.unwrap_or_else(|| panic!("{guest} has a line {mark}")).0
}

/// One recorded guest.
struct Recorded {
    guest: &'static str,
    level: &'static str,
    place: Place,
}

impl Recorded {
    fn new(guest: &'static str, level: &'static str, words: &[&str], input: &[u8], status: i32) -> Recorded {
        let program: PathBuf =
            compile::guest_with(&format!("slice/{guest}.c"), &[level]).expect("any CPU runs it").program;
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let place = Place::new(&format!("slice-{guest}{level}-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        let mut record = place.clew(["record", "--quiet", "--"]);
        record.arg(program).args(words).env("LC_ALL", "C").env_remove("CLEW_NO_SUCH_VARIABLE");
        let output = finish(record, input);
        let ended = output.status.code().or(output.status.signal().map(|n| 128 + n));
        assert_eq!(ended, Some(status), "{guest} {level}: {}", stderr(&output));
        Recorded { guest, level, place }
    }

    fn at(&self, mark: &str) -> String {
        format!("{}.c:{}", self.guest, line_of(self.guest, mark))
    }

    /// The answer to `clew slice` with these options.
    fn slice(&self, options: &[&str]) -> Slice {
        let mut command = self.place.clew(["slice", "--json"]);
        command.args(options).arg("latest");
        let output = finish(command, b"");
        let words = format!("{} {} {options:?}", self.guest, self.level);
        assert_eq!(output.status.code(), Some(0), "{words}: {}{}", stdout(&output), stderr(&output));
        let answer: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
        let marks = marks(self.guest);
        let file = format!("{}.c", self.guest);
        let mark = |c: &Value| {
            let of_guest = c["path"].as_str().is_some_and(|p| p.ends_with(&file));
            marks.get(&c["line"].as_u64()?).filter(|_| of_guest).cloned()
        };
        let own = answer["candidates"].as_array().expect("a list").iter().filter(|c| c["own"] == true);
        let lines = own.filter_map(|c| Some((mark(c)?, c.clone()))).collect();
        Slice { words, lines }
    }

    /// The lines, by their marks, on the way from a line to the criterion; the criterion itself is not one.
    fn path(&self, options: &[&str], from: &str) -> Vec<String> {
        let mut command = self.place.clew(["slice", "--path", &self.at(from)]);
        command.args(options).arg("latest");
        let output = finish(command, b"");
        assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
        let marks = marks(self.guest);
        let line = |l: &str| {
            let (place, _) = l.trim().split_once("  ").unwrap_or((l.trim(), ""));
            let (file, line) = place.rsplit_once(':')?;
            (!file.contains(' ') && file.ends_with(&format!("{}.c", self.guest))).then_some(())?;
            marks.get(&line.parse().ok()?).cloned()
        };
        stdout(&output).lines().filter_map(line).collect()
    }

    fn done(self) {
        self.place.done();
    }
}

/// The own lines of a slice.
struct Slice {
    words: String,
    lines: BTreeMap<String, Value>,
}

impl Slice {
    fn marks(&self) -> BTreeSet<&str> {
        self.lines.keys().map(String::as_str).collect()
    }

    /// Holds these lines and not those; both are lists of marks with commas.
    #[track_caller]
    fn check(&self, inside: &str, outside: &str) -> &Slice {
        let list = |text: &str| text.split(", ").filter(|m| !m.is_empty()).map(str::to_owned).collect::<Vec<_>>();
        for mark in list(inside) {
            assert!(self.lines.contains_key(&mark), "{}: {mark} is missing in {:?}", self.words, self.marks());
        }
        for mark in list(outside) {
            assert!(!self.lines.contains_key(&mark), "{}: {mark} is too much in {:?}", self.words, self.marks());
        }
        self
    }

    /// The line that is nearest to the criterion.
    fn nearest(&self) -> &str {
        let rank = |c: &Value| c["rank"].as_u64();
        self.lines.iter().min_by_key(|(_, c)| rank(c)).map_or("", |(mark, _)| mark)
    }

    /// How often a line is in the slice, and how often it ran.
    fn instances(&self, mark: &str) -> (u64, u64) {
        let number = |key: &str| self.lines[mark][key].as_u64().expect("a number");
        (number("instances"), number("executed"))
    }
}

#[test]
fn a_racing_write_of_another_thread_is_in_the_slice() {
    for level in LEVELS {
        let run = Recorded::new("race", level, &[], b"", 134);
        run.slice(&["--crash"]).check("1, 5, 6, 7, 10, 11, 12, 13", "2, 3, 4, 8, 9");
        let at = run.at("13");
        run.slice(&["--at", &at, "--var", "rest"]).check("1, 5, 6, 7, 10, 11, 12", "2, 3, 4, 8, 9");
        run.done();
    }
}

#[test]
fn the_arm_of_a_switch_depends_on_the_jump_that_chose_it() {
    for level in LEVELS {
        let run = Recorded::new("choice", level, &[], b"a", 42);
        run.slice(&["--exit"]).check("read, switch, arm a, start, call", "arm b");
        run.done();
        let run = Recorded::new("table", level, &[], b"a", 42);
        run.slice(&["--exit"]).check("read, jump, arm a, start, call", "arm b");
        // Without refined control flow nobody knows that the jump chose.
        run.slice(&["--exit", "--no-refinement"]).check("arm a, start", "read, jump, arm b");
        run.done();
    }
}

#[test]
fn saved_registers_make_no_dependences() {
    for level in LEVELS {
        let run = Recorded::new("saved", level, &[], b"t", 42);
        run.slice(&["--exit"]).check("double, start", "read, if, other, end of other");
        run.slice(&["--exit", "--no-bypass"]).check("double, start, read, if, other", "");
        run.done();
    }
}

/// The decision of this number, over these inputs, with `out` as it is at a line.
fn check_decision(inputs: [i32; 4], status: i32, at: &str, inside: &str, outside: &str) {
    for level in LEVELS {
        let bytes: Vec<u8> = inputs.iter().flat_map(|n| n.to_le_bytes()).collect();
        let run = Recorded::new("decisions", level, &[], &bytes, status);
        let at = run.at(at);
        run.slice(&["--at", &at, "--var", "out"]).check(inside, outside);
        run.done();
    }
}

#[test]
fn nested_decisions_are_followed_outwards() {
    check_decision([1, 1, 1, 0], 10, "end", "n1, n2, n3, n4, read, which, call nested", "n5, n6");
    check_decision([1, 1, -5, 0], 20, "end", "n1, n2, n3, n5, read", "n4, n6");
    check_decision([1, 0, 1, 0], 30, "end", "n1, n6, read", "n2, n3, n4, n5");
}

#[test]
fn decisions_that_made_nothing_of_the_value_are_left_out() {
    check_decision([2, 6, 2, 2], 2, "end", "p4, p15", "p5, p6, p8, p9, p10, p11, p12, p14");
    check_decision([2, 6, 5, 2], 6, "end", "p5, p6, p9, p10, p15, read", "p4, p8, p11, p12, p14");
    check_decision([2, 5, 6, 2], 6, "end", "p5, p8, p9, p10, p15, read", "p4, p6, p11, p12, p14");
}

#[test]
fn a_plain_slice_does_not_know_what_might_have_happened() {
    check_decision([3, 0, 0, 0], 0, "end", "o2, o6", "o3, o4, o5");
    check_decision([3, 5, 0, 0], 1, "end", "o3, o4, o5, o6, read", "o2");
}

#[test]
fn the_index_of_what_is_read_counts_and_that_of_other_stores_does_not() {
    check_decision([4, 1, 3, 0], 1, "end", "i2, i5, i6, i7, read", "i1, i8, i9");
    check_decision([4, 0, 3, 0], 0, "end", "i1, i5, i9, read", "i2, i6, i7, i8");
    check_decision([5, 1, 0, 0], 5, "end", "s1, s4", "s2, s3");
    check_decision([5, 0, 0, 0], 9, "end", "s3, s4, read", "s1, s2");
}

#[test]
fn in_a_recursion_the_frame_says_who_decided() {
    let bytes: Vec<u8> = [6, 2, 0, 0].iter().flat_map(|n: &i32| n.to_le_bytes()).collect();
    for level in LEVELS {
        let run = Recorded::new("decisions", level, &[], &bytes, 2);
        // `out` is still what the inner call left: the `if` of the innermost call, which went the other way, is no part of it.
        let at = run.at("r3") + "#2";
        let slice = run.slice(&["--at", &at, "--var", "out"]);
        slice.check("r1, r2, r3, call down, read", "");
        assert_eq!((slice.instances("r1"), slice.instances("r3")), ((2, 3), (1, 1)), "{level}");
        run.done();
    }
}

#[test]
fn arguments_pass_through_the_dynamic_linker() {
    for level in LEVELS {
        let run = Recorded::new("late", level, &[], b"", 36);
        run.slice(&["--exit"]).check("side, square, if, least", "other");
        run.done();
    }
}

#[test]
fn a_smashed_return_address_leads_to_the_copy_that_wrote_it() {
    for level in LEVELS {
        for words in [&[][..], &["more"]] {
            let run = Recorded::new("smashed", level, words, b"", 139);
            run.slice(&["--crash"]).check("copy, fill, length, call", "unrelated");
            run.done();
        }
    }
}

#[test]
fn divisions_by_zero_and_jumps_to_nowhere_lead_to_their_operands() {
    let crashes = [
        ("divide", 136, "part, divide, which", "beside, aside, nothing, wild"),
        ("null", 139, "nothing, take, call, which", "beside, aside, part, wild"),
        ("wild", 139, "wild, take, call, which", "beside, aside, part, nothing"),
    ];
    for level in LEVELS {
        for (word, status, inside, outside) in crashes {
            let run = Recorded::new("crashes", level, &[word], b"", status);
            run.slice(&["--crash"]).check(inside, outside);
            run.done();
        }
    }
}

#[test]
fn a_double_free_leads_to_the_shallow_copy_in_two_steps() {
    for level in LEVELS {
        let run = Recorded::new("twice", level, &[], b"", 134);
        run.slice(&["--crash"]).check("second, shallow, text, duplicate", "");
        // Optimized, the caller loads the pointer and hands it on.
        if level == "-O0" {
            let at = run.at("free") + "#2";
            run.slice(&["--at", &at]).check("take, shallow, text, duplicate", "");
            assert_eq!(run.path(&["--at", &at], "shallow"), ["shallow", "take", "free"]);
        }
        run.done();
    }
}

#[test]
fn a_heap_overflow_is_one_step_from_the_allocators_crash() {
    // Optimized, the function that allocates jumps to `malloc`, which so seems to be called by its caller.
    for (level, allocates) in [("-O0", "crash"), ("-O2", "lookup")] {
        let run = Recorded::new("overflow", level, &[], b"", 134);
        run.slice(&["--crash"]).check("clear, loop, allocate", "").check(allocates, "");
        assert_eq!(run.path(&["--crash"], "clear"), ["clear", allocates], "{level}");
        run.done();
    }
}

#[test]
fn a_dangling_pointer_leads_to_the_number_that_was_written_there() {
    for level in LEVELS {
        let run = Recorded::new("dangling", level, &[], b"", 139);
        run.slice(&["--crash"]).check("crash, write, roll, glyph", "init");
        // Optimized, the caller loads the type and hands it on.
        if level == "-O0" {
            assert_eq!(run.path(&["--crash"], "write"), ["write", "load", "crash"]);
        }
        // From the number's cell on to who gave the memory back too early.
        let at = run.at("write");
        run.slice(&["--at", &at]).check("cell, reserve, reclaim", "");
        run.done();
    }
}

#[test]
fn a_null_pointer_leads_to_its_origin_in_two_steps() {
    for level in LEVELS {
        let run = Recorded::new("nothing", level, &[], b"", 139);
        run.slice(&["--crash"]).check("origin, if, crash, call", "");
        // Optimized, the variable in between is no more.
        let steps: &[&str] = if level == "-O0" { &["origin", "start", "crash"] } else { &["origin", "crash"] };
        assert_eq!(run.path(&["--crash"], "origin"), steps, "{level}");
        run.done();
    }
}

#[test]
fn an_output_byte_is_followed_through_the_stream_to_what_made_it() {
    // 7hpqxyend\nmn: where a byte of a stream lies depends on what was written before it, and on nothing behind it.
    let bytes = [
        ("0", "printf", "number", "putchar, fputs, fwrite, puts, flush, piece, text, letter, write"),
        ("1", "putchar", "letter, number", "fputs, fwrite, puts, flush, piece, text, write"),
        ("2", "fputs", "piece", "fwrite, puts, flush, text, letter, write"),
        ("5", "fwrite", "text", "puts, flush, letter, write"),
        ("7", "puts", "", "flush, text, letter, write"),
        ("10", "from pipe", "", "printf, putchar, fputs, fwrite, puts, piece, text, letter"),
        ("stderr:0", "stderr", "letter, number", "printf, fputs, fwrite, puts, write"),
    ];
    for level in LEVELS {
        let run = Recorded::new("written", level, &[], b"", 7);
        for (byte, nearest, inside, outside) in bytes {
            let slice = run.slice(&["--output", byte]);
            slice.check(inside, outside);
            assert_eq!(slice.nearest(), nearest, "{level} {byte}: {:?}", slice.marks());
        }
        run.slice(&["--exit"]).check("number", "printf, putchar, piece, text, letter");
        run.done();
    }
}

#[test]
fn a_forked_child_that_died_is_sliced_from_its_fork_on() {
    let run = Recorded::new("child", "-O0", &[], b"", 3);
    run.slice(&["--crash"]).check("decides, adds, dies", "counts, sends");
    run.done();
}

#[test]
fn a_handler_ran_because_of_the_call_that_sent_its_signal() {
    for level in LEVELS {
        let run = Recorded::new("child", level, &["signal"], b"", 10);
        run.slice(&["--exit"]).check("counts, sends", "adds");
        run.done();
    }
}

#[test]
fn lines_that_made_a_value_are_told_from_those_that_chose() {
    let run = Recorded::new("parts", "-O0", &["1", "1"], b"", 9);
    let slice = run.slice(&["--exit", "--parts"]);
    slice.check("reads a, reads b, makes c, chooses, sums, seven, makes z", "presets, might, otherwise");
    for (mark, part) in [("sums", "data"), ("seven", "data"), ("chooses", "select"), ("makes c", "select")] {
        assert_eq!(slice.lines[mark]["part"], part, "{mark}");
    }
    run.done();
}

#[test]
fn a_branch_that_might_have_changed_a_value_is_relevant() {
    let run = Recorded::new("parts", "-O0", &["1", "1"], b"", 9);
    run.slice(&["--exit"]).check("seven", "might");
    run.slice(&["--exit", "--relevant"]).check("seven, might, reads b", "otherwise");
    run.done();
}

#[test]
fn forward_slices_and_chops_hold_what_a_line_led_to() {
    let run = Recorded::new("parts", "-O0", &["1", "1"], b"", 9);
    run.slice(&["--forward", "--at", &run.at("makes c")])
        .check("makes c, chooses, sums, makes z, returns", "reads a, seven");
    run.slice(&["--exit", "--chop", &run.at("seven")]).check("seven, makes z", "reads a, chooses, sums");
    run.done();
}

#[test]
fn what_does_not_fit_the_run_is_refused() {
    let run = Recorded::new("parts", "-O0", &["1", "1"], b"", 9);
    for (options, said) in [
        (&["--crash"][..], "did not crash"),
        (&["--output", "0"], "nothing was written"),
        (&["--at", "parts.c:14#7"], "executed 1 times"),
        (&["--exit", "--at", "parts.c:14"], "cannot be used with"),
        (&["--exit", "--chop", "none.c:3"], "none.c:3"),
    ] {
        let mut command = run.place.clew(["slice"]);
        command.args(options).arg("latest");
        let output = finish(command, b"");
        assert_eq!(output.status.code(), Some(2), "{options:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(said), "{options:?}: {}", stderr(&output));
    }
    run.done();
}

/// Windows of a million instructions, of which the run has several: the lines and their executions are the same.
#[test]
fn a_run_longer_than_a_window_is_followed_through_all_of_them() {
    for level in LEVELS {
        let run = Recorded::new("long", level, &["3", "4"], b"", 0);
        let whole = run.slice(&["--output", "0"]);
        whole.check("first, fill, change, sum, print", "unused, wasted");
        let parts = run.slice(&["--output", "0", "--window", "1"]);
        assert_eq!(parts.marks(), whole.marks(), "{}", parts.words);
        for mark in whole.marks() {
            assert_eq!(parts.instances(mark), whole.instances(mark), "{} {mark}", parts.words);
        }
        run.done();
    }
}
