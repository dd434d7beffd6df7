//! Updates of keys of several shards: one body for all participants, and one outcome of their answers.

#[allow(dead_code, reason = "each test file uses a part")]
mod common;

use std::time::Duration;

use common::{Net, Sent, TABLE};
use kasha_client::session::{CallId, CallOptions, Completion, WhyNot};
use kasha_types::{ShardId, slot_of};
use kasha_wire::frame::Kind;
use kasha_wire::operation::{Check, ItemsBuffer, PartOperation, PartsBuffer};
use kasha_wire::outcome::Shape;
use kasha_wire::{Outcome, Refusal, Update};

const LOW: &[u8] = b"a-low-slot-";
const HIGH: &[u8] = b"foo";
const CONFLICT: &[u8] = &[9];
const REFUSED_ELSEWHERE: &[u8] = &[10];

/// Of shard 1, of shard 0, and of shard 1.
fn multi_put(net: &mut Net, options: &CallOptions<'_>) -> CallId {
    assert!(slot_of(LOW).0 < 8192 && slot_of(HIGH).0 >= 8192);
    let pairs = ItemsBuffer::pairs([(HIGH, &b"1"[..]), (LOW, b"2"), (HIGH, b"3")]);
    net.update(&Update::MultiPut { pairs: pairs.as_items() }, options)
}

/// What the participants got, shard 0 first.
fn requests(net: &mut Net, kind: Kind) -> [Sent; 2] {
    let mut sent = net.take(kind);
    sent.sort_by_key(|request| request.request().envelope.shard);
    sent.try_into().expect("one request to each participant")
}

/// A participant's answer: of each part the code and the result.
fn done(parts: &[(u8, &[u8])]) -> Vec<u8> {
    let mut result = vec![0];
    result.extend((parts.len() as u32).to_le_bytes());
    for (code, part) in parts {
        result.push(*code);
        result.extend((part.len() as u32).to_le_bytes());
        result.extend(*part);
    }
    result
}

fn version(version: u8) -> [u8; 9] {
    [0, version, 0, 0, 0, 0, 0, 0, 0]
}

fn outcome(shape: Shape, completion: Completion) -> Outcome {
    let Completion::Executed { result, .. } = completion else { panic!("{completion:?}") };
    Outcome::decode(shape, &result).expect("a result")
}

#[test]
fn all_participants_get_one_body_and_their_answers_become_one() {
    let mut net = Net::open(|_| ());
    let id = multi_put(&mut net, &CallOptions::default());
    let [low, high] = requests(&mut net, Kind::Request);
    assert_eq!(low.request().body, high.request().body);
    assert!(net.take(Kind::Record).is_empty(), "no witness holds one");
    let body = low.body();
    let participants = body.participants.expect("a transaction over several shards");
    assert_eq!(participants.iter().collect::<Vec<_>>(), [(ShardId(0), 1), (ShardId(1), 2)]);
    assert_eq!(body.parts_at(ShardId(1)).expect("it takes part").count(), 2);
    assert_eq!(body.parts_at(ShardId(2)), None);
    net.answer(&high, &done(&[(1, &version(11)), (1, &version(12))]), true);
    assert_eq!(net.session.poll_completed(), None, "the other has not answered");
    net.answer(&low, &done(&[(1, &version(21))]), true);
    assert_eq!(outcome(Shape::Versions, net.completion_of(id)), Outcome::Versions(vec![11, 21, 12]));
}

#[test]
fn only_who_has_not_answered_is_asked_again() {
    let mut net = Net::open(|_| ());
    let id = multi_put(&mut net, &CallOptions::default());
    let [low, high] = requests(&mut net, Kind::Request);
    net.answer(&low, &done(&[(1, &version(21))]), true);
    net.refuse(&high, Refusal::Busy);
    net.pass(Duration::from_millis(100));
    let again = net.take(Kind::Request);
    assert!(again.iter().all(|request| request.to == high.to && request.request().body == high.request().body));
    net.answer(&again[0], &done(&[(1, &version(11)), (1, &version(12))]), true);
    assert_eq!(outcome(Shape::Versions, net.completion_of(id)), Outcome::Versions(vec![11, 21, 12]));
}

#[test]
fn after_a_conflict_it_is_tried_under_another_id_and_no_answer_of_the_first_counts() {
    let mut net = Net::open(|_| ());
    let id = multi_put(&mut net, &CallOptions::default());
    let [low, high] = requests(&mut net, Kind::Request);
    net.answer(&high, &done(&[(1, &version(11)), (1, &version(12))]), true);
    net.answer(&low, CONFLICT, true);
    net.pass(Duration::from_millis(30));
    let [low_again, high_again] = requests(&mut net, Kind::Request);
    assert_ne!(low_again.rpc(), low.rpc());
    net.answer(&high, &done(&[(1, &version(11)), (1, &version(12))]), true);
    net.answer(&low_again, &done(&[(1, &version(31))]), true);
    assert_eq!(net.session.poll_completed(), None, "the participant has not answered under this id");
    net.answer(&high_again, &done(&[(1, &version(32)), (1, &version(33))]), true);
    assert_eq!(outcome(Shape::Versions, net.completion_of(id)), Outcome::Versions(vec![32, 31, 33]));
}

#[test]
fn what_meets_others_until_its_deadline_did_not_happen() {
    let mut net = Net::open(|_| ());
    let deadline = Some(net.now.after(Duration::from_millis(300)));
    let id = multi_put(&mut net, &CallOptions { deadline, ..CallOptions::default() });
    for _ in 0..40 {
        for request in net.take(Kind::Request) {
            net.answer(&request, CONFLICT, true);
        }
        net.pass(Duration::from_millis(10));
    }
    assert_eq!(net.completion_of(id), Completion::NotExecuted(WhyNot::Conflict));
}

#[test]
fn a_check_that_fails_is_told_with_its_place_in_the_transaction() {
    let mut net = Net::open(|_| ());
    let mut parts = PartsBuffer::default();
    parts.push(TABLE, &PartOperation::Update(Update::Put { key: LOW, value: b"v" }));
    parts.push(TABLE, &PartOperation::Update(Update::Put { key: HIGH, value: b"v" }));
    parts.push(TABLE, &PartOperation::Check(Check::HasVersion { key: HIGH, version: 4 }));
    let id = net.update(&Update::Transaction { parts: parts.as_parts() }, &CallOptions::default());
    let [low, high] = requests(&mut net, Kind::Request);
    net.answer(&low, REFUSED_ELSEWHERE, true);
    assert_eq!(net.session.poll_completed(), None, "who refuses says why");
    let mut failed = vec![8, 1, 0, 0, 0, 96, 1];
    failed.extend(7u64.to_le_bytes());
    net.answer(&high, &failed, true);
    let expected = Outcome::NotCommitted(2, Box::new(Outcome::ConditionFailed(7)));
    assert_eq!(outcome(Shape::Parts, net.completion_of(id)), expected);
}

#[test]
fn what_a_participant_never_takes_is_given_up_at_all() {
    let mut net = Net::open(|_| ());
    let id = multi_put(&mut net, &CallOptions::default());
    let [low, high] = requests(&mut net, Kind::Request);
    net.refuse(&low, Refusal::TooLarge);
    let [cancel, _] = requests(&mut net, Kind::Cancel);
    assert_eq!(cancel.request().body, high.request().body);
    net.answer(&cancel, common::CANCELLED, true);
    assert_eq!(net.completion_of(id), Completion::NotExecuted(WhyNot::ResultTooLarge));
}
