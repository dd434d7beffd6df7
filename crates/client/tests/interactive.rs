//! Interactive transactions without input and output: what they see, what they commit, and when a program runs again.

use std::time::Duration;

use crate::common::{Net, TABLE};
use kasha_client::session::{
    Again, BodyEnd, Commit, CommitEnd, Completion, Conflict, Interactive, Next, NoCommit, ToCommit, Tries, WhyFailed,
    WhyNot, WhyUnknown,
};
use kasha_types::{ClusterTime, Tick};
use kasha_wire::operation::{Bounds, Check, Condition, PartOperation};
use kasha_wire::{Outcome, Update};

fn part_texts(commit: &ToCommit) -> Vec<String> {
    let (table, operation) = commit.operation.as_ref().expect("something to do");
    assert_eq!(*table, TABLE);
    let operation = operation.as_ref().expect("within its limits");
    let Some(Update::Transaction { parts }) = operation.update() else { panic!("{operation:?}") };
    let text = |operation: PartOperation<'_>| match operation {
        PartOperation::Check(Check::Meets { condition: Condition::Version(version), .. }) => format!("has {version}"),
        PartOperation::Update(Update::Increment { delta, .. }) => format!("add {delta}"),
        PartOperation::Update(_) => operation.row().name.to_owned(),
        other => panic!("{other:?}"),
    };
    let key = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    parts.iter().map(|part| format!("{} {}", key(part.operation.first_key()), text(part.operation))).collect()
}

fn number(version: u64, number: i64) -> Option<(u64, Vec<u8>)> {
    Some((version, number.to_string().into_bytes()))
}

#[test]
fn a_commit_checks_all_that_was_read_and_writes_what_was_written_last() {
    let mut seen = Interactive::default();
    assert_eq!(seen.seen(TABLE, b"a"), None, "it is to be read");
    seen.on_read(TABLE, [(&b"b"[..], number(7, 1)), (b"a", None)]);
    assert!(seen.to_commit().operation.is_none(), "all keys were read at one moment");
    seen.on_read(TABLE, [(&b"b"[..], number(8, 2)), (b"c", number(9, 3))]);
    assert_eq!(seen.seen(TABLE, b"b"), Some(number(7, 1)), "what was read before stays");
    assert_eq!(part_texts(&seen.to_commit()), ["a has 0", "b has 7", "c has 9"], "two moments");
    seen.put(TABLE, b"z", b"1");
    seen.delete(TABLE, b"a");
    seen.put(TABLE, b"a", b"5");
    assert_eq!(seen.increment(TABLE, b"b", 2, Bounds::NONE), Ok(Some(3)));
    assert_eq!(seen.increment(TABLE, b"a", 1, Bounds::NONE), Ok(Some(6)), "what it has written is put");
    assert_eq!((seen.seen(TABLE, b"a"), seen.seen(TABLE, b"b")), (Some(number(0, 6)), Some(number(0, 3))));
    let commit = seen.to_commit();
    assert_eq!(part_texts(&commit), ["a has 0", "b has 7", "c has 9", "a put", "b add 2", "z put"]);
    let failed = |part, outcome| commit.commit_of(&Outcome::NotCommitted(part, Box::new(outcome)));
    let conflict = Conflict { table: TABLE, key: b"b".to_vec(), read: Some(7), found: None };
    assert_eq!(failed(1, Outcome::ConditionFailed(0)), Ok(Commit::Conflict(conflict)));
    assert_eq!(failed(3, Outcome::TooLarge), Err(NoCommit::TooLarge));
    assert_eq!(failed(4, Outcome::ConditionFailed(1)), Err(NoCommit::Invalid), "that is no check");
    seen.forget_writes();
    assert_eq!(part_texts(&seen.to_commit()), ["a has 0", "b has 7", "c has 9"], "a program that failed has read");
}

#[test]
fn an_increment_is_of_a_number_and_within_its_bounds() {
    let mut seen = Interactive::default();
    seen.on_read(TABLE, [(&b"a"[..], Some((1, b"a word".to_vec()))), (b"b", number(2, 5))]);
    assert_eq!(seen.increment(TABLE, b"a", 1, Bounds::NONE), Err(WhyFailed::NotANumber));
    let wallet = Bounds::new(0, i64::MAX).expect("in order");
    assert_eq!(seen.increment(TABLE, b"b", -6, wallet), Ok(None));
    assert!(!seen.to_commit().has_writes, "nothing is added");
    assert_eq!(seen.increment(TABLE, b"b", i64::MIN, Bounds::NONE), Ok(Some(i64::MIN + 5)));
    assert_eq!(seen.increment(TABLE, b"b", -5, Bounds::NONE), Ok(Some(i64::MIN)));
    let parts = part_texts(&seen.to_commit());
    assert_eq!(parts[2..], [format!("b add {}", i64::MIN), "b add -5".to_owned()], "each number on the way fits");
}

