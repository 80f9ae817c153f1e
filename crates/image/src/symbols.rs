//! The symbol tables of an image: names for addresses without debug information, addresses for names.
//!
//! `.symtab` and `.dynsym` are read together; `.symtab` may come from the separate debug file.
//! Names stay in the string tables and are decoded when asked for.
//! A lookup prefers, in this order: a symbol whose size covers the address (the one that starts last); a symbol without
//! size, which reaches to the next symbol; the nearest symbol before, which is then only a landmark.
//! May miss: functions of stripped programs that are not exported, and everything in files without section headers.

use crate::address::ImageOffset;
use crate::demangle::{demangle, demangle_short, is_mangled};
use crate::elf::Elf;
use crate::range_map::RangeMap;
use object::elf;
use std::borrow::Cow;

const ENTRY_SIZE: usize = 24;
/// Longer names are cut.
const MAX_NAME: usize = 8 << 10;
/// How many names are made readable to compare them with one that is looked for.
const MAX_DEMANGLED: usize = 10_000;

/// What a symbol stands for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SymbolKind {
    Function,
    Data,
}

/// A name and the bytes it stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol<'a> {
    /// As the linker knows it; `demangle` makes it readable.
    pub name: Cow<'a, str>,
    pub start: ImageOffset,
    /// 0 when the file does not say.
    pub size: u64,
    pub kind: SymbolKind,
}

/// All symbols of an image that stand for an address.
#[derive(Debug, Default)]
pub struct Symbols {
    strings: Vec<Vec<u8>>,
    /// Sorted by address; of several names for one address the best comes first.
    entries: Vec<Entry>,
    /// Functions with a size, by index into `entries`.
    sized: RangeMap,
    /// Functions without: each reaches to the next symbol or the end of its section.
    open_ended: RangeMap,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u64,
    size: u64,
    name: u32,
    table: u8,
    kind: SymbolKind,
    /// Where it ends at the latest: after `size`, or with its section.
    limit: u64,
    global: bool,
}

impl Symbols {
    /// `debug` is the separate debug file, if there is one.
    pub(crate) fn load(elf: &Elf, debug: Option<&Elf>) -> Symbols {
        let mut symbols = Symbols::default();
        let full = [Some(elf), debug].into_iter().flatten().find(|e| e.has_contents(".symtab"));
        if let Some(full) = full {
            symbols.add(full, ".symtab");
        }
        symbols.add(elf, ".dynsym");
        symbols.sort();
        symbols
    }

