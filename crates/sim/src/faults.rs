//! The nemesis: it causes faults of hosts and links, and heals them.
//!
//! It stays within what the design promises to survive (section 5). Under `replicated` durability only one node loses
//! power until the configuration is whole again, and none where `f` is 0. All other faults are allowed at any time. A
//! blackout of that mode is an act of its own, in a scenario that knows what it may lose.

mod coordinator;
mod lost_memory;
mod orderly_stop;
mod without_witness;

use std::collections::{BTreeMap, BTreeSet};

use kasha_machine::{FileName, Rng};
use kasha_types::{ConfigVersion, Epoch, NodeId, ShardId};
use kasha_wire::{Durability, ShardPhase};

use self::orderly_stop::Afterwards;
use crate::checkers::convergence::{all_hold_what_is_synced, is_copying, is_freed_meanwhile};
use crate::clock::{SimTime, micros, millis};
use crate::configurations::{Configurations, Cores, what_lacks};
use crate::intensity::Act;
use crate::network::HostId;
use crate::world::World;
use coordinator::LOOK_FOR_NEWS_EVERY;
use lost_memory::{Folders, MemoryStep};
use without_witness::Way;

/// How long a node that lost something stays unsafe at least: until its loss has been noticed and committed.
const LOSS_SETTLES: u64 = millis(3000);

/// Longer than any lease of a node.
pub const COORDINATOR_AWAY_LONG: u64 = millis(60_000);

/// How often the nemesis checks whether a joiner copies.
const LOOK_FOR_COPY_EVERY: u64 = micros(200);
/// For how many leases it checks that.
const LOOK_FOR_COPY_LEASES: u64 = 20;

/// How often it checks whether something is freed.
const LOOK_FOR_FREED_EVERY: u64 = millis(10);

/// For how many leases it checks whether the coordinator has told something new.
const LOOK_FOR_NEWS_LEASES: u64 = 6;

/// The hosts of a cluster.
#[derive(Clone, Debug)]
pub struct Hosts {
    /// The hosts of the nodes.
    pub nodes: Vec<HostId>,
    /// The host of the coordinator.
    pub coordinator: HostId,
    /// The hosts of the clients.
    pub clients: Vec<HostId>,
}

impl Hosts {
    /// All hosts of the cluster.
    pub fn iter(&self) -> impl Iterator<Item = HostId> {
        self.nodes.iter().chain(&self.clients).copied().chain([self.coordinator])
    }
}

/// A later step: the end of a fault, or the next part of a directed fault.
#[derive(Debug)]
enum Step {
    Start(HostId),
    Resume(HostId),
    Speed(HostId),
    Cut(Cuts),
    Join(Cuts),
    /// Then the primary of the shard dies, and is hidden from the coordinator for a while.
    KillPrimary {
        shard: ShardId,
        downtime: u64,
        hidden: u64,
    },
    /// As soon as the coordinator tells a configuration after this one, its machine loses power.
    KillCoordinatorTelling {
        told: ConfigVersion,
        until: SimTime,
    },
    /// As soon as the primary's log says that a segment is freed which this node never had, the node is started.
    StartWhenFreed {
        host: HostId,
        shard: ShardId,
        until: SimTime,
    },
    /// A shard is left without its witnesses.
    WithoutWitness {
        shard: ShardId,
        way: Way,
    },
    /// As soon as a later term recovers, its primary dies.
    WhenSuccessorBegins {
        shard: ShardId,
        after: Epoch,
        syncs: bool,
        files_gone: bool,
        until: SimTime,
    },
    SuccessorDies {
        shard: ShardId,
        files_gone: bool,
    },
    /// As soon as a node has died in the write with which its term began, the last primary comes back, and the
    /// witnesses are gone.
    WhenTermTorn {
        shard: ShardId,
        last: HostId,
        unheard: Cuts,
        until: SimTime,
    },
    /// As soon as the processes that were asked to stop have done so, they are gone.
    WhenStopped {
        host: HostId,
        time: u64,
        then: Afterwards,
        until: SimTime,
    },
    /// The machine loses power, if its copy may be lost.
    LosePower(HostId),
    Blackout,
    /// As soon as a later term serves, every machine loses power.
    BlackoutWhenServed {
        shard: ShardId,
        after: Epoch,
        until: SimTime,
    },
    Memory(MemoryStep),
    /// As soon as a joiner has a part of what it copies, every process is killed.
    KillAllCopying {
        until: SimTime,
    },
}

