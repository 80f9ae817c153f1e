//! What one instruction makes of what: its parts, each of which defines some places from others.
//!
//! Most instructions are one part: everything written follows from everything read. Copies and bitwise operations are
//! followed byte by byte, so that one byte of a string that is copied sixteen at a time depends on one byte only. `push`,
//! `pop`, `call`, `ret` and `leave` move data and the stack pointer, which are parts of their own.
//!
//! The stack pointer is not followed: where a frame lies says nothing about a program's values, and each call would
//! otherwise be part of everything behind it. What is computed into it (`alloca`) is therefore missed, as the size of an
//! array of variable length.
//!
//! Source of reads and writes: crate `isa`; the parts are checked against the CPU by the tests of crate `testkit`.

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};
use isa::{ByteRange, Effects, Isa, locate};
use trace::plan::Access;

use crate::registers::{RegId, flag_mask};

/// Where a value is: a register, or the memory access of this number among those of the instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Reg(RegId),
    Mem(u8),
}

/// What a use is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It goes into the result.
    Value,
    /// It says where in memory.
    Address,
}

/// Bytes of a place that are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Def {
    pub place: Place,
    /// Of a register, its bytes or flags; of memory all of the access.
    pub mask: u64,
    /// The old bytes are gone; otherwise they may have stayed.
    pub kills: bool,
}

/// Bytes of a place that are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use {
    pub place: Place,
    pub mask: u64,
    pub role: Role,
}

/// How what is written follows from what is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Each byte from everything.
    Whole,
    /// Byte n from the n-th bytes of the values; beyond their ends it is 0.
    Bytes,
    /// The same, but beyond the end it is the sign of the last byte.
    Signed,
    /// It is another name for the same thing: nothing is computed.
    Through,
}

/// Some places and what they are made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    pub defs: Vec<Def>,
    pub uses: Vec<Use>,
    pub mode: Mode,
}

/// What an instruction does to control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    Next,
    /// One of two ways.
    Branch,
    /// To a computed place.
    IndirectJump,
    Jump,
    Call,
    Return,
    Syscall,
}

/// One instruction.
#[derive(Clone, Debug)]
pub struct Insn {
    pub pc: u64,
    pub parts: Vec<Part>,
    pub control: Control,
    /// What a transfer of control depends on: flags of a branch, the target of an indirect one.
    pub decides: Vec<Use>,
    /// Bytes of its memory accesses, and whether each is read and written.
    pub mem: Vec<MemShape>,
    /// It moves a value and changes nothing about it.
    pub copies: bool,
    /// Registers that it may define, as bits.
    pub defines: u64,
    /// It writes to memory.
    pub stores: bool,
    /// All that it reads, whether something follows from it or not.
    pub reads: Vec<Use>,
    /// It saves or restores the floating point and vector registers as a whole.
    pub state: Option<StateMove>,
}

/// `xsave`, `xrstor` and their like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateMove {
    Save,
    Restore,
}

/// One access, without its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemShape {
    pub size: u32,
    pub read: bool,
    pub write: bool,
    pub conditional: bool,
}

/// Makes [`Insn`]s. Keep one.
#[derive(Default)]
pub struct Maker {
    isa: Isa,
    effects: Effects,
}

impl Maker {
    pub fn insn(&mut self, i: &Instruction, accesses: &[Access]) -> Insn {
        self.isa.effects(i, &mut self.effects);
        let mem: Vec<MemShape> = accesses
            .iter()
            .map(|a| MemShape { size: a.size, read: a.read, write: a.write, conditional: a.conditional })
            .collect();
        let control = control(i);
        let mut all = whole(i, &self.effects, &mem);
        let decides = decides(i, control, &all);
        let reads = all.uses.clone();
        let parts = match stack_parts(i, &mem) {
            Some(parts) => parts,
            None if is_nothing(i) => Vec::new(),
            None => {
                drop_cancelled(i, &mut all);
                apart(i, all)
            }
        };
        let (mut defines, mut stores) = (0, false);
        for def in parts.iter().flat_map(|p| &p.defs) {
            match def.place {
                Place::Reg(r) => defines |= r.bit(),
                Place::Mem(_) => stores = true,
            }
        }
        Insn { pc: i.ip(), parts, control, decides, mem, copies: copies(i), defines, stores, reads, state: state(i) }
    }
}

