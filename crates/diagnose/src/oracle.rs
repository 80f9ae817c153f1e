//! What "works" means, and whether a run does.
//!
//! A run is what it wrote to the standard streams, what it left in files, and how it ended. All conditions of an oracle must hold. What is wrong
//! is told as the first erroneous thing: a wrong byte comes before the end of the run, the end before bytes that are
//! missing, because those are missing when a run ends early. Of a run that does not end, bytes that are too many come first.
//!
//! Source: X. Zhang, N. Gupta, R. Gupta, "Locating Faults Through Automated Predicate Switching", ICSE 2006, section 3.

use crate::output::{Common, Piece, common};
use std::fmt;

/// What a run wrote, and how it ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    /// In the order it was written: the stream (1 or 2) and bytes.
    pub output: Vec<Piece>,
    pub end: End,
    /// What it left of the files that the oracle names, in that order; nothing where there is no file.
    pub files: Vec<Option<Vec<u8>>>,
}

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    Exited(u32),
    /// It died of a signal, with its pc there.
    Signaled {
        signal: u32,
        pc: u64,
    },
    /// It was still going when its budget was used up.
    StillRunning,
    /// All its threads waited for each other.
    Deadlocked,
    /// It waited for something from outside, which never comes in a trial; says for what.
    Waits(String),
    OutOfMemory,
    /// It was ended: what it had written was wrong already.
    GivenUp,
    /// Its world could not answer it; says what.
    Lost(String),
}

/// What an oracle looks at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stream {
    Stdout,
    Stderr,
    Both,
}

/// What "works" means: everything that is set here.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Oracle {
    pub stdout: Option<Vec<u8>>,
    pub stderr: Option<Vec<u8>>,
    /// Both streams together, in the order they were written.
    pub both: Option<Vec<u8>>,
    /// What files hold at the end.
    pub files: Vec<ExpectedFile>,
    pub exit: Option<u32>,
    /// It goes on for as long as anybody looks.
    pub alive: bool,
    /// Somebody else has a say too: the caller's script.
    pub check: bool,
}

/// A file, as people call it, and what it is to hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExpectedFile {
    pub name: String,
    pub contents: Vec<u8>,
}

/// What is wrong with bytes that should be somewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// What should hold them is not there.
    Absent,
    WrongByte {
        offset: usize,
        expected: u8,
        found: u8,
    },
    Missing {
        offset: usize,
        bytes: usize,
    },
    Extra {
        offset: usize,
        bytes: usize,
    },
}

/// Whether a run works.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Judgement {
    Passes,
    Fails(Failure),
}

/// The first erroneous thing in a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    WrongByte {
        stream: Stream,
        offset: usize,
        expected: u8,
        found: u8,
    },
    /// The output ends where more is expected.
    Missing {
        stream: Stream,
        offset: usize,
        bytes: usize,
    },
    /// The output goes on where it should have ended.
    Extra {
        stream: Stream,
        offset: usize,
        bytes: usize,
    },
    WrongFile {
        name: String,
        fault: Fault,
    },
    WrongExit {
        expected: u32,
        found: u32,
    },
    Crash {
        signal: u32,
        pc: u64,
    },
    Hang,
    /// The caller's script said no.
    Refused,
    /// It ended in a way that only trials do.
    Ended(End),
}

impl Stream {
    /// Is what is written to this descriptor part of it?
    pub fn holds(self, number: u8) -> bool {
        match self {
            Stream::Stdout => number == 1,
            Stream::Stderr => number == 2,
            Stream::Both => true,
        }
    }
}

impl Run {
    /// What was written to one stream, or to both, in the pieces in which it was written.
    pub fn pieces(&self, stream: Stream) -> impl Iterator<Item = &[u8]> + Clone {
        self.output.iter().filter(move |(s, _)| stream.holds(*s)).map(|(_, bytes)| &**bytes)
    }

    /// The same, put together.
    pub fn stream(&self, stream: Stream) -> Vec<u8> {
        self.pieces(stream).fold(Vec::new(), |mut all, piece| {
            all.extend_from_slice(piece);
            all
        })
    }

    /// Did both write the same, in the same order, and leave the same files? How it came in pieces does not count.
    pub fn same_output(&self, other: &Run) -> bool {
        let same = |s: Stream| common(self.pieces(s), other.pieces(s)).next == [None, None];
        self.files == other.files && [Stream::Stdout, Stream::Stderr, Stream::Both].into_iter().all(same)
    }

