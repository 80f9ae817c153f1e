//! Which process of a recording failed, and how.
//!
//! A process that died of a signal comes first, then the one that wrote the first wrong byte, then the one that was
//! started. If that is a program of the system, a shell, make or a filter, and a program of the user's own failed, then that
//! step: it should have exited with status 0.

use super::{Ask, Left, Refusal, check};
use crate::written::Written;
use diagnose::{End, Failing, Failure, Judgement, Oracle, Run, Stream};
use model::log::{Ending, Origin};
use recording::{Recording, UnitName};
use std::time::Instant;

/// Signals that end a program from outside: SIGHUP, SIGINT, SIGQUIT, SIGKILL, SIGTERM. It was running when they came.
pub const FROM_OUTSIDE: [u32; 5] = [1, 2, 3, 9, 15];

/// Programs here are nobody's own.
const SYSTEM: [&str; 4] = ["/usr/", "/bin/", "/sbin/", "/lib"];

/// Was a unit ended by somebody else?
pub fn is_from_outside(end: &model::log::End) -> bool {
    end.ending == Ending::Signaled && FROM_OUTSIDE.contains(&end.status)
}

/// Chooses among the units of a recording.
pub struct Chooser<'a> {
    pub ask: &'a Ask<'a>,
    pub recording: &'a Recording,
    pub oracle: &'a Oracle,
    pub written: &'a Written,
    pub left: &'a Left,
}

/// The process to look at.
pub struct Chosen {
    pub unit: UnitName,
    pub failing: Failing,
    pub step: Option<Step>,
}

/// One program of several that failed.
pub struct Step {
    /// By itself it works if it exits with status 0.
    pub oracle: Oracle,
    /// All that is wrong is that it did not.
    pub is_all: bool,
}

