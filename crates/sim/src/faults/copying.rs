//! A member is lost, and every process is killed while another node copies what it had.

use super::nemesis::{Fault, Kind, Nemesis, Parts, always, is_all_up};
use crate::checkers::convergence::is_copying;
use crate::clock::{SimTime, micros};
use crate::intensity::Act;
use crate::world::World;

/// How often the nemesis checks whether a joiner copies.
const LOOK_FOR_COPY_EVERY: u64 = micros(200);
/// For how many leases it checks that.
const LOOK_FOR_COPY_LEASES: u64 = 20;

pub(super) const FAULTS: &[Fault] = &[Fault {
    act: Act::KillAllCopying,
    is_possible: always,
    cause: |nemesis, world, _| nemesis.kill_all_copying(world),
}];

impl Nemesis {
    /// A member dies, and before it is back another node has begun to copy in its place.
    fn kill_all_copying(&mut self, world: &mut World) {
        // One such search at a time, and none before the victims of the last one are back.
        if self.agenda.values().any(|step| step.kind == Kind::LooksForCopy) || !is_all_up(self, world) {
            return;
        }
        let Some(Parts { primary, backups, .. }) = self.parts() else { return };
        let lost = if backups.is_empty() || self.rng.chance(1, 3) { primary } else { *self.rng.pick(&backups) };
        world.probes.hit("nemesis: member lost");
        let (lease, looks) = (self.lease, self.lease * LOOK_FOR_COPY_LEASES);
        world.kill(lost);
        // Later than the search lasts, unless every process dies before.
        self.start_later(world.now.after(looks + lease), lost);
        self.look_for_copy(world.now, world.now.after(looks));
    }

    /// Every process dies when a joiner has a part of what it copies.
    fn kill_if_copying(&mut self, world: &mut World, until: SimTime) {
        let latest = self.configurations.latest();
        let copies = latest.is_some_and(|latest| is_copying(&latest, &self.cores, world.processes()));
        if copies {
            world.probes.hit("killed while a joiner copies");
            self.kill_all(world);
        } else if world.now < until {
            self.look_for_copy(world.now.after(LOOK_FOR_COPY_EVERY), until);
        }
    }

    fn look_for_copy(&mut self, at: SimTime, until: SimTime) {
        self.later_as(at, Kind::LooksForCopy, move |nemesis, world| nemesis.kill_if_copying(world, until));
    }
}
