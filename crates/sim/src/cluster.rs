//! Builds a whole cluster in a world: the coordinator, nodes with their cores, clients, and an auditor that reads
//! everything at the end.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use kasha_client::session::SessionOptions;
use kasha_coordinator::{Coordinator, CoordinatorOptions};
use kasha_machine::{Effects, Machine};
use kasha_node::{Node, NodeOptions, Pace};
use kasha_types::{ClusterId, CoreId, Incarnation, NodeId, ShardId, Tick};
use kasha_wire::Durability;
use kasha_wire::status::CoreStatus;

use crate::checkers::acknowledged_outcomes::AcknowledgedOutcomes;
use crate::checkers::commutes::Commutes;
use crate::checkers::counts_grow::CountsGrow;
use crate::checkers::current_witness_list::CurrentWitnessList;
use crate::checkers::durable_everywhere::DurableEverywhere;
use crate::checkers::ends_exact::EndsExact;
use crate::checkers::expiry_by_verdict::ExpiryByVerdict;
use crate::checkers::floors_bind::FloorsBind;
use crate::checkers::flushed_in_time::{self, Blackouts, FlushedInTime};
use crate::checkers::freed_when_synced::FreedWhenSynced;
use crate::checkers::gates_respected::GatesRespected;
use crate::checkers::intact_members::IntactMembers;
use crate::checkers::leases_lapse::LeasesLapse;
use crate::checkers::one_group::OneGroup;
use crate::checkers::one_primary_per_epoch::OnePrimaryPerEpoch;
use crate::checkers::one_timestamp::OneTimestamp;
use crate::checkers::prepared_kept::PreparedKept;
use crate::checkers::proposed_everywhere::ProposedEverywhere;
use crate::checkers::reads_wait::ReadsWait;
use crate::checkers::records::{Records, RecordsWatch};
use crate::checkers::replay_equals_state::ReplayEqualsState;
use crate::checkers::replays_alike::ReplaysAlike;
use crate::checkers::retained::Retained;
use crate::checkers::round_trips::RoundTrips;
use crate::checkers::sent_again::SentAgain;
use crate::checkers::synced_survives::SyncedSurvives;
use crate::checkers::time_goes_on::TimeGoesOn;
use crate::checkers::timestamp_order::TimestampOrder;
use crate::checkers::whole_logs::WholeLogs;
use crate::checkers::witness_keeps::WitnessKeeps;
use crate::clients::{Client, Stage, Task};
use crate::clock::{micros, millis};
use crate::configurations::{Configurations, ConfigurationsGrow, Cores};
use crate::faults::Hosts;
use crate::front::{self, Fronts};
use crate::network::{HostId, ProcessId};
use crate::operator::{self, Operator};
use crate::prober::{Prober, Successes};
use crate::process::{Actor, Spawn};
use crate::redis::driver::{self, Driver};
use crate::rogue::{self, Rogue};
use crate::scenario::Shape;
use crate::sharer::{Away, Callers, Sharer};
use crate::stranger::{Ear, Overheard, Stranger};
use crate::traffic::Traffic;
use crate::world::World;

const CLUSTER: ClusterId = ClusterId(0x51);

impl Actor for Node {
    fn machine(&self) -> &dyn Machine {
        self
    }
    fn machine_mut(&mut self) -> &mut dyn Machine {
        self
    }
    fn status(&self) -> Option<CoreStatus> {
        // The lease of the core is not needed here.
        Some(self.status(Tick(0)))
    }
    fn replay_equals_state(&self) -> Result<u64, String> {
        self.replay_equals_state()
    }
    fn begin_stop(&mut self) {
        self.begin_stop();
    }
    fn has_stopped(&self) -> bool {
        self.has_stopped()
    }
    fn begin_end(&mut self) {
        self.begin_end();
    }
    fn has_ended(&self) -> bool {
        self.has_ended()
    }
}

