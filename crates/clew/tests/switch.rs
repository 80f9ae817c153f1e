//! `clew switch` finds critical predicates, proves them with controls, and harms nobody.

mod common;

use common::place::{Place, finish};
use common::processes::left;
use common::searching::{answer, compile_at as compile, line_with};
use common::{stderr, stdout};
use model::serve::{Alteration, Moment, Predicate, TrialEnd, TrialLimits};
use recording::Recording;
use serde_json::Value;
use session::{Budget, Candidate, EngineProgram, Replayer, Session, TrialOutcome};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::net::{TcpListener, UdpSocket};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The answer about a guest that should print something, or just not fail.
#[track_caller]
fn search(guest: &str, level: &str, options: &[&str], expected: Option<&str>) -> Value {
    let place = Place::new(&format!("{guest}{level}"));
    let program = compile(guest, level, &place.folder);
    let mut switch = place.clew(["switch", "--json"]);
    switch.args(options);
    if let Some(text) = expected {
        let file = place.folder.join("expected");
        std::fs::write(&file, text).expect("the file can be written");
        switch.arg("--expect").arg(file);
    }
    switch.arg("--").arg(&program);
    let output = finish(switch, b"");
    assert_eq!(output.status.code(), Some(0), "{guest} {level}: {}{}", stdout(&output), stderr(&output));
    let answer = answer(&output);
    place.done();
    answer
}

/// The finding of this kind at the critical line, which must be proved, with controls that agreed.
#[track_caller]
fn proved<'a>(guest: &str, kind: &str, answer: &'a Value) -> &'a Value {
    let line = line_with(guest, "/* critical */");
    let mut found = answer["candidates"].as_array().expect("a list").iter();
    let found = found.find(|c| c["line"] == line && c["kind"] == kind);
    let found = found.unwrap_or_else(|| panic!("{guest}: {answer:#}"));
    assert_eq!(found["status"], "proved", "{guest}: {answer:#}");
    assert_eq!(found["trial"]["verdict"], "fixed");
    assert!(answer["tried"]["controls"].as_u64() >= Some(1), "{answer:#}");
    found
}

/// The critical predicate of the guest is among the findings, proved, and its controls agreed.
#[track_caller]
fn check_found(guest: &str, options: &[&str], expected: Option<&str>) {
    for level in ["-O0", "-O2"] {
        proved(guest, "critical-predicate", &search(guest, level, options, expected));
    }
}

/// Two branches of the guest, both taken the other way, are the answer; no single one is.
#[track_caller]
fn check_pair_found(guest: &str, expected: &str) {
    for level in ["-O0", "-O2"] {
        let answer = search(guest, level, &[], Some(expected));
        let found = proved(guest, "critical-pair", &answer);
        assert_eq!(found["second"]["line"], line_with(guest, "/* second */"), "{found:#}");
        let kinds = answer["candidates"].as_array().expect("a list").iter().map(|c| &c["kind"]);
        assert_eq!(kinds.filter(|k| *k == "critical-predicate").count(), 0, "{answer:#}");
        assert!(answer["tried"]["pairs"].as_u64() >= Some(1), "{answer:#}");
        assert!(answer["tried"]["trials"].as_u64() > answer["tried"]["pairs"].as_u64(), "{answer:#}");
    }
}

#[test]
fn two_branches_that_are_wrong_together_are_found() {
    check_pair_found("switch_pair", "b c\n");
}

#[test]
fn a_branch_that_is_not_executed_before_another_one_goes_the_other_way_is_found() {
    check_pair_found("switch_nested", "open\n");
}

#[test]
fn a_jump_through_a_table_is_led_to_the_right_case() {
    for level in ["-O0", "-O2"] {
        let answer = search("switch_case", level, &[], Some("+/-\n"));
        let found = proved("switch_case", "critical-case", &answer);
        assert_eq!((&found["instance"], &found["of"]), (&2.into(), &3.into()), "{found:#}");
        let right = format!("leading to line {} instead of", line_with("switch_case", "/* right */"));
        assert!(found["explanation"].as_str().expect("a sentence").contains(&right), "{level}: {found:#}");
    }
}

