//! From executed instructions to source lines: where code comes from, whose it is, and what stands there.
//!
//! Own code is that of images with debug information outside the system's folders, without what compilers bring along
//! (templates of C++, the standard library of Rust). If there is none, all of the program is own code.
//! Other code is shown as the call from own code that led to it.

use image::{Image, ImageOffset, LoadedImages, Location};
use model::GuestAddr;
use slice::{Node, Shown, Sites, Slice, Window};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Libraries here are nobody's own.
const SYSTEM: [&str; 6] = ["/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/", "/usr/bin/", "/bin/"];

/// Sources here came with a compiler.
const TOOLCHAIN: [&str; 5] = ["/rustc/", "/rust/deps/", "/usr/include/", "/usr/lib/", "/usr/lib64/"];
/// As do those that Rust installs, wherever that is.
const RUST_SOURCES: &str = "lib/rustlib/src/rust/library";

/// Bytes between two functions that belong to neither.
const PADDING: u64 = 64;
/// Places of a function that are looked at to see whether it is more than one line.
const SAMPLES: u64 = 16;
/// Pieces of code that branches are looked for in, at most.
const MOST_PIECES: usize = 500;

fn is_of_toolchain(file: &Path) -> bool {
    TOOLCHAIN.iter().any(|s| file.starts_with(s)) || file.to_string_lossy().contains(RUST_SOURCES)
}

/// Where an instruction comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    pub file: Option<PathBuf>,
    pub full: Option<PathBuf>,
    pub line: Option<u32>,
    pub function: Option<String>,
    /// `image+0x1234`.
    pub address: String,
    pub own: bool,
}

