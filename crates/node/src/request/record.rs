//! `record`: the completion record joins the changes in their group, and the group is committed.
//!
//! A [`Completed`] is made here only: by appending a completion record, or by finding one. Its fields are private to this
//! file, so an answer, which is built from one, can only be told of what the log holds.
//!
//! - **E4**, R4.1: changes, completion record, and what the operation key keeps are one entry group.
//! - **R4.2** Whatever was executed is recorded, failed conditions too; what was refused never comes here.
//! - **R4.5** \[M\] What a witness held neither raises the acknowledgement nor carries its own.

use kasha_exactly_once::{CompletionRecord, CompletionRecordRef, Request};
use kasha_log::{EntryKind, EntryOffset, Log, entry_bytes};
use kasha_store::Draft;
use kasha_transaction::Origin as ExecutedWhen;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{KeyHash, LogEnd, LogSlice, RpcId};

use crate::request::execute::Executed;
use crate::request::order::{Ordered, Overlap};
use crate::request::path::RequestPath;
use crate::request::wrong::record_apart;
use crate::request::{Memory, Origin, Received};
use crate::shard::transactions::{Gated, Transactions};

/// An update that has run.
pub(super) struct Completed {
    rpc: RpcId,
    /// Where its record keeps its result. `None` without records ([`crate::Baseline`]): it has none, and its memory the result.
    result: Option<LogSlice>,
    end: LogEnd,
    overlap: Overlap,
}

impl Completed {
    pub(super) fn rpc(&self) -> RpcId {
        self.rpc
    }

    /// Its result, in the log or beside it.
    pub(super) fn result<'m>(&self, memory: &'m Memory) -> (Option<LogSlice>, &'m [u8]) {
        match self.result {
            Some(slice) => (Some(slice), &[]),
            None => (None, memory.draft.result()),
        }
    }

    /// What must be synced for its record to be.
    pub(super) fn end(&self) -> LogEnd {
        self.end
    }

    pub(super) fn overlap(&self) -> Overlap {
        self.overlap
    }
}

/// Which acknowledgement of the client counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Acknowledgement {
    /// The request's: its client sent it just now.
    Sent,
    /// This shard's own log's (R4.5).
    OfTheLog,
}

