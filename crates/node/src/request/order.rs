//! `expire → order → overlap`: what a request comes to, and what its answer must wait for.
//!
//! - **R4.9** An operation key that was used gives its result again, or an error: nothing runs twice under it.
//! - **C1**, R8.7: whether it overlaps with something unsynced is judged when it runs, not when it arrived.
//! - **R5.1** Everything overlaps with an unsynced change of everything.
//! - **R5.2** The end of an operation key or a value is logged before it is observed, and overlaps with who observes it.
//!   `expire` does that; what follows only reads, until the group is opened.
//! - **R10.12** \[M\] A replay ends what was over when the request was begun. So who was told something else was told it synced.

use kasha_distributed::Footprint;
use kasha_exactly_once::OperationKeyCheck;
use kasha_log::{EntryOffset, Log, Purpose};
use kasha_store::Draft;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{ClusterTime, LogEnd, RpcId, key_hash};
use kasha_wire::operation::Part;
use kasha_wire::{Body, Level, Refusal, Update};

use crate::request::Condition;
use crate::request::admit::Fresh;
use crate::request::draft::Drafted;
use crate::request::path::{RequestPath, Stop};
use crate::request::{Caller, Memory, Origin, Received, Why, Wish};
use crate::serving::{Conflicts, Sees};
use crate::shard::expiry;
use crate::shard::operation_keys::{self, OperationKey};

/// What a request comes to. Each becomes a completion record.
#[derive(Clone, Copy)]
pub(super) enum Action<'a> {
    /// It runs; its result is also kept under its operation key, if it has one.
    Execute { keep_under: Option<OperationKey<'a>> },
    /// Its operation key was used with the same operation: the result that is kept there.
    Repeat(EntryOffset),
    /// Its operation key was used with another operation.
    Mismatch,
    /// It is given up.
    Cancel,
}

/// Its operation key and the values of its keys are held or gone, whatever a clock says.
pub(super) struct Current<'r, 'a> {
    received: &'r mut Received<'a>,
    key: Option<(OperationKey<'a>, ClusterTime)>,
    held: Held,
}

/// Whether a key holds a value although the value was over when the request was begun (R10.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    Nothing,
    /// A value that may not end yet, or that is not over by what this core knows of the time. A replay may end the value.
    Ended,
}

/// A request that runs now, and what is to be done for it.
pub(super) struct Ordered<'r, 'a> {
    received: &'r mut Received<'a>,
    action: Action<'a>,
    /// Of a batch: at most so many parts run (R10.17).
    parts_max: u32,
    held: Held,
}

/// Whether an answer must wait for a sync (C1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overlap {
    /// It commutes with everything unsynced.
    None,
    Unsynced,
}

impl<'r, 'a> Ordered<'r, 'a> {
    pub(super) fn received(&self) -> &Received<'a> {
        self.received
    }

    pub(super) fn memory(&mut self) -> &mut Memory {
        &mut self.received.memory
    }

    pub(super) fn body(&self) -> &Body<'a> {
        &self.received.body
    }

    pub(super) fn action(&self) -> Action<'a> {
        self.action
    }

    /// Of a batch: at most so many parts run.
    pub(super) fn parts_max(&self) -> u32 {
        self.parts_max
    }

    /// It finds no room. If it is a client's batch, none of its parts runs, which is recorded where a cancel is (R10.17): says whether it is one.
    pub(super) fn end_before_all(&mut self) -> bool {
        let is_one = self.parts_max > 0 && self.received.is_batch_of_client();
        if is_one {
            self.parts_max = 0;
        }
        is_one
    }

    /// The operation key under which its result is kept.
    pub(super) fn keep_under(&self) -> Option<OperationKey<'a>> {
        match self.action {
            Action::Execute { keep_under } => keep_under,
            Action::Repeat(_) | Action::Mismatch | Action::Cancel => None,
        }
    }

    /// What its group is for.
    pub(super) fn purpose(&self) -> Purpose {
        match (&self.received.origin, self.action) {
            // It may have been completed, so it is never refused for memory (section 7, step 4).
            (Origin::Replay, _) => Purpose::Takeover,
            (Origin::Client(_) | Origin::Suspect, Action::Cancel) => Purpose::Freeing,
            (Origin::Client(_), Action::Execute { .. }) if self.parts_max == 0 => Purpose::Freeing,
            // A suspect that finds no room stays with its witness, which names it again.
            (Origin::Client(_) | Origin::Suspect, Action::Execute { .. } | Action::Repeat(_) | Action::Mismatch) => {
                // What an operation key keeps lives until the key's time is over, whatever the operation frees (R5.16).
                let keeps = self.keep_under().is_some();
                if self.received.body.update.only_frees() && !keeps { Purpose::Freeing } else { Purpose::Normal }
            }
        }
    }
}

