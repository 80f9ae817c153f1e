//! What a user stops at beside gdb's own breakpoints: calls of library functions, and statements of slices.
//!
//! A call of a library function is met where the program's own code comes to the function, and shown at the call itself.
//! What the call returns or touches is found out by going ahead in the recording and back again.
//!
//! May miss: functions that are called through a pointer without a stub of the linker, where the C library chooses one of
//! several implementations; accesses that the kernel makes.

use super::adapter::{Recorded, failed};
use super::places::{address, number};
use crate::slice::lines::Origins;
use crate::slice::original_paths;
use gdb::{Console, Debuggee, Error, Stop};
use image::LoadedImages;
use model::GuestAddr;
use model::serve::{Moment, State, Until};
use session::{Access, HeldStop, Stopped, read_from, registers_of};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;

const RAX: usize = 0;
const RSP: usize = 4;
/// Hardware numbers of the registers that arguments are in.
const ARGUMENTS: [usize; 6] = [7, 6, 2, 1, 8, 9];

#[derive(Default)]
pub struct Points {
    calls: BTreeMap<u32, Call>,
    /// Statements of slices, by the slice and the moments at which they begin.
    statements: BTreeMap<u32, BTreeMap<Moment, String>>,
    last: u32,
    /// The call that was told of last, which is still to be made.
    told: Option<Moment>,
    /// Is the code at this address the program's own?
    own: HashMap<u64, bool>,
}

/// Calls of one function.
struct Call {
    name: String,
    /// Where one comes to when it is called.
    entries: Vec<u64>,
    condition: Condition,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Condition {
    Always,
    /// This argument, counted from 0, has this value.
    Argument(usize, u64),
    Returns(u64),
    Touches {
        addr: u64,
        len: u32,
        read: bool,
        write: bool,
    },
}

impl Points {
    /// All addresses at which something may be to do.
    pub fn addresses(&self) -> Vec<u64> {
        let statements = self.statements.values().flat_map(|s| s.keys().map(|m| m.pc));
        let all: BTreeSet<u64> = self.calls().into_iter().chain(statements).collect();
        all.into_iter().collect()
    }

    /// Where calls that are waited for begin.
    pub fn calls(&self) -> Vec<u64> {
        self.calls.values().flat_map(|c| c.entries.iter().copied()).collect()
    }

    /// Stops at statements of a slice.
    pub fn add_statements(&mut self, slice: u32, statements: impl Iterator<Item = (Moment, String)>) {
        self.statements.entry(slice).or_default().extend(statements);
    }

    pub fn forget_slice(&mut self, slice: u32) {
        self.statements.remove(&slice);
    }

    /// Was the call that begins here told of, at the call?
    pub fn is_told(&self, moment: Moment) -> bool {
        self.told == Some(moment)
    }

