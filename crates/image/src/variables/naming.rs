//! What people call a place in memory or a register: `node.next`, `data[3]`, `count`.
//!
//! Looked for, in this order: the variables of the function and of those inlined around the place, the innermost first;
//! those of the callers, where they are known (`main::data[3]`); variables outside of functions; and what a pointer or
//! reference of the frame leads to (`list->next`, `text[5]`). Without debug information the symbol is given
//! (`table+8`).
//!
//! Guarantees: a name is right at the place it was asked for: its location is computed as for its value. Globals need no
//! frame, locals need no memory beyond what their location expressions read, which is none in code of today's compilers.
//! May miss: a variable whose location is not known at this instruction; optimizers often let it begin one instruction
//! later, so ask for what an instruction writes at the next one. Thread-local variables outside of functions. Which of
//! several bit fields in one byte is meant. An index behind a pointer may be beyond the array that the program means.

use super::dies::{Die, DieRef, Program};
use super::location::{Store, Value, View};
use super::scope::Place;
use super::types::{Count, Member, Record, Type};
use super::{BASE_ALLOWANCE, Inspector};
use crate::address::{Bias, ImageOffset};
use crate::dwarf::{Meter, Part};
use crate::image::{Image, Location};
use crate::process::{LoadedImages, Register, Registers, Stopped};
use crate::symbols::SymbolKind;
use crate::text::printable;
use crate::unwind::{Origin, StackFrame, cfa};
use gimli::Location as Lies;
use model::GuestAddr;
use std::rc::Rc;
use std::sync::Arc;

/// How deeply structs and arrays are looked into.
const MAX_DEPTH: usize = 32;
/// How far behind a pointer an element is named by its index.
const MAX_REACH: u64 = 1 << 20;
/// How many variables before an address are tried: an object may lie in a larger one.
const MAX_BEFORE: usize = 8;

/// A place that may be a variable, or a part of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Storage {
    /// Bytes of memory; a size of 0 means that only the address is known.
    Memory {
        at: GuestAddr,
        size: u64,
    },
    Register(Register),
}

/// A process of which nothing but the registers of one frame is known.
struct Outline<'l> {
    images: &'l LoadedImages,
    registers: Registers,
}

impl Stopped for Outline<'_> {
    fn read(&self, _: GuestAddr, _: &mut [u8]) -> usize {
        0
    }

    fn register(&self, register: Register) -> Option<u64> {
        self.registers.get(register)
    }

    fn images(&self) -> &LoadedImages {
        self.images
    }
}

impl LoadedImages {
    /// The variable that lies in `what` when the instruction at `pc` is about to run with `registers`, as far as they
    /// are known. Needs no memory; an [`Inspector`] that can read it finds more.
    pub fn name_of(&self, pc: GuestAddr, registers: &Registers, what: Storage) -> Option<String> {
        let mut registers = *registers;
        registers.set(Register::RIP, Some(pc.0));
        let process = Outline { images: self, registers };
        let cfa = cfa(&process, pc, &registers);
        self.name_with(pc, cfa, registers, what)
    }

    /// The same when nothing is known but where the frame begins: its canonical frame address.
    pub fn name_in_frame(&self, pc: GuestAddr, cfa: GuestAddr, what: Storage) -> Option<String> {
        let mut registers = Registers::default();
        registers.set(Register::RIP, Some(pc.0));
        // Where a frame pointer is used, compilers for this machine put it there.
        registers.set(Register::RBP, cfa.0.checked_sub(16));
        self.name_with(pc, Some(cfa), registers, what)
    }

    fn name_with(&self, pc: GuestAddr, cfa: Option<GuestAddr>, registers: Registers, what: Storage) -> Option<String> {
        let process = Outline { images: self, registers };
        let image = self.at(pc).map(|(index, ..)| index);
        let location = Location::default();
        let frame =
            StackFrame { pc, at: pc, cfa, registers, origin: Origin::Thread, trampoline: false, image, location };
        Inspector::new(&process, &frame, 0).name_of(what)
    }

    /// The variable outside of functions, or the static one of a function, that lies at `at`.
    pub fn global_at(&self, at: GuestAddr, size: u64) -> Option<String> {
        let process = Outline { images: self, registers: Registers::default() };
        let meter = Meter::new(BASE_ALLOWANCE);
        Program::new(&process, &meter).global_name(at, size)
    }
}

impl Image {
    /// The variable outside of functions, or the static one of a function, that lies at `at`.
    pub fn global_at(self: &Arc<Image>, at: ImageOffset, size: u64) -> Option<String> {
        let mut images = LoadedImages::new();
        images.add(self.clone(), Bias(0));
        images.global_at(GuestAddr(at.0), size)
    }
}

