//! The store's rules one by one: versions across deletes, drafts that fail late, tombstones that go, dropped tables.

use crate::common::Replica;
use kasha_store::SpareDraft;
use kasha_types::TableId;
use kasha_types::limits::VALUE_BYTES_MAX;
use kasha_wire::operation::{Bounds, CommandBuffer, ItemsBuffer, PartOperation, PartsBuffer};
use kasha_wire::outcome::Shape;
use kasha_wire::{Outcome, Read, Update};

const T: TableId = TableId(1);

/// Overwrites one key until this many segments are open: everything else of the segments behind stays as it is.
fn roll(replica: &mut Replica, segments: u32) {
    let target = replica.log.segment_behind(replica.log.end().offset).0 + segments;
    while replica.log.segment_behind(replica.log.end().offset).0 < target {
        replica.put(T, b"filler", &[7; 9000]);
    }
}

/// A tombstone names every segment that may hold an older entry of its key, not only that of the object it kills.
#[test]
fn r4_8_versions_go_on_across_deletes_and_old_entries_never_come_back() {
    let mut replica = Replica::default();
    assert_eq!(replica.put(T, b"gone", b"1"), 1);
    assert_eq!(replica.put(T, b"gone", b"2"), 2);
    assert_eq!(replica.delete(T, b"gone"), Outcome::Version(2));
    replica.put(T, b"early", b"keeps the first segment");
    roll(&mut replica, 1);
    assert_eq!(replica.put(T, b"gone", b"3"), 4);
    roll(&mut replica, 1);
    assert_eq!(replica.delete(T, b"gone"), Outcome::Version(4));
    replica.put(T, b"late", b"keeps the tombstone's segment");
    roll(&mut replica, 1);
    replica.free_segments();
    assert_eq!(replica.log.segments().map(|segment| segment.0.0).collect::<Vec<_>>(), [0, 2, 3]);
    assert_eq!(replica.raise_floor(), None, "the first segment holds older values, which the second tombstone names");
    assert_eq!(replica.counts(), (3, 1), "the first tombstone died by the value that came after it");
    assert_eq!(replica.restarted().read(T, &Read::Get { key: b"gone" }), Outcome::NotFound);
    assert_eq!(replica.restarted().put(T, b"gone", b"4"), 6);
}

/// The object and its tombstone in different segments, so that the object's can be freed; and a backup that holds the
/// log as it was before.
fn with_a_dropped_object() -> (Replica, Replica) {
    let mut replica = Replica::default();
    for version in 1..=20 {
        assert_eq!(replica.put(T, b"gone too", b"x"), version);
        if version <= 8 {
            replica.put(T, b"gone", b"x");
        }
    }
    roll(&mut replica, 1);
    assert_eq!(replica.delete(T, b"gone"), Outcome::Version(8));
    assert_eq!(replica.delete(T, b"gone too"), Outcome::Version(20));
    replica.put(T, b"late", b"keeps the tombstone's segment");
    roll(&mut replica, 1);
    let mut backup = Replica::default();
    backup.follow(&replica.log);
    replica.free_segments();
    (replica, backup)
}

#[test]
fn r4_8_a_tombstone_goes_when_the_segments_it_names_are_gone() {
    let (mut replica, _) = with_a_dropped_object();
    let live = replica.log.live_bytes();
    assert_eq!(replica.drop_graves(), 0, "not before the floor is logged");
    assert_eq!(replica.raise_floor(), Some(21));
    assert_eq!(replica.drop_graves(), 2);
    assert!(replica.log.live_bytes() < live);
    assert_eq!(replica.counts(), (2, 0));
    assert_eq!(replica.raise_floor(), None);
    assert_eq!(replica.put(T, b"gone", b"again"), 22);
    assert_eq!(replica.put(T, b"never seen before", b""), 22);
    assert_eq!(replica.put(T, b"late", b"has a value"), 2, "a key with a value does not feel the floor");
}

