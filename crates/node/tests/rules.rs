//! Rules that take more than one core to break: three of them, whose frames are carried by hand.

use crate::common::cluster::{Cluster, LIST, member};
use crate::common::{Core, Files, Heard, SHARD, TABLE, configuration};
use kasha_exactly_once::ExpiryFloorEntryRef;
use kasha_log::{EntryKind, Log, LogConfig};
use kasha_machine::Endpoint;
use kasha_types::{ClientId, ClusterTime, ConnId, Epoch, ListVersion, NodeId, Slot, TableId};
use kasha_wire::frame::{FRAME_HEADER_BYTES, Kind};
use kasha_wire::hot::{Envelope, RequestView};
use kasha_wire::message::Report;
use kasha_wire::{
    AnyMessage, BodyHead, Configuration, Durability, Member, MemberState, Message, Refusal, ShardPhase, TableInfo,
    Tablet, Update, message,
};

/// Nobody records the update: its answer waits for a sync.
const UNRECORDED: ListVersion = ListVersion::NONE;

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Update<'a> {
    Update::put(key, value)
}

fn at_once(heard: &[Heard]) -> bool {
    matches!(heard, [Heard::Answer { synced: false, .. }])
}

fn synced(heard: &[Heard]) -> bool {
    matches!(heard, [Heard::Answer { synced: true, .. }])
}

#[test]
fn c1_an_update_that_touches_something_unsynced_is_not_answered_at_once() {
    let mut cluster = Cluster::serving();
    assert!(at_once(&cluster.update((1, 1), LIST, &put(b"a", b"1"))));
    assert_eq!(cluster.update((2, 1), LIST, &put(b"a", b"2")), []);
    assert!(at_once(&cluster.update((3, 1), LIST, &put(b"b", b"3"))), "another key");
    assert_eq!(cluster.update((4, 1), LIST, &Update::delete(b"b")), [], "also what was answered at once counts");
    // A key that was just deleted is unsynced, too (pitfall 2).
    assert_eq!(cluster.get_default(6, b"b"), [], "that it is not there waits");
    assert_eq!(cluster.update((5, 1), LIST, &put(b"b", b"5")), []);
    assert!(!cluster.get_default(7, b"c").is_empty(), "and no other");
    // The retry of an update that was answered at once: nothing is known of its witnesses now.
    assert_eq!(cluster.update((1, 1), LIST, &put(b"a", b"1")), []);
    cluster.carry();
    for client in [1, 2, 4, 5] {
        assert!(synced(&cluster.heard(client)), "{client}");
    }
    assert_eq!(cluster.heard(6), [Heard::Read(vec![2])], "as it was when it was read");
    assert!(at_once(&cluster.update((2, 2), LIST, &put(b"a", b"6"))), "all is synced");
}

#[test]
fn r6_1_without_all_witnesses_nothing_is_answered_before_it_is_synced() {
    let mut cluster = Cluster::serving();
    cluster.commit(|configuration| configuration.shards[0].witnesses.truncate(1));
    assert_eq!(cluster.update((1, 1), LIST, &put(b"a", b"1")), []);
    cluster.carry();
    assert!(synced(&cluster.heard(1)));
}

#[test]
fn d3_nothing_leaves_before_every_member_holds_it() {
    for (first, last) in [(2, 3), (3, 2)] {
        let mut cluster = Cluster::serving();
        assert_eq!(cluster.update((1, 1), UNRECORDED, &put(b"a", b"1")), []);
        assert!(cluster.carry_one(Kind::Append, 1, first) && cluster.carry_one(Kind::Append, 1, last));
        assert!(cluster.carry_one(Kind::Appended, first, 1));
        assert_eq!(cluster.heard(1), [], "one member does not hold it");
        cluster.tick(1);
        assert_eq!(cluster.heard(1), []);
        assert!(cluster.carry_one(Kind::Appended, last, 1));
        assert!(synced(&cluster.heard(1)));
    }
}

#[test]
fn d3_what_came_after_a_round_began_waits_for_the_next() {
    let mut cluster = Cluster::serving();
    assert_eq!(cluster.update((1, 1), UNRECORDED, &put(b"a", b"1")), []);
    assert_eq!(cluster.update((2, 1), UNRECORDED, &put(b"b", b"2")), []);
    for node in [2, 3] {
        assert!(cluster.carry_one(Kind::Append, 1, node) && cluster.carry_one(Kind::Appended, node, 1));
    }
    assert!(synced(&cluster.heard(1)));
    assert_eq!(cluster.heard(2), []);
    cluster.carry();
    assert!(synced(&cluster.heard(2)));
}

