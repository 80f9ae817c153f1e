//! `clew why` names the causes of failures of all kinds, and answers bad usage in one sentence.
//!
//! What is expected stands in the guests: a line marked `cause N` must be among the first N causes, one marked
//! `cause N proved` must be proved as well. Markers bound the rank from above; a better one is no failure.

mod common;

use common::place::{Place, finish};
use common::processes::{left, processes_with};
use common::{stderr, stdout};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// What a search may take here; what comes before and behind it is bounded by the patience of the test.
const BUDGET: &str = "20s";

fn guests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/why")
}

/// Compiles a guest (`name.c`, `name.cc` or `name.rs`) into the folder.
fn compile(source: &str, more: &[&str], folder: &Path) -> PathBuf {
    let (stem, kind) = source.rsplit_once('.').expect("it has an ending");
    let compiler = match kind {
        "c" => "cc",
        "cc" => "g++",
        _ => "rustc",
    };
    let program = folder.join(stem);
    let mut command = Command::new(compiler);
    // From its folder, so that debug information names the source as people do.
    command.current_dir(guests()).args(["-g", source, "-o"]).arg(&program).args(more);
    assert!(command.status().expect("the compiler runs").success(), "{source} compiles");
    program
}

/// One line that must be named.
#[derive(Debug)]
struct Mark {
    line: u64,
    within: usize,
    proved: bool,
}

fn marks(source: &str) -> Vec<Mark> {
    let text = std::fs::read_to_string(guests().join(source)).expect("the source is there");
    let mark = |(n, line): (usize, &str)| {
        let (_, text) = line.split_once("/* cause ").or_else(|| line.split_once("// cause "))?;
        let number = text.split(|c: char| !c.is_ascii_digit()).next()?;
        let within: usize = number.parse().expect("a number follows");
        Some(Mark { line: n as u64 + 1, within, proved: text[number.len()..].starts_with(" proved") })
    };
    text.lines().enumerate().filter_map(mark).collect()
}

fn answer(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}{}", stdout(output), stderr(output)))
}

/// The causes of an answer are as the source of a guest says.
#[track_caller]
fn check_marks(source: &str, answer: &Value) {
    let marks = marks(source);
    assert!(!marks.is_empty(), "{source} says what is expected");
    let causes = answer["candidates"].as_array().expect("a list");
    assert!(causes.len() <= 5, "at most five are named");
    for mark in marks {
        let named = |c: &&Value| c["line"] == mark.line && c["file"].as_str().is_some_and(|f| f.ends_with(source));
        let found = causes.iter().take(mark.within).find(named);
        let found = found.unwrap_or_else(|| panic!("{source}: no {mark:?} in {causes:#?}"));
        if mark.proved {
            assert_eq!(found["status"], "proved", "{source}: {mark:?}: {found:#}");
            assert_eq!(found["trial"]["verdict"], "fixed");
        }
    }
    for cause in causes.iter().filter(|c| c["status"] == "proved") {
        assert_eq!(cause["trial"]["verdict"], "fixed", "{source}: {cause:#}");
        assert_eq!(cause["doubt"], Value::Null, "{source}: {cause:#}");
    }
    assert!(answer["tried"]["controls"].as_u64() >= Some(1), "{source}: {answer:#}");
}

/// A failing command, and where to put its expected output.
struct Failing<'a> {
    place: &'a Place,
    options: &'a [&'a str],
    expected: Option<&'a str>,
}

impl Failing<'_> {
    fn why(&self, command: &[&str]) -> Output {
        let mut why = self.place.clew(["why", "--budget", BUDGET, "--json"]);
        why.args(self.options).current_dir(&self.place.folder).env("RUST_BACKTRACE", "0");
        if let Some(text) = self.expected {
            std::fs::write(self.place.folder.join("expected"), text).expect("the file can be written");
            why.args(["--expect", "expected"]);
        }
        why.arg("--").args(command);
        finish(why, b"")
    }

    #[track_caller]
    fn answer(&self, command: &[&str]) -> Value {
        let output = self.why(command);
        assert_eq!(output.status.code(), Some(0), "{command:?}: {}{}", stdout(&output), stderr(&output));
        answer(&output)
    }
}

