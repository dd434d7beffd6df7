//! Two shards, of which one is played by the test: what the other's primary would say, a test says.

use kasha_machine::Endpoint;
use kasha_types::{
    AckedBelow, ClientId, ClusterTime, ConnId, CoreId, ListVersion, NodeId, RpcId, Sequence, ShardId, Slot, TableId,
    slot_of,
};
use kasha_wire::body::BodyHead;
use kasha_wire::frame::{FRAME_HEADER_BYTES, Kind};
use kasha_wire::hot::{RequestView, decode_small};
use kasha_wire::message::{Told, WordOf, Words};
use kasha_wire::operation::{PartOperation, ParticipantsBuffer, PartsBuffer};
use kasha_wire::{Body, Coordination, Recorded, RecordedVerdict, TableInfo, Tablet, Update};

use super::cluster::{Cluster, LIST};
use super::{Core, Files, Heard, SHARD, TABLE};

pub const LEDGER: TableId = TableId(9);
/// The other participant: it has the upper half of the slots, and a primary that no test starts.
pub const OTHER: ShardId = ShardId(1);
pub const OTHERS_PRIMARY: NodeId = NodeId(9);

pub fn two_shards() -> Cluster {
    let mut cluster = Cluster::serving();
    cluster.commit(|configuration| {
        let mut other = configuration.shards[0].clone();
        (other.shard, other.primary) = (OTHER, OTHERS_PRIMARY);
        other.members.clear();
        other.witnesses.clear();
        configuration.shards.push(other);
        configuration.tables.push(TableInfo { table: LEDGER, name: "ledger".into() });
        configuration.tablets.clear();
        for table in [TABLE, LEDGER] {
            configuration.tablets.push(Tablet { table, first: Slot(0), last: Slot(8191), shard: SHARD });
            configuration.tablets.push(Tablet { table, first: Slot(8192), last: Slot(16383), shard: OTHER });
        }
    });
    cluster.it_is(1000);
    cluster.settle();
    cluster
}

/// A key of this shard, or of the other.
pub fn key(prefix: &str, is_ours: bool) -> Vec<u8> {
    let mut keys = (0..).map(|number: u32| format!("{prefix}{number}").into_bytes());
    keys.find(|key| (slot_of(key).0 < 8192) == is_ours).expect("half of all keys")
}

pub type Part<'a> = (TableId, PartOperation<'a>);

pub fn distributed(rpc: (u64, u64), own: &[Part<'_>], other: &[Part<'_>]) -> Vec<u8> {
    with_lease(200_000, rpc, own, other)
}

pub fn with_lease(lease_expiry: u64, rpc: (u64, u64), own: &[Part<'_>], other: &[Part<'_>]) -> Vec<u8> {
    under((None, lease_expiry), rpc, own, other)
}

/// Under an operation key; the other participant's part was named first.
pub fn under_key(key: &[u8], rpc: (u64, u64), own: &[Part<'_>], other: &[Part<'_>]) -> Vec<u8> {
    under((Some(key), 200_000), rpc, own, other)
}

/// Under an operation key; this shard's first part was named first.
pub fn first_here(key: &[u8], rpc: (u64, u64), own: &[Part<'_>], other: &[Part<'_>]) -> Vec<u8> {
    let mut bytes = under_key(key, rpc, own, other);
    bytes[34] = 0;
    bytes
}

