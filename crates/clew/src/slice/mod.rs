//! `clew slice`: what made a value so?
//!
//! ```text
//! recording ─ [criterion] ─▶ moment and what is wanted ─ [tracing] ─▶ window ─ slice::backward ─▶ [lines] ─▶ [show]
//!                              ▲ what was written to pipes and files, by other processes too: [carried], [across]
//! ```

mod across;
pub mod carried;
pub mod criterion;
pub mod facts;
pub mod lines;
mod load;
pub mod outputs;
mod page;
mod show;
pub mod tracing;
mod view;
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
use across::Across;
pub use across::Part;
use criterion::{Finder, Start};
use facts::Program;
use lines::{Origins, Ran, Sources};
use load::Saved;
use model::log::Ending;
use model::serve::Moment;
use page::Page;
use recording::{Recording, UnitName};
use session::{EngineProgram, Replayer, Session};
use slice::{Criterion, Forward, Places, Prepare, Slice, Window};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tracing::Traced;
use view::View;
use windows::Windows;

/// Millions of instructions in the window that is traced first: what is near the criterion should not wait for the rest.
const FIRST_WINDOW: u64 = 20;
/// Millions of instructions in a window where nodes are kept, which need the memory.
const WINDOW_WITH_NODES: u64 = 250;
/// Instructions of a slice beyond which it is cut: each takes some 64 bytes of memory, and 24 for each edge.
const MOST_NODES: usize = 30_000_000;

/// What was found, with everything that is needed to tell it.
pub struct Answer {
    pub recording: String,
    pub start: Start,
    /// What there is of each process; that of the criterion comes first.
    pub parts: Vec<Part>,
    pub limits: Vec<String>,
    pub times: Times,
    /// Sources that came with the recording.
    pub packed: Option<std::path::PathBuf>,
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
    let paint = Paint::for_stdout(color, startup);
    if let Some(file) = &options.load {
        let shown = Saved::open(file).and_then(|saved| Ok((saved.show(options, paint)?, saved.is_empty())));
        return match shown {
            Ok((text, is_empty)) => {
                message::stdout(&text);
                if is_empty { status::NO } else { 0 }
            }
            Err(refusal) => {
                messages.error(&refusal.message);
                refusal.status
            }
        };
    }
    match find(options, startup, &messages) {
        Ok((answer, _opened)) => tell(&answer, options, paint, &messages),
        Err(refusal) => {
            if !refusal.message.is_empty() {
                messages.error(&refusal.message);
            }
            refusal.status
        }
    }
}

/// Prints an answer, and keeps it if that was asked for; gives our exit status.
fn tell(answer: &Answer, options: &Options, paint: Paint, messages: &Messages) -> i32 {
    let views = answer.parts.iter().enumerate().map(|(n, part)| {
        let died = answer.start.died.filter(|_| n == 0);
        View::new(part, died, options)
    });
    let mut show = show::Show { answer, views: views.collect(), options, paint };
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
    if show.is_empty() { status::NO } else { 0 }
}

/// Records if need be, and slices. What was opened is given too: a pack is there only as long as that.
fn find(options: &Options, startup: &Startup, messages: &Messages) -> Result<(Answer, Opened), Refusal> {
    let interrupted = case::interruption(startup);
    let name = match &options.recording {
        Some(name) if options.command.is_empty() => name.clone(),
        Some(_) => return Err(Refusal::usage("give a recording or a program, not both")),
        None => {
            let if_it_hangs = "; if it fails by not ending, slice that with --hang";
            let waiting = case::Waiting::Forever;
            let patience = case::Patience { waiting, expected: None, interrupted: &interrupted, if_it_hangs };
            let made = case::record_quietly(&options.command, &patience, case::Way::Usual, startup, messages)?;
            made.path.to_string_lossy().into_owned()
        }
    };
    let (opened, unit) = home::find(&name, startup).map_err(Refusal::usage)?;
    let page = RefCell::new(Page::new(options, messages.paint, is_terminal()));
    let job =
        Job { options, opened: &opened, unit, interrupted, search: startup.search(), page, stopped: Cell::new(false) };
    match start_engine(startup, |engine| Ok(job.run(engine))) {
        Ok(answer) => answer.map(|answer| (answer, opened)),
        Err(Failed::Error(e)) => Err(Refusal::internal(e)),
        Err(Failed::Signal(_)) => Err(Refusal::said(status::INTERNAL)),
    }
}

