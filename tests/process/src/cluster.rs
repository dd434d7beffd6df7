//! Three servers, configured in three ways: one by a file, one by its environment, one by flags.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value as Json;

use crate::place::{Folder, free_ports, local};
use crate::process::{Process, cli_says, command, status, wait_until_healthy};

/// Number of servers.
pub const NODES: u16 = 3;

/// Three servers, f = 1; node 1 hosts the coordinator.
#[derive(Debug)]
pub struct Cluster {
    // Dropped before the folder: the children end before it is removed.
    nodes: BTreeMap<u16, Process>,
    folder: Folder,
    port: u16,
    lease: &'static str,
    shards: u16,
    /// Whether the coordinator is one member, in the process of node 1; else it is the default group.
    is_alone: bool,
    /// Whether the nodes speak the Redis protocol.
    has_redis: bool,
}

impl Cluster {
    /// A cluster of which no process runs yet.
    #[must_use]
    pub fn new(name: &str, lease: &'static str, shards: u16) -> Self {
        let (folder, port) = (Folder::new(name), free_ports(2 * NODES + 2));
        Self { nodes: BTreeMap::new(), folder, port, lease, shards, is_alone: false, has_redis: false }
    }

    /// Like [`Self::start`], with a coordinator of one member: all of its memory is in the folder of node 1.
    #[must_use]
    pub fn start_alone(name: &str, lease: &'static str, shards: u16) -> Self {
        let mut cluster = Self { is_alone: true, ..Self::new(name, lease, shards) };
        cluster.start_all();
        cluster.wait_until_healthy();
        cluster
    }

    /// Like [`Self::start`], with nodes that speak the Redis protocol, too.
    #[must_use]
    pub fn start_with_redis(name: &str, lease: &'static str, shards: u16) -> Self {
        let mut cluster = Self { has_redis: true, ..Self::new(name, lease, shards) };
        cluster.start_all();
        cluster.wait_until_healthy();
        cluster
    }

    /// The port where a node speaks the Redis protocol.
    #[must_use]
    pub fn redis_port_of(&self, node: u16) -> u16 {
        self.port + NODES + 1 + node
    }

    /// Starts all three servers, and waits until the cluster is healthy.
    #[must_use]
    pub fn start(name: &str, lease: &'static str, shards: u16) -> Self {
        let mut cluster = Self::new(name, lease, shards);
        cluster.start_all();
        cluster.wait_until_healthy();
        cluster
    }

    /// Starts every node.
    pub fn start_all(&mut self) {
        for node in 1..=NODES {
            self.start_node(node);
        }
    }

    /// The coordinator's port. The nodes' ports follow, and one that is free.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A node's port.
    #[must_use]
    pub fn port_of(&self, node: u16) -> u16 {
        self.port + node
    }

    /// The addresses of the nodes, for clients.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        (1..=NODES).map(|node| local(self.port_of(node)).to_string()).collect()
    }

    /// The folder that the nodes' folders are in.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// The data folder of a node.
    #[must_use]
    pub fn data(&self, node: u16) -> PathBuf {
        self.folder.path().join(format!("node-{node}"))
    }

    /// Starts a node's process, for a test that expects it to fail.
    #[must_use]
    pub fn spawn_node(&self, node: u16) -> Process {
        Process::spawn(match node {
            1 => self.by_file(node),
            2 => self.by_environment(node),
            _ => self.by_flags(node, self.data(node), self.port_of(node)),
        })
    }

    /// Starts a node, and waits until it listens.
    pub fn start_node(&mut self, node: u16) {
        let mut process = self.spawn_node(node);
        process.wait_until_it_says(&format!("node-{node} listens at {}", local(self.port_of(node))));
        self.nodes.insert(node, process);
    }

    fn by_file(&self, node: u16) -> Command {
        let path = self.folder.path().join(format!("node-{node}.toml"));
        let text = format!(
            "node = {node}\ndata = {:?}\nlisten = [\"{}\"]\ncoordinator = \"{}\"\nhost_coordinator = true\nnodes = {NODES}\n\
             shards = {}\nmemory_mib = 64\nlease = \"{}\"\nfaults = 1\ndurability = \"replicated\"\n{}{}",
            self.data(node),
            local(self.port_of(node)),
            local(self.port),
            self.shards,
            self.lease,
            if self.is_alone { "group = 1\n" } else { "" },
            if self.has_redis { format!("redis = \"{}\"\n", local(self.redis_port_of(node))) } else { String::new() }
        );
        std::fs::write(&path, text).expect("a configuration");
        command(&["server", "--config", path.to_str().expect("text")])
    }

    fn by_environment(&self, node: u16) -> Command {
        let mut command = command(&["server"]);
        command
            .env("KASHA_NODE", node.to_string())
            .env("KASHA_DATA", self.data(node))
            .env("KASHA_LISTEN", local(self.port_of(node)).to_string())
            .env("KASHA_COORDINATOR", local(self.port).to_string())
            .env("KASHA_MEMORY_MIB", "64")
            .env("KASHA_LEASE", self.lease);
        if self.has_redis {
            command.env("KASHA_REDIS", local(self.redis_port_of(node)).to_string());
        }
        command
    }

    /// The command of a server (with right or wrong settings) that joins this cluster.
    #[must_use]
    pub fn by_flags(&self, node: u16, data: PathBuf, port: u16) -> Command {
        // The others give numbers.
        let (node, listen, coordinator) =
            (node.to_string(), format!("localhost:{port}"), format!("localhost:{}", self.port));
        let data = data.into_os_string().into_string().expect("text");
        let mut command = command(&[
            "server",
            "--node",
            &node,
            "--data",
            &data,
            "--listen",
            &listen,
            "--coordinator",
            &coordinator,
            "--memory-mib",
            "64",
            "--lease",
            self.lease,
        ]);
        if self.has_redis {
            command.arg("--redis").arg(local(self.redis_port_of(3)).to_string());
        }
        command
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

    /// Stops a node in good order, as an operator would.
    pub fn stop(&mut self, node: u16) {
        self.take(node).stop(Signal::TERM);
    }

    /// The output of `kasha status --json`.
    ///
    /// # Errors
    /// The text that the command printed instead.
    pub fn status(&self) -> Result<Json, String> {
        status(self.port)
    }

    /// Waits until every node is alive and every shard healthy.
    pub fn wait_until_healthy(&self) -> Json {
        wait_until_healthy(self.port, usize::from(NODES))
    }

    /// The output of `kasha cli`.
    pub fn cli(&self, arguments: &[&str]) -> String {
        cli_says(self.port, arguments)
    }

    /// Checks that every node runs and an update works.
    ///
    /// # Panics
    /// If not.
    pub fn is_unharmed(&mut self) {
        for (node, process) in &mut self.nodes {
            assert!(process.is_running(), "node {node} ended:\n{}", process.said());
        }
        for key in ["alive:a", "alive:b", "alive:c"] {
            let before: i64 = self.cli(&["incr", key, "0"]).parse().expect("a number");
            assert_eq!(self.cli(&["incr", key]), (before + 1).to_string());
        }
    }
}
