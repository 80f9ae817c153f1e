//! Where branches merge: small functions in assembler, with the expected label beside each branch.

mod common;

use common::{Program, assembled};

/// Checks `branch label → merge label, merge label without code that never returns`.
#[track_caller]
fn check_merges(source: &str, expected: &[(&str, &str, &str)]) -> Program {
    let mut program = assembled(source);
    for (branch, strict, lenient) in expected {
        let at = program.at(branch);
        let function = program.function(branch);
        let got = (program.name(function.merge(at)), program.name(function.merge_ignoring_noreturn(at)));
        assert_eq!(got, ((*strict).to_owned(), (*lenient).to_owned()), "the branch {branch} of\n{source}");
        assert!(function.is_branch(at), "{branch} is a branch");
    }
    program
}

#[test]
fn an_if_merges_behind_its_sides() {
    let mut program = check_merges(
        "fn f
            test edi, edi
         b: je other
            mov eax, 1
            jmp join
         other: mov eax, 2
         join: add eax, 3
            ret
         end f",
        &[("b", "join", "join")],
    );
    let function = program.function("f");
    assert_eq!(function.merge_points(), [program.at("join")]);
    assert!(!function.is_branch(program.at("join")));
    assert!(!function.never_returns());
}

#[test]
fn an_early_return_makes_the_rest_dependent() {
    check_merges(
        "fn f
         b: je out
            inc eax
         c: jne skip
            inc eax
         skip: inc eax
            ret
         out: ret
         end f",
        &[("b", "exit", "exit"), ("c", "skip", "skip")],
    );
}

#[test]
fn a_loop_merges_behind_it_and_its_body_at_its_test() {
    check_merges(
        "fn f
         dec edi
         b: js done
            test edi, 1
         c: je f
            inc eax
            jmp f
         done: ret
         end f",
        &[("b", "done", "done"), ("c", "f", "f")],
    );
}

#[test]
fn loop_and_jrcxz_are_branches() {
    check_merges(
        "fn f
         a: jrcxz done
         again: inc eax
         b: loop again
         behind: inc eax
         done: ret
         end f",
        &[("a", "done", "done"), ("b", "behind", "behind")],
    );
}

#[test]
fn an_abort_counts_only_strictly() {
    let mut program = check_merges(
        "fn f
         b: je bad
         good: inc eax
            ret
         bad: call abort
         end f
         fn abort
            hlt
         end abort",
        &[("b", "exit", "good")],
    );
    let bad = program.at("bad");
    assert_eq!(program.function("f").block(bad).unwrap().ending, flow::Ending::NoReturnCall);
    assert!(program.function("abort").never_returns());
}

#[test]
fn a_wrapper_of_a_function_that_never_returns_never_returns() {
    let mut program = check_merges(
        "fn f
            call outer
         b: je left
            call outer
            inc eax
         left: call fatal
            inc eax
            ret
         end f
         fn outer
            dec edi
         c: js give_up
            call outer
            ret
         give_up: call fatal
         end outer
         fn fatal
         d: je one
            call exit
         one: jmp abort
         end fatal
         fn exit
            ud2
         end exit
         fn abort
            hlt
         end abort",
        &[("b", "left", "left")],
    );
    for (name, never) in [("f", true), ("outer", false), ("fatal", true), ("exit", true), ("abort", true)] {
        assert_eq!(program.function(name).never_returns(), never, "{name}");
    }
}

#[test]
fn calls_in_a_cycle_may_return_if_one_of_them_does() {
    let source = "fn f
            call g
            call abort
         end f
         fn g
            je out
            call f
            inc eax
         out: ret
         end g
         fn h
            call f
            ret
         end h
         fn abort
            hlt
         end abort";
    // The answers must not depend on what is asked first.
    for order in [["f", "g", "h"], ["h", "g", "f"], ["g", "h", "f"]] {
        let mut program = assembled(source);
        let mut got: Vec<(&str, bool)> = order.iter().map(|n| (*n, program.function(n).never_returns())).collect();
        got.sort_unstable();
        assert_eq!(got, [("f", true), ("g", false), ("h", true)], "asked in the order {order:?}");
    }
}

#[test]
fn a_mutual_recursion_that_ends_in_an_abort_never_returns_whatever_is_asked_first() {
    let source = "fn f
            call g
            call abort
         end f
         fn g
            call f
            ret
         end g
         fn abort
            hlt
         end abort";
    for order in [["f", "g"], ["g", "f"]] {
        let mut program = assembled(source);
        for name in order {
            assert!(program.function(name).never_returns(), "{name}, asked in the order {order:?}");
        }
    }
}

