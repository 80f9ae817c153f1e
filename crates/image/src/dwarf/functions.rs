//! The functions of one unit: where each lies, and what was inlined into it where.
//!
//! One pass over the unit's entries, without recursion, so nesting costs no stack.
//! Names are left alone: most are never asked for, and finding one may lead into other units.
//! May miss: functions that exist only inlined are found at their call sites, never by an address of their own.
//! Source: DWARF 5, sections 3.3.1 and 3.3.8.

use super::meter::{Meter, Metered};
use crate::range_map::RangeMap;
use gimli::{AttributeValue, EntriesRaw, RangeListsOffset, UnitOffset, UnitRef};
use std::sync::OnceLock;

#[derive(Debug, Default)]
pub(crate) struct Functions {
    list: Vec<FunctionEntry>,
    by_address: RangeMap,
}

#[derive(Debug)]
pub(crate) struct FunctionEntry {
    pub name: LazyName,
    inlined: Vec<Inlined>,
}

/// One call that the compiler replaced by the function's body.
#[derive(Debug)]
pub(crate) struct Inlined {
    pub name: LazyName,
    ranges: Vec<(u64, u64)>,
    /// How many inlined calls enclose this one.
    depth: u32,
    pub call_file: u64,
    pub call_line: u32,
    pub call_column: u32,
}

/// The entry that leads to a name, and the name once it was looked up.
#[derive(Debug)]
pub(crate) struct LazyName {
    pub entry: UnitOffset<usize>,
    pub found: OnceLock<Option<Name>>,
}

/// A name made readable.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub text: String,
    /// Was it the linker's name, complete with namespaces and parameters?
    pub complete: bool,
}

impl LazyName {
    fn at(entry: UnitOffset<usize>) -> LazyName {
        LazyName { entry, found: OnceLock::new() }
    }
}

/// An open entry during the pass: what entries nested in it belong to.
#[derive(Clone, Copy)]
struct Scope {
    depth: isize,
    function: Option<usize>,
    inlined: u32,
}

impl Functions {
    pub fn load(unit: UnitRef<'_, Metered<'_>>, meter: &Meter) -> Functions {
        let mut functions = Functions::default();
        let mut ranges = Vec::new();
        // What was read before damage is still good.
        let _ = functions.walk(unit, meter, &mut ranges);
        functions.by_address = RangeMap::new(ranges);
        functions
    }

    /// The function at `at` and the start of the piece of it that holds `at`.
    pub fn at(&self, at: u64) -> Option<(&FunctionEntry, u64)> {
        let range = self.by_address.at(at).next()?;
        Some((&self.list[range.value as usize], range.begin))
    }

    /// Every piece of code as `(begin, end, name of its function)`.
    pub fn pieces(&self) -> impl Iterator<Item = (u64, u64, &LazyName)> {
        self.by_address.entries().map(|e| (e.begin, e.end, &self.list[e.value as usize].name))
    }

