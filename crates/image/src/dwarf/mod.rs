//! Debug information: from an address to the functions and lines around it, and from a line to addresses.
//!
//! Tables are read once per unit, when a question first needs them, and kept as plain data; names are looked up for
//! the frames that are reported. The sections themselves stay in memory for questions to come.
//!
//! The lookup is our own, on gimli, rather than addr2line's: that one trusts its input (nested inlined calls recurse,
//! and shared lists and paths are copied for each reference, so a file of a few megabytes can exhaust stack or memory),
//! and it gives no statement marks and no way from a line to addresses. Tests compare the two on real programs.
//!
//! Guarantees: all tables of a file together cost time and memory linear in its size, and so does each other question
//! (see `meter`). Damage in one unit does not hide the others.

mod accelerated;
#[cfg(test)]
mod accelerated_tests;
mod functions;
mod index;
mod lines;
mod meter;
mod names;
mod split;
mod tables;
mod units;

use crate::demangle::{demangle, is_mangled};
use crate::elf::Elf;
pub(crate) use functions::Name;
use functions::{Functions, LazyName};
use gimli::{Dwarf, DwarfSections, Section, SectionId, UnitRef};
use index::Index;
pub(crate) use index::{Candidate, Home, Named, type_units};
use lines::Lines;
pub(crate) use meter::{Meter, Metered};
pub(crate) use split::{Part, Splits};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
pub(crate) use units::open_unit;
use units::{UnitEntry, Units};

/// How many units may claim one address before the rest are not asked. Real overlaps are of two or three.
const MAX_CANDIDATES: usize = 32;
/// How many inlined calls are reported around one address.
const MAX_INLINED: usize = 64;
/// What reading may cost beside the size of the sections, so that small files are not short of it.
const BASE_ALLOWANCE: u64 = 1 << 20;

/// The sections that questions about functions, lines and variables need.
const NEEDED: [SectionId; 13] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugAranges,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
    SectionId::DebugTypes,
];

/// The section with a table of names, which gimli does not know.
const NAMES: &str = ".debug_names";

/// The debug information of one image.
#[derive(Debug)]
pub(crate) struct DebugInfo {
    sections: DwarfSections<Vec<u8>>,
    shared: Option<DwarfSections<Vec<u8>>>,
    splits: Splits,
    /// Of all sections that were read.
    size: AtomicU64,
    /// What all tables together may still cost.
    allowance: AtomicU64,
    units: OnceLock<Units>,
    index: OnceLock<Index>,
    /// `.debug_names`, empty if there is none; and whether it speaks of all units.
    names: Vec<u8>,
    names_fit: OnceLock<bool>,
}

/// The entries of the functions around an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundScope {
    pub part: Part,
    /// The unit's offset in the section.
    pub unit: usize,
    /// Offsets in the unit: the machine function, then the inlined calls, the outermost first.
    pub functions: Vec<usize>,
}

/// What debug information says about an address.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The innermost first; each further one is where the one before was inlined.
    pub frames: Vec<FoundFrame>,
    /// The start of the function's piece that holds the address.
    pub start: Option<u64>,
    pub folder: Option<PathBuf>,
}

#[derive(Debug, Default)]
pub(crate) struct FoundFrame {
    pub name: Option<Name>,
    pub file: Option<PathBuf>,
    pub line: Option<u32>,
    pub column: Option<u32>,
}

/// Code of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundSpan {
    pub begin: u64,
    pub end: u64,
    pub file: PathBuf,
    pub line: u32,
    pub statement: bool,
}

impl DebugInfo {
    /// `shared` is the file that `elf` shares DWARF with, if any; `splits` says where split units are looked for. `None`
    /// when `elf` has no debug information.
    pub fn load(elf: &Elf, shared: Option<&Elf>, splits: Splits) -> Option<DebugInfo> {
        if !elf.has_contents(SectionId::DebugInfo.name()) {
            return None;
        }
        let mut size = 0;
        let mut load = |elf: &Elf| {
            let read = |id: SectionId| {
                let wanted = NEEDED.contains(&id).then(|| elf.named_contents(id.name())).flatten().unwrap_or_default();
                size += wanted.len() as u64;
                Ok::<_, std::convert::Infallible>(wanted)
            };
            let Ok(sections) = DwarfSections::load(read);
            sections
        };
        let sections = load(elf);
        let shared = shared.map(load);
        let names = elf.named_contents(NAMES).unwrap_or_default();
        size += names.len() as u64;
        // All tables of the C library, or of a large Rust program, together cost about the size of their sections, and
        // the index of names as much again.
        let allowance = AtomicU64::new(size.saturating_mul(8).saturating_add(BASE_ALLOWANCE));
        let (units, index, names_fit) = Default::default();
        let size = AtomicU64::new(size);
        Some(DebugInfo { sections, shared, splits, size, allowance, units, index, names, names_fit })
    }

