//! What a trial changed, in words: for people, and so that anyone can do it again.

use super::gathered::Gathered;
use super::places::Places;
use super::rank::Candidate;
use super::values::Replacement;
use crate::case::words::ordinal;
use diagnose::Change;

/// A change that repaired the run.
pub struct Altered<'a> {
    pub gathered: &'a Gathered,
    pub c: &'a Candidate<'a>,
    pub replacement: Option<&'a Replacement>,
    /// Which execution it was, and of how many.
    pub instance: (u64, u64),
    /// Whether that is known from the beginning of the run.
    pub numbered: bool,
}

impl Altered<'_> {
    /// The clause that "the program does what is expected" follows.
    pub fn what(&self, places: &mut Places<'_>) -> String {
        let Altered { gathered, c, replacement, .. } = *self;
        let own = || c.place.line.map_or_else(|| c.place.address.clone(), |l| format!("line {l}"));
        let line = c.foreign.as_ref().map_or_else(own, |inside| format!("{} inside", inside.short()));
        let which = self.which();
        match (&c.finding.trial.change, replacement) {
            (_, Some(r)) if c.is_cut => self.cut(&line, r, places),
            (_, Some(Replacement { was, is, left_out, .. })) => match left_out {
                true => format!("if {line} does not store {} and {} stays there{which}", value(*was), value(*is)),
                false => {
                    let verb = if c.is_argument { "passes" } else { "stores" };
                    format!("if {line} {verb} {} instead of {}{which}", value(*is), value(*was))
                }
            },
            (Change::Force(way), _) => match gathered.branches.first_that_went(c.finding.trial.moment.pc, *way) {
                // Whether a jump is taken says nothing about the condition in the source.
                Some(n) => format!("with {line} always going the way it goes on its {} execution", ordinal(n)),
                None => format!("with {line} taken the other way on every execution"),
            },
            (Change::Skip(_) | Change::Return, _) => format!("with {line} left out{which}"),
            _ => format!("with {line} taken the other way{which}"),
        }
    }

    fn which(&self) -> String {
        match (self.instance, self.numbered) {
            ((_, 0 | 1), _) => String::new(),
            ((n, _), true) => format!(" on its {} execution", ordinal(n)),
            (_, false) => " on one of its last executions".to_owned(),
        }
    }

    /// What a line does to a number that is whole before it, and where it was replaced.
    fn cut(&self, line: &str, replaced: &Replacement, places: &mut Places<'_>) -> String {
        let Some(cut) = &self.gathered.cut else { return String::new() };
        let (whole, kept) = (cut.whole, cut.kept);
        let mut at = |pc: u64| places.of(pc).short();
        let store = at(self.gathered.values.stores[replaced.store].execution.moment.pc);
        if !cut.handed_over {
            return format!("{line} keeps {kept} bytes of {whole}: if {store} stores all of it");
        }
        let taken = at(cut.moment.pc);
        let then = if taken == store { "that".to_owned() } else { store };
        format!("{line} hands over {whole}, of which {taken} takes {kept} bytes: if {then} stores all of it")
    }

    /// The change itself.
    pub fn alteration(&self) -> String {
        let (place, trial) = (self.c.foreign.as_ref().unwrap_or(&self.c.place), &self.c.finding.trial);
        let address = &place.address;
        match &trial.change {
            Change::Flip if self.numbered => format!("flip {address}#{}", self.instance.0),
            Change::Flip => format!("flip {address} at {}", trial.moment),
            Change::FlipTwo { pc, execution } => format!("flip {address} and {pc:#x}#{execution} behind it"),
            Change::Force(taken) => format!("force {address} {}", if *taken { "taken" } else { "not taken" }),
            Change::SetMemory(at, bytes) => format!("set {:#x} {}", at.0, hex(bytes)),
            Change::Skip(to) => format!("skip {address} to {to:#x}"),
            Change::Return => format!("return {address}"),
            Change::Nothing => "none".into(),
        }
    }
}

/// Numbers as people write them: small ones, and what can only be a floating-point number.
fn value(n: u64) -> String {
    const SMALL: u64 = 1 << 20;
    let double = f64::from_bits(n);
    let is_small = |n: i64| n < 0 && n.unsigned_abs() < SMALL;
    match n {
        n if n < SMALL => n.to_string(),
        n if is_small(n as i64) => (n as i64).to_string(),
        n if n >> 32 == 0 && is_small(i64::from(n as u32 as i32)) => (n as u32 as i32).to_string(),
        n if n > 1 << 52 && double.is_normal() && (1e-9..1e15).contains(&double.abs()) => double.to_string(),
        n => format!("{n:#x}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
