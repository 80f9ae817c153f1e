//! One system call seen as a list of memory uses: the interpreter of the table's argument kinds and lengths.
//!
//! Guarantees: a byte that the kernel reads or writes for a known call is listed; where the kernel tells how much it
//! wrote (a result, a length word), exactly that much is. A failed call lists no writes unless the kernel makes some
//! all the same; after `EFAULT`, which can stop a copy half-way, everything the call could have written is listed.
//! May list too much: where the amount depends on kernel state (the size of the descriptor table for `select`), and
//! padding inside structures. May miss: memory that a call's own buffers overlap with the structures describing them.

use super::row::{Args, Kind, Len};

/// Memory that a system call reads or writes. A call that does both with the same bytes lists both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryUse {
    pub addr: u64,
    pub len: u64,
    pub write: bool,
}

/// Words that a call overwrites with its answer but whose old value limits what it wrote, such as the room for a
/// socket address. Filled when the call is listed before it is made, used when it is listed afterwards.
#[derive(Clone, Default, Debug)]
pub struct Entry {
    words: [(u64, u64); Entry::CAPACITY],
    len: usize,
}

impl Entry {
    const CAPACITY: usize = 8;

    pub const fn new() -> Entry {
        Entry { words: [(0, 0); Entry::CAPACITY], len: 0 }
    }
}

/// The longest file name, its end included.
pub const PATH_MAX: u64 = 4096;
/// The longest argument or environment string of a new program.
const ARG_MAX: u64 = 32 * 4096;
/// The most bytes of strings and pointers that the kernel accepts for a new program.
const ARGV_MAX: u64 = 6 << 20;
/// The most buffers of one vectored call.
pub const IOV_MAX: u64 = 1024;
/// The most bytes of one read or write.
pub const RW_MAX: u64 = 0x7fff_f000;

const EFAULT: i64 = -14;

/// A call being listed: before it is made (`result` is `None`) or after.
pub struct Call<'a> {
    pub args: &'a Args,
    pub result: Option<i64>,
    pub(super) entry: &'a mut Entry,
    pub(super) read_word: &'a mut dyn FnMut(u64, u64) -> Option<u64>,
    pub(super) sink: &'a mut dyn FnMut(MemoryUse),
}

