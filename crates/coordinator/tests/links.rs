//! Bad links (pitfall 9; decision 0007): nodes' reports about each other move shards. One test for each rule.
#![allow(missing_docs)]

use crate::common::*;
use kasha_machine::{Endpoint, Input, Machine};
use kasha_types::{Epoch, ListVersion, NodeId, ShardId};
use kasha_wire::MemberState::{Complete, Joining};
use kasha_wire::ShardPhase::{Recovering, Serving};
use kasha_wire::message::Report;

const SHARD: ShardId = ShardId(0);

fn unanswered(epoch: u32, node: u16) -> Report {
    Report::Unanswered { shard: SHARD, epoch: Epoch(epoch), node: NodeId(node) }
}

fn stuck(epoch: u32) -> Report {
    Report::Stuck { shard: SHARD, epoch: Epoch(epoch) }
}

/// A cluster that has served for so long that reports about links count.
fn settled(nodes: u16, faults: u8) -> World {
    let mut world = World::serving(nodes, 1, faults);
    world.run(3500);
    world
}

fn is_alive(world: &World, node: u16) -> bool {
    world.config().node(NodeId(node)).unwrap().alive
}

#[test]
fn a_node_that_others_hear_is_not_lost_for_three_leases_more() {
    let mut world = settled(3, 1);
    world.hidden.insert(1);
    world.run(3500);
    assert!(is_alive(&world, 1));
    assert_eq!(world.shard(0).primary, NodeId(1), "its updates go on");
    world.run(1500);
    assert!(!is_alive(&world, 1));
    assert_eq!(world.shard(0).primary, NodeId(2));
}

#[test]
fn a_node_that_nobody_hears_is_lost_when_its_lease_lapses() {
    let mut world = settled(3, 1);
    world.hidden.insert(1);
    world.cuts.extend([(1, 2), (1, 3)]);
    world.run(1300);
    assert!(!is_alive(&world, 1));
}

#[test]
fn a_silent_node_that_has_not_hung_up_has_three_leases_more() {
    for hangs_up in [false, true] {
        let mut options = options(3, 1, 1);
        options.trusts_connections = true;
        let mut world = World::new(options);
        (1..=3).for_each(|id| world.add_node(id, 1));
        world.run(3500);
        world.node(1).up = false;
        if hangs_up {
            let Endpoint::Conn(conn) = conn(NodeId(1), 0) else { unreachable!() };
            world.coordinator.step(world.now, Input::Closed(conn), &mut world.effects);
        }
        world.run(900);
        assert!(is_alive(&world, 1), "F1: its lease runs");
        world.run(400);
        assert_eq!(is_alive(&world, 1), !hangs_up, "its disk may have stopped it");
        world.run(3500);
        assert!(!is_alive(&world, 1), "not for ever");
    }
}

#[test]
fn who_was_lost_must_speak_for_a_lease_before_it_is_taken_back() {
    let mut world = settled(3, 1);
    world.node(3).up = false;
    world.run(1500);
    assert!(!is_alive(&world, 3));
    world.node(3).up = true;
    world.run(900);
    assert!(!is_alive(&world, 3));
    world.run(400);
    assert!(is_alive(&world, 3));
}

#[test]
fn a_core_that_our_answers_do_not_reach_passes_for_silent() {
    let mut world = settled(3, 1);
    let answered = world.now;
    for _ in 0..50 {
        world.tick(100);
        world.hidden.insert(1);
        world.beat_all();
        let node = world.nodes[&NodeId(1)].clone();
        let mut message = world.heartbeat_of(&node, 0, Vec::new());
        message.answered = answered;
        world.send(conn(NodeId(1), 0), &message);
        if world.now.since(answered) < LEASE * 5 / 2 {
            assert!(is_alive(&world, 1));
        }
    }
    world.run(1500);
    assert!(!is_alive(&world, 1));
    assert_eq!(world.shard(0).primary, NodeId(2));
}

