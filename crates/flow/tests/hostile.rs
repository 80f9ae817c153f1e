//! Bytes that no compiler made: no panic, and an answer in time.

mod common;

use std::time::{Duration, Instant};

use common::check_function;
use flow::{CodeRange, Flow, FunctionHint, Import, Merge};
use testkit::random::Random;

/// Asks everything about a few addresses.
fn ask_everything(flow: &mut Flow, random: &mut Random, around: u64, len: u64) {
    for _ in 0..12 {
        let (pc, to) = (around.wrapping_add(random.below(len + 8)), around.wrapping_add(random.below(len + 8)));
        match random.below(6) {
            0 => flow.entry_seen(pc),
            1 => drop(flow.observe(pc, to)),
            2 => drop(flow.observe_unwind(pc, to)),
            _ => {}
        }
        if let Some(function) = flow.function(pc) {
            check_function(&function);
            assert!(function.contains(pc) || function.is_cut());
            flow.may_define(pc, to, function.merge(to));
            flow.may_define(pc, pc, Merge::At(to));
        }
        flow.store_places(to);
        flow.stack_offset(pc);
        flow.callees(to);
    }
    flow.address_taken();
}

fn bytes(random: &mut Random, len: u64) -> Vec<u8> {
    // Branches more often than chance has them.
    let favourites = [0x74, 0xeb, 0xe8, 0xe9, 0xff, 0xc3, 0x0f, 0x84, 0x00, 0xfe, 0x50, 0x5b, 0x48, 0x8d];
    (0..len).map(|_| if random.below(2) == 0 { *random.pick(&favourites) } else { random.word() as u8 }).collect()
}

#[test]
fn random_bytes_with_random_hints_do_no_harm() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let len = 1 + random.below(600);
        let start = *random.pick(&[0, 0x1000, 0x40_1000, u64::MAX - 300, u64::MAX - 700, i64::MAX as u64 - 10]);
        let mut code = vec![CodeRange { start, bytes: bytes(&mut random, len).into() }];
        if random.below(3) == 0 {
            // Overlapping ranges.
            code.push(CodeRange { start: start.wrapping_add(random.below(len)), bytes: bytes(&mut random, 64).into() });
        }
        let hint = |random: &mut Random| FunctionHint {
            start: start.wrapping_add(random.below(len + 4)),
            end: start.wrapping_add(random.below(len * 2 + 4)),
            name: random.pick(&[None, Some("f"), Some("f.cold"), Some("abort"), Some("g.cold.1")]).map(str::to_owned),
        };
        let hints = (0..random.below(8)).map(|_| hint(&mut random)).collect();
        let data = vec![CodeRange { start: start.wrapping_add(5_000), bytes: bytes(&mut random, 100).into() }];
        let imports = vec![Import { slot: start.wrapping_add(random.below(900)), name: "exit".to_owned() }];
        let mut flow = Flow::new(code, hints).with_data(data).with_imports(imports).with_pointers(vec![0, u64::MAX]);
        ask_everything(&mut flow, &mut random, start, len);
    }
}

/// A function of `count` copies of a piece of code, with what comes last.
fn check_large(name: &str, piece: &dyn Fn(i32, i32) -> Vec<u8>, count: i32, cut: bool) {
    let begun = Instant::now();
    let mut code: Vec<u8> = (0..count).flat_map(|i| piece(i, count)).collect();
    code.push(0xc3);
    let len = code.len() as u64;
    let hint = FunctionHint { start: 0x1000, end: 0x1000 + len, name: None };
    let mut flow = Flow::new(vec![CodeRange { start: 0x1000, bytes: code.into() }], vec![hint]);
    let function = flow.function(0x1000).unwrap();
    assert_eq!(function.is_cut(), cut, "{name}");
    check_function(&function);
    flow.may_define(0x1000, 0x1000, Merge::Exit);
    let took = begun.elapsed();
    println!("{name}: {} instructions, {} blocks, {took:?}", function.instructions().len(), function.blocks().len());
    assert!(took < Duration::from_secs(60), "{name} took {took:?}");
}

fn je(distance: i32) -> Vec<u8> {
    [&[0x0f, 0x84][..], &distance.to_le_bytes()].concat()
}

#[test]
fn large_functions_are_cut_or_analysed_in_time() {
    // inc eax
    check_large("straight", &|_, _| vec![0xff, 0xc0], 210_000, true);
    // je to the next instruction, to the end, to the start, and both.
    check_large("next", &|_, _| je(0), 12_000, false);
    check_large("many", &|_, _| je(0), 50_000, true);
    check_large("ladder", &|i, n| je((n - 1 - i) * 6), 12_000, false);
    check_large("back", &|i, _| je(-(i + 1) * 6), 8_000, false);
    check_large("knot", &|i, n| je(if i % 2 == 0 { (n - 1 - 2 * i) * 6 } else { -6 * (i / 2) }), 5_000, false);
    // Calls in a row, each into the middle of the next one: functions inside each other.
    check_large("calls", &|_, _| vec![0xe8, 5, 0, 0, 0, 0xff, 0xc0], 300, false);
}
