//! Primaries and witnesses that are cut off from some of the others, so that two nodes take themselves for the primary, or one
//! list of witnesses is used too long.

use super::nemesis::{Cuts, Fault, Nemesis, Parts, always, both_ways};
use crate::clock::millis;
use crate::intensity::Act;
use crate::network::HostId;
use crate::world::World;

pub(super) const FAULTS: &[Fault] = &[
    Fault { act: Act::Depose, is_possible: always, cause: |nemesis, world, chance| nemesis.depose(world, chance.time) },
    Fault { act: Act::Apart, is_possible: always, cause: |nemesis, world, _| nemesis.apart(world) },
    Fault {
        act: Act::OldPrimary,
        is_possible: always,
        cause: |nemesis, world, chance| nemesis.old_primary(world, chance.time),
    },
    Fault { act: Act::ListChange, is_possible: always, cause: |nemesis, world, _| nemesis.list_change(world) },
    Fault {
        act: Act::Unheard,
        is_possible: always,
        cause: |nemesis, world, chance| nemesis.unheard(world, chance.time),
    },
];

impl Nemesis {
    /// The primary goes on for its clients, and nothing of that reaches a backup: a divergent tail. Mostly another node
    /// becomes primary meanwhile. Sometimes the witnesses learn of that late, and sometimes the successor dies soon.
    fn depose(&mut self, world: &mut World, time: u64) {
        let Some(Parts { shard, primary, backups, witnesses }) = self.parts() else { return };
        world.probes.hit("nemesis: primary cut off");
        let coordinator = self.hosts.coordinator;
        let mut cuts = both_ways(primary, &backups);
        if self.rng.chance(3, 4) {
            // The primary is cut off from all nodes too: a node that others hear is declared lost only later (decision
            // 0007).
            cuts.extend(both_ways(primary, &self.hosts.nodes));
            cuts.extend(both_ways(primary, &[coordinator]));
        }
        if self.rng.chance(1, 2) {
            cuts.extend(witnesses.iter().filter(|&&host| host != primary).map(|&host| (coordinator, host)));
        }
        let seen = if self.rng.chance(2, 3) { &witnesses[..] } else { &[] };
        cuts.extend(self.loyal_clients(primary, seen));
        let time = time.max(self.lease / 2);
        self.cut_for(world, cuts, time);
        if self.rng.chance(1, 2) {
            let (at, downtime) = (self.rng.below(2 * time), self.rng.below(self.lease));
            self.kill_primary_later(world.now.after(at), shard, (downtime, 0));
        }
    }

    /// A primary, its witnesses and some clients reach only each other. Updates complete there, and a successor has no
    /// witness to read until that ends.
    fn apart(&mut self, world: &mut World) {
        let Some(Parts { primary, witnesses, .. }) = self.parts() else { return };
        world.probes.hit("nemesis: primary and witnesses apart");
        let (nodes, coordinator) = (self.hosts.nodes.clone(), self.hosts.coordinator);
        let is_apart = |host: &HostId| *host == primary || witnesses.contains(host);
        let others: Vec<HostId> = nodes.iter().copied().filter(|host| !is_apart(host)).chain([coordinator]).collect();
        let mut cuts: Cuts =
            nodes.iter().filter(|host| is_apart(host)).flat_map(|&host| both_ways(host, &others)).collect();
        cuts.extend(self.loyal_clients(primary, &witnesses));
        let time = self.rng.between(self.lease * 3, self.lease * 6);
        self.cut_for(world, cuts, time);
    }

    /// A primary that is cut off, and that nobody tells of its successor, comes back when the successor restarts; the
    /// coordinator does not.
    fn old_primary(&mut self, world: &mut World, time: u64) {
        let Some(Parts { shard, primary, backups, .. }) = self.parts() else { return };
        world.probes.hit("nemesis: old primary");
        let (lease, time) = (self.lease, time.max(self.lease * 3));
        let mut cuts = both_ways(primary, &[self.hosts.coordinator]);
        cuts.extend(self.loyal_clients(primary, &[]));
        self.cut_for(world, cuts, time);
        let (at, downtime) = (self.rng.between(lease * 5 / 4, time), self.rng.below(lease / 8));
        // Until then no other node may report that it hears the primary.
        let others: Vec<HostId> = self.hosts.nodes.iter().copied().filter(|host| !backups.contains(host)).collect();
        self.cut_for(world, both_ways(primary, &backups), at);
        self.cut_for(world, both_ways(primary, &others), at);
        let hidden = self.rng.below(lease);
        self.kill_primary_later(world.now.after(at), shard, (downtime, hidden));
    }

    /// A witness lives on with its list, but the coordinator does not hear it and appoints others. Then the primary is
    /// cut off from its backups for a moment, and dies.
    fn list_change(&mut self, world: &mut World) {
        let Some(Parts { shard, primary, backups, witnesses }) = self.parts() else { return };
        if witnesses.is_empty() {
            return;
        }
        world.probes.hit("nemesis: witness hidden");
        let (now, lease, witness) = (world.now, self.lease, *self.rng.pick(&witnesses));
        let mut hidden = both_ways(witness, &[self.hosts.coordinator]);
        hidden.extend(both_ways(witness, &self.hosts.nodes));
        self.cut_for(world, hidden, lease * 4);
        let at = now.after(self.rng.between(lease, lease * 5 / 2));
        let dies = at.after(self.rng.between(millis(5), millis(120)));
        let alone = both_ways(primary, &backups);
        let cuts = alone.clone();
        self.later(at, move |_, world| cuts.into_iter().for_each(|(from, to)| world.network.cut(from, to)));
        let downtime = self.rng.below(lease * 3);
        self.kill_primary_later(dies, shard, (downtime, 0));
        self.join_later(dies.after(millis(1)), alone);
    }

    /// No process dies: the primary's lease ends, and the other nodes hear the primary. Updates go on, reads wait for a
    /// round.
    fn unheard(&mut self, world: &mut World, time: u64) {
        let Some(Parts { primary, .. }) = self.parts() else { return };
        world.probes.hit("nemesis: primary unheard by the coordinator");
        self.cut_for(world, both_ways(primary, &[self.hosts.coordinator]), time.max(self.lease * 2));
    }
}
