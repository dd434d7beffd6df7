//! What is derived from a shard's log: objects, completion records, operation keys, floors. Built by executing at a
//! primary, by replay everywhere else; both must come to the same.

use std::collections::VecDeque;

use kasha_exactly_once::{
    CompletionRecordRef, ExpiryFloorEntryRef, OperationKeyDropped, OperationKeyRecord, OperationKeys, Request, Tracker,
};
use kasha_log::{Entry, EntryKind, EntryOffset, Log, entry_bytes};
use kasha_store::Store;
use kasha_types::planted::{self, Bug};
use kasha_types::{ClusterTime, KeyHash, OperationName, SegmentId, ShardId, TableId};

use crate::shard::distributed::{self, Distributed};
use crate::shard::unfinished::Unfinished;

/// A shard's state.
#[derive(Debug)]
pub(crate) struct ShardState {
    pub store: Store,
    pub tracker: Tracker,
    pub operation_keys: OperationKeys,
    /// The greatest ClusterTime that the log speaks of: travels with the shard (R4.6, pitfall 4).
    pub cluster_time: ClusterTime,
    pub floor_entry: Option<EntryOffset>,
    /// The newest dropped operation key: carries the ClusterTime at which it had expired, so that older ones, should a
    /// replay find them again, are known to have expired too.
    pub dropped_key_entry: Option<EntryOffset>,
    pub unfinished: VecDeque<Unfinished>,
    /// What the log says of transactions over several shards.
    pub distributed: Distributed,
}

/// Whether the owner of an entry's kind can read it: what comes from a peer is looked at before it is kept.
pub(crate) fn is_sound(kind: EntryKind, payload: &[u8]) -> bool {
    match kind {
        EntryKind::Object | EntryKind::Tombstone | EntryKind::TableFlushed => kasha_store::is_sound(kind, payload),
        EntryKind::Completion => CompletionRecordRef::decode(payload).is_some(),
        EntryKind::OperationKey => OperationKeyRecord::decode(payload).is_some(),
        EntryKind::OperationKeyDropped => OperationKeyDropped::decode(payload).is_some(),
        EntryKind::ExpiryFloor => ExpiryFloorEntryRef::decode(payload).is_some(),
        EntryKind::VersionFloor | EntryKind::Whole => payload.len() >= 8,
        EntryKind::TableDropped => payload.len() >= 4,
        EntryKind::DistributedProposed
        | EntryKind::DistributedEnded
        | EntryKind::TimestampCeiling
        | EntryKind::DistributedForgotten
        | EntryKind::Gate => distributed::is_sound(kind, payload),
        // The log's own, which checks them.
        EntryKind::EpochStart | EntryKind::Digest | EntryKind::SegmentFreed => true,
    }
}

/// What the end of an update takes at most to be [`Purpose::Unblocking`]: a record with a short answer.
///
/// [`Purpose::Unblocking`]: kasha_log::Purpose::Unblocking
pub(crate) const UNBLOCKING_BYTES_MAX: usize = 256;

/// What these entries take in the log.
pub(crate) fn bytes_of(log: &Log, entries: impl Iterator<Item = EntryOffset>) -> usize {
    entries.map(|at| entry_bytes(log.entry(at).payload.len())).sum()
}

impl ShardState {
    /// The state of a shard with an empty log.
    pub fn new(shard: ShardId) -> Self {
        Self {
            store: Store::default(),
            tracker: Tracker::default(),
            operation_keys: OperationKeys::default(),
            cluster_time: ClusterTime(0),
            floor_entry: None,
            dropped_key_entry: None,
            unfinished: VecDeque::new(),
            distributed: Distributed::new(shard),
        }
    }

    /// Whether the end of this update, in so many bytes of entries, lets its client acknowledge as much or more (R5.16). It takes little,
    /// since nobody promises that the client does.
    pub fn unblocks(&self, log: &Log, request: &Request, bytes: usize) -> bool {
        bytes <= UNBLOCKING_BYTES_MAX && bytes_of(log, self.tracker.held_up_by(request)) >= bytes
    }

    /// Applies a primary's own entry as each follower's replay will. But what opens by it is the primary's to tell.
    pub fn apply_own(&mut self, log: &Log, at: EntryOffset, dead: &mut Vec<EntryOffset>) {
        let entry = log.entry(at);
        match entry.kind {
            EntryKind::TimestampCeiling | EntryKind::DistributedForgotten => {
                self.distributed.apply(log, &mut self.tracker, (at, entry.kind, entry.payload), dead);
            }
            _ => self.replay(log, at, entry, dead),
        }
    }

