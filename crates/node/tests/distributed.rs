//! Transactions over several shards at one of their participants, whose other participant is played by the test.

use crate::common::cluster::{Cluster, LIST, node};
use crate::common::stories;
use crate::common::two_shards::*;
use crate::common::{Core, Heard, TABLE};
use kasha_types::{ClientId, ListVersion, slot_of};
use kasha_wire::body::BodyHead;
use kasha_wire::message::{Told, Words};
use kasha_wire::operation::{Check, Condition, PartOperation, PartsBuffer};
use kasha_wire::outcome::Shape;
use kasha_wire::{Message as _, Outcome, OutcomeCode, Read, Update};

/// A stranger, or a clock that is years ahead, would else be followed by every timestamp to come.
#[test]
fn a_timestamp_far_ahead_of_the_clock_is_not_heard() {
    let mut cluster = two_shards();
    let (ours, theirs) = (key("x", true), key("x", false));
    let body = distributed((2, 1), &[(TABLE, put(&ours))], &[(TABLE, put(&theirs))]);
    assert!(cluster.send(2, ListVersion::NONE, &body).is_empty());
    cluster.settle();
    word(&mut cluster, 1, &body, Told::Proposed(1 << 50));
    cluster.settle();
    assert!(cluster.heard(2).is_empty(), "it has no timestamp yet");
    word(&mut cluster, 1, &body, Told::Proposed(7));
    cluster.settle();
    let heard = cluster.heard(2);
    assert!(matches!(&heard[..], [Heard::Answer { synced: true, .. }]), "{heard:?}");
}

/// A loss of power takes nothing that a participant has said or executed.
#[test]
fn r8_17_a_participant_says_and_executes_what_its_own_disk_has() {
    let mut cluster = two_shards();
    cluster.commit(|configuration| configuration.nodes.push(node(OTHERS_PRIMARY.0)));
    cluster.settle();
    cluster.to_strangers.clear();
    cluster.cores[0].slow_flushes = true;
    let (ours, theirs) = (key("x", true), key("x", false));
    let body = distributed((2, 1), &[(TABLE, put(&ours))], &[(TABLE, put(&theirs))]);
    assert!(cluster.send(2, ListVersion::NONE, &body).is_empty());
    word(&mut cluster, 1, &body, Told::Proposed(7));
    cluster.settle();
    let has_answered = !cluster.heard(2).is_empty();
    let has_voted =
        |cluster: &Cluster| cluster.to_strangers.iter().any(|(kind, payload)| Words::is_in(*kind as u8, payload));
    assert!(!has_answered && !has_voted(&cluster), "all members hold its proposal, and that is not enough");
    cluster.cores[0].slow_flushes = false;
    cluster.settle();
    assert!(has_voted(&cluster));
    let heard = cluster.heard(2);
    assert!(matches!(&heard[..], [Heard::Answer { synced: true, .. }]), "{heard:?}");
}

/// Its client goes on under another id. If a loss of power took the refusal, this one could happen too.
#[test]
fn r8_17_a_refusal_is_told_when_no_loss_of_power_takes_it() {
    let mut cluster = two_shards();
    cluster.cores[0].slow_flushes = true;
    let (ours, theirs) = (key("x", true), key("x", false));
    let with_check = (TABLE, PartOperation::Check(Check::Meets { key: &ours, condition: Condition::ABSENT }));
    for (client, times) in [(2, 1), (3, 2)] {
        let body = distributed((client, 1), &[with_check, (TABLE, put(&ours))], &[(TABLE, put(&theirs))]);
        for _ in 0..times {
            let heard = cluster.send(client, ListVersion::NONE, &body);
            assert!(heard.is_empty(), "{heard:?}");
            cluster.settle();
        }
    }
    assert!(cluster.heard(3).is_empty(), "all members hold the conflict");
    cluster.cores[0].slow_flushes = false;
    cluster.settle();
    let conflict = Heard::Answer { synced: true, result: vec![OutcomeCode::Conflict as u8] };
    assert_eq!(cluster.heard(3), [conflict.clone(), conflict]);
}