/// Directions between two hosts.
pub(crate) type Cuts = Vec<(HostId, HostId)>;

/// The members and witnesses of a shard.
struct Parts {
    shard: ShardId,
    primary: HostId,
    backups: Vec<HostId>,
    witnesses: Vec<HostId>,
}

pub(crate) fn both_ways(a: HostId, others: &[HostId]) -> Cuts {
    others.iter().filter(|&&b| b != a).flat_map(|&b| [(a, b), (b, a)]).collect()
}

/// Causes faults in a world.
pub struct Nemesis {
    rng: Rng,
    hosts: Hosts,
    configurations: Configurations,
    cores: Cores,
    durability: Durability,
    lease: u64,
    agenda: BTreeMap<(SimTime, u64), Step>,
    numbers: u64,
    next_at: SimTime,
    /// When a node last lost what it held, or a part of it.
    lost_at: Option<SimTime>,
    folders: Folders,
}

impl Nemesis {
    /// A nemesis for these hosts.
    #[must_use]
    pub fn new(
        rng: Rng,
        hosts: Hosts,
        (configurations, cores): (Configurations, Cores),
        durability: Durability,
        lease: u64,
    ) -> Self {
        Self {
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
        }
    }

    /// Causes no fault before this moment.
    pub fn start_at(&mut self, at: SimTime) {
        self.next_at = at;
    }

    fn later(&mut self, at: SimTime, step: Step) {
        self.numbers += 1;
        self.agenda.insert((at, self.numbers), step);
    }

