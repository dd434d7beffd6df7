//! A coordinator in virtual time on an in-memory disk, and nodes that only send heartbeats and reports.
//!
//! Tests drive the machine through its interface: time passes by [`World::run`], and every frame it sends is kept.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::Deref;
use std::time::{Duration, Instant};

use kasha_coordinator::{Command, Coordinator, CoordinatorOptions, StartError, State};
use kasha_machine::{Disk, Effects, Endpoint, FileName, Gate, Held, Input, Machine, turn};
use kasha_types::{
    BootId, ClientId, ClusterId, ClusterTime, ConfigVersion, ConnId, CoreId, Epoch, Incarnation, ListVersion,
    LocalPosition, LogSlice, NodeId, ShardId, Tick, UnixMillis,
};
use kasha_viewstamped::journal::{self, Journal, Owner, Step};
use kasha_viewstamped::{Entry, MemberId, Record, Stored};
use kasha_wire::message::{ConfigurationIs, Heartbeat, Knowledge, Report, ShardKnowledge};
use kasha_wire::{
    AnyMessage, Configuration, FRAME_HEADER_BYTES, FrameHeader, Kind, Later, MemberState, Message, ShardConfig,
    ShardPhase, Wire,
};

pub const LEASE: Duration = Duration::from_millis(1000);
pub const STEP_MILLIS: u64 = 100;

pub type Files = BTreeMap<FileName, Vec<u8>>;

#[derive(Clone, Debug)]
pub enum Change {
    Write(FileName, u64, Vec<u8>),
    Truncate(FileName, u64),
    Remove(FileName),
}

pub fn apply_change(files: &mut Files, change: &Change) {
    match change {
        Change::Write(file, offset, bytes) => {
            let content = files.entry(*file).or_default();
            let (start, end) = (usize::try_from(*offset).unwrap(), usize::try_from(*offset).unwrap() + bytes.len());
            content.resize(content.len().max(end), 0);
            content[start..end].copy_from_slice(bytes);
        }
        Change::Truncate(file, len) => {
            if let Some(content) = files.get_mut(file) {
                content.truncate(usize::try_from(*len).unwrap());
            }
        }
        Change::Remove(file) => {
            files.remove(file);
        }
    }
}

/// The first file of the journal that is written: that of the odd laps.
pub const FIRST: FileName = FileName::Journal(1);
/// The other one.
pub const SECOND: FileName = FileName::Journal(0);

/// Whose journals these tests write, where the machine does not tell its boot.
pub const OWNER: Owner = Owner { group: 77, member: MemberId(1), boot: 0, file_bytes: 16 * 1024 };

/// The journal in these files, of whichever member.
pub fn journal(files: &Files) -> (Option<Stored>, Journal) {
    let file = |name| files.get(&name).cloned().unwrap_or_default();
    let (even, odd) = (file(SECOND), file(FIRST));
    let member = journal::member_of(OWNER.group, &even, &odd).unwrap_or(OWNER.member);
    journal::read(Owner { member, ..OWNER }, &even, &odd).unwrap()
}

/// Files with another log in their journal.
pub fn rewritten(files: &Files, change: impl FnOnce(&mut Stored)) -> Files {
    let (stored, mut journal) = journal(files);
    let mut stored = stored.unwrap();
    change(&mut stored);
    let mut files = files.clone();
    for step in journal.write(&Record::Whole(stored)) {
        if let Step::Write { file, offset, bytes } = step {
            let name = if file == journal::File::Odd { FIRST } else { SECOND };
            apply_change(&mut files, &Change::Write(name, offset, bytes));
        }
    }
    files
}

/// Files with these commands behind the last operation.
pub fn with_commands(files: &Files, commands: &[Command]) -> Files {
    rewritten(files, |stored| {
        stored.entries.extend(commands.iter().map(|command| {
            let mut operation = Vec::new();
            command.put(&mut operation);
            Entry::Operation(operation)
        }));
    })
}

/// The content of a file, without the zeros at its end.
pub fn used(bytes: &[u8]) -> &[u8] {
    let bytes = bytes.strip_prefix(b"KASHAOLD").unwrap_or(bytes);
    &bytes[..bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)]
}

/// What the coordinator's files hold.
pub fn stored(files: &Files) -> Option<State> {
    let disk = MemoryDisk { durable: files.clone(), ..MemoryDisk::default() };
    Coordinator::stored(&disk, ClusterId(77)).unwrap()
}

