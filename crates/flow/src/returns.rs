//! Which functions never return.
//!
//! By name (`abort`, `__assert_fail`, `longjmp`, …; the linkage table's stubs by the slot they jump through), and by
//! code: a function returns if a `ret`, or an indirect jump to somewhere unknown, can be reached from its entry over
//! direct jumps and over calls that return. The walk stops at the first such place, so it is short for most functions.
//!
//! Calls in a cycle are taken to return while the cycle is examined, so the answer is the greatest fixed point and does
//! not depend on where one begins to ask. What exceeds the budget is taken to return: then dead code behind a call
//! looks alive, which adds edges to a graph but loses none.

use std::collections::{HashMap, HashSet};

use iced_x86::{Code, FlowControl, Instruction, OpKind};

use crate::code::Memory;
use crate::extents::Extents;

/// Instructions that one question may look at.
const BUDGET: usize = 100_000;
/// Calls inside calls that one question may follow.
const DEPTH: usize = 200;
/// Instructions that all questions together may look at.
const BUDGET_OF_ALL: usize = 50_000_000;

/// Functions that never come back to their caller, by name.
const NEVER_RETURN: &[&str] = &[
    "abort",
    "exit",
    "_exit",
    "_Exit",
    "quick_exit",
    "pthread_exit",
    "thrd_exit",
    "__assert",
    "__assert_fail",
    "__assert_fail_base",
    "__assert_perror_fail",
    "__stack_chk_fail",
    "__stack_chk_fail_local",
    "__chk_fail",
    "__fortify_fail",
    "__libc_fatal",
    "longjmp",
    "_longjmp",
    "__longjmp",
    "siglongjmp",
    "__libc_longjmp",
    "__libc_siglongjmp",
    "____longjmp_chk",
    "__longjmp_chk",
    "err",
    "errx",
    "verr",
    "verrx",
    "_dl_fatal_printf",
    "__cxa_throw",
    "__cxa_rethrow",
    "__cxa_bad_cast",
    "__cxa_bad_typeid",
    "__cxa_throw_bad_array_length",
    "__cxa_throw_bad_array_new_length",
    "__cxa_pure_virtual",
    "__cxa_deleted_virtual",
    "__cxa_call_unexpected",
    "__cxa_call_terminate",
    "__clang_call_terminate",
    "_Unwind_Resume",
    "_ZSt9terminatev",
    "_ZSt10unexpectedv",
    "rust_begin_unwind",
    "rust_panic",
    "__rust_start_panic",
];

/// Is this the name of a function that never returns? Version and linkage suffixes are ignored.
pub fn is_never_returning_name(name: &str) -> bool {
    let plain = name.split('@').next().unwrap_or(name);
    // std::__throw_length_error(char const*) and its like: `_ZSt`, a length, `__throw_…`.
    let throws = plain
        .strip_prefix("_ZSt")
        .is_some_and(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with("__throw_"));
    NEVER_RETURN.contains(&plain) || throws
}

/// Jump or call through a slot at a fixed address: the slot.
pub fn through_slot(instruction: &Instruction) -> Option<u64> {
    let memory = instruction.op_count() == 1 && instruction.op0_kind() == OpKind::Memory;
    (memory && instruction.is_ip_rel_memory_operand()).then(|| instruction.ip_rel_memory_address())
}

/// Answers, remembered.
#[derive(Debug, Default)]
pub struct Returns {
    known: HashMap<u64, bool>,
    spent: usize,
}

/// A function whose walk is under way.
struct Frame {
    entry: u64,
    work: Vec<u64>,
    seen: HashSet<u64>,
    /// The outermost frame that was taken to return without having been examined to its end.
    assumed: usize,
}

/// How one step of a walk went.
enum Step {
    Returns,
    Exhausted,
    /// First find out about the function that is called by the instruction at `.1`.
    Ask(u64, u64),
}

impl Returns {
    /// Can the function at `entry` return?
    pub fn may_return(&mut self, memory: &Memory, extents: &Extents, entry: u64) -> bool {
        if let Some(known) = self.known.get(&entry) {
            return *known;
        }
        let mut budget = BUDGET.min(BUDGET_OF_ALL.saturating_sub(self.spent));
        let granted = budget;
        let mut frames = vec![Frame::new(entry, 0)];
        let mut answer = true;
        while let Some(depth) = frames.len().checked_sub(1) {
            let Some(frame) = frames.last_mut() else { break };
            let step = if named_never(extents, frame.entry) {
                Step::Exhausted
            } else {
                self.walk(memory, extents, frame, &mut budget)
            };
            match step {
                Step::Ask(callee, call) => {
                    let active = frames.iter().position(|f| f.entry == callee);
                    if active.is_none() && depth < DEPTH {
                        frames.push(Frame::new(callee, depth + 1));
                    } else if let (Some(active), Some(frame)) = (active, frames.last_mut()) {
                        // Taken to return for now: the walk goes on behind the call.
                        frame.assumed = frame.assumed.min(active);
                        frame.pass(memory, call);
                    } else {
                        self.known.insert(callee, true);
                    }
                    continue;
                }
                Step::Returns => answer = true,
                Step::Exhausted => answer = false,
            }
            let Some(frame) = frames.pop() else { break };
            let provisional = answer && frame.assumed < depth && budget > 0;
            if !provisional {
                self.known.insert(frame.entry, answer);
            }
            // The caller's walk stands at the call again; a provisional answer lets it pass.
            if provisional && let Some(caller) = frames.last_mut() {
                caller.assumed = caller.assumed.min(frame.assumed);
                caller.pass_callee(memory, frame.entry);
            }
        }
        self.spent += granted - budget;
        // Whatever was assumed about the outermost question has been settled by its own walk.
        *self.known.entry(entry).or_insert(answer)
    }

