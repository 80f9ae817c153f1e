//! `clew why` and programs that do not end: servers that should not, others that should, and searches that are told to.

mod common;

use common::place::{Place, finish};
use common::processes::left;
use common::searching::{answer, compile_at, line_with};
use common::{stderr, stdout};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[track_caller]
fn why(place: &Place, options: &[&str], program: &Path, more: &[&str], input: &[u8]) -> Value {
    let mut why = place.clew(["why", "--json"]);
    why.args(options).arg("--").arg(program).args(more).current_dir(&place.folder);
    let output = finish(why, input);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    answer(&output)
}

/// The line with this text is proved to be a cause; answers the sentence about it.
#[track_caller]
fn proved(answer: &Value, guest: &str, text: &str) -> String {
    let line = line_with(guest, text);
    let causes = answer["candidates"].as_array().expect("a list");
    let found = causes.iter().find(|c| c["line"] == line && c["status"] == "proved");
    found.unwrap_or_else(|| panic!("{text}: {causes:#?}"))["explanation"].as_str().expect("a sentence").to_owned()
}

#[track_caller]
fn check_server(place: &Place, more: &[&str], input: &[u8], text: &str) {
    let server = place.folder.join("why_server-O0");
    let answer = why(place, &["--budget", "20s", "--alive", "1s"], &server, more, input);
    let sentence = proved(&answer, "why_server", text);
    assert!(sentence.contains("is still going") && !sentence.contains("ends by itself"), "{sentence}");
}

#[test]
fn a_server_that_waits_for_what_comes_from_outside_is_alive() {
    let place = Place::new("why-alive");
    compile_at("why_server", "-O0", &place.folder);
    check_server(&place, &[], b"a\n\nb\n", "if (!*line)");
    check_server(&place, &["listen"], b"", "if (port <= 0)");
    place.done();
}

#[test]
fn a_loop_that_never_ends_is_found_behind_long_work_and_its_repair_may_take_long() {
    let place = Place::new("why-behind-work");
    let program = compile_at("why_late", "-O0", &place.folder);
    std::fs::write(place.folder.join("expected"), "24000012\n").expect("the file can be written");
    let options = ["--budget", "80s", "--timeout", "1s", "--expect", "expected"];
    let answer = why(&place, &options, &program, &[], b"");
    let line = line_with("why_late", "i != 9");
    let failure = answer["failure"].as_str().expect("a clause");
    assert!(failure.starts_with("it does not end: it goes round and round at "), "{failure}");
    assert!(failure.ends_with(&format!("/why_late.c:{line}")), "{failure}");
    assert_eq!(answer["candidates"][0]["line"], line_with("why_late", "if (argc < 2)"), "{answer:#}");
    proved(&answer, "why_late", "if (argc < 2)");
    assert!(answer["time"].to_string().contains("branches for longer"), "{answer:#}");
    place.done();
}

#[test]
fn a_loop_whose_rounds_get_longer_is_searched_from_its_first_ones() {
    let place = Place::new("why-growing");
    let program = compile_at("why_growing", "-O0", &place.folder);
    std::fs::write(place.folder.join("expected"), "1\n2\n3\n").expect("the file can be written");
    // A share of it is all that a search for the beginning may take, and the machine may be busy.
    let options = ["--budget", "40s", "--timeout", "3s", "--expect", "expected"];
    let answer = why(&place, &options, &program, &["7", "7", "nan", "5"], b"");
    proved(&answer, "why_growing", "/* not so for the one itself */");
    place.done();
}

#[test]
fn a_loop_that_only_a_kill_ends_is_replayed_for_a_while_and_searched() {
    let place = Place::new("why-stubborn");
    let program = compile_at("why_stubborn", "-O0", &place.folder);
    std::fs::write(place.folder.join("expected"), "done\n").expect("the file can be written");
    let options = ["--budget", "20s", "--timeout", "1s", "--expect", "expected"];
    let answer = why(&place, &options, &program, &[], b"");
    proved(&answer, "why_stubborn", "while (on)");
    assert!(answer["candidates"][0]["of"].is_null(), "nobody knows how many rounds there are: {answer:#}");
    let replayed = finish(place.clew(["replay", "latest"]), b"");
    assert_eq!(replayed.status.code(), Some(0), "{}", stderr(&replayed));
    place.done();
}

#[test]
fn nothing_is_proved_of_a_process_that_another_one_waits_for() {
    let place = Place::new("why-child");
    let program = compile_at("why_child", "-O0", &place.folder);
    std::fs::write(place.folder.join("expected"), "start\ndone 0\n").expect("the file can be written");
    let answer = why(&place, &["--budget", "20s", "--timeout", "1s", "--expect", "expected"], &program, &[], b"");
    let failure = answer["failure"].as_str().expect("a clause");
    let line = line_with("why_child", "steps over it");
    assert!(failure.ends_with(&format!("why_child.c:{line}")), "{failure}");
    // The child that goes the parent's way prints what the parent should, and the parent would print it too.
    let causes = answer["candidates"].as_array().expect("a list");
    assert!(causes.iter().all(|c| c["status"] == "suspected"), "{answer:#}");
    assert!(causes.iter().any(|c| c["line"] == line), "{answer:#}");
    place.done();
}

