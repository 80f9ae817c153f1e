//! A small x86-64 emitter: just the instruction forms that the translator inserts.
//!
//! Bytes go into a reusable buffer; positions are offsets from its start. Registers are hardware numbers (rax 0 … r15 15).
//! None of these touches a flag unless its name says so.

use alloc::vec::Vec;

pub const RCX: u8 = 1;
pub const RSP: u8 = 4;
pub const R11: u8 = 11;

/// The buffer being written.
#[derive(Default)]
pub struct Asm {
    pub bytes: Vec<u8>,
}

/// A forward rel8 jump whose target is not known yet.
#[must_use]
pub struct Short(usize);

impl Asm {
    pub fn here(&self) -> u32 {
        self.bytes.len() as u32
    }

    pub fn put(&mut self, b: &[u8]) {
        self.bytes.extend_from_slice(b);
    }

    pub fn put32(&mut self, v: u32) {
        self.put(&v.to_le_bytes());
    }

    /// `op reg, gs:[offset]` or the reverse, by opcode.
    fn gs(&mut self, wide: bool, op: u8, reg: u8, offset: i32) {
        let rex = 0x40 | (wide as u8) << 3 | (reg >> 3) << 2;
        self.put(&[0x65]);
        if rex != 0x40 {
            self.put(&[rex]);
        }
        self.put(&[op, (reg & 7) << 3 | 4, 0x25]);
        self.put32(offset as u32);
    }

    /// `mov gs:[offset], reg`
    pub fn store_gs(&mut self, reg: u8, offset: i32) {
        self.gs(true, 0x89, reg, offset);
    }

    /// `mov reg, gs:[offset]`
    pub fn load_gs(&mut self, reg: u8, offset: i32) {
        self.gs(true, 0x8b, reg, offset);
    }

    /// `mov dword gs:[offset], imm`
    pub fn store_gs_imm32(&mut self, offset: i32, v: u32) {
        self.gs(false, 0xc7, 0, offset);
        self.put32(v);
    }

    /// `dec qword gs:[offset]`: writes all status flags but CF.
    pub fn dec_gs_flags(&mut self, offset: i32) {
        self.gs(true, 0xff, 1, offset);
    }

    /// `inc qword gs:[offset]`: writes all status flags but CF.
    pub fn inc_gs_flags(&mut self, offset: i32) {
        self.gs(true, 0xff, 0, offset);
    }

    /// `mov reg, [rip + x]` (load) or `mov [rip + x], reg`. Answers the offset of the displacement.
    pub fn move_rip(&mut self, load: bool, reg: u8) -> u32 {
        self.put(&[0x48 | (reg >> 3) << 2, if load { 0x8b } else { 0x89 }, (reg & 7) << 3 | 5]);
        let at = self.here();
        self.put32(0);
        at
    }

    /// `mov reg, imm` in the shortest form.
    pub fn mov_imm(&mut self, reg: u8, v: u64) {
        let b = reg >> 3;
        if v >> 32 == 0 {
            if b != 0 {
                self.put(&[0x41]);
            }
            self.put(&[0xb8 | reg & 7]);
            self.put32(v as u32);
        } else {
            self.put(&[0x48 | b, 0xb8 | reg & 7]);
            self.put(&v.to_le_bytes());
        }
    }

    /// `mov to, from`
    pub fn mov_reg(&mut self, to: u8, from: u8) {
        self.put(&[0x48 | (from >> 3) << 2 | to >> 3, 0x89, 0xc0 | (from & 7) << 3 | to & 7]);
    }

    /// `op reg, [base + index*scale + disp]` with a 64-bit operand.
    pub fn mem(&mut self, op: u8, reg: u8, base: Option<u8>, index: Option<(u8, u8)>, disp: i32) {
        let x = index.map_or(0, |i| i.0);
        let rex = 0x48 | (reg >> 3) << 2 | (x >> 3) << 1 | base.unwrap_or(0) >> 3;
        self.put(&[rex, op]);
        self.modrm(reg, base, index, disp);
    }

    fn modrm(&mut self, reg: u8, base: Option<u8>, index: Option<(u8, u8)>, disp: i32) {
        let r = (reg & 7) << 3;
        let small = (-128..128).contains(&disp);
        match (base, index) {
            (Some(b), None) if b & 7 != 4 => {
                self.put(&[if small { 0x40 } else { 0x80 } | r | b & 7]);
            }
            _ => {
                let (x, scale) = index.unwrap_or((4, 1));
                let sib = (scale.trailing_zeros() as u8) << 6 | (x & 7) << 3;
                match base {
                    None => {
                        self.put(&[r | 4, sib | 5]);
                        self.put32(disp as u32);
                        return;
                    }
                    Some(b) => self.put(&[if small { 0x44 } else { 0x84 } | r, sib | b & 7]),
                }
            }
        }
        if small {
            self.put(&[disp as u8]);
        } else {
            self.put32(disp as u32);
        }
    }

