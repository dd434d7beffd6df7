//! A coordinator of three members: any one node may be lost, the leader's too, and nobody has to help.
#![allow(missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use kasha_client::{Client, Table};
use kasha_process_tests::apart::block_on;
use kasha_process_tests::cluster::Cluster;
use kasha_process_tests::place::{Folder, free_ports, local};
use kasha_process_tests::process::{Process, cli, command, health, list, run};
use kasha_process_tests::{PATIENCE, patient, wait_for};
use rustix::process::Signal;
use serde_json::Value as Json;

const NODES: u16 = 3;

/// Servers, each with a node and a member of the group, or one that may become a member.
struct Group {
    // Dropped before the folder: the children end before it is removed.
    nodes: BTreeMap<u16, Process>,
    folder: Folder,
    /// Members listen behind this port, nodes behind the members.
    port: u16,
    /// The nodes that there are in all.
    numbers: u16,
}

impl Group {
    fn start(name: &str, numbers: u16) -> Self {
        let (folder, port) = (Folder::new(name), free_ports(2 * numbers + 1));
        let mut group = Self { nodes: BTreeMap::new(), folder, port, numbers };
        (1..=NODES).for_each(|node| group.start_node(node));
        group.wait_until_healthy();
        group
    }

    fn members(&self) -> String {
        let addresses = (1..=self.numbers).map(|node| local(self.port + node).to_string());
        addresses.collect::<Vec<_>>().join(",")
    }

    fn addresses(&self) -> Vec<String> {
        (1..=self.numbers).map(|node| local(self.port + self.numbers + node).to_string()).collect()
    }

    fn data(&self, node: u16) -> String {
        self.folder.path().join(format!("node-{node}")).into_os_string().into_string().unwrap()
    }

    /// Starts a node. The first one is told on each start that it is to begin a cluster.
    fn start_node(&mut self, node: u16) {
        let (number, data, members) = (node.to_string(), self.data(node), self.members());
        let control = local(self.port + node).to_string();
        let listen = local(self.port + self.numbers + node).to_string();
        let begins: &[&str] = if node == 1 { &["--host-coordinator", "--nodes", "3", "--group", "3"] } else { &[] };
        let words = ["server", "--node", &number, "--data", &data, "--listen", &listen, "--control", &control];
        let rest = ["--coordinator", &members, "--memory-mib", "64", "--lease", "1s"];
        self.nodes.insert(node, Process::spawn(command(&[&words[..], &rest, begins].concat())));
    }

    fn kill(&mut self, node: u16) {
        self.nodes.remove(&node).expect("it runs").kill();
    }