/// Found by the simulator (`bad_input` 500799): it was dropped with the others, though only the floor's entry was known to be
/// synced, and the next answer about its key did not wait.
#[test]
fn c1_a_tombstone_that_was_written_after_the_floor_stays_for_the_next_one() {
    let mut replica = Replica::default();
    replica.put(T, b"once", b"x");
    for version in 1..=5 {
        assert_eq!(replica.put(T, b"often", b"x"), version);
    }
    replica.delete(T, b"often");
    assert_eq!(replica.raise_floor(), Some(6));
    replica.delete(T, b"once");
    assert_eq!(replica.drop_graves(), 1);
    assert_eq!(replica.counts(), (0, 1), "its version is below the floor, and it is not known to be synced");
    assert_eq!(replica.raise_floor(), Some(6));
    assert_eq!(replica.drop_graves(), 1);
}

/// A primary dropped the tombstone; its successor's log still holds it, and no word of the drop. Both give the key the
/// same version, else a witness's replay would give another result than the client was told.
#[test]
fn r4_8_a_successor_gives_the_same_version_as_who_dropped_the_tombstone() {
    let (mut primary, mut backup) = with_a_dropped_object();
    primary.raise_floor();
    backup.follow(&primary.log);
    let mut restarted = primary.restarted();
    primary.drop_graves();
    assert_eq!((primary.counts().1, backup.counts().1, restarted.counts().1), (0, 2, 2));
    let told = primary.put(T, b"gone", b"again");
    assert_eq!(backup.put(T, b"gone", b"again"), told);
    assert_eq!(restarted.put(T, b"gone", b"again"), told);
}

#[test]
fn a_follower_forgets_tombstones_with_their_segment() {
    let (mut primary, mut backup) = with_a_dropped_object();
    backup.follow(&primary.log);
    primary.raise_floor();
    primary.drop_graves();
    primary.put(T, b"late", b"lets the tombstone's segment go");
    roll(&mut primary, 1);
    primary.free_segments();
    assert_eq!(backup.counts().1, 2);
    backup.follow(&primary.log);
    assert_eq!(backup.counts(), primary.counts());
    assert_eq!(backup.log.live_bytes(), primary.log.live_bytes());
    assert_eq!(backup.put(T, b"gone", b""), primary.put(T, b"gone", b""));
}

#[test]
fn a_failed_multi_increment_changes_nothing() {
    let mut replica = Replica::default();
    replica.put(T, b"text", b"no number");
    replica.put(T, b"n", b"5");
    replica.delete(T, b"was");
    let (live, counts) = (replica.log.live_bytes(), replica.counts());
    let run = |replica: &mut Replica, items: &[(&[u8], i64)]| {
        let list = ItemsBuffer::deltas(items.iter().copied());
        let (result, changes) = replica.execute_raw(T, &Update::MultiIncrement { deltas: list.as_items() });
        (Outcome::decode(Shape::Numbers, &result).unwrap(), changes)
    };
    let failed = run(&mut replica, &[(b"n", 1), (b"new", 2), (b"n", 3), (b"was", 1), (b"text", 1)]);
    assert_eq!(failed, (Outcome::NotANumber(4), false));
    let failed = run(&mut replica, &[(b"n", i64::MAX - 5), (b"n", 1)]);
    assert_eq!(failed, (Outcome::Overflow(1), false));
    assert_eq!(replica.counts(), counts);
    assert_eq!(replica.log.live_bytes().abs_diff(live) % 8, 0);
    assert_eq!(replica.read(T, &Read::Get { key: b"n" }), Outcome::Value(1, b"5".to_vec()));
    assert_eq!(replica.read(T, &Read::Get { key: b"new" }), Outcome::NotFound);
    let worked = run(&mut replica, &[(b"n", 1), (b"new", 2), (b"n", 3)]);
    assert_eq!(worked, (Outcome::Numbers(vec![(6, 2), (2, 1), (9, 3)]), true));
    let again = replica.restarted();
    assert_eq!(again.values(T, &[b"n", b"new", b"text"]), replica.values(T, &[b"n", b"new", b"text"]));
    assert_eq!(again.log.live_bytes(), replica.log.live_bytes());
}

