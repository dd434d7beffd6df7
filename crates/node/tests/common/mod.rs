//! One core driven by hand: frames in, frames out, a disk in memory.
#![allow(dead_code, reason = "each test file uses a part")]

pub mod batches;
pub mod cleaning_load;
pub mod cluster;
pub mod crashes;
pub mod ended;
pub mod stories;
pub mod two_shards;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crashes::Step;
use kasha_machine::{Disk, Effects, Endpoint, FileName, Held, Input, Machine, turn};
use kasha_node::{Node, NodeOptions};
use kasha_types::{
    AckedBelow, ClientId, ClusterId, ClusterTime, ConfigVersion, ConnId, CoreId, Epoch, Incarnation, ListVersion,
    LocalPosition, NodeId, RpcId, Sequence, ShardId, Slot, TableId, Tick,
};
use kasha_wire::body::BodyHead;
use kasha_wire::codec::Bytes;
use kasha_wire::frame::{FRAME_HEADER_BYTES, Kind};
use kasha_wire::hot::{self, AnswerView, Envelope, ReadAnswerView, ReadView, RequestView};
use kasha_wire::message::Holding;
use kasha_wire::{
    AnyMessage, Body, Configuration, Durability, Member, MemberState, Message, NodeInfo, Read, Refused, ShardConfig,
    ShardPhase, TableInfo, Tablet, Update, message,
};

pub const SHARD: ShardId = ShardId(0);
pub const TABLE: TableId = TableId(1);
pub const CONN: Endpoint = Endpoint::Conn(ConnId(1));

/// Files in memory; everything written is there at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Files(pub BTreeMap<FileName, Vec<u8>>);

impl Disk for Files {
    fn list(&self) -> Vec<FileName> {
        self.0.keys().copied().collect()
    }
    fn read(&self, file: FileName) -> std::io::Result<Option<Vec<u8>>> {
        Ok(self.0.get(&file).cloned())
    }
}

#[derive(Default)]
pub struct Shell {
    pub files: Files,
    /// The steps, if somebody wants them.
    pub journal: Option<Vec<Step>>,
    pub commits: Vec<LocalPosition>,
    /// Commits that were fsynced.
    pub fsyncs: u64,
    /// A flush of logs is under way.
    pub flushes_logs: bool,
    pub sent: Vec<(Endpoint, Vec<u8>)>,
    pub stopped: Option<String>,
}

impl Shell {
    fn note(&mut self, step: impl FnOnce() -> Step) {
        if let Some(journal) = &mut self.journal {
            journal.push(step());
        }
    }
}

impl turn::Shell for Shell {
    fn send(&mut self, to: Endpoint, head: &[u8], tail: &[u8]) {
        let frame = [head, tail].concat();
        if let (Endpoint::Conn(to), Some(journal)) = (to, &mut self.journal) {
            journal.extend(Heard::of(&frame).map(|what| Step::Told { to, what }));
        }
        self.sent.push((to, frame));
    }
    fn write(&mut self, file: FileName, offset: u64, bytes: &[u8]) {
        self.note(|| Step::Write { file, offset, bytes: bytes.to_vec() });
        let content = self.files.0.entry(file).or_default();
        let end = offset as usize + bytes.len();
        content.resize(content.len().max(end), 0);
        content[offset as usize..end].copy_from_slice(bytes);
    }
    fn replace(&mut self, file: FileName, bytes: &[u8]) {
        self.note(|| Step::Replace { file, bytes: bytes.to_vec() });
        self.files.0.insert(file, bytes.to_vec());
    }
    fn truncate(&mut self, file: FileName, len: u64) {
        self.note(|| Step::Truncate { file, len });
        self.files.0.entry(file).or_default().resize(len as usize, 0);
    }
    fn remove(&mut self, file: FileName) {
        self.note(|| Step::Remove { file });
        self.files.0.remove(&file);
    }
    fn commit(&mut self, to: LocalPosition, fsync: bool) {
        self.note(|| Step::Commit { fsync });
        self.fsyncs += u64::from(fsync);
        self.commits.push(to);
    }
    fn flush(&mut self) {}
    fn flush_logs(&mut self) {
        assert!(!std::mem::replace(&mut self.flushes_logs, true), "one at a time");
    }
    fn route(&mut self, _: Endpoint, _: SocketAddr) {}
    fn disconnect(&mut self, _: Endpoint) {}
    fn stop(&mut self, why: &str) {
        self.stopped = Some(why.to_owned());
    }
}

/// What a client hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    Answer { synced: bool, result: Vec<u8> },
    Refused(kasha_wire::Refusal),
    Read(Vec<u8>),
    ReadRefused,
}

impl Heard {
    /// What a frame to a client says, if it answers a request or a read.
    pub fn of(frame: &[u8]) -> Option<Self> {
        let payload = &frame[FRAME_HEADER_BYTES..];
        Some(match Kind::from_number(frame[12])? {
            Kind::Answer => {
                let view = AnswerView::decode(payload).expect("an answer");
                Self::Answer { synced: view.synced, result: view.result.to_vec() }
            }
            Kind::Refuse => Self::Refused(hot::decode_small::<Refused>(payload).expect("a refusal").why),
            Kind::ReadAnswer => Self::Read(ReadAnswerView::decode(payload).expect("an answer").result.to_vec()),
            Kind::ReadRefuse => Self::ReadRefused,
            _ => return None,
        })
    }
}

