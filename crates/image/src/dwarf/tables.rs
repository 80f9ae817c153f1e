//! All functions and all lines of a file at once, for analyses that look at the whole of it.
//!
//! Both go through the tables that single questions use, so the answers agree with theirs.
//! Guarantee: as for any other question, work linear in the size of the file; what would cost more stays without a name.

use super::functions::{LazyName, Name};
use super::lines::Row;
use super::units::UnitEntry;
use super::{DebugInfo, Meter, Metered};
use gimli::Dwarf;
use std::path::PathBuf;

/// A piece of a function with code of its own.
#[derive(Debug)]
pub(crate) struct Piece {
    pub begin: u64,
    pub end: u64,
    pub name: Option<Name>,
}

/// Adjoining rows of one unit, with the end of the last one.
pub(crate) struct Rows<'s> {
    pub rows: &'s [Row],
    pub end: u64,
    /// The unit's files, by their numbers.
    pub files: &'s [PathBuf],
    /// Which unit it is.
    pub unit: usize,
}

impl DebugInfo {
    /// Every piece of every function that has code, in no order.
    pub fn all_functions(&self) -> Vec<Piece> {
        let units = &self.units().list;
        for unit in units {
            self.functions(unit);
        }
        self.each(|dwarf, meter| {
            dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
            units.iter().for_each(|unit| self.name_all(dwarf, unit, meter));
        });
        let pieces = |unit: &UnitEntry| -> Vec<Piece> {
            let pieces = self.functions(unit).pieces();
            let piece = |(begin, end, name): (u64, u64, &LazyName)| {
                let name = name.found.get().cloned().flatten();
                Piece { begin, end, name }
            };
            pieces.map(piece).collect()
        };
        units.iter().flat_map(pieces).collect()
    }

    fn name_all(&self, dwarf: &Dwarf<Metered<'_>>, unit: &UnitEntry, meter: &Meter) {
        let mut wanted: Vec<&LazyName> = self.functions(unit).pieces().map(|(.., name)| name).collect();
        wanted.retain(|n| n.found.get().is_none());
        if !wanted.is_empty() {
            self.find_names(dwarf, unit, &wanted, meter);
        }
    }

    /// Every sequence of rows, in no order.
    pub fn all_rows(&self) -> impl Iterator<Item = Rows<'_>> {
        let units = self.units().list.iter().enumerate();
        units.filter_map(|(i, unit)| Some((i, self.lines(unit)?))).flat_map(|(unit, lines)| {
            lines.sequences().map(move |(rows, end)| Rows { rows, end, files: &lines.files, unit })
        })
    }
}
