//! Options of the verbs that manage recordings: `ls`, `info`, `rm` and `pack`.

use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// List the recordings in Clew's home folder, the newest last.
///
/// The home folder is CLEW_HOME, else XDG_DATA_HOME/clew, else ~/.local/share/clew. Exit status: 0, also when there are
/// none; 2 if the folder cannot be read.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  clew ls                           name, time, size, how it ended and command of each
  clew ls --json                    the same as JSON")]
pub struct Ls {
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Say what is in a recording: the command, its processes, how each ended, and what is not exact.
///
/// Exit status: 0, or 2 if there is no such recording or it cannot be read.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  clew info latest                  the newest recording
  clew info latest:4711             only process 4711 of it
  clew info bug.clew --json         a packed recording, as JSON")]
pub struct Info {
    /// A recording: its name, a path, `latest` or a packed file; `:PID[.IMAGE]` behind it names one process
    pub recording: String,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Remove recordings.
///
/// Only what is certain to be a recording is removed, and none that is still being made. Exit status: 0 if everything
/// that was named is gone, 2 if not.
#[derive(Args, Debug)]
#[command(
    override_usage = "clew rm [OPTIONS] RECORDING...\n       clew rm [OPTIONS] --older AGE",
    after_help = "Examples:
  clew rm ls-1 ls-2                 these two
  clew rm latest                    the newest
  clew rm --older 7d                all that were begun more than a week ago"
)]
pub struct Rm {
    /// Recordings: names, paths, `latest` or packed files
    #[arg(required_unless_present = "older", conflicts_with = "older", value_name = "RECORDING")]
    pub recordings: Vec<String>,
    /// Remove those in the home folder that were begun longer ago: a number and s, m, h, d or w
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub older: Option<Duration>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    /// Do not say what was removed
    #[arg(short, long)]
    pub quiet: bool,
}

/// Make one portable file of a recording, with the debug information and the sources that this machine has.
///
/// The file replays on other machines, for other users, and when the original programs are gone. A recording holds
/// secrets: the environment, everything that was read, and whole files. What goes into the file is listed, so that you
/// can look before you send it. Exit status: 0 written, 2 bad usage or input, 3 it could not be written.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  clew pack latest bug.clew         the newest recording in one file
  clew replay bug.clew              replay it anywhere
  clew pack ls-1 ls.clew --json     list what was embedded as JSON")]
pub struct Pack {
    /// A recording: its name, a path, `latest` or a packed file
    pub recording: String,
    /// The file to write, which must not exist
    pub file: PathBuf,
    /// Leave out debug information and sources
    #[arg(long)]
    pub bare: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    /// Do not list what is embedded
    #[arg(short, long)]
    pub quiet: bool,
}

/// A number and a unit of time.
fn age(text: &str) -> Result<Duration, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 24 * 3600,
        "w" => 7 * 24 * 3600,
        _ => return Err("write a number and s, m, h, d or w, as in 7d".into()),
    };
    let number: u64 = number.parse().map_err(|_| "write a number and s, m, h, d or w, as in 7d".to_owned())?;
    let seconds = number.checked_mul(seconds).ok_or_else(|| "that is longer than anything has existed".to_owned())?;
    Ok(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_a_number_and_a_unit() {
        for (text, seconds) in [("0s", 0), ("90s", 90), ("2m", 120), ("1h", 3600), ("7d", 604_800), ("2w", 1_209_600)] {
            assert_eq!(age(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for wrong in ["", "7", "d", "-1d", "1.5h", "7 d", "7D", "7dd", "99999999999999999999d", "9999999999999999999w"]
        {
            assert!(age(wrong).is_err(), "{wrong:?}");
        }
    }
}
