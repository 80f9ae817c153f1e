//! Points of a run as people write them for `--from` and `--to`: a line, a function, an address, a tick, a number of instructions.
//!
//! A place is looked up in the program itself, or for `IMAGE+0xOFFSET` in the named file, before anything runs.
//! May miss: of a line whose code is in several functions (inlined, templates) only the copy at the lowest address counts;
//! places in shared libraries and in scripts are refused.

use image::{Image, ImageOffset};
use model::region::RegionPoint;
use model::wire::Site;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const FORMS: &str =
    "write FILE:LINE, FUNCTION or IMAGE+0xOFFSET, each with #N for its N-th execution, ticks:N or icount:N";

/// What was written.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Written<'a> {
    Ticks(u64),
    Instructions(u64),
    Line(&'a str, u32, Option<u64>),
    Function(&'a str, Option<u64>),
    Offset(&'a str, u64, Option<u64>),
}

/// Which execution of a place is meant when none is named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unnamed {
    /// The first of the run.
    First,
    /// The first behind the beginning of the region.
    Next,
}

/// The point that `text` names in a run of `program`.
pub fn point(text: &str, program: &Path, unnamed: Unnamed) -> Result<RegionPoint, String> {
    let (file, offset, instance) = match parse(text)? {
        Written::Ticks(n) => return Ok(RegionPoint::Ticks(n)),
        Written::Instructions(n) => return Ok(RegionPoint::Instructions(n)),
        Written::Line(file, line, n) => (program, line_start(&open(program)?, file, line)?, n),
        Written::Function(name, n) => (program, function_start(&open(program)?, name)?, n),
        Written::Offset(image, offset, n) => {
            let file = named(image, program)?;
            let at = ImageOffset(offset);
            match open(file)?.contains(at) {
                true => (file, at, n),
                false => return Err(format!("{} has no address {offset:#x}", file.display())),
            }
        }
    };
    let identity = std::fs::metadata(file).map_err(|e| format!("cannot look at {}: {e}", file.display()))?;
    let instance = match unnamed {
        Unnamed::First => instance.unwrap_or(1),
        Unnamed::Next => instance.unwrap_or(0),
    };
    Ok(RegionPoint::Site { site: Site::Executable(offset.0), instance, program: [identity.dev(), identity.ino()] })
}

fn parse(text: &str) -> Result<Written<'_>, String> {
    let wrong = || format!("`{text}` is no point of a run: {FORMS}");
    if let Some(n) = text.strip_prefix("ticks:") {
        return n.parse().map(Written::Ticks).map_err(|_| wrong());
    }
    if let Some(n) = text.strip_prefix("icount:") {
        return n.parse().map(Written::Instructions).map_err(|_| wrong());
    }
    let (place, instance) = match text.rsplit_once('#') {
        Some((place, n)) => (place, Some(n.parse().ok().filter(|n| *n > 0).ok_or_else(wrong)?)),
        None => (text, None),
    };
    if let Some((image, offset)) = place.rsplit_once("+0x") {
        let offset = u64::from_str_radix(offset, 16).map_err(|_| wrong())?;
        return Ok(Written::Offset(image, offset, instance));
    }
    match place.rsplit_once(':') {
        // `space::name` is a function.
        Some((file, line)) if !file.is_empty() && !file.ends_with(':') => {
            let line = line.parse().ok().filter(|n| *n > 0).ok_or_else(wrong)?;
            Ok(Written::Line(file, line, instance))
        }
        _ if place.is_empty() || place.starts_with(':') && !place.starts_with("::") => Err(wrong()),
        _ => Ok(Written::Function(place, instance)),
    }
}

fn open(file: &Path) -> Result<Image, String> {
    Image::open(file).map_err(|e| format!("no place can be found in {}: {e}", file.display()))
}

/// The file that is meant by the name of an image.
fn named<'a>(image: &'a str, program: &'a Path) -> Result<&'a Path, String> {
    let path = Path::new(image);
    let is_program = program.file_name().is_some_and(|name| name == image) || path == program;
    match is_program {
        true => Ok(program),
        false if path.is_file() && path.parent().is_some_and(|p| !p.as_os_str().is_empty()) => Ok(path),
        false => Err(format!(
            "`{image}` is not the program {}; for one that is executed later write its path, as in ./{image}+0xOFFSET",
            program.display()
        )),
    }
}

fn line_start(image: &Image, file: &str, line: u32) -> Result<ImageOffset, String> {
    let name = image.path().display();
    if !image.has_debug_info() {
        return Err(format!("{name} has no debug information, so no lines: name a function, or IMAGE+0xOFFSET"));
    }
    let spans = image.find_line(file, line);
    let exact = || spans.iter().filter(|s| s.line == line);
    let start = exact().filter(|s| s.statement).map(|s| s.start).min().or_else(|| exact().map(|s| s.start).min());
    start.ok_or_else(|| match spans.first() {
        Some(next) => format!("{file}:{line} has no code; the next line that has is {file}:{}", next.line),
        None => format!("{name} has no code from {file}:{line}"),
    })
}

fn function_start(image: &Image, name: &str) -> Result<ImageOffset, String> {
    let mut starts: Vec<ImageOffset> = image.find_function(name).iter().map(|f| f.start).collect();
    starts.sort_unstable();
    starts.dedup();
    match starts[..] {
        [start] => Ok(start),
        [] => Err(format!("{} has no function `{name}`", image.path().display())),
        [first, ..] => Err(format!(
            "{} functions are called `{name}`: write FILE:LINE, or {}+{:#x} for the first",
            starts.len(),
            image.path().file_name().unwrap_or_default().display(),
            first.0
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_ticks_lines_functions_or_addresses() {
        for (text, expected) in [
            ("ticks:12", Written::Ticks(12)),
            ("icount:5", Written::Instructions(5)),
            ("a.c:12", Written::Line("a.c", 12, None)),
            ("src/a.c:12#4", Written::Line("src/a.c", 12, Some(4))),
            ("main", Written::Function("main", None)),
            ("space::name#2", Written::Function("space::name", Some(2))),
            ("./prog+0x1f#2", Written::Offset("./prog", 0x1f, Some(2))),
        ] {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
        for wrong in
            ["", "#1", ":3", "a.c:", "a.c:x", "a.c:0", "a.c:1#", "main#0", "ticks:", "ticks:-1", "icount:x", "p+0xg"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
