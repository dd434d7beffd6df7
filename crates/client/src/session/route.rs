//! Where a call on keys is sent: to the one shard that owns the keys, and for an update also to the witnesses of that
//! shard (R6.1).

use kasha_types::limits::WITNESS_BODY_BYTES_MAX;
use kasha_types::{ListVersion, ShardId, Slot, TableId, slot_of};
use kasha_wire::ShardPhase;

use super::Session;
use super::call::{Cancel, Keys, Kind, Slots, UpdateCall};
use super::completion::WaitsFor;
use super::target::{NoTarget, Target, Witnesses};
use crate::limits;

/// The slots of some keys, and the number of keys.
pub(super) fn slots_of<'a>(for_each_key: impl FnOnce(&mut dyn FnMut(TableId, &'a [u8]))) -> (Slots, u16) {
    let (mut first, mut slots, mut count) = (None, None, 0u16);
    for_each_key(&mut |table, key| {
        count = count.saturating_add(1);
        slots = match slots {
            None => Some(Slots::One(slot_of(key))),
            Some(Slots::One(before)) if first == Some(table) && before == slot_of(key) => slots,
            Some(_) => Some(Slots::Several),
        };
        first.get_or_insert(table);
    });
    (slots.expect("every operation has a key"), count)
}

impl Session {
    /// The shard that owns all slots of a call.
    fn owner(&self, slot: usize, keys: Keys) -> Result<ShardId, NoTarget> {
        self.owner_of(keys, |each| self.calls[slot].for_each_key(each))
    }

    /// The same for keys that `for_each_key` names.
    fn owner_of(
        &self,
        keys: Keys,
        for_each_key: impl FnOnce(&mut dyn FnMut(TableId, &[u8])),
    ) -> Result<ShardId, NoTarget> {
        let configuration = self.configuration().ok_or(NoTarget::NoConfiguration)?;
        let owner_of = |table: TableId, key_slot: Slot| {
            configuration.owner(table, key_slot).ok_or_else(|| {
                if configuration.has_table(table) { NoTarget::NotServing } else { NoTarget::UnknownTable }
            })
        };
        match keys.slots {
            Slots::One(key_slot) => owner_of(keys.table, key_slot),
            Slots::Several => {
                let mut found = None;
                for_each_key(&mut |table, key| {
                    let owner = owner_of(table, slot_of(key));
                    found = Some(match (found, owner) {
                        (None, owner) | (Some(Ok(_)), owner @ Err(_)) => owner,
                        // Of what has no owner nothing can be sent, whatever owns the other keys.
                        (Some(Err(NoTarget::CrossShard)), Err(why)) => Err(why),
                        (Some(Ok(one)), Ok(other)) if one != other => Err(NoTarget::CrossShard),
                        (Some(before), _) => before,
                    });
                });
                found.expect("every operation has a key")
            }
        }
    }

    pub(super) fn is_table_unknown(&self, slot: usize, keys: Keys) -> bool {
        self.owner(slot, keys) == Err(NoTarget::UnknownTable)
    }

    /// The shard that owns the call's keys, if it is known. From now on the call counts against that shard's limits.
    pub(super) fn admit(&mut self, slot: usize, keys: Keys) -> Result<ShardId, NoTarget> {
        let owner = self.owner(slot, keys);
        self.attribute(slot, owner)
    }

    /// The same for a call whose keys `for_each_key` names.
    pub(super) fn admit_with(
        &mut self,
        slot: usize,
        keys: Keys,
        for_each_key: impl FnOnce(&mut dyn FnMut(TableId, &[u8])),
    ) -> Result<ShardId, NoTarget> {
        let owner = self.owner_of(keys, for_each_key);
        self.attribute(slot, owner)
    }

    fn attribute(&mut self, slot: usize, owner: Result<ShardId, NoTarget>) -> Result<ShardId, NoTarget> {
        match owner {
            Ok(shard) => self.calls.attribute(slot, shard),
            // One of them is as good as another, unless one is known not to serve.
            Err(NoTarget::CrossShard) => {
                if let Some(shard) = self.shard_in_doubt(slot) {
                    self.calls.attribute(slot, shard);
                }
            }
            Err(_) => {}
        }
        owner
    }

    /// Of the shards of a call's keys one that does not serve, as far as is known, or else the first.
    pub(super) fn shard_in_doubt(&self, slot: usize) -> Option<ShardId> {
        let configuration = self.configuration()?;
        let mut shards = Vec::new();
        self.calls[slot].for_each_key(|table, key| shards.extend(configuration.owner(table, slot_of(key))));
        let is_away = |shard: &&ShardId| self.target_at(**shard).is_err();
        shards.iter().find(is_away).or(shards.iter().min()).copied()
    }

    /// The receivers, without witnesses, of an attempt on keys of this shard.
    pub(super) fn target_at(&self, shard: ShardId) -> Result<Target, NoTarget> {
        let configuration = self.configuration().ok_or(NoTarget::NoConfiguration)?;
        let config = configuration.shard(shard).ok_or(NoTarget::NotServing)?;
        let primary = configuration.core_of(config.primary, shard).ok_or(NoTarget::NotServing)?;
        if config.phase != ShardPhase::Serving {
            return Err(NoTarget::NotServing);
        }
        let witnesses = Witnesses::default();
        Ok(Target { shard, epoch: config.epoch, primary, list: ListVersion::NONE, witnesses })
    }

    /// What an update that was never sent has waited for.
    pub(super) fn waits_for(&self, slot: usize) -> WaitsFor {
        let Some(configuration) = self.configuration() else { return WaitsFor::Cluster };
        let call = &self.calls[slot];
        let (Kind::Update(_), Some(owner)) = (call.kind, call.owner) else { return WaitsFor::Coordinator };
        let is_serving = self.target_at(owner).is_ok();
        let Some(identity) = self.identities.current().filter(|_| is_serving) else {
            return if is_serving { WaitsFor::Coordinator } else { WaitsFor::shard(owner, configuration) };
        };
        match identity.oldest() {
            Some((_, shard)) if !identity.has_room() && shard != owner => WaitsFor::window(shard, configuration),
            Some(_) | None => WaitsFor::shard(owner, configuration),
        }
    }

    /// Whether small updates of this shard are recorded on witnesses, as far as the session knows.
    #[must_use]
    pub fn is_recorded(&self, shard: ShardId) -> bool {
        let Some(configuration) = self.configuration() else { return true };
        let Some(config) = configuration.shard(shard) else { return true };
        self.options.fast_path
            && configuration.faults > 0
            && configuration.core_of(config.primary, shard).is_none_or(|primary| self.options.beside != Some(primary))
    }

    /// Adds the witnesses to a target, if the fast path exists for this update (R6.1).
    pub(super) fn with_witnesses(&self, mut target: Target, slot: usize, update: &UpdateCall) -> Target {
        let configuration = self.configuration().expect("there is a target");
        let config = configuration.shard(target.shard).expect("there is a target");
        let keys = update.key_count.saturating_add(u16::from(update.operation_key_ttl.is_some()));
        let is_recordable = self.options.fast_path
            && self.options.beside != Some(target.primary)
            && !matches!(update.cancel, Cancel::Begun(_))
            && keys <= limits::FAST_PATH_KEYS_MAX
            && self.calls[slot].bytes.len() <= WITNESS_BODY_BYTES_MAX
            && config.has_fast_path(configuration.faults)
            && config.witnesses.iter().all(|&node| configuration.core_of(node, target.shard).is_some());
        if is_recordable {
            (target.list, target.witnesses) = (config.list, Witnesses::new(&config.witnesses));
        }
        target
    }
}
