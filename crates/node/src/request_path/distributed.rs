//! A transaction over several shards, from frame to proposal (section 8). What comes after, `serving::transacting` does.
//!
//! - **R8.3** \[M\] A coordinated one that conflicts is refused, and that is recorded; an independent one waits for a lock before it
//!   is proposed.
//! - **R8.5** A check that says no is told here, behind the gate of what it has read.
//! - **R8.11** The participants are in the body. A refusal is for the client alone.
//! - **R8.13** A proposal finds room for itself and for its execution, or is refused.
//! - **R8.14** \[M\] Giving it up before it is proposed is a recorded vote against it.

use kasha_log::{EntryKind, Log, Purpose, entry_bytes};
use kasha_machine::{Effects, Gate};
use kasha_store::SpareDraft;
use kasha_transaction::{Arrival, Class, Proposal, Timestamp, Why as Against};
use kasha_types::LogPosition;
use kasha_types::probe::{Probe, hit};
use kasha_wire::{OutcomeCode, Refusal, Update};

use super::{Caller, Origin, Received, RequestPath, Stop, Why, Wish};
use crate::primary::Term;
use crate::replica::Site;
use crate::serving::{Serving, WaitsFor, latest_timestamp, slots_of};
use crate::transactions::{Ending, How, Proposed, log_ending, proposal_of, request_of};

/// Bytes of entries that a part of an independent transaction adds at most besides its key and its value.
const PART_OVERHEAD_BYTES: usize = 128;
/// Bytes of an outcome besides its lists.
const OUTCOME_OVERHEAD_BYTES: usize = 512;

