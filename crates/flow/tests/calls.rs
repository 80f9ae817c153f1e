//! Who calls whom, and whose address is taken.

mod common;

use common::{Hints, Program, compiled};

const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) int twice(int n) { return n * 2; }
__attribute__((noinline)) int thrice(int n) { return n * 3; }
__attribute__((noinline)) int four(int n) { return n * 4; }
int (*table[])(int) = { thrice };
__attribute__((noinline)) int apply(int (*f)(int), int n) { puts("apply"); return f(n) + twice(n); }
int main(int argc, char **argv) {
    if (argc > 9) exit(four(argc));
    return apply(argc > 1 ? table[0] : twice, argc);
}
"#;

fn names(program: &Program, addresses: &[u64]) -> Vec<String> {
    addresses.iter().map(|a| program.name(flow::Merge::At(*a))).collect()
}

#[track_caller]
fn check_calls(flags: &[&str]) {
    let mut program = compiled("gcc", SOURCE, flags, Hints::Symbols);
    let [apply, twice, main] = ["apply", "twice", "main"].map(|l| program.at(l));
    let callees = program.flow.callees(apply).unwrap();
    assert_eq!((names(&program, &callees.functions), callees.computed), (vec!["twice".to_owned()], true), "{flags:?}");
    assert_eq!(callees.imports, ["puts"], "{flags:?}");
    let callees = program.flow.callees(main).unwrap();
    let mut called = names(&program, &callees.functions);
    called.sort();
    assert_eq!(called, ["apply", "four"], "{flags:?}");
    assert_eq!((callees.imports, callees.unknown_slots), (vec!["exit".to_owned()], false), "{flags:?}");

    let taken = program.flow.address_taken();
    let taken = names(&program, &taken);
    for (name, expected) in [("twice", true), ("thrice", true), ("main", true), ("four", false), ("apply", false)] {
        assert_eq!(taken.contains(&name.to_owned()), expected, "{name} {flags:?}: {taken:?}");
    }
    let call = program.function("apply").calls().iter().find(|c| c.target == flow::CallTarget::Computed).unwrap().pc;
    let thrice = program.at("thrice");
    program.flow.observe(call, thrice);
    let callees = program.flow.callees(apply).unwrap();
    let mut called = names(&program, &callees.functions);
    called.sort();
    assert_eq!(called, ["thrice", "twice"], "{flags:?}");
    assert!(!program.flow.function(twice).unwrap().never_returns());
}

#[test]
fn calls_are_direct_imported_or_computed() {
    for flags in [&["-O0"][..], &["-O1"], &["-O1", "-no-pie", "-fno-pie"], &["-O1", "-fno-plt", "-fcf-protection=full"]]
    {
        check_calls(flags);
    }
}
