//! The folder of the coordinator is its memory (R9.13). Tried from outside: three servers, twelve keys, all stopped, the folder
//! `coordinator/` removed. The start after the next one served an empty cluster, and the intact copies were thrown away.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use kasha_process_tests::cluster::{Cluster, NODES};
use kasha_process_tests::place::{Folder, copy_folder, free_ports};
use kasha_process_tests::process::{Process, cli, cli_says, command};
use kasha_process_tests::{apart, wait_for};
use rustix::process::Signal;

const LEASE: &str = "500ms";

/// What an outsider removes, or puts back.
fn coordinator_of(cluster: &Cluster) -> PathBuf {
    cluster.data(1).join("coordinator")
}

fn put_twelve(cluster: &Cluster, name: &str) -> BTreeMap<String, String> {
    let keys = (0..12).map(|number| format!("{name}-{number}"));
    keys.map(|key| {
        cluster.cli(&["put", &key, &format!("value of {key}")]);
        (key.clone(), format!("value of {key}"))
    })
    .collect()
}

fn stop_all(cluster: &mut Cluster) {
    (1..=NODES).for_each(|node| cluster.stop(node));
}

/// A read may fail as long as the coordinator has no memory. It must never say that there is no value.
fn nobody_says_no_value(port: u16, told: &BTreeMap<String, String>) {
    const NO_VALUE: i32 = 3;
    for key in told.keys().take(3) {
        let output = cli(port, &["--deadline", "1s", "get", key]);
        assert_ne!(output.status.code(), Some(NO_VALUE), "{key}: {output:?}");
    }
}

fn serves(cluster: &Cluster, told: &BTreeMap<String, String>) {
    for (key, value) in told {
        assert_eq!(&cluster.cli(&["get", key]), value, "{key}");
    }
}

#[test]
fn a_start_without_the_coordinators_files_is_refused_and_says_what_to_restore() {
    let mut cluster = Cluster::start_alone("memory-gone", LEASE, 3);
    let told = put_twelve(&cluster, "before");
    stop_all(&mut cluster);
    let (own, aside) = (coordinator_of(&cluster), cluster.folder().join("aside"));
    fs::rename(&own, &aside).unwrap();
    for _ in 0..3 {
        let text = format!("{}", own.display());
        cluster.spawn_node(1).fails_saying(&["K0117", &text]);
    }
    // With an empty folder in its place, too.
    fs::create_dir_all(&own).unwrap();
    cluster.spawn_node(1).fails_saying(&["K0117"]);
    let _ = fs::remove_dir_all(&own);
    fs::rename(&aside, &own).unwrap();
    cluster.start_all();
    cluster.wait_until_healthy();
    serves(&cluster, &told);
}

/// Whoever removes the line from `kasha.toml`, too, or brings the line of an older version, gets a new coordinator. The nodes
/// know more than it does.
#[test]
fn a_coordinator_that_begins_anew_places_nothing_at_any_start() {
    let mut cluster = Cluster::start_alone("memory-anew", LEASE, 3);
    let told = put_twelve(&cluster, "before");
    stop_all(&mut cluster);
    let (own, aside) = (coordinator_of(&cluster), cluster.folder().join("aside"));
    fs::rename(&own, &aside).unwrap();
    let marker = cluster.data(1).join("kasha.toml");
    for _ in 0..3 {
        let text = fs::read_to_string(&marker).unwrap();
        fs::write(&marker, text.replace("coordinator = true\n", "")).unwrap();
        let _ = fs::remove_dir_all(&own);
        cluster.start_all();
        cluster.node(1).wait_until_it_says("K0508");
        nobody_says_no_value(cluster.port(), &told);
        (1..=NODES).for_each(|node| cluster.kill(node));
    }
    let _ = fs::remove_dir_all(&own);
    fs::rename(&aside, &own).unwrap();
    cluster.start_all();
    cluster.wait_until_healthy();
    serves(&cluster, &told);
}

/// Folders that are no memory of this cluster at all: another cluster's, and a damaged one. Nothing is changed, so that whoever puts the
/// right one back finds everything.
#[test]
fn the_coordinators_folder_of_another_cluster_and_a_damaged_one_are_refused() {
    let (mut cluster, mut other) =
        (Cluster::start_alone("memory-own", LEASE, 3), Cluster::start_alone("memory-foreign", LEASE, 3));
    let told = put_twelve(&cluster, "before");
    stop_all(&mut cluster);
    stop_all(&mut other);
    let (own, aside) = (coordinator_of(&cluster), cluster.folder().join("aside"));
    fs::rename(&own, &aside).unwrap();
    copy_folder(&coordinator_of(&other), &own);
    cluster.spawn_node(1).fails_saying(&["K0105"]);
    fs::remove_dir_all(&own).unwrap();
    copy_folder(&aside, &own);
    let mut files = fs::read_dir(&own).unwrap().map(|entry| entry.unwrap().path());
    // Of the two files of a journal, one is in use.
    let used = files.find(|path| fs::read(path).unwrap().starts_with(b"KASHAVSR")).expect("a journal");
    let mut bytes = fs::read(&used).unwrap();
    bytes[64..96].iter_mut().for_each(|byte| *byte ^= 0x55);
    fs::write(&used, bytes).unwrap();
    cluster.spawn_node(1).fails_saying(&["K0109"]);
    fs::remove_dir_all(&own).unwrap();
    fs::rename(&aside, &own).unwrap();
    cluster.start_all();
    cluster.wait_until_healthy();
    serves(&cluster, &told);
}

