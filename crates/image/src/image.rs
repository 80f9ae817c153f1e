//! One program or library: the questions that can be asked about it.
//!
//! Opening reads headers; symbols, the separate debug file and debug information are read by the first question that
//! needs them. An `Image` can be shared between threads.

use crate::address::{Bias, FileOffset, ImageOffset, Position};
use crate::demangle::{demangle, is_mangled};
use crate::dwarf::{DebugInfo, Found, Splits};
use crate::elf::{BuildId, Elf};
use crate::error::ImageError;
use crate::functions::{FunctionRange, unnamed};
use crate::line_table::LineTable;
use crate::plt::{self, PltEntry};
use crate::separate::Search;
use crate::symbols::{Symbol, SymbolKind, Symbols};
use crate::unwind::Cfi;
use model::GuestAddr;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

/// An ELF file and what belongs to it.
#[derive(Debug)]
pub struct Image {
    elf: Elf,
    search: Search,
    separate: OnceLock<Option<Elf>>,
    symbols: OnceLock<Symbols>,
    debug: OnceLock<Option<DebugInfo>>,
    frames: OnceLock<Cfi>,
    plt: OnceLock<Vec<PltEntry>>,
    lines: OnceLock<LineTable>,
    pub(crate) functions: OnceLock<Vec<FunctionRange>>,
}

/// Where an address lies in the source.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Location {
    /// The innermost function in the source, as it reads.
    pub function: Option<String>,
    /// Bytes from the start of the machine function (or the piece of it) that holds the address.
    pub offset_in_function: u64,
    /// The full path that the compiler recorded.
    pub file: Option<PathBuf>,
    pub line: Option<u32>,
    pub column: Option<u32>,
    /// The calls that `function` was inlined through, the innermost caller first and the machine function last.
    pub inlined: Vec<Frame>,
    /// The folder in which the compiler ran: sources lie relative to it.
    pub folder: Option<PathBuf>,
    pub found_by: FoundBy,
}

/// A function that another was inlined into, and the line of the call.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Frame {
    pub function: Option<String>,
    pub file: Option<PathBuf>,
    pub line: Option<u32>,
    pub column: Option<u32>,
}

/// How much a location is worth.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FoundBy {
    DebugInfo,
    /// A symbol that covers the address.
    Symbol,
    /// Call frame information, which says where the function begins; its name is made from that address.
    CallFrame,
    /// The last symbol before the address, which may lie in a function without a name.
    Nearest,
    #[default]
    Nothing,
}

/// A function of the image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// As it reads.
    pub name: String,
    pub start: ImageOffset,
    /// 0 when the file does not say.
    pub size: u64,
}

/// Adjoining code of one source line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineSpan {
    pub start: ImageOffset,
    pub end: ImageOffset,
    pub file: PathBuf,
    pub line: u32,
    /// Does the compiler recommend to stop at the start?
    pub statement: bool,
}

impl Image {
    /// Opens the ELF file at `path`; debug files are looked for in the usual places.
    pub fn open(path: impl AsRef<Path>) -> Result<Image, ImageError> {
        Image::open_with(path, Search::default())
    }

    pub fn open_with(path: impl AsRef<Path>, search: Search) -> Result<Image, ImageError> {
        let elf = Elf::open(path.as_ref())?;
        let (separate, symbols, debug, frames) = Default::default();
        let (plt, lines, functions) = Default::default();
        Ok(Image { elf, search, separate, symbols, debug, frames, plt, lines, functions })
    }

    pub fn path(&self) -> &Path {
        self.elf.source.path()
    }

    pub fn build_id(&self) -> Option<&BuildId> {
        self.elf.build_id.as_ref()
    }

    /// The separate debug file in use.
    pub fn debug_file(&self) -> Option<&Path> {
        self.separate().map(|e| e.source.path())
    }

    /// The files with debug information of this image that lie outside of it, with the build-ids they are found by.
    pub fn debug_files(&self) -> Vec<(BuildId, PathBuf)> {
        let home = if self.elf.has_contents(".debug_info") { Some(&self.elf) } else { self.separate() };
        let shared = home.and_then(|home| self.search.shared_file(home));
        let named = |elf: &Elf| Some((elf.build_id.clone()?, elf.source.path().to_path_buf()));
        self.separate().into_iter().chain(shared.as_ref()).filter_map(named).collect()
    }

    /// The source files that debug information names, with full paths where it knows them.
    pub fn source_files(&self) -> std::collections::BTreeSet<PathBuf> {
        let files = self.debug().map(DebugInfo::source_files).unwrap_or_default();
        files.iter().map(|f| tidy(f)).filter(|f| !f.as_os_str().is_empty()).collect()
    }

    /// Where the source file that the compiler recorded as `recorded` is now: by the source map, as recorded, near the
    /// program, or from a server. `None` when it is nowhere.
    pub fn find_source(&self, recorded: impl AsRef<Path>) -> Option<PathBuf> {
        let recorded = tidy(recorded.as_ref());
        let near = self.search.source_map.find(&recorded, Some(self.path()));
        near.or_else(|| self.search.debuginfod.as_ref()?.source(self.build_id()?, &recorded))
    }

