//! The index over a shard's objects and tombstones, and what replay and freeing do to it.
//!
//! The index maps a key's hash to the newest entry of the key, an object or a tombstone. [`Store::replay`] rebuilds it
//! from the log, entry by entry. Tombstones and entries of dropped tables are let go in slices, so that no call takes
//! long. The store says which entries are dead; the caller tells the log.
//!
//! Rules kept here: versions of a key grow across deletes, and keys without an entry go on above the version floor
//! (**R4.8**). What an operation does is in `execute`.

use kasha_log::{Entry, EntryKind, EntryOffset, Index, IndexBucket, IndexCursor, Log};
use kasha_types::{KeyHash, SegmentId, TableId, key_hash};

use crate::entry::{Flushed, Found, Object, Tombstone};
use crate::expiries::Expiries;
use crate::graves::{Floor, Grave, Graves};
use crate::tables::Tables;

/// Numbers for status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Keys with a value.
    pub objects: u64,
    /// Of these, keys whose value ends.
    pub ending: u64,
    /// Deleted keys whose tombstone is still needed.
    pub tombstones: u64,
    /// Bytes of the index.
    pub index_bytes: u64,
}

/// One shard's objects.
#[derive(Debug, Default)]
pub struct Store {
    pub(crate) index: Index,
    pub(crate) tables: Tables,
    pub(crate) graves: Graves,
    pub(crate) expiries: Expiries,
    pub(crate) floor: Floor,
}

/// Whether an entry of a kind that is ours can be read.
#[must_use]
pub fn is_sound(kind: EntryKind, payload: &[u8]) -> bool {
    match kind {
        EntryKind::Object => Object::decode(payload).is_some(),
        EntryKind::Tombstone => Tombstone::decode(payload).is_some(),
        EntryKind::TableFlushed => Flushed::decode(payload).is_some(),
        _ => false,
    }
}

