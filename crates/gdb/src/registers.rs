//! The registers of a thread, and their place in gdb's packets.
//!
//! `target.xml` names them to gdb; the order there is the order here. Selectors are what 64-bit Linux programs always
//! have, so they are not part of the state: gdb sees these constants and writing them has no effect. AVX-512 state
//! (zmm, k) is not shown.

use std::num::NonZeroUsize;

use gdbstub::arch::{Arch, RegId, Registers};

/// The registers of one thread.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CpuState {
    /// In the order of their numbers in instructions: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15.
    pub gpr: [u64; 16],
    pub rip: u64,
    pub rflags: u64,
    pub fs_base: u64,
    pub gs_base: u64,
    /// The number of the system call in progress, or -1.
    pub orig_rax: u64,
    pub x87: X87,
    pub xmm: [[u8; 16]; 16],
    /// Bits 128 to 255 of the ymm registers.
    pub ymm_high: [[u8; 16]; 16],
    pub mxcsr: u32,
}

/// The x87 unit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct X87 {
    /// st(0) first.
    pub st: [[u8; 10]; 8],
    pub control: u16,
    pub status: u16,
    /// Two bits for each physical register: valid, zero, special, empty.
    pub tags: u16,
    pub opcode: u16,
    pub instruction: u64,
    pub operand: u64,
}

/// Where the upper halves of ymm registers are in an area that `xsave` wrote (Intel SDM volume 1, 13.4.3).
const XSAVE_YMM: usize = 576;
const XSAVE_BV: usize = 512;
const AVX_BIT: u64 = 1 << 2;
const LEGACY: usize = 416;

impl CpuState {
    /// Takes over x87, SSE and AVX state from an area that `fxsave64` or `xsave64` wrote (standard format). An area that
    /// is too short, or that says that AVX is in its initial state, leaves the upper halves zero.
    pub fn load_xsave(&mut self, area: &[u8]) {
        if area.len() < LEGACY {
            return;
        }
        let half = |at: usize| u16::from_le_bytes([area[at], area[at + 1]]);
        let status = half(2);
        let st: [[u8; 10]; 8] = std::array::from_fn(|n| bytes_at(area, 32 + 16 * n));
        self.x87 = X87 {
            control: half(0),
            status,
            tags: full_tags(area[4], status, &st),
            opcode: half(6) & 0x7ff,
            instruction: u64::from_le_bytes(bytes_at(area, 8)),
            operand: u64::from_le_bytes(bytes_at(area, 16)),
            st,
        };
        self.mxcsr = u32::from_le_bytes(bytes_at(area, 24));
        self.xmm = std::array::from_fn(|n| bytes_at(area, 160 + 16 * n));
        let has_avx = area.len() >= XSAVE_YMM + 256 && u64::from_le_bytes(bytes_at(area, XSAVE_BV)) & AVX_BIT != 0;
        self.ymm_high = match has_avx {
            true => std::array::from_fn(|n| bytes_at(area, XSAVE_YMM + 16 * n)),
            false => [[0; 16]; 16],
        };
    }

    /// Puts x87, SSE and AVX state into an area for `fxrstor64` or `xrstor64`, as far as it is long enough.
    pub fn store_xsave(&self, area: &mut [u8]) {
        if area.len() < LEGACY {
            return;
        }
        let x87 = &self.x87;
        area[0..2].copy_from_slice(&x87.control.to_le_bytes());
        area[2..4].copy_from_slice(&x87.status.to_le_bytes());
        area[4] = (0..8).filter(|n| x87.tags >> (2 * n) & 3 != 3).fold(0, |bits, n| bits | 1 << n);
        area[6..8].copy_from_slice(&x87.opcode.to_le_bytes());
        area[8..16].copy_from_slice(&x87.instruction.to_le_bytes());
        area[16..24].copy_from_slice(&x87.operand.to_le_bytes());
        area[24..28].copy_from_slice(&self.mxcsr.to_le_bytes());
        for n in 0..8 {
            area[32 + 16 * n..][..10].copy_from_slice(&x87.st[n]);
        }
        for n in 0..16 {
            area[160 + 16 * n..][..16].copy_from_slice(&self.xmm[n]);
        }
        if area.len() >= XSAVE_YMM + 256 {
            let present = u64::from_le_bytes(bytes_at(area, XSAVE_BV)) | AVX_BIT | 3;
            area[XSAVE_BV..][..8].copy_from_slice(&present.to_le_bytes());
            for n in 0..16 {
                area[XSAVE_YMM + 16 * n..][..16].copy_from_slice(&self.ymm_high[n]);
            }
        }
    }
}

