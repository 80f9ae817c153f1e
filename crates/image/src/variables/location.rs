//! Where a variable is at a moment, and its bytes.
//!
//! gimli runs the location expressions; this module answers what they ask about the frame and turns their results into
//! a [`Value`]: memory by address, or bytes that were put together from registers and constants, some of which may be
//! missing.
//! May miss: a variable with pieces that do not begin and end with a byte counts as optimized out. Thread-local variables
//! are found in the program itself only.
//! Source: DWARF 5, section 2.6; Drepper, "ELF Handling For Thread-Local Storage", variant II.

use super::dies::{Die, DieRef, Program};
use super::scalar::integer;
use super::scope::Place;
use super::types::{Count, MAX_STEPS, Target, Type};
use crate::address::{Bias, ImageOffset};
use crate::dwarf::Metered;
use crate::evaluate::{Machine, Missing, evaluate, evaluate_address};
use crate::process::{Register, Stopped};
use crate::unwind::{Origin, StackFrame};
use gimli::{AttributeValue, Expression, Piece, UnitOffset, UnitRef, ValueType};
use model::GuestAddr;
use std::rc::Rc;

/// Objects in registers and constants are small; what claims to be larger is damage.
const MAX_BYTES: usize = 64 << 10;

/// Where a value's bytes are.
#[derive(Clone, Debug)]
pub(crate) enum Store {
    Memory(GuestAddr),
    /// Not in memory; a byte that is `None` was optimized out.
    Bytes(Rc<[Option<u8>]>),
    Missing(Missing),
}

/// A typed piece of the program's state.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub ty: Rc<Type>,
    pub store: Store,
    /// Of a bit field: its first bit in `store`, and how many.
    pub bits: Option<(u64, u64)>,
}

impl Value {
    pub fn in_memory(ty: Rc<Type>, at: GuestAddr) -> Value {
        Value { ty, store: Store::Memory(at), bits: None }
    }

    pub fn of_bytes(ty: Rc<Type>, bytes: &[u8]) -> Value {
        Value { ty, store: Store::Bytes(bytes.iter().map(|b| Some(*b)).collect()), bits: None }
    }

    /// The part of this value at `offset`, as a value of `size` bytes.
    pub fn part(&self, ty: Rc<Type>, offset: u64, size: u64, bits: Option<(u64, u64)>) -> Value {
        let store = match &self.store {
            Store::Memory(at) => Store::Memory(GuestAddr(at.0.wrapping_add(offset))),
            Store::Bytes(bytes) => {
                let range = usize::try_from(offset).ok().zip(usize::try_from(offset.saturating_add(size)).ok());
                let part = range.and_then(|(from, to)| bytes.get(from..to.min(bytes.len())));
                part.map_or(Store::Missing(Missing::Damaged), |part| Store::Bytes(part.into()))
            }
            Store::Missing(missing) => Store::Missing(*missing),
        };
        Value { ty, store, bits }
    }

    pub fn address(&self) -> Option<GuestAddr> {
        match self.store {
            Store::Memory(at) if self.bits.is_none() => Some(at),
            _ => None,
        }
    }

    /// The first `size` bytes.
    pub fn bytes(&self, process: &dyn Stopped, size: u64) -> Result<Vec<u8>, Missing> {
        self.known_bytes(process, size)?.into_iter().map(|b| b.ok_or(Missing::OptimizedOut)).collect()
    }

    /// The first `size` bytes, of which some may be optimized out.
    pub fn known_bytes(&self, process: &dyn Stopped, size: u64) -> Result<Vec<Option<u8>>, Missing> {
        let size = usize::try_from(size).ok().filter(|s| *s <= MAX_BYTES).ok_or(Missing::Damaged)?;
        match &self.store {
            Store::Memory(at) => {
                let mut bytes = vec![0; size];
                let read = process.read(*at, &mut bytes);
                if read < size {
                    return Err(Missing::Memory(GuestAddr(at.0.wrapping_add(read as u64))));
                }
                Ok(bytes.into_iter().map(Some).collect())
            }
            Store::Bytes(bytes) => bytes.get(..size).map(<[_]>::to_vec).ok_or(Missing::Damaged),
            Store::Missing(missing) => Err(*missing),
        }
    }
}

/// A frame, for the expressions of one unit.
pub(crate) struct FrameMachine<'m, 'a> {
    program: &'m Program<'a>,
    view: View<'m>,
    bias: Bias,
    frame_base: Option<GuestAddr>,
    thread_local: Option<GuestAddr>,
    /// Does the compiler say that registers keep their values over the call that is under way?
    over_call: bool,
    unit: UnitRef<'m, Metered<'a>>,
}

