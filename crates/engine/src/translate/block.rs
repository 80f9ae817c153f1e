//! One whole block: check, countdown, counter, trace record and the instructions themselves, in order.

use super::decode::{Decoded, Ending};
use super::emit::{BlockState, Emitter, EventKind, Translation};
use super::liveness::{self, CodeAt};
use super::{Request, copy, terminator, traced};
use model::Mode;

/// Translates `block`, whose bytes are `bytes`, into `t`.
pub fn translate(
    request: &Request,
    block: &Decoded,
    bytes: &[u8],
    e: &mut Emitter,
    code: &mut CodeAt<'_>,
    t: &mut Translation,
) {
    t.clear();
    t.guest_len = (block.end - request.pc) as u32;
    t.instructions = block.insns.len() as u32;
    let guest = &bytes[..t.guest_len as usize];
    if request.indirect_entry {
        terminator::indirect_check(t, request.pc);
    }
    t.body = t.asm.here();
    if let Some(counter) = request.probe_counter {
        terminator::probe_countdown(t, counter, request.pc);
    }
    t.after_probe = t.asm.here();

    let mut state = BlockState { request, reserved: 0, trace_regs: None };
    let counter = request.counter.map(|c| (c, counter_slot(block, e, code)));
    if let Some((c, None)) = counter {
        terminator::count(t, c, false);
        t.event(EventKind::Counted, 0);
    }
    if request.mode == Mode::Trace && !block.insns.is_empty() {
        traced::begin(t, e, block, &mut state);
    }
    let plain = match block.ending {
        Some(Ending::Cut) => block.insns.len(),
        _ => block.insns.len().saturating_sub(1),
    };
    let mut at = 0;
    for (k, i) in block.insns.iter().enumerate() {
        t.event(EventKind::Instruction, i.len() as u8);
        if let Some((c, Some(slot))) = counter
            && slot == k
        {
            t.asm.inc_gs_flags(c);
            t.event(EventKind::Counted, 0);
        }
        if state.trace_regs.is_some() {
            traced::before(t, e, &state, k);
        }
        if k < plain {
            copy::instruction(t, e, &state, block, k, &guest[at..at + i.len()]);
            if state.trace_regs.is_some() {
                traced::after(t, e, &state, k);
            }
        }
        at += i.len();
    }
    traced::end(t, &mut state);
    terminator::emit(t, e, &state, block, code);
}

/// Before which instruction the counter may write flags; `None`: nowhere, it must save them by not touching them.
fn counter_slot(block: &Decoded, e: &mut Emitter, code: &mut CodeAt<'_>) -> Option<usize> {
    let last = block.insns.last()?;
    liveness::dead_slot(block, false).or_else(|| {
        // Worth a look into the successors only when the block itself leaves the flags alone.
        let reads_first = block.summaries.iter().any(|s| s.flags_read.0 & isa::Flags::STATUS.0 != 0);
        (!reads_first && liveness::dead_after(last, block.end, &mut e.isa, code)).then_some(0)
    })
}
