//! A backup that is away while the others go on without it.

use kasha_types::{NodeId, ShardId};

use super::nemesis::{Fault, Nemesis, Parts, always, is_all_up};
use crate::checkers::convergence::is_freed_meanwhile;
use crate::clock::{SimTime, millis};
use crate::intensity::Act;
use crate::network::HostId;
use crate::world::World;

/// How often it checks whether something is freed.
const LOOK_FOR_FREED_EVERY: u64 = millis(10);

pub(super) const FAULTS: &[Fault] =
    &[Fault { act: Act::Away, is_possible: always, cause: |nemesis, world, _| nemesis.away(world) }];

impl Nemesis {
    fn away(&mut self, world: &mut World) {
        let Some(Parts { shard, backups, .. }) = self.parts() else { return };
        if backups.is_empty() || !is_all_up(self, world) {
            return;
        }
        world.probes.hit("nemesis: backup away");
        let host = *self.rng.pick(&backups);
        if self.rng.chance(1, 2) {
            let time = self.rng.between(self.lease * 3 / 2, self.lease * 6);
            return self.kill_for(world, host, time);
        }
        world.kill(host);
        let until = world.now.after(self.lease * 10);
        self.later(world.now, move |nemesis, world| nemesis.start_when_freed(world, (host, shard), until));
    }

    /// The node comes back as soon as a segment is freed that it never had: the segment is removed while the node is
    /// attached.
    fn start_when_freed(&mut self, world: &mut World, (host, shard): (HostId, ShardId), until: SimTime) {
        let index = self.hosts.nodes.iter().position(|&node| node == host).expect("a node");
        let node = NodeId(u16::try_from(index + 1).expect("few"));
        let latest = self.configurations.latest();
        let is_freed = |latest: &_| is_freed_meanwhile(latest, &self.cores, world.processes(), (shard, node));
        if world.now >= until || latest.is_some_and(|latest| is_freed(&latest)) {
            world.start(host);
        } else {
            let at = world.now.after(LOOK_FOR_FREED_EVERY);
            self.later(at, move |nemesis, world| nemesis.start_when_freed(world, (host, shard), until));
        }
    }
}
