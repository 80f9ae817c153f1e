//! `.debug_names`: which units have something of a name, as the compiler says.
//!
//! ```text
//! name ─ hash ─▶ bucket ─▶ names with that hash ─ equal? ─▶ entries ─▶ units that they are in
//! ```
//! Only units are taken from the table, no entries: the units it names are read as all others would be (`index`), so what is
//! found in them is what is found without a table. A table is used if its lists of units cover the file's; whoever finds
//! nothing through it looks through the whole file.
//!
//! Guarantees: all reads are bounded by the section and paid from a meter; wrong offsets, counts and chains end the search.
//! May miss: units with the same name that a stale table, or one that was made to mislead, does not tell.
//!
//! Source: DWARF 5, section 6.1.1.

use super::meter::Metered;
use gimli::{Error, Format, Reader, ReaderOffsetId, Result};

const VERSION: u16 = 5;
const DW_IDX_COMPILE_UNIT: u64 = 1;
const DW_IDX_TYPE_UNIT: u64 = 2;

/// One table; linkers put those of all units one behind the other, or make one of them.
#[derive(Clone)]
struct Table<'a> {
    format: Format,
    /// Offsets of units in `.debug_info`: those with code, then those of types.
    compile_units: u32,
    type_units: u32,
    names: u32,
    buckets: u32,
    units_list: Metered<'a>,
    bucket_list: Metered<'a>,
    hash_list: Metered<'a>,
    string_list: Metered<'a>,
    entry_list: Metered<'a>,
    abbreviations: Metered<'a>,
    entries: Metered<'a>,
}

/// The offsets of all units that the tables list, sorted; nothing if they cannot be used.
pub(super) fn listed_units(section: Metered<'_>) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for table in tables(section)? {
        for n in 0..table.compile_units.checked_add(table.type_units)? {
            all.push(table.unit(n).ok()?);
        }
    }
    all.sort_unstable();
    Some(all)
}

/// The offsets of the units that have something called `name`, sorted; nothing if the tables are damaged where they were read.
pub(super) fn units_with(section: Metered<'_>, strings: Metered<'_>, name: &str) -> Option<Vec<usize>> {
    let mut units = Vec::new();
    for table in tables(section)? {
        table.find(&strings, name.as_bytes(), &mut units).ok()?;
    }
    units.sort_unstable();
    units.dedup();
    Some(units)
}

/// All tables; nothing if one of them is of a kind that is not read.
fn tables(mut section: Metered<'_>) -> Option<Vec<Table<'_>>> {
    let mut tables = Vec::new();
    while !section.is_empty() {
        tables.push(Table::read(&mut section).ok()??);
    }
    Some(tables)
}

fn damaged() -> Error {
    Error::UnexpectedEof(ReaderOffsetId(0))
}

/// The `n`th of numbers of so many bytes each.
fn nth<'a>(list: &Metered<'a>, n: u32, size: u8) -> Result<Metered<'a>> {
    let mut list = *list;
    list.skip((n as usize).checked_mul(size.into()).ok_or_else(damaged)?)?;
    Ok(list)
}

fn lists<'a>(rest: &mut Metered<'a>, n: u32, size: u8) -> Result<Metered<'a>> {
    rest.split((n as usize).checked_mul(size.into()).ok_or_else(damaged)?)
}

