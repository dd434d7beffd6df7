//! One shard's log and store, driven as a node drives them: a completion record with every update, replay, freeing.
#![allow(dead_code, unreachable_pub, clippy::drop_non_drop)]

use kasha_commands::Command;
use kasha_log::{Cursor, EntryKind, EntryOffset, IndexCursor, Log, LogConfig, Purpose, Screen, entry_bytes};
use kasha_store::{Flushed, ReadResult, SpareDraft, Store};
use kasha_types::{ClusterTime, Epoch, LogEnd, SegmentId, ShardId, TableId, key_hash};
use kasha_wire::operation::{CommandBuffer, ItemsBuffer, PartOperation, PartsBuffer};
use kasha_wire::{Outcome, Read, Update};

pub const SEGMENT: u32 = 64 * 1024;
/// What is done at once of what is done in slices.
const SLICE: usize = 5;
const SHARD: ShardId = ShardId(3);
const EPOCH: Epoch = Epoch(1);

fn config() -> LogConfig {
    LogConfig { segment_bytes: SEGMENT, memory_max_bytes: 256 * u64::from(SEGMENT), reserve_percent: 5 }
}

/// A replica: a log, and what is derived from it. Only the newest completion record lives, as if each client
/// acknowledged at once.
pub struct Replica {
    pub log: Log,
    pub store: Store,
    completion: Option<EntryOffset>,
    replayed: Cursor,
    /// Of the last draft: whatever it held must not show.
    spare: SpareDraft,
    /// When its updates begin, and what values that end are compared with.
    pub now: ClusterTime,
}

impl Default for Replica {
    fn default() -> Self {
        Self::of(Log::new(SHARD, config()))
    }
}

impl Replica {
    fn of(log: Log) -> Self {
        Self {
            log,
            store: Store::new(),
            completion: None,
            replayed: Cursor::START,
            spare: SpareDraft::default(),
            now: ClusterTime(0),
        }
    }

    /// What a process finds that has only this replica's files.
    pub fn restarted(&self) -> Self {
        let base = |id: SegmentId| u64::from(id.0) * u64::from(SEGMENT);
        let files = self.log.segments().map(|(id, used)| (id, self.log.bytes(base(id), used).to_vec()));
        let files: Vec<_> = files.collect();
        let (log, report) = Log::load(SHARD, config(), files.into_iter());
        assert_eq!((report.damage, report.valid_end), (None, self.log.end()));
        let mut replica = Self { now: self.now, ..Self::of(log) };
        replica.replay();
        replica
    }

    /// A backup takes what the primary wrote since, and lets go of what the log says is freed.
    pub fn follow(&mut self, primary: &Log) {
        let slices: Vec<_> = primary.pieces(self.log.end().offset, primary.end().offset, 4096).collect();
        for slice in slices {
            self.log.append_raw(primary.slice(slice), Screen::NONE).expect("it follows");
            self.replay();
            self.free_retired(self.replayed.offset);
        }
    }

    fn replay(&mut self) {
        while let Some(group) = self.log.next_group(&mut self.replayed) {
            let entries: Vec<_> = group.entries.map(|(at, entry)| (at, entry.kind)).collect();
            for (at, kind) in entries {
                self.replay_entry(at, kind);
            }
        }
    }

    fn replay_entry(&mut self, at: EntryOffset, kind: EntryKind) {
        let mut dead = Vec::new();
        let payload = self.log.entry(at).payload;
        match kind {
            EntryKind::Object | EntryKind::Tombstone => {
                self.store.replay(&self.log, at, self.log.entry(at), |at| dead.push(at));
            }
            EntryKind::VersionFloor => self.store.replay_version_floor(at, payload, |at| dead.push(at)),
            EntryKind::TableDropped => {
                let table = TableId(u32::from_le_bytes(payload.try_into().unwrap()));
                let (mut cursor, mut is_whole) = (IndexCursor::default(), false);
                while !is_whole {
                    is_whole = self.store.drop_tables_slice(
                        &self.log,
                        |it| it == table,
                        &mut cursor,
                        SLICE,
                        |at| dead.push(at),
                    );
                }
                dead.push(at);
                dead.extend(self.store.forget_flush(table));
            }
            EntryKind::TableFlushed => {
                if self.store.replay_flush(at, payload, |at| dead.push(at)) {
                    let mut cursor = IndexCursor::default();
                    while !self.store.sweep_slice(&self.log, &mut cursor, SLICE, |at| dead.push(at)) {}
                }
            }
            EntryKind::Completion => dead.extend(self.completion.replace(at)),
            EntryKind::SegmentFreed => {
                let segment = SegmentId(u32::from_le_bytes(payload.try_into().unwrap()));
                return self.forget(segment);
            }
            EntryKind::Digest => {}
            other => unreachable!("nobody wrote {other:?}"),
        }
        dead.into_iter().for_each(|at| self.log.kill(at));
    }

