//! What one primary refuses, and where each bound lies.

use crate::common::cluster::{Cluster, LIST};
use crate::common::{CONN, Core, Heard, SHARD, configuration};
use kasha_machine::Endpoint;
use kasha_types::limits::OUTSTANDING_MAX;
use kasha_types::{ClientId, ClusterTime, ListVersion, ShardId, Slot, TableId, slot_of};
use kasha_wire::frame::{FRAME_HEADER_BYTES, Kind};
use kasha_wire::operation::ItemsBuffer;
use kasha_wire::{Message, Refusal, ShardPhase, Tablet, Update, message};

const REFUSED_BUSY: Heard = Heard::Refused(Refusal::Busy);
/// As the node's own (`UNSYNCED_OPERATIONS_MAX`): keys of unsynced operations.
const UNSYNCED_MAX: usize = 65_536;

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Update<'a> {
    Update::put(key, value)
}

fn is_answered(heard: Option<Heard>) -> bool {
    matches!(heard, Some(Heard::Answer { synced: true, .. }))
}

fn value_of_n(core: &mut Core) -> Vec<u8> {
    match core.get(b"n") {
        Some(Heard::Read(result)) => result[9..].to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn wrong_shard_a_key_of_another_shard_and_an_operation_that_touches_one() {
    let mut core = Core::serving();
    let mut split = configuration(3, 1, ShardPhase::Serving);
    let at = slot_of(b"theirs");
    assert_ne!(slot_of(b"ours"), at);
    let tablet = |first, last, shard| Tablet { first: Slot(first), last: Slot(last), shard, ..split.tablets[0] };
    split.tablets = vec![tablet(0, at.0 - 1, SHARD), tablet(at.0, at.0, ShardId(1)), tablet(at.0 + 1, 16383, SHARD)];
    core.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: split,
    });
    let wrong = Some(Heard::Refused(Refusal::WrongShard));
    assert_eq!(core.update((1, 1), 1, &put(b"theirs", b"v")), wrong);
    let both = ItemsBuffer::pairs([(&b"ours"[..], &b"v"[..]), (b"theirs", b"v")]);
    assert_eq!(core.update((1, 1), 1, &Update::MultiPut { pairs: both.as_items() }), wrong);
    assert_eq!(core.get(b"theirs"), Some(Heard::ReadRefused));
    assert_eq!(core.get(b"ours"), Some(Heard::Read(vec![2])), "nothing of it ran");
    assert!(is_answered(core.update((1, 1), 1, &put(b"ours", b"v"))), "refusals are recorded nowhere (R4.2)");
}

#[test]
fn wrong_shard_a_table_that_does_not_exist() {
    let mut core = Core::serving();
    let body = Core::body_with((1, 1), 1, None, &put(b"k", b"v"), |head| head.table = TableId(9));
    assert_eq!(core.send(Kind::Request, &body), Some(Heard::Refused(Refusal::WrongShard)));
    assert_eq!(core.send(Kind::Cancel, &body), Some(Heard::Refused(Refusal::WrongShard)));
}

#[test]
fn busy_at_the_bound_of_unsynced_operations_and_no_longer() {
    const KEYS: usize = 256;
    let mut cluster = Cluster::serving();
    let keys: Vec<String> = (0..KEYS).map(|n| format!("{{a}}{n}")).collect();
    let items = ItemsBuffer::pairs(keys.iter().map(|key| (key.as_bytes(), &b""[..])));
    // The backups say nothing.
    for sequence in 1..=(UNSYNCED_MAX / KEYS) as u64 {
        assert_eq!(cluster.update((1, sequence), ListVersion::NONE, &Update::MultiPut { pairs: items.as_items() }), []);
    }
    assert_eq!(cluster.update((2, 1), LIST, &put(b"k", b"v")), [REFUSED_BUSY]);
    assert!(!cluster.get_default(2, b"k").is_empty(), "reads go on");
    cluster.settle();
    assert_eq!(cluster.heard(1).len(), UNSYNCED_MAX / KEYS);
    assert!(!cluster.update((2, 1), LIST, &put(b"k", b"v")).contains(&REFUSED_BUSY));
}

/// An increment under an operation key that lives until 100 000.
fn keyed(rpc: (u64, u64)) -> Vec<u8> {
    Core::body(rpc, rpc.1, Some(b"order-42"), &Update::increment(b"n", 1))
}

#[test]
fn r4_9_past_not_after_a_request_is_unprovable_and_never_runs() {
    let mut core = Core::serving();
    let first = core.send(Kind::Request, &keyed((1, 1)));
    core.coordinator_says_it_is(100_000);
    assert_eq!(core.send(Kind::Request, &keyed((2, 1))), first, "the last moment still counts");
    core.coordinator_says_it_is(100_001);
    assert_eq!(core.send(Kind::Request, &keyed((2, 1))), first, "a hit wrote a record of its own");
    let unprovable = Some(Heard::Refused(Refusal::Unprovable));
    assert_eq!(core.send(Kind::Request, &keyed((3, 1))), unprovable, "the key has expired, and may have been used");
    assert_eq!(core.send(Kind::Request, &keyed((3, 1))), unprovable);
    core.tick(1000);
    assert_eq!(core.send(Kind::Request, &keyed((3, 1))), unprovable);
    assert_eq!(core.send(Kind::Request, &keyed((1, 1))), first, "what has run under this id is known by the id");
    assert_eq!(value_of_n(&mut core), b"1");
}