#[test]
fn d3_r5_3_a_member_answers_when_its_file_holds_it() {
    let mut cluster = Cluster::serving();
    cluster.cores[1].slow_disk = true;
    assert_eq!(cluster.update((1, 1), UNRECORDED, &put(b"a", b"1")), []);
    cluster.carry();
    cluster.settle();
    assert_eq!(cluster.heard(1), []);
    cluster.cores[1].slow_disk = false;
    cluster.settle();
    assert!(synced(&cluster.heard(1)));
    // Nor is the primary's own file any less.
    cluster.cores[0].slow_disk = true;
    assert_eq!(cluster.update((1, 2), UNRECORDED, &put(b"a", b"2")), []);
    cluster.settle();
    assert_eq!(cluster.heard(1), []);
    cluster.cores[0].slow_disk = false;
    cluster.settle();
    assert!(synced(&cluster.heard(1)));
}

#[test]
fn r6_2_closing_a_list_refuses_it_then_syncs_then_reports() {
    let mut cluster = Cluster::serving();
    assert!(at_once(&cluster.update((1, 1), LIST, &put(b"a", b"1"))));
    cluster.commit(|configuration| configuration.shards[0].closing = true);
    let old = [Heard::Refused(Refusal::OldWitnessList)];
    assert_eq!(cluster.update((2, 1), LIST, &put(b"b", b"2")), old);
    assert_eq!(cluster.update((2, 1), ListVersion(2), &put(b"b", b"2")), old, "the next one is not in force");
    assert_eq!(cluster.update((2, 1), UNRECORDED, &put(b"b", b"2")), [], "every answer is gated");
    assert_eq!(cluster.reports, [], "what was answered at once is not synced");
    cluster.tick(300);
    assert_eq!(cluster.reports, []);
    cluster.carry();
    assert!(synced(&cluster.heard(2)));
    cluster.tick(300);
    assert_eq!(cluster.reports, [Report::ListClosed { shard: SHARD, epoch: Epoch(1), list: LIST }]);
    assert_eq!(cluster.update((2, 2), LIST, &put(b"b", b"2")), old);
    cluster.commit(|configuration| {
        (configuration.shards[0].closing, configuration.shards[0].list) = (false, ListVersion(2));
    });
    assert_eq!(cluster.update((2, 2), LIST, &put(b"b", b"3")), old);
    assert_eq!(cluster.update((2, 2), UNRECORDED, &put(b"c", b"3")), []);
    assert!(at_once(&cluster.update((3, 1), ListVersion(2), &put(b"d", b"4"))));
}

const OTHER: TableId = TableId(2);

fn with_two_tables(cluster: &mut Cluster) {
    cluster.commit(|configuration| {
        configuration.tables.push(TableInfo { table: OTHER, name: "other".into() });
        let tablet = configuration.tablets[0];
        configuration.tablets.push(Tablet { table: OTHER, ..tablet });
    });
}

#[test]
fn r5_1_an_unsynced_dropped_table_overlaps_with_everything() {
    let mut cluster = Cluster::serving();
    with_two_tables(&mut cluster);
    let in_other = Core::body_with((1, 1), 1, None, &put(b"a", b"1"), |head| head.table = OTHER);
    assert!(at_once(&cluster.send(1, LIST, &in_other)));
    cluster.settle();
    cluster.commit(|configuration| {
        configuration.tables.truncate(1);
        configuration.tablets.truncate(1);
    });
    assert_eq!(cluster.update((2, 1), LIST, &put(b"never touched", b"2")), []);
    assert_eq!(cluster.get_default(3, b"never read"), []);
    cluster.carry();
    assert!(synced(&cluster.heard(2)));
    assert!(matches!(&cluster.heard(3)[..], [Heard::Read(_)]));
    assert!(at_once(&cluster.update((2, 2), LIST, &put(b"b", b"2"))));
    let again = Core::body_with((1, 2), 2, None, &put(b"a", b"1"), |head| head.table = OTHER);
    assert_eq!(cluster.send(1, LIST, &again), [Heard::Refused(Refusal::WrongShard)]);
    assert!(cluster.entries_on_file(2).contains(&EntryKind::TableDropped));
}

