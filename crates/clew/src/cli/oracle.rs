//! Options that say what "works" means; several combine with *and*.

use clap::Args;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

/// What a working run does.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "What works means (all that are given)")]
pub struct Oracle {
    /// Standard output is what this file holds
    #[arg(long, value_name = "FILE")]
    pub expect: Option<PathBuf>,
    /// Standard error is what this file holds
    #[arg(long, value_name = "FILE")]
    pub expect_stderr: Option<PathBuf>,
    /// Both streams together are what this file holds
    #[arg(long, value_name = "FILE")]
    pub expect_both: Option<PathBuf>,
    /// When it has ended, the file PATH holds what FILE holds; may be given several times
    #[arg(long, value_name = "PATH=FILE", value_parser = two_files)]
    pub expect_file: Vec<(PathBuf, PathBuf)>,
    /// It exits with this status (128+n: it dies of signal n)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub expect_exit: Option<u8>,
    /// It does not die of a signal; this is so without being said, too
    #[arg(long)]
    pub no_crash: bool,
    /// It ends within this time; in trials, ticks count instead
    #[arg(long, value_name = "TIME", value_parser = some_time, allow_hyphen_values = true)]
    pub timeout: Option<Duration>,
    /// It is still going after this time, as a server is
    #[arg(long, value_name = "TIME", value_parser = some_time, conflicts_with = "timeout", allow_hyphen_values = true)]
    pub alive: Option<Duration>,
    /// It writes and exits as this other program or version does, given the same arguments and input
    #[arg(long = "ref", value_name = "PROGRAM")]
    pub reference: Option<PathBuf>,
    /// This shell script, given standard output on its input, exits with 0
    #[arg(long, value_name = "SCRIPT")]
    pub check: Option<String>,
}

impl Oracle {
    /// When a recorded run is ended.
    pub fn ends_after(&self) -> Option<Duration> {
        self.timeout.or(self.alive)
    }
}

/// The file that a program is to leave behind, and one with what it is to hold.
fn two_files(text: &str) -> Result<(PathBuf, PathBuf), String> {
    let both = text.split_once('=').filter(|(path, file)| !path.is_empty() && !file.is_empty());
    both.map(|(path, file)| (path.into(), file.into())).ok_or_else(|| {
        "write PATH=FILE: the file that the program leaves behind, and one with what it should hold".to_owned()
    })
}

/// A number and a unit of time: `500ms`, `1.5s`, `2m`, `1h`.
pub fn duration(text: &str) -> Result<Duration, String> {
    in_nanoseconds(text)
        .map(Duration::from_nanos)
        .ok_or_else(|| "write a number and ms, s, m or h, as in 60s or 1.5m".to_owned())
}

/// How long a program may take: none can do anything in no time.
fn some_time(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|time| match time.is_zero() {
        true => Err("write a time that is longer than 0".to_owned()),
        false => Ok(time),
    })
}

fn in_nanoseconds(text: &str) -> Option<u64> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let (whole, part) = match text[..text.len() - unit.len()].split_once('.') {
        Some((_, "")) | Some(("", _)) => return None,
        Some(both) => both,
        None => (&text[..text.len() - unit.len()], ""),
    };
    let nanoseconds = match unit {
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let number: u128 = format!("{whole}{part}").parse().ok()?;
    let parts = 10u128.checked_pow(u32::try_from(part.len()).ok()?)?;
    u64::try_from(number.checked_mul(nanoseconds)? / parts).ok()
}

/// How many of something there are to be.
pub fn at_least_one(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "write a number from 1 on".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_a_number_and_a_unit() {
        for (text, ms) in [
            ("0s", 0),
            ("500ms", 500),
            ("60s", 60_000),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("0.1s", 100),
            ("1.5m", 90_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for wrong in ["", "5", "s", "-1s", ".s", "1.s", ".5s", "1.5", "1.2.3s", "1e3s", "7 s", "9999999999999999999h"] {
            assert!(duration(wrong).is_err(), "{wrong:?}");
        }
        assert!(some_time("0s").is_err() && some_time("1ms").is_ok());
    }

    #[test]
    fn an_expected_file_is_a_name_and_what_it_should_hold() {
        assert_eq!(two_files("out=a=b"), Ok(("out".into(), "a=b".into())));
        for wrong in ["", "out", "out=", "=good"] {
            assert!(two_files(wrong).is_err(), "{wrong:?}");
        }
    }
}
