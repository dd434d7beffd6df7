//! What one core answers, rule by rule.

use crate::common::{CONN, Core, Heard, SHARD, TABLE, configuration};
use kasha_machine::Endpoint;
use kasha_node::Baseline;
use kasha_types::{ClientId, ClusterTime, CoreId, Epoch, NodeId, Slot, TableId, Tick};
use kasha_wire::frame::Kind;
use kasha_wire::operation::{Condition, ItemsBuffer};
use kasha_wire::status::Memory;

use kasha_wire::link::Orders;
use kasha_wire::{Configuration, Refusal, ShardPhase, TableInfo, Tablet, Update, message};

fn done(result: &[u8]) -> bool {
    result.first() == Some(&0)
}

fn result_of(heard: Option<Heard>) -> Vec<u8> {
    match heard {
        Some(Heard::Answer { synced: true, result }) => result,
        other => panic!("{other:?} is no synced answer"),
    }
}

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Update<'a> {
    Update::put(key, value)
}

#[test]
fn e2_a_retry_gets_the_same_bytes_and_runs_nothing() {
    let mut core = Core::serving();
    let first = result_of(core.update((1, 1), 1, &Update::increment(b"n", 5)));
    assert!(done(&first));
    assert_eq!(result_of(core.update((1, 1), 1, &Update::increment(b"n", 5))), first);
    assert_eq!(core.get(b"n"), Some(Heard::Read([&[0, 1, 0, 0, 0, 0, 0, 0, 0][..], b"5"].concat())));
}

/// What benchmarks compare with. A failed condition changes nothing, so that its group would be empty.
#[test]
fn without_completion_records_a_retry_runs_again() {
    let mut core = Core::serving_as(1 << 30, |options| options.baseline = Baseline::WithoutRecords);
    let incr = Update::increment(b"n", 5);
    let first = result_of(core.update((1, 1), 1, &incr));
    let again = result_of(core.update((1, 1), 1, &incr));
    assert!(done(&first) && done(&again) && first != again);
    let absent = Update::put_if(b"n", Condition::ABSENT, b"v");
    assert_eq!(result_of(core.update((1, 2), 2, &absent)).first(), Some(&1));
    assert_eq!(core.get(b"n"), Some(Heard::Read([&[0, 2, 0, 0, 0, 0, 0, 0, 0][..], b"10"].concat())));
}

#[test]
fn a_reused_id_is_refused_and_an_acknowledged_one_is_stale() {
    let mut core = Core::serving();
    result_of(core.update((1, 1), 1, &put(b"k", b"v")));
    assert_eq!(core.update((1, 1), 1, &put(b"k", b"other")), Some(Heard::Refused(Refusal::Reused)));
    result_of(core.update((1, 2), 2, &put(b"k", b"w")));
    assert_eq!(core.update((1, 1), 1, &put(b"k", b"v")), Some(Heard::Refused(Refusal::Stale)));
}

#[test]
fn another_epoch_is_refused() {
    let mut core = Core::serving();
    core.epoch = Epoch(7);
    assert_eq!(core.update((1, 1), 1, &put(b"k", b"v")), Some(Heard::Refused(Refusal::NotPrimary)));
    assert_eq!(core.get(b"k"), Some(Heard::ReadRefused));
}

#[test]
fn an_operation_on_many_keys_of_one_slot_has_room_for_its_result() {
    let mut core = Core::serving();
    let keys: Vec<String> = (0..200).map(|n| format!("{{a}}{n}")).collect();
    let items = ItemsBuffer::pairs(keys.iter().map(|key| (key.as_bytes(), &b"v"[..])));
    assert!(done(&result_of(core.update((1, 1), 1, &Update::MultiPut { pairs: items.as_items() }))));
    let items = ItemsBuffer::deltas(std::iter::repeat_n((&b"{a}n"[..], 1), 200));
    assert!(done(&result_of(core.update((1, 2), 2, &Update::MultiIncrement { deltas: items.as_items() }))));
    let items = ItemsBuffer::keys(keys.iter().map(String::as_bytes));
    assert!(done(&result_of(core.update((1, 3), 3, &Update::MultiDelete { keys: items.as_items() }))));
}

