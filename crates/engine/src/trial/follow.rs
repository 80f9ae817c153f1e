//! The log as a source of answers after the guest has left it.
//!
//! Each thread has a cursor at its next recorded call. As long as the guest makes the same call with the same arguments,
//! the recorded answer holds; a call that does not fit is answered by the world, and the cursor looks a little ahead, so
//! that one call more or less does not end the agreement. Questions that have no state are answered from anywhere.

use super::trial;
use crate::gate::Gate;
use crate::replay::replay;
use crate::state::Engine;
use crate::sys;
use crate::syscalls::table::Args;
use crate::threads::Thread;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use model::log::{self, Answer, Bytes, CallRecord, Kind, SpecialRecord};

/// Calls that are looked at ahead.
const AHEAD: usize = 24;

/// Where the log is read.
#[derive(Default)]
pub struct Follow {
    log: &'static [u8],
    /// Offset behind the last record used, by thread.
    cursors: BTreeMap<u32, usize>,
    /// Where the log was left.
    from: usize,
}

/// Starts where the replay was left.
pub fn begin(e: &mut Engine, t: &Thread) {
    let (log, at) = replay(e).rest();
    let f = &mut trial(e).follow;
    (f.log, f.from) = (log, at);
    f.cursors.insert(t.serial, at);
}

/// A recorded call and where its records lie.
struct Found {
    record: CallRecord,
    /// The writes that belong to it, and the offset behind it.
    writes: Vec<Bytes<'static>>,
    end: usize,
}

impl Follow {
    fn cursor(&self, thread: u32) -> usize {
        self.cursors.get(&thread).copied().unwrap_or(self.from)
    }

    /// The first call from `at` on that `wanted` takes, of the next `limit` calls of any kind.
    fn find(&self, at: usize, limit: usize, mut wanted: impl FnMut(&CallRecord) -> bool) -> Option<Found> {
        let (mut at, mut calls) = (at, 0);
        let mut writes = Vec::new();
        while calls < limit {
            let raw = log::record(self.log.get(at..)?).ok()?;
            at += raw.len;
            match raw.kind {
                Kind::Write => writes.extend(Bytes::decode(raw.payload)),
                Kind::Call => {
                    let record = CallRecord::decode(raw.payload)?;
                    if raw.flags == Answer::Value as u8 && wanted(&record) {
                        return Some(Found { record, writes, end: at });
                    }
                    writes.clear();
                    calls += 1;
                }
                Kind::Page | Kind::File | Kind::Rest | Kind::Inexact | Kind::Feature | Kind::Content => {}
                _ => writes.clear(),
            }
        }
        None
    }
}

/// The recorded answer to this call of this thread, applied to the guest's memory.
pub fn answer(e: &mut Engine, thread: u32, number: u64, args: &Args) -> Option<CallRecord> {
    let f = &trial(e).follow;
    let at = f.cursor(thread);
    let fits = |r: &CallRecord| r.thread == thread && u64::from(r.nr) == number && r.args == *args;
    let found = f.find(at, AHEAD, fits)?;
    apply(&found);
    trial(e).follow.cursors.insert(thread, found.end);
    Some(found.record)
}

/// The recorded answer to the same question, whenever it was asked.
pub fn memory_of(e: &mut Engine, number: u64, args: &Args) -> Option<CallRecord> {
    const MOST: usize = 20_000;
    let f = &trial(e).follow;
    let found = f.find(0, MOST, |r| u64::from(r.nr) == number && r.args == *args)?;
    apply(&found);
    Some(found.record)
}

fn apply(found: &Found) {
    for b in &found.writes {
        sys::write_guest(b.addr, b.bytes);
    }
}

/// The recorded answer of the machine, if the next record of its kind is of this instruction.
pub fn special(e: &mut Engine, g: &Gate) -> Option<[u64; 4]> {
    let thread = crate::threads::Thread::current().serial;
    let f = &mut trial(e).follow;
    let mut at = f.cursor(thread);
    for _ in 0..AHEAD {
        let raw = log::record(f.log.get(at..)?).ok()?;
        at += raw.len;
        if raw.kind == Kind::Special
            && let Some(s) = SpecialRecord::decode(raw.payload)
            && s.pc == g.pc
        {
            f.cursors.insert(thread, at);
            return Some(s.values);
        }
    }
    None
}

/// All bytes that recorded calls from here on read from this descriptor, in order, and what nobody read.
pub fn input_of(e: &mut Engine, fd: u64, thread: u32) -> Vec<u8> {
    const MOST: usize = 64 << 20;
    let f = &trial(e).follow;
    let mut at = f.cursor(thread);
    let mut bytes = Vec::new();
    // read, pread64, readv, recvfrom.
    let reads = |r: &CallRecord| matches!(r.nr, 0 | 17 | 19 | 45) && r.args[0] == fd && r.result > 0;
    while bytes.len() < MOST
        && let Some(found) = f.find(at, usize::MAX, reads)
    {
        let mut left = found.record.result as usize;
        for b in &found.writes {
            let n = b.bytes.len().min(left);
            bytes.extend_from_slice(&b.bytes[..n]);
            left -= n;
        }
        at = found.end;
    }
    bytes.extend_from_slice(&rest_of(f.log, at));
    bytes
}

/// What was left in standard input when the guest ended.
fn rest_of(log: &'static [u8], from: usize) -> Vec<u8> {
    let mut at = from;
    let mut bytes = Vec::new();
    while let Some(raw) = log.get(at..).and_then(|l| log::record(l).ok()) {
        if raw.kind == Kind::Rest
            && raw.flags == 0
            && let Some(rest) = log::RestRecord::decode(raw.payload)
        {
            bytes.extend_from_slice(rest.bytes);
        }
        at += raw.len;
    }
    bytes
}
