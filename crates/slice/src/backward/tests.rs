//! Slices of hand-made windows.

use crate::facts::Border;
use crate::graph::{Input, Node};
use crate::made::{Known, Made};
use crate::registers::RegId;
use crate::stretches::STRETCH;
use crate::window::{CallEffects, Window};
use crate::{Backward, Criterion, NoFacts, Omit, Options, Places};

const RAX: RegId = RegId::RAX;
const RBX: RegId = RegId(3);

fn register(reg: RegId, mask: u64) -> Criterion {
    Criterion { registers: vec![(reg, mask)], ..Criterion::default() }
}

fn memory(at: u64, len: u64) -> Criterion {
    Criterion { memory: vec![(at, len)], ..Criterion::default() }
}

/// One block at 0x1000 runs once: the slice has these instructions, by offset, and needs these bytes from before.
fn check_straight(hex: &str, addresses: &[u64], criterion: &Criterion, offsets: &[u64], inputs: &[&str]) {
    let mut made = Made::default();
    let block = made.block(0x1000, hex);
    made.ran(block, addresses);
    let (pcs, found) = made.slice(&mut Known::default(), criterion, &Options::default());
    let expected: Vec<u64> = offsets.iter().map(|o| 0x1000 + o).collect();
    assert_eq!(pcs, expected, "{hex} {criterion:?}");
    let shown = |i: &Input| match i {
        Input::Reg { reg, .. } => reg.name(),
        Input::Mem { addr, mask, .. } => format!("{addr:#x}/{mask:#x}"),
    };
    let mut shown: Vec<String> = found.iter().map(shown).collect();
    shown.sort();
    shown.dedup();
    assert_eq!(shown, inputs, "{hex} {criterion:?}");
}

#[test]
fn one_byte_of_a_vector_copy_comes_from_one_byte() {
    // movdqu xmm0, [rsi]; movdqu [rdi], xmm0
    let copy = "f3 0f 6f 06 f3 0f 7f 07";
    check_straight(copy, &[0x5000, 0x6003], &memory(0x6005, 1), &[0, 4], &["0x5000/0x4", "rdi", "rsi"]);
    check_straight(copy, &[0x5000, 0x6003], &memory(0x6013, 1), &[], &["0x6010/0x8"]);
}

#[test]
fn the_extension_of_a_sign_comes_from_its_byte() {
    // movsx eax, byte [rsi]; the upper half is zero.
    check_straight("0f be 06", &[0x5001], &register(RAX, 0x8), &[0], &["0x5000/0x2", "rsi"]);
    // movzx eax, byte [rsi]
    check_straight("0f b6 06", &[0x5001], &register(RAX, 0x8), &[0], &["rsi"]);
}

#[test]
fn later_writes_hide_earlier_ones_byte_by_byte() {
    // mov eax, ecx; mov al, bl
    let two = "89 c8 88 d8";
    check_straight(two, &[], &register(RAX, 0xff), &[0, 2], &["rbx", "rcx"]);
    check_straight(two, &[], &register(RAX, 0x01), &[2], &["rbx"]);
    check_straight(two, &[], &register(RAX, 0x02), &[0], &["rcx"]);
    // mov rax, [rdi]; xor eax, eax
    check_straight("48 8b 07 31 c0", &[0x5000], &register(RAX, 0xff), &[3], &[]);
}

#[test]
fn values_pass_over_the_stack_and_exchanges() {
    // push rbx; mov ebx, 1; pop rax
    let over = "53 bb 01 00 00 00 58";
    check_straight(over, &[0x7ff8, 0x7ff8], &register(RAX, 0xff), &[0, 6], &["rbx"]);
    // xchg rax, rbx; mov ebx, 1
    check_straight("48 93 bb 01 00 00 00", &[], &register(RAX, 0xff), &[0], &["rbx"]);
}

#[test]
fn conditional_moves_are_data() {
    // cmp ecx, edx; cmovne eax, ebx
    check_straight("39 d1 0f 45 c3", &[], &register(RAX, 0xff), &[0, 2], &["rax", "rbx", "rcx", "rdx"]);
}

