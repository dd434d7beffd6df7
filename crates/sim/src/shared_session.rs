//! One session that many callers share over many shards, while one node is away for long (R4.10). The node is away for
//! this program only, or it is dead together with the coordinator, so that no node takes over. Updates to shards that
//! have no part on that node must go on.

use std::collections::BTreeSet;

use kasha_machine::Rng;
use kasha_types::{NodeId, ShardId};
use kasha_wire::ShardPhase;

use crate::clock::{SimTime, millis};
use crate::configurations::Configurations;
use crate::faults::{Cuts, Hosts, both_ways};
use crate::network::HostId;
use crate::scenario::Shape;
use crate::sharer::{Away, Gone};
use crate::world::World;

/// How long the program runs before the first fault: it is busy, and has the client ids that it needs.
const QUIET: u64 = millis(1_500);
/// How long callers may wait for a call that was made just before the fault ended.
const AFTERWARDS: u64 = millis(3_000);

/// How often it is checked whether a shard serves again.
const LOOK_EVERY: u64 = millis(1);

/// A run of this kind.
pub struct SharedSession<'a> {
    /// The hosts of the cluster.
    pub hosts: &'a Hosts,
    /// The host of the program.
    pub sharer: HostId,
    /// The configurations that the coordinator has sent.
    pub configurations: &'a Configurations,
    /// The shards that are away.
    pub away: &'a Away,
    /// The size of the cluster.
    pub shape: &'a Shape,
    /// Draws the faults.
    pub rng: Rng,
}

impl SharedSession<'_> {
    /// Takes a node away for longer than a client's lease: first from the program only; then together with the
    /// coordinator; then from everybody, so that other nodes take over.
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

    /// A time that is longer than a client's lease and the term after it in which the lease may still be renewed.
    fn long(&mut self) -> u64 {
        millis(self.shape.client_lease_millis) * 3 + millis(self.rng.between(0, 1_000))
    }

    fn come_back(&self, world: &mut World) {
        let until: SimTime = world.now.after(AFTERWARDS);
        world.run_until(until);
        let mut shards = self.away.borrow_mut();
        (shards.away, shards.back_at) = Default::default();
    }

    /// From now on the node is gone, until the next configuration can say so.
    fn is_gone(&self, node: NodeId, only_for: Option<HostId>, world: &World) {
        self.away.borrow_mut().gone = Some(Gone { node, since: world.now, only_for });
    }

    /// Other nodes take over what the node served. The shards are back as soon as the coordinator says so.
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
        self.is_gone(node, Some(self.sharer), world);
        let until = world.now.after(self.long());
        world.run_until(until);
        self.away.borrow_mut().gone = None;
        cuts.iter().for_each(|&(from, to)| world.network.join(from, to));
        self.come_back(world);
    }

    fn kill_with_coordinator(&mut self, world: &mut World) {
        world.probes.hit("shared session: a node and the coordinator killed");
        let (node, host) = self.a_node();
        self.take_away(node, true);
        world.kill(self.hosts.coordinator);
        world.kill(host);
        self.is_gone(node, None, world);
        let until = world.now.after(self.long());
        world.run_until(until);
        self.away.borrow_mut().gone = None;
        world.start(self.hosts.coordinator);
        world.start(host);
        self.come_back(world);
    }
}
