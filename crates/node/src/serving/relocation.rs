//! What of a shard's log lives, and moving it: the owners' part of cleaning, kind by kind (section 5, R5.7).
//!
//! A copy is appended while its original is what the state leads to, and the state leads to the copy from the same step on.
//! So a copy stands in the log where a change would stand that changes nothing, and a replay needs to know nothing of
//! copies: the newest entry counts.
//!
//! | kind | lives while | its copy |
//! |---|---|---|
//! | object, tombstone | the index leads to it | the same, but for `oldest` (R5.10) |
//! | completion record | its client's state leads to it | the same |
//! | operation key | the table of operation keys leads to it | the same |
//! | operation key dropped, version floor, epoch start | it is the newest of its kind | the same |
//! | table flushed | it is the newest of its table, and the table is there | the same |
//! | expiry floor | it is the newest of its kind | the same time, and no clients (below) |
//! | of transactions: proposed, ended, ceiling, forgotten, gate | `shard::distributed` says so | the same |
//! | digest, segment freed, table dropped, whole | it never does in a sealed segment | |
//!
//! **R5.8** An expiry floor's list of clients forgets what was recorded *before the entry*. At a later place the list would
//! forget too much. What it names is forgotten by then, so the copy names nobody (E1).
//! **R5.11** While a floor waits for its sync nothing is copied: a record before the floor would get behind it (R4.6).

use kasha_exactly_once::{CompletionRecordRef, ExpiryFloorEntry, OperationKeyRecord};
use kasha_log::{Entries, Entry, EntryKind, EntryOffset, GroupWriter, Log, Part, entry_bytes};
use kasha_store::{Flushed, LookUp, Movable, Store};
use kasha_types::planted::{self, Bug};
use kasha_types::{ClusterTime, KeyHash, RpcId, SegmentId, TableId};

use crate::shard::state::ShardState;

/// A live entry, to be copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moving {
    pub from: EntryOffset,
    kind: EntryKind,
    /// Bytes of the original's payload.
    len: u32,
    what: What,
}

/// What the state needs to follow an entry.
#[derive(Clone, Copy, Debug)]
enum What {
    Stored(Movable),
    Record(RpcId),
    OperationKey(KeyHash),
    DroppedOperationKey,
    VersionFloor,
    TableFlushed(TableId),
    ExpiryFloor(ClusterTime),
    EpochStart,
    /// An entry about transactions over several shards.
    Distributed,
}

impl Moving {
    /// Bytes that the copy takes in a group.
    pub fn bytes(&self) -> usize {
        entry_bytes(match self.what {
            What::ExpiryFloor(floor) if !planted::is_on(Bug::FloorCopiedAsNew) => {
                ExpiryFloorEntry { floor, clients: &[] }.encoded_len()
            }
            What::ExpiryFloor(_) => self.len as usize,
            What::Stored(_)
            | What::Record(_)
            | What::OperationKey(_)
            | What::DroppedOperationKey
            | What::VersionFloor
            | What::TableFlushed(_)
            | What::Distributed
            | What::EpochStart => self.len as usize,
        })
    }

    /// Writes the copy.
    pub fn write(&self, group: &mut GroupWriter<'_>) -> EntryOffset {
        let payload = self.from.payload();
        match self.what {
            What::Stored(movable) => {
                let head = Store::rewritten(group.log().entry(self.from).payload, movable);
                let rest = Part::Log { offset: payload + head.len() as u64, len: self.len - head.len() as u32 };
                group.entry_parts(self.kind, &[Part::Bytes(&head), rest])
            }
            What::ExpiryFloor(_) if planted::is_on(Bug::FloorCopiedAsNew) => {
                group.entry_parts(self.kind, &[Part::Log { offset: payload, len: self.len }])
            }
            What::ExpiryFloor(floor) => {
                let floor = if planted::is_on(Bug::FloorNotCopied) { ClusterTime(0) } else { floor };
                let entry = ExpiryFloorEntry { floor, clients: &[] };
                let (at, payload) = group.entry(self.kind, entry.encoded_len());
                entry.encode_into(payload);
                at
            }
            What::Record(_) if planted::is_on(Bug::RecordNotCopied) => {
                // The same record, under a name that nobody has.
                let mut head = *group.log().entry(self.from).payload.first_chunk::<8>().expect("a record");
                head[3..].fill(0x7f);
                let rest = Part::Log { offset: payload + head.len() as u64, len: self.len - head.len() as u32 };
                group.entry_parts(self.kind, &[Part::Bytes(&head), rest])
            }
            What::Record(_)
            | What::OperationKey(_)
            | What::DroppedOperationKey
            | What::VersionFloor
            | What::TableFlushed(_)
            | What::Distributed
            | What::EpochStart => group.entry_parts(self.kind, &[Part::Log { offset: payload, len: self.len }]),
        }
    }
}