impl RequestPath<'_> {
    /// Drops the operation key that it names, and values of its keys, if their time is over (R5.2).
    pub(super) fn expire<'r, 'a>(&mut self, log: &mut Log, fresh: Fresh<'r, 'a>) -> Result<Current<'r, 'a>, Stop> {
        let received = fresh.into_received();
        let key = match received.body.operation_key {
            None => None,
            Some(_) => self.current_key(log, received)?,
        };
        let held = self.expire_values(log, received);
        Ok(Current { received, key, held })
    }

    /// Its operation key, which is dropped if its time is over, and the time that says so.
    #[cold]
    #[inline(never)]
    pub(super) fn current_key<'a>(
        &mut self,
        log: &mut Log,
        received: &mut Received<'a>,
    ) -> Result<Option<(OperationKey<'a>, ClusterTime)>, Stop> {
        let now = match received.origin {
            Origin::Client(Caller { wish: Wish::Cancel, .. }) => return Ok(None),
            Origin::Client(_) | Origin::Suspect => self.core.cluster_time,
            // Replay must run what was completed in time, however late it is now; only what the log itself says is over is.
            Origin::Replay => self.state.cluster_time,
        };
        let Some(key) = OperationKey::of(&received.body, self.shard) else { return Ok(None) };
        let dead = &mut received.memory.dead;
        match operation_keys::drop_if_expired(log, self.state, self.epoch, now, &key, dead) {
            Ok(dropped) => self.note_dropped(dropped),
            Err(full) => return Err(Stop::Nothing(Why::for_room(full))),
        }
        Ok(Some((key, now)))
    }

    /// Deletes the values of its keys whose time is over. A replay runs what was completed in time, however late it is now: it deletes
    /// what was over when the request was begun.
    #[inline]
    pub(super) fn expire_values(&mut self, log: &mut Log, received: &Received<'_>) -> Held {
        let (now, begun) = (self.core.counted.time(), received.body.head.begun);
        let looked_at = match self.serving.is_some() || planted::is_on(Bug::ExpiryInReplay) {
            true => now.max(begun),
            false => now.min(begun),
        };
        match self.state.store.has_due(looked_at) && self.holds_due(log, received, looked_at) {
            true => self.delete_due(log, received),
            false => Held::Nothing,
        }
    }

    /// Whether the time of a value of its keys is over then.
    fn holds_due(&self, log: &Log, received: &Received<'_>, then: ClusterTime) -> bool {
        let (mut is_due, store) = (false, &self.state.store);
        received.body.for_each_key(|table, key, _| is_due |= store.is_due(log, table, key, then));
        is_due
    }

    /// Whether the time of a value of its keys is over that may not end yet: a transaction has touched it that is not settled. What
    /// is there only because memory is short is in nobody's way.
    pub(super) fn touches_ended(&self, log: &Log, received: &Received<'_>) -> bool {
        let (now, state, mut is_kept) = (self.core.counted.time(), &self.state, false);
        if state.store.has_due(now) && !planted::is_on(Bug::ExpiryInRead) {
            received.body.for_each_key(|table, key, _| {
                is_kept |= state.store.is_due(log, table, key, now) && !expiry::may_end(state, table, key);
            });
        }
        is_kept
    }

    #[cold]
    #[inline(never)]
    fn delete_due(&mut self, log: &mut Log, received: &Received<'_>) -> Held {
        let (now, begun) = (self.core.counted.time(), received.body.head.begun);
        let mut of_replay = None;
        let (conflicts, until) = match self.serving.as_deref_mut() {
            Some(serving) => (&mut serving.conflicts, now),
            None if planted::is_on(Bug::ExpiryInReplay) => (of_replay.insert(Conflicts::default()), now),
            // A primary of the release before may have told what it has seen of such a value before that was synced.
            None if self.core.level < Level::COMMANDS || planted::is_on(Bug::ReplayEndsNothing) => {
                return Held::Nothing;
            }
            // Nobody conflicts with a new primary that does not serve. No client's clock ends what is not over.
            None => (of_replay.insert(Conflicts::default()), now.min(begun)),
        };
        let mut keys = Vec::new();
        received.body.for_each_key(|table, key, _| keys.push((table, key)));
        // Only a replay comes here with keys of tables that there are not (`admit`).
        let configuration = self.core.configuration.clone();
        keys.retain(|(table, _)| configuration.as_ref().is_some_and(|known| known.has_table(*table)));
        let at = (self.epoch, self.shipping.synced(), until);
        expiry::note_seen(expiry::delete_due(log, self.state, self.core, conflicts, at, keys.into_iter()));
        match self.holds_due(log, received, begun) && !planted::is_on(Bug::EndedToldUnsynced) {
            true => Held::Ended,
            false => Held::Nothing,
        }
    }

    fn note_dropped(&mut self, dropped: Option<LogEnd>) {
        if let (Some(end), Some(serving)) = (dropped, &mut self.serving) {
            hit(Probe::ExpiredKeyUsed);
            serving.conflicts.drop_operation_keys(end);
        }
    }

    /// What it comes to: what is chosen here is what runs, and runs at once.
    pub(super) fn order<'r, 'a>(&mut self, log: &Log, current: Current<'r, 'a>) -> Result<Ordered<'r, 'a>, Stop> {
        let Current { received, key, held } = current;
        let mut parts_max = u32::MAX;
        if let Some(why) = self.comes_before(received) {
            if !received.is_batch_of_client() {
                return Err(Stop::Nothing(why));
            }
            parts_max = self.parts_before_wait(received);
        }
        let action = match (received.origin, key) {
            (Origin::Client(Caller { wish: Wish::Cancel, .. }), _) => Action::Cancel,
            (Origin::Client(_) | Origin::Suspect | Origin::Replay, None) => Action::Execute { keep_under: None },
            (Origin::Client(_) | Origin::Suspect | Origin::Replay, Some((key, now))) => {
                match self.state.find_operation_key(log, key.hash, key.fingerprint, &key.name) {
                    OperationKeyCheck::Hit(place) if planted::is_on(Bug::HitWithoutRecord) => {
                        return Err(Stop::Completed(self.unrecorded_hit(log, place, received.request.rpc)));
                    }
                    OperationKeyCheck::Hit(place) => {
                        self.note_hit(received.origin);
                        Action::Repeat(place)
                    }
                    OperationKeyCheck::Mismatch => {
                        hit(Probe::OperationKeyMismatch);
                        Action::Mismatch
                    }
                    OperationKeyCheck::Miss
                        if now > received.body.head.not_after && !planted::is_on(Bug::NotAfterIgnored) =>
                    {
                        hit(Probe::Unprovable);
                        return Err(Stop::refuse(Refusal::Unprovable));
                    }
                    OperationKeyCheck::Miss => Action::Execute { keep_under: Some(key) },
                }
            }
        };
        Ok(Ordered { received, action, parts_max, held })
    }

    /// What it must not run ahead of.
    #[inline]
    fn comes_before(&self, received: &Received<'_>) -> Option<Why> {
        if let Some(pending) = self.pending_before(received) {
            return Some(match received.origin {
                Origin::Replay => Why::RunsAhead,
                Origin::Client(_) | Origin::Suspect => Why::Parked(Condition::Distributed(pending)),
            });
        }
        self.elder_before(received).map(|elder| Why::Parked(Condition::Turn(elder)))
    }

    /// So many parts of a batch stand before the first that would have to wait. The client sends that one alone, and it waits (R10.17).
    #[cold]
    #[inline(never)]
    fn parts_before_wait(&self, received: &Received<'_>) -> u32 {
        let Update::Batch { batch } = received.body.update else { unreachable!("the caller looked") };
        let participant = &self.state.distributed.participant;
        let waits = |part: &Part<'_>| {
            let mut keys = Vec::new();
            part.operation.for_each_key(|key| keys.push(key_hash(part.table, key)));
            let keys = Footprint::new([], keys);
            participant.blocked_by(&keys).is_some() || self.elder_of_keys(received, &keys).is_some()
        };
        hit(Probe::BatchEndedEarly);
        u32::try_from(batch.iter().take_while(|part| !waits(part)).count()).expect("few parts")
    }

    #[cold]
    fn note_hit(&mut self, origin: Origin) {
        hit(match origin {
            Origin::Replay => Probe::ReplayOperationKeyHit,
            Origin::Client(_) | Origin::Suspect => Probe::OperationKeyHit,
        });
        self.count_repeat(origin);
    }

    /// A client repeats, under an operation key, what another request has done.
    pub(super) fn count_repeat(&mut self, origin: Origin) {
        if let (Origin::Client(_), Some(serving)) = (origin, &mut self.serving) {
            serving.counters.repeats_suppressed += 1;
        }
    }

    /// A transaction over several shards that it must not run ahead of (R8.3, R8.10). What gives it up touches nothing.
    #[inline]
    fn pending_before(&self, received: &Received<'_>) -> Option<RpcId> {
        if self.is_quiet { None } else { self.find_pending_before(received) }
    }

    #[cold]
    #[inline(never)]
    fn find_pending_before(&self, received: &Received<'_>) -> Option<RpcId> {
        let participant = &self.state.distributed.participant;
        if matches!(received.origin, Origin::Client(Caller { wish: Wish::Cancel, .. })) {
            return None;
        }
        if matches!(received.origin, Origin::Replay) && planted::is_on(Bug::ReplayedOverPending) {
            return None;
        }
        let mut keys = Vec::new();
        received.body.footprint(&mut keys);
        participant.blocked_by(&Footprint::new([], keys))
    }

    /// Does it touch anything that is not synced (C1)? Judged now, when it runs (R8.7). A repeat, a mismatch and
    /// a cancel read no key: they wait for a sync whatever is unsynced.
    pub(super) fn overlap(&self, drafted: &Drafted<'_, '_>) -> Overlap {
        // Nobody waits for what a new primary replays.
        let Some(serving) = self.serving.as_ref().filter(|_| !drafted.draft().is_told_synced()) else {
            return Overlap::Unsynced;
        };
        let (synced, draft, conflicts) = (self.shipping.synced(), drafted.draft(), &serving.conflicts);
        let unsynced = self.sees_unsynced(draft, conflicts)
            || match drafted.ordered().action {
                Action::Execute { keep_under: None } | Action::Cancel => false,
                Action::Execute { keep_under: Some(_) } => conflicts.has_dropped_operation_keys(synced), // R5.2
                // They read what the log says of the key, which may be unsynced (R4.9).
                Action::Repeat(_) | Action::Mismatch => !planted::is_on(Bug::OperationKeyOverlapIgnored),
            };
        let unsynced = unsynced || drafted.ordered().held == Held::Ended || self.overlaps_distributed(drafted);
        if unsynced { Overlap::Unsynced } else { Overlap::None }
    }
}

