//! The name of a function entry, which often stands elsewhere.
//!
//! A definition refers to its declaration, an inlined call to its abstract origin, both possibly in another unit or,
//! after `dwz`, in another file. The linker's name is preferred, since it says namespaces and parameters too.

use super::meter::{Meter, Metered};
use super::units::{Units, open_unit};
use gimli::{AttributeValue, DebugInfoOffset, Dwarf, Unit, UnitHeader, UnitOffset};

/// Real chains have two or three links; a hostile one may be a circle.
const MAX_LINKS: u32 = 16;
/// Longer names are damage.
const MAX_NAME: usize = 64 << 10;

/// Where an entry lies, as seen from the entry that refers to it.
enum Place {
    SameUnit(UnitOffset<usize>),
    SameFile(DebugInfoOffset<usize>),
    SharedFile(DebugInfoOffset<usize>),
}

/// What one entry says about a name.
#[derive(Default)]
struct Step {
    linker: Option<String>,
    plain: Option<String>,
    next: Option<Place>,
}

/// The name that the entry `entry` of `unit` leads to.
pub(crate) fn name<'a>(
    dwarf: &Dwarf<Metered<'a>>,
    units: &Units,
    unit: &Unit<Metered<'a>>,
    entry: UnitOffset<usize>,
    meter: &Meter,
) -> Option<String> {
    let shared = dwarf.sup.as_deref();
    let mut inside_shared = false;
    let mut elsewhere: Option<Unit<Metered<'a>>> = None;
    let mut plain = None;
    let mut place = Place::SameUnit(entry);
    for _ in 0..MAX_LINKS {
        inside_shared |= matches!(place, Place::SharedFile(_));
        let file = if inside_shared { shared? } else { dwarf };
        let offset = match place {
            Place::SameUnit(offset) => offset,
            Place::SameFile(offset) | Place::SharedFile(offset) => {
                let header = match inside_shared || file.file_type == gimli::DwarfFileType::Dwo {
                    true => header_containing(file, offset)?,
                    false => file.debug_info.header_from_offset(units.containing(offset)?.offset).ok()?,
                };
                let inside = offset.to_unit_offset(&header)?;
                elsewhere = Some(open_unit(file, header, meter).ok()?);
                inside
            }
        };
        let Ok(step) = step(file, elsewhere.as_ref().unwrap_or(unit), offset, meter) else { break };
        if step.linker.is_some() {
            return step.linker;
        }
        plain = step.plain.or(plain);
        let Some(next) = step.next else { break };
        place = next;
    }
    plain
}

fn step(
    dwarf: &Dwarf<Metered<'_>>,
    unit: &Unit<Metered<'_>>,
    entry: UnitOffset<usize>,
    meter: &Meter,
) -> gimli::Result<Step> {
    let mut entries = unit.entries_raw(Some(entry))?;
    let mut step = Step::default();
    let Some(abbreviation) = entries.read_abbreviation()? else { return Ok(step) };
    meter.charge(abbreviation.attributes().len() as u64)?;
    for &spec in abbreviation.attributes() {
        let attribute = entries.read_attribute(spec)?;
        match attribute.name() {
            gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => {
                step.linker = text(dwarf, unit, attribute.value());
            }
            gimli::DW_AT_name => step.plain = text(dwarf, unit, attribute.value()),
            gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                step.next = match attribute.value() {
                    AttributeValue::UnitRef(offset) => Some(Place::SameUnit(offset)),
                    AttributeValue::DebugInfoRef(offset) => Some(Place::SameFile(offset)),
                    AttributeValue::DebugInfoRefSup(offset) => Some(Place::SharedFile(offset)),
                    _ => None,
                };
            }
            _ => {}
        }
    }
    Ok(step)
}

fn text(dwarf: &Dwarf<Metered<'_>>, unit: &Unit<Metered<'_>>, value: AttributeValue<Metered<'_>>) -> Option<String> {
    let bytes = dwarf.attr_string(unit, value).ok()?.rest();
    (!bytes.is_empty() && bytes.len() <= MAX_NAME).then(|| String::from_utf8_lossy(bytes).into_owned())
}

/// The unit of a shared or split file that holds `offset`; these have no index, and are asked rarely.
fn header_containing<'a>(
    dwarf: &Dwarf<Metered<'a>>,
    offset: DebugInfoOffset<usize>,
) -> Option<UnitHeader<Metered<'a>>> {
    let mut headers = dwarf.units();
    while let Ok(Some(header)) = headers.next() {
        let start = header.offset().as_debug_info_offset()?.0;
        if (start..start.saturating_add(header.length_including_self())).contains(&offset.0) {
            return Some(header);
        }
    }
    None
}
