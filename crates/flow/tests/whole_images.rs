//! The functions of large programs: no panic, bounded time, sensible graphs.
//!
//! Of the largest programs a fixed sample is analysed; `CLEW_FULL=1` takes all.

mod common;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::{Hints, check_function, read};

fn programs() -> Vec<PathBuf> {
    let fixed = ["/bin/ls", "/bin/bash", "/lib/x86_64-linux-gnu/libc.so.6", "/usr/bin/python3"];
    fixed.iter().map(PathBuf::from).filter(|p| p.exists()).collect()
}

fn check_image(path: &Path, hints: Hints) {
    let mut program = read(path, hints);
    let begun = Instant::now();
    let (mut functions, mut instructions, mut branches, mut tables, mut unresolved, mut never) = (0, 0, 0, 0, 0, 0);
    let mut slowest = Duration::ZERO;
    let full = std::env::var_os("CLEW_FULL").is_some();
    let every = if full || program.flow.entries().len() < 1_000 { 1 } else { 7 };
    for entry in program.flow.entries().into_iter().step_by(every) {
        let one = Instant::now();
        let Some(function) = program.flow.function(entry) else { continue };
        slowest = slowest.max(one.elapsed());
        check_function(&function);
        assert!(function.contains(function.entry()));
        functions += 1;
        instructions += function.instructions().len();
        branches += function.blocks().iter().filter(|b| b.is_branch()).count();
        tables += function.blocks().iter().filter(|b| b.ending == flow::Ending::Indirect).count();
        // Everything else must hold too.
        if functions % 16 == 0 {
            let branch = function.blocks().iter().find(|b| b.is_branch()).map(|b| b.last);
            let from = branch.unwrap_or(entry);
            program.flow.may_define(entry, from, function.merge(from));
            program.flow.callees(entry);
        }
        unresolved += function.unresolved().len();
        never += usize::from(function.never_returns());
    }
    println!(
        "{} {hints:?}: {functions} functions, {instructions} instructions, {branches} branches, {tables} tables, \
         {unresolved} other indirect jumps, {never} never return; {:?}, the slowest {slowest:?}",
        path.display(),
        begun.elapsed(),
    );
    assert!(slowest < Duration::from_secs(20), "one function took {slowest:?}");
}

#[test]
fn whole_images_are_analysed_by_their_unwind_tables() {
    for path in programs() {
        check_image(&path, Hints::UnwindTables);
    }
}

#[test]
fn whole_images_are_analysed_by_their_symbols() {
    for path in programs() {
        check_image(&path, Hints::Symbols);
    }
}
