//! Random events against the machine: crashes, reboots, partitions, lost frames, stale reports, a slow and torn disk.
//!
//! An oracle remembers everything that was sent, over all lives of the coordinator, and checks F1, F2 and the outcomes
//! of table requests against it.
#![allow(missing_docs)]

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::*;
use kasha_machine::{Endpoint, Rng};
use kasha_types::{BootId, ClientId, ClusterTime, ConfigVersion, ConnId, CoreId, Incarnation, NodeId, ShardId, Tick};
use kasha_wire::message::{Report, TableCommand, TableOutcome};
use kasha_wire::{AnyMessage, Configuration, MemberState, Message, ShardPhase, message};

/// Everything that was sent so far, over all lives of the coordinator.
#[derive(Default)]
struct Oracle {
    told: BTreeMap<ConfigVersion, Configuration>,
    /// The moment until which each core believes in its lease, and the process that it belongs to.
    leases: BTreeMap<CoreId, (Incarnation, Tick)>,
    time: ClusterTime,
    last_client: ClientId,
    clients: Vec<ClientId>,
    outcomes: BTreeMap<(ClientId, u64), TableOutcome>,
    fail_overs: u32,
}

impl Oracle {
    fn on_time(&mut self, time: ClusterTime) {
        assert!(time >= self.time, "R4.7: ClusterTime went back");
        self.time = time;
    }

    fn observe(&mut self, world: &World, to: Endpoint, message: &AnyMessage) {
        match message {
            AnyMessage::ConfigurationIs(message::ConfigurationIs { configuration, .. }) => {
                assert!(configuration.version <= world.config().version, "D3: only what is committed is told");
                self.on_configuration(configuration)
            }
            AnyMessage::HeartbeatAnswer(message::HeartbeatAnswer { sent, lease_millis, cluster_time, .. }) => {
                // A coordinator that only listens tells no time (R9.13).
                if *cluster_time > ClusterTime(0) {
                    self.on_time(*cluster_time);
                }
                let Endpoint::Conn(ConnId(conn)) = to else { return };
                let id = NodeId(u16::try_from(conn / 100).unwrap());
                let core = CoreId { node: id, core: u8::try_from(conn % 100).unwrap() };
                if let Some(node) = world.nodes.get(&id) {
                    let until = sent.after(Duration::from_millis(*lease_millis));
                    let (incarnation, known) = self.leases.get(&core).copied().unwrap_or((node.incarnation(), Tick(0)));
                    let known = if incarnation == node.incarnation() { known } else { Tick(0) };
                    self.leases.insert(core, (node.incarnation(), known.max(until)));
                }
            }
            AnyMessage::SessionOpened(message::SessionOpened { client, cluster_time, .. }) => {
                assert!(*client > self.last_client, "F2: a client id was granted twice");
                self.last_client = *client;
                self.clients.push(*client);
                self.on_time(*cluster_time);
            }
            AnyMessage::TableAnswer(message::TableAnswer { client, sequence, outcome }) => {
                let first = self.outcomes.entry((*client, *sequence)).or_insert_with(|| outcome.clone());
                assert_eq!(first, outcome, "a result, once told, never changes (E2)");
            }
            _ => {}
        }
    }

    fn on_configuration(&mut self, configuration: &Configuration) {
        let same = self.told.entry(configuration.version).or_insert_with(|| configuration.clone());
        assert_eq!(same, configuration, "two configurations of one version");
        let mut around = self.told.range(..configuration.version).rev().take(1).map(|(_, older)| older);
        if let Some(older) = around.next() {
            for (old, new) in older.shards.iter().zip(&configuration.shards) {
                assert!(new.epoch >= old.epoch && new.list >= old.list, "F2: {old:?} then {new:?}");
                if new.epoch > old.epoch && !new.recover_from.is_empty() {
                    assert!(new.recover_from.contains(&new.primary), "R7.2");
                    self.fail_overs += 1;
                }
            }
            for (old, new) in older.nodes.iter().zip(&configuration.nodes) {
                assert!(old.node != new.node || new.incarnation >= old.incarnation, "F2");
            }
        }
    }