fn state(i: &Instruction) -> Option<StateMove> {
    use Mnemonic::*;
    match i.mnemonic() {
        Xsave | Xsave64 | Xsavec | Xsavec64 | Xsaveopt | Xsaveopt64 | Fxsave | Fxsave64 => Some(StateMove::Save),
        Xrstor | Xrstor64 | Fxrstor | Fxrstor64 => Some(StateMove::Restore),
        _ => None,
    }
}

fn control(i: &Instruction) -> Control {
    match i.flow_control() {
        FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => Control::Branch,
        FlowControl::IndirectBranch => Control::IndirectJump,
        FlowControl::UnconditionalBranch => Control::Jump,
        FlowControl::Call if i.mnemonic() == Mnemonic::Syscall => Control::Syscall,
        FlowControl::Call | FlowControl::IndirectCall => Control::Call,
        FlowControl::Return => Control::Return,
        _ if i.mnemonic() == Mnemonic::Syscall => Control::Syscall,
        _ => Control::Next,
    }
}

/// Hints, fences, and system calls, whose effects the recording tells.
fn is_nothing(i: &Instruction) -> bool {
    use Mnemonic::*;
    matches!(
        i.mnemonic(),
        Nop | Endbr64 | Endbr32 | Pause | Prefetchnta | Prefetcht0 | Prefetcht1 | Prefetcht2 | Prefetchw | Syscall
    ) || matches!(i.mnemonic(), Lfence | Mfence | Sfence | Fnop)
}

/// Is the register only part of an address?
fn is_address_only(i: &Instruction, reg: RegId) -> bool {
    let named = |r: Register| locate(r).and_then(|(reg, _)| RegId::of(reg)) == Some(reg);
    let in_address = named(i.memory_base()) || named(i.memory_index());
    let as_operand = (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Register && named(i.op_register(n)));
    let string =
        matches!(i.op0_kind(), OpKind::MemoryESRDI | OpKind::MemoryESEDI | OpKind::MemorySegRSI | OpKind::MemorySegESI)
            || i.op_count() > 1
                && matches!(
                    i.op1_kind(),
                    OpKind::MemoryESRDI | OpKind::MemoryESEDI | OpKind::MemorySegRSI | OpKind::MemorySegESI
                );
    i.mnemonic() != Mnemonic::Lea && (in_address && !as_operand || string && reg != RegId::RAX && reg != RegId::FLAGS)
}

/// Everything that is written from everything that is read.
fn whole(i: &Instruction, effects: &Effects, mem: &[MemShape]) -> Part {
    let mut part = Part { defs: Vec::new(), uses: Vec::new(), mode: Mode::Whole };
    let has_memory = !mem.is_empty();
    for a in &effects.regs {
        let Some(reg) = RegId::of(a.reg) else { continue };
        let mask = if reg.has_bytes() { a.bytes.mask() } else { 1 };
        if a.read && reg != RegId::RSP {
            let role = if has_memory && is_address_only(i, reg) { Role::Address } else { Role::Value };
            part.uses.push(Use { place: Place::Reg(reg), mask, role });
        }
        if a.write {
            let kills = !a.conditional && reg.has_bytes();
            part.defs.push(Def { place: Place::Reg(reg), mask, kills });
        }
    }
    let read = flag_mask(effects.flags_read);
    if read != 0 {
        part.uses.push(Use { place: Place::Reg(RegId::FLAGS), mask: read, role: Role::Value });
    }
    let written = flag_mask(effects.flags_written | effects.flags_undefined);
    let doubtful = flag_mask(effects.flags_conditional);
    for (mask, kills) in [(written & !doubtful, true), (written & doubtful, false)] {
        if mask != 0 {
            part.defs.push(Def { place: Place::Reg(RegId::FLAGS), mask, kills });
        }
    }
    others(effects, &mut part);
    for (n, m) in mem.iter().enumerate().take(usize::from(u8::MAX)) {
        let place = Place::Mem(n as u8);
        if m.read {
            part.uses.push(Use { place, mask: u64::MAX, role: Role::Value });
        }
        if m.write {
            part.defs.push(Def { place, mask: u64::MAX, kills: !m.conditional && m.size != 0 });
        }
    }
    part
}

