//! The two questions, asked of one instruction form in many random states.
//!
//! 1. *Nothing undeclared is written*: after an execution, every bit outside the declared outputs is as before.
//! 2. *Nothing undeclared is read*: a second execution, from a state in which every bit outside the declared inputs has
//!    been changed at random, ends the same way and gives the same declared outputs.
//!
//! Memory has a third: operands placed across the edge of the arena fault exactly if a declared byte lies beyond it.

use std::io;
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use isa::Effects;
use nix::sys::signal::Signal;

use crate::child::{Child, INSTRUCTION, NEAR_LANDING, Stop};
use crate::declared::{self, Declared};
use crate::image::{self, ARENA, ARENA_SIZE, Image};
use crate::place::{self, Where};
use crate::rng::Rng;

/// si_code of a fault on an address that is not mapped.
const NOT_MAPPED: i32 = 1;

/// What came of one form.
pub enum Outcome {
    /// It ran in this many pairs of states and agreed with what is declared.
    Agreed(u32),
    /// It never ran to its end; this is how it stopped.
    NeverRan(Stop),
    /// It did something that is not declared.
    Violated(String),
}

/// A form ready to run.
pub struct Form {
    /// Its bytes, with displacement and branch target fitted to the child.
    pub bytes: Vec<u8>,
    /// The same, decoded at its address in the child.
    pub instruction: Instruction,
}

/// Decodes `bytes` at the place where the child will run them.
fn decode(bytes: &[u8]) -> (Instruction, iced_x86::ConstantOffsets) {
    let mut decoder = Decoder::with_ip(64, bytes, INSTRUCTION, DecoderOptions::NONE);
    let instruction = decoder.decode();
    let offsets = decoder.get_constant_offsets(&instruction);
    (instruction, offsets)
}

/// Fits displacement and branch target of `raw` to the child; `None` if it is no instruction.
pub fn fit(raw: &[u8]) -> Option<Form> {
    let (instruction, offsets) = decode(raw);
    if instruction.is_invalid() || instruction.len() != raw.len() {
        return None;
    }
    let mut bytes = raw.to_vec();
    let mut patch =
        |at: usize, len: usize, value: u64| bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
    let has_memory = instruction.op_kinds().any(|kind| kind == OpKind::Memory);
    if has_memory && offsets.has_displacement() {
        let (at, len) = (offsets.displacement_offset(), offsets.displacement_size());
        let middle = ARENA + ARENA_SIZE as u64 / 2;
        let disp = instruction.memory_displacement64() as i64;
        let has_base = matches!(instruction.segment_prefix(), Register::FS | Register::GS);
        if instruction.is_ip_rel_memory_operand() {
            // With a segment base, the base makes up for the distance to the arena.
            let target = if has_base { 0x1000 } else { middle };
            patch(at, len, target.wrapping_sub(instruction.next_ip()));
        } else if instruction.memory_base() == Register::None && instruction.memory_index() == Register::None {
            patch(at, len, if has_base { 0x40 } else { middle });
        } else if len >= 4 && !(-1024..=1024).contains(&disp) {
            patch(at, len, (disp as u64 & 0xFF).wrapping_sub(0x80));
        }
    }
    if instruction.op0_kind() == OpKind::NearBranch64 && offsets.has_immediate() {
        patch(offsets.immediate_offset(), offsets.immediate_size(), NEAR_LANDING - instruction.next_ip());
    }
    if instruction.mnemonic() == Mnemonic::Enter {
        // A frame that fits into the arena.
        patch(offsets.immediate_offset(), 2, u64::from(instruction.immediate16()) & 0x3F8);
    }
    let (instruction, _) = decode(&bytes);
    Some(Form { bytes, instruction })
}

/// Runs `form`, which is said to have these effects, in random states until `pairs` pairs agreed, or it is clear that it
/// cannot run.
pub fn check(child: &mut Child, form: &Form, effects: &Effects, rng: &mut Rng, pairs: u32) -> io::Result<Outcome> {
    child.load(&form.bytes)?;
    let (mut agreed, mut tries, mut last) = (0, 0, Stop::FellThrough);
    while agreed < pairs && tries < 5 * pairs + 20 {
        tries += 1;
        let place = if tries % 3 == 0 && !effects.mem.is_empty() { Where::AtEdge } else { Where::Inside };
        let state = place::state(child, &form.instruction, effects, rng, place);
        let noise = Rng::new(rng.next());
        match pair(child, form, effects, &state, noise.clone())? {
            Pair::Agreed => agreed += 1,
            Pair::Stopped(stop) => {
                last = stop;
                if agreed == 0 && matches!(stop, Stop::Signal(Signal::SIGILL, ..)) && tries > 3 {
                    break;
                }
            }
            Pair::Violated(message) => {
                if repeats(child, form, effects, &state, &noise)? {
                    return Ok(Outcome::Violated(describe(&message, effects, &state)));
                }
            }
        }
    }
    Ok(if agreed > 0 { Outcome::Agreed(agreed) } else { Outcome::NeverRan(last) })
}

