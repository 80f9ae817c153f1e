//! What a program did, as far as changed and unchanged runs are compared: instructions and stores, in order.

use super::writers::Writers;
use slice::insn::{Control, Insn, Mode, Place, Role};
use slice::{Executed, Omit, RegId, Window};
use std::collections::{HashMap, HashSet};
use std::fmt;
use testkit::random::Random;

/// One executed instruction.
#[derive(Clone, Copy)]
pub struct Step {
    pub pc: u64,
    /// Which execution of this instruction, from 1.
    pub instance: u32,
    /// Stores before it.
    stores: u32,
    /// What it made and the slice leaves out, if that can be changed.
    change: Option<Changed>,
    /// What it used, if that can be asked for.
    uses: [Option<Value>; 3],
    /// It may be changed at all, as far as the slice is concerned.
    free: bool,
}

/// A place that an instruction wrote to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Changed {
    /// A general register, and which bits of it.
    Reg(u8, u64),
    /// A vector register, and which of its first 16 bytes.
    Vector(u8, u64),
    Flags(u64),
    Mem(u64, u64),
}

impl Changed {
    /// The kind of dependence that goes through it.
    pub fn kind(self) -> Omit {
        match self {
            Changed::Reg(..) | Changed::Vector(..) => Omit::Registers,
            Changed::Flags(_) => Omit::Flags,
            Changed::Mem(..) => Omit::Memory,
        }
    }
}

/// A value that can be sliced and compared.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// A general register, and which bytes of it.
    Reg(u8, u64),
    Mem(u64, u64),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Reg(reg, mask) => write!(f, "{} (bytes {mask:#x})", RegId::gpr(*reg).name()),
            Value::Mem(at, len) => write!(f, "{len} bytes at {at:#x}"),
        }
    }
}

/// Everything that ran, in order.
#[derive(Default)]
pub struct Course {
    pub steps: Vec<Step>,
    /// Lowest address and length.
    stores: Vec<(u64, u64)>,
    /// What steps inside the slice read and steps outside made. The slice says that it does not matter; if the slice is
    /// wrong anywhere then here.
    pub border: Vec<(usize, Changed)>,
}

impl Course {
    /// What ran in a window; `inside` is what the slice has.
    pub fn new(window: &Window, inside: &HashSet<(u32, u16)>) -> Course {
        let mut course = Course::default();
        let mut instances: HashMap<u64, u32> = HashMap::new();
        let mut writers = Writers::default();
        window.each(&mut |e: &Executed<'_>| {
            let instance = instances.entry(e.code.pc).or_default();
            *instance += u32::from(e.complete);
            let is_inside = inside.contains(&(e.execution, e.insn));
            if is_inside {
                let found = writers.of_reads(e).into_iter().filter(|(step, _)| course.steps[*step].free);
                course.border.extend(found);
            }
            if !inside.is_empty() {
                writers.note(e, course.steps.len());
            }
            let free = e.complete && !e.given && !is_inside && is_plain(e.code);
            course.steps.push(Step {
                pc: e.code.pc,
                instance: *instance,
                stores: course.stores.len() as u32,
                change: if free { change_of(e) } else { None },
                uses: if e.complete && !e.given { uses_of(e) } else { [None; 3] },
                free,
            });
            let stores = e.code.mem.iter().zip(e.touched).filter(|(m, _)| m.write).map(|(_, t)| *t);
            course.stores.extend(stores);
        });
        let mut seen = HashSet::new();
        course.border.retain(|b| seen.insert(*b));
        course
    }

    /// A random step that used something.
    pub fn pick_used(&self, random: &mut Random) -> usize {
        let all = self.steps.len() as u64;
        let found = (0..100_000).map(|_| random.below(all) as usize).find(|n| self.steps[*n].uses[0].is_some());
        found.expect("programs use values")
    }

    /// One of the things that a step used.
    pub fn used(&self, step: usize, random: &mut Random) -> Value {
        let uses: Vec<Value> = self.steps[step].uses.iter().flatten().copied().collect();
        *random.pick(&uses)
    }

    /// The first step from here on that made something which can be changed.
    pub fn left_out(&self, from: usize) -> Option<(usize, Changed)> {
        let rest = self.steps.iter().enumerate().skip(from).take(500);
        rest.filter_map(|(n, s)| Some((n, s.change?))).next()
    }

    /// Does the rest from this step on do what the other course does, instruction by instruction and store by store?
    pub fn goes_on_as(&self, from: usize, other: &Course) -> bool {
        let Some(first) = self.steps.get(from) else { return other.steps.is_empty() };
        let pcs = self.steps[from..].iter().map(|s| s.pc);
        pcs.eq(other.steps.iter().map(|s| s.pc)) && self.stores[first.stores as usize..] == other.stores
    }
}

/// The bits of a register's bytes.
pub fn bits_of(bytes: u64) -> u64 {
    (0..8).filter(|n| bytes >> n & 1 != 0).map(|n| 0xff << (n * 8)).sum()
}

/// The stack pointer and its other names are not followed, and so not changed.
fn is_plain(insn: &Insn) -> bool {
    insn.control == Control::Next && insn.parts.iter().all(|p| p.mode != Mode::Through)
}

fn change_of(e: &Executed<'_>) -> Option<Changed> {
    let Insn { parts, .. } = e.code;
    let defs: Vec<_> = parts.iter().flat_map(|p| &p.defs).collect();
    let change = |place: Place, mask: u64| match place {
        Place::Reg(r) if r.is_gpr() && r != RegId::RSP => Some(Changed::Reg(r.0, bits_of(mask))),
        Place::Reg(r) if r == RegId::FLAGS => Some(Changed::Flags(mask & 0x8d5)).filter(|_| mask & 0x8d5 != 0),
        Place::Reg(_) => None,
        Place::Mem(n) => {
            let (at, len) = *e.touched.get(usize::from(n))?;
            (1..=4096).contains(&len).then_some(Changed::Mem(at, len))
        }
    };
    // Not always the first: `sub` leaves a value and flags. The address is random enough.
    let all: Vec<Changed> = defs.iter().filter_map(|d| change(d.place, d.mask)).collect();
    let turn = e.execution as usize + usize::from(e.insn);
    (!all.is_empty()).then(|| all[turn % all.len()])
}

fn uses_of(e: &Executed<'_>) -> [Option<Value>; 3] {
    let mut uses = [None; 3];
    let values = e.code.parts.iter().flat_map(|p| &p.uses).filter(|u| u.role == Role::Value);
    let values = values.filter_map(|u| match u.place {
        Place::Reg(r) if r.is_gpr() && r != RegId::RSP => Some(Value::Reg(r.0, u.mask)),
        Place::Reg(_) => None,
        Place::Mem(n) => {
            let (at, len) = *e.touched.get(usize::from(n))?;
            (1..=64).contains(&len).then_some(Value::Mem(at, len))
        }
    });
    for (slot, value) in uses.iter_mut().zip(values) {
        *slot = Some(value);
    }
    uses
}
