//! `clew record --chaos`: runs a program again and again, its threads switched at random instructions, until what "works"
//! means does not hold; that run is kept.
//!
//! Each run has another seed, which decides where turns end and who goes on. Standard input, if it is not a terminal, is
//! read once and given to every run. Only the output of the run that is kept is shown.

use crate::case::{self, is_raised};
use crate::cli::{Color, Record as Options};
use crate::guest::{self, Failed};
use crate::message::{Messages, Paint};
use crate::startup::Startup;
use crate::{find, record, status};
use diagnose::{End, Judgement, Oracle, Run};
use model::wire::Config;
use session::{Event, Gathering, Launch, Outcome, Recorder, SignalState, Stdio};
use std::io::{IsTerminal, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long to try, if nobody says otherwise.
const BUDGET: Duration = Duration::from_secs(60);
/// A run that takes longer than this counts as hanging, if the oracle has no limit of its own.
const LONGEST: Duration = Duration::from_secs(30);
/// How soon an interruption is noticed.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What was written.
type Written = Vec<diagnose::Piece>;
type Output = Arc<Mutex<Written>>;

/// Looks for a failing run; gives our exit status: that of the run that was kept, or of the last one.
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
    let oracle = match case::read_oracle(&options.oracle, &options.command, options.budget.unwrap_or(BUDGET)) {
        Ok(oracle) => oracle,
        Err(why) => {
            messages.error(&why.message);
            return status::FAILURE;
        }
    };
    let search = Search { options, program: &program, oracle, startup, messages: &messages, input: read_input() };
    search.until_failure()
}

struct Search<'a> {
    options: &'a Options,
    program: &'a Path,
    oracle: Oracle,
    startup: &'a Startup,
    messages: &'a Messages,
    input: Option<Vec<u8>>,
}

