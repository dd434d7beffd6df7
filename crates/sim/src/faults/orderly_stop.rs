//! Orderly stops: processes that are asked to stop, and machines that are switched off or lose power meanwhile (R7.7,
//! R5.3).

use kasha_types::ShardId;

use super::nemesis::{Fault, Kind, Nemesis, is_all_up};
use super::without_witness::lose_witnesses;
use crate::clock::{SimTime, millis};
use crate::intensity::Act;
use crate::network::HostId;
use crate::world::World;

/// How often the progress of a stop is checked.
const LOOK_EVERY: u64 = millis(2);
/// How long a stop may take; then the processes are killed.
pub(super) const STOP_PATIENCE: u64 = millis(300);

pub(super) const FAULTS: &[Fault] = &[Fault {
    act: Act::OrderlyStop,
    is_possible: is_all_up,
    cause: |nemesis, world, chance| nemesis.stop_for(world, chance.node, chance.time, Afterwards::LosesPower),
}];

/// What follows the stop. In every other case the machine is switched off when its processes have ended in good order.
#[derive(Clone, Copy, Debug)]
pub(super) enum Afterwards {
    /// The machine comes back without the witness files of this shard, or with all of its files.
    LosesWitness(Option<ShardId>),
    /// The machine loses power in the middle of the stop, or some time after it is back, as soon as its copy may be
    /// lost.
    LosesPower,
}

impl Nemesis {
    /// Asks a host's processes to stop; the host comes back after a while.
    pub(super) fn stop_for(&mut self, world: &mut World, host: HostId, time: u64, then: Afterwards) {
        world.probes.hit("nemesis: orderly stop");
        world.begin_stop(host);
        let until = world.now.after(STOP_PATIENCE);
        self.look_for_end(world.now.after(LOOK_EVERY), (host, time), then, until);
    }

    fn look_for_end(&mut self, at: SimTime, (host, time): (HostId, u64), then: Afterwards, until: SimTime) {
        let look = move |nemesis: &mut Self, world: &mut World| nemesis.end_stop(world, (host, time), then, until);
        self.later_as(at, Kind::Stopping(host), look);
    }

    pub(super) fn end_stop(
        &mut self,
        world: &mut World,
        (host, time): (HostId, u64),
        then: Afterwards,
        until: SimTime,
    ) {
        let (ending, has_ended) = world.end_in_order(host);
        let loses_power = matches!(then, Afterwards::LosesPower) && ending > 0 && self.rng.chance(1, 2);
        if loses_power && self.may_lose_power(world) {
            world.probes.hit("nemesis: power loss in an orderly stop");
            return self.power_off(world, host, time);
        }
        if !has_ended && world.now < until {
            return self.look_for_end(world.now.after(LOOK_EVERY), (host, time), then, until);
        }
        self.kill_for(world, host, time);
        if has_ended {
            world.probes.hit("stopped in good order");
            if self.rng.chance(1, 2) {
                world.probes.hit("switched off after an orderly stop");
                world.lose_power(host);
            }
        }
        match then {
            Afterwards::LosesWitness(Some(shard)) => lose_witnesses(world, &[host], shard),
            Afterwards::LosesWitness(None) => {}
            Afterwards::LosesPower => {
                let soon = self.rng.between(self.lease, self.lease * 4);
                self.later(world.now.after(time + soon), move |nemesis, world| {
                    nemesis.lose_power_if_possible(world, host)
                });
            }
        }
    }

    fn lose_power_if_possible(&mut self, world: &mut World, host: HostId) {
        let time = self.a_while();
        if self.may_lose_power(world) {
            world.probes.hit("nemesis: power loss");
            self.power_off(world, host, time);
        }
    }

    /// A machine loses power, and is back after a while.
    pub(super) fn power_off(&mut self, world: &mut World, host: HostId, time: u64) {
        self.lost_at = Some(world.now);
        world.lose_power(host);
        self.start_later(world.now.after(time), host);
    }
}
