//! The steps of transactions over several shards at a primary: what the participant says is to be done next is done here.
//!
//! - **R8.1** The timestamp is decided, so all proposals are durable: what follows from them needs no sync of its own.
//! - **R8.13** Room is kept for a step, in bytes. What segments lose at their ends may be missing all the same: then the step
//!   waits until the cleaner has made room, which has a segment more.

use kasha_distributed::{Proposal, Step, Timestamp, Why};
use kasha_log::{EntryKind, Full, Log, Purpose};
use kasha_machine::{Effects, Gate};
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{Epoch, LogEnd, LogPosition, RpcId, ShardId};
use kasha_wire::{Body, OutcomeCode, Update};

use crate::core::Core;
use crate::serving::distributed::slots_of;
use crate::serving::{Conflicts, Sees, Serving};
use crate::shard::distributed::{Ending, How, OutcomeEntries, Proposed, commit_ending, encode_ceiling, request_of};
use crate::shard::operation_keys::{self, OperationKey};
use crate::shard::site::Site;
use crate::shard::state::ShardState;
use crate::shard::term::Term;

/// A transaction that was proposed here, as the log has it.
struct Pending {
    /// Its entry: a copy, since the log changes with the transaction.
    payload: Vec<u8>,
    proposal: Proposal,
}

impl Pending {
    fn of(site: &Site<'_>, rpc: RpcId) -> Self {
        let distributed = &site.state.distributed;
        let (entry, _) = distributed.entry_of(rpc).expect("what is pending has a proposal");
        let proposal = distributed.participant.proposal_of(rpc).expect("it is pending").clone();
        Self { payload: site.copy.log.entry(entry).payload.to_vec(), proposal }
    }

    fn body(&self) -> Body<'_> {
        Proposed::decode(&self.payload).expect("our own proposal").1
    }
}

/// A replay may have found a record again whose time was over when the transaction was proposed.
fn drop_earlier_run(
    conflicts: &mut Conflicts,
    (log, state): (&mut Log, &mut ShardState),
    epoch: Epoch,
    core: &mut Core,
    key: &OperationKey<'_>,
) -> Result<(), Full> {
    let (now, dead) = (core.cluster_time, &mut core.scratch.dead);
    if let Some(end) = operation_keys::drop_if_expired(log, state, epoch, now, key, dead)? {
        hit(Probe::ExpiredKeyUsed);
        conflicts.drop_operation_keys(end);
    }
    Ok(())
}

impl Serving {
    /// Does what is next.
    ///
    /// # Errors
    /// There is no room for it. Nothing has happened.
    pub(super) fn take_step(
        &mut self,
        term: &mut Term,
        site: &mut Site<'_>,
        step: Step,
        out: &mut Effects,
    ) -> Result<(), Full> {
        match step {
            Step::Execute(rpc, at) => self.execute_transaction(term, site, rpc, at, out),
            Step::End(rpc, why) => self.end_transaction(term, site, rpc, why, out),
            Step::RaiseCeiling(ceiling) => {
                let payload = encode_ceiling(ceiling);
                let (log, dead) = (&mut site.copy.log, &mut site.core.scratch.dead);
                let (at, entry) = ((term.epoch, Purpose::Promised), (EntryKind::TimestampCeiling, payload.len()));
                let end = site.state.commit_own(log, at, entry, dead, |out| out.copy_from_slice(&payload))?;
                site.core.want_durable(&mut term.shipping, end);
                Ok(())
            }
        }
    }

