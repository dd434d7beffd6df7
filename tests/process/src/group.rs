//! Servers whose coordinator is a group of three: each has a node and a member of the group, or one that may become a member.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Output;

use kasha_client::{Client, Table};
use kasha_wire::Configuration;
use rustix::process::Signal;
use serde_json::Value as Json;

use crate::apart::block_on;
use crate::place::{Folder, free_ports, local};
use crate::process::{Process, command, health, list, run};
use crate::{PATIENCE, patient, wait_for};

/// Nodes of a new cluster.
pub const NODES: u16 = 3;

/// What the node is told that begins the cluster, on each of its starts.
pub const BEGINS: [&str; 5] = ["--host-coordinator", "--nodes", "3", "--group", "3"];

/// The servers, and the folders of their nodes.
#[derive(Debug)]
pub struct Group {
    // Dropped before the folder: the children end before it is removed.
    nodes: BTreeMap<u16, Process>,
    folder: Folder,
    /// Members listen behind this port, nodes behind the members.
    port: u16,
    /// The nodes that there are in all.
    numbers: u16,
}

impl Group {
    /// Starts the first three nodes, and waits until all is well. There can be so many nodes in all.
    #[must_use]
    pub fn start(name: &str, numbers: u16) -> Self {
        let (folder, port) = (Folder::new(name), free_ports(2 * numbers + 1));
        let mut group = Self { nodes: BTreeMap::new(), folder, port, numbers };
        (1..=NODES).for_each(|node| group.start_node(node));
        group.wait_until_healthy();
        group
    }