/// State that is not tracked by bytes.
fn others(effects: &Effects, part: &mut Part) {
    let mut place = |reg: RegId, read: bool, write: bool| {
        if read {
            part.uses.push(Use { place: Place::Reg(reg), mask: 1, role: Role::Value });
        }
        if write {
            part.defs.push(Def { place: Place::Reg(reg), mask: 1, kills: !read });
        }
    };
    let x87 = &effects.x87;
    place(RegId::X87_CONTROL, x87.control.read, x87.control.write);
    if x87.status_read != 0 || x87.status_write & !isa::X87::EXCEPTIONS != 0 {
        place(RegId::X87, x87.status_read != 0, x87.status_write & !isa::X87::EXCEPTIONS != 0);
    }
    // Sticky exception bits would make all arithmetic depend on all before it.
    place(RegId::MXCSR, effects.mxcsr.read && !effects.mxcsr.write, effects.mxcsr.write && !effects.mxcsr.read);
    let [fs, gs] = [isa::System::FS_BASE, isa::System::GS_BASE];
    place(RegId::FS_BASE, false, effects.system_write.contains(fs));
    place(RegId::GS_BASE, false, effects.system_write.contains(gs));
}

/// Results that do not depend on their operands.
fn drop_cancelled(i: &Instruction, part: &mut Part) {
    use Mnemonic::*;
    let same = |a: u32, b: u32| {
        i.op_kind(a) == OpKind::Register && i.op_kind(b) == OpKind::Register && i.op_register(a) == i.op_register(b)
    };
    let zeroes = match i.mnemonic() {
        // What a mask leaves alone stays.
        _ if i.has_op_mask() => false,
        Xor | Sub | Pxor | Xorps | Xorpd | Psubb | Psubw | Psubd | Psubq | Pcmpeqb | Pcmpeqw | Pcmpeqd => same(0, 1),
        Vpxor | Vxorps | Vxorpd | Vpxord | Vpxorq | Vpcmpeqb | Vpcmpeqw | Vpcmpeqd => i.op_count() == 3 && same(1, 2),
        And => matches!(i.op1_kind(), OpKind::Immediate8 | OpKind::Immediate32) && i.immediate(1) == 0,
        Or => i.op1_kind() != OpKind::Register && i.op1_kind() != OpKind::Memory && i.immediate(1) == u64::MAX,
        _ => false,
    };
    if zeroes {
        part.uses.retain(|u| u.role == Role::Address);
    }
    if i.mnemonic() == Sbb && same(0, 1) {
        part.uses.retain(|u| u.place == Place::Reg(RegId::FLAGS));
    }
}

/// Does the instruction compute each byte from the bytes at the same place?
fn mode_of(i: &Instruction) -> Option<Mode> {
    use Mnemonic::*;
    // A mask has a bit for each element, and an element that is broadcast goes everywhere.
    if i.has_op_mask() || i.is_broadcast() {
        return None;
    }
    Some(match i.mnemonic() {
        Mov | Movzx | Movups | Movaps | Movupd | Movapd | Movdqu | Movdqa | Lddqu | Movq | Movd | Movss | Movsd
        | Movnti | Movntdq | Movntps | Movntpd | Movntdqa | Movlps | Movlpd | Vmovups | Vmovaps | Vmovupd | Vmovapd
        | Vmovdqu | Vmovdqa | Vlddqu | Vmovq | Vmovd | Vmovntdq | Vmovntps | Vmovdqu8 | Vmovdqu16 | Vmovdqu32
        | Vmovdqu64 | Vmovdqa32 | Vmovdqa64 => Mode::Bytes,
        Movhps | Movhpd if i.op0_kind() == OpKind::Register => Mode::Bytes,
        Movsx | Movsxd => Mode::Signed,
        And | Or | Xor | Not | Pand | Por | Pxor | Pandn | Andps | Andpd | Orps | Orpd | Xorps | Xorpd | Andnps
        | Andnpd | Vpand | Vpor | Vpxor | Vpandn | Vandps | Vandpd | Vorps | Vorpd | Vxorps | Vxorpd => Mode::Bytes,
        _ => return None,
    })
}

