//! One update from its caller to its outcome (DESIGN section 2, CURP 3.2.1).

use kasha_machine::planted::{self, Bug};
use kasha_machine::{Effect, Effects, Endpoint, Gate};
use kasha_types::limits::{
    BODY_BYTES_MAX, KEY_BYTES_MAX, OPERATION_KEY_BYTES_MAX, OPERATION_KEYS_MAX, VALUE_BYTES_MAX, WITNESS_BODY_BYTES_MAX,
};
use kasha_types::{
    AckedBelow, ClientId, ClusterTime, CoreId, Epoch, ListVersion, RpcId, Sequence, ShardId, Slot, TableId, Tick,
    slot_of,
};
use kasha_wire::body::BODY_HEAD_BYTES;
use kasha_wire::hot::{decode_small, encode_small};
use kasha_wire::operation::Items;
use kasha_wire::{
    AnswerView, Body, BodyHead, DecodeError, Envelope, Kind as FrameKind, OutcomeCode, Read, Recorded, RecordedVerdict,
    Refusal, Refused, RequestView, SyncRequest, Synced, Update,
};
use kasha_witness::{Attempt, Path, Verdict};

use super::call::{InFlight, Kind, NEVER, Slots, Stage, UpdateCall, Witnesses};
use super::{CallId, CallOptions, Completion, Known, Session, WhyNot, WhyUnknown, send};
use crate::limits;

/// Where one attempt goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) shard: ShardId,
    pub(super) epoch: Epoch,
    pub(super) primary: CoreId,
    list: ListVersion,
    witnesses: Witnesses,
}

/// Why an attempt cannot go anywhere now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoTarget {
    NoConfiguration,
    UnknownTable,
    CrossShard,
    NotServing,
}

/// The fixed fields of a body that has no number yet: valid, and of nobody.
fn unnumbered(table: TableId, has_operation_key: bool) -> BodyHead {
    BodyHead {
        rpc: RpcId { client: ClientId(u64::MAX), sequence: Sequence(1) },
        acknowledgement: AckedBelow(1),
        lease_expiry: ClusterTime(0),
        not_after: ClusterTime(u64::from(has_operation_key)),
        table,
    }
}

/// Numbers an encoded body: from here on it is frozen (R2.1).
fn number_body(body: &mut [u8], head: &BodyHead) {
    let fields =
        [head.rpc.client.0, head.rpc.sequence.0, head.acknowledgement.0, head.lease_expiry.0, head.not_after.0];
    for (place, field) in body[..BODY_HEAD_BYTES].chunks_exact_mut(8).zip(fields) {
        place.copy_from_slice(&field.to_le_bytes());
    }
    debug_assert_eq!(Body::decode(body).map(|body| body.head), Ok(*head), "the layout of bodies has changed");
}

fn check_items(items: &Items<'_>) -> Result<(), WhyNot> {
    if items.count() == 0 || items.count() as usize > OPERATION_KEYS_MAX {
        return Err(WhyNot::KeyCount);
    }
    if items.iter().any(|item| item.value.len() > VALUE_BYTES_MAX) {
        return Err(WhyNot::ValueTooLarge);
    }
    Ok(())
}

fn check_operation_key(options: &CallOptions<'_>) -> Result<(), WhyNot> {
    let is_bad = options.operation_key.is_some_and(|(key, _)| key.is_empty() || key.len() > OPERATION_KEY_BYTES_MAX);
    if is_bad { Err(WhyNot::OperationKey) } else { Ok(()) }
}

/// Everything has a limit, and the encoders count on it.
pub(crate) fn check_update(update: &Update<'_>) -> Result<(), WhyNot> {
    match update {
        Update::Put { key, value }
        | Update::PutIfVersion { key, value, .. }
        | Update::PutIfAbsent { key, value }
        | Update::Append { key, value } => {
            if key.len() > KEY_BYTES_MAX {
                return Err(WhyNot::KeyTooLarge);
            }
            if value.len() > VALUE_BYTES_MAX {
                return Err(WhyNot::ValueTooLarge);
            }
            Ok(())
        }
        Update::Delete { key } | Update::DeleteIfVersion { key, .. } | Update::Increment { key, .. } => {
            if key.len() > KEY_BYTES_MAX { Err(WhyNot::KeyTooLarge) } else { Ok(()) }
        }
        Update::MultiPut(items) | Update::MultiDelete(items) | Update::MultiIncrement(items) => check_items(items),
    }
}

