//! Files that are damaged or gone when their node comes back.

use kasha_machine::FileName;

use super::nemesis::{Fault, Nemesis, Parts};
use crate::intensity::Act;
use crate::network::HostId;
use crate::world::World;

pub(super) const FAULTS: &[Fault] = &[Fault {
    act: Act::Damage,
    is_possible: Nemesis::may_lose_a_copy,
    cause: |nemesis, world, chance| nemesis.damage(world, chance.node, chance.time),
}];

impl Nemesis {
    fn damage(&mut self, world: &mut World, node: HostId, time: u64) {
        if self.rng.chance(1, 6) {
            world.kill(node);
            if world.damage_end(node) {
                world.probes.hit("nemesis: damaged end of a log");
                self.lost_at = Some(world.now);
            }
            let soon = self.rng.below(self.lease / 4);
            return self.start_later(world.now.after(soon), node);
        }
        if self.rng.chance(1, 2) && self.damage_witness(world, time) {
            return;
        }
        world.kill(node);
        let damaged = world.damage(node, |_| true);
        if damaged.is_some() {
            world.probes.hit("nemesis: damaged file");
            self.lost_at = Some(world.now);
        }
        // A node that is back within its lease is still a member, and is asked for what it has. (A witness that is
        // asked for what it lost could be the only one; then a link that is bad at this moment would be one failure too
        // many.)
        let is_of_a_log = matches!(damaged, Some(FileName::Segment { .. } | FileName::Replica(_)));
        let soon = is_of_a_log && self.rng.chance(1, 2);
        let time = if soon { self.rng.below(self.lease / 4) } else { time };
        self.start_later(world.now.after(time), node);
    }

    /// A primary dies with one of its witnesses. The witness is back first, with a damaged file: the next term reads it
    /// before the coordinator can replace it. Returns false if there is no other witness, since the shard would wait
    /// for that file for ever.
    fn damage_witness(&mut self, world: &mut World, time: u64) -> bool {
        let Some(Parts { shard, primary, witnesses, .. }) = self.parts() else { return false };
        if witnesses.len() < 2 || witnesses.contains(&primary) {
            return false;
        }
        let witness = *self.rng.pick(&witnesses);
        self.kill_for(world, primary, time);
        world.kill(witness);
        let of_witness = |file: &FileName| match *file {
            FileName::Witness { shard: of, .. } | FileName::WitnessMode { shard: of, .. } => of == shard,
            FileName::Segment { .. }
            | FileName::Replica(_)
            | FileName::Core
            | FileName::Told
            | FileName::Coordinator(_)
            | FileName::Journal(_) => false,
        };
        if world.damage(witness, of_witness).is_some() {
            world.probes.hit("nemesis: damaged witness");
            self.lost_at = Some(world.now);
        }
        let soon = self.rng.below(self.lease / 4);
        self.start_later(world.now.after(soon), witness);
        true
    }
}
