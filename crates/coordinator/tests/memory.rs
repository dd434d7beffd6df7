//! R9.13: a coordinator that knows less than a node's folder has lost its memory, and decides nothing.
#![allow(missing_docs)]

use crate::common::*;
use kasha_coordinator::{Forgotten, Loss};
use kasha_machine::{Endpoint, Machine};
use kasha_types::{ClientId, ClusterTime, ConnId, CoreId, Epoch, ListVersion, NodeId, ShardId};
use kasha_wire::message::{self, Knowledge, ShardKnowledge};
use kasha_wire::{AnyMessage, MemberState, ShardPhase};

fn forgotten(world: &World) -> Option<Forgotten> {
    world.coordinator.memory_loss().map(|loss| loss.what)
}

/// Nothing is committed, no lease is granted, no configuration and no client id is told; a client is told why.
fn assert_decides_nothing(world: &mut World) {
    let (config, applied) = (world.config().clone(), world.coordinator.state().applied());
    world.sent.clear();
    world.run(10_000);
    assert_eq!((world.config(), world.coordinator.state().applied()), (&config, applied));
    let told = std::mem::take(&mut world.sent);
    assert!(told.is_empty(), "{told:?}");
    for question in [
        AnyMessage::from(message::OpenSession { nonce: 1 }),
        message::GetConfiguration { have: kasha_types::ConfigVersion(0) }.into(),
        message::RenewLease { client: ClientId(1) }.into(),
    ] {
        let answers = match &question {
            AnyMessage::OpenSession(message) => world.ask(CLIENT, message),
            AnyMessage::GetConfiguration(message) => world.ask(CLIENT, message),
            AnyMessage::RenewLease(message) => world.ask(CLIENT, message),
            _ => unreachable!("listed above"),
        };
        let [AnyMessage::Goodbye(message::Goodbye { reason })] = &answers[..] else { panic!("{answers:?}") };
        assert!(reason.contains("K0508") && reason.contains("node-"), "{reason}");
    }
}

#[test]
fn r9_13_without_its_files_it_places_nothing() {
    for starts in [1, 2, 3] {
        let mut world = World::serving(3, 3, 1);
        // All processes start anew; the coordinator without its folder, at every start.
        for start in 0..starts {
            world.restart_from(Files::default());
            for id in 1..=3 {
                let node = world.node(id);
                node.starts = 2 + start;
            }
            assert_decides_nothing(&mut world);
            assert!(world.config().shards.is_empty());
        }
    }
}

/// A member is replaced within one epoch; the copy is from before that. Its members and its epoch look current, and it
/// would elect the one that left.
#[test]
fn r9_13_an_older_copy_from_before_a_change_of_members_within_one_epoch() {
    let mut world = World::serving(4, 1, 1);
    let old = world.disk.durable.clone();
    let before = world.summary(0);
    world.node(2).up = false;
    world.run(6_000);
    assert_eq!(world.summary(0).0, before.0, "the same epoch");
    assert!(world.members(0).iter().all(|&(node, state)| node != 2 && state == MemberState::Complete));
    for id in 1..=4 {
        let node = world.node(id);
        (node.starts, node.up) = (node.starts + 1, true);
    }
    world.node(2).config = None;
    let primary = world.shard(0).primary;
    let member = world.members(0).into_iter().map(|(node, _)| node).find(|&node| NodeId(node) != primary).unwrap();
    // The primary died with everything it knew, and who left comes first.
    world.node(primary.0).up = false;
    world.hidden.insert(member);
    world.restart_from(old.clone());
    world.run(200);
    assert_eq!(world.summary(0).0, before.0, "it listens");
    world.hidden.remove(&member);
    assert_decides_nothing(&mut world);
    assert!(matches!(forgotten(&world), Some(Forgotten::Configuration(..))), "{:?}", forgotten(&world));
    // Who obeyed no configuration any more still has its marks.
    let knows = world.nodes[&NodeId(member)].knowledge(0);
    world.restart_from(old);
    let mut heartbeat = world.heartbeat_of(&world.nodes[&NodeId(member)].clone(), 0, Vec::new());
    heartbeat.have = kasha_types::ConfigVersion(0);
    heartbeat.knows = Knowledge { configuration: kasha_types::ConfigVersion(0), ..knows };
    world.send(conn(NodeId(member), 0), &heartbeat);
    assert!(matches!(forgotten(&world), Some(Forgotten::Set(..) | Forgotten::List(..))), "{:?}", forgotten(&world));
}

