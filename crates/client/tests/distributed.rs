//! Updates of keys of several shards: one body for all participants, and one outcome of their answers.

#[allow(dead_code, reason = "each test file uses a part")]
use std::time::Duration;

use crate::common::{Net, Sent, TABLE, core};
use kasha_client::Path;
use kasha_client::session::{CallId, CallOptions, Completion, Locking, WhyNot, WhyUnknown};
use kasha_machine::{Endpoint, Input};
use kasha_types::{ClusterTime, ConfigVersion, ListVersion, NodeId, ShardId, Slot, TableId, slot_of};
use kasha_wire::frame::Kind;
use kasha_wire::operation::{Check, Condition, ItemsBuffer, PartOperation, PartsBuffer};
use kasha_wire::outcome::Shape;
use kasha_wire::{Outcome, OutcomeCode, RecordedVerdict, Refusal, ShardPhase, TableInfo, Tablet, Update, message};

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
    let mut net = Net::open(|options| options.locking = Locking::WhenNeeded);
    let id = multi_put(&mut net, &CallOptions::default());
    let [low, high] = requests(&mut net, Kind::Request);
    assert_eq!(low.request().body, high.request().body);
    assert!(net.take(Kind::Record).is_empty(), "no witness holds what cannot fail");
    let body = low.body();
    let participants = body.participants().expect("a transaction over several shards");
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

/// No tablet moves today. If one does, the participants are still those whom the body names.
#[test]
fn r8_11_participants_stay_what_they_are_when_their_tablets_move_to_one_shard() {
    let mut net = Net::open(|_| ());
    let id = multi_put(&mut net, &CallOptions::default());
    let [low, high] = requests(&mut net, Kind::Request);
    net.answer(&low, &done(&[(1, &version(21))]), true);
    net.refuse(&high, Refusal::WrongShard);
    net.configuration.version = ConfigVersion(2);
    net.configuration.tablets.iter_mut().for_each(|tablet| tablet.shard = ShardId(0));
    net.give_configuration(Endpoint::Coordinator);
    net.pass(Duration::from_millis(100));
    let again = net.take(Kind::Request);
    assert!(!again.is_empty() && again.iter().all(|request| request.to == high.to));
    assert_eq!(again[0].request().body, high.request().body);
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
    let mut net = Net::open(|options| options.locking = Locking::WhenNeeded);
    let deadline = Some(net.now.after(Duration::from_millis(300)));
    let id = multi_put(&mut net, &CallOptions { deadline, ..CallOptions::default() });
    for _ in 0..40 {
        for request in net.take(Kind::Request).into_iter().chain(net.take(Kind::Cancel)) {
            net.answer(&request, CONFLICT, true);
        }
        net.pass(Duration::from_millis(10));
    }
    assert_eq!(net.completion_of(id), Completion::NotExecuted(WhyNot::Conflict));
}

#[test]
fn who_has_lost_says_since_when_in_all_its_tries_and_comes_when_it_is_told() {
    let mut net = Net::open(|options| options.locking = Locking::WhenNeeded);
    multi_put(&mut net, &CallOptions::default());
    let mut turns = Vec::new();
    for _ in 0..4 {
        let [low, high] = requests(&mut net, Kind::Request);
        let turn = low.request().envelope.turn;
        assert_eq!(high.request().envelope.turn, turn, "one order at all shards");
        turns.push(turn);
        net.answer(&low, CONFLICT, true);
        // Only who has not waited for its turn makes a pause.
        net.pass(Duration::from_millis(if turns.len() == 1 { 2 } else { 0 }));
    }
    assert_eq!(turns[0], None, "it is the youngest");
    assert!(turns[1].is_some_and(|turn| !turn.returns));
    assert!(turns[1..].iter().all(|turn| *turn == turns[1]), "{turns:?}");
}

