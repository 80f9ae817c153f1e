//! Tests of seccomp filters: small programs with their verdicts.

use super::*;

fn op(code: u16, k: u32) -> Insn {
    Insn { code, jt: 0, jf: 0, k }
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> Insn {
    Insn { code, jt, jf, k }
}

/// A call whose words are all different, so that a wrong offset shows.
fn data() -> Data {
    let arg = |i: u64| (0x1000 + i) << 32 | (0x2000 + i);
    Data { nr: 59, arch: ARCH_X86_64, ip: 0x7fff_0000_1234, args: [arg(0), arg(1), arg(2), arg(3), arg(4), arg(5)] }
}

/// Expects what the program returns for [`data`].
#[track_caller]
fn check_run(program: &[Insn], expected: u32) {
    assert_eq!(Filter::new(program.to_vec()).unwrap().run(&data()), expected);
}

#[track_caller]
fn check_invalid(program: &[Insn], expected: Invalid) {
    assert_eq!(Filter::new(program.to_vec()).unwrap_err(), expected);
}

/// Expects the accumulator after an operation with accumulator `a` and index register `x`.
#[track_caller]
fn check_arithmetic(a: u32, x: u32, insn: Insn, expected: u32) {
    check_run(&[op(LDX_IMM, x), op(LD_IMM, a), insn, op(RET_A, 0)], expected);
}

#[test]
fn words_of_the_data() {
    let word = |offset| Filter::new(vec![op(LD_ABS, offset), op(RET_A, 0)]).unwrap().run(&data());
    let all: Vec<u32> = (0..64).step_by(4).map(word).collect();
    let mut expected = vec![59, ARCH_X86_64, 0x1234, 0x7fff];
    for i in 0..6 {
        expected.extend([0x2000 + i, 0x1000 + i]);
    }
    assert_eq!(all, expected);
    let negative = Data { nr: -1, ..data() };
    assert_eq!(Filter::new(vec![op(LD_ABS, 0), op(RET_A, 0)]).unwrap().run(&negative), u32::MAX);
}

#[test]
fn arithmetic_wraps() {
    check_arithmetic(5, 0, op(ADD_K, u32::MAX), 4);
    check_arithmetic(5, 7, op(ADD_X, 0), 12);
    check_arithmetic(5, 0, op(SUB_K, 6), u32::MAX);
    check_arithmetic(5, 7, op(SUB_X, 0), u32::MAX - 1);
    check_arithmetic(0x8000_0001, 0, op(MUL_K, 2), 2);
    check_arithmetic(6, 7, op(MUL_X, 0), 42);
    check_arithmetic(43, 0, op(DIV_K, 7), 6);
    check_arithmetic(43, 7, op(DIV_X, 0), 6);
    check_arithmetic(0b1100, 0, op(AND_K, 0b1010), 0b1000);
    check_arithmetic(0b1100, 0b1010, op(AND_X, 0), 0b1000);
    check_arithmetic(0b1100, 0, op(OR_K, 0b1010), 0b1110);
    check_arithmetic(0b1100, 0b1010, op(OR_X, 0), 0b1110);
    check_arithmetic(0b1100, 0, op(XOR_K, 0b1010), 0b0110);
    check_arithmetic(0b1100, 0b1010, op(XOR_X, 0), 0b0110);
    check_arithmetic(3, 0, op(LSH_K, 31), 0x8000_0000);
    check_arithmetic(3, 33, op(LSH_X, 0), 6);
    check_arithmetic(0x8000_0000, 0, op(RSH_K, 31), 1);
    check_arithmetic(6, 33, op(RSH_X, 0), 3);
    check_arithmetic(1, 0, op(NEG, 0), u32::MAX);
}

#[test]
fn registers_start_at_zero_and_division_by_zero_kills() {
    check_run(&[op(RET_A, 0)], 0);
    check_run(&[op(TXA, 0), op(RET_A, 0)], 0);
    check_run(&[op(LD_IMM, 5), op(DIV_X, 0), op(RET_K, ALLOW)], 0);
    check_run(&[op(LD_LEN, 0), op(RET_A, 0)], 64);
    check_run(&[op(LDX_LEN, 0), op(TXA, 0), op(RET_A, 0)], 64);
}

#[test]
fn cells_keep_values() {
    check_run(&[op(LD_IMM, 7), op(ST, 15), op(LD_IMM, 0), op(LD_MEM, 15), op(RET_A, 0)], 7);
    check_run(&[op(LDX_IMM, 8), op(STX, 0), op(LDX_IMM, 0), op(LDX_MEM, 0), op(TXA, 0), op(RET_A, 0)], 8);
    check_run(&[op(LD_IMM, 9), op(TAX, 0), op(LD_IMM, 0), op(TXA, 0), op(RET_A, 0)], 9);
}

/// Expects whether the jump with accumulator 5 is taken.
#[track_caller]
fn check_jump(code: u16, value: u32, taken: bool) {
    for insn in [jump(code, value, 1, 0), jump(code | 8, 0, 1, 0)] {
        check_run(&[op(LDX_IMM, value), op(LD_IMM, 5), insn, op(RET_K, 0), op(RET_K, 1)], taken.into());
    }
}

#[test]
fn jumps_compare_without_sign() {
    for (value, equal, greater, greater_or_equal) in
        [(4, false, true, true), (5, true, false, true), (6, false, false, false), (u32::MAX, false, false, false)]
    {
        check_jump(JEQ_K, value, equal);
        check_jump(JGT_K, value, greater);
        check_jump(JGE_K, value, greater_or_equal);
    }
    check_jump(JSET_K, 4, true);
    check_jump(JSET_K, 2, false);
    check_run(&[op(JA, 1), op(RET_K, 0), op(RET_K, 1)], 1);
}

#[test]
fn invalid_programs_are_refused() {
    let ret = op(RET_K, ALLOW);
    check_invalid(&[], Invalid::Length(0));
    check_invalid(&vec![ret; MAX_LEN + 1], Invalid::Length(MAX_LEN + 1));
    assert!(Filter::new(vec![ret; MAX_LEN]).is_ok());
    check_invalid(&[op(LD_IMM, 0)], Invalid::NoReturn);
    // Half words, bytes, indirect loads, remainders, returning X, and codes with stray bits.
    for code in [0x28, 0x30, 0x40, 0x48, 0x50, 0xb1, 0x94, 0x9c, 0x0e, 0x106, 0xffff] {
        check_invalid(&[op(code, 0), ret], Invalid::Code { at: 0, code });
    }
    for (code, k) in [(LD_ABS, 64), (LD_ABS, 2), (LD_ABS, 0xffff_f000), (DIV_K, 0), (LSH_K, 32), (RSH_K, 32)] {
        check_invalid(&[op(code, k), ret], Invalid::Constant { at: 0 });
    }
    for code in [LD_MEM, LDX_MEM, ST, STX] {
        check_invalid(&[ret, op(code, 16), ret], Invalid::Constant { at: 1 });
    }
    check_invalid(&[op(JA, 1), ret], Invalid::Jump { at: 0 });
    check_invalid(&[op(JA, u32::MAX), ret], Invalid::Jump { at: 0 });
    check_invalid(&[jump(JEQ_K, 0, 1, 0), ret], Invalid::Jump { at: 0 });
    check_invalid(&[jump(JEQ_K, 0, 0, 1), ret], Invalid::Jump { at: 0 });
    check_invalid(&[jump(JEQ_K, 0, 0, 0)], Invalid::Jump { at: 0 });
}

#[test]
fn cells_must_be_written_on_every_path() {
    let ret = op(RET_K, 0);
    check_invalid(&[op(LD_MEM, 3), ret], Invalid::Unset { at: 0 });
    check_invalid(&[op(ST, 3), op(LDX_MEM, 4), ret], Invalid::Unset { at: 1 });
    // Written on one side only.
    check_invalid(&[jump(JEQ_K, 0, 0, 1), op(ST, 3), op(LD_MEM, 3), ret], Invalid::Unset { at: 2 });
    // Written on both sides.
    let both = [jump(JEQ_K, 0, 0, 2), op(ST, 3), op(JA, 1), op(STX, 3), op(LD_MEM, 3), ret];
    assert!(Filter::new(both.to_vec()).is_ok());
}

#[test]
fn usual_filter_by_number_and_architecture() {
    let filter = Filter::new(vec![
        op(LD_ABS, 4),
        jump(JEQ_K, ARCH_X86_64, 1, 0),
        op(RET_K, 0x8000_0000),
        op(LD_ABS, 0),
        jump(JEQ_K, 59, 0, 1),
        op(RET_K, 0x0005_0001),
        op(RET_K, ALLOW),
    ])
    .unwrap();
    let of = |nr, arch| Action::of(filter.run(&Data { nr, arch, ..data() }));
    assert_eq!(of(59, ARCH_X86_64), Action::Errno(1));
    assert_eq!(of(60, ARCH_X86_64), Action::Allow);
    assert_eq!(of(59, 0x4000_0003), Action::KillProcess);
}

#[test]
fn actions_are_decoded() {
    for (verdict, action) in [
        (0x8000_0000, Action::KillProcess),
        (0x0000_0007, Action::KillThread),
        (0x0003_0007, Action::Trap(7)),
        (0x0005_0007, Action::Errno(7)),
        (0x0005_ffff, Action::Errno(4095)),
        (0x7fc0_0000, Action::Notify(0)),
        (0x7ff0_0007, Action::Trace(7)),
        (0x7ffc_0000, Action::Log),
        (0x7fff_0007, Action::Allow),
        (0x1234_0000, Action::KillProcess),
    ] {
        assert_eq!(Action::of(verdict), action, "{verdict:#x}");
    }
}

/// Filters that always return the given values, oldest first; expects the combined verdict.
#[track_caller]
fn check_chain(verdicts: &[u32], expected: u32) {
    let mut filters = Filters::default();
    for &v in verdicts {
        assert!(filters.push(Filter::new(vec![op(RET_K, v)]).unwrap()));
    }
    assert_eq!(filters.run(&data()), expected);
}

#[test]
fn most_severe_verdict_wins() {
    check_chain(&[], ALLOW);
    check_chain(&[ALLOW, 0x0005_0001], 0x0005_0001);
    check_chain(&[0x0005_0001, ALLOW], 0x0005_0001);
    check_chain(&[0x0005_0001, 0x0005_0002], 0x0005_0002);
    check_chain(&[0, 0x8000_0000, 0x0003_0000], 0x8000_0000);
}

#[test]
fn chains_are_limited_and_shared() {
    let long = || Filter::new(vec![op(RET_K, ALLOW); MAX_LEN]).unwrap();
    let mut filters = Filters::default();
    for _ in 0..7 {
        assert!(filters.push(long()));
    }
    assert!(!filters.push(long()));
    let older = filters.clone();
    assert!(filters.push(Filter::new(vec![op(RET_K, 0)]).unwrap()));
    assert!(older.is_ancestor_of(&filters) && !filters.is_ancestor_of(&older));
    assert!(Filters::default().is_ancestor_of(&filters) && filters.is_ancestor_of(&filters.clone()));
    let mut other = Filters::default();
    assert!(other.push(long()));
    assert!(!other.is_ancestor_of(&filters));
}

#[test]
fn random_programs_end_without_panic() {
    let mut random = crate::load::elf::tests::Random(3);
    let mut accepted = 0;
    let codes = [LD_IMM, LD_ABS, LD_MEM, ST, TAX, TXA, ADD_X, DIV_X, LSH_X, NEG, JA, JEQ_K, JGT_X, RET_K, RET_A];
    for _ in 0..20_000 {
        let len = 1 + random.below(12);
        let program = (0..len).map(|i| Insn {
            code: if i + 1 == len { RET_A } else { codes[random.below(codes.len())] },
            jt: random.below(4) as u8,
            jf: random.below(4) as u8,
            k: random.below(8) as u32,
        });
        if let Ok(filter) = Filter::new(program.collect()) {
            accepted += 1;
            filter.run(&data());
        }
    }
    assert!(accepted > 1_000, "{accepted}");
}
