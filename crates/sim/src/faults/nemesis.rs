//! The nemesis: when it acts, what it remembers, and what all faults need.

use std::collections::BTreeMap;

use kasha_machine::Rng;
use kasha_types::{ConfigVersion, Epoch, NodeId, ShardId};
use kasha_wire::Durability;

use crate::checkers::convergence::all_hold_what_is_synced;
use crate::clock::{SimTime, millis};
use crate::configurations::{Configurations, Cores, what_lacks};
use crate::disk::SimDisk;
use crate::intensity::Act;
use crate::network::HostId;
use crate::world::World;

/// How long a node that lost something stays unsafe at least: until its loss has been noticed and committed.
const LOSS_SETTLES: u64 = millis(3000);

/// The hosts of a cluster.
#[derive(Clone, Debug)]
pub struct Hosts {
    /// The hosts of the nodes.
    pub nodes: Vec<HostId>,
    /// The host of the coordinator, or of the member of its group that begins.
    pub coordinator: HostId,
    /// The hosts of all members of that group.
    pub coordinators: Vec<HostId>,
    /// The hosts of the clients.
    pub clients: Vec<HostId>,
}

impl Hosts {
    /// All hosts of the cluster.
    pub fn iter(&self) -> impl Iterator<Item = HostId> {
        self.nodes.iter().chain(&self.clients).chain(&self.coordinators).copied()
    }
}

/// What is drawn before a fault, whether the fault needs it or not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chance {
    /// How long the fault lasts.
    pub(super) time: u64,
    pub(super) node: HostId,
}

/// A fault: one row in a file of `faults`, and its weights in [`crate::intensity::Acts`].
pub(super) struct Fault {
    pub(super) act: Act,
    /// Whether the cluster promises to survive it now.
    pub(super) is_possible: fn(&Nemesis, &World) -> bool,
    pub(super) cause: fn(&mut Nemesis, &mut World, Chance),
}

pub(super) fn always(_: &Nemesis, _: &World) -> bool {
    true
}

pub(super) fn is_all_up(nemesis: &Nemesis, world: &World) -> bool {
    nemesis.hosts.nodes.iter().all(|&node| world.is_up(node))
}

type Then = Box<dyn FnOnce(&mut Nemesis, &mut World)>;

/// The end of a fault, or the next part of a directed one.
pub(super) struct Step {
    pub(super) kind: Kind,
    pub(super) then: Then,
}

/// What others have to know of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Any,
    /// A host whose processes were asked to stop, and are not gone before this step.
    Stopping(HostId),
    /// It looks whether somebody copies.
    LooksForCopy,
}

/// Directions between two hosts.
pub(crate) type Cuts = Vec<(HostId, HostId)>;

/// The members and witnesses of a shard.
pub(super) struct Parts {
    pub(super) shard: ShardId,
    pub(super) primary: HostId,
    pub(super) backups: Vec<HostId>,
    pub(super) witnesses: Vec<HostId>,
}

pub(crate) fn both_ways(a: HostId, others: &[HostId]) -> Cuts {
    others.iter().filter(|&&b| b != a).flat_map(|&b| [(a, b), (b, a)]).collect()
}

/// The folders of the coordinator beside the one that it uses.
#[derive(Debug, Default)]
pub(super) struct Folders {
    /// The copy that is to take the folder's place, and its configuration. An empty folder needs to lack nothing else.
    pub(super) copy: Option<(SimDisk, ConfigVersion)>,
    /// The true folder, while another one is in its place.
    pub(super) own: Option<SimDisk>,
}

/// Causes faults in a world.
pub struct Nemesis {
    faults: &'static [&'static [Fault]],
    pub(super) rng: Rng,
    pub(super) hosts: Hosts,
    pub(super) configurations: Configurations,
    pub(super) cores: Cores,
    pub(super) durability: Durability,
    pub(super) lease: u64,
    pub(super) agenda: BTreeMap<(SimTime, u64), Step>,
    pub(super) numbers: u64,
    pub(super) next_at: SimTime,
    /// When a node last lost what it held, or a part of it.
    pub(super) lost_at: Option<SimTime>,
    pub(super) folders: Folders,
    /// No member of a group of coordinators is restarted before this moment.
    pub(super) group_rests_until: SimTime,
}

