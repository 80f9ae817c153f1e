//! Ways out of a stretch of code, so that a step over a line with a loop need not stop at every instruction.

use iced_x86::{Decoder, DecoderOptions, FlowControl};
use std::ops::Range;

/// Addresses at which a guest that runs within `range` must be stopped so that it cannot leave unseen: where direct
/// branches lead outside, what follows, and every instruction that can lead anywhere.
pub fn exits(code: &[u8], range: &Range<u64>) -> Vec<u64> {
    let mut exits = vec![range.end];
    for i in Decoder::with_ip(64, code, range.start, DecoderOptions::NONE).iter() {
        match i.flow_control() {
            FlowControl::Next => {}
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch | FlowControl::Call => {
                exits.push(i.near_branch_target());
            }
            // What it leads to is known only there.
            _ => exits.push(i.ip()),
        }
        if i.is_invalid() {
            exits.push(i.ip());
        }
    }
    let inside = |code: &[u8], at: u64| {
        let own = Decoder::with_ip(64, code, range.start, DecoderOptions::NONE).iter().find(|i| i.ip() == at);
        own.is_some_and(|i| {
            use FlowControl::{Call, ConditionalBranch, Next, UnconditionalBranch};
            matches!(i.flow_control(), Next | ConditionalBranch | UnconditionalBranch | Call) && !i.is_invalid()
        })
    };
    // A branch to within the range is no way out.
    exits.retain(|at| !range.contains(at) || !inside(code, *at));
    exits.sort_unstable();
    exits.dedup();
    exits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_exits(code: &[u8], expected: &[u64]) {
        assert_eq!(exits(code, &(0x1000..0x1000 + code.len() as u64)), expected);
    }

    #[test]
    fn a_loop_is_left_at_its_end() {
        // dec ecx; jnz 0x1000
        check_exits(&[0xff, 0xc9, 0x75, 0xfc], &[0x1004]);
    }

    #[test]
    fn calls_and_jumps_lead_out_and_returns_are_looked_at() {
        // call 0x2000; jmp 0x1009; nop; nop; ret
        check_exits(&[0xe8, 0xfb, 0x0f, 0, 0, 0xeb, 0x02, 0x90, 0x90, 0xc3], &[0x1009, 0x100a, 0x2000]);
    }
}
