//! Which addresses belong to which function, as far as hints and seen entries say.
//!
//! Hints may overlap, be empty or missing. The innermost extent, that with the greatest start, answers for an address.
//! What no hint covers is divided at the entries that were seen.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use crate::code::Memory;

/// What symbols, DWARF or unwind tables say about one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionHint {
    /// Its first address.
    pub start: u64,
    /// One past its last address; not above `start` if it is not known.
    pub end: u64,
    /// Its (mangled) name.
    pub name: Option<String>,
}

/// A slot that the dynamic linker fills with the address of a named function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// Image address of the slot (`.got`, `.got.plt`).
    pub slot: u64,
    /// The symbol's name.
    pub name: String,
}

/// How many extents that begin before an address are tried for one that contains it.
const NESTING: usize = 32;

#[derive(Clone, Debug, Default)]
pub struct Extent {
    pub end: u64,
    pub names: Vec<String>,
    /// A hint gave the end. Otherwise it is where the next extent or the section's end is.
    pub sized: bool,
}

impl Extent {
    /// A part that the compiler moved away from its function: gcc names it `f.cold` or `f.cold.0`.
    pub fn is_cold_part(&self) -> bool {
        self.names.iter().any(|n| cold_base(n).is_some())
    }
}

/// `f` of `f.cold` and `f.cold.3`.
pub fn cold_base(name: &str) -> Option<&str> {
    let (base, rest) = name.split_once(".cold")?;
    (rest.is_empty() || rest.starts_with('.')).then_some(base)
}

/// Everything about an image that is not code: where functions lie, what slots stand for.
#[derive(Debug, Default)]
pub struct Extents {
    by_start: BTreeMap<u64, Extent>,
    by_name: HashMap<String, Vec<u64>>,
    imports: HashMap<u64, String>,
}

impl Extents {
    pub fn new(memory: &Memory, hints: Vec<FunctionHint>) -> Extents {
        let mut extents = Extents::default();
        for hint in hints {
            let Some(code_end) = memory.code_end(hint.start) else { continue };
            let extent = extents.by_start.entry(hint.start).or_default();
            if hint.end > hint.start {
                extent.end = extent.end.max(hint.end.min(code_end));
                extent.sized = true;
            }
            if let Some(name) = hint.name {
                extents.by_name.entry(name.clone()).or_default().push(hint.start);
                extent.names.push(name);
            }
        }
        let unsized_starts: Vec<u64> = extents.by_start.iter().filter(|(_, e)| !e.sized).map(|(s, _)| *s).collect();
        for start in unsized_starts {
            let end = extents.next_boundary(memory, start);
            extents.by_start.entry(start).or_default().end = end;
        }
        for extent in extents.by_start.values_mut() {
            extent.names.sort();
            extent.names.dedup();
        }
        for starts in extents.by_name.values_mut() {
            starts.sort_unstable();
            starts.dedup();
        }
        extents
    }

    pub fn add_imports(&mut self, imports: Vec<Import>) {
        self.imports.extend(imports.into_iter().map(|i| (i.slot, i.name)));
    }

    pub fn import(&self, slot: u64) -> Option<&str> {
        self.imports.get(&slot).map(String::as_str)
    }

    /// The innermost extent that contains the address.
    pub fn find(&self, addr: u64) -> Option<(u64, &Extent)> {
        let before = self.by_start.range(..=addr).rev().take(NESTING);
        before.map(|(start, extent)| (*start, extent)).find(|(_, extent)| addr < extent.end)
    }

    /// The extent that begins there.
    pub fn at(&self, start: u64) -> Option<&Extent> {
        self.by_start.get(&start)
    }

    pub fn named(&self, name: &str) -> &[u64] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }

    pub fn starts(&self) -> impl Iterator<Item = u64> + '_ {
        self.by_start.keys().copied()
    }

    pub fn range(&self, start: u64) -> Option<Range<u64>> {
        self.at(start).map(|e| start..e.end)
    }

    /// A function begins at `addr`. Gives the start of an extent that this shortened, or `None` if nothing changed but
    /// the new extent. What lies inside a named function stays part of it.
    pub fn begin(&mut self, memory: &Memory, addr: u64) -> Begun {
        let Some(code_end) = memory.code_end(addr) else { return Begun::Known };
        let around = self.find(addr).map(|(start, e)| (start, e.end, e.sized, e.names.is_empty()));
        match around {
            Some((start, ..)) if start == addr => Begun::Known,
            Some((start, _, true, false)) => Begun::Inside(start),
            Some((_, end, true, true)) => {
                // Linkage tables have one entry in the unwind tables for many stubs.
                let sized = Extent { end, names: Vec::new(), sized: true };
                self.by_start.insert(addr, sized);
                Begun::New { shortened: None }
            }
            Some((start, end, false, _)) => {
                self.by_start.insert(addr, Extent { end, ..Extent::default() });
                if let Some(extent) = self.by_start.get_mut(&start) {
                    extent.end = addr;
                }
                Begun::New { shortened: Some(start) }
            }
            None => {
                let end = self.next_boundary(memory, addr).min(code_end);
                self.by_start.insert(addr, Extent { end, ..Extent::default() });
                Begun::New { shortened: None }
            }
        }
    }

    fn next_boundary(&self, memory: &Memory, start: u64) -> u64 {
        let code_end = memory.code_end(start).unwrap_or(start);
        let next = start.checked_add(1).and_then(|after| self.by_start.range(after..).next());
        next.map_or(code_end, |(next, _)| (*next).min(code_end))
    }
}

/// What a newly seen entry changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// Nothing: it was known, or is no code.
    Known,
    /// It lies inside the named function that starts here: a further way in.
    Inside(u64),
    /// There is a new extent, and another one may have become shorter.
    New { shortened: Option<u64> },
}
