//! Stories that a test tells as they should end, and `planted.rs` with a rule left out.

use kasha_types::{ClientId, ClusterTime, ListVersion};
use kasha_wire::frame::Kind;
use kasha_wire::message::{LeaseInfo, Told};
use kasha_wire::operation::{Check, Condition, PartOperation, PartsBuffer};
use kasha_wire::status::{Cleaning, ReplicaStatus};
use kasha_wire::{Body, BodyHead, OutcomeCode, RecordedVerdict, Said, Update, message};

use super::cluster::{Cluster, LIST};
use super::two_shards::{begun, first_here, key, put, under_key, verdict, word};
use super::{Core, Heard, SHARD, TABLE};

/// More segments than there are up to the record of client 1. (Others die before they are cleaned.)
const CLEANED_MIN: u64 = 30;
/// So many updates take more than a segment.
const UPDATES_OF_A_SEGMENT: u64 = 60;
/// The cleaner rests while so much of the log's 64 MiB is free, and begins at a little less.
const RESTS_WITH: u64 = 7 << 20;
const UPDATES_MAX: u64 = 2000;

/// Of each segment a little lives, so that none is freed before it is cleaned.
pub struct Filler {
    pub sequence: u64,
    large: Vec<u8>,
}

impl Filler {
    pub fn update(&mut self, cluster: &mut Cluster) {
        self.sequence += 1;
        let own = format!("own {}", self.sequence);
        let key = if self.sequence.is_multiple_of(4) { own.as_bytes() } else { b"the same" };
        let value = if self.sequence.is_multiple_of(4) { &b"v"[..] } else { &self.large };
        cluster.update((9, self.sequence), LIST, &Update::put(key, value));
    }
}

fn replica(cluster: &Cluster) -> ReplicaStatus {
    let primary = &cluster.cores[0];
    primary.node.status(primary.now).replicas.swap_remove(0)
}

pub fn cleaning(cluster: &Cluster) -> Cleaning {
    replica(cluster).cleaning
}

/// A cluster whose cleaner is about to begin, in whose oldest segment the record of client 1 lives.
pub fn about_to_clean(first: &[u8]) -> (Cluster, Filler) {
    let mut cluster = Cluster::serving();
    assert!(matches!(cluster.send(1, LIST, first)[..], [Heard::Answer { .. }]));
    let mut filler = Filler { sequence: 0, large: vec![b'x'; 200_000] };
    while replica(&cluster).memory_bytes + RESTS_WITH < replica(&cluster).memory_max_bytes {
        filler.update(&mut cluster);
        cluster.carry();
        assert!(filler.sequence < UPDATES_MAX, "the log never fills up");
    }
    (cluster, filler)
}

/// Two transactions under one operation key share their first key, which is another shard's. Here they share nothing else. If a witness
/// kept both, a replay could begin with the one whose client was told nothing, and the other one, which was answered, would not
/// happen (R4.9).
pub fn a_witness_keeps_one_of_two_under_one_operation_key() {
    let mut cluster = begun();
    let (x, y, first) = (key("x", true), key("y", true), key("z", false));
    let kept = under_key(b"order", (3, 1), &[(TABLE, put(&x))], &[(TABLE, put(&first))]);
    let other = under_key(b"order", (4, 1), &[(TABLE, put(&y))], &[(TABLE, put(&first))]);
    assert_eq!(verdict(&mut cluster, &kept), RecordedVerdict::Accepted);
    assert_eq!(verdict(&mut cluster, &other), RecordedVerdict::Conflict, "nothing holds it up");
    let another_name = under_key(b"another order", (5, 1), &[(TABLE, put(&y))], &[(TABLE, put(&first))]);
    assert_eq!(verdict(&mut cluster, &another_name), RecordedVerdict::Accepted);
}

fn said(mut body: Vec<u8>, fingerprint: u64) -> Vec<u8> {
    Body::say(&mut body, Said { fingerprint, keeps_refusal: false, first_part: 0 });
    body
}

fn results(cluster: &mut Cluster, client: u64, body: &[u8]) -> Vec<Vec<u8>> {
    let mut heard = cluster.send(client, ListVersion::NONE, body);
    cluster.settle();
    heard.append(&mut cluster.heard(client));
    let result = |heard| match heard {
        Heard::Answer { result, .. } => result,
        other => panic!("{other:?}"),
    };
    heard.into_iter().map(result).collect()
}

