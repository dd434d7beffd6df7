//! What servers answer to an update, and what follows from it (DESIGN section 2): `on_answer`, `on_recorded`,
//! `on_synced` → `judge` → `complete`; or `on_refused`.
//!
//! Only messages of one attempt count together (**R2.1**). A refusal alone never ends in "not executed", since a
//! witness or another delivery may still run the update (**R2.2**). CURP 3.2.1.

use kasha_machine::Effects;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{CoreId, RpcId, Tick};
use kasha_wire::hot::decode_small;
use kasha_wire::{AnswerView, DecodeError, OutcomeCode, Recorded, RecordedVerdict, Refused, Synced};
use kasha_witness::{Path, Verdict};

use super::advice::{Advice, advice};
use super::call::{Cancel, InFlight, Stage};
use super::frames::Known;
use super::{Completion, Session, WhyNot};
use crate::limits;

impl Session {
    fn slot_of_rpc(&self, rpc: RpcId) -> Option<usize> {
        self.identities.slot_of(rpc)
    }

    /// The running attempt of a call, if it has this number.
    fn in_flight(&mut self, slot: usize, attempt: u32) -> Option<&mut InFlight> {
        let call = &mut self.calls[slot];
        match &mut call.stage {
            Stage::InFlight(in_flight) if call.attempts == attempt => Some(in_flight),
            Stage::InFlight(_) | Stage::Queued | Stage::Gathering | Stage::Backoff { .. } | Stage::ForCoordinator => {
                hit(Probe::OldAttempt);
                None
            }
        }
    }

    pub(super) fn on_answer(
        &mut self,
        from: CoreId,
        payload: &[u8],
        now: Tick,
        out: &mut Effects,
    ) -> Result<Known, DecodeError> {
        let answer = AnswerView::decode(payload)?;
        let code = answer.result.first().copied().and_then(OutcomeCode::from_number);
        code.ok_or(DecodeError::Invalid("an outcome"))?;
        let Some(slot) = self.slot_of_rpc(answer.rpc) else { return Ok(Known::No) };
        self.note_answer_time(slot, from, false, now);
        if self.is_distributed(slot) {
            if !answer.synced {
                return Ok(self.on_speculative(slot, &answer, now, out));
            }
            match self.options.two_phase {
                true => self.on_participant_as_master(slot, &answer, now, out),
                false => self.on_participant(slot, &answer, now),
            }
            return Ok(Known::Yes);
        }
        if answer.synced {
            // This answer is durable by itself, so it does not matter which attempt asked.
            self.take_result(slot, answer.result);
            self.complete(slot, Path::Synced);
            return Ok(Known::Yes);
        }
        let Some(in_flight) = self.in_flight(slot, answer.attempt) else { return Ok(Known::No) };
        if answer.epoch != in_flight.target.epoch {
            return Ok(Known::No);
        }
        let is_first = !in_flight.attempt.is_answered();
        in_flight.attempt.on_answer(answer.epoch, false);
        if is_first {
            self.take_result(slot, answer.result);
        }
        self.judge(slot, now, out);
        Ok(Known::Yes)
    }

    fn take_result(&mut self, slot: usize, bytes: &[u8]) {
        let result = &mut self.calls[slot].result;
        result.clear();
        result.extend_from_slice(bytes);
    }

    pub(super) fn on_recorded(
        &mut self,
        from: CoreId,
        payload: &[u8],
        now: Tick,
        out: &mut Effects,
    ) -> Result<Known, DecodeError> {
        let recorded: Recorded = decode_small(payload)?;
        let Some(slot) = self.slot_of_rpc(recorded.rpc) else { return Ok(Known::No) };
        if from.node != recorded.node {
            return Ok(Known::No);
        }
        self.note_answer_time(slot, from, false, now);
        let accepted = recorded.verdict == RecordedVerdict::Accepted;
        if self.is_distributed(slot) {
            let known = self.on_part_recorded(slot, &recorded, now, out);
            if known == Known::Yes {
                self.note_verdict(recorded.verdict);
            }
            return Ok(known);
        }
        let Some(in_flight) = self.in_flight(slot, recorded.attempt) else { return Ok(Known::No) };
        let Some(witness) = in_flight.target.witnesses.number_of(recorded.node) else { return Ok(Known::No) };
        in_flight.attempt.on_recorded(recorded.list, witness, accepted);
        self.note_verdict(recorded.verdict);
        self.judge(slot, now, out);
        Ok(Known::Yes)
    }

    fn note_verdict(&mut self, verdict: RecordedVerdict) {
        if verdict == RecordedVerdict::Accepted {
            self.stats.accepted += 1;
        } else {
            self.stats.rejected += 1;
        }
        if matches!(verdict, RecordedVerdict::WrongList | RecordedVerdict::Frozen) {
            self.cluster.want_configuration();
        }
    }

    /// A witness that cannot be reached will not accept, so the attempt does not wait for it.
    pub(super) fn on_witness_gone(&mut self, slot: usize, core: CoreId, now: Tick, out: &mut Effects) {
        if self.is_distributed(slot) {
            return self.on_witness_of_some_gone(slot, core, now, out);
        }
        let Stage::InFlight(in_flight) = &mut self.calls[slot].stage else { return };
        let target = &in_flight.target;
        let configuration = self.cluster.configuration.as_ref().expect("something is in flight");
        let Some(witness) = target.witnesses.number_of(core.node) else { return };
        if configuration.core_of(core.node, target.shard) != Some(core) {
            return;
        }
        hit(Probe::WitnessGone);
        in_flight.attempt.on_recorded(target.list, witness, false);
        self.stats.rejected += 1;
        self.judge(slot, now, out);
    }