/// A block that compares and jumps, one that is jumped over or not, and one where both ways meet.
fn branching(known: &mut Known) -> (Made, [u32; 3]) {
    let mut made = Made::default();
    // cmp ecx, edx; je 0x1009 | mov ebx, 7 | mov eax, 1
    let blocks =
        [made.block(0x1000, "39 d1 74 05"), made.block(0x1004, "bb 07 00 00 00"), made.block(0x1009, "b8 01 00 00 00")];
    known.merges.push((0x1002, 0x1009));
    (made, blocks)
}

fn check_branching(criterion: &Criterion, options: &Options, expected: &[u64]) {
    let mut known = Known::default();
    let (mut made, blocks) = branching(&mut known);
    blocks.iter().for_each(|b| made.ran(*b, &[]));
    assert_eq!(made.slice(&mut known, criterion, options).0, expected, "{criterion:?}");
}

#[test]
fn what_runs_between_a_branch_and_its_merge_depends_on_it() {
    let all = Options::default();
    check_branching(&register(RBX, 0xff), &all, &[0x1000, 0x1002, 0x1004]);
    check_branching(&register(RAX, 0xff), &all, &[0x1009]);
    check_branching(&register(RBX, 0xff), &Options { data_only: true, ..Options::default() }, &[0x1004]);
    check_branching(&register(RBX, 0xff), &Options { omit: Some(Omit::Control), ..all.clone() }, &[0x1004]);
    check_branching(&register(RBX, 0xff), &Options { omit: Some(Omit::Flags), ..all }, &[0x1002, 0x1004]);
}

#[test]
fn code_of_a_function_depends_on_its_call_and_not_on_its_callees() {
    let mut known = Known::default();
    let mut made = Made::default();
    // test eax, eax; je | call 0x2000 | (0x2000) cmp ecx, edx; je 0x2009 | ret | mov ebx, 7
    let decide = made.block(0x1000, "85 c0 74 0a");
    let call = made.block(0x1004, "e8 f7 0f 00 00");
    let inner = made.block(0x2000, "39 d1 74 05");
    let back = made.block(0x2004, "c3");
    let after = made.block(0x1009, "bb 07 00 00 00");
    known.merges.extend([(0x1002, 0x100e), (0x2002, 0x2004)]);
    for (block, addresses) in [(decide, &[][..]), (call, &[0x7ff8]), (inner, &[]), (back, &[0x7ff8]), (after, &[])] {
        made.ran(block, addresses);
    }
    let (pcs, _) = made.slice(&mut known, &register(RBX, 0xff), &Options::default());
    assert_eq!(pcs, [0x1000, 0x1002, 0x1009], "the branch of the callee is not there");
}

/// A run in one window and, cut before any of its blocks, in two: slices must not differ.
#[test]
fn a_slice_of_two_windows_is_that_of_one() {
    // Branches that merge behind the run, and within it.
    check_cut(&[(0x1002, 0x100e), (0x2002, 0x200c)]);
    check_cut(&[(0x1002, 0x1009), (0x2002, 0x2007)]);
}