impl Origin {
    /// `file.c:12` or `image+0x1234`.
    pub fn short(&self) -> String {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => format!("{}:{line}", file.display()),
            _ => self.address.clone(),
        }
    }

    fn key(&self) -> Key {
        match (&self.full, self.line) {
            (Some(file), Some(line)) => Key::Line(file.clone(), line),
            _ => Key::Address(self.address.clone()),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
enum Key {
    Line(PathBuf, u32),
    Address(String),
}

/// Answers where code comes from; remembers what it was asked.
pub struct Origins<'a> {
    loaded: &'a LoadedImages,
    own: Vec<bool>,
    /// What people call them.
    names: Vec<String>,
    known: HashMap<u64, Origin>,
    /// Calls that code was inlined through.
    callers: HashMap<u64, Vec<Origin>>,
    openings: HashMap<u64, bool>,
}

impl<'a> Origins<'a> {
    /// `paths` are the names that the images had when they were recorded.
    pub fn new(loaded: &'a LoadedImages, paths: &dyn Fn(usize) -> Option<PathBuf>) -> Origins<'a> {
        let is_own = |(n, image): (usize, &image::LoadedImage)| {
            let path = paths(n).unwrap_or_else(|| image.image.path().to_owned());
            let of_system = SYSTEM.iter().any(|s| path.starts_with(s));
            !of_system && image.image.has_debug_info()
        };
        let mut own: Vec<bool> = loaded.iter().enumerate().map(is_own).collect();
        // An interpreter without debug information that has loaded somebody's own library is there for that.
        if !own.contains(&true)
            && let Some(program) = own.first_mut()
        {
            *program = true;
        }
        let name = |(n, image): (usize, &image::LoadedImage)| {
            let path = paths(n).unwrap_or_else(|| image.image.path().to_owned());
            path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
        };
        let names = loaded.iter().enumerate().map(name).collect();
        Origins { loaded, own, names, known: HashMap::new(), callers: HashMap::new(), openings: HashMap::new() }
    }

    /// Is it the program's own code? Where lines are known, code without one (start-up code, stubs of calls) is not.
    pub fn is_own(&mut self, pc: u64) -> bool {
        self.of(pc).own
    }

    /// Is it the line that a function begins with, where arguments are put into their places and nothing is computed?
    pub fn is_opening(&mut self, pc: u64) -> bool {
        let loaded = self.loaded;
        *self.openings.entry(pc).or_insert_with(|| {
            let Some((_, image, at)) = loaded.at(GuestAddr(pc)) else { return false };
            let Some(function) = image.image.function_at(at) else { return false };
            let line = |at| image.image.locate(at).line;
            let first = line(function.start);
            // All of a function may be in one line; where it ends there may be code of its first one again.
            let len = function.end.0.saturating_sub(function.start.0);
            let mut samples =
                (1..=SAMPLES).map(|n| ImageOffset(function.start.0 + (len * n / SAMPLES).saturating_sub(1)));
            first.is_some() && first == line(at) && samples.any(|at| line(at) != first)
        })
    }

    /// Where the function begins that an instruction is in.
    pub fn function_start(&self, pc: u64) -> Option<u64> {
        let (_, image, at) = self.loaded.at(GuestAddr(pc))?;
        let function = image.image.function_at(at)?;
        Some(image.bias.to_guest(function.start).0)
    }

    /// Does a mapping hold something of an image that is the program's own? Linkers may begin a segment within a page.
    pub fn is_own_mapping(&self, start: u64, end: u64) -> bool {
        let holds = |image: &image::LoadedImage| {
            image.image.overlaps(image.bias.to_image(GuestAddr(start)), end.saturating_sub(start))
        };
        self.loaded.iter().zip(&self.own).any(|(image, own)| *own && holds(image))
    }

    /// Where the functions lie that somebody wrote for this program, without those that compilers brought along. Nothing
    /// if that is all of them, or too many pieces.
    pub fn own_functions(&mut self) -> Option<Vec<(u64, u64)>> {
        let loaded = self.loaded;
        let own: Vec<bool> = self.own.clone();
        let (mut ranges, mut foreign): (Vec<(u64, u64)>, bool) = (Vec::new(), false);
        for (image, _) in loaded.iter().zip(own).filter(|(_, own)| *own) {
            for function in image.image.functions() {
                let [start, end] = [function.start, function.end].map(|at| image.bias.to_guest(at).0);
                if !self.is_own(start) {
                    foreign = true;
                    continue;
                }
                match ranges.last_mut().filter(|(_, last)| (*last..=*last + PADDING).contains(&start)) {
                    Some((_, last)) => *last = end,
                    None => ranges.push((start, end)),
                }
            }
        }
        (foreign && !ranges.is_empty() && ranges.len() <= MOST_PIECES).then_some(ranges)
    }

    /// The lines of the calls that the code at an address was inlined through, the innermost first.
    pub fn callers(&mut self, pc: u64) -> &[Origin] {
        let of = self.of(pc).clone();
        let loaded = self.loaded;
        self.callers.entry(pc).or_insert_with(|| {
            let Some((_, image, at)) = loaded.at(GuestAddr(pc)) else { return Vec::new() };
            let innermost = image.image.locate(at);
            let found = innermost.clone().outside_of(&is_of_toolchain).unwrap_or(innermost);
            let frames = found.frames().into_iter().skip(1).filter(|f| f.line.is_some_and(|l| l > 0));
            let origin = |f: image::Frame| {
                let place = Location { file: f.file.clone(), folder: found.folder.clone(), ..Location::default() };
                let file = place.short_file().map(Path::to_owned);
                Origin { file, full: f.file, line: f.line, function: f.function, ..of.clone() }
            };
            frames.map(origin).collect()
        })
    }

    pub fn of(&mut self, pc: u64) -> &Origin {
        let (loaded, own, names) = (self.loaded, &self.own, &self.names);
        self.known.entry(pc).or_insert_with(|| {
            let Some((n, image, at)) = loaded.at(GuestAddr(pc)) else {
                return Origin { address: format!("{pc:#x}"), ..Origin::default() };
            };
            let name = &names[n];
            let innermost = image.image.locate(at);
            let outside = innermost.clone().outside_of(&is_of_toolchain);
            let is_written_here = outside.is_some();
            let found = outside.unwrap_or(innermost);
            let file = found.short_file().map(Path::to_owned);
            let address = match &found.function {
                Some(f) if found.line.is_none() => format!("{f}+{:#x}", found.offset_in_function),
                _ => format!("{name}+{:#x}", at.0),
            };
            let has_line = found.line.is_some_and(|l| l > 0);
            let own = own[n] && is_written_here && (has_line || !image.image.has_debug_info());
            Origin { file, full: found.file, line: found.line, function: found.function, address, own }
        })
    }
}

/// One line of a slice.
#[derive(Clone, Debug)]
pub struct Line {
    pub origin: Origin,
    /// How often it is in the slice, and how often it was executed.
    pub instances: u64,
    pub executed: u64,
    pub distance: u32,
    /// The node nearest to the criterion.
    pub node: u32,
    /// Some of it is in the data part of the value: not only chosen by it.
    pub data: bool,
}

impl Line {
    /// Its number, or its address where there are no lines.
    pub fn place(&self) -> String {
        self.origin.line.map_or_else(|| self.origin.address.clone(), |n| n.to_string())
    }
}

/// The lines of a slice, the nearest to the criterion first, and how many own lines ran in all.
pub struct Lines {
    pub list: Vec<Line>,
    pub executed: usize,
}

struct Gathered {
    origin: Origin,
    distance: u32,
    node: u32,
    data: bool,
    /// For each instruction how often, and the last execution that was counted.
    counts: BTreeMap<u64, (u64, u64)>,
}

impl Gathered {
    fn new(origin: &Origin) -> Gathered {
        Gathered { origin: origin.clone(), distance: u32::MAX, node: 0, data: false, counts: BTreeMap::new() }
    }
}

/// Where a node is shown: its own place, or the call that led there.
pub struct Squash<'a> {
    pub sites: Sites<'a>,
    pub libs: bool,
    /// What segments of library code were called from.
    known: HashMap<u32, Option<(u32, u64)>>,
}

impl<'a> Squash<'a> {
    pub fn new(window: &'a Window, libs: bool) -> Squash<'a> {
        Squash { sites: Sites::new(window), libs, known: HashMap::new() }
    }

    /// Segment and address under which a node is shown.
    pub fn shown(&mut self, node: &Node, origins: &mut Origins<'_>) -> Option<(u32, u64)> {
        if self.libs || origins.is_own(node.pc) {
            return Some((node.segment, node.pc));
        }
        if let Some(known) = self.known.get(&node.segment) {
            return *known;
        }
        // Outwards to the first own code, or to where somebody has been before; all on the way lead to the same place.
        let mut way = vec![node.segment];
        let found = loop {
            let Some(at) = way.last().and_then(|s| self.sites.parent(*s)) else { break None };
            if let Some(known) = self.known.get(&at) {
                break *known;
            }
            match self.sites.pc(at) {
                Some(pc) if origins.is_own(pc) => break Some((at, pc)),
                Some(_) => way.push(at),
                None => break None,
            }
        };
        self.known.extend(way.into_iter().map(|s| (s, found)));
        found
    }
}

/// How often each instruction ran, and how many did in all.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    pub instructions: u64,
    counts: HashMap<u64, u64>,
}

impl Ran {
    /// Adds what ran in a window.
    pub fn add(&mut self, window: &Window) {
        self.instructions += window.instructions();
        for (code, count) in window.codes().iter().zip(window.counts()).filter(|(_, count)| *count > 0) {
            for insn in &code.insns {
                *self.counts.entry(insn.pc).or_default() += count;
            }
        }
    }
}

/// Gathers the lines of a slice of one window.
pub fn gather(
    window: &Window,
    slice: &Slice,
    data: &HashSet<(u32, u16)>,
    died: Option<u64>,
    origins: &mut Origins<'_>,
    squash: &mut Squash<'_>,
) -> Lines {
    let mut ran = Ran::default();
    ran.add(window);
    let libs = squash.libs;
    let mut shown = |_: u32, node: &Node, origins: &mut Origins<'_>| {
        let (segment, pc) = squash.shown(node, origins)?;
        Some(Shown { execution: u64::from(segment), pc })
    };
    gather_ran(&ran, slice, data, died, origins, (&mut shown, libs))
}

