//! The nemesis: what goes wrong with hosts and links, and how it is put right again.
//!
//! It keeps to what the design promises to survive (section 5): under `replicated` durability only one node loses power
//! until the configuration is whole again; everything else is allowed at any time.

use std::collections::BTreeMap;

use kasha_machine::Rng;
use kasha_wire::Durability;

use crate::clock::{SimTime, millis};
use crate::configurations::{Configurations, what_lacks};
use crate::network::HostId;
use crate::world::World;

/// How long a node that lost power stays unsafe at least: until its loss has been noticed and committed.
const POWER_SETTLES: u64 = millis(3000);

/// The hosts of a cluster.
#[derive(Clone, Debug)]
pub struct Hosts {
    /// Its nodes.
    pub nodes: Vec<HostId>,
    /// Its coordinator.
    pub coordinator: HostId,
    /// Its clients.
    pub clients: Vec<HostId>,
}

impl Hosts {
    /// All.
    pub fn iter(&self) -> impl Iterator<Item = HostId> {
        self.nodes.iter().chain(&self.clients).copied().chain([self.coordinator])
    }
}

#[derive(Debug)]
enum Cure {
    Start(HostId),
    Resume(HostId),
    Speed(HostId),
    Join(Vec<(HostId, HostId)>),
}

/// Makes trouble.
pub struct Nemesis {
    rng: Rng,
    hosts: Hosts,
    configurations: Configurations,
    durability: Durability,
    lease: u64,
    agenda: BTreeMap<(SimTime, u64), Cure>,
    numbers: u64,
    next_at: SimTime,
    power_lost_at: Option<SimTime>,
}

impl Nemesis {
    /// Trouble for these hosts, after `start`.
    #[must_use]
    pub fn new(
        rng: Rng,
        hosts: Hosts,
        configurations: Configurations,
        durability: Durability,
        lease: u64,
        start: SimTime,
    ) -> Self {
        Self {
            rng,
            hosts,
            configurations,
            durability,
            lease,
            agenda: BTreeMap::new(),
            numbers: 0,
            next_at: start,
            power_lost_at: None,
        }
    }

    /// Makes no trouble before this moment.
    pub fn start_at(&mut self, at: SimTime) {
        self.next_at = at;
    }

    fn later(&mut self, at: SimTime, cure: Cure) {
        self.numbers += 1;
        self.agenda.insert((at, self.numbers), cure);
    }