/// In a window of two, a call whose turn had come waited for a number behind all others of its own session.
#[test]
fn who_has_lost_gets_a_number_before_those_of_its_session_that_have_not() {
    let mut net = Net::open(|options| (options.locking, options.outstanding_max) = (Locking::WhenNeeded, 1));
    multi_put(&mut net, &CallOptions::default());
    let lost = requests(&mut net, Kind::Request);
    for _ in 0..3 {
        multi_put(&mut net, &CallOptions::default());
    }
    net.answer(&lost[0], CONFLICT, true);
    net.pass(Duration::ZERO);
    let [low, high] = requests(&mut net, Kind::Request);
    assert_eq!(low.request().envelope.turn, None, "the window is not empty while it makes a pause");
    net.pass(Duration::from_millis(2));
    net.answer(&low, &done(&[(1, &version(1))]), true);
    net.answer(&high, &done(&[(1, &version(2)), (1, &version(3))]), true);
    let [low, _] = requests(&mut net, Kind::Request);
    assert!(low.request().envelope.turn.is_some(), "two others were queued before");
}

/// A client whose time was ahead is told so between two tries. Its age goes back with its time, once, and stays the same after that: a shard
/// would take another age for somebody else, and let it wait behind itself.
#[test]
fn whose_time_is_set_back_keeps_one_age() {
    let mut net = Net::open(|options| options.locking = Locking::WhenNeeded);
    multi_put(&mut net, &CallOptions::default());
    let mut turns = Vec::new();
    for number in 0..5 {
        let [low, high] = requests(&mut net, Kind::Request);
        let envelope = low.request().envelope;
        assert_eq!(envelope.turn, high.request().envelope.turn);
        assert!(envelope.turn.is_none_or(|turn| turn.since <= envelope.cluster_time), "{envelope:?}");
        turns.extend(envelope.turn);
        if number == 1 {
            let shown = net.session.cluster_time(net.now);
            let (least, most) = (ClusterTime(shown.0 - 1), ClusterTime(shown.0 - 1));
            net.message(low.to, &message::TimeIs { shown, least, most });
        }
        net.answer(&low, CONFLICT, true);
        net.pass(Duration::from_millis(if number == 0 { 2 } else { 0 }));
    }
    assert!(turns[1].since <= turns[0].since && turns[2..].iter().all(|turn| *turn == turns[1]), "{turns:?}");
}

#[test]
fn whose_caller_is_gone_says_so_when_it_is_its_turn() {
    let mut net = Net::open(|options| options.locking = Locking::WhenNeeded);
    let id = multi_put(&mut net, &CallOptions::default());
    let [low, _] = requests(&mut net, Kind::Request);
    net.answer(&low, CONFLICT, true);
    net.pass(Duration::from_millis(2));
    let [low, _] = requests(&mut net, Kind::Request);
    net.session.abandon(id);
    net.answer(&low, CONFLICT, true);
    net.pass(Duration::ZERO);
    let gone = requests(&mut net, Kind::Cancel);
    assert!(gone.iter().all(|cancel| cancel.rpc() == low.rpc() && cancel.request().envelope.turn.is_some()));
}

#[test]
fn a_check_that_fails_is_told_with_its_place_in_the_transaction() {
    let mut net = Net::open(|_| ());
    let mut parts = PartsBuffer::default();
    parts.push(TABLE, &PartOperation::Update(Update::put(LOW, b"v")));
    parts.push(TABLE, &PartOperation::Update(Update::put(HIGH, b"v")));
    parts.push(TABLE, &PartOperation::Check(Check::Meets { key: HIGH, condition: Condition::Version(4) }));
    let id = net.update(&Update::Transaction { parts: parts.as_parts() }, &CallOptions::default());
    let [low, high] = requests(&mut net, Kind::Request);
    net.answer(&low, REFUSED_ELSEWHERE, true);
    assert_eq!(net.session.poll_completed(), None, "who refuses says why");
    let mut failed = vec![8, 1, 0, 0, 0, Shape::Version as u8, 1];
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
    net.answer(&cancel, crate::common::CANCELLED, true);
    assert_eq!(net.completion_of(id), Completion::NotExecuted(WhyNot::ResultTooLarge));
}

const SECOND: TableId = TableId(2);

/// Two keys of a table, of both shards, and one of another table.
fn of_two_tables(net: &mut Net) -> CallId {
    let mut parts = PartsBuffer::default();
    for (table, key) in [(TABLE, LOW), (TABLE, HIGH), (SECOND, HIGH)] {
        parts.push(table, &PartOperation::Update(Update::put(key, b"v")));
    }
    net.update(&Update::Transaction { parts: parts.as_parts() }, &CallOptions::default())
}