/// The marked lines of a guest are named, with these options, arguments and expected output.
#[track_caller]
fn check_why(source: &str, options: &[&str], arguments: &[&str], expected: Option<&str>) -> Value {
    let place = Place::new(&format!("why-{source}-{}", options.len()));
    compile(source, &[], &place.folder);
    let (stem, _) = source.rsplit_once('.').expect("it has an ending");
    let program = format!("./{stem}");
    let command: Vec<&str> = [program.as_str()].into_iter().chain(arguments.iter().copied()).collect();
    let answer = Failing { place: &place, options, expected }.answer(&command);
    check_marks(source, &answer);
    place.done();
    answer
}

#[test]
fn a_stale_value_shows_at_the_one_execution_that_tests_it() {
    let answer = check_why("stale.c", &[], &[], Some("1 0 0 0 1 \n"));
    let first = &answer["candidates"][0];
    assert_eq!((&first["instance"], &first["of"]), (&2.into(), &5.into()), "{first:#}");
}

#[test]
fn an_early_mistake_is_found_whatever_is_written_later() {
    let line = |i: u32| format!("{i} {}\n", if i.is_multiple_of(2) { "even" } else { "odd" });
    let expected: String = (0..300_000).map(line).collect();
    check_why("early.c", &[], &[], Some(&expected));
}

#[test]
fn causes_in_the_interpreter_of_a_script_are_told_as_such() {
    let place = Place::new("why-script-itself");
    let script = place.folder.join("sum.sh");
    std::fs::write(&script, "#!/bin/sh\nn=1\nfor i in 1 2 3; do n=$((n+i)); done\necho $n\n")
        .expect("it can be written");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("it can be made a program");
    let failing = Failing { place: &place, options: &[], expected: Some("6\n") };
    let output = failing.why(&["./sum.sh"]);
    let limits = answer(&output)["limits"].to_string();
    assert!(limits.contains("./sum.sh is a script: causes are in /"), "{limits}");
    place.done();
}

#[test]
fn a_value_that_several_predicates_test_is_replaced() {
    let answer = check_why("parts.c", &[], &[], Some("11 3\n"));
    assert!(["value", "suppression"].map(Value::from).contains(&answer["candidates"][0]["kind"]), "{answer:#}");
}

#[test]
fn a_branch_behind_a_pointer_that_must_always_go_one_way_is_found() {
    let answer = check_why("groups.c", &[], &["4", "12", "7"], Some("group 0: 8\ngroup 1: 7\n"));
    assert_eq!(answer["candidates"][0]["kind"], "forced-predicate", "{answer:#}");
}

#[test]
fn lines_that_are_right_speak_for_what_they_have_in_common_with_the_wrong_one() {
    check_why("vouched.c", &[], &["6"], Some("h\nn\n"));
}

#[test]
fn a_wrong_number_is_traced_to_where_it_comes_from() {
    let answer = check_why("tax.c", &[], &[], Some("tax 57\n"));
    let explanation = answer["candidates"][0]["explanation"].as_str().expect("a sentence");
    assert!(explanation.contains("stores 57 instead of 51"), "{explanation}");
}

#[test]
fn a_number_that_is_cut_is_traced_to_where_it_was_whole() {
    let first = |answer: Value| answer["candidates"][0]["explanation"].as_str().expect("a sentence").to_owned();
    let kept = first(check_why("narrow.c", &[], &[], Some("5 parts\ntotal 5000000000\n")));
    assert!(kept.starts_with("line 19 keeps 4 bytes of 5000000000: if narrow.c:13 stores all of it"), "{kept}");
    let handed = first(check_why("handed.c", &[], &[], Some("[7]\n[847288609443]\n")));
    let words = "line 34 hands over 847288609443, of which handed.c:16 takes 4 bytes: if that stores all of it";
    assert!(handed.starts_with(words), "{handed}");
}

#[test]
fn few_branches_are_all_tried_whatever_values_repair_the_run() {
    let answer = check_why("one_more.c", &[], &[], Some("sum 15\n"));
    let causes = answer["candidates"].as_array().expect("a list");
    let branch = causes.iter().find(|c| c["kind"] == "critical-predicate").expect("the loop's condition");
    assert_eq!((&branch["line"], &branch["instance"]), (&7.into(), &5.into()), "{branch:#}");
}