    pub(super) fn on_synced(
        &mut self,
        from: CoreId,
        payload: &[u8],
        now: Tick,
        out: &mut Effects,
    ) -> Result<Known, DecodeError> {
        let synced: Synced = decode_small(payload)?;
        let Some(slot) = self.slot_of_rpc(synced.rpc) else { return Ok(Known::No) };
        self.note_answer_time(slot, from, true, now);
        let Some(in_flight) = self.in_flight(slot, synced.attempt) else { return Ok(Known::No) };
        // Without this attempt's answer there is no result that the sync could complete. A sync of another epoch says
        // nothing about this epoch's execution [M].
        if synced.epoch != in_flight.target.epoch || !in_flight.attempt.is_answered() {
            return Ok(Known::No);
        }
        in_flight.attempt.on_answer(synced.epoch, true);
        self.judge(slot, now, out);
        Ok(Known::Yes)
    }

    fn judge(&mut self, slot: usize, now: Tick, out: &mut Effects) {
        let Stage::InFlight(in_flight) = self.calls[slot].stage else { return };
        match in_flight.attempt.verdict() {
            Verdict::Complete(path) => self.complete(slot, path),
            Verdict::NeedSync if !in_flight.sync_sent => self.send_sync(slot, in_flight, now, out),
            Verdict::NeedSync | Verdict::Wait => {}
        }
    }

    /// The result that the call holds is durable.
    fn complete(&mut self, slot: usize, path: Path) {
        match path {
            Path::Fast => self.stats.fast += 1,
            Path::Synced => self.stats.synced += 1,
        }
        let spare = self.spare.pop().unwrap_or_default();
        let call = &mut self.calls[slot];
        let result = std::mem::replace(&mut call.result, spare);
        let attempts = call.attempts;
        let is_cancelled = result.first().copied().and_then(OutcomeCode::from_number) == Some(OutcomeCode::Cancelled);
        let completion = match call.update().cancel {
            Cancel::Begun(why) if is_cancelled => Completion::NotExecuted(why),
            Cancel::Never | Cancel::AtDeadline if is_cancelled => Completion::NotExecuted(WhyNot::Cancelled),
            Cancel::Never | Cancel::AtDeadline | Cancel::Begun(_) => Completion::Executed { result, path, attempts },
        };
        self.end(slot, completion);
    }

    pub(super) fn on_refused(&mut self, payload: &[u8], now: Tick, out: &mut Effects) -> Result<Known, DecodeError> {
        let refused: Refused = decode_small(payload)?;
        let Some(slot) = self.slot_of_rpc(refused.rpc) else { return Ok(Known::No) };
        let (attempt, is_distributed) = (self.calls[slot].attempts, self.is_distributed(slot));
        // Each participant has attempts of its own.
        let attempt = match is_distributed && self.is_last_attempt(slot, refused.shard, refused.attempt) {
            true => attempt,
            false => refused.attempt,
        };
        let Some(&mut in_flight) = self.in_flight(slot, attempt) else { return Ok(Known::No) };
        self.stats.refused(refused.why);
        match advice(refused.why) {
            Advice::Refresh => self.try_later(slot, true, now),
            Advice::Retry => self.try_later(slot, false, now),
            Advice::Cancel(why) => self.on_hopeless(slot, in_flight, why, now, out),
            Advice::GiveUp(why) => self.end(slot, Completion::Unknown(why)),
        }
        Ok(Known::Yes)
    }

    /// The update would be refused again and again. It is cancelled, and the cancellation is repeated until there is an
    /// outcome.
    fn on_hopeless(&mut self, slot: usize, in_flight: InFlight, why: WhyNot, now: Tick, out: &mut Effects) {
        // Of a transaction over several shards other participants, or witnesses, may have got it.
        let is_of_one = !self.is_distributed(slot);
        let call = &mut self.calls[slot];
        let is_only_delivery = is_of_one && call.attempts == 1 && in_flight.target.witnesses.count() == 0;
        let update = call.update();
        update.out_of_memory += u32::from(why == WhyNot::OutOfMemory);
        let may_pass = why == WhyNot::OutOfMemory && update.out_of_memory < limits::OUT_OF_MEMORY_REFUSALS_MAX;
        let is_begun = matches!(update.cancel, Cancel::Begun(_));
        if why == WhyNot::BadRequest && is_only_delivery || planted::is_on(Bug::NotExecutedAfterRefusal) {
            // R2.2: only this server ever got the update, and it cannot decode it. A witness, or the server of an
            // earlier attempt, might run another version and be able to execute it.
            self.end(slot, Completion::NotExecuted(why));
        } else if may_pass || is_begun || !self.options.exactly_once {
            self.try_later(slot, false, now);
        } else {
            self.cancel(slot, why, now, out);
        }
    }

    /// The server refused, so it is there: the call is sent again later.
    pub(super) fn try_later(&mut self, slot: usize, for_configuration: bool, now: Tick) {
        self.calls[slot].silent = 0;
        self.pause(slot, for_configuration, now);
    }
}
