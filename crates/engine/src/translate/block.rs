//! One whole block: entry for indirect branches, countdown, counter, trace record and the instructions themselves, in order.

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
        terminator::direct_entry(t);
    }
    t.body = t.asm.here();
    if let Some(counter) = request.probe_counter {
        terminator::probe_countdown(t, counter, request.pc);
    }
    t.after_probe = t.asm.here();

    let mut state = BlockState { request, reserved: 0, last_counter: None, trace_regs: None };
    let counter = request.counter.map(|c| (c, counter_slot(block, e, code)));
    if let Some((c, None)) = counter
        && let (Some(Ending::Transfer), Some(last)) = (&block.ending, block.insns.last())
        && terminator::uses_rcx(request, last)
    {
        state.last_counter = Some(c);
    } else if let Some((c, None)) = counter {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::Lookup;
    use crate::translate::{Key, MAX_INSTRUCTIONS, decode_block};
    use alloc::vec::Vec;

    fn request(pc: u64, mode: Mode) -> Request {
        Request {
            pc,
            mode,
            ticks: crate::state::ticks(mode, true),
            indirect_entry: true,
            lookup: Lookup::of(pc),
            max_instructions: MAX_INSTRUCTIONS,
            probe_counter: None,
            block_id: 7,
            counter: (mode == Mode::Count).then_some(0x100_0000),
            taken_counter: None,
            virtual_time: false,
        }
    }

    /// Code of the block at `pc` made from `bytes`, with every field that a relocation names blanked.
    fn without_relocations(bytes: &'static [u8], pc: u64, mode: Mode) -> Vec<u8> {
        let request = request(pc, mode);
        let (mut e, mut block, mut t) = (Emitter::default(), Decoded::default(), Translation::default());
        decode_block(&request, bytes, &mut e.isa, &mut |_| false, &mut block);
        translate(&request, &block, bytes, &mut e, &mut |_| None, &mut t);
        for r in &t.relocs {
            t.asm.bytes[r.at as usize..][..4].fill(0);
        }
        core::mem::take(&mut t.asm.bytes)
    }

    /// A translation refers to where it came from only through its relocations, in every mode; images lie at pages.
    fn check_relocatable(bytes: &'static [u8]) {
        for mode in [Mode::None, Mode::Tick, Mode::Count, Mode::Trace] {
            let here = without_relocations(bytes, 0x5555_5555_5000, mode);
            let there = without_relocations(bytes, 0x5555_4123_4000, mode);
            assert_eq!(here, there, "{bytes:x?} in mode {mode:?}");
        }
        let key = |pc, mode| Key::of(bytes, &request(pc, mode)).unwrap();
        assert_eq!(key(1, Mode::None).content, key(2, Mode::None).content);
        assert_ne!(key(1, Mode::None), key(1, Mode::Tick));
        assert_eq!(Key::of(bytes, &Request { probe_counter: Some(0), ..request(1, Mode::None) }), None);
    }

    #[test]
    fn translations_can_be_moved() {
        check_relocatable(&[0x8b, 0x05, 0x10, 0, 0, 0, 0xc3]); // mov eax, [rip+0x10]; ret
        check_relocatable(&[0x50, 0xe8, 0x20, 0, 0, 0]); // push rax; call +0x20
        check_relocatable(&[0xe8, 0xe0, 0xff, 0xff, 0xff]); // call -0x20
        check_relocatable(&[0x48, 0xff, 0xc8, 0x75, 0xfb]); // dec rax; jne -5
        check_relocatable(&[0x74, 0x10]); // je +0x10
        check_relocatable(&[0xff, 0x15, 0x30, 0, 0, 0]); // call [rip+0x30]
        check_relocatable(&[0x0f, 0x05]); // syscall
        check_relocatable(&[0xe2, 0xfe]); // loop -2
        check_relocatable(&[0x48, 0x8b, 0x04, 0xcb, 0xeb, 0x02]); // mov rax, [rbx+rcx*8]; jmp +2
    }
}