    pub fn has_debug_info(&self) -> bool {
        self.debug().is_some()
    }

    /// `None` when the file's bytes there are not mapped.
    pub fn image_offset(&self, at: FileOffset) -> Option<ImageOffset> {
        self.elf.image_offset(at)
    }

    /// `None` when the address has no bytes in the file.
    pub fn file_offset(&self, at: ImageOffset) -> Option<FileOffset> {
        self.elf.file_offset(at)
    }

    /// The bias of a process in which the byte at `at` is mapped to `addr`.
    pub fn bias(&self, at: FileOffset, addr: GuestAddr) -> Option<Bias> {
        Some(Bias::between(self.image_offset(at)?, addr))
    }

    /// Is the address inside of a segment that is loaded?
    pub fn contains(&self, at: ImageOffset) -> bool {
        self.elf.contains(at)
    }

    /// Does a segment that is loaded lie within these `len` bytes, or a part of one?
    pub fn overlaps(&self, at: ImageOffset, len: u64) -> bool {
        self.elf.overlaps(at, len)
    }

    pub fn resolve(&self, position: Position) -> Option<ImageOffset> {
        match position {
            Position::File(at) => self.image_offset(at),
            Position::Image(at) => Some(at),
        }
    }

    /// Up to `len` bytes of the file's contents at `at`; fewer when the segment or the file ends.
    pub fn bytes(&self, at: ImageOffset, len: u64) -> Option<Vec<u8>> {
        let start = self.file_offset(at)?.0;
        self.elf.source.read(start, len.min(self.elf.source.len().saturating_sub(start))).ok()
    }

    pub fn symbols(&self) -> &Symbols {
        self.symbols.get_or_init(|| Symbols::load(&self.elf, self.separate()))
    }

    /// Function, file and line of the code at `at`, as far as they can be known.
    pub fn locate(&self, at: ImageOffset) -> Location {
        let Some(code) = self.elf.code_around(at) else { return Location::default() };
        let found = self.debug().and_then(|d| d.locate(at.0)).unwrap_or_default();
        let (start, known) = (found.start, found.frames.last().and_then(|f| f.name.clone()));
        let mut location = from_debug_info(found, at);
        if known.as_ref().is_some_and(|n| n.complete) {
            return location;
        }
        let symbol = self.symbols().function_at(at, &code);
        if location.found_by == FoundBy::Nothing
            && let Some(location) = self.locate_without_symbol(at, symbol.as_ref())
        {
            return location;
        }
        let Some((symbol, offset, exact)) = symbol else { return location };
        let readable = demangle(&symbol.name);
        let function = location.inlined.last_mut().map_or(&mut location.function, |f| &mut f.function);
        let names_the_same = is_mangled(&symbol.name) && start == Some(symbol.start.0);
        match known {
            // The compiler may leave out the linker's name (of a lambda, for one), which says more.
            Some(plain) if names_the_same && readable.contains(&plain.text) => *function = Some(readable),
            Some(_) => {}
            // Assembler sources have lines but no functions; then a symbol must be sure to name one.
            None if exact || location.found_by == FoundBy::Nothing => {
                *function = Some(readable);
                location.offset_in_function = offset;
            }
            None => {}
        }
        if location.found_by == FoundBy::Nothing {
            location.found_by = if exact { FoundBy::Symbol } else { FoundBy::Nearest };
        }
        location
    }

