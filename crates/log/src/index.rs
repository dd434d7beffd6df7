//! From a key's hash to its newest entry. The hash alone names no key: the caller compares the key in the log.

use hashbrown::HashTable;
use kasha_types::KeyHash;

use crate::EntryOffset;

#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: KeyHash,
    at: EntryOffset,
}

const _: () = assert!(size_of::<Slot>() == 16);

/// A hash table of [`EntryOffset`]s, 16 bytes and a control byte a slot.
#[derive(Debug, Default)]
pub struct Index {
    table: HashTable<Slot>,
    /// Times that slots changed their buckets.
    layout: u64,
}

/// A place in an [`Index`]: a hint, for the table is laid out anew at times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexBucket(usize);

/// How far a walk through an [`Index`] has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IndexCursor {
    bucket: usize,
    layout: u64,
}

impl Index {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Where the entry of this hash is that `is_it` recognises.
    pub fn find(&self, hash: KeyHash, mut is_it: impl FnMut(EntryOffset) -> bool) -> Option<IndexBucket> {
        self.table.find_bucket_index(hash.0, |slot| slot.hash == hash && is_it(slot.at)).map(IndexBucket)
    }

    /// Makes the entry at `old` the one at `new`, if it still is in this bucket. Says whether it is.
    #[must_use]
    pub fn replace_in(&mut self, bucket: IndexBucket, hash: KeyHash, old: EntryOffset, new: EntryOffset) -> bool {
        match self.table.get_bucket_mut(bucket.0) {
            Some(slot) if slot.hash == hash && slot.at == old => {
                slot.at = new;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Adds an entry of a key that is not in the index.
    pub fn insert(&mut self, hash: KeyHash, at: EntryOffset) {
        if self.table.len() == self.table.capacity() {
            self.table.reserve(1, |slot| slot.hash.0);
            self.layout += 1;
        }
        self.table.insert_unique(hash.0, Slot { hash, at }, |slot| slot.hash.0);
    }

    /// Makes a key's entry the one at `at`; returns the one before, or adds the key if there is none.
    pub fn replace(
        &mut self,
        hash: KeyHash,
        at: EntryOffset,
        mut is_it: impl FnMut(EntryOffset) -> bool,
    ) -> Option<EntryOffset> {
        match self.table.find_mut(hash.0, |slot| slot.hash == hash && is_it(slot.at)) {
            Some(slot) => Some(std::mem::replace(&mut slot.at, at)),
            None => {
                self.insert(hash, at);
                None
            }
        }
    }

    /// Removes a key's entry and returns it.
    pub fn remove(&mut self, hash: KeyHash, mut is_it: impl FnMut(EntryOffset) -> bool) -> Option<EntryOffset> {
        let slot = self.table.find_entry(hash.0, |slot| slot.hash == hash && is_it(slot.at)).ok()?;
        Some(slot.remove().0.at)
    }

    /// Visits the slots of the next `buckets` buckets and removes those that `keep` turns down. True when the whole
    /// table has been visited. When the table was laid out anew since the last slice the walk starts over, so an entry
    /// may be seen twice; none that stayed is missed.
    pub fn retain_slice(
        &mut self,
        cursor: &mut IndexCursor,
        buckets: usize,
        mut keep: impl FnMut(KeyHash, EntryOffset) -> bool,
    ) -> bool {
        if cursor.layout != self.layout {
            *cursor = IndexCursor { bucket: 0, layout: self.layout };
        }
        let all = self.table.num_buckets();
        let until = all.min(cursor.bucket.saturating_add(buckets));
        for bucket in cursor.bucket..until {
            if let Ok(slot) = self.table.get_bucket_entry(bucket)
                && !keep(slot.get().hash, slot.get().at)
            {
                slot.remove();
            }
        }
        cursor.bucket = until;
        until == all
    }

    /// Entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.table.allocation_size()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    /// Few hashes, so that keys share them; the key is the offset's last digit.
    fn key_of(at: EntryOffset) -> u64 {
        at.0 % 10
    }

    proptest! {
        #[test]
        fn behaves_as_a_map(steps in prop::collection::vec((0..10_u64, 0..5_u8), 0..400)) {
            let mut index = Index::new();
            let mut model = BTreeMap::new();
            // Where keys were found: hints, most of them old.
            let mut buckets = BTreeMap::new();
            for (time, (key, step)) in steps.into_iter().enumerate() {
                let (hash, at) = (KeyHash(key % 3), EntryOffset(time as u64 * 10 + key));
                let is_it = |at| key_of(at) == key;
                match step {
                    0 | 1 => prop_assert_eq!(index.replace(hash, at, is_it), model.insert(key, at)),
                    2 => prop_assert_eq!(index.remove(hash, is_it), model.remove(&key)),
                    3 => {
                        let mut found = None;
                        let bucket = index.find(hash, |at| {
                            found = is_it(at).then_some(at);
                            is_it(at)
                        });
                        prop_assert_eq!(found.filter(|_| bucket.is_some()), model.get(&key).copied());
                        buckets.extend(bucket.map(|bucket| (key, (bucket, found.expect("it was recognised")))));
                    }
                    _ => {
                        // Of any key that shares the hash or the bucket, and of an entry that is replaced already.
                        let Some(&(bucket, old)) = buckets.get(&key) else { continue };
                        if index.replace_in(bucket, hash, old, at) {
                            prop_assert_eq!(model.insert(key, at), Some(old));
                        }
                    }
                }
                prop_assert_eq!(index.len(), model.len());
            }
        }

        #[test]
        fn a_bucket_leads_back_until_the_table_is_laid_out_anew(keys in 1..100_u64) {
            let mut index = Index::new();
            for key in 0..keys {
                index.insert(KeyHash(key % 3), EntryOffset(key));
            }
            for key in 0..keys {
                let (hash, old, new) = (KeyHash(key % 3), EntryOffset(key), EntryOffset(key + 1000));
                let bucket = index.find(hash, |at| at == old).expect("it is there");
                prop_assert!(index.replace_in(bucket, hash, old, new));
                prop_assert!(!index.replace_in(bucket, hash, old, new), "it is there no more");
            }
        }

        #[test]
        fn a_sliced_walk_misses_nothing_while_the_table_changes(
            keys in 1..200_u64, slice in 1..9_usize, churn in 0..3_u64,
        ) {
            let mut index = Index::new();
            let hash = |key: u64| KeyHash(key.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            for key in 0..keys {
                index.insert(hash(key), EntryOffset(key));
            }
            let (mut cursor, mut seen, mut fresh) = (IndexCursor::default(), BTreeSet::new(), keys);
            let mut visit = |_, at: EntryOffset| {
                seen.insert(at.0);
                at.0 >= keys || at.0.is_multiple_of(2)
            };
            while !index.retain_slice(&mut cursor, slice, &mut visit) {
                for _ in 0..if fresh < 3 * keys { churn } else { 0 } {
                    index.insert(hash(fresh), EntryOffset(fresh));
                    fresh += 1;
                }
            }
            prop_assert!((0..keys).all(|key| seen.contains(&key)));
            prop_assert_eq!(index.len() as u64, keys.div_ceil(2) + (fresh - keys));
        }
    }
}