impl Nemesis {
    /// A nemesis for these hosts, which knows these faults.
    pub(super) fn new(
        faults: &'static [&'static [Fault]],
        rng: Rng,
        hosts: Hosts,
        (configurations, cores): (Configurations, Cores),
        durability: Durability,
        lease: u64,
    ) -> Self {
        Self {
            faults,
            rng,
            hosts,
            configurations,
            cores,
            durability,
            lease,
            agenda: BTreeMap::new(),
            numbers: 0,
            next_at: SimTime(0),
            lost_at: None,
            folders: Folders::default(),
            group_rests_until: SimTime(0),
        }
    }

    /// Causes no fault before this moment.
    pub fn start_at(&mut self, at: SimTime) {
        self.next_at = at;
    }

    pub(super) fn later(&mut self, at: SimTime, then: impl FnOnce(&mut Self, &mut World) + 'static) {
        self.later_as(at, Kind::Any, then);
    }

    pub(super) fn later_as(&mut self, at: SimTime, kind: Kind, then: impl FnOnce(&mut Self, &mut World) + 'static) {
        self.numbers += 1;
        self.agenda.insert((at, self.numbers), Step { kind, then: Box::new(then) });
    }

    pub(super) fn start_later(&mut self, at: SimTime, host: HostId) {
        self.later(at, move |_, world| {
            world.disarm(host);
            world.start(host);
        });
    }

    pub(super) fn join_later(&mut self, at: SimTime, cuts: Cuts) {
        self.later(at, move |_, world| cuts.into_iter().for_each(|(from, to)| world.network.join(from, to)));
    }

    /// The primary of the shard dies, whichever that is then, and is hidden from the coordinator for a while.
    pub(super) fn kill_primary_later(&mut self, at: SimTime, shard: ShardId, (downtime, hidden): (u64, u64)) {
        self.later(at, move |nemesis, world| {
            let latest = nemesis.configurations.latest();
            if let Some(config) = latest.as_ref().and_then(|latest| latest.shard(shard)) {
                let primary = nemesis.hosts.nodes[usize::from(config.primary.0) - 1];
                nemesis.kill_for(world, primary, downtime);
                let cuts = both_ways(primary, &[nemesis.hosts.coordinator]);
                nemesis.cut_for(world, cuts, hidden);
            }
        });
    }

    /// Runs the world to this moment, with faults.
    pub fn run(&mut self, world: &mut World, until: SimTime) {
        while world.violations.is_empty() {
            let step_at = self.agenda.first_key_value().map(|(&(at, _), _)| at);
            let act_at = (world.intensity.nemesis_every > 0).then_some(self.next_at);
            let at = step_at.into_iter().chain(act_at).min().unwrap_or(until).min(until);
            world.run_until(at);
            if let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= at) {
                (entry.remove().then)(self, world);
            } else if act_at.is_some_and(|act_at| act_at <= at) {
                self.act(world);
                let mean = world.intensity.nemesis_every;
                self.next_at = at.after(1 + self.rng.below(2 * mean));
            } else if at >= until {
                return;
            }
        }
    }

    /// Heals everything, for good.
    pub fn heal(&mut self, world: &mut World) {
        // Processes that were asked to stop do so.
        for step in self.agenda.values() {
            if let Kind::Stopping(host) = step.kind {
                world.kill(host);
            }
        }
        self.agenda.clear();
        self.restore_folder(world);
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

    /// The coordinator's process ends, and its own folder is back.
    pub(super) fn restore_folder(&mut self, world: &mut World) {
        self.folders.copy = None;
        if let Some(own) = self.folders.own.take() {
            world.kill(self.hosts.coordinator);
            world.put_disk(self.hosts.coordinator, own);
        }
    }

    /// The coordinator, or any member of its group.
    pub(super) fn coordinator(&mut self) -> HostId {
        match self.hosts.coordinators.as_slice() {
            [alone] => *alone,
            members => *self.rng.pick(members),
        }
    }

    pub(super) fn node(&mut self) -> HostId {
        *self.rng.pick(&self.hosts.nodes)
    }

    /// A random time: shorter than a lease, about one, or much longer.
    pub(super) fn a_while(&mut self) -> u64 {
        match self.rng.below(3) {
            0 => self.rng.below(self.lease / 2),
            1 => self.rng.between(self.lease / 2, self.lease * 2),
            _ => self.rng.between(self.lease, self.lease * 6),
        }
    }

    /// Whether the cluster promises to survive that this node loses its unsynced writes now.
    pub(super) fn may_lose_power(&self, world: &World) -> bool {
        self.durability == Durability::Fsync || self.may_lose_a_copy(world)
    }

    /// Whether the copies of any one node can be lost now: everything else is whole, and there are other copies.
    pub(super) fn may_lose_a_copy(&self, world: &World) -> bool {
        let whole = self.configurations.latest().is_some_and(|latest| {
            what_lacks(&latest).is_none() && all_hold_what_is_synced(&latest, &self.cores, world.processes())
        });
        let settled = self.lost_at.is_none_or(|at| at.after(LOSS_SETTLES) <= world.now);
        let only_copy = self.configurations.latest().is_none_or(|latest| latest.faults == 0);
        whole && is_all_up(self, world) && settled && !only_copy
    }

    pub(super) fn kill_for(&mut self, world: &mut World, host: HostId, time: u64) {
        world.kill(host);
        self.start_later(world.now.after(time), host);
    }

    fn act(&mut self, world: &mut World) {
        let Some(act) = world.intensity.acts.draw(&mut self.rng) else { return };
        let chance = Chance { time: self.a_while(), node: self.node() };
        let fault = self.faults.iter().copied().flatten().find(|fault| fault.act == act).expect("each act has a row");
        if (fault.is_possible)(self, world) {
            (fault.cause)(self, world, chance);
        }
    }

    pub(super) fn epoch_of(&self, shard: ShardId) -> Option<Epoch> {
        Some(self.configurations.latest()?.shard(shard)?.epoch)
    }

    pub(super) fn cut_for(&mut self, world: &mut World, cuts: Cuts, time: u64) {
        cuts.iter().for_each(|&(from, to)| world.network.cut(from, to));
        self.join_later(world.now.after(time), cuts);
    }

    /// The members and witnesses of any shard, by the newest configuration.
    pub(super) fn parts(&mut self) -> Option<Parts> {
        let latest = self.configurations.latest().filter(|latest| !latest.shards.is_empty())?;
        let shard = self.rng.pick(&latest.shards).shard;
        self.parts_of(shard)
    }

    /// The members and witnesses of this shard.
    pub(super) fn parts_of(&self, shard: ShardId) -> Option<Parts> {
        let latest = self.configurations.latest()?;
        let config = latest.shard(shard)?;
        let host = |node: NodeId| self.hosts.nodes[usize::from(node.0) - 1];
        let others = config.members.iter().map(|member| member.node).filter(|&node| node != config.primary);
        Some(Parts {
            shard: config.shard,
            primary: host(config.primary),
            backups: others.map(host).collect(),
            witnesses: config.witnesses.iter().map(|&node| host(node)).collect(),
        })
    }

    /// Some clients see no node except this one and its witnesses, and nobody tells them of a successor.
    pub(super) fn loyal_clients(&mut self, node: HostId, witnesses: &[HostId]) -> Cuts {
        let others: Vec<HostId> = (self.hosts.nodes.iter().copied())
            .filter(|&host| host != node && !witnesses.contains(&host))
            .chain(self.hosts.coordinators.iter().copied())
            .collect();
        let clients: Vec<HostId> = self.hosts.clients.iter().copied().filter(|_| self.rng.chance(2, 3)).collect();
        clients.into_iter().flat_map(|client| both_ways(client, &others)).collect()
    }
}
