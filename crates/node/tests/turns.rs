//! Who has waited longest goes first (0047), at one participant whose other participant is played by the test.

use crate::common::cluster::Cluster;
use crate::common::two_shards::*;
use crate::common::{Heard, TABLE};
use kasha_machine::Endpoint;
use kasha_types::{ClusterTime, ConnId, ListVersion};
use kasha_wire::frame::Kind;
use kasha_wire::hot::{Envelope, RequestView, Turn};
use kasha_wire::message::Told;
use kasha_wire::operation::{Check, Condition, PartOperation};
use kasha_wire::{OutcomeCode, Update};

/// A request that has lost since then.
fn send_aged(cluster: &mut Cluster, kind: Kind, (client, since): (u64, u64), returns: bool, body: &[u8]) -> Vec<Heard> {
    let turn = Some(Turn { since: ClusterTime(since), number: 7, returns });
    let envelope = Envelope { cluster_time: ClusterTime(1000), turn, ..cluster.envelope(ListVersion::NONE) };
    let mut frame = Vec::new();
    RequestView::encode(kind, &envelope, body, &mut frame);
    cluster.on(1, |core| core.frame_from(Endpoint::Conn(ConnId(client)), kind, &frame));
    cluster.heard(client)
}

fn increment(key: &[u8]) -> PartOperation<'_> {
    PartOperation::Update(Update::increment(key, 1))
}

/// Carries what is on the way. No turn is over yet.
fn go_on(cluster: &mut Cluster) {
    for _ in 0..8 {
        cluster.tick(1);
        cluster.carry();
    }
}

const CONFLICT: Option<(u8, Vec<u8>)> = Some((OutcomeCode::Conflict as u8, Vec::new()));

/// Client 2 holds a lock of `x`; client 3 has lost before, and needs `x` and `y`.
struct Scene {
    cluster: Cluster,
    holder: Vec<u8>,
    y: Vec<u8>,
    z: Vec<u8>,
}

fn scene() -> Scene {
    let mut cluster = begun();
    let (x, y, z) = (key("x", true), key("y", true), key("z", false));
    let holder = distributed((2, 1), &[(TABLE, increment(&x))], &[(TABLE, increment(&z))]);
    cluster.send(2, ListVersion::NONE, &holder);
    cluster.settle();
    cluster.heard(2);
    let waits = distributed((3, 1), &[(TABLE, increment(&x)), (TABLE, increment(&y))], &[(TABLE, increment(&z))]);
    assert!(send_aged(&mut cluster, Kind::Request, (3, 900), false, &waits).is_empty());
    cluster.settle();
    assert_eq!(told(&cluster.heard(3)), None, "it comes again when its turn has come, and not earlier");
    Scene { cluster, holder, y, z }
}

#[test]
fn who_has_lost_is_told_when_its_keys_are_free() {
    let Scene { mut cluster, holder, .. } = scene();
    word(&mut cluster, 1, &holder, Told::Proposed(1));
    go_on(&mut cluster);
    assert_eq!(told(&cluster.heard(3)), CONFLICT);
}

#[test]
fn the_younger_give_way_on_its_keys_until_it_has_come_or_its_time_is_over() {
    let Scene { mut cluster, holder, y, z } = scene();
    let locks = distributed((4, 1), &[(TABLE, increment(&y))], &[(TABLE, increment(&z))]);
    cluster.send(4, ListVersion::NONE, &locks);
    go_on(&mut cluster);
    assert_eq!(told(&cluster.heard(4)), CONFLICT, "nobody holds y, but an elder waits for it");
    let elder = distributed((5, 1), &[(TABLE, increment(&y))], &[(TABLE, increment(&z))]);
    send_aged(&mut cluster, Kind::Request, (5, 800), false, &elder);
    go_on(&mut cluster);
    let (code, _) = told(&cluster.heard(5)).expect("it has waited longer");
    assert_eq!(code, OutcomeCode::Prepared as u8);
    word(&mut cluster, 1, &elder, Told::Proposed(1));
    let without_locks = distributed((6, 1), &[(TABLE, put(&y))], &[(TABLE, put(&z))]);
    cluster.send(6, ListVersion::NONE, &without_locks);
    go_on(&mut cluster);
    word(&mut cluster, 1, &holder, Told::Proposed(1));
    go_on(&mut cluster);
    assert_eq!(told(&cluster.heard(3)), CONFLICT, "it is its turn");
    assert_eq!(told(&cluster.heard(6)), None, "it waits before it is proposed");
    cluster.settle(); // and client 3 does not come
    // Else what has seen the increment of client 5 waits for that.
    word(&mut cluster, 1, &elder, Told::Executed { at: 1_000_002, recorded: true, settled: true });
    word(&mut cluster, 1, &without_locks, Told::Proposed(1));
    cluster.settle();
    let heard = cluster.heard(6);
    assert!(matches!(&heard[..], [Heard::Answer { .. }]), "{heard:?}");
}

