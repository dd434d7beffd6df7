//! The rules of DESIGN section 6 and CURP 3 and 4, one by one.

use crate::common::*;
use kasha_types::limits::WITNESS_BODY_BYTES_MAX;
use kasha_types::{ClusterId, ClusterTime, KeyHash, ListVersion, RpcId, ShardId};
use kasha_witness::limits::{MARKED_MAX, REQUEST_KEYS_MAX, SCANNED_PER_GC_MAX, SUSPECTS_PER_GC_MAX};
use kasha_witness::{FILE_HEADER_BYTES, FILE_SLOT_BYTES, Identity, LoadError, Recorded, Sizes, Why, Witness};

#[test]
fn curp_3_2_2_requests_on_one_key_conflict() {
    let mut witness = small();
    assert_eq!(record(&mut witness, 1, &[4], b"x <- 1"), Ok(()));
    assert_eq!(record(&mut witness, 2, &[4], b"x <- 5"), Err(Why::Conflict));
    assert_eq!(record(&mut witness, 3, &[5], b"y <- 5"), Ok(()));
    assert_eq!(held(&witness), [(1, b"x <- 1".to_vec()), (3, b"y <- 5".to_vec())]);
}

#[test]
fn curp_4_2_a_full_set_rejects_and_overwrites_nothing() {
    let mut witness = small();
    assert_eq!(record(&mut witness, 1, &[0], b"a"), Ok(()));
    assert_eq!(record(&mut witness, 2, &[4], b"b"), Ok(()));
    assert_eq!(record(&mut witness, 3, &[8], b"c"), Err(Why::NoSlot));
    assert_eq!(record(&mut witness, 4, &[1], b"d"), Ok(()), "another set has room");
    assert_eq!(held(&witness).len(), 3);
}

#[test]
fn curp_4_2_a_request_takes_a_slot_per_key_or_none() {
    let mut witness = small();
    assert_eq!(record(&mut witness, 1, &[0, 4, 1], b"abc"), Ok(()));
    assert_eq!(witness.stats().occupied, 3);
    assert_eq!(record(&mut witness, 2, &[2, 8], b"de"), Err(Why::NoSlot), "key 8's set is full");
    assert_eq!(record(&mut witness, 3, &[3, 1], b"fg"), Err(Why::Conflict));
    assert_eq!(record(&mut witness, 4, &[6, 2, 10], b"hij"), Err(Why::NoSlot), "three keys of a set of two");
    assert_eq!(witness.stats().occupied, 3);
    assert_eq!(held(&witness), [(1, b"abc".to_vec())], "once, not once a key");
}

#[test]
fn curp_4_2_a_hash_named_twice_counts_once() {
    let mut witness = small();
    assert_eq!(record(&mut witness, 1, &[7, 7, 3, 7], b"a"), Ok(()));
    assert_eq!(witness.stats().occupied, 2);
    assert_eq!(record(&mut witness, 1, &[7, 7, 3, 7], b"a"), Ok(()));
    assert_eq!(held(&witness).len(), 1);
}

#[test]
fn section_6_the_same_body_again_is_accepted_without_change() {
    let mut witness = small();
    assert_eq!(record(&mut witness, 1, &[0, 1], b"a"), Ok(()));
    let mut file = new_file(&witness);
    flush(&mut witness, &mut file);
    assert_eq!(record(&mut witness, 1, &[0, 1], b"a"), Ok(()));
    assert_eq!(drain_records(&mut witness), []);
    assert_eq!((witness.stats().accepted, witness.stats().repeated, witness.stats().occupied), (1, 1, 2));
    assert_eq!(record(&mut witness, 1, &[0, 1], b"b"), Err(Why::ReusedId));
    gc(&mut witness, &[(1, 1)]);
    assert_eq!(record(&mut witness, 1, &[0, 1], b"a"), Err(Why::Conflict), "a part of it is gone: it is synced");
}

#[test]
fn pitfall_10_a_drop_needs_the_full_identity() {
    let mut witness = small();
    assert_eq!(record(&mut witness, 1, &[0], b"a"), Ok(()));
    assert_eq!(record(&mut witness, 2, &[4], b"b"), Ok(()));
    gc(&mut witness, &[(0, 2), (4, 1), (8, 1), (1, 1)]);
    assert_eq!(held(&witness).len(), 2);
    gc(&mut witness, &[(0, 1)]);
    assert_eq!(held(&witness), [(2, b"b".to_vec())]);
    assert_eq!(record(&mut witness, 3, &[0], b"c"), Ok(()));
    gc(&mut witness, &[(0, 1)]);
    assert_eq!(held(&witness).len(), 2, "a late gc of the predecessor drops nothing");
}