fn change(net: &mut Net, change: impl FnOnce(&mut kasha_wire::Configuration)) {
    net.configuration.version = ConfigVersion(net.configuration.version.0 + 1);
    change(&mut net.configuration);
    net.give_configuration(Endpoint::Coordinator);
}

#[test]
fn a_table_that_is_unknown_or_gone_ends_it_whatever_the_other_keys_are() {
    let mut net = Net::open(|_| ());
    of_two_tables(&mut net);
    assert!(net.take(Kind::Request).is_empty(), "the coordinator is asked first");
    change(&mut net, |configuration| {
        configuration.tables.push(TableInfo { table: SECOND, name: "second".into() });
        configuration.tablets.push(Tablet { table: SECOND, first: Slot(0), last: Slot(16383), shard: ShardId(1) });
    });
    net.pass(Duration::from_millis(200));
    net.take(Kind::Request);
    let id = of_two_tables(&mut net);
    let sent = requests(&mut net, Kind::Request);
    change(&mut net, |configuration| {
        configuration.tables.pop();
        configuration.tablets.pop();
    });
    sent.iter().for_each(|request| net.refuse(request, Refusal::WrongShard));
    net.pass(Duration::from_millis(200));
    assert_eq!(net.completion_of(id), Completion::Unknown(WhyUnknown::TableDropped));
}

#[test]
fn a_body_that_is_too_long_is_refused_before_anything_looks_into_it() {
    let mut net = Net::open(|_| ());
    let value = vec![0; 1_000_000];
    let pairs = ItemsBuffer::pairs([HIGH, LOW, b"x", b"y", b"z"].map(|key| (key, &value[..])));
    let id = net.update(&Update::MultiPut { pairs: pairs.as_items() }, &CallOptions::default());
    assert_eq!(net.completion_of(id), Completion::NotExecuted(WhyNot::RequestTooLarge));
}

#[test]
fn nothing_is_kept_of_one_that_is_abandoned_before_it_is_sent() {
    let mut net = Net::open(|_| ());
    change(&mut net, |configuration| {
        configuration.shards.iter_mut().for_each(|shard| shard.phase = ShardPhase::Recovering);
    });
    let id = multi_put(&mut net, &CallOptions::default());
    net.with(|session, _, _| session.abandon(id));
    assert!(!format!("{:?}", net.session).contains("Distributed {"));
}

#[test]
fn a_client_without_exactly_once_never_says_that_it_did_not_happen() {
    let mut net = Net::open(|options| options.exactly_once = false);
    let id = multi_put(&mut net, &CallOptions::default());
    // Both participants commit it, and their answers are lost. The retry has another id, and meets it.
    assert_eq!(net.take(Kind::Request).len(), 2);
    net.pass(Duration::from_millis(100));
    let retry = net.take(Kind::Request);
    net.answer(&retry[0], CONFLICT, true);
    assert_eq!(net.completion_of(id), Completion::Unknown(WhyUnknown::DeadlinePassed));
}

#[test]
fn servers_that_say_what_none_says_do_not_make_a_result() {
    let mut net = Net::open(|_| ());
    let id = multi_put(&mut net, &CallOptions::default());
    let [low, high] = requests(&mut net, Kind::Request);
    net.answer(&low, &done(&[(1, &version(21))]), false);
    assert!(net.take(Kind::Sync).is_empty(), "no participant answers before it is sure");
    net.answer(&low, REFUSED_ELSEWHERE, true);
    net.answer(&high, REFUSED_ELSEWHERE, true);
    assert!(matches!(net.completion_of(id), Completion::Unknown(_)), "nobody says why");
}

#[test]
fn a_new_primary_of_any_participant_is_asked_at_once() {
    for shard in [0, 1] {
        let mut net = Net::open(|_| ());
        multi_put(&mut net, &CallOptions::default());
        net.take(Kind::Request);
        change(&mut net, |configuration| {
            configuration.shards[shard].epoch.0 += 1;
            configuration.shards[shard].primary = NodeId(4);
        });
        assert!(net.take(Kind::Request).iter().any(|request| request.to == core(4)), "of shard {shard}");
    }
}

/// What a participant answers as long as others may be against.
fn prepared(parts: &[(u8, &[u8])]) -> Vec<u8> {
    let mut result = done(parts);
    result[0] = 11;
    result
}