fn copies(i: &Instruction) -> bool {
    use Mnemonic::*;
    let bitwise = matches!(
        i.mnemonic(),
        And | Or
            | Xor
            | Not
            | Pand
            | Por
            | Pxor
            | Pandn
            | Andps
            | Andpd
            | Orps
            | Orpd
            | Xorps
            | Xorpd
            | Andnps
            | Andnpd
    );
    matches!(i.mnemonic(), Push | Pop | Movsb | Movsw | Movsq | Xchg) || mode_of(i).is_some() && !bitwise
}

/// Splits what is computed byte by byte from the flags that are set beside it; and gives frame pointers their own way.
fn apart(i: &Instruction, all: Part) -> Vec<Part> {
    if let Some(parts) = frame_parts(i, &all) {
        return parts;
    }
    if i.mnemonic() == Mnemonic::Xchg && !is_within_one_register(i) {
        return exchange(&all);
    }
    if matches!(i.mnemonic(), Mnemonic::Movsb | Mnemonic::Movsw | Mnemonic::Movsq)
        || i.mnemonic() == Mnemonic::Movsd && i.op0_kind() == OpKind::MemoryESRDI
    {
        return string_move(all);
    }
    let Some(mode) = mode_of(i) else { return vec![all] };
    let (flags, data): (Vec<Def>, Vec<Def>) =
        all.defs.iter().partition(|d| !matches!(d.place, Place::Mem(_)) && !is_data(d.place));
    let mut parts = vec![Part { defs: data, uses: all.uses.clone(), mode }];
    if !flags.is_empty() {
        parts.push(Part { defs: flags, uses: all.uses, mode: Mode::Whole });
    }
    parts
}

fn is_data(place: Place) -> bool {
    match place {
        Place::Reg(r) => r.has_bytes(),
        Place::Mem(_) => true,
    }
}

/// `movs`: bytes go from one place to another; the address registers move on.
fn string_move(all: Part) -> Vec<Part> {
    let (memory, registers): (Vec<Def>, Vec<Def>) = all.defs.iter().partition(|d| matches!(d.place, Place::Mem(_)));
    let (values, addresses): (Vec<Use>, Vec<Use>) = all.uses.iter().partition(|u| matches!(u.place, Place::Mem(_)));
    let addresses: Vec<Use> = addresses.into_iter().map(|u| Use { role: Role::Address, ..u }).collect();
    let moved =
        Part { defs: memory, uses: values.into_iter().chain(addresses.iter().copied()).collect(), mode: Mode::Bytes };
    let mut parts = vec![moved];
    // Each register moves on by itself and by the count.
    for def in registers {
        let uses = addresses.iter().filter(|u| u.place == def.place || u.place == Place::Reg(RegId::RCX));
        let uses = uses.map(|u| Use { role: Role::Value, ..*u }).collect();
        parts.push(Part { defs: vec![def], uses, mode: Mode::Whole });
    }
    parts
}

/// `xchg al, ah`: not two places, for us.
fn is_within_one_register(i: &Instruction) -> bool {
    i.op0_kind() == OpKind::Register && i.op0_register().full_register() == i.op1_register().full_register()
}

/// `xchg`: each from the other.
fn exchange(all: &Part) -> Vec<Part> {
    let values: Vec<Use> = all.uses.iter().filter(|u| u.role == Role::Value).copied().collect();
    let addresses = || all.uses.iter().filter(|u| u.role == Role::Address).copied();
    let part = |def: &Def| {
        let other = values.iter().filter(|u| u.place != def.place).copied();
        Part { defs: vec![*def], uses: other.chain(addresses()).collect(), mode: Mode::Bytes }
    };
    all.defs.iter().map(part).collect()
}