    /// Replays the entry that stands in the log at `at`. `dead`: entries that it makes unneeded. What takes longer it
    /// only begins ([`Self::go_on`]).
    pub fn replay(&mut self, log: &Log, at: EntryOffset, entry: Entry<'_>, dead: &mut Vec<EntryOffset>) {
        match entry.kind {
            EntryKind::Object | EntryKind::Tombstone => self.store.replay(log, at, entry, |at| dead.push(at)),
            EntryKind::Completion => {
                let record = CompletionRecordRef::decode(entry.payload).expect("our own completion record");
                self.tracker.recover(&record.request, at, |at| dead.push(at));
            }
            EntryKind::OperationKey => self.replay_operation_key(log, at, entry.payload, dead),
            EntryKind::OperationKeyDropped => {
                let dropped = OperationKeyDropped::decode(entry.payload).expect("our own dropped key");
                self.drop_operation_key(log, &dropped, at, dead);
            }
            EntryKind::ExpiryFloor => {
                let floor = ExpiryFloorEntryRef::decode(entry.payload).expect("our own expiry floor");
                if floor.floor < self.tracker.floor().time() {
                    // A floor that fell would be a bug of the primary, and no reason to fall here (F2).
                    dead.push(at);
                } else {
                    self.raise_floor(floor.floor, floor.clients(), at, dead);
                }
            }
            EntryKind::VersionFloor => {
                self.store.replay_version_floor(at, entry.payload, |at| dead.push(at));
            }
            EntryKind::TableDropped => {
                let table = entry.payload.first_chunk::<4>().expect("our own dropped table");
                let table = TableId(u32::from_le_bytes(*table));
                self.begin_drop(table, at, dead);
            }
            EntryKind::TableFlushed => {
                if self.store.replay_flush(at, entry.payload, |at| dead.push(at)) {
                    self.begin_sweep();
                }
            }
            EntryKind::SegmentFreed => {
                let segment = entry.payload.first_chunk::<4>().expect("our own freed segment");
                self.begin_forget(log, SegmentId(u32::from_le_bytes(*segment)));
            }
            EntryKind::DistributedProposed
            | EntryKind::DistributedEnded
            | EntryKind::TimestampCeiling
            | EntryKind::DistributedForgotten
            | EntryKind::Gate => {
                self.distributed.replay(log, &mut self.tracker, (at, entry.kind, entry.payload), dead);
            }
            EntryKind::Whole => dead.push(at),
            EntryKind::EpochStart | EntryKind::Digest => {}
        }
    }

    fn replay_operation_key(&mut self, log: &Log, at: EntryOffset, payload: &[u8], dead: &mut Vec<EntryOffset>) {
        let record = OperationKeyRecord::decode(payload).expect("our own operation key");
        let hash = record.name.hash();
        let is_key = |at| is_operation_key(log, at, &record.name);
        let on_dead = |at| dead.push(at);
        self.operation_keys.recover(hash, record.fingerprint, record.expires_at, at, is_key, on_dead);
    }

    /// Forgets an expired operation key, as the entry at `at` says.
    fn drop_operation_key(
        &mut self,
        log: &Log,
        dropped: &OperationKeyDropped<'_>,
        at: EntryOffset,
        dead: &mut Vec<EntryOffset>,
    ) {
        self.cluster_time = self.cluster_time.max(dropped.at);
        let hash = dropped.name.hash();
        let is_key = |at| is_operation_key(log, at, &dropped.name);
        dead.extend(self.operation_keys.drop_key(hash, dropped.at, is_key));
        dead.extend(self.dropped_key_entry.replace(at));
    }

