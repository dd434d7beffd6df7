//! Hosts that do not reach each other, or are slow.

use super::nemesis::{Cuts, Fault, Nemesis, always};
use crate::clock::millis;
use crate::intensity::Act;
use crate::network::HostId;
use crate::world::World;

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        act: Act::Slow,
        is_possible: always,
        cause: |nemesis, world, chance| {
            world.probes.hit("nemesis: slow node");
            let slowness = nemesis.rng.between(10, 300);
            world.set_slowness(chance.node, slowness);
            nemesis.later(world.now.after(chance.time), move |_, world| world.set_slowness(chance.node, 1));
        },
    },
    Fault {
        act: Act::Partition,
        is_possible: always,
        cause: |nemesis, world, chance| nemesis.partition(world, chance.time),
    },
    Fault {
        act: Act::OneWay,
        is_possible: always,
        cause: |nemesis, world, chance| nemesis.one_way(world, chance.node, chance.time),
    },
    Fault {
        act: Act::DeafFront,
        is_possible: |_, world| !world.hosts_of_fronts().is_empty(),
        cause: |nemesis, world, _| nemesis.deaf_front(world),
    },
];

impl Nemesis {
    fn one_way(&mut self, world: &mut World, node: HostId, time: u64) {
        world.probes.hit("nemesis: one-way cut");
        let hosts: Vec<HostId> = self.hosts.iter().collect();
        let cut = (*self.rng.pick(&hosts), node);
        let cut = if self.rng.chance(1, 2) { cut } else { (cut.1, cut.0) };
        self.cut_for(world, vec![cut], time);
    }

    fn deaf_front(&mut self, world: &mut World) {
        world.probes.hit("nemesis: deaf front");
        let front = *self.rng.pick(&world.hosts_of_fronts());
        let nodes = self.hosts.nodes.iter().filter(|&&node| node != front);
        let cuts = nodes.map(|&node| (node, front)).collect();
        let time = self.rng.between(millis(1_500), millis(4_000));
        self.cut_for(world, cuts, time);
    }

    fn partition(&mut self, world: &mut World, time: u64) {
        world.probes.hit("nemesis: partition");
        let hosts: Vec<HostId> = self.hosts.iter().collect();
        let side: Vec<bool> = if self.rng.chance(1, 2) {
            let alone = self.node();
            hosts.iter().map(|&host| host == alone).collect()
        } else {
            hosts.iter().map(|_| self.rng.chance(1, 2)).collect()
        };
        let mut cuts = Cuts::new();
        for (a, &host) in hosts.iter().enumerate() {
            for (b, &other) in hosts.iter().enumerate() {
                if side[a] != side[b] {
                    cuts.push((host, other));
                }
            }
        }
        self.cut_for(world, cuts, time);
    }
}
