//! Jump tables of compiled programs, found without running them.

mod common;

use common::{Hints, compiled};
use flow::{Ending, Merge};

const SWITCH: &str = r#"
int w, x;
__attribute__((noinline)) int f(int c, int d) {
    switch (c) {
    case 'a': w = d + 2; break;
    case 'b': w = d - 2; break;
    case 'c': w = d * 5; break;
    case 'd': w = d ^ 7; x = 1; break;
    case 'e': w = ~d; break;
    case 'f': w = d & 15; break;
    default: x = 9;
    }
    __asm__ volatile(".globl join\njoin:");
    return w + x;
}
__attribute__((noinline)) int many(const unsigned char *p, int n) {
    int sum = 0;
    for (int i = 0; i < n; i++)
        switch (p[i]) {
        case 1: sum += 3; break;
        case 2: sum ^= 5; break;
        case 3: sum *= 7; break;
        case 4: sum -= i; break;
        case 5: sum = ~sum; break;
        case 6: sum <<= 1; break;
        case 9: return sum;
        case 10: w++; break;
        }
    return -sum;
}
int main(int argc, char **argv) { return f(argc, 3) + many(argv[0], argc); }
"#;

/// Every indirect jump of `function` must be resolved to this many different targets.
#[track_caller]
fn check_switch(flags: &[&str], function: &str, targets: usize, hints: Hints) {
    let mut program = compiled("gcc", SWITCH, flags, hints);
    let found = program.function(function);
    let jumps: Vec<_> = found.blocks().iter().filter(|b| b.ending == Ending::Indirect).collect();
    assert_eq!(found.unresolved(), [0u64; 0], "{flags:?} {function}");
    let counts: Vec<usize> = jumps.iter().map(|b| b.successors.len()).collect();
    assert_eq!(counts, [targets], "{flags:?} {function}");
    if function == "f" {
        assert_eq!(found.merge(jumps[0].last), Merge::At(program.at("join")), "{flags:?}");
    }
}

#[test]
fn tables_of_unoptimised_code_are_found() {
    for flags in [&["-O0"][..], &["-O0", "-no-pie", "-fno-pie"], &["-O0", "-fcf-protection=full"]] {
        check_switch(flags, "f", 6, Hints::Symbols);
        check_switch(flags, "many", 9, Hints::Symbols);
    }
}

#[test]
fn tables_of_optimised_code_are_found() {
    let all: [&[&str]; 5] = [
        &["-O1"],
        &["-O2"],
        &["-O2", "-no-pie", "-fno-pie"],
        &["-O2", "-fcf-protection=full"],
        &["-O3", "-fcf-protection=none"],
    ];
    for flags in all {
        let mut program = compiled("gcc", SWITCH, flags, Hints::Symbols);
        for name in ["f", "many"] {
            let function = program.function(name);
            assert_eq!(function.unresolved(), [0u64; 0], "{flags:?} {name}");
            assert!(function.blocks().iter().any(|b| b.ending == Ending::Indirect), "{flags:?} {name}");
        }
    }
}

#[test]
fn tables_are_found_in_stripped_programs() {
    check_switch(&["-O0"], "f", 6, Hints::UnwindTables);
    check_switch(&["-O0"], "many", 9, Hints::UnwindTables);
}