fn bytes_at<const N: usize>(area: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&area[at..at + N]);
    bytes
}

/// `fxsave` keeps one bit for each physical register; the tag word that gdb shows says what is in it.
fn full_tags(used: u8, status: u16, st: &[[u8; 10]; 8]) -> u16 {
    let top = usize::from(status >> 11 & 7);
    (0..8).fold(0, |word, physical| {
        let tag = match used >> physical & 1 {
            0 => 3,
            _ => tag_of(&st[(physical + 8 - top) % 8]),
        };
        word | tag << (2 * physical)
    })
}

fn tag_of(register: &[u8; 10]) -> u16 {
    let exponent = u16::from_le_bytes([register[8], register[9]]) & 0x7fff;
    let mantissa = u64::from_le_bytes(bytes_at(register, 0));
    match (exponent, mantissa) {
        (0, 0) => 1,
        (1..0x7fff, m) if m >> 63 == 1 => 0,
        _ => 2,
    }
}

/// gdb's order of the general registers, by their numbers in instructions.
const GDB_ORDER: [usize; 16] = [0, 3, 1, 2, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];
/// cs, ss, ds, es, fs, gs.
const SELECTORS: [u32; 6] = [0x33, 0x2b, 0, 0, 0, 0];
/// How many registers `target.xml` names, and the number of the one that matters here.
const COUNT: usize = 76;
pub(crate) const RIP: usize = 16;

/// The size in bytes of a register by its number in `target.xml`.
const fn size(number: usize) -> usize {
    match number {
        0..=16 | 57..=59 => 8,
        17..=23 | 32..=39 | 56 => 4,
        24..=31 => 10,
        _ => 16,
    }
}

fn offset(number: usize) -> usize {
    (0..number).map(size).sum()
}

impl CpuState {
    /// The bytes of a `g` packet.
    pub(crate) fn to_packet(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(offset(COUNT));
        for n in GDB_ORDER {
            out.extend(self.gpr[n].to_le_bytes());
        }
        out.extend(self.rip.to_le_bytes());
        // The upper half of rflags is reserved, and gdb's eflags has 32 bits.
        out.extend((self.rflags as u32).to_le_bytes());
        SELECTORS.iter().for_each(|s| out.extend(s.to_le_bytes()));
        self.x87.st.iter().for_each(|st| out.extend(st));
        let x87 = &self.x87;
        for value in [
            u32::from(x87.control),
            u32::from(x87.status),
            u32::from(x87.tags),
            (x87.instruction >> 32) as u32 & 0xffff,
            x87.instruction as u32,
            (x87.operand >> 32) as u32 & 0xffff,
            x87.operand as u32,
            u32::from(x87.opcode),
        ] {
            out.extend(value.to_le_bytes());
        }
        self.xmm.iter().for_each(|xmm| out.extend(xmm));
        out.extend(self.mxcsr.to_le_bytes());
        for value in [self.orig_rax, self.fs_base, self.gs_base] {
            out.extend(value.to_le_bytes());
        }
        self.ymm_high.iter().for_each(|high| out.extend(high));
        out
    }

    /// The state that a `G` packet describes; `None` if it has another length.
    pub(crate) fn from_packet(bytes: &[u8]) -> Option<CpuState> {
        if bytes.len() != offset(COUNT) {
            return None;
        }
        let long = |number| u64::from_le_bytes(bytes_at(bytes, offset(number)));
        let word = |number| u32::from_le_bytes(bytes_at(bytes, offset(number)));
        let mut gpr = [0; 16];
        GDB_ORDER.iter().enumerate().for_each(|(at, n)| gpr[*n] = long(at));
        let pointer = |segment, within| u64::from(word(segment) & 0xffff) << 32 | u64::from(word(within));
        Some(CpuState {
            gpr,
            rip: long(RIP),
            rflags: u64::from(word(17)),
            x87: X87 {
                st: std::array::from_fn(|n| bytes_at(bytes, offset(24 + n))),
                control: word(32) as u16,
                status: word(33) as u16,
                tags: word(34) as u16,
                instruction: pointer(35, 36),
                operand: pointer(37, 38),
                opcode: word(39) as u16,
            },
            xmm: std::array::from_fn(|n| bytes_at(bytes, offset(40 + n))),
            mxcsr: word(56),
            orig_rax: long(57),
            fs_base: long(58),
            gs_base: long(59),
            ymm_high: std::array::from_fn(|n| bytes_at(bytes, offset(60 + n))),
        })
    }

