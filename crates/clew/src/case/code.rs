//! The program's own code: where it lies in memory, and what it is called in the source.

use image::{Bias, FileOffset, Image, ImageOffset};
use model::GuestAddr;
use model::serve::MapInfo;
use recording::{Recording, UnitName};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

const EXECUTABLE: u8 = 4;

/// The program of a unit.
pub struct Code {
    image: Option<Image>,
    bias: Bias,
    /// Its file name.
    pub name: String,
    /// Addresses of its code.
    pub ranges: Vec<(u64, u64)>,
    /// What was asked before.
    known: RefCell<HashMap<u64, Where>>,
}

/// Where a branch is in the source.
#[derive(Clone, Debug, Default)]
pub struct Where {
    pub file: Option<PathBuf>,
    pub full: Option<PathBuf>,
    pub line: Option<u32>,
    pub function: Option<String>,
    /// `image+0x1234`.
    pub address: String,
    /// The line as it stands in the source.
    pub text: Option<String>,
}

/// What `--at` names: a line or an address, and one execution or all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct At {
    pub place: Place,
    pub instance: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    Line(PathBuf, u32),
    Offset(u64),
}

impl Code {
    /// Finds the program of `unit` among the mappings at its beginning.
    pub fn find(recording: &Recording, unit: &UnitName, maps: &[MapInfo]) -> Result<Code, String> {
        let first = recording.lineage(unit).map_err(|e| e.to_string())?[0];
        let start = &recording.unit(&first).map_err(|e| e.to_string())?.start;
        let own = || maps.iter().filter(|m| m.key == start.program && !m.key.is_empty());
        let ranges: Vec<_> = own().filter(|m| m.prot & EXECUTABLE != 0).map(|m| (m.start, m.end)).collect();
        if ranges.is_empty() {
            return Err(format!("the code of {} is not in its memory", start.exe));
        }
        let exe = Path::new(&start.exe);
        let image = open(recording, &start.program, exe);
        let bias = image.as_ref().zip(own().next());
        let bias = bias.and_then(|(image, m)| image.bias(FileOffset(m.offset), GuestAddr(m.start)));
        let lowest = own().map(|m| m.start).min().unwrap_or(0);
        let name = exe.file_name().map_or_else(|| "program".into(), |n| n.to_string_lossy().into_owned());
        Ok(Code { image, bias: bias.unwrap_or(Bias(lowest)), name, ranges, known: RefCell::default() })
    }

    /// Where the code at `pc` comes from.
    pub fn locate(&self, pc: u64) -> Where {
        if let Some(known) = self.known.borrow().get(&pc) {
            return known.clone();
        }
        let found = self.look_up(pc);
        self.known.borrow_mut().insert(pc, found.clone());
        found
    }

    fn look_up(&self, pc: u64) -> Where {
        let at = self.bias.to_image(GuestAddr(pc));
        let address = format!("{}+{:#x}", self.name, at.0);
        let Some(image) = &self.image else { return Where { address, ..Where::default() } };
        let found = image.locate(at);
        let text = found.file.as_deref().zip(found.line).and_then(|(file, line)| source_line(file, line));
        let file = found.short_file().map(Path::to_owned);
        Where { file, full: found.file, line: found.line, function: found.function, address, text }
    }

    /// Addresses of what `--at` names.
    pub fn ranges_of(&self, place: &Place) -> Result<Vec<(u64, u64)>, String> {
        let guest = |at: ImageOffset| self.bias.to_guest(at).0;
        match place {
            Place::Offset(at) => {
                let start = guest(ImageOffset(*at));
                Ok(vec![(start, start + 1)])
            }
            Place::Line(file, line) => {
                let image = self.image.as_ref().filter(|i| i.has_debug_info());
                let image = image.ok_or_else(|| {
                    format!("{} has no debug information, so no lines; write {0}+0xOFFSET", self.name)
                })?;
                let spans = image.find_line(file, *line);
                let exact: Vec<_> = spans.iter().filter(|s| s.line == *line).collect();
                match (exact.is_empty(), spans.first()) {
                    (false, _) => Ok(exact.iter().map(|s| (guest(s.start), guest(s.end))).collect()),
                    (true, Some(next)) => {
                        let file = file.display();
                        Err(format!("{file}:{line} has no code; the next line that has is {file}:{}", next.line))
                    }
                    (true, None) => Err(format!("{} has no code from {}:{line}", self.name, file.display())),
                }
            }
        }
    }
}

