//! `clew reduce` makes failing inputs small, and isolates what makes the difference between passing and failing.

mod common;

use common::place::{Place, finish};
use common::processes::left;
use common::searching::{answer, compile_at, guest_source, line_with};
use common::{stderr, stdout};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A place with a compiled guest and an input.
struct Given {
    place: Place,
    program: PathBuf,
    input: PathBuf,
}

fn given(test: &str, guest: &str, input: &str) -> Given {
    let place = Place::new(test);
    let program = compile_at(guest, "-O0", &place.folder);
    let file = place.folder.join("input.txt");
    std::fs::write(&file, input).expect("the file can be written");
    Given { place, program, input: file }
}

impl Given {
    /// `clew reduce` with these options on the input file.
    fn reduce(&self, options: &[&str]) -> Output {
        let mut reduce = self.place.clew(["reduce"]);
        reduce.args(options).arg("--input").arg(&self.input).arg("--").arg(&self.program).arg("@@");
        finish(reduce, b"")
    }

    /// The answer of a search that finds something.
    #[track_caller]
    fn found(&self, options: &[&str]) -> Value {
        let output = self.reduce(&[&["--json"], options].concat());
        assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
        answer(&output)
    }

    fn natively(&self, program: &Path, input: &str) -> Output {
        let file = self.place.folder.join("native.txt");
        std::fs::write(&file, input).expect("the file can be written");
        Command::new(program).arg(file).output().expect("it runs")
    }

    fn done(self) {
        self.place.done();
    }
}

/// Many harmless lines around one that is not.
fn lines_around(line: &str) -> String {
    let harmless = |n: std::ops::Range<u32>| n.map(|n| format!("line {n} (fine)\n")).collect::<String>();
    harmless(0..30) + line + "\n" + &harmless(30..60)
}

#[test]
fn of_an_input_that_crashes_only_what_is_needed_is_left() {
    let text = lines_around("one ) too many");
    let given = given("reduce-crash", "reduce_groups", &text);
    let answer = given.found(&[]);
    assert_eq!((&answer["clew"], &answer["verb"], &answer["method"]), (&1.into(), &"reduce".into(), &"ddmin".into()));
    assert_eq!(answer["failing"]["text"], ")", "{answer:#}");
    assert!(answer["failure"].as_str().is_some_and(|f| f.contains("SIGSEGV in close_group")), "{answer:#}");
    assert_eq!(answer["limits"], Value::Array(Vec::new()), "{answer:#}");
    assert_eq!(std::fs::read_to_string(&given.input).expect("it is there"), text, "the input stays as it was");
    given.done();
}

#[test]
fn a_crash_in_another_place_is_another_failure() {
    // Each of them alone makes it die, in its own way; the first one that is met counts.
    for (test, text, expected) in [("closes", "(a)\n)b\n#c\n", ")"), ("gives-up", "(a)\n#b\n)c\n", "#")] {
        let given = given(&format!("reduce-{test}"), "reduce_groups", text);
        let answer = given.found(&[]);
        assert_eq!(answer["failing"]["text"], expected, "{answer:#}");
        assert!(answer["runs"]["unresolved"].as_u64() > Some(0), "{answer:#}");
        given.done();
    }
}

#[test]
fn standard_input_is_given_as_a_file_or_through_a_pipe() {
    let text = lines_around("one ) too many");
    let given = given("reduce-stdin", "reduce_groups", &text);
    let command = || {
        let mut reduce = given.place.clew(["reduce", "--json", "--input", "stdin", "--"]);
        reduce.arg(&given.program);
        reduce
    };
    let mut from_file = command();
    from_file.stdin(std::fs::File::open(&given.input).expect("it is there"));
    for output in [finish(from_file, b""), finish(command(), text.as_bytes())] {
        assert_eq!(answer(&output)["failing"]["text"], ")", "{}{}", stdout(&output), stderr(&output));
    }
    given.done();
}

#[test]
fn the_answer_does_not_depend_on_how_many_runs_there_are_at_a_time() {
    let given = given("reduce-jobs", "reduce_groups", &lines_around("one )) too many"));
    let [one, five] = ["1", "5"].map(|jobs| given.found(&["--isolate", "--jobs", jobs]));
    assert_eq!((&one["failing"], &one["passing"]), (&five["failing"], &five["passing"]));
    given.done();
}

