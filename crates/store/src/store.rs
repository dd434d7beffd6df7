//! The index over a shard's objects and tombstones.

use std::collections::BTreeMap;

use kasha_log::{Entry, EntryKind, EntryOffset, Index, IndexBucket, IndexCursor, Log};
use kasha_types::planted::{self, Bug};
use kasha_types::{KeyHash, SegmentId, TableId, key_hash};

use crate::entry::{Found, Object, Tombstone};

/// A tombstone that the index leads to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grave {
    /// The segment of the tombstone itself.
    pub own: SegmentId,
    pub hash: KeyHash,
    pub version: u64,
    pub oldest: SegmentId,
    pub killed: SegmentId,
}

/// Numbers for status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Keys with a value.
    pub objects: u64,
    /// Deleted keys whose tombstone is still needed.
    pub tombstones: u64,
    /// Bytes of the index.
    pub index_bytes: u64,
}

/// One shard's objects.
#[derive(Debug, Default)]
pub struct Store {
    pub(crate) index: Index,
    /// Keys with a value, by table.
    tables: BTreeMap<TableId, u64>,
    /// By the tombstone's place.
    pub(crate) graves: BTreeMap<EntryOffset, Grave>,
    version_floor: u64,
    pub(crate) floor_entry: Option<EntryOffset>,
}

