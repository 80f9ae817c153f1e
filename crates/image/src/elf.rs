//! What an ELF file says about itself: segments, sections, build-id, links to debug files.
//!
//! Opening reads the header and the two header tables; section contents are read when asked for.
//! Guarantees: a file without usable section headers is still an image (addresses can be translated, nothing can be
//! named); a compressed section grows by no more than real ones do, and a lying header reserves nothing.
//! Source: System V ABI, x86-64 supplement; the gABI for section compression; binutils for `.gnu_debuglink`.

use crate::address::{FileOffset, ImageOffset};
use crate::error::{ImageError, ImageErrorKind};
use crate::source::Source;
use object::LittleEndian;
use object::elf::{self, FileHeader64, ProgramHeader64};
use object::read::ReadCache;
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader, SectionHeader};
use std::fmt;
use std::fs::File;
use std::path::Path;

type Header = FileHeader64<LittleEndian>;
const LE: LittleEndian = LittleEndian;

/// More headers than this are not read: a valid file has one per 64 bytes at most, a real one a few thousand.
const MAX_HEADERS: usize = 1 << 20;
/// Notes, section names and links larger than this are not read.
const MAX_SMALL: u64 = 1 << 20;
/// Debug information shrinks to a third or a quarter; what claims to shrink this much is made to fill memory.
const MAX_INFLATION: u64 = 64;

/// The identity that the linker gave to a build.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BuildId(pub Vec<u8>);

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// A link to a separate debug file, as `objcopy --add-gnu-debuglink` writes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DebugLink {
    pub name: Vec<u8>,
    pub crc: u32,
}

/// A link to a file with DWARF shared between several debug files, as `dwz` writes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AltLink {
    pub path: Vec<u8>,
    pub build_id: BuildId,
}

/// A piece of the file that the loader maps.
#[derive(Clone, Copy, Debug)]
struct Segment {
    image: u64,
    file: u64,
    file_size: u64,
    memory_size: u64,
    executable: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Section {
    name: u32,
    pub kind: u32,
    flags: u64,
    pub address: u64,
    offset: u64,
    pub size: u64,
    pub link: u32,
    align: u64,
}

impl Section {
    pub fn is_code(&self) -> bool {
        self.flags & u64::from(elf::SHF_EXECINSTR) != 0
    }

    /// Is it part of the running program?
    pub fn is_loaded(&self) -> bool {
        self.flags & u64::from(elf::SHF_ALLOC) != 0
    }
}

/// An open ELF file.
#[derive(Debug)]
pub(crate) struct Elf {
    pub source: Source,
    segments: Vec<Segment>,
    notes: Vec<(u64, u64, u64)>,
    /// Size and alignment of the block of thread-local variables.
    pub thread_local: Option<(u64, u64)>,
    pub sections: Vec<Section>,
    section_names: Vec<u8>,
    pub build_id: Option<BuildId>,
}

impl Elf {
    pub fn open(path: &Path) -> Result<Elf, ImageError> {
        let (source, file) = Source::open(path)?;
        let cache = ReadCache::new(file);
        let header = parse_header(&source, &cache)?;
        let programs = header
            .program_headers(LE, &cache)
            .ok()
            .filter(|p| p.len() <= MAX_HEADERS)
            .ok_or_else(|| source.error(ImageErrorKind::Damaged("expected a table of program headers")))?;
        let segments = programs.iter().filter_map(segment).collect();
        let notes = programs
            .iter()
            .filter(|p| p.p_type(LE) == elf::PT_NOTE)
            .map(|p| (p.p_offset(LE), p.p_filesz(LE), p.p_align(LE)))
            .collect();
        let thread_local = programs.iter().find(|p| p.p_type(LE) == elf::PT_TLS);
        let thread_local = thread_local.map(|p| (p.p_memsz(LE), p.p_align(LE)));
        let sections = sections(header, &cache);
        // Missing names cost the debug information, not the image.
        let names = header.section_strings_index(LE, &cache).ok();
        let names = names.and_then(|i| sections.get(i.0)).filter(|s| s.size <= MAX_SMALL).copied();
        let mut elf =
            Elf { source, segments, notes, thread_local, sections, section_names: Vec::new(), build_id: None };
        elf.section_names = names.and_then(|s| elf.contents(&s)).unwrap_or_default();
        elf.build_id = elf.find_build_id();
        Ok(elf)
    }

    pub fn image_offset(&self, at: FileOffset) -> Option<ImageOffset> {
        let inside = |s: &&Segment| at.0.checked_sub(s.file).is_some_and(|d| d < s.file_size);
        // Where two segments show the same bytes, code is meant: only code is asked for by file offset.
        let mut candidates = self.segments.iter().filter(inside);
        let first = candidates.next()?;
        let s = if first.executable { first } else { candidates.find(|s| s.executable).unwrap_or(first) };
        Some(ImageOffset(s.image.wrapping_add(at.0 - s.file)))
    }