    /// Is what one of them wrote the beginning of what the other did? Runs that never end are cut somewhere.
    pub fn agrees_with(&self, other: &Run) -> bool {
        common(self.pieces(Stream::Both), other.pieces(Stream::Both)).next.contains(&None)
    }
}

impl Oracle {
    /// Does it look at what the program computes, and not only at how it ends?
    pub fn sees_results(&self) -> bool {
        self.expectations().next().is_some() || !self.files.is_empty() || self.check
    }

    /// Does it say anything at all?
    pub fn is_empty(&self) -> bool {
        !self.sees_results() && self.exit.is_none() && !self.alive
    }

    pub(crate) fn expectations(&self) -> impl Iterator<Item = (Stream, &[u8])> {
        let all = [(Stream::Stdout, &self.stdout), (Stream::Stderr, &self.stderr), (Stream::Both, &self.both)];
        all.into_iter().filter_map(|(s, e)| Some((s, e.as_deref()?)))
    }

    /// What is to be written to a stream, if anybody said so.
    pub fn expected(&self, stream: Stream) -> Option<&[u8]> {
        self.expectations().find(|(s, _)| *s == stream).map(|(_, expected)| expected)
    }

    /// Judges a run. `check` is asked last, and only if there is such a script.
    pub fn judge(&self, run: &Run, check: &mut dyn FnMut(&Run) -> bool) -> Judgement {
        let differences: Vec<Failure> =
            self.expectations().filter_map(|(stream, expected)| difference(stream, expected, run)).collect();
        // A run that goes on and on is wrong from the first byte that is too many; others first of all end wrong.
        let wrong = differences.iter().find(|f| match f {
            Failure::WrongByte { .. } => true,
            Failure::Extra { .. } => run.end == End::StillRunning,
            _ => false,
        });
        let wrong = wrong.cloned();
        let differences = differences.first().cloned().or_else(|| self.file(run));
        let failure = match (wrong, self.end(&run.end), differences, self.status(&run.end)) {
            (Some(f), ..) => Some(f),
            (_, Some(f), ..) | (_, _, Some(f), _) | (_, _, _, Some(f)) => Some(f),
            _ if self.check && !check(run) => Some(Failure::Refused),
            _ => None,
        };
        failure.map_or(Judgement::Passes, Judgement::Fails)
    }

    /// What is wrong with the files that a run left.
    fn file(&self, run: &Run) -> Option<Failure> {
        let wrong = |(n, file): (usize, &ExpectedFile)| {
            let found = run.files.get(n).and_then(Option::as_ref);
            let fault = match found {
                None => Fault::Absent,
                Some(found) => fault(&file.contents, std::iter::once(&**found))?,
            };
            Some(Failure::WrongFile { name: file.name.clone(), fault })
        };
        self.files.iter().enumerate().find_map(wrong)
    }

    /// What is wrong with how a run ended, whatever it wrote.
    fn end(&self, end: &End) -> Option<Failure> {
        match end {
            End::Exited(_) if self.alive => Some(Failure::Ended(end.clone())),
            End::Exited(_) => None,
            // A server that waits for its next client is as it should be.
            End::StillRunning | End::Waits(_) if self.alive => None,
            // A shell would show it so, and somebody may expect it.
            End::Signaled { signal, .. } if self.exit == Some(128 + signal) => None,
            End::Signaled { signal, pc } => Some(Failure::Crash { signal: *signal, pc: *pc }),
            End::StillRunning => Some(Failure::Hang),
            other => Some(Failure::Ended(other.clone())),
        }
    }

    fn status(&self, end: &End) -> Option<Failure> {
        match (self.exit, end) {
            (Some(expected), End::Exited(found)) if expected != *found => {
                Some(Failure::WrongExit { expected, found: *found })
            }
            _ => None,
        }
    }
}

/// The first thing in which bytes, given in pieces, are not as expected.
fn fault<'a>(expected: &[u8], found: impl Iterator<Item = &'a [u8]> + Clone) -> Option<Fault> {
    let Common { bytes: offset, next } = common(std::iter::once(expected), found.clone());
    match next {
        [Some(expected), Some(found)] => Some(Fault::WrongByte { offset, expected, found }),
        [Some(_), None] => Some(Fault::Missing { offset, bytes: expected.len() - offset }),
        [None, Some(_)] => Some(Fault::Extra { offset, bytes: found.map(<[u8]>::len).sum::<usize>() - offset }),
        [None, None] => None,
    }
}