#[test]
fn an_increment_that_would_leave_its_bounds_changes_nothing() {
    let mut replica = Replica::default();
    let mut within = |key: &[u8], delta, least, most| {
        let bounds = Bounds::new(least, most).expect("in order");
        let (result, changes) = replica.execute_raw(T, &Update::increment_within(key, delta, bounds));
        (Outcome::decode(Shape::Number, &result).unwrap(), changes)
    };
    assert_eq!(within(b"n", 3, 0, 2), (Outcome::OutOfBounds(0, 0), false), "without a value it is 0");
    assert_eq!(within(b"n", 2, 0, 2), (Outcome::Number(2, 1), true));
    assert_eq!(within(b"n", 1, 0, 2), (Outcome::OutOfBounds(2, 1), false));
    assert_eq!(within(b"n", -1, 5, 9), (Outcome::OutOfBounds(2, 1), false));
    assert_eq!(
        within(b"n", -1, 0, 0),
        (Outcome::Number(1, 2), true),
        "it falls, and the greatest number holds only what grows"
    );
    assert_eq!(within(b"n", i64::MAX, i64::MIN, i64::MAX), (Outcome::Overflow(0), false), "of 64 bits");
}

#[test]
fn a_dropped_table_takes_its_objects_and_no_others() {
    let mut replica = Replica::default();
    for key in [b"a", b"b", b"c"] {
        replica.put(TableId(1), key, b"one");
        replica.put(TableId(2), key, b"two");
    }
    replica.delete(TableId(1), b"a");
    assert!(replica.store.tables().eq([TableId(1), TableId(2)]));
    replica.drop_table(TableId(1));
    assert!(replica.store.tables().eq([TableId(2)]));
    for replica in [&replica, &replica.restarted()] {
        assert!(replica.values(TableId(1), &[b"a", b"b", b"c"]).iter().all(Option::is_none));
        assert!(replica.values(TableId(2), &[b"a", b"b", b"c"]).iter().all(Option::is_some));
        assert_eq!(replica.counts(), (3, 1));
    }
    assert_eq!(replica.restarted().log.live_bytes(), replica.log.live_bytes());
    replica.drop_table(TableId(9));
    assert_eq!(replica.counts(), (3, 1));
}

#[test]
fn an_append_stops_at_the_limit_of_values() {
    use kasha_log::{EntryKind, Log, LogConfig, Purpose, entry_bytes};
    use kasha_types::{ClusterTime, Epoch, ShardId};
    let mut log = Log::new(ShardId(0), LogConfig::new(64 * 1024 * 1024));
    let (mut store, mut spare, mut dead) = (kasha_store::Store::new(), SpareDraft::default(), Vec::new());
    let half = vec![1; VALUE_BYTES_MAX / 2];
    let mut append = |value: &[u8]| {
        let update = Update::append(b"k", value);
        let mut draft = store.draft(&log, (T, ClusterTime(0).into()), &update, std::mem::take(&mut spare));
        let mut group = log.begin(Epoch(1), draft.bytes() + entry_bytes(64), Purpose::Normal).unwrap();
        store.write(&mut group, &mut draft, &mut dead);
        spare = draft.into_spare();
        group.entry(EntryKind::Completion, 8);
        group.commit();
        Outcome::decode(Shape::Length, spare.result()).unwrap()
    };
    assert_eq!(append(&half), Outcome::Length(VALUE_BYTES_MAX as u64 / 2, 1));
    assert_eq!(append(&half), Outcome::Length(VALUE_BYTES_MAX as u64, 2));
    assert_eq!(append(b"x"), Outcome::TooLarge);
    assert_eq!(append(b""), Outcome::Length(VALUE_BYTES_MAX as u64, 3));
}

