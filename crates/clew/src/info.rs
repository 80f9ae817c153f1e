//! `clew info`: what is in a recording.

use crate::cli::{Color, Info as Options};
use crate::home::{self, Opened};
use crate::message::{self, Messages, Paint};
use crate::startup::Startup;
use crate::{show, status};
use iced_x86::CpuidFeature;
use model::Cpu;
use model::log::Origin;
use recording::{Recording, State, Unit, UnitName};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Says what is in the recording of the command line; gives the exit status.
pub fn run(options: &Options, color: Color, startup: &Startup) -> i32 {
    let (opened, unit) = match home::find(&options.recording, startup) {
        Ok(found) => found,
        Err(why) => {
            Messages { paint: Paint::for_stderr(color, startup) }.error(&why);
            return status::USAGE;
        }
    };
    let facts = Facts::gather(&opened, unit);
    match options.json {
        true => message::stdout(&format!("{:#}\n", facts.to_json())),
        false => message::stdout(&facts.to_text(Paint::for_stdout(color, startup))),
    }
    0
}

/// A recording and what was counted in it.
struct Facts<'a> {
    recording: &'a Recording,
    /// What the recording was opened from: its folder or the packed file.
    source: String,
    /// Bytes on the disk, of the packed file if it is one.
    bytes: u64,
    packed: bool,
    state: State,
    /// How many files were kept, and their bytes.
    kept: (u64, u64),
    /// The units to tell about in the order of the tree, with their depth in it.
    tree: Vec<(usize, &'a Unit)>,
    unreadable: Vec<&'a (UnitName, String)>,
}

impl<'a> Facts<'a> {
    /// About all units, or about one.
    fn gather(opened: &'a Opened, only: Option<UnitName>) -> Facts<'a> {
        let recording = &opened.recording;
        let packed = std::fs::metadata(&opened.source).ok().filter(|m| m.is_file());
        let state = match recording.meta().status {
            _ if recording.being_written() => State::Writing,
            Some(status) => State::Ended(status),
            None => State::Interrupted,
        };
        let tree = tree(recording).into_iter().filter(|(_, u)| only.is_none_or(|o| o == u.name)).collect();
        Facts {
            recording,
            source: opened.source.display().to_string(),
            bytes: packed.as_ref().map_or_else(|| recording.disk_bytes(), |m| m.len()),
            packed: packed.is_some(),
            state,
            kept: kept(recording),
            tree,
            unreadable: recording.unreadable().iter().filter(|(n, _)| only.is_none_or(|o| o == *n)).collect(),
        }
    }

    fn to_json(&self) -> Value {
        let meta = self.recording.meta();
        let mut document = json!({
            "clew": 1,
            "verb": "info",
            "path": self.source,
            "packed": self.packed,
            "command": show::values(&meta.command),
            "cwd": show::value(meta.cwd.as_os_str()),
            "created": meta.created,
            "version": meta.clew,
            "cpu": cpu(meta.cpu),
            "seed": meta.seed,
            "state": show::state(&self.state).0,
            "status": meta.status.map(show::status_value),
            "bytes": self.bytes,
            "kept": { "files": self.kept.0, "bytes": self.kept.1 },
        });
        let unit = |(_, u): &(usize, &Unit)| {
            json!({
                "unit": u.name.to_string(),
                "pid": u.name.pid,
                "image": u.name.image,
                "origin": origin_value(u),
                "region": u.start.region,
                "program": program(self.recording, u),
                "arguments": u.start.argv.iter().map(|a| show::value(OsStr::from_bytes(a))).collect::<Vec<_>>(),
                "end": show::end(u.end.as_ref()).0,
                "records": u.records,
                "bytes": u.bytes,
                "threads": u.threads,
                "inexact": u.inexact.iter().map(|(r, why)| json!({ "record": r, "why": why })).collect::<Vec<_>>(),
                "missing": u.missing().map(|m| m.to_string()).collect::<Vec<_>>(),
                "damage": u.damage.as_ref().map(|(r, why)| json!({ "record": r, "why": why })),
                "features": features(u),
            })
        };
        document["units"] = self.tree.iter().map(unit).collect();
        let unreadable = |u: &&(UnitName, String)| json!({ "unit": u.0.to_string(), "why": u.1 });
        document["unreadable"] = self.unreadable.iter().map(unreadable).collect();
        document
    }

    fn to_text(&self, paint: Paint) -> String {
        let meta = self.recording.meta();
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            text.push_str(&format!("{} {value}\n", paint.strong(&format!("{name:9}"))));
        };
        line("recording", self.source.clone() + if self.packed { " (packed)" } else { "" });
        line("command", show::command(&meta.command));
        line("folder", show::path(meta.cwd.as_os_str().as_bytes()));
        line("recorded", format!("{} by Clew {}", show::when(meta.created), meta.clew));
        line("ended", ended(&self.state, paint));
        line("cpu", cpu(meta.cpu).to_owned());
        line("seed", meta.seed.map_or_else(|| "none".to_owned(), |s| s.to_string()));
        for (name, point) in meta.other.iter().filter(|(name, _)| name == "from" || name == "to") {
            line(name, point.clone());
        }
        line("size", show::bytes(self.bytes));
        line("kept", format!("{}, {}", show::count(self.kept.0, "file"), show::bytes(self.kept.1)));
        let needed: BTreeSet<String> = self.tree.iter().flat_map(|(_, u)| features(u)).collect();
        if !needed.is_empty() {
            line("needs", needed.into_iter().collect::<Vec<_>>().join(" "));
        }
        let processes: HashSet<u32> = self.tree.iter().map(|(_, u)| u.name.pid).collect();
        let (processes, images) = (processes.len() as u64, self.tree.len() as u64);
        line("processes", format!("{processes}, with {}", show::count(images, "image")));
        self.tree.iter().for_each(|(depth, u)| text.push_str(&self.unit_text(*depth, u, paint)));
        for (unit, why) in &self.unreadable {
            text.push_str(&format!("  {unit}  {}: {why}\n", paint.bad("cannot be read")));
        }
        text
    }