#[test]
fn r8_8_it_is_committed_when_each_participant_has_prepared_or_executed_it() {
    for (of_low, of_high) in [(11, 11), (11, 0), (0, 11)] {
        let mut net = Net::open(|_| ());
        let id = multi_put(&mut net, &CallOptions::default());
        let [low, high] = requests(&mut net, Kind::Request);
        let answer = |code, parts: &[(u8, &[u8])]| if code == 0 { done(parts) } else { prepared(parts) };
        net.answer(&high, &answer(of_high, &[(1, &version(11)), (1, &version(12))]), true);
        assert_eq!(net.session.poll_completed(), None, "the other may be against");
        net.answer(&low, &answer(of_low, &[(1, &version(21))]), true);
        assert_eq!(outcome(Shape::Versions, net.completion_of(id)), Outcome::Versions(vec![11, 21, 12]));
    }
}

#[test]
fn r8_8_a_participant_that_has_prepared_answers_again_when_it_executes() {
    let mut net = Net::open(|_| ());
    let id = multi_put(&mut net, &CallOptions::default());
    let [low, high] = requests(&mut net, Kind::Request);
    for code in [prepared, done] {
        net.answer(&high, &code(&[(1, &version(11)), (1, &version(12))]), true);
    }
    net.answer(&high, &prepared(&[(1, &version(11)), (1, &version(12))]), true); // an older attempt
    net.refuse(&low, Refusal::Busy);
    net.pass(Duration::from_millis(100));
    let again = net.take(Kind::Request);
    assert!(again.iter().all(|request| request.to == low.to), "the other has executed it");
    net.answer(again.last().expect("asked again"), &prepared(&[(1, &version(21))]), true);
    assert_eq!(outcome(Shape::Versions, net.completion_of(id)), Outcome::Versions(vec![11, 21, 12]));
}

#[test]
fn r8_8_that_one_has_prepared_does_not_help_where_another_is_against() {
    let mut net = Net::open(|_| ());
    let id = multi_put(&mut net, &CallOptions::default());
    let [low, high] = requests(&mut net, Kind::Request);
    net.answer(&high, &prepared(&[(1, &version(11)), (1, &version(12))]), true);
    net.answer(&low, CONFLICT, true);
    net.pass(Duration::from_millis(30));
    let [low_again, high_again] = requests(&mut net, Kind::Request);
    net.answer(&low_again, &prepared(&[(1, &version(31))]), true);
    net.answer(&high, &prepared(&[(1, &version(11)), (1, &version(12))]), true);
    assert_eq!(net.session.poll_completed(), None, "the participant has not answered under this id");
    net.answer(&high_again, &done(&[(1, &version(32)), (1, &version(33))]), true);
    assert_eq!(outcome(Shape::Versions, net.completion_of(id)), Outcome::Versions(vec![32, 31, 33]));
}

/// The one that is against, and knows why, may be gone.
#[test]
fn r8_8_a_participant_that_has_prepared_is_asked_again_when_another_one_is_silent() {
    let mut net = Net::open(|_| ());
    let id = multi_put(&mut net, &CallOptions::default());
    let [low, high] = requests(&mut net, Kind::Request);
    net.answer(&high, &prepared(&[(1, &version(11)), (1, &version(12))]), true);
    net.refuse(&low, Refusal::Busy);
    net.pass(Duration::from_millis(100));
    let again = net.take(Kind::Request);
    let high_again = again.iter().find(|request| request.to == high.to).expect("it is asked, too");
    net.answer(high_again, REFUSED_ELSEWHERE, true);
    assert_eq!(net.session.poll_completed(), None, "who refuses says why");
    net.answer(&low, CONFLICT, true);
    net.pass(Duration::from_millis(30));
    let [low_again, high_again] = requests(&mut net, Kind::Request);
    net.answer(&low_again, &prepared(&[(1, &version(31))]), true);
    net.answer(&high_again, &prepared(&[(1, &version(32)), (1, &version(33))]), true);
    assert_eq!(outcome(Shape::Versions, net.completion_of(id)), Outcome::Versions(vec![32, 31, 33]));
}

