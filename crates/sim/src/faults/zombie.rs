//! A node that stops, and goes on later without knowing that.

use super::nemesis::{Fault, Nemesis, Parts, always, both_ways};
use crate::clock::millis;
use crate::intensity::Act;
use crate::network::HostId;
use crate::world::World;

pub(super) const FAULTS: &[Fault] = &[Fault {
    act: Act::Zombie,
    is_possible: always,
    cause: |nemesis, world, chance| nemesis.zombie(world, chance.node, chance.time),
}];

impl Nemesis {
    /// A node stops and goes on. Sometimes it is a primary, and when it wakes up it receives frames of clients that
    /// stayed with it before it learns of its successor.
    fn zombie(&mut self, world: &mut World, node: HostId, time: u64) {
        world.probes.hit("nemesis: zombie");
        let parts = if self.rng.chance(1, 2) { self.parts() } else { None };
        let Some(Parts { primary, .. }) = parts else {
            world.pause(node);
            self.later(world.now.after(time), move |_, world| world.resume(node));
            return;
        };
        let time = time.max(self.lease * 3 / 2);
        world.pause(primary);
        self.later(world.now.after(time), move |_, world| world.resume(primary));
        let mut cuts = self.loyal_clients(primary, &[]);
        cuts.extend(both_ways(primary, &self.hosts.nodes));
        cuts.extend(both_ways(primary, &[self.hosts.coordinator]));
        self.cut_for(world, cuts, time + millis(20));
    }
}