    /// `mov [base + disp], reg`
    pub fn store(&mut self, reg: u8, base: u8, disp: i32) {
        self.mem(0x89, reg, Some(base), None, disp);
    }

    /// `mov dword [base + disp], imm`
    pub fn store_imm32(&mut self, base: u8, disp: i32, v: u32) {
        if base >= 8 {
            self.put(&[0x41]);
        }
        self.put(&[0xc7]);
        self.modrm(0, Some(base), None, disp);
        self.put32(v);
    }

    /// `lea reg, [base + index*scale + disp]`
    pub fn lea(&mut self, reg: u8, base: Option<u8>, index: Option<(u8, u8)>, disp: i32) {
        self.mem(0x8d, reg, base, index, disp);
    }

    /// `pop reg`
    pub fn pop(&mut self, reg: u8) {
        if reg >= 8 {
            self.put(&[0x41]);
        }
        self.put(&[0x58 | reg & 7]);
    }

    /// `push qword [rip + x]`. Answers the offset of the displacement.
    pub fn push_rip(&mut self) -> u32 {
        self.put(&[0xff, 0x35]);
        let at = self.here();
        self.put32(0);
        at
    }

    /// `jmp rel32`; answers the offset of the rel32.
    pub fn jmp(&mut self) -> u32 {
        self.put(&[0xe9]);
        let at = self.here();
        self.put32(0);
        at
    }

    /// `jcc rel32`; answers the offset of the rel32.
    pub fn jcc(&mut self, cc: u8) -> u32 {
        self.put(&[0x0f, 0x80 | cc]);
        let at = self.here();
        self.put32(0);
        at
    }

    /// `jrcxz` forward.
    pub fn jrcxz(&mut self) -> Short {
        self.put(&[0xe3, 0]);
        Short(self.bytes.len())
    }

    /// `jcc rel8` forward.
    pub fn jcc_short(&mut self, cc: u8) -> Short {
        self.put(&[0x70 | cc, 0]);
        Short(self.bytes.len())
    }

    /// A rel8 jump starts with bytes the caller has emitted, all but the displacement.
    pub fn short_after(&mut self) -> Short {
        self.put(&[0]);
        Short(self.bytes.len())
    }

    /// The jump lands here.
    pub fn land(&mut self, s: Short) {
        let d = self.bytes.len() - s.0;
        assert!(d < 128, "a short jump inside one block spans {d} bytes");
        self.bytes[s.0 - 1] = d as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    fn check(f: impl FnOnce(&mut Asm), expect: &[&str]) {
        let mut a = Asm::default();
        f(&mut a);
        let mut d = Decoder::with_ip(64, &a.bytes, 0, DecoderOptions::NONE);
        let mut got = alloc::vec::Vec::new();
        while d.can_decode() {
            let i = d.decode();
            got.push(alloc::format!("{:?} {:?} {:#x}", i.code(), i.op0_register(), i.memory_displacement64()));
            assert!(!i.is_invalid());
        }
        assert_eq!(got.len(), expect.len(), "{got:?}");
        for (g, e) in got.iter().zip(expect) {
            assert!(g.starts_with(e), "{g} is not {e}");
        }
    }

    #[test]
    fn forms_are_what_their_names_say() {
        check(|a| a.store_gs(9, 0x40), &["Mov_rm64_r64 None 0x40"]);
        check(|a| a.load_gs(1, 0x10), &["Mov_r64_rm64 RCX 0x10"]);
        check(|a| a.store_gs_imm32(0x90, 7), &["Mov_rm32_imm32 None 0x90"]);
        check(|a| a.lea(12, Some(13), Some((9, 8)), -4), &["Lea_r64_m R12"]);
        check(|a| a.lea(4, Some(4), None, 128), &["Lea_r64_m RSP 0x80"]);
        check(|a| a.store(3, 12, 0), &["Mov_rm64_r64 None 0x0"]);
        check(|a| a.store_imm32(13, 0, 5), &["Mov_rm32_imm32"]);
        check(|a| a.mov_imm(11, 0x1_2345_6789), &["Mov_r64_imm64 R11"]);
        check(|a| a.dec_gs_flags(0xd8), &["Dec_rm64 None 0xd8"]);
    }
}
