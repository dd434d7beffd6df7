//! Folders in the wrong place, put there while every process is down: an older copy, a witness of another cluster.
#![allow(missing_docs)]

use std::fs;

use kasha_process_tests::apart::{Apart, Size};
use kasha_process_tests::place::copy_folder;

const SIZE: Size = Size { nodes: 3, faults: 1, shards: 3, lease: "1s" };

/// A copy of a folder is not the folder: it lacks everything that was promised after it was made. The cluster must lose
/// nothing because of it, whatever happens to that node.
#[test]
fn a_folder_of_an_older_copy_is_put_back() {
    let mut cluster = Apart::start("older", SIZE);
    let mut told = cluster.fill("first", 20);
    let (data, older) = (cluster.data(3), cluster.data(3).with_extension("older"));
    copy_folder(&data, &older);
    told.extend(cluster.fill("second", 20));
    cluster.kill(3);
    fs::remove_dir_all(&data).unwrap();
    fs::rename(&older, &data).unwrap();
    cluster.start_node(3);
    cluster.serves_all(&told);
}

/// A supervisor restarts a process that ends by itself. The copy must not count as new because it was started often.
#[test]
fn a_folder_of_a_much_older_copy_is_refused_however_often_it_is_started() {
    let mut cluster = Apart::start("much-older", SIZE);
    let (data, older) = (cluster.data(3), cluster.data(3).with_extension("older"));
    cluster.kill(3);
    copy_folder(&data, &older);
    let mut told = cluster.fill("before", 20);
    for round in ["first", "second"] {
        cluster.start_node(3);
        told.extend(cluster.fill(round, 20));
        cluster.serves_all(&told);
        cluster.kill(3);
    }
    fs::remove_dir_all(&data).unwrap();
    fs::rename(&older, &data).unwrap();
    for _ in 0..4 {
        cluster.refuses_node(3, &["K0503"]);
    }
    cluster.serves_all(&told);
}

/// The copy counts as many starts as the process that was killed. The coordinator distinguishes the two: a process
/// never forgets the configuration that it obeyed.
#[test]
fn a_folder_of_an_older_copy_that_counts_the_same_start_is_put_back() {
    let mut cluster = Apart::start("older-start", SIZE);
    let mut told = cluster.fill("first", 20);
    cluster.stop_all();
    let (data, older) = (cluster.data(3), cluster.data(3).with_extension("older"));
    copy_folder(&data, &older);
    cluster.start_all();
    cluster.serves_all(&told);
    told.extend(cluster.fill("second", 20));
    cluster.kill(3);
    fs::remove_dir_all(&data).unwrap();
    fs::rename(&older, &data).unwrap();
    cluster.start_node(3);
    cluster.serves_all(&told);
}

/// Each file names its owner: the node does not start, and the cluster is as before when its own files are back.
#[test]
fn a_witness_of_another_cluster_is_refused() {
    let (mut cluster, other) = (Apart::start("ours", SIZE), Apart::start("theirs", SIZE));
    let told = cluster.fill("ours", 20);
    let _ = other.fill("theirs", 20);
    cluster.kill_all();
    let (data, kept) = (cluster.data(2), cluster.data(2).with_extension("kept"));
    copy_folder(&data, &kept);
    take_witnesses(&cluster, &other, 2);
    cluster.start_coordinator();
    cluster.refuses_node(2, &["the witness file belongs to cluster-", "K0105"]);
    fs::remove_dir_all(&data).unwrap();
    fs::rename(&kept, &data).unwrap();
    cluster.start_all();
    cluster.serves_all(&told);
}

/// Puts another cluster's witness files in the place of ours, under the names that ours had.
fn take_witnesses(cluster: &Apart, other: &Apart, node: u16) {
    for file in cluster.files(node, None, &[".slots", ".mode"]) {
        let same = other.data(node).join(file.strip_prefix(cluster.data(node)).unwrap());
        assert!(same.exists(), "the clusters are alike: {}", same.display());
        fs::copy(same, file).unwrap();
    }
}