/// The record of the drop goes with its segment, the objects' own segment later: a replica that was restarted in between
/// finds the objects again, then loses their segment, and must live with both.
#[test]
fn objects_of_a_dropped_table_that_a_replay_brought_back_go_with_their_segment() {
    let dropped = TableId(2);
    let mut primary = Replica::default();
    let mut backup = Replica::default();
    primary.put(dropped, b"k", b"v");
    primary.put(T, b"early", b"stays in the first segment");
    roll(&mut primary, 1);
    primary.drop_table(dropped);
    roll(&mut primary, 2);
    backup.follow(&primary.log);
    primary.free_segments();
    backup.follow(&primary.log);
    assert_eq!(backup.log.segments().next().map(|segment| segment.0.0), Some(0));
    let mut backup = backup.restarted();
    assert!(backup.store.tables().any(|table| table == dropped), "brought back");
    primary.put(T, b"early", b"moves on");
    roll(&mut primary, 1);
    backup.follow(&primary.log);
    primary.free_segments();
    backup.follow(&primary.log);
    backup.log.bury();
    primary.drop_table(TableId(3));
    backup.follow(&primary.log);
    backup.drop_tables_but(&[T]);
    primary.drop_tables_but(&[T]);
    assert_eq!(backup.counts(), primary.counts());
}

/// So many changes of keys of their own, each of a value of half a megabyte.
fn batch_of(count: u8, value: &[u8]) -> PartsBuffer {
    let mut parts = PartsBuffer::default();
    (0..count).for_each(|key| parts.push(T, &PartOperation::Update(Update::put(&[key], value))));
    parts
}

#[test]
fn r10_17_a_batch_ends_before_what_does_not_fit_and_names_all_its_keys() {
    use kasha_log::{Log, LogConfig};
    use kasha_types::{ClusterTime, ShardId, key_hash};
    let log = Log::new(ShardId(0), LogConfig::new(64 * 1024 * 1024));
    let (store, large) = (kasha_store::Store::new(), vec![1; VALUE_BYTES_MAX]);
    let parts = batch_of(8, &large);
    let batch = parts.as_parts();
    let ran = |most| {
        let draft = store.draft_batch(&log, ClusterTime(0).into(), (batch, most), SpareDraft::default());
        let Outcome::Parts(results) = Outcome::decode(Shape::Parts, draft.result()).unwrap() else { unreachable!() };
        assert_eq!(results, vec![Outcome::Version(1); results.len()]);
        let hashes: Vec<_> = (0..8).map(|key| key_hash(T, &[key])).collect();
        assert_eq!(draft.footprint(), &hashes, "those that do not run, too");
        assert_eq!(draft.touched(), &hashes[..results.len()]);
        assert_eq!((draft.changed().count(), draft.is_early_end()), (results.len(), results.len() < 8));
        results.len()
    };
    assert_eq!((ran(0), ran(3)), (0, 3));
    assert_eq!(ran(8), 5, "of six mebibytes");
    let small = batch_of(3, b"v");
    let draft = store.draft_batch(&log, ClusterTime(0).into(), (small.as_parts(), 3), SpareDraft::default());
    assert!(!draft.is_early_end());
}

#[test]
fn a_part_of_a_batch_that_fails_keeps_no_other_from_running() {
    let mut replica = Replica::default();
    replica.put(T, b"text", b"no number");
    let mut parts = PartsBuffer::default();
    for key in [&b"a"[..], b"text", b"a"] {
        parts.push(T, &PartOperation::Update(Update::increment(key, 1)));
    }
    let (outcome, _) = replica.execute(T, &Update::Batch { batch: parts.as_parts() });
    assert_eq!(outcome, Outcome::Parts(vec![Outcome::Number(1, 1), Outcome::NotANumber(0), Outcome::Number(2, 2)]));
}

