//! What is declared about instructions that are easily got wrong. The test `cpu` proves the declarations; these cases
//! pin them and show the conventions.

use iced_x86::{Decoder, DecoderOptions, Instruction};
use std::format;
use std::string::String;
use std::vec::Vec;

use crate::{
    Access, Effects, Flags, Isa, Kind, LaneMask, MemAccess, MemSize, Reg, RegAccess, Segment, Shape, StringReg, System,
    Top,
};

fn decode(hex: &str) -> Instruction {
    let bytes: Vec<u8> = (0..hex.len() / 2).map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap()).collect();
    let instruction = Decoder::with_ip(64, &bytes, 0x1000, DecoderOptions::NONE).decode();
    assert_eq!(instruction.len(), bytes.len(), "{hex} is not one instruction");
    instruction
}

fn effects(hex: &str) -> Effects {
    let mut out = Effects::default();
    Isa::new().effects(&decode(hex), &mut out);
    out
}

fn gpr_name(n: u8) -> String {
    match n {
        0..8 => ["rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi"][usize::from(n)].into(),
        _ => format!("r{n}"),
    }
}

/// `rax` or `rax[0..4]`, with `r`, `w`, `rw`, and `?` if conditional.
fn show_register(access: &RegAccess) -> String {
    let name = match access.reg {
        Reg::Gpr(n) => gpr_name(n),
        Reg::Vec(n) => format!("v{n}"),
        Reg::Mask(n) => format!("k{n}"),
        Reg::St(n) => format!("st{n}"),
        Reg::Mmx(n) => format!("mm{n}"),
        Reg::Rip => "rip".into(),
        other => format!("{other:?}"),
    };
    let whole = access.bytes.start == 0 && access.bytes.end == access.reg.size();
    let range = if whole { String::new() } else { format!("[{}..{}]", access.bytes.start, access.bytes.end) };
    let (read, write) = (if access.read { "r" } else { "" }, if access.write { "w" } else { "" });
    format!("{name}{range}:{read}{write}{}", if access.conditional { "?" } else { "" })
}

/// `w8[rsp-0x8]`, with `?` if conditional.
fn show_memory(access: &MemAccess) -> String {
    let mut address = match access.seg {
        Segment::None => String::new(),
        Segment::Fs => "fs:".into(),
        Segment::Gs => "gs:".into(),
    };
    address += &access.base.map_or(String::new(), gpr_name);
    if let Some(index) = access.index {
        address += &format!("+{}*{}", gpr_name(index), access.scale);
    }
    if access.disp != 0 {
        let sign = if access.disp < 0 { "-" } else { "+" };
        address += &format!("{sign}{:#x}", access.disp.unsigned_abs());
    }
    let size = match access.size {
        MemSize::Bytes(bytes) => format!("{bytes}"),
        other => format!("{other:?}"),
    };
    let (read, write) = (if access.read { "r" } else { "" }, if access.write { "w" } else { "" });
    let suffix = [if access.addr32 { "a32" } else { "" }, if access.conditional { "?" } else { "" }].concat();
    format!("{read}{write}{size}[{address}]{suffix}")
}

/// Decodes `hex` and compares its registers and memory with `expected`, in any order.
#[track_caller]
fn check_effects(hex: &str, expected: &str) {
    let effects = effects(hex);
    let mut found: Vec<String> = effects.regs.iter().map(show_register).collect();
    found.extend(effects.mem.iter().map(show_memory));
    found.sort();
    let mut wanted: Vec<&str> = expected.split_whitespace().collect();
    wanted.sort();
    assert_eq!(found, wanted, "{hex}");
}

/// Decodes `hex` and compares the shapes of its memory accesses.
#[track_caller]
fn check_shapes(hex: &str, expected: &[Shape]) {
    let found: Vec<Shape> = effects(hex).mem.iter().map(|access| access.shape).collect();
    assert_eq!(found, expected, "{hex}");
}

/// Decodes `hex` and compares flags read, defined, undefined and conditional.
#[track_caller]
fn check_flags(hex: &str, expected: &str) {
    let e = effects(hex);
    let found = format!(
        "read {:?} write {:?} undefined {:?} maybe {:?}",
        e.flags_read, e.flags_written, e.flags_undefined, e.flags_conditional
    );
    assert_eq!(found, expected, "{hex}");
}