pub(crate) fn check_read(read: &Read<'_>) -> Result<(), WhyNot> {
    match read {
        Read::Get { key } | Read::Exists { key } if key.len() > KEY_BYTES_MAX => Err(WhyNot::KeyTooLarge),
        Read::Get { .. } | Read::Exists { .. } => Ok(()),
        Read::MultiGet(items) => check_items(items),
    }
}

/// The slots of some keys, and how many keys there are.
pub(super) fn slots_of<'a>(for_each_key: impl FnOnce(&mut dyn FnMut(&'a [u8]))) -> (Slots, u16) {
    let (mut slots, mut count) = (None, 0u16);
    for_each_key(&mut |key| {
        let slot = slot_of(key);
        count = count.saturating_add(1);
        slots = match slots {
            None => Some(Slots::One(slot)),
            Some(Slots::One(before)) if before == slot => slots,
            Some(_) => Some(Slots::Several),
        };
    });
    (slots.expect("every operation has a key"), count)
}

impl Session {
    pub(super) fn new_update(
        &mut self,
        now: Tick,
        table: TableId,
        update: &Update<'_>,
        options: &CallOptions<'_>,
        out: &mut Effects,
    ) -> CallId {
        let checked = check_operation_key(options).and_then(|()| check_update(update));
        let (slots, keys) = match checked {
            Ok(()) => slots_of(|each| update.for_each_key(each)),
            Err(_) => (Slots::Several, 0),
        };
        let call = UpdateCall {
            table,
            slots,
            keys,
            operation_key_ttl: options.operation_key.map(|(_, ttl)| ttl),
            sequence: None,
            cancelling: None,
            cancel_on_deadline: options.cancel_on_deadline,
            out_of_memory: 0,
            answered: false,
        };
        let operation_key = options.operation_key.map(|(key, _)| key);
        let slot = self.insert(Kind::Update(call), now, options.deadline, |body| {
            if checked.is_ok() {
                Body::encode(&unnumbered(table, operation_key.is_some()), operation_key, update, body);
            }
        });
        let id = self.calls.id(slot);
        let why_not = match checked {
            Err(why) => Some(why),
            Ok(()) if self.calls[slot].bytes.len() > BODY_BYTES_MAX => Some(WhyNot::RequestTooLarge),
            Ok(()) if !self.calls.has_room(0) => Some(WhyNot::Overloaded),
            Ok(()) if self.calls[slot].deadline <= now => Some(WhyNot::DeadlineBeforeSend),
            Ok(()) => None,
        };
        match why_not {
            Some(why) => self.end(slot, Completion::NotExecuted(why)),
            // No overtaking: what waits for room in the window goes first.
            None if !self.queued.is_empty() => self.queue(slot),
            None => self.start_update(slot, now, out),
        }
        id
    }

    fn queue(&mut self, slot: usize) {
        self.queued.push_back(self.calls.id(slot));
        let call = &mut self.calls[slot];
        (call.stage, call.resume) = (Stage::Queued, NEVER);
        self.timers.arm(&mut self.calls, slot);
    }

    /// Starts what was queued, as far as the window goes.
    pub(super) fn start_queued(&mut self, now: Tick, out: &mut Effects) {
        let room = kasha_types::limits::OUTSTANDING_MAX;
        while self.numbered.as_ref().is_some_and(|numbered| numbered.window.unacknowledged() < room)
            && let Some(id) = self.queued.pop_front()
        {
            if let Some(slot) = self.calls.find(id) {
                self.start_update(slot, now, out);
            }
        }
    }

    /// The owner of all slots of a call.
    fn owner(&self, slot: usize, table: TableId, slots: Slots) -> Result<ShardId, NoTarget> {
        let configuration = self.configuration().ok_or(NoTarget::NoConfiguration)?;
        let owner_of = |key_slot: Slot| {
            configuration.owner(table, key_slot).ok_or_else(|| {
                let is_known = configuration.tables.iter().any(|info| info.table == table);
                if is_known { NoTarget::NotServing } else { NoTarget::UnknownTable }
            })
        };
        if let Slots::One(key_slot) = slots {
            return owner_of(key_slot);
        }
        let mut found = None;
        let call = &self.calls[slot];
        let mut each = |key: &[u8]| {
            let owner = owner_of(slot_of(key));
            found = match found {
                None => Some(owner),
                Some(before) if before == owner => found,
                Some(_) => Some(Err(NoTarget::CrossShard)),
            };
        };
        match call.kind {
            Kind::Update(_) => Body::decode(&call.bytes).expect("encoded here").update.for_each_key(&mut each),
            Kind::Read { code, .. } => Read::decode(code, &call.bytes).expect("encoded here").for_each_key(&mut each),
            _ => unreachable!("only updates and reads have keys"),
        }
        found.expect("every operation has a key")
    }

