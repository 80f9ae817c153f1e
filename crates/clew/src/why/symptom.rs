//! What the symptom depended on: the failure as the criterion of a slice.

use super::vouched::{Vouched, right_bytes};
use crate::case::{Case, Refusal, input, numbers};
use crate::cli::Slice as Options;
use crate::slice::criterion::{Finder, Start};
use crate::slice::facts::Program;
use crate::slice::outputs::last_write;
use crate::slice::{original_paths, stacks, tracing};
use diagnose::order::Influence;
use diagnose::{End, Failure, Fault, Stream};
use image::LoadedImages;
use model::GuestAddr;
use session::Session;
use slice::{Criterion, Prepare, Slice, Window};
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Million instructions before the symptom that are looked at.
const WINDOW: u64 = 60;
/// Instructions of the slice, at most.
const MOST_NODES: usize = 6_000_000;
/// Time for a slice that follows pointers too.
const WIDER: Duration = Duration::from_secs(5);
/// Frames of a stack that are looked at.
const MOST_FRAMES: usize = 64;
/// Arguments, at most: more is something else.
const MOST_ARGUMENTS: u64 = 100_000;

/// The exit status of a program of Rust whose first thread panicked.
const PANICKED: u32 = 101;
/// What Rust's library calls for each panic, and programs in C++ for each exception.
const PANICS: [&str; 2] = ["__rustc::rust_begin_unwind", "rust_begin_unwind"];
const THROWS: &str = "__cxa_throw";

/// What the symptom depended on.
pub struct Symptom {
    pub start: Start,
    pub window: Window,
    pub slice: Slice,
    /// What the program was told beside what it read: where that lies at the beginning.
    pub told: Vec<(u64, u64)>,
    /// What the input decided about, and what it went into.
    influence: [slice::Influence; 2],
    /// What output that is right speaks for.
    pub vouched: Vouched,
    facts: RefCell<Program>,
    how: slice::Options,
    /// Distances through pointers too, once somebody has asked for them.
    wider: OnceCell<HashMap<(u32, u16), u32>>,
    pub limits: Vec<String>,
}

/// What is mapped when the symptom shows.
pub struct Mapped {
    pub loaded: LoadedImages,
    pub paths: Vec<Option<PathBuf>>,
}

/// The moment of the symptom, and what is wrong then.
pub fn start(case: &Case<'_>, session: &mut Session, stop: &mut dyn FnMut() -> bool) -> Result<Start, Refusal> {
    let failure = &case.failing.failure;
    if *failure == Failure::Hang {
        return hang(case, session, stop);
    }
    if let Some(start) = thrown(case, session, stop) {
        return Ok(start);
    }
    let recording = &case.opened.recording;
    let images = session::images_of(recording);
    let options = criterion(case);
    let mut finder =
        Finder { options: &options, recording, unit: case.unit, session, images: &images, interrupted: stop };
    if case.other_writer().is_some()
        && let Some((moment, at, bytes)) = last_write(recording, case.unit)
    {
        // What others made of it is not known; what it wrote is.
        finder.session.seek(moment, finder.interrupted).map_err(Refusal::internal)?;
        let criterion = Criterion { memory: vec![(at, bytes)], ..Criterion::default() };
        return Ok(Start::new(moment, criterion, "what it wrote last".into()));
    }
    let found = finder.find_in(&case.written);
    if found.is_err() && (matches!(failure, Failure::WrongFile { .. }) || case.other_writer().is_some()) {
        // Who wrote the byte is not known, as of a file that was renamed, or it is not the process that was named.
        let options = Options { output: Some("end".into()), ..Options::default() };
        return Finder { options: &options, ..finder }.find_in(&case.written);
    }
    found
}

