//! `check`: everything a change must pass, with a fixed sample of the long suites; `full`: all of them.
//!
//! Both end with one line `N passed, N failed`. `full` also writes what it found to docs/results.md, without dates, so
//! that the document changes only when a figure does.

use std::{
    env,
    fmt::Write as _,
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use crate::{
    agree, badinput, bench,
    confine::Confinement,
    determinism,
    guests::{clew_binary, has_program},
    isolation, oracles, pysuite,
    scratch::root,
    tally::Tally,
    tidy,
};

/// How much of each suite runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    Sample,
    Full,
}

const AGREE_SAMPLE: usize = 100;
const CONFINED_SAMPLE: usize = 20;
const REPLAY_SAMPLE: usize = 100;
const NULL_SAMPLE: usize = 40;
const PYSUITE_SAMPLE: usize = 60;

/// What the builds and the recordings of all suites take, with some to spare; with less, what fails is not the change.
const ROOM: u64 = 8 << 30;

/// Runs everything; false if something failed.
pub fn check(extent: Extent, clew: Option<String>) -> Result<bool, String> {
    let started = Instant::now();
    for place in [root(), env::temp_dir()] {
        enough_room(&place)?;
    }
    let mut tallies = vec![Tally::new("build and tests")];
    for (name, words) in cargo_steps() {
        step(&mut tallies[0], name, &words);
    }
    println!("{}", tallies[0]);
    tallies.push(tidy::tidy()?);
    println!("{}", tallies[1]);
    // Without a binary nothing else can run, and the step above has said why.
    match clew_binary(clew) {
        Ok(path) => suites(extent, &path.display().to_string(), &mut tallies),
        Err(why) => {
            let mut tally = Tally::new("suites");
            tally.count("clew", Err(why));
            tallies.push(tally);
        }
    }
    if extent == Extent::Full {
        fs::write(root().join("docs/results.md"), report(&tallies)).map_err(|e| format!("docs/results.md: {e}"))?;
    }
    let (passed, total) = tallies.iter().fold((0, 0), |(p, t), tally| (p + tally.passed, t + tally.total));
    println!();
    tallies.iter().for_each(|tally| println!("{tally}"));
    println!("time: {}", minutes(started.elapsed()));
    println!("{passed} passed, {} failed", total - passed);
    Ok(passed == total)
}

fn enough_room(place: &Path) -> Result<(), String> {
    let at = place.display();
    let fs = rustix::fs::statvfs(place).map_err(|e| format!("{at}: {e}"))?;
    let free = fs.f_bavail * fs.f_frsize;
    if free >= ROOM {
        return Ok(());
    }
    let (free, needed) = (free >> 20, ROOM >> 20);
    Err(format!("{at} has {free} MB free and the checks need {needed}: remove something, or check out elsewhere"))
}

fn cargo_steps() -> Vec<(&'static str, Vec<String>)> {
    // The oracles run by themselves afterwards, where their figures can be seen.
    let others = oracles::filter_of_others();
    let test = if has_program("cargo-nextest") {
        vec!["nextest", "run", "--workspace", "--no-fail-fast", "--status-level", "fail", "-E", &others]
    } else {
        vec!["test", "--workspace", "--no-fail-fast", "--quiet"]
    };
    [
        ("formatting", vec!["fmt", "--all", "--check"]),
        ("clippy", vec!["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]),
        ("documentation", vec!["doc", "--workspace", "--no-deps", "--document-private-items", "--quiet"]),
        ("tests", test),
    ]
    .map(|(name, words)| (name, words.into_iter().map(str::to_owned).collect()))
    .to_vec()
}

fn step(tally: &mut Tally, name: &str, words: &[String]) {
    println!("== cargo {}", words.join(" "));
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words).current_dir(root());
    match name {
        "documentation" => command.env("RUSTDOCFLAGS", "-D warnings"),
        // Tests against gdb or in Chromium must not pass because it is missing.
        _ => command.env("CLEW_REQUIRE_GDB", "1").env("CLEW_REQUIRE_CHROMIUM", "1"),
    };
    let result = match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(status.to_string()),
        Err(e) => Err(e.to_string()),
    };
    tally.count(name, result);
}

/// A suite, ready to run.
type Suite<'a> = dyn Fn() -> Result<Tally, String> + 'a;

