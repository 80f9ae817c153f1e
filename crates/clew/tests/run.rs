//! `clew run` from outside: statuses, signals, messages, what the program inherits, statistics.

mod common;

use common::{CLEW, clew, compile, folder, shell, stderr, stdout};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MODES: [&str; 4] = ["none", "tick", "count", "trace"];

#[test]
fn the_exit_status_is_the_programs() {
    for code in [0, 1, 42, 125, 255] {
        let output = shell(&format!("exit {code}")).output().unwrap();
        assert_eq!(output.status.code(), Some(code));
        assert_eq!(stderr(&output), "");
    }
}

#[test]
fn the_fatal_signal_is_the_programs() {
    let folder = folder("fatal");
    let program = compile("crash", &folder);
    for (how, signal) in [("segv", 11), ("fpe", 8), ("ill", 4), ("abrt", 6), ("term", 15), ("kill", 9)] {
        let output = clew(["run", "--quiet", "--"]).arg(&program).arg(how).output().unwrap();
        assert_eq!(output.status.signal(), Some(signal), "{how}: {}", stderr(&output));
        assert_eq!(stderr(&output), "", "{how}");
        assert!(!output.status.core_dumped(), "the host leaves no core file");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_real_time_signal_is_passed_on_too() {
    assert_eq!(shell("kill -40 $$").status().unwrap().signal(), Some(40));
}

#[test]
fn a_crash_is_told_with_function_and_line() {
    let folder = folder("crash");
    let program = compile("crash", &folder);
    let output = clew(["run", "--"]).arg(&program).arg("segv").output().unwrap();
    assert_eq!(output.status.signal(), Some(11));
    let told = stderr(&output);
    for part in ["clew: SIGSEGV", "0x8", "write_to_nothing", "crash.c:9", "main"] {
        assert!(told.contains(part), "{part} in {told}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn streams_pass_through_in_every_mode() {
    for mode in MODES {
        let output =
            clew(["run", "--mode", mode, "--", "sh", "-c", "echo out; echo err >&2; exit 3"]).output().unwrap();
        assert_eq!((stdout(&output), stderr(&output), output.status.code()), ("out\n", "err\n", Some(3)), "{mode}");
        let mut child =
            clew(["run", "--mode", mode, "--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let text = "line\n".repeat(5000);
        let mut stdin = child.stdin.take().unwrap();
        let written = text.clone();
        let writer = std::thread::spawn(move || std::io::Write::write_all(&mut stdin, written.as_bytes()));
        let mut read = String::new();
        child.stdout.take().unwrap().read_to_string(&mut read).unwrap();
        writer.join().unwrap().unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(read, text, "{mode}");
    }
}

/// Expects one sentence on standard error and this status.
#[track_caller]
fn check_refused(arguments: &[&Path], status: i32, part: &str) {
    let output = clew(["run", "--"]).args(arguments).output().unwrap();
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(status), "{told}");
    assert!(told.starts_with("clew: ") && told.lines().count() == 1, "one sentence: {told}");
    assert!(told.contains(part), "{part} in {told}");
    assert_eq!(stdout(&output), "");
}

#[test]
fn what_is_not_there_or_not_a_file_is_refused_at_once() {
    check_refused(&[Path::new("no-such-program-anywhere")], 127, "no such program in PATH");
    check_refused(&[Path::new("/no/such/file")], 127, "no such file");
    check_refused(&[Path::new("")], 127, "empty");
    check_refused(&[Path::new("/")], 126, "folder");
    check_refused(&[Path::new("/dev/null")], 126, "not a regular file");
    check_refused(&[Path::new("/etc/passwd")], 126, "may not be executed");
}

#[test]
fn a_file_that_is_no_program_is_refused() {
    let folder = folder("refused");
    let elf = std::fs::read("/bin/true").unwrap();
    let changed = |at: usize, bytes: &[u8]| {
        let mut copy = elf.clone();
        copy[at..at + bytes.len()].copy_from_slice(bytes);
        copy
    };
    let files: [(&str, Vec<u8>); 8] = [
        ("empty", Vec::new()),
        ("text", b"just some text\n".to_vec()),
        ("class32", changed(4, &[1])),
        ("arm", changed(18, &[183, 0])),
        ("magic-only", elf[..4].to_vec()),
        ("header-only", elf[..64].to_vec()),
        ("headers-elsewhere", changed(32, &[0xff; 8])),
        ("too-many-headers", changed(56, &[0xff, 0xff])),
    ];
    for (name, bytes) in files {
        let file = folder.join(name);
        std::fs::write(&file, bytes).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        check_refused(&[&file], 126, name);
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn bad_usage_is_our_own_failure() {
    for arguments in [
        &["run"][..],
        &["run", "--bogus", "ls"],
        &["run", "--mode", "fast", "ls"],
        &["--color", "never", "run", "--json", "ls"],
    ] {
        let output = clew(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{arguments:?}");
        assert!(stderr(&output).starts_with("clew: "), "{}", stderr(&output));
    }
    assert_eq!(clew(["no-such-verb"]).output().unwrap().status.code(), Some(2));
    assert_eq!(clew::<&str>([]).output().unwrap().status.code(), Some(2));
}

#[test]
fn help_and_version_are_answers() {
    for arguments in [&["--help"][..], &["run", "--help"], &["doctor", "--help"]] {
        let output = clew(arguments).output().unwrap();
        assert!(output.status.success());
        assert!(stdout(&output).contains("Examples:"), "{arguments:?}");
        assert!(!stdout(&output).contains('\x1b'), "no colours into a pipe");
    }
    let output = clew(["--version"]).output().unwrap();
    assert_eq!(stdout(&output), format!("clew {}\n", env!("CARGO_PKG_VERSION")));
}

/// Runs the same command natively and under clew, both started by `prefix`, and compares what the program inherited.
#[track_caller]
fn check_inherited(program: &Path, prefix: &[&str], suffix: &[&str]) {
    let run = |middle: &[&str]| {
        let mut words: Vec<OsString> = prefix.iter().chain(middle).map(Into::into).collect();
        words.push(program.into());
        words.extend(suffix.iter().map(Into::into));
        let mut command = Command::new(&words[0]);
        // `sh` sets variables of its own, the same ones both times.
        command.args(&words[1..]).env_remove("_").output().unwrap()
    };
    let native = run(&[]);
    let under = run(&[CLEW, "run", "--"]);
    assert!(native.status.success());
    let without_underscore = |o: &std::process::Output| {
        let text = String::from_utf8_lossy(&o.stdout).into_owned();
        text.lines().filter(|l| !l.starts_with("environment _=")).map(|l| format!("{l}\n")).collect::<String>()
    };
    assert_eq!(without_underscore(&under), without_underscore(&native), "{prefix:?} {}", stderr(&under));
}

#[test]
fn the_program_inherits_exactly_what_clew_was_given() {
    let folder = folder("inherited");
    let program = compile("inherited", &folder);
    check_inherited(&program, &["env"], &["a", "", "b c"]);
    check_inherited(&program, &["env", "-i"], &[]);
    check_inherited(&program, &["env", "--ignore-signal=PIPE"], &[]);
    check_inherited(&program, &["env", "--ignore-signal=CHLD,HUP,INT,TERM"], &[]);
    check_inherited(&program, &["env", "--block-signal=USR1,TERM,CHLD,RTMIN"], &[]);
    check_inherited(&program, &["nice", "-n", "3"], &[]);
    for script in [
        "exec \"$@\"",
        "exec \"$@\" <&-",
        "exec \"$@\" <&- 2>&-",
        "exec \"$@\" 3</dev/null 7>/dev/null",
        "ulimit -n 200; ulimit -c 0; umask 27; cd /; exec \"$@\"",
    ] {
        check_inherited(&program, &["sh", "-c", script, "sh"], &[]);
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn arguments_need_not_be_text() {
    let odd = OsString::from_vec(b"\xff\xfe".to_vec());
    let output = clew(["run", "--", "printf", "%s"]).arg(odd).output().unwrap();
    assert_eq!(output.stdout, b"\xff\xfe");
    let output = clew(["run"]).arg(OsString::from_vec(b"\xff".to_vec())).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
}

/// Starts a program under clew in a process group of its own and waits until it has said that it is ready.
fn start_ready(script: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = shell(script).stdout(Stdio::piped()).process_group(0).spawn().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, reader)
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

#[test]
fn signals_to_the_host_alone_reach_the_program() {
    for (name, signal) in [("TERM", Signal::TERM), ("HUP", Signal::HUP), ("USR1", Signal::USR1), ("INT", Signal::INT)] {
        let script = format!("trap 'echo got {name}; exit 9' {name}; echo ready; while :; do sleep 0.02; done");
        let (mut child, mut reader) = start_ready(&script);
        kill_process(pid(&child), signal).unwrap();
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert_eq!((rest.as_str(), child.wait().unwrap().code()), (format!("got {name}\n").as_str(), Some(9)));
    }
}

#[test]
fn a_signal_to_the_group_ends_both() {
    let (mut child, _reader) = start_ready("echo ready; exec sleep 1000");
    kill_process_group(pid(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(2));
}

#[test]
fn a_program_that_signals_its_own_group_gets_the_signal_once() {
    let script = "trap 'echo got' USR1; trap 'exit 5' TERM; echo ready; kill -USR1 0; while :; do sleep 0.05; done";
    let (mut child, mut reader) = start_ready(script);
    let mut got = String::new();
    reader.read_line(&mut got).unwrap();
    // What the host passes on it passes on in order: a second one would come before this.
    kill_process(pid(&child), Signal::TERM).unwrap();
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert_eq!((got.as_str(), rest.as_str(), child.wait().unwrap().code()), ("got\n", "", Some(5)));
}

#[test]
fn an_alarm_set_before_clew_was_started_reaches_the_program() {
    let script = "alarm 3; exec @ARGV or die";
    let guest = "trap 'exit 4' ALRM; while :; do sleep 0.05; done";
    let status = Command::new("perl").args(["-e", script, CLEW, "run", "--", "sh", "-c", guest]).status();
    assert_eq!(status.expect("perl sets the alarm").code(), Some(4));
}

#[test]
fn a_program_that_outlives_its_parent_does_not_keep_clew_waiting() {
    let output = shell("sleep 1000 >/dev/null 2>&1 <&1 & echo $!; exit 6").output().unwrap();
    assert_eq!(output.status.code(), Some(6));
    let sleeper = Pid::from_raw(stdout(&output).trim().parse().unwrap()).unwrap();
    kill_process(sleeper, Signal::KILL).expect("it still runs when clew has come back");
}

#[test]
fn a_reader_that_goes_away_ends_the_program_quietly() {
    let mut child = clew(["run", "--", "yes"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 2];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.signal(), stderr(&output)), (Some(13), ""));
}

/// The JSON document at the end of standard error.
fn statistics(options: &[&str], command: &[&str]) -> Value {
    let output = clew(["run", "--stats", "--json"]).args(options).arg("--").args(command).output().unwrap();
    let told = stderr(&output);
    let last = told.lines().last().unwrap_or_else(|| panic!("{options:?} {command:?}: no statistics"));
    serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {told}"))
}

#[test]
fn statistics_have_the_agreed_shape() {
    let document = statistics(&["--mode", "count", "--cpu", "native", "--seed", "1"], &["sh", "-c", "exit 3"]);
    assert_eq!(document["clew"], 1);
    assert_eq!(document["verb"], "run");
    assert_eq!(document["outcome"], serde_json::json!({ "kind": "exited", "code": 3 }));
    assert_eq!((&document["mode"], &document["cpu"]), (&"count".into(), &"native".into()));
    assert!(document["wall_ns"].as_u64().unwrap() > 0);
    assert!(document["images"][0]["exe"].as_str().unwrap().starts_with('/'));
    for figure in ["blocks", "translated_instructions", "translation_ns", "cache_bytes", "syscalls", "threads"] {
        assert!(document["total"][figure].as_u64().unwrap() > 0, "{figure}: {document}");
    }
    for figure in ["instructions", "ticks", "conditional_branches"] {
        assert!(document["total"][figure].as_u64().unwrap() > 0, "{figure}: {document}");
    }
}

#[test]
fn counting_and_tracing_see_the_same_instructions() {
    let command = ["sh", "-c", "i=0; while [ $i -lt 100 ]; do i=$((i+1)); done"];
    let count = statistics(&["--mode", "count", "--seed", "1"], &command);
    let trace = statistics(&["--mode", "trace", "--sink", "check", "--seed", "1"], &command);
    assert_eq!(trace["trace"]["damage"], Value::Null, "{trace}");
    assert_eq!(trace["trace"]["instructions"], count["total"]["instructions"], "{trace} {count}");
    assert_eq!(trace["total"]["ticks"], count["total"]["ticks"]);
    assert_eq!(trace["trace"]["bytes"], trace["total"]["trace_bytes"]);
}

#[test]
fn the_table_of_statistics_names_its_figures() {
    let output = clew(["run", "--stats", "--mode", "count", "--seed", "1", "--", "true"]).output().unwrap();
    for figure in ["instructions", "ticks", "blocks translated", "translation time", "wall time"] {
        assert!(stderr(&output).contains(figure), "{figure}: {}", stderr(&output));
    }
    assert_eq!(stdout(&output), "", "statistics go to standard error");
}

#[test]
fn every_process_of_a_tree_is_in_the_statistics() {
    let document = statistics(&["--mode", "count"], &["sh", "-c", "/bin/true; /bin/true; exit 0"]);
    let programs: Vec<_> = document["images"].as_array().unwrap().iter().map(|i| i["exe"].as_str().unwrap()).collect();
    assert_eq!(programs.iter().filter(|p| p.ends_with("/true")).count(), 2, "{programs:?}");
}

#[test]
fn a_program_does_not_outlive_a_clew_that_is_killed() {
    let mut host = clew(["run", "--", "sh", "-c", "echo $$; exec sleep 1000"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut told = String::new();
    BufReader::new(host.stdout.as_mut().unwrap()).read_line(&mut told).unwrap();
    host.kill().unwrap();
    host.wait().unwrap();
    let stat = format!("/proc/{}/stat", told.trim());
    let until = Instant::now() + Duration::from_secs(30);
    // Whoever inherits the child may take its time to collect it.
    while std::fs::read_to_string(&stat).is_ok_and(|s| !s.contains(") Z ")) {
        assert!(Instant::now() < until, "{} still runs", told.trim());
        std::thread::yield_now();
    }
}

#[test]
fn no_memory_is_one_sentence_and_no_stray_process() {
    let script = format!("ulimit -v 60000; exec {CLEW} run --mode count -- true");
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(125), "{told}");
    assert!(told.starts_with("clew: ") && told.lines().count() == 1, "{told}");
}
