//! `clew slice`: what made a value so?
//!
//! ```text
//! recording ─ [criterion] ─▶ moment and what is wanted ─ [tracing] ─▶ window ─ slice::backward ─▶ [lines] ─▶ [show]
//! ```

pub mod criterion;
pub mod facts;
pub mod lines;
pub mod outputs;
mod show;
pub mod tracing;

use crate::cli::{Color, Slice as Options};
use crate::guest::{Failed, start_engine};
use crate::home::{self, Opened};
use crate::message::{self, Messages, Paint};
use crate::startup::Startup;
use crate::status;
use crate::switch;
pub use crate::switch::Refusal;
use criterion::{Finder, Start};
use lines::{Origins, Squash};
use model::log::Ending;
use model::wire::Report;
use outputs::{Outputs, Piece};
use recording::{Recording, UnitName};
use session::{EngineProgram, ReplayOptions, Replayer, Session};
use slice::{Criterion, Forward, Prepare, Slice, Window};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Instructions of a slice beyond which it is cut: each takes some 64 bytes of memory.
const MOST_NODES: usize = 30_000_000;

/// What was found, with everything that is needed to tell it.
pub struct Answer {
    pub recording: String,
    pub unit: UnitName,
    pub start: Start,
    pub window: Window,
    pub slice: Slice,
    /// What the value was made by, if that was asked for: executions and instructions.
    pub data: HashSet<(u32, u16)>,
    pub loaded: image::LoadedImages,
    pub paths: Vec<Option<std::path::PathBuf>>,
    pub limits: Vec<String>,
    pub times: Times,
}

/// How long it took to find the moment, to trace, to prepare and to slice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    pub find: Duration,
    pub trace: Duration,
    pub prepare: Duration,
    pub slice: Duration,
}

/// Slices as the command line says; gives our exit status.
pub fn run(options: &Options, color: Color, startup: &Startup) -> i32 {
    let messages = Messages { paint: Paint::for_stderr(color, startup) };
    match find(options, startup, &messages) {
        Ok(answer) => {
            let mut origins = Origins::new(&answer.loaded, &|n| answer.paths.get(n).cloned().flatten());
            let mut squash = Squash::new(&answer.window, options.libs);
            let died = options.crash.then_some(answer.start.moment.pc);
            let lines = lines::gather(&answer.window, &answer.slice, &answer.data, died, &mut origins, &mut squash);
            let paint = Paint::for_stdout(color, startup);
            let mut show = show::Show { answer: &answer, lines: &lines, origins, squash, options, paint };
            match show.all() {
                Ok(text) => message::stdout(&text),
                Err(show::Nothing { why, found }) => {
                    messages.error(&why);
                    return if found { status::NO } else { status::USAGE };
                }
            }
            if let Some(file) = &options.save
                && let Err(e) = std::fs::write(file, show.json())
            {
                messages.error(&format!("{} cannot be written: {e}", file.display()));
                return status::USAGE;
            }
            if lines.list.is_empty() { status::NO } else { 0 }
        }
        Err(refusal) => {
            if !refusal.message.is_empty() {
                messages.error(&refusal.message);
            }
            refusal.status
        }
    }
}

/// Records if need be, and slices.
fn find(options: &Options, startup: &Startup, messages: &Messages) -> Result<Answer, Refusal> {
    let interrupted = switch::interruption();
    let name = match &options.recording {
        Some(name) if options.command.is_empty() => name.clone(),
        Some(_) => return Err(Refusal::usage("give a recording or a program, not both")),
        None => switch::record_quietly(&options.command, None, startup, messages)?,
    };
    let (opened, unit) = home::find(&name, startup).map_err(Refusal::usage)?;
    let job = Job { options, opened: &opened, unit, interrupted };
    match start_engine(startup, |engine| Ok(job.run(engine))) {
        Ok(answer) => answer,
        Err(Failed::Error(e)) => Err(Refusal::internal(e)),
        Err(Failed::Signal(_)) => Err(Refusal { message: String::new(), status: status::INTERNAL }),
    }
}

struct Job<'a> {
    options: &'a Options,
    opened: &'a Opened,
    unit: Option<UnitName>,
    interrupted: Arc<AtomicBool>,
}