#[test]
fn r4_9_a_request_that_comes_late_for_the_first_time_never_runs() {
    let mut core = Core::serving();
    core.coordinator_says_it_is(100_001);
    assert_eq!(core.send(Kind::Request, &keyed((1, 1))), Some(Heard::Refused(Refusal::Unprovable)));
    assert_eq!(core.get(b"n"), Some(Heard::Read(vec![2])));
}

#[test]
fn r4_3_the_window_ends_512_above_the_acknowledgement() {
    let mut core = Core::serving();
    assert!(is_answered(core.update((1, 1), 1, &put(b"k", b"v"))));
    let exceeded = Some(Heard::Refused(Refusal::WindowExceeded));
    assert_eq!(core.update((1, OUTSTANDING_MAX + 2), 1, &put(b"k", b"v")), exceeded);
    assert!(is_answered(core.update((1, OUTSTANDING_MAX + 1), 1, &put(b"k", b"v"))));
    assert!(is_answered(core.update((1, OUTSTANDING_MAX + 2), 2, &put(b"k", b"v"))), "it acknowledges one more");
}

#[test]
fn r4_3_a_client_that_never_acknowledges_is_bounded() {
    let mut core = Core::serving();
    let mut answered = 0;
    for sequence in 1..=2 * OUTSTANDING_MAX {
        match core.update((1, sequence), 1, &put(b"k", b"v")) {
            Some(Heard::Answer { .. }) => answered += 1,
            heard => assert_eq!(heard, Some(Heard::Refused(Refusal::WindowExceeded)), "{sequence}"),
        }
    }
    assert_eq!(answered, OUTSTANDING_MAX + 1, "sequences 1 to 513, of which none is acknowledged");
    let status = core.node.status(core.now);
    assert_eq!((status.replicas[0].clients, status.replicas[0].completion_records), (1, answered));
    assert!(is_answered(core.update((2, 1), 1, &put(b"k", b"v"))), "others go on");
}

/// What the coordinator says of the lease of one client.
fn verdict(core: &mut Core, client: u64, expiry: Option<u64>) {
    let client = ClientId(client);
    let alive = expiry.map(|expiry| message::LeaseInfo { client, expiry: ClusterTime(expiry) });
    let expired = if alive.is_none() { vec![client] } else { Vec::new() };
    core.shell.sent.clear();
    core.message(message::LeaseVerdict {
        cluster_time: ClusterTime(1000),
        expired,
        alive: alive.into_iter().collect(),
        view: kasha_types::ViewNumber(1),
    });
}

/// The clients that the coordinator was asked about.
fn asked(core: &Core) -> Vec<u64> {
    let query = |frame: &Vec<u8>| message::LeaseQuery::decode(&frame[FRAME_HEADER_BYTES..]).ok();
    let sent = core.shell.sent.iter().filter(|(to, _)| *to == Endpoint::Coordinator);
    sent.filter_map(|(_, frame)| query(frame)).flat_map(|query| query.clients).map(|client| client.0).collect()
}

#[test]
fn r4_3_a_claimed_lease_too_far_ahead_or_over_is_asked_about() {
    let mut core = Core::serving();
    for lease in [1000, 1000 + 450_001, u64::MAX] {
        let body = Core::body_with((1, 1), 1, None, &put(b"k", b"v"), |head| head.lease_expiry = ClusterTime(lease));
        assert_eq!(core.send(Kind::Request, &body), None, "{lease}");
        assert_eq!(asked(&core), [1], "{lease}");
        verdict(&mut core, 1, None);
        assert_eq!(core.heard(), Some(Heard::Refused(Refusal::LeaseUnproven)), "{lease}");
    }
    assert_eq!(core.node.status(core.now).replicas[0].clients, 0, "nothing is kept before it is proven");
}

#[test]
fn r4_3_an_update_of_an_unknown_client_waits_for_the_coordinator() {
    let mut core = Core::serving();
    assert_eq!(core.update((5000, 1), 1, &put(b"k", b"v")), None);
    assert_eq!(core.update((5000, 2), 1, &put(b"l", b"v")), None);
    assert_eq!(asked(&core), [], "one question is under way");
    assert_eq!(core.update((5000, 1), 1, &put(b"k", b"v")), None, "sent again");
    verdict(&mut core, 5000, Some(200_000));
    let answers = core.shell.sent.iter().filter(|(to, _)| *to == CONN).filter_map(|(_, frame)| Heard::of(frame));
    let answers: Vec<_> = answers.collect();
    assert!(matches!(answers[..], [Heard::Answer { .. }, Heard::Answer { .. }]), "each is answered once: {answers:?}");
    assert!(is_answered(core.update((5000, 3), 1, &put(b"k", b"v"))), "the client is known");
}

#[test]
fn r4_3_what_waits_is_bounded_and_the_oldest_is_refused() {
    let mut core = Core::serving();
    const PARKED_MAX: u64 = 256; // as the node's own
    for client in 5000..5000 + PARKED_MAX {
        assert_eq!(core.update((client, 1), 1, &put(b"k", b"v")), None);
    }
    assert_eq!(core.update((6000, 1), 1, &put(b"k", b"v")), Some(Heard::Refused(Refusal::LeaseUnproven)));
    verdict(&mut core, 5000, Some(200_000));
    assert_eq!(core.heard(), None, "the oldest waits no longer");
    verdict(&mut core, 6000, Some(200_000));
    assert!(is_answered(core.heard()), "the newest does");
}
