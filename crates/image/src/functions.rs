//! All functions of an image, and its code, for analyses that look at the whole of it.
//!
//! Debug information is believed first, then symbols, then the entries through which libraries are called, then call
//! frame information, which stripped files keep: it tells where functions lie but not their names, so they are called
//! by their address, `sub_1149`.
//! Guarantees: the list is sorted and nothing in it overlaps; a function in several pieces is listed once for each.
//! May miss: functions that nothing describes (hand-written assembler in stripped files). A part that the compiler
//! moved away (`.cold`) is a function of its own in a stripped file.

use crate::address::ImageOffset;
use crate::demangle::{demangle, is_mangled};
use crate::dwarf::Name;
use crate::image::Image;
use crate::plt::{Callee, PltEntry};
use std::collections::BTreeMap;

/// One piece of adjoining code that belongs to a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionRange {
    pub start: ImageOffset,
    pub end: ImageOffset,
    /// As it reads; `name@plt` for code that only calls the function `name` of a library.
    pub name: String,
    pub known_by: KnownBy,
}

/// What says that a function is there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum KnownBy {
    DebugInfo,
    Symbol,
    /// A relocation of the word that the code jumps through.
    Plt,
    /// Call frame information, which has no names: the name is made from the address.
    CallFrame,
}

/// Adjoining bytes of code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodeSection {
    pub start: ImageOffset,
    /// `.text`, for one; `None` for the code of a file without section headers.
    pub name: Option<String>,
    pub bytes: Vec<u8>,
}

impl Image {
    /// All functions, by address. Found when first asked for.
    pub fn functions(&self) -> &[FunctionRange] {
        self.functions.get_or_init(|| self.find_functions())
    }

    /// The function that holds `at`.
    pub fn function_at(&self, at: ImageOffset) -> Option<&FunctionRange> {
        let functions = self.functions();
        functions[..functions.partition_point(|f| f.start <= at)].last().filter(|f| at < f.end)
    }

    /// The executable sections (or segments, where there are no sections) with their bytes, by address.
    pub fn code(&self) -> Vec<CodeSection> {
        let section = |(start, name, bytes)| CodeSection { start: ImageOffset(start), name, bytes };
        self.elf().code().into_iter().map(section).collect()
    }

