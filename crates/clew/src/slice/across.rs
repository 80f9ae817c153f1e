//! Slices across processes: where a call delivered bytes that a process of the recording wrote, the slice goes on there.
//!
//! Each process is a part of its own, with its window and its slice. What one part needs of others is asked of them until
//! nobody needs anything more; a part that is asked again is sliced again with all that is wanted of it, and traced again
//! where its windows are not in memory any more.
//!
//! May miss: what the header of [`super::carried`] names, and what a forked process did between its fork and its next tick.

use super::carried::{Carried, Source, Unnamed};
use super::lines::Ran;
use super::outputs::address_in;
use super::{Job, Refusal, Times, add_limit, facts::Program};
use model::GuestAddr;
use model::log::{CallRecord, Kind, Origin};
use model::serve::Moment;
use recording::{Recording, UnitName};
use session::{Replayer, Session};
use slice::{Criterion, Delivered, Input, Places, Sent, Slice, Window};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Processes beyond which a slice is not followed.
const MOST_PARTS: usize = 32;
const O_ACCMODE: u64 = 3;
const LONGEST_PATH: usize = 4096;

/// What a slice has of one process.
pub struct Part {
    pub unit: UnitName,
    /// The only window that there is; empty unless it is kept to be walked again.
    pub window: Window,
    /// What ran, in all windows that were traced.
    pub ran: Ran,
    /// Bytes of memory that the largest window took.
    pub memory: usize,
    pub slice: Slice,
    /// Where its nodes are shown, if it has any.
    pub places: Places,
    /// What the value was made by, if that was asked for: executions and instructions.
    pub data: HashSet<(u32, u16)>,
    pub loaded: image::LoadedImages,
    pub paths: Vec<Option<PathBuf>>,
    /// Who needs what a call of this part sent, the nearest to the criterion: number of the part, and node.
    pub needed_by: HashMap<u64, (usize, u32)>,
    /// Calls that delivered what processes of the recording wrote, by record.
    pub answered: HashSet<u64>,
    pub(super) criterion: Criterion,
    pub(super) how: slice::Options,
    pub(super) facts: Program,
    /// Where what may be traced of the process begins, and where the slice does.
    pub(super) since: Moment,
    pub(super) until: Moment,
    /// The window is there to be walked again.
    pub(super) has_window: bool,
    /// The window is all that is looked at, and begins after `since`.
    pub(super) begins_late: bool,
    /// Time ran out before this moment was reached from the criterion.
    pub(super) stopped: Option<Moment>,
}

/// Bytes of one call that others need.
#[derive(Default)]
struct Needed {
    /// Places among the bytes of the call, or addresses where the call was a fork.
    bytes: BTreeSet<u64>,
    is_fork: bool,
    distance: u32,
    by: (usize, u32),
}

type Needs = BTreeMap<UnitName, BTreeMap<u64, Needed>>;

/// The search for everything that a slice needs of other processes.
pub struct Across<'a> {
    pub job: &'a Job<'a>,
    pub replayer: &'a Replayer<'a>,
    pub images: &'a image::Images,
    pub stop: &'a mut dyn FnMut() -> bool,
    pub limits: &'a mut Vec<String>,
    pub times: Times,
}

