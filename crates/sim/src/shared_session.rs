//! One session shared over many shards while one node is away for long (R4.10): for its program only, or dead together
//! with the coordinator, so that nobody takes over. Updates to shards that have nothing to do with that node must go on.

use std::collections::BTreeSet;

use kasha_machine::Rng;
use kasha_types::{NodeId, ShardId};

use crate::clock::{SimTime, millis};
use crate::configurations::Configurations;
use crate::faults::{Cuts, Hosts, both_ways};
use crate::network::HostId;
use crate::scenario::Shape;
use crate::sharer::Away;
use crate::world::World;

/// How long the program gets before the first fault: it is busy, and has what it needs.
const QUIET: u64 = millis(1_500);
/// How long callers may wait for what was asked for just before the fault ended.
const AFTERWARDS: u64 = millis(3_000);

/// What a run of this kind looks at.
pub struct SharedSession<'a> {
    /// Who there is.
    pub hosts: &'a Hosts,
    /// Where the program runs.
    pub sharer: HostId,
    /// What the coordinator says.
    pub configurations: &'a Configurations,
    /// What is away.
    pub away: &'a Away,
    /// The cluster.
    pub shape: &'a Shape,
    /// Draws the faults.
    pub rng: Rng,
}

impl SharedSession<'_> {
    /// Takes a node away for longer than a client's lease lasts, and once more with the coordinator.
    pub fn run(mut self, world: &mut World) {
        world.run_until(world.now.after(QUIET));
        let faults: [fn(&mut Self, &mut World); 2] = [Self::cut_off, Self::kill_with_coordinator];
        let first = usize::from(self.rng.chance(1, 2));
        for fault in [faults[first], faults[1 - first]] {
            if world.violations.is_empty() {
                fault(&mut self, world);
            }
        }
    }

    fn a_node(&mut self) -> (NodeId, HostId) {
        let index = self.rng.below(self.hosts.nodes.len() as u64);
        let index = usize::try_from(index).expect("few");
        (NodeId(u16::try_from(index).expect("few") + 1), self.hosts.nodes[index])
    }

    /// Shards in which the node has a part that `counts`.
    fn take_away(&self, node: NodeId, with_members: bool) {
        let Some(latest) = self.configurations.latest() else { return };
        let away: BTreeSet<ShardId> = latest
            .shards
            .iter()
            .filter(|shard| shard.primary == node || with_members && shard.members.iter().any(|m| m.node == node))
            .map(|shard| shard.shard)
            .collect();
        *self.away.borrow_mut() = away;
    }

    /// For longer than a lease of a client, and the term after it in which it may still be renewed.
    fn long(&mut self) -> u64 {
        millis(self.shape.client_lease_millis) * 3 + millis(self.rng.between(0, 1_000))
    }

    fn come_back(&self, world: &mut World) {
        let until: SimTime = world.now.after(AFTERWARDS);
        world.run_until(until);
        self.away.borrow_mut().clear();
    }

    fn cut_off(&mut self, world: &mut World) {
        world.probes.hit("shared session: cut off from a node");
        let (node, host) = self.a_node();
        self.take_away(node, false);
        let cuts: Cuts = both_ways(self.sharer, &[host]);
        cuts.iter().for_each(|&(from, to)| world.network.cut(from, to));
        let until = world.now.after(self.long());
        world.run_until(until);
        cuts.iter().for_each(|&(from, to)| world.network.join(from, to));
        self.come_back(world);
    }

    fn kill_with_coordinator(&mut self, world: &mut World) {
        world.probes.hit("shared session: a node and the coordinator killed");
        let (node, host) = self.a_node();
        self.take_away(node, true);
        world.kill(self.hosts.coordinator);
        world.kill(host);
        let until = world.now.after(self.long());
        world.run_until(until);
        world.start(self.hosts.coordinator);
        world.start(host);
        self.come_back(world);
    }
}
