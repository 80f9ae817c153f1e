//! Null trials of the agreement cases: a case is recorded, and trials that alter nothing leave the recording at three
//! moments of every process; each must write and end as the recorded process did after that moment.
//!
//! The comparison is made by `crates/clew/examples/null_trials.rs`, which says what it compares. Each moment is tried in
//! step with the log, as trials are, and apart from it from the start, in the world made from the recording. A case fails
//! when a trial goes on otherwise, or is lost. Only apart from the log may a process with company be lost, because the
//! others are not there: that is counted, with the reasons. Left out, and counted too, are processes whose end nobody
//! saw, and recordings that say themselves that they are inexact. May miss: what only altered trials do.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

use super::{Case, How, Pass, Runner, replay::recording};
use crate::{
    exec::{self, End, Job},
    scratch::{remove_tree, root, target_dir},
};

/// Seeds per threaded case.
pub const SEEDS: u64 = 2;

/// What all cases together gave.
#[derive(Debug, Default)]
pub struct Figures(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    words: BTreeMap<(&'static str, String), usize>,
    reasons: BTreeMap<String, usize>,
}

impl Figures {
    fn count(&self, trial: &Trial) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = if trial.apart { "apart from it" } else { "in step" };
        *counts.words.entry((kind, trial.word.clone())).or_default() += 1;
        if trial.word != "same" {
            *counts.reasons.entry(format!("{kind}, {}: {}", trial.word, reason(&trial.text))).or_default() += 1;
        }
    }

    /// Lines for a reader: how many trials gave what, and why not the same, the commonest first.
    pub fn lines(&self) -> Vec<String> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = Vec::new();
        for kind in ["in step", "apart from it"] {
            let of_kind: Vec<_> = counts.words.iter().filter(|((k, _), _)| *k == kind).collect();
            let all: usize = of_kind.iter().map(|(_, n)| **n).sum();
            let (same, others): (Vec<_>, Vec<_>) = of_kind.into_iter().partition(|((_, word), _)| word == "same");
            let same: usize = same.into_iter().map(|(_, n)| *n).sum();
            let others: String = others.into_iter().map(|((_, word), n)| format!(", {n} {word}")).collect();
            lines.push(format!("of {all} trials {kind} with the recording, {same} went on as recorded{others}"));
        }
        let mut reasons: Vec<_> = counts.reasons.iter().collect();
        reasons.sort_by_key(|(_, n)| usize::MAX - **n);
        lines.extend(reasons.into_iter().take(25).map(|(why, n)| format!("{n} × {why}")));
        lines
    }
}

/// A text without what differs from case to case: numbers, and what is quoted.
fn reason(text: &str) -> String {
    let text = text.split(" with [").next().unwrap_or(text);
    let text = text.split(" differs at byte").next().unwrap_or(text);
    let mut out = String::new();
    for word in text.split_whitespace() {
        let plain = !word.contains('/') && !word.chars().any(|c| c.is_ascii_digit());
        out.push_str(if plain { word } else { "…" });
        out.push(' ');
    }
    out.trim_end().to_owned()
}

/// One line of the program that tries.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Trial {
    word: String,
    alone: bool,
    apart: bool,
    place: String,
    text: String,
}

impl Trial {
    fn parse(line: &str) -> Option<Trial> {
        let mut fields = line.splitn(6, '\t');
        let (word, kin) = (fields.next()?.to_owned(), fields.next()?);
        let apart = fields.next()? == "apart";
        let place = format!("{} at {}", fields.next()?, fields.next()?);
        Some(Trial { word, alone: kin == "alone", apart, place, text: fields.next()?.to_owned() })
    }

    /// Why the case fails because of this trial, if it does.
    fn fails(&self) -> Option<String> {
        let wrong = match self.word.as_str() {
            "differs" => true,
            "lost" => self.alone || !self.apart,
            "skipped" => self.text.starts_with("its replay differs"),
            _ => false,
        };
        let apart = if self.apart { ", apart," } else { "" };
        wrong.then(|| format!("{}{apart} {}: {}", self.place, self.word, self.text))
    }
}