    /// `None` also for bytes that exist only in memory (`.bss`).
    pub fn file_offset(&self, at: ImageOffset) -> Option<FileOffset> {
        let s = self.segments.iter().find(|s| at.0.checked_sub(s.image).is_some_and(|d| d < s.file_size))?;
        Some(FileOffset(s.file.wrapping_add(at.0 - s.image)))
    }

    /// The first address and the end of the executable segment that holds `at`.
    pub fn code_around(&self, at: ImageOffset) -> Option<std::ops::Range<u64>> {
        self.segments
            .iter()
            .filter(|s| s.executable)
            .find(|s| at.0.checked_sub(s.image).is_some_and(|d| d < s.memory_size))
            .map(|s| s.image..s.image.saturating_add(s.memory_size))
    }

    /// The code of the file by address: its executable sections, or segments where it has no sections. Nothing
    /// overlaps, and all pieces together are at most twice the file, whatever the headers claim.
    pub fn code(&self) -> Vec<(u64, Option<String>, Vec<u8>)> {
        let sections = self.sections.iter().filter(|s| s.is_code() && s.is_loaded() && s.kind != elf::SHT_NOBITS);
        let mut pieces: Vec<(u64, u64, Option<String>)> =
            sections.map(|s| (s.address, s.size, self.section_name(s))).collect();
        if pieces.is_empty() {
            let segments = self.segments.iter().filter(|s| s.executable);
            pieces = segments.map(|s| (s.image, s.file_size, None)).collect();
        }
        pieces.sort();
        let mut left = self.source.len().saturating_mul(2);
        let (mut code, mut end) = (Vec::new(), 0);
        for (start, size, name) in pieces {
            if start < end || size == 0 || size > left {
                continue;
            }
            let Some(at) = self.file_offset(ImageOffset(start)) else { continue };
            let Ok(bytes) = self.source.read(at.0, size) else { continue };
            (left, end) = (left - size, start.saturating_add(size));
            code.push((start, name, bytes));
        }
        code
    }

    fn section_name(&self, s: &Section) -> Option<String> {
        let rest = self.section_names.get(s.name as usize..)?;
        let name = &rest[..rest.iter().take(256).position(|b| *b == 0)?];
        Some(String::from_utf8_lossy(name).into_owned())
    }

    /// Is the address inside of anything that is loaded?
    pub fn contains(&self, at: ImageOffset) -> bool {
        self.segments.iter().any(|s| at.0.checked_sub(s.image).is_some_and(|d| d < s.memory_size))
    }

    /// Does anything that is loaded lie within these `len` bytes?
    pub fn overlaps(&self, at: ImageOffset, len: u64) -> bool {
        let end = at.0.saturating_add(len);
        self.segments.iter().any(|s| s.image < end && at.0 < s.image.saturating_add(s.memory_size))
    }

    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|s| self.is_named(s, name))
    }

    /// The bytes of a section, decompressed; `None` when it has none, or they cannot be read.
    pub fn contents(&self, s: &Section) -> Option<Vec<u8>> {
        if s.kind == elf::SHT_NOBITS {
            return None;
        }
        let bytes = self.source.read(s.offset, s.size).ok()?;
        if s.flags & u64::from(elf::SHF_COMPRESSED) == 0 { Some(bytes) } else { inflate(&bytes) }
    }

    pub fn named_contents(&self, name: &str) -> Option<Vec<u8>> {
        self.contents(self.section(name)?)
    }

    /// The contents of all sections called `name`, one after the other: object files have one for each group that the
    /// linker may drop.
    pub fn all_named_contents(&self, name: &str) -> Option<Vec<u8>> {
        let mut left = self.source.len().saturating_mul(2);
        let mut all: Option<Vec<u8>> = None;
        for section in self.sections.iter().filter(|s| self.is_named(s, name)) {
            left = left.checked_sub(section.size)?;
            let contents = self.contents(section)?;
            match &mut all {
                Some(all) => all.extend_from_slice(&contents),
                None => all = Some(contents),
            }
        }
        all
    }

    /// Does the section exist with bytes of its own? (A stripped file's debug twin keeps the names of all sections.)
    pub fn has_contents(&self, name: &str) -> bool {
        self.section(name).is_some_and(|s| s.kind != elf::SHT_NOBITS && s.size != 0)
    }

    pub fn debug_link(&self) -> Option<DebugLink> {
        let bytes = self.small_contents(".gnu_debuglink")?;
        let end = bytes.iter().position(|&b| b == 0)?;
        let crc = bytes.get((end + 4) & !3..)?.first_chunk::<4>()?;
        Some(DebugLink { name: bytes[..end].to_vec(), crc: u32::from_le_bytes(*crc) })
    }

    pub fn alt_link(&self) -> Option<AltLink> {
        let bytes = self.small_contents(".gnu_debugaltlink")?;
        let end = bytes.iter().position(|&b| b == 0)?;
        let build_id = BuildId(bytes[end + 1..].to_vec());
        Some(AltLink { path: bytes[..end].to_vec(), build_id })
    }

    fn small_contents(&self, name: &str) -> Option<Vec<u8>> {
        let s = self.section(name)?;
        if s.size <= MAX_SMALL { self.contents(s) } else { None }
    }

    fn is_named(&self, s: &Section, name: &str) -> bool {
        let names = self.section_names.get(s.name as usize..).unwrap_or_default();
        names.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
    }

    /// From sections first: in a separate debug file the program headers still describe the file it was split from.
    fn find_build_id(&self) -> Option<BuildId> {
        // A file has a handful of notes; a hostile one may repeat a large one without end.
        const MANY: usize = 64;
        let from_sections = self
            .sections
            .iter()
            .filter(|s| s.kind == elf::SHT_NOTE && s.size <= MAX_SMALL)
            .take(MANY)
            .filter_map(|s| build_id_in(&self.contents(s)?, s.align));
        let from_segments = self
            .notes
            .iter()
            .filter(|(_, size, _)| *size <= MAX_SMALL)
            .take(MANY)
            .filter_map(|&(offset, size, align)| build_id_in(&self.source.read(offset, size).ok()?, align));
        from_sections.chain(from_segments).next()
    }
}

