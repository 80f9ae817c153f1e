//! Options of `reduce`.

use super::Oracle;
use super::oracle::{at_least_one, duration};
use clap::{Args, ValueEnum};
use std::ffi::{OsStr, OsString};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

/// Make a failing input small, or find what makes the difference between a passing and a failing one.
///
/// The program is run again and again on parts of the input. Each run gets a copy of its own, `@@` in the arguments stands
/// for its name; the file that you give is never changed. Otherwise the program runs as if you had started it, in this
/// folder: what else it writes or removes it does each time. A part fails if it fails in the same way: the same signal in the
/// same function, the same exit status, other output than the reference, a refusal of the check, the same message.
/// Exit status: 0 found, 1 nothing smaller or closer was found, 2 bad usage or input, or the program passes, 3 a fault of
/// Clew.
#[derive(Args, Debug)]
#[command(
    override_usage = "clew reduce [OPTIONS] --input FILE|stdin -- PROGRAM [ARGS]...",
    after_help = "Examples:
  clew reduce --input big.txt -- ./prog @@                 it crashes: the smallest input that does
  clew reduce --input stdin -o small.txt -- ./prog < big   the input is standard input
  clew reduce --ref ./old --input big.txt -- ./new @@      it prints something else than an older version
  clew reduce --check 'grep -q ok' --input in -- ./prog @@
  clew reduce --isolate --input bad.txt -- ./prog @@       which bytes make it fail?
  clew reduce --isolate --good works.txt --input fails.txt -- ./prog @@
  clew reduce --expect-exit 0 --message 'stack underflow' --input p.bc -- bc -q @@"
)]
pub struct Reduce {
    /// Another verb asks, which has fewer options.
    #[arg(skip)]
    pub ahead: bool,
    /// The input to work on: a file that the arguments name, or `stdin`
    #[arg(long, value_name = "FILE|stdin")]
    pub input: Source,
    /// How the input is made smaller: `ddmin` leaves out parts as long as it fails
    #[arg(long, value_name = "NAME", default_value = "ddmin", value_parser = method)]
    pub method: Method,
    /// Find a passing and a failing input that differ in as little as possible, and tell the bytes that differ
    #[arg(long)]
    pub isolate: bool,
    /// With --isolate: an input that passes, like the failing one; without it, parts of the failing one are tried
    #[arg(long, value_name = "FILE", requires = "isolate")]
    pub good: Option<PathBuf>,
    /// Runs that fail in this way write TEXT to standard error
    #[arg(long, value_name = "TEXT")]
    pub message: Option<String>,
    /// Write the failing input that was found to this file; with --isolate the passing one to OUT.pass
    #[arg(short = 'o', long = "output", value_name = "OUT")]
    pub output: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    /// Search at most so long
    #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true, default_value = "60s")]
    pub budget: Duration,
    /// Runs at the same time; as many as there are processors if nobody says otherwise
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub jobs: Option<NonZeroUsize>,
    /// Print the answer only
    #[arg(short, long)]
    pub quiet: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
    // Behind the others: what follows its heading is shown under it.
    #[command(flatten)]
    pub oracle: Oracle,
}

/// Where an input comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    Stdin,
    File(PathBuf),
}

impl From<OsString> for Source {
    fn from(name: OsString) -> Source {
        if name == OsStr::new("stdin") { Source::Stdin } else { Source::File(name.into()) }
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Stdin => f.write_str("stdin"),
            Source::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// How inputs are made smaller.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Method {
    #[default]
    Ddmin,
}

fn method(text: &str) -> Result<Method, String> {
    match text {
        "ddmin" => Ok(Method::Ddmin),
        "ria" => Err("relevant-input analysis is not there yet; ddmin is".into()),
        _ => Err("write ddmin".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_that_is_not_there_is_named() {
        assert_eq!(method("ddmin"), Ok(Method::Ddmin));
        assert!(method("ria").is_err_and(|why| why.contains("not there yet")));
        assert!(method("magic").is_err());
    }

    #[test]
    fn an_input_is_a_file_or_standard_input() {
        assert_eq!(Source::from(OsString::from("stdin")), Source::Stdin);
        assert_eq!(Source::from(OsString::from("./stdin")), Source::File("./stdin".into()));
    }
}
