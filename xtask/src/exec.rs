//! Running programs with a limit on time and output, and without leaving anything behind.
//!
//! Every program runs in its own session, so that it has no terminal to ask and one signal reaches all it started.
//! What left the session is found by its working directory or its `HOME`, which are unique to a run.
//!
//! Guarantees: `run` returns within the time limit plus a few seconds, and no process it knows of is alive then.
//! May miss: a stray process that changed both its directory and its environment.

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Output beyond this is a fault of the program, not a result.
const MAX_OUTPUT: u64 = 256 << 20;
/// How long a process may outlive the one that started it before it counts as stray.
const STRAY_GRACE: Duration = Duration::from_secs(10);

/// A program to run.
#[derive(Clone, Debug)]
pub struct Job {
    pub argv: Vec<OsString>,
    pub env: Vec<(String, OsString)>,
    /// Working directory.
    pub dir: PathBuf,
    /// File to read as standard input; nothing if absent.
    pub stdin: Option<PathBuf>,
    /// Directory for the captured streams; outside `dir`, so that they do not count as written by the program.
    pub capture: PathBuf,
    pub limit: Duration,
}

/// What became of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    pub end: End,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Command lines of processes that had to be killed after the program had ended.
    pub strays: Vec<String>,
}

/// How a program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Exit(i32),
    Signal(i32),
    TimedOut,
    TooMuchOutput,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::Exit(n) => write!(f, "exit {n}"),
            End::Signal(n) => write!(f, "signal {n}"),
            End::TimedOut => write!(f, "time-out"),
            End::TooMuchOutput => write!(f, "endless output"),
        }
    }
}

impl From<ExitStatus> for End {
    fn from(status: ExitStatus) -> End {
        match (status.code(), status.signal()) {
            (Some(n), _) => End::Exit(n),
            (None, Some(n)) => End::Signal(n),
            (None, None) => End::Exit(-1),
        }
    }
}

/// Runs `job` to its end or its limit.
pub fn run(job: &Job) -> io::Result<Outcome> {
    fs::create_dir_all(&job.capture)?;
    let (out, err) = (job.capture.join("stdout"), job.capture.join("stderr"));
    // `setsid` does not fork here because the child of a `Command` leads no process group.
    let mut child = Command::new("setsid")
        .args(&job.argv)
        .env_clear()
        .envs(job.env.iter().map(|(k, v)| (k, v)))
        .current_dir(&job.dir)
        .stdin(match &job.stdin {
            Some(path) => Stdio::from(File::open(path)?),
            None => Stdio::null(),
        })
        .stdout(File::create(&out)?)
        .stderr(File::create(&err)?)
        .spawn()?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let started = Instant::now();
    let mut pause = Duration::from_millis(1);
    let end = loop {
        if let Some(status) = child.try_wait()? {
            break End::from(status);
        }
        let written = size_of_file(&out) + size_of_file(&err);
        if started.elapsed() > job.limit || written > MAX_OUTPUT {
            kill_group(group);
            child.wait()?;
            break if written > MAX_OUTPUT { End::TooMuchOutput } else { End::TimedOut };
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    };
    let strays = end_strays(job, matches!(end, End::Exit(_) | End::Signal(_)));
    kill_group(group);
    Ok(Outcome { end, stdout: fs::read(&out)?, stderr: fs::read(&err)?, strays })
}

fn size_of_file(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |m| m.len())
}

fn kill_group(group: Option<Pid>) {
    if let Some(group) = group {
        // Fails when nothing is left, which is what we want.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Kills what is left of `job`, after a grace period if the program ended by itself; says what was left.
fn end_strays(job: &Job, patient: bool) -> Vec<String> {
    let started = Instant::now();
    let mut left = processes_of(job);
    while patient && !left.is_empty() && started.elapsed() < STRAY_GRACE {
        thread::sleep(Duration::from_millis(10));
        left = processes_of(job);
    }
    let names = left.iter().map(|(_, name)| name.clone()).collect();
    // A process may fork between the look and the kill, so look again until nothing is left.
    for _ in 0..50 {
        if left.is_empty() {
            break;
        }
        for (pid, _) in &left {
            let _ = kill_process(*pid, Signal::KILL);
        }
        thread::sleep(Duration::from_millis(10));
        left = processes_of(job);
    }
    names
}

/// Live processes whose directory or `HOME` is the job's, with their command lines.
fn processes_of(job: &Job) -> Vec<(Pid, String)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let home = job.env.iter().find(|(k, _)| k == "HOME").map(|(_, v)| v.clone()).unwrap_or_default();
    let mut home_entry = b"HOME=".to_vec();
    home_entry.extend_from_slice(home.as_encoded_bytes());
    let me = std::process::id();
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|s| s.parse::<i32>().ok()) else { continue };
        let Some(pid) = Pid::from_raw(number) else { continue };
        if number.unsigned_abs() == me || is_zombie(&entry.path()) {
            continue;
        }
        let in_dir = fs::read_link(entry.path().join("cwd")).is_ok_and(|d| d.starts_with(&job.dir));
        let has_home = !home.is_empty()
            && fs::read(entry.path().join("environ"))
                .is_ok_and(|env| env.split(|b| *b == 0).any(|one| one == home_entry.as_slice()));
        if in_dir || has_home {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push((pid, String::from_utf8_lossy(&line).trim_end_matches('\0').replace('\0', " ")));
        }
    }
    found
}

fn is_zombie(proc_dir: &Path) -> bool {
    fs::read_to_string(proc_dir.join("stat"))
        .is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn check(script: &str, limit: Duration) -> Outcome {
        let scratch = Scratch::new("exec-test").expect("a temporary directory");
        let dir = scratch.path().join("w");
        fs::create_dir(&dir).expect("a working directory");
        let job = Job {
            argv: ["sh", "-c", script].map(OsString::from).to_vec(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into()), ("HOME".into(), dir.clone().into())],
            dir,
            stdin: None,
            capture: scratch.path().join("capture"),
            limit,
        };
        run(&job).expect("sh runs")
    }

    #[test]
    fn streams_and_status_are_captured() {
        let o = check("echo out; echo err >&2; exit 7", Duration::from_secs(20));
        assert_eq!((o.end, o.stdout.as_slice(), o.stderr.as_slice()), (End::Exit(7), &b"out\n"[..], &b"err\n"[..]));
        assert_eq!(check("kill -SEGV $$", Duration::from_secs(20)).end, End::Signal(11));
    }

    #[test]
    fn a_program_that_does_not_end_is_killed_with_its_children() {
        let o = check("sleep 1000 & sleep 1000", Duration::from_millis(300));
        assert_eq!(o.end, End::TimedOut);
    }

    #[test]
    fn a_child_that_outlives_the_program_is_reported_and_killed() {
        let o = check("setsid sleep 1001 & exit 0", Duration::from_secs(20));
        assert_eq!(o.end, End::Exit(0));
        assert_eq!(o.strays, ["sleep 1001"]);
    }
}