/// Found by the simulator: an answer that waited for the disk named its record in the log, which the cleaner moved and buried
/// meanwhile. `Held` refuses such a frame ([`kasha_machine::Gate::may_name_log`]).
#[test]
fn r8_17_an_answer_that_waits_for_the_disk_carries_its_bytes() {
    let mut cluster = begun();
    let (ours, theirs) = (key("x", true), key("x", false));
    let body = distributed((2, 1), &[(TABLE, put(&ours))], &[(TABLE, put(&theirs))]);
    assert!(cluster.send(2, ListVersion::NONE, &body).is_empty());
    cluster.settle();
    cluster.cores[0].slow_flushes = true;
    word(&mut cluster, 1, &body, Told::Proposed(1));
    cluster.settle();
    cluster.heard(2);
    let asked = cluster.send(2, ListVersion::NONE, &body);
    cluster.settle();
    assert_eq!((asked, cluster.heard(2)), (vec![], vec![]), "it is executed, which the disk does not have");
    cluster.cores[0].slow_flushes = false;
    cluster.settle();
    let (code, _) = told(&cluster.heard(2)).expect("the disk has it");
    assert_eq!(code, OutcomeCode::Done as u8);
}

/// Room is reserved in bytes, and segments lose some at their ends: what finds none waits until some is freed, and the node lives.
#[test]
fn r8_13_an_execution_that_finds_no_room_waits() {
    let mut cluster = two_shards();
    let (large, theirs) = (vec![b'x'; 560_000], key("y", false));
    let mut proposed = Vec::new();
    for sequence in 1.. {
        let ours = key(&format!("x{sequence}-"), true);
        let part = (TABLE, PartOperation::Update(Update::put(&ours, &large)));
        let body = distributed((2, sequence), &[part], &[(TABLE, put(&theirs))]);
        let refused = cluster.send(2, ListVersion::NONE, &body);
        cluster.settle();
        if !refused.is_empty() {
            break;
        }
        proposed.push(body);
    }
    assert!(proposed.len() > 20, "{} large ones are pending", proposed.len());
    // Nothing is synced between these.
    for body in &proposed {
        word(&mut cluster, 1, body, Told::Proposed(1));
    }
    let mut answers = 0;
    for _ in 0..200 {
        cluster.settle();
        answers += cluster.heard(2).len();
    }
    assert_eq!(answers, proposed.len());
}

/// What recovery would skip is not answered fast: the two judge an update's keys alike.
#[test]
fn r8_7_an_update_that_is_answered_fast_is_not_skipped_by_a_recovery() {
    let mut cluster = begun();
    let (x, y, z) = (key("x", true), key("y", true), key("z", false));
    let only_reads_x = [(TABLE, PartOperation::Read(Read::Exists { key: &x }))];
    let transaction = distributed((2, 1), &only_reads_x, &[(TABLE, put(&z))]);
    assert!(cluster.send(2, ListVersion::NONE, &transaction).is_empty());
    cluster.settle();
    word(&mut cluster, 1, &transaction, Told::Proposed(1)); // it is executed, and that is not synced
    assert!(matches!(&cluster.heard(2)[..], [Heard::Answer { .. }]));
    let mut parts = PartsBuffer::default();
    parts.push(TABLE, &PartOperation::Read(Read::Get { key: &x }));
    parts.push(TABLE, &put(&y));
    let update = Core::body((3, 1), 1, None, &Update::Transaction { parts: parts.as_parts() });
    record(&mut cluster, &update);
    let heard = cluster.send(3, LIST, &update);
    let was_answered_fast = matches!(&heard[..], [Heard::Answer { synced: false, .. }]);
    lose_the_primary(&mut cluster);
    let mut ask = PartsBuffer::default();
    ask.push(TABLE, &PartOperation::Read(Read::Get { key: &y }));
    let ask = Core::body((4, 1), 1, None, &Update::Transaction { parts: ask.as_parts() });
    let mut heard = cluster.send(4, ListVersion::NONE, &ask);
    cluster.settle();
    heard.append(&mut cluster.heard(4));
    let Some(Heard::Answer { result, .. }) = heard.pop() else { panic!("{heard:?}") };
    let found = Outcome::decode(Shape::Parts, &result).expect("a result");
    let is_there = found == Outcome::Parts(vec![Outcome::Value(1, b"v".to_vec())]);
    assert!(is_there || !was_answered_fast, "{found:?}");
}

