//! Logging outcomes of transactions over several shards: completion record and outcome in one group, with the changes if there
//! are any (E4, R8.1).

use kasha_distributed::{Footprint, GateId, Origin, Proposal};
use kasha_exactly_once::{CompletionRecord, OperationKeyRecord, Request};
use kasha_log::{EntryKind, EntryOffset, Full, GroupWriter, Log, Purpose, entry_bytes};
use kasha_store::{Draft, SpareDraft};
use kasha_types::{Epoch, LogEnd, RpcId, Slot};
use kasha_wire::Body;

use crate::shard::commit::Entries;
use crate::shard::distributed::Distributed;
use crate::shard::distributed::record::{Ended, How, Number, Reason};
use crate::shard::operation_keys::OperationKey;
use crate::shard::state::ShardState;

/// A transaction that ends, or runs, at this shard.
#[derive(Debug)]
pub(crate) struct Ending<'e> {
    pub request: Request,
    /// Whether the request has come, and with it its client's acknowledgement (R4.5).
    pub has_come: bool,
    /// Of the keys that it touches here; empty if this shard never had the request.
    pub slots: &'e [Slot],
    /// Under which the result is kept, and the body that came with it (R4.9).
    pub keep_under: Option<(OperationKey<'e>, &'e Body<'e>)>,
    pub proposal: Proposal,
    pub how: How,
    /// What the keeper of its operation key has to hear.
    pub reason: Option<Reason>,
    /// Of a repeat: what the run has seen. The answer waits for that, and leaves no gate there.
    pub seen: Option<Footprint>,
}

/// An outcome that is in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub end: LogEnd,
    /// What its answer waits for besides.
    pub gate: Option<GateId>,
}

/// The entries of an outcome, before they are written.
pub(crate) struct OutcomeEntries<'e> {
    ending: &'e Ending<'e>,
    number: Number,
    ended: Vec<u8>,
    /// What its answer waits for.
    gate: Vec<RpcId>,
    /// `None`: its client has acknowledged it, and asks no more.
    completion: Option<Request>,
}

/// Where these log entries begin.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    completion: Option<EntryOffset>,
    kept: Option<EntryOffset>,
    ended: EntryOffset,
}

impl<'e> OutcomeEntries<'e> {
    pub fn new(state: &ShardState, ending: &'e Ending<'e>) -> Self {
        let (distributed, rpc) = (&state.distributed, ending.request.rpc);
        let footprint = &ending.proposal.footprint;
        let gate = match ending.how {
            How::Executed(_) => distributed.participant.gate_of(footprint),
            How::AbortedHere => {
                let participant = &distributed.participant;
                let seen = ending.seen.as_ref().map(|seen| participant.gate_of(seen));
                let mut gate = participant.gate_of(footprint);
                gate.extend(seen.unwrap_or_default());
                gate.sort_unstable();
                gate.dedup();
                gate
            }
            How::Against(_) => Vec::new(),
        };
        let number = distributed.entry_of(rpc).map_or(distributed.next_number(), |(_, number)| number);
        let (how, proposal, lease_expiry) = (ending.how, ending.proposal.clone(), ending.request.lease_expiry);
        let (reason, told) = (ending.reason.clone(), gate.clone());
        let ended = Ended { number, rpc, lease_expiry, how, proposal, gate, reason }.encode();
        let mut request = ending.request;
        if !ending.has_come {
            request.acknowledgement = state.tracker.acknowledgement_of(rpc.client);
        }
        // Of a client whose lease is over, and whose transaction is the last that is known of it, nothing is kept.
        let is_client_known = !ending.has_come || state.tracker.lease_expiry_of(rpc.client).is_some();
        let completion = (is_client_known && state.tracker.awaits_record(rpc)).then_some(request);
        Self { ending, number, ended, gate: told, completion }
    }

