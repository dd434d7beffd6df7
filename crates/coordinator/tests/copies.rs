//! R7.2: a complete copy, which could be elected, leaves a serving set only while the primary speaks to the
//! coordinator.
//!
//! Otherwise a set could be changed on behalf of a dead primary, and the only copy that is left could not be elected.
#![allow(missing_docs)]

use std::time::Duration;

use crate::common::*;
use kasha_types::{Epoch, NodeId, ShardId};
use kasha_wire::MemberState::{Complete, Joining};
use kasha_wire::ShardPhase::{Recovering, Serving};
use kasha_wire::message::Report;

/// A cluster that has served for so long that reports about links count. From now on no copy is completed.
fn settled(options: kasha_coordinator::CoordinatorOptions, cores: u8) -> World {
    let nodes = options.nodes;
    let mut world = World::new(options);
    (1..=nodes).for_each(|id| world.add_node(id, cores));
    world.run(4500);
    assert!(world.config().shards.iter().all(|shard| shard.phase == Serving));
    world.reporting = false;
    world
}

/// Shard 0 of [`settled`] with f = 1: node 1 is the primary, node 2 its backup, node 3 spare.
fn of_three() -> World {
    let world = settled(options(3, 1, 1), 1);
    assert_eq!(world.members(0), [(1, Complete), (2, Complete)]);
    world
}

/// Time passes for the coordinator only: no node speaks.
fn pass(world: &mut World, millis: u64) {
    (0..millis / STEP_MILLIS).for_each(|_| world.tick(STEP_MILLIS));
}

fn is_alive(world: &World, node: u16) -> bool {
    world.config().node(NodeId(node)).unwrap().alive
}

/// Node 2 stops for a while; node 1 dies before node 2 is lost.
fn with_a_dead_primary_and_a_lost_backup() -> World {
    let mut world = of_three();
    world.node(2).up = false;
    world.run(700);
    world.node(1).up = false;
    while is_alive(&world, 2) {
        world.run(100);
    }
    assert!(is_alive(&world, 1));
    world
}

#[test]
fn a_stalled_backup_is_elected_when_the_primary_died_before_it_could_do_without_it() {
    let mut world = with_a_dead_primary_and_a_lost_backup();
    assert_eq!(world.members(0), [(1, Complete), (2, Complete)]);
    world.run(2000);
    assert!(!is_alive(&world, 1));
    world.node(2).up = true;
    world.run(3000);
    assert_eq!((world.shard(0).primary, world.shard(0).phase), (NodeId(2), Recovering));
    assert_eq!(world.shard(0).recover_from, [NodeId(1), NodeId(2)]);
    world.reporting = true;
    world.run(500);
    assert_eq!((world.shard(0).primary, world.shard(0).phase), (NodeId(2), Serving));
}

#[test]
fn of_two_that_fall_silent_at_once_either_is_elected_when_it_returns() {
    for (back, away) in [(1, 3), (3, 1)] {
        let mut world = settled(options(3, 3, 1), 1);
        assert_eq!(world.members(2), [(3, Complete), (1, Complete)]);
        (world.node(1).up, world.node(3).up) = (false, false);
        world.run(10_000);
        assert!(!is_alive(&world, 1) && !is_alive(&world, 3));
        world.node(back).up = true;
        world.reporting = true;
        world.run(10_000);
        assert!(!is_alive(&world, away));
        for shard in 0..3 {
            let shard = world.shard(shard);
            assert!(shard.primary != NodeId(away) && shard.phase == Serving, "{shard:?}");
        }
    }
}

#[test]
fn a_primary_that_was_silent_for_less_than_its_lease_does_without_the_lost_one_as_soon_as_it_speaks() {
    let mut world = with_a_dead_primary_and_a_lost_backup();
    world.run(300);
    assert_eq!(world.members(0), [(1, Complete), (2, Complete)]);
    world.node(1).up = true;
    world.beat(1, 0, Vec::new());
    assert!(is_alive(&world, 1));
    assert_eq!(world.members(0), [(1, Complete), (3, Joining)]);
    assert_eq!(world.summary(0).0, Epoch(1));
}

#[test]
fn a_stall_and_a_restart_of_ours_are_no_word_of_the_primary() {
    let mut world = with_a_dead_primary_and_a_lost_backup();
    world.now = world.now.after(LEASE * 60);
    world.beat(3, 0, Vec::new());
    pass(&mut world, 300);
    assert_eq!(world.members(0), [(1, Complete), (2, Complete)]);
    world.restart();
    world.run(300);
    assert_eq!(world.members(0), [(1, Complete), (2, Complete)]);
}

