//! Where the six status flags are dead, so that inserted code may write them.
//!
//! Backward over one block, with a short look ahead into direct successors. Conservative: anything unknown is live.
//! An instruction counts as a killer only if it overwrites the flag on every execution (`Summary::flags_kill`).

use super::decode::Decoded;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use isa::{Flags, Isa};

const LOOK_AHEAD: usize = 8;
/// No look ahead reads more bytes.
pub const LOOK_AHEAD_BYTES: u64 = LOOK_AHEAD as u64 * 15;

/// Gives the code bytes at an address, as far as they may be read.
pub type CodeAt<'a> = dyn FnMut(u64) -> Option<&'static [u8]> + 'a;

/// Are all status flags dead on entry to `pc`?
pub fn dead_at(pc: u64, isa: &mut Isa, code: &mut CodeAt<'_>) -> bool {
    let Some(bytes) = code(pc) else { return false };
    let mut d = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE);
    let mut live = Flags::STATUS.0;
    for _ in 0..LOOK_AHEAD {
        let i = d.decode();
        if i.is_invalid() {
            return false;
        }
        let s = isa.summary(&i);
        if s.flags_read.0 & live != 0 {
            return false;
        }
        live &= !s.flags_kill.0;
        if live == 0 {
            return true;
        }
        if i.flow_control() != FlowControl::Next {
            return false;
        }
    }
    false
}

/// Index of an instruction before which all status flags are dead, the last such one; `None` if there is none.
pub fn dead_slot(block: &Decoded, dead_after: bool) -> Option<usize> {
    let mut live = if dead_after { 0 } else { Flags::STATUS.0 };
    let mut found = None;
    for (k, s) in block.summaries.iter().enumerate().rev() {
        live = (live & !s.flags_kill.0) | (s.flags_read.0 & Flags::STATUS.0);
        if live == 0 {
            found = Some(k);
            break;
        }
    }
    found
}

/// Are the flags dead after the block's last instruction on every way out?
pub fn dead_after(last: &Instruction, end: u64, isa: &mut Isa, code: &mut CodeAt<'_>) -> bool {
    match last.flow_control() {
        FlowControl::ConditionalBranch => {
            last.is_jcc_short_or_near() && dead_at(last.near_branch_target(), isa, code) && dead_at(end, isa, code)
        }
        FlowControl::UnconditionalBranch => dead_at(last.near_branch_target(), isa, code),
        FlowControl::Call => dead_at(last.near_branch_target(), isa, code),
        FlowControl::Next => dead_at(end, isa, code),
        _ => false,
    }
}
