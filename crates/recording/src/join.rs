//! Joins the segments of one unit, compressed and raw, into the sequence of records they hold.
//!
//! Guarantees: records come in order and each is as it was written; the walk ends at the first that is not, and says
//! why. A segment that exists twice, as a chunk and raw, counts once. One segment is in memory at a time.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use model::log::{Kind, Raw};

use crate::chunk;
use crate::disk;
use crate::log::{checked, why};
use crate::name::{UnitFile, UnitName};
use crate::segment::{self, Found, Segment};

/// So many raw segments are opened before the compressed log is, and therefore cannot vanish.
const HELD: usize = 64;

/// The files of one unit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Parts {
    /// Where its compressed segments are, if there are any.
    pub log: PathBuf,
    pub raws: BTreeMap<u32, PathBuf>,
}

/// The files of all units of a recording.
pub fn parts(units: &Path) -> io::Result<BTreeMap<UnitName, Parts>> {
    let mut all: BTreeMap<UnitName, Parts> = BTreeMap::new();
    for name in disk::names_if_any(units)? {
        let Some(file) = UnitFile::parse(&name) else { continue };
        let (UnitFile::Raw(unit, _) | UnitFile::Log(unit)) = file;
        let parts = all.entry(unit).or_insert_with(|| Parts { log: units.join(unit.log()), raws: BTreeMap::new() });
        if let UnitFile::Raw(_, sequence) = file {
            parts.raws.insert(sequence, units.join(&name));
        }
    }
    Ok(all)
}

/// What a walk found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Walked {
    pub records: u64,
    pub bytes: u64,
    pub damage: Option<(u64, String)>,
}

/// Where the chunks of a unit are.
struct Chunks<R> {
    file: Option<R>,
    /// Offsets by sequence. They may be out of order: one that did not fit on the disk is tried again later.
    at: BTreeMap<u32, Vec<u64>>,
    /// Why the file was not understood to its end.
    trouble: Option<String>,
}

impl<R: Read + Seek> Chunks<R> {
    /// Looks at headers only; whole chunks are checked when they are read.
    fn find(log: Option<R>) -> io::Result<Chunks<R>> {
        let mut chunks = Chunks { file: None, at: BTreeMap::new(), trouble: None };
        let Some(mut file) = log else { return Ok(chunks) };
        let length = file.seek(SeekFrom::End(0))?;
        let mut offset = 0;
        while offset < length {
            if length - offset < chunk::HEADER as u64 {
                chunks.trouble = Some("the header of a chunk is cut".into());
                break;
            }
            file.seek(SeekFrom::Start(offset))?;
            let mut encoded = [0; chunk::HEADER];
            file.read_exact(&mut encoded)?;
            match chunk::Header::decode(&encoded) {
                Ok(header) => {
                    chunks.at.entry(header.sequence).or_default().push(offset);
                    offset += chunk::HEADER as u64 + header.compressed;
                }
                Err(why) => {
                    chunks.trouble = Some(why);
                    break;
                }
            }
        }
        chunks.file = Some(file);
        Ok(chunks)
    }

    /// The segment of the first chunk with this sequence number that is whole.
    fn read(&mut self, sequence: u32) -> Found {
        let (Some(file), Some(offsets)) = (&mut self.file, self.at.get(&sequence)) else { return Ok(Ok(None)) };
        let mut result = Ok(None);
        for offset in offsets {
            file.seek(SeekFrom::Start(*offset))?;
            match chunk::read(file)?.and_then(|c| c.map(|c| c.segment()).transpose()) {
                Ok(Some(segment)) => return Ok(Ok(Some(segment))),
                other => result = other,
            }
        }
        Ok(result)
    }
}

/// One way to a segment: its chunk if that is whole, else its raw file.
fn read<R: Read + Seek>(
    chunks: &mut Chunks<R>,
    open: &mut impl FnMut() -> io::Result<Option<R>>,
    raw: &mut impl FnMut(u32) -> Found,
    sequence: u32,
) -> Found {
    let from_chunk = chunks.read(sequence)?;
    if matches!(from_chunk, Ok(Some(_))) {
        return Ok(from_chunk);
    }
    Ok(match raw(sequence)? {
        Ok(Some(s)) if s.sequence != sequence => {
            // A recorder that is at work gives files back to be used again, once what was in them is in the log.
            *chunks = Chunks::find(open()?)?;
            match chunks.read(sequence)? {
                Ok(None) => Err(format!("it says that it is segment {}", s.sequence)),
                other => other,
            }
        }
        Ok(None) => from_chunk,
        other => other,
    })
}

