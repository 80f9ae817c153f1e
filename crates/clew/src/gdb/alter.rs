//! Commands that alter the run from here on: `switch`, `suppress`, `input`, `live`.
//!
//! Each begins the altered run ([`super::altered`]) if there is none, and arms something in it; nothing moves yet.
//!
//! May miss: a statement that is suppressed is skipped where its code is entered; code of it that the compiler has moved
//! elsewhere is still executed.

use super::adapter::{Recorded, failed};
use super::places::{address, plain_line};
use crate::suppress::last_jump;
use gdb::{Console, Error};
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, OpAccess, UsedMemory};
use model::GuestAddr;
use model::serve::{Alteration, Moment, Request};
use model::wire::{Action, Probe, Site};

/// Executions of a line that are looked at to find one among several beginnings.
const KEEP: u32 = 1 << 20;

/// Which executions are meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Which {
    All,
    /// The next one.
    Once,
    /// This one, counted from the beginning of the run.
    Nth(u64),
}

fn which(words: &[&str]) -> Result<Which, Error> {
    let wrong = || Error::refused("which execution is meant is said by `all`, `once` or its number");
    match words {
        [] | ["once"] => Ok(Which::Once),
        ["all"] => Ok(Which::All),
        [n] => n.parse().ok().filter(|n| *n > 0).map(Which::Nth).ok_or_else(wrong),
        _ => Err(wrong()),
    }
}

impl Which {
    fn text(self) -> String {
        match self {
            Which::All => "every execution from here on".into(),
            Which::Once => "the next execution".into(),
            Which::Nth(n) => format!("execution {n}"),
        }
    }
}

/// `switch FILE:LINE [all|once|n]`: a conditional branch goes the other way.
pub fn switch(r: &mut Recorded<'_>, words: &[&str], console: &mut dyn Console) -> Result<(), Error> {
    let [place, rest @ ..] = words else {
        return Err(Error::refused("`switch` takes FILE:LINE and perhaps `all`, `once` or a number"));
    };
    let which = which(rest)?;
    let branch = branch_of(r, place)?;
    let instance = instance(r, &[branch], which, console)?.1;
    arm(r, branch, instance, Action::Flip)?;
    announce(r, format!("switch {place}: {}", which.text()), console)
}

/// The one conditional branch of a line, or that at `*0xADDRESS`.
fn branch_of(r: &mut Recorded<'_>, place: &str) -> Result<u64, Error> {
    let mut found = Vec::new();
    match place.strip_prefix('*') {
        Some(text) => {
            let wrong = || Error::refused(format!("`{place}` is no address: write *0xADDRESS"));
            let at = address(text).ok_or_else(wrong)?;
            found.extend(r.instructions(at, at + 15)?.first().copied());
        }
        None => {
            let (file, line) = plain_line(place)?;
            for (start, end) in r.code_of(file, line)?.ranges().to_vec() {
                found.extend(r.instructions(start, end)?);
            }
        }
    }
    let branches: Vec<u64> = found.iter().filter(|i| i.is_jcc_short_or_near()).map(|i| i.ip()).collect();
    match branches[..] {
        [one] => Ok(one),
        [] => Err(Error::refused(format!("{place} decides nothing: there is no conditional branch in its code"))),
        _ => {
            let list: Vec<String> = branches.iter().map(|at| format!("*{at:#x}")).collect();
            let n = branches.len();
            Err(Error::refused(format!("{place} has {n} branches: name one of {}", list.join(", "))))
        }
    }
}

/// `suppress FILE:LINE|FUNCTION [all|once|n]`: a statement, or a function, is skipped.
pub fn suppress(r: &mut Recorded<'_>, words: &[&str], console: &mut dyn Console) -> Result<(), Error> {
    let [place, rest @ ..] = words else {
        return Err(Error::refused("`suppress` takes FILE:LINE or a function, and perhaps `all`, `once` or a number"));
    };
    let which = which(rest)?;
    let places = match plain_line(place) {
        Ok((file, line)) => statement(r, file, line)?,
        Err(_) => vec![(function(r, place)?, Action::Return)],
    };
    let starts: Vec<u64> = places.iter().map(|(at, _)| *at).collect();
    let (chosen, instance) = instance(r, &starts, which, console)?;
    for (at, action) in places.into_iter().filter(|(at, _)| chosen.is_none_or(|c| c == *at)) {
        arm(r, at, instance, action)?;
    }
    announce(r, format!("suppress {place}: {}", which.text()), console)
}

