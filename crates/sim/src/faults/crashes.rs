//! Processes that die and come back: late, at once, in the middle of a turn, all together.

use super::nemesis::{Fault, Nemesis, always};
use crate::intensity::Act;
use crate::network::HostId;
use crate::world::World;

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        act: Act::Crash,
        is_possible: always,
        cause: |nemesis, world, chance| {
            world.probes.hit("nemesis: crash");
            nemesis.kill_for(world, chance.node, chance.time);
        },
    },
    Fault {
        act: Act::FastRestart,
        is_possible: always,
        cause: |nemesis, world, chance| nemesis.fast_restart(world, chance.node),
    },
    Fault {
        act: Act::TornTurn,
        is_possible: always,
        cause: |nemesis, world, chance| nemesis.torn_turn(world, chance.node, chance.time),
    },
    Fault { act: Act::KillAll, is_possible: always, cause: |nemesis, world, _| nemesis.kill_all(world) },
];

impl Nemesis {
    fn fast_restart(&mut self, world: &mut World, node: HostId) {
        world.probes.hit("nemesis: fast restart");
        // Sometimes the node is back before any other misses it.
        let longest = if self.rng.chance(1, 2) { self.lease / 4 } else { self.lease / 40 };
        let time = self.rng.below(longest);
        self.kill_for(world, node, time);
        if self.rng.chance(1, 3) {
            // Other nodes meet the new process before the coordinator tells them of it.
            let untold = time + self.rng.below(self.lease / 4);
            let nodes = self.hosts.nodes.iter().filter(|&&host| host != node);
            let cuts = nodes.map(|&host| (self.hosts.coordinator, host)).collect();
            self.cut_for(world, cuts, untold);
        }
    }

    fn torn_turn(&mut self, world: &mut World, node: HostId, time: u64) {
        world.probes.hit("nemesis: torn turn");
        let effects = self.rng.below(40);
        world.kill_after_effects(node, effects);
        self.start_later(world.now.after(time), node);
    }

    pub(super) fn kill_all(&mut self, world: &mut World) {
        world.probes.hit("nemesis: kill all");
        for host in self.hosts.nodes.clone() {
            let time = self.a_while();
            self.kill_for(world, host, time);
        }
    }
}
