//! The variables of a frame: which are in scope, where they are, and what they hold.
//!
//! An [`Inspector`] looks at one frame of a stopped process, or at one function inlined into it. It finds locals of all
//! blocks around the place, parameters, statics, and globals of any image by name, and shows their values as gdb does.
//! The other way round it tells which variable a place in memory or a register is.
//!
//! Guarantees: no panic, and time and memory linear in the debug information touched plus a constant, whatever the
//! files and the process contain (see `dies` and `print`).
//! May miss: what the modules say: see `types`, `location`, `scope` and `print`.

mod dies;
mod entry;
mod location;
mod names;
mod naming;
mod print;
mod scalar;
mod scope;
mod strings;
mod types;

use crate::dwarf::{Meter, Named};
use crate::process::Stopped;
use crate::unwind::StackFrame;
pub(crate) use dies::{DieRef, Program};
pub(crate) use location::{Store, Value, View};
use model::GuestAddr;
pub use naming::Storage;
pub(crate) use scalar::{Class, Number};
use scope::Local;
pub(crate) use types::{Count, Record, Target, Type};

/// What a question may cost before any image is opened.
pub(crate) const BASE_ALLOWANCE: u64 = 1 << 20;

/// One frame of a stopped process, to ask about its variables.
#[derive(Clone, Copy)]
pub struct Inspector<'p> {
    pub(crate) process: &'p dyn Stopped,
    frame: &'p StackFrame,
    callers: &'p [StackFrame],
    level: usize,
}

/// A variable and its value at a moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variable {
    pub name: String,
    pub role: Role,
    /// Its type as C writes it.
    pub type_name: String,
    /// The value as gdb prints it, or why there is none: `<optimized out>`.
    pub text: String,
    /// Where it lies; not known for what is in registers or nowhere.
    pub address: Option<GuestAddr>,
    /// In bytes.
    pub size: Option<u64>,
    /// How many blocks of its function are around its declaration.
    pub nesting: u32,
}

/// What a variable is to its frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Parameter,
    Local,
    Global,
}

impl<'p> Inspector<'p> {
    /// Looks at `frame`; `level` counts the functions inlined there as `frame.location.frames()` lists them: 0 is the
    /// innermost.
    pub fn new(process: &'p dyn Stopped, frame: &'p StackFrame, level: usize) -> Inspector<'p> {
        Inspector { process, frame, callers: &[], level }
    }

    /// Looks at frame `index` of a backtrace. Knowing the callers helps: they tell what parameters were on entry.
    pub fn in_backtrace(
        process: &'p dyn Stopped,
        frames: &'p [StackFrame],
        index: usize,
        level: usize,
    ) -> Option<Inspector<'p>> {
        let (frame, callers) = frames.get(index..)?.split_first()?;
        let callers = &callers[..callers.len().min(entry::MAX_CALLERS)];
        Some(Inspector { process, frame, callers, level })
    }

    /// Parameters and local variables, those of the innermost block first, parameters last.
    pub fn variables(&self) -> Vec<Variable> {
        let meter = Meter::new(BASE_ALLOWANCE);
        let program = Program::new(self.process, &meter);
        let view = self.view(&program);
        let Some(place) = view.place else { return Vec::new() };
        let (parameters, mut locals): (Vec<Local<'_>>, Vec<Local<'_>>) =
            program.locals(place).into_iter().partition(|l| l.parameter);
        locals.extend(parameters);
        let mut variables = Vec::new();
        for local in locals {
            let role = if local.parameter { Role::Parameter } else { Role::Local };
            let value = program.variable(&local.die, view);
            variables.push(describe(&program, local.name, role, local.nesting, &value));
        }
        variables
    }

    /// The variable called `name` that is not in a function: of the frame's unit and image first.
    pub fn global(&self, name: &str) -> Option<Variable> {
        let meter = Meter::new(BASE_ALLOWANCE);
        let program = Program::new(self.process, &meter);
        let view = self.view(&program);
        let value = program.global(name, view)?;
        Some(describe(&program, name.to_string(), Role::Global, 0, &value))
    }

    pub(crate) fn view(&self, program: &Program<'_>) -> View<'p> {
        let image = self.frame.image;
        let at = image.and_then(|i| program.loaded(i)).map(|l| l.bias.to_image(self.frame.at));
        let place = image.zip(at).and_then(|(image, at)| program.place(image, at.0, self.level));
        View { frame: self.frame, callers: self.callers, place }
    }
}

impl<'a> Program<'a> {
    /// The visible variable called `name`, the innermost first.
    pub fn local(&self, name: &str, view: View<'_>) -> Option<Value> {
        let local = self.locals(view.place?).into_iter().find(|l| l.name == name)?;
        Some(self.variable(&local.die, view))
    }

    pub fn global(&self, name: &str, view: View<'_>) -> Option<Value> {
        let here = view.place.map(|p| p.scope);
        let search = |image: usize| {
            let found = self.find(image, name, Named::Variable, here);
            let values: Vec<Value> = found.iter().map(|die| self.variable(die, view)).collect();
            let known = values.iter().position(|v| !matches!(v.store, Store::Missing(_)));
            values.into_iter().nth(known.unwrap_or(0))
        };
        self.images_from(view).find_map(search)
    }

    /// The function called `name`, as a value at its first instruction.
    pub fn function(&self, name: &str, view: View<'_>) -> Option<Value> {
        let here = view.place.map(|p| p.scope);
        let search = |image: usize| {
            let found = self.find(image, name, Named::Function, here);
            found.into_iter().find_map(|die| {
                let (file, unit) = self.unit(die.at)?;
                let low = file.dwarf.attr_address(&unit, die.attribute(gimli::DW_AT_low_pc)?).ok()??;
                let at = self.loaded(image)?.bias.to_guest(crate::ImageOffset(low));
                Some(Value::in_memory(self.type_at(die.at), at))
            })
        };
        self.images_from(view).find_map(search)
    }

    /// The numbers of all images, the frame's own first.
    pub fn images_from(&self, view: View<'_>) -> impl Iterator<Item = usize> {
        let own = view.frame.image;
        let others = (0..self.process.images().iter().count()).filter(move |i| Some(*i) != own);
        own.into_iter().chain(others)
    }
}

fn describe(program: &Program<'_>, name: String, role: Role, nesting: u32, value: &Value) -> Variable {
    let type_name = program.type_name(&value.ty);
    let (address, size) = (value.address(), program.size_of(&value.ty));
    Variable { name, role, type_name, text: program.print(value), address, size, nesting }
}