impl Code {
    /// The program's file and where it lies, if the file can be read.
    pub fn image(&self) -> Option<(&Image, Bias)> {
        self.image.as_ref().map(|image| (image, self.bias))
    }

    /// Is it an address of the program's code?
    pub fn holds(&self, pc: u64) -> bool {
        self.ranges.iter().any(|(start, end)| (*start..*end).contains(&pc))
    }

    /// First instructions of the functions with this name; of a library's function, the code through which it is called.
    pub fn entries_of(&self, name: &str) -> Result<Vec<u64>, String> {
        let none = || format!("{} has and calls no function {name}", self.name);
        let image = self.image.as_ref().ok_or_else(none)?;
        let mut found: Vec<ImageOffset> = image.find_function(name).iter().map(|f| f.start).collect();
        if found.is_empty() {
            let stub = format!("{name}@plt");
            let named = image.functions().iter().filter(|f| f.name == name || f.name == stub);
            found = named.map(|f| f.start).collect();
        }
        found.sort_unstable();
        found.dedup();
        if found.is_empty() { Err(none()) } else { Ok(found.into_iter().map(|at| self.bias.to_guest(at).0).collect()) }
    }
}

/// The kept program; the file it was kept from, if only that leads to debug information and is still the same.
fn open(recording: &Recording, key: &str, exe: &Path) -> Option<Image> {
    let kept = recording.file(key).and_then(|path| Image::open(path).ok());
    if kept.as_ref().is_some_and(Image::has_debug_info) {
        return kept;
    }
    let original = Image::open(exe).ok().filter(|o| match &kept {
        Some(kept) => kept.build_id().is_some() && kept.build_id() == o.build_id(),
        None => false,
    });
    original.or(kept)
}

fn source_line(file: &Path, line: u32) -> Option<String> {
    let text = std::fs::read(file).ok()?;
    let found = text.split(|b| *b == b'\n').nth(line.checked_sub(1)? as usize)?;
    let found = String::from_utf8_lossy(found).trim().to_owned();
    (!found.is_empty()).then_some(found)
}

impl Where {
    /// `file.c:12` or `image+0x1234`.
    pub fn short(&self) -> String {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => format!("{}:{line}", file.display()),
            _ => self.address.clone(),
        }
    }
}

impl std::str::FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> Result<At, String> {
        let wrong = || format!("`{text}` is no place: write FILE:LINE[#N] or IMAGE+0xOFFSET[#N]");
        let (place, instance) = match text.rsplit_once('#') {
            Some((place, n)) => (place, Some(n.parse().ok().filter(|n| *n > 0).ok_or_else(wrong)?)),
            None => (text, None),
        };
        if let Some((_, offset)) = place.rsplit_once("+0x") {
            let offset = u64::from_str_radix(offset, 16).map_err(|_| wrong())?;
            return Ok(At { place: Place::Offset(offset), instance });
        }
        let (file, line) = place.rsplit_once(':').ok_or_else(wrong)?;
        let line = line.parse().ok().filter(|n| *n > 0).ok_or_else(wrong)?;
        if file.is_empty() {
            return Err(wrong());
        }
        Ok(At { place: Place::Line(file.into(), line), instance })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_lines_or_offsets_with_or_without_an_instance() {
        let line = |file: &str, line| Place::Line(file.into(), line);
        for (text, place, instance) in [
            ("a.c:12", line("a.c", 12), None),
            ("src/a.c:12#4", line("src/a.c", 12), Some(4)),
            ("prog+0x1f#2", Place::Offset(0x1f), Some(2)),
        ] {
            assert_eq!(text.parse(), Ok(At { place, instance }), "{text}");
        }
        for wrong in ["", "a.c", "a.c:", "a.c:0", "a.c:1#", "a.c:1#0", ":3", "prog+0x", "prog+0xg"] {
            assert!(wrong.parse::<At>().is_err(), "{wrong}");
        }
    }
}
