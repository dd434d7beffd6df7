//! Operation keys: results that are kept under a user's own idempotency key, which outlives client ids (section 4,
//! R4.9).
//!
//! This is an index from (table, first key, operation key) to the place of the record, and an order of expiry. The bytes stay
//! in the log: the caller says whether the record at a place has a given name. Expiry is an event, not a
//! comparison of clocks: a key past its time still hits until its [`crate::OperationKeyDropped`] is logged, so that
//! every replica and every replay agrees (like R5.2). The caller refuses requests past their `not_after` (pitfall 11).
//! The memory of the log bounds the number of keys; [`OperationKeys::stats`] accounts for it.

use std::collections::BTreeMap;
use std::fmt;

use hashbrown::HashTable;
use kasha_types::{ClusterTime, KeyHash};

use crate::Place;

/// Hash of an operation and its keys: the same operation key with another fingerprint is an error of the user's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub u64);

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fingerprint-{:016x}", self.0)
    }
}

/// What is known of an operation key.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKeyCheck {
    /// The operation ran: its result is in the record here.
    Hit(Place),
    /// Another operation ran under this key.
    Mismatch,
    /// Nothing ran under this key.
    Miss,
}

/// What is kept. For metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationKeysStats {
    /// Operation keys held.
    pub keys: u64,
    /// Heap bytes of the index, about; without the records.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: KeyHash,
    fingerprint: Fingerprint,
    expires_at: ClusterTime,
    place: Place,
}

/// All operation keys of one shard. Keys are hashed by `kasha_types::OperationName::hash`; `is_key(place)` tells
/// whether the record at `place` has the name meant, since hashes may collide.
#[derive(Debug, Default)]
pub struct OperationKeys {
    table: HashTable<Entry>,
    by_expiry: BTreeMap<(ClusterTime, Place), KeyHash>,
}