#[test]
fn a_pair_that_differs_in_one_byte_is_isolated() {
    let text = lines_around("one ) too many");
    let given = given("reduce-isolate", "reduce_groups", &text);
    let out = given.place.folder.join("out");
    let answer = given.found(&["--isolate", "--output", out.to_str().expect("a name")]);
    let at = text.find("one )").expect("it is there") + 4;
    assert_eq!(answer["origins"], serde_json::json!([at]), "{answer:#}");
    assert_eq!(answer["option"], format!("--input-bytes {}:{at}", given.input.display()));
    let [failing, passing] = ["out", "out.pass"].map(|n| std::fs::read_to_string(out.with_file_name(n)).expect("text"));
    assert_eq!(
        (&answer["failing"]["text"], &answer["passing"]["text"]),
        (&failing.clone().into(), &passing.clone().into())
    );
    assert_eq!(failing.len(), passing.len() + 1, "{answer:#}");
    assert_eq!(given.natively(&given.program, &failing).status.code(), None);
    assert_eq!(given.natively(&given.program, &passing).status.code(), Some(0));
    given.done();
}

#[test]
fn a_passing_input_of_the_user_is_where_it_begins() {
    let given = given("reduce-good", "reduce_groups", "(a)\n(b))\n(d)\n");
    let good = given.place.folder.join("good");
    std::fs::write(&good, "(a)\n(c)\n(d)\n").expect("the file can be written");
    let good = good.to_str().expect("a name");
    let answer = given.found(&["--isolate", "--good", good]);
    let [has, lacks] = ["failing", "passing"].map(|side| &answer["difference"][0][side]["text"]);
    assert_eq!((has, lacks), (&")".into(), &"".into()), "{answer:#}");
    std::fs::write(good, ")").expect("the file can be written");
    let refused = given.reduce(&["--isolate", "--good", good]);
    assert!(stderr(&refused).contains("fails in the same way"), "{}", stderr(&refused));
    given.done();
}

#[test]
fn people_are_told_what_differs() {
    let given = given("reduce-text", "reduce_groups", &lines_around("one ) too many"));
    let output = given.reduce(&["--isolate"]);
    let text = stdout(&output);
    for part in ["they differ in 1 byte:", "')', which the passing one has not", "--input-bytes", " runs ("] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let output = given.reduce(&[]);
    let text = stdout(&output);
    assert!(text.contains("The smallest input found that fails so has 1 byte of"), "{text}");
    given.done();
}

#[test]
fn wrong_output_is_judged_by_a_reference() {
    let given = given("reduce-ref", "reduce_sum", "12 7\n30 5 1234 8\n99 1\n");
    let fixed = given.place.folder.join("fixed");
    let mut cc = Command::new("cc");
    cc.args(["-DFIXED", "-w", "-o"]).arg(&fixed).arg(guest_source("reduce_sum"));
    assert!(cc.status().expect("cc runs").success());
    let answer = given.found(&["--ref", fixed.to_str().expect("a name")]);
    let failing = answer["failing"]["text"].as_str().expect("text");
    assert_eq!(failing.len(), 3, "{answer:#}");
    assert_ne!(given.natively(&given.program, failing).stdout, given.natively(&fixed, failing).stdout);
    given.done();
}

#[test]
fn a_script_may_look_at_the_input() {
    let given = given("reduce-check", "reduce_sum", "12 7\n30 5 1234 8\n99 1\n");
    let script = r#"test "$(cat)" = "$(tr -cs 0-9 '\n' < "$CLEW_INPUT" | awk '{ s += $1 } END { print s + 0 }')""#;
    let answer = given.found(&["--check", script]);
    assert_eq!(answer["failing"]["text"].as_str().map(str::len), Some(3), "{answer:#}");
    given.done();
}

/// What is left of a program for an installed interpreter that complains; the complaint must still be made by it.
#[track_caller]
fn check_message(test: &str, command: &[&str], script: &str, message: &str, most: usize) {
    let place = Place::new(test);
    let file = place.folder.join("script");
    std::fs::write(&file, script).expect("the file can be written");
    let mut reduce = place.clew(["reduce", "--json", "--message", message, "--budget", "80s", "--input"]);
    reduce.arg(&file).arg("--").args(command);
    let output = finish(reduce, b"");
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let answer = answer(&output);
    let small = answer["failing"]["text"].as_str().expect("text").to_owned();
    assert!(small.len() <= most, "{answer:#}");
    std::fs::write(&file, &small).expect("the file can be written");
    let words: Vec<&str> =
        command.iter().map(|w| if *w == "@@" { file.to_str().expect("a name") } else { w }).collect();
    let native = Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).output().expect("it runs");
    assert!(stderr(&native).contains(message), "{small:?}: {}", stderr(&native));
    place.done();
}

