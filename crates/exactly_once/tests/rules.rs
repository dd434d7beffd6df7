//! One test for each rule of DESIGN sections 4 and 13 that the tracker keeps.

use kasha_exactly_once::{LookUp, Place, Request, ScanCursor, Tracker};
use kasha_types::limits::OUTSTANDING_MAX;
use kasha_types::{AckedBelow, BodyHash, ClientId, ClusterTime, RpcId, Sequence};

const LEASE: ClusterTime = ClusterTime(1000);

fn rpc(client: u64, sequence: u64) -> RpcId {
    RpcId { client: ClientId(client), sequence: Sequence(sequence) }
}

fn request(client: u64, sequence: u64, acknowledgement: u64) -> Request {
    let acknowledgement = AckedBelow(acknowledgement);
    Request { rpc: rpc(client, sequence), body_hash: BodyHash(sequence), acknowledgement, lease_expiry: LEASE }
}

/// A tracker that knows client 1.
fn tracker() -> Tracker {
    let mut tracker = Tracker::new();
    tracker.prove(ClientId(1), LEASE);
    tracker
}

/// Completes with the sequence as place, and returns what died.
fn complete(tracker: &mut Tracker, request: &Request) -> Vec<Place> {
    assert_eq!(tracker.look_up(request), LookUp::New);
    let mut dead = Vec::new();
    tracker.complete(request, Place(request.rpc.sequence.0), |place| dead.push(place));
    tracker.assert_invariants();
    dead
}

/// A floor's entry behind all that is there names these clients. Returns what died.
fn expire(tracker: &mut Tracker, floor: ClusterTime, clients: impl IntoIterator<Item = ClientId>) -> Vec<Place> {
    let mut dead = Vec::new();
    clients.into_iter().for_each(|client| tracker.forget_before(client, Place(u64::MAX), |place| dead.push(place)));
    tracker.raise_floor(floor);
    dead
}

#[test]
fn e1_a_duplicate_is_answered_and_never_new() {
    let mut tracker = tracker();
    let first = request(1, 1, 1);
    tracker.begin(first.rpc, first.body_hash);
    assert_eq!(tracker.look_up(&first), LookUp::InProgress);
    tracker.complete(&first, Place(9), |_| ());
    assert_eq!(tracker.look_up(&first), LookUp::Completed(Place(9)));
    let stats = tracker.stats();
    assert_eq!((stats.clients, stats.records, stats.in_progress, stats.duplicates), (1, 1, 0, 2));
}

#[test]
#[should_panic(expected = "E1")]
fn e1_completing_twice_is_our_bug() {
    let mut tracker = tracker();
    let _none = complete(&mut tracker, &request(1, 1, 1));
    tracker.complete(&request(1, 1, 1), Place(2), |_| ());
}

#[test]
#[should_panic(expected = "E1")]
fn e1_completing_what_is_acknowledged_is_our_bug() {
    let mut tracker = tracker();
    let _none = complete(&mut tracker, &request(1, 2, 2));
    tracker.complete(&request(1, 1, 1), Place(1), |_| ());
}

#[test]
fn r4_1_a_reused_name_is_an_error() {
    let mut tracker = tracker();
    let other_body = Request { body_hash: BodyHash(77), ..request(1, 1, 1) };
    tracker.begin(rpc(1, 1), BodyHash(1));
    assert_eq!(tracker.look_up(&other_body), LookUp::Reused);
    tracker.complete(&request(1, 1, 1), Place(1), |_| ());
    assert_eq!(tracker.look_up(&other_body), LookUp::Reused);
    assert_eq!(tracker.look_up_replayed(&other_body), LookUp::Reused);
}

#[test]
fn r4_2_a_refusal_leaves_no_trace() {
    let mut tracker = tracker();
    tracker.begin(rpc(1, 1), BodyHash(1));
    tracker.abandon(rpc(1, 1));
    assert_eq!(tracker.look_up(&request(1, 1, 1)), LookUp::New);
    tracker.assert_invariants();
}

