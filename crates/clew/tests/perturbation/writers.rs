//! Who wrote each byte last: the plainest notion of a dependence, with whole instructions and without any cleverness.

use super::course::{Changed, bits_of};
use slice::insn::{Control, Place};
use slice::{Executed, RegId};
use std::collections::HashMap;

const NOBODY: u32 = u32::MAX;
/// The status flags that can be changed.
const STATUS: u64 = 0x8d5;

/// Last writers of registers, by thread, and of memory; steps by number.
#[derive(Default)]
pub struct Writers {
    registers: HashMap<u32, Vec<[u32; 64]>>,
    memory: HashMap<u64, [u32; 8]>,
}

impl Writers {
    /// The step wrote what its instruction defines.
    pub fn note(&mut self, e: &Executed<'_>, step: usize) {
        let step = step as u32;
        let registers = self.registers.entry(e.thread).or_insert_with(|| vec![[NOBODY; 64]; 63]);
        for def in e.code.parts.iter().flat_map(|p| &p.defs) {
            match def.place {
                Place::Reg(reg) => {
                    let slots = registers[usize::from(reg.0)].iter_mut().enumerate();
                    slots.filter(|(n, _)| def.mask >> n & 1 != 0).for_each(|(_, slot)| *slot = step);
                }
                Place::Mem(n) => {
                    let Some((at, len)) = e.touched.get(usize::from(n)).copied() else { continue };
                    for byte in at..at.saturating_add(len.min(1 << 16)) {
                        self.memory.entry(byte >> 3).or_insert([NOBODY; 8])[(byte & 7) as usize] = step;
                    }
                }
            }
        }
    }

    /// Who made what an instruction reads, and where it read it.
    pub fn of_reads(&self, e: &Executed<'_>) -> Vec<(usize, Changed)> {
        let mut found: Vec<(usize, Changed)> = Vec::new();
        let none = vec![[NOBODY; 64]; 63];
        let registers = self.registers.get(&e.thread).unwrap_or(&none);
        let reads = e.code.reads.iter().chain(&e.code.decides).chain(e.code.parts.iter().flat_map(|p| &p.uses));
        for u in reads {
            match u.place {
                Place::Reg(RegId::RSP) => {}
                // Another outcome of a branch is another path, which says nothing.
                Place::Reg(RegId::FLAGS) if e.code.control == Control::Branch => {}
                Place::Reg(reg) => {
                    for (writer, mask) in grouped(&registers[usize::from(reg.0)], u.mask) {
                        found.extend(register(reg, mask).map(|c| (writer as usize, c)));
                    }
                }
                Place::Mem(n) => {
                    let Some((at, len)) = e.touched.get(usize::from(n)).copied() else { continue };
                    for byte in at..at.saturating_add(len.min(4096)) {
                        let writer = self.memory.get(&(byte >> 3)).map_or(NOBODY, |w| w[(byte & 7) as usize]);
                        match found.last_mut() {
                            _ if writer == NOBODY => {}
                            Some((w, Changed::Mem(start, n))) if *w == writer as usize && *start + *n == byte => {
                                *n += 1
                            }
                            _ => found.push((writer as usize, Changed::Mem(byte, 1))),
                        }
                    }
                }
            }
        }
        found.dedup();
        found
    }
}

/// For each writer which of the bytes in `mask` it wrote last.
fn grouped(slots: &[u32; 64], mask: u64) -> Vec<(u32, u64)> {
    let mut groups: Vec<(u32, u64)> = Vec::new();
    for n in (0..64).filter(|n| mask >> n & 1 != 0 && slots[*n as usize] != NOBODY) {
        let writer = slots[n as usize];
        match groups.iter_mut().find(|(w, _)| *w == writer) {
            Some((_, bytes)) => *bytes |= 1 << n,
            None => groups.push((writer, 1 << n)),
        }
    }
    groups
}

fn register(reg: RegId, mask: u64) -> Option<Changed> {
    match reg {
        r if r.is_gpr() => Some(Changed::Reg(r.0, bits_of(mask))),
        RegId::FLAGS if mask & STATUS != 0 => Some(Changed::Flags(mask & STATUS)),
        r if (16..32).contains(&r.0) && mask & 0xffff != 0 => Some(Changed::Vector(r.0 - 16, mask & 0xffff)),
        _ => None,
    }
}