fn difference(stream: Stream, expected: &[u8], run: &Run) -> Option<Failure> {
    Some(match fault(expected, run.pieces(stream))? {
        Fault::WrongByte { offset, expected, found } => Failure::WrongByte { stream, offset, expected, found },
        Fault::Extra { offset, bytes } => Failure::Extra { stream, offset, bytes },
        Fault::Missing { offset, bytes } => Failure::Missing { stream, offset, bytes },
        // A stream is always there.
        Fault::Absent => Failure::Missing { stream, offset: 0, bytes: expected.len() },
    })
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stream::Stdout => "standard output",
            Stream::Stderr => "standard error",
            Stream::Both => "the output",
        })
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Exited(status) => write!(f, "exit {status}"),
            End::Signaled { signal, pc } => write!(f, "signal {signal} at {pc:#x}"),
            End::StillRunning => f.write_str("still running"),
            End::Deadlocked => f.write_str("deadlocked"),
            End::Waits(what) => write!(f, "it waits: {what}"),
            End::OutOfMemory => f.write_str("out of memory"),
            End::GivenUp => f.write_str("ended when it wrote something wrong"),
            End::Lost(why) => write!(f, "lost: {why}"),
        }
    }
}

/// So many bytes, in words.
fn count(bytes: usize) -> String {
    if bytes == 1 { "1 byte".into() } else { format!("{bytes} bytes") }
}

impl Failure {
    /// Is the first erroneous thing the same? How much follows what is too much does not count.
    pub fn is_same(&self, other: &Failure) -> bool {
        match (self, other) {
            (Failure::Extra { stream, offset, .. }, Failure::Extra { stream: s, offset: o, .. }) => {
                (stream, offset) == (s, o)
            }
            _ => self == other,
        }
    }

    /// Is something wrong that was written, whatever came of the run then?
    fn is_written(&self) -> bool {
        matches!(self, Failure::WrongByte { .. } | Failure::Extra { .. })
    }

    /// Is it the same wrong output?
    pub fn is_same_output(&self, other: &Failure) -> bool {
        self.is_written() && self.is_same(other)
    }
}

