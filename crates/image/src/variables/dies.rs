//! Entries of debug information by reference, across units, files and images, for one question.
//!
//! A [`Program`] lives as long as one question does. Everything it reads is paid from one meter, to which each image
//! that is opened adds in proportion to its size; so a question costs at most time and memory linear in the images
//! it touches, whatever they contain. Units and types are read once per question.
//! Split units and types in units of their own are followed like any other.

use crate::dwarf::{Candidate, DebugInfo, Home, Meter, Metered, Part, open_unit, type_units};
use crate::process::{LoadedImage, Stopped};
use crate::variables::types::Type;
use gimli::{
    AttributeValue, DebugInfoOffset, DebugTypeSignature, DwAt, DwTag, Dwarf, Reader, Section, Unit, UnitHeader,
    UnitOffset, UnitRef, UnitType,
};
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// Real chains of references have two or three links; a hostile one may be a circle.
const MAX_LINKS: u32 = 16;
/// Longer names are damage.
const MAX_NAME: usize = 4 << 10;
/// What reading a split unit may cost beside its size.
const SPLIT_ALLOWANCE: u64 = 64 << 10;

/// Where an entry stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct DieRef {
    /// The number of the image among the loaded ones.
    pub image: usize,
    pub home: Home,
    /// The entry's offset in the unit.
    pub entry: usize,
}

/// An entry with its attributes.
#[derive(Clone, Debug)]
pub(crate) struct Die<'a> {
    pub at: DieRef,
    pub tag: DwTag,
    /// How deep below the entry that was asked about.
    pub depth: u32,
    attributes: Vec<(DwAt, AttributeValue<Metered<'a>>)>,
}

/// The debug information of a process, opened as far as a question needs it.
pub(crate) struct Program<'a> {
    pub process: &'a dyn Stopped,
    pub meter: &'a Meter,
    files: RefCell<HashMap<(usize, Part), Opened<'a>>>,
    pub(super) types: RefCell<HashMap<DieRef, Rc<Type>>>,
}

type Opened<'a> = Option<Rc<File<'a>>>;

/// One file with debug information.
pub(crate) struct File<'a> {
    pub debug: &'a DebugInfo,
    pub dwarf: Dwarf<Metered<'a>>,
    /// Where the units begin, sorted.
    starts: Vec<usize>,
    /// Units of one type each, by their numbers.
    types: OnceCell<Vec<UnitHeader<Metered<'a>>>>,
    /// The number of the unit and the entry in it that each signature stands for.
    signatures: OnceCell<HashMap<u64, (usize, usize)>>,
    units: RefCell<HashMap<Home, Rc<Unit<Metered<'a>>>>>,
}

impl DieRef {
    pub fn of(image: usize, candidate: &Candidate) -> DieRef {
        DieRef { image, home: candidate.home, entry: candidate.entry }
    }
}

impl<'a> File<'a> {
    fn type_units(&self) -> &[UnitHeader<Metered<'a>>] {
        self.types.get_or_init(|| type_units(&self.dwarf))
    }

    fn signatures(&self) -> &HashMap<u64, (usize, usize)> {
        let signed = |(unit, header): (usize, &UnitHeader<Metered<'a>>)| match header.type_() {
            UnitType::Type { type_signature, type_offset } | UnitType::SplitType { type_signature, type_offset } => {
                Some((type_signature.0, (unit, type_offset.0)))
            }
            _ => None,
        };
        self.signatures.get_or_init(|| self.type_units().iter().enumerate().filter_map(signed).collect())
    }
}

impl<'a> Die<'a> {
    pub fn attribute(&self, name: DwAt) -> Option<AttributeValue<Metered<'a>>> {
        self.attributes.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
    }

    pub fn has(&self, name: DwAt) -> bool {
        self.attributes.iter().any(|(n, _)| *n == name)
    }

    pub fn flag(&self, name: DwAt) -> bool {
        matches!(self.attribute(name), Some(AttributeValue::Flag(true)))
    }

    pub fn number(&self, name: DwAt) -> Option<u64> {
        self.attribute(name).and_then(|v| v.udata_value())
    }
}