/// A put of shard 0, and a check of shard 1.
fn checked(net: &mut Net) -> CallId {
    let mut parts = PartsBuffer::default();
    parts.push(TABLE, &PartOperation::Update(Update::put(LOW, b"v")));
    parts.push(TABLE, &PartOperation::Check(Check::Meets { key: HIGH, condition: Condition::Version(4) }));
    net.update(&Update::Transaction { parts: parts.as_parts() }, &CallOptions::default())
}

/// The records of both shards, shard 0 first.
fn records(net: &mut Net) -> [Vec<Sent>; 2] {
    let (low, high) =
        net.take(Kind::Record).into_iter().partition(|record| record.request().envelope.shard == ShardId(0));
    [low, high]
}

fn path(completion: &Completion) -> Path {
    let Completion::Executed { path, .. } = completion else { panic!("{completion:?}") };
    *path
}

#[test]
fn one_round_trip_takes_all_participants_and_all_their_witnesses() {
    let mut net = Net::open(|_| ());
    let id = checked(&mut net);
    let [low, high] = requests(&mut net, Kind::Request);
    let [of_low, of_high] = records(&mut net);
    assert!(!of_low.is_empty() && of_low.len() == of_high.len());
    assert!(of_low.iter().chain(&of_high).all(|record| record.request().body == low.request().body));
    net.answer(&low, &prepared(&[(1, &version(21))]), false);
    net.answer(&high, &prepared(&[(96, &version(4))]), false);
    for record in of_low.iter().chain(&of_high) {
        assert_eq!(net.session.poll_completed(), None, "a witness has not answered");
        net.record(record, RecordedVerdict::Accepted);
    }
    assert_eq!(path(&net.completion_of(id)), Path::Fast);
}

#[test]
fn a_participant_whose_witness_rejects_is_asked_again_and_the_other_is_not() {
    let mut net = Net::open(|_| ());
    let id = checked(&mut net);
    let [low, high] = requests(&mut net, Kind::Request);
    let [of_low, of_high] = records(&mut net);
    of_low.iter().for_each(|record| net.record(record, RecordedVerdict::Accepted));
    of_high.iter().for_each(|record| net.record(record, RecordedVerdict::Conflict));
    net.answer(&low, &prepared(&[(1, &version(21))]), false);
    net.answer(&high, &prepared(&[(96, &version(4))]), false);
    let again = net.take(Kind::Request);
    assert_eq!(again.iter().map(|request| request.to).collect::<Vec<_>>(), [high.to]);
    assert_eq!(again[0].request().envelope.list, ListVersion::NONE);
    assert!(net.take(Kind::Record).is_empty());
    net.answer(&high, &prepared(&[(96, &version(4))]), false);
    assert_eq!(net.session.poll_completed(), None, "an older attempt");
    net.answer(&again[0], &done(&[(96, &version(4))]), true);
    assert_eq!(path(&net.completion_of(id)), Path::Synced);
}

#[test]
fn r2_1_an_answer_and_acceptances_of_different_attempts_do_not_count_together() {
    let mut net = Net::open(|_| ());
    let id = checked(&mut net);
    let [low, high] = requests(&mut net, Kind::Request);
    let [of_low, _] = records(&mut net);
    net.answer(&low, &prepared(&[(1, &version(21))]), false);
    net.refuse(&high, Refusal::Busy);
    net.pass(Duration::from_millis(30));
    let [low_again, high_again] = requests(&mut net, Kind::Request);
    let [of_low_again, of_high_again] = records(&mut net);
    net.answer(&high_again, &prepared(&[(96, &version(4))]), false);
    let late = of_low.iter().chain(&of_low_again).chain(&of_high_again);
    late.for_each(|record| net.record(record, RecordedVerdict::Accepted));
    net.answer(&low, &prepared(&[(1, &version(21))]), false);
    assert_eq!(net.session.poll_completed(), None, "shard 0 has not answered the second attempt");
    net.answer(&low_again, &prepared(&[(1, &version(21))]), false);
    assert_eq!(path(&net.completion_of(id)), Path::Fast);
}