#[test]
fn r4_9_an_operation_key_gives_the_original_result_to_whoever_asks() {
    let mut core = Core::serving();
    let incr = Update::increment(b"n", 5);
    let first = result_of(core.send(Kind::Request, &Core::body((1, 1), 1, Some(b"order-42"), &incr)));
    let again = result_of(core.send(Kind::Request, &Core::body((2, 1), 1, Some(b"order-42"), &incr)));
    assert_eq!(first, again);
    let other = Update::increment(b"n", 6);
    let mismatch = result_of(core.send(Kind::Request, &Core::body((3, 1), 1, Some(b"order-42"), &other)));
    assert_eq!(mismatch, [7]);
    assert_eq!(core.get(b"n"), Some(Heard::Read([&[0, 1, 0, 0, 0, 0, 0, 0, 0][..], b"5"].concat())));
}

const LEDGER: TableId = TableId(2);

/// A configuration with a second table.
fn with_ledger(version: u64, epoch: u32, phase: ShardPhase) -> Configuration {
    let mut configuration = configuration(version, epoch, phase);
    configuration.tables.push(TableInfo { table: LEDGER, name: "ledger".into() });
    configuration.tablets.push(Tablet { table: LEDGER, first: Slot(0), last: Slot(16383), shard: SHARD });
    configuration
}

/// One order for the same user in two tables, and for two keys of one slot: what tells operations apart is no slot.
#[test]
fn r4_9_an_operation_key_names_one_operation_for_each_table_and_first_key() {
    let mut core = Core::serving();
    core.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: with_ledger(11, 1, ShardPhase::Serving),
    });
    let names = [(TABLE, &b"{u}a"[..]), (TABLE, &b"{u}b"[..]), (LEDGER, &b"{u}a"[..])];
    let ask = |core: &mut Core, client: u64, delta: i64| {
        let results = (1..).zip(names).map(|(sequence, (table, key))| {
            let update = Update::increment(key, delta);
            let body = Core::body_with((client, sequence), 1, Some(b"order-42"), &update, |head| head.table = table);
            result_of(core.send(Kind::Request, &body))
        });
        results.collect::<Vec<_>>()
    };
    let first = ask(&mut core, 1, 5);
    assert!(first.iter().all(|result| done(result)), "{first:?}");
    assert_eq!(ask(&mut core, 2, 5), first);
    assert_eq!(ask(&mut core, 3, 6), vec![vec![7]; 3], "each is used");
    // And so it is found in the log.
    let mut core = Core::start(core.shell.files, core.memory_max_bytes);
    let mut promoted = with_ledger(12, 2, ShardPhase::Recovering);
    promoted.shards[0].recover_from = vec![NodeId(1)];
    promoted.shards[0].witnesses = vec![NodeId(2)];
    core.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: promoted,
    });
    core.heartbeat_answered();
    core.epoch = Epoch(2);
    core.witness_holds(2, &[]);
    core.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: with_ledger(13, 2, ShardPhase::Serving),
    });
    assert_eq!(ask(&mut core, 4, 5), first);
    assert_eq!(ask(&mut core, 5, 6), vec![vec![7]; 3]);
}

#[test]
fn r2_2_a_cancelled_update_never_runs_and_one_that_ran_says_so() {
    let mut core = Core::serving();
    let body = Core::body((1, 1), 1, None, &put(b"k", b"v"));
    assert_eq!(result_of(core.send(Kind::Cancel, &body)), [6]);
    assert_eq!(result_of(core.send(Kind::Request, &body)), [6], "the late delivery finds the outcome");
    assert_eq!(core.get(b"k"), Some(Heard::Read(vec![2])));
    let body = Core::body((1, 2), 2, None, &put(b"k", b"v"));
    let ran = result_of(core.send(Kind::Request, &body));
    assert_eq!(result_of(core.send(Kind::Cancel, &body)), ran);
}

/// The same files, another process: node 1 is promoted to epoch 2, with the witness of list 1 on node 2.
fn restart(core: Core) -> Core {
    let mut core = Core::start(core.shell.files, core.memory_max_bytes);
    let mut promoted = configuration(3, 2, ShardPhase::Recovering);
    promoted.shards[0].recover_from = vec![NodeId(1)];
    promoted.shards[0].witnesses = vec![NodeId(2)];
    core.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: promoted,
    });
    core.heartbeat_answered();
    core.epoch = Epoch(2);
    core
}

fn serve(core: &mut Core) {
    core.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: configuration(4, 2, ShardPhase::Serving),
    });
}