#[test]
fn wrong_output_is_traced_to_the_branch_that_chose_it() {
    check_found("switch_output", &[], Some("1 0 1 0 \n"));
}

#[test]
fn a_crash_is_traced_to_the_branch_that_should_have_set_the_pointer() {
    check_found("switch_crash", &[], None);
    check_found("switch_crash", &["--expect-exit", "0"], Some("5\n"));
}

#[test]
fn a_hang_is_traced_to_the_branch_before_the_loop() {
    check_found("switch_hang", &["--timeout", "1s"], Some("9\n"));
}

#[test]
fn the_branch_of_the_assertion_itself_is_not_a_cause() {
    check_found("switch_abort", &[], None);
    let place = Place::new("assertion");
    let program = compile("switch_abort", "-O0", &place.folder);
    let mut switch = place.clew(["switch", "--json", "--at"]);
    switch.arg(format!("switch_abort.c:{}", line_with("switch_abort", "/* own */"))).arg("--").arg(program);
    let output = finish(switch, b"");
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    let answer = answer(&output);
    assert_eq!(answer["candidates"][0]["kind"], "avoiding-predicate", "{answer:#}");
    assert_eq!(answer["candidates"][0]["status"], "suspected");
    assert_eq!(answer["tried"]["avoided"], 1);
    place.done();
}

#[test]
fn the_number_of_an_execution_is_that_of_answers_where_a_line_has_two_branches() {
    let place = Place::new("two-branches");
    let program = compile("switch_two", "-O0", &place.folder);
    place.record(&[&program], 0);
    let expected = place.folder.join("expected");
    std::fs::write(&expected, "150\n").expect("the file can be written");
    let search = |more: &[&str]| {
        let mut switch = place.clew(["switch", "--json", "latest", "--expect"]);
        switch.arg(&expected).args(more);
        answer(&finish(switch, b""))
    };
    let found = search(&[]);
    let line = line_with("switch_two", "/* critical */");
    let first = &found["candidates"][0];
    assert_eq!(first["line"], line, "{found:#}");
    let at = format!("switch_two.c:{line}#{}", first["instance"]);
    let again = search(&["--at", &at]);
    assert_eq!(again["candidates"][0]["evidence"], first["evidence"], "{at}: {again:#}");
    place.done();
}

#[test]
fn a_recording_can_be_searched_again_and_one_execution_tried() {
    let place = Place::new("again");
    let program = compile("switch_output", "-O0", &place.folder);
    place.record(&[&program], 0);
    let expected = place.folder.join("expected");
    std::fs::write(&expected, "1 0 1 0 \n").expect("the file can be written");
    let line = line_with("switch_output", "/* critical */");
    for (instance, status, verdict) in [(4, 0, "fixed"), (3, 1, "other failure")] {
        let at = format!("switch_output.c:{line}#{instance}");
        let mut switch = place.clew(["switch", "--json", "latest", "--at", &at, "--expect"]);
        switch.arg(&expected);
        let output = finish(switch, b"");
        assert_eq!(output.status.code(), Some(status), "{}{}", stdout(&output), stderr(&output));
        assert_eq!(answer(&output)["verdicts"][0]["verdict"], verdict);
    }
    let mut switch = place.clew(["switch", "latest", "--expect"]);
    switch.arg(&expected);
    let text = finish(switch, b"");
    let sentence = format!("with line {line} taken the other way on its 4th execution the program prints 1 0 1 0");
    assert!(stdout(&text).contains(&sentence), "{}", stdout(&text));
    place.done();
}

fn check_refused(place: &Place, words: &[&str], sentence: &str) {
    let output = place.run(words);
    assert_eq!(output.status.code(), Some(2), "{words:?}: {}{}", stdout(&output), stderr(&output));
    assert!(stderr(&output).contains(sentence), "{words:?}: {}", stderr(&output));
    assert_eq!(stdout(&output), "");
}