#[test]
fn r4_3_window_is_enforced() {
    let mut tracker = tracker();
    assert_eq!(tracker.look_up(&request(1, 1 + OUTSTANDING_MAX, 1)), LookUp::New);
    assert_eq!(tracker.look_up(&request(1, 2 + OUTSTANDING_MAX, 1)), LookUp::WindowExceeded);
    assert_eq!(tracker.look_up(&request(1, 2 + OUTSTANDING_MAX, 2)), LookUp::New, "its own acknowledgement counts");
    let _none = complete(&mut tracker, &request(1, 100, 100));
    assert_eq!(tracker.look_up(&request(1, 100 + OUTSTANDING_MAX, 1)), LookUp::New, "the stored one counts");
    assert_eq!(tracker.look_up(&request(1, u64::MAX, u64::MAX)), LookUp::New);
    assert_eq!(tracker.look_up(&request(2, u64::MAX, 1)), LookUp::WindowExceeded, "before anything is asked");
}

#[test]
fn r4_3_no_state_before_the_lease_is_proven() {
    let mut tracker = Tracker::new();
    assert_eq!(tracker.look_up(&request(1, 1, 1)), LookUp::LeaseUnproven);
    assert_eq!(tracker.stats().clients, 0);
    tracker.prove(ClientId(1), LEASE);
    assert_eq!(tracker.look_up(&request(1, 1, 1)), LookUp::New);
}

#[test]
#[should_panic(expected = "R4.3")]
fn r4_3_completing_for_a_stranger_is_our_bug() {
    Tracker::new().complete(&request(1, 1, 1), Place(1), |_| ());
}

#[test]
fn r4_4_each_client_keeps_the_record_with_its_acknowledgement() {
    let mut tracker = tracker();
    for sequence in 1..=100 {
        let dead = complete(&mut tracker, &request(1, sequence, sequence));
        assert_eq!(dead, if sequence == 1 { vec![] } else { vec![Place(sequence - 1)] });
    }
    assert!(tracker.is_live(rpc(1, 100), Place(100)));
    assert!(!tracker.is_live(rpc(1, 99), Place(99)));
    assert_eq!(tracker.stats().records, 1);
}

#[test]
fn r4_4_a_record_cannot_acknowledge_itself() {
    let mut tracker = tracker();
    assert_eq!(complete(&mut tracker, &request(1, 5, 50)), []);
    assert_eq!(tracker.acknowledgement_of(ClientId(1)), AckedBelow(5));
    assert_eq!(tracker.look_up(&request(1, 5, 50)), LookUp::Completed(Place(5)));
    let mut recovered = Tracker::new();
    recovered.recover(&request(1, 5, 50), Place(5), |_| panic!("it is live"));
    assert_eq!(recovered.look_up(&request(1, 5, 50)), LookUp::Completed(Place(5)));
}

#[test]
fn acknowledgements_free_ranges_and_the_rest_stays() {
    let mut tracker = tracker();
    for sequence in [3, 1, 2, 6, 4] {
        assert_eq!(complete(&mut tracker, &request(1, sequence, 1)), []);
    }
    assert_eq!(complete(&mut tracker, &request(1, 7, 4)), [Place(1), Place(2), Place(3)]);
    assert_eq!(tracker.look_up(&request(1, 3, 1)), LookUp::Stale);
    assert_eq!(tracker.look_up(&request(1, 4, 1)), LookUp::Completed(Place(4)));
    assert_eq!(tracker.look_up(&request(1, 5, 1)), LookUp::New);
    assert_eq!(complete(&mut tracker, &request(1, 5, 1)), [], "a late one with an old acknowledgement");
    assert_eq!(tracker.acknowledgement_of(ClientId(1)), AckedBelow(4));
}

#[test]
fn an_acknowledgement_does_not_end_what_is_in_progress() {
    let mut tracker = tracker();
    for sequence in [1, 3] {
        tracker.begin(rpc(1, sequence), BodyHash(sequence));
    }
    assert_eq!(complete(&mut tracker, &request(1, 2, 1)), []);
    assert_eq!(complete(&mut tracker, &request(1, 9, 9)), [Place(2)]);
    assert_eq!(tracker.stats().in_progress, 2);
    for sequence in [1, 3] {
        let mut dead = Vec::new();
        tracker.complete(&request(1, sequence, 1), Place(sequence), |place| dead.push(place));
        assert_eq!(dead, [Place(sequence)], "its client has the result already");
    }
    tracker.assert_invariants();
    assert_eq!(tracker.stats().records, 1);
}

