//! Reads and status questions. Servers keep no ids and no records of them, and they are asked again until there is an
//! answer. Any answer to a read that arrives while its call is open is linearizable, whichever attempt it belongs to.

use std::time::Duration;

use kasha_machine::{Effects, Endpoint};
use kasha_types::{CoreId, TableId, Tick};
use kasha_wire::hot::decode_small;
use kasha_wire::operation::{Excess, OwnedOperation, PartsBuffer};
use kasha_wire::outcome::Shape;
use kasha_wire::{DecodeError, Envelope, Outcome, OutcomeCode, Read, ReadAnswerView, ReadRefused, ReadView, message};

use super::advice::{Advice, advice};
use super::attempt::Attempt;
use super::call::{CoreQuestion, Keys, Kind, ReadCall, Slots, Stage};
use super::calls::CallId;
use super::frames::{Known, send, send_message};
use super::participant::Participants;
use super::route::slots_of;
use super::target::{NoTarget, Target};
use super::{Completion, CoreAnswer, Session, TimeToLive, WhyFailed, WhyNot};

impl Session {
    /// Starts a read of keys of `table`; `deadline` as in [`CallOptions`](super::CallOptions).
    pub fn read(
        &mut self,
        now: Tick,
        table: TableId,
        read: &Read<'_>,
        deadline: Option<Tick>,
        out: &mut Effects,
    ) -> CallId {
        let checked = read.check_limits();
        self.call_read(now, table, (read, checked), |arguments| read.encode_arguments(arguments), deadline, out)
    }

    /// The same with an operation that was checked and encoded before.
    ///
    /// # Panics
    /// If the operation is an update.
    pub fn read_encoded(
        &mut self,
        now: Tick,
        table: TableId,
        operation: &OwnedOperation,
        deadline: Option<Tick>,
        out: &mut Effects,
    ) -> CallId {
        let read = operation.read().expect("a caller made it of a read");
        let encoded = operation.arguments();
        self.call_read(now, table, (&read, Ok(())), |arguments| arguments.extend_from_slice(encoded), deadline, out)
    }

    /// The same for commands of one shard that only read, which were checked when they were put together.
    pub fn query_commands(
        &mut self,
        now: Tick,
        commands: &PartsBuffer,
        deadline: Option<Tick>,
        out: &mut Effects,
    ) -> CallId {
        let queries = commands.as_parts();
        let table = queries.first_table().expect("a command");
        let read = Read::Query { queries };
        self.call_read(now, table, (&read, Ok(())), |arguments| read.encode_arguments(arguments), deadline, out)
    }

    /// Reads keys of one shard for a call on keys of several.
    pub(super) fn read_for(
        &mut self,
        whole: CallId,
        now: Tick,
        table: TableId,
        read: &Read<'_>,
        deadline: Option<Tick>,
        out: &mut Effects,
    ) -> CallId {
        let encode = |arguments: &mut Vec<u8>| read.encode_arguments(arguments);
        self.call_read_of(Some(whole), now, table, (read, Ok(())), encode, deadline, out)
    }

