//! Who calls whom: direct callees, observed targets of computed calls, imports, and functions whose address is taken.
//!
//! The callees of one function come from its code. Functions whose address is taken are found by reading all code from
//! the start of each range to its end, and all words of data: every function that a computed call can reach in a program
//! that does not compute code addresses is among them, if the relocations' targets were given.

use std::collections::BTreeSet;
use std::sync::Arc;

use iced_x86::{Instruction, Mnemonic, OpKind};

use crate::function::{CallSite, CallTarget, Function};
use crate::view::Flow;

/// What a function calls, tail calls included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Callees {
    /// Functions of this image, called directly or seen to be called, sorted.
    pub functions: Vec<u64>,
    /// Names of functions of other images, sorted.
    pub imports: Vec<String>,
    /// There are computed calls, whose targets are those that were observed and perhaps others.
    pub computed: bool,
    /// There are calls through slots whose names are not known.
    pub unknown_slots: bool,
}

impl Flow {
    /// What the function that contains `pc` calls. Stubs of the linkage table are looked through.
    pub fn callees(&mut self, pc: u64) -> Option<Callees> {
        let function = self.function(pc)?;
        let mut functions = BTreeSet::new();
        let mut imports = BTreeSet::new();
        let mut out = Callees::default();
        for call in &function.calls {
            let target = match call.target {
                CallTarget::Direct(to) => match self.function(to).as_deref().and_then(stub_slot) {
                    Some(slot) => CallTarget::Slot(slot),
                    None => call.target,
                },
                other => other,
            };
            match target {
                CallTarget::Direct(to) => {
                    functions.insert(to);
                }
                CallTarget::Slot(slot) => match self.extents.import(slot) {
                    Some(name) => {
                        imports.insert(name.to_owned());
                    }
                    None => out.unknown_slots = true,
                },
                CallTarget::Computed => {
                    out.computed = true;
                    functions.extend(self.observed_targets(call.pc));
                }
            }
        }
        out.functions = functions.into_iter().collect();
        out.imports = imports.into_iter().collect();
        Some(out)
    }

    /// Adds addresses that relocations put into data: they count as words of data.
    pub fn with_pointers(mut self, pointers: Vec<u64>) -> Flow {
        self.pointers = pointers;
        self
    }

    /// Starts of known functions whose address is taken somewhere: candidates for computed calls that were not seen to go
    /// anywhere. Reads the whole image once.
    pub fn address_taken(&mut self) -> Arc<[u64]> {
        if let Some(known) = &self.address_taken {
            return known.clone();
        }
        let mut found = BTreeSet::new();
        for range in self.memory.code_ranges() {
            let mut at = range.start;
            let end = range.start.saturating_add(range.bytes.len() as u64);
            while at < end {
                let before = at;
                for instruction in self.memory.instructions(at) {
                    found.extend(taken(&instruction));
                    at = instruction.next_ip();
                }
                // What is no instruction is passed byte by byte.
                at = at.max(before).saturating_add(1);
            }
        }
        for range in self.memory.data_ranges() {
            let skew = (range.start.wrapping_neg() % 8) as usize;
            let words = range.bytes.get(skew..).unwrap_or_default().chunks_exact(8);
            found.extend(words.filter_map(|w| w.try_into().ok().map(u64::from_le_bytes)));
        }
        found.extend(&self.pointers);
        found.retain(|addr| self.extents.at(*addr).is_some());
        let found: Arc<[u64]> = found.into_iter().collect();
        self.address_taken = Some(found.clone());
        found
    }
}

/// The slot that a function jumps through, if it does nothing else.
fn stub_slot(function: &Function) -> Option<u64> {
    match function.calls[..] {
        [CallSite { target: CallTarget::Slot(slot), tail: true, .. }] if function.blocks.len() == 1 => Some(slot),
        _ => None,
    }
}

/// An address that an instruction makes available without going there.
fn taken(instruction: &Instruction) -> Option<u64> {
    match instruction.mnemonic() {
        Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => Some(instruction.ip_rel_memory_address()),
        Mnemonic::Mov | Mnemonic::Push => {
            let last = instruction.op_count().checked_sub(1)?;
            match instruction.op_kind(last) {
                OpKind::Immediate32 | OpKind::Immediate64 | OpKind::Immediate32to64 => {
                    instruction.try_immediate(last).ok()
                }
                _ => None,
            }
        }
        _ => None,
    }
}