#[test]
fn a_member_that_does_not_answer_its_primary_is_replaced_for_that_shard() {
    let mut world = settled(3, 1);
    world.reporting = false;
    world.cuts.insert((1, 2));
    world.run(600);
    assert_eq!(world.members(0), [(1, Complete), (2, Complete)], "not hearing a node is not enough");
    world.beat(2, 0, vec![unanswered(1, 1)]);
    world.beat(1, 0, vec![unanswered(2, 2)]);
    assert_eq!(world.members(0), [(1, Complete), (2, Complete)], "another node's word, another term's");
    world.beat(1, 0, vec![unanswered(1, 2)]);
    assert_eq!(world.members(0), [(1, Complete), (3, Joining)]);
    assert_eq!(world.summary(0), (Epoch(1), NodeId(1), Serving, ListVersion(1)), "nothing else moved");
    assert!(is_alive(&world, 2), "for other shards it is as good as any");
}

#[test]
fn a_replaced_member_does_not_come_back_before_ten_leases_then_twenty() {
    // With min_backups = 1 the shard can do without its second backup.
    let mut options = options(3, 1, 2);
    options.min_backups = 1;
    let mut world = World::new(options);
    (1..=3).for_each(|id| world.add_node(id, 1));
    world.run(4500);
    world.reporting = false;
    assert_eq!(world.members(0).len(), 3);
    let mut away = Vec::new();
    for _ in 0..2 {
        world.beat(1, 0, vec![unanswered(1, 3)]);
        assert_eq!(world.members(0), [(1, Complete), (2, Complete)]);
        let from = world.now;
        while world.members(0).len() < 3 {
            world.run(100);
        }
        away.push(world.now.since(from).as_millis());
    }
    assert!((10_000..11_000).contains(&away[0]) && (20_000..21_000).contains(&away[1]), "{away:?}");
}

#[test]
fn without_anybody_else_a_silent_member_stays() {
    let mut world = settled(2, 1);
    world.cuts.insert((1, 2));
    world.run(600);
    world.beat(1, 0, vec![unanswered(1, 2)]);
    world.run(5000);
    assert_eq!(world.summary(0).1, NodeId(1));
    assert_eq!(world.members(0), [(1, Complete), (2, Complete)], "R7.2: nothing is synced without it");
}

/// A shard of two nodes was without its backup for ten leases, because the backup had not answered before it was lost.
#[test]
fn without_anybody_else_who_did_not_answer_comes_back_as_soon_as_it_is_heard() {
    let mut world = settled(2, 1);
    world.beat(1, 0, vec![unanswered(1, 2)]);
    world.node(2).up = false;
    world.run(1500);
    assert!(!is_alive(&world, 2));
    assert_eq!(world.members(0), [(1, Complete)], "it is lost, and the shard refuses updates");
    world.cuts.insert((1, 2));
    world.node(2).up = true;
    world.reporting = false;
    world.run(2500);
    assert!(is_alive(&world, 2));
    assert_eq!(world.members(0), [(1, Complete)], "its primary does not hear it");
    world.node(1).starts += 1;
    world.reporting = true;
    world.run(300);
    assert_eq!(world.summary(0), (Epoch(2), NodeId(1), Serving, ListVersion(3)), "reads need nobody else");
    assert_eq!(world.members(0), [(1, Complete)], "a young process has heard nobody yet");
    world.reporting = false;
    world.run(1000);
    assert_eq!(world.members(0), [(1, Complete)]);
    world.cuts.clear();
    world.run(200);
    assert_eq!(world.members(0), [(1, Complete), (2, Joining)], "nobody else can take its place");
    let version = world.config().version;
    world.beat(1, 0, vec![unanswered(2, 2)]);
    world.run(500);
    assert_eq!(world.config().version, version, "it stays, and is not made to begin anew");
}

#[test]
fn who_has_copied_the_log_answers() {
    let mut world = settled(3, 1);
    world.node(3).up = false;
    world.run(1500);
    world.beat(1, 0, vec![unanswered(1, 2)]);
    world.node(2).up = false;
    world.run(1500);
    world.node(2).up = true;
    world.run(3500);
    assert_eq!(world.members(0), [(1, Complete), (2, Complete)]);
    world.node(3).up = true;
    world.run(3500);
    assert!(is_alive(&world, 3));
    assert_eq!(world.members(0), [(1, Complete), (2, Complete)], "a complete copy is not dropped for a joiner");
}

