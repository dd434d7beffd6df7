//! Values that end: in the order of their ends, so that those whose time is over are found without a search.
//!
//! **R5.2** An end deletes nothing here. A primary logs a delete ([`crate::Store::draft_expired`]) before anybody sees the key
//! gone; who follows the log deletes what the log says, and looks at no clock.

use std::collections::BTreeSet;

use kasha_log::{EntryOffset, Log};
use kasha_types::{ClusterTime, TableId, key_hash};

use crate::Store;
use crate::draft::{Draft, SpareDraft};
use crate::entry::Found;
use crate::store::decode;

/// The place of an object whose value ends, and its end before that.
pub type Ending = (ClusterTime, EntryOffset);

/// All objects of a shard whose values end.
#[derive(Debug, Default)]
pub(crate) struct Expiries {
    endings: BTreeSet<Ending>,
}

impl Expiries {
    /// The index leads to this object, whose value ends then, if ever.
    #[inline]
    pub fn add(&mut self, at: EntryOffset, ends: Option<ClusterTime>) {
        if let Some(ends) = ends {
            self.endings.insert((ends, at));
        }
    }

    /// The index leads there no more.
    #[inline]
    pub fn remove(&mut self, at: EntryOffset, ends: Option<ClusterTime>) {
        if let Some(ends) = ends {
            assert!(self.endings.remove(&(ends, at)), "the object at {at:?} ends at {ends:?}");
        }
    }

    pub fn count(&self) -> u64 {
        self.endings.len() as u64
    }

    /// Whether the time of a value is over.
    #[inline]
    pub fn are_due(&self, now: ClusterTime) -> bool {
        self.endings.first().is_some_and(|&(ends, _)| ends <= now)
    }

    /// Those whose time is over, behind `after`.
    pub fn due(&self, after: Option<Ending>, now: ClusterTime) -> impl Iterator<Item = Ending> + '_ {
        let behind = after.map_or((ClusterTime(0), EntryOffset(0)), |(ends, at)| (ends, EntryOffset(at.0 + 1)));
        self.endings.range(behind..).copied().take_while(move |&(ends, _)| ends <= now)
    }
}

impl Store {
    /// Whether the time of a value is over, so that [`Self::due`] has something.
    #[inline]
    #[must_use]
    pub fn has_due(&self, now: ClusterTime) -> bool {
        self.expiries.are_due(now)
    }

    /// Whether the time of the key's value is over.
    #[must_use]
    pub fn is_due(&self, log: &Log, table: TableId, key: &[u8], now: ClusterTime) -> bool {
        self.find(log, key_hash(table, key), table, key).and_then(|found| found.ends()).is_some_and(|ends| ends <= now)
    }

    /// The keys of values whose time is over, behind `after`, with what `after` is for the next of them.
    pub fn due<'l>(
        &'l self,
        log: &'l Log,
        after: Option<Ending>,
        now: ClusterTime,
    ) -> impl Iterator<Item = (Ending, TableId, &'l [u8])> {
        let due = self.expiries.due(after, now).map(|ending| (ending, decode(log.entry(ending.1), ending.1)));
        // What was flushed ends by leaving the index, and soon: what is behind it waits for that.
        let is_to_end = |found: &Found<'_>| {
            !self.tables.has_flushed() || !self.tables.is_flushed(found.table(), found.version(), found.at())
        };
        due.take_while(move |(_, found)| is_to_end(found)).map(|(ending, found)| (ending, found.table(), found.key()))
    }

    /// The deletes of those of these keys whose time is over (R5.2). It answers nothing, and keeps the keys.
    pub fn draft_expired<'k>(
        &self,
        log: &Log,
        keys: impl IntoIterator<Item = (TableId, &'k [u8])>,
        now: ClusterTime,
        spare: SpareDraft,
    ) -> Draft<'static> {
        let mut draft = Draft::new(spare);
        for (table, key) in keys {
            let seen = draft.see(self, log, table, key);
            if seen.ends().is_some_and(|ends| ends <= now) {
                let key = draft.make_key(key);
                draft.remove(table, key, &seen);
            }
        }
        draft
    }
}
