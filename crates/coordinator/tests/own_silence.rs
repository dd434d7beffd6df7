//! R7.8: a coordinator that hears nobody is cut off itself. One test for each part of the rule.
#![allow(missing_docs)]

use crate::common::*;
use kasha_types::{Epoch, NodeId, ShardId};
use kasha_wire::message::Report;
use kasha_wire::{Configuration, ShardPhase};

/// A cluster that has served for so long that reports about links count.
fn settled(options: kasha_coordinator::CoordinatorOptions) -> World {
    let (mut world, nodes) = (World::new(options.clone()), options.nodes);
    (1..=nodes).for_each(|id| world.add_node(id, 1));
    world.run(2000);
    assert!(world.config().shards.iter().all(|shard| shard.phase == ShardPhase::Serving));
    world
}

/// The coordinator runs in the process of node 1.
fn hosted(nodes: u16, shards: u16, faults: u8) -> World {
    let mut options = options(nodes, shards, faults);
    options.own_nodes.insert(NodeId(1));
    settled(options)
}

fn is_alive(world: &World, node: u16) -> bool {
    world.config().node(NodeId(node)).unwrap().alive
}

/// Compares what the rule is about: which nodes are alive, which are primaries, members and witnesses, and the lists.
fn assert_unchanged(world: &World, before: &Configuration, what: &str) {
    let now = world.config();
    assert!(now.nodes.iter().all(|node| node.alive), "{what}: {:?}", now.nodes);
    assert_eq!(now.shards, before.shards, "{what}");
}

fn beat_some(world: &mut World, nodes: &[u16]) {
    for &node in nodes {
        let reports = world.nodes[&NodeId(node)].reports();
        world.beat(node, 0, reports);
    }
}

/// Cuts the coordinator off from these nodes for this time; the others speak to it.
fn cut(world: &mut World, nodes: &[u16], millis: u64) {
    let before = std::mem::replace(&mut world.hidden, nodes.iter().copied().collect());
    world.run(millis);
    world.hidden = before;
}

#[test]
fn r7_8_a_coordinator_that_hears_nobody_declares_nobody_lost() {
    for millis in [500, 900, 1000, 1100, 1500, 6000, 60_000] {
        let mut world = settled(options(3, 3, 1));
        let before = world.config().clone();
        cut(&mut world, &[1, 2, 3], millis);
        assert_unchanged(&world, &before, &format!("after {millis} ms"));
        world.run(5000);
        assert_unchanged(&world, &before, &format!("long after a cut of {millis} ms"));
    }
}

#[test]
fn r7_8_nodes_that_are_heard_again_one_by_one_keep_their_places() {
    for gap in [100, 500, 900] {
        let mut world = settled(options(3, 3, 1));
        let before = world.config().clone();
        cut(&mut world, &[1, 2, 3], 6000);
        cut(&mut world, &[2, 3], gap);
        cut(&mut world, &[3], 900);
        world.run(5000);
        assert_unchanged(&world, &before, &format!("{gap} ms apart"));
    }
}

#[test]
fn r7_8_who_stays_silent_when_others_are_heard_again_has_a_full_lease_and_no_more() {
    let mut world = settled(options(3, 3, 1));
    cut(&mut world, &[1, 2, 3], 6000);
    world.node(3).up = false;
    world.run(1000);
    assert!(is_alive(&world, 3), "judged after a full lease");
    world.run(300);
    assert!(!is_alive(&world, 3), "then the others are witnesses as before");
    assert!(is_alive(&world, 1) && is_alive(&world, 2));
}

#[test]
fn r7_8_a_silence_before_the_cut_and_one_in_it_do_not_add_up() {
    let mut world = settled(options(3, 3, 1));
    let before = world.config().clone();
    cut(&mut world, &[3], 600);
    cut(&mut world, &[1, 2, 3], 700);
    assert_unchanged(&world, &before, "node 3 was silent for 600 ms while others spoke");
    world.run(3000);
    assert_unchanged(&world, &before, "afterwards");
}

#[test]
fn r7_8_a_link_that_comes_and_goes_moves_nothing() {
    for (away, there) in [(1200, 100), (700, 100), (2500, 300), (1000, 1000)] {
        let mut world = settled(options(3, 3, 1));
        let before = world.config().clone();
        for turn in 0..20u16 {
            cut(&mut world, &[1, 2, 3], away);
            // In each turn some nodes do not get through.
            let silent = turn % 3 + 1;
            cut(&mut world, &[silent], there);
        }
        world.run(3000);
        assert_unchanged(&world, &before, &format!("{away} ms away, {there} ms there"));
    }
}

#[test]
fn r7_8_answers_that_reach_nobody_are_a_silence_of_our_own_too() {
    let mut world = settled(options(3, 3, 1));
    let (before, answered) = (world.config().clone(), world.now);
    for _ in 0..80 {
        world.tick(100);
        for id in 1..=3 {
            let node = world.nodes[&NodeId(id)].clone();
            let mut message = world.heartbeat_of(&node, 0, Vec::new());
            message.answered = answered;
            world.send(conn(NodeId(id), 0), &message);
        }
    }
    assert_unchanged(&world, &before, "while no answer arrives");
    world.run(3000);
    assert_unchanged(&world, &before, "afterwards");
}