impl Machine for FrameMachine<'_, '_> {
    fn read(&self, at: GuestAddr, to: &mut [u8]) -> usize {
        self.program.process.read(at, to)
    }

    fn register(&self, register: Register) -> Option<u64> {
        let registers = &self.view.frame.registers;
        if self.over_call { registers.unchanged(register) } else { registers.get(register) }
    }

    fn vector(&self, number: u16) -> Option<[u8; 16]> {
        // No function must keep them, so in a caller they are right only if the compiler says so.
        let kept = self.over_call || self.view.frame.origin == Origin::Thread;
        kept.then(|| self.program.process.vector(number)).flatten()
    }

    fn relocate(&self, at: u64) -> GuestAddr {
        self.bias.to_guest(ImageOffset(at))
    }

    fn cfa(&self) -> Option<GuestAddr> {
        self.view.frame.cfa
    }

    fn frame_base(&self) -> Option<GuestAddr> {
        self.frame_base
    }

    fn thread_local(&self, offset: u64) -> Option<GuestAddr> {
        self.thread_local.map(|base| GuestAddr(base.0.wrapping_add(offset)))
    }

    fn entry_value(&self, register: Register) -> Option<u64> {
        self.program.entry_value(register, self.view)
    }

    fn indexed(&self, index: gimli::DebugAddrIndex<usize>) -> Option<u64> {
        self.unit.address(index).ok()
    }

    fn value_type(&self, entry: UnitOffset<usize>) -> Option<ValueType> {
        let entry = self.unit.unit.entry(entry).ok()?;
        ValueType::from_entry(&entry).ok()?
    }
}

/// A frame and the function of it that is looked at.
#[derive(Clone, Copy)]
pub(crate) struct View<'v> {
    pub frame: &'v StackFrame,
    /// Who called the frame, and so on.
    pub callers: &'v [StackFrame],
    pub place: Option<Place>,
}

impl<'a> Program<'a> {
    /// The variable that `die` describes, as `view` sees it.
    pub fn variable(&self, die: &Die<'a>, view: View<'_>) -> Value {
        let ty = self.frame_type(die, view);
        let store = self.locate(die, &ty, view).unwrap_or_else(Store::Missing);
        Value { ty, store, bits: None }
    }

    /// The type of a variable, with the numbers of elements that the frame holds.
    pub(super) fn frame_type(&self, die: &Die<'a>, view: View<'_>) -> Rc<Type> {
        self.fix(self.type_of(die), view)
    }

    fn locate(&self, die: &Die<'a>, ty: &Rc<Type>, view: View<'_>) -> Result<Store, Missing> {
        if let Some((owner, constant)) = self.inherited(die, gimli::DW_AT_const_value) {
            return self.constant(owner, constant, ty);
        }
        self.with_pieces(die, view, |pieces, machine| self.assemble(pieces, ty, machine))?
    }

