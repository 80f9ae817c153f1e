//! Names of a file's variables, functions and types that can be named from anywhere, and the entries they stand for;
//! and the variables with a fixed address, by that address.
//!
//! Kept are hashes, not names: one entry costs a few words however long its name is, and whoever asks compares the
//! names of the few that match. One pass over all units, without recursion.
//! May miss: types of version 4 in `.dwo` files that have units of their own, by name; and types declared inside of
//! functions are found from everywhere. Where the compiler left a table of names (`accelerated`), only the units that it
//! names are passed over; `.gdb_index` is not read.

use super::DebugInfo;
use super::meter::{Meter, Metered};
use super::split::Part;
use super::units::{UnitEntry, open_unit};
use gimli::{AttributeValue, DwTag, Dwarf, Operation, Unit, UnitHeader};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Named {
    Variable,
    Function,
    Type,
    /// The entry is that of the enumeration.
    Enumerator,
}

/// All such names of one file.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Sorted by hash.
    entries: Vec<Entry>,
    /// Variables that lie at one address always, sorted by it; also those inside of functions.
    placed: Vec<Placed>,
    /// The units, by the numbers that the entries have.
    homes: Vec<Home>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Placed {
    address: u64,
    unit: u32,
    entry: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Entry {
    hash: u64,
    what: Named,
    unit: u32,
    entry: u32,
}

/// An entry that may be what was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Candidate {
    pub home: Home,
    pub entry: usize,
}

/// Where a unit stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Home {
    pub part: Part,
    /// Is `unit` the number of a unit of types, rather than an offset?
    pub types: bool,
    /// The unit's offset in its section, or its number.
    pub unit: usize,
}

impl DebugInfo {
    pub(super) fn load_index<'a>(&'a self, dwarf: &Dwarf<Metered<'a>>, meter: &'a Meter) -> Index {
        let mut index = Index::default();
        for unit in &self.units().list {
            self.add_unit(&mut index, dwarf, unit, meter);
        }
        for (number, header) in type_units(dwarf).into_iter().enumerate() {
            let home = Home { part: Part::Own, types: true, unit: number };
            // Those of version 5 stand among the other units.
            if let (None, Ok(unit)) = (header.offset().as_debug_info_offset(), open_unit(dwarf, header, meter)) {
                index.add(dwarf, &unit, home, meter);
            }
        }
        let shared = dwarf.sup.clone();
        let mut headers = shared.as_ref().map(|shared| (shared, shared.units()));
        while let Some((shared, Ok(Some(header)))) = headers.as_mut().map(|(shared, h)| (shared, h.next())) {
            let Some(offset) = header.offset().as_debug_info_offset() else { continue };
            if let Ok(unit) = open_unit(shared, header, meter) {
                index.add(shared, &unit, Home { part: Part::Shared, types: false, unit: offset.0 }, meter);
            }
        }
        index.sort();
        index
    }

    /// The names of one unit, which has been opened.
    pub(super) fn load_unit_index<'a>(
        &'a self,
        dwarf: &Dwarf<Metered<'a>>,
        unit: &'a UnitEntry,
        meter: &'a Meter,
    ) -> Index {
        let mut index = Index::default();
        self.add_unit(&mut index, dwarf, unit, meter);
        index.sort();
        index
    }

    fn add_unit<'a>(&'a self, index: &mut Index, dwarf: &Dwarf<Metered<'a>>, unit: &'a UnitEntry, meter: &'a Meter) {
        self.with_entries(dwarf, unit, meter, |entries, meter| {
            let split = unit.split.get().and_then(Option::as_ref);
            let (part, offset) = split.map_or((Part::Own, unit.offset.0), |s| (Part::Split(unit.number), s.offset));
            index.add(entries.dwarf, entries.unit, Home { part, types: false, unit: offset }, meter);
        });
    }
}

/// The headers of all units that hold one type each.
pub(crate) fn type_units<'a>(dwarf: &Dwarf<Metered<'a>>) -> Vec<UnitHeader<Metered<'a>>> {
    let is_type = |h: &UnitHeader<Metered<'a>>| {
        matches!(h.type_(), gimli::UnitType::Type { .. } | gimli::UnitType::SplitType { .. })
    };
    let (mut info, mut types) = (dwarf.units(), dwarf.type_units());
    let info = std::iter::from_fn(|| info.next().ok().flatten());
    let types = std::iter::from_fn(|| types.next().ok().flatten());
    info.chain(types).filter(is_type).collect()
}

impl Index {
    /// The variables that begin at `at` or before, the nearest first.
    pub fn placed_before(&self, at: u64) -> impl Iterator<Item = (u64, Candidate)> {
        let before = &self.placed[..self.placed.partition_point(|p| p.address <= at)];
        before.iter().rev().filter_map(|p| {
            let home = *self.homes.get(p.unit as usize)?;
            Some((p.address, Candidate { home, entry: p.entry as usize }))
        })
    }

