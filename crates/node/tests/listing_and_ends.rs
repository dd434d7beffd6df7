//! What a listing, and the end of a value, have to do with transactions over several shards (R5.2, R8.4, R8.16).

use crate::common::cluster::{Cluster, LIST};
use crate::common::two_shards::{begun, begun_and_settled, distributed, is_settled, key, put, unsettled, word};
use crate::common::{Heard, TABLE};
use kasha_log::EntryKind;
use kasha_types::ListVersion;
use kasha_wire::message::Told;
use kasha_wire::operation::{Check, Condition, ItemsBuffer, Lifetime, PartOperation, ScanCursor};
use kasha_wire::outcome::Shape;
use kasha_wire::{Outcome, Read, Refusal, Update};

/// A page of all keys, if there is an answer.
fn page(heard: &[Heard]) -> Option<Vec<Vec<u8>>> {
    match heard {
        [Heard::Read(result)] => match Outcome::decode(Shape::Keys, result).expect("a page") {
            Outcome::Keys(page) => Some(page.keys.into_iter().map(|(_, key)| key).collect()),
            other => panic!("{other:?}"),
        },
        [] => None,
        other => panic!("{other:?}"),
    }
}

const ALL: Read<'_> = Read::Scan { cursor: ScanCursor::START, most: 100, prefix: b"" };

/// Found by a test of the shell: what a client had put in several shards was not in its listing.
#[test]
fn a_listing_waits_for_what_is_pending_when_it_comes() {
    let mut cluster = begun_and_settled();
    let (x, later, z) = (key("x", true), key("later", true), key("z", false));
    let body = distributed((2, 1), &[(TABLE, put(&x))], &[(TABLE, put(&z))]);
    cluster.send(2, ListVersion::NONE, &body);
    cluster.settle();
    assert_eq!(page(&cluster.read(7, TABLE, &ALL)), None, "the other participant may have executed it");
    // What is proposed after that is not waited for.
    let another = distributed((3, 1), &[(TABLE, put(&later))], &[(TABLE, put(&z))]);
    cluster.send(3, ListVersion::NONE, &another);
    cluster.settle();
    assert_eq!(page(&cluster.heard(7)), None);
    word(&mut cluster, 1, &body, Told::Proposed(1));
    cluster.settle();
    is_settled(&mut cluster, &body, 1_000_001);
    let shown = page(&cluster.heard(7)).expect("it is executed here, and settled");
    assert!(shown.contains(&x) && !shown.contains(&later), "{shown:?}");
}

/// The versions that a read of two rounds has found, if there is an answer.
fn versions(heard: &[Heard]) -> Option<Vec<u64>> {
    match heard {
        [Heard::Read(result)] => match Outcome::decode(Shape::Observed, result).expect("a round") {
            Outcome::Observed(keys) => Some(keys.into_iter().map(|(version, _)| version).collect()),
            other => panic!("{other:?}"),
        },
        [] => None,
        other => panic!("{other:?}"),
    }
}

/// Found by the demonstration: accounts that many transfers changed were not read for half a minute.
#[test]
fn r8_16_a_read_of_two_rounds_waits_for_what_is_pending_when_it_comes() {
    let mut cluster = begun_and_settled();
    let (x, y, z) = (key("x", true), key("y", true), key("z", false));
    let keys = ItemsBuffer::keys([&x[..], &y]);
    let round = Read::Observe { keys: keys.as_items() };
    let before = versions(&cluster.read(7, TABLE, &round)).expect("nothing is pending");
    let body = distributed((2, 1), &[(TABLE, put(&x))], &[(TABLE, put(&z))]);
    let another = distributed((3, 1), &[(TABLE, put(&y))], &[(TABLE, put(&z))]);
    let later = distributed((4, 1), &[(TABLE, put(&x)), (TABLE, put(&y))], &[(TABLE, put(&z))]);
    for (client, body) in [(2, &body), (3, &another)] {
        cluster.send(client, ListVersion::NONE, body);
    }
    cluster.settle();
    assert_eq!(versions(&cluster.read(7, TABLE, &round)), None, "the other participant may have executed both");
    // What is proposed after that is not waited for, also if the client asks again.
    cluster.send(4, ListVersion::NONE, &later);
    cluster.settle();
    assert_eq!(versions(&cluster.read(7, TABLE, &round)), None);
    word(&mut cluster, 1, &body, Told::Proposed(1));
    cluster.settle();
    is_settled(&mut cluster, &body, 1_000_001);
    assert_eq!(versions(&cluster.heard(7)), None, "one of them is pending still");
    word(&mut cluster, 1, &another, Told::Proposed(1));
    cluster.settle();
    is_settled(&mut cluster, &another, 1_000_002);
    let seen = versions(&cluster.heard(7)).expect("both are executed here, and settled");
    assert!(seen.iter().zip(&before).all(|(seen, before)| seen > before), "{seen:?} after {before:?}");
    assert_eq!(versions(&cluster.read(8, TABLE, &round)), None, "a round that comes now waits for the third");
    word(&mut cluster, 1, &later, Told::Proposed(1));
    cluster.settle();
    is_settled(&mut cluster, &later, 1_000_003);
    let last = versions(&cluster.heard(8)).expect("nothing is pending");
    assert!(last.iter().zip(&seen).all(|(last, seen)| last > seen), "{last:?} after {seen:?}");
}

