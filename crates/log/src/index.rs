//! From a key's hash to its newest entry. The hash alone names no key: the caller compares the key in the log.
//!
//! The table is hashed linearly (Litwin 1980): its buckets are split one after the other, one with each insertion that
//! finds the table too full. So it never stops to be laid out anew, however large it is. A bucket is one cache line of
//! five places, and further lines behind it when it has more; most look-ups read one line. The entries of the first
//! `split` buckets have been divided by one more bit of their hashes than those of the others.

mod lines;
mod scan;

pub use self::scan::{Enough, ScanPosition};
use kasha_types::KeyHash;

use self::lines::{Line, LineId, Lines};
use crate::EntryOffset;

/// A bucket is split when there are more entries than this for each 4 buckets. Where the buckets that are not split yet
/// hold the most, one entry in ten is in a further line; 22 bytes an entry in all.
const ENTRIES_PER_4_BUCKETS: usize = 13;

/// A hash table of [`EntryOffset`]s.
#[derive(Debug)]
pub struct Index {
    /// One for each bucket.
    first: Lines,
    /// What did not fit into them.
    further: Lines,
    /// Unused ones of these, each with the number of the next.
    free: Option<LineId>,
    entries: usize,
}

/// A place in an [`Index`]: a hint, for entries are moved at times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexBucket {
    line: LineId,
    place: u8,
}

/// How far a walk through an [`Index`] has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IndexCursor {
    bucket: usize,
}

/// The part of a hash that is kept with an entry. It names the bucket too, so there may be 2^32 of them.
fn tag_of(hash: KeyHash) -> u32 {
    hash.0 as u32
}

impl Default for Index {
    fn default() -> Self {
        let mut first = Lines::default();
        first.push();
        Self { first, further: Lines::default(), free: None, entries: 0 }
    }
}

impl Index {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn bucket_of(&self, tag: u32) -> usize {
        let buckets = self.first.count();
        let mask = buckets.next_power_of_two() - 1;
        let bucket = tag as usize & mask;
        if bucket < buckets { bucket } else { bucket & (mask >> 1) }
    }

    fn line(&self, id: LineId) -> &Line {
        if id.is_further() { self.further.get(id) } else { self.first.get(id) }
    }

    fn line_mut(&mut self, id: LineId) -> &mut Line {
        if id.is_further() { self.further.get_mut(id) } else { self.first.get_mut(id) }
    }

    /// Where the entry of this hash is that `is_it` recognises.
    pub fn find(&self, hash: KeyHash, mut is_it: impl FnMut(EntryOffset) -> bool) -> Option<IndexBucket> {
        let tag = tag_of(hash);
        let mut id = LineId::first(self.bucket_of(tag));
        loop {
            let line = self.line(id);
            if let Some(place) = line.find(tag, &mut is_it) {
                return Some(IndexBucket { line: id, place });
            }
            id = line.next()?;
        }
    }

    /// Something of the line where the search for this hash begins: whoever reads it has the line in the processor's cache.
    #[must_use]
    #[inline]
    pub fn touch(&self, hash: KeyHash) -> u64 {
        self.line(LineId::first(self.bucket_of(tag_of(hash)))).place(0).0
    }

    /// The first entry that the search for this hash would look at in its first line: most often the one that it finds.
    #[must_use]
    #[inline]
    pub fn candidate(&self, hash: KeyHash) -> Option<EntryOffset> {
        let tag = tag_of(hash);
        let line = self.line(LineId::first(self.bucket_of(tag)));
        line.find(tag, |_| true).map(|place| line.place(place))
    }

    /// Makes the entry at `old` the one at `new`, if it still is in this bucket. Says whether it is.
    #[must_use]
    pub fn replace_in(&mut self, bucket: IndexBucket, hash: KeyHash, old: EntryOffset, new: EntryOffset) -> bool {
        let line = self.line_mut(bucket.line);
        let is_there = line.get(bucket.place) == Some((tag_of(hash), old));
        if is_there {
            line.set(bucket.place, new);
        }
        is_there
    }

    /// Adds an entry of a key that is not in the index.
    pub fn insert(&mut self, hash: KeyHash, at: EntryOffset) {
        let tag = tag_of(hash);
        self.push(LineId::first(self.bucket_of(tag)), tag, at);
        self.entries += 1;
        if self.entries * 4 > self.first.count() * ENTRIES_PER_4_BUCKETS {
            self.split_bucket();
        }
    }

    /// Makes a key's entry the one at `at`; returns the one before, or adds the key if there is none.
    pub fn replace(
        &mut self,
        hash: KeyHash,
        at: EntryOffset,
        mut is_it: impl FnMut(EntryOffset) -> bool,
    ) -> Option<EntryOffset> {
        match self.find(hash, &mut is_it) {
            Some(bucket) => Some(self.line_mut(bucket.line).set(bucket.place, at)),
            None => {
                self.insert(hash, at);
                None
            }
        }
    }

    /// Removes a key's entry and returns it.
    pub fn remove(&mut self, hash: KeyHash, is_it: impl FnMut(EntryOffset) -> bool) -> Option<EntryOffset> {
        let bucket = self.find(hash, is_it)?;
        let (_, at) = self.line(bucket.line).get(bucket.place).expect("found there");
        self.take(LineId::first(self.bucket_of(tag_of(hash))), bucket);
        self.entries -= 1;
        Some(at)
    }

