//! One core driven by hand: frames in, frames out, a disk in memory.
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::BTreeMap;
use std::net::SocketAddr;

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
use kasha_wire::{
    Body, Configuration, Durability, Member, MemberState, Message, NodeInfo, Read, Refused, ShardConfig, ShardPhase,
    TableInfo, Tablet, Update,
};

pub const SHARD: ShardId = ShardId(0);
pub const TABLE: TableId = TableId(1);
pub const CONN: Endpoint = Endpoint::Conn(ConnId(1));

/// Files in memory; everything written is there at once.
#[derive(Clone, Debug, Default)]
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
    pub commits: Vec<LocalPosition>,
    pub sent: Vec<(Endpoint, Vec<u8>)>,
    pub stopped: Option<String>,
}

impl turn::Shell for Shell {
    fn send(&mut self, to: Endpoint, head: &[u8], tail: &[u8]) {
        self.sent.push((to, [head, tail].concat()));
    }
    fn write(&mut self, file: FileName, offset: u64, bytes: &[u8]) {
        let content = self.files.0.entry(file).or_default();
        let end = offset as usize + bytes.len();
        content.resize(content.len().max(end), 0);
        content[offset as usize..end].copy_from_slice(bytes);
    }
    fn replace(&mut self, file: FileName, bytes: &[u8]) {
        self.files.0.insert(file, bytes.to_vec());
    }
    fn truncate(&mut self, file: FileName, len: u64) {
        self.files.0.entry(file).or_default().resize(len as usize, 0);
    }
    fn remove(&mut self, file: FileName) {
        self.files.0.remove(&file);
    }
    fn commit(&mut self, to: LocalPosition, _: bool) {
        self.commits.push(to);
    }
    fn flush(&mut self) {}
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
        coordinator: address(),
        nodes: vec![node(1), node(2)],
        shards: vec![ShardConfig {
            shard: SHARD,
            epoch: Epoch(epoch),
            primary: NodeId(1),
            phase,
            members: vec![member],
            recover_from: Vec::new(),
            witnesses: Vec::new(),
            list: ListVersion(1),
            closing: false,
        }],
        tables: vec![TableInfo { table: TABLE, name: "default".into() }],
        tablets: vec![Tablet { table: TABLE, first: Slot(0), last: Slot(16383), shard: SHARD }],
    }
}

pub struct Core {
    pub node: Node,
    pub shell: Shell,
    pub now: Tick,
    effects: Effects,
    held: Held,
    pub epoch: Epoch,
    pub memory_max_bytes: u64,
}

impl Core {
    pub fn start(files: Files, memory_max_bytes: u64) -> Self {
        let mut options =
            NodeOptions::new(ClusterId(1), CoreId { node: NodeId(1), core: 0 }, vec![address()], address());
        options.replica_memory_max_bytes = memory_max_bytes;
        if memory_max_bytes < 1 << 28 {
            options.segment_bytes = 1 << 20; // many segments in a small memory
        }
        let mut effects = Effects::new();
        let node = Node::start(options, &files, Tick(1), &mut effects).expect("its own files");
        let shell = Shell { files, ..Shell::default() };
        Self { node, shell, now: Tick(1_000_000_000), effects, held: Held::new(), epoch: Epoch(1), memory_max_bytes }
    }

    /// A core that serves, alone.
    pub fn serving() -> Self {
        Self::serving_with(1 << 30)
    }

    pub fn serving_with(memory_max_bytes: u64) -> Self {
        let mut core = Self::start(Files::default(), memory_max_bytes);
        core.message(Message::ConfigurationIs { configuration: configuration(1, 1, ShardPhase::Recovering) });
        core.message(Message::ConfigurationIs { configuration: configuration(2, 1, ShardPhase::Serving) });
        core.heartbeat_answered();
        core
    }

    pub fn heartbeat_answered(&mut self) {
        let (sent, clients_below) = (self.now, ClientId(100));
        let cluster_time = ClusterTime(1000);
        self.message(Message::HeartbeatAnswer { sent, lease_millis: 60_000, cluster_time, clients_below });
        self.shell.sent.clear();
    }

    pub fn frame(&mut self, kind: Kind, frame: &[u8]) {
        let payload = &frame[FRAME_HEADER_BYTES..];
        let input = Input::Frame { from: CONN, kind: kind as u8, payload };
        self.node.step(self.now, input, &mut self.effects);
        self.finish();
    }

    pub fn tick(&mut self, millis: u64) {
        self.now = Tick(self.now.0 + millis * 1_000_000);
        self.node.step(self.now, Input::Tick, &mut self.effects);
        self.finish();
    }

    fn finish(&mut self) {
        for _ in 0..8 {
            turn::finish(self.now, &mut self.node, &mut self.effects, &mut self.held, &mut self.shell);
            self.node.assert_invariants();
            for commit in std::mem::take(&mut self.shell.commits) {
                self.node.step(self.now, Input::Durable(commit), &mut self.effects);
            }
        }
    }

    pub fn message(&mut self, message: Message) {
        let mut frame = Vec::new();
        message.encode(&mut frame);
        self.frame(Kind::Message, &frame);
    }

    pub fn body(rpc: (u64, u64), ack: u64, key: Option<&[u8]>, update: &Update<'_>) -> Vec<u8> {
        let head = BodyHead {
            rpc: RpcId { client: ClientId(rpc.0), sequence: Sequence(rpc.1) },
            acknowledgement: AckedBelow(ack),
            lease_expiry: ClusterTime(200_000),
            not_after: ClusterTime(if key.is_some() { 100_000 } else { 0 }),
            table: TABLE,
        };
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
        };
        let mut frame = Vec::new();
        ReadView { envelope, read_id: 1, table: TABLE, code: read.code(), arguments: &arguments }.encode(&mut frame);
        self.shell.sent.clear();
        self.frame(Kind::Read, &frame);
        self.heard()
    }

    fn heard(&self) -> Option<Heard> {
        self.shell.sent.iter().filter(|(to, _)| *to == CONN).find_map(|(_, frame)| {
            let payload = &frame[FRAME_HEADER_BYTES..];
            Some(match Kind::from_number(frame[11])? {
                Kind::Answer => {
                    let view = AnswerView::decode(payload).expect("an answer");
                    Heard::Answer { synced: view.synced, result: view.result.to_vec() }
                }
                Kind::Refuse => Heard::Refused(hot::decode_small::<Refused>(payload).expect("a refusal").why),
                Kind::ReadAnswer => Heard::Read(ReadAnswerView::decode(payload).expect("an answer").result.to_vec()),
                Kind::ReadRefuse => Heard::ReadRefused,
                _ => return None,
            })
        })
    }

    pub fn witness_holds(&mut self, epoch: u32, bodies: &[Vec<u8>]) {
        self.message(Message::WitnessHolds {
            shard: SHARD,
            list: ListVersion(1),
            epoch: Epoch(epoch),
            node: NodeId(2),
            known: true,
            requests: bodies.iter().cloned().map(Bytes).collect(),
        });
    }
}
