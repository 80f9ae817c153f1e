//! Why a program file cannot be loaded: one sentence for each reason.

use super::PHENT;
use core::fmt;

pub(super) const EM_386: u16 = 3;
pub(super) const EM_X86_64: u16 = 62;

/// Why a file cannot be loaded. Each displays as one sentence, to follow the file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElfError {
    NotElf,
    /// The file ends before something that it should contain.
    Truncated {
        part: Part,
        /// Where that part would end; `u64::MAX` when its end cannot be represented.
        end: u64,
        len: u64,
    },
    /// The operating system refused to read that part.
    Unreadable(Part),
    /// A 32-bit program, for the given machine.
    Bits32(u16),
    /// A big-endian program, for the given machine.
    BigEndian(u16),
    /// A 64-bit program for another machine.
    Machine(u16),
    /// Neither an executable nor position-independent.
    Type(u16),
    /// The ELF header gives this size for a program header.
    HeaderSize(u16),
    /// The ELF header gives this number of program headers.
    HeaderCount(u16),
    /// The program header with this index is wrong.
    Header {
        index: u16,
        problem: Problem,
    },
    NoLoad,
    Entry(u64),
}

/// A part of the file, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Header,
    ProgramHeaders,
    InterpreterPath,
    /// Segment of the program header with this index.
    Segment(u16),
}

/// What is wrong with a program header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// More bytes in the file than in memory.
    FileLargerThanMemory,
    /// The segment does not fit below [`TASK_SIZE`](super::TASK_SIZE).
    OutsideUserSpace,
    /// File offset and address differ modulo the page size, so that no mapping can satisfy both.
    Misaligned,
    /// File offset plus size overflows.
    OffsetOverflow,
    /// The interpreter path has this length; at least 2 and at most 4096 are allowed.
    PathLength(u64),
    PathNotTerminated,
    PathEmpty,
}

impl ElfError {
    /// What `execve` of such a file answers to a guest.
    pub fn errno(&self) -> i32 {
        const EIO: i32 = 5;
        const ENOEXEC: i32 = 8;
        match self {
            ElfError::Unreadable(_) => EIO,
            _ => ENOEXEC,
        }
    }
}

impl fmt::Display for ElfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ONLY: &str = "only 64-bit x86-64 programs can run";
        match *self {
            ElfError::NotElf => write!(f, "not an ELF file"),
            ElfError::Truncated { part, end: u64::MAX, .. } => {
                write!(f, "the ELF file is corrupt: {part} cannot lie there")
            }
            ElfError::Truncated { part, end, len } => {
                write!(f, "the ELF file is truncated: {part} would end at byte {end}, the file has {len}")
            }
            ElfError::Unreadable(part) => write!(f, "cannot read {part} of the ELF file"),
            ElfError::Bits32(machine) => write!(f, "a 32-bit program for {}; {ONLY}", MachineName(machine)),
            ElfError::BigEndian(machine) => write!(f, "a big-endian program for {}; {ONLY}", MachineName(machine)),
            ElfError::Machine(machine) => write!(f, "a program for {}; {ONLY}", MachineName(machine)),
            ElfError::Type(1) => write!(f, "a relocatable object file, not a program"),
            ElfError::Type(4) => write!(f, "a core dump, not a program"),
            ElfError::Type(other) => write!(f, "an ELF file of type {other}, not a program"),
            ElfError::HeaderSize(size) => {
                write!(f, "corrupt ELF header: program headers of {size} bytes instead of {PHENT}")
            }
            ElfError::HeaderCount(0) => write!(f, "corrupt ELF header: no program headers"),
            ElfError::HeaderCount(n) => write!(f, "corrupt ELF header: {n} program headers are too many"),
            ElfError::Header { index, problem } => write!(f, "corrupt program header {index}: {problem}"),
            ElfError::NoLoad => write!(f, "the ELF file has no loadable segment"),
            ElfError::Entry(entry) => write!(f, "corrupt ELF header: entry point {entry:#x} is outside user space"),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Header => write!(f, "the header"),
            Part::ProgramHeaders => write!(f, "the program header table"),
            Part::InterpreterPath => write!(f, "the interpreter path"),
            Part::Segment(index) => write!(f, "the segment of program header {index}"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::FileLargerThanMemory => write!(f, "more bytes in the file than in memory"),
            Problem::OutsideUserSpace => write!(f, "its addresses are outside user space"),
            Problem::Misaligned => write!(f, "file offset and address do not fit to each other"),
            Problem::OffsetOverflow => write!(f, "its file offset is too large"),
            Problem::PathLength(n) => write!(f, "an interpreter path cannot have {n} bytes"),
            Problem::PathNotTerminated => write!(f, "the interpreter path is not terminated"),
            Problem::PathEmpty => write!(f, "the interpreter path is empty"),
        }
    }
}

/// Displays the machines that one may meet by name.
struct MachineName(u16);

impl fmt::Display for MachineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: &[(u16, &str)] = &[
            (2, "SPARC"),
            (EM_386, "x86"),
            (4, "Motorola 68000"),
            (8, "MIPS"),
            (15, "PA-RISC"),
            (20, "PowerPC"),
            (21, "64-bit PowerPC"),
            (22, "S/390"),
            (40, "ARM"),
            (42, "SuperH"),
            (43, "64-bit SPARC"),
            (50, "Itanium"),
            (EM_X86_64, "x86-64"),
            (94, "Xtensa"),
            (183, "AArch64"),
            (190, "CUDA"),
            (224, "AMD GPU"),
            (243, "RISC-V"),
            (247, "BPF"),
            (258, "LoongArch"),
            (0x9026, "Alpha"),
        ];
        match NAMES.iter().find(|(machine, _)| *machine == self.0) {
            Some((_, name)) => write!(f, "{name}"),
            None => write!(f, "machine {}", self.0),
        }
    }
}
