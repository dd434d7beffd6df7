//! R9.15: a silence is judged by the member that hears most nodes.
#![allow(missing_docs)]

use std::collections::{BTreeMap, BTreeSet};

use kasha_types::NodeId;
use kasha_wire::message::AdminOrder::Lead;

use crate::group::{Group, SIZE};

/// The nodes that are alive, as this member knows it.
fn alive(group: &Group, index: usize) -> Vec<u16> {
    group.config(index).nodes.iter().filter(|info| info.alive).map(|info| info.node.0).collect()
}

fn node(index: usize) -> u16 {
    u16::try_from(index + 1).unwrap()
}

/// Nobody was declared lost.
fn assert_all_alive(group: &Group, what: &str) {
    for index in (0..SIZE).filter(|&index| group.members[index].is_some()) {
        let config = group.config(index);
        assert!(config.nodes.iter().all(|info| info.alive), "{what}: {:?}", config.nodes);
    }
}

#[test]
pub(crate) fn r9_15_the_lead_goes_to_whoever_hears_the_nodes() {
    for hidden in [&[1, 2, 3][..], &[2, 3], &[3]] {
        let mut group = Group::serving();
        let deaf = group.leaders()[0];
        // The node of its own process it always hears, if it hears any.
        group.hide(hidden, deaf);
        for _ in 0..60 {
            group.run(100);
            assert_all_alive(&group, &format!("{hidden:?} hidden from the leader"));
        }
        let leaders = group.leaders();
        assert!(leaders.len() == 1 && leaders != [deaf], "{hidden:?}: {leaders:?}");
        assert!(group.answers(leaders[0]));
        group.hidden.clear();
        group.run(3_000);
        assert_all_alive(&group, "all are heard again");
    }
}

#[test]
fn r9_15_a_node_that_no_member_hears_is_lost_as_soon_as_before() {
    let took = |hears_less: bool| -> u64 {
        let mut group = Group::serving();
        let leader = group.leaders()[0];
        let dead = (0..SIZE).find(|&index| index != leader).unwrap();
        if hears_less {
            // Another member hears fewer nodes than the leader: that changes nothing.
            group.hide(&[1, 2, 3], (0..SIZE).find(|index| ![leader, dead].contains(index)).unwrap());
            group.run(2_000);
        }
        group.node_is_up(dead, false);
        let mut took = 0_u64;
        while group.config(leader).nodes.iter().all(|info| info.alive) {
            group.run(10);
            took += 10;
            assert!(took < 10_000, "it is lost");
        }
        assert_eq!(group.leaders(), [leader], "the lead stays");
        took
    };
    assert!(took(true).abs_diff(took(false)) <= 100);
}

/// It says that it hears more, and does not lead: its disk may hang. The leader judges by itself in the end.
#[test]
fn r9_15_who_hears_more_and_does_not_come_to_lead_holds_nothing_up_for_long() {
    let mut group = Group::serving();
    let leader = group.leaders()[0];
    group.hide(&[1, 2, 3], leader);
    let near: BTreeSet<u16> = [u16::try_from(leader + 1).unwrap()].into();
    group.hidden.retain(|node, _| !near.contains(node));
    group.deaf_to_orders = (0..SIZE).filter(|&index| index != leader).collect();
    group.run(20_000);
    let alive = group.config(leader).nodes.iter().filter(|info| info.alive).count();
    assert!(group.leaders() == [leader] && alive < SIZE, "{alive} nodes are alive");
}

#[test]
fn r9_15_one_member_that_does_not_come_to_lead_does_not_hide_another_one() {
    for hung in 1..SIZE {
        let mut group = Group::serving();
        let leader = group.leaders()[0];
        let hung = (leader + hung) % SIZE;
        group.hide(&[1, 2, 3], leader);
        group.hidden.remove(&node(leader));
        group.deaf_to_orders = BTreeSet::from([hung]);
        group.run(12_000);
        assert_eq!(group.leaders(), [3 - leader - hung], "the other one leads");
        assert_all_alive(&group, "one of the others hears all");
    }
}

/// A leader bears some leases without a round. Then the cut is over, and what was decided meanwhile would be committed.
#[test]
fn r9_15_a_leader_that_is_cut_off_from_members_and_nodes_judges_none() {
    for (millis, elections, trusts) in
        [(2_300, 0, false), (2_300, 1, false), (3_000, 2, false), (3_500, 2, true), (6_000, 3, true)]
    {
        let mut group = Group::with(|options| options.trusts_connections = trusts);
        group.run(3_000);
        for index in 0..elections {
            group.obey(Lead(NodeId(node((index + 1) % SIZE))));
        }
        group.run(5_000);
        let leader = group.leaders()[0];
        let others: Vec<u16> = (0..SIZE).filter(|&index| index != leader).map(node).collect();
        group.isolate(leader);
        group.hide(&others, leader);
        group.run(millis);
        group.cuts.clear();
        group.hidden.clear();
        group.run(2_000);
        assert_all_alive(&group, &format!("a cut of {millis} ms after {elections} elections"));
    }
}

/// Whoever leads misses one node, another one is dead, and the trouble goes with the lead.
#[test]
fn r9_15_trouble_that_follows_the_lead_does_not_send_the_lead_round_for_ever() {
    for early in [false, true] {
        let mut group = Group::serving_of(5);
        group.node_is_up(4, false);
        group.kill(4);
        let (mut leads, mut last, mut since, mut millis) = (0, usize::MAX, 0, 0);
        let mut without: BTreeMap<u16, u64> = BTreeMap::new();
        while alive(&group, 0).contains(&5) {
            group.run(10);
            millis += 10;
            assert!(millis < 20_000, "the dead node is lost: {leads} leads");
            if let [leader] = group.leaders()[..] {
                if leader != last {
                    (leads, last, since) = (leads + 1, leader, millis);
                    group.hidden.clear();
                    group.hide(&[4], leader);
                } else if early && millis == since + 980 {
                    (0..SIZE).for_each(|index| group.hide(&[4], index));
                }
            }
            for of in 1..=3 {
                let has_none = group.leases[&NodeId(of)] < group.now;
                *without.entry(of).or_insert(0) += if has_none { 10 } else { 0 };
            }
        }
        assert!(without.values().all(|&millis| millis <= 1_000), "{without:?} ms without a lease, {leads} leads");
    }
}

/// It was lost, and is back; the leader alone does not hear it.
#[test]
fn r9_15_the_lead_goes_to_whoever_hears_a_node_that_is_back() {
    let mut group = Group::serving();
    let leader = group.leaders()[0];
    let dead = (leader + 1) % SIZE;
    group.node_is_up(dead, false);
    group.run(6_000);
    assert!(!alive(&group, leader).contains(&node(dead)));
    group.hide(&[node(dead)], leader);
    group.nodes.get_mut(&NodeId(node(dead))).unwrap().up = true;
    group.run(10_000);
    assert_ne!(group.leaders(), [leader]);
    assert_all_alive(&group, "it is heard by the next leader");
}