#[test]
fn r4_5_replay_neither_raises_nor_obeys_the_requests_acknowledgement() {
    // Log: 1. Witness: 2 and 3, both executed and answered; 3 says that 2 was acknowledged.
    let mut tracker = Tracker::new();
    tracker.recover(&request(1, 1, 1), Place(1), |_| ());
    for (sequence, acknowledgement) in [(3, 3), (2, 2)] {
        let replayed = request(1, sequence, acknowledgement);
        assert_eq!(tracker.look_up_replayed(&replayed), LookUp::New, "raising would lose 2");
        assert_eq!(tracker.acknowledgement_of(ClientId(1)), AckedBelow(1));
        tracker.complete_replayed(&replayed, Place(sequence), |_| panic!("nothing dies by a replay"));
    }
    assert_eq!(tracker.look_up(&request(1, 1, 1)), LookUp::Completed(Place(1)));
}

#[test]
fn r4_5_replay_compares_with_the_recovered_acknowledgement() {
    // The record of 1 is cleaned under that of 2; a witness still holds 1. Ignoring the log's would run it twice.
    let mut tracker = Tracker::new();
    tracker.recover(&request(1, 2, 2), Place(2), |_| ());
    assert_eq!(tracker.look_up_replayed(&request(1, 1, 1)), LookUp::Stale);
    assert_eq!(tracker.look_up_replayed(&request(1, 2, 2)), LookUp::Completed(Place(2)));
}

#[test]
fn r4_5_replay_is_bound_by_neither_window_nor_lease() {
    // The client spoke to other shards meanwhile: its acknowledgement moved on, but not in this log.
    let mut tracker = Tracker::new();
    let replayed = request(1, 10_000, 10_000);
    assert_eq!(tracker.look_up_replayed(&replayed), LookUp::New);
    tracker.complete_replayed(&replayed, Place(5), |_| ());
    assert_eq!(tracker.look_up(&replayed), LookUp::Completed(Place(5)));
    assert_eq!(complete(&mut tracker, &request(1, 10_001, 10_001)), [Place(5)]);
}

#[test]
fn r4_6_below_the_floor_nothing_new_runs() {
    let mut tracker = tracker();
    let _none = complete(&mut tracker, &request(1, 1, 1));
    assert_eq!(expire(&mut tracker, LEASE, [ClientId(1), ClientId(8)]), [Place(1)]);
    for sequence in [1, 2] {
        assert_eq!(tracker.look_up(&request(1, sequence, 1)), LookUp::LeaseExpired, "unprovable, so not run");
        assert_eq!(tracker.look_up_replayed(&request(1, sequence, 1)), LookUp::LeaseExpired);
    }
    let renewed = Request { lease_expiry: ClusterTime(LEASE.0 + 1), ..request(2, 1, 1) };
    assert_eq!(tracker.look_up(&renewed), LookUp::LeaseUnproven);
    tracker.raise_floor(ClusterTime(5));
    assert_eq!(tracker.floor().time(), LEASE, "the floor only rises");
    assert_eq!(tracker.stats().clients_expired, 1);
}

#[test]
fn r4_6_what_is_in_progress_stays() {
    let mut tracker = tracker();
    let _none = complete(&mut tracker, &request(1, 1, 1));
    tracker.begin(rpc(1, 2), BodyHash(2));
    assert_eq!(tracker.idle_candidates(ClusterTime(2000), &mut ScanCursor::default(), 10), []);
    assert_eq!(expire(&mut tracker, LEASE, [ClientId(1)]), [Place(1)]);
    assert_eq!(tracker.look_up(&request(1, 2, 1)), LookUp::InProgress);
    assert_eq!(tracker.look_up(&request(1, 3, 1)), LookUp::LeaseExpired);
    tracker.complete(&request(1, 2, 1), Place(2), |_| ());
    assert_eq!(tracker.look_up(&request(1, 2, 1)), LookUp::Completed(Place(2)));
    assert_eq!(tracker.idle_candidates(ClusterTime(2000), &mut ScanCursor::default(), 10), [ClientId(1)]);
    expire(&mut tracker, LEASE, [ClientId(1)]);
    assert_eq!(tracker.stats().clients, 0);
    tracker.assert_invariants();
}

