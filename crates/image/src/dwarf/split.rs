//! Debug information that the compiler left beside the object files: `.dwo` files, and packages of them, `.dwp`.
//!
//! A skeleton unit in the program names its file and an identity; lines and addresses stay with the skeleton.
//! Looked for are, in this order: a package beside the program or its debug file (`prog.dwp`); the file where the
//! compiler wrote it, also as the user's source map moves it; and the file beside the program.
//! Guarantees: a unit is used only when its identity is the skeleton's; all such files of an image together are at most
//! `MAX_TOTAL` bytes, and each is read once.
//! Source: DWARF 5, sections 3.1.2, 3.1.3 and 7.3; for version 4 <https://gcc.gnu.org/wiki/DebugFission>.

use super::meter::{Meter, Metered};
use super::units::{UnitEntry, open_unit};
use super::{DebugInfo, NEEDED};
use crate::elf::Elf;
use crate::mapping::SourceMap;
use gimli::{DebugTypeSignature, Dwarf, DwarfPackageSections, DwarfSections, DwoId, SectionId, Unit, UnitType};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// What all split files of one image may have together.
const MAX_TOTAL: u64 = 8 << 30;
/// Longer paths cannot be opened.
const MAX_PATH: usize = 4096;

/// Which of the files with debug information of an image an entry stands in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Part {
    /// The program or its separate debug file.
    Own,
    /// The file that it shares with others.
    Shared,
    /// What the skeleton unit with this number stands for.
    Split(u32),
    /// A type in a package, by its signature.
    Packaged(u64),
}

/// The sections of one `.dwo` file.
type SplitFile = Arc<DwarfSections<Vec<u8>>>;

/// Where split units are looked for, and those that were found.
#[derive(Debug, Default)]
pub(crate) struct Splits {
    /// The program and its debug file.
    homes: Vec<PathBuf>,
    map: SourceMap,
    files: Mutex<HashMap<PathBuf, Option<SplitFile>>>,
    package: OnceLock<Option<DwarfPackageSections<Vec<u8>>>>,
}

/// What a skeleton unit stands for.
#[derive(Debug)]
pub(crate) struct SplitUnit {
    id: DwoId,
    /// `None` for the package.
    file: Option<SplitFile>,
    /// Where the unit begins.
    pub offset: usize,
}

/// A unit with the sections it refers to.
pub(crate) struct SplitDwarf<'a> {
    pub dwarf: Dwarf<Metered<'a>>,
    pub unit: Unit<Metered<'a>>,
}

impl Splits {
    pub fn new(homes: Vec<PathBuf>, map: SourceMap) -> Splits {
        Splits { homes, map, ..Splits::default() }
    }

    /// Where the file `name` of a compiler that ran in `folder` may be.
    fn candidates(&self, folder: &Path, name: &Path) -> Vec<PathBuf> {
        let written = folder.join(name);
        let mut candidates: Vec<PathBuf> = self.map.moved(&written).into_iter().chain([written]).collect();
        for beside in self.homes.iter().filter_map(|h| h.parent()) {
            candidates.extend(name.is_relative().then(|| beside.join(name)));
            candidates.extend(name.file_name().map(|name| beside.join(name)));
        }
        candidates
    }
}

