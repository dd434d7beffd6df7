//! Tests of the small types: clocks saturate, positions compare by epoch first, ids and epochs grow, every key has a
//! slot.

use std::time::Duration;

use kasha_types::limits::SLOTS;
use kasha_types::*;

#[test]
fn clocks_stop_at_the_end_of_time() {
    assert_eq!(Tick(5).after(Duration::from_nanos(7)), Tick(12));
    assert_eq!(Tick(u64::MAX - 1).after(Duration::from_secs(1)), Tick(u64::MAX));
    assert_eq!(Tick(1).after(Duration::MAX), Tick(u64::MAX));
    assert_eq!(Tick(9).since(Tick(4)), Duration::from_nanos(5));
    assert_eq!(Tick(4).since(Tick(9)), Duration::ZERO);
    assert_eq!(ClusterTime(u64::MAX).after_millis(1), ClusterTime(u64::MAX));
}

/// Section 7: the greatest log is the one of the greatest epoch, then of the greatest end.
#[test]
fn positions_compare_by_epoch_first() {
    let at = |epoch, offset| LogPosition { epoch: Epoch(epoch), offset: LogEnd(offset) };
    assert!(at(1, 100) < at(2, 50) && at(2, 50) < at(2, 51));
}

/// What is synced is synced in whole groups: the least position that covers an entry is as good as its group's end.
#[test]
fn an_end_covers_the_entries_before_it() {
    let entry = EntryOffset(48);
    assert!(entry.end_after().covers(entry) && LogEnd::MAX.covers(entry));
    assert!(!LogEnd(48).covers(entry) && !LogEnd::START.covers(EntryOffset(0)));
    assert_eq!((LogEnd(9).bytes_since(LogEnd(4)), LogEnd(4).bytes_since(LogEnd(9))), (5, 0));
}

#[test]
fn the_next_one_is_greater() {
    assert_eq!(Epoch(1).next(), Epoch(2));
    assert_eq!(ListVersion::NONE.next(), ListVersion(1));
    assert_eq!(ConfigVersion(8).next(), ConfigVersion(9));
    assert_eq!(LocalPosition(0).next(), LocalPosition(1));
    assert_eq!(Round(0).next(), Round(1));
}

#[test]
fn a_later_start_is_greater_whatever_the_folder() {
    let incarnation = Incarnation::new(2, u32::MAX);
    assert_eq!((incarnation.starts(), incarnation.identity()), (2, u32::MAX));
    assert!(incarnation < Incarnation::new(3, 0));
}

#[test]
#[should_panic(expected = "epochs are exhausted")]
fn epochs_never_start_again() {
    let _ = Epoch(u32::MAX).next();
}

#[test]
fn every_key_has_a_slot_and_braces_alone_change_nothing() {
    let keys: [&[u8]; 8] = [b"", b"{", b"}", b"{}", b"}{", b"a{b", b"{}a{b}", &[0xff; 1000]];
    assert!(keys.iter().all(|key| slot_of(key).0 < SLOTS));
    assert_eq!(slot_of(b"x{tag}y"), slot_of(b"tag"));
    assert_eq!(slot_of(b"{a}{b}"), slot_of(b"a"), "the first tag counts");
    assert_ne!(slot_of(b"a{b"), slot_of(b"b"), "a tag has an end");
    let used: std::collections::BTreeSet<Slot> = (0..100_000_u32).map(|n| slot_of(&n.to_le_bytes())).collect();
    assert!(used.len() > usize::from(SLOTS) * 9 / 10);
}

#[test]
fn names_are_read_by_people() {
    let rpc = RpcId { client: ClientId(7), sequence: Sequence(9) };
    assert_eq!(format!("{rpc} {rpc:?}"), "client-7#9 client-7#9");
    assert_eq!(CoreId { node: NodeId(2), core: 1 }.to_string(), "node-2/1");
    assert_eq!(LogPosition { epoch: Epoch(3), offset: LogEnd(40) }.to_string(), "40@epoch-3");
    assert_eq!(format!("{:?} {:?}", Tick(1_000_000_002), ClusterTime(5)), "1.000000002s ct5ms");
    assert_eq!(format!("{:?} {:?}", SegmentId(4), KeyHash(10)), "segment-4 000000000000000a");
}