impl Inspector<'_> {
    /// The variable that lies in `what`, as this frame sees it.
    pub fn name_of(&self, what: Storage) -> Option<String> {
        let meter = Meter::new(BASE_ALLOWANCE);
        let program = Program::new(self.process, &meter);
        if let Some(name) = program.local_name(self.frame, self.callers, what) {
            return Some(name);
        }
        let Storage::Memory { at, size } = what else { return None };
        for (i, caller) in self.callers.iter().enumerate() {
            if let Some(name) = program.local_name(caller, &self.callers[i + 1..], what) {
                let function = caller.location.frames().pop().and_then(|f| f.function);
                return Some(function.map_or_else(|| name.clone(), |f| format!("{}::{name}", plain(&f))));
            }
        }
        program.global_name(at, size).or_else(|| program.name_behind_pointer(self.frame, self.callers, at, size))
    }
}

impl<'a> Program<'a> {
    /// The functions at the place of `frame`, the innermost first.
    fn views<'v>(&self, frame: &'v StackFrame, callers: &'v [StackFrame]) -> Vec<View<'v>> {
        let at = frame.image.and_then(|i| self.loaded(i)).map(|l| l.bias.to_image(frame.at));
        let Some((image, at)) = frame.image.zip(at) else { return Vec::new() };
        let places = (0..).map_while(|level| self.place(image, at.0, level));
        places.map(|place: Place| View { frame, callers, place: Some(place) }).collect()
    }

    fn local_name(&self, frame: &StackFrame, callers: &[StackFrame], what: Storage) -> Option<String> {
        for view in self.views(frame, callers) {
            let Some(place) = view.place else { continue };
            for local in self.locals(place) {
                let ty = self.frame_type(&local.die, view);
                if let Some((offset, size)) = self.within(&local.die, &ty, view, what) {
                    return Some(self.path(printable(&local.name), &ty, offset, size));
                }
            }
        }
        None
    }

    /// Where in the variable `die` the place `what` is, and how much of it is asked for.
    fn within(&self, die: &Die<'a>, ty: &Rc<Type>, view: View<'_>, what: Storage) -> Option<(u64, u64)> {
        let pieces = self.pieces(die, view)?;
        let whole = self.size_of(ty).unwrap_or(1).max(1);
        let mut before = 0u64;
        for piece in pieces {
            let len = piece.size_in_bits.map_or(whole, |bits| bits / 8);
            let offset = before;
            before = before.saturating_add(len);
            match (&piece.location, what) {
                (Lies::Address { address }, Storage::Memory { at, size }) => {
                    let Some(inside) = at.0.checked_sub(*address).filter(|d| *d < len) else { continue };
                    return Some((offset.saturating_add(inside), size));
                }
                (Lies::Register { register }, Storage::Register(wanted)) if register.0 == wanted.0 => {
                    // A variable that fills the register is meant as a whole; of a larger one it is a part.
                    return Some((offset, len.min(8)));
                }
                _ => {}
            }
        }
        None
    }

    fn global_name(&self, at: GuestAddr, size: u64) -> Option<String> {
        let (image, loaded, inside) = self.process.images().at(at)?;
        let described = || {
            let file = self.file(image, Part::Own)?;
            file.debug.variables_before(inside.0).take(MAX_BEFORE).find_map(|(start, candidate)| {
                let die = self.die(DieRef::of(image, &candidate))?;
                let ty = self.type_of(&die);
                let len = self.size_of(&ty).unwrap_or(1).max(1);
                let offset = inside.0.checked_sub(start).filter(|d| *d < len)?;
                Some(self.path(printable(&self.name(&die)?), &ty, offset, size))
            })
        };
        let symbol = || {
            let (symbol, offset) = loaded.image.symbols().covering(inside)?;
            let name = symbol.name.split('@').next().unwrap_or_default();
            let name = printable(&crate::demangle(name));
            (symbol.kind == SymbolKind::Data)
                .then(|| if offset == 0 { name.clone() } else { format!("{name}+{offset}") })
        };
        described().or_else(symbol)
    }

    /// What a pointer or reference of the frame leads to: the one that points nearest before `at`.
    fn name_behind_pointer(
        &self,
        frame: &StackFrame,
        callers: &[StackFrame],
        at: GuestAddr,
        size: u64,
    ) -> Option<String> {
        let mut best: Option<(u64, String)> = None;
        for view in self.views(frame, callers) {
            let Some(place) = view.place else { continue };
            for local in self.locals(place) {
                let value = self.variable(&local.die, view);
                let stripped = self.strip(&value.ty);
                let (Type::Pointer { to } | Type::Reference { to, .. }) = &*stripped else { continue };
                let Some(points) = self.pointer_value(&value) else { continue };
                let Some(distance) = at.0.checked_sub(points).filter(|d| *d < MAX_REACH) else { continue };
                if points == 0 || best.as_ref().is_some_and(|(nearest, _)| *nearest <= distance) {
                    continue;
                }
                let is_reference = matches!(&*stripped, Type::Reference { .. });
                let name = self.behind(&printable(&local.name), &self.load(to), is_reference, distance, size);
                best = name.map(|name| (distance, name)).or(best);
            }
        }
        best.map(|(_, name)| name)
    }

