//! What recording and replay cost: ratios to native, and how large recordings are.
//!
//! Every round runs a row natively, records it and replays that recording, in turn; the minimum over the rounds counts.
//! Guarantees: every recorded run printed and left behind what the native one did, every replay printed the same bytes,
//! and one replay per row was verified to be identical. May miss: noise that lasts longer than the whole measurement;
//! read ratios as good to about a tenth. Sizes are those on disk of the last round's recording. Clew keeps the files that a
//! recording needs once for all recordings; the first round of a row starts without any and counts apart too.

mod peers;
mod project;
mod table;
mod work;

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use super::{Request, timed};
use crate::{
    agree::replay::{Said, recording},
    guests::{Stage, clew_binary, has_program},
    scratch::remove_tree,
    tally::Tally,
};
pub use peers::Peers;
pub use table::publish;
use work::Work;

/// A way to run a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Column {
    Native,
    Record,
    Replay,
    RrRecord,
    RrReplay,
}

pub const COLUMNS: [Column; 5] = [Column::Native, Column::Record, Column::Replay, Column::RrRecord, Column::RrReplay];

impl Column {
    pub fn title(self) -> &'static str {
        match self {
            Column::Native => "native",
            Column::Record => "record",
            Column::Replay => "replay",
            Column::RrRecord => "rr record",
            Column::RrReplay => "rr replay",
        }
    }

    fn replays(self) -> bool {
        matches!(self, Column::Replay | Column::RrReplay)
    }

    fn peer(self) -> bool {
        matches!(self, Column::RrRecord | Column::RrReplay)
    }
}

/// What kind of work a row is; each kind has its own mean and goal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    Cpu,
    /// In the first table but not in its mean: spends its time starting.
    Start,
    Syscalls,
    Build,
    /// Beside the mean of builds: a compiler that is started for a few lines each.
    TinyBuild,
}

/// One measured row: the best time per column, or why there is none.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    pub group: Group,
    pub best: Vec<Result<Duration, String>>,
    /// Time of the first recording, when Clew had kept no files yet.
    pub first: Option<Duration>,
    /// Bytes of the log on disk.
    pub log: u64,
    /// Bytes of the kept files, which other recordings share.
    pub kept: u64,
}

/// All that one run measured.
#[derive(Clone, Debug)]
pub struct Measured {
    pub rows: Vec<Row>,
    pub peers: Peers,
    /// The command that made it.
    pub command: String,
    /// What going about in a recording costs: the rows of a table, or nothing if that was not measured.
    pub travel: String,
}

/// Measures every row in every column.
pub fn measure(request: &Request) -> Result<(Measured, Tally), String> {
    let mut tally = Tally::new("bench record");
    let stage = Stage::new("bench-record", &clew_binary(request.clew.clone())?)?;
    let peers = if request.peers { Peers::measure(&stage) } else { Peers::default() };
    let mut rows = Vec::new();
    for work in work::all(&stage, request.shrink)? {
        let name = work.workload.name.clone();
        if request.only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        let program = &work.workload.argv[0];
        if !has_program(program) && !Path::new(program).is_file() {
            tally.note(format!("{name} is not measured: {program} is not installed"));
            continue;
        }
        let row = measure_row(&stage, &work, request, peers.rr.is_ok());
        for (column, best) in COLUMNS.iter().zip(&row.best) {
            match best {
                Err(why) if why.is_empty() => {}
                // A peer that cannot do a row is a gap in the table, not a fault of ours.
                Err(why) if column.peer() => tally.note(format!("{name} ({}): {why}", column.title())),
                Err(why) => tally.count(&format!("{name} ({})", column.title()), Err(why.clone())),
                Ok(_) => tally.count("", Ok(())),
            }
        }
        println!("{}", table::line(&row));
        rows.push(row);
    }
    let command = format!("cargo xtask bench record --rounds {} --publish", request.rounds);
    let mut travel = String::new();
    if request.shrink == 1 && request.only.is_none() {
        match travelled(&stage) {
            Ok(rows) => {
                println!("{rows}");
                travel = rows;
                tally.count("", Ok(()));
            }
            Err(why) => tally.count("going about in a recording", Err(why)),
        }
    }
    let measured = Measured { rows, peers, command, travel };
    print!("{}", table::summary(&measured));
    Ok((measured, tally))
}