#[test]
fn a_primary_that_hears_nobody_makes_room_when_its_lease_has_lapsed() {
    let mut world = settled(3, 1);
    world.cuts.extend([(1, 2), (1, 3)]);
    world.run(600);
    assert_eq!(world.beat(1, 0, vec![unanswered(1, 2)]), Some(0), "no lease any more");
    assert_eq!(world.members(0), [(1, Complete), (2, Complete)], "the other complete copy is kept");
    let last_lease = world.now;
    while world.shard(0).primary == NodeId(1) {
        world.run(100);
        assert!(world.now.since(last_lease) < LEASE * 2);
    }
    assert!(world.now.since(last_lease) >= LEASE * 9 / 10, "F1");
    assert_eq!(world.shard(0).primary, NodeId(2));
    assert_eq!(world.members(0).iter().map(|member| member.0).collect::<Vec<_>>(), [2, 3]);
    world.run(500);
    assert_eq!(world.shard(0).phase, Serving);
    assert!(is_alive(&world, 1));
}

#[test]
fn a_witness_that_does_not_answer_is_replaced_if_there_is_another() {
    let mut world = settled(4, 1);
    assert_eq!(world.shard(0).witnesses, [NodeId(3)]);
    world.beat(1, 0, vec![unanswered(1, 3)]);
    assert!(world.shard(0).closing, "R6.2: its primary closes it first");
    world.run(300);
    assert_eq!((world.shard(0).list, world.shard(0).witnesses.clone()), (ListVersion(2), vec![NodeId(4)]));
    let mut world = settled(2, 1);
    world.beat(1, 0, vec![unanswered(1, 2)]);
    assert!(!world.shard(0).closing, "nobody is better");
}

#[test]
fn a_stuck_recovery_goes_on_elsewhere_by_turns() {
    let mut world = settled(4, 2);
    world.reporting = false;
    world.node(1).starts = 2;
    world.beat(1, 0, Vec::new());
    let first = world.shard(0).primary;
    assert_eq!(world.summary(0), (Epoch(2), first, Recovering, ListVersion(1)));
    world.run(300);
    world.beat(first.0, 0, vec![stuck(1)]);
    assert_eq!(world.shard(0).epoch, Epoch(2), "another term's");
    world.beat(first.0, 0, vec![stuck(2)]);
    let second = world.shard(0).primary;
    assert!(world.shard(0).epoch == Epoch(3) && second != first);
    world.run(300);
    world.beat(second.0, 0, vec![stuck(3)]);
    assert_eq!(world.shard(0).epoch, Epoch(3), "it has hardly begun");
    world.run(10_000);
    world.beat(second.0, 0, vec![stuck(3)]);
    let third = world.shard(0).primary;
    assert!(world.shard(0).epoch == Epoch(4) && third != second && third != first);
    world.reporting = true;
    world.run(500);
    world.beat(third.0, 0, vec![stuck(4)]);
    assert_eq!(world.summary(0).0, Epoch(4), "it serves");
}

#[test]
fn recoveries_are_capped_in_each_lease_period() {
    let mut world = World::serving(3, 200, 1);
    world.run(1000);
    world.reporting = false;
    let of_one = world.config().shards.iter().filter(|shard| shard.primary == NodeId(1)).count();
    assert!(of_one > 64);
    let begun = |world: &World| world.config().shards.iter().filter(|shard| shard.epoch == Epoch(2)).count();
    world.node(1).starts = 2;
    world.beat(1, 0, Vec::new());
    assert_eq!(begun(&world), 64);
    world.run(1200);
    assert_eq!(begun(&world), of_one);
}

#[test]
fn a_list_of_which_a_witness_lost_its_part_is_closed() {
    let mut world = settled(3, 1);
    let (list, witness) = (world.shard(0).list, world.shard(0).witnesses[0]);
    let lost = |list| Report::WitnessLost { shard: ShardId(0), list };
    world.beat(1, 0, vec![lost(list)]);
    world.beat(witness.0, 0, vec![lost(list.next())]);
    assert_eq!(world.shard(0).primary, NodeId(1));
    assert!(!world.shard(0).closing, "it speaks for itself only, and of this list only");
    world.beat(witness.0, 0, vec![lost(list)]);
    assert!(world.shard(0).closing);
}
