//! A participant of a two-phase commit whose master is the client. The other participant has a primary that no test starts.

use crate::common::cluster::Cluster;
use crate::common::{Heard, SHARD, TABLE};
use kasha_machine::Endpoint;
use kasha_node::Baseline;
use kasha_types::{
    AckedBelow, ClientId, ClusterTime, ConnId, ListVersion, NodeId, RpcId, Sequence, ShardId, Slot, slot_of,
};
use kasha_wire::body::BodyHead;
use kasha_wire::message::{Told, WordOf, Words};
use kasha_wire::operation::{PartOperation, ParticipantsBuffer, PartsBuffer};
use kasha_wire::{Body, Coordination, OutcomeCode, Tablet, Update};

const OTHER: ShardId = ShardId(1);

fn two_shards() -> Cluster {
    let mut cluster = Cluster::serving_with(0, |options| options.baseline = Baseline::TwoPhase);
    cluster.commit(|configuration| {
        let mut other = configuration.shards[0].clone();
        (other.shard, other.primary) = (OTHER, NodeId(9));
        other.members.clear();
        other.witnesses.clear();
        configuration.shards.push(other);
        configuration.tablets = vec![
            Tablet { table: TABLE, first: Slot(0), last: Slot(8191), shard: SHARD },
            Tablet { table: TABLE, first: Slot(8192), last: Slot(16383), shard: OTHER },
        ];
    });
    cluster.it_is(1000);
    cluster.settle();
    cluster
}

/// A counter of each participant.
fn increments(client: u64) -> Vec<u8> {
    let key = |is_ours: bool| {
        let mut keys = (0..).map(|number: u32| format!("n{number}").into_bytes());
        keys.find(|key| (slot_of(key).0 < 8192) == is_ours).expect("half of all keys")
    };
    let (mut list, mut parts) = (ParticipantsBuffer::default(), PartsBuffer::default());
    for (shard, key) in [(SHARD, key(true)), (OTHER, key(false))] {
        list.push(shard, 1);
        parts.push(TABLE, &PartOperation::Update(Update::increment(&key, 1)));
    }
    let head = BodyHead {
        rpc: RpcId { client: ClientId(client), sequence: Sequence(1) },
        acknowledgement: AckedBelow(1),
        lease_expiry: ClusterTime(200_000),
        not_after: ClusterTime(0),
        begun: ClusterTime(0),
        table: TABLE,
    };
    let mut bytes = Vec::new();
    Body::encode_distributed(&head, None, Coordination::AsPartsNeed, (&list, parts.as_parts(), 0), &mut bytes);
    bytes
}

/// The client tells what the other participant says.
fn tell(cluster: &mut Cluster, client: u64, body: &[u8], told: Told) {
    let decoded = Body::decode(body).expect("made here");
    let (rpc, lease_expiry) = (decoded.head.rpc, decoded.head.lease_expiry);
    let (participants, behind, reason) = (Vec::new(), Vec::new(), Vec::new());
    let word = WordOf { rpc, body: decoded.hash(), lease_expiry, told, asks: false, participants, behind, reason };
    let from = Endpoint::Conn(ConnId(client));
    cluster.on(1, |core| core.message_from(from, Words { to: SHARD, from: OTHER, words: vec![word] }));
    cluster.settle();
}

fn prepare(cluster: &mut Cluster, client: u64) -> Vec<u8> {
    let body = increments(client);
    assert!(cluster.send(client, ListVersion::NONE, &body).is_empty(), "it is not synced");
    cluster.settle();
    body
}

fn only(heard: &[Heard]) -> &[u8] {
    let [Heard::Answer { synced: true, result }] = heard else { panic!("{heard:?}") };
    result
}

#[test]
fn the_master_is_told_the_vote_and_later_the_execution() {
    let mut cluster = two_shards();
    let body = prepare(&mut cluster, 2);
    let heard = cluster.heard(2);
    let (prepared, vote) = only(&heard).split_last_chunk::<8>().expect("a vote behind the results");
    assert_eq!(prepared[0], OutcomeCode::Prepared as u8);
    assert!(u64::from_le_bytes(*vote) >= 1_000_000, "microseconds of cluster time");
    tell(&mut cluster, 2, &body, Told::Proposed(1));
    let heard = cluster.heard(2);
    let done = only(&heard);
    assert_eq!((done[0], &done[1..]), (OutcomeCode::Done as u8, &prepared[1..]));
}

#[test]
fn what_the_master_ends_lets_go_of_its_locks() {
    let mut cluster = two_shards();
    let body = prepare(&mut cluster, 2);
    assert_eq!(only(&cluster.heard(2))[0], OutcomeCode::Prepared as u8);
    prepare(&mut cluster, 3);
    assert_eq!(only(&cluster.heard(3)), [OutcomeCode::Conflict as u8], "the first holds the lock");
    tell(&mut cluster, 2, &body, Told::Conflict);
    assert_eq!(only(&cluster.heard(2)), [OutcomeCode::Conflict as u8]);
    prepare(&mut cluster, 4);
    assert_eq!(only(&cluster.heard(4))[0], OutcomeCode::Prepared as u8);
}

/// Its caller waits for the execution in any case.
#[test]
fn what_has_seen_something_unsettled_is_told_to_the_master() {
    let mut cluster = two_shards();
    let first = prepare(&mut cluster, 2);
    tell(&mut cluster, 2, &first, Told::Proposed(1)); // executed here, and not settled
    cluster.heard(2);
    let second = prepare(&mut cluster, 3);
    assert_eq!(only(&cluster.heard(3))[0], OutcomeCode::Prepared as u8);
    tell(&mut cluster, 3, &second, Told::Proposed(1));
    assert!(cluster.heard(3).is_empty(), "the gate of the first is closed");
}
