//! What holds for any bytes, whatever part of a recording they are taken for.
//!
//! The fuzz target `recording_decode` and an ordinary test (tests/corpus.rs) call it.

use std::io::Cursor;
use std::path::Path;

use crate::join::{Walked, walk_streams};
use crate::log::Log;
use crate::meta::Meta;
use crate::pack::is_allowed;
use crate::segment::{self, Found};
use crate::unpack::extract;

/// Reads the bytes as every part of a recording; panics if a promise is broken.
pub fn assert_promises(bytes: &[u8]) {
    records(bytes);
    segments(bytes);
    text(bytes);
    packed(bytes);
}

fn records(bytes: &[u8]) {
    let log = Log::from_bytes(bytes.to_vec());
    assert!(bytes.starts_with(log.bytes()), "a log is a beginning of what was there");
    assert_eq!(log.damage().is_none(), log.bytes().len() == bytes.len(), "what is dropped is said");
    assert_clean(&log);
}

/// A log holds what it says and nothing else.
fn assert_clean(log: &Log) {
    assert_eq!(log.records().count() as u64, log.count());
    assert_eq!(log.records().map(|(_, raw)| raw.len).sum::<usize>(), log.bytes().len());
}

fn segments(bytes: &[u8]) {
    let raw = |sequence: u32| -> Found {
        match sequence {
            0 => segment::read_from(bytes, bytes.len() as u64),
            _ => Ok(Ok(None)),
        }
    };
    // As the only raw segment, as the compressed log, and as both at once.
    for (as_log, as_raw) in [(false, true), (true, false), (true, true)] {
        let log = || Ok(as_log.then(|| Cursor::new(bytes)));
        let nothing = |_| Ok(Ok(None));
        let mut joined = Vec::new();
        let each = |_, _: &model::log::Raw<'_>, record: &[u8]| joined.extend_from_slice(record);
        let walked = match as_raw {
            true => walk_streams(log, raw, Some(0), each),
            false => walk_streams(log, nothing, None, each),
        };
        let Walked { records, bytes, damage } = walked.expect("memory can be read");
        assert_eq!(bytes, joined.len() as u64);
        assert!(damage.is_none_or(|(at, why)| at == records && !why.is_empty()));
        let again = Log::from_bytes(joined);
        assert_eq!((again.count(), again.damage()), (records, None), "what was accepted is accepted again");
        assert_clean(&again);
    }
}

fn text(bytes: &[u8]) {
    if let Ok(meta) = Meta::decode(bytes, Path::new("recording")) {
        assert_eq!(Meta::decode(meta.encode().as_bytes(), Path::new("recording")), Ok(meta));
    }
}

fn packed(bytes: &[u8]) {
    let mut written = 0;
    let summary = extract(Cursor::new(bytes), Path::new("pack"), |name, bytes| {
        assert!(is_allowed(name), "{name:?}");
        written += bytes.len() as u64;
        Ok(())
    });
    if let Ok(summary) = summary {
        assert_eq!(summary.entries.iter().map(|e| e.bytes).sum::<u64>(), written);
    }
}