/// Its check was made when it was proposed, and holds when it is executed, here and at a new primary.
#[test]
fn a_table_is_not_dropped_under_what_is_pending() {
    let mut cluster = begun();
    let (x, z) = (key("x", true), key("z", false));
    let in_ledger = |head: &mut BodyHead| head.table = LEDGER;
    let value = Core::body_with((2, 1), 1, None, &Update::put(&x, b"1"), in_ledger);
    cluster.send(2, LIST, &value);
    cluster.settle();
    let check = PartOperation::Check(Check::Meets { key: &x, condition: Condition::Version(1) });
    let body = distributed((3, 1), &[(LEDGER, check)], &[(TABLE, put(&z))]);
    cluster.send(3, ListVersion::NONE, &body);
    cluster.settle();
    let (code, rest) = told(&cluster.heard(3)).expect("it is prepared");
    assert_eq!(code, OutcomeCode::Prepared as u8);
    assert!(cluster.send(3, ListVersion::NONE, &body).is_empty(), "it waits for the outcome");
    cluster.commit(|configuration| {
        configuration.tables.retain(|info| info.table != LEDGER);
        configuration.tablets.retain(|tablet| tablet.table != LEDGER);
    });
    cluster.settle();
    word(&mut cluster, 1, &body, Told::Proposed(1));
    cluster.settle();
    assert_eq!(told(&cluster.heard(3)), Some((OutcomeCode::Done as u8, rest)));
    lose_the_primary(&mut cluster);
    word(&mut cluster, 2, &body, Told::Proposed(1));
    cluster.settle();
}

/// Who finds that an operation key was used otherwise has seen the update that used it.
#[test]
fn r8_4_a_mismatch_of_operation_keys_waits_as_the_other_update_does() {
    let mut cluster = begun();
    assert!(slot_of(b"{tb}").0 < 8192);
    let z = key("z", false);
    let body = distributed((2, 1), &[(TABLE, put(b"{tb}k"))], &[(TABLE, put(&z))]);
    cluster.send(2, ListVersion::NONE, &body);
    cluster.settle();
    word(&mut cluster, 1, &body, Told::Proposed(1));
    cluster.settle();
    let one = Core::body((3, 1), 1, Some(b"K"), &Update::put(b"{tb}k", b"o"));
    cluster.send(3, ListVersion::NONE, &one);
    cluster.settle();
    assert_eq!(cluster.heard(3), [], "the other participant has not said that it is executed there");
    let other = Core::body((4, 1), 1, Some(b"K"), &Update::put(b"{tb}k", b"m"));
    let mut heard = cluster.send(4, ListVersion::NONE, &other);
    cluster.settle();
    heard.append(&mut cluster.heard(4));
    assert_eq!(heard, []);
}

