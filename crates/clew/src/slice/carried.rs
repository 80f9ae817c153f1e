//! Bytes that go from process to process, or back to the same one: who wrote what a call delivered?
//!
//! Descriptors are followed through the logs of all units of a recording: what opened, copied, inherited and closed them. Pipes
//! and pairs of sockets are queues, so the n-th byte that is read is the n-th that was written; of files, a byte comes from
//! the last write to its place before the read. Calls in which the kernel moves bytes between descriptors (`splice`,
//! `sendfile`, `copy_file_range`, `tee`) are passed through.
//!
//! Guarantee: nothing is invented for descriptors from outside the recording.
//! May miss: sockets that were connected by name, descriptors sent in messages, memory that processes share, files that
//! were renamed. Writes of several processes to one queue at the same time are taken in the order in which they came back.

mod descriptors;
mod ledger;

pub use descriptors::Thing;
use ledger::Ledger;
pub use ledger::{Source, Unnamed};
use model::log::{Answer, Bytes, CallRecord, Kind};
use recording::{Recording, UnitName};
use std::path::{Path, PathBuf};

/// A call that moved bytes, with what it wrote into memory.
#[derive(Clone, Debug)]
struct Call {
    unit: UnitName,
    record: u64,
    call: CallRecord,
    /// Address and bytes; only the first few of long ones.
    writes: Vec<(u64, Vec<u8>)>,
}

impl Call {
    /// A number that the call left in memory.
    fn word_at(&self, at: u64, len: usize) -> Option<u64> {
        let (start, bytes) = self.writes.iter().find(|(start, b)| (*start..start + b.len() as u64).contains(&at))?;
        let bytes = bytes.get((at - start) as usize..)?.get(..len)?;
        let mut word = [0; 8];
        word[..len].copy_from_slice(bytes);
        Some(u64::from_le_bytes(word))
    }
}

/// Bytes of a write that are kept: enough for descriptors and offsets.
const KEPT: usize = 16;

/// Who wrote what, in a whole recording.
pub struct Carried {
    ledger: Ledger,
}

impl Carried {
    /// Reads all logs. `name_of` finds the file that a call opened where the log does not say it.
    pub fn gather(
        recording: &Recording,
        name_of: &mut dyn FnMut(&Unnamed) -> Option<PathBuf>,
    ) -> Result<Carried, String> {
        let followed = descriptors::follow(recording, name_of)?;
        Ok(Carried { ledger: Ledger::new(followed) })
    }

    /// Did the call deliver bytes of something that was written to in the recording?
    pub fn knows(&self, unit: UnitName, record: u64) -> bool {
        self.ledger.knows(unit, record)
    }

    /// What a call delivered bytes of, or mapped, and from which place on.
    pub fn delivered(&self, unit: UnitName, record: u64) -> Option<(&Thing, u64)> {
        self.ledger.delivered(unit, record)
    }

    /// Where the byte at `offset` of what a call delivered comes from.
    pub fn source(&self, unit: UnitName, record: u64, offset: u64) -> Option<Source> {
        self.ledger.source(unit, record, offset)
    }
}

impl Carried {
    /// Where the byte at `offset` of what a file holds in the end comes from.
    pub fn in_file(&self, path: &Path, offset: u64) -> Option<Source> {
        self.ledger.in_file(path, offset)
    }
}

/// The calls of a unit that succeeded, in order.
fn calls_of(recording: &Recording, unit: UnitName) -> Result<Vec<Call>, String> {
    let log = recording.log(&unit).map_err(|e| e.to_string())?;
    let (mut calls, mut writes) = (Vec::new(), Vec::new());
    for (record, raw) in log.records() {
        match raw.kind {
            Kind::Write => {
                let bytes = Bytes::decode(raw.payload);
                writes.extend(bytes.map(|b| (b.addr, b.bytes[..b.bytes.len().min(KEPT)].to_vec())));
            }
            Kind::Call => {
                let writes = std::mem::take(&mut writes);
                let call = CallRecord::decode(raw.payload);
                let answered = Answer::from_u8(raw.flags) == Some(Answer::Value);
                if let Some(call) = call.filter(|c| answered && c.result >= 0) {
                    calls.push(Call { unit, record, call, writes });
                }
            }
            _ => {}
        }
    }
    Ok(calls)
}