struct Job<'a> {
    options: &'a Options,
    opened: &'a Opened,
    unit: Option<UnitName>,
    interrupted: Arc<AtomicBool>,
    search: image::Search,
    page: RefCell<Page>,
    /// Time has run out, or the user does not want to wait any longer.
    stopped: Cell<bool>,
}

impl Job<'_> {
    /// Whoever stops before the first window is there gets no partial slice, which is no fault of ours.
    fn run(&self, engine: &EngineProgram) -> Result<Answer, Refusal> {
        self.slice(engine).map_err(|refusal| {
            if !(self.stopped.get() && refusal.status == status::INTERNAL) {
                return refusal;
            }
            let message = "the time ran out, or it was interrupted (--budget), before anything was followed";
            Refusal { status: status::NO, ..Refusal::internal(message) }
        })
    }

    fn slice(&self, engine: &EngineProgram) -> Result<Answer, Refusal> {
        let begun = Instant::now();
        let recording = &self.opened.recording;
        let replayer = Replayer { engine, recording };
        let unit = self.choose(&replayer)?;
        let until = begun + self.options.budget;
        // Whatever takes long asks this, and so is where the page is shown.
        let mut stop = || {
            self.page.borrow_mut().show();
            self.stopped.set(Instant::now() > until || case::is_raised(&self.interrupted));
            self.stopped.get()
        };
        let mut session = Session::open(&replayer, &unit).map_err(Refusal::internal)?;
        let images = session::images_with(recording, self.search.clone());
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
        let mut limits = Vec::new();
        let mut across =
            Across { job: self, replayer: &replayer, images: &images, stop: &mut stop, limits: &mut limits, times };
        let (mut part, traced) = self.part(&mut session, unit, start.moment, &mut across)?;
        part.criterion = start.criterion.clone();
        (part.how.prune_memory, part.how.prune_registers) = start.pruned.clone();
        self.page.borrow_mut().died = start.died;
        self.follow(&mut part, &mut session, traced, &mut across, true)?;
        drop(session);
        let mut parts = vec![part];
        if !self.options.forward && self.options.chop.is_none() {
            across.run(&mut parts)?;
        }
        times = across.times;
        self.say("");
        times.slice = begun.elapsed() - times.find - times.trace - times.prepare;
        for limit in parts.iter().filter_map(unfinished) {
            add_limit(&mut limits, limit);
        }
        Ok(Answer { recording: self.name(), start, parts, limits, times, packed: self.packed() })
    }

    /// Sources that came with the recording.
    fn packed(&self) -> Option<std::path::PathBuf> {
        self.opened.recording.extra().map(|e| e.join("sources"))
    }

    /// What is known about a process that is to be sliced from a moment, and what of it was traced first.
    fn part(
        &self,
        session: &mut Session,
        unit: UnitName,
        until: Moment,
        across: &mut Across<'_>,
    ) -> Result<(Part, Traced), Refusal> {
        let recording = &self.opened.recording;
        let loaded = session.loaded(recording, across.images).map_err(Refusal::internal)?;
        let paths = original_paths(recording, &unit, &loaded);
        let (traced, since) = self.trace(session, unit, until, across)?;
        let begun = Instant::now();
        let facts = Program::new(session, &loaded, &paths, !self.options.no_refinement);
        let facts = facts.map_err(Refusal::internal)?;
        across.times.prepare += begun.elapsed();
        let part = Part {
            unit,
            window: Window::default(),
            ran: Ran::default(),
            memory: 0,
            slice: Slice::default(),
            places: Places::default(),
            data: HashSet::new(),
            loaded,
            paths,
            needed_by: HashMap::new(),
            answered: HashSet::new(),
            criterion: Criterion::default(),
            how: self.how(stacks(session)?),
            facts,
            since,
            until,
            has_window: false,
            begins_late: false,
            stopped: None,
        };
        Ok((part, traced))
    }

    /// Slices a part, from the window that was traced first; the first part is the one whose nearest lines are shown early.
    fn follow(
        &self,
        part: &mut Part,
        session: &mut Session,
        traced: Traced,
        across: &mut Across<'_>,
        is_first: bool,
    ) -> Result<(), Refusal> {
        self.say("finding out what decided about what");
        let calls = tracing::calls(&self.opened.recording, &part.unit).map_err(Refusal::internal)?;
        let mut windows = Windows {
            session,
            recording: &self.opened.recording,
            images: across.images,
            facts: &mut part.facts,
            calls,
            how: Prepare { bypass: !self.options.no_bypass, frames: self.relevant() || self.names() },
            start: part.since,
            millions: self.millions(),
            origins: origins(&part.loaded, &part.paths),
            libs: self.options.libs,
            say: &|what| self.say(what),
            page: is_first.then(|| (&self.page, Sources::of(&part.loaded, self.packed()))),
            times: &mut across.times,
        };
        if !self.needs_one_window() {
            let followed = windows.follow(traced, &part.criterion, &part.how, across.stop);
            let followed = followed.map_err(Refusal::internal)?;
            part.has_window = followed.window.is_some();
            part.window = followed.window.unwrap_or_default();
            (part.slice, part.places, part.ran) = (followed.slice, followed.places, followed.ran);
            (part.memory, part.stopped) = (followed.memory, followed.stopped);
            return Ok(());
        }
        part.begins_late = traced.cut;
        if traced.cut {
            let n = self.options.window;
            let text = format!("only about the last {n} million instructions were traced (--window)");
            add_limit(across.limits, text);
        }
        part.window = windows.prepare(traced, across.stop).map_err(Refusal::internal)?.0;
        (part.has_window, part.memory, part.ran) = (true, part.window.bytes(), Ran::default());
        part.ran.add(&part.window);
        self.walk(part, across.stop)
    }

    /// Slices a part whose window is there, and finds what of it the value was made by, if that was asked for.
    fn walk(&self, part: &mut Part, stop: &mut dyn FnMut() -> bool) -> Result<(), Refusal> {
        self.say("following dependences");
        let Part { window, criterion, how, facts, .. } = part;
        let forward = Forward { data_only: self.options.data_only, most_nodes: MOST_NODES, ..Forward::default() };
        if self.options.forward {
            part.slice = slice::forward(window, criterion, forward, stop);
            self.place(part);
            return Ok(());
        }
        let mut slice = slice::backward(window, criterion, how, facts, stop);
        if self.options.parts {
            let how = slice::Options { data_only: true, edges: false, relevant: false, ..how.clone() };
            let made = slice::backward(window, criterion, &how, facts, stop);
            part.data = made.nodes.iter().skip(1).map(|n| (n.execution, n.insn)).collect();
        }
        if let Some(place) = self.chopped(&part.loaded)? {
            let from = Forward { everywhere: true, ..forward };
            slice = slice::within(&slice, &slice::forward(window, &place, from, stop));
        }
        part.slice = slice;
        self.place(part);
        Ok(())
    }

    /// Finds where the nodes of a slice of one window are shown.
    fn place(&self, part: &mut Part) {
        let mut origins = origins(&part.loaded, &part.paths);
        part.places = Places::default();
        part.places.add(&part.window, &part.slice.nodes, &mut |pc| self.options.libs || origins.is_own(pc));
    }

    /// Traces what a slice needs first. Gives that, and where what it may need begins.
    fn trace(
        &self,
        session: &mut Session,
        unit: UnitName,
        moment: Moment,
        across: &mut Across<'_>,
    ) -> Result<(Traced, Moment), Refusal> {
        self.say("tracing");
        let begun = Instant::now();
        let recording = &self.opened.recording;
        for limit in self.limits(unit) {
            add_limit(across.limits, limit);
        }
        let stop = &mut *across.stop;
        let (from, to, millions) = match self.options.forward {
            true => {
                session.seek_end(stop).map_err(Refusal::internal)?;
                (Some(moment), session.moment(), u64::MAX)
            }
            false => {
                let since = tracing::forked_since(session, recording, &unit, stop).map_err(Refusal::internal)?;
                if since.is_some() {
                    let text = match self.options.chop {
                        Some(_) => "the process was forked: what happened before, in its parent, was not traced",
                        None => "the process was forked: of its parent, only what made its memory was followed",
                    };
                    add_limit(across.limits, text.into());
                }
                let most = if self.needs_one_window() { u64::MAX } else { FIRST_WINDOW };
                (since.filter(|since| *since < moment), moment, self.options.window.min(most))
            }
        };
        let traced = tracing::trace(session, from, to, millions, stop).map_err(Refusal::internal)?;
        across.times.trace += begun.elapsed();
        Ok((traced, from.unwrap_or_else(|| session.start_moment())))
    }

    /// How dependences are followed.
    fn how(&self, stacks: Range<u64>) -> slice::Options {
        slice::Options {
            data_only: self.options.data_only,
            copies_only: self.options.copies,
            edges: self.options.edges || self.options.dot,
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

    /// Tells how far it is, on a terminal; nothing clears the line.
    fn say(&self, what: &str) {
        let o = self.options;
        if o.quiet || o.json || !is_terminal() {
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

    /// Is only counted what is in the slice? Edges, paths and potential dependences need every node.
    fn needs_no_nodes(&self) -> bool {
        !(self.names() || self.relevant() || self.needs_one_window())
    }

    /// Is only the last window looked at? Walks that compare executions, or go forward, see one at a time.
    fn needs_one_window(&self) -> bool {
        let o = self.options;
        o.parts || o.forward || o.chop.is_some()
    }

    /// Millions of instructions in a window.
    fn millions(&self) -> u64 {
        let most = if self.needs_no_nodes() { u64::MAX } else { WINDOW_WITH_NODES };
        self.options.window.min(most)
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
        let stopped = |u: &&recording::Unit| u.end.as_ref().is_none_or(case::is_from_outside);
        let hung = recording.units().iter().find(stopped).map(|u| u.name);
        Ok(match (self.options.crash, self.options.hang) {
            (true, _) => crashed.unwrap_or(main),
            (_, true) => hung.unwrap_or(main),
            _ => main,
        })
    }

    fn limits(&self, unit: UnitName) -> Vec<String> {
        let unit = self.opened.recording.unit(&unit).ok();
        let inexact = unit.iter().flat_map(|u| &u.inexact);
        inexact.map(|(n, why)| format!("inexact from record {n} on: {why}")).collect()
    }
}

/// Does somebody watch?
fn is_terminal() -> bool {
    rustix::termios::isatty(rustix::stdio::stderr())
}

/// Where code comes from, and whose it is.
fn origins<'a>(loaded: &'a image::LoadedImages, paths: &[Option<std::path::PathBuf>]) -> Origins<'a> {
    Origins::new(loaded, &|n| paths.get(n).cloned().flatten())
}

/// Why the slice of a part is not complete, if it is not.
fn unfinished(part: &Part) -> Option<String> {
    let why = match part.slice.nodes.len() > MOST_NODES {
        true => "it has too many instructions",
        false => "the time ran out, or it was interrupted (--budget)",
    };
    let how_far = part.stopped.map_or_else(|| "so far".to_owned(), |moment| format!("to {moment}"));
    let text = || format!("the slice is not complete: {why}; it was followed from the criterion back {how_far}");
    part.slice.cut.then(text)
}

/// Several processes, or traces of one, may have the same limits.
fn add_limit(limits: &mut Vec<String>, text: String) {
    if !limits.contains(&text) {
        limits.push(text);
    }
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
