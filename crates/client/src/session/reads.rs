//! Reads and status questions: no ids that servers keep, no records; asked again until there is an answer. Any answer
//! to a read that arrives while its call is open is linearizable, whichever attempt it belongs to.

use kasha_machine::{Effects, Endpoint};
use kasha_types::{CoreId, Epoch, ListVersion, ShardId, TableId, Tick};
use kasha_wire::hot::decode_small;
use kasha_wire::status::CoreStatus;
use kasha_wire::{DecodeError, Envelope, Message, OutcomeCode, Read, ReadAnswerView, ReadRefused, ReadView, Refusal};
use kasha_witness::Attempt;

use super::call::{InFlight, Kind, Slots, Stage, Witnesses};
use super::updates::{NoTarget, check_read, slots_of};
use super::{CallId, Completion, Known, Session, WhyFailed, WhyNot, send, send_message};

impl Session {
    pub(super) fn new_read(
        &mut self,
        now: Tick,
        table: TableId,
        read: &Read<'_>,
        deadline: Option<Tick>,
        out: &mut Effects,
    ) -> CallId {
        let checked = check_read(read);
        let slots = match checked {
            Ok(()) => slots_of(|each| read.for_each_key(each)).0,
            Err(_) => Slots::Several,
        };
        let kind = Kind::Read { table, code: read.code(), slots };
        let slot = self.insert(kind, now, deadline, |arguments| {
            if checked.is_ok() {
                read.encode_arguments(arguments);
            }
        });
        let id = self.calls.id(slot);
        self.stats.reads += 1;
        match checked {
            Err(why) => self.end(slot, Completion::ReadFailed(WhyFailed::NotPossible(why))),
            Ok(()) if !self.calls.has_room(0) => {
                self.end(slot, Completion::ReadFailed(WhyFailed::NotPossible(WhyNot::Overloaded)));
            }
            Ok(()) => self.start_read(slot, now, out),
        }
        id
    }

    pub(super) fn start_read(&mut self, slot: usize, now: Tick, out: &mut Effects) {
        let Kind::Read { table, code, slots } = self.calls[slot].kind else { unreachable!("a read") };
        let target = match self.target(slot, table, slots) {
            Ok(target) => target,
            Err(NoTarget::NoConfiguration | NoTarget::NotServing) => return self.pause(slot, true, now),
            Err(NoTarget::UnknownTable) => return self.ask_coordinator(slot, now),
            Err(NoTarget::CrossShard) => {
                let why = WhyFailed::NotPossible(WhyNot::CrossShard);
                return self.end(slot, Completion::ReadFailed(why));
            }
        };
        let patience = self.patience(self.calls[slot].silent);
        let (read_id, cluster_time) = (self.wire_id(slot), self.cluster.time(now));
        let call = &mut self.calls[slot];
        self.stats.attempts += 1;
        self.stats.retries += u64::from(call.attempts > 0);
        (call.sent, call.attempts) = (true, call.attempts + 1);
        let (epoch, primary, list) = (target.epoch, target.primary, ListVersion::NONE);
        let envelope = Envelope { shard: target.shard, epoch, list, cluster_time, attempt: call.attempts };
        let mark = out.mark();
        ReadView { envelope, read_id, table, code, arguments: &call.bytes }.encode(out.arena());
        send(Endpoint::Core(primary), mark, out);
        call.stage = Stage::InFlight(in_flight(target.shard, epoch, primary));
        call.resume = now.after(patience);
        self.timers.arm(&mut self.calls, slot);
    }

    /// The call's id as servers see it.
    fn wire_id(&self, slot: usize) -> u64 {
        self.calls.id(slot).0.wrapping_add(self.salt)
    }

    fn slot_of_wire_id(&self, id: u64) -> Option<usize> {
        self.calls.find(CallId(id.wrapping_sub(self.salt)))
    }

    fn slot_of_read(&self, read_id: u64) -> Option<usize> {
        self.slot_of_wire_id(read_id).filter(|&slot| matches!(self.calls[slot].kind, Kind::Read { .. }))
    }

    pub(super) fn on_read_answer(&mut self, payload: &[u8]) -> Result<Known, DecodeError> {
        let answer = ReadAnswerView::decode(payload)?;
        let code = answer.result.first().copied().and_then(OutcomeCode::from_number);
        code.ok_or(DecodeError::Invalid("an outcome"))?;
        let Some(slot) = self.slot_of_read(answer.read_id) else { return Ok(Known::No) };
        let mut result = self.spare.pop().unwrap_or_default();
        result.extend_from_slice(answer.result);
        self.end(slot, Completion::Read { result });
        Ok(Known::Yes)
    }

    pub(super) fn on_read_refused(&mut self, payload: &[u8], now: Tick) -> Result<Known, DecodeError> {
        let refused: ReadRefused = decode_small(payload)?;
        let Some(slot) = self.slot_of_read(refused.read_id) else { return Ok(Known::No) };
        if !matches!(self.calls[slot].stage, Stage::InFlight(_)) {
            return Ok(Known::No);
        }
        self.stats.refused(refused.why);
        self.calls[slot].silent = 0;
        match refused.why {
            Refusal::NotPrimary | Refusal::WrongShard | Refusal::OldWitnessList | Refusal::Recovering => {
                self.pause(slot, true, now);
            }
            Refusal::Busy
            | Refusal::LeaseUnproven
            | Refusal::OutOfMemory
            | Refusal::TooFewMembers
            | Refusal::WindowExceeded
            | Refusal::LeaseExpired
            | Refusal::Stale
            | Refusal::Reused
            | Refusal::Unprovable => self.pause(slot, false, now),
            Refusal::BadRequest | Refusal::TooLarge => {
                self.end(slot, Completion::ReadFailed(WhyFailed::Refused(refused.why)));
            }
        }
        Ok(Known::Yes)
    }

    pub(super) fn start_status(&mut self, slot: usize, now: Tick, out: &mut Effects) {
        let Kind::Status { core } = self.calls[slot].kind else { unreachable!("a status question") };
        let patience = self.patience(self.calls[slot].silent);
        let id = self.wire_id(slot);
        let call = &mut self.calls[slot];
        (call.sent, call.attempts, call.silent) = (true, call.attempts + 1, call.silent + 1);
        call.stage = Stage::Backoff { for_configuration: false };
        call.resume = now.after(patience);
        send_message(Endpoint::Core(core), &Message::GetStatus { id }, out);
        self.timers.arm(&mut self.calls, slot);
    }

    pub(super) fn on_status(&mut self, from: Endpoint, id: u64, status: CoreStatus) -> Known {
        match self.slot_of_wire_id(id) {
            Some(slot) if matches!(self.calls[slot].kind, Kind::Status { core } if from == Endpoint::Core(core)) => {
                self.end(slot, Completion::Status(Box::new(status)));
                Known::Yes
            }
            _ => Known::No,
        }
    }
}

fn in_flight(shard: ShardId, epoch: Epoch, primary: CoreId) -> InFlight {
    let (list, witnesses) = (ListVersion::NONE, Witnesses::default());
    InFlight { shard, epoch, primary, list, attempt: Attempt::new(epoch, list, 0), witnesses, sync_sent: false }
}
