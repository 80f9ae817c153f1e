//! dd: a passing and a failing input are brought together.
//!
//! Changes lead from one to the other. Some of them are made to the passing input, or undone in the failing one: if that
//! passes, it is the new passing input; if it fails, the new failing one. Either way less lies between them. If all of n
//! stretches of changes are unresolved, they are halved, until each is one change.
//!
//! When all of one grain is done, what still differs is cut more finely.

use super::ddmin::{stretches, without};
use super::difference::{Difference, Hunk};
use super::input::{Grain, Input};
use super::tested::{Outcome, Tested};
use crate::trials::Stop;

/// Stretches of which a part that passes is looked for, at most: more would take longer than it is worth.
const MOST_STRETCHES: usize = 256;

/// The closest pair found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Isolated {
    pub passing: Input,
    pub failing: Input,
    /// Why they were not brought closer, if so.
    pub stopped: Option<Stop>,
}

impl Isolated {
    /// Where they differ.
    pub fn hunks(&self) -> Vec<Hunk> {
        Difference::new(&self.passing, &self.failing, Grain::Bytes).hunks()
    }

    /// Bytes of the failing input that was given which make the difference. Where the failing one of the pair only lacks
    /// something, it is the byte that comes instead.
    pub fn origins(&self) -> Vec<u64> {
        let of = |h: &Hunk| match h.failing.is_empty() {
            true => h.failing.start..(h.failing.start + 1).min(self.failing.bytes.len()),
            false => h.failing.clone(),
        };
        let mut all: Vec<u64> = self.hunks().iter().flat_map(of).filter_map(|at| self.failing.origin(at)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// From where to begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Start {
    /// This one passes.
    Passing(Input),
    /// Without any input it fails in the same way.
    EmptyFails,
    /// Nothing that was tried passes.
    Nothing,
}

/// A part of the failing input that passes: no input at all, else all but a stretch of it, or a stretch.
pub fn passing_part(tested: &mut Tested<'_>, failing: &[u8]) -> Result<Start, Stop> {
    match tested.one(&[])? {
        Outcome::Passes => return Ok(Start::Passing(Input::default())),
        Outcome::Fails => return Ok(Start::EmptyFails),
        Outcome::Unresolved => {}
    }
    let whole = Input::new(failing);
    for grain in Grain::ALL {
        let parts = grain.parts(failing);
        let all: Vec<usize> = (0..parts.len()).collect();
        let mut count = 2;
        while parts.len() > 1 {
            let stretches = stretches(parts.len(), count);
            let candidate = |n: usize| {
                let kept = match stretches.get(n) {
                    Some(left_out) => without(&all, left_out),
                    None => all[stretches[n - stretches.len()].clone()].to_vec(),
                };
                let mut input = Input::default();
                kept.iter().for_each(|n| input.append(&whole, parts[*n].clone()));
                input
            };
            let found = tested.first(2 * stretches.len(), |n| candidate(n).bytes, |o| o == Outcome::Passes)?;
            if let Some((n, _)) = found {
                return Ok(Start::Passing(candidate(n)));
            }
            if count >= parts.len().min(MOST_STRETCHES) {
                break;
            }
            count *= 2;
        }
    }
    Ok(Start::Nothing)
}

/// Brings a passing and a failing input together.
pub fn isolate(tested: &mut Tested<'_>, passing: Input, failing: &[u8]) -> Isolated {
    let mut pair = Isolated { passing, failing: Input::new(failing), stopped: None };
    for grain in Grain::ALL {
        if let Err(stop) = closer(tested, &mut pair, grain) {
            pair.stopped = Some(stop);
            break;
        }
    }
    pair
}

/// Brings a pair together by changes of this grain; what was reached stays if it is stopped.
fn closer(tested: &mut Tested<'_>, pair: &mut Isolated, grain: Grain) -> Result<(), Stop> {
    let (passing, failing) = (pair.passing.clone(), pair.failing.clone());
    let difference = Difference::new(&passing, &failing, grain);
    // Changes that are made in the passing one, and those that are made in the failing one only.
    let mut made: Vec<usize> = Vec::new();
    let mut between: Vec<usize> = (0..difference.len()).collect();
    let mut count = 2;
    while between.len() >= 2 {
        let stretches = stretches(between.len(), count);
        // Even: a stretch is made in the passing one. Odd: it is undone in the failing one.
        let candidate = |n: usize| {
            let stretch = &stretches[n / 2];
            match n % 2 {
                0 => merged(&made, &between[stretch.clone()]),
                _ => merged(&made, &without(&between, stretch)),
            }
        };
        let made_of = |n: usize| difference.with(&candidate(n)).bytes;
        let found = match stretches.len() {
            // To make one half is to undo the other. One that fails comes first: the pair then has less around it.
            2 => match tested.first(2, |n| made_of(2 * n), |o| o == Outcome::Fails)? {
                None => tested.first(2, |n| made_of(2 * n), |o| o == Outcome::Passes)?,
                found => found,
            }
            .map(|(n, outcome)| (2 * n, outcome)),
            count => tested.first(2 * count, made_of, |o| o != Outcome::Unresolved)?,
        };
        match found {
            Some((n, outcome)) => {
                let now = candidate(n);
                let stretch = stretches[n / 2].clone();
                let (inside, rest) = (between[stretch.clone()].to_vec(), without(&between, &stretch));
                // What the new input has beside the passing one, and what it lacks.
                let (has, lacks) = if n % 2 == 0 { (inside, rest) } else { (rest, inside) };
                let input = difference.with(&now);
                let goes_on_with_rest = if outcome == Outcome::Fails {
                    pair.failing = input;
                    between = has;
                    n % 2 == 1
                } else {
                    pair.passing = input;
                    between = lacks;
                    made = now;
                    n % 2 == 0
                };
                count = if goes_on_with_rest { (count - 1).max(2) } else { 2 };
                tested.progress(pair.failing.bytes.len(), Some(pair.passing.bytes.len()));
            }
            None if count >= between.len() => break,
            None => count = (2 * count).min(between.len()),
        }
    }
    Ok(())
}

/// Two ordered lists as one.
fn merged(a: &[usize], b: &[usize]) -> Vec<usize> {
    let mut all = [a, b].concat();
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::super::tested::made::{Dice, Made};
    use super::*;

    fn judged(fails: bool) -> Outcome {
        if fails { Outcome::Fails } else { Outcome::Passes }
    }

    /// The pair that is found, from the passing input or, if there is none, from a part of the failing one.
    fn pair(width: usize, passing: Option<&str>, failing: &str, program: impl Fn(&[u8]) -> Outcome) -> Isolated {
        let mut made = Made::new(width, program);
        let mut tested = Tested::new(&mut made);
        let start = match passing {
            Some(text) => Input::other(text.as_bytes()),
            None => match passing_part(&mut tested, failing.as_bytes()) {
                Ok(Start::Passing(input)) => input,
                other => panic!("{other:?}"),
            },
        };
        isolate(&mut tested, start, failing.as_bytes())
    }

    #[track_caller]
    fn check(
        passing: Option<&str>,
        failing: &str,
        program: impl Fn(&[u8]) -> Outcome + Copy,
        expected: (&str, &str),
        origins: &[u64],
    ) {
        for width in [1, 2, 7] {
            let found = pair(width, passing, failing, program);
            let text = |input: &Input| String::from_utf8_lossy(&input.bytes).into_owned();
            assert_eq!((text(&found.passing).as_str(), text(&found.failing).as_str()), expected, "width {width}");
            assert_eq!(found.origins(), origins, "width {width}");
        }
    }

    #[test]
    fn one_byte_is_left_between_passing_and_failing() {
        let text = "good line\nbad (line\nmore\n";
        check(None, text, |i| judged(i.contains(&b'(')), ("", "("), &[14]);
    }

    #[test]
    fn of_a_part_that_both_have_in_another_form_only_the_difference_is_left() {
        let program = |i: &[u8]| match i.iter().filter(|b| b.is_ascii_digit()).count() {
            2 => judged(i.contains(&b'0')),
            _ => Outcome::Unresolved,
        };
        check(Some("x 15 y\nz\n"), "x 10 y\nz!\n", program, ("x 15 y\nz\n", "x 10 y\nz\n"), &[3]);
    }

    #[test]
    fn what_only_the_passing_input_has_is_named_by_what_comes_instead() {
        check(Some("a;-"), "a-", |i| judged(!i.contains(&b';')), ("a;-", "a-"), &[1]);
    }

    #[test]
    fn where_nothing_does_not_pass_a_part_is_looked_for() {
        let program = |i: &[u8]| match i.starts_with(b"head\n") {
            true => judged(i.contains(&b'!')),
            false => Outcome::Unresolved,
        };
        check(None, "head\none\ntwo!\n", program, ("head\n", "head\n!"), &[12]);
        let mut made = Made::new(1, |i: &[u8]| if i == b"abc" { Outcome::Fails } else { Outcome::Unresolved });
        assert_eq!(passing_part(&mut Tested::new(&mut made), b"abc"), Ok(Start::Nothing));
    }

    #[test]
    fn no_single_change_brings_the_pair_closer() {
        let mut dice = Dice(11);
        for round in 0..80 {
            let text: String = (0..dice.roll(50) + 1).map(|_| b"ab (\n"[dice.roll(5) as usize] as char).collect();
            let salt = dice.roll(1 << 30);
            let program = |i: &[u8]| {
                let mut mix = Dice(salt ^ i.iter().fold(i.len() as u64, |sum, b| sum.wrapping_mul(31) + u64::from(*b)));
                match mix.roll(6) {
                    _ if i.is_empty() => Outcome::Passes,
                    _ if i == text.as_bytes() => Outcome::Fails,
                    0 => Outcome::Fails,
                    1 => Outcome::Passes,
                    _ => Outcome::Unresolved,
                }
            };
            let found = pair(3, None, &text, program);
            assert_eq!(program(&found.passing.bytes), Outcome::Passes, "round {round}");
            assert_eq!(program(&found.failing.bytes), Outcome::Fails, "round {round}");
            let difference = Difference::new(&found.passing, &found.failing, Grain::Bytes);
            let all: Vec<usize> = (0..difference.len()).collect();
            for n in all.iter().filter(|_| all.len() > 1) {
                for input in [difference.with(&[*n]), difference.with(&without(&all, &(*n..*n + 1)))] {
                    assert_eq!(program(&input.bytes), Outcome::Unresolved, "round {round}, change {n}");
                }
            }
        }
    }

    #[test]
    fn a_clear_program_needs_few_tests() {
        let text = "word (other) \"more\"\n".repeat(200);
        let mut made = Made::new(1, |i: &[u8]| judged(i.iter().filter(|b| **b == b'"').count() > 150));
        let found = isolate(&mut Tested::new(&mut made), Input::default(), text.as_bytes());
        assert_eq!(found.failing.bytes.len() - found.passing.bytes.len(), 1);
        assert!(made.runs < 30, "{}", made.runs);
    }
}
