//! `clew record --from … --to …`: only a stretch of a run is recorded, and it replays as any other recording.

mod common;

use common::place::{Place, finish};
use common::{compile, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What the guest of most of these tests exits with.
const STATUS: i32 = 7;

/// Records with these options; the program's own status must come back.
#[track_caller]
fn record(place: &Place, options: &[&str], program: &Path, arguments: &[&str], status: i32) -> Output {
    let mut clew = place.clew(["record"]);
    clew.args(options).arg("--").arg(program).args(arguments);
    let output = finish(clew, b"a line of input\n");
    assert_eq!(output.status.code(), Some(status), "{options:?}: {}", stderr(&output));
    output
}

/// The newest recording replays without a difference and writes exactly this.
#[track_caller]
fn check_replays(place: &Place, expected: &str) {
    let replayed = place.run(["replay", "--verify", "latest"]);
    assert_eq!((replayed.status.code(), stderr(&replayed)), (Some(0), "clew: identical\n"));
    assert_eq!(stdout(&replayed), expected);
}

/// What was written between two texts.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let text = &text[text.find(begin).expect("it begins") + begin.len()..];
    &text[..if end.is_empty() { text.len() } else { text.find(end).expect("it ends") }]
}

fn info(place: &Place) -> serde_json::Value {
    serde_json::from_slice(&place.run(["info", "latest", "--json"]).stdout).expect("it is JSON")
}

fn compile_threads(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/region_threads.c");
    let program = folder.join("threads");
    let mut cc = Command::new("cc");
    let status = cc.args(["-g", "-O0", "-pthread", "-o"]).arg(&program).arg(source).status().expect("cc runs");
    assert!(status.success());
    program
}

#[test]
fn all_kinds_of_memory_are_as_they_were_and_only_the_regions_output_comes_back() {
    let place = Place::new("memory");
    let program = compile("region", &place.folder);
    let source = include_str!("guests/region.c");
    let line = 1 + source.lines().position(|l| l.contains("printf(\"stack")).unwrap();
    let line = format!("region.c:{line}");
    for options in [&["--from", "region"][..], &["--from", &line], &["--from", "region#1", "--seed", "5"]] {
        let recorded = record(&place, options, &program, &["1000"], STATUS);
        let expected = between(stdout(&recorded), "prefix 1000\n", "");
        assert!(expected.starts_with("stack ") && expected.contains("input a line of input\n"), "{expected}");
        check_replays(&place, expected);
        assert!(info(&place)["units"][0]["region"].as_u64().is_some_and(|tick| tick > 1000));
    }
    // Nothing outside of the recording is needed.
    std::fs::remove_file(&program).unwrap();
    assert_eq!(place.run(["replay", "--verify", "latest"]).status.code(), Some(0));
    place.done();
}

#[test]
fn the_size_of_a_recording_does_not_depend_on_what_was_before() {
    let place = Place::new("size");
    let program = compile("region", &place.folder);
    let sizes = ["1000", "1000000"].map(|rounds| {
        let recorded = record(&place, &["--from", "region"], &program, &[rounds], STATUS);
        check_replays(&place, between(stdout(&recorded), &format!("prefix {rounds}\n"), ""));
        let unit = &info(&place)["units"][0];
        (unit["records"].as_u64().unwrap(), unit["bytes"].as_u64().unwrap())
    });
    let [(records, bytes), (more_records, more_bytes)] = sizes;
    // Digests of pages are taken by the clock.
    assert!(records.abs_diff(more_records) < 20, "{sizes:?}");
    assert!(bytes.abs_diff(more_bytes) < 16384, "{sizes:?}");
    assert!(bytes < 4 << 20, "memory that was never touched is not in it: {sizes:?}");
    place.done();
}