/// A primary of an earlier term knows that the transaction is settled. The term between does not.
#[test]
fn r8_6_a_gate_that_another_term_has_logged_opens_at_a_primary_that_is_promoted_again() {
    for third in [3, 1] {
        let mut cluster = begun();
        let (k, z) = (key("k", true), key("z", false));
        let body = distributed((2, 1), &[(TABLE, put(&k))], &[(TABLE, put(&z))]);
        cluster.send(2, ListVersion::NONE, &body);
        cluster.settle();
        word(&mut cluster, 1, &body, Told::Proposed(1));
        cluster.settle();
        assert!(matches!(cluster.heard(2)[..], [Heard::Answer { .. }]));
        // The clock says 1000 ms, and the transaction is the first above it.
        let settled = Told::Executed { at: 1_000_001, recorded: true, settled: true };
        word(&mut cluster, 1, &body, settled);
        cluster.settle();
        cluster.fail_over_to(2);
        cluster.it_is(1000);
        let update = Core::body((3, 1), 1, None, &Update::put(&k, b"u"));
        cluster.send(3, ListVersion::NONE, &update);
        cluster.settle();
        assert_eq!(cluster.heard(3), [], "a new primary takes nothing as settled");
        cluster.fail_over_to(third);
        cluster.it_is(1000);
        let mut heard = cluster.send(3, ListVersion::NONE, &update);
        cluster.settle();
        word(&mut cluster, third, &body, settled);
        cluster.settle();
        cluster.settle();
        heard.append(&mut cluster.heard(3));
        assert!(!heard.is_empty(), "node {third}");
    }
}

/// The client hears what its transaction comes to when that is durable, and hears it again only if it asks.
#[test]
fn r8_8_a_client_is_told_when_its_transaction_is_prepared() {
    let mut cluster = begun();
    let body = increments(&mut cluster);
    assert_eq!(told(&cluster.send(3, ListVersion::NONE, &body)), None, "it is not synced");
    cluster.settle();
    let (code, rest) = told(&cluster.heard(3)).expect("it is prepared");
    assert_eq!(code, OutcomeCode::Prepared as u8);
    word(&mut cluster, 1, &body, Told::Proposed(1));
    cluster.settle();
    assert_eq!(told(&cluster.heard(3)), None);
    let mut asked = cluster.send(3, ListVersion::NONE, &body);
    cluster.settle();
    asked.append(&mut cluster.heard(3));
    assert_eq!(told(&asked), Some((OutcomeCode::Done as u8, rest)));
}

/// What it has seen may not have happened yet everywhere: then its client has to wait for that.
#[test]
fn r8_8_what_has_seen_something_unsettled_is_not_told_early() {
    let mut cluster = begun();
    let (x, z) = (key("x", true), key("z", false));
    let first = unsettled(&mut cluster, &x, &z);
    let check = PartOperation::Check(Check::Meets { key: &x, condition: Condition::Value(b"v") });
    let second = distributed((3, 1), &[(TABLE, check)], &[(TABLE, put(&z))]);
    cluster.send(3, ListVersion::NONE, &second);
    cluster.settle();
    assert_eq!(told(&cluster.heard(3)), None);
    word(&mut cluster, 1, &second, Told::Proposed(1));
    cluster.settle();
    assert_eq!(told(&cluster.heard(3)), None, "the gate of the first is closed");
    is_settled(&mut cluster, &first, 1_000_001);
    let (code, _) = told(&cluster.heard(3)).expect("all that it has seen is settled");
    assert_eq!(code, OutcomeCode::Done as u8);
}

/// An increment of a counter here, which has a value, and one of a counter of the other participant.
fn increments(cluster: &mut Cluster) -> Vec<u8> {
    let (n, z) = (key("n", true), key("z", false));
    cluster.update((2, 1), LIST, &Update::increment(&n, 5));
    cluster.settle();
    let increment = |key| PartOperation::Update(Update::increment(key, 1));
    distributed((3, 1), &[(TABLE, increment(&n))], &[(TABLE, increment(&z))])
}

/// Section 8, one round trip (c): the new primary proposes it again, and its results are those that were told.
#[test]
fn what_is_prepared_is_told_at_once_if_witnesses_hold_it_and_survives_the_primary() {
    let mut cluster = begun();
    let body = increments(&mut cluster);
    record(&mut cluster, &body);
    let heard = cluster.send(3, LIST, &body);
    let [Heard::Answer { synced: false, result }] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(result[0], OutcomeCode::Prepared as u8);
    lose_the_primary(&mut cluster);
    let mut again = cluster.send(3, ListVersion::NONE, &body);
    word(&mut cluster, 2, &body, Told::Proposed(1));
    cluster.settle();
    again.append(&mut cluster.heard(3));
    assert_eq!(told(&again), Some((OutcomeCode::Done as u8, result[1..].to_vec())));
}