    /// Where the parts of a variable are.
    pub(super) fn pieces(&self, die: &Die<'a>, view: View<'_>) -> Option<Vec<Piece<Metered<'a>>>> {
        self.with_pieces(die, view, |pieces, _| pieces.to_vec()).ok()
    }

    fn with_pieces<T>(
        &self,
        die: &Die<'a>,
        view: View<'_>,
        work: impl FnOnce(&[Piece<Metered<'a>>], &dyn Machine) -> T,
    ) -> Result<T, Missing> {
        // The original of an inlined function may have a location when it is static.
        let (owner, location) = self.inherited(die, gimli::DW_AT_location).ok_or(Missing::OptimizedOut)?;
        let (file, unit) = self.unit(owner).ok_or(Missing::Damaged)?;
        let unit_ref = UnitRef::new(&file.dwarf, &unit);
        let (expression, over_call) = self.active(unit_ref, location, view)?;
        let machine = FrameMachine { over_call, ..self.machine(owner.image, unit_ref, view) };
        let pieces = evaluate(expression, unit.encoding(), None, &machine)?;
        Ok(work(&pieces, &machine))
    }

    /// The expression that is valid at the place of `view`, and whether it stays so when a call there has returned.
    fn active(
        &self,
        unit: UnitRef<'_, Metered<'a>>,
        location: AttributeValue<Metered<'a>>,
        view: View<'_>,
    ) -> Result<(Expression<Metered<'a>>, bool), Missing> {
        if let Some(expression) = location.exprloc_value() {
            return Ok((expression, true));
        }
        let at = view.place.map(|p| p.at).ok_or(Missing::OptimizedOut)?;
        let mut list = unit.attr_locations(location)?.ok_or(Missing::Damaged)?;
        while let Some(entry) = list.next()? {
            if entry.range.begin <= at && at < entry.range.end {
                let returns_to = at.wrapping_add(view.frame.pc.0.wrapping_sub(view.frame.at.0));
                return Ok((entry.data, returns_to < entry.range.end));
            }
        }
        Err(Missing::OptimizedOut)
    }

    pub(super) fn machine<'m>(
        &'m self,
        image: usize,
        unit: UnitRef<'m, Metered<'a>>,
        view: View<'m>,
    ) -> FrameMachine<'m, 'a> {
        let loaded = self.loaded(image);
        let bias = loaded.map_or(Bias(0), |l| l.bias);
        let mut machine =
            FrameMachine { program: self, view, bias, frame_base: None, thread_local: None, over_call: false, unit };
        // The block of a program's own thread-local variables ends at the thread pointer.
        if let (0, Some((size, align))) = (image, loaded.and_then(|l| l.image.thread_local_block())) {
            let size = size.checked_next_multiple_of(align.max(1));
            let base = self.process.register(Register::FS_BASE).zip(size).map(|(fs, size)| fs.wrapping_sub(size));
            machine.thread_local = base.map(GuestAddr);
        }
        machine.frame_base = self.frame_base(&machine, view);
        machine
    }

    fn frame_base(&self, machine: &FrameMachine<'_, 'a>, view: View<'_>) -> Option<GuestAddr> {
        let die = self.die(view.place?.function)?;
        let (owner, value) = self.inherited(&die, gimli::DW_AT_frame_base)?;
        let (file, unit) = self.unit(owner)?;
        let (expression, _) = self.active(UnitRef::new(&file.dwarf, &unit), value, view).ok()?;
        evaluate_address(expression, unit.encoding(), None, machine).ok()
    }

    /// A value that stands in the debug information itself.
    fn constant(&self, owner: DieRef, constant: AttributeValue<Metered<'a>>, ty: &Rc<Type>) -> Result<Store, Missing> {
        let bytes: Vec<u8> = match constant {
            AttributeValue::Block(bytes) => bytes.rest().iter().copied().take(MAX_BYTES).collect(),
            AttributeValue::Sdata(n) => i128::from(n).to_le_bytes().to_vec(),
            AttributeValue::Udata(n) => u128::from(n).to_le_bytes().to_vec(),
            // The form has the width but not the sign, which the type says.
            AttributeValue::Data1(n) => n.to_le_bytes().to_vec(),
            AttributeValue::Data2(n) => n.to_le_bytes().to_vec(),
            AttributeValue::Data4(n) => n.to_le_bytes().to_vec(),
            AttributeValue::Data8(n) => n.to_le_bytes().to_vec(),
            value => {
                let mut text = self.text(owner, value).ok_or(Missing::Damaged)?.into_bytes();
                text.push(0);
                text
            }
        };
        let size = self.size_of(ty).and_then(|s| usize::try_from(s).ok()).filter(|s| *s <= MAX_BYTES);
        let size = size.ok_or(Missing::Damaged)?;
        let signed =
            matches!(&*self.strip(ty), Type::Base { encoding: gimli::DW_ATE_signed | gimli::DW_ATE_signed_char, .. });
        let fill = if signed && bytes.last().is_some_and(|b| *b >= 0x80) { 0xff } else { 0 };
        let bytes = bytes.into_iter().chain(std::iter::repeat(fill)).take(size);
        Ok(Store::Bytes(bytes.map(Some).collect()))
    }

    /// The result of an expression as bytes, or as the address of the object.
    fn assemble(&self, pieces: &[Piece<Metered<'a>>], ty: &Rc<Type>, machine: &dyn Machine) -> Result<Store, Missing> {
        if let [Piece { size_in_bits: None, location: gimli::Location::Address { address }, .. }] = pieces {
            return Ok(Store::Memory(GuestAddr(*address)));
        }
        if let [Piece { location: gimli::Location::ImplicitPointer { .. }, .. }] = pieces {
            return Err(Missing::Synthetic);
        }
        let size = self.size_of(ty).and_then(|s| usize::try_from(s).ok()).filter(|s| *s <= MAX_BYTES);
        let size = size.ok_or(Missing::OptimizedOut)?;
        let mut bytes: Vec<Option<u8>> = Vec::new();
        for piece in pieces {
            let whole = |bits: u64| bits.is_multiple_of(8).then_some(bits / 8).and_then(|n| usize::try_from(n).ok());
            let wanted = match piece.size_in_bits {
                Some(bits) => whole(bits).ok_or(Missing::OptimizedOut)?,
                None => size,
            };
            let wanted = wanted.min(size.saturating_sub(bytes.len()));
            let skip = whole(piece.bit_offset.unwrap_or(0)).ok_or(Missing::OptimizedOut)?;
            bytes.extend(self.piece(&piece.location, skip, wanted, machine));
        }
        bytes.resize(size, None);
        if bytes.iter().all(Option::is_none) && size > 0 {
            return Err(Missing::OptimizedOut);
        }
        Ok(Store::Bytes(bytes.into()))
    }

    fn piece(
        &self,
        location: &gimli::Location<Metered<'a>>,
        skip: usize,
        wanted: usize,
        machine: &dyn Machine,
    ) -> Vec<Option<u8>> {
        let known: Vec<u8> = match location {
            gimli::Location::Empty | gimli::Location::ImplicitPointer { .. } => Vec::new(),
            gimli::Location::Register { register } => {
                let register = Register(register.0);
                match register.vector() {
                    Some(number) => machine.vector(number).map(|v| v.to_vec()).unwrap_or_default(),
                    None => machine.register(register).map(|v| v.to_le_bytes().to_vec()).unwrap_or_default(),
                }
            }
            gimli::Location::Address { address } => {
                let mut bytes = vec![0; wanted];
                let read = machine.read(GuestAddr(address.wrapping_add(skip as u64)), &mut bytes);
                bytes.truncate(read);
                let mut bytes: Vec<Option<u8>> = bytes.into_iter().map(Some).collect();
                bytes.resize(wanted, None);
                return bytes;
            }
            gimli::Location::Value { value } => value_bytes(*value),
            gimli::Location::Bytes { value } => value.rest().iter().copied().take(MAX_BYTES).collect(),
        };
        let mut bytes: Vec<Option<u8>> = known.into_iter().skip(skip).take(wanted).map(Some).collect();
        bytes.resize(wanted, None);
        bytes
    }

    /// `ty` with the numbers of elements of an array whose bounds depend on the frame.
    fn fix(&self, ty: Rc<Type>, view: View<'_>) -> Rc<Type> {
        let mut counts = Vec::new();
        let mut element = ty.clone();
        for _ in 0..MAX_STEPS {
            let stripped = self.strip(&element);
            let Type::Array { element: inner, count } = &*stripped else { break };
            counts.push(*count);
            element = self.load(inner);
        }
        if !counts.iter().any(|c| matches!(c, Count::Computed(_))) {
            return ty;
        }
        counts.into_iter().rev().fold(element, |element, count| {
            let count = match count {
                Count::Computed(bounds) => self.computed(bounds, view).map_or(Count::Unknown, Count::Known),
                count => count,
            };
            Rc::new(Type::Array { element: Target::Known(element), count })
        })
    }

    /// The number of elements by bounds that the frame holds.
    fn computed(&self, at: DieRef, view: View<'_>) -> Option<u64> {
        let die = self.die(at)?;
        let (value, extra) = match die.attribute(gimli::DW_AT_upper_bound) {
            Some(upper) => (upper, 1),
            None => (die.attribute(gimli::DW_AT_count)?, 0),
        };
        if let Some(expression) = value.exprloc_value() {
            let (file, unit) = self.unit(at)?;
            let machine = self.machine(at.image, UnitRef::new(&file.dwarf, &unit), view);
            let machine = FrameMachine { over_call: true, ..machine };
            let bound = evaluate_address(expression, unit.encoding(), None, &machine).ok()?;
            return Some(bound.0.wrapping_add(extra));
        }
        // The bound is a variable that the compiler made.
        let variable = self.die(self.follow(at, &value)?)?;
        let ty = self.type_of(&variable);
        let size = self.size_of(&ty)?.min(8);
        let store = self.locate(&variable, &ty, view).ok()?;
        let bytes = Value { ty, store, bits: None }.bytes(self.process, size).ok()?;
        Some((integer(&bytes, false) as u64).wrapping_add(extra))
    }
}

fn value_bytes(value: gimli::Value) -> Vec<u8> {
    use gimli::Value as V;
    match value {
        V::Generic(n) => n.to_le_bytes().to_vec(),
        // Narrow values fill wider objects with their sign.
        V::I8(n) => i64::from(n).to_le_bytes().to_vec(),
        V::I16(n) => i64::from(n).to_le_bytes().to_vec(),
        V::I32(n) => i64::from(n).to_le_bytes().to_vec(),
        V::I64(n) => n.to_le_bytes().to_vec(),
        V::U8(n) => u64::from(n).to_le_bytes().to_vec(),
        V::U16(n) => u64::from(n).to_le_bytes().to_vec(),
        V::U32(n) => u64::from(n).to_le_bytes().to_vec(),
        V::U64(n) => n.to_le_bytes().to_vec(),
        V::F32(n) => n.to_le_bytes().to_vec(),
        V::F64(n) => n.to_le_bytes().to_vec(),
    }
}