#[test]
fn pitfall_4_nobody_is_forgotten_for_being_idle() {
    let mut tracker = tracker();
    let _none = complete(&mut tracker, &request(1, 1, 1));
    assert_eq!(tracker.idle_candidates(ClusterTime(9999), &mut ScanCursor::default(), 10), [ClientId(1)]);
    tracker.raise_floor(LEASE);
    assert_eq!(tracker.look_up(&request(1, 1, 1)), LookUp::Completed(Place(1)));
}

#[test]
fn pitfall_5_a_duplicate_is_answered_whatever_the_lease() {
    let mut tracker = tracker();
    let _none = complete(&mut tracker, &request(1, 1, 1));
    tracker.raise_floor(ClusterTime(5000));
    assert_eq!(tracker.look_up(&request(1, 1, 1)), LookUp::Completed(Place(1)));
    assert_eq!(tracker.look_up(&request(1, 2, 1)), LookUp::LeaseExpired);
}

#[test]
fn idle_candidates_come_in_bounded_slices() {
    let mut tracker = Tracker::new();
    for client in 1..=1000 {
        tracker.prove(ClientId(client), ClusterTime(client));
    }
    let (mut cursor, mut found, mut slices) = (ScanCursor::default(), Vec::new(), 0);
    loop {
        let slice = tracker.idle_candidates(ClusterTime(700), &mut cursor, 64);
        assert!(slice.len() <= 64);
        found.extend(slice);
        slices += 1;
        if cursor == ScanCursor::default() {
            break;
        }
    }
    assert_eq!(slices, 1000_u32.div_ceil(64));
    assert!(found.iter().copied().eq((1..700).map(ClientId)));
    expire(&mut tracker, ClusterTime(700), found);
    tracker.prove(ClientId(5000), ClusterTime(1));
    assert_eq!(tracker.stats().clients, 302);
    tracker.assert_invariants();
    assert_eq!(tracker.idle_candidates(ClusterTime(2), &mut cursor, 2000), [ClientId(5000)], "in a vacated slot");
}

#[test]
fn recovery_is_idempotent_and_takes_any_order() {
    let records = [(1, 1, 10), (2, 1, 20), (5, 2, 30), (4, 4, 40), (2, 1, 50)];
    for start in 0..records.len() {
        let mut tracker = Tracker::new();
        let mut dead = Vec::new();
        for index in (start..start + 2 * records.len()).map(|index| index % records.len()) {
            let (sequence, acknowledgement, place) = records[index];
            tracker.recover(&request(1, sequence, acknowledgement), Place(place), |place| dead.push(place));
            tracker.assert_invariants();
        }
        dead.sort();
        dead.dedup();
        assert_eq!(dead, [Place(10), Place(20), Place(50)]);
        assert_eq!(tracker.acknowledgement_of(ClientId(1)), AckedBelow(4));
        assert_eq!(tracker.look_up(&request(1, 2, 1)), LookUp::Stale);
        assert_eq!(tracker.look_up(&request(1, 5, 2)), LookUp::Completed(Place(30)));
    }
}

#[test]
fn recovery_completes_a_pending_transaction() {
    let mut tracker = tracker();
    tracker.begin(rpc(1, 1), BodyHash(1));
    tracker.recover(&request(1, 1, 1), Place(3), |_| ());
    assert_eq!(tracker.look_up(&request(1, 1, 1)), LookUp::Completed(Place(3)));
    tracker.assert_invariants();
}

#[test]
fn a_copied_record_is_found_at_its_new_place() {
    let mut tracker = tracker();
    let _none = complete(&mut tracker, &request(1, 1, 1));
    assert!(tracker.relocate(rpc(1, 1), Place(1), Place(100)));
    assert!(tracker.is_live(rpc(1, 1), Place(100)) && !tracker.is_live(rpc(1, 1), Place(1)));
    assert_eq!(complete(&mut tracker, &request(1, 2, 2)), [Place(100)]);
    assert!(!tracker.relocate(rpc(1, 1), Place(100), Place(200)), "it died while it was copied");
    assert!(!tracker.relocate(rpc(7, 1), Place(100), Place(200)));
}