impl Search<'_> {
    fn until_failure(&self) -> i32 {
        let begun = Instant::now();
        let interrupted = case::interruption(self.startup);
        let first = self.options.seed.unwrap_or(1);
        let budget = self.options.budget.unwrap_or(BUDGET);
        let mut last = 0;
        let mut runs = 0;
        while begun.elapsed() < budget && !is_raised(&interrupted) {
            let seed = first + runs;
            runs += 1;
            match self.once(seed, &interrupted) {
                Ok(Kept::No(status)) => last = status,
                Ok(Kept::Yes(status, why)) => {
                    let s = if runs == 1 { "" } else { "s" };
                    let time = begun.elapsed().as_secs_f32();
                    self.messages.note(&format!("fails after {runs} run{s}, {time:.1} s (seed {seed}): {why}"));
                    return status;
                }
                Err(status) => return status,
            }
        }
        self.messages
            .note(&format!("no run of {runs} failed in {:.0} s; nothing was kept", begun.elapsed().as_secs_f32()));
        last
    }

    /// One run with this seed.
    fn once(&self, seed: u64, interrupted: &AtomicBool) -> Result<Kept, i32> {
        let mut meta = record::describe(self.options);
        meta.seed = None;
        meta.other.push(("chaos".into(), seed.to_string()));
        let recorder = record::prepare(self.options, self.program, &meta, self.startup).map_err(|why| {
            self.messages.error(&why);
            status::FAILURE
        })?;
        let (outcome, output) = match self.follow(&recorder, seed, interrupted) {
            Ok(done) => done,
            Err(failed) => {
                record::discard(recorder, &meta, self.startup);
                return Err(guest::failed(&failed, self.program, self.messages));
            }
        };
        let end = match &outcome {
            Some(Outcome::Exited(code)) => End::Exited(*code as u32),
            Some(Outcome::Signaled { signal, .. }) => End::Signaled { signal: *signal as u32, pc: 0 },
            _ => End::StillRunning,
        };
        let status = outcome.as_ref().map_or(status::FAILURE, plain_status);
        if matches!(outcome, Some(Outcome::NotLoaded { .. } | Outcome::EngineFault { .. } | Outcome::Lost { .. })) {
            record::discard(recorder, &meta, self.startup);
            self.messages.error("the program could not be run");
            return Err(status);
        }
        if is_raised(interrupted) {
            // What the user ended did not fail.
            record::discard(recorder, &meta, self.startup);
            return Ok(Kept::No(status));
        }
        let files = self.options.oracle.expect_file.iter().map(|(path, _)| std::fs::read(path).ok()).collect();
        let run = Run { output, end, files };
        let script = self.options.oracle.check.as_deref();
        let until = Instant::now() + case::LONGEST_CHECK;
        let check = |s: &str, run: &Run| case::run_check(s, &run.stream(diagnose::Stream::Stdout), until);
        let mut check = |run: &Run| script.is_none_or(|s| check(s, run));
        match self.oracle.judge(&run, &mut check) {
            Judgement::Passes => {
                record::discard(recorder, &meta, self.startup);
                Ok(Kept::No(status))
            }
            Judgement::Fails(why) => {
                show(&run);
                meta.status = outcome.as_ref().and_then(record::status_of);
                record::finish(recorder, &meta, self.startup, self.messages);
                Ok(Kept::Yes(status, why.to_string()))
            }
        }
    }

    /// Runs the guest to its end; no outcome if it took too long, or longer than the user waits, and was ended.
    fn follow(
        &self,
        recorder: &Recorder,
        seed: u64,
        interrupted: &AtomicBool,
    ) -> Result<(Option<Outcome>, Written), Failed> {
        let output = Output::default();
        let mut readers = Vec::new();
        let running = guest::start_engine(self.startup, |engine| {
            let mut launch = Launch {
                env: self.startup.env.clone(),
                config: Config { cpu: self.options.cpu.into(), dies_with_host: true, ..Config::default() },
                signals: SignalState { blocked: Some(self.startup.blocked), ..SignalState::unchanged() },
                ..Launch::new(engine, self.program, self.options.command.clone())
            };
            launch.stdio = [self.stdin(), captured(1, &output, &mut readers), captured(2, &output, &mut readers)];
            recorder.equip(&mut launch, Some(seed)).map_err(Failed::Error)?;
            launch.start().map_err(Failed::Error)
        })?;
        let outcome = self.wait(running, recorder, interrupted);
        for reader in readers {
            // Panics only if the standard library does.
            let _ = reader.join();
        }
        let output = std::mem::take(&mut *output.lock().unwrap_or_else(PoisonError::into_inner));
        Ok((outcome, output))
    }

    fn wait(&self, mut running: session::Running, recorder: &Recorder, interrupted: &AtomicBool) -> Option<Outcome> {
        let limit = Instant::now() + self.options.oracle.timeout.unwrap_or(LONGEST);
        let mut gathering = Gathering::new(running.pid());
        loop {
            match running.next_within(limit.saturating_duration_since(Instant::now()).min(LOOK_AGAIN)) {
                // Dropping it ends the guest.
                None if Instant::now() >= limit || is_raised(interrupted) => return None,
                None => {}
                Some(event) => {
                    if let Event::Report(packet) = &event {
                        recorder.hear(packet);
                    }
                    let last = matches!(event, Event::Ended(_));
                    gathering.take(event);
                    if last {
                        return Some(gathering.finish().outcome);
                    }
                }
            }
        }
    }

    fn stdin(&self) -> Stdio {
        let Some(bytes) = &self.input else { return Stdio::Null };
        let Ok((reader, mut writer)) = std::io::pipe() else { return Stdio::Null };
        let bytes = bytes.clone();
        // A guest that does not read everything closes the pipe, which ends this.
        std::thread::spawn(move || drop(writer.write_all(&bytes)));
        Stdio::Fd(OwnedFd::from(reader))
    }
}

enum Kept {
    No(i32),
    Yes(i32, String),
}

fn plain_status(outcome: &Outcome) -> i32 {
    match outcome {
        Outcome::Exited(code) => *code,
        Outcome::Signaled { signal, .. } => 128 + signal,
        _ => status::FAILURE,
    }
}

/// Standard input, if there is any that can be given to many runs.
fn read_input() -> Option<Vec<u8>> {
    let mut stdin = std::io::stdin();
    if stdin.is_terminal() {
        return None;
    }
    let mut bytes = Vec::new();
    stdin.read_to_end(&mut bytes).is_ok().then_some(bytes)
}

/// A stream of the guest that is kept in memory.
fn captured(stream: u8, output: &Output, readers: &mut Vec<JoinHandle<()>>) -> Stdio {
    let Ok((mut reader, writer)) = std::io::pipe() else { return Stdio::Null };
    let output = output.clone();
    readers.push(std::thread::spawn(move || {
        let mut buffer = [0; 1 << 16];
        while let Ok(n @ 1..) = reader.read(&mut buffer) {
            output.lock().unwrap_or_else(PoisonError::into_inner).push((stream, buffer[..n].into()));
        }
    }));
    Stdio::Fd(OwnedFd::from(writer))
}

/// Shows what a run wrote.
fn show(run: &Run) {
    for (stream, bytes) in &run.output {
        // A reader that has gone is no error.
        let _ = match stream {
            1 => std::io::stdout().write_all(bytes).and_then(|()| std::io::stdout().flush()),
            _ => std::io::stderr().write_all(bytes),
        };
    }
}