    fn records<'r>(&'r self, result: &'r [u8]) -> (Option<CompletionRecord<'r>>, Option<OperationKeyRecord<'r>>) {
        let slots = self.ending.slots;
        let completion = self.completion.map(|request| CompletionRecord { request, slots, result });
        (completion, self.ending.keep_under.as_ref().map(|(key, body)| key.record(body, result)))
    }
}

impl Entries for OutcomeEntries<'_> {
    type Places = Places;
    type Done = Option<GateId>;

    fn bytes(&self, result: &[u8]) -> usize {
        let (completion, kept) = self.records(result);
        let completion = completion.map_or(0, |record| entry_bytes(record.encoded_len()));
        let kept = kept.map_or(0, |record| entry_bytes(record.encoded_len()));
        completion + kept + entry_bytes(self.ended.len())
    }

    fn write(&mut self, group: &mut GroupWriter<'_>, result: &[u8]) -> Places {
        let (completion, kept) = self.records(result);
        let completion = completion.map(|record| {
            let (at, payload) = group.entry(EntryKind::Completion, record.encoded_len());
            record.encode_into(payload);
            at
        });
        let kept = kept.map(|record| {
            let (at, payload) = group.entry(EntryKind::OperationKey, record.encoded_len());
            record.encode_into(payload);
            at
        });
        let (ended, payload) = group.entry(EntryKind::DistributedEnded, self.ended.len());
        payload.copy_from_slice(&self.ended);
        Places { completion, kept, ended }
    }

    fn apply(
        self,
        state: &mut ShardState,
        log: &mut Log,
        places: Places,
        end: LogEnd,
        dead: &mut Vec<EntryOffset>,
    ) -> Option<GateId> {
        let Ending { request, has_come, proposal, how, .. } = self.ending;
        let ShardState { tracker, distributed, operation_keys, .. } = state;
        if let (Some((key, body)), Some(at)) = (&self.ending.keep_under, places.kept) {
            // It was looked up when the transaction was proposed, and locked until now: nothing is kept under it.
            operation_keys.insert(key.hash, key.fingerprint, body.head.not_after, at, |_| false);
        }
        match places.completion {
            Some(at) if *has_come => tracker.complete(request, at, |at| dead.push(at)),
            Some(at) => tracker.complete_replayed(request, at, |at| dead.push(at)),
            None => {}
        }
        let origin = match self.ending.seen {
            Some(_) => Origin::Log { gate: &self.gate },
            None => Origin::Now,
        };
        let gate = apply_to_participant(distributed, request.rpc, proposal, *how, (end, origin));
        let (place, reason) = ((self.number, places.ended), self.ending.reason.clone());
        dead.extend(distributed.note_ended(request.rpc, place, request.lease_expiry, reason));
        log.keep_room(distributed.reserved());
        gate
    }
}

fn apply_to_participant(
    distributed: &mut Distributed,
    rpc: RpcId,
    proposal: &Proposal,
    how: How,
    (end, origin): (LogEnd, Origin<'_>),
) -> Option<GateId> {
    let participant = &mut distributed.participant;
    match how {
        How::Executed(at) => participant.executed(rpc, at, end, Origin::Now).map(|(gate, _)| gate),
        How::Against(why) => {
            participant.ended(rpc, proposal.clone(), why, end);
            None
        }
        How::AbortedHere => {
            let (gate, _) = participant.aborted(rpc, proposal.clone(), &proposal.footprint, end, origin)?;
            distributed.note_aborted(rpc, gate);
            Some(gate)
        }
    }
}

/// Commits an outcome that changes nothing, with what is told of it.
pub(crate) fn commit_ending(
    log: &mut Log,
    state: &mut ShardState,
    at: (Epoch, Purpose),
    (ending, result): (&Ending<'_>, &[u8]),
    dead: &mut Vec<EntryOffset>,
) -> Result<Outcome, Full> {
    let (entries, mut draft) = (OutcomeEntries::new(state, ending), Draft::answering(result, SpareDraft::default()));
    let (end, gate) = state.commit(log, at, &mut draft, entries, dead)?;
    Ok(Outcome { end, gate })
}
