//! What is decided and not committed: the next decision sees it, and nobody is told of it (D3).
#![allow(missing_docs)]

use crate::common::*;
use kasha_machine::{Endpoint, Input, Machine};
use kasha_types::{ClientId, ConnId, NodeId, ShardId};
use kasha_wire::message::{self, TableCommand, TableOutcome};
use kasha_wire::{AnyMessage, Configuration};

/// A cluster that serves, all of whose decisions are committed. Its disk is slow from now on.
fn slow(nodes: u16, shards: u16) -> World {
    let mut world = World::serving(nodes, shards, 1);
    world.ask(CLIENT, &message::OpenSession { nonce: 1 });
    world.run(200);
    assert_eq!(world.config(), world.decided());
    world.fast_disk = false;
    world
}

fn create(sequence: u64, name: &str) -> message::TableRequest {
    message::TableRequest { client: ClientId(1), sequence, command: TableCommand::Create(name.into()) }
}

/// Commits one batch. Returns what leaves because of it.
fn commit(world: &mut World) -> Vec<(Endpoint, AnyMessage)> {
    world.sent.clear();
    world.fsync();
    world.deliver();
    std::mem::take(&mut world.sent)
}

fn is_configuration(message: &AnyMessage) -> bool {
    matches!(message, AnyMessage::ConfigurationIs(_))
}

#[test]
fn d3_what_is_decided_is_told_to_nobody_before_it_is_committed() {
    let mut world = slow(3, 1);
    let before = world.config().clone();
    let other = Endpoint::Conn(ConnId(98_765));
    assert!(world.ask(CLIENT, &message::GetConfiguration { have: before.version }).is_empty(), "it waits for news");
    world.send(other, &create(1, "orders"));
    world.node(2).starts = 2;
    world.beat_all();
    assert!(world.decided().version > before.version && world.decided().table("orders").is_some());
    assert_eq!(*world.config(), before, "not even our own operator is told");
    assert!(world.ask(other, &message::GetConfiguration { have: before.version }).is_empty());
    assert!(world.ask(other, &message::LeaseQuery { clients: vec![ClientId(1)] }).is_empty());
    world.beat_all();
    assert!(world.sent.is_empty(), "{:?}", world.sent);
    while !world.disk.commits.is_empty() {
        let newest = commit(&mut world).into_iter().filter_map(|(_, message)| match message {
            AnyMessage::ConfigurationIs(message) => Some(message.configuration.version),
            _ => None,
        });
        assert!(newest.max().is_none_or(|newest| newest <= world.config().version));
    }
    assert!(world.config().version > before.version && world.config() == world.decided());
}

#[test]
pub(crate) fn d3_a_goodbye_waits_for_the_process_that_it_follows_from() {
    let mut world = slow(3, 1);
    let old = world.nodes[&NodeId(2)].clone();
    world.node(2).starts = 2;
    assert_eq!(world.beat(2, 0, Vec::new()), None, "the new process waits");
    let end = Endpoint::Conn(ConnId(98_765));
    let outdated = world.heartbeat_of(&old, 0, Vec::new());
    assert!(world.ask(end, &outdated).is_empty(), "it is not told that it is out of date");
    assert!(world.ask(end, &create(1, "orders")).is_empty(), "and it is not heard any more");
    assert!(!world.disk.disconnected.contains(&end) && world.decided().table("orders").is_none());
    let without_cores = FakeNode { cores: 0, ..world.nodes[&NodeId(1)].clone() };
    let contradiction = world.heartbeat_of(&without_cores, 0, Vec::new());
    assert!(matches!(world.ask(CLIENT, &contradiction)[..], [AnyMessage::Goodbye(_)]), "this follows from no command");
    let told = commit(&mut world);
    let goodbyes = told.iter().filter(|(to, message)| *to == end && matches!(message, AnyMessage::Goodbye(_)));
    assert_eq!(goodbyes.count(), 1);
    assert!(world.disk.disconnected.contains(&end));
}

#[test]
fn d3_a_goodbye_to_a_closed_connection_is_forgotten() {
    let mut world = slow(3, 1);
    let old = world.nodes[&NodeId(2)].clone();
    world.node(2).starts = 2;
    world.beat(2, 0, Vec::new());
    let conn = ConnId(98_765);
    let outdated = world.heartbeat_of(&old, 0, Vec::new());
    world.send(Endpoint::Conn(conn), &outdated);
    world.coordinator.step(world.now, Input::Closed(conn), &mut world.effects);
    assert!(!commit(&mut world).iter().any(|(to, _)| *to == Endpoint::Conn(conn)));
    assert!(!world.disk.disconnected.contains(&Endpoint::Conn(conn)));
}

#[test]
fn d3_a_crash_in_between_leaves_no_trace() {
    let mut world = slow(3, 2);
    let (state, files) = (world.coordinator.state().clone(), world.disk.durable.clone());
    world.send(CLIENT, &create(1, "orders"));
    world.node(2).starts = 2;
    world.beat(2, 0, Vec::new());
    assert!(world.coordinator.decided().applied() > state.applied());
    assert_eq!(world.disk.durable, files);
    let disk = MemoryDisk { durable: files, ..MemoryDisk::default() };
    let then = World::try_with(world.options.clone(), disk, world.now, false).unwrap();
    assert_eq!(*then.coordinator.state(), state, "as if nothing had been decided");
    let configurations = |of: &Configuration| (of.version, of.tables.clone(), of.nodes.clone(), of.shards.clone());
    assert_eq!(configurations(then.decided()), configurations(state.configuration()));
}

/// A fail-over is decided while the new process that causes it is not committed, and a request while the one before it is not.
#[test]
fn two_decisions_in_flight_are_committed_in_their_order() {
    let mut world = slow(3, 1);
    let before = world.config().clone();
    world.send(CLIENT, &create(1, "orders"));
    assert_eq!(world.disk.commits.len(), 1, "the first is under way");
    world.send(CLIENT, &create(2, "orders"));
    world.node(1).starts = 2;
    world.beat(1, 0, Vec::new());
    assert_eq!(world.disk.commits.len(), 1, "the others wait for it");
    let decided = world.decided().clone();
    let table = decided.table("orders").expect("the second request found the table of the first");
    assert_eq!(decided.tables.len(), before.tables.len() + 1);
    let (then, now) = (before.shard(ShardId(0)).unwrap(), decided.shard(ShardId(0)).unwrap());
    assert!(now.epoch > then.epoch, "the process that had the term is gone (R7.1)");

    let first = commit(&mut world);
    assert!(first.iter().any(|(_, message)| is_configuration(message)));
    assert_eq!(world.config().table("orders"), Some(table));
    assert_eq!(world.shard(0).epoch, then.epoch, "the second batch is not committed");
    assert_eq!(world.disk.commits.len(), 1);
    commit(&mut world);
    assert_eq!(*world.config(), decided);

    world.fast_disk = true;
    world.run(500);
    let repeated = world.ask(CLIENT, &create(2, "orders"));
    let [AnyMessage::TableAnswer(ref answer)] = repeated[..] else { panic!("{repeated:?}") };
    assert_eq!(answer.outcome, TableOutcome::Exists(table), "each has run once, in order");
}