/// Says where a node is shown, by its number.
pub type WhereShown<'s> = &'s mut dyn FnMut(u32, &Node, &mut Origins<'_>) -> Option<Shown>;

/// Gathers the lines of a slice; with that of the instruction that died, which is none that was executed. Code of libraries
/// has lines of its own if `libs` are asked for.
pub fn gather_ran(
    ran: &Ran,
    slice: &Slice,
    data: &HashSet<(u32, u16)>,
    died: Option<u64>,
    origins: &mut Origins<'_>,
    (shown, libs): (WhereShown<'_>, bool),
) -> Lines {
    let mut lines: HashMap<Key, Gathered> = HashMap::new();
    if slice.nodes.len() <= 1 {
        lines = of_sites(slice, origins, libs);
    }
    for (n, node) in slice.nodes.iter().enumerate().skip(1) {
        let Some(Shown { execution, pc }) = shown(n as u32, node, origins) else { continue };
        let is_data = data.contains(&(node.execution, node.insn));
        let mut add = |origin: &Origin| {
            let line = lines.entry(origin.key()).or_insert_with(|| Gathered::new(origin));
            line.data |= is_data;
            if node.distance < line.distance {
                (line.distance, line.node) = (node.distance, n as u32);
            }
            let count = line.counts.entry(pc).or_insert((0, u64::MAX));
            if count.1 != execution {
                *count = (count.0 + 1, execution);
            }
        };
        add(origins.of(pc));
        // The call of a function that was inlined is no instruction, but it is why the code is there.
        origins.callers(pc).iter().for_each(&mut add);
    }
    let executed = executed(ran, origins);
    let mut list: Vec<Line> = lines
        .into_iter()
        .map(|(key, g)| Line {
            instances: g.counts.values().map(|c| c.0).max().unwrap_or(0),
            executed: executed.get(&key).copied().unwrap_or(0),
            origin: g.origin,
            distance: g.distance,
            node: g.node,
            data: g.data,
        })
        .collect();
    if let Some(origin) = died.map(|pc| origins.of(pc).clone()).filter(|o| o.own)
        && list.iter().all(|l| l.origin.key() != origin.key())
    {
        let executed = executed.get(&origin.key()).copied().unwrap_or(0);
        list.push(Line { origin, instances: 1, executed, distance: 0, node: 0, data: true });
    }
    list.sort_by_key(|l| (l.distance, l.origin.key()));
    Lines { list, executed: executed.len() }
}

/// The lines of a slice that keeps no nodes.
fn of_sites(slice: &Slice, origins: &mut Origins<'_>, libs: bool) -> HashMap<Key, Gathered> {
    let mut lines: HashMap<Key, Gathered> = HashMap::new();
    for site in &slice.sites {
        if !libs && !origins.is_own(site.pc) {
            continue;
        }
        let mut add = |origin: &Origin| {
            let line = lines.entry(origin.key()).or_insert_with(|| Gathered::new(origin));
            line.distance = line.distance.min(site.distance);
            line.counts.insert(site.pc, (site.instances, u64::MAX));
        };
        add(origins.of(site.pc));
        origins.callers(site.pc).iter().for_each(&mut add);
    }
    lines
}

/// How often each own line ran.
fn executed(ran: &Ran, origins: &mut Origins<'_>) -> HashMap<Key, u64> {
    let mut lines = HashMap::new();
    for (pc, count) in &ran.counts {
        if !origins.is_own(*pc) {
            continue;
        }
        let mut note = |origin: &Origin| {
            if origin.line.is_some_and(|l| l > 0) {
                let slot: &mut u64 = lines.entry(origin.key()).or_default();
                *slot = (*slot).max(*count);
            }
        };
        note(origins.of(*pc));
        origins.callers(*pc).iter().for_each(note);
    }
    lines
}

/// Lines of source files: those that came with the recording, else those of today.
#[derive(Default)]
pub struct Sources {
    files: HashMap<PathBuf, Vec<String>>,
    packed: Option<PathBuf>,
    images: Vec<Arc<Image>>,
}

impl Sources {
    /// `packed` is a folder with sources by their full paths; the images know where others may be.
    pub fn of(loaded: &LoadedImages, packed: Option<PathBuf>) -> Sources {
        let images = loaded.iter().map(|l| l.image.clone()).filter(|i| i.has_debug_info()).collect();
        Sources { packed, images, ..Sources::default() }
    }

    fn read(&self, file: &Path) -> Option<Vec<u8>> {
        let below = file.strip_prefix("/").unwrap_or(file);
        let packed = self.packed.as_ref().and_then(|p| std::fs::read(p.join(below)).ok());
        let found = || self.images.iter().find_map(|i| i.find_source(file)).unwrap_or_else(|| file.to_owned());
        packed.or_else(|| std::fs::read(found()).ok())
    }

    /// What stands at a place.
    pub fn text(&mut self, origin: &Origin) -> Option<String> {
        self.line(origin.full.as_deref()?, origin.line?)
    }

    pub fn line(&mut self, file: &Path, line: u32) -> Option<String> {
        if !self.files.contains_key(file) {
            let text = self.read(file).unwrap_or_default();
            let lines = String::from_utf8_lossy(&text).lines().map(str::to_owned).collect();
            self.files.insert(file.to_owned(), lines);
        }
        let text = self.files[file].get(line.checked_sub(1)? as usize)?.trim().to_owned();
        (!text.is_empty()).then_some(text)
    }
}
