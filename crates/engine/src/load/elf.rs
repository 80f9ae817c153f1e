//! ELF programs: which files can be loaded, and the exact mappings that load one.
//!
//! [`parse`] reads the ELF header and the program headers of an executable, a position-independent executable or a
//! program interpreter, and refuses what Linux refuses (`load_elf_binary` in `fs/binfmt_elf.c`, behaviour of 6.8).
//! [`Elf::plan`] then says which calls of `mmap` to make, which bytes to clear and which pages to add for the bss.
//!
//! Guarantees: never panics, whatever the bytes; allocates at most 64 KiB plus what the program headers describe; after
//! a successful [`parse`] every address of the plan (before the bias) lies below [`TASK_SIZE`].
//! As in Linux, segments may overlap and come in any order: a later one replaces the pages of an earlier one, so a plan
//! must be carried out in its order. As in Linux, `PT_PHDR` is not consulted: the program headers are where the segment
//! that contains them puts them.
//!
//! Stricter than Linux in one point: a segment with whole pages beyond the end of the file is refused at once, where
//! Linux maps it and lets the program die of SIGBUS when it touches such a page.

#![forbid(unsafe_code)]

mod error;

use alloc::{vec, vec::Vec};
use core::ops::Range;
use error::{EM_386, EM_X86_64};
pub use error::{ElfError, Part, Problem};
use model::layout::PAGE;

/// First address that a program cannot have: the end of 47-bit user space, less one page.
pub const TASK_SIZE: u64 = 0x7fff_ffff_f000;
/// Size of one program header, also the value of `AT_PHENT`.
pub const PHENT: u64 = 56;
pub const PROT_READ: u32 = 1;
pub const PROT_WRITE: u32 = 2;
pub const PROT_EXEC: u32 = 4;

const HEADER_LEN: usize = 64;
/// Linux refuses larger program header tables.
const MAX_TABLE: u64 = 65536;
const PATH_MAX: u64 = 4096;

const ET_EXEC: u16 = 2;
const ET_DYN: u16 = 3;

const PT_LOAD: u32 = 1;
const PT_INTERP: u32 = 3;
const PT_TLS: u32 = 7;
const PT_GNU_STACK: u32 = 0x6474_e551;
const PT_GNU_PROPERTY: u32 = 0x6474_e553;
const PF_X: u32 = 1;
const PF_W: u32 = 2;
const PF_R: u32 = 4;

/// A program that can be loaded. Addresses are as in the file: the load bias is not in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    pub kind: Kind,
    pub entry: u64,
    /// In the order of the program headers.
    pub segments: Vec<Segment>,
    /// Path of the program interpreter, without its terminating zero.
    pub interpreter: Option<Vec<u8>>,
    /// The program asks for an executable stack. On x86-64 a program that says nothing does not get one.
    pub exec_stack: bool,
    /// Where the program headers are in memory; 0 when no segment holds them, as in Linux.
    pub phdr: u64,
    pub phnum: u16,
    /// Initial image of thread-local storage. The C library sets it up; it is here for reports.
    pub tls: Option<Extent>,
    /// GNU properties (markings for shadow stacks and branch tracking).
    pub property: Option<Extent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `ET_EXEC`: runs only at the addresses in the file.
    Fixed,
    /// `ET_DYN`: position-independent executable, static-pie or program interpreter.
    Relocatable,
}

/// One `PT_LOAD` program header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub vaddr: u64,
    pub memsz: u64,
    pub offset: u64,
    pub filesz: u64,
    /// `PROT_*` bits.
    pub prot: u32,
    /// As in the file; may be 0 or no power of two, see [`Elf::align`].
    pub align: u64,
}

/// Some bytes of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub vaddr: u64,
    pub memsz: u64,
}

/// What to do for one segment, in this order: map the file, clear `zero`, map `anon`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentMap {
    pub file: Option<FileMap>,
    /// Bytes from the end of the file's part to the end of its last page. Empty when the segment is not writable: such
    /// a page keeps the file's bytes, as in Linux.
    pub zero: Range<u64>,
    /// Whole anonymous pages that follow.
    pub anon: Range<u64>,
    /// Linux gives these pages read and write permission whatever the program header says, and execute permission if it
    /// says so.
    pub anon_prot: u32,
}