#[test]
fn what_cannot_be_searched_is_refused_in_one_sentence() {
    let place = Place::new("refused");
    check_refused(&place, &["switch", "--", "true"], "the program passes: exit 0");
    check_refused(&place, &["switch", "--expect-exit", "1", "--", "false"], "the program passes: exit 1");
    check_refused(&place, &["switch", "--expect", "/no/such/file", "--", "true"], "/no/such/file cannot be read");
    check_refused(&place, &["switch", "--", "/no/such/program"], "no such file");
    check_refused(&place, &["switch", "no-such-recording"], "no-such-recording");
    check_refused(&place, &["switch", "--at", "nowhere", "--", "true"], "is no place");
    check_refused(&place, &["switch", "--budget", "soon", "--", "true"], "60s");
    check_refused(&place, &["switch"], "required");
    place.done();
}

#[test]
fn a_used_up_budget_leaves_an_answer() {
    let place = Place::new("budget");
    let program = compile("switch_output", "-O0", &place.folder);
    let output =
        place.run(["switch", "--expect", "/dev/null", "--budget", "0s", "--json", "--", &program.to_string_lossy()]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let answer = answer(&output);
    assert!(answer["limits"].to_string().contains("the time ran out"), "{answer:#}");
    place.done();
}

/// How the world of a trial answers a run that goes on where the failing one stopped.
fn check_world(mode: &str, input: Input, size: usize, verdict: &str) {
    let place = Place::new(&format!("world-{mode}-{input:?}-{size}"));
    let program = compile("world", "-O0", &place.folder);
    let text: String = (0..size).map(|n| format!("line {n}\n")).collect();
    let file = place.folder.join("input.txt");
    let fresh = || std::fs::write(&file, &text).expect("the file can be written");
    let with_input = |mut command: Command| match input {
        Input::File => {
            command.stdin(std::fs::File::open(&file).expect("it is there"));
            finish(command, b"")
        }
        Input::Pipe => finish(command, text.as_bytes()),
    };
    fresh();
    let mut native = Command::new(&program);
    native.arg(mode).arg(&file).env("CLEW_TEST_GOES_ON", "1");
    let right = with_input(native);
    assert!(right.status.success() && !right.stdout.is_empty(), "{mode} works natively");
    let expected = place.folder.join("expected");
    std::fs::write(&expected, &right.stdout).expect("the file can be written");
    fresh();
    let at = format!("world.c:{}", line_with("world", "/* critical */"));
    let mut switch = place.clew(["switch", "--json", "--at", &at, "--expect"]);
    switch.arg(&expected).arg("--").arg(&program).arg(mode).arg(&file);
    let output = with_input(switch);
    let answer = answer(&output);
    assert_eq!(answer["verdicts"][0]["verdict"], verdict, "{mode} {input:?} {size}: {answer:#}");
    place.done();
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Input {
    File,
    Pipe,
}

#[test]
fn a_repaired_run_reads_on_where_the_failing_one_stopped() {
    check_world("input", Input::File, 20_000, "fixed");
    check_world("input", Input::Pipe, 2_000, "fixed");
    check_world("child", Input::File, 2_000, "fixed");
    check_world("child", Input::Pipe, 2_000, "fixed");
    check_world("unread", Input::File, 20_000, "fixed");
    check_world("name", Input::File, 2, "fixed");
}

#[test]
fn a_run_that_reads_on_behind_what_was_kept_of_a_pipe_is_lost() {
    // Of a pipe only what it held when the program ended is kept, 64 KiB.
    check_world("input", Input::Pipe, 20_000, "lost");
}

#[test]
fn what_was_written_before_the_change_is_in_the_world() {
    check_world("changed", Input::File, 200, "fixed");
    check_world("replaced", Input::File, 200, "fixed");
}

#[test]
fn a_write_of_bytes_that_are_not_there_fails_as_natively() {
    check_world("fault", Input::File, 2, "fixed");
}

#[test]
fn a_child_of_a_trial_waits_for_the_reader_of_a_full_pipe() {
    check_world("child", Input::File, 20_000, "fixed");
}

/// A session of a guest, and the moment of the branch of this line, which it executes once.
fn session_and_branch(engine: &EngineProgram, recording: &Recording, guest: &str, line: u64) -> (Session, Moment) {
    let (session, predicates) = session_and_branches(engine, recording, guest, line);
    assert_eq!(predicates.len(), 1, "one branch, executed once");
    (session, predicates[0].moment)
}

/// A session of a guest, and the executions of the branches of this line.
fn session_and_branches(
    engine: &EngineProgram,
    recording: &Recording,
    guest: &str,
    line: u64,
) -> (Session, Vec<Predicate>) {
    let replayer = Replayer { engine, recording };
    let unit = replayer.images()[0];
    let mut session = Session::open(&replayer, &unit).expect("it opens");
    let exe = &recording.unit(&unit).expect("it is there").start.exe;
    let image = image::Image::open(exe).expect("it is a program");
    let maps = session.maps().expect("it answers");
    let map = maps.iter().find(|m| m.key == recording.units()[0].start.program).expect("it is mapped");
    let bias = image.bias(image::FileOffset(map.offset), model::GuestAddr(map.start)).expect("it has one");
    let spans = image.find_line(format!("{guest}.c"), line as u32);
    let ranges: Vec<_> = spans.iter().map(|s| (bias.to_guest(s.start).0, bias.to_guest(s.end).0)).collect();
    let (predicates, _) = session.predicates(&ranges, 10, &mut || false).expect("it answers");
    (session, predicates)
}

#[test]
fn an_execution_long_before_the_end_is_found_by_its_number() {
    let place = Place::new("numbered");
    let program = compile("switch_long", "-O0", &place.folder);
    std::fs::write(place.folder.join("expected"), "nothing\n").expect("the file can be written");
    // More than are kept of either.
    place.record(&[program.as_os_str(), "1400000".as_ref()], 0);
    for (verb, mark) in [("switch", "/* branch */"), ("suppress", "/* statement */")] {
        let at = format!("switch_long.c:{}", line_with("switch_long", mark));
        let mut clew = place.clew([verb, "--at", &format!("{at}#2"), "--expect", "expected", "latest"]);
        clew.current_dir(&place.folder);
        let output = finish(clew, b"");
        assert!(stdout(&output).contains(&format!("{at}, execution 2:")), "{}{}", stdout(&output), stderr(&output));
    }
    place.done();
}

/// Executions that are only counted have the numbers that they have where each is noted.
#[test]
fn the_last_executions_of_a_long_run_are_numbered_from_its_beginning() {
    let place = Place::new("counted");
    let program = compile("switch_long", "-O1", &place.folder);
    place.record(&[program.as_os_str()], 0);
    let latest = recording::Home::at(&place.home).resolve("latest").expect("there is one");
    let recording = Recording::open(&latest).expect("it opens");
    let engine = EngineProgram::in_memory(clew::ENGINE).expect("the engine fits in memory");
    let replayer = Replayer { engine: &engine, recording: &recording };
    let mut session = Session::open(&replayer, &replayer.images()[0]).expect("it opens");
    let own = &recording.units()[0].start.program;
    let maps = session.maps().expect("it answers");
    let code: Vec<_> = maps.iter().filter(|m| m.key == *own && m.prot & 4 != 0).map(|m| (m.start, m.end)).collect();
    let (all, total) = session.predicates(&code, u32::MAX, &mut || false).expect("it answers");
    assert_eq!(all.len() as u64, total);
    assert!(all.last().is_some_and(|p| p.moment.tick > 600_000), "it goes over several copies");
    for keep in [1, 1000, 300_000] {
        let (last, counted) = session.predicates(&code, keep, &mut || false).expect("it answers");
        assert_eq!(counted, total);
        assert!(last == all[all.len() - keep as usize..], "the last {keep}");
    }
    place.done();
}

#[test]
fn a_branch_that_is_forced_goes_one_way_from_then_on() {
    let place = Place::new("forced");
    let program = compile("switch_output", "-O0", &place.folder);
    place.record(&[program.as_os_str()], 0);
    let latest = recording::Home::at(&place.home).resolve("latest").expect("there is one");
    let recording = Recording::open(&latest).expect("it opens");
    let engine = EngineProgram::in_memory(clew::ENGINE).expect("the engine fits in memory");
    let line = line_with("switch_output", "/* critical */");
    let (mut session, predicates) = session_and_branches(&engine, &recording, "switch_output", line);
    assert_eq!(predicates.len(), 4);
    // The branch is taken where the table does not hold 7.
    for (n, taken, expected) in [(0, true, "0 0 0 0 \n"), (0, false, "1 1 1 1 \n"), (2, true, "1 0 0 0 \n")] {
        let candidate = Candidate { moment: predicates[n].moment, alteration: Alteration::Force(taken) };
        let outcome = session.trial(&candidate, &Budget::default()).expect("the trial is made");
        assert_eq!(String::from_utf8_lossy(&outcome.stream(1)), expected, "forced from {n} on, taken: {taken}");
    }
    place.done();
}

#[test]
fn a_loop_that_is_forced_to_go_on_uses_up_its_budget() {
    let place = Place::new("forced-loop");
    let program = compile("switch_hang", "-O0", &place.folder);
    place.record(&[program.as_os_str(), OsStr::new("with"), OsStr::new("arguments")], 0);
    let latest = recording::Home::at(&place.home).resolve("latest").expect("there is one");
    let recording = Recording::open(&latest).expect("it opens");
    let engine = EngineProgram::in_memory(clew::ENGINE).expect("the engine fits in memory");
    let line = line_with("switch_hang", "while (at != 9)");
    let (mut session, predicates) = session_and_branches(&engine, &recording, "switch_hang", line);
    let back = predicates.iter().find(|p| p.taken).expect("the loop goes round");
    let candidate = Candidate { moment: back.moment, alteration: Alteration::Force(true) };
    let wall = Duration::from_secs(60);
    let base = Budget::default();
    let budget = Budget { limits: TrialLimits { ticks: 1_000_000, ..base.limits }, wall, jobs: 1 };
    let begun = Instant::now();
    let outcome = session.trial(&candidate, &budget).expect("the trial is made");
    assert_eq!(outcome.end, TrialEnd::RanAway);
    assert!(begun.elapsed() < wall, "ticks ended it, not the time");
    place.done();
}

/// Trials of the one branch of `harmful` that matters: 50 with it flipped, 50 controls.
fn harmful_trials(engine: &EngineProgram, recording: &Recording, line: u64, belt: bool) -> Vec<TrialOutcome> {
    let (mut session, moment) = session_and_branch(engine, recording, "harmful", line);
    let both = [Alteration::Flip, Alteration::Apart];
    let both = both.map(|alteration| Candidate { moment, alteration });
    let candidates: Vec<Candidate> = both.into_iter().cycle().take(100).collect();
    let mut outcomes = BTreeMap::new();
    let each = &mut |n, outcome: Result<TrialOutcome, _>| {
        outcomes.insert(n, outcome.expect("the trial is made"));
        ControlFlow::Continue(())
    };
    let mut budget = Budget::default();
    budget.limits.ticks = 1_000_000;
    budget.limits.belt = belt;
    session.trials(&candidates, &budget, each).expect("they are made");
    assert_eq!(outcomes.len(), 100);
    outcomes.into_values().collect()
}

#[test]
fn a_batch_that_is_ended_early_does_not_wait_for_a_trial_that_hangs() {
    let place = Place::new("early");
    let program = compile("switch_hang", "-O0", &place.folder);
    place.record(&[program.as_os_str(), OsStr::new("with"), OsStr::new("arguments")], 0);
    let latest = recording::Home::at(&place.home).resolve("latest").expect("there is one");
    let recording = Recording::open(&latest).expect("it opens");
    let engine = EngineProgram::in_memory(clew::ENGINE).expect("the engine fits in memory");
    let line = line_with("switch_hang", "/* critical */");
    let (mut session, moment) = session_and_branch(&engine, &recording, "switch_hang", line);
    let wall = Duration::from_secs(300);
    let base = Budget::default();
    let budget = Budget { limits: TrialLimits { ticks: 1 << 50, ..base.limits }, wall, jobs: 2 };
    let candidates = [Alteration::Flip, Alteration::Null].map(|alteration| Candidate { moment, alteration });
    let begun = Instant::now();
    let mut heard = Vec::new();
    let made = session.trials(&candidates, &budget, &mut |n, outcome| {
        let outcome = outcome.expect("the trial is made");
        heard.push((n, outcome.end.clone(), outcome.stream(1)));
        ControlFlow::Break(())
    });
    made.expect("they are made");
    assert_eq!(heard, [(1, TrialEnd::Exited(0), b"9\n".to_vec())]);
    assert!(begun.elapsed() < wall / 2, "it waited for the other one");
    place.done();
}

/// Everything about the files of a folder that harm would change.
fn state_of(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, u32, bool)> {
    use std::os::unix::fs::MetadataExt;
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("it can be read").path();
        let meta = std::fs::symlink_metadata(&path).expect("it is there");
        let contents = if meta.is_file() { std::fs::read(&path).expect("it can be read") } else { Vec::new() };
        all.insert(path, (contents, meta.mode(), meta.is_file()));
    }
    all
}

/// A branch that does harm of this kind when it is flipped does none in a trial, which ends like this.
fn check_harmless(kind: &str, ends: impl Fn(&TrialEnd) -> bool) {
    let place = Place::new(&format!("harmless-{kind}"));
    let program = compile("harmful", "-O0", &place.folder);
    let folder = place.folder.join("yard");
    std::fs::create_dir(&folder).expect("the folder can be made");
    let files = [("input.txt", vec![b'i'; 5000]), ("keep.txt", b"keep".to_vec()), ("shared.bin", vec![0; 4096])];
    for (name, contents) in files {
        std::fs::write(folder.join(name), contents).expect("the file can be written");
    }
    let server = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = server.local_addr().expect("it has one").port();
    let datagrams = UdpSocket::bind(("127.0.0.1", port)).expect("the port is free");
    let number = port.to_string();
    let command = [program.as_os_str(), folder.as_os_str(), OsStr::new(&number), OsStr::new(kind)];
    place.record(&command, 1);
    let before = state_of(&folder);
    let latest = recording::Home::at(&place.home).resolve("latest").expect("there is one");
    let recording = Recording::open(&latest).expect("it opens");
    let engine = EngineProgram::in_memory(clew::ENGINE).expect("the engine fits in memory");
    // The engine alone keeps a trial from doing harm; the kernel is asked to as well.
    let line = line_with("harmful", "/* critical */");
    let outcomes = [true, false].map(|belt| harmful_trials(&engine, &recording, line, belt)).concat();
    for (n, outcome) in outcomes.iter().enumerate() {
        match n % 2 {
            0 => assert!(ends(&outcome.end), "{kind}: {outcome:?}"),
            _ => assert_eq!((&outcome.end, outcome.stream(1)), (&TrialEnd::Exited(1), b"calm\n".to_vec())),
        }
    }
    assert_eq!(state_of(&folder), before, "{kind}: the files are as they were");
    server.set_nonblocking(true).expect("it can be set");
    assert!(server.accept().is_err(), "nobody connected");
    datagrams.set_nonblocking(true).expect("it can be set");
    assert!(datagrams.recv(&mut [0; 16]).is_err(), "nobody sent anything");
    // Engines have the program's path in their command lines.
    assert_eq!(left(&program.to_string_lossy()), [""; 0], "{kind}: no process is left");
    place.done();
}

#[test]
fn trials_of_a_harmful_branch_change_nothing_outside() {
    let goes_on = |end: &TrialEnd| *end == TrialEnd::Exited(1);
    let lost = |what: &'static str| move |end: &TrialEnd| matches!(end, TrialEnd::Lost(why) if why.contains(what));
    check_harmless("shared", goes_on);
    check_harmless("names", goes_on);
    check_harmless("truncate", |end| matches!(end, TrialEnd::Exited(_)));
    check_harmless("connect", goes_on);
    check_harmless("datagram", goes_on);
    check_harmless("parent", goes_on);
    // Whoever is first: the parent that ends, or a child that never would.
    check_harmless("children", |end| matches!(end, TrialEnd::Exited(1) | TrialEnd::RanAway));
    check_harmless("execute", lost("/bin/sh"));
}
