//! What the engine costs: ratios to native beside valgrind and qemu.
//!
//! Every column of a row runs once per round, in turn, so that a busy moment of the machine hits all of them; the minimum
//! over the rounds counts. Guarantees: every measured run printed the same as the native one. May miss: noise that lasts
//! longer than the whole measurement; read ratios as good to about a tenth.

pub mod record;
pub mod slice;
pub mod switch;
mod table;
mod workloads;

use std::{
    fs::File,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::{
    args::Args,
    guests::{Stage, clew_binary, has_program},
    stats,
    tally::Tally,
};
pub use table::publish;
pub use workloads::Workload;

/// No workload takes this long in any column.
const LIMIT: Duration = Duration::from_secs(180);

/// A way to run a workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Column {
    Native,
    None,
    Tick,
    Count,
    TraceDropped,
    TraceConsumed,
    Valgrind,
    Qemu,
}

pub const COLUMNS: [Column; 8] = [
    Column::Native,
    Column::None,
    Column::Tick,
    Column::Count,
    Column::TraceDropped,
    Column::TraceConsumed,
    Column::Valgrind,
    Column::Qemu,
];

impl Column {
    pub fn title(self) -> &'static str {
        match self {
            Column::Native => "native",
            Column::None => "none",
            Column::Tick => "tick",
            Column::Count => "count",
            Column::TraceDropped => "trace dropped",
            Column::TraceConsumed => "trace consumed",
            Column::Valgrind => "valgrind none",
            Column::Qemu => "qemu-user",
        }
    }

    /// Words before the workload's command line.
    fn prefix(self, clew: &str) -> Vec<String> {
        let words = |list: &[&str]| list.iter().map(|w| (*w).to_owned()).collect();
        match self {
            Column::Native => Vec::new(),
            Column::None => words(&[clew, "run", "--quiet", "--mode", "none", "--"]),
            Column::Tick => words(&[clew, "run", "--quiet", "--mode", "tick", "--"]),
            Column::Count => words(&[clew, "run", "--quiet", "--mode", "count", "--"]),
            Column::TraceDropped => words(&[clew, "run", "--quiet", "--mode", "trace", "--sink", "drop", "--"]),
            Column::TraceConsumed => words(&[clew, "run", "--quiet", "--mode", "trace", "--sink", "host", "--"]),
            Column::Valgrind => words(&["valgrind", "--tool=none", "-q"]),
            Column::Qemu => words(&["qemu-x86_64"]),
        }
    }

    fn available(self) -> bool {
        match self {
            Column::Valgrind => has_program("valgrind"),
            Column::Qemu => has_program("qemu-x86_64"),
            _ => true,
        }
    }
}

