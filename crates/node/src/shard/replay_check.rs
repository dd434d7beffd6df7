//! Whether a replay of what a member holds comes to the state that the member has, and whether the groups of the log are
//! what primaries wrote. For the simulator and tests.
//!
//! The cleaner and the freeing of segments take from the log whatever no replay needs; if they take more, a member that
//! replays its log anew differs from one that went on. A replay may find entries that the member knows dead, where
//! nobody can tell the difference: they are named below, and nothing else may differ.

use std::collections::BTreeSet;

use kasha_exactly_once::{CompletionRecordRef, OperationKeyRecord};
use kasha_log::{Entry, EntryKind, EntryOffset, entry_bytes};
use kasha_types::{LogEnd, SegmentId, TableId};

use crate::core::Core;
use crate::node::Node;
use crate::primary::Stage;
use crate::shard::state::ShardState;
use crate::shard::{Replica, Role};

impl Node {
    /// Compares each replica's state with that of a full replay: how many were compared, or what differs. A scan of all
    /// logs.
    ///
    /// # Errors
    /// The first difference.
    #[doc(hidden)]
    pub fn replay_equals_state(&self) -> Result<u64, String> {
        let mut compared = 0;
        for replica in self.replicas.values().filter(|replica| replica.is_comparable()) {
            let who = if replica.role.primary().is_some() { "primary" } else { "follower" };
            replica.compare(&self.core).map_err(|what| format!("{} {}: {what}", who, replica.copy.shard))?;
            compared += 1;
        }
        Ok(compared)
    }
}

impl Replica {
    /// Between a floor and its settling, a primary keeps what a replay forgets (R4.6).
    fn is_comparable(&self) -> bool {
        let is_settled = match &self.role {
            Role::Primary(primary) => match &primary.stage {
                Stage::Serving(serving) => serving.leases.pending_floor().is_none(),
                Stage::Fencing(_)
                | Stage::Fetching(_)
                | Stage::Replaying
                | Stage::Witnessing(_)
                | Stage::Syncing(_)
                | Stage::Reporting => false,
            },
            Role::Backup(_) => self.copy.is_followed(),
            Role::Idle => false,
        };
        let copy = &self.copy;
        is_settled && !self.state.has_unfinished() && copy.meta.complete && copy.log.absent().is_empty()
    }

    fn compare(&self, core: &Core) -> Result<(), String> {
        let (log, state) = (&self.copy.log, &self.state);
        for group in log.groups() {
            let start = LogEnd(group.start);
            let is_whole =
                log.verified_group(log.segment_of(EntryOffset(group.start)), start).is_ok_and(|found| found.is_some());
            if !is_whole {
                return Err(format!("the group at {start} is not what a primary wrote (D4)"));
            }
        }
        let mut replayed = ShardState::new(self.copy.shard);
        let entries = || log.groups().flat_map(|group| group.entries);
        let (mut dead, mut freed) = (Vec::new(), BTreeSet::new());
        for (at, entry) in entries() {
            replayed.replay(log, at, entry, &mut dead);
            replayed.finish_all(log);
            if let (EntryKind::SegmentFreed, Some(segment)) = (entry.kind, entry.payload.first_chunk()) {
                freed.insert(SegmentId(u32::from_le_bytes(*segment)));
            }
        }
        let held = log.segments().next().map_or(SegmentId(0), |(oldest, _)| oldest);
        // What is freed is about to go, and is forgotten before.
        let entries = || entries().filter(|(at, _)| !freed.contains(&log.segment_of(*at)));
        let mut live = (SegmentId(0), 0);
        for (at, entry) in entries() {
            let lives = state.is_live(log, at, &entry, held);
            let comes_back = replayed.is_live(log, at, &entry, held);
            if lives && !comes_back {
                return Err(format!("a replay loses {:?} at {}", entry.kind, at.0));
            }
            if comes_back && !lives && !self.may_come_back(core, &entry, at) {
                return Err(format!("a replay brings {:?} at {} back", entry.kind, at.0));
            }
            let segment = log.segment_of(at);
            if segment != live.0 {
                self.compare_live_bytes(live)?;
                live = (segment, 0);
            }
            live.1 +=
                if lives { u32::try_from(entry_bytes(entry.payload.len())).expect("within a segment") } else { 0 };
        }
        self.compare_live_bytes(live)?;
        let floors = |state: &ShardState| (state.tracker.floor().time(), state.store.version_floor());
        if floors(&replayed) != floors(state) {
            return Err(format!("floors: a replay has {:?}, not {:?}", floors(&replayed), floors(state)));
        }
        if replayed.cluster_time < state.cluster_time {
            return Err(format!("ClusterTime: {:?}, not {:?}", replayed.cluster_time, state.cluster_time));
        }
        Ok(())
    }

    /// What the log counts as live is what the owners call live: less would be freed too early, more never.
    fn compare_live_bytes(&self, (segment, live): (SegmentId, u32)) -> Result<(), String> {
        let log = &self.copy.log;
        let counted = log.live_bytes_in(segment);
        // The digest of the segment that is being filled is the log's own, and lives.
        let head = log.segments().map(|(id, _)| id).last();
        if counted != live && head != Some(segment) && log.used_bytes(segment).is_some() {
            return Err(format!("{segment:?} counts {counted} live bytes, and owners call {live} live"));
        }
        Ok(())
    }

    /// Whether nobody can tell that an entry, which is dead here, lives in a replay.
    fn may_come_back(&self, core: &Core, entry: &Entry<'_>, at: EntryOffset) -> bool {
        let state = &self.state;
        match entry.kind {
            // Its client was forgotten, and the copy of a floor does not say so. The record tells what has happened.
            EntryKind::Completion => {
                let record = CompletionRecordRef::decode(entry.payload).expect("our own completion record");
                record.request.lease_expiry <= state.tracker.floor().time()
            }
            EntryKind::OperationKey => {
                let record = OperationKeyRecord::decode(entry.payload).expect("our own operation key");
                record.expires_at <= state.cluster_time
            }
            // The configuration does not have the table any more, and a primary drops it again.
            EntryKind::Object | EntryKind::TableFlushed => {
                let table = TableId(u32::from_le_bytes(*entry.payload.first_chunk().expect("our own entry")));
                let configuration = core.configuration.as_ref();
                configuration.is_some_and(|all| !all.has_table(table))
            }
            EntryKind::Tombstone => {
                let held: Vec<_> = self.copy.log.segments().map(|(id, _)| id).collect();
                let own = self.copy.log.segment_of(at);
                state.store.is_needless(entry, own, |id| held.binary_search(&id).is_err())
            }
            // It has opened. A new primary takes nothing as settled, and asks again (R8.6).
            EntryKind::Gate => true,
            _ => false,
        }
    }
}
