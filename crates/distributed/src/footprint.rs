//! What an operation touches at a shard.

use std::collections::BTreeMap;

use kasha_types::KeyHash;

/// The keys that an operation touches at a shard, [`KeyHash::EVERYTHING`] among them if it touches whatever is there. Equal hashes of other
/// keys only make it wait for more.
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

    /// How it touches everything, if it does: no hash is greater.
    fn access_to_everything(&self) -> Option<Access> {
        let has = |keys: &[KeyHash]| keys.last() == Some(&KeyHash::EVERYTHING);
        if has(&self.writes) { Some(Access::Write) } else { has(&self.reads).then_some(Access::Read) }
    }

    /// What is known of its keys, by the hash of a key, and how it touches each: of all keys, if it touches everything, and else also what is
    /// known of those that do. The same one may come twice.
    pub(crate) fn met<'a, K>(&'a self, known: &'a BTreeMap<KeyHash, K>) -> impl Iterator<Item = (&'a K, Access)> + 'a {
        let own = self.keys().filter_map(|(key, access)| Some((known.get(&key)?, access)));
        let everything = self.access_to_everything();
        let all = everything.into_iter().flat_map(|access| known.values().map(move |known| (known, access)));
        let strongest = if self.only_reads() { Access::Read } else { Access::Write };
        let touches_some = !(self.reads.is_empty() && self.writes.is_empty());
        let others = known.last_key_value().filter(|(key, _)| **key == KeyHash::EVERYTHING && touches_some);
        own.chain(all).chain(others.filter(|_| everything.is_none()).map(|(_, known)| (known, strongest)))
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