#[test]
fn stack_accesses_are_relative_to_rsp_before() {
    check_effects("50", "rax:r rsp:rw w8[rsp-0x8]"); // push rax
    check_effects("58", "rax:w rsp:rw r8[rsp]"); // pop rax
    check_effects("54", "rsp:r rsp:rw w8[rsp-0x8]"); // push rsp
    check_effects("ff742408", "rsp:r rsp:rw r8[rsp+0x8] w8[rsp-0x8]"); // push qword [rsp+8]
    check_effects("8f442408", "rsp:r rsp:rw w8[rsp+0x10] r8[rsp]"); // pop qword [rsp+8]: rsp is incremented first
    check_effects("e800000000", "rsp:rw rip:w w8[rsp-0x8]"); // call
    check_effects("c3", "rsp:rw rip:w r8[rsp]"); // ret
    check_effects("c9", "rsp:w rbp:rw r8[rbp]"); // leave
    check_effects("c8100000", "rsp:rw rbp:rw w8[rsp-0x8]"); // enter 16, 0
    check_effects("0fa1", "rsp:rw Segment(4):w r2[rsp]"); // pop fs
}

#[test]
fn writes_of_32_bits_clear_the_upper_half() {
    check_effects("01d8", "rax[0..4]:r rax:w rbx[0..4]:r"); // add eax, ebx
    check_effects("00dc", "rax[1..2]:rw rbx[0..1]:r"); // add ah, bl
    check_effects("6601d8", "rax[0..2]:rw rbx[0..2]:r"); // add ax, bx
    check_effects("0f44c3", "rax[0..4]:r rax:w rbx[0..4]:r"); // cmove eax, ebx writes always
    check_effects("480f4403", "rax:w? rbx:r r8[rbx]"); // cmove rax, [rbx] reads memory always
}

#[test]
fn a_register_combined_with_itself_is_no_input() {
    check_effects("31c0", "rax:w"); // xor eax, eax
    check_effects("19c0", "rax:w"); // sbb eax, eax: only CF matters
    check_flags("19c0", "read CF write CF|PF|AF|ZF|SF|OF undefined - maybe -");
    check_effects("39c0", ""); // cmp eax, eax
    check_effects("660fefc9", "v1[0..16]:w"); // pxor xmm1, xmm1
}

#[test]
fn implicit_operands_are_named() {
    check_effects("48f7e1", "rcx:r rax:rw rdx:w"); // mul rcx
    check_effects("4899", "rax[7..8]:r rdx:w"); // cqo
    check_effects("d7", "rbx:r rax[0..1]:r rax[0..1]:rw r1[rbx]"); // xlatb
    check_shapes("d7", &[Shape::PlusAl]);
    check_effects("e2fe", "rcx:rw rip:w?"); // loop
    check_effects("e3fe", "rcx:r rip:w?"); // jrcxz
    check_effects("480fc70f", "rdi:r rcx:r? rbx:r? rax:rw? rdx:rw? rw16[rdi]?"); // cmpxchg16b [rdi]
    check_effects("f0480fc10f", "rdi:r rcx:rw rw8[rdi]"); // lock xadd [rdi], rcx
}

#[test]
fn addresses_name_segment_width_and_rip() {
    check_effects("64488b042528000000", "rax:w r8[fs:+0x28]"); // mov rax, fs:[0x28]
    check_effects("65488b18", "rbx:w rax:r r8[gs:rax]"); // mov rbx, gs:[rax]
    check_effects("678b4308", "rax:w rbx[0..4]:r r4[rbx+0x8]a32"); // mov eax, [ebx+8]
    check_effects("488b0501000000", "rax:w r8[+0x1008]"); // mov rax, [rip+1]
    check_effects("488d44bb08", "rax:w rbx:r rdi:r"); // lea rax, [rbx+rdi*4+8] touches nothing
    check_effects("0f1f4000", ""); // nop dword [rax]
}