fn check_cut(merges: &[(u64, u64)]) {
    // test eax, eax; je | call 0x2000 | cmp ecx, edx; je | push rbx; mov ebx, [rdi] | mov [rsi], ebx; pop rbx; ret |
    // mov eax, [rsi]; add ebx, eax
    let code = [
        (0x1000, "85 c0 74 0a"),
        (0x1004, "e8 f7 0f 00 00"),
        (0x2000, "39 d1 74 05"),
        (0x2004, "53 8b 1f"),
        (0x2007, "89 1e 5b c3"),
        (0x1009, "8b 06 01 c3"),
    ];
    let touched: [&[u64]; 6] = [&[], &[0x7ff8], &[], &[0x7ff0, 0x5000], &[0x6000, 0x7ff0, 0x7ff8], &[0x6000]];
    let mut known =
        Known { merges: merges.to_vec(), borders: vec![(0x2004, Border::Save(RBX)), (0x2009, Border::Restore(RBX))] };
    let mut window = |blocks: std::ops::Range<usize>| {
        let mut made = Made::default();
        for n in blocks {
            let block = made.block(code[n].0, code[n].1);
            made.ran(block, touched[n]);
        }
        made.window(&mut known)
    };
    let sites = Options { only_sites: true, ..Options::default() };
    let nodes = Options { edges: true, ..Options::default() };
    let criteria = [register(RBX, 0xff), register(RAX, 0xff), memory(0x6000, 1)];
    for (criterion, options) in criteria.iter().flat_map(|c| [(c, &sites), (c, &nodes)]) {
        let slice = |windows: &[Window]| {
            let mut backward = Backward::new(criterion, options);
            let mut places = Places::default();
            for window in windows.iter().rev() {
                backward.walk(window, &mut NoFacts, &mut || false);
                places.add(window, backward.nodes(), &mut |pc| pc < 0x2000);
            }
            let slice = backward.finish();
            let shown = |(n, node): (usize, &Node)| {
                let place = places.shown(n as u32, node.pc, node.pc < 0x2000);
                (node.pc, node.distance, node.via, node.why, place.map(|p| p.pc))
            };
            let nodes: Vec<_> = slice.nodes.iter().enumerate().skip(1).map(shown).collect();
            (slice.sites, slice.size, slice.bypassed, nodes, slice.edges)
        };
        let whole = slice(&[window(0..6)]);
        assert!(whole.1 >= 2, "{criterion:?}: {whole:x?}");
        for cut in 1..6 {
            assert_eq!(slice(&[window(0..cut), window(cut..6)]), whole, "{criterion:?}, cut before block {cut}");
        }
    }
}

#[test]
fn a_return_to_elsewhere_decides_by_what_it_found() {
    let mut made = Made::default();
    // call 0x2000 | mov [rdi], rcx; ret | mov ebx, 7
    let call = made.block(0x1000, "e8 fb 0f 00 00");
    let smash = made.block(0x2000, "48 89 0f c3");
    let elsewhere = made.block(0x1100, "bb 07 00 00 00");
    made.ran(call, &[0x7ff8]);
    made.ran(smash, &[0x7ff8, 0x7ff8]);
    made.ran(elsewhere, &[]);
    let (pcs, _) = made.slice(&mut Known::default(), &register(RBX, 0xff), &Options::default());
    assert_eq!(pcs, [0x1000, 0x2000, 0x2003, 0x1100]);
}

/// `mov ebx, 7`, then a function that saves and restores rbx: the slice of rbx with or without `between`.
fn saved(between: &str, addresses: &[u64]) -> Vec<u64> {
    let mut known = Known::default();
    let mut made = Made::default();
    let set = made.block(0x1000, "bb 07 00 00 00 e8 f6 0f 00 00");
    let save = made.block(0x2000, &format!("53 bb 01 00 00 00 {between}"));
    let restore = made.block(0x2100, "5b c3");
    known.borders = vec![(0x2000, Border::Save(RBX)), (0x2100, Border::Restore(RBX))];
    made.ran(set, &[0x7ff8]);
    made.ran(save, &[&[0x7ff0], addresses].concat());
    made.ran(restore, &[0x7ff0, 0x7ff8]);
    made.slice(&mut known, &register(RBX, 0xff), &Options::default()).0
}

#[test]
fn saved_registers_are_passed_over_unless_somebody_wrote_the_slot() {
    assert_eq!(saved("", &[]), [0x1000]);
    // mov [rdi], rcx: into the slot, then beside it. The restore itself stays outside.
    assert_eq!(saved("48 89 0f", &[0x7ff0]), [0x1005, 0x2006]);
    assert_eq!(saved("48 89 0f", &[0x7fe0]), [0x1000]);
}

#[test]
fn registers_belong_to_threads_and_memory_to_all() {
    let mut made = Made::default();
    // mov [rdi], rbx; mov eax, 5 | mov rax, [rsi]
    let one = made.block(0x1000, "48 89 1f b8 05 00 00 00");
    let other = made.block(0x2000, "48 8b 06");
    made.ran(one, &[0x5000]);
    made.thread(1);
    made.ran(other, &[0x5000]);
    let (pcs, _) = made.slice(&mut Known::default(), &register(RAX, 0xff), &Options::default());
    assert_eq!(pcs, [0x1000, 0x2000]);
}

