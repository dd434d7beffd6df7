//! Servers that are started with wrong settings or folders: each says what is wrong and ends, and the cluster is not
//! harmed.
#![allow(missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kasha_process_tests::cluster::Cluster;
use kasha_process_tests::place::{Folder, SmallDisk};
use kasha_process_tests::process::{Process, cli_says, command};
use rustix::process::Signal;

/// The file that names the owner of a data folder.
const MARKER: &str = "kasha.toml";

fn fails(command: Command, words: &[&str]) {
    Process::spawn(command).fails_saying(words);
}

/// A copy of a node's folder, with one line of its marker changed.
fn like(cluster: &Cluster, node: u16, name: &str, line: &str, replacement: &str) -> PathBuf {
    let marker = fs::read_to_string(cluster.data(node).join(MARKER)).unwrap();
    let changed: Vec<_> =
        marker.lines().map(|found| if found.starts_with(line) { replacement } else { found }).collect();
    let folder = cluster.folder().join(name);
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join(MARKER), changed.join("\n") + "\n").unwrap();
    folder
}

#[test]
fn ports_and_folders_of_others_are_refused() {
    let mut cluster = Cluster::start("wrong", "1s", 3);
    let (folder, free) = (cluster.folder(), cluster.port_of(4));

    let taken = cluster.port_of(2);
    let start = cluster.by_flags(4, folder.join("port"), taken);
    fails(start, &["cannot listen on", &taken.to_string(), "another process listens there"]);

    // The folder is checked first: two processes must not share one even if the ports differ.
    let start = cluster.by_flags(3, cluster.data(3), free);
    fails(start, &["node-3", "is used by another process", "K0101"]);

    let others = like(&cluster, 2, "of-another-node", "#", "");
    fails(cluster.by_flags(4, others, free), &["of-another-node", "belongs to node-2", "started as node-4", "K0103"]);

    let others = like(&cluster, 3, "of-another-cluster", "cluster", "cluster = 77");
    fails(cluster.by_flags(3, others, free), &["of-another-cluster", "belongs to cluster-77", "K0105"]);

    let newer = like(&cluster, 3, "of-another-format", "format", "format = 9");
    fails(cluster.by_flags(3, newer, free), &["of-another-format", "has format 9", "K0104"]);

    let wider = like(&cluster, 3, "of-two-cores", "cores", "cores = 2");
    fails(cluster.by_flags(3, wider, free), &["of-two-cores", "made for 2 cores", "started with 1", "K0111"]);

    let broken = like(&cluster, 3, "of-no-format", "format", "colour = green");
    fails(cluster.by_flags(3, broken, free), &["of-no-format", "is not a data folder of Kasha's", "format"]);

    let foreign = folder.join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("thesis.txt"), "mine").unwrap();
    fails(cluster.by_flags(4, foreign.clone(), free), &["foreign", "is not a data folder of Kasha's", "K0102"]);
    assert_eq!(fs::read_to_string(foreign.join("thesis.txt")).unwrap(), "mine");
    assert_eq!(fs::read_dir(&foreign).unwrap().count(), 1, "nothing was put there");

    let file = folder.join("a-file");
    fs::write(&file, "mine").unwrap();
    fails(cluster.by_flags(4, file.clone(), free), &["a-file", "name another folder"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    cluster.is_unharmed();
}

#[test]
fn a_second_node_of_one_number_is_refused() {
    let mut cluster = Cluster::start("twins", "1s", 3);
    let start = cluster.by_flags(3, cluster.folder().join("second"), cluster.port_of(4));
    fails(start, &["refuses this process", "node id 3 is already used by another server", "K0502"]);
    cluster.is_unharmed();
    cluster.wait_until_healthy();
}

#[test]
fn a_read_only_folder_is_refused() {
    let cluster = Folder::new("read-only");
    let data = cluster.path().join("data");
    let arguments = |data: &Path| {
        let port = kasha_process_tests::place::free_ports(4).to_string();
        command(&["start", "--data", data.to_str().unwrap(), "--port", &port, "--memory-mib", "64"])
    };
    if rustix::process::geteuid().is_root() {
        // Root may write everywhere except on a read-only disk.
        let Some(disk) = SmallDisk::mount(data, 1) else { return };
        assert!(disk.make_read_only());
        fails(arguments(disk.path()), &["data", "Read-only file system", "writable", "K0107"]);
    } else {
        use std::os::unix::fs::PermissionsExt;
        fs::create_dir(&data).unwrap();
        fs::set_permissions(&data, fs::Permissions::from_mode(0o555)).unwrap();
        fails(arguments(&data), &["data", "Permission denied", "writable", "K0107"]);
        fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn a_cluster_is_what_it_was_made() {
    let (folder, port) = (Folder::new("made"), kasha_process_tests::place::free_ports(5).to_string());
    let start = |flags: &[&str]| {
        let data = folder.path().to_str().unwrap();
        command(&[&["start", "--data", data, "--port", &port, "--memory-mib", "64"], flags].concat())
    };
    // A start that fails leaves nothing that later starts would take for a cluster.
    fails(start(&["--faults", "3"]), &["3 faults", "K0404"]);
    let mut process = Process::spawn({
        // The coordinator's files are in one folder.
        let mut command = start(&["--durability", "fsync", "--group", "1"]);
        command.env("KASHA_SHARDS", "5");
        command
    });
    process.wait_until_it_says("ready");
    cli_says(port.parse().unwrap(), &["put", "kept", "v"]);
    process.stop(Signal::TERM);
    fails(start(&["--shards", "3"]), &["--shards 3", "shards = 5", "leave --shards away", "K0405"]);
    fails(start(&["--durability", "replicated"]), &["--durability replicated", "durability = fsync", "K0405"]);
    fails(start(&["--cores", "2"]), &["--cores 2", "1 cores each", "leave --cores away", "K0111"]);
    fails(start(&["--nodes", "2"]), &["--nodes 2", "has 3 nodes", "leave --nodes away", "K0405"]);
    // The folder of the last node is lost: the cluster still has the node.
    fs::remove_dir_all(folder.path().join("node-3")).unwrap();
    fails(start(&["--nodes", "2"]), &["--nodes 2", "has 3 nodes", "K0405"]);

    // The only copy of the coordinator's log is damaged. Nothing of it may be guessed.
    let mut files = fs::read_dir(folder.path().join("node-1/coordinator")).unwrap().map(|entry| entry.unwrap().path());
    // Of the two files of a journal, one is in use.
    let log = files.find(|path| fs::read(path).unwrap().starts_with(b"KASHAVSR")).expect("a journal");
    let mut bytes = fs::read(&log).unwrap();
    let whole = bytes.clone();
    bytes[40] ^= 1;
    fs::write(&log, bytes).unwrap();
    fails(start(&[]), &["coordinator", "K0109"]);
    fs::write(&log, whole).unwrap();
    let mut process = Process::spawn(start(&[]));
    process.wait_until_it_says("ready");
    assert_eq!(cli_says(port.parse().unwrap(), &["get", "kept"]).trim(), "v");
    process.stop(Signal::INT);
    let found = |node: &str| folder.path().join(node).is_dir();
    assert!(!found("node-3") && found("node-4") && !found("node-5"), "another node has taken its place");
    fs::remove_dir_all(folder.path().join("node-1")).unwrap();
    fails(start(&[]), &["belongs to", "the files of its coordinator are in none of", "K0105"]);
    assert!(!found("node-1"), "no other cluster is made");
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let folder = Folder::new("settings");
    let file = folder.path().join("node.toml");
    let path = file.to_str().unwrap();
    let data = folder.path().join("node");
    let good =
        format!("node = 1\ndata = \"{}\"\nlisten = [\"127.0.0.1:1\"]\ncoordinator = \"127.0.0.1:1\"\n", data.display());
    let with = |line: &str| {
        fs::write(&file, format!("{good}{line}\n")).unwrap();
        command(&["server", "--config", path])
    };
    fails(with("colour = \"green\""), &["node.toml", "unknown field", "colour"]);
    fails(with("lease = \"5\""), &["\"5\"", "unit", "5s"]);
    fails(with("lease = 2"), &["node.toml", "lease = 2", "\"2s\""]);
    fails(with("host_coordinator = true\ndurability = \"hope\""), &["hope", "replicated or fsync"]);
    fails(with("shards = \"many\""), &["node.toml", "shards"]);
    fails(with("nodes"), &["node.toml"]);
    fails(with("advertise = [\"127.0.0.1:1\", \"127.0.0.1:2\"]"), &["--advertise has 2 addresses"]);
    fs::write(&file, good.replace("127.0.0.1:1\"]", "0.0.0.0:1\"]")).unwrap();
    fails(command(&["server", "--config", path]), &["0.0.0.0:1", "--advertise"]);
    fs::write(&file, good.replace("node = 1", "node = 0")).unwrap();
    fails(command(&["server", "--config", path]), &["--node 0", "K0403"]);
    fs::write(&file, good.replace("data =", "# data =")).unwrap();
    fails(command(&["server", "--config", path]), &["--data is missing"]);
    fails(command(&["server", "--config", "/nowhere/node.toml"]), &["cannot read", "/nowhere/node.toml"]);
    fails(command(&["server"]), &["--node is missing"]);
    fails(with("memory_mib = 8"), &["8 MiB is no size", "K0403"]);
    fails(with("memory_mib = 18446744073709551615"), &["no size", "K0403"]);
    fs::write(&file, good.replace("127.0.0.1:1\"]", "nobody.invalid:1\"]")).unwrap();
    // It may have an address in a moment (`outsiders/names.rs`).
    let mut waits = Process::spawn(command(&["server", "--config", path]));
    waits.wait_until_it_says("waiting for nobody.invalid:1 to have an address of this machine");
    drop(waits);
    let data = folder.path().join("cluster");
    fails(command(&["start", "--data", data.to_str().unwrap(), "--port", "65534"]), &["65534", "K0403"]);
}

#[test]
fn a_setting_without_effect_is_refused() {
    let with = |name: &str, value: &str| {
        let mut command = command(&["explain", "K0101"]);
        command.env(name, value);
        command
    };
    fails(with("KASHA_SHARD", "3"), &["KASHA_SHARD,", "did you mean KASHA_SHARDS", "K0410"]);
    fails(with("KASHA_TABLE", "t"), &["unset KASHA_TABLE", "K0410"]);
    fails(with("KASHA_LOG", "verbose"), &["KASHA_LOG=verbose", "debug", "K0410"]);
    fails(with("KASHA_LOG", "kasha_node=verbose"), &["KASHA_LOG", "K0410"]);
    for (name, value) in
        [("KASHA_LOG", "info,kasha_node=debug"), ("KASHA_SERVICE_HOST", "10.0.0.1"), ("KASHA_SHARDS", "3")]
    {
        let output = with(name, value).output().unwrap();
        assert!(output.status.success(), "{name}={value}: {output:?}");
    }
}