    /// The addresses of the nodes, for clients.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        (1..=self.numbers).map(|node| local(self.port + self.numbers + node).to_string()).collect()
    }

    /// The data folder of a node.
    #[must_use]
    pub fn data(&self, node: u16) -> PathBuf {
        self.folder.path().join(format!("node-{node}"))
    }

    /// The files of a node's member, all of which are in this folder.
    #[must_use]
    pub fn files_of_member(&self, node: u16) -> PathBuf {
        self.data(node).join("coordinator")
    }

    /// Starts the process of a node, with these flags besides.
    #[must_use]
    pub fn spawn(&self, node: u16, flags: &[&str]) -> Process {
        let (number, data) = (node.to_string(), self.data(node).into_os_string().into_string().expect("text"));
        let members: Vec<_> = (1..=self.numbers).map(|node| local(self.port + node).to_string()).collect();
        let (control, members) = (local(self.port + node).to_string(), members.join(","));
        let listen = local(self.port + self.numbers + node).to_string();
        let words = ["server", "--node", &number, "--data", &data, "--listen", &listen, "--control", &control];
        let rest = ["--coordinator", &members, "--memory-mib", "64", "--lease", "1s"];
        Process::spawn(command(&[&words[..], &rest, flags].concat()))
    }

    /// Starts a node. The first one is told on each start that it is to begin a cluster.
    pub fn start_node(&mut self, node: u16) {
        self.start_node_with(node, if node == 1 { &BEGINS } else { &[] });
    }

    /// Starts a node with these flags besides.
    pub fn start_node_with(&mut self, node: u16, flags: &[&str]) {
        let process = self.spawn(node, flags);
        self.nodes.insert(node, process);
    }

    /// A node's process.
    ///
    /// # Panics
    /// If it was not started.
    pub fn node(&mut self, node: u16) -> &mut Process {
        self.nodes.get_mut(&node).expect("it was started")
    }

    /// Takes a node's process.
    ///
    /// # Panics
    /// If it was not started.
    #[must_use]
    pub fn take(&mut self, node: u16) -> Process {
        self.nodes.remove(&node).expect("it was started")
    }

    /// Kills a node with `kill -9`.
    pub fn kill(&mut self, node: u16) {
        self.take(node).kill();
    }

    /// Kills every process with `kill -9`.
    pub fn kill_all(&mut self) {
        std::mem::take(&mut self.nodes).into_values().for_each(Process::kill);
    }

    /// Stops every process at once, as an operator would, and checks that each ends in good order.
    ///
    /// # Panics
    /// If one ends otherwise.
    pub fn stop_all(&mut self) {
        let all = std::mem::take(&mut self.nodes);
        all.values().for_each(|process| process.signal(Signal::TERM));
        for (node, mut process) in all {
            let (status, said) = process.wait();
            assert_eq!(status.code(), Some(0), "node-{node}: {said}");
        }
    }

    /// Gives the coordinator's group an order, with `kasha admin coordinator`.
    #[must_use]
    pub fn order(&self, words: &[&str]) -> Output {
        let addresses = self.addresses().join(",");
        run(&[&["admin", "--address", &addresses, "coordinator"], words].concat())
    }

    /// The output of an order that is obeyed.
    ///
    /// # Panics
    /// If it is refused.
    pub fn obeys(&self, words: &[&str]) -> String {
        let output = self.order(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The output of `kasha status --json`.
    ///
    /// # Errors
    /// The text that the command printed instead.
    pub fn status(&self) -> Result<Json, String> {
        let output = run(&["status", "--json", "--address", &self.addresses().join(",")]);
        serde_json::from_slice(&output.stdout).map_err(|_| String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Waits until every process that runs is a node that is alive, and every shard is healthy.
    pub fn wait_until_healthy(&self) {
        wait_for("a healthy cluster", || health(&self.status()?, self.nodes.len()));
    }

    /// Waits until every shard is served and the coordinator answers, although nodes are lost.
    pub fn wait_until_well(&self) {
        wait_for("a cluster that is well", || {
            let status = self.status()?;
            if status["well"] == true { Ok(()) } else { Err(status["summary"].to_string()) }
        });
    }

    /// The node whose process leads.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn leader(&self) -> u16 {
        wait_for("a leader", || {
            let status = self.status()?;
            let leader = list(&status["group"]).iter().find(|member| member["leads"] == true);
            let node = leader.and_then(|member| member["node"].as_u64()).ok_or_else(|| status.to_string())?;
            let node = u16::try_from(node).expect("a number of a node");
            if self.nodes.contains_key(&node) { Ok(node) } else { Err(format!("node-{node} does not run")) }
        })
    }

    /// The nodes that host members.
    ///
    /// # Panics
    /// If nobody says which.
    #[must_use]
    pub fn members(&self) -> BTreeSet<u16> {
        let status = wait_for("the members", || self.status());
        let nodes = list(&status["group"]).iter().filter_map(|member| member["node"].as_u64());
        nodes.map(|node| u16::try_from(node).expect("a number of a node")).collect()
    }

    /// What the leader calls the configuration.
    ///
    /// # Panics
    /// If there is no leader.
    #[must_use]
    pub fn configuration(&self) -> Configuration {
        block_on(async {
            let client = Client::connect_with(self.addresses(), patient()).await.expect("a cluster");
            client.fresh_configuration().await.expect("a leader")
        })
    }

    async fn table(&self) -> (Client, Table) {
        let client = Client::connect_with(self.addresses(), patient()).await.expect("a cluster");
        let table = client.table("default").await.expect("the default table");
        (client, table)
    }

    /// Writes the values of these numbers, which follow those before, with a session that begins now.
    ///
    /// # Panics
    /// If one cannot be written.
    pub fn write(&self, from: i64, to: i64) {
        block_on(async {
            let (_client, table) = self.table().await;
            for number in from..to {
                let put = table.put(format!("key-{number}"), format!("value-{number}"));
                put.deadline(PATIENCE).await.expect("it is written");
                let count = table.increment("count", 1).deadline(PATIENCE).await.expect("it is counted");
                assert_eq!(count.value, number + 1);
            }
        });
    }

    /// So many values were written, each once, and are there.
    ///
    /// # Panics
    /// If not.
    pub fn all_is_there(&self, values: i64) {
        block_on(async {
            let (_client, table) = self.table().await;
            for number in 0..values {
                let value = table.get(format!("key-{number}")).await.expect("it is read").expect("it was answered");
                assert_eq!(value.bytes, format!("value-{number}").as_bytes());
            }
            let count = table.get("count").await.expect("it is read").expect("counted");
            assert_eq!(count.bytes, values.to_string().as_bytes());
        });
    }
}