#[test]
fn threads_go_on_from_where_they_waited() {
    let place = Place::new("threads");
    let program = compile_threads(&place.folder);
    for options in
        [&["--from", "region"][..], &["--from", "region", "--cpu", "native"], &["--from", "region", "--seed", "3"]]
    {
        let recorded = record(&place, options, &program, &[], 3);
        let text = stdout(&recorded);
        for part in
            ["sleeper 2: 6.000 8.000 own 7\n", "reader: 5 hello own 5\n", "vectors: 11 22 33 44\n", "caught 10 "]
        {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        check_replays(&place, between(text, "prefix\n", ""));
    }
    place.done();
}

#[test]
fn a_region_can_begin_at_any_tick_of_any_thread() {
    let place = Place::new("ticks");
    let program = compile_threads(&place.folder);
    for tick in [1, 9_999, 100_000, 1_234_567] {
        record(&place, &["--from", &format!("ticks:{tick}")], &program, &[], 3);
        let replayed = place.run(["replay", "--verify", "latest"]);
        assert_eq!(stderr(&replayed), "clew: identical\n", "{tick}");
        let from = info(&place)["units"][0]["region"].as_u64().unwrap();
        // A call that is under way ends first.
        assert!((tick..tick + 20).contains(&from), "{from} for {tick}");
    }
    place.done();
}

#[test]
fn a_region_can_be_so_many_instructions() {
    let place = Place::new("icount");
    let program = compile("region", &place.folder);
    const FROM: u64 = 200_000;
    for length in [0, 1000, 300_000] {
        let to = format!("icount:{}", FROM + length);
        record(&place, &["--from", &format!("icount:{FROM}"), "--to", &to], &program, &["100000"], STATUS);
        assert_eq!(place.run(["replay", "--verify", "latest"]).status.code(), Some(0));
        let recording = recording::Recording::open(&place.home.join("latest")).unwrap();
        let engine = session::EngineProgram::in_memory(clew::ENGINE).unwrap();
        let replayer = session::Replayer { engine: &engine, recording: &recording };
        let mut session = session::Session::open(&replayer, &replayer.images()[0]).unwrap();
        let from = session.moment();
        session.seek_end(&mut || false).unwrap();
        let to = session.moment();
        let window = session.window(from, to, session::Traces::Totals, &mut || false).unwrap();
        let executed: u64 = window.totals.iter().map(|t| t.instructions).sum();
        // Both ends are at ticks, which are some instructions apart.
        assert!(executed.abs_diff(length) < 200, "{executed} instead of {length}");
    }
    place.done();
}

#[test]
fn the_program_goes_on_unrecorded_behind_the_end() {
    let place = Place::new("end");
    let program = compile("region", &place.folder);
    let recorded = record(&place, &["--to", "region"], &program, &["100", "spin"], STATUS);
    assert!(stdout(&recorded).ends_with("after\n"));
    check_replays(&place, "prefix 100\n");
    assert_eq!(info(&place)["units"][0]["end"], "left");
    for to in ["after", "after#1"] {
        let recorded = record(&place, &["--from", "region", "--to", to], &program, &["100", "spin"], STATUS);
        check_replays(&place, between(stdout(&recorded), "prefix 100\n", "after\n"));
        assert_eq!(info(&place)["units"][0]["end"], "left");
    }
    record(&place, &["--from", "ticks:500", "--to", "ticks:2000"], &program, &["1"], STATUS);
    check_replays(&place, "");
    place.done();
}

#[test]
fn processes_are_recorded_from_where_they_reach_the_region() {
    let place = Place::new("family");
    let program = compile("region_family", &place.folder);
    let inside = "in the region: parent\nin the region: late child\nreplaced\n";
    for (how, units, expected) in [("", 3, inside), ("execve", 3, inside), ("child", 1, "in the region: early child\n")]
    {
        record(&place, &["--from", "region"], &program, &[how], 4);
        check_replays(&place, expected);
        assert_eq!(info(&place)["units"].as_array().unwrap().len(), units, "{how}");
    }
    // A place in a program that another one executes.
    let symbols = image::Image::open(&program).unwrap();
    let at = symbols.find_function("region")[0].start.0;
    let place_name = format!("{}+{at:#x}", program.display());
    record(&place, &["--from", &place_name], Path::new("env"), &["A=1", program.to_str().unwrap()], 4);
    check_replays(&place, inside);
    place.done();
}

#[test]
fn sessions_begin_at_the_regions_first_moment() {
    let place = Place::new("session");
    let program = compile("region", &place.folder);
    record(&place, &["--from", "region", "--to", "after"], &program, &["100"], STATUS);
    let recording = recording::Recording::open(&place.home.join("latest").canonicalize().unwrap()).unwrap();
    let unit = &recording.units()[0];
    let engine = session::EngineProgram::in_memory(clew::ENGINE).unwrap();
    let replayer = session::Replayer { engine: &engine, recording: &recording };
    let mut session = session::Session::open(&replayer, &unit.name).unwrap();
    let first = session.start_moment();
    assert_eq!(Some(first.tick), unit.start.region);
    let end = session.forward(None, &mut || false).unwrap();
    assert!(matches!(end, session::Stopped::End(_)), "{end:?}");
    let last = session.moment();
    assert_eq!((last.tick, last.pc), unit.end.map(|e| (e.tick, e.pc)).unwrap());
    session.seek(first, &mut || false).unwrap();
    assert_eq!(session.moment(), first);
    place.done();
}

#[test]
fn a_point_that_is_never_reached_leaves_no_recording() {
    let place = Place::new("never");
    let program = compile("region", &place.folder);
    for from in ["region#2", "ticks:1000000000000"] {
        let output = record(&place, &["--from", from], &program, &["10"], STATUS);
        assert!(stdout(&output).ends_with("after\n"));
        assert_eq!(stderr(&output), format!("clew: {from} was never reached: nothing was recorded\n"));
        assert_eq!(place.run(["replay", "latest"]).status.code(), Some(2));
    }
    place.done();
}

#[test]
fn points_that_do_not_exist_are_refused_in_one_sentence() {
    let place = Place::new("bad");
    let program = compile("region", &place.folder);
    for (point, part) in [
        ("nothing", "has no function `nothing`"),
        ("region.c:1", "region.c:1 has no code; the next line that has is region.c:"),
        ("region.c:9999", "has no code from region.c:9999"),
        ("other.c:1", "has no code from other.c:1"),
        ("region+0x99999999", "has no address 0x99999999"),
        ("libc.so.6+0x10", "`libc.so.6` is not the program"),
        ("region#0", "is no point of a run"),
        ("ticks:many", "is no point of a run"),
        ("icount:many", "is no point of a run"),
    ] {
        for option in ["--from", "--to"] {
            let mut clew = place.clew(["record", option, point, "--"]);
            clew.arg(&program);
            let output = finish(clew, b"");
            let told = stderr(&output);
            assert_eq!((output.status.code(), stdout(&output)), (Some(125), ""), "{point}: {told}");
            assert!(told.starts_with(&format!("clew: {option}: ")) && told.contains(part), "{point}: {told}");
            assert_eq!(told.lines().count(), 1, "{told}");
        }
    }
    assert!(!place.home.exists(), "nothing was begun");
    place.done();
}
