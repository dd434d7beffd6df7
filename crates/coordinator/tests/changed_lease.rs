//! A lease that an operator changes, and elections: leases that were granted before may be longer (F1).
#![allow(missing_docs)]

use std::time::Duration;

use kasha_types::NodeId;
use kasha_wire::message::AdminOrder::Lease;
use kasha_wire::{MemberState, ShardPhase};

use crate::group::{Group, SIZE};

const LONG_MILLIS: u64 = 1_500;
const SHORT_MILLIS: u64 = 150;

impl Group {
    /// Panics if a node that may have a lease is lost, or is no primary any more, as far as any member has committed that. Whether it is lost.
    fn has_lost(&self, node: NodeId, was_primary_of: usize) -> bool {
        let mut is_lost = false;
        for world in self.members.iter().flatten() {
            let config = world.config();
            let shard = &config.shards[was_primary_of];
            is_lost |= !config.node(node).unwrap().alive;
            let is_replaced =
                shard.primary != node || shard.member(node).is_none_or(|of| of.state != MemberState::Complete);
            let has_lease = self.leases.get(&node).is_some_and(|until| *until > self.now);
            assert!(
                !has_lease || !(is_lost || is_replaced),
                "F1: {node} has a lease until {:?}, at {:?}",
                self.leases[&node],
                self.now
            );
        }
        is_lost
    }

    /// The leader dies. Its process starts again when another member leads.
    fn elects(&mut self, node: NodeId) {
        let Some(&leader) = self.leaders().first() else { return };
        self.kill(leader);
        while self.leaders().is_empty() {
            self.run(10);
            self.has_lost(node, 0);
        }
        self.start(leader);
    }
}

/// While the lead is handed over for the order, and around the moment when the bound of leases is lowered, too. The node's own silence begins with
/// the election.
#[test]
fn f1_a_lease_that_is_lowered_just_before_an_election_binds_the_next_leader() {
    for pause in [0, 20, 50, 200, 700, 1_400, 1_600, 1_800] {
        (1..=3).for_each(|elections| changed(LONG_MILLIS, SHORT_MILLIS, pause, elections));
    }
}

/// The longer lease was not that of the cluster's beginning.
#[test]
fn f1_a_lease_that_was_raised_and_is_lowered_again_binds_the_next_leader() {
    for pause in [0, 20, 200, 700, 1_600] {
        (1..=2).for_each(|elections| changed(SHORT_MILLIS, SHORT_MILLIS, pause, elections));
    }
}

fn changed(from: u64, to: u64, pause: u64, elections: usize) {
    let lease = Duration::from_millis(from);
    let mut group = Group::with(|options| (options.node_lease, options.drift_bound) = (lease, lease / 20));
    group.run(5_000);
    let leader = group.leaders()[0];
    assert_eq!(group.member(leader).coordinator.members().len(), SIZE);
    let node = group.config(leader).shards[0].primary;
    assert!(group.config(leader).shards.iter().all(|shard| shard.phase == ShardPhase::Serving));
    while group.leases[&node].since(group.now).as_millis() < u128::from(LONG_MILLIS * 3 / 4) {
        let _ = group.order(Lease(LONG_MILLIS));
    }
    let _ = group.order(Lease(to));
    for _ in 0..pause / 10 {
        group.run(10);
    }
    group.node_is_up(usize::from(node.0) - 1, false);
    (0..elections).for_each(|_| group.elects(node));
    let since = group.now;
    while !group.has_lost(node, 0) {
        group.run(10);
        assert!(group.now.since(since).as_millis() < 9_000, "it is lost some day: {pause}, {elections}");
    }
}
