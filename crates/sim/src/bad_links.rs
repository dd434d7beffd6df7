//! Links that are bad for a long time while everything else works: the cluster must find a way around them.
//!
//! One fault at a time, each for many leases: a pair of nodes, or a node and the coordinator, do not hear each other,
//! one way or both ways; or a node hears the coordinator but no other node. Enough well-connected nodes are left. So
//! every shard must take updates again *before* the fault is over, and go on taking them. A world that heals everything
//! would hide a shard that hangs until then.

use kasha_machine::Rng;

use crate::clock::{SimTime, millis};
use crate::configurations::{Configurations, what_lacks};
use crate::faults::{Cuts, Hosts, both_ways};
use crate::network::HostId;
use crate::prober::Successes;
use crate::scenario::Shape;
use crate::world::World;

/// Leases after a cut within which every shard must take updates again.
pub const LEASES_TO_AVAILABLE: u64 = 14;
/// After that, no shard may be without an update for more than this many leases.
const LEASES_UNAVAILABLE_MAX: u64 = 4;
/// Faults in a run.
const ROUNDS: u64 = 2;
/// How long the healed cluster may take to be whole before the next fault.
pub(crate) const WHOLE_WITHIN: u64 = millis(30_000);
/// How often the shards are checked.
const LOOK_EVERY: u64 = millis(50);

/// What a run needs that makes cuts of its own.
pub struct CutRun<'a> {
    /// The hosts of the cluster.
    pub hosts: &'a Hosts,
    /// The configurations that the coordinator has sent.
    pub configurations: &'a Configurations,
    /// The results of the prober.
    pub successes: &'a Successes,
    /// The size of the cluster.
    pub shape: &'a Shape,
    /// Draws the faults.
    pub rng: Rng,
}

impl CutRun<'_> {
    /// Runs until the cluster is whole again. If that takes longer than `within`, it is a violation with this name.
    pub(crate) fn until_whole(&self, world: &mut World, within: u64, name: &str) {
        let until = world.now.after(within);
        while world.violations.is_empty() {
            let lacks = self.configurations.latest().and_then(|latest| what_lacks(&latest));
            let Some(lacks) = lacks else { return };
            if world.now >= until {
                return world.violation(format!("{name}: long after the cut was healed: {lacks}"));
            }
            world.run_until(world.now.after(LOOK_EVERY));
        }
    }
}

/// A run of this kind.
pub struct BadLinks<'a>(pub CutRun<'a>);

impl BadLinks<'_> {
    /// Cuts, checks and heals, several times. An error becomes a violation of the world.
    pub fn run(mut self, world: &mut World) {
        for _ in 0..ROUNDS {
            let (what, cuts) = self.draw(world);
            world.probes.hit(&format!("bad link: {what}"));
            let cut_at = world.now;
            cuts.iter().for_each(|&(from, to)| world.network.cut(from, to));
            let until = cut_at.after(self.0.shape.lease * (LEASES_TO_AVAILABLE + self.0.rng.between(1, 24)));
            let names: Vec<String> =
                cuts.iter().map(|&(from, to)| format!("{} → {}", world.host(from).name, world.host(to).name)).collect();
            self.watch(world, cut_at, until, &names.join(", "));
            cuts.iter().for_each(|&(from, to)| world.network.join(from, to));
            self.0.until_whole(world, WHOLE_WITHIN, "bad_links");
            if !world.violations.is_empty() {
                return;
            }
        }
    }

    /// The shards whose newest successful update was asked for before `since`.
    fn unavailable(&self, since: SimTime) -> Vec<String> {
        let successes = self.0.successes.borrow();
        let late = |shard: &u16| successes.get(&kasha_types::ShardId(*shard)).is_none_or(|&at| at < since);
        (0..self.0.shape.shards).filter(late).map(|shard| kasha_types::ShardId(shard).to_string()).collect()
    }

    fn watch(&self, world: &mut World, cut_at: SimTime, until: SimTime, what: &str) {
        let lease = self.0.shape.lease;
        world.run_until(cut_at.after(lease * LEASES_TO_AVAILABLE));
        while world.violations.is_empty() && world.now < until {
            let since = SimTime(world.now.0 - lease * LEASES_UNAVAILABLE_MAX);
            let unavailable = self.unavailable(since);
            if !unavailable.is_empty() {
                let after = (world.now.0 - cut_at.0) / lease;
                world.violation(format!(
                    "bad_links: {unavailable:?} took no update for {LEASES_UNAVAILABLE_MAX} leases, {after} leases \
                     after the cut of {what}, although enough nodes hear each other: {:?}",
                    self.0.configurations.latest()
                ));
                return;
            }
            world.run_until(world.now.after(LOOK_EVERY));
        }
    }

    fn node(&mut self) -> HostId {
        *self.0.rng.pick(&self.0.hosts.nodes)
    }

    /// Two nodes. Mostly both are members of one shard, since other nodes do not talk to each other.
    fn pair(&mut self) -> (HostId, HostId) {
        let latest = self.0.configurations.latest();
        if let Some(latest) = latest.filter(|_| self.0.rng.chance(3, 4)) {
            let shard = self.0.rng.pick(&latest.shards).clone();
            let others: Vec<_> = (shard.members.iter().map(|member| member.node))
                .chain(shard.witnesses.iter().copied())
                .filter(|&node| node != shard.primary)
                .collect();
            if !others.is_empty() {
                let other = *self.0.rng.pick(&others);
                let host = |node: kasha_types::NodeId| self.0.hosts.nodes[usize::from(node.0) - 1];
                return (host(shard.primary), host(other));
            }
        }
        let (a, b) = (self.node(), self.node());
        if a == b { self.pair() } else { (a, b) }
    }

    fn draw(&mut self, _world: &World) -> (&'static str, Cuts) {
        let coordinator = self.0.hosts.coordinator;
        match self.0.rng.below(8) {
            0 | 1 => {
                let (a, b) = self.pair();
                ("two nodes", both_ways(a, &[b]))
            }
            2 => {
                let (a, b) = self.pair();
                ("from a primary, one way", vec![(a, b)])
            }
            3 => {
                let (a, b) = self.pair();
                ("to a primary, one way", vec![(b, a)])
            }
            4 => ("node and coordinator", both_ways(self.node(), &[coordinator])),
            5 => ("node to coordinator, one way", vec![(self.node(), coordinator)]),
            6 => ("coordinator to node, one way", vec![(coordinator, self.node())]),
            _ => {
                let node = self.node();
                ("a node and all others", both_ways(node, &self.0.hosts.nodes))
            }
        }
    }
}