    /// The function at `at` where neither debug information nor a symbol that surely reaches there names it.
    fn locate_without_symbol(&self, at: ImageOffset, symbol: Option<&(Symbol<'_>, u64, bool)>) -> Option<Location> {
        if symbol.is_some_and(|(.., exact)| *exact) {
            return None;
        }
        let (name, start, found_by) = match self.plt_at(at) {
            Some(entry) => (self.plt_name(entry), entry.start, FoundBy::Symbol),
            None => {
                let (start, _) = self.cfi().range_at(at.0)?;
                // A symbol without size that stands where the function begins is its name.
                if symbol.is_some_and(|(s, ..)| s.start.0 == start) {
                    return None;
                }
                (unnamed(start), start, FoundBy::CallFrame)
            }
        };
        Some(Location { function: Some(name), offset_in_function: at.0 - start, found_by, ..Location::default() })
    }

    /// Every line of the image. Read when first asked for.
    pub fn lines(&self) -> &LineTable {
        self.lines.get_or_init(|| self.debug().map(LineTable::load).unwrap_or_default())
    }

    /// Where the statements of exactly `file:line` begin, in order of address: the places to stop for it.
    pub fn statements(&self, file: impl AsRef<Path>, line: u32) -> Vec<ImageOffset> {
        let spans = self.find_line(file, line).into_iter();
        spans.filter(|s| s.line == line && s.statement).map(|s| s.start).collect()
    }

    /// The code of `file:line`, in order of address. `file` is a path or the end of one (`parse.c`, `src/parse.c`).
    /// When that line has no code, the code of the next line that has: see [`LineSpan::line`].
    pub fn find_line(&self, file: impl AsRef<Path>, line: u32) -> Vec<LineSpan> {
        let Some(debug) = self.debug() else { return Vec::new() };
        let wanted = tidy(file.as_ref());
        if wanted.as_os_str().is_empty() {
            return Vec::new();
        }
        let spans = debug.find_line(|f| f.file_name() == wanted.file_name() && tidy(f).ends_with(&wanted), line);
        let span = |s: crate::dwarf::FoundSpan| LineSpan {
            start: ImageOffset(s.begin),
            end: ImageOffset(s.end),
            file: s.file,
            line: s.line,
            statement: s.statement,
        };
        spans.into_iter().map(span).collect()
    }

    /// The functions called `name`: its symbol, or its readable form with or without parameters.
    pub fn find_function(&self, name: &str) -> Vec<Function> {
        let found = self.symbols().find(name).into_iter().filter(|s| s.kind == SymbolKind::Function);
        found.map(|s| Function { name: demangle(&s.name), start: s.start, size: s.size }).collect()
    }

    /// Size and alignment of the block of thread-local variables.
    pub(crate) fn thread_local_block(&self) -> Option<(u64, u64)> {
        self.elf.thread_local
    }

    pub(crate) fn elf(&self) -> &Elf {
        &self.elf
    }

    pub(crate) fn plt(&self) -> &[PltEntry] {
        self.plt.get_or_init(|| plt::entries(&self.elf))
    }

    pub(crate) fn cfi(&self) -> &Cfi {
        self.frames.get_or_init(|| Cfi::load(&self.elf, self.separate()))
    }

    fn separate(&self) -> Option<&Elf> {
        let find = || {
            let complete = self.elf.has_contents(".debug_info") && self.elf.has_contents(".symtab");
            if complete { None } else { self.search.debug_file(&self.elf) }
        };
        self.separate.get_or_init(find).as_ref()
    }

    pub(crate) fn debug(&self) -> Option<&DebugInfo> {
        let load = || {
            let home = if self.elf.has_contents(".debug_info") { &self.elf } else { self.separate()? };
            let homes = [&self.elf, home].map(|e| e.source.path().to_path_buf()).to_vec();
            let splits = Splits::new(homes, self.search.source_map.clone());
            DebugInfo::load(home, self.search.shared_file(home).as_ref(), splits)
        };
        self.debug.get_or_init(load).as_ref()
    }
}

impl Location {
    /// All functions at this place, the innermost first.
    pub fn frames(&self) -> Vec<Frame> {
        let Location { function, file, line, column, .. } = self.clone();
        let mut frames = vec![Frame { function, file, line, column }];
        frames.extend(self.inlined.iter().cloned());
        frames
    }

    /// The innermost place whose file is not foreign: code that was inlined from foreign files is where it was called.
    pub fn outside_of(self, foreign: &dyn Fn(&Path) -> bool) -> Option<Location> {
        let is_foreign = |f: &Frame| f.file.as_deref().is_some_and(foreign);
        let mut frames = self.frames().into_iter().skip_while(is_foreign);
        let Frame { function, file, line, column } = frames.next()?;
        Some(Location { function, file, line, column, inlined: frames.collect(), ..self })
    }

    /// The file as the compiler was given it: relative to its folder where it lies below.
    pub fn short_file(&self) -> Option<&Path> {
        Some(shorten(self.file.as_deref()?, self.folder.as_deref()))
    }
}

/// `file` without the folder that everything else in the project shares.
pub(crate) fn shorten<'a>(file: &'a Path, folder: Option<&Path>) -> &'a Path {
    folder.and_then(|folder| file.strip_prefix(folder).ok()).filter(|f| !f.as_os_str().is_empty()).unwrap_or(file)
}

fn from_debug_info(found: Found, at: ImageOffset) -> Location {
    let found_by = if found.frames.is_empty() { FoundBy::Nothing } else { FoundBy::DebugInfo };
    let mut frames = found.frames.into_iter().map(|f| Frame {
        function: f.name.map(|n| n.text),
        file: f.file,
        line: f.line,
        column: f.column,
    });
    let Frame { function, file, line, column } = frames.next().unwrap_or_default();
    Location {
        function,
        offset_in_function: at.0.saturating_sub(found.start.unwrap_or(at.0)),
        file,
        line,
        column,
        inlined: frames.collect(),
        folder: found.folder,
        found_by,
    }
}

/// `path` without `.` and with `..` resolved as text, as compilers and people write one file in several ways.
pub(crate) fn tidy(path: &Path) -> PathBuf {
    let mut tidy = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(tidy.components().next_back(), Some(Component::Normal(_))) => {
                tidy.pop();
            }
            part => tidy.push(part),
        }
    }
    tidy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_to_one_file_become_one_path() {
        for (path, expected) in [
            ("/b/build/../src/a.c", "/b/src/a.c"),
            ("./a.c", "a.c"),
            ("../a.c", "../a.c"),
            ("a/../../b.c", "../b.c"),
            ("", ""),
        ] {
            assert_eq!(tidy(Path::new(path)), Path::new(expected), "{path}");
        }
    }

    #[test]
    fn images_can_be_shared_between_threads() {
        fn check<T: Send + Sync>() {}
        check::<Image>();
    }
}
