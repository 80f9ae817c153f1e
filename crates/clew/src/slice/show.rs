//! The answer of `slice` for people, as JSON, and as a graph.

use super::Answer;
use super::lines::{Line, Sources};
use super::view::View;
use crate::cli::Slice as Options;
use crate::message::Paint;
use crate::show::count;
use serde_json::{Value, json};
use slice::Input;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Lines that are shown in a text.
pub const SHOWN: usize = 400;
/// Addresses of a program without debug information that are shown where another one has lines.
const SHOWN_BARE: usize = 20;
/// Edges of one line that are shown.
pub const SHOWN_EDGES: usize = 12;

/// Why there is nothing to show: the slice was found but does not hold what was asked for, or the question makes no sense.
pub struct Nothing {
    pub why: String,
    pub found: bool,
}

/// One answer and how to show it.
pub struct Show<'a> {
    pub answer: &'a Answer,
    /// One for each part.
    pub views: Vec<View<'a>>,
    pub options: &'a Options,
    pub paint: Paint,
}

impl Show<'_> {
    /// As the options say.
    pub fn all(&mut self) -> Result<String, Nothing> {
        if let Some(line) = &self.options.path {
            return self.path(line);
        }
        Ok(match (self.options.json, self.options.dot) {
            (true, _) => self.json(),
            (_, true) => self.dot(),
            _ => self.text(),
        })
    }

    fn sources(&self, part: usize) -> Sources {
        Sources::of(&self.answer.parts[part].loaded, self.answer.packed.clone())
    }

    pub fn is_empty(&self) -> bool {
        self.views.iter().all(|v| v.lines.list.is_empty())
    }

    fn text(&mut self) -> String {
        let mut out = String::new();
        let answer = self.answer;
        let _ = writeln!(out, "Slice of {} (process {}):", answer.start.text, answer.parts[0].unit);
        let mut left = SHOWN;
        let has_lines = self.own_lines() > 0;
        let mut missing = 0;
        for n in 0..self.views.len() {
            if n > 0 {
                let _ = writeln!(out, "\nin process {}, which wrote what was read:", answer.parts[n].unit);
            }
            let view = &self.views[n];
            let all = view.lines.list.len();
            // A filter without debug information must not hide the program that wrote what it read.
            let is_bare = has_lines && view.own_lines() == 0 && all > SHOWN_BARE;
            let shown = self.part_text(n, if is_bare { left.min(SHOWN_BARE) } else { left }, &mut out);
            left -= shown;
            if is_bare {
                let more = all - shown;
                let _ = writeln!(out, "  … and {more} more addresses of a program without debug information");
            } else {
                missing += all - shown;
            }
        }
        if missing > 0 {
            let _ = writeln!(out, "\n… and {missing} more lines, farther away (--json has them all)");
        }
        let _ = writeln!(out, "\n{}", self.summary());
        for input in self.inputs() {
            let _ = writeln!(out, "from outside: {input}");
        }
        for limit in &answer.limits {
            let _ = writeln!(out, "limit: {limit}");
        }
        out
    }

    /// The lines of one part by function, at most so many; answers how many.
    fn part_text(&mut self, n: usize, most: usize, out: &mut String) -> usize {
        let edges = if self.options.edges { edges(&mut self.views[n]) } else { BTreeMap::new() };
        let mut sources = self.sources(n);
        let shown = &self.views[n].lines.list[..most.min(self.views[n].lines.list.len())];
        for (title, lines) in groups(shown) {
            let _ = writeln!(out, "\n{}", self.paint.strong(&title));
            for line in lines {
                let at = line.place();
                let times = times(line.instances, line.executed);
                let part = match (self.options.parts, line.data) {
                    (false, _) => "",
                    (true, true) => "  data  ",
                    (true, false) => "  select",
                };
                let text = sources.text(&line.origin).unwrap_or_default();
                let _ = writeln!(out, "  {at:>6}  {times:>10}{part}  {text}");
                for edge in edges.get(&line.origin.short()).into_iter().flatten().take(SHOWN_EDGES) {
                    let _ = writeln!(out, "                        ← {edge}");
                }
            }
        }
        shown.len()
    }

    fn own_lines(&self) -> usize {
        self.views.iter().map(View::own_lines).sum()
    }

    fn executed_lines(&self) -> usize {
        self.views.iter().map(|v| v.lines.executed).sum()
    }

    fn summary(&self) -> String {
        let (own, executed) = (self.own_lines(), self.executed_lines());
        let share = 100.0 * own as f64 / executed.max(1) as f64;
        let [in_slice, ran] = self.instructions();
        let t = self.answer.times;
        let followed = if self.is_partial() { " as far as was followed" } else { "" };
        format!(
            "{own} of {executed} executed lines ({share:.0} %), {in_slice} of {ran} executed instructions{followed}, {:.1} s",
            (t.find + t.trace + t.prepare + t.slice).as_secs_f64()
        )
    }

    /// Instructions of the slice, and all that were traced.
    fn instructions(&self) -> [u64; 2] {
        let parts = &self.answer.parts;
        [parts.iter().map(|p| p.slice.size).sum(), parts.iter().map(|p| p.ran.instructions).sum()]
    }

    /// What the slice needs that the traced code did not make, in words.
    fn inputs(&self) -> Vec<String> {
        let mut calls: BTreeMap<&'static str, u64> = BTreeMap::new();
        let mut memory = 0;
        for part in &self.answer.parts {
            // What was sent and read within the recording does not come from outside.
            let inside = |r: u64| part.needed_by.contains_key(&r) || part.answered.contains(&r);
            let has_nodes = part.slice.nodes.len() > 1;
            let counted = part.slice.calls.iter().filter(|_| !has_nodes);
            let all = counted.chain(part.places.calls());
            for call in all.filter(|c| !c.record.is_some_and(inside)) {
                *calls.entry(model_name(call.nr)).or_default() += 1;
            }
            memory += part.slice.inputs.iter().filter(|i| matches!(i, Input::Mem { .. })).count() as u64;
        }
        let mut words: Vec<String> = calls.iter().map(|(name, n)| format!("{} of {name}", count(*n, "call"))).collect();
        if memory > 0 {
            let since = if self.is_partial() { "before what was followed" } else { "at the beginning" };
            words.push(format!("{} of memory as it was {since}", count(memory, "word")));
        }
        words
    }

    /// Were dependences not followed to their ends?
    fn is_partial(&self) -> bool {
        self.answer.parts.iter().any(|p| p.slice.cut)
    }

    /// How a line leads to the criterion.
    fn path(&mut self, wanted: &str) -> Result<String, Nothing> {
        let wrong = || Nothing { why: format!("`{wanted}` is no line: write FILE:LINE"), found: false };
        let (file, line) = wanted.rsplit_once(':').ok_or_else(wrong)?;
        let line: u32 = line.parse().map_err(|_| wrong())?;
        let fits = |l: &&Line| l.origin.line == Some(line) && l.origin.full.as_ref().is_some_and(|f| f.ends_with(file));
        let in_view = |(n, v): (usize, &View<'_>)| v.lines.list.iter().find(fits).map(|l| (n, l.node));
        let Some((mut view, mut node)) = self.views.iter().enumerate().find_map(in_view) else {
            let what = if self.is_partial() { "what was followed of the slice" } else { "the slice" };
            let why = format!("{wanted} is not in {what} of {}", self.answer.start.text);
            return Err(Nothing { why, found: true });
        };
        let mut out = String::new();
        // A byte may go through every process once or more, but not in circles.
        for _ in 0..=self.views.len() * 2 {
            match self.path_in(view, node, &mut out) {
                None => break,
                Some(reader) => {
                    let _ = writeln!(out, "     ↓ read by process {}", self.answer.parts[reader.0].unit);
                    (view, node) = reader;
                }
            }
        }
        Ok(out)
    }

    /// The path within one part; answers who reads what it ends with, if it does not end with the criterion.
    fn path_in(&mut self, n: usize, from: u32, out: &mut String) -> Option<(usize, u32)> {
        let (mut sources, mut last) = (self.sources(n), String::new());
        let (part, view) = (&self.answer.parts[n], &mut self.views[n]);
        for number in part.slice.path(from) {
            if number == 0 {
                break;
            }
            let node = part.slice.nodes[number as usize];
            let record = part.places.record(number).filter(|_| node.via == 0);
            let reader = record.and_then(|r| part.needed_by.get(&r)).copied();
            let origin = view.origin_of(number);
            let place = origin.short();
            if place != last {
                let _ = writeln!(out, "  {}  {}", self.paint.strong(&place), sources.text(&origin).unwrap_or_default());
                if reader.is_none() {
                    let _ = writeln!(out, "     ↓ {}", view.because(node.why, node.via));
                }
                last = place;
            }
            if reader.is_some() {
                return reader;
            }
        }
        let _ = writeln!(out, "  {}", self.answer.start.text);
        None
    }

    fn dot(&mut self) -> String {
        graph(self.views.iter_mut().flat_map(View::line_edges))
    }

    pub fn json(&mut self) -> String {
        let a = self.answer;
        let mut sources: Vec<Sources> = (0..self.views.len()).map(|n| self.sources(n)).collect();
        let mut lines: Vec<(usize, &Line)> =
            self.views.iter().enumerate().flat_map(|(n, v)| v.lines.list.iter().map(move |l| (n, l))).collect();
        // Each part has its nearest lines first; so have all.
        lines.sort_by_key(|(_, l)| l.distance);
        let candidate = |(n, (part, l)): (usize, (usize, &Line))| {
            json!({
                "rank": n + 1,
                "process": a.parts[part].unit.to_string(),
                "file": l.origin.file,
                "path": l.origin.full,
                "line": l.origin.line,
                "function": l.origin.function,
                "address": l.origin.address,
                "kind": "slice",
                "status": "suspected",
                "own": l.origin.own,
                "distance": l.distance,
                "instances": l.instances,
                "executed": l.executed,
                "part": self.options.parts.then_some(if l.data { "data" } else { "select" }),
                "text": sources[part].text(&l.origin),
            })
        };
        let candidates: Vec<Value> = lines.into_iter().enumerate().map(candidate).collect();
        let [in_slice, ran] = self.instructions();
        let bypassed: u64 = a.parts.iter().map(|p| p.slice.bypassed).sum();
        let memory: usize = a.parts.iter().map(|p| p.memory).sum();
        let (own, executed, inputs) = (self.own_lines(), self.executed_lines(), self.inputs());
        let edges: Option<Vec<Value>> = self.options.edges.then(|| {
            let edges = self.views.iter_mut().flat_map(View::line_edges);
            edges.map(|(u, m, w)| json!({ "user": u, "maker": m, "why": w })).collect()
        });
        let t = a.times;
        let document = json!({
            "clew": 1,
            "verb": "slice",
            "recording": a.recording,
            "process": a.parts[0].unit.to_string(),
            "processes": a.parts.iter().map(|p| p.unit.to_string()).collect::<Vec<_>>(),
            "criterion": { "text": a.start.text, "moment": a.start.moment.to_string() },
            "candidates": candidates,
            "edges": edges,
            "slice": {
                "lines": own,
                "executed_lines": executed,
                "instructions": in_slice,
                "executed_instructions": ran,
                "bypassed": bypassed,
                "memory": memory,
            },
            "inputs": inputs,
            "limits": a.limits,
            "time": {
                "find": t.find.as_secs_f64(),
                "trace": t.trace.as_secs_f64(),
                "prepare": t.prepare.as_secs_f64(),
                "slice": t.slice.as_secs_f64(),
            },
        });
        format!("{document:#}\n")
    }
}

