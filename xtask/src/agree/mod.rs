//! Agreement: every case behaves under `clew run` as it does natively, and its recording replays as it ran.
//!
//! A case runs natively twice and once per mode, each time in a fresh directory of the same name, and streams, end and
//! files are compared. Guarantees: a pass means byte equality with a native run that was stable. May miss: what no case
//! does, and differences that show only sometimes.

pub mod cases;
pub mod compare;
pub mod inputs;
pub mod null;
pub mod replay;

use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{
    args::Args,
    confine::Confinement,
    exec::{self, Job},
    guests::{CLEW_HOME, Stage, clew_binary, has_program, source_dir},
    random::Random,
    tally::Tally,
};
use cases::Case;
use compare::{Observed, difference, finished, snapshot};

const NATIVE_LIMIT: Duration = Duration::from_secs(60);
/// Generous: a busy machine and mode trace together make a short program slow.
const CLEW_LIMIT: u64 = 240;
/// Seed of the sample that `check` takes.
pub const SAMPLE_SEED: u64 = 2;

/// What to run.
#[derive(Clone, Debug)]
pub struct Request {
    pub clew: Option<String>,
    pub modes: Vec<String>,
    pub sample: Option<usize>,
    pub seed: u64,
    pub only: Option<String>,
    pub confinement: Confinement,
    pub jobs: usize,
    pub keep: bool,
    /// Time limit of a run under Clew.
    pub limit: Duration,
    /// Only make sure that the cases are stable natively.
    pub native_only: bool,
    /// Record and replay instead of running in the modes.
    pub replay: bool,
    /// Record and try to go on without any alteration instead.
    pub null: bool,
    /// Under how many seeds threaded cases are recorded.
    pub seeds: u64,
}

impl Default for Request {
    fn default() -> Request {
        Request {
            clew: None,
            modes: ["none", "count", "trace"].map(str::to_owned).to_vec(),
            sample: None,
            seed: SAMPLE_SEED,
            only: None,
            confinement: Confinement::default(),
            jobs: thread::available_parallelism().map_or(1, usize::from),
            keep: false,
            limit: Duration::from_secs(CLEW_LIMIT),
            native_only: false,
            replay: false,
            null: false,
            seeds: replay::SEEDS,
        }
    }
}

impl Request {
    pub fn from_args(args: &mut Args) -> Result<Request, String> {
        let mut request = Request { clew: args.value("--clew")?, only: args.value("--only")?, ..Request::default() };
        if let Some(modes) = args.value("--mode")? {
            request.modes = modes.split(',').map(str::to_owned).collect();
        }
        if let Some(mode) = request.modes.iter().find(|m| !["none", "tick", "count", "trace"].contains(&m.as_str())) {
            return Err(format!("unknown mode `{mode}`"));
        }
        request.sample = args.number("--sample")?.map(|n| n as usize);
        request.seed = args.number("--seed")?.unwrap_or(SAMPLE_SEED);
        request.jobs = args.number("--jobs")?.map_or(request.jobs, |n| (n as usize).max(1));
        request.keep = args.flag("--keep");
        request.limit = args.number("--limit")?.map_or(request.limit, Duration::from_secs);
        request.native_only = args.flag("--native-only");
        request.replay = args.flag("--replay");
        request.null = args.flag("--null");
        let seeds = match request.sample {
            _ if request.null => null::SEEDS,
            Some(_) => replay::SAMPLE_SEEDS,
            None => replay::SEEDS,
        };
        request.seeds = args.number("--seeds")?.unwrap_or(seeds).max(1);
        request.confinement.user = args.flag("--as-user");
        if args.flag("--confined") {
            request.confinement = Confinement { user: true, filter: true, mounts: true };
        }
        Ok(request)
    }

