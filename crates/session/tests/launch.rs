//! What a guest inherits and what its host is told, with a stand-in for the engine that runs programs natively.

use model::wire::{Packet, Report};
use nix::sys::signal::{SigSet, Signal};
use session::{Ended, EngineProgram, ErrorKind, Event, Launch, Outcome, Run, Running, SignalState, Stdio, Traces};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// The stand-in, compiled once per test process.
fn engine() -> &'static EngineProgram {
    static ENGINE: OnceLock<EngineProgram> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stub_engine.c");
        let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("stub_engine.{}", std::process::id()));
        let status = Command::new("cc").arg("-O1").arg(source).arg("-o").arg(&output).status().expect("cc runs");
        assert!(status.success(), "the stand-in compiles");
        let bytes = std::fs::read(&output).expect("the stand-in can be read");
        std::fs::remove_file(&output).expect("the stand-in can be removed");
        EngineProgram::in_memory(&bytes).expect("the stand-in fits in memory")
    })
}

/// The reading and the writing end.
fn pipe() -> (File, File) {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    (reader.into(), writer.into())
}

fn shell(script: &str) -> Launch<'static> {
    Launch::new(engine(), "/bin/sh", ["sh", "-c", script])
}

fn scene(name: &str) -> Launch<'static> {
    Launch::new(engine(), format!("scene:{name}"), ["guest"])
}

/// Runs a guest to its end; gives what it wrote to its standard output.
fn output(mut launch: Launch<'_>) -> (Run, Vec<u8>) {
    let (mut reader, writer) = pipe();
    launch.stdio[1] = Stdio::Fd(writer.into());
    let running = launch.start().unwrap();
    let mut written = Vec::new();
    reader.read_to_end(&mut written).unwrap();
    (running.wait(), written)
}

fn text(launch: Launch<'_>) -> String {
    let (run, written) = output(launch);
    assert_eq!(run.outcome, Outcome::Exited(0));
    String::from_utf8(written).unwrap()
}

fn check_outcome(launch: Launch<'_>, expected: Outcome) {
    assert_eq!(launch.start().unwrap().wait().outcome, expected);
}

#[test]
fn exit_codes_and_signals_are_told_apart() {
    check_outcome(shell("exit 7"), Outcome::Exited(7));
    check_outcome(shell("exit 137"), Outcome::Exited(137));
    check_outcome(shell("kill -9 $$"), Outcome::Signaled { signal: 9, crash: None });
    check_outcome(shell("kill -40 $$"), Outcome::Signaled { signal: 40, crash: None });
}

#[test]
fn a_program_that_cannot_be_loaded_says_so() {
    let launch = Launch::new(engine(), "/does/not/exist", ["x"]);
    let expected = Outcome::NotLoaded { status: 127, message: "cannot be executed".into() };
    check_outcome(launch, expected);
}

#[test]
fn arguments_and_environment_pass_unchanged() {
    let odd = OsString::from_vec(b"a\xff b".to_vec());
    let args = ["cat".into(), "/proc/self/cmdline".into(), odd, OsString::new()];
    let (_, written) =
        output(Launch { stdio: [Stdio::Null, Stdio::Null, Stdio::Null], ..Launch::new(engine(), "/bin/cat", args) });
    assert_eq!(written, b"cat\0/proc/self/cmdline\0a\xff b\0\0");

    let env = [&b"A=1"[..], b"A=2", b"no equals sign", b"=odd", b"B=\xfe", b""];
    let env = env.map(|e| OsString::from_vec(e.to_vec())).to_vec();
    let (_, written) = output(Launch { env, ..Launch::new(engine(), "/bin/cat", ["cat", "/proc/self/environ"]) });
    assert_eq!(written, b"A=1\0A=2\0no equals sign\0=odd\0B=\xfe\0\0");
}

#[test]
fn no_descriptor_leaks_into_a_guest_while_many_start_at_once() {
    let native = Command::new("/bin/ls").arg("/proc/self/fd").output().unwrap();
    let native = String::from_utf8(native.stdout).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..4 {
                    let listed = text(Launch::new(engine(), "/bin/ls", ["ls", "/proc/self/fd"]));
                    assert_eq!(listed, native);
                }
            });
        }
    });
}

