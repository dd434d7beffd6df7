//! A session, and the scripted servers that it talks to. Frames that the session sends go into a list, and the test
//! answers as it likes.

use kasha_client::session::{CallId, CallOptions, Completion, Session, SessionOptions};
use kasha_machine::{Effect, Effects, Endpoint, Gate, Input, Machine};
use kasha_types::{
    ClientId, ClusterId, ClusterTime, ConfigVersion, CoreId, Epoch, Incarnation, ListVersion, NodeId, RpcId, ShardId,
    Slot, TableId, Tick,
};
use kasha_wire::frame::{FRAME_HEADER_BYTES, FrameHeader};
use kasha_wire::hot::{ReadRefused, encode_small};
use kasha_wire::{
    AnswerView, Body, Configuration, Durability, Kind, Member, MemberState, Message, NodeInfo, ReadAnswerView,
    ReadView, Recorded, RecordedVerdict, Refusal, Refused, RequestView, ShardConfig, ShardPhase, SyncRequest, Synced,
    TableInfo, Tablet, Update, Wire, message,
};
use std::time::Duration;

pub(crate) const TABLE: TableId = TableId(1);
pub(crate) const CLIENT: ClientId = ClientId(7);
pub(crate) const DONE: &[u8] = &[0, 1, 0, 0, 0, 0, 0, 0, 0];
pub(crate) const CANCELLED: &[u8] = &[6];

/// A frame that the session sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) to: Endpoint,
    pub(crate) kind: Kind,
    pub(crate) payload: Vec<u8>,
}

impl Sent {
    pub(crate) fn request(&self) -> RequestView<'_> {
        RequestView::decode(&self.payload).expect("a request")
    }

    pub(crate) fn body(&self) -> Body<'_> {
        Body::decode(self.request().body).expect("a body")
    }

    pub(crate) fn rpc(&self) -> RpcId {
        self.body().head.rpc
    }

    pub(crate) fn attempt(&self) -> u32 {
        self.request().envelope.attempt
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.request().envelope.epoch
    }
}

pub(crate) fn core(node: u16) -> Endpoint {
    Endpoint::Core(CoreId { node: NodeId(node), core: 0 })
}

/// Four nodes of one core, f = 2. Shard 0 has the lower half of the slots: primary 1, witnesses 2 and 3. Shard 1 has
/// the upper half: primary 2, witnesses 3 and 4.
pub(crate) fn configuration(version: u64) -> Configuration {
    let address = |node: u16| format!("127.0.0.1:{}", 7400 + node).parse().expect("an address");
    let shard = |shard: u16, nodes: [u16; 3]| ShardConfig {
        shard: ShardId(shard),
        epoch: Epoch(3),
        primary: NodeId(nodes[0]),
        phase: ShardPhase::Serving,
        members: nodes
            .map(|node| Member { node: NodeId(node), state: MemberState::Complete, since: ConfigVersion(0) })
            .to_vec(),
        members_since: ConfigVersion(0),
        recover_from: vec![],
        witnesses: vec![NodeId(nodes[1]), NodeId(nodes[2])],
        list: ListVersion(5),
        closing: false,
        served: None,
    };
    let tablet = |first: u16, last: u16, shard: u16| Tablet {
        table: TABLE,
        first: Slot(first),
        last: Slot(last),
        shard: ShardId(shard),
    };
    Configuration {
        cluster: ClusterId(99),
        version: ConfigVersion(version),
        faults: 2,
        durability: Durability::Replicated,
        min_backups: 2,
        nodes_wanted: 3,
        coordinator: address(0),
        group: Vec::new(),
        nodes: (1..=4)
            .map(|node| NodeInfo {
                node: NodeId(node),
                incarnation: Incarnation(1),
                cores: vec![address(node)],
                alive: true,
            })
            .collect(),
        shards: vec![shard(0, [1, 2, 3]), shard(1, [2, 3, 4])],
        tables: vec![TableInfo { table: TABLE, name: "default".into() }],
        tablets: vec![tablet(0, 8191, 0), tablet(8192, 16383, 1)],
    }
}

