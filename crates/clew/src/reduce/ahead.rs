//! The bytes that make the difference, found before another verb searches for causes.

use super::given::named;
use super::{Answer, find};
use crate::case::{Ask, Refusal};
use crate::cli::{InputBytes, Reduce as Options, Source};
use crate::startup::Startup;
use rustix::fs::{SeekFrom, seek};
use std::ffi::OsString;

/// The part of the time that they may take.
const SHARE: u32 = 3;

/// What is known about the input before the failing run is recorded.
pub struct Ahead {
    /// The bytes that make the difference, if they were found.
    pub bytes: Option<InputBytes>,
    /// The command as it is recorded.
    pub command: Vec<OsString>,
    /// How it went, in one clause.
    pub words: String,
}

/// Isolates the bytes of an input that make the difference.
pub fn isolate_ahead(source: &Source, ask: &Ask<'_>, startup: &Startup) -> Result<Ahead, Refusal> {
    let here = match source {
        Source::File(_) => None,
        Source::Stdin => Some(seek(rustix::stdio::stdin(), SeekFrom::Current(0)).map_err(|_| {
            Refusal::usage("standard input is needed again to record the run, and can be read once only: write < FILE")
        })?),
    };
    let options = Options {
        ahead: true,
        input: source.clone(),
        method: Default::default(),
        isolate: true,
        good: None,
        message: None,
        output: None,
        json: false,
        budget: ask.budget / SHARE,
        jobs: ask.jobs.and_then(std::num::NonZeroUsize::new),
        quiet: ask.quiet,
        command: ask.command.to_vec(),
        oracle: ask.oracle.clone(),
    };
    let answer: Answer = find(&options, startup)?;
    if let Some(here) = here {
        // Where it was could be asked, so it can be set.
        let _ = seek(rustix::stdio::stdin(), SeekFrom::Start(here));
    }
    let command = match source {
        Source::File(path) => named(ask.command, path),
        Source::Stdin => ask.command.to_vec(),
    };
    let (bytes, runs) = (answer.bytes(), answer.tally.runs());
    let words = match &bytes {
        Some(bytes) => format!("{bytes} makes the difference between passing and failing ({runs} runs)"),
        None => format!("what of {source} makes the difference was not found ({runs} runs): all input counts"),
    };
    Ok(Ahead { bytes, command, words })
}
