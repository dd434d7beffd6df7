//! R9.15: a silence is judged by the member that hears most nodes.
#![allow(missing_docs)]

use std::collections::BTreeSet;

use crate::group::{Group, SIZE};

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