    /// Runs the world to this moment, with trouble.
    pub fn run(&mut self, world: &mut World, until: SimTime) {
        while world.violations.is_empty() {
            let cure_at = self.agenda.first_key_value().map(|(&(at, _), _)| at);
            let act_at = (world.intensity.nemesis_every > 0).then_some(self.next_at);
            let at = cure_at.into_iter().chain(act_at).min().unwrap_or(until).min(until);
            world.run_until(at);
            if let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= at) {
                cure(world, entry.remove());
            } else if act_at.is_some_and(|act_at| act_at <= at) {
                self.act(world);
                let mean = world.intensity.nemesis_every;
                self.next_at = at.after(1 + self.rng.below(2 * mean));
            } else if at >= until {
                return;
            }
        }
    }

    /// Puts everything right, for good.
    pub fn heal(&mut self, world: &mut World) {
        self.agenda.clear();
        world.network.join_all();
        for host in self.hosts.iter() {
            world.set_slowness(host, 1);
            world.disarm(host);
            if world.host(host).paused {
                world.resume(host);
            }
            if !self.hosts.clients.contains(&host) {
                world.start(host);
            }
        }
    }

    fn node(&mut self) -> HostId {
        *self.rng.pick(&self.hosts.nodes)
    }

    /// A while: shorter than a lease, about one, or much longer.
    fn a_while(&mut self) -> u64 {
        match self.rng.below(3) {
            0 => self.rng.below(self.lease / 2),
            1 => self.rng.between(self.lease / 2, self.lease * 2),
            _ => self.rng.between(self.lease, self.lease * 6),
        }
    }

    /// Whether losing a node's unsynced writes now is within the promise.
    fn may_lose_power(&self, world: &World) -> bool {
        let whole = self.configurations.latest().is_some_and(|latest| what_lacks(&latest).is_none());
        let all_up = self.hosts.nodes.iter().all(|&node| world.is_up(node));
        let settled = self.power_lost_at.is_none_or(|at| at.after(POWER_SETTLES) <= world.now);
        self.durability == Durability::Fsync || (whole && all_up && settled)
    }

    fn kill_for(&mut self, world: &mut World, host: HostId, time: u64) {
        world.kill(host);
        self.later(world.now.after(time), Cure::Start(host));
    }

    fn act(&mut self, world: &mut World) {
        let weights = world.intensity.acts.weights();
        let all: u64 = weights.iter().sum();
        if all == 0 {
            return;
        }
        let mut draw = self.rng.below(all);
        let mut kind = 0;
        while draw >= weights[kind] {
            draw -= weights[kind];
            kind += 1;
        }
        let (now, time, node) = (world.now, self.a_while(), self.node());
        match kind {
            0 => {
                world.probes.hit("nemesis: crash");
                self.kill_for(world, node, time);
            }
            1 => {
                world.probes.hit("nemesis: fast restart");
                let time = self.rng.below(self.lease / 4);
                self.kill_for(world, node, time);
            }
            2 => {
                world.probes.hit("nemesis: torn turn");
                let effects = self.rng.below(40);
                world.kill_after_effects(node, effects);
                self.later(now.after(time), Cure::Start(node));
            }
            3 if self.may_lose_power(world) => {
                world.probes.hit("nemesis: power loss");
                self.power_lost_at = Some(now);
                world.lose_power(node);
                self.later(now.after(time), Cure::Start(node));
            }
            4 if self.durability == Durability::Fsync => {
                world.probes.hit("nemesis: blackout");
                let coordinator_too = self.rng.chance(1, 2).then_some(self.hosts.coordinator);
                for host in self.hosts.nodes.clone().into_iter().chain(coordinator_too) {
                    world.lose_power(host);
                    let time = self.a_while();
                    self.later(now.after(time), Cure::Start(host));
                }
            }
            5 => {
                world.probes.hit("nemesis: kill all");
                for host in self.hosts.nodes.clone() {
                    let time = self.a_while();
                    self.kill_for(world, host, time);
                }
            }
            6 => {
                world.probes.hit("nemesis: zombie");
                world.pause(node);
                self.later(now.after(time), Cure::Resume(node));
            }
            7 => {
                world.probes.hit("nemesis: slow node");
                let slowness = self.rng.between(10, 300);
                world.set_slowness(node, slowness);
                self.later(now.after(time), Cure::Speed(node));
            }
            8 => self.partition(world, time),
            9 => {
                world.probes.hit("nemesis: one-way cut");
                let hosts: Vec<HostId> = self.hosts.iter().collect();
                let cut = (*self.rng.pick(&hosts), node);
                let cut = if self.rng.chance(1, 2) { cut } else { (cut.1, cut.0) };
                world.network.cut(cut.0, cut.1);
                self.later(now.after(time), Cure::Join(vec![cut]));
            }
            10 => {
                world.probes.hit("nemesis: coordinator outage");
                let coordinator = self.hosts.coordinator;
                if self.rng.chance(1, 3) {
                    world.lose_power(coordinator);
                    self.later(now.after(time), Cure::Start(coordinator));
                } else {
                    self.kill_for(world, coordinator, time);
                }
            }
            11 if self.hosts.clients.len() > 1 => {
                world.probes.hit("nemesis: client died");
                let client = *self.rng.pick(&self.hosts.clients);
                self.kill_for(world, client, time);
            }
            _ => {}
        }
    }

    fn partition(&mut self, world: &mut World, time: u64) {
        world.probes.hit("nemesis: partition");
        let hosts: Vec<HostId> = self.hosts.iter().collect();
        let side: Vec<bool> = if self.rng.chance(1, 2) {
            let alone = self.node();
            hosts.iter().map(|&host| host == alone).collect()
        } else {
            hosts.iter().map(|_| self.rng.chance(1, 2)).collect()
        };
        let mut cuts = Vec::new();
        for (a, &host) in hosts.iter().enumerate() {
            for (b, &other) in hosts.iter().enumerate() {
                if side[a] != side[b] {
                    world.network.cut(host, other);
                    cuts.push((host, other));
                }
            }
        }
        self.later(world.now.after(time), Cure::Join(cuts));
    }
}

fn cure(world: &mut World, cure: Cure) {
    match cure {
        Cure::Start(host) => {
            world.disarm(host);
            world.start(host);
        }
        Cure::Resume(host) => world.resume(host),
        Cure::Speed(host) => world.set_slowness(host, 1),
        Cure::Join(cuts) => cuts.into_iter().for_each(|(from, to)| world.network.join(from, to)),
    }
}