#[test]
fn programs_of_the_system_are_given_small_inputs_with_the_same_complaint() {
    let program = "define f(x) {\n  auto y\n  y = x * 2\n  return (y)\n}\na = f(3)\nb = a - 6\na / b\nf(7)\n";
    check_message("reduce-bc", &["bc", "-q", "@@"], program, "Divide by zero", 6);
    check_message("reduce-sed", &["sed", "-n", "-f", "@@"], "s/a/b/\n/x/p\ny/abc/de/\nd\n", "different lengths", 6);
}

#[test]
fn an_input_that_makes_it_hang_is_made_smaller() {
    let given = given("reduce-hang", "reduce_waits", "ab\n");
    let pipe = given.place.folder.join("none");
    let mut reduce = given.place.clew(["reduce", "--json", "--timeout", "2s", "--input"]);
    reduce.arg(&given.input).arg("--").arg(&given.program).arg("@@").arg(pipe);
    let output = finish(reduce, b"");
    let answer = answer(&output);
    assert_eq!((&answer["failure"], &answer["failing"]["text"]), (&"it does not end".into(), &"".into()), "{answer:#}");
    given.done();
}

#[test]
fn a_search_without_time_tells_what_it_has() {
    let given = given("reduce-no-time", "reduce_groups", "(a)\n)\n");
    let output = given.reduce(&["--json", "--budget", "0s"]);
    let answer = answer(&output);
    assert_eq!((output.status.code(), &answer["failing"]["text"]), (Some(1), &"(a)\n)\n".into()), "{answer:#}");
    assert!(answer["limits"][0].as_str().is_some_and(|l| l.starts_with("the time ran out")), "{answer:#}");
    given.done();
}

#[test]
fn an_interrupted_search_tells_what_it_has_and_leaves_nothing_behind() {
    let given = given("reduce-interrupted", "reduce_waits", "ab!cd\n");
    let pipe = given.place.folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs").success());
    let scratch = given.place.folder.join("tmp");
    std::fs::create_dir(&scratch).expect("it can be made");
    let mut reduce = given.place.clew(["reduce", "--json", "--timeout", "90s", "--input"]);
    reduce.arg(&given.input).arg("--").arg(&given.program).arg("@@").arg(&pipe);
    let child =
        reduce.env("TMPDIR", &scratch).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    // Whoever opens the pipe is a run of the program that waits now.
    let mut told = [0; 1];
    std::io::Read::read_exact(&mut std::fs::File::open(&pipe).expect("it is there"), &mut told).expect("it is told");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is there");
    let output = child.wait_with_output().expect("it ends");
    let answer = answer(&output);
    assert_eq!(output.status.code(), Some(1), "{answer:#}");
    assert_eq!(answer["failing"]["text"], "ab!cd\n", "{answer:#}");
    assert!(answer["limits"][0].as_str().is_some_and(|l| l.starts_with("interrupted")), "{answer:#}");
    assert_eq!(left("reduce-interrupted"), Vec::<String>::new());
    assert_eq!(std::fs::read_dir(&scratch).expect("it is there").count(), 0, "no copy is left");
    given.done();
}

/// Refused with a sentence that has this in it.
#[track_caller]
fn check_refused(given: &Given, options: &[&str], command: &[&str], sentence: &str) {
    let mut reduce = given.place.clew(["reduce"]);
    reduce.args(options).arg("--").args(command).current_dir(&given.place.folder);
    let output = finish(reduce, b"");
    assert_eq!(output.status.code(), Some(2), "{options:?}: {}{}", stdout(&output), stderr(&output));
    assert!(stderr(&output).contains(sentence), "{options:?}: {}", stderr(&output));
}

