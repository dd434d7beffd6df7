//! `record`: the completion record joins the changes in their group, and the group is committed.
//!
//! A [`Recorded`] is made here only: by appending a completion record, or by finding one. Its fields are private to this
//! file, so an answer, which is built from one, can only be told of what the log holds.
//!
//! - **E4**, R4.1: changes, completion record, and what the operation key keeps are one entry group.
//! - **R4.2** Whatever was executed is recorded, failed conditions too; what was refused never comes here.
//! - **R4.5** \[M\] What a witness held neither raises the acknowledgement nor carries its own.

use kasha_exactly_once::{CompletionRecord, CompletionRecordRef, OperationKeyRecord, Place};
use kasha_log::{EntryKind, EntryOffset, GroupWriter, Log, entry_bytes};
use kasha_store::Draft;
use kasha_types::planted::{self, Bug};
use kasha_types::{KeyHash, LogSlice, RpcId};

use super::execute::Executed;
use super::order::{Action, Ordered, Overlap};
use super::{Origin, Received, RequestPath};
use crate::ExactlyOnce;
use crate::core::Scratch;

/// A result that is in the log.
pub(super) struct Recorded {
    rpc: RpcId,
    /// Where its record keeps it. `None` with [`ExactlyOnce::Off`]: it is in the scratch memory.
    result: Option<LogSlice>,
    end: u64,
    overlap: Overlap,
}

impl Recorded {
    pub(super) fn rpc(&self) -> RpcId {
        self.rpc
    }

    pub(super) fn result(&self) -> Option<LogSlice> {
        self.result
    }

    /// What must be synced for its record to be.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn overlap(&self) -> Overlap {
        self.overlap
    }
}

/// Whose acknowledgement counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Acknowledgement {
    /// The request's: its client sent it just now.
    Sent,
    /// This shard's own log's (R4.5).
    OfTheLog,
}

