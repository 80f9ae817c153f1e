//! Makes a random state in which an instruction can run: its memory operands hit the arena, its branches a landing.

use iced_x86::{Code, Instruction, Mnemonic, OpKind};
use isa::{Effects, MemAccess, MemSize, Segment, Shape};

use crate::child::{Child, LANDING};
use crate::declared;
use crate::image::{self, ARENA, ARENA_SIZE, Image};
use crate::rng::Rng;

/// Where operands shall lie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// Inside the arena, often at one of its edges.
    Inside,
    /// Near an edge, possibly beyond it.
    AtEdge,
}

/// A random state for `instruction`.
pub fn state(child: &Child, instruction: &Instruction, effects: &Effects, rng: &mut Rng, place: Where) -> Image {
    let mut image = image::random(rng, child);
    tame(effects, &mut image, rng);
    let mut assigned = [false; 16];
    for access in &effects.mem {
        aim(access, &mut image, &mut assigned, rng, place);
    }
    prepare(child, instruction, effects, &mut image, rng);
    image
}

/// Bounds what would make an access wander far: counts, vector indices, bit offsets.
fn tame(effects: &Effects, image: &mut Image, rng: &mut Rng) {
    for access in &effects.mem {
        match access.shape {
            Shape::RepString { .. } => {
                let high = if access.addr32 { rng.next() << 32 } else { 0 };
                let count = rng.below(20);
                image.set_gpr(1, high | count);
            }
            Shape::Gather { index_vec, index_elem, .. } | Shape::Scatter { index_vec, index_elem, .. } => {
                let at = image::VEC + 64 * usize::from(index_vec);
                for lane in 0..64 / usize::from(index_elem) {
                    let index = rng.below(96) as i64 - 48;
                    image.put(at + lane * usize::from(index_elem), &index.to_le_bytes()[..usize::from(index_elem)]);
                }
            }
            Shape::BitString { bits } => {
                let MemSize::Bytes(size) = access.size else { continue };
                let offset = rng.below(4000) as i64 - 2000;
                let mut value = image.gpr(bits).to_le_bytes();
                value[..size as usize].copy_from_slice(&offset.to_le_bytes()[..size as usize]);
                image.set_gpr(bits, u64::from_le_bytes(value));
            }
            _ => {}
        }
    }
}

/// The bytes before and after its address that an access may touch.
fn reach(access: &MemAccess) -> (u64, u64) {
    let size = match access.size {
        MemSize::Bytes(bytes) => u64::from(bytes),
        _ => 4096,
    };
    match access.shape {
        Shape::RepString { elem, .. } => (20 * u64::from(elem), 20 * u64::from(elem)),
        Shape::Gather { scale, .. } | Shape::Scatter { scale, .. } => {
            (48 * u64::from(scale), 48 * u64::from(scale) + 8)
        }
        Shape::BitString { .. } => (300, 300),
        Shape::PlusAl => (0, 256),
        _ => (0, size),
    }
}

/// Chooses an address for `access` and sets the registers it uses accordingly.
fn aim(access: &MemAccess, image: &mut Image, assigned: &mut [bool; 16], rng: &mut Rng, place: Where) {
    let (before, after) = reach(access);
    let room = ARENA_SIZE as u64 - before - after;
    let mut target = match rng.below(8) {
        0 => ARENA + before,
        1 => ARENA + ARENA_SIZE as u64 - after,
        _ => ARENA + before + rng.below(room + 1),
    };
    if place == Where::AtEdge {
        let slack = (after + before).clamp(1, 64) + 2;
        let end = ARENA + ARENA_SIZE as u64;
        target = match rng.below(6) {
            // Only the first or only the last byte is outside, or not even these.
            0 => ARENA + before - 1,
            1 => end - after + 1,
            2 => ARENA + before,
            3 => end - after,
            4 => ARENA - slack + rng.below(2 * slack),
            _ => end - slack + rng.below(2 * slack),
        };
    } else if !rng.one_in(3) {
        target &= !63;
        if target + after > ARENA + ARENA_SIZE as u64 {
            target -= 64;
        }
        if target < ARENA + before {
            target += 64;
        }
    }
    let segment = match access.seg {
        Segment::None => None,
        Segment::Fs => Some(image::FS_BASE),
        Segment::Gs => Some(image::GS_BASE),
    };
    let offset = target.wrapping_sub(segment.map_or(0, |at| image.u64(at)));
    aim_registers(access, image, assigned, rng, offset);
    if let (Some(at), None, None) = (segment, access.base, access.index) {
        image.put(at, &target.wrapping_sub(access.disp as u64).to_le_bytes());
    }
}