/// Section 8, one round trip (a).
#[test]
fn what_overlaps_with_something_unsynced_is_told_when_it_is_synced() {
    let mut cluster = begun();
    let body = increments(&mut cluster);
    cluster.update((4, 1), LIST, &Update::increment(&key("n", true), 1));
    record(&mut cluster, &body);
    assert_eq!(cluster.send(3, LIST, &body), []);
    cluster.settle();
    let (code, _) = told(&cluster.heard(3)).expect("it is synced");
    assert_eq!(code, OutcomeCode::Prepared as u8);
}

/// Witnesses name what no gc has dropped; the updates beside it cause gcs.
fn let_witnesses_name_suspects(cluster: &mut Cluster) {
    for sequence in 1..=8 {
        let aside = key(&format!("aside{sequence}-"), true);
        cluster.update((9, sequence), LIST, &Update::put(&aside, b"a"));
        cluster.settle();
    }
    cluster.heard(9);
}

/// Its client's request is lost, and its witnesses have it (section 6): it is proposed, and executed once.
#[test]
fn what_only_witnesses_have_is_proposed() {
    let mut cluster = begun();
    let body = increments(&mut cluster);
    record(&mut cluster, &body);
    let_witnesses_name_suspects(&mut cluster);
    word(&mut cluster, 1, &body, Told::Proposed(1));
    cluster.settle();
    let heard = cluster.send(3, ListVersion::NONE, &body);
    assert!(matches!(told(&heard), Some((code, _)) if code == OutcomeCode::Done as u8), "{heard:?}");
}

/// The same, but it meets a lock. That is an outcome, which its client hears when its request comes.
#[test]
fn what_only_witnesses_have_and_meets_a_lock_is_a_conflict() {
    let mut cluster = begun();
    let body = increments(&mut cluster);
    let increment = |key| PartOperation::Update(Update::increment(key, 1));
    let (n, z) = (key("n", true), key("z", false));
    let holder = distributed((4, 1), &[(TABLE, increment(&n))], &[(TABLE, increment(&z))]);
    cluster.send(4, ListVersion::NONE, &holder);
    record(&mut cluster, &body);
    let_witnesses_name_suspects(&mut cluster);
    let heard = cluster.send(3, ListVersion::NONE, &body);
    assert!(matches!(told(&heard), Some((code, _)) if code == OutcomeCode::Conflict as u8), "{heard:?}");
}

/// R4.3: nobody has granted this lease.
#[test]
fn r4_3_what_only_witnesses_have_of_an_unproven_client_takes_no_lock() {
    let mut cluster = begun();
    let body = increments(&mut cluster);
    let increment = |key| PartOperation::Update(Update::increment(key, 1));
    let (n, z) = (key("n", true), key("z", false));
    let hostile = with_lease(u64::MAX, (1 << 40, 1), &[(TABLE, increment(&n))], &[(TABLE, increment(&z))]);
    record(&mut cluster, &hostile);
    let_witnesses_name_suspects(&mut cluster);
    cluster.send(3, ListVersion::NONE, &body);
    cluster.settle();
    let heard = cluster.heard(3);
    assert!(matches!(told(&heard), Some((code, _)) if code == OutcomeCode::Prepared as u8), "{heard:?}");
}

/// Asks under an operation key, and is told what comes of it here.
fn told_under_key(cluster: &mut Cluster, client: u64, body: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut heard = cluster.send(client, ListVersion::NONE, body);
    cluster.settle();
    heard.append(&mut cluster.heard(client));
    heard.iter().map(|heard| told(std::slice::from_ref(heard)).expect("an answer")).collect()
}

/// The request that ran.
fn run((client, sequence): (u64, u64)) -> Vec<u8> {
    [client.to_le_bytes(), sequence.to_le_bytes()].concat()
}

