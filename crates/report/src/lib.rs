//! Answers, as people and machines read them.
//!
//! ```text
//! Report (what was found, in plain data) ─┬▶ [text]         for a terminal
//!                                         ├▶ [html]         one page that needs nothing else
//!                                         ├▶ [json]         one document for scripts
//!                                         ├▶ [sarif]        for code scanning services and editors
//!                                         └▶ [annotations]  for a GitHub workflow
//! ```
//! A [`Report`] holds everything that any form shows; nothing here knows how it was found, reads files, or prints.
//! What comes from the program under test (names, sources, output) is foreign: each form escapes it.

mod annotations;
mod html;
mod json;
mod sarif;
mod text;
pub mod words;

pub use annotations::annotations;
pub use html::html;
pub use json::json;
pub use sarif::sarif;
pub use text::{Plain, Style, text};

/// The answer to "why does it fail?".
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The verb that answers: `why`.
    pub verb: String,
    pub recording: String,
    /// The process that was searched: `1234.1`.
    pub process: String,
    pub command: Vec<String>,
    /// One clause: `byte 3 of standard output is '1' instead of '0'`.
    pub failure: String,
    /// The output beside the expected one, if that is what is wrong.
    pub difference: Option<Difference>,
    /// The best first.
    pub causes: Vec<Cause>,
    /// Decisions that the failure needs, all of them, as they were made: with any one of them made otherwise it does not
    /// occur. In the order in which they were made.
    pub needed: Vec<Decision>,
    /// Lines that the failure depends on.
    pub slice: Vec<SliceLine>,
    /// Sources of the places that are named, for views that show them.
    pub sources: Vec<Source>,
    pub tried: Tried,
    /// What the answer does not cover.
    pub limits: Vec<String>,
    pub seconds: f64,
    /// What the time went into: name and seconds.
    pub phases: Vec<(String, f64)>,
}

/// A branch that went one way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    pub place: Place,
    pub instance: Execution,
}

/// Which execution of an instruction it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Execution {
    pub number: u64,
    /// How many there are; not known of a program that does not end.
    pub of: Option<u64>,
}

impl Execution {
    /// Is there only this one?
    pub fn is_single(&self) -> bool {
        self.of.is_some_and(|of| of <= 1)
    }
}

impl std::fmt::Display for Execution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.of {
            Some(of) => write!(f, "{} of {of}", self.number),
            None => write!(f, "{}", self.number),
        }
    }
}

/// One stream, expected and found, from its beginning; views show what is around the first difference.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Difference {
    /// `standard output`.
    pub stream: String,
    pub expected: Vec<u8>,
    pub found: Vec<u8>,
    /// Where the first wrong byte is; at the end of one of them if the other goes on.
    pub offset: usize,
}

/// A place in the program.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// As short as it is clear: `src/lex.c`.
    pub file: Option<String>,
    /// The whole path.
    pub full: Option<String>,
    pub line: Option<u32>,
    pub function: Option<String>,
    /// `image+0x1234`.
    pub address: String,
    /// The line as it stands in the source.
    pub source: Option<String>,
}

impl Place {
    /// `lex.c:12` or `image+0x1234`.
    pub fn short(&self) -> String {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => format!("{file}:{line}"),
            _ => self.address.clone(),
        }
    }

    /// What tells it from other places: the line, or the address if there is none.
    pub fn key(&self) -> (Option<String>, Option<u32>, String) {
        let address = if self.line.is_some() { String::new() } else { self.address.clone() };
        (self.full.clone(), self.line, address)
    }

    /// What tells its file from all others: the whole path, if that is known.
    fn file_key(&self) -> Option<&str> {
        self.full.as_deref().or(self.file.as_deref())
    }

    /// The path of its file seen from the folder `root`; the whole path if the file is elsewhere.
    fn path_from(&self, root: Option<&str>) -> Option<&str> {
        let path = self.file_key()?;
        let below = root.and_then(|root| path.strip_prefix(root.trim_end_matches('/'))?.strip_prefix('/'));
        Some(below.unwrap_or(path))
    }
}

/// What kind of change, or of reasoning, led to a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One execution of a branch, taken the other way, repairs the run.
    CriticalPredicate,
    /// A branch that always goes one way repairs the run.
    ForcedPredicate,
    /// Another value, stored by one execution of a statement, repairs the run.
    Value,
    /// Leaving out one execution of a statement or call repairs the run.
    Suppression,
    /// A dependence leads from it to the failure.
    Dependence,
}

impl Kind {
    /// Every kind, in the order of their declaration.
    pub const ALL: [Kind; 5] =
        [Kind::CriticalPredicate, Kind::ForcedPredicate, Kind::Value, Kind::Suppression, Kind::Dependence];

    /// For people: what was changed, or what was seen.
    pub fn title(self) -> &'static str {
        match self {
            Kind::CriticalPredicate => "a branch taken the other way once",
            Kind::ForcedPredicate => "a branch that always goes one way",
            Kind::Value => "another value stored once",
            Kind::Suppression => "a statement left out once",
            Kind::Dependence => "a dependence of the failure",
        }
    }

    /// As JSON has it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::CriticalPredicate => "critical-predicate",
            Kind::ForcedPredicate => "forced-predicate",
            Kind::Value => "value",
            Kind::Suppression => "suppression",
            Kind::Dependence => "dependence",
        }
    }
}

/// One line of the answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    pub place: Place,
    pub kind: Kind,
    /// A trial repaired the run, and the controls did not.
    pub proved: bool,
    pub instance: Option<Execution>,
    /// Dependences between it and the failure, if the failure depends on it.
    pub distance: Option<u32>,
    /// One plain sentence.
    pub explanation: String,
    /// Why it is suspected only.
    pub doubt: Option<String>,
    pub evidence: Option<Evidence>,
    /// Places from this one to the failure, each with what leads on: the first is this place.
    pub path: Vec<Step>,
    /// A command that shows more.
    pub closer: String,
}

/// What anyone can replay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    pub moment: String,
    /// `flip image+0x1234#2`.
    pub alteration: String,
    /// `fixed`.
    pub verdict: String,
    /// How the altered run ended.
    pub end: String,
}

/// A step of a dependence path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    pub place: Place,
    /// How it leads to the next one: `x`, `decides about`, `memory at 0x…`.
    pub by: String,
}

/// The steps without those that stay in a line: each place once, with what leads on to another one.
fn stops(steps: &[Step]) -> Vec<&Step> {
    let is_left = |n: &usize| steps.get(n + 1).is_none_or(|next| next.place.short() != steps[*n].place.short());
    (0..steps.len()).filter(is_left).map(|n| &steps[n]).collect()
}

/// A line of the slice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SliceLine {
    pub place: Place,
    /// Dependences from the failure.
    pub distance: u32,
    pub instances: u64,
    pub executed: u64,
}

/// A source file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Source {
    /// As in [`Place::full`].
    pub path: String,
    pub lines: Vec<String>,
}

/// Trials.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tried {
    pub trials: usize,
    pub controls: usize,
    /// By verdict.
    pub verdicts: Vec<(String, u64)>,
}
