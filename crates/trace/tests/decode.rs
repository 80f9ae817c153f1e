//! The reference decoder: records by hand, with the events they stand for beside them.
//!
//! Events are written as text: `1000` an instruction, `r4 2000` an access of 4 bytes, `w1 2000*3` three elements upwards
//! from there, `*-3` downwards, `part 1000` a rep string that was stopped, `tid 7` and the like for special records.

use model::GuestAddr;
use model::wire::BlockDef;
use trace::block::BlockError;
use trace::consume::Consumer;
use trace::decode::{Decoder, TraceErrorKind};
use trace::event::Event;
use trace::format::{MAX_SPECIAL, Partial, Special};
use trace::plan::{BlockPlan, Planner};

const PC: u64 = 0x1000;

/// The first word of a record of block 0, made of these bytes.
fn tag(code: &[u8]) -> u32 {
    let mut plan = BlockPlan::new();
    let decoder = iced_x86::Decoder::with_ip(64, code, PC, iced_x86::DecoderOptions::NONE);
    Planner::new().plan(&decoder.into_iter().collect::<Vec<_>>(), &mut plan);
    plan.tag(0)
}

/// A record of block 0 with 8-byte slots.
fn record(code: &[u8], slots: &[u64]) -> Vec<u8> {
    let mut out = tag(code).to_le_bytes().to_vec();
    out.extend(slots.iter().flat_map(|s| s.to_le_bytes()));
    out
}

fn special(s: Special) -> Vec<u8> {
    let mut bytes = [0; MAX_SPECIAL];
    let len = s.encode(&mut bytes);
    bytes[..len].to_vec()
}

fn partial(completed: u32, slots: &[u64], rcx: u64) -> Vec<u8> {
    let mut out = Partial::head(0, completed, 8 * slots.len() as u32).to_vec();
    out.extend(slots.iter().flat_map(|s| s.to_le_bytes()));
    out.extend(rcx.to_le_bytes());
    out
}

fn text(e: &Event) -> String {
    match e {
        Event::Insn(i) => format!("{:x}", i.pc),
        Event::RepPart(i) => format!("part {:x}", i.pc),
        Event::Mem(m) => {
            let rw = [if m.read { "r" } else { "" }, if m.write { "w" } else { "" }].concat();
            let count = match (m.count, m.down) {
                (1, false) => String::new(),
                (n, false) => format!("*{n}"),
                (n, true) => format!("*-{n}"),
            };
            format!("{rw}{} {:x}{count}", m.size, m.addr)
        }
        Event::Special(Special::Thread { tid, .. }) => format!("tid {tid}"),
        Event::Special(Special::Signal { signo, .. }) => format!("signal {signo}"),
        Event::Special(Special::SigReturn { pc, .. }) => format!("sigreturn {pc:x}"),
        Event::Special(Special::Syscall { nr, result, .. }) => format!("syscall {nr} = {result}"),
        Event::Special(Special::Direction { df }) => format!("df {df}"),
        Event::Special(Special::Step { pc }) => format!("step {pc:x}"),
        Event::Special(s) => format!("{s:?}"),
    }
}

/// A trace over block 0 with this code gives these events.
fn check_events(code: &[u8], records: &[Vec<u8>], expected: &str) {
    let def = BlockDef { id: 0, pc: GuestAddr(PC), bytes: code.to_vec() };
    let (mut decoder, mut consumer) = (Decoder::new(), Consumer::new());
    decoder.block(&def).unwrap();
    consumer.block(&def).unwrap();
    let bytes = records.concat();
    let mut events = Vec::new();
    decoder.buffer(&bytes, &mut |e: &Event| events.push(text(e))).unwrap();
    assert_eq!(events.join(", "), expected);
    let mut fast = Vec::new();
    consumer.buffer(&bytes, |chunk| chunk.for_each(|e| fast.push(text(e)))).unwrap();
    assert_eq!(fast, events);
}

/// A trace over block 0 is refused at this byte.
fn check_error(code: &[u8], bytes: &[u8], at: usize, kind: TraceErrorKind) {
    let mut decoder = Decoder::new();
    decoder.block(&BlockDef { id: 0, pc: GuestAddr(PC), bytes: code.to_vec() }).unwrap();
    let error = decoder.buffer(bytes, &mut |_: &Event| ()).unwrap_err();
    assert_eq!((error.at, error.kind), (at, kind));
}

#[test]
fn addresses_follow_from_slots() {
    // push rbp; mov rbp, rsp; mov eax, [rbp-4]; mov ecx, [rip+0x10]; call
    let code = [0x55, 0x48, 0x89, 0xe5, 0x8b, 0x45, 0xfc, 0x8b, 0x0d, 0x10, 0, 0, 0, 0xe8, 0, 0, 0, 0];
    check_events(
        &code,
        &[record(&code, &[0x8000]), record(&code, &[0x9000])],
        "1000, w8 7ff8, 1001, 1004, r4 7ff4, 1007, r4 101d, 100d, w8 7ff0, \
         1000, w8 8ff8, 1001, 1004, r4 8ff4, 1007, r4 101d, 100d, w8 8ff0",
    );
}