#[test]
fn limits_are_told_by_name() {
    let mut witness = Witness::new(IDENTITY, Sizes::default());
    let many: Vec<_> = (0..=REQUEST_KEYS_MAX as u64).collect();
    assert_eq!(record(&mut witness, 1, &many, b""), Err(Why::TooManyKeys));
    assert_eq!(record(&mut witness, 1, &many[1..], b""), Ok(()));
    assert_eq!(record(&mut witness, 2, &[], b""), Err(Why::NoKeys));
    assert_eq!(record(&mut witness, 2, &[1000], &[7; WITNESS_BODY_BYTES_MAX + 1]), Err(Why::TooLarge));
    assert_eq!(record(&mut witness, 2, &[1000], &[7; WITNESS_BODY_BYTES_MAX]), Ok(()));
    let stats = witness.stats();
    for why in Why::ALL {
        let expected = u64::from(matches!(why, Why::TooManyKeys | Why::NoKeys | Why::TooLarge));
        assert_eq!(stats.rejected(why), expected, "{why:?}");
    }
    assert_eq!((stats.accepted, stats.rejected_total()), (2, 3));
}

#[test]
fn every_reason_is_counted_as_itself() {
    for (at, why) in Why::ALL.into_iter().enumerate() {
        assert_eq!(why as usize, at);
    }
}

#[test]
fn r4_6_a_lease_at_or_below_the_floor_is_refused() {
    let mut witness = small();
    let accept = |witness: &mut Witness, sequence, expiry| {
        witness.record(rpc(1, sequence), &[KeyHash(sequence)], b"", ClusterTime(expiry)) == Recorded::Accepted
    };
    assert!(accept(&mut witness, 1, 50));
    witness.gc(&[], ClusterTime(60), &mut |_: RpcId, _: &[u8]| {});
    witness.gc(&[], ClusterTime(40), &mut |_: RpcId, _: &[u8]| {});
    assert!(!accept(&mut witness, 2, 60), "the floor never falls");
    assert!(accept(&mut witness, 2, 61));
    assert_eq!(witness.stats().rejected(Why::LeaseExpired), 1);
    assert_eq!(held(&witness).len(), 2, "what is held stays until it is named");
}

#[test]
fn curp_4_6_frozen_is_for_good_and_changes_nothing() {
    let mut witness = small();
    record(&mut witness, 1, &[0], b"a").unwrap();
    witness.freeze();
    assert_eq!(record(&mut witness, 1, &[0], b"a"), Err(Why::Frozen), "not even what it holds");
    for _ in 0..5 {
        assert!(gc(&mut witness, &[(0, 1)]).is_empty());
    }
    assert_eq!(held(&witness), [(1, b"a".to_vec())]);
    let mut file = new_file(&witness);
    flush(&mut witness, &mut file);
    let mut loaded = Witness::load(IDENTITY, witness.sizes(), &file, true).unwrap();
    assert!(loaded.is_frozen());
    assert_eq!(record(&mut loaded, 2, &[1], b"b"), Err(Why::Frozen));
    assert_eq!(held(&loaded), held(&witness));
}

#[test]
fn curp_3_7_a_read_commutes_unless_its_key_is_held() {
    let mut witness = small();
    record(&mut witness, 1, &[0, 5], b"a").unwrap();
    assert!(witness.commutes_with_read(&keys(&[4, 1])));
    assert!(!witness.commutes_with_read(&keys(&[4, 5])));
    gc(&mut witness, &[(0, 1), (5, 1)]);
    assert!(witness.commutes_with_read(&keys(&[0, 5])));
    witness.freeze();
    assert!(!witness.commutes_with_read(&keys(&[0, 5])));
}

#[test]
fn curp_4_5_a_request_that_survived_three_gcs_is_named() {
    let mut witness = small();
    record(&mut witness, 1, &[0, 1, 2], b"a").unwrap();
    assert_eq!(gc(&mut witness, &[]), []);
    record(&mut witness, 2, &[3], b"b").unwrap();
    assert_eq!(gc(&mut witness, &[]), []);
    assert_eq!(gc(&mut witness, &[]), [1], "once, although it has three slots");
    assert_eq!(gc(&mut witness, &[(0, 1), (1, 1)]), [1, 2], "its last slot is still in the way");
    assert_eq!(gc(&mut witness, &[(2, 1), (3, 2)]), []);
    assert_eq!(witness.stats().occupied, 0);
}

