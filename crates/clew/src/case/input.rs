//! The part of the input that counts: bytes that make the difference between a passing and a failing run.
//!
//! `clew reduce --isolate` names them by their places in a file or in standard input. Here they are found in what calls
//! delivered, so that what they had an influence on is told from what any input has.
//!
//! May miss: bytes that came another way, as through a pipe from another process or by a file that was renamed; if none
//! is found all input counts, and the answer says so.

use super::Case;
use super::left::in_full;
use crate::cli::{InputBytes, Source};
use crate::slice::carried::{Carried, Thing};
use crate::slice::tracing;
use slice::window::CallEffects;
use std::ops::Range;

const MMAP: u64 = 9;

/// The calls of the failing process with the input that counts, and whether there is any of what was named.
pub fn calls(case: &Case<'_>) -> Result<(Vec<CallEffects>, bool), String> {
    let recording = &case.opened.recording;
    let Some(bytes) = case.input else { return Ok((tracing::calls(recording, &case.unit)?, true)) };
    // Files without a name in the log were opened for writing.
    let carried = Carried::gather(recording, &mut |_| None)?;
    let thing = match &bytes.source {
        Source::Stdin => Thing::Stdin,
        Source::File(path) => Thing::File(path.canonicalize().unwrap_or_else(|_| in_full(path))),
    };
    let mut is_read = false;
    let calls = tracing::calls_with_input(recording, &case.unit, &mut |unit, call| {
        let found = match carried.delivered(unit, call.record) {
            Some((from, start)) if *from == thing => within(bytes, start, call),
            _ => Vec::new(),
        };
        is_read |= !found.is_empty();
        Some(found)
    })?;
    match is_read {
        true => Ok((calls, true)),
        false => Ok((tracing::calls(recording, &case.unit)?, false)),
    }
}

/// What else the program was told, such as its arguments, as far as it counts.
pub fn told<'t>(case: &Case<'_>, is_read: bool, told: &'t [(u64, u64)]) -> &'t [(u64, u64)] {
    if case.input.is_some() && is_read { &[] } else { told }
}

/// Memory that holds these bytes, of a call that delivered what comes from `start` on.
fn within(bytes: &InputBytes, start: u64, call: &CallEffects) -> Vec<(u64, u64)> {
    let filled = match call.nr {
        MMAP => vec![(call.result as u64, call.args[1])],
        _ => call.writes.clone(),
    };
    let mut found = Vec::new();
    let mut at = start;
    for (addr, len) in filled {
        let here = at..at + len;
        let common = |r: &Range<u64>| r.start.max(here.start)..r.end.min(here.end);
        let inside = bytes.ranges.iter().map(common).filter(|r| r.start < r.end);
        found.extend(inside.map(|r| (addr + (r.start - here.start), r.end - r.start)));
        at = here.end;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_within(bytes: &str, start: u64, call: &CallEffects, expected: &[(u64, u64)]) {
        let bytes: InputBytes = bytes.parse().expect("bytes");
        assert_eq!(within(&bytes, start, call), expected);
    }

    #[test]
    fn bytes_are_found_where_calls_put_them() {
        let read = CallEffects { writes: vec![(0x100, 4), (0x200, 8)], ..CallEffects::default() };
        check_within("f:3", 0, &read, &[(0x103, 1)]);
        check_within("f:3-5,20", 0, &read, &[(0x103, 1), (0x200, 2)]);
        check_within("f:3-5,20", 16, &read, &[(0x200, 1)]);
        check_within("f:3", 4, &read, &[]);
        let args = [0, 4096, 1, 2, 3, 0];
        let mapped = CallEffects { nr: MMAP, args, result: 0x7000, ..CallEffects::default() };
        check_within("f:5000-5001", 4096, &mapped, &[(0x7000 + 904, 2)]);
    }
}