    /// Entries whose name is probably `name`.
    pub fn candidates(&self, name: &str, what: Named) -> Vec<Candidate> {
        let hash = hash(name.as_bytes());
        let first = self.entries.partition_point(|e| (e.hash, e.what) < (hash, what));
        let matching = self.entries[first..].iter().take_while(|e| (e.hash, e.what) == (hash, what));
        let candidate = |e: &Entry| {
            let home = *self.homes.get(e.unit as usize)?;
            Some(Candidate { home, entry: e.entry as usize })
        };
        matching.filter_map(candidate).collect()
    }

    fn sort(&mut self) {
        self.entries.sort_unstable();
        self.placed.sort_unstable();
    }

    fn add(&mut self, dwarf: &Dwarf<Metered<'_>>, unit: &Unit<Metered<'_>>, home: Home, meter: &Meter) {
        let Ok(number) = u32::try_from(self.homes.len()) else { return };
        self.homes.push(home);
        // What was read before damage is still good.
        let _ = self.walk(dwarf, unit, number, meter);
    }

    fn walk(
        &mut self,
        dwarf: &Dwarf<Metered<'_>>,
        unit: &Unit<Metered<'_>>,
        number: u32,
        meter: &Meter,
    ) -> gimli::Result<()> {
        // A definition outside of its class or namespace has its name from the declaration, which stands before it.
        let mut declared: HashMap<usize, u64> = HashMap::new();
        // The depth from which on everything is inside of a function.
        let mut function: Option<isize> = None;
        // An enumerator stands for the enumeration around it, which comes right before.
        let mut enumeration = 0;
        let mut entries = unit.entries_raw(None)?;
        while !entries.is_empty() {
            let offset = entries.next_offset().0;
            let depth = entries.next_depth();
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            meter.charge(abbreviation.attributes().len() as u64)?;
            if function.is_some_and(|f| depth <= f) {
                function = None;
            }
            let tag = abbreviation.tag();
            let is_member = tag == gimli::DW_TAG_member;
            let what = named(tag).filter(|w| function.is_none() || matches!(w, Named::Type | Named::Enumerator));
            if tag == gimli::DW_TAG_enumeration_type {
                enumeration = offset;
            }
            if tag == gimli::DW_TAG_subprogram && function.is_none() && abbreviation.has_children() {
                function = Some(depth);
            }
            let is_variable = tag == gimli::DW_TAG_variable;
            if what.is_none() && !is_member && !is_variable {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            let (mut name, mut declaration, mut specification, mut address) = (None, false, None, None);
            for &spec in abbreviation.attributes() {
                let attribute = entries.read_attribute(spec)?;
                match attribute.name() {
                    gimli::DW_AT_name => name = dwarf.attr_string(unit, attribute.value()).ok(),
                    gimli::DW_AT_declaration => declaration = true,
                    gimli::DW_AT_specification => specification = Some(attribute.value()),
                    gimli::DW_AT_location if is_variable => address = fixed_address(dwarf, unit, attribute.value()),
                    _ => {}
                }
            }
            if let (Some(address @ 1..), Ok(entry)) = (address, u32::try_from(offset)) {
                self.placed.push(Placed { address, unit: number, entry });
            }
            let specified = match specification {
                Some(AttributeValue::UnitRef(to)) => declared.get(&to.0).copied(),
                _ => None,
            };
            let Some(hash) = name.map(|n| hash(n.rest())).or(specified) else { continue };
            if is_member || declaration {
                declared.insert(offset, hash);
                continue;
            }
            let offset = if what == Some(Named::Enumerator) { enumeration } else { offset };
            if let (Some(what), Ok(entry)) = (what, u32::try_from(offset)) {
                self.entries.push(Entry { hash, what, unit: number, entry });
            }
        }
        Ok(())
    }
}

fn named(tag: DwTag) -> Option<Named> {
    match tag {
        gimli::DW_TAG_variable => Some(Named::Variable),
        gimli::DW_TAG_subprogram => Some(Named::Function),
        gimli::DW_TAG_enumerator => Some(Named::Enumerator),
        gimli::DW_TAG_base_type
        | gimli::DW_TAG_structure_type
        | gimli::DW_TAG_class_type
        | gimli::DW_TAG_union_type
        | gimli::DW_TAG_enumeration_type
        | gimli::DW_TAG_typedef => Some(Named::Type),
        _ => None,
    }
}

/// The address that a location always is.
fn fixed_address<'a>(
    dwarf: &Dwarf<Metered<'a>>,
    unit: &Unit<Metered<'a>>,
    location: AttributeValue<Metered<'a>>,
) -> Option<u64> {
    let mut operations = location.exprloc_value()?.operations(unit.encoding());
    let address = match operations.next().ok()?? {
        Operation::Address { address } => address,
        Operation::AddressIndex { index } => dwarf.address(unit, index).ok()?,
        _ => return None,
    };
    operations.next().ok()?.is_none().then_some(address)
}

/// Names are chosen by whoever made the file, so an attacker may make many collide; then one lookup is linear.
fn hash(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}