impl Fault {
    /// A sentence about what has this name.
    fn write(&self, f: &mut fmt::Formatter<'_>, name: &dyn fmt::Display) -> fmt::Result {
        let byte = |b: u8| b.escape_ascii().to_string();
        match self {
            Fault::Absent => write!(f, "{name} is not there"),
            Fault::WrongByte { offset, expected, found } => {
                write!(f, "byte {offset} of {name} is '{}' instead of '{}'", byte(*found), byte(*expected))
            }
            Fault::Missing { offset, bytes } => {
                write!(f, "{name} ends after {}, {bytes} more should come", count(*offset))
            }
            Fault::Extra { offset, bytes } => {
                write!(f, "{name} goes on for {} after the expected {}", count(*bytes), count(*offset))
            }
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::WrongByte { stream, offset, expected, found } => {
                let fault = Fault::WrongByte { offset: *offset, expected: *expected, found: *found };
                fault.write(f, stream)
            }
            Failure::Missing { stream, offset, bytes } => {
                Fault::Missing { offset: *offset, bytes: *bytes }.write(f, stream)
            }
            Failure::Extra { stream, offset, bytes } => {
                Fault::Extra { offset: *offset, bytes: *bytes }.write(f, stream)
            }
            Failure::WrongFile { name, fault } => fault.write(f, name),
            Failure::WrongExit { expected, found } => write!(f, "the exit status is {found} instead of {expected}"),
            Failure::Crash { signal, pc } => write!(f, "it dies of signal {signal} at {pc:#x}"),
            Failure::Hang => f.write_str("it does not end"),
            Failure::Refused => f.write_str("the check says no"),
            Failure::Ended(end @ End::Exited(_)) => write!(f, "it ends ({end}) instead of going on"),
            Failure::Ended(end) => write!(f, "{end}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str, end: End) -> Run {
        Run { output: vec![(1, text.as_bytes().into())], end, files: Vec::new() }
    }

    #[track_caller]
    fn check(oracle: &Oracle, run: &Run, expected: Option<Failure>) {
        let judged = oracle.judge(run, &mut |_| true);
        assert_eq!(judged, expected.map_or(Judgement::Passes, Judgement::Fails));
    }

    fn expecting(text: &str) -> Oracle {
        Oracle { stdout: Some(text.into()), ..Oracle::default() }
    }

    const CRASH: End = End::Signaled { signal: 11, pc: 4 };

    #[test]
    fn the_first_erroneous_byte_is_told() {
        let (oracle, stream) = (expecting("10\n"), Stream::Stdout);
        check(&oracle, &run("10\n", End::Exited(0)), None);
        let wrong = Failure::WrongByte { stream, offset: 1, expected: b'0', found: b'2' };
        check(&oracle, &run("12\n", End::Exited(0)), Some(wrong.clone()));
        check(&oracle, &run("12\n", CRASH), Some(wrong));
        check(&oracle, &run("1", End::Exited(0)), Some(Failure::Missing { stream, offset: 1, bytes: 2 }));
        check(&oracle, &run("10\n!", End::Exited(0)), Some(Failure::Extra { stream, offset: 3, bytes: 1 }));
    }

    #[test]
    fn an_early_end_explains_what_is_missing() {
        check(&expecting("10\n"), &run("1", CRASH), Some(Failure::Crash { signal: 11, pc: 4 }));
        check(&expecting("10\n"), &run("1", End::StillRunning), Some(Failure::Hang));
        let extra = Failure::Extra { stream: Stream::Stdout, offset: 1, bytes: 2 };
        check(&expecting("1"), &run("111", End::StillRunning), Some(extra));
        check(&expecting("1"), &run("111", CRASH), Some(Failure::Crash { signal: 11, pc: 4 }));
    }

    #[test]
    fn a_crash_is_a_failure_unless_it_is_expected() {
        check(&Oracle::default(), &run("", CRASH), Some(Failure::Crash { signal: 11, pc: 4 }));
        check(&Oracle { exit: Some(139), ..Oracle::default() }, &run("", CRASH), None);
        check(&Oracle::default(), &run("", End::Exited(3)), None);
        let oracle = Oracle { exit: Some(0), ..Oracle::default() };
        check(&oracle, &run("", End::Exited(3)), Some(Failure::WrongExit { expected: 0, found: 3 }));
    }

    #[test]
    fn a_server_works_as_long_as_it_runs() {
        let oracle = Oracle { alive: true, ..Oracle::default() };
        check(&oracle, &run("", End::StillRunning), None);
        check(&oracle, &run("", End::Waits("accept".into())), None);
        check(&oracle, &run("", End::Deadlocked), Some(Failure::Ended(End::Deadlocked)));
        check(&oracle, &run("", End::Exited(0)), Some(Failure::Ended(End::Exited(0))));
        check(&oracle, &run("", CRASH), Some(Failure::Crash { signal: 11, pc: 4 }));
    }

    #[test]
    fn streams_are_told_apart_and_put_together() {
        let run = Run {
            output: vec![(1, b"a"[..].into()), (2, b"b"[..].into()), (1, b"c"[..].into())],
            ..run("", End::Exited(0))
        };
        check(&Oracle { stderr: Some(b"b".into()), both: Some(b"abc".into()), ..expecting("ac") }, &run, None);
        let refused = Oracle { check: true, ..expecting("ac") }.judge(&run, &mut |_| false);
        assert_eq!(refused, Judgement::Fails(Failure::Refused));
    }

    #[test]
    fn files_are_looked_at_when_the_run_ended_well() {
        let expected = ["a", "b"].map(|name| ExpectedFile { name: name.into(), contents: b"12".into() });
        let oracle = Oracle { files: expected.into(), ..Oracle::default() };
        let left =
            |files: [Option<&str>; 2], end| Run { files: files.map(|f| f.map(Into::into)).into(), ..run("", end) };
        let wrong = |name: &str, fault| Some(Failure::WrongFile { name: name.into(), fault });
        check(&oracle, &left([Some("12"), Some("12")], End::Exited(1)), None);
        check(&oracle, &left([Some("12"), None], End::Exited(0)), wrong("b", Fault::Absent));
        let byte = Fault::WrongByte { offset: 1, expected: b'2', found: b'3' };
        check(&oracle, &left([Some("13"), None], End::Exited(0)), wrong("a", byte));
        check(&oracle, &left([Some("1"), None], End::Exited(0)), wrong("a", Fault::Missing { offset: 1, bytes: 1 }));
        check(&oracle, &left([Some("13"), None], CRASH), Some(Failure::Crash { signal: 11, pc: 4 }));
        assert!(oracle.sees_results() && !oracle.is_empty());
        let text = wrong("out.txt", Fault::Absent).map(|f| f.to_string());
        assert_eq!(text.as_deref(), Some("out.txt is not there"));
    }
}
