//! Which branches decide whether a loop goes on: those that jump back.
//!
//! Compilers put the condition of a loop behind its body, whether they optimise or not.
//! May miss: loops that are left in the middle, and those of compilers that test first.

use iced_x86::{Decoder, DecoderOptions, Instruction};
use model::GuestAddr;
use session::Session;
use std::collections::HashSet;

const LONGEST: usize = 15;

/// Those of these branches that jump back, in memory as it is now.
pub fn among(branches: impl Iterator<Item = u64>, session: &Session) -> HashSet<u64> {
    branches.filter(|pc| jumps_back(*pc, session)).collect()
}

fn jumps_back(pc: u64, session: &Session) -> bool {
    decode(pc, session).is_some_and(|branch| branch.is_jcc_short_or_near() && branch.near_branch_target() < pc)
}

/// The instruction at an address, in memory as it is now.
pub fn decode(pc: u64, session: &Session) -> Option<Instruction> {
    let mut bytes = [0; LONGEST];
    let n = session.read(GuestAddr(pc), &mut bytes).ok()?;
    let instruction = Decoder::with_ip(64, &bytes[..n], pc, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then_some(instruction)
}
