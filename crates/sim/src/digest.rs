//! One number for everything that happened. The same seed must give the same digest; otherwise the simulation is not
//! deterministic.

use kasha_types::body_hash;

/// Hash of every delivered frame and every performed effect, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest(pub u64);

impl Digest {
    /// Adds a number.
    pub fn mix(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = (mixed ^ (mixed >> 29)).wrapping_add(0xD1B5_4A32_D192_ED03);
    }

    /// Adds bytes, by their hash.
    pub fn mix_bytes(&mut self, bytes: &[u8]) {
        self.mix(body_hash(bytes).0);
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