pub(crate) struct Net {
    pub(crate) session: Session,
    pub(crate) now: Tick,
    pub(crate) sent: Vec<Sent>,
    pub(crate) routes: Vec<Endpoint>,
    pub(crate) configuration: Configuration,
    out: Effects,
}

impl Net {
    pub(crate) fn new(change: impl FnOnce(&mut SessionOptions)) -> Self {
        let mut options = SessionOptions::new(vec!["127.0.0.1:7401".parse().expect("an address")], 1);
        change(&mut options);
        let mut out = Effects::new();
        let session = Session::new(options, Tick(0), &mut out);
        let mut net =
            Self { session, now: Tick(0), sent: vec![], routes: vec![], configuration: configuration(1), out };
        net.turn();
        net
    }

    /// A session with its configuration and its client id, and nothing on its way.
    pub(crate) fn open(change: impl FnOnce(&mut SessionOptions)) -> Self {
        let mut net = Self::new(change);
        assert_eq!(net.take(Kind::Message).len(), 1, "it asks a seed");
        net.give_configuration(Endpoint::Seed(0));
        net.open_session(CLIENT);
        assert!(net.session.is_open());
        net.sent.clear();
        net
    }

    pub(crate) fn open_session(&mut self, client: ClientId) {
        let asked: Vec<message::OpenSession> = self.messages();
        let nonce = asked.first().expect("it asks for a client id").nonce;
        let (lease_expiry, cluster_time) = (ClusterTime(301_000), ClusterTime(1000));
        self.message(Endpoint::Coordinator, &message::SessionOpened { nonce, client, lease_expiry, cluster_time });
    }

    pub(crate) fn give_configuration(&mut self, from: Endpoint) {
        self.message(
            from,
            &message::ConfigurationIs {
                level: kasha_wire::Level::FIRST,
                unix_origin: kasha_wire::Later::absent(),
                configuration: self.configuration.clone(),
            },
        );
    }

    pub(crate) fn turn(&mut self) {
        self.session.end_turn(self.now, &mut self.out);
        self.session.assert_invariants();
        for &effect in self.out.queue() {
            match effect {
                Effect::Send { to, head, tail, gate } => {
                    assert_eq!((tail, gate), (None, Gate::Now));
                    let bytes = self.out.bytes(head);
                    let header = FrameHeader::parse(bytes).expect("a frame").expect("whole");
                    header.check(bytes).expect("a right checksum");
                    let kind = Kind::from_number(header.kind).expect("a kind");
                    self.sent.push(Sent { to, kind, payload: bytes[FRAME_HEADER_BYTES..].to_vec() });
                }
                Effect::Route { to, .. } => self.routes.push(to),
                other => panic!("{other:?} is nothing for a client"),
            }
        }
        self.out.clear();
    }

    pub(crate) fn input(&mut self, input: Input<'_>) {
        self.session.step(self.now, input, &mut self.out);
        self.turn();
    }