    /// Raises the expiry floor, as the entry at `at` says (R4.6).
    pub fn raise_floor(
        &mut self,
        floor: ClusterTime,
        clients: impl IntoIterator<Item = kasha_types::ClientId>,
        at: EntryOffset,
        dead: &mut Vec<EntryOffset>,
    ) {
        assert!(floor >= self.tracker.floor().time(), "R4.6: the expiry floor goes down");
        self.cluster_time = self.cluster_time.max(floor);
        // Between the verdict and the synced entry a client may have come back with a later lease, or what was under way may have ended: the
        // floor does not refuse the one, and a replay finds the record of the other behind the entry. So these stay. Those before the
        // entry go, as they do where a follower replays it: whichever of the two is asked next must say the same.
        for client in clients {
            self.tracker.forget_before(client, at, |at| dead.push(at));
        }
        let floor = if planted::is_on(Bug::ExpiryWithoutFloor) { ClusterTime(0) } else { floor };
        self.tracker.raise_floor(floor);
        dead.extend(self.floor_entry.replace(at));
    }

    /// When an operation key expires, and where its record is; `None`: it is not known.
    pub fn operation_key_expiry(
        &self,
        log: &Log,
        hash: KeyHash,
        name: &OperationName<'_>,
    ) -> Option<(ClusterTime, EntryOffset)> {
        self.operation_keys.expiry(hash, |at| is_operation_key(log, at, name))
    }

    /// Where an operation key's record is, whatever it says of expiry.
    pub fn find_operation_key(
        &self,
        log: &Log,
        hash: KeyHash,
        fingerprint: kasha_exactly_once::Fingerprint,
        name: &OperationName<'_>,
    ) -> kasha_exactly_once::OperationKeyCheck {
        self.operation_keys.check(hash, fingerprint, |at| is_operation_key(log, at, name))
    }
}

/// Whether the record there is that of this operation key.
pub(crate) fn is_operation_key(log: &Log, at: EntryOffset, name: &OperationName<'_>) -> bool {
    let entry = log.entry(at);
    let record = OperationKeyRecord::decode(entry.payload).expect("our own operation key");
    record.name.is(name)
}

#[cfg(test)]
mod tests {
    use kasha_exactly_once::Request;
    use kasha_log::{LogConfig, Purpose, SEGMENT_BYTES_MIN, Screen};
    use kasha_store::SpareDraft;
    use kasha_types::{AckedBelow, BodyHash, ClientId, Epoch, LogEnd, RpcId, Sequence};
    use kasha_wire::Update;

    use super::*;

