//! What leaves: answers, built from a `Completed` only, and refusals.
//!
//! - **D3** Every answer carries its gate. **C1**, R6.1: it leaves without a sync only if the update commutes with
//!   everything unsynced, the client records it on the current witnesses, and these are all there.
//! - **R7.7** Even then it leaves when our own file holds the update: this log may be all that a recovery finds.
//! - **R2.2** A refusal says only that this delivery ran nothing. It waits for nothing, and is recorded nowhere (R4.2).
//! - **R4.6** But for one: that a lease is over is told once the floor that says so cannot be lost any more.

use kasha_distributed::GateId;
use kasha_log::Log;
use kasha_machine::{Effect, Effects, Gate};
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{ListVersion, LogEnd, LogPosition, RpcId};
use kasha_wire::{AnswerView, Refusal};

use crate::Baseline;
use crate::request::Condition;
use crate::request::commit::Completed;
use crate::request::order::Overlap;
use crate::request::path::RequestPath;
use crate::request::{Caller, Received, Why, Wish, refuse};
use crate::serving::waiting::WaitingAnswer;

/// When an answer leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// When our own file holds its record: until the record is synced, witnesses vouch for the update.
    WhenHeld,
    /// At once, as if it were synced ([`Baseline::Unreplicated`]).
    NowAsSynced,
    /// When its record is synced.
    WhenSynced,
}