pub fn under(
    (operation_key, lease_expiry): (Option<&[u8]>, u64),
    rpc: (u64, u64),
    own: &[Part<'_>],
    other: &[Part<'_>],
) -> Vec<u8> {
    let (mut list, mut all) = (ParticipantsBuffer::default(), PartsBuffer::default());
    list.push(SHARD, own.len() as u16);
    list.push(OTHER, other.len() as u16);
    own.iter().chain(other).for_each(|(table, operation)| all.push(*table, operation));
    let head = BodyHead {
        rpc: RpcId { client: ClientId(rpc.0), sequence: Sequence(rpc.1) },
        acknowledgement: AckedBelow(1),
        lease_expiry: ClusterTime(lease_expiry),
        not_after: ClusterTime(if operation_key.is_some() { 100_000 } else { 0 }),
        begun: ClusterTime(0),
        table: own[0].0,
    };
    let mut bytes = Vec::new();
    let arguments = (&list, all.as_parts(), own.len());
    Body::encode_distributed(&head, operation_key, Coordination::AsPartsNeed, arguments, &mut bytes);
    bytes
}

/// The other participant speaks.
pub fn word(cluster: &mut Cluster, node: u16, body: &[u8], told: Told) {
    word_with_reason(cluster, node, body, (told, &[]));
}

pub fn word_with_reason(cluster: &mut Cluster, node: u16, body: &[u8], (told, reason): (Told, &[u8])) {
    let decoded = Body::decode(body).expect("made here");
    let word = WordOf {
        rpc: decoded.head.rpc,
        body: decoded.hash(),
        lease_expiry: ClusterTime(200_000),
        told,
        asks: false,
        participants: vec![],
        behind: vec![],
        reason: reason.to_vec(),
    };
    let from = Endpoint::Core(CoreId { node: OTHERS_PRIMARY, core: 0 });
    cluster.on(node, |core| core.message_from(from, Words { to: SHARD, from: OTHER, words: vec![word] }));
}

/// What a witness says to a record.
pub fn verdict(cluster: &mut Cluster, body: &[u8]) -> RecordedVerdict {
    let (mut frame, mut verdict) = (Vec::new(), None);
    RequestView::encode(Kind::Record, &cluster.envelope(LIST), body, &mut frame);
    cluster.on(2, |core| {
        core.frame_from(Endpoint::Conn(ConnId(3)), Kind::Record, &frame);
        let (_, answer) = core.shell.sent.last().expect("an answer");
        verdict = decode_small::<Recorded>(&answer[FRAME_HEADER_BYTES..]).ok();
    });
    verdict.expect("it was recorded, or not").verdict
}

/// Both witnesses hold it.
pub fn record(cluster: &mut Cluster, body: &[u8]) {
    let mut frame = Vec::new();
    RequestView::encode(Kind::Record, &cluster.envelope(LIST), body, &mut frame);
    for node in [2, 3] {
        cluster.on(node, |core| core.frame_from(Endpoint::Conn(ConnId(3)), Kind::Record, &frame));
    }
}

pub fn put(key: &[u8]) -> PartOperation<'_> {
    PartOperation::Update(Update::put(key, b"v"))
}

/// A transaction has been executed already, and a ceiling is logged.
pub fn begun() -> Cluster {
    let mut cluster = two_shards();
    let (ours, theirs) = (key("first", true), key("first", false));
    let body = distributed((1, 1), &[(TABLE, put(&ours))], &[(TABLE, put(&theirs))]);
    assert!(cluster.send(1, ListVersion::NONE, &body).is_empty(), "nothing is known of it before the other votes");
    cluster.settle();
    word(&mut cluster, 1, &body, Told::Proposed(1));
    cluster.settle();
    let heard = cluster.heard(1);
    assert!(matches!(&heard[..], [Heard::Answer { synced: true, .. }]), "{heard:?}");
    cluster
}

/// A new process without files takes the place of the first primary's, and another node becomes primary.
pub fn lose_the_primary(cluster: &mut Cluster) {
    cluster.on_the_way.clear();
    cluster.cores[0] = Core::start_with(Files::default(), 1 << 26, |options| options.witness_slots = 64);
    cluster.fail_over_to(2);
    cluster.it_is(1000);
}

/// [`begun`], and what was executed is settled.
pub fn begun_and_settled() -> Cluster {
    let mut cluster = begun();
    let (ours, theirs) = (key("first", true), key("first", false));
    let body = distributed((1, 1), &[(TABLE, put(&ours))], &[(TABLE, put(&theirs))]);
    is_settled(&mut cluster, &body, 1_000_000);
    cluster
}

/// The other participant says that it is executed and settled there.
pub fn is_settled(cluster: &mut Cluster, body: &[u8], at: u64) {
    word(cluster, 1, body, Told::Executed { at, recorded: true, settled: true });
    cluster.settle();
}

pub fn told(heard: &[Heard]) -> Option<(u8, Vec<u8>)> {
    match heard {
        [Heard::Answer { synced: true, result }] => Some((result[0], result[1..].to_vec())),
        [] => None,
        other => panic!("{other:?}"),
    }
}

/// Client 2 puts both keys in one transaction, which is executed here, and not settled.
pub fn unsettled(cluster: &mut Cluster, ours: &[u8], theirs: &[u8]) -> Vec<u8> {
    let body = distributed((2, 1), &[(TABLE, put(ours))], &[(TABLE, put(theirs))]);
    cluster.send(2, ListVersion::NONE, &body);
    cluster.settle();
    word(cluster, 1, &body, Told::Proposed(1));
    cluster.settle();
    body
}