#[test]
fn shifts_by_cl_may_leave_the_flags() {
    check_flags("d3e0", "read - write CF|PF|ZF|SF undefined AF|OF maybe CF|PF|AF|ZF|SF|OF"); // shl eax, cl
    check_flags("c1e004", "read - write CF|PF|ZF|SF undefined AF|OF maybe -"); // shl eax, 4
    check_flags("c1e000", "read - write - undefined - maybe -"); // shl eax, 0
    check_flags("d1e0", "read - write CF|PF|ZF|SF|OF undefined AF maybe -"); // shl eax, 1
    check_flags("0fa5d8", "read - write CF|PF|ZF|SF undefined AF|OF maybe CF|PF|AF|ZF|SF|OF"); // shld eax, ebx, cl
    check_flags("c1d002", "read CF write CF undefined OF maybe OF"); // rcl eax, 2
    check_flags("c4e279f7c3", "read - write - undefined - maybe -"); // shlx eax, ebx, eax
}

#[test]
fn flags_that_are_undefined_but_stay_are_not_killed() {
    let summary = Isa::new().summary(&decode("480fa3d8")); // bt rax, rbx
    assert_eq!((summary.flags_kill, summary.flags_may_write), (Flags::CF, Flags::STATUS.without(Flags::ZF)));
    let summary = Isa::new().summary(&decode("48f7f1")); // div rcx
    assert_eq!((summary.flags_kill, summary.flags_may_write), (Flags::NONE, Flags::STATUS));
}

#[test]
fn pushf_and_popf_have_the_system_flags() {
    assert_eq!(effects("9c").flags_read, Flags::ALL); // pushfq
    assert!(effects("9d").flags_written.contains(Flags::STATUS | Flags::DF | Flags::NT | Flags::AC | Flags::TF)); // popfq
}

#[test]
fn repeated_strings_have_a_count() {
    let rep = |which, elem| Shape::RepString { count_is_exact: true, elem, which };
    check_effects("f3a4", "rcx:rw? rdi:r? rdi:w? rsi:r? rsi:w? w1[rdi]? r1[rsi]?"); // rep movsb
    check_shapes("f3a4", &[rep(StringReg::Di, 1), rep(StringReg::Si, 1)]);
    check_shapes("f348ab", &[rep(StringReg::Di, 8)]); // rep stosq
    check_shapes("f2ab", &[rep(StringReg::Di, 4)]); // repne stosd repeats as well
    check_effects("a4", "rdi:rw rsi:rw w1[rdi] r1[rsi]"); // movsb
    check_shapes("a4", &[Shape::Plain, Shape::Plain]);
    let until = |which| Shape::RepString { count_is_exact: false, elem: 1, which };
    check_shapes("f3a6", &[until(StringReg::Si), until(StringReg::Di)]); // repe cmpsb
    check_flags("f3a6", "read DF write CF|PF|AF|ZF|SF|OF undefined - maybe CF|PF|AF|ZF|SF|OF");
    check_flags("a6", "read DF write CF|PF|AF|ZF|SF|OF undefined - maybe -"); // cmpsb
    // rep movsb with 32-bit addresses writes 32-bit registers, if it writes at all.
    check_effects("67f3a4", "rcx[0..4]:r rcx:w? rdi[0..4]:r? rdi:w? rsi[0..4]:r? rsi:w? w1[rdi]a32? r1[rsi]a32?");
}

#[test]
fn bit_offsets_reach_beyond_the_operand() {
    check_effects("480fab1f", "rdi:r rbx:r rw8[rdi]"); // bts [rdi], rbx
    check_shapes("480fab1f", &[Shape::BitString { bits: crate::RBX }]);
    check_shapes("480fba2f05", &[Shape::Plain]); // bts qword [rdi], 5
    check_effects("480fabd8", "rax:rw rbx[0..1]:r"); // bts rax, rbx: modulo 64
}