    /// A transaction runs: nothing that conflicts can come before it any more (Granola 4.1).
    fn execute_transaction(
        &mut self,
        term: &mut Term,
        site: &mut Site<'_>,
        rpc: RpcId,
        at: Timestamp,
        out: &mut Effects,
    ) -> Result<(), Full> {
        let pending = Pending::of(site, rpc);
        let body = pending.body();
        let Site { copy, state, core } = site;
        let (shard, epoch, log) = (copy.shard, term.epoch, &mut copy.log);
        let parts = body.parts_at(shard).expect("we take part");
        let update = Update::Transaction { parts };
        let mut memory = core.request_memory();
        let spare = std::mem::take(&mut memory.draft);
        let mut draft = state.store.draft(log, (body.head.table, core.moment(body.head.begun)), &update, spare);
        let is_done = draft.result().first() == Some(&(OutcomeCode::Done as u8));
        assert!(is_done, "R8.3: {rpc} was checked when it was proposed, and fails now");
        // A table that is gone stays empty; the others change with it.
        let configuration = core.configuration.as_deref().expect("a configuration promoted us");
        draft.withhold(|table| configuration.has_table(table));
        let slots = slots_of(&body, shard);
        let keep_under = OperationKey::of(&body, shard).filter(|_| !planted::is_on(Bug::PartResultUnkept));
        if let Some(key) = &keep_under {
            drop_earlier_run(&mut self.conflicts, (log, state), epoch, core, key)?;
        }
        let ending = Ending {
            request: request_of(&body),
            has_come: true,
            slots: &slots,
            keep_under: keep_under.map(|key| (key, &body)),
            proposal: pending.proposal.clone(),
            how: How::Executed(at),
            reason: None,
            seen: None,
        };
        let (outcome, dead) = (OutcomeEntries::new(state, &ending), &mut core.scratch.dead);
        let (end, gate) = state.commit(log, (epoch, Purpose::Promised), &mut draft, outcome, dead)?;
        hit(Probe::DistributedExecuted);
        let (changed, synced) = (draft.changed().map(|(key, _)| key), term.shipping.synced());
        self.executed((end, synced), rpc, changed, &[]);
        let flushes = draft.flushes();
        if flushes {
            self.flushed(end);
        }
        // Its proposal is durable at all participants, and with it what comes of it (R8.1), but for the version of a key that had
        // no value: that comes from the version floor, whose entry may be lost. So do the versions that follow it.
        let sees = || Sees::Absence;
        let floor_until = self.conflicts.until([], sees, synced);
        // Nor is that of a key behind a flush, which goes above the log's end.
        let floor_until = if flushes { end } else { floor_until };
        let when = match floor_until > synced {
            true => self.synced_gate(term, shard, floor_until),
            false => Gate::Now,
        };
        self.turns.happened(rpc);
        self.distributed.callers.decided(rpc, true);
        self.answer((shard, epoch, rpc), (draft.result(), true), (gate, when), out);
        memory.draft = draft.into_spare();
        site.core.spare(memory);
        Ok(())
    }

    /// A transaction that was proposed here does not happen.
    fn end_transaction(
        &mut self,
        term: &mut Term,
        site: &mut Site<'_>,
        rpc: RpcId,
        why: Why,
        out: &mut Effects,
    ) -> Result<(), Full> {
        let pending = Pending::of(site, rpc);
        let body = pending.body();
        let Site { copy, state, core } = site;
        let (shard, epoch, log) = (copy.shard, term.epoch, &mut copy.log);
        let key = OperationKey::of(&body, shard).filter(|_| body.keeper_of_refusal() == Some(shard));
        let reason = key.and_then(|_| self.distributed.reasons.of(&body)).filter(|_| why == Why::Abort);
        let keep_under = key.filter(|_| reason.is_some());
        if let Some(key) = &keep_under {
            drop_earlier_run(&mut self.conflicts, (log, state), epoch, core, key)?;
        }
        let keep_under = keep_under.map(|key| (key, &body));
        let result = match (why, reason) {
            (Why::Abort, Some(kept)) => kept,
            // It is not known what is to be kept. Nothing has happened, so the client may try again.
            (Why::Abort, None) if key.is_some() => vec![OutcomeCode::Conflict as u8],
            (Why::Abort, None) => vec![OutcomeCode::RefusedElsewhere as u8],
            (Why::Conflict, _) => vec![OutcomeCode::Conflict as u8],
        };
        let slots = slots_of(&body, shard);
        let (request, how) = (request_of(&body), How::Against(why));
        let ending = Ending {
            request,
            has_come: true,
            slots: &slots,
            keep_under,
            proposal: pending.proposal.clone(),
            how,
            reason: None,
            seen: None,
        };
        let dead = &mut core.scratch.dead;
        let outcome = commit_ending(log, state, (epoch, Purpose::Promised), (&ending, &result), dead)?;
        hit(Probe::DistributedEnded);
        self.distributed.reasons.forget(rpc);
        self.distributed.callers.decided(rpc, false);
        site.core.want_durable(&mut term.shipping, outcome.end); // others hear of it then
        let when = self.synced_gate(term, shard, outcome.end);
        let has_lost = why == Why::Conflict;
        let is_told_elsewhere = has_lost && self.turns.who_tries(rpc).is_some();
        self.turns.did_not_happen(rpc, has_lost);
        if is_told_elsewhere {
            // By the participant that it has lost at, when its turn has come there.
            self.distributed.callers.forget(rpc);
        } else {
            self.answer((shard, epoch, rpc), (&result, true), (outcome.gate, when), out);
        }
        Ok(())
    }

    /// The gate of an outcome that nobody else has recorded: it is told when it is synced.
    pub fn synced_gate(&self, term: &mut Term, shard: ShardId, end: LogEnd) -> Gate {
        term.shipping.want_synced(end);
        Gate::Synced { shard, position: LogPosition { epoch: term.epoch, offset: end } }
    }
}
