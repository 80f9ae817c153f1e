//! Commands of the recording: what a user types behind `monitor`.

use super::adapter::{Recorded, failed};
use gdb::{Console, Error, Moved};
use image::LoadedImages;
use model::GuestAddr;
use model::serve::Moment;
use std::collections::BTreeMap;

const HELP: &str = "\
when                  the present moment
seek MOMENT           go to a moment: TICK:0xPC, TICK, start, end, or FILE:LINE#N, the N-th execution of a line
instance FILE:LINE    which execution of the line this is, or is behind, and how many there are
checkpoint            remember this moment and print its number
info checkpoints      list what is remembered
rollback N            go back to a checkpoint
cdelete N             forget a checkpoint
";

/// Does what was asked for.
pub fn obey(r: &mut Recorded<'_>, command: &str, console: &mut dyn Console) -> Result<Moved, Error> {
    let words: Vec<&str> = command.split_whitespace().collect();
    match words[..] {
        [] | ["help"] => console.print(HELP),
        ["when"] => console.print(&format!("{}\n", r.session.moment())),
        ["seek", to] => return seek(r, to, console),
        ["instance", line] => instance(r, line, console)?,
        ["checkpoint"] => checkpoint(r, console),
        ["info", "checkpoints"] => list(r, console),
        ["rollback", n] => {
            let moment = *checkpoint_of(r, n)?.1;
            go(r, moment, console)?;
            return Ok(Moved::Yes);
        }
        ["cdelete", n] => {
            let n = checkpoint_of(r, n)?.0;
            r.checkpoints.remove(&n);
        }
        ["seek" | "instance" | "rollback" | "cdelete", ..] => {
            return Err(Error::refused(format!("`{}` takes one word behind it; try `monitor help`", words[0])));
        }
        _ => return Err(Error::refused(format!("there is no command `{command}`; `monitor help` lists them"))),
    }
    Ok(Moved::No)
}

fn go(r: &mut Recorded<'_>, to: Moment, console: &mut dyn Console) -> Result<(), Error> {
    let went = r.session.seek(to, &mut || console.interrupted()).map_err(failed);
    r.moved();
    went
}

fn seek(r: &mut Recorded<'_>, to: &str, console: &mut dyn Console) -> Result<Moved, Error> {
    let stop = &mut || console.interrupted();
    let went = match (to, to.parse::<u64>(), moment(to), line_of(to)) {
        ("start", ..) => r.session.seek_start(),
        ("end", ..) => r.session.seek_end(stop).map(drop),
        (_, Ok(tick), ..) => r.session.seek_tick(tick, stop).map(drop),
        (_, _, Some(moment), _) => r.session.seek(moment, stop),
        (_, _, _, Some((file, line, n))) => {
            let addresses = addresses(r, file, line)?;
            r.session.seek_instance(&addresses, n.unwrap_or(1), stop).map(drop)
        }
        _ => {
            let what = "is no moment: write TICK:0xPC, TICK, start, end or FILE:LINE#N";
            return Err(Error::refused(format!("`{to}` {what}")));
        }
    };
    r.moved();
    went.map_err(failed)?;
    Ok(Moved::Yes)
}

/// `TICK:0xPC`
fn moment(text: &str) -> Option<Moment> {
    let (tick, pc) = text.split_once(':')?;
    Some(Moment { tick: tick.parse().ok()?, pc: u64::from_str_radix(pc.strip_prefix("0x")?, 16).ok()? })
}

/// `FILE:LINE` or `FILE:LINE#N`
fn line_of(text: &str) -> Option<(&str, u32, Option<u64>)> {
    let (place, n) = match text.rsplit_once('#') {
        Some((place, n)) => (place, Some(n.parse().ok().filter(|n| *n > 0)?)),
        None => (text, None),
    };
    let (file, line) = place.rsplit_once(':')?;
    Some((file, line.parse().ok()?, n)).filter(|_| !file.is_empty())
}

