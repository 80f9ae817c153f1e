//! Does a run fail, and in the same way as with the whole input?
//!
//! What a program is to print for another input nobody has written down, so files with expected output are refused here. A
//! reference says it for every input; a script may look at the input, whose name is in `CLEW_INPUT`.

use super::place::CrashPlace;
use super::reference::Reference;
use super::runs::Ran;
use crate::case::{LONGEST_CHECK, Refusal, run_check_of};
use crate::cli::Reduce as Options;
use diagnose::reduce::Outcome;
use diagnose::{End, Failure, Judgement, Oracle, Run, Stream};
use std::time::Instant;

/// What makes one failure the same as another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    Crash(u32, Option<CrashPlace>),
    /// This exit status, which should have been another.
    Exit(u32),
    /// Other output than the reference's.
    Output,
    Refused,
    Hang,
    /// Only the message tells it.
    Message,
    Other(String),
}

/// A run that fails.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failed {
    pub kind: Kind,
    /// What is wrong, in one clause.
    pub words: String,
}

/// What is to be known about a run.
pub enum Judged {
    Passes,
    Fails(Failed),
    /// Nobody can say, for this reason.
    Nothing(String),
}

/// Judges runs.
pub struct Judge<'a> {
    oracle: Oracle,
    script: Option<&'a str>,
    pub reference: Option<Reference<'a>>,
    message: Option<&'a [u8]>,
    /// A run that takes too long fails.
    hangs_fail: bool,
}

impl<'a> Judge<'a> {
    pub fn new(options: &'a Options, reference: Option<Reference<'a>>) -> Result<Judge<'a>, Refusal> {
        let asked = &options.oracle;
        let expects = [
            ("--expect", asked.expect.is_some()),
            ("--expect-stderr", asked.expect_stderr.is_some()),
            ("--expect-both", asked.expect_both.is_some()),
            ("--expect-file", !asked.expect_file.is_empty()),
        ];
        if let Some((name, _)) = expects.iter().find(|(_, is_given)| *is_given) {
            let (who, how) = match options.ahead {
                true => ("--isolate", "--ref PROGRAM, --check SCRIPT or --expect-exit N"),
                false => ("reduce", "--ref PROGRAM, --check SCRIPT, --expect-exit N or --message TEXT"),
            };
            return Err(Refusal::usage(format!(
                "{name} holds for one input only, and {who} changes the input: say what is right with {how}"
            )));
        }
        let oracle = Oracle {
            exit: asked.expect_exit.map(u32::from),
            alive: asked.alive.is_some(),
            check: asked.check.is_some(),
            ..Oracle::default()
        };
        Ok(Judge {
            oracle,
            script: asked.check.as_deref(),
            reference,
            message: options.message.as_deref().map(str::as_bytes),
            hangs_fail: asked.timeout.is_some(),
        })
    }

    /// Does anything say what is right, beside that it must not crash?
    pub fn says_anything(&self) -> bool {
        !self.oracle.is_empty() || self.reference.is_some() || self.message.is_some() || self.hangs_fail
    }

    /// What a run of the program came to.
    pub fn judge(&self, ran: &Ran) -> Judged {
        match self.failure(ran) {
            Err(why) => Judged::Nothing(why),
            Ok(failure) => match (self.message, failure) {
                (None, None) => Judged::Passes,
                (None, Some(failed)) => Judged::Fails(failed),
                (Some(text), failure) => match (has(&ran.run.stream(Stream::Stderr), text), failure) {
                    (true, Some(failed)) => Judged::Fails(failed),
                    (true, None) => {
                        let words = format!("it writes \"{}\" to standard error", text.escape_ascii());
                        Judged::Fails(Failed { kind: Kind::Message, words })
                    }
                    (false, None) => Judged::Passes,
                    (false, Some(failed)) => Judged::Nothing(format!("{}, without the message", failed.words)),
                },
            },
        }
    }

    /// The outcome, beside the failure of the whole input.
    pub fn outcome(&self, ran: &Ran, whole: &Kind) -> Outcome {
        match self.judge(ran) {
            Judged::Passes => Outcome::Passes,
            Judged::Fails(failed) if failed.kind == *whole => Outcome::Fails,
            Judged::Fails(_) | Judged::Nothing(_) => Outcome::Unresolved,
        }
    }

    fn failure(&self, ran: &Ran) -> Result<Option<Failed>, String> {
        match &ran.run.end {
            End::Lost(why) => return Err(why.clone()),
            End::StillRunning if !self.hangs_fail && !self.oracle.alive => return Err("it does not end".into()),
            _ => {}
        }
        let mut oracle = self.oracle.clone();
        // Whoever dies does not do what the reference does, unless that dies too.
        if let Some(reference) = &self.reference {
            let right = reference.run(&ran.input)?;
            oracle.stdout = Some(right.stdout);
            oracle.exit.get_or_insert(right.exit);
        }
        let until = Instant::now() + LONGEST_CHECK;
        let mut check =
            |run: &Run| self.script.is_none_or(|s| run_check_of(s, &run.stream(Stream::Stdout), &ran.input, until));
        Ok(match oracle.judge(&ran.run, &mut check) {
            Judgement::Passes => None,
            Judgement::Fails(failure) => Some(named(&failure, ran)),
        })
    }
}

/// What kind of failure it is.
fn named(failure: &Failure, ran: &Ran) -> Failed {
    // A run that dies has often written less than it should have: what counts is that it died.
    let kind = match (failure, &ran.run.end) {
        (Failure::Crash { signal, .. }, _) | (_, End::Signaled { signal, .. }) => {
            Kind::Crash(*signal, ran.place.clone())
        }
        (Failure::WrongExit { found, .. }, _) => Kind::Exit(*found),
        (Failure::WrongByte { .. } | Failure::Missing { .. } | Failure::Extra { .. }, _) => Kind::Output,
        (Failure::Refused, _) => Kind::Refused,
        (Failure::Hang, _) => Kind::Hang,
        (other, _) => Kind::Other(other.to_string()),
    };
    let words = match &kind {
        Kind::Crash(signal, place) => {
            let place = place.as_ref().map(CrashPlace::words).unwrap_or_default();
            format!("it dies of {}{place}", session::signal_name(*signal as i32))
        }
        Kind::Output => format!("{failure}, as the reference tells"),
        _ => failure.to_string(),
    };
    Failed { kind, words }
}

fn has(text: &[u8], part: &[u8]) -> bool {
    part.is_empty() || text.windows(part.len()).any(|w| w == part)
}