fn parse_header<'a>(source: &Source, cache: &'a ReadCache<File>) -> Result<&'a Header, ImageError> {
    let start = source.read(0, source.len().min(20))?;
    if !start.starts_with(&elf::ELFMAG) {
        return Err(source.error(ImageErrorKind::NotElf));
    }
    let foreign = |what| Err(source.error(ImageErrorKind::Foreign(what)));
    match (start.get(4), start.get(5)) {
        (Some(&elf::ELFCLASS64), Some(&elf::ELFDATA2LSB)) => {}
        (Some(&elf::ELFCLASS32), _) => return foreign("it is 32-bit"),
        (_, Some(&elf::ELFDATA2MSB)) => return foreign("it is big-endian"),
        _ => return foreign("its class or byte order is unknown"),
    }
    let header =
        Header::parse(cache).map_err(|_| source.error(ImageErrorKind::Damaged("expected a complete ELF header")))?;
    if header.e_machine(LE) != elf::EM_X86_64 {
        return foreign("it is for another machine");
    }
    Ok(header)
}

fn segment(p: &ProgramHeader64<LittleEndian>) -> Option<Segment> {
    (p.p_type(LE) == elf::PT_LOAD).then(|| Segment {
        image: p.p_vaddr(LE),
        file: p.p_offset(LE),
        file_size: p.p_filesz(LE).min(p.p_memsz(LE)),
        memory_size: p.p_memsz(LE),
        executable: p.p_flags(LE) & elf::PF_X != 0,
    })
}

fn sections(header: &Header, cache: &ReadCache<File>) -> Vec<Section> {
    let headers = header.section_headers(LE, cache).unwrap_or_default();
    if headers.len() > MAX_HEADERS {
        return Vec::new();
    }
    headers
        .iter()
        .map(|s| Section {
            name: s.sh_name(LE),
            kind: s.sh_type(LE),
            flags: s.sh_flags(LE),
            address: s.sh_addr(LE),
            offset: s.sh_offset(LE),
            size: s.sh_size(LE),
            link: s.sh_link(LE),
            align: s.sh_addralign(LE),
        })
        .collect()
}

fn build_id_in(notes: &[u8], align: u64) -> Option<BuildId> {
    let mut notes = NoteIterator::<Header>::new(LE, align, notes).ok()?;
    while let Ok(Some(note)) = notes.next() {
        let fits = (1..=64).contains(&note.desc().len());
        if note.name() == elf::ELF_NOTE_GNU && note.n_type(LE) == elf::NT_GNU_BUILD_ID && fits {
            return Some(BuildId(note.desc().to_vec()));
        }
    }
    None
}

/// Contents of a `SHF_COMPRESSED` section: a header of type, size and alignment, then the stream.
fn inflate(bytes: &[u8]) -> Option<Vec<u8>> {
    const HEADER: usize = 24;
    let kind = u32::from_le_bytes(*bytes.first_chunk()?);
    let size = u64::from_le_bytes(*bytes.get(8..)?.first_chunk()?);
    let stream = bytes.get(HEADER..)?;
    if kind != elf::ELFCOMPRESS_ZLIB || size > (stream.len() as u64).saturating_mul(MAX_INFLATION) {
        return None;
    }
    let inflated = miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(stream, size as usize).ok()?;
    (inflated.len() as u64 == size).then_some(inflated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compressed_section_that_lies_about_its_size_is_refused() {
        let mut bytes = vec![0; 24];
        bytes[0] = 1;
        bytes[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
        bytes.extend_from_slice(&[0x78, 0x9c, 3, 0, 0, 0, 0, 1]);
        assert_eq!(inflate(&bytes), None);
        bytes[8..16].copy_from_slice(&0u64.to_le_bytes());
        assert_eq!(inflate(&bytes), Some(vec![]));
        assert_eq!(inflate(&bytes[..10]), None);
    }

    #[test]
    fn a_build_id_prints_as_in_file_names() {
        assert_eq!(BuildId(vec![0xab, 0x01]).to_string(), "ab01");
    }
}