/// An increment under an operation key that lives until `not_after`.
fn keyed(rpc: (u64, u64), not_after: u64) -> Vec<u8> {
    Core::body_with(rpc, rpc.1, Some(b"order-42"), &Update::increment(b"n", 1), |head| {
        head.not_after = ClusterTime(not_after);
    })
}

#[test]
fn r5_2_an_operation_key_s_expiry_is_logged_before_it_is_observed_and_gates_who_observes_it() {
    let mut cluster = Cluster::serving();
    assert!(at_once(&cluster.send(1, LIST, &keyed((1, 1), 100_000))));
    cluster.settle();
    cluster.it_is(150_000);
    // It touches no unsynced key but the operation key itself.
    assert_eq!(cluster.send(2, LIST, &keyed((2, 1), 300_000)), []);
    cluster.carry();
    assert!(synced(&cluster.heard(2)));
    cluster.settle();
    for node in [1, 2, 3] {
        let entries = cluster.entries_on_file(node);
        let about_keys: Vec<_> = entries
            .into_iter()
            .filter(|kind| matches!(kind, EntryKind::OperationKey | EntryKind::OperationKeyDropped))
            .collect();
        let logged = [EntryKind::OperationKey, EntryKind::OperationKeyDropped, EntryKind::OperationKey];
        assert_eq!(about_keys, logged, "node {node}");
    }
}

#[test]
fn r5_2_expiry_in_the_background_gates_who_finds_the_key_gone() {
    let mut cluster = Cluster::serving();
    assert!(at_once(&cluster.send(1, LIST, &keyed((1, 1), 100_000))));
    cluster.settle();
    cluster.it_is(150_000);
    cluster.tick(200);
    assert_eq!(cluster.send(2, LIST, &keyed((2, 1), 300_000)), []);
    cluster.carry();
    assert!(synced(&cluster.heard(2)));
}

/// Found by a reading: 32 keys went in each round of housekeeping, fewer than a client uses.
#[test]
fn r5_2_operation_keys_expire_as_fast_as_they_are_used() {
    let mut cluster = Cluster::serving();
    for number in 1..=200_u64 {
        let (key, update) = (number.to_le_bytes(), Update::increment(b"n", 1));
        let body =
            Core::body_with((1, number), number, Some(&key), &update, |head| head.not_after = ClusterTime(100_000));
        cluster.send(1, LIST, &body);
    }
    cluster.settle();
    cluster.it_is(150_000);
    (0..20).for_each(|_| cluster.tick(1));
    let dropped = |kind: &&EntryKind| **kind == EntryKind::OperationKeyDropped;
    assert_eq!(cluster.entries_on_file(1).iter().filter(dropped).count(), 200);
}

/// Node 2 is promoted; node 1 hears of it.
fn depose(cluster: &mut Cluster) {
    cluster.commit(|configuration| {
        let shard = &mut configuration.shards[0];
        (shard.epoch, shard.primary, shard.phase) = (Epoch(2), NodeId(2), ShardPhase::Recovering);
        shard.recover_from = vec![NodeId(1), NodeId(2), NodeId(3)];
    });
}

#[test]
fn r3_1_losing_the_role_drops_what_was_held() {
    let mut cluster = Cluster::serving();
    assert_eq!(cluster.update((1, 1), UNRECORDED, &put(b"a", b"1")), []);
    assert_eq!(cluster.get_default(2, b"a"), []);
    assert!(!cluster.cores[0].held.is_empty());
    depose(&mut cluster);
    assert!(cluster.cores[0].held.is_empty());
    cluster.carry(); // both backups have it, and say so: too late
    cluster.settle();
    assert_eq!((cluster.heard(1), cluster.heard(2)), (vec![], vec![]));
}

