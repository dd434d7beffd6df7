//! One update from its caller to its servers (DESIGN section 2, CURP 3.2.1): `update → start_update → number`, and
//! `send_update` in `participants`. Answers are handled in `replies`. It begins another attempt, a sync or a
//! cancellation, or ends the call.

use kasha_machine::Effects;
use kasha_types::limits::BODY_BYTES_MAX;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{AckedBelow, ClientId, ClusterTime, RpcId, Sequence, ShardId, TableId, Tick};
use kasha_wire::operation::{Excess, OwnedOperation, PartsBuffer};
use kasha_wire::{Body, BodyHead, Level, Update};

use super::call::{Cancel, Keys, Kind, NEVER, Slots, Stage, UpdateCall};
use super::calls::CallId;
use super::check::check_options;
use super::identities::NoNumber;
use super::options::{Again, CallOptions};
use super::route::slots_of;
use super::target::{NoTarget, Target};
use super::{Completion, Identity, Place, Session, WaitsFor, WhyNot, WhyUnknown};

/// The fixed fields of a body that has no number yet: valid, and of no client.
fn unnumbered(table: TableId, has_operation_key: bool) -> BodyHead {
    BodyHead {
        rpc: RpcId { client: ClientId(u64::MAX), sequence: Sequence(1) },
        acknowledgement: AckedBelow(1),
        lease_expiry: ClusterTime(0),
        not_after: ClusterTime(u64::from(has_operation_key)),
        begun: ClusterTime(0),
        table,
    }
}

impl Session {
    /// Starts an update of keys of `table`; of a transaction, the table of its first part.
    pub fn update(
        &mut self,
        now: Tick,
        table: TableId,
        update: &Update<'_>,
        options: &CallOptions<'_>,
        out: &mut Effects,
    ) -> CallId {
        let checked = update.check_limits();
        self.call_update(now, table, (update, checked), |body| update.encode_arguments(body), options, out)
    }

    /// The same with an operation that was checked and encoded before.
    ///
    /// # Panics
    /// If the operation is a read.
    pub fn update_encoded(
        &mut self,
        now: Tick,
        table: TableId,
        operation: &OwnedOperation,
        options: &CallOptions<'_>,
        out: &mut Effects,
    ) -> CallId {
        let update = operation.update().expect("a caller made it of an update");
        let arguments = operation.arguments();
        self.call_update(now, table, (&update, Ok(())), |body| body.extend_from_slice(arguments), options, out)
    }

    /// The same for commands of one shard, which were checked when they were put together: as a batch, or alone.
    pub fn run_commands(
        &mut self,
        now: Tick,
        commands: &PartsBuffer,
        options: &CallOptions<'_>,
        out: &mut Effects,
    ) -> CallId {
        let parts = commands.as_parts();
        let update = if parts.count() > 1 { Update::Batch { batch: parts } } else { Update::Transaction { parts } };
        let table = parts.first_table().expect("a command");
        self.call_update(now, table, (&update, Ok(())), |body| update.encode_arguments(body), options, out)
    }

