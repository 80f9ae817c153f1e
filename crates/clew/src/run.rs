//! `clew run`: a program under the engine, with nothing recorded.
//!
//! The host finds the program, starts the engine on it, stays out of the way of signals and terminal, tells what the
//! engine has to say, and ends as the program ended.

use crate::cli::{Color, Run as Options, SinkName};
use crate::guest::{self, Request};
use crate::message::{self, Messages, Paint};
use crate::startup::Startup;
use crate::{find, stats, status};
use model::wire::{Config, TraceSink};
use std::time::Instant;

/// Runs the program of the command line; gives our exit status unless we die of the program's signal.
pub fn run(options: &Options, color: Color, startup: &Startup) -> i32 {
    let messages = Messages { paint: Paint::for_stderr(color, startup) };
    let Some(name) = options.command.first() else { return status::FAILURE };
    let program = match find::find(name, startup.variable("PATH")) {
        Ok(program) => program,
        Err(why) => {
            messages.error(&why.message);
            return why.status;
        }
    };
    let begun = Instant::now();
    let config = Config {
        mode: options.effective_mode(),
        cpu: options.cpu.into(),
        seed: options.seed,
        stats: options.stats,
        dies_with_host: true,
        sink: match options.sink {
            SinkName::Host | SinkName::Check => TraceSink::Ring,
            SinkName::Drop => TraceSink::Drop,
        },
        ..Config::default()
    };
    let request = Request {
        command: &options.command,
        program: &program,
        config,
        check_traces: options.sink == SinkName::Check,
        quiet: options.quiet,
        recorder: None,
    };
    match guest::start(&request, startup, &messages) {
        Err(failed) => guest::failed(&failed, &program, &messages),
        Ok(running) => {
            let run = guest::follow(running, &request, startup, &messages);
            let wall = begun.elapsed();
            guest::tell_end(&run, options.quiet, &messages);
            if options.stats {
                let text = match options.json {
                    true => format!("{}\n", stats::json(options, &run, wall)),
                    false => stats::table(options, &run, wall),
                };
                message::stderr(&text);
            }
            guest::exit_status(&run.outcome)
        }
    }
}