#[test]
fn f1_a_read_without_a_lease_waits_for_a_round_that_began_after_it() {
    let mut cluster = Cluster::serving();
    assert!(at_once(&cluster.update((1, 1), LIST, &put(b"a", b"1"))));
    cluster.settle();
    assert!(matches!(&cluster.get_default(2, b"a")[..], [Heard::Read(_)]));
    cluster.tick(61_000);
    cluster.carry();
    // An update makes a round that is under way when the read comes.
    assert_eq!(cluster.update((1, 2), UNRECORDED, &put(b"b", b"2")), [], "updates need no lease");
    assert_eq!(cluster.get_default(2, b"a"), []);
    for node in [2, 3] {
        assert!(cluster.carry_one(Kind::Append, 1, node) && cluster.carry_one(Kind::Appended, node, 1));
    }
    assert!(synced(&cluster.heard(1)));
    assert_eq!(cluster.heard(2), [], "that round began before the read came");
    assert!(cluster.carry_one(Kind::Append, 1, 2) && cluster.carry_one(Kind::Appended, 2, 1));
    assert_eq!(cluster.heard(2), [], "one member has not confirmed");
    cluster.carry();
    assert!(matches!(&cluster.heard(2)[..], [Heard::Read(_)]));
    // A deposed primary gets no such round.
    assert_eq!(cluster.get_default(2, b"a"), []);
    promote_behind_the_back_of_node_1(&mut cluster);
    cluster.settle();
    assert_eq!(cluster.heard(2), []);
}

/// Nodes 2 and 3 know of the next term; node 1 does not.
fn promote_behind_the_back_of_node_1(cluster: &mut Cluster) {
    let mut next = cluster.configuration.clone();
    next.version.0 += 1;
    let shard = &mut next.shards[0];
    (shard.epoch, shard.primary, shard.phase) = (Epoch(2), NodeId(2), ShardPhase::Recovering);
    shard.recover_from = vec![NodeId(1), NodeId(2), NodeId(3)];
    for node in [2, 3] {
        let configuration = next.clone();
        cluster.on(node, |core| {
            core.message(message::ConfigurationIs {
                level: kasha_wire::Level::FIRST,
                unix_origin: kasha_wire::Later::absent(),
                configuration,
            })
        });
    }
    cluster.on_the_way.retain(|carried| carried.from != NodeId(1) || carried.kind == Kind::Append);
}

#[test]
fn d1_too_few_members_take_no_updates_and_answer_reads() {
    let mut cluster = Cluster::serving();
    assert!(at_once(&cluster.update((1, 1), LIST, &put(b"a", b"1"))));
    cluster.settle();
    cluster.commit(|configuration| {
        configuration.min_backups = 2;
        configuration.shards[0].members.truncate(2);
    });
    let too_few = [Heard::Refused(Refusal::TooFewMembers)];
    assert_eq!(cluster.update((1, 2), UNRECORDED, &put(b"a", b"2")), too_few);
    assert_eq!(cluster.update((1, 2), LIST, &put(b"a", b"2")), too_few);
    assert!(matches!(&cluster.get_default(2, b"a")[..], [Heard::Read(_)]));
    cluster.settle();
    cluster.commit(|configuration| configuration.shards[0].members.push(member(3)));
    assert!(at_once(&cluster.update((1, 2), LIST, &put(b"a", b"2"))));
}

/// "An operator may set it lower": while the shard serves.
#[test]
fn d1_fewer_members_are_enough_when_the_operator_says_so() {
    let mut cluster = Cluster::serving_of(2);
    cluster.commit(|configuration| configuration.shards[0].members.truncate(2));
    assert_eq!(cluster.update((1, 1), UNRECORDED, &put(b"a", b"1")), [Heard::Refused(Refusal::TooFewMembers)]);
    cluster.commit(|configuration| configuration.min_backups = 1);
    assert_eq!(cluster.update((1, 1), UNRECORDED, &put(b"a", b"1")), []);
    cluster.settle();
    assert!(synced(&cluster.heard(1)));
}