fn check_signal_state(signals: SignalState, expected_blocked: u64, expected_ignored: u64) {
    let status = text(Launch { signals, ..Launch::new(engine(), "/bin/cat", ["cat", "/proc/self/status"]) });
    let field = |name: &str| {
        let line = status.lines().find(|l| l.starts_with(name)).unwrap();
        u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
    };
    // The C library's posix_spawn ignores its own two signals in the new process, whatever they were.
    let internal = (1 << 31) | (1 << 32);
    assert_eq!((field("SigBlk"), field("SigIgn") & !internal), (expected_blocked, expected_ignored));
}

#[test]
fn the_guest_starts_with_the_signal_state_that_the_caller_asks_for() {
    let bit = |signal: Signal| 1u64 << (signal as i32 - 1);
    // Rust ignores SIGPIPE in this process.
    check_signal_state(SignalState::of_rust_main(), 0, 0);
    check_signal_state(SignalState::unchanged(), 0, bit(Signal::SIGPIPE));
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGUSR1);
    mask.add(Signal::SIGTERM);
    let state = SignalState { blocked: Some(mask), ..SignalState::of_rust_main() };
    check_signal_state(state, bit(Signal::SIGUSR1) | bit(Signal::SIGTERM), 0);
}

#[test]
fn a_guest_starts_in_the_folder_it_is_given() {
    let here = std::env::current_dir().unwrap();
    assert_eq!(text(Launch { cwd: Some("/proc".into()), ..shell("/bin/pwd") }), "/proc\n");
    assert_eq!(std::env::current_dir().unwrap(), here, "the host stays where it is");
    let error = Launch { cwd: Some("/does/not/exist".into()), ..shell("true") }.start().err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Folder);
}

#[test]
fn a_guest_may_lead_its_own_group() {
    let own = text(Launch { new_group: true, ..shell("read p c s pp g rest </proc/self/stat; echo $((p == g))") });
    let shared = text(shell("read p c s pp g rest </proc/self/stat; echo $((p == g))"));
    assert_eq!((own.as_str(), shared.as_str()), ("1\n", "0\n"));
}

#[test]
fn a_program_that_is_no_program_cannot_be_the_engine() {
    let engine = EngineProgram::in_memory(b"not a program").unwrap();
    let error = Launch::new(&engine, "/bin/true", ["true"]).start().err().unwrap();
    assert_eq!(error.kind(), ErrorKind::ExecuteEngine);
}

#[test]
fn impossible_arguments_are_refused_before_anything_starts() {
    let error = shell("\0").start().err().unwrap();
    assert_eq!(error.kind(), ErrorKind::ZeroByte);
    let error = shell(&"x".repeat(1 << 20)).start().err().unwrap();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
}

#[test]
fn the_engine_may_lie_in_a_file() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("engine-folder.{}", std::process::id()));
    let bytes = std::fs::read("/bin/true").unwrap();
    let engine = EngineProgram::in_folder(&bytes, &folder).unwrap();
    check_outcome(Launch::new(&engine, "x", ["x"]), Outcome::Exited(0));
    std::fs::remove_dir_all(folder).unwrap();
}

fn next(running: &mut Running) -> Event {
    running.next().expect("another event")
}

#[test]
fn a_stopped_guest_is_told_and_can_be_continued() {
    let mut running = shell("kill -STOP $$; exit 3").start().unwrap();
    // The socket closes when the program replaces the stand-in, so `Closed` may come at any point.
    let mut seen = Vec::new();
    while let Some(event) = running.next() {
        match event {
            Event::Stopped(signal) => {
                assert_eq!(signal, 19);
                seen.push("stopped");
                running.handle().signal(18).unwrap();
            }
            Event::Ended(ended) => {
                assert_eq!(ended, Ended::Exited(3));
                seen.push("ended");
            }
            _ => {}
        }
    }
    assert_eq!(seen, ["stopped", "ended"]);
    assert!(running.handle().signal(18).is_err(), "its number may be another's now");
}

#[test]
fn a_guest_that_stopped_anew_is_not_left_stopped() {
    let mut running = shell("kill -STOP $$; kill -STOP $$; exit 3").start().unwrap();
    let handle = running.handle();
    let mut stops = 0;
    while let Some(event) = running.next() {
        if !matches!(event, Event::Stopped(_)) {
            continue;
        }
        stops += 1;
        assert!(handle.is_stopped());
        assert!(!handle.is_left_stopped(), "the host has not stopped for stop {stops}");
        handle.answer_stop();
        assert!(handle.is_left_stopped(), "the host has stopped for stop {stops}");
        handle.signal(18).unwrap();
    }
    assert_eq!(stops, 2);
    assert!(!handle.is_stopped() && !handle.is_left_stopped(), "it is gone");
}

