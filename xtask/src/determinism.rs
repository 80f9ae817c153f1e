//! Determinism: with the same seed, every run of a program is the same run.
//!
//! Guarantees: a pass means that instruction count, tick count, schedule digest and output were equal in all runs, and
//! that other seeds gave other schedules to the threaded programs. Programs that wait for other processes are left out:
//! what another process does is not ours to decide.

use std::time::Duration;

use crate::{
    guests::{Stage, clew_binary, has_program},
    stats::{self, RunStats},
    tally::Tally,
};

struct Program {
    name: &'static str,
    threaded: bool,
    argv: &'static [&'static str],
}

const PROGRAMS: &[Program] = &[
    Program {
        name: "xz -T2",
        threaded: true,
        argv: &["xz", "-T2", "--block-size=32768", "-1", "-k", "-c", "in/binary.bin"],
    },
    Program { name: "sort --parallel", threaded: true, argv: &["sort", "--parallel=2", "-n", "in/many.txt"] },
    Program { name: "timed waits", threaded: true, argv: &["threads", "cond"] },
    Program { name: "mutex", threaded: true, argv: &["threads", "mutex"] },
    Program { name: "C++ threads", threaded: true, argv: &["exceptions"] },
    Program { name: "gzip", threaded: false, argv: &["gzip", "-n", "-c", "in/text.txt"] },
    Program { name: "Python with random hashes", threaded: false, argv: &["/usr/bin/python3", "-c", PYTHON] },
    Program { name: "Lua", threaded: false, argv: &["lua5.4", "-e", LUA] },
    Program { name: "sqlite3", threaded: false, argv: &["sqlite3", ":memory:", SQL] },
    Program { name: "clocks and random numbers", threaded: false, argv: &["clocks"] },
];

const PYTHON: &str = "import random, time, os; print(list({'a', 'b', 'c', 'd', 'e'}), random.random(), os.urandom(4).hex(), time.time())";
const LUA: &str = "local t = {} for i = 1, 3000 do t[i] = math.random(1000) end table.sort(t) print(t[1], t[1500], os.time(), tostring(t))";
const SQL: &str = "create table t(a, b); with recursive c(n) as (select 1 union all select n + 1 from c where n < 500) \
                   insert into t select n, random() from c; select sum(b), hex(randomblob(4)) from t;";

const SEED: u64 = 7;
const OTHER_SEEDS: [u64; 4] = [1, 2, 3, 4];
const LIMIT: Duration = Duration::from_secs(120);

/// Runs every program `runs` times with one seed, and the threaded ones with others.
pub fn determinism(clew: Option<String>, runs: usize, only: Option<&str>) -> Result<Tally, String> {
    let mut tally = Tally::new("determinism");
    let stage = Stage::new("determinism", &clew_binary(clew)?)?;
    for program in PROGRAMS.iter().filter(|p| only.is_none_or(|text| p.name.contains(text))) {
        if !has_program(program.argv[0]) && !stage.bin().join(program.argv[0]).exists() {
            tally.note(format!("{} is not run: {} is not installed", program.name, program.argv[0]));
            continue;
        }
        tally.count(program.name, check(&stage, program, runs));
    }
    Ok(tally)
}

fn check(stage: &Stage, program: &Program, runs: usize) -> Result<(), String> {
    let first = run(stage, program, SEED)?;
    for n in 2..=runs {
        let other = run(stage, program, SEED)?;
        if other != first {
            return Err(format!("run {n} differs from run 1: {}", what_differs(&first, &other)));
        }
    }
    if !program.threaded {
        return Ok(());
    }
    for seed in OTHER_SEEDS {
        if run(stage, program, seed)?.0.schedule != first.0.schedule {
            return Ok(());
        }
    }
    Err(format!("seeds {SEED} and {OTHER_SEEDS:?} all give the same schedule"))
}

fn run(stage: &Stage, program: &Program, seed: u64) -> Result<(RunStats, Vec<u8>), String> {
    let (clew, seed) = (stage.clew.display().to_string(), seed.to_string());
    let mut argv = vec![clew.as_str(), "run", "--stats", "--json", "--quiet", "--mode", "count", "--seed", &seed, "--"];
    argv.extend(program.argv);
    let outcome = stage.run("determinism", &argv, LIMIT)?;
    let stats = stats::read(&outcome.stderr).ok_or_else(|| {
        let text = String::from_utf8_lossy(&outcome.stderr);
        format!("no statistics ({}): {}", outcome.end, text.lines().last().unwrap_or_default())
    })?;
    Ok((stats, outcome.stdout))
}

fn what_differs(a: &(RunStats, Vec<u8>), b: &(RunStats, Vec<u8>)) -> String {
    if a.0.instructions != b.0.instructions {
        return format!("{} and {} instructions", a.0.instructions, b.0.instructions);
    }
    if a.0 != b.0 {
        return format!("ticks {} {}, schedule {} {}", a.0.ticks, b.0.ticks, a.0.schedule, b.0.schedule);
    }
    "output".to_owned()
}
