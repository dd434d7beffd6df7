//! A flush (R10.7, R10.15) at a core, in the way of others and with others in its way.

use kasha_types::ListVersion;
use kasha_wire::message::Told;
use kasha_wire::operation::{CommandBuffer, PartOperation, PartsBuffer};
use kasha_wire::{Level, Outcome, Update};

use crate::common::batches::{Scene, number, scene};
use crate::common::cluster::{Cluster, LIST};
use crate::common::two_shards::{begun_and_settled, distributed, is_settled, key, put, record, word};
use crate::common::{Core, Heard, TABLE};

fn flush_of(shard_key: &[u8]) -> CommandBuffer {
    CommandBuffer::of_words(&[b"flushdb", shard_key]).expect("a command")
}

/// A flush of client 3.
fn flush(sequence: u64, shard_key: &[u8]) -> Vec<u8> {
    let (command, mut parts) = (flush_of(shard_key), PartsBuffer::default());
    parts.push(TABLE, &PartOperation::Command(command.as_command()));
    Core::body((3, sequence), sequence, None, &Update::Transaction { parts: parts.as_parts() })
}

fn serving() -> Cluster {
    let mut cluster = Cluster::serving();
    cluster.tell(Level::COMMANDS);
    cluster.it_is(1000);
    cluster.settle();
    cluster
}

fn is_done_and_synced(heard: &[Heard]) -> bool {
    matches!(heard, [Heard::Answer { synced: true, result }] if result[0] == 0)
}

fn increment(cluster: &mut Cluster, (client, sequence): (u64, u64), key: &[u8]) -> Vec<Heard> {
    let body = Core::body((client, sequence), sequence, None, &Update::increment(key, 1));
    record(cluster, &body);
    cluster.send(client, LIST, &body)
}

/// Both wait until the flush is synced: whoever sees what it has left, and the flush itself, though a witness holds it.
#[test]
fn r5_1_everybody_waits_for_a_flush_that_is_not_synced() {
    let mut cluster = serving();
    assert!(!increment(&mut cluster, (4, 1), b"a").is_empty(), "in one round trip");
    cluster.settle();
    let body = flush(1, b"0");
    record(&mut cluster, &body);
    assert_eq!(cluster.send(3, LIST, &body), []);
    assert_eq!(increment(&mut cluster, (4, 2), b"b"), [], "a key of which nobody has heard");
    assert_eq!(cluster.get_default(5, b"a"), []);
    cluster.settle();
    assert!(is_done_and_synced(&cluster.heard(3)));
    let [Heard::Answer { result, .. }] = &cluster.heard(4)[..] else { panic!("it is told now") };
    let told = Outcome::decode(kasha_wire::outcome::Shape::Number, result).expect("a number");
    assert!(matches!(told, Outcome::Number(1, 2..)), "R10.7: above all versions that there were, {told:?}");
    assert_eq!(cluster.heard(5).len(), 1);
    assert_eq!(number(&mut cluster, b"a"), None);
    assert!(!increment(&mut cluster, (4, 3), b"b").is_empty(), "in one round trip again");
}

/// Nothing that was there comes back with another primary, and what came behind the flush stays.
#[test]
fn r10_7_a_new_primary_knows_what_was_flushed() {
    let mut cluster = serving();
    for (sequence, key) in (1..).zip([&b"a"[..], b"b", b"a", b"c"]) {
        increment(&mut cluster, (4, sequence), key);
    }
    cluster.settle();
    assert_eq!(cluster.send(3, LIST, &flush(1, b"0")), []);
    increment(&mut cluster, (4, 5), b"b");
    cluster.settle();
    cluster.each(|core| assert_eq!(core.node.replay_equals_state(), Ok(1)));
    cluster.fail_over_to(2);
    cluster.it_is(1000);
    cluster.settle();
    assert_eq!([&b"a"[..], b"b", b"c"].map(|key| number(&mut cluster, key)), [None, Some(b"1".to_vec()), None]);
}

/// What is pending was told what its keys hold.
#[test]
fn r8_3_a_flush_waits_for_whatever_is_pending() {
    let Scene { mut cluster, holder, x, a, .. } = scene();
    cluster.tell(Level::COMMANDS);
    assert_eq!(cluster.send(3, LIST, &flush(1, &a)), []);
    cluster.settle();
    assert_eq!(cluster.heard(3), [], "a transaction over several shards is pending");
    word(&mut cluster, 1, &holder, Told::Proposed(1));
    cluster.settle();
    assert_eq!(cluster.heard(3), [], "R8.4: what it has flushed is not settled");
    assert_eq!(number_or_gate(&mut cluster, &x), None);
    is_settled(&mut cluster, &holder, 1_000_001);
    first_is_settled(&mut cluster);
    assert!(is_done_and_synced(&cluster.heard(3)));
    cluster.heard(9);
    assert_eq!(number(&mut cluster, &x), None, "the flush came behind it");
}

/// The transaction by which the scene has begun is settled, too.
fn first_is_settled(cluster: &mut Cluster) {
    let (ours, theirs) = (key("first", true), key("first", false));
    let body = distributed((1, 1), &[(TABLE, put(&ours))], &[(TABLE, put(&theirs))]);
    is_settled(cluster, &body, 1_000_000);
}

/// While it is pending nothing else is executed here, whatever its keys are; then everything goes on.
#[test]
fn r10_15_a_flush_over_several_shards_has_everything_in_its_hands() {
    let mut cluster = begun_and_settled();
    cluster.tell(Level::COMMANDS);
    let (a, z) = (key("a", true), key("z", false));
    increment(&mut cluster, (4, 1), &a);
    cluster.settle();
    cluster.heard(4);
    let (own, other) = (flush_of(&a), flush_of(&z));
    let [own, other] = [&own, &other].map(|buffer| (TABLE, PartOperation::Command(buffer.as_command())));
    let body = distributed((3, 1), &[own], &[other]);
    assert_eq!(cluster.send(3, ListVersion::NONE, &body), []);
    cluster.settle();
    assert_eq!(increment(&mut cluster, (4, 2), &key("b", true)), []);
    let second = distributed((6, 1), &[(TABLE, put(&key("c", true)))], &[(TABLE, put(&key("c", false)))]);
    assert_eq!(cluster.send(6, ListVersion::NONE, &second), []);
    cluster.settle();
    assert_eq!(cluster.heard(4), []);
    word(&mut cluster, 1, &body, Told::Proposed(1));
    cluster.settle();
    assert!(is_done_and_synced(&cluster.heard(3)));
    assert_eq!(number_or_gate(&mut cluster, &a), None, "it is flushed");
    is_settled(&mut cluster, &body, 1_000_001);
    let heard = cluster.heard(4);
    assert!(matches!(&heard[..], [Heard::Answer { .. }]), "{heard:?}");
    assert_eq!(number(&mut cluster, &a), None);
}

/// A value, or nothing while the answer waits for what is not settled.
fn number_or_gate(cluster: &mut Cluster, key: &[u8]) -> Option<Vec<u8>> {
    match &cluster.get_default(9, key)[..] {
        [] => None,
        other => panic!("it was told before the flush is settled: {other:?}"),
    }
}
