//! Values that end (R5.2, R10.12), on three cores whose frames are carried by hand.

use std::time::Duration;

use crate::common::cluster::{Cluster, LIST};
use crate::common::{Core, Heard, ended};
use kasha_log::EntryKind;
use kasha_types::{ClusterTime, ListVersion};
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

/// A cluster that has heard two answers, 50 ms apart, of which the second says that it is 99,950.
fn that_counts_on_from_99_950(cluster: &mut Cluster) {
    cluster.it_is(99_900);
    cluster.tick(50);
    cluster.it_is(99_950);
}

#[test]
fn r10_12_a_value_ends_between_two_heartbeats() {
    let mut cluster = with_value_until(100_000);
    that_counts_on_from_99_950(&mut cluster);
    cluster.tick(52);
    assert!(is_found(&cluster.get_default(2, b"a")), "49.4 ms by a slow clock");
    cluster.on(1, |core| core.now = core.now.after(Duration::from_millis(1)));
    assert_eq!(tombstones(&cluster, 1), 0);
    assert_eq!(cluster.get_default(2, b"a"), [], "50.35 ms: it waits until the delete is synced");
    cluster.carry();
    assert!(!is_found(&cluster.heard(2)));
    cluster.settle();
    assert_eq!(tombstones(&cluster, 3), 1);
}

#[test]
fn r10_12_values_go_in_the_background_between_two_heartbeats() {
    let mut cluster = with_value_until(100_000);
    cluster.update((1, 2), LIST, &put(b"b", 100_300));
    that_counts_on_from_99_950(&mut cluster);
    cluster.settle();
    assert_eq!(tombstones(&cluster, 1), 1, "285 ms by a slow clock");
    cluster.settle();
    assert_eq!(tombstones(&cluster, 3), 2);
}

/// Answers of these tests grant 60 s.
#[test]
fn r10_12_no_time_passes_while_the_coordinator_is_silent_for_longer_than_a_lease() {
    let most = 99_950 + 60_000 / 20 * 19;
    let mut cluster = with_value_until(most + 1);
    cluster.update((1, 2), LIST, &put(b"b", most));
    that_counts_on_from_99_950(&mut cluster);
    cluster.tick(59_000);
    cluster.tick(100);
    assert_eq!(tombstones(&cluster, 1), 0, "by a slow clock");
    for _ in 0..10 {
        cluster.tick(60_000);
    }
    assert_eq!(tombstones(&cluster, 1), 1, "the other one is there still");
    cluster.it_is(most + 1);
    cluster.settle();
    assert_eq!(tombstones(&cluster, 1), 2);
}

#[test]
fn r10_12_what_was_counted_stays_when_the_coordinator_says_less() {
    let mut cluster = with_value_until(100_000);
    that_counts_on_from_99_950(&mut cluster);
    cluster.tick(53);
    cluster.it_is(99_960);
    // They had a moment to live when the client began, and it was over when they came.
    cluster.update((1, 2), LIST, &put(b"b", 100_000));
    cluster.update((1, 3), LIST, &put(b"c", 100_001));
    cluster.tick(100);
    cluster.settle();
    assert_eq!(tombstones(&cluster, 1), 2, "it neither goes back nor on");
    cluster.it_is(100_001);
    cluster.settle();
    assert_eq!(tombstones(&cluster, 1), 3);
}

/// What a core counts is for ends of values alone: operation keys and leases of clients go by what it has heard (R4.6, R4.9).
#[test]
fn r10_12_nothing_else_ends_by_what_is_counted() {
    let mut cluster = with_value_until(100_000);
    that_counts_on_from_99_950(&mut cluster);
    // Its operation key is good until 100,000, and so is the lease of this client.
    let increment = |sequence| {
        let update = Update::increment(b"n", 1);
        Core::body_with((2, sequence), sequence, Some(b"once"), &update, |head| {
            head.lease_expiry = ClusterTime(100_000)
        })
    };
    let results = |heard: Vec<Heard>| match &heard[..] {
        [Heard::Answer { result, .. }] => result.clone(),
        other => panic!("{other:?}"),
    };
    let first = results(cluster.send(2, LIST, &increment(1)));
    assert_eq!(first[0], OutcomeCode::Done as u8);
    cluster.tick(1_000);
    cluster.carry();
    assert_eq!(tombstones(&cluster, 1), 1, "the value has ended");
    assert_eq!(cluster.send(2, LIST, &increment(2)), [], "a hit waits until it is synced");
    cluster.carry();
    assert_eq!(results(cluster.heard(2)), first);
    cluster.it_is(100_001);
    let late = cluster.send(2, LIST, &increment(3));
    assert!(matches!(late[..], [Heard::Refused(_)]), "{late:?}");
}

#[test]
fn r10_12_a_replay_ends_what_was_over_when_its_request_was_begun() {
    ended::a_replay_ends_what_was_over_when_its_request_was_begun();
}

#[test]
fn r10_12_below_level_2_a_replay_ends_nothing() {
    ended::below_level_2_a_replay_ends_nothing();
}

#[test]
fn r10_12_a_replay_ends_nothing_else() {
    ended::a_replay_ends_nothing_else();
}

#[test]
fn r10_12_who_has_seen_what_was_over_is_told_it_synced() {
    ended::who_has_seen_what_was_over_is_told_it_synced();
}

#[test]
fn r10_12_a_replay_ends_nothing_before_its_time() {
    ended::a_replay_ends_nothing_before_its_time();
}
