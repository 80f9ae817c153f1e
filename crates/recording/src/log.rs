//! A unit's log in memory: complete, checked records and nothing else.

use model::log::{self, Damage, RECORD_HEADER, Raw};

/// Complete records, one behind the other.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Log {
    bytes: Vec<u8>,
    records: u64,
    damage: Option<(u64, String)>,
}

impl Log {
    pub(crate) fn new(bytes: Vec<u8>, records: u64, damage: Option<(u64, String)>) -> Log {
        Log { bytes, records, damage }
    }

    /// The longest beginning of `bytes` that consists of valid records.
    pub fn from_bytes(mut bytes: Vec<u8>) -> Log {
        let (mut valid, mut records) = (0, 0);
        let damage = loop {
            match checked(&bytes[valid..]) {
                Ok(raw) => {
                    valid += raw.len;
                    records += 1;
                }
                Err(damage) => break why(damage),
            }
        };
        bytes.truncate(valid);
        Log { bytes, records, damage: damage.map(|why| (records, why.to_owned())) }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// How many records there are.
    pub fn count(&self) -> u64 {
        self.records
    }

    /// The record that should have come next but was not as it had been written, and what is wrong with it.
    pub fn damage(&self) -> Option<&(u64, String)> {
        self.damage.as_ref()
    }

    pub fn records(&self) -> Records<'_> {
        Records { bytes: &self.bytes, offset: 0, index: 0 }
    }
}

/// The records of a log with their numbers, from 0.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    offset: usize,
    index: u64,
}

impl Records<'_> {
    /// Where the next record begins in the log's bytes.
    pub fn offset(&self) -> usize {
        self.offset
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = (u64, Raw<'a>);

    fn next(&mut self) -> Option<(u64, Raw<'a>)> {
        let raw = log::record(&self.bytes[self.offset..]).ok()?;
        let item = (self.index, raw);
        self.offset += raw.len;
        self.index += 1;
        Some(item)
    }
}

/// A record whose padding is zero too: the check does not cover it, and what we accept has one form.
pub fn checked(bytes: &[u8]) -> Result<Raw<'_>, Damage> {
    let raw = log::record(bytes)?;
    let padding = &bytes[RECORD_HEADER + raw.payload.len()..raw.len];
    if padding.iter().any(|b| *b != 0) {
        return Err(Damage::Wrong);
    }
    Ok(raw)
}

/// What is wrong, as the end of a sentence; nothing if the bytes simply end.
pub fn why(damage: Damage) -> Option<&'static str> {
    match damage {
        Damage::End => None,
        Damage::Cut => Some("a record is cut"),
        Damage::Wrong => Some("a record was changed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::log::{Kind, record_header, record_len};

    fn record(payload: &[u8]) -> Vec<u8> {
        let mut out = record_header(Kind::Write, 0, payload).to_vec();
        out.extend_from_slice(payload);
        out.resize(record_len(payload.len()), 0);
        out
    }

    fn check(bytes: &[u8], records: u64, damage: Option<&str>) {
        let log = Log::from_bytes(bytes.to_vec());
        assert_eq!(log.count(), records);
        assert_eq!(log.records().count() as u64, records);
        assert!(bytes.starts_with(log.bytes()));
        assert_eq!(log.damage().map(|(at, why)| (*at, why.as_str())), damage.map(|why| (records, why)));
    }

    #[test]
    fn a_log_is_the_longest_valid_beginning() {
        let two = [record(b"hello"), record(b"")].concat();
        check(&[], 0, None);
        check(&two, 2, None);
        check(&two[..two.len() - 1], 1, Some("a record is cut"));
        let padded = [two.clone(), vec![0; 64]].concat();
        check(&padded, 2, Some("a record was changed"));
        let mut odd = two;
        odd[RECORD_HEADER + 6] = 1;
        check(&odd, 0, Some("a record was changed"));
    }

    #[test]
    fn records_say_where_they_begin() {
        let log = Log::from_bytes([record(b"hello"), record(b"")].concat());
        let mut records = log.records();
        assert_eq!(records.next().map(|(n, r)| (n, r.payload)), Some((0, &b"hello"[..])));
        assert_eq!(records.offset(), record_len(5));
        assert_eq!(records.next().map(|(n, _)| n), Some(1));
        assert_eq!((records.next(), records.offset()), (None, log.bytes().len()));
    }
}
