//! The three ways to name a byte of a program: in its file, in its image, in a guest process.
//!
//! A file offset counts from the start of the file. An image offset is the address that the ELF file itself states for
//! the byte (`p_vaddr`); it is what symbols and DWARF speak of, and what `image+0x1234` means on the command line.
//! A guest address is an image offset plus the bias at which the image was loaded; for a program that is not
//! position-independent the bias is 0.

use model::GuestAddr;
use std::fmt;

/// A position in a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FileOffset(pub u64);

/// An address as the ELF file states it: the guest address less the load bias.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ImageOffset(pub u64);

/// What loading added to every image offset.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Bias(pub u64);

/// A byte of an image, by either of the two names that a file knows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Position {
    File(FileOffset),
    Image(ImageOffset),
}

impl Bias {
    /// The bias of an image whose byte `offset` was found at `addr`.
    pub fn between(offset: ImageOffset, addr: GuestAddr) -> Bias {
        Bias(addr.0.wrapping_sub(offset.0))
    }

    pub fn to_guest(self, offset: ImageOffset) -> GuestAddr {
        GuestAddr(offset.0.wrapping_add(self.0))
    }

    pub fn to_image(self, addr: GuestAddr) -> ImageOffset {
        ImageOffset(addr.0.wrapping_sub(self.0))
    }
}

impl From<FileOffset> for Position {
    fn from(o: FileOffset) -> Position {
        Position::File(o)
    }
}

impl From<ImageOffset> for Position {
    fn from(o: ImageOffset) -> Position {
        Position::Image(o)
    }
}

impl fmt::Display for FileOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for ImageOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bias_leads_there_and_back() {
        let bias = Bias::between(ImageOffset(0x1234), GuestAddr(0x5555_5555_5234));
        assert_eq!(bias, Bias(0x5555_5555_4000));
        assert_eq!(bias.to_guest(ImageOffset(0x1234)), GuestAddr(0x5555_5555_5234));
        assert_eq!(bias.to_image(GuestAddr(0x5555_5555_5234)), ImageOffset(0x1234));
    }
}
