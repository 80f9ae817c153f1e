//! Names: of units, and of what may stand in a recording's folder.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Kind};

/// A unit of a recording: the process, and which of its images, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UnitName {
    pub pid: u32,
    pub image: u32,
}

impl UnitName {
    pub fn new(pid: u32, image: u32) -> UnitName {
        UnitName { pid, image }
    }

    /// File name of one of its raw segments, in `units/`.
    pub fn raw(&self, sequence: u32) -> String {
        format!("{self}.{sequence}.raw")
    }

    /// File name of its compressed segments, in `units/`.
    pub fn log(&self) -> String {
        format!("{self}.log")
    }
}

impl fmt::Display for UnitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.pid, self.image)
    }
}

impl FromStr for UnitName {
    type Err = Error;

    fn from_str(text: &str) -> Result<UnitName, Error> {
        let parsed = text.split_once('.').and_then(|(pid, image)| Some(UnitName::new(number(pid)?, number(image)?)));
        parsed.ok_or_else(|| {
            Error::new(
                Kind::BadName,
                format!("`{text}` does not name a unit; write its process and image number, as in 4711.0"),
            )
        })
    }
}

/// Decimal digits as we write them: no sign and no leading zero, so that a name has one spelling.
fn number(text: &str) -> Option<u32> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

/// A file in `units/`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnitFile {
    Raw(UnitName, u32),
    Log(UnitName),
}

impl UnitFile {
    pub fn parse(file: &str) -> Option<UnitFile> {
        if let Some(unit) = file.strip_suffix(".log") {
            return Some(UnitFile::Log(unit.parse().ok()?));
        }
        let (unit, sequence) = file.strip_suffix(".raw")?.rsplit_once('.')?;
        Some(UnitFile::Raw(unit.parse().ok()?, number(sequence)?))
    }
}

/// The unit that made this file in `units/` as room for the log of a child or successor.
pub fn prepared_by(file: &str) -> Option<UnitName> {
    let made = file.strip_suffix(".next")?;
    made.parse().ok().or_else(|| made.rsplit_once('.')?.0.parse().ok())
}

/// One component of a path that stays where it is put.
pub fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.len() <= 255 && name != "." && name != ".." && !name.contains(['/', '\0'])
}

/// A file stamp: device, inode, size, and the times of modification and change in nanoseconds, in hexadecimal.
pub fn is_stamp(key: &str) -> bool {
    let parts: Vec<&str> = key.split('-').collect();
    parts.len() == 5 && parts.iter().all(|p| !p.is_empty() && p.len() <= 32 && p.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<(u32, u32)>) {
        let name = text.parse::<UnitName>().ok();
        assert_eq!(name, expected.map(|(pid, image)| UnitName::new(pid, image)), "{text:?}");
        if let Some(name) = name {
            assert_eq!(name.to_string(), text, "a name has one spelling");
        }
    }

    #[test]
    fn a_unit_name_has_one_spelling() {
        check("12.0", Some((12, 0)));
        check("4294967295.7", Some((u32::MAX, 7)));
        for wrong in ["", ".", "1", "1.", ".1", "01.0", "1.00", "+1.0", "-1.0", "1.0.0", "4294967296.0", "1. 0", "١.0"]
        {
            check(wrong, None);
        }
    }

    #[test]
    fn files_of_units_are_told_apart() {
        let unit = UnitName::new(5, 1);
        assert_eq!(UnitFile::parse("5.1.log"), Some(UnitFile::Log(unit)));
        assert_eq!(UnitFile::parse("5.1.20.raw"), Some(UnitFile::Raw(unit, 20)));
        for other in ["5.1.raw", "5.1.020.raw", "5.log", "5.1.log.part", "x", "", ".raw", ".log"] {
            assert_eq!(UnitFile::parse(other), None, "{other:?}");
        }
    }

    #[test]
    fn room_for_a_log_names_who_made_it() {
        let unit = Some(UnitName::new(5, 1));
        assert_eq!((prepared_by("5.1.next"), prepared_by("5.1.300.next")), (unit, unit));
        for other in ["5.next", "5.1.2.3.next", "5.1.raw", ".next", "next"] {
            assert_eq!(prepared_by(other), None, "{other:?}");
        }
    }

    #[test]
    fn stamps_and_plain_names() {
        assert!(is_stamp("fe01-12-0-17a-17b"));
        assert!(!is_stamp("fe01-12-0-17a") && !is_stamp("a-b-c-d-x") && !is_stamp("----") && !is_stamp("1-2-3-4-../5"));
        assert!(is_plain("a.b") && is_plain("..."));
        assert!(!is_plain("") && !is_plain("..") && !is_plain(".") && !is_plain("a/b") && !is_plain("a\0"));
    }
}
