//! A byte of what was written to a stream or a file: by which call, from where in memory.

use super::carried::Carried;
use crate::written::Written;
use model::log::{CallRecord, Kind};
use model::serve::Moment;
use recording::{Recording, UnitName};
use std::path::Path;

/// One written byte.
pub struct WrittenByte {
    /// Before the call that wrote it.
    pub moment: Moment,
    /// What it is, where that is known from the recording alone.
    pub byte: Option<u8>,
    call: CallRecord,
    /// Its place in what the call wrote.
    offset: u64,
}

/// The byte at `offset` of a stream. It must have been written by `unit`.
pub fn written_byte(
    written: &Written,
    recording: &Recording,
    unit: UnitName,
    stream: u8,
    offset: usize,
) -> Result<WrittenByte, String> {
    let (chunk, at) = written.write_of(&[stream], offset).map_err(|all| match all {
        0 => "nothing was written there; stdout:N, stderr:N and FILE:N name a byte of a stream or a file".to_owned(),
        n => format!("only {n} bytes were written: the last is byte {}", n - 1),
    })?;
    if chunk.unit != unit {
        return Err(format!("byte {offset} was written by process {}: write RECORDING:{0}", chunk.unit));
    }
    let log = recording.log(&chunk.unit).map_err(|e| e.to_string())?;
    let calls = log.records().filter(|(_, r)| r.kind == Kind::Call);
    let mut calls = calls.filter_map(|(_, r)| CallRecord::decode(r.payload));
    let call = calls.find(|c| c.time == chunk.time).ok_or("the call that wrote it is not in the log")?;
    // Before the call, the tick that it makes is not there.
    let moment = Moment { tick: chunk.at.tick.saturating_sub(1), pc: chunk.at.pc };
    Ok(WrittenByte { moment, byte: Some(chunk.bytes[at]), call, offset: at as u64 })
}

/// The last write of a unit to its standard output, wherever that led: the moment before it, where the bytes lay, how many.
pub fn last_write(recording: &Recording, unit: UnitName) -> Option<(Moment, u64, u64)> {
    const WRITE: u32 = 1;
    let log = recording.log(&unit).ok()?;
    let calls = log.records().filter(|(_, r)| r.kind == Kind::Call);
    let calls = calls.filter_map(|(_, r)| CallRecord::decode(r.payload));
    let call = calls.filter(|c| c.nr == WRITE && c.args[0] == 1 && c.result > 0).last()?;
    let moment = Moment { tick: call.tick.saturating_sub(1), pc: call.pc };
    Some((moment, call.args[1], call.result as u64))
}

/// The byte at `offset` of what a file holds in the end. It must have been written by `unit`.
pub fn file_byte(
    carried: &Carried,
    recording: &Recording,
    unit: UnitName,
    path: &Path,
    offset: u64,
) -> Result<WrittenByte, String> {
    let shown = path.display();
    let source = carried.in_file(path, offset);
    let source = source.ok_or_else(|| format!("nobody is known to have written byte {offset} of {shown}"))?;
    if source.unit != unit {
        return Err(format!("byte {offset} of {shown} was written by process {}: write RECORDING:{0}", source.unit));
    }
    let log = recording.log(&unit).map_err(|e| e.to_string())?;
    let call = log.records().find(|(n, _)| *n == source.record).and_then(|(_, r)| CallRecord::decode(r.payload));
    let call = call.ok_or("the call that wrote it is not in the log")?;
    let moment = Moment { tick: call.tick.saturating_sub(1), pc: call.pc };
    Ok(WrittenByte { moment, byte: None, call, offset: source.offset })
}

impl WrittenByte {
    /// Where the byte lay before the call; `read` reads memory at that moment. Bytes that the kernel moved lay nowhere.
    pub fn address(&self, read: impl FnMut(u64, &mut [u8]) -> bool) -> Option<u64> {
        address_in(&self.call, self.offset, read)
    }
}

/// Where the byte at `offset` of what a call wrote lay before it; `read` reads memory at that moment.
pub fn address_in(call: &CallRecord, offset: u64, mut read: impl FnMut(u64, &mut [u8]) -> bool) -> Option<u64> {
    let [_, buffer, count, ..] = call.args;
    match call.nr {
        // write, pwrite64, sendto
        1 | 18 | 44 => Some(buffer + offset),
        // writev, pwritev, pwritev2, vmsplice
        20 | 296 | 328 | 278 => in_list(buffer, count, offset, read),
        // sendmsg: the list and its length are in the message's head.
        46 => {
            let mut head = [0; 16];
            if !read(buffer + 16, &mut head) {
                return None;
            }
            let [list, count] = words(head);
            in_list(list, count, offset, read)
        }
        _ => None,
    }
}

/// A byte of memory that is given as a list of addresses and lengths.
fn in_list(list: u64, count: u64, offset: u64, mut read: impl FnMut(u64, &mut [u8]) -> bool) -> Option<u64> {
    let mut left = offset;
    for n in 0..count.min(1024) {
        let mut pair = [0; 16];
        if !read(list + n * 16, &mut pair) {
            return None;
        }
        let [base, len] = words(pair);
        if left < len {
            return Some(base + left);
        }
        left -= len;
    }
    None
}

fn words(bytes: [u8; 16]) -> [u64; 2] {
    let (a, b) = bytes.split_at(8);
    [a, b].map(|w| u64::from_le_bytes(w.try_into().unwrap_or_default()))
}