#[test]
fn r7_2_a_joiner_counts_for_syncs_and_the_old_set_does_not() {
    let mut cluster = Cluster::serving();
    cluster.commit(|configuration| configuration.shards[0].members.truncate(2));
    assert_eq!(cluster.update((1, 1), UNRECORDED, &put(b"a", b"1")), []);
    cluster.on_the_way.retain(|carried| carried.from != NodeId(3) && carried.to != NodeId(3));
    cluster.carry();
    assert!(synced(&cluster.heard(1)), "the committed set holds it");
    cluster.commit(|configuration| {
        let since = configuration.version;
        configuration.shards[0].members.push(Member { state: MemberState::Joining, since, ..member(3) });
    });
    cluster.settle();
    assert_eq!(cluster.update((1, 2), UNRECORDED, &put(b"a", b"2")), []);
    assert!(cluster.carry_one(Kind::Append, 1, 2) && cluster.carry_one(Kind::Appended, 2, 1));
    assert_eq!(cluster.heard(1), []);
    assert!(cluster.carry_one(Kind::Append, 1, 3) && cluster.carry_one(Kind::Appended, 3, 1));
    assert!(synced(&cluster.heard(1)));
    assert!(cluster.reports.contains(&Report::Copied { shard: SHARD, epoch: Epoch(1), node: NodeId(3) }));
}

#[test]
fn r4_6_a_refusal_for_a_floor_leaves_when_the_floor_is_synced() {
    let mut cluster = Cluster::serving();
    assert!(at_once(&cluster.update((1, 1), LIST, &put(b"a", b"1"))));
    cluster.it_is(600_000);
    cluster.settle();
    let verdict = |cluster: &mut Cluster| {
        let expired = vec![ClientId(1)];
        let message = message::LeaseVerdict {
            cluster_time: ClusterTime(600_000),
            expired,
            alive: Vec::new(),
            view: kasha_types::ViewNumber(1),
        };
        cluster.on(1, |core| core.message(message));
    };
    verdict(&mut cluster);
    assert_eq!(cluster.update((1, 2), LIST, &put(b"b", b"2")), [], "the floor may be lost again");
    // What has run is answered whatever has become of the lease: its record is still there (pitfall 5).
    assert_eq!(cluster.update((1, 1), UNRECORDED, &put(b"a", b"1")), []);
    cluster.carry();
    let (refused, answered) = (Heard::Refused(Refusal::LeaseExpired), cluster.heard(1));
    assert!(matches!(&answered[..], [first, Heard::Answer { .. }] if *first == refused), "{answered:?}");
    cluster.settle();
    assert_eq!(cluster.update((1, 1), UNRECORDED, &put(b"a", b"1")), [refused], "now the records are gone");
    assert_eq!(cluster.entries_on_file(3).iter().filter(|&&kind| kind == EntryKind::ExpiryFloor).count(), 1);
}

#[test]
fn r4_6_a_refusal_for_a_floor_that_is_lost_is_never_told() {
    let mut cluster = Cluster::serving();
    assert!(at_once(&cluster.update((1, 1), LIST, &put(b"a", b"1"))));
    cluster.it_is(600_000);
    cluster.settle();
    let expired = vec![ClientId(1)];
    let message = message::LeaseVerdict {
        cluster_time: ClusterTime(600_000),
        expired,
        alive: Vec::new(),
        view: kasha_types::ViewNumber(1),
    };
    cluster.on(1, |core| core.message(message));
    assert_eq!(cluster.update((1, 2), LIST, &put(b"b", b"2")), []);
    cluster.on_the_way.clear();
    depose(&mut cluster);
    cluster.settle();
    assert_eq!(cluster.heard(1), []);
}

#[test]
fn a_segment_that_the_primary_frees_is_freed_on_the_backups_too() {
    let mut cluster = Cluster::serving();
    let value = vec![b'x'; 100_000];
    for sequence in 1..=60 {
        cluster.update((1, sequence), LIST, &put(b"k", &value));
        cluster.carry();
    }
    assert_eq!(cluster.segments_on_file(2).first(), Some(&0), "housekeeping has not run");
    cluster.settle();
    cluster.settle();
    // The word of it is synced: the next append tells the backups so.
    cluster.update((2, 1), LIST, &put(b"other", b"v"));
    cluster.settle();
    let left = cluster.segments_on_file(1);
    assert!(matches!(left[..], [0, newest] if newest >= 5), "the first holds the epoch's start: {left:?}");
    assert_eq!((cluster.segments_on_file(2), cluster.segments_on_file(3)), (left.clone(), left));
    assert!(matches!(&cluster.get(2, TABLE, b"k")[..], [Heard::Read(_)]));
}

/// Client 7's witnesses take it, and the primary does not.
fn record_refused(cluster: &mut Cluster, body: &[u8]) {
    record_refused_for(cluster, body, Refusal::WrongShard);
}

