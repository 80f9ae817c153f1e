//! The compilation units of a file and the addresses each one covers.
//!
//! `.debug_aranges` is believed where it speaks of a unit, since it costs nothing to read; for other units the root
//! entry is asked. Units that say nothing are tried last.
//! Ranges that start at 0 are dropped: linkers leave them behind for functions they threw away, and no code lies at the
//! address of the ELF header.

use super::functions::Functions;
use super::index::Index;
use super::lines::Lines;
use super::meter::{Meter, Metered};
use super::split::SplitUnit;
use crate::range_map::RangeMap;
use gimli::{DebugInfoOffset, Dwarf, Unit, UnitHeader, UnitType};
use std::sync::OnceLock;

/// All units, in the order of the section.
#[derive(Debug, Default)]
pub(crate) struct Units {
    pub list: Vec<UnitEntry>,
    ranges: RangeMap,
    /// Units without known addresses.
    elsewhere: Vec<u32>,
}

/// One unit; its tables are read when first needed.
#[derive(Debug)]
pub(crate) struct UnitEntry {
    pub offset: DebugInfoOffset<usize>,
    /// Its place in the list.
    pub number: u32,
    /// What it is a skeleton of.
    pub split: OnceLock<Option<SplitUnit>>,
    pub lines: OnceLock<Option<Lines>>,
    pub functions: OnceLock<Functions>,
    /// Its names, if they were asked for before those of the whole file.
    pub index: OnceLock<Index>,
}

impl Units {
    pub fn load(dwarf: &mut Dwarf<Metered<'_>>, meter: &Meter) -> Units {
        let mut units = Units::default();
        let mut with_code = Vec::new();
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            let Some(offset) = header.offset().as_debug_info_offset() else { continue };
            if matches!(header.type_(), UnitType::Compilation | UnitType::Skeleton(_)) {
                with_code.push((units.list.len() as u32, header));
            }
            let number = units.list.len() as u32;
            let (split, lines, functions, index) = Default::default();
            units.list.push(UnitEntry { offset, number, split, lines, functions, index });
        }
        let mut ranges = units.ranges_by_table(dwarf);
        let mut known = vec![false; units.list.len()];
        ranges.iter().for_each(|&(_, _, unit)| known[unit as usize] = true);
        with_code.retain(|(unit, _)| !known[*unit as usize]);
        // Units may share abbreviations, and only reading those once keeps the work linear.
        if with_code.len() > 1 {
            dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
        }
        for (unit, header) in with_code {
            let before = ranges.len();
            // A damaged unit costs its own addresses only.
            let _ = root_ranges(dwarf, header, meter, |begin, end| ranges.push((begin, end, unit)));
            if ranges.len() == before {
                units.elsewhere.push(unit);
            }
        }
        units.ranges = RangeMap::new(ranges);
        units
    }

    /// The units that may hold `at`, the likeliest first.
    pub fn at(&self, at: u64) -> impl Iterator<Item = &UnitEntry> {
        let known = self.ranges.at(at).map(|r| r.value);
        known.chain(self.elsewhere.iter().copied()).map(|i| &self.list[i as usize])
    }

    /// The unit that the entry at `offset` belongs to.
    pub fn containing(&self, offset: DebugInfoOffset<usize>) -> Option<&UnitEntry> {
        let after = self.list.partition_point(|u| u.offset.0 <= offset.0);
        self.list[..after].last()
    }

    fn ranges_by_table(&self, dwarf: &Dwarf<Metered<'_>>) -> Vec<(u64, u64, u32)> {
        let mut ranges = Vec::new();
        let mut sets = dwarf.debug_aranges.headers();
        while let Ok(Some(set)) = sets.next() {
            let Ok(unit) = self.list.binary_search_by_key(&set.debug_info_offset().0, |u| u.offset.0) else { continue };
            let mut entries = set.entries();
            while let Ok(Some(entry)) = entries.next() {
                let range = entry.range();
                if range.begin != 0 && range.begin < range.end {
                    ranges.push((range.begin, range.end, unit as u32));
                }
            }
        }
        ranges
    }
}

/// Parses a unit's root entry and line-table header, paying for the root's attributes.
pub(crate) fn open_unit<'a>(
    dwarf: &Dwarf<Metered<'a>>,
    header: UnitHeader<Metered<'a>>,
    meter: &Meter,
) -> gimli::Result<Unit<Metered<'a>>> {
    let abbreviations = dwarf.abbreviations(&header)?;
    let root = header.entries_raw(&abbreviations, None)?.read_abbreviation()?;
    meter.charge(root.map_or(0, |a| a.attributes().len() as u64))?;
    Unit::new_with_abbreviations(dwarf, header, abbreviations)
}

fn root_ranges<'a>(
    dwarf: &Dwarf<Metered<'a>>,
    header: UnitHeader<Metered<'a>>,
    meter: &Meter,
    mut each: impl FnMut(u64, u64),
) -> gimli::Result<()> {
    let unit = open_unit(dwarf, header, meter)?;
    let mut ranges = dwarf.unit_ranges(&unit)?;
    while let Some(r) = ranges.next()? {
        if r.begin != 0 && r.begin < r.end {
            each(r.begin, r.end);
        }
    }
    Ok(())
}
