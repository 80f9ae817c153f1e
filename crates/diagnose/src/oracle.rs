//! What "works" means, and whether a run does.
//!
//! A run is what it wrote to the standard streams and how it ended. All conditions of an oracle must hold. What is wrong
//! is told as the first erroneous thing: a wrong byte comes before the end of the run, the end before bytes that are
//! missing, because those are missing when a run ends early.
//!
//! May miss: what a program writes into files.
//! Source: X. Zhang, N. Gupta, R. Gupta, "Locating Faults Through Automated Predicate Switching", ICSE 2006, section 3.

use std::fmt;

/// What a run wrote, and how it ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    /// In the order it was written: the stream (1 or 2) and bytes.
    pub output: Vec<(u8, Vec<u8>)>,
    pub end: End,
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
    pub exit: Option<u32>,
    /// It goes on for as long as anybody looks.
    pub alive: bool,
    /// Somebody else has a say too: the caller's script.
    pub check: bool,
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

impl Run {
    /// All that was written to one stream, or to both.
    pub fn stream(&self, stream: Stream) -> Vec<u8> {
        let wanted = |s: u8| match stream {
            Stream::Stdout => s == 1,
            Stream::Stderr => s == 2,
            Stream::Both => true,
        };
        self.output.iter().filter(|(s, _)| wanted(*s)).flat_map(|(_, b)| b.iter().copied()).collect()
    }

    /// Did both write the same, in the same order? How it came in pieces does not count.
    pub fn same_output(&self, other: &Run) -> bool {
        [Stream::Stdout, Stream::Stderr, Stream::Both].into_iter().all(|s| self.stream(s) == other.stream(s))
    }
}

impl Run {
    /// Is what one of them wrote the beginning of what the other did? Runs that never end are cut somewhere.
    pub fn agrees_with(&self, other: &Run) -> bool {
        let (a, b) = (self.stream(Stream::Both), other.stream(Stream::Both));
        a.starts_with(&b) || b.starts_with(&a)
    }
}

impl Oracle {
    /// Does it look at what the program computes, and not only at how it ends?
    pub fn sees_results(&self) -> bool {
        self.expectations().next().is_some() || self.check
    }

    /// Does it say anything at all?
    pub fn is_empty(&self) -> bool {
        !self.sees_results() && self.exit.is_none() && !self.alive
    }

    fn expectations(&self) -> impl Iterator<Item = (Stream, &[u8])> {
        let all = [(Stream::Stdout, &self.stdout), (Stream::Stderr, &self.stderr), (Stream::Both, &self.both)];
        all.into_iter().filter_map(|(s, e)| Some((s, e.as_deref()?)))
    }

    /// Can a run that has written this so far still work?
    pub fn may_pass(&self, so_far: &Run) -> bool {
        self.expectations().all(|(stream, expected)| expected.starts_with(&so_far.stream(stream)))
    }

    /// Judges a run. `check` is asked last, and only if there is such a script.
    pub fn judge(&self, run: &Run, check: &mut dyn FnMut(&Run) -> bool) -> Judgement {
        let differences: Vec<Failure> = self
            .expectations()
            .filter_map(|(stream, expected)| difference(stream, expected, &run.stream(stream)))
            .collect();
        let wrong = differences.iter().find(|f| matches!(f, Failure::WrongByte { .. }));
        let failure = match (wrong, self.end(&run.end), differences.first(), self.status(&run.end)) {
            (Some(f), ..) => Some(f.clone()),
            (_, Some(f), ..) => Some(f),
            (_, _, Some(f), _) => Some(f.clone()),
            (_, _, _, Some(f)) => Some(f),
            _ if self.check && !check(run) => Some(Failure::Refused),
            _ => None,
        };
        failure.map_or(Judgement::Passes, Judgement::Fails)
    }

    /// What is wrong with how a run ended, whatever it wrote.
    fn end(&self, end: &End) -> Option<Failure> {
        match end {
            End::Exited(_) if self.alive => Some(Failure::Ended(end.clone())),
            End::Exited(_) => None,
            End::StillRunning if self.alive => None,
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

fn difference(stream: Stream, expected: &[u8], found: &[u8]) -> Option<Failure> {
    match expected.iter().zip(found).position(|(e, f)| e != f) {
        Some(offset) => Some(Failure::WrongByte { stream, offset, expected: expected[offset], found: found[offset] }),
        None if found.len() < expected.len() => {
            Some(Failure::Missing { stream, offset: found.len(), bytes: expected.len() - found.len() })
        }
        None if found.len() > expected.len() => {
            Some(Failure::Extra { stream, offset: expected.len(), bytes: found.len() - expected.len() })
        }
        None => None,
    }
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

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let byte = |b: u8| b.escape_ascii().to_string();
        match self {
            Failure::WrongByte { stream, offset, expected, found } => {
                write!(f, "byte {offset} of {stream} is '{}' instead of '{}'", byte(*found), byte(*expected))
            }
            Failure::Missing { stream, offset, bytes } => {
                write!(f, "{stream} ends after {}, {bytes} more should come", count(*offset))
            }
            Failure::Extra { stream, offset, bytes } => {
                write!(f, "{stream} goes on for {} after the expected {}", count(*bytes), count(*offset))
            }
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
        Run { output: vec![(1, text.into())], end }
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
        check(&oracle, &run("", End::Exited(0)), Some(Failure::Ended(End::Exited(0))));
        check(&oracle, &run("", CRASH), Some(Failure::Crash { signal: 11, pc: 4 }));
    }

    #[test]
    fn streams_are_told_apart_and_put_together() {
        let run = Run { output: vec![(1, b"a".into()), (2, b"b".into()), (1, b"c".into())], end: End::Exited(0) };
        check(&Oracle { stderr: Some(b"b".into()), both: Some(b"abc".into()), ..expecting("ac") }, &run, None);
        let refused = Oracle { check: true, ..expecting("ac") }.judge(&run, &mut |_| false);
        assert_eq!(refused, Judgement::Fails(Failure::Refused));
    }
}
