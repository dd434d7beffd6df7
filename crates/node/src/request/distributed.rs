//! A transaction over several shards, from frame to proposal (section 8). What comes after, `serving::distributed` does.
//!
//! - **R8.3** \[M\] A coordinated one that conflicts is refused, and that is recorded; an independent one waits for a lock before it
//!   is proposed.
//! - **R8.5** A check that says no is told here, behind the gate of what it has read.
//! - **R8.8** \[M\] A client is told what a coordinated one comes to as soon as that is settled, and durable here or at the
//!   witnesses.
//! - **R8.11** The participants are in the body. A refusal is for the client alone.
//! - **R8.13** A proposal finds room for itself and for its execution, or is refused.
//! - **R8.14** \[M\] Giving it up before it is proposed is a recorded vote against it.

use kasha_distributed::{Arrival, Class, Footprint, GateId, Proposal, Timestamp, Why as Against};
use kasha_exactly_once::{OperationKeyCheck, Request};
use kasha_log::{EntryKind, EntryOffset, GroupWriter, Log, Purpose, entry_bytes};
use kasha_machine::{Effects, Gate};
use kasha_types::limits::REASON_BYTES_MAX;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{ClusterTime, ListVersion, LogEnd, LogPosition, RpcId};
use kasha_wire::{Body, OutcomeCode, Refusal, Update};

use crate::request::Condition;
use crate::request::answer::Release;
use crate::request::draft::REPEATED_BYTES_MAX;
use crate::request::order::{Held, Overlap};
use crate::request::path::{RequestPath, Stop};
use crate::request::{Caller, Origin, Received, Why, Wish};
use crate::serving::{Serving, as_kept, latest_timestamp, slots_of};
use crate::shard::commit::Entries;
use crate::shard::distributed::{Ending, How, Proposed, Reason, checked_by, commit_ending, proposal_of, request_of};
use crate::shard::operation_keys::{self, OperationKey};
use crate::shard::site::Site;
use crate::shard::state::{ShardState, UNBLOCKING_BYTES_MAX};
use crate::shard::term::Term;

/// Bytes of entries that a part of an independent transaction adds at most besides its key and its value.
const PART_OVERHEAD_BYTES: usize = 128;
/// Bytes of an outcome besides its lists.
const OUTCOME_OVERHEAD_BYTES: usize = 512;

/// What is logged of it now. The entry ends at `end`.
#[must_use]
pub(super) enum Logged {
    Proposed {
        end: LogEnd,
        /// Of a coordinated one.
        prepared: Option<Prepared>,
    },
    /// It does not happen.
    Refused { end: LogEnd, gate: Option<GateId>, result: Vec<u8> },
}

/// What is recorded with a refusal.
enum Keep<'a> {
    Nothing,
    /// The result, for whoever comes with the same operation key.
    Result(OperationKey<'a>),
    /// The result, for the participant that keeps the operation key.
    Reason(Reason),
    /// Nothing; it repeats a run that has seen this.
    Seen(Footprint),
}

/// What a coordinated transaction comes to here, if the others agree.
pub(super) struct Prepared {
    result: Vec<u8>,
    /// A version in the result comes from the version floor (R4.8).
    sees_absence: bool,
    overlap: Overlap,
}

/// A proposal, as the log is to say.
struct ProposalEntry<'p> {
    proposed: Proposed<'p>,
    proposal: Proposal,
    request: Request,
}