#[test]
fn the_smaller_of_two_changes_comes_first() {
    let answer = check_why("no_lines.c", &[], &[], Some("29\n0\n"));
    let [first, second] = [0, 1].map(|n| &answer["candidates"][n]);
    assert_eq!(first["kind"], "suppression", "{first:#}");
    let sentence = first["explanation"].as_str().expect("a sentence");
    assert!(sentence.starts_with("with line 21 left out on its 2nd execution"), "{sentence}");
    assert_eq!((&second["kind"], &second["line"]), (&"critical-predicate".into(), &18.into()), "{second:#}");
}

#[test]
fn the_same_mistake_made_twice_is_traced_where_it_is_made_first() {
    let answer = check_why("offsets.c", &[], &["\u{e9}a\u{e9}a"], Some("1\n3\n"));
    let first = &answer["candidates"][0];
    assert_eq!(
        (&first["status"], &first["trial"]["verdict"]),
        (&"suspected".into(), &"other failure".into()),
        "{first:#}"
    );
    let doubt = first["doubt"].as_str().expect("a reason");
    assert!(doubt.contains("goes wrong later: byte 2 of standard output is '5' instead of '3'"), "{doubt}");
}

#[test]
fn a_stack_that_is_used_up_is_searched_in_time() {
    let answer = check_why("deep.c", &[], &[], Some("0\n"));
    let seconds = answer["time"]["seconds"].as_f64().expect("a time");
    assert!(seconds < 90.0, "a budget of {BUDGET} took {seconds} s");
    let failure = answer["failure"].as_str().expect("what is wrong");
    assert!(failure.ends_with(": its stack is used up, depth is under way again and again"), "{failure}");
}

#[test]
fn what_fails_only_under_some_schedules_is_run_until_it_does() {
    let place = Place::new("why-lost");
    compile("lost.c", &[], &place.folder);
    std::fs::write(place.folder.join("expected"), "all\n").expect("the file can be written");
    let mut why = place.clew(["why", "--budget", BUDGET, "--json", "--expect", "expected", "--", "./lost"]);
    // A pipe could be read once only.
    let output = why.current_dir(&place.folder).stdin(Stdio::null()).output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let answer = answer(&output);
    let limits = answer["limits"].to_string();
    assert!(limits.contains("failed under another schedule"), "{limits}");
    let kept = place.clew(["ls", "--json"]).output().expect("it runs");
    let kept: Value = serde_json::from_slice(&kept.stdout).expect("JSON");
    assert_eq!(kept["recordings"].as_array().map(Vec::len), Some(1), "those that passed are gone: {kept:#}");
    place.done();
}

#[test]
fn two_predicates_lead_to_an_early_return() {
    check_why("words.c", &[], &[], Some("a cat\nscatter cat\n"));
}

#[test]
fn what_happens_in_one_arm_only_is_found() {
    check_why("backslash.c", &[], &[], Some("c:x|c\n"));
    let definitions = "#define BUFFER 512\nint line_number = 1;\nint main(void);\n";
    check_why("definition.c", &[], &["-l"], Some(definitions));
}

#[test]
fn an_endless_loop_is_traced_to_what_made_it_endless() {
    check_why("endless.c", &["--timeout", "1s"], &[], Some("12\n"));
}

#[test]
fn a_program_that_waits_for_ever_is_traced_to_what_made_it_wait() {
    let answer = check_why("waits.c", &["--timeout", "1s"], &[], Some("ready\ndone\n"));
    assert_eq!(
        answer["failure"],
        format!("it does not end: it waits in pause at waits.c:{}", 1 + marks("waits.c")[0].line)
    );
}