impl Actor for Coordinator {
    fn replay_equals_state(&self) -> Result<u64, String> {
        self.trouble().map_or(Ok(0), |trouble| Err(format!("R9.11: {trouble}")))
    }
    fn machine(&self) -> &dyn Machine {
        self
    }
    fn machine_mut(&mut self) -> &mut dyn Machine {
        self
    }
}

/// The parts of a cluster that was built.
pub struct Cluster {
    /// The hosts that can fail.
    pub hosts: Hosts,
    /// The host that reads everything at the end.
    pub auditor: HostId,
    /// The front in a process of its own, if the run has one.
    pub front: Option<HostId>,
    /// Sends frames that mean nothing, if the run has one.
    pub stranger: Option<HostId>,
    /// Breaks the rules, if the run has one.
    pub rogue: Option<HostId>,
    /// Changes the group of coordinators, if the run has one.
    pub operator: Option<HostId>,
    /// Asks every shard whether it takes updates, if the run has one.
    pub prober: Option<HostId>,
    /// The prober's results.
    pub successes: Successes,
    /// The program that shares one session over all shards, if the run has one.
    pub sharer: Option<HostId>,
    /// Programs besides it that update one shard each, now and then.
    pub loners: Vec<HostId>,
    /// The shards that are away for that program.
    pub away: Away,
    /// Every configuration that was sent.
    pub configurations: Configurations,
    /// Which process is which core.
    pub cores: Cores,
    /// The moments at which all machines lost power, and the age in nanoseconds from which writes must have survived
    /// that.
    pub blackouts: Option<(Blackouts, u64)>,
}

/// Makes the draws of a front's session others than those of the node in its core.
const FRONT_SALT: u64 = 0x6672_6f6e_7400_0000;

/// Where the front of a node listens, or of none, the front alone.
fn front_address(node: u16) -> SocketAddr {
    address(9, node, 0)
}

fn address(kind: u8, host: u16, core: u8) -> SocketAddr {
    let [high, low] = host.to_be_bytes();
    SocketAddr::from(([10, kind, high, low], 7000 + u16::from(core)))
}

fn node_options(shape: &Shape, core: CoreId, spawn: &Spawn<'_>) -> NodeOptions {
    let addresses = (0..shape.cores).map(|core_index| address(1, core.node.0, core_index)).collect();
    NodeOptions {
        incarnation: Incarnation(spawn.life << 32 | u64::from(core.node.0)),
        boot: spawn.boot,
        segment_bytes: shape.segment_bytes,
        replica_memory_max_bytes: u64::from(shape.segment_bytes) * shape.memory_segments,
        flush_interval: Duration::from_nanos(shape.flush_interval),
        pace: Pace {
            hearing: Duration::from_nanos(shape.lease / 2),
            append_bytes: shape.append_bytes,
            copy_bytes: shape.copy_bytes,
            window_bytes: u64::from(shape.append_bytes) * 4,
            ..Pace::default()
        },
        witness_slots: shape.witness_slots,
        heartbeat: Duration::from_nanos(shape.lease / 8),
        patience: Duration::from_nanos(shape.lease * 2),
        client_lease_millis: shape.client_lease_millis,
        seed: spawn.seed,
        seeds: (2..=shape.coordinators).map(|member| Some(address(0, member, 0))).collect(),
        control: (shape.coordinators > 1 && core.node.0 <= shape.coordinators).then(|| address(0, core.node.0, 0)),
        ..NodeOptions::new(CLUSTER, core, addresses, address(0, 1, 0))
    }
}

/// A member runs in the process of its node, and has its folder. Here both are processes of their own, and each counts its own lives. Those of
/// members begin so high that no start of a node passes for a later start of the member's folder.
const LIVES_OF_MEMBERS: u64 = 1 << 20;