#[test]
fn curp_4_5_a_suspect_in_the_way_is_named_before_the_scan_reaches_it() {
    let sizes = Sizes::new(16 * SCANNED_PER_GC_MAX, 4);
    let last = u64::from(sizes.sets() - 1);
    for in_the_way_of in [last, last + 4 * u64::from(sizes.sets())] {
        let mut witness = Witness::new(IDENTITY, sizes);
        for way in 0..4 {
            record(&mut witness, 1 + way, &[last + way * u64::from(sizes.sets())], b"old").unwrap();
        }
        (0..3).for_each(|_| assert_eq!(gc(&mut witness, &[]), []));
        assert!(record(&mut witness, 9, &[in_the_way_of], b"new").is_err());
        let mut named = gc(&mut witness, &[]);
        named.sort_unstable();
        assert_eq!(named, if in_the_way_of == last { vec![1] } else { vec![1, 2, 3, 4] });
        assert_eq!(gc(&mut witness, &[]), [], "named once for a rejection");
    }
}

#[test]
fn curp_4_5_every_suspect_is_named_in_the_end() {
    let sizes = Sizes::new(8 * SCANNED_PER_GC_MAX, 4);
    let mut witness = Witness::new(IDENTITY, sizes);
    for sequence in 1..=u64::from(sizes.slots()) {
        record(&mut witness, sequence, &[sequence], b"old").unwrap();
    }
    let mut named = std::collections::BTreeSet::new();
    let by_scan = SUSPECTS_PER_GC_MAX - MARKED_MAX;
    for _ in 0..3 + sizes.slots() as usize / by_scan {
        // A client that keeps trying hot keys must not hold the scan up.
        for hash in 1..100 {
            record(&mut witness, 1_000_000, &[hash], b"new").unwrap_err();
        }
        let suspects = gc(&mut witness, &[]);
        assert!(suspects.len() <= SUSPECTS_PER_GC_MAX);
        named.extend(suspects);
    }
    assert_eq!(named.len(), sizes.slots() as usize);
}

/// What an acceptance waits for: offsets and lengths.
fn drain_records(witness: &mut Witness) -> Vec<(u64, usize)> {
    let mut writes = Vec::new();
    witness.drain_records(|offset, bytes| writes.push((offset, bytes.len())));
    writes
}

#[test]
fn r5_3_each_record_is_written_once_before_it_may_be_acknowledged() {
    let mut witness = small();
    assert_eq!(drain_records(&mut witness), []);
    record(&mut witness, 1, &[0, 1], b"abc").unwrap();
    let block = |slot: usize| (FILE_HEADER_BYTES + slot * FILE_SLOT_BYTES) as u64;
    assert_eq!(drain_records(&mut witness), [(block(0), 67), (block(2), 67)]);
    assert_eq!(drain_records(&mut witness), []);
    gc(&mut witness, &[(0, 1), (1, 1)]);
    assert_eq!(drain_records(&mut witness), [], "nothing waits for a dropped slot");
    assert!(witness.has_leftovers());
    record(&mut witness, 2, &[0], b"d").unwrap();
    let mut writes = Vec::new();
    witness.drain_dirty(|offset, bytes| writes.push((offset, bytes.len())));
    assert_eq!(writes, [(block(0), 65), (block(2), 64)]);
    assert!(!witness.has_leftovers());
}