fn function(r: &mut Recorded<'_>, name: &str) -> Result<u64, Error> {
    let found = r.functions(name)?;
    found.first().copied().ok_or_else(|| {
        Error::refused(format!("`{name}` is no line and no function of the program: write FILE:LINE or FUNCTION"))
    })
}

/// Where a statement begins, and how it is skipped there.
fn statement(r: &mut Recorded<'_>, file: &str, line: u32) -> Result<Vec<(u64, Action)>, Error> {
    let code = r.code_of(file, line)?;
    let mut places = Vec::new();
    for start in &code.starts {
        let end = end_of(code.ranges(), *start);
        let loaded = r.loaded()?;
        let function = loaded.at(GuestAddr(*start)).and_then(|(_, image, at)| {
            let function = image.image.function_at(at)?;
            Some((function.name.clone(), function.start == at))
        });
        let (name, begins) = function.unwrap_or_else(|| ("FUNCTION".into(), false));
        let insns = r.instructions(*start, end)?;
        let returns = insns.iter().any(|i| i.flow_control() == FlowControl::Return);
        if begins || returns {
            return Err(Error::refused(format!(
                "{file}:{line} enters or leaves a function, so it cannot be skipped: `monitor suppress {name}` skips the \
                 whole function"
            )));
        }
        // The jump behind what stores or calls something leads around an `else`; that of `break` or `return x` is its own.
        let to = last_jump(&insns, end).filter(|_| insns.iter().any(has_effect)).map_or(end, Instruction::ip);
        places.push((*start, Action::Skip(Site::Absolute(GuestAddr(to)))));
    }
    Ok(places)
}