    pub fn iter(&self) -> impl Iterator<Item = Symbol<'_>> {
        self.entries.iter().map(|e| self.symbol(e))
    }

    /// The function at `at`, its distance from the function's start, and whether the symbol really reaches there.
    pub(crate) fn function_at(&self, at: ImageOffset, code: &std::ops::Range<u64>) -> Option<(Symbol<'_>, u64, bool)> {
        let found = |i: usize, exact| self.entries.get(i).map(|e| (self.symbol(e), at.0 - e.start, exact));
        if let Some(range) = self.sized.at(at.0).next().or_else(|| self.open_ended.at(at.0).next()) {
            return found(range.value as usize, true);
        }
        let before = &self.entries[..self.entries.partition_point(|e| e.start <= at.0)];
        // A symbol of another mapping says nothing, so the search ends at the start of this one.
        let is_near = |e: &&Entry| e.start >= code.start;
        let nearest = before.iter().rev().take_while(is_near).find(|e| e.kind == SymbolKind::Function)?.start;
        // Functions come before data of the same address and the best name first.
        found(before.partition_point(|e| e.start < nearest), false)
    }

    /// Every function as `(start, end, symbol)`, by its start; of several names for one start the best comes first.
    pub(crate) fn functions(&self) -> impl Iterator<Item = (u64, u64, Symbol<'_>)> {
        let functions = self.entries.iter().filter(|e| e.kind == SymbolKind::Function);
        functions.filter_map(|e| {
            let end = if e.size != 0 { e.limit } else { self.open_ended.at(e.start).next()?.end };
            Some((e.start, end, self.symbol(e)))
        })
    }

    /// The symbol, of a function or of data, whose size covers `at`, and the distance from its start.
    pub fn covering(&self, at: ImageOffset) -> Option<(Symbol<'_>, u64)> {
        // Symbols rarely nest, so one of the few before the address covers it or none does.
        const NEAR: usize = 64;
        let before = &self.entries[..self.entries.partition_point(|e| e.start <= at.0)];
        let covers = |e: &&Entry| at.0 - e.start < e.size.max(1);
        let nearest = before.iter().rev().take(NEAR).find(covers)?.start;
        let first = before.partition_point(|e| e.start < nearest);
        before[first..].iter().find(covers).map(|e| (self.symbol(e), at.0 - e.start))
    }

    /// Every symbol called `name`: as the linker knows it, as it reads with or without parameters, or a variant of it
    /// that the compiler made to be called in its place (`.constprop`, `.isra`).
    pub fn find(&self, name: &str) -> Vec<Symbol<'_>> {
        // Demangling everything is slow; a readable name's last part stands in the mangled one letter for letter.
        let plain = name.split(['(', '<']).next().unwrap_or(name);
        let last = plain.rsplit("::").next().unwrap_or(plain);
        let mut demangled = 0;
        let mut reads_as = |raw: &str| {
            if last.is_empty() || !is_mangled(raw) || !raw.contains(last) || demangled == MAX_DEMANGLED {
                return false;
            }
            demangled += 1;
            demangle(raw) == name || demangle_short(raw) == name
        };
        let matches = |s: &Symbol<'_>| {
            let raw = s.name.as_ref();
            raw == name || raw.strip_prefix(name).is_some_and(is_variant) || reads_as(raw)
        };
        let mut found: Vec<Symbol<'_>> = Vec::new();
        for s in self.iter().filter(matches) {
            // `.symtab` and `.dynsym` both have the exported ones.
            if found.last().is_none_or(|l| (l.start, l.kind) != (s.start, s.kind)) {
                found.push(s);
            }
        }
        found
    }

    fn symbol(&self, e: &Entry) -> Symbol<'_> {
        Symbol { name: self.name(e), start: ImageOffset(e.start), size: e.size, kind: e.kind }
    }

    fn name(&self, e: &Entry) -> Cow<'_, str> {
        String::from_utf8_lossy(self.name_bytes(e, MAX_NAME))
    }

    /// The name, or its first `limit` bytes. Names in a hostile table overlap and are as long as the table, so nobody
    /// looks further than needed.
    fn name_bytes(&self, e: &Entry, limit: usize) -> &[u8] {
        let rest = self.strings[e.table as usize].get(e.name as usize..).unwrap_or_default();
        let rest = &rest[..rest.len().min(limit)];
        &rest[..rest.iter().position(|&b| b == 0).unwrap_or(rest.len())]
    }

    fn add(&mut self, elf: &Elf, table: &str) {
        let Some(section) = elf.section(table) else { return };
        let Some(strings) = elf.sections.get(section.link as usize).and_then(|s| elf.contents(s)) else { return };
        let Some(bytes) = elf.contents(section) else { return };
        let table = self.strings.len() as u8;
        self.strings.push(strings);
        for raw in bytes.chunks_exact(ENTRY_SIZE) {
            let Some(entry) = parse_entry(raw, table, elf) else { continue };
            let name = self.name_bytes(&entry, 2);
            // Local labels of assemblers (`.L1`, `$x`) are nobody's names.
            if !(name.is_empty() || name.starts_with(b".L") || name.starts_with(b"$")) {
                self.entries.push(entry);
            }
        }
    }

    fn sort(&mut self) {
        let mut entries = std::mem::take(&mut self.entries);
        // Among names for one address: public ones, then those with fewer leading underscores (`malloc` rather than
        // `__libc_malloc`), then the shorter; and the name itself, so that the choice never varies.
        let by_name = |e: &Entry| {
            let name = self.name_bytes(e, 64);
            (name.iter().take_while(|&&b| b == b'_').count(), name.len(), name)
        };
        entries.sort_by(|a, b| {
            let key = |e: &Entry| (e.start, e.kind, e.size == 0, !e.global);
            key(a).cmp(&key(b)).then_with(|| by_name(a).cmp(&by_name(b)))
        });
        let functions = || entries.iter().enumerate().filter(|(_, e)| e.kind == SymbolKind::Function);
        let sized = functions().filter(|(_, e)| e.size != 0).map(|(i, e)| (e.start, e.limit, i as u32));
        let sized = RangeMap::new(sized);
        let mut next = u64::MAX;
        let mut last = u64::MAX;
        let mut without_size = Vec::new();
        for (i, e) in functions().collect::<Vec<_>>().into_iter().rev() {
            if e.start != last {
                next = last;
                last = e.start;
            }
            if e.size == 0 {
                without_size.push((e.start, e.limit.min(next), i as u32));
            }
        }
        without_size.reverse();
        (self.sized, self.open_ended) = (sized, RangeMap::new(without_size));
        self.entries = entries;
    }
}

/// Is `suffix` what the compiler appends to a function's name for a specialised copy that replaces it?
fn is_variant(suffix: &str) -> bool {
    suffix.starts_with(".constprop.") || suffix.starts_with(".isra.")
}

/// An `Elf64_Sym` that stands for an address in a section of `elf`.
fn parse_entry(raw: &[u8], table: u8, elf: &Elf) -> Option<Entry> {
    let name = u32::from_le_bytes(*raw.first_chunk()?);
    let info = raw[4];
    let section = u16::from_le_bytes(*raw.get(6..)?.first_chunk()?);
    let start = u64::from_le_bytes(*raw.get(8..)?.first_chunk()?);
    let size = u64::from_le_bytes(*raw.get(16..)?.first_chunk()?);
    if section == elf::SHN_UNDEF || start == 0 {
        return None;
    }
    let home = elf.sections.get(section as usize);
    let kind = match info & 0xf {
        elf::STT_FUNC | elf::STT_GNU_IFUNC => SymbolKind::Function,
        elf::STT_NOTYPE if home.is_some_and(|s| s.is_code()) => SymbolKind::Function,
        elf::STT_OBJECT | elf::STT_NOTYPE => SymbolKind::Data,
        _ => return None,
    };
    let limit = match size {
        0 => home.map_or(start, |s| s.address.saturating_add(s.size)),
        _ => start.saturating_add(size),
    };
    Some(Entry { start, size, name, table, kind, limit, global: info >> 4 != elf::STB_LOCAL })
}