/// What came of one pair of executions.
enum Pair {
    Agreed,
    /// The first did not run to its end.
    Stopped(Stop),
    Violated(String),
}

/// How often a violation must be seen again.
const REPEATS: usize = 3;

/// Does the same violation of a pair show each time?
///
/// What an instruction really reads or writes shows always. A state that the system lost between two executions does not: AMD's
/// `xrstor` leaves the x87 pointers as whatever ran last set them, and `fnstenv` stores them.
fn repeats(child: &mut Child, form: &Form, effects: &Effects, state: &Image, noise: &Rng) -> io::Result<bool> {
    for _ in 0..REPEATS {
        if !matches!(pair(child, form, effects, state, noise.clone())?, Pair::Violated(_)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Executes the form in a state and in another that differs from it in what is not declared to be read.
fn pair(child: &mut Child, form: &Form, effects: &Effects, state: &Image, mut noise: Rng) -> io::Result<Pair> {
    let before = declared::resolve(effects, state, None);
    let (stop, after) = child.run(state)?;
    if let Some(message) = wrong_fault(&form.instruction, &before, stop) {
        return Ok(Pair::Violated(message));
    }
    if let Stop::Signal(..) = stop {
        return Ok(Pair::Stopped(stop));
    }
    let exact = declared::resolve(effects, state, Some(&after));
    if let Some(message) = undeclared_write(child, &exact, state, &after, stop) {
        return Ok(Pair::Violated(message));
    }
    let read = undeclared_read(child, &exact, (state, &after, stop), &mut noise)?;
    Ok(read.map_or(Pair::Agreed, Pair::Violated))
}

fn describe(message: &str, effects: &Effects, state: &Image) -> String {
    let used: Vec<String> = (0..16).map(|n| format!("{:x}", state.gpr(n))).collect();
    format!("{message}\n    declared: {effects:?}\n    gprs: {}", used.join(" "))
}

/// True if every declared byte is in the arena.
fn fits(declared: &Declared) -> bool {
    declared.ranges.iter().all(|range| range.len == 0 || outside(range.start, range.len) == 0)
}

/// How many of the bytes are outside the arena.
fn outside(start: u64, len: u64) -> usize {
    (0..len).filter(|n| Image::offset_of(start.wrapping_add(*n)).is_none()).count()
}

/// Compares the fault, or its absence, with the declared memory.
fn wrong_fault(instruction: &Instruction, declared: &Declared, stop: Stop) -> Option<String> {
    let certain = declared.ranges.iter().any(|range| !range.maybe && outside(range.start, range.len) > 0);
    match stop {
        Stop::Signal(Signal::SIGSEGV, NOT_MAPPED, _) if fits(declared) && !checks_more(instruction) => {
            Some("faults although all declared memory is mapped".to_string())
        }
        Stop::Signal(..) => None,
        _ if certain => Some(format!("does not fault although declared memory is not mapped: {:x?}", declared.ranges)),
        _ => None,
    }
}

/// Instructions that want memory to be accessible without reading or writing it.
fn checks_more(instruction: &Instruction) -> bool {
    use Mnemonic as M;
    match instruction.mnemonic() {
        // "A page fault occurs if a write using the final value of the stack pointer would cause one" (SDM, ENTER).
        M::Enter => true,
        // "If the mask is all zeros, exceptions associated with addressing memory may still be signaled"
        // (SDM, MASKMOVDQU): whether unselected bytes are checked is left to the processor.
        M::Maskmovq | M::Maskmovdqu | M::Vmaskmovdqu => true,
        // Exception class E6NF: the store is masked, but faults of unselected lanes are not suppressed.
        M::Vextractf32x4 | M::Vextractf32x8 | M::Vextractf64x2 | M::Vextractf64x4 => true,
        M::Vextracti32x4 | M::Vextracti32x8 | M::Vextracti64x2 | M::Vextracti64x4 => true,
        // The whole area of 512 bytes is checked, its reserved end is neither read nor written.
        M::Fxsave | M::Fxsave64 | M::Fxrstor | M::Fxrstor64 => true,
        // The length of the area depends on edx:eax; the test only makes room for the components that it sets.
        M::Xsave | M::Xsave64 | M::Xsaveopt | M::Xsaveopt64 | M::Xsavec | M::Xsavec64 | M::Xrstor | M::Xrstor64 => true,
        _ => false,
    }
}

/// Bytes that are compared at a time: where nothing happened, a block is passed over at once.
const BLOCK: usize = 64;

/// Calls `look` with every byte of the blocks for which `interesting` holds, until it returns something.
fn find<T>(interesting: impl Fn(Range<usize>) -> bool, look: impl FnMut(usize) -> Option<T>) -> Option<T> {
    (0..image::SIZE)
        .step_by(BLOCK)
        .map(|start| start..(start + BLOCK).min(image::SIZE))
        .filter(|block| interesting(block.clone()))
        .flatten()
        .find_map(look)
}

/// The first byte that changed without being declared.
fn undeclared_write(child: &Child, declared: &Declared, state: &Image, after: &Image, stop: Stop) -> Option<String> {
    if stop != Stop::FellThrough && !declared.jumps {
        return Some(format!("control went elsewhere: {stop:x?}"));
    }
    let changed_block = |block: Range<usize>| state.0[block.clone()] != after.0[block];
    find(changed_block, |at| {
        let changed = (state.0[at] ^ after.0[at]) & !declared.write.0[at] & child.kept.0[at];
        (changed != 0).then(|| {
            let (old, new) = (state.0[at], after.0[at]);
            format!("writes {} bits {changed:#04x} undeclared ({old:02x} -> {new:02x})", image::name(at))
        })
    })
}

/// One execution: the state before and after, and how it ended.
type Run<'a> = (&'a Image, &'a Image, Stop);

/// Runs again with every undeclared input changed; says which of them mattered.
fn undeclared_read(
    child: &mut Child,
    declared: &Declared,
    first: Run<'_>,
    rng: &mut Rng,
) -> io::Result<Option<String>> {
    let (state, ..) = first;
    let mut noise = Image::zero();
    rng.fill(&mut noise.0[..]);
    for at in 0..image::SIZE {
        let changeable = child.settable.0[at] & !declared.read.0[at];
        noise.0[at] = state.0[at] & !changeable | noise.0[at] & changeable;
    }
    let (stop, after) = child.run(&noise)?;
    let Some(difference) = differs(child, declared, first, (&noise, &after, stop)) else {
        return Ok(None);
    };
    // Find one input that suffices, for the message.
    for (start, end) in units() {
        let mut single = state.clone();
        single.0[start..end].copy_from_slice(&noise.0[start..end]);
        let (stop, after) = child.run(&single)?;
        if let Some(found) = differs(child, declared, first, (&single, &after, stop)) {
            return Ok(Some(format!("{found} depends on {} undeclared", image::name(start))));
        }
    }
    Ok(Some(format!("{difference} depends on something undeclared")))
}

/// Pieces of the state, to name the one that mattered.
fn units() -> Vec<(usize, usize)> {
    let pieces = [
        (image::GPR..image::VEC, 1),
        (image::VEC..image::MASK, 4),
        (image::MASK..image::X87, 1),
        (image::X87..image::FLAGS, 10),
        (image::FLAGS..image::MXCSR, 1),
        (image::MXCSR..image::SELECTORS, 4),
        (image::FS_BASE..image::MEMORY, 8),
        (image::MEMORY..image::SIZE, 8),
    ];
    pieces.into_iter().flat_map(|(range, size)| range.step_by(size).map(move |at| (at, at + size))).collect()
}

/// The first declared output in which two executions differ, or the first undeclared write of the second.
fn differs(child: &Child, declared: &Declared, one: Run<'_>, two: Run<'_>) -> Option<String> {
    if one.2 != two.2 {
        return Some(format!("the end ({:x?}, {:x?})", one.2, two.2));
    }
    const NOTHING: [u8; BLOCK] = [0; BLOCK];
    let eventful = |block: Range<usize>| {
        let same = one.1.0[block.clone()] == two.1.0[block.clone()];
        let unwritten = declared.write.0[block.clone()] == NOTHING[..block.len()];
        two.0.0[block.clone()] != two.1.0[block] || !(same || unwritten)
    };
    find(eventful, |at| {
        let kept = !(one.0.0[at] ^ one.1.0[at]) & !(two.0.0[at] ^ two.1.0[at]);
        let ignored = declared.free.0[at] | declared.conditional.0[at] & kept;
        let different = (one.1.0[at] ^ two.1.0[at]) & declared.write.0[at] & !ignored & child.kept.0[at];
        let undeclared = (two.0.0[at] ^ two.1.0[at]) & !declared.write.0[at] & child.kept.0[at];
        if different != 0 {
            let (first, second) = (one.1.0[at], two.1.0[at]);
            return Some(format!("{} bits {different:#04x} ({first:02x} or {second:02x})", image::name(at)));
        }
        (undeclared != 0).then(|| format!("a write to {} bits {undeclared:#04x}", image::name(at)))
    })
}
