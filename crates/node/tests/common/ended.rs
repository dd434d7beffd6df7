//! Values that were over when an update was begun that a witness holds (R10.12).

use kasha_types::{ClusterTime, ListVersion};
use kasha_wire::operation::{Condition, Ends, Lifetime};
use kasha_wire::{Level, OutcomeCode, Update};

use super::cluster::{Cluster, LIST};
use super::two_shards::record;
use super::{Core, Files, Heard};

const ENDS: u64 = 100_000;
const DONE: u8 = OutcomeCode::Done as u8;
const FAILED: u8 = OutcomeCode::ConditionFailed as u8;

/// All nodes have a value that ends at [`ENDS`], and a witness whatever is recorded.
fn with_value() -> Cluster {
    with_value_at(Level::COMMANDS)
}

fn with_value_at(level: Level) -> Cluster {
    let mut cluster = Cluster::serving();
    cluster.tell(level);
    let lifetime = Lifetime::from_millis(ENDS).expect("not 0");
    cluster.update((1, 1), LIST, &Update::put_expiring(b"a", lifetime, b"old"));
    cluster.settle();
    cluster.heard(1);
    cluster
}

/// Client 2 puts the key, unless it has a value, and takes ClusterTime for so much.
fn put_if_absent(begun: u64) -> Vec<u8> {
    let lifetime = Ends::After(Lifetime::from_millis(1_000_000).expect("not 0"));
    let update = Update::put_if(b"a", Condition::ABSENT, b"new").with_ends(lifetime).expect("one key");
    Core::body_with((2, 1), 1, None, &update, |head| head.begun = ClusterTime(begun))
}

/// Another node becomes primary, in a cluster where it is that late, and runs what its witness holds.
fn fail_over_at(cluster: &mut Cluster, time: u64) {
    cluster.on_the_way.clear();
    cluster.cores[0] = Core::start_with(Files::default(), 1 << 26, |options| options.witness_slots = 64);
    cluster.each(|core| core.coordinator_says_it_is(time));
    cluster.fail_over_to(2);
}

/// What client 2 hears of its update in the end.
fn told(cluster: &mut Cluster, body: &[u8]) -> u8 {
    let mut heard = cluster.send(2, ListVersion::NONE, body);
    cluster.settle();
    heard.append(&mut cluster.heard(2));
    code(&heard)
}

fn code(heard: &[Heard]) -> u8 {
    match heard {
        [Heard::Answer { result, .. }] => result[0],
        other => panic!("{other:?}"),
    }
}

/// A program asks for it long after the value's end, while there is no primary.
pub fn a_replay_ends_what_was_over_when_its_request_was_begun() {
    let mut cluster = with_value();
    let body = put_if_absent(ENDS + 900);
    record(&mut cluster, &body);
    fail_over_at(&mut cluster, ENDS + 1_500);
    assert_eq!(told(&mut cluster, &body), DONE, "a replay has seen what was over long before");
}

/// A primary of the release before may have told fast what it has seen of a value that its client took for over.
pub fn below_level_2_a_replay_ends_nothing() {
    let mut cluster = with_value_at(Level::FIRST);
    let body = put_if_absent(ENDS + 900);
    record(&mut cluster, &body);
    fail_over_at(&mut cluster, ENDS + 1_500);
    assert_eq!(told(&mut cluster, &body), FAILED);
}

/// What its client was told in time stays, however late the replay.
pub fn a_replay_ends_nothing_else() {
    for begun in [0, ENDS - 1] {
        let mut cluster = with_value();
        let body = put_if_absent(begun);
        record(&mut cluster, &body);
        fail_over_at(&mut cluster, ENDS + 1_500);
        assert_eq!(told(&mut cluster, &body), FAILED, "{begun}");
    }
}

/// Whoever takes ClusterTime for later than the core does ends nothing; but a replay may.
pub fn who_has_seen_what_was_over_is_told_it_synced() {
    let mut cluster = with_value();
    cluster.it_is(ENDS - 1);
    let body = put_if_absent(ENDS);
    record(&mut cluster, &body);
    let at_once = cluster.send(2, LIST, &body);
    if !at_once.is_empty() {
        fail_over_at(&mut cluster, ENDS + 1_500);
        assert_eq!(code(&at_once), told(&mut cluster, &body), "told without a sync what a replay does not see");
    }
    cluster.settle();
    assert_eq!(code(&cluster.heard(2)), FAILED, "it is not over by what the core knows");
    fail_over_at(&mut cluster, ENDS + 1_500);
    assert_eq!(told(&mut cluster, &body), FAILED, "synced is synced");
}

/// No clock of a client ends a value before its time.
pub fn a_replay_ends_nothing_before_its_time() {
    for begun in [ENDS, u64::MAX] {
        let mut cluster = with_value();
        let body = put_if_absent(begun);
        record(&mut cluster, &body);
        fail_over_at(&mut cluster, ENDS - 1);
        assert_eq!(told(&mut cluster, &body), FAILED, "{begun}");
    }
}