    pub(crate) fn register(&self, number: Number) -> Vec<u8> {
        self.to_packet()[offset(number.0)..][..size(number.0)].to_vec()
    }

    /// This state with one register changed; `None` if the value has another size.
    pub(crate) fn with_register(&self, number: Number, value: &[u8]) -> Option<CpuState> {
        let mut packet = self.to_packet();
        if value.len() != size(number.0) {
            return None;
        }
        packet[offset(number.0)..][..value.len()].copy_from_slice(value);
        CpuState::from_packet(&packet)
    }
}

/// A register by its number in `target.xml`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Number(usize);

impl RegId for Number {
    fn from_raw_id(id: usize) -> Option<(Self, Option<NonZeroUsize>)> {
        (id < COUNT).then(|| (Number(id), NonZeroUsize::new(size(id))))
    }

    fn to_raw_id(&self) -> Option<usize> {
        Some(self.0)
    }
}

impl Registers for CpuState {
    type ProgramCounter = u64;

    fn pc(&self) -> u64 {
        self.rip
    }

    fn gdb_serialize(&self, mut write_byte: impl FnMut(Option<u8>)) {
        self.to_packet().into_iter().for_each(|byte| write_byte(Some(byte)));
    }

    fn gdb_deserialize(&mut self, bytes: &[u8]) -> Result<(), ()> {
        *self = CpuState::from_packet(bytes).ok_or(())?;
        Ok(())
    }
}

/// 64-bit x86 Linux, as `target.xml` describes it.
#[derive(Debug)]
pub enum Amd64 {}

impl Arch for Amd64 {
    type Usize = u64;
    type Registers = CpuState;
    type BreakpointKind = usize;
    type RegId = Number;

    fn target_description_xml() -> Option<&'static str> {
        Some(include_str!("target.xml"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A state in which every bit that can be kept differs from its neighbours.
    fn patterned() -> CpuState {
        let bytes: Vec<u8> = (0..offset(COUNT)).map(|n| (n * 37 + n / 251) as u8).collect();
        let mut state = CpuState::from_packet(&bytes).unwrap();
        state.x87.opcode &= 0x7ff;
        state
    }

    #[test]
    fn the_description_names_as_many_registers_as_the_packet_has() {
        let xml = Amd64::target_description_xml().unwrap();
        let bits = |line: &str| line.split("bitsize=\"").nth(1)?.split('"').next()?.parse::<usize>().ok();
        let sizes: Vec<usize> = xml.lines().filter(|l| l.starts_with("<reg ")).filter_map(bits).collect();
        assert_eq!(sizes, (0..COUNT).map(|n| 8 * size(n)).collect::<Vec<_>>());
    }

    #[test]
    fn a_packet_keeps_every_register() {
        let state = patterned();
        assert_eq!(CpuState::from_packet(&state.to_packet()), Some(state));
    }

    #[test]
    fn a_packet_of_another_length_is_refused() {
        assert_eq!(CpuState::from_packet(&[0; 100]), None);
        assert_eq!(CpuState::default().with_register(Number(RIP), &[1, 2]), None);
    }

    #[test]
    fn an_xsave_area_keeps_vector_and_floating_point_registers() {
        let mut state = patterned();
        state.x87.status = 3 << 11;
        state.x87.st = [[1, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0x3f]; 8];
        state.x87.tags = 0b11_11_11_00_00_11_11_11;
        let mut area = [0; 1024];
        state.store_xsave(&mut area);
        let mut loaded = CpuState { x87: X87::default(), mxcsr: 0, ..state.clone() };
        loaded.xmm = [[0; 16]; 16];
        loaded.load_xsave(&area);
        assert_eq!(loaded, state);
    }

    #[test]
    fn tags_tell_zero_from_special_values() {
        let value = |mantissa: u64, exponent: u16| {
            let mut register = [0; 10];
            register[..8].copy_from_slice(&mantissa.to_le_bytes());
            register[8..].copy_from_slice(&exponent.to_le_bytes());
            tag_of(&register)
        };
        assert_eq!(value(0, 0), 1);
        assert_eq!(value(1 << 63, 0x3fff), 0);
        assert_eq!(value(1 << 63, 0x7fff), 2, "infinity");
        assert_eq!(value(1, 0), 2, "denormal");
    }
}