#[test]
fn r4_9_each_participant_keeps_its_result_under_the_operation_key() {
    let mut cluster = begun();
    let (x, z) = (key("x", true), key("z", false));
    let parts = (&[(TABLE, put(&x))][..], &[(TABLE, put(&z))][..]);
    let first = under_key(b"order", (2, 1), parts.0, parts.1);
    let [(prepared, rest)] = &told_under_key(&mut cluster, 2, &first)[..] else { panic!("it is prepared") };
    assert_eq!(*prepared, OutcomeCode::Prepared as u8);
    // The key is locked until the first is decided.
    let second = under_key(b"order", (3, 1), parts.0, parts.1);
    let conflict = (OutcomeCode::Conflict as u8, vec![]);
    assert_eq!(told_under_key(&mut cluster, 3, &second), [conflict]);
    word(&mut cluster, 1, &first, Told::Proposed(1));
    let settled = Told::Executed { at: 1_000_001, recorded: true, settled: true };
    word(&mut cluster, 1, &first, settled);
    cluster.settle();
    let kept = (OutcomeCode::Repeated as u8, [&run((2, 1))[..], &[OutcomeCode::Done as u8], rest].concat());
    let third = under_key(b"order", (3, 2), parts.0, parts.1);
    assert_eq!(told_under_key(&mut cluster, 3, &third), std::slice::from_ref(&kept));
    // Another transaction, under the same name.
    let other = under_key(b"order", (4, 1), &[(TABLE, put(&x)), (TABLE, put(&x))], parts.1);
    let mismatch = (OutcomeCode::OperationKeyMismatch as u8, vec![]);
    assert_eq!(told_under_key(&mut cluster, 4, &other), [mismatch]);
    // It is in the log, as the result is.
    lose_the_primary(&mut cluster);
    let fourth = under_key(b"order", (5, 1), parts.0, parts.1);
    let mut heard = Vec::new();
    cluster.send(5, ListVersion::NONE, &fourth);
    for _ in 0..10 {
        word(&mut cluster, 2, &first, settled);
        cluster.settle();
        heard.append(&mut cluster.heard(5));
    }
    assert_eq!(told(&heard), Some(kept));
}

/// What tells two of them apart is the key that was named first, and its table, not its slot.
#[test]
fn r4_9_another_first_key_of_the_slot_or_another_table_is_another_operation() {
    let mut cluster = begun();
    let z = key("z", false);
    let tagged = [&b"{"[..], &z, b"}"].concat();
    assert_eq!(kasha_types::slot_of(&tagged), kasha_types::slot_of(&z));
    for (client, table, first) in [(2, TABLE, &z), (3, TABLE, &tagged), (4, LEDGER, &z)] {
        let own = key(&format!("x{client}."), true);
        let body = under_key(b"order", (client, 1), &[(TABLE, put(&own))], &[(table, put(first))]);
        let [(code, _)] = &told_under_key(&mut cluster, client, &body)[..] else { panic!("it is prepared") };
        assert_eq!(*code, OutcomeCode::Prepared as u8, "{client}");
    }
}

/// As for an update of one shard: what did not hold is not tried anew. The participant of the part that was named first keeps that.
#[test]
fn r4_9_a_check_that_failed_is_kept_by_the_participant_that_was_named_first() {
    let mut cluster = begun();
    let (x, z) = (key("x", true), key("z", false));
    let check = PartOperation::Check(Check::Meets { key: &x, condition: Condition::Version(7) });
    // The other participant's part was named first: it hears why, and the client hears it from there.
    let body = under_key(b"order", (2, 1), &[(TABLE, check)], &[(TABLE, put(&z))]);
    cluster.on_the_way.clear();
    let elsewhere = (OutcomeCode::RefusedElsewhere as u8, vec![]);
    assert_eq!(told_under_key(&mut cluster, 2, &body), [elsewhere]);
    // Here the first part is this shard's own.
    let own = |client| first_here(b"other", (client, 1), &[(TABLE, check)], &[(TABLE, put(&z))]);
    let [(code, rest)] = &told_under_key(&mut cluster, 3, &own(3))[..] else { panic!("it fails") };
    assert_eq!(*code, OutcomeCode::NotCommitted as u8);
    let kept = (OutcomeCode::Repeated as u8, [&run((3, 1))[..], &[*code], rest].concat());
    assert_eq!(told_under_key(&mut cluster, 4, &own(4)), [kept]);
}