impl<'a> Table<'a> {
    /// `None` if it is of another version, or of types that are in other files.
    fn read(section: &mut Metered<'a>) -> Result<Option<Table<'a>>> {
        let (length, format) = section.read_initial_length()?;
        let mut rest = section.split(length)?;
        let version = rest.read_u16()?;
        rest.skip(2)?;
        let [compile_units, type_units, foreign, buckets, names, abbreviations_size, augmentation] = {
            let mut counts = [0; 7];
            for count in &mut counts {
                *count = rest.read_u32()?;
            }
            counts
        };
        if version != VERSION || foreign != 0 {
            return Ok(None);
        }
        rest.skip((augmentation as usize).checked_next_multiple_of(4).ok_or_else(damaged)?)?;
        let word = format.word_size();
        let units = compile_units.checked_add(type_units).ok_or_else(damaged)?;
        Ok(Some(Table {
            format,
            compile_units,
            type_units,
            names,
            buckets,
            units_list: lists(&mut rest, units, word)?,
            bucket_list: lists(&mut rest, buckets, 4)?,
            hash_list: lists(&mut rest, if buckets == 0 { 0 } else { names }, 4)?,
            string_list: lists(&mut rest, names, word)?,
            entry_list: lists(&mut rest, names, word)?,
            abbreviations: rest.split(abbreviations_size as usize)?,
            entries: rest,
        }))
    }

    fn unit(&self, n: u32) -> Result<usize> {
        nth(&self.units_list, n, self.format.word_size())?.read_offset(self.format)
    }

    /// Adds the units that have something of this name.
    fn find(&self, strings: &Metered<'a>, name: &[u8], units: &mut Vec<usize>) -> Result<()> {
        // Without hashes every name is compared.
        if self.buckets == 0 {
            return (0..self.names).try_for_each(|n| self.compare(n, strings, name, units));
        }
        let hash = hash(name);
        let bucket = hash % self.buckets;
        let Some(first) = nth(&self.bucket_list, bucket, 4)?.read_u32()?.checked_sub(1) else { return Ok(()) };
        for n in first..self.names {
            let other = nth(&self.hash_list, n, 4)?.read_u32()?;
            if other % self.buckets != bucket {
                break;
            }
            if other == hash {
                self.compare(n, strings, name, units)?;
            }
        }
        Ok(())
    }

    /// Adds the units of the `n`th name if that is the one.
    fn compare(&self, n: u32, strings: &Metered<'a>, name: &[u8], units: &mut Vec<usize>) -> Result<()> {
        let word = self.format.word_size();
        let mut text = *strings;
        text.skip(nth(&self.string_list, n, word)?.read_offset(self.format)?)?;
        if text.len() <= name.len() {
            return Ok(());
        }
        let theirs = text.split(name.len())?;
        if theirs.rest() != name || text.read_u8()? != 0 {
            return Ok(());
        }
        let mut entries = self.entries;
        entries.skip(nth(&self.entry_list, n, word)?.read_offset(self.format)?)?;
        while let code @ 1.. = entries.read_uleb128()? {
            units.extend(self.unit_of(&mut entries, code)?);
        }
        Ok(())
    }

    /// Reads the rest of an entry; gives its unit.
    fn unit_of(&self, entries: &mut Metered<'a>, code: u64) -> Result<Option<usize>> {
        let mut attributes = self.abbreviation(code)?;
        let (mut compile_unit, mut type_unit) = (None, None);
        loop {
            let (index, form) = (attributes.read_uleb128()?, attributes.read_uleb128()?);
            if (index, form) == (0, 0) {
                break;
            }
            let value = self.value(entries, form)?;
            match index {
                DW_IDX_COMPILE_UNIT => compile_unit = Some(value),
                DW_IDX_TYPE_UNIT => type_unit = Some(value),
                _ => {}
            }
        }
        let number = match (compile_unit, type_unit) {
            (_, Some(n)) => n.checked_add(self.compile_units.into()).filter(|_| n < self.type_units.into()),
            (Some(n), None) => Some(n).filter(|n| *n < self.compile_units.into()),
            // A table of one unit does not say which.
            (None, None) => Some(0).filter(|_| self.compile_units == 1),
        };
        let number = number.and_then(|n| u32::try_from(n).ok()).ok_or_else(damaged)?;
        self.unit(number).map(Some)
    }

    /// The attributes of entries of this kind.
    fn abbreviation(&self, wanted: u64) -> Result<Metered<'a>> {
        let mut list = self.abbreviations;
        loop {
            let code = list.read_uleb128()?;
            if code == 0 {
                return Err(damaged());
            }
            let _tag = list.read_uleb128()?;
            if code == wanted {
                return Ok(list);
            }
            while (list.read_uleb128()?, list.read_uleb128()?) != (0, 0) {}
        }
    }

    fn value(&self, entries: &mut Metered<'a>, form: u64) -> Result<u64> {
        let form = u16::try_from(form).map(gimli::DwForm).map_err(|_| damaged())?;
        match form {
            gimli::DW_FORM_flag_present => Ok(1),
            gimli::DW_FORM_data1 | gimli::DW_FORM_ref1 | gimli::DW_FORM_flag => entries.read_u8().map(u64::from),
            gimli::DW_FORM_data2 | gimli::DW_FORM_ref2 => entries.read_u16().map(u64::from),
            gimli::DW_FORM_data4 | gimli::DW_FORM_ref4 => entries.read_u32().map(u64::from),
            gimli::DW_FORM_data8 | gimli::DW_FORM_ref8 | gimli::DW_FORM_ref_sig8 => entries.read_u64(),
            gimli::DW_FORM_udata | gimli::DW_FORM_ref_udata => entries.read_uleb128(),
            gimli::DW_FORM_sec_offset => entries.read_offset(self.format).map(|n| n as u64),
            _ => Err(damaged()),
        }
    }
}

/// Bernstein's hash of a name without regard to case. Tables fold all of Unicode; names with other letters than those of
/// ASCII are not found through them.
fn hash(name: &[u8]) -> u32 {
    name.iter().fold(5381u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(byte.to_ascii_lowercase().into()))
}

