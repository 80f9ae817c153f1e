//! Chunks: finished segments, compressed, one behind the other in `units/<unit>.log`.
//!
//! ```text
//! chunk  = header (64 bytes), compressed bytes (one zstd frame)
//! header = magic "CLEWCHNK" · u32 version · u32 sequence · u64 first record · u64 raw bytes · u64 compressed bytes
//!          · u32 more · u32 0 · u64 0 · u64 check
//! ```
//! The check is `model::log::digest` over the compressed bytes, seeded with the digest of the 56 bytes before it.
//! A chunk is believed only whole, so a crash while one is appended loses nothing: its raw segment is still there.

use std::io::{self, Read};

use model::log::digest;

use crate::segment::{MAX_SEGMENT, Segment};

pub const MAGIC: [u8; 8] = *b"CLEWCHNK";
pub const VERSION: u32 = 1;
pub const HEADER: usize = 64;
const CHECKED: usize = 56;
/// Fast enough to keep up with a recording; higher levels gain little on logs.
const LEVEL: i32 = 1;

/// What a chunk's header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub sequence: u32,
    pub first_record: u64,
    pub raw: u64,
    pub compressed: u64,
    pub more: bool,
    check: u64,
}

impl Header {
    pub fn decode(b: &[u8; HEADER]) -> Result<Header, String> {
        if b[..8] != MAGIC {
            return Err("no chunk begins where one should".into());
        }
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| b[at + i]));
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| b[at + i]));
        let version = u32_at(8);
        if version != VERSION {
            return Err(format!("a chunk has format version {version}, and this Clew reads version {VERSION}"));
        }
        let header = Header {
            sequence: u32_at(12),
            first_record: u64_at(16),
            raw: u64_at(24),
            compressed: u64_at(32),
            more: u32_at(40) != 0,
            check: u64_at(CHECKED),
        };
        // Both are checked before anything is reserved for them.
        if header.raw > MAX_SEGMENT as u64 || header.compressed > zstd::zstd_safe::compress_bound(MAX_SEGMENT) as u64 {
            let (raw, compressed) = (header.raw, header.compressed);
            return Err(format!("a chunk claims {raw} bytes in {compressed}, and no segment is that long"));
        }
        Ok(header)
    }

    /// Whether these are the compressed bytes this header was made for.
    fn fits(&self, encoded: &[u8; HEADER], compressed: &[u8]) -> bool {
        compressed.len() as u64 == self.compressed && check(encoded, compressed) == self.check
    }
}

fn check(header: &[u8; HEADER], compressed: &[u8]) -> u64 {
    digest(digest(0, &header[..CHECKED]), compressed)
}

/// A segment as a chunk.
pub fn encode(segment: &Segment) -> io::Result<Vec<u8>> {
    let compressed = zstd::bulk::compress(&segment.bytes, LEVEL)?;
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..16].copy_from_slice(&segment.sequence.to_le_bytes());
    header[16..24].copy_from_slice(&segment.first_record.to_le_bytes());
    header[24..32].copy_from_slice(&(segment.bytes.len() as u64).to_le_bytes());
    header[32..40].copy_from_slice(&(compressed.len() as u64).to_le_bytes());
    header[40..44].copy_from_slice(&u32::from(segment.more).to_le_bytes());
    let check = check(&header, &compressed);
    header[CHECKED..].copy_from_slice(&check.to_le_bytes());
    let mut out = Vec::with_capacity(HEADER + compressed.len());
    out.extend_from_slice(&header);
    out.extend_from_slice(&compressed);
    Ok(out)
}

/// A chunk that was read and whose check holds, still compressed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chunk {
    pub header: Header,
    compressed: Vec<u8>,
}

impl Chunk {
    /// Bytes in the file.
    pub fn len(&self) -> u64 {
        HEADER as u64 + self.header.compressed
    }