impl ShardState {
    /// Notes the entries that live. `held`: the oldest segment of the log. `look_ups` is scratch memory.
    pub fn collect_movable(
        &self,
        log: &Log,
        entries: &Entries<'_>,
        held: SegmentId,
        look_ups: &mut Vec<LookUp>,
        moving: &mut Vec<Moving>,
    ) {
        let is_stored = |kind| matches!(kind, EntryKind::Object | EntryKind::Tombstone);
        let stored = entries.clone().filter(|(_, entry)| is_stored(entry.kind));
        look_ups.clear();
        look_ups.extend(stored.map(|(at, entry)| LookUp::begin(at, &entry)));
        look_ups.iter_mut().for_each(|look_up| look_up.read(&self.store));
        let mut look_ups = look_ups.iter();
        for (at, entry) in entries.clone() {
            let look_up = if is_stored(entry.kind) { look_ups.next() } else { None };
            moving.extend(self.movable(log, (at, &entry), look_up, held));
        }
    }

    /// Whether an entry lives, for whoever asks about a single one.
    pub fn is_live(&self, log: &Log, at: EntryOffset, entry: &Entry<'_>, held: SegmentId) -> bool {
        let is_stored = matches!(entry.kind, EntryKind::Object | EntryKind::Tombstone);
        let look_up = is_stored.then(|| LookUp::begin(at, entry));
        self.movable(log, (at, entry), look_up.as_ref(), held).is_some()
    }

    /// `look_up`: of an entry of the store.
    fn movable(
        &self,
        log: &Log,
        (at, entry): (EntryOffset, &Entry<'_>),
        look_up: Option<&LookUp>,
        held: SegmentId,
    ) -> Option<Moving> {
        let held = if planted::is_on(Bug::CopyNarrowsOldest) { log.segment_behind(log.end().offset) } else { held };
        let what = match entry.kind {
            EntryKind::Object | EntryKind::Tombstone => What::Stored(self.store.movable(look_up?, held)?),
            EntryKind::Completion => {
                let rpc = CompletionRecordRef::decode(entry.payload).expect("our own completion record").request.rpc;
                self.tracker.is_live(rpc, at).then_some(What::Record(rpc))?
            }
            EntryKind::OperationKey => {
                let record = OperationKeyRecord::decode(entry.payload).expect("our own operation key");
                let hash = record.name.hash();
                self.operation_keys.is_live(hash, at).then_some(What::OperationKey(hash))?
            }
            EntryKind::OperationKeyDropped => {
                (self.dropped_key_entry == Some(at)).then_some(What::DroppedOperationKey)?
            }
            EntryKind::ExpiryFloor => {
                let floor = self.tracker.floor().time();
                (self.floor_entry == Some(at)).then_some(What::ExpiryFloor(floor))?
            }
            EntryKind::VersionFloor => self.store.is_version_floor(at).then_some(What::VersionFloor)?,
            EntryKind::TableFlushed => {
                let table = Flushed::decode(entry.payload).expect("our own flush").table;
                self.store.is_flush(at, entry.payload).then_some(What::TableFlushed(table))?
            }
            EntryKind::EpochStart => log.is_epoch_start(at).then_some(What::EpochStart)?,
            EntryKind::DistributedProposed
            | EntryKind::DistributedEnded
            | EntryKind::TimestampCeiling
            | EntryKind::DistributedForgotten
            | EntryKind::Gate => {
                self.distributed.is_live(at, entry.kind, entry.payload).then_some(What::Distributed)?
            }
            EntryKind::Digest | EntryKind::SegmentFreed | EntryKind::TableDropped | EntryKind::Whole => return None,
        };
        let len = u32::try_from(entry.payload.len()).expect("within a segment");
        Some(Moving { from: at, kind: entry.kind, len, what })
    }

    /// The copy is in the log: the state leads to it, and the original is dead.
    pub fn moved(&mut self, log: &mut Log, moving: &Moving, to: EntryOffset) {
        let Moving { from, .. } = *moving;
        match moving.what {
            What::Stored(movable) => self.store.moved(log, movable, from, to),
            What::Record(rpc) => {
                assert!(self.tracker.relocate(rpc, from, to), "R5.7: {rpc} lived at {from:?}")
            }
            What::OperationKey(hash) => {
                assert!(self.operation_keys.relocate(hash, from, to), "R5.7: {hash:?} lived at {from:?}")
            }
            What::DroppedOperationKey => self.dropped_key_entry = Some(to),
            What::VersionFloor => self.store.moved_version_floor(to),
            What::TableFlushed(table) => self.store.moved_flush(table, to),
            What::ExpiryFloor(_) => self.floor_entry = Some(to),
            What::Distributed => {
                let entry = log.entry(from);
                self.distributed.relocate(from, to, (entry.kind, entry.payload));
            }
            // The log, whose kind it is, has seen the newer one.
            What::EpochStart => return,
        }
        log.kill(from);
    }
}