/// Sets base and index, as far as they are not set yet, so that their sum with the displacement is `offset`.
fn aim_registers(access: &MemAccess, image: &mut Image, assigned: &mut [bool; 16], rng: &mut Rng, offset: u64) {
    let scale = u64::from(access.scale);
    let rest = offset.wrapping_sub(access.disp as u64);
    let is_set = |n: u8| assigned[usize::from(n)];
    let mut set = vec![];
    match (access.base, access.index) {
        (Some(base), Some(index)) if base == index => set.push((base, rest / (1 + scale))),
        (Some(base), Some(index)) => {
            let chosen = match (is_set(base), is_set(index)) {
                (_, true) => image.gpr(index),
                (true, false) => rest.wrapping_sub(image.gpr(base)) / scale,
                (false, false) => (rng.below(64) as i64 - 16) as u64,
            };
            set.push((index, chosen));
            set.push((base, rest.wrapping_sub(chosen.wrapping_mul(scale))));
        }
        (Some(base), None) => set.push((base, rest)),
        (None, Some(index)) => set.push((index, rest / scale)),
        (None, None) => {}
    }
    for (n, value) in set {
        if !assigned[usize::from(n)] {
            assigned[usize::from(n)] = true;
            // The upper half does not matter to 32-bit addressing, so it is random there.
            let high = if access.addr32 { rng.next() << 32 } else { value & !0xFFFF_FFFF };
            image.set_gpr(n, high | value & 0xFFFF_FFFF);
        }
    }
}

/// Fits the contents of operands to instructions that would nearly always fault on random ones.
fn prepare(child: &Child, instruction: &Instruction, effects: &Effects, image: &mut Image, rng: &mut Rng) {
    let first = effects.mem.iter().find(|access| access.read).or(effects.mem.first());
    let at = first.and_then(|access| Image::offset_of(declared::address(access, image, 0)));
    // Registers that an address needs keep their value.
    let free = |n: u8| effects.mem.iter().all(|access| access.base != Some(n) && access.index != Some(n));
    if let Some(at) = at {
        prepare_memory(child, instruction, image, rng, at);
    }
    match instruction.mnemonic() {
        Mnemonic::Jmp | Mnemonic::Call if instruction.op0_kind() == OpKind::Register => {
            if let Some(n) = isa::gpr(instruction.op0_register()) {
                image.set_gpr(n, LANDING + rng.below(4000));
            }
        }
        Mnemonic::Div | Mnemonic::Idiv => {
            // A quotient that fits: the high half is small.
            if free(2) {
                let sign = if image.gpr(0) >> 63 == 1 { u64::MAX } else { 0 };
                image.set_gpr(2, if rng.one_in(2) { rng.below(2) } else { sign });
            }
            if free(0) && rng.one_in(2) {
                image.set_gpr(0, rng.below(200));
            }
        }
        Mnemonic::Loop | Mnemonic::Loope | Mnemonic::Loopne | Mnemonic::Jrcxz | Mnemonic::Jecxz => {
            let value = rng.below(3) | if rng.one_in(2) { 1 << 32 } else { 0 };
            image.set_gpr(1, value);
        }
        Mnemonic::Mov
            if instruction.op0_register().is_segment_register() && instruction.op1_kind() == OpKind::Register =>
        {
            if let Some(n) = isa::gpr(instruction.op1_register()) {
                let value = [0u64, 0x2B, 0x33][rng.below(3) as usize];
                image.set_gpr(n, image.gpr(n) & !0xFFFF | value);
            }
        }
        Mnemonic::Cmpxchg if instruction.op0_kind() == OpKind::Register && rng.one_in(2) => {
            if let Some(n) = isa::gpr(instruction.op0_register()) {
                image.set_gpr(n, image.gpr(0));
            }
        }
        _ if effects.mem.iter().any(|access| access.size == MemSize::XsaveArea) => {
            // Ask only for the components that a test state has; tiles would need more room than the arena.
            if free(0) {
                image.set_gpr(0, image.gpr(0) & !0xFFFF_FFFF | rng.next() & 0xE7);
            }
            if free(2) {
                image.set_gpr(2, image.gpr(2) & !0xFFFF_FFFF);
            }
        }
        Mnemonic::Xgetbv => image.set_gpr(1, rng.below(2) | rng.next() << 32),
        Mnemonic::Wrfsbase | Mnemonic::Wrgsbase => {
            if let Some(n) = isa::gpr(instruction.op0_register()) {
                image.set_gpr(n, rng.next() >> 17);
            }
        }
        _ => {}
    }
}