    fn pointer_value(&self, value: &Value) -> Option<u64> {
        let known = matches!(value.store, Store::Memory(_) | Store::Bytes(_));
        let bytes = known.then(|| value.bytes(self.process, 8).ok()).flatten()?;
        bytes.first_chunk().map(|b| u64::from_le_bytes(*b))
    }

    /// The place `distance` bytes behind where the pointer `name` points to.
    fn behind(&self, name: &str, target: &Rc<Type>, is_reference: bool, distance: u64, size: u64) -> Option<String> {
        let stripped = self.strip(target);
        let len = match &*stripped {
            Type::Void | Type::Function { .. } => return None,
            _ => self.size_of(target).filter(|len| *len > 0)?,
        };
        let (index, offset) = (distance / len, distance % len);
        if is_reference {
            return (index == 0).then(|| self.path(name.to_string(), target, offset, size));
        }
        Some(match &*stripped {
            Type::Record(_) if index == 0 => {
                let path = self.path(String::new(), target, offset, size);
                match path.strip_prefix('.') {
                    Some(member) => format!("{name}->{member}"),
                    None => format!("*{name}"),
                }
            }
            _ => self.path(format!("{name}[{index}]"), target, offset, size),
        })
    }

    /// `name` followed by the members and elements that lead to the `size` bytes at `offset`, or to what holds them.
    fn path(&self, mut name: String, ty: &Rc<Type>, mut offset: u64, size: u64) -> String {
        let mut ty = ty.clone();
        for _ in 0..MAX_DEPTH {
            let stripped = self.strip(&ty);
            let next = match &*stripped {
                Type::Array { element, count } => {
                    let element = self.load(element);
                    let Some(len) = self.size_of(&element).filter(|len| *len > 0) else { break };
                    let (index, inside) = (offset / len, offset % len);
                    let exists = !matches!(count, Count::Known(n) if index >= *n);
                    if !exists || inside.saturating_add(size) > len {
                        break;
                    }
                    name.push_str(&format!("[{index}]"));
                    (element, inside)
                }
                Type::Record(record) => {
                    let Some((member, inner)) = self.member_at(record, offset, size) else { break };
                    if let Some(called) = member.name.as_deref() {
                        // Fields of Rust's tuples are called by their numbers.
                        let is_number = |n: &&str| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit());
                        let number = called.strip_prefix("__").filter(is_number);
                        name.push_str(&format!(".{}", number.map_or_else(|| printable(called), str::to_string)));
                    }
                    (inner, offset.saturating_sub(member.offset))
                }
                _ => break,
            };
            (ty, offset) = next;
        }
        name
    }
    /// The member of `record` that holds the bytes, if it is clear which. What a union has at one place in several
    /// ways is named by the first member of that size.
    fn member_at<'r>(&self, record: &'r Record, offset: u64, size: u64) -> Option<(&'r Member, Rc<Type>)> {
        let end = offset.checked_add(size.max(1))?;
        let fits = |member: &'r Member| {
            let ty = self.load(&member.target);
            let len = match member.bits {
                Some((first, count)) => (first % 8).checked_add(count)?.div_ceil(8),
                None => self.size_of(&ty)?,
            };
            let holds = member.offset <= offset && end <= member.offset.checked_add(len)?;
            holds.then_some((member, ty, len))
        };
        let members: Vec<_> = record.members.iter().filter_map(fits).collect();
        let bit_fields = members.iter().filter(|(m, ..)| m.bits.is_some()).count();
        if bit_fields > 0 && members.len() > 1 {
            return None;
        }
        let exact = members.iter().position(|(.., len)| *len == size).unwrap_or(0);
        if let Some((member, ty, _)) = members.into_iter().nth(exact) {
            return Some((member, ty));
        }
        // Which variant of a Rust enum exists depends on a value; where only one has the place, it is that.
        let mut variants = record.variants.iter().flat_map(|v| &v.list).filter_map(|(_, member)| fits(member));
        let tag = record.variants.as_ref().and_then(|v| v.discriminant.as_ref());
        match (variants.next(), variants.next()) {
            (Some((member, ty, _)), None) if tag.and_then(fits).is_none() => Some((member, ty)),
            _ => None,
        }
    }
}

/// A function's name without its parameters.
fn plain(function: &str) -> String {
    printable(function.split('(').next().unwrap_or(function))
}