#[test]
fn a_query_ends_before_an_answer_that_finds_no_room() {
    use kasha_types::ClusterTime;

    let (mut replica, mut parts) = (Replica::default(), PartsBuffer::default());
    let value = vec![1; 50_000];
    replica.put(T, b"k", &value);
    (0..200).for_each(|_| parts.push(T, &PartOperation::Read(Read::Get { key: b"k" })));
    let draft =
        replica.store.query(&replica.log, ClusterTime(0).into(), (parts.as_parts(), u32::MAX), SpareDraft::default());
    let Outcome::Parts(results) = Outcome::decode(Shape::Parts, draft.result()).unwrap() else { unreachable!() };
    let fit = kasha_types::limits::RESULT_BYTES_MAX / (value.len() + 14);
    assert_eq!(results, vec![Outcome::Value(1, value); fit]);
}

/// The parts of a transaction, each a command.
fn commands(all: &[&[&[u8]]]) -> PartsBuffer {
    let mut parts = PartsBuffer::default();
    for words in all {
        let row = kasha_commands::find(words[0]).expect("a command");
        let command = CommandBuffer::new(row, words[1..].iter().copied()).expect("its words");
        parts.push(T, &PartOperation::Command(command.as_command()));
    }
    parts
}

fn run(replica: &mut Replica, all: &[&[&[u8]]]) {
    let parts = commands(all);
    replica.execute_raw(T, &Update::Transaction { parts: parts.as_parts() });
}

/// What a transaction has changed before its flush ends, too; what it changes behind it does not, and its versions go on above.
#[test]
fn r10_7_a_flush_ends_what_is_before_it_and_nothing_behind() {
    let mut replica = Replica::default();
    for key in [&b"a"[..], b"b", b"c", b"d"] {
        run(&mut replica, &[&[b"set", key, b"old", b"px", b"100"], &[b"append", key, b"er"]]);
    }
    replica.delete(T, b"d");
    run(
        &mut replica,
        &[
            &[b"set", b"a", b"1", b"px", b"50"],
            &[b"set", b"made", b"2", b"px", b"50"],
            &[b"flushdb", b"0"],
            &[b"append", b"a", b"x"],
            &[b"incr", b"b"],
            &[b"set", b"made", b"4"],
            &[b"del", b"made"],
            &[b"set", b"d", b"5"],
        ],
    );
    let value = |replica: &Replica, key: &[u8]| replica.values(T, &[key]).remove(0);
    let check = |replica: &Replica| {
        let text = |key: &[u8]| value(replica, key).map(|(_, value)| String::from_utf8(value).expect("text"));
        let told = [&b"a"[..], b"b", b"c", b"d", b"made"].map(text);
        assert_eq!(told, [Some("x"), Some("1"), None, Some("5"), None].map(|text| text.map(str::to_owned)));
        assert!(value(replica, b"a").is_some_and(|(version, _)| version > 3), "above what it had");
        assert_eq!((replica.store.keys_of(T), replica.counts().0), (3, 3));
    };
    check(&replica);
    check(&replica.restarted());
    assert!(replica.store.has_flushed(), "the index still leads to the third");
    replica.now = kasha_types::ClusterTime(1000);
    replica.expire();
    replica.sweep_all();
    check(&replica);
    assert_eq!(replica.store.stats().ending, 0);
    assert_eq!(replica.log.live_bytes(), replica.restarted().log.live_bytes());
}

/// A key that was absent when it was watched is checked as absent; one that had a value has another version, or none.
#[test]
fn r10_7_a_flush_of_nothing_leaves_no_entry_and_looks_at_everything() {
    let mut replica = Replica::default();
    assert_eq!(replica.flush(T), None);
    replica.put(T, b"k", b"v");
    assert!(replica.flush(T).is_some());
    assert_eq!(replica.flush(T), None);
    let parts = commands(&[&[b"flushdb", b"0"]]);
    let update = Update::Transaction { parts: parts.as_parts() };
    let draft = replica.store.draft(&replica.log, (T, replica.now.into()), &update, SpareDraft::default());
    assert!(draft.is_empty() && draft.is_told_synced() && !draft.flushes());
    assert!(draft.footprint().contains(&kasha_types::KeyHash::EVERYTHING));
}