    pub fn locate(&self, at: u64) -> Option<Found> {
        let mut best = None;
        for unit in self.units().at(at).take(MAX_CANDIDATES) {
            let lines = self.lines(unit);
            let row = lines.and_then(|l| l.at(at));
            let function = self.functions(unit).at(at);
            if function.is_none() && (row.is_none() || best.is_some()) {
                continue;
            }
            let mut found = Found { folder: lines.and_then(|l| l.folder.clone()), ..Found::default() };
            let mut frame = FoundFrame::default();
            if let (Some(row), Some(lines)) = (row, lines) {
                frame.file = lines.file(row.file.into()).cloned();
                (frame.line, frame.column) = position(row.line, row.column);
            }
            let Some((function, start)) = function else {
                found.frames.push(frame);
                best = Some(found);
                continue;
            };
            found.start = Some(start);
            let mut calls = function.inlined_at(at);
            calls.reverse();
            calls.truncate(MAX_INLINED);
            let names = self.names(unit, calls.iter().map(|c| &c.name).chain([&function.name]).collect());
            let mut names = names.into_iter();
            for call in calls {
                frame.name = names.next().flatten();
                found.frames.push(std::mem::take(&mut frame));
                frame.file = lines.and_then(|l| l.file(call.call_file)).cloned();
                (frame.line, frame.column) = position(call.call_line, call.call_column);
            }
            frame.name = names.next().flatten();
            found.frames.push(frame);
            return Some(found);
        }
        best
    }

    /// The entries of the functions at `at`, as many as `locate` reports frames.
    pub fn scope(&self, at: u64) -> Option<FoundScope> {
        let found = |unit: &UnitEntry| {
            let (function, _) = self.functions(unit).at(at)?;
            let calls = function.inlined_at(at);
            let skip = calls.len().saturating_sub(MAX_INLINED);
            let calls = calls.into_iter().skip(skip).map(|c| &c.name);
            let functions = [&function.name].into_iter().chain(calls).map(|n| n.entry.0).collect();
            let split = unit.split.get().and_then(Option::as_ref);
            let (part, unit) = split.map_or((Part::Own, unit.offset.0), |s| (Part::Split(unit.number), s.offset));
            Some(FoundScope { part, unit, functions })
        };
        self.units().at(at).take(MAX_CANDIDATES).find_map(found)
    }

    /// The entries that are probably called `name`.
    pub fn named(&self, name: &str, what: Named) -> Vec<Candidate> {
        if self.index.get().is_none()
            && let found @ [_, ..] = &self.named_by_table(name, what)[..]
        {
            return found.to_vec();
        }
        self.index().candidates(name, what)
    }

    /// The same for the units that the compiler's table of names tells; nothing if there is no table that can be relied on.
    /// Enumerators are in no such table, nor what is shared between files.
    fn named_by_table(&self, name: &str, what: Named) -> Vec<Candidate> {
        if self.names.is_empty() || self.shared.is_some() || what == Named::Enumerator || !name.is_ascii() {
            return Vec::new();
        }
        let units = &self.units().list;
        let fits = || {
            self.each(|_, meter| {
                let listed = accelerated::listed_units(Metered::new(&self.names, meter));
                listed.is_some_and(|l| units.iter().all(|u| l.binary_search(&u.offset.0).is_ok()))
            })
        };
        if !*self.names_fit.get_or_init(fits) {
            return Vec::new();
        }
        let told = self.each(|dwarf, meter| {
            accelerated::units_with(Metered::new(&self.names, meter), *dwarf.debug_str.reader(), name)
        });
        let known = |at: usize| units.binary_search_by_key(&at, |u| u.offset.0).ok().map(|n| &units[n]);
        let told = told.unwrap_or_default().into_iter().filter_map(known);
        told.flat_map(|unit| self.unit_index(unit).candidates(name, what)).collect()
    }

    /// The names of one unit.
    fn unit_index<'s>(&'s self, unit: &'s UnitEntry) -> &'s Index {
        unit.index.get_or_init(|| {
            self.functions(unit);
            self.once(|dwarf, meter| self.load_unit_index(dwarf, unit, meter))
        })
    }