#[test]
fn what_hangs_in_a_step_is_searched_itself_and_ended_with_its_script() {
    let place = Place::new("why-step-hangs");
    let program = compile("endless.c", &[], &place.folder);
    std::fs::write(place.folder.join("steps.sh"), "./endless\necho end\n").expect("the file can be written");
    let failing = Failing { place: &place, options: &["--timeout", "1s"], expected: Some("12\nend\n") };
    let answer = failing.answer(&["sh", "steps.sh"]);
    let failure = answer["failure"].as_str().expect("a clause");
    assert!(failure.starts_with("it does not end, in endless (process "), "{failure}");
    assert!(failure.contains("): it goes round and round at endless.c:"), "{failure}");
    assert_eq!(left(&program.to_string_lossy()), Vec::<String>::new(), "nothing goes on");
    place.done();
}

#[test]
fn a_loop_that_is_left_early_is_not_repaired() {
    let place = Place::new("why-endless");
    compile("endless.c", &[], &place.folder);
    let failing = Failing { place: &place, options: &["--timeout", "1s"], expected: None };
    let answer = failing.answer(&["./endless"]);
    let line = marks("endless.c")[0].line;
    let causes = answer["candidates"].as_array().expect("a list");
    assert!(causes.iter().any(|c| c["line"] == line), "{answer:#}");
    let by_leaving = |c: &&Value| c["status"] == "proved" && c["line"] != line;
    assert_eq!(causes.iter().find(by_leaving), None, "nothing says that leaving the loop is right");
    place.done();
}

#[test]
fn a_crash_that_is_only_avoided_is_not_called_proved() {
    let answer = check_why("avoided.c", &[], &[], None);
    let causes = answer["candidates"].as_array().expect("a list");
    assert!(causes.iter().all(|c| c["status"] == "suspected"), "{answer:#}");
    assert!(answer["tried"]["avoided"].as_u64() >= Some(1), "{answer:#}");
}

#[test]
fn wrong_and_extra_output_and_a_wrong_exit_status_are_traced() {
    check_why("extra.c", &[], &[], Some("4,5,6"));
    check_why("status.c", &["--expect-exit", "0"], &[], None);
}

#[test]
fn a_crash_and_a_failing_assertion_are_traced() {
    let answer = check_why("null.c", &[], &[], None);
    assert!(!answer["failure"].as_str().expect("what is wrong").contains("stack is used up"), "{answer}");
    assert!(answer["failure"].as_str().is_some_and(|f| f.contains("SIGSEGV at null.c:")), "{}", answer["failure"]);
    check_why("insist.c", &[], &[], None);
    check_why("listed.c", &[], &[], None);
}

#[test]
fn an_exception_that_is_caught_is_traced_to_what_led_to_it() {
    check_why("caught.cc", &[], &["7", "neg"], Some("-7\n"));
    check_why("caught.cc", &["--expect-exit", "0"], &["7", "neg"], None);
}

#[test]
fn an_exception_that_nobody_catches_is_traced_to_who_threw_it() {
    check_why("thrown.cc", &[], &[], None);
    let answer = check_why("thrown.cc", &["--no-crash"], &[], Some("18\n"));
    assert_eq!(answer["candidates"][0]["status"], "proved", "{answer:#}");
}

#[test]
fn what_a_library_of_templates_decides_is_told_where_the_program_calls_it() {
    let answer = check_why("keys.cc", &[], &[], Some("80\n21\n"));
    for cause in answer["candidates"].as_array().expect("a list") {
        let file = cause["file"].as_str().expect("lines are known");
        assert_eq!(file, "keys.cc", "{cause:#}");
    }
}

#[test]
fn a_panic_that_prints_its_stack_is_traced_into_the_program_itself() {
    let place = Place::new("why-backtrace");
    compile("panics.rs", &[], &place.folder);
    std::fs::write(place.folder.join("expected"), "be\nnot\n").expect("the file can be written");
    for oracle in [["--expect-exit", "0"], ["--expect", "expected"]] {
        let mut why = place.clew(["why", "--budget", "40s", "--json"]);
        // The printer executes a hundred times as many branches as the program.
        why.args(oracle).args(["--", "./panics"]).current_dir(&place.folder).env("RUST_BACKTRACE", "1");
        check_marks("panics.rs", &answer(&finish(why, b"")));
    }
    place.done();
}