impl Call<'_> {
    /// The call reads these bytes. Null and empty are dropped.
    pub fn reads(&mut self, addr: u64, len: u64) {
        if addr != 0 && len != 0 {
            (self.sink)(MemoryUse { addr, len, write: false });
        }
    }

    /// The call writes these bytes if it succeeds.
    pub fn writes(&mut self, addr: u64, len: u64) {
        if !self.failed() {
            self.writes_anyhow(addr, len);
        }
    }

    /// The call writes these bytes whatever it answers.
    pub fn writes_anyhow(&mut self, addr: u64, len: u64) {
        if addr != 0 && len != 0 {
            (self.sink)(MemoryUse { addr, len, write: true });
        }
    }

    /// The call reads these bytes and, if it succeeds, writes them.
    pub fn both(&mut self, addr: u64, len: u64) {
        self.reads(addr, len);
        self.writes(addr, len);
    }

    /// A string that the call reads.
    pub fn text(&mut self, addr: u64, max: u64) {
        if addr != 0 {
            let len = self.text_len(addr, max);
            self.reads(addr, len);
        }
    }

    /// Whether the call is over and wrote nothing. `EFAULT` does not count: it can come after some writes.
    pub fn failed(&self) -> bool {
        matches!(self.result, Some(r) if (-4095..0).contains(&r) && r != EFAULT)
    }

    /// Whether the call is over and answered this error (a positive number).
    pub fn failed_with(&self, errno: i64) -> bool {
        self.result == Some(-errno)
    }

    /// Whether the call can still succeed, or answered more than 0.
    pub fn found(&self) -> bool {
        match self.result {
            Some(r) => r > 0 || r == EFAULT,
            None => true,
        }
    }

    /// The limit before the call, or how much of it the result says was used.
    pub fn done(&self, limit: u64) -> u64 {
        match self.result {
            Some(r) if r >= 0 => limit.min(r as u64),
            Some(r) if r != EFAULT => 0,
            _ => limit,
        }
    }

    /// A word of guest memory as it is now; 0 where it cannot be read.
    pub fn word(&mut self, addr: u64, size: u64) -> u64 {
        (self.read_word)(addr, size).unwrap_or(0)
    }

    /// A word as it was before the call, and as it is now. The former is unknown if the call was not listed before.
    pub fn word_before(&mut self, addr: u64, size: u64) -> (Option<u64>, u64) {
        let now = self.word(addr, size);
        let known = self.entry.words[..self.entry.len].iter().find(|w| w.0 == addr).map(|w| w.1);
        if self.result.is_none() {
            if known.is_none() && self.entry.len < Entry::CAPACITY {
                self.entry.words[self.entry.len] = (addr, now);
                self.entry.len += 1;
            }
            return (Some(now), now);
        }
        (known, now)
    }

    /// The low half of an argument as a signed number; negative ones as 0, because calls refuse them.
    pub fn int(&self, arg: u8) -> u64 {
        (self.args[arg as usize] as i32).max(0) as u64
    }

    /// How many bytes a string takes, its zero byte included; at least 1, at most `max`.
    /// It is read in aligned words, so that no page is touched which the string does not reach.
    pub fn text_len(&mut self, addr: u64, max: u64) -> u64 {
        let mut len = 0;
        while len < max {
            let at = addr.wrapping_add(len);
            let skip = at & 7;
            let Some(word) = (self.read_word)(at - skip, 8) else { break };
            // Bytes before the string count as non-zero; then the lowest zero byte is found as usual.
            let word = if skip == 0 { word } else { word | (!0u64 >> (64 - 8 * skip)) };
            let zeros = word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080;
            if zeros != 0 {
                len += u64::from(zeros.trailing_zeros() / 8) - skip + 1;
                return len.min(max);
            }
            len += 8 - skip;
        }
        len.clamp(1, max)
    }

    /// What one argument of the row stands for.
    pub(super) fn argument(&mut self, index: usize, kind: Kind) {
        let addr = self.args[index];
        if addr == 0 {
            return;
        }
        match kind {
            Kind::Path => self.text(addr, PATH_MAX),
            Kind::Text => self.text(addr, PATH_MAX),
            Kind::Argv => self.argv(addr),
            Kind::In(len) => {
                let len = self.length(addr, len);
                self.reads(addr, len);
            }
            Kind::Out(len) => {
                let len = self.length(addr, len);
                self.writes(addr, len);
            }
            Kind::InOut(len) => {
                let len = self.length(addr, len);
                self.both(addr, len);
            }
            Kind::Read(s) => self.reads(addr, s.size.into()),
            Kind::Write(s) => self.writes(addr, s.size.into()),
            Kind::Both(s) => self.both(addr, s.size.into()),
            Kind::SockLen(buffer) if self.args[buffer as usize] != 0 => self.both(addr, 4),
            Kind::IovecIn(count) => self.iovec(addr, self.args[count as usize], RW_MAX, false),
            Kind::IovecOut(count) => self.iovec(addr, self.args[count as usize], RW_MAX, true),
            _ => {}
        }
    }

    /// How many bytes a length stands for, now.
    fn length(&mut self, addr: u64, len: Len) -> u64 {
        match len {
            Len::Bytes(n) => n.into(),
            Len::Arg(k) => self.args[k as usize],
            Len::ArgInt(k) => self.int(k),
            Len::Upto(k) => self.done(self.args[k as usize].min(RW_MAX)),
            Len::UptoInt(k) => self.done(self.int(k)),
            Len::Items(k, size) => self.args[k as usize].saturating_mul(size.into()),
            Len::ItemsInt(k, size) => self.int(k) * u64::from(size),
            Len::UptoItems(k, size) => self.done(self.args[k as usize]).saturating_mul(size.into()),
            Len::UptoItemsInt(k, size) => self.done(self.int(k)) * u64::from(size),
            Len::Sock(k) => self.room(self.args[k as usize]),
            Len::Own { at, zero } => match self.word(addr.wrapping_add(at.into()), 4) {
                0 => zero.into(),
                n => n,
            },
            Len::By(function) => function(self),
        }
    }

    /// The length of a buffer with a 32-bit length word: the room before the call, what was filled afterwards.
    pub fn room(&mut self, len_addr: u64) -> u64 {
        if len_addr == 0 {
            return 0;
        }
        let (before, now) = self.word_before(len_addr, 4);
        let now = (now as i32).max(0) as u64;
        before.map_or(now, |room| now.min((room as i32).max(0) as u64))
    }

    /// An array of buffers, which together hold at most `limit` bytes or what the result says.
    pub fn iovec(&mut self, addr: u64, count: u64, limit: u64, write: bool) {
        if addr == 0 || count > IOV_MAX {
            return;
        }
        self.reads(addr, count * 16);
        let total = self.done(limit);
        self.buffers(addr, count, total, write);
    }

    /// The buffers of an array, filled or read in order until `left` bytes are used up.
    pub fn buffers(&mut self, addr: u64, count: u64, mut left: u64, write: bool) {
        for i in 0..count {
            if left == 0 {
                break;
            }
            let base = self.word(addr.wrapping_add(i * 16), 8);
            let len = self.word(addr.wrapping_add(i * 16 + 8), 8).min(left);
            left -= len;
            if write {
                self.writes(base, len);
            } else {
                self.reads(base, len);
            }
        }
    }

    /// A null-terminated array of strings that the call reads. Listing stops where the kernel refuses it as too big.
    fn argv(&mut self, addr: u64) {
        let mut count = 0;
        let mut total = 0;
        while total < ARGV_MAX {
            let text = self.word(addr.wrapping_add(count * 8), 8);
            count += 1;
            if text == 0 {
                break;
            }
            let len = self.text_len(text, ARG_MAX);
            self.reads(text, len);
            total += len + 8;
        }
        self.reads(addr, count * 8);
    }
}
