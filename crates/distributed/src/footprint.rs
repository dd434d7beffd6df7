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

    /// Looks through what is known of its keys, by the hash of a key, and how it touches each, until `look` has found something: of all keys, if it
    /// touches everything, and else also through what is known of those that do. The same one may come twice.
    pub(crate) fn find_met<'a, K, T>(
        &self,
        known: &'a BTreeMap<KeyHash, K>,
        mut look: impl FnMut(&'a K, Access) -> Option<T>,
    ) -> Option<T> {
        if known.is_empty() {
            return None;
        }
        for (key, access) in self.keys() {
            if let Some(found) = known.get(&key).and_then(|known| look(known, access)) {
                return Some(found);
            }
        }
        let everything = known.last_key_value().filter(|(key, _)| **key == KeyHash::EVERYTHING);
        let own = self.access_to_everything();
        if everything.is_none() && own.is_none() {
            return None;
        }
        self.find_everywhere(known, everything.map(|(_, known)| known), own, &mut look)
    }

    #[cold]
    fn find_everywhere<'a, K, T>(
        &self,
        known: &'a BTreeMap<KeyHash, K>,
        everything: Option<&'a K>,
        own: Option<Access>,
        look: &mut impl FnMut(&'a K, Access) -> Option<T>,
    ) -> Option<T> {
        if let Some(access) = own {
            return known.values().find_map(|known| look(known, access));
        }
        let touches_some = !(self.reads.is_empty() && self.writes.is_empty());
        let strongest = if self.only_reads() { Access::Read } else { Access::Write };
        everything.filter(|_| touches_some).and_then(|known| look(known, strongest))
    }

    /// The same through all of it.
    pub(crate) fn each_met<'a, K>(&self, known: &'a BTreeMap<KeyHash, K>, mut each: impl FnMut(&'a K, Access)) {
        let nothing: Option<()> = self.find_met(known, |known, access| {
            each(known, access);
            None
        });
        debug_assert!(nothing.is_none(), "it goes through all");
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