impl RequestPath<'_> {
    /// Bytes of the entries that `record` adds, with a result of so many bytes.
    pub(super) fn record_bytes(&self, ordered: &Ordered<'_>, result: usize) -> usize {
        let kept = ordered.keep_under();
        let kept = kept.map_or(0, |key| entry_bytes(key.record(ordered.body(), &[]).encoded_len() + result));
        kept + entry_bytes(CompletionRecord::encoded_len_of(self.core.scratch.slots.len(), result))
    }

    /// Completes an update: from here on it has run (E1).
    pub(super) fn record(&mut self, mut group: GroupWriter<'_>, executed: Executed<'_>, overlap: Overlap) -> Recorded {
        if self.core.options.exactly_once == ExactlyOnce::Off {
            return self.commit_unrecorded(group, executed, overlap);
        }
        let Executed { ordered, draft } = executed;
        let (received, keep_under, result) = (ordered.received(), ordered.keep_under(), draft.result());
        let (mut request, acknowledgement) = (received.request, self.acknowledgement(received));
        if acknowledgement == Acknowledgement::OfTheLog {
            request.acknowledgement = self.state.tracker.acknowledgement_of(request.rpc.client);
        }
        let Scratch { dead, slots, hashes, .. } = &mut self.core.scratch;
        let kept = keep_under.map(|key| {
            let record = key.record(&received.body, result);
            let (at, payload) = group.entry(EntryKind::OperationKey, record.encoded_len());
            record.encode_into(payload);
            (key, Place(at.0))
        });
        let completion = CompletionRecord { request, slots, result };
        let (at, payload) = group.entry(EntryKind::Completion, completion.encoded_len());
        completion.encode_into(payload);
        let result = LogSlice {
            shard: self.shard,
            offset: at.payload() + completion.result_offset() as u64,
            len: result.len() as u32,
        };
        let end = group.commit().end.offset; // E4

        let (tracker, on_dead) = (&mut self.state.tracker, |place: Place| dead.push(EntryOffset(place.0)));
        match acknowledgement {
            Acknowledgement::Sent => tracker.complete(&request, Place(at.0), on_dead),
            Acknowledgement::OfTheLog if planted::is_on(Bug::StaleReplayed) || planted::is_on(Bug::ReplayedTwice) => {
                tracker.recover(&request, Place(at.0), on_dead)
            }
            Acknowledgement::OfTheLog => tracker.complete_replayed(&request, Place(at.0), on_dead),
        }
        if let Some((key, place)) = kept {
            let expires_at = received.body.head.not_after;
            // `order` looked: there is no record of this key.
            self.state.operation_keys.insert(key.hash, key.fingerprint, expires_at, place, |_| false);
        }
        if let Some(serving) = &mut self.serving {
            footprint(&ordered, &draft, hashes);
            serving.executed(end, request.rpc, hashes);
        }
        self.core.scratch.draft = draft.into_spare();
        Recorded { rpc: request.rpc, result: Some(result), end, overlap }
    }

    /// What [`ExactlyOnce::Off`] does: the changes alone. One that changes nothing leaves nothing behind.
    fn commit_unrecorded(&mut self, group: GroupWriter<'_>, executed: Executed<'_>, overlap: Overlap) -> Recorded {
        let Executed { ordered, draft } = executed;
        let end = if group.is_empty() { group.log().end().offset } else { group.commit().end.offset };
        let rpc = ordered.received().request.rpc;
        if let Some(serving) = &mut self.serving {
            footprint(&ordered, &draft, &mut self.core.scratch.hashes);
            serving.executed(end, rpc, &self.core.scratch.hashes);
        }
        self.core.scratch.draft = draft.into_spare();
        Recorded { rpc, result: None, end, overlap }
    }

    fn acknowledgement(&mut self, received: &Received<'_>) -> Acknowledgement {
        match received.origin {
            Origin::Client(_) => Acknowledgement::Sent,
            Origin::Suspect | Origin::Replay if planted::is_on(Bug::ReplayAcknowledges) => {
                self.state.tracker.prove(received.request.rpc.client, received.request.lease_expiry);
                Acknowledgement::Sent
            }
            Origin::Suspect | Origin::Replay => Acknowledgement::OfTheLog,
        }
    }

    /// A completion record that is in the log already. It may be unsynced: nothing else is known of when it ran.
    pub(super) fn recorded_at(&self, log: &Log, rpc: RpcId, place: Place) -> Recorded {
        let at = EntryOffset(place.0);
        let record = CompletionRecordRef::decode(log.entry(at).payload).expect("our own completion record");
        let offset = at.payload() + record.result_offset() as u64;
        self.saved(rpc, place, offset, record.result.len())
    }

    /// What [`Bug::HitWithoutRecord`] answers: the result from where the operation key keeps it.
    pub(super) fn unrecorded_hit(&self, log: &Log, rpc: RpcId, place: Place) -> Recorded {
        let at = EntryOffset(place.0);
        let record = OperationKeyRecord::decode(log.entry(at).payload).expect("our own operation key");
        let offset = at.payload() + record.result_offset() as u64;
        self.saved(rpc, place, offset, record.result.len())
    }

    fn saved(&self, rpc: RpcId, place: Place, offset: u64, len: usize) -> Recorded {
        let result = LogSlice { shard: self.shard, offset, len: len as u32 };
        let end = if planted::is_on(Bug::DuplicateUngated) { 0 } else { place.0 + 1 };
        Recorded { rpc, result: Some(result), end, overlap: Overlap::Unsynced }
    }
}

/// The hashes under which witnesses hold it ([`kasha_wire::Body::footprint`]).
fn footprint(ordered: &Ordered<'_>, draft: &Draft<'_>, hashes: &mut Vec<KeyHash>) {
    match ordered.action() {
        Action::Execute { .. } => {
            hashes.clear();
            hashes.extend_from_slice(draft.footprint());
            hashes.extend(ordered.body().operation_key_hash());
        }
        Action::Repeat(_) | Action::Mismatch | Action::Cancel => ordered.body().footprint(hashes),
    }
}