/// A log without the segment in which the next record stood, which is freed too: a later one brings the client back.
#[test]
fn r4_4_a_record_that_is_freed_before_the_next_one_is_read_takes_its_client_along() {
    let mut tracker = Tracker::new();
    tracker.recover(&request(1, 5, 5), Place(5), |_| ());
    tracker.forget(rpc(1, 5), Place(5));
    tracker.assert_invariants();
    tracker.recover(&request(1, 7, 7), Place(70), |_| ());
    tracker.assert_invariants();
    assert_eq!(tracker.look_up(&request(1, 5, 5)), LookUp::Stale);
    assert_eq!(tracker.look_up(&request(1, 7, 7)), LookUp::Completed(Place(70)));
}

#[test]
fn r4_6_a_replay_that_revives_an_expired_client_forgets_it_with_its_last_record() {
    let mut tracker = Tracker::new();
    tracker.recover(&request(1, 5, 5), Place(5), |_| ());
    // The newest floor entry: an earlier one named the client, and is gone.
    tracker.raise_floor(LEASE);
    tracker.assert_invariants();
    tracker.forget(rpc(1, 5), Place(5));
    tracker.assert_invariants();
    assert_eq!(tracker.stats().clients, 0);
    assert_eq!(tracker.look_up(&request(1, 5, 5)), LookUp::LeaseExpired);
}

/// Found by seed `client_leases` 1416956741: a client came back with a later lease and a transaction over several shards before the
/// floor's entry was synced, and its acknowledgement outlived its records.
#[test]
fn r4_4_an_acknowledgement_goes_with_the_last_record_though_a_transaction_is_under_way() {
    let later = Request { lease_expiry: ClusterTime(LEASE.0 + 1), ..request(1, 23, 23) };
    let mut primary = tracker();
    let _none = complete(&mut primary, &request(1, 22, 22));
    primary.prove(ClientId(1), later.lease_expiry);
    primary.begin(later.rpc, later.body_hash);
    let mut dead = Vec::new();
    primary.forget_before(ClientId(1), Place(50), |place| dead.push(place));
    primary.raise_floor(LEASE);
    assert_eq!(dead, [Place(22)]);
    primary.assert_invariants();

    let mut successor = Tracker::new();
    successor.raise_floor(LEASE);
    successor.recover_begun(&later);
    successor.assert_invariants();
    for sequence in 1..=24 {
        for lease_expiry in [LEASE, later.lease_expiry] {
            let asked = Request { lease_expiry, ..request(1, sequence, 1) };
            let said = primary.look_up(&asked);
            assert_eq!(said, successor.look_up(&asked), "{asked:?}");
            assert!(lease_expiry > LEASE || sequence == 23 || said == LookUp::LeaseExpired, "{asked:?} may have run");
        }
    }
    primary.complete(&later, Place(60), |_| ());
    primary.assert_invariants();
    assert_eq!(primary.look_up(&request(1, 22, 22)), LookUp::Stale);
}

/// The oldest update that its client has not finished holds up the acknowledgement of what was completed around it, up to the next that
/// is under way. Any other update holds up nothing.
#[test]
fn r5_16_the_oldest_unfinished_update_holds_up_what_was_completed_around_it() {
    let mut tracker = tracker();
    let held_up = |tracker: &Tracker, request: &Request| tracker.held_up_by(request).collect::<Vec<_>>();
    assert_eq!(held_up(&tracker, &request(1, 1, 1)), [], "nothing else was completed");
    complete(&mut tracker, &request(1, 1, 1));
    complete(&mut tracker, &request(1, 3, 2));
    complete(&mut tracker, &request(1, 4, 2));
    let under_way = request(1, 6, 2);
    tracker.begin(under_way.rpc, under_way.body_hash);
    complete(&mut tracker, &request(1, 7, 2));
    let around = [Place(3), Place(4)];
    assert_eq!(held_up(&tracker, &request(1, 2, 2)), around);
    assert_eq!(held_up(&tracker, &request(1, 2, 1)), around, "it was built before its client acknowledged the first");
    assert_eq!(held_up(&tracker, &request(1, 5, 2)), [], "2 is older");
    assert_eq!(held_up(&tracker, &request(2, 1, 1)), [], "another client's");
    complete(&mut tracker, &request(1, 2, 2));
    assert_eq!(held_up(&tracker, &request(1, 5, 2)), [Place(2), Place(3), Place(4)], "all before it is over");
    assert_eq!(held_up(&tracker, &request(1, 8, 2)), [], "6 is under way");
}