pub fn address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1))
}

/// A cluster of one shard whose primary is node 1.
pub fn configuration(version: u64, epoch: u32, phase: ShardPhase) -> Configuration {
    let node = |node| NodeInfo { node: NodeId(node), incarnation: Incarnation(1), cores: vec![address()], alive: true };
    let member = Member { node: NodeId(1), state: MemberState::Complete, since: ConfigVersion(1) };
    Configuration {
        cluster: ClusterId(1),
        version: ConfigVersion(version),
        faults: 0,
        durability: Durability::Replicated,
        min_backups: 0,
        nodes_wanted: 1,
        coordinator: address(),
        group: Vec::new(),
        nodes: vec![node(1), node(2)],
        shards: vec![ShardConfig {
            shard: SHARD,
            epoch: Epoch(epoch),
            primary: NodeId(1),
            phase,
            members: vec![member],
            members_since: ConfigVersion(0),
            recover_from: Vec::new(),
            witnesses: Vec::new(),
            list: ListVersion(1),
            closing: false,
            served: None,
        }],
        tables: vec![TableInfo { table: TABLE, name: "default".into() }],
        tablets: vec![Tablet { table: TABLE, first: Slot(0), last: Slot(16383), shard: SHARD }],
    }
}

pub struct Core {
    pub node: Node,
    pub shell: Shell,
    pub now: Tick,
    pub effects: Effects,
    pub held: Held,
    pub epoch: Epoch,
    pub memory_max_bytes: u64,
    /// The disk is slow: commits wait in the shell until it is not.
    pub slow_disk: bool,
    /// The same of flushes of logs.
    pub slow_flushes: bool,
}

impl Core {
    pub fn start(files: Files, memory_max_bytes: u64) -> Self {
        Self::start_with(files, memory_max_bytes, |_| ())
    }

    pub fn start_with(files: Files, memory_max_bytes: u64, change: impl FnOnce(&mut NodeOptions)) -> Self {
        let mut options =
            NodeOptions::new(ClusterId(1), CoreId { node: NodeId(1), core: 0 }, vec![address()], address());
        options.replica_memory_max_bytes = memory_max_bytes;
        // A heartbeat of 250 ms, and twice a lease of eight: what time in these tests is counted in.
        (options.heartbeat, options.patience) = (Duration::from_millis(250), Duration::from_secs(4));
        if memory_max_bytes < 1 << 28 {
            options.segment_bytes = 1 << 20; // many segments in a small memory
        }
        change(&mut options);
        let mut effects = Effects::new();
        let node = Node::start(options, &files, Tick(1), &mut effects).expect("its own files");
        let shell = Shell { files, ..Shell::default() };
        let (now, held, epoch) = (Tick(1_000_000_000), Held::new(), Epoch(1));
        Self { node, shell, now, effects, held, epoch, memory_max_bytes, slow_disk: false, slow_flushes: false }
    }

    /// A core that serves, alone.
    pub fn serving() -> Self {
        Self::serving_with(1 << 30)
    }

    pub fn serving_with(memory_max_bytes: u64) -> Self {
        Self::serving_as(memory_max_bytes, |_| ())
    }

    pub fn serving_as(memory_max_bytes: u64, change: impl FnOnce(&mut NodeOptions)) -> Self {
        let mut core = Self::start_with(Files::default(), memory_max_bytes, change);
        core.message(message::ConfigurationIs {
            level: kasha_wire::Level::FIRST,
            unix_origin: kasha_wire::Later::absent(),
            configuration: configuration(1, 1, ShardPhase::Recovering),
        });
        core.message(message::ConfigurationIs {
            level: kasha_wire::Level::FIRST,
            unix_origin: kasha_wire::Later::absent(),
            configuration: configuration(2, 1, ShardPhase::Serving),
        });
        core.heartbeat_answered();
        core
    }

    pub fn heartbeat_answered(&mut self) {
        self.coordinator_says_it_is(1000);
        self.shell.sent.clear();
    }

    /// The coordinator answers a heartbeat that is sent now.
    pub fn coordinator_says_it_is(&mut self, cluster_time: u64) {
        let (sent, clients_below, cluster_time) = (self.now, ClientId(100), ClusterTime(cluster_time));
        self.message(message::HeartbeatAnswer {
            sent,
            lease_millis: 60_000,
            cluster_time,
            clients_below,
            view: kasha_types::ViewNumber(1),
        });
    }

    pub fn frame(&mut self, kind: Kind, frame: &[u8]) {
        self.frame_from(CONN, kind, frame);
    }

    pub fn frame_from(&mut self, from: Endpoint, kind: Kind, frame: &[u8]) {
        self.input(from, kind as u8, &frame[FRAME_HEADER_BYTES..]);
    }

