//! Slices in the debugger: `slice`, `prune`, `sbreak`, `sdelete`, `record`, `info slices`.
//!
//! A slice is of the recording, from an execution of a line back to the beginning of the run, or of the region that
//! `record` names: dependences that leave the region end there and are told as its inputs. Slices stay until they are
//! deleted, whatever the user does in between; executions keep their numbers, because the recording does not change.
//!
//! May miss: what slices miss in general (docs/slicing.md). Of a long run only the last part is traced, which is said.

use super::adapter::{Recorded, failed};
use super::places::{address, line_of, plain_line, short_line};
use super::statements::{Gather, Graph, Statement};
use crate::case::Refusal;
use crate::cli::Slice as Options;
use crate::slice::criterion::{Finder, Start};
use crate::slice::facts::Program;
use crate::slice::lines::Origins;
use crate::slice::{original_paths, stacks, tracing};
use gdb::{Console, Error};
use model::serve::Moment;
use slice::{Prepare, RegId};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

/// Million instructions before the criterion that are looked at.
const WINDOW: u64 = 60;
/// Instructions of a slice, at most.
const MOST_NODES: usize = 3_000_000;
/// Executions of lines that can be numbered.
const KEEP: u32 = 1 << 20;
/// Statements that are shown at once.
const SHOWN: usize = 40;
const ALL_SHOWN: usize = 1000;
/// Inputs of a region that are shown.
const SHOWN_INPUTS: usize = 24;
/// Frames of a stack that are looked at.
const MOST_FRAMES: usize = 64;

/// The slices of a session, and the region that new ones see.
#[derive(Default)]
pub struct Slices {
    all: BTreeMap<u32, Kept>,
    next: u32,
    from: Option<Moment>,
    to: Option<Moment>,
}

/// One slice.
struct Kept {
    title: String,
    graph: Graph,
    /// What else is to be said about it.
    notes: Vec<String>,
}

fn refused(refusal: Refusal) -> Error {
    Error::Refused(refusal.message)
}

/// What the user wants a slice of.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Wanted<'a> {
    file: &'a str,
    line: u32,
    instance: Option<u64>,
    what: What,
}

/// Where in an execution of a line a slice begins.
#[derive(Clone, PartialEq, Eq, Debug)]
enum What {
    /// Everything that it used.
    Everything,
    Variable(String),
    Memory(String),
    Register(String),
}

fn wanted<'a>(words: &[&'a str]) -> Result<Wanted<'a>, Error> {
    let usage = "`slice` takes FILE:LINE, perhaps the number of the execution, and perhaps a variable, an address with a \
                 size, or a register";
    let [place, rest @ ..] = words else { return Err(Error::refused(usage)) };
    let (file, line) = plain_line(place)?;
    let (instance, rest) = match rest {
        [n, more @ ..] if n.parse::<u64>().is_ok() => (n.parse().ok(), more),
        _ => (None, rest),
    };
    if instance == Some(0) {
        return Err(Error::refused("executions are counted from 1"));
    }
    let what = match rest {
        [] => What::Everything,
        [at] if address(at).is_some() => What::Memory((*at).into()),
        [at, size] if address(at).is_some() && size.parse::<u64>().is_ok() => What::Memory(format!("{at}:{size}")),
        [name] if RegId::named(name.trim_start_matches(['$', '%'])).is_some() => What::Register((*name).into()),
        [at, _] if address(at).is_some() => return Err(Error::refused(usage)),
        words => What::Variable(words.join(" ")),
    };
    Ok(Wanted { file, line, instance, what })
}

/// `slice FILE:LINE [i] [variable | addr [size] | register]`
pub fn slice(r: &mut Recorded<'_>, words: &[&str], console: &mut dyn Console) -> Result<(), Error> {
    let wanted = wanted(words)?;
    if r.altered.is_some() {
        return Err(Error::refused(
            "slices are of the recording: leave the altered run first, with `monitor rollback N` or `monitor seek MOMENT`",
        ));
    }
    let instance = match wanted.instance {
        Some(n) => n,
        None => latest(r, &wanted, console)?,
    };
    let kept = r.aside(|r| r.make_slice(&wanted, instance, &mut || console.interrupted()))?;
    let n = r.slices.next;
    console.print(&kept.text(n, SHOWN, None));
    r.slices.next += 1;
    r.slices.all.insert(n, kept);
    Ok(())
}