#[test]
fn a_panic_of_rust_is_traced_into_the_program_itself() {
    let answer = check_why("panics.rs", &["--expect-exit", "0"], &[], None);
    assert_eq!(answer["candidates"][0]["file"], "panics.rs", "own code comes before that of the compiler");
}

#[test]
fn a_crash_in_a_library_that_python_loads_is_traced_there() {
    let place = Place::new("why-python");
    let library = compile("extension.c", &["-shared", "-fPIC"], &place.folder);
    let script = "import ctypes, sys\nadd = ctypes.CDLL(sys.argv[1]).add\nadd(1, 5)\nadd(7, 5)\n";
    std::fs::write(place.folder.join("calls.py"), script).expect("the file can be written");
    let library = library.to_string_lossy();
    // It has nothing to prove what is right; the time is for the lines that are suspected.
    let failing = Failing { place: &place, options: &[], expected: None };
    let answer = failing.answer(&["/usr/bin/python3", "calls.py", &library]);
    check_marks("extension.c", &answer);
    place.done();
}

#[test]
fn one_of_four_threads_fails() {
    check_why("four.c", &[], &[], None);
}

#[test]
fn a_failing_step_of_make_or_of_a_script_is_searched_itself() {
    let place = Place::new("why-steps");
    for source in ["null.c", "extra.c", "status.c"] {
        compile(source, &[], &place.folder);
    }
    let makefile = "crash:\n\t@./null\nwrong:\n\t@./extra\nfails:\n\t@./status\n";
    std::fs::write(place.folder.join("Makefile"), makefile).expect("the file can be written");
    let script = "echo begin\n./null\necho end\n";
    std::fs::write(place.folder.join("steps.sh"), script).expect("the file can be written");
    std::fs::write(place.folder.join("strict.sh"), "set -e\n./status\necho end\n").expect("the file can be written");
    let crash = Failing { place: &place, options: &[], expected: None };
    let wrong = Failing { place: &place, options: &[], expected: Some("4,5,6") };
    let fails = Failing { place: &place, options: &["--expect-exit", "0"], expected: None };
    check_marks("null.c", &crash.answer(&["make", "crash"]));
    check_marks("extra.c", &wrong.answer(&["make", "wrong"]));
    check_marks("status.c", &fails.answer(&["make", "fails"]));
    check_marks("null.c", &crash.answer(&["sh", "steps.sh"]));
    let answer = fails.answer(&["sh", "strict.sh"]);
    check_marks("status.c", &answer);
    assert!(answer["limits"].to_string().contains("is searched"), "it says which process: {}", answer["limits"]);
    let failure = answer["failure"].as_str().expect("a clause");
    assert!(failure.contains(", in status (process "), "{failure}");
    place.done();
}

/// A step of this script is searched, and nothing is called proved: what the script would do then is not known.
#[track_caller]
fn check_step(place: &Place, script: &str, failing: &Failing<'_>) {
    std::fs::write(place.folder.join("script"), script).expect("the file can be written");
    let answer = failing.answer(&["bash", "script"]);
    let failure = answer["failure"].as_str().expect("a clause");
    assert!(failure.contains(", in status (process "), "{script}: {failure}");
    assert!(answer["limits"].to_string().contains("is judged by its exit status alone"), "{script}: {answer:#}");
    let causes = answer["candidates"].as_array().expect("a list");
    assert!(causes.iter().all(|c| c["status"] == "suspected"), "{script}: {causes:#?}");
    let line = marks("status.c")[0].line;
    assert!(causes.iter().any(|c| c["line"] == line), "{script}: {causes:#?}");
}

#[test]
fn a_step_that_failed_is_searched_whatever_its_script_made_of_that() {
    let place = Place::new("why-scripts");
    compile("status.c", &[], &place.folder);
    let fails = Failing { place: &place, options: &["--expect-exit", "0"], expected: None };
    let stops = Failing { place: &place, options: &[], expected: Some("end\n") };
    check_step(&place, "./status || exit 44\n", &fails);
    check_step(&place, "set -e\n./status\necho end\n", &stops);
    check_step(&place, "text=$(./status) && echo end\n", &stops);
    check_step(&place, "set -o pipefail\n./status | cat && echo end\n", &stops);
    place.done();
}