#[test]
fn r5_5_a_request_that_lacks_one_of_its_slots_is_dropped_at_load() {
    for lost in [0, 1] {
        let mut witness = small();
        record(&mut witness, 1, &[0, 1], b"ab").unwrap();
        record(&mut witness, 2, &[2], b"c").unwrap();
        let mut file = new_file(&witness);
        let mut writes = 0;
        witness.drain_dirty(|offset, bytes| {
            if writes != lost {
                file[offset as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            writes += 1;
        });
        let loaded = reload(&witness, &file);
        assert_eq!(held(&loaded), [(2, b"c".to_vec())]);
        assert_eq!((loaded.stats().incomplete_at_load, loaded.stats().occupied), (1, 1));
        assert!(loaded.has_leftovers());
    }
}

#[test]
fn r5_5_a_torn_slot_is_dropped_at_load_and_spoils_no_other() {
    let mut witness = small();
    record(&mut witness, 1, &[0], b"abc").unwrap();
    record(&mut witness, 2, &[4], b"def").unwrap();
    let mut whole = new_file(&witness);
    flush(&mut witness, &mut whole);
    for at in (0..8).chain(8..10).chain(16..48).chain(64..67) {
        let mut file = whole.clone();
        file[FILE_HEADER_BYTES + at] ^= 0x10;
        let mut loaded = reload(&witness, &file);
        assert_eq!(held(&loaded), [(2, b"def".to_vec())], "byte {at}");
        assert_eq!(loaded.stats().torn_at_load, 1);
        assert_eq!(record(&mut loaded, 3, &[0], b"x"), Ok(()));
        flush(&mut loaded, &mut file);
        assert_eq!(held(&reload(&witness, &file)), [(3, b"x".to_vec()), (2, b"def".to_vec())]);
    }
}

#[test]
fn a_slot_counts_only_in_its_own_place_and_instance() {
    let mut witness = small();
    record(&mut witness, 1, &[0], b"abc").unwrap();
    let mut file = new_file(&witness);
    flush(&mut witness, &mut file);
    let slot = file[FILE_HEADER_BYTES..][..FILE_SLOT_BYTES].to_vec();
    let mut moved = new_file(&witness);
    moved[FILE_HEADER_BYTES + FILE_SLOT_BYTES..][..FILE_SLOT_BYTES].copy_from_slice(&slot);
    assert_eq!(reload(&witness, &moved).stats().torn_at_load, 1);
    let next = Witness::new(Identity { list: ListVersion(6), ..IDENTITY }, witness.sizes());
    let mut reused = new_file(&next);
    reused[FILE_HEADER_BYTES..][..FILE_SLOT_BYTES].copy_from_slice(&slot);
    assert_eq!(reload(&next, &reused).stats().torn_at_load, 1);
}

#[test]
fn a_dropped_request_may_reappear_and_is_named_again() {
    let mut witness = small();
    record(&mut witness, 1, &[0], b"old").unwrap();
    record(&mut witness, 9, &[4], b"other").unwrap();
    let mut file = new_file(&witness);
    flush(&mut witness, &mut file);
    gc(&mut witness, &[(0, 1)]);
    let mut loaded = reload(&witness, &file);
    assert_eq!(held(&loaded).len(), 2);
    (0..2).for_each(|_| assert_eq!(gc(&mut loaded, &[]), []));
    assert_eq!(gc(&mut loaded, &[]), [1, 9]);
    gc(&mut loaded, &[(0, 1)]);
    flush(&mut loaded, &mut file);
    assert_eq!(held(&reload(&witness, &file)), [(9, b"other".to_vec())]);
}

#[test]
fn a_record_that_came_again_after_its_gc_counts_once_at_load() {
    let mut witness = small();
    record(&mut witness, 1, &[0], b"first way").unwrap();
    record(&mut witness, 2, &[4], b"late").unwrap();
    let mut file = new_file(&witness);
    flush(&mut witness, &mut file);
    gc(&mut witness, &[(0, 1), (4, 2)]);
    record(&mut witness, 2, &[4], b"late").unwrap();
    flush_leaving_leftovers(&mut witness, &mut file);
    let loaded = reload(&witness, &file);
    assert_eq!(held(&loaded), [(2, b"late".to_vec())]);
    assert_eq!(loaded.stats().occupied, 1);
}

#[test]
fn a_foreign_file_is_named_as_what_it_is() {
    let witness = small();
    let sizes = witness.sizes();
    let file = new_file(&witness);
    let load = |identity, sizes, file: &[u8]| Witness::load(identity, sizes, file, false).map(|_| ()).unwrap_err();
    let expected = sizes.file_bytes();
    assert_eq!(load(IDENTITY, sizes, &[]), LoadError::WrongLength { bytes: 0, expected });
    let short = &file[..file.len() - 1];
    assert_eq!(load(IDENTITY, sizes, short), LoadError::WrongLength { bytes: expected - 1, expected });
    let with = |at: usize| {
        let mut other = file.clone();
        other[at] ^= 1;
        other
    };
    assert_eq!(load(IDENTITY, sizes, &with(0)), LoadError::ForeignMagic);
    assert_eq!(load(IDENTITY, sizes, &with(8)), LoadError::CorruptHeader, "a changed bit, and no other version's file");
    let mut other = with(8);
    let crc = crc32c::crc32c(&other[..40]);
    other[40..44].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(load(IDENTITY, sizes, &other), LoadError::OtherFormat(2));
    assert_eq!(load(IDENTITY, sizes, &with(24)), LoadError::CorruptHeader);
    assert_eq!(load(IDENTITY, sizes, &with(40)), LoadError::CorruptHeader);
    let other = ClusterId(12);
    assert_eq!(load(Identity { cluster: other, ..IDENTITY }, sizes, &file), LoadError::OtherCluster(IDENTITY.cluster));
    assert_eq!(load(Identity { shard: ShardId(4), ..IDENTITY }, sizes, &file), LoadError::OtherShard(IDENTITY.shard));
    let other = ListVersion(6);
    assert_eq!(load(Identity { list: other, ..IDENTITY }, sizes, &file), LoadError::OtherList(IDENTITY.list));
    assert_eq!(load(IDENTITY, Sizes::new(8, 4), &file), LoadError::OtherSizes { slots: 8, ways: 2 });
}
