//! Outages and restarts of the coordinator.

use std::net::IpAddr;

use kasha_types::ConfigVersion;

use super::nemesis::{Chance, Cuts, Fault, Nemesis, always, both_ways};
use crate::clock::{SimTime, micros, millis};
use crate::intensity::Act;
use crate::network::HostId;
use crate::world::World;

/// How often it checks whether the coordinator has told something new.
pub(super) const LOOK_FOR_NEWS_EVERY: u64 = micros(50);
/// For how many leases it checks that.
const LOOK_FOR_NEWS_LEASES: u64 = 6;

/// Longer than any lease of a node.
const COORDINATOR_AWAY_LONG: u64 = millis(60_000);

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        act: Act::Coordinator,
        is_possible: always,
        cause: |nemesis, world, chance| nemesis.coordinator_outage(world, chance.time),
    },
    Fault {
        act: Act::CoordinatorMinute,
        is_possible: |nemesis, world| world.is_up(nemesis.hosts.coordinator),
        cause: |nemesis, world, _| {
            world.probes.hit("nemesis: coordinator away for a minute");
            nemesis.coordinator_outage(world, COORDINATOR_AWAY_LONG);
        },
    },
    Fault {
        act: Act::CoordinatorRestart,
        is_possible: always,
        cause: |nemesis, world, _| nemesis.coordinator_comes_back(world, Act::CoordinatorRestart),
    },
    Fault {
        act: Act::CoordinatorReboot,
        is_possible: always,
        cause: |nemesis, world, _| nemesis.coordinator_comes_back(world, Act::CoordinatorReboot),
    },
    Fault {
        act: Act::LeaderCut,
        is_possible: |nemesis, _| nemesis.hosts.coordinators.len() > 1,
        cause: |nemesis, world, chance| nemesis.leader_cut(world, chance),
    },
    Fault {
        act: Act::CoordinatorTelling,
        is_possible: always,
        cause: |nemesis, world, _| {
            let (told, until) = (nemesis.newest_told(), world.now.after(nemesis.lease * LOOK_FOR_NEWS_LEASES));
            nemesis.later(world.now, move |nemesis, world| nemesis.kill_coordinator_if_telling(world, told, until));
        },
    },
];

impl Nemesis {
    pub(super) fn coordinator_outage(&mut self, world: &mut World, time: u64) {
        world.probes.hit("nemesis: coordinator outage");
        let coordinator = self.coordinator();
        if self.rng.chance(1, 6) {
            world.pause(coordinator);
            self.later(world.now.after(time), move |_, world| world.resume(coordinator));
        } else if self.rng.chance(1, 3) {
            world.lose_power(coordinator);
            self.start_later(world.now.after(time), coordinator);
        } else {
            self.kill_for(world, coordinator, time);
        }
    }

    /// The host of the leader, as the newest configuration names it.
    fn leader(&self) -> Option<HostId> {
        let latest = self.configurations.latest()?;
        let IpAddr::V4(ip) = latest.coordinator.ip() else { return None };
        let [_, _, high, low] = ip.octets();
        let member = usize::from(u16::from_be_bytes([high, low]));
        self.hosts.coordinators.get(member.checked_sub(1)?).copied()
    }

    /// The leader goes on to hear nodes, or some of them, and no other member: another one leads soon. Or the leader goes on to hear the
    /// members, and not all nodes (R9.15). A node dies meanwhile, so that both have something to decide.
    fn leader_cut(&mut self, world: &mut World, Chance { time, node }: Chance) {
        let Some(leader) = self.leader() else { return };
        let others: Vec<HostId> = self.hosts.coordinators.iter().copied().filter(|&host| host != leader).collect();
        let mut cuts = both_ways(leader, &others);
        if self.rng.chance(1, 4) {
            world.probes.hit("nemesis: leader of the group hears its members, and not the nodes");
            cuts.clear();
            for host in self.hosts.nodes.clone() {
                if self.rng.chance(3, 4) {
                    cuts.extend(both_ways(host, &[leader]));
                }
            }
            return self.cut_and_kill(world, cuts, Chance { time, node });
        }
        world.probes.hit("nemesis: leader of the group cut off");
        if self.rng.chance(1, 3) {
            cuts.retain(|&(from, _)| from != leader); // it can send, and hears nobody
        }
        if self.rng.chance(1, 2) {
            for host in self.hosts.nodes.clone() {
                let hidden = if self.rng.chance(1, 2) { vec![leader] } else { others.clone() };
                cuts.extend(both_ways(host, &hidden));
            }
        }
        self.cut_and_kill(world, cuts, Chance { time, node });
    }

    fn cut_and_kill(&mut self, world: &mut World, cuts: Cuts, Chance { time, node }: Chance) {
        let time = time.max(self.lease * self.rng.between(2, 8));
        self.cut_for(world, cuts, time);
        let at = self.rng.below(time);
        self.later(world.now.after(at), move |nemesis, world| {
            if world.is_up(node) {
                nemesis.kill_for(world, node, time);
            }
        });
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
            self.start_later(world.now.after(time), coordinator);
        } else if world.now < until {
            let at = world.now.after(LOOK_FOR_NEWS_EVERY);
            self.later(at, move |nemesis, world| nemesis.kill_coordinator_if_telling(world, told, until));
        }
    }

    /// The coordinator is away for less than two leases of a node. It comes back in another boot of its machine, if the act says so.
    pub(super) fn coordinator_comes_back(&mut self, world: &mut World, act: Act) {
        let coordinator = self.coordinator();
        // A group remembers the time as long as a majority of it has been up for a while (R9.4).
        let is_group = self.hosts.coordinators.len() > 1;
        let all_up = self.hosts.coordinators.iter().all(|&host| world.is_up(host));
        if !world.is_up(coordinator) || is_group && (!all_up || world.now < self.group_rests_until) {
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
        self.start_later(world.now.after(time), coordinator);
        self.group_rests_until = world.now.after(time + self.lease * 2);
    }
}