/// Seeks, steps back, trials and checkpoints, by the example that measures them.
fn travelled(stage: &Stage) -> Result<String, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["run", "--release", "--quiet", "--package", "clew", "--example", "travel", "--"])
        .arg(stage.scratch.path().join("travel"))
        .current_dir(crate::scratch::root())
        .output()
        .map_err(|e| e.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

fn measure_row(stage: &Stage, work: &Work, request: &Request, rr: bool) -> Row {
    let mut best: Vec<Result<Duration, String>> = COLUMNS
        .iter()
        // An empty reason means that the column was left out on purpose.
        .map(|column| if column.peer() && !rr { Err(String::new()) } else { Ok(Duration::MAX) })
        .collect();
    // What earlier rows wrote must not be on its way to the disk now; without `sync` it is only noisier.
    let _ = Command::new("sync").status();
    remove_tree(&stage.clew_home());
    let (mut native, mut first, mut log, mut kept) = (None, None, 0, 0);
    for round in 1..=request.rounds {
        for (column, slot) in COLUMNS.iter().zip(&mut best) {
            if slot.is_err() {
                continue;
            }
            *slot = match run(stage, work, *column) {
                Ok((time, result)) if native.as_ref().is_none_or(|n| result.matches(n)) => {
                    native.get_or_insert(result);
                    if *column == Column::Record {
                        first.get_or_insert(time);
                    }
                    slot.clone().map(|so_far| so_far.min(time))
                }
                Ok(_) => Err("prints or leaves something else than the native run".to_owned()),
                Err(why) => Err(why),
            };
            if *column == Column::Record {
                (log, kept) = on_disk(&recording(&stage.folder(NAME)));
            }
            if *column == Column::Replay && round == request.rounds && slot.is_ok() {
                *slot = verify(stage, work).and(slot.clone());
            }
        }
        // The next round needs the room.
        remove_tree(&stage.folder(NAME));
    }
    Row { name: work.workload.name.clone(), group: work.group, best, first, log, kept }
}

/// All rows run in the same folder, one after the other.
const NAME: &str = "bench-record";

/// What a run printed and left behind.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Effect {
    output: Vec<u8>,
    /// Number and size of files; a replay leaves none.
    files: Option<(u64, u64)>,
}

impl Effect {
    fn matches(&self, native: &Effect) -> bool {
        self.output == native.output && (self.files.is_none() || self.files == native.files)
    }
}

/// Runs a row once in one of the ways.
fn run(stage: &Stage, work: &Work, column: Column) -> Result<(Duration, Effect), String> {
    let folder = stage.folder(NAME);
    if !column.replays() {
        stage.fresh(NAME).and_then(|_| work.prepare(&folder.join("w"))).map_err(|e| e.to_string())?;
    }
    let clew = stage.clew.display().to_string();
    let (ours, theirs) = (recording(&folder).display().to_string(), folder.join("rr").display().to_string());
    let prefix: &[&str] = match column {
        Column::Native => &[],
        Column::Record => &[&clew, "record", "--quiet", "-o", &ours, "--"],
        Column::Replay => &[&clew, "replay", "--quiet", &ours],
        Column::RrRecord => &["rr", "record", "-o", &theirs],
        Column::RrReplay => &["rr", "replay", "-a", &theirs],
    };
    let mut argv: Vec<String> = prefix.iter().map(|w| (*w).to_owned()).collect();
    if column.replays() {
        let quiet = work.without_input();
        let (time, output) = timed(stage, &folder, &argv, &quiet)?;
        return Ok((time, Effect { output, files: None }));
    }
    argv.extend(work.workload.argv.iter().cloned());
    let ended = AtomicBool::new(false);
    let result = thread::scope(|scope| {
        let client = work.client.as_ref().map(|client| scope.spawn(|| client.run(&folder.join("w"), &ended)));
        let result = timed(stage, &folder, &argv, &work.workload);
        ended.store(true, Ordering::Relaxed);
        let served = client.map_or(Ok(()), |c| c.join().unwrap_or(Err("the client failed".to_owned())));
        result.and_then(|r| served.map(|()| r))
    });
    let (time, output) = result?;
    // The port is another one every time.
    let _ = fs::remove_file(folder.join("w/port"));
    Ok((time, Effect { output, files: Some(contents(&folder.join("w"))) }))
}

/// Replays the recording that is there once more and has it verified.
fn verify(stage: &Stage, work: &Work) -> Result<Duration, String> {
    let folder = stage.folder(NAME);
    let (clew, ours) = (stage.clew.display().to_string(), recording(&folder).display().to_string());
    let argv = [clew.as_str(), "replay", "--verify", &ours].map(str::to_owned);
    let (time, _) = timed(stage, &folder, &argv, &work.without_input()).map_err(|why| format!("verifying: {why}"))?;
    let stderr = fs::read(folder.join("tmp/err")).map_err(|e| e.to_string())?;
    match Said::read(b"", &stderr) {
        said if said.inexact => Err("the recording is inexact".to_owned()),
        said if said.verdict != "identical" => Err(format!("verifying says `{}`", said.verdict)),
        _ => Ok(time),
    }
}

/// Number and length of the files below a folder; links are not followed.
fn contents(folder: &Path) -> (u64, u64) {
    let (mut files, mut bytes) = (0, 0);
    walk(folder, &mut |meta| (files, bytes) = (files + 1, bytes + meta.len()));
    (files, bytes)
}

/// The room that the files of a recording take: those of its own, and those shared with others by hard links.
fn on_disk(folder: &Path) -> (u64, u64) {
    let (mut own, mut shared) = (0, 0);
    walk(folder, &mut |meta| *(if meta.nlink() > 1 { &mut shared } else { &mut own }) += meta.blocks() * 512);
    (own, shared)
}

fn walk(folder: &Path, file: &mut dyn FnMut(&fs::Metadata)) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(meta) if meta.is_dir() => walk(&entry.path(), file),
            Ok(meta) if meta.is_file() => file(&meta),
            _ => {}
        }
    }
}
