//! Values that end (R5.2), on three cores whose frames are carried by hand.

use crate::common::Heard;
use crate::common::cluster::{Cluster, LIST};
use kasha_log::EntryKind;
use kasha_types::ListVersion;
use kasha_wire::operation::{Condition, Lifetime};
use kasha_wire::{OutcomeCode, Update};

fn lifetime(millis: u64) -> Lifetime {
    Lifetime::from_millis(millis).expect("not 0")
}

fn put(key: &[u8], millis: u64) -> Update<'_> {
    Update::put_expiring(key, lifetime(millis), b"v")
}

fn is_found(heard: &[Heard]) -> bool {
    match heard {
        [Heard::Read(result)] => result[0] == OutcomeCode::Done as u8,
        other => panic!("{other:?}"),
    }
}

fn tombstones(cluster: &Cluster, node: u16) -> usize {
    cluster.entries_on_file(node).iter().filter(|kind| **kind == EntryKind::Tombstone).count()
}

/// Clients of these tests begin everything at 0.
fn with_value_until(millis: u64) -> Cluster {
    let mut cluster = Cluster::serving();
    cluster.update((1, 1), LIST, &put(b"a", millis));
    cluster.settle();
    cluster
}

#[test]
fn r5_2_the_end_of_a_value_is_logged_before_a_read_finds_it_and_gates_the_read() {
    let mut cluster = with_value_until(100_000);
    cluster.it_is(99_999);
    assert!(is_found(&cluster.get_default(2, b"a")));
    assert_eq!(tombstones(&cluster, 1), 0);
    cluster.it_is(100_000);
    assert_eq!(cluster.get_default(2, b"a"), [], "it waits until the delete is synced");
    assert_eq!(cluster.get_default(3, b"a"), [], "and so does whoever comes later");
    cluster.carry();
    assert!(!is_found(&cluster.heard(2)) && !is_found(&cluster.heard(3)));
    cluster.settle();
    for node in [1, 2, 3] {
        assert_eq!(tombstones(&cluster, node), 1, "node {node}");
    }
    assert!(!is_found(&cluster.get_default(2, b"a")), "at once, now that all is synced");
}

#[test]
fn r5_2_an_update_that_finds_a_value_over_waits_and_runs_behind_the_delete() {
    let mut cluster = with_value_until(100_000);
    cluster.it_is(100_000);
    let update = Update::put_if(b"a", Condition::ABSENT, b"new");
    assert_eq!(cluster.update((2, 1), LIST, &update), []);
    cluster.carry();
    let heard = cluster.heard(2);
    let [Heard::Answer { synced: true, result, .. }] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(result[0], OutcomeCode::Done as u8);
    cluster.settle();
    assert!(is_found(&cluster.get_default(2, b"a")), "the new value has no end");
}

#[test]
fn values_that_are_over_go_in_the_background() {
    let mut cluster = Cluster::serving();
    for number in 1..=200_u64 {
        cluster.update((1, number), LIST, &put(&number.to_le_bytes(), 100_000 + number));
    }
    cluster.settle();
    cluster.it_is(100_100);
    cluster.settle();
    assert_eq!(tombstones(&cluster, 1), 100, "and no other");
    assert_eq!(tombstones(&cluster, 3), 100);
    assert!(is_found(&cluster.get_default(2, &101_u64.to_le_bytes())));
}

#[test]
fn deletes_do_not_run_ahead_of_backups_that_hear_nothing() {
    let mut cluster = Cluster::serving();
    let (key, count) = (vec![7; 2000], 1_500_u64);
    let key = |number: u64| [&key[..], &number.to_le_bytes()].concat();
    for number in 1..=count {
        cluster.update((1, number), ListVersion::NONE, &put(&key(number), 100_000));
        cluster.settle();
    }
    cluster.it_is(200_000);
    (0..200).for_each(|_| cluster.tick(1));
    let before = tombstones(&cluster, 1);
    assert!((200..300).contains(&before), "{before} deletes, of which no backup knows");
    for _ in 0..100 {
        cluster.settle();
        cluster.tick(1);
    }
    assert_eq!(tombstones(&cluster, 1), count as usize);
}

#[test]
fn a_new_primary_ends_values_by_the_log_and_then_by_its_clock() {
    let mut cluster = with_value_until(100_000);
    cluster.fail_over_to(2);
    assert!(is_found(&cluster.get_default(2, b"a")));
    cluster.it_is(100_000);
    assert_eq!(cluster.get_default(3, b"a"), []);
    cluster.settle();
    assert!(!is_found(&cluster.heard(3)));
}