#[test]
fn a_restart_finds_everything_and_answers_duplicates_alike() {
    let mut core = Core::serving();
    let first = result_of(core.update((1, 1), 1, &Update::increment(b"n", 5)));
    let mut core = restart(core);
    core.witness_holds(2, &[]);
    serve(&mut core);
    assert_eq!(result_of(core.update((1, 1), 1, &Update::increment(b"n", 5))), first);
    assert_eq!(core.get(b"n"), Some(Heard::Read([&[0, 1, 0, 0, 0, 0, 0, 0, 0][..], b"5"].concat())));
}

/// Found by a newcomer: the number of duplicates stood still however often an operation key was used.
#[test]
fn r4_9_repeats_under_an_operation_key_are_counted() {
    let counts = |core: &Core| {
        let status = &core.node.status(core.now).replicas[0];
        (status.updates, status.repeats_suppressed, status.duplicates_suppressed)
    };
    let mut core = Core::serving();
    let incr = Update::increment(b"n", 5);
    let once = |rpc| Core::body(rpc, 1, Some(b"order-42"), &incr);
    let first = result_of(core.send(Kind::Request, &once((1, 1))));
    assert_eq!(counts(&core), (1, 0, 0));
    for client in 2..5 {
        assert_eq!(result_of(core.send(Kind::Request, &once((client, 1)))), first);
    }
    assert_eq!(counts(&core), (4, 3, 0), "three clients repeated it");
    assert_eq!(result_of(core.send(Kind::Request, &once((3, 1)))), first);
    assert_eq!(counts(&core), (4, 3, 1), "and this is a retry of one of them");
}

#[test]
fn r7_1_a_new_incarnation_serves_nothing_until_it_is_promoted() {
    let mut core = Core::serving();
    result_of(core.update((1, 1), 1, &put(b"k", b"v")));
    let mut core = Core::start(core.shell.files, 1 << 30);
    // The configuration still calls this node the serving primary: of an earlier process.
    core.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: configuration(2, 1, ShardPhase::Serving),
    });
    core.heartbeat_answered();
    assert_eq!(core.get(b"k"), Some(Heard::ReadRefused));
    assert_eq!(core.update((1, 2), 2, &put(b"k", b"w")), Some(Heard::Refused(Refusal::NotPrimary)));
    // Nor does it begin the same epoch again (decision 0005).
    core.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: configuration(5, 1, ShardPhase::Recovering),
    });
    assert_eq!(core.update((1, 2), 2, &put(b"k", b"w")), Some(Heard::Refused(Refusal::NotPrimary)));
}

/// Found by simulation (coordinator_outage, seed 4): requests executed while the witness was being read carried
/// acknowledgements past what it held.
#[test]
fn r4_5_nothing_but_the_witness_s_requests_runs_before_the_primary_serves() {
    let mut core = restart(Core::serving());
    let incr = Update::increment(b"n", 1);
    assert_eq!(core.update((1, 2), 2, &incr), Some(Heard::Refused(Refusal::Recovering)));
    core.witness_holds(2, &[Core::body((1, 1), 1, None, &incr)]);
    serve(&mut core);
    assert_eq!(core.get(b"n"), Some(Heard::Read([&[0, 1, 0, 0, 0, 0, 0, 0, 0][..], b"1"].concat())));
}

#[test]
fn r4_5_replay_in_any_order_loses_and_doubles_nothing() {
    let mut core = Core::serving();
    let incr = |key| Update::increment(key, 1);
    result_of(core.update((1, 1), 1, &incr(b"synced")));
    let mut core = restart(core);
    // The later request acknowledges the earlier ones; the witness hands them out in any order.
    let bodies = [
        Core::body((1, 3), 3, None, &incr(b"c")),
        Core::body((1, 2), 2, None, &incr(b"b")),
        Core::body((1, 1), 1, None, &incr(b"synced")),
    ];
    core.witness_holds(2, &bodies);
    serve(&mut core);
    for key in [&b"synced"[..], b"b", b"c"] {
        let heard = core.get(key);
        assert_eq!(heard, Some(Heard::Read([&[0, 1, 0, 0, 0, 0, 0, 0, 0][..], b"1"].concat())), "{key:?}");
    }
}

