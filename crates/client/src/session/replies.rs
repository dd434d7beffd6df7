//! What primaries answer to an update, and what follows from it (DESIGN section 2): `on_answer`, `on_synced` → `judge` →
//! `complete`; or `on_refused`. `participants` takes what witnesses say, and judges.
//!
//! Only messages of one attempt count together (**R2.1**). A refusal alone never ends in "not executed", since a
//! witness or another delivery may still run the update (**R2.2**). CURP 3.2.1.

use kasha_machine::Effects;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{CoreId, Tick};
use kasha_wire::hot::decode_small;
use kasha_wire::{AnswerView, DecodeError, OutcomeCode, Refused, Synced};
use kasha_witness::Path;

use super::advice::{Advice, advice};
use super::attempt::Attempt;
use super::call::{Cancel, Stage};
use super::frames::Known;
use super::participant::Participants;
use super::{Completion, Session, WhyNot};
use crate::limits;

impl Session {
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
        let Some(slot) = self.identities.slot_of(answer.rpc) else { return Ok(Known::No) };
        self.note_answer_time(slot, from, false, now, out);
        if !answer.synced {
            return Ok(self.on_speculative(slot, &answer, now, out));
        }
        // This answer is durable by itself, so it does not matter which attempt asked.
        match self.calls[slot].participants {
            Participants::One(_) => {
                self.take_result(slot, answer.result);
                self.complete(slot, Path::Synced);
            }
            Participants::Several(_) if self.options.two_phase => {
                self.on_participant_as_master(slot, &answer, now, out)
            }
            Participants::Several(_) => self.on_participant(slot, &answer, now),
        }
        Ok(Known::Yes)
    }

    pub(super) fn take_result(&mut self, slot: usize, bytes: &[u8]) {
        let result = &mut self.calls[slot].result;
        result.clear();
        result.extend_from_slice(bytes);
    }

    pub(super) fn on_synced(
        &mut self,
        from: CoreId,
        payload: &[u8],
        now: Tick,
        out: &mut Effects,
    ) -> Result<Known, DecodeError> {
        let synced: Synced = decode_small(payload)?;
        let Some(slot) = self.identities.slot_of(synced.rpc) else { return Ok(Known::No) };
        self.note_answer_time(slot, from, true, now, out);
        let Participants::One(Some(attempt)) = &mut self.calls[slot].participants else { return Ok(Known::No) };
        // Without this attempt's answer there is no result that the sync could complete. A sync of another epoch says
        // nothing about this epoch's execution [M].
        let Attempt { target, number, told, .. } = attempt;
        if synced.attempt != *number || synced.epoch != target.epoch || !told.is_answered() {
            return Ok(Known::No);
        }
        told.on_answer(synced.epoch, true);
        let shard = target.shard;
        self.judge(slot, shard, now, out);
        Ok(Known::Yes)
    }

    /// The result that the call holds is durable.
    pub(super) fn complete(&mut self, slot: usize, path: Path) {
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
        let Some(slot) = self.identities.slot_of(refused.rpc) else { return Ok(Known::No) };
        let call = &mut self.calls[slot];
        let is_last = call.participants.attempt(refused.shard, refused.attempt).is_some();
        if call.stage != Stage::InFlight || !is_last {
            hit(Probe::OldAttempt);
            return Ok(Known::No);
        }
        self.stats.refused(refused.why);
        match advice(refused.why) {
            Advice::Refresh => self.try_later(slot, true, now),
            Advice::Retry => self.try_later(slot, false, now),
            Advice::Cancel(why) => self.on_hopeless(slot, why, now, out),
            Advice::GiveUp(why) => self.end(slot, Completion::Unknown(why)),
        }
        Ok(Known::Yes)
    }

    /// The update would be refused again and again. It is cancelled, and the cancellation is repeated until there is an
    /// outcome.
    fn on_hopeless(&mut self, slot: usize, why: WhyNot, now: Tick, out: &mut Effects) {
        // Of a transaction over several shards other participants, or witnesses, may have got it.
        let call = &mut self.calls[slot];
        let is_unrecorded = call.participants.one().is_some_and(|attempt| attempt.target.witnesses.count() == 0);
        let is_only_delivery = is_unrecorded && call.attempts == 1;
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