/// Found by a review: a client that says to have begun at the end of all time ended each primary in turn.
#[test]
fn r10_12_an_end_behind_the_end_of_time_is_the_end_of_time() {
    let mut replica = Replica::default();
    replica.now = kasha_types::ClusterTime(u64::MAX);
    run(
        &mut replica,
        &[&[b"set", b"k", b"v", b"ex", b"10"], &[b"expire", b"k", b"10"], &[b"getex", b"k", b"px", b"5"]],
    );
    assert!(replica.values(T, &[b"k"])[0].is_some());
    assert_eq!(replica.store.stats().ending, 1);
}

/// Found by a review: a thousand times a value of a megabyte was put together before anybody asked how much that is.
#[test]
fn r11_14_what_nobody_is_answered_is_not_put_together() {
    let mut replica = Replica::default();
    replica.put(T, b"k", &vec![7; 40_000]);
    let words = [&[&b"mget"[..]][..], &[&b"k"[..]; 1000]].concat();
    let parts = commands(&[&words]);
    let draft = replica.store.query(&replica.log, replica.now.into(), (parts.as_parts(), 1), SpareDraft::default());
    let told = draft.result().len();
    let most = kasha_types::limits::RESULT_BYTES_MAX;
    assert!(told > most && told < most + 100_000, "{told}: refused, and no more than that");
    assert_eq!(draft.footprint().len(), 1000, "its answer would have waited for all of them");
}

#[test]
fn r11_14_one_request_compares_only_so_much() {
    let mut replica = Replica::default();
    replica.put(T, b"a", &[1; 1000]);
    let lcs: &[&[u8]] = &[b"lcs", b"a", b"a", b"len"];
    let parts = commands(&[lcs; 6]);
    let draft = replica.store.query(&replica.log, replica.now.into(), (parts.as_parts(), 6), SpareDraft::default());
    let replies: Vec<_> = kasha_wire::outcome::each_part(draft.result()).map(<[u8]>::to_vec).collect();
    let refused = replies.iter().filter(|reply| reply.windows(7).any(|word| word == b"send it")).count();
    assert_eq!((replies.len(), refused), (6, 2));
}

/// Whether a command of the Redis protocol changes anything.
fn changes(replica: &mut Replica, command: &str) -> bool {
    let words: Vec<_> = command.split(' ').map(str::as_bytes).collect();
    let command = CommandBuffer::of_words(&words).expect("a command");
    let mut parts = PartsBuffer::default();
    parts.push(T, &PartOperation::Command(command.as_command()));
    replica.execute_raw(T, &Update::Transaction { parts: parts.as_parts() }).1
}

/// Who watches a key is told of no change where Redis tells none.
#[test]
fn r10_7_bits_that_are_set_to_what_they_are_change_nothing() {
    let mut replica = Replica::default();
    for (command, changed) in [
        ("setbit k 7 0", true), // it makes the key
        ("setbit k 7 0", false),
        ("setbit k 7 1", true),
        ("setbit k 7 1", false),
        ("setbit k 8 0", true), // it makes the string longer
        ("bitfield k set u8 0 1", false),
        ("bitfield k overflow fail incrby u8 0 255", false),
        ("bitfield k incrby u1 #7 2", false),
        ("bitfield k incrby u1 #7 1", true),
        ("bitfield k set u8 0 1 set u8 0 0", true), // as Redis counts it
        ("bitfield k set u1 16 0", true),
        ("bitfield k get u1 99", false),
    ] {
        assert_eq!(changes(&mut replica, command), changed, "{command}");
    }
}