#[test]
fn the_core_that_leads_the_shard_must_speak() {
    let mut world = settled(options(3, 4, 1), 2);
    assert_eq!(world.members(0), [(1, Complete), (2, Complete)]);
    assert_eq!(world.members(3), [(1, Complete), (2, Complete)]);
    world.node(2).up = false;
    world.run(900);
    while is_alive(&world, 2) {
        world.tick(100);
        (0..2).for_each(|core| _ = world.beat(3, core, Vec::new())); // R7.8: somebody must be heard
    }
    world.beat(1, 1, Vec::new());
    assert_eq!(world.members(0), [(1, Complete), (2, Complete)], "core 0 leads it");
    assert_eq!(world.members(3), [(1, Complete), (3, Joining)]);
    world.beat(1, 0, Vec::new());
    assert_eq!(world.members(0), [(1, Complete), (3, Joining)]);
}

#[test]
fn a_shard_that_recovers_does_without_a_lost_member_at_once() {
    let mut world = settled(options(4, 1, 2), 1);
    world.node(1).up = false;
    while world.shard(0).epoch == Epoch(1) {
        world.run(100);
    }
    assert_eq!((world.summary(0).1, world.summary(0).2), (NodeId(2), Recovering));
    assert!(world.shard(0).member(NodeId(3)).is_some_and(|member| member.state == Complete));
    world.node(3).up = false;
    world.run(700);
    world.node(2).up = false;
    while is_alive(&world, 3) {
        world.run(100);
    }
    assert!(is_alive(&world, 2) && world.shard(0).member(NodeId(3)).is_none(), "{:?}", world.members(0));
    assert_eq!(world.shard(0).recover_from, [NodeId(1), NodeId(2), NodeId(3)], "it may be elected as before");
}

fn with_min_backups_0(nodes: u16) -> World {
    let mut options = options(nodes, 1, 1);
    options.min_backups = 0;
    settled(options, 1)
}

fn unanswered(node: u16) -> Report {
    Report::Unanswered { shard: ShardId(0), epoch: Epoch(1), node: NodeId(node) }
}

#[test]
fn a_primary_that_hears_nobody_makes_room_rather_than_go_on_alone() {
    let mut world = with_min_backups_0(3);
    world.cuts.extend([(1, 2), (1, 3)]);
    world.run(600);
    assert_eq!(world.beat(1, 0, vec![unanswered(2)]), Some(0), "no lease any more");
    let last_lease = world.now;
    while world.shard(0).primary == NodeId(1) {
        assert_eq!(world.members(0), [(1, Complete), (2, Complete)], "the copy that is to be elected is kept");
        world.run(100);
        assert!(world.now.since(last_lease) < LEASE * 2);
    }
    assert!(world.now.since(last_lease) >= LEASE * 9 / 10, "F1");
    world.node(1).up = false;
    world.reporting = true;
    world.run(3000);
    assert_eq!((world.shard(0).primary, world.shard(0).phase), (NodeId(2), Serving));
}

#[test]
fn with_a_spare_node_a_silent_member_is_replaced_though_others_hear_more() {
    let mut world = with_min_backups_0(4);
    world.cuts.insert((1, 2));
    world.cuts.insert((1, 3));
    world.run(600);
    world.beat(1, 0, vec![unanswered(2)]);
    assert_eq!(world.members(0), [(1, Complete), (4, Joining)]);
}

#[test]
fn a_primary_goes_on_alone_if_nobody_is_better_connected() {
    let mut world = with_min_backups_0(2);
    world.cuts.insert((1, 2));
    world.run(600);
    world.beat(1, 0, vec![unanswered(2)]);
    assert_eq!(world.members(0), [(1, Complete)], "the operator allows it");
    world.cuts.clear();
    world.run(10_500);
    assert_eq!(world.members(0), [(1, Complete), (2, Joining)]);
}

#[test]
fn a_primary_goes_on_alone_if_who_was_better_connected_is_so_no_more() {
    let mut world = with_min_backups_0(3);
    world.cuts.extend([(1, 2), (1, 3)]);
    world.run(600);
    world.beat(1, 0, vec![unanswered(2)]);
    world.cuts.insert((2, 3));
    let last_lease = world.now;
    while world.members(0).len() > 1 {
        world.run(100);
        assert!(world.now.since(last_lease) < LEASE * 2);
    }
    assert_eq!(world.summary(0).1, NodeId(1));
    assert_eq!(world.beat(1, 0, Vec::new()), Some(950), "it has leases again");
    assert!(world.now.since(last_lease) >= Duration::from_millis(900), "F1: until then it was to make room");
}