    fn suite_name(&self) -> String {
        let what = match (self.replay, self.null) {
            (true, _) => "agree replay",
            (_, true) => "agree null",
            _ => "agree",
        };
        match self.confinement {
            Confinement { mounts: false, filter: false, user: false } => what.to_owned(),
            Confinement { mounts: false, filter: false, user: true } => format!("{what} as an ordinary user"),
            _ => format!("{what} confined"),
        }
    }
}

/// Runs the requested cases.
pub fn agree(request: &Request) -> Result<Tally, String> {
    let mut tally = Tally::new(request.suite_name());
    let clew = if request.native_only { PathBuf::from("/bin/true") } else { clew_binary(request.clew.clone())? };
    let mut stage = Stage::new("agree", &clew)?;
    if request.keep {
        stage.scratch.keep();
        println!("{}: files stay in {}", tally.name, stage.scratch.path().display());
    }
    let mut notes = stage.missing.clone();
    let confinement = request.confinement.permitted(&mut notes);
    confinement.verify(&stage)?;
    let chosen = choose(request, &mut notes)?;
    notes.into_iter().for_each(|note| tally.note(note));

    let next = AtomicUsize::new(0);
    let results = Mutex::new(&mut tally);
    let null_trials = if request.null { Some(null::program(request.clew.as_deref())?) } else { None };
    let figures = null::Figures::default();
    let runner =
        Runner { stage: &stage, confinement, limit: request.limit, keep: request.keep, null_trials, figures: &figures };
    thread::scope(|scope| {
        for _ in 0..request.jobs.min(chosen.len()) {
            scope.spawn(|| {
                while let Some(case) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcomes = runner.case(case, request);
                    let mut tally = results.lock().unwrap_or_else(|e| e.into_inner());
                    for (how, result) in outcomes {
                        let what = format!("{} ({how})", case.name);
                        match result {
                            Ok(Pass::Exact) => tally.count(&what, Ok(())),
                            Ok(Pass::Inexact) => tally.count_inexact(&what),
                            Err(why) => tally.count(&what, Err(why)),
                        }
                    }
                }
            });
        }
    });
    if request.null {
        figures.lines().into_iter().for_each(|line| tally.note(line));
    }
    if !tally.inexact.is_empty() {
        tally.inexact.sort();
        let text = format!("inexact by nature, and their replays say so: {}", tally.inexact.join(", "));
        tally.note(text);
    }
    Ok(tally)
}

/// The cases to run, less those whose programs are missing.
fn choose(request: &Request, notes: &mut Vec<String>) -> Result<Vec<Case>, String> {
    let mut chosen = Vec::new();
    for case in cases::read_folder(&source_dir().join("cases"))? {
        if request.only.as_ref().is_some_and(|pattern| !case.name.contains(pattern.as_str())) {
            continue;
        }
        if (request.confinement.filter || request.confinement.mounts) && !case.confined {
            notes.push(format!("{} is not run confined (its comment says why)", case.name));
            continue;
        }
        match case.needs.iter().find(|program| !has_program(program)) {
            Some(program) => notes.push(format!("{} is not run: {program} is not installed", case.name)),
            None => chosen.push(case),
        }
    }
    if chosen.is_empty() {
        return Err("no case matches".to_owned());
    }
    if let Some(n) = request.sample {
        let all = chosen.len();
        chosen = Random::new(request.seed).sample(chosen, n);
        notes.push(format!("a sample of {} of {all} cases", chosen.len()));
    }
    Ok(chosen)
}

/// How a case passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pass {
    Exact,
    /// The recording cannot be exact, and the replay says so.
    Inexact,
}

/// How to run a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How<'a> {
    Native,
    Mode(&'a str),
    Record { seed: Option<u64> },
}

struct Runner<'a> {
    stage: &'a Stage,
    confinement: Confinement,
    limit: Duration,
    keep: bool,
    /// The program that makes null trials, if they are wanted.
    null_trials: Option<PathBuf>,
    figures: &'a null::Figures,
}