pub(crate) fn decode(entry: Entry<'_>, at: EntryOffset) -> Found<'_> {
    match entry.kind {
        EntryKind::Object => Found::Object(at, Object::decode(entry.payload).expect("our own object")),
        EntryKind::Tombstone => Found::Tombstone(at, Tombstone::decode(entry.payload).expect("our own tombstone")),
        other => unreachable!("the index leads to {other:?}"),
    }
}

impl Store {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What there is of a key, to whoever looks: an object that a flush has ended is none.
    pub(crate) fn find<'l>(&self, log: &'l Log, hash: KeyHash, table: TableId, key: &[u8]) -> Option<Found<'l>> {
        let found = self.find_with_bucket(log, hash, table, key).map(|(found, _)| found);
        if self.tables.has_flushed() && found.as_ref().is_some_and(|found| self.is_flushed(found)) {
            return None;
        }
        found
    }

    /// What the index leads to, and where.
    pub(crate) fn find_with_bucket<'l>(
        &self,
        log: &'l Log,
        hash: KeyHash,
        table: TableId,
        key: &[u8],
    ) -> Option<(Found<'l>, IndexBucket)> {
        let mut found = None;
        let is_it = |at| {
            let entry = decode(log.entry(at), at);
            let is_it = entry.table() == table && entry.key() == key;
            found = is_it.then_some(entry);
            is_it
        };
        let bucket = self.index.find(hash, is_it)?;
        found.map(|found| (found, bucket))
    }

    /// Whether what the index leads to is an object that a flush has ended.
    #[cold]
    #[inline(never)]
    fn is_flushed(&self, found: &Found<'_>) -> bool {
        match found {
            Found::Object(at, object) => self.tables.is_flushed(object.table, object.version, *at),
            Found::Tombstone(..) => false,
        }
    }

    /// Versions of the table's keys without a value go on above this (R4.8, R10.7).
    #[inline]
    pub(crate) fn floor_of(&self, table: TableId) -> u64 {
        self.floor.version.max(self.tables.flushed_at(table).unwrap_or(0))
    }

    /// Versions of keys without a value go on above this.
    #[must_use]
    pub fn version_floor(&self) -> u64 {
        self.floor.version
    }

    /// Notes a key's newest entry, and gives the entry that it replaces.
    pub(crate) fn point(&mut self, hash: KeyHash, old: Option<EntryOffset>, new: EntryOffset) {
        match old {
            Some(old) => {
                assert_eq!(self.index.replace(hash, new, |at| at == old), Some(old), "the index led to {old:?}")
            }
            None => self.index.insert(hash, new),
        }
    }

    /// The same for an entry to which the index led from this bucket, if it is still there.
    pub(crate) fn point_from(&mut self, bucket: IndexBucket, hash: KeyHash, old: EntryOffset, new: EntryOffset) {
        if !self.index.replace_in(bucket, hash, old, new) {
            self.point(hash, Some(old), new);
        }
    }

    /// Replays `entry`, an object or a tombstone, which stands in the log at `at`. `dead`: entries that it replaces.
    pub fn replay(&mut self, log: &Log, at: EntryOffset, entry: Entry<'_>, mut dead: impl FnMut(EntryOffset)) {
        let found = decode(entry, at);
        let (table, key, version) = (found.table(), found.key(), found.version());
        if matches!(found, Found::Object(..)) && self.tables.is_flushed(table, version, at) {
            return dead(at); // what the index led to of the key, the flush has removed
        }
        let hash = key_hash(table, key);
        let old = self.find_with_bucket(log, hash, table, key);
        match old {
            Some((old, _)) if old.version() > version => return dead(at),
            Some((old, bucket)) => self.point_from(bucket, hash, old.at(), at),
            None => self.index.insert(hash, at),
        }
        let was_object = matches!(old, Some((Found::Object(..), _)));
        match found {
            Found::Object(_, object) => {
                self.count(table, i64::from(!was_object));
                self.expiries.add(at, object.ends);
            }
            Found::Tombstone(_, tombstone) => {
                self.count(table, -i64::from(was_object));
                let (oldest, killed) = (tombstone.oldest, tombstone.killed);
                self.graves.bury(log, at, Grave { hash, version, oldest, killed });
            }
        }
        if let Some((old, _)) = old {
            self.graves.remove(old.at());
            self.expiries.remove(old.at(), old.ends());
            dead(old.at());
        }
    }

    /// Replays a version floor. `dead`: the entry of the floor before.
    pub fn replay_version_floor(&mut self, at: EntryOffset, payload: &[u8], mut dead: impl FnMut(EntryOffset)) {
        let floor = payload.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        self.floor.version = self.floor.version.max(floor);
        if let Some(old) = self.floor.entry.replace(at) {
            dead(old);
        }
        self.graves.on_floor();
    }

    /// The version floor that must be logged before tombstones can go that no segment needs any more. `None`: there is
    /// none of them, or some are still to be looked at.
    #[must_use]
    pub fn wanted_version_floor(&self) -> Option<u64> {
        self.graves.wanted_floor().map(|version| version.max(self.floor.version))
    }

    /// Whether [`Store::tend_graves`] has something to do.
    #[must_use]
    pub fn has_graves_to_tend(&self) -> bool {
        self.graves.are_to_be_tended()
    }

    /// Looks at some tombstones whose segment has gone, or forgets some of those that no segment needs and that the
    /// version floor covers: at most `most` altogether. Versions of these keys go on above the floor, told once it is synced
    /// (R4.8). `dead`: their entries.
    pub fn tend_graves(&mut self, log: &Log, most: usize, mut dead: impl FnMut(EntryOffset)) {
        let index = &mut self.index;
        self.graves.tend(log, self.floor, most, |at, grave| {
            index.remove(grave.hash, |known| known == at);
            dead(at);
        });
    }

    /// A segment is about to leave this replica, and the tombstones in it: forgets at most `most` of them. Says whether
    /// that is all of them. `dead`: their entries.
    pub fn forget_tombstones(
        &mut self,
        log: &Log,
        segment: SegmentId,
        most: usize,
        mut dead: impl FnMut(EntryOffset),
    ) -> bool {
        let index = &mut self.index;
        self.graves.forget(log, segment, most, |at, grave| {
            index.remove(grave.hash, |known| known == at);
            dead(at);
        })
    }

    /// An object goes with its segment, which the log says is freed: a replay that began from what was left may have
    /// found it again. Says whether it had.
    pub fn forget_object(&mut self, log: &Log, at: EntryOffset) -> bool {
        let Found::Object(_, object) = decode(log.entry(at), at) else { return false };
        let hash = key_hash(object.table, object.key);
        let was_known = self.index.remove(hash, |known| known == at).is_some();
        if was_known {
            self.tables.object_goes(object.table, object.version);
        }
        self.expiries.remove(at, object.ends.filter(|_| was_known));
        was_known
    }

    /// The same for the entry of a version floor; the floor itself stays.
    pub fn forget_floor_entry(&mut self, at: EntryOffset) -> bool {
        self.floor.entry.take_if(|known| *known == at).is_some()
    }

    /// A segment has left this replica.
    pub fn segment_is_gone(&mut self, segment: SegmentId) {
        self.graves.segment_is_gone(segment);
    }

    /// Looks at some buckets of the index and removes the keys of dropped tables; true when the index ends there. Nobody
    /// names the tables meanwhile: their numbers are never used again. `dead`: the keys' entries.
    ///
    /// The record of a drop does not outlive its segment, so a replay may bring objects of a dropped table back, and the
    /// primary, which knows them dead, frees their segments: what leads there goes with them ([`Store::forget_object`]).
    pub fn drop_tables_slice(
        &mut self,
        log: &Log,
        is_dropped: impl Fn(TableId) -> bool,
        cursor: &mut IndexCursor,
        buckets: usize,
        mut dead: impl FnMut(EntryOffset),
    ) -> bool {
        let Self { index, tables, expiries, .. } = self;
        let keep = |at: EntryOffset| match decode(log.entry(at), at) {
            Found::Object(_, object) if is_dropped(object.table) => {
                dead(at);
                expiries.remove(at, object.ends);
                tables.object_goes(object.table, object.version);
                false
            }
            // Its tombstones go as all do: when the segments that they name are gone.
            Found::Object(..) | Found::Tombstone(..) => true,
        };
        index.retain_slice(cursor, buckets, keep)
    }

    /// How many keys of this table have a value.
    #[must_use]
    pub fn keys_of(&self, table: TableId) -> u64 {
        self.tables.keys_of(table)
    }

    /// Whether the index leads to an object of this table, be it a flushed one.
    #[must_use]
    pub fn has_objects_of(&self, table: TableId) -> bool {
        self.tables.has_objects_of(table)
    }

    /// Tables of which something is here: a key with a value, or a flush.
    pub fn tables(&self) -> impl Iterator<Item = TableId> + '_ {
        self.tables.known()
    }

    /// Replays a flush. `dead`: an entry of a flush that is needed no more. Says whether there may be objects that it has ended: these leave the
    /// index by [`Store::sweep_slice`] before the replay goes on.
    pub fn replay_flush(&mut self, at: EntryOffset, payload: &[u8], mut dead: impl FnMut(EntryOffset)) -> bool {
        let Flushed { table, version } = Flushed::decode(payload).expect("our own flush");
        let old = self.tables.replay_flush(table, version, at);
        old.into_iter().for_each(&mut dead);
        old != Some(at) && self.tables.has_objects_of(table)
    }

    /// Looks at some buckets of the index and removes what was flushed; true when the index ends there. `dead`: the entries.
    pub fn sweep_slice(
        &mut self,
        log: &Log,
        cursor: &mut IndexCursor,
        buckets: usize,
        mut dead: impl FnMut(EntryOffset),
    ) -> bool {
        let Self { index, tables, expiries, .. } = self;
        let keep = |at: EntryOffset| match decode(log.entry(at), at) {
            Found::Object(_, object) if tables.is_flushed(object.table, object.version, at) => {
                dead(at);
                expiries.remove(at, object.ends);
                tables.object_goes(object.table, object.version);
                false
            }
            Found::Object(..) | Found::Tombstone(..) => true,
        };
        index.retain_slice(cursor, buckets, keep)
    }

    /// Whether a primary's flush has ended objects that the index still leads to.
    #[must_use]
    pub fn has_flushed(&self) -> bool {
        self.tables.has_flushed()
    }

    /// The table is gone, and its flush with it. Gives the entry of the flush.
    pub fn forget_flush(&mut self, table: TableId) -> Option<EntryOffset> {
        self.tables.forget_flush(table)
    }

    /// The entry of a flush goes with its segment: the primary knew that its table is gone. Says whether it was known here.
    pub fn forget_flush_entry(&mut self, at: EntryOffset, payload: &[u8]) -> bool {
        let Flushed { table, .. } = Flushed::decode(payload).expect("our own flush");
        self.tables.is_flush(table, at) && self.tables.forget_flush(table).is_some()
    }

    /// Keys with a value came or went.
    pub(crate) fn count(&mut self, table: TableId, change: i64) {
        self.tables.count(table, change);
    }

    /// Numbers for status.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        StoreStats {
            objects: self.tables.keys(),
            ending: self.expiries.count(),
            tombstones: self.graves.count(),
            index_bytes: self.index.memory_bytes() as u64,
        }
    }
}