/// An in-memory disk: what is durable, and what was written since.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    pub durable: Files,
    pub since: Vec<Change>,
    pub commits: Vec<(LocalPosition, usize)>,
    pub sent: Vec<(Endpoint, AnyMessage)>,
    pub disconnected: BTreeSet<Endpoint>,
    pub routes: BTreeMap<Endpoint, SocketAddr>,
    /// Whether the machine asks what the clock on the wall shows.
    pub wants_clock: bool,
}

impl Disk for MemoryDisk {
    fn list(&self) -> Vec<FileName> {
        self.durable.keys().copied().collect()
    }
    fn read(&self, file: FileName) -> std::io::Result<Option<Vec<u8>>> {
        Ok(self.durable.get(&file).cloned())
    }
}

impl turn::Shell for MemoryDisk {
    fn send(&mut self, to: Endpoint, head: &[u8], tail: &[u8]) {
        assert!(tail.is_empty());
        let header = FrameHeader::parse(head).unwrap().unwrap();
        assert_eq!(header.kind, Kind::Message as u8);
        header.check(head).unwrap();
        self.sent.push((to, AnyMessage::decode(&head[FRAME_HEADER_BYTES..]).unwrap()));
    }
    fn write(&mut self, file: FileName, offset: u64, bytes: &[u8]) {
        self.since.push(Change::Write(file, offset, bytes.to_vec()));
    }
    fn replace(&mut self, _: FileName, _: &[u8]) {
        unreachable!()
    }
    fn truncate(&mut self, file: FileName, len: u64) {
        self.since.push(Change::Truncate(file, len));
    }
    fn remove(&mut self, file: FileName) {
        self.since.push(Change::Remove(file));
    }
    fn commit(&mut self, to: LocalPosition, fsync: bool) {
        assert!(fsync, "R5.3: coordinator state is fsynced in every mode");
        self.commits.push((to, self.since.len()));
    }
    fn flush(&mut self) {}
    fn flush_logs(&mut self) {}
    fn read_clock(&mut self) {
        self.wants_clock = true;
    }
    fn route(&mut self, to: Endpoint, address: SocketAddr) {
        self.routes.insert(to, address);
    }
    fn disconnect(&mut self, to: Endpoint) {
        self.disconnected.insert(to);
    }
    fn stop(&mut self, why: &str) {
        panic!("stopped: {why}");
    }
}

/// Connections of other members of a group begin with this number.
pub const MEMBERS: u64 = 1_000_000;

/// A node that obeys each configuration, as far as the coordinator can see.
#[derive(Clone, Debug)]
pub struct FakeNode {
    pub id: NodeId,
    pub starts: u32,
    pub identity: u32,
    pub boot: BootId,
    pub cores: u8,
    pub up: bool,
    pub config: Option<Configuration>,
}

impl FakeNode {
    pub fn incarnation(&self) -> Incarnation {
        Incarnation::new(self.starts, self.identity)
    }
    pub fn have(&self) -> ConfigVersion {
        self.config.as_ref().map_or(ConfigVersion(0), |config| config.version)
    }
    pub fn addresses(&self) -> Vec<SocketAddr> {
        (0..self.cores)
            .map(|core| SocketAddr::from(([10, 0, 0, u8::try_from(self.id.0).unwrap()], 7000 + u16::from(core))))
            .collect()
    }
    /// What the folder of a core that obeyed the configuration knows.
    pub fn knowledge(&self, core: u8) -> Knowledge {
        let of_core = |shard: &&ShardConfig| self.cores > 0 && shard.shard.0 % u16::from(self.cores) == u16::from(core);
        let known = |shard: &ShardConfig| {
            let is_member = shard.member(self.id).is_some();
            let witnesses = shard.witnesses.contains(&self.id);
            (is_member || witnesses).then_some(ShardKnowledge {
                shard: shard.shard,
                promised: if is_member { shard.epoch } else { Epoch(0) },
                list: if witnesses { shard.list } else { ListVersion(0) },
                set: if is_member { shard.members_since } else { ConfigVersion(0) },
            })
        };
        let shards = self.config.iter().flat_map(|config| &config.shards).filter(of_core).filter_map(known);
        Knowledge { configuration: self.have(), clients_below: ClientId(0), shards: shards.collect() }
    }
    /// The reports that a primary would send about the configuration that it knows.
    pub fn reports(&self) -> Vec<Report> {
        let mut reports = Vec::new();
        let mine = |shard: &&ShardConfig| shard.primary == self.id;
        for shard in self.config.iter().flat_map(|config| &config.shards).filter(mine) {
            let (id, epoch) = (shard.shard, shard.epoch);
            match shard.phase {
                ShardPhase::Recovering => reports.push(Report::Recovered { shard: id, epoch }),
                ShardPhase::Serving if shard.closing => {
                    reports.push(Report::ListClosed { shard: id, epoch, list: shard.list });
                }
                ShardPhase::Serving => {}
            }
            for member in shard.members.iter().filter(|member| member.state == MemberState::Joining) {
                reports.push(Report::Copied { shard: id, epoch, node: member.node });
            }
        }
        reports
    }
}