#[test]
fn r4_9_a_refused_demand_leaves_its_operation_key_free() {
    stories::a_refused_demand_leaves_its_operation_key_free();
}

#[test]
fn r4_9_who_was_named_first_hears_why_and_keeps_it() {
    let mut cluster = begun();
    let (y, z) = (key("y", true), key("z", false));
    let body = |client| first_here(b"order", (client, 1), &[(TABLE, put(&y))], &[(TABLE, put(&z))]);
    assert_eq!(told_under_key(&mut cluster, 2, &body(2))[0].0, OutcomeCode::Prepared as u8);
    let too_large = [OutcomeCode::NotCommitted as u8, 0, 0, 0, 0, 1, OutcomeCode::TooLarge as u8];
    word_with_reason(&mut cluster, 1, &body(2), (Told::Abort, &too_large));
    cluster.settle();
    // The second part of all is the first of the other participant.
    let told_first = (OutcomeCode::NotCommitted as u8, vec![1, 0, 0, 0, 1, OutcomeCode::TooLarge as u8]);
    assert_eq!(told(&cluster.heard(2)), Some(told_first.clone()));
    let kept = (OutcomeCode::Repeated as u8, [&run((2, 1))[..], &[told_first.0], &told_first.1].concat());
    assert_eq!(told_under_key(&mut cluster, 3, &body(3)), [kept]);
    // Without a reason nothing is kept, and the client tries again.
    let other = first_here(b"another", (4, 1), &[(TABLE, put(&y))], &[(TABLE, put(&z))]);
    assert_eq!(told_under_key(&mut cluster, 4, &other)[0].0, OutcomeCode::Prepared as u8);
    word(&mut cluster, 1, &other, Told::Abort);
    cluster.settle();
    assert_eq!(told(&cluster.heard(4)), Some((OutcomeCode::Conflict as u8, vec![])));
}

/// W has written what the check read, and is not settled: whoever learns what was kept comes after W.
#[test]
fn r8_4_what_is_kept_of_a_check_that_failed_waits_for_what_the_check_has_seen() {
    let mut cluster = begun();
    let (x, z) = (key("x", true), key("z", false));
    let w = unsettled(&mut cluster, &x, &z);
    cluster.heard(2);
    let check = PartOperation::Check(Check::Meets { key: &x, condition: Condition::Version(7) });
    let body = |client| first_here(b"order", (client, 1), &[(TABLE, check)], &[(TABLE, put(&z))]);
    assert_eq!(told_under_key(&mut cluster, 3, &body(3)), []);
    assert_eq!(told_under_key(&mut cluster, 4, &body(4)), [], "the same again");
    let other = first_here(b"order", (5, 1), &[(TABLE, check), (TABLE, check)], &[(TABLE, put(&z))]);
    assert_eq!(told_under_key(&mut cluster, 5, &other), [], "another one under this key");
    is_settled(&mut cluster, &w, 1_000_001);
    cluster.settle();
    assert_eq!(told(&cluster.heard(3)).map(|(code, _)| code), Some(OutcomeCode::NotCommitted as u8));
    assert_eq!(told(&cluster.heard(4)).map(|(code, _)| code), Some(OutcomeCode::Repeated as u8));
    assert_eq!(told(&cluster.heard(5)).map(|(code, _)| code), Some(OutcomeCode::OperationKeyMismatch as u8));
}