    fn statement_at(&self, moment: Moment) -> Option<String> {
        self.statements.iter().find_map(|(n, s)| s.get(&moment).map(|text| format!("Slice {n}: {text}")))
    }
}

/// `breakpoint FUNCTION [if CONDITION]`
pub fn breakpoint(r: &mut Recorded<'_>, words: &[&str], console: &mut dyn Console) -> Result<(), Error> {
    let (name, condition) = match words {
        [name] => (*name, Condition::Always),
        [name, "if", rest @ ..] => (*name, condition(rest)?),
        _ => return Err(Error::refused("`breakpoint` takes a library function and perhaps `if` and a condition")),
    };
    let entries = entries(r, name)?;
    let n = r.points.last + 1;
    r.points.last = n;
    console.print(&format!("Library breakpoint {n}: calls of {name}\n"));
    r.points.calls.insert(n, Call { name: name.into(), entries, condition });
    r.arm();
    Ok(())
}

/// `bdelete N`
pub fn delete(r: &mut Recorded<'_>, n: &str) -> Result<(), Error> {
    let known = n.parse().ok().and_then(|n: u32| r.points.calls.remove(&n));
    known.ok_or_else(|| {
        Error::refused(format!("there is no library breakpoint {n}; `monitor info breakpoints` lists them"))
    })?;
    r.arm();
    Ok(())
}

/// `info breakpoints`
pub fn list(r: &Recorded<'_>, console: &mut dyn Console) {
    if r.points.calls.is_empty() && r.points.statements.is_empty() {
        return console.print("No library breakpoints and no slice breakpoints.\n");
    }
    for (n, call) in &r.points.calls {
        console.print(&format!("{n} calls of {}{}\n", call.name, call.condition.text()));
    }
    for (slice, statements) in &r.points.statements {
        console.print(&format!("slice {slice}: {} executions of its statements\n", statements.len()));
    }
}

fn condition(words: &[&str]) -> Result<Condition, Error> {
    let wrong =
        || Error::refused("a condition is argN==VALUE, ret==VALUE, or write, read or access and an ADDRESS[:LENGTH]");
    if let [kind @ ("write" | "read" | "access"), place @ ..] = words {
        let text = place.join(":");
        let (at, len) = text.split_once(':').unwrap_or((&text, "1"));
        let (addr, len) = (address(at).ok_or_else(wrong)?, len.parse().map_err(|_| wrong())?);
        return match len {
            1..=65_536 => Ok(Condition::Touches { addr, len, read: *kind != "write", write: *kind != "read" }),
            _ => Err(wrong()),
        };
    }
    let text = words.concat();
    let (what, value) = text.split_once("==").ok_or_else(wrong)?;
    let value = number(value).ok_or_else(wrong)?;
    match what.strip_prefix("arg") {
        Some(n) => {
            let n = n.parse().ok().filter(|n| (1..=ARGUMENTS.len()).contains(n)).ok_or_else(wrong)?;
            Ok(Condition::Argument(n - 1, value))
        }
        None if what == "ret" => Ok(Condition::Returns(value)),
        None => Err(wrong()),
    }
}

impl Condition {
    fn text(self) -> String {
        match self {
            Condition::Always => String::new(),
            Condition::Argument(n, value) => format!(" if arg{}=={value:#x}", n + 1),
            Condition::Returns(value) => format!(" if ret=={value:#x}"),
            Condition::Touches { addr, len, read, write } => {
                let kind = match (read, write) {
                    (true, true) => "access",
                    (true, false) => "read",
                    _ => "write",
                };
                format!(" if {kind} {addr:#x}:{len}")
            }
        }
    }
}

/// Where one comes to when a function is called: stubs of the linker if there are any, else the function itself.
fn entries(r: &mut Recorded<'_>, name: &str) -> Result<Vec<u64>, Error> {
    let loaded = r.session.loaded_at_end(r.recording, &r.images).map_err(failed)?;
    let stubs = stubs(&loaded, name);
    if !stubs.is_empty() {
        return Ok(stubs);
    }
    let functions = r.functions(name)?;
    match functions.is_empty() {
        true => Err(Error::refused(format!("no function `{name}` is known in the program or its libraries"))),
        false => Ok(functions),
    }
}

fn stubs(loaded: &LoadedImages, name: &str) -> Vec<u64> {
    let wanted = format!("{name}@plt");
    let mut all = Vec::new();
    for image in loaded.iter() {
        let sections = image.image.code();
        let is_first = |at: image::ImageOffset| {
            let in_it = |s: &&image::CodeSection| s.start <= at && at.0 < s.start.0 + s.bytes.len() as u64;
            sections.iter().find(in_it).is_some_and(|s| s.name.as_deref() != Some(".plt"))
        };
        let found: Vec<_> = image.image.functions().iter().filter(|f| f.name == wanted).map(|f| f.start).collect();
        // With indirect branch tracking calls go to the one outside of `.plt`, which leads to the other.
        let outside: Vec<_> = found.iter().copied().filter(|at| is_first(*at)).collect();
        let chosen = if outside.is_empty() { found } else { outside };
        all.extend(chosen.into_iter().map(|at| image.bias.to_guest(at).0));
    }
    all
}

impl Recorded<'_> {
    /// The session has come to an address of the user's own points: is it to stop here?
    pub(super) fn own_point(&mut self, interrupted: &mut dyn FnMut() -> bool) -> Result<Option<Stop>, Error> {
        let here = self.session.moment();
        if let Some(text) = self.points.statement_at(here) {
            let _ = writeln!(self.remarks, "{text}");
            self.moved();
            return Ok(Some(Stop::Step));
        }
        if self.points.is_told(here) || !self.is_call_wanted(interrupted)? {
            return Ok(None);
        }
        self.points.told = Some(here);
        let thread = self.session.place().thread;
        self.session.step_back(thread, interrupted).map_err(failed)?;
        self.moved();
        Ok(Some(Stop::Step))
    }

