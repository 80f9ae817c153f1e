//! Which instruction forms are tested: every one that decodes, and those that real programs contain.
//!
//! [`enumerate`] walks the opcode maps (legacy, VEX, EVEX, XOP) with all prefixes that select an instruction, and keeps
//! one encoding for each [`Key`]. [`stored`] reads `forms.txt`, which holds encodings found in programs of a Debian
//! system by `examples/collect_forms.rs`: these have the prefixes and operand combinations that compilers really emit.

use std::collections::HashMap;

use iced_x86::{Code, Decoder, DecoderOptions};

use crate::key::{Key, key};
use crate::rng::Rng;

/// The forms of `forms.txt` and of the file that `CLEW_FORMS` names, if any.
pub fn stored(extra: Option<&str>) -> Vec<Vec<u8>> {
    let mut text = include_str!("../forms.txt").to_string();
    if let Some(extra) = extra {
        text.push_str(extra);
    }
    let mut out = vec![];
    for line in text.lines() {
        let Some(word) = line.split_whitespace().next() else { continue };
        if word.starts_with('#') {
            continue;
        }
        let bytes: Option<Vec<u8>> =
            (0..word.len() / 2).map(|n| u8::from_str_radix(word.get(2 * n..2 * n + 2)?, 16).ok()).collect();
        out.push(bytes.unwrap_or_else(|| panic!("forms.txt: not hexadecimal: {line}")));
    }
    out
}

/// One encoding of every form that decodes in 64-bit mode.
pub fn enumerate() -> Vec<Vec<u8>> {
    let mut found: HashMap<Key, Vec<u8>> = HashMap::new();
    let mut rng = Rng::new(7);
    legacy(&mut rng, &mut found);
    vex(&mut rng, &mut found);
    evex(&mut rng, &mut found);
    let mut forms: Vec<(Key, Vec<u8>)> = found.into_iter().collect();
    forms.sort();
    forms.into_iter().map(|(_, bytes)| bytes).collect()
}

/// Keeps `bytes`, cut to the instruction they begin with, if it is a new form.
fn offer(bytes: &[u8], found: &mut HashMap<Key, Vec<u8>>) {
    let mut decoder = Decoder::with_ip(64, bytes, 0x1000_0000, DecoderOptions::NONE);
    let instruction = decoder.decode();
    if instruction.code() != Code::INVALID {
        found.entry(key(&instruction)).or_insert_with(|| bytes[..instruction.len()].to_vec());
    }
}

/// Operand bytes: ModRM, SIB where asked for, a small displacement, and some bytes for immediates.
fn operands(rng: &mut Rng, reg: u8, rm: u8, shape: u8) -> Vec<u8> {
    let disp = (rng.below(96) as u8).wrapping_sub(48) & 0xF8;
    let mut out = match shape {
        0 => vec![0xC0 | reg << 3 | rm],
        // [base + disp8] with a base that is neither rsp (a SIB follows) nor the register operand.
        1 => vec![0x40 | reg << 3 | if rm == 4 || rm == reg { 3 + u8::from(reg == 3) * 2 } else { rm }, disp],
        // [base + index * scale + disp8]
        2 => {
            let index = if rm == 4 { 6 } else { rm };
            let base = (index + 1 + rng.below(7) as u8) & 7;
            vec![0x44 | reg << 3, (rng.below(4) as u8) << 6 | index << 3 | base, disp]
        }
        // [rip + disp32]
        _ => vec![reg << 3 | 5, 0x10, 0, 0, 0],
    };
    out.push([0, 1, 2, 3, 5, 8, 0x11, 0x1B, 0x40, 0x81, 0xE4, 0xFF][rng.below(12) as usize]);
    out.extend([rng.next() as u8 & 0x0F, 0, 0, 0, 0, 0, 0]);
    out
}