/// A participant that is gone for long blocks only what conflicts with it (section 8), also if somebody waits behind it who wants more.
#[test]
fn who_waits_for_long_is_told_and_holds_up_nobody_at_its_other_keys() {
    let Scene { mut cluster, y, z, .. } = scene();
    cluster.settle();
    cluster.settle(); // x is not free all the time
    assert_eq!(told(&cluster.heard(3)), CONFLICT);
    let locks = distributed((4, 1), &[(TABLE, increment(&y))], &[(TABLE, increment(&z))]);
    cluster.send(4, ListVersion::NONE, &locks);
    go_on(&mut cluster);
    let (code, _) = told(&cluster.heard(4)).expect("nobody waits for y");
    assert_eq!(code, OutcomeCode::Prepared as u8);
}

/// Else it would stand in the elder's way there, and the elder in its way here.
#[test]
fn what_is_proposed_elsewhere_gives_way_to_nobody() {
    let Scene { mut cluster, y, z, .. } = scene();
    let without_locks = distributed((6, 1), &[(TABLE, put(&y))], &[(TABLE, put(&z))]);
    cluster.send(6, ListVersion::NONE, &without_locks);
    go_on(&mut cluster);
    assert_eq!(told(&cluster.heard(6)), None);
    word(&mut cluster, 1, &without_locks, Told::Proposed(1)); // the other participant's vote
    go_on(&mut cluster);
    let heard = cluster.heard(6);
    assert!(matches!(&heard[..], [Heard::Answer { .. }]), "client 3 waits still, and has not held it up: {heard:?}");
    assert_eq!(told(&cluster.heard(3)), None);
}

#[test]
fn whose_caller_has_given_up_holds_up_nobody() {
    let Scene { mut cluster, y, z, .. } = scene();
    let x = key("x", true);
    let waits = distributed((3, 1), &[(TABLE, increment(&x)), (TABLE, increment(&y))], &[(TABLE, increment(&z))]);
    send_aged(&mut cluster, Kind::Cancel, (3, 900), false, &waits);
    let locks = distributed((4, 1), &[(TABLE, increment(&y))], &[(TABLE, increment(&z))]);
    cluster.send(4, ListVersion::NONE, &locks);
    go_on(&mut cluster);
    let (code, _) = told(&cluster.heard(4)).expect("nobody waits for y");
    assert_eq!(code, OutcomeCode::Prepared as u8);
}

/// A program that has read, whose check said no, and that reads again: what it reads stays so for a moment.
#[test]
fn an_update_of_one_shard_gives_way_to_a_program_that_reads_again() {
    let mut cluster = begun();
    let (x, z) = (key("x", true), key("z", false));
    let check = PartOperation::Check(Check::Meets { key: &x, condition: Condition::Version(99) });
    let program = distributed((3, 1), &[(TABLE, check), (TABLE, put(&x))], &[(TABLE, put(&z))]);
    send_aged(&mut cluster, Kind::Request, (3, 900), true, &program);
    go_on(&mut cluster);
    let (code, _) = told(&cluster.heard(3)).expect("its check says no");
    assert_eq!(code, OutcomeCode::NotCommitted as u8);
    let heard = cluster.update((4, 1), ListVersion::NONE, &Update::increment(&x, 1));
    go_on(&mut cluster);
    assert!(heard.is_empty() && cluster.heard(4).is_empty(), "it is the program's turn");
    cluster.settle();
    assert!(!cluster.heard(4).is_empty(), "the program has not come");
}