#[test]
fn a_value_that_lives_for_no_time_is_no_part_of_a_commit() {
    let mut seen = Interactive::default();
    seen.put_expiring(TABLE, b"a", b"v", Duration::ZERO);
    let commit = seen.to_commit();
    assert_eq!(commit.operation.map(|(_, operation)| operation.err()), Some(Some(WhyNot::Lifetime)));
}

fn commit(has_writes: bool) -> ToCommit {
    let mut seen = Interactive::default();
    if has_writes {
        seen.put(TABLE, b"a", b"v");
    }
    seen.to_commit()
}

const UNTIL: Tick = Tick(1_000_000_000);

#[test]
fn a_program_runs_again_when_it_has_lost_and_when_nothing_can_have_been_written() {
    let next = |end, has_writes, body| {
        let mut tries = Tries::new(UNTIL);
        let next = tries.on_end((end, &commit(has_writes)), body, Tick(0), 512);
        if let Next::Again(pause) = next {
            assert_eq!(pause, Duration::from_micros(500))
        }
        next
    };
    let again = Next::Again(Duration::from_micros(500));
    let (no_answer, decided) = (BodyEnd::Failed { read_failed: true }, BodyEnd::Failed { read_failed: false });
    for body in [BodyEnd::Done, no_answer, decided] {
        assert_eq!(next(CommitEnd::Committed, true, body), Next::Return);
        assert_eq!(next(CommitEnd::Lost, true, body), again);
        assert_eq!(next(CommitEnd::Unknown, false, body), again);
    }
    assert_eq!(next(CommitEnd::Unknown, true, BodyEnd::Done), Next::Fail);
    assert_eq!(
        next(CommitEnd::Failed, false, decided),
        Next::Fail,
        "an error of which it is not certain that it was so"
    );
    assert_eq!(next(CommitEnd::Failed, false, no_answer), Next::Return);
}

#[test]
fn pauses_end_where_turns_begin_and_nobody_tries_after_the_deadline() {
    let mut tries = Tries::new(UNTIL);
    let mut lose = |now, draw| tries.on_end((CommitEnd::Lost, &commit(true)), BodyEnd::Done, now, draw);
    assert_eq!(lose(Tick(0), 1023), Next::Again(Duration::from_millis(1).mul_f64(1023.0 / 1024.0)));
    for _ in 2..=8 {
        assert_eq!(lose(Tick(0), 1023), Next::Again(Duration::ZERO), "a shard says when it is its turn");
    }
    assert_eq!(lose(Tick(0), 512), Next::Again(Duration::from_millis(1)));
    for _ in 10..40 {
        lose(Tick(0), 512);
    }
    assert_eq!(lose(Tick(0), 512), Next::Again(Duration::from_millis(50)), "not for ever");
    assert_eq!(lose(UNTIL, 0), Next::GiveUp);
}

/// 0047: in the session's time, which may be set back.
#[test]
fn all_tries_after_the_first_that_was_lost_have_one_turn() {
    let mut net = Net::open(|_| ());
    let mut tries = Tries::new(UNTIL);
    let mut again = |net: &mut Net| net.with(|session, now, _| tries.again(session, now));
    assert_eq!(again(&mut net), Again::ByCaller(None));
    let mut tries = Tries::new(UNTIL);
    let next = tries.on_end((CommitEnd::Lost, &commit(true)), BodyEnd::Done, net.now, 0);
    assert_eq!(next, Next::Again(Duration::ZERO));
    let first = net.with(|session, now, _| tries.again(session, now));
    let Again::ByCaller(Some(turn)) = first else { panic!("{first:?}") };
    assert!(turn.since >= ClusterTime(1000));
    net.pass(Duration::from_millis(70));
    assert_eq!(net.with(|session, now, _| tries.again(session, now)), first);
}

#[test]
fn how_a_call_ended_says_how_a_commit_ended() {
    let of = |completion| CommitEnd::of(&completion, &commit(true));
    let executed =
        |result: &[u8]| Completion::Executed { result: result.to_vec(), path: kasha_client::Path::Synced, attempts: 1 };
    assert_eq!(of(executed(&[0, 0, 0, 0, 0])), CommitEnd::Committed);
    assert_eq!(of(executed(&[77])), CommitEnd::Failed);
    assert_eq!(of(Completion::NotExecuted(WhyNot::Conflict)), CommitEnd::Lost);
    assert_eq!(of(Completion::NotExecuted(WhyNot::OutOfMemory)), CommitEnd::Failed);
    assert_eq!(of(Completion::Unknown(WhyUnknown::LeaseLost)), CommitEnd::Unknown);
}
