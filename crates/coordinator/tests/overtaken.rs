//! Decision 0052: a node has promised an epoch that the coordinator knows nothing of. The shard is led no further, and
//! the operator is told.
#![allow(missing_docs)]

use crate::common::*;
use kasha_types::{Epoch, NodeId, ShardId};
use kasha_wire::message::{GiveUp, Report};
use kasha_wire::{AnyMessage, ShardPhase, message};

const SHARD: ShardId = ShardId(0);

fn promised_before(epoch: u32, promised: u32) -> Report {
    Report::PromisedBefore { shard: SHARD, epoch: Epoch(epoch), promised: Epoch(promised) }
}

/// Node 1 was the primary, and is lost: node 2 is named.
fn recovering() -> World {
    let mut world = World::serving(4, 1, 1);
    world.reporting = false;
    world.node(1).up = false;
    world.run(1300);
    let shard = world.shard(0);
    assert_eq!((shard.primary, shard.epoch, shard.phase), (NodeId(2), Epoch(2), ShardPhase::Recovering));
    world
}

fn told(world: &World) -> Vec<String> {
    world.coordinator.overtaken().map(|(shard, overtaken)| format!("{shard}: {overtaken}")).collect()
}

#[test]
fn a_primary_that_promised_the_epoch_before_is_told_of_and_nobody_else_is_promoted() {
    for promised in [2, 7] {
        let mut world = recovering();
        world.beat(2, 0, vec![promised_before(2, promised)]);
        let words = told(&world);
        let [said] = &words[..] else { panic!("{words:?}") };
        let expected =
            format!("shard-0: node-2 was named primary of epoch-2, but has promised epoch-{promised} before");
        assert!(said.starts_with(&expected) && said.contains("(K0430)"), "{said}");
        // Neither because it is stuck, nor because that node is lost while the other member is back.
        world.beat(2, 0, vec![Report::Stuck { shard: SHARD, epoch: Epoch(2) }]);
        world.node(1).up = true;
        world.run(3000);
        world.node(2).up = false;
        world.run(10_000);
        assert!(!world.config().node(NodeId(2)).unwrap().alive);
        assert_eq!((world.shard(0).epoch, world.shard(0).primary), (Epoch(2), NodeId(2)));
        let answers = world.ask(CLIENT, &GiveUp { nonce: 5, shard: SHARD, seen: None });
        let is_refused = |answer: &AnyMessage| matches!(answer, AnyMessage::GivenUp(message::GivenUp { refused: Some(why), .. }) if why.contains("K0430"));
        assert!(answers.iter().any(is_refused), "{answers:?}");
    }
}

#[test]
fn a_report_that_proves_nothing_changes_nothing() {
    let mut world = recovering();
    // Of another term; of a node that is not named; of a promise that is no obstacle.
    world.beat(2, 0, vec![promised_before(1, 9), promised_before(3, 9), promised_before(2, 1)]);
    world.beat(3, 0, vec![promised_before(2, 9)]);
    assert_eq!(told(&world), Vec::<String>::new());
    world.node(1).up = true;
    world.run(3000);
    world.node(2).up = false;
    world.run(10_000);
    assert_eq!((world.shard(0).epoch, world.shard(0).primary), (Epoch(3), NodeId(1)), "the other member is promoted");
}
