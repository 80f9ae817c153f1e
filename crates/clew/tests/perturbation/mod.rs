//! Changing what a slice leaves out, and looking whether the value that was sliced changes.

mod align;
pub mod course;
mod frames;
pub mod nesting;
pub mod relevant;
pub mod subject;
mod writers;

use crate::common::place::Place;
use clew::slice::{facts::Program, tracing};
use course::{Changed, Course, Step, Value};
use frames::Frames;
use model::GuestAddr;
use model::serve::{Alteration, Moment, Request};
use recording::{Recording, UnitName};
use session::{EngineProgram, Replayer, Session, Traces, images_of, read_from, registers_of};
use slice::{Builder, CallEffects, Criterion, NoFacts, Omit, Options, Prepare, RegId, Why, Window, backward};
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use subject::Subject;
use testkit::random::Random;
use trace::chunk::{Chunk, ChunkSink};

/// Changes that are tried for one value at most, how many of them only at the border of the slice, and how many must have
/// said something to stop earlier.
const TRIES: usize = 20;
const AT_BORDER: usize = 8;
const ENOUGH: usize = 4;
/// Half of the changes are made so close before the value.
const NEAR: u64 = 2_000;
/// A changed program that runs longer has gone another way.
const PATIENCE: Duration = Duration::from_secs(20);
const FLAGS: u8 = 16;
/// Where vector registers begin in what XSAVE writes.
const XMM: usize = 160;

/// What came out.
#[derive(Default)]
pub struct Tally {
    /// Values that were sliced.
    pub pairs: usize,
    /// Of these, values for which at least one change left the path as it was.
    pub compared: usize,
    pub changes: usize,
    pub same_path: usize,
    pub violations: Vec<String>,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.pairs += other.pairs;
        self.compared += other.compared;
        self.changes += other.changes;
        self.same_path += other.same_path;
        self.violations.extend(other.violations.iter().cloned());
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { pairs, compared, changes, same_path, violations } = self;
        let n = violations.len();
        write!(f, "{compared} of {pairs} compared: {same_path} of {changes} changes kept the path, {n} violations")
    }
}

/// A recorded subject that can be visited.
pub struct Stage<'a> {
    name: &'a str,
    session: Session,
    loaded: image::LoadedImages,
    facts: Program,
    calls: Vec<CallEffects>,
    /// Where the main thread's stack is.
    stacks: Range<u64>,
}

/// A value at a moment, its slice, and what ran before it.
struct Sliced {
    value: Value,
    thread: u32,
    moment: Moment,
    course: Course,
    text: String,
    /// Branches that the slice has lost because potential dependences were omitted, as steps.
    lost: Vec<usize>,
}

impl Sliced {
    /// Something that the slice leaves out: at its border, or close before the value or anywhere.
    fn pick(&self, at_border: bool, random: &mut Random) -> Option<(usize, Changed)> {
        let all = self.course.steps.len() as u64;
        let from = match random.below(2) {
            _ if at_border && !self.course.border.is_empty() => return Some(*random.pick(&self.course.border)),
            0 => all.saturating_sub(1 + random.below(NEAR.min(all).max(1))),
            _ => random.below(all.max(1)),
        };
        self.course.left_out(from as usize)
    }
}

