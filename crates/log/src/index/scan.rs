//! A walk through an index that goes on anywhere: at this index after it has grown, or at another replica's.
//!
//! A bucket holds the entries whose tags end in certain bits. In the order of the *mirrored* tags, the last bit first, these
//! are neighbours, into however many buckets a table divides them. So a place in that order says what has been visited,
//! whatever table is walked through next: an entry that stays is visited once. (Redis' SCAN goes the same way, with
//! tables of a power of two.)

use super::{Index, LineId};
use crate::EntryOffset;

/// How far a walk has come, in the order of mirrored tags. What lies before it was visited.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct ScanPosition(pub u32);

/// Buckets whose entries are looked up together: about 40 entries, more than the reads of memory that a processor has
/// under way.
const BUCKETS_AT_ONCE: usize = 12;

/// The entries of a bucket, as a part of the order of mirrored tags.
struct Part {
    bucket: usize,
    /// Where the next bucket's begin. `None`: this is the last one.
    end: Option<u32>,
}

impl Index {
    /// The bucket in which this place is.
    fn part_at(&self, position: u32) -> Part {
        let (tag, buckets) = (position.reverse_bits() as usize, self.first.count());
        // Each bucket below `half` stands for itself and for one above, until it is split.
        let half = buckets.next_power_of_two() / 2;
        let low = tag & half.saturating_sub(1);
        let is_split = half > 0 && low + half < buckets;
        let (bucket, bits) = match is_split {
            true => (tag & (2 * half - 1), half.ilog2() + 1),
            false => (low, half.max(1).ilog2()),
        };
        let begin = (bucket as u32).reverse_bits();
        let end = u64::from(begin) + (1 << (u32::BITS - bits));
        Part { bucket, end: u32::try_from(end).ok() }
    }

    /// Visits entries from a position on, in the order of mirrored tags, until `visit` says that it is enough, or there were
    /// `most` or more. Returns where to go on; `None`: there are no more. Entries with one tag are visited together.
    ///
    /// Each entry that is visited was given to `touch` before, with its neighbours. `touch` is to read where the entry
    /// points to: the reads of many entries do not depend on each other, so that the processor waits for them at once.
    pub fn scan(
        &self,
        from: ScanPosition,
        most: usize,
        touch: impl Fn(EntryOffset),
        mut visit: impl FnMut(EntryOffset) -> Enough,
    ) -> Option<ScanPosition> {
        let (mut position, mut visited, mut entries) = (from.0, 0, Vec::new());
        loop {
            entries.clear();
            let (end, work) = self.gather(position, &mut entries);
            visited += work;
            entries.iter().for_each(|&(_, at)| touch(at));
            let (mut enough, mut last) = (Enough::No, position);
            for &(mirrored, at) in &entries {
                if enough == Enough::Yes && mirrored != last {
                    return Some(ScanPosition(mirrored));
                }
                enough = enough.or(visit(at));
                last = mirrored;
            }
            position = end?;
            if visited >= most || enough == Enough::Yes {
                return Some(ScanPosition(position));
            }
        }
    }

    /// The mirrored tags and the entries of the next buckets, in order; where the bucket behind them begins; and how many
    /// lines and entries these were.
    fn gather(&self, from: u32, entries: &mut Vec<(u32, EntryOffset)>) -> (Option<u32>, usize) {
        let parts = || std::iter::successors(Some(self.part_at(from)), |part| Some(self.part_at(part.end?)));
        // As in `scan`: the buckets are far from each other, and are waited for at once.
        for part in parts().take(BUCKETS_AT_ONCE) {
            std::hint::black_box(self.line(LineId::first(part.bucket)).is_full());
        }
        let (mut end, mut work) = (None, 0);
        for part in parts().take(BUCKETS_AT_ONCE) {
            let begin = entries.len();
            let mut id = Some(LineId::first(part.bucket));
            while let Some(line) = id.map(|id| self.line(id)) {
                let of_line = (0..line.len()).filter_map(|place| line.get(place));
                entries.extend(of_line.map(|(tag, at)| (tag.reverse_bits(), at)).filter(|&(tag, _)| tag >= from));
                work += 1; // an empty bucket is work, too
                id = line.next();
            }
            entries[begin..].sort_unstable();
            end = part.end;
        }
        (end, work + entries.len())
    }
}

/// Whether a visitor of entries has enough of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Enough {
    /// It goes on.
    No,
    /// It stops as soon as a position names what is left.
    Yes,
}

impl Enough {
    fn or(self, other: Self) -> Self {
        if self == Self::Yes { self } else { other }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::{BTreeMap, BTreeSet};

    use kasha_types::KeyHash;
    use proptest::prelude::*;

    use super::*;

    fn hash_of(key: u64) -> KeyHash {
        KeyHash((key / 2).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn of(keys: impl IntoIterator<Item = u64>) -> Index {
        let mut index = Index::new();
        keys.into_iter().for_each(|key| index.insert(hash_of(key), EntryOffset(key)));
        index
    }

    #[test]
    fn the_parts_of_a_table_follow_one_another_whatever_its_size() {
        for keys in 0..200 {
            let index = of(0..keys);
            let (mut position, mut buckets) = (0, Vec::new());
            loop {
                let Part { bucket, end } = index.part_at(position);
                buckets.push(bucket);
                let Some(end) = end else { break };
                assert_eq!(index.part_at(end - 1).bucket, bucket);
                assert!(end > position);
                position = end;
            }
            buckets.sort_unstable();
            assert_eq!(buckets, Vec::from_iter(0..index.first.count()), "{keys} keys");
        }
    }

    proptest! {
        #[test]
        fn what_stays_is_visited_once_on_whichever_replica(
            keys in 0..300_u64,
            pages in prop::collection::vec((1..20_usize, 0..60_u64, any::<bool>()), 1..60),
        ) {
            let (mut index, mut fresh) = (of(0..keys), keys);
            let (mut seen, mut position): (BTreeMap<u64, u32>, _) = (BTreeMap::new(), Some(ScanPosition::default()));
            let mut pages = pages.into_iter().cycle();
            while let Some(from) = position {
                let (most, grows, is_elsewhere) = pages.next().expect("it cycles");
                let mut left = most;
                let touched = RefCell::new(BTreeSet::new());
                let touch = |at| {
                    touched.borrow_mut().insert(at);
                };
                position = index.scan(from, 3 * most, touch, |at| {
                    assert!(touched.borrow().contains(&at));
                    *seen.entry(at.0).or_insert(0) += 1;
                    left = left.saturating_sub(1);
                    if left == 0 { Enough::Yes } else { Enough::No }
                });
                if fresh < 4 * keys {
                    (fresh..fresh + grows).for_each(|key| index.insert(hash_of(key), EntryOffset(key)));
                    fresh += grows;
                }
                if is_elsewhere {
                    // A replica that never had the others.
                    index = of(0..keys);
                    fresh = keys;
                }
            }
            prop_assert!((0..keys).all(|key| seen.get(&key) == Some(&1)), "{:?}", seen);
            prop_assert!(seen.values().all(|&times| times == 1));
        }
    }
}
