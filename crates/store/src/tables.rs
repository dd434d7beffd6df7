//! How many keys of each table have a value, and which tables were flushed.
//!
//! A flush is one entry of the log: the table, and a version. It ends every value of the table whose version is not above that one,
//! wherever its entry stands, now and in any replay: the cleaner may copy what was flushed, and a replay may find the flush before its
//! copy. Versions of the table's keys go on above the flush's own (**R10.7**), so whoever has watched a key sees that it was flushed.
//!
//! The objects that a flush ended leave the index in slices. Until then they count as flushed, and nobody sees them.

use std::collections::BTreeMap;

use kasha_log::EntryOffset;
use kasha_types::TableId;
use kasha_types::planted::{self, Bug};

/// The newest flush of a table.
#[derive(Clone, Copy, Debug)]
struct Flush {
    version: u64,
    entry: EntryOffset,
    /// Objects that it ended, and that the index still leads to. A replay does not know them: it is at its end before anybody looks.
    left: u64,
}

/// All tables of a shard.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// Keys with a value.
    objects: BTreeMap<TableId, u64>,
    flushes: BTreeMap<TableId, Flush>,
    /// Flushed objects that the index leads to, of all tables.
    left: u64,
}

impl Tables {
    /// Keys with a value of this table came or went.
    #[inline]
    pub fn count(&mut self, table: TableId, change: i64) {
        if change != 0 {
            let objects = self.objects.entry(table).or_insert(0);
            *objects = objects.checked_add_signed(change).expect("as many as came");
            if *objects == 0 {
                self.objects.remove(&table);
            }
        }
    }

    /// Keys of the table that have a value.
    pub fn keys_of(&self, table: TableId) -> u64 {
        self.objects.get(&table).copied().unwrap_or(0)
    }

    /// Keys that have a value, of all tables.
    pub fn keys(&self) -> u64 {
        self.objects.values().sum()
    }

    /// Whether the index leads to an object of the table, flushed or not.
    pub fn has_objects_of(&self, table: TableId) -> bool {
        self.objects.contains_key(&table) || self.flushes.get(&table).is_some_and(|flush| flush.left > 0)
    }

    /// Tables of which there is a key with a value, or a flush.
    pub fn known(&self) -> impl Iterator<Item = TableId> + '_ {
        let only_flushed = self.flushes.keys().filter(|table| !self.objects.contains_key(table));
        self.objects.keys().chain(only_flushed).copied()
    }

    /// Versions of the table's keys go on above this one, if it was flushed.
    #[inline]
    pub fn flushed_at(&self, table: TableId) -> Option<u64> {
        if self.flushes.is_empty() || planted::is_on(Bug::FlushForgetsVersions) {
            return None;
        }
        self.flushes.get(&table).map(|flush| flush.version)
    }

    /// Whether an object of this version, which stands in the log at `at`, was ended by a flush.
    #[inline]
    pub fn is_flushed(&self, table: TableId, version: u64, at: EntryOffset) -> bool {
        if self.flushes.is_empty() {
            return false;
        }
        self.flushes.get(&table).is_some_and(|flush| match planted::is_on(Bug::FlushForgetsVersions) {
            true => at < flush.entry,
            false => version <= flush.version,
        })
    }

    /// Whether the index leads to objects that were flushed.
    #[inline]
    pub fn has_flushed(&self) -> bool {
        self.left > 0
    }

    /// A primary flushes the table: of its objects none has a greater version. Gives the entry of the flush before.
    pub fn flush(&mut self, table: TableId, version: u64, entry: EntryOffset) -> Option<EntryOffset> {
        let ended = self.objects.remove(&table).unwrap_or(0);
        self.left += ended;
        let before = self.flushes.insert(table, Flush { version, entry, left: ended });
        if let Some(flush) = self.flushes.get_mut(&table) {
            flush.left += before.map_or(0, |before| before.left);
        }
        before.map(|before| before.entry)
    }

    /// A replay finds a flush of the table. Gives the entry that is needed no more. The caller removes what it has ended.
    pub fn replay_flush(&mut self, table: TableId, version: u64, entry: EntryOffset) -> Option<EntryOffset> {
        let before = self.flushes.get(&table).copied();
        if before.is_some_and(|before| before.version > version) {
            return Some(entry);
        }
        let left = before.map_or(0, |before| before.left);
        self.flushes.insert(table, Flush { version, entry, left });
        before.map(|before| before.entry)
    }

    /// A flushed object of the table was replaced by a newer entry of its key.
    #[cold]
    #[inline(never)]
    pub fn flushed_goes(&mut self, table: TableId) {
        let flush = self.flushes.get_mut(&table).expect("the table was flushed");
        flush.left = flush.left.checked_sub(1).expect("as many as were flushed");
        self.left -= 1;
    }

    /// The index leads to an object no more, which may be flushed.
    pub fn object_goes(&mut self, table: TableId, version: u64) {
        match self.flushes.get_mut(&table) {
            Some(flush) if version <= flush.version && flush.left > 0 => {
                flush.left -= 1;
                self.left -= 1;
            }
            Some(_) | None => self.count(table, -1),
        }
    }

    /// The table is gone: so is its flush. Gives the entry of the flush.
    ///
    /// # Panics
    /// If the index leads to an object that the flush has ended.
    pub fn forget_flush(&mut self, table: TableId) -> Option<EntryOffset> {
        let flush = self.flushes.remove(&table)?;
        assert!(flush.left == 0, "{} flushed objects of {table:?} are there", flush.left);
        Some(flush.entry)
    }

    /// Whether the newest flush of the table is the entry there.
    pub fn is_flush(&self, table: TableId, at: EntryOffset) -> bool {
        self.flushes.get(&table).is_some_and(|flush| flush.entry == at)
    }

    /// The entry of the table's flush was copied.
    pub fn moved_flush(&mut self, table: TableId, to: EntryOffset) {
        self.flushes.get_mut(&table).expect("it lives").entry = to;
    }
}