/// A listing does not wait for all that it might meet. If those who write what it has shown waited for what it waits for, two
/// listings at two shards could make two transactions wait for each other for ever (seed 48 of `listing` did).
#[test]
fn r8_16_nobody_waits_for_what_a_listing_waits_for() {
    let mut cluster = begun_and_settled();
    let (x, shown, z) = (key("x", true), key("shown", true), key("z", false));
    cluster.update((4, 1), LIST, &Update::put(&shown, b"v"));
    cluster.settle();
    let first = unsettled(&mut cluster, &x, &z);
    cluster.read(7, TABLE, &ALL);
    cluster.settle();
    assert_eq!(page(&cluster.heard(7)), None, "it has seen what is not settled");
    cluster.heard(5);
    let mut heard = cluster.update((5, 1), LIST, &Update::put(&shown, b"w"));
    cluster.settle();
    heard.append(&mut cluster.heard(5));
    assert!(matches!(heard[..], [Heard::Answer { .. }, ..]), "a writer of another key waits for nobody: {heard:?}");
    is_settled(&mut cluster, &first, 1_000_001);
    assert!(page(&cluster.heard(7)).expect("all that it has seen is settled").contains(&shown));
}

#[test]
fn r5_2_a_value_does_not_end_under_what_is_pending() {
    let mut cluster = begun();
    let (ours, theirs) = (key("k", true), key("k", false));
    let lifetime = Lifetime::from_millis(100_000).expect("not 0");
    cluster.update((3, 1), LIST, &Update::put_expiring(&ours, lifetime, b"v"));
    cluster.settle();
    let has_value = Check::Meets { key: &ours, condition: Condition::Value(b"v") };
    let body = distributed((2, 1), &[(TABLE, PartOperation::Check(has_value))], &[(TABLE, put(&theirs))]);
    cluster.send(2, LIST, &body);
    cluster.settle();
    cluster.it_is(150_000);
    (0..5).for_each(|_| cluster.tick(50));
    let tombstones =
        |cluster: &Cluster| cluster.entries_on_file(1).iter().filter(|kind| **kind == EntryKind::Tombstone).count();
    assert_eq!(tombstones(&cluster), 0, "what is pending has seen the value");
    word(&mut cluster, 1, &body, Told::Proposed(1));
    cluster.settle();
    (0..5).for_each(|_| cluster.tick(50));
    cluster.settle();
    // R8.4: whoever found the key gone would have to wait for what has seen the value.
    assert_eq!(tombstones(&cluster), 0, "what has seen the value is executed, and not settled");
    let next = distributed((4, 1), &[(TABLE, put(&ours))], &[(TABLE, put(&theirs))]);
    let heard = cluster.send(4, ListVersion::NONE, &next);
    assert_eq!(heard, [Heard::Refused(Refusal::Busy)], "the value would never end under a steady load");
    is_settled(&mut cluster, &body, 1_000_001);
    cluster.it_is(150_001);
    (0..5).for_each(|_| cluster.tick(50));
    cluster.settle();
    assert_eq!(tombstones(&cluster), 1);
    assert_eq!(cluster.send(4, ListVersion::NONE, &next), [], "it is proposed");
}