/// The same, where the primary says why.
fn record_refused_for(cluster: &mut Cluster, body: &[u8], why: Refusal) {
    let envelope =
        Envelope { shard: SHARD, epoch: Epoch(1), list: LIST, cluster_time: ClusterTime(0), attempt: 1, turn: None };
    let mut frame = Vec::new();
    RequestView::encode(Kind::Record, &envelope, body, &mut frame);
    for node in [2, 3] {
        cluster.on(node, |core| core.frame_from(Endpoint::Conn(ConnId(7)), Kind::Record, &frame));
    }
    assert_eq!(cluster.send(7, LIST, body), [Heard::Refused(why)]);
}

/// Found by scenarios `list_change`, seed 1534, and `operation_keys`, 1320: what a primary had refused for want of memory its
/// witnesses held and named as a suspect, and a suspect had the reserve of the deletes to itself. It used the reserve up, and no
/// delete or cancel found room any more.
#[test]
fn r5_16_a_suspect_does_not_use_the_reserve_of_deletes() {
    let mut cluster = Cluster::serving();
    let (large, small, mut sequence) = (vec![b'x'; 100_000], vec![b'x'; 1000], 0);
    for value in [&large, &small] {
        loop {
            sequence += 1;
            let key = format!("k{sequence}");
            let heard = cluster.update((1, sequence), UNRECORDED, &put(key.as_bytes(), value));
            match heard[..] {
                [Heard::Refused(Refusal::OutOfMemory)] => break,
                [] => cluster.settle(), // it is parked
                _ => cluster.carry(),
            }
        }
    }
    record_refused_for(&mut cluster, &Core::body((7, 1), 1, None, &put(b"suspect", &small)), Refusal::OutOfMemory);
    let mut is_suspect = false;
    for _ in 0..80 {
        sequence += 1;
        cluster.update((1, sequence), LIST, &Update::delete(b"absent"));
        cluster.tick(6);
        while let Some(carried) = cluster.on_the_way.pop_front() {
            let done = message::GcDone::decode(&carried.frame[FRAME_HEADER_BYTES..]);
            is_suspect |= done.is_ok_and(|done| !done.suspects.is_empty());
            cluster.arrive(carried);
        }
    }
    assert!(is_suspect, "the witnesses never asked");
    let absent = |heard: &[Heard]| matches!(heard, [Heard::Read(result)] if result[0] != 0);
    let heard = cluster.get_default(7, b"suspect");
    assert!(absent(&heard), "it ran, though there was no room");
}

/// Adds a table that this shard has all of.
fn add_table(configuration: &mut Configuration, table: TableId) {
    configuration.tables.push(TableInfo { table, name: "new".into() });
    configuration.tablets.push(Tablet { table, first: Slot(0), last: Slot(16_383), shard: SHARD });
}

/// Found by a review: the primary, which had not heard of the table, named such a suspect as one to drop. The word came
/// to the witnesses after the table had come to the primary, which had run the next attempt on their new acceptance.
#[test]
fn c3_a_suspect_of_a_table_that_is_not_known_yet_is_not_dropped() {
    let mut cluster = Cluster::serving();
    let table = TableId(TABLE.0 + 1);
    let mut with_table = cluster.configuration.clone();
    with_table.version = with_table.version.next();
    add_table(&mut with_table, table);
    for node in [2, 3] {
        cluster.on(node, |core| {
            core.message(message::ConfigurationIs {
                level: kasha_wire::Level::FIRST,
                unix_origin: kasha_wire::Later::absent(),
                configuration: with_table.clone(),
            })
        });
    }
    let body = Core::body_with((7, 1), 1, None, &put(b"k", b"v"), |head| head.table = table);
    record_refused(&mut cluster, &body);
    let mut is_suspect = false;
    for sequence in 1..=80 {
        cluster.update((1, sequence), LIST, &put(b"other", b"1"));
        cluster.tick(6);
        while let Some(carried) = cluster.on_the_way.pop_front() {
            match AnyMessage::decode(&carried.frame[FRAME_HEADER_BYTES..]) {
                Ok(AnyMessage::GcDone(message::GcDone { suspects, .. })) => is_suspect |= !suspects.is_empty(),
                Ok(AnyMessage::Gc(message::Gc { entries, .. })) => {
                    assert!(entries.iter().all(|entry| entry.rpc.client != ClientId(7)))
                }
                _ => {}
            }
            cluster.arrive(carried);
        }
    }
    assert!(is_suspect, "the witnesses never asked");
}

