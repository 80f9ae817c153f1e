//! What became of the failure in one trial.
//!
//! A run that ends well is *fixed* only if something says that its result is right: the oracle sees results, or the
//! failure itself was a wrong result. A crash or a hang that is merely not met is *avoided*, because whoever never comes to
//! the failing place never fails there; flipping the branch of a failing assertion does just that.

use crate::oracle::{End, Failure, Judgement, Oracle, Run};
use crate::output::common;
use std::fmt;

/// The recorded run, and what is wrong with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failing {
    pub run: Run,
    pub failure: Failure,
}

/// What became of the failure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    Fixed,
    SameFailure,
    OtherFailure(Failure),
    /// The failing place was not met; nothing says that anything was repaired.
    Avoided,
    RanAway,
    Deadlocked,
    OutOfMemory,
    /// The world could not answer; says what.
    Lost(String),
}

impl Verdict {
    pub fn of(trial: &Run, failing: &Failing, oracle: &Oracle, check: &mut dyn FnMut(&Run) -> bool) -> Verdict {
        let failure = match oracle.judge(trial, check) {
            Judgement::Passes if failing.hides_behind_its_end() && !oracle.sees_results() => return Verdict::Avoided,
            Judgement::Passes => return Verdict::Fixed,
            Judgement::Fails(failure) => failure,
        };
        let hung = failing.failure == Failure::Hang;
        match &trial.end {
            _ if failing.run.end == End::StillRunning && failure.is_same_output(&failing.failure) => {
                Verdict::SameFailure
            }
            // Whether it waits or computes: it does not end.
            End::StillRunning | End::Deadlocked | End::Waits(_) if hung && trial.agrees_with(&failing.run) => {
                Verdict::SameFailure
            }
            End::StillRunning => Verdict::RanAway,
            End::Deadlocked => Verdict::Deadlocked,
            End::OutOfMemory => Verdict::OutOfMemory,
            // What would come from outside, and what then, nobody knows.
            End::Lost(why) | End::Waits(why) => Verdict::Lost(why.clone()),
            _ if failure == failing.failure => Verdict::SameFailure,
            _ => Verdict::OtherFailure(failure),
        }
    }

    /// The word for it.
    pub fn name(&self) -> &'static str {
        match self {
            Verdict::Fixed => "fixed",
            Verdict::SameFailure => "same failure",
            Verdict::OtherFailure(_) => "other failure",
            Verdict::Avoided => "avoided",
            Verdict::RanAway => "ran away",
            Verdict::Deadlocked => "deadlocked",
            Verdict::OutOfMemory => "out of memory",
            Verdict::Lost(_) => "lost",
        }
    }
}

impl Failing {
    /// A crash or a hang: not meeting it looks like success.
    pub fn hides_behind_its_end(&self) -> bool {
        matches!(self.failure, Failure::Crash { .. } | Failure::Hang)
    }

    /// Is the piece of output in which this run first goes wrong right in that one, and something behind it as well? A
    /// program that makes the same mistake several times is not repaired by one change, but its first mistake is. One
    /// byte that happens to be right says nothing: a whole word or number must be.
    pub fn is_advanced_by(&self, run: &Run, oracle: &Oracle) -> bool {
        let (Failure::WrongByte { stream, offset, .. } | Failure::Missing { stream, offset, .. }) = &self.failure
        else {
            return false;
        };
        let Some(expected) = oracle.expected(*stream) else { return false };
        let right = common(std::iter::once(expected), run.pieces(*stream)).bytes;
        right > end_of_word(expected, *offset)
    }

    /// Why a control, a trial without any change, does not confirm this run; nothing if it does.
    pub fn doubt(&self, control: &Run, verdict: &Verdict) -> Option<String> {
        match verdict {
            Verdict::SameFailure if control.same_output(&self.run) => None,
            Verdict::SameFailure if self.failure == Failure::Hang => None,
            // Both were cut somewhere.
            Verdict::SameFailure if self.run.end == End::StillRunning && control.agrees_with(&self.run) => None,
            Verdict::SameFailure => Some("the same failure with other output".into()),
            other => Some(other.to_string()),
        }
    }
}