impl Job<'_> {
    fn run(&self, engine: &EngineProgram) -> Result<Answer, Refusal> {
        let begun = Instant::now();
        let recording = &self.opened.recording;
        let replayer = Replayer { engine, recording };
        let unit = self.choose(&replayer)?;
        let until = begun + self.options.budget;
        let flag = self.interrupted.clone();
        let mut stop = move || Instant::now() > until || switch::is_raised(&flag);
        let mut session = Session::open(&replayer, &unit).map_err(Refusal::internal)?;
        let images = session::images_of(recording);
        let gathered = || outputs_of(&replayer, recording);
        let mut finder = Finder {
            options: self.options,
            recording,
            unit,
            session: &mut session,
            images: &images,
            interrupted: &mut stop,
        };
        self.say("looking for the criterion");
        let start = finder.find(&gathered)?;
        let find = begun.elapsed();
        let loaded = session.loaded(recording, &images).map_err(Refusal::internal)?;
        let paths = original_paths(recording, &unit, &loaded);
        let (from, to) = match self.options.forward {
            true => {
                session.seek_end(&mut stop).map_err(Refusal::internal)?;
                (Some(start.moment), session.moment())
            }
            false => {
                let since = tracing::forked_since(&mut session, recording, &unit, &mut stop);
                (since.map_err(Refusal::internal)?.filter(|m| *m < start.moment), start.moment)
            }
        };
        let is_forked = from.is_some() && !self.options.forward;
        let chopped = self.chopped(&loaded)?;
        self.say("tracing");
        let traced = tracing::trace(&mut session, from, to, self.options.window, &mut stop);
        let traced = traced.map_err(Refusal::internal)?;
        let trace = begun.elapsed() - find;
        self.say("finding out what decided about what");
        let calls = tracing::calls(recording, &unit).map_err(Refusal::internal)?;
        let facts = facts::Program::new(&session, &loaded, &paths, !self.options.no_refinement);
        let mut facts = facts.map_err(Refusal::internal)?;
        let how = Prepare { bypass: !self.options.no_bypass, frames: self.relevant() || self.names() };
        let window = traced.builder.finish(&mut facts, calls, how);
        let prepare = begun.elapsed() - find - trace;
        let (prune_memory, prune_registers) = start.pruned.clone();
        let forward = Forward { data_only: self.options.data_only, everywhere: false };
        let how = slice::Options {
            data_only: self.options.data_only,
            copies_only: self.options.copies,
            edges: self.options.edges || self.options.dot,
            prune_memory,
            prune_registers,
            depth: self.options.depth.unwrap_or(0),
            most_nodes: MOST_NODES,
            relevant: self.relevant(),
            pointers: self.options.pointers,
            missing_output: self.is_missing(),
            stacks: stacks(&session)?,
            ..slice::Options::default()
        };
        self.say("following dependences");
        let slice = match self.options.forward {
            true => slice::forward(&window, &start.criterion, forward, &mut stop),
            false => slice::backward(&window, &start.criterion, &how, &mut facts, &mut stop),
        };
        let data = match self.options.parts {
            true => {
                let how = slice::Options { data_only: true, edges: false, relevant: false, ..how.clone() };
                let part = slice::backward(&window, &start.criterion, &how, &mut facts, &mut stop);
                part.nodes.iter().skip(1).map(|n| (n.execution, n.insn)).collect()
            }
            false => HashSet::new(),
        };
        let slice = match chopped {
            Some(place) => {
                let from = Forward { everywhere: true, ..forward };
                slice::chop(&slice, &slice::forward(&window, &place, from, &mut stop))
            }
            None => slice,
        };
        self.say("");
        let times = Times { find, trace, prepare, slice: begun.elapsed() - find - trace - prepare };
        let mut limits = self.limits(unit);
        if traced.cut {
            let n = window.instructions() / 1_000_000;
            limits.push(format!("only the last {n} million instructions were traced (--window)"));
        }
        if is_forked {
            limits.push("the process was forked: what happened before, in its parent, was not traced".into());
        }
        if slice.cut {
            let why = match slice.nodes.len() > MOST_NODES {
                true => "it has too many instructions".to_owned(),
                false => "the time ran out, or it was interrupted (--budget)".to_owned(),
            };
            limits.push(format!("the slice is not complete: {why}; it was followed from the criterion back so far"));
        }
        let recording = self.name();
        Ok(Answer { recording, unit, start, window, slice, data, loaded, paths, limits, times })
    }

    /// Tells how far it is, on a terminal; nothing clears the line.
    fn say(&self, what: &str) {
        let o = self.options;
        if o.quiet || o.json || !rustix::termios::isatty(rustix::stdio::stderr()) {
            return;
        }
        message::stderr(&match what {
            "" => "\r\x1b[K".to_owned(),
            what => format!("\rclew: {what}\x1b[K"),
        });
    }

    /// What is missing behind the last output was perhaps decided by a branch that went the wrong way.
    fn relevant(&self) -> bool {
        self.options.relevant || self.is_missing()
    }

    /// Is what was not written the criterion?
    fn is_missing(&self) -> bool {
        self.options.output.as_deref().is_some_and(|o| o.ends_with("end"))
    }

    /// Are variables named?
    fn names(&self) -> bool {
        self.options.edges || self.options.dot || self.options.path.is_some()
    }

    /// What a chop begins with.
    fn chopped(&self, loaded: &image::LoadedImages) -> Result<Option<Criterion>, Refusal> {
        let Some(text) = &self.options.chop else { return Ok(None) };
        let at: switch::At = text.parse().map_err(Refusal::usage)?;
        let ranges = criterion::ranges_of(loaded, &at.place).map_err(Refusal::usage)?;
        Ok(Some(Criterion { instructions: ranges.addresses(), ..Criterion::default() }))
    }

    /// How people write the recording.
    fn name(&self) -> String {
        let path = &self.opened.source;
        path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned())
    }

    /// The process to look at.
    fn choose(&self, replayer: &Replayer<'_>) -> Result<UnitName, Refusal> {
        if let Some(unit) = self.unit {
            return Ok(unit);
        }
        let recording = replayer.recording;
        let main = switch::main_unit(recording).ok_or_else(|| Refusal::usage("nothing was recorded"))?;
        let offset = self.options.output.as_deref().map(|o| o.rsplit_once(':').unwrap_or(("stdout", o)));
        if let Some((stream, n)) = offset
            && let Ok(n) = n.parse()
            && recording.units().len() > 1
        {
            let outputs = outputs_of(replayer, recording).map_err(Refusal::internal)?;
            return Ok(outputs.writer(if stream == "stderr" { 2 } else { 1 }, n).unwrap_or(main));
        }
        let died = |u: &&recording::Unit| u.end.as_ref().is_some_and(|e| e.ending == Ending::Signaled);
        let crashed = recording.units().iter().find(died).map(|u| u.name);
        Ok(if self.options.crash { crashed.unwrap_or(main) } else { main })
    }

    fn limits(&self, unit: UnitName) -> Vec<String> {
        let unit = self.opened.recording.unit(&unit).ok();
        let inexact = unit.iter().flat_map(|u| &u.inexact);
        inexact.map(|(n, why)| format!("inexact from record {n} on: {why}")).collect()
    }
}

