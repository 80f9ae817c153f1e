//! Raw segments: what the engine leaves in `units/`, one mapped file each (layout: `model::log`).
//!
//! The header of a segment carries no check of its own; its fields are cross-checked with the file's name, with its
//! neighbours and with the records, which do.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use model::log::{MAGIC, SEGMENT_HEADER, VERSION, header};

use crate::disk;

/// No segment holds more bytes of records.
pub const MAX_SEGMENT: usize = 64 << 20;

/// The records of one segment and what its header says about them. The records are not checked yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    pub sequence: u32,
    pub first_record: u64,
    /// Another segment follows.
    pub more: bool,
    pub bytes: Vec<u8>,
    /// The header promises more bytes than there are.
    pub cut: bool,
}

/// What a segment's header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub sequence: u32,
    pub committed: u64,
    pub first_record: u64,
    pub more: bool,
}

impl Header {
    /// `Ok(None)`: the engine had made the file but not yet begun to use it.
    pub fn decode(bytes: &[u8]) -> Result<Option<Header>, String> {
        let begun = bytes.iter().take(SEGMENT_HEADER).any(|b| *b != 0);
        if !begun {
            return Ok(None);
        }
        let Some(bytes) = bytes.first_chunk::<SEGMENT_HEADER>() else {
            return Err("its header is cut".into());
        };
        if bytes[..8] != MAGIC {
            return Err("it does not begin as a segment does".into());
        }
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let version = u32_at(header::VERSION);
        if version != VERSION {
            return Err(format!("it has format version {version}, and this Clew reads version {VERSION}"));
        }
        let committed = u64_at(header::COMMITTED);
        if committed > MAX_SEGMENT as u64 {
            return Err(format!("it claims {committed} bytes, and no segment has more than {MAX_SEGMENT}"));
        }
        Ok(Some(Header {
            sequence: u32_at(header::SEQUENCE),
            committed,
            first_record: u64_at(header::FIRST_RECORD),
            more: u32_at(header::MORE) != 0,
        }))
    }
}

/// What reading gives: trouble with the content is the inner error, trouble with the disk the outer one.
pub type Found = io::Result<Result<Option<Segment>, String>>;

/// Says in a segment that it is compressed, so that the engine may use its file again.
pub fn give_back(path: &Path) -> io::Result<()> {
    let flags = OFlags::NOFOLLOW.bits() as i32;
    let file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
    file.write_all_at(&1u32.to_le_bytes(), header::GIVEN_BACK as u64)
}

/// Reads a raw segment of a recording that may still be written. If its file has become another segment since it was
/// opened, the number says so.
pub fn read_live(file: &File) -> Found {
    let mut found = read_from(file, file.metadata()?.len())?;
    let mut head = [0; SEGMENT_HEADER];
    if let Ok(Some(segment)) = &mut found
        && file.read_exact_at(&mut head, 0).is_ok()
        && let Ok(Some(now)) = Header::decode(&head)
    {
        segment.sequence = now.sequence;
    }
    Ok(found)
}

/// Reads a raw segment; nothing if it was not begun.
pub fn read(path: &Path) -> Found {
    let file = disk::open_regular(path)?;
    let length = file.metadata()?.len();
    read_from(file, length)
}

/// Reads a raw segment from something with this many bytes.
pub fn read_from(mut file: impl Read, length: u64) -> Found {
    let mut head = Vec::with_capacity(SEGMENT_HEADER);
    file.by_ref().take(SEGMENT_HEADER as u64).read_to_end(&mut head)?;
    let header = match Header::decode(&head) {
        Ok(Some(header)) => header,
        Ok(None) => return Ok(Ok(None)),
        Err(why) => return Ok(Err(why)),
    };
    // Sized by what is there, not by what is claimed.
    let there = length.saturating_sub(SEGMENT_HEADER as u64).min(header.committed);
    let mut bytes = Vec::with_capacity(there as usize);
    file.take(header.committed).read_to_end(&mut bytes)?;
    let cut = (bytes.len() as u64) < header.committed;
    let Header { sequence, first_record, more, .. } = header;
    Ok(Ok(Some(Segment { sequence, first_record, more, bytes, cut })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(change: impl Fn(&mut [u8])) -> Vec<u8> {
        let mut h = vec![0; SEGMENT_HEADER];
        h[..8].copy_from_slice(&MAGIC);
        h[header::VERSION] = VERSION as u8;
        h[header::COMMITTED] = 16;
        change(&mut h);
        h
    }

    fn check_refused(bytes: &[u8], why: &str) {
        let error = Header::decode(bytes).unwrap_err();
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn a_header_is_read_or_refused_with_a_reason() {
        let expected = Header { sequence: 0, committed: 16, first_record: 0, more: false };
        assert_eq!(Header::decode(&header(|_| ())), Ok(Some(expected)));
        assert_eq!(Header::decode(&[]), Ok(None));
        assert_eq!(Header::decode(&[0; 100]), Ok(None));
        check_refused(&header(|_| ())[..63], "cut");
        check_refused(&header(|h| h[0] = 0), "does not begin");
        check_refused(&header(|h| h[header::VERSION] = 9), "version 9");
        check_refused(&header(|h| h[header::COMMITTED + 7] = 9), "claims");
    }
}
