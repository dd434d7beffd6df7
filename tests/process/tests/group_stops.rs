//! All processes with members of the coordinator's group end at once, and one of them stays away: any one. The others need nobody's help.
#![allow(missing_docs)]

use kasha_process_tests::group::{Group, NODES};
use kasha_process_tests::load::Load;

fn others(away: u16) -> impl Iterator<Item = u16> {
    (1..=NODES).filter(move |node| *node != away)
}

#[test]
fn everything_is_stopped_and_any_one_node_stays_away() {
    let mut group = Group::start("group-stop", NODES);
    let mut written = 0;
    for away in 1..=NODES {
        group.write(written, written + 5);
        written += 5;
        group.stop_all();
        others(away).for_each(|node| group.start_node(node));
        group.wait_until_well();
        group.all_is_there(written);
        group.write(written, written + 3);
        written += 3;
        group.start_node(away);
        group.wait_until_healthy();
        group.all_is_there(written);
    }
}

/// Sessions go on over all of that, and what was under way is told right.
#[test]
fn everything_is_killed_under_writes_and_any_one_node_stays_away() {
    let mut group = Group::start("group-kill", NODES);
    let load = Load::start(group.addresses());
    for away in 1..=NODES {
        load.goes_on(300);
        group.kill_all();
        others(away).for_each(|node| group.start_node(node));
        group.wait_until_well();
        load.goes_on(100);
        group.start_node(away);
        group.wait_until_healthy();
    }
    load.ends_exact();
}