#[test]
fn r9_13_whatever_a_folder_knows_more_is_noticed() {
    let knows = |shard: ShardKnowledge| Knowledge { shards: vec![shard], ..nothing() };
    fn nothing() -> Knowledge {
        Knowledge { configuration: kasha_types::ConfigVersion(0), clients_below: ClientId(0), shards: Vec::new() }
    }
    let shard = ShardKnowledge {
        shard: ShardId(0),
        promised: Epoch(1),
        list: ListVersion(1),
        set: kasha_types::ConfigVersion(0),
    };
    let mut world = World::serving(3, 1, 1);
    let version = world.config().version;
    let state = world.coordinator.state();
    let (reserved, clients_below, set) = (state.time_reserved(), state.clients_below(), world.shard(0).members_since);
    let mut cases = vec![
        (knows(shard), ClusterTime(0), None),
        (Knowledge { configuration: version, clients_below, ..nothing() }, reserved, None),
        (knows(ShardKnowledge { set, ..shard }), ClusterTime(0), None),
        (Knowledge { configuration: version.next(), ..nothing() }, ClusterTime(0), Some("configuration")),
        (nothing(), reserved.after_millis(60_000), Some("time")),
        (Knowledge { clients_below: ClientId(clients_below.0 + 1), ..nothing() }, ClusterTime(0), Some("client ids")),
        (knows(ShardKnowledge { shard: ShardId(1), ..shard }), ClusterTime(0), Some("no such shard")),
        (knows(ShardKnowledge { promised: Epoch(2), ..shard }), ClusterTime(0), Some("epoch-2")),
        (knows(ShardKnowledge { list: ListVersion(2), ..shard }), ClusterTime(0), Some("witness")),
        (knows(ShardKnowledge { set: set.next(), ..shard }), ClusterTime(0), Some("the members of")),
    ];
    for (case, (knows, cluster_time, noticed)) in cases.drain(..).enumerate() {
        let mut heartbeat = world.heartbeat_of(&world.nodes[&NodeId(2)].clone(), 0, Vec::new());
        (heartbeat.knows, heartbeat.cluster_time) = (knows, cluster_time);
        world.send(conn(NodeId(2), 0), &heartbeat);
        let loss: Option<Loss> = world.coordinator.memory_loss();
        match noticed {
            None => assert_eq!(loss, None, "case {case}"),
            Some(text) => {
                let loss = loss.unwrap_or_else(|| panic!("case {case} is not noticed"));
                assert_eq!(loss.core, CoreId { node: NodeId(2), core: 0 });
                assert!(loss.to_string().contains(text), "case {case}: {loss}");
            }
        }
        // What the core takes back counts no more.
        world.beat(2, 0, Vec::new());
        assert_eq!(forgotten(&world), None);
    }
    world.run(1_000);
    assert!(world.config().nodes.iter().all(|info| info.alive), "nobody was silent");
    assert_eq!(world.shard(0).phase, ShardPhase::Serving);
}

