//! Positive evidence: every byte of output that is right speaks for the statements behind it.
//!
//! Dependences are followed back from the bytes before the first wrong one, as from the wrong one itself. A statement whose
//! value went into a right byte is less likely to be wrong, and a decision that a right byte hangs on less likely to have
//! gone the wrong way; both come later where there is a choice. Nothing is ruled out: a wrong value may give a right byte.
//!
//! May miss: bytes right before the first wrong one, which may have come there in one piece with it; bytes that were written from several buffers at once or moved by the kernel, what other processes wrote, and
//! what lies before the window.
//! Source: X. Zhang, N. Gupta, R. Gupta, "Pruning Dynamic Slices With Confidence", PLDI 2006; the weight is ours.

use crate::case::{Case, numbers};
use crate::slice::criterion::Start;
use diagnose::Stream;
use model::GuestAddr;
use model::log::{CallRecord, Kind};
use session::Session;
use slice::{Criterion, Facts, Sent, Slice, Window};
use std::collections::{HashMap, HashSet};

/// Instructions that right bytes are followed to, at most.
const MOST_NODES: usize = 1_000_000;
/// Right bytes of a stream that are followed, the last ones: those before come from the same statements.
const MOST_BYTES: usize = 4096;
/// Bytes that an instruction copies at once, at most: dependences do not tell them apart.
const TOGETHER: usize = 64;

/// Executions of instructions that right output speaks for.
#[derive(Default)]
pub struct Vouched {
    /// Their values went into it.
    values: HashSet<(u32, u16)>,
    /// It hangs on them, however.
    all: HashSet<(u32, u16)>,
}

impl Vouched {
    /// What these bytes speak for, in a window that ends where they were looked for.
    pub fn by(right: &Criterion, window: &Window, facts: &mut dyn Facts, stop: &mut dyn FnMut() -> bool) -> Vouched {
        if *right == Criterion::default() {
            return Vouched::default();
        }
        let mut follow = |data_only: bool| {
            let how = slice::Options { data_only, most_nodes: MOST_NODES, ..slice::Options::default() };
            executions(&slice::backward(window, right, &how, facts, stop))
        };
        Vouched { values: follow(true), all: follow(false) }
    }

    /// Went the value of this execution into right output?
    pub fn is_value(&self, execution: u32, insn: u16) -> bool {
        self.values.contains(&(execution, insn))
    }

    /// Hangs right output on this execution?
    pub fn has(&self, execution: u32, insn: u16) -> bool {
        self.all.contains(&(execution, insn))
    }
}

fn executions(slice: &Slice) -> HashSet<(u32, u16)> {
    slice.nodes.iter().skip(1).map(|n| (n.execution, n.insn)).collect()
}

/// Where right bytes lay when they were written, or lie now, when the symptom shows; the session is there.
pub fn right_bytes(case: &Case<'_>, session: &Session, start: &Start) -> Criterion {
    let mut right = Criterion::default();
    let Ok(log) = case.opened.recording.log(&case.unit) else { return right };
    let calls = log.records().filter(|(_, r)| r.kind == Kind::Call);
    let calls = calls.filter_map(|(number, r)| CallRecord::decode(r.payload).map(|c| (c.time, (number, c))));
    let calls: HashMap<u64, (u64, CallRecord)> = calls.collect();
    let o = &case.oracle;
    let expected = [(Stream::Stdout, &o.stdout), (Stream::Stderr, &o.stderr), (Stream::Both, &o.both)];
    for (stream, expected) in expected.into_iter().filter_map(|(s, e)| Some((s, e.as_ref()?))) {
        let found = case.failing.run.stream(stream);
        let count = speaking(&found, found.iter().zip(expected).take_while(|(a, b)| a == b).count());
        let first = count.saturating_sub(MOST_BYTES);
        let mut passed = 0;
        for chunk in case.written.chunks_of(numbers(stream)) {
            let (begin, len) = (passed, chunk.bytes.len());
            passed += len;
            // From and to where in the chunk it is right, and wanted.
            let (from, to) = (first.saturating_sub(begin).min(len), count.saturating_sub(begin).min(len));
            let Some((record, call)) = calls.get(&chunk.time).filter(|_| chunk.unit == case.unit && from < to) else {
                continue;
            };
            let Some(at) = buffer_of(call).map(|buffer| buffer + from as u64) else { continue };
            if chunk.at.tick <= start.moment.tick {
                right.sent.push(Sent { record: *record, memory: vec![(at, (to - from) as u64)], distance: 0 });
                continue;
            }
            // It is on its way; as much as has been put there lies there already.
            let there = same_from(session, at, &chunk.bytes[from..to]);
            right.memory.extend((there > 0).then_some((at, there)));
        }
    }
    right
}

/// How many of the first so many bytes, which are right, speak for something: not those that may have been copied together
/// with what is wrong. Lines are mostly put out one by one.
fn speaking(bytes: &[u8], right: usize) -> usize {
    if right == bytes.len() {
        return right;
    }
    let line = bytes[..right].iter().rposition(|b| *b == b'\n').map_or(0, |n| n + 1);
    line.max(right.saturating_sub(TOGETHER))
}

/// How many bytes of memory from an address on are these.
fn same_from(session: &Session, at: u64, bytes: &[u8]) -> u64 {
    let mut there = vec![0; bytes.len()];
    let read = session.read(GuestAddr(at), &mut there).unwrap_or(0);
    there[..read].iter().zip(bytes).take_while(|(a, b)| a == b).count() as u64
}

/// What `write`, `pwrite64` and `sendto` write lies in one place.
fn buffer_of(call: &CallRecord) -> Option<u64> {
    matches!(call.nr, 1 | 18 | 44).then_some(call.args[1])
}

#[cfg(test)]
mod tests {
    use super::speaking;

    #[test]
    fn what_may_have_been_copied_together_with_the_wrong_byte_speaks_for_nothing() {
        assert_eq!(speaking(b"one\ntwo\n", 8), 8, "nothing is wrong");
        assert_eq!(speaking(b"one\ntwo\n", 6), 4, "the line before");
        assert_eq!(speaking(b"one two", 6), 0);
        assert_eq!(speaking(&[0; 1000], 500), 436);
    }
}
