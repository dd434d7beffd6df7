//! Machines that lose power: one, those of a shard, all.
//!
//! Under `replicated` only what the design promises: of one machine while everything else is whole, and, in scenarios that know
//! what they may lose, of all.

use std::collections::BTreeSet;

use kasha_types::{Epoch, ShardId};
use kasha_wire::{Durability, ShardPhase};

use super::coordinator::LOOK_FOR_NEWS_EVERY;
use super::nemesis::{Fault, Nemesis, Parts, is_all_up};
use crate::clock::{SimTime, millis};
use crate::intensity::Act;
use crate::network::HostId;
use crate::world::World;

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        act: Act::Power,
        is_possible: Nemesis::may_lose_power,
        cause: |nemesis, world, chance| {
            world.probes.hit("nemesis: power loss");
            nemesis.power_off(world, chance.node, chance.time);
        },
    },
    Fault {
        act: Act::Blackout,
        is_possible: |nemesis, _| nemesis.durability == Durability::Fsync,
        cause: |nemesis, world, _| nemesis.blackout(world),
    },
    Fault {
        act: Act::BlackoutReplicated,
        // A process that is down has not flushed, and its machine would not know that by itself.
        is_possible: is_all_up,
        cause: |nemesis, world, _| match nemesis.rng.chance(1, 3) {
            true => nemesis.blackout_after_recovery(world),
            false => nemesis.blackout(world),
        },
    },
    Fault { act: Act::ShardBlackout, is_possible: is_all_up, cause: |nemesis, world, _| nemesis.shard_blackout(world) },
];

impl Nemesis {
    fn blackout(&mut self, world: &mut World) {
        world.probes.hit("nemesis: blackout");
        let coordinator_too = self.rng.chance(1, 2).then_some(self.hosts.coordinator);
        let hosts = self.hosts.nodes.clone().into_iter().chain(coordinator_too).collect();
        self.black_out(world, hosts);
    }

    /// Every machine that has something of one shard loses power. Other shards go on.
    fn shard_blackout(&mut self, world: &mut World) {
        let Some(Parts { primary, backups, witnesses, .. }) = self.parts() else { return };
        world.probes.hit("nemesis: blackout of a shard");
        let hosts: BTreeSet<HostId> = [primary].into_iter().chain(backups).chain(witnesses).collect();
        self.black_out(world, hosts.into_iter().collect());
    }

    fn black_out(&mut self, world: &mut World, hosts: Vec<HostId>) {
        world.announce_blackout();
        for host in hosts {
            world.lose_power(host);
            let time = self.a_while();
            self.start_later(world.now.after(time), host);
        }
    }

    /// A primary dies that could not sync for a moment, so that only a witness has what was answered. The next primary
    /// has that for no longer than it serves when the power is lost.
    fn blackout_after_recovery(&mut self, world: &mut World) {
        let Some(Parts { shard, primary, backups, .. }) = self.parts() else { return };
        let Some(after) = self.epoch_of(shard) else { return };
        let alone = self.rng.between(millis(2), millis(40));
        let cuts = backups.iter().map(|&backup| (primary, backup)).filter(|(from, to)| from != to).collect();
        self.cut_for(world, cuts, alone);
        world.probes.hit("nemesis: blackout after a recovery");
        self.kill_primary_later(world.now.after(alone), shard, (self.lease * 4, 0));
        let until = world.now.after(self.lease * 10);
        let at = world.now.after(alone + self.lease / 2);
        self.later(at, move |nemesis, world| nemesis.blackout_when_served(world, (shard, after), until));
    }

    fn blackout_when_served(&mut self, world: &mut World, (shard, after): (ShardId, Epoch), until: SimTime) {
        let latest = self.configurations.latest();
        let config = latest.as_ref().and_then(|latest| latest.shard(shard));
        if config.is_some_and(|config| config.epoch > after && config.phase == ShardPhase::Serving) {
            // The report of the new term is sent around; the next flush is not due.
            let soon = self.rng.below(millis(10));
            return self.later(world.now.after(soon), |nemesis, world| nemesis.blackout(world));
        }
        if world.now < until {
            let at = world.now.after(LOOK_FOR_NEWS_EVERY);
            self.later(at, move |nemesis, world| nemesis.blackout_when_served(world, (shard, after), until));
        }
    }
}
