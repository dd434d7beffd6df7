//! What an entry of the log begins and a turn does not finish: what leads into a freed segment is forgotten, a table is
//! dropped, what a flush has ended leaves the index. All look at everything there is of a kind, so they go on from turn to turn, and others are served between.
//!
//! A follower replays no further, and is not replayed, before it is through: a new primary has none of it before it. A
//! primary serves meanwhile. Nobody can name the dropped table: the configuration that dropped it is obeyed, and its number
//! is never used again. So the drop is, for everybody else, the entry that says so, and overlaps until that is synced (R5.1).
//! The entry lives until the table is gone: a replay finds it, and begins anew.

use std::collections::BTreeMap;

use kasha_exactly_once::{CompletionRecordRef, OperationKeyRecord};
use kasha_log::{Cursor, EntryKind, EntryOffset, IndexCursor, Log};
use kasha_types::{SegmentId, TableId, Work};

use crate::shard::state::ShardState;

/// Entries that one turn looks at: a tenth of a millisecond or two, if each is a cache miss or two.
pub(crate) const STEPS_PER_TURN: usize = 192;
/// A bucket of the index holds about so many.
const ENTRIES_OF_BUCKET: usize = 3;

/// What is not finished.
#[derive(Debug)]
pub(crate) enum Unfinished {
    /// What leads into a segment that the log says is freed is forgotten, in the groups from here on.
    Forget { segment: SegmentId, from: Cursor },
    /// These tables are dropped, all in one walk through the index. Each with the entry that says so.
    DropTables { tables: BTreeMap<TableId, EntryOffset>, cursor: IndexCursor },
    /// What flushes have ended leaves the index. `again`: another flush came while the walk was on its way.
    Sweep { cursor: IndexCursor, again: bool },
}

impl ShardState {
    /// A segment is freed, says the log. What killed its entries stands before the word, but may be gone from here, which
    /// the segment's file is not yet: then a replay that began without it has taken some of them for live.
    pub fn begin_forget(&mut self, log: &Log, segment: SegmentId) {
        if log.live_bytes_in(segment) > 0 {
            let from = Cursor { offset: log.end_before(segment) };
            self.unfinished.push_back(Unfinished::Forget { segment, from });
        }
    }

    /// A table is dropped, says the entry. One without keys is gone at once: else a restart would walk through the whole
    /// index for each drop that its log still tells of.
    pub fn begin_drop(&mut self, table: TableId, entry: EntryOffset, dead: &mut Vec<EntryOffset>) {
        if !self.store.has_objects_of(table) {
            dead.extend(self.store.forget_flush(table));
            return dead.push(entry);
        }
        for unfinished in &mut self.unfinished {
            if let Unfinished::DropTables { tables, .. } = unfinished {
                dead.extend(tables.insert(table, entry));
                return;
            }
        }
        let tables = BTreeMap::from([(table, entry)]);
        self.unfinished.push_back(Unfinished::DropTables { tables, cursor: IndexCursor::default() });
    }

    /// What a flush has ended leaves the index, says the log of a follower, or the store of a primary.
    pub fn begin_sweep(&mut self) {
        for unfinished in &mut self.unfinished {
            if let Unfinished::Sweep { again, .. } = unfinished {
                *again = true;
                return;
            }
        }
        self.unfinished.push_back(Unfinished::Sweep { cursor: IndexCursor::default(), again: false });
    }

    pub fn has_unfinished(&self) -> bool {
        !self.unfinished.is_empty() || self.store.has_flushed()
    }

    /// Whether segments must stay that the log says are freed.
    pub fn is_forgetting(&self) -> bool {
        self.unfinished.iter().any(|unfinished| matches!(unfinished, Unfinished::Forget { .. }))
    }

    pub fn is_dropping(&self, dropped: TableId) -> bool {
        self.unfinished.iter().any(|unfinished| match unfinished {
            Unfinished::DropTables { tables, .. } => tables.contains_key(&dropped),
            Unfinished::Forget { .. } | Unfinished::Sweep { .. } => false,
        })
    }

    /// Goes on with what was begun first, for about so many steps. `dead` is scratch memory. Says what it did.
    pub fn go_on(&mut self, log: &mut Log, dead: &mut Vec<EntryOffset>, steps: usize) -> Option<Work> {
        dead.clear();
        let (first, is_done) = self.advance(log, dead, steps)?;
        log.kill_all(dead);
        let work = match first {
            Unfinished::Forget { segment, .. } => {
                let left = log.live_bytes_in(segment);
                assert!(!is_done || left == 0, "{left} bytes of {segment:?} live, and nothing leads there");
                Work::Forget
            }
            Unfinished::DropTables { .. } | Unfinished::Sweep { .. } => Work::DropTable,
        };
        if !is_done {
            self.unfinished.push_front(first);
        }
        Some(work)
    }