/// Moves between stack and frame pointer, which name the same thing.
fn frame_parts(i: &Instruction, all: &Part) -> Option<Vec<Part>> {
    use Mnemonic::*;
    let target = match i.op0_kind() {
        OpKind::Register => locate(i.op0_register()).and_then(|(r, _)| RegId::of(r))?,
        _ => return None,
    };
    if target == RegId::RSP && matches!(i.mnemonic(), Mov | Lea | Add | Sub | And) {
        // The stack pointer is not followed; flags that `sub` leaves are.
        let flags: Vec<Def> = all.defs.iter().filter(|d| d.place == Place::Reg(RegId::FLAGS)).copied().collect();
        return Some(match flags.is_empty() {
            true => Vec::new(),
            false => vec![Part { defs: flags, uses: all.uses.clone(), mode: Mode::Whole }],
        });
    }
    let from_stack = match i.mnemonic() {
        Mov => i.op1_kind() == OpKind::Register && i.op1_register() == Register::RSP,
        Lea => i.memory_base() == Register::RSP && i.memory_index() == Register::None,
        _ => false,
    };
    (from_stack && target == RegId::RBP).then(|| vec![through(RegId::RBP, RegId::RSP)])
}

fn through(to: RegId, from: RegId) -> Part {
    Part {
        defs: vec![Def { place: Place::Reg(to), mask: to.all(), kills: true }],
        uses: vec![Use { place: Place::Reg(from), mask: from.all(), role: Role::Value }],
        mode: Mode::Through,
    }
}

/// Instructions that move the stack pointer along with something else.
fn stack_parts(i: &Instruction, mem: &[MemShape]) -> Option<Vec<Part>> {
    use Mnemonic::*;
    let value = |place: Place, mask: u64| Use { place, mask, role: Role::Value };
    let written = mem.iter().rposition(|m| m.write).map(|n| Place::Mem(n as u8));
    let read = mem.iter().position(|m| m.read).map(|n| Place::Mem(n as u8));
    let addresses = || {
        let named = [i.memory_base(), i.memory_index()];
        let regs = named.into_iter().filter_map(locate).filter_map(|(r, b)| Some((RegId::of(r)?, b)));
        regs.filter(|(r, _)| *r != RegId::RSP)
            .map(|(r, b): (RegId, ByteRange)| Use { place: Place::Reg(r), mask: b.mask(), role: Role::Address })
            .collect::<Vec<_>>()
    };
    let data = match i.mnemonic() {
        Push => {
            let mut uses = addresses();
            match i.op0_kind() {
                OpKind::Register => {
                    let (reg, bytes) = locate(i.op0_register())?;
                    uses.push(value(Place::Reg(RegId::of(reg)?), bytes.mask()));
                }
                OpKind::Memory => uses.push(value(read?, u64::MAX)),
                _ => {}
            }
            Part { defs: vec![Def { place: written?, mask: u64::MAX, kills: true }], uses, mode: Mode::Bytes }
        }
        Pop => {
            let place = match i.op0_kind() {
                OpKind::Register => {
                    let (reg, bytes) = locate(i.op0_register())?;
                    Def { place: Place::Reg(RegId::of(reg)?), mask: bytes.mask(), kills: true }
                }
                _ => Def { place: written?, mask: u64::MAX, kills: true },
            };
            let mut uses = addresses();
            uses.push(value(read?, u64::MAX));
            Part { defs: vec![place], uses, mode: Mode::Bytes }
        }
        // The return address is a constant.
        Call => Part {
            defs: vec![Def { place: written?, mask: u64::MAX, kills: true }],
            uses: Vec::new(),
            mode: Mode::Bytes,
        },
        Ret => return Some(Vec::new()),
        Leave => Part {
            defs: vec![Def { place: Place::Reg(RegId::RBP), mask: 0xff, kills: true }],
            uses: vec![value(read?, u64::MAX)],
            mode: Mode::Bytes,
        },
        _ => return None,
    };
    Some(vec![data])
}

/// What a transfer of control depends on.
fn decides(i: &Instruction, control: Control, all: &Part) -> Vec<Use> {
    match control {
        Control::Branch => all.uses.iter().filter(|u| u.place != Place::Reg(RegId::RSP)).copied().collect(),
        Control::IndirectJump => all.uses.clone(),
        Control::Call if i.op0_kind() == OpKind::Register || i.op0_kind() == OpKind::Memory => {
            all.uses.iter().filter(|u| u.place != Place::Reg(RegId::RSP)).copied().collect()
        }
        // Where a return goes is what the call said, unless somebody wrote there.
        Control::Return => all.uses.iter().filter(|u| matches!(u.place, Place::Mem(_))).copied().collect(),
        Control::Call | Control::Next | Control::Jump | Control::Syscall => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
