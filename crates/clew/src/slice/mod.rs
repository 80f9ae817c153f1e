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
mod windows;

use crate::case;
pub use crate::case::Refusal;
use crate::cli::{Color, Slice as Options};
use crate::guest::{Failed, start_engine};
use crate::home::{self, Opened};
use crate::message::{self, Messages, Paint};
use crate::startup::Startup;
use crate::status;
use crate::written::Written;
use criterion::{Finder, Start};
use facts::Program;
use lines::{Origins, Ran, Squash};
use model::log::Ending;
use model::serve::Moment;
use recording::{Recording, UnitName};
use session::{EngineProgram, Replayer, Session};
use slice::{Criterion, Forward, Prepare, Slice, Window};
use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tracing::Traced;
use windows::{Followed, Windows};

/// Millions of instructions in the window that is traced first: what is near the criterion should not wait for the rest.
const FIRST_WINDOW: u64 = 100;
/// Instructions of a slice beyond which it is cut: each takes some 64 bytes of memory.
const MOST_NODES: usize = 30_000_000;

/// What was found, with everything that is needed to tell it.
pub struct Answer {
    pub recording: String,
    pub unit: UnitName,
    pub start: Start,
    pub window: Window,
    /// What ran, in all windows that were traced.
    pub ran: Ran,
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
            let mut origins = origins(&answer.loaded, &answer.paths);
            // Without nodes there is nothing to look up in the window, and it may be large.
            let nothing = Window::default();
            let has_nodes = answer.slice.nodes.len() > 1;
            let mut squash = Squash::new(if has_nodes { &answer.window } else { &nothing }, options.libs);
            let died = options.crash.then_some(answer.start.moment.pc);
            let lines = lines::gather_ran(&answer.ran, &answer.slice, &answer.data, died, &mut origins, &mut squash);
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
    let interrupted = case::interruption();
    let name = match &options.recording {
        Some(name) if options.command.is_empty() => name.clone(),
        Some(_) => return Err(Refusal::usage("give a recording or a program, not both")),
        None => case::record_quietly(&options.command, None, startup, messages)?,
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
        let mut stop = move || Instant::now() > until || case::is_raised(&flag);
        let mut session = Session::open(&replayer, &unit).map_err(Refusal::internal)?;
        let images = session::images_of(recording);
        self.say("looking for the criterion");
        let mut finder = Finder {
            options: self.options,
            recording,
            unit,
            session: &mut session,
            images: &images,
            interrupted: &mut stop,
        };
        let start = finder.find(&|| written_by(&replayer).map(Cow::Owned))?;
        let mut times = Times { find: begun.elapsed(), ..Times::default() };
        let loaded = session.loaded(recording, &images).map_err(Refusal::internal)?;
        let paths = original_paths(recording, &unit, &loaded);
        let chopped = self.chopped(&loaded)?;
        self.say("tracing");
        let (traced, since, mut limits) = self.trace(&mut session, unit, start.moment, &mut stop)?;
        times.trace = begun.elapsed() - times.find;
        self.say("finding out what decided about what");
        let calls = tracing::calls(recording, &unit).map_err(Refusal::internal)?;
        let facts = Program::new(&session, &loaded, &paths, !self.options.no_refinement);
        let mut facts = facts.map_err(Refusal::internal)?;
        let prepare = Prepare { bypass: !self.options.no_bypass, frames: self.relevant() || self.names() };
        let how = self.how(&start, stacks(&session)?);
        let own = (how.only_sites && !self.options.libs).then(|| origins(&loaded, &paths));
        let mut windows = Windows {
            session: &mut session,
            facts: &mut facts,
            calls,
            how: prepare,
            start: since,
            millions: self.options.window,
            origins: own,
            times: &mut times,
        };
        let (followed, data) = if how.only_sites {
            let followed = windows.follow(traced, &start.criterion, &how, &mut stop).map_err(Refusal::internal)?;
            (followed, HashSet::new())
        } else {
            self.note_cut(&traced, &mut limits);
            let (window, _) = windows.prepare(traced);
            self.say("following dependences");
            let (slice, data) = self.follow(&window, &start.criterion, chopped.as_ref(), &how, &mut facts, &mut stop);
            let mut ran = Ran::default();
            ran.add(&window);
            (Followed { slice, window, ran, stopped: None }, data)
        };
        self.say("");
        times.slice = begun.elapsed() - times.find - times.trace - times.prepare;
        let Followed { slice, window, ran, stopped } = followed;
        limits.extend(unfinished(&slice, stopped));
        let recording = self.name();
        Ok(Answer { recording, unit, start, window, ran, slice, data, loaded, paths, limits, times })
    }

    /// Says what a slice with nodes, which stays in one window, leaves out.
    fn note_cut(&self, traced: &Traced, limits: &mut Vec<String>) {
        if traced.cut {
            let n = self.options.window;
            limits.push(format!("only about the last {n} million instructions were traced (--window)"));
        }
    }