/// Does it store something in memory, or call a function?
fn has_effect(insn: &Instruction) -> bool {
    let calls = matches!(insn.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
    let writes = |m: &UsedMemory| matches!(m.access(), OpAccess::Write | OpAccess::ReadWrite | OpAccess::ReadCondWrite);
    calls || InstructionInfoFactory::new().info(insn).used_memory().iter().any(writes)
}

/// Where the code of a line that goes on from `start` without a gap ends.
fn end_of(ranges: &[(u64, u64)], start: u64) -> u64 {
    let mut end = start;
    while let Some((_, next)) = ranges.iter().find(|(a, b)| *a <= end && end < *b) {
        end = *next;
    }
    end
}

/// The number of the execution that is meant, counted from here on, 0 for all; and if one of several places must be
/// chosen for that, which.
fn instance(
    r: &mut Recorded<'_>,
    starts: &[u64],
    which: Which,
    console: &mut dyn Console,
) -> Result<(Option<u64>, u64), Error> {
    let stop = &mut || console.interrupted();
    let n = match (which, starts) {
        (Which::All, _) => return Ok((None, 0)),
        (Which::Once, [_]) => return Ok((None, 1)),
        (Which::Once, _) => r.count_before(starts, stop)? + 1,
        (Which::Nth(n), _) => n,
    };
    let before = r.count_before(starts, stop)?;
    if n <= before {
        return Err(Error::refused(format!(
            "execution {n} lies before this moment, {before} are over: go back first, with `monitor rollback N` or \
             `monitor seek MOMENT`"
        )));
    }
    if let [_] = starts {
        return Ok((None, n - before));
    }
    // Which of the places is executed then is known from the recording.
    let end = Moment { tick: u64::MAX, pc: u64::MAX };
    let (list, total) = r.session.executions(starts, KEEP, end, stop).map_err(failed)?;
    let missing = total - list.len() as u64;
    let chosen = (n - 1).checked_sub(missing).and_then(|index| list.get(index as usize));
    let Some(chosen) = chosen.map(|p| p.moment) else {
        return Err(Error::refused(format!("execution {n} is not among the {total} in the recording that are known")));
    };
    let here = r.place().moment;
    let same = list.iter().filter(|p| p.moment.pc == chosen.pc && p.moment >= here && p.moment <= chosen);
    Ok((Some(chosen.pc), same.count() as u64))
}

fn arm(r: &mut Recorded<'_>, at: u64, instance: u64, action: Action) -> Result<(), Error> {
    let probe = Probe { site: Site::Absolute(GuestAddr(at)), instance, action };
    r.altered_here()?.change(Request::Alter(Alteration::Arm(probe)))
}

/// Says what was armed, and remembers it.
fn announce(r: &mut Recorded<'_>, text: String, console: &mut dyn Console) -> Result<(), Error> {
    console.print(&format!("{text}\n"));
    r.altered_here()?.note(text);
    Ok(())
}

/// `input OFFSET BYTES`: the next read delivers other bytes.
pub fn input(r: &mut Recorded<'_>, text: &str, console: &mut dyn Console) -> Result<(), Error> {
    let wrong = || Error::refused("`input` takes OFFSET and BYTES, in hexadecimal digits or as \"text\"");
    let (offset, rest) = text.trim().split_once(char::is_whitespace).ok_or_else(wrong)?;
    let offset: u64 = offset.parse().map_err(|_| wrong())?;
    let bytes = bytes_of(rest.trim()).ok_or_else(wrong)?;
    let n = bytes.len();
    r.altered_here()?.change(Request::Alter(Alteration::Input { offset, bytes }))?;
    announce(r, format!("input: {n} bytes from offset {offset} on of what the next read delivers"), console)
}

/// `"text"` or hexadecimal digits, perhaps with spaces between.
fn bytes_of(text: &str) -> Option<Vec<u8>> {
    if let Some(text) = text.strip_prefix('"') {
        let text = text.strip_suffix('"').filter(|t| !t.is_empty())?;
        return Some(text.replace("\\n", "\n").replace("\\0", "\0").into_bytes());
    }
    let digits: Option<Vec<u8>> =
        text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).map(|d| d as u8)).collect();
    let digits = digits.filter(|d| !d.is_empty() && d.len().is_multiple_of(2))?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// `live`: an altered run begins here without a change, so that what gdb sets stays.
pub fn live(r: &mut Recorded<'_>, console: &mut dyn Console) -> Result<(), Error> {
    r.altered_here()?;
    console.print("From here on the program goes on by itself, and what is set stays.\n");
    Ok(())
}

/// `info alterations`
pub fn list(r: &Recorded<'_>, console: &mut dyn Console) {
    match &r.altered {
        None => console.print("This is the recording: nothing is altered.\n"),
        Some(altered) if altered.words().is_empty() => console.print("An altered run, with nothing altered so far.\n"),
        Some(altered) => altered.words().iter().for_each(|text| console.print(&format!("{text}\n"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executions_are_named_by_a_word_or_a_number() {
        assert_eq!(which(&[]), Ok(Which::Once));
        assert_eq!(which(&["all"]), Ok(Which::All));
        assert_eq!(which(&["12"]), Ok(Which::Nth(12)));
        for wrong in [&["0"][..], &["twice"], &["1", "2"]] {
            assert!(which(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_line_ends_where_its_code_has_a_gap() {
        let ranges = [(0x10, 0x14), (0x14, 0x20), (0x30, 0x38)];
        assert_eq!(end_of(&ranges, 0x10), 0x20);
        assert_eq!(end_of(&ranges, 0x30), 0x38);
    }

    #[test]
    fn bytes_are_text_or_digits() {
        assert_eq!(bytes_of("41 42"), Some(b"AB".to_vec()));
        assert_eq!(bytes_of("\"a b\\n\""), Some(b"a b\n".to_vec()));
        for wrong in ["", "4", "xy", "\"", "\"\""] {
            assert_eq!(bytes_of(wrong), None, "{wrong}");
        }
    }
}
