//! The small pieces of code through which a program calls functions of libraries, by name: `puts@plt`.
//!
//! Each jumps through a word that the dynamic linker fills in; the relocation of that word names the function. With
//! indirect branch tracking there are two pieces for each function, and the one in `.plt` pushes the number of its
//! relocation instead.
//! May miss: files without section headers, and forms that linkers have not used so far (they stay without a name).
//! Source: System V ABI, AMD64 supplement, sections 5.2 and 13.1 to 13.3; binutils, `elf64-x86-64.c`.

use crate::elf::Elf;
use object::elf::{R_X86_64_GLOB_DAT, R_X86_64_IRELATIVE, R_X86_64_JUMP_SLOT, SHT_RELA};
use std::collections::HashMap;

const RELOCATION: usize = 24;
const SYMBOL: usize = 24;
/// Entries begin at multiples of this.
const STEP: usize = 8;
/// Longer names are damage.
const MAX_NAME: usize = 8 << 10;
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// One piece of such code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PltEntry {
    pub start: u64,
    pub end: u64,
    pub calls: Callee,
}

/// What it leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Callee {
    /// The linker's name of the function.
    Named(String),
    /// Whatever function the one at this address chooses.
    ChosenBy(u64),
}

/// What an entry does, by its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    JumpsThrough(u64),
    PushesNumber(u32),
}

/// All entries of the image, by address.
pub(crate) fn entries(elf: &Elf) -> Vec<PltEntry> {
    let relocations = Relocations::load(elf);
    let mut entries: Vec<PltEntry> = Vec::new();
    for name in [".plt", ".plt.sec", ".plt.got", ".plt.bnd", ".iplt"] {
        let Some(section) = elf.section(name).filter(|s| s.is_code()) else { continue };
        let Some(bytes) = elf.contents(section) else { continue };
        let first = entries.len();
        for offset in (0..bytes.len()).step_by(STEP) {
            let start = section.address.wrapping_add(offset as u64);
            let Some(form) = decode(&bytes[offset..], start) else { continue };
            let found = match form {
                Form::JumpsThrough(slot) => relocations.by_slot.get(&slot),
                Form::PushesNumber(number) => relocations.lazy.get(number as usize).and_then(Option::as_ref),
            };
            let Some(calls) = found.cloned() else { continue };
            entries.push(PltEntry { start, end: 0, calls });
        }
        let end = section.address.wrapping_add(bytes.len() as u64);
        let starts: Vec<u64> = entries[first..].iter().skip(1).map(|e| e.start).chain([end]).collect();
        entries[first..].iter_mut().zip(starts).for_each(|(e, end)| e.end = end.min(e.start.saturating_add(16)));
    }
    entries.sort_by_key(|e| e.start);
    entries
}

/// The entry that begins with `bytes` at `address`.
fn decode(bytes: &[u8], address: u64) -> Option<Form> {
    let (bytes, mut at) = match bytes.strip_prefix(&ENDBR64) {
        Some(rest) => (rest, address.wrapping_add(ENDBR64.len() as u64)),
        None => (bytes, address),
    };
    if at != address && bytes.first() == Some(&0x68) {
        return Some(Form::PushesNumber(u32::from_le_bytes(*bytes.get(1..)?.first_chunk()?)));
    }
    // The prefix of jumps that memory protection extensions check.
    let bytes = bytes.strip_prefix(&[0xf2]).inspect(|_| at = at.wrapping_add(1)).unwrap_or(bytes);
    let distance = i32::from_le_bytes(*bytes.strip_prefix(&[0xff, 0x25])?.first_chunk()?);
    Some(Form::JumpsThrough(at.wrapping_add(6).wrapping_add_signed(distance.into())))
}

#[derive(Default)]
struct Relocations {
    by_slot: HashMap<u64, Callee>,
    /// Those that are applied at the first call, in their order.
    lazy: Vec<Option<Callee>>,
}

impl Relocations {
    fn load(elf: &Elf) -> Relocations {
        let mut relocations = Relocations::default();
        let symbols = elf.named_contents(".dynsym").unwrap_or_default();
        let strings = elf.named_contents(".dynstr").unwrap_or_default();
        for name in [".rela.dyn", ".rela.plt", ".rela.iplt"] {
            let Some(section) = elf.section(name).filter(|s| s.kind == SHT_RELA) else { continue };
            let Some(bytes) = elf.contents(section) else { continue };
            for raw in bytes.chunks_exact(RELOCATION) {
                let word = |i: usize| u64::from_le_bytes(raw[i * 8..i * 8 + 8].try_into().unwrap_or_default());
                let (slot, kind, symbol, addend) = (word(0), word(1) as u32, word(1) >> 32, word(2));
                let callee = match kind {
                    R_X86_64_JUMP_SLOT | R_X86_64_GLOB_DAT => {
                        symbol_name(&symbols, &strings, symbol).map(Callee::Named)
                    }
                    R_X86_64_IRELATIVE => Some(Callee::ChosenBy(addend)),
                    _ => None,
                };
                if name == ".rela.plt" {
                    relocations.lazy.push(callee.clone());
                }
                if let Some(callee) = callee {
                    relocations.by_slot.entry(slot).or_insert(callee);
                }
            }
        }
        relocations
    }
}

fn symbol_name(symbols: &[u8], strings: &[u8], index: u64) -> Option<String> {
    let at = usize::try_from(index).ok()?.checked_mul(SYMBOL)?;
    let name = u32::from_le_bytes(*symbols.get(at..)?.first_chunk()?);
    let rest = strings.get(name as usize..)?;
    let rest = &rest[..rest.len().min(MAX_NAME)];
    let name = &rest[..rest.iter().position(|b| *b == 0)?];
    (!name.is_empty()).then(|| String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_decode(bytes: &[u8], expected: Option<Form>) {
        assert_eq!(decode(bytes, 0x1000), expected, "{bytes:02x?}");
    }

    #[test]
    fn each_form_of_entry_tells_where_it_leads() {
        check_decode(&[0xff, 0x25, 0x10, 0, 0, 0, 0x68, 0, 0, 0, 0], Some(Form::JumpsThrough(0x1016)));
        check_decode(&[0xff, 0x25, 0xf0, 0xff, 0xff, 0xff, 0x66, 0x90], Some(Form::JumpsThrough(0xff6)));
        check_decode(&[0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0, 0, 0, 0], Some(Form::JumpsThrough(0x100a)));
        check_decode(&[0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0, 0, 0, 0], Some(Form::JumpsThrough(0x100b)));
        check_decode(&[0xf3, 0x0f, 0x1e, 0xfa, 0x68, 3, 0, 0, 0], Some(Form::PushesNumber(3)));
        check_decode(&[0xff, 0x35, 0, 0, 0, 0], None);
        check_decode(&[0xff, 0x25, 0], None);
        check_decode(&[], None);
    }
}