/// Of the member with this number, from 1.
fn coordinator_options(shape: &Shape, member: u16, spawn: &Spawn<'_>) -> CoordinatorOptions {
    let lease = Duration::from_nanos(shape.lease);
    CoordinatorOptions {
        durability: shape.durability,
        min_backups: shape.faults - shape.may_lack,
        node_lease: lease,
        patience: lease * 2,
        drift_bound: lease / 20,
        client_lease_millis: shape.client_lease_millis,
        promotions_max: shape.promotions_max,
        trusts_connections: shape.trusts_connections,
        own_nodes: shape.hosted.then_some(NodeId(1)).into_iter().collect(),
        boot: Some(spawn.boot),
        begins: member == 1,
        group: u8::try_from(shape.coordinators - shape.standbys).expect("few"),
        node: NodeId(member),
        process: Incarnation((LIVES_OF_MEMBERS + spawn.life) << 32 | u64::from(member)),
        // Files are begun anew within a run.
        journal_bytes: 64 * 1024,
        seed: spawn.seed,
        ..CoordinatorOptions::new(CLUSTER, shape.nodes, shape.shards, shape.faults, address(0, member, 0))
    }
}

/// A member of the group of coordinators, on a host of its own.
fn add_coordinator(world: &mut World, shape: &Shape, member: u16) -> HostId {
    let name = if member == 1 { "coordinator".to_owned() } else { format!("coordinator-{member}") };
    let host = world.add_host(&name);
    let shape = shape.clone();
    let start = move |spawn: Spawn<'_>, out: &mut Effects| {
        let options = coordinator_options(&shape, member, &spawn);
        let started = Coordinator::start(options, spawn.disk, spawn.now, out).map_err(|error| error.to_string())?;
        Ok(Box::new(started) as Box<dyn Actor>)
    };
    world.add_process(host, &name, address(0, member, 0), Box::new(start));
    host
}

/// A core of a node. The first one may have a front beside it.
fn add_core(world: &mut World, shape: &Shape, stage: &Rc<RefCell<Stage>>, host: HostId, core: CoreId) -> ProcessId {
    let CoreId { node, core: index } = core;
    let has_front = shape.fronts == Fronts::Colocated && index == 0;
    let (shape, stage) = (shape.clone(), stage.clone());
    let start = move |spawn: Spawn<'_>, out: &mut Effects| {
        let options = node_options(&shape, core, &spawn);
        let started = Node::start(options, spawn.disk, spawn.now, out).map_err(|error| error.to_string())?;
        if !has_front {
            return Ok(Box::new(started) as Box<dyn Actor>);
        }
        stage.borrow_mut().redis.lives.insert(front_address(node.0), spawn.life);
        let session = SessionOptions::new(seeds(&shape), spawn.seed ^ FRONT_SALT);
        Ok(Box::new(front::beside(core, started, session, spawn.now, out)) as Box<dyn Actor>)
    };
    let process = world.add_process(host, &core.to_string(), address(1, node.0, index), Box::new(start));
    if has_front {
        world.listen_for_requests(process, front_address(node.0));
    }
    process
}

