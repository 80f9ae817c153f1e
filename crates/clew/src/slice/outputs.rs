//! What was written to the standard streams, byte by byte: by which call, from where in memory.

use model::log::{CallRecord, Kind};
use model::serve::Moment;
use recording::{Recording, UnitName};

/// One write of one process.
#[derive(Clone, Debug)]
pub struct Piece {
    pub unit: UnitName,
    pub time: u64,
    pub at: Moment,
    pub stream: u8,
    pub bytes: Vec<u8>,
}

/// All writes, in order.
pub struct Outputs {
    pub pieces: Vec<Piece>,
}

/// One written byte.
pub struct WrittenByte {
    /// Before the call that wrote it.
    pub moment: Moment,
    pub byte: u8,
    call: CallRecord,
    /// Its place in what the call wrote.
    offset: u64,
}

impl Outputs {
    /// The byte at `offset` of a stream. It must have been written by `unit`.
    pub fn byte(&self, recording: &Recording, unit: UnitName, stream: u8, offset: u64) -> Result<WrittenByte, String> {
        let mut passed = 0;
        for p in self.pieces.iter().filter(|p| p.stream == stream) {
            let len = p.bytes.len() as u64;
            if offset >= passed + len {
                passed += len;
                continue;
            }
            if p.unit != unit {
                return Err(format!("byte {offset} was written by process {}: write RECORDING:{0}", p.unit));
            }
            let log = recording.log(&p.unit).map_err(|e| e.to_string())?;
            let calls = log.records().filter(|(_, r)| r.kind == Kind::Call);
            let mut calls = calls.filter_map(|(_, r)| CallRecord::decode(r.payload));
            let call = calls.find(|c| c.time == p.time).ok_or("the call that wrote it is not in the log")?;
            let offset = offset - passed;
            return Ok(WrittenByte { moment: p.at, byte: p.bytes[offset as usize], call, offset });
        }
        Err(match passed {
            0 => "nothing was written there".to_owned(),
            n => format!("only {n} bytes were written: the last is byte {}", n - 1),
        })
    }

    /// The process that wrote the byte at `offset` of a stream.
    pub fn writer(&self, stream: u8, offset: u64) -> Option<UnitName> {
        let mut passed = 0;
        self.pieces.iter().filter(|p| p.stream == stream).find_map(|p| {
            passed += p.bytes.len() as u64;
            (passed > offset).then_some(p.unit)
        })
    }
}

impl WrittenByte {
    /// Where the byte lay before the call; `read` reads memory at that moment. Bytes that the kernel moved lay nowhere.
    pub fn address(&self, mut read: impl FnMut(u64, &mut [u8]) -> bool) -> Option<u64> {
        let [_, buffer, count, ..] = self.call.args;
        match self.call.nr {
            // write, pwrite64, sendto
            1 | 18 | 44 => Some(buffer + self.offset),
            // writev, pwritev
            20 | 296 => {
                let mut left = self.offset;
                for n in 0..count.min(1024) {
                    let mut pair = [0; 16];
                    if !read(buffer + n * 16, &mut pair) {
                        return None;
                    }
                    let (base, len) = pair.split_at(8);
                    let [base, len] = [base, len].map(|w| u64::from_le_bytes(w.try_into().unwrap_or_default()));
                    if left < len {
                        return Some(base + left);
                    }
                    left -= len;
                }
                None
            }
            _ => None,
        }
    }
}
