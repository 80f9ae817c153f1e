//! The command line: the only crate that prints, reads the environment or exits.
//!
//! `startup` looks at what the process was given, `cli` reads the arguments, then one module per verb.
//! Every path ends in an exit status that the contract of the command line names; a panic is one of them too.

mod answer;
mod case;
mod chaos;
mod chops;
mod cli;
mod crash;
mod demo;
mod doctor;
mod dual;
mod ending;
mod find;
mod gdb;
mod guest;
mod home;
mod info;
mod jobs;
mod ls;
mod message;
mod pack;
mod place;
mod record;
mod reduce;
mod replay;
mod rm;
mod run;
mod scratch;
mod show;
pub mod slice;
mod startup;
mod stats;
mod suppress;
mod switch;
mod why;
mod written;

use clap::Parser;
use startup::Startup;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The engine's program, embedded so that there is one binary.
pub static ENGINE: &[u8] = include_bytes!(env!("CLEW_ENGINE"));

/// Exit statuses of our own.
mod status {
    /// Found nothing, or (doctor) something that is needed is missing.
    pub const NO: i32 = 1;
    pub const USAGE: i32 = 2;
    /// A fault of Clew itself, in every verb but `run`.
    pub const INTERNAL: i32 = 3;
    /// `run`: Clew's own failure.
    pub const FAILURE: i32 = 125;
    pub const NOT_RUNNABLE: i32 = 126;
    pub const NOT_FOUND: i32 = 127;
}

/// Runs the command line of this process; gives its exit status, if it comes back at all.
pub fn main() -> i32 {
    let is_run = std::env::args_os().skip(1).any(|a| a == "run" || a == "record");
    let status = catch_unwind(AssertUnwindSafe(|| dispatch(Startup::look())));
    // The panic has been printed by then; for a shell it is our failure, never the guest's status.
    let mut status = status.unwrap_or(if is_run { status::FAILURE } else { status::INTERNAL });
    // An answer that nobody got is none. What `run` and `record` give is the guest's.
    if status == 0 && !is_run && message::is_lost() {
        status = status::INTERNAL;
    }
    // Unlike returning, this flushes the standard streams.
    std::process::exit(status)
}

fn dispatch(mut startup: Startup) -> i32 {
    let mut parsed = match cli::Cli::try_parse_from(&startup.args) {
        Ok(parsed) => parsed,
        Err(error) => return cli::refuse(&error, &startup),
    };
    startup.source_map.rules = std::mem::take(&mut parsed.source_map);
    let startup = &startup;
    match parsed.verb {
        cli::Verb::Run(options) => run::run(&options, parsed.color, startup),
        cli::Verb::Record(options) => record::run(&options, parsed.color, startup),
        cli::Verb::Replay(options) => replay::run(&options, parsed.color, startup),
        cli::Verb::Gdb(options) => gdb::run(&options, parsed.color, startup),
        cli::Verb::Ls(options) => ls::run(&options, parsed.color, startup),
        cli::Verb::Info(options) => info::run(&options, parsed.color, startup),
        cli::Verb::Rm(options) => rm::run(&options, parsed.color, startup),
        cli::Verb::Pack(options) => pack::run(&options, parsed.color, startup),
        cli::Verb::Why(options) => why::run(&options, parsed.color, startup),
        cli::Verb::Switch(options) => switch::run(&options, parsed.color, startup),
        cli::Verb::Suppress(options) => suppress::run(&options, parsed.color, startup),
        cli::Verb::Reduce(options) => reduce::run(&options, parsed.color, startup),
        cli::Verb::Slice(options) => slice::run(&options, parsed.color, startup),
        cli::Verb::Demo(options) => demo::run(&options, parsed.color, startup),
        cli::Verb::Doctor(options) => doctor::run(&options, parsed.color, startup),
    }
}