/// Builds a cluster whose fsyncs take at most `fsync_max` nanoseconds. Nothing is started.
pub fn build(world: &mut World, shape: &Shape, fsync_max: u64, stage: &Rc<RefCell<Stage>>) -> Cluster {
    let coordinators: Vec<HostId> =
        (1..=shape.coordinators).map(|member| add_coordinator(world, shape, member)).collect();
    let (mut nodes, mut cores) = (Vec::new(), Cores::default());
    for node in (1..=shape.nodes).map(NodeId) {
        let host = world.add_host(&node.to_string());
        for core in (0..shape.cores).map(|core| CoreId { node, core }) {
            cores.add(add_core(world, shape, stage, host, core), core);
        }
        nodes.push(host);
    }
    let task = |index: usize| if index + shape.readers >= shape.clients { Task::Reads } else { Task::Load };
    let mut clients: Vec<HostId> =
        (0..shape.clients).map(|index| add_client(world, shape, stage, index, task(index))).collect();
    let front = (shape.fronts == Fronts::Alone).then(|| add_front(world, shape, stage));
    clients.extend(front);
    clients.extend((0..shape.drivers).map(|index| {
        let host = world.add_host(&format!("driver {index}"));
        add_driver(world, shape, stage, (host, index), driver::Task::Load(shape.pause));
        host
    }));
    let auditor = add_client(world, shape, stage, shape.clients, Task::Audit);
    if shape.fronts != Fronts::Nowhere {
        add_driver(world, shape, stage, (auditor, shape.drivers), driver::Task::Audit);
    }
    let stranger = shape.stranger.then(|| add_stranger(world, shape));
    let rogue = shape.rogue.then(|| add_rogue(world, stage));
    let operator = shape.operator.then(|| add_operator(world, shape));
    let successes = Successes::default();
    let prober = shape.prober.then(|| add_prober(world, shape, &successes));
    let away = Away::default();
    let mut add = |who, number| add_sharer(world, shape, &away, stage, who, number);
    let sharer = shape.sharer.then(|| add(Callers::Many, 0));
    let shards = (0..shape.shards).filter(|_| shape.sharer);
    let loners = shards.map(|shard| add(Callers::One(ShardId(shard)), shard + 1)).collect();
    let configurations = Configurations::default();
    let blackouts = (shape.durability == Durability::Replicated)
        .then(|| (Blackouts::default(), shape.flush_interval + fsync_max + flushed_in_time::SLACK));
    watch(world, shape, &configurations, &cores, blackouts.as_ref());
    world.add_watcher(Box::new(SentAgain::new(cores.clone())));
    if shape.sharer {
        world.add_watcher(Box::new(RoundTrips::new(configurations.clone(), cores.clone(), away.clone())));
    }
    Cluster {
        hosts: Hosts { nodes, coordinator: coordinators[0], coordinators, clients },
        auditor,
        front,
        stranger,
        rogue,
        operator,
        prober,
        successes,
        sharer,
        loners,
        away,
        configurations,
        cores,
        blackouts,
    }
}

/// Adds all watchers. The others read what the first two collect.
fn watch(world: &mut World, shape: &Shape, all: &Configurations, cores: &Cores, blackouts: Option<&(Blackouts, u64)>) {
    let records = Records::default();
    let three = || (all.clone(), cores.clone(), records.clone());
    world.add_watcher(Box::new(RecordsWatch::new(records.clone(), cores.clone())));
    world.add_watcher(Box::new(ConfigurationsGrow::new(all.clone())));
    world.add_watcher(Box::new(OnePrimaryPerEpoch::new(all.clone(), cores.clone())));
    let (configurations, cores, records) = three();
    let gates = GatesRespected::new(configurations, cores, records, shape.durability, shape.segment_bytes);
    world.add_watcher(Box::new(gates));
    let (configurations, cores, records) = three();
    world.add_watcher(Box::new(CurrentWitnessList::new(configurations, cores, records)));
    let (configurations, cores, records) = three();
    world.add_watcher(Box::new(ProposedEverywhere::new(configurations, cores, records)));
    let (configurations, cores, records) = three();
    world.add_watcher(Box::new(DurableEverywhere::default()));
    world.add_watcher(Box::new(OneTimestamp::new(configurations, cores, records)));
    let (configurations, cores, records) = three();
    world.add_watcher(Box::new(PreparedKept::new(configurations, cores, records)));
    let (configurations, cores, records) = three();
    world.add_watcher(Box::new(Retained::new(configurations, cores, records, shape.segment_bytes)));
    world.add_watcher(Box::new(TimestampOrder::new(shape.segment_bytes)));
    let (configurations, cores, _) = three();
    world.add_watcher(Box::new(Commutes::new(configurations.clone(), cores.clone(), shape.segment_bytes)));
    world.add_watcher(Box::new(ReadsWait::new(configurations.clone(), cores.clone(), shape.segment_bytes)));
    world.add_watcher(Box::new(FreedWhenSynced::new(configurations.clone(), cores.clone(), shape.segment_bytes)));
    world.add_watcher(Box::new(IntactMembers::default().forgetting(blackouts.is_some())));
    world.add_watcher(Box::new(WholeLogs::new(configurations.clone(), shape.durability)));
    world.add_watcher(Box::new(LeasesLapse::new(configurations.clone(), cores.clone())));
    world.add_watcher(Box::new(AcknowledgedOutcomes::new(configurations.clone())));
    world.add_watcher(Box::new(ReplaysAlike::new(configurations.clone())));
    world.add_watcher(Box::new(ExpiryByVerdict::new(configurations, cores)));
    world.add_watcher(Box::new(CountsGrow::default()));
    world.add_watcher(Box::new(EndsExact::default()));
    world.add_watcher(Box::new(TimeGoesOn::new(shape.exact_time, shape.coordinators > 1)));
    world.add_watcher(Box::new(OneGroup::default()));
    world.add_watcher(Box::new(WitnessKeeps::default()));
    world.add_watcher(Box::new(FloorsBind::default()));
    world.add_watcher(Box::new(ReplayEqualsState::default()));
    let (configurations, cores, records) = three();
    let forgets = blackouts.map(|&(_, age_max)| age_max);
    if let Some((at, age_max)) = blackouts {
        world.add_watcher(Box::new(FlushedInTime::new(cores.clone(), *age_max, at.clone())));
    }
    world.add_watcher(Box::new(SyncedSurvives::new(configurations, cores, records).forgetting(forgets)));
    world.add_watcher(Box::new(Traffic::default()));
}

