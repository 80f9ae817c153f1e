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
    #[arg(long, value_name = "N")]
    pub expect_exit: Option<u8>,
    /// It does not die of a signal; this is so without being said, too
    #[arg(long)]
    pub no_crash: bool,
    /// It ends within this time; in trials, ticks count instead
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// It is still going after this time, as a server is
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "timeout")]
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

/// A number and a unit of time: `500ms`, `10s`, `2m`, `1h`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "write a number and ms, s, m or h, as in 60s".to_owned();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(milliseconds).map(Duration::from_millis).ok_or_else(wrong)
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
        for (text, ms) in [("0s", 0), ("500ms", 500), ("60s", 60_000), ("2m", 120_000), ("1h", 3_600_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for wrong in ["", "5", "s", "-1s", "1.5s", "7 s", "9999999999999999999h"] {
            assert!(duration(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_expected_file_is_a_name_and_what_it_should_hold() {
        assert_eq!(two_files("out=a=b"), Ok(("out".into(), "a=b".into())));
        for wrong in ["", "out", "out=", "=good"] {
            assert!(two_files(wrong).is_err(), "{wrong:?}");
        }
    }
}