    pub(super) fn is_table_unknown(&self, slot: usize) -> bool {
        let (table, slots) = match self.calls[slot].kind {
            Kind::Update(update) => (update.table, update.slots),
            Kind::Read { table, slots, .. } => (table, slots),
            _ => unreachable!("only updates and reads have tables"),
        };
        self.owner(slot, table, slots) == Err(NoTarget::UnknownTable)
    }

    /// Where the next attempt of a call goes, without witnesses.
    pub(super) fn target(&self, slot: usize, table: TableId, slots: Slots) -> Result<Target, NoTarget> {
        let shard = self.owner(slot, table, slots)?;
        let configuration = self.configuration().ok_or(NoTarget::NoConfiguration)?;
        let config = configuration.shard(shard).ok_or(NoTarget::NotServing)?;
        let primary = configuration.core_of(config.primary, shard).ok_or(NoTarget::NotServing)?;
        if config.phase != kasha_wire::ShardPhase::Serving {
            return Err(NoTarget::NotServing);
        }
        let witnesses = Witnesses::default();
        Ok(Target { shard, epoch: config.epoch, primary, list: ListVersion::NONE, witnesses })
    }

    /// Adds the witnesses to a target, if the fast path exists for this update (R6.1).
    fn with_witnesses(&self, mut target: Target, slot: usize, update: &UpdateCall) -> Target {
        let configuration = self.configuration().expect("there is a target");
        let config = configuration.shard(target.shard).expect("there is a target");
        let keys = update.keys + u16::from(update.operation_key_ttl.is_some());
        let is_recordable = self.options.fast_path
            && update.cancelling.is_none()
            && keys <= limits::FAST_PATH_KEYS_MAX
            && self.calls[slot].bytes.len() <= WITNESS_BODY_BYTES_MAX
            && config.has_fast_path(configuration.faults)
            && config.witnesses.iter().all(|&node| configuration.core_of(node, target.shard).is_some());
        if is_recordable {
            (target.list, target.witnesses) = (config.list, Witnesses::new(&config.witnesses));
        }
        target
    }

    /// Sends an update's first attempt, or another; or says why there is none to send. What an earlier attempt collected
    /// is gone with its `InFlight` (R2.1).
    pub(super) fn start_update(&mut self, slot: usize, now: Tick, out: &mut Effects) {
        if !self.options.exactly_once {
            self.give_back_number(slot);
        }
        let update = *self.calls[slot].update();
        let sent = self.calls[slot].sent;
        match self.target(slot, update.table, update.slots) {
            Ok(target) if update.sequence.is_some() || self.number(slot, now) => {
                let target = self.with_witnesses(target, slot, &update);
                self.send_update(slot, &target, now, out);
            }
            Ok(_) => self.queue(slot),
            Err(NoTarget::NoConfiguration | NoTarget::NotServing) => self.pause(slot, true, now),
            Err(NoTarget::UnknownTable) if !sent => self.ask_coordinator(slot, now),
            // Table numbers are never used again: nothing can run it any more.
            Err(NoTarget::UnknownTable) => self.end(slot, Completion::Unknown(WhyUnknown::TableDropped)),
            Err(NoTarget::CrossShard) if !sent => self.end(slot, Completion::NotExecuted(WhyNot::CrossShard)),
            Err(NoTarget::CrossShard) => self.pause(slot, true, now),
        }
    }

    pub(super) fn end_as_unknown_table(&mut self, slot: usize) {
        match self.calls[slot].kind {
            Kind::Update(_) => {
                assert!(!self.calls[slot].sent, "R2.2: what was sent is not told to be unexecuted");
                self.end(slot, Completion::NotExecuted(WhyNot::UnknownTable));
            }
            _ => self.end(slot, Completion::ReadFailed(super::WhyFailed::NotPossible(WhyNot::UnknownTable))),
        }
    }