fn add_stranger(world: &mut World, shape: &Shape) -> HostId {
    let host = world.add_host("stranger");
    let overheard = Overheard::default();
    world.add_watcher(Box::new(Ear(overheard.clone())));
    let mut targets = vec![address(0, 1, 0)];
    targets.extend((1..=shape.nodes).flat_map(|node| (0..shape.cores).map(move |core| address(1, node, core))));
    let start = move |spawn: Spawn<'_>, out: &mut Effects| {
        let stranger = Stranger::new(spawn.seed, overheard.clone(), &targets, out);
        Ok(Box::new(stranger) as Box<dyn Actor>)
    };
    world.add_process(host, "stranger", address(3, 0, 0), Box::new(start));
    host
}

fn add_rogue(world: &mut World, stage: &Rc<RefCell<Stage>>) -> HostId {
    let host = world.add_host(rogue::NAME);
    let stage = stage.clone();
    let start = move |spawn: Spawn<'_>, out: &mut Effects| {
        let rogue = Rogue::new(spawn.seed, stage.clone(), address(0, 1, 0), out);
        Ok(Box::new(rogue) as Box<dyn Actor>)
    };
    world.add_process(host, rogue::NAME, address(5, 0, 0), Box::new(start));
    host
}

fn add_operator(world: &mut World, shape: &Shape) -> HostId {
    let host = world.add_host(operator::NAME);
    let processes = shape.coordinators;
    let start = move |spawn: Spawn<'_>, out: &mut Effects| {
        let addresses = (1..=processes).map(|member| address(0, member, 0));
        Ok(Box::new(Operator::new(spawn.seed, addresses, out)) as Box<dyn Actor>)
    };
    world.add_process(host, operator::NAME, address(10, 0, 0), Box::new(start));
    host
}

fn seeds(shape: &Shape) -> Vec<SocketAddr> {
    (1..=shape.nodes).map(|node| address(1, node, 0)).chain([address(0, 1, 0)]).collect()
}