/// What this participant has told the other of a transaction that does not happen: the reasons that it gave.
fn refusals(cluster: &mut Cluster, client: u64) -> Vec<Vec<u8>> {
    let sent = std::mem::take(&mut cluster.to_strangers);
    let words =
        sent.iter().filter_map(|(kind, payload)| Words::from_frame(*kind as u8, payload)).flat_map(|all| all.words);
    let refusals = words.filter(|word| word.rpc.client == ClientId(client) && word.told == Told::Abort);
    refusals.map(|word| word.reason).collect()
}

/// The participant that keeps the reason would else be the first to tell it, and tell more than may be known.
#[test]
fn r8_4_a_vote_waits_for_the_gate_of_its_reason_and_not_for_long() {
    for opens in [true, false] {
        let mut cluster = begun();
        cluster.commit(|configuration| configuration.nodes.push(node(OTHERS_PRIMARY.0)));
        let (x, z) = (key("x", true), key("z", false));
        let w = unsettled(&mut cluster, &x, &z);
        let check = PartOperation::Check(Check::Meets { key: &x, condition: Condition::Version(7) });
        let body = under_key(b"order", (3, 1), &[(TABLE, check)], &[(TABLE, put(&z))]);
        cluster.send(3, ListVersion::NONE, &body);
        for _ in 0..3 {
            cluster.tick(5);
            cluster.carry();
        }
        assert_eq!(refusals(&mut cluster, 3), [[0u8; 0]; 0], "W, which the check has seen, is not settled");
        if opens {
            word(&mut cluster, 1, &w, Told::Executed { at: 1_000_001, recorded: true, settled: true });
        } else {
            cluster.tick(50);
        }
        cluster.tick(5);
        let told = refusals(&mut cluster, 3);
        assert!(!told.is_empty() && told.iter().all(|reason| reason.is_empty() != opens), "{opens}: {told:?}");
    }
}

/// No client was told of it, and a new primary waits for nobody.
#[test]
fn r8_10_what_a_witness_holds_and_what_conflicts_with_something_pending_is_skipped() {
    let mut cluster = begun();
    let body = increments(&mut cluster);
    let pending = distributed((4, 1), &[(TABLE, put(&key("n", true)))], &[(TABLE, put(&key("z", false)))]);
    assert!(cluster.send(4, ListVersion::NONE, &pending).is_empty());
    cluster.settle();
    record(&mut cluster, &body);
    lose_the_primary(&mut cluster);
    let mut heard = cluster.send(3, ListVersion::NONE, &body);
    cluster.settle();
    heard.append(&mut cluster.heard(3));
    assert_eq!(told(&heard), Some((OutcomeCode::Conflict as u8, vec![])));
    word(&mut cluster, 2, &pending, Told::Proposed(1));
    cluster.settle();
    let read = cluster.update((5, 1), ListVersion::NONE, &Update::increment(&key("free", true), 1));
    cluster.settle();
    assert!(read.len() + cluster.heard(5).len() == 1, "the shard goes on");
}

/// Its client has heard nothing, since the primary that would have told it never got the request.
#[test]
fn what_a_witness_holds_of_a_table_that_is_dropped_does_not_stop_a_recovery() {
    let mut cluster = begun();
    let body = distributed((3, 1), &[(LEDGER, put(&key("l", true)))], &[(LEDGER, put(&key("z", false)))]);
    record(&mut cluster, &body);
    cluster.commit(|configuration| {
        configuration.tables.retain(|table| table.table != LEDGER);
        configuration.tablets.retain(|tablet| tablet.table != LEDGER);
    });
    lose_the_primary(&mut cluster);
    let mut heard = cluster.send(3, ListVersion::NONE, &body);
    cluster.settle();
    heard.append(&mut cluster.heard(3));
    assert!(matches!(&heard[..], [Heard::Refused(_)]), "{heard:?}");
    cluster.update((5, 1), ListVersion::NONE, &Update::increment(&key("free", true), 1));
    cluster.settle();
    assert_eq!(cluster.heard(5).len(), 1, "the shard goes on");
}