    fn find_functions(&self) -> Vec<FunctionRange> {
        let symbols: Vec<_> = self.symbols().functions().collect();
        let best = |start: u64| {
            let first = symbols.partition_point(|(begin, ..)| *begin < start);
            let named = symbols[first..].iter().take_while(|(begin, ..)| *begin == start);
            named.map(|(.., symbol)| symbol.name.as_ref()).next()
        };
        // What claims to be a function outside of the code, or to reach beyond it, is damage.
        let inside = |(begin, end, name, by): (u64, u64, String, KnownBy)| {
            let code = self.elf().code_around(ImageOffset(begin))?;
            Some((begin, end.min(code.end), name, by))
        };
        let mut all = Disjoint::default();
        let pieces = self.debug().map(|d| d.all_functions()).unwrap_or_default();
        all.add(pieces.into_iter().filter_map(|piece| {
            let name = machine_name(piece.name, best(piece.begin))?;
            inside((piece.begin, piece.end, name, KnownBy::DebugInfo))
        }));
        let symbol =
            |(begin, end, s): &(u64, u64, crate::Symbol<'_>)| (*begin, *end, demangle(&s.name), KnownBy::Symbol);
        all.add(symbols.iter().map(symbol).filter_map(inside));
        all.add(self.plt().iter().map(|e| (e.start, e.end, self.plt_name(e), KnownBy::Plt)));
        let unnamed = |(begin, end)| (begin, end, unnamed(begin), KnownBy::CallFrame);
        all.add(self.cfi().ranges().map(unnamed).filter_map(inside));
        let range = |(start, (end, name, known_by)): (u64, (u64, String, KnownBy))| FunctionRange {
            start: ImageOffset(start),
            end: ImageOffset(end),
            name,
            known_by,
        };
        all.0.into_iter().map(range).collect()
    }

    /// `puts@plt`.
    pub(crate) fn plt_name(&self, entry: &PltEntry) -> String {
        match &entry.calls {
            Callee::Named(name) => format!("{}@plt", demangle(name)),
            Callee::ChosenBy(at) => match self.symbols().covering(ImageOffset(*at)) {
                Some((symbol, 0)) => format!("{}@plt", demangle(&symbol.name)),
                _ => format!("{}@plt", unnamed(*at)),
            },
        }
    }

    /// The entry for a library's function that holds `at`.
    pub(crate) fn plt_at(&self, at: ImageOffset) -> Option<&PltEntry> {
        let entries = self.plt();
        entries[..entries.partition_point(|e| e.start <= at.0)].last().filter(|e| at.0 < e.end)
    }
}

/// What people and tools call a function that has only an address.
pub(crate) fn unnamed(start: u64) -> String {
    format!("sub_{start:x}")
}

/// The name of a machine function by what debug information and the symbol at its start say.
fn machine_name(known: Option<Name>, symbol: Option<&str>) -> Option<String> {
    let readable = symbol.map(|s| (demangle(s), is_mangled(s)));
    match (known, readable) {
        // The compiler may leave out the linker's name (of a lambda, for one), which says more.
        (Some(known), Some((readable, true))) if !known.complete && readable.contains(&known.text) => Some(readable),
        (Some(known), _) => Some(known.text),
        (None, readable) => readable.map(|(readable, _)| readable),
    }
}

/// Ranges by their start, none of which overlap.
#[derive(Default)]
struct Disjoint(BTreeMap<u64, (u64, String, KnownBy)>);

impl Disjoint {
    /// Adds what is not there yet: a range that begins inside of another is left out, and one that reaches into another
    /// ends there. Of ranges that are added together the one that begins last counts, as for nested symbols.
    fn add(&mut self, ranges: impl Iterator<Item = (u64, u64, String, KnownBy)>) {
        let covered = |at: u64| self.0.range(..=at).next_back().is_some_and(|(_, (end, ..))| at < *end);
        let mut fresh: Vec<_> = ranges.filter(|(begin, end, ..)| begin < end && !covered(*begin)).collect();
        fresh.sort_by_key(|(begin, ..)| *begin);
        fresh.dedup_by_key(|(begin, ..)| *begin);
        let ends: Vec<u64> = fresh.iter().skip(1).map(|(begin, ..)| *begin).chain([u64::MAX]).collect();
        for ((begin, end, name, by), next) in fresh.into_iter().zip(ends) {
            let known = self.0.range(begin..).next().map_or(u64::MAX, |(start, _)| *start);
            self.0.insert(begin, (end.min(next).min(known), name, by));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_better_is_kept() {
        let mut all = Disjoint::default();
        let range = |begin, end, name: &str, by| (begin, end, name.to_string(), by);
        all.add([range(10, 20, "a", KnownBy::DebugInfo), range(30, 40, "b", KnownBy::DebugInfo)].into_iter());
        all.add([range(0, 15, "c", KnownBy::Symbol), range(12, 50, "d", KnownBy::Symbol)].into_iter());
        all.add([range(20, 60, "e", KnownBy::CallFrame), range(44, 48, "f", KnownBy::CallFrame)].into_iter());
        let found: Vec<(u64, u64, &str)> = all.0.iter().map(|(s, (e, n, _))| (*s, *e, n.as_str())).collect();
        assert_eq!(found, [(0, 10, "c"), (10, 20, "a"), (20, 30, "e"), (30, 40, "b"), (44, 48, "f")]);
    }

    #[test]
    fn the_linkers_name_counts_where_it_says_more() {
        let name = |text: &str, complete| Some(Name { text: text.to_string(), complete });
        for (known, symbol, expected) in [
            (name("get", false), Some("_ZN5space3getEv"), Some("space::get()")),
            (name("other", false), Some("_ZN5space3getEv"), Some("other")),
            (name("space::get()", true), Some("alias"), Some("space::get()")),
            (None, Some("main"), Some("main")),
            (None, None, None),
        ] {
            assert_eq!(machine_name(known, symbol).as_deref(), expected);
        }
    }
}
