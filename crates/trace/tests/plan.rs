//! What is recorded for a block, and how its addresses follow: hand-assembled blocks with their plans beside them.
//!
//! A plan is written one line per instruction that has a slot or an access: `index: slots | accesses`. A slot is
//! `s0=rsp`, with `'` if it is recorded after the instruction; an access is `r` or `w` or `rw`, its size, `?` if it is
//! conditional, and the address as slot plus displacement.

use std::fmt::Write;

use iced_x86::{Decoder, DecoderOptions, Instruction};
use trace::plan::*;

const GPR: [&str; 16] =
    ["rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];

fn decode(bytes: &[u8]) -> Vec<Instruction> {
    let insns: Vec<Instruction> = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).into_iter().collect();
    assert!(insns.iter().all(|i| !i.is_invalid()), "the bytes must be instructions");
    insns
}

fn value(v: Value) -> String {
    let delta = match v.delta {
        0 => String::new(),
        d if d < 0 => format!("-{:#x}", d.unsigned_abs()),
        d => format!("+{d:#x}"),
    };
    match v.slot {
        Some(slot) => format!("s{slot}{delta}"),
        None => format!("{:#x}", v.delta),
    }
}

fn mask(m: LaneBits) -> String {
    match m {
        LaneBits::All => "all".to_string(),
        LaneBits::Signs(s) => format!("signs s{s}"),
        LaneBits::Bits(s) => format!("bits s{s}"),
    }
}

fn access(a: &Access) -> String {
    let mut t = String::new();
    let rw = [if a.read { "r" } else { "" }, if a.write { "w" } else { "" }].concat();
    let seg = match a.addr.seg {
        Segment::None => "",
        Segment::Fs => "fs:",
        Segment::Gs => "gs:",
    };
    let cut = if a.addr.addr32 { "(32)" } else { "" };
    let maybe = if a.conditional { "?" } else { "" };
    write!(t, "{rw}{}{maybe} {seg}{}{cut}", a.size, value(a.addr.value)).unwrap();
    match a.shape {
        Shape::Plain => {}
        Shape::Rep { count, left: None } => write!(t, " times {}", value(count)).unwrap(),
        Shape::Rep { count, left: Some(left) } => write!(t, " times {} less s{left}", value(count)).unwrap(),
        Shape::Indexed { index, index_elem, lanes, scale, mask: m } => {
            write!(t, " + {lanes} of {index_elem} in s{index} *{scale} if {}", mask(m)).unwrap();
        }
        Shape::Masked { lanes, mask: m } => write!(t, " {lanes} lanes if {}", mask(m)).unwrap(),
        Shape::Any { lanes, mask: m } => write!(t, " if any of {lanes} {}", mask(m)).unwrap(),
        Shape::Packed { lanes, mask: m } => write!(t, " packed of {lanes} {}", mask(m)).unwrap(),
        Shape::BitString { bits } => write!(t, " bit {}", value(bits)).unwrap(),
        Shape::PlusLowByte { al } => write!(t, " + low byte of {}", value(al)).unwrap(),
        Shape::Block => write!(t, " aligned").unwrap(),
    }
    t
}

fn slot(n: usize, s: &Slot) -> String {
    let what = match s.what {
        SlotKind::Gpr(r) => GPR[usize::from(r)].to_string(),
        SlotKind::Sum { base, index, scale } => {
            let base = base.map_or(String::new(), |b| format!("{}+", GPR[usize::from(b)]));
            format!("{base}{}*{scale}", GPR[usize::from(index)])
        }
        SlotKind::Vec { reg, bytes } => format!("v{reg}:{bytes}"),
        SlotKind::Mask(k) => format!("k{k}"),
    };
    format!("s{n}={what}{}", if s.after { "'" } else { "" })
}

