//! A coordinator starts: it leads when its view is on its disk, and tells nothing before what it then decides is committed.
#![allow(missing_docs)]

use crate::common::*;
use kasha_machine::Machine;
use kasha_types::{BootId, ClientId, ConfigVersion, NodeId};
use kasha_wire::message;
use kasha_wire::{AnyMessage, ShardPhase};

/// Everybody asks everything.
fn ask_all(world: &mut World) {
    world.beat_all();
    world.send(CLIENT, &message::GetConfiguration { have: ConfigVersion(0) });
    world.send(CLIENT, &message::OpenSession { nonce: 1 });
    world.send(CLIENT, &message::RenewLease { client: ClientId(1) });
    world.send(CLIENT, &message::LeaseQuery { clients: vec![ClientId(1)] });
}

#[test]
fn r9_1_nothing_leaves_before_a_lead_has_begun_and_its_first_commands_are_committed() {
    let mut world = World::serving(3, 2, 1);
    let before = world.config().clone();
    world.fast_disk = false;
    world.restart();
    assert_eq!(*world.config(), before, "it knows what its disk holds");
    let mut fsyncs = 0;
    while !world.disk.commits.is_empty() && fsyncs < 3 {
        world.tick(10);
        ask_all(&mut world);
        assert!(world.sent.is_empty(), "after {fsyncs} fsyncs: {:?}", world.sent);
        world.fsync();
        fsyncs += 1;
    }
    assert_eq!(fsyncs, 3);
    world.fast_disk = true;
    world.tick(0);
    assert!(world.held.is_empty());
    ask_all(&mut world);
    assert!(world.answers(CLIENT).iter().any(|message| matches!(message, AnyMessage::SessionOpened(_))));
    assert!(world.beat(1, 0, Vec::new()).is_some_and(|lease| lease > 0));
}

/// A process that starts needs its disk, and not the time that a lead waits between two tries of anything.
#[test]
fn a_lead_begins_without_a_tick() {
    let mut world = World::new(options(3, 2, 1));
    world.add_node(1, 1);
    assert!(world.beat(1, 0, Vec::new()).is_some(), "it answers in the moment in which it was started");
    world.options.boot = Some(BootId(7));
    world.restart();
    assert!(world.beat(1, 0, Vec::new()).is_some());
}

/// A lead that begins late counts leases from then: an earlier leader may have granted one a moment before (F1).
#[test]
fn r9_3_leases_are_counted_from_when_the_lead_begins() {
    let mut world = World::serving(3, 2, 1);
    world.node(1).up = false;
    world.fast_disk = false;
    world.restart();
    for _ in 0..2 {
        world.tick(900);
        world.fsync();
    }
    let begun = world.now;
    world.fast_disk = true;
    world.tick(0);
    while world.config().node(NodeId(1)).unwrap().alive {
        world.tick(50);
        world.beat_all();
        assert!(world.now.since(begun) < LEASE * 3);
    }
    assert!(world.now.since(begun) >= LEASE, "{:?}", world.now.since(begun));
    world.run(2_000);
    assert!(world.config().shards.iter().all(|shard| shard.phase == ShardPhase::Serving));
}

/// The disk stands still for long before the lead begins: the coordinator waits, and does not spin.
#[test]
fn a_start_waits_for_its_disk() {
    let mut world = World::serving(3, 2, 1);
    world.fast_disk = false;
    world.restart();
    for _ in 0..200 {
        let next = world.coordinator.next_deadline().unwrap();
        assert!(next > world.now, "{next:?} at {:?}", world.now);
        world.tick(50);
    }
    assert_eq!(world.disk.commits.len(), 1);
    world.fast_disk = true;
    world.tick(0);
    assert!(world.beat(1, 0, Vec::new()).is_some());
}