    /// The variables with a fixed address at `at` or before it, the nearest first, each with its address.
    pub fn variables_before(&self, at: u64) -> impl Iterator<Item = (u64, Candidate)> {
        self.index().placed_before(at)
    }

    fn index(&self) -> &Index {
        let load = || {
            // What is split adds to the allowance, so it is opened before.
            for unit in &self.units().list {
                self.functions(unit);
            }
            self.once(|dwarf, meter| {
                dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
                self.load_index(dwarf, meter)
            })
        };
        self.index.get_or_init(load)
    }

    /// The sections of one of its files, for a question that pays with `meter`.
    pub fn dwarf<'a>(&'a self, part: Part, meter: &'a Meter) -> Option<Dwarf<Metered<'a>>> {
        let reader = |bytes: &'a Vec<u8>| Metered::new(bytes, meter);
        let own = || match &self.shared {
            Some(shared) => self.sections.borrow_with_sup(shared, reader),
            None => self.sections.borrow(reader),
        };
        match part {
            Part::Own => Some(own()),
            Part::Shared => self.shared.as_ref().map(|shared| shared.borrow(reader)),
            Part::Split(number) => {
                let found = self.units().list.get(number as usize)?.split.get()?.as_ref()?;
                self.split_sections(&own(), found, meter)
            }
            Part::Packaged(signature) => self.packaged_type(&own(), signature, meter),
        }
    }

    /// Where the skeleton of a split unit begins.
    pub fn skeleton(&self, number: u32) -> Option<usize> {
        self.units().list.get(number as usize).map(|u| u.offset.0)
    }

    /// What one question about this file may cost.
    pub fn question_allowance(&self) -> u64 {
        self.size.load(Ordering::Relaxed).saturating_mul(2).saturating_add(BASE_ALLOWANCE)
    }

    /// The paths of all source files that the units list, in no order and perhaps several times.
    pub fn source_files(&self) -> Vec<PathBuf> {
        self.each(|dwarf, meter| {
            dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
            self.units().list.iter().flat_map(|u| self.listed_files(dwarf, u, meter)).collect()
        })
    }

    /// The code of line `line` of the files that `wanted` accepts, or of the next line there that has any.
    pub fn find_line(&self, wanted: impl Fn(&Path) -> bool, line: u32) -> Vec<FoundSpan> {
        let candidates: Vec<&UnitEntry> = self.each(|dwarf, meter| {
            dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
            let lists = |u: &&UnitEntry| match u.lines.get() {
                Some(lines) => lines.as_ref().is_some_and(|l| l.files.iter().any(|f| wanted(f))),
                None => self.listed_files(dwarf, u, meter).iter().any(|f| wanted(f)),
            };
            self.units().list.iter().filter(lists).collect()
        });
        let mut found: Vec<FoundSpan> = Vec::new();
        for lines in candidates.into_iter().filter_map(|u| self.lines(u)) {
            for s in lines.spans(|f| wanted(f), line) {
                let file = lines.file(s.file.into()).cloned().unwrap_or_default();
                found.push(FoundSpan { begin: s.begin, end: s.end, file, line: s.line, statement: s.statement });
            }
        }
        let first = found.iter().map(|s| s.line).min().unwrap_or(0);
        found.retain(|s| s.line == first);
        found.sort_by_key(|s| (s.begin, s.end));
        found.dedup_by_key(|s| (s.begin, s.end));
        found
    }

    fn listed_files(&self, dwarf: &Dwarf<Metered<'_>>, unit: &UnitEntry, meter: &Meter) -> Vec<PathBuf> {
        let Ok(header) = dwarf.debug_info.header_from_offset(unit.offset) else { return Vec::new() };
        let Ok(parsed) = open_unit(dwarf, header, meter) else { return Vec::new() };
        let Some(program) = &parsed.line_program else { return Vec::new() };
        lines::files(UnitRef::new(dwarf, &parsed), program.header(), meter)
    }

    fn units(&self) -> &Units {
        self.units.get_or_init(|| self.once(Units::load))
    }

    fn lines<'s>(&'s self, unit: &'s UnitEntry) -> Option<&'s Lines> {
        unit.lines
            .get_or_init(|| self.once(|dwarf, meter| with_unit(dwarf, unit, meter, Lines::load).flatten()))
            .as_ref()
    }