fn legacy(rng: &mut Rng, found: &mut HashMap<Key, Vec<u8>>) {
    const PREFIXES: [&[u8]; 8] = [&[], &[0x66], &[0xF3], &[0xF2], &[0x66, 0xF2], &[0x66, 0xF3], &[0xF0], &[0xF3, 0x67]];
    const MAPS: [&[u8]; 4] = [&[], &[0x0F], &[0x0F, 0x38], &[0x0F, 0x3A]];
    for prefix in PREFIXES {
        for rex in [0x40u8, 0x48, 0x45, 0] {
            for map in MAPS {
                for opcode in 0..=255u8 {
                    for memory in [false, true] {
                        // All 64 register combinations where they select instructions, else each value of reg twice.
                        let selects = matches!((map.len(), opcode), (0, 0xD8..=0xDF) | (1, 0x01 | 0xAE | 0xC7 | 0x1E));
                        let (start, step) = (rng.below(64) as u8, if selects { 29 } else { 41 });
                        for n in 0..if selects { 64 } else { 16u8 } {
                            let combination = start.wrapping_add(n.wrapping_mul(step)) & 63;
                            let mut bytes = addressing_prefix(rng, memory);
                            bytes.extend(prefix);
                            if rex != 0 {
                                bytes.push(rex | if rex == 0x40 { rng.next() as u8 & 5 } else { 0 });
                            }
                            bytes.extend(map);
                            bytes.push(opcode);
                            let shape = if memory { addressing(rng) } else { 0 };
                            bytes.extend(operands(rng, combination >> 3, combination & 7, shape));
                            offer(&bytes, found);
                        }
                    }
                }
            }
        }
    }
}

/// An addressing mode for a memory operand, as [`operands`] numbers them.
fn addressing(rng: &mut Rng) -> u8 {
    [1, 1, 2, 2, 3][rng.below(5) as usize]
}

/// Now and then, a prefix for 32-bit addresses, fs or gs.
fn addressing_prefix(rng: &mut Rng, memory: bool) -> Vec<u8> {
    if memory && rng.one_in(8) { vec![[0x67, 0x64, 0x65][rng.below(3) as usize]] } else { vec![] }
}

fn vex(rng: &mut Rng, found: &mut HashMap<Key, Vec<u8>>) {
    for (lead, maps) in [(0xC4u8, [1u8, 2, 3, 7]), (0x8F, [8, 9, 10, 10])] {
        for map in maps {
            for bits in 0..16u8 {
                for opcode in 0..=255u8 {
                    for memory in [false, true] {
                        for n in 0..12u8 {
                            let inverted = rng.next() as u8 & 0xE0;
                            let shape = if memory { addressing(rng) } else { 0 };
                            let second = if memory { inverted | 0x60 } else { inverted } | map;
                            // Some instructions want vvvv to be 1111, that is unused.
                            let register = if n < 6 { 0x78 } else { (rng.next() as u8 & 0xF) << 3 };
                            let third = (bits >> 3) << 7 | register | bits & 7;
                            let mut bytes = addressing_prefix(rng, memory);
                            bytes.extend([lead, second, third, opcode]);
                            bytes.extend(operands(rng, n.wrapping_mul(3) & 7, n.wrapping_add(opcode) & 7, shape));
                            offer(&bytes, found);
                        }
                    }
                }
            }
        }
    }
}

fn evex(rng: &mut Rng, found: &mut HashMap<Key, Vec<u8>>) {
    for map in [1u8, 2, 3, 5, 6] {
        for bits in 0..8u8 {
            for tail in 0..16u8 {
                for opcode in 0..=255u8 {
                    for memory in [false, true] {
                        for n in 0..6u8 {
                            let inverted = rng.next() as u8 & 0xF0;
                            let shape = if memory { addressing(rng) } else { 0 };
                            let first = if memory { inverted | 0x60 } else { inverted } | map;
                            let register = if n < 3 { 0x78 } else { (rng.next() as u8 & 0xF) << 3 };
                            let second = (bits >> 2) << 7 | register | 4 | bits & 3;
                            // tail: bit 0 z, bit 1 b, bit 2 masked or not, with the length from n and bit 3.
                            let length = (n + (tail >> 3)) % 3;
                            let mask = if tail & 4 != 0 { 1 + rng.below(7) as u8 } else { 0 };
                            let third = (tail & 1) << 7 | length << 5 | (tail & 2) << 3 | 8 | mask;
                            let mut bytes = addressing_prefix(rng, memory);
                            bytes.extend([0x62, first, second, third, opcode]);
                            let reg = rng.below(8) as u8;
                            bytes.extend(operands(rng, reg, n.wrapping_add(opcode) & 7, shape));
                            offer(&bytes, found);
                        }
                    }
                }
            }
        }
    }
}
