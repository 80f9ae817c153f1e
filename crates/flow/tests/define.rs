//! What code that did not run might have written, and where stores go.

mod common;

use common::{Hints, Program, assembled, compiled};
use flow::{MayDefine, Merge, Place};

const REGISTERS: [&str; 16] =
    ["rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];

/// The symbol with the greatest address that is not above, and the distance.
fn symbol(program: &Program, addr: u64) -> String {
    let below = program.labels.iter().filter(|(_, a)| **a <= addr).max_by_key(|(l, a)| (**a, (*l).clone()));
    below.map_or_else(|| format!("{addr:#x}"), |(l, a)| format!("{l}+{}", addr - a))
}

fn text(program: &Program, found: &MayDefine) -> String {
    let mut parts: Vec<String> =
        (0..16).filter(|g| found.gprs & (1 << g) != 0).map(|g: usize| REGISTERS[g].to_owned()).collect();
    parts.extend((0..32).filter(|v| found.vectors & (1u32 << v) != 0).map(|v| format!("v{v}")));
    parts.extend(found.other_registers.then(|| "other".to_owned()));
    parts.extend(found.flags.then(|| "flags".to_owned()));
    parts.extend(found.frame.iter().map(|r| format!("frame {}..{}", r.start, r.end)));
    parts.extend(found.unbounded_frame.iter().map(|b| format!("frame {b}..?")));
    parts.extend(found.absolute.iter().map(|r| format!("{} {}", symbol(program, r.start), r.end - r.start)));
    parts.extend(found.unbounded_absolute.iter().map(|b| format!("{}..?", symbol(program, *b))));
    parts.extend(found.thread.iter().map(|r| format!("fs {}..{}", r.start, r.end)));
    parts.extend(found.through_pointers.then(|| "pointers".to_owned()));
    parts.extend(found.calls_unknown.then(|| "unknown".to_owned()));
    parts.join(", ")
}

/// From label to label (or `exit`) of assembler functions.
#[track_caller]
fn check_define(source: &str, from: &str, until: &str, expected: &str) {
    let mut program = assembled(&format!("{source}\n.bss\nx: .skip 8\ny: .skip 64\nz: .skip 8\n"));
    let start = program.at(from);
    let until = if until == "exit" { Merge::Exit } else { Merge::At(program.at(until)) };
    let found = program.flow.may_define(start, start, until);
    assert_eq!(text(&program, &found), expected, "from {from} of\n{source}");
}

#[test]
fn registers_flags_and_globals_up_to_the_merge() {
    let source = "fn f
            je other
         one: mov dword ptr [rip+x], 5
            mov eax, 1
            movaps xmm3, xmm1
            jmp join
         other: add ebx, 2
         join: mov ecx, 3
            mov byte ptr [rip+z], 1
            ret
         end f";
    check_define(source, "one", "join", "rax, v3, x+0 4");
    check_define(source, "other", "join", "rbx, flags");
    check_define(source, "one", "exit", "rax, rcx, v3, x+0 4, z+0 1");
    check_define(source, "join", "join", "");
}

#[test]
fn both_sides_inside_the_region_count() {
    let source = "fn f
         one: test edi, edi
            je skip
            mov dword ptr [rip+x], 5
         skip: mov byte ptr [rip+z], 1
         join: ret
         end f";
    check_define(source, "one", "join", "flags, x+0 4, z+0 1");
}

#[test]
fn the_other_side_of_a_loop_exit_is_the_body() {
    let source = "fn f
         head: dec edi
            js done
         body: inc eax
            mov [rip+x], eax
            jmp head
         done: ret
         end f";
    check_define(source, "body", "done", "rax, rdi, flags, x+0 4");
}

#[test]
fn the_frame_is_known_by_rsp_and_by_rbp() {
    let source = "fn f
            push rbp
            mov rbp, rsp
            sub rsp, 32
         one: mov dword ptr [rbp-4], 1
            mov qword ptr [rsp+8], 2
            push rax
            mov qword ptr [rsp], 3
            pop rax
         done: leave
            ret
         end f";
    // The pushed word and what is stored over it are one place; rbp is 8 below the stack pointer at entry.
    check_define(source, "one", "done", "rax, frame -48..-40, frame -32..-24, frame -12..-8");
    let source = "fn f
            push rbx
            sub rsp, 16
         one: lea rax, [rsp+4]
            mov byte ptr [rax+1], 1
         done: add rsp, 16
            pop rbx
            ret
         end f";
    check_define(source, "one", "done", "rax, frame -19..-18");
}

#[test]
fn indexed_stores_name_where_the_array_begins() {
    let source = "fn f
            sub rsp, 64
         one: lea rcx, [rip+y]
            mov byte ptr [rcx+rdi+3], 1
            mov dword ptr [rsp+rdi*4+16], 1
         done: add rsp, 64
            ret
         end f";
    check_define(source, "one", "done", "rcx, frame -48..?, y+3..?");
    // A number and an unknown register: either may be the address.
    let source = "fn f\none: mov byte ptr [rdi+y], 1\ndone: ret\nend f";
    check_define(source, "one", "done", "y+0..?, pointers");
}

#[test]
fn stores_through_pointers_are_said_to_be_so() {
    check_define("fn f\none: mov [rdi], eax\ndone: ret\nend f", "one", "done", "pointers");
    check_define("fn f\none: mov dword ptr fs:[16], 1\ndone: ret\nend f", "one", "done", "fs 16..20");
    check_define("fn f\none: mov fs:[rax], ecx\ndone: ret\nend f", "one", "done", "pointers");
    // A pointer from two sides of a branch may be either.
    let source = "fn f
            lea rax, [rip+x]
            je one
            lea rax, [rip+z]
         one: mov byte ptr [rax], 1
         done: ret
         end f";
    check_define(source, "one", "done", "pointers");
}

#[test]
fn string_stores_are_as_long_as_rcx_says() {
    let source = "fn f\none: lea rdi, [rip+y]\nmov ecx, 4\nrep stosq\ndone: ret\nend f";
    check_define(source, "one", "done", "rcx, rdi, y+0 32");
    let source = "fn f\none: lea rdi, [rip+y]\nrep stosq\ndone: ret\nend f";
    check_define(source, "one", "done", "rcx, rdi, y+0..?");
}

const TREE: &str = "fn f
         one: push 7
            call g
            pop rcx
         done: ret
         end f
         fn g
            push rbx
            mov ebx, 1
            mov qword ptr [rsp+16], 9
            call h
            pop rbx
            jmp k
         end g
         fn h
            mov dword ptr [rip+x], 1
            je out
            call g
         out: ret
         end h
         fn k
            mov byte ptr [rip+z], 1
            ret
         end k";

#[test]
fn callees_count_with_what_they_call_but_not_with_what_they_preserve() {
    // `g` writes its argument, which lies in the frame of `f`: pushed at -8.
    check_define(TREE, "one", "done", "rcx, frame -8..0, x+0 4, z+0 1");
}

#[test]
fn computed_calls_may_write_anything_and_what_was_seen() {
    let mut program = assembled(&format!(
        "fn f\none: call rax\ndone: ret\nend f\n{}",
        &TREE[TREE.find("fn k").unwrap()..].replace("[rip+z]", "[rip+f]")
    ));
    let [one, done, k] = ["one", "done", "k"].map(|l| program.at(l));
    let before = program.flow.may_define(one, one, Merge::At(done));
    assert!(before.calls_unknown && before.through_pointers && before.absolute.is_empty());
    assert_eq!(before.gprs, 0b0000_1111_1100_0111, "what a callee need not give back");
    program.flow.observe(one, k);
    let after = program.flow.may_define(one, one, Merge::At(done));
    assert!(after.touches_absolute(one..one + 1), "{after:x?}");
}

#[test]
fn library_functions_are_known_by_name() {
    let source = r#"
        #include <string.h>
        #include <stdlib.h>
        int x;
        int f(const char *a) { __asm__ volatile(".globl len\nlen:"); x = strlen(a); return x; }
        void g(char *a, const char *b) { __asm__ volatile(".globl copy\ncopy:"); strcpy(a, b); x = 1; }
        void h(void *a) { __asm__ volatile(".globl other\nother:"); free(a); x = 1; }
        int main() { return 0; }
    "#;
    for flags in [&["-O1", "-fno-builtin"][..], &["-O0", "-fno-builtin"], &["-O1", "-fno-builtin", "-fno-plt"]] {
        let mut program = compiled("gcc", source, flags, Hints::Symbols);
        let x = program.at("x");
        for (label, pointers, unknown) in [("len", false, false), ("copy", true, false), ("other", true, true)] {
            let at = program.at(label);
            let found = program.flow.may_define(at, at, Merge::Exit);
            assert_eq!((found.through_pointers, found.calls_unknown), (pointers, unknown), "{label} {flags:?}");
            assert_eq!(found.absolute, vec![std::ops::Range { start: x, end: x + 4 }], "{label} {flags:?}");
        }
    }
}

/// The place of the store at label `s`.
#[track_caller]
fn check_store(source: &str, expected: impl Fn(&Program) -> Vec<Place>, constant: bool) {
    let mut program = assembled(&format!("{source}\n.bss\nx: .skip 8\n"));
    let at = program.at("s");
    let found = program.flow.store_places(at);
    assert_eq!(found, expected(&program), "{source}");
    assert_eq!(found.iter().all(Place::is_constant), constant, "{source}");
}

#[test]
fn a_store_is_to_a_constant_place_or_computed() {
    let wrap = |body: &str| format!("fn f\npush rbp\nmov rbp, rsp\n{body}\npop rbp\nret\nend f");
    let frame = |from: i64, to: i64| move |_: &Program| vec![Place::Frame(from..to)];
    check_store(&wrap("s: mov dword ptr [rbp-4], 1"), frame(-12, -8), true);
    check_store(&wrap("s: push rax\npop rax"), frame(-16, -8), true);
    check_store(&wrap("s: mov [rip+x], al"), |p| vec![Place::Absolute(p.at("x")..p.at("x") + 1)], true);
    check_store(&wrap("s: mov [rax], al"), |_| vec![Place::Computed], false);
    check_store(&wrap("s: mov [rbp+rax-64], al"), |_| vec![Place::FrameFrom(-72)], false);
    check_store(&wrap("and rsp, -32\ns: mov [rsp-8], al"), |_| vec![Place::Frame(i64::MIN..i64::MAX)], false);
    check_store(&wrap("and rsp, -16\ns: mov [rsp], al"), frame(-8, -7), true);
    check_store(&wrap("call f\ns: mov [rsp-8], al"), frame(-16, -15), true);
    // A call may change rax, and gives rbx back.
    check_store(&wrap("lea rax, [rip+x]\ncall f\ns: mov [rax], cl"), |_| vec![Place::Computed], false);
    let x = |p: &Program| vec![Place::Absolute(p.at("x")..p.at("x") + 1)];
    check_store(&wrap("lea rbx, [rip+x]\ncall f\ns: mov [rbx], cl"), x, true);
    check_store(&wrap("s: mov eax, [rbp-8]"), |_| Vec::new(), true);
    check_store(&wrap("s: call f"), |_| Vec::new(), true);
}

#[test]
fn the_stack_offset_is_known_in_compiled_code() {
    let source = "int g(int *p); int f(int n) { int a[20]; a[n] = 1; return g(a) + n; } int g(int *p) { return *p; }
        int main(int c, char **v) { return f(c); }";
    for flags in [&["-O0"][..], &["-O2"], &["-O2", "-fno-omit-frame-pointer"]] {
        let mut program = compiled("gcc", source, flags, Hints::Symbols);
        for name in ["f", "g", "main"] {
            let function = program.function(name);
            for block in function.blocks().iter().filter(|b| b.ending == flow::Ending::Return) {
                assert_eq!(program.flow.stack_offset(block.last), Some(0), "{name} {flags:?}: at its return");
            }
        }
    }
}