/// Records a subject and does something with it.
pub fn with_stage<T>(subject: &Subject, work: impl FnOnce(&mut Stage<'_>) -> T) -> T {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let place = Place::new(&format!("right-{}-{}", subject.name, NEXT.fetch_add(1, Ordering::Relaxed)));
    let recording = subject.record(&place);
    let engine = EngineProgram::in_memory(clew::ENGINE).expect("the engine can be started");
    let replayer = Replayer { engine: &engine, recording: &recording };
    let unit = replayer.images()[0];
    let mut stage = Stage::open(&subject.name, &replayer, &recording, unit);
    let done = work(&mut stage);
    drop(stage);
    place.done();
    done
}

/// Slices `pairs` random values of a subject and changes what is left out.
pub fn check_pairs(subject: &Subject, pairs: usize, seed: u64, omit: Option<Omit>) -> Tally {
    with_stage(subject, |stage| {
        let mut random = Random::new(seed);
        let mut tally = Tally::default();
        let whole = stage.whole();
        for _ in 0..pairs {
            let sliced = stage.slice(&whole, &mut random, &Options { omit, ..Options::default() });
            // Where nothing of the omitted kind is lost, nothing can be noticed.
            if omit.is_some() && sliced.course.border.is_empty() {
                continue;
            }
            tally.add(&stage.change(&sliced, &mut random));
            if omit.is_some() && !tally.violations.is_empty() {
                break;
            }
        }
        tally
    })
}

/// Hands chunks to a builder that outlives the reader of the trace.
struct Shared(Arc<Mutex<Builder>>);

impl ChunkSink for Shared {
    fn chunk(&mut self, chunk: &Chunk<'_>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).chunk(chunk);
    }
}

impl<'a> Stage<'a> {
    fn open(name: &'a str, replayer: &Replayer<'_>, recording: &Recording, unit: UnitName) -> Stage<'a> {
        let mut session = Session::open(replayer, &unit).expect("the session opens");
        session.seek_end(&mut || false).expect("the end is reached");
        let images = images_of(recording);
        let loaded = session.loaded(recording, &images).expect("images are known");
        let names = tracing::original_names(recording, &unit);
        let paths: Vec<_> = loaded.iter().map(|l| names.get(l.image.path()).cloned()).collect();
        let facts = Program::new(&session, &loaded, &paths, true).expect("the code can be read");
        let calls = tracing::calls(recording, &unit).expect("the log can be read");
        let sp = session.registers(session.place().thread).expect("registers can be read").gpr[4];
        let maps = session.maps().expect("mappings are known");
        let stack = maps.iter().find(|m| (m.start..m.end).contains(&sp));
        let stacks = stack.map_or(0..0, |m| m.start.saturating_sub(8 << 20)..m.end);
        Stage { name, session, loaded, facts, calls, stacks }
    }

    fn window(&mut self, to: Moment, frames: bool) -> Window {
        let traced = tracing::trace(&mut self.session, None, to, 500, &mut || false).expect("it can be traced");
        assert!(!traced.cut, "{} is too long", self.name);
        traced.builder.finish(&mut self.facts, self.calls.clone(), Prepare { bypass: true, frames })
    }

    /// Everything that ran.
    fn whole(&mut self) -> Course {
        self.session.seek_end(&mut || false).expect("the end is reached");
        let end = self.session.moment();
        let window = self.window(end, false);
        Course::new(&window, &HashSet::new(), false)
    }

    /// Slices a random value.
    fn slice(&mut self, whole: &Course, random: &mut Random, how: &Options) -> Sliced {
        // What libraries do with values of their own is of little interest for what might have been.
        let wanted = |pc: u64| !how.relevant || self.loaded.at(GuestAddr(pc)).is_some_and(|(image, ..)| image == 0);
        let step = whole.pick_used(random, wanted);
        let Step { pc, instance, .. } = whole.steps[step];
        let used = whole.used(step, random);
        let sought = self.session.seek_instance(&[pc], u64::from(instance), &mut || false);
        sought.unwrap_or_else(|e| panic!("{}: execution {instance} of {pc:#x}: {e}", self.name));
        let (moment, thread) = (self.session.moment(), self.session.place().thread);
        let window = self.window(moment, how.relevant);
        let criterion = match used {
            Value::Reg(reg, mask) => Criterion { registers: vec![(RegId::gpr(reg), mask)], ..Criterion::default() },
            Value::Mem(at, len) => Criterion { memory: vec![(at, len)], ..Criterion::default() },
        };
        let slice = backward(&window, &criterion, how, &mut self.facts, &mut || false);
        let mut inside: HashSet<(u32, u16)> = slice.nodes.iter().skip(1).map(|n| (n.execution, n.insn)).collect();
        inside.extend(&slice.passed);
        let mut course = Course::new(&window, &inside, !how.relevant);
        let mut lost = Vec::new();
        if how.omit == Some(Omit::Potential) {
            let whole =
                backward(&window, &criterion, &Options { omit: None, ..how.clone() }, &mut self.facts, &mut || false);
            let potential =
                whole.nodes.iter().filter(|n| n.why == Why::Potential).map(|n| (n.execution, n.insn)).collect();
            lost = course.turnable_among(&window, &potential);
        }
        if let Some(omitted) = how.omit {
            course.border.retain(|(_, changed)| changed.kind() == omitted);
        }
        let text = format!("{}: {used} at execution {instance} of {pc:#x}", self.name);
        Sliced { value: used, thread, moment, course, text, lost }
    }

    /// Changes what the slice leaves out.
    fn change(&mut self, sliced: &Sliced, random: &mut Random) -> Tally {
        let mut tally = Tally { pairs: 1, ..Tally::default() };
        let (live, now) = (self.session.copy().expect("a copy can be made"), self.session.moment());
        assert_eq!(now, sliced.moment);
        let before = value_in(&live, sliced);
        drop(live);
        for n in 0..TRIES {
            let Some((step, changed)) = sliced.pick(n < AT_BORDER, random) else { continue };
            tally.changes += 1;
            let Some((what, after)) = self.try_change(sliced, step, changed, random) else { continue };
            tally.same_path += 1;
            if after != before {
                let Step { pc, instance, .. } = sliced.course.steps[step];
                tally.violations.push(format!(
                    "{}: {before:x?} became {after:x?} when {what} was changed behind execution {instance} of {pc:#x}",
                    sliced.text
                ));
            }
            if tally.same_path >= ENOUGH {
                break;
            }
        }
        tally.compared = usize::from(tally.same_path > 0);
        tally
    }

    /// Makes a change behind a step. If path and stores stay as they were: what was changed, and the value.
    fn try_change(
        &mut self,
        sliced: &Sliced,
        step: usize,
        changed: Changed,
        random: &mut Random,
    ) -> Option<(String, Vec<u8>)> {
        let thread = self.stand_behind(sliced, step)?;
        let (alteration, what) = self.alteration(thread, changed, random)?;
        let (window, reached, live) = self.traced(&alteration, sliced.moment)?;
        if !reached {
            return None;
        }
        let altered = Course::altered(&window, Frames::default());
        sliced.course.goes_on_as(step + 1, &altered).then(|| (what, value_in(&live, sliced)))
    }

    /// Goes to behind a step that comes before the value; gives its thread.
    fn stand_behind(&mut self, sliced: &Sliced, step: usize) -> Option<u32> {
        let Step { pc, instance, .. } = sliced.course.steps[step];
        self.session.seek_instance(&[pc], u64::from(instance), &mut || false).ok()?;
        let thread = self.session.place().thread;
        self.session.step(thread, &mut || false).ok()?;
        (self.session.moment() < sliced.moment && self.session.place().thread == thread).then_some(thread)
    }

    /// What runs from here to a moment with this alteration, whether it gets there, and the engine that ran.
    fn traced(&mut self, alteration: &Request, to: Moment) -> Option<(Window, bool, session::Live)> {
        let builder = Arc::new(Mutex::new(Builder::new()));
        let theirs = builder.clone();
        let make = Box::new(move |_| Box::new(Shared(theirs.clone())) as Box<dyn ChunkSink + Send>);
        let begun = Instant::now();
        let mut late = || begun.elapsed() > PATIENCE;
        let change = |live: &session::Live| live.ask(alteration).map(drop);
        let from = self.session.moment();
        let ran = self.session.window_altered(from, change, to, Traces::Chunks(make), &mut late);
        // An altered program may bring its engine down; then it went another way, too.
        let (window, live) = ran.ok()?;
        if window.totals.iter().any(|t| t.damage.is_some()) {
            return None;
        }
        let builder = std::mem::take(&mut *builder.lock().unwrap_or_else(PoisonError::into_inner));
        let prepare = Prepare { bypass: false, frames: false };
        Some((builder.finish(&mut NoFacts, Vec::new(), prepare), window.reached, live))
    }

    /// Another value in the place of what the instruction before made, and what that is in words.
    fn alteration(&self, thread: u32, changed: Changed, random: &mut Random) -> Option<(Request, String)> {
        let mut state = self.session.registers(thread).ok()?;
        // Small and large changes: the ones keep addresses in their pages, the others turn signs.
        let noise = [1, 1, 2, 4, 0x80, random.word()][random.below(6) as usize];
        let within = |bits: u64| if noise & bits == 0 { bits } else { noise & bits };
        match changed {
            Changed::Reg(reg, bits) => {
                let value = state.gpr[usize::from(reg)] ^ within(bits);
                let text = format!("{} (xor {:#x})", RegId::gpr(reg).name(), within(bits));
                Some((Request::Alter(Alteration::SetRegister(reg, value)), text))
            }
            Changed::Flags(flags) => {
                let flags = if random.word() & flags == 0 { flags } else { random.word() & flags };
                let alteration = Alteration::SetRegister(FLAGS, state.rflags ^ flags);
                Some((Request::Alter(alteration), format!("flags (xor {flags:#x})")))
            }
            Changed::Vector(n, bytes) => {
                let byte =
                    (0..16).filter(|b| bytes >> b & 1 != 0).nth(random.below(u64::from(bytes.count_ones())) as usize)?;
                *state.extended.get_mut(XMM + usize::from(n) * 16 + byte)? ^= within(0xff) as u8;
                Some((Request::SetRegisters { thread, state }, format!("byte {byte} of xmm{n}")))
            }
            Changed::Mem(at, len) => {
                let mut bytes = vec![0; len as usize];
                let read = self.session.read(GuestAddr(at), &mut bytes).ok()?;
                let index = random.below(len) as usize;
                bytes[index] ^= within(0xff) as u8;
                let text = format!("byte {index} of {len} at {at:#x}");
                let request = Request::Alter(Alteration::SetMemory(GuestAddr(at), bytes));
                (read == len as usize).then_some((request, text))
            }
        }
    }
}

/// The sliced value, in an engine at its moment.
fn value_in(live: &session::Live, sliced: &Sliced) -> Vec<u8> {
    match sliced.value {
        Value::Reg(reg, mask) => {
            let state = registers_of(live, sliced.thread).expect("registers can be read");
            let bytes = state.gpr[usize::from(reg)].to_le_bytes();
            bytes.iter().enumerate().filter(|(n, _)| mask >> n & 1 != 0).map(|(_, b)| *b).collect()
        }
        Value::Mem(at, len) => {
            let mut bytes = vec![0; len as usize];
            let read = read_from(live, GuestAddr(at), &mut bytes).expect("memory can be read");
            bytes.truncate(read);
            bytes
        }
    }
}
