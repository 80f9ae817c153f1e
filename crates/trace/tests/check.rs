//! The checker: streams that can be and streams that cannot, with what it says about them beside them.

use model::GuestAddr;
use model::wire::BlockDef;
use trace::check::Checker;
use trace::decode::Decoder;
use trace::format::{MAX_SPECIAL, Partial, Special};
use trace::plan::{BlockPlan, Planner};

/// Block 0: push rbp; mov rbp, rsp; mov [rbp-8], rdi; call 0x2000
const CALLER: (u64, &[u8]) = (0x1000, &[0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0x7d, 0xf8, 0xe8, 0xf3, 0x0f, 0, 0]);
/// Block 1, the callee: mov rax, [rsp]; mov rcx, [rbp]; rep stosb; ret
const CALLEE: (u64, &[u8]) = (0x2000, &[0x48, 0x8b, 0x04, 0x24, 0x48, 0x8b, 0x4d, 0x00, 0xf3, 0xaa, 0xc3]);
/// Block 2, after the call: leave; syscall
const REST: (u64, &[u8]) = (0x100d, &[0xc9, 0x0f, 0x05]);
/// Block 3, a handler: jne 0x3000; fs access
const HANDLER: (u64, &[u8]) = (0x3000, &[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0, 0x75, 0xf5]);

fn block(id: u32, slots: &[u64]) -> Vec<u8> {
    let (pc, code) = [CALLER, CALLEE, REST, HANDLER][id as usize];
    let mut plan = BlockPlan::new();
    let decoder = iced_x86::Decoder::with_ip(64, code, pc, iced_x86::DecoderOptions::NONE);
    Planner::new().plan(&decoder.into_iter().collect::<Vec<_>>(), &mut plan);
    let mut out = plan.tag(id).to_le_bytes().to_vec();
    out.extend(slots.iter().flat_map(|s| s.to_le_bytes()));
    assert_eq!(out.len(), plan.record_bytes() as usize);
    out
}

fn partial(id: u32, completed: u32, slots: &[u64], rcx: u64) -> Vec<u8> {
    let mut out = Partial::head(id, completed, 8 * slots.len() as u32).to_vec();
    out.extend(slots.iter().flat_map(|s| s.to_le_bytes()));
    out.extend(rcx.to_le_bytes());
    out
}

fn special(s: Special) -> Vec<u8> {
    let mut bytes = [0; MAX_SPECIAL];
    let len = s.encode(&mut bytes);
    bytes[..len].to_vec()
}

/// What the checker says about the trace, one finding per line.
fn check_findings(records: &[Vec<u8>], expected: &str) {
    let (mut decoder, mut checker) = (Decoder::new(), Checker::new());
    for (id, (pc, code)) in [CALLER, CALLEE, REST, HANDLER].into_iter().enumerate() {
        let def = BlockDef { id: id as u32, pc: GuestAddr(pc), bytes: code.to_vec() };
        decoder.block(&def).unwrap();
        checker.block(&def).unwrap();
    }
    decoder.buffer(&records.concat(), &mut checker).unwrap();
    let (findings, count) = checker.findings();
    assert_eq!(count, findings.len() as u64);
    let lines: Vec<String> = findings.iter().map(|f| f.to_string()).collect();
    assert_eq!(lines.join("\n"), expected);
}

const STACK: u64 = 0x7000;

fn call() -> Vec<u8> {
    block(0, &[STACK])
}

#[test]
fn a_call_and_its_return() {
    // The callee's rsp and rbp follow from the caller's push.
    let callee = block(1, &[STACK - 24 + 8, STACK - 8, 0x5000, 4]);
    let rest = block(2, &[STACK - 8]);
    let syscall = special(Special::Syscall { pc: 0x100e, nr: 1, result: 0 });
    check_findings(&[call(), callee, rest, syscall], "");
}

#[test]
fn a_register_that_changes_without_reason() {
    let callee = block(1, &[STACK - 32, STACK - 8, 0x5000, 4]);
    check_findings(&[call(), callee], "event 8, thread 0, 0x2000: address 0x6fe0 should be 0x6ff0");
}

#[test]
fn an_instruction_that_does_not_follow() {
    check_findings(&[call(), block(2, &[STACK - 8])], "event 7, thread 0, 0x100d: does not follow from 0x1008");
    check_findings(
        &[block(3, &[]), block(3, &[]), block(2, &[1])],
        "event 6, thread 0, 0x100d: does not follow from 0x3009",
    );
}

#[test]
fn an_address_outside_user_space() {
    let callee = block(1, &[STACK - 16, STACK - 8, 0xffff_8000_0000_0000, 4]);
    check_findings(&[call(), callee], "event 12, thread 0, 0x2008: 0xffff800000000000 is not a user address");
}

#[test]
fn signals_and_partial_blocks() {
    let signal = |pc| special(Special::Signal { signo: 11, pc, handler: 0x3000 });
    let back = |pc| special(Special::SigReturn { pc, df: false });
    // A rep string is stopped in the middle, and resumed by a block of its own that is not here: nothing follows.
    let stopped = partial(1, 2, &[STACK - 16, STACK - 8, 0x5000, 4], 1);
    check_findings(&[call(), stopped.clone(), signal(0x2008), block(3, &[]), back(0x2008)], "");
    check_findings(&[call(), stopped, signal(0x2004)], "event 13, thread 0, 0x2004: does not follow from 0x2008");
    // A fault before the third instruction of the caller; the handler returns elsewhere.
    let faulted = partial(0, 2, &[STACK], 0);
    check_findings(&[faulted.clone(), signal(0x1004), block(3, &[]), back(0x2000), block(1, &[9, 8, 7, 6])], "");
    check_findings(&[faulted, block(3, &[])], "event 3, thread 0, 0x3000: does not follow from 0x1001");
}

#[test]
fn threads_are_followed_one_by_one() {
    let thread = |tid| special(Special::Thread { tid, fs_base: 0x100, gs_base: 0 });
    let callee = |stack| block(1, &[stack - 16, stack - 8, 0x5000, 4]);
    check_findings(
        &[thread(1), call(), thread(2), block(0, &[0x9000]), thread(1), callee(STACK), thread(2), callee(0x9000)],
        "",
    );
    check_findings(
        &[thread(1), call(), thread(2), callee(0x9000), thread(1), block(2, &[STACK - 8])],
        "event 18, thread 1, 0x100d: does not follow from 0x1008",
    );
}

#[test]
fn system_calls_that_were_not_made() {
    let syscall = |pc| special(Special::Syscall { pc, nr: 1, result: 0 });
    check_findings(&[syscall(0x100e)], "");
    check_findings(&[call(), syscall(0x100e)], "event 7, thread 0, 0x100e: the thread made no system call there");
}

#[test]
fn a_new_window_may_begin_anywhere() {
    check_findings(&[call(), special(Special::End), block(2, &[STACK])], "");
}
