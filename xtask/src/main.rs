//! Automation of the workspace: `cargo xtask TASK`.
//!
//! Everything that checks, measures or prepares is a task here, so that what a person runs and what runs automatically
//! are the same. Suites print `name: n of N passed`; the status is 0 only if nothing failed.

mod accuracy;
mod agree;
mod args;
mod badinput;
mod bench;
mod check;
mod confine;
mod determinism;
mod exec;
mod guests;
mod isolation;
mod oracles;
mod pysuite;
mod random;
mod scratch;
mod setup;
mod stats;
mod tally;
mod tidy;

use std::process::ExitCode;

use args::Args;
use check::Extent;
use tally::Tally;

const USAGE: &str = "usage: cargo xtask TASK [OPTIONS]

  setup         install the programs that the checks run (Debian packages; the only task that uses the network)
  check         formatting, lints, documentation, tidy, tests, and a fixed sample of every suite below
  full          the same with the whole suites; writes docs/results.md and the table of docs/performance.md
  tidy          rules of the tree: headers, layers, unsafe code, links
  agree         command lines natively and under `clew run`, compared byte for byte
                  --mode none,tick,count,trace  --only TEXT  --sample N  --seed N  --as-user  --confined
                  --native-only  --jobs N  --keep  --limit SECONDS
                  --replay: `clew record` and `clew replay --verify` instead; threaded cases under --seeds N seeds
                  --null: `clew record`, then trials that alter nothing must go on as recorded
  pysuite       CPython's own tests natively and under `clew run`    --only MODULE  --sample N  --mode MODE
  determinism   the same seed gives the same run                     --runs N  --only TEXT
  isolation     wild loads and stores behave as natively             --mode LIST
  badinput      bad input gives one clear sentence and the right status
  oracles       the tests against independent oracles, with their figures   --full
  accuracy slice  slices of real bugs with known causes              --corpus DIR  --only ID,...  --publish
                  --budget TIME
  accuracy switch trials until their critical predicates, and what is to be read then   as above
  accuracy why    ranks of their causes                              as above, --later
  bench engine  ratios to native, beside valgrind and qemu           --rounds N  --only TEXT  --quick  --no-peers
                  --publish
  bench record  recording and replay: ratios to native, sizes        --rounds N  --only TEXT  --quick  --no-peers
                  --publish
  bench slice   tracing, slices, memory                              --only TEXT  --quick  --no-peers  --publish
  bench switch  trials, beside running again from the start          --quick  --publish

Every suite takes --clew PATH for another binary than the workspace's own.
";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let task = words.next().unwrap_or_default();
    match run(&task, Args::new(words)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::from(2)
        }
    }
}

/// Runs a task; false means that something did not pass.
fn run(task: &str, mut args: Args) -> Result<bool, String> {
    match task {
        "setup" => {
            args.finish()?;
            setup::setup()
        }
        "check" | "full" => {
            let clew = args.value("--clew")?;
            args.finish()?;
            check::check(if task == "full" { Extent::Full } else { Extent::Sample }, clew)
        }
        "tidy" => {
            args.finish()?;
            show(tidy::tidy()?)
        }
        "agree" => {
            let request = agree::Request::from_args(&mut args)?;
            args.finish()?;
            show(agree::agree(&request)?)
        }
        "accuracy" => {
            let what = args.word().unwrap_or_default();
            let request = accuracy::Request::from_args(&mut args)?;
            args.finish()?;
            match what.as_str() {
                "slice" => accuracy::slices(&request),
                "switch" => accuracy::switches(&request),
                "why" => accuracy::whys(&request),
                other => Err(format!("accuracy of `{other}` cannot be measured: write slice, switch or why")),
            }
        }
        "pysuite" => {
            let request = pysuite::Request {
                clew: args.value("--clew")?,
                only: args.value("--only")?,
                sample: args.number("--sample")?.map(|n| n as usize),
                mode: args.value("--mode")?.unwrap_or_else(|| "none".to_owned()),
            };
            args.finish()?;
            show(pysuite::pysuite(&request)?)
        }
        "determinism" => {
            let (clew, only) = (args.value("--clew")?, args.value("--only")?);
            let runs = args.number("--runs")?.unwrap_or(20) as usize;
            args.finish()?;
            show(determinism::determinism(clew, runs, only.as_deref())?)
        }
        "isolation" => {
            let clew = args.value("--clew")?;
            let modes = args.value("--mode")?.unwrap_or_else(|| "none,tick,count,trace".to_owned());
            args.finish()?;
            show(isolation::isolation(clew, &modes.split(',').collect::<Vec<_>>())?)
        }
        "badinput" => {
            let clew = args.value("--clew")?;
            args.finish()?;
            show(badinput::badinput(clew)?)
        }
        "oracles" => {
            let full = args.flag("--full");
            args.finish()?;
            show(oracles::oracles(full))
        }
        "bench" => {
            let what = args.word();
            let request = bench::Request::from_args(&mut args)?;
            args.finish()?;
            match what.as_deref() {
                Some("engine") => show(check::run_bench(&request)?),
                Some("record") => show(check::run_record_bench(&request)?),
                Some("slice") => show(bench::slice::bench(&request)?),
                Some("switch") => show(bench::switch::bench(&request)?),
                _ => Err("only `bench engine`, `bench record`, `bench slice` and `bench switch` exist".to_owned()),
            }
        }
        _ => Err(format!("no task `{task}`\n\n{USAGE}")),
    }
}

fn show(tally: Tally) -> Result<bool, String> {
    println!("{tally}");
    Ok(tally.passed_all())
}
