//! Recording and replay of the agreement cases: a case is recorded, and the recording is replayed with `--verify`.
//!
//! A pass means three things: the recorded run behaved as the native one (streams, end, files); the replay printed the
//! same bytes on both streams as the recorded run did; and it said `identical`, which is its own comparison of state
//! hashes. A replay must leave every file alone. Threaded cases are recorded under several seeds, each another schedule.
//! Recordings of programs that share memory with other processes cannot be exact; the cases say so, their replays must
//! say so too, and they are counted apart. May miss: a wrong replay of such a case, and state that no hash covers.
//! Programs in a terminal are compared by lines: what we see of the recorded run has gone through the terminal.

use std::path::{Path, PathBuf};

use super::{
    Case, How, Pass, Runner,
    compare::{Observed, byte_difference, difference, file_difference, snapshot},
};
use crate::{
    exec::{self, End, Job},
    scratch::remove_tree,
};

/// Seeds per threaded case in the whole suite.
pub const SEEDS: u64 = 20;
/// Seeds per threaded case in a sample.
pub const SAMPLE_SEEDS: u64 = 2;

/// Where the recording of the case that runs in `folder` goes: outside the directory that is compared.
pub fn recording(folder: &Path) -> PathBuf {
    folder.join("recording")
}

impl Runner<'_> {
    /// Records and replays one case, once or per seed.
    pub(super) fn replays(&self, case: &Case, native: &Observed, seeds: u64) -> Vec<(String, Result<Pass, String>)> {
        let seeds: Vec<Option<u64>> = if case.threaded { (1..=seeds).map(Some).collect() } else { vec![None] };
        seeds
            .into_iter()
            .map(|seed| {
                let name = seed.map_or("replay".to_owned(), |n| format!("replay, seed {n}"));
                let result = self.record_and_replay(case, native, seed);
                // Recordings of a whole suite do not fit on every disk.
                if !self.keep {
                    remove_tree(&recording(&self.folder(case)));
                }
                (name, result)
            })
            .collect()
    }

    fn record_and_replay(&self, case: &Case, native: &Observed, seed: Option<u64>) -> Result<Pass, String> {
        let recorded = self.run(case, How::Record { seed }).map_err(|e| e.to_string())?;
        if let Some(text) = difference(native, &recorded, &case.normalise) {
            return Err(format!("recorded run: {text}"));
        }
        let folder = self.folder(case);
        let mut argv = self.confinement.prefix(&folder, &self.stage.bin());
        argv.push(self.stage.clew.clone().into());
        // Not quiet: that a recording is inexact is among what a quiet replay keeps to itself.
        argv.extend(["replay", "--verify"].map(Into::into));
        argv.push(recording(&folder).into());
        let outcome = exec::run(&Job {
            argv,
            env: self.environment(&folder),
            // The inputs of the recorded run are in the recording, standard input too.
            stdin: None,
            capture: self.stage.captures(&case.name.replace('/', "-")),
            limit: self.limit,
            dir: folder.join("w"),
        });
        let outcome = outcome.map_err(|e| e.to_string())?;
        let files = snapshot(&folder.join("w")).map_err(|e| e.to_string())?;
        judge(case, &recorded, &Observed { outcome, files }).map_err(|why| format!("replay: {why}"))
    }

    pub(super) fn folder(&self, case: &Case) -> PathBuf {
        self.stage.folder(&case.name.replace('/', "-"))
    }
}

/// Whether a replay is as good as it can be.
fn judge(case: &Case, recorded: &Observed, replayed: &Observed) -> Result<Pass, String> {
    let (was, is) = (&recorded.outcome, &replayed.outcome);
    let said = Said::read(&was.stderr, &is.stderr);
    if matches!(is.end, End::TimedOut | End::TooMuchOutput | End::Signal(_)) {
        return Err(format!("ends with {} [{}]", is.end, said.verdict));
    }
    if !is.strays.is_empty() {
        return Err(format!("left running: {}", is.strays.join(", ")));
    }
    if let Some(text) = file_difference(&recorded.files, &replayed.files, &[]) {
        return Err(format!("changed files: {text}"));
    }
    match (said.inexact, case.inexact) {
        (true, true) if matches!(is.end, End::Exit(0 | 1)) => return Ok(Pass::Inexact),
        (true, false) => return Err("says that the recording is inexact, which the case does not expect".to_owned()),
        _ => {}
    }
    if is.end != End::Exit(0) || said.verdict != "identical" {
        return Err(format!("ends with {}, says `{}`", is.end, said.verdict));
    }
    let differs = if case.under.is_empty() {
        byte_difference(&was.stdout, &is.stdout)
            .map(|text| format!("stdout {text}"))
            .or_else(|| byte_difference(&was.stderr, &said.guest).map(|text| format!("stderr {text}")))
    } else if is.stdout.is_empty() {
        // Every program in a terminal says at least that it is ready.
        Some("prints nothing".to_owned())
    } else {
        not_shown(&was.stdout, &is.stdout).or_else(|| not_shown(&was.stdout, &said.guest))
    };
    differs.map_or(Ok(Pass::Exact), Err)
}

/// What a replay wrote to standard error, taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Said {
    /// The guest's part.
    pub guest: Vec<u8>,
    /// Clew's last line, without its prefix.
    pub verdict: String,
    pub inexact: bool,
}

