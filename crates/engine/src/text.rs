//! Short texts on the stack, for what must not touch the heap: a store to it may have to open the vault.
//!
//! May miss: what does not fit is cut, and a zero stays behind it. Those who use it know how long their texts get.

use core::fmt::{Arguments, Result, Write};

const ROOM: usize = 64;

/// A text of at most 63 bytes with a zero behind it.
pub struct Short {
    bytes: [u8; ROOM],
    len: usize,
}

impl Short {
    pub fn new(text: Arguments<'_>) -> Short {
        let mut short = Short { bytes: [0; ROOM], len: 0 };
        // What was cut says so itself by missing.
        let _ = short.write_fmt(text);
        short
    }

    /// Where the kernel finds it as a C string.
    pub fn address(&self) -> u64 {
        self.bytes.as_ptr() as u64
    }

    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

impl Write for Short {
    fn write_str(&mut self, s: &str) -> Result {
        let n = s.len().min(ROOM - 1 - self.len);
        self.bytes[self.len..][..n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        if n == s.len() { Ok(()) } else { Err(core::fmt::Error) }
    }
}

#[cfg(test)]
mod tests {
    use super::Short;

    #[test]
    fn a_text_ends_in_zero_and_never_grows_too_long() {
        let short = Short::new(format_args!("units/{}.{}.{}.raw", u32::MAX, u32::MAX, u32::MAX));
        assert_eq!(short.as_str(), "units/4294967295.4294967295.4294967295.raw");
        assert_eq!(short.bytes[short.len], 0);
        let cut = Short::new(format_args!("{:100}", 1));
        assert_eq!((cut.as_str().len(), cut.bytes[63]), (63, 0));
    }
}