#[test]
fn scalar_arithmetic_touches_one_element() {
    check_effects("f30f58ca", "v1[0..4]:rw v2[0..4]:r"); // addss xmm1, xmm2
    check_effects("f20f51ca", "v1[0..8]:w v2[0..8]:r"); // sqrtsd xmm1, xmm2
    check_effects("f30f10ca", "v1[0..4]:w v2[0..4]:r"); // movss xmm1, xmm2
    check_effects("f30f1008", "v1[0..16]:w rax:r r4[rax]"); // movss xmm1, [rax] clears the rest
    check_effects("c5eb58cb", "v1:w v2[0..16]:r v3[0..8]:r"); // vaddsd xmm1, xmm2, xmm3
    check_effects("c5eb51cb", "v1:w v2[8..16]:r v3[0..8]:r"); // vsqrtsd xmm1, xmm2, xmm3
    check_effects("f2480f2ac8", "v1[0..8]:w rax:r"); // cvtsi2sd xmm1, rax
    check_effects("660f2eca", "v1[0..8]:r v2[0..8]:r"); // ucomisd xmm1, xmm2
    check_effects("0f12ca", "v1[0..8]:w v2[8..16]:r"); // movhlps xmm1, xmm2
    check_effects("660f1608", "v1[8..16]:w rax:r r8[rax]"); // movhpd xmm1, [rax]
    check_effects("660f3a22c801", "v1[4..8]:w rax[0..4]:r"); // pinsrd xmm1, eax, 1
    check_effects("660f3a16c803", "rax:w v1[12..16]:r"); // pextrd eax, xmm1, 3
    check_effects("660f62ca", "v1[0..8]:r v1[0..16]:w v2[0..8]:r"); // punpckldq xmm1, xmm2
}

#[test]
fn vex_clears_the_upper_part() {
    check_effects("c5f96fc2", "v0:w v2[0..16]:r"); // vmovdqa xmm0, xmm2
    let zeroed = effects("c5f877"); // vzeroupper
    assert_eq!(zeroed.regs.len(), 16);
    assert_eq!(show_register(&zeroed.regs[3]), "v3[16..64]:w");
}

#[test]
fn gathers_and_scatters_name_their_lanes() {
    // vgatherdps ymm1, [rax+ymm2*4], ymm3
    check_shapes(
        "c4e265920c90",
        &[Shape::Gather { index_vec: 2, index_elem: 4, lanes: 8, scale: 4, mask: LaneMask::Vec(3), elem: 4 }],
    );
    // vgatherqps xmm1, [rax+xmm2*4], xmm3: two lanes, the upper half of the result is cleared
    check_shapes(
        "c4e261930c90",
        &[Shape::Gather { index_vec: 2, index_elem: 8, lanes: 2, scale: 4, mask: LaneMask::Vec(3), elem: 4 }],
    );
    check_effects("c4e261930c90", "v1[0..16]:r v1:w v3[0..16]:r v3:w v2[0..16]:r rax:r r4[rax]?");
    // vscatterdps [rax+zmm2*4]{k1}, zmm3
    check_shapes(
        "62f27d49a21c90",
        &[Shape::Scatter { index_vec: 2, index_elem: 4, lanes: 16, scale: 4, mask: LaneMask::K(1), elem: 4 }],
    );
    check_effects("62f27d49a21c90", "rax:r v2:r v3:r k1:rw w4[rax]?");
}

#[test]
fn masked_memory_is_touched_by_lanes() {
    // vmaskmovps [rax], ymm1, ymm2
    check_shapes("c4e2752e10", &[Shape::Masked { elem: 4, lanes: 8, mask: LaneMask::Vec(1) }]);
    // maskmovdqu xmm1, xmm2
    check_shapes("660ff7ca", &[Shape::Masked { elem: 1, lanes: 16, mask: LaneMask::Vec(2) }]);
    check_effects("660ff7ca", "v1[0..16]:r v2[0..16]:r rdi:r w16[rdi]?");
    // vmovdqu32 zmm1{k2}, [rax]
    check_shapes("62f17e4a6f08", &[Shape::Masked { elem: 4, lanes: 16, mask: LaneMask::K(2) }]);
    check_effects("62f17e4a6f08", "v1:rw rax:r k2:r r64[rax]?");
    // vaddps zmm1{k2}, zmm3, dword [rax]{1to16}
    check_shapes("62f1645a5808", &[Shape::MaskedBroadcast { elem: 4, lanes: 16, mask: LaneMask::K(2) }]);
    // vpcompressd [rax]{k2}, zmm1
    check_shapes("62f27d4a8b08", &[Shape::Packed { elem: 4, lanes: 16, mask: LaneMask::K(2) }]);
    // vpermd zmm1{k2}, zmm3, [rax] has no fault suppression
    check_shapes("62f2654a3608", &[Shape::Plain]);
}