fn add_prober(world: &mut World, shape: &Shape, successes: &Successes) -> HostId {
    let host = world.add_host("prober");
    let (shape, successes) = (shape.clone(), successes.clone());
    let start = move |spawn: Spawn<'_>, out: &mut Effects| {
        let options = SessionOptions::new(seeds(&shape), spawn.seed);
        let prober = Prober::new(options, successes.clone(), shape.lease / 8, spawn.now, out);
        Ok(Box::new(prober) as Box<dyn Actor>)
    };
    world.add_process(host, "prober", address(4, 0, 0), Box::new(start));
    host
}

/// A front in a process of its own.
fn add_front(world: &mut World, shape: &Shape, stage: &Rc<RefCell<Stage>>) -> HostId {
    let host = world.add_host("front");
    let (shape, stage) = (shape.clone(), stage.clone());
    let start = move |spawn: Spawn<'_>, out: &mut Effects| {
        stage.borrow_mut().redis.lives.insert(front_address(0), spawn.life);
        let front = front::front(SessionOptions::new(seeds(&shape), spawn.seed), spawn.now, out);
        Ok(Box::new(front) as Box<dyn Actor>)
    };
    let process = world.add_process(host, "front", address(7, 0, 0), Box::new(start));
    world.listen_for_requests(process, front_address(0));
    host
}

fn add_driver(
    world: &mut World,
    shape: &Shape,
    stage: &Rc<RefCell<Stage>>,
    (host, index): (HostId, usize),
    task: driver::Task,
) {
    let (fronts, stage) = (shape.fronts, stage.clone());
    let nodes = shape.nodes;
    let start = move |_: Spawn<'_>, _: &mut Effects| {
        let fronts = match fronts {
            Fronts::Nowhere | Fronts::Alone => vec![front_address(0)],
            Fronts::Colocated => (1..=nodes).map(front_address).collect(),
        };
        Ok(Box::new(Driver::new(index, fronts, stage.clone(), task)) as Box<dyn Actor>)
    };
    let at = address(8, u16::try_from(index).expect("few"), 0);
    world.add_process(host, &format!("driver {index}"), at, Box::new(start));
}

fn add_sharer(
    world: &mut World,
    shape: &Shape,
    away: &Away,
    stage: &Rc<RefCell<Stage>>,
    who: Callers,
    number: u16,
) -> HostId {
    let name = format!("sharer {number}");
    let host = world.add_host(&name);
    let (shape, away, stage) = (shape.clone(), away.clone(), stage.clone());
    let start = move |spawn: Spawn<'_>, out: &mut Effects| {
        let outstanding_max = shape.outstanding_max;
        let options = SessionOptions { outstanding_max, ..SessionOptions::new(seeds(&shape), spawn.seed) };
        let sharer = Sharer::new(options, away.clone(), stage.clone(), who, spawn.now, out);
        Ok(Box::new(sharer) as Box<dyn Actor>)
    };
    world.add_process(host, &name, address(6, number, 0), Box::new(start));
    host
}

fn add_client(world: &mut World, shape: &Shape, stage: &Rc<RefCell<Stage>>, index: usize, task: Task) -> HostId {
    let is_auditor = task == Task::Audit;
    let name = if is_auditor { "auditor".to_owned() } else { format!("client {index}") };
    let host = world.add_host(&name);
    let (shape, stage) = (shape.clone(), stage.clone());
    let start_client = move |spawn: Spawn<'_>, out: &mut Effects| {
        let outstanding_max = shape.outstanding_max;
        let options = SessionOptions { outstanding_max, ..SessionOptions::new(seeds(&shape), spawn.seed) };
        let pace = if is_auditor { (16, (micros(50), micros(100))) } else { (shape.concurrency, shape.pause) };
        let client = Client::new(index, options, stage.clone(), pace, task, spawn.now, out);
        Ok(Box::new(client) as Box<dyn Actor>)
    };
    let number = u16::try_from(index).expect("few");
    world.add_process(host, &name, address(2, number, 0), Box::new(start_client));
    host
}

/// How long a new cluster may take to serve.
pub const BOOT_MAX: u64 = millis(10_000);