    /// Visits the entries of the next `buckets` buckets and removes those that `keep` turns down. True when the whole
    /// table has been visited. A bucket that is split between two slices hands entries on to a later one, so an entry
    /// may be seen twice; none that stayed is missed.
    pub fn retain_slice(
        &mut self,
        cursor: &mut IndexCursor,
        buckets: usize,
        mut keep: impl FnMut(EntryOffset) -> bool,
    ) -> bool {
        let until = self.first.count().min(cursor.bucket.saturating_add(buckets));
        for bucket in cursor.bucket..until {
            self.take_all(LineId::first(bucket), |_, at| !keep(at), |index, _, _| index.entries -= 1);
        }
        cursor.bucket = until;
        until == self.first.count()
    }

    /// The number of entries in the index.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.first.memory_bytes() + self.further.memory_bytes()
    }

    /// Divides the next bucket's entries between itself and a new bucket.
    fn split_bucket(&mut self) {
        let new = self.first.count();
        // The highest bit of the new bucket's number is the bit that divides.
        let bit = 1 << new.ilog2();
        self.first.push();
        let is_new = |tag: u32, _| tag as usize & bit != 0;
        self.take_all(LineId::first(new - bit), is_new, |index, tag, at| index.push(LineId::first(new), tag, at));
    }

    /// Takes the entries that `is_taken` names out of a bucket, and gives each to `taken`.
    fn take_all(
        &mut self,
        first: LineId,
        mut is_taken: impl FnMut(u32, EntryOffset) -> bool,
        mut taken: impl FnMut(&mut Self, u32, EntryOffset),
    ) {
        let mut line = Some(first);
        while let Some(id) = line {
            let mut place = 0;
            while let Some((tag, at)) = self.line(id).get(place) {
                if !is_taken(tag, at) {
                    place += 1;
                    continue;
                }
                let is_line_gone = self.take(first, IndexBucket { line: id, place });
                taken(self, tag, at);
                if is_line_gone {
                    return;
                }
            }
            line = self.line(id).next();
        }
    }

    fn push(&mut self, first: LineId, tag: u32, at: EntryOffset) {
        let mut id = first;
        while let Some(next) = self.line(id).next() {
            id = next;
        }
        if self.line(id).is_full() {
            let next = self.unused_line();
            self.line_mut(id).set_next(Some(next));
            id = next;
        }
        self.line_mut(id).push(tag, at);
    }

    fn unused_line(&mut self) -> LineId {
        match self.free {
            Some(id) => {
                self.free = self.line(id).next();
                self.line_mut(id).set_next(None);
                id
            }
            None => LineId::further(self.further.push()),
        }
    }

    /// Removes the entry there. The bucket's last entry takes its place, so that only the last line has empty ones. Says
    /// whether the entry's line has left the bucket.
    fn take(&mut self, first: LineId, from: IndexBucket) -> bool {
        let (mut before, mut last) = (None, first);
        while let Some(next) = self.line(last).next() {
            (before, last) = (Some(last), next);
        }
        let (tag, at) = self.line_mut(last).pop().expect("a bucket with an entry");
        if (from.line, from.place) != (last, self.line(last).len()) {
            self.line_mut(from.line).put(from.place, tag, at);
        }
        let is_line_gone = before.is_some() && self.line(last).len() == 0;
        if is_line_gone && let Some(before) = before {
            self.line_mut(before).set_next(None);
            let free = self.free.replace(last);
            self.line_mut(last).set_next(free);
        }
        is_line_gone && last == from.line
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    /// Three keys share a hash; the key is the offset's last two digits.
    fn key_of(at: EntryOffset) -> u64 {
        at.0 % 100
    }

    fn hash_of(key: u64) -> KeyHash {
        KeyHash((key / 3).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    proptest! {
        #[test]
        fn behaves_as_a_map(steps in prop::collection::vec((0..100_u64, 0..5_u8), 0..600)) {
            let mut index = Index::new();
            let mut model = BTreeMap::new();
            // Where keys were found: hints, most of them old.
            let mut buckets = BTreeMap::new();
            for (time, (key, step)) in steps.into_iter().enumerate() {
                let (hash, at) = (hash_of(key), EntryOffset(time as u64 * 100 + key));
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
        fn a_bucket_leads_back_while_nothing_is_added(keys in 1..100_u64) {
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
            for key in 0..keys {
                index.insert(hash_of(key), EntryOffset(key));
            }
            let (mut cursor, mut seen, mut fresh) = (IndexCursor::default(), BTreeSet::new(), keys);
            let mut visit = |at: EntryOffset| {
                seen.insert(at.0);
                at.0 >= keys || at.0.is_multiple_of(2)
            };
            while !index.retain_slice(&mut cursor, slice, &mut visit) {
                for _ in 0..if fresh < 3 * keys { churn } else { 0 } {
                    index.insert(hash_of(fresh), EntryOffset(fresh));
                    fresh += 1;
                }
            }
            prop_assert!((0..keys).all(|key| seen.contains(&key)));
            prop_assert_eq!(index.len() as u64, keys.div_ceil(2) + (fresh - keys));
        }
    }
}