#[test]
fn state_areas_are_declared() {
    let save = effects("0fae27"); // xsave [rdi]
    assert_eq!(save.mem[0].size, MemSize::XsaveArea);
    assert!(save.system_read.contains(System::EXTENDED_STATE | System::XCR0) && save.system_write.is_empty());
    let restore = effects("0fae2f"); // xrstor [rdi]
    assert!(restore.system_write.contains(System::EXTENDED_STATE));
    let fxsave = effects("0fae07"); // fxsave [rdi]
    assert_eq!(fxsave.regs.iter().filter(|access| matches!(access.reg, Reg::Vec(_) | Reg::St(_))).count(), 24);
    assert_eq!(fxsave.mxcsr, Access::READ);
    check_effects("660f38f807", "rax:r rdi:r r64[rdi] w64[rax]"); // movdir64b rax, [rdi]
}

#[test]
fn x87_registers_are_counted_from_the_old_top() {
    check_effects("d9e8", "st7:w"); // fld1
    check_effects("d9c1", "st1:r st7:w"); // fld st(1)
    check_effects("dec1", "st1:rw st0:r"); // faddp st(1), st
    check_effects("dd18", "st0:r rax:r w8[rax]"); // fstp qword [rax]
    check_effects("d9c9", "st0:rw st1:rw"); // fxch
    assert_eq!(effects("d9e8").x87.top, Top::Push);
    assert_eq!(effects("ded9").x87.top, Top::PopTwice); // fcompp
    assert_eq!(effects("0fefc1").x87.top, Top::Zero); // pxor mm0, mm1
    assert_eq!(effects("0f77").x87.tags, Access::WRITE); // emms
}

#[test]
fn rounding_depends_on_mxcsr() {
    assert_eq!(effects("f20f58ca").mxcsr, Access::UPDATE); // addsd xmm1, xmm2
    assert_eq!(effects("f20f2ac8").mxcsr, Access::NONE); // cvtsi2sd xmm1, eax is exact
    assert_eq!(effects("62f17418580a").mxcsr, Access::UPDATE); // vaddps with a broadcast
    assert_eq!(effects("62f1741858ca").mxcsr, Access::READ); // vaddps zmm1, zmm1, zmm2, {rn-sae}
    assert_eq!(effects("660f6fca").mxcsr, Access::NONE); // movdqa xmm1, xmm2
    assert_eq!(effects("a7").mxcsr, Access::NONE); // cmpsd, the string instruction
}

#[test]
fn special_instructions_say_what_they_are() {
    let cases = [
        ("0f05", Kind::SystemCall), // syscall
        ("cc", Kind::Trap),         // int3
        ("0f0b", Kind::Trap),       // ud2
        ("0faef0", Kind::Fence),    // mfence
        ("0fa2", Kind::Fence),      // cpuid
        ("f390", Kind::Hint),       // pause
        ("f4", Kind::Privileged),   // hlt
        ("7400", Kind::Branch),     // je
        ("ffe0", Kind::Branch),     // jmp rax
        ("90", Kind::Hint),         // nop
        ("4889c8", Kind::Plain),    // mov rax, rcx
    ];
    for (hex, kind) in cases {
        assert_eq!(effects(hex).kind, kind, "{hex}");
    }
    assert_eq!(effects("0f31").system_read, System::TSC); // rdtsc
    assert_eq!(effects("f3480faed0").system_write, System::FS_BASE); // wrfsbase rax
}

#[test]
fn flags_print_their_names() {
    assert_eq!(format!("{:?} {:?} {:?}", Flags::NONE, Flags::CF | Flags::OF, Flags(1 << 30)), "- CF|OF 0x40000000");
}
