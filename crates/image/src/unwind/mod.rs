//! Backtraces: from where a thread stopped, which function called which.
//!
//! Each step goes by the call frame information of the image that holds the code (see `cfi`). Where there is none, the
//! frame pointer or the word on top of the stack is followed if it leads to an instruction after a call; frames found so
//! are marked [`Origin::Guess`].
//!
//! Guarantees: at most the number of frames asked for; each frame lies above the one it called, unless a signal came
//! in between, so no loop is followed.
//! May miss: what is not kept is not shown: registers that a callee may overwrite are in doubt in its callers. Frames of
//! code that no image describes are guesses, and a guess can skip a function that has no frame pointer.
//! Source: DWARF 5, section 6.4; System V ABI, AMD64 supplement, section 3.2.2.

mod cfi;

use crate::address::Bias;
use crate::evaluate::Machine;
use crate::image::Location;
use crate::process::{Register, Registers, Stopped, read_array, read_word};
use crate::return_address::{LONGEST_CALL, ends_with_call};
pub(crate) use cfi::{Cfi, Step};
use model::GuestAddr;

/// The calls that led to a place, the innermost first.
#[derive(Clone, Debug)]
pub struct Backtrace {
    pub frames: Vec<StackFrame>,
    pub end: End,
}

/// Why a backtrace has no further frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The last frame has no caller: it is where the thread began.
    Outermost,
    /// Nothing says how to find the caller.
    NoInformation,
    /// The stack contradicts itself: a caller would lie below its callee.
    Inconsistent,
    /// There are more frames than were asked for.
    Limit,
}

/// One frame of the stack. Functions inlined there share it: see [`Location::frames`].
#[derive(Clone, Debug)]
pub struct StackFrame {
    /// The next instruction; in a caller, where the call returns to.
    pub pc: GuestAddr,
    /// A byte of the instruction that is under way: in a caller, the last one of the call.
    pub at: GuestAddr,
    /// The value of the stack pointer before the call that made this frame; unknown in a last frame.
    pub cfa: Option<GuestAddr>,
    pub registers: Registers,
    pub origin: Origin,
    /// Was it made by the kernel to call a signal handler? Such a frame runs no code until the handler returns.
    pub trampoline: bool,
    /// The number of the image among [`Stopped::images`].
    pub image: Option<usize>,
    pub location: Location,
}

/// How a frame was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The thread's own registers.
    Thread,
    /// The callee's call frame information.
    CallFrame,
    /// The frame that the kernel made for a signal: the place that the signal interrupted.
    Signal,
    /// The frame pointer, or a word on the stack that looks like a return address. It may be wrong.
    Guess,
}

/// The registers of one frame, for expressions of the image it runs in.
struct FrameMachine<'p> {
    process: &'p dyn Stopped,
    registers: &'p Registers,
    bias: Bias,
}

impl Machine for FrameMachine<'_> {
    fn read(&self, at: GuestAddr, to: &mut [u8]) -> usize {
        self.process.read(at, to)
    }

    fn register(&self, register: Register) -> Option<u64> {
        self.registers.get(register)
    }

    fn vector(&self, _: u16) -> Option<[u8; 16]> {
        None
    }

    fn relocate(&self, at: u64) -> GuestAddr {
        self.bias.to_guest(crate::ImageOffset(at))
    }
}

/// The stack of `process`: at most `limit` frames.
pub fn backtrace(process: &dyn Stopped, limit: usize) -> Backtrace {
    let mut frames: Vec<StackFrame> = Vec::new();
    let mut next = Some((Registers::of(process), Origin::Thread));
    let mut end = End::Outermost;
    while let Some((registers, origin)) = next.take() {
        let Some(pc) = registers.pc() else { break };
        // Signal handlers may run on a stack of their own, below or above.
        let may_move = frames.last().is_none_or(|f| f.trampoline);
        let below = frames.last().and_then(|f| f.cfa);
        if frames.len() >= limit {
            end = End::Limit;
            break;
        }
        let mut frame = open(process, pc, registers, origin);
        let step = step(process, &frame);
        frame.cfa = step.as_ref().map(|(s, _)| s.cfa);
        frame.trampoline = step.as_ref().is_some_and(|(s, _)| s.signal);
        let grows = frame.cfa.is_none_or(|cfa| may_move || below.is_none_or(|below| cfa > below));
        if !grows {
            // The frame itself is real; what lies beyond it is not.
            frame.cfa = None;
            frames.push(frame);
            end = End::Inconsistent;
            break;
        }
        let known_end = frame.cfa.is_some();
        frames.push(frame);
        match step {
            Some((step, origin)) if step.caller.pc().is_some_and(|pc| pc.0 != 0) => {
                next = Some((step.caller, if step.signal { Origin::Signal } else { origin }));
            }
            _ => end = if known_end { End::Outermost } else { End::NoInformation },
        }
    }
    Backtrace { frames, end }
}