/// One measured row: the best time per column, or why there is none.
#[derive(Clone, Debug)]
pub struct Row {
    pub workload: Workload,
    pub instructions: Option<u64>,
    pub best: Vec<Result<Duration, String>>,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Request {
    pub clew: Option<String>,
    pub rounds: usize,
    pub only: Option<String>,
    /// Divides the size of every workload; 1 is the full size.
    pub shrink: u64,
    /// Peers take long; leave them out of a quick look.
    pub peers: bool,
    pub publish: bool,
}

impl Request {
    pub fn from_args(args: &mut Args) -> Result<Request, String> {
        let quick = args.flag("--quick");
        Ok(Request {
            clew: args.value("--clew")?,
            rounds: args.number("--rounds")?.map_or(if quick { 1 } else { 5 }, |n| (n as usize).max(1)),
            only: args.value("--only")?,
            shrink: if quick { 20 } else { 1 },
            peers: !args.flag("--no-peers") && !quick,
            publish: args.flag("--publish"),
        })
    }
}

/// Measures every workload in every column.
pub fn measure(request: &Request) -> Result<(Vec<Row>, Tally), String> {
    let mut tally = Tally::new("bench engine");
    let stage = Stage::new("bench", &clew_binary(request.clew.clone())?)?;
    let mut rows = Vec::new();
    for workload in workloads::all(&stage, request.shrink)? {
        if request.only.as_ref().is_some_and(|only| !workload.name.contains(only.as_str())) {
            continue;
        }
        if !has_program(&workload.argv[0]) && !PathBuf::from(&workload.argv[0]).is_file() {
            tally.note(format!("{} is not measured: {} is not installed", workload.name, workload.argv[0]));
            continue;
        }
        let row = measure_row(&stage, workload, request)?;
        for (column, best) in COLUMNS.iter().zip(&row.best) {
            match best {
                Err(why) if why.is_empty() => {}
                Err(why) => tally.count(&format!("{} ({})", row.workload.name, column.title()), Err(why.clone())),
                Ok(_) => tally.count("", Ok(())),
            }
        }
        println!("{}", table::line(&row));
        rows.push(row);
    }
    Ok((rows, tally))
}

fn measure_row(stage: &Stage, workload: Workload, request: &Request) -> Result<Row, String> {
    let folder = stage.fresh("bench").map_err(|e| e.to_string())?;
    let clew = stage.clew.display().to_string();
    let mut best: Vec<Result<Duration, String>> = COLUMNS
        .iter()
        .map(|column| {
            let peer = matches!(column, Column::Valgrind | Column::Qemu);
            // An empty reason means that the column was left out on purpose.
            if column.available() && (request.peers || !peer) { Ok(Duration::MAX) } else { Err(String::new()) }
        })
        .collect();
    let mut native_output = Vec::new();
    for _ in 0..request.rounds {
        for (column, slot) in COLUMNS.iter().zip(&mut best) {
            let Ok(so_far) = slot else { continue };
            let mut argv = column.prefix(&clew);
            argv.extend(workload.argv.iter().cloned());
            match timed(stage, &folder, &argv, &workload) {
                Ok((time, output)) => {
                    if *column == Column::Native {
                        native_output = output;
                    } else if output != native_output {
                        *slot = Err("prints something else than natively".to_owned());
                        continue;
                    }
                    *so_far = (*so_far).min(time);
                }
                Err(why) => *slot = Err(why),
            }
        }
    }
    let instructions = count_instructions(stage, &folder, &clew, &workload);
    Ok(Row { workload, instructions, best })
}

/// Runs once; gives the wall time and what was printed.
fn timed(
    stage: &Stage,
    folder: &std::path::Path,
    argv: &[String],
    workload: &Workload,
) -> Result<(Duration, Vec<u8>), String> {
    let (out, err) = (folder.join("tmp/out"), folder.join("tmp/err"));
    let file = |path: &PathBuf| File::create(path).map(Stdio::from).map_err(|e| e.to_string());
    let mut command = Command::new(&argv[0]);
    command
        .args(&argv[1..])
        .env_clear()
        .envs(stage.environment(folder))
        .env("PYTHONHASHSEED", "0")
        .current_dir(folder.join("w"))
        .stdin(match &workload.stdin {
            Some(path) => File::open(path).map(Stdio::from).map_err(|e| e.to_string())?,
            None => Stdio::null(),
        })
        .stdout(file(&out)?)
        .stderr(file(&err)?);
    let started = Instant::now();
    let status = wait_with_limit(&mut command).map_err(|e| format!("{}: {e}", argv[0]))?;
    let time = started.elapsed();
    if !status.success() {
        let said = std::fs::read_to_string(&err).unwrap_or_default();
        return Err(format!("{status} {}", said.lines().last().unwrap_or_default()));
    }
    std::fs::read(&out).map(|output| (time, output)).map_err(|e| e.to_string())
}

/// Waits for the end without polling, which would blur short times; a watcher ends what takes too long.
fn wait_with_limit(command: &mut Command) -> std::io::Result<ExitStatus> {
    let mut child = command.process_group(0).spawn()?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (done, ended) = mpsc::channel::<()>();
    let watcher = thread::spawn(move || {
        if let (Err(mpsc::RecvTimeoutError::Timeout), Some(group)) = (ended.recv_timeout(LIMIT), group) {
            // Fails when it has just ended by itself.
            let _ = kill_process_group(group, Signal::KILL);
        }
    });
    let status = child.wait();
    drop(done);
    let _ = watcher.join();
    status
}

fn count_instructions(stage: &Stage, folder: &std::path::Path, clew: &str, workload: &Workload) -> Option<u64> {
    let mut argv: Vec<String> =
        [clew, "run", "--quiet", "--stats", "--json", "--mode", "count", "--"].map(str::to_owned).to_vec();
    argv.extend(workload.argv.iter().cloned());
    timed(stage, folder, &argv, workload).ok()?;
    stats::read(&std::fs::read(folder.join("tmp/err")).ok()?).map(|s| s.instructions)
}