#[test]
fn a_participant_whose_witness_is_gone_is_asked_again_without_witnesses() {
    let mut net = Net::open(|_| ());
    let id = checked(&mut net);
    let [low, high] = requests(&mut net, Kind::Request);
    let [of_low, of_high] = records(&mut net);
    net.answer(&low, &prepared(&[(1, &version(21))]), false);
    net.answer(&high, &prepared(&[(96, &version(4))]), false);
    // Node 4 is a witness of shard 1 alone.
    let alive = |record: &&Sent| record.to != core(4);
    of_low.iter().chain(&of_high).filter(alive).for_each(|record| net.record(record, RecordedVerdict::Accepted));
    net.input(Input::Unreachable(core(4)));
    let again = net.take(Kind::Request);
    assert_eq!(again.iter().map(|request| request.to).collect::<Vec<_>>(), [high.to]);
    net.answer(&again[0], &done(&[(96, &version(4))]), true);
    assert_eq!(path(&net.completion_of(id)), Path::Synced);
}

/// Node 3 is a witness of both shards, whose lists have the same version.
#[test]
fn a_witness_of_two_participants_counts_for_each() {
    let mut net = Net::open(|_| ());
    let id = checked(&mut net);
    let [low, high] = requests(&mut net, Kind::Request);
    let [of_low, of_high] = records(&mut net);
    net.answer(&low, &prepared(&[(1, &version(21))]), false);
    net.answer(&high, &prepared(&[(96, &version(4))]), false);
    of_low.iter().for_each(|record| net.record(record, RecordedVerdict::Accepted));
    let (of_node_3, others): (Vec<_>, Vec<_>) = of_high.iter().partition(|record| record.to == core(3));
    others.iter().for_each(|record| net.record(record, RecordedVerdict::Accepted));
    assert_eq!(net.session.poll_completed(), None, "node 3 has accepted it for shard 0 only");
    of_node_3.iter().for_each(|record| net.record(record, RecordedVerdict::Accepted));
    assert_eq!(path(&net.completion_of(id)), Path::Fast);
}

#[test]
fn what_is_given_up_is_recorded_nowhere() {
    let mut net = Net::open(|_| ());
    let mut parts = PartsBuffer::default();
    parts.push(TABLE, &PartOperation::Update(Update::put(LOW, b"v")));
    parts.push(TABLE, &PartOperation::Check(Check::Meets { key: HIGH, condition: Condition::Version(4) }));
    let deadline = Some(net.now.after(Duration::from_millis(50)));
    let options = CallOptions { deadline, cancel_on_deadline: true, ..CallOptions::default() };
    net.update(&Update::Transaction { parts: parts.as_parts() }, &options);
    net.take(Kind::Record);
    net.pass(Duration::from_millis(60));
    net.take(Kind::Record);
    net.pass(Duration::from_millis(300));
    assert!(!net.take(Kind::Cancel).is_empty());
    assert!(net.take(Kind::Record).is_empty());
}

/// What a participant recorded under the operation key.
fn repeated(kept: &[u8]) -> Vec<u8> {
    repeated_of(1, kept)
}

/// The same of another run.
fn repeated_of(run: u8, kept: &[u8]) -> Vec<u8> {
    [&[12], &[run; 16][..], kept].concat()
}

fn under_a_key(net: &mut Net) -> CallId {
    multi_put(net, &CallOptions { operation_key: Some((b"order-42", 60_000)), ..CallOptions::default() })
}

#[test]
fn r4_9_an_operation_key_goes_to_all_participants_and_belongs_to_the_key_that_was_named_first() {
    let mut net = Net::open(|_| ());
    under_a_key(&mut net);
    let [low, high] = requests(&mut net, Kind::Request);
    assert_eq!(low.request().body, high.request().body);
    let body = low.body();
    assert_eq!(body.operation_key, Some(&b"order-42"[..]));
    assert_eq!(body.first_key().1, HIGH, "though the parts of the other participant come first");
    assert!(body.is_coordinated(), "one of them may know the key");
    let mut recorded = net.take(Kind::Record);
    recorded.retain(|record| record.request().body == low.request().body);
    assert!(!recorded.is_empty(), "one round trip is tried");
}

#[test]
fn r4_9_what_all_participants_have_kept_is_the_result() {
    let mut net = Net::open(|_| ());
    let id = under_a_key(&mut net);
    let [low, high] = requests(&mut net, Kind::Request);
    net.answer(&high, &repeated(&done(&[(1, &version(11)), (1, &version(12))])), true);
    assert_eq!(net.session.poll_completed(), None, "the other has not answered");
    net.answer(&low, &repeated(&done(&[(1, &version(21))])), true);
    assert_eq!(outcome(Shape::Versions, net.completion_of(id)), Outcome::Versions(vec![11, 21, 12]));
}