impl RequestPath<'_> {
    /// Whether what it touches was changed by something that is not synced.
    #[inline(always)] // its second caller is cold
    fn sees_unsynced(&self, draft: &Draft<'_>, conflicts: &Conflicts) -> bool {
        let synced = self.shipping.synced();
        let sees = || if draft.sees_absence() { Sees::Absence } else { Sees::Values };
        let until = match planted::is_on(Bug::ReadsCommute) {
            true => conflicts.until(draft.changed().map(|(key, _)| key), sees, synced),
            false => conflicts.until(draft.footprint().iter().copied(), sees, synced),
        };
        until > synced
    }

    /// The same as [`Self::overlap`] for what a coordinated transaction prepares.
    #[cold]
    pub(super) fn overlap_of_prepared(&self, draft: &Draft<'_>, key: Option<&OperationKey<'_>>, held: Held) -> Overlap {
        let Some(serving) = &self.serving else { return Overlap::Unsynced };
        let keys = draft.footprint().iter().copied().chain(key.map(|key| key.hash));
        let unsynced = draft.is_told_synced()
            || held == Held::Ended
            || self.sees_unsynced(draft, &serving.conflicts)
            || self.state.distributed.participant.overlaps(&Footprint::new([], keys))
            || key.is_some_and(|_| serving.conflicts.has_dropped_operation_keys(self.shipping.synced())); // R5.2
        if unsynced && !planted::is_on(Bug::PreparedOverOverlap) { Overlap::Unsynced } else { Overlap::None }
    }

    /// R8.7 \[M\]: what a transaction over several shards has freed, whose outcome may be lost, and then the transaction is
    /// pending again.
    #[inline]
    fn overlaps_distributed(&self, drafted: &Drafted<'_, '_>) -> bool {
        !self.is_quiet && self.look_for_overlap(drafted)
    }

    #[cold]
    #[inline(never)]
    fn look_for_overlap(&self, drafted: &Drafted<'_, '_>) -> bool {
        // As a recovery judges it, which has no draft: every key counts as written (R8.10).
        let keys = &drafted.ordered().received().memory.footprint;
        self.state.distributed.participant.overlaps(&Footprint::new([], keys.iter().copied()))
    }
}
