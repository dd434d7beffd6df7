//! The frames of clients: updates, records and reads, in an order that no cache or map profits from.

use kasha_machine::Endpoint;
use kasha_types::{AckedBelow, ClientId, ClusterTime, ConnId, Epoch, ListVersion, RpcId, Sequence, ShardId, TableId};
use kasha_wire::body::BodyHead;
use kasha_wire::frame::Kind;
use kasha_wire::hot::{Envelope, ReadView, RequestView};
use kasha_wire::operation::{Bounds, Lifetime};
use kasha_wire::{Body, Read, Update};

pub const SHARD: ShardId = ShardId(0);
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

    /// The body of the update. It acknowledges all earlier updates of the client except the last `unacknowledged` ones.
    fn body(self, operation: Operation, unacknowledged: u64) -> Vec<u8> {
        let sequence = 1 + self.0 / CLIENTS;
        let head = BodyHead {
            rpc: RpcId { client: ClientId(self.client()), sequence: Sequence(sequence) },
            acknowledgement: AckedBelow(sequence.saturating_sub(unacknowledged).max(1)),
            lease_expiry: ClusterTime(200_000),
            not_after: ClusterTime(0),
            begun: ClusterTime(0),
            table: TABLE,
        };
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
        Body::encode(&head, None, &update, &mut body);
        body
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
