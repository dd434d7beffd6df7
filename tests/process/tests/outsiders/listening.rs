//! What a server listens at, and what it makes on the disk.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use kasha_process_tests::cluster::Cluster;
use kasha_process_tests::place::{Folder, free_ports};
use kasha_process_tests::process::{Process, cli_says, command, list, wait_until_healthy};
use kasha_process_tests::wait_for;

/// The address that stands in a line behind these words.
fn address_behind(said: &str, words: &str) -> Option<String> {
    let (_, rest) = said.split_once(words)?;
    rest.split_whitespace().next().map(str::to_owned)
}

/// As it was tried: port 0 was registered as port 0, and never served. K0201 recommends it.
#[test]
fn port_0_is_the_port_that_was_taken() {
    let folder = Folder::new("port-0");
    let server = |node: u16, coordinator: &str, more: &[&str]| {
        let data = folder.path().join(format!("node-{node}"));
        let (node, data) = (node.to_string(), data.to_str().expect("text"));
        let common =
            ["server", "--node", &node, "--data", data, "--listen", "127.0.0.1:0", "--coordinator", coordinator];
        Process::spawn(command(&[&common[..], &["--memory-mib", "64"], more].concat()))
    };
    let mut one = server(1, "127.0.0.1:0", &["--host-coordinator", "--nodes", "2", "--shards", "2", "--faults", "1"]);
    one.wait_until_it_says("node-1 listens at ");
    let coordinator = address_behind(&one.said(), "the coordinator listens at ").expect("it is told");
    let port: u16 = coordinator.rsplit_once(':').expect("a port").1.parse().expect("a number");
    assert_ne!(port, 0);
    let mut two = server(2, &coordinator, &[]);
    two.wait_until_it_says("node-2 listens at ");
    let status = wait_until_healthy(port, 2);
    for node in list(&status["nodes"]) {
        let said = node.to_string();
        assert!(!said.contains(":0\""), "{said}");
    }
    cli_says(port, &["put", "key", "value"]);
    assert_eq!(cli_says(port, &["get", "key"]), "value");
}

#[test]
fn a_cluster_in_one_process_takes_free_ports_too() {
    let folder = Folder::new("start-port-0");
    let mut process = Process::spawn(command(&[
        "start",
        "--data",
        folder.path().to_str().expect("text"),
        "--port",
        "0",
        "--memory-mib",
        "64",
    ]));
    process.wait_until_it_says("Ctrl-C stops");
    let coordinator = address_behind(&process.said(), "coordinator ").expect("it is told");
    let port: u16 = coordinator.rsplit_once(':').expect("a port").1.parse().expect("a number");
    wait_until_healthy(port, 3);
    cli_says(port, &["put", "key", "value"]);
}

#[test]
fn a_coordinator_that_nobody_can_reach_is_refused() {
    let folder = Folder::new("unspecified");
    let data = folder.path().join("node-1");
    for (listen, coordinator) in
        [("127.0.0.1:0", "0.0.0.0:7400"), ("127.0.0.1:0", "[::]:7400"), ("0.0.0.0:0", "127.0.0.1:0")]
    {
        let mut arguments = vec!["server", "--node", "1", "--data", data.to_str().expect("text"), "--listen", listen];
        arguments.extend(["--coordinator", coordinator, "--host-coordinator"]);
        Process::spawn(command(&arguments)).fails_saying(&["others cannot reach", "K0403"]);
        assert!(!data.exists(), "nothing is made");
    }
}

/// Every file and folder below one, with what anybody may do with it.
fn modes(folder: &Path) -> Vec<(String, bool, u32)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
        let metadata = entry.metadata().expect("it is there");
        let path = entry.path();
        found.push((path.display().to_string(), metadata.is_dir(), metadata.permissions().mode() & 0o777));
        if metadata.is_dir() {
            found.extend(modes(&path));
        }
    }
    found
}

#[test]
fn only_the_owner_may_read_what_is_stored() {
    let (folder, port) = (Folder::new("modes"), free_ports(5));
    let data = folder.path().join("made/data");
    let first = port.to_string();
    let arguments = ["start", "--data", data.to_str().expect("text"), "--port", &first, "--memory-mib", "64"];
    let mut process = Process::spawn(command(&arguments));
    process.wait_until_it_says("ready");
    for nth in 0..50 {
        cli_says(port, &["put", &format!("key-{nth}"), "value"]);
    }
    let found = modes(folder.path());
    let has = |part: &str| found.iter().any(|(path, ..)| path.contains(part));
    for part in ["kasha.toml", "kasha.lock", "core-00", "coordinator/", "replica.meta", "witness", "node-3"] {
        assert!(has(part), "no {part} among {found:#?}");
    }
    for (path, is_folder, mode) in found {
        assert_eq!(mode, if is_folder { 0o700 } else { 0o600 }, "{path}: {mode:o}");
    }
}

/// `kasha server` refused such a folder, and `kasha start` did not.
#[test]
fn a_folder_with_something_else_in_it_is_not_used_unless_it_is_forced() {
    let (folder, port) = (Folder::new("foreign"), free_ports(5));
    let (data, first) = (folder.path().to_str().expect("text").to_owned(), port.to_string());
    fs::write(folder.path().join("thesis.txt"), "mine").expect("a file");
    let arguments = ["start", "--data", &data, "--port", &first, "--memory-mib", "64"];
    Process::spawn(command(&arguments)).fails_saying(&["thesis.txt", "--force", "K0102"]);
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing is made");
    let mut process = Process::spawn(command(&[&arguments[..], &["--force"]].concat()));
    process.wait_until_it_says("ready");
    cli_says(port, &["put", "key", "value"]);
    process.stop(rustix::process::Signal::TERM);
    assert_eq!(fs::read_to_string(folder.path().join("thesis.txt")).expect("it is there"), "mine");
    // A folder of nodes is Kasha's.
    fs::remove_file(folder.path().join("thesis.txt")).expect("a file");
    let mut process = Process::spawn(command(&arguments));
    process.wait_until_it_says("ready");
    let kept = wait_for("value", || Ok::<_, String>(cli_says(port, &["get", "key"])));
    assert_eq!(kept, "value");
}

/// Three servers: what each made.
#[test]
fn servers_make_private_files_too() {
    let mut cluster = Cluster::start("modes-of-servers", "1s", 3);
    cluster.cli(&["put", "key", "value"]);
    for node in 1..=3 {
        for (path, is_folder, mode) in modes(&cluster.data(node)) {
            assert_eq!(mode, if is_folder { 0o700 } else { 0o600 }, "{path}: {mode:o}");
        }
    }
    cluster.is_unharmed();
}
