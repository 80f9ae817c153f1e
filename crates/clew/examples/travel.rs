//! What going about in a recording costs: seeks, steps back, reverse-continue over everything, trials, checkpoints.
//!
//! `travel FOLDER` compiles `guests/bench/travel.c` into the folder, records it there and prints the rows of a table. Ratios
//! to native are of this same run. `cargo xtask bench record` runs it and publishes the rows.

use model::serve::{Alteration, Moment};
use recording::{Folder, Meta, Recording};
use session::{Budget, Candidate, EngineProgram, Launch, Recorder, Replayer, Session, Stdio};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

type Any = Box<dyn std::error::Error>;

fn main() -> Result<(), Any> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("usage: travel FOLDER")?);
    std::fs::create_dir_all(&folder)?;
    let program = folder.join("travel");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests/bench/travel.c");
    let built = Command::new("cc").args(["-g", "-O1", "-o"]).arg(&program).arg(source).status()?;
    assert!(built.success(), "travel.c compiles");
    let engine = EngineProgram::in_memory(clew::ENGINE)?;
    println!("| what | measured | goal |\n|---|---|---|");
    travel(&engine, &program, &folder)?;
    trials(&engine, &program, &folder)?;
    checkpoints(&engine, &program, &folder)
}

fn record(engine: &EngineProgram, program: &Path, args: &[&str], to: &Path) -> Result<Recording, Any> {
    // What an earlier run left is of no use.
    let _ = std::fs::remove_dir_all(to);
    let recorder = Recorder::new(Folder::create(to, &Meta::default())?);
    let name = program.display().to_string();
    let mut launch = Launch::new(engine, program, std::iter::once(name.as_str()).chain(args.iter().copied()));
    launch.stdio = [Stdio::Null, Stdio::Null, Stdio::Null];
    recorder.equip(&mut launch, None)?;
    launch.start()?.wait();
    recorder.finish(&Meta::default())?;
    Ok(Recording::open(to)?)
}

fn native(program: &Path, args: &[&str]) -> Result<Duration, Any> {
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let begun = Instant::now();
        Command::new(program).args(args).stdout(std::process::Stdio::null()).status()?;
        best = best.min(begun.elapsed());
    }
    Ok(best)
}

fn row(what: &str, measured: String, goal: &str) {
    println!("| {what} | {measured} | {goal} |");
}

fn ms(d: Duration) -> String {
    format!("{:.1} ms", d.as_secs_f64() * 1e3)
}

/// Median and maximum.
fn spread(mut all: Vec<Duration>) -> String {
    all.sort_unstable();
    format!("median {}, at most {}", ms(all[all.len() / 2]), ms(all[all.len() - 1]))
}

/// Seeks, steps back and a watchpoint a billion instructions back.
fn travel(engine: &EngineProgram, program: &Path, folder: &Path) -> Result<(), Any> {
    let never = &mut || false;
    let native = native(program, &[])?;
    let recording = record(engine, program, &[], &folder.join("long"))?;
    let replayer = Replayer { engine, recording: &recording };
    let unit = replayer.images()[0];
    let last = recording.unit(&unit)?.end.ok_or("it ended")?.tick;
    let mut session = Session::open(&replayer, &unit)?;
    let begun = Instant::now();
    session.seek_end(never)?;
    row(
        "first pass over 1 G instructions",
        format!("{} ({:.1} × native)", ms(begun.elapsed()), begun.elapsed().as_secs_f64() / native.as_secs_f64()),
        "",
    );
    let mut random = 88_172_645_463_325_252u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % last
    };
    let mut seeks = Vec::new();
    for _ in 0..20 {
        let begun = Instant::now();
        session.seek_tick(next(), never)?;
        seeks.push(begun.elapsed());
    }
    row("seek to a random moment", spread(seeks), "≤ 1 s");
    let mut steps = Vec::new();
    for _ in 0..20 {
        let begun = Instant::now();
        session.step_back(0, never)?;
        steps.push(begun.elapsed());
    }
    row("reverse-step", spread(steps), "≤ 100 ms");
    let image = image::Image::open(program)?;
    let symbol = image.symbols().find("marker").first().ok_or("the marker has a symbol")?.start;
    let maps = session.maps()?;
    let key = &recording.unit(&unit)?.start.program;
    let map = maps.iter().find(|m| m.key == *key).ok_or("the program is mapped")?;
    let bias = image.bias(image::FileOffset(map.offset), model::GuestAddr(map.start)).ok_or("it has a bias")?;
    session.seek_end(never)?;
    session.set_watches(&[(bias.to_guest(symbol).0, 4)]);
    let begun = Instant::now();
    let stopped = session.backward(never)?;
    let time = begun.elapsed();
    let ratio = time.as_secs_f64() / native.as_secs_f64();
    row(
        "reverse-continue to a watchpoint 1 G instructions back",
        format!("{} ({ratio:.2} × native; {stopped:?} at {})", ms(time), session.moment()),
        "≤ 5 × native",
    );
    Ok(())
}