impl RequestPath<'_> {
    /// Answers, now or when it is safe.
    #[inline(always)] // its second caller is cold
    pub(super) fn answer(
        &mut self,
        log: &Log,
        caller: &Caller,
        completed: Completed,
        received: &Received<'_>,
        out: &mut Effects,
    ) {
        let release = self.release(caller, completed.overlap());
        let (shard, epoch) = (self.shard, self.epoch);
        if !self.is_quiet
            && let Some(behind) = self.state.distributed.gate_of_answer(completed.rpc())
        {
            return self.answer_behind(behind, log, caller, completed, received);
        }
        let gate = match release {
            Release::WhenHeld => {
                self.serving().counters.fast_answers += 1;
                self.gate_of_own_file()
            }
            Release::NowAsSynced => {
                self.serving().counters.fast_answers += 1;
                Gate::Now
            }
            Release::WhenSynced => {
                self.serving().counters.gated_answers += 1;
                self.gate_of_synced(&completed, received)
            }
        };
        let (tail, result) = match (completed.result(&received.memory), gate) {
            ((Some(slice), _), gate) if !gate.may_name_log() => (None, log.slice(slice)),
            (found, _) => found,
        };
        let view = AnswerView {
            rpc: completed.rpc(),
            epoch,
            attempt: caller.envelope.attempt,
            shard,
            synced: match release {
                Release::WhenHeld => false,
                Release::NowAsSynced | Release::WhenSynced => true,
            },
            result,
        };
        let mark = out.mark();
        view.encode(tail.map_or(&[], |slice| log.slice(slice)), out.arena());
        let head = out.span_from(mark);
        out.push(Effect::Send { to: caller.to, head, tail, gate });
    }

    /// The gate of an answer that must be held by all members.
    fn gate_of_synced(&mut self, completed: &Completed, received: &Received<'_>) -> Gate {
        let end = completed.end();
        if received.body.is_distributed() {
            return self.durable_gate(end);
        }
        self.shipping.want_synced(end);
        Gate::Synced { shard: self.shard, position: LogPosition { epoch: self.epoch, offset: end } }
    }

    /// The same behind a gate (R8.4): what opens it, and a sync, it waits for. A saved answer, too (R8.6).
    #[cold]
    #[inline(never)]
    fn answer_behind(
        &mut self,
        behind: GateId,
        log: &Log,
        caller: &Caller,
        completed: Completed,
        received: &Received<'_>,
    ) {
        let (shard, epoch) = (self.shard, self.epoch);
        self.serving().counters.gated_answers += 1;
        let when = self.gate_of_synced(&completed, received);
        let (tail, result) = completed.result(&received.memory);
        let result = tail.map_or(result, |slice| log.slice(slice));
        let attempt = caller.envelope.attempt;
        let view = AnswerView { rpc: completed.rpc(), epoch, attempt, synced: true, shard, result };
        let mut frame = Vec::new();
        view.encode(&[], &mut frame);
        // Without a place its client asks again.
        self.serving().waiting.hold(behind, WaitingAnswer { to: caller.to, frame, when });
    }

    /// Tells the client, if it is to be told, that this delivery runs nothing; or parks it.
    pub(super) fn turn_away(&mut self, caller: &Caller, received: &Received<'_>, why: &Why, out: &mut Effects) {
        let rpc = received.request.rpc;
        match *why {
            Why::InProgress => {}
            Why::Refused(why) => self.refuse(caller, rpc, why, out),
            Why::BelowFloor { floor_end } => self.refuse_below_floor(caller, rpc, floor_end, out),
            Why::Parked(condition) => self.park(caller, received, condition, out),
            Why::RunsAhead => unreachable!("only what a witness held is skipped"),
        }
    }

    #[cold]
    fn park(&mut self, caller: &Caller, received: &Received<'_>, condition: Condition, out: &mut Effects) {
        hit(Probe::RequestParked);
        match condition {
            Condition::Lease(client) => self.serving().leases.ask_about(client),
            Condition::Distributed(_) => self.core.log_flush.hurry(),
            Condition::Turn(_) => self.wait_behind_elder(caller, received),
            Condition::Memory => {}
            Condition::Gate(_) => unreachable!("answers alone wait for gates"),
        }
        let who = (*caller, received.request.rpc);
        for update in self.serving().waiting.park(who, received.body.bytes(), condition) {
            self.refuse(&update.caller, update.rpc, update.refusal, out);
        }
    }

    /// The commit of this turn, in which our file takes everything that is logged so far.
    pub(super) fn gate_of_own_file(&mut self) -> Gate {
        if planted::is_on(Bug::FileLagsAnswers) {
            return Gate::Now;
        }
        self.serving().writes_own_file = true;
        self.core.dirty = true;
        self.core.durable_gate_as(self.shard)
    }

    pub(super) fn release(&mut self, caller: &Caller, overlap: Overlap) -> Release {
        let commutes = match overlap {
            Overlap::None => true,
            Overlap::Unsynced => planted::is_on(Bug::OverlapIgnored),
        };
        let on_witnesses = match caller.wish {
            Wish::Run if planted::is_on(Bug::ShortListFast) => true,
            Wish::Run => caller.envelope.list != ListVersion::NONE && self.serving().fast_path,
            // Giving an update up is recorded on none.
            Wish::Cancel => false,
        };
        match self.core.options.baseline {
            Baseline::Unreplicated | Baseline::UnreplicatedWithoutRecords => Release::NowAsSynced,
            Baseline::Synced => Release::WhenSynced,
            Baseline::None | Baseline::WithoutRecords | Baseline::TwoPhase => {
                if commutes && on_witnesses {
                    Release::WhenHeld
                } else {
                    Release::WhenSynced
                }
            }
        }
    }

    fn refuse(&mut self, caller: &Caller, rpc: RpcId, why: Refusal, out: &mut Effects) {
        self.serving().counters.refusals += 1;
        refuse(caller, rpc, self.epoch, why, Gate::Now, out);
    }

    /// Its lease is at or below a floor whose entry ends at `floor_end` (R4.6).
    fn refuse_below_floor(&mut self, caller: &Caller, rpc: RpcId, floor_end: LogEnd, out: &mut Effects) {
        let (shard, epoch) = (self.shard, self.epoch);
        self.serving().counters.refusals += 1;
        self.shipping.want_synced(floor_end);
        let gate = match planted::is_on(Bug::FloorRefusalUngated) {
            true => Gate::Now,
            false => Gate::Synced { shard, position: LogPosition { epoch, offset: floor_end } },
        };
        refuse(caller, rpc, epoch, Refusal::LeaseExpired, gate, out);
    }
}