    fn append(&mut self, kind: EntryKind, payload: &[u8]) {
        let mut group = self.log.begin(EPOCH, entry_bytes(payload.len()), Purpose::Freeing).expect("memory");
        let (at, bytes) = group.entry(kind, payload.len());
        bytes.copy_from_slice(payload);
        group.commit();
        self.replay_entry(at, kind);
        self.replayed.offset = self.log.end().offset;
    }

    /// Executes an update with its completion record; gives the result, and whether anything changed.
    pub fn execute_raw(&mut self, table: TableId, update: &Update<'_>) -> (Vec<u8>, bool) {
        let mut dead = Vec::new();
        let mut draft = self.store.draft(&self.log, (table, self.now.into()), update, std::mem::take(&mut self.spare));
        let (result, changes) = (draft.result().to_vec(), !draft.is_empty());
        let needed = draft.bytes() + entry_bytes(result.len());
        let mut group = self.log.begin(EPOCH, needed, Purpose::Normal).expect("memory");
        self.store.write(&mut group, &mut draft, &mut dead);
        self.spare = draft.into_spare();
        assert_eq!(group.room(), entry_bytes(result.len()), "a draft knows its size");
        let (at, payload) = group.entry(EntryKind::Completion, result.len());
        payload.copy_from_slice(&result);
        group.commit();
        dead.extend(self.completion.replace(at));
        dead.into_iter().for_each(|at| self.log.kill(at));
        self.replayed.offset = self.log.end().offset;
        (result, changes)
    }

    /// Deletes all values whose time is over, some at a time.
    pub fn expire(&mut self) {
        let mut after = None;
        loop {
            let due = self.store.due(&self.log, after, self.now).take(SLICE);
            let due: Vec<_> = due.map(|(ending, table, key)| (ending, table, key.to_vec())).collect();
            let Some(&(last, ..)) = due.last() else { return };
            after = Some(last);
            let keys = due.iter().map(|(_, table, key)| (*table, &key[..]));
            let mut draft = self.store.draft_expired(&self.log, keys, self.now, std::mem::take(&mut self.spare));
            let (mut dead, changes) = (Vec::new(), draft.changed().count());
            assert_eq!(changes, due.len(), "each of them goes");
            let mut group = self.log.begin(EPOCH, draft.bytes(), Purpose::Freeing).expect("memory");
            self.store.write(&mut group, &mut draft, &mut dead);
            assert_eq!(group.room(), 0, "a draft knows its size");
            group.commit();
            dead.into_iter().for_each(|at| self.log.kill(at));
            self.replayed.offset = self.log.end().offset;
        }
    }

    pub fn execute(&mut self, table: TableId, update: &Update<'_>) -> (Outcome, bool) {
        let (result, changes) = self.execute_raw(table, update);
        let outcome = Outcome::decode(update.shape(), &result);
        (outcome.expect("a result of this update"), changes)
    }

    pub fn read(&self, table: TableId, read: &Read<'_>) -> Outcome {
        let mut result = vec![0xee; 3];
        let mut hashes = Vec::new();
        read.for_each_key(table, |table, key| hashes.push(key_hash(table, key)));
        match self.store.read(&self.log, table, read, &hashes, &mut result) {
            ReadResult::Whole => {}
            ReadResult::Tail(slice) => result.extend(self.log.slice(slice)),
            ReadResult::TooLarge => panic!("small values"),
        }
        Outcome::decode(read.shape(), &result).expect("a result of this read")
    }

    pub fn put(&mut self, table: TableId, key: &[u8], value: &[u8]) -> u64 {
        match self.execute(table, &Update::put(key, value)).0 {
            Outcome::Version(version) => version,
            other => panic!("{other:?}"),
        }
    }

    pub fn delete(&mut self, table: TableId, key: &[u8]) -> Outcome {
        self.execute(table, &Update::delete(key)).0
    }

    /// Version and value of each key, in one read.
    pub fn values(&self, table: TableId, keys: &[&[u8]]) -> Vec<Option<(u64, Vec<u8>)>> {
        match self.read(table, &Read::MultiGet { keys: ItemsBuffer::keys(keys.iter().copied()).as_items() }) {
            Outcome::Values(values) => values,
            other => panic!("{other:?}"),
        }
    }

    pub fn drop_table(&mut self, table: TableId) {
        self.append(EntryKind::TableDropped, &table.0.to_le_bytes());
    }

