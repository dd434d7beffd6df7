//! R8.16: keys of several shards, read as they were at one moment.

#[allow(dead_code, reason = "each test file uses a part")]
use std::time::Duration;

use crate::common::{Net, Sent, TABLE};
use kasha_client::session::{CallId, Completion, WhyFailed};
use kasha_types::limits::RESULT_BYTES_MAX;
use kasha_types::slot_of;
use kasha_wire::frame::Kind;
use kasha_wire::hot::ReadView;
use kasha_wire::operation::ItemsBuffer;
use kasha_wire::outcome::Shape;
use kasha_wire::{Outcome, Read, Refusal};

/// Of shard 0, of shard 1, and of shard 0.
const KEYS: [&[u8]; 3] = [b"a-low-slot-", b"foo", b"a-low-slot-"];

fn multi_get(net: &mut Net) -> CallId {
    assert!(slot_of(KEYS[0]).0 < 8192 && slot_of(KEYS[1]).0 >= 8192);
    let keys = ItemsBuffer::keys(KEYS);
    let read = Read::MultiGet { keys: keys.as_items() };
    net.with(|session, now, out| session.read(now, TABLE, &read, None, out))
}

/// One round: a read of each shard, that of shard 0 first.
fn round(net: &mut Net) -> [Sent; 2] {
    let mut reads = net.take(Kind::Read);
    reads.sort_by_key(|read| ReadView::decode(&read.payload).expect("a read").envelope.shard);
    reads.try_into().expect("one read of each shard")
}

fn observed(keys: &[(u64, Option<&[u8]>)]) -> Vec<u8> {
    let mut result = vec![0];
    result.extend((keys.len() as u32).to_le_bytes());
    for (version, value) in keys {
        result.extend(version.to_le_bytes());
        result.push(u8::from(value.is_some()));
        result.extend((value.map_or(0, <[u8]>::len) as u32).to_le_bytes());
        result.extend(value.unwrap_or_default());
    }
    result
}

/// Shard 0 has one key with a value; shard 1 has one without a value, of this version.
fn answer(net: &mut Net, [first, second]: &[Sent; 2], version: u64) {
    net.answer_read(first, &observed(&[(7, Some(b"v")), (7, Some(b"v"))]));
    net.answer_read(second, &observed(&[(version, None)]));
}

fn values(completion: Completion) -> Vec<Option<(u64, Vec<u8>)>> {
    let Completion::Read { result } = completion else { panic!("{completion:?}") };
    match Outcome::decode(Shape::Values, &result) {
        Ok(Outcome::Values(values)) => values,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_has_not_changed_between_two_rounds_was_there_at_one_moment() {
    let mut net = Net::open(|_| ());
    let id = multi_get(&mut net);
    let first = round(&mut net);
    net.answer_read(&first[1], &observed(&[(3, None)]));
    assert!(net.take(Kind::Read).is_empty(), "the second round begins when the first has ended");
    net.answer_read(&first[0], &observed(&[(7, Some(b"v")), (7, Some(b"v"))]));
    let second = round(&mut net);
    answer(&mut net, &second, 3);
    let value = Some((7, b"v".to_vec()));
    assert_eq!(values(net.completion_of(id)), [value.clone(), None, value]);
}

#[test]
fn a_key_that_was_written_and_deleted_has_changed() {
    let mut net = Net::open(|_| ());
    let id = multi_get(&mut net);
    for version in [3, 5, 5] {
        assert!(net.completed().is_empty());
        let reads = round(&mut net);
        answer(&mut net, &reads, version);
    }
    assert_eq!(values(net.completion_of(id))[1], None);
}

#[test]
fn keys_that_change_all_the_time_are_read_after_a_pause_until_the_deadline() {
    let mut net = Net::open(|_| ());
    let id = multi_get(&mut net);
    for version in 0..4 {
        let reads = round(&mut net);
        answer(&mut net, &reads, version);
    }
    assert!(net.take(Kind::Read).is_empty(), "it pauses");
    net.pass(Duration::from_millis(20));
    let reads = round(&mut net);
    net.pass(Duration::from_secs(31));
    assert_eq!(net.completion_of(id), Completion::ReadFailed(WhyFailed::DeadlinePassed), "the shards say nothing more");
    answer(&mut net, &reads, 9);
    assert!(net.completed().is_empty(), "and nobody hears of its reads");
}

#[test]
fn what_one_shard_refuses_for_good_is_told() {
    let mut net = Net::open(|_| ());
    let id = multi_get(&mut net);
    let [first, _] = round(&mut net);
    net.refuse_read(&first, Refusal::TooLarge);
    assert_eq!(net.completion_of(id), Completion::ReadFailed(WhyFailed::Refused(Refusal::TooLarge)));
    net.with(|session, _, _| assert_eq!(session.outstanding(), 0, "nor of the other shard"));
}

#[test]
fn more_than_a_result_may_be_is_refused_after_one_round() {
    let mut net = Net::open(|_| ());
    let id = multi_get(&mut net);
    let [first, second] = round(&mut net);
    let large = vec![0; RESULT_BYTES_MAX / 2];
    net.answer_read(&first, &observed(&[(7, Some(&large)), (7, Some(&large))]));
    net.answer_read(&second, &observed(&[(3, None)]));
    assert_eq!(net.completion_of(id), Completion::ReadFailed(WhyFailed::Refused(Refusal::TooLarge)));
}

#[test]
fn an_answer_that_no_server_gives_is_passed_over() {
    let mut net = Net::open(|_| ());
    let id = multi_get(&mut net);
    let [first, second] = round(&mut net);
    net.answer_read(&first, &observed(&[(7, None)]));
    net.answer_read(&second, &observed(&[(3, None)]));
    net.pass(Duration::from_millis(20));
    for _ in 0..2 {
        let reads = round(&mut net);
        answer(&mut net, &reads, 3);
    }
    assert_eq!(values(net.completion_of(id)).len(), 3);
}

#[test]
fn an_abandoned_call_ends_with_its_reads() {
    let mut net = Net::open(|_| ());
    let id = multi_get(&mut net);
    let reads = round(&mut net);
    net.with(|session, _, _| session.abandon(id));
    net.with(|session, _, _| assert_eq!(session.outstanding(), 0, "nobody waits for the reads"));
    answer(&mut net, &reads, 3);
    assert!(net.take(Kind::Read).is_empty() && net.completed().is_empty());
    net.with(|session, _, _| assert_eq!(session.outstanding(), 0));
}

/// A second is long: the machines of a shard may have lost power since, and with that what it had answered.
#[test]
fn r8_17_answers_of_one_round_are_of_one_time() {
    let mut net = Net::open(|_| ());
    let id = multi_get(&mut net);
    let first = round(&mut net);
    answer(&mut net, &first, 3);
    let second = round(&mut net);
    net.answer_read(&second[0], &observed(&[(7, Some(b"v")), (7, Some(b"v"))]));
    net.pass(Duration::from_millis(1_500));
    let again = net.take(Kind::Read).pop().expect("asked again");
    net.answer_read(&again, &observed(&[(3, None)]));
    assert!(net.completed().is_empty(), "the other one answered 1500 ms ago");
    let third = round(&mut net);
    answer(&mut net, &third, 3);
    assert!(net.completed().is_empty(), "the round before began more than a second ago");
    let fourth = round(&mut net);
    answer(&mut net, &fourth, 3);
    assert_eq!(values(net.completion_of(id))[1], None);
}
