//! The bytes of an image, by address, and the instructions in them.

use std::sync::Arc;

use iced_x86::{Decoder, DecoderOptions, Instruction};

/// Consecutive bytes of an image: an executable section, or a section with constants.
#[derive(Clone, Debug)]
pub struct CodeRange {
    /// Image address of the first byte.
    pub start: u64,
    /// The bytes.
    pub bytes: Arc<[u8]>,
}

impl CodeRange {
    fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes.len() as u64)
    }

    fn from(&self, addr: u64) -> Option<&[u8]> {
        self.bytes.get(usize::try_from(addr.checked_sub(self.start)?).ok()?..).filter(|rest| !rest.is_empty())
    }
}

/// All bytes that are known of an image.
#[derive(Debug, Default)]
pub struct Memory {
    code: Vec<CodeRange>,
    data: Vec<CodeRange>,
}

impl Memory {
    pub fn new(mut code: Vec<CodeRange>) -> Memory {
        code.sort_by_key(|r| r.start);
        Memory { code, data: Vec::new() }
    }

    pub fn add_data(&mut self, data: Vec<CodeRange>) {
        self.data.extend(data);
        self.data.sort_by_key(|r| r.start);
    }

    /// The code from `addr` to the end of its range.
    pub fn code(&self, addr: u64) -> Option<&[u8]> {
        covering(&self.code, addr)?.from(addr)
    }

    /// One past the last address of the code range around `addr`.
    pub fn code_end(&self, addr: u64) -> Option<u64> {
        covering(&self.code, addr).map(CodeRange::end)
    }

    pub fn code_ranges(&self) -> &[CodeRange] {
        &self.code
    }

    pub fn data_ranges(&self) -> &[CodeRange] {
        &self.data
    }

    /// `len` bytes from `addr` on, of code or data.
    pub fn bytes(&self, addr: u64, len: usize) -> Option<&[u8]> {
        let within = |ranges| covering(ranges, addr).and_then(|r: &CodeRange| r.from(addr)?.get(..len));
        within(&self.data).or_else(|| within(&self.code))
    }

    /// The instructions from `addr` on, one after the other, up to the end of the range or the first bytes that are none.
    pub fn instructions(&self, addr: u64) -> impl Iterator<Item = Instruction> + '_ {
        let mut decoder = Decoder::with_ip(64, self.code(addr).unwrap_or_default(), addr, DecoderOptions::NONE);
        std::iter::from_fn(move || {
            if !decoder.can_decode() {
                return None;
            }
            let instruction = decoder.decode();
            // An address near the top may not wrap: then `next_ip` would lie before the instruction.
            (!instruction.is_invalid() && instruction.next_ip() > instruction.ip()).then_some(instruction)
        })
    }

    pub fn instruction(&self, addr: u64) -> Option<Instruction> {
        self.instructions(addr).next()
    }
}

fn covering(ranges: &[CodeRange], addr: u64) -> Option<&CodeRange> {
    let after = ranges.partition_point(|r| r.start <= addr);
    ranges[..after].iter().rev().find(|r| addr < r.end())
}
