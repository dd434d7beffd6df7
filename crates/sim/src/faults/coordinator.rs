//! Outages and restarts of the coordinator.

use kasha_types::ConfigVersion;

use super::{Nemesis, Step};
use crate::clock::{SimTime, micros};
use crate::intensity::Act;
use crate::world::World;

/// How often it checks whether the coordinator has told something new.
pub(super) const LOOK_FOR_NEWS_EVERY: u64 = micros(50);
impl Nemesis {
    pub(super) fn coordinator_outage(&mut self, world: &mut World, time: u64) {
        world.probes.hit("nemesis: coordinator outage");
        let coordinator = self.hosts.coordinator;
        if self.rng.chance(1, 6) {
            world.pause(coordinator);
            self.later(world.now.after(time), Step::Resume(coordinator));
        } else if self.rng.chance(1, 3) {
            world.lose_power(coordinator);
            self.later(world.now.after(time), Step::Start(coordinator));
        } else {
            self.kill_for(world, coordinator, time);
        }
    }

    pub(super) fn newest_told(&self) -> ConfigVersion {
        self.configurations.latest().map_or(ConfigVersion(0), |latest| latest.version)
    }

    /// Everything that the coordinator told must be on its disk, whatever its machine loses now (section 9).
    pub(super) fn kill_coordinator_if_telling(&mut self, world: &mut World, told: ConfigVersion, until: SimTime) {
        let coordinator = self.hosts.coordinator;
        if self.newest_told() > told && world.is_up(coordinator) {
            world.probes.hit("coordinator lost power as it told something");
            world.lose_power(coordinator);
            let time = self.a_while();
            self.later(world.now.after(time), Step::Start(coordinator));
        } else if world.now < until {
            self.later(world.now.after(LOOK_FOR_NEWS_EVERY), Step::KillCoordinatorTelling { told, until });
        }
    }

    /// The coordinator is away for less than two leases of a node. It comes back in another boot of its machine, if the act says so.
    pub(super) fn coordinator_comes_back(&mut self, world: &mut World, act: Act) {
        let coordinator = self.hosts.coordinator;
        if !world.is_up(coordinator) {
            return;
        }
        if act == Act::CoordinatorReboot {
            world.probes.hit("nemesis: coordinator's machine restarts");
            world.lose_power(coordinator);
        } else {
            world.probes.hit("nemesis: coordinator restarts");
            world.kill(coordinator);
        }
        let time = self.rng.below(self.lease * 2);
        self.later(world.now.after(time), Step::Start(coordinator));
    }
}
