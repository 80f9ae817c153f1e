//! A reader that can run out: it bounds what hostile debug information may cost.
//!
//! DWARF is full of references, so a small file can ask for quadratic work: a thousand functions that share one list
//! of a thousand ranges, a thousand units that share one table of abbreviations. Every read through a [`Metered`]
//! reader is paid from a [`Meter`]; when that is empty, reads fail like reads beyond the end of a section.
//! Memory is bounded with it, because whatever gimli allocates stands for bytes that it has read.
//! Not paid for by reads are attributes of zero length; whoever walks entries charges for them.

use gimli::{EndianSlice, Error, LittleEndian, Reader, ReaderOffsetId};
use std::borrow::Cow;
use std::cell::Cell;

/// What is left to spend, in bytes read.
#[derive(Debug)]
pub(crate) struct Meter {
    limit: u64,
    left: Cell<u64>,
}

impl Meter {
    pub fn new(limit: u64) -> Meter {
        Meter { limit, left: Cell::new(limit) }
    }

    /// Allows `amount` more.
    pub fn credit(&self, amount: u64) {
        self.left.set(self.left.get().saturating_add(amount));
    }

    pub fn spent(&self) -> u64 {
        self.limit.saturating_sub(self.left.get())
    }

    #[inline]
    pub fn charge(&self, amount: u64) -> gimli::Result<()> {
        match self.left.get().checked_sub(amount) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => {
                self.left.set(0);
                Err(Error::UnexpectedEof(ReaderOffsetId(0)))
            }
        }
    }
}

/// Bytes of a section, paid for as they are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metered<'a> {
    bytes: EndianSlice<'a, LittleEndian>,
    meter: &'a Meter,
}

impl<'a> Metered<'a> {
    pub fn new(bytes: &'a [u8], meter: &'a Meter) -> Metered<'a> {
        Metered { bytes: EndianSlice::new(bytes, LittleEndian), meter }
    }

    /// All remaining bytes, for strings; paid for when the string's end was searched for.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.slice()
    }
}

impl Reader for Metered<'_> {
    type Endian = LittleEndian;
    type Offset = usize;

    #[inline]
    fn endian(&self) -> LittleEndian {
        LittleEndian
    }

    #[inline]
    fn len(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    fn empty(&mut self) {
        self.bytes.empty();
    }

    #[inline]
    fn truncate(&mut self, len: usize) -> gimli::Result<()> {
        self.bytes.truncate(len)
    }

    #[inline]
    fn offset_from(&self, base: &Self) -> usize {
        Reader::offset_from(&self.bytes, &base.bytes)
    }

    #[inline]
    fn offset_id(&self) -> ReaderOffsetId {
        self.bytes.offset_id()
    }

    #[inline]
    fn lookup_offset_id(&self, id: ReaderOffsetId) -> Option<usize> {
        self.bytes.lookup_offset_id(id)
    }

    #[inline]
    fn find(&self, byte: u8) -> gimli::Result<usize> {
        let found = Reader::find(&self.bytes, byte);
        self.meter.charge(*found.as_ref().unwrap_or(&self.bytes.len()) as u64)?;
        found
    }

    #[inline]
    fn skip(&mut self, len: usize) -> gimli::Result<()> {
        self.meter.charge(1)?;
        self.bytes.skip(len)
    }

    #[inline]
    fn split(&mut self, len: usize) -> gimli::Result<Self> {
        self.meter.charge(1)?;
        Ok(Metered { bytes: self.bytes.split(len)?, meter: self.meter })
    }

    fn to_slice(&self) -> gimli::Result<Cow<'_, [u8]>> {
        self.bytes.to_slice()
    }

    fn to_string(&self) -> gimli::Result<Cow<'_, str>> {
        Reader::to_string(&self.bytes)
    }

    fn to_string_lossy(&self) -> gimli::Result<Cow<'_, str>> {
        Reader::to_string_lossy(&self.bytes)
    }

    #[inline]
    fn read_slice(&mut self, buf: &mut [u8]) -> gimli::Result<()> {
        self.meter.charge(buf.len() as u64)?;
        Reader::read_slice(&mut self.bytes, buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_ends_when_the_meter_is_empty() {
        let meter = Meter::new(5);
        let mut reader = Metered::new(&[1, 0, 0, 0, 2, 3], &meter);
        assert_eq!(reader.read_u32(), Ok(1));
        assert_eq!(reader.read_u8(), Ok(2));
        assert!(reader.read_u8().is_err(), "there is a byte left but nothing to pay it with");
        assert_eq!(meter.spent(), 5);
    }
}