/// Lines by function and file: the function with the nearest line comes first, lines of one in the order of the source.
pub fn groups(list: &[Line]) -> Vec<(String, Vec<&Line>)> {
    let mut functions: Vec<(String, Vec<&Line>)> = Vec::new();
    for line in list {
        let name = line.origin.function.as_deref().unwrap_or("?");
        let file = line.origin.file.as_ref().map(|f| format!(" ({})", f.display())).unwrap_or_default();
        let title = format!("{name}{file}");
        match functions.iter_mut().find(|(t, _)| *t == title) {
            Some((_, lines)) => lines.push(line),
            None => functions.push((title, vec![line])),
        }
    }
    for (_, lines) in &mut functions {
        lines.sort_by_key(|l| (l.origin.line, l.origin.address.clone()));
    }
    functions
}

/// How often a line is in the slice, and how often it ran, if that is known.
pub fn times(instances: u64, executed: u64) -> String {
    match executed {
        0 => format!("{instances}×"),
        n => format!("{} of {n}", instances.min(n)),
    }
}

/// Edges (user, maker, what for) as Graphviz reads them.
pub fn graph(edges: impl Iterator<Item = (String, String, String)>) -> String {
    let mut out = String::from("digraph slice {\n  rankdir=BT;\n  node [shape=box, fontname=monospace];\n");
    let escape = |t: &str| t.replace('\\', "\\\\").replace('"', "\\\"");
    for (user, maker, why) in edges {
        let _ = writeln!(out, "  \"{}\" -> \"{}\" [label=\"{}\"];", escape(&user), escape(&maker), escape(&why));
    }
    out.push_str("}\n");
    out
}

/// For each line of a part, what it depends on.
fn edges(view: &mut View<'_>) -> BTreeMap<String, BTreeSet<String>> {
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (user, maker, why) in view.line_edges() {
        edges.entry(user).or_default().insert(format!("{maker} {why}"));
    }
    edges
}

/// The name of a system call.
fn model_name(nr: u64) -> &'static str {
    match nr {
        0 => "read",
        9 => "mmap",
        12 => "brk",
        17 => "pread64",
        45 => "recvfrom",
        47 => "recvmsg",
        202 => "futex",
        228 => "clock_gettime",
        318 => "getrandom",
        _ => "other system calls",
    }
}