#[test]
fn a_full_shard_refuses_clearly_goes_on_with_deletes_and_can_be_recovered() {
    let mut core = Core::serving_with(8 << 20);
    let value = vec![b'x'; 100_000];
    let mut sequence = 0;
    let refused = loop {
        sequence += 1;
        let key = format!("k{sequence}");
        match core.update((1, sequence), sequence, &put(key.as_bytes(), &value)) {
            Some(Heard::Answer { .. }) => {}
            other => break other,
        }
    };
    assert_eq!(refused, Some(Heard::Refused(Refusal::OutOfMemory)));
    assert_eq!(core.node.status(core.now).replicas[0].memory, Memory::Full, "status says what is refused");
    assert!(matches!(core.get(b"k1"), Some(Heard::Read(result)) if result.len() > 100_000), "reads go on");
    sequence += 1;
    assert!(done(&result_of(core.update((1, sequence), sequence, &Update::delete(b"k1")))), "deletes go on");
    // Deletes of keys that are not there, whose records take more than the memory: what they leave is freed as they go.
    let key = vec![b'y'; 60_000];
    for _ in 0..300 {
        sequence += 1;
        let heard = core.update((1, sequence), sequence, &Update::delete(&key));
        assert!(matches!(heard, Some(Heard::Answer { .. })), "{heard:?}");
    }
    let mut core = restart(core);
    core.witness_holds(2, &[]);
    serve(&mut core);
    assert_eq!(core.shell.stopped, None);
    assert!(matches!(core.get(b"k2"), Some(Heard::Read(result)) if result.len() > 100_000));
}

#[test]
fn the_coordinator_s_word_is_the_coordinator_s_only() {
    let mut core = Core::serving();
    let mut later = configuration(9, 9, ShardPhase::Recovering);
    later.shards[0].primary = NodeId(2);
    let time = ClusterTime(u64::MAX);
    let (sent, clients_below) = (Tick(0), ClientId(0));
    let answer = message::HeartbeatAnswer {
        sent,
        lease_millis: 1,
        cluster_time: time,
        clients_below,
        view: kasha_types::ViewNumber(1),
    };
    let verdict = message::LeaseVerdict {
        cluster_time: time,
        expired: vec![ClientId(1)],
        alive: Vec::new(),
        view: kasha_types::ViewNumber(1),
    };
    for message in [
        Orders::from(message::ConfigurationIs {
            level: kasha_wire::Level::FIRST,
            unix_origin: kasha_wire::Later::absent(),
            configuration: later,
        }),
        answer.into(),
        verdict.into(),
    ] {
        core.shell.sent.clear();
        core.message_from(CONN, message);
        assert!(core.said_goodbye());
    }
    assert!(done(&result_of(core.update((1, 1), 1, &put(b"k", b"v")))));
}

/// Found by a newcomer: a node asks another one for the configuration when no coordinator answers. If that one has just started it names the
/// members that it knows of, and the node took that for a message of another version (K0206).
#[test]
fn a_node_that_knows_no_configuration_either_may_say_so() {
    let mut core = Core::serving();
    let said = message::NotLeader { view: kasha_types::ViewNumber(3), leader: None, group: Vec::new() };
    core.shell.sent.clear();
    core.message_from(Endpoint::Core(CoreId { node: NodeId(2), core: 0 }), said.clone());
    assert!(core.shell.sent.is_empty(), "{:?}", core.shell.sent);
    core.message_from(CONN, said);
    assert!(core.said_goodbye(), "a stranger has nothing to say of that");
}

#[test]
fn garbage_from_a_connection_is_answered_with_a_goodbye() {
    let mut core = Core::serving();
    core.frame(Kind::Request, &[0xff; 31]);
    assert!(core.said_goodbye(), "less than an envelope");
    core.shell.sent.clear();
    core.message_from(CONN, message::OpenSession { nonce: 1 });
    assert!(core.said_goodbye(), "nobody sends this to a node");
    let mut state = 7u64;
    for kind in 0..=64u8 {
        for len in [0usize, 1, 16, 48, 100, 300] {
            let payload: Vec<u8> = (0..len)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 33) as u8
                })
                .collect();
            let mut frame = vec![0; kasha_wire::FRAME_HEADER_BYTES];
            frame.extend_from_slice(&payload);
            if let Some(kind) = Kind::from_number(kind) {
                core.frame(kind, &frame);
            }
        }
    }
    assert!(done(&result_of(core.update((1, 1), 1, &put(b"k", b"v")))));
}
