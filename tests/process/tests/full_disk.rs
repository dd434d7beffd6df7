//! A disk runs full under load, or has no room for the file of a witness: the node stops with K0106, and comes back when
//! there is room.
#![allow(missing_docs)]

use std::fs;

use kasha_process_tests::cluster::Cluster;
use kasha_process_tests::load::Load;
use kasha_process_tests::place::{SmallDisk, fill};
use kasha_process_tests::process::Process;

#[test]
fn the_node_stops_and_says_so_and_nothing_is_lost() {
    const MIB: u32 = 96;
    let mut cluster = Cluster::new("full", "1s", 6);
    let Some(disk) = SmallDisk::mount(cluster.data(2), MIB) else { return };
    cluster.start_all();
    cluster.wait_until_healthy();
    let load = Load::start(cluster.addresses());
    load.goes_on(300);

    let filler = disk.path().join("filler");
    fill(&filler);
    let (name, full) = ("node-2/core-00/", "No space left on device");
    cluster.take(2).fails_saying(&["cannot", name, full, "free space", "K0106"]);
    load.goes_on(1000);
    // Also the room that the node has freed at its end.
    fill(&filler);
    let start = cluster.by_flags(2, cluster.data(2), cluster.port_of(2));
    Process::spawn(start).fails_saying(&["cannot", "node-2/kasha.toml", full, "K0106"]);
    load.goes_on(300);

    // Makes room again.
    fs::remove_file(&filler).unwrap();
    cluster.start_node(2);
    cluster.wait_until_healthy();
    load.goes_on(300);
    load.ends_exact();
}

/// A witness takes the room of its whole file before it accepts anything, since a store to a mapped page cannot fail.
#[test]
fn a_node_without_room_for_a_witness_stops_and_says_so() {
    const WITNESS_MIB: u32 = 16;
    let mut cluster = Cluster::new("no-room", "1s", 6);
    // Two of six shards have their witness there.
    let Some(disk) = SmallDisk::mount(cluster.data(2), WITNESS_MIB + 4) else { return };
    cluster.start_all();
    let words = ["cannot take room for", "node-2/core-00/", ".slots", "No space left on device", "free space", "K0106"];
    cluster.take(2).fails_saying(&words);
    disk.grow(96);
    cluster.start_node(2);
    cluster.wait_until_healthy();
    let load = Load::start(cluster.addresses());
    load.goes_on(300);
    load.ends_exact();
}