/// The program that tries: the one beside a named `clew`, or the workspace's own, built for release.
pub fn program(named: Option<&str>) -> Result<PathBuf, String> {
    let ours = target_dir().join("release/clew");
    if let Some(clew) = named.filter(|clew| Path::new(clew) != ours) {
        let beside = Path::new(clew).with_file_name("examples").join("null_trials");
        return fs::canonicalize(&beside).map_err(|e| format!("{}: {e}", beside.display()));
    }
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--release", "--package", "clew", "--example", "null_trials"])
        .current_dir(root())
        .status()
        .map_err(|e| format!("cargo: {e}"))?;
    if !status.success() {
        return Err("null_trials does not build".to_owned());
    }
    Ok(target_dir().join("release/examples/null_trials"))
}

impl Runner<'_> {
    /// Records one case, once or per seed, and tries.
    pub(super) fn nulls(&self, case: &Case, seeds: u64) -> Vec<(String, Result<Pass, String>)> {
        let seeds: Vec<Option<u64>> = if case.threaded { (1..=seeds).map(Some).collect() } else { vec![None] };
        seeds
            .into_iter()
            .map(|seed| {
                let name = seed.map_or("null".to_owned(), |n| format!("null, seed {n}"));
                let result = self.record_and_try(case, seed);
                if !self.keep {
                    remove_tree(&recording(&self.folder(case)));
                }
                (name, result)
            })
            .collect()
    }

    fn record_and_try(&self, case: &Case, seed: Option<u64>) -> Result<Pass, String> {
        self.run(case, How::Record { seed }).map_err(|e| e.to_string())?;
        let folder = self.folder(case);
        let program = self.null_trials.as_ref().ok_or("there is no program to try with")?;
        let outcome = exec::run(&Job {
            argv: vec![program.into(), recording(&folder).into()],
            env: self.environment(&folder),
            stdin: None,
            capture: self.stage.captures(&case.name.replace('/', "-")),
            limit: self.limit,
            dir: folder.join("w"),
        });
        let outcome = outcome.map_err(|e| e.to_string())?;
        let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
        let trials: Vec<Trial> = said.lines().filter_map(Trial::parse).collect();
        trials.iter().for_each(|t| self.figures.count(t));
        if outcome.end != End::Exit(0) {
            let why = String::from_utf8_lossy(&outcome.stderr).into_owned();
            return Err(format!("the trials end with {}: {}", outcome.end, why.lines().last().unwrap_or_default()));
        }
        if trials.is_empty() {
            return Err("there was nothing to try".to_owned());
        }
        let wrong: Vec<String> = trials.iter().filter_map(Trial::fails).collect();
        match wrong.first() {
            Some(first) => Err(format!("{} of {} trials: {first}", wrong.len(), trials.len())),
            None if trials.iter().any(|t| t.word == "inexact") => Ok(Pass::Inexact),
            None => Ok(Pass::Exact),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Option<&str>) {
        let trial = Trial::parse(line).expect("the line is one of a trial");
        assert_eq!(trial.fails().as_deref(), expected);
    }

    #[test]
    fn only_a_process_with_company_may_be_lost_and_only_apart_from_the_log() {
        check("same\talone\tapart\t1.0\t5:0x1\t", None);
        check("lost\tfamily\tapart\t1.0\t5:0x1\tit calls epoll_ctl", None);
        check("lost\tfamily\tnull\t1.0\t5:0x1\tit calls bpf", Some("1.0 at 5:0x1 lost: it calls bpf"));
        check("lost\talone\tapart\t1.0\t5:0x1\tit calls bpf", Some("1.0 at 5:0x1, apart, lost: it calls bpf"));
        check("differs\tfamily\tnull\t1.0\t5:0x1\tstream 1", Some("1.0 at 5:0x1 differs: stream 1"));
        check("inexact\talone\tnull\t1.0\t5:0x1\tstream 1", None);
        check("skipped\talone\tnull\t1.0\t-\tits replay differs: x", Some("1.0 at - skipped: its replay differs: x"));
        check("skipped\talone\tnull\t1.0\t-\tit was killed", None);
    }

    #[test]
    fn reasons_leave_out_what_differs_from_case_to_case() {
        assert_eq!(reason("it wants to execute /bin/ls"), "it wants to execute …");
        assert_eq!(reason("it calls bpf with [1, 2], which"), "it calls bpf");
    }
}