    /// F1: at most one node believes that it may serve reads of a shard.
    fn check_one_primary(&self, world: &World) {
        for shard in 0..world.options.shards {
            let believers: Vec<NodeId> = (world.nodes.values())
                .filter(|node| {
                    let Some(config) = &node.config else { return false };
                    let Some(shard) = config.shard(ShardId(shard)) else { return false };
                    let core = config.core_of(node.id, shard.shard).filter(|core| core.core < node.cores);
                    let lease = core.and_then(|core| self.leases.get(&core));
                    let leased =
                        lease.is_some_and(|&(process, until)| process == node.incarnation() && until > world.now);
                    let known = config.node(node.id).is_some_and(|info| info.incarnation == node.incarnation());
                    // No client is answered before the term serves.
                    shard.primary == node.id && shard.phase == ShardPhase::Serving && leased && known
                })
                .map(|node| node.id)
                .collect();
            assert!(believers.len() <= 1, "F1: shard {shard} has {believers:?}");
        }
    }
}

/// A loss of power: any 512-byte sectors that were not fsynced are lost.
fn tear(rng: &mut Rng, world: &mut World) {
    let mut files = world.disk.durable.clone();
    for change in &world.disk.since {
        match change {
            Change::Write(file, offset, bytes) => {
                let mut at = 0;
                while at < bytes.len() {
                    let sector_left = 512 - (usize::try_from(*offset).unwrap() + at) % 512;
                    let end = (at + sector_left).min(bytes.len());
                    if rng.chance(1, 2) {
                        apply_change(&mut files, &Change::Write(*file, offset + at as u64, bytes[at..end].to_vec()));
                    }
                    at = end;
                }
            }
            Change::Truncate(..) | Change::Remove(_) => {
                if rng.chance(1, 2) {
                    apply_change(&mut files, change);
                }
            }
        }
    }
    world.disk.durable = files;
}

/// A kill of the process: what was written stays, in order, up to somewhere within a write.
fn kill(rng: &mut Rng, world: &mut World) {
    let mut files = world.disk.durable.clone();
    let whole = usize::try_from(rng.below(world.disk.since.len() as u64 + 1)).unwrap();
    for (index, change) in world.disk.since.iter().enumerate().take(whole + 1) {
        match change {
            Change::Write(file, offset, bytes) if index == whole => {
                let part = usize::try_from(rng.below(bytes.len() as u64 + 1)).unwrap();
                apply_change(&mut files, &Change::Write(*file, *offset, bytes[..part].to_vec()));
            }
            Change::Truncate(..) | Change::Remove(_) if index == whole => {}
            _ => apply_change(&mut files, change),
        }
    }
    world.disk.durable = files;
}