pub fn conn(node: NodeId, core: u8) -> Endpoint {
    Endpoint::Conn(ConnId(u64::from(node.0) * 100 + u64::from(core)))
}

pub const CLIENT: Endpoint = Endpoint::Conn(ConnId(99_999));

pub fn options(nodes: u16, shards: u16, faults: u8) -> CoordinatorOptions {
    let mut options =
        CoordinatorOptions::new(ClusterId(77), nodes, shards, faults, SocketAddr::from(([10, 0, 1, 1], 7000)));
    options.trusts_connections = false;
    (options.node_lease, options.patience) = (LEASE, LEASE * 2);
    options.drift_bound = LEASE / 20;
    options.client_lease_millis = 5_000;
    options.journal_bytes = 16 * 1024;
    options
}

/// A coordinator, and how long its longest step has taken.
pub struct Timed {
    coordinator: Coordinator,
    pub longest: Duration,
}

impl Timed {
    #[expect(clippy::disallowed_methods, reason = "it measures, and nothing depends on it")]
    fn timed<T>(&mut self, call: impl FnOnce(&mut Coordinator) -> T) -> T {
        let from = Instant::now();
        let result = call(&mut self.coordinator);
        self.longest = self.longest.max(from.elapsed());
        result
    }
}

impl Deref for Timed {
    type Target = Coordinator;
    fn deref(&self) -> &Coordinator {
        &self.coordinator
    }
}

impl Machine for Timed {
    fn step(&mut self, now: Tick, input: Input<'_>, out: &mut Effects) {
        self.timed(|coordinator| coordinator.step(now, input, out));
    }
    fn end_turn(&mut self, now: Tick, out: &mut Effects) {
        self.timed(|coordinator| coordinator.end_turn(now, out));
    }
    fn next_deadline(&self) -> Option<Tick> {
        self.coordinator.next_deadline()
    }
    fn is_open(&self, gate: Gate) -> bool {
        self.coordinator.is_open(gate)
    }
    fn log_bytes(&self, slice: LogSlice) -> &[u8] {
        self.coordinator.log_bytes(slice)
    }
    fn assert_invariants(&self) {
        self.coordinator.assert_invariants();
    }
}

/// Some day.
pub const WALL: u64 = 1_700_000_000_000;

pub struct World {
    pub options: CoordinatorOptions,
    pub coordinator: Timed,
    pub disk: MemoryDisk,
    pub held: Held,
    pub effects: Effects,
    pub now: Tick,
    /// Whether commits become durable at once.
    pub fast_disk: bool,
    /// Whether nodes send reports.
    pub reporting: bool,
    pub nodes: BTreeMap<NodeId, FakeNode>,
    /// Pairs of nodes that do not hear each other, the smaller one first.
    pub cuts: BTreeSet<(u16, u16)>,
    /// Nodes that are up, and that the coordinator does not hear.
    pub hidden: BTreeSet<u16>,
    /// Everything sent since it was last taken.
    pub sent: Vec<(Endpoint, AnyMessage)>,
    /// What the clock on the wall showed when that of the boot showed 0; none if there is no such clock.
    pub wall: Option<u64>,
    /// What each configuration was told with.
    pub told_origins: BTreeMap<ConfigVersion, Later<2, Option<UnixMillis>>>,
}

impl World {
    pub fn try_new(options: CoordinatorOptions, disk: MemoryDisk, now: Tick) -> Result<Self, StartError> {
        Self::try_with(options, disk, now, true)
    }

