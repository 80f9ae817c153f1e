//! Options of all verbs that search by trials.

use super::oracle::{at_least_one, duration};
use super::{Oracle, Source};
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::fmt;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

/// What fails, what "works" means, and how long to search.
#[derive(Args, Debug)]
pub struct Search {
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    /// Search at most so long
    #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true, default_value = "60s")]
    pub budget: Duration,
    /// Trials at the same time; as many as there are processors if nobody says otherwise
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    pub jobs: Option<NonZeroUsize>,
    /// Of all input only these bytes count, as `clew reduce --isolate` names them: FILE:3,7-9 or stdin:3,7-9
    #[arg(long, value_name = "FILE:BYTES")]
    pub input_bytes: Option<InputBytes>,
    /// Find these bytes of this input first, as `clew reduce --isolate --input` does, in at most a third of the time
    #[arg(long, value_name = "FILE|stdin", conflicts_with_all = ["input_bytes", "recording"])]
    pub isolate: Option<Source>,
    /// Print the answer only
    #[arg(short, long)]
    pub quiet: bool,
    /// A recording: its name, a path, `latest` or a packed file; `:PID[.IMAGE]` behind it names one process
    #[arg(required_unless_present = "command", conflicts_with = "command")]
    pub recording: Option<String>,
    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
    // Behind the others: what follows its heading is shown under it.
    #[command(flatten)]
    pub oracle: Oracle,
}

/// Bytes of an input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InputBytes {
    pub source: Source,
    pub ranges: Vec<Range<u64>>,
}

impl InputBytes {
    /// These bytes, counted from 0 and in order, of this input.
    pub fn new(source: Source, bytes: &[u64]) -> InputBytes {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for n in bytes {
            match ranges.last_mut().filter(|last| last.end == *n) {
                Some(last) => last.end = n + 1,
                None => ranges.push(*n..n + 1),
            }
        }
        InputBytes { source, ranges }
    }
}

/// As it is written on the command line.
impl fmt::Display for InputBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.source)?;
        for (n, range) in self.ranges.iter().enumerate() {
            let comma = if n > 0 { "," } else { "" };
            match range.end - range.start {
                1 => write!(f, "{comma}{}", range.start)?,
                _ => write!(f, "{comma}{}-{}", range.start, range.end - 1)?,
            }
        }
        Ok(())
    }
}

impl FromStr for InputBytes {
    type Err = String;

    fn from_str(text: &str) -> Result<InputBytes, String> {
        let wrong = || "write FILE:BYTES or stdin:BYTES, BYTES as in 3,7-9, counted from 0".to_owned();
        let (name, list) = text.rsplit_once(':').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
        let range = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let [first, last] = [first, last].map(|n| n.parse::<u64>().ok());
            first.zip(last).filter(|(first, last)| first <= last && *last < u64::MAX).map(|(f, l)| f..l + 1)
        };
        let ranges: Option<Vec<Range<u64>>> = list.split(',').map(range).collect();
        Ok(InputBytes { source: Source::from(OsString::from(name)), ranges: ranges.ok_or_else(wrong)? })
    }
}

/// In which order changes are tried.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Last executed, first changed
    Lefs,
    /// What the failure depends on first: near it, seldom executed, and reached by the input
    Prior,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_an_input_are_a_name_and_numbers() {
        let bytes = |text: &str| text.parse::<InputBytes>();
        let file = InputBytes { source: Source::File("a:b".into()), ranges: vec![3..4, 7..10] };
        assert_eq!(bytes("a:b:3,7-9"), Ok(file));
        assert_eq!(bytes("stdin:0,5"), Ok(InputBytes { source: Source::Stdin, ranges: vec![0..1, 5..6] }));
        let told = |bytes: &[u64]| InputBytes::new(Source::Stdin, bytes).to_string();
        assert_eq!((told(&[3]), told(&[3, 4, 5, 9])), ("stdin:3".into(), "stdin:3-5,9".into()));
        for wrong in ["", "stdin", ":3", "f:", "f:x", "f:9-7", "f:1,", "f:-1"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