#[test]
fn what_cannot_be_done_is_said_in_one_sentence() {
    let given = given("reduce-refused", "reduce_groups", "a)\n");
    let program = given.program.to_str().expect("a name");
    let on_file = [program, "@@"];
    check_refused(&given, &["--input", "input.txt", "--expect", "input.txt"], &on_file, "holds for one input only");
    check_refused(&given, &["--input", "input.txt", "--method", "ria"], &on_file, "not there yet");
    check_refused(&given, &["--input", "input.txt"], &[program, "other"], "write @@");
    check_refused(&given, &["--input", "missing"], &on_file, "cannot be read");
    check_refused(&given, &["--input", "stdin"], &on_file, "the input is standard input");
    check_refused(&given, &["--input", "stdin"], &[program], "no file and no pipe");
    check_refused(&given, &["--input", "input.txt"], &["cat", "@@"], "the program passes with this input");
    check_refused(&given, &["--input", "input.txt", "-o", "input.txt"], &on_file, "never changed");
    let other = |name: &str| given.place.folder.join(name);
    std::fs::hard_link(&given.input, other("hard.txt")).expect("a link can be made");
    check_refused(&given, &["--input", "input.txt", "-o", "hard.txt"], &on_file, "never changed");
    std::fs::write(other("two.pass"), "a\n").expect("the file can be written");
    let good = ["--input", "input.txt", "--isolate", "--good", "two.pass", "-o", "two"];
    check_refused(&given, &good, &on_file, "never changed");
    check_refused(&given, &["--input", "input.txt", "-o", "no/out"], &on_file, "there is no folder");
    check_refused(&given, &["--input", "input.txt", "--check", "/no/script"], &on_file, "judges nothing");
    check_refused(&given, &["--input", "input.txt", "--ref", "/no/program"], &on_file, "/no/program");
    given.done();
}

#[test]
fn only_the_bytes_that_make_the_difference_are_followed_forward() {
    let given = given("reduce-prior", "reduce_prior", "4 7\n");
    let isolated = given.found(&["--isolate", "--check", "grep -v -q 2"]);
    assert_eq!(isolated["origins"], serde_json::json!([2]), "{isolated:#}");
    let expected = given.place.folder.join("expected");
    std::fs::write(&expected, "41\n").expect("the file can be written");
    let lines = |bytes: Option<&str>| {
        let mut switch = given.place.clew(["switch", "--json", "--lines", "--order", "prior", "--budget", "90s"]);
        switch.arg("--expect").arg(&expected);
        if let Some(bytes) = bytes {
            switch.arg("--input-bytes").arg(format!("{}:{bytes}", given.input.display()));
        }
        switch.arg("--").arg(&given.program).arg(&given.input);
        let answer = answer(&finish(switch, b""));
        let list = answer["lines"]["from_input"].as_array().unwrap_or_else(|| panic!("{answer:#}")).clone();
        let lines: Vec<u64> = list.iter().filter_map(|l| l["line"].as_u64()).collect();
        (lines, answer)
    };
    let at = |mark: &str| line_with("reduce_prior", mark);
    let (all, _) = lines(None);
    assert!(all.contains(&at("/* other")) && all.contains(&at("/* elsewhere")), "{all:?}");
    let (some, answer) = lines(Some("2"));
    assert!(some.contains(&at("/* critical")) && some.contains(&at("/* difference")), "{some:?} {answer:#}");
    assert!(!some.contains(&at("/* other")) && !some.contains(&at("/* elsewhere")), "{some:?} {answer:#}");
    assert_eq!(answer["candidates"][0]["line"], at("/* critical"), "{answer:#}");
    let mut why = given.place.clew(["why", "--json", "--budget", "90s", "--check", "grep -v -q 2", "--isolate"]);
    why.arg(&given.input).arg("--").arg(&given.program).arg("@@");
    let output = finish(why, b"");
    let found = common::searching::answer(&output);
    assert_eq!(found["candidates"][0]["line"], at("/* critical"), "{found:#}");
    let counts = format!("of all input only {}:2 counts", given.input.display());
    assert!(found["limits"].as_array().is_some_and(|all| all.contains(&counts.clone().into())), "{counts}: {found:#}");
    let (_, answer) = lines(Some("100"));
    let limits = answer["limits"].as_array().expect("a list");
    assert!(limits.iter().any(|l| l.as_str().is_some_and(|l| l.contains("were not read"))), "{answer:#}");
    given.done();
}

#[test]
fn an_empty_input_is_said_to_be_empty() {
    let place = Place::new("reduce-empty");
    let file = place.folder.join("empty");
    std::fs::write(&file, "").expect("the file can be written");
    let file = file.to_string_lossy();
    let output = place.run(["reduce", "--expect-exit", "0", "--input", &*file, "--", "grep", "-q", "x", "@@"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stdout(&output).contains("The input is empty: nothing can be left out of it."), "{}", stdout(&output));
    place.done();
}