/// The copy is from before a fail-over, and from before more keys: it would elect by what was true then.
#[test]
fn an_older_copy_of_the_coordinators_folder_decides_nothing() {
    let mut cluster = Cluster::start_alone("memory-older", LEASE, 3);
    let mut told = put_twelve(&cluster, "before");
    let (own, older) = (coordinator_of(&cluster), cluster.folder().join("older"));
    copy_folder(&own, &older);
    cluster.kill(3);
    wait_for("fail-over", || match cli(cluster.port(), &["put", "after", "it"]).status.code() {
        Some(0) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    told.extend(put_twelve(&cluster, "later"));
    cluster.start_node(3);
    cluster.wait_until_healthy();
    stop_all(&mut cluster);
    let newest = cluster.folder().join("newest");
    fs::rename(&own, &newest).unwrap();
    copy_folder(&older, &own);
    for _ in 0..2 {
        cluster.start_all();
        cluster.node(1).wait_until_it_says("K0508");
        nobody_says_no_value(cluster.port(), &told);
        (1..=NODES).for_each(|node| cluster.kill(node));
    }
    fs::remove_dir_all(&own).unwrap();
    fs::rename(&newest, &own).unwrap();
    cluster.start_all();
    cluster.wait_until_healthy();
    serves(&cluster, &told);
}

/// `kasha start` runs the coordinator and all nodes: there it ends with the reason.
#[test]
fn kasha_start_does_not_begin_anew_either() {
    let (folder, port) = (Folder::new("memory-start"), free_ports(4));
    let data = folder.path().join("d");
    let words =
        ["start", "--data", data.to_str().unwrap(), "--port", &port.to_string(), "--memory-mib", "64", "--group", "1"];
    let start = || Process::spawn(command(&words));
    let mut first = start();
    first.wait_until_it_says("ready");
    let own = data.join("node-1/coordinator");
    let older = folder.path().join("older");
    copy_folder(&own, &older);
    for key in ["a", "b", "c"] {
        cli_says(port, &["put", key, key]);
    }
    // Other starts of the nodes are other configurations.
    first.stop(Signal::TERM);
    let mut second = start();
    second.wait_until_it_says("ready");
    second.stop(Signal::TERM);
    let newest = folder.path().join("newest");
    fs::rename(&own, &newest).unwrap();
    start().fails_saying(&["K0117", "node-1/coordinator"]);
    let _ = fs::remove_dir_all(&own);
    copy_folder(&older, &own);
    for _ in 0..2 {
        start().fails_saying(&["K0508", "node-1/coordinator"]);
    }
    fs::remove_dir_all(&own).unwrap();
    fs::rename(&newest, &own).unwrap();
    let mut again = start();
    again.wait_until_it_says("ready");
    for key in ["a", "b", "c"] {
        assert_eq!(cli_says(port, &["get", key]), key);
    }
    again.stop(Signal::TERM);
}

/// Two coordinators of one cluster: the second one has an empty folder, and its own node knows more.
#[test]
fn a_second_coordinator_of_a_cluster_decides_nothing() {
    let size = apart::Size { nodes: 3, faults: 1, shards: 3, lease: LEASE };
    let mut cluster = apart::Apart::start("memory-second", size);
    let told = cluster.fill("before", 10);
    let own = cluster.take(3);
    own.kill();
    let second = free_ports(2);
    let data = cluster.data(3).into_os_string().into_string().unwrap();
    let (listen, coordinator) = (format!("127.0.0.1:{}", second + 1), format!("127.0.0.1:{second}"));
    let mut process = Process::spawn(command(&[
        "server",
        "--node",
        "3",
        "--data",
        &data,
        "--listen",
        &listen,
        "--coordinator",
        &coordinator,
        "--host-coordinator",
        "--memory-mib",
        "64",
        "--lease",
        LEASE,
    ]));
    process.wait_until_it_says("K0508");
    process.kill();
    cluster.start_node(3);
    cluster.wait_until_healthy();
    cluster.serves_all(&told);
}