/// The last execution of a line that has begun by now.
fn latest(r: &mut Recorded<'_>, wanted: &Wanted<'_>, console: &mut dyn Console) -> Result<u64, Error> {
    let starts = r.code_of(wanted.file, wanted.line)?.starts;
    let before = r.count_before(&starts, &mut || console.interrupted())?;
    match before + u64::from(starts.contains(&r.session.moment().pc)) {
        0 => Err(Error::refused(format!("{}:{} was not executed before this moment", wanted.file, wanted.line))),
        n => Ok(n),
    }
}

impl Recorded<'_> {
    /// Finds a slice; the session moves.
    fn make_slice(
        &mut self,
        wanted: &Wanted<'_>,
        instance: u64,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Kept, Error> {
        let starts = self.code_of(wanted.file, wanted.line)?.starts;
        self.session
            .seek_instance(&starts, instance, stop)
            .map_err(|e| Error::refused(format!("{}:{}, execution {instance}: {e}", wanted.file, wanted.line)))?;
        let begins = self.session.moment();
        let start = self.criterion(wanted, instance, &starts, stop)?;
        let (from, to) = (self.slices.from, self.slices.to);
        if from.is_some_and(|from| begins < from) || to.is_some_and(|to| start.moment > to) {
            return Err(Error::refused(
                "this execution lies outside of the recorded region: change it with `monitor record`",
            ));
        }
        self.follow(wanted, instance, begins, start, stop)
    }

    /// Where a slice starts, and what is wanted there.
    fn criterion(
        &mut self,
        wanted: &Wanted<'_>,
        instance: u64,
        starts: &[u64],
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Start, Error> {
        let place = format!("{}:{}#{instance}", wanted.file, wanted.line);
        let mut options = Options { at: Some(place), ..Options::default() };
        match &wanted.what {
            // What died there has not been executed, but what it would have used counts.
            What::Everything if self.died_in(wanted, instance, starts, stop)? => {
                options = Options { crash: true, ..Options::default() };
            }
            What::Everything => {}
            What::Variable(name) => options.var = Some(name.clone()),
            What::Memory(text) => options.addr = Some(text.clone()),
            What::Register(name) => options.reg = Some(name.clone()),
        }
        let unit = self.session.unit();
        let (recording, images) = (self.recording, &self.images);
        let session = &mut self.session;
        let mut finder = Finder { options: &options, recording, unit, session, images, interrupted: stop };
        finder.find(&|| Err(Refusal::usage("no output is asked for"))).map_err(refused)
    }

    /// Did the process die in this execution of the line, in its own code?
    fn died_in(
        &mut self,
        wanted: &Wanted<'_>,
        instance: u64,
        starts: &[u64],
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Error> {
        self.session.seek_end(stop).map_err(failed)?;
        if self.session.ended().is_none_or(|end| end.ending != 1) {
            return Ok(false);
        }
        let loaded = self.session.loaded_at_end(self.recording, &self.images).map_err(failed)?;
        let pc = self.session.moment().pc;
        let code = match loaded.at(model::GuestAddr(pc)) {
            Some(_) => pc,
            None => self.session.previous(stop).map_err(failed)?.map_or(pc, |place| place.moment.pc),
        };
        let here = short_line(&loaded, code);
        let is_line = here.is_some_and(|(file, line)| {
            line == wanted.line
                && std::path::Path::new(&file).file_name() == std::path::Path::new(wanted.file).file_name()
        });
        Ok(is_line && self.session.count_before(starts, stop).map_err(failed)? <= instance)
    }

    fn follow(
        &mut self,
        wanted: &Wanted<'_>,
        instance: u64,
        begins: Moment,
        start: Start,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Kept, Error> {
        let unit = self.session.unit();
        let mut notes = Vec::new();
        let since = tracing::forked_since(&mut self.session, self.recording, &unit, stop).map_err(Error::Refused)?;
        let from = self.slices.from.max(since.filter(|since| *since < start.moment));
        self.session.seek(start.moment, stop).map_err(failed)?;
        let loaded = self.session.loaded(self.recording, &self.images).map_err(failed)?;
        let paths = original_paths(self.recording, &unit, &loaded);
        let traced = tracing::trace(&mut self.session, from, start.moment, WINDOW, stop).map_err(Error::Refused)?;
        self.session.seek(traced.from, stop).map_err(failed)?;
        let outer = self.frames();
        if traced.cut {
            notes.push(format!("only about the last {WINDOW} million instructions were traced"));
        }
        self.session.seek(start.moment, stop).map_err(failed)?;
        let calls = tracing::calls(self.recording, &unit).map_err(Error::Refused)?;
        let calls = calls.into_iter().filter(|c| c.tick >= traced.from.tick).collect();
        let mut facts = Program::new(&self.session, &loaded, &paths, true).map_err(failed)?;
        let window = traced.builder.finish(&mut facts, calls, Prepare { bypass: true, frames: true });
        let how = slice::Options {
            edges: true,
            most_nodes: MOST_NODES,
            stacks: stacks(&self.session).map_err(refused)?,
            ..slice::Options::default()
        };
        let found = slice::backward(&window, &start.criterion, &how, &mut facts, stop);
        if found.cut {
            notes.push("dependences were not followed to the beginning: too many, or interrupted".into());
        }
        let origins = Origins::new(&loaded, &|n| paths.get(n).cloned().flatten());
        let mut gather = Gather::new(&window, &found, &loaded, origins);
        gather.outer = outer;
        if let What::Variable(name) = &wanted.what {
            gather.wanted = Some(name.clone());
        }
        let beginnings = gather.beginnings();
        let places: Vec<u64> = beginnings.values().flatten().copied().collect();
        let (executed, total) = self.session.executions(&places, KEEP, start.moment, stop).map_err(failed)?;
        if total > executed.len() as u64 {
            notes.push(format!("executions are numbered from the last {} on", executed.len()));
        }
        let line = start_line(&loaded, begins.pc).unwrap_or_else(|| format!("{}:{}", wanted.file, wanted.line));
        let short = line.rsplit('/').next().unwrap_or(&line);
        let title = format!("{short}, execution {instance}{}", wanted.what.text());
        let criterion = Statement { line, instance: Some(instance), moment: Some(begins), hops: 0 };
        let graph = gather.graph(&beginnings, &executed, criterion);
        if self.slices.from.is_some() {
            let inputs: Vec<String> = gather.inputs().into_iter().collect();
            notes.push(match inputs.len() {
                0 => "the region needs nothing from before".into(),
                n if n > SHOWN_INPUTS => {
                    format!("region inputs: {} and {} more", inputs[..SHOWN_INPUTS].join(", "), n - SHOWN_INPUTS)
                }
                _ => format!("region inputs: {}", inputs.join(", ")),
            });
        }
        Ok(Kept { title, graph, notes })
    }
}

impl Recorded<'_> {
    /// The functions that are under way where the session is: their code, and where their frames are.
    fn frames(&self) -> Vec<(Range<u64>, u64)> {
        let thread = self.session.place().thread;
        let Ok(scene) = self.session.scene(self.recording, &self.images, thread) else { return Vec::new() };
        let Ok(loaded) = self.session.loaded(self.recording, &self.images) else { return Vec::new() };
        let frame = |f: &image::StackFrame| {
            let (_, image, at) = loaded.at(f.at)?;
            let function = image.image.function_at(at)?;
            let [start, end] = [function.start, function.end].map(|at| image.bias.to_guest(at).0);
            Some((start..end, f.cfa?.0))
        };
        image::backtrace(&scene, MOST_FRAMES).frames.iter().filter_map(frame).collect()
    }
}

fn start_line(loaded: &image::LoadedImages, pc: u64) -> Option<String> {
    short_line(loaded, pc).map(|(file, line)| format!("{file}:{line}"))
}

impl What {
    fn text(&self) -> String {
        match self {
            What::Everything => String::new(),
            What::Variable(name) | What::Memory(name) | What::Register(name) => format!(", {name}"),
        }
    }
}

impl Kept {
    /// The slice for people: at most so many statements, or those of one line.
    fn text(&self, n: u32, most: usize, only: Option<&str>) -> String {
        let g = &self.graph;
        let mut out = format!("Slice {n} of {}: {}\n", self.title, counts(g));
        let mut order: Vec<usize> = (0..g.statements.len()).collect();
        order.sort_by_key(|k| (g.statements[*k].hops, g.statements[*k].line.clone(), g.statements[*k].instance));
        let shown = order.iter().filter(|k| only.is_none_or(|line| is_line(&g.statements[**k].line, line)));
        for &k in shown.take(most) {
            let s = &g.statements[k];
            let _ = writeln!(out, "{} {}", g.shown(&s.line), away(s.hops));
            for link in g.of(k as u32) {
                let maker = &g.statements[link.maker as usize];
                let _ = writeln!(
                    out,
                    "  {} -> {} {} due to {}",
                    s.number(),
                    g.shown(&maker.line),
                    maker.number(),
                    link.because.text()
                );
            }
        }
        if only.is_none() && order.len() > most {
            let _ = writeln!(out, "… and {} more executions of lines: `monitor info slice {n}`", order.len() - most);
        }
        self.notes.iter().for_each(|note| {
            let _ = writeln!(out, "note: {note}");
        });
        out
    }
}

fn counts(g: &Graph) -> String {
    format!("{} executions of {} lines, {} dependences", g.statements.len(), g.lines(), g.links.len())
}

fn away(hops: u32) -> String {
    match hops {
        0 => "(the criterion)".into(),
        1 => "(1 dependence away)".into(),
        n => format!("({n} dependences away)"),
    }
}

/// Is a statement's line the one that a user wrote, perhaps with folders?
fn is_line(line: &str, written: &str) -> bool {
    let name = |text: &str| text.rsplit('/').next().map(str::to_owned);
    line == written || name(line) == name(written)
}

fn slice_of<'a>(r: &'a Recorded<'_>, text: &str) -> Result<(u32, &'a Kept), Error> {
    let found = text.parse().ok().and_then(|n: u32| r.slices.all.get(&n).map(|kept| (n, kept)));
    found.ok_or_else(|| Error::refused(format!("there is no slice {text}; `monitor info slices` lists them")))
}

/// `info slice N [FILE:LINE]`
pub fn show(r: &Recorded<'_>, n: &str, line: Option<&str>, console: &mut dyn Console) -> Result<(), Error> {
    let (n, kept) = slice_of(r, n)?;
    console.print(&kept.text(n, ALL_SHOWN, line));
    Ok(())
}

/// `info slices`
pub fn list(r: &Recorded<'_>, console: &mut dyn Console) {
    if r.slices.all.is_empty() {
        return console.print("No slices.\n");
    }
    for (n, kept) in &r.slices.all {
        console.print(&format!("{n} {}: {}\n", kept.title, counts(&kept.graph)));
    }
}

/// `prune N NAME[,NAME…]`: another slice, without dependences through these.
pub fn prune(r: &mut Recorded<'_>, words: &[&str], console: &mut dyn Console) -> Result<(), Error> {
    let [n, names @ ..] = words else { return Err(Error::refused("`prune` takes a slice and a list of names")) };
    let text = names.join(",");
    let names: Vec<&str> = text.split(',').filter(|name| !name.is_empty()).collect();
    if names.is_empty() {
        return Err(Error::refused("`prune` takes a slice and a list of variables or registers"));
    }
    let (old, kept) = slice_of(r, n)?;
    let unknown = names.iter().find(|n| !kept.graph.links.iter().any(|l| l.because.is_named(n)));
    if let Some(name) = unknown {
        return Err(Error::refused(format!("nothing in slice {old} depends on anything through `{name}`")));
    }
    let graph = kept.graph.without(&names);
    let less = |before: usize, now: usize| 100 * (before - now) / before.max(1);
    let saved = format!(
        "{} % fewer executions and {} % fewer dependences than slice {old}",
        less(kept.graph.statements.len(), graph.statements.len()),
        less(kept.graph.links.len(), graph.links.len())
    );
    let title = format!("{}, without {}", kept.title, names.join(", "));
    let mut notes = kept.notes.clone();
    notes.push(saved);
    let kept = Kept { title, graph, notes };
    let n = r.slices.next;
    console.print(&kept.text(n, SHOWN, None));
    r.slices.next += 1;
    r.slices.all.insert(n, kept);
    Ok(())
}

/// `sbreak N FILE:LINE[,FILE:LINE…]` or `sbreak all N`: stops where statements of the slice begin.
pub fn sbreak(r: &mut Recorded<'_>, words: &[&str], console: &mut dyn Console) -> Result<(), Error> {
    let (n, lines) = match words {
        ["all", n] => (*n, None),
        [n, rest @ ..] if !rest.is_empty() => (*n, Some(rest.join(","))),
        _ => return Err(Error::refused("`sbreak` takes a slice and a list of FILE:LINE, or `all` and a slice")),
    };
    let (n, kept) = slice_of(r, n)?;
    let lines: Option<Vec<&str>> = lines.as_deref().map(|l| l.split(',').filter(|l| !l.is_empty()).collect());
    for line in lines.iter().flatten() {
        if line_of(line).is_none() || !kept.graph.statements.iter().any(|s| is_line(&s.line, line)) {
            return Err(Error::refused(format!("`{line}` is no line of slice {n}: write FILE:LINE")));
        }
    }
    let is_chosen = |s: &&Statement| lines.as_ref().is_none_or(|l| l.iter().any(|line| is_line(&s.line, line)));
    let chosen = kept.graph.statements.iter().filter(is_chosen);
    let points: Vec<(Moment, String)> = chosen
        .filter_map(|s| Some((s.moment?, format!("{}, execution {}", kept.graph.shown(&s.line), s.number()))))
        .collect();
    console.print(&format!("Slice {n}: breakpoints at {} executions\n", points.len()));
    r.points.add_statements(n, points.into_iter());
    r.arm();
    Ok(())
}

/// `sdelete N`: forgets a slice and its breakpoints.
pub fn delete(r: &mut Recorded<'_>, n: &str) -> Result<(), Error> {
    let n = slice_of(r, n)?.0;
    r.slices.all.remove(&n);
    r.points.forget_slice(n);
    r.arm();
    Ok(())
}

/// `record [FILE:LINE] on|off`: where the region that slices see begins or ends; here, or at the first execution of a line.
pub fn record(r: &mut Recorded<'_>, words: &[&str], console: &mut dyn Console) -> Result<(), Error> {
    let (place, on) = match words {
        ["on"] => (None, true),
        ["off"] => (None, false),
        [place, "on"] => (Some(*place), true),
        [place, "off"] => (Some(*place), false),
        ["all"] => {
            (r.slices.from, r.slices.to) = (None, None);
            console.print("Slices see the whole recording.\n");
            return Ok(());
        }
        _ => return Err(Error::refused("`record` takes `on` or `off`, perhaps with FILE:LINE before, or `all`")),
    };
    if r.altered.is_some() {
        return Err(Error::refused("the region that slices see is one of the recording: leave the altered run first"));
    }
    let at = match place {
        None => r.session.moment(),
        Some(place) => {
            let (file, line) = plain_line(place)?;
            let after = r.slices.from.filter(|_| !on);
            let starts = r.code_of(file, line)?.starts;
            let end = Moment { tick: u64::MAX, pc: u64::MAX };
            let (list, _) = r.session.executions(&starts, KEEP, end, &mut || console.interrupted()).map_err(failed)?;
            let found = list.iter().map(|p| p.moment).find(|m| after.is_none_or(|after| *m > after));
            found.ok_or_else(|| Error::refused(format!("{place} was not executed there")))?
        }
    };
    let (from, to) = if on { (Some(at), r.slices.to) } else { (r.slices.from, Some(at)) };
    if from.zip(to).is_some_and(|(from, to)| from >= to) {
        return Err(Error::refused("the region would end before it begins: `monitor record all` begins anew"));
    }
    (r.slices.from, r.slices.to) = (from, to);
    let text = |m: Option<Moment>, all: &str| m.map_or_else(|| all.into(), |m| m.to_string());
    console.print(&format!("Slices see from {} to {}.\n", text(from, "the beginning"), text(to, "the end")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_wanted_of_a_line_and_something_in_it() {
        let of = |words: &[&str]| wanted(words).map(|w| (w.instance, w.what));
        assert_eq!(of(&["a.c:3"]), Ok((None, What::Everything)));
        assert_eq!(of(&["a.c:3", "2"]), Ok((Some(2), What::Everything)));
        assert_eq!(of(&["a.c:3", "p->next"]), Ok((None, What::Variable("p->next".into()))));
        assert_eq!(of(&["a.c:3", "2", "0x10", "4"]), Ok((Some(2), What::Memory("0x10:4".into()))));
        assert_eq!(of(&["a.c:3", "$rax"]), Ok((None, What::Register("$rax".into()))));
        assert_eq!(of(&["a.c:3", "a", "+", "b"]), Ok((None, What::Variable("a + b".into()))));
        for wrong in [&[][..], &["a.c"], &["a.c:3", "0"], &["a.c:3", "0x10", "x"]] {
            assert!(wanted(wrong).is_err(), "{wrong:?}");
        }
    }
}
