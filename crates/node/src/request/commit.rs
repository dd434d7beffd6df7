//! `commit`: the completion record joins the changes in their group, and the group is committed.
//!
//! A [`Completed`] is made here only: by committing a completion record, or by finding one. Its fields are private to this
//! file, so an answer, which is built from one, can only be told of what the log holds.
//!
//! - **E4**, R4.1: changes, completion record, and what the operation key keeps are one entry group.
//! - **R4.2** Whatever was executed is recorded, failed conditions too; what was refused never comes here.
//! - **R4.5** \[M\] What a witness held neither raises the acknowledgement nor carries its own.

use kasha_distributed::Origin as ExecutedWhen;
use kasha_exactly_once::{CompletionRecord, CompletionRecordRef, Request};
use kasha_log::{EntryKind, EntryOffset, Full, GroupWriter, Log, entry_bytes};
use kasha_store::Draft;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{KeyHash, LogEnd, LogSlice, RpcId, Slot};
use kasha_wire::{Body, OutcomeCode};

use crate::request::draft::Drafted;
use crate::request::order::Overlap;
use crate::request::path::{RequestPath, Stop};
use crate::request::{Memory, Origin, Received, Why};
use crate::shard::commit::Entries;
use crate::shard::distributed::{Distributed, Gated};
use crate::shard::operation_keys::OperationKey;
use crate::shard::state::ShardState;

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

/// What belongs to an update beside its changes: its completion record, what its operation key keeps, its gate.
pub(super) struct Record<'r, 'a> {
    request: Request,
    acknowledgement: Acknowledgement,
    body: &'r Body<'a>,
    slots: &'r [Slot],
    keep_under: Option<OperationKey<'a>>,
    /// What its answer waits for, if that is anything (R8.4).
    gated: Option<Box<(Gated, Vec<u8>)>>,
}

/// Where its entries begin.
pub(super) struct Places {
    completion: EntryOffset,
    result: LogSlice,
    kept: Option<EntryOffset>,
    gate: Option<EntryOffset>,
}

impl Entries for Record<'_, '_> {
    type Places = Places;
    type Done = LogSlice;

    #[inline(always)]
    fn bytes(&self, result: &[u8]) -> usize {
        let kept = self.keep_under.map_or(0, |key| entry_bytes(key.record(self.body, result).encoded_len()));
        let gate = self.gated.as_ref().map_or(0, |gated| entry_bytes(gated.1.len()));
        kept + entry_bytes(CompletionRecord::encoded_len_of(self.slots.len(), result.len())) + gate
    }

    #[inline(always)]
    fn write(&mut self, group: &mut GroupWriter<'_>, result: &[u8]) -> Places {
        let kept = self.keep_under.map(|key| {
            let record = key.record(self.body, result);
            let (at, payload) = group.entry(EntryKind::OperationKey, record.encoded_len());
            record.encode_into(payload);
            at
        });
        let record = CompletionRecord { request: self.request, slots: self.slots, result };
        let (completion, payload) = group.entry(EntryKind::Completion, record.encoded_len());
        record.encode_into(payload);
        let offset = completion.payload() + record.result_offset() as u64;
        let gate = self.gated.as_ref().map(|gated| {
            let (at, payload) = group.entry(EntryKind::Gate, gated.1.len());
            payload.copy_from_slice(&gated.1);
            at
        });
        let result = LogSlice { shard: group.log().shard(), offset, len: result.len() as u32 };
        Places { completion, result, kept, gate }
    }

    #[inline(always)]
    fn apply(
        self,
        state: &mut ShardState,
        _: &mut Log,
        places: Places,
        _: LogEnd,
        dead: &mut Vec<EntryOffset>,
    ) -> LogSlice {
        if let (Some(gated), Some(at)) = (self.gated, places.gate) {
            close_gate(&mut state.distributed, &gated.0, at, dead);
        }
        let (request, at) = (&self.request, places.completion);
        match self.acknowledgement {
            Acknowledgement::Sent => state.tracker.complete(request, at, |at| dead.push(at)),
            Acknowledgement::OfTheLog => state.tracker.complete_replayed(request, at, |at| dead.push(at)),
        }
        if let (Some(key), Some(at)) = (self.keep_under, places.kept) {
            // `order` looked: there is no record of this key.
            state.operation_keys.insert(key.hash, key.fingerprint, self.body.head.not_after, at, |_| false);
        }
        places.result
    }
}