/// One private mapping of the program file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMap {
    pub address: u64,
    /// Whole pages.
    pub len: u64,
    pub prot: u32,
    pub offset: u64,
}

/// Reads a program's headers.
///
/// `head` is the beginning of the file (256 bytes are enough, fewer only if the file is shorter), `file_len` its
/// length; `read` fills its buffer from an offset in the file and says whether it could.
pub fn parse(head: &[u8], file_len: u64, read: &mut dyn FnMut(u64, &mut [u8]) -> bool) -> Result<Elf, ElfError> {
    let header = Header::parse(head, file_len)?;
    let mut source = Source { head, file_len, read };
    let mut table = vec![0; usize::from(header.phnum) * PHENT as usize];
    source.fill(Part::ProgramHeaders, header.phoff, &mut table)?;

    let mut elf = Elf {
        kind: header.kind,
        entry: header.entry,
        segments: Vec::new(),
        interpreter: None,
        exec_stack: false,
        phdr: 0,
        phnum: header.phnum,
        tls: None,
        property: None,
    };
    for (index, bytes) in table.chunks_exact(PHENT as usize).enumerate() {
        let index = index as u16;
        let ph = ProgramHeader::parse(bytes);
        match ph.kind {
            PT_LOAD => elf.segments.push(ph.segment(index, file_len)?),
            PT_INTERP if elf.interpreter.is_none() => elf.interpreter = Some(source.interpreter_path(index, &ph)?),
            PT_GNU_STACK => elf.exec_stack = ph.flags & PF_X != 0,
            PT_TLS => elf.tls = Some(ph.extent()),
            PT_GNU_PROPERTY => elf.property = Some(ph.extent()),
            _ => {}
        }
    }
    if elf.span().is_empty() {
        return Err(ElfError::NoLoad);
    }
    if elf.entry >= TASK_SIZE {
        return Err(ElfError::Entry(elf.entry));
    }
    for s in &elf.segments {
        // Does not overflow: `ProgramHeader::segment` checked it, or `filesz` is 0.
        if (s.offset..s.offset + s.filesz).contains(&header.phoff) {
            elf.phdr = header.phoff - s.offset + s.vaddr;
        }
    }
    Ok(elf)
}

impl Elf {
    /// Pages that the segments occupy together, holes included.
    pub fn span(&self) -> Range<u64> {
        let start = self.segments.iter().map(|s| page_down(s.vaddr)).min().unwrap_or(0);
        let end = self.segments.iter().map(|s| page_up(s.vaddr + s.memsz)).max().unwrap_or(0);
        start..end.max(start)
    }

    /// Alignment of the load bias: the largest of the segments', at least a page. Linux ignores those that are no power
    /// of two; so does this. An alignment as large as the address space could never be met and is ignored too.
    pub fn align(&self) -> u64 {
        let usable = |s: &Segment| (s.align.is_power_of_two() && s.align < TASK_SIZE).then_some(s.align);
        self.segments.iter().filter_map(usable).max().unwrap_or(PAGE).max(PAGE)
    }

    /// The bias that puts the lowest page at `base`, or less than [`Elf::align`] below it if `base` is not so aligned.
    /// A bias is added modulo 2^64, so that a file linked at a high address can go to a lower one.
    pub fn bias_for(&self, base: u64) -> u64 {
        match self.kind {
            Kind::Fixed => 0,
            Kind::Relocatable => base.wrapping_sub(self.span().start) & !(self.align() - 1),
        }
    }

    /// Where execution starts, and the value of `AT_ENTRY`.
    pub fn entry_at(&self, bias: u64) -> u64 {
        self.entry.wrapping_add(bias)
    }

    /// The value of `AT_PHDR`.
    pub fn phdr_at(&self, bias: u64) -> u64 {
        self.phdr.wrapping_add(bias)
    }

    /// The mappings that load the program, to be made in this order. `bias` must be a multiple of the page size.
    pub fn plan(&self, bias: u64) -> Vec<SegmentMap> {
        debug_assert_eq!(bias % PAGE, 0);
        self.segments.iter().map(|s| s.map(bias)).collect()
    }
}