    fn functions<'s>(&'s self, unit: &'s UnitEntry) -> &'s Functions {
        let load = || self.once(|dwarf, meter| self.with_entries(dwarf, unit, meter, Functions::load));
        unit.functions.get_or_init(|| load().unwrap_or_default())
    }

    /// The names behind `wanted`, all of which belong to `unit`.
    fn names(&self, unit: &UnitEntry, wanted: Vec<&LazyName>) -> Vec<Option<Name>> {
        let missing: Vec<&LazyName> = wanted.iter().copied().filter(|n| n.found.get().is_none()).collect();
        if !missing.is_empty() {
            self.each(|dwarf, meter| self.find_names(dwarf, unit, &missing, meter));
        }
        wanted.into_iter().map(|n| n.found.get().cloned().flatten()).collect()
    }

    /// Hands over the entries of `unit`: its own, or those that it is a skeleton of.
    fn with_entries<'a, T>(
        &'a self,
        dwarf: &Dwarf<Metered<'a>>,
        unit: &'a UnitEntry,
        meter: &'a Meter,
        work: impl FnOnce(UnitRef<'_, Metered<'a>>, &Meter) -> T,
    ) -> Option<T> {
        let header = dwarf.debug_info.header_from_offset(unit.offset).ok()?;
        let parsed = open_unit(dwarf, header, meter).ok()?;
        Some(match self.split_of(dwarf, unit, &parsed, meter) {
            Some(split) => work(UnitRef::new(&split.dwarf, &split.unit), meter),
            None => work(UnitRef::new(dwarf, &parsed), meter),
        })
    }

    /// Looks up and keeps the names behind `missing`, all of which belong to `unit`.
    fn find_names(&self, dwarf: &Dwarf<Metered<'_>>, unit: &UnitEntry, missing: &[&LazyName], meter: &Meter) {
        let find = |u: UnitRef<'_, Metered<'_>>, meter: &Meter| -> Vec<Option<String>> {
            missing.iter().map(|n| names::name(u.dwarf, self.units(), u.unit, n.entry, meter)).collect()
        };
        let found = self.with_entries(dwarf, unit, meter, find).unwrap_or_else(|| vec![None; missing.len()]);
        for (name, raw) in missing.iter().zip(found) {
            let readable = raw.map(|raw| Name { text: demangle(&raw), complete: is_mangled(&raw) });
            // Another thread may have been faster; it found the same.
            let _ = name.found.set(readable);
        }
    }

    /// Work whose result is kept, paid from the allowance of the whole file.
    fn once<T>(&self, work: impl for<'a> FnOnce(&mut Dwarf<Metered<'a>>, &'a Meter) -> T) -> T {
        let (result, spent) = self.metered(self.allowance.load(Ordering::Relaxed), work);
        let pay = |left: u64| Some(left.saturating_sub(spent));
        // The closure never refuses, so there is no error to see.
        let _ = self.allowance.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay);
        result
    }

    /// Work that may be asked for any number of times, each time with an allowance of its own.
    fn each<T>(&self, work: impl for<'a> FnOnce(&mut Dwarf<Metered<'a>>, &'a Meter) -> T) -> T {
        self.metered(self.question_allowance(), work).0
    }

    fn metered<T>(&self, limit: u64, work: impl for<'a> FnOnce(&mut Dwarf<Metered<'a>>, &'a Meter) -> T) -> (T, u64) {
        let meter = Meter::new(limit);
        let reader = |bytes| Metered::new(bytes, &meter);
        let mut dwarf = match &self.shared {
            Some(shared) => self.sections.borrow_with_sup(shared, |b| reader(b)),
            None => self.sections.borrow(|b| reader(b)),
        };
        let result = work(&mut dwarf, &meter);
        (result, meter.spent())
    }
}

fn with_unit<T>(
    dwarf: &Dwarf<Metered<'_>>,
    unit: &UnitEntry,
    meter: &Meter,
    work: impl FnOnce(UnitRef<'_, Metered<'_>>, &Meter) -> T,
) -> Option<T> {
    let header = dwarf.debug_info.header_from_offset(unit.offset).ok()?;
    let parsed = open_unit(dwarf, header, meter).ok()?;
    Some(work(UnitRef::new(dwarf, &parsed), meter))
}

/// Line and column as debug information counts them, where 0 means none.
fn position(line: u32, column: u32) -> (Option<u32>, Option<u32>) {
    let some = |n: u32| (n != 0).then_some(n);
    (some(line), some(line).and(some(column)))
}
