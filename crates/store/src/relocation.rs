//! What the cleaner asks of the store: what lives, what a copy holds, and where it went (RAMCloud's log cleaning, RIFL report IV-D).
//!
//! A copy is written like a change of the key that changes nothing: it has the version of what it copies, the index leads to
//! it from the same step on, and the original is dead from then on. So a copy is the newest entry of its key where it
//! stands in the log, and a replay takes it for that, whether or not the original is still there.
//!
//! **R5.10** A copy's `oldest` is no older than the oldest segment that the log holds: what stood in older ones is gone, and a
//! range that begins with them would only grow longer.

use kasha_log::{Entry, EntryKind, EntryOffset, IndexBucket, Log};
use kasha_types::{ClusterTime, KeyHash, SegmentId, TableId, key_hash};

use crate::Store;
use crate::entry::{Flushed, OLDEST_AT, Object, Tombstone};
use crate::graves::Grave;

/// An entry of the store whose key is looked up in the index. Entries are looked up many at a time, step by step: the
/// cache misses of one step overlap.
#[derive(Clone, Copy, Debug)]
pub struct LookUp {
    at: EntryOffset,
    hash: KeyHash,
    oldest: SegmentId,
    ends: Option<ClusterTime>,
    /// The first place in the index that has this hash, nearly always the key's.
    first: Option<(IndexBucket, EntryOffset)>,
}

/// A live entry of the store, to be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Movable {
    hash: KeyHash,
    oldest: SegmentId,
    ends: Option<ClusterTime>,
    bucket: IndexBucket,
}

/// Bytes of a copy that are not those of its original.
pub const REWRITTEN_BYTES: usize = OLDEST_AT + 4;

impl LookUp {
    /// The first step: reads the entry, and hashes the key.
    #[must_use]
    pub fn begin(at: EntryOffset, entry: &Entry<'_>) -> Self {
        let (table, key, oldest, ends) = match entry.kind {
            EntryKind::Object => {
                let object = Object::decode(entry.payload).expect("our own object");
                (object.table, object.key, object.oldest, object.ends)
            }
            EntryKind::Tombstone => {
                let tombstone = Tombstone::decode(entry.payload).expect("our own tombstone");
                (tombstone.table, tombstone.key, tombstone.oldest, None)
            }
            other => unreachable!("{other:?} is not the store's"),
        };
        Self { at, hash: key_hash(table, key), oldest, ends, first: None }
    }

    /// The second step: reads the index.
    pub fn read(&mut self, store: &Store) {
        let mut known = None;
        let bucket = store.index.find(self.hash, |at| {
            known = Some(at);
            true
        });
        self.first = bucket.zip(known);
    }
}

impl Store {
    /// The last step: whether the entry is one that the index leads to. `held`: the oldest segment of the log.
    #[must_use]
    pub fn movable(&self, look_up: &LookUp, held: SegmentId) -> Option<Movable> {
        let &LookUp { at, hash, oldest, ends, first } = look_up;
        let bucket = match first {
            Some((bucket, known)) if known == at => bucket,
            // Another key may have the same hash.
            Some(_) | None => self.index.find(hash, |known| known == at)?,
        };
        Some(Movable { hash, oldest: oldest.max(held), ends, bucket })
    }

    /// The first bytes of a copy; the others are the original's.
    #[must_use]
    pub fn rewritten(payload: &[u8], movable: Movable) -> [u8; REWRITTEN_BYTES] {
        let mut head = *payload.first_chunk::<REWRITTEN_BYTES>().expect("an entry of the store");
        head[OLDEST_AT..].copy_from_slice(&movable.oldest.0.to_le_bytes());
        head
    }

    /// The copy is in the log.
    ///
    /// # Panics
    /// If the index does not lead to the original.
    pub fn moved(&mut self, log: &Log, movable: Movable, from: EntryOffset, to: EntryOffset) {
        self.point_from(movable.bucket, movable.hash, from, to);
        self.expiries.remove(from, movable.ends);
        self.expiries.add(to, movable.ends);
        if let Some(grave) = self.graves.remove(from) {
            self.graves.bury(log, to, Grave { oldest: movable.oldest, ..grave });
        }
    }

    /// Whether a tombstone in this segment needs to kill nothing, now or in a replay. For the simulator.
    #[doc(hidden)]
    #[must_use]
    pub fn is_needless(&self, entry: &Entry<'_>, own: SegmentId, is_gone: impl Fn(SegmentId) -> bool) -> bool {
        let tombstone = Tombstone::decode(entry.payload).expect("our own tombstone");
        let mut names = (tombstone.oldest.0..=tombstone.killed.0).map(SegmentId);
        tombstone.version <= self.version_floor() && names.all(|id| id == own || is_gone(id))
    }

    /// Whether the newest version floor is the entry there.
    #[must_use]
    pub fn is_version_floor(&self, at: EntryOffset) -> bool {
        self.floor.entry == Some(at)
    }

    /// Whether the newest flush of its table is the entry there.
    #[must_use]
    pub fn is_flush(&self, at: EntryOffset, payload: &[u8]) -> bool {
        self.tables.is_flush(Flushed::decode(payload).expect("our own flush").table, at)
    }

    /// The entry of the table's flush was copied.
    pub fn moved_flush(&mut self, table: TableId, to: EntryOffset) {
        self.tables.moved_flush(table, to);
    }

    /// The version floor's entry was copied.
    pub fn moved_version_floor(&mut self, to: EntryOffset) {
        self.floor.entry = Some(to);
    }
}