    /// Goes on with a walk until it knows, or must know about another function.
    fn walk(&self, memory: &Memory, extents: &Extents, frame: &mut Frame, budget: &mut usize) -> Step {
        while let Some(from) = frame.work.pop() {
            for instruction in memory.instructions(from) {
                let at = instruction.ip();
                if frame.seen.contains(&at) {
                    break;
                }
                if *budget == 0 {
                    return Step::Returns;
                }
                *budget -= 1;
                match next(&instruction) {
                    Next::Falls => {}
                    Next::Returns => return Step::Returns,
                    Next::Stops => {
                        frame.seen.insert(at);
                        break;
                    }
                    Next::Jump(to) => {
                        frame.seen.insert(at);
                        if named_never(extents, to) {
                            break;
                        }
                        frame.work.push(to);
                        break;
                    }
                    Next::Either(to) => frame.work.push(to),
                    Next::ThroughSlot { slot, call } => {
                        let never = extents.import(slot).is_some_and(is_never_returning_name);
                        match (never, call) {
                            (false, false) => return Step::Returns,
                            (true, _) => {
                                frame.seen.insert(at);
                                break;
                            }
                            (false, true) if runs_out(memory, extents, at, instruction.next_ip()) => break,
                            (false, true) => {}
                        }
                    }
                    Next::Call(Some(to)) if to != instruction.next_ip() || extents.at(to).is_some() => {
                        match self.known.get(&to) {
                            Some(true) => {}
                            Some(false) => {
                                frame.seen.insert(at);
                                break;
                            }
                            None => {
                                frame.work.push(at);
                                return Step::Ask(to, at);
                            }
                        }
                    }
                    Next::Call(_) if runs_out(memory, extents, at, instruction.next_ip()) => break,
                    Next::Call(_) => {}
                }
                frame.seen.insert(at);
            }
        }
        Step::Exhausted
    }
}

impl Frame {
    fn new(entry: u64, depth: usize) -> Frame {
        Frame { entry, work: vec![entry], seen: HashSet::new(), assumed: depth }
    }

    /// The call on top of the work returns: go on behind it.
    fn pass(&mut self, memory: &Memory, call: u64) {
        self.work.pop();
        self.seen.insert(call);
        self.work.extend(memory.instruction(call).map(|i| i.next_ip()));
    }

    fn pass_callee(&mut self, memory: &Memory, callee: u64) {
        let Some(call) = self.work.last().copied() else { return };
        let called = memory.instruction(call).filter(|i| matches!(next(i), Next::Call(Some(to)) if to == callee));
        if called.is_some() {
            self.pass(memory, call);
        }
    }
}

fn named_never(extents: &Extents, addr: u64) -> bool {
    extents.at(addr).is_some_and(|e| e.names.iter().any(|n| is_never_returning_name(n)))
}

/// Is a call that ends at `next` the last thing of its function, with nothing but padding behind it? Compilers place
/// nothing after a call only if it does not return.
pub fn runs_out(memory: &Memory, extents: &Extents, call: u64, next: u64) -> bool {
    let Some((_, extent)) = extents.find(call) else { return false };
    if extent.sized {
        return next >= extent.end;
    }
    let mut padding = memory.instructions(next).take_while(|i| i.ip() < extent.end);
    padding.all(|i| i.mnemonic() == iced_x86::Mnemonic::Nop || i.code() == Code::Int3)
}

/// What an instruction does to control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Falls,
    Jump(u64),
    /// On, or there.
    Either(u64),
    /// A call, if direct with its target.
    Call(Option<u64>),
    ThroughSlot {
        slot: u64,
        call: bool,
    },
    /// `ret`, or an indirect jump, which may return.
    Returns,
    /// Nothing follows.
    Stops,
}

pub fn next(instruction: &Instruction) -> Next {
    let near_target = matches!(instruction.op0_kind(), OpKind::NearBranch64 | OpKind::NearBranch32);
    match instruction.flow_control() {
        FlowControl::UnconditionalBranch if near_target => Next::Jump(instruction.near_branch_target()),
        FlowControl::ConditionalBranch if near_target => Next::Either(instruction.near_branch_target()),
        FlowControl::XbeginXabortXend if near_target => Next::Either(instruction.near_branch_target()),
        FlowControl::IndirectBranch => match through_slot(instruction) {
            Some(slot) => Next::ThroughSlot { slot, call: false },
            None => Next::Returns,
        },
        FlowControl::Call if near_target => Next::Call(Some(instruction.near_branch_target())),
        FlowControl::IndirectCall => match through_slot(instruction) {
            Some(slot) => Next::ThroughSlot { slot, call: true },
            None => Next::Call(None),
        },
        FlowControl::Return => Next::Returns,
        FlowControl::Exception => Next::Stops,
        FlowControl::Interrupt if instruction.code() == Code::Int3 => Next::Stops,
        _ if instruction.code() == Code::Hlt => Next::Stops,
        // `syscall` and the like are calls to the kernel for the decoder.
        _ => Next::Falls,
    }
}