    /// Traces what the slice needs first. Gives that, where what it may need begins, and what that leaves out.
    fn trace(
        &self,
        session: &mut Session,
        unit: UnitName,
        moment: Moment,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<(Traced, Moment, Vec<String>), Refusal> {
        let recording = &self.opened.recording;
        let mut limits = self.limits(unit);
        let (from, to, millions) = match self.options.forward {
            true => {
                session.seek_end(stop).map_err(Refusal::internal)?;
                (Some(moment), session.moment(), u64::MAX)
            }
            false => {
                let since = tracing::forked_since(session, recording, &unit, stop).map_err(Refusal::internal)?;
                if since.is_some() {
                    let text = "the process was forked: what happened before, in its parent, was not traced";
                    limits.push(text.into());
                }
                let most = if self.needs_no_nodes() { FIRST_WINDOW } else { u64::MAX };
                (since.filter(|since| *since < moment), moment, self.options.window.min(most))
            }
        };
        let traced = tracing::trace(session, from, to, millions, stop).map_err(Refusal::internal)?;
        Ok((traced, from.unwrap_or_else(|| session.start_moment()), limits))
    }

    /// How dependences are followed.
    fn how(&self, start: &Start, stacks: Range<u64>) -> slice::Options {
        let (prune_memory, prune_registers) = start.pruned.clone();
        slice::Options {
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
            only_sites: self.needs_no_nodes(),
            stacks,
            ..slice::Options::default()
        }
    }

    /// The slice, and what of it the value was made by, if that was asked for.
    fn follow(
        &self,
        window: &Window,
        criterion: &Criterion,
        chopped: Option<&Criterion>,
        how: &slice::Options,
        facts: &mut Program,
        stop: &mut dyn FnMut() -> bool,
    ) -> (Slice, HashSet<(u32, u16)>) {
        let forward = Forward { data_only: self.options.data_only, everywhere: false };
        if self.options.forward {
            return (slice::forward(window, criterion, forward, stop), HashSet::new());
        }
        let mut slice = slice::backward(window, criterion, how, facts, stop);
        let mut data = HashSet::new();
        if self.options.parts {
            let how = slice::Options { data_only: true, edges: false, relevant: false, ..how.clone() };
            let part = slice::backward(window, criterion, &how, facts, stop);
            data.extend(part.nodes.iter().skip(1).map(|n| (n.execution, n.insn)));
        }
        if let Some(place) = chopped {
            let from = Forward { everywhere: true, ..forward };
            slice = slice::chop(&slice, &slice::forward(window, place, from, stop));
        }
        (slice, data)
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

    /// Is only counted what is in the slice? Edges, paths and parts need every node.
    fn needs_no_nodes(&self) -> bool {
        let o = self.options;
        !(self.names() || o.parts || o.forward || o.chop.is_some() || self.relevant())
    }

    /// Are variables named?
    fn names(&self) -> bool {
        self.options.edges || self.options.dot || self.options.path.is_some()
    }

    /// What a chop begins with.
    fn chopped(&self, loaded: &image::LoadedImages) -> Result<Option<Criterion>, Refusal> {
        let Some(text) = &self.options.chop else { return Ok(None) };
        let at: case::At = text.parse().map_err(Refusal::usage)?;
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
        let main = case::main_unit(recording).ok_or_else(|| Refusal::usage("nothing was recorded"))?;
        let offset = self.options.output.as_deref().map(|o| o.rsplit_once(':').unwrap_or(("stdout", o)));
        if let Some((stream, n)) = offset
            && let Ok(n) = n.parse()
            && recording.units().len() > 1
        {
            let stream = if stream == "stderr" { 2 } else { 1 };
            return Ok(written_by(replayer)?.writer(&[stream], n).unwrap_or(main));
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

/// Where code comes from, and whose it is.
fn origins<'a>(loaded: &'a image::LoadedImages, paths: &[Option<std::path::PathBuf>]) -> Origins<'a> {
    Origins::new(loaded, &|n| paths.get(n).cloned().flatten())
}

/// Why a slice is not complete, if it is not.
fn unfinished(slice: &Slice, stopped: Option<Moment>) -> Option<String> {
    let why = match slice.nodes.len() > MOST_NODES {
        true => "it has too many instructions",
        false => "the time ran out, or it was interrupted (--budget)",
    };
    let how_far = stopped.map_or_else(|| "so far".to_owned(), |moment| format!("to {moment}"));
    slice.cut.then(|| format!("the slice is not complete: {why}; it was followed from the criterion back {how_far}"))
}

/// Where the main thread's stack is, with room to grow.
pub fn stacks(session: &Session) -> Result<Range<u64>, Refusal> {
    let thread = session.place().thread;
    let sp = session.registers(thread).map_err(Refusal::internal)?.gpr[4];
    let maps = session.maps().map_err(Refusal::internal)?;
    let map = maps.iter().find(|m| (m.start..m.end).contains(&sp));
    Ok(map.map_or(0..0, |m| m.start.saturating_sub(8 << 20)..m.end))
}

/// All that was written; a recording whose replay differs cannot be sliced.
fn written_by(replayer: &Replayer<'_>) -> Result<Written, Refusal> {
    let (written, differences) = Written::gather(replayer).map_err(Refusal::internal)?;
    match differences.first() {
        Some(difference) => Err(Refusal::internal(format!("the recording cannot be sliced: {difference}"))),
        None => Ok(written),
    }
}

/// The names that images had when they were recorded.
pub fn original_paths(
    recording: &Recording,
    unit: &UnitName,
    loaded: &image::LoadedImages,
) -> Vec<Option<std::path::PathBuf>> {
    let names = tracing::original_names(recording, unit);
    let original = |l: &image::LoadedImage| names.get(l.image.path()).cloned();
    loaded.iter().map(original).collect()
}
