//! What a program did, as far as changed and unchanged runs are compared: instructions and stores, in order.

use super::frames::Frames;
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
    pub thread: u32,
    /// The slot of the return address of its function.
    pub frame: u64,
    pub control: Control,
    /// Stores before it.
    stores: u32,
    /// What it made and the slice leaves out, if that can be changed.
    change: Option<Changed>,
    /// What it used, if that can be asked for.
    uses: [Option<Value>; 3],
    /// It may be changed at all, as far as the slice is concerned.
    free: bool,
    /// It is a branch that may be turned, as far as the slice is concerned.
    turnable: bool,
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
    /// Frames at the end.
    frames: Frames,
}

impl Course {
    /// What ran in a window; `inside` is what the slice has. With `border`, what lies at the slice's border is looked for.
    pub fn new(window: &Window, inside: &HashSet<(u32, u16)>, border: bool) -> Course {
        let mut course = Course::default();
        let mut instances: HashMap<u64, u32> = HashMap::new();
        let mut writers = Writers::default();
        window.each(&mut |e: &Executed<'_>| {
            let instance = instances.entry(e.code.pc).or_default();
            *instance += u32::from(e.complete);
            let is_inside = inside.contains(&(e.execution, e.insn));
            if is_inside && border {
                let found = writers.of_reads(e).into_iter().filter(|(step, _)| course.steps[*step].free);
                course.border.extend(found);
            }
            if border {
                writers.note(e, course.steps.len());
            }
            let changeable = e.complete && !e.given && !is_inside;
            let free = changeable && is_plain(e.code);
            course.push(e, |step| Step {
                instance: *instance,
                change: if free { change_of(e) } else { None },
                uses: if e.complete && !e.given { uses_of(e) } else { [None; 3] },
                free,
                turnable: changeable && e.code.control == Control::Branch,
                ..step
            });
        });
        let mut seen = HashSet::new();
        course.border.retain(|b| seen.insert(*b));
        course
    }

    /// What ran in a changed window that began with these frames: only what courses are compared by.
    pub fn altered(window: &Window, frames: Frames) -> Course {
        let mut course = Course { frames, ..Course::default() };
        window.each(&mut |e: &Executed<'_>| course.push(e, |step| step));
        course
    }

    fn push(&mut self, e: &Executed<'_>, with: impl FnOnce(Step) -> Step) {
        let step = self.step(e.code.pc, e.thread);
        self.steps.push(with(Step { control: e.code.control, ..step }));
        self.frames.note(e);
        self.stores.extend(e.code.mem.iter().zip(e.touched).filter(|(m, _)| m.write).map(|(_, t)| *t));
    }

    /// A step that comes next, of which no more is known.
    fn step(&self, pc: u64, thread: u32) -> Step {
        Step {
            pc,
            instance: 0,
            thread,
            frame: self.frames.of(thread),
            control: Control::Next,
            stores: self.stores.len() as u32,
            change: None,
            uses: [None; 3],
            free: false,
            turnable: false,
        }
    }

    /// Ends the course with an instruction of the thread that ran last, which is yet to come.
    pub fn end_at(&mut self, pc: u64) {
        let thread = self.steps.last().map_or(0, |s| s.thread);
        self.steps.push(self.step(pc, thread));
    }

    /// Frames before a step.
    pub fn frames_before(&self, step: usize) -> Frames {
        let mut frames = Frames::default();
        self.steps[..=step].iter().for_each(|s| frames.enter(s.thread, s.frame));
        frames
    }

    /// Lowest address and length of what a step stored.
    pub fn stores_of(&self, step: usize) -> &[(u64, u64)] {
        let end = self.steps.get(step + 1).map_or(self.stores.len(), |s| s.stores as usize);
        &self.stores[self.steps[step].stores as usize..end]
    }

    /// The first branch from here on that the slice leaves out.
    pub fn branch_left_out(&self, from: usize) -> Option<usize> {
        (from..self.steps.len()).take(500).find(|n| self.steps[*n].turnable)
    }

    /// Steps that are branches to turn, of these executions in the course's window.
    pub fn turnable_among(&self, window: &Window, executions: &HashSet<(u32, u16)>) -> Vec<usize> {
        let (mut step, mut found) = (0, Vec::new());
        window.each(&mut |e: &Executed<'_>| {
            found.extend(Some(step).filter(|n| executions.contains(&(e.execution, e.insn)) && self.steps[*n].turnable));
            step += 1;
        });
        found
    }

    /// A random step that used something, of code that is `wanted`.
    pub fn pick_used(&self, random: &mut Random, wanted: impl Fn(u64) -> bool) -> usize {
        let all = self.steps.len() as u64;
        let fits = |n: &usize| self.steps[*n].uses[0].is_some() && wanted(self.steps[*n].pc);
        let found = (0..1_000_000).map(|_| random.below(all) as usize).find(fits);
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