/// Where the word or number ends that is at this offset, or that comes next.
fn end_of_word(text: &[u8], offset: usize) -> usize {
    let rest = text.get(offset..).unwrap_or_default();
    let before = rest.iter().take_while(|b| !b.is_ascii_alphanumeric()).count();
    offset + before + rest[before..].iter().take_while(|b| b.is_ascii_alphanumeric()).count()
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Verdict::OtherFailure(failure) => write!(f, " ({failure})"),
            Verdict::Lost(why) => write!(f, " ({why})"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRASH: End = End::Signaled { signal: 6, pc: 9 };

    fn run(text: &str, end: End) -> Run {
        Run { output: vec![(1, text.as_bytes().into())], end, files: Vec::new() }
    }

    #[track_caller]
    fn check(expected: Option<&str>, failing: Run, trial: Run, verdict: &Verdict) {
        let oracle = Oracle { stdout: expected.map(Into::into), ..Oracle::default() };
        let judged = match oracle.judge(&failing, &mut |_| true) {
            Judgement::Fails(failure) => Failing { run: failing, failure },
            Judgement::Passes => panic!("it must fail"),
        };
        assert_eq!(&Verdict::of(&trial, &judged, &oracle, &mut |_| true), verdict);
    }

    #[test]
    fn a_crash_that_is_not_met_is_not_fixed() {
        check(None, run("", CRASH), run("", End::Exited(0)), &Verdict::Avoided);
        check(None, run("", End::StillRunning), run("", End::Exited(0)), &Verdict::Avoided);
        check(Some("x"), run("", CRASH), run("x", End::Exited(0)), &Verdict::Fixed);
    }

    #[test]
    fn failures_are_the_same_if_the_first_wrong_thing_is() {
        check(None, run("", CRASH), run("more", CRASH), &Verdict::SameFailure);
        let elsewhere = End::Signaled { signal: 6, pc: 10 };
        let other = Verdict::OtherFailure(Failure::Crash { signal: 6, pc: 10 });
        check(None, run("", CRASH), run("", elsewhere), &other);
        check(Some("abc"), run("axx", End::Exited(0)), run("axy", End::Exited(1)), &Verdict::SameFailure);
    }

    #[test]
    fn a_hang_in_a_hanging_program_is_the_same_failure() {
        check(None, run("", End::StillRunning), run("", End::StillRunning), &Verdict::SameFailure);
        check(None, run("ab", End::StillRunning), run("a", End::StillRunning), &Verdict::SameFailure);
        check(None, run("ab", End::StillRunning), run("x", End::StillRunning), &Verdict::RanAway);
        check(None, run("", CRASH), run("", End::StillRunning), &Verdict::RanAway);
        check(None, run("", CRASH), run("", End::Deadlocked), &Verdict::Deadlocked);
        let waits = || run("", End::Waits("pause".into()));
        check(None, run("", CRASH), waits(), &Verdict::Lost("pause".into()));
        check(None, run("", End::StillRunning), waits(), &Verdict::SameFailure);
    }

    #[test]
    fn a_run_that_writes_too_much_for_ever_fails_the_same_way_wherever_it_is_cut() {
        let endless = |text| run(text, End::StillRunning);
        check(Some("1"), endless("111"), endless("11"), &Verdict::SameFailure);
        check(Some("1"), endless("111"), endless("1"), &Verdict::RanAway);
        check(Some("1"), run("11", End::Exited(0)), endless("11"), &Verdict::RanAway);
        let failing = Failing {
            failure: Failure::Extra { stream: crate::oracle::Stream::Stdout, offset: 1, bytes: 2 },
            run: endless("111"),
        };
        assert_eq!(failing.doubt(&endless("11111"), &Verdict::SameFailure), None);
        assert!(failing.doubt(&endless("112"), &Verdict::SameFailure).is_some());
    }

    #[test]
    fn a_run_is_advanced_by_a_whole_word_that_is_right() {
        let oracle = Oracle { stdout: Some(b"[1,31]".into()), ..Oracle::default() };
        let failure =
            Failure::WrongByte { stream: crate::oracle::Stream::Stdout, offset: 1, expected: b'1', found: b'2' };
        let failing = Failing { run: run("[2,51]", End::Exited(0)), failure };
        for (text, advanced) in [("[1,5]", true), ("[1,3", true), ("[1", false), ("[7,31]", false), ("[1]", false)] {
            assert_eq!(failing.is_advanced_by(&run(text, End::GivenUp), &oracle), advanced, "{text}");
        }
    }

    #[test]
    fn a_control_must_write_what_was_recorded() {
        let failing = Failing { run: run("ab", CRASH), failure: Failure::Crash { signal: 6, pc: 9 } };
        assert_eq!(failing.doubt(&run("ab", CRASH), &Verdict::SameFailure), None);
        assert!(failing.doubt(&run("a", CRASH), &Verdict::SameFailure).is_some());
        assert!(failing.doubt(&run("ab", CRASH), &Verdict::RanAway).is_some());
    }
}
