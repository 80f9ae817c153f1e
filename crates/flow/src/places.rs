//! What registers point to, and so where stores go: the frame, a fixed address, or somewhere computed.
//!
//! A forward analysis of one function over a small domain: each general purpose register is an offset from the stack
//! pointer at the function's entry, a fixed address, one of these plus something unknown, a number, or anything. Values
//! that differ where control joins become less known. Values in memory are not followed.
//!
//! Assumes the System V ABI: calls give the stack pointer and the preserved registers back as they were, and the stack
//! is 16-byte aligned before a call. A place that is named (not [`Place::Computed`]) is right under these assumptions.

use std::ops::Range;

use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use isa::{Effects, Isa, MemAccess, MemSize, RBP, RSP, Segment, Shape, gpr};

use crate::code::Memory;
use crate::function::{Ending, Function};
use crate::returns::{Next, next};

/// Where a store goes, as far as its instruction shows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// These bytes, as offsets from the stack pointer at the function's entry, where the return address lies. All
    /// offsets if it is the stack but not known where.
    Frame(Range<i64>),
    /// Somewhere from this offset on: an element of an array in the frame.
    FrameFrom(i64),
    /// These image addresses.
    Absolute(Range<u64>),
    /// Somewhere from this image address on: an element of a global array.
    AbsoluteFrom(u64),
    /// These offsets from the fs base: thread-local.
    Thread(Range<i64>),
    /// The address comes from a register or from memory, and nothing is known about it.
    Computed,
}

impl Place {
    /// The address is the same in every execution of the function's frame: no register decides it.
    pub fn is_constant(&self) -> bool {
        match self {
            Place::Frame(bytes) => *bytes != ANYWHERE,
            Place::Absolute(_) | Place::Thread(_) => true,
            Place::FrameFrom(_) | Place::AbsoluteFrom(_) | Place::Computed => false,
        }
    }
}

/// All of the frame.
pub const ANYWHERE: Range<i64> = i64::MIN..i64::MAX;

/// What a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Other,
    /// The stack pointer at entry plus this.
    Frame(i64),
    /// That plus something unknown.
    FrameFrom(i64),
    /// Something on the stack.
    SomeFrame,
    /// An address that the instruction pointer gave.
    Address(u64),
    /// Such an address plus something unknown.
    AddressFrom(u64),
    /// A number; as part of a sum with something unknown it may be the address or an offset.
    Number(u64),
    /// A number that may be an address, plus something unknown.
    NumberFrom(u64),
}

use Value::{Address, AddressFrom, Frame, FrameFrom, Number, NumberFrom, Other, SomeFrame};

/// Numbers from here on may be addresses of a program at a fixed address.
const LOWEST_ADDRESS: u64 = 0x1_0000;

impl Value {
    fn join(self, other: Value) -> Value {
        match (self, other) {
            (a, b) if a == b => a,
            (Frame(_) | FrameFrom(_) | SomeFrame, Frame(_) | FrameFrom(_) | SomeFrame) => SomeFrame,
            _ => Other,
        }
    }

    fn plus(self, other: Value) -> Value {
        match (self, other) {
            (Number(a), Number(b)) => Number(a.wrapping_add(b)),
            (Frame(o), Number(n)) | (Number(n), Frame(o)) => Frame(o.wrapping_add(n as i64)),
            (FrameFrom(o), Number(n)) | (Number(n), FrameFrom(o)) => FrameFrom(o.wrapping_add(n as i64)),
            (Frame(o) | FrameFrom(o), _) | (_, Frame(o) | FrameFrom(o)) => FrameFrom(o),
            (SomeFrame, _) | (_, SomeFrame) => SomeFrame,
            (Address(a), Number(n)) | (Number(n), Address(a)) => Address(a.wrapping_add(n)),
            (AddressFrom(a), Number(n)) | (Number(n), AddressFrom(a)) => AddressFrom(a.wrapping_add(n)),
            (Address(a) | AddressFrom(a), _) | (_, Address(a) | AddressFrom(a)) => AddressFrom(a),
            (NumberFrom(a), Number(n)) | (Number(n), NumberFrom(a)) => Number(a.wrapping_add(n)).unsure(),
            (Number(n), Other) | (Other, Number(n)) => Number(n).unsure(),
            _ => Other,
        }
    }

    /// A number plus something unknown.
    fn unsure(self) -> Value {
        match self {
            Number(n) if (LOWEST_ADDRESS..1 << 47).contains(&n) => NumberFrom(n),
            _ => Other,
        }
    }

    fn minus(self, other: Value) -> Value {
        match (self, other) {
            (value, Number(n)) => value.plus(Number(n.wrapping_neg())),
            (Frame(_) | FrameFrom(_) | SomeFrame, _) => SomeFrame,
            _ => Other,
        }
    }

    fn times(self, factor: u8) -> Value {
        match self {
            value if factor == 1 => value,
            Number(n) => Number(n.wrapping_mul(u64::from(factor))),
            _ => Other,
        }
    }