impl Segment {
    fn map(&self, bias: u64) -> SegmentMap {
        let lead = self.vaddr % PAGE;
        let page = page_down(self.vaddr).wrapping_add(bias);
        let file_end = page.wrapping_add(lead + self.filesz);
        let len = page_up(lead + self.filesz);
        let file =
            (self.filesz > 0).then(|| FileMap { address: page, len, prot: self.prot, offset: self.offset - lead });
        let file_pages_end = if file.is_some() { page.wrapping_add(len) } else { page };
        let has_bss = self.memsz > self.filesz;
        let clears = has_bss && file.is_some() && self.prot & PROT_WRITE != 0;
        let memory_end = page.wrapping_add(page_up(lead + self.memsz));
        SegmentMap {
            file,
            zero: if clears { file_end..file_pages_end } else { file_pages_end..file_pages_end },
            anon: if has_bss { file_pages_end..memory_end } else { file_pages_end..file_pages_end },
            anon_prot: PROT_READ | PROT_WRITE | self.prot & PROT_EXEC,
        }
    }
}

/// What the ELF header says, once it is known to be one that can run here.
struct Header {
    kind: Kind,
    entry: u64,
    phoff: u64,
    phnum: u16,
}

impl Header {
    fn parse(head: &[u8], file_len: u64) -> Result<Header, ElfError> {
        if !head.starts_with(b"\x7fELF") {
            return Err(ElfError::NotElf);
        }
        let have = file_len.min(head.len() as u64);
        if have < HEADER_LEN as u64 {
            return Err(ElfError::Truncated { part: Part::Header, end: HEADER_LEN as u64, len: have });
        }
        // Class and byte order matter for the message only: Linux looks at the machine and nothing else.
        let machine = match head[5] {
            2 => u16_at(head, 18).swap_bytes(),
            _ => u16_at(head, 18),
        };
        match (head[4], head[5], machine) {
            (1, _, _) | (_, _, EM_386) => return Err(ElfError::Bits32(machine)),
            (_, 2, _) => return Err(ElfError::BigEndian(machine)),
            (_, _, EM_X86_64) => {}
            _ => return Err(ElfError::Machine(machine)),
        }
        let kind = match u16_at(head, 16) {
            ET_EXEC => Kind::Fixed,
            ET_DYN => Kind::Relocatable,
            other => return Err(ElfError::Type(other)),
        };
        let (phentsize, phnum) = (u16_at(head, 54), u16_at(head, 56));
        if u64::from(phentsize) != PHENT {
            return Err(ElfError::HeaderSize(phentsize));
        }
        if phnum == 0 || u64::from(phnum) * PHENT > MAX_TABLE {
            return Err(ElfError::HeaderCount(phnum));
        }
        Ok(Header { kind, entry: u64_at(head, 24), phoff: u64_at(head, 32), phnum })
    }
}

struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: u64,
    vaddr: u64,
    filesz: u64,
    memsz: u64,
    align: u64,
}

impl ProgramHeader {
    fn parse(b: &[u8]) -> ProgramHeader {
        ProgramHeader {
            kind: u32_at(b, 0),
            flags: u32_at(b, 4),
            offset: u64_at(b, 8),
            vaddr: u64_at(b, 16),
            filesz: u64_at(b, 32),
            memsz: u64_at(b, 40),
            align: u64_at(b, 48),
        }
    }

    fn extent(&self) -> Extent {
        Extent { vaddr: self.vaddr, memsz: self.memsz }
    }

    fn segment(&self, index: u16, file_len: u64) -> Result<Segment, ElfError> {
        let bad = |problem| Err(ElfError::Header { index, problem });
        if self.filesz > self.memsz {
            return bad(Problem::FileLargerThanMemory);
        }
        if self.vaddr >= TASK_SIZE || self.memsz > TASK_SIZE - self.vaddr {
            return bad(Problem::OutsideUserSpace);
        }
        if self.filesz > 0 {
            // Offsets of files are signed, and the mapping has whole pages.
            let end = self.offset.saturating_add(self.filesz);
            if end > i64::MAX as u64 - PAGE {
                return bad(Problem::OffsetOverflow);
            }
            if self.offset % PAGE != self.vaddr % PAGE {
                return bad(Problem::Misaligned);
            }
            if page_up(end) > file_len.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX) {
                return Err(ElfError::Truncated { part: Part::Segment(index), end, len: file_len });
            }
        }
        let prot = |flag, prot| if self.flags & flag != 0 { prot } else { 0 };
        Ok(Segment {
            vaddr: self.vaddr,
            memsz: self.memsz,
            offset: self.offset,
            filesz: self.filesz,
            prot: prot(PF_R, PROT_READ) | prot(PF_W, PROT_WRITE) | prot(PF_X, PROT_EXEC),
            align: self.align,
        })
    }
}