/// Calls `each` with every record: its number, what it is, and all its bytes.
pub fn walk(parts: &Parts, each: impl FnMut(u64, &Raw<'_>, &[u8])) -> io::Result<Walked> {
    // A recorder that is still at work removes or reuses a raw segment once its chunk is written. So whatever is not there
    // when it is opened here is in the log that is opened afterwards.
    let mut held = BTreeMap::new();
    for (sequence, path) in parts.raws.iter().rev().take(HELD) {
        held.insert(*sequence, if_there(disk::open_regular(path))?);
    }
    let open = || Ok(if_there(disk::open_regular(&parts.log))?.map(BufReader::new));
    let raw = |sequence: u32| {
        let file = match (held.remove(&sequence), parts.raws.get(&sequence)) {
            (Some(file), _) => file,
            (None, Some(path)) => if_there(disk::open_regular(path))?,
            (None, None) => None,
        };
        file.as_ref().map_or(Ok(Ok(None)), segment::read_live)
    };
    walk_streams(open, raw, parts.raws.keys().next_back().copied(), each)
}

fn if_there<T>(opened: io::Result<T>) -> io::Result<Option<T>> {
    match opened {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// The same for chunks from any stream, which may be opened again, and raw segments from any source, the last of which has
/// this number.
pub fn walk_streams<R: Read + Seek>(
    mut open: impl FnMut() -> io::Result<Option<R>>,
    mut raw: impl FnMut(u32) -> Found,
    last_raw: Option<u32>,
    mut each: impl FnMut(u64, &Raw<'_>, &[u8]),
) -> io::Result<Walked> {
    let mut chunks = Chunks::find(open()?)?;
    let last = last_raw.max(chunks.at.keys().next_back().copied());
    let mut done = Walked::default();
    let (mut more, mut ended) = (false, false);
    for sequence in 0..=u32::MAX {
        let wrong = match read(&mut chunks, &mut open, &mut raw, sequence)? {
            Ok(Some(segment)) => {
                let wrong = records(&segment, &mut done, &mut ended, &mut each);
                more = segment.more;
                wrong
            }
            Ok(None) => {
                let later = last.is_some_and(|last| last > sequence);
                if more || later || (chunks.trouble.is_some() && !ended) {
                    let why = chunks.trouble.take().unwrap_or_else(|| "it is missing".into());
                    done.damage = Some((done.records, format!("segment {sequence}: {why}")));
                }
                break;
            }
            Err(why) => Some(why),
        };
        if let Some(why) = wrong {
            done.damage = Some((done.records, format!("segment {sequence}: {why}")));
            break;
        }
    }
    Ok(done)
}

/// Goes through the records of one segment; says what is wrong where it had to stop.
fn records(
    segment: &Segment,
    done: &mut Walked,
    ended: &mut bool,
    each: &mut impl FnMut(u64, &Raw<'_>, &[u8]),
) -> Option<String> {
    if segment.first_record != done.records {
        return Some(format!("it begins with record {} instead of {}", segment.first_record, done.records));
    }
    let mut rest = &segment.bytes[..];
    loop {
        match checked(rest) {
            Ok(raw) => {
                let (record, behind) = rest.split_at(raw.len);
                each(done.records, &raw, record);
                *ended = raw.kind == Kind::End;
                done.records += 1;
                done.bytes += raw.len as u64;
                rest = behind;
            }
            Err(damage) => {
                return why(damage).map(str::to_owned).or_else(|| segment.cut.then(|| "it is cut".to_owned()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::log::record_header;
    use std::io::Cursor;

    fn segment(sequence: u32) -> Segment {
        let payload = [sequence as u8; 8];
        let bytes = [&record_header(Kind::Fork, 0, &payload)[..], &payload].concat();
        Segment { sequence, first_record: 0, more: false, bytes, cut: false }
    }

    fn walked(logs: &[Option<Vec<u8>>], raw: &Segment) -> (Walked, Vec<u8>) {
        let (mut logs, mut found) = (logs.iter(), Vec::new());
        let open = || Ok(logs.next().cloned().flatten().map(Cursor::new));
        let raw = |sequence: u32| Ok(Ok((sequence == 0).then(|| raw.clone())));
        let done = walk_streams(open, raw, Some(0), |_, record, _| found.push(record.payload[0])).unwrap();
        (done, found)
    }

    #[test]
    fn a_segment_whose_file_was_given_back_while_looking_on_is_found_in_the_log() {
        let log = chunk::encode(&segment(0)).unwrap();
        // Nothing was compressed when the log was first opened, and it is when the raw file turns out to be another one.
        let (done, found) = walked(&[None, Some(log)], &segment(3));
        assert_eq!((done.damage, found), (None, vec![0]));
        // Otherwise it is damage, and not taken for what it is not.
        let (done, found) = walked(&[None, None], &segment(3));
        assert!(found.is_empty());
        assert!(done.damage.is_some_and(|(at, why)| at == 0 && why.contains("segment 3")));
    }
}