/// Found by a review: the old primary still had the record, the new one had dropped it where the log says so.
#[test]
fn r4_6_of_a_client_that_came_back_before_the_floor_was_synced_both_primaries_know_the_same() {
    let mut cluster = Cluster::serving();
    let first = Core::body((1, 1), 1, None, &Update::increment(b"a", 1));
    cluster.send(1, LIST, &first);
    cluster.it_is(600_000);
    cluster.settle();
    let (cluster_time, expired) = (ClusterTime(600_000), vec![ClientId(1)]);
    cluster.on(1, |core| {
        core.message(message::LeaseVerdict {
            cluster_time,
            expired,
            alive: Vec::new(),
            view: kasha_types::ViewNumber(1),
        })
    });
    let renewed = |head: &mut BodyHead| head.lease_expiry = ClusterTime(800_000);
    let second = Core::body_with((1, 2), 1, None, &Update::increment(b"b", 1), renewed);
    assert!(at_once(&cluster.send(1, LIST, &second)));
    cluster.settle();
    let retry = |cluster: &mut Cluster, body: &[u8]| {
        let mut heard = cluster.send(1, UNRECORDED, body);
        cluster.settle();
        heard.append(&mut cluster.heard(1));
        heard
    };
    let refused = [Heard::Refused(Refusal::LeaseExpired)];
    assert_eq!(retry(&mut cluster, &first), refused);
    assert!(synced(&retry(&mut cluster, &second)));
    cluster.fail_over_to(2);
    assert_eq!(retry(&mut cluster, &first), refused);
    assert!(synced(&retry(&mut cluster, &second)));
}

/// Found by a review: the first configuration in which it serves may say so already.
#[test]
fn r6_2_a_list_that_closes_as_service_begins_is_refused() {
    let mut core = Core::start(Files::default(), 1 << 30);
    core.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: configuration(1, 1, ShardPhase::Recovering),
    });
    let mut closing = configuration(2, 1, ShardPhase::Serving);
    closing.shards[0].closing = true;
    core.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: closing,
    });
    core.heartbeat_answered();
    let body = Core::body((1, 1), 1, None, &put(b"k", b"v"));
    let envelope =
        Envelope { shard: SHARD, epoch: Epoch(1), list: LIST, cluster_time: ClusterTime(0), attempt: 1, turn: None };
    let mut frame = Vec::new();
    RequestView::encode(Kind::Request, &envelope, &body, &mut frame);
    core.frame(Kind::Request, &frame);
    let heard: Vec<_> = core.shell.sent.iter().filter_map(|(_, frame)| Heard::of(frame)).collect();
    assert_eq!(heard, [Heard::Refused(Refusal::OldWitnessList)]);
}

/// Found by a review: a disk that hangs, and does not fail, kept the shard for ever, for its node was alive.
#[test]
fn a_node_whose_disk_hangs_falls_silent() {
    let mut cluster = Cluster::serving();
    cluster.commit(|configuration| configuration.durability = Durability::Fsync);
    cluster.settle();
    cluster.cores[0].slow_disk = true;
    assert_eq!(cluster.update((1, 1), UNRECORDED, &put(b"k", b"v")), []);
    let wait = |cluster: &mut Cluster| {
        let before = cluster.beats;
        (0..200).for_each(|_| {
            cluster.tick(30);
            cluster.carry();
        });
        cluster.beats - before
    };
    let alive = wait(&mut cluster);
    while wait(&mut cluster) > 0 {
        assert!(cluster.beats < 20 * alive, "after many leases it still says that it is alive");
    }
    cluster.cores[0].slow_disk = false;
    assert!(wait(&mut cluster) > 0, "it came back");
    assert!(synced(&cluster.heard(1)));
}

