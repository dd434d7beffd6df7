//! One session shared over many shards while one node is away for long (R4.10): for its program only, or dead together
//! with the coordinator, so that nobody takes over. Updates to shards that have nothing to do with that node must go on.

use std::collections::BTreeSet;

use kasha_machine::Rng;
use kasha_types::{NodeId, ShardId};
use kasha_wire::ShardPhase;

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

/// How often it is looked at whether a shard serves again.
const LOOK_EVERY: u64 = millis(1);

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
    /// Takes a node away for longer than a client's lease lasts: from the program; with the coordinator; and from
    /// everybody, so that others take over.
    pub fn run(mut self, world: &mut World) {
        world.run_until(world.now.after(QUIET));
        let mut faults: Vec<fn(&mut Self, &mut World)> = vec![Self::cut_off, Self::kill_with_coordinator, Self::freeze];
        let by = usize::try_from(self.rng.below(3)).expect("few");
        faults.rotate_left(by);
        for fault in faults {
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

    /// The shards of which the node is the primary, or any member.
    fn take_away(&self, node: NodeId, with_members: bool) {
        let Some(latest) = self.configurations.latest() else { return };
        let away: BTreeSet<ShardId> = latest
            .shards
            .iter()
            .filter(|shard| shard.primary == node || with_members && shard.members.iter().any(|m| m.node == node))
            .map(|shard| shard.shard)
            .collect();
        self.away.borrow_mut().away = away;
    }

    /// For longer than a lease of a client, and the term after it in which it may still be renewed.
    fn long(&mut self) -> u64 {
        millis(self.shape.client_lease_millis) * 3 + millis(self.rng.between(0, 1_000))
    }

    fn come_back(&self, world: &mut World) {
        let until: SimTime = world.now.after(AFTERWARDS);
        world.run_until(until);
        let mut shards = self.away.borrow_mut();
        (shards.away, shards.back_at) = Default::default();
    }

    /// Others take over what the node served. They are back as soon as the coordinator says so.
    fn freeze(&mut self, world: &mut World) {
        world.probes.hit("shared session: a node frozen");
        let (node, host) = self.a_node();
        self.take_away(node, false);
        let led = self.away.borrow().away.clone();
        self.take_away(node, true);
        world.pause(host);
        let until = world.now.after(self.long());
        while world.now < until && world.violations.is_empty() {
            for shard in self.configurations.latest().iter().flat_map(|latest| &latest.shards) {
                let mut shards = self.away.borrow_mut();
                let is_taken_over = led.contains(&shard.shard) && shard.primary != node;
                if is_taken_over && shard.phase == ShardPhase::Serving && shards.away.remove(&shard.shard) {
                    shards.back_at.insert(shard.shard, world.now);
                }
            }
            let next = world.now.after(LOOK_EVERY);
            world.run_until(next);
        }
        world.resume(host);
        self.come_back(world);
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