    /// Flushes a table. Gives the version that its keys' versions are above from then on; `None`: the table has none with a value.
    pub fn flush(&mut self, table: TableId) -> Option<u64> {
        let end = self.log.end().offset;
        let command = CommandBuffer::new(Command::FlushDb.row(), [&b"0"[..]]).expect("a key");
        let mut parts = PartsBuffer::default();
        parts.push(table, &PartOperation::Command(command.as_command()));
        let has_keys = self.store.keys_of(table) > 0;
        let (_, changes) = self.execute_raw(table, &Update::Transaction { parts: parts.as_parts() });
        assert_eq!((changes, self.store.keys_of(table)), (has_keys, 0));
        let mut entries = self.log.groups_from(end).flat_map(|group| group.entries);
        let flush = entries.find(|(_, entry)| entry.kind == EntryKind::TableFlushed);
        flush.map(|(_, entry)| Flushed::decode(entry.payload).expect("a flush").version)
    }

    /// What a primary does between requests: some of what was flushed leaves the index.
    pub fn sweep(&mut self, cursor: &mut IndexCursor) -> bool {
        let mut dead = Vec::new();
        let is_through = self.store.sweep_slice(&self.log, cursor, 1, |at| dead.push(at));
        dead.into_iter().for_each(|at| self.log.kill(at));
        is_through
    }

    pub fn sweep_all(&mut self) {
        while self.store.has_flushed() {
            let mut cursor = IndexCursor::default();
            while !self.sweep(&mut cursor) {}
        }
    }

    /// What a primary does when it begins to serve: a replay may have brought dropped tables back.
    pub fn drop_tables_but(&mut self, tables: &[TableId]) {
        let gone: Vec<_> = self.store.tables().filter(|table| !tables.contains(table)).collect();
        gone.into_iter().for_each(|table| self.drop_table(table));
    }

    fn free_retired(&mut self, up_to: LogEnd) {
        while let Some(segment) = self.log.retired(up_to) {
            self.log.free(segment);
            self.store.segment_is_gone(segment);
        }
    }

    /// Forgets what leads into a freed segment.
    fn forget(&mut self, segment: SegmentId) {
        let after = self.log.segment_base(SegmentId(segment.0 + 1));
        let mut dead = Vec::new();
        while !self.store.forget_tombstones(&self.log, segment, SLICE, |at| dead.push(at)) {}
        let groups = self.log.groups_from(self.log.end_before(segment)).take_while(|group| group.start < after);
        let entries: Vec<_> = groups.flat_map(|group| group.entries).map(|(at, entry)| (at, entry.kind)).collect();
        for (at, kind) in entries {
            let was_known = match kind {
                EntryKind::Object => self.store.forget_object(&self.log, at),
                EntryKind::VersionFloor => self.store.forget_floor_entry(at),
                EntryKind::TableFlushed => self.store.forget_flush_entry(at, self.log.entry(at).payload),
                EntryKind::Completion => self.completion.take_if(|known| *known == at).is_some(),
                _ => false,
            };
            dead.extend(was_known.then_some(at));
        }
        dead.into_iter().for_each(|at| self.log.kill(at));
        assert_eq!(self.log.live_bytes_in(segment), 0, "what leads into it is what is not known dead");
    }

    fn tend_all_graves(&mut self) -> usize {
        let mut count = 0;
        while self.store.has_graves_to_tend() {
            let mut dead = Vec::new();
            self.store.tend_graves(&self.log, SLICE, |at| dead.push(at));
            assert!(dead.len() <= SLICE);
            count += dead.len();
            dead.into_iter().for_each(|at| self.log.kill(at));
        }
        count
    }

    /// Frees what is dead, everything being synced.
    pub fn free_segments(&mut self) {
        self.free_retired(self.log.end().offset);
        while let Some(segment) = self.log.freeable(self.log.end().offset) {
            let mut group = self.log.begin(EPOCH, entry_bytes(4), Purpose::Freeing).expect("memory");
            group.segment_freed(segment);
            group.commit();
            self.replayed.offset = self.log.end().offset;
        }
        self.free_retired(self.log.end().offset);
        self.log.bury();
    }

    /// Logs the version floor that the droppable tombstones want.
    pub fn raise_floor(&mut self) -> Option<u64> {
        self.tend_all_graves();
        let floor = self.store.wanted_version_floor()?;
        self.append(EntryKind::VersionFloor, &floor.to_le_bytes());
        assert_eq!(self.store.version_floor(), floor);
        Some(floor)
    }

    /// The floor is synced. Gives how many tombstones went.
    pub fn drop_graves(&mut self) -> usize {
        let before = self.store.stats().tombstones;
        let count = self.tend_all_graves();
        assert_eq!(self.store.stats().tombstones, before - count as u64);
        count
    }

    /// Objects and tombstones; the index's size depends on its history.
    pub fn counts(&self) -> (u64, u64) {
        let stats = self.store.stats();
        (stats.objects, stats.tombstones)
    }
}