/// The file, of which the beginning is already there.
struct Source<'a> {
    head: &'a [u8],
    file_len: u64,
    read: &'a mut dyn FnMut(u64, &mut [u8]) -> bool,
}

impl Source<'_> {
    fn fill(&mut self, part: Part, offset: u64, buf: &mut [u8]) -> Result<(), ElfError> {
        let end = offset.saturating_add(buf.len() as u64);
        if end > self.file_len || end > i64::MAX as u64 {
            return Err(ElfError::Truncated { part, end, len: self.file_len });
        }
        if let Some(bytes) = self.head.get(offset as usize..end as usize) {
            buf.copy_from_slice(bytes);
            return Ok(());
        }
        if (self.read)(offset, buf) { Ok(()) } else { Err(ElfError::Unreadable(part)) }
    }

    fn interpreter_path(&mut self, index: u16, ph: &ProgramHeader) -> Result<Vec<u8>, ElfError> {
        let bad = |problem| Err(ElfError::Header { index, problem });
        if !(2..=PATH_MAX).contains(&ph.filesz) {
            return bad(Problem::PathLength(ph.filesz));
        }
        let mut path = vec![0; ph.filesz as usize];
        self.fill(Part::InterpreterPath, ph.offset, &mut path)?;
        if path.last() != Some(&0) {
            return bad(Problem::PathNotTerminated);
        }
        // Linux opens it as a C string.
        path.truncate(path.iter().position(|&b| b == 0).unwrap_or(0));
        if path.is_empty() { bad(Problem::PathEmpty) } else { Ok(path) }
    }
}

fn page_down(address: u64) -> u64 {
    address & !(PAGE - 1)
}

/// For values that were checked to lie below [`TASK_SIZE`] or to be file offsets, so that nothing overflows.
fn page_up(address: u64) -> u64 {
    page_down(address + (PAGE - 1))
}

fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from(u16_at(b, at)) | u32::from(u16_at(b, at + 2)) << 16
}

fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from(u32_at(b, at)) | u64::from(u32_at(b, at + 4)) << 32
}

/// Parses `file` as a whole file and asserts what the header of this module promises: for fuzzing and its corpus.
pub fn assert_promises(file: &[u8]) {
    let mut read = |offset: u64, buf: &mut [u8]| match file.get(offset as usize..offset as usize + buf.len()) {
        Some(bytes) => {
            buf.copy_from_slice(bytes);
            true
        }
        None => false,
    };
    let head = &file[..file.len().min(256)];
    let elf = match parse(head, file.len() as u64, &mut read) {
        Ok(elf) => elf,
        Err(error) => return assert!(!alloc::format!("{error}").is_empty()),
    };
    let span = elf.span();
    assert!(span.start % PAGE == 0 && span.end % PAGE == 0 && !span.is_empty() && span.end <= TASK_SIZE);
    let bias = elf.bias_for(0x5555_5555_4000);
    assert_eq!(bias % elf.align(), 0);
    for (map, segment) in elf.plan(0).iter().zip(&elf.segments) {
        let inside = |r: &Range<u64>| r.start <= r.end && span.start <= r.start && r.end <= span.end;
        assert!(inside(&map.zero) && inside(&map.anon) && map.zero.end - map.zero.start < PAGE);
        assert!(map.anon.start % PAGE == 0 && map.anon.end % PAGE == 0);
        if let Some(file_map) = map.file {
            assert!(file_map.address % PAGE == 0 && file_map.len % PAGE == 0 && file_map.offset % PAGE == 0);
            assert!(file_map.len > 0 && inside(&(file_map.address..file_map.address + file_map.len)));
            assert_eq!(map.anon.start, file_map.address + file_map.len);
            assert_eq!(file_map.address + (segment.offset - file_map.offset), segment.vaddr);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