#[cfg(test)]
mod tests {
    use super::super::meter::Meter;
    use super::*;

    const STRINGS: &[u8] = b"\0count\0Point\0main\0";
    const NAMES: [(&str, u32, &[u8]); 3] = [("count", 1, &[0, 1]), ("Point", 7, &[1]), ("main", 13, &[0])];

    /// A table of two units, at 0x10 and 0x40, as compilers lay it out.
    fn table(buckets: u32) -> Vec<u8> {
        let mut names = NAMES;
        names.sort_by_key(|(name, ..)| hash(name.as_bytes()) % buckets.max(1));
        let (mut entries, mut begins) = (Vec::new(), Vec::new());
        for (_, _, units) in names {
            begins.push(entries.len() as u32);
            // Kind 1: unit in one byte, place of the entry in four, which is not looked at.
            units.iter().for_each(|unit| entries.extend([1, *unit, 0xff, 0xff, 0xff, 0xff]));
            entries.push(0);
        }
        let abbreviations = [1, 0x34, 1, 0x0b, 3, 0x13, 0, 0, 0];
        let mut body = vec![5, 0, 0, 0];
        let mut put = |numbers: &[u32]| numbers.iter().for_each(|n| body.extend(n.to_le_bytes()));
        put(&[2, 0, 0, buckets, 3, abbreviations.len() as u32, 0, 0x10, 0x40]);
        let hashes = names.map(|(name, ..)| hash(name.as_bytes()));
        for bucket in 0..buckets {
            put(&[hashes.iter().position(|h| h % buckets == bucket).map_or(0, |n| n as u32 + 1)]);
        }
        put(if buckets == 0 { &[] } else { &hashes });
        put(&names.map(|(_, at, _)| at));
        put(&begins);
        body.extend(abbreviations);
        body.extend(entries);
        [&(body.len() as u32).to_le_bytes()[..], &body].concat()
    }

    fn find(section: &[u8], name: &str) -> Option<Vec<usize>> {
        let meter = Meter::new(1 << 16);
        units_with(Metered::new(section, &meter), Metered::new(STRINGS, &meter), name)
    }

    fn list(section: &[u8]) -> Option<Vec<usize>> {
        listed_units(Metered::new(section, &Meter::new(1 << 16)))
    }

    #[test]
    fn names_lead_to_their_units() {
        for buckets in [0, 1, 2, 5] {
            let table = table(buckets);
            assert_eq!(list(&table), Some(vec![0x10, 0x40]));
            assert_eq!(find(&table, "count"), Some(vec![0x10, 0x40]), "{buckets}");
            assert_eq!(find(&table, "Point"), Some(vec![0x40]), "{buckets}");
            assert_eq!(find(&table, "main"), Some(vec![0x10]), "{buckets}");
            for other in ["mai", "mains", "point", "", "nothing"] {
                assert_eq!(find(&table, other), Some(Vec::new()), "{buckets} {other}");
            }
            let two = [&table[..], &table].concat();
            assert_eq!(find(&two, "Point"), Some(vec![0x40]), "tables stand one behind the other");
        }
    }

    #[test]
    fn damaged_tables_end_the_search() {
        for buckets in [0, 1, 3] {
            let whole = table(buckets);
            for end in 1..whole.len() {
                assert_eq!(find(&whole[..end], "main"), None, "cut at {end}");
                assert_eq!(list(&whole[..end]), None, "cut at {end}");
            }
            // Any byte may be anything: the answer may be wrong, but there is one.
            for at in 0..whole.len() {
                for byte in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut bad = whole.clone();
                    bad[at] = byte;
                    NAMES.iter().for_each(|(name, ..)| drop(find(&bad, name)));
                    drop(list(&bad));
                }
            }
        }
    }

    #[test]
    fn long_searches_are_paid_for() {
        // One bucket whose chain is the whole table, and entries that have no end.
        let mut table = table(1);
        let end = table.len();
        table[end - 1] = 1;
        assert_eq!(find(&table, NAMES[2].0).or(find(&table, NAMES[0].0)).map(|u| u.len() <= 2), Some(true));
        let meter = Meter::new(40);
        assert_eq!(units_with(Metered::new(&table, &meter), Metered::new(STRINGS, &meter), "main"), None);
    }

    #[test]
    fn hashes_are_those_of_the_standard() {
        for (name, expected) in [("", 5381), ("main", 0x7c9a_7f6a), ("MAIN", 0x7c9a_7f6a)] {
            assert_eq!(hash(name.as_bytes()), expected, "{name}");
        }
    }
}