    /// Gives the update its number, and with it its final body. False: no client id yet, or the window is full.
    fn number(&mut self, slot: usize, now: Tick) -> bool {
        let Some(numbered) = &mut self.numbered else { return false };
        let Some(assigned) = numbered.window.assign() else { return false };
        numbered.hold(assigned.sequence, slot);
        let call = &mut self.calls[slot];
        let update = call.update();
        update.sequence = Some(assigned.sequence);
        let (table, ttl) = (update.table, update.operation_key_ttl);
        let not_after = ttl.map_or(0, |ttl| self.cluster.time(now).after_millis(ttl).0.max(1));
        let head = BodyHead {
            rpc: RpcId { client: numbered.client, sequence: assigned.sequence },
            acknowledgement: assigned.acknowledgement,
            lease_expiry: self.cluster.lease_expiry(),
            not_after: ClusterTime(not_after),
            table,
        };
        number_body(&mut call.bytes, &head);
        if !call.sent {
            self.stats.updates += 1;
        }
        true
    }

    /// What a client without exactly-once does: the server cannot tell the retry from a second request.
    fn give_back_number(&mut self, slot: usize) {
        if let Some(sequence) = self.calls[slot].update().sequence.take() {
            self.numbered.as_mut().expect("a sequence has a client").finish(sequence);
        }
    }

    /// One attempt: the same body under a new envelope, to the primary and to every witness at once.
    fn send_update(&mut self, slot: usize, target: &Target, now: Tick, out: &mut Effects) {
        let patience = self.patience(self.calls[slot].silent);
        let cluster_time = self.cluster.time(now);
        if self.calls[slot].sent && planted::is_on(Bug::BodyRebuilt) {
            self.rebuild_body(slot);
        }
        let call = &mut self.calls[slot];
        let answered = matches!(call.stage, Stage::InFlight(old) if old.attempt.is_answered());
        let keeps_answer = answered && planted::is_on(Bug::AttemptsMixed);
        self.stats.attempts += 1;
        self.stats.retries += u64::from(call.attempts > 0);
        (call.sent, call.attempts) = (true, call.attempts + 1);
        if !keeps_answer {
            call.result.clear();
        }
        let &Target { shard, epoch, primary, list, witnesses } = target;
        let kind = if call.update().cancelling.is_some() { FrameKind::Cancel } else { FrameKind::Request };
        let envelope = Envelope { shard, epoch, list, cluster_time, attempt: call.attempts };
        let mark = out.mark();
        RequestView::encode(kind, &envelope, &call.bytes, out.arena());
        send(Endpoint::Core(primary), mark, out);
        if witnesses.count() > 0 {
            let mark = out.mark();
            RequestView::encode(FrameKind::Record, &envelope, &call.bytes, out.arena());
            let head = out.span_from(mark);
            let configuration = self.cluster.configuration.as_ref().expect("there is a target");
            for &node in &configuration.shard(shard).expect("there is a target").witnesses {
                let core = configuration.core_of(node, shard).expect("checked with the target");
                out.push(Effect::Send { to: Endpoint::Core(core), head, tail: None, gate: Gate::Now });
            }
        }
        let mut attempt = Attempt::new(epoch, list, witnesses.count());
        if keeps_answer {
            attempt.on_answer(epoch, false);
        }
        call.stage = Stage::InFlight(InFlight { shard, epoch, primary, list, attempt, witnesses, sync_sent: false });
        call.resume = now.after(patience);
        self.timers.arm(&mut self.calls, slot);
    }

    /// What [`Bug::BodyRebuilt`] does before a retry.
    fn rebuild_body(&mut self, slot: usize) {
        let Some(numbered) = &self.numbered else { return };
        let head = BodyHead {
            acknowledgement: numbered.window.acknowledgement(),
            lease_expiry: self.cluster.lease_expiry(),
            ..Body::decode(&self.calls[slot].bytes).expect("encoded here").head
        };
        number_body(&mut self.calls[slot].bytes, &head);
    }

    pub(super) fn on_update_silence(&mut self, slot: usize, now: Tick, out: &mut Effects) {
        let Stage::InFlight(in_flight) = self.calls[slot].stage else {
            unreachable!("only what is sent can be silent")
        };
        if in_flight.attempt.is_answered() && !in_flight.sync_sent {
            self.send_sync(slot, now, out);
            return;
        }
        self.stats.timeouts += 1;
        self.calls[slot].silent += 1;
        self.calls[slot].refused = 0;
        self.cluster.want_configuration();
        self.start(slot, now, out);
    }

