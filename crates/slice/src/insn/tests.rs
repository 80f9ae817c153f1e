//! Parts of instructions, written as `what is made = what it is made of (how)`.

use super::*;
use iced_x86::{Decoder, DecoderOptions};
use trace::plan::{BlockPlan, Planner};

fn made(hex: &str) -> Insn {
    let digit = |c: u8| char::from(c).to_digit(16).expect("a digit") as u8;
    let digits: Vec<u8> = hex.bytes().filter(|b| *b != b' ').collect();
    let bytes: Vec<u8> = digits.chunks(2).map(|d| digit(d[0]) << 4 | digit(d[1])).collect();
    let insn = Decoder::with_ip(64, &bytes, 0x40_0000, DecoderOptions::NONE).decode();
    assert_eq!(insn.len(), bytes.len(), "{hex} is one instruction");
    let mut plan = BlockPlan::new();
    Planner::new().plan(&[insn], &mut plan);
    Maker::default().insn(&insn, plan.accesses_of(0))
}

/// `rax` for all of it, `rax[0..4]` for bytes, `flags`, `m0`; `@` before what is an address, `?` behind what may stay.
fn shown(place: Place, mask: u64, mark: &str) -> String {
    match place {
        Place::Mem(n) => format!("m{n}{mark}"),
        Place::Reg(RegId::FLAGS) => format!("flags{mark}"),
        Place::Reg(r) if mask == r.all() => format!("{}{mark}", r.name()),
        Place::Reg(r) => {
            let first = mask.trailing_zeros();
            format!("{}[{first}..{}]{mark}", r.name(), first + (mask >> first).trailing_ones())
        }
    }
}

fn part_text(part: &Part) -> String {
    let def = |d: &Def| shown(d.place, d.mask, if d.kills { "" } else { "?" });
    let used = |u: &Use| format!("{}{}", if u.role == Role::Address { "@" } else { "" }, shown(u.place, u.mask, ""));
    let list = |mut words: Vec<String>| {
        words.sort();
        words.join(" ")
    };
    let (defs, uses) = (list(part.defs.iter().map(def).collect()), list(part.uses.iter().map(used).collect()));
    format!("{defs} = {uses} ({:?})", part.mode).replace("=  (", "= (")
}

fn check_parts(hex: &str, expected: &[&str]) {
    let mut parts: Vec<String> = made(hex).parts.iter().map(part_text).collect();
    parts.sort();
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(parts, expected, "{hex}");
}

#[test]
fn copies_go_byte_by_byte() {
    check_parts("48 89 d8", &["rax = rbx (Bytes)"]);
    check_parts("89 c8", &["rax = rcx[0..4] (Bytes)"]);
    check_parts("88 dc", &["rax[1..2] = rbx[0..1] (Bytes)"]);
    check_parts("f3 0f 6f 06", &["xmm0[0..16] = @rsi m0 (Bytes)"]);
    check_parts("f3 0f 7f 07", &["m0 = @rdi xmm0[0..16] (Bytes)"]);
    check_parts("0f b6 06", &["rax = @rsi m0 (Bytes)"]);
    check_parts("f2 0f 10 06", &["xmm0[0..16] = @rsi m0 (Bytes)"]);
    check_parts("f3 0f 10 c1", &["xmm0[0..4] = xmm1[0..4] (Bytes)"]);
    check_parts("0f 16 06", &["xmm0[8..16] = @rsi m0 (Bytes)"]);
}

#[test]
fn signs_are_extended_and_bits_stay_in_their_bytes() {
    check_parts("0f be 06", &["rax = @rsi m0 (Signed)"]);
    check_parts("48 63 c3", &["rax = rbx[0..4] (Signed)"]);
    check_parts("21 d8", &["rax = rax[0..4] rbx[0..4] (Bytes)", "flags = rax[0..4] rbx[0..4] (Whole)"]);
}

#[test]
fn what_is_exchanged_comes_from_the_other_side() {
    check_parts("48 93", &["rax = rbx (Bytes)", "rbx = rax (Bytes)"]);
    check_parts("48 87 07", &["rax = @rdi m0 (Bytes)", "m0 = @rdi rax (Bytes)"]);
    // Both halves are in one register.
    check_parts("86 e0", &["rax[0..1] rax[1..2] = rax[0..1] rax[1..2] (Whole)"]);
}

#[test]
fn the_stack_pointer_is_not_followed() {
    check_parts("53", &["m0 = rbx (Bytes)"]);
    check_parts("5b", &["rbx = m0 (Bytes)"]);
    check_parts("ff 36", &["m1 = @rsi m0 (Bytes)"]);
    check_parts("48 89 e5", &["rbp = rsp (Through)"]);
    check_parts("c9", &["rbp = m0 (Bytes)"]);
    check_parts("48 83 ec 18", &["flags = (Whole)"]);
    check_parts("48 8d 44 24 08", &["rax = (Whole)"]);
    // A return address is a constant, and what a return loads decides where it goes.
    check_parts("e8 00 00 00 00", &["m0 = (Bytes)"]);
    check_parts("c3", &[]);
    assert_eq!(made("c3").decides.len(), 1);
}

#[test]
fn results_that_are_always_the_same_come_from_nothing() {
    check_parts("31 c0", &["rax = (Bytes)", "flags = (Whole)"]);
    check_parts("29 c0", &["flags rax = (Whole)"]);
    check_parts("66 0f ef c0", &["xmm0[0..16] = (Bytes)"]);
    check_parts("19 c0", &["flags rax = flags (Whole)"]);
    check_parts("83 c8 ff", &["rax = (Bytes)", "flags = (Whole)"]);
    // Masked, the old value shines through.
    check_parts("62 f1 7d 49 ef c0", &["xmm0 = k1 xmm0 (Whole)"]);
}

#[test]
fn masks_are_no_bytes() {
    check_parts("62 f1 7f 49 6f 06", &["xmm0 = @rsi k1 m0 xmm0 (Whole)"]);
}

#[test]
fn flags_and_conditions_are_data() {
    check_parts("39 d8", &["flags = rax[0..4] rbx[0..4] (Whole)"]);
    check_parts("0f 94 c1", &["rcx[0..1] = flags (Whole)"]);
    check_parts("0f 45 ca", &["rcx = flags rcx[0..4] rdx[0..4] (Whole)"]);
}

#[test]
fn string_instructions_move_memory_and_their_registers_apart() {
    check_parts("a4", &["m1 = @flags @rdi @rsi m0 (Bytes)", "rsi = rsi (Whole)", "rdi = rdi (Whole)"]);
    let repeated = made("f3 a4");
    assert!(repeated.parts[1..].iter().all(|p| p.uses.iter().any(|u| u.place == Place::Reg(RegId::RCX))));
}

#[test]
fn only_moves_are_copies() {
    for (hex, copies) in [("48 89 d8", true), ("53", true), ("0f be 06", true), ("21 d8", false), ("01 d8", false)] {
        assert_eq!(made(hex).copies, copies, "{hex}");
    }
}