    fn places(self, size: u64, out: &mut Vec<Place>) {
        match self {
            Frame(o) => out.push(Place::Frame(o..o.saturating_add_unsigned(size))),
            FrameFrom(o) => out.push(Place::FrameFrom(o)),
            SomeFrame => out.push(Place::Frame(ANYWHERE)),
            Address(a) | Number(a) => out.push(Place::Absolute(a..a.saturating_add(size))),
            AddressFrom(a) => out.push(Place::AbsoluteFrom(a)),
            NumberFrom(a) => out.extend([Place::AbsoluteFrom(a), Place::Computed]),
            Other => out.push(Place::Computed),
        }
    }

    /// From the address on, for an unknown number of bytes.
    fn open(self) -> Value {
        match self {
            Frame(o) => FrameFrom(o),
            Address(a) => AddressFrom(a),
            Number(a) => Number(a).unsure(),
            other => other,
        }
    }
}

/// What all registers hold at one point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State([Value; 16]);

impl State {
    fn at_entry() -> State {
        let mut state = State([Other; 16]);
        state.0[RSP as usize] = Frame(0);
        state
    }

    fn join(&mut self, other: &State) -> bool {
        let mut changed = false;
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            let joined = mine.join(theirs);
            changed |= joined != *mine;
            *mine = joined;
        }
        changed
    }

    /// The stack pointer's offset from its value at entry.
    pub fn stack_offset(&self) -> Option<i64> {
        if let Frame(offset) = self.0[RSP as usize] { Some(offset) } else { None }
    }

    fn of(&self, register: Register) -> Value {
        match register {
            Register::None => Number(0),
            _ if register.is_gpr64() => gpr(register).map_or(Other, |g| self.0[g as usize]),
            _ => Other,
        }
    }

    /// The address that an operand or `lea` computes.
    fn address(&self, instruction: &Instruction) -> Value {
        if instruction.is_ip_rel_memory_operand() {
            return Address(instruction.ip_rel_memory_address());
        }
        let index = self.of(instruction.memory_index()).times(instruction.memory_index_scale() as u8);
        self.of(instruction.memory_base()).plus(index).plus(Number(instruction.memory_displacement64()))
    }

    fn accessed(&self, access: &MemAccess, ip_relative: bool) -> Value {
        let of = |g: Option<u8>| g.map_or(Number(0), |g| self.0[g as usize]);
        let displacement = if ip_relative { Address(access.disp as u64) } else { Number(access.disp as u64) };
        of(access.base).plus(of(access.index).times(access.scale)).plus(displacement)
    }

    /// Where one access of an instruction goes; the state is that before the instruction.
    pub fn places(&self, access: &MemAccess, ip_relative: bool, out: &mut Vec<Place>) {
        let address = self.accessed(access, ip_relative);
        let size = if let MemSize::Bytes(n) = access.size { Some(u64::from(n)) } else { None };
        match (access.seg, access.addr32, address) {
            (Segment::Fs, false, Number(offset)) => {
                let (start, size) = (offset as i64, size.unwrap_or(1));
                return out.push(Place::Thread(start..start.saturating_add_unsigned(size)));
            }
            (Segment::None, false, _) => {}
            _ => return out.push(Place::Computed),
        }
        match (access.shape, size) {
            (Shape::RepString { elem, .. }, _) => match self.0[isa::RCX as usize] {
                // The direction flag is clear at every call in the ABI.
                Number(count) => address.places(count.saturating_mul(u64::from(elem)), out),
                _ => address.open().places(1, out),
            },
            (Shape::Scatter { .. } | Shape::BitString { .. } | Shape::PlusAl | Shape::Block, _) | (_, None) => {
                address.open().places(1, out);
            }
            (_, Some(size)) => address.places(size, out),
        }
    }

    /// Goes past one instruction; `calls` if it is a call that was followed as one.
    pub fn step(&mut self, isa: &mut Isa, instruction: &Instruction, calls: bool) {
        let result = self.result(instruction);
        let stack = self.0[RSP as usize];
        let written = isa.summary(instruction).gpr_write;
        let lost = if calls { written | !PRESERVED } else { written };
        for (_, value) in self.0.iter_mut().enumerate().filter(|(g, _)| lost & (1 << g) != 0) {
            *value = Other;
        }
        let moved = i64::from(instruction.stack_pointer_increment()) as u64;
        match instruction.mnemonic() {
            _ if calls => self.0[RSP as usize] = stack,
            Mnemonic::Leave => {}
            Mnemonic::Pop if instruction.op0_register() == Register::RSP => {}
            _ if written & (1 << RSP) != 0 && moved != 0 => self.0[RSP as usize] = stack.plus(Number(moved)),
            Mnemonic::Syscall => self.0[isa::RAX as usize] = Other,
            _ => {}
        }
        if let Some((g, value)) = result {
            self.0[g as usize] = value;
        }
    }

    /// The register that an instruction sets and its new value, for the instructions that addresses are made with.
    fn result(&self, instruction: &Instruction) -> Option<(u8, Value)> {
        if instruction.mnemonic() == Mnemonic::Leave {
            return Some((RSP, self.0[RBP as usize].plus(Number(8))));
        }
        if instruction.op_count() == 0 || instruction.op0_kind() != OpKind::Register {
            return None;
        }
        let to = instruction.op0_register();
        let (g, wide) = (gpr(to)?, to.is_gpr64());
        let source = || match instruction.op1_kind() {
            OpKind::Register => self.of(instruction.op1_register()),
            OpKind::Memory => Other,
            _ => instruction.try_immediate(1).map_or(Other, Number),
        };
        let value = match instruction.mnemonic() {
            Mnemonic::Mov if wide => source(),
            // Writing half a register clears the other half.
            Mnemonic::Mov if to.is_gpr32() => match source() {
                Number(n) => Number(n & 0xffff_ffff),
                _ => Other,
            },
            Mnemonic::Lea if wide => self.address(instruction),
            Mnemonic::Add if wide => self.0[g as usize].plus(source()),
            Mnemonic::Sub if wide => self.0[g as usize].minus(source()),
            Mnemonic::Inc if wide => self.0[g as usize].plus(Number(1)),
            Mnemonic::Dec if wide => self.0[g as usize].minus(Number(1)),
            Mnemonic::And if wide => match (self.0[g as usize], source()) {
                // At entry the stack pointer is 8 below a multiple of 16; not so where the program starts, which has no
                // return address and pops what lies there.
                (Frame(o), Number(mask)) if mask as i64 == -16 && o <= 0 => {
                    Frame((o.wrapping_add(8) & -16).wrapping_sub(8))
                }
                (Frame(_) | FrameFrom(_) | SomeFrame, _) => SomeFrame,
                _ => Other,
            },
            Mnemonic::Xor if instruction.op1_kind() == OpKind::Register && instruction.op1_register() == to => {
                Number(0)
            }
            _ => return None,
        };
        Some((g, value))
    }
}