/// The earlier one is executed at one participant, and not yet at the other.
#[test]
fn r4_9_what_one_participant_has_kept_and_another_waits_for_is_asked_for_again() {
    for last in [CONFLICT, REFUSED_ELSEWHERE] {
        let mut net = Net::open(|_| ());
        let id = under_a_key(&mut net);
        let [low, high] = requests(&mut net, Kind::Request);
        net.answer(&high, &repeated(&done(&[(1, &version(11)), (1, &version(12))])), true);
        net.answer(&low, &prepared(&[(1, &version(21))]), true); // an older answer
        net.answer(&low, last, true);
        assert_eq!(net.session.poll_completed(), None, "it has not happened under this id");
        net.pass(Duration::from_millis(30));
        let [low_again, high_again] = requests(&mut net, Kind::Request);
        assert_ne!(low_again.rpc(), low.rpc());
        net.answer(&low_again, &repeated(&done(&[(1, &version(21))])), true);
        net.answer(&high_again, &repeated(&done(&[(1, &version(11)), (1, &version(12))])), true);
        assert_eq!(outcome(Shape::Versions, net.completion_of(id)), Outcome::Versions(vec![11, 21, 12]));
    }
}

#[test]
fn r4_9_what_was_not_committed_or_was_something_else_is_told_by_one_participant() {
    let mut net = Net::open(|_| ());
    let id = under_a_key(&mut net);
    let [_, high] = requests(&mut net, Kind::Request);
    // The last of all parts, which are ordered by shard.
    let failed = [8, 2, 0, 0, 0, 1, OutcomeCode::TooLarge as u8];
    net.answer(&high, &repeated(&failed), true);
    let Completion::Executed { result, .. } = net.completion_of(id) else { panic!("an outcome") };
    assert_eq!(result, [OutcomeCode::TooLarge as u8, 2, 0, 0, 0], "the third pair");
    let id = under_a_key(&mut net);
    let [low, _] = requests(&mut net, Kind::Request);
    net.answer(&low, &[OutcomeCode::OperationKeyMismatch as u8], true);
    assert_eq!(outcome(Shape::Versions, net.completion_of(id)), Outcome::OperationKeyMismatch);
}

/// One that is against leaves it to the keeper of the operation key to say why, and may be faster.
#[test]
fn r4_9_an_older_prepared_answer_counts_for_nothing_when_another_participant_is_against() {
    let mut net = Net::open(|_| ());
    let id = under_a_key(&mut net);
    let [low, high] = requests(&mut net, Kind::Request);
    net.answer(&low, REFUSED_ELSEWHERE, true);
    net.answer(&high, &prepared(&[(1, &version(11)), (1, &version(12))]), true);
    assert_eq!(net.session.poll_completed(), None, "the keeper says why");
    let failed = [8, 0, 0, 0, 0, 1, OutcomeCode::TooLarge as u8];
    net.answer(&high, &failed, true);
    let Completion::Executed { result, .. } = net.completion_of(id) else { panic!("an outcome") };
    assert_eq!(result, [OutcomeCode::TooLarge as u8, 1, 0, 0, 0], "the second pair is the first part of the body");
}

/// 0034: with locks, and so in one round trip, as long as it meets nobody.
#[test]
fn what_cannot_fail_tries_locks_and_goes_on_without_them_when_it_meets_another() {
    let mut net = Net::open(|_| ());
    let id = multi_put(&mut net, &CallOptions::default());
    let [low, high] = requests(&mut net, Kind::Request);
    assert!(low.body().is_coordinated());
    assert!(!net.take(Kind::Record).is_empty());
    net.answer(&high, &prepared(&[(1, &version(11)), (1, &version(12))]), true);
    net.answer(&low, CONFLICT, true);
    net.pass(Duration::ZERO);
    let [low_again, high_again] = requests(&mut net, Kind::Request);
    assert_ne!(low_again.rpc(), low.rpc());
    assert!(!low_again.body().is_coordinated() && low_again.body().bytes() == high_again.body().bytes());
    assert!(net.take(Kind::Record).is_empty(), "no witness holds what is not coordinated");
    net.answer(&low_again, &done(&[(1, &version(21))]), true);
    net.answer(&high_again, &done(&[(1, &version(11)), (1, &version(12))]), true);
    assert_eq!(outcome(Shape::Versions, net.completion_of(id)), Outcome::Versions(vec![11, 21, 12]));
    // The next ones on these keys go without locks at once.
    for takes_locks in [false, false, true] {
        multi_put(&mut net, &CallOptions::default());
        let [low, _] = requests(&mut net, Kind::Request);
        assert_eq!(low.body().is_coordinated(), takes_locks);
    }
}