    /// Is the call that begins here one that the user waits for?
    pub(super) fn is_call_wanted(&mut self, interrupted: &mut dyn FnMut() -> bool) -> Result<bool, Error> {
        let pc = self.place().moment.pc;
        let state = self.state_here()?;
        let mut word = [0; 8];
        if self.read(state.gpr[RSP], &mut word)? < 8 || !self.is_own(u64::from_le_bytes(word).wrapping_sub(1))? {
            return Ok(false);
        }
        let back = u64::from_le_bytes(word);
        let here: Vec<(u32, Condition)> =
            self.points.calls.iter().filter(|(_, c)| c.entries.contains(&pc)).map(|(n, c)| (*n, c.condition)).collect();
        for (n, condition) in here {
            let holds = match condition {
                Condition::Always => true,
                Condition::Argument(k, value) => state.gpr[ARGUMENTS[k]] == value,
                _ if self.altered.is_some() => self.holds_in_altered(condition, back, &state, interrupted)?,
                _ => self.aside(|r| r.holds_later(condition, back, &state, interrupted))?,
            };
            if holds {
                let name = &self.points.calls[&n].name;
                let [a, b, c] = [0, 1, 2].map(|k| state.gpr[ARGUMENTS[k]]);
                let _ = writeln!(
                    self.remarks,
                    "Library breakpoint {n}: {name} is called, with {a:#x}, {b:#x}, {c:#x} in the first argument registers"
                );
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn state_here(&self) -> Result<State, Error> {
        let thread = self.place().thread;
        match &self.altered {
            Some(altered) => registers_of(altered.live(), thread),
            None => self.session.registers(thread),
        }
        .map_err(failed)
    }

    fn is_own(&mut self, pc: u64) -> Result<bool, Error> {
        if let Some(known) = self.points.own.get(&pc) {
            return Ok(*known);
        }
        let loaded = self.loaded()?;
        let paths = original_paths(self.recording, &self.session.unit(), &loaded);
        let own = Origins::new(&loaded, &|n| paths.get(n).cloned().flatten()).is_own(pc);
        self.points.own.insert(pc, own);
        Ok(own)
    }

    /// Does something else with the session, which afterwards is where it was.
    pub(super) fn aside<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        let here = self.session.moment();
        self.session.set_breakpoints(&[]);
        self.session.set_watches(&[]);
        self.session.set_accesses(&[]);
        let result = work(self);
        let back = self.session.seek(here, &mut || false).map_err(failed);
        self.arm();
        let watches: Vec<gdb::Watch> = self.watches.iter().chain(&self.accesses).copied().collect();
        self.set_watchpoints(&watches)?;
        back.and(result)
    }

    /// Does the call that begins here return or touch what is waited for? The session moves.
    fn holds_later(
        &mut self,
        condition: Condition,
        back: u64,
        state: &State,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Error> {
        let here = self.session.moment();
        self.session.set_breakpoints(&[back]);
        let returned = loop {
            if self.session.forward(None, interrupted).map_err(failed)? != Stopped::Breakpoint {
                break None;
            }
            let now = self.session.registers(self.session.place().thread).map_err(failed)?;
            if now.gpr[RSP] == state.gpr[RSP] + 8 {
                break Some(now.gpr[RAX]);
            }
        };
        match condition {
            Condition::Returns(value) => Ok(returned == Some(value)),
            Condition::Touches { addr, len, read, write } => {
                let end = self.session.moment();
                self.session.set_breakpoints(&[]);
                self.session.seek(here, interrupted).map_err(failed)?;
                self.session.set_accesses(&[Access { addr, len, read, write }]);
                let stopped = self.session.forward(Some(end), interrupted).map_err(failed)?;
                Ok(matches!(stopped, Stopped::Accessed(_)))
            }
            Condition::Always | Condition::Argument(..) => Ok(true),
        }
    }

    /// The same in an altered run, by a copy that goes ahead. Reads are not seen there.
    fn holds_in_altered(
        &mut self,
        condition: Condition,
        back: u64,
        state: &State,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Error> {
        let Some(altered) = &self.altered else { return Ok(false) };
        let bytes = |live: &session::Live| {
            let Condition::Touches { addr, len, .. } = condition else { return Ok(Vec::new()) };
            let mut bytes = vec![0; len as usize];
            read_from(live, GuestAddr(addr), &mut bytes).map(|_| bytes)
        };
        let before = bytes(altered.live()).map_err(failed)?;
        let mut ahead = altered.held.copy().map_err(failed)?;
        ahead.set_stops(&[back], &[]).map_err(failed)?;
        while let HeldStop::Stopped { why: model::serve::Why::Breakpoint, .. } =
            ahead.run(Until::default(), interrupted).map_err(failed)?
        {
            let now = registers_of(ahead.live(), ahead.place().thread).map_err(failed)?;
            if now.gpr[RSP] != state.gpr[RSP] + 8 {
                continue;
            }
            return Ok(match condition {
                Condition::Returns(value) => now.gpr[RAX] == value,
                Condition::Touches { write, .. } => write && bytes(ahead.live()).map_err(failed)? != before,
                Condition::Always | Condition::Argument(..) => true,
            });
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_about_arguments_results_and_memory() {
        let touches = |addr, len, read, write| Condition::Touches { addr, len, read, write };
        for (words, expected) in [
            (&["arg1==0x10"][..], Condition::Argument(0, 16)),
            (&["arg6", "==", "7"], Condition::Argument(5, 7)),
            (&["ret==-1"], Condition::Returns(u64::MAX)),
            (&["write", "0x20:8"], touches(0x20, 8, false, true)),
            (&["read", "0x20"], touches(0x20, 1, true, false)),
            (&["access", "0x20", "4"], touches(0x20, 4, true, true)),
        ] {
            assert_eq!(condition(words), Ok(expected), "{words:?}");
        }
        for wrong in [&["arg0==1"][..], &["arg7==1"], &["ret"], &["write"], &["write", "20"], &["write", "0x20:0"], &[]]
        {
            assert!(condition(wrong).is_err(), "{wrong:?}");
        }
    }
}