#[test]
fn threads_that_wait_for_each_other_are_told_with_what_they_wait_in() {
    let place = Place::new("why-deadlock");
    let program = compile_at("why_deadlock", "-O0", &place.folder);
    let answer = why(&place, &["--budget", "20s", "--timeout", "1s"], &program, &[], b"");
    let failure = answer["failure"].as_str().expect("a clause");
    assert!(failure.starts_with("it does not end: all its 3 threads wait: one in pthread_"), "{failure}");
    for text in ["waits forth", "waits back", "waits for both"] {
        let place = format!("/why_deadlock.c:{}", line_with("why_deadlock", text));
        assert!(failure.contains(&place), "{place}: {failure}");
    }
    place.done();
}

#[test]
fn a_program_that_prints_for_ever_is_ended_because_its_output_is_wrong() {
    let place = Place::new("why-prints");
    let program = compile_at("why_endless", "-O0", &place.folder);
    std::fs::write(place.folder.join("expected"), "3\n2\n1\n0\n").expect("the file can be written");
    let answer = why(&place, &["--budget", "20s", "--expect", "expected"], &program, &[], b"");
    let failure = answer["failure"].as_str().expect("a clause");
    assert!(failure.starts_with("standard output goes on for "), "{failure}");
    assert!(answer["limits"].to_string().contains("when its output was wrong already and was ended"), "{answer:#}");
    proved(&answer, "why_endless", "/* never ends */");
    assert_eq!(left(&program.to_string_lossy()), [""; 0], "no process is left");
    place.done();
}

#[test]
fn a_recording_takes_no_longer_than_the_search_may() {
    let place = Place::new("why-late");
    let program = compile_at("why_endless", "-O0", &place.folder);
    let answer = why(&place, &["--budget", "2s"], &program, &["silent"], b"");
    let failure = answer["failure"].as_str().expect("a clause");
    assert!(failure.starts_with("it does not end: it goes round and round at "), "{failure}");
    let limit = "it was still running after 5 s and was ended; --timeout says how long it may take";
    assert!(answer["limits"].to_string().contains(limit), "{answer:#}");
    place.done();
}

/// Sends signals to a search that has begun, at these times; answers how it ended, and whether there was an answer.
fn interrupted(place: &Place, signals: &[Signal], apart: Duration) -> (Option<i32>, bool) {
    let mut why: Command = place.clew(["why", "--json", "--timeout", "1s", "--budget", "300s", "latest"]);
    let child = why.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let pid = Pid::from_child(&child);
    // Its handlers are there as soon as the kernel says that it catches what is to be sent.
    let begun = Instant::now();
    while !catches(pid, signals[0]) && begun.elapsed() < Duration::from_secs(20) {
        std::thread::yield_now();
    }
    for (n, signal) in signals.iter().enumerate() {
        let due = Instant::now() + if n == 0 { Duration::ZERO } else { apart };
        while Instant::now() < due {
            std::thread::yield_now();
        }
        // It may have ended already.
        let _ = kill_process(pid, *signal);
    }
    let output = child.wait_with_output().expect("it ends");
    (output.status.code(), output.stdout.starts_with(b"{"))
}

fn catches(pid: Pid, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap_or_default();
    let caught = status.lines().find_map(|l| l.strip_prefix("SigCgt:")).map(str::trim).unwrap_or("0");
    u64::from_str_radix(caught, 16).unwrap_or(0) >> (signal.as_raw() - 1) & 1 != 0
}

#[test]
fn a_signal_that_is_sent_twice_at_once_still_leaves_an_answer() {
    let place = Place::new("why-twice");
    let program = compile_at("why_endless", "-O0", &place.folder);
    let recorded = place.run(["why", "--timeout", "1s", "--budget", "0s", "--", &program.to_string_lossy(), "silent"]);
    assert!(matches!(recorded.status.code(), Some(0 | 1)), "{}", stderr(&recorded));
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (status, answered) = interrupted(&place, &[signal; 2], Duration::from_millis(2));
        assert!(matches!(status, Some(0 | 1)) && answered, "{signal:?}: {status:?}");
    }
    // The third one is meant. Some may be lost on a busy machine, where the next comes before one is delivered.
    let (status, _) = interrupted(&place, &[Signal::INT; 20], Duration::from_millis(2));
    assert_eq!(status, None, "it dies of the signal");
    place.done();
}