/// More clients wait for a configuration than one turn tells. A coordinator that has lost memory tells nothing, and must not spin.
#[test]
fn r9_13_with_memory_lost_it_waits_although_clients_are_still_to_be_told() {
    let mut world = World::serving(3, 1, 1);
    let version = world.config().version;
    for client in 0..20_000 {
        let from = Endpoint::Conn(ConnId(1_000_000 + client));
        world.send(from, &message::GetConfiguration { have: version });
    }
    world.node(1).starts = 2;
    world.beat(1, 0, Vec::new());
    assert!(world.config().version > version);
    assert!(world.coordinator.next_deadline() <= Some(world.now), "the next turn tells others");
    let mut heartbeat = world.heartbeat_of(&world.nodes[&NodeId(2)].clone(), 0, Vec::new());
    heartbeat.knows.configuration = kasha_types::ConfigVersion(1_000);
    world.send(conn(NodeId(2), 0), &heartbeat);
    assert!(world.coordinator.memory_loss().is_some());
    assert!(world.coordinator.next_deadline() > Some(world.now));
}

/// Until all have spoken it decides nothing: a new process of a primary is no reason to promote another node.
#[test]
fn r9_13_it_listens_to_all_before_it_decides() {
    let mut world = World::serving(3, 1, 1);
    let epoch = world.shard(0).epoch;
    world.node(1).starts = 2;
    world.hidden.insert(3);
    world.restart();
    world.run(900);
    assert_eq!(world.shard(0).epoch, epoch, "node 3 may know more");
    assert!(world.beat(2, 0, Vec::new()) == Some(0), "an answer without a lease");
    assert!(world.ask(CLIENT, &message::OpenSession { nonce: 7 }).is_empty(), "it knows not which ids are in use");
    assert_eq!(world.coordinator.state().clients_below(), ClientId(1));
    world.hidden.remove(&3);
    world.run(100);
    assert!(world.shard(0).epoch > epoch, "now all have spoken");
    assert!(world.coordinator.state().clients_below() > ClientId(1), "the client need not ask again");
    assert!(world.beat(2, 0, Vec::new()).is_some_and(|lease| lease > 0));
}

#[test]
fn r9_13_nodes_that_are_away_do_not_stop_it_for_ever() {
    // One of three is away, with f = 1: the others are enough when its lease is over.
    for (away, leases) in [(1, 2), (2, 11)] {
        let mut world = World::serving(3, 1, 1);
        for id in (2..=3).take(away) {
            world.node(id).up = false;
        }
        world.restart();
        let begun = world.now;
        while world.beat(1, 0, Vec::new()) == Some(0) {
            world.tick(50);
            world.beat_all();
            assert!(world.now.since(begun) < LEASE * leases, "{away} are away");
        }
        assert!(world.now.since(begun) >= LEASE * (leases - 1), "{away} are away: {:?}", world.now.since(begun));
    }
}

/// A node may come back with another number of cores: the cores of its newest process must speak.
#[test]
fn r9_13_a_node_has_spoken_when_all_its_cores_have() {
    let mut world = World::new(options(3, 2, 1));
    for id in 1..=3 {
        world.add_node(id, 2);
    }
    world.run(500);
    world.restart();
    for (id, core) in [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 0)] {
        assert_eq!(world.beat(id, core, Vec::new()), Some(0), "node {id}, core {core}");
    }
    assert!(world.beat(3, 1, Vec::new()).is_some_and(|lease| lease > 0), "now all have");
}

/// Found by a reader of the code: while a coordinator listens it admits nobody, and a core that its node does not have was looked up.
#[test]
fn r9_13_a_heartbeat_of_no_core_does_no_harm_while_it_listens() {
    let mut world = World::serving(3, 2, 1);
    world.restart();
    let honest = world.heartbeat_of(&world.nodes[&NodeId(1)].clone(), 0, Vec::new());
    let stray = message::Heartbeat { core: CoreId { node: NodeId(1), core: 200 }, ..honest.clone() };
    world.send(conn(NodeId(1), 0), &stray);
    world.send(conn(NodeId(1), 0), &honest);
    world.run(5_000);
    assert!(world.config().shards.iter().all(|shard| shard.phase == ShardPhase::Serving));
}