/// The suites that run programs natively and under Clew.
fn suites(extent: Extent, clew: &str, tallies: &mut Vec<Tally>) {
    let full = extent == Extent::Full;
    let clew = || Some(clew.to_owned());
    let sample = |n: usize| (!full).then_some(n);
    let mut modes: Vec<String> = agree::Request::default().modes;
    if full {
        modes.push("tick".to_owned());
    }
    let agreement = |confinement: Confinement, n: usize| {
        let modes = if confinement == Confinement::default() { modes.clone() } else { agree::Request::default().modes };
        agree::agree(&agree::Request {
            clew: clew(),
            sample: sample(n),
            modes,
            confinement,
            ..agree::Request::default()
        })
    };
    let replay = agree::Request {
        clew: clew(),
        sample: sample(REPLAY_SAMPLE),
        replay: true,
        seeds: if full { agree::replay::SEEDS } else { agree::replay::SAMPLE_SEEDS },
        ..agree::Request::default()
    };
    let null = agree::Request {
        clew: clew(),
        sample: sample(NULL_SAMPLE),
        null: true,
        seeds: agree::null::SEEDS,
        ..agree::Request::default()
    };
    let plain = Confinement::default();
    let confined = Confinement { user: true, filter: true, mounts: true };
    let bench = bench::Request {
        clew: clew(),
        rounds: if full { 5 } else { 1 },
        only: None,
        shrink: if full { 1 } else { 20 },
        peers: full,
        publish: full,
    };
    let pysuite =
        pysuite::Request { clew: clew(), only: None, sample: sample(PYSUITE_SAMPLE), mode: "none".to_owned() };
    let steps: [(&str, &Suite<'_>); 11] = [
        ("oracles", &|| Ok(oracles::oracles(full))),
        ("agree", &|| agreement(plain, AGREE_SAMPLE)),
        ("agree confined", &|| agreement(confined, CONFINED_SAMPLE)),
        ("agree replay", &|| agree::agree(&replay)),
        ("agree null", &|| agree::agree(&null)),
        ("pysuite", &|| pysuite::pysuite(&pysuite)),
        ("determinism", &|| determinism::determinism(clew(), if full { 20 } else { 4 }, None)),
        ("isolation", &|| isolation::isolation(clew(), &["none", "count", "trace"])),
        ("badinput", &|| badinput::badinput(clew())),
        ("bench engine", &|| run_bench(&bench)),
        ("bench record", &|| run_record_bench(&bench)),
    ];
    for (name, suite) in steps {
        println!("== {name}");
        let started = Instant::now();
        let tally = suite().unwrap_or_else(|why| {
            let mut tally = Tally::new(name);
            tally.count("could not run", Err(why));
            tally
        });
        println!("{tally} ({})", minutes(started.elapsed()));
        tallies.push(tally);
    }
}

/// Measures and, if asked to, writes the table into docs/performance.md.
pub fn run_bench(request: &bench::Request) -> Result<Tally, String> {
    let (rows, tally) = bench::measure(request)?;
    if request.publish {
        bench::publish(&rows, &machine(), &root().join("docs/performance.md"))?;
    }
    Ok(tally)
}

/// The same for recording and replay, in a section of its own.
pub fn run_record_bench(request: &bench::Request) -> Result<Tally, String> {
    let (measured, tally) = bench::record::measure(request)?;
    if request.publish {
        bench::record::publish(&measured, &machine(), &root().join("docs/performance.md"))?;
    }
    Ok(tally)
}

fn minutes(time: Duration) -> String {
    format!("{} min {:02} s", time.as_secs() / 60, time.as_secs() % 60)
}

/// What kind of machine this is: figures mean little without it.
pub fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        cpuinfo.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split_once(": ")).map_or("?", |(_, m)| m);
    let flag = |name: &str| cpuinfo.lines().any(|l| l.starts_with("flags") && l.split_whitespace().any(|f| f == name));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name =
        system.lines().find_map(|l| l.strip_prefix("PRETTY_NAME=")).unwrap_or("Linux").trim_matches('"').to_owned();
    let kernel: String = kernel.trim().chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    format!(
        "Machine: {} × {model}{}{}, {name}, kernel {}.",
        std::thread::available_parallelism().map_or(1, usize::from),
        if flag("avx512f") { ", AVX-512" } else { "" },
        if flag("hypervisor") { ", virtual" } else { "" },
        kernel.trim_end_matches('.')
    )
}

fn report(tallies: &[Tally]) -> String {
    let mut out = String::from("# Results of the last `cargo xtask full`\n\n");
    let _ = writeln!(out, "{}\n\n| suite | passed | of |\n|---|---|---|", machine());
    for tally in tallies {
        let _ = writeln!(out, "| {} | {} | {} |", tally.name, tally.passed, tally.total);
    }
    for (title, pick) in
        [("Failures", (|t: &Tally| &t.failures) as fn(&Tally) -> &Vec<String>), ("Notes", |t| &t.notes)]
    {
        let _ = write!(out, "\n## {title}\n\n");
        let before = out.len();
        for tally in tallies {
            for line in pick(tally) {
                let _ = writeln!(out, "- {}: {}", tally.name, line.split_whitespace().collect::<Vec<_>>().join(" "));
            }
        }
        if out.len() == before {
            out.push_str("None.\n");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_names_every_suite_and_failure() {
        let mut tally = Tally::new("agree");
        tally.count("one", Ok(()));
        tally.count("two", Err("stdout\n differs".into()));
        let text = report(&[tally]);
        assert!(text.contains("| agree | 1 | 2 |"), "{text}");
        assert!(text.contains("- agree: two: stdout differs"), "{text}");
        assert!(text.contains("## Notes\n\nNone.\n"), "{text}");
    }
}
