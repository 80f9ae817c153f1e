//! The few facts of an ELF file that an oracle needs: entry, extent, and the bytes at an address as linked.
//!
//! Read by hand from the 64-bit little-endian headers (System V ABI, "Object Files"), so that the oracle does not lean
//! on the loader or the `image` crate that it helps to check.

use std::path::Path;

/// A program file.
#[derive(Clone, Debug)]
pub struct Program {
    pub entry: u64,
    /// Position-independent: the kernel adds a bias.
    pub pie: bool,
    segments: Vec<Segment>,
    file: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    vaddr: u64,
    offset: u64,
    file_size: u64,
    mem_size: u64,
}

impl Program {
    pub fn read(path: &Path) -> Program {
        let file = std::fs::read(path).unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display()));
        Program::parse(file).unwrap_or_else(|| panic!("{} is not a program for x86-64", path.display()))
    }

    fn parse(file: Vec<u8>) -> Option<Program> {
        if file.get(..6)? != b"\x7fELF\x02\x01" {
            return None;
        }
        let (table, size, count) = (u64_at(&file, 32)?, u16_at(&file, 54)?, u16_at(&file, 56)?);
        let mut segments = Vec::new();
        for i in 0..u64::from(count) {
            let at = (table + i * u64::from(size)) as usize;
            const PT_LOAD: u32 = 1;
            if u32_at(&file, at)? == PT_LOAD {
                segments.push(Segment {
                    offset: u64_at(&file, at + 8)?,
                    vaddr: u64_at(&file, at + 16)?,
                    file_size: u64_at(&file, at + 32)?,
                    mem_size: u64_at(&file, at + 40)?,
                });
            }
        }
        const ET_DYN: u16 = 3;
        Some(Program { entry: u64_at(&file, 24)?, pie: u16_at(&file, 16)? == ET_DYN, segments, file })
    }

    /// First and last address as linked, in whole pages.
    pub fn extent(&self) -> std::ops::Range<u64> {
        let low = self.segments.iter().map(|s| s.vaddr).min().unwrap_or(0);
        let high = self.segments.iter().map(|s| s.vaddr + s.mem_size).max().unwrap_or(0);
        low & !4095..high.next_multiple_of(4096)
    }

    /// Where it is loaded without address randomisation, natively and under Clew.
    pub fn bias(&self) -> u64 {
        if self.pie { model::layout::PIE_BASE } else { 0 }
    }

    /// The address, as linked, of a symbol in the symbol table.
    pub fn symbol(&self, name: &str) -> Option<u64> {
        let f = &self.file;
        let (table, size, count) = (u64_at(f, 40)?, u16_at(f, 58)?, u16_at(f, 60)?);
        let section = |i: u64| (table + i * u64::from(size)) as usize;
        const SHT_SYMTAB: u32 = 2;
        let symbols = (0..u64::from(count)).map(section).find(|&at| u32_at(f, at + 4) == Some(SHT_SYMTAB))?;
        let strings = u64_at(f, section(u64::from(u32_at(f, symbols + 40)?)) + 24)? as usize;
        let (start, length) = (u64_at(f, symbols + 24)? as usize, u64_at(f, symbols + 32)? as usize);
        let wanted = [name.as_bytes(), b"\0"].concat();
        let named = |at: &usize| {
            let text = u32_at(f, *at).and_then(|offset| f.get(strings + offset as usize..));
            text.is_some_and(|t| t.starts_with(&wanted))
        };
        let found = (start..start + length).step_by(24).find(named)?;
        u64_at(f, found + 8)
    }

    /// Up to 16 bytes of the file at an address as linked; shorter at the end of a segment.
    pub fn code(&self, vaddr: u64) -> &[u8] {
        let holds = |s: &&Segment| vaddr >= s.vaddr && vaddr < s.vaddr + s.file_size;
        let Some(s) = self.segments.iter().find(holds) else { return &[] };
        let start = (s.offset + vaddr - s.vaddr) as usize;
        let end = start + 16.min((s.vaddr + s.file_size - vaddr) as usize);
        self.file.get(start..end).unwrap_or(&[])
    }
}

fn u16_at(b: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*b.get(at..)?.first_chunk()?))
}
fn u32_at(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*b.get(at..)?.first_chunk()?))
}
fn u64_at(b: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*b.get(at..)?.first_chunk()?))
}