/// Where the main thread's stack is, with room to grow.
fn stacks(session: &Session) -> Result<std::ops::Range<u64>, Refusal> {
    let thread = session.place().thread;
    let sp = session.registers(thread).map_err(Refusal::internal)?.gpr[4];
    let maps = session.maps().map_err(Refusal::internal)?;
    let map = maps.iter().find(|m| (m.start..m.end).contains(&sp));
    Ok(map.map_or(0..0, |m| m.start.saturating_sub(8 << 20)..m.end))
}

/// Replays everything once and listens to what is written.
pub fn outputs_of(replayer: &Replayer<'_>, recording: &Recording) -> Result<Outputs, String> {
    use model::log::{CallRecord, Kind};
    use model::serve::Moment;
    let mut by_time = HashMap::new();
    for unit in recording.units() {
        let Ok(log) = recording.log(&unit.name) else { continue };
        let calls = log.records().filter(|(_, r)| r.kind == Kind::Call);
        let calls = calls.filter_map(|(_, r)| CallRecord::decode(r.payload));
        // The tick that the call itself makes is counted in its record.
        let before = |c: &CallRecord| Moment { tick: c.tick.saturating_sub(1), pc: c.pc };
        by_time.extend(calls.map(|c| ((unit.name.pid, c.time), (unit.name, before(&c)))));
    }
    let mut pieces = Vec::new();
    let how = ReplayOptions { emit: true, descendants: true, ..ReplayOptions::default() };
    for image in replayer.images() {
        let results = replayer.run(&image, &how, |packet| {
            if let Report::Output { stream, time, bytes } = &packet.report
                && let Some((unit, at)) = by_time.get(&(packet.pid, *time))
            {
                pieces.push(Piece { unit: *unit, time: *time, at: *at, stream: *stream, bytes: bytes.clone() });
            }
        });
        results.map_err(|e| e.to_string())?;
    }
    pieces.sort_by_key(|p| p.time);
    Ok(Outputs { pieces })
}

/// The names that images had when they were recorded.
fn original_paths(
    recording: &Recording,
    unit: &UnitName,
    loaded: &image::LoadedImages,
) -> Vec<Option<std::path::PathBuf>> {
    let names = tracing::original_names(recording, unit);
    let original = |l: &image::LoadedImage| names.get(l.image.path()).cloned();
    loaded.iter().map(original).collect()
}
