//! Collects instruction forms from programs: the input of the test `cpu`.
//!
//! `cargo run -p isa --example collect_forms -- FILE...` decodes the executable sections of the given ELF files from end
//! to end and prints up to four encodings of every instruction, in different forms, as hexadecimal bytes and a name.
//! Data between functions decodes to nonsense now and then; that does no harm, since any encoding is a valid test.

#[path = "../tests/cpu/key.rs"]
mod key;

use std::collections::{BTreeMap, HashSet};
use std::process::ExitCode;

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Register};

/// Encodings kept of one instruction.
const PER_CODE: usize = 4;

fn main() -> ExitCode {
    let mut seen = HashSet::new();
    let mut forms: BTreeMap<u16, Vec<(String, Code)>> = BTreeMap::new();
    for path in std::env::args().skip(1) {
        let file = match std::fs::read(&path) {
            Ok(file) => file,
            Err(error) => {
                eprintln!("collect_forms: cannot read {path}: {error}");
                return ExitCode::FAILURE;
            }
        };
        for section in code_sections(&file).unwrap_or_default() {
            collect(section, &mut seen, &mut forms);
        }
    }
    for (bytes, code) in forms.values().flatten() {
        println!("{bytes} {code:?}");
    }
    ExitCode::SUCCESS
}

/// Decodes one section and keeps the forms that are new.
fn collect(section: &[u8], seen: &mut HashSet<(key::Key, u8)>, forms: &mut BTreeMap<u16, Vec<(String, Code)>>) {
    let mut decoder = Decoder::with_ip(64, section, 0x1000, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        let start = decoder.position();
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() || !seen.insert((key::key(&instruction), addressing(&instruction))) {
            continue;
        }
        let kept = forms.entry(instruction.code() as u16).or_default();
        if kept.len() < PER_CODE {
            let bytes = &section[start..decoder.position()];
            let text = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            kept.push((text, instruction.code()));
        }
    }
}

/// The addressing mode: base, index, rip, 32-bit, segment.
fn addressing(instruction: &Instruction) -> u8 {
    u8::from(instruction.memory_base() != Register::None)
        | u8::from(instruction.memory_index() != Register::None) << 1
        | u8::from(instruction.is_ip_rel_memory_operand()) << 2
        | u8::from(instruction.memory_base().is_gpr32()) << 3
        | u8::from(matches!(instruction.segment_prefix(), Register::FS | Register::GS)) << 4
}

/// The contents of the executable sections of a 64-bit ELF file; `None` if it is not one.
fn code_sections(file: &[u8]) -> Option<Vec<&[u8]>> {
    const EXECUTABLE: u64 = 4;
    let word = |at: usize, len: usize| -> Option<u64> {
        let mut bytes = [0; 8];
        bytes[..len].copy_from_slice(file.get(at..at + len)?);
        Some(u64::from_le_bytes(bytes))
    };
    if file.get(..5)? != b"\x7FELF\x02" {
        return None;
    }
    let (table, size, count) = (word(0x28, 8)?, word(0x3A, 2)?, word(0x3C, 2)?);
    let mut out = vec![];
    for n in 0..count {
        let header = (table + n * size) as usize;
        let (kind, flags) = (word(header + 4, 4)?, word(header + 8, 8)?);
        // Kind 1 is PROGBITS: the section has bytes in the file.
        if kind == 1 && flags & EXECUTABLE != 0 {
            let (offset, len) = (word(header + 0x18, 8)? as usize, word(header + 0x20, 8)? as usize);
            out.push(file.get(offset..offset.checked_add(len)?)?);
        }
    }
    Some(out)
}