    /// Runs the world to this moment, with faults.
    pub fn run(&mut self, world: &mut World, until: SimTime) {
        while world.violations.is_empty() {
            let step_at = self.agenda.first_key_value().map(|(&(at, _), _)| at);
            let act_at = (world.intensity.nemesis_every > 0).then_some(self.next_at);
            let at = step_at.into_iter().chain(act_at).min().unwrap_or(until).min(until);
            world.run_until(at);
            if let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= at) {
                let step = entry.remove();
                self.step(world, step);
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
        let stopping = self.agenda.values().filter_map(|step| match *step {
            Step::WhenStopped { host, .. } => Some(host),
            _ => None,
        });
        stopping.for_each(|host| world.kill(host));
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

    fn node(&mut self) -> HostId {
        *self.rng.pick(&self.hosts.nodes)
    }

    /// A random time: shorter than a lease, about one, or much longer.
    fn a_while(&mut self) -> u64 {
        match self.rng.below(3) {
            0 => self.rng.below(self.lease / 2),
            1 => self.rng.between(self.lease / 2, self.lease * 2),
            _ => self.rng.between(self.lease, self.lease * 6),
        }
    }

    /// Whether the cluster promises to survive that this node loses its unsynced writes now.
    fn may_lose_power(&self, world: &World) -> bool {
        self.durability == Durability::Fsync || self.may_lose_a_copy(world)
    }

    /// Whether the copies of any one node can be lost now: everything else is whole, and there are other copies.
    fn may_lose_a_copy(&self, world: &World) -> bool {
        let whole = self.configurations.latest().is_some_and(|latest| {
            what_lacks(&latest).is_none() && all_hold_what_is_synced(&latest, &self.cores, world.processes())
        });
        let settled = self.lost_at.is_none_or(|at| at.after(LOSS_SETTLES) <= world.now);
        let only_copy = self.configurations.latest().is_none_or(|latest| latest.faults == 0);
        whole && self.all_up(world) && settled && !only_copy
    }

    fn all_up(&self, world: &World) -> bool {
        self.hosts.nodes.iter().all(|&node| world.is_up(node))
    }

    fn kill_for(&mut self, world: &mut World, host: HostId, time: u64) {
        world.kill(host);
        self.later(world.now.after(time), Step::Start(host));
    }

    fn act(&mut self, world: &mut World) {
        let Some(act) = world.intensity.acts.draw(&mut self.rng) else { return };
        let (now, time, node) = (world.now, self.a_while(), self.node());
        match act {
            Act::Crash => {
                world.probes.hit("nemesis: crash");
                self.kill_for(world, node, time);
            }
            Act::FastRestart => self.fast_restart(world, node),
            Act::TornTurn => self.torn_turn(world, node, time),
            Act::Power if self.may_lose_power(world) => {
                world.probes.hit("nemesis: power loss");
                self.power_off(world, node, time);
            }
            Act::Blackout if self.durability == Durability::Fsync => self.blackout(world),
            // A process that is down has not flushed, and its machine would not know that by itself.
            Act::BlackoutReplicated if self.all_up(world) => match self.rng.chance(1, 3) {
                true => self.blackout_after_recovery(world),
                false => self.blackout(world),
            },
            Act::ShardBlackout if self.all_up(world) => self.shard_blackout(world),
            Act::KillAll => self.kill_all(world),
            Act::KillAllCopying => self.kill_all_copying(world),
            Act::Zombie => self.zombie(world, node, time),
            Act::Slow => {
                world.probes.hit("nemesis: slow node");
                let slowness = self.rng.between(10, 300);
                world.set_slowness(node, slowness);
                self.later(now.after(time), Step::Speed(node));
            }
            Act::Partition => self.partition(world, time),
            Act::OneWay => self.one_way(world, node, time),
            Act::Coordinator => self.coordinator_outage(world, time),
            Act::CoordinatorMinute if world.is_up(self.hosts.coordinator) => {
                world.probes.hit("nemesis: coordinator away for a minute");
                self.coordinator_outage(world, COORDINATOR_AWAY_LONG);
            }
            Act::CoordinatorRestart | Act::CoordinatorReboot => self.coordinator_comes_back(world, act),
            Act::CoordinatorTelling => {
                let until = now.after(self.lease * LOOK_FOR_NEWS_LEASES);
                self.later(now, Step::KillCoordinatorTelling { told: self.newest_told(), until });
            }
            Act::LostMemory => self.lose_memory(world),
            Act::Client | Act::ClientPause => self.client(world, act, time),
            Act::Depose => self.depose(world, time),
            Act::Apart => self.apart(world),
            Act::OldPrimary => self.old_primary(world, time),
            Act::ListChange => self.list_change(world),
            Act::Damage if self.may_lose_a_copy(world) => self.damage(world, node, time),
            Act::Unheard => self.unheard(world, time),
            Act::Away => self.away(world),
            Act::WithoutWitness => self.without_witness(world),
            Act::OrderlyStop if self.all_up(world) => self.stop_for(world, node, time, Afterwards::LosesPower),
            Act::Damage
            | Act::OrderlyStop
            | Act::Power
            | Act::Blackout
            | Act::BlackoutReplicated
            | Act::ShardBlackout
            | Act::CoordinatorMinute => {}
        }
    }

    fn fast_restart(&mut self, world: &mut World, node: HostId) {
        world.probes.hit("nemesis: fast restart");
        // Sometimes the node is back before any other misses it.
        let longest = if self.rng.chance(1, 2) { self.lease / 4 } else { self.lease / 40 };
        let time = self.rng.below(longest);
        self.kill_for(world, node, time);
        if self.rng.chance(1, 3) {
            // Other nodes meet the new process before the coordinator tells them of it.
            let untold = time + self.rng.below(self.lease / 4);
            let nodes = self.hosts.nodes.iter().filter(|&&host| host != node);
            let cuts = nodes.map(|&host| (self.hosts.coordinator, host)).collect();
            self.cut_for(world, cuts, untold);
        }
    }

    fn torn_turn(&mut self, world: &mut World, node: HostId, time: u64) {
        world.probes.hit("nemesis: torn turn");
        let effects = self.rng.below(40);
        world.kill_after_effects(node, effects);
        self.later(world.now.after(time), Step::Start(node));
    }

    fn damage(&mut self, world: &mut World, node: HostId, time: u64) {
        if self.rng.chance(1, 6) {
            world.kill(node);
            if world.damage_end(node) {
                world.probes.hit("nemesis: damaged end of a log");
                self.lost_at = Some(world.now);
            }
            let soon = self.rng.below(self.lease / 4);
            return self.later(world.now.after(soon), Step::Start(node));
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
        self.later(world.now.after(time), Step::Start(node));
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
            | FileName::Coordinator(_) => false,
        };
        if world.damage(witness, of_witness).is_some() {
            world.probes.hit("nemesis: damaged witness");
            self.lost_at = Some(world.now);
        }
        let soon = self.rng.below(self.lease / 4);
        self.later(world.now.after(soon), Step::Start(witness));
        true
    }

    /// No process dies: the primary's lease ends, and the other nodes hear the primary. Updates go on, reads wait for a
    /// round.
    fn unheard(&mut self, world: &mut World, time: u64) {
        let Some(Parts { primary, .. }) = self.parts() else { return };
        world.probes.hit("nemesis: primary unheard by the coordinator");
        self.cut_for(world, both_ways(primary, &[self.hosts.coordinator]), time.max(self.lease * 2));
    }

    fn away(&mut self, world: &mut World) {
        let Some(Parts { shard, backups, .. }) = self.parts() else { return };
        if backups.is_empty() || !self.all_up(world) {
            return;
        }
        world.probes.hit("nemesis: backup away");
        let host = *self.rng.pick(&backups);
        if self.rng.chance(1, 2) {
            let time = self.rng.between(self.lease * 3 / 2, self.lease * 6);
            return self.kill_for(world, host, time);
        }
        world.kill(host);
        self.later(world.now, Step::StartWhenFreed { host, shard, until: world.now.after(self.lease * 10) });
    }

    /// The node comes back as soon as a segment is freed that it never had: the segment is removed while the node is
    /// attached.
    fn start_when_freed(&mut self, world: &mut World, (host, shard): (HostId, ShardId), until: SimTime) {
        let index = self.hosts.nodes.iter().position(|&node| node == host).expect("a node");
        let node = NodeId(u16::try_from(index + 1).expect("few"));
        let latest = self.configurations.latest();
        let is_freed = |latest: &_| is_freed_meanwhile(latest, &self.cores, world.processes(), (shard, node));
        if world.now >= until || latest.is_some_and(|latest| is_freed(&latest)) {
            world.start(host);
        } else {
            self.later(world.now.after(LOOK_FOR_FREED_EVERY), Step::StartWhenFreed { host, shard, until });
        }
    }

    fn blackout(&mut self, world: &mut World) {
        world.probes.hit("nemesis: blackout");
        let coordinator_too = self.rng.chance(1, 2).then_some(self.hosts.coordinator);
        let hosts = self.hosts.nodes.clone().into_iter().chain(coordinator_too).collect();
        self.black_out(world, hosts);
    }

    /// Every machine that has something of one shard loses power. Other shards go on.
    fn shard_blackout(&mut self, world: &mut World) {
        let Some(Parts { primary, backups, witnesses, .. }) = self.parts() else { return };
        world.probes.hit("nemesis: blackout of a shard");
        let hosts: BTreeSet<HostId> = [primary].into_iter().chain(backups).chain(witnesses).collect();
        self.black_out(world, hosts.into_iter().collect());
    }

    fn black_out(&mut self, world: &mut World, hosts: Vec<HostId>) {
        world.announce_blackout();
        for host in hosts {
            world.lose_power(host);
            let time = self.a_while();
            self.later(world.now.after(time), Step::Start(host));
        }
    }

    /// A primary dies that could not sync for a moment, so that only a witness has what was answered. The next primary
    /// has that for no longer than it serves when the power is lost.
    fn blackout_after_recovery(&mut self, world: &mut World) {
        let Some(Parts { shard, primary, backups, .. }) = self.parts() else { return };
        let Some(after) = self.epoch_of(shard) else { return };
        let alone = self.rng.between(millis(2), millis(40));
        let cuts = backups.iter().map(|&backup| (primary, backup)).filter(|(from, to)| from != to).collect();
        self.cut_for(world, cuts, alone);
        world.probes.hit("nemesis: blackout after a recovery");
        self.later(world.now.after(alone), Step::KillPrimary { shard, downtime: self.lease * 4, hidden: 0 });
        let until = world.now.after(self.lease * 10);
        self.later(world.now.after(alone + self.lease / 2), Step::BlackoutWhenServed { shard, after, until });
    }

    fn epoch_of(&self, shard: ShardId) -> Option<Epoch> {
        Some(self.configurations.latest()?.shard(shard)?.epoch)
    }

    fn blackout_when_served(&mut self, world: &mut World, (shard, after): (ShardId, Epoch), until: SimTime) {
        let latest = self.configurations.latest();
        let config = latest.as_ref().and_then(|latest| latest.shard(shard));
        if config.is_some_and(|config| config.epoch > after && config.phase == ShardPhase::Serving) {
            // The report of the new term is sent around; the next flush is not due.
            let soon = self.rng.below(millis(10));
            return self.later(world.now.after(soon), Step::Blackout);
        }
        if world.now < until {
            self.later(world.now.after(LOOK_FOR_NEWS_EVERY), Step::BlackoutWhenServed { shard, after, until });
        }
    }

    fn kill_all(&mut self, world: &mut World) {
        world.probes.hit("nemesis: kill all");
        for host in self.hosts.nodes.clone() {
            let time = self.a_while();
            self.kill_for(world, host, time);
        }
    }

    /// A member dies, and before it is back another node has begun to copy in its place.
    fn kill_all_copying(&mut self, world: &mut World) {
        // One such search at a time, and none before the victims of the last one are back.
        if self.agenda.values().any(|step| matches!(step, Step::KillAllCopying { .. })) || !self.all_up(world) {
            return;
        }
        let Some(Parts { primary, backups, .. }) = self.parts() else { return };
        let lost = if backups.is_empty() || self.rng.chance(1, 3) { primary } else { *self.rng.pick(&backups) };
        world.probes.hit("nemesis: member lost");
        let (lease, looks) = (self.lease, self.lease * LOOK_FOR_COPY_LEASES);
        world.kill(lost);
        // Later than the search lasts, unless every process dies before.
        self.later(world.now.after(looks + lease), Step::Start(lost));
        self.later(world.now, Step::KillAllCopying { until: world.now.after(looks) });
    }

    /// Every process dies when a joiner has a part of what it copies.
    fn kill_if_copying(&mut self, world: &mut World, until: SimTime) {
        let latest = self.configurations.latest();
        let copies = latest.is_some_and(|latest| is_copying(&latest, &self.cores, world.processes()));
        if copies {
            world.probes.hit("killed while a joiner copies");
            self.kill_all(world);
        } else if world.now < until {
            self.later(world.now.after(LOOK_FOR_COPY_EVERY), Step::KillAllCopying { until });
        }
    }

    fn client(&mut self, world: &mut World, act: Act, time: u64) {
        if self.hosts.clients.len() < 2 {
            return;
        }
        let client = *self.rng.pick(&self.hosts.clients);
        if act == Act::Client {
            world.probes.hit("nemesis: client died");
            self.kill_for(world, client, time);
        } else {
            world.probes.hit("nemesis: client stopped");
            world.pause(client);
            self.later(world.now.after(time), Step::Resume(client));
        }
    }

    fn one_way(&mut self, world: &mut World, node: HostId, time: u64) {
        world.probes.hit("nemesis: one-way cut");
        let hosts: Vec<HostId> = self.hosts.iter().collect();
        let cut = (*self.rng.pick(&hosts), node);
        let cut = if self.rng.chance(1, 2) { cut } else { (cut.1, cut.0) };
        self.cut_for(world, vec![cut], time);
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
        let mut cuts = Cuts::new();
        for (a, &host) in hosts.iter().enumerate() {
            for (b, &other) in hosts.iter().enumerate() {
                if side[a] != side[b] {
                    cuts.push((host, other));
                }
            }
        }
        self.cut_for(world, cuts, time);
    }

    fn cut_for(&mut self, world: &mut World, cuts: Cuts, time: u64) {
        cuts.iter().for_each(|&(from, to)| world.network.cut(from, to));
        self.later(world.now.after(time), Step::Join(cuts));
    }

    /// The members and witnesses of any shard, by the newest configuration.
    fn parts(&mut self) -> Option<Parts> {
        let latest = self.configurations.latest()?;
        let shard = self.rng.pick(&latest.shards).shard;
        self.parts_of(shard)
    }

    /// The members and witnesses of this shard.
    fn parts_of(&self, shard: ShardId) -> Option<Parts> {
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
    fn loyal_clients(&mut self, node: HostId, witnesses: &[HostId]) -> Cuts {
        let others: Vec<HostId> = (self.hosts.nodes.iter().copied())
            .filter(|&host| host != node && !witnesses.contains(&host))
            .chain([self.hosts.coordinator])
            .collect();
        let clients: Vec<HostId> = self.hosts.clients.iter().copied().filter(|_| self.rng.chance(2, 3)).collect();
        clients.into_iter().flat_map(|client| both_ways(client, &others)).collect()
    }

    /// A node stops and goes on. Sometimes it is a primary, and when it wakes up it receives frames of clients that
    /// stayed with it before it learns of its successor.
    fn zombie(&mut self, world: &mut World, node: HostId, time: u64) {
        world.probes.hit("nemesis: zombie");
        let parts = if self.rng.chance(1, 2) { self.parts() } else { None };
        let Some(Parts { primary, .. }) = parts else {
            world.pause(node);
            self.later(world.now.after(time), Step::Resume(node));
            return;
        };
        let time = time.max(self.lease * 3 / 2);
        world.pause(primary);
        self.later(world.now.after(time), Step::Resume(primary));
        let mut cuts = self.loyal_clients(primary, &[]);
        cuts.extend(both_ways(primary, &self.hosts.nodes));
        cuts.extend(both_ways(primary, &[self.hosts.coordinator]));
        self.cut_for(world, cuts, time + millis(20));
    }

    /// The primary goes on for its clients, and nothing of that reaches a backup: a divergent tail. Mostly another node
    /// becomes primary meanwhile. Sometimes the witnesses learn of that late, and sometimes the successor dies soon.
    fn depose(&mut self, world: &mut World, time: u64) {
        let Some(Parts { shard, primary, backups, witnesses }) = self.parts() else { return };
        world.probes.hit("nemesis: primary cut off");
        let coordinator = self.hosts.coordinator;
        let mut cuts = both_ways(primary, &backups);
        if self.rng.chance(3, 4) {
            // The primary is cut off from all nodes too: a node that others hear is declared lost only later (decision
            // 0007).
            cuts.extend(both_ways(primary, &self.hosts.nodes));
            cuts.extend(both_ways(primary, &[coordinator]));
        }
        if self.rng.chance(1, 2) {
            cuts.extend(witnesses.iter().filter(|&&host| host != primary).map(|&host| (coordinator, host)));
        }
        let seen = if self.rng.chance(2, 3) { &witnesses[..] } else { &[] };
        cuts.extend(self.loyal_clients(primary, seen));
        let time = time.max(self.lease / 2);
        self.cut_for(world, cuts, time);
        if self.rng.chance(1, 2) {
            let (at, downtime) = (self.rng.below(2 * time), self.rng.below(self.lease));
            self.later(world.now.after(at), Step::KillPrimary { shard, downtime, hidden: 0 });
        }
    }

    /// A primary, its witnesses and some clients reach only each other. Updates complete there, and a successor has no
    /// witness to read until that ends.
    fn apart(&mut self, world: &mut World) {
        let Some(Parts { primary, witnesses, .. }) = self.parts() else { return };
        world.probes.hit("nemesis: primary and witnesses apart");
        let (nodes, coordinator) = (self.hosts.nodes.clone(), self.hosts.coordinator);
        let is_apart = |host: &HostId| *host == primary || witnesses.contains(host);
        let others: Vec<HostId> = nodes.iter().copied().filter(|host| !is_apart(host)).chain([coordinator]).collect();
        let mut cuts: Cuts =
            nodes.iter().filter(|host| is_apart(host)).flat_map(|&host| both_ways(host, &others)).collect();
        cuts.extend(self.loyal_clients(primary, &witnesses));
        let time = self.rng.between(self.lease * 3, self.lease * 6);
        self.cut_for(world, cuts, time);
    }

    /// A primary that is cut off, and that nobody tells of its successor, comes back when the successor restarts; the
    /// coordinator does not.
    fn old_primary(&mut self, world: &mut World, time: u64) {
        let Some(Parts { shard, primary, backups, .. }) = self.parts() else { return };
        world.probes.hit("nemesis: old primary");
        let (lease, time) = (self.lease, time.max(self.lease * 3));
        let mut cuts = both_ways(primary, &[self.hosts.coordinator]);
        cuts.extend(self.loyal_clients(primary, &[]));
        self.cut_for(world, cuts, time);
        let (at, downtime) = (self.rng.between(lease * 5 / 4, time), self.rng.below(lease / 8));
        // Until then no other node may report that it hears the primary.
        let others: Vec<HostId> = self.hosts.nodes.iter().copied().filter(|host| !backups.contains(host)).collect();
        self.cut_for(world, both_ways(primary, &backups), at);
        self.cut_for(world, both_ways(primary, &others), at);
        let hidden = self.rng.below(lease);
        self.later(world.now.after(at), Step::KillPrimary { shard, downtime, hidden });
    }

    /// A witness lives on with its list, but the coordinator does not hear it and appoints others. Then the primary is
    /// cut off from its backups for a moment, and dies.
    fn list_change(&mut self, world: &mut World) {
        let Some(Parts { shard, primary, backups, witnesses }) = self.parts() else { return };
        if witnesses.is_empty() {
            return;
        }
        world.probes.hit("nemesis: witness hidden");
        let (now, lease, witness) = (world.now, self.lease, *self.rng.pick(&witnesses));
        let mut hidden = both_ways(witness, &[self.hosts.coordinator]);
        hidden.extend(both_ways(witness, &self.hosts.nodes));
        self.cut_for(world, hidden, lease * 4);
        let at = now.after(self.rng.between(lease, lease * 5 / 2));
        let dies = at.after(self.rng.between(millis(5), millis(120)));
        let alone = both_ways(primary, &backups);
        self.later(at, Step::Cut(alone.clone()));
        let downtime = self.rng.below(lease * 3);
        self.later(dies, Step::KillPrimary { shard, downtime, hidden: 0 });
        self.later(dies.after(millis(1)), Step::Join(alone));
    }

    fn step(&mut self, world: &mut World, step: Step) {
        match step {
            Step::Start(host) => {
                world.disarm(host);
                world.start(host);
            }
            Step::KillCoordinatorTelling { told, until } => self.kill_coordinator_if_telling(world, told, until),
            Step::Memory(step) => self.memory_step(world, step),
            Step::KillAllCopying { until } => self.kill_if_copying(world, until),
            Step::WithoutWitness { shard, way } => self.leave_without_witness(world, shard, way),
            Step::WhenSuccessorBegins { shard, after, syncs, files_gone, until } => {
                self.when_successor_begins(world, (shard, after, syncs), files_gone, until);
            }
            Step::SuccessorDies { shard, files_gone } => self.successor_dies(world, shard, files_gone),
            Step::WhenTermTorn { shard, last, unheard, until } => {
                self.when_term_torn(world, (shard, last), unheard, until)
            }
            Step::WhenStopped { host, time, then, until } => self.end_stop(world, (host, time), then, until),
            Step::LosePower(host) => {
                let time = self.a_while();
                if self.may_lose_power(world) {
                    world.probes.hit("nemesis: power loss");
                    self.power_off(world, host, time);
                }
            }
            Step::Blackout => self.blackout(world),
            Step::BlackoutWhenServed { shard, after, until } => self.blackout_when_served(world, (shard, after), until),
            Step::StartWhenFreed { host, shard, until } => self.start_when_freed(world, (host, shard), until),
            Step::Resume(host) => world.resume(host),
            Step::Speed(host) => world.set_slowness(host, 1),
            Step::Cut(cuts) => cuts.into_iter().for_each(|(from, to)| world.network.cut(from, to)),
            Step::Join(cuts) => cuts.into_iter().for_each(|(from, to)| world.network.join(from, to)),
            Step::KillPrimary { shard, downtime, hidden } => {
                let latest = self.configurations.latest();
                if let Some(config) = latest.as_ref().and_then(|latest| latest.shard(shard)) {
                    let primary = self.hosts.nodes[usize::from(config.primary.0) - 1];
                    self.kill_for(world, primary, downtime);
                    let cuts = both_ways(primary, &[self.hosts.coordinator]);
                    self.cut_for(world, cuts, hidden);
                }
            }
        }
    }
}