    /// Time passes, and the session is woken whenever it wants.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now.after(time);
        while let Some(at) = self.session.next_deadline().filter(|&at| at <= end) {
            self.now = self.now.max(at);
            self.input(Input::Tick);
        }
        self.now = end;
    }

    pub(crate) fn frame(&mut self, from: Endpoint, bytes: &[u8]) {
        let kind = bytes[12];
        self.input(Input::Frame { from, kind, payload: &bytes[FRAME_HEADER_BYTES..] });
    }

    pub(crate) fn message(&mut self, from: Endpoint, message: &impl Message) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        self.frame(from, &bytes);
    }

    pub(crate) fn small(&mut self, from: Endpoint, kind: Kind, value: &impl Wire) {
        let mut bytes = Vec::new();
        encode_small(kind, value, &mut bytes);
        self.frame(from, &bytes);
    }

    /// Takes the frames of one kind off the list.
    pub(crate) fn take(&mut self, kind: Kind) -> Vec<Sent> {
        let (taken, rest) = self.sent.drain(..).partition(|sent| sent.kind == kind);
        self.sent = rest;
        taken
    }

    /// Takes the only frame of a kind.
    pub(crate) fn take_one(&mut self, kind: Kind) -> Sent {
        let mut taken = self.take(kind);
        assert_eq!(taken.len(), 1, "{kind:?}: {taken:?}");
        taken.remove(0)
    }

    /// The messages of this link among all that were sent.
    pub(crate) fn messages<M: Message>(&mut self) -> Vec<M> {
        self.take(Kind::Message).iter().filter_map(|sent| M::decode(&sent.payload).ok()).collect()
    }

    /// A put of a key of shard 0.
    pub(crate) fn put(&mut self) -> CallId {
        self.update(&Update::put(b"a-low-slot-", b"v"), &CallOptions::default())
    }

    pub(crate) fn update(&mut self, update: &Update<'_>, options: &CallOptions<'_>) -> CallId {
        let id = self.session.update(self.now, TABLE, update, options, &mut self.out);
        self.turn();
        id
    }

    pub(crate) fn with<T>(&mut self, call: impl FnOnce(&mut Session, Tick, &mut Effects) -> T) -> T {
        let value = call(&mut self.session, self.now, &mut self.out);
        self.turn();
        value
    }

    pub(crate) fn answer(&mut self, request: &Sent, result: &[u8], synced: bool) {
        let (rpc, epoch, attempt) = (request.rpc(), request.epoch(), request.attempt());
        let mut bytes = Vec::new();
        let shard = request.request().envelope.shard;
        AnswerView { rpc, epoch, attempt, synced, shard, result }.encode(&[], &mut bytes);
        self.frame(request.to, &bytes);
    }

    pub(crate) fn answer_read(&mut self, read: &Sent, result: &[u8]) {
        let read_id = ReadView::decode(&read.payload).expect("a read").read_id;
        let mut bytes = Vec::new();
        ReadAnswerView { read_id, result }.encode(&[], &mut bytes);
        self.frame(read.to, &bytes);
    }

    pub(crate) fn refuse_read(&mut self, read: &Sent, why: Refusal) {
        let view = ReadView::decode(&read.payload).expect("a read");
        let refused = ReadRefused { read_id: view.read_id, epoch: view.envelope.epoch, why };
        self.small(read.to, Kind::ReadRefuse, &refused);
    }

    pub(crate) fn record(&mut self, record: &Sent, verdict: RecordedVerdict) {
        let Endpoint::Core(core) = record.to else { panic!("witnesses are cores") };
        let (rpc, attempt, envelope) = (record.rpc(), record.attempt(), record.request().envelope);
        let (shard, list, node) = (envelope.shard, envelope.list, core.node);
        self.small(record.to, Kind::Recorded, &Recorded { rpc, shard, list, attempt, node, verdict });
    }

    pub(crate) fn refuse(&mut self, request: &Sent, why: Refusal) {
        let (rpc, epoch, attempt) = (request.rpc(), request.epoch(), request.attempt());
        self.small(
            request.to,
            Kind::Refuse,
            &Refused { rpc, attempt, epoch, shard: request.request().envelope.shard, why },
        );
    }

    pub(crate) fn sync(&mut self, sync: &Sent, change: impl FnOnce(&mut Synced)) {
        let request: SyncRequest = kasha_wire::hot::decode_small(&sync.payload).expect("a sync request");
        let mut synced = Synced { rpc: request.rpc, epoch: request.epoch, attempt: request.attempt };
        change(&mut synced);
        self.small(sync.to, Kind::Synced, &synced);
    }

    pub(crate) fn completed(&mut self) -> Vec<(CallId, Completion)> {
        std::iter::from_fn(|| self.session.poll_completed()).collect()
    }

    pub(crate) fn completion_of(&mut self, id: CallId) -> Completion {
        let mut completed = self.completed();
        assert_eq!(completed.len(), 1, "{completed:?}");
        assert_eq!(completed[0].0, id);
        completed.remove(0).1
    }
}