    fn call_update(
        &mut self,
        now: Tick,
        table: TableId,
        (update, checked): (&Update<'_>, Result<(), Excess>),
        encode_arguments: impl FnOnce(&mut Vec<u8>),
        options: &CallOptions<'_>,
        out: &mut Effects,
    ) -> CallId {
        let checked = check_options(options).and_then(|()| Ok(checked?));
        let (slots, key_count) = match checked {
            Ok(()) => {
                let (slots, keys) = slots_of(|each| update.for_each_key(table, each));
                // R10.11: no witness holds what touches everything.
                (slots, if update.touches_everything() { u16::MAX } else { keys })
            }
            Err(_) => (Slots::Several, 0),
        };
        let call = UpdateCall {
            keys: Keys { table, slots },
            key_count,
            operation_key_ttl: options.operation_key.map(|(_, ttl)| ttl),
            rpc: None,
            cancel: if options.cancel_on_deadline { Cancel::AtDeadline } else { Cancel::Never },
            out_of_memory: 0,
            again: options.again,
            turn: match options.again {
                Again::BySession => None,
                Again::ByCaller(turn) => turn,
            },
            // What is said of an operation key came with the commands.
            level: options.said.map_or(update.level(), |_| update.level().max(Level::COMMANDS)),
        };
        let operation_key = options.operation_key.map(|(key, _)| key);
        let slot = self.insert(Kind::Update(call), now, options.deadline, |body| {
            if checked.is_ok() {
                Body::begin(&unnumbered(table, operation_key.is_some()), operation_key, update, body);
                encode_arguments(body);
                if let Some(said) = options.said {
                    Body::say(body, said);
                }
            }
        });
        let id = self.calls.id(slot);
        if let Err(why) = checked {
            self.end_undone(slot, why);
            return id;
        }
        if self.calls[slot].bytes.len() > BODY_BYTES_MAX {
            self.end_undone(slot, WhyNot::RequestTooLarge);
            return id;
        }
        let owner = self.admit_with(slot, call.keys, |each| update.for_each_key(table, each));
        if !self.calls.has_room_for(slot) {
            self.end_undone(slot, WhyNot::Overloaded);
        } else if self.calls[slot].caller.deadline() <= now {
            self.end_undone(slot, WhyNot::DeadlineBeforeSend(WaitsFor::Nothing));
        } else if !self.queued.is_empty() {
            // No overtaking: updates that wait for room in the window go first.
            self.queue(slot);
        } else if let Ok(shard) = owner
            && self.held_back.contains_key(&Place::Shard(shard))
        {
            self.hold_back(slot, Place::Shard(shard));
        } else {
            self.start_update_of(slot, owner, now, out);
        }
        id
    }

    /// Sends an update's first attempt, or another one; if it cannot be sent, the call waits or ends.
    pub(super) fn start_update(&mut self, slot: usize, now: Tick, out: &mut Effects) {
        let keys = self.calls[slot].update().keys;
        let owner = self.admit(slot, keys);
        self.start_update_of(slot, owner, now, out);
    }

    fn start_update_of(&mut self, slot: usize, owner: Result<ShardId, NoTarget>, now: Tick, out: &mut Effects) {
        let is_sent = self.calls[slot].is_sent();
        if !is_sent && self.cluster.lacks_level(self.calls[slot].update().level) {
            return self.end_undone(slot, WhyNot::Level);
        }
        if !self.options.exactly_once || planted::is_on(Bug::RetryRenamed) && is_sent {
            self.give_back_number(slot, false);
            self.forget_answers(slot);
        }
        // The participants are a part of the body, and stay what they are, whoever owns the keys by now (R8.11).
        let has_several = self.calls[slot].participants.several().is_some();
        let owner = owner.and_then(|shard| if has_several { Err(NoTarget::CrossShard) } else { Ok(shard) });
        match owner.and_then(|shard| self.target_at(shard)) {
            Ok(target) => {
                let place = (Place::Shard(target.shard), &[target.shard][..]);
                self.send_numbered(slot, target.shard, place, &[target], now, out);
            }
            Err(NoTarget::NoConfiguration | NoTarget::NotServing) => self.pause(slot, true, now),
            Err(NoTarget::UnknownTable) if !is_sent => self.ask_coordinator(slot, now),
            // Table numbers are never used again, so nothing can execute the update any more.
            Err(NoTarget::UnknownTable) => self.end(slot, Completion::Unknown(WhyUnknown::TableDropped)),
            Err(NoTarget::CrossShard) => self.start_distributed(slot, now, out),
        }
    }

    /// The keys are of several shards: those that have not answered are the receivers.
    fn start_distributed(&mut self, slot: usize, now: Tick, out: &mut Effects) {
        if self.calls[slot].participants.several().is_none() {
            if self.calls[slot].is_sent() {
                return self.pause(slot, true, now);
            }
            if let Err(why) = self.distribute(slot) {
                return self.end_undone(slot, why);
            }
        }
        let targets = self.silent_participants(slot);
        if targets.is_empty() {
            return self.pause(slot, true, now);
        }
        let shard = self.shard_in_doubt(slot).expect("the keys have owners");
        let (place, shards) = self.place_of_distributed(slot);
        self.send_numbered(slot, shard, (place, &shards), &targets, now, out);
    }

    fn send_numbered(
        &mut self,
        slot: usize,
        shard: ShardId,
        (place, shards): (Place, &[ShardId]),
        targets: &[Target],
        now: Tick,
        out: &mut Effects,
    ) {
        let numbered = match self.calls[slot].update().rpc {
            None => self.number(slot, shard, (place, shards), now),
            Some(_) => Ok(()),
        };
        match numbered {
            Ok(()) => self.send_update(slot, targets, now, out),
            Err(NoNumber::NoRoom) => self.queue(slot),
            Err(NoNumber::HeldUp) => self.hold_back(slot, place),
        }
    }

    /// Gives the update its number, and with that its final body. From here on the body is frozen (R2.1).
    fn number(
        &mut self,
        slot: usize,
        shard: ShardId,
        (place, shards): (Place, &[ShardId]),
        now: Tick,
    ) -> Result<(), NoNumber> {
        let identity = self.identities.id_for(place, shards)?;
        let assigned = identity.assign(slot, shard, place).expect("an id with room");
        let rpc = RpcId { client: identity.client, sequence: assigned.sequence };
        let lease_expiry = identity.expiry;
        let call = &mut self.calls[slot];
        let update = call.update();
        update.rpc = Some(rpc);
        let (begun, time) = (self.cluster.time_taken(now), self.cluster.time(now));
        let not_after = update.operation_key_ttl.map_or(0, |ttl| time.after_millis(ttl).0.max(1));
        let head = BodyHead {
            rpc,
            acknowledgement: assigned.acknowledgement,
            lease_expiry,
            not_after: ClusterTime(not_after),
            begun,
            table: update.keys.table,
        };
        Body::renumber(&mut call.bytes, &head);
        if !call.is_sent() {
            self.stats.updates += 1;
        }
        Ok(())
    }

    /// From now on only a recorded outcome ends this update: `Cancelled`, or the result that it had (R2.2).
    pub(super) fn cancel(&mut self, slot: usize, why: WhyNot, now: Tick, out: &mut Effects) {
        hit(Probe::Cancelled);
        self.stats.cancellations += 1;
        self.calls[slot].update().cancel = Cancel::Begun(why);
        self.start_update(slot, now, out);
    }

    /// The update waits until the window has room. Who has lost to others before comes first, and of these who has waited longest
    /// (0047): others wait at the shards until its turn is over.
    fn queue(&mut self, slot: usize) {
        match self.calls[slot].turn() {
            None => self.calls.enqueue(slot, &mut self.queued),
            Some(turn) => self.calls.enqueue_by_age(slot, turn.since, &mut self.queued),
        }
        self.wait(slot, Stage::Queued, NEVER);
    }

    /// An earlier update to the same place has no answer, and holds up a client id. This update waits without a number (R4.10).
    fn hold_back(&mut self, slot: usize, place: Place) {
        self.calls.enqueue(slot, self.held_back.entry(place).or_default());
        self.wait(slot, Stage::Queued, NEVER);
    }

    /// Starts updates that were held back for places that answer again: as long as half of the window is left for the
    /// others, and one of each place in any case, because others may never leave half of it. Then it starts queued updates
    /// while the window has room.
    pub(super) fn start_queued(&mut self, now: Tick, out: &mut Effects) {
        self.start_held_back(now, out);
        while self.identities.current().is_some_and(Identity::has_room)
            && let Some(id) = self.queued.pop_front()
        {
            if let Some(slot) = self.calls.find(id) {
                self.start_update(slot, now, out);
            }
        }
    }

    fn start_held_back(&mut self, now: Tick, out: &mut Effects) {
        if std::mem::take(&mut self.identities.all_released) {
            self.identities.released.extend(self.held_back.keys());
        }
        for _ in 0..self.identities.released.len() {
            let Some(place) = self.identities.released.pop() else { break };
            let Some(mut waiting) = self.held_back.remove(&place) else { continue };
            let mut is_first = true;
            let has_place = |id: &Identity, is_first| id.is_half_free() || (is_first && id.has_room());
            while !self.identities.is_held_up(place)
                && self.identities.current().is_some_and(|id| has_place(id, is_first))
                && let Some(id) = waiting.pop_front()
            {
                is_first = false;
                if let Some(slot) = self.calls.find(id) {
                    self.start_update(slot, now, out);
                }
            }
            if !waiting.is_empty() {
                if !self.identities.is_held_up(place) {
                    self.identities.released.insert(0, place);
                }
                waiting.extend(self.held_back.remove(&place).into_iter().flatten());
                self.held_back.insert(place, waiting);
            }
        }
    }

    /// What a client without exactly-once does: the server cannot distinguish the retry from a second request.
    pub(super) fn give_back_number(&mut self, slot: usize, is_trial_void: bool) {
        if let Some(rpc) = self.calls[slot].update().rpc.take() {
            self.identities.finish(rpc, is_trial_void);
        }
    }
}