#[track_caller]
fn check_refused(place: &Place, words: &[&str], sentence: &str) {
    let mut why = place.clew(["why"]);
    why.args(words).current_dir(&place.folder);
    let output = finish(why, b"");
    assert_eq!(output.status.code(), Some(2), "{words:?}: {}{}", stdout(&output), stderr(&output));
    let said = stderr(&output);
    assert!(said.contains(sentence), "{words:?}: {said}");
    assert!(!said.contains("panicked"), "{words:?}: {said}");
    assert_eq!(stdout(&output), "");
}

#[test]
fn bad_usage_is_answered_in_one_sentence_that_says_what_to_do() {
    let place = Place::new("why-refused");
    let dies = place.folder.join("dies");
    std::fs::write(&dies, "#!/bin/sh\nkill -6 $$\n").expect("the file can be written");
    std::fs::set_permissions(&dies, PermissionsExt::from_mode(0o755)).expect("it is ours");
    check_refused(&place, &["--", "true"], "say what it should have done, for example with --expect FILE");
    check_refused(&place, &["--expect-exit", "1", "--", "false"], "if it fails only sometimes");
    check_refused(&place, &["--expect", "no-such-file", "--", "true"], "no-such-file cannot be read");
    check_refused(&place, &["--check", "./no-such-script", "--", "true"], "the script of --check judges nothing");
    check_refused(&place, &["--", "./no-such-program"], "no such file");
    check_refused(&place, &["no-such-recording"], "no-such-recording");
    check_refused(&place, &["--budget", "soon", "--", "true"], "60s");
    check_refused(&place, &["--top", "0", "--", "true"], "write a number from 1 on");
    check_refused(&place, &["--jobs", "0", "--", "true"], "write a number from 1 on");
    check_refused(
        &place,
        &["--ref", "./dies", "--", "true"],
        "./dies dies of signal 6, so nothing is known to be right",
    );
    std::fs::write(place.folder.join("right"), "").expect("the file can be written");
    check_refused(&place, &["--expect", "right", "--html", "./right", "--", "false"], "is never changed");
    check_refused(&place, &["--html", "a", "--sarif", "a", "--", "false"], "give each one of its own");
    check_refused(&place, &["--html", "no/such/folder/a.html", "--", "false"], "there is no folder no/such/folder");
    check_refused(&place, &["--sarif", "no/such/folder/a.sarif", "--", "false"], "there is no folder no/such/folder");
    check_refused(&place, &[], "required");
    place.done();
}

#[test]
fn what_differs_each_time_is_answered_from_the_one_recorded_run() {
    let place = Place::new("why-pid");
    compile("pid.c", &[], &place.folder);
    let failing = Failing { place: &place, options: &[], expected: Some("none\n") };
    let answer = failing.answer(&["./pid"]);
    check_marks("pid.c", &answer);
    place.done();
}

#[test]
fn an_empty_expected_file_means_no_output() {
    let place = Place::new("why-empty");
    compile("extra.c", &[], &place.folder);
    let failing = Failing { place: &place, options: &[], expected: Some("") };
    let answer = failing.answer(&["./extra"]);
    assert_eq!(answer["failure"], "standard output goes on for 6 bytes after the expected 0 bytes");
    place.done();
}

