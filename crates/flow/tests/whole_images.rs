//! The functions of large programs: no panic, bounded time, sensible graphs.
//!
//! Of the largest programs a fixed sample is analysed; `CLEW_FULL=1` takes all.

mod common;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::{Hints, read};
use flow::{Function, Merge};

fn programs() -> Vec<PathBuf> {
    let fixed = ["/bin/ls", "/bin/bash", "/lib/x86_64-linux-gnu/libc.so.6", "/usr/bin/python3"];
    fixed.iter().map(PathBuf::from).filter(|p| p.exists()).collect()
}

/// What must hold of every function.
fn check_function(function: &Function) {
    assert!(function.contains(function.entry()) || function.blocks().is_empty());
    let mut before = None;
    for block in function.blocks() {
        assert!(block.start <= block.last && block.last < block.end, "{block:x?}");
        assert!(before < Some(block.start), "blocks are sorted");
        before = Some(block.start);
        assert!(!block.successors.is_empty() || block.exit != flow::Exit::No, "{block:x?} leads nowhere");
        for merge in [function.merge(block.last), function.merge_ignoring_noreturn(block.last)] {
            if let Merge::At(at) = merge {
                assert_eq!(function.block(at).map(|b| b.start), Some(at));
                assert!(!function.is_branch(block.last) || function.merge_points().binary_search(&at).is_ok());
            }
        }
    }
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
        functions += 1;
        instructions += function.instructions().len();
        branches += function.blocks().iter().filter(|b| b.is_branch()).count();
        tables += function.blocks().iter().filter(|b| b.ending == flow::Ending::Indirect).count();
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