    /// Finishes all of it in a state that the log's liveness does not follow. For a comparison.
    pub fn finish_all(&mut self, log: &Log) {
        while let Some((first, is_done)) = self.advance(log, &mut Vec::new(), usize::MAX) {
            if !is_done {
                self.unfinished.push_front(first);
            }
        }
    }

    /// Takes what was begun first a step further, and says whether it is done.
    fn advance(&mut self, log: &Log, dead: &mut Vec<EntryOffset>, steps: usize) -> Option<(Unfinished, bool)> {
        if self.unfinished.is_empty() && self.store.has_flushed() {
            self.begin_sweep(); // a primary has flushed a table
        }
        let mut first = self.unfinished.pop_front()?;
        let is_done = match &mut first {
            Unfinished::Forget { segment, from } => self.forget_slice(log, *segment, from, steps, dead),
            Unfinished::DropTables { tables, cursor } => {
                let (store, buckets) = (&mut self.store, steps.div_ceil(ENTRIES_OF_BUCKET));
                let is_it = |table| tables.contains_key(&table);
                if store.drop_tables_slice(log, is_it, cursor, buckets, |at| dead.push(at)) {
                    *cursor = IndexCursor::default(); // for a table that joined on the way
                }
                tables.retain(|&table, entry| {
                    let has_objects = store.has_objects_of(table);
                    if !has_objects {
                        dead.push(*entry);
                        dead.extend(store.forget_flush(table));
                    }
                    has_objects
                });
                tables.is_empty()
            }
            Unfinished::Sweep { cursor, again } => {
                let buckets = steps.div_ceil(ENTRIES_OF_BUCKET);
                let is_through = self.store.sweep_slice(log, cursor, buckets, |at| dead.push(at));
                let is_done = is_through && !*again && !self.store.has_flushed();
                if is_through {
                    (*cursor, *again) = (IndexCursor::default(), false);
                }
                is_done
            }
        };
        Some((first, is_done))
    }

    /// Tombstones are known by their segment; for all else its groups are looked through, if anything of it lives.
    fn forget_slice(
        &mut self,
        log: &Log,
        segment: SegmentId,
        from: &mut Cursor,
        steps: usize,
        dead: &mut Vec<EntryOffset>,
    ) -> bool {
        if !self.store.forget_tombstones(log, segment, steps, |at| dead.push(at)) || !dead.is_empty() {
            return false; // what of it lives is known once these are killed
        }
        if log.live_bytes_in(segment) == 0 {
            return true;
        }
        let mut looked_at = 0;
        while looked_at < steps {
            let Some(group) = log.next_group(from).filter(|group| log.segment_at(group.start) == segment) else {
                return true;
            };
            for (at, _) in group.entries {
                dead.extend(self.forget_entry(log, at).then_some(at));
                looked_at += 1;
            }
        }
        false
    }

    /// Whether the state led to this entry, which it does no more. Tombstones are forgotten before.
    fn forget_entry(&mut self, log: &Log, at: EntryOffset) -> bool {
        let entry = log.entry(at);
        match entry.kind {
            EntryKind::Object => self.store.forget_object(log, at),
            EntryKind::VersionFloor => self.store.forget_floor_entry(at),
            EntryKind::TableFlushed => self.store.forget_flush_entry(at, entry.payload),
            EntryKind::Completion => {
                let record = CompletionRecordRef::decode(entry.payload).expect("our own completion record");
                self.tracker.forget(record.request.rpc, at)
            }
            EntryKind::OperationKey => {
                let record = OperationKeyRecord::decode(entry.payload).expect("our own operation key");
                let hash = record.name.hash();
                self.operation_keys.forget(hash, at)
            }
            EntryKind::ExpiryFloor => self.floor_entry.take_if(|known| *known == at).is_some(),
            EntryKind::OperationKeyDropped => self.dropped_key_entry.take_if(|known| *known == at).is_some(),
            EntryKind::DistributedProposed
            | EntryKind::DistributedEnded
            | EntryKind::TimestampCeiling
            | EntryKind::DistributedForgotten
            | EntryKind::Gate => self.distributed.forget(at, entry.kind, entry.payload),
            EntryKind::Tombstone
            | EntryKind::EpochStart
            | EntryKind::Digest
            | EntryKind::SegmentFreed
            | EntryKind::TableDropped
            | EntryKind::Whole => false,
        }
    }
}