    fn status(&self) -> Result<Json, String> {
        let output = run(&["status", "--json", "--address", &self.addresses().join(",")]);
        serde_json::from_slice(&output.stdout).map_err(|_| String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Waits until so many nodes are alive, and every shard is healthy.
    fn wait_until_healthy(&self) {
        let alive = self.nodes.len();
        wait_for("a healthy cluster", || health(&self.status()?, alive));
    }

    /// Waits until every shard is served and the coordinator answers, although nodes are lost.
    fn wait_until_well(&self) {
        wait_for("a cluster that is well", || {
            let status = self.status()?;
            if status["well"] == true { Ok(()) } else { Err(status["summary"].to_string()) }
        });
    }

    /// The node whose process leads.
    fn leader(&self) -> u16 {
        wait_for("a leader", || {
            let status = self.status()?;
            let leader = list(&status["group"]).iter().find(|member| member["leads"] == true);
            let node = leader.and_then(|member| member["node"].as_u64()).ok_or_else(|| status.to_string())?;
            let node = u16::try_from(node).unwrap();
            if self.nodes.contains_key(&node) { Ok(node) } else { Err(format!("node-{node} does not run")) }
        })
    }

    fn members_in_status(&self) -> usize {
        self.status().map_or(0, |status| list(&status["group"]).len())
    }
}

async fn table(group: &Group) -> (Client, Table) {
    let client = Client::connect_with(group.addresses(), patient()).await.unwrap();
    let table = client.table("default").await.unwrap();
    (client, table)
}

/// Each value was written once, and is there.
async fn all_is_there(group: &Group, values: i64) {
    let (_client, table) = table(group).await;
    for number in 0..values {
        let value = table.get(format!("key-{number}")).await.unwrap().expect("it was answered");
        assert_eq!(value.bytes, format!("value-{number}").as_bytes());
    }
    assert_eq!(table.get("count").await.unwrap().expect("counted").bytes, values.to_string().as_bytes());
}

/// Writes a few values, with a session that begins now.
async fn write(group: &Group, from: i64, to: i64) {
    let (_client, table) = table(group).await;
    for number in from..to {
        table.put(format!("key-{number}"), format!("value-{number}")).deadline(PATIENCE).await.unwrap();
        assert_eq!(table.increment("count", 1).deadline(PATIENCE).await.unwrap().value, number + 1);
    }
}

#[test]
fn the_leaders_node_is_killed_again_and_again_and_nobody_helps() {
    let mut group = Group::start("group", NODES);
    assert_eq!(group.members_in_status(), 3);
    let mut written = 0;
    for _ in 0..3 {
        let leader = group.leader();
        group.kill(leader);
        // A session begins, and values are written, while the leader is away: others lead.
        block_on(write(&group, written, written + 5));
        written += 5;
        group.wait_until_well();
        group.start_node(leader);
        group.wait_until_healthy();
        block_on(all_is_there(&group, written));
    }
}

#[test]
fn all_members_are_killed_and_two_of_them_come_back() {
    let mut group = Group::start("group-restart", NODES);
    block_on(write(&group, 0, 5));
    (1..=NODES).for_each(|node| group.kill(node));
    [2, 3].into_iter().for_each(|node| group.start_node(node));
    group.wait_until_well();
    block_on(all_is_there(&group, 5));
    block_on(write(&group, 5, 8));
    group.start_node(1);
    group.wait_until_healthy();
    block_on(all_is_there(&group, 8));
}

/// The folder of the node that began the cluster is lost, too: that node had no other part in it than others.
#[test]
fn the_folder_of_any_node_may_be_lost() {
    for lost in [1, 3] {
        let mut group = Group::start("group-folder", NODES + 1);
        block_on(write(&group, 0, 5));
        group.kill(lost);
        fs::remove_dir_all(group.data(lost)).unwrap();
        group.wait_until_well();
        block_on(all_is_there(&group, 5));
        // A node of a new number takes the place of the one that is lost.
        group.start_node(NODES + 1);
        group.wait_until_healthy();
        block_on(write(&group, 5, 8));
        block_on(all_is_there(&group, 8));
    }
}

/// Its flags are those of the start that has begun the cluster, and its folder is new: it joins, and begins nothing.
#[test]
fn who_is_told_to_begin_a_cluster_that_there_is_joins_it() {
    let mut group = Group::start("group-begins", NODES);
    block_on(write(&group, 0, 3));
    group.kill(1);
    fs::remove_dir_all(group.data(1)).unwrap();
    group.start_node(1);
    // Its number is the lost node's, and its folder another one.
    group.nodes.remove(&1).expect("it runs").fails_saying(&["K0502"]);
    group.wait_until_well();
    block_on(all_is_there(&group, 3));
}

/// Each node was given the address of one member, which is gone. A node that starts knows the others by its folder.
#[test]
fn by_default_any_node_may_be_lost_and_others_start_without_it() {
    let mut cluster = Cluster::start("group-default", "1s", NODES);
    let status = |cluster: &Cluster| -> Result<Json, String> {
        let output = run(&["status", "--json", "--address", &cluster.addresses().join(",")]);
        serde_json::from_slice(&output.stdout).map_err(|_| String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(list(&status(&cluster).unwrap()["group"]).len(), 3);
    cluster.kill(1);
    wait_for("others that serve", || {
        let status = status(&cluster)?;
        if status["well"] == true { Ok(()) } else { Err(status["summary"].to_string()) }
    });
    cluster.kill(2);
    cluster.start_node(2);
    wait_for("two nodes of three", || health(&status(&cluster)?, 2));
    assert_eq!(cli(cluster.port_of(3), &["incr", "count"]).status.code(), Some(0));
}

/// The member of the process says nothing for a moment, and others lead; then it is not in the group any more; and so on.
#[test]
fn an_operator_moves_members_and_the_lead() {
    let mut group = Group::start("group-orders", NODES + 1);
    group.start_node(NODES + 1);
    group.wait_until_healthy();
    let orders = |group: &Group, words: &[&str]| {
        let addresses = group.addresses().join(",");
        run(&[&["admin", "--address", &addresses, "coordinator"], words].concat())
    };
    let obeyed = |group: &Group, words: &[&str]| {
        let output = orders(group, words);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for node in [2, 3, 1] {
        assert!(obeyed(&group, &["lead", "--node", &node.to_string()]).contains(&format!("node-{node} leads")));
        assert_eq!(group.leader(), node);
        block_on(write(&group, 5 * i64::from(node % 3), 5 * i64::from(node % 3)));
    }
    block_on(write(&group, 0, 5));
    obeyed(&group, &["remove", "--node", "node-1"]);
    assert_ne!(group.leader(), 1);
    let members = |group: &Group| -> BTreeSet<u64> {
        let status = group.status().unwrap();
        list(&status["group"]).iter().map(|member| member["node"].as_u64().unwrap()).collect()
    };
    assert_eq!(members(&group), BTreeSet::from([2, 3, 4]));
    // The process of node 1 is a node and no member: whatever becomes of it, two more may not be lost.
    group.kill(1);
    block_on(write(&group, 5, 8));
    group.start_node(1);
    group.wait_until_healthy();
    let refused = orders(&group, &["add", "--node", "1"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("K0510"));
    let refused = orders(&group, &["size", "5"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("only 3 nodes"), "{refused:?}");
    obeyed(&group, &["size", "1"]);
    assert_eq!(members(&group).len(), 1);
    block_on(all_is_there(&group, 8));
}

/// Folders are lost one after the other, each after another node has taken the place of the one before. Two at once are a majority.
#[test]
fn kasha_start_replaces_members_whose_folders_are_gone() {
    let (folder, port) = (Folder::new("group-start"), free_ports(6));
    let data = folder.path().join("d");
    let start_with = |flags: &[&str]| {
        let words = ["start", "--data", data.to_str().unwrap(), "--port", &port.to_string(), "--memory-mib", "64"];
        Process::spawn(command(&[&words, flags].concat()))
    };
    let start = || start_with(&[]);
    let members = |wanted: [u64; 3]| {
        wait_for("these members", || {
            let output = run(&["status", "--json", "--address", &local(port + 2).to_string()]);
            let status: Json = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
            let nodes: BTreeSet<u64> =
                list(&status["group"]).iter().filter_map(|member| member["node"].as_u64()).collect();
            // What was copied to a node that took a place is whole, too, before another folder is lost.
            health(&status, 3)?;
            if nodes == BTreeSet::from(wanted) { Ok(()) } else { Err(status["group"].to_string()) }
        });
    };
    for (lost, then) in [(None, [1, 2, 3]), (Some(3), [1, 2, 4]), (Some(1), [2, 4, 5])] {
        if let Some(lost) = lost {
            fs::remove_dir_all(data.join(format!("node-{lost}"))).unwrap();
        }
        let mut process = start();
        process.wait_until_it_says("ready");
        members(then);
        let status = run(&["status", "--address", &local(port + 2).to_string()]);
        let said = String::from_utf8_lossy(&status.stdout).into_owned();
        assert!(said.contains("3 members are on one machine") && said.contains("All is well"), "{said}");
        process.stop(Signal::TERM);
        // Whoever is left knows what the cluster was made for.
        start_with(&["--shards", "7"]).fails_saying(&["--shards 7", "shards = 3", "K0405"]);
    }
    for lost in [2, 4] {
        fs::rename(data.join(format!("node-{lost}")), folder.path().join(format!("node-{lost}"))).unwrap();
    }
    start().fails_saying(&["K0512", "node-2", "node-4"]);
    fs::rename(folder.path().join("node-2"), data.join("node-2")).unwrap();
    let mut process = start();
    process.wait_until_it_says("ready");
    process.stop(Signal::TERM);
}
