//! The frames of clients: updates, records and reads, in an order that no cache or map profits from.

use kasha_machine::Endpoint;
use kasha_types::{
    AckedBelow, ClientId, ClusterTime, ConnId, Epoch, ListVersion, RpcId, Sequence, ShardId, TableId, limits, slot_of,
};
use kasha_wire::body::BodyHead;
use kasha_wire::frame::Kind;
use kasha_wire::hot::{Envelope, ReadView, RequestView};
use kasha_wire::operation::{Bounds, Lifetime, PartOperation, ParticipantsBuffer, PartsBuffer};
use kasha_wire::{Body, Coordination, Read, Update};

pub const SHARD: ShardId = ShardId(0);
/// The shard of the upper half of the slots, where there are two.
pub const OTHER: ShardId = ShardId(1);
pub const HALF: u16 = limits::SLOTS / 2;
pub const TABLE: TableId = TableId(1);
pub const EPOCH: Epoch = Epoch(1);
pub const LIST: ListVersion = ListVersion(1);
/// Number of clients. Coordinators grant ids in order.
pub const CLIENTS: u64 = 64;
/// Number of keys that hold values, and of keys that hold numbers.
pub const KEYS: u64 = 10_000;

/// This number shares no divisor with `KEYS`. So a walk in such steps meets each key once, in an order that no map
/// profits from.
const STEP: u64 = 7919;

const VALUE: [u8; 100] = [b'v'; 100];

/// What an operation does to its key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Put,
    Increment,
    /// An increment of the same keys that has bounds.
    Bounded,
    /// A put of a value that ends.
    Expiring,
    Read,
}

/// The n-th operation of a run, of client `n % CLIENTS`, and what the client takes ClusterTime for: what it is, or the core would say so.
#[derive(Clone, Copy)]
pub struct Nth(pub u64, pub ClusterTime);

impl Nth {
    fn client(self) -> u64 {
        1 + self.0 % CLIENTS
    }

    pub fn connection(self) -> Endpoint {
        Endpoint::Conn(ConnId(self.client()))
    }

    fn key(self, operation: Operation) -> String {
        let is_counter = matches!(operation, Operation::Increment | Operation::Bounded);
        let prefix = if is_counter { "count" } else { "user" };
        format!("{prefix}{:012}", self.0 * STEP % KEYS)
    }

    fn head(self, unacknowledged: u64) -> BodyHead {
        let sequence = 1 + self.0 / CLIENTS;
        BodyHead {
            rpc: RpcId { client: ClientId(self.client()), sequence: Sequence(sequence) },
            acknowledgement: AckedBelow(sequence.saturating_sub(unacknowledged).max(1)),
            lease_expiry: ClusterTime(200_000),
            not_after: ClusterTime(0),
            begun: ClusterTime(0),
            table: TABLE,
        }
    }

    /// The body of the update. It acknowledges all earlier updates of the client except the last `unacknowledged` ones.
    fn body(self, operation: Operation, unacknowledged: u64) -> Vec<u8> {
        let key = self.key(operation);
        let update = match operation {
            Operation::Put => Update::put(key.as_bytes(), &VALUE),
            Operation::Increment => Update::increment(key.as_bytes(), 1),
            Operation::Bounded => {
                let bounds = Bounds::new(0, 1_000_000).expect("in order");
                Update::increment_within(key.as_bytes(), 1, bounds)
            }
            Operation::Expiring => {
                let lifetime = Lifetime::from_millis(3_600_000).expect("not 0");
                Update::put_expiring(key.as_bytes(), lifetime, &VALUE)
            }
            Operation::Read => unreachable!("a read has no body"),
        };
        let mut body = Vec::new();
        Body::encode(&self.head(unacknowledged), None, &update, &mut body);
        body
    }

    /// A key of this operation that one of two shards owns.
    fn key_of(self, shard: ShardId) -> String {
        let key = self.key(Operation::Bounded);
        let mut keys = (b'a'..=b'z').map(|letter| format!("{key}{}", char::from(letter)));
        keys.find(|key| (slot_of(key.as_bytes()).0 < HALF) == (shard == SHARD)).expect("one of 26 is there")
    }

    /// The frame of a transfer between keys of both shards, to one of them: increments that have bounds, so that both vote.
    pub fn transfer(self, shard: ShardId) -> Vec<u8> {
        let (mut list, mut parts) = (ParticipantsBuffer::default(), PartsBuffer::default());
        let bounds = Bounds::new(-1_000_000, 1_000_000).expect("in order");
        for (participant, delta) in [(SHARD, -1), (OTHER, 1)] {
            list.push(participant, 1);
            let key = self.key_of(participant);
            parts.push(TABLE, &PartOperation::Update(Update::increment_within(key.as_bytes(), delta, bounds)));
        }
        let (mut body, mut frame) = (Vec::new(), Vec::new());
        let arguments = (&list, parts.as_parts(), 1);
        Body::encode_distributed(&self.head(0), None, Coordination::AsPartsNeed, arguments, &mut body);
        let envelope = Envelope { shard, ..self.envelope(ListVersion::NONE) };
        RequestView::encode(Kind::Request, &envelope, &body, &mut frame);
        frame
    }

    /// The frame of an update, as `Request` or `Record`.
    pub fn update(self, kind: Kind, operation: Operation, list: ListVersion, unacknowledged: u64) -> Vec<u8> {
        let mut frame = Vec::new();
        RequestView::encode(kind, &self.envelope(list), &self.body(operation, unacknowledged), &mut frame);
        frame
    }

    pub fn read(self) -> Vec<u8> {
        let (mut arguments, mut frame) = (Vec::new(), Vec::new());
        let key = self.key(Operation::Read);
        let read = Read::Get { key: key.as_bytes() };
        read.encode_arguments(&mut arguments);
        let envelope = self.envelope(ListVersion::NONE);
        let view = ReadView { envelope, read_id: self.0, table: TABLE, code: read.code(), arguments: &arguments };
        view.encode(&mut frame);
        frame
    }

    fn envelope(self, list: ListVersion) -> Envelope {
        Envelope { shard: SHARD, epoch: EPOCH, list, cluster_time: self.1, attempt: 1, turn: None }
    }
}