#[test]
fn memory_that_was_moved_is_looked_for_where_it_was() {
    let mut made = Made::default();
    // mov [rdi], rbx | mremap | mov rax, [rsi]
    let store = made.block(0x1000, "48 89 1f");
    let load = made.block(0x2000, "48 8b 06");
    made.ran(store, &[0x15008]);
    made.call(CallEffects {
        pc: 0x1100,
        nr: 25,
        args: [0x15000, 0x1000, 0x4000, 1, 0, 0],
        result: 0x30000,
        ..CallEffects::default()
    });
    made.ran(load, &[0x30008]);
    let (pcs, _) = made.slice(&mut Known::default(), &register(RAX, 0xff), &Options::default());
    assert_eq!(pcs, [0x1000, 0x2000]);
}

#[test]
fn what_a_call_delivered_comes_from_the_call() {
    let mut made = Made::default();
    let before = made.block(0x1000, "48 89 1f");
    let load = made.block(0x2000, "48 8b 06");
    made.ran(before, &[0x5000]);
    made.call(CallEffects {
        pc: 0x1100,
        nr: 0,
        args: [0, 0x5000, 8, 0, 0, 0],
        result: 8,
        writes: vec![(0x5000, 8)],
        record: 1,
        ..CallEffects::default()
    });
    made.ran(load, &[0x5000]);
    let (pcs, _) = made.slice(&mut Known::default(), &register(RAX, 0xff), &Options::default());
    assert_eq!(pcs, [0x1100, 0x2000]);
}

#[test]
fn one_byte_of_a_long_copy_comes_from_one_byte() {
    let mut made = Made::default();
    // rep movsb
    let copy = made.block(0x1000, "f3 a4");
    made.ran_long(copy, 200, &[(0x5000, true), (0x6003, false)]);
    let (pcs, inputs) = made.slice(&mut Known::default(), &memory(0x6003 + 0x85, 1), &Options::default());
    assert_eq!(pcs, [0x1000]);
    let bytes =
        inputs.iter().filter_map(|i| if let Input::Mem { addr, mask, .. } = i { Some((*addr, *mask)) } else { None });
    assert_eq!(bytes.collect::<Vec<_>>(), [(0x5080, 0x20)]);
}

/// A long run of stores elsewhere, with a store to 0x5000 at its beginning and one to 0x5008 amid it: slices over the same
/// window, which pass over what does not concern them, find just these.
#[test]
fn stretches_that_are_passed_over_change_no_slice() {
    let mut known = Known::default();
    let mut made = Made::default();
    // mov [rdi], eax | mov [rsi], ecx
    let (wanted, other) = (made.block(0x1000, "89 07"), made.block(0x1002, "89 0e"));
    let elsewhere = |made: &mut Made| {
        (0..3 * STRETCH as u64 + 5).for_each(|n| made.ran(other, &[0x9000 + n % 512 * 8]));
    };
    made.ran(wanted, &[0x5000]);
    elsewhere(&mut made);
    made.ran(wanted, &[0x5008]);
    elsewhere(&mut made);
    made.thread(7);
    elsewhere(&mut made);
    let window = made.window(&mut known);
    let mut found = |criterion: &Criterion| {
        let slice = crate::backward(&window, criterion, &Options::default(), &mut known, &mut || false);
        slice.nodes[1..].iter().map(|n| n.execution).collect::<Vec<_>>()
    };
    let long = 3 * STRETCH as u32 + 5;
    // Asked for again, what the stretches wrote is known.
    for _ in 0..2 {
        assert_eq!(found(&memory(0x5000, 4)), [0]);
        assert_eq!(found(&memory(0x5008, 4)), [long + 1]);
        assert_eq!(found(&memory(0x4ffe, 16)), [long + 1, 0]);
        assert_eq!(found(&memory(0x9000 + 511 * 8, 8)).len(), 1);
        assert_eq!(found(&memory(0xffff_0000, 8)), []);
    }
    // So much is wanted that nothing is passed over.
    let much = Criterion { memory: vec![(0x5000, 16), (0x20000, 8 * 200)], ..Criterion::default() };
    assert_eq!(found(&much), [long + 1, 0]);
}