impl RequestPath<'_> {
    /// One request for a transaction over several shards.
    #[cold]
    #[inline(never)]
    pub(super) fn on_distributed(
        term: &mut Term,
        serving: &mut Serving,
        site: &mut Site<'_>,
        mut received: Received<'_>,
        out: &mut Effects,
    ) {
        let Origin::Client(caller) = received.origin else { unreachable!("a client brought it") };
        let (mut path, log) = RequestPath::new(term, Some(serving), site);
        match path.propose(log, &caller, &mut received, out) {
            Ok(()) => {}
            Err(Stop::Completed(completed)) => path.answer(log, &caller, completed, &received, out),
            Err(Stop::Nothing(Why::InProgress)) => {
                hit(Probe::TransactionAskedAgain);
                path.serving().transacting.waiting.wait_for(received.request.rpc, caller);
            }
            Err(Stop::Nothing(why)) => path.turn_away(&caller, &received, &why, out),
        }
        path.core.spare(received.memory);
    }

    /// Proposes it, or records that it does not happen.
    fn propose(
        &mut self,
        log: &mut Log,
        caller: &Caller,
        received: &mut Received<'_>,
        out: &mut Effects,
    ) -> Result<(), Stop> {
        let admitted = self.admit_distributed(received)?;
        let received = self.look_up(log, admitted)?.into_received();
        let rpc = received.request.rpc;
        let proposal = proposal_of(&received.body, self.shard).expect("we take part, or were not admitted");
        if self.state.transactions.knows(rpc) {
            // Its record is gone, so its client has the outcome: only a stranger asks.
            return Err(Stop::refuse(Refusal::Stale));
        }
        if caller.wish == Wish::Cancel {
            let result = [OutcomeCode::Cancelled as u8];
            return self.refuse_for_good(
                log,
                caller,
                received,
                proposal,
                (How::Against(Against::Conflict), &result),
                out,
            );
        }
        if !self.state.transactions.has_room() {
            return Err(Stop::refuse(Refusal::Busy));
        }
        let clock = Timestamp(self.core.cluster_time.0.saturating_mul(1000));
        match self.state.transactions.participant.on_request(rpc, &proposal, clock) {
            Arrival::Wait(locked) => {
                hit(Probe::TransactionWaits);
                Err(Stop::Nothing(Why::Parked(WaitsFor::Transaction(locked))))
            }
            Arrival::Conflict => {
                hit(Probe::TransactionConflict);
                let result = [OutcomeCode::Conflict as u8];
                self.refuse_for_good(log, caller, received, proposal, (How::Against(Against::Conflict), &result), out)
            }
            // The others would not hear it.
            Arrival::Propose(at) if at > latest_timestamp(self.core.cluster_time) => Err(Stop::refuse(Refusal::Busy)),
            Arrival::Propose(at) => self.propose_at(log, caller, received, (proposal, at), out),
        }
    }

    fn propose_at(
        &mut self,
        log: &mut Log,
        caller: &Caller,
        received: &mut Received<'_>,
        (proposal, at): (Proposal, Timestamp),
        out: &mut Effects,
    ) -> Result<(), Stop> {
        let (rpc, body) = (received.request.rpc, received.body);
        let parts = body.parts_at(self.shard).expect("we take part");
        let lists = 16 * parts.count() as usize + 2 * proposal.participants.len();
        let outcome = OUTCOME_OVERHEAD_BYTES + lists;
        let reserved = match proposal.class {
            Class::Independent => outcome + parts.bytes() + PART_OVERHEAD_BYTES * parts.count() as usize,
            Class::Coordinated => {
                let update = Update::Transaction { parts };
                let draft = self.state.store.draft(log, body.head.table, &update, SpareDraft::default());
                if draft.result().first() != Some(&(OutcomeCode::Done as u8)) {
                    hit(Probe::TransactionAborted);
                    let result = draft.result().to_vec();
                    return self.refuse_for_good(log, caller, received, proposal, (How::AbortedHere, &result), out);
                }
                outcome + draft.bytes() + entry_bytes(draft.result().len())
            }
        } as u64;
        if reserved > log.group_payload_max() as u64 {
            return Err(Stop::refuse(Refusal::TooLarge)); // its execution is one group
        }
        let number = self.state.transactions.next_number();
        let proposed = Proposed { number, at, reserved, body: body.bytes() };
        // R8.13: what it writes later may not be refused then.
        let before = self.state.transactions.reserved();
        log.keep_room(before + reserved);
        let entry = (EntryKind::TransactionProposed, proposed.encoded_len());
        let appended = log.append_one(self.epoch, entry, Purpose::Normal, |out| proposed.encode_into(out));
        let (entry, end) = appended.map_err(|full| {
            log.keep_room(before);
            Stop::Nothing(Why::for_room(full))
        })?;
        hit(Probe::TransactionProposed);
        let transactions = &mut self.state.transactions;
        transactions.participant.proposed(rpc, proposal, at, end);
        transactions.note(rpc, number, entry, body.head.lease_expiry, reserved);
        self.state.tracker.prove(rpc.client, body.head.lease_expiry);
        self.state.tracker.begin(rpc, received.request.body_hash);
        self.shipping.want_synced(end);
        self.serving().transacting.waiting.wait_for(rpc, *caller);
        Ok(())
    }

    /// Records that it does not happen, and says so when that cannot be lost any more.
    fn refuse_for_good(
        &mut self,
        log: &mut Log,
        caller: &Caller,
        received: &mut Received<'_>,
        proposal: Proposal,
        (how, result): (How, &[u8]),
        out: &mut Effects,
    ) -> Result<(), Stop> {
        let (shard, epoch, rpc) = (self.shard, self.epoch, received.request.rpc);
        let slots = slots_of(&received.body, shard);
        let request = request_of(&received.body);
        let ending = Ending { request, has_come: true, slots: &slots, result, proposal, how };
        let dead = &mut received.memory.dead;
        let outcome = log_ending(log, self.state, epoch, &ending, Purpose::Freeing, dead)
            .map_err(|full| Stop::Nothing(Why::for_room(full)))?;
        self.shipping.want_synced(outcome.end);
        let when = Gate::Synced { shard, position: LogPosition { epoch, offset: outcome.end } };
        let waiting = &mut self.serving().transacting.waiting;
        waiting.wait_for(rpc, *caller);
        waiting.answer((shard, epoch, rpc), result, (outcome.gate, when), out);
        Ok(())
    }
}