/// The block has this plan.
fn check_plan(bytes: &[u8], expected: &str) {
    let insns = decode(bytes);
    let mut plan = BlockPlan::new();
    Planner::new().plan(&insns, &mut plan);
    let mut text = String::new();
    let mut n = 0;
    for index in 0..insns.len() {
        let slots: Vec<String> = plan.slots_of(index).iter().zip(n..).map(|(s, n)| slot(n, s)).collect();
        n += slots.len();
        let accesses: Vec<String> = plan.accesses_of(index).iter().map(access).collect();
        if !slots.is_empty() || !accesses.is_empty() {
            writeln!(text, "{index}: {} | {}", slots.join(" "), accesses.join(", ")).unwrap();
        }
    }
    let lines =
        |t: &str| t.lines().map(|l| l.trim().to_string()).filter(|l| !l.is_empty()).collect::<Vec<_>>().join("\n");
    assert_eq!(lines(&text), lines(expected));
    check_layout(&plan);
}

/// Slots follow each other without gaps, in the order in which they are recorded.
fn check_layout(plan: &BlockPlan) {
    let mut end = ID_BYTES;
    let mut last = (0, false);
    for s in &plan.slots {
        assert_eq!(s.offset, end);
        assert!(last <= (s.insn, s.after));
        end += s.what.bytes();
        last = (s.insn, s.after);
    }
    assert_eq!(plan.record_bytes(), end);
}

#[test]
fn the_stack_pointer_is_recorded_once() {
    check_plan(
        &[
            0x55, // push rbp
            0x48, 0x89, 0xe5, // mov rbp, rsp
            0x53, // push rbx
            0x48, 0x83, 0xec, 0x18, // sub rsp, 0x18
            0x48, 0x89, 0x7d, 0xe8, // mov [rbp-0x18], rdi
            0x48, 0x8b, 0x44, 0x24, 0x08, // mov rax, [rsp+8]
            0xe8, 0, 0, 0, 0, // call
        ],
        "0: s0=rsp | w8 s0-0x8
         2:  | w8 s0-0x10
         4:  | w8 s0-0x20
         5:  | r8 s0-0x20
         6:  | w8 s0-0x30",
    );
}

#[test]
fn leave_takes_the_stack_pointer_from_rbp() {
    check_plan(
        &[
            0x48, 0x8b, 0x45, 0xf8, // mov rax, [rbp-8]
            0xc9, // leave
            0xc3, // ret
        ],
        "0: s0=rbp | r8 s0-0x8
         1:  | r8 s0
         2:  | r8 s0+0x8",
    );
    // After it rbp is what was on the stack.
    check_plan(
        &[
            0xc9, // leave
            0x48, 0x8b, 0x45, 0xf8, // mov rax, [rbp-8]
            0x5b, // pop rbx
            0xc2, 0x10, 0, // ret 0x10
        ],
        "0: s0=rbp | r8 s0
         1: s1=rbp | r8 s1-0x8
         2:  | r8 s0+0x8
         3:  | r8 s0+0x10",
    );
}

#[test]
fn a_popped_register_is_unknown() {
    check_plan(
        &[
            0x48, 0x8b, 0x03, // mov rax, [rbx]
            0x5b, // pop rbx
            0x48, 0x8b, 0x03, // mov rax, [rbx]
            0x5c, // pop rsp
            0x58, // pop rax
        ],
        "0: s0=rbx | r8 s0
         1: s1=rsp | r8 s1
         2: s2=rbx | r8 s2
         3:  | r8 s1+0x8
         4: s3=rsp | r8 s3",
    );
}

#[test]
fn push_of_memory_uses_the_old_stack_pointer_and_pop_to_memory_the_new() {
    check_plan(
        &[
            0xff, 0x74, 0x24, 0x08, // push [rsp+8]
            0x8f, 0x44, 0x24, 0x08, // pop [rsp+8]
        ],
        "0: s0=rsp | r8 s0+0x8, w8 s0-0x8
         1:  | r8 s0-0x8, w8 s0+0x8",
    );
}

