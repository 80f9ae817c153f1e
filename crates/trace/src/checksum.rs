//! An order-dependent checksum of the instruction and address stream.
//!
//! All that is static or rare (pcs, sizes and kinds of accesses, special records) goes into a polynomial modulo 2^64. It
//! is linear in its items, so what a whole block contributes is one multiplication and one addition with constants of
//! the block. Addresses go into their sum and the sum of their partial sums, after Fletcher, "An Arithmetic Checksum for
//! Serial Transmissions" (1982), but modulo 2^64: that needs additions only. It finds mistakes, not malice.

use crate::event::{Event, Mem};
use crate::format::{MAX_SPECIAL, Special};

const SHAPE_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The checksum of a stream so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Checksum {
    /// Completed instructions.
    pub instructions: u64,
    /// Memory accesses; a rep string counts as one.
    pub accesses: u64,
    /// Polynomial over all but the addresses.
    pub shape: u64,
    /// Sum of all addresses.
    pub total: u64,
    /// Sum of all values that `total` has had.
    pub weighted: u64,
}

/// What a run of events with known items does to `shape`: `shape * factor + term`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fold {
    pub factor: u64,
    pub term: u64,
}

impl Default for Fold {
    fn default() -> Fold {
        Fold { factor: 1, term: 0 }
    }
}

impl Fold {
    pub fn push(&mut self, item: u64) {
        self.factor = self.factor.wrapping_mul(SHAPE_FACTOR);
        self.term = self.term.wrapping_mul(SHAPE_FACTOR).wrapping_add(item);
    }

    /// Both, one after the other.
    pub fn then(self, next: Fold) -> Fold {
        Fold { factor: self.factor.wrapping_mul(next.factor), term: next.apply(self.term) }
    }

    #[inline(always)]
    pub fn apply(&self, shape: u64) -> u64 {
        shape.wrapping_mul(self.factor).wrapping_add(self.term)
    }
}

/// The item of a completed instruction.
pub fn insn_item(pc: u64) -> u64 {
    pc.wrapping_mul(0xff51_afd7_ed55_8ccd) ^ 1
}

/// The item of an access, without its address.
pub fn mem_item(m: &Mem) -> u64 {
    let bits =
        u64::from(m.read) << 1 | u64::from(m.write) << 2 | u64::from(m.conditional) << 3 | u64::from(m.down) << 4;
    (u64::from(m.size) << 8 | bits).wrapping_add(m.count.wrapping_mul(0xc4ce_b9fe_1a85_ec53))
}

impl Checksum {
    /// Adds one event.
    pub fn event(&mut self, event: &Event) {
        self.all_but_address(event);
        if let Event::Mem(m) = event {
            self.accesses += 1;
            self.addresses(&[m.addr]);
        }
    }

    /// Adds one event except for its address, which must be given to [`Checksum::addresses`] in its turn.
    pub fn all_but_address(&mut self, event: &Event) {
        match event {
            Event::Insn(i) => {
                self.instructions += 1;
                self.item(insn_item(i.pc));
            }
            Event::RepPart(i) => self.item(insn_item(i.pc).rotate_left(32)),
            Event::Mem(m) => self.item(mem_item(m)),
            Event::Special(s) => self.special(s),
        }
    }

    fn special(&mut self, special: &Special) {
        if let Special::Step { .. } = special {
            self.instructions += 1;
        }
        let mut bytes = [0; MAX_SPECIAL];
        let len = special.encode(&mut bytes);
        for word in bytes[..len].chunks_exact(4) {
            self.item(u64::from(u32::from_le_bytes([word[0], word[1], word[2], word[3]])));
        }
    }

    fn item(&mut self, item: u64) {
        self.shape = self.shape.wrapping_mul(SHAPE_FACTOR).wrapping_add(item);
    }

    /// Adds addresses in order.
    pub fn addresses(&mut self, addrs: &[u64]) {
        // With n addresses a(0)..a(n-1), `total` grows by their sum and `weighted` by n * total + sum of (n-i) * a(i).
        // Eight columns are summed independently, so that no addition waits for the one before: for column c, `t` is
        // the sum over its rows r of (rows-r) * a(8r+c), and n-i = 8 * (rows-r) - c.
        let (rows, rest) = addrs.split_at(addrs.len() / 8 * 8);
        let (mut s, mut t) = ([0u64; 8], [0u64; 8]);
        for row in rows.chunks_exact(8) {
            for c in 0..8 {
                s[c] = s[c].wrapping_add(row[c]);
                t[c] = t[c].wrapping_add(s[c]);
            }
        }
        self.weighted = self.weighted.wrapping_add(self.total.wrapping_mul(rows.len() as u64));
        for c in 0..8 {
            self.total = self.total.wrapping_add(s[c]);
            self.weighted = self.weighted.wrapping_add(t[c].wrapping_mul(8)).wrapping_sub(s[c].wrapping_mul(c as u64));
        }
        for &a in rest {
            self.total = self.total.wrapping_add(a);
            self.weighted = self.weighted.wrapping_add(self.total);
        }
    }

    /// Everything in one number.
    pub fn digest(&self) -> u64 {
        [self.instructions, self.accesses, self.shape, self.total, self.weighted]
            .iter()
            .fold(0x6c65_7721, |h: u64, v| (h ^ v).wrapping_mul(SHAPE_FACTOR).rotate_left(29))
    }
}
