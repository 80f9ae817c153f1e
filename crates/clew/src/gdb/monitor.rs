//! Commands of the recording: what a user types behind `monitor`.

use super::adapter::{Recorded, failed};
use super::places::{described, line_of, moment, plain_line};
use super::{alter, points, slices};
use gdb::{Console, Error, Moved};
use session::Counted;
use std::time::{Duration, Instant};

/// Longer than this, executions are not counted: a program that hangs may have run for hours.
const PATIENCE: Duration = Duration::from_secs(60);

const HELP: &str = "\
when                        the present moment
seek MOMENT                 go to a moment: TICK:0xPC, TICK, start, end, or FILE:LINE#N, the N-th execution of a line
instance FILE:LINE          which execution of the line this is, or is behind, and how many there are
checkpoint                  remember this moment and print its number
info checkpoints            list what is remembered
rollback N                  go back to a checkpoint
cdelete N                   forget a checkpoint

slice FILE:LINE [I] [WHAT]  what execution I of a line (the latest) depended on; WHAT: variable, ADDRESS [SIZE], register
info slices                 list the slices
info slice N [FILE:LINE]    show a slice, or what it has of one line
prune N NAME[,NAME...]      a slice without dependences through these variables and registers
sbreak N LINE[,LINE...]     stop where these lines are executed as part of the slice; `sbreak all N`: at all of its lines
sdelete N                   forget a slice and its breakpoints
record [FILE:LINE] on|off   where the region that slices see begins or ends: here, or at a line; `record all`: no region

switch FILE:LINE [WHICH]    a branch goes the other way; WHICH: once (the next time), all, or the number of an execution
suppress PLACE [WHICH]      a statement FILE:LINE, or a function, is skipped
input OFFSET BYTES          the next read delivers these bytes from OFFSET on: hexadecimal digits, or \"text\"
live                        the program goes on by itself from here, and what gdb sets stays
info alterations            what is altered

breakpoint FUNCTION [if C]  stop where a library function is called; C: argN==VALUE, ret==VALUE, or
                            write|read|access ADDRESS[:LENGTH]
info breakpoints            list these and those of slices
bdelete N                   forget one
";

/// Commands that take one word.
const ONE_WORD: [&str; 6] = ["seek", "instance", "rollback", "cdelete", "sdelete", "bdelete"];

/// Does what was asked for.
pub fn obey(r: &mut Recorded<'_>, command: &str, console: &mut dyn Console) -> Result<Moved, Error> {
    let words: Vec<&str> = command.split_whitespace().collect();
    match words[..] {
        [] | ["help"] => console.print(HELP),
        ["when"] => console.print(&when(r)),
        ["seek", to] => return seek(r, to, console),
        ["instance", line] => instance(r, line, console)?,
        ["checkpoint"] => checkpoint(r, console),
        ["info", "checkpoints"] => list(r, console),
        ["rollback", n] => {
            let mark = r.checkpoints[&checkpoint_of(r, n)?].clone();
            r.go_to_mark(&mark, &mut || console.interrupted())?;
            return Ok(Moved::Yes);
        }
        ["cdelete", n] => {
            let n = checkpoint_of(r, n)?;
            r.checkpoints.remove(&n);
        }
        ["slice", ref rest @ ..] => slices::slice(r, rest, console)?,
        ["info", "slices"] => slices::list(r, console),
        ["info", "slice", n] => slices::show(r, n, None, console)?,
        ["info", "slice", n, line] => slices::show(r, n, Some(line), console)?,
        ["prune", ref rest @ ..] => slices::prune(r, rest, console)?,
        ["sbreak", ref rest @ ..] => slices::sbreak(r, rest, console)?,
        ["sdelete", n] => slices::delete(r, n)?,
        ["record", ref rest @ ..] => slices::record(r, rest, console)?,
        ["switch", ref rest @ ..] => alter::switch(r, rest, console)?,
        ["suppress", ref rest @ ..] => alter::suppress(r, rest, console)?,
        ["input", ..] => alter::input(r, command.trim().trim_start_matches("input"), console)?,
        ["live"] => alter::live(r, console)?,
        ["info", "alterations"] => alter::list(r, console),
        ["breakpoint", ref rest @ ..] => points::breakpoint(r, rest, console)?,
        ["info", "breakpoints"] => points::list(r, console),
        ["bdelete", n] => points::delete(r, n)?,
        [verb, ..] if ONE_WORD.contains(&verb) => {
            return Err(Error::refused(format!("`{verb}` takes one word behind it; try `monitor help`")));
        }
        _ => return Err(Error::refused(format!("there is no command `{command}`; `monitor help` lists them"))),
    }
    Ok(Moved::No)
}