    pub fn try_with(
        options: CoordinatorOptions,
        disk: MemoryDisk,
        now: Tick,
        fast_disk: bool,
    ) -> Result<Self, StartError> {
        let mut effects = Effects::new();
        let coordinator = Coordinator::start(options.clone(), &disk, now, &mut effects)?;
        let coordinator = Timed { coordinator, longest: Duration::ZERO };
        let mut world = Self {
            options,
            coordinator,
            disk,
            held: Held::new(),
            effects,
            now,
            fast_disk,
            reporting: true,
            nodes: BTreeMap::new(),
            cuts: BTreeSet::new(),
            hidden: BTreeSet::new(),
            sent: Vec::new(),
            wall: Some(WALL),
            told_origins: BTreeMap::new(),
        };
        world.finish();
        Ok(world)
    }

    pub fn new(options: CoordinatorOptions) -> Self {
        Self::try_new(options, MemoryDisk::default(), Tick(1_000_000_000)).unwrap()
    }

    /// Nodes 1..=n with one core each, placed and serving.
    pub fn serving(nodes: u16, shards: u16, faults: u8) -> Self {
        let mut world = Self::new(options(nodes, shards, faults));
        for id in 1..=nodes {
            world.add_node(id, 1);
        }
        world.run(500);
        while world.coordinator.state().unix_origin().is_none() {
            world.run(100);
        }
        world.run(100); // a configuration has it, which all have heard of
        assert!(world.config().shards.iter().all(|shard| shard.phase == ShardPhase::Serving));
        world
    }

    pub fn add_node(&mut self, id: u16, cores: u8) {
        let node = FakeNode {
            id: NodeId(id),
            starts: 1,
            identity: 1000 + u32::from(id),
            boot: BootId(u128::from(id)),
            cores,
            up: true,
            config: None,
        };
        self.nodes.insert(NodeId(id), node);
    }

    pub fn node(&mut self, id: u16) -> &mut FakeNode {
        self.nodes.get_mut(&NodeId(id)).unwrap()
    }

    /// The committed configuration.
    pub fn config(&self) -> &Configuration {
        self.coordinator.configuration()
    }

    /// The configuration with what is decided and not committed yet.
    pub fn decided(&self) -> &Configuration {
        self.coordinator.decided().configuration()
    }

    pub fn shard(&self, shard: u16) -> &ShardConfig {
        self.config().shard(ShardId(shard)).unwrap()
    }

    fn finish(&mut self) {
        turn::finish(self.now, &mut self.coordinator, &mut self.effects, &mut self.held, &mut self.disk);
        self.coordinator.assert_invariants();
        while self.fast_disk && !self.disk.commits.is_empty() {
            self.fsync();
        }
        if std::mem::take(&mut self.disk.wants_clock)
            && let Some(wall) = self.wall
        {
            let unix = UnixMillis(wall + self.now.0 / 1_000_000);
            self.coordinator.step(self.now, Input::UnixTime(unix), &mut self.effects);
        }
        self.deliver();
    }

    /// The oldest commit in flight becomes durable.
    pub fn fsync(&mut self) {
        let (position, changes) = self.disk.commits.remove(0);
        for change in self.disk.since.drain(..changes) {
            apply_change(&mut self.disk.durable, &change);
        }
        self.disk.commits.iter_mut().for_each(|(_, later)| *later -= changes);
        self.coordinator.step(self.now, Input::Durable(position), &mut self.effects);
        turn::finish(self.now, &mut self.coordinator, &mut self.effects, &mut self.held, &mut self.disk);
        self.coordinator.assert_invariants();
    }

    /// Delivers configurations to nodes; everything that was sent is remembered.
    pub fn deliver(&mut self) {
        for (to, message) in std::mem::take(&mut self.disk.sent) {
            if let AnyMessage::ConfigurationIs(ConfigurationIs { configuration, unix_origin, .. }) = &message {
                self.told_origins.insert(configuration.version, unix_origin.clone());
            }
            if let (Endpoint::Conn(ConnId(conn)), AnyMessage::ConfigurationIs(ConfigurationIs { configuration, .. })) =
                (to, &message)
                && conn < MEMBERS
            {
                let id = NodeId(u16::try_from(conn / 100).unwrap());
                if let Some(node) =
                    self.nodes.get_mut(&id).filter(|node| node.up && node.have() < configuration.version)
                {
                    node.config = Some(configuration.clone());
                }
            }
            self.sent.push((to, message));
        }
    }

    pub fn send(&mut self, from: Endpoint, message: &impl Message) {
        let mut frame = Vec::new();
        message.encode(&mut frame);
        let input = Input::Frame { from, kind: Kind::Message as u8, payload: &frame[FRAME_HEADER_BYTES..] };
        self.coordinator.step(self.now, input, &mut self.effects);
        self.finish();
    }