/// A frame as far as its registers tell.
fn open(process: &dyn Stopped, pc: GuestAddr, registers: Registers, origin: Origin) -> StackFrame {
    let is_exact = matches!(origin, Origin::Thread | Origin::Signal);
    // A call may be the last instruction of its function, so the address after it may belong to the next one.
    let at = if is_exact { pc } else { GuestAddr(pc.0.wrapping_sub(1)) };
    let found = process.images().at(at);
    let location = found.as_ref().map(|(_, l, offset)| l.image.locate(*offset)).unwrap_or_default();
    let image = found.map(|(index, ..)| index);
    StackFrame { pc, at, cfa: None, registers, origin, trampoline: false, image, location }
}

fn step(process: &dyn Stopped, frame: &StackFrame) -> Option<(Step, Origin)> {
    if let Some((_, loaded, at)) = process.images().at(frame.at) {
        let machine = FrameMachine { process, registers: &frame.registers, bias: loaded.bias };
        if let Some(step) = loaded.image.cfi().step(at.0, &frame.registers, &machine) {
            return Some((step, Origin::CallFrame));
        }
    }
    guess(process, frame).map(|step| (step, Origin::Guess))
}

/// The value of the stack pointer before the call of the function at `pc`, by its call frame information.
pub(crate) fn cfa(process: &dyn Stopped, pc: GuestAddr, registers: &Registers) -> Option<GuestAddr> {
    let (_, loaded, at) = process.images().at(pc)?;
    loaded.image.cfi().cfa(at.0, &FrameMachine { process, registers, bias: loaded.bias })
}

/// The caller by the conventions of compilers, where nothing describes the code.
fn guess(process: &dyn Stopped, frame: &StackFrame) -> Option<Step> {
    let rsp = frame.registers.get(Register::RSP)?;
    let rbp = frame.registers.get(Register::RBP);
    let innermost = matches!(frame.origin, Origin::Thread | Origin::Signal);
    // How far into `push rbp; mov rbp, rsp` the frame is: before the first, between the two, behind both.
    let pushed = frame_pointer_state(process, frame);
    let by_stack = |skip: u64| {
        let slot = rsp.wrapping_add(skip);
        let rbp = if skip == 0 { rbp } else { read_word(process, GuestAddr(rsp)) };
        caller_at(process, slot, rbp, frame)
    };
    let by_frame_pointer = || {
        let rbp = rbp.filter(|rbp| *rbp >= rsp && rbp % 8 == 0)?;
        caller_at(process, rbp.wrapping_add(8), read_word(process, GuestAddr(rbp)), frame)
    };
    match pushed {
        Some(0) if innermost => by_stack(0),
        Some(1) if innermost => by_stack(8),
        Some(_) => by_frame_pointer(),
        None if innermost => by_stack(0).or_else(by_frame_pointer),
        None => by_frame_pointer(),
    }
}

/// The caller whose return address lies at `slot`, if that is one.
fn caller_at(process: &dyn Stopped, slot: u64, rbp: Option<u64>, frame: &StackFrame) -> Option<Step> {
    let pc = read_word(process, GuestAddr(slot))?;
    let before: [u8; LONGEST_CALL as usize] = read_array(process, GuestAddr(pc.wrapping_sub(LONGEST_CALL)))?;
    if !ends_with_call(&before) {
        return None;
    }
    let cfa = GuestAddr(slot.wrapping_add(8));
    let mut caller = frame.registers.for_caller();
    caller.set(Register::RBP, rbp);
    caller.set(Register::RSP, Some(cfa.0));
    caller.set(Register::RIP, Some(pc));
    Some(Step { cfa, caller, signal: false })
}

/// How many of the two instructions that set up a frame pointer have run; `None` for a function without them.
fn frame_pointer_state(process: &dyn Stopped, frame: &StackFrame) -> Option<u32> {
    const PROLOGUE: [u8; 4] = [0x55, 0x48, 0x89, 0xe5];
    const ENDBR: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    frame.location.function.as_ref()?;
    let start = frame.at.0.checked_sub(frame.location.offset_in_function)?;
    let bytes: [u8; 8] = read_array(process, GuestAddr(start))?;
    let skip = if bytes.starts_with(&ENDBR) { 4 } else { 0 };
    if !bytes[skip..].starts_with(&PROLOGUE) {
        return None;
    }
    let first = start.wrapping_add(skip as u64);
    Some(if frame.at.0 <= first {
        0
    } else if frame.at.0 <= first.wrapping_add(1) {
        1
    } else {
        2
    })
}
