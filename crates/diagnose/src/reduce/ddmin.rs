//! ddmin: parts of a failing input are left out as long as it fails in the same way.
//!
//! The input is taken as n stretches of parts. If one stretch alone fails, it is the new input; else if all but one fail,
//! they are; else the stretches are halved, until each is one part.

use super::input::{Grain, Input};
use super::tested::{Outcome, Tested};
use crate::trials::Stop;
use std::ops::Range;

/// Makes a failing input smaller, by parts of this grain; what was reached stays if it is stopped.
pub fn reduce(tested: &mut Tested<'_>, best: &mut Input, grain: Grain) -> Result<(), Stop> {
    let whole = best.clone();
    let parts = grain.parts(&whole.bytes);
    // That an empty input fails is nothing that parts would tell.
    if parts.is_empty() || tested.one(&[])? == Outcome::Fails {
        *best = Input::default();
        return Ok(());
    }
    let made = |kept: &[usize]| {
        let mut input = Input::default();
        kept.iter().for_each(|n| input.append(&whole, parts[*n].clone()));
        input
    };
    let mut kept: Vec<usize> = (0..parts.len()).collect();
    let mut count = 2;
    while kept.len() >= 2 {
        let stretches = stretches(kept.len(), count);
        let candidate = |n: usize| match stretches.get(n) {
            Some(alone) => kept[alone.clone()].to_vec(),
            None => without(&kept, &stretches[n - stretches.len()]),
        };
        // Of two stretches, each is what the other leaves out.
        let candidates = if stretches.len() == 2 { 2 } else { 2 * stretches.len() };
        let found = tested.first(candidates, |n| made(&candidate(n)).bytes, |o| o == Outcome::Fails)?;
        match found {
            Some((n, _)) => {
                let is_alone = n < stretches.len();
                let now = candidate(n);
                count = if is_alone { 2 } else { (count - 1).max(2) };
                kept = now;
                *best = made(&kept);
                tested.progress(best.bytes.len(), None);
            }
            None if count >= kept.len() => break,
            None => count = (2 * count).min(kept.len()),
        }
    }
    Ok(())
}

/// So many stretches of a length; the last one is longer if it cannot be divided.
pub fn stretches(len: usize, count: usize) -> Vec<Range<usize>> {
    let count = count.clamp(1, len.max(1));
    let each = len / count;
    (0..count).map(|n| n * each..if n + 1 == count { len } else { (n + 1) * each }).collect()
}

/// All but a stretch.
pub fn without<T: Copy>(all: &[T], stretch: &Range<usize>) -> Vec<T> {
    [&all[..stretch.start], &all[stretch.end..]].concat()
}

#[cfg(test)]
mod tests {
    use super::super::smallest;
    use super::super::tested::made::{Dice, Made};
    use super::*;

    fn holds(input: &[u8], wanted: &[u8]) -> bool {
        let mut rest = input.iter();
        wanted.iter().all(|w| rest.any(|b| b == w))
    }

    fn judged(fails: bool) -> Outcome {
        if fails { Outcome::Fails } else { Outcome::Passes }
    }

    #[track_caller]
    fn check(text: &str, program: impl Fn(&[u8]) -> Outcome + Copy, expected: &str) {
        for width in [1, 2, 5] {
            let mut made = Made::new(width, program);
            let mut tested = Tested::new(&mut made);
            let (found, stopped) = smallest(&mut tested, text.as_bytes());
            assert_eq!((String::from_utf8_lossy(&found.bytes).as_ref(), stopped), (expected, None), "width {width}");
            let from: Vec<u8> =
                (0..found.bytes.len()).map(|n| text.as_bytes()[found.origin(n).unwrap() as usize]).collect();
            assert_eq!(from, found.bytes, "every byte knows where it was");
        }
    }

    #[test]
    fn only_what_the_failure_needs_is_left() {
        let text = "one\ntwo (three)\nfour \"five\" six\nseven\n";
        check(text, |i| judged(holds(i, b"(\"")), "(\"");
        check(text, |i| judged(i.windows(4).any(|w| w == b"five")), "five");
        check(text, |i| judged(i.len() >= 3), "one");
        check(text, |_| Outcome::Fails, "");
        check(text, |i| judged(i == text.as_bytes()), text);
    }

    #[test]
    fn no_byte_can_be_left_out() {
        let mut dice = Dice(7);
        for round in 0..60 {
            let text: Vec<u8> = (0..dice.roll(60) + 1).map(|_| b"ab (\n"[dice.roll(5) as usize]).collect();
            let salt = dice.roll(1 << 30);
            // Whether a part fails looks random; the whole does.
            let program = |i: &[u8]| {
                let mut mix = Dice(salt ^ i.iter().fold(i.len() as u64, |sum, b| sum.wrapping_mul(31) + u64::from(*b)));
                match mix.roll(4) {
                    _ if i == text => Outcome::Fails,
                    0 => Outcome::Fails,
                    1 => Outcome::Unresolved,
                    _ => Outcome::Passes,
                }
            };
            let mut made = Made::new(3, program);
            let (found, _) = smallest(&mut Tested::new(&mut made), &text);
            assert_eq!(program(&found.bytes), Outcome::Fails, "round {round}");
            for n in 0..found.bytes.len() {
                let less = without(&found.bytes, &(n..n + 1));
                assert_ne!(program(&less), Outcome::Fails, "round {round}, byte {n} of {:?}", found.bytes);
            }
        }
    }

    #[test]
    fn what_was_reached_stays_when_the_time_is_over() {
        let text = "x ".repeat(1000) + "!" + &"y ".repeat(1000);
        let mut made = Made { most: 6, ..Made::new(1, |i: &[u8]| judged(i.contains(&b'!'))) };
        let (found, stopped) = smallest(&mut Tested::new(&mut made), text.as_bytes());
        assert_eq!(stopped, Some(Stop::Time));
        assert!(found.bytes.len() < text.len() && found.bytes.contains(&b'!'), "{}", found.bytes.len());
    }

    #[test]
    fn stretches_are_all_of_it() {
        assert_eq!(stretches(7, 3), [0..2, 2..4, 4..7]);
        assert_eq!(stretches(2, 5), [0..1, 1..2]);
    }
}
