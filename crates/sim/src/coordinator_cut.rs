//! The coordinator alone is cut off, and every node lives: nothing may move (R7.8).
//!
//! It is cut off for less and for more than a lease, both ways or one way, once or repeatedly, and its links come back
//! one after the other. It has a process of its own, or it shares the process of node 1, which is then cut off with it.
//! No node may be declared lost and no shard may change, then or later. Every shard takes updates, during the cut too
//! if the coordinator has a process of its own. There is one exception: if `f` allows a shared process to go on alone,
//! it may do so after more than ten leases.

use kasha_types::ShardId;
use kasha_wire::Configuration;

use crate::bad_links::{CutRun, WHOLE_WITHIN};
use crate::clock::{SimTime, millis};
use crate::faults::{Cuts, both_ways};
use crate::world::World;

/// Faults in a run.
const ROUNDS: u64 = 3;
/// Leases without hearing any node after which a coordinator may go on with a node of its own process.
const ALONE_LEASES: u64 = 10;
/// Leases after a cut during which nothing may move.
const LEASES_AFTER: u64 = 8;
/// Leases that a shard may be without an update: a client may have to ask again after a second.
const LEASES_UNAVAILABLE_MAX: u64 = 6;
/// How often the cluster is checked.
const LOOK_EVERY: u64 = millis(20);

/// A run of this kind.
pub struct CoordinatorCut<'a>(pub CutRun<'a>);

impl CoordinatorCut<'_> {
    /// Cuts, checks and heals, several times. An error becomes a violation of the world.
    pub fn run(mut self, world: &mut World) {
        world.run_until(world.now.after(self.0.shape.lease * 2));
        for _ in 0..ROUNDS {
            let may_go_on = self.0.shape.hosted && self.0.shape.nodes <= u16::from(self.0.shape.faults) + 1;
            if may_go_on && self.0.rng.chance(1, 2) {
                self.goes_on_alone(world);
            } else {
                self.stays(world, may_go_on);
            }
            if !world.violations.is_empty() {
                return;
            }
        }
    }

    /// The directions that are cut, for each host on the other side.
    fn cuts(&mut self) -> (&'static str, Vec<Cuts>) {
        let mut side = vec![self.0.hosts.coordinator];
        side.extend(self.0.hosts.nodes.first().filter(|_| self.0.shape.hosted));
        let others: Vec<_> = self.0.hosts.nodes.iter().copied().filter(|host| !side.contains(host)).collect();
        let (what, from, to) = match self.0.rng.below(4) {
            0 => ("coordinator cut: its words do not arrive", true, false),
            1 => ("coordinator cut: it hears nobody", false, true),
            _ => ("coordinator cut: both ways", true, true),
        };
        let way = |cuts: Cuts| -> Cuts {
            cuts.into_iter().filter(|(a, _)| if side.contains(a) { from } else { to }).collect()
        };
        let of_host = |&host| way(side.iter().flat_map(|&own| both_ways(own, &[host])).collect());
        (what, others.iter().map(of_host).collect())
    }

    /// A random time: shorter than a lease, about one, some, or many.
    fn a_while(&mut self, leases_max: u64) -> u64 {
        let lease = self.0.shape.lease;
        match self.0.rng.below(4) {
            0 => self.0.rng.between(lease / 8, lease),
            1 => self.0.rng.between(lease, lease * 3 / 2),
            2 => self.0.rng.between(lease, lease * 6),
            _ => self.0.rng.between(lease, lease * leases_max),
        }
    }

    fn stays(&mut self, world: &mut World, may_go_on: bool) {
        let lease = self.0.shape.lease;
        let leases_max = if may_go_on { ALONE_LEASES - 1 } else { 3 * ALONE_LEASES };
        let Some(before) = self.0.configurations.latest() else { return };
        let (what, cuts) = self.cuts();
        world.probes.hit(what);
        // One long cut, or many short ones.
        let flaps = if self.0.rng.chance(1, 3) { self.0.rng.between(2, 8) } else { 1 };
        for flap in 1..=flaps {
            let cut_at = world.now;
            cuts.iter().flatten().for_each(|&(from, to)| world.network.cut(from, to));
            let time = self.a_while(if flaps == 1 { leases_max } else { 3 });
            self.watch(world, &before, (what, cut_at), cut_at.after(time));
            let healed_at = world.now;
            let mut is_staggered = false;
            for cuts in &cuts {
                let late =
                    if self.0.rng.chance(1, 2) { self.0.rng.below(lease * 3 / 4 / cuts.len() as u64) } else { 0 };
                is_staggered |= late > 0;
                self.watch(world, &before, (what, cut_at), world.now.after(late));
                cuts.iter().for_each(|&(from, to)| world.network.join(from, to));
            }
            // A node whose link comes back late must be heard before the next cut. Else it was cut off all the while, and
            // the others were heard meanwhile: then its complaints count, as they do when a link between two nodes fails.
            let pause = |below: u64| if is_staggered { below.max(lease / 2) } else { below };
            let time = if flap == flaps { lease * LEASES_AFTER } else { pause(self.0.rng.below(lease * 2)) };
            self.watch(world, &before, (what, cut_at), healed_at.after(time));
        }
    }

    /// The node beside the coordinator goes on alone, and all is whole again when the others are back.
    fn goes_on_alone(&mut self, world: &mut World) {
        let (lease, (_, cuts)) = (self.0.shape.lease, self.cuts());
        world.probes.hit("coordinator cut: for so long that its node goes on alone");
        cuts.iter().flatten().for_each(|&(from, to)| world.network.cut(from, to));
        world.run_until(world.now.after(lease * (ALONE_LEASES + self.0.rng.between(2, 8))));
        cuts.iter().flatten().for_each(|&(from, to)| world.network.join(from, to));
        world.run_until(world.now.after(lease * 2));
        self.0.until_whole(world, WHOLE_WITHIN, "coordinator_cut");
    }

    fn watch(&self, world: &mut World, before: &Configuration, (what, cut_at): (&str, SimTime), until: SimTime) {
        while world.violations.is_empty() && world.now < until {
            world.run_until(until.min(world.now.after(LOOK_EVERY)));
            if let Some(text) = self.moved(before).or_else(|| self.unavailable(world.now)) {
                let after = (world.now.0 - cut_at.0) as f64 / self.0.shape.lease as f64;
                world.violation(format!("coordinator_cut: {after:.2} leases after a cut ({what}), {text}"));
            }
        }
    }

    fn moved(&self, before: &Configuration) -> Option<String> {
        let latest = self.0.configurations.latest()?;
        let lost = latest.nodes.iter().find(|node| !node.alive);
        let lost = lost.map(|node| format!("{} is called lost", node.node));
        lost.or_else(|| {
            let mut shards = before.shards.iter().zip(&latest.shards);
            let (was, is) = shards.find(|(was, is)| was != is)?;
            Some(format!("{was:?} has become {is:?}"))
        })
    }

    /// A shard that has taken no update for long, although its primary is cut off from none of its members.
    fn unavailable(&self, now: SimTime) -> Option<String> {
        if self.0.shape.hosted {
            return None;
        }
        let since = SimTime(now.0.saturating_sub(self.0.shape.lease * LEASES_UNAVAILABLE_MAX));
        let successes = self.0.successes.borrow();
        let late = |shard: &ShardId| successes.get(shard).is_some_and(|&at| at < since);
        let shard = (0..self.0.shape.shards).map(ShardId).find(late)?;
        Some(format!("{shard} takes no update"))
    }
}