impl Said {
    /// Takes apart what a replay wrote, given what was written while recording.
    pub fn read(recorded: &[u8], replayed: &[u8]) -> Said {
        // The guest may use the word too, and then did so in the recorded run.
        let count = |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().filter(|l| l.contains("inexact")).count();
        let inexact = count(replayed) > count(recorded);
        let text = replayed.strip_suffix(b"\n").unwrap_or(replayed);
        let (body, mut last) = text.split_at(line_start(text));
        let mut guest: Vec<u8> = Vec::new();
        // Clew may speak before and after the guest, in lines of its own.
        let own = |line: &[u8]| {
            line.starts_with(b"clew: ") && !recorded.split(|b| *b == b'\n').any(|l| line == [l, b"\n"].concat())
        };
        body.split_inclusive(|b| *b == b'\n').filter(|line| !own(line)).for_each(|line| guest.extend(line));
        // Where the guest ends inside a line, Clew's next line may begin a new one or go on.
        let open = &recorded[line_start(recorded)..];
        if !open.is_empty() && guest == [recorded, b"\n"].concat() {
            guest.pop();
        } else if !open.is_empty() && last.starts_with(open) {
            guest.extend(open);
            last = &last[open.len()..];
        }
        let verdict = String::from_utf8_lossy(last.strip_prefix(b"clew: ").unwrap_or(last)).into_owned();
        Said { guest, verdict, inexact }
    }
}

/// Where the last line begins.
fn line_start(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1)
}

/// The first line of `replayed` that the terminal did not show, in their order. `terminal.py` prints control characters
/// as text, and keys pressed are echoed between the lines.
fn not_shown(terminal: &[u8], replayed: &[u8]) -> Option<String> {
    let (shown, text) = (String::from_utf8_lossy(terminal), String::from_utf8_lossy(replayed));
    let mut rest: &str = &shown;
    for line in text.lines().map(|l| l.replace('\r', "\\r").replace('\x1b', "\\e")) {
        match rest.find(&line) {
            Some(at) => rest = &rest[at + line.len()..],
            None => return Some(format!("prints `{line}`, which the terminal did not show")),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::Outcome;

    fn observed(end: End, stdout: &str, stderr: &str) -> Observed {
        let outcome = Outcome { end, stdout: stdout.into(), stderr: stderr.into(), strays: Vec::new() };
        Observed { outcome, files: Default::default() }
    }

    fn check(case: &Case, recorded: (&str, &str), replayed: (i32, &str, &str), expected: Result<Pass, &str>) {
        let was = observed(End::Exit(3), recorded.0, recorded.1);
        let is = observed(End::Exit(replayed.0), replayed.1, replayed.2);
        assert_eq!(judge(case, &was, &is), expected.map_err(str::to_owned));
    }

    #[test]
    fn a_replay_passes_only_with_the_same_bytes_and_the_word_identical() {
        let case = Case::default();
        check(&case, ("out", "err\n"), (0, "out", "err\nidentical\n"), Ok(Pass::Exact));
        check(&case, ("out", ""), (0, "out", "clew: identical\n"), Ok(Pass::Exact));
        check(&case, ("out", "no newline"), (0, "out", "no newline\nidentical\n"), Ok(Pass::Exact));
        check(&case, ("out", "no newline"), (0, "out", "no newlineidentical\n"), Ok(Pass::Exact));
        check(&case, ("", "clew: x\n"), (0, "", "clew: x\nidentical\n"), Ok(Pass::Exact));
        check(&case, ("", "e\n"), (0, "", "clew: a remark\ne\nclew: another\nidentical\n"), Ok(Pass::Exact));
        check(&case, ("a", ""), (0, "b", "identical\n"), Err("stdout differs at byte 0: `b` instead of `a`"));
        check(&case, ("", "a\n"), (0, "", "b\nidentical\n"), Err("stderr differs at byte 0: `b` instead of `a`"));
        check(&case, ("", ""), (0, "", "more\nidentical\n"), Err("stderr differs at byte 0: `more` instead of ``"));
        check(&case, ("", ""), (0, "", ""), Err("ends with exit 0, says ``"));
        check(&case, ("", "e\n"), (0, "", "identical\n"), Err("stderr differs at byte 0: `` instead of `e`"));
        check(&case, ("", ""), (1, "", "clew: rax differs\n"), Err("ends with exit 1, says `rax differs`"));
    }

    #[test]
    fn only_a_case_known_to_be_inexact_may_be_so_and_must_say_it_if_it_differs() {
        let (exact, inexact) = (Case::default(), Case { inexact: true, ..Case::default() });
        let said = "clew: the recording is inexact from event 5\n";
        check(&inexact, ("a", ""), (1, "b", said), Ok(Pass::Inexact));
        check(&inexact, ("a", "x inexact\n"), (0, "a", "x inexact\nidentical\n"), Ok(Pass::Exact));
        check(&inexact, ("a", ""), (1, "b", "rax differs\n"), Err("ends with exit 1, says `rax differs`"));
        check(
            &inexact,
            ("a", ""),
            (3, "b", said),
            Err("ends with exit 3, says `the recording is inexact from event 5`"),
        );
        check(
            &exact,
            ("a", ""),
            (0, "a", said),
            Err("says that the recording is inexact, which the case does not expect"),
        );
    }

    #[test]
    fn programs_in_a_terminal_are_compared_by_lines() {
        let case = Case { under: vec!["terminal.py".into()], ..Case::default() };
        let shown = "exit 5\nready\\r\n^Cinterrupted\\r\n\n";
        check(&case, (shown, ""), (0, "ready\ninterrupted\n", "identical\n"), Ok(Pass::Exact));
        check(&case, (shown, ""), (0, "", "identical\n"), Err("prints nothing"));
        let why = "prints `ready`, which the terminal did not show";
        check(&case, (shown, ""), (0, "interrupted\nready\n", "identical\n"), Err(why));
    }
}