#[test]
fn the_answer_comes_in_all_forms() {
    let place = Place::new("why-forms");
    compile("extra.c", &[], &place.folder);
    std::fs::write(place.folder.join("expected"), "4,5,6").expect("the file can be written");
    let base = ["why", "--budget", BUDGET, "--expect", "expected", "--html", "why.html", "--sarif", "why.sarif"];
    let run = |more: &[&str]| {
        let mut why = place.clew(base);
        why.args(more).args(["--", "./extra"]).current_dir(&place.folder);
        why.env("GITHUB_ACTIONS", "true").env("GITHUB_WORKSPACE", guests());
        let output = finish(why, b"");
        assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
        output
    };
    let text = run(&[]);
    let line = marks("extra.c")[0].line;
    let sentence = format!("with line {line} taken the other way on its 3rd execution the program prints 4,5,6");
    assert!(stdout(&text).contains(&sentence), "{}", stdout(&text));
    assert!(stdout(&text).contains("clew gdb "), "how to look closer: {}", stdout(&text));
    let annotation = format!("file=extra.c,line={line}");
    assert!(stdout(&text).lines().any(|l| l.starts_with("::") && l.contains(&annotation)), "{}", stdout(&text));
    let page = std::fs::read_to_string(place.folder.join("why.html")).expect("the page is written");
    assert!(page.contains("putchar(&#39;,&#39;)") || page.contains("putchar("), "the source is in the page");
    let sarif = std::fs::read_to_string(place.folder.join("why.sarif")).expect("the file is written");
    let sarif: Value = serde_json::from_str(&sarif).expect("it is JSON");
    assert_eq!(sarif["version"], "2.1.0");
    assert_ne!(sarif["runs"][0]["results"][0]["codeFlows"], Value::Null, "{sarif:#}");

    let json = answer(&run(&["--json"]));
    assert_eq!((&json["clew"], &json["verb"]), (&1.into(), &"why".into()));
    for key in ["recording", "process", "failure", "candidates", "tried", "limits", "time"] {
        assert_ne!(json[key], Value::Null, "{key}");
    }
    let keys = ["rank", "file", "line", "function", "kind", "status", "instance", "of", "explanation"];
    for key in keys {
        assert_ne!(json["candidates"][0][key], Value::Null, "{key}");
    }
    for key in ["recording", "moment", "alteration"] {
        assert!(json["candidates"][0]["evidence"][key].is_string(), "{key}");
    }
    place.done();
}

#[test]
fn an_interrupted_search_tells_what_it_has_and_leaves_nothing_behind() {
    let place = Place::new("why-interrupted");
    let program = compile("endless.c", &[], &place.folder);
    let scratch = place.folder.join("tmp");
    std::fs::create_dir(&scratch).expect("the folder can be made");
    let name = program.to_string_lossy();
    let recorded = place.run(["why", "--timeout", "1s", "--budget", "0s", "--", &name]);
    assert!(matches!(recorded.status.code(), Some(0 | 1)), "{}", stderr(&recorded));
    let mut why = place.clew(["why", "--json", "--timeout", "1s", "--budget", "300s", "latest"]);
    why.env("TMPDIR", &scratch).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let begun = Instant::now();
    let child = why.spawn().expect("it starts");
    // The search itself never ends within the budget: whenever the signal comes, it comes before the end.
    while processes_with(&name).len() < 2 && begun.elapsed() < Duration::from_secs(20) {
        std::thread::yield_now();
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .expect("it is there");
    let output = child.wait_with_output().expect("it ends");
    assert!(begun.elapsed() < Duration::from_secs(60), "it stops soon");
    assert!(matches!(output.status.code(), Some(0 | 1)), "{:?} {}", output.status, stderr(&output));
    assert_eq!(answer(&output)["verb"], "why");
    assert_eq!(std::fs::read_dir(&scratch).expect("it is there").count(), 0, "no files are left");
    assert_eq!(left(&name), [""; 0], "no process is left");
    place.done();
}

#[test]
fn a_program_that_is_interrupted_while_it_is_recorded_is_not_said_to_hang() {
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let place = Place::new(&format!("why-interrupted-{}", signal.as_raw()));
        let program = compile("endless.c", &[], &place.folder);
        let name = program.to_string_lossy();
        let mut why = place.clew(["why", "--budget", "300s", "--", &name]);
        why.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let begun = Instant::now();
        let child = why.spawn().expect("it starts");
        while processes_with(&name).len() < 2 && begun.elapsed() < Duration::from_secs(20) {
            std::thread::yield_now();
        }
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).expect("it is there");
        let output = child.wait_with_output().expect("it ends");
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(3), "{said}");
        // The engine is there before the program is: then nothing has been recorded yet.
        if !said.contains("interrupted before anything was recorded") {
            assert!(said.contains("interrupted while the program was recorded (kept as endless-1)"), "{said}");
            assert!(said.contains("say --timeout TIME"), "{said}");
        }
        assert_eq!(stdout(&output), "");
        assert_eq!(left(&name), [""; 0], "no process is left");
        place.done();
    }
}