fn when(r: &Recorded<'_>) -> String {
    let moment = r.place().moment;
    match r.altered {
        None => format!("{moment}\n"),
        Some(_) => format!("{moment} of an altered run\n"),
    }
}

/// Goes to a moment of the recording; an altered run is left.
fn seek(r: &mut Recorded<'_>, to: &str, console: &mut dyn Console) -> Result<Moved, Error> {
    let stop = &mut || console.interrupted();
    let went = match (to, to.parse::<u64>(), moment(to), line_of(to)) {
        ("start", ..) => r.session.seek_start(),
        ("end", ..) => r.session.seek_end(stop).map(drop),
        (_, Ok(tick), ..) => r.session.seek_tick(tick, stop).map(drop),
        (_, _, Some(moment), _) => r.session.seek(moment, stop),
        (_, _, _, Some((file, line, n))) => {
            let starts = r.code_of(file, line)?.starts;
            r.session.seek_instance(&starts, n.unwrap_or(1), stop).map(drop)
        }
        _ => {
            let what = "is no moment: write TICK:0xPC, TICK, start, end or FILE:LINE#N";
            return Err(Error::refused(format!("`{to}` {what}")));
        }
    };
    went.map_err(failed)?;
    r.altered = None;
    r.moved();
    Ok(Moved::Yes)
}

fn instance(r: &mut Recorded<'_>, text: &str, console: &mut dyn Console) -> Result<(), Error> {
    let (file, line) = plain_line(text)?;
    let starts = r.code_of(file, line)?.starts;
    let begun = Instant::now();
    let stop = &mut || console.interrupted() || begun.elapsed() > PATIENCE;
    let (before, of) = match r.altered {
        None => {
            let counted = r.session.count(&starts, stop).map_err(failed)?;
            let Counted { before, all, whole } = counted;
            match whole {
                [true, true] => (before, format!(", of {all}")),
                [true, false] => (before, format!(", of at least {all} (counting them takes long)")),
                [false, _] => {
                    let text =
                        format!("at least {before} executions of {file}:{line} are before; counting them takes long\n");
                    console.print(&text);
                    return Ok(());
                }
            }
        }
        Some(_) => (r.count_before(&starts, stop)?, " of an altered run".to_owned()),
    };
    let text = match (before, starts.contains(&r.place().moment.pc)) {
        (_, true) => format!("{file}:{line}#{} begins here{of}\n", before + 1),
        (0, false) => format!("before {file}:{line}#1{of}\n"),
        (n, false) => format!("at or behind {file}:{line}#{n}{of}\n"),
    };
    console.print(&text);
    Ok(())
}

/// A moment, and what was altered on the way to it, is all that must be remembered: going to any is quick.
fn checkpoint(r: &mut Recorded<'_>, console: &mut dyn Console) {
    let mark = r.mark();
    let n = r.checkpoints.keys().last().map_or(1, |n| n + 1);
    console.print(&format!("Checkpoint {n} at {}\n", mark.moment));
    r.checkpoints.insert(n, mark);
}

fn checkpoint_of(r: &Recorded<'_>, text: &str) -> Result<u32, Error> {
    let found = text.parse().ok().filter(|n: &u32| r.checkpoints.contains_key(n));
    found.ok_or_else(|| Error::refused(format!("there is no checkpoint {text}; `monitor info checkpoints` lists them")))
}

fn list(r: &mut Recorded<'_>, console: &mut dyn Console) {
    if r.checkpoints.is_empty() {
        return console.print("No checkpoints.\n");
    }
    let loaded = r.loaded().unwrap_or_default();
    for (n, mark) in &r.checkpoints {
        let place = described(&loaded, mark.moment.pc).map(|d| format!(" {d}")).unwrap_or_default();
        let altered = if mark.is_altered() { ", of an altered run" } else { "" };
        console.print(&format!("{n} {}{place}{altered}\n", mark.moment));
    }
}
