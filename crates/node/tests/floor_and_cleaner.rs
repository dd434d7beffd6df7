//! R5.11: while an expiry floor waits for its sync, the cleaner copies nothing. Three cores, whose frames are carried by
//! hand.

mod common;

use common::cluster::{Cluster, LIST};
use common::{Core, Heard};
use kasha_types::{ClientId, ClusterTime, ListVersion};
use kasha_wire::status::{CleanerState, Cleaning, ReplicaStatus};
use kasha_wire::{BodyHead, Refusal, Update, message};

/// The cleaner rests while so much of the log's 64 MiB is free, and begins at a little less.
const RESTS_WITH: u64 = 7 << 20;
const UPDATES_MAX: u64 = 1000;

/// Of each segment a little lives, so that none is freed before it is cleaned.
struct Filler {
    sequence: u64,
    large: Vec<u8>,
}

impl Filler {
    fn update(&mut self, cluster: &mut Cluster) {
        self.sequence += 1;
        let own = format!("own {}", self.sequence);
        let key = if self.sequence.is_multiple_of(4) { own.as_bytes() } else { b"the same" };
        let value = if self.sequence.is_multiple_of(4) { &b"v"[..] } else { &self.large };
        cluster.update((9, self.sequence), LIST, &Update::Put { key, value });
    }
}

fn replica(cluster: &Cluster) -> ReplicaStatus {
    let primary = &cluster.cores[0];
    primary.node.status(primary.now).replicas.swap_remove(0)
}

fn cleaning(cluster: &Cluster) -> Cleaning {
    replica(cluster).cleaning
}

/// A cluster whose cleaner is about to begin, in whose oldest segment the record of client 1 lives.
fn about_to_clean(first: &[u8]) -> (Cluster, Filler) {
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

#[test]
fn r5_11_nothing_is_copied_before_a_floor_is_synced() {
    let increment = Update::Increment { key: b"a", delta: 1 };
    let shorter = |head: &mut BodyHead| head.lease_expiry = ClusterTime(150_000);
    let first = Core::body_with((1, 1), 1, None, &increment, shorter);
    let (mut cluster, mut filler) = about_to_clean(&first);
    assert_eq!(cleaning(&cluster).copied_bytes, 0);
    cluster.it_is(600_000);
    cluster.settle();
    let (cluster_time, expired) = (ClusterTime(600_000), vec![ClientId(1)]);
    cluster.on(1, |core| core.message(message::LeaseVerdict { cluster_time, expired, alive: Vec::new() }));
    for _ in 0..40 {
        filler.update(&mut cluster);
    }
    assert_eq!((cleaning(&cluster).copied_bytes, cleaning(&cluster).cleaner), (0, CleanerState::WaitsForFloor));

    // The floor is synced: it settles in that turn, and the cleaner goes on in the next.
    cluster.carry();
    filler.update(&mut cluster);
    assert_ne!(cleaning(&cluster).cleaner, CleanerState::WaitsForFloor);
    for _ in 0..40 {
        filler.update(&mut cluster);
        cluster.carry();
    }
    assert!(cleaning(&cluster).copied_bytes > 0);

    // Both primaries know the same of client 1: nothing.
    let refused = [Heard::Refused(Refusal::LeaseExpired)];
    let retry = |cluster: &mut Cluster| {
        let mut heard = cluster.send(1, ListVersion::NONE, &first);
        cluster.settle();
        heard.append(&mut cluster.heard(1));
        heard
    };
    assert_eq!(retry(&mut cluster), refused);
    cluster.fail_over_to(2);
    assert_eq!(retry(&mut cluster), refused);
}