impl Entries for ProposalEntry<'_> {
    type Places = EntryOffset;
    type Done = ();

    fn bytes(&self, _: &[u8]) -> usize {
        entry_bytes(self.proposed.encoded_len())
    }

    fn write(&mut self, group: &mut GroupWriter<'_>, _: &[u8]) -> EntryOffset {
        let (at, payload) = group.entry(EntryKind::DistributedProposed, self.proposed.encoded_len());
        self.proposed.encode_into(payload);
        at
    }

    fn apply(self, state: &mut ShardState, _: &mut Log, entry: EntryOffset, end: LogEnd, _: &mut Vec<EntryOffset>) {
        let Self { proposed: Proposed { number, at, reserved, .. }, proposal, request } = self;
        let Request { rpc, body_hash, lease_expiry, .. } = request;
        state.distributed.participant.proposed(rpc, proposal, at, end);
        state.distributed.note_proposed(rpc, number, entry, lease_expiry, reserved);
        state.tracker.prove(rpc.client, lease_expiry);
        state.tracker.begin(rpc, body_hash);
    }
}

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
        let rpc = received.request.rpc;
        let (mut path, log) = RequestPath::new(term, Some(serving), site);
        path.note_given_up(&caller, rpc);
        match path.propose(log, &mut received) {
            Ok(logged) => path.tell(&caller, &received.body, logged, out),
            Err(Stop::Completed(_)) if path.is_told_later(&caller, rpc) => {}
            Err(Stop::Completed(completed)) => path.answer(log, &caller, completed, &received, out),
            Err(Stop::Nothing(Why::InProgress)) => {
                hit(Probe::DistributedAskedAgain);
                path.core.log_flush.hurry();
                path.serving().distributed.callers.wait_for(rpc, caller);
            }
            Err(Stop::Nothing(why)) => path.turn_away(&caller, &received, &why, out),
        }
        path.core.spare(received.memory);
    }

    /// Proposes it, or records that it does not happen.
    pub(super) fn propose(&mut self, log: &mut Log, received: &mut Received<'_>) -> Result<Logged, Stop> {
        let admitted = self.admit_distributed(received)?;
        let received = self.look_up(log, admitted)?.into_received();
        let rpc = received.request.rpc;
        self.prove_lease_of_suspect(received)?;
        let proposal = proposal_of(&received.body, self.shard).expect("we take part, or were not admitted");
        if self.state.distributed.knows(rpc) {
            // Its record is gone, so its client has the outcome: only a stranger asks.
            return Err(Stop::refuse(Refusal::Stale));
        }
        if matches!(received.origin, Origin::Client(Caller { wish: Wish::Cancel, .. })) {
            let result = vec![OutcomeCode::Cancelled as u8];
            return self.refuse_for_good(
                log,
                received,
                proposal,
                (How::Against(Against::Conflict), result),
                Keep::Nothing,
            );
        }
        // A new primary proposes whatever its predecessor may have told a client of.
        let is_replay = matches!(received.origin, Origin::Replay);
        let key = self.current_key(log, received)?;
        let held = self.expire_values(log, received);
        if !is_replay && self.touches_ended(log, received) {
            // Else a value that transactions touch all the time would never end.
            return Err(Stop::refuse(Refusal::Busy));
        }
        if let Some((key, now)) = &key
            && let Some(result) = self.find_repeated(log, received, key, *now)?
        {
            // It has seen what is kept, and what that has seen. Something that is pending may be in its way on other keys, and must
            // not wait for it.
            let seen = checked_by(&proposal.footprint);
            let proposal = Proposal { footprint: Footprint::new([key.hash], []), ..proposal };
            return self.refuse_for_good(log, received, proposal, (How::AbortedHere, result), Keep::Seen(seen));
        }
        if !is_replay && !self.state.distributed.has_room() {
            return Err(Stop::refuse(Refusal::Busy));
        }
        let clock = Timestamp(self.core.cluster_time.0.saturating_mul(1000));
        let elder = self.elder_of(received, &proposal)?;
        let arrival = match elder {
            Some(_) => Arrival::Conflict,
            None => self.state.distributed.participant.on_request(rpc, &proposal, clock),
        };
        match arrival {
            Arrival::Wait(locked) => {
                hit(Probe::DistributedWaits);
                Err(Stop::Nothing(Why::Parked(Condition::Distributed(locked))))
            }
            Arrival::Conflict if is_replay => Err(Stop::Nothing(Why::RunsAhead)),
            Arrival::Conflict => {
                hit(Probe::DistributedConflict);
                self.core.log_flush.hurry(); // it is tried again soon
                let result = vec![OutcomeCode::Conflict as u8];
                self.refuse_for_good(log, received, proposal, (How::Against(Against::Conflict), result), Keep::Nothing)
            }
            // The others would not hear it.
            Arrival::Propose(at) if !is_replay && at > latest_timestamp(self.core.cluster_time) => {
                Err(Stop::refuse(Refusal::Busy))
            }
            Arrival::Propose(at) => self.propose_at(log, received, (proposal, key.map(|(key, _)| key)), (at, held)),
        }
    }

    /// What this participant answers if the operation key was used before: with the same transaction, or with something else.
    fn find_repeated(
        &mut self,
        log: &Log,
        received: &Received<'_>,
        key: &OperationKey<'_>,
        now: ClusterTime,
    ) -> Result<Option<Vec<u8>>, Stop> {
        let is_replay = matches!(received.origin, Origin::Replay);
        let found = self.state.find_operation_key(log, key.hash, key.fingerprint, &key.name);
        let result = match found {
            OperationKeyCheck::Miss if now > received.body.head.not_after => {
                return Err(Stop::refuse(Refusal::Unprovable));
            }
            OperationKeyCheck::Miss => return Ok(None),
            // No client was told fast what is kept already.
            OperationKeyCheck::Hit(_) | OperationKeyCheck::Mismatch if is_replay => {
                return Err(Stop::Nothing(Why::RunsAhead));
            }
            OperationKeyCheck::Hit(place) => {
                hit(Probe::DistributedRepeated);
                self.count_repeat(received.origin);
                let kept = operation_keys::record_at(log, place);
                let RpcId { client, sequence } = kept.rpc;
                let run = [client.0.to_le_bytes(), sequence.0.to_le_bytes()].concat();
                [&[OutcomeCode::Repeated as u8], &run[..], kept.result].concat()
            }
            OperationKeyCheck::Mismatch => {
                hit(Probe::OperationKeyMismatch);
                vec![OutcomeCode::OperationKeyMismatch as u8]
            }
        };
        Ok(Some(result))
    }

    fn propose_at(
        &mut self,
        log: &mut Log,
        received: &mut Received<'_>,
        (proposal, key): (Proposal, Option<OperationKey<'_>>),
        (at, held): (Timestamp, Held),
    ) -> Result<Logged, Stop> {
        let (rpc, body) = (received.request.rpc, received.body);
        let is_replay = matches!(received.origin, Origin::Replay);
        let parts = body.parts_at(self.shard).expect("we take part");
        let lists = 16 * parts.count() as usize + 2 * proposal.participants.len();
        let outcome = OUTCOME_OVERHEAD_BYTES + lists;
        let mut prepared = None;
        let reserved = match proposal.class {
            Class::Independent => outcome + parts.bytes() + PART_OVERHEAD_BYTES * parts.count() as usize,
            Class::Coordinated => {
                let update = Update::Transaction { parts };
                let spare = std::mem::take(&mut received.memory.draft);
                let draft =
                    self.state.store.draft(log, (body.head.table, self.core.moment(body.head.begun)), &update, spare);
                let result = draft.result().to_vec();
                if result.first() != Some(&(OutcomeCode::Done as u8)) {
                    if is_replay {
                        return Err(Stop::Nothing(Why::RunsAhead));
                    }
                    hit(Probe::DistributedAborted);
                    return self.abort_here(log, received, (proposal, key), result);
                }
                // The version of a key that has none comes from the version floor (R4.8), which must be the same at the execution.
                let depends_on_floor = draft.sees_absence() && parts.check_own_versions();
                if depends_on_floor
                    && let Some(serving) = &mut self.serving // a new primary leaves the floor as it is
                    && !serving.distributed.try_hold_floor(rpc)
                {
                    return Err(Stop::refuse(Refusal::Busy));
                }
                let kept = key.map_or(0, |key| entry_bytes(key.record(&body, &result).encoded_len()));
                let bytes = outcome + draft.bytes() + entry_bytes(result.len()) + kept;
                let (sees_absence, overlap) =
                    (draft.sees_absence(), self.overlap_of_prepared(&draft, key.as_ref(), held));
                received.memory.draft = draft.into_spare();
                let result = self.with_vote(result, at);
                prepared = Some(Prepared { result, sees_absence, overlap });
                bytes
            }
        } as u64;
        if reserved > log.group_payload_max() as u64 {
            return Err(Stop::refuse(Refusal::TooLarge)); // its execution is one group
        }
        let number = self.state.distributed.next_number();
        let proposed = Proposed { number, at, reserved, body: body.bytes() };
        // R8.13: what it writes later may not be refused then.
        let before = self.state.distributed.reserved();
        log.keep_room(before + reserved);
        let purpose = if is_replay { Purpose::Takeover } else { Purpose::Normal };
        let begun = ProposalEntry { proposed, proposal, request: received.request };
        let committed = self.state.commit_entries(log, (self.epoch, purpose), begun, &mut received.memory.dead);
        let (end, ()) = committed.map_err(|full| {
            log.keep_room(before);
            Stop::Nothing(Why::for_room(full))
        })?;
        hit(Probe::DistributedProposed);
        self.core.want_durable(self.shipping, end);
        self.name_to_witnesses(received, end);
        Ok(Logged::Proposed { end, prepared })
    }

    /// What a client has recorded at witnesses is named to them when it is synced.
    fn name_to_witnesses(&mut self, received: &mut Received<'_>, end: LogEnd) {
        if let Origin::Client(Caller { envelope, .. }) = received.origin
            && envelope.list != ListVersion::NONE
        {
            let footprint = &mut received.memory.footprint;
            received.body.footprint_at(self.shard, footprint);
            self.serving().name_when_synced(end, received.request.rpc, footprint);
        }
    }

    /// The gate of an outcome that may be a refusal. A client that hears one goes on under another id; so this one must never happen
    /// (R8.17): a loss of power must not take the refusal, and leave the proposals of the others and what a witness holds.
    pub(super) fn durable_gate(&mut self, end: LogEnd) -> Gate {
        self.core.want_durable(self.shipping, end);
        self.core.log_flush.hurry();
        Gate::Flushed { shard: self.shard, position: LogPosition { epoch: self.epoch, offset: end } }
    }

    /// The client hears what is logged, now or when it is safe.
    fn tell(&mut self, caller: &Caller, body: &Body<'_>, logged: Logged, out: &mut Effects) {
        let (shard, epoch, rpc) = (self.shard, self.epoch, body.head.rpc);
        self.serving().distributed.callers.wait_for(rpc, *caller);
        if let Logged::Proposed { .. } = &logged {
            self.note_try(caller, rpc);
        }
        match logged {
            Logged::Proposed { prepared: None, .. } => self.core.log_flush.hurry(),
            Logged::Proposed { end, prepared: Some(prepared) } => {
                if !self.tell_prepared(caller, rpc, prepared, end, out) {
                    self.core.log_flush.hurry(); // the client is answered when the transaction is executed
                }
                if body.keeper_of_refusal() == Some(shard) {
                    // If a check of another participant says no, the client hears that here.
                    self.serving().distributed.callers.wait_for_end(rpc, *caller);
                }
            }
            Logged::Refused { end, gate, result } => {
                let when = self.durable_gate(end);
                if !self.waits_for_turn(caller, body, (end, &result)) {
                    self.serving().answer((shard, epoch, rpc), (&result, true), (gate, when), out);
                }
            }
        }
    }

    /// R8.8: the client is told the results before the votes are there. The results stay true: the transaction holds its locks until
    /// it is executed. False: the client may not be told before that.
    fn tell_prepared(
        &mut self,
        caller: &Caller,
        rpc: RpcId,
        prepared: Prepared,
        end: LogEnd,
        out: &mut Effects,
    ) -> bool {
        let Prepared { mut result, sees_absence, overlap } = prepared;
        if !self.is_two_phase() && !self.state.distributed.participant.may_tell_prepared(rpc) {
            return false;
        }
        if sees_absence && !self.serving().distributed.try_hold_floor(rpc) {
            return false;
        }
        hit(Probe::DistributedPrepared);
        let (shard, epoch) = (self.shard, self.epoch);
        result[0] = OutcomeCode::Prepared as u8;
        let synced = Gate::Synced { shard, position: LogPosition { epoch, offset: end } };
        let (is_synced, when) = match self.release(caller, overlap) {
            Release::WhenHeld => {
                hit(Probe::DistributedPreparedFast);
                self.serving().counters.fast_answers += 1;
                (false, self.gate_of_own_file())
            }
            Release::NowAsSynced => (true, Gate::Now),
            Release::WhenSynced if planted::is_on(Bug::PreparedUnsynced) => (true, Gate::Now),
            Release::WhenSynced => {
                self.serving().counters.gated_answers += 1;
                (true, synced)
            }
        };
        self.serving().answer((shard, epoch, rpc), (&result, is_synced), (None, when), out);
        self.wait_for_decision(caller, rpc);
        true
    }

    /// One of its checks says no here. With an operation key that keeps it, it is the keeper of the key that tells the client, and keeps the reason.
    fn abort_here(
        &mut self,
        log: &mut Log,
        received: &mut Received<'_>,
        (proposal, key): (Proposal, Option<OperationKey<'_>>),
        result: Vec<u8>,
    ) -> Result<Logged, Stop> {
        let (body, shard) = (received.body, self.shard);
        let keeper = if planted::is_on(Bug::RefusalKept) { body.keeper() } else { body.keeper_of_refusal() };
        let how = How::AbortedHere;
        // Whoever finds the operation key used has seen this one.
        let kept_under = key.filter(|_| keeper == Some(shard)).map(|key| key.hash);
        let reads = checked_by(&proposal.footprint).reads().to_vec();
        let reads = reads.into_iter().filter(|read| Some(*read) != kept_under);
        let proposal = Proposal { footprint: Footprint::new(reads, kept_under), ..proposal };
        match keeper {
            None => self.refuse_for_good(log, received, proposal, (how, result), Keep::Nothing),
            Some(keeper) if keeper == shard => {
                let kept = as_kept(&body, shard, &result).expect("our own result");
                let key = key.expect("what has a keeper has a key");
                self.refuse_for_good(log, received, proposal, (how, kept), Keep::Result(key))
            }
            Some(keeper) => {
                let elsewhere = vec![OutcomeCode::RefusedElsewhere as u8];
                assert!(result.len() <= REASON_BYTES_MAX, "what a part failed at is told in a few bytes");
                let reason = Reason { keeper, result };
                self.refuse_for_good(log, received, proposal, (how, elsewhere), Keep::Reason(reason))
            }
        }
    }

    /// Records that it does not happen.
    fn refuse_for_good(
        &mut self,
        log: &mut Log,
        received: &mut Received<'_>,
        proposal: Proposal,
        (how, result): (How, Vec<u8>),
        keep: Keep<'_>,
    ) -> Result<Logged, Stop> {
        let slots = slots_of(&received.body, self.shard);
        let request = request_of(&received.body);
        // A suspect's client may not be known here.
        let has_come = matches!(received.origin, Origin::Client(_));
        let body = received.body;
        // What an operation key keeps lives for long, and a long answer is no small matter (R5.16).
        let is_small = !matches!(keep, Keep::Result(_)) && result.len() <= REPEATED_BYTES_MAX;
        // As an update of one shard (`draft::purpose`): what holds its client's acknowledgement up finds room behind the deletes' reserve.
        let is_crowded = || has_come && !log.has_room_for(UNBLOCKING_BYTES_MAX, Purpose::Freeing);
        let purpose = match is_small {
            true if is_crowded() && self.state.unblocks(log, &request, UNBLOCKING_BYTES_MAX) => Purpose::Unblocking,
            true => Purpose::Freeing,
            false => Purpose::Normal,
        };
        let (mut keep_under, mut reason, mut seen) = (None, None, None);
        match keep {
            Keep::Nothing => {}
            Keep::Result(key) => keep_under = Some((key, &body)),
            Keep::Reason(why) => reason = Some(why),
            Keep::Seen(footprint) => seen = Some(footprint),
        }
        let ending = Ending { request, has_come, slots: &slots, keep_under, proposal, how, reason, seen };
        let dead = &mut received.memory.dead;
        let outcome = commit_ending(log, self.state, (self.epoch, purpose), (&ending, &result), dead)
            .map_err(|full| Stop::Nothing(Why::for_room(full)))?;
        self.core.want_durable(self.shipping, outcome.end);
        self.name_to_witnesses(received, outcome.end);
        Ok(Logged::Refused { end: outcome.end, gate: outcome.gate, result })
    }
}
