//! Batches, which may end early (R10.17).

use crate::common::batches::*;
use crate::common::cluster::LIST;
use crate::common::two_shards::record;
use crate::common::{Core, Heard, TABLE};
use kasha_wire::operation::{PartOperation, PartsBuffer};
use kasha_wire::{Outcome, Read, Refusal, Update};

#[test]
fn r10_17_an_early_end_is_told_when_it_is_synced() {
    an_early_end_is_told_when_it_is_synced();
}

#[test]
fn r10_17_a_batch_ends_before_what_would_have_to_wait() {
    a_batch_ends_before_what_would_have_to_wait();
}

#[test]
fn r10_17_how_far_it_came_is_an_outcome() {
    how_far_it_came_is_an_outcome();
}

#[test]
fn r10_17_a_replay_runs_it_whole_or_not_at_all() {
    a_replay_runs_it_whole_or_not_at_all();
}

#[test]
fn r10_17_a_gc_names_all_its_keys() {
    a_gc_names_all_its_keys();
}

#[test]
fn a_batch_that_nobody_is_in_the_way_of_takes_one_round_trip() {
    let Scene { mut cluster, a, b, .. } = scene();
    let batch = batch_of(1, &[&a, &b]);
    record(&mut cluster, &batch);
    let heard = cluster.send(3, LIST, &batch);
    assert_eq!(ran(&heard), Some((vec![Outcome::Number(1, 1), Outcome::Number(1, 1)], false)));
}

#[test]
fn a_query_ends_before_what_would_have_to_wait_and_alone_it_waits() {
    let Scene { mut cluster, x, a, .. } = scene();
    let query = |keys: &[&[u8]]| {
        let mut parts = PartsBuffer::default();
        keys.iter().for_each(|key| parts.push(TABLE, &PartOperation::Read(Read::Exists { key })));
        parts
    };
    for (keys, ran) in [(&[&a[..], &x, &a][..], 1), (&[&x, &a], 0)] {
        let parts = query(keys);
        let heard = cluster.read(3, TABLE, &Read::Query { queries: parts.as_parts() });
        let [Heard::Read(result)] = &heard[..] else { panic!("{heard:?}") };
        let outcome = Outcome::decode(kasha_wire::outcome::Shape::Parts, result).unwrap();
        assert_eq!(outcome, Outcome::Parts(vec![Outcome::Flags(vec![false]); ran]));
    }
    let parts = query(&[&x]);
    assert_eq!(cluster.read(3, TABLE, &Read::Query { queries: parts.as_parts() }), []);
}

/// Else a delete behind it in the same batch would be refused with it, and its client could not send that alone before the batch is
/// cancelled.
#[test]
fn a_batch_that_finds_no_room_is_told_that_nothing_has_run() {
    let mut core = Core::serving_with(16 << 20);
    let (value, mut sequence) = (vec![7; 200_000], 0);
    let put = |core: &mut Core, sequence: u64| {
        let key = sequence.to_le_bytes();
        core.update((1, sequence), sequence, &Update::put(&key, &value))
    };
    loop {
        sequence += 1;
        if put(&mut core, sequence) == Some(Heard::Refused(Refusal::OutOfMemory)) {
            break;
        }
        assert!(sequence < 1000, "memory is never full");
    }
    let mut parts = PartsBuffer::default();
    parts.push(TABLE, &PartOperation::Update(Update::put(b"more", &value)));
    parts.push(TABLE, &PartOperation::Update(Update::delete(&1u64.to_le_bytes())));
    let batch = Core::body((1, sequence + 1), sequence, None, &Update::Batch { batch: parts.as_parts() });
    let heard: Vec<_> = core.send(kasha_wire::frame::Kind::Request, &batch).into_iter().collect();
    assert_eq!(ran(&heard).map(|(parts, _)| parts), Some(vec![]));
}