    pub(super) fn on_update_deadline(&mut self, slot: usize, now: Tick, out: &mut Effects) {
        if !self.calls[slot].sent {
            self.end(slot, Completion::NotExecuted(WhyNot::DeadlineBeforeSend));
            return;
        }
        if !self.options.exactly_once {
            self.stats.unknown += 1;
            self.end(slot, Completion::Unknown(WhyUnknown::DeadlinePassed));
            return;
        }
        let update = self.calls[slot].update();
        if update.cancel_on_deadline && update.cancelling.is_none() {
            self.calls[slot].deadline = now.after(limits::CANCEL_GRACE);
            self.cancel(slot, WhyNot::DeadlineCancelled, now, out);
        } else {
            self.detach(slot);
        }
    }

    /// From now on only a recorded outcome ends this update: `Cancelled`, or what it was (R2.2).
    fn cancel(&mut self, slot: usize, why: WhyNot, now: Tick, out: &mut Effects) {
        self.stats.cancellations += 1;
        self.calls[slot].update().cancelling = Some(why);
        self.start(slot, now, out);
    }

    fn send_sync(&mut self, slot: usize, now: Tick, out: &mut Effects) {
        let patience = self.patience(self.calls[slot].silent);
        let rpc = self.rpc_of(slot);
        let call = &mut self.calls[slot];
        let Stage::InFlight(in_flight) = &mut call.stage else { unreachable!("only an attempt is synced") };
        in_flight.sync_sent = true;
        self.stats.sync_requests += 1;
        let request = SyncRequest { shard: in_flight.shard, epoch: in_flight.epoch, rpc, attempt: call.attempts };
        let to = Endpoint::Core(in_flight.primary);
        call.resume = now.after(patience);
        let mark = out.mark();
        encode_small(FrameKind::Sync, &request, out.arena());
        send(to, mark, out);
        self.timers.arm(&mut self.calls, slot);
    }

    fn rpc_of(&mut self, slot: usize) -> RpcId {
        let client = self.client().expect("sent");
        RpcId { client, sequence: self.calls[slot].update().sequence.expect("sent") }
    }

    fn slot_of_rpc(&self, rpc: RpcId) -> Option<usize> {
        self.numbered.as_ref()?.slot_of(rpc.client, rpc.sequence)
    }

    /// The running attempt of a call, if it has this number.
    fn in_flight(&mut self, slot: usize, attempt: u32) -> Option<&mut InFlight> {
        let call = &mut self.calls[slot];
        match &mut call.stage {
            Stage::InFlight(in_flight) if call.attempts == attempt => Some(in_flight),
            Stage::InFlight(_) | Stage::Queued | Stage::Backoff { .. } | Stage::ForCoordinator => None,
        }
    }

    pub(super) fn on_answer(&mut self, payload: &[u8], now: Tick, out: &mut Effects) -> Result<Known, DecodeError> {
        let answer = AnswerView::decode(payload)?;
        let code = answer.result.first().copied().and_then(OutcomeCode::from_number);
        code.ok_or(DecodeError::Invalid("an outcome"))?;
        let Some(slot) = self.slot_of_rpc(answer.rpc) else { return Ok(Known::No) };
        self.calls[slot].update().answered = true;
        if answer.synced {
            // Durable by itself: it does not matter which attempt asked.
            self.take_result(slot, answer.result);
            self.complete(slot, Path::Synced);
            return Ok(Known::Yes);
        }
        let Some(in_flight) = self.in_flight(slot, answer.attempt) else { return Ok(Known::No) };
        if answer.epoch != in_flight.epoch {
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
        let Some(in_flight) = self.in_flight(slot, recorded.attempt) else { return Ok(Known::No) };
        let Some(witness) = in_flight.witnesses.number_of(recorded.node) else { return Ok(Known::No) };
        if from.node != recorded.node {
            return Ok(Known::No);
        }
        let accepted = recorded.verdict == RecordedVerdict::Accepted;
        in_flight.attempt.on_recorded(recorded.list, witness, accepted);
        if accepted {
            self.stats.accepted += 1;
        } else {
            self.stats.rejected += 1;
        }
        if matches!(recorded.verdict, RecordedVerdict::WrongList | RecordedVerdict::Frozen) {
            self.cluster.want_configuration();
        }
        self.judge(slot, now, out);
        Ok(Known::Yes)
    }

    /// A witness that cannot be reached will not accept: no use in waiting for it.
    pub(super) fn on_witness_gone(&mut self, slot: usize, core: CoreId, now: Tick, out: &mut Effects) {
        let Stage::InFlight(in_flight) = self.calls[slot].stage else { return };
        let configuration = self.cluster.configuration.as_ref().expect("something is in flight");
        let Some(witness) = in_flight.witnesses.number_of(core.node) else { return };
        if configuration.core_of(core.node, in_flight.shard) != Some(core) {
            return;
        }
        let attempt = self.calls[slot].attempts;
        let in_flight = self.in_flight(slot, attempt).expect("seen");
        in_flight.attempt.on_recorded(in_flight.list, witness, false);
        self.stats.rejected += 1;
        self.judge(slot, now, out);
    }

    pub(super) fn on_synced(&mut self, payload: &[u8], now: Tick, out: &mut Effects) -> Result<Known, DecodeError> {
        let synced: Synced = decode_small(payload)?;
        let Some(slot) = self.slot_of_rpc(synced.rpc) else { return Ok(Known::No) };
        let Some(in_flight) = self.in_flight(slot, synced.attempt) else { return Ok(Known::No) };
        // Without this attempt's answer there is no result that the sync could make good; another epoch's sync says
        // nothing of this epoch's execution [M].
        if synced.epoch != in_flight.epoch || !in_flight.attempt.is_answered() {
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
            Verdict::NeedSync if !in_flight.sync_sent => self.send_sync(slot, now, out),
            Verdict::NeedSync | Verdict::Wait => {}
        }
    }

    /// The result in the call is durable.
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
        let completion = if is_cancelled {
            Completion::NotExecuted(call.update().cancelling.unwrap_or(WhyNot::Cancelled))
        } else {
            Completion::Executed { result, path, attempts }
        };
        self.end(slot, completion);
    }

