//! A run that should fail and does not, recorded again in other ways: with all features of the processor, for code that is
//! wrong only in a newer variant of a library's function, and under other schedules if it has threads.
//!
//! Standard input is given again from where it was; if it cannot be (a pipe), the run is not repeated.

use super::{Ask, Ready, Refusal};
use crate::home;
use crate::message::Messages;
use crate::reduce::isolate_ahead;
use crate::startup::Startup;
use recording::Home;
use rustix::fs::{SeekFrom, seek};
use session::EngineProgram;
use std::time::Instant;

/// Schedules that are tried.
const SEEDS: u64 = 12;
/// The part of the budget that they may take, in hundredths.
const SHARE: u32 = 40;

/// What failed once may not fail because of how it was recorded.
const SOMETIMES: &str = ", or it does not do the same each time: to ask again about this failure, give the recording";

/// How a run is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Way {
    #[default]
    Usual,
    /// The guest sees the processor as it is.
    Native,
    /// Turns of threads end as this number says.
    Seed(u64),
}

impl Way {
    /// What must be known about a run that failed only so.
    pub fn remark(self) -> Option<String> {
        match self {
            Way::Usual => None,
            Way::Native => Some(format!(
                "it passed at first, and failed with all features of the processor (--cpu native){SOMETIMES}"
            )),
            Way::Seed(seed) => Some(format!(
                "it passed at first, and failed under another schedule (--chaos --seed {seed}){SOMETIMES}"
            )),
        }
    }
}

/// Records until a run fails, and searches that one.
pub fn until_it_fails<T>(
    ask: Ask<'_>,
    startup: &Startup,
    messages: &Messages,
    search: impl Fn(&Ready<'_>, &EngineProgram) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let begun = Instant::now();
    let ahead = ask.isolate.map(|source| isolate_ahead(source, &ask, startup)).transpose()?;
    let ask = match &ahead {
        Some(ahead) => {
            if !ask.quiet {
                messages.note(&ahead.words);
            }
            let budget = ask.budget.saturating_sub(begun.elapsed());
            Ask { input: ahead.bytes.as_ref(), command: &ahead.command, budget, ..ask }
        }
        None => ask,
    };
    let input = seek(rustix::stdio::stdin(), SeekFrom::Current(0)).ok();
    let has_input_again = input.is_some() || rustix::termios::isatty(rustix::stdio::stdin());
    let mut ways = vec![Way::Native, Way::Usual];
    let mut refusals: Vec<Refusal> = Vec::new();
    while let Some(way) = ways.pop() {
        let ready = Ready::make(ask, way, startup, messages)?;
        match ready.search(startup, |engine| search(&ready, engine)) {
            Err(refusal) if refusal.passes => refusals.push(refusal),
            other => return other,
        }
        if way == Way::Usual && ready.opened.recording.units().iter().any(|u| u.threads > 1) {
            ways.splice(..0, (1..=SEEDS).rev().map(Way::Seed));
        }
        let repeatable = ask.recording.is_none() && has_input_again && !ready.wanted.is_empty();
        if !repeatable || begun.elapsed() > ask.budget * SHARE / 100 {
            break;
        }
        if !ways.is_empty() {
            forget(&ready, startup);
        }
        if let Some(offset) = input {
            // Where it was could be asked, so it can be set.
            let _ = seek(rustix::stdio::stdin(), SeekFrom::Start(offset));
        }
    }
    let more = refusals.len() - 1;
    let mut refusal = refusals.swap_remove(0);
    if more > 0 {
        let how = if more > 1 {
            "with all features of the processor and in other schedules"
        } else {
            "with all features of the processor"
        };
        refusal.message += &format!(
            "; it was run {} {how}, and passes",
            if more == 1 { "once more".into() } else { format!("{more} times more") }
        );
    }
    Err(refusal)
}

/// Removes a recording that nobody asked for.
fn forget(ready: &Ready<'_>, startup: &Startup) {
    if let (Ok(home), Some(place)) = (home::path(startup), ready.opened.source.to_str()) {
        // What is left behind is a recording like any other.
        let _ = Home::at(&home).remove(place);
    }
}