impl<'a> Program<'a> {
    pub fn new(process: &'a dyn Stopped, meter: &'a Meter) -> Program<'a> {
        Program { process, meter, files: RefCell::default(), types: RefCell::default() }
    }

    pub fn loaded(&self, image: usize) -> Option<&'a LoadedImage> {
        self.process.images().get(image)
    }

    pub fn file(&self, image: usize, part: Part) -> Option<Rc<File<'a>>> {
        if let Some(known) = self.files.borrow().get(&(image, part)) {
            return known.clone();
        }
        let open = || {
            let debug = self.loaded(image)?.image.debug()?;
            let dwarf = debug.dwarf(part, self.meter)?;
            self.meter.credit(match part {
                Part::Own | Part::Shared => debug.question_allowance(),
                Part::Split(_) | Part::Packaged(_) => {
                    let len = dwarf.debug_info.reader().len() + dwarf.debug_types.reader().len();
                    (len as u64).saturating_mul(4).saturating_add(SPLIT_ALLOWANCE)
                }
            });
            let mut starts = Vec::new();
            let mut headers = dwarf.units();
            while let Ok(Some(header)) = headers.next() {
                starts.extend(header.offset().as_debug_info_offset().map(|o| o.0));
            }
            Some(Rc::new(File {
                debug,
                dwarf,
                starts,
                types: OnceCell::new(),
                signatures: OnceCell::new(),
                units: RefCell::default(),
            }))
        };
        let file = open();
        self.files.borrow_mut().insert((image, part), file.clone());
        file
    }

    /// The file and the unit that hold `at`.
    pub fn unit(&self, at: DieRef) -> Option<(Rc<File<'a>>, Rc<Unit<Metered<'a>>>)> {
        let file = self.file(at.image, at.home.part)?;
        let known = file.units.borrow().get(&at.home).cloned();
        if let Some(unit) = known {
            return Some((file, unit));
        }
        let header = match at.home.types {
            true => *file.type_units().get(at.home.unit)?,
            false => file.dwarf.debug_info.header_from_offset(DebugInfoOffset(at.home.unit)).ok()?,
        };
        let mut unit = open_unit(&file.dwarf, header, self.meter).ok()?;
        if let (Part::Split(number), false) = (at.home.part, at.home.types) {
            let skeleton = Home { part: Part::Own, types: false, unit: file.debug.skeleton(number)? };
            let (_, skeleton) = self.unit(DieRef { home: skeleton, ..at })?;
            unit.copy_relocated_attributes(&skeleton);
        }
        let unit = Rc::new(unit);
        file.units.borrow_mut().insert(at.home, unit.clone());
        Some((file, unit))
    }

    pub fn die(&self, at: DieRef) -> Option<Die<'a>> {
        let mut first = None;
        self.walk(at, |die| {
            first = Some(die);
            false
        });
        first
    }

    /// The entries right below `at`.
    pub fn children(&self, at: DieRef) -> Vec<Die<'a>> {
        let mut children = Vec::new();
        self.walk(at, |die| {
            if die.depth == 1 {
                children.push(die);
            }
            true
        });
        children
    }

    /// Hands `at` and all entries below it to `each`, in their order, until that wants no more. Damage ends the walk.
    pub fn walk(&self, at: DieRef, each: impl FnMut(Die<'a>) -> bool) {
        // What was read before damage is still good.
        let _ = self.try_walk(at, each);
    }

    fn try_walk(&self, at: DieRef, mut each: impl FnMut(Die<'a>) -> bool) -> gimli::Result<()> {
        let Some((_, unit)) = self.unit(at) else { return Ok(()) };
        let mut entries = unit.entries_raw(Some(UnitOffset(at.entry)))?;
        let mut started = false;
        while !entries.is_empty() {
            let entry = entries.next_offset().0;
            let depth = entries.next_depth();
            if started && depth <= 0 {
                break;
            }
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            self.meter.charge(abbreviation.attributes().len() as u64)?;
            let mut attributes = Vec::with_capacity(abbreviation.attributes().len());
            for &spec in abbreviation.attributes() {
                let attribute = entries.read_attribute(spec)?;
                attributes.push((attribute.name(), attribute.value()));
            }
            let tag = abbreviation.tag();
            let depth = u32::try_from(depth).unwrap_or(0);
            if !each(Die { at: DieRef { entry, ..at }, tag, depth, attributes }) {
                break;
            }
            if !started && !abbreviation.has_children() {
                break;
            }
            started = true;
        }
        Ok(())
    }

    /// The entry that a reference in `from` leads to.
    pub fn follow(&self, from: DieRef, value: &AttributeValue<Metered<'a>>) -> Option<DieRef> {
        match *value {
            AttributeValue::UnitRef(offset) => Some(DieRef { entry: offset.0, ..from }),
            AttributeValue::DebugInfoRef(offset) => self.containing(from.image, from.home.part, offset.0),
            AttributeValue::DebugInfoRefSup(offset) => self.containing(from.image, Part::Shared, offset.0),
            AttributeValue::DebugTypesRef(signature) => {
                let (image, packaged) = (from.image, Part::Packaged(signature.0));
                let parts = [from.home.part, Part::Own, packaged];
                parts.into_iter().find_map(|part| self.type_called(image, part, signature))
            }
            _ => None,
        }
    }

    fn containing(&self, image: usize, part: Part, offset: usize) -> Option<DieRef> {
        let file = self.file(image, part)?;
        let after = file.starts.partition_point(|start| *start <= offset);
        let unit = *file.starts[..after].last()?;
        Some(DieRef { image, home: Home { part, types: false, unit }, entry: offset - unit })
    }

    /// The type with this signature, if the file has it.
    fn type_called(&self, image: usize, part: Part, signature: DebugTypeSignature) -> Option<DieRef> {
        let file = self.file(image, part)?;
        let (unit, entry) = *file.signatures().get(&signature.0)?;
        Some(DieRef { image, home: Home { part, types: true, unit }, entry })
    }

    /// The attribute `name` of `die`, or of the entries it completes: its declaration or its abstract origin. With it
    /// comes the entry that has it, which references and strings are relative to.
    pub fn inherited(&self, die: &Die<'a>, name: DwAt) -> Option<(DieRef, AttributeValue<Metered<'a>>)> {
        let mut die = die.clone();
        for _ in 0..MAX_LINKS {
            if let Some(value) = die.attribute(name) {
                return Some((die.at, value));
            }
            die = self.die(self.origin(&die)?)?;
        }
        None
    }

    /// The entry that `die` completes.
    pub fn origin(&self, die: &Die<'a>) -> Option<DieRef> {
        let link = die.attribute(gimli::DW_AT_abstract_origin).or_else(|| die.attribute(gimli::DW_AT_specification))?;
        self.follow(die.at, &link)
    }

    pub fn text(&self, owner: DieRef, value: AttributeValue<Metered<'a>>) -> Option<String> {
        let (file, unit) = self.unit(owner)?;
        let bytes = file.dwarf.attr_string(&unit, value).ok()?.rest();
        (!bytes.is_empty() && bytes.len() <= MAX_NAME).then(|| String::from_utf8_lossy(bytes).into_owned())
    }

    /// The name that `die` or what it completes has.
    pub fn name(&self, die: &Die<'a>) -> Option<String> {
        let (owner, value) = self.inherited(die, gimli::DW_AT_name)?;
        self.text(owner, value)
    }

    /// Does the code of `die` include the address `at` of the image? `None` when it has no code of its own.
    pub fn covers(&self, die: &Die<'a>, at: u64) -> Option<bool> {
        let (file, unit) = self.unit(die.at)?;
        let unit = UnitRef::new(&file.dwarf, &unit);
        if let Some(list) = die.attribute(gimli::DW_AT_ranges) {
            let mut ranges = unit.attr_ranges(list).ok()??;
            let mut covers = false;
            while let Ok(Some(r)) = ranges.next() {
                covers |= r.begin <= at && at < r.end;
            }
            return Some(covers);
        }
        let low = unit.attr_address(die.attribute(gimli::DW_AT_low_pc)?).ok()??;
        let high = match die.attribute(gimli::DW_AT_high_pc)? {
            AttributeValue::Udata(size) => low.wrapping_add(size),
            value => match unit.attr_address(value) {
                Ok(Some(high)) => high,
                _ => low.wrapping_add(value.udata_value()?),
            },
        };
        Some(low <= at && at < high)
    }
}