impl RequestPath<'_> {
    /// Completes an update, the last that can be refused: what was drafted is done, and from here on it has run (E1).
    pub(super) fn commit(
        &mut self,
        log: &mut Log,
        drafted: Drafted<'_, '_>,
        overlap: Overlap,
    ) -> Result<Completed, Stop> {
        let gated = self.gated(&drafted);
        let (mut ordered, mut draft) = drafted.into_parts();
        let acknowledgement = self.acknowledgement(ordered.received());
        let mut request = ordered.received().request;
        if acknowledgement == Acknowledgement::OfTheLog {
            request.acknowledgement = self.state.tracker.acknowledgement_of(request.rpc.client);
        }
        let (slots, mut dead) =
            (std::mem::take(&mut ordered.memory().slots), std::mem::take(&mut ordered.memory().dead));
        let body = ordered.body();
        let mut keep_under = ordered.keep_under();
        if keep_under.is_some() && forgets(body, &draft) {
            keep_under = None;
        }
        let record = Record { request, acknowledgement, body, slots: &slots, keep_under, gated };
        let bytes = draft.bytes() + record.bytes(draft.result());
        let at = (self.epoch, self.purpose(log, &ordered, &draft, bytes));
        let is_recorded = self.core.options.baseline.has_records()
            && !(draft.is_early_end() && planted::is_on(Bug::EarlyEndUnrecorded));
        let committed = match is_recorded {
            true => self.state.commit(log, at, &mut draft, record, &mut dead).map(|(end, result)| (end, Some(result))),
            false => self.state.commit(log, at, &mut draft, (), &mut dead).map(|(end, ())| (end, None)),
        };
        if let (Ok((end, _)), Some(serving)) = (&committed, &mut self.serving) {
            let footprint = &ordered.received().memory.footprint;
            serving.executed((*end, self.shipping.synced()), request.rpc, changed(&draft), footprint);
            if draft.is_told_synced() && draft.flushes() {
                serving.flushed(*end);
            }
        }
        let memory = ordered.memory();
        (memory.slots, memory.dead, memory.draft) = (slots, dead, draft.into_spare());
        if matches!(committed, Err(Full::Memory)) && ordered.end_before_all() {
            let drafted = self.draft(log, ordered);
            return self.commit(log, drafted, Overlap::Unsynced);
        }
        let (end, result) = committed.map_err(|full| Stop::Nothing(Why::for_room(full)))?; // E4
        Ok(Completed { rpc: request.rpc, result, end, overlap })
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
fn close_gate(distributed: &mut Distributed, gated: &Gated, at: EntryOffset, dead: &mut Vec<EntryOffset>) {
    hit(Probe::UpdateBehindGate);
    match distributed.participant.pass(Some(gated.rpc), &gated.footprint, ExecutedWhen::Now) {
        Some((gate, _)) => distributed.note_gate(gated.rpc, at, gate),
        None => dead.push(at),
    }
}

/// The keys that it changed.
fn changed(draft: &Draft<'_>) -> impl Iterator<Item = KeyHash> {
    let is_noted = |is_delete: bool| !(is_delete && planted::is_on(Bug::DeletedKeyUngated));
    draft.changed().filter(move |&(_, is_delete)| is_noted(is_delete)).map(|(key, _)| key)
}

/// R4.9: what its client does not want to be kept leaves the operation key as it was.
#[cold]
fn forgets(body: &Body<'_>, draft: &Draft<'_>) -> bool {
    !body.keeps_refusal()
        && draft.result().first() == Some(&(OutcomeCode::NotCommitted as u8))
        && !planted::is_on(Bug::RefusalKept)
}