impl Chooser<'_> {
    /// The process to look at, and its failing run.
    pub fn choose(&self, named: Option<UnitName>) -> Result<Chosen, Refusal> {
        let (unit, failing) = self.blamed(named)?;
        let step = named.is_none().then(|| self.failed_step(unit, &failing)).flatten();
        Ok(match step {
            Some((unit, failing, step)) => Chosen { unit, failing, step: Some(step) },
            None => Chosen { unit, failing, step: None },
        })
    }

    /// The process that was named, or the one whose failure the oracle sees.
    fn blamed(&self, named: Option<UnitName>) -> Result<(UnitName, Failing), Refusal> {
        let main = main_unit(self.recording).ok_or_else(|| Refusal::usage("nothing was recorded"))?;
        if let Some(script) = &self.ask.oracle.check {
            let run = Run { output: self.written.all(), end: End::StillRunning, files: Vec::new() };
            check::works(script, &run.stream(Stream::Stdout), None).map_err(Refusal::usage)?;
        }
        if let Some(unit) = named {
            let failing = self.judge(unit).ok_or_else(|| self.passes(unit))?;
            return Ok((unit, failing));
        }
        match self.judge(main) {
            Some(failing) if failing.failure == Failure::Hang => {
                let unit = self.hanging().unwrap_or(main);
                Ok((unit, self.judge(unit).unwrap_or(failing)))
            }
            Some(failing) if failing.hides_behind_its_end() => Ok((main, failing)),
            other => {
                let wrote = other.as_ref().and_then(|f| self.writer(f));
                let unit = self.crashed().or(wrote).unwrap_or(main);
                let failing = self.judge(unit).or(other).ok_or_else(|| self.passes(main))?;
                Ok((unit, failing))
            }
        }
    }

    fn judge(&self, unit: UnitName) -> Option<Failing> {
        let until = Instant::now() + self.ask.budget;
        let end = ended(self.recording, unit);
        let run = Run { output: self.written.all(), end, files: self.left.recorded() };
        let script = self.ask.oracle.check.as_deref();
        let mut check =
            |r: &diagnose::Run| script.is_none_or(|s| check::run_check(s, &r.stream(Stream::Stdout), until));
        match self.oracle.judge(&run, &mut check) {
            Judgement::Fails(failure) => Some(Failing { run, failure }),
            Judgement::Passes => None,
        }
    }

    /// The first process that died of a signal of its own.
    fn crashed(&self) -> Option<UnitName> {
        let died = |u: &&recording::Unit| u.end.as_ref().is_some_and(|e| e.ending == Ending::Signaled);
        let outside = |u: &&recording::Unit| u.end.as_ref().is_some_and(|e| FROM_OUTSIDE.contains(&e.status));
        self.recording.units().iter().filter(died).find(|u| !outside(u)).map(|u| u.name)
    }

    /// The process that the others waited for when the time was over: the last one that was started of those that ran.
    fn hanging(&self) -> Option<UnitName> {
        let cut = |u: &&recording::Unit| u.end.as_ref().is_some_and(is_from_outside);
        self.recording.units().iter().rev().find(cut).map(|u| u.name)
    }

    /// Who wrote the first wrong byte, or the wrong file.
    fn writer(&self, failing: &Failing) -> Option<UnitName> {
        match &failing.failure {
            Failure::WrongByte { stream, offset, .. } | Failure::Extra { stream, offset, .. } => {
                self.written.writer(numbers(*stream), *offset)
            }
            Failure::WrongFile { name, .. } => {
                let number = self.oracle.files.iter().position(|f| f.name == *name)?;
                self.left.writer(number)
            }
            _ => None,
        }
    }

    /// The last program of the user's own that failed, if a program of the system is blamed for what came of it.
    fn failed_step(&self, blamed: UnitName, failing: &Failing) -> Option<(UnitName, Failing, Step)> {
        let units = self.recording.units();
        let is_system = |u: &recording::Unit| SYSTEM.iter().any(|s| u.start.exe.starts_with(s));
        let status = |u: &recording::Unit| u.end.filter(|e| e.ending == Ending::Exited).map(|e| e.status);
        let blamed = units.iter().find(|u| u.name == blamed).filter(|u| is_system(u))?;
        let wants_success = self.oracle.exit.is_none_or(|wanted| wanted == 0) && !self.oracle.check;
        let tells = matches!(
            failing.failure,
            Failure::WrongExit { .. } | Failure::Missing { .. } | Failure::WrongByte { .. } | Failure::Extra { .. }
        );
        let failed = |u: &&recording::Unit| {
            !u.start.exe.is_empty() && !is_system(u) && status(u).is_some_and(|status| status != 0)
        };
        let steps: Vec<&recording::Unit> = units.iter().rev().filter(failed).collect();
        // A shell mostly passes on the status of a step that it fails of; others have a status of their own for that.
        let is_shell = is_shell(&blamed.start.exe);
        let passed_on = steps.iter().find(|u| !is_shell || status(u) == status(blamed));
        let step = passed_on.or(steps.first()).filter(|_| wants_success && tells)?;
        let found = status(step)?;
        let is_exit_all = Oracle { exit: None, ..self.oracle.clone() } == Oracle::default();
        let is_all = passed_on.is_some() && is_exit_all;
        let run = Run { end: End::Exited(found), ..failing.run.clone() };
        let failing = Failing { run, failure: Failure::WrongExit { expected: 0, found } };
        Some((step.name, failing, Step { oracle: Oracle { exit: Some(0), ..Oracle::default() }, is_all }))
    }

    fn passes(&self, unit: UnitName) -> Refusal {
        let end = ended(self.recording, unit);
        let more = match self.oracle.is_empty() {
            true => {
                "; say what it should have done, for example with --expect FILE or --expect-exit N, or, if it does not do \
                 the same each time, record it until it fails (clew record) and give that recording (clew why latest)"
            }
            false => {
                "; if it fails only sometimes, make recordings until one fails (clew record --chaos) and give that one"
            }
        };
        Refusal::passes(format!("the program passes: {end}, and nothing is wrong with it{more}"))
    }
}

/// Is it a program that runs scripts of commands?
fn is_shell(exe: &str) -> bool {
    const SHELLS: [&str; 6] = ["sh", "dash", "bash", "ksh", "zsh", "busybox"];
    exe.rsplit('/').next().is_some_and(|name| SHELLS.contains(&name))
}

/// File descriptors of a stream.
pub fn numbers(stream: Stream) -> &'static [u8] {
    match stream {
        Stream::Stdout => &[1],
        Stream::Stderr => &[2],
        Stream::Both => &[1, 2],
    }
}

/// The last image of the process that the recorder started.
pub fn main_unit(recording: &Recording) -> Option<UnitName> {
    let first = recording.units().iter().find(|u| u.start.origin == Origin::First)?;
    recording.units().iter().map(|u| u.name).filter(|n| n.pid == first.name.pid).max()
}

/// How a unit ended. One without an end was running when the recording was stopped.
fn ended(recording: &Recording, unit: UnitName) -> End {
    let Some(end) = recording.unit(&unit).ok().and_then(|u| u.end) else { return End::StillRunning };
    match end.ending {
        Ending::Signaled if FROM_OUTSIDE.contains(&end.status) => End::StillRunning,
        Ending::Signaled => End::Signaled { signal: end.status, pc: end.pc },
        Ending::Exited => End::Exited(end.status),
        Ending::Replaced | Ending::DiskFull | Ending::Left => End::StillRunning,
    }
}