impl Runner<'_> {
    /// Results of one case, per mode or seed.
    fn case(&self, case: &Case, request: &Request) -> Vec<(String, Result<Pass, String>)> {
        if request.null {
            return self.nulls(case, request.seeds);
        }
        let native = match self.native(case) {
            Ok(native) => native,
            Err(why) => return vec![("native".to_owned(), Err(why))],
        };
        if request.native_only {
            return vec![("native".to_owned(), Ok(Pass::Exact))];
        }
        if request.replay {
            return self.replays(case, &native, request.seeds);
        }
        let modes = request.modes.iter().filter(|m| case.modes.is_empty() || case.modes.contains(m));
        modes
            .map(|mode| {
                let result = self.run(case, How::Mode(mode)).map_err(|e| e.to_string());
                let result = result.and_then(|got| match difference(&native, &got, &case.normalise) {
                    Some(text) => Err(text),
                    None => Ok(Pass::Exact),
                });
                (mode.clone(), result)
            })
            .collect()
    }

    /// The native result, if two runs agree on it.
    fn native(&self, case: &Case) -> Result<Observed, String> {
        let first = self.run(case, How::Native).map_err(|e| e.to_string())?;
        if !finished(&first.outcome) {
            return Err(format!("unstable natively: {}", first.outcome.end));
        }
        let second = self.run(case, How::Native).map_err(|e| e.to_string())?;
        match difference(&first, &second, &case.normalise) {
            Some(text) => Err(format!("unstable natively: {text}")),
            None if !first.outcome.strays.is_empty() => {
                Err(format!("leaves running: {}", first.outcome.strays.join(", ")))
            }
            None => Ok(first),
        }
    }

    fn run(&self, case: &Case, how: How<'_>) -> io::Result<Observed> {
        let name = case.name.replace('/', "-");
        let folder = self.stage.fresh(&name)?;
        let dir = folder.join("w");
        for file in &case.files {
            fs::write(dir.join(&file.name), &file.text)?;
            let mode = if file.executable { 0o755 } else { 0o644 };
            fs::set_permissions(dir.join(&file.name), fs::Permissions::from_mode(mode))?;
        }
        self.confinement.give(&folder);
        let outcome = exec::run(&Job {
            argv: self.command_line(case, how, &folder),
            env: self.environment(&folder),
            stdin: case.stdin.as_ref().map(|name| dir.join(name)),
            capture: self.stage.captures(&name),
            limit: if how == How::Native { NATIVE_LIMIT } else { self.limit },
            dir: dir.clone(),
        })?;
        let files = snapshot(&dir)?;
        Ok(Observed { outcome, files })
    }

    /// The stage's, except that confined runs can write to no other place than their own folder.
    fn environment(&self, folder: &Path) -> Vec<(String, OsString)> {
        let mut env = self.stage.environment(folder);
        if self.confinement != Confinement::default() {
            env.push((CLEW_HOME.to_owned(), folder.join("clew-home").into()));
        }
        env
    }

    fn command_line(&self, case: &Case, how: How<'_>, folder: &Path) -> Vec<OsString> {
        let mut words = self.confinement.prefix(folder, &self.stage.bin());
        words.extend(case.under.iter().map(Into::into));
        if how != How::Native {
            words.push(self.stage.clew.clone().into());
        }
        match how {
            How::Native => {}
            How::Mode(mode) => words.extend(["run", "--quiet", "--mode", mode].map(Into::into)),
            How::Record { seed } => {
                words.extend(["record", "--quiet", "-o"].map(Into::into));
                words.push(replay::recording(folder).into());
                words.extend(seed.iter().flat_map(|n| ["--seed".into(), n.to_string().into()]));
            }
        }
        if how != How::Native {
            if case.native_cpu {
                words.extend(["--cpu", "native"].map(Into::into));
            }
            words.push("--".into());
        }
        words.extend(case.argv.iter().map(Into::into));
        words
    }
}