#[test]
fn dropping_a_session_ends_its_guest() {
    let (mut reader, writer) = pipe();
    let mut launch = shell("exec sleep 1000");
    launch.stdio[1] = Stdio::Fd(writer.into());
    drop(launch.start().unwrap());
    // The pipe ends when the last process that holds it is gone.
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
}

#[test]
fn what_a_descendant_says_after_the_first_process_has_gone_is_still_heard() {
    let (reader, mut writer) = pipe();
    let mut launch = scene("late");
    launch.stdio[0] = Stdio::Fd(reader.into());
    let mut running = launch.start().unwrap();
    assert!(matches!(next(&mut running), Event::Ended(Ended::Exited(4))));
    writer.write_all(b"x").unwrap();
    let Event::Report(Packet { report: Report::Note { message, .. }, pid }) = next(&mut running) else { panic!() };
    assert_eq!(message, "late");
    assert_ne!(pid, running.pid());
    assert!(matches!(next(&mut running), Event::Closed));
    assert!(running.next().is_none());
}

#[test]
fn reports_arrive_before_the_end() {
    let run = scene("reports").start().unwrap().wait_first();
    assert_eq!(run.outcome, Outcome::Exited(0));
    let hits: Vec<_> = run.hits().map(|(probe, tid, tick, r)| (probe, tid, tick, r.gpr[3], r.rflags)).collect();
    assert_eq!(hits, [(5, 6, 77, 3, 17)]);
    assert_eq!(run.notes().collect::<Vec<_>>(), ["something is not supported"]);
}

#[test]
fn an_engine_fault_is_the_outcome_whatever_the_status() {
    let run = scene("fault").start().unwrap().wait();
    let Outcome::EngineFault { message, pc } = run.outcome else { panic!("{:?}", run.outcome) };
    assert_eq!((message.as_str(), pc.0), ("the cache is inconsistent", 0x1234));
}

#[test]
fn a_packet_that_does_not_parse_is_mentioned_and_skipped() {
    let run = scene("garbage").start().unwrap().wait();
    assert_eq!(run.outcome, Outcome::Exited(0));
    assert_eq!(run.troubles.len(), 1);
}

/// What the stand-in's ring holds: 1000 times `mov rax,[rdi]; ret`.
fn check_trace(totals: &session::TraceTotals) {
    let expected = (2000, 2000, 20_000, 10, None);
    let found = (totals.instructions, totals.accesses, totals.bytes, totals.buffers, totals.damage.clone());
    assert_eq!(found, expected);
}

#[test]
fn a_trace_is_read_to_its_end_by_both_decoders_alike() {
    let fast = scene("ring").start().unwrap().wait_first();
    assert_eq!(fast.troubles, [""; 0], "{:?}", fast.outcome);
    check_trace(&fast.traces[0]);
    let both = Launch { traces: Traces::Both, ..scene("ring") }.start().unwrap().wait_first();
    check_trace(&both.traces[0]);
    let (sender, events) = std::sync::mpsc::channel();
    let traces = Traces::Events(Box::new(move |_pid| {
        let sender = sender.clone();
        Box::new(move |event: &trace::event::Event| sender.send(*event).unwrap())
    }));
    let exact = Launch { traces, ..scene("ring") }.start().unwrap().wait();
    check_trace(&exact.traces[0]);
    assert_eq!(exact.traces[0].checksum, fast.traces[0].checksum);
    let loads: Vec<u64> = events
        .iter()
        .filter_map(|event| match event {
            trace::event::Event::Mem(m) if m.addr < 0x70000 => Some(m.addr),
            _ => None,
        })
        .collect();
    assert_eq!(loads, (0..1000).map(|n| 0x2000 + 8 * n).collect::<Vec<_>>());
}

#[test]
fn a_trace_whose_writer_was_killed_ends_where_it_stopped() {
    let run = scene("torn-ring").start().unwrap().wait_first();
    assert_eq!(run.outcome, Outcome::Signaled { signal: 9, crash: None });
    check_trace(&run.traces[0]);
}