/// Whether an entry of a kind that is ours can be read.
#[must_use]
pub fn is_sound(kind: EntryKind, payload: &[u8]) -> bool {
    match kind {
        EntryKind::Object => Object::decode(payload).is_some(),
        EntryKind::Tombstone => Tombstone::decode(payload).is_some(),
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

    pub(crate) fn find<'l>(&self, log: &'l Log, table: TableId, key: &[u8]) -> Option<Found<'l>> {
        self.find_hashed(log, key_hash(table, key), table, key).map(|(found, _)| found)
    }

    /// The same for a key whose hash is known, and where the index leads there.
    pub(crate) fn find_hashed<'l>(
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

    /// The newest entry on which a key's next result depends: of its value; without a value, of its tombstone or of the
    /// version floor, whichever is newer. `None`: on none. An answer given while it is unsynced must wait (C1): a floor
    /// that may still be lost decides no version that anybody is told (R4.8).
    #[must_use]
    pub fn newest(&self, log: &Log, table: TableId, key: &[u8]) -> Option<EntryOffset> {
        self.newest_of(self.find(log, table, key).as_ref())
    }

    pub(crate) fn newest_of(&self, found: Option<&Found<'_>>) -> Option<EntryOffset> {
        let floor = self.floor_entry.filter(|_| !planted::is_on(Bug::VersionFloorUngated));
        match found {
            Some(Found::Object(at, _)) => Some(*at),
            Some(Found::Tombstone(at, _)) if !planted::is_on(Bug::DeletedKeyUngated) => Some(*at).max(floor),
            Some(Found::Tombstone(..)) | None => floor,
        }
    }

    /// Versions of keys without a value go on above this.
    #[must_use]
    pub fn version_floor(&self) -> u64 {
        self.version_floor
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

    /// The same for an entry that the index led to from this bucket, unless it has been laid out anew since.
    pub(crate) fn point_from(&mut self, bucket: IndexBucket, hash: KeyHash, old: EntryOffset, new: EntryOffset) {
        if !self.index.replace_in(bucket, hash, old, new) {
            self.point(hash, Some(old), new);
        }
    }

    /// Replays an object or a tombstone that stands in the log. `dead`: entries that it replaces.
    pub fn replay(&mut self, log: &Log, at: EntryOffset, mut dead: impl FnMut(EntryOffset)) {
        let found = decode(log.entry(at), at);
        let (table, key, version) = match found {
            Found::Object(_, object) => (object.table, object.key, object.version),
            Found::Tombstone(_, tombstone) => (tombstone.table, tombstone.key, tombstone.version),
        };
        let hash = key_hash(table, key);
        let old = self.find(log, table, key);
        if let Some(old) = old
            && old.version() > version
        {
            return dead(at);
        }
        let was_object = matches!(old, Some(Found::Object(..)));
        self.point(hash, old.map(|old| old.at()), at);
        match found {
            Found::Object(..) => self.count(table, i64::from(!was_object)),
            Found::Tombstone(_, tombstone) => {
                self.count(table, -i64::from(was_object));
                let (oldest, killed) = (tombstone.oldest, tombstone.killed);
                let grave = Grave { own: log.segment_of(at.0), hash, version, oldest, killed };
                self.graves.insert(at, grave);
            }
        }
        if let Some(old) = old {
            self.graves.remove(&old.at());
            dead(old.at());
        }
    }

    /// Replays a version floor. `dead`: the entry of the floor before.
    pub fn replay_version_floor(&mut self, at: EntryOffset, payload: &[u8], mut dead: impl FnMut(EntryOffset)) {
        let floor = payload.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        self.version_floor = self.version_floor.max(floor);
        if let Some(old) = self.floor_entry.replace(at) {
            dead(old);
        }
    }

    /// The version floor that must be logged before [`Store::drop_graves`] may run: some tombstones name only
    /// segments that are gone. `None`: nothing to drop.
    #[must_use]
    pub fn wanted_version_floor(&self, is_gone: impl Fn(SegmentId) -> bool) -> Option<u64> {
        let droppable = self.graves.values().filter(|grave| names_only_gone(grave, &is_gone));
        droppable.map(|grave| grave.version).max().map(|version| version.max(self.version_floor))
    }

    /// Forgets the tombstones before the version floor's entry and at or below the floor that name only segments that are gone.
    /// Versions of these keys go on above it, told once it is synced ([`Store::newest`], R4.8). `dead`: their entries.
    pub fn drop_graves(&mut self, is_gone: impl Fn(SegmentId) -> bool, mut dead: impl FnMut(EntryOffset)) {
        let (floor, floor_entry) = (self.version_floor, self.floor_entry);
        let index = &mut self.index;
        self.graves.retain(|&at, grave| {
            // One that was written after the floor's entry may be unsynced: who asks for the key must still wait for it (C1).
            if grave.version > floor || Some(at) > floor_entry || !names_only_gone(grave, &is_gone) {
                return true;
            }
            index.remove(grave.hash, |known| known == at);
            dead(at);
            false
        });
    }

    /// A segment leaves this replica, and with it the tombstones in it: forget where they were.
    pub fn forget_segment(&mut self, log: &Log, segment: SegmentId) {
        let (from, until) = (log.segment_base(segment), log.segment_base(SegmentId(segment.0 + 1)));
        let left: Vec<_> = self.graves.range(EntryOffset(from)..EntryOffset(until)).map(|(&at, _)| at).collect();
        for at in left {
            let grave = self.graves.remove(&at).expect("just seen");
            self.index.remove(grave.hash, |known| known == at);
        }
        self.floor_entry = self.floor_entry.filter(|at| log.segment_of(at.0) != segment);
    }

    /// An object goes with its segment, which the log says is freed: a replay that began from what was left may have
    /// found it again.
    pub fn forget_object(&mut self, log: &Log, at: EntryOffset) {
        if let Found::Object(_, object) = decode(log.entry(at), at) {
            let (table, hash) = (object.table, key_hash(object.table, object.key));
            if self.index.remove(hash, |known| known == at).is_some() {
                self.count(table, -1);
            }
        }
    }

    /// Removes every key of a dropped table. `dead`: their entries. Costs a pass over the index.
    ///
    /// The record of a drop does not outlive its segment, so a replay may bring objects of a dropped table back, and the
    /// primary, which knows them dead, frees their segments: what leads there goes too.
    pub fn drop_table(&mut self, log: &Log, table: TableId, mut dead: impl FnMut(EntryOffset)) {
        let held: Vec<SegmentId> = log.segments().map(|(id, _)| id).collect();
        let keep = |_, at: EntryOffset| {
            if held.binary_search(&log.segment_of(at.0)).is_err() {
                return false;
            }
            match decode(log.entry(at), at) {
                Found::Object(_, object) if object.table == table => {
                    dead(at);
                    false
                }
                // Its tombstones go as all do: when the segments that they name are gone.
                Found::Object(..) | Found::Tombstone(..) => true,
            }
        };
        let whole = self.index.retain_slice(&mut IndexCursor::default(), usize::MAX, keep);
        assert!(whole, "one slice covers the table");
        self.tables.remove(&table);
    }

    /// Tables that have a key with a value here.
    pub fn tables(&self) -> impl Iterator<Item = TableId> + '_ {
        self.tables.keys().copied()
    }

    /// Keys with a value came or went.
    pub(crate) fn count(&mut self, table: TableId, change: i64) {
        if change != 0 {
            let objects = self.tables.entry(table).or_insert(0);
            *objects = objects.checked_add_signed(change).expect("as many as came");
            if *objects == 0 {
                self.tables.remove(&table);
            }
        }
    }

    /// Numbers for status.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        StoreStats {
            objects: self.tables.values().sum(),
            tombstones: self.graves.len() as u64,
            index_bytes: self.index.memory_bytes() as u64,
        }
    }
}

/// Whether nothing is left that it is needed for. What its own segment holds comes and goes with it, so it does not hold
/// that segment: else one whose keys came and went within it would stay for ever.
fn names_only_gone(grave: &Grave, is_gone: &impl Fn(SegmentId) -> bool) -> bool {
    (grave.oldest.0..=grave.killed.0).map(SegmentId).all(|id| id == grave.own || is_gone(id))
}