/// A program that ends badly behind a panic or an exception: what led there, and not what it did to say so, which takes long where
/// it prints its stack. Whatever catches an exception is no cause of it.
fn thrown(case: &Case<'_>, session: &mut Session, stop: &mut dyn FnMut() -> bool) -> Option<Start> {
    let is_late = matches!(case.failing.failure, Failure::Missing { .. } | Failure::WrongExit { .. });
    let End::Exited(status @ 1..) = case.failing.run.end else { return None };
    if !is_late {
        return None;
    }
    session.seek_end(stop).ok()?;
    let loaded = mapped(case, session).ok()?.loaded;
    let entries = |name: &str| -> Vec<u64> {
        let of =
            |l: &image::LoadedImage| l.image.find_function(name).iter().map(|f| l.bias.to_guest(f.start).0).collect();
        loaded.iter().flat_map(|l| -> Vec<u64> { of(l) }).collect()
    };
    let panics = PANICS.iter().map(|name| entries(name)).find(|list| !list.is_empty() && status == PANICKED);
    let entries = panics.unwrap_or_else(|| entries(THROWS));
    if entries.is_empty() {
        return None;
    }
    let (executed, _) = session.executions(&entries, 1, None, stop).ok()?;
    let moment = executed.last()?.moment;
    session.seek(moment, stop).ok()?;
    let criterion = Criterion { control: true, ..Criterion::default() };
    Some(Start { thrown: true, ..Start::new(moment, criterion, "what was thrown".into()) })
}

/// A program that hangs: what keeps it going.
fn hang(case: &Case<'_>, session: &mut Session, stop: &mut dyn FnMut() -> bool) -> Result<Start, Refusal> {
    let tick = case.onset.settled();
    let end = case.opened.recording.unit(&case.unit).ok().and_then(|u| u.end).map_or(u64::MAX, |e| e.tick);
    match tick < end {
        true => session.seek_tick(tick, stop),
        false => session.seek_end(stop),
    }
    .map_err(Refusal::internal)?;
    let criterion = Criterion { control: true, ..Criterion::default() };
    let text = "that it does not end".to_owned();
    Ok(Start::new(session.moment(), criterion, text))
}

/// The failure, as options of a slice.
fn criterion(case: &Case<'_>) -> Options {
    let byte = |stream: Stream, offset: usize| {
        let (stream, offset) = case.written.in_stream(numbers(stream), offset)?;
        Some(format!("{}:{offset}", if stream == 2 { "stderr" } else { "stdout" }))
    };
    let output = match &case.failing.failure {
        Failure::WrongByte { stream, offset, .. } | Failure::Extra { stream, offset, .. } => byte(*stream, *offset),
        Failure::WrongFile { name, fault: Fault::WrongByte { offset, .. } | Fault::Extra { offset, .. } } => {
            let path = case.file_number(name).and_then(|n| case.left.path(n));
            path.map(|path| format!("{}:{offset}", path.display()))
        }
        _ => None,
    };
    let none = Options::default();
    match &case.failing.failure {
        Failure::Crash { .. } => Options { crash: true, ..none },
        Failure::WrongExit { .. } => Options { exit: true, ..none },
        _ => Options { output: Some(output.unwrap_or_else(|| "end".into())), ..none },
    }
}

/// Addresses of the calls that are under way now, the innermost first.
pub fn stack(case: &Case<'_>, session: &Session) -> Vec<u64> {
    stack_of(case, session, session.place().thread)
}

/// The same of any thread.
pub fn stack_of(case: &Case<'_>, session: &Session, thread: u32) -> Vec<u64> {
    let recording = &case.opened.recording;
    let Ok(scene) = session.scene(recording, &session::images_of(recording), thread) else { return Vec::new() };
    image::backtrace(&scene, MOST_FRAMES).frames.iter().map(|f| f.at.0).collect()
}

/// The images that are mapped now.
pub fn mapped(case: &Case<'_>, session: &Session) -> Result<Mapped, Refusal> {
    let recording = &case.opened.recording;
    let loaded = session.loaded(recording, &session::images_of(recording)).map_err(Refusal::internal)?;
    let paths = original_paths(recording, &case.unit, &loaded);
    Ok(Mapped { loaded, paths })
}