/// Trials of a guest of a million instructions, from all over the run.
fn trials(engine: &EngineProgram, program: &Path, folder: &Path) -> Result<(), Any> {
    let recording = record(engine, program, &["100000"], &folder.join("short"))?;
    let replayer = Replayer { engine, recording: &recording };
    let unit = replayer.images()[0];
    let key = recording.unit(&unit)?.start.program.clone();
    for jobs in [1, std::thread::available_parallelism().map_or(1, usize::from)] {
        let mut session = Session::open(&replayer, &unit)?;
        let maps = session.maps()?;
        let code = maps.iter().filter(|m| m.prot & 4 != 0 && m.key == key);
        let ranges: Vec<(u64, u64)> = code.map(|m| (m.start, m.end)).collect();
        let (predicates, _) = session.predicates(&ranges, 1 << 20, &mut || false)?;
        let every = (predicates.len() / 400).max(1);
        let moments: Vec<Moment> = predicates.iter().step_by(every).take(400).map(|p| p.moment).collect();
        let flip = |moment: &Moment| Candidate { moment: *moment, alteration: Alteration::Flip };
        let candidates: Vec<Candidate> = moments.iter().map(flip).collect();
        let budget = Budget { jobs, ..Budget::default() };
        let begun = Instant::now();
        session.trials(&candidates, &budget, &mut |_, _| ControlFlow::Continue(()))?;
        let rate = candidates.len() as f64 / begun.elapsed().as_secs_f64();
        let goal = if jobs == 1 { "≥ 150 per second and core" } else { "" };
        row(&format!("trials of a guest of 1 M instructions, {jobs} at a time"), format!("{rate:.0} per second"), goal);
    }
    Ok(())
}

/// Memory of a hundred checkpoints.
fn checkpoints(engine: &EngineProgram, program: &Path, folder: &Path) -> Result<(), Any> {
    let recording = record(engine, program, &["2000000", "100"], &folder.join("large"))?;
    let replayer = Replayer { engine, recording: &recording };
    let unit = replayer.images()[0];
    let last = recording.unit(&unit)?.end.ok_or("it ended")?.tick;
    let mut session = Session::open(&replayer, &unit)?;
    let before = proportional(&session.processes());
    let mut copies = Vec::new();
    for n in 0..100 {
        session.forward(Some(Moment { tick: last * n / 101 + 1, pc: 0 }), &mut || false)?;
        copies.push(session.copy()?);
    }
    let mut all = session.processes();
    all.extend(copies.iter().map(session::Live::pid));
    let used = proportional(&all).saturating_sub(before);
    row(
        "memory of 100 checkpoints of a 100 MB guest that touches 1 % between them",
        format!("{} MB", used >> 20),
        "≤ 300 MB",
    );
    Ok(())
}

/// Bytes that processes use, shared pages divided among those that share them.
fn proportional(pids: &[u32]) -> u64 {
    let of = |pid: &u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let line = text.lines().find(|l| l.starts_with("Pss:")).unwrap_or_default();
        line.split_ascii_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) << 10
    };
    pids.iter().map(of).sum()
}