struct Run {
    rng: Rng,
    world: World,
    oracle: Oracle,
    /// Heartbeats of earlier moments, to be delivered again.
    old_reports: Vec<(NodeId, Report)>,
    table_sequences: BTreeMap<ClientId, u64>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let faults = u8::try_from(rng.below(4)).unwrap();
        let nodes = u16::from(faults) + 1 + u16::try_from(rng.below(5)).unwrap();
        let shards = u16::try_from(rng.between(1, 6)).unwrap();
        let mut options = options(nodes, shards, faults);
        if rng.chance(1, 4) {
            options.durability = kasha_wire::Durability::Fsync;
        }
        options.boot = rng.chance(1, 2).then_some(BootId(1));
        let mut world = World::try_with(options, MemoryDisk::default(), Tick(1_000_000_000), rng.chance(1, 2)).unwrap();
        world.fast_disk = false;
        for id in 1..=nodes {
            world.add_node(id, u8::try_from(rng.between(1, 3)).unwrap());
        }
        Self { rng, world, oracle: Oracle::default(), old_reports: Vec::new(), table_sequences: BTreeMap::new() }
    }

    /// Shows every sent frame to the oracle, and delivers it to the nodes unless it is lost on the way.
    fn settle(&mut self, lossy: bool) {
        for (to, message) in std::mem::take(&mut self.world.disk.sent) {
            if lossy && self.rng.chance(1, 6) {
                continue;
            }
            self.oracle.observe(&self.world, to, &message);
            self.world.disk.sent.push((to, message));
        }
        self.world.deliver();
        self.world.sent.clear();
        self.oracle.check_one_primary(&self.world);
    }

    /// Inputs go to the machine directly, so that what it sends passes through `settle`.
    fn send(&mut self, from: Endpoint, message: &impl Message, lossy: bool) {
        use kasha_machine::{Input, Machine, turn};
        let mut frame = Vec::new();
        message.encode(&mut frame);
        let payload = &frame[kasha_wire::FRAME_HEADER_BYTES..];
        let input = Input::Frame { from, kind: kasha_wire::Kind::Message as u8, payload };
        let world = &mut self.world;
        world.coordinator.step(world.now, input, &mut world.effects);
        turn::finish(world.now, &mut world.coordinator, &mut world.effects, &mut world.held, &mut world.disk);
        world.coordinator.assert_invariants();
        self.fsync_some(!lossy);
        self.settle(lossy);
    }

    fn fsync_some(&mut self, all: bool) {
        while !self.world.disk.commits.is_empty() && (all || self.rng.chance(2, 3)) {
            self.world.fsync();
        }
    }

    fn pass(&mut self, millis: u64, lossy: bool) {
        use kasha_machine::{Input, Machine, turn};
        let world = &mut self.world;
        world.now = world.now.after(Duration::from_millis(millis));
        world.coordinator.step(world.now, Input::Tick, &mut world.effects);
        turn::finish(world.now, &mut world.coordinator, &mut world.effects, &mut world.held, &mut world.disk);
        self.fsync_some(!lossy);
        self.settle(lossy);
        let up: Vec<FakeNode> = self.world.nodes.values().filter(|node| node.up).cloned().collect();
        for node in up {
            for core in 0..node.cores {
                if self.world.hidden.contains(&node.id.0) || lossy && self.rng.chance(1, 8) {
                    continue;
                }
                let node = self.world.nodes[&node.id].clone();
                let mut reports = node.reports();
                if lossy {
                    reports.retain(|_| self.rng.chance(2, 3));
                    self.old_reports.extend(reports.iter().map(|report| (node.id, report.clone())));
                    self.old_reports.truncate(64);
                }
                let message = self.world.heartbeat_of(&node, core, reports);
                self.send(conn(node.id, core), &message, lossy);
            }
        }
    }

    fn some_node(&mut self) -> NodeId {
        let count = self.world.nodes.len() as u64;
        *self.world.nodes.keys().nth(usize::try_from(self.rng.below(count)).unwrap()).unwrap()
    }

    fn restart_coordinator(&mut self) {
        if self.rng.chance(1, 2) {
            kill(&mut self.rng, &mut self.world);
        } else {
            tear(&mut self.rng, &mut self.world);
            self.world.options.boot = self.world.options.boot.map(|BootId(boot)| BootId(boot + 1));
        }
        if self.rng.chance(1, 3) {
            let options = &mut self.world.options;
            options.node_lease = LEASE * u32::try_from(self.rng.between(1, 3)).unwrap() / 2;
            options.drift_bound = options.node_lease / 20;
        }
        let told = self.oracle.told.last_key_value().map(|(version, _)| *version);
        self.world.restart();
        assert!(told.is_none_or(|told| self.world.config().version >= told), "F2: what was told is forgotten");
        self.settle(true);
    }

    fn event(&mut self) {
        match self.rng.below(20) {
            0 => {
                let id = self.some_node();
                let node = self.world.nodes.get_mut(&id).unwrap();
                node.starts += 1;
                node.up = true;
                if self.rng.chance(1, 3) {
                    node.boot = BootId(node.boot.0 + 1000);
                }
                if self.rng.chance(1, 2) {
                    node.config = None;
                }
            }
            1 | 2 => {
                let id = self.some_node();
                let node = self.world.nodes.get_mut(&id).unwrap();
                node.up = !node.up;
            }
            3 => self.restart_coordinator(),
            4 => self.pass(3_000, true),
            5 if !self.old_reports.is_empty() => {
                let (id, report) = self.rng.pick(&self.old_reports.clone()).clone();
                let message = self.world.heartbeat_of(&self.world.nodes[&id].clone(), 0, vec![report]);
                self.send(conn(id, 0), &message, true);
            }
            6 => self.send(CLIENT, &message::OpenSession { nonce: 1 }, true),
            7 if !self.oracle.clients.is_empty() => self.table_request(),
            8 => {
                let (a, b) = (self.some_node().0, self.some_node().0);
                let pair = (a.min(b), a.max(b));
                if !self.world.cuts.remove(&pair) {
                    self.world.cuts.insert(pair);
                }
            }
            9 => {
                let node = self.some_node().0;
                if !self.world.hidden.remove(&node) {
                    self.world.hidden.insert(node);
                }
            }
            10 | 11 => self.complain(),
            _ => self.pass(100, true),
        }
    }

    fn table_request(&mut self) {
        let client = *self.rng.pick(&self.oracle.clients.clone());
        let name = format!("t{}", self.rng.below(3));
        let command = if self.rng.chance(1, 2) { TableCommand::Create(name) } else { TableCommand::Drop(name) };
        let last = self.table_sequences.entry(client).or_insert(0);
        // A client sends the next request only when the last one was answered. A repeated request must get its first
        // outcome, whatever the state is now.
        if *last == 0 || self.oracle.outcomes.contains_key(&(client, *last)) {
            *last += 1;
        }
        let sequence = *last;
        self.send(CLIENT, &message::TableRequest { client, sequence, command }, true);
    }

    /// A primary reports that a node does not answer, or that its recovery is stuck.
    fn complain(&mut self) {
        let about = self.some_node();
        let Some(shard) = self.world.config().shards.first().cloned() else { return };
        let (id, epoch) = (shard.shard, shard.epoch);
        let report = if self.rng.chance(1, 2) {
            Report::Unanswered { shard: id, epoch, node: about }
        } else {
            Report::Stuck { shard: id, epoch }
        };
        let primary = self.world.nodes[&shard.primary].clone();
        let message = self.world.heartbeat_of(&primary, 0, vec![report]);
        self.send(conn(primary.id, 0), &message, true);
    }

    fn is_whole(&self) -> bool {
        let config = self.world.config();
        let faults = usize::from(config.faults);
        let whole = |shard: &kasha_wire::ShardConfig| {
            let complete = shard.members.iter().filter(|member| member.state == MemberState::Complete).count();
            complete > faults && shard.phase == ShardPhase::Serving && shard.witnesses.len() == faults && !shard.closing
        };
        config.nodes.iter().all(|node| node.alive) && !config.shards.is_empty() && config.shards.iter().all(whole)
    }

    fn heal(&mut self) {
        self.world.nodes.values_mut().for_each(|node| node.up = true);
        self.world.cuts.clear();
        self.world.hidden.clear();
        // A node that did not answer again and again is avoided for long.
        const PASSES_MAX: usize = 10_000;
        for pass in 0..PASSES_MAX {
            if pass > 100 && self.is_whole() {
                break;
            }
            self.pass(100, false);
        }
        let config = self.world.config();
        let faults = usize::from(config.faults);
        assert!(config.nodes.iter().all(|node| node.alive));
        for shard in &config.shards {
            assert_eq!(shard.phase, ShardPhase::Serving, "{shard:?}");
            assert!(
                !shard.closing && shard.witnesses.len() == faults && shard.members.len() == faults + 1,
                "{shard:?}"
            );
            assert!(shard.members.iter().all(|member| member.state == MemberState::Complete), "{shard:?}");
        }
        assert_eq!(config.shards.len(), usize::from(self.world.options.shards));
    }
}

#[test]
fn random_events_keep_every_invariant_and_heal() {
    let (mut fail_overs, mut outcomes) = (0, 0);
    for seed in 0..120 {
        let mut run = Run::new(seed);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..150 {
                run.event();
            }
            run.heal();
        }));
        if let Err(panic) = result {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
        fail_overs += run.oracle.fail_overs;
        outcomes += run.oracle.outcomes.len();
    }
    assert!(fail_overs > 100, "the rare paths were reached: {fail_overs}");
    assert!(outcomes > 50, "the rare paths were reached: {outcomes}");
}

#[test]
fn one_seed_gives_one_run() {
    let digest = |seed| {
        let mut run = Run::new(seed);
        (0..100).for_each(|_| run.event());
        (run.world.coordinator.state().clone(), run.world.disk.durable.clone())
    };
    assert_eq!(digest(5), digest(5));
}