    /// A member that was away may never have had the tombstone by which a key of such a segment died.
    #[test]
    fn r4_4_a_replay_forgets_what_the_log_says_is_freed() {
        let config = LogConfig { segment_bytes: SEGMENT_BYTES_MIN, memory_max_bytes: 1 << 18, reserve_percent: 5 };
        let (mut log, mut state) = (Log::new(ShardId(0), config), ShardState::new(ShardId(0)));
        let update = |log: &mut Log, state: &mut ShardState, update: &Update<'_>| {
            let mut dead = Vec::new();
            let mut draft = state.store.draft(log, (TableId(1), ClusterTime(0).into()), update, SpareDraft::default());
            let mut group = log.begin(Epoch(1), draft.bytes(), Purpose::Own).expect("room");
            state.store.write(&mut group, &mut draft, &mut dead);
            group.commit();
            log.kill_all(&mut dead);
        };
        update(&mut log, &mut state, &Update::put(b"k", b"v"));
        while log.segments().count() < 2 {
            let mut group = log.begin(Epoch(1), 1024, Purpose::Own).expect("room");
            group.entry(EntryKind::EpochStart, 900);
            group.commit();
        }
        let replayed = |primary: &Log| {
            let mut log = Log::new(ShardId(0), config);
            for slice in primary.pieces(LogEnd::START, primary.end().offset, u32::MAX) {
                log.append_raw(primary.slice(slice), Screen::NONE).expect("it follows");
            }
            let (mut state, mut dead) = (ShardState::new(ShardId(0)), Vec::new());
            let entries = primary.groups().flat_map(|group| group.entries);
            for (at, _) in entries.filter(|(_, entry)| entry.kind != EntryKind::Tombstone) {
                state.replay(&log, at, log.entry(at), &mut dead);
                log.kill_all(&mut dead);
            }
            while state.go_on(&mut log, &mut dead, 1).is_some() {}
            state.store.stats().objects
        };
        update(&mut log, &mut state, &Update::delete(b"k"));
        assert_eq!(replayed(&log), 1);
        let mut group = log.begin(Epoch(1), 64, Purpose::Own).expect("room");
        group.segment_freed(SegmentId(0));
        group.commit();
        assert_eq!(replayed(&log), 0);
    }

    /// Seed `client_leases` 8008: a floor's entry names a client of which a transaction is under way. When that is over, the word that it had
    /// begun is cleaned away: whoever replays the log then says the same as who has seen it all.
    #[test]
    fn r4_6_a_floor_takes_the_records_of_a_client_of_which_something_is_under_way() {
        let (client, lease_expiry) = (ClientId(1), ClusterTime(1000));
        let request = |sequence| Request {
            rpc: RpcId { client, sequence: Sequence(sequence) },
            body_hash: BodyHash(sequence),
            acknowledgement: AckedBelow(1),
            lease_expiry,
        };
        // The entry is at 50, and the record of what was under way at 60. A primary raises its floor when the entry is synced, before or
        // after that; a follower where it replays the entry; and who replays a cleaned log never hears that something had begun.
        let said = |knows_begun: bool, ends_first: bool| {
            let (mut state, mut dead) = (ShardState::new(ShardId(0)), Vec::new());
            state.tracker.recover(&request(1), EntryOffset(10), |_| ());
            if knows_begun {
                state.tracker.recover_begun(&request(2));
            }
            if ends_first {
                state.tracker.complete(&request(2), EntryOffset(60), |_| ());
            }
            state.raise_floor(lease_expiry, [client], EntryOffset(50), &mut dead);
            assert_eq!(dead, [EntryOffset(10)]);
            if !ends_first {
                state.tracker.recover(&request(2), EntryOffset(60), |_| ());
            }
            state.tracker.assert_invariants();
            (1..=3).map(|sequence| state.tracker.look_up(&request(sequence))).collect::<Vec<_>>()
        };
        let replayed = said(false, false);
        assert_eq!((&said(true, false), &said(true, true)), (&replayed, &replayed));
    }

    /// A shard of so many keys in each of these tables.
    fn with_keys(keys: &[(u32, u32)]) -> (Log, ShardState) {
        let config = LogConfig { segment_bytes: 1 << 16, memory_max_bytes: 1 << 22, reserve_percent: 5 };
        let (mut log, mut state) = (Log::new(ShardId(0), config), ShardState::new(ShardId(0)));
        for &(table, count) in keys {
            for number in 0..count {
                let key = number.to_le_bytes();
                let put = Update::put(&key, b"v");
                let mut draft =
                    state.store.draft(&log, (TableId(table), ClusterTime(0).into()), &put, SpareDraft::default());
                let mut group = log.begin(Epoch(1), draft.bytes(), Purpose::Own).expect("room");
                state.store.write(&mut group, &mut draft, &mut Vec::new());
                group.commit();
            }
        }
        (log, state)
    }

    fn drop_table(log: &mut Log, state: &mut ShardState, table: u32) {
        let fill = |payload: &mut [u8]| payload.copy_from_slice(&table.to_le_bytes());
        state
            .commit_own(log, (Epoch(1), Purpose::Own), (EntryKind::TableDropped, 4), &mut Vec::new(), fill)
            .expect("room");
    }

    #[test]
    fn a_table_without_keys_is_dropped_at_once() {
        let (mut log, mut state) = with_keys(&[(1, 100)]);
        let before = log.stats().live_bytes;
        drop_table(&mut log, &mut state, 2);
        assert!(!state.has_unfinished());
        assert_eq!(log.stats().live_bytes, before, "the entry is needed no more");
    }

    #[test]
    fn tables_that_are_dropped_together_go_in_one_walk_and_one_that_joins_late_in_two() {
        let tables: Vec<_> = (1..=20).map(|table| (table, 50)).collect();
        let slices = |dropped: &[u32], late: Option<u32>| {
            let ((mut log, mut state), mut dead, mut slices) = (with_keys(&tables), Vec::new(), 0);
            dropped.iter().for_each(|&table| drop_table(&mut log, &mut state, table));
            let mut late = late.into_iter();
            while state.go_on(&mut log, &mut dead, 30).is_some() {
                slices += 1;
                late.next().into_iter().for_each(|table| drop_table(&mut log, &mut state, table));
            }
            (state.store.stats().objects, slices)
        };
        let ((left, one), (_, many), (none, late)) =
            (slices(&[1], None), slices(&Vec::from_iter(1..=19), None), slices(&Vec::from_iter(1..=19), Some(20)));
        assert_eq!((left, none), (950, 0));
        assert!(one <= many && many <= one + 4 && late <= 2 * many, "{one}, {many}, {late} slices");
    }
}
