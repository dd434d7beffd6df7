//! Every process is stopped, f machines lose something, and the rest is started: every shard serves, and all values are
//! there.
#![allow(missing_docs)]

use kasha_process_tests::apart::{Apart, Size, Told, damage_eight_bytes, seconds};
use kasha_process_tests::process::list;

/// f = 1 on three nodes: each shard has two members, and its only witness is on the third node.
const SMALL: Size = Size { nodes: 3, faults: 1, shards: 3, lease: "1s" };
/// f = 2 on five nodes: each shard has three members, and its witnesses are on the other two nodes.
const WIDE: Size = Size { nodes: 5, faults: 2, shards: 5, lease: "1s" };

/// Fills a cluster, does `harm` to it, and checks that all values are there.
fn all_is_there_after(name: &str, size: Size, harm: impl FnOnce(&mut Apart)) {
    let mut cluster = Apart::start(name, size);
    let told: Told = cluster.fill(name, 20);
    harm(&mut cluster);
    cluster.serves_all(&told);
}

/// The number of a node that is a witness of this shard, and the number of its primary.
fn witness_and_primary(cluster: &Apart, shard: usize) -> (u16, u16) {
    let status = cluster.status().unwrap();
    let shard = &list(&status["shards"])[shard];
    let number = |json: &serde_json::Value| u16::try_from(json.as_u64().unwrap()).unwrap();
    (number(&list(&shard["witnesses"])[0]), number(&shard["primary"]))
}

#[test]
fn everything_is_stopped_and_comes_back() {
    all_is_there_after("stop", SMALL, |cluster| {
        cluster.stop_all();
        cluster.start_all();
    });
}

#[test]
fn r7_7_everything_is_stopped_and_a_folder_is_lost() {
    all_is_there_after("stop-folder", SMALL, |cluster| {
        cluster.stop_all();
        cluster.lose_folder(1);
        cluster.start_coordinator();
        (2..=3).for_each(|node| cluster.start_node(node));
    });
}

/// A planned stop of all machines, one of which does not come back: no shard waits for it.
#[test]
fn r5_3_everything_is_stopped_and_switched_off_and_a_folder_is_lost() {
    all_is_there_after("off-folder", SMALL, |cluster| {
        cluster.stop_all();
        (1..=3).for_each(|node| cluster.lose_power(node));
        cluster.lose_folder(1);
        cluster.start_coordinator();
        (2..=3).for_each(|node| cluster.start_node(node));
    });
}

#[test]
fn r7_7_everything_is_killed_and_a_folder_is_lost() {
    all_is_there_after("kill-folder", SMALL, |cluster| {
        cluster.kill_all();
        cluster.lose_folder(1);
        cluster.start_coordinator();
        (2..=3).for_each(|node| cluster.start_node(node));
    });
}

#[test]
fn r7_7_everything_is_stopped_and_a_lost_node_is_replaced() {
    all_is_there_after("replaced", SMALL, |cluster| {
        cluster.stop_all();
        cluster.lose_folder(1);
        cluster.start_coordinator();
        (2..=4).for_each(|node| cluster.start_node(node));
    });
}

#[test]
fn r7_7_everything_is_killed_and_a_nodes_witness_files_are_lost() {
    all_is_there_after("kill-witness", SMALL, |cluster| {
        cluster.kill_all();
        cluster.lose_witnesses(1, None);
        cluster.start_all();
    });
}

#[test]
fn r7_7_everything_is_killed_and_eight_bytes_of_a_witness_mode_are_damaged() {
    all_is_there_after("mode", SMALL, |cluster| {
        cluster.kill_all();
        let modes = cluster.files(1, None, &[".mode"]);
        assert!(!modes.is_empty());
        modes.iter().for_each(|path| damage_eight_bytes(path));
        cluster.start_all();
    });
}

/// The primary is away for so long that another node has tried to take over, and waits for the witness.
#[test]
fn r7_7_a_primary_is_away_for_long_while_its_witness_files_are_lost() {
    all_is_there_after("away", SMALL, |cluster| {
        let (witness, primary) = witness_and_primary(cluster, 0);
        cluster.kill(witness);
        cluster.kill(primary);
        cluster.lose_witnesses(witness, Some(0));
        cluster.start_node(witness);
        seconds(6);
        cluster.start_node(primary);
    });
}

#[test]
fn r7_7_two_witness_machines_are_lost_where_f_is_two() {
    all_is_there_after("two", WIDE, |cluster| {
        let status = cluster.status().unwrap();
        let witnesses: Vec<u16> = list(&list(&status["shards"])[0]["witnesses"])
            .iter()
            .map(|node| u16::try_from(node.as_u64().unwrap()).unwrap())
            .collect();
        assert_eq!(witnesses.len(), 2);
        cluster.kill_all();
        witnesses.iter().for_each(|node| cluster.lose_folder(*node));
        cluster.start_coordinator();
        (1..=WIDE.nodes).filter(|node| !witnesses.contains(node)).for_each(|node| cluster.start_node(node));
    });
}
