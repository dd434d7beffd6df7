//! What an operation touches at a shard.

use kasha_types::KeyHash;

/// The keys that an operation touches at a shard. Equal hashes of other keys only make it wait for more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Read and not written.
    reads: Vec<KeyHash>,
    writes: Vec<KeyHash>,
}

/// How an operation touches a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    Read,
    /// It may also read.
    Write,
}

impl Access {
    pub fn conflicts(self, other: Self) -> bool {
        self == Self::Write || other == Self::Write
    }
}

impl Footprint {
    /// Keys that are only read, and keys that are written; a key that is in both is written.
    #[must_use]
    pub fn new(reads: impl IntoIterator<Item = KeyHash>, writes: impl IntoIterator<Item = KeyHash>) -> Self {
        let sorted = |keys: &mut Vec<KeyHash>| {
            keys.sort_unstable();
            keys.dedup();
        };
        let mut writes: Vec<_> = writes.into_iter().collect();
        sorted(&mut writes);
        let mut reads: Vec<_> = reads.into_iter().filter(|key| writes.binary_search(key).is_err()).collect();
        sorted(&mut reads);
        Self { reads, writes }
    }

    /// The keys that are only read.
    #[must_use]
    pub fn reads(&self) -> &[KeyHash] {
        &self.reads
    }

    /// The keys that are written.
    #[must_use]
    pub fn writes(&self) -> &[KeyHash] {
        &self.writes
    }

    /// Every key, once, and whether it is written.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (KeyHash, Access)> + '_ {
        let reads = self.reads.iter().map(|&key| (key, Access::Read));
        reads.chain(self.writes.iter().map(|&key| (key, Access::Write)))
    }

    /// Whether every key of the other is in this one.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let is_here = |key| self.reads.binary_search(&key).is_ok() || self.writes.binary_search(&key).is_ok();
        other.keys().all(|(key, _)| is_here(key))
    }

    /// Whether nothing is written.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        self.writes.is_empty()
    }
}