impl RequestPath<'_> {
    /// Completes an update: from here on it has run (E1).
    pub(super) fn record(&mut self, executed: Executed<'_, '_, '_>, overlap: Overlap) -> Completed {
        if !self.core.options.baseline.has_records() {
            return self.commit_unrecorded(executed, overlap);
        }
        let Executed { ordered, draft, mut group, gated } = executed;
        let (keep_under, received) = (ordered.keep_under(), ordered.into_received());
        let acknowledgement = self.acknowledgement(received);
        let Received { body, request, memory, .. } = received;
        let mut request = *request;
        if acknowledgement == Acknowledgement::OfTheLog {
            request.acknowledgement = self.state.tracker.acknowledgement_of(request.rpc.client);
        }
        if planted::is_on(Bug::RecordApart) && !group.is_empty() {
            group = record_apart(group, self.epoch, draft.result());
        }
        let result = draft.result();
        let kept = keep_under.map(|key| {
            let record = key.record(body, result);
            let (at, payload) = group.entry(EntryKind::OperationKey, record.encoded_len());
            record.encode_into(payload);
            (key, at)
        });
        let completion = CompletionRecord { request, slots: &memory.slots, result };
        let (at, payload) = group.entry(EntryKind::Completion, completion.encoded_len());
        completion.encode_into(payload);
        let result = LogSlice {
            shard: self.shard,
            offset: at.payload() + completion.result_offset() as u64,
            len: result.len() as u32,
        };
        let gate_at = gated.as_ref().map(|gated| {
            let (at, payload) = group.entry(EntryKind::Gate, gated.1.len());
            payload.copy_from_slice(&gated.1);
            at
        });
        let (log, appended) = group.commit_and_release(); // E4
        let end = appended.end.offset;
        if let (Some(gated), Some(at)) = (gated, gate_at) {
            close_gate(&mut self.state.transactions, &gated.0, at, &mut memory.dead);
        }

        let Memory { dead, footprint, .. } = &mut **memory;
        let (tracker, on_dead) = (&mut self.state.tracker, |at| dead.push(at));
        match acknowledgement {
            Acknowledgement::Sent => tracker.complete(&request, at, on_dead),
            Acknowledgement::OfTheLog => tracker.complete_replayed(&request, at, on_dead),
        }
        if let Some((key, place)) = kept {
            // `order` looked: there is no record of this key.
            self.state.operation_keys.insert(key.hash, key.fingerprint, body.head.not_after, place, |_| false);
        }
        if let Some(serving) = &mut self.serving {
            serving.executed((end, self.shipping.synced()), request.rpc, changed(&draft), footprint);
        }
        // What the update replaced is dead now that its group is in the log.
        log.kill_all(dead);
        memory.draft = draft.into_spare();
        Completed { rpc: request.rpc, result: Some(result), end, overlap }
    }

    /// What is done without records ([`crate::Baseline`]): the changes alone. One that changes nothing leaves nothing behind.
    fn commit_unrecorded(&mut self, executed: Executed<'_, '_, '_>, overlap: Overlap) -> Completed {
        let Executed { ordered, draft, group, .. } = executed;
        let Received { request: Request { rpc, .. }, memory, .. } = ordered.into_received();
        let end = if group.is_empty() {
            group.log().end().offset
        } else {
            let (log, appended) = group.commit_and_release();
            log.kill_all(&mut memory.dead);
            appended.end.offset
        };
        if let Some(serving) = &mut self.serving {
            serving.executed((end, self.shipping.synced()), *rpc, changed(&draft), &memory.footprint);
        }
        memory.draft = draft.into_spare();
        Completed { rpc: *rpc, result: None, end, overlap }
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
    pub(super) fn completed_at(&self, log: &Log, at: EntryOffset, rpc: RpcId) -> Completed {
        let record = CompletionRecordRef::decode(log.entry(at).payload).expect("our own completion record");
        let offset = at.payload() + record.result_offset() as u64;
        self.saved(rpc, at, offset, record.result.len())
    }

    pub(super) fn saved(&self, rpc: RpcId, at: EntryOffset, offset: u64, len: usize) -> Completed {
        let result = LogSlice { shard: self.shard, offset, len: len as u32 };
        let end = if planted::is_on(Bug::DuplicateUngated) { LogEnd::START } else { at.end_after() };
        Completed { rpc, result: Some(result), end, overlap: Overlap::Unsynced }
    }
}

/// Its answer waits, and the answers of those that touch the same keys after it (R8.4).
#[cold]
fn close_gate(transactions: &mut Transactions, gated: &Gated, at: EntryOffset, dead: &mut Vec<EntryOffset>) {
    hit(Probe::UpdateBehindGate);
    match transactions.participant.pass(&gated.footprint, ExecutedWhen::Now) {
        Some((gate, _)) => transactions.note_gate(gated.rpc, at, gate),
        None => dead.push(at),
    }
}

/// The keys that it changed.
fn changed(draft: &Draft<'_>) -> impl Iterator<Item = KeyHash> {
    let is_noted = |is_delete: bool| !(is_delete && planted::is_on(Bug::DeletedKeyUngated));
    draft.changed().filter(move |&(_, is_delete)| is_noted(is_delete)).map(|(key, _)| key)
}

/// Bytes of the entries that `record` adds, with a result of so many bytes.
pub(super) fn record_bytes(ordered: &Ordered<'_, '_>, result: usize) -> usize {
    let kept = ordered.keep_under();
    let kept = kept.map_or(0, |key| entry_bytes(key.record(ordered.body(), &[]).encoded_len() + result));
    kept + entry_bytes(CompletionRecord::encoded_len_of(ordered.received().memory.slots.len(), result))
}