/// The time of the key was over meanwhile, and the transaction has run again.
#[test]
fn r4_9_results_of_two_runs_are_no_result() {
    let mut net = Net::open(|_| ());
    let id = under_a_key(&mut net);
    let [low, high] = requests(&mut net, Kind::Request);
    net.answer(&high, &repeated(&done(&[(1, &version(11)), (1, &version(12))])), true);
    net.answer(&low, &repeated_of(2, &done(&[(1, &version(31))])), true);
    assert_eq!(net.session.poll_completed(), None, "they did not happen together");
    net.pass(Duration::from_millis(30));
    let [low, high] = requests(&mut net, Kind::Request);
    net.answer(&high, &repeated_of(2, &done(&[(1, &version(32)), (1, &version(33))])), true);
    net.answer(&low, &repeated_of(2, &done(&[(1, &version(31))])), true);
    assert_eq!(outcome(Shape::Versions, net.completion_of(id)), Outcome::Versions(vec![32, 31, 33]));
}

/// A second is long: the machines of a participant may have lost power since, and with that what it had prepared.
#[test]
fn r8_17_what_was_prepared_long_ago_is_asked_again() {
    let mut net = Net::open(|_| ());
    let id = checked(&mut net);
    let [low, high] = requests(&mut net, Kind::Request);
    net.answer(&low, &prepared(&[(1, &version(21))]), true);
    let last_of = |net: &mut Net, first: &Sent| {
        net.pass(Duration::from_millis(600));
        net.take(Kind::Request).into_iter().rfind(|request| request.to == first.to).expect("asked again")
    };
    let _ = last_of(&mut net, &high);
    let high_again = last_of(&mut net, &high);
    net.answer(&high_again, &prepared(&[(96, &version(4))]), true);
    assert_eq!(net.session.poll_completed(), None, "the other one prepared it 1200 ms ago");
    let low_again = last_of(&mut net, &low);
    net.answer(&low_again, &prepared(&[(1, &version(22))]), true);
    assert!(matches!(net.completion_of(id), Completion::Executed { .. }));
}

#[test]
fn r8_17_what_a_participant_prepares_anew_counts_and_not_what_it_has_lost() {
    let mut net = Net::open(|options| options.locking = Locking::Always);
    let id = multi_put(&mut net, &CallOptions::default());
    let [low, high] = requests(&mut net, Kind::Request);
    net.answer(&low, &prepared(&[(1, &version(21))]), true);
    net.refuse(&high, Refusal::Busy);
    net.pass(Duration::from_millis(30));
    let [low_again, high_again] = requests(&mut net, Kind::Request);
    net.answer(&low_again, &prepared(&[(1, &version(22))]), true);
    net.answer(&high_again, &prepared(&[(1, &version(11)), (1, &version(12))]), true);
    assert_eq!(outcome(Shape::Versions, net.completion_of(id)), Outcome::Versions(vec![11, 22, 12]));
}

#[test]
fn r8_17_what_was_executed_long_ago_stays_so() {
    let mut net = Net::open(|_| ());
    let id = checked(&mut net);
    let [low, high] = requests(&mut net, Kind::Request);
    net.answer(&low, &done(&[(1, &version(21))]), true);
    net.pass(Duration::from_millis(2_000));
    let high_again = net.take(Kind::Request).into_iter().rfind(|request| request.to == high.to).expect("asked again");
    net.answer(&high_again, &prepared(&[(96, &version(4))]), true);
    assert!(matches!(net.completion_of(id), Completion::Executed { .. }));
}
