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

/// The nodes, in the order in which their files are damaged: the first one that has the role. The coordinator is on node 1. On a slow
/// machine nodes are lost for moments, shards move, and no single node has each role all the time.
const NODES: [u16; 3] = [3, 2, 1];

/// The lease is so long that a node which comes back at once is still a member.
const LEASE: &str = "3s";

/// Whether a node has a role in a shard of a status.
type Role = fn(&Json, u16) -> bool;

/// Damages files in the folder of a shard.
type Damage = fn(&Path);

fn is_backup(shard: &Json, node: u16) -> bool {
    shard["primary"] != node && list(&shard["members"]).iter().any(|member| member["node"] == node)
}

fn is_witness(shard: &Json, node: u16) -> bool {
    list(&shard["witnesses"]).iter().any(|witness| *witness == node)
}

/// A node that has the role in some shard, and that shard.
fn with_role(status: &Json, has: Role) -> (u16, u64) {
    let of = |node| Some((node, list(&status["shards"]).iter().find(|shard| has(shard, node))?["shard"].as_u64()?));
    NODES.into_iter().find_map(of).unwrap_or_else(|| panic!("nobody has the role: {status}"))
}

fn folder(cluster: &Cluster, node: u16, shard: u64) -> PathBuf {
    cluster.data(node).join(format!("core-00/shard-{shard:04}"))
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
    let damages: [(&str, Role, Damage); 8] = [
        ("a segment's bits are flipped", is_backup, |folder| flip(&newest(folder, ".log"), 5000, 1 << 20)),
        ("a segment's first bits are flipped", is_backup, |folder| flip(&newest(folder, ".log"), 3, 1 << 30)),
        ("a segment is cut", is_backup, |folder| cut(&newest(folder, ".log"), 3001)),
        ("a segment is gone", is_backup, |folder| fs::remove_file(newest(folder, ".log")).unwrap()),
        ("a replica's meta file is flipped", is_backup, |folder| flip(&folder.join("replica.meta"), 9, 1 << 20)),
        ("a replica's meta file is cut", is_backup, |folder| cut(&folder.join("replica.meta"), 11)),
        ("a witness's slots are flipped", is_witness, |folder| flip(&newest(folder, ".slots"), 100, 4096)),
        ("a witness's file is cut, its mode flipped", is_witness, |folder| {
            cut(&newest(folder, ".slots"), 5001);
            flip(&newest(folder, ".mode"), 2, 1 << 20);
        }),
    ];
    for (what, has, damage) in damages {
        let (node, shard) = with_role(&cluster.wait_until_healthy(), has);
        println!("{what}: node-{node}, shard-{shard}");
        cluster.kill(node);
        damage(&folder(&cluster, node, shard));
        cluster.start_node(node);
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
