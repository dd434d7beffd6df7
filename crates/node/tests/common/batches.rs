//! Batches that end early (R10.17), at a participant of a transaction that is pending.

use kasha_types::ListVersion;
use kasha_wire::message::Told;
use kasha_wire::operation::{PartOperation, PartsBuffer};
use kasha_wire::outcome::Shape;
use kasha_wire::{Outcome, Read, RecordedVerdict, Update};

use super::cluster::{Cluster, LIST};
use super::two_shards::{begun, distributed, key, lose_the_primary, put, record, verdict, word};
use super::{Core, Heard, TABLE};

/// Client 2 holds a lock of `x`, which a transaction over two shards needs; its other participant says nothing yet.
pub struct Scene {
    pub cluster: Cluster,
    pub holder: Vec<u8>,
    pub x: Vec<u8>,
    pub a: Vec<u8>,
    pub b: Vec<u8>,
}

pub fn scene() -> Scene {
    let mut cluster = begun();
    let (x, a, b, z) = (key("x", true), key("a", true), key("b", true), key("z", false));
    let lock = PartOperation::Update(Update::increment(&x, 1));
    let holder = distributed((2, 1), &[(TABLE, lock)], &[(TABLE, put(&z))]);
    cluster.send(2, ListVersion::NONE, &holder);
    cluster.settle();
    cluster.heard(2);
    Scene { cluster, holder, x, a, b }
}

/// A batch of client 3 that increments these keys.
pub fn batch_of(sequence: u64, keys: &[&[u8]]) -> Vec<u8> {
    let mut parts = PartsBuffer::default();
    keys.iter().for_each(|key| parts.push(TABLE, &PartOperation::Update(Update::increment(key, 1))));
    Core::body((3, sequence), 1, None, &Update::Batch { batch: parts.as_parts() })
}

/// What the parts of a batch came to that have run, and whether that was synced. `None`: nothing was heard.
pub fn ran(heard: &[Heard]) -> Option<(Vec<Outcome>, bool)> {
    match heard {
        [] => None,
        [Heard::Answer { synced, result }] => match Outcome::decode(Shape::Parts, result) {
            Ok(Outcome::Parts(parts)) => Some((parts, *synced)),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// The number that a key has.
pub fn number(cluster: &mut Cluster, key: &[u8]) -> Option<Vec<u8>> {
    let mut heard = cluster.read(5, TABLE, &Read::Get { key });
    for _ in 0..8 {
        cluster.tick(1);
        cluster.carry();
    }
    heard.append(&mut cluster.heard(5));
    match &heard[..] {
        [Heard::Read(result)] => match Outcome::decode(Shape::Value, result).expect("a value") {
            Outcome::Value(_, value) => Some(value),
            _ => None,
        },
        other => panic!("{other:?}"),
    }
}

/// A new primary cannot end it at the same place: its witness's copy runs whole or not at all, and what was told would be lost.
pub fn an_early_end_is_told_when_it_is_synced() {
    let mut cluster = Cluster::serving_with(2, |options| options.segment_bytes = 8 << 20);
    let (a, b, large, value) = (b"a", b"b", b"large", vec![7; kasha_types::limits::VALUE_BYTES_MAX]);
    let mut heard = cluster.update((3, 1), ListVersion::NONE, &Update::put(large, &value));
    cluster.settle();
    heard.append(&mut cluster.heard(3));
    assert!(matches!(heard[..], [Heard::Answer { synced: true, .. }]), "{heard:?}");
    let mut parts = PartsBuffer::default();
    parts.push(TABLE, &PartOperation::Update(Update::increment(a, 1)));
    (0..7).for_each(|_| parts.push(TABLE, &PartOperation::Read(Read::Get { key: large })));
    parts.push(TABLE, &PartOperation::Update(Update::increment(b, 1)));
    let batch = Core::body((3, 2), 2, None, &Update::Batch { batch: parts.as_parts() });
    record(&mut cluster, &batch);
    let at_once = cluster.send(3, LIST, &batch);
    assert_eq!(ran(&at_once).map(|(parts, _)| parts.len()), None, "an early end was told before it was synced");
    cluster.settle();
    let (parts, synced) = ran(&cluster.heard(3)).expect("it is told now");
    assert_eq!((&parts[0], parts.len(), synced), (&Outcome::Number(1, 1), 6, true));
    assert_eq!(number(&mut cluster, b), None, "behind what finds no room nothing runs");
}

/// What would have to wait goes alone, and what stands behind it comes after it.
pub fn a_batch_ends_before_what_would_have_to_wait() {
    let Scene { mut cluster, x, a, b, .. } = scene();
    let batch = batch_of(1, &[&a, &x, &b]);
    record(&mut cluster, &batch);
    assert_eq!(ran(&cluster.send(3, LIST, &batch)), None);
    cluster.settle();
    assert_eq!(ran(&cluster.heard(3)), Some((vec![Outcome::Number(1, 1)], true)));
    assert_eq!(number(&mut cluster, &b), None);
}

/// How far a batch came is said again, whoever is in its way by then; 0, too.
pub fn how_far_it_came_is_an_outcome() {
    let Scene { mut cluster, holder, x, a, .. } = scene();
    let batch = batch_of(1, &[&x, &a]);
    let mut heard = cluster.send(3, ListVersion::NONE, &batch);
    cluster.settle();
    heard.append(&mut cluster.heard(3));
    assert_eq!(ran(&heard), Some((vec![], true)));
    word(&mut cluster, 1, &holder, Told::Proposed(1));
    cluster.settle();
    let mut again = cluster.send(3, ListVersion::NONE, &batch);
    cluster.settle();
    again.append(&mut cluster.heard(3));
    assert_eq!(ran(&again), Some((vec![], true)), "a delayed copy has run what was sent again meanwhile");
    assert_eq!(number(&mut cluster, &a), None);
}

/// A new primary runs all of what a witness held, or nothing: its client may have been told of all.
pub fn a_replay_runs_it_whole_or_not_at_all() {
    let Scene { mut cluster, x, a, b, .. } = scene();
    let batch = batch_of(1, &[&a, &x, &b]);
    record(&mut cluster, &batch);
    lose_the_primary(&mut cluster);
    cluster.settle();
    assert_eq!(number(&mut cluster, &a), None, "a replay has ended early");
    let Scene { mut cluster, a, b, .. } = scene();
    record(&mut cluster, &batch_of(1, &[&a, &b]));
    lose_the_primary(&mut cluster);
    cluster.settle();
    assert_eq!(number(&mut cluster, &b), Some(b"1".to_vec()), "what a witness holds runs");
}

/// A witness drops a batch that has ended early, too, under all its keys: else the next update of these keys would take two round trips for ever.
pub fn a_gc_names_all_its_keys() {
    let Scene { mut cluster, holder, x, a, b } = scene();
    let batch = batch_of(1, &[&a, &x, &b]);
    record(&mut cluster, &batch);
    cluster.send(3, LIST, &batch);
    cluster.settle();
    assert_eq!(ran(&cluster.heard(3)).map(|(parts, _)| parts.len()), Some(1));
    word(&mut cluster, 1, &holder, Told::Proposed(1));
    cluster.settle();
    for (sequence, key) in (1..).zip([&a, &b, &x]) {
        let next = Core::body((4, sequence), 1, None, &Update::put(key, b"v"));
        assert_eq!(verdict(&mut cluster, &next), RecordedVerdict::Accepted, "{}", key.escape_ascii());
    }
}