/// Found by a review: what is gone passed for what is not there yet.
#[test]
fn a_suspect_of_the_newest_table_that_was_dropped_goes() {
    let mut cluster = Cluster::serving();
    let table = TableId(TABLE.0 + 1);
    // Everybody knows the table; then everybody knows that it is gone.
    cluster.commit(|configuration| add_table(configuration, table));
    cluster.settle();
    cluster.commit(|configuration| {
        configuration.tables.retain(|info| info.table != table);
        configuration.tablets.retain(|tablet| tablet.table != table);
    });
    cluster.settle();
    let body = Core::body_with((7, 1), 1, None, &put(b"k", b"v"), |head| head.table = table);
    record_refused(&mut cluster, &body);
    let mut named = 0;
    for sequence in 1..=1000 {
        cluster.update((1, sequence), LIST, &put(b"other", b"1"));
        cluster.tick(6);
        while let Some(carried) = cluster.on_the_way.pop_front() {
            match AnyMessage::decode(&carried.frame[FRAME_HEADER_BYTES..]) {
                Ok(AnyMessage::GcDone(message::GcDone { suspects, .. })) => named += suspects.len(),
                Ok(AnyMessage::Gc(message::Gc { entries, .. }))
                    if entries.iter().any(|entry| entry.rpc.client == ClientId(7)) =>
                {
                    return;
                }
                _ => {}
            }
            cluster.arrive(carried);
        }
    }
    panic!("named {named} times, never dropped");
}

/// What the expiry floors in a node's files say, in order.
fn floors_on_file(cluster: &Cluster, node: u16) -> Vec<u64> {
    let config = LogConfig { segment_bytes: 1 << 20, memory_max_bytes: 1 << 26, reserve_percent: 5 };
    let (log, _) = Log::load(SHARD, config, cluster.segments(node));
    let entries = log.groups().flat_map(|group| group.entries);
    let floors = entries.filter(|(_, entry)| entry.kind == EntryKind::ExpiryFloor);
    floors.map(|(_, entry)| ExpiryFloorEntryRef::decode(entry.payload).expect("a floor").floor.0).collect()
}

/// Found by a review: the newest entry is the only one that lives, and it said what its own clients' leases say.
#[test]
fn r4_6_a_later_floor_says_no_less_than_an_earlier_one() {
    let mut cluster = Cluster::serving();
    assert!(at_once(&cluster.update((1, 1), LIST, &put(b"a", b"1"))));
    let shorter = |head: &mut BodyHead| head.lease_expiry = ClusterTime(150_000);
    assert!(at_once(&cluster.send(2, LIST, &Core::body_with((2, 1), 1, None, &put(b"b", b"2"), shorter))));
    cluster.it_is(600_000);
    cluster.settle();
    // Whose lease was the longer one is called expired first.
    for client in [1, 2] {
        let (cluster_time, expired) = (ClusterTime(600_000), vec![ClientId(client)]);
        cluster.on(1, |core| {
            core.message(message::LeaseVerdict {
                cluster_time,
                expired,
                alive: Vec::new(),
                view: kasha_types::ViewNumber(1),
            })
        });
        cluster.settle();
        cluster.settle();
    }
    assert_eq!(floors_on_file(&cluster, 3), [200_000, 200_000]);
}

/// A round, from its beginning to its end. Other frames stay on the way.
fn round(cluster: &mut Cluster) {
    cluster.tick(6);
    for node in [2, 3] {
        assert!(cluster.carry_one(Kind::Append, 1, node) && cluster.carry_one(Kind::Appended, node, 1));
    }
}

/// Found by a review: a witness whose gc was under way when a round began was told no more before the round after that
/// (decision 0006).
#[test]
fn names_that_missed_a_round_wait_for_no_other() {
    let mut cluster = Cluster::serving();
    for (client, key) in [(1, b"a"), (2, b"b")] {
        assert!(at_once(&cluster.update((client, 1), LIST, &put(key, b"v"))));
        round(&mut cluster);
    }
    // The first is named, and that is still on its way; the second waits. So much is written that a round is near, and
    // it begins.
    assert!(at_once(&cluster.update((3, 1), LIST, &put(b"long", &[0; 5000]))));
    cluster.tick(6);
    let mut named = Vec::new();
    while let Some(carried) = cluster.on_the_way.pop_front() {
        if let Ok(message::Gc { entries, .. }) = Message::decode(&carried.frame[FRAME_HEADER_BYTES..]) {
            named.extend(entries.iter().map(|entry| entry.rpc.client.0));
        }
        if carried.kind != Kind::Append {
            cluster.arrive(carried);
        }
    }
    named.sort_unstable();
    assert_eq!(named, [1, 1, 2, 2], "to both witnesses, before that round is over");
}