#[test]
fn a_bare_id_is_a_tag() {
    let code = [0x55]; // push rbp
    let mut bytes = record(&code, &[0x8000]);
    bytes[3] = 0;
    check_events(&code, &[bytes], "1000, w8 7ff8");
}

#[test]
fn segment_bases_are_those_of_the_thread() {
    let code = [0x64, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0, 0x65, 0x8b, 0x03]; // mov eax, fs:[0x28]; mov eax, gs:[rbx]
    check_events(
        &code,
        &[
            record(&code, &[0x50]),
            special(Special::Thread { tid: 1, fs_base: 0x7000, gs_base: 0x100 }),
            record(&code, &[0x50]),
            special(Special::Thread { tid: 2, fs_base: 0x8000, gs_base: u64::MAX }),
            record(&code, &[0x50]),
        ],
        "1000, r4 28, 1008, r4 50, tid 1, 1000, r4 7028, 1008, r4 150, tid 2, 1000, r4 8028, 1008, r4 4f",
    );
}

#[test]
fn short_addresses_are_cut_before_the_base_is_added() {
    let code = [0x64, 0x67, 0x8b, 0x43, 0xfc]; // mov eax, fs:[ebx-4]
    let thread = special(Special::Thread { tid: 1, fs_base: 0x7_0000_0000, gs_base: 0 });
    check_events(&code, &[thread, record(&code, &[0x5_0000_0002])], "tid 1, 1000, r4 7fffffffe");
}

#[test]
fn rep_strings_are_one_access() {
    let code = [0xf3, 0x48, 0xa5]; // rep movsq
    check_events(&code, &[record(&code, &[0x2000, 5, 0x3000])], "1000, r8 2000*5, w8 3000*5");
    check_events(&code, &[record(&code, &[0x2000, 0, 0x3000])], "1000");
}

#[test]
fn strings_that_end_early_tell_by_the_rest() {
    let code = [0xf2, 0xae]; // repne scasb
    check_events(&code, &[record(&code, &[0x2000, u64::MAX, u64::MAX - 6])], "1000, r1 2000*6");
    let code = [0x67, 0xf2, 0xae]; // repne scasb [edi]
    check_events(&code, &[record(&code, &[0x2000, 0x1_0000_0000, 0xffff_fffe])], "1000, r1 2000*2");
}

#[test]
fn the_direction_flag_is_followed() {
    let code = [0xf3, 0xaa, 0xfd, 0xf3, 0xaa]; // rep stosb; std; rep stosb
    let slots = [0x2000, 3, 0x3000, 4];
    let (up, down) = ("1000, w1 2000*3, 1002, 1003, w1 3000*-4", "1000, w1 2000*-3, 1002, 1003, w1 3000*-4");
    check_events(&code, &[record(&code, &slots), record(&code, &slots)], &format!("{up}, {down}"));
    let between = [
        (Special::Signal { signo: 1, pc: 0, handler: 0 }, "signal 1", up),
        (Special::SigReturn { pc: 9, df: true }, "sigreturn 9", down),
        (Special::SigReturn { pc: 9, df: false }, "sigreturn 9", up),
        (Special::Direction { df: false }, "df false", up),
        // Another thread has its own.
        (Special::Thread { tid: 4, fs_base: 0, gs_base: 0 }, "tid 4", up),
        (Special::Thread { tid: 0, fs_base: 0, gs_base: 0 }, "tid 0", down),
    ];
    for (s, name, after) in between {
        check_events(
            &code,
            &[record(&code, &slots), special(s), record(&code, &slots)],
            &format!("{up}, {name}, {after}"),
        );
    }
}

#[test]
fn selected_lanes_are_accessed() {
    // vpgatherdd xmm1, [rax+xmm2*4+0x10], xmm3
    let gather = [0xc4, 0xe2, 0x61, 0x90, 0x4c, 0x90, 0x10];
    let lanes = |a: i32, b: i32| u64::from(a as u32) | u64::from(b as u32) << 32;
    check_events(
        &gather,
        &[record(&gather, &[0x1000, lanes(1, -2), lanes(3, 4), lanes(-1, 0), lanes(i32::MAX, i32::MIN)])],
        "1000, r4 1014, r4 1020",
    );
    // vmaskmovps [rax], xmm1, xmm2
    let masked = [0xc4, 0xe2, 0x71, 0x2e, 0x10];
    check_events(&masked, &[record(&masked, &[0x2000, lanes(-1, 0), lanes(0, -1)])], "1000, w4 2000, w4 200c");
    // vpcompressd [rax]{k3}, zmm5
    let packed = [0x62, 0xf2, 0x7d, 0x4b, 0x8b, 0x28];
    check_events(&packed, &[record(&packed, &[0x2000, 0xffff_0000_8001])], "1000, w4 2000, w4 2004");
}