    /// A frame of any kind, also of one that there is not.
    pub fn input(&mut self, from: Endpoint, kind: u8, payload: &[u8]) {
        self.node.step(self.now, Input::Frame { from, kind, payload }, &mut self.effects);
        self.finish();
    }

    pub fn tick(&mut self, millis: u64) {
        self.now = Tick(self.now.0 + millis * 1_000_000);
        self.node.step(self.now, Input::Tick, &mut self.effects);
        self.finish();
    }

    /// Ends turns until the disk has nothing more to say.
    pub fn finish(&mut self) {
        for _ in 0..8 {
            turn::finish(self.now, &mut self.node, &mut self.effects, &mut self.held, &mut self.shell);
            self.node.assert_invariants();
            if !self.slow_flushes && std::mem::take(&mut self.shell.flushes_logs) {
                self.node.step(self.now, Input::LogsFlushed, &mut self.effects);
            }
            if self.slow_disk {
                continue;
            }
            for commit in std::mem::take(&mut self.shell.commits) {
                self.node.step(self.now, Input::Durable(commit), &mut self.effects);
            }
        }
    }

    /// A message from the coordinator.
    pub fn message(&mut self, message: impl Message) {
        self.message_from(Endpoint::Coordinator, message);
    }

    pub fn message_from(&mut self, from: Endpoint, message: impl Message) {
        let mut frame = Vec::new();
        message.encode(&mut frame);
        self.frame_from(from, Kind::Message, &frame);
    }

    pub fn body(rpc: (u64, u64), ack: u64, key: Option<&[u8]>, update: &Update<'_>) -> Vec<u8> {
        Self::body_with(rpc, ack, key, update, |_| ())
    }

    /// A body with another head than usual.
    pub fn body_with(
        rpc: (u64, u64),
        ack: u64,
        key: Option<&[u8]>,
        update: &Update<'_>,
        change: impl FnOnce(&mut BodyHead),
    ) -> Vec<u8> {
        let mut head = BodyHead {
            rpc: RpcId { client: ClientId(rpc.0), sequence: Sequence(rpc.1) },
            acknowledgement: AckedBelow(ack),
            lease_expiry: ClusterTime(200_000),
            not_after: ClusterTime(if key.is_some() { 100_000 } else { 0 }),
            begun: ClusterTime(0),
            table: match update {
                Update::Transaction { parts } => parts.first_table().expect("one part at least"),
                _ => TABLE,
            },
        };
        change(&mut head);
        let mut body = Vec::new();
        Body::encode(&head, key, update, &mut body);
        body
    }

    /// Sends a body and returns what the client hears.
    pub fn send(&mut self, kind: Kind, body: &[u8]) -> Option<Heard> {
        let envelope = Envelope {
            shard: SHARD,
            epoch: self.epoch,
            list: ListVersion::NONE,
            cluster_time: ClusterTime(0),
            attempt: 1,
            turn: None,
        };
        let mut frame = Vec::new();
        RequestView::encode(kind, &envelope, body, &mut frame);
        self.shell.sent.clear();
        self.frame(kind, &frame);
        self.heard()
    }

    pub fn update(&mut self, rpc: (u64, u64), ack: u64, update: &Update<'_>) -> Option<Heard> {
        self.send(Kind::Request, &Self::body(rpc, ack, None, update))
    }

    pub fn get(&mut self, key: &[u8]) -> Option<Heard> {
        let read = Read::Get { key };
        let mut arguments = Vec::new();
        read.encode_arguments(&mut arguments);
        let envelope = Envelope {
            shard: SHARD,
            epoch: self.epoch,
            list: ListVersion::NONE,
            cluster_time: ClusterTime(0),
            attempt: 1,
            turn: None,
        };
        let mut frame = Vec::new();
        ReadView { envelope, read_id: 1, table: TABLE, code: read.code(), arguments: &arguments }.encode(&mut frame);
        self.shell.sent.clear();
        self.frame(Kind::Read, &frame);
        self.heard()
    }

    /// Whether a goodbye was the last thing that was sent to whom we are.
    pub fn said_goodbye(&self) -> bool {
        let Some((CONN, frame)) = self.shell.sent.last() else { return false };
        matches!(AnyMessage::decode(&frame[FRAME_HEADER_BYTES..]), Ok(AnyMessage::Goodbye(_)))
    }

    pub fn heard(&self) -> Option<Heard> {
        self.shell.sent.iter().filter(|(to, _)| *to == CONN).find_map(|(_, frame)| Heard::of(frame))
    }

    pub fn witness_holds(&mut self, epoch: u32, bodies: &[Vec<u8>]) {
        self.witness_says(2, epoch, Holding::Sure, bodies);
    }

    pub fn witness_says(&mut self, node: u16, epoch: u32, holding: Holding, bodies: &[Vec<u8>]) {
        self.message(message::WitnessHolds {
            shard: SHARD,
            list: ListVersion(1),
            epoch: Epoch(epoch),
            node: NodeId(node),
            holding,
            requests: bodies.iter().cloned().map(Bytes).collect(),
        });
    }
}