    /// The same at a member of a group, at this moment.
    pub fn send_at(&mut self, now: Tick, from: Endpoint, message: &impl Message) {
        self.now = now;
        self.send(from, message);
    }

    /// Sends a message, and returns what came back to `from`.
    pub fn ask(&mut self, from: Endpoint, message: &impl Message) -> Vec<AnyMessage> {
        self.sent.clear();
        self.send(from, message);
        self.answers(from)
    }

    pub fn answers(&mut self, to: Endpoint) -> Vec<AnyMessage> {
        std::mem::take(&mut self.sent).into_iter().filter(|(end, _)| *end == to).map(|(_, message)| message).collect()
    }

    fn heard_by(&self, node: NodeId) -> Vec<NodeId> {
        let hears = |&other: &NodeId| {
            let pair = (node.0.min(other.0), node.0.max(other.0));
            other != node && self.nodes[&other].up && !self.cuts.contains(&pair)
        };
        self.nodes.keys().copied().filter(hears).collect()
    }

    pub fn heartbeat_of(&self, node: &FakeNode, core: u8, reports: Vec<Report>) -> Heartbeat {
        Heartbeat {
            core: CoreId { node: node.id, core },
            incarnation: node.incarnation(),
            boot: node.boot,
            sent: self.now,
            answered: self.now,
            have: node.have(),
            cluster_time: ClusterTime(0),
            addresses: node.addresses(),
            heard: self.heard_by(node.id),
            reports,
            knows: node.knowledge(core),
            control: None,
            levels: kasha_wire::Levels::OURS,
        }
    }

    /// Sends one heartbeat. Returns the granted lease in milliseconds, if there was an answer.
    pub fn beat(&mut self, id: u16, core: u8, reports: Vec<Report>) -> Option<u64> {
        let message = self.heartbeat_of(&self.nodes[&NodeId(id)].clone(), core, reports);
        let answers = self.ask(conn(NodeId(id), core), &message);
        answers.iter().rev().find_map(|message| match message {
            AnyMessage::HeartbeatAnswer(answer) => Some(answer.lease_millis),
            _ => None,
        })
    }

    pub fn beat_all(&mut self) {
        let up: Vec<(u16, u8)> = self
            .nodes
            .values()
            .filter(|node| node.up && !self.hidden.contains(&node.id.0))
            .map(|node| (node.id.0, node.cores))
            .collect();
        for (id, cores) in up {
            for core in 0..cores {
                let reports = if self.reporting { self.nodes[&NodeId(id)].reports() } else { Vec::new() };
                self.beat(id, core, reports);
            }
        }
    }

    pub fn tick(&mut self, millis: u64) {
        self.now = self.now.after(Duration::from_millis(millis));
        self.coordinator.step(self.now, Input::Tick, &mut self.effects);
        self.finish();
    }

    /// Lets time pass; nodes that are up send heartbeats.
    pub fn run(&mut self, millis: u64) {
        for _ in 0..millis / STEP_MILLIS {
            self.tick(STEP_MILLIS);
            self.beat_all();
        }
    }

    /// The coordinator's process crashes and its machine loses power: only what is durable is left.
    pub fn restart(&mut self) {
        self.restart_from(self.disk.durable.clone());
    }

    /// The same, and its folder holds these files.
    pub fn restart_from(&mut self, files: Files) {
        let disk = MemoryDisk { durable: files, ..MemoryDisk::default() };
        let mut next = Self::try_with(self.options.clone(), disk, self.now, self.fast_disk).unwrap();
        std::mem::swap(&mut next.nodes, &mut self.nodes);
        std::mem::swap(&mut next.cuts, &mut self.cuts);
        std::mem::swap(&mut next.hidden, &mut self.hidden);
        next.reporting = self.reporting;
        *self = next;
    }

    /// The same, and the next heartbeats of all nodes come: the coordinator has listened (R9.13).
    pub fn restart_and_listen(&mut self) {
        self.restart();
        self.beat_all();
        self.tick(0);
    }

    pub fn members(&self, shard: u16) -> Vec<(u16, MemberState)> {
        self.shard(shard).members.iter().map(|member| (member.node.0, member.state)).collect()
    }

    pub fn summary(&self, shard: u16) -> (Epoch, NodeId, ShardPhase, ListVersion) {
        let shard = self.shard(shard);
        (shard.epoch, shard.primary, shard.phase, shard.list)
    }
}