fn instance(r: &mut Recorded<'_>, text: &str, console: &mut dyn Console) -> Result<(), Error> {
    let Some((file, line, None)) = line_of(text) else {
        return Err(Error::refused(format!(
            "`{text}` is no line: write FILE:LINE; `monitor seek FILE:LINE#N` goes there"
        )));
    };
    let addresses = addresses(r, file, line)?;
    let (before, all) = r.session.count(&addresses, &mut || console.interrupted()).map_err(failed)?;
    let here = addresses.contains(&r.session.moment().pc);
    let text = match (before, here) {
        (_, true) => format!("{file}:{line}#{} begins here, of {all}\n", before + 1),
        (0, false) => format!("before {file}:{line}#1, of {all}\n"),
        (n, false) => format!("at or behind {file}:{line}#{n}, of {all}\n"),
    };
    console.print(&text);
    Ok(())
}

/// Where executions of a line begin: one address in each function that has code of it.
fn addresses(r: &mut Recorded<'_>, file: &str, line: u32) -> Result<Vec<u64>, Error> {
    let loaded = r.session.loaded(r.recording, &r.images).map_err(failed)?;
    let mut found = lines(&loaded, file, line);
    if found.is_empty() {
        // A library that is not mapped now may have been later.
        let end = r.session.loaded_at_end(r.recording, &r.images).map_err(failed)?;
        found = lines(&end, file, line);
    }
    match found.is_empty() {
        true => Err(Error::refused(format!("no code of {file}:{line} is known"))),
        false => Ok(found),
    }
}

fn lines(loaded: &LoadedImages, file: &str, line: u32) -> Vec<u64> {
    let mut all = Vec::new();
    for l in loaded.iter() {
        let mut first: BTreeMap<u64, u64> = BTreeMap::new();
        let spans = l.image.find_line(file, line);
        let exact = spans.iter().filter(|s| s.line == line);
        for span in exact.filter(|s| s.statement) {
            let function = span.start.0 - l.image.locate(span.start).offset_in_function.min(span.start.0);
            let at = l.bias.to_guest(span.start).0;
            first.entry(function).and_modify(|a| *a = at.min(*a)).or_insert(at);
        }
        all.extend(first.into_values());
    }
    all
}

/// A moment is all that must be remembered: going to any is quick.
fn checkpoint(r: &mut Recorded<'_>, console: &mut dyn Console) {
    let moment = r.session.moment();
    let n = r.checkpoints.keys().last().map_or(1, |n| n + 1);
    r.checkpoints.insert(n, moment);
    console.print(&format!("Checkpoint {n} at {moment}\n"));
}

fn checkpoint_of<'a>(r: &'a Recorded<'_>, text: &str) -> Result<(u32, &'a Moment), Error> {
    let found = text.parse().ok().and_then(|n: u32| r.checkpoints.get(&n).map(|m| (n, m)));
    found.ok_or_else(|| Error::refused(format!("there is no checkpoint {text}; `monitor info checkpoints` lists them")))
}

fn list(r: &mut Recorded<'_>, console: &mut dyn Console) {
    if r.checkpoints.is_empty() {
        return console.print("No checkpoints.\n");
    }
    let loaded = r.session.loaded(r.recording, &r.images).unwrap_or_default();
    for (n, moment) in &r.checkpoints {
        let place = describe(&loaded, GuestAddr(moment.pc)).map(|d| format!(" {d}")).unwrap_or_default();
        console.print(&format!("{n} {moment}{place}\n"));
    }
}

/// Function and line of an address.
fn describe(loaded: &LoadedImages, at: GuestAddr) -> Option<String> {
    let (_, image, at) = loaded.at(at)?;
    let location = image.image.locate(at);
    let function = location.function.clone()?;
    Some(match (location.short_file(), location.line) {
        (Some(file), Some(line)) => format!("{function} at {}:{line}", file.display()),
        _ => function,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_and_lines_are_told_apart() {
        assert_eq!(moment("12:0x4f"), Some(Moment { tick: 12, pc: 0x4f }));
        assert_eq!(moment("12:4f"), None);
        assert_eq!(line_of("a.c:3#4"), Some(("a.c", 3, Some(4))));
        assert_eq!(line_of("dir/a.c:3"), Some(("dir/a.c", 3, None)));
        assert_eq!(line_of("a.c:3#0"), None);
        assert_eq!(line_of("a.c"), None);
        assert_eq!(line_of(":3"), None);
    }
}