#[test]
fn constants_cost_nothing() {
    check_plan(
        &[
            0x48, 0x8b, 0x05, 0x10, 0, 0, 0, // mov rax, [rip+0x10]
            0x48, 0x8d, 0x0d, 0x10, 0, 0, 0, // lea rcx, [rip+0x10]
            0x8b, 0x41, 0x04, // mov eax, [rcx+4]
            0xba, 0, 0x20, 0, 0, // mov edx, 0x2000
            0x8b, 0x02, // mov eax, [rdx]
            0x31, 0xff, // xor edi, edi
            0x8b, 0x04, 0xbe, // mov eax, [rsi+rdi*4]
            0x8b, 0x46, 0x04, // mov eax, [rsi+4]
            0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0, // mov rax, fs:[0x28]
        ],
        "0:  | r8 0x1017
         2:  | r4 0x1022
         4:  | r4 0x2000
         6: s0=rsi | r4 s0
         7:  | r4 s0+0x4
         8:  | r8 fs:0x28",
    );
}

#[test]
fn sums_are_recorded_until_a_part_changes() {
    check_plan(
        &[
            0x8b, 0x04, 0x88, // mov eax, [rax+rcx*4]
            0x8b, 0x5c, 0x88, 0x10, // mov ebx, [rax+rcx*4+0x10]
            0x8b, 0x5c, 0x8a, 0x10, // mov ebx, [rdx+rcx*4+0x10]
            0x8b, 0x5c, 0x8a, 0x20, // mov ebx, [rdx+rcx*4+0x20]
            0xff, 0xc1, // inc ecx
            0x8b, 0x5c, 0x8a, 0x20, // mov ebx, [rdx+rcx*4+0x20]
            0x8b, 0x1c, 0xcd, 0x80, 0, 0, 0, // mov ebx, [rcx*8+0x80]
            0x8b, 0x1c, 0x0d, 0x80, 0, 0, 0, // mov ebx, [rcx*1+0x80]
        ],
        "0: s0=rax+rcx*4 | r4 s0
         1: s1=rax+rcx*4 | r4 s1+0x10
         2: s2=rdx+rcx*4 | r4 s2+0x10
         3:  | r4 s2+0x20
         5: s3=rdx+rcx*4 | r4 s3+0x20
         6: s4=rcx*8 | r4 s4+0x80
         7: s5=rcx | r4 s5+0x80",
    );
}

#[test]
fn known_registers_move_and_shift() {
    check_plan(
        &[
            0x8b, 0x03, // mov eax, [rbx]
            0x48, 0x89, 0xd9, // mov rcx, rbx
            0x48, 0x83, 0xc1, 0x08, // add rcx, 8
            0x48, 0xff, 0xc9, // dec rcx
            0x48, 0x8d, 0x51, 0x10, // lea rdx, [rcx+0x10]
            0x8b, 0x01, // mov eax, [rcx]
            0x8b, 0x02, // mov eax, [rdx]
            0x83, 0xc2, 0x01, // add edx, 1
            0x8b, 0x02, // mov eax, [rdx]
            0x48, 0x0f, 0x44, 0xd9, // cmove rbx, rcx
            0x8b, 0x03, // mov eax, [rbx]
        ],
        "0: s0=rbx | r4 s0
         5:  | r4 s0+0x7
         6:  | r4 s0+0x17
         8: s1=rdx | r4 s1
         10: s2=rbx | r4 s2",
    );
}

#[test]
fn rep_strings_record_count_and_pointers() {
    check_plan(
        &[
            0xf3, 0xa4, // rep movsb
            0xf3, 0x48, 0xab, // rep stosq
            0xf3, 0xac, // rep lodsb
        ],
        "0: s0=rsi s1=rcx s2=rdi | r1 s0 times s1, w1 s2 times s1
         1: s3=rdi s4=rcx | w8 s3 times s4
         2: s5=rsi s6=rcx | r1 s5 times s6",
    );
}

#[test]
fn strings_that_end_early_record_what_is_left() {
    check_plan(
        &[
            0xf2, 0xae, // repne scasb
            0xf3, 0xa7, // repe cmpsd
        ],
        "0: s0=rdi s1=rcx s2=rcx' | r1 s0 times s1 less s2
         1: s3=rsi s4=rcx s5=rdi s6=rcx' | r4 s3 times s4 less s6, r4 s5 times s4 less s6",
    );
}