    pub fn segment(&self) -> Result<Segment, String> {
        let Header { sequence, first_record, raw, more, .. } = self.header;
        let bytes = zstd::bulk::decompress(&self.compressed, raw as usize)
            .map_err(|e| format!("a chunk cannot be decompressed: {e}"))?;
        if bytes.len() as u64 != raw {
            return Err(format!("a chunk claims {raw} bytes and holds {}", bytes.len()));
        }
        Ok(Segment { sequence, first_record, more, bytes, cut: false })
    }
}

/// Reads the next chunk: `Ok(Ok(None))` at the end, the inner error if what is there is no whole chunk.
pub fn read(file: &mut impl Read) -> io::Result<Result<Option<Chunk>, String>> {
    let mut encoded = [0; HEADER];
    match fill(file, &mut encoded)? {
        0 => return Ok(Ok(None)),
        HEADER => (),
        _ => return Ok(Err("the header of a chunk is cut".into())),
    }
    let header = match Header::decode(&encoded) {
        Ok(header) => header,
        Err(why) => return Ok(Err(why)),
    };
    let mut compressed = Vec::new();
    file.by_ref().take(header.compressed).read_to_end(&mut compressed)?;
    if (compressed.len() as u64) < header.compressed {
        return Ok(Err("a chunk is cut".into()));
    }
    if !header.fits(&encoded, &compressed) {
        return Ok(Err("a chunk was changed".into()));
    }
    Ok(Ok(Some(Chunk { header, compressed })))
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read(&mut buffer[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => (),
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment() -> Segment {
        let bytes = (0..5000u32).flat_map(|i| (i % 50).to_le_bytes()).collect();
        Segment { sequence: 3, first_record: 77, more: true, bytes, cut: false }
    }

    fn check_refused(bytes: &[u8], why: &str) {
        let error = read(&mut &bytes[..]).unwrap().and_then(|c| c.expect("something is there").segment()).unwrap_err();
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn a_segment_comes_back() {
        let bytes = encode(&segment()).unwrap();
        assert!(bytes.len() < segment().bytes.len() / 4);
        let chunk = read(&mut &bytes[..]).unwrap().unwrap().unwrap();
        assert_eq!((chunk.len(), chunk.segment()), (bytes.len() as u64, Ok(segment())));
        assert_eq!(read(&mut &[][..]).unwrap(), Ok(None));
    }

    #[test]
    fn any_change_is_noticed() {
        let bytes = encode(&segment()).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            assert!(read(&mut &changed[..]).unwrap().is_err(), "byte {at}");
        }
        for cut in 1..bytes.len() {
            assert!(read(&mut &bytes[..cut]).unwrap().is_err(), "cut at {cut}");
        }
    }

    /// A header with lengths of the attacker's choice and a check that holds.
    fn forged(raw: u64, claimed: u64, compressed: &[u8]) -> Vec<u8> {
        let mut h = [0; HEADER];
        h[..8].copy_from_slice(&MAGIC);
        h[8] = VERSION as u8;
        h[24..32].copy_from_slice(&raw.to_le_bytes());
        h[32..40].copy_from_slice(&claimed.to_le_bytes());
        let sum = check(&h, compressed);
        h[CHECKED..].copy_from_slice(&sum.to_le_bytes());
        [&h[..], compressed].concat()
    }

    #[test]
    fn absurd_lengths_are_refused_before_they_are_believed() {
        check_refused(&forged(1 << 40, 10, &[0; 10]), "no segment is that long");
        check_refused(&forged(u64::MAX, u64::MAX, &[]), "no segment is that long");
        check_refused(&forged(10, 1 << 40, &[0; 10]), "no segment is that long");
        check_refused(&forged(10, 50 << 20, &[0; 10]), "cut");
        check_refused(&forged(10, 10, &[7; 10]), "cannot be decompressed");
        let bomb = zstd::bulk::compress(&vec![0; 8 << 20], 1).unwrap();
        check_refused(&forged(10, bomb.len() as u64, &bomb), "cannot be decompressed");
        check_refused(&forged(9 << 20, bomb.len() as u64, &bomb), "and holds");
    }
}