#[test]
fn r7_8_the_way_back_of_a_lost_node_is_not_delayed() {
    let mut world = settled(options(3, 3, 1));
    world.node(3).up = false;
    world.run(1500);
    assert!(!is_alive(&world, 3));
    world.node(3).up = true;
    world.run(800);
    assert!(!is_alive(&world, 3), "it has spoken for 800 ms");
    cut(&mut world, &[1, 2, 3], 6000);
    world.run(500);
    assert!(is_alive(&world, 3), "and for the rest of a lease after the cut");
}

#[test]
fn r7_8_a_restarted_coordinator_that_hears_nobody_waits() {
    let mut world = settled(options(3, 3, 1));
    let before = world.config().clone();
    world.hidden = [1, 2, 3].into();
    world.restart();
    world.run(6000);
    world.hidden.clear();
    cut(&mut world, &[3], 900);
    world.run(3000);
    assert_unchanged(&world, &before, "after a restart within the cut");
}

#[test]
fn r7_8_the_node_of_the_own_process_is_no_witness() {
    for millis in [900, 1300, 6000, 60_000] {
        let mut world = hosted(3, 3, 1);
        let before = world.config().clone();
        world.cuts.extend([(1, 2), (1, 3)]);
        cut(&mut world, &[2, 3], millis);
        assert_unchanged(&world, &before, &format!("after {millis} ms"));
        world.cuts.clear();
        world.run(5000);
        assert_unchanged(&world, &before, &format!("long after a cut of {millis} ms"));
    }
}

#[test]
fn r7_8_complaints_of_a_silence_of_our_own_are_void() {
    let mut world = hosted(4, 1, 1);
    let before = world.config().clone();
    assert_eq!(before.shards[0].primary, NodeId(1));
    let backup = before.shards[0].members[1].node.0;
    let complaint = vec![Report::Unanswered { shard: ShardId(0), epoch: Epoch(1), node: NodeId(backup) }];
    world.cuts.extend([(1, 2), (1, 3), (1, 4)]);
    cut(&mut world, &[2, 3, 4], 3000);
    world.beat(1, 0, complaint.clone());
    assert_unchanged(&world, &before, "in the cut");
    world.cuts.clear();
    world.run(1500);
    world.beat(1, 0, complaint.clone());
    assert_unchanged(&world, &before, "the links between the nodes may take longer than ours");
    world.run(2000);
    world.beat(1, 0, complaint);
    assert_ne!(world.config().shards, before.shards, "a silence that goes on counts");
}

/// With f = 2, two of three nodes may die.
#[test]
fn r7_8_two_of_three_nodes_that_die_are_failed_over() {
    let mut world = settled(options(3, 3, 2));
    world.node(2).up = false;
    world.node(3).up = false;
    world.run(4500);
    assert!(!is_alive(&world, 2) && !is_alive(&world, 3));
    assert!(world.config().shards.iter().all(|shard| shard.primary == NodeId(1)), "within a few leases");
}

#[test]
fn r7_8_with_f_2_a_node_of_the_own_process_goes_on_alone_after_ten_leases() {
    let mut world = hosted(3, 3, 2);
    world.cuts.extend([(1, 2), (1, 3)]);
    world.hidden = [2, 3].into();
    world.run(9900);
    assert!(is_alive(&world, 2) && is_alive(&world, 3));
    world.run(2500);
    assert!(world.config().shards.iter().all(|shard| shard.primary == NodeId(1)), "as f = 2 promises");
    world.cuts.clear();
    world.hidden.clear();
    world.run(200);
    assert!(is_alive(&world, 2) && is_alive(&world, 3), "they may have lived all the time: nothing delays them");
    world.run(1000);
    assert!(world.config().shards.iter().all(|shard| shard.members.len() == 3));
}

#[test]
fn r7_8_nobody_goes_on_alone_where_f_does_not_say_so() {
    let mut world = hosted(3, 3, 1);
    let before = world.config().clone();
    world.node(2).up = false;
    world.node(3).up = false;
    world.run(60_000);
    assert_unchanged(&world, &before, "two of three are gone, and f is 1");
    let mut world = settled(options(3, 3, 2));
    (1..=3).for_each(|id| world.node(id).up = false);
    world.run(60_000);
    assert!(world.config().nodes.iter().all(|node| node.alive), "nobody could serve");
}

#[test]
fn r7_8_where_all_nodes_are_of_one_process_they_are_judged_as_ever() {
    let mut options = options(3, 3, 1);
    options.own_nodes.extend((1..=3).map(NodeId));
    let mut world = settled(options);
    world.node(3).up = false;
    world.run(1300);
    assert!(!is_alive(&world, 3));
    beat_some(&mut world, &[1, 2]);
    assert!(world.config().shards.iter().all(|shard| shard.primary != NodeId(3)));
}