#[test]
fn endless_loops_merge_where_the_next_iteration_begins() {
    let mut program = check_merges(
        "fn f
         start: inc eax
         b: je skip
            inc ebx
         skip: inc ecx
         c: jne start
            inc edx
            jmp start
         end f
         fn g
         d: je two
         one: jmp one
         two: jmp two
         end g",
        &[("b", "skip", "skip"), ("c", "f", "f"), ("d", "never", "never")],
    );
    assert!(program.function("f").never_returns());
}

#[test]
fn a_jump_to_another_function_is_a_tail_call() {
    let mut program = check_merges(
        "fn f
         b: je g
            inc eax
         t: jmp g
         end f
         fn g
            ret
         end g",
        &[("b", "exit", "exit")],
    );
    let function = program.function("f");
    let tails: Vec<u64> = function.tail_calls().map(|c| c.pc).collect();
    assert_eq!(tails, [program.at("b"), program.at("t")]);
    assert_eq!(function.callees(), [program.at("g")]);
    assert!(!function.contains(program.at("g")));
}

const MOVED_PART: &str = "fn f
         b: je f.cold
            inc eax
         join: inc eax
            ret
         end f
         fn other
            ret
         end other
         fn f.cold
            inc ebx
         c: jne join
            jmp join
         end f.cold";

#[test]
fn a_part_that_was_moved_away_belongs_to_its_function() {
    let mut program = check_merges(MOVED_PART, &[("b", "join", "join"), ("c", "join", "join")]);
    let cold = program.at("f.cold");
    assert_eq!(program.flow.function(cold).unwrap().entry(), program.at("f"));
    // Also if the part is asked for first.
    let mut program = assembled(MOVED_PART);
    assert_eq!(program.function("c").entry(), program.at("f"));
}

#[test]
fn an_indirect_jump_without_known_targets_leaves_the_function_until_one_is_observed() {
    // As in Fig 5.6 of the specification: a switch whose table is not recognised.
    let mut program = check_merges(
        "fn f
            cmp eax, 3
         b: ja join
         s: jmp rax
         one: inc ebx
            jmp join
         two: inc ecx
            jmp join
         three: inc edx
         join: inc esi
            ret
         end f",
        &[("b", "exit", "exit")],
    );
    let [s, one, two, join] = ["s", "one", "two", "join"].map(|l| program.at(l));
    let before = program.function("f");
    assert!(!before.is_branch(s) && !before.contains(one));
    assert_eq!(before.unresolved(), [s]);
    assert!(program.flow.observe(s, one), "the function's graph changes");
    let after = program.function("f");
    assert!(after.is_branch(s) && after.contains(one) && !after.contains(two));
    assert_eq!((after.merge(program.at("b")), after.merge(s)), (flow::Merge::At(join), flow::Merge::At(one)));
    assert!(program.flow.observe(s, two));
    assert!(!program.flow.observe(s, two), "known already");
    let after = program.function("f");
    assert_eq!(after.merge(s), flow::Merge::At(join));
    assert_eq!(after.block(s).unwrap().successors.len(), 2);
    assert_eq!(program.flow.observed_targets(s), [one, two]);
}

#[test]
fn a_jump_that_was_seen_to_leave_keeps_its_way_out() {
    let mut program = assembled(
        "fn f
         s: jmp rax
         one: ret
         end f
         fn g
            ret
         end g",
    );
    let [s, one, g] = ["s", "one", "g"].map(|l| program.at(l));
    program.flow.observe(s, one);
    assert_eq!(program.function("f").block(s).unwrap().exit, flow::Exit::No);
    assert!(program.flow.observe(s, g));
    let function = program.function("f");
    assert_eq!(function.block(s).unwrap().exit, flow::Exit::Returning);
    assert_eq!(function.merge(s), flow::Merge::Exit);
}

#[test]
fn code_that_the_entry_does_not_reach_becomes_a_further_way_in() {
    let mut program = assembled(
        "fn f
         c: call g
            ret
         pad: inc eax
         b: je out
            inc eax
         out: ret
         end f
         fn g
            ret
         end g",
    );
    let [c, pad, b, out] = ["c", "pad", "b", "out"].map(|l| program.at(l));
    assert!(!program.function("f").contains(pad));
    assert!(program.flow.observe_unwind(c, pad), "an exception was caught");
    let function = program.function("f");
    assert!(function.contains(pad));
    assert_eq!(function.merge(c), flow::Merge::Exit, "where it goes on depends on whether the call throws");
    assert_eq!(function.merge(b), flow::Merge::At(out));

    let mut program = assembled("fn f\nret\npad: inc eax\nret\nend f");
    assert!(program.function("pad").contains(program.at("pad")));
    assert!(program.function("f").contains(program.at("pad")));
}

