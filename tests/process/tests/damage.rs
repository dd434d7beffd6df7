//! Files of a node are damaged while it is down. It comes back, and no update is lost.
#![allow(missing_docs)]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use kasha_process_tests::cluster::Cluster;
use kasha_process_tests::load::Load;
use kasha_process_tests::process::list;
use kasha_process_tests::wait_for;
use serde_json::Value as Json;

/// The node whose files are damaged.
const NODE: u16 = 3;

/// The lease is so long that a node which comes back at once is still a member.
const LEASE: &str = "3s";

/// Damages files of the node, given the status from before it went down.
type Damage = fn(&Cluster, &Json);

/// A shard of which the node is a backup.
fn backed_up(status: &Json) -> u64 {
    let has = |shard: &&Json| list(&shard["members"]).iter().any(|member| member["node"] == NODE);
    let shard = list(&status["shards"]).iter().filter(has).find(|shard| shard["primary"] != NODE);
    shard.expect("the node is a backup of some shard")["shard"].as_u64().unwrap()
}

/// A shard of which the node is a witness.
fn witnessed(status: &Json) -> u64 {
    let has = |shard: &&Json| list(&shard["witnesses"]).iter().any(|node| *node == NODE);
    list(&status["shards"]).iter().find(has).expect("the node is a witness of some shard")["shard"].as_u64().unwrap()
}

fn folder(cluster: &Cluster, shard: u64) -> PathBuf {
    cluster.data(NODE).join(format!("core-00/shard-{shard:04}"))
}

/// The newest file of this ending in a folder.
fn newest(folder: &Path, ending: &str) -> PathBuf {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = files.filter(|path| path.to_str().unwrap().ends_with(ending)).collect();
    found.sort();
    found.pop().unwrap_or_else(|| panic!("no *{ending} in {}", folder.display()))
}

/// Flips one bit in every `every` bytes of the written part.
fn flip(path: &Path, first: u64, every: u64) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut at = first;
    while at < file.metadata().unwrap().len() {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
        at += every;
    }
}

fn cut(path: &Path, len: u64) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(len.min(file.metadata().unwrap().len())).unwrap();
}

#[test]
fn a_nodes_files_are_damaged_and_it_is_made_whole() {
    let mut cluster = Cluster::start("damage", LEASE, 6);
    let load = Load::start(cluster.addresses());
    load.goes_on(1000);
    let damages: [(&str, Damage); 8] = [
        ("a segment's bits are flipped", |cluster, status| {
            flip(&newest(&folder(cluster, backed_up(status)), ".log"), 5000, 1 << 20);
        }),
        ("a segment's first bits are flipped", |cluster, status| {
            flip(&newest(&folder(cluster, backed_up(status)), ".log"), 3, 1 << 30);
        }),
        ("a segment is cut", |cluster, status| cut(&newest(&folder(cluster, backed_up(status)), ".log"), 3001)),
        ("a segment is gone", |cluster, status| {
            fs::remove_file(newest(&folder(cluster, backed_up(status)), ".log")).unwrap();
        }),
        ("a replica's meta file is flipped", |cluster, status| {
            flip(&folder(cluster, backed_up(status)).join("replica.meta"), 9, 1 << 20);
        }),
        ("a replica's meta file is cut", |cluster, status| {
            cut(&folder(cluster, backed_up(status)).join("replica.meta"), 11);
        }),
        ("a witness's slots are flipped", |cluster, status| {
            flip(&newest(&folder(cluster, witnessed(status)), ".slots"), 100, 4096);
        }),
        ("a witness's file is cut, its mode flipped", |cluster, status| {
            let folder = folder(cluster, witnessed(status));
            cut(&newest(&folder, ".slots"), 5001);
            flip(&newest(&folder, ".mode"), 2, 1 << 20);
        }),
    ];
    for (what, damage) in damages {
        println!("{what}");
        let status = cluster.wait_until_healthy();
        cluster.kill(NODE);
        damage(&cluster, &status);
        cluster.start_node(NODE);
        load.goes_on(100);
        cluster.wait_until_healthy();
    }

    // The node's data is used: another node dies, and shards move to this one.
    cluster.kill(2);
    wait_for("fail-over", || {
        let status = cluster.status()?;
        let moved = list(&status["shards"]).iter().all(|shard| shard["primary"] != 2 && shard["serving"] == true);
        if moved { Ok(()) } else { Err(status.to_string()) }
    });
    load.goes_on(300);
    cluster.start_node(2);
    cluster.wait_until_healthy();
    load.ends_exact();
}