    fn walk(
        &mut self,
        unit: UnitRef<'_, Metered<'_>>,
        meter: &Meter,
        ranges: &mut Vec<(u64, u64, u32)>,
    ) -> gimli::Result<()> {
        let mut scopes: Vec<Scope> = Vec::new();
        let mut entries = unit.entries_raw(None)?;
        while !entries.is_empty() {
            let entry = entries.next_offset();
            let depth = entries.next_depth();
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            meter.charge(abbreviation.attributes().len() as u64)?;
            while scopes.last().is_some_and(|s| s.depth >= depth) {
                scopes.pop();
            }
            match abbreviation.tag() {
                gimli::DW_TAG_subprogram => {
                    let pieces = Attributes::read(unit, &mut entries, abbreviation)?.ranges(unit)?;
                    let function = (!pieces.is_empty()).then_some(self.list.len());
                    if function.is_some() {
                        ranges.extend(pieces.iter().map(|&(begin, end)| (begin, end, self.list.len() as u32)));
                        self.list.push(FunctionEntry { name: LazyName::at(entry), inlined: Vec::new() });
                    }
                    scopes.push(Scope { depth, function, inlined: 0 });
                }
                gimli::DW_TAG_inlined_subroutine => {
                    let attributes = Attributes::read(unit, &mut entries, abbreviation)?;
                    let Some(&Scope { function: Some(function), inlined, .. }) = scopes.last() else { continue };
                    let ranges = attributes.ranges(unit)?;
                    // An inlined call without code is as if it were not there.
                    if ranges.is_empty() {
                        continue;
                    }
                    scopes.push(Scope { depth, function: Some(function), inlined: inlined + 1 });
                    self.list[function].inlined.push(Inlined {
                        name: LazyName::at(entry),
                        ranges,
                        depth: inlined,
                        call_file: attributes.call_file,
                        call_line: attributes.call_line,
                        call_column: attributes.call_column,
                    });
                }
                _ => entries.skip_attributes(abbreviation.attributes())?,
            }
        }
        Ok(())
    }
}

impl FunctionEntry {
    /// The inlined calls around `at`, the outermost first.
    pub fn inlined_at(&self, at: u64) -> Vec<&Inlined> {
        let mut chain: Vec<&Inlined> = Vec::new();
        // In the order of the tree a call comes right after the calls that enclose it, so those are on the chain.
        for i in &self.inlined {
            if i.depth as usize == chain.len() && i.ranges.iter().any(|&(begin, end)| begin <= at && at < end) {
                chain.push(i);
            }
        }
        chain
    }
}

#[derive(Default)]
struct Attributes {
    low: Option<u64>,
    high: Option<u64>,
    size: Option<u64>,
    list: Option<RangeListsOffset<usize>>,
    call_file: u64,
    call_line: u32,
    call_column: u32,
}

impl Attributes {
    fn read<'a>(
        unit: UnitRef<'_, Metered<'a>>,
        entries: &mut EntriesRaw<'_, '_, Metered<'a>>,
        abbreviation: &gimli::Abbreviation,
    ) -> gimli::Result<Attributes> {
        let mut a = Attributes::default();
        for &spec in abbreviation.attributes() {
            let attribute = entries.read_attribute(spec)?;
            let number = || attribute.udata_value().unwrap_or(0);
            match attribute.name() {
                gimli::DW_AT_low_pc => a.low = unit.attr_address(attribute.value()).unwrap_or(None),
                gimli::DW_AT_high_pc => match attribute.value() {
                    AttributeValue::Udata(size) => a.size = Some(size),
                    value => a.high = unit.attr_address(value).unwrap_or(None),
                },
                gimli::DW_AT_ranges => a.list = unit.attr_ranges_offset(attribute.value()).unwrap_or(None),
                gimli::DW_AT_call_file => match attribute.value() {
                    AttributeValue::FileIndex(file) => a.call_file = file,
                    _ => a.call_file = number(),
                },
                gimli::DW_AT_call_line => a.call_line = u32::try_from(number()).unwrap_or(0),
                gimli::DW_AT_call_column => a.call_column = u32::try_from(number()).unwrap_or(0),
                _ => {}
            }
        }
        Ok(a)
    }

    fn ranges(&self, unit: UnitRef<'_, Metered<'_>>) -> gimli::Result<Vec<(u64, u64)>> {
        let mut ranges = Vec::new();
        let mut add = |begin: u64, end: u64| {
            if begin != 0 && begin < end {
                ranges.push((begin, end));
            }
        };
        if let Some(list) = self.list {
            let mut list = unit.ranges(list)?;
            while let Some(r) = list.next()? {
                add(r.begin, r.end);
            }
        } else if let (Some(low), Some(high)) = (self.low, self.high) {
            add(low, high);
        } else if let (Some(low), Some(size)) = (self.low, self.size) {
            add(low, low.wrapping_add(size));
        }
        Ok(ranges)
    }
}
