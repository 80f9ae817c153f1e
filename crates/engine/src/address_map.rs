//! Maps whose keys are addresses.

use core::hash::{BuildHasherDefault, Hasher};
use hashbrown::HashMap;

/// A multiplicative hash is enough for addresses.
#[derive(Default, Clone)]
pub struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(*b as u64);
        }
    }
    fn write_u64(&mut self, v: u64) {
        self.0 = (self.0 ^ v).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }
}

pub type AddressMap<T> = HashMap<u64, T, BuildHasherDefault<AddressHasher>>;