/// A program that is refused because a watched key has changed tries again, with what the key is then, under the same operation key: it is no other
/// operation, and hears of no earlier refusal. Once it has run, it is told what it was told, whatever it demands (R4.9, R11.13).
pub fn a_refused_demand_leaves_its_operation_key_free() {
    let (done, failed) = (OutcomeCode::Done as u8, OutcomeCode::NotCommitted as u8);
    let mut core = Core::serving();
    let mut ask = |client: u64, version: u64, fingerprint: u64| {
        let mut parts = PartsBuffer::default();
        let condition = Condition::Version(version);
        parts.push(TABLE, &PartOperation::Check(Check::Meets { key: b"k", condition }));
        parts.push(TABLE, &PartOperation::Update(Update::increment(b"k", 1)));
        let body = Core::body((client, 1), 1, Some(b"order-42"), &Update::Transaction { parts: parts.as_parts() });
        match core.send(Kind::Request, &said(body, fingerprint)) {
            Some(Heard::Answer { result, .. }) => result,
            other => panic!("{other:?}"),
        }
    };
    let refused = ask(1, 5, 77);
    assert_eq!((refused[0], ask(1, 5, 77)), (failed, refused), "a delivery of the same request");
    let ran = ask(2, 0, 77);
    assert_eq!(ran[0], done, "a refusal is kept");
    assert_eq!((ask(3, 9, 77), ask(4, 0, 77)), (ran.clone(), ran), "it ran once");
    assert_eq!(ask(5, 0, 78), [OutcomeCode::OperationKeyMismatch as u8]);

    // At one of two shards, whoever of them was named first.
    let (x, y, z) = (key("x", true), key("y", true), key("z", false));
    for is_first in [false, true] {
        let mut cluster = begun();
        let body = |rpc, version| {
            let check = PartOperation::Check(Check::Meets { key: &x, condition: Condition::Version(version) });
            let (own, other) = (&[(TABLE, check), (TABLE, put(&x))][..], &[(TABLE, put(&z))][..]);
            said(
                if is_first { first_here(b"order", rpc, own, other) } else { under_key(b"order", rpc, own, other) },
                77,
            )
        };
        let refused = results(&mut cluster, 2, &body((2, 1), 7));
        assert_eq!(refused[0][..5], [failed, 0, 0, 0, 0], "a refusal is kept");
        assert_eq!(results(&mut cluster, 3, &body((3, 1), 0))[0][0], OutcomeCode::Prepared as u8);
    }
    // The other participant's demand is refused there, and told there.
    let mut cluster = begun();
    let body = |rpc| said(first_here(b"order", rpc, &[(TABLE, put(&y))], &[(TABLE, put(&z))]), 77);
    assert_eq!(results(&mut cluster, 2, &body((2, 1)))[0][0], OutcomeCode::Prepared as u8);
    word(&mut cluster, 1, &body((2, 1)), Told::Abort);
    cluster.settle();
    assert_eq!(results(&mut cluster, 2, &body((2, 1)))[0], [OutcomeCode::RefusedElsewhere as u8]);
    assert_eq!(results(&mut cluster, 3, &body((3, 1)))[0][0], OutcomeCode::Prepared as u8);
}

/// The lease of client 1 is over, and then client 1 comes back with a later lease. What it does then is not forgotten where
/// the floor's copy stands (R5.8).
pub fn the_copy_of_a_floor_forgets_nobody() {
    let shorter = |head: &mut BodyHead| head.lease_expiry = ClusterTime(150_000);
    let renewed = |head: &mut BodyHead| head.lease_expiry = ClusterTime(900_000);
    let increment = Update::increment(b"a", 1);
    let first = Core::body_with((1, 1), 1, None, &increment, shorter);
    let second = Core::body_with((1, 2), 1, None, &increment, renewed);
    let (mut cluster, mut filler) = about_to_clean(&first);
    cluster.it_is(600_000);
    cluster.settle();
    let (cluster_time, expired) = (ClusterTime(600_000), vec![ClientId(1)]);
    cluster.on(1, |core| {
        core.message(message::LeaseVerdict {
            cluster_time,
            expired,
            alive: Vec::new(),
            view: kasha_types::ViewNumber(1),
        })
    });
    for _ in 0..UPDATES_OF_A_SEGMENT {
        filler.update(&mut cluster);
        cluster.carry();
    }
    let mut heard = cluster.send(1, LIST, &second);
    let alive = vec![LeaseInfo { client: ClientId(1), expiry: ClusterTime(900_000) }];
    cluster.on(1, |core| {
        core.message(message::LeaseVerdict {
            cluster_time,
            expired: Vec::new(),
            alive,
            view: kasha_types::ViewNumber(1),
        })
    });
    cluster.settle();
    heard.append(&mut cluster.heard(1));
    assert!(matches!(heard[..], [Heard::Answer { .. }]), "{heard:?}");

    // The floor's segment is cleaned, and later that of the record.
    let before = cleaning(&cluster).cleaned_segments;
    let mut compared = before;
    while cleaning(&cluster).cleaned_segments < before + CLEANED_MIN {
        filler.update(&mut cluster);
        cluster.carry();
        assert!(filler.sequence < UPDATES_MAX, "{:?}", cleaning(&cluster));
        if compared < cleaning(&cluster).cleaned_segments {
            compared = cleaning(&cluster).cleaned_segments;
            cluster.cores[0].node.replay_equals_state().expect("a replay knows what its member knows");
        }
    }
}

/// A bit of a sealed segment flips in memory. It is found before it is copied under a new checksum (R5.12).
pub fn a_damaged_segment_stops_its_node() {
    let mut core = Core::serving_with(64 << 20);
    let filler = vec![b'x'; 50_000];
    let mut sequence = 1;
    core.update((1, sequence), sequence, &Update::put(b"cold", &filler));
    assert!(core.node.flip_log_bit(SHARD, 300, 4), "that is in the log");
    for number in 0..4_000_u32 {
        sequence += 1;
        let key = if number % 8 == 0 { format!("cold {number}") } else { format!("k{}", number % 7) };
        let _ = core.update((1, sequence), sequence, &Update::put(key.as_bytes(), &filler));
        core.tick(5);
        if let Some(why) = &core.shell.stopped {
            return assert!(why.contains("K0115"), "{why}");
        }
    }
    panic!("it was not found");
}
