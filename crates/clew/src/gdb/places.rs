//! Places of a program as users write them, `FILE:LINE` and functions, and addresses in words.

use super::adapter::{Recorded, failed};
use crate::case::Place;
use crate::slice::criterion::{LineRanges, ranges_of};
use gdb::Error;
use iced_x86::{Decoder, DecoderOptions, Instruction};
use image::LoadedImages;
use model::GuestAddr;
use model::serve::Moment;

/// `TICK:0xPC`
pub fn moment(text: &str) -> Option<Moment> {
    let (tick, pc) = text.split_once(':')?;
    Some(Moment { tick: tick.parse().ok()?, pc: address(pc)? })
}

/// `0x12ab`
pub fn address(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// A number, also in hexadecimal digits.
pub fn number(text: &str) -> Option<u64> {
    address(text).or_else(|| text.parse().ok()).or_else(|| text.parse().ok().map(|n: i64| n as u64))
}

/// `FILE:LINE` or `FILE:LINE#N`
pub fn line_of(text: &str) -> Option<(&str, u32, Option<u64>)> {
    let (place, n) = match text.rsplit_once('#') {
        Some((place, n)) => (place, Some(n.parse().ok().filter(|n| *n > 0)?)),
        None => (text, None),
    };
    let (file, line) = place.rsplit_once(':')?;
    Some((file, line.parse().ok()?, n)).filter(|_| !file.is_empty())
}

/// `FILE:LINE`, or an error that says how to write it.
pub fn plain_line(text: &str) -> Result<(&str, u32), Error> {
    match line_of(text) {
        Some((file, line, None)) => Ok((file, line)),
        _ => Err(Error::refused(format!("`{text}` is no line: write FILE:LINE"))),
    }
}

impl Recorded<'_> {
    /// What is mapped now; in an altered run, there.
    pub(super) fn loaded(&self) -> Result<LoadedImages, Error> {
        match &self.altered {
            None => self.session.loaded(self.recording, &self.images),
            Some(altered) => {
                let maps = altered.held.maps().map_err(failed)?;
                self.session.images_among(&maps, self.recording, &self.images)
            }
        }
        .map_err(failed)
    }

    /// The code of a line, and where its executions begin.
    pub(super) fn code_of(&mut self, file: &str, line: u32) -> Result<LineRanges, Error> {
        let place = Place::Line(file.into(), line);
        if let Ok(found) = ranges_of(&self.loaded()?, &place) {
            return Ok(found);
        }
        // A library that is not mapped now may have been later.
        let end = self.session.loaded_at_end(self.recording, &self.images).map_err(failed)?;
        ranges_of(&end, &place).map_err(Error::refused)
    }

    /// Where the functions of this name begin in all that is mapped, those of the program first.
    pub(super) fn functions(&mut self, name: &str) -> Result<Vec<u64>, Error> {
        let end = self.session.loaded_at_end(self.recording, &self.images).map_err(failed)?;
        let of_image = |image: &image::LoadedImage| -> Vec<u64> {
            let found = image.image.find_function(name);
            found.iter().map(|f| image.bias.to_guest(f.start).0).collect()
        };
        Ok(end.iter().flat_map(of_image).collect())
    }

    /// Instructions in a stretch of code.
    pub(super) fn instructions(&mut self, start: u64, end: u64) -> Result<Vec<Instruction>, Error> {
        use gdb::Debuggee;
        let mut bytes = vec![0; (end - start).min(1 << 16) as usize];
        let n = self.read(start, &mut bytes)?;
        Ok(Decoder::with_ip(64, &bytes[..n], start, DecoderOptions::NONE).iter().collect())
    }

    /// Function and line of an address, or the address itself.
    pub(super) fn describe(&self, pc: u64) -> String {
        let loaded = self.loaded().unwrap_or_default();
        described(&loaded, pc).unwrap_or_else(|| format!("{pc:#x}"))
    }
}

/// Function and line of an address.
pub fn described(loaded: &LoadedImages, pc: u64) -> Option<String> {
    let (_, image, at) = loaded.at(GuestAddr(pc))?;
    let location = image.image.locate(at);
    let function = location.function.clone()?;
    Some(match (location.short_file(), location.line) {
        (Some(file), Some(line)) => format!("{function} at {}:{line}", file.display()),
        _ => function,
    })
}

/// `file.c:12` of an address.
pub fn short_line(loaded: &LoadedImages, pc: u64) -> Option<(String, u32)> {
    let (_, image, at) = loaded.at(GuestAddr(pc))?;
    let location = image.image.locate(at);
    Some((location.short_file()?.display().to_string(), location.line?))
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
        assert!(plain_line("a.c:3#4").is_err());
    }

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        assert_eq!(number("0x1f"), Some(31));
        assert_eq!(number("31"), Some(31));
        assert_eq!(number("-1"), Some(u64::MAX));
        assert_eq!(number("x"), None);
    }
}