    pub(super) fn on_refused(&mut self, payload: &[u8], now: Tick, out: &mut Effects) -> Result<Known, DecodeError> {
        let refused: Refused = decode_small(payload)?;
        let Some(slot) = self.slot_of_rpc(refused.rpc) else { return Ok(Known::No) };
        if self.in_flight(slot, refused.attempt).is_none() {
            return Ok(Known::No);
        }
        self.stats.refused(refused.why);
        let can_cancel = self.options.exactly_once && self.calls[slot].update().cancelling.is_none();
        match refused.why {
            Refusal::NotPrimary | Refusal::WrongShard | Refusal::OldWitnessList | Refusal::Recovering => {
                self.refuse(slot, true, now);
            }
            Refusal::Busy | Refusal::LeaseUnproven | Refusal::TooFewMembers | Refusal::WindowExceeded => {
                self.refuse(slot, false, now);
            }
            Refusal::OutOfMemory => {
                let update = self.calls[slot].update();
                update.out_of_memory += 1;
                if can_cancel && update.out_of_memory >= limits::OUT_OF_MEMORY_REFUSALS_MAX {
                    self.cancel(slot, WhyNot::OutOfMemory, now, out);
                } else {
                    self.refuse(slot, false, now);
                }
            }
            Refusal::Unprovable if can_cancel => self.cancel(slot, WhyNot::Unprovable, now, out),
            Refusal::TooLarge if can_cancel => self.cancel(slot, WhyNot::ResultTooLarge, now, out),
            // The only one who ever got it cannot read it. (After other attempts a newer server might have run it.)
            Refusal::BadRequest if self.calls[slot].attempts == 1 => {
                self.end(slot, Completion::NotExecuted(WhyNot::BadRequest));
            }
            Refusal::Unprovable | Refusal::TooLarge | Refusal::BadRequest => self.refuse(slot, false, now),
            Refusal::LeaseExpired | Refusal::Stale => self.end(slot, Completion::Unknown(WhyUnknown::LeaseLost)),
            Refusal::Reused => self.end(slot, Completion::Unknown(WhyUnknown::IdReused)),
        }
        Ok(Known::Yes)
    }

    fn refuse(&mut self, slot: usize, for_configuration: bool, now: Tick) {
        self.calls[slot].silent = 0;
        self.pause(slot, for_configuration, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_numbered_body_is_the_body_of_its_head() {
        let update = Update::Put { key: b"k", value: b"v" };
        let mut body = Vec::new();
        Body::encode(&unnumbered(TableId(3), true), Some(b"order-42"), &update, &mut body);
        let head = BodyHead {
            rpc: RpcId { client: ClientId(7), sequence: Sequence(9) },
            acknowledgement: AckedBelow(4),
            lease_expiry: ClusterTime(1000),
            not_after: ClusterTime(2000),
            table: TableId(3),
        };
        number_body(&mut body, &head);
        let decoded = Body::decode(&body).expect("a body");
        assert_eq!((decoded.head, decoded.operation_key, decoded.update), (head, Some(&b"order-42"[..]), update));
    }
}