/// Traces and follows dependences back from the symptom; the session is at its moment.
pub fn follow(
    case: &Case<'_>,
    session: &mut Session,
    start: Start,
    mapped: &Mapped,
    told: &[(u64, u64)],
    within: Duration,
) -> Result<Symptom, String> {
    let until = Instant::now() + within;
    let flag = case.interrupted.clone();
    let mut stop = move || Instant::now() > until || crate::case::is_raised(&flag);
    let recording = &case.opened.recording;
    let mut limits = Vec::new();
    let since = tracing::forked_since(session, recording, &case.unit, &mut stop)?;
    let from = since.filter(|since| *since < start.moment);
    session.seek(start.moment, &mut stop).map_err(|e| e.to_string())?;
    let right = right_bytes(case, session, &start);
    let traced = tracing::trace(session, from, start.moment, WINDOW, &mut stop)?;
    if traced.cut {
        limits.push(format!("dependences were followed over about the last {WINDOW} million instructions"));
    }
    let (calls, is_read) = input::calls(case)?;
    if !is_read {
        limits.push("the bytes that --input-bytes names were not read before the failure: all input counts".into());
    }
    let told = input::told(case, is_read, told);
    let mut facts = Program::new(session, &mapped.loaded, &mapped.paths, true).map_err(|e| e.to_string())?;
    let window = traced.builder.finish(&mut facts, calls, Prepare { bypass: true, frames: true });
    let is_missing = match &case.failing.failure {
        Failure::WrongFile { fault, .. } => matches!(fault, Fault::Absent | Fault::Missing { .. }),
        other => matches!(other, Failure::Missing { .. } | Failure::Refused) || case.other_writer().is_some(),
    };
    let how = slice::Options {
        most_nodes: MOST_NODES,
        relevant: true,
        // What would have ended a loop is often behind a pointer.
        pointers: case.failing.failure == Failure::Hang,
        missing_output: is_missing && !start.thrown,
        stacks: stacks(session).map_err(|r| r.message)?,
        ..slice::Options::default()
    };
    let slice = slice::backward(&window, &start.criterion, &how, &mut facts, &mut stop);
    if slice.cut {
        limits.push("dependences were not followed to the beginning: too many, or no time".into());
    }
    let influence = [false, true].map(|data_only| slice::influence(&window, told, data_only, &mut stop));
    let vouched = Vouched::by(&right, &window, &mut facts, &mut stop);
    let told = told.to_vec();
    Ok(Symptom {
        start,
        window,
        slice,
        told,
        influence,
        vouched,
        facts: RefCell::new(facts),
        how,
        wider: OnceCell::new(),
        limits,
    })
}

impl Symptom {
    /// What the input had to do with an execution.
    pub fn influence(&self, execution: u32) -> Influence {
        match &self.influence {
            [_, data] if data.has(execution) => Influence::Data,
            [all, _] if all.has(execution) => Influence::Control,
            _ => Influence::None,
        }
    }

    /// What is known about the code.
    pub fn facts(&self) -> std::cell::RefMut<'_, Program> {
        self.facts.borrow_mut()
    }

    /// How far executions are from the symptom if stores through pointers in code that did not run count too.
    pub fn through_pointers(&self) -> &HashMap<(u32, u16), u32> {
        self.wider.get_or_init(|| self.follow_pointers())
    }

    fn follow_pointers(&self) -> HashMap<(u32, u16), u32> {
        let until = Instant::now() + WIDER;
        let how = slice::Options { pointers: true, ..self.how.clone() };
        let mut facts = self.facts.borrow_mut();
        let mut stop = || Instant::now() > until;
        let wider = slice::backward(&self.window, &self.start.criterion, &how, &mut *facts, &mut stop);
        wider.nodes.iter().skip(1).map(|n| ((n.execution, n.insn), n.distance)).collect()
    }
}

/// Where the arguments of the program lie when it begins.
pub fn arguments(session: &mut Session) -> Result<Vec<(u64, u64)>, Refusal> {
    session.seek_start().map_err(Refusal::internal)?;
    let stack = session.registers(session.place().thread).map_err(Refusal::internal)?.gpr[4];
    let word = |at: u64| {
        let mut bytes = [0; 8];
        let n = session.read(GuestAddr(at), &mut bytes).unwrap_or(0);
        (n == 8).then(|| u64::from_le_bytes(bytes))
    };
    let count = word(stack).filter(|n| *n < MOST_ARGUMENTS).unwrap_or(0);
    // The strings lie behind each other, those of the environment last; the program's name says nothing.
    let [first, end] = [2, count + 2].map(|n| word(stack + 8 * n).unwrap_or(0));
    Ok(if count > 1 && first < end { vec![(first, end - first)] } else { Vec::new() })
}