#[test]
fn without_hints_functions_begin_where_calls_lead() {
    let source = ".globl _start\n.intel_syntax noprefix\n_start: call g\ncall abort\nnop\nf: call g\nret\n\
        g: je out\ninc eax\nout: ret\nabort: hlt";
    let mut program = common::compiled("as", source, &["-nostdlib", "-static"], common::Hints::None);
    let start = program.function("_start");
    assert_eq!((start.entry(), start.never_returns()), (program.at("_start"), true));
    assert!(!start.contains(program.at("f")));
    assert_eq!(program.function("out").entry(), program.at("g"));
    // Nothing calls `f`: it is found when it runs.
    assert_eq!(program.function("f").entry(), program.at("f"));
}

#[test]
fn saves_and_restores_are_the_first_and_last_copies_of_preserved_registers() {
    let mut program = assembled(
        "fn f
         s1: push rbx
         s2: push r12
            push rdi
            mov ebx, edi
         s3: mov [rsp+8], r13
            mov [rax], r14
         b: je out
         r1: mov r13, [rsp+8]
            pop rdi
         r2: pop r12
         r3: pop rbx
            ret
         out: add rsp, 8
         r4: pop r12
         r5: pop rbx
         t: jmp g
         end f
         fn g
         l1: push rbp
            mov rbp, rsp
         l2: leave
            ret
         end g",
    );
    let labelled = |program: &Program, found: &[flow::Save]| -> Vec<String> {
        found.iter().map(|s| format!("{}:{}", program.name(flow::Merge::At(s.pc)), s.register)).collect()
    };
    let f = program.function("f");
    assert_eq!(labelled(&program, f.saves()), ["f:3", "s2:12", "s3:13"]);
    assert_eq!(labelled(&program, f.restores()), ["r1:13", "r2:12", "r3:3", "r4:12", "r5:3"]);
    let g = program.function("g");
    assert_eq!(labelled(&program, g.saves()), ["g:5"]);
    assert_eq!(labelled(&program, g.restores()), ["l2:5"]);
}

#[test]
fn a_moved_part_that_only_exceptions_reach_belongs_to_its_function() {
    let source = "fn f
         c: call g
         behind: ret
         end f
         fn f.cold
         pad: inc eax
            jmp behind
         end f.cold
         fn g
            ret
         end g";
    let mut program = assembled(source);
    let [c, pad, behind] = ["c", "pad", "behind"].map(|l| program.at(l));
    assert!(!program.function("f").contains(pad));
    assert!(program.flow.observe_unwind(c, pad));
    let function = program.function("f");
    assert!(function.contains(pad));
    assert_eq!(function.merge(c), flow::Merge::At(behind));
    assert_eq!(program.function("pad").entry(), c);
    // Without the observation, by its name.
    let mut program = assembled(&source.replace("jmp behind", "ret"));
    assert_eq!(program.function("pad").entry(), c);
    assert!(program.function("pad").contains(pad));
}

#[test]
fn moved_parts_of_compiled_code_are_found_with_and_without_names() {
    let source = r#"
        int total;
        __attribute__((cold, noinline)) void report(int n) { total += n; }
        __attribute__((noinline)) int f(int n) {
            int r = n * 3;
            if (n > 100) { report(n); r = total + 1; }
            total ^= r;
            return r + total;
        }
        int main(int argc, char **argv) { return f(argc); }
    "#;
    for hints in [common::Hints::Symbols, common::Hints::UnwindTables] {
        for label in ["f", "f.cold"] {
            let mut program = common::compiled("gcc", source, &["-O2"], hints);
            let function = program.function(label);
            let (f, cold) = (program.at("f"), program.at("f.cold"));
            assert_eq!(function.entry(), f, "{hints:?}, asked by {label}");
            assert!(function.contains(cold), "{hints:?}, asked by {label}");
            let branch = function.blocks().iter().find(|b| b.is_branch()).unwrap();
            assert_eq!(branch.successors.len(), 2, "{hints:?}");
            assert!(matches!(function.merge(branch.last), flow::Merge::At(_)), "{hints:?}");
        }
    }
}