impl OperationKeys {
    /// A table that holds no operation key.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn find(&self, hash: KeyHash, mut is_key: impl FnMut(Place) -> bool) -> Option<&Entry> {
        self.table.find(hash.0, |entry| entry.hash == hash && is_key(entry.place))
    }

    /// What is known of an operation key.
    pub fn check(
        &self,
        hash: KeyHash,
        fingerprint: Fingerprint,
        is_key: impl FnMut(Place) -> bool,
    ) -> OperationKeyCheck {
        match self.find(hash, is_key) {
            None => OperationKeyCheck::Miss,
            Some(entry) if entry.fingerprint == fingerprint => OperationKeyCheck::Hit(entry.place),
            Some(_) => OperationKeyCheck::Mismatch,
        }
    }

    /// An operation ran under a key that [`Self::check`] missed; its record is appended at `place`.
    ///
    /// # Panics
    /// If the key is held already (E1).
    pub fn insert(
        &mut self,
        hash: KeyHash,
        fingerprint: Fingerprint,
        expires_at: ClusterTime,
        place: Place,
        is_key: impl FnMut(Place) -> bool,
    ) {
        assert!(self.find(hash, is_key).is_none(), "E1: an operation key runs one operation");
        self.put(Entry { hash, fingerprint, expires_at, place });
    }

    /// Takes in a record found in a log that is replayed, in the log's order; a copy replaces its original. Reports
    /// the record that is dead by it, which may be itself.
    pub fn recover(
        &mut self,
        hash: KeyHash,
        fingerprint: Fingerprint,
        expires_at: ClusterTime,
        place: Place,
        is_key: impl FnMut(Place) -> bool,
        mut dead: impl FnMut(Place),
    ) {
        match self.find(hash, is_key).copied() {
            None => self.put(Entry { hash, fingerprint, expires_at, place }),
            Some(known) if known.place < place => {
                self.take(hash, known.place);
                self.put(Entry { hash, fingerprint, expires_at, place });
                dead(known.place);
            }
            Some(known) if known.place > place => dead(place),
            Some(_) => {}
        }
    }

    /// A key's logged expiry, found at `at`, is appended or replayed. Returns the place of the record that is dead by
    /// it. A key that had not expired then is another run's: the cleaner may have copied the expiry past that run's record.
    pub fn drop_key(&mut self, hash: KeyHash, at: ClusterTime, is_key: impl FnMut(Place) -> bool) -> Option<Place> {
        let found = self.find(hash, is_key)?;
        if found.expires_at >= at {
            return None;
        }
        let place = found.place;
        self.take(hash, place);
        Some(place)
    }

    /// Up to `max` records whose time has come, the earliest first: log an expiry for each, then [`Self::drop_key`].
    pub fn next_expired(&self, now: ClusterTime, max: usize) -> impl Iterator<Item = (KeyHash, Place)> {
        let expired = self.by_expiry.range(..=(now, Place(u64::MAX)));
        expired.take(max).map(|(&(_, place), &hash)| (hash, place))
    }

    /// When a key expires, and where its record is; `None`: it is not known.
    pub fn expiry(&self, hash: KeyHash, is_key: impl FnMut(Place) -> bool) -> Option<(ClusterTime, Place)> {
        self.find(hash, is_key).map(|entry| (entry.expires_at, entry.place))
    }

    /// The record at this place goes with its segment (see [`crate::Tracker::forget`]). Says whether it was held.
    pub fn forget(&mut self, hash: KeyHash, place: Place) -> bool {
        self.take(hash, place).is_some()
    }

    /// Whether the record at `place` must be kept; for the cleaner.
    #[must_use]
    pub fn is_live(&self, hash: KeyHash, place: Place) -> bool {
        self.find(hash, |known| known == place).is_some()
    }

    /// The cleaner has copied a record. Says whether the copy is the record now; if not, it died meanwhile.
    #[must_use]
    pub fn relocate(&mut self, hash: KeyHash, from: Place, to: Place) -> bool {
        let entry = self.take(hash, from);
        if let Some(entry) = entry {
            self.put(Entry { place: to, ..entry });
        }
        entry.is_some()
    }

    /// How much the table holds.
    #[must_use]
    pub fn stats(&self) -> OperationKeysStats {
        // A B-tree's leaves are between half and wholly full.
        const EXPIRY_BYTES: usize = (size_of::<(ClusterTime, Place)>() + size_of::<KeyHash>()) * 3 / 2;
        let bytes = self.table.allocation_size() + self.by_expiry.len() * EXPIRY_BYTES;
        OperationKeysStats { keys: self.table.len() as u64, bytes: bytes as u64 }
    }

    fn put(&mut self, entry: Entry) {
        self.table.insert_unique(entry.hash.0, entry, |entry| entry.hash.0);
        let other = self.by_expiry.insert((entry.expires_at, entry.place), entry.hash);
        assert!(other.is_none(), "two records at {:?}", entry.place);
    }

    fn take(&mut self, hash: KeyHash, place: Place) -> Option<Entry> {
        let found = self.table.find_entry(hash.0, |entry| entry.hash == hash && entry.place == place).ok()?;
        let (entry, _) = found.remove();
        self.by_expiry.remove(&(entry.expires_at, place)).expect("every key has its expiry");
        Some(entry)
    }

    /// Checks that both indexes hold the same keys; for tests and simulation.
    ///
    /// # Panics
    /// If they do not.
    pub fn assert_invariants(&self) {
        assert_eq!(self.table.len(), self.by_expiry.len());
        for entry in &self.table {
            assert_eq!(self.by_expiry.get(&(entry.expires_at, entry.place)), Some(&entry.hash));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: KeyHash = KeyHash(7);

    fn at(place: u64) -> impl Fn(Place) -> bool {
        move |known| known == Place(place)
    }

    #[test]
    fn r4_9_same_fingerprint_hits_and_another_mismatches() {
        let mut keys = OperationKeys::new();
        assert_eq!(keys.check(HASH, Fingerprint(1), |_| true), OperationKeyCheck::Miss);
        keys.insert(HASH, Fingerprint(1), ClusterTime(50), Place(10), |_| true);
        assert_eq!(keys.check(HASH, Fingerprint(1), |_| true), OperationKeyCheck::Hit(Place(10)));
        assert_eq!(keys.check(HASH, Fingerprint(2), |_| true), OperationKeyCheck::Mismatch);
    }

    #[test]
    fn keys_whose_hashes_collide_are_apart() {
        let mut keys = OperationKeys::new();
        keys.insert(HASH, Fingerprint(1), ClusterTime(50), Place(10), at(10));
        assert_eq!(keys.check(HASH, Fingerprint(1), at(20)), OperationKeyCheck::Miss);
        keys.insert(HASH, Fingerprint(1), ClusterTime(50), Place(20), at(20));
        assert_eq!(keys.check(HASH, Fingerprint(1), at(20)), OperationKeyCheck::Hit(Place(20)));
        assert_eq!(keys.drop_key(HASH, ClusterTime(51), at(10)), Some(Place(10)));
        assert_eq!(keys.drop_key(HASH, ClusterTime(51), at(10)), None);
        assert_eq!(keys.check(HASH, Fingerprint(1), at(20)), OperationKeyCheck::Hit(Place(20)));
        keys.assert_invariants();
    }

    #[test]
    fn expiry_is_logged_before_it_is_seen() {
        let mut keys = OperationKeys::new();
        for (hash, expires_at) in [(1, 30), (2, 10), (3, 20)] {
            keys.insert(KeyHash(hash), Fingerprint(0), ClusterTime(expires_at), Place(hash), |_| true);
        }
        let expired = |now, max| keys.next_expired(ClusterTime(now), max).map(|(hash, _)| hash.0).collect::<Vec<_>>();
        assert_eq!(expired(9, 9), []);
        assert_eq!(expired(20, 9), [2, 3]);
        assert_eq!(expired(30, 2), [2, 3]);
        assert_eq!(keys.check(KeyHash(2), Fingerprint(0), |_| true), OperationKeyCheck::Hit(Place(2)));
        assert_eq!(keys.drop_key(KeyHash(2), ClusterTime(10), |_| true), None, "it had not expired: another run's");
        assert_eq!(keys.drop_key(KeyHash(2), ClusterTime(11), |_| true), Some(Place(2)));
        assert_eq!(keys.check(KeyHash(2), Fingerprint(0), |_| true), OperationKeyCheck::Miss);
        assert_eq!(keys.stats().keys, 2);
    }

    #[test]
    fn a_replay_ends_where_the_log_ended() {
        let mut keys = OperationKeys::new();
        let mut dead = Vec::new();
        for _ in 0..2 {
            // Ran, expired, ran again, was copied by the cleaner.
            keys.recover(HASH, Fingerprint(1), ClusterTime(10), Place(1), |_| true, |place| dead.push(place));
            dead.extend(keys.drop_key(HASH, ClusterTime(20), |_| true));
            keys.recover(HASH, Fingerprint(2), ClusterTime(90), Place(3), |_| true, |place| dead.push(place));
            keys.recover(HASH, Fingerprint(2), ClusterTime(90), Place(5), |_| true, |place| dead.push(place));
            keys.recover(HASH, Fingerprint(2), ClusterTime(90), Place(3), |_| true, |place| dead.push(place));
            assert_eq!(keys.drop_key(HASH, ClusterTime(20), |_| true), None, "a copy of the first run's expiry");
            assert_eq!(keys.check(HASH, Fingerprint(2), |_| true), OperationKeyCheck::Hit(Place(5)));
            keys.assert_invariants();
        }
        assert!(dead.starts_with(&[Place(1), Place(3), Place(3)]));
    }

    #[test]
    fn a_copied_record_is_found_at_its_new_place() {
        let mut keys = OperationKeys::new();
        keys.insert(HASH, Fingerprint(1), ClusterTime(10), Place(1), |_| true);
        assert!(keys.relocate(HASH, Place(1), Place(2)));
        assert!(!keys.relocate(HASH, Place(1), Place(3)));
        assert!(keys.is_live(HASH, Place(2)) && !keys.is_live(HASH, Place(1)));
        assert!(keys.next_expired(ClusterTime(10), 1).eq([(HASH, Place(2))]));
        keys.assert_invariants();
    }
}