    fn unit_text(&self, depth: usize, unit: &Unit, paint: Paint) -> String {
        // Deep trees stay readable: from some depth on the number says it.
        let indent = "  ".repeat(1 + depth.min(20));
        let how = match unit.start.origin {
            Origin::First => "",
            Origin::Exec { .. } => "execve ",
            Origin::Fork { .. } => "fork of ",
        };
        let program = show::path(program(self.recording, unit).as_bytes());
        let (records, threads) = (show::count(unit.records, "record"), show::count(unit.threads.into(), "thread"));
        let end = show::end(unit.end.as_ref()).1;
        let end = match unit.end {
            Some(e) if e.ending == model::log::Ending::Signaled => paint.bad(&end),
            None => paint.middling(&end),
            _ => end,
        };
        let from = unit.start.region.map_or_else(String::new, |tick| format!("  from tick {tick}"));
        let mut text = format!("{indent}{}  {how}{program}{from}  {end}  {records}, {threads}\n", unit.name);
        for (record, why) in &unit.inexact {
            let what = paint.middling("inexact");
            text.push_str(&format!("{indent}  {what} from record {record} on: {why}\n"));
        }
        for missing in unit.missing() {
            text.push_str(&format!("{indent}  {}: {missing}\n", paint.bad("incomplete")));
        }
        if let Some((record, why)) = &unit.damage {
            text.push_str(&format!("{indent}  {} from record {record} on: {why}\n", paint.bad("damaged")));
        }
        text
    }
}

fn ended(state: &State, paint: Paint) -> String {
    match state {
        State::Writing => paint.middling("not yet: it is being recorded"),
        State::Interrupted => {
            paint.middling("unknown: the recorder was interrupted; what it recorded until then is here")
        }
        State::Ended(status) => show::status(*status),
        State::Damaged(why) => why.clone(),
    }
}

fn cpu(cpu: Cpu) -> &'static str {
    match cpu {
        Cpu::V2 => "v2",
        Cpu::Native => "native",
    }
}

fn kept(recording: &Recording) -> (u64, u64) {
    let files = std::fs::read_dir(recording.path().join("files")).into_iter().flatten().flatten();
    let sizes = files.filter_map(|f| f.metadata().ok()).filter(|m| m.is_file()).map(|m| m.len());
    sizes.fold((0, 0), |(count, bytes), size| (count + 1, bytes + size))
}

/// The units with their depth, each behind the one it comes from. A damaged recording may claim anything: units that
/// come from each other in a circle are listed too, once.
fn tree(recording: &Recording) -> Vec<(usize, &Unit)> {
    let mut children: BTreeMap<UnitName, Vec<&Unit>> = BTreeMap::new();
    let (mut roots, mut others) = (Vec::new(), Vec::new());
    for unit in recording.units() {
        match recording.parent(unit) {
            Some(parent) => {
                children.entry(parent.name).or_default().push(unit);
                others.push(unit);
            }
            None => roots.push(unit),
        }
    }
    let mut listed = Vec::new();
    let mut seen = HashSet::new();
    for root in roots.into_iter().chain(others) {
        let mut open = vec![(0, root)];
        while let Some((depth, unit)) = open.pop() {
            if !seen.insert(unit.name) {
                continue;
            }
            listed.push((depth, unit));
            let below = children.get(&unit.name).into_iter().flatten().rev();
            open.extend(below.map(|child| (depth + 1, *child)));
        }
    }
    listed
}

/// The program of a unit; that of a copy is its original's.
fn program(recording: &Recording, unit: &Unit) -> String {
    let lineage = recording.lineage(&unit.name).unwrap_or_default();
    let first = lineage.first().and_then(|name| recording.unit(name).ok()).unwrap_or(unit);
    first.start.exe.clone()
}

fn origin_value(unit: &Unit) -> Value {
    match &unit.start.origin {
        Origin::First => json!("first"),
        Origin::Exec { unit } => json!({ "execve": unit }),
        Origin::Fork { unit, record } => json!({ "fork": unit, "record": record }),
    }
}

/// The instruction set extensions that a unit met, by name.
fn features(unit: &Unit) -> Vec<String> {
    let name = |number: u32| match CpuidFeature::try_from(number as usize) {
        Ok(feature) => format!("{feature:?}").to_lowercase(),
        Err(_) => format!("feature-{number}"),
    };
    let names: BTreeSet<String> = unit.features.iter().map(|f| name(f.feature)).collect();
    names.into_iter().collect()
}