impl Across<'_> {
    /// Adds parts to the first one until nothing more is needed.
    pub fn run(&mut self, parts: &mut Vec<Part>) -> Result<(), Refusal> {
        let recording = self.replayer.recording;
        let mut carried = None;
        let mut known: HashMap<(UnitName, u64), BTreeSet<u64>> = HashMap::new();
        loop {
            if carried.is_none() && parts.iter().any(|p| !p.slice.delivered.is_empty()) {
                carried = Some(self.carried()?);
            }
            let needs = needs(recording, parts, carried.as_ref());
            let mut changed = false;
            for (unit, calls) in needs {
                let fresh = calls.iter().any(|(record, n)| {
                    let bytes = known.entry((unit, *record)).or_default();
                    let before = bytes.len();
                    bytes.extend(&n.bytes);
                    bytes.len() > before
                });
                if !fresh {
                    continue;
                }
                if (self.stop)() || parts.len() >= MOST_PARTS {
                    let text = "not all processes that wrote what was read were followed (--budget)";
                    add_limit(self.limits, text.into());
                    return Ok(());
                }
                self.ask(unit, calls, parts)?;
                changed = true;
            }
            if !changed {
                parts.iter_mut().for_each(|p| p.answered = answered(p, carried.as_ref()));
                return Ok(());
            }
        }
    }

    /// Slices a process from what others need of it.
    fn ask(&mut self, unit: UnitName, calls: BTreeMap<u64, Needed>, parts: &mut Vec<Part>) -> Result<(), Refusal> {
        let recording = self.replayer.recording;
        let mut session = Session::open(self.replayer, &unit).map_err(Refusal::internal)?;
        let (mut sent, mut needed_by, mut until) = (Vec::new(), HashMap::new(), Moment::default());
        for (record, needed) in calls {
            let Some(call) = call_at(recording, unit, record) else { continue };
            // Before the call, the tick that it makes is not there.
            let before = Moment { tick: call.tick.saturating_sub(1), pc: call.pc };
            session.seek(before, self.stop).map_err(Refusal::internal)?;
            let read = |at: u64, to: &mut [u8]| session.read(GuestAddr(at), to).unwrap_or(0) == to.len();
            let lies = |n: u64| if needed.is_fork { Some(n) } else { address_in(&call, n, read) };
            let memory = joined(needed.bytes.iter().filter_map(|n| lies(*n)));
            let thread = session.place().thread;
            session.step(thread, self.stop).map_err(Refusal::internal)?;
            until = until.max(session.moment());
            sent.push((session.moment(), Sent { record, memory, distance: needed.distance }));
            needed_by.insert(record, needed.by);
        }
        let known = parts.iter().position(|p| p.unit == unit);
        // What the criterion's own process sent after the criterion has no part in it.
        if known == Some(0) {
            sent.retain(|(after, _)| *after <= parts[0].until);
        }
        let sent: Vec<Sent> = sent.into_iter().map(|(_, sent)| sent).collect();
        match known.filter(|n| *n == 0 || parts[*n].until >= until) {
            Some(n) => {
                let part = &mut parts[n];
                if part.criterion.sent == sent {
                    return Ok(());
                }
                (part.criterion.sent, part.needed_by) = (sent, needed_by);
                self.slice_again(part, &mut session)
            }
            None => {
                let (mut part, traced) = self.job.part(&mut session, unit, until, self)?;
                (part.criterion.sent, part.needed_by) = (sent, needed_by);
                self.job.follow(&mut part, &mut session, traced, self, false)?;
                match known {
                    Some(n) => parts[n] = part,
                    None => parts.push(part),
                }
                Ok(())
            }
        }
    }

    /// Slices a part from a criterion that has changed.
    fn slice_again(&mut self, part: &mut Part, session: &mut Session) -> Result<(), Refusal> {
        if part.has_window {
            return self.job.walk(part, self.stop);
        }
        let (traced, _) = self.job.trace(session, part.unit, part.until, self)?;
        self.job.follow(part, session, traced, self, false)
    }

    fn carried(&mut self) -> Result<Carried, Refusal> {
        let mut sessions: HashMap<UnitName, Option<Session>> = HashMap::new();
        let (replayer, stop) = (self.replayer, &mut *self.stop);
        let mut name_of = |open: &Unnamed| {
            let opened = || Session::open(replayer, &open.unit).ok();
            let session = sessions.entry(open.unit).or_insert_with(opened).as_mut()?;
            name_of(session, replayer.recording, open, stop)
        };
        Carried::gather(replayer.recording, &mut name_of).map_err(Refusal::internal)
    }
}

/// The name that a call opened for writing: the string that its argument points to.
pub fn name_of(
    session: &mut Session,
    recording: &Recording,
    open: &Unnamed,
    stop: &mut dyn FnMut() -> bool,
) -> Option<PathBuf> {
    let CallRecord { nr, args, tick, pc, .. } = open.call;
    let (pointer, flags) = match nr {
        2 => (args[0], args[1]),
        85 => (args[0], 1),
        _ => (args[1], args[2]),
    };
    // Files that were empty when they were opened for reading have nothing to deliver.
    if flags & O_ACCMODE == 0 {
        return None;
    }
    session.seek(Moment { tick: tick.saturating_sub(1), pc }, stop).ok()?;
    let mut bytes = vec![0; LONGEST_PATH];
    let n = session.read(GuestAddr(pointer), &mut bytes).ok()?;
    let len = bytes[..n].iter().position(|b| *b == 0)?;
    bytes.truncate(len);
    let path = PathBuf::from(OsString::from_vec(bytes));
    let first = recording.lineage(&open.unit).ok()?.first().copied()?;
    let folder = recording.unit(&first).ok()?.start.cwd.clone();
    Some(tidy(&Path::new(&OsString::from_vec(folder)).join(path)))
}