#[test]
fn strings_without_rep_are_plain() {
    check_plan(
        &[
            0xa4, // movsb
            0xa4, // movsb
            0xd7, // xlat
        ],
        "0: s0=rsi s1=rdi | r1 s0, w1 s1
         1: s2=rsi s3=rdi | r1 s2, w1 s3
         2: s4=rbx s5=rax | r1 s4 + low byte of s5",
    );
}

#[test]
fn segments_and_short_addresses() {
    check_plan(
        &[
            0x64, 0x8b, 0x03, // mov eax, fs:[rbx]
            0x65, 0x8b, 0x43, 0x08, // mov eax, gs:[rbx+8]
            0x67, 0x8b, 0x43, 0xfc, // mov eax, [ebx-4]
            0x67, 0x8b, 0x0c, 0x8b, // mov ecx, [ebx+ecx*4]
            0x67, 0xf3, 0xa4, // rep movsb [edi], [esi]
        ],
        "0: s0=rbx | r4 fs:s0
         1:  | r4 gs:s0+0x8
         2:  | r4 s0-0x4(32)
         3: s1=rbx+rcx*4 | r4 s1(32)
         4: s2=rsi s3=rcx s4=rdi | r1 s2(32) times s3, w1 s4(32) times s3",
    );
}

#[test]
fn vectors_record_indices_and_masks() {
    check_plan(
        &[
            0xc4, 0xe2, 0x65, 0x90, 0x4c, 0x90, 0x10, // vpgatherdd ymm1, [rax+ymm2*4+0x10], ymm3
            0xc4, 0xe2, 0xf9, 0x91, 0x0c, 0xd0, // vpgatherqq xmm1, [rax+xmm2*8], xmm0
            0xc4, 0xe2, 0x71, 0x2e, 0x10, // vmaskmovps [rax], xmm1, xmm2
            0x62, 0xf1, 0x7d, 0x4b, 0x7f, 0x28, // vmovdqa32 [rax]{k3}, zmm5
            0x62, 0xf2, 0x7d, 0x4b, 0x8b, 0x28, // vpcompressd [rax]{k3}, zmm5
        ],
        "0: s0=rax s1=v2:32 s2=v3:32 | r4 s0+0x10 + 8 of 4 in s1 *4 if signs s2
         1: s3=v2:16 s4=v0:16 | r8 s0 + 2 of 8 in s3 *8 if signs s4
         2: s5=v1:16 | w4 s0 4 lanes if signs s5
         3: s6=k3 | w4 s0 16 lanes if bits s6
         4: s7=k3 | w4 s0 packed of 16 bits s7",
    );
}

#[test]
fn bit_strings_record_the_bit() {
    check_plan(
        &[
            0x48, 0x0f, 0xa3, 0x0b, // bt [rbx], rcx
            0x48, 0x0f, 0xba, 0x23, 0x05, // bt qword [rbx], 5
        ],
        "0: s0=rbx s1=rcx | r8 s0 bit s1
         1:  | r8 s0",
    );
}

#[test]
fn what_touches_no_memory_records_nothing() {
    check_plan(
        &[
            0x48, 0x8d, 0x04, 0x88, // lea rax, [rax+rcx*4]
            0x0f, 0x1f, 0x44, 0x00, 0x00, // nop [rax+rax]
            0x48, 0x01, 0xd8, // add rax, rbx
            0x75, 0x00, // jne
        ],
        "",
    );
}

#[test]
fn a_plan_depends_on_nothing_but_the_instructions() {
    let blocks: [&[u8]; 3] = [&[0x55, 0x8b, 0x04, 0x88], &[0xf3, 0xa4, 0xc3], &[0x48, 0x8b, 0x03, 0xc9, 0xc3]];
    let mut used = Planner::new();
    let mut reused = BlockPlan::new();
    for bytes in blocks.iter().chain(blocks.iter().rev()) {
        let insns = decode(bytes);
        used.plan(&insns, &mut reused);
        let mut fresh = BlockPlan::new();
        Planner::new().plan(&insns, &mut fresh);
        assert_eq!(reused, fresh);
    }
}