#[test]
fn a_bit_string_reaches_as_far_as_its_bit() {
    let code = [0x48, 0x0f, 0xa3, 0x0b]; // bt [rbx], rcx
    let far = |bit: i64| record(&code, &[0x2000, bit as u64]);
    check_events(&code, &[far(63), far(64), far(-1)], "1000, r8 2000, 1000, r8 2008, 1000, r8 1ff8");
    let code = [0x66, 0x0f, 0xab, 0x0b]; // bts [rbx], cx
    check_events(&code, &[record(&code, &[0x2000, 0xffff_ffff_0000_8000])], "1000, rw2 1000");
}

#[test]
fn xlat_adds_al() {
    let code = [0xd7];
    check_events(&code, &[record(&code, &[0x2000, 0xabcd_ef12])], "1000, r1 2012");
}

#[test]
fn a_partial_block_ends_where_it_says() {
    let code = [0x55, 0x8b, 0x03, 0xf3, 0xaa, 0x50]; // push rbp; mov eax, [rbx]; rep stosb; push rax
    check_events(&code, &[partial(0, &[], 0)], "");
    check_events(&code, &[partial(1, &[0x8000], 0)], "1000, w8 7ff8");
    check_events(&code, &[partial(2, &[0x8000, 0x20], 0)], "1000, w8 7ff8, 1001, r4 20");
    // The rep string had not begun, had begun and done nothing, had done 3 of 10.
    let begun = [0x8000, 0x20, 0x3000, 10];
    check_events(&code, &[partial(2, &begun[..3], 7)], "1000, w8 7ff8, 1001, r4 20");
    check_events(&code, &[partial(2, &begun, 10)], "1000, w8 7ff8, 1001, r4 20");
    check_events(&code, &[partial(2, &begun, 7)], "1000, w8 7ff8, 1001, r4 20, part 1003, w1 3000*3");
    check_events(&code, &[partial(4, &begun, 7)], "1000, w8 7ff8, 1001, r4 20, 1003, w1 3000*10, 1005, w8 7ff0");
}

#[test]
fn special_records_are_events_and_padding_is_not() {
    let code = [0x0f, 0x05]; // syscall
    check_events(
        &code,
        &[
            record(&code, &[]),
            special(Special::Syscall { pc: PC, nr: 39, result: 5 }),
            special(Special::Step { pc: 0x77 }),
            special(Special::End),
            special(Special::Pad),
            vec![1, 2, 3],
        ],
        "1000, syscall 39 = 5, step 77, End",
    );
}

#[test]
fn errors_say_where() {
    let code = [0x55]; // push rbp
    let good = record(&code, &[1]);
    let after = |bytes: &[u8]| [&good, bytes].concat();
    check_error(&code, &after(&good[..11]), 12, TraceErrorKind::Cut);
    check_error(&code, &after(&[1, 2]), 12, TraceErrorKind::Cut);
    check_error(&code, &after(&[9, 0, 0, 0]), 12, TraceErrorKind::UnknownBlock(9));
    check_error(&code, &after(&[0, 0, 0, 5]), 12, TraceErrorKind::BadTag(0x0500_0000));
    check_error(&code, &after(&[0x0a, 0, 0xff, 0xff]), 12, TraceErrorKind::UnknownSpecial(0xffff_000a));
    check_error(&code, &after(&special(Special::Step { pc: 1 })[..11]), 12, TraceErrorKind::Cut);
    check_error(&code, &after(&partial(2, &[1], 0)), 12, TraceErrorKind::BadPartial(0));
    check_error(&code, &after(&partial(1, &[], 0)), 12, TraceErrorKind::BadPartial(0));
    check_error(&code, &after(&partial(1, &[1], 0)[..30]), 12, TraceErrorKind::Cut);
}

#[test]
fn blocks_are_defined_once() {
    let def = |id: u32, bytes: &[u8]| BlockDef { id, pc: GuestAddr(PC), bytes: bytes.to_vec() };
    let mut decoder = Decoder::new();
    assert_eq!(decoder.block(&def(3, &[0x90])), Ok(()));
    assert_eq!(decoder.block(&def(3, &[0x90])), Ok(()));
    assert_eq!(decoder.block(&def(3, &[0x91])), Err(BlockError::Redefined(3)));
    assert_eq!(decoder.block(&def(0x00ff_0000, &[0x90])), Err(BlockError::BadId(0x00ff_0000)));
    assert_eq!(decoder.block(&def(4, &[0x90; 5000])), Err(BlockError::TooLong(4)));
    // What is no instruction ends the block: the guest gets its signal there.
    assert_eq!(decoder.block(&def(5, &[0x90, 0x06, 0x90])), Ok(()));
    let mut events = Vec::new();
    let bytes = Partial::head(5, 1, 0).into_iter().chain(0u64.to_le_bytes()).collect::<Vec<u8>>();
    decoder.buffer(&bytes, &mut |e: &Event| events.push(text(e))).unwrap();
    assert_eq!(events, ["1000"]);
}