/// Without `.` and `..`, and with links of today in its folders followed.
pub fn tidy(path: &Path) -> PathBuf {
    let (folder, name) = (path.parent(), path.file_name());
    match (folder.and_then(|f| f.canonicalize().ok()), name) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

/// What the parts need of each other, and of processes that are no parts yet.
fn needs(recording: &Recording, parts: &[Part], carried: Option<&Carried>) -> Needs {
    let mut needs = Needs::new();
    for (number, part) in parts.iter().enumerate() {
        let mut add = |source: Source, (node, distance): (u32, u32), is_fork: bool| {
            let call = needs.entry(source.unit).or_default().entry(source.record);
            let needed = call.or_insert_with(|| Needed { distance, by: (number, node), ..Needed::default() });
            needed.is_fork |= is_fork;
            needed.bytes.insert(source.offset);
            if distance < needed.distance {
                (needed.distance, needed.by) = (distance, (number, node));
            }
        };
        for d in &part.slice.delivered {
            let sources = sources(part.unit, d, carried).flatten();
            sources.for_each(|source| add(source, (d.node, d.distance), false));
        }
        // Where the slice does not reach back to the fork, it is not known what it needs from before.
        let reaches_fork = !part.slice.cut && !part.begins_late;
        let Some((parent, record)) = fork_of(recording, part.unit).filter(|_| reaches_fork) else { continue };
        for input in &part.slice.inputs {
            if let Input::Mem { addr, mask, node, distance } = input {
                for byte in (0..8).filter(|b| mask >> b & 1 != 0) {
                    add(Source { unit: parent, record, offset: addr + byte }, (*node, *distance), true);
                }
            }
        }
    }
    needs
}

/// Who wrote the bytes that a call of a process delivered, one by one; nothing where none of them can be known.
fn sources<'a>(
    unit: UnitName,
    delivered: &'a Delivered,
    carried: Option<&'a Carried>,
) -> impl Iterator<Item = Option<Source>> + 'a {
    let Delivered { record, offset, len, .. } = *delivered;
    let carried = carried.filter(|c| c.knows(unit, record)).into_iter();
    carried.flat_map(move |c| (offset..offset.saturating_add(len)).map(move |n| c.source(unit, record, n)))
}

/// The calls of a part whose bytes all have a writer in the recording.
fn answered(part: &Part, carried: Option<&Carried>) -> HashSet<u64> {
    let (mut with, mut without) = (HashSet::new(), HashSet::new());
    for d in &part.slice.delivered {
        let mut sources = sources(part.unit, d, carried).peekable();
        let all = sources.peek().is_some() && sources.all(|s| s.is_some());
        if all { &mut with } else { &mut without }.insert(d.record);
    }
    with.difference(&without).copied().collect()
}

/// The call with which a forked unit came to be: its parent, and the record of the call there.
fn fork_of(recording: &Recording, unit: UnitName) -> Option<(UnitName, u64)> {
    let Origin::Fork { unit: parent, record } = &recording.unit(&unit).ok()?.start.origin else { return None };
    let parent: UnitName = parent.parse().ok()?;
    let log = recording.log(&parent).ok()?;
    let mut behind = log.records().filter(|(n, r)| n >= record && r.kind == Kind::Call);
    behind.next().map(|(n, _)| (parent, n))
}

fn call_at(recording: &Recording, unit: UnitName, record: u64) -> Option<CallRecord> {
    let log = recording.log(&unit).ok()?;
    let (_, raw) = log.records().find(|(n, r)| *n == record && r.kind == Kind::Call)?;
    CallRecord::decode(raw.payload)
}

/// Single bytes as ranges.
fn joined(bytes: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
    let sorted: BTreeSet<u64> = bytes.collect();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for at in sorted {
        match ranges.last_mut() {
            Some((start, len)) if *start + *len == at => *len += 1,
            _ => ranges.push((at, 1)),
        }
    }
    ranges
}