    fn call_read(
        &mut self,
        now: Tick,
        table: TableId,
        read: (&Read<'_>, Result<(), Excess>),
        encode_arguments: impl FnOnce(&mut Vec<u8>),
        deadline: Option<Tick>,
        out: &mut Effects,
    ) -> CallId {
        self.stats.reads += 1;
        self.call_read_of(None, now, table, read, encode_arguments, deadline, out)
    }

    #[expect(clippy::too_many_arguments, reason = "what its three callers differ in")]
    fn call_read_of(
        &mut self,
        part_of: Option<CallId>,
        now: Tick,
        table: TableId,
        (read, checked): (&Read<'_>, Result<(), Excess>),
        encode_arguments: impl FnOnce(&mut Vec<u8>),
        deadline: Option<Tick>,
        out: &mut Effects,
    ) -> CallId {
        let checked = checked.map_err(WhyNot::from);
        let slots = match (checked, read) {
            // It names no key, and is for whoever owns this slot.
            (Ok(()), Read::Scan { cursor, .. } | Read::ScanValues { cursor, .. }) => Slots::One(cursor.slot),
            (Ok(()), _) => slots_of(|each| read.for_each_key(table, each)).0,
            (Err(_), _) => Slots::Several,
        };
        let call = ReadCall { keys: Keys { table, slots }, code: read.code(), part_of, changed: None };
        let slot = self.insert(Kind::Read(call), now, deadline, |arguments| {
            if checked.is_ok() {
                encode_arguments(arguments);
            }
        });
        let id = self.calls.id(slot);
        match checked {
            Err(why) => self.end_undone(slot, why),
            Ok(()) => {
                let owner = self.admit(slot, call.keys);
                if self.calls.has_room_for(slot) {
                    self.start_read_at(slot, call, owner.and_then(|shard| self.target_at(shard)), now, out);
                } else {
                    self.end_undone(slot, WhyNot::Overloaded);
                }
            }
        }
        id
    }

    pub(super) fn start_read(&mut self, slot: usize, read: ReadCall, now: Tick, out: &mut Effects) {
        let target = self.admit(slot, read.keys).and_then(|shard| self.target_at(shard));
        self.start_read_at(slot, read, target, now, out);
    }

    fn start_read_at(
        &mut self,
        slot: usize,
        read: ReadCall,
        target: Result<Target, NoTarget>,
        now: Tick,
        out: &mut Effects,
    ) {
        let Keys { table, .. } = read.keys;
        if Read::row_of(read.code).is_some_and(|row| self.cluster.lacks_level(row.level)) {
            return self.end_undone(slot, WhyNot::Level);
        }
        if tells_an_end(read.code) && !self.cluster.knows_time() {
            return self.pause(slot, false, now);
        }
        let target = match target {
            Ok(target) => target,
            Err(NoTarget::NoConfiguration | NoTarget::NotServing) => return self.pause(slot, true, now),
            Err(NoTarget::UnknownTable) => return self.ask_coordinator(slot, now),
            Err(NoTarget::CrossShard) if is_multi_get(read.code) => return self.start_snapshot(slot, read, now, out),
            Err(NoTarget::CrossShard) => return self.end_undone(slot, WhyNot::CrossShard),
        };
        let patience = self.patience_with(slot, &target);
        let (read_id, cluster_time) = (self.wire_id(slot), self.cluster.time_taken(now));
        let call = &mut self.calls[slot];
        self.stats.attempts += 1;
        self.stats.retries += u64::from(call.is_sent());
        call.attempts += 1;
        let (shard, epoch, list) = (target.shard, target.epoch, target.list);
        let envelope = Envelope { shard, epoch, list, cluster_time, attempt: call.attempts, turn: None };
        let mark = out.mark();
        ReadView { envelope, read_id, table, code: read.code, arguments: &call.bytes }.encode(out.arena());
        send(Endpoint::Core(target.primary), mark, out);
        call.stage = Stage::InFlight;
        call.participants = Participants::One(Some(Attempt::new(target, call.attempts, now)));
        call.note_sent(now, patience);
        self.timers.arm(&mut self.calls, slot);
    }

    /// The call's id on the wire.
    fn wire_id(&self, slot: usize) -> u64 {
        self.calls.id(slot).0.wrapping_add(self.salt)
    }

    fn slot_of_wire_id(&self, id: u64) -> Option<usize> {
        self.calls.find(CallId(id.wrapping_sub(self.salt)))
    }

    fn slot_of_read(&self, read_id: u64) -> Option<usize> {
        self.slot_of_wire_id(read_id).filter(|&slot| matches!(self.calls[slot].kind, Kind::Read(_)))
    }

    pub(super) fn on_read_answer(
        &mut self,
        from: CoreId,
        payload: &[u8],
        now: Tick,
        out: &mut Effects,
    ) -> Result<Known, DecodeError> {
        let answer = ReadAnswerView::decode(payload)?;
        let code = answer.result.first().copied().and_then(OutcomeCode::from_number);
        code.ok_or(DecodeError::Invalid("an outcome"))?;
        let Some(slot) = self.slot_of_read(answer.read_id) else { return Ok(Known::No) };
        let left = match self.calls[slot].kind {
            Kind::Read(read) if tells_an_end(read.code) => Some(self.time_left(answer.result, now)?),
            Kind::Read(_) | Kind::Update(_) | Kind::Table(_) | Kind::Status { .. } | Kind::Refresh => None,
        };
        self.note_answer_time(slot, from, false, now, out);
        let mut result = self.spare.pop().unwrap_or_default();
        result.extend_from_slice(answer.result);
        let completion = match left {
            Some(left) => Completion::TimeToLive { result, left },
            None => Completion::Read { result },
        };
        self.end(slot, completion);
        Ok(Known::Yes)
    }

    /// How long the value of a key has to live, by what we take ClusterTime for. If that was wrong, the core has told us before.
    fn time_left(&self, result: &[u8], now: Tick) -> Result<Option<TimeToLive>, DecodeError> {
        Ok(match Outcome::decode(Shape::Expiry, result)? {
            Outcome::Expiry(_, None) => Some(TimeToLive::Forever),
            Outcome::Expiry(_, Some(ends)) => {
                let left = ends.0.saturating_sub(self.cluster.time_taken(now).0);
                Some(TimeToLive::For(Duration::from_millis(left)))
            }
            Outcome::NotFound => None,
            // A core that cannot run it says why.
            _ => return Err(DecodeError::Invalid("the end of a value")),
        })
    }

    pub(super) fn on_read_refused(&mut self, payload: &[u8], now: Tick) -> Result<Known, DecodeError> {
        let refused: ReadRefused = decode_small(payload)?;
        let Some(slot) = self.slot_of_read(refused.read_id) else { return Ok(Known::No) };
        if self.calls[slot].stage != Stage::InFlight {
            return Ok(Known::No);
        }
        self.stats.refused(refused.why);
        match advice(refused.why) {
            Advice::Refresh => self.try_later(slot, true, now),
            // A read has no id and no lease that could be lost, so this refusal is no reason to stop asking.
            Advice::Retry | Advice::GiveUp(_) => self.try_later(slot, false, now),
            Advice::Cancel(_) => self.end(slot, Completion::ReadFailed(WhyFailed::Refused(refused.why))),
        }
        Ok(Known::Yes)
    }

    /// Asks a core for its status, or for its longest turns.
    pub fn ask_core(&mut self, now: Tick, core: CoreId, question: CoreQuestion, out: &mut Effects) -> CallId {
        let slot = self.insert(Kind::Status { core, question }, now, None, |_| ());
        self.start_status(slot, core, question, now, out);
        self.calls.id(slot)
    }

    pub(super) fn start_status(
        &mut self,
        slot: usize,
        core: CoreId,
        question: CoreQuestion,
        now: Tick,
        out: &mut Effects,
    ) {
        let patience = self.patience(self.calls[slot].silent);
        let id = self.wire_id(slot);
        let call = &mut self.calls[slot];
        call.attempts += 1;
        call.silent += 1;
        call.stage = Stage::Backoff { for_configuration: false };
        call.resume = now.after(patience);
        match question {
            CoreQuestion::Status => send_message(Endpoint::Core(core), &message::GetStatus { id }, out),
            CoreQuestion::Turns => send_message(Endpoint::Core(core), &message::GetTurns { id }, out),
        }
        self.timers.arm(&mut self.calls, slot);
    }

    pub(super) fn on_core_answer(&mut self, from: Endpoint, id: u64, answer: CoreAnswer) -> Known {
        let answered = match &answer {
            CoreAnswer::Status(_) => CoreQuestion::Status,
            CoreAnswer::Turns(_) => CoreQuestion::Turns,
        };
        let is_asked = |kind| matches!(kind, Kind::Status { core, question } if from == Endpoint::Core(core) && question == answered);
        match self.slot_of_wire_id(id) {
            Some(slot) if is_asked(self.calls[slot].kind) => {
                self.end(slot, Completion::Status(answer));
                Known::Yes
            }
            _ => Known::No,
        }
    }
}

/// Whether the caller is told how far from now the answer's ClusterTime is.
fn tells_an_end(code: u8) -> bool {
    Read::row_of(code).is_some_and(|row| row.shape == Shape::Expiry)
}

fn is_multi_get(code: u8) -> bool {
    Read::row_of(code).is_some_and(|row| row.shape == Shape::Values)
}
