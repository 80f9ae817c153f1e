//! The answer of `slice` for people, as JSON, and as a graph.

use super::Answer;
use super::lines::{Line, Lines, Origins, Sources, Squash};
use crate::cli::Slice as Options;
use crate::message::Paint;
use crate::show::count;
use image::Storage;
use model::GuestAddr;
use serde_json::{Value, json};
use slice::{Input, Why};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Lines that are shown in a text.
const SHOWN: usize = 400;
/// Edges of one line that are shown.
const SHOWN_EDGES: usize = 12;

/// Why there is nothing to show: the slice was found but does not hold what was asked for, or the question makes no sense.
pub struct Nothing {
    pub why: String,
    pub found: bool,
}

/// One answer and how to show it.
pub struct Show<'a> {
    pub answer: &'a Answer,
    pub lines: &'a Lines,
    pub origins: Origins<'a>,
    pub squash: Squash<'a>,
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

    fn text(&mut self) -> String {
        let mut out = String::new();
        let answer = self.answer;
        let _ = writeln!(out, "Slice of {} (process {}):", answer.start.text, answer.unit);
        let edges = if self.options.edges { self.edges() } else { BTreeMap::new() };
        let mut sources = Sources::default();
        let mut functions: Vec<(String, Vec<&Line>)> = Vec::new();
        for line in self.lines.list.iter().take(SHOWN) {
            let name = line.origin.function.clone().unwrap_or_else(|| "?".into());
            let file = line.origin.file.as_ref().map(|f| format!(" ({})", f.display())).unwrap_or_default();
            let title = format!("{name}{file}");
            match functions.iter_mut().find(|(t, _)| *t == title) {
                Some((_, lines)) => lines.push(line),
                None => functions.push((title, vec![line])),
            }
        }
        for (title, mut lines) in functions {
            let _ = writeln!(out, "\n{}", self.paint.strong(&title));
            lines.sort_by_key(|l| (l.origin.line, l.origin.address.clone()));
            for line in lines {
                let at = line.origin.line.map_or_else(|| line.origin.address.clone(), |n| n.to_string());
                let text = line.origin.full.as_deref().zip(line.origin.line).and_then(|(f, n)| sources.line(f, n));
                let times = match line.executed {
                    0 => format!("{}×", line.instances),
                    n => format!("{} of {n}", line.instances.min(n)),
                };
                let part = match (self.options.parts, line.data) {
                    (false, _) => "",
                    (true, true) => "  data  ",
                    (true, false) => "  select",
                };
                let _ = writeln!(out, "  {at:>6}  {times:>10}{part}  {}", text.unwrap_or_default());
                for edge in edges.get(&line.origin.short()).into_iter().flatten().take(SHOWN_EDGES) {
                    let _ = writeln!(out, "                        ← {edge}");
                }
            }
        }
        if self.lines.list.len() > SHOWN {
            let _ = writeln!(
                out,
                "\n… and {} more lines, farther away (--json has them all)",
                self.lines.list.len() - SHOWN
            );
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

    fn own_lines(&self) -> usize {
        self.lines.list.iter().filter(|l| l.origin.own && l.origin.line.is_some()).count()
    }

    fn summary(&self) -> String {
        let a = self.answer;
        let own = self.own_lines();
        let share = 100.0 * own as f64 / self.lines.executed.max(1) as f64;
        format!(
            "{} of {} executed lines ({share:.0} %), {} of {} executed instructions, {:.1} s",
            own,
            self.lines.executed,
            a.slice.size,
            a.ran.instructions,
            (a.times.find + a.times.trace + a.times.prepare + a.times.slice).as_secs_f64()
        )
    }

    /// What the slice needs that the traced code did not make, in words.
    fn inputs(&self) -> Vec<String> {
        let a = self.answer;
        let mut calls: BTreeMap<&'static str, u64> = BTreeMap::new();
        let of_node = |n: &slice::Node| n.call.map(|c| a.window.call(c).map_or(u64::MAX, |c| c.nr));
        for nr in a.slice.nodes.iter().filter_map(of_node) {
            *calls.entry(model_name(nr)).or_default() += 1;
        }
        for (nr, n) in a.slice.calls.iter().filter(|_| a.slice.nodes.len() <= 1) {
            *calls.entry(model_name(*nr)).or_default() += n;
        }
        let mut words: Vec<String> = calls.iter().map(|(name, n)| format!("{} of {name}", count(*n, "call"))).collect();
        let memory = a.slice.inputs.iter().filter(|i| matches!(i, Input::Mem { .. })).count();
        if memory > 0 {
            words.push(format!("{} of memory as it was at the beginning", count(memory as u64, "word")));
        }
        words
    }

    /// For each line, what it depends on.
    fn edges(&mut self) -> BTreeMap<String, BTreeSet<String>> {
        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (user, maker, why) in self.line_edges() {
            edges.entry(user).or_default().insert(format!("{maker} {why}"));
        }
        edges
    }

    /// Edges between lines: user, maker, what for.
    fn line_edges(&mut self) -> BTreeSet<(String, String, String)> {
        let mut all = BTreeSet::new();
        for edge in &self.answer.slice.edges {
            let node = self.answer.slice.nodes[edge.maker as usize];
            if self.squash.shown(&node, &mut self.origins).is_none() {
                // Nobody's own code led there.
                continue;
            }
            let (user, maker) = (self.line_of(edge.user), self.line_of(edge.maker));
            if user != maker {
                all.insert((user, maker, self.because(edge.why, edge.user)));
            }
        }
        // Control dependences are told by the nodes' nearest users.
        for node in self.answer.slice.nodes.iter().skip(1).filter(|n| n.why == Why::Control) {
            let user = self.line_of(node.via);
            let maker = self.place_of(node);
            if user != maker {
                all.insert((user, maker, "decided".into()));
            }
        }
        all
    }

    /// Why `user` depends on another node, with the name of the variable that the value was in.
    fn because(&self, why: Why, user: u32) -> String {
        match why {
            Why::Criterion => "asked for".into(),
            Why::Reg(reg) => format!("through {}", reg.name()),
            Why::Mem(addr) => match self.variable(addr, user) {
                Some(name) => format!("through {name}"),
                None => format!("through memory at {addr:#x}"),
            },
            Why::Control => "decided".into(),
            Why::Potential => "might have changed it".into(),
        }
    }

    /// What the code of `user` calls the byte at an address.
    fn variable(&self, addr: u64, user: u32) -> Option<String> {
        let a = self.answer;
        let what = Storage::Memory { at: GuestAddr(addr), size: 0 };
        let node = a.slice.nodes.get(user as usize).filter(|_| user != 0);
        let in_frame = node.and_then(|n| {
            let slot = a.window.slot(n.execution)?;
            a.loaded.name_in_frame(GuestAddr(n.pc), GuestAddr(slot + 8), what)
        });
        in_frame.or_else(|| a.loaded.global_at(GuestAddr(addr), 0))
    }

    fn place_of(&mut self, node: &slice::Node) -> String {
        match self.squash.shown(node, &mut self.origins) {
            Some((_, pc)) => self.origins.of(pc).short(),
            None => self.origins.of(node.pc).short(),
        }
    }

    fn line_of(&mut self, node: u32) -> String {
        if node == 0 {
            return "criterion".into();
        }
        let node = self.answer.slice.nodes[node as usize];
        self.place_of(&node)
    }

    /// How a line leads to the criterion.
    fn path(&mut self, wanted: &str) -> Result<String, Nothing> {
        let wrong = || Nothing { why: format!("`{wanted}` is no line: write FILE:LINE"), found: false };
        let (file, line) = wanted.rsplit_once(':').ok_or_else(wrong)?;
        let line: u32 = line.parse().map_err(|_| wrong())?;
        let fits = |l: &&Line| l.origin.line == Some(line) && l.origin.full.as_ref().is_some_and(|f| f.ends_with(file));
        let Some(found) = self.lines.list.iter().find(fits) else {
            let why = format!("{wanted} is not in the slice of {}", self.answer.start.text);
            return Err(Nothing { why, found: true });
        };
        let mut out = String::new();
        let mut sources = Sources::default();
        let mut last = String::new();
        for node in self.answer.slice.path(found.node) {
            let place = self.line_of(node);
            if place == last {
                continue;
            }
            if node == 0 {
                let _ = writeln!(out, "  {}", self.answer.start.text);
                break;
            }
            let n = self.answer.slice.nodes[node as usize];
            let pc = self.squash.shown(&n, &mut self.origins).map_or(n.pc, |(_, pc)| pc);
            let origin = self.origins.of(pc).clone();
            let text =
                origin.full.as_deref().zip(origin.line).and_then(|(f, l)| sources.line(f, l)).unwrap_or_default();
            let _ = writeln!(out, "  {}  {text}", self.paint.strong(&place));
            let _ = writeln!(out, "     ↓ {}", self.because(n.why, n.via));
            last = place;
        }
        Ok(out)
    }

    fn dot(&mut self) -> String {
        let mut out = String::from("digraph slice {\n  rankdir=BT;\n  node [shape=box, fontname=monospace];\n");
        let escape = |t: &str| t.replace('\\', "\\\\").replace('"', "\\\"");
        for (user, maker, why) in self.line_edges() {
            let _ = writeln!(out, "  \"{}\" -> \"{}\" [label=\"{}\"];", escape(&user), escape(&maker), escape(&why));
        }
        out.push_str("}\n");
        out
    }

    pub fn json(&mut self) -> String {
        let a = self.answer;
        let mut sources = Sources::default();
        let candidates: Vec<Value> = self
            .lines
            .list
            .iter()
            .enumerate()
            .map(|(n, l)| {
                let text = l.origin.full.as_deref().zip(l.origin.line).and_then(|(f, n)| sources.line(f, n));
                json!({
                    "rank": n + 1,
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
                    "text": text,
                })
            })
            .collect();
        let edges: Option<Vec<Value>> = self.options.edges.then(|| {
            let edges = self.line_edges();
            edges.into_iter().map(|(u, m, w)| json!({ "user": u, "maker": m, "why": w })).collect()
        });
        let t = a.times;
        let document = json!({
            "clew": 1,
            "verb": "slice",
            "recording": a.recording,
            "process": a.unit.to_string(),
            "criterion": { "text": a.start.text, "moment": a.start.moment.to_string() },
            "candidates": candidates,
            "edges": edges,
            "slice": {
                "lines": self.own_lines(),
                "executed_lines": self.lines.executed,
                "instructions": a.slice.size,
                "executed_instructions": a.ran.instructions,
                "bypassed": a.slice.bypassed,
                "memory": a.window.bytes(),
            },
            "inputs": self.inputs(),
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