impl DebugInfo {
    /// What the skeleton `unit` stands for, opened; `None` for other units, and when its file is not to be found.
    pub(super) fn split_of<'a>(
        &'a self,
        dwarf: &Dwarf<Metered<'a>>,
        unit: &'a UnitEntry,
        skeleton: &Unit<Metered<'a>>,
        meter: &'a Meter,
    ) -> Option<SplitDwarf<'a>> {
        let id = skeleton.dwo_id?;
        let found = unit.split.get_or_init(|| self.find_split(dwarf, skeleton, id)).as_ref()?;
        let dwarf = self.split_sections(dwarf, found, meter)?;
        let header = dwarf.debug_info.header_from_offset(gimli::DebugInfoOffset(found.offset)).ok()?;
        let mut unit = open_unit(&dwarf, header, meter).ok()?;
        unit.copy_relocated_attributes(skeleton);
        Some(SplitDwarf { dwarf, unit })
    }

    /// The sections that the split unit `found` refers to; `parent` are those of the program.
    pub(super) fn split_sections<'a>(
        &'a self,
        parent: &Dwarf<Metered<'a>>,
        found: &'a SplitUnit,
        meter: &'a Meter,
    ) -> Option<Dwarf<Metered<'a>>> {
        let Some(sections) = &found.file else {
            return self.package(meter)?.find_cu(found.id, parent).ok()?;
        };
        let mut dwarf = sections.borrow(|bytes| Metered::new(bytes, meter));
        dwarf.make_dwo(parent);
        Some(dwarf)
    }

    /// The sections of a type in the package.
    pub(super) fn packaged_type<'a>(
        &'a self,
        parent: &Dwarf<Metered<'a>>,
        signature: u64,
        meter: &'a Meter,
    ) -> Option<Dwarf<Metered<'a>>> {
        self.package(meter)?.find_tu(DebugTypeSignature(signature), parent).ok()?
    }

    fn package<'a>(&'a self, meter: &'a Meter) -> Option<gimli::DwarfPackage<Metered<'a>>> {
        let package = self.splits.package.get_or_init(|| self.find_package()).as_ref()?;
        package.borrow(|bytes| Metered::new(bytes, meter), Metered::new(&[], meter)).ok()
    }

    fn find_package(&self) -> Option<DwarfPackageSections<Vec<u8>>> {
        self.splits.homes.iter().find_map(|home| {
            let mut name = home.clone().into_os_string();
            name.push(".dwp");
            let elf = Elf::open(Path::new(&name)).ok()?;
            let mut read = 0;
            let Ok::<_, gimli::Error>(sections) = DwarfPackageSections::load(|id: SectionId| {
                let contents = id.dwo_name().and_then(|name| elf.named_contents(name)).unwrap_or_default();
                read += contents.len() as u64;
                Ok(contents)
            }) else {
                return None;
            };
            self.account(read).then_some(sections)
        })
    }

    fn find_split(&self, parent: &Dwarf<Metered<'_>>, skeleton: &Unit<Metered<'_>>, id: DwoId) -> Option<SplitUnit> {
        let meter = Meter::new(self.question_allowance());
        let packaged = || {
            let in_package = self.package(&meter)?.cu_index.find(id.0).is_some();
            in_package.then_some(SplitUnit { id, file: None, offset: 0 })
        };
        if let Some(found) = packaged() {
            return Some(found);
        }
        let text = |bytes: &[u8]| (bytes.len() <= MAX_PATH).then(|| PathBuf::from(OsStr::from_bytes(bytes)));
        let folder = skeleton.comp_dir.and_then(|d| text(d.rest())).unwrap_or_default();
        let name = parent.attr_string(skeleton, skeleton.dwo_name().ok()??).ok()?;
        let candidates = self.splits.candidates(&folder, &text(name.rest())?);
        candidates.iter().find_map(|path| {
            let sections = self.split_file(path)?;
            let meter = Meter::new(self.question_allowance());
            let offset = unit_called(&sections.borrow(|bytes| Metered::new(bytes, &meter)), id, &meter)?;
            Some(SplitUnit { id, file: Some(sections), offset })
        })
    }

    fn split_file(&self, path: &Path) -> Option<SplitFile> {
        let path = path.canonicalize().ok()?;
        let mut files = self.splits.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = files.get(&path) {
            return known.clone();
        }
        let load = || {
            let elf = Elf::open(&path).ok()?;
            let mut read = 0;
            let Ok::<_, gimli::Error>(sections) = DwarfSections::load(|id: SectionId| {
                let wanted = id.dwo_name().filter(|_| NEEDED.contains(&id));
                let contents = wanted.and_then(|name| elf.all_named_contents(name)).unwrap_or_default();
                read += contents.len() as u64;
                Ok(contents)
            }) else {
                return None;
            };
            self.account(read).then(|| Arc::new(sections))
        };
        let loaded = load();
        files.insert(path, loaded.clone());
        loaded
    }

    /// Allows for the work that `read` more bytes are, unless they are too many.
    fn account(&self, read: u64) -> bool {
        let before = self.size.fetch_add(read, Ordering::Relaxed);
        self.allowance.fetch_add(read.saturating_mul(8), Ordering::Relaxed);
        before.saturating_add(read) <= MAX_TOTAL
    }
}

/// Where the unit with this identity begins.
fn unit_called(dwarf: &Dwarf<Metered<'_>>, id: DwoId, meter: &Meter) -> Option<usize> {
    let mut headers = dwarf.units();
    while let Ok(Some(header)) = headers.next() {
        let offset = header.offset().as_debug_info_offset()?.0;
        let found = match header.type_() {
            UnitType::SplitCompilation(found) => Some(found),
            // Before version 5 the identity is an attribute.
            UnitType::Compilation => open_unit(dwarf, header, meter).ok().and_then(|u| u.dwo_id),
            _ => None,
        };
        if found == Some(id) {
            return Some(offset);
        }
    }
    None
}
