//! Sizes, times, commands and endings of recordings, for people and for JSON.

use crate::find;
use model::log::{End, Ending};
use recording::{State, Status};
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// A size in powers of 1000, as disks and `ls --si` count them.
pub fn bytes(n: u64) -> String {
    let mut size = n as f64;
    for unit in ["B", "kB", "MB", "GB", "TB"] {
        if size < 999.95 || unit == "TB" {
            return if unit == "B" { format!("{n} B") } else { format!("{size:.1} {unit}") };
        }
        size /= 1000.0;
    }
    // The last unit takes everything.
    String::new()
}

/// Seconds since 1970 as a date and time of day in UTC.
pub fn when(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", rest / 3600, rest / 60 % 60, rest % 60)
}

/// The day of the Gregorian calendar that is so many days after 1970-01-01 (Howard Hinnant, "chrono-Compatible
/// Low-Level Date Algorithms").
fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let (era, of_era) = (z / 146_097, z % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year + u64::from(month <= 2), month, of_year - (153 * from_march + 2) / 5 + 1)
}

/// A command line as one could type it; words with other characters than these are quoted.
pub fn command(words: &[OsString]) -> String {
    words.iter().map(|w| word(w)).collect::<Vec<_>>().join(" ")
}

pub fn word(word: &OsStr) -> String {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"_-+./:=,@%^".contains(b);
    match word.to_str() {
        Some(text) if !text.is_empty() && text.as_bytes().iter().all(plain) => text.to_owned(),
        _ => find::quote(word),
    }
}

/// A path or other bytes, safe for a terminal.
pub fn path(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Text as a string; other bytes as an array of numbers.
pub fn value(text: &OsStr) -> Value {
    match text.to_str() {
        Some(text) => text.into(),
        None => text.as_bytes().into(),
    }
}

pub fn values(words: &[OsString]) -> Value {
    words.iter().map(|w| value(w)).collect()
}

pub fn status(status: Status) -> String {
    match status {
        Status::Exited(code) => format!("exit {code}"),
        Status::Signaled(signal) => session::signal_name(signal as i32),
    }
}

pub fn status_value(status: Status) -> Value {
    match status {
        Status::Exited(code) => json!({ "exited": code }),
        Status::Signaled(signal) => json!({ "signaled": signal, "name": session::signal_name(signal as i32) }),
    }
}

/// How it stands with a recording: a word for JSON, and a few for people.
pub fn state(state: &State) -> (&'static str, String) {
    match state {
        State::Writing => ("recording", "being recorded".into()),
        State::Ended(s) => ("ended", status(*s)),
        State::Interrupted => ("interrupted", "interrupted".into()),
        State::Damaged(_) => ("damaged", "damaged".into()),
    }
}

/// How a process image ended.
pub fn end(end: Option<&End>) -> (Value, String) {
    let Some(end) = end else { return (json!("unknown"), "killed, or not ended".into()) };
    match end.ending {
        Ending::Exited => {
            let s = Status::Exited(end.status);
            (status_value(s), status(s))
        }
        Ending::Signaled => {
            let s = Status::Signaled(end.status);
            (status_value(s), status(s))
        }
        Ending::Replaced => (json!("replaced"), "replaced by execve".into()),
        Ending::DiskFull => (json!("disk-full"), "the disk was full".into()),
        Ending::Left => (json!("left"), "left by the recorder".into()),
    }
}

/// `1 thread`, `2 threads`.
pub fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_one_decimal() {
        for (n, expected) in [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_234_567, "1.2 MB"), (999_960, "1.0 MB")]
        {
            assert_eq!(bytes(n), expected);
        }
        assert_eq!(bytes(u64::MAX), "18446744.1 TB");
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(when(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(when(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(when(1_700_000_000), "2023-11-14 22:13:20 UTC");
        assert_eq!(when(4_102_444_799), "2099-12-31 23:59:59 UTC");
        assert!(when(u64::MAX).ends_with("UTC"));
    }

    #[test]
    fn commands_can_be_read_back() {
        assert_eq!(command(&["ls".into(), "-l".into(), "a b".into(), "".into()]), r#"ls -l "a b" """#);
        assert_eq!(path(b"/a\x1b[31m\n"), "/a\u{fffd}[31m\u{fffd}");
    }
}