/// rbx, rsp, rbp, r12 to r15: what a callee gives back.
pub const PRESERVED: u16 = 0xf038;

/// Called with each instruction and the state before it.
pub type Visit<'a> = dyn FnMut(&mut Isa, &Instruction, &State) + 'a;

/// The states at the start of each block of a function.
#[derive(Debug)]
pub struct Places {
    at_start: Vec<State>,
}

impl Places {
    pub fn new(memory: &Memory, isa: &mut Isa, function: &Function) -> Places {
        let blocks = &function.blocks;
        let mut at_start: Vec<Option<State>> = vec![None; blocks.len()];
        let mut work = Vec::new();
        if let Some(entry) = function.block_index(function.entry) {
            at_start[entry] = Some(State::at_entry());
            work.push(entry);
        }
        // What no edge leads to, a landing pad that was not observed, begins with nothing known.
        let mut next_root = 0;
        loop {
            while let Some(b) = work.pop() {
                let Some(mut state) = at_start[b].clone() else { continue };
                walk(memory, isa, function, b, None, &mut state, &mut |_, _, _| {});
                for next in &blocks[b].successors {
                    let next = *next as usize;
                    let changed = match &mut at_start[next] {
                        Some(known) => known.join(&state),
                        unknown => {
                            *unknown = Some(state.clone());
                            true
                        }
                    };
                    if changed {
                        work.push(next);
                    }
                }
            }
            let Some(root) = (next_root..blocks.len()).find(|b| at_start[*b].is_none()) else { break };
            at_start[root] = Some(State([Other; 16]));
            work.push(root);
            next_root = root;
        }
        Places { at_start: at_start.into_iter().map(|s| s.unwrap_or(State([Other; 16]))).collect() }
    }

    /// Visits the instructions of a block from `from` on, if given, each with the state before it.
    pub fn visit(
        &self,
        memory: &Memory,
        isa: &mut Isa,
        function: &Function,
        block: usize,
        from: Option<u64>,
        visit: &mut Visit<'_>,
    ) {
        let mut state = self.at_start[block].clone();
        walk(memory, isa, function, block, from, &mut state, visit);
    }
}

/// Brings a state from the start of a block to its end.
fn walk(
    memory: &Memory,
    isa: &mut Isa,
    function: &Function,
    block: usize,
    from: Option<u64>,
    state: &mut State,
    visit: &mut Visit<'_>,
) {
    let block = &function.blocks[block];
    for instruction in memory.instructions(block.start).take_while(|i| i.ip() < block.end) {
        if from.is_none_or(|from| instruction.ip() >= from) {
            visit(isa, &instruction, state);
        }
        let calls = instruction.ip() == block.last && matches!(block.ending, Ending::Call | Ending::NoReturnCall);
        state.step(isa, &instruction, calls);
    }
}

/// Where the stores of an instruction with these effects go, given the state before it. What a call pushes does not
/// count.
pub fn stores(effects: &Effects, instruction: &Instruction, state: &State) -> Vec<Place> {
    let mut places = Vec::new();
    if matches!(next(instruction), Next::Call(_) | Next::ThroughSlot { .. }) {
        return places;
    }
    for access in effects.mem.iter().filter(|a| a.write) {
        let operand = access.base.is_none() && access.index.is_none() && instruction.is_ip_rel_memory_operand();
        state.places(access, operand, &mut places);
    }
    places
}
