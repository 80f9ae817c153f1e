//! Options of all verbs that search by trials.

use super::Oracle;
use super::oracle::duration;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::time::Duration;

/// What fails, what "works" means, and how long to search.
#[derive(Args, Debug)]
pub struct Search {
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    /// Search at most so long
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "60s")]
    pub budget: Duration,
    /// Trials at the same time; as many as there are processors if nobody says otherwise
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
    /// Print the answer only
    #[arg(short, long)]
    pub quiet: bool,
    /// A recording: its name, a path, `latest` or a packed file; `:PID[.IMAGE]` behind it names one process
    #[arg(required_unless_present = "command", conflicts_with = "command")]
    pub recording: Option<String>,
    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
    // Behind the others: what follows its heading is shown under it.
    #[command(flatten)]
    pub oracle: Oracle,
}

/// In which order changes are tried.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Last executed, first changed
    Lefs,
    /// What the failure depends on first: near it, seldom executed, and reached by the input
    Prior,
}
