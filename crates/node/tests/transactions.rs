//! Transactions on one shard: all parts or none, once, and what a dropped table takes of them.

use crate::common::cluster::{Cluster, LIST};
use crate::common::{Core, Heard, SHARD, TABLE};
use kasha_machine::Endpoint;
use kasha_types::{ConnId, ListVersion, Slot, TableId};
use kasha_wire::frame::Kind;
use kasha_wire::hot::RequestView;
use kasha_wire::operation::{Check, Condition, PartOperation, PartsBuffer};
use kasha_wire::outcome::Shape;
use kasha_wire::{Outcome, Read, Refusal, TableInfo, Tablet, Update};

/// The second table.
const LEDGER: TableId = TableId(9);

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> PartOperation<'a> {
    PartOperation::Update(Update::put(key, value))
}

fn increment(key: &[u8], delta: i64) -> PartOperation<'_> {
    PartOperation::Update(Update::increment(key, delta))
}

fn get(key: &[u8]) -> PartOperation<'_> {
    PartOperation::Read(Read::Get { key })
}

fn parts(parts: &[(TableId, PartOperation<'_>)]) -> PartsBuffer {
    let mut buffer = PartsBuffer::default();
    parts.iter().for_each(|(table, operation)| buffer.push(*table, operation));
    buffer
}

fn outcome(heard: Option<Heard>) -> Outcome {
    match heard {
        Some(Heard::Answer { result, .. }) => Outcome::decode(Shape::Parts, &result).expect("a transaction's result"),
        other => panic!("{other:?}"),
    }
}

fn run(core: &mut Core, sequence: u64, list: &[(TableId, PartOperation<'_>)]) -> Outcome {
    let parts = parts(list);
    outcome(core.update((1, sequence), sequence, &Update::Transaction { parts: parts.as_parts() }))
}

#[test]
fn each_part_sees_what_the_parts_before_it_did() {
    let mut core = Core::serving();
    let long = [b'x'; 300];
    let told = run(
        &mut core,
        1,
        &[
            (TABLE, put(b"a", b"1")),
            (TABLE, increment(b"a", 41)),
            (TABLE, PartOperation::Update(Update::append(b"a", b"0"))),
            (TABLE, PartOperation::Update(Update::append(b"a", b"5"))),
            (TABLE, PartOperation::Check(Check::Meets { key: b"a", condition: Condition::Value(b"4205") })),
            (TABLE, increment(b"a", 1)),
            (TABLE, PartOperation::Update(Update::get_and_put(b"a", &long))),
            (TABLE, PartOperation::Update(Update::get_and_delete(b"a"))),
            (TABLE, PartOperation::Read(Read::Exists { key: b"a" })),
            (TABLE, PartOperation::Check(Check::Meets { key: b"a", condition: Condition::ABSENT })),
            (TABLE, put(b"a", b"new")),
            (TABLE, get(b"a")),
        ],
    );
    let expected = vec![
        Outcome::Version(1),
        Outcome::Number(42, 2),
        Outcome::Length(3, 3),
        Outcome::Length(4, 4),
        Outcome::Version(4),
        Outcome::Number(4206, 5),
        Outcome::Replaced(6, Some((5, b"4206".to_vec()))),
        Outcome::Replaced(6, Some((6, long.to_vec()))),
        Outcome::Flags(vec![false]),
        Outcome::Version(0),
        Outcome::Version(8),
        Outcome::Value(8, b"new".to_vec()),
    ];
    assert_eq!(told, Outcome::Parts(expected));
}

#[test]
fn a_part_that_fails_leaves_nothing_behind_and_the_outcome_is_recorded() {
    let mut core = Core::serving();
    run(&mut core, 1, &[(TABLE, put(b"a", b"word")), (TABLE, put(b"b", b"1"))]);
    let failing = parts(&[(TABLE, put(b"b", b"2")), (TABLE, increment(b"a", 1)), (TABLE, put(b"c", b"3"))]);
    let update = Update::Transaction { parts: failing.as_parts() };
    for _ in 0..2 {
        let told = outcome(core.update((1, 2), 2, &update));
        assert_eq!(told, Outcome::NotCommitted(1, Box::new(Outcome::NotANumber(0))));
        // Now it would succeed, and is not tried again.
        assert!(core.update((1, 3), 2, &Update::put(b"a", b"1")).is_some());
    }
    let told = run(&mut core, 4, &[(TABLE, get(b"b")), (TABLE, get(b"c"))]);
    assert_eq!(told, Outcome::Parts(vec![Outcome::Value(1, b"1".to_vec()), Outcome::NotFound]));
}

#[test]
fn what_is_no_transaction_is_refused() {
    let mut core = Core::serving();
    let refused = |heard: Option<Heard>, why| assert_eq!(heard, Some(Heard::Refused(why)));
    let transaction = parts(&[(TABLE, put(b"a", b"1")), (LEDGER, put(b"a", b"1"))]);
    let update = Update::Transaction { parts: transaction.as_parts() };
    refused(core.update((1, 1), 1, &update), Refusal::WrongShard); // a table that there is not
    let other_table = Core::body_with((1, 1), 1, None, &update, |head| head.table = LEDGER);
    refused(core.send(Kind::Request, &other_table), Refusal::BadRequest);
    // The code of a part within: of an operation on several keys, of a transaction, of nothing.
    let body = Core::body((1, 1), 1, None, &update);
    let code = body.windows(2).position(|bytes| bytes == [1, 1]).expect("a put behind the table") + 1;
    for bad in [16, 18, 32, 80, 99] {
        let mut body = body.clone();
        body[code] = bad;
        refused(core.send(Kind::Request, &body), Refusal::BadRequest);
    }
    let many = parts(&[(TABLE, get(b"a")); 1025]);
    refused(core.update((1, 1), 1, &Update::Transaction { parts: many.as_parts() }), Refusal::BadRequest);
    let mut of_no_part = body[..48].to_vec();
    of_no_part.extend([0; 4]);
    refused(core.send(Kind::Request, &of_no_part), Refusal::BadRequest);
    assert_eq!(run(&mut core, 1, &[(TABLE, get(b"a"))]), Outcome::Parts(vec![Outcome::NotFound]));
}

/// A few bytes of request could ask for a thousand values of a megabyte, to read or to write.
#[test]
fn a_transaction_that_writes_or_answers_too_much_changes_nothing() {
    let mut core = Core::serving();
    let large = vec![b'x'; 1_000_000];
    run(&mut core, 1, &[(TABLE, put(b"a", &large))]);
    let reads = run(&mut core, 2, &vec![(TABLE, get(b"a")); 1000]);
    assert_eq!(reads, Outcome::NotCommitted(3, Box::new(Outcome::TooLarge)), "a result counts twice");
    let append = PartOperation::Update(Update::append(b"a", b"y"));
    let appends = run(&mut core, 3, &vec![(TABLE, append); 1000]);
    assert_eq!(appends, Outcome::NotCommitted(6, Box::new(Outcome::TooLarge)));
    let few = run(&mut core, 4, &[(TABLE, append); 3]);
    let lengths = (1_000_001..).zip(2..).map(|(length, version)| Outcome::Length(length, version));
    assert_eq!(few, Outcome::Parts(lengths.take(3).collect()));
}

fn with_ledger() -> Cluster {
    let mut cluster = Cluster::serving();
    cluster.commit(|configuration| {
        configuration.tables.push(TableInfo { table: LEDGER, name: "ledger".into() });
        let (first, last) = (Slot(0), Slot(16383));
        configuration.tablets.push(Tablet { table: LEDGER, first, last, shard: SHARD });
    });
    cluster.it_is(1000);
    cluster.settle();
    cluster
}

/// A transaction that was answered fast is on the witnesses only. When one of its tables is dropped before the next primary
/// replays it, its other changes stay.
#[test]
fn a_replayed_transaction_survives_the_drop_of_one_of_its_tables() {
    let mut cluster = with_ledger();
    let transfer = parts(&[(LEDGER, increment(b"{u}a", -5)), (TABLE, increment(b"{u}b", 5))]);
    let update = Update::Transaction { parts: transfer.as_parts() };
    let body = Core::body((1, 1), 1, None, &update);
    let envelope = cluster.envelope(LIST);
    let mut frame = Vec::new();
    RequestView::encode(Kind::Record, &envelope, &body, &mut frame);
    for node in [2, 3] {
        cluster.on(node, |core| core.frame_from(Endpoint::Conn(ConnId(1)), Kind::Record, &frame));
    }
    let told = outcome(cluster.send(1, LIST, &body).pop());
    assert_eq!(told, Outcome::Parts(vec![Outcome::Number(-5, 1), Outcome::Number(5, 1)]));
    // Nothing of the primary's log has arrived anywhere when the table is dropped and the primary dies.
    cluster.on_the_way.clear();
    cluster.cores[0] = Core::start_with(crate::common::Files::default(), 1 << 26, |options| {
        options.witness_slots = 64;
    });
    cluster.commit(|configuration| {
        configuration.tables.retain(|info| info.table != LEDGER);
        configuration.tablets.retain(|tablet| tablet.table != LEDGER);
    });
    cluster.fail_over_to(2);
    cluster.it_is(1000);
    let ask = parts(&[(TABLE, get(b"{u}b"))]);
    let ask = Core::body((2, 1), 1, None, &Update::Transaction { parts: ask.as_parts() });
    let mut heard = cluster.send(2, ListVersion::NONE, &ask);
    cluster.settle();
    heard.append(&mut cluster.heard(2));
    assert_eq!(outcome(heard.pop()), Outcome::Parts(vec![Outcome::Value(1, b"5".to_vec())]));
    let objects = |node: usize| cluster.cores[node].node.status(cluster.cores[node].now).replicas[0].objects;
    assert_eq!(objects(1), 1, "nothing is written to the dropped table");
}

#[test]
fn a_shard_runs_a_transaction_only_if_all_keys_are_its_own() {
    let mut cluster = with_ledger();
    // Half of the ledger is another shard's.
    cluster.commit(|configuration| {
        let ledger = configuration.tablets.iter_mut().find(|tablet| tablet.table == LEDGER).expect("just made");
        ledger.last = Slot(8191);
        let (first, last) = (Slot(8192), Slot(16383));
        configuration.tablets.push(Tablet { table: LEDGER, first, last, shard: kasha_types::ShardId(77) });
    });
    cluster.settle();
    let in_half = |first_half: bool| {
        let keys = (0..).map(|number: u32| format!("k{number}").into_bytes());
        keys.into_iter().find(|key| (kasha_types::slot_of(key).0 < 8192) == first_half).expect("one of them")
    };
    for (sequence, (first_half, is_ours)) in [(true, true), (false, false)].into_iter().enumerate() {
        let key = in_half(first_half);
        let both = parts(&[(TABLE, put(b"a", b"1")), (LEDGER, put(&key, b"1"))]);
        let update = Update::Transaction { parts: both.as_parts() };
        let sequence = sequence as u64 + 1;
        let mut heard = cluster.update((1, sequence), ListVersion::NONE, &update);
        cluster.settle();
        heard.append(&mut cluster.heard(1));
        assert_eq!(heard == [Heard::Refused(Refusal::WrongShard)], !is_ours, "{heard:?}");
    }
}