/// Sets memory at image offset `at`, where the instruction's first operand in memory is.
fn prepare_memory(child: &Child, instruction: &Instruction, image: &mut Image, rng: &mut Rng, at: usize) {
    let put = |image: &mut Image, bytes: &[u8]| {
        let end = (at + bytes.len()).min(image::SIZE);
        image.0[at..end].copy_from_slice(&bytes[..end - at]);
    };
    if let Some(words) = far_frame(instruction, rng) {
        return put(image, &words);
    }
    match instruction.mnemonic() {
        Mnemonic::Jmp | Mnemonic::Call | Mnemonic::Ret => put(image, &(LANDING + rng.below(4000)).to_le_bytes()),
        Mnemonic::Ldmxcsr | Mnemonic::Vldmxcsr => put(image, &(rng.next() as u32 & 0xFFFF).to_le_bytes()),
        Mnemonic::Popf | Mnemonic::Popfd | Mnemonic::Popfq => {
            // The trap flag would stop the child in the epilogue.
            if let Some(flags) = image.0.get_mut(at + 1) {
                *flags &= !1;
            }
        }
        Mnemonic::Fxrstor | Mnemonic::Fxrstor64 | Mnemonic::Xrstor | Mnemonic::Xrstor64 => {
            let mut other = image::random(rng, child);
            image::randomise_x87_environment(rng, &mut other);
            let mut area = child.xsave_area(&other);
            area.truncate(4096);
            area[512] &= rng.next() as u8;
            put(image, &area);
        }
        Mnemonic::Cmpxchg if rng.one_in(2) => put(image, &image.gpr(0).to_le_bytes()),
        Mnemonic::Cmpxchg8b | Mnemonic::Cmpxchg16b if rng.one_in(2) => {
            let half = if instruction.mnemonic() == Mnemonic::Cmpxchg8b { 4 } else { 8 };
            let (low, high) = (image.gpr(0).to_le_bytes(), image.gpr(2).to_le_bytes());
            put(image, &[&low[..half], &high[..half]].concat());
        }
        Mnemonic::Mov | Mnemonic::Pop if instruction.op0_register().is_segment_register() => {
            put(image, &[0u16, 0x2B][rng.below(2) as usize].to_le_bytes());
        }
        Mnemonic::Pop => {}
        Mnemonic::Div | Mnemonic::Idiv if rng.one_in(2) => put(image, &(rng.next() | 0x0101_0101).to_le_bytes()),
        _ => {}
    }
}

/// Contents of memory for a far transfer to the landing page, or for the load of a far pointer.
fn far_frame(instruction: &Instruction, rng: &mut Rng) -> Option<Vec<u8>> {
    /// Selectors of 64-bit user code and of data, on Linux.
    const CODE: u64 = 0x33;
    const DATA: u64 = 0x2B;
    let landing = LANDING + rng.below(4000);
    let flags = rng.next() & 0xCD5 | 0x202;
    let stack = rng.next() & 0x7FFF_FFFF;
    let (size, words): (usize, Vec<u64>) = match instruction.code() {
        Code::Retfq | Code::Retfq_imm16 => (8, vec![landing, CODE]),
        Code::Retfd | Code::Retfd_imm16 => (4, vec![landing, CODE]),
        Code::Iretq => (8, vec![landing, CODE, flags, stack, DATA]),
        Code::Iretd => (4, vec![landing, CODE, flags, stack, DATA]),
        Code::Jmp_m1664 | Code::Call_m1664 => (8, vec![landing, CODE]),
        Code::Jmp_m1632 | Code::Call_m1632 => (4, vec![landing, CODE]),
        Code::Lss_r16_m1616 => (2, vec![stack, DATA]),
        Code::Lss_r32_m1632 => (4, vec![stack, DATA]),
        Code::Lss_r64_m1664 => (8, vec![stack, DATA]),
        _ => return None,
    };
    Some(words.iter().flat_map(|word| word.to_le_bytes()[..size].to_vec()).collect())
}
